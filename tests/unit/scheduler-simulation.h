#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Random lives of a scheduler, every step of them held against the model. */

#include "daemon/scheduler.h"

#include <stdbool.h>
#include <stdint.h>

struct simulation_options {
        uint64_t seed;
        uint32_t events;
        unsigned sabotage; /* enum scheduler_sabotage */
        bool steady; /* jobs attach at the start and stay, no worker fails; they consume what they get */
        bool outcomes_only; /* what a user would notice, not how it came: no check of rules by the model */
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
