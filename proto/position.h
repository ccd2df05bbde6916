#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows a job's batches cover: positions are (epoch, row), never "the n-th batch". */

#include <stdint.h>

struct fault;

enum last_batch {
        LAST_BATCH_DEFAULT = 0, /* what the pipeline says */
        LAST_BATCH_SHORT = 1,
        LAST_BATCH_DROP = 2,
        LAST_BATCH_PAD = 3, /* not yet: refused by position_check */
};

/* How one job cuts a stream. world_size and rank stand here already; until they work, position_check refuses
 * everything but rank 0 of 1. */
struct position_plan {
        uint64_t samples;    /* N, rows of an epoch */
        uint32_t batch_size; /* b */
        uint32_t rank;
        uint32_t world_size;
        enum last_batch last_batch; /* SHORT or DROP */
};

/* The place of a batch: rows [row, row + rows) of `epoch`. `base` is the row the epoch was entered at (0, or
 * where the job started in its first epoch). */
struct position {
        uint32_t epoch;
        uint64_t base;
        uint64_t row;
        uint32_t rows;
};

/* 0, or -EINVAL with both numbers: an empty source, DROP with fewer samples than one batch, a start row
 * beyond the epoch, a batch size of 0 or over 2^31-1, ranks (not yet). */
int position_check(const struct position_plan *plan, uint64_t start_row, struct fault *fault);

/* The job's first batch at or after (epoch, row), where `row` becomes the base. With DROP and too few rows
 * left it is the first batch of the next epoch. */
struct position position_first(const struct position_plan *plan, uint32_t epoch, uint64_t row);

/* The batch after `position`; crosses into the next epoch, whose base is 0. */
struct position position_next(const struct position_plan *plan, struct position position);

/* Batches of an epoch that is entered at row `base`. */
uint64_t position_batches(const struct position_plan *plan, uint64_t base);

/* Batches from `from` (a position of this plan) to `to` (epoch, row), counted in whole and partial batches,
 * rounded down; UINT64_MAX when `to` lies behind. Used to rank how soon a row will be wanted. */
uint64_t position_batches_until(const struct position_plan *plan, struct position from, uint32_t epoch,
                                uint64_t row);
