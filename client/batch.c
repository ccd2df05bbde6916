/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a caller does with a batch: reads it, copies it, releases it.
 *
 * Release may come from any thread, while the job's own thread takes in new handles:
 *
 *   - HELD -> RELEASING is one compare-and-exchange: of two releases of one batch exactly one wins, and the
 * struct is the winner's until it stores FREE, UNSENT or COPYING (release). The job's thread reads FREE
 * (acquire) before it fills the struct again, so it never writes what a releaser still reads.
 *   - A batch with copies under way becomes COPYING, and the device thread's (reaper.c): a lock hands it
 * over, and from there on the winner touches it no more. The lease, the reference to the ring and the number
 * by which the daemon knows the batch stay; only the caller holds it no longer, so it may ask for more.
 *   - The daemon's answer to a release, a new handle, may overtake the store of FREE. It finds one of the
 * spare structs.
 *   - The daemon has no queue for us and we have none for it: when the socket is full (the daemon is
 * stopped), the batch becomes UNSENT and the job's thread sends it later, many in one record.
 *   - Of an attachment that has been retired meanwhile there is nobody to tell, and no descriptor to tell it
 * by. Its ring goes with its last batch (attachment.c). */

#include "client/batch.h"

#include "client/attachment.h"
#include "client/copy.h"
#include "client/job.h"
#include "client/reaper.h"
#include "client/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int batch_release_held(struct attachment *attachment, struct pinfeed_batch *batch) {
        struct pinfeed_job *job = attachment->job;
        uint32_t state = BATCH_HELD;
        int r;

        if (!atomic_compare_exchange_strong_explicit(&batch->state, &state, BATCH_RELEASING,
                                                     memory_order_acq_rel, memory_order_relaxed))
                return -EALREADY;
        atomic_fetch_sub_explicit(&attachment->n_held, 1, memory_order_relaxed);
        if (batch->marks) {
                batch_set_state(batch, BATCH_COPYING);
                reaper_add(job->reaper, batch);
                return 0;
        }
        r = attachment_release(attachment, batch);
        return job->reconnect_s ? 0 : r; /* the job's thread finds out and goes on elsewhere */
}

int pinfeed_batch_release(struct pinfeed_batch *batch) {
        struct attachment *attachment = registry_get(batch);
        int r;

        if (!attachment)
                r = -EINVAL;
        else if (!registry_is_ours(attachment->job))
                r = -ECHILD;
        else
                r = batch_release_held(attachment, batch);
        registry_put();
        return r;
}

int batch_check(const struct pinfeed_batch *batch) {
        const struct attachment *attachment = registry_get(batch);
        int r = -EINVAL;

        if (attachment && !registry_is_ours(attachment->job))
                r = -ECHILD;
        else if (attachment && batch_state(batch) == BATCH_HELD)
                r = 0;
        registry_put();
        return r;
}

static bool batch_is_held(const struct pinfeed_batch *batch) {
        return batch_check(batch) == 0;
}

uint32_t pinfeed_batch_rows(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->position.rows : 0;
}

uint32_t pinfeed_batch_epoch(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->position.epoch : 0;
}

uint64_t pinfeed_batch_row(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->position.row : 0;
}

uint32_t pinfeed_batch_padding(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->padding : 0;
}

uint64_t pinfeed_batch_ready_ns(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->ready_ns : 0;
}

uint64_t pinfeed_batch_received_ns(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->received_ns : 0;
}

uint32_t pinfeed_batch_segments(const struct pinfeed_batch *batch) {
        return batch_is_held(batch) ? batch->n_segments : 0;
}

const void *batch_locate(const struct pinfeed_batch *batch, uint32_t index, uint64_t offset,
                         uint64_t row_bytes, uint32_t *rows) {
        const struct batch_segment *segment = &batch_segments(batch)[index];

        if (rows)
                *rows = segment->rows;
        return view_slot(&batch->attachment->view, segment->slot) + offset + segment->first * row_bytes;
}

/* Whether there is a segment `index` to look at; if not, *rows is 0. */
static bool batch_has(const struct pinfeed_batch *batch, uint32_t index, uint32_t *rows) {
        if (rows)
                *rows = 0;
        return batch_is_held(batch) && index < batch->n_segments;
}

const void *pinfeed_batch_data(const struct pinfeed_batch *batch, uint32_t segment, uint32_t field,
                               uint32_t *rows) {
        if (!batch_has(batch, segment, rows) || field >= batch->attachment->view.n_fields)
                return NULL;
        return batch_locate(batch, segment, batch->attachment->view.offsets[field],
                            batch->attachment->view.fields[field].row_bytes, rows);
}

const int64_t *pinfeed_batch_ids(const struct pinfeed_batch *batch, uint32_t segment, uint32_t *rows) {
        if (!batch_has(batch, segment, rows))
                return NULL;
        return batch_locate(batch, segment, batch->attachment->view.ids_offset, sizeof(int64_t), rows);
}

/* A slot's own flags are everybody's, and know nothing of padding. */
static const uint8_t *batch_flags(const struct pinfeed_batch *batch, uint32_t index, uint32_t *rows) {
        const struct attachment *attachment = batch->attachment;
        const uint8_t *flags = batch_locate(batch, index, attachment->view.flags_offset, 1, rows);

        return batch_segments(batch)[index].padding ? attachment->padding_flags : flags;
}

const uint8_t *pinfeed_batch_flags(const struct pinfeed_batch *batch, uint32_t segment, uint32_t *rows) {
        if (!batch_has(batch, segment, rows))
                return NULL;
        return batch_flags(batch, segment, rows);
}

/* Copies the part of all segments that starts at `offset` in their slots and has `row_bytes` a row. */
static void batch_copy(const struct pinfeed_batch *batch, uint64_t offset, uint64_t row_bytes, void *to) {
        uint64_t bytes = row_bytes * batch->position.rows;
        uint8_t *out = to;

        for (uint32_t i = 0; i < batch->n_segments; i++) {
                uint32_t rows;
                const void *from = batch_locate(batch, i, offset, row_bytes, &rows);

                copy_bytes(out, from, rows * row_bytes, bytes);
                out += rows * row_bytes;
        }
}

uint64_t batch_field_bytes(const struct pinfeed_batch *batch, uint32_t field) {
        return batch->attachment->view.fields[field].row_bytes * batch->position.rows;
}

void batch_copy_field(const struct pinfeed_batch *batch, uint32_t field, void *to) {
        const struct view *view = &batch->attachment->view;

        batch_copy(batch, view->offsets[field], view->fields[field].row_bytes, to);
}

int64_t pinfeed_batch_copy(const struct pinfeed_batch *batch, uint32_t field, void *to, size_t size) {
        if (!batch_is_held(batch) || field >= batch->attachment->view.n_fields)
                return -EINVAL;
        if (size < batch_field_bytes(batch, field))
                return -ENOSPC;
        batch_copy_field(batch, field, to);
        return (int64_t)batch_field_bytes(batch, field);
}

int64_t pinfeed_batch_copy_ids(const struct pinfeed_batch *batch, int64_t *to, size_t size) {
        if (!batch_is_held(batch))
                return -EINVAL;
        if (size < batch->position.rows * sizeof(*to))
                return -ENOSPC;
        batch_copy(batch, batch->attachment->view.ids_offset, sizeof(*to), to);
        return (int64_t)(batch->position.rows * sizeof(*to));
}

int64_t pinfeed_batch_copy_flags(const struct pinfeed_batch *batch, uint8_t *to, size_t size) {
        if (!batch_is_held(batch))
                return -EINVAL;
        if (size < batch->position.rows)
                return -ENOSPC;
        for (uint32_t i = 0; i < batch->n_segments; i++) {
                uint32_t rows;
                const uint8_t *from = batch_flags(batch, i, &rows);

                memcpy(to, from, rows);
                to += rows;
        }
        return batch->position.rows;
}
