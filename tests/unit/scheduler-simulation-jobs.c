/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs of a simulated life: they come, alone or as the ranks of a run, wait for room, are sent elsewhere,
 * give back, leave; and what is said that was never given. */

#include "tests/unit/scheduler-simulation-internal.h"

#include <errno.h>
#include <string.h>

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
        job.unread = !sim->options->steady && !sim->options->outcomes_only && chance(sim, 4);
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
void sim_set_awaited(struct simulation *sim, uint32_t slots, uint32_t seeker) {
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
                sim_breach(sim, "rule 2: attach gave %d instead of %d", r, expected);
        sim->awaited = job;
        sim_set_awaited(sim, r == SCHEDULER_E_LATER && !chance(sim, 8) ? minimum : 0, 0);
        if (r != 0)
                return r;
        its = &sim->model.jobs[sim->model.n_jobs++];
        *its = (struct model_job){.job = job, .minimum = minimum, .waits_since = sim->world->now};
        its->next = position_first(&job.plan, job.start_epoch, job.start_row);
        its->epoch = its->next.epoch;
        its->gathering = job.gather > 1;
        its->expecting = job.expecting;
        its->unread = job.unread;
        sim->model.warm.in_vain = false;
        its->laziness = chance(sim, 2) ? 0 : between(sim, 1, 4);
        its->tenacious = !sim->options->steady && job.max_held > 1 && chance(sim, 2);
        sim_give_up_unwanted(sim);
        return 0;
}

/* A job, and often those of the other ranks. */
void sim_attach_group(struct simulation *sim) {
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
        sim_give_up_unwanted(sim);
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
                sim_breach(sim, "rule 2: seek gave %d instead of %d", r, expected);
        sim->result->waits += r == SCHEDULER_E_LATER && !job->seeking;
        job->seeking = r == SCHEDULER_E_LATER;
        if (r == SCHEDULER_E_LATER)
                sim_set_awaited(sim, minimum, job->job.id);
        else if (job->job.id == sim->seeker)
                sim_set_awaited(sim, 0, 0);
        if (r == 0)
                move(sim, job, minimum);
}

static void seek_on(struct simulation *sim, struct model_job *job) {
        job->seek_epoch = job->next.epoch;
        job->seek_row = 0;
        seek(sim, job);
}

/* Those who have had their epoch ask for the next, mostly; others go anywhere. */
void sim_seek_somewhere(struct simulation *sim) {
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
void sim_come(struct simulation *sim) {
        if (sim->seeker)
                seek(sim, sim_find_job(&sim->model, sim->seeker));
        else if (!sim->retired)
                sim_attach_group(sim);
}

void sim_detach(struct simulation *sim) {
        struct model_job *job = &sim->model.jobs[between(sim, 0, sim->model.n_jobs - 1)];

        if (scheduler_detach(sim->scheduler, job->job.id) != 0)
                sim_breach(sim, "an attached job is unknown");
        if (job->job.id == sim->seeker)
                sim_set_awaited(sim, 0, 0);
        model_wait(&sim->model, job);
        --sim->model.n_jobs;
        sim_give_up_unwanted(sim);
}

/* One leaves, or all do: then slots are made warm for who comes next. */
void sim_leave(struct simulation *sim) {
        uint32_t n = sim->model.warm.slots > 0 && chance(sim, 3) ? sim->model.n_jobs : 1;

        while (n-- > 0)
                sim_detach(sim);
}

/* The ranks have come that some have waited for. */
void sim_begin_some(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct model_job *job = &sim->model.jobs[i];

                if (!job->expecting || !chance(sim, 2))
                        continue;
                job->expecting = false;
                scheduler_begin(sim->scheduler, job->job.id);
        }
}

/* Some that were only attached are read now. */
void sim_read_some(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct model_job *job = &sim->model.jobs[i];

                if (!job->unread || !chance(sim, 3))
                        continue;
                job->unread = false;
                scheduler_read(sim->scheduler, job->job.id);
        }
}

static void release(struct simulation *sim, struct model_job *job) {
        uint32_t i = chance(sim, 4) ? between(sim, 0, job->n_held - 1) : 0;
        struct model_held held = job->held[i];
        bool was_full = job->n_held == job->job.max_held;

        if (scheduler_release(sim->scheduler, job->job.id, held.number, tick(sim)) != 0)
                sim_breach(sim, "a held batch is unknown");
        memmove(&job->held[i], &job->held[i + 1], (job->n_held - i - 1) * sizeof(held));
        --job->n_held;
        job->moved_at = sim->world->now;
        for (uint32_t j = 0; j < held.n_slots; ++j)
                --job->leases[held.slots[j]];
        if (was_full)
                wait_anew(sim, job);
}

void sim_release_some(struct simulation *sim) {
        uint32_t ids[MODEL_JOBS_MAX], n = sim->model.n_jobs;

        for (uint32_t i = 0; i < n; ++i)
                ids[i] = sim->model.jobs[i].job.id;
        for (uint32_t i = 0; i < n; ++i) {
                struct model_job *job = sim_find_job(&sim->model, ids[i]);

                if (job->n_held > job->tenacious && (job->laziness == 0 || chance(sim, 2 * job->laziness)))
                        release(sim, job);
        }
}

void sim_seek_some(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                struct model_job *job = &sim->model.jobs[i];

                if (model_is_parked(job) && !job->seeking &&
                    (job->laziness == 0 || chance(sim, 2 * job->laziness)))
                        seek_on(sim, job);
        }
}

/* A worker dies for good while at chunk `i`, or, since its end and its chunk are two reports, the other way
 * round. */
void sim_quarantine(struct simulation *sim, uint32_t i) {
        uint32_t number = sim->model.chunks[i].slot;
        struct model_slot *slot = &sim->model.slots[number];
        uint32_t largest = 0;
        bool lost_first = chance(sim, 3);

        for (uint32_t j = 0; j < sim->model.n_jobs; ++j)
                if (sim->model.jobs[j].minimum > largest)
                        largest = sim->model.jobs[j].minimum;
        if (model_capacity(&sim->model) <= largest && !chance(sim, 4)) {
                sim_end_chunk(sim, i, CHUNK_LOST); /* it dies, but for good it does not */
                return;
        }
        ++sim->result->quarantines;
        if (lost_first)
                sim_end_chunk(sim, i, CHUNK_LOST);
        if (scheduler_slot_quarantine(sim->scheduler, number) != 0)
                sim_breach(sim, "slot %u could not be put into quarantine", number);
        ++slot->stuck;
        if (slot->state == SCHEDULER_SLOT_FILLING)
                slot->lost = true;
        else
                slot->state = SCHEDULER_SLOT_QUARANTINED;
        if (!lost_first)
                sim_end_chunk(sim, i, chance(sim, 2) ? CHUNK_LOST : CHUNK_SPLIT);
}

void sim_end_quarantine(struct simulation *sim) {
        uint32_t number = between(sim, 0, sim->model.config.slots - 1);
        struct model_slot *slot = &sim->model.slots[number];

        if (scheduler_slot_return(sim->scheduler, number) != (slot->stuck > 0 ? 0 : SCHEDULER_E_UNKNOWN))
                sim_breach(sim, "slot %u returned wrongly", number);
        if (slot->stuck > 0 && --slot->stuck == 0 && slot->state == SCHEDULER_SLOT_QUARANTINED)
                slot->state = SCHEDULER_SLOT_FREE;
}

/* What was never given: nothing may change, which check_views sees. */
void sim_talk_nonsense(struct simulation *sim) {
        const struct model_job *job = sim->model.n_jobs > 0 ? &sim->model.jobs[0] : NULL;
        const struct scheduler_chunk *chunk = &sim->model.chunks[0];

        if (scheduler_release(sim->scheduler, sim->next_id + 1, 0, tick(sim)) != SCHEDULER_E_UNKNOWN ||
            scheduler_detach(sim->scheduler, sim->next_id + 1) != SCHEDULER_E_UNKNOWN ||
            scheduler_chunk_done(sim->scheduler, 0, 0, sim->model.config.slot_rows + 1) !=
                    SCHEDULER_E_UNKNOWN ||
            scheduler_chunk_lost(sim->scheduler, sim->model.config.slots, 0, 1) != SCHEDULER_E_UNKNOWN ||
            scheduler_slot_quarantine(sim->scheduler, sim->model.config.slots) != SCHEDULER_E_UNKNOWN ||
            scheduler_seek(sim->scheduler, sim->next_id + 1, 0, 0, 0, tick(sim), NULL) != SCHEDULER_E_UNKNOWN)
                sim_breach(sim, "nonsense was accepted");
        if (job && !job->seeking &&
            scheduler_seek(sim->scheduler, job->job.id, 0, sim->model.config.samples, 0, tick(sim), NULL) !=
                    -EINVAL)
                sim_breach(sim, "a job was sent beyond the epoch");
        if (sim->model.n_chunks > 0 &&
            scheduler_chunk_split(sim->scheduler, chunk->slot, chunk->first, chunk->rows, chunk->rows,
                                  false) != SCHEDULER_E_UNKNOWN)
                sim_breach(sim, "a chunk came back unfinished, but whole");
        for (uint32_t i = 0; i < sim->model.config.slots; ++i)
                if (sim->model.slots[i].state == SCHEDULER_SLOT_READY &&
                    scheduler_slot_quarantine(sim->scheduler, i) != SCHEDULER_E_UNKNOWN)
                        sim_breach(sim, "a READY slot was put into quarantine");
        if (job &&
            scheduler_release(sim->scheduler, job->job.id, job->number, tick(sim)) != SCHEDULER_E_UNKNOWN)
                sim_breach(sim, "a batch of the future was released");
        if (job && job->number > 0 && job->n_held == 0 &&
            scheduler_release(sim->scheduler, job->job.id, job->number - 1, tick(sim)) != SCHEDULER_E_UNKNOWN)
                sim_breach(sim, "a batch was released twice");
}
