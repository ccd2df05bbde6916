/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A life is a small random ring with some workers, and a sequence of random events. After each event every
 * delivery is taken, idle workers get chunks, and then all that can be seen from outside is compared with the
 * model:
 *
 *   outcomes  every job gets exactly its batches in order, wherever it was sent, from READY slots that hold
 *             those rows, each reported done once in this filling, and padding is told as such; it gets none
 *             of an epoch that it has to ask for, and none while it waits to be sent elsewhere; a slot has
 *             one filling at a time, a row is with one worker at a time, the lowest that nobody has goes
 *             next; what is leased stays, what is in quarantine is not touched; if no chunk is out and there
 *             is none, no job is left that could take a batch within its minimum; nobody waits for ever; in
 *             a steady run fills are delivered; with no job there, what is to be warm becomes so
 *   rules     who is admitted; who is granted a lease, and before whom; what is filled first, and for
 *             somebody; what is evicted; who may catch up with whom, when, and for how long.
 *
 * Jobs have any rank, world size, batch size, tail and lookahead; often all ranks of a group come together,
 * and share whole steps. They are sent on when they have had their epoch, or anywhere.
 *
 * Workers fail: chunks are lost or come back in parts, suspects go out alone, slots go into quarantine and
 * come back, until the ring is short of what its jobs were promised. Some jobs never give back all they hold.
 * In some lives the scheduler has room for hardly any chunks.
 *
 * The rules are left out of the comparison when one of them is left out of the scheduler on purpose, since
 * then the outcomes shall tell. The first breach ends a life. */

#include "tests/unit/scheduler-simulation.h"

#include "daemon/scheduler-internal.h"
#include "tests/unit/scheduler-model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        PATIENCE_MAX = 300, /* chunks finished; the worst that the unbroken scheduler needed in 12 million
                               events was 44 */
        TICK_MAX_NS = 1000,
        EVENTS_OF_JOBS = 52, /* of 100 */
};

struct simulation {
        const struct simulation_options *options;
        struct simulation_result *result;
        struct scheduler *scheduler;
        struct model model;
        struct simulation_world own, *world;
        bool retired; /* no job comes any more */
        uint32_t workers;
        uint32_t next_id;
        uint64_t patience; /* chunks finished without a delivery, while a due batch waits in a short ring */
        struct scheduler_job group;        /* the last job that was drawn; its next ranks may follow */
        struct scheduler_job awaited;      /* while model.awaited is not 0, unless it is `seeker` */
        uint32_t seeker;                   /* the job whose seek waits for room, or 0 */
        struct scheduler_counters counted; /* steady: at the end of the warm-up */
};

/* splitmix64, for the dice only */
static uint64_t draw(struct simulation *sim) {
        uint64_t z = sim->world->random += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint32_t between(struct simulation *sim, uint32_t least, uint32_t most) {
        return least + (uint32_t)(draw(sim) % (most - least + 1));
}

static bool chance(struct simulation *sim, uint32_t of) {
        return draw(sim) % of == 0;
}

/* Time goes by, at random: half a microsecond in the mean. */
static uint64_t tick(struct simulation *sim) {
        return sim->world->now += between(sim, 1, TICK_MAX_NS);
}

__attribute__((format(printf, 2, 3))) static void breach(struct simulation *sim, const char *format, ...) {
        char text[sizeof(sim->result->breach) - 64];
        va_list args;

        if (sim->result->breach[0])
                return;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        snprintf(sim->result->breach, sizeof(sim->result->breach), "%s (life %llu, event %u)", text,
                 (unsigned long long)sim->options->seed, sim->result->events);
}

static struct model_key key_of(const struct scheduler_config *config, const struct scheduler_chunk *chunk) {
        return (struct model_key){chunk->seed, chunk->epoch, chunk->row / config->slot_rows};
}

/* The job is the last in line from now on. */
static void wait_anew(struct simulation *sim, struct model_job *job) {
        job->waits_since = sim->world->now;
        model_wait(&sim->model, job);
}

/* ---- deliveries ---- */

static struct model_job *find_job(struct model *model, uint32_t id) {
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
                breach(sim, "job %u was given slot %u, which is not READY", job->job.id, segment->slot);
        if (slot->key.seed != job->job.seed || slot->key.epoch != job->next.epoch || segment->rows == 0 ||
            segment->first + segment->rows > slot->rows) {
                breach(sim, "job %u was given something else", job->job.id);
                return;
        }
        for (uint32_t j = segment->first; j < segment->first + segment->rows; ++j, ++row) {
                if (slot->key.index * config->slot_rows + j != row % config->samples)
                        breach(sim, "job %u was given another row than %llu", job->job.id,
                               (unsigned long long)row);
                if (segment->padding != (row >= config->samples))
                        breach(sim, "job %u was told wrongly whether row %llu is padding", job->job.id,
                               (unsigned long long)row);
                if (slot->row[j] != MODEL_ROW_DONE)
                        breach(sim, "job %u was given row %u of slot %u, which nobody reported done",
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
                breach(sim, "job %u was not given the whole batch", job->job.id);
        if (delivery->n_segments > position_segments(&job->job.plan, sim->model.config.slot_rows))
                breach(sim, "job %u: a batch in %u segments", job->job.id, delivery->n_segments);
}

static void check_turn(struct simulation *sim, const struct model_job *job) {
        if (!job->due)
                breach(sim, "rule 3: job %u was granted a batch out of turn", job->job.id);
        for (const struct model_job *other = sim->model.jobs; other != job; ++other)
                if (other->due && model_is_ready(&sim->model, other))
                        breach(sim, "job %u was served before job %u, which waited longer", job->job.id,
                               other->job.id);
}

static void take_delivery(struct simulation *sim, const struct scheduler_delivery *delivery) {
        struct model_job *job = find_job(&sim->model, delivery->job);
        struct model_held *held;
        bool was_short = model_is_short(&sim->model);

        ++sim->result->deliveries;
        sim->result->short_deliveries += was_short;
        sim->patience = 0;
        if (!job || delivery->number != job->number || delivery->position.epoch != job->next.epoch ||
            delivery->position.row != job->next.row || delivery->position.rows != job->next.rows) {
                breach(sim, "job %u got another batch than its next", delivery->job);
                return;
        }
        if (model_is_parked(job) || job->seeking)
                breach(sim, "job %u got a batch that it has not asked for", job->job.id);
        if (job->n_held >= job->job.max_held) {
                breach(sim, "job %u got more batches than it may hold", delivery->job);
                return;
        }
        if (model_is_led(&sim->model, job, job->next))
                breach(sim, "job %u got a batch too far ahead of the others", job->job.id);
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
                breach(sim, "rule 3: leases exceed the ring");
}

/* ---- chunks ---- */

/* Could a slot be had for a due batch? */
static bool slot_to_be_had(const struct model *model) {
        for (uint32_t i = 0; i < model->config.slots; ++i)
                if (model->slots[i].state == SCHEDULER_SLOT_FREE ||
                    (model_is_idle(model, i) && model_use(model, model->slots[i].key) > 0))
                        return true;
        return false;
}

/* Does the job's next batch need work that could be handed out? */
static bool has_work(struct model *model, const struct model_job *job, bool to_be_had) {
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
                        breach(sim, "a slot was begun before one that job %u uses sooner",
                               sim->model.jobs[i].job.id);
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                const struct model_slot *slot = &sim->model.slots[i];

                if (use > 0 && model_is_open(slot) && model_use(&sim->model, slot->key) <= use &&
                    (use < MODEL_NEVER || model_is_warm(&sim->model, slot->key)))
                        breach(sim, "a slot was begun while slot %u had open rows", i);
        }
}

/* Rule 4: due batches first, the one that has waited longest before all. As things were before the chunk. */
static void check_urgency(struct simulation *sim, struct model_key key) {
        bool to_be_had = slot_to_be_had(&sim->model), comes_first = model_comes_first(&sim->model, key);

        if (!comes_first && model_first_work(&sim->model))
                breach(sim, "something was filled before what those lack that catch up");
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
                if (has_work(&sim->model, job, to_be_had))
                        breach(sim, "rule 4: something was filled before the due batch of job %u",
                               job->job.id);
        }
        if (model_use(&sim->model, key) == MODEL_NEVER &&
            !(model_makes_warm(&sim->model) && model_is_warm(&sim->model, key)))
                breach(sim, "a slot is filled for nobody");
}

/* Rule 5, before slot `number` is used again for `key`. */
static void check_eviction(struct simulation *sim, uint32_t number, struct model_key key) {
        uint64_t use = model_use(&sim->model, sim->model.slots[number].key);

        bool warm = model_is_warm(&sim->model, sim->model.slots[number].key);

        if (use == 0)
                breach(sim, "rule 4: a slot of a due batch was evicted");
        if (use <= model_use(&sim->model, key) && (use < MODEL_NEVER || warm))
                breach(sim, "rule 5: a slot was evicted for one that is used no sooner");
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                if (sim->model.slots[i].state == SCHEDULER_SLOT_FREE)
                        breach(sim, "a slot was evicted while another was FREE");
                if (model_is_idle(&sim->model, i) && model_use(&sim->model, sim->model.slots[i].key) > use)
                        breach(sim, "rule 5: the slot that was evicted was not the one used last");
                if (use == MODEL_NEVER && warm && model_is_idle(&sim->model, i) &&
                    model_use(&sim->model, sim->model.slots[i].key) == MODEL_NEVER &&
                    !model_is_warm(&sim->model, sim->model.slots[i].key))
                        breach(sim, "a slot that was kept warm was evicted before one that nobody wants");
        }
}

static void start_filling(struct simulation *sim, const struct scheduler_chunk *chunk) {
        struct model_slot *slot = &sim->model.slots[chunk->slot];
        struct model_key key = key_of(&sim->model.config, chunk);
        uint64_t left = sim->model.config.samples - key.index * sim->model.config.slot_rows;

        if (model_find(&sim->model, key))
                breach(sim, "a key is filled into a second slot");
        if (slot->state == SCHEDULER_SLOT_FILLING)
                breach(sim, "slot %u has two fillings", chunk->slot);
        if (slot->stuck > 0)
                breach(sim, "slot %u is filled, but in quarantine", chunk->slot);
        if (model_slot_leases(&sim->model, chunk->slot) > 0)
                breach(sim, "slot %u was filled again while leased", chunk->slot);
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
                breach(sim, "slot %u: not the rows that come next", chunk->slot);
                return;
        }
        run = least_of(run, wanted);
        if (chunk->rows > run)
                breach(sim, "a chunk of %u rows is too large", chunk->rows);
        if (model_use(&sim->model, slot->key) == 0)
                run = least_of(run, share);
        if (!sim->options->outcomes_only && chunk->rows != run)
                breach(sim, "a chunk has %u rows, not %u", chunk->rows, run);
        for (uint32_t i = 0; i < chunk->rows; ++i)
                slot->row[first + i] = MODEL_ROW_OUT;
}

static void take_chunk(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t wanted) {
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
static void give_up_unwanted(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                struct model_slot *slot = &sim->model.slots[i];
                bool warm = model_makes_warm(&sim->model) && model_is_warm(&sim->model, slot->key);

                if (slot->state == SCHEDULER_SLOT_FILLING && model_count_rows(slot, MODEL_ROW_OUT) == 0 &&
                    (slot->lost ||
                     (model_is_open(slot) && !warm && model_use(&sim->model, slot->key) == MODEL_NEVER)))
                        slot->state = slot->stuck > 0 ? SCHEDULER_SLOT_QUARANTINED : SCHEDULER_SLOT_FREE;
        }
}

enum chunk_end {
        CHUNK_DONE,
        CHUNK_LOST,
        CHUNK_SPLIT,
};

/* What became of `rows` of a chunk. */
static void set_rows(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t first,
                     uint32_t rows, enum model_row state) {
        struct model_slot *slot = &sim->model.slots[chunk->slot];

        for (uint32_t i = chunk->first + first; i < chunk->first + first + rows; ++i) {
                if (slot->row[i] != MODEL_ROW_OUT)
                        breach(sim, "row %u of slot %u came back, but was not out", i, chunk->slot);
                slot->row[i] = state;
        }
}

static int split_chunk(struct simulation *sim, struct scheduler_chunk chunk) {
        uint32_t done = between(sim, 0, chunk.rows - 1);
        bool suspect = chance(sim, 2);
        struct scheduler_chunk its = chunk;

        ++sim->result->splits;
        set_rows(sim, &chunk, 0, done, MODEL_ROW_DONE);
        set_rows(sim, &chunk, done, chunk.rows - done, MODEL_ROW_OPEN);
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

        set_rows(sim, &chunk, 0, chunk.rows, MODEL_ROW_DONE);
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
                        breach(sim, "job %u starves", job->job.id);
                if (job->patience > sim->result->patience)
                        sim->result->patience = job->patience;
        }
        if (!is_short || !due)
                sim->patience = 0;
        else if (++sim->patience > PATIENCE_MAX)
                breach(sim, "the ring is short, and nobody is served");
}

static void end_chunk(struct simulation *sim, uint32_t i, enum chunk_end how) {
        struct scheduler_chunk chunk = sim->model.chunks[i];
        int r;

        sim->model.chunks[i] = sim->model.chunks[--sim->model.n_chunks];
        if (how == CHUNK_DONE) {
                r = finish_chunk(sim, chunk);
        } else if (how == CHUNK_SPLIT) {
                r = split_chunk(sim, chunk);
        } else {
                set_rows(sim, &chunk, 0, chunk.rows, MODEL_ROW_OPEN);
                sim->model.slots[chunk.slot].lost = true;
                sim->model.warm.in_vain |= sim->model.n_jobs == 0;
                r = scheduler_chunk_lost(sim->scheduler, chunk.slot, chunk.first, chunk.rows);
        }
        if (r != 0)
                breach(sim, "a chunk that is out is unknown");
        give_up_unwanted(sim);
        if (how == CHUNK_DONE)
                run_out_of_patience(sim);
        for (uint32_t j = 0; how == CHUNK_LOST && j < sim->model.n_jobs; ++j)
                sim->model.jobs[j].patience = 0;
}

/* ---- jobs ---- */

static void draw_plan(struct simulation *sim, struct position_plan *plan) {
        const struct scheduler_config *config = &sim->model.config;

        *plan = (struct position_plan){.samples = config->samples};
        plan->world_size = chance(sim, 2) ? 1 : between(sim, 2, 4);
        plan->rank = chance(sim, 3) ? between(sim, 0, plan->world_size - 1) : 0;
        plan->last_batch = (enum last_batch)between(sim, LAST_BATCH_SHORT, LAST_BATCH_PAD);
        plan->batch_size = chance(sim, 2) ? config->slot_rows : between(sim, 1, config->slot_rows * 5 / 2);
        if (plan->last_batch == LAST_BATCH_DROP && plan->world_size * plan->batch_size > config->samples)
                plan->last_batch = LAST_BATCH_SHORT;
}

/* Any place; often the beginning of a slot. */
static void draw_place(struct simulation *sim, uint32_t least, uint32_t most, uint32_t *epoch,
                       uint64_t *row) {
        *epoch = between(sim, least, most);
        *row = between(sim, 0, (uint32_t)sim->model.config.samples - 1);
        if (chance(sim, 2))
                *row -= *row % sim->model.config.slot_rows;
}

static bool has_ranks_left(const struct simulation *sim) {
        return sim->group.plan.rank + 1 < sim->group.plan.world_size;
}

static struct scheduler_job draw_job(struct simulation *sim) {
        static const uint32_t lookaheads[] = {0, 1, 2, UINT32_MAX};
        struct scheduler_job job = sim->group;

        job.id = ++sim->next_id;
        if (has_ranks_left(sim) && !chance(sim, 8)) {
                ++job.plan.rank;
        } else {
                job = (struct scheduler_job){.id = job.id, .seed = between(sim, 1, chance(sim, 3) ? 3 : 1)};
                draw_plan(sim, &job.plan);
                if (!sim->options->steady && chance(sim, 3))
                        draw_place(sim, 0, 2, &job.start_epoch, &job.start_row);
                job.lookahead = lookaheads[between(sim, 0, 3)];
                if (!sim->options->steady && !sim->options->outcomes_only && chance(sim, 4))
                        job.gather = between(sim, 0, 4);
                job.expecting = !sim->options->steady && !sim->options->outcomes_only && chance(sim, 6);
        }
        job.max_held = between(sim, 1, MODEL_HELD_MAX);
        job.gather_until = sim->world->now + (job.gather > 0 ? between(sim, 0, 50 * TICK_MAX_NS) : 0);
        sim->group = job;
        return job;
}

/* Rule 2 as DESIGN tells it, with the wait for what others hold beyond their minimum. `self`: a job that is
 * there already and is sent to where it needs `minimum`; NULL: a new one. `ahead`: slots that are waited for.
 */
static int expected_admission(const struct simulation *sim, const struct model_job *self, uint32_t minimum,
                              uint32_t ahead) {
        uint64_t entitled = minimum + ahead, demand = entitled;

        if (self && minimum <= self->minimum)
                return 0;
        if (self && model_leased(&sim->model, self) > minimum)
                demand = model_leased(&sim->model, self) + ahead;
        for (const struct model_job *job = sim->model.jobs; job < sim->model.jobs + sim->model.n_jobs;
             ++job) {
                uint32_t leased = model_leased(&sim->model, job);

                if (job == self)
                        continue;
                entitled += job->minimum;
                demand += leased > job->minimum ? leased : job->minimum;
        }
        if (entitled > model_capacity(&sim->model))
                return SCHEDULER_E_FULL;
        return demand > model_capacity(&sim->model) ? SCHEDULER_E_LATER : 0;
}

/* A job that has to wait is announced; one that comes may also give up. */
static void set_awaited(struct simulation *sim, uint32_t slots, uint32_t seeker) {
        scheduler_set_awaited(sim->scheduler, slots);
        sim->model.awaited = slots;
        sim->seeker = seeker;
}

static int attach(struct simulation *sim) {
        struct scheduler_job job = sim->model.awaited > 0 ? sim->awaited : draw_job(sim);
        uint32_t minimum = model_minimum(&sim->model.config, &job.plan, job.start_row);
        int expected = expected_admission(sim, NULL, minimum, 0), r;
        struct model_job *its;

        /* With the rules broken on purpose, what can never run is still not let in: it would prove nothing.
         */
        if (sim->options->outcomes_only && minimum > sim->model.config.slots)
                return SCHEDULER_E_FULL;
        r = scheduler_attach(sim->scheduler, &job, tick(sim), NULL);
        if (!sim->options->outcomes_only && r != expected)
                breach(sim, "rule 2: attach gave %d instead of %d", r, expected);
        sim->awaited = job;
        set_awaited(sim, r == SCHEDULER_E_LATER && !chance(sim, 8) ? minimum : 0, 0);
        if (r != 0)
                return r;
        its = &sim->model.jobs[sim->model.n_jobs++];
        *its = (struct model_job){.job = job, .minimum = minimum, .waits_since = sim->world->now};
        its->next = position_first(&job.plan, job.start_epoch, job.start_row);
        its->epoch = its->next.epoch;
        its->gathering = job.gather > 1;
        its->expecting = job.expecting;
        sim->model.warm.in_vain = false;
        its->laziness = chance(sim, 2) ? 0 : between(sim, 1, 4);
        its->tenacious = !sim->options->steady && job.max_held > 1 && chance(sim, 2);
        give_up_unwanted(sim);
        return 0;
}

/* A job, and often those of the other ranks. */
static void attach_group(struct simulation *sim) {
        while (sim->model.n_jobs < MODEL_JOBS_MAX && attach(sim) == 0 && has_ranks_left(sim) &&
               !chance(sim, 8))
                ;
}

/* The seek was successful. */
static void move(struct simulation *sim, struct model_job *job, uint32_t minimum) {
        ++sim->result->seeks;
        job->minimum = minimum;
        job->next = position_first(&job->job.plan, job->seek_epoch, job->seek_row);
        job->epoch = job->next.epoch;
        job->patience = 0;
        job->since = job->number;
        job->bound = false;
        wait_anew(sim, job);
        give_up_unwanted(sim);
}

/* To where its seek_epoch and seek_row say. */
static void seek(struct simulation *sim, struct model_job *job) {
        uint32_t minimum = model_minimum(&sim->model.config, &job->job.plan, job->seek_row);
        uint32_t ahead = job->job.id == sim->seeker ? 0 : sim->model.awaited;
        int expected, r;

        if (job->n_held > 0 && minimum < job->minimum)
                minimum = job->minimum;
        expected = expected_admission(sim, job, minimum, ahead);
        if (expected == SCHEDULER_E_LATER && ahead > 0)
                return; /* there is one place to wait */
        if (sim->options->outcomes_only && minimum > sim->model.config.slots)
                return;
        r = scheduler_seek(sim->scheduler, job->job.id, job->seek_epoch, job->seek_row, ahead, tick(sim),
                           NULL);
        if (!sim->options->outcomes_only && r != expected)
                breach(sim, "rule 2: seek gave %d instead of %d", r, expected);
        sim->result->waits += r == SCHEDULER_E_LATER && !job->seeking;
        job->seeking = r == SCHEDULER_E_LATER;
        if (r == SCHEDULER_E_LATER)
                set_awaited(sim, minimum, job->job.id);
        else if (job->job.id == sim->seeker)
                set_awaited(sim, 0, 0);
        if (r == 0)
                move(sim, job, minimum);
}

static void seek_on(struct simulation *sim, struct model_job *job) {
        job->seek_epoch = job->next.epoch;
        job->seek_row = 0;
        seek(sim, job);
}

/* Those who have had their epoch ask for the next, mostly; others go anywhere. */
static void seek_somewhere(struct simulation *sim) {
        struct model_job *job = &sim->model.jobs[between(sim, 0, sim->model.n_jobs - 1)];

        for (uint32_t i = 0; i < sim->model.n_jobs && !model_is_parked(job); ++i)
                if (model_is_parked(&sim->model.jobs[i]) && chance(sim, 2))
                        job = &sim->model.jobs[i];
        if (job->seeking)
                return;
        if (model_is_parked(job) && !chance(sim, 8)) {
                seek_on(sim, job);
        } else if (chance(sim, 2)) {
                draw_place(sim, job->epoch > 0 ? job->epoch - 1 : 0, job->epoch + 2, &job->seek_epoch,
                           &job->seek_row);
                seek(sim, job);
        }
}

/* Somebody comes, or who waits for room tries again. */
static void come(struct simulation *sim) {
        if (sim->seeker)
                seek(sim, find_job(&sim->model, sim->seeker));
        else if (!sim->retired)
                attach_group(sim);
}

static void detach(struct simulation *sim) {
        struct model_job *job = &sim->model.jobs[between(sim, 0, sim->model.n_jobs - 1)];

        if (scheduler_detach(sim->scheduler, job->job.id) != 0)
                breach(sim, "an attached job is unknown");
        if (job->job.id == sim->seeker)
                set_awaited(sim, 0, 0);
        model_wait(&sim->model, job);
        --sim->model.n_jobs;
        give_up_unwanted(sim);
}

/* One leaves, or all do: then slots are made warm for who comes next. */
static void leave(struct simulation *sim) {
        uint32_t n = sim->model.warm.slots > 0 && chance(sim, 3) ? sim->model.n_jobs : 1;

        while (n-- > 0)
                detach(sim);
}

/* The ranks have come that some have waited for. */
static void begin_some(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct model_job *job = &sim->model.jobs[i];

                if (!job->expecting || !chance(sim, 2))
                        continue;
                job->expecting = false;
                scheduler_begin(sim->scheduler, job->job.id);
        }
}

static void release(struct simulation *sim, struct model_job *job) {
        uint32_t i = chance(sim, 4) ? between(sim, 0, job->n_held - 1) : 0;
        struct model_held held = job->held[i];
        bool was_full = job->n_held == job->job.max_held;

        if (scheduler_release(sim->scheduler, job->job.id, held.number, tick(sim)) != 0)
                breach(sim, "a held batch is unknown");
        memmove(&job->held[i], &job->held[i + 1], (job->n_held - i - 1) * sizeof(held));
        --job->n_held;
        job->moved_at = sim->world->now;
        for (uint32_t j = 0; j < held.n_slots; ++j)
                --job->leases[held.slots[j]];
        if (was_full)
                wait_anew(sim, job);
}

static void release_some(struct simulation *sim) {
        uint32_t ids[MODEL_JOBS_MAX], n = sim->model.n_jobs;

        for (uint32_t i = 0; i < n; ++i)
                ids[i] = sim->model.jobs[i].job.id;
        for (uint32_t i = 0; i < n; ++i) {
                struct model_job *job = find_job(&sim->model, ids[i]);

                if (job->n_held > job->tenacious && (job->laziness == 0 || chance(sim, 2 * job->laziness)))
                        release(sim, job);
        }
}

static void seek_some(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct model_job *job = &sim->model.jobs[i];

                if (model_is_parked(job) && !job->seeking &&
                    (job->laziness == 0 || chance(sim, 2 * job->laziness)))
                        seek_on(sim, job);
        }
}

/* A worker dies for good while at chunk `i`, or, since its end and its chunk are two reports, the other way
 * round. */
static void quarantine(struct simulation *sim, uint32_t i) {
        uint32_t number = sim->model.chunks[i].slot;
        struct model_slot *slot = &sim->model.slots[number];
        uint32_t largest = 0;
        bool lost_first = chance(sim, 3);

        for (uint32_t j = 0; j < sim->model.n_jobs; ++j)
                if (sim->model.jobs[j].minimum > largest)
                        largest = sim->model.jobs[j].minimum;
        if (model_capacity(&sim->model) <= largest && !chance(sim, 4)) {
                end_chunk(sim, i, CHUNK_LOST); /* it dies, but for good it does not */
                return;
        }
        ++sim->result->quarantines;
        if (lost_first)
                end_chunk(sim, i, CHUNK_LOST);
        if (scheduler_slot_quarantine(sim->scheduler, number) != 0)
                breach(sim, "slot %u could not be put into quarantine", number);
        ++slot->stuck;
        if (slot->state == SCHEDULER_SLOT_FILLING)
                slot->lost = true;
        else
                slot->state = SCHEDULER_SLOT_QUARANTINED;
        if (!lost_first)
                end_chunk(sim, i, chance(sim, 2) ? CHUNK_LOST : CHUNK_SPLIT);
}

static void end_quarantine(struct simulation *sim) {
        uint32_t number = between(sim, 0, sim->model.config.slots - 1);
        struct model_slot *slot = &sim->model.slots[number];

        if (scheduler_slot_return(sim->scheduler, number) != (slot->stuck > 0 ? 0 : SCHEDULER_E_UNKNOWN))
                breach(sim, "slot %u returned wrongly", number);
        if (slot->stuck > 0 && --slot->stuck == 0 && slot->state == SCHEDULER_SLOT_QUARANTINED)
                slot->state = SCHEDULER_SLOT_FREE;
}

/* What was never given: nothing may change, which check_views sees. */
static void talk_nonsense(struct simulation *sim) {
        const struct model_job *job = sim->model.n_jobs > 0 ? &sim->model.jobs[0] : NULL;
        const struct scheduler_chunk *chunk = &sim->model.chunks[0];

        if (scheduler_release(sim->scheduler, sim->next_id + 1, 0, tick(sim)) != SCHEDULER_E_UNKNOWN ||
            scheduler_detach(sim->scheduler, sim->next_id + 1) != SCHEDULER_E_UNKNOWN ||
            scheduler_chunk_done(sim->scheduler, 0, 0, sim->model.config.slot_rows + 1) !=
                    SCHEDULER_E_UNKNOWN ||
            scheduler_chunk_lost(sim->scheduler, sim->model.config.slots, 0, 1) != SCHEDULER_E_UNKNOWN ||
            scheduler_slot_quarantine(sim->scheduler, sim->model.config.slots) != SCHEDULER_E_UNKNOWN ||
            scheduler_seek(sim->scheduler, sim->next_id + 1, 0, 0, 0, tick(sim), NULL) != SCHEDULER_E_UNKNOWN)
                breach(sim, "nonsense was accepted");
        if (job && !job->seeking &&
            scheduler_seek(sim->scheduler, job->job.id, 0, sim->model.config.samples, 0, tick(sim), NULL) !=
                    -EINVAL)
                breach(sim, "a job was sent beyond the epoch");
        if (sim->model.n_chunks > 0 &&
            scheduler_chunk_split(sim->scheduler, chunk->slot, chunk->first, chunk->rows, chunk->rows,
                                  false) != SCHEDULER_E_UNKNOWN)
                breach(sim, "a chunk came back unfinished, but whole");
        for (uint32_t i = 0; i < sim->model.config.slots; ++i)
                if (sim->model.slots[i].state == SCHEDULER_SLOT_READY &&
                    scheduler_slot_quarantine(sim->scheduler, i) != SCHEDULER_E_UNKNOWN)
                        breach(sim, "a READY slot was put into quarantine");
        if (job &&
            scheduler_release(sim->scheduler, job->job.id, job->number, tick(sim)) != SCHEDULER_E_UNKNOWN)
                breach(sim, "a batch of the future was released");
        if (job && job->number > 0 && job->n_held == 0 &&
            scheduler_release(sim->scheduler, job->job.id, job->number - 1, tick(sim)) != SCHEDULER_E_UNKNOWN)
                breach(sim, "a batch was released twice");
}

/* ---- after every event ---- */

static void check_views(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                const struct model_slot *slot = &sim->model.slots[i];
                struct scheduler_slot_view view;

                scheduler_view_slot(sim->scheduler, i, &view);
                if (view.state != (slot->stuck > 0 ? SCHEDULER_SLOT_QUARANTINED : slot->state))
                        breach(sim, "slot %u is in state %d, not %d", i, (int)view.state, (int)slot->state);
                if (slot->state == SCHEDULER_SLOT_FREE || slot->stuck > 0)
                        continue;
                if (view.rows != slot->rows || view.rows_done != model_count_rows(slot, MODEL_ROW_DONE) ||
                    view.leases != model_slot_leases(&sim->model, i) || view.index != slot->key.index)
                        breach(sim, "slot %u is not what it should be", i);
        }
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                const struct model_job *job = &sim->model.jobs[i];
                struct scheduler_job_view view;

                if (scheduler_view_job(sim->scheduler, job->job.id, &view) != 0 || view.held != job->n_held ||
                    view.leased != model_leased(&sim->model, job) || view.batches != job->number ||
                    view.ready != model_count_ready(&sim->model, job) || view.parked != model_is_parked(job))
                        breach(sim, "job %u is not what it should be", job->job.id);
                if (sim->options->outcomes_only)
                        continue;
                if (view.waiting != (job->due && !model_is_ready(&sim->model, job)))
                        breach(sim, "job %u: waiting is %d", job->job.id, view.waiting);
                if (view.minimum != job->minimum)
                        breach(sim, "rule 1: job %u needs %u slots, not %u", job->job.id, job->minimum,
                               view.minimum);
        }
}

/* Nobody works, and nobody is there: all is warm that there is room for. */
static void check_warm(struct simulation *sim) {
        struct model_key key = {.seed = sim->model.warm.seed};
        bool room = false;

        for (uint32_t i = 0; i < sim->model.config.slots; ++i)
                room |= sim->model.slots[i].state == SCHEDULER_SLOT_FREE ||
                        (model_is_idle(&sim->model, i) &&
                         !model_is_warm(&sim->model, sim->model.slots[i].key));
        for (; room && key.index < sim->model.warm.slots; ++key.index) {
                const struct model_slot *slot = model_find(&sim->model, key);

                if (!slot || slot->state != SCHEDULER_SLOT_READY)
                        breach(sim, "slot %llu of the epoch is not made warm", (unsigned long long)key.index);
        }
}

static bool could_take(struct model *model, const struct model_job *job) {
        return model_within_minimum(model, job) && (!model_is_short(model) || model_fits_really(model, job));
}

/* Who waited for others to come, and does no more. */
static void end_gathering(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct model_job *job = &sim->model.jobs[i];
                struct scheduler_job_view view = {0};
                uint32_t n = 0;

                for (uint32_t j = 0; j < sim->model.n_jobs; ++j)
                        n += sim->model.jobs[j].job.seed == job->job.seed;
                if (n >= job->job.gather || sim->world->now >= job->job.gather_until)
                        job->gathering = false;
                scheduler_view_job(sim->scheduler, job->job.id, &view);
                if (view.gathering != job->gathering || view.expecting != job->expecting)
                        breach(sim, "job %u %s for others to come", job->job.id,
                               view.gathering || view.expecting ? "still waits" : "does not wait");
        }
        model_choose_due(&sim->model);
}

/* Who is bound since the call that looks, and was before it. All in the order of waiting, like the scheduler,
 * which looks at each with those before it bound or not already. */
static void check_lockstep(struct simulation *sim) {
        bool bound[MODEL_JOBS_MAX];

        if (sim->model.lockstep.max_lead == 0)
                return;
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct scheduler_job_view view = {0};

                scheduler_view_job(sim->scheduler, sim->model.jobs[i].job.id, &view);
                bound[i] = view.bound;
        }
        model_note_excuses(&sim->model, sim->world->now);
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                const char *wrong =
                        model_check_lockstep(&sim->model, &sim->model.jobs[i], bound[i], sim->world->now);

                if (wrong && !sim->options->outcomes_only)
                        breach(sim, "%s", wrong);
        }
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (!model_somebody_leads_on(&sim->model, sim->model.jobs[i].job.seed))
                        breach(sim, "all wait for each other");
        give_up_unwanted(sim);
        model_choose_due(&sim->model);
}

/* The call that looks whether somebody is to catch up: held against how things were before it. */
static bool next_delivery(struct simulation *sim, struct scheduler_delivery *delivery) {
        struct scheduler_catch_up view = {0};
        bool got = scheduler_next_delivery(sim->scheduler, tick(sim), delivery);
        bool runs = scheduler_view_catch_up(sim->scheduler, &view);
        const char *wrong = NULL;

        end_gathering(sim);
        check_lockstep(sim);
        if (!sim->options->outcomes_only)
                wrong = model_check_catch_up(&sim->model, &view, runs, sim->world->now);
        if (wrong)
                breach(sim, "%s", wrong);
        return got;
}

void simulation_deliver(struct simulation *sim) {
        struct scheduler_delivery delivery;

        if (sim->model.lockstep.max_lead > 0)
                give_up_unwanted(sim); /* the lead may have become smaller */
        model_choose_due(&sim->model);
        while (!sim->result->breach[0] && next_delivery(sim, &delivery))
                take_delivery(sim, &delivery);
}

bool simulation_peek(struct simulation *sim, uint64_t *use, uint64_t *since) {
        return scheduler_peek_chunk(sim->scheduler, use, since);
}

/* The first in line whose due batch lacks rows that could be handed out. */
static const struct model_job *first_waiting(struct simulation *sim) {
        bool to_be_had = slot_to_be_had(&sim->model);

        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (sim->model.jobs[i].due && has_work(&sim->model, &sim->model.jobs[i], to_be_had))
                        return &sim->model.jobs[i];
        return NULL;
}

bool simulation_keeps_warm(const struct simulation *sim) {
        return sim->model.warm.slots > 0;
}

bool simulation_is_waited_for(struct simulation *sim) {
        return first_waiting(sim);
}

/* What a look told, against the model before the chunk: how urgent it is and, if somebody waits, since when
 * the first in line does, also if another chunk comes first for a catch-up. */
static void check_look(struct simulation *sim, uint64_t use, uint64_t since,
                       const struct scheduler_chunk *chunk) {
        uint64_t its = model_use(&sim->model, key_of(&sim->model.config, chunk));
        const struct model_job *first = first_waiting(sim);
        struct scheduler_catch_up view;
        bool runs = scheduler_view_catch_up(sim->scheduler, &view);

        if (runs ? use > its : use != its)
                breach(sim, "a look told a use %llu batches away, the chunk's is %llu",
                       (unsigned long long)use, (unsigned long long)its);
        if (!first)
                return;
        if (use > 0)
                breach(sim, "a look told a use %llu batches away, and job %u waits", (unsigned long long)use,
                       first->job.id);
        else if (since != first->waits_since)
                breach(sim, "a look told that job %u has waited since %llu, not %llu", first->job.id,
                       (unsigned long long)since, (unsigned long long)first->waits_since);
}

bool simulation_next_chunk(struct simulation *sim, struct scheduler_chunk *chunk) {
        uint32_t wanted = between(sim, 1, sim->model.config.slot_rows);
        uint64_t use = 0, since = 0;
        bool looked = scheduler_peek_chunk(sim->scheduler, &use, &since);
        bool work = scheduler_next_chunk(sim->scheduler, wanted, sim->workers, chunk);

        if (looked != work)
                breach(sim, "a look found %s chunk, but there was %s", looked ? "a" : "no",
                       work ? "one" : "none");
        if (work && !sim->options->outcomes_only)
                check_look(sim, use, since, chunk);
        if (work)
                take_chunk(sim, chunk, wanted);
        return work;
}

void simulation_check(struct simulation *sim, bool may_work) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (may_work && sim->model.n_chunks == 0 && could_take(&sim->model, &sim->model.jobs[i]))
                        breach(sim, "no progress: job %u could take a batch, and nobody works",
                               sim->model.jobs[i].job.id);
        if (may_work && sim->model.n_chunks == 0 && model_makes_warm(&sim->model))
                check_warm(sim);
        check_views(sim);
}

static void pump(struct simulation *sim) {
        struct scheduler_chunk chunk;

        simulation_deliver(sim);
        while (!sim->result->breach[0] && sim->model.n_chunks < sim->workers &&
               simulation_next_chunk(sim, &chunk))
                ;
        simulation_check(sim, true);
}

static void fail_or_finish(struct simulation *sim, uint32_t i) {
        uint32_t dice = between(sim, 0, 99);

        if (dice < 2)
                quarantine(sim, i);
        else
                end_chunk(sim, i, dice < 4 ? CHUNK_LOST : dice < 25 ? CHUNK_SPLIT : CHUNK_DONE);
}

/* Anything but the end of a chunk. */
static void event_of_jobs(struct simulation *sim, uint32_t dice) {
        if (dice < 3)
                come(sim);
        else if (dice < 5 && sim->model.n_jobs > 0)
                leave(sim);
        else if (dice < 7)
                talk_nonsense(sim);
        else if (dice < 10)
                begin_some(sim);
        else if (dice < 42)
                release_some(sim);
        else if (dice < 45)
                end_quarantine(sim);
        else if (sim->model.n_jobs > 0)
                seek_somewhere(sim);
}

static void random_event(struct simulation *sim) {
        uint32_t dice = between(sim, 0, 99);

        if (dice < EVENTS_OF_JOBS)
                event_of_jobs(sim, dice);
        else if (sim->model.n_chunks > 0)
                fail_or_finish(sim, between(sim, 0, sim->model.n_chunks - 1));
}

/* Bound by the workers: jobs release, and ask for their next epoch, between any two chunks, the lazy ones
 * less often. */
static void steady_event(struct simulation *sim) {
        if (sim->result->events % 2 == 0)
                simulation_consume(sim);
        else if (sim->model.n_chunks > 0)
                end_chunk(sim, between(sim, 0, sim->model.n_chunks - 1), CHUNK_DONE);
}

static void begin(struct simulation *sim) {
        struct scheduler_config *config = &sim->model.config;

        config->slots = between(sim, 2, 12);
        config->slot_rows = between(sim, 1, 8);
        config->samples = between(sim, 1, config->slot_rows * (chance(sim, 4) ? 1 : 10));
        sim->workers = between(sim, 1, 4);
        if (scheduler_new(&sim->scheduler, config) < 0) {
                breach(sim, "no scheduler");
                return;
        }
        sim->scheduler->sabotage = sim->options->sabotage;
        if (!chance(sim, 3)) {
                sim->model.catch_up.rows = between(sim, 1, 60);
                sim->model.catch_up.ns = sim->model.catch_up.rows * between(sim, 20, 400);
        }
        if (chance(sim, 3) && !sim->options->outcomes_only) {
                sim->model.lockstep.max_lead = between(sim, 1, 80);
                sim->model.lockstep.lag_timeout = between(sim, 1000, 100000);
        }
        scheduler_set_lockstep(sim->scheduler, sim->model.lockstep.max_lead, sim->model.lockstep.lag_timeout);
        scheduler_set_catch_up(sim->scheduler, sim->model.catch_up.rows, sim->model.catch_up.ns);
        if (!sim->options->steady && !sim->options->outcomes_only && chance(sim, 2)) {
                uint32_t slots = between(sim, 1, config->slots);
                uint64_t most = (config->samples + config->slot_rows - 1) / config->slot_rows;

                sim->model.warm.seed = 1;
                sim->model.warm.slots = slots < most ? slots : (uint32_t)most;
                if (scheduler_set_warm(sim->scheduler, 1, slots) < 0)
                        breach(sim, "no books");
        }
        if (!sim->options->steady && chance(sim, 3))
                chunks_init(sim->scheduler, between(sim, 1, 4));
        for (uint32_t i = 0; (sim->options->steady || sim->options->crowded) && i < MODEL_JOBS_MAX; ++i)
                attach_group(sim);
}

/* ---- as one of several ---- */

int simulation_new(struct simulation **simp, struct simulation_result *result,
                   const struct simulation_options *options) {
        struct simulation *sim = calloc(1, sizeof(*sim));

        if (!sim)
                return -ENOMEM;
        *sim = (struct simulation){.options = options, .result = result, .world = options->world};
        *result = (struct simulation_result){0};
        begin(sim);
        *simp = sim;
        return 0;
}

struct simulation *simulation_free(struct simulation *sim) {
        if (sim)
                scheduler_free(sim->scheduler);
        free(sim);
        return NULL;
}

void simulation_event(struct simulation *sim) {
        event_of_jobs(sim, between(sim, 0, EVENTS_OF_JOBS - 1));
}

void simulation_consume(struct simulation *sim) {
        release_some(sim);
        seek_some(sim);
}

void simulation_retire(struct simulation *sim) {
        sim->retired = true;
        if (!sim->seeker)
                set_awaited(sim, 0, 0);
}

void simulation_leave(struct simulation *sim) {
        if (sim->model.n_jobs > 0)
                detach(sim);
}

uint32_t simulation_jobs(const struct simulation *sim) {
        return sim->model.n_jobs;
}

uint32_t simulation_chunks(const struct simulation *sim) {
        return sim->model.n_chunks;
}

static bool is_same(const struct scheduler_chunk *a, const struct scheduler_chunk *b) {
        return a->slot == b->slot && a->first == b->first && a->rows == b->rows;
}

static void recall(struct simulation *sim, uint32_t i) {
        struct scheduler_chunk chunk = sim->model.chunks[i];

        sim->model.chunks[i] = sim->model.chunks[--sim->model.n_chunks];
        set_rows(sim, &chunk, 0, chunk.rows, MODEL_ROW_OPEN);
        if (scheduler_chunk_split(sim->scheduler, chunk.slot, chunk.first, chunk.rows, 0, false) != 0)
                breach(sim, "a chunk that is recalled is unknown");
        give_up_unwanted(sim);
}

bool simulation_end_chunk(struct simulation *sim, const struct scheduler_chunk *chunk,
                          enum simulation_end how, struct scheduler_chunk *suspect) {
        uint32_t n = sim->model.n_chunks, i = 0;

        while (i < n && !is_same(&sim->model.chunks[i], chunk))
                ++i;
        if (i == n) {
                breach(sim, "rows %u to %u of slot %u are with a worker, but not out", chunk->first,
                       chunk->first + chunk->rows, chunk->slot);
                return false;
        }
        if (how == SIMULATION_END_WELL)
                end_chunk(sim, i, CHUNK_DONE);
        else if (how == SIMULATION_END_RECALLED)
                recall(sim, i);
        else
                fail_or_finish(sim, i);
        if (sim->model.n_chunks < n)
                return false;
        *suspect = sim->model.chunks[n - 1];
        return true;
}

/* ---- alone ---- */

static void finish(struct simulation *sim) {
        struct scheduler_counters now;

        scheduler_counters(sim->scheduler, &now);
        sim->result->catch_ups = (uint32_t)now.catch_ups;
        sim->result->catch_ups_met = (uint32_t)now.catch_ups_met;
        sim->result->filled = now.slots_filled - sim->counted.slots_filled;
        sim->result->undelivered = now.slots_undelivered - sim->counted.slots_undelivered;
        scheduler_free(sim->scheduler);
}

void simulation_run(struct simulation_result *result, const struct simulation_options *options) {
        struct simulation sim = {.options = options, .result = result, .own.random = options->seed};

        sim.world = &sim.own;
        *result = (struct simulation_result){0};
        begin(&sim);
        while (!result->breach[0] && result->events < options->events) {
                ++result->events;
                if (options->steady)
                        steady_event(&sim);
                else
                        random_event(&sim);
                pump(&sim);
                if (result->events == options->events / 4)
                        scheduler_counters(sim.scheduler, &sim.counted);
        }
        finish(&sim);
}
