#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What belongs to one connection of a job: its socket, its ring, and the batches that came over it. */

#include "client/pin.h"
#include "client/view.h"
#include "proto/position.h"

#include <stdatomic.h>
#include <stdint.h>

struct fault;
struct mark;
struct message_attached;
struct pinfeed_job;
struct staging_buffer;

/* Where a batch struct stands. FREE -> QUEUED -> HELD and QUEUED -> UNSENT by the job's thread; HELD ->
 * RELEASING -> FREE, UNSENT or COPYING by whoever releases; COPYING -> FREE or UNSENT by the device thread
 * (reaper.c); UNSENT -> FREE by the job's thread. */
enum batch_state {
        BATCH_FREE = 0, /* as calloc leaves it */
        BATCH_QUEUED,   /* its handle has come, the caller has not asked for it yet */
        BATCH_HELD,     /* the caller's */
        BATCH_RELEASING,
        BATCH_UNSENT,  /* released, but the daemon does not know yet */
        BATCH_COPYING, /* released, but a GPU may still read it */
};

struct pinfeed_batch {
        struct attachment *attachment; /* never changes */
        struct pinfeed_batch *next;    /* in the queue; among those that are COPYING */
        _Atomic uint32_t state;        /* enum batch_state; acquire and release, see batch.c */
        uint32_t n_segments;
        uint64_t number; /* the daemon's */
        struct position position;
        uint32_t padding; /* how many of its rows are */
        uint64_t ready_ns;
        uint64_t received_ns;

        /* Of a job with a GPU. The job's thread's while HELD, then the device thread's. */
        struct mark *marks;            /* of the copies that read the slots */
        struct staging_buffer *buffer; /* the one that it was copied to, if that has no other owner since */
        bool registered;               /* all its slots are */
};

struct batch_segment {
        uint32_t slot;
        uint32_t first; /* row in the slot */
        uint32_t rows;
        bool padding;
};

enum {
        /* The device thread's reference, in the same number as all others: so whoever gives back the last of
         * those knows whether it was, in one step. */
        ATTACHMENT_DEVICE = 1 << 30,
};

struct attachment {
        struct pinfeed_job *job;
        struct attachment *next;      /* among the job's retired ones */
        struct attachment *next_left; /* among those that the device thread is to give back */
        int socket;                   /* -1: closed; changes under the registry's write lock */
        /* One of the job while it is the current one, one of each batch that is HELD or COPYING, and
         * ATTACHMENT_DEVICE once slots are registered. */
        _Atomic uint32_t references;
        _Atomic uint32_t n_held; /* batches that the caller holds; relaxed */
        atomic_uint n_unsent;    /* relaxed: raised before a batch becomes UNSENT, so never too low */

        struct view view;
        struct pins pins;
        /* max_held structs would do; more of them are there so that a pointer is not given out again soon
         * after its release, and a second release of it is noticed. */
        struct pinfeed_batch *batches;
        struct batch_segment *segments; /* segments_each for every batch */
        uint8_t *padding_flags;         /* slot_rows times PINFEED_ROW_PADDING; NULL: no batch has any */
        _Atomic uint32_t n_batches;     /* stored last, with release: registry.c reads it in any thread */
        uint32_t segments_each;
        uint32_t cursor; /* where to look for a free struct next: the one that has been free for longest */

        struct pinfeed_batch *first_queued;
        struct pinfeed_batch *last_queued;
        uint32_t n_queued;
        struct position expected; /* the batch whose handle comes next */
        uint64_t next_number;     /* the daemon's for it */
        uint32_t entered;         /* the epoch that the daemon was last told to go to */
        bool told;                /* the daemon knows that the job reads */
};

/* NULL for want of memory. It is referenced once: the job's. */
struct attachment *attachment_new(struct pinfeed_job *job);

/* Of one that nobody can find any more. */
void attachment_free(struct attachment *attachment);

/* Maps the ring and makes room for batches of `plan`; they are found by the registry from now on. 0 or a
 * negative errno with its text. */
int attachment_prepare(struct attachment *attachment, const struct message_attached *attached,
                       const struct position_plan *plan, int ring, struct fault *fault);

/* Gives back one reference; the last one unmaps the ring, or leaves that to the device thread. From any
 * thread, under the registry's lock. */
void attachment_unref(struct attachment *attachment);

/* The device thread's reference: taken by the job's thread, once, when slots are registered; given back by
 * the device thread when none is, which unmaps the ring. Under the registry's lock. */
void attachment_ref_device(struct attachment *attachment);
void attachment_unref_device(struct attachment *attachment);

/* Ends the job's current attachment: the socket is closed, what is queued is dropped, what is held stays
 * valid. Frees those that were retired before and have no held batch left. */
void attachment_retire(struct pinfeed_job *job);

/* Batches of the current attachment that the caller holds; and those and what is COPYING, which the daemon
 * cannot tell from them. */
static inline uint32_t attachment_held(const struct attachment *attachment) {
        return atomic_load_explicit(&attachment->n_held, memory_order_relaxed);
}

static inline uint32_t attachment_leased(const struct attachment *attachment) {
        uint32_t references = atomic_load_explicit(&attachment->references, memory_order_relaxed);

        return (references & ~(uint32_t)ATTACHMENT_DEVICE) - 1;
}

/* A struct that may be filled, or NULL. */
struct pinfeed_batch *attachment_take_free(struct attachment *attachment);

/* Appends a filled batch to the queue; takes out the first one, or NULL. */
void attachment_queue(struct attachment *attachment, struct pinfeed_batch *batch);
struct pinfeed_batch *attachment_dequeue(struct attachment *attachment);

/* Ends the lease of a batch, which is RELEASING, or COPYING and the caller is the device thread. 0, or -EPIPE
 * when the daemon is gone: it is ended all the same. From any thread, under the registry's lock. */
int attachment_release(struct attachment *attachment, struct pinfeed_batch *batch);

/* Releases a batch that the caller has never seen, at the next attachment_send_unsent. */
void attachment_drop(struct attachment *attachment, struct pinfeed_batch *batch);

/* Tells the daemon about releases that it does not know of. 0, also when they do not fit now; -EPIPE. */
int attachment_send_unsent(struct attachment *attachment);

/* The batch's segments. */
static inline struct batch_segment *batch_segments(const struct pinfeed_batch *batch) {
        const struct attachment *attachment = batch->attachment;

        return attachment->segments + (size_t)(batch - attachment->batches) * attachment->segments_each;
}

static inline uint32_t batch_state(const struct pinfeed_batch *batch) {
        return atomic_load_explicit(&((struct pinfeed_batch *)batch)->state, memory_order_acquire);
}

static inline void batch_set_state(struct pinfeed_batch *batch, enum batch_state state) {
        atomic_store_explicit(&batch->state, state, memory_order_release);
}
