/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Admission: a waiting job becomes a reader of its stream, or is refused with the reason. What it asked for
 * is checked here, against what only a scan could show (the number of samples) and against the ring's room.
 */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a job is told about its company. */
static void describe_sharing(struct pipeline *pipeline, const struct job *job, char *text, size_t size) {
        uint32_t others = 0;

        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                others += other != job && other->state == JOB_ATTACHED && other->seed == job->seed;
        }
        if (others == 0)
                snprintf(text, size, "alone in this stream (seed %" PRIu64 ")", job->seed);
        else
                snprintf(text, size, "shares this stream (seed %" PRIu64 ") with %u other job%s", job->seed,
                         others, others == 1 ? "" : "s");
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

/* What the job asked for as a plan; -EOPNOTSUPP for what is not there yet. */
static int make_plan(const struct pipeline *pipeline, const struct message_attach *attach,
                     struct position_plan *plan, struct fault *fault) {
        const struct config_pipeline *config = pipeline->config;

        if (attach->batch_size != 0 && attach->batch_size != config->batch_size)
                return fault_set(fault, -EOPNOTSUPP,
                                 "batch size %u: a batch size of the job's own is not there yet, pipeline %s "
                                 "has %" PRIu64,
                                 attach->batch_size, config->name, config->batch_size);
        if (attach->world_size != 1 || attach->rank != 0)
                return fault_set(fault, -EOPNOTSUPP,
                                 "rank %u of %u: ranks are not there yet, attach as rank 0 of 1",
                                 attach->rank, attach->world_size);
        if (*attach->group)
                return fault_set(fault, -EOPNOTSUPP,
                                 "group \"%s\": groups of ranks are not there yet, attach without one",
                                 attach->group);
        if (attach->last_batch == LAST_BATCH_PAD)
                return fault_set(fault, -EOPNOTSUPP,
                                 "last_batch: pad is not there yet, attach with short or drop");
        *plan = (struct position_plan){
                .samples = pipeline->index.samples,
                .batch_size = (uint32_t)config->batch_size,
                .rank = 0,
                .world_size = 1,
                .last_batch = attach->last_batch ? attach->last_batch : (enum last_batch)config->last_batch,
        };
        return 0;
}

/* Every batch leases at least one slot; two share one only at an odd start row. */
static uint32_t bound_held(const struct pipeline *pipeline, uint32_t wanted) {
        uint32_t most = pipeline->ring.slots + 1;

        if (most > SCHEDULER_HELD_MAX)
                most = SCHEDULER_HELD_MAX;
        return wanted < most ? wanted : most;
}

/* What the job is told: where its stream begins and how its slots are laid out. */
static void welcome(struct pipeline *pipeline, struct job *job, const struct scheduler_job *entry,
                    uint32_t minimum) {
        struct message message = {.type = MESSAGE_ATTACHED};
        struct message_attached *attached = &message.attached;

        attached->job = job->id;
        attached->samples = pipeline->index.samples;
        attached->seed = job->seed;
        attached->start_epoch = entry->start_epoch;
        attached->start_row = entry->start_row;
        attached->batch_size = entry->plan.batch_size;
        attached->last_batch = (uint8_t)entry->plan.last_batch;
        attached->max_held = entry->max_held;
        attached->minimum = minimum;
        attached->map = MESSAGE_MAP_READ_ONLY;
        attached->slots = pipeline->ring.slots;
        describe_schema(&pipeline->config->schema, attached);
        describe_sharing(pipeline, job, attached->sharing, sizeof(attached->sharing));
        log_line(LOG_INFO, "job %u (%s, pid %d) reads %s from epoch %u row %" PRIu64 ": %s", job->id,
                 *job->attach.name ? job->attach.name : "unnamed", (int)job->pid, pipeline->config->name,
                 entry->start_epoch, entry->start_row, attached->sharing);
        job_set_attached(job, &message, pipeline->ring.fd_readonly, PIPELINE_SEGMENTS_MAX);
}

/* What the job asked for, as the scheduler wants it. */
static int make_entry(const struct pipeline *pipeline, const struct job *job, struct scheduler_job *entry,
                      struct fault *fault) {
        int r;

        *entry = (struct scheduler_job){.id = job->id,
                                        .seed = job->seed,
                                        .start_epoch = job->attach.start_epoch,
                                        .start_row = job->attach.start_row,
                                        .max_held = bound_held(pipeline, job->attach.max_held),
                                        .ahead = pipeline->awaited,
                                        .lookahead = UINT32_MAX};
        r = make_plan(pipeline, &job->attach, &entry->plan, fault);
        if (r < 0)
                return r;
        r = position_check(&entry->plan, entry->start_row, fault);
        if (r < 0)
                fault_prefix(fault, r, "pipeline %s (%s:%u)", pipeline->config->name, pipeline->whole->file,
                             pipeline->config->batch_size_line);
        return r;
}

/* ATTACHING to ATTACHED or refused, or left waiting for slots; the pipeline is READY. */
static void admit(struct pipeline *pipeline, struct job *job) {
        struct scheduler_config geometry = {.slots = pipeline->ring.slots,
                                            .slot_rows = (uint32_t)pipeline->config->batch_size,
                                            .samples = pipeline->index.samples};
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
        if (r == SCHEDULER_E_LATER)
                pipeline->awaited += minimum;
        else if (r != 0)
                job_refuse(job, r < 0 ? r : -ENOSPC, fault.text);
        else
                welcome(pipeline, job, &entry, minimum);
}

/* Jobs that find the minimums free but not the slots wait: nobody is granted more than its minimum meanwhile,
 * and every release comes by here again. */
void pipeline_admit_waiting(struct pipeline *pipeline) {
        bool waited = pipeline->awaited > 0;

        pipeline->awaited = 0;
        list_for_each_safe (link, &pipeline->jobs) {
                if (pipeline_job_of(link)->state == JOB_ATTACHING)
                        admit(pipeline, pipeline_job_of(link));
        }
        scheduler_set_awaited(pipeline->scheduler, pipeline->awaited);
        if (pipeline->awaited > 0 && !waited)
                pipeline_report(pipeline, true);
        else if (pipeline->awaited == 0 && waited)
                pipeline_report(pipeline, false);
}
