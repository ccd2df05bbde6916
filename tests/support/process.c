/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Processes as the tests see them: by pid, through /proc and pidfd.
 *
 * Nothing here trusts the program under test to say how it is. Waiting is done on a pidfd and not in steps,
 * so that a measured time is the program's and not the poll interval's. */

#include <check.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/harness.h"
#include "tests/support/process.h"

int harness_slowdown(void) {
        const char *text = getenv("PINFEED_TEST_SLOWDOWN");
        int factor = text ? atoi(text) : 1;

        return factor < 1 ? 1 : factor;
}

/* Files of /proc have no size, so this reads until there is no more. */
char *process_read_file(const char *path) {
        size_t length = 0, size = 4096;
        FILE *file = fopen(path, "re");
        char *text;

        if (!file)
                return NULL;
        text = malloc(size);
        ck_assert_ptr_nonnull(text);
        for (;;) {
                size_t got = fread(text + length, 1, size - length - 1, file);

                if (got == 0)
                        break;
                length += got;
                if (size - length < 2) {
                        char *larger = realloc(text, size *= 2);

                        ck_assert_ptr_nonnull(larger);
                        text = larger;
                }
        }
        text[length] = 0;
        fclose(file);
        return text;
}

/* State letter and parent; false if the process is gone. The name may hold anything, so search the last ')'.
 */
static bool read_stat(pid_t pid, char *state, pid_t *parent) {
        char path[64], *text, *end;
        int n = 0;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        text = process_read_file(path);
        if (!text)
                return false;
        end = strrchr(text, ')');
        if (end)
                n = sscanf(end + 1, " %c %d", state, parent);
        free(text);
        return n == 2;
}

bool harness_alive(pid_t pid) {
        pid_t parent;
        char state;

        return read_stat(pid, &state, &parent) && state != 'Z' && state != 'X';
}

size_t process_children(pid_t parent, pid_t *pids, size_t max) {
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        size_t n = 0;

        ck_assert_ptr_nonnull(proc);
        while (n < max && (entry = readdir(proc))) {
                pid_t pid = (pid_t)atoi(entry->d_name), its_parent;
                char state;

                if (pid > 0 && read_stat(pid, &state, &its_parent) && its_parent == parent)
                        pids[n++] = pid;
        }
        closedir(proc);
        return n;
}

bool process_reap(pid_t pid, int timeout_ms, int *status) {
        uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * (uint64_t)harness_slowdown() * NS_PER_MS;
        struct pollfd poll_fd = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
        bool reaped = false;

        ck_assert_msg(poll_fd.fd >= 0, "pid %d is no child of this test, or was reaped before: %s", (int)pid,
                      strerror(errno));
        for (;;) {
                uint64_t now = clock_ns();

                if (waitpid(pid, status, WNOHANG) == pid) {
                        reaped = true;
                        break;
                }
                if (now >= deadline)
                        break;
                poll(&poll_fd, 1, (int)((deadline - now) / NS_PER_MS) + 1);
        }
        close(poll_fd.fd);
        return reaped;
}

int process_result(int status) {
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int remove_entry(const char *path, const struct stat *facts, int type, struct FTW *place) {
        return remove(path);
}

void process_remove_tree(const char *path) {
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Above all that is open first, so that none is overwritten before it was moved. */
static void pass_sockets(const int *sockets, size_t n) {
        int above[PROCESS_SOCKETS_MAX];
        char text[16];

        if (n == 0)
                return;
        for (size_t i = 0; i < n; i++)
                above[i] = fcntl(sockets[i], F_DUPFD_CLOEXEC, 100);
        for (size_t i = 0; i < n; i++)
                dup2(above[i], 3 + (int)i);
        snprintf(text, sizeof(text), "%zu", n);
        setenv("LISTEN_FDS", text, 1);
        snprintf(text, sizeof(text), "%d", (int)getpid());
        setenv("LISTEN_PID", text, 1);
        setenv("LISTEN_FDNAMES", "pinfeed:pinfeed:third:fourth", 1);
}

static void __attribute__((noreturn)) start_child(const struct process_start *start) {
        int input = open("/dev/null", O_RDONLY);
        int output = start->output_path ? open(start->output_path, O_WRONLY | O_CREAT | O_APPEND, 0600)
                                        : open("/dev/null", O_WRONLY);

        if (input < 0 || output < 0)
                _exit(126);
        dup2(input, STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        close(input);
        close(output);
        for (size_t i = 0; start->environment && start->environment[i]; i += 2)
                setenv(start->environment[i], start->environment[i + 1], 1);
        if (start->descriptors) {
                struct rlimit limit = {start->descriptors, start->descriptors};

                setrlimit(RLIMIT_NOFILE, &limit);
        }
        pass_sockets(start->sockets, start->n_sockets);
        execv(start->path, (char *const *)start->argv);
        dprintf(STDERR_FILENO, "%s: %s\n", start->path, strerror(errno));
        _exit(127);
}

pid_t process_start(const struct process_start *start) {
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0)
                start_child(start);
        return pid;
}

size_t harness_descriptors(pid_t pid) {
        struct dirent *entry;
        size_t n = 0;
        char path[64];
        DIR *fds;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        fds = opendir(path);
        ck_assert_msg(fds != NULL, "%s: %s", path, strerror(errno));
        while ((entry = readdir(fds)))
                n += isdigit((unsigned char)entry->d_name[0]) != 0;
        closedir(fds);
        return n - (pid == getpid()); /* without the one that was counting */
}

static char *read_proc(pid_t pid, const char *name) {
        char path[64], *text;

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
        text = process_read_file(path);
        ck_assert_msg(text != NULL, "%s: %s", path, strerror(errno));
        return text;
}

/* "Name:   123 kB" in bytes. */
static uint64_t read_kilobytes(pid_t pid, const char *file, const char *name) {
        char *text = read_proc(pid, file);
        char *at = strstr(text, name);
        unsigned long long kilobytes = 0;

        ck_assert_msg(at && sscanf(at + strlen(name), " %llu kB", &kilobytes) == 1, "no %s of pid %d in %s",
                      name, (int)pid, file);
        free(text);
        return (uint64_t)kilobytes * 1024;
}

uint64_t harness_resident_bytes(pid_t pid) {
        return read_kilobytes(pid, "status", "VmRSS:");
}

uint64_t harness_proportional_bytes(pid_t pid) {
        return read_kilobytes(pid, "smaps_rollup", "\nPss:");
}

int harness_oom_score_adj(pid_t pid) {
        char *text = read_proc(pid, "oom_score_adj");
        int adjustment = atoi(text);

        free(text);
        return adjustment;
}

size_t harness_mappings(pid_t pid) {
        char *text = read_proc(pid, "maps");
        size_t lines = 0;

        for (const char *at = text; *at; at++)
                lines += *at == '\n';
        free(text);
        return lines;
}

size_t harness_shm_objects(void) {
        DIR *shm = opendir("/dev/shm");
        struct dirent *entry;
        size_t n = 0;

        while (shm && (entry = readdir(shm)))
                n += !strncmp(entry->d_name, "pinfeed", 7);
        if (shm)
                closedir(shm);
        return n;
}
