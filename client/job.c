/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a caller does with a job: asks for the next batch, for its state, sends it elsewhere.
 *
 * pinfeed_next usually finds a batch in the queue or in the socket (intake.c). With each that it hands over
 * the job's place moves on (job->here), which is what its state says and where it goes on when its daemon
 * dies (link.c). That an epoch has ended is known from its last batch, and said by the next call.
 *
 * Copies to a GPU that have finished, or failed, are nobody's message: each call looks after them first
 * (transfer.c).
 *
 * What ends the stream (FAILED, a daemon that is gone for good, a broken message) is kept in job->error and
 * said by every later call; batches that came before it are handed out first, they are good. */

#include "client/job.h"

#include "base/clock.h"
#include "client/attachment.h"
#include "client/connection.h"
#include "client/link.h"
#include "client/mapping.h"
#include "client/registry.h"
#include "client/seek.h"
#include "client/transfer.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Whether calls on the job mean anything. The text of an earlier failure stays; it is still the reason. */
static int job_check(struct pinfeed_job *job) {
        if (!job)
                return -EINVAL;
        if (!registry_is_ours(job))
                return fault_set(&job->fault, -ECHILD,
                                 "this job belongs to the process that opened it; open another after fork()");
        if (job->error && !job->attached_once)
                return job->error;
        if (!job->error)
                job->fault.text[0] = 0;
        return 0;
}

static bool job_has_queued(const struct pinfeed_job *job) {
        return job->current && job->current->first_queued;
}

/* Says that an epoch has ended. Where drop leaves nothing of it, that is news to the place, too. */
static int job_say_end(struct pinfeed_job *job) {
        job->epoch_ended = false;
        if (job->here.row > 0)
                job->here = (struct job_place){job->here.epoch + 1, 0};
        return 0;
}

/* The first one in the queue. */
static int job_hand_out(struct pinfeed_job *job, struct pinfeed_batch **batchp) {
        struct attachment *attachment = job->current;
        struct pinfeed_batch *batch = attachment->first_queued;
        const struct batch_segment *segments = batch_segments(batch);
        int r = mapping_prepare(job, batch);

        if (r < 0)
                return r;
        attachment_dequeue(attachment);
        job->here.row = position_after(&job->plan, &batch->position, &job->here.epoch);
        job->epoch_ended = job->here.epoch != batch->position.epoch;
        for (uint32_t i = 0; i < batch->n_segments; i++)
                view_populate(&attachment->view, segments[i].slot, false);

        batch->buffer = NULL;
        atomic_fetch_add_explicit(&attachment->references, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&attachment->n_held, 1, memory_order_relaxed);
        batch_set_state(batch, BATCH_HELD);
        *batchp = batch;
        return 1;
}

/* Why a seek was refused: said once. */
static int job_say_seek(struct pinfeed_job *job) {
        int r = job->seek.error;

        job->seek.error = 0;
        return fault_set(&job->fault, r, "%s", job->seek.fault.text);
}

static int job_timed_out(struct pinfeed_job *job, uint32_t timeout_ms) {
        unsigned held, copying;

        job->waited_ms += timeout_ms;
        if (job->stage == JOB_LOST)
                return fault_set(&job->fault, -ETIMEDOUT, "no pinfeedd for %llu s (reconnect_s is %u): %s",
                                 (unsigned long long)((clock_ns() - job->lost_ns) / NS_PER_S),
                                 job->reconnect_s, job->reason.text);
        if (job->stage == JOB_ATTACHING)
                return fault_set(&job->fault, -ETIMEDOUT, "%s is not ready again in %llu ms%s%s",
                                 connection_daemon(job), (unsigned long long)job->waited_ms,
                                 job->progress.text[0] ? "; its last word: " : "", job->progress.text);
        held = attachment_held(job->current);
        if (held > 0)
                return fault_set(
                        &job->fault, -ETIMEDOUT,
                        "no batch came in %llu ms; you hold %u of at most %u batches and only %u slots are "
                        "guaranteed to this job: release some, or give the pipeline more slots",
                        (unsigned long long)job->waited_ms, held, job->attached.max_held,
                        job->attached.minimum);
        copying = attachment_leased(job->current);
        if (copying > 0)
                return fault_set(&job->fault, -ETIMEDOUT,
                                 "no batch came in %llu ms; copies of %u batches to %s have not finished",
                                 (unsigned long long)job->waited_ms, copying, job->device.name);
        return fault_set(&job->fault, -ETIMEDOUT,
                         "no batch came in %llu ms; 'pinfeedctl status' shows what the workers do",
                         (unsigned long long)job->waited_ms);
}

/* Whether no batch can come before the caller releases one: copies that are under way end without it. */
static int job_check_held(struct pinfeed_job *job) {
        uint32_t held = job->stage == JOB_ATTACHED ? attachment_held(job->current) : 0;

        if (held < job->attached.max_held)
                return 0;
        return fault_set(&job->fault, -EBUSY,
                         "you hold %u batches, as many as max_held_batches allows; release one", held);
}

/* Does one turn's work. 1: there is something to say or to hand out; 0: not yet; or what ends the job. */
static int job_turn(struct pinfeed_job *job) {
        int r;

        r = transfer_turn(job);
        if (r < 0)
                return r;
        seek_next_epoch(job);
        r = link_advance(job, false);
        if (job_has_queued(job) || job->epoch_ended || job->seek.error)
                return 1;
        return r < 0 ? r : job_check_held(job);
}

/* Nothing is there: goes on until something is. 1, or what pinfeed_next returns. */
static int job_wait(struct pinfeed_job *job, uint32_t timeout_ms) {
        uint64_t deadline = timeout_ms ? connection_deadline(timeout_ms) : 0;
        int r;

        for (;;) {
                r = job_turn(job);
                if (r != 0)
                        return r;
                if (timeout_ms == 0)
                        return -EAGAIN;
                r = link_wait(job, deadline);
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
        job->reads = true;
        if (job->epoch_ended || job->seek.error || job_has_queued(job))
                r = transfer_turn(job);
        else
                r = job_wait(job, timeout_ms);
        if (r < 0)
                return r;
        job->waited_ms = 0;
        if (job->seek.error)
                return job_say_seek(job);
        if (job->epoch_ended)
                return job_say_end(job);
        return job_hand_out(job, batch);
}

int pinfeed_next(struct pinfeed_job *job, struct pinfeed_batch **batch) {
        return pinfeed_next_timeout(job, batch, job ? job->timeout_ms : 0);
}

int pinfeed_fd(const struct pinfeed_job *job) {
        if (!job)
                return -EINVAL;
        if (!registry_is_ours(job))
                return -ECHILD;
        if (job->current && (job->attached_once || !job->error))
                return job->current->socket;
        return job->error ? job->error : -EAGAIN;
}

int pinfeed_dispatch(struct pinfeed_job *job) {
        int r = job_check(job);

        if (r < 0)
                return r;
        job->reads = true;
        r = transfer_turn(job);
        if (r < 0)
                return r;
        r = link_advance(job, true);
        return job_has_queued(job) ? 0 : r;
}

const char *pinfeed_error(const struct pinfeed_job *job) {
        return job ? job->fault.text : "";
}

int pinfeed_job_failed(const struct pinfeed_job *job) {
        return job ? job->error : -EINVAL;
}

/* The caller's struct may be of an older or newer header: it gets what it has room for. What went wrong last
 * is what ended the job if it has the same words. */
int pinfeed_failure(const struct pinfeed_job *job, struct pinfeed_failure *failure) {
        const struct message_failed *failed = job ? job->failed : NULL;
        struct pinfeed_failure known;
        size_t size = failure->size;

        if (!job || size < offsetof(struct pinfeed_failure, sample))
                return -EINVAL;
        if (!failed || strcmp(job->fault.text, job->reason.text) != 0)
                return -ENOENT;
        known = (struct pinfeed_failure){.size = size,
                                         .sample_given = failed->sample_given,
                                         .sample = failed->sample,
                                         .worker = failed->worker,
                                         .pid = failed->pid,
                                         .signal = failed->signal,
                                         .exit_status = failed->exit_status,
                                         .file = failed->file,
                                         .exception = failed->exception,
                                         .traceback = failed->traceback};
        memcpy(failure, &known, size < sizeof(known) ? size : sizeof(known));
        return 0;
}

static void job_describe_map(const struct pinfeed_job *job, struct pinfeed_info *info) {
        const struct pins *pins = job->current ? &job->current->pins : NULL;

        info->device = job->device.name;
        info->map = pins && pins->wanted ? "pinned" : "read-only";
        info->map_reason = job->reaper ? job->map_reason : "no device was asked for";
        info->slots = job->attached.slots;
        info->slots_registered = pins ? pins->n : 0;
        info->copies = job->copies;
}

void pinfeed_job_info(const struct pinfeed_job *job, struct pinfeed_info *info) {
        memset(info, 0, sizeof(*info));
        info->map = info->sharing = info->device = info->map_reason = "";
        if (!job)
                return;
        info->daemon_pid = (int)job->daemon_pid;
        if (!job->attached_once)
                return;
        info->job = job->attached.job;
        info->samples = job->attached.samples;
        info->seed = job->attached.seed;
        info->batches_per_epoch = position_batches(&job->plan, 0);
        info->batch_size = job->attached.batch_size;
        info->n_fields = job->attached.n_field;
        info->max_held_batches = job->attached.max_held;
        job_describe_map(job, info);
        info->sharing = job->attached.sharing;
        info->rank = job->plan.rank;
        info->world_size = job->plan.world_size;
        info->batches_first_epoch = job->batches_first_epoch;
        info->reconnects = job->reconnects;
        info->last_batch = (uint32_t)job->plan.last_batch;
        info->epoch = job->here.epoch;
        info->row = job->here.row;
        info->batches_left = position_batches(&job->plan, job->here.row);
}

const char *pinfeed_job_layout(const struct pinfeed_job *job) {
        return job && job->attached_once ? job->attached.layout : "";
}

int pinfeed_job_state(const struct pinfeed_job *job, char *text, size_t size) {
        if (!job || !job->attached_once)
                return -EINVAL;
        return state_print(text, size, job->state, job->here.epoch, job->here.row);
}

int pinfeed_job_seek(struct pinfeed_job *job, uint32_t epoch, uint64_t row) {
        int r = job_check(job);

        if (r < 0)
                return r;
        if (job->error)
                return link_say_end(job);
        if (row >= job->plan.samples)
                return fault_set(&job->fault, -EINVAL,
                                 "seeking row %llu: an epoch has %llu rows, expected 0 to %llu",
                                 (unsigned long long)row, (unsigned long long)job->plan.samples,
                                 (unsigned long long)job->plan.samples - 1);
        seek_begin(job, (struct job_place){epoch, row});
        (void)link_advance(job, false); /* tells the daemon; what else it finds is pinfeed_next's to say */
        return 0;
}

/* Whether the daemon has answered the last seek: 1, 0, or what is wrong. */
static int job_turn_of_seek(struct pinfeed_job *job) {
        int r = transfer_turn(job);

        if (r < 0)
                return r;
        r = link_advance(job, false);
        if (job->seek.error)
                return job_say_seek(job);
        if (r < 0)
                return r;
        return job->stage == JOB_ATTACHED && !seek_is_under_way(job);
}

static int job_not_sought(struct pinfeed_job *job, uint32_t timeout_ms) {
        if (job->stage != JOB_ATTACHED)
                return job_timed_out(job, timeout_ms);
        job->waited_ms += timeout_ms;
        return fault_set(
                &job->fault, -ETIMEDOUT,
                "the job has waited %llu ms to go to row %llu of epoch %u, for slots that others hold: "
                "'pinfeedctl jobs' shows who; end a job, or give the pipeline more slots",
                (unsigned long long)job->waited_ms, (unsigned long long)job->here.row, job->here.epoch);
}

int pinfeed_job_sought(struct pinfeed_job *job, uint32_t timeout_ms) {
        uint64_t deadline = timeout_ms ? connection_deadline(timeout_ms) : 0;
        int r = job_check(job);

        if (r < 0)
                return r;
        while ((r = job_turn_of_seek(job)) == 0) {
                if (timeout_ms == 0)
                        return -EAGAIN;
                r = link_wait(job, deadline);
                if (r < 0)
                        return fault_set(&job->fault, r, "waiting for pinfeedd failed: %s", strerror(-r));
                if (r == 0)
                        return job_not_sought(job, timeout_ms);
        }
        job->waited_ms = 0;
        return r < 0 ? r : 0;
}

/* What has been kept is told at once to a daemon that is there. What else that finds is pinfeed_next's to
 * say. Without one no attempt is made: the caller may have more to bring before the job can go on. */
static int job_tell(struct pinfeed_job *job) {
        if (job->stage != JOB_LOST)
                (void)link_advance(job, false);
        return 0;
}

int pinfeed_bring(struct pinfeed_job *job, int fd, uint32_t pid) {
        int r = job_check(job);

        if (r < 0)
                return r;
        if (job->error)
                return link_say_end(job);
        r = brought_keep_zygote(job, fd, pid);
        return r < 0 ? r : job_tell(job);
}

int pinfeed_give_order(struct pinfeed_job *job, uint32_t epoch, int fd, uint64_t entries) {
        int r = job_check(job);

        if (r < 0)
                return r;
        if (job->error)
                return link_say_end(job);
        r = brought_keep_order(job, epoch, fd, entries);
        return r < 0 ? r : job_tell(job);
}

int pinfeed_job_field(const struct pinfeed_job *job, uint32_t index, struct pinfeed_field *field) {
        if (!job || index >= job->attached.n_field)
                return -EINVAL;
        *field = job->fields[index];
        return 0;
}

int pinfeed_runtime_dir(char *path, size_t size, const char *given) {
        char found[RUNTIME_PATH_MAX + 1];
        int r = runtime_find_directory(found, given, RUNTIME_CLIENT, NULL);

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
