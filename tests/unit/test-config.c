/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a configuration file is accepted with, all values compared; and that no file, however cut or changed,
 * does more than be refused.
 */

#include "daemon/config-pipeline.h"
#include "tests/support/run.h"
#include "tests/unit/config-file.h"

START_TEST(test_defaults) {
        _cleanup_(config_unrefp) struct config *config = load(HEAD SOURCE BATCH);
        const struct config_pipeline *pipeline = &config->pipelines[0];

        ck_assert_uint_eq(config->cpus, 0);
        ck_assert_int_eq(config->nice, 10);
        ck_assert(config->idle == 600);
        ck_assert_uint_eq(config->n_pipelines, 1);
        ck_assert_str_eq(pipeline->name, "a");
        ck_assert_int_eq(pipeline->recipe.source.type, RECIPE_SYNTHETIC);
        ck_assert_int_eq(pipeline->recipe.source.mode, RECIPE_FEATURES);
        ck_assert_uint_eq(pipeline->recipe.source.samples, 100);
        ck_assert_uint_eq(pipeline->recipe.source.features, 512);
        ck_assert_uint_eq(pipeline->recipe.source.delay_us, 0);
        ck_assert_uint_eq(pipeline->recipe.n_transforms, 0);
        ck_assert_uint_eq(pipeline->batch_size, 8);
        ck_assert(!pipeline->shuffle);
        ck_assert_uint_eq(pipeline->seed, 0);
        ck_assert_int_eq(pipeline->last_batch, LAST_BATCH_SHORT);
        ck_assert_uint_eq(pipeline->workers, 0);
        ck_assert(pipeline->idle == 600);
        ck_assert_uint_eq(pipeline->slots, 0);
        ck_assert_uint_eq(pipeline->ring, 0);
        ck_assert_int_eq(pipeline->backing, CONFIG_BACKING_AUTO);
        ck_assert_int_eq(pipeline->reserve, CONFIG_RESERVE_ATTACH);
        ck_assert_int_eq(pipeline->on_error, CONFIG_ON_ERROR_REPLACE);
        ck_assert(pipeline->max_errors == CONFIG_MAX_ERRORS_DEFAULT);
        ck_assert(pipeline->sample_timeout == CONFIG_SAMPLE_TIMEOUT_DEFAULT);
        ck_assert_int_eq(pipeline->sharing, CONFIG_SHARING_ELASTIC);
        ck_assert_uint_eq(pipeline->max_lead, 0);
        ck_assert(pipeline->lag_timeout == CONFIG_LAG_TIMEOUT_DEFAULT);
        ck_assert(pipeline->catch_up == CONFIG_CATCH_UP_DEFAULT);
        ck_assert_uint_eq(pipeline->warm, 0);
        ck_assert_uint_eq(pipeline->schema.n_fields, 2);
        ck_assert_uint_eq(pipeline->schema.slot_rows, 8);
        ck_assert_uint_eq(pipeline->n_slots, CONFIG_SLOTS_DEFAULT);
        ck_assert_uint_eq(pipeline->ring_bytes, 8 * pipeline->schema.slot_bytes);
        ck_assert_uint_eq(pipeline->line, 2);
        ck_assert_uint_eq(pipeline->batch_size_line, 4);
        ck_assert_uint_eq(pipeline->samples_line, 3);
        ck_assert_uint_eq(pipeline->ring_line, 2);
}
END_TEST

/* Every key, and every way to write a transform. */
static const char whole[] = "# pinfeed.yaml\n"
                            "cpus: 6\n"
                            "nice: 0\n"
                            "idle: 30.5\n"
                            "pipelines:\n"
                            "  imagenet:\n"
                            "    source: {type: imagefolder, path: /data/train}\n"
                            "    transforms:\n"
                            "      - resize: {size: [260, 270], interpolation: bicubic}\n"
                            "      - random_resized_crop: {size: 224, scale: [0.5, 1], ratio: [1, 1.5]}\n"
                            "      - random_horizontal_flip\n"
                            "      - random_horizontal_flip:\n"
                            "      - random_horizontal_flip: {}\n"
                            "      - random_horizontal_flip: {p: 1}\n"
                            "      - normalize: {mean: [0.5, 0.25, 0], std: &std [1, 2.0, 4e0]}\n"
                            "    output: {dtype: float16, layout: channels_last}\n"
                            "    batch_size: 256\n"
                            "    shuffle: true\n"
                            "    seed: 18446744073709551615\n"
                            "    last_batch: drop\n"
                            "    drop_last: true\n"
                            "    lookahead: 1000000\n"
                            "    workers: 1024\n"
                            "    idle: 0\n"
                            "    ring: 2G\n"
                            "    backing: memfd\n"
                            "    warm: 3\n"
                            "    on_error: fail\n"
                            "    max_errors: 0.25\n"
                            "    sample_timeout: 86400\n"
                            "    sharing: lockstep\n"
                            "    max_lead: 4096\n"
                            "    lag_timeout: 2.5\n"
                            "    catch_up: 0\n"
                            "  val-2.b_C:\n"
                            "    batch_size: 1\n"
                            "    transforms: [center_crop: {size: 4}, normalize: {mean: *std, std: *std}]\n"
                            "    source:\n"
                            "      path: 12\n"
                            "      type: \"imagefolder\"\n"
                            "    slots: 2\n";

static void assert_whole_recipe(const struct recipe *recipe) {
        ck_assert_str_eq(recipe->source.path, "/data/train");
        ck_assert_uint_eq(recipe->n_transforms, 7);
        ck_assert_int_eq(recipe->transforms[0].type, RECIPE_RESIZE);
        ck_assert_uint_eq(recipe->transforms[0].size[0], 260);
        ck_assert_uint_eq(recipe->transforms[0].size[1], 270);
        ck_assert_int_eq(recipe->transforms[0].interpolation, RECIPE_BICUBIC);
        ck_assert_uint_eq(recipe->transforms[1].size[0], 0);
        ck_assert_uint_eq(recipe->transforms[1].size[1], 224);
        ck_assert(recipe->transforms[1].scale[0] == 0.5 && recipe->transforms[1].scale[1] == 1);
        ck_assert(recipe->transforms[1].ratio[0] == 1 && recipe->transforms[1].ratio[1] == 1.5);
        ck_assert_int_eq(recipe->transforms[1].interpolation, RECIPE_BILINEAR);
        for (int i = 2; i < 6; i++) {
                ck_assert_int_eq(recipe->transforms[i].type, RECIPE_RANDOM_HORIZONTAL_FLIP);
                ck_assert(recipe->transforms[i].p == (i == 5 ? 1 : 0.5));
        }
        ck_assert(recipe->transforms[6].mean[1] == 0.25 && recipe->transforms[6].std[2] == 4);
        ck_assert_int_eq(recipe_output_dtype(&recipe->output), SCHEMA_FLOAT16);
        ck_assert_int_eq(recipe->output.layout, RECIPE_CHANNELS_LAST);
}

START_TEST(test_whole) {
        _cleanup_(config_unrefp) struct config *config = load(whole);
        const struct config_pipeline *pipeline = config_find(config, "imagenet");

        ck_assert_uint_eq(config->cpus, 6);
        ck_assert_int_eq(config->nice, 0);
        ck_assert_uint_eq(config->n_pipelines, 2);
        ck_assert_ptr_eq(pipeline, &config->pipelines[0]);
        assert_whole_recipe(&pipeline->recipe);
        ck_assert_uint_eq(pipeline->batch_size, 256);
        ck_assert(pipeline->shuffle);
        ck_assert_uint_eq(pipeline->seed, UINT64_MAX);
        ck_assert_int_eq(pipeline->last_batch, LAST_BATCH_DROP);
        ck_assert_uint_eq(pipeline->lookahead, CONFIG_LOOKAHEAD_MAX);
        ck_assert_uint_eq(pipeline->workers, 1024);
        ck_assert(pipeline->idle == 0 && config->idle == 30.5 && config->pipelines[1].idle == 30.5);
        ck_assert_int_eq(pipeline->backing, CONFIG_BACKING_MEMFD);
        ck_assert_int_eq(pipeline->reserve, CONFIG_RESERVE_START);
        ck_assert_int_eq(pipeline->on_error, CONFIG_ON_ERROR_FAIL);
        ck_assert(pipeline->max_errors == 0.25);
        ck_assert(pipeline->sample_timeout == 86400);
        ck_assert_int_eq(pipeline->sharing, CONFIG_SHARING_LOCKSTEP);
        ck_assert_uint_eq(pipeline->max_lead, 4096);
        ck_assert(pipeline->lag_timeout == 2.5);
        ck_assert(pipeline->catch_up == 0);
        ck_assert_uint_eq(pipeline->warm, 3);
        ck_assert_uint_eq(pipeline->ring, UINT64_C(2) << 30);
        ck_assert_uint_eq(pipeline->n_slots, (UINT64_C(2) << 30) / pipeline->schema.slot_bytes);
        ck_assert_uint_le(pipeline->ring_bytes, UINT64_C(2) << 30);
        ck_assert_uint_eq(pipeline->line, 6);
        ck_assert_uint_eq(pipeline->ring_line, 25);

        pipeline = config_find(config, "val-2.b_C");
        ck_assert_ptr_eq(pipeline, &config->pipelines[1]);
        ck_assert(strstr(pipeline->recipe.source.path, "/12"));
        ck_assert(pipeline->recipe.transforms[1].mean[2] == 4);
        ck_assert_uint_eq(pipeline->n_slots, 2);
        ck_assert_uint_eq(pipeline->ring_line, 41);
        ck_assert_ptr_null(config_find(config, "val"));
}
END_TEST

/* The ends of the ranges. */
START_TEST(test_errors) {
        _cleanup_(config_unrefp) struct config *all =
                load(HEAD SOURCE BATCH "    on_error: replace\n    max_errors: 1\n    sample_timeout: 0.5\n");
        _cleanup_(config_unrefp) struct config *none = load(HEAD SOURCE BATCH "    max_errors: 0\n");

        ck_assert_int_eq(all->pipelines[0].on_error, CONFIG_ON_ERROR_REPLACE);
        ck_assert(all->pipelines[0].max_errors == 1);
        ck_assert(all->pipelines[0].sample_timeout == 0.5);
        ck_assert(none->pipelines[0].max_errors == 0);
}
END_TEST

static int last_batch_of(const char *text) {
        _cleanup_(config_unrefp) struct config *config = load(text);

        return config->pipelines[0].last_batch;
}

START_TEST(test_last_batch) {
        ck_assert_int_eq(last_batch_of(HEAD SOURCE BATCH "    drop_last: true\n"), LAST_BATCH_DROP);
        ck_assert_int_eq(last_batch_of(HEAD SOURCE BATCH "    drop_last: false\n"), LAST_BATCH_SHORT);
        ck_assert_int_eq(last_batch_of(HEAD SOURCE BATCH "    last_batch: drop\n"), LAST_BATCH_DROP);
        ck_assert_int_eq(last_batch_of(HEAD SOURCE BATCH "    last_batch: short\n    drop_last: false\n"),
                         LAST_BATCH_SHORT);
        ck_assert_int_eq(last_batch_of(HEAD SOURCE BATCH "    last_batch: pad\n"), LAST_BATCH_PAD);
        ck_assert_int_eq(last_batch_of(HEAD SOURCE BATCH "    last_batch: pad\n    drop_last: false\n"),
                         LAST_BATCH_PAD);
        /* exactly one batch is enough, and fewer are where short ones are kept */
        last_batch_of(HEAD SOURCE "    batch_size: 100\n    drop_last: true\n");
        last_batch_of(HEAD SOURCE "    batch_size: 101\n");
}
END_TEST

static uint64_t lookahead_of(const char *text) {
        _cleanup_(config_unrefp) struct config *config = load(text);

        return config->pipelines[0].lookahead;
}

/* What is not said follows from `shuffle`, what is said does not. */
START_TEST(test_lookahead) {
        ck_assert_uint_eq(lookahead_of(HEAD SOURCE BATCH), 0);
        ck_assert_uint_eq(lookahead_of(HEAD SOURCE BATCH "    shuffle: false\n"), 0);
        ck_assert_uint_eq(lookahead_of(HEAD SOURCE BATCH "    shuffle: true\n"), 1);
        ck_assert_uint_eq(lookahead_of(HEAD SOURCE BATCH "    shuffle: true\n    lookahead: 0\n"), 0);
        ck_assert_uint_eq(lookahead_of(HEAD SOURCE BATCH "    lookahead: 3\n"), 3);
}
END_TEST

/* Case A15, the sizes that work: `slot` is what the configuration says a slot takes. */
START_TEST(test_ring_sizes) {
        static const struct {
                const char *key;
                uint32_t slots;
        } rings[] = {
                {"ring: 49152", 2},
                {"ring: 73727", 2},
                {"ring: \"64K\"", 2},
                {"ring: 25769803776", 1 << 20},
                {"slots: 2", 2},
                {"slots: 7", 7},
                {"slots: 1048576", 1 << 20},
        };

        for (size_t i = 0; i < sizeof(rings) / sizeof(*rings); i++) {
                _cleanup_(config_unrefp) struct config *config = NULL;
                char text[512];

                snprintf(text, sizeof(text), HEAD SOURCE BATCH "    %s\n", rings[i].key);
                config = load(text);
                ck_assert_uint_eq(config->pipelines[0].schema.slot_bytes, 24576);
                ck_assert_uint_eq(config->pipelines[0].n_slots, rings[i].slots);
                ck_assert_uint_eq(config->pipelines[0].ring_bytes, rings[i].slots * UINT64_C(24576));
        }
}
END_TEST

/* A ring of 2^40 bytes is one that a machine may have; its slots need 4 MiB each to stay within bounds. */
START_TEST(test_ring_of_a_tebibyte) {
        _cleanup_(config_unrefp) struct config *config =
                load(HEAD "    source: {type: synthetic, samples: 9, features: 1048576}\n" BATCH
                          "    ring: 1099511627776\n");

        ck_assert_uint_eq(config->pipelines[0].n_slots,
                          (UINT64_C(1) << 40) / config->pipelines[0].schema.slot_bytes);
}
END_TEST

/* ---- no file does more than be refused ---- */

static unsigned accepted, refused;

static void try_bytes(const char *bytes, size_t size) {
        struct config *config;
        struct fault fault;

        if (load_bytes(bytes, size, &config, &fault) == 0) {
                accepted++;
                config_unref(config);
        } else {
                refused++;
                ck_assert_uint_gt(strlen(fault.text), 0);
        }
}

START_TEST(test_prefixes) {
        for (size_t i = 0; i <= strlen(whole); i++)
                try_bytes(whole, i);
        ck_assert_uint_gt(accepted, 5);
        ck_assert_uint_gt(refused, 500);
}
END_TEST

START_TEST(test_mutations) {
        static const char instead[] = "\0\t\n \"'#&*!|>%@`-?:,[]{}0x~a\x7f\xff\xc3";
        size_t step = getenv("PINFEED_TEST_QUICK") ? 10 : 1;
        char text[sizeof(whole)];

        for (size_t i = 0; i < strlen(whole); i++)
                for (size_t j = i % step; j < sizeof(instead); j += step) {
                        memcpy(text, whole, sizeof(whole));
                        text[i] = instead[j];
                        try_bytes(text, strlen(whole));
                }
        ck_assert_uint_gt(accepted, 500 / step);
        ck_assert_uint_gt(refused, 5000 / step);
}
END_TEST

START_TEST(test_deletions) {
        char text[sizeof(whole)];

        for (size_t length = 1; length < 40; length = length * 2 + 1)
                for (size_t i = 0; i + length <= strlen(whole); i++) {
                        memcpy(text, whole, i);
                        memcpy(text + i, whole + i + length, strlen(whole) - i - length);
                        try_bytes(text, strlen(whole) - length);
                }
        ck_assert_uint_gt(accepted, 50);
        ck_assert_uint_gt(refused, 1000);
}
END_TEST

/* ---- definitions ---- */

static struct config *define(const char *text) {
        _cleanup_(config_unrefp) struct config *daemon =
                load("nice: 3\nidle: 7\ncpus: 2\n" HEAD SOURCE BATCH);
        struct config *config;
        struct fault fault;
        int r = config_define(&config, "/data/train.py", text, daemon, &fault);

        ck_assert_msg(r == 0, "%s", fault.text);
        return config;
}

/* It is said to stand in its file, and has from the daemon what it may not say. */
START_TEST(test_definition) {
        _cleanup_(config_unrefp) struct config *config =
                define("pipelines: {a: {source: {type: imagefolder, path: x/y}, batch_size: 4, "
                       "transforms: [{center_crop: {size: 4}}]}}");

        ck_assert_str_eq(config->file, "/data/train.py");
        ck_assert_str_eq(config->pipelines[0].recipe.source.path, "/data/x/y");
        ck_assert_int_eq(config->nice, 3);
        ck_assert_uint_eq(config->cpus, 2);
        ck_assert(config->pipelines[0].idle == 7);
}
END_TEST

static const struct {
        const char *more;
        bool same, alike;
} others[] = {
        {"", true, true},
        {"    # a comment\n    shuffle: false\n", true, true},
        {"    seed: 0\n    transforms: []\n    idle: 7\n", true, true},
        {"    seed: 1\n", false, false},
        {"    shuffle: true\n", false, false},
        {"    slots: 9\n", false, false},
        {"    on_error: fail\n", false, false},
        {"    warm: 1\n", false, false},
        {"    sharing: lockstep\n", false, false},
        {"    idle: 8\n", false, true},
        {"    workers: 1\n", false, true},
        {"    max_errors: 0.5\n", false, true},
        {"    reserve: start\n", false, true},
        {"    sample_timeout: 7\n    catch_up: 7\n    lookahead: 7\n", false, true},
        {"    workers: 1\n    seed: 1\n", false, false},
};

START_TEST(test_sameness) {
        char text[512];
        _cleanup_(config_unrefp) struct config *one = define(HEAD SOURCE BATCH), *other = NULL;

        snprintf(text, sizeof(text), "%s%s", HEAD SOURCE BATCH, others[_i].more);
        other = define(text);
        ck_assert_int_eq(config_is_same(&one->pipelines[0], &other->pipelines[0]), others[_i].same);
        ck_assert_int_eq(config_is_alike(&one->pipelines[0], &other->pipelines[0]), others[_i].alike);
}
END_TEST

/* What one holder lets go of the others still have. */
START_TEST(test_references) {
        struct config *config = load(HEAD SOURCE BATCH), *same = config_ref(config);

        ck_assert_ptr_eq(config, same);
        ck_assert_ptr_null(config_unref(config));
        ck_assert_str_eq(same->pipelines[0].name, "a");
        config_unref(same);
        ck_assert_ptr_null(config_unref(NULL));
}
END_TEST

#define BROUGHT_SOURCE "    source: {type: python, brought: true, fields: 'x=int64[]', identity: %s}\n"

static const struct {
        const char *identity, *more;
        bool same;
} others_brought[] = {
        {"me", "", true},
        {"you", "", false},
        {"me", "    shuffle: true\n", false},
        {"me", "    on_error: replace\n", false},
        {"me", "    max_errors: 0.5\n", false},
        {"me", "    seed: 1\n    workers: 3\n    slots: 9\n    lookahead: 0\n    drop_last: true\n", true},
};

/* What the rows are is compared, not how they are prepared. */
START_TEST(test_sameness_of_what_is_brought) {
        char text[512];
        _cleanup_(config_unrefp) struct config *one = NULL, *other = NULL;

        snprintf(text, sizeof(text), HEAD BROUGHT_SOURCE BATCH, "me");
        one = define(text);
        snprintf(text, sizeof(text), HEAD BROUGHT_SOURCE "    batch_size: 4\n%s", others_brought[_i].identity,
                 others_brought[_i].more);
        other = define(text);
        ck_assert_int_eq(config_is_same(&one->pipelines[0], &other->pipelines[0]), others_brought[_i].same);
}
END_TEST

START_TEST(test_given_orders_come_one_by_one) {
        _cleanup_(config_unrefp) struct config *config =
                define(HEAD "    source: {type: python, brought: true, fields: 'x=int64[]', given_order: "
                            "true}\n    shuffle: true\n" BATCH);

        ck_assert_uint_eq(config->pipelines[0].lookahead, 0);
}
END_TEST

#define DATASET(more)                                                                                        \
        HEAD "    source:\n      type: python\n      dataset: 'a.b:c'\n" more                                \
             "    batch_size: 8\n    ring: 64K\n    warm: 3\n"

/* What its rows are is not known yet. */
START_TEST(test_dataset) {
        _cleanup_(config_unrefp) struct config *config =
                define(DATASET("      args: {n: 3, f: 0.5, nest: [a, {b: null, c: '7'}, true], &x y: [*x]}\n"
                               "      path: [code, /lib]\n"
                               "      interpreter: venv/bin/python\n"));
        const struct config_pipeline *pipeline = &config->pipelines[0];
        const struct recipe_source *source = &pipeline->recipe.source;

        ck_assert_str_eq(source->dataset, "a.b:c");
        ck_assert_str_eq(source->args, "{\"n\":3,\"f\":0.5,\"nest\":[\"a\",{\"b\":null,\"c\":\"7\"},true],"
                                       "\"y\":[\"y\"]}");
        ck_assert_str_eq(source->import_path, "[\"/data/code\",\"/lib\"]");
        ck_assert_str_eq(source->interpreter, "/data/venv/bin/python");
        ck_assert_ptr_null(source->fields);
        ck_assert_uint_eq(source->samples, 0);
        ck_assert_int_eq(pipeline->on_error, CONFIG_ON_ERROR_FAIL);
        ck_assert_uint_eq(pipeline->schema.n_fields, 0);
        ck_assert_uint_eq(pipeline->ring_bytes, 0);
        ck_assert_int_eq(pipeline->reserve, CONFIG_RESERVE_START);
}
END_TEST

START_TEST(test_dataset_defaults) {
        _cleanup_(config_unrefp) struct config *config = define(DATASET("") "    on_error: replace\n");
        const struct recipe_source *source = &config->pipelines[0].recipe.source;

        ck_assert_str_eq(source->args, "{}");
        ck_assert_str_eq(source->import_path, "[]");
        ck_assert_str_eq(source->interpreter, "python3");
        ck_assert_int_eq(config->pipelines[0].on_error, CONFIG_ON_ERROR_REPLACE);
}
END_TEST

static const struct {
        const char *fields, *error; /* NULL: it can be */
} completions[] = {
        {"x=int64[]", NULL},
        {"x=uint8[1000]", NULL},
        {"x=uint8[8192]", "pipeline a (/data/train.py:7): ring: expected at least 139264 bytes (2 slots of "
                          "69632 bytes), got 65536"},
        {"x=uint8[3000]", "pipeline a (/data/train.py:2): warm: expected at most the ring's 2 slots, got 3"},
        {"x=uint8[9223372036854775807]", "pipeline a (/data/train.py:6): batch_size: field x: 8 rows"},
};

/* As when a worker has said what its rows are. */
START_TEST(test_dataset_completed) {
        _cleanup_(config_unrefp) struct config *config = define(DATASET(""));
        struct config_pipeline *pipeline = &config->pipelines[0];
        struct fault fault;
        int r;

        pipeline->recipe.source.fields = strdup(completions[_i].fields);
        r = config_complete_pipeline(pipeline, config->file, &fault);
        if (!completions[_i].error) {
                ck_assert_msg(r == 0, "%s", fault.text);
                ck_assert_uint_eq(pipeline->schema.slot_rows, 8);
                ck_assert_uint_eq(pipeline->n_slots, 65536 / pipeline->schema.slot_bytes);
                ck_assert_uint_eq(pipeline->ring_bytes, pipeline->n_slots * pipeline->schema.slot_bytes);
                return;
        }
        ck_assert_int_lt(r, 0);
        ck_assert_msg(strstr(fault.text, completions[_i].error) == fault.text, "%s", fault.text);
}
END_TEST

START_TEST(test_other_recipe) {
        _cleanup_(config_unrefp) struct config *one = define(HEAD IMAGES CROP BATCH),
                                               *other = define(
                                                       HEAD IMAGES
                                                       "    transforms: [{center_crop: {size: 5}}]\n" BATCH);

        ck_assert(!config_is_same(&one->pipelines[0], &other->pipelines[0]));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("config");
        TCase *tests = tcase_create("config");

        suite_add_tcase(suite, tests);
        tcase_set_timeout(tests, 120);
        tcase_add_test(tests, test_defaults);
        tcase_add_test(tests, test_whole);
        tcase_add_test(tests, test_errors);
        tcase_add_test(tests, test_last_batch);
        tcase_add_test(tests, test_lookahead);
        tcase_add_test(tests, test_ring_sizes);
        tcase_add_test(tests, test_ring_of_a_tebibyte);
        tcase_add_test(tests, test_definition);
        tcase_add_test(tests, test_references);
        tcase_add_loop_test(tests, test_sameness, 0, sizeof(others) / sizeof(*others));
        tcase_add_loop_test(tests, test_sameness_of_what_is_brought, 0,
                            sizeof(others_brought) / sizeof(*others_brought));
        tcase_add_test(tests, test_given_orders_come_one_by_one);
        tcase_add_test(tests, test_dataset);
        tcase_add_test(tests, test_dataset_defaults);
        tcase_add_loop_test(tests, test_dataset_completed, 0, sizeof(completions) / sizeof(*completions));
        tcase_add_test(tests, test_other_recipe);
        tcase_add_test(tests, test_prefixes);
        tcase_add_test(tests, test_mutations);
        tcase_add_test(tests, test_deletions);
        return run_suite(suite);
}
