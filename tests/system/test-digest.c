/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedctl digest of ranks, tails and other batch sizes. The rows that a rank gets are known (docs/order.md
 * has this very example), so its digest is that of the same rows asked for plainly. */

#include "tests/support/harness.h"
#include "tests/support/run.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        WORDS_MAX = 16,
};

/* 10 rows, of which 3 ranks of 2 get 0 and 1, 2 and 3, 4 and 5; then 6 and 7, 8 and 9, and two of padding. */
static const struct {
        const char *asked, *same_as, *says;
} cases[] = {
        {"--rank 2 --world-size 3 --batch-size 2", "--rows 4:6",
         "2 rows, 0:10 of 10, epoch 0, seed 0, rank 2 of 3, 2 rows of padding left out\n"},
        {"--rank 0 --world-size 3 --batch-size 2 --rows :6", "--rows 0:2",
         "2 rows, 0:6 of 10, epoch 0, seed 0, rank 0 of 3\n"},
        {"--rank 1 --world-size 3 --batch-size 2 --last-batch drop", "--rows 2:4", "2 rows, 0:10 of 10"},
        {"--rank 1 --world-size 2 --rows 8:", "--rows 9:10", "1 row"},
        {"--rank 0 --world-size 1", "", "10 rows, 0:10 of 10, epoch 0, seed 0\n"},
        {"--last-batch pad", "", "10 rows, 0:10 of 10, epoch 0, seed 0, 2 rows of padding left out\n"},
        {"--last-batch drop", "--rows :8", "8 rows, 0:10 of 10, epoch 0, seed 0\n"},
        {"--last-batch drop --batch-size 3", "--rows :9", "9 rows, 0:10 of 10"},
        {"--batch-size 7 --rows 1:9", "--rows 1:9", "8 rows, 1:9 of 10"},
        {"--rows 8: --last-batch drop", "--rows 9: --last-batch drop", "0 rows, 8:10 of 10"},
};

/* Exit code; what it said goes to *output. */
static int digest(struct harness *h, const char *options, char **output) {
        const char *argv[WORDS_MAX] = {"pinfeedctl", "digest", "p"};
        char words[256], *rest = words;
        size_t n = 3;

        snprintf(words, sizeof(words), "%s", options);
        for (char *word; (word = strtok_r(rest, " ", &rest)) && n < WORDS_MAX - 1;)
                argv[n++] = word;
        return harness_run(h, 20000 * harness_slowdown(), output, argv);
}

START_TEST(test_digest_of_a_rank) {
        struct harness *h = harness_new();

        harness_write_config(h, "pipelines:\n"
                                "  p:\n"
                                "    source: {type: synthetic, mode: ramp, samples: 10, bytes: 100}\n"
                                "    batch_size: 4\n"
                                "    slots: 16\n");
        harness_start(h);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char *text, *same;

                ck_assert_int_eq(digest(h, cases[i].asked, &text), 0);
                ck_assert_int_eq(digest(h, cases[i].same_as, &same), 0);
                ck_assert_msg(strcspn(text, "\n") == strcspn(same, "\n") &&
                                      strncmp(text, same, strcspn(same, "\n")) == 0 &&
                                      strstr(text, cases[i].says),
                              "%s:\n%s%s:\n%s", cases[i].asked, text, cases[i].same_as, same);
                free(text);
                free(same);
        }
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

START_TEST(test_digest_usage) {
        static const struct {
                const char *options, *words;
        } wrong[] = {
                {"--rank 2 --world-size 2", "--rank: expected from 0 to 1 (--world-size is 2), got 2"},
                {"--rank 1", "--rank: expected from 0 to 0"},
                {"--world-size 0", "--world-size: expected"},
                {"--batch-size 0", "--batch-size: expected"},
                {"--last-batch long", "--last-batch: expected short, drop or pad, got \"long\""},
        };
        struct harness *h = harness_new();

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                char *text;

                ck_assert_int_eq(digest(h, wrong[i].options, &text), 2);
                ck_assert_msg(strstr(text, wrong[i].words), "%s: %s", wrong[i].options, text);
                free(text);
        }
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: digest");
        TCase *tcase = tcase_create("digest");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_digest_of_a_rank);
        tcase_add_test(tcase, test_digest_usage);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
