/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Positions against dealing out rows like cards, which needs no formula, for every small N, W, b, base and
 * tail; then the ends of the ranges, and what is refused. */

#include "proto/position.h"

#include "base/fault.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        EPOCHS = 3, /* dealt out, from EPOCH on; the first is entered at a base */
        EPOCH = 5,
        STEPS_MAX = 16,
        WORLD_MAX = 5,
        BATCH_MAX = 13,
};

/* For inner loops: an assertion of Check costs a system call. */
#define MUST(condition, plan)                                                                                \
        do {                                                                                                 \
                if (!(condition))                                                                            \
                        differs(#condition, __LINE__, plan);                                                 \
        } while (0)

static void differs(const char *what, int line, const struct position_plan *plan) {
        ck_abort_msg("%s, line %d: N %u, b %u, rank %u of %u, tail %d", what, line, (unsigned)plan->samples,
                     plan->batch_size, plan->rank, plan->world_size, (int)plan->last_batch);
}

/* ---- dealing ---- */

struct hand {
        uint32_t rows;
        uint64_t row[BATCH_MAX]; /* N and more: padding */
};

/* What every rank gets at every step of an epoch. */
struct deal {
        uint32_t steps;
        struct hand hands[STEPS_MAX][WORLD_MAX];
};

static void deal_step(struct deal *deal, const struct position_plan *plan, uint64_t *row, uint32_t each) {
        for (uint32_t rank = 0; rank < plan->world_size; rank++) {
                struct hand *hand = &deal->hands[deal->steps][rank];

                for (hand->rows = 0; hand->rows < each; hand->rows++)
                        hand->row[hand->rows] = (*row)++;
        }
        deal->steps++;
}

static void deal_out(struct deal *deal, const struct position_plan *plan, uint64_t base) {
        uint32_t each = plan->batch_size;
        uint64_t row = base;

        deal->steps = 0;
        while (row + (uint64_t)each * plan->world_size <= plan->samples)
                deal_step(deal, plan, &row, each);
        if (row == plan->samples || plan->last_batch == LAST_BATCH_DROP)
                return;
        if (plan->last_batch == LAST_BATCH_SHORT)
                while (row + (uint64_t)(each - 1) * plan->world_size >= plan->samples)
                        each--; /* as few as can be */
        deal_step(deal, plan, &row, each);
}

/* ---- one rank ---- */

static uint64_t place(const struct position_plan *plan, uint64_t row) {
        while (row >= plan->samples)
                row -= plan->samples;
        return row;
}

static void check_runs(const struct position_plan *plan, const struct position *position,
                       const struct hand *hand) {
        uint32_t offset = 0, run;
        uint64_t row;

        while ((run = position_run(plan, position, offset, &row)) > 0) {
                for (uint32_t i = 0; i < run; i++)
                        MUST(offset + i < hand->rows && row + i == place(plan, hand->row[offset + i]), plan);
                MUST(row + run <= plan->samples, plan);
                MUST(offset + run == hand->rows || row + run == plan->samples, plan); /* as many as can be */
                offset += run;
        }
        MUST(offset == hand->rows, plan);
}

static void check_segments(const struct position_plan *plan, const struct hand *hand) {
        for (uint32_t slot_rows = 1; slot_rows <= plan->samples + 1; slot_rows++) {
                uint32_t segments = 1;

                for (uint32_t i = 1; i < hand->rows; i++)
                        segments +=
                                place(plan, hand->row[i]) == 0 || place(plan, hand->row[i]) % slot_rows == 0;
                MUST(position_segments(plan, slot_rows) >= segments, plan);
        }
        MUST(position_segments(plan, 1) <= plan->batch_size, plan);
}

static void check_hand(const struct position_plan *plan, const struct position *position,
                       const struct hand *hand) {
        uint32_t padding = 0;

        for (uint32_t i = 0; i < hand->rows; i++)
                padding += hand->row[i] >= plan->samples;
        MUST(position->rows == hand->rows && position->row == hand->row[0], plan);
        MUST(position_padding(plan, position) == padding, plan);
        check_runs(plan, position, hand);
        check_segments(plan, hand);
}

static bool same(struct position a, struct position b) {
        return a.epoch == b.epoch && a.base == b.base && a.step == b.step && a.row == b.row &&
               a.rows == b.rows;
}

/* One after the other, from the base through all epochs. */
static void check_rank(const struct position_plan *plan, const struct deal *deals, uint64_t base) {
        struct position position = position_first(plan, EPOCH, base);

        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
                const struct deal *deal = &deals[epoch];
                uint64_t entered = epoch == 0 ? base : 0;

                MUST(position_batches(plan, entered) == deal->steps, plan);
                for (uint32_t step = 0; step < deal->steps; step++) {
                        bool last = step + 1 == deal->steps;
                        uint32_t after;
                        uint64_t row = position_after(plan, &position, &after);

                        MUST(position.epoch == EPOCH + epoch && position.base == entered &&
                                     position.step == step,
                             plan);
                        MUST(same(position, position_at(plan, EPOCH + epoch, entered, step)), plan);
                        check_hand(plan, &position, &deal->hands[step][plan->rank]);
                        MUST(after == EPOCH + epoch + last, plan);
                        MUST(row == (last ? 0 : deal->hands[step + 1][0].row[0]), plan);
                        position = position_next(plan, position);
                }
        }
}

/* ---- all ranks ---- */

/* Every row once; what wraps is in order and no more than it must be. */
static void check_union(const struct position_plan *plan, const struct deal *deal, uint64_t base) {
        uint64_t row = base, left = plan->samples - base;

        for (uint32_t step = 0; step < deal->steps; step++)
                for (uint32_t rank = 0; rank < plan->world_size; rank++)
                        for (uint32_t i = 0; i < deal->hands[step][rank].rows; i++)
                                MUST(deal->hands[step][rank].row[i] == row++, plan);
        if (plan->last_batch == LAST_BATCH_DROP)
                MUST(row <= plan->samples && row + plan->world_size * plan->batch_size > plan->samples, plan);
        if (plan->last_batch == LAST_BATCH_SHORT)
                MUST(row >= plan->samples && row - base < left + plan->world_size, plan);
        if (plan->last_batch == LAST_BATCH_PAD)
                MUST(row >= plan->samples && (row - base) % (plan->world_size * plan->batch_size) == 0, plan);
}

static void check_plan(struct position_plan plan, uint64_t base) {
        struct deal deals[EPOCHS];

        if (position_check(&plan, base, NULL) < 0) {
                MUST(plan.last_batch == LAST_BATCH_DROP && plan.samples < plan.world_size * plan.batch_size,
                     &plan);
                return;
        }
        for (uint32_t i = 0; i < EPOCHS; i++)
                deal_out(&deals[i], &plan, i == 0 ? base : 0);
        check_union(&plan, &deals[0], base);
        for (plan.rank = 0; plan.rank < plan.world_size; plan.rank++) {
                MUST(deals[0].steps > 0 || position_first(&plan, EPOCH, base).epoch == EPOCH + 1, &plan);
                check_rank(&plan, deals, base);
        }
}

static void check_samples(uint64_t samples, enum last_batch last_batch) {
        struct position_plan plan = {.samples = samples, .last_batch = last_batch};

        for (plan.world_size = 1; plan.world_size <= WORLD_MAX; plan.world_size++)
                for (plan.batch_size = 1; plan.batch_size <= BATCH_MAX; plan.batch_size++)
                        for (uint64_t base = 0; base < samples; base++)
                                check_plan(plan, base);
}

START_TEST(test_small) {
        for (uint64_t samples = 1; samples <= STEPS_MAX; samples++)
                check_samples(samples, (enum last_batch)_i);
}
END_TEST

/* ---- finding ---- */

static bool uses(const struct position_plan *plan, const struct position *position, uint64_t first,
                 uint64_t end) {
        for (uint64_t row = position->row; row < position->row + position->rows; row++)
                if (place(plan, row) >= first && place(plan, row) < end)
                        return true;
        return false;
}

/* From batch to batch. */
static uint64_t walk(const struct position_plan *plan, struct position position, uint32_t epoch,
                     uint64_t first, uint64_t end, struct position *found) {
        for (uint64_t n = 0; position.epoch <= epoch; n++, position = position_next(plan, position)) {
                *found = position;
                if (position.epoch == epoch && uses(plan, &position, first, end))
                        return n;
        }
        return POSITION_NEVER;
}

static void check_find(const struct position_plan *plan, struct position from) {
        for (uint32_t epoch = from.epoch - 1; epoch <= from.epoch + 2; epoch++)
                for (uint64_t first = 0; first < plan->samples; first++)
                        for (uint64_t end = first + 1; end <= plan->samples; end++) {
                                struct position truth = {}, found = {};
                                uint64_t n = walk(plan, from, epoch, first, end, &truth);

                                MUST(position_find(plan, &from, epoch, first, end, &found) == n, plan);
                                MUST(position_find(plan, &from, epoch, first, end, NULL) == n, plan);
                                MUST(n == POSITION_NEVER || same(found, truth), plan);
                        }
}

START_TEST(test_find) {
        struct position_plan plan = {.last_batch = (enum last_batch)_i};

        for (plan.samples = 1; plan.samples <= 7; plan.samples++)
                for (plan.world_size = 1; plan.world_size <= 4; plan.world_size++)
                        for (plan.batch_size = 1; plan.batch_size <= 9; plan.batch_size++)
                                for (uint64_t i = 0; i < plan.samples * plan.world_size; i++) {
                                        struct position from;

                                        plan.rank = (uint32_t)(i % plan.world_size);
                                        if (position_check(&plan, i / plan.world_size, NULL) < 0)
                                                continue;
                                        from = position_first(&plan, EPOCH, i / plan.world_size);
                                        for (int n = 0; n < 4; n++, from = position_next(&plan, from))
                                                check_find(&plan, from);
                                }
}
END_TEST

/* ---- the ends of the ranges ---- */

#define SAMPLES_MAX POSITION_SAMPLES_MAX

START_TEST(test_many_samples) {
        struct position_plan plan = {SAMPLES_MAX, 1, 0, 1, LAST_BATCH_SHORT};
        struct position first = position_first(&plan, 0, 0), found;

        ck_assert_uint_eq(position_batches(&plan, 0), SAMPLES_MAX);
        ck_assert_uint_eq(position_find(&plan, &first, 2, 5, 6, &found), 2 * SAMPLES_MAX + 5);
        ck_assert(same(found, position_at(&plan, 2, 0, 5)));
        /* too far to count, but ahead */
        ck_assert_uint_eq(position_find(&plan, &first, 1 << 14, 0, 1, NULL), POSITION_FAR);
        ck_assert_uint_eq(position_find(&plan, &first, 1 << 16, 0, 1, NULL), POSITION_FAR);
        ck_assert_uint_eq(position_find(&plan, &first, UINT32_MAX, 0, 1, &found), POSITION_FAR);
        ck_assert_uint_eq(found.epoch, UINT32_MAX);
        ck_assert_uint_eq(position_find(&plan, &first, (1 << 14) - 1, 7, 8, NULL),
                          POSITION_FAR - SAMPLES_MAX + 7);
        ck_assert_uint_eq(position_batches(&plan, SAMPLES_MAX - 1), 1);
        ck_assert_uint_eq(position_batches(&plan, SAMPLES_MAX), 0);
}
END_TEST

START_TEST(test_largest_step) {
        struct position_plan plan = {SAMPLES_MAX, INT32_MAX, POSITION_WORLD_MAX - 1, POSITION_WORLD_MAX,
                                     LAST_BATCH_PAD};
        struct position last;
        uint32_t epoch;
        uint64_t row;

        ck_assert_int_eq(position_check(&plan, SAMPLES_MAX - 1, NULL), 0);
        last = position_first(&plan, 0, SAMPLES_MAX - 1);
        ck_assert_uint_eq(last.row, SAMPLES_MAX - 1 + UINT64_C(0xfffff) * INT32_MAX);
        ck_assert_uint_lt(last.row + last.rows, POSITION_ROW_MAX);
        ck_assert_uint_eq(position_padding(&plan, &last), INT32_MAX);
        ck_assert_uint_eq(position_run(&plan, &last, 0, &row), INT32_MAX);
        ck_assert_uint_eq(row, last.row % SAMPLES_MAX);
        ck_assert_uint_eq(position_after(&plan, &last, &epoch), 0);
        ck_assert_uint_eq(epoch, 1);
        ck_assert_uint_eq(position_find(&plan, &last, 0, row, row + 1, NULL), 0);
        ck_assert_uint_eq(position_find(&plan, &last, 0, row - 1, row, NULL), POSITION_NEVER);
        ck_assert_uint_eq(position_find(&plan, &last, 1, row + 1, row + 2, NULL), 1);

        plan.last_batch = LAST_BATCH_SHORT; /* rows for 2^48 / 2^20 each */
        last = position_first(&plan, 0, 0);
        ck_assert_uint_eq(last.rows, 1 << 28);
        ck_assert_uint_eq(position_padding(&plan, &last), 0);
        plan.last_batch = LAST_BATCH_DROP;
        ck_assert_int_eq(position_check(&plan, 0, NULL), -EINVAL);
}
END_TEST

START_TEST(test_one_sample) {
        struct position_plan plan = {1, INT32_MAX, 3, 4, LAST_BATCH_PAD};
        struct position first = position_first(&plan, 9, 0);
        uint64_t row;

        ck_assert_uint_eq(position_batches(&plan, 0), 1);
        ck_assert_uint_eq(position_padding(&plan, &first), INT32_MAX);
        ck_assert_uint_eq(position_run(&plan, &first, INT32_MAX - 1, &row), 1);
        ck_assert_uint_eq(row, 0);
        ck_assert_uint_eq(position_segments(&plan, 1), INT32_MAX);
        plan.last_batch = LAST_BATCH_SHORT;
        ck_assert_uint_eq(position_first(&plan, 9, 0).rows, 1);
        ck_assert_uint_eq(position_segments(&plan, 1), 1);
}
END_TEST

/* The usual case needs few segments: who refuses too many goes by the bound. */
START_TEST(test_segments) {
        struct position_plan plan = {1281167, 256, 0, 1, LAST_BATCH_SHORT};

        ck_assert_uint_eq(position_segments(&plan, 256), 2);
        ck_assert_uint_eq(position_segments(&plan, 100), 4);
        ck_assert_uint_eq(position_segments(&plan, 1), 256);
        plan.world_size = 8;
        ck_assert_uint_eq(position_segments(&plan, 256), 4);
        plan.samples = 10;
        ck_assert_uint_eq(position_segments(&plan, 256), 2);
        plan.last_batch = LAST_BATCH_PAD;
        ck_assert_uint_eq(position_segments(&plan, 256), 27);
}
END_TEST

/* ---- refusals ---- */

static struct position_plan make_plan(uint64_t samples, uint32_t batch_size, enum last_batch last_batch) {
        return (struct position_plan){
                .samples = samples, .batch_size = batch_size, .world_size = 1, .last_batch = last_batch};
}

static void check_refused(struct position_plan plan, uint64_t row, const char *text) {
        struct fault fault = {};

        ck_assert_int_eq(position_check(&plan, row, &fault), -EINVAL);
        ck_assert_str_eq(fault.text, text);
}

START_TEST(test_refused) {
        struct position_plan good = make_plan(10, 4, LAST_BATCH_SHORT), plan = good;

        ck_assert_int_eq(position_check(&good, 0, NULL), 0);
        ck_assert_int_eq(position_check(&good, 9, NULL), 0);
        check_refused(good, 10, "start_row: expected from 0 to 9, got 10 (an epoch has 10 rows)");
        check_refused(good, UINT64_MAX,
                      "start_row: expected from 0 to 9, got 18446744073709551615 (an epoch has 10 rows)");
        check_refused(make_plan(0, 4, LAST_BATCH_SHORT), 0,
                      "samples: expected from 1 to 281474976710656, the source has 0");
        check_refused(make_plan(SAMPLES_MAX + 1, 4, LAST_BATCH_SHORT), 0,
                      "samples: expected from 1 to 281474976710656, the source has 281474976710657");
        check_refused(make_plan(10, 0, LAST_BATCH_SHORT), 0,
                      "batch_size: expected from 1 to 2147483647, got 0");
        check_refused(make_plan(10, UINT32_C(1) << 31, LAST_BATCH_SHORT), 0,
                      "batch_size: expected from 1 to 2147483647, got 2147483648");
        check_refused(make_plan(10, 4, LAST_BATCH_DEFAULT), 0,
                      "last_batch: expected short, drop or pad, got 0");
        check_refused(make_plan(10, 4, (enum last_batch)4), 0,
                      "last_batch: expected short, drop or pad, got 4");
        plan.world_size = 0;
        check_refused(plan, 0, "world_size: expected from 1 to 1048576, got 0");
        plan.world_size = POSITION_WORLD_MAX + 1;
        check_refused(plan, 0, "world_size: expected from 1 to 1048576, got 1048577");
        plan.world_size = plan.rank = 2;
        check_refused(plan, 0, "rank: expected from 0 to 1 (world_size is 2), got 2");
}
END_TEST

START_TEST(test_drop_refused) {
        struct position_plan plan = make_plan(10, 10, LAST_BATCH_DROP);

        ck_assert_int_eq(position_check(&plan, 0, NULL), 0);
        plan.batch_size = 11;
        check_refused(plan, 0,
                      "last_batch: with drop an epoch would be empty, 10 samples are fewer than one batch of "
                      "11");
        plan = make_plan(10, 5, LAST_BATCH_DROP);
        plan.world_size = 2;
        ck_assert_int_eq(position_check(&plan, 0, NULL), 0);
        plan.world_size = 3;
        check_refused(
                plan, 0,
                "last_batch: with drop an epoch would be empty, 10 samples are fewer than the 15 of one "
                "step (3 ranks of 5)");
}
END_TEST

int main(void) {
        Suite *suite = suite_create("position");
        TCase *tests = tcase_create("position");

        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 120);
        tcase_add_loop_test(tests, test_small, LAST_BATCH_SHORT, LAST_BATCH_PAD + 1);
        tcase_add_loop_test(tests, test_find, LAST_BATCH_SHORT, LAST_BATCH_PAD + 1);
        tcase_add_test(tests, test_many_samples);
        tcase_add_test(tests, test_largest_step);
        tcase_add_test(tests, test_one_sample);
        tcase_add_test(tests, test_segments);
        tcase_add_test(tests, test_refused);
        tcase_add_test(tests, test_drop_refused);
        return run_suite(suite);
}
