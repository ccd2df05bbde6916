/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case B2 and the limits of docs/man/pinfeedd.8.scd: more jobs than fit, jobs that come and go without end,
 * that say nothing, that never read. Who is refused is told the number; the others notice nothing. */

#include "tests/support/run.h"
#include "tests/system/jobs.h"
#include "tests/system/raw.h"

#include <errno.h>

/* ---- B2 ---- */

enum {
        FIT = 3,
        RESERVE = 8, /* descriptors that the daemon keeps back from jobs */
};

/* The number of the daemon's next descriptor but `skip`: the lowest that is free. */
static size_t next_descriptor(struct harness *h, int skip) {
        char path[64], target[8];

        for (size_t i = 0;; i++) {
                snprintf(path, sizeof(path), "/proc/%d/fd/%zu", (int)harness_daemon_pid(h), i);
                if (readlink(path, target, sizeof(target)) < 0 && skip-- == 0)
                        return i;
        }
}

/* With how many descriptors as many jobs fit as shall: the next one's socket is too much, or, as that may
 * fit, its pidfd. */
static size_t find_limit(bool socket_fits) {
        struct harness *h = jobs_start();
        struct reader readers[FIT];
        size_t n;

        for (size_t i = 0; i < FIT; i++)
                reader_open(&readers[i], h, "ramp", 2);
        jobs_wait(h, FIT, SOON_MS);
        jobs_sleep(SETTLE_MS); /* for the connection that asked for the status */
        n = next_descriptor(h, socket_fits ? 1 : 0);
        for (size_t i = 0; i < FIT; i++)
                reader_close(&readers[i]);
        jobs_finish(h);
        return n + RESERVE;
}

static void expect_full(struct harness *h, size_t limit) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        char text[TEXT], number[32];

        reader_expect_refusal(&attach, -EMFILE, text, sizeof(text));
        snprintf(number, sizeof(number), "its limit is %zu", limit);
        harness_expect_words(text, number);
        harness_expect_words(text, "ulimit -n");
}

START_TEST(test_B2_more_jobs_than_fit) {
        size_t limit = find_limit(_i > 0);
        struct harness *h = harness_new();
        struct reader readers[FIT], another;

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: %d}\n"
                             "    batch_size: %d\n"
                             "    slots: %d\n"
                             "    reserve: start\n"
                             "    workers: 2\n",
                             SAMPLES, BYTES, BATCH, SLOTS);
        harness_limit_descriptors(h, limit);
        harness_start(h);
        for (size_t i = 0; i < FIT; i++)
                reader_open(&readers[i], h, "ramp", 2);
        for (size_t i = 0; i < 2; i++)
                expect_full(h, limit);
        for (size_t i = 0; i < FIT; i++)
                reader_read(&readers[i], SAMPLES / BATCH);
        reader_close(&readers[0]);
        jobs_wait(h, FIT - 1, BACK_MS);
        reader_open(&another, h, "ramp", 2);
        expect_full(h, limit);
        reader_read(&another, SAMPLES / BATCH);
        reader_close(&another);
        for (size_t i = 1; i < FIT; i++) {
                reader_read(&readers[i], SAMPLES / BATCH);
                reader_close(&readers[i]);
        }
        jobs_finish(h);
}
END_TEST

/* ---- jobs that come and go ---- */

/* Attaches and vanishes: without a word, with its words unread, or when it is attached. */
static void come_and_vanish(struct harness *h, int kind) {
        struct message message;
        int fd, ring = -1;

        if (kind == 2) {
                fd = raw_attached(h, "ramp", &message, &ring);
                close(ring);
        } else {
                fd = raw_connect(h);
        }
        if (kind == 1) {
                message = raw_hello();
                message_send(fd, &message, NULL, 0);
                message = raw_attach("ramp");
                message_send(fd, &message, NULL, 0);
        }
        close(fd);
}

START_TEST(test_attach_and_vanish) {
        int rounds = harness_quick() ? 600 : 2000;
        struct harness *h = jobs_start();
        struct child reader;
        uint64_t begin;
        size_t descriptors;

        jobs_start_readers(h, &reader, 1);
        descriptors = harness_descriptors(harness_daemon_pid(h));
        begin = clock_ns();
        for (int i = 0; i < rounds; i++)
                come_and_vanish(h, i % 3);
        printf("# %d connections in %llu ms\n", rounds,
               (unsigned long long)((clock_ns() - begin) / NS_PER_MS));
        jobs_wait(h, 1, BACK_MS);
        jobs_expect_no_stall(&reader, "attach and vanish");
        begin = clock_ns();
        come_and_vanish(h, 2); /* and who comes now does not pay for it */
        ck_assert_uint_lt((clock_ns() - begin) / NS_PER_MS, (uint64_t)BACK_MS * (uint64_t)harness_slowdown());
        jobs_sleep(SETTLE_MS);
        ck_assert_uint_le(harness_descriptors(harness_daemon_pid(h)), descriptors);
        jobs_end_child(&reader);
        jobs_finish(h);
}
END_TEST

enum {
        CONNECTIONS_MAX = 1024, /* of a user; docs/man/pinfeedd.8.scd */
        ATTACH_MS = 10000,      /* the same */
        LIMITED = 4,
};

/* As many as a user may have: one more is refused, the job among them reads on, and all that do not attach
 * are turned out when their time is over, but not before. */
START_TEST(test_connections_of_a_user) {
        static int fds[CONNECTIONS_MAX];
        struct harness *h = jobs_start();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        uint64_t begin = clock_ns();
        char text[TEXT];
        struct child reader;

        jobs_start_readers(h, &reader, 1);
        for (size_t i = 0; i < CONNECTIONS_MAX - 1; i++)
                fds[i] = raw_connect(h);
        reader_expect_refusal(&attach, -EMFILE, text, sizeof(text));
        harness_expect_words(text, "1024 connections");
        jobs_expect_no_stall(&reader, "1,024 connections");
        ck_assert(!raw_readable(fds[0], 0));
        ck_assert(raw_readable(fds[0], 2 * ATTACH_MS));
        ck_assert_int_eq(raw_expect_refused(fds[0], text, sizeof(text)), ETIMEDOUT);
        ck_assert_uint_ge((clock_ns() - begin) / NS_PER_MS, ATTACH_MS);
        harness_expect_words(text, "10 s");
        for (size_t i = 1; i < CONNECTIONS_MAX - 1; i++)
                close(fds[i]);
        jobs_sleep(SETTLE_MS);
        come_and_vanish(h, 2);
        jobs_wait(h, 1, BACK_MS);
        jobs_end_child(&reader);
        jobs_finish(h);
}
END_TEST

/* ---- a job that never reads ---- */

START_TEST(test_job_that_never_reads) {
        struct harness *h = jobs_start();
        struct message message;
        struct child reader;
        int fd, ring = -1;

        jobs_start_readers(h, &reader, 1);
        fd = raw_attached(h, "ramp", &message, &ring); /* and not a word more */
        jobs_sleep(harness_quick() ? 1000 : 3000);
        jobs_wait(h, 2, BACK_MS);
        ck_assert_double_le(harness_status_number(h, "pipelines/ramp/slots_leased"), 2 + 4);
        jobs_expect_no_stall(&reader, "a job that never reads");
        close(fd);
        close(ring);
        jobs_wait(h, 1, BACK_MS);
        jobs_end_child(&reader);
        jobs_finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("B-limits");
        TCase *tcase = tcase_create("B");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_loop_test(tcase, test_B2_more_jobs_than_fit, 0, 2);
        tcase_add_test(tcase, test_attach_and_vanish);
        tcase_add_test(tcase, test_connections_of_a_user);
        tcase_add_test(tcase, test_job_that_never_reads);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
