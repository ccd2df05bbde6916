/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* After each event of a simulated life: everything is taken that the scheduler has to give, and all that can
 * be seen from outside is compared with the model. */

#include "tests/unit/scheduler-simulation-internal.h"

/* ---- after every event ---- */

static void check_views(struct simulation *sim) {
        for (uint32_t i = 0; i < sim->model.config.slots; ++i) {
                const struct model_slot *slot = &sim->model.slots[i];
                struct scheduler_slot_view view;

                scheduler_view_slot(sim->scheduler, i, &view);
                if (view.state != (slot->stuck > 0 ? SCHEDULER_SLOT_QUARANTINED : slot->state))
                        sim_breach(sim, "slot %u is in state %d, not %d", i, (int)view.state,
                                   (int)slot->state);
                if (slot->state == SCHEDULER_SLOT_FREE || slot->stuck > 0)
                        continue;
                if (view.rows != slot->rows || view.rows_done != model_count_rows(slot, MODEL_ROW_DONE) ||
                    view.leases != model_slot_leases(&sim->model, i) || view.index != slot->key.index)
                        sim_breach(sim, "slot %u is not what it should be", i);
        }
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i) {
                const struct model_job *job = &sim->model.jobs[i];
                struct scheduler_job_view view;

                if (scheduler_view_job(sim->scheduler, job->job.id, &view) != 0 || view.held != job->n_held ||
                    view.leased != model_leased(&sim->model, job) || view.batches != job->number ||
                    view.ready != model_count_ready(&sim->model, job) || view.parked != model_is_parked(job))
                        sim_breach(sim, "job %u is not what it should be", job->job.id);
                if (sim->options->outcomes_only)
                        continue;
                if (view.waiting != (job->due && !model_is_ready(&sim->model, job)))
                        sim_breach(sim, "job %u: waiting is %d", job->job.id, view.waiting);
                if (view.minimum != job->minimum)
                        sim_breach(sim, "rule 1: job %u needs %u slots, not %u", job->job.id, job->minimum,
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
                        sim_breach(sim, "slot %llu of the epoch is not made warm",
                                   (unsigned long long)key.index);
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
                        sim_breach(sim, "job %u %s for others to come", job->job.id,
                                   view.gathering || view.expecting ? "still waits" : "does not wait");
                if (view.unread != job->unread)
                        sim_breach(sim, "job %u is %s", job->job.id, view.unread ? "not read" : "read");
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
                        sim_breach(sim, "%s", wrong);
        }
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (!model_somebody_leads_on(&sim->model, sim->model.jobs[i].job.seed))
                        sim_breach(sim, "all wait for each other");
        sim_give_up_unwanted(sim);
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
                sim_breach(sim, "%s", wrong);
        return got;
}

void simulation_deliver(struct simulation *sim) {
        struct scheduler_delivery delivery;

        if (sim->model.lockstep.max_lead > 0)
                sim_give_up_unwanted(sim); /* the lead may have become smaller */
        model_choose_due(&sim->model);
        while (!sim->result->breach[0] && next_delivery(sim, &delivery))
                sim_take_delivery(sim, &delivery);
}

bool simulation_peek(struct simulation *sim, uint64_t *use, uint64_t *since) {
        bool found = scheduler_peek_chunk(sim->scheduler, use, since);

        if (!found && sim->model.n_chunks == 0)
                sim->model.catch_up.rested = sim->model.catch_up.seen;
        return found;
}

/* The first in line whose due batch lacks rows that could be handed out. */
static const struct model_job *first_waiting(struct simulation *sim) {
        bool to_be_had = sim_slot_to_be_had(&sim->model);

        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (sim->model.jobs[i].due && sim_has_work(&sim->model, &sim->model.jobs[i], to_be_had))
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
                sim_breach(sim, "a look told a use %llu batches away, the chunk's is %llu",
                           (unsigned long long)use, (unsigned long long)its);
        if (!first)
                return;
        if (use > 0)
                sim_breach(sim, "a look told a use %llu batches away, and job %u waits",
                           (unsigned long long)use, first->job.id);
        else if (since != first->waits_since)
                sim_breach(sim, "a look told that job %u has waited since %llu, not %llu", first->job.id,
                           (unsigned long long)since, (unsigned long long)first->waits_since);
}

bool simulation_next_chunk(struct simulation *sim, struct scheduler_chunk *chunk) {
        uint32_t wanted = between(sim, 1, sim->model.config.slot_rows);
        uint64_t use = 0, since = 0;
        bool looked = scheduler_peek_chunk(sim->scheduler, &use, &since);
        bool work = scheduler_next_chunk(sim->scheduler, wanted, sim->workers, chunk);

        if (!looked && sim->model.n_chunks == 0)
                sim->model.catch_up.rested = sim->model.catch_up.seen;
        if (looked != work)
                sim_breach(sim, "a look found %s chunk, but there was %s", looked ? "a" : "no",
                           work ? "one" : "none");
        if (work && !sim->options->outcomes_only)
                check_look(sim, use, since, chunk);
        if (work)
                sim_take_chunk(sim, chunk, wanted);
        return work;
}

void simulation_check(struct simulation *sim, bool may_work) {
        for (uint32_t i = 0; i < sim->model.n_jobs; ++i)
                if (may_work && sim->model.n_chunks == 0 && could_take(&sim->model, &sim->model.jobs[i]))
                        sim_breach(sim, "no progress: job %u could take a batch, and nobody works",
                                   sim->model.jobs[i].job.id);
        if (may_work && sim->model.n_chunks == 0 && model_makes_warm(&sim->model))
                check_warm(sim);
        check_views(sim);
}
