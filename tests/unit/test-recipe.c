/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Recipes: their tables, so that a new key cannot come without help or with a default that it would refuse;
 * their text there and back; what they may not say; and that nothing which comes as a message does harm. */

#include "proto/recipe.h"

#include "base/fault.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text) {
        json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);

        ck_assert_msg(json != NULL, "%s", text);
        return json;
}

/* ---- the tables ---- */

/* Every default is a value that the key itself would take, every key says what it is. */
static void check_table(const struct key *table) {
        struct recipe_transform big[4]; /* as large as any struct that has a table */
        struct fault fault;

        ck_assert_uint_ge(sizeof(big), sizeof(struct recipe_source));
        memset(big, 0, sizeof(big));
        for (const struct key *key = table; key->name; key++) {
                ck_assert_msg(key->help && *key->help, "%s", key->name);
                ck_assert_ptr_eq(keys_find(table, key->name), key);
                if (key->fallback) {
                        json_t *json = parse(key->fallback);

                        ck_assert_msg(keys_set(key, big, json, &fault) == 0, "%s", fault.text);
                        json_decref(json);
                }
        }
        keys_deinit(table, big);
}

START_TEST(test_tables) {
        static const char *const transforms[] = {"resize", "center_crop", "random_resized_crop",
                                                 "random_horizontal_flip", "normalize"};

        ck_assert_str_eq(recipe_sources[RECIPE_SYNTHETIC].name, "synthetic");
        ck_assert_str_eq(recipe_sources[RECIPE_IMAGEFOLDER].name, "imagefolder");
        ck_assert_str_eq(recipe_sources[RECIPE_PYTHON].name, "python");
        for (int i = 0; recipe_sources[i].name; i++)
                check_table(recipe_sources[i].keys);
        for (int i = 0; recipe_transforms[i].name; i++) {
                ck_assert_str_eq(recipe_transforms[i].name, transforms[i]);
                check_table(recipe_transforms[i].keys);
        }
        check_table(recipe_output_keys);
        ck_assert_str_eq(recipe_synthetic_modes[RECIPE_FEATURES], "features");
        ck_assert_str_eq(recipe_synthetic_modes[RECIPE_RAMP], "ramp");
}
END_TEST

/* torchvision's defaults, to the bit. */
START_TEST(test_torchvision_defaults) {
        struct recipe_transform transform;

        keys_init(recipe_transforms[RECIPE_RANDOM_RESIZED_CROP].keys, &transform);
        ck_assert(transform.scale[0] == 0.08 && transform.scale[1] == 1.0);
        ck_assert(transform.ratio[0] == 3. / 4. && transform.ratio[1] == 4. / 3.);
        ck_assert_int_eq(transform.interpolation, RECIPE_BILINEAR);
        keys_init(recipe_transforms[RECIPE_RESIZE].keys, &transform);
        ck_assert(transform.interpolation == RECIPE_BILINEAR && transform.max_size == 0);
        keys_init(recipe_transforms[RECIPE_RANDOM_HORIZONTAL_FLIP].keys, &transform);
        ck_assert(transform.p == 0.5);
}
END_TEST

/* ---- recipes ---- */

#define IMAGES(transforms, output)                                                                           \
        "{\"source\": {\"type\": \"imagefolder\", \"path\": \"/data\"}, \"transforms\": [" transforms        \
        "], \"output\": {" output "}}"
#define SYNTHETIC(keys)                                                                                      \
        "{\"source\": {\"type\": \"synthetic\", \"samples\": 10" keys "}, \"transforms\": [], \"output\": "  \
        "{}}"

#define PYTHON(keys) "{\"source\": {\"type\": \"python\", " keys "}, \"transforms\": [], \"output\": {}}"

#define RESIZE    "{\"resize\": {\"size\": 256}}"
#define CROP      "{\"center_crop\": {\"size\": 224}}"
#define RRC       "{\"random_resized_crop\": {\"size\": [192, 160]}}"
#define FLIP      "{\"random_horizontal_flip\": {}}"
#define NORMALIZE "{\"normalize\": {\"mean\": [0.485, 0.456, 0.406], \"std\": [0.229, 0.224, 0.225]}}"

static int read_recipe(struct recipe *recipe, const char *text, struct fault *fault) {
        json_t *json = parse(text);
        int r = recipe_from_json(recipe, json, fault);

        json_decref(json);
        return r;
}

static void must_read(struct recipe *recipe, const char *text) {
        struct fault fault;

        ck_assert_msg(read_recipe(recipe, text, &fault) == 0, "%s", fault.text);
}

static void check_text(const char *from, const char *to) {
        struct recipe recipe;

        for (int i = 0; i < 2; i++) {
                json_t *json;
                char *text;

                must_read(&recipe, i == 0 ? from : to);
                json = recipe_to_json(&recipe);
                text = json_dumps(json, JSON_COMPACT);
                ck_assert_str_eq(text, to);
                free(text);
                json_decref(json);
                recipe_deinit(&recipe);
        }
}

START_TEST(test_recipe_text) {
        check_text(IMAGES(RRC ", " FLIP ", " NORMALIZE, "\"layout\": \"hwc\""),
                   "{\"source\":{\"type\":\"imagefolder\",\"path\":\"/data\",\"damaged\":\"refuse\","
                   "\"orient\":\"ignore\",\"max_pixels\":178956970,\"max_scans\":100,"
                   "\"max_file_bytes\":1073741824,\"identity\":null},\"transforms\":["
                   "{\"random_resized_crop\":{\"size\":[192,160],\"scale\":[0.080000000000000002,1.0],"
                   "\"ratio\":[0.75,1.3333333333333333],\"interpolation\":\"bilinear\"}},"
                   "{\"random_horizontal_flip\":{\"p\":0.5}},"
                   "{\"normalize\":{\"mean\":[0.48499999999999999,0.45600000000000002,0.40600000000000003],"
                   "\"std\":[0.22900000000000001,0.224,0.22500000000000001]}}],"
                   "\"output\":{\"dtype\":\"float32\",\"layout\":\"hwc\"}}");
        check_text(SYNTHETIC(", \"bytes\": \"1K\", \"mode\": \"ramp\""),
                   "{\"source\":{\"type\":\"synthetic\",\"mode\":\"ramp\",\"samples\":10,\"features\":512,"
                   "\"bytes\":1024,\"delay_us\":0,\"slow_sample\":0,\"slow_every\":0,\"slow_us\":0,"
                   "\"die_sample\":0,\"die_every\":0,\"die_how\":\"raise\",\"die_times\":0,"
                   "\"die_counter\":null},"
                   "\"transforms\":[],\"output\":{\"dtype\":\"float32\",\"layout\":\"chw\"}}");
}
END_TEST

static void check_field(const struct schema_field *field, const char *name, enum schema_dtype dtype,
                        uint32_t n_dims, uint64_t a, uint64_t b, uint64_t c) {
        ck_assert_str_eq(field->name, name);
        ck_assert_int_eq(field->dtype, dtype);
        ck_assert_uint_eq(field->n_dims, n_dims);
        ck_assert(n_dims < 1 || field->shape[0] == a);
        ck_assert(n_dims < 2 || field->shape[1] == b);
        ck_assert(n_dims < 3 || field->shape[2] == c);
        ck_assert_int_eq(field->kind, SCHEMA_FIXED);
}

static struct schema schema_of(const char *text) {
        struct recipe recipe;
        struct schema schema;

        must_read(&recipe, text);
        recipe_schema(&recipe, &schema);
        recipe_deinit(&recipe);
        ck_assert_uint_eq(schema.n_fields, 2);
        return schema;
}

START_TEST(test_schema_synthetic) {
        struct schema schema = schema_of(SYNTHETIC(""));

        check_field(&schema.fields[0], "features", SCHEMA_FLOAT32, 1, 512, 0, 0);
        check_field(&schema.fields[1], "labels", SCHEMA_INT64, 0, 0, 0, 0);
        schema = schema_of(SYNTHETIC(", \"mode\": \"ramp\", \"bytes\": 0"));
        check_field(&schema.fields[0], "index", SCHEMA_INT64, 0, 0, 0, 0);
        check_field(&schema.fields[1], "data", SCHEMA_UINT8, 1, 0, 0, 0);
        schema = schema_of(SYNTHETIC(", \"mode\": \"ramp\""));
        check_field(&schema.fields[1], "data", SCHEMA_UINT8, 1, 1024, 0, 0);
        if (!recipe_synthetic_modes[RECIPE_RNG])
                return;
        schema = schema_of(SYNTHETIC(", \"mode\": \"slow\", \"bytes\": 5"));
        check_field(&schema.fields[1], "data", SCHEMA_UINT8, 1, 5, 0, 0);
        schema = schema_of(SYNTHETIC(", \"mode\": \"die\", \"bytes\": 6"));
        check_field(&schema.fields[1], "data", SCHEMA_UINT8, 1, 6, 0, 0);
        schema = schema_of(SYNTHETIC(", \"mode\": \"rng\""));
        check_field(&schema.fields[0], "index", SCHEMA_INT64, 0, 0, 0, 0);
        check_field(&schema.fields[1], "draws", SCHEMA_UINT8, 1, 32, 0, 0);
}
END_TEST

START_TEST(test_schema_images) {
        struct schema schema = schema_of(IMAGES(RRC, ""));

        check_field(&schema.fields[0], "images", SCHEMA_FLOAT32, 3, 3, 192, 160);
        check_field(&schema.fields[1], "labels", SCHEMA_INT64, 0, 0, 0, 0);
        ck_assert_int_eq(schema.fields[0].order, SCHEMA_ROW_MAJOR);
        schema = schema_of(IMAGES(RRC, "\"layout\": \"hwc\", \"dtype\": \"uint8\""));
        check_field(&schema.fields[0], "images", SCHEMA_UINT8, 3, 192, 160, 3);
        ck_assert_int_eq(schema.fields[0].order, SCHEMA_ROW_MAJOR);
        schema = schema_of(IMAGES(RRC, "\"layout\": \"channels_last\", \"dtype\": \"bfloat16\""));
        check_field(&schema.fields[0], "images", SCHEMA_BFLOAT16, 3, 3, 192, 160);
        ck_assert_int_eq(schema.fields[0].order, SCHEMA_CHANNELS_LAST);
        schema = schema_of(IMAGES(RESIZE ", " CROP ", " FLIP, "\"dtype\": \"float16\""));
        check_field(&schema.fields[0], "images", SCHEMA_FLOAT16, 3, 3, 224, 224);
        schema = schema_of(IMAGES("{\"resize\": {\"size\": [8, 9]}}", ""));
        check_field(&schema.fields[0], "images", SCHEMA_FLOAT32, 3, 3, 8, 9);
}
END_TEST

static bool is_zero(const struct recipe *recipe) {
        static const struct recipe zero;

        return memcmp(recipe, &zero, sizeof(zero)) == 0;
}

START_TEST(test_schema_python) {
        struct recipe recipe;
        struct schema schema;

        must_read(&recipe,
                  PYTHON("\"brought\": true, \"fields\": \" image=float32[3,224,1] label=int64[] \""));
        recipe_schema(&recipe, &schema);
        ck_assert_uint_eq(schema.n_fields, 2);
        ck_assert_str_eq(schema.fields[0].name, "image");
        ck_assert_int_eq(schema.fields[0].dtype, SCHEMA_FLOAT32);
        ck_assert_uint_eq(schema.fields[0].n_dims, 3);
        ck_assert_uint_eq(schema.fields[0].shape[1], 224);
        ck_assert_str_eq(schema.fields[1].name, "label");
        ck_assert_int_eq(schema.fields[1].dtype, SCHEMA_INT64);
        ck_assert_uint_eq(schema.fields[1].n_dims, 0);
        recipe_deinit(&recipe);
}
END_TEST

START_TEST(test_recipe_refused) {
        static const struct {
                const char *json, *text;
        } cases[] = {
                {"[]", "expected source, transforms and output, and nothing else"},
                {"7", "expected source, transforms and output, and nothing else"},
                {"{\"source\": 1, \"transforms\": 2, \"output\": 3}", "source: type: not one of the sources"},
                {"{\"source\": {\"type\": \"synthetic\", \"samples\": 1}, \"transforms\": []}",
                 "expected source, transforms and output, and nothing else"},
                {"{\"source\": {\"type\": \"synthetic\"}, \"transforms\": [], \"output\": {}}",
                 "source: samples: required"},
                {SYNTHETIC(", \"samples\": 0"),
                 "source: samples: expected a whole number from 1 to 281474976710656, got 0"},
                {SYNTHETIC(", \"sample\": 1"), "source: sample: unknown key"},
                {SYNTHETIC(", \"mode\": \"fast\""), "source: mode: expected one of features, ramp"},
                {SYNTHETIC(", \"path\": \"/\""), "source: path: unknown key"},
                {"{\"source\": {\"type\": \"synthetic\", \"samples\": 1}, \"transforms\": [" CROP
                 "], \"output\": {}}",
                 "transforms[0]: expected no transforms, a synthetic source has no images"},
                {SYNTHETIC(", \"die_times\": 2"), "source: expected die_counter where die_times is set"},
                {SYNTHETIC(", \"die_counter\": \"\""), "source: die_counter: expected text"},
                {SYNTHETIC(", \"die_how\": \"sleep\""),
                 "source: die_how: expected one of raise, raise_ugly, read_error, exit, abort, segv, bus, "
                 "kill9, hang, oom, got \"sleep\""},
                {PYTHON("\"fields\": \"x=int64[]\""),
                 "source: expected a dataset, as package.module:factory, or `brought: true`, got neither"},
                {PYTHON("\"fields\": \"x=int64[]\", \"dataset\": \"a:b\", \"brought\": true"),
                 "source: expected a dataset, as package.module:factory, or `brought: true`, got both"},
                {PYTHON("\"fields\": \"x=int64[]\", \"dataset\": \"a.b\""),
                 "source: dataset: expected package.module:factory, got no colon"},
                {PYTHON("\"fields\": \"  \", \"brought\": true"),
                 "source: fields: expected NAME=DTYPE[DIMENSIONS], got nothing"},
                {PYTHON("\"fields\": \"x=int64\", \"brought\": true"),
                 "source: fields: expected NAME=DTYPE[DIMENSIONS], got \"x=int64\""},
                {PYTHON("\"fields\": \"x=int63[]\", \"brought\": true"),
                 "source: fields: x: no dtype is called \"int63\""},
                {PYTHON("\"fields\": \"x=int64[3,]\", \"brought\": true"),
                 "source: fields: x: expected a number, got \"\""},
                {PYTHON("\"fields\": \"x=int64[1,1,1,1,1,1,1]\", \"brought\": true"),
                 "source: fields: x: expected at most 6 dimensions"},
                {IMAGES("", ""), "source: expected images of one size at the end, got whatever the files "
                                 "have: add center_crop"},
                {IMAGES(FLIP, ""), "source: expected images of one size at the end, got whatever the files "
                                   "have: add center_crop"},
                {IMAGES(RESIZE, ""),
                 "transforms[0]: expected images of one size at the end, got the shorter edge "
                 "only: add center_crop"},
                {IMAGES(CROP ", " FLIP ", " RESIZE ", " NORMALIZE, ""),
                 "transforms[2]: expected images of one size at the end, got the shorter edge only: add "
                 "center_crop"},
                {IMAGES(NORMALIZE ", " CROP, ""),
                 "transforms[0]: expected nothing but random_horizontal_flip after "
                 "it, got center_crop: move it to the end"},
                {IMAGES(CROP ", " NORMALIZE ", " FLIP ", " NORMALIZE, ""),
                 "transforms[1]: expected nothing but random_horizontal_flip after it, got normalize"},
                {IMAGES(CROP ", " NORMALIZE, "\"dtype\": \"uint8\""),
                 "transforms[1]: expected an output dtype of floats, got uint8"},
                {IMAGES("{\"resize\": {\"size\": [8, 9], \"max_size\": 10}}", ""),
                 "transforms[0]: max_size: expected none with a size of [height, width], got 10"},
                {IMAGES("{\"resize\": {\"size\": 10, \"max_size\": 10}}", ""),
                 "transforms[0]: max_size: expected more than size, 10, got 10"},
                {IMAGES("{\"center_crop\": {}}", ""), "transforms[0]: center_crop: size: required"},
                {IMAGES("{\"center_crop\": 224}", ""),
                 "transforms[0]: center_crop: expected keys and values"},
                {IMAGES("{\"center_crop\": {\"size\": 1, \"p\": 1}}", ""),
                 "transforms[0]: center_crop: p: unknown"},
                {IMAGES("{}", ""), "transforms[0]: expected one transform and its keys"},
                {IMAGES(CROP ", 5", ""), "transforms[1]: expected one transform and its keys"},
                {IMAGES("{\"a\": {}, \"b\": {}}", ""), "transforms[0]: expected one transform and its keys"},
                {IMAGES("{\"sharpen\": {}}", ""), "transforms[0]: not one of the transforms"},
                {IMAGES("{\"normalize\": {\"mean\": [0, 0, 0], \"std\": [0, 1, 1]}}", ""),
                 "transforms[0]: normalize: std: expected a list of three numbers from 1e-12 to 1000000, got "
                 "[0"},
                {IMAGES(CROP, "\"dtype\": \"float64\""),
                 "output: dtype: expected one of uint8, float16, bfloat16, float32, got \"float64\""},
                {IMAGES(CROP, "\"x\": 1"), "output: x: unknown key"},
                {IMAGES(FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP
                             "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," FLIP "," CROP,
                        ""),
                 "transforms: expected a list of at most 16"},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct recipe recipe;
                struct fault fault;

                ck_assert_int_eq(read_recipe(&recipe, cases[i].json, &fault), -EINVAL);
                ck_assert_msg(strncmp(fault.text, cases[i].text, strlen(cases[i].text)) == 0,
                              "\"%s\", not \"%s\"", fault.text, cases[i].text);
                ck_assert(is_zero(&recipe));
        }
        ck_assert_int_eq(recipe_from_json(&(struct recipe){}, NULL, NULL), -EINVAL);
}
END_TEST

/* Both of the places for normalize, and all modes' keys together. */
START_TEST(test_recipe_accepted) {
        struct recipe recipe;

        must_read(&recipe, IMAGES(RESIZE ", " CROP ", " NORMALIZE ", " FLIP, ""));
        ck_assert_uint_eq(recipe.n_transforms, 4);
        recipe_deinit(&recipe);
        ck_assert(is_zero(&recipe));
        recipe_deinit(&recipe);
        must_read(&recipe, SYNTHETIC(", \"bytes\": 1, \"slow_us\": 1, \"delay_us\": 100, \"features\": 3"));
        recipe_deinit(&recipe);
        must_read(&recipe,
                  SYNTHETIC(", \"die_times\": 1, \"die_counter\": \"/count\", \"die_how\": \"oom\""));
        ck_assert_int_eq(recipe.source.die_how, RECIPE_DIE_OOM);
        ck_assert_str_eq(recipe.source.die_counter, "/count");
        recipe_deinit(&recipe);
        ck_assert(is_zero(&recipe));
        must_read(&recipe, IMAGES("{\"resize\": {\"size\": 10, \"max_size\": 11}}, " CROP, ""));
        recipe_deinit(&recipe);
}
END_TEST

/* ---- anything may come ---- */

/* Counts down through all values of the tree, and replaces the one at which it arrives. */
static bool replace_nth(json_t *json, int *n, json_t *by) {
        const char *name;
        json_t *value;
        size_t i;

        json_object_foreach(json, name, value) {
                if ((*n)-- == 0)
                        return json_object_set(json, name, by) == 0;
                if (replace_nth(value, n, by))
                        return true;
        }
        json_array_foreach(json, i, value) {
                if ((*n)-- == 0)
                        return json_array_set(json, i, by) == 0;
                if (replace_nth(value, n, by))
                        return true;
        }
        return false;
}

/* Each value of a good recipe in turn becomes each of many others: refused or taken, never worse. */
START_TEST(test_recipe_mutated) {
        static const char *const values[] = {"null",
                                             "true",
                                             "0",
                                             "-1",
                                             "1",
                                             "9223372036854775807",
                                             "1e308",
                                             "-0.5",
                                             "\"\"",
                                             "\"x\"",
                                             "\"18446744073709551615\"",
                                             "\"features\"",
                                             "[]",
                                             "{}",
                                             "[1, 2]",
                                             "[1, 2, 3]",
                                             "[[], {}]",
                                             "{\"size\": 1}",
                                             "{\"\": {\"\": 0}}",
                                             "[{\"resize\": {\"size\": 3}}]"};
        static const char *const recipes[] = {
                IMAGES(RESIZE ", " RRC ", " CROP ", " FLIP ", " NORMALIZE, "\"dtype\": \"float16\""),
                SYNTHETIC(", \"mode\": \"ramp\", \"bytes\": 3")};
        int taken = 0, refused = 0;

        for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++)
                for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); j++)
                        for (int n = 0;; n++) {
                                json_t *json = parse(recipes[i]), *value = parse(values[j]);
                                int place = n;
                                bool replaced = replace_nth(json, &place, value);
                                struct recipe recipe;
                                struct schema schema;
                                struct fault fault = {};

                                if (replaced && recipe_from_json(&recipe, json, &fault) == 0) {
                                        recipe_schema(&recipe, &schema);
                                        taken++;
                                        recipe_deinit(&recipe);
                                } else if (replaced) {
                                        refused++;
                                        if (fault.text[0] == '\0' || !is_zero(&recipe))
                                                ck_abort_msg("%s at %d", values[j], n);
                                }
                                json_decref(value);
                                json_decref(json);
                                if (!replaced)
                                        break;
                        }
        ck_assert_int_gt(taken, 20);
        ck_assert_int_gt(refused, 400);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("recipe");
        TCase *tests = tcase_create("recipe");

        suite_add_tcase(suite, tests);
        tcase_add_test(tests, test_tables);
        tcase_add_test(tests, test_torchvision_defaults);
        tcase_add_test(tests, test_recipe_text);
        tcase_add_test(tests, test_schema_synthetic);
        tcase_add_test(tests, test_schema_images);
        tcase_add_test(tests, test_schema_python);
        tcase_add_test(tests, test_recipe_refused);
        tcase_add_test(tests, test_recipe_accepted);
        tcase_add_test(tests, test_recipe_mutated);
        return run_suite(suite);
}
