#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who holds the memory of rings that no daemon serves any more. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
        SPACE_HOLDERS_MAX = 16, /* named at most; all are counted */
        SPACE_NAME_MAX = 16,    /* of a process, as the kernel keeps it */
        SPACE_TEXT_MAX = 512,
};

struct space_holder {
        pid_t pid;
        uint64_t bytes; /* of earlier rings, mapped or held by a descriptor */
        char name[SPACE_NAME_MAX];
};

struct space_report {
        uint32_t n_holders; /* processes that may be looked at; SPACE_HOLDERS_MAX of them are in the list */
        struct space_holder holders[SPACE_HOLDERS_MAX]; /* with most bytes first */
        uint64_t bytes;                                 /* of all of them */
        uint64_t unseen; /* in /dev/shm, of files without a name that nobody seen here holds */
};

/* Looks through /proc, which takes long where there are many processes, and so belongs into a thread.
 * `only_shm`: rings in memfds do not count. */
void space_look(struct space_report *report, bool only_shm);

/* "python3 (pid 77) holds 1.0 GiB of an earlier ring, ...", with "waits for this one itself" for those of
 * `waiting`. "" when nobody holds anything. */
void space_describe(const struct space_report *report, const pid_t *waiting, uint32_t n_waiting,
                    char text[SPACE_TEXT_MAX]);
