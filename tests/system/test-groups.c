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
        SAMPLES = 960, /* whole steps of three, four and five ranks */
        WORLD = 4,
        UNEVEN = 7,
        RESUMED = 3, /* ranks, two of which need a slot more from the second slot on */
        NOT_YET_MS = 300,
        SOON_MS = 10000,
};

static atomic_bool over;

/* One that attaches in a thread of its own. */
struct newcomer {
        struct pinfeed_attach attach;
        struct pinfeed_job *job;
        int r;
};

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
        harness_expect_words(json_string_value(harness_member(status, "jobs/0/note")),
                             "waits for rank 2 of group run");
        harness_expect_words(json_string_value(harness_member(status, "pipelines/p/held_back_by/text")),
                             "a group that is not complete: 3 jobs wait for rank 2 of group run, at most");
        json_decref(status);
        for (uint32_t i = 0; i < WORLD - 1; i++) {
                ck_assert_int_eq(pinfeed_next(jobs[i], &batch), -ETIMEDOUT);
                ck_assert_int_eq(pinfeed_job_failed(jobs[i]), -ETIMEDOUT);
                harness_expect_words(pinfeed_error(jobs[i]),
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
        harness_expect_words(text, "raise slots or ring to at least 10");
        harness_expect_words(text, "a group is let in as a whole, this one with ranks 1, 2, 3, 4 of run");

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

/* Seven ranks end with a short tail, in which not all need as many slots. The ring that the first one is told
 * of is large enough for each. */
START_TEST(test_ranks_that_need_more) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach attach = attach_rank(h, 0);
        struct pinfeed_job *jobs[UNEVEN];
        char text[1200];
        int slots = 0;

        attach.world_size = UNEVEN;
        reader_expect_refusal(&attach, -ENOSPC, text, sizeof(text));
        harness_expect_words(text, "at least ");
        ck_assert_int_eq(sscanf(strstr(text, "at least "), "at least %d slots", &slots), 1);
        ck_assert_int_gt(slots, 2 * UNEVEN);
        finish(h);

        h = start(slots);
        for (uint32_t rank = 0; rank < UNEVEN; rank++) {
                int r;

                attach = attach_rank(h, rank);
                attach.world_size = UNEVEN;
                r = pinfeed_open(&jobs[rank], &attach);
                ck_assert_msg(r == 0, "rank %u: %s", rank, pinfeed_error(jobs[rank]));
        }
        for (uint32_t rank = 0; rank < UNEVEN; rank++)
                expect_row(jobs[rank], rank * BATCH);
        for (uint32_t rank = 0; rank < UNEVEN; rank++)
                pinfeed_close(jobs[rank]);
        finish(h);
}
END_TEST

/* Slots that the ranks need from this row on, as each of those that are there is told when it wants to go
 * there; it stays where it was. */
static int expect_no_room(struct pinfeed_job *const *jobs, uint32_t n_jobs, uint64_t row) {
        int slots = 0;

        for (uint32_t rank = 0; rank < n_jobs; rank++) {
                const char *need;
                int its = 0;

                ck_assert_int_eq(pinfeed_job_seek(jobs[rank], 0, row), 0);
                ck_assert_int_eq(pinfeed_job_sought(jobs[rank], SOON_MS), -ENOSPC);
                harness_expect_words(pinfeed_error(jobs[rank]), "the ranks of group run need ");
                need = strstr(pinfeed_error(jobs[rank]), "raise slots or ring to at least ");
                ck_assert_ptr_nonnull(need);
                ck_assert_int_eq(sscanf(need, "raise slots or ring to at least %d slots", &its), 1);
                ck_assert(slots == 0 || slots == its);
                slots = its;
        }
        return slots;
}

/* From row 16 on three ranks end with an uneven tail, and need more slots than from row 0, though not each of
 * them. All are told so or none, also before all have come, and with so many slots they can go there. */
START_TEST(test_sent_as_a_whole) {
        struct harness *h = start(2 * RESUMED);
        struct pinfeed_attach attach = attach_rank(h, 0);
        struct pinfeed_job *jobs[RESUMED];
        int slots = 0;

        attach.world_size = RESUMED;
        for (uint32_t n = 0; n < RESUMED; n++) {
                attach.rank = n;
                ck_assert_int_eq(pinfeed_open(&jobs[n], &attach), 0);
                slots = expect_no_room(jobs, n + 1, BATCH);
        }
        for (uint32_t rank = 0; rank < RESUMED; rank++)
                expect_row(jobs[rank], rank * BATCH);
        for (uint32_t rank = 0; rank < RESUMED; rank++)
                pinfeed_close(jobs[rank]);
        finish(h);

        ck_assert_int_gt(slots, 2 * RESUMED);
        h = start(slots);
        attach = attach_rank(h, 0);
        attach.world_size = RESUMED;
        for (attach.rank = 0; attach.rank < RESUMED; attach.rank++) {
                ck_assert_int_eq(pinfeed_open(&jobs[attach.rank], &attach), 0);
                ck_assert_int_eq(pinfeed_job_seek(jobs[attach.rank], 0, BATCH), 0);
                ck_assert_int_eq(pinfeed_job_sought(jobs[attach.rank], SOON_MS), 0);
        }
        for (uint32_t rank = 0; rank < RESUMED; rank++)
                expect_row(jobs[rank], (1 + rank) * BATCH);
        for (uint32_t rank = 0; rank < RESUMED; rank++)
                pinfeed_close(jobs[rank]);
        finish(h);
}
END_TEST

/* Where the first rank goes before the others have come, there is room for them. */
START_TEST(test_promise_where_the_first_goes) {
        struct harness *h = start(2 * RESUMED + 2);
        struct pinfeed_attach attach = attach_rank(h, 0), stranger = reader_attach(h, "p", 2);
        struct pinfeed_job *jobs[RESUMED];
        char text[1200];

        attach.world_size = RESUMED;
        for (attach.rank = 0; attach.rank < RESUMED; attach.rank++) {
                ck_assert_int_eq(pinfeed_open(&jobs[attach.rank], &attach), 0);
                ck_assert_int_eq(pinfeed_job_seek(jobs[attach.rank], 0, BATCH), 0);
                ck_assert_int_eq(pinfeed_job_sought(jobs[attach.rank], SOON_MS), 0);
                reader_expect_refusal(&stranger, -ENOSPC, text, sizeof(text));
        }
        for (uint32_t rank = 0; rank < RESUMED; rank++)
                pinfeed_close(jobs[rank]);
        finish(h);
}
END_TEST

/* Nor does one that is in already and goes to where it needs more get what was promised. */
START_TEST(test_promise_holds_against_a_seek) {
        struct harness *h = start(2 * WORLD + 2);
        struct pinfeed_attach stranger = reader_attach(h, "p", 2);
        struct pinfeed_job *jobs[WORLD], *other;

        ck_assert_int_eq(pinfeed_open(&other, &stranger), 0);
        jobs[0] = come(h, 0);
        ck_assert_int_eq(pinfeed_job_seek(other, 0, 1), 0);
        ck_assert_int_eq(pinfeed_job_sought(other, SOON_MS), -ENOSPC);
        for (uint32_t rank = 1; rank < WORLD; rank++)
                jobs[rank] = come(h, rank);
        expect_row(other, 0);
        pinfeed_close(other);
        for (uint32_t rank = 0; rank < WORLD; rank++)
                pinfeed_close(jobs[rank]);
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

static void *come_now(void *argument) {
        struct newcomer *newcomer = argument;

        newcomer->r = pinfeed_open(&newcomer->job, &newcomer->attach);
        return NULL;
}

static bool all_have_asked(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool all = json_array_size(harness_member(status, "jobs")) == *(size_t *)context;

        json_decref(status);
        return all;
}

/* A job holds what the ranks need, all of which come and wait for it. Their minimums fit exactly, each
 * counted once: as one that waits, or as one that is missing. */
START_TEST(test_ranks_wait_for_room) {
        struct harness *h = start(2 * WORLD);
        struct pinfeed_attach attach = reader_attach(h, "p", 6);
        struct newcomer ranks[WORLD - 1];
        pthread_t threads[WORLD - 1], thread;
        struct pinfeed_batch *held[6];
        struct reader hoarder;
        size_t jobs = WORLD;

        reader_open_with(&hoarder, &attach);
        for (int i = 0; i < 6; i++)
                held[i] = reader_next(&hoarder);
        for (uint32_t i = 0; i < WORLD - 1; i++) {
                ranks[i] = (struct newcomer){.attach = attach_rank(h, i)};
                ranks[i].attach.world_size = WORLD - 1;
                ck_assert_int_eq(pthread_create(&threads[i], NULL, come_now, &ranks[i]), 0);
        }
        harness_wait(h, "three ranks that wait", all_have_asked, &jobs, SOON_MS);
        for (int i = 0; i < 6; i++)
                pinfeed_batch_release(held[i]);
        atomic_store(&over, false);
        ck_assert_int_eq(pthread_create(&thread, NULL, read_on, &hoarder), 0);
        for (uint32_t i = 0; i < WORLD - 1; i++) {
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
                ck_assert_msg(ranks[i].r == 0, "rank %u: %s", i, pinfeed_error(ranks[i].job));
        }
        for (uint32_t i = 0; i < WORLD - 1; i++)
                expect_row(ranks[i].job, i * BATCH);
        for (uint32_t i = 0; i < WORLD - 1; i++)
                pinfeed_close(ranks[i].job);
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
        harness_expect_words(text, "rank 0 of group run is there already (job 1,");
        attach.duplicate_rank = true;
        ck_assert_int_eq(pinfeed_open(&twin, &attach), 0);

        attach = attach_rank(h, 1);
        attach.world_size = 3;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "world_size is 3, but 4 for rank 0 of the same group run");
        attach = attach_rank(h, 1);
        attach.batch_size = 8;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "batch_size is 8, but 16");
        attach = attach_rank(h, 1);
        attach.seed = 5;
        attach.seed_given = true;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "seed is 5, but 0");
        attach.group = "other";
        attach.group_size = 9;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "group_size is 9, more than the 4 ranks");
        attach.group = NULL;
        attach.group_size = 2;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "there is no group");
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
        harness_expect_words(json_string_value(harness_member(status, "jobs/0/note")),
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
        tcase_add_test(tcase, test_ranks_that_need_more);
        tcase_add_test(tcase, test_sent_as_a_whole);
        tcase_add_test(tcase, test_promise_where_the_first_goes);
        tcase_add_test(tcase, test_promise_holds_against_a_seek);
        tcase_add_test(tcase, test_ranks_wait_for_room);
        tcase_add_test(tcase, test_what_does_not_fit_is_refused);
        tcase_add_test(tcase, test_part_of_a_run);
        tcase_add_test(tcase, test_another_daemon);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
