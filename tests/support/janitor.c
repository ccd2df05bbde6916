/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The janitor: cleans up after a test that ends before its last line.
 *
 * Check ends a failing test with _exit() in the test's own process, and a crash or a time-out asks nobody. So
 * neither atexit() nor a fixture's teardown runs, and the daemon's log, which says why, would be lost
 * together with the test. A process of its own sees the end of the test as the end of a pipe, whatever the
 * cause.
 *
 * The pipe carries pids. A process is held by pidfd from the moment its pid arrives, so that no stranger with
 * the same number is killed later. Pid 0 is the dismissal. */

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/process.h"

enum {
        LOG_TAIL = 16 * 1024,
        PROCESSES_MAX = 64,
};

static void print_log(const char *log_path) {
        char *log = process_read_file(log_path);
        size_t length;

        if (!log)
                return;
        length = strlen(log);
        fprintf(stderr, "--- the test ended early; what its daemon said:\n%s%s---\n",
                length > LOG_TAIL ? "...\n" : "", log + (length > LOG_TAIL ? length - LOG_TAIL : 0));
        free(log);
}

static void __attribute__((noreturn)) janitor_main(int pipe, const char *directory, const char *log_path) {
        int pidfds[PROCESSES_MAX];
        size_t n_pidfds = 0;
        pid_t pid;

        setsid();
        signal(SIGINT, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        while (read(pipe, &pid, sizeof(pid)) == (ssize_t)sizeof(pid)) {
                if (pid == 0)
                        _exit(0);
                if (n_pidfds < PROCESSES_MAX) {
                        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

                        if (pidfd >= 0)
                                pidfds[n_pidfds++] = pidfd;
                }
        }
        print_log(log_path);
        for (size_t i = 0; i < n_pidfds; i++)
                syscall(SYS_pidfd_send_signal, pidfds[i], SIGKILL, NULL, 0);
        process_remove_tree(directory);
        _exit(0);
}

void janitor_init(struct janitor *janitor, const char *directory, const char *log_path) {
        int fds[2];

        ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
        janitor->pid = fork();
        ck_assert_int_ge(janitor->pid, 0);
        if (janitor->pid == 0) {
                /* Others' janitors wait for the end of their own pipes: hold no end of those. */
                int pipe = dup2(fds[0], STDERR_FILENO + 1);

                closefrom(STDERR_FILENO + 2);
                janitor_main(pipe, directory, log_path);
        }
        close(fds[0]);
        janitor->pipe = fds[1];
}

void janitor_tell(struct janitor *janitor, pid_t pid) {
        ck_assert_int_eq(write(janitor->pipe, &pid, sizeof(pid)), sizeof(pid));
}

void janitor_dismiss(struct janitor *janitor) {
        janitor_tell(janitor, 0);
        close(janitor->pipe);
        janitor->pipe = -1;
        waitpid(janitor->pid, NULL, 0);
}
