/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Image folders from the files to the digest: the same bytes for any number of workers and jobs and after a
 * restart, and the right ones, as `pinfeedctl inspect` shows them.
 *
 * The images are drawn for the test. Where the shared test data is there its photographs and odd files are
 * used as well, with the values that Pillow gave. */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness.h"
#include "tests/support/run.h"

enum {
        DIGEST_CHARACTERS = 64,
        FILES_PER_RUN = 400,
};

static const char *draw(struct harness *harness, char path[HARNESS_PATH_MAX]) {
        char *output;

        snprintf(path, HARNESS_PATH_MAX, "%s/images", harness_directory(harness));
        if (harness_run(harness, 20000, &output,
                        (const char *[]){"draw-images", path, "--per-class", "20", NULL}) != 0)
                ck_abort_msg("draw-images: %s", output);
        free(output);
        return path;
}

static void start(struct harness *harness, const char *images, unsigned workers) {
        harness_write_config(harness,
                             "pipelines:\n"
                             "  photos:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms:\n"
                             "      - random_resized_crop: {size: 224}\n"
                             "      - random_horizontal_flip\n"
                             "      - normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}\n"
                             "    output: {dtype: float32, layout: chw}\n"
                             "    batch_size: 64\n"
                             "    shuffle: true\n"
                             "    workers: %u\n",
                             images, workers);
        harness_start(harness);
}

/* The digest of one epoch; free it. */
static char *digest(struct harness *harness, const char *seed, const char *epoch) {
        char *output;
        int r = harness_run(
                harness, 60000, &output,
                (const char *[]){"pinfeedctl", "digest", "photos", "--seed", seed, "--epoch", epoch, NULL});

        ck_assert_msg(r == 0, "digest: %s", output);
        ck_assert_msg(strstr(output, "clean") != NULL, "%s", output);
        ck_assert_uint_ge(strlen(output), DIGEST_CHARACTERS);
        output[DIGEST_CHARACTERS] = 0;
        return output;
}

static void assert_digest(struct harness *harness, const char *expected, const char *seed,
                          const char *epoch) {
        char *got = digest(harness, seed, epoch);

        ck_assert_str_eq(got, expected);
        free(got);
}

/* Four readers at once, each of which must see what one alone sees. */
static void assert_shared_digest(struct harness *harness, const char *expected) {
        char paths[4][HARNESS_PATH_MAX];
        pid_t pids[4];

        for (int i = 0; i < 4; i++) {
                snprintf(paths[i], sizeof(paths[i]), "%s/digest-%d", harness_directory(harness), i);
                pids[i] = harness_spawn(
                        harness, paths[i],
                        (const char *[]){"pinfeedctl", "digest", "photos", "--epoch", "0", NULL});
        }
        for (int i = 0; i < 4; i++) {
                char got[DIGEST_CHARACTERS + 1] = "";
                FILE *file;

                ck_assert_int_eq(harness_join(harness, pids[i], 60000), 0);
                file = fopen(paths[i], "re");
                ck_assert_ptr_nonnull(file);
                ck_assert_uint_eq(fread(got, 1, DIGEST_CHARACTERS, file), DIGEST_CHARACTERS);
                fclose(file);
                ck_assert_str_eq(got, expected);
        }
}

static void check_digests(struct harness *harness, const char *images) {
        static const unsigned counts[] = {2, 4};
        char *first, *second, *other;

        start(harness, images, 1);
        first = digest(harness, "0", "0");
        second = digest(harness, "0", "1");
        other = digest(harness, "1", "0");
        ck_assert_str_ne(first, second);
        ck_assert_str_ne(first, other);
        harness_stop(harness, SIGTERM, 0);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                start(harness, images, counts[i]);
                assert_digest(harness, first, "0", "0");
                assert_digest(harness, second, "0", "1");
                assert_shared_digest(harness, first);
                harness_stop(harness, SIGTERM, 0);
        }
        free(first);
        free(second);
        free(other);
}

START_TEST(test_digest_is_the_same_however_it_was_made) {
        struct harness *harness = harness_new();
        char path[HARNESS_PATH_MAX];

        check_digests(harness, draw(harness, path));
        harness_free(harness);
}
END_TEST

START_TEST(test_digest_of_photographs) {
        struct harness *harness = harness_new();
        char path[HARNESS_PATH_MAX];

        if (harness_data("photos", path))
                check_digests(harness, path);
        harness_free(harness);
}
END_TEST

/* ---- inspect ---- */

/* All but PNGs of 16-bit gray, of which pinfeed shows the upper byte and Pillow does not. */
static bool is_as_pillow(json_t *expected) {
        const char *mode = json_string_value(json_object_get(expected, "mode"));

        return !mode || strcmp(mode, "I") != 0;
}

static void check_inspected(json_t *got, const char *name, json_t *expected) {
        bool ok = json_is_true(json_object_get(expected, "ok"));

        if (json_is_true(json_object_get(got, "ok")) != ok)
                ck_abort_msg("%s: expected %s, got %s", name, ok ? "its pixels" : "a refusal",
                             json_dumps(got, JSON_COMPACT));
        if (!ok) {
                ck_assert_msg(*json_string_value(json_object_get(got, "error")),
                              "%s is refused without a reason", name);
                return;
        }
        ck_assert_msg(strcmp(json_string_value(json_object_get(got, "rgb_sha256")),
                             json_string_value(json_object_get(expected, "rgb_sha256"))) == 0,
                      "%s: other pixels than Pillow's", name);
}

/* One run of pinfeedctl over all files; its lines come in the order of the arguments. */
static json_t *inspect(struct harness *harness, const char *const *files, size_t n) {
        const char *argv[FILES_PER_RUN + 3] = {"pinfeedctl", "inspect"};
        json_t *lines = json_array();
        char *output, *line, *rest;

        memcpy(&argv[2], files, n * sizeof(*files));
        harness_run(harness, 60000, &output, argv); /* its exit code says that some were refused */
        for (line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
                json_t *object = json_loads(line, 0, NULL);

                ck_assert_msg(object != NULL, "not JSON: %s", line);
                json_array_append_new(lines, object);
        }
        free(output);
        ck_assert_uint_eq(json_array_size(lines), n);
        return lines;
}

START_TEST(test_inspect_odd_files) {
        struct harness *harness = harness_new();
        char directory[HARNESS_PATH_MAX], path[HARNESS_PATH_MAX + 32];
        const char *files[FILES_PER_RUN], *names[FILES_PER_RUN], *name;
        json_t *all, *expected, *lines;
        size_t n = 0;

        if (!harness_data("odd", directory)) {
                harness_free(harness);
                return;
        }
        snprintf(path, sizeof(path), "%s/expected.json", directory);
        all = json_load_file(path, 0, NULL);
        ck_assert_ptr_nonnull(all);
        json_object_foreach(all, name, expected) {
                char *file;

                if (!is_as_pillow(expected))
                        continue;
                ck_assert_uint_lt(n, FILES_PER_RUN);
                ck_assert_int_gt(asprintf(&file, "%s/%s", directory, name), 0);
                names[n] = name;
                files[n++] = file;
        }
        ck_assert_uint_gt(n, 300);
        lines = inspect(harness, files, n);
        for (size_t i = 0; i < n; i++) {
                check_inspected(json_array_get(lines, i), names[i], json_object_get(all, names[i]));
                free((char *)files[i]);
        }
        json_decref(lines);
        json_decref(all);
        harness_free(harness);
}
END_TEST

START_TEST(test_inspect_says_why_not) {
        struct harness *harness = harness_new();
        char missing[HARNESS_PATH_MAX], text[HARNESS_PATH_MAX];
        json_t *lines;
        FILE *file;

        snprintf(missing, sizeof(missing), "%s/missing.jpg", harness_directory(harness));
        snprintf(text, sizeof(text), "%s/text.jpg", harness_directory(harness));
        file = fopen(text, "we");
        ck_assert_ptr_nonnull(file);
        fputs("<html>503 Service Unavailable</html>\n", file);
        fclose(file);
        lines = inspect(harness, (const char *[]){missing, text}, 2);
        for (size_t i = 0; i < 2; i++) {
                ck_assert(json_is_false(json_object_get(json_array_get(lines, i), "ok")));
                ck_assert(*json_string_value(json_object_get(json_array_get(lines, i), "error")));
        }
        json_decref(lines);
        harness_free(harness);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: images");
        TCase *tcase = tcase_create("images");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_digest_is_the_same_however_it_was_made);
        tcase_add_test(tcase, test_digest_of_photographs);
        tcase_add_test(tcase, test_inspect_odd_files);
        tcase_add_test(tcase, test_inspect_says_why_not);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
