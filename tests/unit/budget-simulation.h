#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Random lives of several schedulers under one budget, every step of them checked. */

#include <stdbool.h>
#include <stdint.h>

enum {
        LIFE_EVENTS_MAX = 2000,
};

/* For the test only: what a daemon around the budget could get wrong. */
enum life_sabotage {
        LIFE_WITHOUT_HUNG = 1 << 0,    /* a worker that hangs has no place */
        LIFE_WITHOUT_SHARING = 1 << 1, /* nobody is told when a change of numbers sets places free */
        LIFE_WITHOUT_WAITING = 1 << 2, /* a pipeline that was replaced goes before its last job has */
        LIFE_WITHOUT_ALONE = 1 << 3,   /* a suspect goes to a busy worker too */
};

struct life_options {
        uint64_t seed;
        uint32_t events;
        unsigned budget_sabotage; /* enum budget_sabotage */
        unsigned life_sabotage;
        unsigned scheduler_sabotage; /* enum scheduler_sabotage */
        bool steady; /* there are jobs from the start, who stay, and few places; nothing else happens */
        bool outcomes_only; /* what a job would notice; turns are not looked at */
        bool aloud;         /* tells every event */
        bool some;          /* only those events happen that are `kept` */
        bool kept[LIFE_EVENTS_MAX];
};

struct life_result {
        char breach[256]; /* "": none */
        uint32_t events;
        uint32_t chunks, deliveries;
        uint32_t cuts;     /* of the places, below what was busy */
        uint32_t hangs;    /* of workers */
        uint32_t reloads;  /* pipelines replaced */
        uint32_t changes;  /* pipelines that got or lost workers of their own */
        uint32_t contests; /* chunks that several members could have taken */
        uint32_t patience; /* chunks given to others while one waited, at most */
};

void life_run(struct life_result *result, const struct life_options *options);

/* Of a life with a breach: as many events are left out as can be, so that there still is one. */
void life_shrink(struct life_options *options);
