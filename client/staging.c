/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A copy engine reads page-locked memory only. Where the slots are not, the batch is copied into memory that
 * is, by the thread that wants it on the device, and from there on nobody needs the slots: the lease ends
 * when the batch is released. There are two buffers, so that one is filled while the device still reads the
 * other; the third batch waits until the first one has arrived.
 *
 * A buffer belongs to a batch until another batch takes it. Fields come one by one or all at once, and on
 * several streams; each is copied into the buffer once, however often it is copied from there.
 *
 * Batches and buffers name each other. A batch struct is used again for other rows, and then names no buffer
 * at first; a buffer may have been taken for another batch since, and then names that one. Only when both
 * agree are the bytes those of the batch.
 *
 * All of it is one allocation of twice a batch, made when the first batch comes by. Where it is refused there
 * is one way left, which CUDA offers itself: to be given the slot's memory as it is, of which it takes a copy
 * in pieces before the call returns. */

#include "client/staging.h"

#include "base/fault.h"
#include "base/number.h"
#include "client/attachment.h"
#include "client/batch.h"
#include "client/device.h"
#include "client/job.h"
#include "client/reaper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
        STAGING_ALIGN = 256, /* as CUDA aligns its own memory */
};

/* Lays out a buffer for the largest batch of the job; its bytes, 0 when there are none or too many. */
static uint64_t lay_out(struct staging *staging, const struct pinfeed_job *job) {
        uint64_t end = 0, bytes;

        for (uint32_t i = 0; i < job->attached.n_field; i++) {
                staging->offsets[i] = end;
                if (!number_multiply_u64(job->fields[i].row_bytes, job->plan.batch_size, &bytes) ||
                    !number_add_u64(end, bytes, &end) || !number_align_u64(end, STAGING_ALIGN, &end))
                        return 0;
        }
        return end <= SIZE_MAX / STAGING_BUFFERS ? end : 0;
}

static int allocate(struct reaper *reaper, void *context, struct fault *fault) {
        struct pinfeed_job *job = context;
        struct staging *staging = &job->staging;
        uint64_t bytes = lay_out(staging, job);
        int r;

        if (bytes == 0)
                return fault_set(fault, -EINVAL, "a batch has no bytes, or too many");
        r = job->device.backend->allocate(&job->device, &staging->memory, bytes * STAGING_BUFFERS, fault);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < STAGING_BUFFERS; i++)
                staging->buffers[i].start = (uint8_t *)staging->memory + i * bytes;
        return 0;
}

/* Of the next buffer. */
static int await_marks(struct reaper *reaper, void *context, struct fault *fault) {
        struct staging_buffer *buffer = context;

        return reaper_reach(reaper, &buffer->marks) ? 0 : REAPER_LATER;
}

/* The job goes on without; why is for people, who look at the mapping for it. */
static void refuse(struct pinfeed_job *job, struct fault *fault) {
        size_t used = strlen(job->map_reason);

        snprintf(job->map_reason + used, sizeof(job->map_reason) - used, "; nor can buffers be had: %s",
                 fault->text);
        fault->text[0] = 0;
        job->staging.refused = true;
        if (job->current)
                job->current->pins.untold = true;
}

static struct staging_buffer *find(struct staging *staging, const struct pinfeed_batch *batch) {
        for (uint32_t i = 0; i < STAGING_BUFFERS; i++)
                if (staging->buffers[i].owner == batch && batch->buffer == &staging->buffers[i])
                        return &staging->buffers[i];
        return NULL;
}

int staging_take(struct pinfeed_job *job, struct pinfeed_batch *batch, struct staging_buffer **bufferp,
                 struct fault *fault) {
        struct staging *staging = &job->staging;
        struct staging_buffer *buffer = find(staging, batch);
        int r = 0;

        *bufferp = buffer;
        if (buffer || staging->refused)
                return 0;
        if (!staging->memory)
                r = reaper_call(job->reaper, allocate, job, fault);
        if (r == -EXDEV)
                return r;
        if (r < 0) {
                refuse(job, fault);
                return 0;
        }
        buffer = &staging->buffers[staging->next];
        if (buffer->marks)
                r = reaper_call(job->reaper, await_marks, buffer, fault);
        if (r < 0)
                return r;
        staging->next = (staging->next + 1) % STAGING_BUFFERS;
        buffer->owner = batch;
        buffer->filled = 0;
        batch->buffer = *bufferp = buffer;
        return 0;
}

const uint8_t *staging_fill(struct pinfeed_job *job, struct staging_buffer *buffer, uint32_t field) {
        uint8_t *start = buffer->start + job->staging.offsets[field];

        if (!(buffer->filled & 1u << field)) {
                batch_copy_field(buffer->owner, field, start);
                job->copies += batch_field_bytes(buffer->owner, field);
                buffer->filled |= 1u << field;
        }
        return start;
}

void staging_deinit(struct staging *staging, const struct device *device) {
        if (staging->memory)
                device->backend->free(device, staging->memory);
        *staging = (struct staging){};
}
