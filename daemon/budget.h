#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The CPU budget: which pipeline's worker may begin a chunk now. */

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

/* How urgent the next chunk of a pipeline is. */
struct budget_claim {
        uint64_t use;      /* batches until somebody wants it; 0: a due one */
        uint64_t since_ns; /* when the job of that batch began to wait */
};

/* What the budget asks of a pipeline. None of these may call the budget. */
struct budget_events {
        /* Workers that hold a chunk. */
        uint32_t (*busy)(void *context);
        /* Whether it has jobs and a worker that could take a chunk; cheap, and may say true too often. */
        bool (*could)(void *context);
        /* The next chunk, if there is one and a worker could take it. */
        bool (*claim)(void *context, struct budget_claim *claim);
        /* Gives one chunk to one worker; to a busy one, unless `may_begin`. False: it could not. */
        bool (*give)(void *context, bool may_begin);
};

/* A pipeline without `workers` of its own. Embedded in it. */
struct budget_member {
        struct list link;
        const struct budget_events *events;
        void *context;
        double lately; /* workers busy on average over the last seconds, as its owner saw; 0 without jobs */
};

/* For the test only: leaves one of the rules out, to see that the simulation notices. */
enum budget_sabotage {
        BUDGET_WITHOUT_PLACES = 1 << 0,      /* whoever is free begins */
        BUDGET_WITHOUT_DUE = 1 << 1,         /* who waited longest is first, also if nothing of it is due */
        BUDGET_WITHOUT_WAITING = 1 << 2,     /* among due ones nobody is first */
        BUDGET_WITHOUT_RUNNING_DRY = 1 << 3, /* workers get their next chunks before who lacks a place */
        BUDGET_WITHOUT_COMPARING = 1 << 4,   /* the first one that could is taken for the only one */
        BUDGET_WITHOUT_MORE = 1 << 5,        /* one chunk for an event */
};

struct budget {
        uint32_t places; /* workers of all members together that may be busy at once */
        struct list members;
        unsigned sabotage; /* enum budget_sabotage; 0 but in a test */
};

void budget_init(struct budget *budget, uint32_t places);

void budget_member_init(struct budget_member *member, const struct budget_events *events, void *context);
/* Both may be called twice. Whoever joins keeps its busy workers, even if there are too many then. */
void budget_join(struct budget *budget, struct budget_member *member);
void budget_leave(struct budget_member *member);

/* Gives out chunks as long as somebody may have one; to be called after every event of a member. */
void budget_share_out(struct budget *budget);

/* Workers that a member can count on over the next seconds, as far as the last ones tell. */
double budget_share(const struct budget *budget, const struct budget_member *member);
