#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Configurations in memory: a memfd, opened by its name in /proc. */

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/config.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEAD   "pipelines:\n  a:\n"
#define SOURCE "    source: {type: synthetic, samples: 100}\n"
#define BATCH  "    batch_size: 8\n"
#define IMAGES "    source: {type: imagefolder, path: /x}\n"
#define CROP   "    transforms: [{center_crop: {size: 4}}]\n"

static inline void config_unrefp(struct config **config) {
        config_unref(*config);
}

/* Loads `size` bytes as a file. The text of an error loses the file's name. */
static inline int load_bytes(const char *bytes, size_t size, struct config **config, struct fault *fault) {
        _cleanup_(fd_closep) int fd = memfd_create("config", MFD_CLOEXEC);
        char file[64];
        int r;

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
        snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
        *config = NULL;
        fault->text[0] = 0;
        r = config_load(config, file, fault);
        if (r < 0) {
                ck_assert_ptr_null(*config);
                ck_assert(!strncmp(fault->text, file, strlen(file)) && fault->text[strlen(file)] == ':');
                memmove(fault->text, fault->text + strlen(file) + 1, strlen(fault->text + strlen(file)));
        }
        return r;
}

static inline struct config *load(const char *text) {
        struct config *config;
        struct fault fault;
        int r;

        r = load_bytes(text, strlen(text), &config, &fault);
        ck_assert_msg(r == 0, "%s", fault.text);
        return config;
}
