/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Positions against a walk that knows nothing of formulas: it takes one row after the other. */

#include "proto/position.h"

#include "base/fault.h"

#include "proto/random.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct position_plan make_plan(uint64_t samples, uint32_t batch_size, enum last_batch last_batch) {
        return (struct position_plan){
                .samples = samples, .batch_size = batch_size, .world_size = 1, .last_batch = last_batch};
}

/* ---- the walk ---- */

enum {
        WALK_MAX = 400,
};

struct walk {
        struct position batches[WALK_MAX];
        int n;
};

/* All batches from (epoch, row) on, for some epochs, collected row by row. */
static void walk_rows(struct walk *walk, const struct position_plan *plan, uint32_t epoch, uint64_t row) {
        uint64_t base = row;

        for (walk->n = 0; walk->n < WALK_MAX - 50; epoch++, base = row = 0) {
                struct position batch = {.epoch = epoch, .base = base, .row = row};

                for (; row < plan->samples; row++) {
                        batch.rows++;
                        if (batch.rows < plan->batch_size)
                                continue;
                        walk->batches[walk->n++] = batch;
                        batch.rows = 0;
                        batch.row = row + 1;
                }
                if (batch.rows > 0 && plan->last_batch == LAST_BATCH_SHORT)
                        walk->batches[walk->n++] = batch;
        }
}

static bool same(struct position a, struct position b) {
        return a.epoch == b.epoch && a.base == b.base && a.row == b.row && a.rows == b.rows;
}

static bool is_before(const struct position *batch, uint32_t epoch, uint64_t row) {
        return batch->epoch < epoch || (batch->epoch == epoch && batch->row + batch->rows <= row);
}

/* Batches of walk->batches[from ...] that end at or before (epoch, row). */
static uint64_t count_before(const struct walk *walk, int from, uint32_t epoch, uint64_t row) {
        uint64_t n = 0;

        for (int i = from; i < walk->n && is_before(&walk->batches[i], epoch, row); i++)
                n++;
        return n;
}

static void check_walk(const struct position_plan *plan, uint32_t epoch, uint64_t row,
                       struct random *random) {
        struct position position = position_first(plan, epoch, row);
        uint64_t in_epoch = 0;
        struct walk walk;

        walk_rows(&walk, plan, epoch, row);
        for (int i = 0; i < walk.n; i++) {
                if (!same(position, walk.batches[i]))
                        ck_abort_msg("N %u, b %u, row %u: batch %d differs", (unsigned)plan->samples,
                                     plan->batch_size, (unsigned)row, i);
                in_epoch += position.epoch == epoch;
                position = position_next(plan, position);
        }
        ck_assert_uint_eq(position_batches(plan, row), in_epoch);

        for (int i = 0; i < 20; i++) {
                int from = (int)random_below(random, 30);
                uint32_t to_epoch = walk.batches[from].epoch + random_below(random, 4);
                uint64_t to_row = random_below(random, (uint32_t)plan->samples);
                uint64_t until = position_batches_until(plan, walk.batches[from], to_epoch, to_row);

                if (to_epoch > walk.batches[walk.n - 1].epoch)
                        continue;
                if (to_epoch == walk.batches[from].epoch && to_row < walk.batches[from].row)
                        ck_assert_uint_eq(until, UINT64_MAX);
                else
                        ck_assert_uint_eq(until, count_before(&walk, from, to_epoch, to_row));
        }
}

START_TEST(test_walk) {
        struct random random;

        random_init(&random, 3, 0, 0, RANDOM_USER, 0);
        for (int i = 0; i < 3000; i++) {
                uint32_t samples = 1 + random_below(&random, 40), batch_size = 1 + random_below(&random, 45);
                enum last_batch last_batch = random_below(&random, 2) ? LAST_BATCH_SHORT : LAST_BATCH_DROP;
                struct position_plan plan = make_plan(samples, batch_size, last_batch);
                uint64_t row = random_below(&random, samples);

                if (position_check(&plan, row, NULL) < 0) {
                        ck_assert(last_batch == LAST_BATCH_DROP && samples < batch_size);
                        continue;
                }
                check_walk(&plan, random_below(&random, 1000), row, &random);
        }
}
END_TEST

/* ---- single cases ---- */

START_TEST(test_short) {
        struct position_plan plan = make_plan(10, 4, LAST_BATCH_SHORT);
        struct position position = position_first(&plan, 3, 3);

        ck_assert(same(position, (struct position){.epoch = 3, .base = 3, .row = 3, .rows = 4}));
        position = position_next(&plan, position);
        ck_assert(same(position, (struct position){.epoch = 3, .base = 3, .row = 7, .rows = 3}));
        position = position_next(&plan, position);
        ck_assert(same(position, (struct position){.epoch = 4, .base = 0, .row = 0, .rows = 4}));
        ck_assert_uint_eq(position_batches(&plan, 3), 2);
        ck_assert_uint_eq(position_batches(&plan, 0), 3);
}
END_TEST

START_TEST(test_drop) {
        struct position_plan plan = make_plan(10, 4, LAST_BATCH_DROP);
        struct position position = position_first(&plan, 3, 6);

        ck_assert(same(position, (struct position){.epoch = 3, .base = 6, .row = 6, .rows = 4}));
        position = position_next(&plan, position);
        ck_assert(same(position, (struct position){.epoch = 4, .base = 0, .row = 0, .rows = 4}));
        /* less than a batch is left */
        position = position_first(&plan, 3, 7);
        ck_assert(same(position, (struct position){.epoch = 4, .base = 0, .row = 0, .rows = 4}));
        ck_assert_uint_eq(position_batches(&plan, 7), 0);
        ck_assert_uint_eq(position_batches(&plan, 0), 2);
}
END_TEST

START_TEST(test_huge) {
        struct position_plan plan = make_plan(UINT64_C(1) << 48, 1, LAST_BATCH_SHORT);
        struct position position = position_first(&plan, 0, 0);

        ck_assert_uint_eq(position_batches(&plan, 0), UINT64_C(1) << 48);
        ck_assert_uint_eq(position_batches_until(&plan, position, 2, 5), (UINT64_C(2) << 48) + 5);
        /* too far to count, but ahead */
        ck_assert_uint_eq(position_batches_until(&plan, position, UINT32_MAX, 0), UINT64_MAX - 1);
        plan.batch_size = INT32_MAX;
        ck_assert_uint_eq(position_first(&plan, 0, (UINT64_C(1) << 48) - 1).rows, 1);
}
END_TEST

/* ---- refusals ---- */

static void check_refused(struct position_plan plan, uint64_t row, const char *part, const char *other_part) {
        struct fault fault = {};

        ck_assert_int_eq(position_check(&plan, row, &fault), -EINVAL);
        ck_assert_msg(strstr(fault.text, part) && strstr(fault.text, other_part), "%s", fault.text);
}

START_TEST(test_refused) {
        struct position_plan good = make_plan(10, 4, LAST_BATCH_SHORT), plan;

        ck_assert_int_eq(position_check(&good, 0, NULL), 0);
        ck_assert_int_eq(position_check(&good, 9, NULL), 0);
        check_refused(good, 10, "start_row", "10 rows");
        check_refused(good, UINT64_MAX, "from 0 to 9", "18446744073709551615");
        check_refused(make_plan(0, 4, LAST_BATCH_SHORT), 0, "samples", "has 0");
        check_refused(make_plan((UINT64_C(1) << 48) + 1, 4, LAST_BATCH_SHORT), 0, "samples",
                      "281474976710657");
        check_refused(make_plan(10, 0, LAST_BATCH_SHORT), 0, "batch_size", "got 0");
        check_refused(make_plan(10, UINT32_C(1) << 31, LAST_BATCH_SHORT), 0, "batch_size", "2147483648");
        check_refused(make_plan(10, 11, LAST_BATCH_DROP), 0, "10 samples", "batch of 11");
        ck_assert_int_eq(position_check(&(struct position_plan){10, 10, 0, 1, LAST_BATCH_DROP}, 0, NULL), 0);
        check_refused(make_plan(10, 4, LAST_BATCH_PAD), 0, "last_batch", "not there yet");
        check_refused(make_plan(10, 4, LAST_BATCH_DEFAULT), 0, "last_batch", "got 0");

        plan = good;
        plan.world_size = 2;
        check_refused(plan, 0, "ranks are not there yet", "0 of 2");
        plan.rank = 2;
        check_refused(plan, 0, "no rank", "2 of 2");
        plan.world_size = 0;
        check_refused(plan, 0, "ranks are not there yet", "2 of 0");
}
END_TEST

int main(void) {
        Suite *suite = suite_create("position");
        TCase *tests = tcase_create("position");
        SRunner *runner = srunner_create(suite);
        int failed;

        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 120);
        tcase_add_test(tests, test_walk);
        tcase_add_test(tests, test_short);
        tcase_add_test(tests, test_drop);
        tcase_add_test(tests, test_huge);
        tcase_add_test(tests, test_refused);
        srunner_set_tap(runner, "-");
        srunner_run_all(runner, CK_SILENT);
        failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
