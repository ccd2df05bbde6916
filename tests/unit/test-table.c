/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tables of pinfeedctl on terminals of any width: no line is longer, and no number is cut.
 */

#include "client/ctl/table.h"
#include "tests/support/run.h"
#include "tests/support/terminal.h"

#include <check.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum {
        COLUMNS_WHOLE = 200,
};

static void print_jobs(void *context) {
        struct table table;

        table_init(&table, "r job|L name|r pid|L pipeline|r rows prepared|r rows prepared again|T reason");
        for (unsigned i = 1; i <= 4; i++) {
                table_add(&table, "%u", i);
                table_add(&table, "train-resnet-with-a-long-name-%u", i);
                table_add(&table, "%u", 4123450 + i);
                table_add(&table, "flowers-validation");
                table_add(&table, "12,345,67%u", i);
                table_add(&table, "%u", i);
                table_add(&table, "the file is shorter than it says %u times", i);
        }
        table_print(&table);
        table_deinit(&table);
}

static void print_names(void *context) {
        struct table table;

        table_init(&table, "L name|r rows");
        table_add(&table, "ein-äußerst-langer-name-für-eine-prüfung-mit-umlauten-und-mehr-äöü");
        table_add(&table, "%u", 1234567890);
        table_print(&table);
        table_deinit(&table);
}

static void print_text(void *context) {
        table_print_text(3, "p: %s", (const char *)context);
}

static unsigned count(const char *text, const char *words) {
        unsigned n = 0;

        for (; (text = strstr(text, words)); text += strlen(words))
                n++;
        return n;
}

static void expect_no_trailing_spaces(const char *text) {
        ck_assert_msg(!strstr(text, " \n"), "spaces at the end of a line in:\n%s", text);
}

/* All numbers are there, whatever the width, and each piece says which job it is about. */
static void expect_whole(const char *text, unsigned columns) {
        static const char *const numbers[] = {"4123451",    "4123454", "12,345,671",
                                              "12,345,674", "\n  1  ", "\n  4  "};

        ck_assert_msg(terminal_longest_line(text) <= columns, "a line of %zu columns of %u in:\n%s",
                      terminal_longest_line(text), columns, text);
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                ck_assert_msg(strstr(text, numbers[i]) != NULL, "no %s in:\n%s", numbers[i], text);
        ck_assert_uint_eq(count(text, "\njob ") + 1, count(text, "\n  4  "));
        expect_no_trailing_spaces(text);
}

START_TEST(test_every_width) {
        for (unsigned columns = TABLE_LIMIT_LEAST; columns <= COLUMNS_WHOLE; columns++) {
                char *text = terminal_run((uint16_t)columns, print_jobs, NULL);

                expect_whole(text, columns);
                free(text);
        }
}
END_TEST

START_TEST(test_what_gives_way) {
        char *text = terminal_run(COLUMNS_WHOLE, print_jobs, NULL);

        ck_assert_uint_eq(count(text, "\n"), 5);
        ck_assert_uint_eq(count(text, "rows prepared  rows prepared again  reason"), 1);
        ck_assert_uint_eq(count(text, "train-resnet-with-a-long-name-4"), 1);
        free(text);

        text = terminal_run(110, print_jobs, NULL); /* titles and texts are broken */
        ck_assert_uint_eq(count(text, "\njob "), 0);
        ck_assert_uint_eq(count(text, "rows prepared again"), 0);
        ck_assert_uint_eq(count(text, "the file is shorter than"), 0);
        ck_assert_uint_eq(count(text, "times"), 4);
        ck_assert_uint_eq(count(text, "train-resnet-with-a-long-name-4"), 1);
        free(text);

        text = terminal_run(80, print_jobs, NULL); /* names are cut */
        ck_assert_uint_eq(count(text, "\njob "), 0);
        ck_assert_uint_eq(count(text, "train-resnet-with-a-long-name-4"), 0);
        ck_assert_uint_ge(count(text, "~"), 4);
        free(text);

        text = terminal_run(60, print_jobs, NULL); /* pieces */
        ck_assert_uint_ge(count(text, "\njob "), 1);
        free(text);
}
END_TEST

/* Without its middle, and not through a character. */
START_TEST(test_names_of_many_bytes) {
        char *text = terminal_run(60, print_names, NULL);

        ck_assert_uint_eq(terminal_longest_line(text), 60);
        ck_assert_ptr_nonnull(
                strstr(text, "\nein-äußerst-langer-name-für-~lauten-und-mehr-äöü  1234567890\n"));
        free(text);
}
END_TEST

START_TEST(test_text) {
        static const char words[] = "nothing: nobody waits for data; workers are busy 97 % of the time, and "
                                    "that is how it should be";
        char *text = terminal_run(60, print_text, (void *)words);

        ck_assert_str_eq(text, "p: nothing: nobody waits for data; workers are busy 97 % of\n"
                               "   the time, and that is how it should be\n");
        free(text);
        text = terminal_run(COLUMNS_WHOLE, print_text, (void *)words);
        ck_assert_uint_eq(count(text, "\n"), 1);
        free(text);
}
END_TEST

/* A terminal that does not know its width, and one that has hardly any. */
START_TEST(test_where_the_limit_comes_from) {
        char *text;

        setenv("COLUMNS", "70", 1);
        text = terminal_run(0, print_jobs, NULL);
        expect_whole(text, 70);
        free(text);
        text = terminal_run(COLUMNS_WHOLE, print_jobs, NULL); /* its own word comes first */
        ck_assert_uint_gt(terminal_longest_line(text), 100);
        free(text);
        setenv("COLUMNS", "wide", 1);
        text = terminal_run(0, print_jobs, NULL);
        ck_assert_uint_gt(terminal_longest_line(text), 100);
        free(text);
        text = terminal_run(20, print_jobs, NULL);
        expect_whole(text, TABLE_LIMIT_LEAST);
        free(text);
}
END_TEST

/* Whoever reads it through a pipe gets whole names. */
START_TEST(test_no_terminal) {
        int ends[2], before = dup(STDOUT_FILENO);
        uint32_t limit;

        setenv("COLUMNS", "70", 1);
        ck_assert_int_eq(pipe(ends), 0);
        fflush(stdout);
        dup2(ends[1], STDOUT_FILENO);
        limit = table_limit();
        dup2(before, STDOUT_FILENO);
        ck_assert_uint_eq(limit, TABLE_NO_LIMIT);
        close(before);
        close(ends[0]);
        close(ends[1]);
}
END_TEST

START_TEST(test_bar) {
        char bar[TABLE_BAR_MAX];

        ck_assert_str_eq(table_bar(bar, 4, 0, 10), "░░░░");
        ck_assert_str_eq(table_bar(bar, 4, 5, 10), "██░░");
        ck_assert_str_eq(table_bar(bar, 4, 9, 10), "███░"); /* not full before it is */
        ck_assert_str_eq(table_bar(bar, 4, 10, 10), "████");
        ck_assert_str_eq(table_bar(bar, 4, 20, 10), "████");
        ck_assert_str_eq(table_bar(bar, 2, 0, 0), "░░");
        ck_assert_str_eq(table_bar(bar, 2, UINT64_MAX - 1, UINT64_MAX), "██");
        ck_assert_uint_eq(strlen(table_bar(bar, 1000, 1, 2)), TABLE_BAR_MAX - 1);
        setlocale(LC_ALL, "C");
        ck_assert_str_eq(table_bar(bar, 4, 5, 10), "##..");
}
END_TEST

int main(void) {
        Suite *suite = suite_create("table");
        TCase *tests = tcase_create("table");

        setlocale(LC_ALL, "C.UTF-8"); /* names are not question marks */
        setenv("NO_COLOR", "1", 1);
        suite_add_tcase(suite, tests);
        tcase_add_test(tests, test_every_width);
        tcase_add_test(tests, test_what_gives_way);
        tcase_add_test(tests, test_names_of_many_bytes);
        tcase_add_test(tests, test_text);
        tcase_add_test(tests, test_where_the_limit_comes_from);
        tcase_add_test(tests, test_no_terminal);
        tcase_add_test(tests, test_bar);
        return run_suite(suite);
}
