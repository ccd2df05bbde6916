/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A position is (epoch, row) and never "the n-th batch": a job that starts in the middle of an epoch, or
 * resumes with another batch size, counts its batches from there (`base`), and only rows mean the same to
 * everybody.
 *
 * Batches of an epoch entered at row B start at B, B + b, B + 2b ...: whole ones while they fit; what is left
 * is one short batch (SHORT) or nothing (DROP). Therefore a position of a plan always has at least one row,
 * and the batch after it is found without knowing anything of the past. Everything here is arithmetic on
 * checked plans: N >= 1, b >= 1, and with DROP N >= b, so that every epoch that is entered at row 0 has a
 * batch. */

#include "proto/position.h"

#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>

#define SAMPLES_MAX (UINT64_C(1) << 48) /* what the counter of random.h holds */

static int check_ranks(const struct position_plan *plan, struct fault *fault) {
        if (plan->world_size == 1 && plan->rank == 0)
                return 0;
        if (plan->world_size > 0 && plan->rank >= plan->world_size)
                return fault_set(fault, -EINVAL, "rank: there is no rank %u of %u", plan->rank,
                                 plan->world_size);
        return fault_set(fault, -EINVAL, "rank: ranks are not there yet, expected rank 0 of 1, got %u of %u",
                         plan->rank, plan->world_size);
}

static int check_last_batch(const struct position_plan *plan, struct fault *fault) {
        switch (plan->last_batch) {
        case LAST_BATCH_SHORT:
                return 0;
        case LAST_BATCH_DROP:
                if (plan->samples >= plan->batch_size)
                        return 0;
                return fault_set(fault, -EINVAL,
                                 "last_batch: with drop an epoch would be empty, %" PRIu64
                                 " samples are fewer than one batch of %u",
                                 plan->samples, plan->batch_size);
        case LAST_BATCH_PAD:
                return fault_set(fault, -EINVAL, "last_batch: pad is not there yet, expected short or drop");
        default:
                return fault_set(fault, -EINVAL, "last_batch: expected short or drop, got %d",
                                 (int)plan->last_batch);
        }
}

int position_check(const struct position_plan *plan, uint64_t start_row, struct fault *fault) {
        int r;

        if (plan->samples == 0 || plan->samples > SAMPLES_MAX)
                return fault_set(fault, -EINVAL,
                                 "samples: expected from 1 to %" PRIu64 ", the source has %" PRIu64,
                                 SAMPLES_MAX, plan->samples);
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

/* Rows of the batch that starts with `left` rows of the epoch before it; 0: there is none. */
static uint32_t rows_of(const struct position_plan *plan, uint64_t left) {
        if (left >= plan->batch_size)
                return plan->batch_size;
        return plan->last_batch == LAST_BATCH_DROP ? 0 : (uint32_t)left;
}

/* The batch at `row`, or the first one of the next epoch. */
static struct position batch_at(const struct position_plan *plan, uint32_t epoch, uint64_t base,
                                uint64_t row) {
        uint32_t rows = row < plan->samples ? rows_of(plan, plan->samples - row) : 0;

        if (rows > 0)
                return (struct position){.epoch = epoch, .base = base, .row = row, .rows = rows};
        return (struct position){.epoch = epoch + 1, .rows = rows_of(plan, plan->samples)};
}

struct position position_first(const struct position_plan *plan, uint32_t epoch, uint64_t row) {
        return batch_at(plan, epoch, row, row);
}

struct position position_next(const struct position_plan *plan, struct position position) {
        return batch_at(plan, position.epoch, position.base, position.row + position.rows);
}

uint64_t position_batches(const struct position_plan *plan, uint64_t base) {
        uint64_t left = base < plan->samples ? plan->samples - base : 0;
        uint64_t whole = left / plan->batch_size;

        return whole + (rows_of(plan, left % plan->batch_size) > 0);
}

static uint64_t least_of(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

uint64_t position_batches_until(const struct position_plan *plan, struct position from, uint32_t epoch,
                                uint64_t row) {
        uint64_t left = position_batches(plan, from.row), each = position_batches(plan, 0), between;

        if (epoch < from.epoch || (epoch == from.epoch && row < from.row))
                return UINT64_MAX;
        if (epoch == from.epoch)
                return least_of((row - from.row) / plan->batch_size, left);

        /* at most 2^48 + 2^48 besides the product, which alone can overflow */
        left += least_of(row / plan->batch_size, each);
        if (__builtin_mul_overflow((uint64_t)(epoch - from.epoch - 1), each, &between) ||
            between > UINT64_MAX / 2)
                return UINT64_MAX - 1;
        return between + left;
}
