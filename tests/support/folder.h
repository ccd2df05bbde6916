#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A temporary folder for unit tests of sources: made before each test, removed after it. */

#include "daemon/worker/source.h"

#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static inline void make_folder(void) {
        strcpy(folder, "/tmp/pinfeed-test-worker-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline int remove_one(const char *path, const struct stat *status, int type, struct FTW *place) {
        return remove(path);
}

static inline void remove_folder(void) {
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *in_folder(const char *name) {
        static char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        return path;
}

static inline void put_directory(const char *name) {
        ck_assert_int_eq(mkdir(in_folder(name), 0777), 0);
}

static inline void put_file(const char *name, size_t size) {
        FILE *file = fopen(in_folder(name), "w");

        ck_assert_ptr_nonnull(file);
        for (size_t i = 0; i < size; i++)
                fputc('x', file);
        fclose(file);
}

static inline void put_link(const char *name, const char *target) {
        ck_assert_int_eq(symlink(target, in_folder(name)), 0);
}

static inline int scan_folder(int *index_fd, struct fault *fault) {
        struct recipe_source recipe = {.type = RECIPE_IMAGEFOLDER, .path = folder};
        uint64_t samples = 0;
        uint32_t classes = 0;
        int r;

        r = source_find(RECIPE_IMAGEFOLDER)->scan(&recipe, NULL, NULL, &samples, &classes, index_fd, fault);
        return r < 0 ? r : (int)samples;
}
