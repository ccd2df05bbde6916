#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The scheduler's rules once more, naively: what the simulation holds against it. */

#include "daemon/scheduler.h"

enum {
        MODEL_SLOTS_MAX = 16,
        MODEL_JOBS_MAX = 8,
        MODEL_HELD_MAX = 6,
        MODEL_CHUNKS_MAX = 16,
        MODEL_ROWS_MAX = 8,
        MODEL_BATCH_MAX = 20, /* rows */
};

#define MODEL_NEVER UINT64_MAX

struct model_key {
        uint64_t seed;
        uint32_t epoch;
        uint64_t index;
};

struct model_held {
        uint64_t number;
        struct position position;
        uint32_t n_slots;
        uint32_t slots[MODEL_BATCH_MAX]; /* one per segment */
};

struct model_job {
        struct scheduler_job job;
        struct position next;
        uint32_t epoch; /* of its last batch, or where it was sent */
        bool seeking;   /* to (seek_epoch, seek_row), but there is no room yet */
        uint32_t seek_epoch;
        uint64_t seek_row;
        uint64_t number;
        uint64_t since;    /* the number it had when it was sent where it is */
        bool gathering;    /* waits for other jobs to come */
        bool expecting;    /* waits for scheduler_begin */
        bool unread;       /* scheduler_read has not come */
        bool bound;        /* lockstep */
        uint64_t moved_at; /* when it gave something back last, or had an excuse */
        uint32_t minimum;
        uint32_t n_held;
        struct model_held held[MODEL_HELD_MAX];
        uint32_t leases[MODEL_SLOTS_MAX];
        bool due;
        uint64_t waited_at;   /* when somebody caught up and it waited, last */
        bool tenacious;       /* gives a batch back only when it has the next */
        uint64_t patience;    /* chunks finished while it waited for a batch within its minimum */
        uint64_t waits_since; /* when it became the last in line */
        uint32_t laziness;    /* 0: releases at once; else in one of so many rounds */
};

enum model_row {
        MODEL_ROW_OPEN, /* nobody has it */
        MODEL_ROW_OUT,
        MODEL_ROW_DONE,
};

struct model_slot {
        enum scheduler_slot_state state;
        struct model_key key;
        uint32_t rows;
        enum model_row row[MODEL_ROWS_MAX];
        uint32_t stuck;
        bool lost;
};

/* What runs, as the scheduler told it last, and the bounds that follow. */
struct model_catch_up {
        uint64_t rows, ns; /* as scheduler_set_catch_up */
        bool runs;
        struct scheduler_catch_up view;
        uint64_t limit, rest_until;
        uint64_t seen;   /* when it was looked at last */
        uint64_t rested; /* when workers had nothing to do, last; 0: never */
};

struct model {
        struct scheduler_config config;
        uint32_t awaited; /* as scheduler_set_awaited */
        struct model_catch_up catch_up;
        struct {
                uint64_t max_lead, lag_timeout; /* as scheduler_set_lockstep */
        } lockstep;
        struct {
                uint64_t seed; /* as scheduler_set_warm */
                uint32_t slots;
                bool in_vain; /* a chunk was lost, and no job has come since */
        } warm;
        uint32_t n_jobs;
        struct model_job jobs[MODEL_JOBS_MAX]; /* the longest waiting first */
        struct model_slot slots[MODEL_SLOTS_MAX];
        uint32_t n_chunks;
        struct scheduler_chunk chunks[MODEL_CHUNKS_MAX];
};

uint32_t model_minimum(const struct scheduler_config *config, const struct position_plan *plan,
                       uint64_t start_row);
uint32_t model_leased(const struct model *model, const struct model_job *job);
uint32_t model_leased_with_next(const struct model *model, const struct model_job *job);
uint64_t model_demand(const struct model *model);
uint32_t model_capacity(const struct model *model);
bool model_is_short(const struct model *model);
uint32_t model_count_rows(const struct model_slot *slot, enum model_row state);
bool model_is_open(const struct model_slot *slot);
uint32_t model_slot_leases(const struct model *model, uint32_t slot);
uint64_t model_distance(const struct model *model, const struct model_job *job, struct model_key key);
uint64_t model_use(const struct model *model, struct model_key key);
bool model_is_beyond(const struct model_job *job, uint32_t epoch);
bool model_is_parked(const struct model_job *job);
struct model_slot *model_find(struct model *model, struct model_key key);
bool model_covers(const struct model *model, const struct model_job *job, struct position position,
                  struct model_key key);
bool model_is_idle(const struct model *model, uint32_t slot);
bool model_is_ready(struct model *model, const struct model_job *job);
uint32_t model_count_ready(struct model *model, const struct model_job *job);
bool model_within_minimum(const struct model *model, const struct model_job *job);
bool model_fits_really(struct model *model, const struct model_job *job);
void model_choose_due(struct model *model);
struct model_job *model_wait(struct model *model, struct model_job *job);
bool model_is_warm(const struct model *model, struct model_key key); /* to be kept so, while there is room */
bool model_makes_warm(const struct model *model);                    /* there is nobody else to work for */

/* scheduler-model-catch-up.c. What is wrong with what the scheduler says, or NULL; after every look at it. */
const char *model_check_catch_up(struct model *model, const struct scheduler_catch_up *view, bool runs,
                                 uint64_t now);
bool model_is_brought_on(const struct model *model, const struct scheduler_catch_up *view,
                         const struct model_job *job);
/* Is this slot on the stretch, and does somebody who is brought on want it? */
bool model_comes_first(struct model *model, struct model_key key);
bool model_first_work(struct model *model);

/* scheduler-model-lockstep.c */
uint64_t model_lead(const struct model *model);
/* Must this batch, of a job that is bound, wait for the others? */
bool model_is_led(const struct model *model, const struct model_job *job, struct position batch);
/* Before model_check_lockstep of all jobs. */
void model_note_excuses(struct model *model, uint64_t now);
/* What is wrong with the job's being bound or not now, or NULL; it is noted. */
const char *model_check_lockstep(struct model *model, struct model_job *job, bool bound, uint64_t now);
bool model_somebody_leads_on(const struct model *model, uint64_t seed);
