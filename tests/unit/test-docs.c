/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The worked examples of docs/order.md against the code. An example is a line that tells a plan,
 *
 *     `N = 10, W = 3, b = 2, B = 0, last_batch = short`
 *
 * and the table that follows: a line for each step, with a cell for each rank. */

#include "proto/position.h"
#include "tests/support/run.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tails[] = {
        [LAST_BATCH_SHORT] = "short", [LAST_BATCH_DROP] = "drop", [LAST_BATCH_PAD] = "pad"};

struct example {
        unsigned line; /* of the document */
        struct position_plan plan;
        uint64_t base;
};

/* Is this the line of a plan? */
static bool read_plan(struct example *example, const char *text) {
        char tail[8];

        *example = (struct example){0};
        if (sscanf(text,
                   "`N = %" SCNu64 ", W = %" SCNu32 ", b = %" SCNu32 ", B = %" SCNu64
                   ", last_batch = %7[a-z]`",
                   &example->plan.samples, &example->plan.world_size, &example->plan.batch_size,
                   &example->base, tail) != 5)
                return false;
        for (int i = LAST_BATCH_SHORT; i <= LAST_BATCH_PAD; i++)
                if (strcmp(tail, tails[i]) == 0)
                        example->plan.last_batch = (enum last_batch)i;
        return true;
}

/* Appends to `text`, which has room for 1000 bytes. */
__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...) {
        size_t n = strlen(text);
        va_list args;

        va_start(args, format);
        vsnprintf(text + n, 1000 - n, format, args);
        va_end(args);
}

static void add_header(char *text, const struct position_plan *plan) {
        add(text, "| step |");
        for (uint32_t rank = 0; rank < plan->world_size; rank++)
                add(text, " rank %u |", rank);
        add(text, "\n|---|");
        for (uint32_t rank = 0; rank < plan->world_size; rank++)
                add(text, "---|");
        add(text, "\n");
}

static void add_step(char *text, struct position_plan plan, uint64_t base, uint64_t step) {
        add(text, "| %" PRIu64 " |", step);
        for (plan.rank = 0; plan.rank < plan.world_size; plan.rank++) {
                struct position batch = position_at(&plan, 0, base, step);

                for (uint64_t row = batch.row; row < batch.row + batch.rows; row++)
                        add(text, row < plan.samples ? " %" PRIu64 : " (%" PRIu64 ")", row % plan.samples);
                add(text, " |");
        }
        add(text, "\n");
}

/* The table as it should be. */
static void make_table(char *text, const struct example *example) {
        text[0] = '\0';
        add_header(text, &example->plan);
        for (uint64_t step = 0; step < position_batches(&example->plan, example->base); step++)
                add_step(text, example->plan, example->base, step);
}

/* The table that comes next in the document. */
static void read_table(char *text, FILE *file, unsigned *line) {
        char *one = NULL;
        size_t size = 0;

        text[0] = '\0';
        while (getline(&one, &size, file) > 0 && ++*line > 0) {
                if (one[0] == '|')
                        add(text, "%s", one);
                else if (text[0] || one[0] != '\n')
                        break;
        }
        free(one);
}

static void check_example(const struct example *example, FILE *file, unsigned *line) {
        char expected[1000], found[1000];

        ck_assert_msg(position_check(&example->plan, example->base, NULL) == 0, "line %u: no such plan",
                      example->line);
        make_table(expected, example);
        read_table(found, file, line);
        ck_assert_msg(strcmp(found, expected) == 0, "line %u: the table should be\n%s", example->line,
                      expected);
}

/* Every example is right, and none is missing: N = 10, W = 3, b = 2 for each tail, and a resumed one. */
START_TEST(test_order) {
        const char *folder = getenv("PINFEED_TEST_DOCS");
        unsigned line = 0, whole[LAST_BATCH_PAD + 1] = {}, resumed = 0;
        char path[4096], *one = NULL;
        struct example example;
        size_t size = 0;
        FILE *file;

        snprintf(path, sizeof(path), "%s/order.md", folder ? folder : "docs");
        file = fopen(path, "re");
        ck_assert_msg(file, "%s cannot be read; PINFEED_TEST_DOCS tells where the documents are", path);
        while (getline(&one, &size, file) > 0) {
                ++line;
                if (!read_plan(&example, one))
                        continue;
                example.line = line;
                check_example(&example, file, &line);
                whole[example.plan.last_batch] += example.base == 0 && example.plan.samples == 10 &&
                                                  example.plan.world_size == 3 &&
                                                  example.plan.batch_size == 2;
                resumed += example.base > 0;
        }
        free(one);
        fclose(file);
        for (int i = LAST_BATCH_SHORT; i <= LAST_BATCH_PAD; i++)
                ck_assert_msg(whole[i] == 1, "%u examples of %s", whole[i], tails[i]);
        ck_assert_uint_ge(resumed, 1);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("docs");
        TCase *tests = tcase_create("docs");

        suite_add_tcase(suite, tests);
        tcase_add_test(tests, test_order);
        return run_suite(suite);
}
