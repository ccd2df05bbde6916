#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How many processors this process may really use: affinity, cpuset and quota, cgroup v1 and v2. */

/* At least 1. The minimum of sched_getaffinity, of the cpuset, and of quota / period rounded down (but not
 * below 1), over this process's cgroup and all its parents. `root` is the directory that holds
 * proc/self/cgroup, proc/self/mountinfo and the mounted cgroup trees: "" for the machine, a fixture tree in
 * tests. */
int cpu_count_usable(const char *root);
