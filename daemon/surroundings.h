#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What around the daemon will not bear what it is asked to do: found at its start. */

#include "base/fault.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
        SURROUNDINGS_MAX = 8, /* kinds of warnings that there are */
};

struct surroundings {
        uint32_t n;
        struct fault warnings[SURROUNDINGS_MAX];
};

/* Of everything that the configuration allows, at once. */
struct surroundings_needs {
        uint64_t ring_bytes;
        uint32_t pipelines;
        uint32_t workers;
        uid_t uid;
        bool is_private;
};

/* RLIM_INFINITY: no limit. */
struct surroundings_limits {
        uint64_t descriptors;
        uint64_t processes; /* of this user */
};

void surroundings_limits(struct surroundings_limits *limits);

/* Reads a few small files below `root`: "" for the machine, a fixture tree in tests. */
void surroundings_look(struct surroundings *surroundings, const char *root,
                       const struct surroundings_needs *needs, const struct surroundings_limits *limits);

/* A place for one more warning. */
struct fault *surroundings_next(struct surroundings *surroundings);
