/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases A16, N1, N2, N3, N5: whoever wonders why training is slow, or who has all the memory, finds it in
 * `status`.
 *
 * The sources sleep, and so do the jobs, each in a thread of its own: what is said of who waits for whom does
 * not depend on how fast this machine is. What it says is of the last five seconds, so tests wait until that
 * time is over, or the sentence is what it must be. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/support/terminal.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        SOON_MS = 20000,
        JOBS_MAX = 4,
};

/* ---- jobs that take their time ---- */

struct trainer {
        struct pinfeed_attach attach;
        useconds_t step_us;
        unsigned burst; /* batches, after each of which it pauses */
        useconds_t pause_us;
        pthread_t thread;
        atomic_bool stop;
        struct pinfeed_job *job;
};

static void *train(void *argument) {
        struct trainer *trainer = argument;
        struct pinfeed_batch *batch;
        unsigned n = 0;

        while (!atomic_load(&trainer->stop)) {
                int r = pinfeed_next_timeout(trainer->job, &batch, 100);

                if (r == 0 || r == -ETIMEDOUT)
                        continue;
                reader_must(r == 1, "%d, %s", r, pinfeed_error(trainer->job));
                usleep(trainer->step_us);
                reader_must(pinfeed_batch_release(batch) == 0, "release");
                if (trainer->burst > 0 && ++n % trainer->burst == 0)
                        usleep(trainer->pause_us);
        }
        return NULL;
}

static void trainer_attach(struct trainer *trainer, useconds_t step_us) {
        int r = pinfeed_open(&trainer->job, &trainer->attach);

        ck_assert_msg(r == 0, "%d, %s", r, pinfeed_error(trainer->job));
        trainer->step_us = step_us;
        atomic_init(&trainer->stop, false);
        ck_assert_int_eq(pthread_create(&trainer->thread, NULL, train, trainer), 0);
}

static void trainer_start(struct trainer *trainer, struct harness *h, const char *name, uint32_t max_held,
                          uint64_t seed, useconds_t step_us) {
        *trainer = (struct trainer){.attach = reader_attach(h, "p", max_held)};
        trainer->attach.name = name;
        trainer->attach.seed = seed;
        trainer->attach.seed_given = true;
        trainer_attach(trainer, step_us);
}

static void trainer_stop(struct trainer *trainer) {
        atomic_store(&trainer->stop, true);
        ck_assert_int_eq(pthread_join(trainer->thread, NULL), 0);
        trainer->job = pinfeed_close(trainer->job);
}

static struct harness *start(const char *source, int workers, int batch, int slots) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, bytes: 64, %s}\n"
                             "    batch_size: %d\n"
                             "    slots: %d\n"
                             "    lookahead: 1\n"
                             "    workers: %d\n",
                             source, batch, slots, workers);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_wait(h, "all jobs have left", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* ---- what is said ---- */

static const char *text_at(json_t *status, const char *path) {
        const char *text = json_string_value(harness_member(status, path));

        ck_assert_msg(text != NULL, "no text at %s", path);
        return text;
}

static bool is_held_back_by(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = strcmp(text_at(status, "pipelines/p/held_back_by/what"), context) == 0 &&
                  harness_number(status, "pipelines/p/recent/seconds") >= 4;

        json_decref(status);
        return is;
}

/* Waits until it is said of whole seconds; the status is the caller's. */
static json_t *wait_held_back_by(struct harness *h, const char *what) {
        json_t *status;

        harness_wait(h, what, is_held_back_by, (void *)what, SOON_MS * harness_slowdown());
        status = harness_status(h);
        printf("# %s\n", text_at(status, "pipelines/p/held_back_by/text"));
        ck_assert_str_eq(text_at(status, "pipelines/p/held_back_by/what"), what);
        return status;
}

static json_t *job_named(json_t *status, const char *name) {
        char path[64];
        json_t *job;

        snprintf(path, sizeof(path), "jobs/%s", name);
        job = harness_member(status, path);
        ck_assert_msg(job != NULL, "no job %s", name);
        return job;
}

/* Four workers take 40 ms for a batch each, the job 1 ms. */
START_TEST(test_N2_producer_bound) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 2500", 4, 16, 16);
        struct trainer trainer;
        const char *text;
        double needed;
        json_t *status;

        trainer_start(&trainer, h, "train.py", 4, 0, 1000);
        status = wait_held_back_by(h, "workers");
        text = text_at(status, "pipelines/p/held_back_by/text");
        harness_expect_words(text, "the workers: 4 of 4 are busy");
        harness_expect_words(text, "(train.py, pid");
        harness_expect_words(text, "raise `workers` (at least ");
        needed = harness_number(status, "pipelines/p/held_back_by/workers_needed");
        ck_assert_double_le(needed, 60);
        ck_assert_double_ge(needed, 40.0 / 3 / harness_slowdown()); /* a step of 1 ms that takes three */
        ck_assert_double_ge(harness_number(job_named(status, "train.py"), "recent/waited_for_data"), 0.8);
        ck_assert_double_le(harness_number(job_named(status, "train.py"), "recent/data_waited"), 0.1);
        json_decref(status);
        trainer_stop(&trainer);
        finish(h);
}
END_TEST

START_TEST(test_slow_job_is_waited_for) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 100", 2, 16, 8);
        struct trainer trainer;
        json_t *status, *job;

        trainer_start(&trainer, h, "train.py", 2, 0, 50000);
        status = wait_held_back_by(h, "jobs");
        job = job_named(status, "train.py");
        ck_assert_double_ge(harness_number(job, "recent/data_waited"), 0.8);
        ck_assert_double_le(harness_number(job, "recent/waited_for_data"), 0.1);
        ck_assert_double_ge(harness_number(job, "data_waited_s"), 3);
        ck_assert_double_le(harness_number(job, "rows_per_second"), 16 * 1000.0 / 50 * 1.1);
        ck_assert_double_gt(harness_number(job, "rows_per_second"), 0);
        ck_assert_double_ge(harness_number(job, "ready"), 1);
        json_decref(status);
        trainer_stop(&trainer);
        finish(h);
}
END_TEST

/* A batch takes both workers 20 ms, the job 40 ms. The ring has no slot for a third one, so each batch is
 * begun only when another was given back; but in time. */
START_TEST(test_small_ring_that_is_enough) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 2500", 2, 16, 2);
        struct trainer trainer;
        json_t *status;

        trainer_start(&trainer, h, "train.py", 2, 0, 40000);
        status = wait_held_back_by(h, "nothing");
        harness_expect_words(text_at(status, "pipelines/p/held_back_by/text"), "nobody waits for data");
        ck_assert_double_le(harness_number(job_named(status, "train.py"), "recent/empty_handed"), 0.1);
        json_decref(status);
        trainer_stop(&trainer);
        finish(h);
}
END_TEST

/* Ten batches at once, then a pause in which the workers could make twenty; but there are few slots for them.
 */
static void train_in_bursts(struct trainer *trainer, struct harness *h) {
        *trainer = (struct trainer){.attach = reader_attach(h, "p", 1), .burst = 10, .pause_us = 400000};
        trainer->attach.name = "train.py";
        trainer_attach(trainer, 1000);
}

START_TEST(test_ring_too_small_for_bursts) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 2500", 2, 16, 6);
        struct trainer trainer;
        json_t *status;

        train_in_bursts(&trainer, h);
        status = wait_held_back_by(h, "ring");
        harness_expect_words(text_at(status, "pipelines/p/held_back_by/text"), "raise `slots` (12, say)");
        json_decref(status);
        trainer_stop(&trainer);
        finish(h);
}
END_TEST

/* Another one takes its time and has half of the ring meanwhile. */
START_TEST(test_held_batches_make_it_small) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 2500", 2, 16, 8);
        struct trainer trainer, holder;
        json_t *status;

        trainer_start(&holder, h, "holder", 4, 1, 200000);
        train_in_bursts(&trainer, h);
        status = wait_held_back_by(h, "held_batches");
        harness_expect_words(text_at(status, "pipelines/p/held_back_by/text"), "or lower `max_held_batches`");
        json_decref(status);
        trainer_stop(&trainer);
        trainer_stop(&holder);
        finish(h);
}
END_TEST

/* ---- a job that is brought to another ---- */

static bool catches_up(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool does = json_is_object(json_object_get(job_named(status, context), "catching_up"));

        if (does) {
                printf("# %s\n", text_at(status, "jobs/late/note"));
                ck_assert_double_eq(harness_number(status, "jobs/late/catching_up/job"),
                                    harness_number(status, "jobs/early/id"));
                ck_assert_double_gt(harness_number(status, "jobs/late/catching_up/rows"), 0);
                harness_expect_words(text_at(status, "jobs/late/note"), "catches up with job ");
                ck_assert_double_eq(harness_number(status, "pipelines/p/streams/0/catch_ups"), 1);
        }
        json_decref(status);
        return does;
}

START_TEST(test_catching_up) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 2000", 4, 16, 8);
        struct trainer early, late;

        trainer_start(&early, h, "early", 2, 0, 0);
        harness_wait_number(h, "jobs/early/batches", 60, SOON_MS);
        trainer_start(&late, h, "late", 2, 0, 0);
        harness_wait(h, "a job that catches up", catches_up, "late", SOON_MS);
        harness_wait_number(h, "pipelines/p/streams/0/catch_ups_met", 1, SOON_MS);
        ck_assert_double_ge(harness_status_number(h, "pipelines/p/catch_ups_met"), 1);
        trainer_stop(&early);
        trainer_stop(&late);
        finish(h);
}
END_TEST

/* ---- A16: who holds which slots, and since when ---- */

static void hold_all(struct reader *reader) {
        for (uint32_t i = 0; i < reader->info.max_held_batches; i++)
                reader_next(reader);
}

/* Slots that this job alone holds, for at least so long. */
static unsigned slots_held_by(json_t *status, uint64_t id, double seconds) {
        json_t *slot, *ids;
        unsigned n = 0;
        size_t i;

        json_array_foreach(json_object_get(status, "slots"), i, slot) {
                ids = json_object_get(slot, "held_by");
                if (json_array_size(ids) == 0)
                        ck_assert_double_eq(harness_number(slot, "leases"), 0);
                if (json_array_size(ids) != 1 || (uint64_t)json_integer_value(json_array_get(ids, 0)) != id)
                        continue;
                n += harness_number(slot, "held_seconds") >= seconds;
        }
        return n;
}

START_TEST(test_A16_who_holds_which_slots) {
        struct harness *h = start("mode: ramp, samples: 100000", 2, 8, 16);
        struct pinfeed_attach attach = reader_attach(h, "p", 3);
        uint64_t begin = clock_ns(), keeper_id;
        struct trainer other;
        struct reader keeper;
        json_t *status, *job;
        double batches;
        char path[32];

        attach.name = "keeper";
        reader_open_with(&keeper, &attach);
        hold_all(&keeper);
        trainer_start(&other, h, "other", 2, 1, 1000);
        status = wait_held_back_by(h, "jobs"); /* nobody suffers from it */
        job = job_named(status, "keeper");
        keeper_id = (uint64_t)harness_number(job, "id");
        ck_assert_double_eq(harness_number(job, "held"), 3);
        ck_assert_double_ge(harness_number(job, "oldest_held_seconds"), 3);
        ck_assert_double_le(harness_number(job, "oldest_held_seconds"),
                            (double)(clock_ns() - begin) / NS_PER_S);
        ck_assert_uint_eq(slots_held_by(status, keeper_id, 3), 3);
        ck_assert_uint_eq(
                slots_held_by(status, (uint64_t)harness_number(job_named(status, "other"), "id"), 3), 0);
        batches = harness_number(job_named(status, "other"), "batches");
        json_decref(status);

        snprintf(path, sizeof(path), "jobs/other/batches");
        harness_wait_number(h, path, batches + 100, SOON_MS);
        trainer_stop(&other);
        status = wait_held_back_by(h, "job"); /* now there is nobody else */
        ck_assert_double_eq(harness_number(status, "pipelines/p/held_back_by/job"), (double)keeper_id);
        harness_expect_words(text_at(status, "pipelines/p/held_back_by/text"),
                             "holds 3 batches in 3 of 16 slots");
        json_decref(status);
        reader_close(&keeper);
        finish(h);
}
END_TEST

/* ---- N1: which stage is slow ---- */

enum {
        STAGE_ROWS = 320, /* enough for a p99 */
        STAGES = 3,
};

static const struct {
        const char *name;
        uint64_t ns;
} stages[STAGES] = {{"read", NS_PER_MS}, {"decode", 5 * NS_PER_MS}, {"transform", 2 * NS_PER_MS}};

/* How long they really took, which the rows tell: on a busy machine sleepers sleep longer. */
static void read_truth(struct harness *h, uint64_t took[STAGES][STAGE_ROWS]) {
        struct pinfeed_batch *batch;
        struct reader reader;
        uint64_t words[STAGES];
        uint32_t rows;

        reader_open(&reader, h, "p", 2);
        reader.is_ramp = false;
        while (reader.row < STAGE_ROWS) {
                uint64_t row = reader.row;
                const uint8_t *data;

                batch = reader_next(&reader);
                data = pinfeed_batch_data(batch, 0, 1, &rows);
                for (uint32_t i = 0; i < rows; i++, row++, data += 64) {
                        memcpy(words, data, sizeof(words));
                        for (int k = 0; k < STAGES; k++)
                                took[k][row] = words[k];
                }
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        reader_close(&reader);
}

static int compare_ns(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* "p50" or "p99" of a stage, against the truth. */
static void check_percentile(json_t *status, int stage, unsigned percent, const uint64_t *sorted) {
        double truth = (double)sorted[(percent * STAGE_ROWS + 99) / 100 - 1] / NS_PER_S, told;
        char path[128];

        snprintf(path, sizeof(path), "pipelines/p/stages/%s/p%u", stages[stage].name, percent);
        told = harness_number(status, path);
        printf("# %s: %.2f ms, in truth %.2f ms\n", path, 1000 * told, 1000 * truth);
        ck_assert_double_ge(told, 0.8 * truth);
        ck_assert_double_le(told, 1.2 * truth);
}

/* The histogram has as many rows as it says, and its bounds rise. */
static void check_buckets(json_t *status) {
        json_t *bucket, *buckets = harness_member(status, "pipelines/p/stages/decode/buckets");
        double rows = 0, end = 0;
        size_t i;

        json_array_foreach(buckets, i, bucket) {
                ck_assert_double_gt(json_number_value(json_array_get(bucket, 0)), end);
                end = json_number_value(json_array_get(bucket, 0));
                rows += json_number_value(json_array_get(bucket, 1));
        }
        ck_assert_double_eq(rows, STAGE_ROWS);
        ck_assert_double_gt(harness_number(status, "workers/0/stages/decode/p50"), 0.004);
}

static void check_what_people_see(struct harness *h) {
        char *output;

        ck_assert_int_eq(harness_run(h, SOON_MS, &output, (const char *[]){"pinfeedctl", "pipelines", NULL}),
                         0);
        harness_expect_words(output, "stages of  stage      rows");
        harness_expect_words(output, "\np          decode      320  5.");
        free(output);
}

static bool has_buried(struct harness *h, void *context) {
        return harness_status_number(h, "pipelines/p/worker_deaths") == 1;
}

/* What a dead worker had counted stays counted. */
static void check_a_death(struct harness *h) {
        pid_t pid;

        ck_assert_uint_ge(harness_worker_pids(h, &pid, 1), 1);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        harness_wait(h, "a death", has_buried, NULL, SOON_MS);
        ck_assert_double_eq(harness_status_number(h, "pipelines/p/stages/read/rows"), STAGE_ROWS);
}

START_TEST(test_N1_which_stage_is_slow) {
        static uint64_t took[STAGES][STAGE_ROWS];
        struct harness *h = harness_new();
        json_t *status;

        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, mode: stages, bytes: 64, samples: %d}\n"
                             "    batch_size: 16\n"
                             "    workers: 4\n"
                             "    lookahead: 0\n",
                             STAGE_ROWS);
        harness_start(h);
        read_truth(h, took);
        status = harness_status(h);
        ck_assert_double_eq(harness_number(status, "pipelines/p/stages/read/rows"), STAGE_ROWS);
        for (int i = 0; i < STAGES; i++) {
                qsort(took[i], STAGE_ROWS, sizeof(took[i][0]), compare_ns);
                ck_assert_uint_ge(took[i][0], stages[i].ns);
                check_percentile(status, i, 50, took[i]);
                check_percentile(status, i, 99, took[i]);
        }
        check_buckets(status);
        json_decref(status);
        check_what_people_see(h);
        check_a_death(h);
        finish(h);
}
END_TEST

/* ---- N3: which rank starves ---- */

/* Sample 74 is in a batch of rank 2 and takes three seconds. */
START_TEST(test_N3_which_rank_starves) {
        struct harness *h = start("mode: slow, samples: 100000, slow_sample: 74, slow_us: 3000000", 3, 4, 64);
        struct trainer ranks[JOBS_MAX];
        double waited[JOBS_MAX];
        json_t *status;
        char name[16];

        for (uint32_t i = 0; i < JOBS_MAX; i++) {
                snprintf(name, sizeof(name), "rank %u", i);
                ranks[i] = (struct trainer){.attach = reader_attach(h, "p", 2)};
                ranks[i].attach.rank = i;
                ranks[i].attach.world_size = JOBS_MAX;
                ranks[i].attach.name = strdup(name);
                trainer_attach(&ranks[i], 20000);
        }
        harness_wait_number(h, "jobs/rank 2/waited_for_data_s", 2.5, SOON_MS);
        status = harness_status(h);
        for (uint32_t i = 0; i < JOBS_MAX; i++) {
                snprintf(name, sizeof(name), "rank %u", i);
                waited[i] = harness_number(job_named(status, name), "waited_for_data_s");
                printf("# rank %u waited %.2f s, %.0f batches lie ready for it\n", i, waited[i],
                       harness_number(job_named(status, name), "ready"));
                ck_assert(i == 2 ? waited[i] >= 2.5 : waited[i] < 1);
                ck_assert((harness_number(job_named(status, name), "ready") > 0) == (i != 2));
        }
        json_decref(status);
        for (uint32_t i = 0; i < JOBS_MAX; i++) {
                trainer_stop(&ranks[i]);
                free((char *)ranks[i].attach.name);
        }
        finish(h);
}
END_TEST

/* ---- streams ---- */

START_TEST(test_streams_and_company) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 500", 2, 16, 16);
        struct trainer jobs[3];
        double prepared = 0, delivered = 0;
        json_t *status, *streams, *stream;
        size_t i;

        trainer_start(&jobs[0], h, "a", 2, 0, 1000);
        trainer_start(&jobs[1], h, "b", 2, 0, 1000);
        trainer_start(&jobs[2], h, "c", 2, 1, 1000);
        harness_wait_number(h, "jobs/c/batches", 50, SOON_MS);
        harness_wait_number(h, "jobs/a/batches", 50, SOON_MS);
        status = harness_status(h);
        streams = harness_member(status, "pipelines/p/streams");
        ck_assert_uint_eq(json_array_size(streams), 2);
        json_array_foreach(streams, i, stream) {
                bool both = harness_number(stream, "seed") == 0;

                ck_assert_double_eq(harness_number(stream, "jobs"), both ? 2 : 1);
                ck_assert_double_ge(harness_number(stream, "sharing_factor"), both ? 1.4 : 0.5);
                ck_assert_double_le(harness_number(stream, "sharing_factor"), both ? 2 : 1);
                prepared += harness_number(stream, "rows_prepared");
                delivered += harness_number(stream, "rows_delivered");
        }
        ck_assert_double_eq(prepared, harness_number(status, "pipelines/p/rows_prepared"));
        ck_assert_double_eq(delivered, harness_number(status, "pipelines/p/rows_delivered"));
        ck_assert_double_eq(harness_number(job_named(status, "a"), "shares_with/0"),
                            harness_number(job_named(status, "b"), "id"));
        ck_assert_double_eq(harness_number(job_named(status, "b"), "shares_with/0"),
                            harness_number(job_named(status, "a"), "id"));
        ck_assert_uint_eq(json_array_size(harness_member(status, "jobs/c/shares_with")), 0);
        json_decref(status);
        for (i = 0; i < 3; i++)
                trainer_stop(&jobs[i]);
        finish(h);
}
END_TEST

/* ---- N5: numbers for machines ---- */

static const char *const counters[] = {
        "cpu_seconds/daemon",
        "cpu_seconds/workers",
        "uptime_seconds",
        "pipelines/p/rows_prepared",
        "pipelines/p/rows_delivered",
        "pipelines/p/rows_refilled",
        "pipelines/p/batches_delivered",
        "pipelines/p/slots_filled",
        "pipelines/p/slots_refilled",
        "pipelines/p/slots_undelivered",
        "pipelines/p/catch_ups",
        "pipelines/p/catch_ups_met",
        "pipelines/p/streams/0/catch_ups",
        "pipelines/p/busy_seconds",
        "pipelines/p/stages/make/rows",
        "pipelines/p/stages/make/seconds",
        "pipelines/p/worker_deaths",
        "pipelines/p/deaths/killed",
        "pipelines/p/chunks_recalled",
        "pipelines/p/streams/0/rows_prepared",
        "jobs/a/rows",
        "jobs/a/batches",
        "jobs/a/waited_for_data_s",
        "jobs/a/empty_handed_s",
        "jobs/a/data_waited_s",
        "jobs/a/waited_for_jobs_s",
        "workers/0/rows",
        "workers/0/busy_seconds",
        "workers/0/cpu_seconds",
        "workers/0/stages/make/rows",
};

START_TEST(test_N5_counters_only_grow) {
        struct harness *h = start("mode: ramp, samples: 1000, delay_us: 100", 2, 16, 8);
        json_t *before, *after;
        uint64_t resident;
        struct trainer job;

        trainer_start(&job, h, "a", 2, 0, 500);
        harness_wait_number(h, "jobs/a/batches", 50, SOON_MS);
        for (unsigned i = 0; i < 200; i++)
                json_decref(harness_status(h));
        resident = harness_resident_bytes(harness_daemon_pid(h));
        before = harness_status(h);
        ck_assert_double_eq(harness_number(before, "schema"), 1);
        for (unsigned i = 0; i < 200; i++) {
                after = harness_status(h);
                for (size_t k = 0; k < sizeof(counters) / sizeof(counters[0]); k++)
                        ck_assert_msg(harness_number(after, counters[k]) >=
                                              harness_number(before, counters[k]),
                                      "%s has fallen", counters[k]);
                json_decref(before);
                before = after;
        }
        json_decref(before);
        if (!READER_SANITIZED)
                ck_assert_uint_le(harness_resident_bytes(harness_daemon_pid(h)),
                                  resident + (UINT64_C(1) << 20));
        trainer_stop(&job);
        finish(h);
}
END_TEST

/* ---- for people ---- */

static void print_status(void *context) {
        char path[HARNESS_PATH_MAX];

        setenv("PINFEED_RUNTIME_DIR", harness_runtime_directory(context), 1);
        setenv("NO_COLOR", "1", 1);
        execl(harness_program("pinfeedctl", path), "pinfeedctl", "status", NULL);
}

static const uint16_t terminals[] = {120, 100, 80, 60};

START_TEST(test_tables_fit) {
        struct harness *h = start("mode: ramp, samples: 1281167, delay_us: 2000", 4, 16, 16);
        struct trainer jobs[JOBS_MAX];
        char *output;

        for (unsigned i = 0; i < JOBS_MAX; i++)
                trainer_start(&jobs[i], h, "a-job-with-a-long-name-of-its-own-as-people-have-them", 2, 0,
                              500);
        json_decref(wait_held_back_by(h, "workers"));
        for (size_t i = 0; i < sizeof(terminals) / sizeof(terminals[0]); i++) {
                output = terminal_run(terminals[i], print_status, h);
                ck_assert_msg(terminal_longest_line(output) <= terminals[i], "a line of %zu columns in:\n%s",
                              terminal_longest_line(output), output);
                harness_expect_words(output, "\np: the workers: 4 of 4 are busy");
                harness_expect_words(output, "shares with\n");
                harness_expect_words(output, "1,281,167");
                free(output);
        }
        ck_assert_int_eq(harness_run(h, SOON_MS, &output, (const char *[]){"pinfeedctl", "status", NULL}), 0);
        harness_expect_words(output, jobs[0].attach.name); /* through a pipe nothing is cut */
        harness_expect_words(output, "prepared again");
        harness_expect_words(output, "waited for jobs");
        free(output);
        for (unsigned i = 0; i < JOBS_MAX; i++)
                trainer_stop(&jobs[i]);
        finish(h);
}
END_TEST

/* ---- in every state, also a large one ---- */

enum {
        MANY = 1000,
};

/* The longest of many answers, in milliseconds; each is asserted to come in time. */
static double ask_on(struct harness *h) {
        double longest = 0;

        for (unsigned i = 0; i < 50; i++) {
                uint64_t begin = clock_ns();
                double took;

                json_decref(harness_status(h));
                took = (double)(clock_ns() - begin) / NS_PER_MS;
                longest = took > longest ? took : longest;
        }
        return longest;
}

START_TEST(test_a_thousand_slots_and_workers) {
        struct harness *h = start("mode: ramp, samples: 100000, delay_us: 20000", MANY, 1, MANY);
        struct trainer jobs[JOBS_MAX];
        double longest;

        for (unsigned i = 0; i < JOBS_MAX; i++)
                trainer_start(&jobs[i], h, "a", 64, i / 2, 1000);
        harness_wait_number(h, "pipelines/p/workers_alive", MANY, SOON_MS * harness_slowdown());
        longest = ask_on(h);
        printf("# the longest of 50 answers took %.1f ms\n", longest);
        for (unsigned i = 0; i < JOBS_MAX; i++)
                trainer_stop(&jobs[i]);
        harness_wait(h, "all jobs have left", harness_no_job_is_there, NULL, SOON_MS);
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("N-seeing");
        TCase *tcase = tcase_create("N");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_N1_which_stage_is_slow);
        tcase_add_test(tcase, test_N2_producer_bound);
        tcase_add_test(tcase, test_slow_job_is_waited_for);
        tcase_add_test(tcase, test_small_ring_that_is_enough);
        tcase_add_test(tcase, test_ring_too_small_for_bursts);
        tcase_add_test(tcase, test_held_batches_make_it_small);
        tcase_add_test(tcase, test_catching_up);
        tcase_add_test(tcase, test_A16_who_holds_which_slots);
        tcase_add_test(tcase, test_N3_which_rank_starves);
        tcase_add_test(tcase, test_streams_and_company);
        tcase_add_test(tcase, test_N5_counters_only_grow);
        tcase_add_test(tcase, test_tables_fit);
        tcase_add_test(tcase, test_a_thousand_slots_and_workers);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
