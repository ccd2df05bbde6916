/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A journey begins in the caller's call and ends with the daemon's SOUGHT. From its beginning on the job's
 * place is where it goes (job->here), for pinfeed_job_state and for the next daemon should this one die;
 * whatever the daemon sends until SOUGHT was sent before it knew, and is released unseen.
 *
 * One SEEK is on its way at a time. A caller that changes its mind meanwhile only changes `here`; when SOUGHT
 * comes and `here` is wanted somewhere else, the next SEEK goes out. So however often and fast somebody
 * seeks, the daemon has one to answer, and nothing has to be queued when the socket is full.
 *
 * A daemon can say no (an odd row may need more slots than it has left). By then batches have been released
 * unseen that the job should have got, so staying where the daemon is would lose rows: the job is sent back
 * to where the caller left (`from`), the caller gets the words, once, and the call after that goes on as if
 * nothing had happened. A daemon that refuses the way back, too, is not one to go on with. */

#include "client/seek.h"

#include "client/attachment.h"
#include "client/job.h"

#include <errno.h>

bool seek_is_under_way(const struct pinfeed_job *job) {
        return job->seek.wanted || job->seek.sent;
}

void seek_begin(struct pinfeed_job *job, struct job_place place) {
        struct job_seek *seek = &job->seek;
        struct pinfeed_batch *batch;

        if (!seek_is_under_way(job)) {
                seek->from = job->here;
                seek->from_ended = job->epoch_ended;
        }
        job->here = place;
        job->epoch_ended = false;
        seek->returning = false;
        seek->error = 0;
        seek->wanted = job->stage != JOB_LOST; /* or the next attempt goes there at once */
        while (job->current && (batch = attachment_dequeue(job->current)))
                attachment_drop(job->current, batch);
}

void seek_send(struct pinfeed_job *job) {
        struct job_seek *seek = &job->seek;

        if (!seek->wanted || seek->sent)
                return;
        job->message.type = MESSAGE_SEEK;
        job->message.seek = (struct message_seek){.epoch = job->here.epoch, .row = job->here.row};
        if (message_send(job->current->socket, &job->message, NULL, 0) < 0)
                return; /* full, or gone: then there is nobody to tell */
        seek->wanted = false;
        seek->sent = true;
        seek->target = job->here;
}

/* The daemon has said no. */
static int turn_back(struct pinfeed_job *job, const struct message_sought *sought) {
        struct job_seek *seek = &job->seek;

        if (seek->returning)
                return fault_set(&job->fault, -EIO,
                                 "going back to row %llu of epoch %u after a seek that failed: %s",
                                 (unsigned long long)seek->target.row, seek->target.epoch, sought->text);
        seek->error = fault_set(&seek->fault, -(int)sought->error, "%s", sought->text);
        seek->returning = true;
        seek->wanted = true;
        job->here = seek->from;
        job->epoch_ended = seek->from_ended;
        return 0;
}

int seek_take_sought(struct pinfeed_job *job, const struct message_sought *sought) {
        struct job_seek *seek = &job->seek;

        if (!seek->sent || sought->number < job->current->next_number)
                return fault_set(
                        &job->fault, -EPROTO, "pinfeedd sent SOUGHT for batch %llu where %llu comes next, %s",
                        (unsigned long long)sought->number, (unsigned long long)job->current->next_number,
                        seek->sent ? "backwards" : "without having been asked");
        seek->sent = false;
        job->current->next_number = sought->number;
        if (sought->error)
                return seek->wanted ? 0 : turn_back(job, sought); /* nobody wants to go there any more */
        seek_enter(job, seek->target);
        seek->returning = seek->returning && seek->wanted;
        return 0;
}

void seek_enter(struct pinfeed_job *job, struct job_place place) {
        struct attachment *attachment = job->current;

        attachment->expected = position_first(&job->plan, place.epoch, place.row);
        attachment->entered = attachment->expected.epoch;
        if (attachment->expected.epoch != place.epoch && !job->seek.wanted && !job->seek.returning)
                job->epoch_ended = true; /* on the way back that is known, or has been said */
}

void seek_next_epoch(struct pinfeed_job *job) {
        const struct attachment *attachment = job->current;

        if (job->stage == JOB_ATTACHED && job->attached.lookahead == 0 && !seek_is_under_way(job) &&
            !attachment->first_queued && attachment->expected.epoch != attachment->entered)
                seek_begin(job, (struct job_place){attachment->expected.epoch, 0});
}

void seek_forget(struct pinfeed_job *job) {
        job->seek.wanted = job->seek.sent = job->seek.returning = false;
}
