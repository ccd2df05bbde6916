/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The fingerprint: what belongs to it changes it, in its own part; what does not leaves it alone; and whoever
 * compares two is told what has changed, with the numbers (case H9). */

#include "daemon/fingerprint.h"

#include "base/fault.h"
#include "proto/bits.h"
#include "proto/recipe.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char photos[] = "{\"source\": {\"type\": \"imagefolder\", \"path\": \"/data/photos\"},"
                             " \"transforms\": [{\"random_resized_crop\": {\"size\": 224}},"
                             "                  {\"random_horizontal_flip\": {}}],"
                             " \"output\": {\"dtype\": \"uint8\"}}";
static const uint8_t index_sum[FINGERPRINT_SHA256_BYTES] = {1, 2, 3};

static struct recipe read_recipe(const char *text) {
        json_t *json = json_loads(text, 0, NULL);
        struct recipe recipe;
        struct fault fault;

        ck_assert_ptr_nonnull(json);
        ck_assert_msg(recipe_from_json(&recipe, json, &fault) == 0, "%s", fault.text);
        json_decref(json);
        return recipe;
}

/* `text` with the first `from` replaced. */
static const char *replaced(const char *text, const char *from, const char *to) {
        static char result[1024];
        const char *at = strstr(text, from);

        ck_assert_ptr_nonnull(at);
        snprintf(result, sizeof(result), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        return result;
}

static void make(char text[FINGERPRINT_MAX + 1], const char *json, const uint8_t *sum, uint64_t samples,
                 bool shuffle) {
        struct recipe recipe = read_recipe(json);

        ck_assert_int_eq(fingerprint_make(text, &recipe, sum, samples, shuffle), 0);
        recipe_deinit(&recipe);
}

static void make_changed(char text[FINGERPRINT_MAX + 1], const char *from, const char *to) {
        make(text, replaced(photos, from, to), index_sum, 1003, true);
}

/* Which of the six parts differ, one digit each. */
static const char *differences(const char *a, const char *b) {
        static char result[8];

        memset(result, 0, sizeof(result));
        for (int i = 0; i < 6; i++) {
                size_t n = strcspn(a, "."), m = strcspn(b, ".");

                result[i] = n == m && memcmp(a, b, n) == 0 ? '-' : 'X';
                a += n + (a[n] == '.');
                b += m + (b[m] == '.');
        }
        ck_assert_str_eq(a, "");
        ck_assert_str_eq(b, "");
        return result;
}

/* Saved states have this text: it must be the same for ever, or until BITS_VERSION is raised. */
START_TEST(test_fixed) {
        char text[FINGERPRINT_MAX + 1];

        make(text, photos, index_sum, 1003, true);
        ck_assert_str_eq(text, "1.1003.8df58ec8c450.dc79416ac020.921e1aa48e4d.s");
        make(text,
             "{\"source\": {\"type\": \"synthetic\", \"samples\": 7}, \"transforms\": [], \"output\": {}}",
             (const uint8_t[FINGERPRINT_SHA256_BYTES]){}, 7, false);
        ck_assert_str_eq(text, "1.7.a1d835e5a9cd.9ee588ba2521.68e9e86b6926.o");
}
END_TEST

START_TEST(test_parts) {
        char own[FINGERPRINT_MAX + 1], other[FINGERPRINT_MAX + 1];
        uint8_t sum[FINGERPRINT_SHA256_BYTES] = {1, 2, 4};

        make(own, photos, index_sum, 1003, true);
        make(other, photos, index_sum, 1003, true);
        ck_assert_str_eq(own, other);
        make(other, photos, index_sum, 1002, true);
        ck_assert_str_eq(differences(own, other), "-X----");
        make(other, photos, sum, 1003, true);
        ck_assert_str_eq(differences(own, other), "--X---");
        make(other, photos, index_sum, 1003, false);
        ck_assert_str_eq(differences(own, other), "-----X");
        make_changed(other, "224", "225");
        ck_assert_str_eq(differences(own, other), "---X--");
        make_changed(other, "{\"random_horizontal_flip\": {}}",
                     "{\"random_horizontal_flip\": {\"p\": 0.25}}");
        ck_assert_str_eq(differences(own, other), "---X--");
        make_changed(other, ",                  {\"random_horizontal_flip\": {}}", "");
        ck_assert_str_eq(differences(own, other), "---X--");
        make_changed(other, "uint8", "float16");
        ck_assert_str_eq(differences(own, other), "----X-");
}
END_TEST

/* Where the files lie does not matter, nor whether somebody has written a default down. */
START_TEST(test_what_does_not_count) {
        char own[FINGERPRINT_MAX + 1], other[FINGERPRINT_MAX + 1];

        make(own, photos, index_sum, 1003, true);
        make_changed(other, "/data/photos", "/mnt/elsewhere");
        ck_assert_str_eq(own, other);
        make_changed(other, "{\"random_horizontal_flip\": {}}", "{\"random_horizontal_flip\": {\"p\": 0.5}}");
        ck_assert_str_eq(own, other);
        make_changed(other, "{\"size\": 224}", "{\"interpolation\": \"bilinear\", \"size\": 224}");
        ck_assert_str_eq(own, other);
        make_changed(other, "\"uint8\"", "\"uint8\", \"layout\": \"chw\"");
        ck_assert_str_eq(own, other);
}
END_TEST

/* Of a dataset in Python counts what it is called with, and not who calls it. */
START_TEST(test_dataset) {
        static const struct {
                const char *keys;
                bool same;
        } cases[] = {
                {"\"args\": {\"b\": [2], \"a\": 1}", true},
                {"\"args\": {\"a\": 1, \"b\": [2]}, \"interpreter\": \"/venv/bin/python\"", true},
                {"\"args\": {\"a\": 1, \"b\": [2]}, \"path\": [\"/code\"], \"samples\": 3", true},
                {"\"args\": {\"a\": 1, \"b\": [3]}", false},
                {"\"args\": {\"a\": 1}", false},
                {"\"args\": {\"a\": 1, \"b\": [2]}, \"identity\": \"2\"", false},
        };
        char own[FINGERPRINT_MAX + 1], other[FINGERPRINT_MAX + 1], text[512];

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                snprintf(text, sizeof(text),
                         "{\"source\": {\"type\": \"python\", \"dataset\": \"a:b\", \"fields\": "
                         "\"x=int64[]\", "
                         "%s}, \"transforms\": [], \"output\": {}}",
                         cases[i].keys);
                make(other, text, index_sum, 3, true);
                if (i == 0)
                        memcpy(own, other, sizeof(own));
                ck_assert_str_eq(differences(own, other), cases[i].same ? "------" : "--X---");
        }
}
END_TEST

/* ---- comparing ---- */

#define A "aaaaaaaaaaaa"
#define B "bbbbbbbbbbbb"

static int compare(const char *ours, const char *saved, struct fault *fault) {
        *fault = (struct fault){};
        return fingerprint_compare(ours, 0, saved, 0, fault);
}

static void expect_stale(const char *saved, const char *words) {
        struct fault fault;

        ck_assert_int_eq(compare("1.1002." A "." A "." A ".s", saved, &fault), -ESTALE);
        ck_assert_msg(strstr(fault.text, words) != NULL, "no \"%s\" in: %s", words, fault.text);
        ck_assert_ptr_nonnull(strstr(fault.text, "force"));
}

START_TEST(test_changes_are_named) {
        struct fault fault;

        ck_assert_int_eq(compare("1.1002." A "." A "." A ".s", "1.1002." A "." A "." A ".s", &fault), 0);
        expect_stale("1.1003." A "." A "." A ".s",
                     "the source has 1002 samples, the state was saved with 1003; ");
        expect_stale("1.1003." B "." A "." A ".s",
                     "the source has 1002 samples, the state was saved with 1003; ");
        expect_stale("1.1002." B "." A "." A ".s", "the source (its files or keys) has changed");
        expect_stale("1.1002." A "." B "." A ".s",
                     "fit: the transforms have changed since the state was saved; ");
        expect_stale("1.1002." A "." A "." B ".s", "fit: the output has changed since the state was saved; ");
        expect_stale("1.1002." A "." A "." A ".o",
                     "the order is shuffled, the state was saved with one that is not shuffled");
        expect_stale("1.1002." B "." B "." A ".o",
                     "the transforms have changed since the state was saved, the order");
        expect_stale("2.1003." B "." B "." B ".o",
                     "fit: this pinfeed makes bits of version 1, the state was saved with version 2; ");
        ck_assert_int_eq(fingerprint_compare("1.7." A "." A "." A ".o", 7, "1.7." A "." A "." A ".o",
                                             UINT64_MAX, &fault),
                         -ESTALE);
        ck_assert_ptr_nonnull(strstr(fault.text,
                                     "the seed is 7, the state was saved with 18446744073709551615: attach "
                                     "with seed 18446744073709551615"));
        _Static_assert(BITS_VERSION == 1, "the texts above");
}
END_TEST

START_TEST(test_what_is_no_fingerprint) {
        static const char *const wrong[] = {
                "",
                "x",
                "1",
                "1.1003",
                "1.1003." A "." A "." A,
                "1.1003." A "." A "." A ".",
                "1.1003." A "." A "." A ".sx",
                "1.1003." A A "." A "." A ".s",
                "1.1003." A ".." A ".s",
        };
        struct fault fault;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                ck_assert_msg(compare("1.1003." A "." A "." A ".s", wrong[i], &fault) == -EINVAL, "%s",
                              wrong[i]);
}
END_TEST

/* All of it may come at once, and still is one sentence. */
START_TEST(test_longest) {
        char ours[FINGERPRINT_MAX + 1], saved[FINGERPRINT_MAX + 1];
        uint8_t sum[FINGERPRINT_SHA256_BYTES] = {9};
        struct fault fault = {};

        make(ours, photos, sum, UINT64_C(1) << 48, true);
        ck_assert_uint_le(strlen(ours), 64); /* what a state of 256 bytes has room for */
        snprintf(saved, sizeof(saved), "1.%" PRIu64 "." B "." B "." B ".o", (UINT64_C(1) << 48) - 1);
        ck_assert_int_eq(fingerprint_compare(ours, UINT64_MAX, saved, UINT64_MAX - 1, &fault), -ESTALE);
        ck_assert_ptr_nonnull(strstr(fault.text, "attach with seed 18446744073709551614"));
        ck_assert_ptr_nonnull(strstr(fault.text, "281474976710656 samples"));
        ck_assert_ptr_nonnull(strstr(fault.text, "`force`"));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("fingerprint");
        TCase *tests = tcase_create("fingerprint");

        tcase_add_test(tests, test_fixed);
        tcase_add_test(tests, test_parts);
        tcase_add_test(tests, test_what_does_not_count);
        tcase_add_test(tests, test_dataset);
        tcase_add_test(tests, test_changes_are_named);
        tcase_add_test(tests, test_what_is_no_fingerprint);
        tcase_add_test(tests, test_longest);
        suite_add_tcase(suite, tests);
        return run_suite(suite);
}
