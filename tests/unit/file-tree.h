#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A tree of files that looks like a machine's, for what reads /proc, /sys and /etc below a root. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char directory[64]; /* the root */

static void make_directory(void) {
        snprintf(directory, sizeof(directory), "/tmp/pinfeed-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void) {
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", directory);
        ck_assert_int_eq(system(command), 0);
}

/* A file with this text, and all directories above it. */
static void write_file(const char *name, const char *text) {
        char path[512];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        for (char *slash = path + strlen(directory) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
                *slash = 0;
                mkdir(path, 0700);
        }
        file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(text, file);
        fclose(file);
}
