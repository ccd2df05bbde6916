/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The page tells the daemon which sample is in work and which rows are whole, row by row: a hang or a crash
 * must be pinned on one sample, and what was done before it is kept.
 *
 * Each release is for the reader that comes after our death as much as for the one that looks now: it keeps
 * the compiler and the CPU from storing "whole" before the last byte of the row. A chunk's name is taken off
 * the page before the chunk is answered, because the same place of the same slot may come back to us as
 * another chunk, and its rows must not look whole.
 *
 * Whether a chunk may be begun at all is asked in one way only, by store and load in this order; the daemon
 * does the same from its side, see proto/worker-page.h. */

#include "daemon/worker/progress.h"

#include "base/clock.h"
#include "proto/worker-page.h"

static void put(_Atomic uint64_t *word, uint64_t value) {
        atomic_store_explicit(word, value, memory_order_release);
}

void progress_init(struct worker_page *page) {
        put(&page->sample, WORKER_PAGE_IDLE);
        put(&page->chunk_slot, WORKER_PAGE_IDLE);
}

bool progress_may_begin(struct worker_page *page, uint64_t ordinal) {
        uint64_t recalled;

        atomic_store_explicit(&page->begun, ordinal, memory_order_seq_cst);
        recalled = atomic_load_explicit(&page->recalled, memory_order_seq_cst);
        return recalled == 0 || ordinal < recalled;
}

void progress_begin_chunk(struct worker_page *page, uint32_t slot, uint32_t first) {
        if (!page)
                return;
        put(&page->chunk_done, 0);
        put(&page->chunk_first, first);
        put(&page->chunk_slot, slot);
}

void progress_begin_sample(struct worker_page *page, uint64_t sample, uint32_t epoch, uint64_t row) {
        if (!page)
                return;
        put(&page->sample, WORKER_PAGE_IDLE);
        put(&page->epoch, epoch);
        put(&page->row, row);
        put(&page->started_ns, clock_ns());
        put(&page->sample, sample);
}

void progress_end_row(struct worker_page *page, uint32_t done) {
        if (!page)
                return;
        put(&page->sample, WORKER_PAGE_IDLE);
        put(&page->chunk_done, done);
}

void progress_end_chunk(struct worker_page *page, uint32_t done) {
        struct timespec used;

        if (!page)
                return;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        put(&page->rows_done, atomic_load_explicit(&page->rows_done, memory_order_relaxed) + done);
        put(&page->cpu_ns, (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec);
        put(&page->sample, WORKER_PAGE_IDLE);
        put(&page->chunk_slot, WORKER_PAGE_IDLE);
}
