#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs that read all the time, each in a thread, and check every byte; a daemon for them, and what it looks
 * like when it rests. */

#include "base/clock.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        SOON_MS = 10000,
};

__attribute__((format(printf, 1, 2))) static inline struct harness *start(const char *format, ...) {
        struct harness *h = harness_new();
        char text[4096], state[HARNESS_PATH_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        snprintf(state, sizeof(state), "%s/state", harness_directory(h));
        harness_set_environment(h, "PINFEED_STATE_DIR", state);
        harness_write_config(h, "%s", text);
        harness_start(h);
        return h;
}

static inline bool all_left(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        size_t n = json_array_size(json_object_get(status, "jobs"));

        json_decref(status);
        return n == 0;
}

static inline void finish(struct harness *h) {
        harness_wait(h, "all jobs have left", all_left, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* ---- jobs that read all the time ---- */

struct job {
        struct reader reader;
        uint64_t step_ns; /* that it takes for a batch */
        atomic_ullong batches;
        atomic_bool stop;
        pthread_t thread;
};

static inline void *read_on(void *argument) {
        struct job *job = argument;
        uint64_t due_ns = clock_ns();

        while (!atomic_load(&job->stop)) {
                reader_read(&job->reader, 1);
                atomic_fetch_add(&job->batches, 1);
                due_ns = due_ns + job->step_ns > clock_ns() ? due_ns + job->step_ns : clock_ns();
                while (clock_ns() < due_ns)
                        usleep((useconds_t)((due_ns - clock_ns()) / NS_PER_US + 1));
        }
        return NULL;
}

static inline void job_start(struct job *job, struct harness *h, const char *pipeline, uint64_t step_ns) {
        *job = (struct job){.step_ns = step_ns};
        reader_open(&job->reader, h, pipeline, 2);
        ck_assert_int_eq(pthread_create(&job->thread, NULL, read_on, job), 0);
}

static inline void job_end(struct job *job) {
        atomic_store(&job->stop, true);
        ck_assert_int_eq(pthread_join(job->thread, NULL), 0);
        reader_close(&job->reader);
}

/* ---- a pipeline that may rest ---- */

static inline bool is_idle(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = !strcmp(json_string_value(harness_member(status, context)), "idle") &&
                  json_array_size(json_object_get(status, "workers")) == 0;

        json_decref(status);
        return is;
}

static inline void wait_idle(struct harness *h) {
        harness_wait(h, "an idle pipeline", is_idle, "pipelines/p/state", SOON_MS);
}

static inline char *digest(struct harness *h) {
        char *output;
        int r = harness_run(h, SOON_MS * harness_slowdown(), &output,
                            (const char *[]){"pinfeedctl", "digest", "p", "--rows", "0:500", NULL});

        ck_assert_msg(r == 0, "digest: %d, %s", r, output);
        return output;
}

#define ONE_PIPELINE                                                                                         \
        "%s"                                                                                                 \
        "pipelines:\n"                                                                                       \
        "  p:\n"                                                                                             \
        "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 4096}\n"                            \
        "    batch_size: 32\n"                                                                               \
        "    shuffle: true\n"                                                                                \
        "    workers: 3\n"                                                                                   \
        "%s"
