/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Assembly without a daemon: what rows hold, and that it does not matter who makes them in which pieces. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/worker/sources/ramp.h"
#include "proto/order.h"
#include "tests/support/assembly.h"
#include "tests/support/ramp.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

/* ---- synthetic ---- */

START_TEST(ramp_agrees_with_its_second_definition) {
        for (uint64_t sample = 0; sample < 50; sample++)
                for (uint32_t epoch = 0; epoch < 3; epoch++)
                        for (uint64_t k = 0; k < 5; k++) {
                                uint64_t word = ramp_word(ramp_state(sample * 1000003, epoch), k);

                                ck_assert(ramp_check(&word, 8, sample * 1000003, epoch, NULL) == (k == 0));
                                for (uint64_t i = 0; i < 8; i++)
                                        ck_assert_uint_eq(
                                                ((uint8_t *)&word)[i],
                                                ramp_check_byte(sample * 1000003, epoch, 8 * k + i));
                        }
}
END_TEST

/* ---- assembly ---- */

#define FEATURES SYNTHETIC("\"features\": 21")
#define RNG      SYNTHETIC("\"mode\": \"rng\"")
#define SLOW     SYNTHETIC("\"mode\": \"slow\", \"slow_sample\": 3, \"slow_every\": 4, \"slow_us\": 20000")
#define DELAYED  SYNTHETIC("\"features\": 1, \"delay_us\": 2000")

START_TEST(ramp_rows_hold_their_own_pattern) {
        struct fixture fixture;
        struct order order;
        size_t offset;

        fixture_init(&fixture, RAMP, 100, 16, 1, -1);
        order_init(&order, 100, 9, 2);
        ck_assert_int_eq(fill(&fixture, 9, 2, 80, 3, 5), 0);
        for (uint32_t i = 0; i < 16; i++) {
                int64_t index;

                memcpy(&index, cell(&fixture, 0, i), sizeof(index));
                if (i < 3 || i >= 8) {
                        ck_assert_uint_eq((uint64_t)index, UINT64_C(0xeeeeeeeeeeeeeeee));
                        ck_assert_uint_eq(*cell(&fixture, 1, i), 0xee);
                        ck_assert_uint_eq(fixture.slot[fixture.schema.flags_offset + i], 0xee);
                        continue;
                }
                ck_assert_int_eq(index, (int64_t)order_sample(&order, 80 + i - 3));
                ck_assert_int_eq(id_at(&fixture, i), index);
                ck_assert(ramp_check(cell(&fixture, 1, i), 37, (uint64_t)index, 2, &offset));
                ck_assert(!ramp_check(cell(&fixture, 1, i), 37, (uint64_t)index, 3, &offset));
                ck_assert_uint_eq(fixture.slot[fixture.schema.flags_offset + i], SCHEMA_ROW_GOOD);
        }
        ck_assert_uint_eq(fixture.page.sample, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(fixture.page.epoch, 2);
        ck_assert_uint_eq(fixture.page.row, 84);
        ck_assert_uint_eq(fixture.page.chunk_slot, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(fixture.page.chunk_first, 3);
        ck_assert_uint_eq(fixture.page.chunk_done, 5);
        ck_assert_uint_eq(fixture.page.rows_done, 5);
        ck_assert_uint_gt(fixture.page.cpu_ns, 0);
        ck_assert_int_eq(fill(&fixture, 9, 2, 98, 0, 4), 0);
        ck_assert_int_eq(id_at(&fixture, 2), (int64_t)order_sample(&order, 0));
        for (int change = 0; change < 2; change++) { /* the epoch alone, then the seed alone */
                order_init(&order, 100, 9 + (uint64_t)change, 3);
                ck_assert_int_eq(fill(&fixture, 9 + (uint64_t)change, 3, 0, 0, 16), 0);
                for (uint32_t i = 0; i < 16; i++)
                        ck_assert_int_eq(id_at(&fixture, i), (int64_t)order_sample(&order, i));
        }
        fixture_deinit(&fixture);
}
END_TEST

/* The slot in one chunk, and again in many, backwards, by another assembly. */
static void assert_cut_does_not_matter(const char *recipe, int index_fd, uint64_t samples) {
        struct fixture whole, cut;

        fixture_init(&whole, recipe, samples, 16, 1, index_fd);
        fixture_init(&cut, recipe, samples, 16, 1, index_fd);
        ck_assert_int_eq(fill(&whole, 7, 1, 0, 0, 16), 0);
        for (uint32_t first = 13; first < 16; first++)
                ck_assert_int_eq(fill(&cut, 7, 1, first, first, 1), 0);
        ck_assert_int_eq(fill(&cut, 8, 0, 0, 0, 13), 0);
        ck_assert_int_ne(memcmp(whole.slot, cut.slot, whole.schema.slot_stride), 0);
        ck_assert_int_eq(fill(&cut, 7, 1, 5, 5, 8), 0);
        ck_assert_int_eq(fill(&cut, 7, 1, 0, 0, 5), 0);
        ck_assert_int_eq(memcmp(whole.slot, cut.slot, whole.schema.slot_stride), 0);
        fixture_deinit(&whole);
        fixture_deinit(&cut);
}

START_TEST(assembly_does_not_depend_on_the_cut) {
        assert_cut_does_not_matter(RAMP, -1, 100);
        assert_cut_does_not_matter(FEATURES, -1, 100);
}
END_TEST

START_TEST(features_are_uniform_and_know_no_epoch) {
        struct fixture a, b;
        double sum = 0;
        int labels[10] = {0};

        fixture_init(&a, FEATURES, 100, 100, 0, -1);
        fixture_init(&b, FEATURES, 100, 100, 0, -1);
        ck_assert_int_eq(fill(&a, 1, 0, 0, 0, 100), 0);
        ck_assert_int_eq(fill(&b, 1, 5, 0, 0, 100), 0);
        ck_assert_int_eq(memcmp(a.slot, b.slot, a.schema.slot_stride), 0);
        ck_assert_int_eq(fill(&b, 2, 0, 0, 0, 100), 0);
        ck_assert_int_ne(memcmp(a.slot, b.slot, a.schema.slot_stride), 0);
        for (uint32_t i = 0; i < 100; i++) {
                const float *values = (const float *)cell(&a, 0, i);

                for (int j = 0; j < 21; j++) {
                        ck_assert(values[j] >= 0 && values[j] < 1);
                        sum += (double)values[j];
                }
                ck_assert_int_eq(id_at(&a, i), i);
                labels[*(int64_t *)cell(&a, 1, i)]++;
        }
        ck_assert(sum / 2100 > 0.47 && sum / 2100 < 0.53);
        for (int i = 0; i < 10; i++)
                ck_assert_int_gt(labels[i], 0);
        fixture_deinit(&a);
        fixture_deinit(&b);
}
END_TEST

START_TEST(delays_are_kept) {
        struct fixture fixture;
        uint64_t begin;

        fixture_init(&fixture, DELAYED, 100, 9, 0, -1);
        begin = clock_ns();
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 9), 0);
        ck_assert_uint_ge(clock_ns() - begin, 9 * 2 * NS_PER_MS);
        fixture_deinit(&fixture);
}
END_TEST

static int compare_draws(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return x < y ? -1 : x > y;
}

/* Eight bytes from each of four streams: all different, in each row, over rows, epochs and seeds. */
START_TEST(draws_differ_in_everything) {
        struct fixture fixture;
        uint64_t draws[3 * 100 * 4];

        if (!has_test_modes())
                return;
        fixture_init(&fixture, RNG, 100, 100, 0, -1);
        for (uint32_t i = 0; i < 3; i++) {
                ck_assert_int_eq(fill(&fixture, i / 2, i % 2, 0, 0, 100), 0);
                memcpy(draws + (size_t)i * 400, cell(&fixture, 1, 0), sizeof(draws) / 3);
        }
        qsort(draws, sizeof(draws) / sizeof(draws[0]), sizeof(draws[0]), compare_draws);
        for (size_t i = 1; i < sizeof(draws) / sizeof(draws[0]); i++)
                ck_assert_uint_lt(draws[i - 1], draws[i]);
        fixture_deinit(&fixture);
}
END_TEST

START_TEST(slow_samples_are_slow) {
        static const int slow[] = {0, 0, 0, 1, 0, 0, 0, 1, 0};
        struct fixture fixture;

        if (!has_test_modes())
                return;
        fixture_init(&fixture, SLOW, 100, 9, 0, -1);
        for (uint32_t i = 0; i < 9; i++) {
                uint64_t begin = clock_ns();

                ck_assert_int_eq(fill(&fixture, 0, 0, i, i, 1), 0);
                if (slow[i])
                        ck_assert_uint_ge(clock_ns() - begin, 20 * NS_PER_MS);
        }
        ck_assert(ramp_check(cell(&fixture, 1, 3), 1024, 3, 0, NULL));
        fixture_deinit(&fixture);
}
END_TEST

START_TEST(images_come_with_their_labels) {
        static const char *const outputs[] = {
                "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}",
                "\"output\": {\"dtype\": \"uint8\", \"layout\": \"hwc\"}",
                "\"output\": {\"dtype\": \"uint8\", \"layout\": \"channels_last\"}",
        };
        _cleanup_(fd_closep) int index_fd = -1;
        char recipe[PATH_MAX];

        put_photos(20);
        ck_assert_int_eq(scan_folder(&index_fd, NULL), 20);
        for (int i = 0; i < 3; i++) {
                struct fixture fixture;

                image_recipe(recipe, CROP, outputs[i]);
                fixture_init(&fixture, recipe, 20, 20, 0, index_fd);
                ck_assert_msg(fill(&fixture, 0, 0, 0, 0, 20) == 0, "%s", fixture.fault.text);
                for (uint32_t row = 0; row < 20; row++) {
                        ck_assert_int_eq(*(int64_t *)cell(&fixture, 1, row), row >= 10);
                        for (int byte = 0; byte < 8 * 8 * 3; byte++)
                                ck_assert_int_le(abs(cell(&fixture, 0, row)[byte] - 10 * (int)row), 3);
                }
                fixture_deinit(&fixture);
                assert_cut_does_not_matter(recipe, index_fd, 20);
        }
}
END_TEST

START_TEST(a_bad_file_is_named_and_rows_before_it_stay) {
        _cleanup_(fd_closep) int index_fd = -1;
        struct fixture fixture;
        char recipe[PATH_MAX];

        put_photos(8);
        put_file("b/05.jpg", 100);
        ck_assert_int_eq(remove(in_folder("b/06.jpg")), 0);
        ck_assert_int_eq(mkfifo(in_folder("b/06.jpg"), 0600), 0);
        put_file("b/07.jpg", 0);
        ck_assert_int_eq(scan_folder(&index_fd, NULL), 8);
        image_recipe(recipe, CROP, "\"output\": {\"dtype\": \"uint8\", \"layout\": \"chw\"}");
        fixture_init(&fixture, recipe, 8, 16, 0, index_fd);

        ck_assert_int_lt(fill(&fixture, 0, 0, 2, 10, 6), 0);
        ck_assert_str_eq(fixture.failure.file, "b/05.jpg");
        ck_assert_uint_eq(fixture.failure.sample, 5);
        ck_assert_uint_eq(fixture.failure.first, 13);
        ck_assert_uint_gt(strlen(fixture.fault.text), 0);
        ck_assert_int_eq(id_at(&fixture, 12), 4);
        ck_assert_uint_eq(fixture.page.rows_done, 3);
        ck_assert_uint_eq(fixture.page.chunk_done, 3);
        ck_assert_uint_eq(fixture.page.chunk_slot, WORKER_PAGE_IDLE);

        ck_assert_int_eq(fill(&fixture, 0, 0, 6, 0, 1), -EINVAL);
        ck_assert_str_eq(fixture.fault.text, "not a regular file");
        ck_assert_int_eq(fill(&fixture, 0, 0, 7, 0, 1), -EBADMSG);
        ck_assert_str_eq(fixture.fault.text, "the file is empty");
        ck_assert_int_eq(remove(in_folder("b/07.jpg")), 0);
        ck_assert_int_eq(fill(&fixture, 0, 0, 7, 0, 1), -ENOENT);
        ck_assert_int_eq(fill(&fixture, 0, 0, 4, 0, 1), 0);
        fixture_deinit(&fixture);
}
END_TEST

static Suite *worker_suite(void) {
        Suite *suite = suite_create("worker");
        TCase *assembly = tcase_create("assembly");

        tcase_add_checked_fixture(assembly, make_folder, remove_folder);
        tcase_add_test(assembly, ramp_agrees_with_its_second_definition);
        tcase_add_test(assembly, ramp_rows_hold_their_own_pattern);
        tcase_add_test(assembly, assembly_does_not_depend_on_the_cut);
        tcase_add_test(assembly, features_are_uniform_and_know_no_epoch);
        tcase_add_test(assembly, delays_are_kept);
        tcase_add_test(assembly, draws_differ_in_everything);
        tcase_add_test(assembly, slow_samples_are_slow);
        tcase_add_test(assembly, images_come_with_their_labels);
        tcase_add_test(assembly, a_bad_file_is_named_and_rows_before_it_stay);
        suite_add_tcase(suite, assembly);

        return suite;
}

int main(void) {
        return run_suite(worker_suite());
}
