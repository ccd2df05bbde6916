/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Everything is counted by walking from batch to batch, from row to row and from slot to slot, with no
 * arithmetic to get wrong and nothing remembered that could be asked: fit for a dozen slots and streams of
 * some dozen batches. */

#include "tests/unit/scheduler-model.h"

#include <string.h>

/* Does any row of the batch lie in slot `index` of its epoch? */
static bool lies_in(const struct scheduler_config *config, struct position position, uint64_t index) {
        for (uint64_t row = position.row; row < position.row + position.rows; ++row)
                if (row % config->samples / config->slot_rows == index)
                        return true;
        return false;
}

static uint32_t slots_of(const struct scheduler_config *config, struct position position) {
        uint32_t n = 0;

        for (uint64_t k = 0; k * config->slot_rows < config->samples; ++k)
                n += lies_in(config, position, k);
        return n;
}

uint32_t model_minimum(const struct scheduler_config *config, const struct position_plan *plan,
                       uint64_t start_row) {
        struct position held = position_first(plan, 0, start_row);
        uint32_t worst = 0;

        while (held.epoch < 3) {
                struct position next = position_next(plan, held);
                uint32_t n = slots_of(config, held) + slots_of(config, next);

                worst = n > worst ? n : worst;
                held = next;
        }
        return worst;
}

bool model_covers(const struct model *model, const struct model_job *job, struct position position,
                  struct model_key key) {
        return key.seed == job->job.seed && key.epoch == position.epoch &&
               lies_in(&model->config, position, key.index);
}

/* Is the epoch beyond the job's lookahead? */
bool model_is_beyond(const struct model_job *job, uint32_t epoch) {
        return (uint64_t)epoch > (uint64_t)job->epoch + job->job.lookahead;
}

bool model_is_parked(const struct model_job *job) {
        return model_is_beyond(job, job->next.epoch);
}

/* Batches until `key` is used; the walk ends at the latest when its epoch does. */
uint64_t model_distance(const struct model *model, const struct model_job *job, struct model_key key) {
        struct position position = job->next;

        if (key.seed != job->job.seed || model_is_beyond(job, key.epoch))
                return MODEL_NEVER;
        for (uint64_t n = 0; position.epoch <= key.epoch; ++n) {
                if (model_is_led(model, job, position))
                        return MODEL_NEVER;
                if (model_covers(model, job, position, key))
                        return n;
                position = position_next(&job->job.plan, position);
        }
        return MODEL_NEVER;
}

uint64_t model_use(const struct model *model, struct model_key key) {
        uint64_t least = MODEL_NEVER;

        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                uint64_t distance = model_distance(model, &model->jobs[i], key);

                if (distance != MODEL_NEVER && distance + !model->jobs[i].due < least)
                        least = distance + !model->jobs[i].due;
        }
        return least;
}

uint32_t model_leased(const struct model *model, const struct model_job *job) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < model->config.slots; ++i)
                n += job->leases[i] > 0;
        return n;
}

struct model_slot *model_find(struct model *model, struct model_key key) {
        for (uint32_t i = 0; i < model->config.slots; ++i) {
                struct model_slot *slot = &model->slots[i];

                if ((slot->state == SCHEDULER_SLOT_FILLING || slot->state == SCHEDULER_SLOT_READY) &&
                    slot->key.seed == key.seed && slot->key.epoch == key.epoch &&
                    slot->key.index == key.index)
                        return slot;
        }
        return NULL;
}

uint32_t model_leased_with_next(const struct model *model, const struct model_job *job) {
        uint32_t n = model_leased(model, job) + slots_of(&model->config, job->next);

        for (uint32_t i = 0; i < model->config.slots; ++i)
                n -= job->leases[i] > 0 && model_covers(model, job, job->next, model->slots[i].key);
        return n;
}

static uint32_t demand_of(const struct model_job *job, uint32_t leased) {
        return leased > job->minimum ? leased : job->minimum;
}

uint64_t model_demand(const struct model *model) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < model->n_jobs; ++i)
                sum += demand_of(&model->jobs[i], model_leased(model, &model->jobs[i]));
        return sum;
}

uint32_t model_capacity(const struct model *model) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < model->config.slots; ++i)
                n += model->slots[i].stuck == 0;
        return n;
}

bool model_is_short(const struct model *model) {
        return model_capacity(model) < model->config.slots && model_demand(model) > model_capacity(model);
}

uint32_t model_count_rows(const struct model_slot *slot, enum model_row state) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < slot->rows; ++i)
                n += slot->row[i] == state;
        return n;
}

bool model_is_open(const struct model_slot *slot) {
        return slot->state == SCHEDULER_SLOT_FILLING && !slot->lost &&
               model_count_rows(slot, MODEL_ROW_OPEN) > 0;
}

uint32_t model_slot_leases(const struct model *model, uint32_t slot) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < model->n_jobs; ++i)
                n += model->jobs[i].leases[slot] > 0;
        return n;
}

bool model_is_idle(const struct model *model, uint32_t slot) {
        return model->slots[slot].state == SCHEDULER_SLOT_READY && model_slot_leases(model, slot) == 0;
}

static bool is_ready(struct model *model, const struct model_job *job, struct position position) {
        for (uint64_t k = 0; k * model->config.slot_rows < model->config.samples; ++k) {
                struct model_key key = {job->job.seed, position.epoch, k};
                const struct model_slot *slot = model_find(model, key);

                if (model_covers(model, job, position, key) && (!slot || slot->state != SCHEDULER_SLOT_READY))
                        return false;
        }
        return true;
}

bool model_is_ready(struct model *model, const struct model_job *job) {
        return is_ready(model, job, job->next);
}

uint32_t model_count_ready(struct model *model, const struct model_job *job) {
        struct position position = job->next;
        uint32_t n = 0;

        while (!model_is_beyond(job, position.epoch) && is_ready(model, job, position)) {
                position = position_next(&job->job.plan, position);
                ++n;
        }
        return n;
}

static bool may_go_on(const struct model *model, const struct model_job *job) {
        return job->n_held < job->job.max_held && !job->seeking && !model_is_parked(job) && !job->gathering &&
               !job->expecting && !model_is_led(model, job, job->next);
}

bool model_within_minimum(const struct model *model, const struct model_job *job) {
        return may_go_on(model, job) && model_leased_with_next(model, job) <= job->minimum;
}

/* Would the job's next batch find room beside all slots that are leased, each counted once? */
bool model_fits_really(struct model *model, const struct model_job *job) {
        uint32_t used = 0;

        for (uint32_t i = 0; i < model->config.slots; ++i)
                used += model_slot_leases(model, i) > 0;
        for (uint64_t k = 0; k * model->config.slot_rows < model->config.samples; ++k) {
                struct model_key key = {job->job.seed, job->next.epoch, k};
                const struct model_slot *slot = model_find(model, key);

                used += model_covers(model, job, job->next, key) &&
                        (!slot || model_slot_leases(model, (uint32_t)(slot - model->slots)) == 0);
        }
        return used <= model_capacity(model);
}

static void choose_due_while_short(struct model *model) {
        uint32_t used = 0, due = 0;
        bool kept[MODEL_JOBS_MAX];

        for (uint32_t i = 0; i < model->n_jobs; ++i)
                used += model_leased(model, &model->jobs[i]);
        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                uint32_t leased = model_leased(model, &model->jobs[i]);
                uint32_t more = demand_of(&model->jobs[i], leased) - leased;

                kept[i] = may_go_on(model, &model->jobs[i]) && used + more <= model_capacity(model);
                used += kept[i] ? more : 0;
        }
        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                struct model_job *job = &model->jobs[i];
                uint32_t more = kept[i] ? 0 : model_leased_with_next(model, job) - model_leased(model, job);

                job->due = model_within_minimum(model, job) && used + more <= model_capacity(model);
                used += job->due ? more : 0;
                due += job->due;
        }
        for (int holders = 1; holders >= 0; --holders)
                for (uint32_t i = 0; i < model->n_jobs && due == 0; ++i) {
                        struct model_job *job = &model->jobs[i];

                        job->due = (model_leased(model, job) > 0) == holders &&
                                   model_within_minimum(model, job) && model_fits_really(model, job);
                        due += job->due;
                }
}

/* Slots that nobody but those in lockstep gets beyond its minimum. */
static uint64_t spared(const struct model *model, const struct model_job *job) {
        if (model->lockstep.max_lead == 0 || job->bound)
                return 0;
        return (model_lead(model) + model->config.slot_rows - 1) / model->config.slot_rows;
}

void model_choose_due(struct model *model) {
        uint64_t demand = model_demand(model);

        if (model_is_short(model)) {
                choose_due_while_short(model);
                return;
        }
        for (uint32_t i = 0; i < model->n_jobs; ++i) {
                struct model_job *job = &model->jobs[i];
                uint64_t more = demand_of(job, model_leased_with_next(model, job)) -
                                demand_of(job, model_leased(model, job));

                job->due =
                        may_go_on(model, job) &&
                        (more == 0 || (!job->unread && demand + more + model->awaited + spared(model, job) <=
                                                               model_capacity(model)));
                if (job->due)
                        demand += more;
        }
}

bool model_is_warm(const struct model *model, struct model_key key) {
        return key.seed == model->warm.seed && key.epoch == 0 && key.index < model->warm.slots;
}

bool model_makes_warm(const struct model *model) {
        return model->n_jobs == 0 && !model->warm.in_vain;
}

/* Moves the job to the end of the line; returns where it is now. */
struct model_job *model_wait(struct model *model, struct model_job *job) {
        struct model_job *last = &model->jobs[model->n_jobs - 1], moved = *job;

        memmove(job, job + 1, (size_t)((char *)last - (char *)job));
        *last = moved;
        return last;
}
