#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The end of every test program: its suite as TAP on standard output, where meson reads it. */

#include <check.h>
#include <stdio.h>

/* Takes the suite over. What main returns: 0, or 1 when a test has failed. */
static inline int run_suite(Suite *suite) {
        SRunner *runner = srunner_create(suite);
        int failed;

        setvbuf(stdout, NULL, _IOLBF, 0); /* a test that forks must not print what its parent has printed */
        srunner_set_tap(runner, "-");
        srunner_run_all(runner, CK_SILENT);
        failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed > 0;
}
