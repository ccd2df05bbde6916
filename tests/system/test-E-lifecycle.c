/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases E: start, stop, and two of them in one place.
 *
 * The harness itself asserts of every end that it took under 2 s, cost at most three lines, gave the exit
 * code, and left no process. What is added here is the state in which the end comes: a terminal sends its
 * signal to the whole group, so workers get it too and must not make a noise of their own. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum {
        WORKERS = 8,
        SOON_MS = 10000,
        LINES = 3,
        PIDS = 64,
        CONTENDERS = 4,
};

static void write_config(struct harness *h, const char *source) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, %s}\n"
                             "    batch_size: 8\n"
                             "    slots: 8\n"
                             "    workers: %d\n",
                             source, WORKERS);
}

static size_t count_lines(const char *text) {
        size_t lines = 0;

        for (; *text; text++)
                lines += *text == '\n';
        return lines;
}

/* What a terminal does: the signal goes to all of the daemon's group. Whatever was logged from that moment on
 * counts. */
static void press_ctrl_c(struct harness *h) {
        char *before = harness_log(h), *after;
        pid_t workers[PIDS];
        size_t n = harness_worker_pids(h, workers, PIDS);

        for (size_t i = 0; i < n; i++)
                if (getpgid(workers[i]) == getpgid(harness_daemon_pid(h)))
                        ck_assert_int_eq(kill(workers[i], SIGINT), 0);
        harness_stop(h, SIGINT, 130);
        after = harness_log(h);
        ck_assert_msg(count_lines(after) - count_lines(before) <= LINES, "more than %d lines: %s", LINES,
                      after + strlen(before));
        free(before);
        free(after);
}

/* Sockets and lock are gone. */
static void expect_empty_runtime_directory(const struct harness *h) {
        DIR *directory = opendir(harness_runtime_directory(h));
        struct dirent *entry;

        ck_assert_ptr_nonnull(directory);
        while ((entry = readdir(directory)))
                ck_assert_msg(*entry->d_name == '.', "%s was left in the runtime directory", entry->d_name);
        closedir(directory);
}

static void expect_gone(struct reader *reader) {
        struct pinfeed_batch *batch;
        int r;

        while ((r = pinfeed_next(reader->job, &batch)) >= 0)
                if (r > 0)
                        pinfeed_batch_release(batch);
        ck_assert_msg(r == -EPIPE, "%d, %s", r, pinfeed_error(reader->job));
        ck_assert_str_ne(pinfeed_error(reader->job), "");
        reader_close(reader);
}

/* ---- E1 ---- */

START_TEST(test_E1_ctrl_c_while_workers_are_busy) {
        struct harness *h = harness_new();
        struct reader reader;

        write_config(h, "mode: ramp, samples: 100000, delay_us: 20000");
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 4);
        harness_wait_number(h, "pipelines/ramp/workers_busy", WORKERS, SOON_MS);
        press_ctrl_c(h);
        expect_gone(&reader);
        expect_empty_runtime_directory(h);
        harness_free(h);
}
END_TEST

START_TEST(test_E1_ctrl_c_while_workers_are_idle) {
        struct harness *h = harness_new();
        struct reader reader;

        write_config(h, "mode: ramp, samples: 100000");
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        harness_wait_number(h, "pipelines/ramp/slots_ready", 8, SOON_MS);
        press_ctrl_c(h);
        expect_gone(&reader);
        expect_empty_runtime_directory(h);
        harness_free(h);
}
END_TEST

START_TEST(test_E1_ctrl_c_while_workers_sit_in_a_sample) {
        struct harness *h = harness_new();
        struct reader reader;

        write_config(h, "mode: slow, samples: 100, slow_every: 1, slow_us: 60000000");
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        harness_wait_number(h, "pipelines/ramp/workers_busy", WORKERS, SOON_MS);
        press_ctrl_c(h);
        expect_gone(&reader);
        harness_free(h);
}
END_TEST

static void stop_all_workers(struct harness *h) {
        pid_t workers[PIDS];
        size_t n = harness_worker_pids(h, workers, PIDS);

        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(kill(workers[i], SIGSTOP), 0);
}

/* A stopped process does not even take SIGTERM. */
START_TEST(test_E1_ctrl_c_while_workers_are_stopped) {
        struct harness *h = harness_new();
        struct reader reader;

        write_config(h, "mode: ramp, samples: 100000, delay_us: 1000");
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 1);
        stop_all_workers(h);
        press_ctrl_c(h);
        expect_gone(&reader);
        harness_free(h);
}
END_TEST

START_TEST(test_E1_ctrl_c_before_anybody_came) {
        struct harness *h = harness_new();

        write_config(h, "mode: ramp, samples: 100");
        for (int i = 0; i < 5; i++) {
                harness_start(h);
                press_ctrl_c(h);
                expect_empty_runtime_directory(h);
        }
        harness_free(h);
}
END_TEST

static bool is_stopping(struct harness *h, void *context) {
        return harness_log_contains(h, ": stopping");
}

/* The first signal decides; while workers are still ending more of them change nothing. */
START_TEST(test_stop_is_asked_for_again_and_again) {
        struct harness *h = harness_new();
        struct reader reader;

        write_config(h, "mode: ramp, samples: 100000, delay_us: 1000");
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 1);
        stop_all_workers(h); /* which makes the end take a second */
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGTERM), 0);
        harness_wait(h, "the end's begin", is_stopping, NULL, SOON_MS);
        for (int i = 0; i < 20; i++)
                ck_assert_int_eq(kill(harness_daemon_pid(h), i % 2 ? SIGTERM : SIGINT), 0);
        ck_assert_int_eq(harness_wait_exit(h, 2000), 0);
        reader_close(&reader);
        expect_empty_runtime_directory(h);
        harness_free(h);
}
END_TEST

/* ---- while the ring is being reserved ---- */

/* A ring that takes a while; 0 where there is not enough memory for one. */
static uint64_t large_ring(void) {
        struct statvfs vfs;
        uint64_t quarter;

        ck_assert_int_eq(statvfs("/dev/shm", &vfs), 0);
        quarter = (uint64_t)vfs.f_bavail * vfs.f_frsize / 4;
        return quarter < 256 * MIB ? 0 : quarter < 512 * MIB ? quarter : 512 * MIB;
}

/* Attaches by hand, without waiting for the answer. */
static int begin_attach(struct harness *h) {
        struct message message = raw_attach("large");
        int fd = raw_greeted(h);

        raw_send(fd, &message);
        return fd;
}

static bool is_reserving(struct harness *h, void *context) {
        json_t *status = harness_status(h), *pipeline = harness_member(status, "pipelines/large");
        double reserved = harness_number(pipeline, "reserved_bytes");
        bool is = !strcmp(json_string_value(json_object_get(pipeline, "state")), "reserving") &&
                  reserved > 0 && reserved < harness_number(pipeline, "ring_bytes");

        json_decref(status);
        return is;
}

static struct harness *start_reserving(int *job) {
        struct harness *h = harness_new();
        uint64_t bytes = large_ring();

        if (bytes == 0) {
                harness_skip("/dev/shm has too little room for a ring that takes its time");
                return harness_free(h);
        }
        harness_write_config(h,
                             "pipelines:\n"
                             "  large:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 1M}\n"
                             "    batch_size: 8\n"
                             "    ring: %lluM\n",
                             (unsigned long long)(bytes / MIB));
        harness_start(h);
        *job = begin_attach(h);
        harness_wait(h, "a ring that is being reserved", is_reserving, NULL, SOON_MS);
        return h;
}

START_TEST(test_status_answers_while_reserving) {
        struct message message;
        int job, type, progress = 0;
        struct harness *h = start_reserving(&job);

        if (!h)
                return;
        /* Each answer within a second: harness_status asserts it. */
        while (is_reserving(h, NULL))
                continue;
        while ((type = raw_receive(job, &message, NULL)) == MESSAGE_PROGRESS)
                progress++;
        ck_assert_int_eq(type, MESSAGE_ATTACHED);
        close(job);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

START_TEST(test_stop_while_reserving) {
        int job;
        struct harness *h = start_reserving(&job);

        if (!h)
                return;
        press_ctrl_c(h);
        raw_expect_closed(job, "after the daemon's end");
        expect_empty_runtime_directory(h);
        harness_free(h);
}
END_TEST

START_TEST(test_job_leaves_while_reserving) {
        int job;
        struct harness *h = start_reserving(&job);

        if (!h)
                return;
        close(job);
        job = begin_attach(h);
        close(job);
        while (is_reserving(h, NULL))
                continue;
        job = raw_attached(h, "large", &(struct message){}, NULL);
        close(job);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- E8 ---- */

static int run_second(struct harness *h, char **output) {
        return harness_run(h, 5000, output,
                           (const char *[]){"pinfeedd", "--config", harness_config_path(h), "--runtime-dir",
                                            harness_runtime_directory(h), NULL});
}

START_TEST(test_E8_second_daemon_in_the_same_place) {
        struct harness *h = harness_new();
        struct reader reader, later;
        char pid[32], *output;

        write_config(h, "mode: ramp, samples: 1000");
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 2);
        snprintf(pid, sizeof(pid), "pid %d", (int)harness_daemon_pid(h));
        for (int i = 0; i < 3; i++) {
                ck_assert_int_eq(run_second(h, &output), 1);
                harness_expect_words(output, pid);
                harness_expect_words(output, harness_runtime_directory(h));
                ck_assert_uint_eq(count_lines(output), 1);
                free(output);
                reader_read(&reader, 10);
                reader_open(&later, h, "ramp", 2); /* its sockets are still there */
                reader_read(&later, 2);
                reader_close(&later);
        }
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        expect_empty_runtime_directory(h);
        harness_start(h);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* A daemon that hangs is still there. */
START_TEST(test_E8_second_daemon_while_the_first_is_stopped) {
        struct harness *h = harness_new();
        char pid[32], *output;

        write_config(h, "mode: ramp, samples: 1000");
        harness_start(h);
        snprintf(pid, sizeof(pid), "pid %d", (int)harness_daemon_pid(h));
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGSTOP), 0);
        ck_assert_int_eq(run_second(h, &output), 1);
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGCONT), 0);
        harness_expect_words(output, pid);
        free(output);
        json_decref(harness_status(h));
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* All others have ended, and it can be asked. */
static bool one_is_left(struct harness *h, void *context) {
        const pid_t *pids = context;
        char socket[160];
        int alive = 0;

        for (int i = 0; i < CONTENDERS; i++)
                alive += harness_alive(pids[i]);
        snprintf(socket, sizeof(socket), "%s/control.sock", harness_runtime_directory(h));
        return alive == 0 || (alive == 1 && access(socket, F_OK) == 0);
}

START_TEST(test_E8_daemons_that_start_at_once) {
        struct harness *h = harness_new();
        int rounds = harness_quick() ? 2 : 8;

        write_config(h, "mode: ramp, samples: 1000");
        for (int round = 0; round < rounds; round++) {
                pid_t pids[CONTENDERS], winner = 0;

                for (int i = 0; i < CONTENDERS; i++)
                        pids[i] = harness_spawn(h, NULL,
                                                (const char *[]){"pinfeedd", "--config",
                                                                 harness_config_path(h), "--runtime-dir",
                                                                 harness_runtime_directory(h), NULL});
                harness_wait(h, "one daemon", one_is_left, pids, SOON_MS);
                for (int i = 0; i < CONTENDERS; i++) {
                        if (harness_alive(pids[i]))
                                winner = pids[i];
                        else
                                ck_assert_int_eq(harness_join(h, pids[i], 1000), 1);
                }
                ck_assert_msg(winner != 0, "no daemon is left");
                json_decref(harness_status(h));
                ck_assert_int_eq(kill(winner, SIGTERM), 0);
                ck_assert_int_eq(harness_join(h, winner, 2000), 0);
        }
        harness_free(h);
}
END_TEST

/* ---- exit codes ---- */

static void expect_exit(struct harness *h, int expected, const char *words, const char *const argv[]) {
        char *output;
        int r = harness_run(h, 5000, &output, argv);

        ck_assert_msg(r == expected, "exit code %d, expected %d: %s", r, expected, output);
        harness_expect_words(output, words);
        free(output);
}

START_TEST(test_exit_codes) {
        struct harness *h = harness_new();
        const char *config = harness_config_path(h), *run = harness_runtime_directory(h);
        char missing[160];

        snprintf(missing, sizeof(missing), "%s/missing.yaml", harness_directory(h));
        expect_exit(h, 1, missing, (const char *[]){"pinfeedd", "--config", missing, NULL});
        harness_write_config(h, "pipelines:\n  x: {source: {type: synthetic, samples: 1}, batch: 1}\n");
        expect_exit(h, 1, "pinfeed.yaml:2:", (const char *[]){"pinfeedd", "--config", config, NULL});
        expect_exit(h, 1,
                    "pinfeed.yaml:2:", (const char *[]){"pinfeedd", "--check", "--config", config, NULL});
        write_config(h, "mode: ramp, samples: 1000");
        expect_exit(h, 0, "ramp", (const char *[]){"pinfeedd", "--check", "--config", config, NULL});
        expect_exit(h, 0, pinfeed_version(), (const char *[]){"pinfeedd", "--version", NULL});
        expect_exit(h, 0, pinfeed_version(), (const char *[]){"pinfeedctl", "--version", NULL});
        expect_exit(h, 1, run, (const char *[]){"pinfeedctl", "--runtime-dir", run, "status", NULL});
        harness_free(h);
}
END_TEST

static void add_tests(TCase *tcase) {
        tcase_add_test(tcase, test_E1_ctrl_c_while_workers_are_busy);
        tcase_add_test(tcase, test_E1_ctrl_c_while_workers_are_idle);
        tcase_add_test(tcase, test_E1_ctrl_c_while_workers_sit_in_a_sample);
        tcase_add_test(tcase, test_E1_ctrl_c_while_workers_are_stopped);
        tcase_add_test(tcase, test_E1_ctrl_c_before_anybody_came);
        tcase_add_test(tcase, test_stop_is_asked_for_again_and_again);
        tcase_add_test(tcase, test_status_answers_while_reserving);
        tcase_add_test(tcase, test_stop_while_reserving);
        tcase_add_test(tcase, test_job_leaves_while_reserving);
        tcase_add_test(tcase, test_E8_second_daemon_in_the_same_place);
        tcase_add_test(tcase, test_E8_second_daemon_while_the_first_is_stopped);
        tcase_add_test(tcase, test_E8_daemons_that_start_at_once);
        tcase_add_test(tcase, test_exit_codes);
}

int main(void) {
        Suite *suite = suite_create("E-lifecycle");
        TCase *tcase = tcase_create("E");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        add_tests(tcase);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
