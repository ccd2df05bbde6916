#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The way to the device for batches whose slots are not page-locked: a copy in memory of our own that is. */

#include "proto/schema.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;
struct fault;
struct mark;
struct pinfeed_batch;
struct pinfeed_job;

enum {
        STAGING_BUFFERS = 2, /* one is being filled while the device reads the other */
};

struct staging_buffer {
        uint8_t *start;
        const struct pinfeed_batch *owner; /* whose bytes are in it, if that batch says so, too */
        uint32_t filled;                   /* a bit for each field */
        struct mark *marks;                /* of the copies from it */
};

_Static_assert(SCHEMA_FIELDS_MAX <= 32, "a bit for each field");

/* A job's; its thread's, but for allocating, freeing and looking at marks. */
struct staging {
        bool refused; /* page-locked memory could not be had */
        void *memory; /* NULL: not asked for yet */
        uint32_t next;
        struct staging_buffer buffers[STAGING_BUFFERS];
        uint64_t offsets[SCHEMA_FIELDS_MAX]; /* in a buffer */
};

/* The buffer of a batch: the one that it has, or the next one as soon as the device is done with that. 0, and
 * *buffer is NULL where there is no page-locked memory; or a negative errno. */
int staging_take(struct pinfeed_job *job, struct pinfeed_batch *batch, struct staging_buffer **buffer,
                 struct fault *fault);

/* Where the rows of a field lie together in the buffer of its batch. Copies them there the first time, and
 * counts the bytes. */
const uint8_t *staging_fill(struct pinfeed_job *job, struct staging_buffer *buffer, uint32_t field);

/* By the device thread, when all marks have been reached. */
void staging_deinit(struct staging *staging, const struct device *device);
