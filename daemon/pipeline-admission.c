/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Admission: a waiting job becomes a reader of its stream, or is refused with the reason. What it asked for
 * is checked here, against what only a scan could show (the number of samples, whether a saved state still
 * fits) and against the ring's room.
 *
 * Ranks are jobs like any other: each has its own plan, is charged its own minimum, and shares what is
 * prepared with whoever is near. Those of a group are let in as a whole: pipeline-group.c. */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number.h"
#include "daemon/fingerprint.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/map.h"
#include "daemon/scheduler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        /* of all batches that a job may hold: 8 MiB of segments */
        ADMISSION_SEGMENTS_MAX = 1 << 19,
};

static uint32_t count_others(const struct pipeline *pipeline, const struct job *job) {
        uint32_t others = 0;

        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                others += other != job && other->state == JOB_ATTACHED && other->seed == job->seed;
        }
        return others;
}

/* A job that begins `rows` behind job `front`: whether that will change, and what would help. */
static void describe_lag(const struct pipeline *pipeline, uint64_t rows, uint32_t front, char *text,
                         size_t size) {
        uint64_t per_second = pipeline_rows_in(pipeline, NS_PER_S);
        double seconds = per_second > 0 ? (double)rows / (double)per_second : 0;
        char count[NUMBER_TEXT_MAX];

        number_format_count(count, rows);
        if (pipeline->config->catch_up == 0)
                snprintf(text, size,
                         "%s rows behind job %u, and catch_up is 0: attach with start live to share", count,
                         front);
        else if (seconds > pipeline->config->catch_up)
                snprintf(text, size,
                         "%s rows (%.1f s of work) behind job %u, more than catch_up (%.10g s): attach with "
                         "start live "
                         "to share",
                         count, seconds, front, pipeline->config->catch_up);
        else if (per_second > 0)
                snprintf(text, size, "%s rows behind job %u, catches up in about %.*f s", count, front,
                         seconds < 10 ? 1 : 0, seconds);
        else
                snprintf(text, size, "%s rows behind job %u, catches up if that is at most %.10g s of work",
                         count, front, pipeline->config->catch_up);
}

/* With max_lead, or what the ring leaves of it. */
static void describe_lead(const struct pipeline *pipeline, char *text, size_t size) {
        char count[NUMBER_TEXT_MAX];

        snprintf(text, size, " in lockstep, at most %s rows apart",
                 number_format_count(count, scheduler_lead(pipeline->scheduler)));
}

/* What a job is told about its company. */
static void describe_sharing(struct pipeline *pipeline, const struct job *job, char *text, size_t size) {
        uint32_t others = count_others(pipeline, job), front = 0;
        uint64_t rows = scheduler_lag(pipeline->scheduler, job->id, &front);
        char lag[256] = "", lead[80] = "";

        if (others == 0) {
                snprintf(text, size, "alone in this stream (seed %" PRIu64 ")", job->seed);
                return;
        }
        if (rows > 0)
                describe_lag(pipeline, rows, front, lag, sizeof(lag));
        if (pipeline_is_lockstep(pipeline))
                describe_lead(pipeline, lead, sizeof(lead));
        snprintf(text, size, "shares this stream (seed %" PRIu64 ") with %u other job%s%s%s%s", job->seed,
                 others, others == 1 ? "" : "s", lead, rows > 0 ? "; " : "", lag);
}

static void describe_schema(const struct schema *schema, struct message_attached *attached) {
        attached->slot_rows = schema->slot_rows;
        attached->slot_stride = schema->slot_stride;
        attached->slot_bytes = schema->slot_bytes;
        attached->ids_offset = schema->ids_offset;
        attached->flags_offset = schema->flags_offset;
        attached->n_field = schema->n_fields;
        for (uint32_t i = 0; i < schema->n_fields; i++) {
                const struct schema_field *field = &schema->fields[i];
                struct message_field *entry = &attached->field[i];

                *entry = (struct message_field){.dtype = (uint8_t)field->dtype,
                                                .order = (uint8_t)field->order,
                                                .kind = (uint8_t)field->kind,
                                                .n_shape = field->n_dims,
                                                .offset = field->offset,
                                                .capacity = field->capacity};
                snprintf(entry->name, sizeof(entry->name), "%s", field->name);
                memcpy(entry->shape, field->shape, sizeof(entry->shape));
        }
}

struct scheduler_config pipeline_geometry(const struct pipeline *pipeline) {
        return (struct scheduler_config){.slots = pipeline->ring.slots,
                                         .slot_rows = (uint32_t)pipeline->config->batch_size,
                                         .samples = pipeline->index.samples};
}

struct position_plan pipeline_plan(const struct pipeline *pipeline, const struct job *job) {
        return (struct position_plan){.samples = pipeline->index.samples,
                                      .batch_size = job->attach.batch_size,
                                      .rank = job->attach.rank,
                                      .world_size = job->attach.world_size,
                                      .last_batch = (enum last_batch)job->attach.last_batch};
}

/* A saved state fits what the pipeline makes now; `force` takes its place all the same, if there is such a
 * row. */
static int check_state(const struct pipeline *pipeline, const struct job *job, struct fault *fault) {
        const struct message_attach *attach = &job->attach;
        int r = 0;

        if (attach->state_given && !attach->force)
                r = fingerprint_compare(pipeline->fingerprint, job->seed, attach->fingerprint,
                                        attach->state_seed, fault);
        if (r < 0 || !attach->state_given || attach->start_row < pipeline->index.samples)
                return r;
        return fault_set(fault, -EINVAL,
                         "the state stands at row %" PRIu64 " of epoch %u, an epoch has %" PRIu64
                         " rows; attach without it",
                         attach->start_row, attach->start_epoch, pipeline->index.samples);
}

/* A rank of the same run that has started live: what it was told holds for all. A name that still stands for
 * a run before, whose ranks have not gone, is nobody. */
static const struct job *find_live_rank(const struct pipeline *pipeline, const struct job *job) {
        const struct job *found = NULL;

        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other == job || other->state != JOB_ATTACHED || other->seed != job->seed ||
                    other->attach.start != MESSAGE_START_LIVE ||
                    strcmp(other->attach.group, job->attach.group) != 0)
                        continue;
                if (other->attach.rank == job->attach.rank)
                        return NULL;
                found = other;
        }
        return found;
}

/* start live: where the leading job of the stream is, rounded up to a step of this job's own. The place is
 * noted in job->attach, for the other ranks and for another try. */
static int start_live(const struct pipeline *pipeline, struct job *job, const struct position_plan *plan,
                      struct fault *fault) {
        struct message_attach *attach = &job->attach;
        const struct job *rank = *attach->group ? find_live_rank(pipeline, job) : NULL;
        uint64_t row = 0, step = (uint64_t)plan->batch_size * plan->world_size;
        struct position first;
        uint32_t epoch = 0;

        if (attach->state_given)
                return fault_set(fault, -EINVAL,
                                 "start live and a state are two places; attach with one of them");
        if (plan->world_size > 1 && !*attach->group)
                return fault_set(
                        fault, -EINVAL,
                        "start live with %u ranks needs a group, so that all of them start at one place; "
                        "give the ranks of a run one name as `group`",
                        plan->world_size);
        if (rank) {
                epoch = rank->attach.start_epoch;
                row = rank->attach.start_row;
        } else if (scheduler_leader(pipeline->scheduler, job->seed, &epoch, &row)) {
                row = (row + step - 1) / step * step;
                epoch += row >= plan->samples;
                row = row >= plan->samples ? 0 : row;
        }
        first = position_first(plan, epoch, row); /* DROP: the next epoch, if less than a step is left */
        attach->start_epoch = first.epoch;
        attach->start_row = first.base;
        return 0;
}

/* A batch must fit into a record. */
static int check_segments(const struct pipeline *pipeline, const struct position_plan *plan,
                          struct fault *fault) {
        uint32_t slot_rows = (uint32_t)pipeline->config->batch_size;
        uint64_t segments = position_segments(plan, slot_rows);

        if (segments <= MESSAGE_SEGMENTS_MAX)
                return 0;
        return fault_set(
                fault, -EINVAL,
                "batch_size: a batch of %u rows may lie in %" PRIu64
                " pieces (slots have %u rows, an epoch %" PRIu64
                "), at most %d are possible; attach with a smaller one, or give the pipeline a larger one",
                plan->batch_size, segments, slot_rows, plan->samples, MESSAGE_SEGMENTS_MAX);
}

/* More batches than this no job can hold, and the outbox for those that it may hold is bounded. In each slot
 * lie as many batches as fit in whole, and one that is a tail or reaches into the next slot. */
static uint32_t bound_held(const struct pipeline *pipeline, const struct position_plan *plan,
                           uint32_t wanted) {
        uint64_t slots = pipeline->ring.slots, slot_rows = pipeline->config->batch_size;
        uint64_t most = slots * (slot_rows / plan->batch_size + 1) + 1;
        uint64_t room = ADMISSION_SEGMENTS_MAX / position_segments(plan, (uint32_t)slot_rows);

        if (most > SCHEDULER_HELD_MAX)
                most = SCHEDULER_HELD_MAX;
        if (most > room)
                most = room;
        return wanted < most ? wanted : (uint32_t)most;
}

static void log_welcome(const struct pipeline *pipeline, const struct job *job,
                        const struct message_attached *attached) {
        char rank[MESSAGE_NAME_MAX + 64] = "";

        if (job->attach.world_size > 1 || *job->attach.group)
                snprintf(rank, sizeof(rank), " as rank %u of %u%s%s", job->attach.rank,
                         job->attach.world_size, *job->attach.group ? " in group " : "", job->attach.group);
        log_about(&(struct log_subject){.pipeline = pipeline->label, .job = job->id}, LOG_INFO,
                  "job %u (%s, pid %d) reads %s from epoch %u row %" PRIu64 "%s: %s", job->id,
                  *job->attach.name ? job->attach.name : "unnamed", (int)job->pid, pipeline->label,
                  attached->start_epoch, attached->start_row, rank, attached->sharing);
}

/* Whether it may write to the ring, so that its slots can be page-locked. */
static void decide_map(const struct pipeline *pipeline, const struct job *job,
                       struct message_attached *attached) {
        const struct access *pinned = config_allow_pinned(pipeline->whole, pipeline->defined);
        char where[PATH_MAX + 16];

        snprintf(where, sizeof(where), "%s:%u", pipeline->whole->file,
                 pinned->line ? pinned->line : pipeline->defined->line);
        attached->map = (uint8_t)map_decide((enum message_map)job->attach.map, job->may_pin, job->uid, where,
                                            attached->map_reason, sizeof(attached->map_reason));
}

/* What the job is told: where its stream begins and how its slots are laid out. */
static void welcome(struct pipeline *pipeline, struct job *job, const struct scheduler_job *entry,
                    uint32_t minimum) {
        struct message message = {.type = MESSAGE_ATTACHED};
        struct message_attached *attached = &message.attached;

        attached->job = job->id;
        attached->pid = (uint32_t)getpid();
        attached->samples = pipeline->index.samples;
        attached->seed = job->seed;
        attached->start_epoch = entry->start_epoch;
        attached->start_row = entry->start_row;
        attached->batch_size = entry->plan.batch_size;
        attached->last_batch = (uint8_t)entry->plan.last_batch;
        attached->max_held = entry->max_held;
        attached->minimum = minimum;
        decide_map(pipeline, job, attached);
        attached->lookahead = entry->lookahead;
        snprintf(attached->fingerprint, sizeof(attached->fingerprint), "%s", pipeline->fingerprint);
        snprintf(attached->pipeline, sizeof(attached->pipeline), "%s", pipeline->label);
        attached->slots = pipeline->ring.slots;
        snprintf(attached->layout, sizeof(attached->layout), "%s", pipeline->layout ? pipeline->layout : "");
        describe_schema(&pipeline->config->schema, attached);
        describe_sharing(pipeline, job, attached->sharing, sizeof(attached->sharing));
        log_welcome(pipeline, job, attached);
        pipeline->past_jobs.jobs++;
        job_set_attached(job, &message,
                         attached->map == MESSAGE_MAP_PINNED ? pipeline->ring.fd : pipeline->ring.fd_readonly,
                         (uint32_t)position_segments(&entry->plan, attached->slot_rows));
}

/* Where in the configuration stands what the job does not fit to. */
static int refused_by(const struct pipeline *pipeline, unsigned line, int r, struct fault *fault) {
        return fault_prefix(fault, r, "pipeline %s (%s:%u)", pipeline->label, pipeline->whole->file, line);
}

/* What the job asked for, as the scheduler wants it. */
static int make_entry(const struct pipeline *pipeline, struct job *job, struct scheduler_job *entry,
                      struct fault *fault) {
        struct position_plan plan = pipeline_plan(pipeline, job);
        int r;

        r = position_check(&plan, 0, fault);
        if (r >= 0)
                r = pipeline_check_group(pipeline, job, fault);
        if (r == -EEXIST)
                return r;
        if (r >= 0)
                r = check_segments(pipeline, &plan, fault);
        if (r < 0)
                return refused_by(pipeline, pipeline->config->batch_size_line, r, fault);
        if (job->attach.start == MESSAGE_START_LIVE)
                r = start_live(pipeline, job, &plan, fault);
        if (r >= 0)
                r = check_state(pipeline, job, fault);
        if (r >= 0)
                r = position_check(&plan, job->attach.start_row, fault);
        if (r >= 0)
                r = pipeline_check_order(
                        pipeline, job->seed,
                        position_first(&plan, job->attach.start_epoch, job->attach.start_row).epoch, fault);
        if (r < 0)
                return refused_by(pipeline, pipeline->config->line, r, fault);
        *entry = (struct scheduler_job){.id = job->id,
                                        .seed = job->seed,
                                        .plan = plan,
                                        .start_epoch = job->attach.start_epoch,
                                        .start_row = job->attach.start_row,
                                        .max_held = bound_held(pipeline, &plan, job->attach.max_held),
                                        .ahead = pipeline->awaited + pipeline_promised(pipeline, job),
                                        .lookahead = (uint32_t)pipeline->config->lookahead,
                                        .gather = job->attach.gather,
                                        .gather_until = job->connected_ns +
                                                        job->attach.gather_ms * (uint64_t)NS_PER_MS,
                                        .expecting = !pipeline_group_has_begun(pipeline, job),
                                        .unread = true};
        return 0;
}

/* The scheduler has said no. What stands in the way may be ranks of its own group that have not come. */
static void refuse(const struct pipeline *pipeline, struct job *job, int r, struct fault *fault) {
        char missing[128], text[FAULT_TEXT_MAX];

        if (r == SCHEDULER_E_FULL && !pipeline_group_has_begun(pipeline, job)) {
                pipeline_name_missing(pipeline, job, missing, sizeof(missing));
                snprintf(text, sizeof(text), "%s (a group is let in as a whole, this one with %s of %s)",
                         fault->text, missing, job->attach.group);
                job_refuse(job, -ENOSPC, text);
                return;
        }
        job_refuse(job, r < 0 ? r : -ENOSPC, fault->text);
}

/* ATTACHING to ATTACHED or refused, or left waiting for slots; the pipeline is READY. */
static void admit(struct pipeline *pipeline, struct job *job) {
        struct scheduler_config geometry = pipeline_geometry(pipeline);
        struct scheduler_job entry;
        struct fault fault = {};
        uint32_t minimum;
        int r;

        r = make_entry(pipeline, job, &entry, &fault);
        if (r < 0) {
                job_refuse(job, r, fault.text);
                return;
        }
        minimum = scheduler_minimum(&geometry, &entry.plan, entry.start_row);
        r = scheduler_attach(pipeline->scheduler, &entry, clock_ns(), &fault);
        job->counted = r == SCHEDULER_E_LATER;
        job->expecting = r == 0 && entry.expecting;
        if (r == SCHEDULER_E_LATER)
                pipeline->awaited += minimum;
        else if (r != 0)
                refuse(pipeline, job, r, &fault);
        else
                welcome(pipeline, job, &entry, minimum);
        if (r == 0 && (entry.gather > 1 || entry.expecting))
                pipeline_await_gathering(pipeline);
}

static void forget_counts(struct pipeline *pipeline) {
        pipeline->awaited = 0;
        list_for_each (link, &pipeline->jobs)
                pipeline_job_of(link)->counted = false;
}

/* Jobs that find the minimums free but not the slots wait, be it to come or to go elsewhere: nobody is
 * granted more than its minimum meanwhile, and every release comes by here again. */
void pipeline_admit_waiting(struct pipeline *pipeline) {
        bool waited = pipeline->awaited > 0;

        if (!pipeline->unsettled)
                return; /* as after nearly every batch */
        forget_counts(pipeline);
        list_for_each_safe (link, &pipeline->jobs) {
                if (pipeline_job_of(link)->state == JOB_ATTACHING)
                        admit(pipeline, pipeline_job_of(link));
                else
                        pipeline_answer_seeks(pipeline, pipeline_job_of(link));
        }
        pipeline->unsettled = pipeline->awaited > 0;
        pipeline_begin_groups(pipeline);
        scheduler_set_awaited(pipeline->scheduler, pipeline->awaited + pipeline_promised(pipeline, NULL));
        if (pipeline->awaited > 0 && !waited)
                pipeline_report(pipeline, true);
        else if (pipeline->awaited == 0 && waited)
                pipeline_report(pipeline, false);
}
