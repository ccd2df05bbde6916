/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a fuzz target over the inputs of its corpus, each one a case: what a fuzzer has once found stays
 * mended, and a target is compiled and run where there is no libFuzzer. Each input lies in memory of its
 * exact size.
 */

#include "base/cleanup.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/run.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char *directory;
static struct dirent **entries;

static int is_input(const struct dirent *entry) {
        return entry->d_name[0] != '.';
}

START_TEST(test_input) {
        _cleanup_(freep) uint8_t *data = NULL;
        char path[4096];
        struct stat status;
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", directory, entries[_i]->d_name);
        fprintf(stderr, "%s\n", path); /* shown when it fails; a sanitizer ends the process by itself */
        file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fstat(fileno(file), &status), 0);
        data = malloc((size_t)status.st_size + (status.st_size == 0));
        ck_assert_uint_eq(fread(data, 1, (size_t)status.st_size, file), (size_t)status.st_size);
        fclose(file);
        ck_assert_int_eq(LLVMFuzzerTestOneInput(data, (size_t)status.st_size), 0);
}
END_TEST

int main(int argc, char **argv) {
        Suite *suite = suite_create("corpus");
        TCase *inputs = tcase_create("inputs");
        int n, failed;

        if (argc != 2) {
                fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
                return 2;
        }
        directory = argv[1];
        n = scandir(directory, &entries, is_input, alphasort);
        if (n <= 0) {
                fprintf(stderr, "no inputs in %s\n", directory);
                return 1;
        }
        tcase_add_loop_test(inputs, test_input, 0, n);
        suite_add_tcase(suite, inputs);
        failed = run_suite(suite);
        for (int i = 0; i < n; i++)
                free(entries[i]);
        free(entries);
        return failed;
}
