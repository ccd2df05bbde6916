/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Catching up, by looking at every slot of a stretch. What the scheduler says is running is held against what
 * may run: it is not foretold which of several jobs is chosen. */

#include "tests/unit/scheduler-model.h"

#include <stddef.h>

static uint64_t epoch_slots(const struct scheduler_config *config) {
        return (config->samples - 1) / config->slot_rows + 1;
}

static uint64_t greater_of(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

/* Slots of the stream before the step that this batch is part of. */
static uint64_t place_of_batch(const struct model *model, const struct model_job *job,
                               struct position batch) {
        uint64_t step = (uint64_t)job->job.plan.batch_size * job->job.plan.world_size;

        return batch.epoch * epoch_slots(&model->config) +
               (batch.base + batch.step * step) / model->config.slot_rows;
}

static uint64_t place_of(const struct model *model, const struct model_job *job) {
        return place_of_batch(model, job, job->next);
}

static uint64_t place_of_key(const struct model *model, struct model_key key) {
        return key.epoch * epoch_slots(&model->config) + key.index;
}

static uint64_t end_of(const struct model *model, const struct scheduler_catch_up *view) {
        return view->to_epoch * epoch_slots(&model->config) + view->to_index;
}

static uint64_t begin_of(const struct model *model, const struct scheduler_catch_up *view) {
        return view->from_epoch * epoch_slots(&model->config) + view->from_index;
}

/* A slot with rows for workers, or one that may not be filled for this job yet. */
static bool lacks(struct model *model, const struct model_job *job, struct model_key key) {
        const struct model_slot *slot = model_find(model, key);

        return !slot || model_is_open(slot) || model_is_beyond(job, key.epoch);
}

/* The slot that comes first in the batch's order. */
static uint64_t begin_of_batch(const struct scheduler_config *config, struct position batch) {
        uint64_t begin = batch.row % config->samples, end = begin + batch.rows;
        bool goes_round = end > config->samples &&
                          (end - config->samples >= begin ||
                           (end - config->samples - 1) / config->slot_rows >= begin / config->slot_rows);

        return goes_round ? 0 : begin / config->slot_rows;
}

/* The place of the first slot that the batch lacks, or MODEL_NEVER; wrapped rows count as the epoch's end. */
static uint64_t lack_of_batch(struct model *model, const struct model_job *job, struct position batch,
                              struct model_key *found) {
        uint64_t n = epoch_slots(&model->config), begin = begin_of_batch(&model->config, batch);
        uint64_t step = place_of_batch(model, job, batch);

        for (uint64_t i = 0; i < n; ++i) {
                *found = (struct model_key){job->job.seed, batch.epoch, (begin + i) % n};
                if (model_covers(model, job, batch, *found) &&
                    (lacks(model, job, *found) || model_is_led(model, job, batch)))
                        return greater_of(step, batch.epoch * n + (begin + i < n ? begin + i : n - 1));
        }
        return MODEL_NEVER;
}

/* The first slot before `end` that the job lacks: its place, or `end`. */
static uint64_t first_lack(struct model *model, const struct model_job *job, uint64_t end,
                           struct model_key *found) {
        struct position batch = job->next;
        uint64_t lack = MODEL_NEVER;

        while (lack == MODEL_NEVER && batch.epoch <= end / epoch_slots(&model->config)) {
                lack = lack_of_batch(model, job, batch, found);
                batch = position_next(&job->job.plan, batch);
        }
        return lack < end ? lack : end;
}

bool model_is_brought_on(const struct model *model, const struct scheduler_catch_up *view,
                         const struct model_job *job) {
        uint64_t place = place_of(model, job);

        return job->job.seed == view->seed && place >= begin_of(model, view) && place < end_of(model, view);
}

static const struct model_job *find(const struct model *model, uint32_t id) {
        for (uint32_t i = 0; i < model->n_jobs; ++i)
                if (model->jobs[i].job.id == id)
                        return &model->jobs[i];
        return NULL;
}

/* Nothing is lacking any more that those behind would have to be given. */
static bool have_met(struct model *model, const struct scheduler_catch_up *view) {
        struct model_key key;

        for (uint32_t i = 0; i < model->n_jobs; ++i)
                if (model_is_brought_on(model, view, &model->jobs[i]) &&
                    first_lack(model, &model->jobs[i], end_of(model, view), &key) < end_of(model, view))
                        return false;
        return true;
}

static const char *check_begin(struct model *model, const struct scheduler_catch_up *view, uint64_t now) {
        struct model_catch_up *its = &model->catch_up;
        const struct model_job *job = find(model, view->job), *front = find(model, view->front);
        uint64_t end = end_of(model, view), lack;
        struct model_key key;

        if (!job || !front || job->job.seed != front->job.seed || end != place_of(model, front))
                return "a catch-up with nobody";
        lack = first_lack(model, job, end, &key);
        if (lack == end)
                return "a job catches up that lacks nothing";
        if (!job->due || model_is_ready(model, job))
                return "a job catches up that does not wait";
        /* What lockstep keeps from a job may begin in the slot where the rest of it lies: one more or less.
         */
        if (!job->bound && (end - lack) * model->config.slot_rows > its->rows)
                return "a job catches up that is too far behind";
        if (now < its->rest_until)
                return "a catch-up began too soon after the last one";
        if (its->rested > 0 && now - its->rested <= its->ns / 60)
                return "a job catches up while workers have time";
        its->limit = now + its->ns / 30 +
                     (uint64_t)(2.0 * (double)((end - lack) * model->config.slot_rows) / (double)its->rows *
                                (double)its->ns);
        if (view->until > its->limit + 1)
                return "a catch-up may take too long";
        return NULL;
}

static const char *check_end(struct model *model, uint64_t now) {
        struct model_catch_up *its = &model->catch_up;
        struct scheduler_catch_up view = its->view;
        const struct model_job *front = find(model, view.front);

        if (!front) /* it ended when that job went: at the last time that the scheduler knew */
                now = its->seen;
        its->rest_until = now + (now - view.began);
        if (!front || now >= view.until || model->lockstep.max_lead > 0)
                return NULL; /* lockstep: what is kept from a job may begin a slot later than counted here */
        view.to_epoch = (uint32_t)(place_of(model, front) / epoch_slots(&model->config));
        view.to_index = place_of(model, front) % epoch_slots(&model->config);
        return have_met(model, &view) ? NULL : "a catch-up ended before they had met";
}

const char *model_check_catch_up(struct model *model, const struct scheduler_catch_up *view, bool runs,
                                 uint64_t now) {
        struct model_catch_up *its = &model->catch_up;
        const char *breach = NULL;
        bool before = its->runs;

        if (its->runs && (!runs || view->began != its->view.began)) {
                breach = check_end(model, now);
                its->runs = false;
        }
        if (!breach && runs && !its->runs)
                breach = check_begin(model, view, now);
        if (!breach && runs && its->runs && now >= its->limit)
                breach = "a catch-up takes too long";
        if (!breach && runs && its->runs && have_met(model, view))
                breach = "a catch-up goes on after they have met";
        its->runs = runs;
        its->view = *view;
        its->seen = now;
        for (uint32_t i = 0; before && i < model->n_jobs; ++i)
                if (model->jobs[i].due && !model_is_ready(model, &model->jobs[i]))
                        model->jobs[i].waited_at = now;
        return breach;
}

static bool is_first(struct model *model, const struct model_job *job) {
        if (!model_is_brought_on(model, &model->catch_up.view, job))
                return false;
        return (job->due && !model_is_ready(model, job)) ||
               model->catch_up.seen - job->waited_at <= model->catch_up.ns / 600;
}

bool model_comes_first(struct model *model, struct model_key key) {
        const struct scheduler_catch_up *view = &model->catch_up.view;

        if (!model->catch_up.runs || key.seed != view->seed ||
            place_of_key(model, key) < begin_of(model, view) ||
            place_of_key(model, key) >= end_of(model, view))
                return false;
        for (uint32_t i = 0; i < model->n_jobs; ++i)
                if (is_first(model, &model->jobs[i]) &&
                    model_distance(model, &model->jobs[i], key) != MODEL_NEVER)
                        return true;
        return false;
}

/* Could a slot be had for something that is used at `use`? */
static bool to_be_had(const struct model *model, uint64_t use) {
        for (uint32_t i = 0; i < model->config.slots; ++i)
                if (model->slots[i].state == SCHEDULER_SLOT_FREE ||
                    (model_is_idle(model, i) && model_use(model, model->slots[i].key) > use))
                        return true;
        return false;
}

/* Is there work to be handed out that comes first? */
bool model_first_work(struct model *model) {
        uint64_t end = end_of(model, &model->catch_up.view);

        for (uint32_t i = 0; model->catch_up.runs && i < model->n_jobs; ++i) {
                const struct model_job *job = &model->jobs[i];
                const struct model_slot *slot;
                struct model_key key;

                if (!is_first(model, job) || first_lack(model, job, end, &key) == end ||
                    model_is_beyond(job, key.epoch) || model_distance(model, job, key) == MODEL_NEVER ||
                    !model_comes_first(model, key))
                        continue;
                slot = model_find(model, key);
                if (slot ? model_is_open(slot)
                         : to_be_had(model, model_distance(model, job, key) + !job->due))
                        return true;
        }
        return false;
}
