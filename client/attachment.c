/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job outlives its daemon: it has one current attachment at most, and any number of retired ones whose
 * batches the caller still holds. A batch belongs to the attachment that it came over for as long as it
 * lives, and so do the ring that it lies in and the number by which its daemon knows it.
 *
 * Batches are structs in one array that lives as long as their attachment; no batch costs an allocation. A
 * released one must be told from a held one although the pointer stays the same, so each has a state, and the
 * array has about twice as many structs as can be out at once, used round and round: a pointer that was
 * released comes back only after many others.
 *
 * Releases come from any thread, under the registry's read lock. So what takes something away from them
 * happens under its write lock: closing the socket (or a release could be written to whoever has the
 * descriptor next) and taking an attachment out of its job's list before it is freed.
 *
 *   - The ring is unmapped by the last reference: one is the job's own while the attachment is current, one
 * is each batch's that the caller holds or a GPU may still read. A current attachment is therefore never
 * unmapped, and a retired one at once when its last batch goes, in whichever thread that is.
 *   - A ring of which slots are registered must not be unmapped before they are unregistered, and that is the
 * device thread's to do (reaper.c). It has a reference for it, which is a high bit of the same number: who
 * gives back the last of the others finds exactly that bit left, and hands the attachment over.
 *   - The arrays are freed by the job's own thread, and not before another attachment retires or the job is
 * closed: a second release is then still noticed, and there is never more than one attachment that waits for
 * nothing else. */

#include "client/attachment.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "client/job.h"
#include "client/reaper.h"
#include "client/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
        ATTACHMENT_SPARE_MIN = 256,
};

struct attachment *attachment_new(struct pinfeed_job *job) {
        struct attachment *attachment = calloc(1, sizeof(*attachment));

        if (!attachment)
                return NULL;
        attachment->job = job;
        attachment->socket = -1;
        attachment->references = 1;
        return attachment;
}

void attachment_free(struct attachment *attachment) {
        if (!attachment)
                return;
        fd_closep(&attachment->socket);
        view_deinit(&attachment->view);
        pins_deinit(&attachment->pins);
        free(attachment->padding_flags);
        free(attachment->segments);
        free(attachment->batches);
        free(attachment);
}

/* Whether any batch of the plan, wherever it starts, can have rows beyond the epoch's end. */
static bool can_pad(const struct position_plan *plan) {
        return plan->last_batch == LAST_BATCH_PAD ||
               (plan->last_batch == LAST_BATCH_SHORT && plan->world_size > 1);
}

int attachment_prepare(struct attachment *attachment, const struct message_attached *attached,
                       const struct position_plan *plan, int ring, struct fault *fault) {
        uint32_t held = attached->max_held;
        uint32_t n = held + (held < ATTACHMENT_SPARE_MIN ? ATTACHMENT_SPARE_MIN : held);
        uint64_t segments = position_segments(plan, attached->slot_rows);
        int r;

        if (segments > MESSAGE_SEGMENTS_MAX)
                return fault_set(fault, -EPROTO,
                                 "a batch of %u rows can lie in %llu segments of pinfeedd's slots of %u "
                                 "rows, at most %d are possible",
                                 plan->batch_size, (unsigned long long)segments, attached->slot_rows,
                                 MESSAGE_SEGMENTS_MAX);
        r = view_init(&attachment->view, attached, ring, fault);
        if (r < 0)
                return r;
        attachment->segments_each = (uint32_t)segments;
        attachment->segments = calloc((size_t)n * segments, sizeof(*attachment->segments));
        attachment->batches = calloc(n, sizeof(*attachment->batches));
        if (can_pad(plan))
                attachment->padding_flags = malloc(attached->slot_rows);
        if (!attachment->segments || !attachment->batches || (can_pad(plan) && !attachment->padding_flags))
                return fault_set(fault, -ENOMEM, "out of memory for %u batches", n);
        if (attachment->padding_flags)
                memset(attachment->padding_flags, PINFEED_ROW_PADDING, attached->slot_rows);
        for (uint32_t i = 0; i < n; i++)
                attachment->batches[i].attachment = attachment;
        atomic_store_explicit(&attachment->n_batches, n, memory_order_release);
        return 0;
}

void attachment_unref(struct attachment *attachment) {
        uint32_t left = atomic_fetch_sub_explicit(&attachment->references, 1, memory_order_acq_rel) - 1;

        if (left == 0)
                view_deinit(&attachment->view);
        else if (left == ATTACHMENT_DEVICE)
                reaper_leave(attachment->job->reaper, attachment);
}

void attachment_ref_device(struct attachment *attachment) {
        atomic_fetch_add_explicit(&attachment->references, ATTACHMENT_DEVICE, memory_order_relaxed);
}

void attachment_unref_device(struct attachment *attachment) {
        view_deinit(&attachment->view);
        atomic_fetch_sub_explicit(&attachment->references, ATTACHMENT_DEVICE, memory_order_release);
}

/* Takes those that nobody needs out of the job's list. */
static struct attachment *take_finished(struct pinfeed_job *job) {
        struct attachment *finished = NULL;

        for (struct attachment **link = &job->retired; *link;) {
                struct attachment *attachment = *link;

                if (atomic_load_explicit(&attachment->references, memory_order_acquire) > 0) {
                        link = &attachment->next;
                        continue;
                }
                *link = attachment->next;
                attachment->next = finished;
                finished = attachment;
        }
        return finished;
}

void attachment_retire(struct pinfeed_job *job) {
        struct attachment *attachment = job->current, *finished;

        if (!attachment)
                return;
        registry_change();
        fd_closep(&attachment->socket);
        job->current = NULL;
        if (attachment->n_batches > 0) {
                finished = take_finished(job);
                attachment->next = job->retired;
                job->retired = attachment;
                attachment_unref(attachment);
        } else {
                finished = attachment; /* of an attempt that came to nothing */
        }
        registry_put();

        while (finished) {
                attachment = finished;
                finished = attachment->next;
                attachment_free(attachment);
        }
}

struct pinfeed_batch *attachment_take_free(struct attachment *attachment) {
        for (uint32_t tried = 0; tried < attachment->n_batches; tried++) {
                struct pinfeed_batch *batch = &attachment->batches[attachment->cursor];

                attachment->cursor = (attachment->cursor + 1) % attachment->n_batches;
                if (batch_state(batch) == BATCH_FREE)
                        return batch;
        }
        return NULL;
}

void attachment_queue(struct attachment *attachment, struct pinfeed_batch *batch) {
        batch_set_state(batch, BATCH_QUEUED);
        batch->next = NULL;
        if (attachment->last_queued)
                attachment->last_queued->next = batch;
        else
                attachment->first_queued = batch;
        attachment->last_queued = batch;
        attachment->n_queued++;
}

struct pinfeed_batch *attachment_dequeue(struct attachment *attachment) {
        struct pinfeed_batch *batch = attachment->first_queued;

        if (!batch)
                return NULL;
        attachment->first_queued = batch->next;
        if (!batch->next)
                attachment->last_queued = NULL;
        attachment->n_queued--;
        return batch;
}

/* 0, or -EPIPE when the daemon is gone: the batch is released all the same. */
static int tell_release(struct attachment *attachment, struct pinfeed_batch *batch) {
        struct message message; /* not zeroed: of its 40 KiB three words are used */
        int r;

        message.type = MESSAGE_RELEASE;
        message.release.n_number = 1;
        message.release.number[0] = batch->number;
        r = message_send(attachment->socket, &message, NULL, 0);
        if (r == 0 || r == -EPIPE) {
                batch_set_state(batch, BATCH_FREE);
                return r;
        }
        atomic_fetch_add_explicit(&attachment->n_unsent, 1, memory_order_relaxed);
        batch_set_state(batch, BATCH_UNSENT);
        return 0;
}

int attachment_release(struct attachment *attachment, struct pinfeed_batch *batch) {
        attachment_unref(attachment); /* before the daemon knows: its answer counts what is leased */
        if (attachment->socket >= 0)
                return tell_release(attachment, batch);
        batch_set_state(batch, BATCH_FREE);
        return 0;
}

void attachment_drop(struct attachment *attachment, struct pinfeed_batch *batch) {
        atomic_fetch_add_explicit(&attachment->n_unsent, 1, memory_order_relaxed);
        batch_set_state(batch, BATCH_UNSENT);
}

/* As many as go into one record. 0: there are none; else how many were sent, or a negative errno. */
static int send_some_unsent(struct attachment *attachment) {
        struct message *message = &attachment->job->message;
        struct pinfeed_batch *sending[MESSAGE_RELEASES_MAX];
        uint32_t n = 0;
        int r;

        message->type = MESSAGE_RELEASE;
        for (uint32_t i = 0; i < attachment->n_batches && n < MESSAGE_RELEASES_MAX; i++) {
                if (batch_state(&attachment->batches[i]) != BATCH_UNSENT)
                        continue;
                sending[n] = &attachment->batches[i];
                message->release.number[n++] = attachment->batches[i].number;
        }
        if (n == 0)
                return 0;
        message->release.n_number = n;
        r = message_send(attachment->socket, message, NULL, 0);
        if (r < 0 && r != -EPIPE)
                return r;
        for (uint32_t i = 0; i < n; i++)
                batch_set_state(sending[i], BATCH_FREE);
        atomic_fetch_sub_explicit(&attachment->n_unsent, n, memory_order_relaxed);
        return r < 0 ? r : (int)n;
}

int attachment_send_unsent(struct attachment *attachment) {
        int r = 1;

        while (r > 0 && atomic_load_explicit(&attachment->n_unsent, memory_order_relaxed) > 0)
                r = send_some_unsent(attachment);
        return r == -EPIPE ? r : 0;
}
