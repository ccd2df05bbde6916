/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bad samples are counted once each, in any order and number, the first hundred are kept with their words,
 * and too many are too many exactly from the number on that the documents say.
 */

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/ledger.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

START_TEST(test_once) {
        _cleanup_(ledger_deinit) struct ledger ledger = LEDGER_INIT;

        ck_assert(ledger_add(&ledger, 0, EIO, "cat/1.jpg", "not a JPEG"));
        ck_assert(!ledger_add(&ledger, 0, EIO, "cat/1.jpg", "not a JPEG"));
        ck_assert(ledger_add(&ledger, UINT64_MAX - 1, EBADMSG, NULL, NULL));
        ck_assert(!ledger_add(&ledger, UINT64_MAX - 1, EBADMSG, NULL, NULL));
        ck_assert(!ledger_add(&ledger, 0, EBADMSG, "cat/1.jpg", "something else"));
        ck_assert_uint_eq(ledger_count(&ledger), 2);
        ck_assert_uint_eq(ledger.n_shown, 2);
        ck_assert_uint_eq(ledger.shown[0].sample, 0);
        ck_assert_int_eq(ledger.shown[0].error, EIO);
        ck_assert_str_eq(ledger.shown[0].file, "cat/1.jpg");
        ck_assert_str_eq(ledger.shown[0].text, "not a JPEG");
        ck_assert_str_eq(ledger.shown[1].file, "");
        ck_assert_str_eq(ledger.shown[1].text, "");
}
END_TEST

START_TEST(test_shown) {
        _cleanup_(ledger_deinit) struct ledger ledger = LEDGER_INIT;
        char file[32];

        for (uint64_t i = 0; i < 3 * LEDGER_SHOWN_MAX; i++) {
                snprintf(file, sizeof(file), "%d.jpg", (int)i);
                ck_assert(ledger_add(&ledger, 1000 - i, EIO, file, "bad"));
        }
        ck_assert_uint_eq(ledger_count(&ledger), 3 * LEDGER_SHOWN_MAX);
        ck_assert_uint_eq(ledger.n_shown, LEDGER_SHOWN_MAX);
        ck_assert_uint_eq(ledger.shown[99].sample, 901);
        ck_assert_str_eq(ledger.shown[99].file, "99.jpg");
        ledger_deinit(&ledger);
        ck_assert_uint_eq(ledger_count(&ledger), 0);
        ck_assert(ledger_add(&ledger, 1000, EIO, "", ""));
}
END_TEST

/* Numbers at equal distances, which a poor hash puts into one place, and neighbours. */
START_TEST(test_exact) {
        static const uint64_t steps[] = {1, 64, 1 << 20, UINT64_C(1) << 32, UINT64_C(1) << 40};

        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
                _cleanup_(ledger_deinit) struct ledger ledger = LEDGER_INIT;

                for (uint64_t sample = 0; sample < 5000; sample++)
                        ck_assert(ledger_add(&ledger, sample * steps[i], EIO, "", ""));
                for (uint64_t sample = 0; sample < 5000; sample++)
                        ck_assert(!ledger_add(&ledger, sample * steps[i], EIO, "", ""));
                ck_assert(ledger_add(&ledger, 5000 * steps[i], EIO, "", ""));
                ck_assert_uint_eq(ledger_count(&ledger), 5001);
                ck_assert_uint_eq(ledger.unlisted, 0);
        }
}
END_TEST

START_TEST(test_bound) {
        _cleanup_(ledger_deinit) struct ledger ledger = LEDGER_INIT;

        for (uint64_t sample = 0; sample < LEDGER_KNOWN_MAX; sample++)
                ck_assert(ledger_add(&ledger, 3 * sample, EIO, "", ""));
        ck_assert_uint_eq(ledger.capacity, 2 * LEDGER_KNOWN_MAX);
        ck_assert(!ledger_add(&ledger, 1, EIO, "", ""));
        ck_assert(!ledger_add(&ledger, 1, EIO, "", "")); /* who could know */
        ck_assert(!ledger_add(&ledger, 3, EIO, "", "")); /* known */
        ck_assert_uint_eq(ledger.capacity, 2 * LEDGER_KNOWN_MAX);
        ck_assert_uint_eq(ledger_count(&ledger), LEDGER_KNOWN_MAX + 2);
        ck_assert_uint_eq(ledger.unlisted, 2);
}
END_TEST

static const struct {
        uint64_t samples, rows;
        double max_errors;
        uint64_t allowed; /* one more is too many */
} judged[] = {{10000, 1000, 0.001, 1},   {10000, 1999, 0.001, 1}, {10000, 2000, 0.001, 2},
              {10000, 90000, 0.001, 10}, {100, 1000, 0.001, 0},   {100, 1000, 0.29, 29},
              {100, 1000, 0.07, 7},      {100, 1000, 0.57, 57},   {10000, 1000, 0, 0},
              {300, 1000, 1, 300},       {10000, 1000, 0.01, 10}, {1, 1000, 0.5, 0},
              {1 << 20, 3000, 0.1, 300}};

START_TEST(test_judge) {
        for (size_t i = 0; i < sizeof(judged) / sizeof(*judged); i++) {
                _cleanup_(ledger_deinit) struct ledger ledger = LEDGER_INIT;

                for (uint64_t bad = 0; bad < judged[i].allowed; bad++)
                        ledger_add(&ledger, bad, EIO, "", "");
                ck_assert_int_eq(
                        ledger_judge(&ledger, judged[i].samples, judged[i].rows, judged[i].max_errors, NULL),
                        0);
                ledger_add(&ledger, judged[i].allowed, EIO, "", "");
                ck_assert_int_eq(
                        ledger_judge(&ledger, judged[i].samples, judged[i].rows, judged[i].max_errors, NULL),
                        -EIO);
                ck_assert_int_eq(ledger_judge(&ledger, judged[i].samples, LEDGER_ROWS_LEAST - 1,
                                              judged[i].max_errors, NULL),
                                 0);
        }
}
END_TEST

START_TEST(test_judge_says) {
        _cleanup_(ledger_deinit) struct ledger ledger = LEDGER_INIT;
        struct fault fault = {};

        ledger_add(&ledger, 17, EBADMSG, "cat/17.jpg", "the data ran dry");
        ck_assert_int_eq(ledger_judge(&ledger, 100, 1000, 0.001, &fault), -EIO);
        ck_assert_str_eq(fault.text,
                         "1 of 100 samples seen so far is bad, max_errors 0.001 allows 0; mend or remove the "
                         "files that "
                         "pinfeedctl status lists, or raise max_errors (the first one: cat/17.jpg: the data "
                         "ran dry)");
        for (uint64_t sample = 100; sample < 1400; sample++)
                ledger_add(&ledger, sample, EIO, "", "");
        ck_assert_int_eq(ledger_judge(&ledger, 1000000, 40000, 0.03, &fault), -EIO);
        ck_assert_str_eq(fault.text,
                         "1,301 of 40,000 samples seen so far are bad, max_errors 0.03 allows 1,200; mend or "
                         "remove the "
                         "files that pinfeedctl status lists, or raise max_errors (the first one: "
                         "cat/17.jpg: the data ran dry)");
        ledger_deinit(&ledger);
        ledger_add(&ledger, 5, EIO, NULL, "no reason");
        ck_assert_int_eq(ledger_judge(&ledger, 10, 1000, 0, &fault), -EIO);
        ck_assert_ptr_nonnull(strstr(fault.text, "raise max_errors (the first one: no reason)"));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("ledger");
        TCase *tests = tcase_create("ledger");

        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, test_once);
        tcase_add_test(tests, test_shown);
        tcase_add_test(tests, test_exact);
        tcase_add_test(tests, test_bound);
        tcase_add_test(tests, test_judge);
        tcase_add_test(tests, test_judge_says);
        return run_suite(suite);
}
