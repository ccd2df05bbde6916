#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the scheduler-simulation-*.c share. */

#include "daemon/scheduler-internal.h"
#include "tests/unit/scheduler-model.h"
#include "tests/unit/scheduler-simulation.h"

enum {
        TICK_MAX_NS = 1000,
};

struct simulation {
        const struct simulation_options *options;
        struct simulation_result *result;
        struct scheduler *scheduler;
        struct model model;
        struct simulation_world own, *world;
        bool retired; /* no job comes any more */
        uint32_t workers;
        uint32_t next_id;
        uint64_t patience; /* chunks finished without a delivery, while a due batch waits in a short ring */
        struct scheduler_job group;        /* the last job that was drawn; its next ranks may follow */
        struct scheduler_job awaited;      /* while model.awaited is not 0, unless it is `seeker` */
        uint32_t seeker;                   /* the job whose seek waits for room, or 0 */
        struct scheduler_counters counted; /* steady: at the end of the warm-up */
};

/* splitmix64, for the dice only */
static inline uint64_t draw(struct simulation *sim) {
        uint64_t z = sim->world->random += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static inline uint32_t between(struct simulation *sim, uint32_t least, uint32_t most) {
        return least + (uint32_t)(draw(sim) % (most - least + 1));
}

static inline bool chance(struct simulation *sim, uint32_t of) {
        return draw(sim) % of == 0;
}

/* Time goes by, at random: half a microsecond in the mean. */
static inline uint64_t tick(struct simulation *sim) {
        return sim->world->now += between(sim, 1, TICK_MAX_NS);
}

static inline struct model_key key_of(const struct scheduler_config *config,
                                      const struct scheduler_chunk *chunk) {
        return (struct model_key){chunk->seed, chunk->epoch, chunk->row / config->slot_rows};
}

/* The job is the last in line from now on. */
static inline void wait_anew(struct simulation *sim, struct model_job *job) {
        job->waits_since = sim->world->now;
        model_wait(&sim->model, job);
}

/* The first one is kept. */
__attribute__((format(printf, 2, 3))) void sim_breach(struct simulation *sim, const char *format, ...);

/* scheduler-simulation-work.c: what the scheduler hands out, and what becomes of chunks. */
enum chunk_end {
        CHUNK_DONE,
        CHUNK_LOST,
        CHUNK_SPLIT,
};

void sim_end_chunk(struct simulation *sim, uint32_t i, enum chunk_end how);
struct model_job *sim_find_job(struct model *model, uint32_t id);
void sim_give_up_unwanted(struct simulation *sim);
bool sim_has_work(struct model *model, const struct model_job *job, bool to_be_had);
void sim_set_rows(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t first, uint32_t rows,
                  enum model_row state);
bool sim_slot_to_be_had(const struct model *model);
void sim_take_chunk(struct simulation *sim, const struct scheduler_chunk *chunk, uint32_t wanted);
void sim_take_delivery(struct simulation *sim, const struct scheduler_delivery *delivery);

/* scheduler-simulation-jobs.c: what jobs do. */
void sim_attach_group(struct simulation *sim);
void sim_begin_some(struct simulation *sim);
void sim_come(struct simulation *sim);
void sim_detach(struct simulation *sim);
void sim_end_quarantine(struct simulation *sim);
void sim_leave(struct simulation *sim);
void sim_quarantine(struct simulation *sim, uint32_t i);
void sim_read_some(struct simulation *sim);
void sim_release_some(struct simulation *sim);
void sim_seek_some(struct simulation *sim);
void sim_seek_somewhere(struct simulation *sim);
void sim_set_awaited(struct simulation *sim, uint32_t slots, uint32_t seeker);
void sim_talk_nonsense(struct simulation *sim);
