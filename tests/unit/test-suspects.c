/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every edge in the life of a suspect, rows that share a sample, the bound, and a long random life beside a
 * plain model of it.
 */

#include "daemon/suspects.h"
#include "tests/support/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct suspects suspects;

static void begin(void) {
        suspects_init(&suspects);
}

/* Row `first` of `slot`, with a sample. */
static struct suspect *add(uint32_t slot, uint32_t first, uint64_t sample) {
        struct suspect row = {.slot = slot,
                              .first = first,
                              .epoch = 3,
                              .row = slot * UINT64_C(100) + first,
                              .seed = 7,
                              .sample = sample,
                              .deaths_alone = 99, /* not taken */
                              .state = SUSPECT_TRIED};
        struct suspect *added = NULL;

        ck_assert_int_eq(suspects_add(&suspects, &row, &added), 0);
        ck_assert_ptr_nonnull(added);
        ck_assert_int_eq(added->state, SUSPECT_WAITING);
        return added;
}

static void try_next(const struct suspect *expected) {
        struct suspect *next = suspects_next(&suspects);

        ck_assert_ptr_eq(next, expected);
        suspects_tried(&suspects, next);
        ck_assert_int_eq(next->state, SUSPECT_TRIED);
}

START_TEST(test_condemned_after_two) {
        struct suspect *suspect;

        ck_assert_ptr_null(suspects_next(&suspects));
        suspect = add(1, 2, 812);
        ck_assert_uint_eq(suspect->deaths_alone, 0);
        ck_assert_uint_eq(suspect->row, 102);
        ck_assert_uint_eq(suspect->seed, 7);
        ck_assert_uint_eq(suspect->epoch, 3);
        try_next(suspect);
        ck_assert_ptr_null(suspects_next(&suspects));
        ck_assert_int_eq(suspects_died(&suspects, suspect, true), SUSPECT_RETRY);
        try_next(suspect);
        ck_assert_int_eq(suspects_died(&suspects, suspect, true), SUSPECT_CONDEMN);
        ck_assert_ptr_eq(suspects_find(&suspects, 1, 2), suspect);
        suspects_remove(&suspects, suspect);
        ck_assert_ptr_null(suspects_find(&suspects, 1, 2));
        ck_assert_uint_eq(suspects.count, 0);
}
END_TEST

START_TEST(test_deaths_that_do_not_count) {
        struct suspect *suspect = add(1, 2, 812);

        for (int i = 0; i < 50; i++) {
                try_next(suspect);
                ck_assert_int_eq(suspects_died(&suspects, suspect, false), SUSPECT_RETRY);
        }
        ck_assert_uint_eq(suspect->deaths_alone, 0);
        try_next(suspect);
        ck_assert_int_eq(suspects_died(&suspects, suspect, true), SUSPECT_RETRY);
        try_next(suspect);
        ck_assert_int_eq(suspects_died(&suspects, suspect, false), SUSPECT_RETRY);
        try_next(suspect);
        ck_assert_int_eq(suspects_died(&suspects, suspect, true), SUSPECT_CONDEMN);
}
END_TEST

START_TEST(test_oldest_first) {
        struct suspect *a = add(1, 0, 10), *b = add(2, 0, 20), *c;

        suspects_remove(&suspects, a);
        c = add(3, 0, 30); /* takes the place of a, and is younger than b */
        ck_assert_ptr_eq(c, a);
        try_next(b);
        try_next(c);
        ck_assert_ptr_null(suspects_next(&suspects));
        ck_assert_int_eq(suspects_died(&suspects, c, true), SUSPECT_RETRY);
        ck_assert_int_eq(suspects_died(&suspects, b, true), SUSPECT_RETRY);
        try_next(b);
        try_next(c);
}
END_TEST

START_TEST(test_rows_of_one_sample) {
        struct suspect *a = add(1, 0, 10), *b = add(2, 5, 10), *other = add(2, 6, 11), *late;

        try_next(a);
        try_next(other); /* b has to wait for a */
        ck_assert_ptr_null(suspects_next(&suspects));
        ck_assert_int_eq(suspects_died(&suspects, a, true), SUSPECT_RETRY);
        ck_assert_uint_eq(b->deaths_alone, 1);
        ck_assert_uint_eq(other->deaths_alone, 0);
        late = add(3, 0, 10);
        ck_assert_uint_eq(late->deaths_alone, 1);
        try_next(a);
        ck_assert_int_eq(suspects_died(&suspects, a, true), SUSPECT_CONDEMN);
        suspects_remove(&suspects, a);
        try_next(b);
        suspects_remove(&suspects, b);
        try_next(late);
}
END_TEST

START_TEST(test_known) {
        struct suspect row = {.slot = 1, .first = 2, .sample = 5}, *added = NULL;

        add(1, 2, 812);
        ck_assert_int_eq(suspects_add(&suspects, &row, &added), SUSPECTS_E_KNOWN);
        ck_assert_ptr_null(added);
        ck_assert_uint_eq(suspects.count, 1);
        ck_assert_uint_eq(suspects_find(&suspects, 1, 2)->sample, 812);
        row.first = 3;
        ck_assert_int_eq(suspects_add(&suspects, &row, NULL), 0);
}
END_TEST

START_TEST(test_full) {
        struct suspect row = {.slot = SUSPECTS_MAX};
        uint32_t place = 0, n = 0;

        for (uint32_t i = 0; i < SUSPECTS_MAX; i++)
                add(i, i % 7, i);
        ck_assert_int_eq(suspects_add(&suspects, &row, NULL), SUSPECTS_E_FULL);
        ck_assert_uint_eq(suspects.count, SUSPECTS_MAX);
        for (const struct suspect *suspect; (suspect = suspects_iterate(&suspects, &place)); n++)
                ck_assert_uint_eq(suspect->slot, n);
        ck_assert_uint_eq(n, SUSPECTS_MAX);
        ck_assert_uint_eq(suspects_remove_slot(&suspects, 5), 1);
        ck_assert_int_eq(suspects_add(&suspects, &row, NULL), 0);
}
END_TEST

START_TEST(test_remove_slot) {
        struct suspect *kept;

        add(4, 0, 1);
        kept = add(5, 0, 2);
        add(4, 9, 3);
        try_next(suspects_find(&suspects, 4, 0)); /* being tried does not keep it */
        ck_assert_uint_eq(suspects_remove_slot(&suspects, 4), 2);
        ck_assert_uint_eq(suspects_remove_slot(&suspects, 4), 0);
        ck_assert_uint_eq(suspects.count, 1);
        try_next(kept);
        ck_assert_uint_eq(suspects_remove_slot(&suspects, 5), 1);
        ck_assert_uint_eq(suspects.used, 0);
}
END_TEST

START_TEST(test_names) {
        ck_assert_str_eq(suspect_state_name(SUSPECT_NONE), "none");
        ck_assert_str_eq(suspect_state_name(SUSPECT_WAITING), "waiting");
        ck_assert_str_eq(suspect_state_name(SUSPECT_TRIED), "tried");
}
END_TEST

/* ---- a random life, and what must always hold ---- */

static void assert_whole(void) {
        uint32_t place = 0, n = 0;
        const struct suspect *a, *b;

        while ((a = suspects_iterate(&suspects, &place))) {
                n++;
                ck_assert_uint_lt(a->deaths_alone, SUSPECTS_DEATHS);
                ck_assert_ptr_eq(suspects_find(&suspects, a->slot, a->first), a);
                for (uint32_t other = place; (b = suspects_iterate(&suspects, &other));)
                        ck_assert(a->sample != b->sample ||
                                  (a->deaths_alone == b->deaths_alone &&
                                   (a->state != SUSPECT_TRIED || b->state != SUSPECT_TRIED)));
        }
        ck_assert_uint_eq(n, suspects.count);
}

/* A suspect that is being tried, or NULL. */
static struct suspect *find_tried(void) {
        const struct suspect *suspect;
        uint32_t place = 0;

        while ((suspect = suspects_iterate(&suspects, &place)) && suspect->state != SUSPECT_TRIED)
                ;
        return (struct suspect *)suspect;
}

/* All rows of a condemned sample go, as the pipeline would see them made. */
static void condemn(uint64_t sample) {
        const struct suspect *suspect;

        for (uint32_t place = 0; (suspect = suspects_iterate(&suspects, &place));)
                if (suspect->sample == sample)
                        suspects_remove(&suspects, (struct suspect *)suspect);
}

START_TEST(test_random_life) {
        unsigned condemned = 0, made = 0;

        srandom(1);
        for (int i = 0; i < 5000; i++) {
                struct suspect row = {.slot = (uint32_t)random() % 8,
                                      .first = (uint32_t)random() % 4,
                                      .sample = (uint64_t)random() % 12};
                struct suspect *tried = find_tried(), *next = suspects_next(&suspects);
                uint64_t sample = tried ? tried->sample : 0;

                if (random() % 3 == 0)
                        (void)suspects_add(&suspects, &row, NULL);
                else if (next && random() % 2)
                        suspects_tried(&suspects, next);
                else if (tried && random() % 3 == 0 && ++made)
                        suspects_remove(&suspects, tried);
                else if (tried && suspects_died(&suspects, tried, random() % 2) == SUSPECT_CONDEMN &&
                         ++condemned)
                        condemn(sample);
                else if (random() % 50 == 0)
                        suspects_remove_slot(&suspects, row.slot);
                assert_whole();
        }
        ck_assert_uint_gt(condemned, 20);
        ck_assert_uint_gt(made, 100);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("suspects");
        TCase *tests = tcase_create("suspects");

        suite_add_tcase(suite, tests);
        tcase_add_checked_fixture(tests, begin, NULL);
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, test_condemned_after_two);
        tcase_add_test(tests, test_deaths_that_do_not_count);
        tcase_add_test(tests, test_oldest_first);
        tcase_add_test(tests, test_rows_of_one_sample);
        tcase_add_test(tests, test_known);
        tcase_add_test(tests, test_full);
        tcase_add_test(tests, test_remove_slot);
        tcase_add_test(tests, test_names);
        tcase_add_test(tests, test_random_life);
        return run_suite(suite);
}
