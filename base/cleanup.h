#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Scope-bound cleanup: a local that owns something frees it when it leaves its scope. */

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((__cleanup__(function)))

/* Hands a descriptor over: the caller owns the result, the variable owns nothing any more. */
static inline int fd_take(int *fd) {
        int taken = *fd;

        *fd = -1;
        return taken;
}

/* Closes *fd unless it is negative, and forgets it. Never changes errno. */
static inline void fd_closep(int *fd) {
        if (*fd >= 0)
                close(fd_take(fd));
}

/* For `_cleanup_(freep) char *text`: frees what the pointer at p points to. */
static inline void freep(void *p) {
        free(*(void **)p);
}
