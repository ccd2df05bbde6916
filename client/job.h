#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The inside of a job and its batches, shared by the files of libpinfeed. */

#include "base/fault.h"
#include "client/pinfeed.h"
#include "client/view.h"
#include "proto/message.h"
#include "proto/position.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a batch struct stands. FREE -> QUEUED -> HELD by the job's thread; HELD -> RELEASING -> FREE or
 * UNSENT by whoever releases; UNSENT -> FREE by the job's thread. */
enum batch_state {
        BATCH_FREE = 0, /* as calloc leaves it */
        BATCH_QUEUED,   /* its handle has come, the caller has not asked for it yet */
        BATCH_HELD,     /* the caller's */
        BATCH_RELEASING,
        BATCH_UNSENT, /* released, but the socket was full: the daemon does not know yet */
};

struct pinfeed_batch {
        struct pinfeed_job *job;
        struct pinfeed_batch *next; /* in the queue */
        _Atomic uint32_t state;     /* enum batch_state; acquire and release, see batch.c */
        uint32_t n_segments;
        uint64_t number; /* the daemon's */
        struct position position;
        uint64_t ready_ns;
        uint64_t received_ns;
};

struct batch_segment {
        uint32_t slot;
        uint32_t first; /* row in the slot */
        uint32_t rows;
};

struct pinfeed_job {
        /* registry.c */
        struct pinfeed_job *next_living;
        uint64_t process; /* generation of the process that opened it */

        int socket; /* -1: closed */
        pid_t daemon_pid;
        int error; /* negative errno that every later call gives once the queue is empty; 0: the stream flows
                    */
        struct fault fault;

        struct message_attached attached;
        struct view view;
        struct position_plan plan;
        struct position expected; /* the batch whose handle comes next */
        uint64_t next_number;     /* the daemon's for it */
        bool epoch_ended;         /* the next pinfeed_next says so */
        uint32_t timeout_ms;

        /* max_held structs would do; more of them are there so that a pointer is not given out again soon
         * after its release, and a second release of it is noticed. */
        struct pinfeed_batch *batches;
        struct batch_segment *segments; /* segments_each for every batch */
        _Atomic uint32_t n_batches;     /* stored last, with release: registry.c reads it in any thread */
        uint32_t segments_each;
        uint32_t cursor; /* where to look for a free struct next: the one that has been free for longest */
        struct pinfeed_batch *first_queued;
        struct pinfeed_batch *last_queued;
        uint32_t n_queued;

        atomic_uint n_held;   /* relaxed: only a number */
        atomic_uint n_unsent; /* relaxed: raised before a batch becomes UNSENT, so it is never too low */

        struct message message; /* what came last; some 20 KiB, so not on a stack */
};

/* batch.c */
int batch_new_array(struct pinfeed_job *job);
struct batch_segment *batch_segments(const struct pinfeed_batch *batch);
struct pinfeed_batch *batch_take_free(struct pinfeed_job *job);
int batch_send_unsent(struct pinfeed_job *job);
