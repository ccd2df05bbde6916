#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A group (cgroup version 1) below the one that the test is in, for a test to enter and to limit.
 *
 * It is named after the program, which outlives its tests: a process cannot remove the group that it is in,
 * so main says cgroup_owner = getpid(), and the program removes the group after each test, however that
 * ended. */

#include "tests/support/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        CGROUP_PARENT_MAX = 200,
        CGROUP_PATH_MAX = 256,
        CGROUP_TEXT_MAX = 256,
};

static pid_t cgroup_owner;

static inline bool cgroup_write(const char *directory, const char *name, const char *text) {
        char path[CGROUP_PATH_MAX + 64];
        bool written;
        int fd;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
        if (fd >= 0)
                close(fd);
        return written;
}

static inline bool cgroup_read(const char *directory, const char *name, char text[CGROUP_TEXT_MAX]) {
        char path[CGROUP_PATH_MAX + 64];
        ssize_t length = 0;
        int fd;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
                length = read(fd, text, CGROUP_TEXT_MAX - 1);
                close(fd);
        }
        text[length > 0 ? length : 0] = 0;
        return length > 0;
}

/* Where this process is in the v1 tree of `controller`, as a directory; false where there is no such tree. */
static inline bool cgroup_find_own(const char *controller, char directory[CGROUP_PARENT_MAX]) {
        FILE *file = fopen("/proc/self/cgroup", "re");
        char line[512], *place;
        bool found = false;

        while (file && fgets(line, sizeof(line), file)) {
                char *names = strchr(line, ':');

                line[strcspn(line, "\n")] = 0;
                place = names ? strchr(names + 1, ':') : NULL;
                if (!place)
                        continue;
                *place++ = 0;
                if (strcmp(names + 1, controller) != 0)
                        continue;
                snprintf(directory, CGROUP_PARENT_MAX, "/sys/fs/cgroup/%.32s%.100s", controller,
                         place[1] ? place : "");
                found = access(directory, W_OK) == 0;
        }
        if (file)
                fclose(file);
        return found;
}

static inline bool cgroup_name(const char *controller, char parent[CGROUP_PARENT_MAX],
                               char group[CGROUP_PATH_MAX]) {
        if (!cgroup_find_own(controller, parent))
                return false;
        snprintf(group, CGROUP_PATH_MAX, "%s/pinfeed-test-%d", parent, (int)cgroup_owner);
        return true;
}

/* Makes the group; false where that is not allowed. */
static inline bool cgroup_make(const char *controller, char parent[CGROUP_PARENT_MAX],
                               char group[CGROUP_PATH_MAX]) {
        return cgroup_name(controller, parent, group) && mkdir(group, 0755) == 0;
}

/* This process goes into it; what it starts will be in it too. */
static inline bool cgroup_enter(const char *group) {
        return cgroup_write(group, "cgroup.procs", "0");
}

/* By the program; the test's own process may still be in the group. */
static inline void cgroup_remove(const char *controller) {
        char parent[CGROUP_PARENT_MAX], group[CGROUP_PATH_MAX];

        if (!cgroup_name(controller, parent, group))
                return;
        for (int i = 0; i < 1000 && rmdir(group) < 0 && errno == EBUSY; i++)
                usleep(HARNESS_POLL_US); /* until the kernel has buried what was in it */
}
