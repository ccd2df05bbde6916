/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How much a real daemon shares: jobs that come some time apart to workers that cannot keep up with them, and
 * slow jobs beside fast ones. Workers sleep for each row, so that it is the pipeline that bounds the speed
 * and not the machine. The exact figures are tests/unit/test-sharing.c's; here what would take minutes takes
 * seconds, and a machine that is busy with other things may cost some of what is shared.
 *
 * PINFEED_TEST_LONG=1: distances of 10 s and 60 s instead of 1 s, measured over two epochs; all of it takes a
 * quarter of an hour, so run the cases one beside the other (CK_RUN_CASE). */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
        BATCH = 16,
        SAMPLES = 80000,
        ROW_US = 2000,
        WORKERS = 4,
        RATE = WORKERS * 1000000 / ROW_US, /* rows a second, at best */
        APART_MS = 1000,
        SETTLE_MS = 4000, /* for four jobs so far apart to have met: twice APART_MS, if nothing else runs */
        WINDOW_MS = 2000,
        WINDOWS = 15,
        LONGER = 10, /* times, with PINFEED_TEST_LONG */
        LONG_WINDOW_MS = 2 * SAMPLES / RATE * 1000,
        FAR_MS = 60000,
        LONG_TIMEOUT_S = 1800,
};

static bool is_long(void) {
        return getenv("PINFEED_TEST_LONG") != NULL;
}

static uint32_t longer(uint32_t ms) {
        return is_long() ? LONGER * ms : ms;
}

static uint32_t window_ms(void) {
        return is_long() ? LONG_WINDOW_MS : WINDOW_MS;
}

/* A job in a thread of its own, which reads on until it is told to stop. */
struct trainer {
        struct reader reader;
        pthread_t thread;
        uint32_t step_ms; /* that it computes on a batch */
        atomic_bool stop;
        _Atomic uint64_t batches;
};

static struct harness *start_with(unsigned samples, unsigned row_us, unsigned batch_size, const char *more) {
        struct harness *h = harness_new();

        harness_write_config(
                h,
                "pipelines:\n"
                "  p:\n"
                "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 64, delay_us: %d}\n"
                "    batch_size: %d\n"
                "    slots: 8\n"
                "    lookahead: 1\n"
                "    workers: %d\n"
                "%s",
                samples, row_us, batch_size, WORKERS, more);
        harness_start(h);
        return h;
}

static struct harness *start(const char *more) {
        return start_with(SAMPLES, ROW_US, BATCH, more);
}

static void *train(void *context) {
        struct trainer *trainer = context;

        while (!atomic_load(&trainer->stop)) {
                struct pinfeed_batch *batch = reader_next(&trainer->reader);

                if (trainer->step_ms > 0)
                        usleep(trainer->step_ms * 1000);
                pinfeed_batch_release(batch);
                atomic_fetch_add(&trainer->batches, 1);
        }
        return NULL;
}

static void come_with(struct trainer *trainer, const struct pinfeed_attach *attach, uint32_t step_ms) {
        *trainer = (struct trainer){.step_ms = step_ms};
        reader_open_with(&trainer->reader, attach);
        if (attach->start == PINFEED_START_LIVE)
                trainer->reader.row =
                        (trainer->reader.info.batches_per_epoch - trainer->reader.info.batches_first_epoch) *
                        BATCH;
        printf("# job %u: %s\n", trainer->reader.info.job, trainer->reader.info.sharing);
        ck_assert_int_eq(pthread_create(&trainer->thread, NULL, train, trainer), 0);
}

static void come(struct harness *h, struct trainer *trainer, uint32_t start, uint32_t step_ms) {
        struct pinfeed_attach attach = reader_attach(h, "p", 2);

        attach.start = start;
        come_with(trainer, &attach, step_ms);
}

static void leave(struct trainer *trainers, size_t n) {
        for (size_t i = 0; i < n; i++)
                atomic_store(&trainers[i].stop, true);
        for (size_t i = 0; i < n; i++) {
                ck_assert_int_eq(pthread_join(trainers[i].thread, NULL), 0);
                reader_close(&trainers[i].reader);
        }
}

static bool nobody_is_there(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool empty = json_array_size(harness_member(status, "jobs")) == 0;

        json_decref(status);
        return empty;
}

/* That a job leaves is a line in the log, and there may be few of those after the signal. */
static void finish(struct harness *h) {
        harness_wait(h, "all jobs gone", nobody_is_there, NULL, SETTLE_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static void sleep_ms(uint32_t ms) {
        usleep(ms * 1000);
}

/* ---- what status says ---- */

static bool says(struct harness *h, const char *path, const char *words) {
        json_t *status = harness_status(h);
        const char *text = json_string_value(harness_member(status, path));
        bool does = text && strstr(text, words);

        json_decref(status);
        return does;
}

static bool waits_for_the_last(struct harness *h, void *context) {
        return says(h, "jobs/0/note", "in lockstep: waits for job ");
}

static bool is_held_back_by(struct harness *h, void *context) {
        return says(h, "pipelines/p/held_back_by/what", context);
}

/* The second job is the slow one. */
static void expect_slow_one_is_named(struct harness *h) {
        json_t *status;
        char words[64];

        harness_wait(h, "a job that is held back", waits_for_the_last, NULL, SETTLE_MS);
        harness_wait(h, "lockstep", is_held_back_by, "lockstep", SETTLE_MS);
        status = harness_status(h);
        snprintf(words, sizeof(words), "job %.0f (", harness_number(status, "jobs/1/id"));
        ck_assert(says(h, "pipelines/p/held_back_by/text", words));
        ck_assert(says(h, "pipelines/p/held_back_by/text",
                       "sets the pace: in lockstep the others wait for it, "));
        ck_assert(says(h, "pipelines/p/held_back_by/text",
                       "a larger `max_lead` (they are at most 64 rows apart)"));
        ck_assert_double_eq(harness_number(status, "pipelines/p/held_back_by/job"),
                            harness_number(status, "jobs/1/id"));
        ck_assert_double_ge(harness_number(status, "jobs/0/recent/waited_for_jobs"), 0.7);
        ck_assert_double_ge(harness_number(status, "jobs/0/waited_for_jobs_s"), 1);
        ck_assert_double_le(harness_number(status, "jobs/1/waited_for_jobs_s"), 0.5);
        ck_assert(json_is_true(harness_member(status, "jobs/1/bound")));
        ck_assert(json_is_null(harness_member(status, "jobs/1/led")));
        json_decref(status);
}

static void expect_gathering(struct harness *h) {
        json_t *status;

        harness_wait(h, "gather", is_held_back_by, "gather", SETTLE_MS);
        ck_assert(says(h, "pipelines/p/held_back_by/text", "1 job waits for 1 more to come (gather 2)"));
        ck_assert(says(h, "jobs/0/note", "gather 2: 1 of 2 there, at most "));
        status = harness_status(h);
        ck_assert_double_eq(harness_number(status, "jobs/0/gathering/jobs"), 2);
        ck_assert_double_eq(harness_number(status, "jobs/0/gathering/there"), 1);
        ck_assert_double_ge(harness_number(status, "jobs/0/waited_for_jobs_s"), 0.9);
        json_decref(status);
}

/* Rows delivered for each that is prepared, from now on for `ms`. */
static double sharing_factor(struct harness *h, uint32_t ms) {
        json_t *before = harness_status(h), *after;
        double delivered, prepared;

        sleep_ms(ms);
        after = harness_status(h);
        delivered = harness_number(after, "pipelines/p/rows_delivered") -
                    harness_number(before, "pipelines/p/rows_delivered");
        prepared = harness_number(after, "pipelines/p/rows_prepared") -
                   harness_number(before, "pipelines/p/rows_prepared");
        json_decref(before);
        json_decref(after);
        ck_assert_double_gt(prepared, 0);
        return delivered / prepared;
}

/* The same for jobs that come to share `least` at some time and do so from then on: on a machine with other
 * things to do a catch-up may fail, and another begins later. The long run gives them their time before. */
static double factor_in_time(struct harness *h, double least) {
        double factor = sharing_factor(h, window_ms());

        for (int i = 1; i < WINDOWS && factor < least && !is_long(); i++)
                factor = sharing_factor(h, window_ms());
        return factor;
}

static const struct {
        const char *name, *config;
        uint32_t start;  /* of all but the first job */
        uint32_t far_ms; /* how far apart they are in a long run */
        uint32_t settle_ms;
        double least, most;
} apart[] = {
        {"elastic", "", PINFEED_START_GIVEN, LONGER *APART_MS, SETTLE_MS, 3.5, 4.2},
        {"live", "", PINFEED_START_LIVE, LONGER *APART_MS, 0, 3.5, 4.2},
        {"catch_up: 0", "    catch_up: 0\n", PINFEED_START_GIVEN, FAR_MS, 0, 0.8, 1.2},
        {"too far for catch_up", "    catch_up: 0.3\n", PINFEED_START_GIVEN, LONGER *APART_MS, 0, 0.8, 1.2},
};

/* Four equal jobs, some time apart, on a pipeline that makes less than any of them could take. */
START_TEST(test_four_equal_jobs) {
        uint32_t distance_ms = is_long() ? apart[_i].far_ms : APART_MS;
        struct harness *h = start(apart[_i].config);
        struct trainer trainers[4];
        double factor;

        for (int i = 0; i < 4; i++) {
                come(h, &trainers[i], i > 0 ? apart[_i].start : PINFEED_START_GIVEN, 0);
                sleep_ms(i < 3 ? distance_ms : longer(apart[_i].settle_ms));
        }
        factor = factor_in_time(h, apart[_i].least);
        printf("# four jobs %u ms apart, %s: sharing factor %.2f\n", distance_ms, apart[_i].name, factor);
        leave(trainers, 4);
        finish(h);
        ck_assert_double_ge(factor, apart[_i].least);
        ck_assert_double_le(factor, apart[_i].most);
}
END_TEST

/* Four that gather are together from their first row on, though they came one after the other. */
START_TEST(test_four_that_gather) {
        struct harness *h = start("");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct trainer trainers[4];
        double factor;

        attach.gather = 4;
        for (int i = 0; i < 4; i++) {
                come_with(&trainers[i], &attach, 0);
                sleep_ms(longer(APART_MS / 4));
        }
        factor = factor_in_time(h, 3.9);
        printf("# four jobs that gather: sharing factor %.2f, %.0f slots filled again\n", factor,
               harness_status_number(h, "pipelines/p/slots_refilled"));
        leave(trainers, 4);
        finish(h);
        ck_assert_double_ge(factor, 3.9);
        ck_assert_double_le(factor, 4.1);
}
END_TEST

/* In which order jobs come; the first two are the short run's. */
static const uint32_t batch_sizes[][3] = {{7, 32, 64}, {64, 32, 7}, {7, 64, 32},
                                          {32, 7, 64}, {32, 64, 7}, {64, 7, 32}};

/* Jobs with other batch sizes lie in the same slots, though over their borders. */
START_TEST(test_three_batch_sizes) {
        uint32_t distance_ms = is_long() ? LONGER * APART_MS : APART_MS / 2;
        const uint32_t *sizes = batch_sizes[_i];
        struct harness *h = start_with(SAMPLES, ROW_US, 64, "");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct trainer trainers[3];
        double factor;

        for (int i = 0; i < 3; i++) {
                attach.batch_size = sizes[i];
                come_with(&trainers[i], &attach, 0);
                sleep_ms(i < 2 ? distance_ms : 4 * distance_ms);
        }
        factor = factor_in_time(h, 2.5);
        printf("# batch sizes %u, %u, %u, %u ms apart: sharing factor %.2f\n", sizes[0], sizes[1], sizes[2],
               distance_ms, factor);
        leave(trainers, 3);
        finish(h);
        ck_assert_double_ge(factor, 2.5);
        ck_assert_double_le(factor, 3.2);
}
END_TEST

/* Alone in its stream a job starts at the beginning; its step is as large as its batch. */
START_TEST(test_live_places) {
        struct harness *h = start("");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct trainer first;
        struct reader other;
        char text[1200];

        come(h, &first, PINFEED_START_LIVE, 0);
        ck_assert_uint_eq(first.reader.info.batches_first_epoch, first.reader.info.batches_per_epoch);
        sleep_ms(APART_MS);
        attach.start = PINFEED_START_LIVE;
        attach.batch_size = 3 * BATCH;
        reader_open_with(&other, &attach);
        ck_assert_uint_lt(other.info.batches_first_epoch, other.info.batches_per_epoch);
        other.row = (other.info.batches_per_epoch - other.info.batches_first_epoch) * attach.batch_size;
        reader_read(&other, 2);
        reader_close(&other);

        attach.world_size = 2;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        ck_assert_ptr_nonnull(strstr(text, "group"));
        attach.start_row = 16;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        leave(&first, 1);
        finish(h);
}
END_TEST

/* The ranks of a run that starts live come one after the other, and begin at one place. */
START_TEST(test_live_ranks) {
        struct harness *h = start("");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct trainer first;
        struct reader ranks[2];
        struct pinfeed_batch *batch;
        uint64_t row[2];

        come(h, &first, PINFEED_START_GIVEN, 0);
        attach.start = PINFEED_START_LIVE;
        attach.world_size = 2;
        attach.group = "run";
        for (attach.rank = 0; attach.rank < 2; attach.rank++) {
                sleep_ms(APART_MS / 2);
                reader_open_with(&ranks[attach.rank], &attach);
        }
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pinfeed_next(ranks[i].job, &batch), 1);
                row[i] = pinfeed_batch_row(batch);
                pinfeed_batch_release(batch);
        }
        ck_assert_uint_gt(row[0], 0);
        ck_assert_uint_eq(row[1], row[0] + BATCH);
        for (int i = 0; i < 2; i++)
                reader_close(&ranks[i]);
        leave(&first, 1);
        finish(h);
}
END_TEST

/* ---- gathering ---- */

/* Jobs that come one after the other begin together; one that waits in vain begins when its time is over. */
START_TEST(test_gather) {
        struct harness *h = start("");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct pinfeed_batch *batch;
        struct reader readers[2], late;
        uint64_t begun;

        attach.gather = 2;
        reader_open_with(&readers[0], &attach);
        ck_assert_int_eq(pinfeed_next_timeout(readers[0].job, &batch, APART_MS), -ETIMEDOUT);
        expect_gathering(h);
        reader_open_with(&readers[1], &attach);
        for (int i = 0; i < 2; i++)
                reader_read(&readers[i], 10);
        ck_assert_double_le(harness_status_number(h, "pipelines/p/rows_prepared"), (10 + 8) * BATCH);

        attach.gather = 4;
        attach.gather_timeout_ms = APART_MS;
        begun = clock_ns();
        reader_open_with(&late, &attach);
        reader_read(&late, 1);
        ck_assert_uint_ge((clock_ns() - begun) / NS_PER_MS, APART_MS - 50);
        reader_close(&late);
        for (int i = 0; i < 2; i++)
                reader_close(&readers[i]);
        finish(h);
}
END_TEST

/* ---- fast and slow ---- */

enum {
        SLOW_MS = 50, /* that the slow job computes on a batch */
        FAST_MS = 20, /* the fast one: it needs 800 rows a second, fewer than half of what the workers make */
        RUN_MS = 3000,
};

enum {
        DEAR_ROW_US = 8000, /* so that what a worker does beside a row is little */
        /* that a job computes on a batch which needs a fourth of the workers */
        QUARTER_MS = 4 * BATCH * DEAR_ROW_US / WORKERS / 1000,
        FEW_SAMPLES = 5 * BATCH, /* so that epochs end now and then */
};

/* Four times the workers that the one job needs: they fill the ring once, and then wait with it. */
START_TEST(test_gpu_bound) {
        struct harness *h = start_with(FEW_SAMPLES, DEAR_ROW_US, BATCH, "");
        struct trainer trainer;
        json_t *before, *after;
        double idle, refilled;
        uint64_t began;

        come(h, &trainer, PINFEED_START_GIVEN, QUARTER_MS);
        sleep_ms(1000);
        before = harness_status(h);
        began = clock_ns();
        sleep_ms(longer(RUN_MS));
        after = harness_status(h);
        idle = 1 - (harness_number(after, "pipelines/p/busy_seconds") -
                    harness_number(before, "pipelines/p/busy_seconds")) *
                           NS_PER_S / (double)(clock_ns() - began) / WORKERS;
        refilled = harness_number(after, "pipelines/p/slots_refilled");
        printf("# a job that needs a fourth of the workers: idle %.2f of the time, %.0f slots filled again\n",
               idle, refilled);
        ck_assert_uint_gt(atomic_load(&trainer.batches), 3 * FEW_SAMPLES / BATCH);
        json_decref(before);
        json_decref(after);
        leave(&trainer, 1);
        finish(h);
        ck_assert_double_eq(refilled, 0);
        ck_assert_double_ge(idle, 0.7);
}
END_TEST

static double rate(struct trainer *trainer, uint32_t ms) {
        uint64_t before = atomic_load(&trainer->batches), start = clock_ns();

        sleep_ms(ms);
        return (double)(atomic_load(&trainer->batches) - before) * NS_PER_S / (double)(clock_ns() - start);
}

/* Nobody waits for the slow one: the fast one goes on as if it were alone. */
START_TEST(test_elastic_fast_and_slow) {
        struct harness *h = start("");
        struct trainer trainers[2];
        double alone, beside;

        come(h, &trainers[0], PINFEED_START_GIVEN, FAST_MS);
        sleep_ms(500);
        alone = rate(&trainers[0], RUN_MS);
        come(h, &trainers[1], PINFEED_START_LIVE, SLOW_MS);
        sleep_ms(500);
        beside = rate(&trainers[0], RUN_MS);
        printf("# the fast job: %.1f batches/s alone, %.1f beside a slow one\n", alone, beside);
        leave(trainers, 2);
        finish(h);
        ck_assert_double_ge(beside, 0.95 * alone);
}
END_TEST

/* Both go as fast as the slow one, and nothing is prepared twice. */
START_TEST(test_lockstep_fast_and_slow) {
        struct harness *h = start("    sharing: lockstep\n    max_lead: 64\n");
        struct trainer trainers[2];
        double fast, slow, refilled, factor;

        come(h, &trainers[0], PINFEED_START_GIVEN, 0);
        come(h, &trainers[1], PINFEED_START_GIVEN, SLOW_MS);
        ck_assert_ptr_nonnull(strstr(trainers[1].reader.info.sharing, "in lockstep, at most 64 rows apart"));
        sleep_ms(500);
        factor = sharing_factor(h, RUN_MS);
        expect_slow_one_is_named(h);
        fast = (double)atomic_load(&trainers[0].batches);
        slow = (double)atomic_load(&trainers[1].batches);
        refilled = harness_status_number(h, "pipelines/p/slots_refilled");
        printf("# lockstep: %.0f and %.0f batches, sharing factor %.2f, %.0f slots filled again\n", fast,
               slow, factor, refilled);
        leave(trainers, 2);
        finish(h);
        ck_assert_double_le(fast, slow + 64 / BATCH + 2); /* the one may have been read a moment before */
        ck_assert_double_ge(factor, 1.8);
        ck_assert_double_eq(refilled, 0);
}
END_TEST

static bool is_demoted(struct harness *h, void *context) {
        return harness_log_contains(h, "the others wait for it no more");
}

/* One that gives nothing back holds the other up for lag_timeout, and no longer. */
START_TEST(test_lockstep_demotion) {
        struct harness *h = start("    sharing: lockstep\n    lag_timeout: 1\n");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct trainer first;
        struct reader stopped;
        struct pinfeed_batch *held;

        come(h, &first, PINFEED_START_GIVEN, 0);
        reader_open_with(&stopped, &attach);
        held = reader_next(&stopped);
        sleep_ms(600);
        ck_assert(!is_demoted(h, NULL));
        harness_wait(h, "a demotion", is_demoted, NULL, 4000 * harness_slowdown());
        ck_assert(says(h, "jobs/1/note", "gives nothing back: the others in lockstep wait for it no more"));
        ck_assert_double_gt(rate(&first, 1000), 20);
        ck_assert_int_eq(pinfeed_batch_release(held), 0);
        reader_close(&stopped);
        leave(&first, 1);
        finish(h);
}
END_TEST

static TCase *add_case(Suite *s, const char *name) {
        TCase *tcase = tcase_create(name);

        tcase_set_timeout(tcase, (is_long() ? LONG_TIMEOUT_S : 60) * (double)harness_slowdown());
        suite_add_tcase(s, tcase);
        return tcase;
}

static Suite *suite(void) {
        int n_sizes = is_long() ? sizeof(batch_sizes) / sizeof(batch_sizes[0]) : 2;
        Suite *s = suite_create("sharing");
        TCase *policies = add_case(s, "policies"), *sizes = add_case(s, "sizes"), *four = add_case(s, "four");

        tcase_add_loop_test(four, test_four_equal_jobs, 0, sizeof(apart) / sizeof(apart[0]));
        tcase_add_test(four, test_four_that_gather);
        tcase_add_loop_test(sizes, test_three_batch_sizes, 0, n_sizes);
        tcase_add_test(policies, test_live_places);
        tcase_add_test(policies, test_live_ranks);
        tcase_add_test(policies, test_gather);
        tcase_add_test(policies, test_gpu_bound);
        tcase_add_test(policies, test_elastic_fast_and_slow);
        tcase_add_test(policies, test_lockstep_fast_and_slow);
        tcase_add_test(policies, test_lockstep_demotion);
        return s;
}

int main(void) {
        return run_suite(suite());
}
