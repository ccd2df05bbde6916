/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who begins a chunk: single decisions, what a member can count on, and a long random life of several
 * pipelines in which no place is taken twice, none is left empty, and nobody starves. A pipeline here is a
 * number of workers and one job, which waits for batches of so many chunks. */

#include "daemon/budget.h"
#include "tests/support/run.h"

#include <check.h>
#include <stdlib.h>

enum {
        WORKERS_MAX = 8,
        MEMBERS_MAX = 5,
        DEPTH = 3, /* chunks that a worker of a pipeline with short ones may hold */
        LIFE_EVENTS = 200000,
};

struct pipeline {
        struct budget_member member;
        uint32_t held[WORKERS_MAX]; /* chunks, by worker */
        uint32_t workers;
        uint32_t depth; /* chunks that each may hold */
        bool has_jobs;
        uint64_t use, since_ns; /* of the next chunk */
        uint32_t chunks;        /* that can be had */
        uint32_t given;
        bool *watched; /* set when it is asked for a claim */
};

static uint32_t busy(void *context) {
        const struct pipeline *pipeline = context;
        uint32_t n = 0;

        for (uint32_t i = 0; i < pipeline->workers; i++)
                n += pipeline->held[i] > 0;
        return n;
}

/* The worker that holds fewest, or NULL. */
static uint32_t *free_worker(struct pipeline *pipeline, bool may_begin) {
        uint32_t *best = NULL;

        for (uint32_t i = 0; i < pipeline->workers; i++) {
                uint32_t *held = &pipeline->held[i];

                if (*held < pipeline->depth && (may_begin || *held > 0) && (!best || *held < *best))
                        best = held;
        }
        return best;
}

static bool could(void *context) {
        struct pipeline *pipeline = context;

        return pipeline->has_jobs && free_worker(pipeline, true);
}

static bool claim(void *context, struct budget_claim *claim) {
        struct pipeline *pipeline = context;

        if (pipeline->watched)
                *pipeline->watched = true;
        *claim = (struct budget_claim){pipeline->use, pipeline->since_ns};
        return pipeline->chunks > 0;
}

static bool give(void *context, bool may_begin) {
        struct pipeline *pipeline = context;
        uint32_t *held = free_worker(pipeline, may_begin);

        if (!held || pipeline->chunks == 0)
                return false;
        ++*held;
        pipeline->chunks--;
        pipeline->given++;
        return true;
}

static const struct budget_events events = {.busy = busy, .could = could, .claim = claim, .give = give};

static struct budget budget;
static struct pipeline pipelines[MEMBERS_MAX];

static void begin(uint32_t places, uint32_t n, uint32_t depth) {
        budget_init(&budget, places);
        for (uint32_t i = 0; i < n; i++) {
                pipelines[i] = (struct pipeline){
                        .workers = places, .depth = depth, .has_jobs = true, .chunks = 1000};
                budget_member_init(&pipelines[i].member, &events, &pipelines[i]);
                budget_join(&budget, &pipelines[i].member);
        }
}

static uint32_t all_busy(uint32_t n) {
        uint32_t sum = 0;

        for (uint32_t i = 0; i < n; i++)
                sum += busy(&pipelines[i]);
        return sum;
}

START_TEST(one_pipeline_gets_all_and_is_not_compared) {
        bool watched = false;

        begin(4, 2, DEPTH);
        pipelines[1].has_jobs = false;
        pipelines[0].watched = &watched;
        pipelines[0].chunks = 7;
        budget_share_out(&budget);
        ck_assert_uint_eq(busy(&pipelines[0]), 4);
        ck_assert_uint_eq(pipelines[0].given, 7);
        ck_assert_uint_eq(busy(&pipelines[1]), 0);
        ck_assert(!watched);
}
END_TEST

START_TEST(due_before_ahead_whatever_waited) {
        begin(2, 2, 1);
        pipelines[0].use = 1;
        pipelines[0].since_ns = 1;
        pipelines[1].since_ns = 100;
        budget_share_out(&budget);
        ck_assert_uint_eq(pipelines[0].given, 0);
        ck_assert_uint_eq(pipelines[1].given, 2);
}
END_TEST

START_TEST(who_waited_longest_is_first) {
        begin(3, 3, 1);
        pipelines[0].since_ns = 30;
        pipelines[1].since_ns = 10;
        pipelines[1].chunks = 1;
        pipelines[2].since_ns = 20;
        pipelines[2].chunks = 1;
        budget_share_out(&budget);
        ck_assert_uint_eq(pipelines[1].given, 1);
        ck_assert_uint_eq(pipelines[2].given, 1);
        ck_assert_uint_eq(pipelines[0].given, 1);
}
END_TEST

START_TEST(ahead_by_distance) {
        begin(1, 3, 1);
        pipelines[0].use = 3;
        pipelines[1].use = 2;
        pipelines[2].use = 4;
        budget_share_out(&budget);
        ck_assert_uint_eq(pipelines[1].given, 1);
        ck_assert_uint_eq(all_busy(3), 1);
}
END_TEST

/* A pipeline with short chunks has all places and would be given the next ones for ever. */
START_TEST(workers_run_dry_for_who_is_first) {
        begin(2, 2, DEPTH);
        pipelines[1].has_jobs = false;
        budget_share_out(&budget);
        ck_assert_uint_eq(pipelines[0].given, 2 * DEPTH);

        pipelines[1].has_jobs = true;
        pipelines[0].since_ns = 1;
        for (uint32_t i = 0; i < DEPTH - 1; i++) {
                pipelines[0].held[0]--;
                budget_share_out(&budget);
                ck_assert_uint_eq(pipelines[0].given, 2 * DEPTH);
                ck_assert_uint_eq(pipelines[1].given, 0);
        }
        pipelines[0].held[0]--;
        budget_share_out(&budget);
        ck_assert_uint_eq(busy(&pipelines[0]), 1);
        ck_assert_uint_eq(busy(&pipelines[1]), 1);
}
END_TEST

/* It is not first: it keeps its places busy. */
START_TEST(who_is_first_is_topped_up) {
        begin(2, 2, DEPTH);
        pipelines[1].has_jobs = false;
        budget_share_out(&budget);
        pipelines[1].has_jobs = true;
        pipelines[1].since_ns = 1;
        pipelines[0].held[0]--;
        budget_share_out(&budget);
        ck_assert_uint_eq(pipelines[0].given, 2 * DEPTH + 1);
        ck_assert_uint_eq(pipelines[1].given, 0);
}
END_TEST

START_TEST(who_joins_with_too_many_begins_nothing) {
        begin(2, 2, 1);
        budget_leave(&pipelines[1].member);
        pipelines[1].workers = 4;
        for (uint32_t i = 0; i < 4; i++)
                pipelines[1].held[i] = 1;
        budget_share_out(&budget);
        ck_assert_uint_eq(busy(&pipelines[0]), 2);

        budget_join(&budget, &pipelines[1].member);
        budget_join(&budget, &pipelines[1].member);
        pipelines[0].held[0] = 0;
        for (uint32_t i = 0; i < 3; i++) {
                budget_share_out(&budget);
                ck_assert_uint_eq(busy(&pipelines[0]), 1);
                pipelines[1].held[i] = 0;
        }
        budget_share_out(&budget);
        ck_assert_uint_eq(all_busy(2), 2);
}
END_TEST

/* ---- what a member can count on ---- */

static double share_of_first(double b, double c) {
        begin(8, 3, 1);
        pipelines[1].member.lately = b;
        pipelines[2].member.lately = c;
        return budget_share(&budget, &pipelines[0].member);
}

START_TEST(share_is_what_others_leave_and_an_equal_part_at_least) {
        static const struct {
                double b, c, share;
        } cases[] = {
                {0, 0, 8},       /* alone, also beside one that rests */
                {4, 0, 4},       /* two that divide it */
                {8, 0, 4},       /* it has just come, and will get half */
                {1, 0, 7},       /* the other one needs little */
                {2.5, 2.5, 3},   /* what is left is more than a third */
                {4, 4, 8.0 / 3}, /* a third is more than what is left */
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
                ck_assert_double_eq_tol(share_of_first(cases[i].b, cases[i].c), cases[i].share, 1e-9);
}
END_TEST

/* What it takes itself is no matter, nor does one count that has left. */
START_TEST(share_is_of_the_members) {
        begin(8, 2, 1);
        pipelines[0].member.lately = 8;
        pipelines[1].member.lately = 4;
        ck_assert_double_eq_tol(budget_share(&budget, &pipelines[0].member), 4, 1e-9);
        budget_leave(&pipelines[1].member);
        ck_assert_double_eq_tol(budget_share(&budget, &pipelines[0].member), 8, 1e-9);
}
END_TEST

/* However what the other took goes up and down a little, this goes no further. */
START_TEST(share_does_not_flutter) {
        for (double lately = 0.1; lately < 8; lately += 0.1) {
                double change = share_of_first(lately + 0.1, 0) - share_of_first(lately, 0);

                ck_assert_double_le(change, 1e-9);
                ck_assert_double_ge(change, -0.1 - 1e-9);
        }
}
END_TEST

/* ---- a life ---- */

struct life {
        uint64_t now;
        uint32_t n;
        uint32_t places;
        uint32_t left[MEMBERS_MAX];     /* chunks of the batch that its job waits for that are not done */
        uint64_t patience[MEMBERS_MAX]; /* batches of others since */
        uint64_t worst;
};

static uint32_t below(uint32_t n) {
        return (uint32_t)random() % n;
}

static uint32_t held_by(const struct pipeline *pipeline) {
        uint32_t sum = 0;

        for (uint32_t i = 0; i < pipeline->workers; i++)
                sum += pipeline->held[i];
        return sum;
}

/* Its job waits for the next batch from now on. */
static void wait_anew(struct life *life, uint32_t i) {
        life->left[i] = pipelines[i].chunks = 1 + below(6);
        pipelines[i].since_ns = ++life->now;
        life->patience[i] = 0;
}

static void finish_a_chunk(struct life *life, uint32_t i) {
        struct pipeline *pipeline = &pipelines[i];
        uint32_t k = below(pipeline->workers);

        while (pipeline->held[k] == 0)
                k = (k + 1) % pipeline->workers;
        pipeline->held[k]--;
        if (--life->left[i] > 0)
                return;
        for (uint32_t other = 0; other < life->n; other++) {
                if (++life->patience[other] > life->worst)
                        life->worst = life->patience[other];
        }
        wait_anew(life, i);
}

/* Nobody exceeds the places, and none is left empty while somebody could use it. */
static void check_places(const struct life *life) {
        ck_assert_uint_le(all_busy(life->n), life->places);
        if (all_busy(life->n) == life->places)
                return;
        for (uint32_t i = 0; i < life->n; i++)
                ck_assert(pipelines[i].chunks == 0 || !free_worker(&pipelines[i], true));
}

static void live(uint32_t places, uint32_t n, uint32_t depth) {
        struct life life = {.n = n, .places = places};

        begin(places, n, depth);
        for (uint32_t i = 0; i < n; i++)
                wait_anew(&life, i);
        for (uint32_t event = 0; event < LIFE_EVENTS; event++) {
                uint32_t i = below(n);

                budget_share_out(&budget);
                check_places(&life);
                while (held_by(&pipelines[i]) == 0)
                        i = (i + 1) % n;
                finish_a_chunk(&life, i);
        }
        /* Whoever waits is behind those who waited before: each of them gets one batch. What workers have in
         * hand already may bring some more. */
        ck_assert_uint_le(life.worst, n + places * depth * 4);
}

START_TEST(no_place_is_lost_and_nobody_starves) {
        srandom(5);
        for (uint32_t n = 1; n <= MEMBERS_MAX; n++) {
                live(1, n, 1);
                live(2, n, DEPTH);
                live(WORKERS_MAX, n, 1);
        }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("budget");
        TCase *tcase = tcase_create("budget");

        tcase_set_timeout(tcase, 60);
        tcase_add_test(tcase, one_pipeline_gets_all_and_is_not_compared);
        tcase_add_test(tcase, due_before_ahead_whatever_waited);
        tcase_add_test(tcase, who_waited_longest_is_first);
        tcase_add_test(tcase, ahead_by_distance);
        tcase_add_test(tcase, workers_run_dry_for_who_is_first);
        tcase_add_test(tcase, who_is_first_is_topped_up);
        tcase_add_test(tcase, who_joins_with_too_many_begins_nothing);
        tcase_add_test(tcase, share_is_what_others_leave_and_an_equal_part_at_least);
        tcase_add_test(tcase, share_is_of_the_members);
        tcase_add_test(tcase, share_does_not_flutter);
        tcase_add_test(tcase, no_place_is_lost_and_nobody_starves);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
