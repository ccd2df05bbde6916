#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A case that is played, and how far. */

#include "daemon/scheduler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        GROUPS_MAX = 8,
        LEGS_MAX = 16,
        WORLD_MAX = 16,
        HELD_MAX = 16,
        WORKERS_MAX = 4,
};

enum leg_kind {
        LEG_ATTACH,
        LEG_RESUME,
        LEG_SEEK,
};

/* Where a group is, or goes. */
struct place {
        uint32_t epoch;
        uint64_t row;
};

struct leg {
        enum leg_kind kind;
        struct position_plan plan; /* of rank 0 */
        struct place place;        /* not of LEG_RESUME */
        uint32_t take;
};

struct text {
        char *bytes;
        size_t n, room;
};

struct batch {
        uint64_t number;
        struct place after;
        size_t text_end; /* in the line of its rank */
};

/* One rank: a job of the scheduler. */
struct rank {
        uint32_t id;
        struct position_plan plan;
        uint64_t number; /* of its next delivery */
        bool asked;      /* for the epoch of its next batch */
        bool seeking;    /* has to wait until it may go where the leg begins */
        uint32_t taken;  /* batches of this leg */
        struct place state;
        struct batch batches[HELD_MAX]; /* not released; the first n_taken were taken, the others wait */
        uint32_t n_batches, n_taken;
        struct text line;
        size_t line_taken; /* bytes of it that tell of batches taken */
};

struct group {
        uint64_t seed;
        uint32_t lookahead;
        uint32_t held;
        struct leg legs[LEGS_MAX];
        uint32_t n_legs;

        uint32_t leg;     /* that is played */
        bool entered;     /* all ranks are where it begins */
        uint32_t awaited; /* slots that it waits for, else 0 */
        struct rank ranks[WORLD_MAX];
        uint32_t n_ranks; /* that are attached */
        struct text answer;
};

struct cell {
        uint64_t seed, row;
        uint32_t epoch;
};

struct game {
        struct scheduler_config config;
        struct scheduler *scheduler;
        struct group groups[GROUPS_MAX];
        uint32_t n_groups;
        uint32_t next_id;
        uint64_t dice, now;
        uint32_t workers;
        bool eager; /* workers have done everything before anybody else moves */
        struct scheduler_chunk chunks[WORKERS_MAX];
        uint32_t n_chunks;
        struct cell *memory; /* slots x slot_rows */
        size_t n_memory;
};

/* For a case that is none: says why, and ends. */
__attribute__((noreturn)) void die(const char *words);

/* player-case.c: reads a line into config, dice and groups, none of which has begun. Returns the spare slots.
 */
uint32_t case_read(struct game *game, char *line);
