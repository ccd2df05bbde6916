/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The stages of a job, and one function for each edge between them:
 *
 *             try_connect          take_attached
 *      LOST -------------> ATTACHING ---------> ATTACHED
 *       ^ ^                    |                    |
 *       | +---- lose ----------+                    |
 *       +------ lose -------------------------------+
 *
 * There is no thread that could do this behind the caller's back, so the calls that there are anyway advance
 * it, none of them waits for anything but in link_wait, and a call with a time-out of 0 does a part of it.
 *
 * What is lost with a daemon is what nobody has seen yet. The job knows where it is from what it has handed
 * over (job->here), and asks the next daemon for exactly the same stream from there on: seed, batch size and
 * tail as the first answer had them, whatever the next daemon's configuration says, and the fingerprint by
 * which it can tell that its rows are the same. Batches that the caller holds stay where they are
 * (attachment.c).
 *
 * An attempt fails for a while or for good. Nobody listens, the connection is closed, there is no room yet:
 * the next attempt may do better, until reconnect_s is over. The pipeline has changed, the daemon is somebody
 * else's: no attempt will, so the first such answer ends the job with its words. The time runs from the loss
 * and until a batch comes, so that a daemon which takes a job and dies at once is not tried for ever; a
 * daemon that has said HELLO is there, and how long it may take then is the caller's time-out. A job that
 * never had a daemon does not wait for one: pinfeed_open says what it finds.
 *
 * A job that may start a daemon itself does so wherever nobody listens (starter.c). Such a daemon ends when
 * nobody needs it, and may do so just when somebody comes: a connection that is closed before ATTACHED means
 * nothing to a job of that kind, even to one that had none before. Nor does it mean anything that the new
 * daemon does not know the pipeline of a job that has attached by name: whoever defined it will do so again.
 */

#include "client/link.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/attachment.h"
#include "client/connection.h"
#include "client/intake.h"
#include "client/job.h"
#include "client/mapping.h"
#include "client/seek.h"
#include "client/starter.h"
#include "client/transfer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
        LINK_RETRY_MS = 100,
        LINK_BACKLOG_MS = 10,   /* the daemon is there, and will come to it */
        LINK_PROGRESS_MS = 100, /* pinfeed.h: at most ten times a second */
        LINK_TURN_MS = 1,       /* as reaper.c's thread */
};

/* ---- losing ---- */

static uint64_t give_up_ns(const struct pinfeed_job *job) {
        return job->lost_ns + job->reconnect_s * NS_PER_S;
}

/* Whether another attempt may do better after `error`. */
static bool is_passing(const struct pinfeed_job *job, int error) {
        if (job->reconnect_s == 0 || (job->lost_ns == 0 && error != -EPIPE))
                return false;
        switch (job->stage) {
        case JOB_LOST:
                return error != -EPERM;
        case JOB_ATTACHING:
                return error == -EPIPE || error == -ENOSPC || error == -EMFILE || error == -EAGAIN ||
                       error == -ESHUTDOWN ||
                       (error == -ENOENT && job->starter.program && job->attached_once);
        case JOB_ATTACHED:
                break;
        }
        return error == -EPIPE;
}

/* The daemon that it had found has ended before it answered, and the next one may be this job's own. */
static bool may_start_another(struct pinfeed_job *job, int error) {
        return job->stage == JOB_ATTACHING && !job->attached_once && job->starter.program &&
               (error == -EPIPE || error == -ESHUTDOWN) && starter_is_patient(&job->starter);
}

/* What the job has, or was about to get, from its daemon is lost. 0, or the error that ends the job. */
static int lose(struct pinfeed_job *job, int error) {
        uint64_t now = clock_ns(), pause = job->stage == JOB_ATTACHED ? 0 : LINK_RETRY_MS * NS_PER_MS;

        if (job->stage == JOB_LOST && error == -EAGAIN && job->lost_ns == 0) {
                pause = LINK_BACKLOG_MS * NS_PER_MS;
        } else if (may_start_another(job, error)) {
                pause = LINK_RETRY_MS * NS_PER_MS;
        } else if (!is_passing(job, error)) {
                return job->error = error;
        } else if (job->lost_ns == 0) {
                job->lost_ns = now;
        }
        attachment_retire(job);
        seek_forget(job);
        job->stage = JOB_LOST;
        job->greeted = false;
        job->retry_ns = now + pause;
        if (job->lost_ns > 0 && now >= give_up_ns(job))
                return job->error = fault_prefix(&job->fault, -EPIPE,
                                                 "no pinfeedd took the job again in %u s (reconnect_s)",
                                                 job->reconnect_s);
        if (job->lost_ns > 0 && job->retry_ns > give_up_ns(job))
                job->retry_ns = give_up_ns(job);
        job->reason = job->fault;
        job->fault.text[0] = 0;
        return 0;
}

/* ---- attaching ---- */

/* Nobody listens. 0: another attempt is due, now or a little later; or the error of this one. */
static int start_daemon(struct pinfeed_job *job) {
        uint64_t now = clock_ns();
        int r;

        if (!*job->fault.text)
                fault_set(&job->fault, -ENOENT, "pinfeedd is being started, and has not come yet");
        if (job->lost_ns > 0 && now >= give_up_ns(job))
                return -ENOENT;
        job->reason = job->fault;
        r = starter_step(job);
        if (r < 0)
                return r;
        job->fault.text[0] = 0;
        job->retry_ns = r > 0 ? now : now + STARTER_LOOK_MS * NS_PER_MS;
        return 0;
}

static int try_connect(struct pinfeed_job *job) {
        int r;

        if (clock_ns() < job->retry_ns)
                return 0;
        if (job->starter.pid > 0) /* it is to be reaped, whoever else may have come meanwhile */
                return start_daemon(job);
        if (job->attached_once) {
                job->request.start = MESSAGE_START_GIVEN;
                job->request.gather = 0; /* it has begun */
                job->request.begun = job->begun;
                job->request.start_epoch = job->here.epoch;
                job->request.start_row = job->here.row;
        }
        r = connection_open(job);
        if (r == -ENOENT && job->starter.program)
                return start_daemon(job);
        starter_let_go(&job->starter);
        if (r == 0)
                job->stage = JOB_ATTACHING;
        return r;
}

/* The answer, against what was asked for. */
static int check_answer(struct pinfeed_job *job, const struct message_attached *answer) {
        const struct message_attach *asked = &job->request;

        if (answer->max_held > asked->max_held)
                return fault_set(&job->fault, -EPROTO, "pinfeedd grants %u batches where %u were asked for",
                                 answer->max_held, asked->max_held);
        if ((asked->batch_size && answer->batch_size != asked->batch_size) ||
            (asked->last_batch && answer->last_batch != asked->last_batch) ||
            (asked->seed_given && answer->seed != asked->seed))
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd answers with batches of %u rows of seed %llu (last_batch %u), not "
                                 "with what was asked for",
                                 answer->batch_size, (unsigned long long)answer->seed, answer->last_batch);
        if (asked->start == MESSAGE_START_GIVEN &&
            (answer->start_epoch != asked->start_epoch || answer->start_row != asked->start_row))
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd starts at row %llu of epoch %u where row %llu of epoch %u was "
                                 "asked for",
                                 (unsigned long long)answer->start_row, answer->start_epoch,
                                 (unsigned long long)asked->start_row, asked->start_epoch);
        if (answer->map == MESSAGE_MAP_PINNED && asked->map != MESSAGE_MAP_PINNED)
                return fault_set(&job->fault, -EPROTO,
                                 "pinfeedd grants a mapping that may write, which was not asked for");
        if (job->attached_once &&
            (answer->samples != job->plan.samples || strcmp(answer->fingerprint, asked->fingerprint) != 0))
                return fault_set(&job->fault, -ESTALE,
                                 "the pipeline has changed: its fingerprint is %s, the job began with %s",
                                 answer->fingerprint, asked->fingerprint);
        return 0;
}

static int make_plan(struct pinfeed_job *job, struct position_plan *plan,
                     const struct message_attached *answer) {
        *plan = (struct position_plan){.samples = answer->samples,
                                       .batch_size = answer->batch_size,
                                       .rank = job->request.rank,
                                       .world_size = job->request.world_size,
                                       .last_batch = (enum last_batch)answer->last_batch};
        if (position_check(plan, answer->start_row, &job->fault) < 0)
                return fault_prefix(&job->fault, -EPROTO, "pinfeedd's answer does not hold together");
        return 0;
}

static bool is_same_field(const struct pinfeed_field *a, const struct pinfeed_field *b) {
        return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype &&
               a->channels_last == b->channels_last && a->n_dims == b->n_dims &&
               memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 && a->row_bytes == b->row_bytes;
}

static int check_fields(struct pinfeed_job *job, const struct view *view) {
        bool same = view->n_fields == job->attached.n_field;

        for (uint32_t i = 0; same && i < view->n_fields; i++)
                same = is_same_field(&job->fields[i], &view->fields[i]);
        return same ? 0
                    : fault_set(&job->fault, -ESTALE,
                                "the pipeline has changed: its fields are not those that the job began with");
}

/* The first answer fixes what the job is from now on, for itself and for daemons to come. */
static int adopt(struct pinfeed_job *job, const struct view *view, const struct message_attached *answer) {
        struct message_attach *request = &job->request;

        for (uint32_t i = 0; i < view->n_fields; i++) {
                job->fields[i] = view->fields[i];
                memcpy(job->names[i], view->names[i], sizeof(job->names[i]));
                job->fields[i].name = job->names[i];
        }
        if (!*request->pipeline) /* it is the only one of a definition */
                strcpy(request->pipeline, answer->pipeline);
        if (state_make_prefix(job->state, request->pipeline, answer->fingerprint, answer->seed) < 0)
                return fault_set(&job->fault, -ENOMEM, "out of memory");
        request->batch_size = answer->batch_size;
        request->last_batch = answer->last_batch;
        request->seed_given = 1;
        request->seed = request->state_seed = answer->seed;
        request->state_given = 1;
        request->force = 0;
        strcpy(request->fingerprint, answer->fingerprint);

        job->here = (struct job_place){answer->start_epoch, answer->start_row};
        job->batches_first_epoch = position_batches(&job->plan, answer->start_row);
        job->attached_once = true;
        return 0;
}

static int take_attached(struct pinfeed_job *job, int ring) {
        const struct message_attached *answer = &job->message.attached;
        int r;

        r = check_answer(job, answer);
        if (r == 0)
                r = make_plan(job, &job->plan, answer);
        if (r == 0)
                r = attachment_prepare(job->current, answer, &job->plan, ring, &job->fault);
        if (r == 0)
                r = mapping_begin(job, answer);
        if (r < 0)
                return r;
        job->reconnects += job->attached_once;
        if (job->attached_once)
                r = check_fields(job, &job->current->view);
        else
                r = adopt(job, &job->current->view, answer);
        if (r < 0)
                return r;
        job->attached = *answer;
        job->stage = JOB_ATTACHED;
        job->progress.pending = false;
        job->progress.text[0] = 0;
        seek_enter(job, (struct job_place){answer->start_epoch, answer->start_row});
        return 0;
}

static int talk(struct pinfeed_job *job) {
        _cleanup_(fd_closep) int ring = -1;
        int r;

        (void)brought_tell(job);
        r = connection_talk(job, &ring);
        if (r > 0)
                return take_attached(job, ring);
        if (r == 0 && !job->greeted && job->lost_ns > 0 && clock_ns() >= give_up_ns(job))
                return fault_set(&job->fault, -EAGAIN, "%s has taken the connection and does not answer",
                                 connection_daemon(job));
        return r;
}

/* ---- attached ---- */

/* Before the daemon knows that somebody reads it gives the job no more than its minimum. */
static bool has_to_tell(const struct pinfeed_job *job) {
        return job->reads && !job->current->told;
}

/* Of a daemon that is gone the receiving end has the words. */
static void tell(struct pinfeed_job *job) {
        (void)attachment_send_unsent(job->current);
        if (brought_tell(job) == 0)
                seek_send(job); /* perhaps into an epoch whose order had to be there before */
        mapping_tell(job);
        if (!has_to_tell(job))
                return;
        job->message.type = MESSAGE_READ;
        job->message.read = (struct message_read){};
        job->current->told = message_send(job->current->socket, &job->message, NULL, 0) == 0;
}

static int flow(struct pinfeed_job *job, bool all) {
        int r;

        tell(job);
        do
                r = intake_receive(job);
        while (r > 0 && (all || !job->current->first_queued));
        if (r >= 0)
                tell(job);
        return r;
}

int link_say_end(struct pinfeed_job *job) {
        job->fault = job->reason;
        return job->error;
}

int link_advance(struct pinfeed_job *job, bool all) {
        int r = 0;

        if (job->error)
                return link_say_end(job);
        switch (job->stage) {
        case JOB_LOST:
                r = try_connect(job);
                break;
        case JOB_ATTACHING:
                r = talk(job);
                break;
        case JOB_ATTACHED:
                r = flow(job, all);
                break;
        }
        if (r < 0)
                r = lose(job, r);
        if (r < 0)
                job->reason = job->fault;
        return r < 0 ? r : 0;
}

/* ---- waiting ---- */

/* When there is something to do although the socket says nothing. */
static uint64_t next_turn_ns(const struct pinfeed_job *job) {
        if (job->stage == JOB_LOST)
                return job->retry_ns;
        if (job->stage == JOB_ATTACHING && !job->greeted && job->lost_ns > 0)
                return give_up_ns(job);
        return transfer_needs_turns(job) ? clock_ns() + LINK_TURN_MS * NS_PER_MS : UINT64_MAX;
}

static bool has_unsent(const struct pinfeed_job *job) {
        if (job->stage != JOB_LOST && brought_is_news(&job->brought))
                return true;
        return job->stage == JOB_ATTACHED &&
               (atomic_load_explicit(&job->current->n_unsent, memory_order_relaxed) > 0 ||
                (job->seek.wanted && !job->seek.sent) || mapping_is_news(job) || has_to_tell(job));
}

static void show_progress(struct pinfeed_job *job) {
        struct job_progress *progress = &job->progress;
        uint64_t now = clock_ns();

        if (job->stage != JOB_ATTACHED && !job->greeted && job->lost_ns > 0) {
                snprintf(progress->text, sizeof(progress->text),
                         "waiting for pinfeedd to come back: %llu s of %u",
                         (unsigned long long)((now - job->lost_ns) / NS_PER_S), job->reconnect_s);
                progress->pending = true;
        }
        if (!progress->pending || now < progress->due_ns)
                return;
        progress->pending = false;
        progress->due_ns = now + LINK_PROGRESS_MS * NS_PER_MS;
        if (progress->call)
                progress->call(progress->context, progress->text);
}

int link_wait(struct pinfeed_job *job, uint64_t deadline_ns) {
        uint64_t until = next_turn_ns(job);
        short events = has_unsent(job) ? POLLIN | POLLOUT : POLLIN;
        int r;

        show_progress(job);
        if (job->progress.pending && job->progress.due_ns < until)
                until = job->progress.due_ns;
        if (deadline_ns < until)
                until = deadline_ns;
        r = connection_wait(job->current ? job->current->socket : -1, events, until);
        return r == 0 && clock_ns() < deadline_ns ? 1 : r;
}
