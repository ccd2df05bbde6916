/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What top draws of two answers of a daemon, on screens of every size, and its lines for programs. No
 * terminal is needed for it: the screen is cells.
 */

#include "base/fault.h"
#include "client/ctl/screen.h"
#include "client/ctl/top.h"
#include "tests/support/run.h"
#include "tests/unit/top-screens.h"
#include "tests/unit/top-status.h"

#include <check.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static char *draw(const struct top_view *view, uint32_t columns, uint32_t rows, bool utf8,
                  struct top_shown *shown) {
        struct screen screen;
        char *text;

        ck_assert_int_eq(screen_init(&screen, columns, rows, utf8), 0);
        top_draw(&screen, view, shown);
        text = screen_text(&screen);
        ck_assert_ptr_nonnull(text);
        screen_deinit(&screen);
        return text;
}

struct answers {
        json_t *before, *now;
        struct top_view view;
};

static void answers_init(struct answers *answers) {
        answers->before = make_status(100);
        answers->now = make_status(105);
        answers->view = (struct top_view){
                .now = answers->now, .before = answers->before, .interval = 1, .keys = true};
}

static void answers_deinit(struct answers *answers) {
        json_decref(answers->before);
        json_decref(answers->now);
}

static json_t *thing(json_t *status, const char *list, size_t index) {
        return json_array_get(json_object_get(status, list), index);
}

static void expect_words(const char *text, const char *words) {
        ck_assert_msg(strstr(text, words) != NULL, "no \"%s\" in:\n%s", words, text);
}

static unsigned count(const char *text, const char *words) {
        unsigned n = 0;

        for (; (text = strstr(text, words)); text += strlen(words))
                n++;
        return n;
}

/* ---- whole screens ---- */

static const struct {
        uint32_t columns, rows;
        bool utf8;
        const char *text;
} screens[] = {
        {200, 50, true, screen_wide},
        {80, 24, true, screen_usual},
        {80, 24, false, screen_ascii},
        {40, 10, true, screen_tiny},
};

START_TEST(test_screens) {
        struct top_shown shown;
        struct answers answers;

        answers_init(&answers);
        for (size_t i = 0; i < sizeof(screens) / sizeof(screens[0]); i++) {
                char *text =
                        draw(&answers.view, screens[i].columns, screens[i].rows, screens[i].utf8, &shown);

                ck_assert_msg(strcmp(text, screens[i].text) == 0, "%u x %u is:\n%s", screens[i].columns,
                              screens[i].rows, text);
                ck_assert_uint_eq(shown.of, MADE_JOBS);
                free(text);
        }
        answers_deinit(&answers);
}
END_TEST

/* No size is too small, and none makes a row that is too long. */
START_TEST(test_every_size) {
        struct top_shown shown;
        struct answers answers;
        struct screen measure;

        answers_init(&answers);
        ck_assert_int_eq(screen_init(&measure, 1, 1, true), 0);
        for (uint32_t columns = 1; columns <= 220; columns += columns < 30 ? 1 : 7)
                for (uint32_t rows = 1; rows <= 60; rows += rows < 15 ? 1 : 9) {
                        char *text = draw(&answers.view, columns, rows, true, &shown), *rest = text;

                        ck_assert_uint_le(count(text, "\n"), rows);
                        for (char *line; (line = strsep(&rest, "\n"));)
                                ck_assert_uint_le(screen_measure(&measure, line), columns);
                        free(text);
                }
        screen_deinit(&measure);
        answers_deinit(&answers);
}
END_TEST

/* ---- what is not as usual ---- */

START_TEST(test_without_an_earlier_answer) {
        struct top_shown shown;
        struct answers answers;
        char *text;

        answers_init(&answers);
        answers.view.before = NULL; /* what the daemon says of the last seconds, which is half as much here */
        text = draw(&answers.view, 100, 30, true, &shown);
        expect_words(text, "750        2,250   3.00x");
        free(text);
        answers.view.now = NULL;
        answers.view.notice = "no pinfeedd listens on /run/pinfeed/control.sock; waiting for one";
        text = draw(&answers.view, 40, 10, true, &shown);
        ck_assert_str_eq(text, "pinfeedctl top\n"
                               "no pinfeedd listens on\n"
                               "/run/pinfeed/control.sock; waiting for\n"
                               "one\n");
        free(text);
        answers_deinit(&answers);
}
END_TEST

/* The number of a pipeline that went and came again has fallen: nothing is known, and nothing is negative. */
START_TEST(test_another_of_the_same_name) {
        struct top_shown shown;
        struct answers answers;
        char *text;

        answers_init(&answers);
        json_object_set_new(thing(answers.now, "pipelines", 1), "rows_delivered", json_integer(10));
        json_object_del(thing(answers.now, "pipelines", 1), "recent");
        json_object_set_new(thing(answers.before, "jobs", 0), "pid", json_integer(1));
        json_object_set_new(thing(answers.now, "jobs", 0), "rows_per_second", json_real(321));
        text = draw(&answers.view, 100, 30, true, &shown);
        expect_words(text, "1,500            -");
        expect_words(text, "28%       321");
        free(text);
        answers_deinit(&answers);
}
END_TEST

START_TEST(test_notices) {
        struct top_shown shown;
        struct answers answers;
        char *text;

        answers_init(&answers);
        answers.view.paused = true;
        json_object_set_new(answers.now, "warnings", json_pack("[s, s]", "MemoryMax is too small", "more"));
        json_object_set_new(thing(answers.now, "pipelines", 2), "superseded", json_true());
        json_object_set_new(thing(answers.now, "pipelines", 2), "waiting_for",
                            json_string("waits for space"));
        text = draw(&answers.view, 80, 24, true, &shown);
        expect_words(text, "captions                   superseded");
        expect_words(text, "\n  waits for space\n");
        expect_words(text, "\npaused; space goes on\n2 warnings: MemoryMax is too small\npipeline ");
        expect_words(text, "space go on");
        free(text);
        answers_deinit(&answers);
}
END_TEST

/* Jobs are scrolled as far as there are any. */
START_TEST(test_scrolled) {
        struct top_shown shown;
        struct answers answers;
        char *text;

        answers_init(&answers);
        answers.view.first_job = 2;
        text = draw(&answers.view, 40, 10, true, &shown);
        ck_assert_uint_eq(shown.jobs, 3);
        expect_words(text, " job name (3-5 of 8)");
        expect_words(text, "\n   3 sweep");
        free(text);
        answers.view.first_job = UINT32_MAX;
        text = draw(&answers.view, 40, 10, true, &shown);
        expect_words(text, " job name (6-8 of 8)");
        free(text);
        answers_deinit(&answers);
}
END_TEST

/* An answer of another version, of which nothing is known. */
START_TEST(test_empty_answers) {
        json_t *empty = json_object(), *lists = json_pack("{s:[{}], s:[{}], s:[{}], s:[{}]}", "pipelines",
                                                          "jobs", "workers", "slots");
        struct top_view view = {.now = empty, .before = empty, .interval = 1};
        struct top_shown shown;

        free(draw(&view, 80, 24, true, &shown));
        view.now = view.before = lists;
        free(draw(&view, 80, 24, true, &shown));
        view.before = empty;
        free(draw(&view, 200, 50, false, &shown));
        json_decref(empty);
        json_decref(lists);
}
END_TEST

/* ---- many ---- */

static void set(json_t *object, const char *name, int value) {
        json_object_set_new(object, name, json_integer(value));
}

/* What there are few of is seen among a thousand, and the columns are all used. */
START_TEST(test_a_thousand_slots) {
        struct top_shown shown;
        struct answers answers;
        json_t *pipeline;
        char *text;

        answers_init(&answers);
        pipeline = thing(answers.now, "pipelines", 1);
        set(pipeline, "slots", 1000);
        set(pipeline, "slots_leased", 2);
        set(pipeline, "slots_ready", 502);
        set(pipeline, "slots_filling", 1);
        set(pipeline, "slots_quarantined", 3);
        text = draw(&answers.view, 100, 40, true, &shown);
        expect_words(text, "  ring     █▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▄x");
        ck_assert_ptr_nonnull(strstr(text, "▄x············································\n"));
        free(text);
        answers_deinit(&answers);
}
END_TEST

/* A cell is the average of several. */
START_TEST(test_a_thousand_workers) {
        struct top_shown shown;
        struct answers answers;
        json_t *workers;
        char *text;

        answers_init(&answers);
        set(thing(answers.now, "pipelines", 1), "workers_alive", 1000);
        workers = json_object_get(answers.now, "workers");
        json_array_clear(workers);
        for (int i = 0; i < 1000; i++)
                json_array_append_new(workers, json_pack("{s:s, s:i, s:f, s:f}", "pipeline", "imagenet",
                                                         "number", i, "busy_seconds", i < 500 ? 10.0 : 0.0,
                                                         "uptime_seconds", 10.0));
        text = draw(&answers.view, 100, 40, true, &shown);
        expect_words(text, "workers  ████████████");
        expect_words(text, "██████▁···············  6.5 of 1000 busy");
        free(text);
        answers_deinit(&answers);
}
END_TEST

START_TEST(test_many_pipelines) {
        struct top_shown shown;
        struct answers answers;
        char *text;

        answers_init(&answers);
        for (int i = 0; i < 300; i++) {
                json_t *copy = json_deep_copy(thing(answers.now, "pipelines", 0));
                char name[16];

                snprintf(name, sizeof(name), "more-%d", i);
                json_object_set_new(copy, "name", json_string(name));
                json_array_append_new(json_object_get(answers.now, "pipelines"), copy);
        }
        text = draw(&answers.view, 80, 24, true, &shown);
        ck_assert_ptr_nonnull(strstr(text, "\nimagenet"));
        expect_words(text, "\nand 298 more pipelines\n");
        free(text);
        answers_deinit(&answers);
}
END_TEST

/* ---- the screen itself ---- */

/* Half a wide character is none; nothing that steers a terminal comes out of a text. */
START_TEST(test_characters) {
        struct screen screen;
        char *text;

        ck_assert_int_eq(screen_init(&screen, 8, 2, true), 0);
        ck_assert_uint_eq(screen_put(&screen, 0, 5, SCREEN_PLAIN, "名前"), 7);
        screen_put(&screen, 0, 0, SCREEN_PLAIN, "a\033b\xff");
        screen_put(&screen, 1, 0, SCREEN_PLAIN, "名e\xcc\x81");
        screen_put(&screen, 1, 1, SCREEN_PLAIN, "x");
        text = screen_text(&screen);
        ck_assert_str_eq(text, "a?b? 名\n xe\n"); /* the second one would be half beyond the edge */
        free(text);
        screen_deinit(&screen);
}
END_TEST

/* A row that ends before the edge is cleared from there, one that fills it is not: the cursor waits on its
 * last character. */
START_TEST(test_bytes_for_a_terminal) {
        struct screen screen;
        char *bytes;
        size_t n;

        ck_assert_int_eq(screen_init(&screen, 3, 2, true), 0);
        screen_put(&screen, 0, 0, SCREEN_RED, "a");
        screen_put(&screen, 0, 1, SCREEN_PLAIN, "b");
        screen_put(&screen, 1, 0, SCREEN_TITLE, "c  ");
        bytes = screen_paint(&screen, true, &n);
        ck_assert_uint_eq(n, strlen(bytes));
        ck_assert_str_eq(bytes, "\033[H\033[1;31ma\033[mb\033[K\r\n\033[7mc  \033[m");
        free(bytes);
        bytes = screen_paint(&screen, false, &n);
        ck_assert_str_eq(bytes, "\033[Hab\033[K\r\nc  ");
        free(bytes);
        screen_deinit(&screen);
}
END_TEST

/* ---- lines ---- */

START_TEST(test_lines) {
        struct answers answers;
        char *text = NULL;
        size_t size;
        FILE *stream;

        answers_init(&answers);
        json_object_set_new(thing(answers.now, "pipelines", 3), "error", json_string("two\nlines"));
        stream = open_memstream(&text, &size);
        top_print_lines(stream, &answers.view, "NOW");
        fclose(stream);
        ck_assert_str_eq(
                text,
                "NOW validation idle prepared=0 delivered=0 shared=- mib=0.0 busy=0.00 workers=0 jobs=0 "
                "slots=8 "
                "leased=0 ready=0 filling=0 free=8 held_back_by=nothing nothing: no job is attached\n"
                "NOW imagenet ready prepared=1500 delivered=4500 shared=3.00 mib=646.0 busy=6.50 workers=8 "
                "jobs=4 slots=16 leased=3 ready=6 filling=3 free=4 held_back_by=workers the workers: 8 of 8 "
                "are busy all the time, and 3 jobs wait for data; raise `workers` (at least 12 are needed)\n"
                "NOW captions ready prepared=200 delivered=300 shared=1.50 mib=43.1 busy=0.25 workers=2 "
                "jobs=4 slots=64 leased=4 ready=58 filling=2 free=0 held_back_by=jobs the jobs: data lies "
                "ready for them and nobody waits; workers are busy 12 % of the time\n"
                "NOW speech failed prepared=0 delivered=0 shared=- mib=0.0 busy=0.00 workers=0 jobs=0 "
                "slots=4 leased=0 ready=0 filling=0 free=4 held_back_by=start two?lines\n");
        free(text);
        answers_deinit(&answers);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("top");
        TCase *tests = tcase_create("top");

        setlocale(LC_CTYPE, "C.UTF-8");
        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, test_screens);
        tcase_add_test(tests, test_every_size);
        tcase_add_test(tests, test_without_an_earlier_answer);
        tcase_add_test(tests, test_another_of_the_same_name);
        tcase_add_test(tests, test_notices);
        tcase_add_test(tests, test_scrolled);
        tcase_add_test(tests, test_empty_answers);
        tcase_add_test(tests, test_a_thousand_slots);
        tcase_add_test(tests, test_a_thousand_workers);
        tcase_add_test(tests, test_many_pipelines);
        tcase_add_test(tests, test_characters);
        tcase_add_test(tests, test_bytes_for_a_terminal);
        tcase_add_test(tests, test_lines);
        return run_suite(suite);
}
