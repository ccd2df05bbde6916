/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The counters that tell where time goes are read once a second into the pipeline's and the job's `recent`;
 * the difference to now is what `status` tells of. A pipeline's begin anew when it has had no job: idle time
 * before the first one would make busy workers look idle.
 *
 * What the budget knows of the last seconds it has from here too (budget_share).
 *
 * Only memory is looked at, and the kernel's CPU clocks; a look costs a step for each worker and each job. */

#include "daemon/observe.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/scheduler.h"
#include "proto/worker-page.h"

#include <stdio.h>
#include <string.h>

enum job_value {
        JOB_ROWS,
        JOB_WAITED,
        JOB_EMPTY,
        JOB_DATA_WAITED,
        JOB_FOR_JOBS,
        JOB_EMPTY_FOR_JOBS,
};

enum pipeline_value {
        PIPELINE_PREPARED,
        PIPELINE_DELIVERED,
        PIPELINE_BUSY,
        PIPELINE_CPU,
        PIPELINE_LEASED,
};

#define WAITS_EMPTY 0.1 /* of the time empty-handed, or so much of it waiting: see waits_of */
#define WAITS_FULL  0.9
#define EMPTY_MOST  0.9999 /* of a job that uses a batch in no time that could be measured */

static bool account_of(const struct job *job, uint64_t now, struct scheduler_account *account) {
        const struct pipeline *pipeline = job->owner;

        *account = (struct scheduler_account){};
        return job->state == JOB_ATTACHED && pipeline && pipeline->scheduler &&
               scheduler_view_account(pipeline->scheduler, job->id, now, account) == 0;
}

static void values_of_job(uint64_t values[RECENT_VALUES], const struct scheduler_account *account) {
        memset(values, 0, RECENT_VALUES * sizeof(*values));
        values[JOB_ROWS] = account->rows;
        values[JOB_WAITED] = account->waited;
        values[JOB_EMPTY] = account->empty;
        values[JOB_DATA_WAITED] = account->data_waited;
        values[JOB_FOR_JOBS] = account->waited_for_jobs;
        values[JOB_EMPTY_FOR_JOBS] = account->empty_for_jobs;
}

/* But for PIPELINE_CPU, which costs a system call for each worker. */
static void values_of_pipeline(uint64_t values[RECENT_VALUES], const struct pipeline *pipeline,
                               uint64_t now) {
        struct scheduler_counters counters;

        pipeline_counters(pipeline, &counters);
        memset(values, 0, RECENT_VALUES * sizeof(*values));
        values[PIPELINE_PREPARED] = counters.rows_prepared;
        values[PIPELINE_DELIVERED] = counters.rows_delivered;
        values[PIPELINE_BUSY] = pool_busy_ns(&pipeline->pool, now);
        if (pipeline->scheduler)
                values[PIPELINE_LEASED] = scheduler_leased_ns(pipeline->scheduler, now);
}

static void look_at_pipeline(struct pipeline *pipeline, uint64_t now) {
        uint64_t values[RECENT_VALUES], grown[RECENT_VALUES];
        double seconds;

        pipeline->member.lately = 0;
        if (pipeline->state != PIPELINE_READY || list_is_empty(&pipeline->jobs)) {
                recent_reset(&pipeline->recent);
                return;
        }
        values_of_pipeline(values, pipeline, now);
        seconds = recent_grown(&pipeline->recent, now, values, grown);
        if (seconds > 0)
                pipeline->member.lately = (double)grown[PIPELINE_BUSY] / seconds / NS_PER_S;
        values[PIPELINE_CPU] = pool_cpu_ns(&pipeline->pool);
        recent_note(&pipeline->recent, now, values);
}

void observe_all(const struct daemon *daemon) {
        uint64_t now = clock_ns(), values[RECENT_VALUES];

        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                look_at_pipeline(daemon->pipelines[i], now);
        list_for_each (link, &daemon->jobs) {
                struct job *job = container_of(link, struct job, link);
                struct scheduler_account account;

                if (!account_of(job, now, &account))
                        continue;
                values_of_job(values, &account);
                recent_note(&job->recent, now, values);
        }
}

void observe_job(struct observed_job *observed, const struct job *job, uint64_t now) {
        uint64_t values[RECENT_VALUES], grown[RECENT_VALUES];
        struct scheduler_account account;
        double seconds = 0, ns;

        *observed = (struct observed_job){};
        if (account_of(job, now, &account)) {
                values_of_job(values, &account);
                seconds = recent_grown(&job->recent, now, values, grown);
        }
        if (seconds <= 0)
                return;
        ns = seconds * (double)NS_PER_S;
        *observed = (struct observed_job){.seconds = seconds,
                                          .rows_per_second = (double)grown[JOB_ROWS] / seconds,
                                          .waited = (double)grown[JOB_WAITED] / ns,
                                          .empty = (double)grown[JOB_EMPTY] / ns,
                                          .data_waited = (double)grown[JOB_DATA_WAITED] / ns,
                                          .waited_for_jobs = (double)grown[JOB_FOR_JOBS] / ns,
                                          .empty_for_jobs = (double)grown[JOB_EMPTY_FOR_JOBS] / ns};
}

/* ---- what holds a pipeline back ---- */

static enum diagnosis_stage stage_of(const struct pipeline *pipeline) {
        switch (pipeline->state) {
        case PIPELINE_RESERVING:
                return DIAGNOSIS_RESERVING;
        case PIPELINE_DESCRIBING:
        case PIPELINE_SCANNING:
                return DIAGNOSIS_SCANNING;
        case PIPELINE_FAILED:
                return DIAGNOSIS_FAILED;
        case PIPELINE_READY:
                return DIAGNOSIS_READY;
        case PIPELINE_IDLE:
        case PIPELINE_STOPPING:
                break;
        }
        return DIAGNOSIS_IDLE;
}

/* The share of its time that a job surely waits for something; 0 if it may not wait at all. Empty-handed it
 * does. A batch in its hands it may work at while the next is being made, and be none the slower for it: only
 * if that goes on all the time the next one has come too late each time. */
static double surely(double waited, double empty) {
        if (empty > WAITS_EMPTY)
                return empty;
        return waited > WAITS_FULL ? waited : 0;
}

static double waits_for_data(const struct observed_job *observed) {
        return surely(observed->waited, observed->empty);
}

static double waits_for_jobs(const struct observed_job *observed) {
        return surely(observed->waited_for_jobs, observed->empty_for_jobs);
}

static void describe_job(struct diagnosis_job *described, const struct job *job,
                         const struct observed_job *observed, const struct scheduler_account *account,
                         uint64_t now) {
        uint64_t since;

        *described = (struct diagnosis_job){.id = job->id,
                                            .pid = job->pid,
                                            .waited = waits_for_data(observed),
                                            .held = account->held,
                                            .max_held = job->outbox_size,
                                            .leased = account->leased};
        since = account->oldest > account->released ? account->oldest : account->released;
        described->idle = now > since ? (double)(now - since) / NS_PER_S : 0;
        fault_sanitize(described->name, sizeof(described->name), job->attach.name, strlen(job->attach.name));
}

static void add_missing(struct diagnosis_facts *facts, const struct job *job, uint64_t now) {
        uint64_t until = pipeline_group_until(job);
        char missing[128];

        if (facts->expecting++ > 0)
                return;
        pipeline_name_missing(job->owner, job, missing, sizeof(missing));
        snprintf(facts->missing, sizeof(facts->missing), "%s of group %s", missing, job->attach.group);
        facts->expecting_seconds = until == UINT64_MAX ? -1
                                   : until > now       ? (double)(until - now) / NS_PER_S
                                                       : 0;
}

/* What it waits for, if that is other jobs: the last in lockstep, or some that have not come. */
static void add_sharing(struct diagnosis_facts *facts, const struct job *job,
                        const struct observed_job *observed, uint64_t now) {
        const struct pipeline *pipeline = job->owner;
        struct scheduler_job_view view = {};
        double left;

        scheduler_view_job(pipeline->scheduler, job->id, &view);
        if (view.pace > 0 && waits_for_jobs(observed) > facts->led) {
                facts->led = waits_for_jobs(observed);
                facts->pacer.id = view.pace;
        }
        if (view.expecting)
                add_missing(facts, job, now);
        if (!view.gathering)
                return;
        left = view.gather_until > now ? (double)(view.gather_until - now) / NS_PER_S : 0;
        if (facts->gathering++ > 0 && left <= facts->gather_seconds)
                return;
        facts->gather = view.gather;
        facts->gather_come = view.come;
        facts->gather_seconds = left;
}

static void add_job(struct diagnosis_facts *facts, const struct job *job, uint64_t now) {
        struct scheduler_account account;
        struct observed_job observed;
        struct diagnosis_job described;

        observe_job(&observed, job, now);
        if (!account_of(job, now, &account))
                return;
        describe_job(&described, job, &observed, &account, now);
        facts->jobs++;
        facts->waiting += described.waited > 0;
        if (described.waited > facts->waiter.waited)
                facts->waiter = described;
        if (account.held > 0 && !account.waiting && described.idle > facts->keeper.idle)
                facts->keeper = described;
        if (observed.data_waited > facts->data_waited)
                facts->data_waited = observed.data_waited;
        add_sharing(facts, job, &observed, now);
        facts->got += observed.rows_per_second;
        facts->wanted +=
                observed.rows_per_second / (1 - (observed.empty < EMPTY_MOST ? observed.empty : EMPTY_MOST));
}

/* The job that others in lockstep wait for, and how far they may go without it. */
static void add_lockstep(struct diagnosis_facts *facts, const struct pipeline *pipeline, uint64_t now) {
        struct scheduler_account account;
        struct observed_job observed;

        if (!pipeline->scheduler)
                return;
        facts->max_lead = pipeline->config->max_lead;
        facts->lag_timeout = pipeline->config->lag_timeout;
        facts->lead = scheduler_lead(pipeline->scheduler);
        list_for_each (link, &pipeline->jobs) {
                const struct job *job = container_of(link, struct job, pipeline_link);

                if (job->id != facts->pacer.id || !account_of(job, now, &account))
                        continue;
                observe_job(&observed, job, now);
                describe_job(&facts->pacer, job, &observed, &account, now);
        }
}

/* The sample that a worker has been at for longest. */
static void add_sample(struct diagnosis_facts *facts, const struct pipeline *pipeline) {
        list_for_each (link, &pipeline->pool.workers) {
                const struct pool_worker *worker = container_of(link, struct pool_worker, link);
                double seconds = (double)worker->look.observed_ns / NS_PER_S;

                if (worker->state != POOL_WORKER_BUSY || worker->look.sample == WORKER_PAGE_IDLE ||
                    seconds <= facts->sample_seconds)
                        continue;
                facts->sample_seconds = seconds;
                facts->sample = worker->look.sample;
                facts->sample_worker = worker->number;
                facts->sample_pid = worker->process.pid;
        }
}

static double grown_of(const struct pipeline *pipeline, uint64_t now, uint64_t cpu_ns,
                       uint64_t grown[RECENT_VALUES]) {
        uint64_t values[RECENT_VALUES];

        values_of_pipeline(values, pipeline, now);
        values[PIPELINE_CPU] = cpu_ns;
        return recent_grown(&pipeline->recent, now, values, grown);
}

/* Workers that go by `cpus`, busy on average. */
static double busy_cpus(const struct daemon *daemon, uint64_t now) {
        uint64_t grown[RECENT_VALUES];
        double sum = 0;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                const struct pipeline *pipeline = daemon->pipelines[i];
                double seconds = pipeline->workers > 0 ? 0 : grown_of(pipeline, now, 0, grown);

                if (seconds > 0)
                        sum += (double)grown[PIPELINE_BUSY] / seconds / NS_PER_S;
        }
        return sum;
}

static struct diagnosis_facts facts_of(const struct daemon *daemon, const struct pipeline *pipeline,
                                       const struct observed_pipeline *observed, uint64_t now,
                                       const uint64_t grown[RECENT_VALUES]) {
        const struct pool *pool = &pipeline->pool;
        struct diagnosis_facts facts = {.stage = stage_of(pipeline),
                                        .files = pipeline->scan_files,
                                        .seconds = observed->seconds,
                                        .workers = pipeline_workers(pipeline),
                                        .workers_alive = pool->n_workers,
                                        .workers_given = pipeline->workers > 0,
                                        .brought = recipe_is_brought(&pipeline->config->recipe),
                                        .cpus = daemon->budget.places,
                                        .busy = observed->busy,
                                        .busy_cpus = busy_cpus(daemon, now),
                                        .slots = pipeline->ring.slots,
                                        .quarantined = pipeline->quarantined,
                                        .storage_hangs = pool_storage_hangs(pool),
                                        .sample_timeout = pipeline->config->sample_timeout};

        if (grown[PIPELINE_BUSY] > 0)
                facts.computing = (double)grown[PIPELINE_CPU] / (double)grown[PIPELINE_BUSY];
        if (observed->seconds > 0)
                facts.leased = (double)grown[PIPELINE_LEASED] / observed->seconds / NS_PER_S;
        list_for_each (link, &pipeline->jobs)
                add_job(&facts, container_of(link, struct job, pipeline_link), now);
        add_lockstep(&facts, pipeline, now);
        add_sample(&facts, pipeline);
        return facts;
}

void observe_pipeline(struct observed_pipeline *observed, const struct daemon *daemon,
                      const struct pipeline *pipeline, uint64_t now) {
        uint64_t grown[RECENT_VALUES];
        struct diagnosis_facts facts;

        *observed = (struct observed_pipeline){};
        observed->seconds = grown_of(pipeline, now, pool_cpu_ns(&pipeline->pool), grown);
        if (observed->seconds > 0) {
                observed->prepared_per_second = (double)grown[PIPELINE_PREPARED] / observed->seconds;
                observed->delivered_per_second = (double)grown[PIPELINE_DELIVERED] / observed->seconds;
                observed->busy = (double)grown[PIPELINE_BUSY] / observed->seconds / NS_PER_S;
        }
        facts = facts_of(daemon, pipeline, observed, now, grown);
        diagnosis_make(&observed->diagnosis, &facts);
}
