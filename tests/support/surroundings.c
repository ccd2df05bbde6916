/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a test finds around it: mounts of its own, shared data, the reason to skip. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/support/harness.h"

static bool write_file(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

        if (fd >= 0)
                close(fd);
        return written;
}

/* The same ids inside as outside, so that checks of ownership see what they saw. */
static bool isolate_user(void) {
        char uids[64], gids[64];

        snprintf(uids, sizeof(uids), "%d %d 1", (int)geteuid(), (int)geteuid());
        snprintf(gids, sizeof(gids), "%d %d 1", (int)getegid(), (int)getegid());
        return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_file("/proc/self/setgroups", "deny") &&
               write_file("/proc/self/uid_map", uids) && write_file("/proc/self/gid_map", gids);
}

bool harness_isolate_mounts(void) {
        if (unshare(CLONE_NEWNS) < 0 && !isolate_user())
                return false;
        /* The root of a chroot may be no mount; then the one that will be covered is enough. */
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
               mount(NULL, "/dev/shm", NULL, MS_PRIVATE, NULL) == 0;
}

void harness_mount_tmpfs(const char *directory, uint64_t bytes) {
        char options[64];

        snprintf(options, sizeof(options), "size=%llu,mode=1777", (unsigned long long)bytes);
        ck_assert_msg(mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0,
                      "mount tmpfs on %s: %s", directory, strerror(errno));
}

bool harness_quick(void) {
        return getenv("PINFEED_TEST_QUICK") != NULL;
}

const char *harness_data(const char *name, char path[HARNESS_PATH_MAX]) {
        const char *data = getenv("PINFEED_TEST_DATA");

        if (!data)
                return NULL;
        snprintf(path, HARNESS_PATH_MAX, "%s/%s", data, name);
        return access(path, R_OK) == 0 ? path : NULL;
}

void harness_skip(const char *format, ...) {
        va_list arguments;

        printf("# skipped: ");
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        printf("\n");
        fflush(stdout);
}
