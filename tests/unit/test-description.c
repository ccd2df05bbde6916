/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asking an interpreter what the rows of a dataset are. The interpreter is this program, started again with
 * the name of what it is to do: to answer, well or not, to end, or to say nothing at all. Whatever it does,
 * one event comes, and nothing is left.
 */

#include "daemon/description.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "daemon/config.h"
#include "daemon/interpreter.h"
#include "proto/message.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACT "--act"

/* ---- the interpreter ---- */

static void answer(struct message *message) {
        message_send(3, message, NULL, 0);
}

static void answer_described(void) {
        struct message message = {.type = MESSAGE_DESCRIBED};
        struct message_described *described = &message.described;

        *described = (struct message_described){.samples = 7, .deterministic = 1};
        strcpy(described->name, "a.B");
        strcpy(described->fields, "x=int64[] y=float32[2,3]");
        strcpy(described->layout, "{}");
        answer(&message);
}

static void answer_broken(void) {
        struct message message = {.type = MESSAGE_BROKEN};

        message.broken = (struct message_broken){.error = EBADMSG, .sample_given = 1, .sample = 3};
        strcpy(message.broken.text, "ValueError: bad");
        strcpy(message.broken.exception, "builtins.ValueError");
        strcpy(message.broken.traceback, "Traceback ...");
        answer(&message);
}

static int act(const char *how) {
        struct message message;
        int fds[4];
        size_t n_fds;

        if (!strcmp(how, "exits") || fd_set_nonblocking(3, 0) < 0)
                return 3;
        if (message_receive(3, &message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_WORKER, NULL) != 0 ||
            message.type != MESSAGE_DESCRIBE || !strstr(message.describe.recipe, "\"dataset\":\"a:b\""))
                return 4;
        if (!strcmp(how, "describes") || !strcmp(how, "describes twice"))
                answer_described();
        if (!strcmp(how, "describes twice"))
                answer_described();
        if (!strcmp(how, "breaks"))
                answer_broken();
        if (!strcmp(how, "talks nonsense"))
                send(3, "nonsense", 8, 0);
        if (!strcmp(how, "is out of turn")) {
                message = (struct message){.type = MESSAGE_INDEX};
                answer(&message);
        }
        if (!strcmp(how, "dies"))
                raise(SIGKILL);
        if (!strcmp(how, "closes"))
                close(3);
        for (;;)
                pause();
}

/* ---- the daemon ---- */

static const char *self; /* this program */
static struct description *description;
static unsigned events;
static struct message_described heard;
static struct message_broken failure;
static bool for_good;

static void on_described(void *context, const struct message_described *described) {
        events++;
        heard = *described;
        description = description_free(description, for_good);
}

static void on_failed(void *context, const struct message_broken *broken) {
        events++;
        failure = *broken;
        description = description_free(description, for_good);
}

static int start(uv_loop_t *loop, const char *program, const char *how, struct fault *fault) {
        static const struct description_events two = {.described = on_described, .failed = on_failed};
        static struct interpreter interpreter;
        struct recipe recipe = {.source = {.type = RECIPE_PYTHON}};
        int r;

        interpreter = (struct interpreter){.describe = {program, ACT, how, NULL}};
        keys_init(recipe_sources[RECIPE_PYTHON].keys, &recipe.source);
        recipe.source.dataset = strdup("a:b");
        ck_assert_int_eq(uv_loop_init(loop), 0);
        r = description_start(&description, loop, &interpreter, 0, &recipe, &two, NULL, fault);
        recipe_deinit(&recipe);
        return r;
}

/* Until everything is closed. */
static void finish(uv_loop_t *loop) {
        ck_assert_int_eq(uv_run(loop, UV_RUN_DEFAULT), 0);
        ck_assert_int_eq(uv_loop_close(loop), 0);
}

static const struct {
        const char *how, *text; /* NULL: it describes */
} cases[] = {
        {"describes", NULL},
        {"describes twice", NULL},
        {"breaks", "ValueError: bad"},
        {"talks nonsense", ""},
        {"is out of turn", "it answered with a message out of turn"},
        {"exits", "ended with exit status 3 before it had described the dataset"},
        {"dies", "was killed by signal 9 before it had described the dataset"},
        {"closes", "was killed by signal 9 before it had described the dataset"},
};

static void check_case(int i) {
        struct fault fault;
        uv_loop_t loop;
        int r = start(&loop, self, cases[i].how, &fault);

        ck_assert_msg(r == 0, "%s", fault.text);
        finish(&loop);
        ck_assert_uint_eq(events, 1);
        if (cases[i].text) {
                ck_assert_msg(strstr(failure.text, cases[i].text) != NULL, "%s", failure.text);
                ck_assert_int_eq(failure.sample_given, !strcmp(cases[i].how, "breaks"));
                return;
        }
        ck_assert_msg(heard.samples == 7, "%s", failure.text);
        ck_assert_str_eq(heard.name, "a.B");
}

START_TEST(test_answers) {
        check_case(_i);
}
END_TEST

/* As when the daemon ends: the process is not waited for. */
START_TEST(test_answers_for_good) {
        for_good = true;
        check_case(_i);
}
END_TEST

static void on_timer(uv_timer_t *timer) {
        description = description_free(description, for_good);
        uv_close((uv_handle_t *)timer, NULL);
}

/* It says nothing, and the daemon has no use for it any more. */
START_TEST(test_silence) {
        struct fault fault;
        uv_timer_t timer;
        uv_loop_t loop;

        for_good = _i;
        ck_assert_int_eq(start(&loop, self, "is silent", &fault), 0);
        uv_timer_init(&loop, &timer);
        uv_timer_start(&timer, on_timer, 50, 0);
        finish(&loop);
        ck_assert_uint_eq(events, 0);
}
END_TEST

/* A signal to a process that was never started would go to all of the daemon's group. */
START_TEST(test_no_interpreter) {
        struct fault fault;
        uv_loop_t loop;

        ck_assert_int_eq(start(&loop, "no-such-python", "", &fault), -EIO);
        ck_assert_str_eq(fault.text, "interpreter: cannot start no-such-python: no such file or directory");
        ck_assert_ptr_null(description);
        finish(&loop);
        ck_assert_uint_eq(events, 0);
}
END_TEST

/* ---- what follows from it ---- */

static const struct {
        const char *given, *found, *fields; /* NULL: refused */
} completions[] = {
        {NULL, "x=int64[]", "x=int64[]"},
        {" a=int64[]  b=uint8[2,3]", "x=int64[] y=uint8[2,3]", " a=int64[]  b=uint8[2,3]"},
        {"x=int64[]", "x=int64[] y=int64[]", NULL},
        {"x=int64[]", "x=int32[]", NULL},
        {"x=int64[3]", "x=int64[4]", NULL},
        {"x=int64[3]", "x=int64[3,1]", NULL},
        {NULL, "nonsense", NULL},
};

START_TEST(test_completion) {
        struct config_pipeline defined = {.name = (char *)"p", .batch_size = 2, .n_slots = 8, .line = 5},
                               completed;
        struct message_described described = {.samples = 9, .deterministic = 0};
        struct fault fault;
        int r;

        defined.recipe.source = (struct recipe_source){.type = RECIPE_PYTHON,
                                                       .dataset = (char *)"a:b",
                                                       .fields = (char *)completions[_i].given,
                                                       .deterministic = true};
        strcpy(described.fields, completions[_i].found);
        r = description_complete(&completed, &defined, "/f", &described, &fault);
        if (completions[_i].fields) {
                ck_assert_msg(r == 0, "%s", fault.text);
                ck_assert_str_eq(completed.recipe.source.fields, completions[_i].fields);
                ck_assert_uint_eq(completed.recipe.source.samples, 9);
                ck_assert(!completed.recipe.source.deterministic);
                ck_assert_uint_gt(completed.ring_bytes, 0);
        } else {
                ck_assert_int_lt(r, 0);
                ck_assert_msg(strstr(fault.text, "pipeline p (/f:") == fault.text, "%s", fault.text);
        }
        description_forget(&completed);
}
END_TEST

int main(int argc, char **argv) {
        Suite *suite = suite_create("description");
        TCase *tests = tcase_create("description");

        if (argc > 2 && !strcmp(argv[1], ACT))
                _exit(act(argv[2])); /* nothing of Check's is to be cleaned up here */
        self = argv[0];
        suite_add_tcase(suite, tests);
        tcase_add_loop_test(tests, test_answers, 0, sizeof(cases) / sizeof(*cases));
        tcase_add_loop_test(tests, test_answers_for_good, 0, sizeof(cases) / sizeof(*cases));
        tcase_add_loop_test(tests, test_silence, 0, 2);
        tcase_add_test(tests, test_no_interpreter);
        tcase_add_loop_test(tests, test_completion, 0, sizeof(completions) / sizeof(*completions));
        return run_suite(suite);
}
