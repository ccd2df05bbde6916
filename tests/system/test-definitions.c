/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs that bring their pipelines with them: which of them share one, what stands beside it, what is refused
 * and with which words. */

#include "tests/support/run.h"
#include "tests/system/private.h"

#include <check.h>

#define NAMED(name, more)                                                                                    \
        "pipelines:\n  " name ":\n"                                                                          \
        "    source: {type: synthetic, samples: 64, mode: ramp, bytes: 100}\n"                               \
        "    workers: 1\n" more

static char *state_of(struct harness *h, const char *label, char text[32]) {
        char path[128];
        json_t *status = harness_status(h), *state;

        snprintf(path, sizeof(path), "pipelines/%s/state", label);
        state = harness_member(status, path);
        snprintf(text, 32, "%s", state ? json_string_value(state) : "none");
        json_decref(status);
        return text;
}

static bool is_forgotten(struct harness *h, void *label) {
        char state[32];

        return !strcmp(state_of(h, label, state), "none");
}

/* The same in other words is the same; another one under the same name stands beside it, and the first is
 * forgotten when its jobs have left and it rests. */
START_TEST(definitions_are_shared_by_meaning) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(
                h, NAMED("p", "    batch_size: 4\n    idle: 0.2\n    shuffle: false # as it is\n"));
        struct reader first, second, other, again;
        char state[32], *output;

        reader_open_with(&first, &attach);
        attach.definition = "{\"pipelines\": {\"p\": {\"idle\": 0.20, \"batch_size\": 4, \"workers\": 1,"
                            " \"source\": {\"bytes\": 100, \"type\": \"synthetic\", \"samples\": 64,"
                            " \"mode\": \"ramp\"}}}}";
        attach.definition_file = "elsewhere.py";
        attach.pipeline = "p";
        reader_open_with(&second, &attach);
        ck_assert_str_eq(state_of(h, "p", state), "ready");
        ck_assert_str_eq(state_of(h, "p#2", state), "none");
        attach.definition = NAMED("p", "    batch_size: 16\n");
        reader_open_with(&other, &attach);
        ck_assert_str_eq(state_of(h, "p#2", state), "ready");
        reader_read_epochs(&first, 1);
        reader_read_epochs(&second, 1);
        reader_read_epochs(&other, 1);
        ck_assert_uint_eq(second.info.batch_size, 4);
        ck_assert_uint_eq(other.info.batch_size, 16);
        attach.definition = NULL; /* the name alone means the last one */
        reader_open_with(&again, &attach);
        ck_assert_uint_eq(again.info.batch_size, 16);
        ck_assert_int_eq(
                harness_run(h, PRIVATE_SOON_MS, &output, (const char *[]){"pinfeedctl", "status", NULL}), 0);
        harness_expect_words(output, "p#2");
        free(output);
        ck_assert_int_eq(
                harness_run(h, PRIVATE_SOON_MS, &output, (const char *[]){"pinfeedctl", "digest", "p", NULL}),
                0);
        free(output);
        reader_close(&first);
        reader_close(&second);
        harness_wait(h, "a definition that is forgotten", is_forgotten, (char *)"p", PRIVATE_SOON_MS);
        reader_read_epochs(&other, 1);
        reader_close(&again);
        reader_close(&other);
        ck_assert_uint_eq(private_starts(h), 1);
        private_finish(h);
}
END_TEST

static const struct {
        const char *definition, *pipeline;
        int error;
        const char *words;
} bad[] = {
        {"pipelines:\n  a: {source: {type: synthetic, samples: 9}, batch_sise: 4}\n", NULL, -EINVAL,
         "/nowhere/train.yaml:2:46: pipelines.a.batch_sise: unknown key"},
        {"pipelines:\n  a:\n\tsource: x\n", NULL, -EINVAL,
         "/nowhere/train.yaml:3:1: expected spaces, got a tab"},
        {"cpus: 3\npipelines: {a: {source: {type: synthetic, samples: 9}, batch_size: 4}}\n", NULL, -EINVAL,
         "/nowhere/train.yaml:1:7: cpus: is the daemon's"},
        {"nice: 3\npipelines: {a: {source: {type: synthetic, samples: 9}, batch_size: 4}}\n", NULL, -EINVAL,
         ":1:7: nice: is the daemon's"},
        {"pipelines: {a: {source: {type: synthetic, samples: 9}, batch_size: 4}}\nidle: 3\n", NULL, -EINVAL,
         ":2:7: idle: is the daemon's"},
        {"metrics_listen: 127.0.0.1:1\npipelines: {a: {source: {type: synthetic, samples: 9}, batch_size: "
         "4}}\n",
         NULL, -EINVAL, ":1:17: metrics_listen: is the daemon's"},
        {NAMED("a", "    batch_size: 4\n"), "b", -ENOENT,
         "no pipeline \"b\" in /nowhere/train.yaml; there are: a"},
        {"pipelines:\n  a: &a {source: {type: synthetic, samples: 9}, batch_size: 4}\n  b: *a\n", NULL,
         -EINVAL, "defines 2 pipelines, say which one is meant: a, b"},
        {"pipelines:\n  a: {source: {type: imagefolder, path: data}, transforms: [{center_crop: {size: 8}}], "
         "batch_size: 4}\n",
         NULL, -EIO, "/nowhere/data"},
};

START_TEST(bad_definition) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, bad[_i].definition);
        char text[2048];

        attach.pipeline = bad[_i].pipeline;
        reader_expect_refusal(&attach, bad[_i].error, text, sizeof(text));
        harness_expect_words(text, bad[_i].words);
        private_finish(h);
}
END_TEST

/* More than one record holds, cut in the middle of a character; and more than is allowed. */
START_TEST(long_definition) {
        static const char head[] = NAMED("long", "    batch_size: 4\n# ");
        struct harness *h = private_new();
        char text[2048], *definition = malloc(60000);
        struct pinfeed_attach attach = private_attach(h, definition);
        struct reader reader;
        size_t n = sizeof(head) - 1;

        ck_assert_ptr_nonnull(definition);
        strcpy(definition, head);
        for (; n + 3 < 49152; n += 3)
                strcpy(definition + n, "\u20ac");
        reader_open_with(&reader, &attach);
        reader_read(&reader, 4);
        reader_close(&reader);
        strcpy(definition + n, "\u20ac\u20ac");
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "at most 49152 are allowed");
        free(definition);
        private_finish(h);
}
END_TEST

/* A state names its pipeline where the job does not, and goes on there. */
START_TEST(state_of_a_definition) {
        static const char two[] =
                "pipelines:\n"
                "  a: {source: {type: synthetic, samples: 9, mode: ramp}, batch_size: 4}\n"
                "  b: {source: {type: synthetic, samples: 64, mode: ramp}, batch_size: 4}\n";
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, two);
        char state[PINFEED_STATE_MAX], text[2048];
        struct reader reader;

        attach.pipeline = "b";
        reader_open_with(&reader, &attach);
        reader_read(&reader, 3);
        ck_assert_int_gt(pinfeed_job_state(reader.job, state, sizeof(state)), 0);
        reader_close(&reader);
        attach.pipeline = NULL;
        attach.state = state;
        reader_open_with(&reader, &attach);
        reader.row = 12;
        reader_read(&reader, 3);
        reader_close(&reader);
        attach.definition = NAMED("a", "    batch_size: 4\n");
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "no pipeline \"b\"");
        private_finish(h);
}
END_TEST

START_TEST(only_a_private_daemon_takes_definitions) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        char text[2048];

        harness_write_config(h, "%s", PRIVATE_RAMP);
        harness_start(h);
        reader_expect_refusal(&attach, -EPERM, text, sizeof(text));
        harness_expect_words(text, "pipeline definitions are taken by a private daemon only");
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* As many as there is room for are in use; then one is not. */
START_TEST(too_many_definitions) {
        enum {
                MOST = 64
        };
        struct harness *h = private_new();
        struct reader readers[MOST];
        char definition[512], text[2048];
        struct pinfeed_attach attach = private_attach(h, definition);

        for (unsigned i = 0; i <= MOST; i++) {
                snprintf(definition, sizeof(definition), NAMED("p%u", "    batch_size: 4\n    slots: 2\n"),
                         i);
                if (i < MOST)
                        reader_open_with(&readers[i], &attach);
        }
        reader_expect_refusal(&attach, -ENOSPC, text, sizeof(text));
        harness_expect_words(text, "pinfeedd has 64 pipelines");
        reader_close(&readers[17]);
        while (pinfeed_open(&readers[17].job, &attach) == -ENOSPC)
                pinfeed_close(readers[17].job); /* the daemon has not seen yet that it has left */
        ck_assert_str_eq(pinfeed_error(readers[17].job), "");
        ck_assert(is_forgotten(h, (char *)"p17"));
        ck_assert_uint_eq(private_starts(h), 1); /* the same daemon: it would be started again in silence */
        for (unsigned i = 0; i < MOST; i++)
                reader_close(&readers[i]);
        private_finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("definitions");
        TCase *definitions = tcase_create("definitions");

        tcase_set_timeout(definitions, 60 * harness_slowdown());
        tcase_add_test(definitions, definitions_are_shared_by_meaning);
        tcase_add_loop_test(definitions, bad_definition, 0, sizeof(bad) / sizeof(*bad));
        tcase_add_test(definitions, long_definition);
        tcase_add_test(definitions, state_of_a_definition);
        tcase_add_test(definitions, only_a_private_daemon_takes_definitions);
        tcase_add_test(definitions, too_many_definitions);
        suite_add_tcase(suite, definitions);
        return run_suite(suite);
}
