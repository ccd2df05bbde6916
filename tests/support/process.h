#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the harness needs of processes and files; system tests include harness.h instead. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The whole file as text, or NULL with errno. */
char *process_read_file(const char *path);

/* Children of `parent` now, zombies included, at most `max`. Returns how many. */
size_t process_children(pid_t parent, pid_t *pids, size_t max);

/* Waits up to `timeout_ms` (before slowdown) for a child to end and reaps it. *status as of waitpid. False:
 * too late. */
bool process_reap(pid_t pid, int timeout_ms, int *status);

/* Exit code, or minus the signal. */
int process_result(int status);

/* Removes a directory and all in it; does not follow links, does not leave the file system. */
void process_remove_tree(const char *path);

enum {
        PROCESS_SOCKETS_MAX = 4,
};

struct process_start {
        const char *path;
        const char *const *argv;
        const char *const
                *environment;    /* name, value, name, value, ..., NULL; on top of what this process has */
        const char *output_path; /* appended to; NULL: /dev/null */
        uint64_t descriptors;    /* RLIMIT_NOFILE; 0: unchanged */
        const int *sockets;      /* passed as systemd would (LISTEN_FDS), from descriptor 3 on */
        size_t n_sockets;
};

pid_t process_start(const struct process_start *start);

/* A process of its own session that outlives the caller: when the caller ends, or closes the pipe, without
 * janitor_dismiss, it prints the file `log_path` on standard error, kills the processes that it was told of,
 * and removes `directory`. */
struct janitor {
        pid_t pid;
        int pipe;
};

void janitor_init(struct janitor *janitor, const char *directory, const char *log_path);
void janitor_tell(struct janitor *janitor, pid_t pid);
void janitor_dismiss(struct janitor *janitor);
