#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The control groups of this process: where they lie, and what they tell. */

#include <stdbool.h>
#include <stdint.h>

/* `directory` is one of a cgroup. True: go on to its parent. */
typedef bool (*cgroup_visit_fn)(void *context, const char *directory, bool is_v2);

/* Calls `visit` for this process's cgroup in every mounted tree that has one of `controllers`
 * (NULL-terminated; version 2 has all), and for its parents up to the top. `root` is the directory that holds
 * proc/self/cgroup, proc/self/mountinfo and the mounted cgroup trees: "" for the machine, a fixture tree in
 * tests. */
void cgroup_visit(const char *root, const char *const controllers[], cgroup_visit_fn visit, void *context);

/* The same for another process, whose number `process` is, as far as its cgroup lies in what this process
 * sees mounted. */
void cgroup_visit_of(const char *root, const char *process, const char *const controllers[],
                     cgroup_visit_fn visit, void *context);

/* First line of DIRECTORY/NAME, without its newline. False: it cannot be read. */
bool cgroup_read_line(const char *directory, const char *name, char *line, int size);

/* How many processes of this process's cgroup the kernel's OOM killer has killed (oom_kill of memory.events
 * in version 2, of memory.oom_control in version 1); 0 where that cannot be read. Only grows. */
uint64_t cgroup_oom_kills(const char *root);
