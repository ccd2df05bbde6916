#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The memory of a pipeline's ring: created nameless, really reserved step by step, never mapped here. */

#include "daemon/config.h"

#include <stdbool.h>
#include <stdint.h>

struct fault;

enum {
        /* Bytes reserved between two turns of the loop: zeroing them takes some 20 ms, which no status
         * command feels. */
        RING_RESERVE_STEP = 64 << 20,
};

struct ring {
        int fd;                      /* read-write, for workers and jobs that may page-lock it */
        int fd_readonly;             /* for all other jobs */
        enum config_backing backing; /* SHM or MEMFD once created */
        uint32_t slots;
        uint64_t slot_bytes;
        uint64_t slot_stride;
        uint64_t reserved; /* bytes so far */
        uint64_t missing;  /* bytes that there was no room for, after -ENOSPC of ring_init; 0: not known */
};

#define RING_INIT                                                                                            \
        { .fd = -1, .fd_readonly = -1 }

/* Chooses backing and number of slots for `pipeline` and creates the file at its full size, nothing reserved
 * yet. 0, or -ENOSPC with needed and free bytes and the setting's place, or another negative errno. */
int ring_init(struct ring *ring, const struct config *config, const struct config_pipeline *pipeline,
              struct fault *fault);

/* Reserves up to RING_RESERVE_STEP bytes more. *finished: all slots are reserved. Errors as ring_init; the
 * ring is then only good for ring_deinit. */
int ring_reserve(struct ring *ring, const struct config *config, const struct config_pipeline *pipeline,
                 bool *finished, struct fault *fault);

void ring_deinit(struct ring *ring);

static inline uint64_t ring_bytes(const struct ring *ring) {
        return ring->slots * ring->slot_bytes;
}

const char *ring_backing_name(const struct ring *ring); /* "shm", "memfd", or NULL before ring_init */
