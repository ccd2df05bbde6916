/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon that is told to end lets its jobs finish, and nobody else in. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/private.h"
#include "tests/system/reader.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        SOON_MS = 10000,
        TO_SAVE = 5, /* batches, case E4 */
        STOP_MS = 2000,
};

static struct harness *start(double drain) {
        struct harness *h = harness_new();

        harness_write_config(
                h,
                "drain: %g\n"
                "pipelines:\n"
                "  ramp:\n"
                "    source: {type: synthetic, mode: ramp, samples: 100, bytes: 1000, delay_us: 1000}\n"
                "    batch_size: 8\n"
                "    slots: 4\n"
                "    workers: 1\n",
                drain);
        harness_start(h);
        return h;
}

static bool is_draining(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = json_is_true(json_object_get(status, "draining"));

        json_decref(status);
        return is;
}

static void send_signal(struct harness *h, int signal) {
        ck_assert_int_eq(kill(harness_daemon_pid(h), signal), 0);
}

static void terminate(struct harness *h) {
        send_signal(h, SIGTERM);
        harness_wait(h, "draining", is_draining, NULL, SOON_MS);
}

/* The daemon ends now, with this status. */
static void expect_end(struct harness *h, int status) {
        ck_assert_int_eq(harness_wait_exit(h, STOP_MS * harness_slowdown()), status);
}

/* Case E4. */
START_TEST(test_E4_five_more_batches) {
        char state[PINFEED_STATE_MAX], text[2048];
        struct harness *h = start(30);
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct reader reader;
        uint64_t since;

        reader_open_with(&reader, &attach);
        reader_read(&reader, 3);
        terminate(h);
        for (int i = 0; i < TO_SAVE; i++) {
                usleep(50000); /* a step: far more than the batches that lie ready could bridge */
                reader_read(&reader, 1);
        }
        ck_assert_int_gt(pinfeed_job_state(reader.job, state, sizeof(state)), 0);
        reader_expect_refusal(&attach, -ESHUTDOWN, text, sizeof(text));
        harness_expect_words(text, "is draining and lets no job in: it ends when 1 job has left, or in ");
        since = clock_ns();
        reader_close(&reader);
        expect_end(h, 0);
        ck_assert_uint_lt((clock_ns() - since) / NS_PER_MS, STOP_MS * (uint64_t)harness_slowdown());
        ck_assert(harness_log_contains(h, "SIGTERM: draining, 1 job may go on for 30 s at most"));
        ck_assert(harness_log_contains(h, "drained: stopping"));
        harness_start(h);
        attach.state = state;
        reader_open_with(&reader, &attach);
        reader.row = (3 + TO_SAVE) * 8;
        reader_read(&reader, 4);
        reader_close(&reader);
        send_signal(h, SIGTERM); /* without a job there is nothing to wait for */
        expect_end(h, 0);
        harness_free(h);
}
END_TEST

START_TEST(test_time_is_over) {
        struct harness *h = start(0.3);
        struct pinfeed_batch *batch;
        struct reader reader;
        int r = 1;

        reader_open(&reader, h, "ramp", 2);
        send_signal(h, SIGTERM);
        while ((r = pinfeed_next(reader.job, &batch)) >= 0)
                if (r > 0)
                        pinfeed_batch_release(batch);
        ck_assert_int_eq(r, -EPIPE);
        expect_end(h, 0);
        ck_assert(harness_log_contains(h, "the time to drain is over, with 1 job left"));
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* A second SIGTERM, and SIGINT first or second, end it at once. */
START_TEST(test_stopped_all_the_same) {
        static const struct {
                int first, second, status;
        } signals[] = {{SIGTERM, SIGTERM, 0}, {SIGTERM, SIGINT, 130}, {SIGINT, 0, 130}};
        struct harness *h = start(60);
        struct reader reader;

        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 2);
        send_signal(h, signals[_i].first);
        if (signals[_i].second) {
                harness_wait(h, "draining", is_draining, NULL, SOON_MS);
                reader_read(&reader, 20);
                send_signal(h, signals[_i].second);
        }
        expect_end(h, signals[_i].status);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

static bool somebody_waits(struct harness *h, void *context) {
        json_t *status = harness_status(h), *state = harness_member(status, "jobs/1/state");
        bool waits = state && !strcmp(json_string_value(state), "attaching");

        json_decref(status);
        return waits;
}

/* Whoever waits for slots to be let in is refused when the drain begins. */
START_TEST(test_who_waits_is_refused) {
        const char *const argv[] = {"pinfeedctl", "digest", "ramp", NULL};
        struct harness *h = start(60);
        struct reader reader;
        pid_t other;

        reader_open(&reader, h, "ramp", 3);
        for (int i = 0; i < 3; i++)
                reader_next(&reader);
        other = harness_spawn(h, NULL, argv);
        harness_wait(h, "somebody waits", somebody_waits, NULL, SOON_MS);
        terminate(h);
        ck_assert_int_eq(harness_join(h, other, SOON_MS), 1);
        reader_close(&reader);
        expect_end(h, 0);
        harness_free(h);
}
END_TEST

/* `pinfeedctl drain` returns when the daemon and its workers are gone. */
START_TEST(test_drain_command) {
        const char *const argv[] = {"pinfeedctl", "drain", NULL};
        struct harness *h = start(0);
        struct reader reader;
        pid_t pid;

        reader_open(&reader, h, "ramp", 2);
        pid = harness_spawn(h, NULL, argv);
        harness_wait(h, "draining", is_draining, NULL, SOON_MS);
        reader_read(&reader, 30);
        ck_assert(harness_alive(pid));
        reader_close(&reader);
        ck_assert_int_eq(harness_join(h, pid, SOON_MS), 0);
        ck_assert(!harness_alive(harness_daemon_pid(h)));
        expect_end(h, 0);
        harness_free(h);
}
END_TEST

/* With a time: it is told who had not left. Interrupting one that waits changes nothing. */
START_TEST(test_drain_command_with_a_time) {
        const char *const argv[] = {"pinfeedctl", "drain", "--timeout", "1", NULL},
                          *const waits[] = {"pinfeedctl", "drain", NULL},
                          *const bad[] = {"pinfeedctl", "drain", "--timeout", "0", NULL};
        struct harness *h = start(0);
        struct reader reader;
        char *text;
        pid_t pid;

        ck_assert_int_eq(harness_run(h, SOON_MS, NULL, bad), 2);
        reader_open(&reader, h, "ramp", 2);
        pid = harness_spawn(h, NULL, waits);
        harness_wait(h, "draining", is_draining, NULL, SOON_MS);
        ck_assert_int_eq(kill(pid, SIGINT), 0);
        ck_assert_int_eq(harness_join(h, pid, SOON_MS), 130);
        reader_read(&reader, 5);
        ck_assert(is_draining(h, NULL));
        ck_assert_int_eq(harness_run(h, SOON_MS, &text, argv), 0);
        harness_expect_words(text, "the time was over: 1 job had not left");
        free(text);
        expect_end(h, 0);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* A job that may start a daemon waits for the private one that drains to be gone, and starts the next. */
START_TEST(test_private_daemon_is_drained) {
        const char *const argv[] = {"pinfeedctl", "drain", "--timeout", "1", NULL};
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        struct reader first, second;
        pid_t pid, waits;

        reader_open_with(&first, &attach);
        pid = private_pid(h);
        waits = harness_spawn(h, NULL, argv);
        harness_wait(h, "draining", is_draining, NULL, SOON_MS);
        reader_open_with(&second, &attach);
        ck_assert_int_ne(second.info.daemon_pid, pid);
        reader_read_epochs(&second, 1);
        ck_assert_int_eq(harness_join(h, waits, SOON_MS), 0);
        private_wait_ended(pid, SOON_MS);
        reader_close(&first);
        reader_close(&second);
        private_finish(h);
}
END_TEST

int main(void) {
        TCase *tcase = tcase_create("drain");
        Suite *suite = suite_create("drain");

        tcase_set_timeout(tcase, 60.0 * harness_slowdown());
        tcase_add_test(tcase, test_E4_five_more_batches);
        tcase_add_test(tcase, test_time_is_over);
        tcase_add_loop_test(tcase, test_stopped_all_the_same, 0, 3);
        tcase_add_test(tcase, test_who_waits_is_refused);
        tcase_add_test(tcase, test_drain_command);
        tcase_add_test(tcase, test_drain_command_with_a_time);
        tcase_add_test(tcase, test_private_daemon_is_drained);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
