/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon sends handles as far as its credit goes (max_held less what is queued or held here), so nothing
 * has to be asked for. What it may send next is known to the row: `expected` walks through the job's sequence
 * by the same rules as the daemon's (proto/position.h), and a handle that is not exactly the expected one
 * breaks the connection. A row can therefore neither be lost nor come twice unnoticed, and the end of an
 * epoch is known from the last batch itself, without a message and without waiting.
 *
 * What comes while the job is being sent elsewhere is checked like everything else, and then released
 * unseen (seek.c). */

#include "client/intake.h"

#include "base/clock.h"
#include "base/seqpacket.h"
#include "client/attachment.h"
#include "client/connection.h"
#include "client/job.h"
#include "client/seek.h"

#include <errno.h>
#include <unistd.h>

/* Whether an entry is the one that comes next. */
static int check_entry(struct pinfeed_job *job, const struct message_batch *entry) {
        const struct attachment *attachment = job->current;
        const struct position *expected = &attachment->expected;

        if (entry->number != attachment->next_number)
                return fault_set(&job->fault, -EPROTO, "pinfeedd sent batch %llu where %llu comes next",
                                 (unsigned long long)entry->number,
                                 (unsigned long long)attachment->next_number);
        if (entry->epoch != expected->epoch || entry->row != expected->row || entry->rows != expected->rows)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent rows %llu+%u of epoch %u where %llu+%u of epoch %u come next",
                                 (unsigned long long)entry->row, entry->rows, entry->epoch,
                                 (unsigned long long)expected->row, expected->rows, expected->epoch);
        if (attachment->n_queued + attachment_leased(attachment) >= job->attached.max_held)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent more than the %u batches that may be held",
                                 job->attached.max_held);
        return 0;
}

/* Copies segments from the message, checked against the ring. -EPROTO when one lies outside, or is padding
 * where rows are not or the other way round. */
static int take_segments(const struct attachment *attachment, struct batch_segment *to,
                         const struct message_batch *entry, const struct message_segment *from,
                         uint32_t padding) {
        uint64_t rows = 0, good = entry->rows - padding;

        for (uint32_t i = 0; i < entry->segments; i++) {
                bool is_padding = from[i].flags & MESSAGE_SEGMENT_PADDING;

                if (from[i].slot >= attachment->view.slots || from[i].first >= attachment->view.slot_rows ||
                    from[i].rows > attachment->view.slot_rows - from[i].first)
                        return -EPROTO;
                if (is_padding ? rows < good : rows + from[i].rows > good)
                        return -EPROTO;
                to[i] = (struct batch_segment){.slot = from[i].slot,
                                               .first = from[i].first,
                                               .rows = from[i].rows,
                                               .padding = is_padding};
                rows += from[i].rows;
        }
        return rows == entry->rows ? 0 : -EPROTO;
}

/* Fills a struct from a checked entry, and queues it. */
static void take_in(struct pinfeed_job *job, struct pinfeed_batch *batch, const struct message_batch *entry,
                    uint64_t now) {
        struct attachment *attachment = job->current;

        batch->number = entry->number;
        batch->position = attachment->expected;
        batch->n_segments = entry->segments;
        batch->ready_ns = entry->ready_ns;
        batch->received_ns = now;
        attachment->next_number++;
        attachment->expected = position_next(&job->plan, attachment->expected);
        job->lost_ns = 0; /* this daemon does what one was looked for */

        if (seek_is_under_way(job))
                attachment_drop(attachment, batch);
        else
                attachment_queue(attachment, batch);
}

/* One entry of BATCHES whose segments start at `segments`, of which `n_left` are there. */
static int take_batch(struct pinfeed_job *job, const struct message_batch *entry,
                      const struct message_segment *segments, uint32_t n_left, uint64_t now) {
        struct attachment *attachment = job->current;
        struct pinfeed_batch *batch;
        int r;

        r = check_entry(job, entry);
        if (r < 0)
                return r;
        batch = attachment_take_free(attachment);
        if (!batch || entry->segments > n_left || entry->segments > attachment->segments_each)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent a batch of %u segments, more than there can be",
                                 entry->segments);
        batch->padding = position_padding(&job->plan, &attachment->expected);
        if (take_segments(attachment, batch_segments(batch), entry, segments, batch->padding) < 0)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent a batch that does not lie inside the ring, or whose %u rows "
                                 "of padding are not marked",
                                 batch->padding);
        take_in(job, batch, entry, now);
        return 0;
}

static int take_batches(struct pinfeed_job *job, const struct message_batches *batches) {
        uint64_t now = clock_ns();
        uint32_t used = 0;

        for (uint32_t i = 0; i < batches->n_batch; i++) {
                int r = take_batch(job, &batches->batch[i], &batches->segment[used],
                                   batches->n_segment - used, now);

                if (r < 0)
                        return r;
                used += batches->batch[i].segments;
        }
        if (used != batches->n_segment)
                return fault_set(&job->fault, -EPROTO, "pinfeedd sent %u segments for batches of %u",
                                 batches->n_segment, used);
        return 0;
}

int intake_receive(struct pinfeed_job *job) {
        int fds[SEQPACKET_FDS_MAX];
        size_t n_fds;
        int r;

        r = connection_receive(job, fds, &n_fds);
        if (r != 0)
                return r == MESSAGE_E_AGAIN ? 0 : r;
        switch (job->message.type) {
        case MESSAGE_BATCHES:
                job->begun = true;
                r = take_batches(job, &job->message.batches);
                return r < 0 ? r : 1;
        case MESSAGE_SOUGHT:
                r = seek_take_sought(job, &job->message.sought);
                return r < 0 ? r : 1;
        case MESSAGE_FAILED:
                return connection_failed(job, &job->message.failed);
        case MESSAGE_ATTACHED:
                close(fds[0]);
                break;
        default:
                break;
        }
        return fault_set(&job->fault, -EPROTO, "%s sent %s out of turn", connection_daemon(job),
                         message_name(job->message.type));
}
