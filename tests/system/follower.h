#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pipelines "p" whose samples and workers die, and jobs that follow them: rows are checked with their bytes,
 * also those that hold a substitute, which is worked out here. Verdicts go to a directory of the test's own.
 */

#include "base/clock.h"
#include "proto/random.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum {
        BATCH = 8,
        SOON_MS = 10000,
        DEATHS = 3,     /* that condemn: in company, and two alone */
        NOISE_MS = 500, /* of the machine; also a new worker's start, and from a hang to the recall */
};

static inline void keep_state(struct harness *h) {
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        harness_set_environment(h, "PINFEED_STATE_DIR", path);
}

static inline void write_config(struct harness *h, unsigned samples, unsigned workers, const char *source,
                                const char *more) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, samples: %u, %s}\n"
                             "    batch_size: %d\n"
                             "    slots: 16\n"
                             "    workers: %u\n"
                             "    max_errors: 0.1\n"
                             "%s",
                             samples, source, BATCH, workers, more);
}

static inline struct harness *start(unsigned samples, unsigned workers, const char *source,
                                    const char *more) {
        struct harness *h = harness_new();

        keep_state(h);
        write_config(h, samples, workers, source, more);
        harness_start(h);
        return h;
}

static inline void finish(struct harness *h) {
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static inline uint64_t number_of(struct harness *h, const char *name) {
        char path[128];

        snprintf(path, sizeof(path), "pipelines/p/%s", name);
        return (uint64_t)harness_status_number(h, path);
}

static inline size_t length_of(struct harness *h, const char *name) {
        json_t *status = harness_status(h);
        size_t length;
        char path[128];

        snprintf(path, sizeof(path), "pipelines/p/%s", name);
        length = json_array_size(harness_member(status, path));
        json_decref(status);
        return length;
}

static inline void expect_condemned(struct harness *h, uint64_t sample) {
        json_t *status = harness_status(h);

        ck_assert_uint_eq(json_array_size(harness_member(status, "pipelines/p/condemned")), 1);
        ck_assert_double_eq(harness_number(status, "pipelines/p/condemned/0/sample"), (double)sample);
        json_decref(status);
}

/* ---- jobs that know of substitutes ---- */

struct follower {
        struct reader reader;
        uint64_t bad;        /* the only sample that may be replaced */
        uint64_t replaced;   /* rows so far */
        uint64_t longest_ns; /* for a batch */
        uint64_t until_row;  /* a thread reads so far ... */
        atomic_bool *stop;   /* ... or until this */
        pthread_t thread;
};

static inline uint64_t substitute_of(const struct follower *follower, uint64_t own, uint32_t epoch) {
        uint64_t candidate = own;
        struct random random;

        for (uint16_t attempt = 0; candidate == own; attempt++) {
                random_init(&random, follower->reader.info.seed, own, epoch, RANDOM_SUBSTITUTE, attempt);
                candidate = random_below_u64(&random, follower->reader.info.samples);
        }
        return candidate;
}

static inline void check_batch(struct follower *follower, const struct pinfeed_batch *batch) {
        struct reader *reader = &follower->reader;
        struct pinfeed_field field;
        uint64_t row = pinfeed_batch_row(batch);
        uint32_t epoch = pinfeed_batch_epoch(batch), rows;

        pinfeed_job_field(reader->job, reader->info.n_fields - 1, &field);
        reader_must(epoch == reader->epoch && row == reader->row, "row %llu of epoch %u came, not %llu of %u",
                    (unsigned long long)row, epoch, (unsigned long long)reader->row, reader->epoch);
        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++) {
                const int64_t *ids = pinfeed_batch_ids(batch, i, &rows);
                const uint8_t *flags = pinfeed_batch_flags(batch, i, NULL);
                const uint8_t *data = pinfeed_batch_data(batch, i, reader->info.n_fields - 1, NULL);

                for (uint32_t k = 0; k < rows; k++, row++, data += field.row_bytes) {
                        bool replaced = flags[k] == PINFEED_ROW_REPLACED;

                        reader_must(ids[k] == (int64_t)row, "row %llu has sample %lld",
                                    (unsigned long long)row, (long long)ids[k]);
                        reader_must(replaced == (row == follower->bad), "row %llu has flag %u",
                                    (unsigned long long)row, flags[k]);
                        follower->replaced += replaced;
                        reader_check_row(data, field.row_bytes,
                                         replaced ? substitute_of(follower, row, epoch) : row, epoch);
                }
        }
}

/* The next batch, or the next epoch's first. */
static inline void follow(struct follower *follower) {
        struct reader *reader = &follower->reader;
        struct pinfeed_batch *batch;
        uint64_t begin = clock_ns(), took;
        int r;

        while ((r = pinfeed_next(reader->job, &batch)) == 0) {
                reader->row = 0;
                reader->epoch++;
        }
        reader_must(r == 1, "row %llu: %d, %s", (unsigned long long)reader->row, r,
                    pinfeed_error(reader->job));
        took = clock_ns() - begin;
        if (took > follower->longest_ns)
                follower->longest_ns = took;
        check_batch(follower, batch);
        reader->row += pinfeed_batch_rows(batch);
        reader_must(pinfeed_batch_release(batch) == 0, "release");
}

static inline void follow_to(struct follower *follower, uint64_t row) {
        while (follower->reader.row < row)
                follow(follower);
}

static inline struct follower follower_open(struct harness *h, uint64_t seed, uint64_t row, uint64_t bad) {
        return (struct follower){.reader = reader_open_at(h, "p", seed, row), .bad = bad};
}

static inline void *follow_in_thread(void *argument) {
        struct follower *follower = argument;

        while (!atomic_load(follower->stop) && follower->reader.row < follower->until_row)
                follow(follower);
        return NULL;
}

static inline void follower_start(struct follower *follower, uint64_t until_row, atomic_bool *stop) {
        follower->until_row = until_row;
        follower->stop = stop;
        ck_assert_int_eq(pthread_create(&follower->thread, NULL, follow_in_thread, follower), 0);
}

static inline void follower_join(struct follower *follower) {
        ck_assert_int_eq(pthread_join(follower->thread, NULL), 0);
}

static inline void expect_gap_below(const struct follower *follower, uint64_t ms) {
        uint64_t took = follower->longest_ns / NS_PER_MS;

        ck_assert_msg(took < ms * (uint64_t)harness_slowdown(),
                      "a batch took %llu ms, at most %llu are right", (unsigned long long)took,
                      (unsigned long long)ms);
}

struct at {
        uint64_t sample;
        pid_t pid;
        unsigned number;
};

static inline bool find_at(struct harness *h, void *context) {
        struct at *at = context;
        json_t *status = harness_status(h), *worker;
        size_t i;

        at->pid = 0;
        json_array_foreach(json_object_get(status, "workers"), i, worker) {
                json_t *sample = json_object_get(worker, "sample");

                if (!json_is_integer(sample) || (uint64_t)json_integer_value(sample) != at->sample)
                        continue;
                at->pid = (pid_t)harness_number(worker, "pid");
                at->number = (unsigned)harness_number(worker, "number");
        }
        json_decref(status);
        return at->pid != 0;
}

static inline struct at wait_at(struct harness *h, uint64_t sample) {
        struct at at = {.sample = sample};

        harness_wait(h, "a worker at that sample", find_at, &at, SOON_MS * harness_slowdown());
        return at;
}
