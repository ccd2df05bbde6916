/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How much is shared under each policy: whole runs of a scheduler on a clock of their own, bound by workers
 * that take as long for every row. The figures are those of docs/scheduling.md. No dice, no real time. */

#include "base/clock.h"
#include "daemon/scheduler-internal.h"
#include "tests/support/run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        WORKERS = 2,
        SLOTS = 8,
        SLOT_ROWS = 64,
        JOBS_MAX = 8,
        HELD_MAX = 16,
        CHUNK_ROWS = 16,
};

#define ROW_NS (NS_PER_S / 320) /* of a worker: together they make ten slots a second */
#define RATE   (WORKERS * (double)NS_PER_S / ROW_NS)

struct trainer {
        uint64_t comes; /* attaches */
        uint64_t step;  /* that it computes on a batch */
        uint64_t stops; /* computes for ever from then on; 0: never */
        uint32_t batch_rows, rank, world_size;
        uint64_t seed;
        /* what happens */
        bool there;
        bool computing;
        uint64_t until; /* of computing */
        uint64_t held[HELD_MAX];
        uint32_t n_held;
        uint64_t rows; /* consumed after counting began */
};

struct run {
        struct trainer trainers[JOBS_MAX];
        uint32_t n;
        uint32_t slots;
        double catch_up;   /* seconds */
        uint64_t max_lead; /* rows; 0: elastic */
        double lag_timeout;
        uint64_t samples;
        uint64_t count_from, ends; /* seconds, of the clock */
        /* what happens */
        struct scheduler *scheduler;
        uint64_t now;
        struct {
                bool busy;
                uint64_t until;
                struct scheduler_chunk chunk;
        } workers[WORKERS];
        struct scheduler_counters before;
        uint64_t busy_ns;
};

/* For inner loops: an assertion of Check costs a system call. */
static void must(bool condition) {
        if (!condition)
                ck_abort_msg("a step that must work did not");
}

static void come(struct run *run, uint32_t i) {
        struct trainer *trainer = &run->trainers[i];
        struct scheduler_job job = {.id = i + 1, .seed = trainer->seed, .max_held = 4, .lookahead = 1};

        job.plan = (struct position_plan){.samples = run->samples,
                                          .batch_size = trainer->batch_rows ? trainer->batch_rows : SLOT_ROWS,
                                          .rank = trainer->rank,
                                          .world_size = trainer->world_size ? trainer->world_size : 1,
                                          .last_batch = LAST_BATCH_SHORT};
        must(scheduler_attach(run->scheduler, &job, run->now, NULL) == 0);
        trainer->there = true;
}

/* A trainer computes on the oldest batch that it holds, and gives it back when it has the next one too. */
static void train(struct run *run, uint32_t i) {
        struct trainer *trainer = &run->trainers[i];

        if (trainer->computing && run->now >= trainer->until) {
                trainer->computing = false;
                must(scheduler_release(run->scheduler, i + 1, trainer->held[0], run->now) == 0);
                memmove(&trainer->held[0], &trainer->held[1], (HELD_MAX - 1) * sizeof(trainer->held[0]));
                --trainer->n_held;
        }
        if (!trainer->computing && trainer->n_held > 0) {
                trainer->computing = true;
                trainer->until = trainer->stops > 0 && run->now >= trainer->stops ? UINT64_MAX
                                                                                  : run->now + trainer->step;
        }
}

static void deliver(struct run *run) {
        struct scheduler_delivery delivery;

        while (scheduler_next_delivery(run->scheduler, run->now, &delivery)) {
                struct trainer *trainer = &run->trainers[delivery.job - 1];

                must(trainer->n_held < HELD_MAX);
                trainer->held[trainer->n_held++] = delivery.number;
                trainer->rows += run->now >= run->count_from ? delivery.position.rows : 0;
        }
}

static void work(struct run *run) {
        for (int i = 0; i < WORKERS; ++i) {
                if (run->workers[i].busy && run->now >= run->workers[i].until) {
                        const struct scheduler_chunk *chunk = &run->workers[i].chunk;

                        must(scheduler_chunk_done(run->scheduler, chunk->slot, chunk->first, chunk->rows) ==
                             0);
                        run->workers[i].busy = false;
                }
        }
        deliver(run);
        for (int i = 0; i < WORKERS; ++i) {
                if (run->workers[i].busy ||
                    !scheduler_next_chunk(run->scheduler, CHUNK_ROWS, WORKERS, &run->workers[i].chunk))
                        continue;
                run->workers[i].busy = true;
                run->workers[i].until = run->now + run->workers[i].chunk.rows * ROW_NS;
                run->busy_ns += run->now >= run->count_from ? run->workers[i].until - run->now : 0;
        }
}

/* When something happens next. */
static uint64_t next_time(const struct run *run) {
        uint64_t next = run->ends;

        if (run->max_lead > 0 && run->now + NS_PER_S < next) /* the daemon looks as often */
                next = run->now + NS_PER_S;
        for (uint32_t i = 0; i < run->n; ++i) {
                const struct trainer *trainer = &run->trainers[i];

                if (!trainer->there && trainer->comes < next)
                        next = trainer->comes;
                if (trainer->computing && trainer->until < next)
                        next = trainer->until;
        }
        for (int i = 0; i < WORKERS; ++i)
                if (run->workers[i].busy && run->workers[i].until < next)
                        next = run->workers[i].until;
        return next > run->now ? next : run->now + 1;
}

/* Rows delivered for each that was prepared. */
static double play(struct run *run) {
        struct scheduler_config config = {
                .slots = run->slots ? run->slots : SLOTS, .slot_rows = SLOT_ROWS, .samples = run->samples};
        struct scheduler_counters after;
        bool counting = false;

        must(scheduler_new(&run->scheduler, &config) == 0);
        scheduler_set_catch_up(run->scheduler, (uint64_t)(run->catch_up * RATE),
                               (uint64_t)(run->catch_up * NS_PER_S));
        scheduler_set_lockstep(run->scheduler, run->max_lead, (uint64_t)(run->lag_timeout * NS_PER_S));
        for (run->now = 0; run->now < run->ends; run->now = next_time(run)) {
                if (!counting && run->now >= run->count_from) {
                        scheduler_counters(run->scheduler, &run->before);
                        counting = true;
                }
                for (uint32_t i = 0; i < run->n; ++i) {
                        if (!run->trainers[i].there && run->now >= run->trainers[i].comes)
                                come(run, i);
                        if (run->trainers[i].there)
                                train(run, i);
                }
                work(run);
        }
        scheduler_counters(run->scheduler, &after);
        scheduler_free(run->scheduler);
        return (double)(after.rows_delivered - run->before.rows_delivered) /
               (double)(after.rows_prepared - run->before.rows_prepared);
}

/* ---- catching up ---- */

static const struct {
        const char *name;
        uint32_t apart; /* seconds */
        double catch_up;
        double least, most;
} apart[] = {
        {"together", 0, 60, 3.6, 4.0},
        {"10 s apart", 10, 60, 0.9 * 3.9, 4.0},
        {"30 s apart", 30, 60, 0.9 * 3.5, 1.1 * 3.5},
        {"60 s apart", 60, 60, 0.9 * 3.4, 1.1 * 3.4},
        {"300 s apart", 300, 60, 1.0, 1.1},
        {"60 s apart, catch_up 0", 60, 0, 1.0, 1.2},
};

/* Four equal jobs, the ten minutes after the last has come. */
START_TEST(test_apart) {
        struct run run = {.n = 4, .catch_up = apart[_i].catch_up, .samples = 100000};
        double factor;

        for (uint32_t i = 0; i < run.n; ++i)
                run.trainers[i] = (struct trainer){.comes = i * apart[_i].apart * NS_PER_S};
        run.count_from = run.trainers[3].comes;
        run.ends = run.count_from + 600 * NS_PER_S;
        factor = play(&run);
        printf("# four jobs %s: sharing factor %.2f\n", apart[_i].name, factor);
        ck_assert_double_ge(factor, apart[_i].least);
        ck_assert_double_le(factor, apart[_i].most + 0.01);
}
END_TEST

/* Batches of other sizes than a slot, ranks, speeds: what a job lacks is not always a whole batch. */
static const struct {
        const char *name;
        struct trainer trainers[4];
        uint32_t n, slots;
        double least, most;
} mixed[] = {
        {"batches of 7, 32, 64 rows, together",
         {{.batch_rows = 7}, {.batch_rows = 32}, {.batch_rows = 64}},
         3,
         8,
         2.7,
         3.0},
        {"batches of 7, 32, 64 rows, 10 s apart",
         {{.batch_rows = 7},
          {.comes = 10 * NS_PER_S, .batch_rows = 32},
          {.comes = 20 * NS_PER_S, .batch_rows = 64}},
         3,
         8,
         0.9 * 2.8,
         3.0},
        {"batches of 64, 32, 7 rows, 10 s apart",
         {{.batch_rows = 64},
          {.comes = 10 * NS_PER_S, .batch_rows = 32},
          {.comes = 20 * NS_PER_S, .batch_rows = 7}},
         3,
         8,
         0.9 * 2.8,
         3.0},
        {"two runs of two ranks, together",
         {{.world_size = 2}, {.world_size = 2, .rank = 1}, {.world_size = 2}, {.world_size = 2, .rank = 1}},
         4,
         8,
         1.8,
         2.0},
        {"two runs of two ranks, 10 s apart",
         {{.world_size = 2},
          {.world_size = 2, .rank = 1},
          {.comes = 10 * NS_PER_S, .world_size = 2},
          {.comes = 10 * NS_PER_S, .world_size = 2, .rank = 1}},
         4,
         8,
         1.8,
         2.0},
        {"speeds 1 : 1 : 0.8 : 0.5, twice the workers that they need",
         {{.step = 660 * NS_PER_S / 1000},
          {.step = 660 * NS_PER_S / 1000},
          {.step = 825 * NS_PER_S / 1000},
          {.step = 1320 * NS_PER_S / 1000}},
         4,
         8,
         0.9 * 1.5,
         1.1 * 1.5},
};

START_TEST(test_mixed) {
        struct run run = {.n = mixed[_i].n, .slots = mixed[_i].slots, .catch_up = 60, .samples = 100000};
        double factor;

        memcpy(run.trainers, mixed[_i].trainers, sizeof(mixed[_i].trainers));
        run.count_from = run.trainers[run.n - 1].comes;
        run.ends = run.count_from + 600 * NS_PER_S;
        factor = play(&run);
        printf("# %s: sharing factor %.2f\n", mixed[_i].name, factor);
        ck_assert_double_ge(factor, mixed[_i].least);
        ck_assert_double_le(factor, mixed[_i].most + 0.01);
}
END_TEST

/* ---- fast and slow ---- */

/* A fast job that needs half the workers, and one that takes a fifth of its rate. */
static struct run fast_and_slow(void) {
        struct run run = {.n = 2, .catch_up = 60, .samples = 100000, .ends = 600 * NS_PER_S};

        run.trainers[0].step = 200 * NS_PER_MS;
        run.trainers[1].step = NS_PER_S;
        return run;
}

START_TEST(test_elastic_keeps_nobody_up) {
        struct run alone = fast_and_slow(), run = fast_and_slow();
        double factor;

        alone.n = 1;
        play(&alone);
        factor = play(&run);
        printf("# elastic: the fast job had %llu rows alone, %llu beside a slow one; sharing factor %.2f\n",
               (unsigned long long)alone.trainers[0].rows, (unsigned long long)run.trainers[0].rows, factor);
        ck_assert_double_ge((double)run.trainers[0].rows, 0.95 * (double)alone.trainers[0].rows);
}
END_TEST

START_TEST(test_lockstep) {
        struct run run = fast_and_slow();
        double factor;

        run.max_lead = 1000000;
        run.lag_timeout = 60;
        factor = play(&run);
        printf("# lockstep: %llu and %llu rows, sharing factor %.3f\n",
               (unsigned long long)run.trainers[0].rows, (unsigned long long)run.trainers[1].rows, factor);
        ck_assert_double_ge(factor, 1.98); /* what lies ready at the end is prepared and not delivered */
        ck_assert_uint_le(run.trainers[0].rows, run.trainers[1].rows + SLOTS * SLOT_ROWS);
}
END_TEST

/* The slow one stops for good after a minute: from lag_timeout on it is waited for no more. */
START_TEST(test_demotion) {
        struct run run = fast_and_slow();

        run.max_lead = 1000000;
        run.lag_timeout = 60;
        run.trainers[1].stops = 60 * NS_PER_S;
        run.ends = 180 * NS_PER_S;
        play(&run);
        printf("# lockstep: one stops after 60 s; after 180 s it has %llu rows, the other %llu\n",
               (unsigned long long)run.trainers[1].rows, (unsigned long long)run.trainers[0].rows);
        ck_assert_uint_ge(run.trainers[0].rows, (60 + 58 * 5) * SLOT_ROWS); /* 1 a second, none, 5 a second */
        ck_assert_uint_le(run.trainers[0].rows, (60 + 61 * 5 + 2 * SLOTS) * SLOT_ROWS);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("sharing");
        TCase *catch_up = tcase_create("catch-up");

        tcase_set_timeout(catch_up, 60);
        tcase_add_loop_test(catch_up, test_apart, 0, sizeof(apart) / sizeof(apart[0]));
        tcase_add_loop_test(catch_up, test_mixed, 0, sizeof(mixed) / sizeof(mixed[0]));
        tcase_add_test(catch_up, test_elastic_keeps_nobody_up);
        tcase_add_test(catch_up, test_lockstep);
        tcase_add_test(catch_up, test_demotion);
        suite_add_tcase(s, catch_up);
        return s;
}

int main(void) {
        return run_suite(suite());
}
