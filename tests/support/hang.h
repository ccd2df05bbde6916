#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A file that cannot be opened, as on storage that has died: openat does not return. The kernel asks a
 * listener (fanotify) whether it may be opened, and the listener never answers. Only SIGKILL, and the
 * listener's end, end the wait. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/fanotify.h>
#include <unistd.h>

/* The listener's descriptor: closing it lets everybody go on. -1: that cannot be had here, and the test says
 * so and passes. */
static inline int hang_at(const char *path) {
        int fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY);

        if (fd >= 0 && fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path) == 0)
                return fd;
        printf("# skipped: no file can be made to hang here: %s\n", strerror(errno));
        if (fd >= 0)
                close(fd);
        return -1;
}

/* Waits until somebody has tried, and so hangs. */
static inline void hang_wait(int listener) {
        struct pollfd tried = {.fd = listener, .events = POLLIN};

        ck_assert_int_eq(poll(&tried, 1, 10000), 1);
}
