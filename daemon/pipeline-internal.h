#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of the pipeline share with each other and nobody else. */

#include "daemon/job.h"
#include "daemon/pipeline.h"
#include "daemon/scheduler.h"

struct zygote;

static inline struct job *pipeline_job_of(struct list *link) {
        return container_of(link, struct job, pipeline_link);
}

/* Hands out what is ready and gives work to whoever is free; to be called after every event. */
void pipeline_step(struct pipeline *pipeline);

/* Tells ATTACHING jobs ten times a second what they wait for, from now on or no more. */
void pipeline_report(struct pipeline *pipeline, bool wanted);

/* pipeline-lockstep.c: what has to be looked at also when nothing happens. */
bool pipeline_is_lockstep(const struct pipeline *pipeline);
void pipeline_start_lockstep(struct pipeline *pipeline);
/* A job waits for others to come, or for its time to be over. */
void pipeline_await_gathering(struct pipeline *pipeline);
/* pipeline-group.c. Whether this job fits to those of its group that are there: 0, -EEXIST for a rank that is
 * there, -EINVAL. */
int pipeline_check_group(const struct pipeline *pipeline, const struct job *job, struct fault *fault);
/* All ranks of its group are there with it, or were once; it has none. */
bool pipeline_group_has_begun(const struct pipeline *pipeline, const struct job *job);
/* Slots for the ranks that have not come, of all groups; with `newcomer`, as if that were in. */
uint32_t pipeline_promised(const struct pipeline *pipeline, const struct job *newcomer);
/* Whether there is room for all ranks of its group, if it has one, when they go on from `row`: 0 or -ENOSPC.
 */
int pipeline_check_group_place(const struct pipeline *pipeline, const struct job *job, uint64_t row,
                               struct fault *fault);
void pipeline_begin_groups(struct pipeline *pipeline);
/* Ends those who have waited for ranks too long. */
void pipeline_give_up_groups(struct pipeline *pipeline, uint64_t now);

void pipeline_excuse_lost_time(struct pipeline *pipeline, uint64_t now);

/* pipeline-rest.c: something that a failed try, or the run before, had left behind is gone: jobs that have
 * come since may have their try. */
void pipeline_start_anew(struct pipeline *pipeline);
/* Ends a run that goes by verdicts which were lifted, if it has no jobs; of any other it begins to wait for
 * `idle` to pass without one, or ends to. */
void pipeline_rest(struct pipeline *pipeline);

/* Before the first job of a run that has too many bad samples: it gets another one. */
void pipeline_refresh(struct pipeline *pipeline);

/* pipeline-work.c: gives work to whoever is free and may have it, also of other pipelines under the budget.
 */
void pipeline_give_work(struct pipeline *pipeline);
/* Rows that the workers it can count on make in `ns`, as far as can be told now; 0: nothing was measured. */
uint64_t pipeline_rows_in(const struct pipeline *pipeline, uint64_t ns);
/* It is under the budget, unless it has a number of workers of its own. */
void pipeline_join_budget(struct pipeline *pipeline);

/* Whether it has workers, or is about to have some: none of them end. */
bool pipeline_is_up(const struct pipeline *pipeline);

/* pipeline-brought.c: takes job->zygote_fd, if it has brought one, in place of an earlier one of this job. 0
 * or a negative errno. */
int pipeline_take_zygote(struct pipeline *pipeline, struct job *job, struct fault *fault);
/* The job has no zygotes any more, but that one (NULL: none at all). */
void pipeline_leave_zygote(struct pipeline *pipeline, const struct job *job, const struct zygote *but);
/* pipeline-described.c: begins to ask what the rows are; pipeline_take_resources follows. 0 or a negative
 * errno with `failure` set. */
int pipeline_describe(struct pipeline *pipeline);
void pipeline_forget_description(struct pipeline *pipeline);
/* pipeline.c: takes ring and workers, or more of them; fails the pipeline if there are none. */
void pipeline_take_resources(struct pipeline *pipeline);
/* pipeline-ring.c: 0: it is there, or is awaited (then `ring` has no descriptor yet); or a negative errno. */
int pipeline_take_ring(struct pipeline *pipeline);
/* Gets its memory, in steps; pipeline_become_ready follows. */
void pipeline_reserve(struct pipeline *pipeline);
/* pipeline-space.c: the ring, for which there is no room (`failure` says so), is tried again while others
 * hold rings that are to go; pipeline_take_resources or pipeline_reserve follows, or it fails. */
void pipeline_await_space(struct pipeline *pipeline);
void pipeline_forget_space(struct pipeline *pipeline);
/* space-patience.c: for how long others are waited for. */
uint64_t pipeline_space_patience_ms(void);
/* Whether there can be workers at all: 0 or a negative errno with `failure` set. */
int pipeline_check_start(struct pipeline *pipeline);
/* Fails the pipeline if its jobs have nobody who forks for them: false. */
bool pipeline_check_zygote(struct pipeline *pipeline);
/* Takes the orders that the job has given before its ATTACH. 0 or a negative errno. */
int pipeline_take_orders(struct pipeline *pipeline, struct job *job, struct fault *fault);
/* Tells a worker that has its index of the orders that there are. */
void pipeline_tell_orders(struct pipeline *pipeline, struct pool_worker *worker);
/* Whether this epoch can be made: its order was given, or is nobody's to give. 0 or -EINVAL. */
int pipeline_check_order(const struct pipeline *pipeline, uint64_t seed, uint32_t epoch, struct fault *fault);

/* Every ATTACHING job becomes ATTACHED or is refused, every SEEK is answered, or they go on waiting; the
 * pipeline is READY. */
void pipeline_admit_waiting(struct pipeline *pipeline);

/* The ring as the scheduler knows it, and a job's part of a stream; once the samples are known. */
struct scheduler_config pipeline_geometry(const struct pipeline *pipeline);
struct position_plan pipeline_plan(const struct pipeline *pipeline, const struct job *job);

/* pipeline-seek.c: answers the job's SEEKs as far as that can be now. */
void pipeline_answer_seeks(struct pipeline *pipeline, struct job *job);

/* Ends the stream that the chunk belongs to and gives the chunk up. */
void pipeline_lose(struct pipeline *pipeline, const struct message_chunk *chunk,
                   const struct message_failed *failed);

/* "worker 3 (pid 77) was killed by signal 9 while at sample 812 (n01440764/x.JPEG)" */
void pipeline_describe_death(const struct pipeline *pipeline, const struct pool_worker *worker,
                             struct message_failed *failed);

/* pipeline-recovery.c: what becomes of the rows of workers that died, and of their places. */
void pipeline_on_died(void *context, const struct pool_worker *worker);
void pipeline_on_stuck(void *context, const struct pool_worker *worker);
void pipeline_on_returned(void *context, const struct pool_worker *worker);
void pipeline_on_recalled(void *context, const struct message_chunk *chunks, uint32_t n_chunks);
void pipeline_on_resumed(void *context);
/* Whether one waits and there is a worker for it, and that it gets it, and nothing else. */
bool pipeline_has_suspect(struct pipeline *pipeline);
void pipeline_give_suspect(struct pipeline *pipeline);
/* Parts that are done: one of them may have been a suspect. */
void pipeline_clear_suspect(struct pipeline *pipeline, uint32_t slot, uint32_t first);
void pipeline_on_restart(uv_timer_t *timer);
/* The filling of this slot is given up: nobody waits for its suspects any more. */
void pipeline_drop_suspects(struct pipeline *pipeline, uint32_t slot);

/* pipeline-samples.c: bad samples and condemned ones. */
void pipeline_on_replaced(void *context, const struct pool_worker *worker,
                          const struct message_replaced *replaced);
/* Tells a worker, or all of them, which samples must not be touched. */
void pipeline_tell_condemned(struct pipeline *pipeline, struct pool_worker *worker);
void pipeline_condemn(struct pipeline *pipeline, uint64_t sample, const char *file, const char *text);
/* Reads the verdicts of this source; pipeline_become_ready goes on when they are there. */
void pipeline_read_verdicts(struct pipeline *pipeline);
void pipeline_become_ready(struct pipeline *pipeline);
/* Ends every job when there are too many bad samples. True: it did. */
bool pipeline_judge_samples(struct pipeline *pipeline);
void pipeline_name_sample(const struct pipeline *pipeline, uint64_t sample, char *file, size_t size);

/* Brings the pool to its size. 0 or a negative errno with `failure` set. */
int pipeline_grow(struct pipeline *pipeline);

/* Line by line, without what belongs on no terminal. */
void pipeline_clean_traceback(char *to, size_t size, const char *from);

/* Every job with this seed, or (all) every job, is told and closed. */
void pipeline_fail_jobs(struct pipeline *pipeline, bool all, uint64_t seed,
                        const struct message_failed *failed);

/* Gives the event `reserved`, if it is due and was not given. */
void pipeline_announce(struct pipeline *pipeline, int error);

/* Nothing works any more, for the reason in `failure`: every job is told, workers end, the next attach begins
 * anew. */
void pipeline_fail(struct pipeline *pipeline, int error);
/* The same, for what has kept a worker, or (NULL) whoever was to describe the dataset, from working at all.
 * Sets `failure`. */
void pipeline_fail_raised(struct pipeline *pipeline, const struct pool_worker *worker,
                          const struct message_broken *broken);
