/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Verdicts are found again after a restart, whoever else wrote the file meanwhile, whatever else lies in its
 * place: a damaged file is kept, an unreadable one is left alone. The directory is real, a fresh one for each
 * test.
 */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "daemon/verdicts.h"
#include "proto/recipe.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FINGERPRINT "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef"
#define NAME        "verdicts-00112233445566778899aabbccddeeff.json"

static char directory[PATH_MAX];
static struct fault fault;

static void begin(void) {
        strcpy(directory, "/tmp/test-verdicts-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
        fault.text[0] = 0;
}

static void end(void) {
        char command[PATH_MAX + 16];

        snprintf(command, sizeof(command), "rm -rf /tmp/%s", strrchr(directory, '/') + 1);
        ck_assert_int_eq(system(command), 0);
}

static void verdicts_freep(struct verdicts **verdicts) {
        verdicts_free(*verdicts);
}

static struct verdicts *empty(void) {
        struct verdicts *verdicts = NULL;

        ck_assert_int_eq(verdicts_new(&verdicts, "photos", FINGERPRINT), 0);
        return verdicts;
}

static struct verdicts *load(void) {
        struct verdicts *verdicts = empty();

        ck_assert_msg(verdicts_load(verdicts, directory, &fault) == 0, "%s", fault.text);
        return verdicts;
}

static void add(struct verdicts *verdicts, uint64_t sample) {
        ck_assert_int_eq(verdicts_add(verdicts, sample, "cat/1.jpg", "killed by signal 11", 1764000000), 0);
}

static void save(const struct verdicts *verdicts) {
        ck_assert_msg(verdicts_save(verdicts, directory, &fault) == 0, "%s", fault.text);
}

static void path_of(char path[PATH_MAX + 64], const char *name) {
        snprintf(path, PATH_MAX + 64, "%s/%s", directory, name);
}

static bool exists(const char *name) {
        char path[PATH_MAX + 64];
        struct stat status;

        path_of(path, name);
        return lstat(path, &status) == 0;
}

static void put(const char *name, const char *text) {
        char path[PATH_MAX + 64];
        FILE *file;

        path_of(path, name);
        file = fopen(path, "we");
        ck_assert_ptr_nonnull(file);
        fputs(text, file);
        fclose(file);
}

/* The whole file, terminated. */
static const char *get(const char *name) {
        static char text[4096];
        _cleanup_(fd_closep) int fd = -1;
        char path[PATH_MAX + 64];
        ssize_t size;

        path_of(path, name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        size = fd_pread_full(fd, text, sizeof(text) - 1, 0);
        ck_assert_int_ge(size, 0);
        text[size] = 0;
        return text;
}

/* ---- the list ---- */

START_TEST(test_list) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty();
        static const uint64_t order[] = {500, 2, 812, 0, 9, VERDICTS_SAMPLE_MAX - 1};

        ck_assert(!verdicts_contains(verdicts, 0));
        for (size_t i = 0; i < 6; i++)
                add(verdicts, order[i]);
        ck_assert_int_eq(verdicts_add(verdicts, 9, "x", "y", 1), VERDICTS_E_KNOWN);
        ck_assert_int_eq(verdicts_add(verdicts, VERDICTS_SAMPLE_MAX, "x", "y", 1), -EINVAL);
        ck_assert_uint_eq(verdicts_count(verdicts), 6);
        for (size_t i = 1; i < 6; i++)
                ck_assert_uint_lt(verdicts->list[i - 1].sample, verdicts->list[i].sample);
        for (size_t i = 0; i < 6; i++)
                ck_assert(verdicts_contains(verdicts, order[i]));
        ck_assert(!verdicts_contains(verdicts, 501) && !verdicts_contains(verdicts, 1));
        ck_assert_str_eq(verdicts_find(verdicts, 9)->file, "cat/1.jpg");
        ck_assert_str_eq(verdicts_find(verdicts, 9)->text, "killed by signal 11");
        ck_assert_uint_eq(verdicts_find(verdicts, 9)->time, 1764000000);
        ck_assert_int_eq(verdicts_remove(verdicts, 9), 1);
        ck_assert_int_eq(verdicts_remove(verdicts, 9), 0);
        ck_assert_int_eq(verdicts_remove(verdicts, 10), 0);
        ck_assert(!verdicts_contains(verdicts, 9) && verdicts_was_cleared(verdicts, 9));
        add(verdicts, 9);
        ck_assert(verdicts_contains(verdicts, 9) && !verdicts_was_cleared(verdicts, 9));
        ck_assert_uint_eq(verdicts_count(verdicts), 6);
}
END_TEST

START_TEST(test_foreign_text) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty(), *again = NULL;
        char text[2000];

        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = 0;
        ck_assert_int_eq(verdicts_add(verdicts, 1, "a\xff\n\".jpg", text, 1), 0);
        ck_assert_int_eq(verdicts_add(verdicts, 2, NULL, NULL, 1), 0);
        ck_assert_str_eq(verdicts_find(verdicts, 1)->file, "a??\".jpg");
        ck_assert_uint_eq(strlen(verdicts_find(verdicts, 1)->text), VERDICTS_TEXT_MAX);
        save(verdicts);
        again = load();
        ck_assert_str_eq(verdicts_find(again, 1)->file, "a??\".jpg");
        ck_assert_str_eq(verdicts_find(again, 2)->file, "");
}
END_TEST

START_TEST(test_bound) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty(), *other = empty(), *again = NULL;

        for (uint64_t sample = 0; sample < VERDICTS_MAX; sample++)
                add(verdicts, sample);
        ck_assert_int_eq(verdicts_add(verdicts, VERDICTS_MAX, "x", "y", 1), VERDICTS_E_FULL);
        save(verdicts);
        again = load();
        ck_assert_uint_eq(verdicts_count(again), VERDICTS_MAX);
        add(other, VERDICTS_MAX);
        ck_assert_int_eq(verdicts_save(other, directory, &fault), -EOVERFLOW);
        ck_assert_ptr_nonnull(strstr(fault.text, "more than 65536 samples are condemned"));
        ck_assert(exists(NAME));
}
END_TEST

START_TEST(test_copy) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty(), *copy = NULL;

        add(verdicts, 5);
        add(verdicts, 3);
        add(verdicts, 4);
        verdicts_remove(verdicts, 4);
        ck_assert_int_eq(verdicts_copy(&copy, verdicts), 0);
        verdicts_remove(verdicts, 5);
        ck_assert_uint_eq(verdicts_count(copy), 2);
        ck_assert(verdicts_contains(copy, 5) && verdicts_was_cleared(copy, 4));
        ck_assert(!verdicts_was_cleared(copy, 5));
        ck_assert_str_eq(copy->pipeline, "photos");
        ck_assert_str_eq(copy->fingerprint, FINGERPRINT);
        ck_assert_ptr_ne(copy->list[0].file, verdicts->list[0].file);
}
END_TEST

/* ---- fingerprint ---- */

static void fingerprint(char hex[VERDICTS_HEX_BYTES + 1], const char *recipe_json, uint8_t sum,
                        uint64_t samples) {
        json_t *json = json_loads(recipe_json, 0, NULL);
        uint8_t sha256[VERDICTS_SHA256_BYTES];
        struct recipe recipe;

        memset(sha256, sum, sizeof(sha256));
        ck_assert_msg(recipe_from_json(&recipe, json, &fault) == 0, "%s", fault.text);
        ck_assert_int_eq(verdicts_fingerprint(hex, &recipe, sha256, samples), 0);
        ck_assert_uint_eq(strlen(hex), VERDICTS_HEX_BYTES);
        recipe_deinit(&recipe);
        json_decref(json);
}

#define RECIPE(path, size)                                                                                   \
        "{\"source\": {\"type\": \"imagefolder\", \"path\": \"" path "\"}, \"transforms\": "                 \
        "[{\"center_crop\": {\"size\": " size "}}], \"output\": {}}"

START_TEST(test_fingerprint) {
        char hex[6][VERDICTS_HEX_BYTES + 1];

        fingerprint(hex[0], RECIPE("/a", "4"), 1, 10);
        fingerprint(hex[1], RECIPE("/b/c", "4"), 1, 10);
        ck_assert_str_eq(hex[0], hex[1]);
        fingerprint(hex[1], RECIPE("/a", "5"), 1, 10);
        fingerprint(hex[2], RECIPE("/a", "4"), 2, 10);
        fingerprint(hex[3], RECIPE("/a", "4"), 1, 11);
        fingerprint(hex[4], RECIPE("/a", "4"), 1, UINT64_C(10) << 56);
        fingerprint(hex[5],
                    "{\"source\": {\"type\": \"synthetic\", \"samples\": 10}, \"transforms\": [], "
                    "\"output\": {}}",
                    1, 10);
        for (int i = 0; i < 6; i++)
                for (int j = 0; j < i; j++)
                        ck_assert_str_ne(hex[i], hex[j]);
}
END_TEST

/* In force, and not written: neither alone nor beside others, whoever has them in the file. */
START_TEST(test_lifted) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty(), *copy = NULL, *again = NULL;

        for (uint64_t sample = 1; sample <= 3; sample++)
                add(verdicts, sample);
        save(verdicts);
        ck_assert_int_eq(verdicts_lift(verdicts, 2), 1);
        ck_assert_int_eq(verdicts_lift(verdicts, 2), 0);
        ck_assert_int_eq(verdicts_lift(verdicts, 7), 0);
        ck_assert(verdicts_contains(verdicts, 2) && verdicts_was_cleared(verdicts, 2));
        ck_assert(verdicts_find(verdicts, 2)->lifted && !verdicts_find(verdicts, 1)->lifted);
        ck_assert_uint_eq(verdicts_count(verdicts), 3);
        ck_assert_uint_eq(verdicts_count_lasting(verdicts), 2);
        ck_assert_int_eq(verdicts_copy(&copy, verdicts), 0);
        ck_assert(verdicts_find(copy, 2)->lifted);
        ck_assert_uint_eq(verdicts_count_lasting(copy), 2);

        save(copy);
        again = load();
        ck_assert_uint_eq(verdicts_count(again), 2);
        ck_assert(!verdicts_contains(again, 2));
        ck_assert_int_eq(verdicts_lift(verdicts, 1), 1);
        ck_assert_int_eq(verdicts_remove(verdicts, 1), 1);
        ck_assert_int_eq(verdicts_lift(verdicts, 3), 1);
        ck_assert_uint_eq(verdicts_count(verdicts), 2);
        ck_assert_uint_eq(verdicts_count_lasting(verdicts), 0);
        save(verdicts);
        ck_assert(!exists(NAME));
}
END_TEST

/* ---- files ---- */

START_TEST(test_round_trip) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = load(), *again = NULL, *gone = NULL;
        char path[PATH_MAX + 64];
        struct stat status;

        ck_assert_uint_eq(verdicts_count(verdicts), 0);
        add(verdicts, 812);
        add(verdicts, 3);
        save(verdicts);
        path_of(path, NAME);
        ck_assert_int_eq(stat(path, &status), 0);
        ck_assert_uint_eq(status.st_mode & 07777, 0600);
        ck_assert_ptr_nonnull(strstr(get(NAME), "\"pipeline\": \"photos\""));
        ck_assert_ptr_nonnull(strstr(get(NAME), "\"sample\": 812"));
        ck_assert(!exists(NAME ".tmp"));
        again = load();
        ck_assert_uint_eq(verdicts_count(again), 2);
        ck_assert_str_eq(verdicts_find(again, 812)->file, "cat/1.jpg");
        ck_assert_str_eq(verdicts_find(again, 812)->text, "killed by signal 11");
        ck_assert_uint_eq(verdicts_find(again, 812)->time, 1764000000);
        verdicts_remove(again, 812);
        verdicts_remove(again, 3);
        save(again);
        ck_assert(!exists(NAME));
        gone = load();
        ck_assert_uint_eq(verdicts_count(gone), 0);
}
END_TEST

/* Two daemons, or two pipelines of one fingerprint. */
START_TEST(test_others_write_too) {
        _cleanup_(verdicts_freep) struct verdicts *first = empty(), *a = NULL, *b = NULL, *end = NULL;

        add(first, 1);
        add(first, 2);
        save(first);
        a = load();
        b = load();
        add(a, 3);
        save(a);
        add(b, 4);
        ck_assert_int_eq(verdicts_remove(b, 1), 1);
        save(b);
        end = load();
        ck_assert_uint_eq(verdicts_count(end), 3);
        ck_assert(!verdicts_contains(end, 1) && verdicts_contains(end, 2));
        ck_assert(verdicts_contains(end, 3) && verdicts_contains(end, 4));
        ck_assert_uint_eq(verdicts_count(b), 2); /* saving changes nothing here */
}
END_TEST

static const char *const damaged[][2] = {
        {"", "line 1: "},
        {"{\"pipeline\": \"photos\", \"fing", "line 1: "},
        {"[]", "its fingerprint is missing"},
        {"{\"fingerprint\": \"00\", \"samples\": []}", "its fingerprint is another one"},
        {"{\"fingerprint\": \"" FINGERPRINT "\"}", "it has no list of samples"},
        {"{\"fingerprint\": \"" FINGERPRINT "\", \"samples\": [{\"sample\": 1, \"file\": \"\", \"text\": "
         "\"\", \"time\": 1}, {\"sample\": -1, \"file\": \"\", \"text\": \"\", \"time\": 1}]}",
         "samples[1]: expected sample, file, text and time"},
        {"{\"fingerprint\": \"" FINGERPRINT "\", \"samples\": [{\"sample\": 281474976710656, \"file\": \"\", "
         "\"text\": \"\", \"time\": 1}]}",
         "samples[0]: expected"},
        {"{\"fingerprint\": \"" FINGERPRINT "\", \"samples\": [7]}", "samples[0]: expected"},
        {"{\"fingerprint\": \"" FINGERPRINT "\", \"samples\": [{\"sample\": 99999999999999999999}]}",
         "line 1: "},
};

START_TEST(test_damaged) {
        for (size_t i = 0; i < sizeof(damaged) / sizeof(*damaged); i++) {
                _cleanup_(verdicts_freep) struct verdicts *verdicts = empty();
                char aside[PATH_MAX];

                put(NAME, damaged[i][0]);
                ck_assert_int_eq(verdicts_load(verdicts, directory, &fault), VERDICTS_E_DAMAGED);
                ck_assert_msg(strstr(fault.text, damaged[i][1]), "%s", fault.text);
                ck_assert_uint_eq(verdicts_count(verdicts), 0);
                ck_assert(!exists(NAME));
                if (i == 0)
                        strcpy(aside, NAME ".damaged");
                else
                        snprintf(aside, sizeof(aside), NAME ".damaged%zu", i);
                ck_assert_msg(strstr(fault.text, aside), "%s", fault.text);
                ck_assert_str_eq(get(aside), damaged[i][0]);
        }
}
END_TEST

START_TEST(test_damaged_meanwhile) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = load(), *again = NULL;

        add(verdicts, 5);
        put(NAME, "nonsense");
        ck_assert_int_eq(verdicts_save(verdicts, directory, &fault), VERDICTS_E_DAMAGED);
        ck_assert_msg(strstr(fault.text, "it is " NAME ".damaged now"), "%s", fault.text);
        ck_assert_str_eq(get(NAME ".damaged"), "nonsense");
        again = load();
        ck_assert(verdicts_contains(again, 5));
}
END_TEST

/* What cannot be read is not overwritten: here what is no file. */
START_TEST(test_unreadable) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty();
        char path[PATH_MAX + 64];

        path_of(path, NAME);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        add(verdicts, 5);
        ck_assert_int_eq(verdicts_save(verdicts, directory, &fault), -EINVAL);
        ck_assert_msg(strstr(fault.text, "it is no regular file"), "%s", fault.text);
        ck_assert_int_eq(verdicts_load(verdicts, directory, &fault), -EINVAL);
        ck_assert_uint_eq(verdicts_count(verdicts), 1);
        unlink(path);
        ck_assert_int_eq(symlink("/etc/passwd", path), 0);
        ck_assert_int_eq(verdicts_load(verdicts, directory, &fault), -ELOOP);
}
END_TEST

START_TEST(test_directory_is_made) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty();
        char top[PATH_MAX];
        struct stat status;

        strcpy(top, directory);
        strcat(directory, "/.local/state/pinfeed");
        ck_assert_int_eq(verdicts_load(verdicts, directory, &fault), 0);
        save(verdicts); /* nothing to write: nothing is made */
        ck_assert_int_lt(stat(directory, &status), 0);
        add(verdicts, 5);
        save(verdicts);
        ck_assert_int_eq(stat(directory, &status), 0);
        ck_assert_uint_eq(status.st_mode & 07777, 0700);
        ck_assert(exists(NAME));
        strcpy(directory, top);
}
END_TEST

START_TEST(test_directory_is_refused) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty();
        char path[PATH_MAX + 64];

        add(verdicts, 5);
        ck_assert_int_eq(chmod(directory, 0770), 0);
        ck_assert_int_eq(verdicts_load(verdicts, directory, &fault), -EPERM);
        ck_assert_msg(strstr(fault.text, "has mode 0770: others may write it; chmod go-w it"), "%s",
                      fault.text);
        ck_assert_int_eq(verdicts_save(verdicts, directory, &fault), -EPERM);
        ck_assert_int_eq(chmod(directory, 0755), 0);
        put("file", "");
        path_of(path, "file");
        ck_assert_int_eq(verdicts_save(verdicts, path, &fault), -ENOTDIR);
        path_of(path, "file/below");
        ck_assert_int_eq(verdicts_save(verdicts, path, &fault), -ENOTDIR);
        save(verdicts);
}
END_TEST

static void assert_directory(const char *expected) {
        char path[PATH_MAX];

        ck_assert_int_eq(verdicts_find_directory(path, &fault), 0);
        ck_assert_str_eq(path, expected);
}

START_TEST(test_which_directory) {
        char path[PATH_MAX], longest[PATH_MAX + 1];

        setenv("PINFEED_STATE_DIR", "/own", 1);
        setenv("STATE_DIRECTORY", "/var/lib/pinfeed:/var/lib/other", 1);
        setenv("XDG_STATE_HOME", "/xdg", 1);
        setenv("HOME", "/home/u", 1);
        assert_directory("/own");
        setenv("PINFEED_STATE_DIR", "", 1);
        assert_directory("/var/lib/pinfeed");
        unsetenv("STATE_DIRECTORY");
        assert_directory("/xdg/pinfeed");
        setenv("XDG_STATE_HOME", "relative", 1);
        assert_directory("/home/u/.local/state/pinfeed");
        unsetenv("HOME");
        ck_assert_int_eq(verdicts_find_directory(path, &fault), -ENOENT);
        ck_assert_ptr_nonnull(strstr(fault.text, "PINFEED_STATE_DIR"));
        memset(longest, '/', PATH_MAX);
        longest[PATH_MAX] = 0;
        setenv("PINFEED_STATE_DIR", longest, 1);
        ck_assert_int_eq(verdicts_find_directory(path, &fault), -ENAMETOOLONG);
        setenv("PINFEED_STATE_DIR", longest + 1, 1);
        ck_assert_int_eq(verdicts_find_directory(path, &fault), 0);
}
END_TEST

/* Savers at once lose nothing; each has a copy of its own, as in the daemon. */
static void *save_some(void *first) {
        _cleanup_(verdicts_freep) struct verdicts *verdicts = empty();
        struct fault why;

        for (uint64_t i = 0; i < 20; i++) {
                if (verdicts_add(verdicts, (uint64_t)(uintptr_t)first + i, "f", "t", 1) != 0 ||
                    verdicts_save(verdicts, directory, &why) != 0)
                        return verdicts;
        }
        return NULL;
}

START_TEST(test_threads) {
        _cleanup_(verdicts_freep) struct verdicts *end = NULL;
        pthread_t threads[4];
        void *failed;

        for (uintptr_t i = 0; i < 4; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, save_some, (void *)(1000 * i)), 0);
        for (int i = 0; i < 4; i++) {
                ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
                ck_assert_ptr_null(failed);
        }
        end = load();
        ck_assert_uint_eq(verdicts_count(end), 80);
        ck_assert(!exists(NAME ".tmp") && !exists(NAME ".damaged"));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("verdicts");
        TCase *tests = tcase_create("verdicts");

        suite_add_tcase(suite, tests);
        tcase_add_checked_fixture(tests, begin, end);
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, test_list);
        tcase_add_test(tests, test_lifted);
        tcase_add_test(tests, test_foreign_text);
        tcase_add_test(tests, test_bound);
        tcase_add_test(tests, test_copy);
        tcase_add_test(tests, test_fingerprint);
        tcase_add_test(tests, test_round_trip);
        tcase_add_test(tests, test_others_write_too);
        tcase_add_test(tests, test_damaged);
        tcase_add_test(tests, test_damaged_meanwhile);
        tcase_add_test(tests, test_unreadable);
        tcase_add_test(tests, test_directory_is_made);
        tcase_add_test(tests, test_directory_is_refused);
        tcase_add_test(tests, test_which_directory);
        tcase_add_test(tests, test_threads);
        return run_suite(suite);
}
