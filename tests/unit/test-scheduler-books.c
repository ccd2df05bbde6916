/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The scheduler's books: who waited for whom and for how long, what each stream cost, who shares with whom
 * and who holds what.
 */

#include "daemon/scheduler-internal.h"
#include "tests/support/run.h"

#include <check.h>
#include <stdlib.h>

enum {
        SLOTS = 8,
        ROWS = 4, /* of a slot, and of a batch */
        SAMPLES = 400,
};

static struct scheduler *scheduler;

static void begin(void) {
        struct scheduler_config config = {.slots = SLOTS, .slot_rows = ROWS, .samples = SAMPLES};

        ck_assert_int_eq(scheduler_new(&scheduler, &config), 0);
}

static void end(void) {
        scheduler = scheduler_free(scheduler);
}

/* What is there to give, and a look whether that is all. Returns how many batches. */
static unsigned give(uint64_t now) {
        struct scheduler_delivery delivery;
        unsigned n = 0;

        while (scheduler_next_delivery(scheduler, now, &delivery))
                n++;
        return n;
}

static void attach(uint32_t id, uint64_t seed, uint64_t row, uint32_t max_held, uint64_t now) {
        struct scheduler_job job = {
                .id = id,
                .seed = seed,
                .plan = {.samples = SAMPLES,
                         .batch_size = ROWS,
                         .world_size = 1,
                         .last_batch = LAST_BATCH_SHORT},
                .start_row = row,
                .max_held = max_held,
                .lookahead = 1,
        };

        ck_assert_int_eq(scheduler_attach(scheduler, &job, now, NULL), 0);
        give(now);
}

/* One slot is filled, and given to whoever may have it. */
static unsigned fill(uint64_t now) {
        struct scheduler_chunk chunk;

        ck_assert(scheduler_next_chunk(scheduler, ROWS, 1, &chunk));
        ck_assert_uint_eq(chunk.rows, ROWS);
        ck_assert_int_eq(scheduler_chunk_done(scheduler, chunk.slot, chunk.first, chunk.rows), 0);
        return give(now);
}

static unsigned release(uint32_t id, uint64_t number, uint64_t now) {
        ck_assert_int_eq(scheduler_release(scheduler, id, number, now), 0);
        return give(now);
}

static struct scheduler_account account_of(uint32_t id, uint64_t now) {
        struct scheduler_account account;

        ck_assert_int_eq(scheduler_view_account(scheduler, id, now, &account), 0);
        return account;
}

static void expect_times(uint32_t id, uint64_t now, uint64_t waited, uint64_t empty, uint64_t data_waited) {
        struct scheduler_account account = account_of(id, now);

        ck_assert_uint_eq(account.waited, waited);
        ck_assert_uint_eq(account.empty, empty);
        ck_assert_uint_eq(account.data_waited, data_waited);
}

START_TEST(test_who_waits) {
        attach(1, 0, 0, 2, 1000);
        expect_times(1, 1300, 300, 300, 0); /* also what is under way */
        ck_assert_uint_eq(fill(1500), 1);
        expect_times(1, 1500, 500, 500, 0);
        ck_assert_uint_eq(fill(1600), 1); /* it held one meanwhile */
        expect_times(1, 1600, 600, 500, 0);
        ck_assert_uint_eq(account_of(1, 1600).oldest, 1500);
        ck_assert_uint_eq(account_of(1, 1600).released, 1000);
        ck_assert_uint_eq(account_of(1, 1600).rows, 2 * ROWS);

        ck_assert_uint_eq(fill(1800), 0); /* it holds two and may not have more; before, nothing was READY */
        expect_times(1, 1800, 600, 500, 0);
        expect_times(1, 2000, 600, 500, 200);
        ck_assert_uint_eq(release(1, 1, 2100), 1); /* the younger one */
        expect_times(1, 2100, 600, 500, 300);
        ck_assert_uint_eq(account_of(1, 2100).oldest, 1500);
        ck_assert_uint_eq(account_of(1, 2100).released, 2100);
        ck_assert_uint_eq(release(1, 0, 2200), 0);
        ck_assert_uint_eq(account_of(1, 2200).oldest, 2100);
        ck_assert_uint_eq(release(1, 2, 2300), 0);
        ck_assert_uint_eq(account_of(1, 2300).oldest, 0);
        expect_times(1, 2400, 800, 600, 300);
}
END_TEST

/* A job that has had the epoch and has not asked for the next: what lies ready waits for it. */
START_TEST(test_parked) {
        struct scheduler_job job = {.id = 1,
                                    .plan = {.samples = SAMPLES,
                                             .batch_size = ROWS,
                                             .world_size = 1,
                                             .last_batch = LAST_BATCH_SHORT},
                                    .max_held = 2};

        job.start_row = SAMPLES - ROWS;
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        give(0);
        ck_assert_uint_eq(fill(100), 1);
        ck_assert_uint_eq(release(1, 0, 200), 0);
        expect_times(1, 500, 100, 100, 0); /* nothing was prepared */
        job = (struct scheduler_job){.id = 2, .plan = job.plan, .start_epoch = 1, .max_held = 1};
        ck_assert_int_eq(scheduler_attach(scheduler, &job, 600, NULL), 0);
        give(600);
        ck_assert_uint_eq(fill(700), 1);
        expect_times(1, 1000, 100, 100, 300);
}
END_TEST

static void expect_waited_for_jobs(uint32_t id, uint64_t now, uint64_t waited, uint64_t empty) {
        struct scheduler_account account = account_of(id, now);

        ck_assert_uint_eq(account.waited_for_jobs, waited);
        ck_assert_uint_eq(account.empty_for_jobs, empty);
}

static struct scheduler_job_view view_of(uint32_t id) {
        struct scheduler_job_view view = {0};

        ck_assert_int_eq(scheduler_view_job(scheduler, id, &view), 0);
        return view;
}

/* Two batches apart at most. The fast job has given its two back and may have the third when the slow one
 * gives back its first; what lies ready does not wait for it meanwhile. */
START_TEST(test_waiting_for_the_last_in_lockstep) {
        scheduler_set_lockstep(scheduler, 2 * ROWS, 1000000);
        attach(1, 0, 0, 2, 0);
        attach(2, 0, 0, 2, 0);
        ck_assert_uint_eq(fill(100) + fill(200), 4);
        ck_assert(view_of(1).bound && view_of(2).bound);
        ck_assert_uint_eq(release(1, 0, 300), 0);
        ck_assert(view_of(1).led && !view_of(2).led);
        ck_assert_uint_eq(view_of(1).pace, 2);
        expect_waited_for_jobs(1, 400, 100, 0); /* it held one */
        ck_assert_uint_eq(release(1, 1, 500), 0);
        expect_waited_for_jobs(1, 700, 400, 200);
        expect_times(1, 700, 200, 100, 0);
        expect_waited_for_jobs(2, 700, 0, 0);

        ck_assert_uint_eq(release(2, 0, 800), 0);
        ck_assert(!view_of(1).led);
        ck_assert_uint_eq(view_of(1).pace, 2);
        expect_waited_for_jobs(1, 900, 500, 300);
        expect_times(1, 900, 300, 200, 0); /* now for the workers */
        ck_assert_int_eq(scheduler_detach(scheduler, 2), 0);
        ck_assert_uint_eq(view_of(1).pace, 0);
}
END_TEST

/* One that holds all it may could not go on anyway. */
START_TEST(test_full_in_lockstep) {
        scheduler_set_lockstep(scheduler, 2 * ROWS, 1000000);
        attach(1, 0, 0, 2, 0);
        attach(2, 0, 0, 1, 0);
        fill(100);
        fill(200);
        ck_assert_uint_eq(view_of(1).held, 2);
        ck_assert(view_of(1).led);
        expect_waited_for_jobs(1, 500, 0, 0);
}
END_TEST

START_TEST(test_gathering) {
        struct scheduler_job job = {.id = 1,
                                    .plan = {.samples = SAMPLES,
                                             .batch_size = ROWS,
                                             .world_size = 1,
                                             .last_batch = LAST_BATCH_SHORT},
                                    .max_held = 1,
                                    .gather = 3,
                                    .gather_until = 1000};

        ck_assert_int_eq(scheduler_attach(scheduler, &job, 0, NULL), 0);
        give(0);
        ck_assert_uint_eq(fill(100), 0);
        attach(2, 0, 0, 1, 200);
        ck_assert_uint_eq(view_of(1).gather, 3);
        ck_assert_uint_eq(view_of(1).come, 2);
        ck_assert_uint_eq(view_of(1).gather_until, 1000);
        expect_waited_for_jobs(1, 600, 600, 600);
        expect_times(1, 600, 0, 0, 0);
        ck_assert_uint_eq(give(1000), 1);
        ck_assert_uint_eq(view_of(1).gather, 0);
        expect_waited_for_jobs(1, 1500, 1000, 1000);
}
END_TEST

START_TEST(test_time_that_slots_are_leased) {
        attach(1, 0, 0, 2, 0);
        fill(100);
        ck_assert_uint_eq(scheduler_leased_ns(scheduler, 150), 50);
        fill(200);
        ck_assert_uint_eq(scheduler_leased_ns(scheduler, 300), 100 + 2 * 100);
        release(1, 0, 400);
        release(1, 1, 500);
        ck_assert_uint_eq(scheduler_leased_ns(scheduler, 900), 100 + 2 * 200 + 100);
}
END_TEST

static struct scheduler_stream_view stream_of(uint64_t seed) {
        struct scheduler_stream_view view;

        for (uint32_t i = 0; scheduler_view_stream(scheduler, i, &view); i++) {
                if (view.seed == seed)
                        return view;
        }
        return (struct scheduler_stream_view){.seed = seed, .jobs = UINT32_MAX};
}

static void expect_stream(uint64_t seed, uint32_t jobs, uint64_t prepared, uint64_t delivered,
                          uint64_t refilled) {
        struct scheduler_stream_view view = stream_of(seed);

        ck_assert_uint_eq(view.jobs, jobs);
        ck_assert_uint_eq(view.rows_prepared, prepared);
        ck_assert_uint_eq(view.rows_delivered, delivered);
        ck_assert_uint_eq(view.rows_refilled, refilled);
}

START_TEST(test_streams) {
        struct scheduler_counters counters;

        attach(1, 7, 0, 1, 0);
        attach(2, 7, 0, 1, 0);
        attach(3, 8, 0, 1, 0);
        ck_assert_uint_eq(fill(1) + fill(2), 3);
        expect_stream(7, 2, ROWS, 2 * ROWS, 0);
        expect_stream(8, 1, ROWS, ROWS, 0);
        for (uint32_t id = 1; id <= 3; id++)
                ck_assert_int_eq(scheduler_detach(scheduler, id), 0);
        expect_stream(7, 0, ROWS, 2 * ROWS, 0);

        /* A whole ring of another stream, and what was there before once more. */
        attach(4, 9, 0, 1, 10);
        for (unsigned i = 0; i < SLOTS; i++) {
                fill(11 + i);
                release(4, i, 11 + i);
        }
        ck_assert_int_eq(scheduler_detach(scheduler, 4), 0);
        attach(5, 7, 0, 1, 30);
        fill(31);
        expect_stream(7, 1, 2 * ROWS, 3 * ROWS, ROWS);
        scheduler_counters(scheduler, &counters);
        ck_assert_uint_eq(counters.rows_refilled, ROWS);
        ck_assert_uint_eq(counters.slots_refilled, 1);
}
END_TEST

/* One that comes late is brought to the one before it; each stream has its own count. */
START_TEST(test_catching_up) {
        uint32_t front = 0, released = 0;

        scheduler_set_catch_up(scheduler, UINT64_C(16) * ROWS, 6000000);
        attach(1, 7, 0, 1, 0);
        for (unsigned i = 0; i < 2 * SLOTS; i++) {
                fill(10 + i);
                release(1, i, 10 + i);
        }
        attach(2, 7, UINT64_C(4) * ROWS, 1, 100000);
        attach(3, 8, 0, 1, 100000);
        ck_assert_uint_eq(scheduler_catching_up(scheduler, 2, &front), UINT64_C(12) * ROWS);
        ck_assert_uint_eq(front, 1);
        ck_assert_uint_eq(scheduler_catching_up(scheduler, 1, &front), 0);
        ck_assert_uint_eq(scheduler_catching_up(scheduler, 3, &front), 0);
        ck_assert_uint_eq(stream_of(7).catch_ups, 1);
        ck_assert_uint_eq(stream_of(7).catch_ups_met, 0);
        while (stream_of(7).catch_ups_met == 0) {
                ck_assert_uint_le(released, 12);
                if (view_of(2).held > 0)
                        release(2, released++, 100001);
                else
                        fill(100001);
        }
        ck_assert_uint_eq(scheduler_catching_up(scheduler, 2, &front), 0);
        ck_assert_uint_eq(stream_of(7).catch_ups, 1);
        ck_assert_uint_eq(stream_of(7).catch_ups_met, 1);
        ck_assert_uint_eq(stream_of(8).catch_ups, 0);
}
END_TEST

/* Anybody can come with any seed: what is kept of those that have gone has a bound. */
START_TEST(test_streams_are_forgotten) {
        struct scheduler_stream_view view;
        uint32_t n = 0;

        attach(1, 1000, 0, 1, 0);
        for (uint32_t i = 0; i < 100; i++) {
                attach(2, i, 0, 1, i);
                ck_assert_int_eq(scheduler_detach(scheduler, 2), 0);
        }
        while (scheduler_view_stream(scheduler, n, &view))
                n++;
        ck_assert_uint_eq(n, 1 + SCHEDULER_STREAMS_KEPT);
        ck_assert_uint_eq(stream_of(1000).jobs, 1);
        ck_assert_uint_eq(stream_of(99).jobs, 0);
        ck_assert_uint_eq(stream_of(99 - SCHEDULER_STREAMS_KEPT).jobs, UINT32_MAX);
}
END_TEST

static void expect_company(uint32_t id, uint32_t n, uint32_t other) {
        uint32_t ids[8] = {0};

        ck_assert_uint_eq(scheduler_company(scheduler, id, ids, 8), n);
        if (n == 1)
                ck_assert_uint_eq(ids[0], other);
        ck_assert_uint_eq(scheduler_company(scheduler, id, NULL, 0), n);
}

START_TEST(test_company) {
        attach(1, 0, 0, 1, 0);
        attach(2, 0, UINT64_C(7) * ROWS, 1, 0); /* the last that the ring reaches */
        expect_company(1, 1, 2);
        expect_company(2, 1, 1);
        ck_assert_int_eq(scheduler_seek(scheduler, 2, 0, UINT64_C(8) * ROWS, 0, 1, NULL), 0);
        expect_company(1, 0, 0);
        expect_company(2, 0, 0);
        ck_assert_int_eq(scheduler_seek(scheduler, 2, 1, 0, 0, 1, NULL), 0); /* over the end of the epoch */
        ck_assert_int_eq(scheduler_seek(scheduler, 1, 0, SAMPLES - ROWS, 0, 1, NULL), 0);
        expect_company(1, 1, 2);
        attach(3, 1, 0, 1, 0); /* another stream */
        expect_company(3, 0, 0);
        expect_company(99, 0, 0);
}
END_TEST

START_TEST(test_holders) {
        struct scheduler_slot_view view;
        uint32_t ids[2] = {0}, slot = 0;

        attach(1, 0, 0, 1, 0);
        attach(2, 0, 0, 1, 0);
        ck_assert_uint_eq(fill(10), 2);
        for (scheduler_view_slot(scheduler, slot, &view); view.leases == 0;)
                scheduler_view_slot(scheduler, ++slot, &view);
        ck_assert_uint_eq(view.leased_since, 10);
        ck_assert_uint_eq(scheduler_holders(scheduler, slot, ids, 1), 2);
        ck_assert_uint_eq(ids[1], 0);
        release(1, 0, 20);
        ck_assert_uint_eq(scheduler_holders(scheduler, slot, ids, 2), 1);
        ck_assert_uint_eq(ids[0], 2);
        scheduler_view_slot(scheduler, slot, &view);
        ck_assert_uint_eq(view.leased_since, 10);
        release(2, 0, 30);
        ck_assert_uint_eq(scheduler_holders(scheduler, slot, ids, 2), 0);
        ck_assert_uint_eq(scheduler_holders(scheduler, SLOTS, ids, 2), 0);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("scheduler-books");
        TCase *tests = tcase_create("scheduler-books");

        suite_add_tcase(suite, tests);
        tcase_add_checked_fixture(tests, begin, end);
        tcase_add_test(tests, test_who_waits);
        tcase_add_test(tests, test_parked);
        tcase_add_test(tests, test_waiting_for_the_last_in_lockstep);
        tcase_add_test(tests, test_full_in_lockstep);
        tcase_add_test(tests, test_gathering);
        tcase_add_test(tests, test_time_that_slots_are_leased);
        tcase_add_test(tests, test_streams);
        tcase_add_test(tests, test_streams_are_forgotten);
        tcase_add_test(tests, test_catching_up);
        tcase_add_test(tests, test_company);
        tcase_add_test(tests, test_holders);
        return run_suite(suite);
}
