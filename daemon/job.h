#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One connection of a training process: a session that attaches, gets batches, releases them. */

#include "base/list.h"
#include "daemon/access.h"
#include "daemon/map.h"
#include "daemon/orders.h"
#include "daemon/recent.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct fault;
struct job;
struct quota;

/* What a job has defined, as it came. */
struct job_definition {
        char *file; /* NULL: nothing has come */
        char *text;
        size_t length;
};

enum {
        JOB_SILENCE_MS = 10000,    /* until ATTACH; libpinfeed sends it with its first record */
        JOB_SECOND_LOOK_MS = 1000, /* a limit fires only when two looks so far apart saw it exceeded */
        JOB_SEEKS_MAX = 16,        /* SEEKs without an answer; one more is the job's mistake */
};

#define JOB_STATES(S)                                                                                        \
        S(QUEUED, queued)       /* its uid connects too often: not read yet */                               \
        S(NEW, new)             /* has not said HELLO */                                                     \
        S(GREETED, greeted)     /* may ATTACH */                                                             \
        S(ATTACHING, attaching) /* waits for its pipeline */                                                 \
        S(ATTACHED, attached)                                                                                \
        S(CLOSED, closed)

enum job_state {
#define S(NAME, name) JOB_##NAME,
        JOB_STATES(S)
#undef S
};

struct job_events {
        /* The job asks for job->attach. The callee keeps it waiting, or calls job_refuse or job_set_attached.
         */
        void (*attach)(void *context, struct job *job);
        /* The job gives batches back. A number it does not hold is its mistake: return -EINVAL and it is
         * closed. */
        int (*release)(void *context, struct job *job, const uint64_t *numbers, uint32_t n_numbers);
        /* The job wants to go elsewhere: job_next_seek says where. The callee answers with job_answer_seek,
         * now or when it can. */
        void (*seek)(void *context, struct job *job);
        /* It is gone, for whatever reason; called once, if attach was. The job must not be used afterwards.
         */
        void (*closed)(void *context, struct job *job);
        /* Its user has asked for a batch; may be said again. */
        void (*read)(void *context, struct job *job);
        /* It has brought a zygote: job->zygote_fd, the callee's to take. It may be refused by job_close. */
        void (*bring)(void *context, struct job *job);
        /* It gives the order of an epoch; *fd is the callee's to take. It may be refused by job_close. */
        void (*order)(void *context, struct job *job, const struct message_order *order, int *fd);
        /* It was refused, by whomever. May be NULL. */
        void (*refused)(void *context);
        /* Somebody has connected. 0, or -EPERM with the reason: it is turned away. NULL: who is not trusted
         * is. */
        int (*welcome)(void *context, const struct peer *peer, struct fault *fault);
};

struct job {
        struct list link;          /* in the daemon's list of jobs */
        struct list pipeline_link; /* in its pipeline's list */
        void *owner;               /* set by the attach callback: the pipeline */
        uint32_t id;
        enum job_state state;
        int socket;
        int pidfd; /* -1: there is none to be had; see watched */
        uv_poll_t poll;
        uv_poll_t death;  /* on pidfd */
        uv_timer_t timer; /* until ATTACH: its turn, then its silence */
        unsigned handles; /* of these, not yet closed */
        pid_t pid;
        uid_t uid;
        const char *watched; /* how its death will be seen, for people */
        struct quota *quota;
        const struct job_events *events;
        void *context;
        struct message_attach attach; /* as it came; world_size and max_held are never 0, and its pipeline has
                                         filled in what was left to it: batch_size, last_batch */
        uint64_t seed;                /* of its stream */
        struct job_definition definition; /* until it has been asked for */
        int zygote_fd;                    /* that it has brought and nobody has taken; -1: none */
        uint32_t zygote_pid;
        struct orders orders; /* that it has given before its ATTACH */
        uint64_t connected_ns;
        struct recent recent; /* see observe.c */
        struct map map;       /* how it maps the ring */
        /* Batches that are leased but not yet written to the socket: circular, sized at attach for all that
         * the job may ever hold, so nothing is allocated later and nothing can overflow. */
        struct message_batch *outbox;
        struct message_segment *segments; /* outbox_size x segments_each */
        uint32_t outbox_size;
        uint32_t segments_each;
        uint32_t outbox_first;
        uint32_t outbox_count;
        uint64_t sent; /* number of the first batch that has not been written to the socket */
        struct message_seek seeks[JOB_SEEKS_MAX]; /* to be answered: circular */
        uint32_t seeks_first;
        uint32_t seeks_count;
        struct message_sought answer; /* to the one before these, */
        bool answering;               /* if it has not been written to the socket */
        bool late;                    /* it was silent for too long at the first look */
        bool counted;                 /* it waits to be let in, and its slots are kept free for it */
        bool expecting;               /* ranks of its group have not come: it is given nothing */
        bool demoted;                 /* lockstep: it was said that nobody waits for it */
        bool dirty;                   /* something is in the outbox; job_flush is due */
        bool blocked;                 /* the socket is full; writability is awaited */
        struct peer peer;             /* who it is; its groups until it has been asked for */
        bool may_pin;                 /* may have a ring that it may write to */
};

enum job_error {
        JOB_E_GONE = 1, /* the process that connected has ended already */
};

/* Takes over a connected socket. 0 and the job is in `jobs`; JOB_E_GONE or a negative errno, and the socket
 * is closed: its peer has been told why where that is for it to know. */
int job_new(uv_loop_t *loop, struct list *jobs, struct quota *quota, int socket, uint32_t id,
            const struct job_events *events, void *context, struct fault *fault);

/* Ends the connection; the closed callback runs before this returns, the memory goes a turn later. `reason`
 * is logged unless NULL. Harmless when it is closed already. */
void job_close(struct job *job, const char *reason);

/* Answers ATTACH with REFUSED and closes. */
void job_refuse(struct job *job, int error, const char *text);

void job_send_progress(struct job *job, enum message_stage stage, uint64_t done, uint64_t total);

/* Answers ATTACH: sends ATTACHED with the ring and makes room for `max_held` batches of up to
 * `segments_each`. Closes the job when that fails. */
void job_set_attached(struct job *job, const struct message *attached, int ring_fd, uint32_t segments_each);

/* Puts a batch into the outbox; job_flush sends it. Its segments, as many as it says, are the caller's to
 * write to where this points. */
struct message_segment *job_deliver(struct job *job, const struct message_batch *batch);
void job_flush(struct job *job);

/* The SEEK that is to be answered next. NULL: there is none, or the answer before it still waits for the
 * socket; the event `seek` comes again when it does no more. */
const struct message_seek *job_next_seek(const struct job *job);

/* Takes a batch that was not sent out of the outbox: *number is the caller's to release. False: there is
 * none. */
bool job_take_back(struct job *job, uint64_t *number);

/* Answers job_next_seek and sends the answer before anything else. `next` is the number of the batch that the
 * scheduler will deliver next; `error` is 0, or a negative errno with its text. */
void job_answer_seek(struct job *job, uint64_t next, int error, const char *text);

/* Sends FAILED and closes. */
void job_fail(struct job *job, const struct message_failed *failed);

const char *job_state_name(enum job_state state);
