#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of the pipeline share with each other and nobody else. */

#include "daemon/job.h"
#include "daemon/pipeline.h"

enum {
        /* A batch as long as a slot touches one slot, or two when it starts in the middle of one. */
        PIPELINE_SEGMENTS_MAX = 2,
};

static inline struct job *pipeline_job_of(struct list *link) {
        return container_of(link, struct job, pipeline_link);
}

/* Hands out what is ready and gives work to whoever is free; to be called after every event. */
void pipeline_step(struct pipeline *pipeline);

/* Tells ATTACHING jobs ten times a second what they wait for, from now on or no more. */
void pipeline_report(struct pipeline *pipeline, bool wanted);

/* Every ATTACHING job becomes ATTACHED or is refused; the pipeline is READY. */
void pipeline_admit_waiting(struct pipeline *pipeline);

/* Ends the stream of the first chunk, the one in work, and gives all of them up; at least one. */
void pipeline_lose(struct pipeline *pipeline, const struct message_chunk *chunks, uint32_t n_chunks,
                   const struct message_failed *failed);

/* "worker 3 (pid 77) was killed by signal 9 while at sample 812 (n01440764/x.JPEG)" */
void pipeline_describe_death(const struct pipeline *pipeline, const struct pool_worker *worker,
                             struct message_failed *failed);

/* Gives the event `reserved`, if it is due and was not given. */
void pipeline_announce(struct pipeline *pipeline, int error);

/* Nothing works any more, for the reason in `failure`: every job is told, workers end, the next attach begins
 * anew. */
void pipeline_fail(struct pipeline *pipeline, int error);
