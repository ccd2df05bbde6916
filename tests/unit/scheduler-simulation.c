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

#include "tests/unit/scheduler-simulation-internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        EVENTS_OF_JOBS = 52, /* of 100 */
};

void sim_breach(struct simulation *sim, const char *format, ...) {
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
                sim_quarantine(sim, i);
        else
                sim_end_chunk(sim, i, dice < 4 ? CHUNK_LOST : dice < 25 ? CHUNK_SPLIT : CHUNK_DONE);
}

/* Anything but the end of a chunk. */
static void event_of_jobs(struct simulation *sim, uint32_t dice) {
        if (dice < 3)
                sim_come(sim);
        else if (dice < 5 && sim->model.n_jobs > 0)
                sim_leave(sim);
        else if (dice < 7)
                sim_talk_nonsense(sim);
        else if (dice < 9)
                sim_begin_some(sim);
        else if (dice < 10)
                sim_read_some(sim);
        else if (dice < 42)
                sim_release_some(sim);
        else if (dice < 45)
                sim_end_quarantine(sim);
        else if (sim->model.n_jobs > 0)
                sim_seek_somewhere(sim);
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
                sim_end_chunk(sim, between(sim, 0, sim->model.n_chunks - 1), CHUNK_DONE);
}

static void begin(struct simulation *sim) {
        struct scheduler_config *config = &sim->model.config;

        config->slots = between(sim, 2, 12);
        config->slot_rows = between(sim, 1, 8);
        config->samples = between(sim, 1, config->slot_rows * (chance(sim, 4) ? 1 : 10));
        sim->workers = between(sim, 1, 4);
        if (scheduler_new(&sim->scheduler, config) < 0) {
                sim_breach(sim, "no scheduler");
                return;
        }
        sim->scheduler->sabotage = sim->options->sabotage;
        if (!chance(sim, 3)) {
                sim->model.catch_up.rows = between(sim, 1, 60);
                sim->model.catch_up.ns = sim->model.catch_up.rows * between(sim, 20, 4000);
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
                        sim_breach(sim, "no books");
        }
        if (!sim->options->steady && chance(sim, 3))
                chunks_init(sim->scheduler, between(sim, 1, 4));
        for (uint32_t i = 0; (sim->options->steady || sim->options->crowded) && i < MODEL_JOBS_MAX; ++i)
                sim_attach_group(sim);
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
        sim_release_some(sim);
        sim_seek_some(sim);
}

void simulation_retire(struct simulation *sim) {
        sim->retired = true;
        if (!sim->seeker)
                sim_set_awaited(sim, 0, 0);
}

void simulation_leave(struct simulation *sim) {
        if (sim->model.n_jobs > 0)
                sim_detach(sim);
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
        sim_set_rows(sim, &chunk, 0, chunk.rows, MODEL_ROW_OPEN);
        if (scheduler_chunk_split(sim->scheduler, chunk.slot, chunk.first, chunk.rows, 0, false) != 0)
                sim_breach(sim, "a chunk that is recalled is unknown");
        sim_give_up_unwanted(sim);
}

bool simulation_end_chunk(struct simulation *sim, const struct scheduler_chunk *chunk,
                          enum simulation_end how, struct scheduler_chunk *suspect) {
        uint32_t n = sim->model.n_chunks, i = 0;

        while (i < n && !is_same(&sim->model.chunks[i], chunk))
                ++i;
        if (i == n) {
                sim_breach(sim, "rows %u to %u of slot %u are with a worker, but not out", chunk->first,
                           chunk->first + chunk->rows, chunk->slot);
                return false;
        }
        if (how == SIMULATION_END_WELL)
                sim_end_chunk(sim, i, CHUNK_DONE);
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
