#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows a job's batches cover: ranks, tails, and where one is after them. docs/order.md has examples. */

#include <stdint.h>

struct fault;

enum last_batch {
        LAST_BATCH_DEFAULT = 0, /* what the pipeline says */
        LAST_BATCH_SHORT = 1,
        LAST_BATCH_DROP = 2,
        LAST_BATCH_PAD = 3,
};

enum {
        POSITION_WORLD_MAX = 1 << 20,
};

#define POSITION_SAMPLES_MAX (UINT64_C(1) << 48) /* what the counter of random.h holds */
#define POSITION_ROW_MAX     (UINT64_C(1) << 52) /* no padded row is as high */
#define POSITION_NEVER       UINT64_MAX
#define POSITION_FAR         (UINT64_C(1) << 62) /* batches: that many or more */

/* How one job cuts a stream. */
struct position_plan {
        uint64_t samples;    /* N, rows of an epoch */
        uint32_t batch_size; /* b, of this rank: a step of all of them is W x b rows */
        uint32_t rank;       /* r */
        uint32_t world_size; /* W */
        enum last_batch last_batch;
};

/* A batch: rows [row, row + rows) of `epoch`. Row v >= N is padding and has the contents of row v mod N. */
struct position {
        uint32_t epoch;
        uint32_t rows; /* 1 ... b */
        uint64_t base; /* where the epoch was entered: 0, or where the job started in its first epoch */
        uint64_t step; /* 0, 1, 2 ... since then; the same for all ranks */
        uint64_t row;
};

/* 0, or -EINVAL with the numbers: an empty source, DROP with fewer samples than a step of all ranks, a start
 * row beyond the epoch, a batch size of 0 or over 2^31-1, a rank outside its world, a world over
 * POSITION_WORLD_MAX. */
int position_check(const struct position_plan *plan, uint64_t start_row, struct fault *fault);

/* The first batch of a job that starts at (epoch, row); `row` becomes the base. With DROP and less than a
 * step left it is the first batch of the next epoch. */
struct position position_first(const struct position_plan *plan, uint32_t epoch, uint64_t row);

/* The batch after `position`; crosses into the next epoch, whose base is 0. */
struct position position_next(const struct position_plan *plan, struct position position);

/* Batches of an epoch that is entered at row `base`: the same number for every rank. 0 beyond its end. */
uint64_t position_batches(const struct position_plan *plan, uint64_t base);

/* Batch `step` (less than position_batches) of an epoch entered at `base`. */
struct position position_at(const struct position_plan *plan, uint32_t epoch, uint64_t base, uint64_t step);

/* Where somebody is who has received all ranks' batches up to this one: the row of *epoch at which the step
 * after it begins. After an epoch's last batch that is row 0 of the next epoch. */
uint64_t position_after(const struct position_plan *plan, const struct position *position, uint32_t *epoch);

/* How many of its rows are padding: the last ones. */
uint32_t position_padding(const struct position_plan *plan, const struct position *position);

/* The rows of the batch from its row `offset` on that lie together in the epoch: *row is the place of the
 * first (less than N). Returns how many; 0 at the batch's end. */
uint32_t position_run(const struct position_plan *plan, const struct position *position, uint32_t offset,
                      uint64_t *row);

/* How many batches after `from` (0: itself) the first one comes that uses any of the rows [first, end) of
 * `epoch`, first < end <= N; wrapped rows count. At most POSITION_FAR, or POSITION_NEVER: none does. *found,
 * unless `found` is NULL, is that batch. */
uint64_t position_find(const struct position_plan *plan, const struct position *from, uint32_t epoch,
                       uint64_t first, uint64_t end, struct position *found);

/* A bound for the segments that a batch lies in when slots have `slot_rows` rows, wherever the job starts. */
uint64_t position_segments(const struct position_plan *plan, uint32_t slot_rows);
