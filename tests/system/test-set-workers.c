/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Numbers of workers that change under load, and what can be found out that way; rows whose costs differ. */

#include "tests/support/run.h"
#include "tests/system/readers.h"

enum {
        CPUS = 2,
        SPELL_MS = 1500, /* of reading, where rates are compared */
};

static void set_workers(struct harness *h, const char *number) {
        char *output;
        int r = harness_run(h, SOON_MS, &output,
                            (const char *[]){"pinfeedctl", "set", "workers", "p", number, NULL});

        ck_assert_msg(r == 0, "set workers p %s: %d, %s", number, r, output);
        free(output);
}

static void expect_workers(struct harness *h, unsigned n) {
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/workers"), n);
        reader_wait_workers(h, n);
}

static void expect_auto(struct harness *h) {
        json_t *status = harness_status(h);

        ck_assert(json_is_true(harness_member(status, "pipelines/p/workers_auto")));
        json_decref(status);
}

#define SLEEPING_PIPELINE                                                                                    \
        "cpus: 2\n"                                                                                          \
        "pipelines:\n"                                                                                       \
        "  p:\n"                                                                                             \
        "    source: {type: synthetic, samples: 20000, mode: ramp, bytes: 512, delay_us: %u}\n"              \
        "    batch_size: 24\n"                                                                               \
        "    slots: 16\n"                                                                                    \
        "    workers: %u\n"

/* Up and down under load: the jobs check every row, and nothing is prepared twice. */
static void change_under_load(unsigned delay_us) {
        static const unsigned numbers[] = {7, 2, 12, 1, 3, 30, 4};
        struct harness *h = start(SLEEPING_PIPELINE, delay_us, 3u);
        struct job jobs[2];
        char text[16];

        for (int i = 0; i < 2; i++)
                job_start(&jobs[i], h, "p", 0);
        for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
                unsigned long long before;

                snprintf(text, sizeof(text), "%u", numbers[i]);
                set_workers(h, text);
                expect_workers(h, numbers[i]);
                before = atomic_load(&jobs[0].batches);
                for (uint64_t end = clock_ns() + SOON_MS * NS_PER_MS;
                     atomic_load(&jobs[0].batches) < before + 5;)
                        reader_must(clock_ns() < end, "no batch came with %u workers", numbers[i]);
        }
        for (unsigned n = 1; n < 40; n++) { /* faster than workers come and go */
                snprintf(text, sizeof(text), "{\"command\":\"set\",\"pipeline\":\"p\",\"workers\":%u}",
                         1 + n * 7 % 11);
                json_decref(harness_control(h, text));
        }
        set_workers(h, "auto");
        expect_workers(h, CPUS);
        expect_auto(h);
        job_end(&jobs[0]);
        job_end(&jobs[1]);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/worker_deaths"), 0);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/slots_quarantined"), 0);
        finish(h);
}

START_TEST(workers_up_and_down_under_load) {
        change_under_load(1000);
}
END_TEST

START_TEST(workers_up_and_down_with_short_chunks) {
        change_under_load(1);
}
END_TEST

/* Those beyond that hang, or are stopped, go too. */
START_TEST(a_stopped_worker_ends_when_it_is_one_too_many) {
        struct harness *h = start(SLEEPING_PIPELINE, 1000u, 4u);
        struct reader reader;
        pid_t pids[8];

        reader_open(&reader, h, "p", 2);
        reader_read(&reader, 4);
        expect_workers(h, 4);
        harness_status_number(h, "pipelines/p/workers");
        ck_assert_uint_eq(harness_worker_pids(h, pids, 8), 4);
        reader_read(&reader, 200); /* the rest of the time nobody waits: the ring is full, all are idle */
        usleep(300 * 1000);
        for (int i = 0; i < 4; i++)
                kill(pids[i], SIGSTOP);
        set_workers(h, "1");
        expect_workers(h, 1);
        ck_assert_uint_eq(harness_worker_pids(h, pids, 8), 1);
        kill(pids[0], SIGCONT);
        reader_read(&reader, 50);
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(the_number_holds_over_a_rest) {
        struct harness *h = start(ONE_PIPELINE, "idle: 0.2\n", "");

        set_workers(h, "5"); /* before there is any */
        free(digest(h));
        expect_workers(h, 5);
        wait_idle(h);
        free(digest(h));
        expect_workers(h, 5);
        finish(h);
}
END_TEST

static void expect_error(struct harness *h, const char *line, const char *words) {
        json_t *answer = harness_control(h, line);
        const char *error = json_string_value(json_object_get(answer, "error"));

        ck_assert_msg(error && strstr(error, words), "%s: %s", line, error ? error : "no error");
        json_decref(answer);
}

START_TEST(what_cannot_be_set_is_refused) {
        struct harness *h = start(ONE_PIPELINE, "", "");
        const char *range = "workers: expected auto or a whole number from 1 to 1024";

        expect_error(h, "set", "set wants a \"pipeline\"");
        expect_error(h, "{\"command\":\"set\",\"pipeline\":\"q\",\"workers\":2}", "no pipeline \"q\"");
        expect_error(h, "{\"command\":\"set\",\"pipeline\":\"p\"}", range);
        expect_error(h, "{\"command\":\"set\",\"pipeline\":\"p\",\"workers\":0}", range);
        expect_error(h, "{\"command\":\"set\",\"pipeline\":\"p\",\"workers\":1025}", range);
        expect_error(h, "{\"command\":\"set\",\"pipeline\":\"p\",\"workers\":\"two\"}", range);
        ck_assert_int_eq(harness_run(h, SOON_MS, NULL,
                                     (const char *[]){"pinfeedctl", "set", "workers", "p", "0", NULL}),
                         2);
        ck_assert_int_eq(
                harness_run(h, SOON_MS, NULL, (const char *[]){"pinfeedctl", "set", "workers", "p", NULL}),
                2);
        ck_assert_int_eq(harness_run(h, SOON_MS, NULL,
                                     (const char *[]){"pinfeedctl", "set", "workers", "q", "2", NULL}),
                         1);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/workers"), 3);
        finish(h);
}
END_TEST

/* ---- costs that change ---- */

static double busy_seconds(struct harness *h, double *uptime) {
        json_t *status = harness_status(h), *worker;
        double sum = 0;
        size_t i;

        json_array_foreach(json_object_get(status, "workers"), i, worker) sum +=
                harness_number(worker, "busy_seconds");
        *uptime = harness_number(status, "uptime_seconds");
        json_decref(status);
        return sum;
}

/* Every 50th sample is 100 times slower: a chunk is sized by what rows cost on average, and still no worker
 * is without one, and a job that needs two thirds of what four workers can do does not wait. */
START_TEST(test_I8_every_50th_sample_is_100_times_slower) {
        struct harness *h = start("pipelines:\n"
                                  "  p:\n"
                                  "    source: {type: synthetic, samples: 100000, mode: slow, bytes: 64, "
                                  "delay_us: 1000, slow_sample: 7, slow_every: 50, slow_us: 100000}\n"
                                  "    batch_size: 64\n"
                                  "    workers: 4\n");
        double before, after, begin, end, share;
        unsigned long long batches;
        struct job job;

        job_start(&job, h, "p", 0);
        usleep(SPELL_MS * 1000);
        before = busy_seconds(h, &begin);
        usleep(SPELL_MS * 1000);
        after = busy_seconds(h, &end);
        job_end(&job);
        share = (after - before) / (end - begin) / 4;
        ck_assert_msg(share > 0.9, "workers were busy %.2f of the time", share);

        job_start(&job, h, "p", 75 * NS_PER_MS); /* a batch takes four workers 50 ms */
        usleep(SPELL_MS * 1000);
        batches = atomic_load(&job.batches);
        usleep(2 * SPELL_MS * 1000);
        batches = atomic_load(&job.batches) - batches;
        job_end(&job);
        ck_assert_msg(batches * 75 > 0.85 * 2 * SPELL_MS, "%llu batches of 75 ms in %d ms", batches,
                      2 * SPELL_MS);
        finish(h);
}
END_TEST

/* ---- L6 ---- */

static double rate_with(struct harness *h, const struct job *job, unsigned workers) {
        unsigned long long before;
        char text[16];
        uint64_t begin;

        snprintf(text, sizeof(text), "%u", workers);
        set_workers(h, text);
        expect_workers(h, workers);
        usleep(SPELL_MS / 3 * 1000);
        before = atomic_load(&job->batches);
        begin = clock_ns();
        usleep(SPELL_MS * 1000);
        return (double)(atomic_load(&job->batches) - before) * NS_PER_S / (double)(clock_ns() - begin);
}

/* The source sleeps 5 ms a sample and the job takes a batch of 24 every 20.5 ms: 6 workers are needed, which
 * can be found out while the job goes on. */
START_TEST(test_L6_the_best_number_is_found_by_trying) {
        struct harness *h = start(SLEEPING_PIPELINE, 5000u, 1u);
        double rates[9] = {};
        struct job job;

        job_start(&job, h, "p", UINT64_C(20500) * NS_PER_US);
        for (unsigned n = 1; n <= 8; n++)
                rates[n] = rate_with(h, &job, n);
        job_end(&job);
        for (unsigned n = 2; n <= 6; n++)
                ck_assert_msg(rates[n] > rates[n - 1] * (1 + 0.5 / n), "%u workers: %.1f/s, %u: %.1f/s",
                              n - 1, rates[n - 1], n, rates[n]);
        for (unsigned n = 7; n <= 8; n++)
                ck_assert_msg(rates[n] < rates[6] * 1.1 && rates[n] > rates[6] * 0.9,
                              "6 workers: %.1f/s, %u: %.1f/s", rates[6], n, rates[n]);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/worker_deaths"), 0);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: numbers of workers");
        TCase *tcase = tcase_create("workers");

        tcase_set_timeout(tcase, 90 * harness_slowdown());
        tcase_add_test(tcase, workers_up_and_down_under_load);
        tcase_add_test(tcase, workers_up_and_down_with_short_chunks);
        tcase_add_test(tcase, a_stopped_worker_ends_when_it_is_one_too_many);
        tcase_add_test(tcase, the_number_holds_over_a_rest);
        tcase_add_test(tcase, what_cannot_be_set_is_refused);
        tcase_add_test(tcase, test_I8_every_50th_sample_is_100_times_slower);
        tcase_add_test(tcase, test_L6_the_best_number_is_found_by_trying);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
