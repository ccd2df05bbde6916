#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rows at which a worker died or hung: each is tried alone, until it is made or its sample is condemned. */

#include <stdbool.h>
#include <stdint.h>

enum {
        SUSPECTS_MAX = 1024, /* all workers of a pipeline may hang at once (static_assert in suspects.c) */
        SUSPECTS_DEATHS = 2, /* alone, after the first one in company */
};

enum suspect_state {
        SUSPECT_NONE,    /* the place is free */
        SUSPECT_WAITING, /* for a fresh worker of its own */
        SUSPECT_TRIED,   /* a worker has it, and nothing else */
};

enum suspect_outcome {
        SUSPECT_RETRY,   /* it waits again */
        SUSPECT_CONDEMN, /* its sample is to be condemned; the suspect is still there */
};

enum suspects_error {
        SUSPECTS_E_FULL = 1, /* fail the stream: this many deaths at once are not the samples' fault */
        SUSPECTS_E_KNOWN,    /* (slot, first) is a suspect already; nothing changed */
};

struct suspect {
        uint32_t slot;
        uint32_t first; /* row of the slot: the scheduler's chunk is (slot, first, 1) */
        uint32_t epoch;
        uint64_t row; /* of the epoch */
        uint64_t seed;
        uint64_t sample;
        uint32_t deaths_alone; /* of this sample, also in other rows */
        enum suspect_state state;
        uint64_t number; /* rises with every suspect */
};

/* Places are reused, so a pointer to a suspect is good until that suspect is removed. */
struct suspects {
        uint32_t count;
        uint32_t used; /* no place from here on is taken: what a search has to look at */
        uint64_t next_number;
        struct suspect places[SUSPECTS_MAX];
};

const char *suspect_state_name(enum suspect_state state);

void suspects_init(struct suspects *suspects);

/* The row at which a worker died. Takes slot, first, epoch, row, seed and sample; it is WAITING then. 0 or
 * SUSPECTS_E_x. *added may be NULL. */
int suspects_add(struct suspects *suspects, const struct suspect *row, struct suspect **added);

/* NULL when it is none. Costs nothing while there are no suspects, which is nearly always. */
struct suspect *suspects_find(struct suspects *suspects, uint32_t slot, uint32_t first);

/* The suspect that has waited longest of those whose sample nobody tries just now, or NULL. Stays WAITING. */
struct suspect *suspects_next(struct suspects *suspects);

/* It was given to a worker that has nothing else and will get nothing else. */
void suspects_tried(struct suspects *suspects, struct suspect *suspect);

/* That worker died, or was killed for its time-out. `counts`: whether it can be the sample's fault; a SIGKILL
 * from outside is not, nor is a worker that died before it began. */
enum suspect_outcome suspects_died(struct suspects *suspects, struct suspect *suspect, bool counts);

/* Its row was made, or failed with an error of its own, or was given back for good. */
void suspects_remove(struct suspects *suspects, struct suspect *suspect);

/* The slot is given up (quarantined, or its filling is lost). Returns how many there were. */
uint32_t suspects_remove_slot(struct suspects *suspects, uint32_t slot);

/* The suspects by place, for status: NULL after the last one; begins with *place = 0. */
const struct suspect *suspects_iterate(const struct suspects *suspects, uint32_t *place);
