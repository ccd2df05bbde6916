/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A position is (epoch, row) and never "the n-th batch": a job that starts in the middle of an epoch, or
 * resumes with another batch size or world size, counts its steps from there (`base`), and only rows mean the
 * same to everybody.
 *
 * From base B at step t, rank r of W takes rows B + (t W + r) b ... + b while a whole step fits into N. Of
 * the R rows that are left, 0 < R < W b, the tail is made, one more step; B' is its first row:
 *
 *     SHORT  Rank r takes rows B' + r q ... + q, q = R / W rounded up: as few as let all ranks have the
 *            same number. At most W - 1 of all these rows lie beyond N, and none does with W = 1.
 *     DROP   There is no tail.
 *     PAD    Rank r takes rows B' + r b ... + b, as in any step. Up to W b - 1 rows lie beyond N.
 *
 * So all ranks have the same number of batches, and none is empty. Rows beyond N wrap round to the epoch's
 * first. A step of all ranks covers the same rows for every W with the same W b, which is what makes a
 * resumed run with another W see every row once.
 *
 * Everything here is O(1) arithmetic on checked plans: 1 <= N <= 2^48, 1 <= b < 2^31, r < W <= 2^20, hence
 * W b < 2^51 and no sum below leaves 64 bits; with DROP N >= W b, so every epoch entered at row 0 has a step.
 */

#include "proto/position.h"

#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>

static uint64_t step_rows(const struct position_plan *plan) {
        return (uint64_t)plan->world_size * plan->batch_size;
}

/* Can rows of a tail lie beyond N? */
static bool wraps(const struct position_plan *plan) {
        return plan->last_batch == LAST_BATCH_PAD ||
               (plan->last_batch == LAST_BATCH_SHORT && plan->world_size > 1);
}

static int check_ranks(const struct position_plan *plan, struct fault *fault) {
        if (plan->world_size == 0 || plan->world_size > POSITION_WORLD_MAX)
                return fault_set(fault, -EINVAL, "world_size: expected from 1 to %d, got %u",
                                 POSITION_WORLD_MAX, plan->world_size);
        if (plan->rank >= plan->world_size)
                return fault_set(fault, -EINVAL, "rank: expected from 0 to %u (world_size is %u), got %u",
                                 plan->world_size - 1, plan->world_size, plan->rank);
        return 0;
}

static int check_last_batch(const struct position_plan *plan, struct fault *fault) {
        switch (plan->last_batch) {
        case LAST_BATCH_SHORT:
        case LAST_BATCH_PAD:
                return 0;
        case LAST_BATCH_DROP:
                if (plan->samples >= step_rows(plan))
                        return 0;
                if (plan->world_size == 1)
                        return fault_set(fault, -EINVAL,
                                         "last_batch: with drop an epoch would be empty, %" PRIu64
                                         " samples are fewer than one batch of %u",
                                         plan->samples, plan->batch_size);
                return fault_set(fault, -EINVAL,
                                 "last_batch: with drop an epoch would be empty, %" PRIu64
                                 " samples are fewer than the %" PRIu64 " of one step (%u ranks of %u)",
                                 plan->samples, step_rows(plan), plan->world_size, plan->batch_size);
        default:
                return fault_set(fault, -EINVAL, "last_batch: expected short, drop or pad, got %d",
                                 (int)plan->last_batch);
        }
}

int position_check(const struct position_plan *plan, uint64_t start_row, struct fault *fault) {
        int r;

        if (plan->samples == 0 || plan->samples > POSITION_SAMPLES_MAX)
                return fault_set(fault, -EINVAL,
                                 "samples: expected from 1 to %" PRIu64 ", the source has %" PRIu64,
                                 POSITION_SAMPLES_MAX, plan->samples);
        if (plan->batch_size == 0 || plan->batch_size > INT32_MAX)
                return fault_set(fault, -EINVAL, "batch_size: expected from 1 to %d, got %u", INT32_MAX,
                                 plan->batch_size);
        r = check_ranks(plan, fault);
        if (r < 0)
                return r;
        r = check_last_batch(plan, fault);
        if (r < 0)
                return r;
        if (start_row >= plan->samples)
                return fault_set(fault, -EINVAL,
                                 "start_row: expected from 0 to %" PRIu64 ", got %" PRIu64
                                 " (an epoch has %" PRIu64 " rows)",
                                 plan->samples - 1, start_row, plan->samples);
        return 0;
}

/* Steps that fit whole between `base` and the epoch's end. */
static uint64_t whole_steps(const struct position_plan *plan, uint64_t base) {
        return base < plan->samples ? (plan->samples - base) / step_rows(plan) : 0;
}

/* Is there such a step? */
static bool has_step(const struct position_plan *plan, uint64_t base, uint64_t step) {
        uint64_t begin = base + step * step_rows(plan);

        if (plan->last_batch == LAST_BATCH_DROP)
                return begin + step_rows(plan) <= plan->samples;
        return begin < plan->samples;
}

uint64_t position_batches(const struct position_plan *plan, uint64_t base) {
        uint64_t whole = whole_steps(plan, base);

        return whole + has_step(plan, base, whole);
}

/* Rows that each rank gets at `step`. */
static uint64_t rows_at(const struct position_plan *plan, uint64_t base, uint64_t step) {
        uint64_t left = plan->samples - base - step * step_rows(plan);

        if (plan->last_batch != LAST_BATCH_SHORT || left >= step_rows(plan))
                return plan->batch_size;
        return (left - 1) / plan->world_size + 1;
}

struct position position_at(const struct position_plan *plan, uint32_t epoch, uint64_t base, uint64_t step) {
        uint64_t each = rows_at(plan, base, step);

        return (struct position){.epoch = epoch,
                                 .rows = (uint32_t)each,
                                 .base = base,
                                 .step = step,
                                 .row = base + step * step_rows(plan) + plan->rank * each};
}

struct position position_first(const struct position_plan *plan, uint32_t epoch, uint64_t row) {
        if (has_step(plan, row, 0))
                return position_at(plan, epoch, row, 0);
        return position_at(plan, epoch + 1, 0, 0);
}

struct position position_next(const struct position_plan *plan, struct position position) {
        if (has_step(plan, position.base, position.step + 1))
                return position_at(plan, position.epoch, position.base, position.step + 1);
        return position_at(plan, position.epoch + 1, 0, 0);
}

uint64_t position_after(const struct position_plan *plan, const struct position *position, uint32_t *epoch) {
        if (has_step(plan, position->base, position->step + 1)) {
                *epoch = position->epoch;
                return position->base + (position->step + 1) * step_rows(plan);
        }
        *epoch = position->epoch + 1;
        return 0;
}

uint32_t position_padding(const struct position_plan *plan, const struct position *position) {
        uint64_t end = position->row + position->rows;

        if (end <= plan->samples)
                return 0;
        return position->row >= plan->samples ? position->rows : (uint32_t)(end - plan->samples);
}

uint32_t position_run(const struct position_plan *plan, const struct position *position, uint32_t offset,
                      uint64_t *row) {
        uint64_t left = position->rows - offset;

        *row = position->row + offset;
        if (*row >= plan->samples)
                *row %= plan->samples;
        return (uint32_t)(left < plan->samples - *row ? left : plan->samples - *row);
}

/* Does the batch use any of the rows [first, end)? */
static bool uses(const struct position_plan *plan, const struct position *batch, uint64_t first,
                 uint64_t end) {
        uint64_t begin = batch->row % plan->samples, stop = begin + batch->rows;

        if (begin < end && first < stop)
                return true;
        return stop > plan->samples && first < stop - plan->samples; /* the rest lies at the beginning */
}

/* The first step >= `from` of an epoch entered at `base` that uses any of the rows [first, end). Whole steps
 * rise through the epoch, so the first one that ends behind `first` is it or none is; only the tail wraps. */
static uint64_t find_step(const struct position_plan *plan, uint64_t base, uint64_t from, uint64_t first,
                          uint64_t end) {
        uint64_t whole = whole_steps(plan, base), each = step_rows(plan), step = 0;
        uint64_t begin = base + (uint64_t)plan->rank * plan->batch_size; /* of step 0 */
        struct position tail;

        if (first >= begin + plan->batch_size)
                step = (first - begin - plan->batch_size) / each + 1;
        if (step < from)
                step = from;
        if (step < whole && begin + step * each < end)
                return step;
        if (!has_step(plan, base, whole))
                return POSITION_NEVER;
        tail = position_at(plan, 0, base, whole);
        return uses(plan, &tail, first, end) ? whole : POSITION_NEVER;
}

/* Batches from `from` to step `step` of the later `epoch`. The product alone can leave 64 bits; what is left
 * of the one epoch and the steps of the other are below 2^49. */
static uint64_t count_across(const struct position_plan *plan, const struct position *from, uint32_t epoch,
                             uint64_t step) {
        uint64_t between;

        if (__builtin_mul_overflow((uint64_t)(epoch - from->epoch - 1), position_batches(plan, 0),
                                   &between) ||
            between >= POSITION_FAR)
                return POSITION_FAR;
        between += position_batches(plan, from->base) - from->step + step;
        return between < POSITION_FAR ? between : POSITION_FAR;
}

uint64_t position_find(const struct position_plan *plan, const struct position *from, uint32_t epoch,
                       uint64_t first, uint64_t end, struct position *found) {
        bool here = epoch == from->epoch;
        uint64_t base = here ? from->base : 0, step;

        if (epoch < from->epoch || (here && end <= from->row && !wraps(plan)))
                return POSITION_NEVER; /* the usual case: passed */
        step = find_step(plan, base, here ? from->step : 0, first, end);
        if (step == POSITION_NEVER)
                return POSITION_NEVER;
        if (found)
                *found = position_at(plan, epoch, base, step);
        return here ? step - from->step : count_across(plan, from, epoch, step);
}

/* A batch of n rows wraps round at most (n - 1) / N + 1 times. The runs that this makes lie in (n - 1) / S
 * slots and two more each at most, and none of them in more than there are. */
uint64_t position_segments(const struct position_plan *plan, uint32_t slot_rows) {
        uint64_t rows = plan->batch_size, slots = (plan->samples - 1) / slot_rows + 1, runs = 1, most;

        if (plan->last_batch != LAST_BATCH_PAD && rows > plan->samples)
                rows = plan->samples; /* no tail is longer, and no step that fits */
        if (wraps(plan))
                runs = (rows - 1) / plan->samples + 2;
        most = (rows - 1) / slot_rows + 2 * runs;
        if (most > runs * slots)
                most = runs * slots;
        return most < rows ? most : rows;
}
