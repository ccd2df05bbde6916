/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Stage times: how exact the histograms are, and what a worker counts as what. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/worker/image.h"
#include "daemon/worker/stages.h"
#include "tests/support/assembly.h"
#include "tests/support/run.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* ---- histograms ---- */

START_TEST(buckets_follow_each_other) {
        ck_assert_uint_eq(stage_bucket(0), 0);
        ck_assert_uint_eq(stage_bucket(UINT64_MAX), STAGE_BUCKETS - 1);
        for (uint32_t i = 0; i < STAGE_BUCKETS; i++) {
                uint64_t end = stage_bucket_end(i);

                ck_assert_uint_eq(stage_bucket(end - 1), i);
                ck_assert_uint_eq(stage_bucket(end), i + 1 < STAGE_BUCKETS ? i + 1 : i);
        }
        ck_assert_uint_eq(stage_bucket_end(STAGE_BUCKETS - 1),
                          UINT64_C(1) << (STAGE_FIRST_OCTAVE + STAGE_OCTAVES));
}
END_TEST

static void assert_near(uint64_t told, uint64_t truth) {
        double off = (double)told / (double)truth;

        ck_assert_msg(off <= 1 + STAGE_PERCENTILE_ERROR / 100.0 && off >= 1 - STAGE_PERCENTILE_ERROR / 100.0,
                      "%llu ns were told as %llu", (unsigned long long)truth, (unsigned long long)told);
}

/* All alike, which is the worst that can be: of any time in the range. */
START_TEST(percentiles_are_as_exact_as_they_say) {
        for (uint64_t ns = 1200; ns < UINT64_C(130000000000); ns += ns / 97) {
                struct stage_times times = {0};

                times.rows[STAGE_READ][stage_bucket(ns)] = 1000;
                assert_near(stage_percentile(&times, STAGE_READ, 0.5), ns);
                assert_near(stage_percentile(&times, STAGE_READ, 0.99), ns);
                ck_assert_uint_eq(stage_percentile(&times, STAGE_DECODE, 0.5), 0);
        }
}
END_TEST

START_TEST(percentiles_are_of_the_right_rank) {
        struct stage_times times = {0};

        for (uint64_t i = 1; i <= 1000; i++)
                times.rows[STAGE_MAKE][stage_bucket(i * NS_PER_MS)]++;
        ck_assert_uint_eq(stage_rows(&times, STAGE_MAKE), 1000);
        for (int share = 1; share <= 100; share++)
                assert_near(stage_percentile(&times, STAGE_MAKE, share / 100.0),
                            (uint64_t)share * 10 * NS_PER_MS);
        assert_near(stage_percentile(&times, STAGE_MAKE, 0), NS_PER_MS);
}
END_TEST

/* ---- the clock ---- */

static uint64_t rows_of(const struct worker_page *page, enum row_stage stage) {
        struct stage_times times = {0};

        for (uint32_t k = 0; k < STAGE_BUCKETS; k++)
                times.rows[stage][k] = page->stage_rows[stage][k];
        return stage_rows(&times, stage);
}

static void assert_rows(const struct worker_page *page, uint64_t read, uint64_t decode, uint64_t transform,
                        uint64_t make) {
        ck_assert_uint_eq(rows_of(page, STAGE_READ), read);
        ck_assert_uint_eq(rows_of(page, STAGE_DECODE), decode);
        ck_assert_uint_eq(rows_of(page, STAGE_TRANSFORM), transform);
        ck_assert_uint_eq(rows_of(page, STAGE_MAKE), make);
}

START_TEST(the_whole_time_is_divided) {
        static struct worker_page page;
        struct stages stages;
        uint64_t begin = clock_ns(), sum = 0, took;

        stages_begin(&stages, &page);
        for (int twice = 0; twice < 2; twice++) {
                stages_enter(&stages, STAGE_DECODE);
                usleep(2000);
                stages_enter(&stages, STAGE_TRANSFORM);
                stages_enter(&stages, STAGE_TRANSFORM);
                usleep(1000);
        }
        stages_end(&stages);
        took = clock_ns() - begin;
        assert_rows(&page, 0, 1, 1, 0);
        for (int i = 0; i < STAGE_KINDS; i++)
                sum += page.stage_ns[i];
        ck_assert_uint_ge(page.stage_ns[STAGE_DECODE], 4 * NS_PER_MS);
        ck_assert_uint_ge(page.stage_ns[STAGE_TRANSFORM], 2 * NS_PER_MS);
        ck_assert_uint_eq(page.stage_rows[STAGE_DECODE][stage_bucket(page.stage_ns[STAGE_DECODE])], 1);
        ck_assert_uint_le(sum, took);
        ck_assert_uint_ge(sum + NS_PER_MS * 20, took);
}
END_TEST

static int load_slowly(struct image *image, struct fault *fault) {
        ck_assert_str_eq(image->loader, "its own");
        usleep(4000);
        return image_reset(image, 1, 1);
}

START_TEST(pixels_are_decoded_amid_the_transforms) {
        static struct worker_page page;
        struct image image = {0};
        struct stages stages;

        stages_begin(&stages, &page);
        stages_enter(&stages, STAGE_DECODE);
        image_defer(&image, 1, 1, load_slowly, "its own");
        stages_enter_transforms(&stages, &image);
        usleep(1000);
        ck_assert_int_eq(image_load(&image, NULL), 0);
        ck_assert_int_eq(image_load(&image, NULL), 0); /* it is there */
        stages_enter_transforms(&stages, &image);
        usleep(1000);
        stages_end(&stages);
        assert_rows(&page, 0, 1, 1, 0);
        ck_assert_uint_ge(page.stage_ns[STAGE_DECODE], 4 * NS_PER_MS);
        ck_assert_uint_ge(page.stage_ns[STAGE_TRANSFORM], 2 * NS_PER_MS);
        image_deinit(&image);
}
END_TEST

START_TEST(without_a_page_there_is_no_clock) {
        struct image image = {0};
        struct stages stages;

        stages_begin(&stages, NULL);
        stages_enter(&stages, STAGE_READ);
        image_defer(&image, 1, 1, load_slowly, "its own");
        stages_enter_transforms(&stages, &image);
        ck_assert(image.load == load_slowly);
        ck_assert_uint_eq(stages.entered, 0);
        stages_end(&stages);
        stages_enter(NULL, STAGE_READ); /* of a source that somebody else calls */
}
END_TEST

/* ---- what is counted as what ---- */

START_TEST(a_source_without_images_makes_its_samples) {
        struct fixture fixture;

        fixture_init(&fixture, RAMP, 100, 16, 1, -1);
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 16), 0);
        ck_assert_int_eq(fill(&fixture, 0, 0, 16, 0, 4), 0);
        assert_rows(&fixture.page, 0, 0, 0, 20);
        fixture_deinit(&fixture);
}
END_TEST

static int ignore_bad(void *context, uint64_t sample, const char *file, int error, const char *text) {
        return 0;
}

/* A row is counted once, however many samples it took; a chunk that ends counts what was made. */
START_TEST(rows_of_images_are_counted_once) {
        _cleanup_(fd_closep) int index_fd = -1;
        struct assembly_chunk all = {.rows = 8};
        struct fixture fixture;
        char recipe[PATH_MAX];

        put_photos(8);
        put_file("b/05.jpg", 100);
        ck_assert_int_eq(scan_folder(&index_fd, NULL), 8);
        image_recipe(recipe, CROP, "\"output\": {\"dtype\": \"uint8\"}");
        fixture_init(&fixture, recipe, 8, 8, 0, index_fd);
        ck_assert_int_lt(fill(&fixture, 0, 0, 0, 0, 8), 0);
        assert_rows(&fixture.page, 5, 5, 5, 0);
        assembly_replace_bad(fixture.assembly, ignore_bad, NULL);
        ck_assert_int_eq(fill(&fixture, 0, 0, 0, 0, 8), 0);
        ck_assert_uint_eq(fixture.replaced, 1);
        assert_rows(&fixture.page, 13, 13, 13, 0);
        ck_assert_uint_gt(fixture.page.stage_ns[STAGE_READ], 0);
        ck_assert_uint_gt(fixture.page.stage_ns[STAGE_DECODE], 0);
        ck_assert_int_eq(assembly_verify(fixture.assembly, &all, fixture.slot, &fixture.page), 0);
        assert_rows(&fixture.page, 21, 21, 13, 0); /* nothing is transformed */
        fixture_deinit(&fixture);
}
END_TEST

static Suite *stages_suite(void) {
        Suite *suite = suite_create("stages");
        TCase *tcase = tcase_create("stages");

        tcase_add_checked_fixture(tcase, make_folder, remove_folder);
        tcase_add_test(tcase, buckets_follow_each_other);
        tcase_add_test(tcase, percentiles_are_as_exact_as_they_say);
        tcase_add_test(tcase, percentiles_are_of_the_right_rank);
        tcase_add_test(tcase, the_whole_time_is_divided);
        tcase_add_test(tcase, pixels_are_decoded_amid_the_transforms);
        tcase_add_test(tcase, without_a_page_there_is_no_clock);
        tcase_add_test(tcase, a_source_without_images_makes_its_samples);
        tcase_add_test(tcase, rows_of_images_are_counted_once);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(stages_suite());
}
