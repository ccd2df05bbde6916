/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases C: workers that are killed, that die alone, that are too many or too few. What a death means for the
 * sample in work is in test-C-recovery.c.
 *
 * A worker that sits in a sample is made by the `slow` source: it sleeps in that sample far longer than any
 * test lasts, so there is no race between the test and the sample's end. Where in the ring a worker is, is
 * read from `status`; nothing here sleeps and hopes.
 *
 * Every row of these pipelines takes longer than a worker may hold several chunks for (POOL_SHORT_CHUNK_NS),
 * except where that is what is tested. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"
#include "tests/system/rings.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        WORKERS = 8,
        SAMPLES = 2000,
        STUCK_SAMPLE = 500,
        BATCH = 8,
        ENDLESS_US = 60000000,
        BRIEF_US = 500000,
        SOON_MS = 10000,
        PIDS = 64,
};

static void write_slow_config(struct harness *h, int workers, int slow_sample, int slow_every, int delay_us,
                              int slow_us) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  slow:\n"
                             "    source: {type: synthetic, mode: slow, samples: %d, bytes: 512,\n"
                             "             slow_sample: %d, slow_every: %d, slow_us: %d, delay_us: %d}\n"
                             "    batch_size: %d\n"
                             "    slots: 16\n"
                             "    workers: %d\n",
                             SAMPLES, slow_sample, slow_every, slow_us, delay_us, BATCH, workers);
}

/* ---- what status says of workers ---- */

struct stuck {
        uint64_t sample;
        unsigned number;
        pid_t pid;
};

static bool find_stuck(struct harness *h, void *context) {
        struct stuck *stuck = context;
        json_t *status = harness_status(h), *worker;
        size_t i;

        stuck->pid = 0;
        json_array_foreach(json_object_get(status, "workers"), i, worker) {
                json_t *sample = json_object_get(worker, "sample");

                if (!json_is_integer(sample) || (uint64_t)json_integer_value(sample) != stuck->sample)
                        continue;
                stuck->pid = (pid_t)harness_number(worker, "pid");
                stuck->number = (unsigned)harness_number(worker, "number");
        }
        json_decref(status);
        return stuck->pid != 0;
}

/* Waits until a worker sits in `sample`. */
static struct stuck wait_stuck(struct harness *h, uint64_t sample) {
        struct stuck stuck = {.sample = sample};

        harness_wait(h, "a worker in the slow sample", find_stuck, &stuck, SOON_MS);
        return stuck;
}

static bool is_idle_and_full(struct harness *h, void *context) {
        const char *name = context;
        json_t *status = harness_status(h), *pipeline;
        bool idle;
        char path[64];

        snprintf(path, sizeof(path), "pipelines/%s", name);
        pipeline = harness_member(status, path);
        idle = harness_number(pipeline, "workers_busy") == 0 &&
               harness_number(pipeline, "slots_ready") == harness_number(pipeline, "slots");
        json_decref(status);
        return idle;
}

/* ---- C1: the daemon is killed ---- */

/* The job learns it, nothing stays, and the next start works in the same place. */
static void kill_and_start_again(struct harness *h, struct reader *reader) {
        struct pinfeed_batch *batch;
        struct reader next;
        int r;

        harness_kill(h);
        while ((r = pinfeed_next(reader->job, &batch)) > 0)
                pinfeed_batch_release(batch);
        ck_assert_msg(r == -EPIPE, "%d, %s", r, pinfeed_error(reader->job));
        reader_close(reader);
        harness_wait(h, "no ring in /dev/shm", rings_are_nameless, NULL, SOON_MS);
        harness_start(h);
        reader_open(&next, h, "slow", 2);
        reader_close(&next);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

START_TEST(test_C1_killed_daemon_takes_busy_workers) {
        struct harness *h = harness_new();
        struct reader reader;

        write_slow_config(h, WORKERS, SAMPLES - 1, 0, 20000, ENDLESS_US);
        harness_start(h);
        reader_open(&reader, h, "slow", 2);
        reader_read(&reader, 4);
        harness_wait_number(h, "pipelines/slow/workers_busy", WORKERS, SOON_MS);
        kill_and_start_again(h, &reader);
}
END_TEST

START_TEST(test_C1_killed_daemon_takes_idle_workers) {
        struct harness *h = harness_new();
        struct reader reader;

        write_slow_config(h, WORKERS, SAMPLES - 1, 0, 0, ENDLESS_US);
        harness_start(h);
        reader_open(&reader, h, "slow", 2);
        harness_wait(h, "idle workers and a full ring", is_idle_and_full, "slow", SOON_MS);
        reader_wait_workers(h, WORKERS);
        kill_and_start_again(h, &reader);
}
END_TEST

START_TEST(test_C1_killed_daemon_takes_workers_in_a_long_sample) {
        struct harness *h = harness_new();
        struct reader reader;

        write_slow_config(h, WORKERS, 0, 1, 0, ENDLESS_US);
        harness_start(h);
        reader_open(&reader, h, "slow", 2);
        harness_wait_number(h, "pipelines/slow/workers_busy", WORKERS, SOON_MS);
        for (uint64_t sample = 0; sample < WORKERS; sample++)
                wait_stuck(h, sample);
        kill_and_start_again(h, &reader);
}
END_TEST

/* The daemon may die before the worker has asked for its own death: the worker compares its parent then. */
START_TEST(test_C1_worker_of_a_dead_daemon_does_not_start) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX], worker[HARNESS_PATH_MAX + 64];

        harness_program("pinfeedd", path);
        *strrchr(path, '/') = 0;
        snprintf(worker, sizeof(worker), "%s/../libexec/pinfeed/pinfeed-worker", path);
        if (access(worker, X_OK) < 0)
                harness_program("pinfeed-worker", worker);
        /* Its descriptor 3 is open and says nothing: without the comparison it would wait there. */
        ck_assert_int_eq(
                harness_run(h, 1000, NULL,
                            (const char *[]){"/bin/sh", "-c", "\"$0\" --daemon 1 3<>\"$1\" & wait $!", worker,
                                             "/dev/null", NULL}),
                0);
        harness_free(h);
}
END_TEST

/* ---- C17: the number of workers ---- */

static void write_workers_config(struct harness *h, const char *workers) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 100}\n"
                             "    batch_size: 8\n"
                             "    workers: %s\n",
                             workers);
}

START_TEST(test_C17_number_of_workers) {
        static const char *const refused[] = {"0", "-1", "1000000"};
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        struct harness *h = harness_new();
        struct reader reader;
        char number[32];

        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
                int exit_code;
                char *text;

                write_workers_config(h, refused[i]);
                text = harness_start_expect_failure(h, &exit_code);
                ck_assert_int_eq(exit_code, 1);
                harness_expect_words(text, "pinfeed.yaml:5:");
                harness_expect_words(text, "workers");
                harness_expect_words(text, "from 1 to 1024");
                harness_expect_words(text, refused[i]);
                free(text);
        }
        snprintf(number, sizeof(number), "%ld", cpus + 1);
        write_workers_config(h, number);
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        reader_wait_workers(h, (size_t)cpus + 1);
        reader_read_epochs(&reader, 2);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* ---- workers that die ---- */

static bool has_no_jobs(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool none = json_array_size(json_object_get(status, "jobs")) == 0;

        json_decref(status);
        return none;
}

/* Another one takes its place, begins the sample again, and the jobs notice nothing. */
START_TEST(test_killed_worker_is_replaced) {
        struct harness *h = harness_new();
        struct reader a, b, other;
        struct stuck stuck;
        char words[128];

        write_slow_config(h, 2, STUCK_SAMPLE, 0, 2000, BRIEF_US);
        harness_start(h);
        a = reader_open_at(h, "slow", 0, STUCK_SAMPLE - 4);
        b = reader_open_at(h, "slow", 0, STUCK_SAMPLE - 16);
        other = reader_open_at(h, "slow", 1, 0);
        stuck = wait_stuck(h, STUCK_SAMPLE);
        ck_assert_int_eq(kill(stuck.pid, SIGKILL), 0);
        harness_wait_number(h, "pipelines/slow/worker_deaths", 1, SOON_MS);
        ck_assert_int_ne(wait_stuck(h, STUCK_SAMPLE).pid, stuck.pid);
        snprintf(words, sizeof(words), "worker %u (pid %d) was killed by signal 9 while at sample %d",
                 stuck.number, (int)stuck.pid, STUCK_SAMPLE);
        ck_assert(harness_log_contains(h, words));
        reader_wait_workers(h, 2);
        reader_read(&other, 8);
        reader_read(&a, 8);
        reader_read(&b, 8);
        ck_assert_uint_eq((unsigned)harness_status_number(h, "pipelines/slow/worker_deaths"), 1);
        reader_close(&a);
        reader_close(&b);
        reader_close(&other);
        harness_wait(h, "no job", has_no_jobs, NULL, SOON_MS); /* what it says of them is not the stop's */
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* Reads a batch of `other` whenever one of `reader` came, until `reader` waits for a worker that sleeps. */
static void read_in_turn(struct reader *reader, struct reader *other, uint64_t batches) {
        while (batches-- > 0) {
                reader_read(reader, 1);
                reader_read(other, 1);
        }
}

/* Where rows are quick a worker holds several chunks, of any stream. All of them are made by others. */
START_TEST(test_killed_worker_gives_all_its_chunks_back) {
        struct harness *h = harness_new();

        write_slow_config(h, 2, STUCK_SAMPLE, 0, 0, BRIEF_US);
        harness_start(h);
        for (uint64_t round = 0; round < 6; round++) {
                uint64_t first = STUCK_SAMPLE / BATCH * BATCH - 8 * BATCH;
                struct reader a, other;
                struct stuck stuck;

                other = reader_open_at(h, "slow", 2 * round, first + 64 * BATCH); /* never meets it */
                reader_read(&other, 16); /* so that a row's time is known */
                a = reader_open_at(h, "slow", 2 * round + 1, first);
                read_in_turn(&a, &other, 8);
                stuck = wait_stuck(h, STUCK_SAMPLE);
                ck_assert_int_eq(kill(stuck.pid, SIGKILL), 0);
                reader_read(&other, 32);
                reader_read(&a, 8);
                reader_close(&a);
                reader_close(&other);
        }
        harness_free(h);
}
END_TEST

static void kill_all_workers(struct harness *h) {
        pid_t pids[PIDS];
        size_t n = harness_worker_pids(h, pids, PIDS);

        ck_assert_uint_gt(n, 0);
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(kill(pids[i], SIGKILL), 0);
}

START_TEST(test_all_workers_killed) {
        struct harness *h = harness_new();
        struct reader reader, other;

        write_slow_config(h, 4, SAMPLES - 1, 0, 2000, ENDLESS_US);
        harness_start(h);
        reader = reader_open_at(h, "slow", 0, 0);
        other = reader_open_at(h, "slow", 1, 0);
        for (unsigned round = 1; round <= 3; round++) {
                reader_read(&reader, 4);
                reader_read(&other, 4);
                reader_wait_workers(h, 4);
                kill_all_workers(h);
                harness_wait_number(h, "pipelines/slow/worker_deaths", 4 * round, SOON_MS);
        }
        reader_read(&reader, 40);
        reader_read(&other, 40);
        reader_wait_workers(h, 4);
        reader_close(&reader);
        reader_close(&other);
        harness_free(h);
}
END_TEST

/* Nothing is lost with a worker that had nothing to do, and another one takes its place. */
START_TEST(test_idle_worker_killed) {
        struct harness *h = harness_new();
        struct reader reader;
        pid_t pids[PIDS];

        write_slow_config(h, 2, SAMPLES - 1, 0, 0, ENDLESS_US);
        harness_start(h);
        reader_open(&reader, h, "slow", 2);
        harness_wait(h, "idle workers and a full ring", is_idle_and_full, "slow", SOON_MS);
        reader_wait_workers(h, 2);
        ck_assert_uint_eq(harness_worker_pids(h, pids, PIDS), 2);
        ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
        harness_wait_number(h, "pipelines/slow/worker_deaths", 1, SOON_MS);
        reader_wait_workers(h, 2);
        reader_read(&reader, 40);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* ---- status in every state ---- */

START_TEST(test_status_answers_while_workers_sleep) {
        struct harness *h = harness_new();
        struct reader reader;
        struct stuck stuck;
        json_t *status;

        write_slow_config(h, 2, 0, 1, 0, ENDLESS_US);
        harness_start(h);
        reader_wait_workers(h, 0); /* nobody has come yet */
        reader_open(&reader, h, "slow", 2);
        stuck = wait_stuck(h, 0);
        wait_stuck(h, 1);
        status = harness_status(h);
        ck_assert_uint_eq(json_array_size(json_object_get(status, "jobs")), 1);
        ck_assert(json_is_true(harness_member(status, "jobs/0/waiting")));
        ck_assert_double_eq(harness_number(status, "pipelines/slow/workers_busy"), 2);
        json_decref(status);
        ck_assert_int_eq(kill(stuck.pid, SIGSTOP), 0); /* as on storage that hangs */
        json_decref(harness_status(h));
        kill_all_workers(h);
        harness_wait_number(h, "pipelines/slow/worker_deaths", 2, SOON_MS);
        reader_wait_workers(h, 2);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("C-workers");
        TCase *tcase = tcase_create("C");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_C1_killed_daemon_takes_busy_workers);
        tcase_add_test(tcase, test_C1_killed_daemon_takes_idle_workers);
        tcase_add_test(tcase, test_C1_killed_daemon_takes_workers_in_a_long_sample);
        tcase_add_test(tcase, test_C1_worker_of_a_dead_daemon_does_not_start);
        tcase_add_test(tcase, test_C17_number_of_workers);
        tcase_add_test(tcase, test_killed_worker_is_replaced);
        tcase_add_test(tcase, test_killed_worker_gives_all_its_chunks_back);
        tcase_add_test(tcase, test_all_workers_killed);
        tcase_add_test(tcase, test_idle_worker_killed);
        tcase_add_test(tcase, test_status_answers_while_workers_sleep);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
