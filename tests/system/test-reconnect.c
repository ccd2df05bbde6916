/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon is killed, again and again, under jobs of different batch sizes and two ranks of one run. None
 * of them notices more than a pause: each gets exactly the batches of its sequence, which are worked out here
 * by proto/position.h, with every byte right, and what it holds stays right while its daemon dies.
 *
 * The pipeline is not shuffled, so its epochs come one at a time and are asked for: daemons die in the middle
 * of that, too. */

#include "base/clock.h"
#include "proto/position.h"
#include "tests/support/harness.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        SAMPLES = 1001, /* of which two ranks get 501 rows, one of them a padding */
        KILLS = 10,     /* after which all jobs must have gone on, and as many in between */
        RECONNECT_S = 60,
        WAIT_MS = 30000,
        BATCHES_BETWEEN = 12, /* of each job, at least, before the next kill */
        HELD = 3,
};

/* One job and its thread. */
struct follower {
        struct pinfeed_job *job;
        struct position_plan plan;
        uint32_t field; /* the one with the ramp's bytes */
        pthread_t thread;
        atomic_ullong batches;
        uint64_t held_over; /* batches that were held while another daemon came */
};

static const struct {
        uint32_t batch_size, rank, world_size;
} shapes[] = {{7, 0, 1}, {32, 0, 1}, {64, 0, 1}, {16, 0, 2}, {16, 1, 2}};

#define JOBS (sizeof(shapes) / sizeof(shapes[0]))

static atomic_bool over;

/* Every byte of a batch, and its sample numbers and flags. */
static void check_batch(const struct follower *f, const struct pinfeed_batch *batch, struct position p) {
        uint64_t v = p.row;
        uint32_t rows;

        reader_must(pinfeed_batch_epoch(batch) == p.epoch && pinfeed_batch_row(batch) == p.row &&
                            pinfeed_batch_rows(batch) == p.rows,
                    "rows %llu+%u of epoch %u came where %llu+%u of epoch %u come next",
                    (unsigned long long)pinfeed_batch_row(batch), pinfeed_batch_rows(batch),
                    pinfeed_batch_epoch(batch), (unsigned long long)p.row, p.rows, p.epoch);
        reader_must(pinfeed_batch_padding(batch) == position_padding(&f->plan, &p), "%u rows are padding",
                    pinfeed_batch_padding(batch));
        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++) {
                const int64_t *ids = pinfeed_batch_ids(batch, i, &rows);
                const uint8_t *flags = pinfeed_batch_flags(batch, i, NULL);
                const uint8_t *data = pinfeed_batch_data(batch, i, f->field, NULL);
                struct pinfeed_field field;
                size_t bad;

                pinfeed_job_field(f->job, f->field, &field);
                for (uint32_t k = 0; k < rows; k++, v++, data += field.row_bytes)
                        reader_must(ids[k] == (int64_t)(v % SAMPLES) &&
                                            (flags[k] == PINFEED_ROW_PADDING) == (v >= SAMPLES) &&
                                            ramp_check(data, field.row_bytes, v % SAMPLES, p.epoch, &bad),
                                    "row %llu of epoch %u has sample %lld and flag %u", (unsigned long long)v,
                                    p.epoch, (long long)ids[k], flags[k]);
        }
}

/* The next batch, and the news of an epoch's end exactly where one is. */
static struct pinfeed_batch *follow(const struct follower *f, struct position p, bool ended) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(f->job, &batch);

        if (ended) {
                reader_must(r == 0, "epoch %u was to end: %d, %s", p.epoch - 1, r, pinfeed_error(f->job));
                r = pinfeed_next(f->job, &batch);
        }
        reader_must(r == 1, "row %llu of epoch %u: %d, %s", (unsigned long long)p.row, p.epoch, r,
                    pinfeed_error(f->job));
        return batch;
}

/* Holds up to HELD batches, and looks at each of them twice: when it comes and before it goes. */
static void *follower_run(void *data) {
        struct follower *f = data;
        struct pinfeed_batch *held[HELD];
        struct position places[HELD], p = position_first(&f->plan, 0, 0);
        uint32_t daemons[HELD];
        struct pinfeed_info info;
        uint64_t n = 0;
        bool ended = false;

        for (; !atomic_load(&over); n++) {
                size_t i = n % HELD;

                if (n >= HELD) {
                        check_batch(f, held[i], places[i]);
                        reader_must(pinfeed_batch_release(held[i]) == 0, "release");
                        pinfeed_job_info(f->job, &info);
                        f->held_over += info.reconnects != daemons[i];
                }
                held[i] = follow(f, p, ended);
                places[i] = p;
                pinfeed_job_info(f->job, &info);
                daemons[i] = info.reconnects;
                check_batch(f, held[i], p);
                p = position_next(&f->plan, p);
                ended = p.epoch != places[i].epoch;
                atomic_fetch_add(&f->batches, 1);
        }
        return NULL;
}

static void follower_start(const struct harness *h, struct follower *f, size_t shape) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", HELD + 1);
        struct pinfeed_info info;
        int r;

        attach.batch_size = shapes[shape].batch_size;
        attach.rank = shapes[shape].rank;
        attach.world_size = shapes[shape].world_size;
        attach.group = shapes[shape].world_size > 1 ? "ranks" : NULL;
        attach.reconnect_s = RECONNECT_S;
        r = pinfeed_open(&f->job, &attach);
        ck_assert_msg(r == 0, "%d: %s", r, pinfeed_error(f->job));
        pinfeed_job_info(f->job, &info);
        f->field = info.n_fields - 1;
        f->plan = (struct position_plan){.samples = info.samples,
                                         .batch_size = info.batch_size,
                                         .rank = info.rank,
                                         .world_size = info.world_size,
                                         .last_batch = LAST_BATCH_SHORT};
        ck_assert_int_eq(pthread_create(&f->thread, NULL, follower_run, f), 0);
}

/* What all jobs had when they were last asked. */
struct progress {
        struct follower *followers;
        uint64_t before[JOBS];
};

static void note_progress(struct progress *progress) {
        for (size_t i = 0; i < JOBS; i++)
                progress->before[i] = atomic_load(&progress->followers[i].batches);
}

static bool have_gone_on(struct harness *h, void *context) {
        struct progress *progress = context;

        (void)h;
        for (size_t i = 0; i < JOBS; i++)
                if (atomic_load(&progress->followers[i].batches) < progress->before[i] + BATCHES_BETWEEN)
                        return false;
        return true;
}

static bool have_left(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool left = json_array_size(json_object_get(status, "jobs")) == 0;

        (void)context;
        json_decref(status);
        return left;
}

/* Another daemon, which after a while is killed as well: at any moment of the jobs' coming back. */
static void restart(struct harness *h) {
        harness_kill(h);
        harness_start(h);
        usleep((unsigned)rand() % 20000);
}

START_TEST(test_reconnect_kills) {
        struct harness *h = harness_new();
        struct follower followers[JOBS] = {0};
        struct progress progress = {.followers = followers};
        struct pinfeed_info info;
        uint64_t held_over = 0;

        harness_write_config(h, "pipelines:\n"
                                "  ramp:\n"
                                "    source: {type: synthetic, mode: ramp, samples: 1001, bytes: 2K}\n"
                                "    batch_size: 32\n"
                                "    slots: 48\n");
        harness_start(h);
        srand(1);
        for (size_t i = 0; i < JOBS; i++)
                follower_start(h, &followers[i], i);
        for (int kill = 0; kill < KILLS; kill++) {
                note_progress(&progress);
                harness_wait(h, "all jobs to go on", have_gone_on, &progress, WAIT_MS * harness_slowdown());
                restart(h);
                restart(h);
        }
        note_progress(&progress);
        harness_wait(h, "all jobs to go on", have_gone_on, &progress, WAIT_MS * harness_slowdown());
        atomic_store(&over, true);
        for (size_t i = 0; i < JOBS; i++) {
                pthread_join(followers[i].thread, NULL);
                pinfeed_job_info(followers[i].job, &info);
                ck_assert_uint_ge(info.reconnects, KILLS);
                ck_assert_uint_le(info.reconnects, 2 * KILLS);
                held_over += followers[i].held_over;
                printf("# batches of %u (rank %u of %u): %llu\n", info.batch_size, info.rank, info.world_size,
                       (unsigned long long)followers[i].batches);
                pinfeed_close(followers[i].job);
        }
        printf("# held while another daemon came: %llu batches\n", (unsigned long long)held_over);
        ck_assert_uint_gt(held_over, KILLS);
        harness_wait(h, "the jobs to be gone", have_left, NULL, WAIT_MS * harness_slowdown());
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: a daemon killed under its jobs");
        TCase *tcase = tcase_create("reconnect");

        tcase_set_timeout(tcase, 240 * harness_slowdown());
        tcase_add_test(tcase, test_reconnect_kills);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
