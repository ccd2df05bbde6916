/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pipelines that nobody needs: ring, workers and index go, and come back with the next job. */

#include "tests/support/run.h"
#include "tests/system/readers.h"
#include "tests/system/rings.h"

/* Ring, workers and descriptors go; the next job finds the same bytes, and what was counted goes on. */
static void let_go(const char *top, const char *own) {
        struct harness *h = start(ONE_PIPELINE, top, own);
        size_t descriptors = harness_descriptors(harness_daemon_pid(h));
        double prepared = 0;
        char *first = NULL;
        pid_t pids[8];

        for (int round = 0; round < 3; round++) {
                struct ring_file ring;
                char *again = digest(h);

                ck_assert(!first || !strcmp(first, again));
                if (!first)
                        first = strdup(again);
                free(again);
                ck_assert_uint_eq(rings_of(harness_daemon_pid(h), &ring, 1), 1);
                ck_assert_double_ge(harness_status_number(h, "pipelines/p/rows_prepared"), prepared + 500);
                wait_idle(h);
                ck_assert_uint_eq(rings_of(harness_daemon_pid(h), &ring, 1), 0);
                ck_assert_uint_eq(harness_worker_pids(h, pids, 8), 0);
                harness_wait(h, "no ring in /dev/shm", rings_are_nameless, NULL, SOON_MS);
                ck_assert_uint_le(harness_descriptors(harness_daemon_pid(h)), descriptors + 1);
                ck_assert_double_ge(harness_status_number(h, "pipelines/p/rows_prepared"), prepared + 500);
                prepared = harness_status_number(h, "pipelines/p/rows_prepared");
                ck_assert_double_eq(harness_status_number(h, "pipelines/p/reserved_bytes"), 0);
                ck_assert_double_eq(harness_status_number(h, "pipelines/p/worker_deaths"), 0);
        }
        ck_assert(harness_log_contains(h, "pipeline p has had no job for 0.4 s: 3 workers and the ring of"));
        free(first);
        finish(h);
}

START_TEST(an_idle_pipeline_lets_go) {
        let_go("idle: 0.4\n", "");
}
END_TEST

START_TEST(an_idle_pipeline_lets_go_of_a_memfd) {
        let_go("", "    idle: 0.4\n    backing: memfd\n");
}
END_TEST

START_TEST(a_reserved_pipeline_stays) {
        struct harness *h = start(ONE_PIPELINE, "idle: 0.1\n", "    reserve: start\n");
        struct ring_file before = rings_only(h), after;

        free(digest(h));
        usleep(600 * 1000);
        after = rings_only(h);
        ck_assert_uint_eq(before.inode, after.inode);
        reader_wait_workers(h, 3);
        finish(h);
}
END_TEST

/* A job is there, and does nothing. */
START_TEST(a_pipeline_with_a_job_stays) {
        struct harness *h = start(ONE_PIPELINE, "idle: 0.1\n", "    seed: 4\n");
        struct ring_file before, after;
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;

        free(digest(h)); /* it has been without one, for a moment */
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_next(job, &batch), 1);
        before = rings_only(h);
        usleep(600 * 1000);
        after = rings_only(h);
        ck_assert_uint_eq(before.inode, after.inode);
        pinfeed_batch_release(batch);
        for (int i = 0; i < 20; i++) {
                ck_assert_int_eq(pinfeed_next(job, &batch), 1);
                pinfeed_batch_release(batch);
        }
        pinfeed_close(job);
        wait_idle(h);
        finish(h);
}
END_TEST

/* Jobs come at every moment of letting go. */
START_TEST(who_comes_while_it_lets_go_is_served) {
        struct harness *h = start("pipelines:\n"
                                  "  p:\n"
                                  "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 4096}\n"
                                  "    batch_size: 32\n"
                                  "    workers: 3\n"
                                  "    idle: 0\n");
        int rounds = harness_quick() ? 10 : 60;

        for (int round = 0; round < rounds; round++) {
                struct reader reader;

                reader_open(&reader, h, "p", 2);
                reader_read(&reader, 1 + (unsigned)round % 3);
                reader_close(&reader);
                usleep((useconds_t)(round * 137 % 6000));
        }
        wait_idle(h);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/worker_deaths"), 0);
        finish(h);
}
END_TEST

/* A job that is killed, or refused, leaves a pipeline without jobs as well. */
START_TEST(a_pipeline_that_was_started_in_vain_lets_go) {
        struct harness *h = start(ONE_PIPELINE, "idle: 0.2\n", "");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        char text[512];

        attach.start_row = 5000;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        wait_idle(h);
        finish(h);
}
END_TEST

static bool is_verified(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = harness_member(status, "pipelines/p/verifying") == NULL;

        ck_assert(is || !strcmp(json_string_value(harness_member(status, "pipelines/p/state")), "ready"));
        json_decref(status);
        return is;
}

static bool is_verifying(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = harness_member(status, "pipelines/p/verifying") != NULL;

        json_decref(status);
        return is;
}

/* It needs the pipeline as it was when it began, and is no job. */
START_TEST(a_pipeline_stays_while_it_is_verified) {
        struct harness *h = start("idle: 0.1\n"
                                  "pipelines:\n"
                                  "  p:\n"
                                  "    source: {type: synthetic, samples: 400, mode: ramp, delay_us: 5000}\n"
                                  "    batch_size: 32\n"
                                  "    workers: 2\n");
        pid_t pid = harness_spawn(h, NULL, (const char *[]){"pinfeedctl", "verify", "p", NULL});

        harness_wait(h, "a verification", is_verifying, NULL, SOON_MS);
        harness_wait(h, "the end of the verification", is_verified, NULL, SOON_MS);
        ck_assert_int_eq(harness_join(h, pid, SOON_MS), 0);
        wait_idle(h);
        finish(h);
}
END_TEST

/* ---- warm ---- */

static bool is_warm(struct harness *h, void *context) {
        return harness_status_number(h, "pipelines/p/slots_ready") >= 4 &&
               harness_status_number(h, "pipelines/p/workers_busy") == 0;
}

static double rows_prepared(struct harness *h) {
        return harness_status_number(h, "pipelines/p/rows_prepared");
}

/* Before the first job, and again after one that used the room: the first slots are there, no more, and a job
 * that begins there has them without any work. */
START_TEST(the_first_slots_are_kept_warm) {
        struct harness *h = start("idle: 0.1\n"
                                  "pipelines:\n"
                                  "  p:\n"
                                  "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 4096}\n"
                                  "    batch_size: 32\n"
                                  "    slots: 6\n"
                                  "    warm: 4\n");
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct reader reader;
        double before;

        harness_wait(h, "four warm slots", is_warm, NULL, SOON_MS);
        usleep(300 * 1000); /* longer than idle */
        ck_assert_double_eq(rows_prepared(h), 4 * 32);
        for (int round = 0; round < 2; round++) {
                before = rows_prepared(h);
                reader_open_with(&reader, &attach);
                reader_read(&reader, 4);
                reader_close(&reader);
                harness_wait(h, "no job", all_left, NULL, SOON_MS);
                harness_wait(h, "four warm slots", is_warm, NULL, SOON_MS);
                /* six slots of the ring, and one for each batch that was released, are ahead at most */
                ck_assert_double_le(rows_prepared(h) - before, (2 + 4 + 4) * 32);
        }
        reader_open_with(&reader, &attach);
        reader_read(&reader, 20); /* takes the whole ring */
        reader_close(&reader);
        harness_wait(h, "no job", all_left, NULL, SOON_MS);
        harness_wait(h, "four warm slots", is_warm, NULL, SOON_MS);
        finish(h);
}
END_TEST

static bool names_it(struct harness *h, void *context) {
        return harness_log_contains(h, "1.jpg");
}

/* A sample that ends its stream would do so for ever, with nobody there to be told. */
START_TEST(what_fails_is_not_made_warm_again_and_again) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX + 64];
        double prepared;

        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: imagefolder, path: %s/images}\n"
                             "    transforms: [{center_crop: {size: 4}}]\n"
                             "    batch_size: 2\n"
                             "    on_error: fail\n"
                             "    warm: 2\n",
                             harness_directory(h));
        snprintf(path, sizeof(path),
                 "mkdir -p %s/images/a && for i in 1 2 3 4; do echo no > %s/images/a/$i.jpg; done",
                 harness_directory(h), harness_directory(h));
        ck_assert_int_eq(system(path), 0);
        harness_start(h);
        harness_wait(h, "the bad sample", names_it, NULL, SOON_MS);
        usleep(300 * 1000);
        prepared = harness_status_number(h, "pipelines/p/rows_prepared");
        usleep(300 * 1000);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/rows_prepared"), prepared);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/workers_busy"), 0);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: pipelines at rest");
        TCase *tcase = tcase_create("rest");

        tcase_set_timeout(tcase, 90 * harness_slowdown());
        tcase_add_test(tcase, an_idle_pipeline_lets_go);
        tcase_add_test(tcase, an_idle_pipeline_lets_go_of_a_memfd);
        tcase_add_test(tcase, a_reserved_pipeline_stays);
        tcase_add_test(tcase, a_pipeline_with_a_job_stays);
        tcase_add_test(tcase, who_comes_while_it_lets_go_is_served);
        tcase_add_test(tcase, a_pipeline_that_was_started_in_vain_lets_go);
        tcase_add_test(tcase, a_pipeline_stays_while_it_is_verified);
        tcase_add_test(tcase, the_first_slots_are_kept_warm);
        tcase_add_test(tcase, what_fails_is_not_made_warm_again_and_again);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
