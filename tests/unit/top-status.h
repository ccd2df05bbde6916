#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon's answers to "status", made up: what stands in them depends on nothing but the seconds since its
 * start, so that two of them tell of known rates. */

#include <jansson.h>

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

struct made_pipeline {
        const char *name, *state, *what, *text, *error;
        double prepared, delivered, busy; /* in a second */
        int workers, slots, leased, ready, filling;
};

static const struct made_pipeline made_pipelines[] = {
        {"validation", "idle", "nothing", "nothing: no job is attached", NULL, 0, 0, 0, 0, 8, 0, 0, 0},
        {"imagenet", "ready", "workers",
         "the workers: 8 of 8 are busy all the time, and 3 jobs wait for data; raise `workers` (at least 12 "
         "are needed)",
         NULL, 1500, 4500, 6.5, 8, 16, 3, 6, 3},
        {"captions", "ready", "jobs",
         "the jobs: data lies ready for them and nobody waits; workers are busy 12 % of the time", NULL, 200,
         300, 0.25, 2, 64, 4, 58, 2},
        {"speech", "failed", "start", "", "pipeline speech: /data/speech: no such file or directory", 0, 0, 0,
         0, 4, 0, 0, 0},
};

struct made_job {
        const char *name, *pipeline;
        int id, pid, seed;
        double rows, from, empty, waits; /* a second; shares of the time */
};

static const struct made_job made_jobs[] = {
        {"train.py", "imagenet", 1, 4001, 0, 1500, 200000, 0.3, 0.6},
        {"train.py", "imagenet", 2, 4002, 0, 1500, 200000, 0.25, 0.5},
        {"sweep-with-a-very-long-name-of-its-own.py", "imagenet", 3, 4003, 0, 1000, 100000, 0, 0.05},
        {"gr\xc3\xb6\xc3\x9f"
         "e-\xe5\x90\x8d\xe5\x89\x8d",
         "imagenet", 4, 4004, 7, 500, 0, 0, 0},
        {"captions", "captions", 5, 4005, 0, 150, 4000, 0, 0.01},
        {"captions", "captions", 6, 4006, 0, 150, 4000, 0, 0.01},
        {"evil\033[2J\n\302\205name", "captions", 7, 4007, 3, 0, 0, 0, 0},
        {"", "captions", 8, 4008, 4, 0, 0, 0, 0},
};

enum {
        MADE_PIPELINES = sizeof(made_pipelines) / sizeof(made_pipelines[0]),
        MADE_JOBS = sizeof(made_jobs) / sizeof(made_jobs[0]),
        MADE_SAMPLES = 1281167,
        MADE_ROW_BYTES = 150528,
};

static inline json_t *checked(json_t *json) {
        ck_assert_ptr_nonnull(json);
        return json;
}

static inline json_t *make_pipeline(const struct made_pipeline *p, double seconds) {
        json_t *object = checked(json_pack(
                "{s:s, s:s, s:s?, s:{s:s, s:s}, s:{s:f, s:f, s:f, s:f}, s:I, s:I, s:f, s:i, s:i, s:i}",
                "name", p->name, "state", p->state, "error", p->error, "held_back_by", "what", p->what,
                "text", p->text, "recent", "seconds", 5.0, "rows_prepared_per_second", p->prepared / 2,
                "rows_delivered_per_second", p->delivered / 2, "workers_busy", p->busy / 2, "rows_prepared",
                (json_int_t)(p->prepared * seconds), "rows_delivered", (json_int_t)(p->delivered * seconds),
                "busy_seconds", p->busy * seconds, "samples", MADE_SAMPLES, "row_bytes", MADE_ROW_BYTES,
                "worker_deaths", p->error ? 3 : 0));
        json_t *numbers = checked(json_pack(
                "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:{s:{s:f}, s:{s:f}, s:{s:f}}}", "workers_alive",
                p->workers, "slots", p->slots, "slots_leased", p->leased, "slots_ready", p->ready + p->leased,
                "slots_filling", p->filling, "slots_quarantined", 0, "bad_samples", 2, "reserved_bytes",
                p->workers > 0 ? (json_int_t)p->slots << 24 : 0, "stages", "read", "seconds",
                p->busy * seconds * 0.1, "decode", "seconds", p->busy * seconds * 0.7, "transform", "seconds",
                p->busy * seconds * 0.2));

        json_object_update(object, numbers);
        json_decref(numbers);
        return object;
}

/* In the order leased, ready, filling, free. */
static inline void add_slots(json_t *slots, const struct made_pipeline *p) {
        for (int i = 0; i < p->slots; i++) {
                bool leased = i < p->leased, ready = i < p->leased + p->ready;
                bool filling = !ready && i < p->leased + p->ready + p->filling;

                json_array_append_new(slots, checked(json_pack("{s:s, s:i, s:s, s:i, s:i, s:i}", "pipeline",
                                                               p->name, "slot", i, "state",
                                                               ready     ? "ready"
                                                               : filling ? "filling"
                                                                         : "free",
                                                               "leases", leased ? 2 : 0, "rows", 256,
                                                               "rows_done", filling ? i * 40 % 256 : 0)));
        }
}

/* The first is the busiest. */
static inline void add_workers(json_t *workers, const struct made_pipeline *p, double seconds) {
        for (int i = 0; i < p->workers; i++) {
                double share = p->busy / p->workers + (p->workers - 1 - 2 * i) * 0.02;

                json_array_append_new(workers,
                                      checked(json_pack("{s:s, s:i, s:i, s:f, s:f}", "pipeline", p->name,
                                                        "number", i, "pid", 5000 + i, "busy_seconds",
                                                        share * seconds, "uptime_seconds", seconds)));
        }
}

static inline json_t *make_job(const struct made_job *j, double seconds) {
        int64_t at = (int64_t)(j->from + j->rows * seconds);

        return checked(json_pack(
                "{s:i, s:s, s:i, s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:s, s:b}", "id",
                j->id, "name", j->name, "pid", j->pid, "pipeline", j->pipeline, "seed", j->seed, "epoch",
                (json_int_t)(at / MADE_SAMPLES), "row", (json_int_t)(at % MADE_SAMPLES), "rows",
                (json_int_t)(j->rows * seconds), "waited_for_data_s", j->waits * seconds, "empty_handed_s",
                j->empty * seconds, "waited_for_jobs_s", 0.0, "data_waited_s", (1 - j->waits) * seconds,
                "held", 1, "max_held", 4, "ready", 2, "state", "attached", "waiting", j->waits > 0.4));
}

static inline json_t *make_status(double seconds) {
        json_t *pipelines = json_array(), *jobs = json_array(), *workers = json_array(),
               *slots = json_array();

        for (int i = 0; i < MADE_PIPELINES; i++) {
                json_array_append_new(pipelines, make_pipeline(&made_pipelines[i], seconds));
                add_slots(slots, &made_pipelines[i]);
                add_workers(workers, &made_pipelines[i], seconds);
        }
        for (int i = 0; i < MADE_JOBS; i++)
                json_array_append_new(jobs, make_job(&made_jobs[i], seconds));
        return checked(json_pack("{s:s, s:i, s:f, s:i, s:{s:f, s:f}, s:o, s:o, s:o, s:o}", "version", "0.1.0",
                                 "pid", 4711, "uptime_seconds", seconds, "cpus", 8, "cpu_seconds", "daemon",
                                 0.02 * seconds, "workers", 6.7 * seconds, "pipelines", pipelines, "jobs",
                                 jobs, "workers", workers, "slots", slots));
}
