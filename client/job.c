/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job after it is attached: handles come in, are checked, queued, and handed out one at a time.
 *
 * The daemon sends handles as far as its credit goes (max_held less what is queued or held here), so nothing
 * has to be asked for: pinfeed_next usually finds one in the queue or in the socket. What it may send next is
 * known to the row: `expected` walks through the job's sequence by the same rules as the daemon's
 * (proto/position.h), and a handle that is not exactly the expected one breaks the connection. A row can
 * therefore neither be lost nor come twice unnoticed, and the end of an epoch is known from the last batch
 * itself, without a message and without waiting.
 *
 * What ends the stream (FAILED, a daemon that is gone, a broken message) is kept in job->error and said by
 * every later call; batches that came before it are handed out first, they are good. */

#include "client/job.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/seqpacket.h"
#include "client/connection.h"
#include "client/registry.h"
#include "proto/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        JOB_TIMEOUT_DEFAULT_MS = 300000,
        JOB_MAX_HELD_DEFAULT = 4,
};

/* The caller's struct may be of an older or newer header: what it lacks is 0, what we do not know must be 0.
 */
static int job_copy_attach(struct pinfeed_job *job, struct pinfeed_attach *to,
                           const struct pinfeed_attach *from) {
        const uint8_t *bytes = (const uint8_t *)from;

        if (!from || from->size < offsetof(struct pinfeed_attach, runtime_dir))
                return fault_set(&job->fault, -EINVAL, "pinfeed_attach.size is not set");
        for (size_t i = sizeof(*to); i < from->size; i++)
                if (bytes[i])
                        return fault_set(&job->fault, -EINVAL,
                                         "pinfeed_attach asks for something newer than this "
                                         "library, " PINFEED_VERSION);
        memset(to, 0, sizeof(*to));
        memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));

        if (!to->pipeline || !to->pipeline[0])
                return fault_set(&job->fault, -EINVAL, "pinfeed_attach.pipeline is not set");
        if (!to->name)
                to->name = program_invocation_short_name;
        if (!to->max_held_batches)
                to->max_held_batches = JOB_MAX_HELD_DEFAULT;
        if (!to->timeout_ms)
                to->timeout_ms = JOB_TIMEOUT_DEFAULT_MS;
        return 0;
}

static int job_check_attach(struct pinfeed_job *job, const struct pinfeed_attach *attach) {
        uint32_t world_size = attach->world_size ? attach->world_size : 1;

        if (attach->rank >= world_size)
                return fault_set(&job->fault, -EINVAL, "rank %u of a world of %u", attach->rank, world_size);
        if (world_size > 1)
                return fault_set(&job->fault, -EOPNOTSUPP,
                                 "a world_size of %u: more ranks than one are not there yet", world_size);
        if (attach->max_held_batches > MESSAGE_SLOTS_MAX)
                return fault_set(&job->fault, -EINVAL, "max_held_batches is %u, at most %d are allowed",
                                 attach->max_held_batches, MESSAGE_SLOTS_MAX);
        if (attach->batch_size > MESSAGE_ROWS_MAX)
                return fault_set(&job->fault, -EINVAL, "batch_size is %u, at most %d rows are allowed",
                                 attach->batch_size, MESSAGE_ROWS_MAX);
        if (attach->start_row >= MESSAGE_SAMPLES_MAX)
                return fault_set(&job->fault, -EINVAL, "start_row is %llu, beyond any source",
                                 (unsigned long long)attach->start_row);
        if (attach->last_batch > PINFEED_LAST_BATCH_DROP)
                return fault_set(&job->fault, -EINVAL, "last_batch is %u, expected 0, 1 or 2",
                                 attach->last_batch);
        return 0;
}

/* Everything that follows from ATTACHED. */
static int job_prepare(struct pinfeed_job *job, const struct pinfeed_attach *attach, int ring) {
        const struct message_attached *attached = &job->attached;
        int r;

        if (attached->max_held > attach->max_held_batches)
                return fault_set(&job->fault, -EPROTO, "pinfeedd grants %u batches where %u were asked for",
                                 attached->max_held, attach->max_held_batches);
        job->plan = (struct position_plan){.samples = attached->samples,
                                           .batch_size = attached->batch_size,
                                           .world_size = 1,
                                           .last_batch = (enum last_batch)attached->last_batch};
        r = position_check(&job->plan, attached->start_row, &job->fault);
        if (r < 0)
                return fault_prefix(&job->fault, -EPROTO, "pinfeedd's answer does not hold together");
        job->expected = position_first(&job->plan, attached->start_epoch, attached->start_row);
        job->epoch_ended = job->expected.epoch != attached->start_epoch;

        r = view_init(&job->view, attached, ring, &job->fault);
        if (r < 0)
                return r;
        return batch_new_array(job);
}

int pinfeed_open(struct pinfeed_job **jobp, const struct pinfeed_attach *given) {
        _cleanup_(fd_closep) int ring = -1;
        struct pinfeed_attach attach;
        struct pinfeed_job *job;
        uint64_t deadline;
        int r;

        *jobp = job = calloc(1, sizeof(*job));
        if (!job)
                return -ENOMEM;
        job->socket = -1;
        r = registry_add(job);
        if (r < 0)
                return job->error =
                               fault_set(&job->fault, r, "preparing for fork() failed: %s", strerror(-r));

        r = job_copy_attach(job, &attach, given);
        if (r == 0)
                r = job_check_attach(job, &attach);
        if (r < 0)
                return job->error = r;
        job->timeout_ms = attach.timeout_ms;
        deadline = connection_deadline(attach.timeout_ms);
        r = connection_attach(job, &attach, deadline, &ring);
        if (r == 0)
                r = job_prepare(job, &attach, ring);
        return job->error = r;
}

struct pinfeed_job *pinfeed_close(struct pinfeed_job *job) {
        if (!job)
                return NULL;
        registry_remove(job);
        fd_closep(&job->socket);
        view_deinit(&job->view);
        free(job->segments);
        free(job->batches);
        free(job);
        return NULL;
}

/* Fills a struct from a checked entry and queues it. */
static void job_queue(struct pinfeed_job *job, struct pinfeed_batch *batch, const struct message_batch *entry,
                      uint64_t now) {
        batch->job = job;
        batch->next = NULL;
        batch->number = entry->number;
        batch->position = job->expected;
        batch->n_segments = entry->segments;
        batch->ready_ns = entry->ready_ns;
        batch->received_ns = now;
        atomic_store_explicit(&batch->state, BATCH_QUEUED, memory_order_release);

        if (job->last_queued)
                job->last_queued->next = batch;
        else
                job->first_queued = batch;
        job->last_queued = batch;
        job->n_queued++;
        job->next_number++;
        job->expected = position_next(&job->plan, job->expected);
}

/* Copies segments from the message, checked against the ring. -EPROTO when one lies outside. */
static int job_take_segments(struct pinfeed_job *job, struct batch_segment *to,
                             const struct message_batch *entry, const struct message_segment *from) {
        uint64_t rows = 0;

        for (uint32_t i = 0; i < entry->segments; i++) {
                if (from[i].slot >= job->view.slots || from[i].first >= job->view.slot_rows ||
                    from[i].rows > job->view.slot_rows - from[i].first)
                        return -EPROTO;
                to[i] = (struct batch_segment){
                        .slot = from[i].slot, .first = from[i].first, .rows = from[i].rows};
                rows += from[i].rows;
        }
        return rows == entry->rows ? 0 : -EPROTO;
}

/* One entry of BATCHES whose segments start at `segments`, of which `n_left` are there. */
static int job_take_batch(struct pinfeed_job *job, const struct message_batch *entry,
                          const struct message_segment *segments, uint32_t n_left, uint64_t now) {
        struct pinfeed_batch *batch;

        if (entry->number != job->next_number)
                return fault_set(&job->fault, -EPROTO, "pinfeedd sent batch %llu where %llu comes next",
                                 (unsigned long long)entry->number, (unsigned long long)job->next_number);
        if (entry->epoch != job->expected.epoch || entry->row != job->expected.row ||
            entry->rows != job->expected.rows)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent rows %llu+%u of epoch %u where %llu+%u of epoch %u come next",
                                 (unsigned long long)entry->row, entry->rows, entry->epoch,
                                 (unsigned long long)job->expected.row, job->expected.rows,
                                 job->expected.epoch);
        if (job->n_queued + atomic_load_explicit(&job->n_held, memory_order_relaxed) >=
            job->attached.max_held)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent more than the %u batches that may be held",
                                 job->attached.max_held);
        batch = batch_take_free(job);
        if (!batch || entry->segments > n_left || entry->segments > job->segments_each)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent a batch of %u segments, more than there can be",
                                 entry->segments);
        batch->job = job;
        if (job_take_segments(job, batch_segments(batch), entry, segments) < 0)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd sent a batch that does not lie inside the ring");
        job_queue(job, batch, entry, now);
        return 0;
}

static int job_take_batches(struct pinfeed_job *job, const struct message_batches *batches) {
        uint64_t now = clock_ns();
        uint32_t used = 0;

        for (uint32_t i = 0; i < batches->n_batch; i++) {
                int r = job_take_batch(job, &batches->batch[i], &batches->segment[used],
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

/* Takes in one message. 1: it did; 0: nothing there; or the error that ends the stream. */
static int job_receive(struct pinfeed_job *job) {
        int fds[SEQPACKET_FDS_MAX];
        size_t n_fds;
        int r;

        r = connection_receive(job, fds, &n_fds);
        if (r != 0)
                return r == MESSAGE_E_AGAIN ? 0 : r;
        switch (job->message.type) {
        case MESSAGE_BATCHES:
                r = job_take_batches(job, &job->message.batches);
                return r < 0 ? r : 1;
        case MESSAGE_FAILED:
                return connection_failed(job, &job->message.failed);
        case MESSAGE_ATTACHED:
                close(fds[0]);
                break;
        default:
                break;
        }
        return fault_set(&job->fault, -EPROTO, "pinfeedd (pid %d) sent %s out of turn", (int)job->daemon_pid,
                         message_name(job->message.type));
}

/* Tells what could not be told before, then takes in what is there: all of it, or no more than brings a
 * batch, which saves asking the kernel once more when batches come one by one. 0 or the error that ends the
 * stream. */
static int job_take_in(struct pinfeed_job *job, bool all) {
        int r;

        if (job->error)
                return job->error;
        (void)batch_send_unsent(job); /* of a daemon that is gone the receiving end has the words */
        do
                r = job_receive(job);
        while (r > 0 && (all || !job->first_queued));
        return job->error = r < 0 ? r : 0;
}

/* Whether calls on the job mean anything. The text of an earlier failure stays; it is still the reason. */
static int job_check(struct pinfeed_job *job) {
        if (!job)
                return -EINVAL;
        if (!registry_is_ours(job))
                return fault_set(&job->fault, -ECHILD,
                                 "this job belongs to the process that opened it; open another after fork()");
        if (job->error && !job->n_batches)
                return job->error;
        if (!job->error)
                job->fault.text[0] = 0;
        return 0;
}

static void job_hand_out(struct pinfeed_job *job, struct pinfeed_batch **batchp) {
        struct pinfeed_batch *batch = job->first_queued;
        const struct batch_segment *segments = batch_segments(batch);

        job->first_queued = batch->next;
        if (!batch->next)
                job->last_queued = NULL;
        job->n_queued--;
        job->epoch_ended = position_next(&job->plan, batch->position).epoch != batch->position.epoch;
        for (uint32_t i = 0; i < batch->n_segments; i++)
                view_populate(&job->view, segments[i].slot);

        atomic_fetch_add_explicit(&job->n_held, 1, memory_order_relaxed);
        atomic_store_explicit(&batch->state, BATCH_HELD, memory_order_release);
        *batchp = batch;
}

static int job_timed_out(struct pinfeed_job *job, uint32_t timeout_ms) {
        unsigned held = atomic_load_explicit(&job->n_held, memory_order_relaxed);

        if (held > 0)
                return fault_set(
                        &job->fault, -ETIMEDOUT,
                        "no batch came in %u ms; you hold %u of at most %u batches and only %u slots are "
                        "guaranteed to this job: release some, or give the pipeline more slots",
                        timeout_ms, held, job->attached.max_held, job->attached.minimum);
        return fault_set(&job->fault, -ETIMEDOUT,
                         "no batch came in %u ms; 'pinfeedctl status' shows what the workers do", timeout_ms);
}

/* The queue is empty: receives and waits until it is not. 1, or what pinfeed_next returns. */
static int job_fill_queue(struct pinfeed_job *job, uint32_t timeout_ms) {
        uint64_t deadline = timeout_ms ? connection_deadline(timeout_ms) : 0;
        unsigned held;
        int r;

        for (;;) {
                r = job_take_in(job, false);
                if (job->first_queued)
                        return 1;
                if (r < 0)
                        return r;
                held = atomic_load_explicit(&job->n_held, memory_order_relaxed);
                if (held >= job->attached.max_held)
                        return fault_set(
                                &job->fault, -EBUSY,
                                "you hold %u batches, as many as max_held_batches allows; release one", held);
                if (timeout_ms == 0)
                        return -EAGAIN;
                r = connection_wait(job->socket, deadline);
                if (r < 0)
                        return fault_set(&job->fault, r, "waiting for pinfeedd failed: %s", strerror(-r));
                if (r == 0)
                        return job_timed_out(job, timeout_ms);
        }
}

int pinfeed_next_timeout(struct pinfeed_job *job, struct pinfeed_batch **batch, uint32_t timeout_ms) {
        int r;

        *batch = NULL;
        r = job_check(job);
        if (r < 0)
                return r;
        if (job->epoch_ended) {
                job->epoch_ended = false;
                return 0;
        }
        if (!job->first_queued) {
                r = job_fill_queue(job, timeout_ms);
                if (r < 0)
                        return r;
        }
        job_hand_out(job, batch);
        return 1;
}

int pinfeed_next(struct pinfeed_job *job, struct pinfeed_batch **batch) {
        return pinfeed_next_timeout(job, batch, job ? job->timeout_ms : 0);
}

int pinfeed_fd(const struct pinfeed_job *job) {
        if (!job)
                return -EINVAL;
        if (!registry_is_ours(job))
                return -ECHILD;
        return job->error && !job->n_batches ? job->error : job->socket;
}

int pinfeed_dispatch(struct pinfeed_job *job) {
        int r = job_check(job);

        if (r < 0)
                return r;
        r = job_take_in(job, true);
        return job->first_queued ? 0 : r;
}

const char *pinfeed_error(const struct pinfeed_job *job) {
        return job ? job->fault.text : "";
}

void pinfeed_job_info(const struct pinfeed_job *job, struct pinfeed_info *info) {
        memset(info, 0, sizeof(*info));
        info->map = info->sharing = "";
        if (!job)
                return;
        info->daemon_pid = (int)job->daemon_pid;
        if (!job->n_batches)
                return;
        info->job = job->attached.job;
        info->samples = job->attached.samples;
        info->seed = job->attached.seed;
        info->batches_per_epoch = position_batches(&job->plan, 0);
        info->batch_size = job->attached.batch_size;
        info->n_fields = job->view.n_fields;
        info->max_held_batches = job->attached.max_held;
        info->map = "read-only";
        info->sharing = job->attached.sharing;
}

int pinfeed_job_field(const struct pinfeed_job *job, uint32_t index, struct pinfeed_field *field) {
        if (!job || index >= job->view.n_fields)
                return -EINVAL;
        *field = job->view.fields[index];
        return 0;
}

int pinfeed_runtime_dir(char *path, size_t size, const char *given) {
        char found[RUNTIME_PATH_MAX + 1];
        int r = runtime_find_directory(found, given, true, NULL);

        if (r < 0)
                return r;
        if (strlen(found) >= size)
                return -ENAMETOOLONG;
        strcpy(path, found);
        return 0;
}

const char *pinfeed_version(void) {
        return PINFEED_VERSION;
}
