/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rule 1: the most slots that a batch and the one after it lie in together, over the rest of a stream.
 *
 * Batches of an epoch entered at row B start at B + t x b; the batch at row x with n rows lies in
 * (x + n - 1) / S - x / S + 1 slots. Both terms move by whole slots when x moves by a multiple of S, so that
 * for whole batches the number depends on x mod S only, and x mod S repeats after P = S / gcd(b, S) batches.
 * Hence
 *
 *   - the pairs inside an epoch with t < P show all there is. The epoch's last batch may be short; if
 *     its pair is not among them, a pair of whole batches with the same residues is, and needs no fewer;
 *   - what is left is the pair over the border: the last batch, then the one at row 0 of the next epoch.
 *
 * A stream is its first epoch (B: the start row) and then one epoch entered at row 0 again and again, so
 * these two epochs and the borders first -> whole and whole -> whole are everything.
 *
 * P is 1 when b is a multiple of S, and small for the usual powers of two, but can be as large as S. Beyond
 * STEPS_MAX the sum of two worst single batches, b / S rounded up plus one each, is taken instead: a batch of
 * b rows touches at most that many slots wherever it starts, so the bound is never too low, and at most 2 too
 * high. */

#include "daemon/scheduler-internal.h"

#define STEPS_MAX 65536 /* 0.2 ms, once per attach */

static uint64_t slots_at(const struct scheduler_config *config, const struct position_plan *plan,
                         uint64_t row) {
        uint64_t left = config->samples - row;
        uint64_t rows = left < plan->batch_size ? left : plan->batch_size;

        return (row + rows - 1) / config->slot_rows - row / config->slot_rows + 1;
}

static uint64_t pair_at(const struct scheduler_config *config, const struct position_plan *plan,
                        uint64_t row) {
        return slots_at(config, plan, row) + slots_at(config, plan, row + plan->batch_size);
}

static uint64_t greater_of(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

static uint64_t period(uint64_t batch, uint64_t slot) {
        uint64_t a = batch, b = slot;

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
        uint64_t last = base + (batches - 1) * b;
        uint64_t steps = period(b, config->slot_rows);
        uint64_t worst = slots_at(config, plan, last) + slots_at(config, plan, 0);

        if (steps > batches - 1)
                steps = batches - 1;
        if (steps > STEPS_MAX)
                return 2 * ((b + config->slot_rows - 1) / config->slot_rows + 1);
        for (uint64_t t = 0; t < steps; ++t)
                worst = greater_of(worst, pair_at(config, plan, base + t * b));
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
