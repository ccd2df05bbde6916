#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Collects the samples of a scan in their order and makes the sealed memfd of proto/index.h from them. */

#include "proto/index.h"

#include <stdint.h>
#include <stddef.h>

struct fault;

/* Starts zeroed. Offsets of names count from the first name until index_build_finish shifts them. */
struct index_build {
        struct index_entry *samples;
        struct index_entry *classes;
        char *names;
        uint64_t n_samples, n_classes, n_names;
        uint64_t room_samples, room_classes, room_names;
};

void index_build_deinit(struct index_build *build);

/* 0 or -ENOMEM; a name of a sample is PREFIX/NAME where `prefix` is not "". */
int index_build_add_class(struct index_build *build, const char *name);
int index_build_add_sample(struct index_build *build, const char *prefix, const char *name, uint32_t class,
                           uint64_t size);

/* Writes and seals the file. 0 and a descriptor of the caller's, or a negative errno. The build can only be
 * deinitialised afterwards. */
int index_build_finish(struct index_build *build, int *index_fd, struct fault *fault);
