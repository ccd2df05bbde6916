/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What holds a pipeline back: a table of situations and what must be said of them; and the differences of
 * counters that such facts are made of.
 */

#include "base/clock.h"
#include "daemon/diagnosis.h"
#include "daemon/recent.h"
#include "tests/support/run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One job that waits, two workers of `cpus` on two CPUs, eight slots: what situations are made of. */
static struct diagnosis_facts ordinary(void) {
        return (struct diagnosis_facts){.stage = DIAGNOSIS_READY,
                                        .seconds = 5,
                                        .workers = 2,
                                        .workers_alive = 2,
                                        .cpus = 2,
                                        .slots = 8,
                                        .jobs = 1,
                                        .sample_timeout = 60,
                                        .got = 100,
                                        .wanted = 100};
}

static struct diagnosis_job job(uint32_t id, const char *name, double waited) {
        struct diagnosis_job made = {.id = id, .pid = 77, .waited = waited, .max_held = 4};

        snprintf(made.name, sizeof(made.name), "%s", name);
        return made;
}

/* A job waits, and the workers are as busy as said. */
static struct diagnosis_facts waiting(double busy) {
        struct diagnosis_facts facts = ordinary();

        facts.busy = facts.busy_cpus = busy;
        facts.waiting = 1;
        facts.waiter = job(1, "train.py", 0.9);
        return facts;
}

/* Case N2: four workers need 40 ms for a batch, the job 1 ms. It gets 100 batches a second, has none in its
 * hands for 0.9 of the time, and could use 1,000. */
static struct diagnosis_facts producer_bound(void) {
        struct diagnosis_facts facts = waiting(4);

        facts.workers = facts.workers_alive = 4;
        facts.workers_given = true;
        facts.wanted = 1000;
        return facts;
}

static struct diagnosis_facts brought(void) {
        struct diagnosis_facts facts = producer_bound();

        facts.brought = true;
        return facts;
}

static struct diagnosis_facts cpu_bound(void) {
        struct diagnosis_facts facts = waiting(2);

        facts.computing = 0.97;
        facts.waiting = 3;
        facts.wanted = 290;
        return facts;
}

static struct diagnosis_facts sleepers_by_cpus(void) {
        struct diagnosis_facts facts = waiting(1.94);

        facts.wanted = 300;
        return facts;
}

static struct diagnosis_facts greedy(void) {
        struct diagnosis_facts facts = producer_bound();

        facts.wanted = 1e6;
        return facts;
}

static struct diagnosis_facts never_empty_handed(void) {
        struct diagnosis_facts facts = producer_bound();

        facts.wanted = facts.got;
        return facts;
}

/* The other pipeline has nearly all CPUs. */
static struct diagnosis_facts other_pipeline(void) {
        struct diagnosis_facts facts = waiting(0.3);

        facts.busy_cpus = 2;
        return facts;
}

/* The same with workers of its own: they do not wait for CPUs of the budget. */
static struct diagnosis_facts other_pipeline_own_workers(void) {
        struct diagnosis_facts facts = other_pipeline();

        facts.workers_given = true;
        return facts;
}

static struct diagnosis_facts no_workers(void) {
        struct diagnosis_facts facts = waiting(0);

        facts.workers_alive = 0;
        return facts;
}

static struct diagnosis_facts keeper_and_waiter(void) {
        struct diagnosis_facts facts = waiting(0.5);

        facts.jobs = 2;
        facts.leased = 5;
        facts.keeper = job(4, "train.py", 0);
        facts.keeper.idle = 12;
        facts.keeper.held = facts.keeper.leased = 4;
        return facts;
}

/* The same, but the workers are the limit whatever it keeps. */
static struct diagnosis_facts keeper_and_busy_workers(void) {
        struct diagnosis_facts facts = keeper_and_waiter();

        facts.busy = 2;
        return facts;
}

/* It keeps one slot of five that are held: it is not what makes the other wait. */
static struct diagnosis_facts small_keeper(void) {
        struct diagnosis_facts facts = keeper_and_waiter();

        facts.keeper.held = facts.keeper.leased = 1;
        return facts;
}

static struct diagnosis_facts keeper_alone(void) {
        struct diagnosis_facts facts = keeper_and_waiter();

        facts.jobs = 1;
        facts.waiting = 0;
        facts.got = facts.wanted = 0;
        facts.data_waited = 1;
        return facts;
}

/* A long step, but not that long. */
static struct diagnosis_facts slow_trainer(void) {
        struct diagnosis_facts facts = keeper_alone();

        facts.keeper.idle = 3;
        return facts;
}

/* One job is stopped, the other is as fast as it wants to be. */
static struct diagnosis_facts keeper_hurts_nobody(void) {
        struct diagnosis_facts facts = keeper_and_waiter();

        facts.waiting = 0;
        facts.data_waited = 1;
        return facts;
}

/* Two jobs in lockstep: one takes its time, the other waits for it. */
static struct diagnosis_facts slow_in_lockstep(void) {
        struct diagnosis_facts facts = ordinary();

        facts.jobs = 2;
        facts.data_waited = 0.9;
        facts.pacer = job(3, "slow.py", 0);
        facts.led = 0.61;
        facts.lead = facts.max_lead = 2048;
        facts.lag_timeout = 30;
        return facts;
}

/* The ring has no room for what is configured. */
static struct diagnosis_facts lockstep_in_a_small_ring(void) {
        struct diagnosis_facts facts = slow_in_lockstep();

        facts.lead = 512;
        return facts;
}

static struct diagnosis_facts lockstep_without_max_lead(void) {
        struct diagnosis_facts facts = slow_in_lockstep();

        facts.max_lead = 0;
        return facts;
}

/* It stands still: nobody may say that nobody waits for it. */
static struct diagnosis_facts stopped_in_lockstep(void) {
        struct diagnosis_facts facts = slow_in_lockstep();

        facts.led = 1;
        facts.got = facts.wanted = 0;
        facts.pacer.idle = 12;
        facts.keeper = facts.pacer;
        facts.keeper.held = facts.keeper.leased = 4;
        return facts;
}

/* The last one waits for the workers. */
static struct diagnosis_facts lockstep_and_busy_workers(void) {
        struct diagnosis_facts facts = slow_in_lockstep();

        facts.busy = 2;
        facts.waiting = 1;
        facts.waiter = facts.pacer;
        facts.waiter.waited = 0.9;
        return facts;
}

/* The last one waits for data, and not for workers. */
static struct diagnosis_facts lockstep_and_a_ring_too_small(void) {
        struct diagnosis_facts facts = lockstep_and_busy_workers();

        facts.busy = 1;
        return facts;
}

static struct diagnosis_facts gathering(void) {
        struct diagnosis_facts facts = ordinary();

        facts.jobs = facts.gathering = 2;
        facts.gather = 4;
        facts.gather_come = 2;
        facts.gather_seconds = 41;
        facts.got = facts.wanted = 0;
        return facts;
}

static struct diagnosis_facts gathering_alone(void) {
        struct diagnosis_facts facts = gathering();

        facts.jobs = facts.gathering = facts.gather_come = 1;
        facts.gather = 2;
        return facts;
}

/* Known at once: nothing has to be averaged for it. */
static struct diagnosis_facts a_rank_is_missing(void) {
        struct diagnosis_facts facts = ordinary();

        facts.seconds = 0;
        facts.jobs = facts.expecting = 3;
        snprintf(facts.missing, sizeof(facts.missing), "rank 2 of group run");
        facts.expecting_seconds = 268;
        facts.got = facts.wanted = 0;
        return facts;
}

static struct diagnosis_facts a_rank_is_missing_for_ever(void) {
        struct diagnosis_facts facts = a_rank_is_missing();

        facts.expecting = 1;
        facts.expecting_seconds = -1;
        return facts;
}

/* Another job of the pipeline has begun, and its workers are too few. */
static struct diagnosis_facts gathering_beside_a_waiter(void) {
        struct diagnosis_facts facts = gathering();

        facts.jobs = 3;
        facts.busy = 2;
        facts.waiting = 1;
        facts.waiter = job(1, "train.py", 0.9);
        return facts;
}

static struct diagnosis_facts gathering_beside_a_small_ring(void) {
        struct diagnosis_facts facts = gathering_beside_a_waiter();

        facts.busy = 1;
        return facts;
}

static struct diagnosis_facts small_ring(void) {
        struct diagnosis_facts facts = waiting(1);

        facts.slots = 2;
        facts.leased = 0.8;
        return facts;
}

/* What a single job holds is what was prepared ahead for it. */
static struct diagnosis_facts single_holder(void) {
        struct diagnosis_facts facts = waiting(1);

        facts.leased = 6;
        return facts;
}

static struct diagnosis_facts gpu_bound(void) {
        struct diagnosis_facts facts = ordinary();

        facts.busy = 0.46;
        facts.data_waited = 0.9;
        return facts;
}

static struct diagnosis_facts in_balance(void) {
        struct diagnosis_facts facts = ordinary();

        facts.busy = 2;
        return facts;
}

static struct diagnosis_facts one_slow_sample(void) {
        struct diagnosis_facts facts = waiting(1.1);

        facts.sample = 812;
        facts.sample_seconds = 12;
        facts.sample_worker = 1;
        facts.sample_pid = 78;
        return facts;
}

/* All samples are slow and go on: it is not this one. */
static struct diagnosis_facts slow_samples(void) {
        struct diagnosis_facts facts = one_slow_sample();

        facts.busy = 2;
        return facts;
}

static struct diagnosis_facts slow_sample_nobody_wants(void) {
        struct diagnosis_facts facts = one_slow_sample();

        facts.waiting = 0;
        return facts;
}

static struct diagnosis_facts storage_hangs(void) {
        struct diagnosis_facts facts = one_slow_sample();

        facts.storage_hangs = true;
        facts.sample_seconds = 31;
        return facts;
}

static struct diagnosis_facts quarantined(void) {
        struct diagnosis_facts facts = waiting(2);

        facts.quarantined = 2;
        return facts;
}

/* One slot of eight is no more than bad luck. */
static struct diagnosis_facts one_quarantined(void) {
        struct diagnosis_facts facts = waiting(2);

        facts.quarantined = 1;
        return facts;
}

static struct diagnosis_facts idle(void) {
        return (struct diagnosis_facts){.stage = DIAGNOSIS_IDLE};
}

static struct diagnosis_facts no_jobs(void) {
        struct diagnosis_facts facts = ordinary();

        facts.jobs = 0;
        return facts;
}

static struct diagnosis_facts early(void) {
        struct diagnosis_facts facts = producer_bound();

        facts.seconds = 0.4;
        return facts;
}

static struct diagnosis_facts reserving(void) {
        return (struct diagnosis_facts){.stage = DIAGNOSIS_RESERVING};
}

static struct diagnosis_facts scanning(void) {
        return (struct diagnosis_facts){.stage = DIAGNOSIS_SCANNING, .files = 12345};
}

static struct diagnosis_facts failed(void) {
        return (struct diagnosis_facts){.stage = DIAGNOSIS_FAILED};
}

static const struct {
        struct diagnosis_facts (*facts)(void);
        enum diagnosis_kind kind;
        uint32_t needed, job;
        const char *text;
} situations[] = {
        {producer_bound, DIAGNOSIS_WORKERS, 40, 0,
         "the workers: 4 of 4 are busy all the time, and job 1 (train.py, pid 77) waits for data 90 % of the "
         "time; raise `workers` (at least 40 are needed)"},
        {brought, DIAGNOSIS_WORKERS, 40, 0, "90 % of the time; raise num_workers (at least 40 are needed)"},
        {cpu_bound, DIAGNOSIS_WORKERS, 6, 0,
         "the workers: 2 of 2 are busy all the time, and 3 jobs wait for data; raise `cpus` if there are "
         "more "
         "(at least 6 are needed)"},
        {sleepers_by_cpus, DIAGNOSIS_WORKERS, 6, 0,
         "the workers: 2 of 2 are busy 97 % of the time, and job 1 (train.py, pid 77) waits for data 90 % of "
         "the time; set `workers` or raise `cpus` (at least 6 are needed)"},
        {greedy, DIAGNOSIS_WORKERS, 1025, 0, "(data are taken as fast as they come)"},
        {never_empty_handed, DIAGNOSIS_WORKERS, 0, 0, "90 % of the time; raise `workers`"},
        {other_pipeline, DIAGNOSIS_WORKERS, 0, 0, "all 2 `cpus` are busy, but only 0.3 of them here"},
        {other_pipeline_own_workers, DIAGNOSIS_RING, 0, 0, "the ring: 8 slots"},
        {no_workers, DIAGNOSIS_WORKERS, 0, 0, "none of 2 is there"},
        {keeper_and_waiter, DIAGNOSIS_JOB, 0, 4,
         "job 4 (train.py, pid 77): it holds 4 batches in 4 of 8 slots and has given none back for 12 s; job "
         "1 "
         "(train.py, pid 77) waits for data 90 % of the time: lower its `max_held_batches` or raise `slots`"},
        {keeper_and_busy_workers, DIAGNOSIS_WORKERS, 0, 0, "the workers: 2 of 2"},
        {small_keeper, DIAGNOSIS_HELD, 0, 0,
         "held batches: jobs hold 5.0 of 8 slots, so that little is prepared ahead; job 1 (train.py, pid 77) "
         "waits for data 90 % of the time while workers are busy 25 % of the time: raise `slots` (16, say) "
         "or "
         "lower `max_held_batches`"},
        {keeper_alone, DIAGNOSIS_JOB, 0, 4, "given none back for 12 s; nobody waits for it"},
        {slow_trainer, DIAGNOSIS_JOBS, 0, 0, "the jobs: data lies ready for them and nobody waits"},
        {keeper_hurts_nobody, DIAGNOSIS_JOBS, 0, 0, "the jobs"},
        {slow_in_lockstep, DIAGNOSIS_LOCKSTEP, 0, 3,
         "job 3 (slow.py, pid 77) sets the pace: in lockstep the others wait for it, 61 % of the time; "
         "`sharing: elastic` lets them go on, and a larger `max_lead` (they are at most 2,048 rows apart) "
         "bridges its pauses"},
        {lockstep_in_a_small_ring, DIAGNOSIS_LOCKSTEP, 0, 3,
         "more `slots` (they are at most 512 rows apart)"},
        {lockstep_without_max_lead, DIAGNOSIS_LOCKSTEP, 0, 3, "more `slots`"},
        {stopped_in_lockstep, DIAGNOSIS_LOCKSTEP, 0, 3,
         "job 3 (slow.py, pid 77) has given no batch back for 12 s: in lockstep the others wait for it, all "
         "the time, until `lag_timeout` (30 s)"},
        {lockstep_and_busy_workers, DIAGNOSIS_WORKERS, 0, 0, "the workers: 2 of 2"},
        {lockstep_and_a_ring_too_small, DIAGNOSIS_RING, 0, 0, "the ring: 8 slots"},
        {gathering, DIAGNOSIS_GATHER, 0, 0,
         "gathering: 2 jobs wait for 2 more to come (gather 4), at most 41 s longer; if they do not come, "
         "attach with a lower `gather` or `gather_timeout_ms`"},
        {a_rank_is_missing, DIAGNOSIS_GATHER, 0, 0,
         "a group that is not complete: 3 jobs wait for rank 2 of group run, at most 268 s longer; start "
         "what "
         "is missing, or attach with the `world_size` that there is"},
        {a_rank_is_missing_for_ever, DIAGNOSIS_GATHER, 0, 0,
         "a group that is not complete: 1 job waits for rank 2 of group run; start"},
        {gathering_alone, DIAGNOSIS_GATHER, 0, 0, "gathering: 1 job waits for 1 more to come (gather 2)"},
        {gathering_beside_a_waiter, DIAGNOSIS_WORKERS, 0, 0, "the workers"},
        {gathering_beside_a_small_ring, DIAGNOSIS_RING, 0, 0, "the ring: 8 slots"},
        {small_ring, DIAGNOSIS_RING, 0, 0,
         "the ring: 2 slots hold too little that is prepared ahead; job 1 (train.py, pid 77) waits for data "
         "90 "
         "% of the time while workers are busy 50 % of the time: raise `slots` (4, say)"},
        {single_holder, DIAGNOSIS_RING, 0, 0, "the ring: 8 slots"},
        {gpu_bound, DIAGNOSIS_JOBS, 0, 0,
         "the jobs: data lies ready for them and nobody waits; workers are busy 23 % of the time"},
        {in_balance, DIAGNOSIS_NOTHING, 0, 0, "nothing: nobody waits for data"},
        {one_slow_sample, DIAGNOSIS_SAMPLE, 0, 0,
         "sample 812: worker 1 (pid 78) has been at it for 12 s, and job 1 (train.py, pid 77) waits for data "
         "90 % of the time; `sample_timeout` (60 s) ends it"},
        {slow_samples, DIAGNOSIS_WORKERS, 0, 0, "the workers"},
        {slow_sample_nobody_wants, DIAGNOSIS_NOTHING, 0, 0, "nothing"},
        {storage_hangs, DIAGNOSIS_STORAGE, 0, 0, "storage hangs: most workers are stuck"},
        {quarantined, DIAGNOSIS_STORAGE, 0, 0, "storage hangs: 2 of 8 slots wait for killed workers"},
        {one_quarantined, DIAGNOSIS_WORKERS, 0, 0, "the workers"},
        {idle, DIAGNOSIS_NOTHING, 0, 0, "nothing: no job is attached"},
        {no_jobs, DIAGNOSIS_NOTHING, 0, 0, "nothing: no job is attached"},
        {early, DIAGNOSIS_NOTHING, 0, 0, "nothing to go by yet"},
        {reserving, DIAGNOSIS_START, 0, 0, "the memory of the ring is being reserved"},
        {scanning, DIAGNOSIS_START, 0, 0, "12,345 files so far"},
        {failed, DIAGNOSIS_START, 0, 0, "it has failed"},
};

START_TEST(test_situations) {
        struct diagnosis_facts facts = situations[_i].facts();
        struct diagnosis diagnosis;

        diagnosis_make(&diagnosis, &facts);
        ck_assert_msg(strstr(diagnosis.text, situations[_i].text) != NULL, "\"%s\" is not in \"%s\"",
                      situations[_i].text, diagnosis.text);
        ck_assert_str_eq(diagnosis_kind_name(diagnosis.kind), diagnosis_kind_name(situations[_i].kind));
        ck_assert_uint_eq(diagnosis.workers_needed, situations[_i].needed);
        ck_assert_uint_eq(diagnosis.job, situations[_i].job);
}
END_TEST

/* Whatever the facts are, the sentence is whole: the longest of each kind has room. */
START_TEST(test_longest_texts) {
        for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++) {
                struct diagnosis_facts facts = situations[i].facts();
                struct diagnosis diagnosis;

                facts.workers += 1000000;
                facts.slots += 1000000;
                memset(facts.waiter.name, 'w', DIAGNOSIS_NAME_MAX);
                memset(facts.keeper.name, 'k', DIAGNOSIS_NAME_MAX);
                memset(facts.pacer.name, 'p', facts.pacer.id > 0 ? DIAGNOSIS_NAME_MAX : 0);
                facts.lead *= UINT32_MAX;
                facts.waiter.id = UINT32_MAX;
                facts.pacer.pid = facts.waiter.pid = facts.keeper.pid = facts.sample_pid = INT32_MAX;
                facts.sample = UINT64_MAX;
                facts.quarantined *= 1000000;
                diagnosis_make(&diagnosis, &facts);
                ck_assert_uint_lt(strlen(diagnosis.text), DIAGNOSIS_TEXT_MAX - 1);
        }
}
END_TEST

/* ---- what counters have grown by ---- */

START_TEST(test_recent) {
        uint64_t values[RECENT_VALUES] = {0}, grown[RECENT_VALUES];
        struct recent recent = {0};

        ck_assert_double_eq(recent_grown(&recent, 5 * NS_PER_S, values, grown), 0);
        for (uint64_t second = 1; second <= 20; second++) {
                values[0] = 100 * second;
                values[1] = second < 10 ? 0 : 7;
                recent_note(&recent, second * NS_PER_S, values);
        }
        values[0] = 2050;
        ck_assert_double_eq(recent_grown(&recent, 20 * NS_PER_S + NS_PER_S / 2, values, grown), 5.5);
        ck_assert_uint_eq(grown[0], 550);
        ck_assert_uint_eq(grown[1], 0);
        values[0] = 1; /* the counter was begun anew */
        ck_assert_double_eq(recent_grown(&recent, 21 * NS_PER_S, values, grown), 6);
        ck_assert_uint_eq(grown[0], 0);
        recent_reset(&recent);
        ck_assert_double_eq(recent_grown(&recent, 30 * NS_PER_S, values, grown), 0);
        recent_note(&recent, 30 * NS_PER_S, values);
        ck_assert_double_eq(recent_grown(&recent, 30 * NS_PER_S, values, grown), 0);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("diagnosis");
        TCase *tests = tcase_create("diagnosis");

        suite_add_tcase(suite, tests);
        tcase_add_loop_test(tests, test_situations, 0, sizeof(situations) / sizeof(situations[0]));
        tcase_add_test(tests, test_longest_texts);
        tcase_add_test(tests, test_recent);
        return run_suite(suite);
}
