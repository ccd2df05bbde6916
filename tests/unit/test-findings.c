/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Findings are the same list in whatever order they are told, and each counts once. */

#include "base/cleanup.h"
#include "daemon/findings.h"
#include "daemon/verdicts.h"
#include "tests/support/run.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define FINGERPRINT "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef"

static void verdicts_freep(struct verdicts **verdicts) {
        verdicts_free(*verdicts);
}

/* Those of 10, 20, 30 and 40, of which 30 is lifted. */
static struct verdicts *some(void) {
        struct verdicts *verdicts;

        ck_assert_int_eq(verdicts_new(&verdicts, "p", FINGERPRINT), 0);
        for (uint64_t sample = 10; sample <= 40; sample += 10)
                ck_assert_int_eq(verdicts_add(verdicts, sample, "", "x", 1), 0);
        ck_assert_int_eq(verdicts_lift(verdicts, 30), 1);
        return verdicts;
}

static void add(struct findings *findings, uint64_t sample) {
        char text[32];

        snprintf(text, sizeof(text), "bad %llu", (unsigned long long)sample);
        findings_add(findings, sample, 5, "a/1.jpg", text);
}

START_TEST(test_condemned) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = some();
        struct findings findings = {};

        ck_assert_int_eq(findings_init(&findings, verdicts), 0);
        ck_assert_uint_eq(findings.n_condemned, 3);
        add(&findings, 30);
        add(&findings, 20);
        add(&findings, 20);
        add(&findings, 21);
        ck_assert_uint_eq(findings_count(&findings), 3);
        ck_assert_uint_eq(findings.n_listed, 3);
        ck_assert_uint_eq(findings.listed[0].sample, 20);
        ck_assert(findings.listed[0].condemned);
        ck_assert(!findings.listed[1].condemned && !findings.listed[2].condemned);
        ck_assert_str_eq(findings.listed[2].text, "bad 30");
        ck_assert_str_eq(findings.listed[2].file, "a/1.jpg");
        ck_assert_uint_eq(findings_take_good(&findings), 2);
        ck_assert_uint_eq(findings.condemned[0], 10);
        ck_assert_uint_eq(findings.condemned[1], 40);
        findings_deinit(&findings);
        findings_deinit(&findings);
}
END_TEST

/* 3,000 samples in an order that has nothing to do with their numbers: 7 has no factor in common with 3,000.
 */
START_TEST(test_lists_the_lowest) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = some();
        struct findings findings = {};

        ck_assert_int_eq(findings_init(&findings, verdicts), 0);
        for (uint64_t i = 0; i < 3000; i++)
                add(&findings, i * 7 % 3000);
        ck_assert_uint_eq(findings_count(&findings), 3000);
        ck_assert_uint_eq(findings.n_listed, FINDINGS_LISTED_MAX);
        for (uint32_t i = 0; i < FINDINGS_LISTED_MAX; i++) {
                char text[32];

                snprintf(text, sizeof(text), "bad %u", i);
                if (findings.listed[i].sample != i || strcmp(findings.listed[i].text, text) != 0)
                        ck_abort_msg("place %u has sample %llu", i,
                                     (unsigned long long)findings.listed[i].sample);
        }
        ck_assert_uint_eq(findings_take_good(&findings), 0);
        findings_deinit(&findings);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("findings");
        TCase *tests = tcase_create("findings");

        tcase_add_test(tests, test_condemned);
        tcase_add_test(tests, test_lists_the_lowest);
        suite_add_tcase(suite, tests);
        return run_suite(suite);
}
