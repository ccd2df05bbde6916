/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Deliveries and chunks of a simulated life: whether the scheduler may hand out what it hands out, and what
 * becomes of chunks. It is all taken over into the model after it was held against it. */

#include "tests/unit/scheduler-simulation-internal.h"

enum {
        PATIENCE_MAX = 300, /* chunks finished; the worst that the unbroken scheduler needed in 12 million
                               events was 44 */
};

/* ---- deliveries ---- */

struct model_job *sim_find_job(struct model *model, uint32_t id) {
        for (uint32_t i = 0; i < model->n_jobs; ++i)
                if (model->jobs[i].job.id == id)
                        return &model->jobs[i];
        return NULL;
}

/* Are the segment's rows the batch's rows from `row` on? */
static void check_segment(struct simulation *sim, const struct model_job *job,
                          const struct scheduler_segment *segment, uint64_t row) {
        const struct scheduler_config *config = &sim->model.config;
        const struct model_slot *slot = &sim->model.slots[segment->slot];

        if (slot->state != SCHEDULER_SLOT_READY)
                sim_breach(sim, "job %u was given slot %u, which is not READY", job->job.id, segment->slot);
        if (slot->key.seed != job->job.seed || slot->key.epoch != job->next.epoch || segment->rows == 0 ||
            segment->first + segment->rows > slot->rows) {
                sim_breach(sim, "job %u was given something else", job->job.id);
                return;
        }
        for (uint32_t j = segment->first; j < segment->first + segment->rows; ++j, ++row) {
                if (slot->key.index * config->slot_rows + j != row % config->samples)
                        sim_breach(sim, "job %u was given another row than %llu", job->job.id,
                                   (unsigned long long)row);
                if (segment->padding != (row >= config->samples))
                        sim_breach(sim, "job %u was told wrongly whether row %llu is padding", job->job.id,
                                   (unsigned long long)row);
                if (slot->row[j] != MODEL_ROW_DONE)
                        sim_breach(sim, "job %u was given row %u of slot %u, which nobody reported done",
                                   job->job.id, j, segment->slot);
        }
}

static void check_segments(struct simulation *sim, const struct model_job *job,
                           const struct scheduler_delivery *delivery) {
        uint64_t row = delivery->position.row;

        for (uint32_t i = 0; i < delivery->n_segments; ++i) {
                check_segment(sim, job, &delivery->segments[i], row);
                row += delivery->segments[i].rows;
        }
        if (row != delivery->position.row + delivery->position.rows)
                sim_breach(sim, "job %u was not given the whole batch", job->job.id);
        if (delivery->n_segments > position_segments(&job->job.plan, sim->model.config.slot_rows))
                sim_breach(sim, "job %u: a batch in %u segments", job->job.id, delivery->n_segments);
}

static void check_turn(struct simulation *sim, const struct model_job *job) {
        if (!job->due)
                sim_breach(sim, "rule 3: job %u was granted a batch out of turn", job->job.id);
        for (const struct model_job *other = sim->model.jobs; other != job; ++other)
                if (other->due && model_is_ready(&sim->model, other))
                        sim_breach(sim, "job %u was served before job %u, which waited longer", job->job.id,
                                   other->job.id);
}

void sim_take_delivery(struct simulation *sim, const struct scheduler_delivery *delivery) {
        struct model_job *job = sim_find_job(&sim->model, delivery->job);
        struct model_held *held;
        bool was_short = model_is_short(&sim->model);

        ++sim->result->deliveries;
        sim->result->short_deliveries += was_short;
        sim->patience = 0;
        if (!job || delivery->number != job->number || delivery->position.epoch != job->next.epoch ||
            delivery->position.row != job->next.row || delivery->position.rows != job->next.rows) {
                sim_breach(sim, "job %u got another batch than its next", delivery->job);
                return;
        }
        if (model_is_parked(job) || job->seeking)
                sim_breach(sim, "job %u got a batch that it has not asked for", job->job.id);
        if (job->n_held >= job->job.max_held) {
                sim_breach(sim, "job %u got more batches than it may hold", delivery->job);
                return;
        }
        if (model_is_led(&sim->model, job, job->next))
                sim_breach(sim, "job %u got a batch too far ahead of the others", job->job.id);
        if (job->unread && model_leased_with_next(&sim->model, job) > job->minimum)
                sim_breach(sim, "job %u is not read, and got more than its minimum", job->job.id);
        check_segments(sim, job, delivery);
        if (!sim->options->outcomes_only)
                check_turn(sim, job);
        held = &job->held[job->n_held++];
        *held = (struct model_held){.number = job->number++, .position = job->next};
        for (uint32_t i = 0; i < delivery->n_segments; ++i) {
                held->slots[held->n_slots++] = delivery->segments[i].slot;
                ++job->leases[delivery->segments[i].slot];
        }
        job->epoch = job->next.epoch;
        job->next = position_next(&job->job.plan, job->next);
        job->patience = 0;
        wait_anew(sim, job);
        model_choose_due(&sim->model);
        if (!sim->options->outcomes_only && !was_short &&
            model_demand(&sim->model) > model_capacity(&sim->model))
                sim_breach(sim, "rule 3: leases exceed the ring");
}

/* ---- chunks ---- */

/* Could a slot be had for a due batch? */
bool sim_slot_to_be_had(const struct model *model) {
        for (uint32_t i = 0; i < model->config.slots; ++i)
                if (model->slots[i].state == SCHEDULER_SLOT_FREE ||
                    (model_is_idle(model, i) && model_use(model, model->slots[i].key) > 0))
                        return true;
        return false;
}

/* Does the job's next batch need work that could be handed out? */
bool sim_has_work(struct model *model, const struct model_job *job, bool to_be_had) {
        for (uint64_t k = 0; k * model->config.slot_rows < model->config.samples; ++k) {
                struct model_key key = {job->job.seed, job->next.epoch, k};
                const struct model_slot *slot = model_find(model, key);

                if (!model_covers(model, job, job->next, key))
                        continue;
                if (slot ? model_is_open(slot) : to_be_had)
                        return true;
        }
        return false;
}

/* Are all slots resident that this job uses before `use`? */
static bool all_begun(struct model *model, const struct model_job *job, uint64_t use) {
        struct position position = job->next;

        for (uint64_t n = !job->due;
             n < use && !model_is_beyond(job, position.epoch) && !model_is_led(model, job, position); ++n) {
                for (uint64_t k = 0; k * model->config.slot_rows < model->config.samples; ++k) {
                        struct model_key key = {job->job.seed, position.epoch, k};

                        if (model_covers(model, job, position, key) && !model_find(model, key))
                                return false;
                }
                position = position_next(&job->job.plan, position);
        }
        return true;
}

/* A slot is begun only when nothing that is used sooner is missing, nothing that is used as soon has open
 * rows. */
static void check_beginning(struct simulation *sim, struct model_key key) {
        uint64_t use = model_use(&sim->model, key);

        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (!all_begun(&sim->model, &sim->model.jobs[i], use))
                        sim_breach(sim, "a slot was begun before one that job %u uses sooner",
                                   sim->model.jobs[i].job.id);
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                const struct model_slot *slot = &sim->model.slots[i];

                if (use > 0 && model_is_open(slot) && model_use(&sim->model, slot->key) <= use &&
                    (use < MODEL_NEVER || model_is_warm(&sim->model, slot->key)))
                        sim_breach(sim, "a slot was begun while slot %u had open rows", i);
        }
}

/* Rule 4: due batches first, the one that has waited longest before all. As things were before the chunk. */
static void check_urgency(struct simulation *sim, struct model_key key) {
        bool to_be_had = sim_slot_to_be_had(&sim->model), comes_first = model_comes_first(&sim->model, key);

        if (!comes_first && model_first_work(&sim->model))
                sim_breach(sim, "something was filled before what those lack that catch up");
        if (comes_first)
                return;
        if (!model_find(&sim->model, key))
                check_beginning(sim, key);

        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                const struct model_job *job = &sim->model.jobs[i];

                if (!job->due)
                        continue;
                if (model_covers(&sim->model, job, job->next, key))
                        return;
                if (sim_has_work(&sim->model, job, to_be_had))
                        sim_breach(sim, "rule 4: something was filled before the due batch of job %u",
                                   job->job.id);
        }
        if (model_use(&sim->model, key) == MODEL_NEVER &&
            !(model_makes_warm(&sim->model) && model_is_warm(&sim->model, key)))
                sim_breach(sim, "a slot is filled for nobody");
}

/* Rule 5, before slot `number` is used again for `key`. */
static void check_eviction(struct simulation *sim, uint32_t number, struct model_key key) {
        uint64_t use = model_use(&sim->model, sim->model.slots[number].key);

        bool warm = model_is_warm(&sim->model, sim->model.slots[number].key);

        if (use == 0)
                sim_breach(sim, "rule 4: a slot of a due batch was evicted");
        if (use <= model_use(&sim->model, key) && (use < MODEL_NEVER || warm))
                sim_breach(sim, "rule 5: a slot was evicted for one that is used no sooner");
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                if (sim->model.slots[i].state == SCHEDULER_SLOT_FREE)
                        sim_breach(sim, "a slot was evicted while another was FREE");
                if (model_is_idle(&sim->model, i) && model_use(&sim->model, sim->model.slots[i].key) > use)
                        sim_breach(sim, "rule 5: the slot that was evicted was not the one used last");
                if (use == MODEL_NEVER && warm && model_is_idle(&sim->model, i) &&
                    model_use(&sim->model, sim->model.slots[i].key) == MODEL_NEVER &&
                    !model_is_warm(&sim->model, sim->model.slots[i].key))
                        sim_breach(sim, "a slot that was kept warm was evicted before one that nobody wants");
        }
}

static void start_filling(struct simulation *sim, const struct scheduler_chunk *chunk) {
        struct model_slot *slot = &sim->model.slots[chunk->slot];
        struct model_key key = key_of(&sim->model.config, chunk);
        uint64_t left = sim->model.config.samples - key.index * sim->model.config.slot_rows;

        if (model_find(&sim->model, key))
                sim_breach(sim, "a key is filled into a second slot");
        if (slot->state == SCHEDULER_SLOT_FILLING)
                sim_breach(sim, "slot %u has two fillings", chunk->slot);
        if (slot->stuck > 0)
                sim_breach(sim, "slot %u is filled, but in quarantine", chunk->slot);
        if (model_slot_leases(&sim->model, chunk->slot) > 0)
                sim_breach(sim, "slot %u was filled again while leased", chunk->slot);
        if (slot->state == SCHEDULER_SLOT_READY) {
                ++sim->result->evictions;
                if (!sim->options->outcomes_only)
                        check_eviction(sim, chunk->slot, key);
        }
        *slot = (struct model_slot){.state = SCHEDULER_SLOT_FILLING, .key = key};
        slot->rows = left < sim->model.config.slot_rows ? (uint32_t)left : sim->model.config.slot_rows;
}

static uint32_t least_of(uint32_t a, uint32_t b) {
        return a < b ? a : b;
}

/* The lowest rows that nobody has, as many as lie together and may be had. */
static void check_rows(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t wanted) {
        struct model_slot *slot = &sim->model.slots[chunk->slot];
        uint32_t first = 0, run = 0, undone = slot->rows - model_count_rows(slot, MODEL_ROW_DONE);
        uint32_t share = (undone + sim->workers - 1) / sim->workers;

        while (first < slot->rows && slot->row[first] != MODEL_ROW_OPEN)
                ++first;
        while (first + run < slot->rows && slot->row[first + run] == MODEL_ROW_OPEN)
                ++run;
        if (slot->lost || chunk->first != first || chunk->rows == 0 || chunk->rows > run ||
            chunk->row != slot->key.index * sim->model.config.slot_rows + chunk->first) {
                sim_breach(sim, "slot %u: not the rows that come next", chunk->slot);
                return;
        }
        run = least_of(run, wanted);
        if (chunk->rows > run)
                sim_breach(sim, "a chunk of %u rows is too large", chunk->rows);
        if (model_use(&sim->model, slot->key) == 0)
                run = least_of(run, share);
        if (!sim->options->outcomes_only && chunk->rows != run)
                sim_breach(sim, "a chunk has %u rows, not %u", chunk->rows, run);
        for (uint32_t i = 0; i < chunk->rows; ++i)
                slot->row[first + i] = MODEL_ROW_OUT;
}

void sim_take_chunk(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t wanted) {
        struct model_slot *slot = &sim->model.slots[chunk->slot];
        struct model_key key = key_of(&sim->model.config, chunk);

        ++sim->result->chunks;
        if (!sim->options->outcomes_only)
                check_urgency(sim, key);
        if (slot->state != SCHEDULER_SLOT_FILLING || slot->key.seed != key.seed ||
            slot->key.epoch != key.epoch || slot->key.index != key.index)
                start_filling(sim, chunk);
        check_rows(sim, chunk, wanted);
        sim->model.chunks[sim->model.n_chunks++] = *chunk;
}

/* What is being filled for nobody is given up, once no chunk of it is out, unless it is handed out whole. */
void sim_give_up_unwanted(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                struct model_slot *slot = &sim->model.slots[i];
                bool warm = model_makes_warm(&sim->model) && model_is_warm(&sim->model, slot->key);

                if (slot->state == SCHEDULER_SLOT_FILLING && model_count_rows(slot, MODEL_ROW_OUT) == 0 &&
                    (slot->lost ||
                     (model_is_open(slot) && !warm && model_use(&sim->model, slot->key) == MODEL_NEVER)))
                        slot->state = slot->stuck > 0 ? SCHEDULER_SLOT_QUARANTINED : SCHEDULER_SLOT_FREE;
        }
}

/* What became of `rows` of a chunk. */
void sim_set_rows(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t first, uint32_t rows,
                  enum model_row state) {
        struct model_slot *slot = &sim->model.slots[chunk->slot];

        for (uint32_t i = chunk->first + first; i < chunk->first + first + rows; ++i) {
                if (slot->row[i] != MODEL_ROW_OUT)
                        sim_breach(sim, "row %u of slot %u came back, but was not out", i, chunk->slot);
                slot->row[i] = state;
        }
}

static int split_chunk(struct simulation *sim, struct scheduler_chunk chunk) {
        uint32_t done = between(sim, 0, chunk.rows - 1);
        bool suspect = chance(sim, 2);
        struct scheduler_chunk its = chunk;

        ++sim->result->splits;
        sim_set_rows(sim, &chunk, 0, done, MODEL_ROW_DONE);
        sim_set_rows(sim, &chunk, done, chunk.rows - done, MODEL_ROW_OPEN);
        if (suspect) {
                its.first += done;
                its.row += done;
                its.rows = 1;
                sim->model.slots[chunk.slot].row[its.first] = MODEL_ROW_OUT;
                sim->model.chunks[sim->model.n_chunks++] = its;
        }
        return scheduler_chunk_split(sim->scheduler, chunk.slot, chunk.first, chunk.rows, done, suspect);
}

static int finish_chunk(struct simulation *sim, struct scheduler_chunk chunk) {
        struct model_slot *slot = &sim->model.slots[chunk.slot];

        sim_set_rows(sim, &chunk, 0, chunk.rows, MODEL_ROW_DONE);
        if (!slot->lost && model_count_rows(slot, MODEL_ROW_DONE) == slot->rows)
                slot->state = SCHEDULER_SLOT_READY;
        return scheduler_chunk_done(sim->scheduler, chunk.slot, chunk.first, chunk.rows);
}

/* Everybody's patience, after a chunk was finished. */
static void run_out_of_patience(struct simulation *sim) {
        bool is_short = model_is_short(&sim->model), due = false;

        for (uint32_t j = 0; j < sim->model.n_jobs; ++j) {
                struct model_job *job = &sim->model.jobs[j];

                due |= job->due;
                if (is_short || !model_within_minimum(&sim->model, job))
                        job->patience = 0;
                else if (++job->patience > PATIENCE_MAX)
                        sim_breach(sim, "job %u starves", job->job.id);
                if (job->patience > sim->result->patience)
                        sim->result->patience = job->patience;
        }
        if (!is_short || !due)
                sim->patience = 0;
        else if (++sim->patience > PATIENCE_MAX)
                sim_breach(sim, "the ring is short, and nobody is served");
}

void sim_end_chunk(struct simulation *sim, uint32_t i, enum chunk_end how) {
        struct scheduler_chunk chunk = sim->model.chunks[i];
        int r;

        sim->model.chunks[i] = sim->model.chunks[--sim->model.n_chunks];
        if (how == CHUNK_DONE) {
                r = finish_chunk(sim, chunk);
        } else if (how == CHUNK_SPLIT) {
                r = split_chunk(sim, chunk);
        } else {
                sim_set_rows(sim, &chunk, 0, chunk.rows, MODEL_ROW_OPEN);
                sim->model.slots[chunk.slot].lost = true;
                sim->model.warm.in_vain |= sim->model.n_jobs == 0;
                r = scheduler_chunk_lost(sim->scheduler, chunk.slot, chunk.first, chunk.rows);
        }
        if (r != 0)
                sim_breach(sim, "a chunk that is out is unknown");
        sim_give_up_unwanted(sim);
        if (how == CHUNK_DONE)
                run_out_of_patience(sim);
        for (uint32_t j = 0; how == CHUNK_LOST && j < sim->model.n_jobs; ++j)
                sim->model.jobs[j].patience = 0;
}
