/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rule 1: the most slots that a batch and the one after it lie in together, over the rest of a stream.
 *
 * Whole steps of an epoch entered at row B begin, for this rank, at B + (t W + r) b, and the batch of n rows
 * at x lies in (x + n - 1) / S - x / S + 1 slots. Both terms move by whole slots when x moves by a multiple
 * of S, so that for whole batches the number depends on x mod S only, which repeats after S / gcd(W b, S)
 * steps; P is their number. Hence
 *
 *   - the pairs of whole batches with t < P show all there is of those;
 *   - what is left are the pair of the last whole batch and the tail, which may be shorter or wrap round, and
 *     the one over the border: the epoch's last batch, then the first of the next epoch.
 *
 * A stream is its first epoch (B: the start row) and then one epoch entered at row 0 again and again, so
 * these two epochs and the borders first -> whole and whole -> whole are everything.
 *
 * P is 1 when W b is a multiple of S, and small for the usual powers of two, but can be as large as S. Beyond
 * STEPS_MAX the sum of two worst single batches, b / S rounded up plus one each, is taken instead: a batch of
 * b rows touches at most that many slots wherever it starts, so the bound is never too low, and at most 2 too
 * high. */

#include "daemon/scheduler-internal.h"

#define STEPS_MAX 4096 /* 0.2 ms for an epoch, at every attach and seek */

static uint64_t pair_of(const struct scheduler_config *config, const struct position_plan *plan,
                        struct position batch) {
        struct position next = position_next(plan, batch);
        struct slot_span a = span_of(config, plan, &batch), b = span_of(config, plan, &next);

        return span_count(&a) + span_count(&b);
}

static uint64_t greater_of(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

static uint64_t period(uint64_t step, uint64_t slot) {
        uint64_t a = step, b = slot;

        while (b > 0) {
                uint64_t rest = a % b;

                a = b;
                b = rest;
        }
        return slot / a;
}

/* The worst pair that begins in an epoch entered at `base`, which has at least one batch. */
static uint64_t worst_of_epoch(const struct scheduler_config *config, const struct position_plan *plan,
                               uint64_t base) {
        uint64_t b = plan->batch_size, batches = position_batches(plan, base);
        uint64_t steps = period(b * plan->world_size, config->slot_rows);
        uint64_t worst = pair_of(config, plan, position_at(plan, 0, base, batches - 1));

        if (batches > 1)
                worst = greater_of(worst, pair_of(config, plan, position_at(plan, 0, base, batches - 2)));
        if (steps > batches - 1)
                steps = batches - 1;
        if (steps > STEPS_MAX)
                return greater_of(worst, 2 * ((b + config->slot_rows - 1) / config->slot_rows + 1));
        for (uint64_t t = 0; t < steps; ++t)
                worst = greater_of(worst, pair_of(config, plan, position_at(plan, 0, base, t)));
        return worst;
}

uint32_t scheduler_minimum(const struct scheduler_config *config, const struct position_plan *plan,
                           uint64_t start_row) {
        uint64_t base = position_first(plan, 0, start_row).base;
        uint64_t worst = worst_of_epoch(config, plan, 0);

        if (base > 0)
                worst = greater_of(worst, worst_of_epoch(config, plan, base));
        return worst < SCHEDULER_NONE ? (uint32_t)worst : SCHEDULER_NONE;
}
