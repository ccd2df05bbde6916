#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a job brings for a dataset in Python: who forks the workers (BRING), and orders of epochs (ORDER). */

#include <stdbool.h>
#include <stdint.h>

struct pinfeed_job;

enum {
        BROUGHT_ORDERS_MAX = 2, /* of the epoch that the job is in, and of the one it goes to next */
};

struct brought_order {
        int fd; /* -1: there is none */
        bool told;
        uint32_t epoch;
        uint64_t entries;
};

struct brought {
        int zygote; /* the daemon's end of its pair; -1: there is none */
        bool zygote_told;
        uint32_t zygote_pid;
        struct brought_order orders[BROUGHT_ORDERS_MAX]; /* the one that was given last is the last */
};

#define BROUGHT_NONE ((struct brought){.zygote = -1, .orders = {{.fd = -1}, {.fd = -1}}})

/* Keep a duplicate of `fd` for this daemon and those to come, in place of an earlier zygote, or order of that
 * epoch. 0, or a negative errno with its text in job->fault: -EINVAL, or fcntl's. */
int brought_keep_zygote(struct pinfeed_job *job, int fd, uint32_t pid);
int brought_keep_order(struct pinfeed_job *job, uint32_t epoch, int fd, uint64_t entries);

/* Whether the job's daemon does not know all of it. */
bool brought_is_news(const struct brought *brought);

/* The next daemon knows nothing of it. */
void brought_begin_anew(struct brought *brought);

/* Tells the daemon what it does not know. 0, or message_send's error: then it does not know the rest. */
int brought_tell(struct pinfeed_job *job);

/* Closes what is kept; also in a fork's child, where that is all there is to do. */
void brought_deinit(struct brought *brought);
