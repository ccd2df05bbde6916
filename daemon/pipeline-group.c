/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Groups: the ranks of one run, which name the same `group` when they attach. (Ranks that name none are jobs
 * like any other, and nobody counts them.)
 *
 * A group is let in as a whole. Its first rank is admitted only if the ring has room for all of them; what
 * those need that have not come is promised to them, so that no other job takes it meanwhile, and none of
 * them is refused when the run is half there. Until all have come nobody of the group is given anything: one
 * rank that is missing would stop the run at its first step anyway, and then it would have to be found out
 * why. So the missing ones are named, in status and, when it has taken too long, to those who wait.
 *
 * Once the group is complete it has *begun*, and stays so as long as any rank is there: one that leaves stops
 * nobody, one that comes again goes on at once. A job that had begun with a daemon before this one brings its
 * group along as begun.
 *
 * A run goes on at one place, so its ranks are sent there as a whole, too: a place in the middle of slots
 * asks for larger minimums, and what all of them would need there is looked at before the first one goes. Or
 * else some would go, and the rest be told no, each with another number.
 *
 * There is no object of a group. It is what its jobs say, so nothing can be left over. */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
        GROUP_NAMED_MAX = 8,     /* missing ranks that are named one by one */
        GROUP_EXAMINED_MAX = 32, /* first ranks, and last ones, whose minimums are looked at */
};

static uint32_t size_of(const struct job *job) {
        return job->attach.group_size > 0 ? job->attach.group_size : job->attach.world_size;
}

static bool is_same(const struct job *a, const struct job *b) {
        return strcmp(a->attach.group, b->attach.group) == 0;
}

/* Those of the group of `job` who are in, and itself in any case. `newcomer` counts as in, or is NULL. */
static bool is_present(const struct job *other, const struct job *job, const struct job *newcomer) {
        return is_same(other, job) &&
               (other == job || other->state == JOB_ATTACHED || (newcomer && other == newcomer));
}

static bool has_rank(const struct pipeline *pipeline, const struct job *job, const struct job *newcomer,
                     uint32_t rank) {
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (is_present(other, job, newcomer) && other->attach.rank == rank)
                        return true;
        }
        return false;
}

/* Nobody before it in the list has its rank: one of a rank that is there twice. */
static bool is_first_of_rank(const struct pipeline *pipeline, const struct job *job,
                             const struct job *newcomer, const struct job *self) {
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other == self)
                        break;
                if (is_present(other, job, newcomer) && other->attach.rank == self->attach.rank)
                        return false;
        }
        return true;
}

/* Ranks of its group that have not come. */
static uint32_t count_missing(const struct pipeline *pipeline, const struct job *job,
                              const struct job *newcomer) {
        uint32_t ranks = 0;

        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                ranks += is_present(other, job, newcomer) && is_first_of_rank(pipeline, job, newcomer, other);
        }
        return ranks < size_of(job) ? size_of(job) - ranks : 0;
}

bool pipeline_group_has_begun(const struct pipeline *pipeline, const struct job *job) {
        if (!*job->attach.group || size_of(job) <= 1 || job->attach.begun)
                return true;
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other != job && is_same(other, job) && other->state == JOB_ATTACHED && !other->expecting)
                        return true;
        }
        return count_missing(pipeline, job, NULL) == 0;
}

/* ---- who may come ---- */

static int check_same(const struct job *job, const struct job *other, const char *what, uint64_t its,
                      uint64_t others, struct fault *fault) {
        if (its == others)
                return 0;
        return fault_set(
                fault, -EINVAL,
                "%s is %" PRIu64 ", but %" PRIu64 " for rank %u of the same group %s (job %u, pid %d): "
                "give all ranks of a run the same, or this job another group",
                what, its, others, other->attach.rank, job->attach.group, other->id, (int)other->pid);
}

static int check_against(const struct job *job, const struct job *other, struct fault *fault) {
        const struct message_attach *a = &job->attach, *b = &other->attach;
        int r = check_same(job, other, "world_size", a->world_size, b->world_size, fault);

        if (r == 0)
                r = check_same(job, other, "group_size", size_of(job), size_of(other), fault);
        if (r == 0)
                r = check_same(job, other, "batch_size", a->batch_size, b->batch_size, fault);
        if (r == 0)
                r = check_same(job, other, "last_batch", a->last_batch, b->last_batch, fault);
        if (r == 0)
                r = check_same(job, other, "seed", job->seed, other->seed, fault);
        if (r < 0 || a->rank != b->rank || a->duplicate_rank)
                return r;
        return fault_set(
                fault, -EEXIST,
                "rank %u of group %s is there already (job %u, pid %d): give each rank its own number, "
                "each run its own group, or set duplicate_rank where several shall read the same rows",
                a->rank, a->group, other->id, (int)other->pid);
}

int pipeline_check_group(const struct pipeline *pipeline, const struct job *job, struct fault *fault) {
        if (!*job->attach.group)
                return 0;
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);
                int r;

                if (other == job || other->state != JOB_ATTACHED || !is_same(other, job))
                        continue;
                r = check_against(job, other, fault);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- room for who has not come ---- */

/* Those who wait for room are missing too, but what they need is counted with all who wait. */
static bool is_waited_for(const struct pipeline *pipeline, const struct job *job, const struct job *newcomer,
                          uint32_t rank) {
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other != newcomer && other->counted && is_same(other, job) && other->attach.rank == rank)
                        return true;
        }
        return false;
}

/* Ranks of whom it is so. */
static uint32_t count_waiting(const struct pipeline *pipeline, const struct job *job,
                              const struct job *newcomer) {
        uint32_t n = 0;

        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                n += other != newcomer && other->counted && is_same(other, job) &&
                     !has_rank(pipeline, job, newcomer, other->attach.rank);
        }
        return n;
}

/* Rule 1, were it this rank and went on from `row`: in the tail ranks need more or fewer slots than others.
 */
static uint32_t minimum_of(const struct pipeline *pipeline, const struct job *job, uint32_t rank,
                           uint64_t row) {
        struct scheduler_config geometry = pipeline_geometry(pipeline);
        struct position_plan plan = pipeline_plan(pipeline, job);

        plan.rank = rank;
        return scheduler_minimum(&geometry, &plan, row);
}

/* What the missing ranks need, each by itself. */
static uint64_t need_of_missing(const struct pipeline *pipeline, const struct job *job,
                                const struct job *newcomer, uint64_t row) {
        uint64_t slots = 0;

        for (uint32_t rank = 0; rank < job->attach.world_size; rank++)
                if (!has_rank(pipeline, job, newcomer, rank) && !is_waited_for(pipeline, job, newcomer, rank))
                        slots += minimum_of(pipeline, job, rank, row);
        return slots;
}

/* What the neediest of the first and the last ranks needs; tails differ there. */
static uint32_t need_of_any(const struct pipeline *pipeline, const struct job *job, uint64_t row) {
        uint32_t world = job->attach.world_size, worst = 0;

        for (uint32_t rank = 0; rank < world; rank++) {
                uint32_t minimum;

                if (rank == GROUP_EXAMINED_MAX && world > 2 * GROUP_EXAMINED_MAX)
                        rank = world - GROUP_EXAMINED_MAX;
                minimum = minimum_of(pipeline, job, rank, row);
                worst = minimum > worst ? minimum : worst;
        }
        return worst;
}

/* Each missing rank is asked, but not where only some come to this machine, and nobody knows which, nor of
 * more ranks than a machine has: a minimum can take a while to find. */
static uint64_t promise_to(const struct pipeline *pipeline, const struct job *job, const struct job *newcomer,
                           uint64_t row) {
        uint32_t missing, waiting;

        if (size_of(job) == job->attach.world_size && job->attach.world_size <= 2 * GROUP_EXAMINED_MAX)
                return need_of_missing(pipeline, job, newcomer, row);
        missing = count_missing(pipeline, job, newcomer);
        waiting = count_waiting(pipeline, job, newcomer);
        return missing > waiting ? (uint64_t)(missing - waiting) * need_of_any(pipeline, job, row) : 0;
}

/* Whether its group was seen to at an earlier job of the list. */
static bool was_counted(const struct pipeline *pipeline, const struct job *job, const struct job *newcomer) {
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other == job)
                        return false;
                if (is_same(other, job) && (other == newcomer || other->expecting))
                        return true;
        }
        return false;
}

/* It is in, or would be, and ranks are missing. */
static bool is_waiting(const struct pipeline *pipeline, const struct job *job, const struct job *newcomer) {
        if (newcomer && job == newcomer)
                return !pipeline_group_has_begun(pipeline, job);
        return job->expecting;
}

uint32_t pipeline_promised(const struct pipeline *pipeline, const struct job *newcomer) {
        uint64_t slots = 0;

        list_for_each (link, &pipeline->jobs) {
                const struct job *job = pipeline_job_of(link);

                if (is_waiting(pipeline, job, newcomer) && !was_counted(pipeline, job, newcomer))
                        slots += promise_to(pipeline, job, newcomer, job->attach.start_row);
        }
        return slots < SCHEDULER_SLOTS_MAX ? (uint32_t)slots : SCHEDULER_SLOTS_MAX;
}

/* ---- room for a place that all go to ---- */

/* Slots that jobs need now, and once the group of one of them has gone on from elsewhere. */
struct need {
        uint64_t group, group_there;
        uint64_t others;
};

/* Of those that are in. */
static void add_need(struct need *need, const struct pipeline *pipeline, const struct job *job,
                     const struct job *other, uint64_t row) {
        struct scheduler_job_view view = {};
        uint32_t there;

        scheduler_view_job(pipeline->scheduler, other->id, &view);
        if (!is_same(other, job)) {
                need->others += view.minimum;
                return;
        }
        there = minimum_of(pipeline, job, other->attach.rank, row);
        need->group += view.minimum;
        need->group_there += there > view.minimum ? there : view.minimum;
}

/* What was promised to the ranks of this group that have not come: by the first of those that wait for them.
 */
static uint64_t promised_to_own(const struct pipeline *pipeline, const struct job *job) {
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other->expecting && is_same(other, job))
                        return promise_to(pipeline, other, NULL, other->attach.start_row);
        }
        return 0;
}

/* Of all, and of ranks that have not come and were promised it. */
static struct need need_at(const struct pipeline *pipeline, const struct job *job, uint64_t row) {
        struct need need = {.group = promised_to_own(pipeline, job)};

        need.group_there = job->expecting ? promise_to(pipeline, job, NULL, row) : 0;
        need.others = pipeline_promised(pipeline, NULL) - need.group;
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = pipeline_job_of(link);

                if (other->state == JOB_ATTACHED)
                        add_need(&need, pipeline, job, other, row);
        }
        return need;
}

int pipeline_check_group_place(const struct pipeline *pipeline, const struct job *job, uint64_t row,
                               struct fault *fault) {
        uint32_t capacity = pipeline->ring.slots - pipeline->quarantined;
        struct need need;

        /* From row 0 on nobody needs more than it had from anywhere else. */
        if (!*job->attach.group || row == 0 || row >= pipeline->index.samples ||
            size_of(job) > 2 * GROUP_EXAMINED_MAX)
                return 0;
        need = need_at(pipeline, job, row);
        if (need.group_there <= need.group || need.group_there + need.others <= capacity)
                return 0;
        return fault_set(fault, -ENOSPC,
                         "the ranks of group %s need %" PRIu64 " slots there, other jobs %" PRIu64
                         " of %u; raise slots or ring to at least %" PRIu64 " slots, or end a job",
                         job->attach.group, need.group_there, need.others, capacity,
                         need.group_there + need.others);
}

/* ---- complete, or given up ---- */

void pipeline_begin_groups(struct pipeline *pipeline) {
        list_for_each (link, &pipeline->jobs) {
                struct job *job = pipeline_job_of(link);

                if (!job->expecting || !pipeline_group_has_begun(pipeline, job))
                        continue;
                job->expecting = false;
                scheduler_begin(pipeline->scheduler, job->id);
                log_about(&(struct log_subject){.pipeline = pipeline->label, .job = job->id}, LOG_INFO,
                          "job %u (rank %u) begins: all %u ranks of group %s are there", job->id,
                          job->attach.rank, size_of(job), job->attach.group);
        }
}

void pipeline_name_missing(const struct pipeline *pipeline, const struct job *job, char *text, size_t size) {
        uint32_t missing = count_missing(pipeline, job, NULL), named = 0;
        size_t used;

        if (size_of(job) < job->attach.world_size) { /* nobody knows which of them are to come here */
                snprintf(text, size, "%u more rank%s", missing, missing == 1 ? "" : "s");
                return;
        }
        used = (size_t)snprintf(text, size, "rank%s", missing == 1 ? "" : "s");
        for (uint32_t rank = 0; rank < job->attach.world_size && named < missing; rank++) {
                if (has_rank(pipeline, job, NULL, rank))
                        continue;
                if (named++ == GROUP_NAMED_MAX || used >= size)
                        break;
                used += (size_t)snprintf(text + used, size - used, "%s%u", named > 1 ? ", " : " ", rank);
        }
        if (missing > GROUP_NAMED_MAX && used < size)
                snprintf(text + used, size - used, " and %u more", missing - GROUP_NAMED_MAX);
}

uint64_t pipeline_group_until(const struct job *job) {
        if (job->attach.group_ms == UINT32_MAX)
                return UINT64_MAX;
        return job->connected_ns + job->attach.group_ms * (uint64_t)NS_PER_MS;
}

/* All who wait with this one. */
static void give_up(struct pipeline *pipeline, const struct job *late) {
        struct message_failed failed = {.error = ETIMEDOUT};
        char missing[128], group[MESSAGE_NAME_MAX + 1];

        snprintf(group, sizeof(group), "%s", late->attach.group);
        pipeline_name_missing(pipeline, late, missing, sizeof(missing));
        snprintf(failed.text, sizeof(failed.text),
                 "%s of group %s (%u ranks) did not come within %.10g s: start what is missing, or attach "
                 "with "
                 "the world_size that there is",
                 missing, group, size_of(late), late->attach.group_ms / 1000.0);
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING, "%s", failed.text);
        list_for_each_safe (link, &pipeline->jobs) {
                struct job *job = pipeline_job_of(link);

                if (job->expecting && strcmp(job->attach.group, group) == 0)
                        job_fail(job, &failed);
        }
}

void pipeline_give_up_groups(struct pipeline *pipeline, uint64_t now) {
        const struct job *late = NULL;

        list_for_each (link, &pipeline->jobs) {
                const struct job *job = pipeline_job_of(link);

                if (job->expecting && now >= pipeline_group_until(job))
                        late = job;
        }
        if (!late)
                return;
        pipeline->stepping = true; /* nobody else leaves before all of them have */
        give_up(pipeline, late);
        pipeline->stepping = false;
        pipeline_step(pipeline);
}
