/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A life is some pipelines under one budget, and a sequence of random events. A pipeline is a ring with its
 * jobs as in scheduler-simulation.c, which holds the real scheduler against the model, and some workers, who
 * are here. The budget is the real one; what stands between it and the schedulers is pipeline-work.c without
 * processes. After each event deliveries are taken, chunks are shared out, and it is checked that
 *
 *   places    no worker begins while all places are taken: after a cut, or when somebody joined with too
 * many, fewer and fewer are busy; none is left empty while a member has work and a worker for it turns who is
 * given a chunk is due, or nobody is, and its job has waited longest of all members'; also if it is for a
 * worker that is busy already patience  while a member has a due chunk and a worker for it, only so many go
 * to others rings     each of them is as its model says; each job gets exactly its sequence the end   when
 * the last job has gone nothing is left: no chunk is out, no worker busy, no place taken.
 *
 * Workers hang and keep their place; chunks come back in parts, late or never; suspects are tried alone. The
 * places become fewer and more. Pipelines get workers of their own and lose them. On a reload a pipeline is
 * replaced by another one of other geometry: jobs come to the new one only, the old one goes on under the
 * same budget until its last job and its last chunk are gone.
 *
 * An event has its own dice, made of the seed and its number. So events can be left out and the others stay
 * what they are, which is how a life that went wrong is made short: by halves, quarters and so on, as long as
 * it still goes wrong. */

#include "tests/unit/budget-simulation.h"

#include "daemon/budget.h"
#include "tests/unit/scheduler-simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        PIPELINES_MAX = 6, /* with those that were replaced and go on */
        WORKERS_MAX = 4,
        DEPTH_MAX = 2, /* chunks that a worker may hold */
        PLACES_MAX = 8,
        SUSPECTS_MAX = 2 * WORKERS_MAX,
        PATIENCE_MAX = 1000, /* chunks given to others; the worst that the unbroken ones needed in 20 million
                                events was 291 */
        DRAIN_MAX = 10000,   /* events */
};

struct worker {
        struct scheduler_chunk chunks[DEPTH_MAX];
        uint32_t n;
        bool alone, hangs;
};

struct pipeline {
        struct life *life;
        uint32_t number;
        struct simulation *ring; /* NULL: there is none in this place */
        struct simulation_options options;
        struct simulation_result result;
        struct budget_member member;
        bool joined;
        bool replaced;
        bool touched; /* it was given a chunk since it was checked */
        uint32_t n_workers, depth;
        struct worker workers[WORKERS_MAX];
        uint32_t n_suspects;
        struct scheduler_chunk suspects[SUSPECTS_MAX];
        uint32_t patience; /* chunks that went to others while it waited */
};

struct life {
        const struct life_options *options;
        struct life_result *result;
        struct simulation_world world;
        uint32_t pace; /* of a thousand events, those that are no chunk's */
        struct budget budget;
        struct pipeline pipelines[PIPELINES_MAX];
};

static uint64_t mixed(uint64_t z) {
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint32_t between(struct life *life, uint32_t least, uint32_t most) {
        life->world.random += UINT64_C(0x9e3779b97f4a7c15);
        return least + (uint32_t)(mixed(life->world.random) % (most - least + 1));
}

static bool chance(struct life *life, uint32_t of) {
        return between(life, 1, of) == 1;
}

static bool is_left_out(const struct life *life, enum life_sabotage what) {
        return life->options->life_sabotage & what;
}

__attribute__((format(printf, 2, 3))) static void breach(struct life *life, const char *format, ...) {
        char text[sizeof(life->result->breach) - 64];
        va_list args;

        if (life->result->breach[0])
                return;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        snprintf(life->result->breach, sizeof(life->result->breach), "%s (life %llu, event %u)", text,
                 (unsigned long long)life->options->seed, life->result->events);
}

__attribute__((format(printf, 2, 3))) static void tell(const struct life *life, const char *format, ...) {
        va_list args;

        if (!life->options->aloud)
                return;
        printf("# event %u: ", life->result->events);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
}

/* ---- what the budget asks ---- */

static uint32_t busy_workers(const struct pipeline *pipeline) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < WORKERS_MAX; i++)
                n += pipeline->workers[i].n > 0;
        return n;
}

static uint32_t busy(void *context) {
        const struct pipeline *pipeline = context;
        uint32_t n = busy_workers(pipeline);

        for (uint32_t i = 0; is_left_out(pipeline->life, LIFE_WITHOUT_HUNG) && i < WORKERS_MAX; i++)
                n -= pipeline->workers[i].n > 0 && pipeline->workers[i].hangs;
        return n;
}

/* As chunks_bound in pool.c. */
static uint32_t chunks_bound(const struct pipeline *pipeline, const struct worker *worker) {
        if (worker->alone || worker->hangs)
                return 1;
        for (uint32_t i = pipeline->n_workers; i < WORKERS_MAX; i++)
                if (pipeline->workers[i].n > 0)
                        return 1;
        return pipeline->depth;
}

static struct worker *free_worker(struct pipeline *pipeline, bool may_begin) {
        struct worker *best = NULL;

        for (uint32_t i = 0; i < pipeline->n_workers; i++) {
                struct worker *worker = &pipeline->workers[i];

                if (worker->n < chunks_bound(pipeline, worker) && (may_begin || worker->n > 0) &&
                    (!best || worker->n < best->n))
                        best = worker;
        }
        return best;
}

/* For a suspect. */
static struct worker *idle_worker(struct pipeline *pipeline) {
        struct worker *worker = free_worker(pipeline, true);

        return worker && (worker->n == 0 || is_left_out(pipeline->life, LIFE_WITHOUT_ALONE)) ? worker : NULL;
}

static bool has_suspect(struct pipeline *pipeline) {
        return pipeline->n_suspects > 0 && idle_worker(pipeline);
}

static bool could(void *context) {
        struct pipeline *pipeline = context;

        return (simulation_jobs(pipeline->ring) > 0 || simulation_keeps_warm(pipeline->ring) ||
                pipeline->n_suspects > 0) &&
               free_worker(pipeline, true);
}

static bool claim(void *context, struct budget_claim *claim) {
        struct pipeline *pipeline = context;

        *claim = (struct budget_claim){0};
        return has_suspect(pipeline) || simulation_peek(pipeline->ring, &claim->use, &claim->since_ns);
}

static uint32_t taken_places(const struct life *life) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < PIPELINES_MAX; i++)
                if (life->pipelines[i].ring && life->pipelines[i].joined)
                        n += busy_workers(&life->pipelines[i]);
        return n;
}

static bool has_claim(struct pipeline *pipeline, struct budget_claim *its) {
        return pipeline->ring && pipeline->joined && could(pipeline) && claim(pipeline, its);
}

/* Due ones before all others, who waits longest first. */
static void check_turn(struct pipeline *pipeline) {
        struct life *life = pipeline->life;
        struct budget_claim mine, other;
        uint32_t n = 0;

        claim(pipeline, &mine);
        for (uint32_t i = 0; i < PIPELINES_MAX; i++) {
                if (&life->pipelines[i] == pipeline || !has_claim(&life->pipelines[i], &other))
                        continue;
                n++;
                if (mine.use > 0 && simulation_is_waited_for(life->pipelines[i].ring))
                        breach(life, "pipeline %u was given a chunk for later, and pipeline %u has a due one",
                               pipeline->number, life->pipelines[i].number);
                if (other.use < mine.use)
                        breach(life,
                               "pipeline %u was given a chunk for %llu batches ahead before one for %llu",
                               pipeline->number, (unsigned long long)mine.use, (unsigned long long)other.use);
                else if (other.use == mine.use && other.since_ns < mine.since_ns)
                        breach(life, "pipeline %u was given a chunk before one that waited longer",
                               pipeline->number);
        }
        life->result->contests += n > 0;
}

/* One of `pipeline` was given. */
static void run_out_of_patience(struct pipeline *pipeline) {
        struct life *life = pipeline->life;

        for (uint32_t i = 0; i < PIPELINES_MAX; i++) {
                struct pipeline *other = &life->pipelines[i];

                if (other == pipeline || !other->ring || !other->joined || !free_worker(other, true) ||
                    !simulation_is_waited_for(other->ring))
                        other->patience = 0;
                else if (++other->patience > PATIENCE_MAX)
                        breach(life, "pipeline %u starves", other->number);
                if (other->patience > life->result->patience)
                        life->result->patience = other->patience;
        }
}

static bool has_failed(const struct pipeline *pipeline) {
        return pipeline->life->result->breach[0] || pipeline->result.breach[0];
}

static bool give_suspect(struct pipeline *pipeline) {
        struct worker *worker = idle_worker(pipeline);

        if (worker->n > 0)
                breach(pipeline->life, "a suspect of pipeline %u went to a busy worker", pipeline->number);
        worker->alone = true;
        worker->chunks[worker->n++] = pipeline->suspects[0];
        memmove(pipeline->suspects, pipeline->suspects + 1,
                --pipeline->n_suspects * sizeof(pipeline->suspects[0]));
        return true;
}

/* As in pipeline-work.c. */
static bool hand_out(struct pipeline *pipeline, bool may_begin) {
        struct worker *worker;
        struct scheduler_chunk chunk;

        if (has_suspect(pipeline))
                return may_begin && give_suspect(pipeline);
        worker = free_worker(pipeline, may_begin);
        if (!worker || !simulation_next_chunk(pipeline->ring, &chunk))
                return false;
        worker->chunks[worker->n++] = chunk;
        return true;
}

static bool give(void *context, bool may_begin) {
        struct pipeline *pipeline = context;
        struct life *life = pipeline->life;
        uint32_t before = taken_places(life);
        struct budget_claim its;

        if (has_failed(pipeline))
                return false;
        if (!life->options->outcomes_only && has_claim(pipeline, &its) &&
            (may_begin || (!has_suspect(pipeline) && free_worker(pipeline, false))))
                check_turn(pipeline);
        if (!hand_out(pipeline, may_begin))
                return false;
        if (taken_places(life) > before && before >= life->budget.places)
                breach(life, "a worker of pipeline %u began while %u of %u places were taken",
                       pipeline->number, before, life->budget.places);
        pipeline->touched = true;
        life->result->chunks++;
        run_out_of_patience(pipeline);
        return true;
}

/* ---- pipelines ---- */

static const struct budget_events budget_events = {
        .busy = busy, .could = could, .claim = claim, .give = give};

static void begin_pipeline(struct life *life, struct pipeline *pipeline) {
        *pipeline = (struct pipeline){.life = life,
                                      .number = (uint32_t)(pipeline - life->pipelines),
                                      .n_workers = between(life, 1, WORKERS_MAX),
                                      .depth = between(life, 1, DEPTH_MAX)};
        pipeline->options = (struct simulation_options){.seed = life->options->seed,
                                                        .sabotage = life->options->scheduler_sabotage,
                                                        .steady = life->options->steady,
                                                        .crowded = !chance(life, 4),
                                                        .world = &life->world};
        if (simulation_new(&pipeline->ring, &pipeline->result, &pipeline->options) < 0)
                abort(); /* a test without memory says nothing */
        simulation_deliver(pipeline->ring);
        budget_member_init(&pipeline->member, &budget_events, pipeline);
        pipeline->joined = life->options->steady || !chance(life, 8);
        if (pipeline->joined)
                budget_join(&life->budget, &pipeline->member);
}

static void share_out(struct life *life) {
        uint32_t before = taken_places(life);

        budget_share_out(&life->budget);
        if (taken_places(life) > life->budget.places && taken_places(life) > before)
                breach(life, "%u workers are busy, %u were, and there are %u places", taken_places(life),
                       before, life->budget.places);
}

static void check_pipeline(struct life *life, struct pipeline *pipeline) {
        struct budget_claim its;
        bool has_place = !pipeline->joined || taken_places(life) < life->budget.places;

        if (has_place && could(pipeline) && claim(pipeline, &its))
                breach(life, "pipeline %u has work and a worker for it, and %u of %u places are taken",
                       pipeline->number, taken_places(life), life->budget.places);
        if (!pipeline->touched)
                return;
        pipeline->touched = false;
        simulation_check(pipeline->ring, has_place);
}

/* What a ring complains of is the life's breach; nothing was shared out any more. */
static void heed_rings(struct life *life) {
        for (uint32_t i = 0; i < PIPELINES_MAX; i++)
                if (life->pipelines[i].result.breach[0] && !life->result->breach[0])
                        snprintf(life->result->breach, sizeof(life->result->breach), "%s",
                                 life->pipelines[i].result.breach);
}

static void check_all(struct life *life) {
        heed_rings(life);
        for (uint32_t i = 0; i < PIPELINES_MAX; i++)
                if (life->pipelines[i].ring)
                        check_pipeline(life, &life->pipelines[i]);
        heed_rings(life);
}

static void end_pipeline(struct life *life, struct pipeline *pipeline) {
        bool is_whole = simulation_jobs(pipeline->ring) == 0 && simulation_chunks(pipeline->ring) == 0 &&
                        busy_workers(pipeline) == 0;

        tell(life, "pipeline %u is gone", pipeline->number);
        if (!is_whole)
                breach(life, "pipeline %u went, but had %u jobs, %u chunks and %u busy workers",
                       pipeline->number, simulation_jobs(pipeline->ring), simulation_chunks(pipeline->ring),
                       busy_workers(pipeline));
        life->result->deliveries += pipeline->result.deliveries;
        budget_leave(&pipeline->member);
        pipeline->ring = simulation_free(pipeline->ring);
        share_out(life);
}

/* One that was replaced goes when nobody needs it any more. */
static void end_replaced(struct life *life, struct pipeline *pipeline) {
        bool is_over = simulation_jobs(pipeline->ring) == 0 && busy_workers(pipeline) == 0 &&
                       pipeline->n_suspects == 0;

        if (pipeline->replaced && (is_over || is_left_out(life, LIFE_WITHOUT_WAITING)))
                end_pipeline(life, pipeline);
}

/* As pipeline_step. */
static void step(struct life *life, struct pipeline *pipeline) {
        pipeline->touched = true;
        pipeline->result.events = life->result->events;
        simulation_deliver(pipeline->ring);
        if (pipeline->joined)
                share_out(life);
        else
                while (!has_failed(pipeline) && hand_out(pipeline, true))
                        life->result->chunks++;
}

/* The event has been dealt with. */
static void settle(struct life *life, struct pipeline *pipeline) {
        check_all(life);
        if (pipeline->ring)
                end_replaced(life, pipeline);
        check_all(life);
}

/* ---- events ---- */

/* Any that is there, from a random place on. */
static struct pipeline *any_pipeline(struct life *life) {
        uint32_t first = between(life, 0, PIPELINES_MAX - 1);

        for (uint32_t i = 0; i < PIPELINES_MAX; i++)
                if (life->pipelines[(first + i) % PIPELINES_MAX].ring)
                        return &life->pipelines[(first + i) % PIPELINES_MAX];
        return NULL;
}

/* Any that holds a chunk, from a random one on. */
static struct worker *any_worker(struct pipeline *pipeline, bool hangs) {
        uint32_t first = between(pipeline->life, 0, WORKERS_MAX - 1);

        for (uint32_t i = 0; i < WORKERS_MAX; i++) {
                struct worker *worker = &pipeline->workers[(first + i) % WORKERS_MAX];

                if (worker->n > 0 && worker->hangs == hangs)
                        return worker;
        }
        return NULL;
}

static bool take_back(struct pipeline *pipeline, struct worker *worker, uint32_t i, enum simulation_end how) {
        struct scheduler_chunk chunk = worker->chunks[i];

        worker->n--;
        memmove(&worker->chunks[i], &worker->chunks[i + 1], (worker->n - i) * sizeof(chunk));
        return simulation_end_chunk(pipeline->ring, &chunk, how, &pipeline->suspects[pipeline->n_suspects]);
}

static void recall(struct pipeline *pipeline, struct worker *worker, uint32_t least) {
        while (worker->n > least)
                take_back(pipeline, worker, worker->n - 1, SIMULATION_END_RECALLED);
}

/* The first one of a worker. If that has made a suspect it has died, and another one takes its place. */
static void end_chunk(struct pipeline *pipeline, struct worker *worker, enum simulation_end how) {
        if (take_back(pipeline, worker, 0, how)) {
                if (++pipeline->n_suspects == SUSPECTS_MAX)
                        breach(pipeline->life, "pipeline %u does not try its suspects", pipeline->number);
                recall(pipeline, worker, 0);
        }
        worker->hangs = false;
        if (worker->n == 0)
                worker->alone = false;
}

static void finish_chunk(struct life *life, struct pipeline *pipeline) {
        struct worker *worker = any_worker(pipeline, false);

        if (!worker)
                return;
        tell(life, "pipeline %u: a chunk ends", pipeline->number);
        end_chunk(pipeline, worker, SIMULATION_END_ANYHOW);
}

/* A worker hangs; what it has not begun goes to others. Or one that did goes on, or is killed. */
static void hang(struct life *life, struct pipeline *pipeline) {
        bool begins = chance(life, 2);
        struct worker *worker = any_worker(pipeline, !begins);

        if (!worker)
                return;
        tell(life, "pipeline %u: a worker %s", pipeline->number, begins ? "hangs" : "hangs no more");
        worker->hangs = begins;
        life->result->hangs += begins;
        if (begins)
                recall(pipeline, worker, 1);
        else
                end_chunk(pipeline, worker, SIMULATION_END_ANYHOW);
}

static void change_places(struct life *life) {
        life->budget.places = between(life, 1, PLACES_MAX);
        tell(life, "%u places, of which %u are taken", life->budget.places, taken_places(life));
        life->result->cuts += life->budget.places < taken_places(life);
}

/* As pipeline_set_workers: a number of its own, or the budget's again. */
static void change_workers(struct life *life, struct pipeline *pipeline) {
        pipeline->n_workers = between(life, 1, WORKERS_MAX);
        pipeline->joined = !chance(life, 4);
        tell(life, "pipeline %u: %u workers%s", pipeline->number, pipeline->n_workers,
             pipeline->joined ? ", within the budget" : "");
        life->result->changes++;
        if (pipeline->joined)
                budget_join(&life->budget, &pipeline->member);
        else
                budget_leave(&pipeline->member);
}

/* The old one goes on for its jobs, if there is room for one more. */
static void reload(struct life *life, struct pipeline *pipeline) {
        struct pipeline *fresh = NULL;

        for (uint32_t i = 0; i < PIPELINES_MAX && !fresh; i++)
                if (!life->pipelines[i].ring)
                        fresh = &life->pipelines[i];
        if (!fresh || pipeline->replaced)
                return;
        begin_pipeline(life, fresh);
        tell(life, "pipeline %u is replaced by %u", pipeline->number, fresh->number);
        life->result->reloads++;
        step(life, fresh);
        pipeline->replaced = true;
        simulation_retire(pipeline->ring);
}

/* What is rare, in thousandths; between it goes by the life's own pace whether jobs ask for more than workers
 * get done, or less. */
static void live(struct life *life) {
        uint32_t dice = between(life, 0, 999);
        struct pipeline *pipeline = any_pipeline(life);

        if (dice < 8)
                change_places(life);
        else if (dice < 14)
                change_workers(life, pipeline);
        else if (dice < 17)
                reload(life, pipeline);
        else if (dice < 40)
                hang(life, pipeline);
        else if (dice < 60 && pipeline->replaced)
                simulation_leave(pipeline->ring);
        else if (dice < life->pace)
                simulation_event(pipeline->ring);
        else
                finish_chunk(life, pipeline);
        step(life, pipeline);
        if (dice < 14 && !is_left_out(life, LIFE_WITHOUT_SHARING))
                share_out(life);
        settle(life, pipeline);
}

/* Bound by the workers, as steady_event of a single ring. */
static void live_steadily(struct life *life) {
        struct pipeline *pipeline = any_pipeline(life);
        struct worker *worker;

        if (life->result->events % 2 == 0) {
                simulation_consume(pipeline->ring);
        } else {
                for (uint32_t i = 0; i < PIPELINES_MAX && busy_workers(pipeline) == 0; i++)
                        pipeline = any_pipeline(life);
                worker = any_worker(pipeline, false);
                if (worker)
                        end_chunk(pipeline, worker, SIMULATION_END_WELL);
        }
        step(life, pipeline);
        settle(life, pipeline);
}

/* All jobs go, all workers finish what they have. */
static void drain(struct life *life) {
        struct pipeline *pipeline;

        for (uint32_t i = 0; i < PIPELINES_MAX; i++) {
                if (!life->pipelines[i].ring)
                        continue;
                life->pipelines[i].replaced = true;
                simulation_retire(life->pipelines[i].ring);
                step(life, &life->pipelines[i]);
        }
        for (uint32_t i = 0; i < DRAIN_MAX && !life->result->breach[0]; i++) {
                struct worker *worker;

                pipeline = any_pipeline(life);
                if (!pipeline)
                        return;
                worker = any_worker(pipeline, chance(life, 2));
                if (worker)
                        end_chunk(pipeline, worker, SIMULATION_END_WELL);
                else
                        simulation_leave(pipeline->ring);
                step(life, pipeline);
                settle(life, pipeline);
        }
        breach(life, "it does not come to an end");
}

static void set_dice(struct life *life, uint32_t event) {
        life->world.random = mixed(mixed(life->options->seed) + event + 1);
}

void life_run(struct life_result *result, const struct life_options *options) {
        struct life life = {.options = options, .result = result};
        uint32_t n;

        *result = (struct life_result){0};
        set_dice(&life, LIFE_EVENTS_MAX);
        budget_init(&life.budget, between(&life, 1, options->steady ? 2 : PLACES_MAX));
        life.budget.sabotage = options->budget_sabotage;
        life.pace = between(&life, 200, 900);
        n = between(&life, options->steady ? 2 : 1, PIPELINES_MAX - 2);
        for (uint32_t i = 0; i < n; i++)
                begin_pipeline(&life, &life.pipelines[i]);
        for (uint32_t i = 0; i < n; i++)
                step(&life, &life.pipelines[i]);
        while (!result->breach[0] && result->events < options->events) {
                uint32_t event = result->events++;

                if (options->some && !options->kept[event])
                        continue;
                set_dice(&life, event);
                if (options->steady)
                        live_steadily(&life);
                else
                        live(&life);
        }
        if (!result->breach[0]) {
                set_dice(&life, LIFE_EVENTS_MAX + 1);
                drain(&life);
        }
        for (uint32_t i = 0; i < PIPELINES_MAX; i++)
                simulation_free(life.pipelines[i].ring);
}

/* ---- making it short ---- */

/* In the same way: the texts are alike up to the first number. */
static bool goes_wrong(const struct life_options *options, const char *breach) {
        struct life_result result;

        life_run(&result, options);
        return result.breach[0] && strncmp(result.breach, breach, strcspn(breach, "0123456789")) == 0;
}

/* Leaves `n` of the kept events out, from the `first` on; false: there are none. */
static bool leave_out(struct life_options *options, uint32_t first, uint32_t n) {
        uint32_t seen = 0, left_out = 0;

        for (uint32_t i = 0; i < options->events; i++) {
                if (!options->kept[i] || seen++ < first || left_out == n)
                        continue;
                options->kept[i] = false;
                left_out++;
        }
        return left_out > 0;
}

/* Tries to leave out `n` after `n` of them; true: some went. */
static bool shrink_by(struct life_options *options, const char *breach, uint32_t n) {
        struct life_options fewer;
        uint32_t first = 0;
        bool any = false;

        while (fewer = *options, leave_out(&fewer, first, n))
                if (goes_wrong(&fewer, breach)) {
                        *options = fewer;
                        any = true;
                } else {
                        first += n;
                }
        return any;
}

void life_shrink(struct life_options *options) {
        struct life_result result;

        life_run(&result, options);
        for (uint32_t i = 0; i < LIFE_EVENTS_MAX; i++)
                options->kept[i] = i < result.events && (!options->some || options->kept[i]);
        options->some = true;
        options->events = result.events;
        for (uint32_t n = (options->events + 1) / 2; n > 0; n /= 2)
                shrink_by(options, result.breach, n);
        while (shrink_by(options, result.breach, 1))
                ;
}
