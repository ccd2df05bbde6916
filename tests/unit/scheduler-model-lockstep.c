/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Lockstep, by counting rows of the stream. Who is bound the scheduler says, and whether it may be is held
 * against that; how far each may go follows. */

#include "tests/unit/scheduler-model.h"

#include <stddef.h>

/* Rows of the stream before this batch's step of all ranks. */
static uint64_t begin_of(const struct model_job *job, struct position batch) {
        const struct position_plan *plan = &job->job.plan;

        return batch.epoch * plan->samples + batch.base + batch.step * plan->batch_size * plan->world_size;
}

/* The same before the step after it. */
static uint64_t end_of(const struct model_job *job, struct position batch) {
        return begin_of(job, position_next(&job->job.plan, batch));
}

/* Up to where the job has given everything back that it got since it was sent where it is. */
static uint64_t consumed(const struct model_job *job) {
        const struct model_held *first = NULL;

        for (uint32_t i = 0; i < job->n_held; ++i)
                if (job->held[i].number >= job->since && (!first || job->held[i].number < first->number))
                        first = &job->held[i];
        return begin_of(job, first ? first->position : job->next);
}

uint64_t model_lead(const struct model *model) {
        uint64_t minimum = 0, room, lead = model->lockstep.max_lead;

        for (uint32_t i = 0; i < model->n_jobs; ++i)
                minimum += model->jobs[i].minimum;
        room = minimum < model_capacity(model) ? (model_capacity(model) - minimum) * model->config.slot_rows
                                               : 0;
        lead = lead < room ? lead : room;
        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                const struct position_plan *plan = &model->jobs[i].job.plan;
                uint64_t step = (uint64_t)plan->batch_size * plan->world_size;
                uint64_t least = plan->last_batch == LAST_BATCH_DROP ? 4 * step : 2 * step;

                lead = lead < least ? least : lead;
        }
        return lead;
}

bool model_is_led(const struct model *model, const struct model_job *job, struct position batch) {
        for (uint32_t i = 0; job->bound && i < model->n_jobs; ++i) {
                const struct model_job *other = &model->jobs[i];

                if (other != job && other->bound && other->job.seed == job->job.seed &&
                    end_of(job, batch) > consumed(other) + model_lead(model))
                        return true;
        }
        return false;
}

static bool is_far(const struct model *model, const struct model_job *job, const struct model_job *other) {
        return begin_of(job, job->next) > consumed(other) + model_lead(model) ||
               begin_of(other, other->next) > consumed(job) + model_lead(model);
}

static const char *check_binding(const struct model *model, const struct model_job *job) {
        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                const struct model_job *other = &model->jobs[i];

                if (other != job && other->bound && other->job.seed == job->job.seed &&
                    is_far(model, job, other))
                        return "a job binds that is too far from the others";
        }
        return NULL;
}

/* Who waits for data, or for others, has an excuse for giving nothing back. */
void model_note_excuses(struct model *model, uint64_t now) {
        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                struct model_job *job = &model->jobs[i];

                if ((job->due && !model_is_ready(model, job)) || model_is_led(model, job, job->next) ||
                    job->gathering || job->expecting)
                        job->moved_at = now;
        }
}

const char *model_check_lockstep(struct model *model, struct model_job *job, bool bound, uint64_t now) {
        bool was_bound = job->bound, lags = now - job->moved_at >= model->lockstep.lag_timeout;
        const char *breach = NULL;

        if (was_bound && lags && bound)
                return "a job lags, and the others still wait for it";
        if (was_bound && !lags && !bound)
                return "a job is demoted too soon";
        if (!was_bound && bound && job->expecting)
                return "others wait for a job that waits for the ranks of its run";
        if (!was_bound && bound) {
                breach = check_binding(model, job);
                job->moved_at = now;
        }
        job->bound = bound;
        return breach;
}

/* Could it give something back without having its next? */
static bool holds_more_than_it_needs(const struct model_job *job) {
        return job->n_held > 1 || (job->n_held == 1 && job->held[0].number + 1 != job->number);
}

/* Is somebody bound who is not held back, or could give something back, or nobody bound at all? */
bool model_somebody_leads_on(const struct model *model, uint64_t seed) {
        bool any = false;

        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                const struct model_job *job = &model->jobs[i];

                if (!job->bound || job->job.seed != seed)
                        continue;
                any = true;
                if (!model_is_led(model, job, job->next) || holds_more_than_it_needs(job))
                        return true;
        }
        return !any;
}
