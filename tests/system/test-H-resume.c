/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Saved states and going on from them (cases H1, H2, H3, H6 to H9), and being sent elsewhere. What was read
 * in pieces is compared row by row, bytes included, with what was read in one go. */

#include "tests/support/run.h"
#include "tests/system/taker.h"

#include <time.h>

enum {
        SAMPLES = 103,
        BATCH = 8,
        STEPS = 13, /* batches of an epoch: 12 and one of 7 rows */
        TEXT = 1024,
        SOON_MS = 10000,
};

static void write_config(struct harness *h, const char *source, const char *more) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, %s}\n"
                             "    workers: 2\n"
                             "%s",
                             source, more);
}

static struct harness *start_with(const char *source, const char *more) {
        struct harness *h = harness_new();

        write_config(h, source, more);
        harness_start(h);
        return h;
}

static struct harness *start(void) {
        return start_with("mode: ramp, bytes: 8, samples: 103",
                          "    batch_size: 8\n    slots: 32\n    shuffle: true\n");
}

static void finish(struct harness *h) {
        taker_stop(h);
        harness_free(h);
}

/* The taker goes on with what it has written down, as a new job. */
static void resume(struct taker *taker, const struct harness *h, uint32_t max_held, const char *state) {
        struct pinfeed_attach attach = reader_attach(h, "p", max_held);

        attach.state = *state ? state : NULL;
        taker_open(taker, &attach);
}

/* Reads `n` batches and ends with the state after them. */
static void read_on(struct taker *taker, const struct harness *h, size_t n, char state[PINFEED_STATE_MAX]) {
        resume(taker, h, 4, state);
        taker_take(taker, n);
        taker_save(taker, state);
        taker_close(taker);
}

static void expect_same(const struct taker *one, const struct taker *other) {
        ck_assert_uint_eq(one->n_rows, other->n_rows);
        ck_assert_uint_eq(one->n_batches, other->n_batches);
        for (size_t i = 0; i < one->n_rows; i++) {
                const struct taken_row *a = &one->rows[i], *b = &other->rows[i];

                reader_must(a->row == b->row && a->epoch == b->epoch && a->id == b->id &&
                                    a->padding == b->padding && !memcmp(a->data, b->data, TAKER_BYTES),
                            "number %zu: row %llu of epoch %u instead of row %llu of epoch %u", i,
                            (unsigned long long)b->row, b->epoch, (unsigned long long)a->row, a->epoch);
        }
}

static void read_straight(struct taker *taker, const struct harness *h, size_t n) {
        char state[PINFEED_STATE_MAX] = "";

        *taker = (struct taker){};
        read_on(taker, h, n, state);
}

/* ---- stopping anywhere ---- */

START_TEST(test_stop_after_any_batch) {
        struct harness *h = start();
        struct taker straight, pieces;

        read_straight(&straight, h, 2 * STEPS + 2);
        for (size_t stop = 0; stop <= 2 * STEPS + 2; stop++) {
                char state[PINFEED_STATE_MAX] = "";

                pieces = (struct taker){};
                read_on(&pieces, h, stop, state);
                read_on(&pieces, h, 2 * STEPS + 2 - stop, state);
                expect_same(&straight, &pieces);
                taker_free(&pieces);
        }
        taker_free(&straight);
        finish(h);
}
END_TEST

START_TEST(test_H1_stop_at_the_end_of_an_epoch) {
        struct harness *h = start();
        struct taker pieces = {}, straight;
        char state[PINFEED_STATE_MAX] = "";
        struct union_of whole = union_new(SAMPLES, 1);

        read_on(&pieces, h, STEPS, state);
        harness_expect_words(state, "\"epoch\":1");
        harness_expect_words(state, "\"row\":0");
        resume(&pieces, h, 4, state);
        ck_assert_uint_eq(taker_take_epoch(&pieces), STEPS);
        union_add(&whole, &pieces);
        union_expect_whole(&whole);
        taker_close(&pieces);
        read_straight(&straight, h, 2 * STEPS);
        expect_same(&straight, &pieces);
        union_free(&whole);
        taker_free(&straight);
        taker_free(&pieces);
        finish(h);
}
END_TEST

/* Whether the end was said or not makes no difference to the state. */
START_TEST(test_H1_the_end_was_said) {
        struct harness *h = start();
        char state[PINFEED_STATE_MAX], other[PINFEED_STATE_MAX];
        struct taker taker = {};

        resume(&taker, h, 4, "");
        taker_take(&taker, STEPS);
        taker_save(&taker, state);
        ck_assert_int_eq(taker_step(&taker), 0);
        taker_save(&taker, other);
        ck_assert_str_eq(state, other);
        taker_free(&taker);
        finish(h);
}
END_TEST

/* Twice and more in one epoch, also without having read anything in between. */
START_TEST(test_H2_stop_again_and_again) {
        static const size_t pieces[] = {3, 1, 0, 0, 4, 1, 3, 1, 6, 0, 7, 2};
        struct harness *h = start();
        struct taker straight, taken = {};
        char state[PINFEED_STATE_MAX] = "";
        size_t n = 0;

        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
                read_on(&taken, h, pieces[i], state);
                n += pieces[i];
        }
        read_straight(&straight, h, n);
        expect_same(&straight, &taken);
        taker_free(&straight);
        taker_free(&taken);
        finish(h);
}
END_TEST

START_TEST(test_H3_later_epochs_are_whole) {
        struct harness *h = start();
        char state[PINFEED_STATE_MAX] = "";
        struct taker taker = {};

        read_on(&taker, h, STEPS - 3, state);
        resume(&taker, h, 4, state);
        ck_assert_uint_eq(taker.info.batches_first_epoch, 3);
        ck_assert_uint_eq(taker.info.batches_per_epoch, STEPS);
        ck_assert_uint_eq(taker_take_epoch(&taker), 3);
        for (uint32_t epoch = 1; epoch < 4; epoch++) {
                struct union_of whole = union_new(SAMPLES, epoch);

                ck_assert_uint_eq(taker_take_epoch(&taker), STEPS);
                union_add(&whole, &taker);
                union_expect_whole(&whole);
                union_free(&whole);
        }
        taker_free(&taker);
        finish(h);
}
END_TEST

/* Sixteen batches are under way when the job stops; none of those counts. */
START_TEST(test_H7_what_was_not_handed_over_comes_again) {
        struct harness *h = start();
        struct taker straight, taken = {};
        char state[PINFEED_STATE_MAX];

        resume(&taken, h, 16, "");
        taker_take(&taken, 100);
        harness_wait_number(h, "jobs/0/held", 16, SOON_MS);
        taker_save(&taken, state);
        taker_close(&taken);
        resume(&taken, h, 16, state);
        taker_take(&taken, 16);
        taker_close(&taken);
        read_straight(&straight, h, 116);
        expect_same(&straight, &taken);
        taker_free(&straight);
        taker_free(&taken);
        finish(h);
}
END_TEST

/* ---- another world ---- */

/* All ranks of a world read `steps` each, or to the end of the epoch, one after the other; the state is the
 * same on all of them. */
static void read_world(const struct harness *h, uint32_t size, uint32_t batch_size, size_t steps, bool to_end,
                       char state[PINFEED_STATE_MAX], struct taker *takers) {
        char first[PINFEED_STATE_MAX] = "";

        for (uint32_t r = 0; r < size; r++) {
                struct pinfeed_attach attach = reader_attach(h, "p", 3);
                char own[PINFEED_STATE_MAX];

                attach.rank = r;
                attach.world_size = size;
                attach.batch_size = batch_size;
                attach.state = *state ? state : NULL;
                takers[r] = (struct taker){};
                taker_open(&takers[r], &attach);
                if (to_end)
                        taker_take_epoch(&takers[r]);
                else
                        taker_take(&takers[r], steps);
                taker_save(&takers[r], own);
                taker_close(&takers[r]);
                if (r == 0)
                        strcpy(first, own);
                ck_assert_str_eq(own, first);
        }
        strcpy(state, first);
}

static void try_worlds_after_each_other(const struct harness *h, size_t steps, size_t more) {
        struct union_of whole = union_new(SAMPLES, 0), second = union_new(SAMPLES, 1);
        char state[PINFEED_STATE_MAX] = "";
        struct taker takers[2 + 1 + 4 + 4];

        read_world(h, 2, 8, steps, false, state, takers);
        read_world(h, 1, 5, more, false, state, takers + 2);
        read_world(h, 4, 3, 0, true, state, takers + 3);
        harness_expect_words(state, "\"epoch\":1");
        read_world(h, 4, 3, 0, true, state, takers + 7);
        for (size_t i = 0; i < sizeof(takers) / sizeof(takers[0]); i++) {
                union_add(&whole, &takers[i]);
                union_add(&second, &takers[i]);
        }
        union_expect_whole(&whole);
        union_expect_whole(&second);
        for (size_t i = 0; i < sizeof(takers) / sizeof(takers[0]); i++) {
                union_check_padding(&whole, &takers[i]);
                union_check_padding(&second, &takers[i]);
                taker_free(&takers[i]);
        }
        ck_assert_uint_le(whole.padding, 3);
        ck_assert_uint_le(second.padding, 3);
        union_free(&whole);
        union_free(&second);
}

START_TEST(test_2_ranks_then_1_then_4) {
        struct harness *h = start();

        for (size_t steps = 0; steps < 6; steps += harness_quick() ? 2 : 1)
                for (size_t more = 0; more <= (SAMPLES - 16 * steps - 1) / 5; more += harness_quick() ? 5 : 2)
                        try_worlds_after_each_other(h, steps, more);
        finish(h);
}
END_TEST

/* ---- what it costs ---- */

static uint64_t cpu_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

START_TEST(test_H6_a_state_after_each_batch) {
        struct harness *h =
                start_with("samples: 640000, features: 512", "    batch_size: 64\n    slots: 32\n");
        struct pinfeed_attach attach = reader_attach(h, "p", 4);
        uint64_t spent = 0, began, wall;
        char state[PINFEED_STATE_MAX] = "";
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        size_t longest = 0;

        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        began = clock_ns();
        for (int i = 0; i < 10000; i++) {
                uint64_t before;
                int r = pinfeed_next(job, &batch);

                reader_must(r == 1, "batch %d: %d, %s", i, r, pinfeed_error(job));
                before = cpu_ns();
                r = pinfeed_job_state(job, state, sizeof(state));
                spent += cpu_ns() - before;
                reader_must(r > 0 && r < PINFEED_STATE_MAX, "state: %d", r);
                longest = (size_t)r > longest ? (size_t)r : longest;
                pinfeed_batch_release(batch);
        }
        wall = clock_ns() - began;
        printf("# 10,000 states of at most %zu bytes: %.2f us each, %.3f %% of the run\n", longest,
               (double)spent / 10000 / 1000, 100.0 * (double)spent / (double)wall);
        harness_expect_words(state, "\"epoch\":1");
        ck_assert_uint_lt(longest, 256);
        if (!READER_SANITIZED)
                ck_assert_double_lt((double)spent, 0.01 * (double)wall);
        pinfeed_close(job);
        finish(h);
}
END_TEST

/* Ten million samples: going on at 9,900,000 prepares what the ring holds, and nothing before it. */
START_TEST(test_H8_no_replay) {
        static const char source[] = "mode: ramp, bytes: 8, samples: 10000000";
        static const char more[] = "    batch_size: 100\n    slots: 8\n    shuffle: true\n";
        struct harness *h = start_with(source, more);
        struct pinfeed_attach attach = reader_attach(h, "p", 4);
        char state[PINFEED_STATE_MAX];
        struct taker taker = {};

        attach.start_row = 9900000;
        taker_open(&taker, &attach);
        taker_save(&taker, state);
        taker_free(&taker);
        taker_stop(h);
        harness_start(h); /* which counts from 0 */
        resume(&taker, h, 4, state);
        harness_wait_number(h, "pipelines/p/slots_ready", 8, 10000); /* the window is full: that is all */
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/rows_prepared"), 8 * 100);
        taker_take(&taker, 1);
        ck_assert_uint_eq(taker.rows[0].row, 9900000);
        ck_assert_uint_eq(taker.info.batches_first_epoch, 1000);
        taker_free(&taker);
        finish(h);
}
END_TEST

/* ---- H9: what has changed ---- */

static void restart(struct harness *h, const char *source, const char *more) {
        taker_stop(h);
        write_config(h, source, more);
        harness_start(h);
}

static void expect_stale(struct harness *h, const char *state, const char *words) {
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct pinfeed_job *job;
        char text[TEXT];

        attach.state = state;
        reader_expect_refusal(&attach, -ESTALE, text, sizeof(text));
        harness_expect_words(text, words);
        harness_expect_words(text, "force");
        attach.force = true;
        ck_assert_msg(pinfeed_open(&job, &attach) == 0, "forced: %s", pinfeed_error(job));
        pinfeed_close(job);
}

static const char same[] = "mode: ramp, bytes: 8, samples: 103";
#define SHUFFLED "    batch_size: 8\n    slots: 32\n    shuffle: true\n"

START_TEST(test_H9_a_changed_pipeline) {
        struct harness *h = start();
        struct taker taker = {}, straight;
        char state[PINFEED_STATE_MAX] = "", text[TEXT];
        struct pinfeed_attach attach;

        read_straight(&straight, h, 8);
        read_on(&taker, h, 5, state);
        restart(h, "mode: ramp, bytes: 8, samples: 102", SHUFFLED);
        expect_stale(h, state, "the source has 102 samples, the state was saved with 103");
        restart(h, "mode: ramp, bytes: 16, samples: 103", SHUFFLED);
        expect_stale(h, state, "the source (its files or keys) has changed");
        restart(h, "mode: ramp, bytes: 8, samples: 103", "    batch_size: 8\n    slots: 32\n");
        expect_stale(h, state, "the order is not shuffled, the state was saved with one that is shuffled");
        restart(h, same, SHUFFLED "    seed: 7\n");
        expect_stale(h, state, "the seed is 7, the state was saved with 0: attach with seed 0");
        restart(h, "mode: ramp, bytes: 8, samples: 40", SHUFFLED);
        attach = reader_attach(h, "p", 2);
        attach.state = state;
        attach.force = true;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "the state stands at row 40 of epoch 0, an epoch has 40 rows");
        /* What decides no byte may change. */
        restart(h, same,
                "    batch_size: 16\n    slots: 20\n    shuffle: true\n    last_batch: pad\n    lookahead: "
                "0\n"
                "    on_error: fail\n");
        attach = reader_attach(h, "p", 2);
        attach.state = state;
        attach.batch_size = 8;
        taker_open(&taker, &attach);
        taker_take(&taker, 3);
        expect_same(&straight, &taker);
        taker_free(&taker);
        taker_free(&straight);
        finish(h);
}
END_TEST

/* The same with a seed of the job's own, which the pipeline's does not concern. */
START_TEST(test_H9_own_seed) {
        struct harness *h = start();
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        char state[PINFEED_STATE_MAX];
        struct taker taker = {};

        attach.seed_given = true;
        attach.seed = UINT64_MAX - 1;
        taker_open(&taker, &attach);
        taker_take(&taker, 2);
        taker_save(&taker, state);
        harness_expect_words(state, "18446744073709551614");
        taker_close(&taker);
        restart(h, same, SHUFFLED "    seed: 7\n");
        attach.state = state;
        taker_open(&taker, &attach);
        taker_take(&taker, 1);
        ck_assert_uint_eq(taker.rows[16].row, 16);
        taker_close(&taker);
        attach.seed_given = false;
        expect_stale(h, state, "the seed is 7, the state was saved with 18446744073709551614");
        taker_free(&taker);
        finish(h);
}
END_TEST

static void write_photos(struct harness *h, const char *path, const char *transform, const char *dtype) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms: [%s: {size: 16}]\n"
                             "    output: {dtype: %s}\n"
                             "    batch_size: 2\n"
                             "    workers: 1\n",
                             path, transform, dtype);
}

START_TEST(test_H9_a_changed_transform) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        char path[HARNESS_PATH_MAX], state[PINFEED_STATE_MAX];
        const char *photos = harness_data("photos", path);
        struct pinfeed_job *job;

        if (!photos) {
                harness_free(h);
                return;
        }
        write_photos(h, photos, "center_crop", "uint8");
        harness_start(h);
        ck_assert_msg(pinfeed_open(&job, &attach) == 0, "%s", pinfeed_error(job));
        ck_assert_int_gt(pinfeed_job_state(job, state, sizeof(state)), 0);
        pinfeed_close(job);
        taker_stop(h);
        write_photos(h, photos, "random_resized_crop", "uint8");
        harness_start(h);
        expect_stale(h, state, "the transforms have changed since the state was saved");
        taker_stop(h);
        write_photos(h, photos, "center_crop", "float32");
        harness_start(h);
        expect_stale(h, state, "the output has changed since the state was saved");
        finish(h);
}
END_TEST

/* ---- sent elsewhere ---- */

static void expect_at(struct taker *taker, uint32_t epoch, uint64_t row) {
        size_t n = taker->n_rows;

        taker_take(taker, 1);
        ck_assert_uint_eq(taker->rows[n].epoch, epoch);
        ck_assert_uint_eq(taker->rows[n].row, row);
}

START_TEST(test_seek) {
        struct harness *h = start();
        struct taker taker = {}, straight;

        read_straight(&straight, h, 4 * STEPS);
        resume(&taker, h, 4, "");
        for (size_t i = 0; i < 4 * STEPS; i++) { /* backwards, batch by batch */
                const struct taken_batch *batch = &straight.batches[4 * STEPS - 1 - i];
                uint64_t row = straight.rows[batch->first].row;

                ck_assert_int_eq(pinfeed_job_seek(taker.job, batch->epoch, row), 0);
                expect_at(&taker, batch->epoch, row);
                for (uint32_t k = 0; k < batch->rows; k++)
                        ck_assert_int_eq(taker.rows[taker.batches[i].first + k].id,
                                         straight.rows[batch->first + k].id);
        }
        ck_assert_int_eq(pinfeed_job_seek(taker.job, 2, 5), 0); /* later epochs are whole */
        expect_at(&taker, 2, 5);
        ck_assert_uint_eq(taker_take_epoch(&taker), (SAMPLES - 5 - 1) / BATCH);
        ck_assert_uint_eq(taker_take_epoch(&taker), STEPS);
        ck_assert_int_eq(pinfeed_job_seek(taker.job, 0, SAMPLES), -EINVAL);
        taker_free(&taker);
        taker_free(&straight);
        finish(h);
}
END_TEST

/* The state after a seek is where it leads to, also before anything has come. */
START_TEST(test_state_after_seek) {
        struct harness *h = start();
        char state[PINFEED_STATE_MAX];
        struct taker taker = {};

        resume(&taker, h, 4, "");
        taker_take(&taker, 2);
        ck_assert_int_eq(pinfeed_job_seek(taker.job, 5, 40), 0);
        taker_save(&taker, state);
        harness_expect_words(state, "\"epoch\":5");
        harness_expect_words(state, "\"row\":40");
        taker_close(&taker);
        resume(&taker, h, 4, state);
        expect_at(&taker, 5, 40);
        taker_free(&taker);
        finish(h);
}
END_TEST

/* Two slots suffice for aligned batches only: the daemon says so, and the job goes on where it was. */
START_TEST(test_seek_that_cannot_be) {
        struct harness *h = start_with(same, "    batch_size: 8\n    slots: 2\n");
        struct pinfeed_batch *batch;
        struct taker taker = {};

        resume(&taker, h, 2, "");
        taker_take(&taker, 3);
        ck_assert_int_eq(pinfeed_job_seek(taker.job, 0, 5), 0);
        ck_assert_int_eq(pinfeed_next(taker.job, &batch), -ENOSPC);
        harness_expect_words(pinfeed_error(taker.job), "row 5 of epoch 0");
        expect_at(&taker, 0, 24);
        ck_assert_uint_eq(taker_take_epoch(&taker), STEPS - 4);
        taker_free(&taker);
        finish(h);
}
END_TEST

/* Without shuffle an epoch ends, and the next one is not prepared before it is asked for. */
START_TEST(test_lookahead_0_prepares_one_epoch) {
        struct harness *h = start_with(same, "    batch_size: 8\n    slots: 32\n");
        struct taker taker = {};

        resume(&taker, h, 4, "");
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
                ck_assert_uint_eq(taker_take_epoch(&taker), STEPS);
                ck_assert_double_eq(harness_status_number(h, "pipelines/p/rows_prepared"),
                                    (epoch + 1) * SAMPLES);
        }
        taker_free(&taker);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: H, resuming");
        TCase *tcase = tcase_create("H");

        tcase_set_timeout(tcase, 120 * harness_slowdown());
        tcase_add_test(tcase, test_stop_after_any_batch);
        tcase_add_test(tcase, test_H1_stop_at_the_end_of_an_epoch);
        tcase_add_test(tcase, test_H1_the_end_was_said);
        tcase_add_test(tcase, test_H2_stop_again_and_again);
        tcase_add_test(tcase, test_H3_later_epochs_are_whole);
        tcase_add_test(tcase, test_H6_a_state_after_each_batch);
        tcase_add_test(tcase, test_H7_what_was_not_handed_over_comes_again);
        tcase_add_test(tcase, test_H8_no_replay);
        tcase_add_test(tcase, test_H9_a_changed_pipeline);
        tcase_add_test(tcase, test_H9_own_seed);
        tcase_add_test(tcase, test_H9_a_changed_transform);
        tcase_add_test(tcase, test_2_ranks_then_1_then_4);
        tcase_add_test(tcase, test_seek);
        tcase_add_test(tcase, test_state_after_seek);
        tcase_add_test(tcase, test_seek_that_cannot_be);
        tcase_add_test(tcase, test_lookahead_0_prepares_one_epoch);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
