#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job whose rows are the ramp, so that any byte of a batch tells where it belongs, and where they go on the
 * device. */

#include "client/pinfeed.h"
#include "tests/gpu/gpu.h"

#include <stdbool.h>
#include <stdint.h>

struct measure;

enum {
        FEED_ROWS = 64, /* of a batch, so that many workers can make one */
        FEED_INDEX = 0, /* fields */
        FEED_DATA = 1,
        FEED_FIELDS = 2,
};

struct feed_shape {
        uint64_t bytes;   /* of a batch */
        uint64_t slots;   /* of the ring */
        uint64_t batches; /* of an epoch */
        uint32_t held;    /* batches at once */
        uint32_t reconnect_s;
        bool on_host; /* the job has no device */
};

struct feed {
        struct pinfeed_job *job;
        uint64_t row_bytes;
        uint64_t batches;
        uint64_t epoch; /* what comes next */
        uint64_t row;
};

/* Opens the job; the first one of a runtime directory starts the daemon. Never returns with an error. */
void feed_open(struct feed *feed, const struct measure *measure, const struct feed_shape *shape);

/* The next batch, which is the one that must come next, over the ends of epochs. */
struct pinfeed_batch *feed_next(struct feed *feed);

/* The first batch of epoch 0 comes next, out of the slot that it lies in if it is still there. */
void feed_rewind(struct feed *feed);

struct pinfeed_info feed_info(const struct feed *feed);

void feed_release(struct feed *feed, struct pinfeed_batch *batch);

/* A batch's place on the device. */
struct landing {
        void *fields[FEED_FIELDS];
};

struct landing landing_new(const struct gpu *gpu, const struct feed *feed);

/* Queues the copy of all fields. */
void feed_copy(struct feed *feed, struct pinfeed_batch *batch, const struct landing *landing,
               cuda_stream stream);
