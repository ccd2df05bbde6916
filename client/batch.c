/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Batches are structs in one array that lives as long as their job; no batch costs an allocation. A released
 * one must be told from a held one although the pointer stays the same, so each has a state, and the array
 * has about twice as many structs as can be out at once, used round and round: a pointer that was released
 * comes back only after many others.
 *
 * Release may come from any thread, while the job's own thread takes in new handles:
 *
 *   - HELD -> RELEASING is one compare-and-exchange: of two releases of one batch exactly one wins, and the
 * struct is the winner's until it stores FREE or UNSENT (release). The job's thread reads FREE (acquire)
 * before it fills the struct again, so it never writes what a releaser still reads.
 *   - The daemon's answer to a release, a new handle, may overtake the store of FREE. It finds one of the
 * spare structs.
 *   - The daemon has no queue for us and we have none for it: when the socket is full (the daemon is
 * stopped), the batch becomes UNSENT and the job's thread sends it later, many in one record. */

#include "client/job.h"

#include "client/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
        BATCH_SPARE_MIN = 256,
};

static uint32_t batch_state(const struct pinfeed_batch *batch) {
        return atomic_load_explicit(&((struct pinfeed_batch *)batch)->state, memory_order_acquire);
}

static void batch_set_state(struct pinfeed_batch *batch, enum batch_state state) {
        atomic_store_explicit(&batch->state, state, memory_order_release);
}

/* All that max_held allows, and as many again. */
int batch_new_array(struct pinfeed_job *job) {
        uint32_t held = job->attached.max_held;
        uint32_t n = held + (held < BATCH_SPARE_MIN ? BATCH_SPARE_MIN : held);
        uint64_t most = ((uint64_t)job->plan.batch_size + job->view.slot_rows - 2) / job->view.slot_rows + 1;

        job->segments_each = most < MESSAGE_SEGMENTS_MAX ? (uint32_t)most : MESSAGE_SEGMENTS_MAX;
        job->segments = calloc((size_t)n * job->segments_each, sizeof(*job->segments));
        job->batches = calloc(n, sizeof(*job->batches));
        if (!job->segments || !job->batches)
                return fault_set(&job->fault, -ENOMEM, "out of memory for %u batches", n);
        atomic_store_explicit(&job->n_batches, n, memory_order_release);
        return 0;
}

struct batch_segment *batch_segments(const struct pinfeed_batch *batch) {
        const struct pinfeed_job *job = batch->job;

        return job->segments + (size_t)(batch - job->batches) * job->segments_each;
}

struct pinfeed_batch *batch_take_free(struct pinfeed_job *job) {
        for (uint32_t tried = 0; tried < job->n_batches; tried++) {
                struct pinfeed_batch *batch = &job->batches[job->cursor];

                job->cursor = (job->cursor + 1) % job->n_batches;
                if (batch_state(batch) == BATCH_FREE)
                        return batch;
        }
        return NULL;
}

/* Tells the daemon about releases that did not fit before. 0, also when they do not fit now; -EPIPE. */
int batch_send_unsent(struct pinfeed_job *job) {
        struct message *message = &job->message;
        struct pinfeed_batch *sending[MESSAGE_RELEASES_MAX];
        uint32_t n = 0;
        int r;

        if (atomic_load_explicit(&job->n_unsent, memory_order_relaxed) == 0)
                return 0;
        message->type = MESSAGE_RELEASE;
        for (uint32_t i = 0; i < job->n_batches && n < MESSAGE_RELEASES_MAX; i++) {
                if (batch_state(&job->batches[i]) != BATCH_UNSENT)
                        continue;
                sending[n] = &job->batches[i];
                message->release.number[n++] = job->batches[i].number;
        }
        if (n == 0)
                return 0;
        message->release.n_number = n;
        r = message_send(job->socket, message, NULL, 0);
        if (r < 0 && r != -EPIPE)
                return 0;
        for (uint32_t i = 0; i < n; i++)
                batch_set_state(sending[i], BATCH_FREE);
        atomic_fetch_sub_explicit(&job->n_unsent, n, memory_order_relaxed);
        return r;
}

static int batch_release_held(struct pinfeed_job *job, struct pinfeed_batch *batch) {
        struct message message; /* not zeroed: of its 20 KiB three words are used */
        uint32_t state = BATCH_HELD;
        int r;

        if (!atomic_compare_exchange_strong_explicit(&batch->state, &state, BATCH_RELEASING,
                                                     memory_order_acq_rel, memory_order_relaxed))
                return -EALREADY;
        atomic_fetch_sub_explicit(&job->n_held, 1, memory_order_relaxed);

        message.type = MESSAGE_RELEASE;
        message.release.n_number = 1;
        message.release.number[0] = batch->number;
        r = message_send(job->socket, &message, NULL, 0);
        if (r == 0 || r == -EPIPE) {
                batch_set_state(batch, BATCH_FREE);
                return r;
        }
        atomic_fetch_add_explicit(&job->n_unsent, 1, memory_order_relaxed);
        batch_set_state(batch, BATCH_UNSENT);
        return 0;
}

int pinfeed_batch_release(struct pinfeed_batch *batch) {
        struct pinfeed_job *job = registry_get(batch);
        int r;

        if (!job)
                r = -EINVAL;
        else if (!registry_is_ours(job))
                r = -ECHILD;
        else
                r = batch_release_held(job, batch);
        registry_put();
        return r;
}

/* The batch, if it may be read: of a living job of this process, and held. */
static const struct pinfeed_batch *batch_check(const struct pinfeed_batch *batch) {
        struct pinfeed_job *job = registry_get(batch);
        bool good = job && registry_is_ours(job) && batch_state(batch) == BATCH_HELD;

        registry_put();
        return good ? batch : NULL;
}

uint32_t pinfeed_batch_rows(const struct pinfeed_batch *batch) {
        return batch_check(batch) ? batch->position.rows : 0;
}

uint32_t pinfeed_batch_epoch(const struct pinfeed_batch *batch) {
        return batch_check(batch) ? batch->position.epoch : 0;
}

uint64_t pinfeed_batch_row(const struct pinfeed_batch *batch) {
        return batch_check(batch) ? batch->position.row : 0;
}

uint64_t pinfeed_batch_ready_ns(const struct pinfeed_batch *batch) {
        return batch_check(batch) ? batch->ready_ns : 0;
}

uint64_t pinfeed_batch_received_ns(const struct pinfeed_batch *batch) {
        return batch_check(batch) ? batch->received_ns : 0;
}

uint32_t pinfeed_batch_segments(const struct pinfeed_batch *batch) {
        return batch_check(batch) ? batch->n_segments : 0;
}

/* The bytes of a segment in the part of its slot that starts at `offset` and has `row_bytes` a row. */
static const void *batch_locate(const struct pinfeed_batch *batch, uint32_t index, uint64_t offset,
                                uint64_t row_bytes, uint32_t *rows) {
        const struct batch_segment *segment = &batch_segments(batch)[index];

        if (rows)
                *rows = segment->rows;
        return view_slot(&batch->job->view, segment->slot) + offset + segment->first * row_bytes;
}

/* Whether there is a segment `index` to look at; if not, *rows is 0. */
static bool batch_has(const struct pinfeed_batch *batch, uint32_t index, uint32_t *rows) {
        if (rows)
                *rows = 0;
        return batch_check(batch) && index < batch->n_segments;
}

const void *pinfeed_batch_data(const struct pinfeed_batch *batch, uint32_t segment, uint32_t field,
                               uint32_t *rows) {
        if (!batch_has(batch, segment, rows) || field >= batch->job->view.n_fields)
                return NULL;
        return batch_locate(batch, segment, batch->job->view.offsets[field],
                            batch->job->view.fields[field].row_bytes, rows);
}

const int64_t *pinfeed_batch_ids(const struct pinfeed_batch *batch, uint32_t segment, uint32_t *rows) {
        if (!batch_has(batch, segment, rows))
                return NULL;
        return batch_locate(batch, segment, batch->job->view.ids_offset, sizeof(int64_t), rows);
}

const uint8_t *pinfeed_batch_flags(const struct pinfeed_batch *batch, uint32_t segment, uint32_t *rows) {
        if (!batch_has(batch, segment, rows))
                return NULL;
        return batch_locate(batch, segment, batch->job->view.flags_offset, 1, rows);
}

int64_t pinfeed_batch_copy(const struct pinfeed_batch *batch, uint32_t field, void *to, size_t size) {
        const struct view *view;
        uint8_t *out = to;
        uint64_t bytes;

        if (!batch_check(batch) || field >= batch->job->view.n_fields)
                return -EINVAL;
        view = &batch->job->view;
        bytes = view->fields[field].row_bytes * batch->position.rows;
        if (size < bytes)
                return -ENOSPC;
        for (uint32_t i = 0; i < batch->n_segments; i++) {
                uint32_t rows;
                const void *from =
                        batch_locate(batch, i, view->offsets[field], view->fields[field].row_bytes, &rows);

                memcpy(out, from, rows * view->fields[field].row_bytes);
                out += rows * view->fields[field].row_bytes;
        }
        return (int64_t)bytes;
}
