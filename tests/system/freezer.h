#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Processes that no signal ends, as on dead storage: frozen in a cgroup (version 1), where that can be had.
 * A guard, a process that nobody waits for, thaws and removes the group however the test ends. */

#include "tests/support/harness.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FREEZER_ROOT "/sys/fs/cgroup/freezer"

struct freezer {
        char directory[128];
        int guard; /* the end of a pipe; the guard acts when the last copy is closed */
};

static inline bool freezer_write(const struct freezer *freezer, const char *name, const char *text) {
        char path[256];
        bool written;
        int fd;

        snprintf(path, sizeof(path), "%s/%s", freezer->directory, name);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
        close(fd);
        return written;
}

static inline void freezer_clear(const struct freezer *freezer) {
        freezer_write(freezer, "freezer.state", "THAWED");
        for (int i = 0; i < 1000 && rmdir(freezer->directory) < 0 && errno == EBUSY; i++)
                usleep(10000);
}

static inline void freezer_guard(const struct freezer *freezer, int end) {
        char byte;

        for (int fd = 0; fd < 1024; fd++)
                if (fd != end)
                        close(fd);
        setsid();
        while (read(end, &byte, 1) < 0 && errno == EINTR)
                ;
        freezer_clear(freezer);
        _exit(0);
}

/* Before harness_new, which adopts what has lost its parent. False: there is none here, and the test says so
 * and passes. */
static inline bool freezer_init(struct freezer *freezer) {
        int ends[2], status;
        pid_t pid;

        snprintf(freezer->directory, sizeof(freezer->directory), FREEZER_ROOT "/pinfeed-test-%d",
                 (int)getpid());
        if (mkdir(freezer->directory, 0700) < 0) {
                harness_skip("%s: %s", freezer->directory, strerror(errno));
                return false;
        }
        if (!freezer_write(freezer, "freezer.state", "THAWED")) {
                harness_skip("%s: %s", freezer->directory, strerror(errno));
                rmdir(freezer->directory);
                return false;
        }
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        pid = fork();
        if (pid == 0) {
                if (fork() == 0)
                        freezer_guard(freezer, ends[0]);
                _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        close(ends[0]);
        freezer->guard = ends[1];
        return true;
}

static inline void freezer_add(const struct freezer *freezer, pid_t pid) {
        char text[32];

        snprintf(text, sizeof(text), "%d", (int)pid);
        ck_assert(freezer_write(freezer, "cgroup.procs", text));
}

static inline void freezer_set(const struct freezer *freezer, bool frozen) {
        ck_assert(freezer_write(freezer, "freezer.state", frozen ? "FROZEN" : "THAWED"));
}

static inline void freezer_deinit(struct freezer *freezer) {
        freezer_clear(freezer);
        close(freezer->guard);
}
