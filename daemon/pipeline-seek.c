/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Seeking: an attached job goes elsewhere in its stream, also just into the next epoch where `lookahead`
 * gives it nothing beyond the one it is in.
 *
 * A place in the middle of a slot can ask for a larger minimum than the job has, and then it may have to wait
 * for the others as a newcomer does: see pipeline_admit_waiting, which comes by here. Batches that were
 * leased for it but not sent are taken back only when it goes: if the answer is no, they follow the answer.
 */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/job.h"
#include "daemon/scheduler.h"

#include <errno.h>
#include <inttypes.h>

void pipeline_seek(struct pipeline *pipeline) {
        pipeline->unsettled = true;
        pipeline_step(pipeline);
}

/* Slots beyond the minimum that the job has already. */
static uint32_t missing_slots(const struct pipeline *pipeline, const struct job *job, uint64_t row) {
        struct scheduler_config geometry = pipeline_geometry(pipeline);
        struct position_plan plan = pipeline_plan(pipeline, job);
        uint32_t minimum = scheduler_minimum(&geometry, &plan, row);
        struct scheduler_job_view view = {};

        scheduler_view_job(pipeline->scheduler, job->id, &view);
        return minimum > view.minimum ? minimum - view.minimum : 0;
}

static void take_back_all(struct pipeline *pipeline, struct job *job, uint64_t now) {
        uint64_t number;

        while (job_take_back(job, &number))
                scheduler_release(pipeline->scheduler, job->id, number, now);
}

/* The place may be the end of an epoch. */
static uint32_t epoch_of(const struct pipeline *pipeline, const struct job *job,
                         const struct message_seek *seek) {
        struct position_plan plan = pipeline_plan(pipeline, job);

        return seek->row < plan.samples ? position_first(&plan, seek->epoch, seek->row).epoch : seek->epoch;
}

/* 0, SCHEDULER_E_LATER, or why not. A rank whose seek waits was asked about its group when it came. */
static int go(struct pipeline *pipeline, struct job *job, const struct message_seek *seek, uint64_t now,
              struct fault *fault) {
        struct scheduler_job_view view = {};
        int r = 0;

        scheduler_view_job(pipeline->scheduler, job->id, &view);
        if (!view.seeking)
                r = pipeline_check_group_place(pipeline, job, seek->row, fault);
        if (r == 0)
                r = pipeline_check_order(pipeline, job->seed, epoch_of(pipeline, job, seek), fault);
        if (r == 0)
                r = scheduler_seek(pipeline->scheduler, job->id, seek->epoch, seek->row,
                                   pipeline->awaited + pipeline_promised(pipeline, NULL), now, fault);
        return r;
}

/* The job is elsewhere. Where its group has not begun, that is where those begin that have not come. */
static void arrive(struct pipeline *pipeline, struct job *job, const struct message_seek *seek,
                   uint64_t now) {
        take_back_all(pipeline, job, now);
        if (job->expecting && job->attach.start != MESSAGE_START_LIVE) {
                job->attach.start_epoch = seek->epoch;
                job->attach.start_row = seek->row;
        }
}

/* False: it has to wait. */
static bool answer(struct pipeline *pipeline, struct job *job, const struct message_seek *seek) {
        struct scheduler_job_view view = {};
        struct fault fault = {};
        uint64_t now = clock_ns();
        int r = go(pipeline, job, seek, now, &fault);

        if (r == SCHEDULER_E_LATER) {
                pipeline->awaited += missing_slots(pipeline, job, seek->row);
                return false;
        }
        if (r == 0)
                arrive(pipeline, job, seek, now);
        else
                r = fault_prefix(&fault, r < 0 ? r : -ENOSPC,
                                 "pipeline %s: the job cannot go to row %" PRIu64 " of epoch %u",
                                 pipeline->label, seek->row, seek->epoch);
        scheduler_view_job(pipeline->scheduler, job->id, &view);
        job_answer_seek(job, view.batches, r, fault.text);
        return true;
}

void pipeline_answer_seeks(struct pipeline *pipeline, struct job *job) {
        const struct message_seek *seek;

        while ((seek = job_next_seek(job)) && answer(pipeline, job, seek))
                ;
}
