/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Status. Its one promise is to answer at once in every state, so it looks at what is in memory anyway:
 * counters of the scheduler, the pages that workers write, the kernel's CPU clocks. Of a ring with very many
 * slots only the first are listed, for the same reason; all are counted. Everything that counts only grows.
 */

#include "daemon/status.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number.h"
#include "daemon/counters.h"
#include "daemon/daemon.h"
#include "daemon/guard.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/metrics-http.h"
#include "daemon/observe.h"
#include "daemon/scheduler.h"
#include "daemon/service.h"
#include "daemon/stages.h"
#include "daemon/verdicts.h"
#include "proto/worker-page.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* rows 0: it catches up with nobody. */
struct catching_up {
        uint32_t job;
        uint64_t rows;
};

static double seconds_since(uint64_t then_ns) {
        return (double)(clock_ns() - then_ns) / NS_PER_S;
}

static double seconds_until(uint64_t then_ns) {
        uint64_t now = clock_ns();

        return then_ns > now ? (double)(then_ns - now) / NS_PER_S : 0;
}

/* JSON's whole numbers are signed here; what does not fit (a seed may not) is its digits as text. */
static json_t *unsigned_number(uint64_t value) {
        char digits[24];

        if (value <= INT64_MAX)
                return json_integer((json_int_t)value);
        snprintf(digits, sizeof(digits), "%" PRIu64, value);
        return json_string(digits);
}

/* File names may be any bytes; JSON takes UTF-8 only, and one member that cannot be made would cost the whole
 * answer. */
static json_t *text_or_null(const char *text) {
        char clean[PATH_MAX];

        if (!text || !*text)
                return json_null();
        fault_sanitize(clean, sizeof(clean), text, strlen(text));
        return json_string(clean);
}

static const char *slot_state_name(enum scheduler_slot_state state) {
        static const char *const names[] = {"free", "filling", "ready", "quarantined"};

        return names[state];
}

/* null for a time that never was. */
static json_t *seconds_or_null(uint64_t then_ns) {
        return then_ns > 0 ? json_real(seconds_since(then_ns)) : json_null();
}

static int compare_ids(const void *a, const void *b) {
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

/* Of `n` ids, as many as there was room for. */
static json_t *make_ids(uint32_t ids[STATUS_IDS_MAX], uint32_t n) {
        json_t *list = json_array();

        if (n > STATUS_IDS_MAX)
                n = STATUS_IDS_MAX;
        qsort(ids, n, sizeof(*ids), compare_ids);
        for (uint32_t i = 0; i < n; i++)
                json_array_append_new(list, unsigned_number(ids[i]));
        return list;
}

static json_t *make_fields(const struct schema *schema) {
        json_t *fields = json_array();

        for (uint32_t i = 0; i < schema->n_fields; i++) {
                const struct schema_field *field = &schema->fields[i];
                json_t *shape = json_array();

                for (uint32_t k = 0; k < field->n_dims; k++)
                        json_array_append_new(shape, unsigned_number(field->shape[k]));
                json_array_append_new(
                        fields,
                        json_pack("{s:s, s:s, s:o, s:s}", "name", field->name, "dtype",
                                  schema_dtype_name(field->dtype), "shape", shape, "layout",
                                  field->order == SCHEMA_CHANNELS_LAST ? "channels_last" : "row-major"));
        }
        return fields;
}

static uint64_t row_bytes(const struct schema *schema) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < schema->n_fields; i++)
                sum += schema->fields[i].row_bytes;
        return sum;
}

static json_t *make_slot(const struct pipeline *pipeline, uint32_t slot,
                         const struct scheduler_slot_view *view) {
        uint32_t ids[STATUS_IDS_MAX];
        json_t *object = json_pack("{s:s, s:i, s:s, s:I, s:I, s:o, s:I, s:I, s:I}", "pipeline",
                                   pipeline->label, "slot", (int)slot, "state", slot_state_name(view->state),
                                   "epoch", (json_int_t)view->epoch, "index", (json_int_t)view->index, "seed",
                                   unsigned_number(view->seed), "leases", (json_int_t)view->leases,
                                   "rows_done", (json_int_t)view->rows_done, "rows", (json_int_t)view->rows);

        if (view->leases == 0)
                return object;
        json_object_set_new(object, "held_by",
                            make_ids(ids, scheduler_holders(pipeline->scheduler, slot, ids, STATUS_IDS_MAX)));
        json_object_set_new(object, "held_seconds", json_real(seconds_since(view->leased_since)));
        return object;
}

static void add_slots(json_t *slots, const struct pipeline *pipeline) {
        for (uint32_t i = 0; pipeline->scheduler && i < pipeline->ring.slots && i < STATUS_SLOTS_MAX; i++) {
                struct scheduler_slot_view view;

                scheduler_view_slot(pipeline->scheduler, i, &view);
                json_array_append_new(slots, make_slot(pipeline, i, &view));
        }
}

/* The first ones, with file and reason. */
static json_t *make_bad(const struct ledger *ledger) {
        json_t *list = json_array();

        for (uint32_t i = 0; i < ledger->n_shown; i++)
                json_array_append_new(list, json_pack("{s:o, s:s, s:s}", "sample",
                                                      unsigned_number(ledger->shown[i].sample), "file",
                                                      ledger->shown[i].file, "text", ledger->shown[i].text));
        return list;
}

static json_t *make_condemned(const struct verdicts *verdicts) {
        json_t *list = json_array();

        for (size_t i = 0; verdicts && i < verdicts->n && i < LEDGER_SHOWN_MAX; i++)
                json_array_append_new(list, json_pack("{s:o, s:s, s:s, s:I, s:b}", "sample",
                                                      unsigned_number(verdicts->list[i].sample), "file",
                                                      verdicts->list[i].file, "text", verdicts->list[i].text,
                                                      "time", (json_int_t)verdicts->list[i].time, "lifted",
                                                      verdicts->list[i].lifted));
        return list;
}

static void add_counters(json_t *object, const struct pipeline *pipeline) {
        uint64_t values[COUNTERS_OF_PIPELINE];

        counters_read_pipeline(values, pipeline);
        counters_to_json(object, counters_of_pipeline, values, COUNTERS_OF_PIPELINE);
}

static void add_verifying(json_t *object, const struct daemon *daemon, const struct pipeline *pipeline) {
        uint64_t done, total;

        if (verify_progress(&daemon->verify, pipeline, &done, &total))
                json_object_set_new(object, "verifying",
                                    json_pack("{s:o, s:o}", "samples", unsigned_number(done), "total",
                                              unsigned_number(total)));
}

static json_t *make_streams(const struct pipeline *pipeline) {
        struct scheduler_stream_view view;
        json_t *list = json_array();

        for (uint32_t i = 0; pipeline->scheduler && i < STATUS_STREAMS_MAX &&
                             scheduler_view_stream(pipeline->scheduler, i, &view);
             i++) {
                json_t *factor = view.rows_prepared > 0
                                         ? json_real((double)view.rows_delivered / (double)view.rows_prepared)
                                         : json_null();

                json_array_append_new(list, json_pack("{s:o, s:i, s:I, s:I, s:I, s:o, s:I, s:I}", "seed",
                                                      unsigned_number(view.seed), "jobs", (int)view.jobs,
                                                      "rows_prepared", (json_int_t)view.rows_prepared,
                                                      "rows_delivered", (json_int_t)view.rows_delivered,
                                                      "rows_refilled", (json_int_t)view.rows_refilled,
                                                      "sharing_factor", factor, "catch_ups",
                                                      (json_int_t)view.catch_ups, "catch_ups_met",
                                                      (json_int_t)view.catch_ups_met));
        }
        return list;
}

static json_t *make_diagnosis(const struct diagnosis *diagnosis) {
        return json_pack("{s:s, s:s, s:o, s:o}", "what", diagnosis_kind_name(diagnosis->kind), "text",
                         diagnosis->text, "workers_needed",
                         diagnosis->workers_needed > 0 ? unsigned_number(diagnosis->workers_needed)
                                                       : json_null(),
                         "job", diagnosis->job > 0 ? unsigned_number(diagnosis->job) : json_null());
}

/* What happened over the last seconds, and what it means. */
static void add_recent(json_t *object, const struct daemon *daemon, const struct pipeline *pipeline) {
        struct observed_pipeline observed;

        observe_pipeline(&observed, daemon, pipeline, clock_ns());
        json_object_set_new(object, "recent",
                            json_pack("{s:f, s:f, s:f, s:f}", "seconds", observed.seconds,
                                      "rows_prepared_per_second", observed.prepared_per_second,
                                      "rows_delivered_per_second", observed.delivered_per_second,
                                      "workers_busy", observed.busy));
        json_object_set_new(object, "held_back_by", make_diagnosis(&observed.diagnosis));
}

static json_t *make_stages(const struct pipeline *pipeline) {
        struct stage_times times;

        pool_stages(&pipeline->pool, &times);
        return stages_to_json(&times);
}

/* Who may use it, in words. */
static void add_access(json_t *object, const struct pipeline *pipeline) {
        const struct config *whole = pipeline->whole;

        json_object_set_new(object, "allow",
                            text_or_null(access_text(config_allow(whole, pipeline->defined))));
        json_object_set_new(object, "allow_pinned",
                            text_or_null(access_text(config_allow_pinned(whole, pipeline->defined))));
}

static json_t *make_pipeline(const struct daemon *daemon, const struct pipeline *pipeline, json_t *slots) {
        const struct config_pipeline *config = pipeline->config;
        const struct recipe_source *source = &config->recipe.source;
        json_t *object = json_object();

        json_object_set_new(object, "name", json_string(pipeline->label));
        json_object_set_new(object, "state", json_string(pipeline_state_name(pipeline->state)));
        json_object_set_new(object, "error",
                            pipeline->state == PIPELINE_FAILED ? json_string(pipeline->failure.text)
                                                               : json_null());
        json_object_set_new(object, "last_error", text_or_null(pipeline->failure.text));
        json_object_set_new(object, "source", json_string(recipe_sources[source->type].name));
        json_object_set_new(object, "path", text_or_null(source->path));
        json_object_set_new(object, "dataset", text_or_null(source->dataset));
        json_object_set_new(object, "deterministic",
                            json_boolean(source->type != RECIPE_PYTHON || source->deterministic));
        json_object_set_new(object, "zygote",
                            pipeline->pool.zygote ? json_integer(pipeline->zygote_pid) : json_null());
        json_object_set_new(object, "samples",
                            pipeline->scanned ? unsigned_number(pipeline->index.samples) : json_null());
        json_object_set_new(object, "classes", unsigned_number(pipeline->scan_classes));
        json_object_set_new(object, "scan_files", unsigned_number(pipeline->scan_files));
        json_object_set_new(object, "batch_size", unsigned_number(config->batch_size));
        json_object_set_new(object, "last_batch",
                            json_string(config_last_batch_name((enum last_batch)config->last_batch)));
        json_object_set_new(object, "lookahead", unsigned_number(config->lookahead));
        json_object_set_new(object, "fingerprint", text_or_null(pipeline->fingerprint));
        json_object_set_new(object, "shuffle", json_boolean(config->shuffle));
        json_object_set_new(object, "seed", unsigned_number(config->seed));
        json_object_set_new(object, "fields", make_fields(&config->schema));
        json_object_set_new(object, "row_bytes", unsigned_number(row_bytes(&config->schema)));
        json_object_set_new(object, "workers_auto", json_boolean(pipeline->workers == 0));
        json_object_set_new(object, "backing", text_or_null(ring_backing_name(&pipeline->ring)));
        add_counters(object, pipeline);
        json_object_set_new(object, "bad", make_bad(&pipeline->ledger));
        json_object_set_new(object, "condemned", make_condemned(pipeline->verdicts));
        add_slots(slots, pipeline);
        json_object_set_new(object, "streams", make_streams(pipeline));
        add_recent(object, daemon, pipeline);
        add_verifying(object, daemon, pipeline);
        json_object_set_new(object, "defined_in",
                            text_or_null(pipeline->definition ? pipeline->whole->file : ""));
        json_object_set_new(object, "stages", make_stages(pipeline));
        add_access(object, pipeline);
        json_object_set_new(object, "superseded", json_boolean(pipeline->superseded));
        json_object_set_new(object, "waiting_for", text_or_null(pipeline_waiting_for(pipeline)));
        return object;
}

/* Their pages are there for as long as they are listed. */
static json_t *make_worker_stages(const struct pool_worker *worker) {
        struct stage_times times;

        pool_worker_stages(worker, &times);
        return stages_to_json(&times);
}

static void add_workers(json_t *workers, const struct pipeline *pipeline) {
        list_for_each (link, &pipeline->pool.workers) {
                struct pool_worker *worker = container_of(link, struct pool_worker, link);
                uint64_t values[COUNTERS_OF_WORKER];
                uint64_t sample = WORKER_PAGE_IDLE, started = 0;
                json_t *object = json_object();

                if (worker->page) {
                        sample = atomic_load_explicit(&worker->page->sample, memory_order_acquire);
                        started = atomic_load_explicit(&worker->page->started_ns, memory_order_relaxed);
                }
                if (worker->state != POOL_WORKER_BUSY)
                        sample = WORKER_PAGE_IDLE;
                json_object_set_new(object, "pipeline", json_string(pipeline->label));
                json_object_set_new(object, "number", unsigned_number(worker->number));
                json_object_set_new(object, "pid",
                                    worker->process.pid > 0 ? json_integer(worker->process.pid)
                                                            : json_null());
                json_object_set_new(object, "state", json_string(pool_worker_state_name(worker->state)));
                json_object_set_new(object, "sample",
                                    sample == WORKER_PAGE_IDLE ? json_null() : unsigned_number(sample));
                json_object_set_new(object, "sample_seconds",
                                    sample == WORKER_PAGE_IDLE ? json_null()
                                                               : json_real(seconds_since(started)));
                counters_read_worker(values, worker);
                counters_to_json(object, counters_of_worker, values, COUNTERS_OF_WORKER);
                json_object_set_new(object, "uptime_seconds", json_real(seconds_since(worker->started_ns)));
                json_object_set_new(object, "stages", make_worker_stages(worker));
                json_array_append_new(workers, object);
        }
}

/* "waits for rank 2 of group run, at most 268 s more" */
static void describe_missing(const struct pipeline *pipeline, const struct job *job, char *text,
                             size_t size) {
        uint64_t until = pipeline_group_until(job), now = clock_ns();
        char missing[128], most[64] = "";

        pipeline_name_missing(pipeline, job, missing, sizeof(missing));
        if (until != UINT64_MAX)
                snprintf(most, sizeof(most), ", at most %.0f s more",
                         until > now ? (double)(until - now) / NS_PER_S : 0);
        snprintf(text, size, "waits for %s of group %s%s", missing, job->attach.group, most);
}

/* What it waits for, or what the others do about it, in words; "" if there is nothing to say. The first that
 * holds: from what keeps it from any batch to what only tells how it shares. */
static void make_note(char *note, size_t size, const struct scheduler_job_view *view,
                      const struct catching_up *catching_up) {
        char rows[NUMBER_TEXT_MAX];

        *note = 0;
        if (view->parked)
                snprintf(note, size, "waits for the job to ask for epoch %u", view->next.epoch);
        else if (view->gathering)
                snprintf(note, size, "gather %u: %u of %u there, at most %.0f s longer", view->gather,
                         view->come, view->gather, seconds_until(view->gather_until));
        else if (catching_up->rows > 0)
                snprintf(note, size, "catches up with job %u, %s rows behind", catching_up->job,
                         number_format_count(rows, catching_up->rows));
        else if (view->demoted)
                snprintf(note, size, "gives nothing back: the others in lockstep wait for it no more");
        else if (view->led)
                snprintf(note, size, "in lockstep: waits for job %u, the last one", view->pace);
        else if (view->pace > 0)
                snprintf(note, size, "in lockstep");
}

/* How it shares, now: members of their own, and the same in words. */
static void add_sharing(json_t *object, const struct pipeline *pipeline, const struct job *job,
                        const struct scheduler_job_view *view) {
        struct catching_up catching_up = {};
        char note[256];

        if (pipeline && pipeline->scheduler)
                catching_up.rows = scheduler_catching_up(pipeline->scheduler, job->id, &catching_up.job);
        json_object_set_new(object, "bound", json_boolean(view->bound));
        json_object_set_new(object, "demoted", json_boolean(view->demoted));
        json_object_set_new(object, "led", view->led ? unsigned_number(view->pace) : json_null());
        json_object_set_new(object, "gathering",
                            view->gathering
                                    ? json_pack("{s:i, s:i, s:f}", "jobs", (int)view->gather, "there",
                                                (int)view->come, "seconds", seconds_until(view->gather_until))
                                    : json_null());
        json_object_set_new(object, "catching_up",
                            catching_up.rows > 0
                                    ? json_pack("{s:o, s:o}", "job", unsigned_number(catching_up.job), "rows",
                                                unsigned_number(catching_up.rows))
                                    : json_null());
        json_object_set_new(object, "expecting", json_boolean(view->expecting));
        make_note(note, sizeof(note), view, &catching_up);
        if (view->expecting)
                describe_missing(pipeline, job, note, sizeof(note));
        json_object_set_new(object, "note", text_or_null(note));
}

/* What the scheduler knows of a job that is attached. */
static void add_position(json_t *object, const struct pipeline *pipeline, const struct job *job) {
        struct scheduler_job_view view = {};

        if (pipeline && pipeline->scheduler)
                scheduler_view_job(pipeline->scheduler, job->id, &view);
        json_object_set_new(object, "epoch", unsigned_number(view.next.epoch));
        json_object_set_new(object, "row", unsigned_number(view.next.row));
        json_object_set_new(object, "waiting", json_boolean(view.waiting));
        json_object_set_new(object, "parked", json_boolean(view.parked));
        json_object_set_new(object, "unread", json_boolean(view.unread));
        add_sharing(object, pipeline, job, &view);
}

/* How its time went, and with whom it shares. */
static void add_account(json_t *object, const struct pipeline *pipeline, const struct job *job) {
        uint32_t ids[STATUS_IDS_MAX] = {}, n = 0;
        struct scheduler_account account = {};
        struct observed_job observed;
        uint64_t now = clock_ns();

        observe_job(&observed, job, now);
        if (pipeline && pipeline->scheduler) {
                scheduler_view_account(pipeline->scheduler, job->id, now, &account);
                n = scheduler_company(pipeline->scheduler, job->id, ids, STATUS_IDS_MAX);
        }
        json_object_set_new(object, "rows_per_second", json_real(observed.rows_per_second));
        json_object_set_new(object, "oldest_held_seconds", seconds_or_null(account.oldest));
        json_object_set_new(object, "released_seconds", seconds_or_null(account.released));
        json_object_set_new(object, "recent",
                            json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", observed.seconds,
                                      "waited_for_data", observed.waited, "empty_handed", observed.empty,
                                      "data_waited", observed.data_waited, "waited_for_jobs",
                                      observed.waited_for_jobs));
        json_object_set_new(object, "shares_with", make_ids(ids, n));
}

/* The file that was read at the start, "" where there was none. */
static const char *config_file(const struct config *config) {
        return strcmp(config->file, CONFIG_NO_FILE) == 0 ? "" : config->file;
}

/* What it asked for, or its pipeline for it. */
static void add_plan(json_t *object, const struct message_attach *attach) {
        json_object_set_new(object, "rank", unsigned_number(attach->rank));
        json_object_set_new(object, "world_size", unsigned_number(attach->world_size));
        json_object_set_new(object, "group", text_or_null(attach->group));
        json_object_set_new(object, "group_size",
                            unsigned_number(attach->group_size ? attach->group_size : attach->world_size));
        json_object_set_new(object, "batch_size", unsigned_number(attach->batch_size));
        json_object_set_new(object, "last_batch",
                            json_string(config_last_batch_name((enum last_batch)attach->last_batch)));
}

static void add_map(json_t *object, const struct map *map) {
        json_object_set_new(object, "map",
                            map->slots > 0 ? json_string(map_kind_name(map->kind)) : json_null());
        json_object_set_new(object, "map_reason", text_or_null(map->reason));
        json_object_set_new(object, "pins", json_boolean(map->pins));
        json_object_set_new(object, "slots", unsigned_number(map->slots));
        json_object_set_new(object, "slots_registered", unsigned_number(map->registered));
}

static json_t *make_job(const struct daemon *daemon, const struct job *job) {
        const struct pipeline *pipeline = job->owner;
        uint64_t values[COUNTERS_OF_JOB];
        json_t *object = json_object();

        json_object_set_new(object, "id", unsigned_number(job->id));
        json_object_set_new(object, "name", json_string(job->attach.name));
        json_object_set_new(object, "pid", json_integer(job->pid));
        json_object_set_new(object, "uid", unsigned_number(job->uid));
        json_object_set_new(object, "pipeline", pipeline ? json_string(pipeline->label) : json_null());
        json_object_set_new(object, "state", json_string(job_state_name(job->state)));
        json_object_set_new(object, "seed", unsigned_number(job->seed));
        add_plan(object, &job->attach);
        json_object_set_new(object, "max_held", unsigned_number(job->outbox_size));
        json_object_set_new(object, "seconds", json_real(seconds_since(job->connected_ns)));
        add_map(object, &job->map);
        json_object_set_new(object, "watched", json_string(job->watched));
        add_position(object, pipeline, job);
        counters_read_job(values, job);
        counters_to_json(object, counters_of_job, values, COUNTERS_OF_JOB);
        add_account(object, pipeline, job);
        json_object_set_new(object, "user", text_or_null(users_name(&daemon->users, job->uid)));
        return object;
}

static void add_daemon(json_t *object, const struct daemon *daemon) {
        uint64_t values[COUNTERS_OF_DAEMON];

        counters_read_daemon(values, daemon, NULL);
        counters_to_json(object, counters_of_daemon, values, COUNTERS_OF_DAEMON);
        json_object_set_new(object, "metrics_listen",
                            text_or_null(daemon->http ? metrics_http_address(daemon->http) : ""));
}

static json_t *make_warnings(const struct surroundings *surroundings) {
        json_t *list = json_array();

        for (uint32_t i = 0; i < surroundings->n; i++)
                json_array_append_new(list, json_string(surroundings->warnings[i].text));
        return list;
}

/* What it has of the service manager that started it. */
static json_t *make_service(const struct daemon *daemon) {
        uint64_t ms = service_watchdog_ms();

        return json_pack("{s:b, s:b, s:o, s:b}", "notify", service_is_told(), "activated", daemon->activated,
                         "watchdog_seconds",
                         ms > 0 ? json_real(2 * (double)ms * NS_PER_MS / NS_PER_S) : json_null(), "journal",
                         log_is_journal());
}

/* Whether a job is the reader's to see. Each that waits for a pipeline, or reads, has one. */
static bool is_shown(const struct job *job, const struct peer *reader) {
        return (job->state == JOB_ATTACHING || job->state == JOB_ATTACHED) &&
               guard_may_use(job->owner, reader);
}

/* Of the last reload; null if there was none. */
static json_t *make_reloaded(const struct reload *reload) {
        if (reload->last_ns == 0)
                return json_null();
        return json_pack("{s:f, s:o}", "seconds_ago", seconds_since(reload->last_ns), "error",
                         text_or_null(reload->failure.text));
}

/* What its administrator has done to it. */
static void add_administration(json_t *status, const struct daemon *daemon) {
        json_object_set_new(status, "generation", unsigned_number(daemon->reload.generation));
        json_object_set_new(status, "reloaded", make_reloaded(&daemon->reload));
        json_object_set_new(status, "draining", json_boolean(daemon->drain.is_on));
}

json_t *status_make(const struct daemon *daemon, const struct peer *reader) {
        json_t *pipelines = json_array(), *workers = json_array(), *jobs = json_array(),
               *slots = json_array(), *status;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                if (!guard_may_use(daemon->pipelines[i], reader))
                        continue;
                json_array_append_new(pipelines, make_pipeline(daemon, daemon->pipelines[i], slots));
                add_workers(workers, daemon->pipelines[i]);
        }
        list_for_each (link, &daemon->jobs) {
                const struct job *job = container_of(link, struct job, link);

                if (is_shown(job, reader))
                        json_array_append_new(jobs, make_job(daemon, job));
        }
        status = json_pack("{s:i, s:s, s:i, s:f, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "schema", STATUS_SCHEMA,
                           "version", PINFEED_VERSION, "pid", (int)getpid(), "uptime_seconds",
                           seconds_since(daemon->started_ns), "runtime_dir", text_or_null(daemon->directory),
                           "config", text_or_null(config_file(daemon->config)), "cpus_auto",
                           daemon->config->cpus == 0, "pipelines", pipelines, "workers", workers, "jobs",
                           jobs, "slots", slots);
        if (!status)
                return NULL;
        add_daemon(status, daemon);
        json_object_set_new(status, "warnings", make_warnings(&daemon->surroundings));
        json_object_set_new(status, "service", make_service(daemon));
        add_administration(status, daemon);
        return status;
}
