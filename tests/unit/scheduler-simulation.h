#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Random lives of a scheduler, every step of them held against the model. */

#include "daemon/scheduler.h"

#include <stdbool.h>
#include <stdint.h>

struct simulation;

/* What several simulations share: their dice, and their clock. */
struct simulation_world {
        uint64_t random;
        uint64_t now;
};

struct simulation_options {
        uint64_t seed;
        uint32_t events;
        unsigned sabotage; /* enum scheduler_sabotage */
        bool steady; /* jobs attach at the start and stay, no worker fails; they consume what they get */
        bool outcomes_only; /* what a user would notice, not how it came: no check of rules by the model */
        bool crowded;       /* jobs attach at the start */
        struct simulation_world *world; /* of simulation_new */
};

struct simulation_result {
        char breach[256]; /* "": none */
        uint32_t events;
        uint32_t deliveries;
        uint32_t chunks;
        uint32_t evictions;
        uint32_t splits, quarantines;
        uint32_t seeks, waits; /* waits: seeks that found no room at first */
        uint32_t catch_ups, catch_ups_met;
        uint32_t short_deliveries;    /* while the ring had fewer slots than the jobs were promised */
        uint64_t filled, undelivered; /* slots; steady: after the first quarter */
        uint64_t patience;            /* the longest, in chunks finished */
};

void simulation_run(struct simulation_result *result, const struct simulation_options *options);

enum simulation_end {
        SIMULATION_END_ANYHOW,
        SIMULATION_END_WELL,
        SIMULATION_END_RECALLED, /* its worker had not begun it */
};

/* A ring whose workers are somebody else's, budget-simulation.c's. It makes breaches known as its result,
 * which outlives it, as do the options. 0 or -ENOMEM. */
int simulation_new(struct simulation **sim, struct simulation_result *result,
                   const struct simulation_options *options);
struct simulation *simulation_free(struct simulation *sim);

/* Jobs come, go, release or are sent elsewhere. */
void simulation_event(struct simulation *sim);
/* Jobs release, and ask for their next epoch. */
void simulation_consume(struct simulation *sim);
/* No job comes any more, and who waits for room goes. */
void simulation_retire(struct simulation *sim);
/* A job goes. */
void simulation_leave(struct simulation *sim);
/* True: a row of it stays out, to be tried alone. */
bool simulation_end_chunk(struct simulation *sim, const struct scheduler_chunk *chunk,
                          enum simulation_end how, struct scheduler_chunk *suspect);

/* After each event: first all deliveries, then chunks for whoever is idle, then everything is compared.
 * `may_work`: there would have been a worker for any chunk. */
void simulation_deliver(struct simulation *sim);
bool simulation_peek(struct simulation *sim, uint64_t *use, uint64_t *since);
bool simulation_next_chunk(struct simulation *sim, struct scheduler_chunk *chunk);
void simulation_check(struct simulation *sim, bool may_work);

uint32_t simulation_jobs(const struct simulation *sim);
uint32_t simulation_chunks(const struct simulation *sim); /* that are out */
bool simulation_keeps_warm(const struct simulation *sim); /* slots, while there is no job */
/* By the model: a due batch lacks rows that could be handed out. */
bool simulation_is_waited_for(struct simulation *sim);
