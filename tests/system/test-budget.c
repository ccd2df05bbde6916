/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One CPU budget for all pipelines. Sources sleep rather than count, so that what is measured is who may
 * work, not this machine. */

#include "tests/support/run.h"
#include "tests/system/readers.h"

enum {
        CPUS = 2,
        LOOK_US = 1000,
        SPELL_MS = 1500, /* of reading, where rates are compared */
};

static double busy_of(json_t *status, const char *name) {
        char path[128];

        snprintf(path, sizeof(path), "pipelines/%s/workers_busy", name);
        return harness_number(status, path);
}

struct looks {
        unsigned n;
        unsigned full;      /* all places taken */
        double sum[2];      /* of workers busy, by pipeline */
        unsigned without_b; /* the second one had none */
};

/* Status again and again for so long: never more than CPUS busy. */
static struct looks look(struct harness *h, unsigned ms) {
        uint64_t end = clock_ns() + ms * NS_PER_MS;
        struct looks looks = {};

        while (clock_ns() < end) {
                json_t *status = harness_status(h);
                double a = busy_of(status, "a"), b = busy_of(status, "b");

                reader_must(a + b <= CPUS, "%g and %g workers are busy, with %d cpus", a, b, CPUS);
                reader_must(harness_number(status, "workers_busy") == a + b, "the sum is another");
                looks.n++;
                looks.full += a + b == CPUS;
                looks.without_b += b == 0;
                looks.sum[0] += a;
                looks.sum[1] += b;
                json_decref(status);
                usleep(LOOK_US);
        }
        return looks;
}

#define TWO_PIPELINES                                                                                        \
        "cpus: 2\n"                                                                                          \
        "pipelines:\n"                                                                                       \
        "  a:\n"                                                                                             \
        "    source: {type: synthetic, samples: 100000, mode: ramp, bytes: 64, delay_us: %u}\n"              \
        "    batch_size: 32\n"                                                                               \
        "  b:\n"                                                                                             \
        "    source: {type: synthetic, samples: 100000, mode: ramp, bytes: 64, delay_us: %u}\n"              \
        "    batch_size: 32\n"

/* Equal pipelines, both short of workers: the places are never more than there are, always taken, and
 * divided. */
static void divide(unsigned delay_us, unsigned factor) {
        struct harness *h = start(TWO_PIPELINES, delay_us, delay_us);
        unsigned long long before[2], rows[2];
        struct looks looks;
        struct job jobs[2];

        job_start(&jobs[0], h, "a", 0);
        job_start(&jobs[1], h, "b", 0);
        look(h, SPELL_MS / 4);
        for (int i = 0; i < 2; i++)
                before[i] = atomic_load(&jobs[i].batches);
        looks = look(h, SPELL_MS * 2);
        for (int i = 0; i < 2; i++)
                rows[i] = atomic_load(&jobs[i].batches) - before[i];
        ck_assert_msg(rows[0] > 0 && rows[1] > 0 && rows[0] < factor * rows[1] && rows[1] < factor * rows[0],
                      "one had %llu batches, the other %llu", rows[0], rows[1]);
        ck_assert_msg(delay_us == 0 || looks.full * 10 >= looks.n * 8, "all were busy in %u of %u looks",
                      looks.full, looks.n);
        job_end(&jobs[0]);
        job_end(&jobs[1]);
        finish(h);
}

START_TEST(two_pipelines_divide_two_cpus) {
        divide(2000, 2);
}
END_TEST

/* Chunks below a millisecond, of which a worker has several in hand. */
START_TEST(short_chunks_starve_nobody) {
        divide(0, 6); /* the jobs compete for processors, too */
}
END_TEST

/* A pipeline that is far ahead of its job yields to one whose job waits. */
START_TEST(who_waits_comes_before_what_is_prepared_ahead) {
        struct harness *h = start(TWO_PIPELINES, 2000u, 2000u);
        struct job slow, fast;
        struct looks looks;

        job_start(&slow, h, "b", 400 * NS_PER_MS); /* needs a fifth of a worker */
        job_start(&fast, h, "a", 0);
        look(h, SPELL_MS);
        looks = look(h, SPELL_MS);
        ck_assert_msg(looks.sum[0] > 5 * looks.sum[1] && looks.sum[0] >= 1.4 * looks.n,
                      "%g and %g workers were busy", looks.sum[0] / looks.n, looks.sum[1] / looks.n);
        job_end(&slow);
        job_end(&fast);
        finish(h);
}
END_TEST

/* Training and validation: each has all of the budget while it is its turn. */
START_TEST(by_turns) {
        struct harness *h = start(TWO_PIPELINES, 1000u, 1000u);
        struct reader readers[2];
        struct looks looks;
        struct job job;

        reader_open(&readers[0], h, "a", 2);
        reader_open(&readers[1], h, "b", 2);
        for (int round = 0; round < 4; round++) {
                reader_read(&readers[round % 2], 20);
                look(h, 50);
        }
        reader_close(&readers[0]);
        reader_close(&readers[1]);
        job_start(&job, h, "a", 0);
        looks = look(h, SPELL_MS);
        ck_assert_msg(looks.full * 10 >= looks.n * 8 && looks.without_b * 10 >= looks.n * 8,
                      "all were busy in %u of %u looks, the other had none in %u", looks.full, looks.n,
                      looks.without_b);
        job_end(&job);
        finish(h);
}
END_TEST

/* Two samples hang, each keeps a place, and wants one when it is tried alone: the other pipeline gets what is
 * left, and no more. */
START_TEST(hung_samples_keep_their_places_only) {
        struct harness *h = start("cpus: 2\n"
                                  "pipelines:\n"
                                  "  a:\n"
                                  "    source: {type: synthetic, samples: 46, mode: die, die_sample: 40, "
                                  "die_every: 5, die_how: hang, delay_us: 10000}\n"
                                  "    batch_size: 16\n"
                                  "    sample_timeout: 0.5\n"
                                  "    max_errors: 0.1\n"
                                  "  b:\n"
                                  "    source: {type: synthetic, samples: 100000, mode: ramp, bytes: 64, "
                                  "delay_us: 100000}\n"
                                  "    batch_size: 1\n");
        uint64_t end = clock_ns() + (uint64_t)(20 * harness_slowdown()) * NS_PER_S;
        struct pinfeed_batch *batch;
        unsigned long long before;
        struct reader a;
        struct job b;

        job_start(&b, h, "b", 0);
        reader_open(&a, h, "a", 4); /* it may have all three batches, and waits for the last */
        while (harness_status_number(h, "pipelines/a/worker_deaths") < 1) {
                reader_must(clock_ns() < end, "no worker died");
                look(h, 20);
        }
        before = atomic_load(&b.batches);
        while (harness_status_number(h, "pipelines/a/worker_deaths") < 6) {
                reader_must(clock_ns() < end, "no sixth worker died");
                look(h, 20);
        }
        ck_assert_uint_gt(atomic_load(&b.batches), before + 2);
        for (uint64_t rows = 0; rows < 46; pinfeed_batch_release(batch)) {
                ck_assert_int_eq(pinfeed_next(a.job, &batch), 1);
                rows += pinfeed_batch_rows(batch);
        }
        look(h, 200);
        reader_close(&a);
        job_end(&b);
        finish(h);
}
END_TEST

/* `workers` is taken as given, beside the budget and above it. */
START_TEST(own_workers_are_beside_the_budget) {
        struct harness *h = start("cpus: 1\n"
                                  "pipelines:\n"
                                  "  a:\n"
                                  "    source: {type: synthetic, samples: 100000, mode: ramp, bytes: 64, "
                                  "delay_us: 5000}\n"
                                  "    batch_size: 32\n"
                                  "    workers: 5\n"
                                  "  b:\n"
                                  "    source: {type: synthetic, samples: 100000, mode: ramp, bytes: 64, "
                                  "delay_us: 5000}\n"
                                  "    batch_size: 32\n");
        double most_a = 0, most_b = 0;
        struct job jobs[2];

        job_start(&jobs[0], h, "a", 0);
        job_start(&jobs[1], h, "b", 0);
        for (int i = 0; i < 200; i++) {
                json_t *status = harness_status(h);

                most_a = busy_of(status, "a") > most_a ? busy_of(status, "a") : most_a;
                most_b = busy_of(status, "b") > most_b ? busy_of(status, "b") : most_b;
                json_decref(status);
                usleep(LOOK_US);
        }
        ck_assert_double_eq(most_a, 5);
        ck_assert_double_eq(most_b, 1);
        job_end(&jobs[0]);
        job_end(&jobs[1]);
        finish(h);
}
END_TEST

/* The rows a second that a job which attaches to "a" behind another is told to catch up at. */
static double told_rate(struct harness *h) {
        struct reader reader;
        char text[256];
        const char *part;
        double rows = 0, seconds = 0;

        reader_open(&reader, h, "a", 2);
        snprintf(text, sizeof(text), "%s", reader.info.sharing);
        part = strstr(text, "; ");
        for (part = part ? part + 2 : ""; (*part >= '0' && *part <= '9') || *part == ','; part++)
                rows = *part == ',' ? rows : rows * 10 + (*part - '0');
        part = strstr(text, "catches up in about ");
        reader_must(part && sscanf(part, "catches up in about %lf", &seconds) == 1 && seconds > 0,
                    "it was told: %s", text);
        reader_close(&reader);
        return rows / seconds;
}

/* Of how much work a job is behind: what the workers do that this pipeline can count on. */
START_TEST(catch_up_reckons_with_what_others_take) {
        struct harness *h = start(TWO_PIPELINES, 2000u, 2000u);
        double alone, beside, alone_again;
        struct job a, b;

        job_start(&a, h, "a", 0);
        look(h, SPELL_MS);
        alone = told_rate(h);
        job_start(&b, h, "b", 0);
        look(h, SPELL_MS * 2); /* b is seen to be busy after two looks, a second apart */
        beside = told_rate(h);
        job_end(&b);
        look(h, SPELL_MS);
        alone_again = told_rate(h);
        job_end(&a);
        finish(h);
        printf("# rows a second: %.0f alone, %.0f beside another, %.0f alone again\n", alone, beside,
               alone_again);
        ck_assert_msg(beside >= 0.4 * alone && beside <= 0.7 * alone, "%g beside another, %g alone", beside,
                      alone);
        ck_assert_msg(alone_again >= 0.8 * alone && alone_again <= 1.25 * alone, "%g after it, %g before",
                      alone_again, alone);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: one CPU budget");
        TCase *tcase = tcase_create("budget");

        tcase_set_timeout(tcase, 90 * harness_slowdown());
        tcase_add_test(tcase, two_pipelines_divide_two_cpus);
        tcase_add_test(tcase, short_chunks_starve_nobody);
        tcase_add_test(tcase, who_waits_comes_before_what_is_prepared_ahead);
        tcase_add_test(tcase, by_turns);
        tcase_add_test(tcase, hung_samples_keep_their_places_only);
        tcase_add_test(tcase, own_workers_are_beside_the_budget);
        tcase_add_test(tcase, catch_up_reckons_with_what_others_take);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
