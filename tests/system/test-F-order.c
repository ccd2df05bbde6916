/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Order and randomness as a job sees them, through a real daemon: the bytes of a row depend on seed, epoch
 * and row and on nothing else (cases F1 to F5).
 *
 * The source is `rng`: each sample carries bytes from every random source that a worker has, so that anything
 * which leaks from the process into the data (a seed by pid or time, a shared generator, the order of calls)
 * shows. */

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/pinfeed.h"
#include "tests/support/harness.h"
#include "tests/support/run.h"

enum {
        SAMPLES = 1000,
        DRAW_BYTES = 32,
        EPOCHS = 3,
};

/* One epoch as it was delivered. */
struct epoch {
        int64_t index[SAMPLES];
        uint8_t draws[SAMPLES][DRAW_BYTES];
};

static void write_config(struct harness *harness, unsigned workers) {
        harness_write_config(harness,
                             "pipelines:\n"
                             "  rng:\n"
                             "    source: {type: synthetic, mode: rng, samples: %d}\n"
                             "    batch_size: 32\n"
                             "    shuffle: true\n"
                             "    workers: %u\n",
                             SAMPLES, workers);
}

static struct pinfeed_job *attach(struct harness *harness, uint32_t epoch) {
        struct pinfeed_attach request = {.size = sizeof(request),
                                         .pipeline = "rng",
                                         .runtime_dir = harness_runtime_directory(harness),
                                         .start_epoch = epoch,
                                         .timeout_ms = 30000};
        struct pinfeed_job *job;
        int r = pinfeed_open(&job, &request);

        ck_assert_msg(r == 0, "attach: %s", pinfeed_error(job));
        return job;
}

/* Reads up to the next end of an epoch; the rows must be complete and of one epoch. */
static void read_epoch(struct pinfeed_job *job, uint32_t number, struct epoch *epoch) {
        struct pinfeed_batch *batch;
        uint32_t have = 0;
        int r;

        while ((r = pinfeed_next(job, &batch)) > 0) {
                uint32_t rows = pinfeed_batch_rows(batch);

                ck_assert_uint_eq(pinfeed_batch_epoch(batch), number);
                ck_assert_uint_eq(pinfeed_batch_row(batch), have);
                ck_assert_uint_le(have + rows, SAMPLES);
                ck_assert_int_gt(pinfeed_batch_copy(batch, 0, &epoch->index[have], rows * sizeof(int64_t)),
                                 0);
                ck_assert_int_gt(pinfeed_batch_copy(batch, 1, &epoch->draws[have], rows * (size_t)DRAW_BYTES),
                                 0);
                have += rows;
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        ck_assert_msg(r == 0, "next: %s", pinfeed_error(job));
        ck_assert_uint_eq(have, SAMPLES);
}

/* EPOCHS epochs from a daemon of its own with `workers` workers. */
static struct epoch *run(unsigned workers) {
        struct harness *harness = harness_new();
        struct epoch *epochs = calloc(EPOCHS, sizeof(*epochs));
        struct pinfeed_job *job;

        write_config(harness, workers);
        harness_start(harness);
        job = attach(harness, 0);
        for (uint32_t e = 0; e < EPOCHS; e++)
                read_epoch(job, e, &epochs[e]);
        pinfeed_close(job);
        harness_stop(harness, SIGTERM, 0);
        harness_free(harness);
        return epochs;
}

/* The draws of `sample` in an epoch. */
static const uint8_t *draws_of(const struct epoch *epoch, int64_t sample) {
        for (uint32_t row = 0; row < SAMPLES; row++) {
                if (epoch->index[row] == sample)
                        return epoch->draws[row];
        }
        ck_abort_msg("sample %lld is missing", (long long)sample);
        return NULL;
}

static int compare_draws(const void *a, const void *b) {
        return memcmp(a, b, DRAW_BYTES);
}

START_TEST(test_F1_no_two_samples_alike) {
        struct epoch *epochs = run(8);

        qsort(epochs[0].draws, SAMPLES, DRAW_BYTES, compare_draws);
        for (uint32_t row = 1; row < SAMPLES; row++)
                ck_assert_int_ne(memcmp(epochs[0].draws[row - 1], epochs[0].draws[row], DRAW_BYTES), 0);
        free(epochs);
}
END_TEST

START_TEST(test_F2_epochs_differ_and_runs_agree) {
        struct epoch *first = run(2), *second = run(2);

        ck_assert_int_eq(memcmp(first, second, EPOCHS * sizeof(*first)), 0);
        for (int64_t sample = 0; sample < SAMPLES; sample++) {
                for (uint32_t e = 1; e < EPOCHS; e++)
                        ck_assert_int_ne(
                                memcmp(draws_of(&first[0], sample), draws_of(&first[e], sample), DRAW_BYTES),
                                0);
        }
        free(first);
        free(second);
}
END_TEST

START_TEST(test_F3_worker_count_changes_nothing) {
        static const unsigned counts[] = {2, 7, 16};
        struct epoch *expected = run(1);

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                struct epoch *epochs = run(counts[i]);

                ck_assert_msg(memcmp(expected, epochs, EPOCHS * sizeof(*expected)) == 0,
                              "%u workers: other bytes", counts[i]);
                free(epochs);
        }
        free(expected);
}
END_TEST

START_TEST(test_F4_each_epoch_has_an_order_of_its_own) {
        struct epoch *epochs = run(2);

        for (uint32_t e = 0; e < EPOCHS; e++) {
                bool seen[SAMPLES] = {};

                for (uint32_t row = 0; row < SAMPLES; row++) {
                        int64_t sample = epochs[e].index[row];

                        ck_assert(sample >= 0 && sample < SAMPLES && !seen[sample]);
                        seen[sample] = true;
                }
                if (e > 0)
                        ck_assert_int_ne(
                                memcmp(epochs[e].index, epochs[e - 1].index, sizeof(epochs[e].index)), 0);
        }
        free(epochs);
}
END_TEST

START_TEST(test_F5_an_epoch_asked_for_is_that_epoch) {
        struct harness *harness = harness_new();
        struct epoch *straight = calloc(1, sizeof(*straight)), *asked = calloc(1, sizeof(*asked));
        struct pinfeed_job *job;

        write_config(harness, 4);
        harness_start(harness);
        job = attach(harness, 0);
        for (uint32_t e = 0; e <= 7; e++)
                read_epoch(job, e, straight);
        pinfeed_close(job);
        job = attach(harness, 7);
        read_epoch(job, 7, asked);
        pinfeed_close(job);
        ck_assert_int_eq(memcmp(straight, asked, sizeof(*asked)), 0);
        harness_stop(harness, SIGTERM, 0);
        harness_free(harness);
        free(straight);
        free(asked);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: F, order and randomness");
        TCase *tcase = tcase_create("F");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_F1_no_two_samples_alike);
        tcase_add_test(tcase, test_F2_epochs_differ_and_runs_agree);
        tcase_add_test(tcase, test_F3_worker_count_changes_nothing);
        tcase_add_test(tcase, test_F4_each_epoch_has_an_order_of_its_own);
        tcase_add_test(tcase, test_F5_an_epoch_asked_for_is_that_epoch);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
