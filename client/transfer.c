/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A batch's way to the GPU, from where it lies:
 *
 *     all its slots are page-locked     the device reads them; a mark behind the copies holds the lease
 *     not all of them are               this thread copies to a buffer of the job's and the device reads
 *                                       that; a mark holds the buffer, and nothing the lease (staging.c)
 *     nor is there such a buffer        CUDA is given the slots all the same and copies them itself; a mark
 *                                       holds the lease
 *
 * No copy is ever queued without a mark behind it. So the mark is taken before anything is queued, and
 * recorded whatever the copies said: the first may be under way when the second fails. A mark that cannot be
 * recorded is tried once more; if that fails, too, the context is dead, and so is what was queued in it. In
 * either case the caller hears of it and does not count on the bytes.
 *
 * One mark is of one call, although a batch may be copied to a stream many times: what looks like the same
 * stream need not be (reaper.c). */

#include "client/transfer.h"

#include "base/fault.h"
#include "client/attachment.h"
#include "client/batch.h"
#include "client/job.h"
#include "client/reaper.h"
#include "client/registry.h"
#include "client/staging.h"

#include <errno.h>

/* ---- the job ---- */

int transfer_open(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        int r = device_open(&job->device, attach->device, attach->cuda_runtime, &job->fault);

        if (r < 0 || device_is_host(&job->device))
                return r;
        job->pin = attach->pin;
        if (job->pin != PINFEED_PIN_NEVER)
                job->request.map =
                        job->device.registers_read_only ? MESSAGE_MAP_READ_ONLY : MESSAGE_MAP_PINNED;
        job->reaper = reaper_new(&job->device);
        return job->reaper ? 0 : fault_set(&job->fault, -ENOMEM, "out of memory");
}

static void unregister_all(struct attachment *attachment) {
        while (pins_remove_one(&attachment->pins, &attachment->view, &attachment->job->device))
                continue;
}

/* By the device thread. */
static int undo(struct reaper *reaper, void *context, struct fault *fault) {
        struct pinfeed_job *job = context;

        if (!reaper_is_done(reaper))
                return REAPER_LATER;
        if (job->current)
                unregister_all(job->current);
        for (struct attachment *attachment = job->retired; attachment; attachment = attachment->next)
                unregister_all(attachment);
        staging_deinit(&job->staging, &job->device);
        return 0;
}

void transfer_close(struct pinfeed_job *job) {
        bool is_ours = registry_is_ours(job);

        if (job->reaper && is_ours)
                reaper_finish(job->reaper, undo, job);
        reaper_free(job->reaper, is_ours);
        job->reaper = NULL;
}

int transfer_turn(struct pinfeed_job *job) {
        int r;

        if (!job->reaper)
                return 0;
        r = reaper_turn(job->reaper, &job->fault);
        return r < 0 ? r : reaper_take_error(job->reaper, &job->fault);
}

bool transfer_needs_turns(const struct pinfeed_job *job) {
        return job->reaper && reaper_has_no_thread(job->reaper);
}

/* ---- a batch ---- */

struct transfer {
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        void *stream;
        struct staging_buffer *buffer; /* NULL: from the slots */
        uint64_t queued;
};

static int queue(const struct transfer *transfer, uint8_t *to, const void *from, uint64_t bytes) {
        const struct device *device = &transfer->job->device;

        return device->backend->copy(device, to, from, bytes, transfer->stream, &transfer->job->fault);
}

/* Rows of a slot, as many copies as registrations they lie in. */
static int queue_rows(const struct transfer *transfer, uint8_t *to, const uint8_t *from, uint64_t bytes,
                      uint64_t offset) {
        const struct pins *pins = &transfer->batch->attachment->pins;
        int r = 0;

        for (uint64_t n; bytes > 0 && r == 0; bytes -= n, offset += n) {
                n = pins_run(pins, offset, bytes);
                r = queue(transfer, to, from, n);
                to += n;
                from += n;
        }
        return r;
}

static int queue_slots(struct transfer *transfer, uint32_t field, uint8_t *to) {
        const struct pinfeed_batch *batch = transfer->batch;
        const struct view *view = &batch->attachment->view;
        uint64_t row_bytes = view->fields[field].row_bytes;
        int r = 0;

        for (uint32_t i = 0; i < batch->n_segments && r == 0; i++) {
                const struct batch_segment *segment = &batch_segments(batch)[i];
                uint64_t offset = view->offsets[field] + segment->first * row_bytes;

                r = queue_rows(transfer, to, view_slot(view, segment->slot) + offset,
                               segment->rows * row_bytes, offset);
                to += segment->rows * row_bytes;
        }
        if (!batch->registered)
                transfer->job->copies += batch_field_bytes(batch, field); /* CUDA does it, in this process */
        return r;
}

static int queue_field(struct transfer *transfer, uint32_t field, uint8_t *to) {
        uint64_t bytes = batch_field_bytes(transfer->batch, field);
        int r;

        if (transfer->buffer)
                r = queue(transfer, to, staging_fill(transfer->job, transfer->buffer, field), bytes);
        else
                r = queue_slots(transfer, field, to);
        if (r < 0)
                return fault_prefix(&transfer->job->fault, r, "field %s", transfer->job->fields[field].name);
        transfer->queued += bytes;
        return 0;
}

/* Behind what was queued; what holds then is in the list of what the copies read. */
static int record(const struct transfer *transfer, struct mark *mark, struct fault *fault) {
        struct pinfeed_job *job = transfer->job;
        const struct device *device = &job->device;
        struct mark **marks = transfer->buffer ? &transfer->buffer->marks : &transfer->batch->marks;
        int r;

        r = device->backend->mark(device, mark->handle, transfer->stream, fault);
        mark->recorded = r == 0 || device->backend->mark(device, mark->handle, transfer->stream, NULL) == 0;
        mark->position = transfer->batch->position;
        mark->next = *marks;
        *marks = mark;
        return r;
}

/* Everything that can fail before something is queued. */
static int begin(struct transfer *transfer, struct mark **mark) {
        struct pinfeed_job *job = transfer->job;
        const struct device *device = &job->device;
        int r;

        r = device->backend->check_thread(device, &job->fault);
        if (r == 0)
                r = device->backend->check_stream(device, transfer->stream, &job->fault);
        if (r == 0 && !transfer->batch->registered)
                r = staging_take(job, transfer->batch, &transfer->buffer, &job->fault);
        if (r == 0)
                r = reaper_take_mark(job->reaper, mark, &job->fault);
        return r;
}

static int transfer_fields(struct transfer *transfer, void *const *to, uint32_t n_fields) {
        struct fault fault;
        struct mark *mark;
        int r, recorded;

        r = begin(transfer, &mark);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < n_fields && r == 0; i++)
                if (to[i] && batch_field_bytes(transfer->batch, i) > 0)
                        r = queue_field(transfer, i, to[i]);
        recorded = record(transfer, mark, &fault);
        if (r == 0 && recorded < 0)
                r = fault_set(&transfer->job->fault, recorded, "%s", fault.text);
        return r;
}

/* Without a GPU. */
static int64_t copy_fields(struct pinfeed_batch *batch, void *const *to, uint32_t n_fields, void *stream) {
        uint64_t bytes = 0;

        if (stream)
                return fault_set(&batch->attachment->job->fault, -EINVAL,
                                 "a stream is given, but the job has no device: attach with device cuda:N");
        for (uint32_t i = 0; i < n_fields; i++)
                if (to[i]) {
                        batch_copy_field(batch, i, to[i]);
                        bytes += batch_field_bytes(batch, i);
                }
        return (int64_t)bytes;
}

int64_t pinfeed_batch_copy_all_async(struct pinfeed_batch *batch, void *const *to, void *stream) {
        struct transfer transfer = {.batch = batch, .stream = stream};
        const struct position *position;
        uint32_t n_fields;
        int r;

        r = batch_check(batch);
        if (r < 0)
                return r;
        transfer.job = batch->attachment->job;
        n_fields = batch->attachment->view.n_fields;
        if (!transfer.job->reaper)
                return copy_fields(batch, to, n_fields, stream);
        r = transfer_fields(&transfer, to, n_fields);
        if (r == 0)
                return (int64_t)transfer.queued;
        position = &batch->position;
        return fault_prefix(&transfer.job->fault, r, "copying rows %llu+%u of epoch %u to %s",
                            (unsigned long long)position->row, position->rows, position->epoch,
                            transfer.job->device.name);
}

int64_t pinfeed_batch_copy_async(struct pinfeed_batch *batch, uint32_t field, void *to, void *stream) {
        void *fields[SCHEMA_FIELDS_MAX] = {};
        int r = batch_check(batch);

        if (r < 0)
                return r;
        if (field >= batch->attachment->view.n_fields || !to)
                return fault_set(&batch->attachment->job->fault, -EINVAL,
                                 "copying field %u to %p: the batch has %u fields", field, to,
                                 batch->attachment->view.n_fields);
        fields[field] = to;
        return pinfeed_batch_copy_all_async(batch, fields, stream);
}
