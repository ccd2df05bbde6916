#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The page on which a worker says what it is doing, and on which the daemon says what it shall not begin. */

#include "proto/stages.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
        WORKER_PAGE_BYTES = 4096,
};

#define WORKER_PAGE_IDLE UINT64_MAX

/* Each word has one writer: the worker, but for `recalled`, which is the daemon's alone and lies apart, so
 * that neither side's stores take the line away from the other.
 *
 * Every store is a release and every load an acquire, so whoever sees a word sees all that was stored before
 * it; after the worker's death all that it stored is there, up to one place in this order.
 *
 * The sample in work. Begin: sample = WORKER_PAGE_IDLE, epoch, row, started_ns, then the sample. It is the
 * sample whose bytes are looked at: where a row needs a substitute, that one and not the one that the order
 * has at `row`. What happens to the worker while `sample` is not idle is that sample's doing.
 *
 * The chunk in work. Begin: chunk_done = 0, chunk_first, chunk_slot. Each row: its last byte, sample =
 * WORKER_PAGE_IDLE, then chunk_done + 1. End, before the DONE or the BROKEN is sent: sample and chunk_slot =
 * WORKER_PAGE_IDLE. So after death chunk_slot and chunk_first name a chunk that was not answered, of which
 * the first chunk_done rows are whole, and `sample`, unless idle, was in work for the row after them; or they
 * name none, and of the chunks that were not answered no row is promised. A reader of a living worker loads
 * chunk_slot, chunk_first, chunk_done, then the first two again: the same values mean that chunk_done is of
 * that chunk.
 *
 * Recall. Chunks have ordinals, 1, 2, 3 ..., by their place in all ASSIGNs together, counted alike by both
 * sides. Before the worker looks at chunk n it stores begun = n and then loads `recalled`; the daemon stores
 * recalled = k and then loads `begun`. These four are sequentially consistent, as nothing less keeps a store
 * before a load of another word: at least one side sees the other's. What follows from that is told in
 * daemon/pool-recall.c.
 *
 * Stage times. Of a row that was made, before the page says that it is whole: for each stage that it was in,
 * stage_ns and then one of stage_rows (proto/stages.h). They are for people, and a reader may find a row
 * counted in one stage and not yet in another. */
struct worker_page {
        _Atomic uint64_t sample; /* sample number in work, or WORKER_PAGE_IDLE */
        _Atomic uint64_t epoch;
        _Atomic uint64_t row;         /* its place in the epoch */
        _Atomic uint64_t started_ns;  /* clock_ns() at the start of this sample */
        _Atomic uint64_t rows_done;   /* since the worker started; only grows */
        _Atomic uint64_t cpu_ns;      /* CPU time of the worker at the end of its last chunk; only grows */
        _Atomic uint64_t chunk_slot;  /* slot of the chunk in work, or WORKER_PAGE_IDLE */
        _Atomic uint64_t chunk_first; /* first row of that chunk in the slot */
        _Atomic uint64_t chunk_done;  /* rows of it that are whole */
        _Atomic uint64_t begun;       /* ordinal of the last chunk that was begun or declined; only grows */
        /* By the daemon. 0, or the first ordinal that is not to be begun, nor any after it. */
        _Alignas(128) _Atomic uint64_t recalled; /* processors may fetch lines of 64 bytes in pairs */
        /* By the worker again. Both only grow. */
        _Alignas(128) _Atomic uint64_t stage_ns[STAGE_KINDS]; /* in all */
        _Atomic uint64_t stage_rows[STAGE_KINDS][STAGE_BUCKETS];
};

_Static_assert(offsetof(struct worker_page, cpu_ns) == 40, "shared by two processes");
_Static_assert(offsetof(struct worker_page, chunk_done) == 64, "shared by two processes");
_Static_assert(offsetof(struct worker_page, begun) == 72, "shared by two processes");
_Static_assert(offsetof(struct worker_page, recalled) == 128, "shared by two processes");
_Static_assert(offsetof(struct worker_page, stage_ns) == 256, "shared by two processes");
_Static_assert(offsetof(struct worker_page, stage_rows) == 288, "shared by two processes");
_Static_assert(STAGE_KINDS == 4 && STAGE_BUCKETS == 108, "shared by two processes");
_Static_assert(sizeof(struct worker_page) <= WORKER_PAGE_BYTES, "one page");
