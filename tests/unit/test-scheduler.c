/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The scheduler: random lives against the model, each of the five rules left out in turn (which must show in
 * what jobs get, or the rule would not be needed), the bound of rule 1 against counting, how much sharing
 * saves, how large chunks are, what becomes of chunks of workers that fail, what misuse does. Throughput is
 * printed, not judged. */

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/scheduler-internal.h"
#include "tests/support/run.h"
#include "tests/unit/scheduler-model.h"
#include "tests/unit/scheduler-simulation.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* For inner loops: an assertion of Check costs a system call. */
static void must(bool condition) {
        if (!condition)
                ck_abort_msg("a step that must work did not");
}

/* ---- random lives ---- */

struct lives {
        unsigned first, last; /* seeds */
        unsigned sabotage;
        uint32_t events; /* each */
        bool steady, outcomes_only;
};

/* Adds up the lives; stops at the first breach. */
static struct simulation_result live(struct lives lives) {
        struct simulation_result sum = {0}, one;

        for (unsigned seed = lives.first; seed <= lives.last && !sum.breach[0]; ++seed) {
                struct simulation_options options = {.seed = seed,
                                                     .events = lives.events,
                                                     .sabotage = lives.sabotage,
                                                     .steady = lives.steady,
                                                     .outcomes_only = lives.outcomes_only};

                simulation_run(&one, &options);
                memcpy(sum.breach, one.breach, sizeof(sum.breach));
                sum.events += one.events;
                sum.deliveries += one.deliveries;
                sum.chunks += one.chunks;
                sum.evictions += one.evictions;
                sum.splits += one.splits;
                sum.quarantines += one.quarantines;
                sum.seeks += one.seeks;
                sum.waits += one.waits;
                sum.catch_ups += one.catch_ups;
                sum.catch_ups_met += one.catch_ups_met;
                sum.short_deliveries += one.short_deliveries;
                sum.filled += one.filled;
                sum.undelivered += one.undelivered;
                sum.patience = one.patience > sum.patience ? one.patience : sum.patience;
        }
        return sum;
}

static double in_vain(const struct simulation_result *result) {
        return result->filled > 0 ? 100.0 * (double)result->undelivered / (double)result->filled : 0;
}

static void tell(const char *what, const struct simulation_result *result) {
        printf("# %s: %u events, %u deliveries, %u chunks, %u evictions, longest wait %llu chunks\n", what,
               result->events, result->deliveries, result->chunks, result->evictions,
               (unsigned long long)result->patience);
}

START_TEST(test_random_lives) {
        unsigned n = getenv("PINFEED_TEST_QUICK") ? 40 : 1200;
        struct simulation_result result = live((struct lives){1, n, 0, 1000, false, false});

        tell("random lives", &result);
        printf("# random lives: %u seeks, %u more had to wait; %u chunks came back in parts\n", result.seeks,
               result.waits, result.splits);
        printf("# random lives: %u slots went into quarantine, %u deliveries in a ring that was short\n",
               result.quarantines, result.short_deliveries);
        printf("# random lives: %u catch-ups, in %u of them they met\n", result.catch_ups,
               result.catch_ups_met);
        ck_assert_str_eq(result.breach, "");
        ck_assert_uint_ge(result.catch_ups_met, n / 2);
        ck_assert_uint_ge(result.events, n * 750);
        ck_assert_uint_ge(result.deliveries, result.events / 12);
        ck_assert_uint_ge(result.seeks, result.events / 100);
}
END_TEST

START_TEST(test_steady_lives) {
        unsigned n = getenv("PINFEED_TEST_QUICK") ? 30 : 120;
        struct simulation_result result = live((struct lives){1, n, 0, 2000, true, false});

        tell("steady lives", &result);
        printf("# steady lives: %.2f %% of the slots filled after the first quarter were filled in vain\n",
               in_vain(&result));
        ck_assert_str_eq(result.breach, "");
        ck_assert_double_lt(in_vain(&result), 3);
}
END_TEST

static const struct {
        const char *name;
        unsigned sabotage;
} rules[] = {
        {"none", 0},
        {"1, minimum", SCHEDULER_WITHOUT_MINIMUM},
        {"2, admission", SCHEDULER_WITHOUT_ADMISSION},
        {"3, leases", SCHEDULER_WITHOUT_LEASES},
        {"4, due", SCHEDULER_WITHOUT_DUE},
        {"5, eviction", SCHEDULER_WITHOUT_EVICTION},
};

/* What a user would notice: a breach of outcomes, or slots filled in vain. */
START_TEST(test_rule_left_out) {
        unsigned sabotage = rules[_i].sabotage;
        struct simulation_result wild = live((struct lives){1, 60, sabotage, 1000, false, true});
        struct simulation_result steady = live((struct lives){1, 60, sabotage, 2000, true, true});
        const char *breach = wild.breach[0] ? wild.breach : steady.breach;
        char text[64] = "";

        if (!breach[0] && in_vain(&steady) > 3) {
                snprintf(text, sizeof(text), "%.1f %% of the slots were filled in vain", in_vain(&steady));
                breach = text;
        }
        printf("# without rule %s: %s\n", rules[_i].name, breach[0] ? breach : "no breach");
        if (sabotage)
                ck_assert_str_ne(breach, "");
        else
                ck_assert_str_eq(breach, "");
}
END_TEST

static const struct {
        const char *name;
        unsigned sabotage;
} policies[] = {
        {"catching up: what those behind lack first", SCHEDULER_WITHOUT_CATCH_UP_ORDER},
        {"catching up: at most catch_up behind", SCHEDULER_WITHOUT_CATCH_UP_BOUND},
        {"catching up: only who waits", SCHEDULER_WITHOUT_CATCH_UP_WAIT},
        {"catching up: until they meet", SCHEDULER_WITHOUT_CATCH_UP_MEETING},
        {"catching up: no longer than promised", SCHEDULER_WITHOUT_CATCH_UP_LIMIT},
        {"catching up: then a rest", SCHEDULER_WITHOUT_CATCH_UP_REST},
        {"catching up: a rank for who waits meanwhile", SCHEDULER_WITHOUT_CATCH_UP_RANK},
        {"catching up: only while workers are short of time", SCHEDULER_WITHOUT_CATCH_UP_NEED},
        {"lockstep: the lead", SCHEDULER_WITHOUT_LEAD},
        {"lockstep: a lead of two steps at least", SCHEDULER_WITHOUT_LEAST_LEAD},
        {"lockstep: only who is near binds", SCHEDULER_WITHOUT_NEARNESS},
        {"lockstep: demotion", SCHEDULER_WITHOUT_DEMOTION},
        {"gathering: nothing before the others are there", SCHEDULER_WITHOUT_GATHER},
        {"gathering: no longer", SCHEDULER_WITHOUT_GATHER_END},
        {"warm: goes last", SCHEDULER_WITHOUT_WARM_LAST},
        {"warm: only while there is no job", SCHEDULER_WITHOUT_WARM_REST},
        {"a run: nothing before all ranks are there", SCHEDULER_WITHOUT_EXPECTING},
        {"who does not read: no more than its minimum", SCHEDULER_WITHOUT_UNREAD},
};

/* These are no matter of life and death, so the model tells. */
START_TEST(test_policy_left_out) {
        struct simulation_result wild =
                live((struct lives){1, 400, policies[_i].sabotage, 1000, false, false});

        printf("# without %s: %s\n", policies[_i].name, wild.breach[0] ? wild.breach : "no breach");
        ck_assert_str_ne(wild.breach, "");
}
END_TEST

/* ---- rule 1 ---- */

/* Of every start row. */
static void check_minimum(const struct scheduler_config *config, const struct position_plan *plan) {
        if (position_check(plan, 0, NULL) < 0)
                return; /* DROP with too few samples */
        for (uint64_t row = 0; row < config->samples; ++row) {
                uint32_t truth = model_minimum(config, plan, row);
                uint32_t minimum = scheduler_minimum(config, plan, row);

                if (minimum != truth)
                        ck_abort_msg("S %u N %u b %u rank %u/%u tail %d row %u: %u slots, not %u",
                                     config->slot_rows, (unsigned)config->samples, plan->batch_size,
                                     plan->rank, plan->world_size, plan->last_batch, (unsigned)row, truth,
                                     minimum);
        }
}

static void check_minimums(const struct scheduler_config *config, uint32_t batch) {
        struct position_plan plan = {.samples = config->samples, .batch_size = batch};

        for (int tail = LAST_BATCH_SHORT; tail <= LAST_BATCH_PAD; ++tail)
                for (plan.world_size = 1; plan.world_size <= 4; ++plan.world_size)
                        for (plan.rank = 0; plan.rank < plan.world_size; ++plan.rank) {
                                plan.last_batch = (enum last_batch)tail;
                                check_minimum(config, &plan);
                        }
}

START_TEST(test_minimum) {
        struct scheduler_config config = {.slots = 8};

        for (config.slot_rows = 1; config.slot_rows <= 7; config.slot_rows += config.slot_rows < 4 ? 1 : 3)
                for (config.samples = 1; config.samples <= 33; config.samples += config.samples < 9 ? 1 : 6)
                        for (uint32_t batch = 1; batch <= 17; batch += batch < 9 ? 1 : 3)
                                check_minimums(&config, batch);
}
END_TEST

START_TEST(test_minimum_usual) {
        struct scheduler_config config = {.slots = 8, .slot_rows = 256, .samples = 1281167};
        struct position_plan plan = {.samples = 1281167, .batch_size = 256, .world_size = 1};

        plan.last_batch = LAST_BATCH_SHORT;
        ck_assert_uint_eq(scheduler_minimum(&config, &plan, 0), 2);
        ck_assert_uint_eq(scheduler_minimum(&config, &plan, 512), 2);
        ck_assert_uint_eq(scheduler_minimum(&config, &plan, 100), 4);
        plan.batch_size = 64;
        ck_assert_uint_eq(scheduler_minimum(&config, &plan, 0), 2);
        plan.batch_size = 100;
        ck_assert_uint_eq(scheduler_minimum(&config, &plan, 0), 3);
        /* a period of more steps than are tried: bounded by twice the worst batch, here exact */
        config.slot_rows = 1000003;
        config.samples = UINT64_C(1) << 48;
        plan = (struct position_plan){.samples = config.samples, .batch_size = 1999999, .world_size = 1};
        plan.last_batch = LAST_BATCH_DROP;
        ck_assert_uint_eq(scheduler_minimum(&config, &plan, 0), 6);
}
END_TEST

/* ---- sharing ---- */

enum {
        SHARING_ROWS = 1000,
        SHARING_SLOT = 64,
        SHARING_BATCHES = 200,
};

static struct scheduler_job plain_job(uint32_t id, uint64_t seed, uint64_t samples, uint32_t batch) {
        struct scheduler_job job = {.id = id, .seed = seed, .max_held = 2, .lookahead = UINT32_MAX};

        job.plan = (struct position_plan){.samples = samples, .batch_size = batch, .world_size = 1};
        job.plan.last_batch = LAST_BATCH_SHORT;
        return job;
}

/* Two workers with a chunk each; every job releases what it got at once, or a little later, by dice. Ends
 * when every job has had its batches. */
static uint64_t rows_for(uint32_t jobs, uint32_t seeds) {
        struct scheduler_config config = {.slots = 8, .slot_rows = SHARING_SLOT, .samples = SHARING_ROWS};
        struct scheduler_delivery delivery, held[16];
        struct scheduler_chunk chunks[2];
        struct scheduler_counters counters;
        struct scheduler *scheduler;
        uint32_t n_held = 0, n_chunks = 0, done = 0;
        uint64_t now = 0;

        srandom(1);
        ck_assert_int_eq(scheduler_new(&scheduler, &config), 0);
        for (uint32_t i = 0; i < jobs; ++i) {
                struct scheduler_job job = plain_job(i, i % seeds, SHARING_ROWS, SHARING_SLOT);

                ck_assert_int_eq(scheduler_attach(scheduler, &job, ++now, NULL), 0);
        }
        while (done < jobs) {
                while (scheduler_next_delivery(scheduler, ++now, &delivery)) {
                        held[n_held++] = delivery;
                        done += delivery.number + 1 == SHARING_BATCHES;
                }
                while (n_chunks < 2 && scheduler_next_chunk(scheduler, 8, 2, &chunks[n_chunks]))
                        ++n_chunks;
                for (uint32_t i = n_held; i-- > 0;) {
                        if (random() % 2)
                                continue;
                        must(scheduler_release(scheduler, held[i].job, held[i].number, ++now) == 0);
                        held[i] = held[--n_held];
                }
                must(n_chunks > 0);
                must(scheduler_chunk_done(scheduler, chunks[0].slot, chunks[0].first, chunks[0].rows) == 0);
                chunks[0] = chunks[--n_chunks];
        }
        scheduler_counters(scheduler, &counters);
        scheduler_free(scheduler);
        return counters.rows_prepared;
}

START_TEST(test_sharing) {
        uint64_t one = rows_for(1, 1), four = rows_for(4, 1), two_seeds = rows_for(4, 2);

        printf("# rows prepared: one job %llu, four jobs %llu, four jobs of two seeds %llu\n",
               (unsigned long long)one, (unsigned long long)four, (unsigned long long)two_seeds);
        ck_assert_double_le((double)four, 1.02 * (double)one);
        ck_assert_double_le((double)two_seeds, 2 * 1.02 * (double)one);
        ck_assert_double_ge((double)two_seeds, 2 * 0.95 * (double)one);
}
END_TEST

/* ---- single steps ---- */

static struct scheduler *ring(uint32_t slots, uint32_t slot_rows, uint64_t samples) {
        struct scheduler_config config = {.slots = slots, .slot_rows = slot_rows, .samples = samples};
        struct scheduler *scheduler;

        ck_assert_int_eq(scheduler_new(&scheduler, &config), 0);
        return scheduler;
}

START_TEST(test_chunk_sizes) {
        struct scheduler *scheduler = ring(4, 64, 1000);
        struct scheduler_job job = plain_job(1, 7, 1000, 64);
        struct scheduler_chunk chunk;

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        for (uint32_t i = 0; i < 4; ++i) { /* somebody waits: all workers, equal shares */
                ck_assert(scheduler_next_chunk(scheduler, 1000, 4, &chunk));
                ck_assert_uint_eq(chunk.row, 16 * i);
                ck_assert_uint_eq(chunk.first, 16 * i);
                ck_assert_uint_eq(chunk.rows, 16);
                ck_assert_uint_eq(chunk.seed, 7);
        }
        ck_assert(scheduler_next_chunk(scheduler, 1000, 4, &chunk)); /* nobody waits for the second batch */
        ck_assert_uint_eq(chunk.row, 64);
        ck_assert_uint_eq(chunk.rows, 64);
        ck_assert(scheduler_next_chunk(scheduler, 10, 4, &chunk));
        ck_assert_uint_eq(chunk.row, 128);
        ck_assert_uint_eq(chunk.rows, 10);
        scheduler_free(scheduler);
}
END_TEST

START_TEST(test_epoch_border) {
        struct scheduler *scheduler = ring(4, 4, 6);
        struct scheduler_job job = plain_job(1, 0, 6, 4);
        struct scheduler_delivery delivery;
        struct scheduler_chunk chunk;
        const uint64_t rows[] = {4, 2, 4, 2};

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        for (uint32_t i = 0; i < 4; ++i) { /* prefetched across the border, the short slot too */
                ck_assert(scheduler_next_chunk(scheduler, 100, 1, &chunk));
                ck_assert_uint_eq(chunk.epoch, i / 2);
                ck_assert_uint_eq(chunk.rows, rows[i]);
                ck_assert_int_eq(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows), 0);
        }
        ck_assert(!scheduler_next_chunk(scheduler, 100, 1, &chunk));
        for (uint32_t i = 0; i < 2; ++i) {
                ck_assert(scheduler_next_delivery(scheduler, 0, &delivery));
                ck_assert_uint_eq(delivery.number, i);
                ck_assert_uint_eq(delivery.position.rows, rows[i]);
                ck_assert_uint_eq(delivery.n_segments, 1);
        }
        ck_assert(!scheduler_next_delivery(scheduler, 0, &delivery));
        scheduler_free(scheduler);
}
END_TEST

/* All that workers could do is done. */
static void fill(struct scheduler *scheduler) {
        struct scheduler_chunk chunk;

        while (scheduler_next_chunk(scheduler, 64, 1, &chunk))
                must(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows) == 0);
}

/* The job's next batch comes at once: it begins at (epoch, row). */
static void expect_batch(struct scheduler *scheduler, uint64_t number, uint32_t epoch, uint64_t row) {
        struct scheduler_delivery delivery;

        fill(scheduler);
        ck_assert(scheduler_next_delivery(scheduler, 0, &delivery));
        ck_assert_uint_eq(delivery.number, number);
        ck_assert_uint_eq(delivery.position.epoch, epoch);
        ck_assert_uint_eq(delivery.position.row, row);
}

static void expect_nothing(struct scheduler *scheduler) {
        struct scheduler_delivery delivery;

        fill(scheduler);
        ck_assert(!scheduler_next_delivery(scheduler, 0, &delivery));
}

/* Without lookahead an epoch is all that is prepared and given; a seek opens the next. */
START_TEST(test_parked) {
        struct scheduler *scheduler = ring(8, 4, 10);
        struct scheduler_job job = plain_job(1, 0, 10, 4);
        struct scheduler_counters counters;
        struct scheduler_job_view view;

        job.lookahead = 0;
        job.max_held = 8;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        for (uint64_t i = 0; i < 3; ++i)
                expect_batch(scheduler, i, 0, 4 * i);
        expect_nothing(scheduler);
        scheduler_view_job(scheduler, 1, &view);
        ck_assert(view.parked && !view.waiting);
        ck_assert_uint_eq(view.ready, 0);
        scheduler_counters(scheduler, &counters);
        ck_assert_uint_eq(counters.rows_prepared, 10);

        ck_assert_int_eq(scheduler_seek(scheduler, 1, 1, 0, 0, 0, NULL), 0);
        scheduler_view_job(scheduler, 1, &view);
        ck_assert(!view.parked);
        expect_batch(scheduler, 3, 1, 0);
        scheduler_view_job(scheduler, 1, &view);
        ck_assert_uint_eq(view.held, 4);
        scheduler_free(scheduler);
}
END_TEST

/* With a lookahead of one the next epoch is prepared from the first batch of this one on, but no later one.
 */
START_TEST(test_lookahead) {
        struct scheduler *scheduler = ring(16, 4, 10);
        struct scheduler_job job = plain_job(1, 0, 10, 4);
        struct scheduler_counters counters;

        job.lookahead = 1;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        for (uint64_t i = 0; i < 9; ++i) {
                expect_batch(scheduler, i, (uint32_t)i / 3, i % 3 * 4);
                ck_assert_int_eq(scheduler_release(scheduler, 1, i, 0), 0);
                fill(scheduler);
                scheduler_counters(scheduler, &counters);
                ck_assert_uint_eq(counters.rows_prepared, (i / 3 + 2) * 10);
        }
        scheduler_free(scheduler);
}
END_TEST

START_TEST(test_seek) {
        struct scheduler *scheduler = ring(8, 4, 100);
        struct scheduler_job job = plain_job(1, 0, 100, 4);
        struct fault fault;

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        expect_batch(scheduler, 0, 0, 0);
        ck_assert_int_eq(scheduler_seek(scheduler, 2, 0, 0, 0, 0, &fault), SCHEDULER_E_UNKNOWN);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 100, 0, 0, &fault), -EINVAL);
        ck_assert_ptr_nonnull(strstr(fault.text, "start_row"));
        ck_assert_int_eq(scheduler_seek(scheduler, 1, SCHEDULER_EPOCH_MAX + 1, 0, 0, 0, &fault), -EINVAL);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 7, 40, 0, 0, &fault), 0);
        expect_batch(scheduler, 1, 7, 40);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 50, 0, 0, &fault), 0); /* back, unaligned */
        expect_nothing(scheduler);                                              /* it may hold two */
        ck_assert_int_eq(scheduler_release(scheduler, 1, 0, 0), 0);
        expect_batch(scheduler, 2, 0, 50);
        ck_assert_int_eq(scheduler_release(scheduler, 1, 1, 0), 0);
        expect_batch(scheduler, 3, 0, 54);
        scheduler_free(scheduler);
}
END_TEST

static uint32_t minimum_of(const struct scheduler *scheduler, uint32_t job) {
        struct scheduler_job_view view;

        must(scheduler_view_job(scheduler, job, &view) == 0);
        return view.minimum;
}

/* Two jobs of two streams have all they may hold: one batch and `most`. */
static struct scheduler *full_ring(uint32_t slots, uint32_t most) {
        struct scheduler *scheduler = ring(slots, 4, 100);
        struct scheduler_job job = plain_job(1, 1, 100, 4);
        struct scheduler_delivery delivery;

        job.max_held = 1;
        must(scheduler_attach(scheduler, &job, 0, NULL) == 0);
        job = plain_job(2, 2, 100, 4);
        job.max_held = most;
        must(scheduler_attach(scheduler, &job, 0, NULL) == 0);
        for (uint32_t i = 0; i < 1 + most; ++i) {
                fill(scheduler);
                must(scheduler_next_delivery(scheduler, 0, &delivery));
        }
        return scheduler;
}

/* An unaligned row needs more slots, which others hold: the job waits, and gets nothing. */
START_TEST(test_seek_waits) {
        struct scheduler *scheduler = full_ring(6, 4);
        struct fault fault;

        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 42, 0, 0, &fault), SCHEDULER_E_LATER);
        ck_assert_ptr_nonnull(strstr(fault.text, "needs 4 slots"));
        scheduler_set_awaited(scheduler, 4);
        ck_assert_int_eq(scheduler_release(scheduler, 1, 0, 0), 0);
        expect_nothing(scheduler);
        ck_assert_int_eq(scheduler_release(scheduler, 2, 0, 0), 0);
        expect_nothing(scheduler);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 42, 0, 0, &fault), SCHEDULER_E_LATER);
        ck_assert_int_eq(scheduler_release(scheduler, 2, 1, 0), 0);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 42, 1, 0, &fault), SCHEDULER_E_FULL);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 42, 0, 0, &fault), 0);
        scheduler_set_awaited(scheduler, 0);
        ck_assert_uint_eq(minimum_of(scheduler, 1), 4);
        expect_batch(scheduler, 1, 0, 42);
        ck_assert_int_eq(scheduler_detach(scheduler, 2), 0);
        /* it may keep that until it has the next, so that it is still entitled to as many */
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 3, 0, 0, 0, &fault), 0);
        ck_assert_uint_eq(minimum_of(scheduler, 1), 4);
        ck_assert_int_eq(scheduler_release(scheduler, 1, 1, 0), 0);
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 3, 0, 0, 0, &fault), 0);
        ck_assert_uint_eq(minimum_of(scheduler, 1), 2);
        expect_batch(scheduler, 2, 3, 0);
        scheduler_free(scheduler);
}
END_TEST

/* More than the ring has beside what others are entitled to: the job stays and goes on where it was. */
START_TEST(test_seek_refused) {
        struct scheduler *scheduler = full_ring(5, 2);
        struct fault fault;

        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, 42, 0, 0, &fault), SCHEDULER_E_FULL);
        ck_assert_ptr_nonnull(strstr(fault.text, "needs 4 slots"));
        ck_assert_ptr_nonnull(strstr(fault.text, "2 of 5"));
        ck_assert_uint_eq(minimum_of(scheduler, 1), 2);
        ck_assert_int_eq(scheduler_release(scheduler, 1, 0, 0), 0);
        expect_batch(scheduler, 1, 0, 4);
        scheduler_free(scheduler);
}
END_TEST

/* Seven rows of three: each slot several times, leased once it is, free again once all of it is back. */
START_TEST(test_padding) {
        static const struct {
                uint32_t first, rows;
                bool padding;
        } expected[] = {{0, 2, false}, {0, 1, false}, {0, 2, true}, {0, 1, true}, {0, 1, true}};
        struct scheduler *scheduler = ring(4, 2, 3);
        struct scheduler_job job = plain_job(1, 0, 3, 7);
        struct scheduler_delivery delivery;
        struct scheduler_job_view view;

        job.plan.last_batch = LAST_BATCH_PAD;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        ck_assert_uint_eq(minimum_of(scheduler, 1), 4);
        fill(scheduler);
        ck_assert(scheduler_next_delivery(scheduler, 0, &delivery));
        ck_assert_uint_eq(delivery.n_segments, 5);
        for (uint32_t i = 0; i < 5; ++i) {
                ck_assert_uint_eq(delivery.segments[i].first, expected[i].first);
                ck_assert_uint_eq(delivery.segments[i].rows, expected[i].rows);
                ck_assert_int_eq(delivery.segments[i].padding, expected[i].padding);
                ck_assert_uint_eq(delivery.segments[i].slot, delivery.segments[i % 2].slot);
        }
        scheduler_view_job(scheduler, 1, &view);
        ck_assert_uint_eq(view.leased, 2);
        ck_assert_int_eq(scheduler_release(scheduler, 1, 0, 0), 0);
        scheduler_view_job(scheduler, 1, &view);
        ck_assert_uint_eq(view.leased, 0);
        scheduler_free(scheduler);
}
END_TEST

/* Two jobs so far apart that the batches between them leave 64 bits: the slot of the one is what the other
 * uses last, and looking for it ends. */
START_TEST(test_far_apart) {
        struct scheduler *scheduler = ring(4, 1, POSITION_SAMPLES_MAX);
        struct scheduler_job job = plain_job(1, 0, POSITION_SAMPLES_MAX, 1);

        job.start_epoch = SCHEDULER_EPOCH_MAX;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        expect_batch(scheduler, 0, SCHEDULER_EPOCH_MAX, 0);
        job.id = 2;
        job.start_epoch = 0;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        ck_assert_int_eq(scheduler_detach(scheduler, 1), 0);
        for (uint64_t i = 0; i < 10; ++i) {
                expect_batch(scheduler, i, 0, i);
                ck_assert_int_eq(scheduler_release(scheduler, 2, i, 0), 0);
        }
        scheduler_free(scheduler);
}
END_TEST

START_TEST(test_lost_chunk) {
        struct scheduler *scheduler = ring(2, 4, 8);
        struct scheduler_job job = plain_job(1, 0, 8, 4);
        struct scheduler_chunk first, second, again;
        struct scheduler_slot_view view;

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        ck_assert(scheduler_next_chunk(scheduler, 2, 1, &first));
        ck_assert(scheduler_next_chunk(scheduler, 1, 1, &second));
        ck_assert_int_eq(scheduler_chunk_lost(scheduler, first.slot, first.first, first.rows), 0);
        scheduler_view_slot(scheduler, first.slot, &view);
        ck_assert_int_eq(view.state, SCHEDULER_SLOT_FILLING);
        ck_assert_int_eq(scheduler_chunk_lost(scheduler, first.slot, first.first, first.rows),
                         SCHEDULER_E_UNKNOWN);
        ck_assert_int_eq(scheduler_chunk_done(scheduler, second.slot, second.first, second.rows), 0);
        scheduler_view_slot(scheduler, first.slot, &view);
        ck_assert_int_eq(view.state, SCHEDULER_SLOT_FREE);
        ck_assert(scheduler_next_chunk(scheduler, 2, 1, &again));
        ck_assert_uint_eq(again.row, 0);
        scheduler_free(scheduler);
}
END_TEST

static void expect_chunk(struct scheduler *scheduler, uint32_t wanted, uint32_t first, uint32_t rows) {
        struct scheduler_chunk chunk;

        ck_assert(scheduler_next_chunk(scheduler, wanted, 1, &chunk));
        ck_assert_uint_eq(chunk.slot, 0);
        ck_assert_uint_eq(chunk.first, first);
        ck_assert_uint_eq(chunk.rows, rows);
        ck_assert_uint_eq(chunk.row, first);
}

START_TEST(test_split) {
        struct scheduler *scheduler = ring(2, 16, 32);
        struct scheduler_job job = plain_job(1, 0, 32, 16);
        struct scheduler_slot_view view;

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        expect_chunk(scheduler, 6, 0, 6);
        expect_chunk(scheduler, 4, 6, 4);
        ck_assert_int_eq(scheduler_chunk_split(scheduler, 0, 0, 6, 6, false), SCHEDULER_E_UNKNOWN);
        ck_assert_int_eq(scheduler_chunk_split(scheduler, 0, 0, 5, 0, false), SCHEDULER_E_UNKNOWN);
        ck_assert_int_eq(scheduler_chunk_split(scheduler, 0, 0, 6, 2, true),
                         0); /* 2 is out, 3 to 5 are back */
        expect_chunk(scheduler, 1, 3, 1);
        ck_assert_int_eq(scheduler_chunk_split(scheduler, 0, 3, 1, 0, false), 0);
        expect_chunk(scheduler, 2, 3, 2);
        ck_assert_int_eq(scheduler_chunk_split(scheduler, 0, 6, 4, 0, false),
                         0); /* joins 10 to 15 and row 5 */
        expect_chunk(scheduler, 100, 5, 11);
        ck_assert_int_eq(scheduler_chunk_done(scheduler, 0, 5, 11), 0);
        ck_assert_int_eq(scheduler_chunk_done(scheduler, 0, 3, 2), 0);
        ck_assert_int_eq(scheduler_chunk_split(scheduler, 0, 2, 1, 0, true), 0); /* again */
        scheduler_view_slot(scheduler, 0, &view);
        ck_assert_int_eq(view.state, SCHEDULER_SLOT_FILLING);
        ck_assert_uint_eq(view.rows_done, 15);
        ck_assert_int_eq(scheduler_chunk_done(scheduler, 0, 2, 1), 0);
        scheduler_view_slot(scheduler, 0, &view);
        ck_assert_int_eq(view.state, SCHEDULER_SLOT_READY);
        scheduler_free(scheduler);
}
END_TEST

/* Takes a chunk of one row per letter; then they are done ('d') or come back undone ('b'). */
static void leave_ranges(struct scheduler *scheduler, const char *back) {
        struct scheduler_chunk out[8];

        for (uint32_t i = 0; back[i]; ++i)
                ck_assert(scheduler_next_chunk(scheduler, 1, 0, &out[i]));
        for (uint32_t i = 0; back[i]; ++i)
                ck_assert_int_eq(
                        back[i] == 'b'
                                ? scheduler_chunk_split(scheduler, out[i].slot, out[i].first, 1, 0, false)
                                : scheduler_chunk_done(scheduler, out[i].slot, out[i].first, 1),
                        0);
}

/* Four chunks at most, hence ten entries; three ranges take three of them. Two long chunks and what becomes
 * of them fit beside, a third would not. */
START_TEST(test_full_pool) {
        struct scheduler *scheduler = ring(8, 16, 64);
        struct scheduler_job job = plain_job(1, 1, 64, 16);
        struct scheduler_chunk chunk, out[8];
        struct scheduler_delivery delivery;
        struct scheduler_counters counters;
        uint32_t n = 0;

        chunks_init(scheduler, 4);
        job.max_held = 1;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        ck_assert(scheduler_next_chunk(scheduler, 16, 0, &chunk));
        ck_assert_int_eq(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows), 0);
        ck_assert(scheduler_next_delivery(scheduler, 0, &delivery)); /* all else is prefetch, and can wait */
        leave_ranges(scheduler, "bdbd");                             /* rows 0 and 2 */
        leave_ranges(scheduler, "bbbd");                             /* rows 0, 2 and 4 */
        job.id = job.seed = 2;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        while (n < 8 && scheduler_next_chunk(scheduler, 3, 0, &out[n]))
                ++n;
        for (uint32_t i = 0; i < n; ++i)
                ck_assert_int_eq(scheduler_chunk_split(scheduler, out[i].slot, out[i].first, 3, 1, true), 0);
        ck_assert_uint_eq(n, 2);
        for (uint32_t i = 0; i < n; ++i)
                ck_assert_int_eq(scheduler_chunk_done(scheduler, out[i].slot, out[i].first + 1, 1), 0);
        while (scheduler_next_chunk(scheduler, 16, 1, &chunk))
                ck_assert_int_eq(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows), 0);
        scheduler_counters(scheduler, &counters);
        ck_assert_uint_eq(counters.rows_prepared, 8 * 16); /* the whole ring */
        ck_assert(scheduler_next_delivery(scheduler, 0, &delivery));
        ck_assert_uint_eq(delivery.job, 2);
        scheduler_free(scheduler);
}
END_TEST

START_TEST(test_quarantine) {
        struct scheduler *scheduler = ring(3, 4, 8);
        struct scheduler_job job = plain_job(1, 0, 8, 4);
        struct scheduler_chunk stuck, other, again;
        struct scheduler_slot_view view;
        struct fault fault;

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        ck_assert(scheduler_next_chunk(scheduler, 2, 1, &stuck));
        ck_assert(scheduler_next_chunk(scheduler, 2, 1, &other));
        ck_assert_int_eq(scheduler_slot_return(scheduler, stuck.slot), SCHEDULER_E_UNKNOWN);
        ck_assert_int_eq(scheduler_slot_quarantine(scheduler, stuck.slot), 0);
        ck_assert_int_eq(scheduler_chunk_lost(scheduler, stuck.slot, stuck.first, stuck.rows), 0);
        ck_assert_uint_eq(scheduler_capacity(scheduler), 2);
        scheduler_view_slot(scheduler, stuck.slot, &view);
        ck_assert_int_eq(view.state, SCHEDULER_SLOT_QUARANTINED);
        ck_assert_int_eq(scheduler_slot_quarantine(scheduler, other.slot), 0); /* the other one, too */
        ck_assert_int_eq(scheduler_chunk_lost(scheduler, other.slot, other.first, other.rows), 0);
        ck_assert_uint_eq(scheduler_capacity(scheduler), 2);
        ck_assert(scheduler_next_chunk(scheduler, 4, 1, &again)); /* from the first row, elsewhere */
        ck_assert_uint_eq(again.row, 0);
        ck_assert_uint_ne(again.slot, stuck.slot);
        job.id = 2;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), SCHEDULER_E_FULL);
        ck_assert_ptr_nonnull(strstr(fault.text, "2 of 2 (1 more in quarantine"));
        ck_assert_int_eq(scheduler_slot_return(scheduler, stuck.slot), 0);
        ck_assert_uint_eq(scheduler_capacity(scheduler), 2);
        ck_assert_int_eq(scheduler_slot_return(scheduler, stuck.slot), 0);
        ck_assert_uint_eq(scheduler_capacity(scheduler), 3);
        scheduler_view_slot(scheduler, stuck.slot, &view);
        ck_assert_int_eq(view.state, SCHEDULER_SLOT_FREE);
        scheduler_free(scheduler);
}
END_TEST

static const struct {
        uint32_t slots, jobs, seeds, quarantined;
} short_rings[] = {
        {4, 2, 2, 1}, /* one slot each, and one for whose turn it is */
        {8, 4, 4, 3}, /* the same */
        {8, 4, 1, 6}, /* together in one stream: what they share, and the next */
        {16, 8, 1, 14},
};

/* Jobs that give a batch back only when they have the next, in a ring that becomes too small for them when
 * each has got one. */
START_TEST(test_short_ring) {
        struct scheduler *scheduler = ring(short_rings[_i].slots, 4, 64);
        struct scheduler_delivery delivery;
        struct scheduler_chunk chunk;
        uint64_t least = 1000, got[8] = {0};

        for (uint32_t i = 0; i < short_rings[_i].jobs; ++i) {
                struct scheduler_job job = plain_job(i, i % short_rings[_i].seeds, 64, 4);

                job.max_held = 2;
                must(scheduler_attach(scheduler, &job, 0, NULL) == 0);
        }
        for (uint32_t n = 0; n < short_rings[_i].jobs;) {
                if (scheduler_next_delivery(scheduler, 0, &delivery) && ++n > 0)
                        continue;
                must(scheduler_next_chunk(scheduler, 4, 1, &chunk));
                must(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows) == 0);
        }
        for (uint32_t i = 0; i < short_rings[_i].quarantined; ++i) { /* a worker gets stuck in each */
                must(scheduler_next_chunk(scheduler, 1, 1, &chunk));
                must(scheduler_slot_quarantine(scheduler, chunk.slot) == 0);
                must(scheduler_chunk_lost(scheduler, chunk.slot, chunk.first, chunk.rows) == 0);
        }
        for (uint32_t step = 0; step < 4000; ++step) {
                if (scheduler_next_delivery(scheduler, 0, &delivery)) {
                        got[delivery.job] = delivery.number + 1;
                        if (delivery.number > 0)
                                must(scheduler_release(scheduler, delivery.job, delivery.number - 1, 0) == 0);
                } else if (scheduler_next_chunk(scheduler, 4, 1, &chunk)) {
                        must(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows) == 0);
                }
        }
        for (uint32_t i = 0; i < short_rings[_i].jobs; ++i)
                least = got[i] < least ? got[i] : least;
        printf("# %u jobs of %u seeds, %u of %u slots in quarantine: at least %llu batches each\n",
               short_rings[_i].jobs, short_rings[_i].seeds, short_rings[_i].quarantined,
               short_rings[_i].slots, (unsigned long long)least);
        ck_assert_uint_ge(least, 100);
        scheduler_free(scheduler);
}
END_TEST

START_TEST(test_admission) {
        struct scheduler *scheduler = ring(5, 64, 1000);
        struct scheduler_job job = plain_job(1, 0, 1000, 64);
        struct fault fault;

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), 0);
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), -EINVAL);
        job.id = 2;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), 0);
        job.id = 3;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), SCHEDULER_E_FULL);
        ck_assert_ptr_nonnull(strstr(fault.text, "needs 2 slots"));
        ck_assert_ptr_nonnull(strstr(fault.text, "4 of 5"));
        ck_assert_ptr_nonnull(strstr(fault.text, "at least 6 slots"));
        job.max_held = 0;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), -EINVAL);
        job = plain_job(3, 0, 999, 64);
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), -EINVAL);
        job = plain_job(3, 0, 1000, 64);
        job.start_row = 1000;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), -EINVAL);
        scheduler_free(scheduler);
}
END_TEST

/* Two jobs hold all they may, more than they are entitled to: the third has to wait, but not for ever. */
START_TEST(test_admission_waits_for_what_others_hold) {
        struct scheduler *scheduler = ring(8, 64, 6400);
        struct scheduler_job job = plain_job(1, 0, 6400, 64);
        struct scheduler_delivery delivery;
        struct scheduler_chunk chunk;
        uint64_t held[3] = {};
        struct fault fault;

        job.max_held = 4;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), 0);
        job.id = 2;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), 0);
        while (scheduler_next_chunk(scheduler, 64, 1, &chunk))
                ck_assert_int_eq(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows), 0);
        while (scheduler_next_delivery(scheduler, 1, &delivery))
                ++held[delivery.job];
        ck_assert_uint_eq(held[1] + held[2], 8);
        job.id = 3;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), SCHEDULER_E_LATER);
        ck_assert_ptr_nonnull(strstr(fault.text, "hold or need 8 of 8"));
        scheduler_set_awaited(scheduler, 2);
        ck_assert_int_eq(scheduler_release(scheduler, 1, 0, 2), 0);
        ck_assert(!scheduler_next_delivery(scheduler, 2, &delivery)); /* it would be a fourth lease */
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), SCHEDULER_E_LATER);
        ck_assert_int_eq(scheduler_release(scheduler, 2, 0, 2), 0);
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), 0);
        scheduler_free(scheduler);
}
END_TEST

/* All that the scheduler gives this job now, of slots that are filled as they are asked for. */
static uint32_t take_all(struct scheduler *scheduler, uint32_t job) {
        struct scheduler_delivery delivery;
        struct scheduler_chunk chunk;
        uint32_t n = 0;

        while (scheduler_next_chunk(scheduler, 64, 1, &chunk))
                must(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows) == 0);
        while (scheduler_next_delivery(scheduler, 1, &delivery)) {
                must(delivery.job == job);
                ++n;
        }
        return n;
}

/* A job that does not read holds its minimum, whatever room there is and whatever it gives back, so that
 * others find theirs at once; from its first question on it has what it may hold. */
START_TEST(test_unread) {
        struct scheduler *scheduler = ring(8, 64, 6400);
        struct scheduler_job job = plain_job(0, 0, 6400, 64);
        struct scheduler_job_view view;

        job.max_held = 4;
        job.unread = true;
        for (job.id = 1; job.id <= 3; ++job.id) {
                job.seed = job.id;
                ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
                ck_assert_uint_eq(take_all(scheduler, job.id), 2);
        }
        ck_assert_int_eq(scheduler_release(scheduler, 1, 0, 2), 0);
        ck_assert_uint_eq(take_all(scheduler, 1), 1);
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        scheduler_read(scheduler, 4);
        ck_assert_uint_eq(take_all(scheduler, 4), 2); /* there are no more */
        ck_assert_int_eq(scheduler_detach(scheduler, 1), 0);
        ck_assert_uint_eq(take_all(scheduler, 4), 2);
        ck_assert_int_eq(scheduler_detach(scheduler, 4), 0);
        ck_assert_uint_eq(take_all(scheduler, 2), 0);
        scheduler_view_job(scheduler, 2, &view);
        ck_assert(view.unread && !view.waiting && view.leased == 2);
        scheduler_read(scheduler, 2);
        ck_assert_uint_eq(take_all(scheduler, 2), 2);
        scheduler_view_job(scheduler, 2, &view);
        ck_assert(!view.unread && view.leased == 4);
        scheduler_free(scheduler);
}
END_TEST

START_TEST(test_bad_config) {
        const struct scheduler_config bad[] = {
                {0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {SCHEDULER_SLOTS_MAX + 1, 1, 1}};
        struct scheduler *scheduler;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
                ck_assert_int_eq(scheduler_new(&scheduler, &bad[i]), -EINVAL);
        ck_assert_ptr_null(scheduler_free(NULL));
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ /* which ends the process instead */
START_TEST(test_no_memory) {
        struct scheduler *scheduler = ring(1 << 16, 1, 1 << 20);
        struct rlimit before, limit;
        struct scheduler_job job = plain_job(0, 0, 1 << 20, 1);
        struct fault fault;
        uint32_t jobs = 0;
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        int r;

        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fscanf(file, "%ld", &pages), 1);
        fclose(file);
        ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
        limit = before;
        limit.rlim_cur = (rlim_t)pages * 4096 + (8 << 20);
        job.max_held = SCHEDULER_HELD_MAX;
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
        while ((r = scheduler_attach(scheduler, &job, 0, &fault)) == 0 && jobs++ < 100)
                ++job.id;
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
        ck_assert_int_eq(r, -ENOMEM);
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, &fault), 0);
        scheduler_free(scheduler);
}
END_TEST
#endif

/* ---- throughput ---- */

static const struct {
        const char *name;
        uint32_t slots, jobs, seeds, max_held, hold, apart;
        uint64_t samples;
        uint32_t world_size, lookahead;
} loads[] = {
        {"one job, 8 slots", 8, 1, 1, 3, 1, 0, 100000, 1, UINT32_MAX},
        {"four jobs on one stream, 8 slots", 8, 4, 1, 2, 1, 0, 100000, 1, UINT32_MAX},
        {"four ranks of four, 32 slots", 32, 4, 1, 2, 1, 0, 100000, 4, 1},
        {"one job that may hold 1000 of 1002 slots and holds 900", 1002, 1, 1, 1000, 900, 0, 100000, 1,
         UINT32_MAX},
        {"one job, 1000 slots", 1000, 1, 1, 2, 1, 0, 100000, 1, UINT32_MAX},
        {"three streams, 1000 slots", 1000, 3, 3, 2, 1, 0, 100000, 1, UINT32_MAX},
        {"two jobs far apart in one stream, 1000 slots", 1000, 2, 1, 2, 1, 3, 100000, 1, UINT32_MAX},
        {"an epoch is one slot of 1000, lookahead 1", 1000, 2, 2, 2, 1, 0, 32, 1, 1},
};

/* The ring is always filled as far as it goes. A batch is released when `hold` - 1 later ones of its job have
 * come. */
START_TEST(test_throughput) {
        struct scheduler *scheduler = ring(loads[_i].slots, 32, loads[_i].samples);
        struct scheduler_delivery delivery;
        struct scheduler_chunk chunk;
        uint64_t begun = clock_ns(), batches = 0, events = 0;
        double seconds;

        for (uint32_t i = 0; i < loads[_i].jobs; ++i) {
                struct scheduler_job job = plain_job(i, i % loads[_i].seeds, loads[_i].samples, 32);

                job.plan.world_size = loads[_i].world_size;
                job.plan.rank = i % loads[_i].world_size;
                job.lookahead = loads[_i].lookahead;
                job.max_held = loads[_i].max_held;
                job.start_epoch = i * loads[_i].apart;
                ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        }
        while (batches < 200000) {
                while (scheduler_next_chunk(scheduler, 32, 1, &chunk)) {
                        must(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows) == 0);
                        ++events;
                }
                must(scheduler_next_delivery(scheduler, 0, &delivery));
                ++batches;
                if (delivery.number + 1 < loads[_i].hold)
                        continue;
                must(scheduler_release(scheduler, delivery.job, delivery.number + 1 - loads[_i].hold, 0) ==
                     0);
                ++events;
        }
        seconds = (double)(clock_ns() - begun) / 1e9;
        printf("# %s: %.2f million events/s, %.2f us a batch\n", loads[_i].name,
               (double)(events + batches) / seconds / 1e6, seconds * 1e6 / (double)batches);
        scheduler_free(scheduler);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("scheduler");
        TCase *lives = tcase_create("lives"), *steps = tcase_create("steps");

        tcase_set_timeout(lives, 240);
        tcase_add_test(lives, test_random_lives);
        tcase_add_test(lives, test_steady_lives);
        tcase_add_loop_test(lives, test_rule_left_out, 0, sizeof(rules) / sizeof(rules[0]));
        tcase_add_loop_test(lives, test_policy_left_out, 0, sizeof(policies) / sizeof(policies[0]));
        tcase_add_loop_test(lives, test_throughput, 0, sizeof(loads) / sizeof(loads[0]));
        suite_add_tcase(s, lives);
        tcase_set_timeout(steps, 60);
        tcase_add_test(steps, test_minimum);
        tcase_add_test(steps, test_minimum_usual);
        tcase_add_test(steps, test_sharing);
        tcase_add_test(steps, test_chunk_sizes);
        tcase_add_test(steps, test_epoch_border);
        tcase_add_test(steps, test_parked);
        tcase_add_test(steps, test_lookahead);
        tcase_add_test(steps, test_seek);
        tcase_add_test(steps, test_seek_waits);
        tcase_add_test(steps, test_seek_refused);
        tcase_add_test(steps, test_padding);
        tcase_add_test(steps, test_far_apart);
        tcase_add_test(steps, test_lost_chunk);
        tcase_add_test(steps, test_split);
        tcase_add_test(steps, test_full_pool);
        tcase_add_test(steps, test_quarantine);
        tcase_add_loop_test(steps, test_short_ring, 0, sizeof(short_rings) / sizeof(short_rings[0]));
        tcase_add_test(steps, test_admission);
        tcase_add_test(steps, test_admission_waits_for_what_others_hold);
        tcase_add_test(steps, test_unread);
        tcase_add_test(steps, test_bad_config);
#ifndef __SANITIZE_ADDRESS__
        tcase_add_test(steps, test_no_memory);
#endif
        suite_add_tcase(s, steps);
        return s;
}

int main(void) {
        return run_suite(suite());
}
