#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon's side of a zygote: the process of a user's script that forks workers when it is asked to. */

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct fault;
struct message;
struct zygote;

enum {
        ZYGOTE_FORKS_MAX = 16, /* FORKs without an answer: it forks one after the other anyway */
};

struct zygote_events {
        /* It has answered a FORK: a worker has come, or has not, and another one may be asked for. */
        void (*answered)(void *context, struct zygote *zygote);
        /* It is gone, without zygote_close: its children follow, and then its memory. */
        void (*gone)(void *context, struct zygote *zygote);
};

/* What whoever asked for a child hears. After `exited` and `orphaned`, and after `forked` with an error, the
 * zygote has forgotten the child. */
struct zygote_child_events {
        /* `error` 0: its pidfd is the callee's; or a positive errno. */
        void (*forked)(void *context, int error, int pid, int pidfd);
        /* It was waited for. False: that cannot be. */
        bool (*exited)(void *context, int signal, int exit_status);
        /* The zygote is gone; the child may live for a moment. */
        void (*orphaned)(void *context);
};

/* One that was asked for and of whose end nothing was heard. */
struct zygote_child {
        struct list link; /* in zygote->children, in the order of their FORKs */
        struct zygote *zygote;
        uint32_t number;
        bool forked; /* its FORKED has come */
        const struct zygote_child_events *events;
        void *context; /* NULL: nobody waits for it any more */
};

struct zygote {
        struct list link; /* its owner's */
        const void *owner;
        int pid; /* as the user says; for people only */
        int socket;
        uv_poll_t poll;
        bool closed;
        uint32_t unanswered;
        struct list children;
        const struct zygote_events *events; /* NULL: nobody asks any more */
        void *context;
};

/* Takes *socket over if all goes well: one end of a pair of SOCK_SEQPACKET. 0 or a negative errno. */
int zygote_new(struct zygote **zygote, uv_loop_t *loop, int *socket, int pid,
               const struct zygote_events *events, void *context, struct fault *fault);

/* Nothing is asked of it any more. Its children are orphaned a turn later, then the memory goes. */
void zygote_close(struct zygote *zygote);

/* Whether it may be asked for another child now. */
bool zygote_may_fork(const struct zygote *zygote);

/* Asks for a child that gets both descriptors, which stay the caller's. What becomes of it is told by the
 * events, also when the zygote turns out to be gone. 0 or -ENOMEM. */
int zygote_fork(struct zygote *zygote, uint32_t number, int nice, int socket, int leash,
                const struct zygote_child_events *events, void *context, struct zygote_child **child);

/* Nobody waits for this child any more: if it comes yet it is killed, and its end changes nothing. */
void zygote_forget(struct zygote_child *child);
