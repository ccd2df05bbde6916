/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What `pinfeedd --check` says: bytes, what refuses a source, warnings, and the tables of keys. */

#include "tests/unit/config-file.h"

#include "daemon/check.h"
#include "daemon/config-keys.h"
#include "tests/support/run.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

struct folder {
        char path[64];
        char file[96];
};

static void put(const char *directory, const char *name, const char *text) {
        char path[PATH_MAX];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        file = fopen(path, "we");
        ck_assert_ptr_nonnull(file);
        fputs(text, file);
        fclose(file);
}

/* A directory with a configuration whose one source is the folder `train` beside it. */
static void folder_init(struct folder *folder) {
        char path[128];

        strcpy(folder->path, "/tmp/test-config-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder->path));
        chmod(folder->path, 0755);
        snprintf(path, sizeof(path), "%s/train", folder->path);
        ck_assert_int_eq(mkdir(path, 0755), 0);
        put(folder->path, "pinfeed.yaml",
            HEAD "    source: {type: imagefolder, path: train}\n" BATCH CROP
                 "    slots: 3\n    backing: memfd\n");
        snprintf(folder->file, sizeof(folder->file), "%s/pinfeed.yaml", folder->path);
}

static void folder_deinit(struct folder *folder) {
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", folder->path);
        ck_assert_int_eq(system(command), 0);
}

/* Loads and checks; the print-out is in `text`. */
static int check_folder(const struct folder *folder, char text[8192], struct fault *fault) {
        _cleanup_(config_unrefp) struct config *config = NULL;
        FILE *out = fmemopen(text, 8192, "w");
        int r;

        fault->text[0] = 0;
        ck_assert_int_eq(config_load(&config, folder->file, fault), 0);
        r = check_print(config, out, fault);
        fclose(out);
        return r;
}

START_TEST(test_check_prints) {
        struct folder folder;
        char text[8192], expected[256];
        struct fault fault;

        folder_init(&folder);
        snprintf(expected, sizeof(expected), "%s/train/cat", folder.path);
        mkdir(expected, 0755);
        put(expected, "1.jpg", "x");
        ck_assert_int_eq(check_folder(&folder, text, &fault), 0);
        snprintf(expected, sizeof(expected), "yes, opened %s/train/cat/1.jpg\n", folder.path);
        ck_assert_msg(strstr(text, expected), "%s", text);
        ck_assert_msg(strstr(text, "images: float32, 8 x 3 x 4 x 4, 192 bytes a row\n"), "%s", text);
        ck_assert_msg(strstr(text, "row         200 bytes (200 B)\n"), "%s", text);
        ck_assert_msg(strstr(text, "slot        12288 bytes (12 KiB)\n"), "%s", text);
        ck_assert_msg(strstr(text, "ring        3 slots, 36864 bytes (36 KiB), in a memfd"), "%s", text);
        ck_assert_msg(strstr(text, "all rings: 36864 bytes"), "%s", text);
        folder_deinit(&folder);
}
END_TEST

/* Also what its interpreter, which is none, has not said. */
START_TEST(test_check_prints_a_dataset) {
        struct folder folder;
        char text[8192];
        struct fault fault;

        folder_init(&folder);
        put(folder.path, "pinfeed.yaml",
            HEAD "    source: {type: python, dataset: 'a.b:c', fields: 'x=int64[3]', interpreter: "
                 "/bin/false}\n" BATCH "    backing: memfd\n");
        ck_assert_int_eq(check_folder(&folder, text, &fault), -EIO);
        ck_assert_msg(strstr(fault.text, "ended with exit status 1 before it had described the dataset"),
                      "%s", fault.text);
        ck_assert_msg(strstr(text, "dataset     no: the interpreter (pid "), "%s", text);
        ck_assert_msg(strstr(text, "source      python a.b:c\n"), "%s", text);
        ck_assert_msg(strstr(text, "x: int64, 8 x 3, 24 bytes a row\n"), "%s", text);
        folder_deinit(&folder);
}
END_TEST

START_TEST(test_check_names_what_refuses) {
        struct folder folder;
        char text[8192], path[128], expected[256];
        struct fault fault;

        folder_init(&folder);
        ck_assert_int_eq(check_folder(&folder, text, &fault), -ENOENT);
        snprintf(expected, sizeof(expected), "pipeline a: %s/train has no file in a directory of a class",
                 folder.path);
        ck_assert_str_eq(fault.text, expected);

        snprintf(path, sizeof(path), "%s/train", folder.path);
        ck_assert_int_eq(rmdir(path), 0);
        ck_assert_int_eq(check_folder(&folder, text, &fault), -ENOENT);
        snprintf(expected, sizeof(expected), "pipeline a: %s/train: does not exist", folder.path);
        ck_assert_str_eq(fault.text, expected);

        put(folder.path, "train", "no directory");
        ck_assert_int_eq(check_folder(&folder, text, &fault), -ENOTDIR);
        snprintf(expected, sizeof(expected), "pipeline a: %s/train is not a directory", folder.path);
        ck_assert_str_eq(fault.text, expected);
        folder_deinit(&folder);
}
END_TEST

START_TEST(test_check_names_who_is_refused) {
        struct folder folder;
        char text[8192], path[128], expected[400];
        uid_t uid = geteuid();
        struct fault fault;
        int r;

        folder_init(&folder);
        snprintf(path, sizeof(path), "%s/train", folder.path);
        ck_assert_int_eq(chmod(path, 0), 0);
        if (uid == 0)
                ck_assert_int_eq(seteuid(65534), 0);
        r = check_folder(&folder, text, &fault);
        snprintf(expected, sizeof(expected), "(uid %u) may not enter it; chmod %s %s", (unsigned)geteuid(),
                 uid == 0 ? "o+x" : "u+x", path);
        if (uid == 0)
                ck_assert_int_eq(seteuid(0), 0);
        chmod(path, 0755);
        folder_deinit(&folder);
        ck_assert_int_eq(r, -EACCES);
        ck_assert_msg(strstr(fault.text, expected) != NULL, "%s", fault.text);
        snprintf(expected, sizeof(expected), "pipeline a: %s: directory %s is 0000 ", path, path);
        ck_assert_msg(strncmp(fault.text, expected, strlen(expected)) == 0, "%s", fault.text);
}
END_TEST

/* A ring that no machine has room for is a warning with both numbers. */
START_TEST(test_check_warns) {
        _cleanup_(config_unrefp) struct config *config =
                load(HEAD "    source: {type: synthetic, samples: 9, features: 16777216}\n" BATCH
                          "    ring: 256T\n");
        char text[8192];
        FILE *out = fmemopen(text, sizeof(text), "w");
        struct fault fault;

        ck_assert_int_eq(check_print(config, out, &fault), 0);
        fclose(out);
        ck_assert_msg(strstr(text, "warning     pipeline a: the ring needs 281"), "%s", text);
}
END_TEST

/* What is as usual is not said. */
START_TEST(test_check_prints_errors) {
        static const struct {
                const char *keys, *said;
        } tried[] = {
                {"    on_error: fail\n", "  on_error    fail: a bad sample ends its jobs\n"},
                {"    max_errors: 0.05\n", "  max_errors  at most 0.05 of the samples are replaced\n"},
                {"    sample_timeout: 2.5\n", "  timeout     2.5 seconds for a sample\n"},
                {"    on_error: replace\n    max_errors: 0.001\n    sample_timeout: 60\n", NULL},
        };

        for (size_t i = 0; i < sizeof(tried) / sizeof(*tried); i++) {
                _cleanup_(config_unrefp) struct config *config = NULL;
                char keys[512], text[8192];
                FILE *out = fmemopen(text, sizeof(text), "w");
                struct fault fault;

                snprintf(keys, sizeof(keys), HEAD SOURCE BATCH "    backing: memfd\n%s", tried[i].keys);
                config = load(keys);
                ck_assert_int_eq(check_print(config, out, &fault), 0);
                fclose(out);
                ck_assert_msg(!tried[i].said || strstr(text, tried[i].said), "%s", text);
                ck_assert(!strstr(text, "on_error") == (i != 0));
                ck_assert(!strstr(text, "max_errors") == (i != 1));
                ck_assert(!strstr(text, "timeout") == (i != 2));
        }
}
END_TEST

static void assert_documented(const char *text, const char *name) {
        char row[64];

        snprintf(row, sizeof(row), "| `%s` |", name);
        ck_assert_msg(strstr(text, row), "%s", name);
}

START_TEST(test_every_key_is_documented) {
        static char text[65536];
        FILE *out = fmemopen(text, sizeof(text), "w");

        check_print_keys(out);
        fclose(out);
        for (const struct key *key = config_pipeline_keys; key->name; key++)
                assert_documented(text, key->name);
        for (const struct config_part *part = config_pipeline_parts; part->name; part++)
                assert_documented(text, part->name);
        for (const struct recipe_kind *kind = recipe_transforms; kind->name; kind++)
                for (const struct key *key = kind->keys; key->name; key++)
                        assert_documented(text, key->name);
        ck_assert(strstr(text, "| `workers` | 1 to 1024 | - |"));
        ck_assert(strstr(text, "| `seed` | 0 to 2^64-1 | 0 |"));
        ck_assert(strstr(text, "| `size` | n or [height, width], 1 to 65535 | required |"));
        ck_assert(!strstr(text, "slow_every"));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("check");
        TCase *tests = tcase_create("check");

        suite_add_tcase(suite, tests);
        tcase_add_test(tests, test_check_prints);
        tcase_add_test(tests, test_check_prints_a_dataset);
        tcase_add_test(tests, test_check_names_what_refuses);
        tcase_add_test(tests, test_check_names_who_is_refused);
        tcase_add_test(tests, test_check_warns);
        tcase_add_test(tests, test_check_prints_errors);
        tcase_add_test(tests, test_every_key_is_documented);
        return run_suite(suite);
}
