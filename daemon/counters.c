/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One table, many uses: `status --json` has its counters from here, `pinfeedctl metrics` and metrics_listen,
 * and docs/metrics.md. A subject is looked at once, and each of its lines then takes its number from that
 * look; all are whole numbers, times being nanoseconds, so nothing is lost before somebody writes it down.
 *
 * A total must never fall while its subject is there, not by one: Prometheus takes a fall for a new beginning
 * and adds all that was before once more. So what ends leaves its numbers behind: a run its scheduler's (see
 * pipeline_counters), a worker its processor time and its stages (pool-worker.c), a job what it has waited
 * for (pipeline_detach), and a pipeline that was defined by a job its workers' processor time (definition.c).
 *
 * Only memory is looked at, and the kernel's processor clocks. */

#include "daemon/counters.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/footprint.h"
#include "daemon/job.h"
#include "daemon/scheduler.h"
#include "daemon/verdicts.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* ---- the table ---- */

#define C(MEMBER, METRIC, LABEL, VALUE, TYPE, UNIT, SOURCE, HELP)                                            \
        {.member = MEMBER,                                                                                   \
         .metric = METRIC,                                                                                   \
         .label = LABEL,                                                                                     \
         .value = VALUE,                                                                                     \
         .type = COUNTER_##TYPE,                                                                             \
         .unit = COUNTER_##UNIT,                                                                             \
         .help = HELP},
const struct counter counters_of_daemon[] = {DAEMON_COUNTERS(C)};
const struct counter counters_of_pipeline[] = {PIPELINE_COUNTERS(C)};
const struct counter counters_of_worker[] = {WORKER_COUNTERS(C)};
const struct counter counters_of_job[] = {JOB_COUNTERS(C)};
#undef C

const struct counter counters_special[] = {
#define C(NAME, METRIC, LABELS, TYPE, HELP)                                                                  \
        {.metric = METRIC, .label = LABELS, .type = COUNTER_##TYPE, .help = HELP},
        SPECIAL_COUNTERS(C)
#undef C
};

const char *counter_type_name(enum counter_type type) {
        static const char *const names[] = {"counter", "gauge", "histogram"};

        return names[type];
}

/* ---- looks ---- */

struct look_at_daemon {
        const struct daemon *daemon;
        const struct footprint *footprint;
        uint64_t busy;
        uint64_t own_cpu_ns, workers_cpu_ns;
};

struct look_at_pipeline {
        const struct pipeline *pipeline;
        uint64_t now;
        struct scheduler_counters counters;
        uint64_t ring_slots, ring_bytes;
        uint64_t slots[SCHEDULER_SLOT_QUARANTINED + 1], leased;
        uint64_t jobs, jobs_waiting;
        struct pipeline_past waits; /* of all jobs that ever were */
        uint64_t condemned;
};

struct look_at_job {
        struct scheduler_job_view view;
        struct scheduler_account account;
};

static void look_at_daemon(struct look_at_daemon *d, const struct daemon *daemon,
                           const struct footprint *footprint) {
        struct timespec own = {};

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
        *d = (struct look_at_daemon){
                .daemon = daemon,
                .footprint = footprint,
                .own_cpu_ns = (uint64_t)own.tv_sec * NS_PER_S + (uint64_t)own.tv_nsec,
                .workers_cpu_ns = daemon->cpu_ns_of_gone + pool_cpu_ns(&daemon->verify.pool),
        };
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                d->busy += pool_busy(&daemon->pipelines[i]->pool);
                d->workers_cpu_ns += pool_cpu_ns(&daemon->pipelines[i]->pool);
        }
}

static void look_at_slots(struct look_at_pipeline *p) {
        for (uint32_t i = 0; p->pipeline->scheduler && i < p->pipeline->ring.slots; i++) {
                struct scheduler_slot_view view;

                scheduler_view_slot(p->pipeline->scheduler, i, &view);
                p->slots[view.state]++;
                p->leased += view.leases > 0;
        }
}

static void look_at_jobs(struct look_at_pipeline *p) {
        list_for_each (link, &p->pipeline->jobs) {
                const struct job *job = container_of(link, struct job, pipeline_link);
                struct scheduler_account account;

                if (job->state != JOB_ATTACHED || !p->pipeline->scheduler ||
                    scheduler_view_account(p->pipeline->scheduler, job->id, p->now, &account) != 0)
                        continue;
                p->jobs++;
                p->jobs_waiting += account.waiting;
                pipeline_past_add(&p->waits, &account);
        }
}

static void look_at_pipeline(struct look_at_pipeline *p, const struct pipeline *pipeline) {
        const struct ring *ring = &pipeline->ring;
        bool there = ring->fd >= 0;

        *p = (struct look_at_pipeline){
                .pipeline = pipeline,
                .now = clock_ns(),
                .ring_slots = there ? ring->slots : pipeline->config->n_slots,
                .ring_bytes = there ? ring_bytes(ring) : pipeline->config->ring_bytes,
                .waits = pipeline->past_jobs,
        };
        pipeline_counters(pipeline, &p->counters);
        look_at_slots(p);
        look_at_jobs(p);
        for (size_t i = 0; pipeline->verdicts && i < pipeline->verdicts->n; i++)
                p->condemned += !pipeline->verdicts->list[i].lifted;
}

/* ---- numbers ---- */

#define C(MEMBER, METRIC, LABEL, VALUE, TYPE, UNIT, SOURCE, HELP) *values++ = (uint64_t)(SOURCE);

void counters_read_daemon(uint64_t values[COUNTERS_OF_DAEMON], const struct daemon *daemon,
                          const struct footprint *footprint) {
        static const struct footprint none = {};
        struct look_at_daemon look, *d = &look;

        look_at_daemon(d, daemon, footprint ? footprint : &none);
        DAEMON_COUNTERS(C)
}

void counters_read_pipeline(uint64_t values[COUNTERS_OF_PIPELINE], const struct pipeline *pipeline) {
        struct look_at_pipeline look, *p = &look;

        look_at_pipeline(p, pipeline);
        PIPELINE_COUNTERS(C)
}

void counters_read_worker(uint64_t values[COUNTERS_OF_WORKER], struct pool_worker *w) {
        uint64_t now = clock_ns();

        WORKER_COUNTERS(C)
}

void counters_read_job(uint64_t values[COUNTERS_OF_JOB], const struct job *job) {
        const struct pipeline *pipeline = job->owner;
        struct look_at_job look = {}, *j = &look;

        if (pipeline && pipeline->scheduler) {
                scheduler_view_job(pipeline->scheduler, job->id, &look.view);
                scheduler_view_account(pipeline->scheduler, job->id, clock_ns(), &look.account);
        }
        JOB_COUNTERS(C)
}

#undef C

/* ---- JSON ---- */

/* JSON's whole numbers are signed here; what does not fit is its digits as text. */
static json_t *to_json(const struct counter *counter, uint64_t value) {
        char digits[24];

        if (counter->unit == COUNTER_NS)
                return json_real((double)value / NS_PER_S);
        if (value <= INT64_MAX)
                return json_integer((json_int_t)value);
        snprintf(digits, sizeof(digits), "%" PRIu64, value);
        return json_string(digits);
}

/* Whether its number is one of several in an object. */
static bool is_in_group(const struct counter *counters, size_t i, size_t n) {
        const char *member = counters[i].member;

        return (i > 0 && counters[i - 1].member && strcmp(counters[i - 1].member, member) == 0) ||
               (i + 1 < n && counters[i + 1].member && strcmp(counters[i + 1].member, member) == 0);
}

void counters_to_json(json_t *object, const struct counter *counters, const uint64_t *values, size_t n) {
        for (size_t i = 0; i < n; i++) {
                json_t *into = object;
                const char *name = counters[i].member;

                if (!name)
                        continue;
                if (is_in_group(counters, i, n)) {
                        into = json_object_get(object, name);
                        if (!into)
                                json_object_set_new(object, name, into = json_object());
                        name = counters[i].value;
                }
                json_object_set_new(into, name, to_json(&counters[i], values[i]));
        }
}

/* ---- for people ---- */

static bool is_same(const char *a, const char *b) {
        return a == b || (a && b && strcmp(a, b) == 0);
}

/* The labels of a line: of its subject, then its own with all values that lines of this name have. */
static size_t print_labels(FILE *out, const struct counter *counters, size_t n, const char *labels) {
        size_t i = 0;

        fputs(labels, out);
        if (!counters->value) {
                if (counters->label)
                        fprintf(out, "%s%s", *labels ? ", " : "", counters->label);
                return 1;
        }
        fprintf(out, "%s%s: ", *labels ? ", " : "", counters->label);
        for (; i < n && is_same(counters[i].metric, counters->metric); i++)
                fprintf(out, "%s%s", i > 0 ? ", " : "", counters[i].value);
        return i;
}

static void print_metrics(FILE *out, const struct counter *counters, size_t n, const char *labels) {
        for (size_t i = 0, step; i < n; i += step) {
                step = 1;
                if (!counters[i].metric)
                        continue;
                fprintf(out, "| `%s` | %s | ", counters[i].metric, counter_type_name(counters[i].type));
                step = print_labels(out, counters + i, n - i, labels);
                fprintf(out, " | %s |\n", counters[i].help);
        }
}

static void print_members(FILE *out, const char *title, const struct counter *counters, size_t n) {
        const char *help = NULL;

        fprintf(out, "\n### %s\n\n| member | type | meaning |\n|---|---|---|\n", title);
        for (size_t i = 0; i < n; i++) {
                help = counters[i].help ? counters[i].help : help;
                if (!counters[i].member)
                        continue;
                fprintf(out, "| `%s", counters[i].member);
                if (is_in_group(counters, i, n))
                        fprintf(out, ".%s", counters[i].value);
                fprintf(out, "` | %s | %s%s%s%s |\n", counter_type_name(counters[i].type), help,
                        counters[i].value ? " Here: " : "", counters[i].value ? counters[i].value : "",
                        counters[i].value ? "." : "");
        }
}

void counters_print(FILE *out) {
        fputs("\n### In Prometheus\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", out);
        print_metrics(out, counters_special + COUNTER_BUILD_INFO, 1, "");
        print_metrics(out, counters_of_daemon, COUNTERS_OF_DAEMON, "");
        print_metrics(out, counters_special + COUNTER_LOOP_TURN, 1, "");
        print_metrics(out, counters_of_pipeline, COUNTERS_OF_PIPELINE, "pipeline");
        print_metrics(out, counters_special + COUNTER_STAGE, 1, "");
        print_members(out, "In `status --json`: the daemon", counters_of_daemon, COUNTERS_OF_DAEMON);
        print_members(out, "In `status --json`: a pipeline", counters_of_pipeline, COUNTERS_OF_PIPELINE);
        print_members(out, "In `status --json`: a worker", counters_of_worker, COUNTERS_OF_WORKER);
        print_members(out, "In `status --json`: a job", counters_of_job, COUNTERS_OF_JOB);
}
