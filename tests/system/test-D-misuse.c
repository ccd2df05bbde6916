/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed as its header allows and forbids it: batches released twice or never, jobs after a fork, in
 * threads, waiting, and in a loop of the caller's.
 *
 * Misuse must get an error and do no damage, so each test reads on afterwards: every row that follows is
 * checked byte by byte. What talks past libpinfeed is in test-M-wire.c. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SAMPLES = 1000,
        BATCH = 8,
        SOON_MS = 10000,
        TEXT = 1200,
};

static struct harness *start(void) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 1024}\n"
                             "    batch_size: %d\n"
                             "    slots: 32\n"
                             "    workers: 2\n",
                             SAMPLES, BATCH);
        harness_start(h);
        return h;
}

/* A daemon whose workers never finish the first sample. */
static void write_stuck_config(struct harness *h) {
        harness_write_config(h, "pipelines:\n"
                                "  stuck:\n"
                                "    source: {type: synthetic, mode: slow, samples: 100, slow_us: 60000000}\n"
                                "    batch_size: 8\n"
                                "    workers: 2\n");
}

static void finish(struct harness *h) {
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static struct reader open_held(struct harness *h, uint32_t max_held) {
        struct reader reader;

        reader_open(&reader, h, "ramp", max_held);
        return reader;
}

/* ---- misuse ---- */

START_TEST(test_release_what_is_not_held) {
        struct harness *h = start();
        struct reader a = open_held(h, 3), b = open_held(h, 3);
        struct pinfeed_batch *first = reader_next(&a), *second = reader_next(&a), *others = reader_next(&b);

        ck_assert_int_eq(pinfeed_batch_release(first), 0);
        ck_assert_int_eq(pinfeed_batch_release(first), -EALREADY);
        ck_assert_uint_eq(pinfeed_batch_rows(first), 0);
        ck_assert_ptr_null(pinfeed_batch_data(first, 0, 0, NULL));
        reader_close(&b);
        ck_assert_int_eq(pinfeed_batch_release(others), -EINVAL); /* of a closed job */
        ck_assert_uint_eq(pinfeed_batch_rows(others), 0);
        ck_assert_int_eq(pinfeed_batch_release(NULL), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_release(second), 0);
        reader_read(&a, 40); /* and the job is as good as before */
        reader_close(&a);
        ck_assert_int_eq(pinfeed_batch_release(second), -EINVAL);
        finish(h);
}
END_TEST

START_TEST(test_more_than_may_be_held) {
        struct harness *h = start();
        struct reader reader = open_held(h, 3);
        struct pinfeed_batch *held[3], *batch;

        for (size_t i = 0; i < 3; i++)
                held[i] = reader_next(&reader);
        ck_assert_int_eq(pinfeed_next(reader.job, &batch), -EBUSY);
        ck_assert_ptr_null(batch);
        harness_expect_words(pinfeed_error(reader.job), "3 batches");
        harness_expect_words(pinfeed_error(reader.job), "max_held_batches");
        ck_assert_int_eq(pinfeed_next_timeout(reader.job, &batch, 0), -EBUSY);
        for (size_t i = 0; i < 3; i++) {
                reader_check(&reader, held[i], 0, i * BATCH);
                ck_assert_int_eq(pinfeed_batch_release(held[i]), 0);
        }
        reader_read(&reader, 40);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* What a fork's child may do: nothing, and without harm to its parent's job. */
static int misuse_in_child(struct harness *h, struct pinfeed_job *job, struct pinfeed_batch *held) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct pinfeed_batch *batch;
        struct pinfeed_job *own;

        if (pinfeed_next(job, &batch) != -ECHILD || !strstr(pinfeed_error(job), "fork"))
                return 1;
        if (pinfeed_next_timeout(job, &batch, 0) != -ECHILD || pinfeed_dispatch(job) != -ECHILD ||
            pinfeed_fd(job) != -ECHILD)
                return 2;
        if (pinfeed_batch_release(held) != -ECHILD || pinfeed_batch_rows(held) != 0)
                return 3;
        pinfeed_close(job);
        if (pinfeed_open(&own, &attach) < 0 || pinfeed_next(own, &batch) != 1 ||
            pinfeed_batch_row(batch) != 0 || pinfeed_batch_release(batch) != 0)
                return 4;
        pinfeed_close(own);
        return 0;
}

START_TEST(test_fork_with_a_job) {
        struct harness *h = start();
        struct reader reader = open_held(h, 2);
        struct pinfeed_batch *held = reader_next(&reader);
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(misuse_in_child(h, reader.job, held));
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        reader_check(&reader, held, 0, 0);
        ck_assert_int_eq(pinfeed_batch_release(held), 0);
        reader_read(&reader, 40);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* A child that lives on must not keep its parent's job alive. */
START_TEST(test_fork_outlives_the_job) {
        struct harness *h = start();
        struct reader reader = open_held(h, 2);
        int status;
        pid_t pid;

        reader_next(&reader);
        pid = fork();
        if (pid == 0) {
                pause();
                _exit(0);
        }
        reader_close(&reader);
        harness_wait(h, "the end of the job", harness_no_job_is_there, NULL, SOON_MS);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/slots_leased"), 0);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        finish(h);
}
END_TEST

/* ---- threads ---- */

static void *read_three_epochs(void *context) {
        reader_read_epochs(context, 3);
        return NULL;
}

START_TEST(test_two_jobs_in_two_threads) {
        struct harness *h = start();
        struct reader readers[2] = {open_held(h, 2), open_held(h, 3)};
        pthread_t threads[2];

        for (size_t i = 0; i < 2; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, read_three_epochs, &readers[i]), 0);
        for (size_t i = 0; i < 2; i++) {
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
                reader_close(&readers[i]);
        }
        finish(h);
}
END_TEST

struct hand_over {
        struct pinfeed_batch *_Atomic batch;
        atomic_bool finished;
        int error;
};

static void *release_them(void *context) {
        struct hand_over *hand_over = context;

        while (!atomic_load(&hand_over->finished)) {
                struct pinfeed_batch *batch = atomic_exchange(&hand_over->batch, NULL);

                if (batch && pinfeed_batch_release(batch) < 0)
                        hand_over->error = 1;
        }
        return NULL;
}

START_TEST(test_release_from_another_thread) {
        struct harness *h = start();
        struct reader reader = open_held(h, 4);
        struct hand_over hand_over = {};
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, release_them, &hand_over), 0);
        for (int i = 0; i < 500; i++) {
                struct pinfeed_batch *batch = reader_next(&reader);

                while (atomic_load(&hand_over.batch))
                        sched_yield();
                atomic_store(&hand_over.batch, batch);
        }
        while (atomic_load(&hand_over.batch))
                sched_yield();
        atomic_store(&hand_over.finished, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_int_eq(hand_over.error, 0);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- waiting ---- */

START_TEST(test_nothing_there_yet) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "stuck", 2);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        uint64_t begin;

        write_stuck_config(h);
        harness_start(h);
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        ck_assert_ptr_null(batch);
        ck_assert_str_eq(pinfeed_error(job), "");
        begin = clock_ns();
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 50), -ETIMEDOUT);
        ck_assert_uint_ge(clock_ns() - begin, 50 * NS_PER_MS);
        ck_assert_ptr_null(batch);
        harness_expect_words(pinfeed_error(job), "no batch came in 50 ms");
        harness_expect_words(pinfeed_error(job), "pinfeedctl status");
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 10), -ETIMEDOUT); /* calling again is fine */
        pinfeed_close(job);
        finish(h);
}
END_TEST

/* The words for a job whose own batches are what it waits for. */
START_TEST(test_waiting_for_what_one_holds) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 4);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        int r;

        harness_write_config(h, "pipelines:\n"
                                "  ramp:\n"
                                "    source: {type: synthetic, mode: ramp, samples: 100}\n"
                                "    batch_size: 8\n"
                                "    slots: 3\n");
        harness_start(h);
        attach.timeout_ms = 200;
        r = pinfeed_open(&job, &attach);
        ck_assert_msg(r == 0, "%s", pinfeed_error(job));
        while ((r = pinfeed_next(job, &batch)) > 0)
                continue;
        ck_assert(r == -ETIMEDOUT || r == -EBUSY);
        harness_expect_words(pinfeed_error(job), "you hold ");
        harness_expect_words(pinfeed_error(job), "release ");
        pinfeed_close(job);
        finish(h);
}
END_TEST

START_TEST(test_loop_of_ones_own) {
        struct harness *h = start();
        struct reader reader = open_held(h, 2);
        struct pollfd poll_fd = {.fd = pinfeed_fd(reader.job), .events = POLLIN};
        struct pinfeed_batch *batch;
        uint32_t rows = 0, ends = 0;

        while (ends < 3) {
                int r = pinfeed_next_timeout(reader.job, &batch, 0);

                if (r == -EAGAIN) {
                        ck_assert_int_eq(poll(&poll_fd, 1, SOON_MS), 1);
                        ck_assert_int_eq(pinfeed_dispatch(reader.job), 0);
                        continue;
                }
                ck_assert_msg(r >= 0, "%s", pinfeed_error(reader.job));
                ends += r == 0;
                if (r == 0)
                        continue;
                reader_check(&reader, batch, ends, pinfeed_batch_row(batch));
                rows += pinfeed_batch_rows(batch);
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        ck_assert_uint_eq(rows, 3 * SAMPLES);
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_attach_that_cannot_be) {
        struct harness *h = start();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2), wrong;
        char text[TEXT];

        wrong = attach;
        wrong.size = 0;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "size");
        wrong = attach;
        wrong.pipeline = NULL;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "pipeline");
        wrong = attach;
        wrong.rank = 2;
        wrong.world_size = 2;
        reader_expect_refusal(&wrong, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "rank");
        wrong = attach;
        wrong.runtime_dir = harness_directory(h); /* where no daemon is */
        reader_expect_refusal(&wrong, -ENOENT, text, sizeof(text));
        harness_expect_words(text, harness_directory(h));
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("D-misuse");
        TCase *tcase = tcase_create("D");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_release_what_is_not_held);
        tcase_add_test(tcase, test_more_than_may_be_held);
        tcase_add_test(tcase, test_fork_with_a_job);
        tcase_add_test(tcase, test_fork_outlives_the_job);
        tcase_add_test(tcase, test_two_jobs_in_two_threads);
        tcase_add_test(tcase, test_release_from_another_thread);
        tcase_add_test(tcase, test_nothing_there_yet);
        tcase_add_test(tcase, test_waiting_for_what_one_holds);
        tcase_add_test(tcase, test_loop_of_ones_own);
        tcase_add_test(tcase, test_attach_that_cannot_be);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
