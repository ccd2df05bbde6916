/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline ties four things together that do not know each other: the ring (memory), the pool (processes),
 * the scheduler (decisions) and the jobs (sessions).
 *
 *     IDLE --first attach--> [DESCRIBING] --> RESERVING / SCANNING --both done--> READY
 *       ^                          |                |                              |
 *       +------- next attach ---- FAILED <----------+-------- no worker left ------+
 *
 * READY becomes IDLE again when nobody has needed it for long, or when its run goes by verdicts which were
 * taken back and its last job has left: pipeline-rest.c.
 *
 * Every event ends in pipeline_step: let jobs in or send them elsewhere, hand out what is ready, then give
 * work to whoever is free, until nothing of this is possible. Jobs are sent elsewhere first, so that none is
 * given what it does not want any more; handles go before work: a trainer waits for them, a worker's next
 * chunk can wait a microsecond.
 * Callbacks may come while a step is under way (a job turns out to be gone while its handles are sent); they
 * only ask for another round.
 *
 * Admission, failure, rest and the ring have files of their own, and so has the question who works:
 * pipeline-work.c. */

#include "daemon/pipeline-internal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/description.h"
#include "daemon/fingerprint.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"
#include "daemon/suspects.h"
#include "daemon/verdicts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        REPORT_INTERVAL_MS = 100,
};

const char *pipeline_state_name(enum pipeline_state state) {
        static const char *const names[] = {
#define S(NAME, name) [PIPELINE_##NAME] = #name,
                PIPELINE_STATES(S)
#undef S
        };

        return names[state];
}

/* ---- jobs ---- */

static struct job *find_job(struct pipeline *pipeline, uint32_t id) {
        list_for_each (link, &pipeline->jobs) {
                if (pipeline_job_of(link)->id == id)
                        return pipeline_job_of(link);
        }
        return NULL;
}

void pipeline_attach(struct pipeline *pipeline, struct job *job) {
        struct fault fault;
        int r;

        job->owner = pipeline;
        job->seed = job->attach.seed_given ? job->attach.seed : pipeline->config->seed;
        if (job->attach.batch_size == 0)
                job->attach.batch_size = (uint32_t)pipeline->config->batch_size;
        if (job->attach.last_batch == LAST_BATCH_DEFAULT)
                job->attach.last_batch = (uint8_t)pipeline->config->last_batch;
        pipeline_refresh(pipeline);
        list_append(&pipeline->jobs, &job->pipeline_link);
        pipeline->unsettled = true;
        if (pipeline->state == PIPELINE_STOPPING) {
                job_refuse(job, -ESHUTDOWN, "pinfeedd is stopping");
                return;
        }
        r = pipeline_take_zygote(pipeline, job, &fault);
        if (r >= 0)
                r = pipeline_take_orders(pipeline, job, &fault);
        if (r < 0) {
                job_refuse(job, r, fault.text);
                return;
        }
        pipeline_start(pipeline);
        pipeline_step(pipeline);
}

int pipeline_release(struct pipeline *pipeline, struct job *job, const uint64_t *numbers,
                     uint32_t n_numbers) {
        uint64_t now = clock_ns();

        for (uint32_t i = 0; i < n_numbers; i++) {
                if (scheduler_release(pipeline->scheduler, job->id, numbers[i], now) != 0)
                        return -EINVAL;
        }
        pipeline_step(pipeline);
        return 0;
}

void pipeline_read(struct pipeline *pipeline, struct job *job) {
        scheduler_read(pipeline->scheduler, job->id);
        pipeline_step(pipeline);
}

void pipeline_past_add(struct pipeline_past *past, const struct scheduler_account *account) {
        past->waited += account->waited;
        past->empty += account->empty;
        past->data_waited += account->data_waited;
        past->waited_for_jobs += account->waited_for_jobs;
}

/* Everything that counts only grows, also when a job goes. */
static void keep_account(struct pipeline *pipeline, const struct job *job) {
        struct scheduler_account account;

        if (scheduler_view_account(pipeline->scheduler, job->id, clock_ns(), &account) == 0)
                pipeline_past_add(&pipeline->past_jobs, &account);
}

void pipeline_detach(struct pipeline *pipeline, struct job *job) {
        struct scheduler_job_view view;

        list_unlink(&job->pipeline_link);
        pipeline_leave_zygote(pipeline, job, NULL);
        pipeline->unsettled = true;
        if (pipeline->scheduler && scheduler_view_job(pipeline->scheduler, job->id, &view) == 0) {
                if (pipeline->state !=
                    PIPELINE_STOPPING) /* a stop has few words, however many jobs there are */
                        log_about(&(struct log_subject){.pipeline = pipeline->label, .job = job->id},
                                  LOG_INFO, "job %u (%s, pid %d) leaves %s after %" PRIu64 " rows", job->id,
                                  *job->attach.name ? job->attach.name : "unnamed", (int)job->pid,
                                  pipeline->label, view.rows);
                keep_account(pipeline, job);
                scheduler_detach(pipeline->scheduler, job->id);
        }
        pipeline_step(pipeline);
}

/* ---- the step ---- */

/* How much work catch_up is follows from what workers were measured to do, and that changes. */
static void set_catch_up(struct pipeline *pipeline) {
        uint64_t ns = (uint64_t)(pipeline->config->catch_up * NS_PER_S);

        scheduler_set_catch_up(pipeline->scheduler, pipeline_rows_in(pipeline, ns), ns);
}

static void deliver(struct pipeline *pipeline, const struct scheduler_delivery *delivery) {
        struct job *job = find_job(pipeline, delivery->job);
        struct message_segment *segments;
        struct message_batch batch = {
                .number = delivery->number,
                .row = delivery->position.row,
                .epoch = delivery->position.epoch,
                .rows = delivery->position.rows,
                .segments = (uint16_t)delivery->n_segments,
        };

        if (!job)
                return;
        for (uint32_t i = 0; i < delivery->n_segments; i++) {
                uint32_t slot = delivery->segments[i].slot;

                if (pipeline->slot_ready_ns[slot] > batch.ready_ns)
                        batch.ready_ns = pipeline->slot_ready_ns[slot];
        }
        segments = job_deliver(job, &batch);
        for (uint32_t i = 0; i < delivery->n_segments; i++) {
                const struct scheduler_segment *segment = &delivery->segments[i];

                segments[i] = (struct message_segment){segment->slot, segment->first, segment->rows,
                                                       segment->padding ? MESSAGE_SEGMENT_PADDING : 0};
        }
}

static void hand_out(struct pipeline *pipeline) {
        struct scheduler_delivery delivery;
        uint64_t now = clock_ns();
        bool any = false;

        pipeline_excuse_lost_time(pipeline, now);
        while (scheduler_next_delivery(pipeline->scheduler, now, &delivery)) {
                deliver(pipeline, &delivery);
                any = true;
        }
        if (!any)
                return;
        list_for_each_safe (link, &pipeline->jobs) {
                if (pipeline_job_of(link)->dirty)
                        job_flush(pipeline_job_of(link));
        }
}

void pipeline_step(struct pipeline *pipeline) {
        pipeline->again = true;
        if (pipeline->stepping)
                return;
        pipeline->stepping = true;
        while (pipeline->again && pipeline->state == PIPELINE_READY) {
                pipeline->again = false;
                pipeline_admit_waiting(pipeline);
                set_catch_up(pipeline);
                hand_out(pipeline);
                pipeline_give_work(pipeline);
        }
        pipeline->stepping = false;
        if (pipeline_check_zygote(pipeline))
                pipeline_rest(pipeline);
}

/* ---- start ---- */

static void report(struct pipeline *pipeline, struct job *job) {
        if (pipeline_waiting_for(pipeline))
                job_send_progress(job, MESSAGE_STAGE_SPACE, pipeline->space.bytes,
                                  pipeline->config->ring_bytes);
        else if (pipeline->state == PIPELINE_RESERVING)
                job_send_progress(job, MESSAGE_STAGE_RESERVING, pipeline->ring.reserved,
                                  ring_bytes(&pipeline->ring));
        else if (pipeline->state == PIPELINE_READY)
                job_send_progress(job, MESSAGE_STAGE_WAITING, 0, pipeline->awaited);
        else
                job_send_progress(job, MESSAGE_STAGE_SCANNING, pipeline->scan_files, 0);
}

static void on_reporting(uv_timer_t *timer) {
        struct pipeline *pipeline = timer->data;

        list_for_each_safe (link, &pipeline->jobs) {
                if (pipeline_job_of(link)->state == JOB_ATTACHING)
                        report(pipeline, pipeline_job_of(link));
        }
}

void pipeline_report(struct pipeline *pipeline, bool wanted) {
        if (wanted)
                uv_timer_start(&pipeline->reporting, on_reporting, REPORT_INTERVAL_MS, REPORT_INTERVAL_MS);
        else
                uv_timer_stop(&pipeline->reporting);
}

/* All three are there: workers get the index, jobs their answer. */
void pipeline_become_ready(struct pipeline *pipeline) {
        struct scheduler_config geometry = pipeline_geometry(pipeline);
        int r = 0;

        if (!pipeline->reserved || !pipeline->scanned || !pipeline->verdicts || pipeline->work_copy)
                return;
        if (pipeline->index.samples == 0) {
                fault_set(&pipeline->failure, -EINVAL,
                          "pipeline %s (%s:%u): its source has 0 samples, a batch has %" PRIu64,
                          pipeline->label, pipeline->whole->file, pipeline->config->line,
                          pipeline->config->batch_size);
                pipeline_fail(pipeline, -EINVAL);
                return;
        }
        if (!pipeline->scheduler) {
                pipeline->slot_ready_ns = calloc(pipeline->ring.slots, sizeof(*pipeline->slot_ready_ns));
                r = pipeline->slot_ready_ns ? scheduler_new(&pipeline->scheduler, &geometry) : -ENOMEM;
                if (r >= 0)
                        r = scheduler_set_warm(pipeline->scheduler, pipeline->config->seed,
                                               (uint32_t)pipeline->config->warm);
        }
        if (r >= 0)
                r = fingerprint_make(pipeline->fingerprint, &pipeline->config->recipe, pipeline->index.sha256,
                                     pipeline->index.samples, pipeline->config->shuffle);
        if (r < 0) {
                fault_set(&pipeline->failure, r, "no memory for the scheduler of pipeline %s",
                          pipeline->label);
                pipeline_fail(pipeline, r);
                return;
        }
        uv_timer_stop(&pipeline->reporting);
        pipeline->state = PIPELINE_READY;
        pipeline_start_lockstep(pipeline);
        pool_set_index(&pipeline->pool, &pipeline->index, pipeline->index_fd);
        pool_watch_start(&pipeline->pool);
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s is ready: %" PRIu64 " samples, %u slots in %s", pipeline->label,
                  pipeline->index.samples, pipeline->ring.slots, ring_backing_name(&pipeline->ring));
        pipeline_step(pipeline);
}

void pipeline_take_resources(struct pipeline *pipeline) {
        int r = 0;

        if (pipeline->ring.fd < 0 && !pipeline->space.awaited)
                r = pipeline_take_ring(pipeline);
        if (r >= 0)
                r = pipeline_grow(pipeline);
        if (r < 0) {
                pipeline_fail(pipeline, r);
                return;
        }
        if (!pipeline->scanned && pipeline->state != PIPELINE_READY)
                pool_scan(&pipeline->pool);
}

void pipeline_start(struct pipeline *pipeline) {
        bool is_down = pipeline->state == PIPELINE_FAILED || pipeline->state == PIPELINE_IDLE;
        bool asks = is_down && recipe_is_described(&pipeline->defined->recipe);
        int r = 0;

        if (pipeline->pool.stopping || (pipeline->work_copy && is_down))
                return; /* the last try is still being cleared away; whoever ends last starts anew */
        if (is_down)
                r = pipeline_check_start(pipeline);
        if (asks && r >= 0)
                r = pipeline_describe(pipeline);
        if (r < 0)
                pipeline_fail(pipeline, r);
        else if (pipeline->state != PIPELINE_DESCRIBING)
                pipeline_take_resources(pipeline);
}

/* ---- what workers say ---- */

static void on_scanning(void *context, uint64_t files, uint32_t classes) {
        struct pipeline *pipeline = context;

        pipeline->scan_files = files;
        pipeline->scan_classes = classes;
}

static void on_scanned(void *context, const struct message_index *index, int fd) {
        struct pipeline *pipeline = context;

        fd_closep(&pipeline->index_fd);
        pipeline->index = *index;
        pipeline->index_fd = fd;
        pipeline->scan_files = index->samples;
        pipeline->scan_classes = index->classes;
        pipeline->scanned = true;
        pipeline_read_verdicts(pipeline);
}

static void on_done(void *context, const struct message_part *parts, uint32_t n_parts) {
        struct pipeline *pipeline = context;

        for (uint32_t i = 0; i < n_parts; i++) {
                const struct message_part *part = &parts[i];

                if (part->done_ns > pipeline->slot_ready_ns[part->slot])
                        pipeline->slot_ready_ns[part->slot] = part->done_ns;
                pipeline_clear_suspect(pipeline, part->slot, part->first);
                scheduler_chunk_done(pipeline->scheduler, part->slot, part->first, part->rows);
        }
        pipeline->vain_deaths = 0;
        if (pipeline->config->on_error == CONFIG_ON_ERROR_REPLACE && ledger_count(&pipeline->ledger) > 0)
                pipeline_judge_samples(pipeline);
        pipeline_step(pipeline);
}

static void on_started(void *context, struct pool_worker *worker) {
        pipeline_tell_condemned(context, worker);
        pipeline_tell_orders(context, worker);
}

static void on_broken(void *context, const struct pool_worker *worker, const struct message_broken *broken,
                      const struct message_chunk *lost) {
        struct pipeline *pipeline = context;
        const struct verdict *verdict;
        struct fault fault;
        struct message_failed failed = {.error = broken->error,
                                        .sample_given = broken->sample_given,
                                        .sample = broken->sample,
                                        .worker = worker->number,
                                        .pid = (uint32_t)worker->process.pid};

        /* UTF-8 by the decoder's word, but what a worker says may still hold control bytes. */
        fault_sanitize(failed.file, sizeof(failed.file), broken->file, strlen(broken->file));
        if (!lost) {
                pipeline_fail_raised(pipeline, worker, broken);
                return;
        }
        fault_sanitize(failed.exception, sizeof(failed.exception), broken->exception,
                       strlen(broken->exception));
        pipeline_clean_traceback(failed.traceback, sizeof(failed.traceback), broken->traceback);
        ledger_add(&pipeline->ledger, broken->sample, broken->error, failed.file, broken->text);
        verdict = pipeline->verdicts ? verdicts_find(pipeline->verdicts, broken->sample) : NULL;
        fault_set(&fault, -EIO, "sample %" PRIu64 "%s%s%s, worker %u (pid %d): %s%s%s%s", broken->sample,
                  *failed.file ? " (" : "", failed.file, *failed.file ? ")" : "", worker->number,
                  worker->process.pid, broken->text, verdict ? "; the last death: " : "",
                  verdict ? verdict->text : "",
                  *failed.exception ? "" : "; mend or remove it, or set `on_error: replace`");
        snprintf(failed.text, sizeof(failed.text), "%s", fault.text);
        pipeline_lose(pipeline, lost, &failed);
}

/* ---- end ---- */

void pipeline_counters(const struct pipeline *pipeline, struct scheduler_counters *counters) {
        struct scheduler_counters now = {};

        if (pipeline->scheduler)
                scheduler_counters(pipeline->scheduler, &now);
        *counters = pipeline->past;
        scheduler_add_counters(counters, &now);
}

/* Everything that counts only grows, also over rests. */
static void keep_counts(struct pipeline *pipeline) {
        pipeline_counters(pipeline, &pipeline->past);
        pipeline->scheduler = scheduler_free(pipeline->scheduler);
}

/* Lets go of everything that a start takes. */
static void clear(struct pipeline *pipeline) {
        keep_counts(pipeline);
        free(pipeline->slot_ready_ns);
        pipeline->slot_ready_ns = NULL;
        ring_deinit(&pipeline->ring);
        fd_closep(&pipeline->index_fd);
        pipeline->reserved = pipeline->scanned = false;
        pipeline->awaited = pipeline->vain_deaths = pipeline->quarantined = 0;
        suspects_init(pipeline->suspects);
        ledger_deinit(&pipeline->ledger);
        pipeline->spoilt = false;
        pipeline->verdicts = verdicts_free(pipeline->verdicts);
        pipeline_forget_description(pipeline);
}

static void on_all_closed(uv_handle_t *handle) {
        struct pipeline *pipeline = handle->data;

        if (pipeline->events->gone)
                pipeline->events->gone(pipeline->context, pipeline);
}

/* Handles that are closed in one turn are called back in any order, but all of them before one that is closed
 * by a call-back. */
static void on_most_closed(uv_handle_t *handle) {
        struct pipeline *pipeline = handle->data;

        uv_close((uv_handle_t *)&pipeline->resting, on_all_closed);
}

static void on_stopped(void *context) {
        struct pipeline *pipeline = context;

        uv_timer_stop(&pipeline->lagging);
        clear(pipeline);
        if (pipeline->state != PIPELINE_STOPPING) {
                pipeline_start_anew(pipeline);
                if (list_is_empty(&pipeline->jobs) && pipeline->events->rested)
                        pipeline->events->rested(pipeline->context, pipeline);
                return;
        }
        pool_deinit(&pipeline->pool);
        uv_close((uv_handle_t *)&pipeline->reserving, on_most_closed);
        uv_close((uv_handle_t *)&pipeline->space.pause, NULL);
        uv_close((uv_handle_t *)&pipeline->growing, NULL);
        uv_close((uv_handle_t *)&pipeline->reporting, NULL);
        uv_close((uv_handle_t *)&pipeline->lagging, NULL);
        uv_close((uv_handle_t *)&pipeline->restart, NULL);
}

void pipeline_stop(struct pipeline *pipeline) {
        pipeline->state = PIPELINE_STOPPING;
        uv_idle_stop(&pipeline->reserving);
        uv_idle_stop(&pipeline->growing);
        uv_timer_stop(&pipeline->reporting);
        uv_timer_stop(&pipeline->lagging);
        uv_timer_stop(&pipeline->restart);
        uv_timer_stop(&pipeline->resting);
        pipeline_forget_space(pipeline);
        pipeline->description = description_free(pipeline->description, true);
        list_for_each_safe (link, &pipeline->jobs)
                job_close(pipeline_job_of(link), NULL);
        pool_stop(&pipeline->pool, true);
}

int pipeline_new(struct pipeline **pipelinep, uv_loop_t *loop, struct config *whole,
                 const struct config_pipeline *config, struct budget *budget, const char *program,
                 const struct pipeline_events *events, void *context) {
        static const struct pool_events pool_events = {
                .scanning = on_scanning,
                .scanned = on_scanned,
                .done = on_done,
                .recalled = pipeline_on_recalled,
                .resumed = pipeline_on_resumed,
                .broken = on_broken,
                .replaced = pipeline_on_replaced,
                .started = on_started,
                .died = pipeline_on_died,
                .stuck = pipeline_on_stuck,
                .returned = pipeline_on_returned,
                .stopped = on_stopped,
        };
        struct pipeline *pipeline = calloc(1, sizeof(*pipeline));

        if (!pipeline)
                return -ENOMEM;
        *pipeline = (struct pipeline){.whole = whole,
                                      .config = config,
                                      .defined = config,
                                      .loop = loop,
                                      .budget = budget,
                                      .workers = (uint32_t)config->workers,
                                      .events = events,
                                      .context = context,
                                      .ring = RING_INIT,
                                      .made_ns = clock_ns(),
                                      .index_fd = -1};
        snprintf(pipeline->label, sizeof(pipeline->label), "%s", config->name);
        pipeline->suspects = calloc(1, sizeof(*pipeline->suspects));
        if (!pipeline->suspects) {
                free(pipeline);
                return -ENOMEM;
        }
        config_ref(whole);
        suspects_init(pipeline->suspects);
        list_init(&pipeline->jobs);
        list_init(&pipeline->zygotes);
        orders_init(&pipeline->orders);
        uv_idle_init(loop, &pipeline->reserving);
        uv_idle_init(loop, &pipeline->growing);
        uv_timer_init(loop, &pipeline->reporting);
        uv_timer_init(loop, &pipeline->lagging);
        uv_timer_init(loop, &pipeline->restart);
        uv_timer_init(loop, &pipeline->resting);
        uv_timer_init(loop, &pipeline->space.pause);
        pipeline->space.pause.data = pipeline->space.work.data = pipeline;
        pipeline->reserving.data = pipeline->growing.data = pipeline->reporting.data = pipeline;
        pipeline->restart.data = pipeline->resting.data = pipeline->lagging.data = pipeline;
        pool_init(&pipeline->pool, loop, program, (int)whole->nice, config->sample_timeout, &pool_events,
                  pipeline);
        if (recipe_is_described(&config->recipe)) {
                interpreter_init(&pipeline->interpreter, config->recipe.source.interpreter);
                pipeline->pool.interpreter = &pipeline->interpreter;
        }
        pipeline_join_budget(pipeline);
        *pipelinep = pipeline;
        return 0;
}

struct pipeline *pipeline_free(struct pipeline *pipeline) {
        if (!pipeline)
                return NULL;
        budget_leave(&pipeline->member);
        clear(pipeline);
        orders_deinit(&pipeline->orders);
        free(pipeline->suspects);
        config_unref(pipeline->whole);
        free(pipeline);
        return NULL;
}
