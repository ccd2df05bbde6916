/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case D5, and what else there is to groups: the ranks of one run are let in as a whole, begin when all are
 * there, and the missing one is named. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum {
        BATCH = 16,
        SAMPLES = 640,
        WORLD = 4,
        NOT_YET_MS = 300,
        SOON_MS = 10000,
};

static atomic_bool over;

static struct harness *start(int slots) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 64}\n"
                             "    batch_size: %d\n"
                             "    slots: %d\n"
                             "    workers: 2\n",
                             SAMPLES, BATCH, slots);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_wait(h, "all jobs gone", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static struct pinfeed_attach attach_rank(const struct harness *h, uint32_t rank) {
        struct pinfeed_attach attach = reader_attach(h, "p", 2);

        attach.group = "run";
        attach.world_size = WORLD;
        attach.rank = rank;
        return attach;
}

static struct pinfeed_job *come(const struct harness *h, uint32_t rank) {
        struct pinfeed_attach attach = attach_rank(h, rank);
        struct pinfeed_job *job;
        int r = pinfeed_open(&job, &attach);

        ck_assert_msg(r == 0, "rank %u: %s", rank, pinfeed_error(job));
        return job;
}

/* The job's next batch, which must begin at `row`. */
static void expect_row(struct pinfeed_job *job, uint64_t row) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(job, &batch);

        ck_assert_msg(r == 1, "%d, %s", r, pinfeed_error(job));
        ck_assert_uint_eq(pinfeed_batch_row(batch), row);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
}

static void expect_nothing(struct pinfeed_job *job) {
        struct pinfeed_batch *batch;

        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, NOT_YET_MS), -ETIMEDOUT);
}

static void expect_text(const char *text, const char *part) {
        ck_assert_msg(strstr(text, part) != NULL, "\"%s\" does not say \"%s\"", text, part);
}

/* Three of four ranks: status names the fourth, and they get an error that names it, not an endless wait. */
START_TEST(test_D5_a_rank_is_missing) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach attach = attach_rank(h, 0);
        struct pinfeed_job *jobs[WORLD];
        struct pinfeed_batch *batch;
        uint64_t began = clock_ns();
        json_t *status;

        attach.group_timeout_ms = 1500;
        for (uint32_t i = 0; i < WORLD - 1; i++) {
                attach.rank = i < 2 ? i : i + 1;
                ck_assert_int_eq(pinfeed_open(&jobs[i], &attach), 0);
        }
        status = harness_status(h);
        expect_text(json_string_value(harness_member(status, "jobs/0/note")),
                    "waits for rank 2 of group run");
        expect_text(json_string_value(harness_member(status, "pipelines/p/held_back_by/text")),
                    "a group that is not complete: 3 jobs wait for rank 2 of group run, at most");
        json_decref(status);
        for (uint32_t i = 0; i < WORLD - 1; i++) {
                ck_assert_int_eq(pinfeed_next(jobs[i], &batch), -ETIMEDOUT);
                expect_text(pinfeed_error(jobs[i]),
                            "rank 2 of group run (4 ranks) did not come within 1.5 s");
                ck_assert_int_eq(pinfeed_next(jobs[i], &batch), -ETIMEDOUT);
                pinfeed_close(jobs[i]);
        }
        ck_assert_uint_ge(clock_ns() - began, 1500 * NS_PER_MS);
        finish(h);
}
END_TEST

/* Nobody is given anything before the last has come; then everybody has its rows. */
START_TEST(test_all_begin_together) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_job *jobs[WORLD];

        for (uint32_t rank = 0; rank < WORLD - 1; rank++)
                jobs[rank] = come(h, rank);
        expect_nothing(jobs[0]);
        expect_nothing(jobs[2]);
        jobs[WORLD - 1] = come(h, WORLD - 1);
        for (uint32_t step = 0; step < 5; step++)
                for (uint32_t rank = 0; rank < WORLD; rank++)
                        expect_row(jobs[rank], (step * WORLD + rank) * BATCH);

        /* One that leaves stops nobody, and does not wait when it comes again. */
        pinfeed_close(jobs[1]);
        for (uint32_t step = 5; step < 8; step++)
                expect_row(jobs[0], step * WORLD * BATCH);
        jobs[1] = come(h, 1);
        expect_row(jobs[1], BATCH);
        for (uint32_t rank = 0; rank < WORLD; rank++)
                pinfeed_close(jobs[rank]);
        finish(h);
}
END_TEST

/* Its slots are kept for a rank that has not come: a stranger is refused, the rank is not. */
START_TEST(test_let_in_as_a_whole) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach stranger = reader_attach(h, "p", 2), large = attach_rank(h, 0);
        struct pinfeed_job *jobs[WORLD];
        char text[1200];

        large.world_size = WORLD + 1;
        reader_expect_refusal(&large, -ENOSPC, text, sizeof(text));
        expect_text(text, "raise slots or ring to at least 10");
        expect_text(text, "a group is let in as a whole, this one with ranks 1, 2, 3, 4 of run");

        jobs[0] = come(h, 0);
        reader_expect_refusal(&stranger, -ENOSPC, text, sizeof(text));
        for (uint32_t rank = 1; rank < WORLD; rank++)
                jobs[rank] = come(h, rank);
        for (uint32_t rank = 0; rank < WORLD; rank++)
                expect_row(jobs[rank], rank * BATCH);
        for (uint32_t rank = 0; rank < WORLD; rank++)
                pinfeed_close(jobs[rank]);

        /* One rank that has given up waiting leaves its promises behind for nobody. */
        jobs[0] = come(h, 0);
        pinfeed_close(jobs[0]);
        ck_assert_int_eq(pinfeed_open(&jobs[0], &stranger), 0);
        expect_row(jobs[0], 0);
        pinfeed_close(jobs[0]);
        finish(h);
}
END_TEST

/* Reads on until it is closed to it. */
static void *read_on(void *argument) {
        struct pinfeed_batch *batch;
        struct reader *reader = argument;

        while (!atomic_load(&over))
                if (pinfeed_next_timeout(reader->job, &batch, 50) == 1)
                        pinfeed_batch_release(batch);
        return NULL;
}

/* A job holds all of the ring: the ranks wait for it, together, and the minimums are not counted twice. */
START_TEST(test_ranks_wait_for_room) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach attach = reader_attach(h, "p", 6), rank = attach_rank(h, 0);
        struct pinfeed_job *jobs[2];
        struct pinfeed_batch *held[6];
        struct reader hoarder;
        pthread_t thread;

        reader_open_with(&hoarder, &attach);
        for (int i = 0; i < 6; i++)
                held[i] = reader_next(&hoarder);
        rank.world_size = 3;
        rank.timeout_ms = NOT_YET_MS;
        ck_assert_int_eq(pinfeed_open(&jobs[0], &rank), -ETIMEDOUT);
        pinfeed_close(jobs[0]);
        for (int i = 0; i < 6; i++)
                pinfeed_batch_release(held[i]);
        atomic_store(&over, false);
        ck_assert_int_eq(pthread_create(&thread, NULL, read_on, &hoarder), 0);
        rank.timeout_ms = SOON_MS;
        rank.world_size = 2;
        for (rank.rank = 0; rank.rank < 2; rank.rank++)
                ck_assert_int_eq(pinfeed_open(&jobs[rank.rank], &rank), 0);
        for (uint32_t i = 0; i < 2; i++) {
                expect_row(jobs[i], i * BATCH);
                pinfeed_close(jobs[i]);
        }
        atomic_store(&over, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        reader_close(&hoarder);
        finish(h);
}
END_TEST

START_TEST(test_what_does_not_fit_is_refused) {
        struct harness *h = start(12);
        struct pinfeed_attach attach = attach_rank(h, 0);
        struct pinfeed_job *first = come(h, 0), *twin;
        char text[1200];

        reader_expect_refusal(&attach, -EEXIST, text, sizeof(text));
        expect_text(text, "rank 0 of group run is there already (job 1,");
        attach.duplicate_rank = true;
        ck_assert_int_eq(pinfeed_open(&twin, &attach), 0);

        attach = attach_rank(h, 1);
        attach.world_size = 3;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        expect_text(text, "world_size is 3, but 4 for rank 0 of the same group run");
        attach = attach_rank(h, 1);
        attach.batch_size = 8;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        expect_text(text, "batch_size is 8, but 16");
        attach = attach_rank(h, 1);
        attach.seed = 5;
        attach.seed_given = true;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        expect_text(text, "seed is 5, but 0");
        attach.group = "other";
        attach.group_size = 9;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        expect_text(text, "group_size is 9, more than the 4 ranks");
        attach.group = NULL;
        attach.group_size = 2;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        expect_text(text, "there is no group");
        pinfeed_close(first);
        pinfeed_close(twin);
        finish(h);
}
END_TEST

/* Two ranks of four come to this machine, one of them twice: they read the same rows. */
START_TEST(test_part_of_a_run) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach attach = attach_rank(h, 2);
        struct pinfeed_job *jobs[3];
        json_t *status;

        attach.group_size = 2;
        ck_assert_int_eq(pinfeed_open(&jobs[0], &attach), 0);
        attach.duplicate_rank = true;
        ck_assert_int_eq(pinfeed_open(&jobs[1], &attach), 0);
        expect_nothing(jobs[0]);
        status = harness_status(h);
        expect_text(json_string_value(harness_member(status, "jobs/0/note")),
                    "waits for 1 more rank of group");
        json_decref(status);
        attach.rank = 3;
        ck_assert_int_eq(pinfeed_open(&jobs[2], &attach), 0);
        expect_row(jobs[0], 2 * BATCH);
        expect_row(jobs[1], 2 * BATCH);
        expect_row(jobs[2], 3 * BATCH);
        for (int i = 0; i < 3; i++)
                pinfeed_close(jobs[i]);
        finish(h);
}
END_TEST

/* A run that has begun goes on with another daemon, also when one of its ranks has ended meanwhile. */
START_TEST(test_another_daemon) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach attach = attach_rank(h, 0);
        struct pinfeed_job *jobs[2];

        attach.world_size = 2;
        attach.reconnect_s = 60;
        for (attach.rank = 0; attach.rank < 2; attach.rank++)
                ck_assert_int_eq(pinfeed_open(&jobs[attach.rank], &attach), 0);
        for (uint32_t i = 0; i < 2; i++)
                expect_row(jobs[i], i * BATCH);
        harness_stop(h, SIGKILL, -SIGKILL);
        pinfeed_close(jobs[1]);
        harness_start(h);
        for (uint32_t step = 1; step < 5; step++)
                expect_row(jobs[0], 2 * step * BATCH);
        pinfeed_close(jobs[0]);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: groups");
        TCase *tcase = tcase_create("groups");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_D5_a_rank_is_missing);
        tcase_add_test(tcase, test_all_begin_together);
        tcase_add_test(tcase, test_let_in_as_a_whole);
        tcase_add_test(tcase, test_ranks_wait_for_room);
        tcase_add_test(tcase, test_what_does_not_fit_is_refused);
        tcase_add_test(tcase, test_part_of_a_run);
        tcase_add_test(tcase, test_another_daemon);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
