/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline at work is never altered in what its rows are: jobs read it. Where its name gets another
 * meaning, by another definition of a client (definition.c) or by a reload (reload.c), there are two of them
 * for a while. The older one goes on for the jobs that it has, and goes itself when nobody needs it.
 *
 * Labels are for people, and no two pipelines have the same. A name means the configuration's pipeline, so
 * that one has it as its label, and whatever a reload has superseded becomes NAME#2; of those that clients
 * define the older one keeps the label, since it may be the newer one again.
 *
 * One that goes is stopped first, and that takes turns of the loop: it is in no list then, and frees itself
 * with its last handle. */

#include "daemon/roster.h"

#include "base/fault.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/log.h"

#include <stdio.h>
#include <string.h>

/* ---- labels ---- */

static bool is_label_taken(const struct daemon *daemon, const char *label) {
        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                if (strcmp(daemon->pipelines[i]->label, label) == 0)
                        return true;
        return false;
}

/* `from` 1: the name itself, or the first NAME#2, NAME#3 ... that no other one has; 2: one of these. */
static void label(const struct daemon *daemon, struct pipeline *pipeline, unsigned from) {
        const char *name = pipeline->config->name;
        char label[PIPELINE_LABEL_MAX + 1];

        snprintf(label, sizeof(label), "%s", name);
        if (from > 1)
                snprintf(label, sizeof(label), "%s#%u", name, from);
        for (unsigned i = from + 1; is_label_taken(daemon, label); i++)
                snprintf(label, sizeof(label), "%s#%u", name, i);
        memcpy(pipeline->label, label, sizeof(label));
}

/* ---- pipelines that go ---- */

void roster_discard(struct pipeline *pipeline) {
        pipeline->leaving = true;
        budget_leave(&pipeline->member);
        pipeline_stop(pipeline);
}

void roster_remove(struct daemon *daemon, uint32_t i) {
        struct pipeline *pipeline = daemon->pipelines[i];

        memmove(&daemon->pipelines[i], &daemon->pipelines[i + 1],
                (daemon->n_pipelines - i - 1) * sizeof(struct pipeline *));
        daemon->n_pipelines--;
        daemon->cpu_ns_of_gone += pool_cpu_ns(&pipeline->pool);
        roster_discard(pipeline);
}

void roster_on_gone(void *context, struct pipeline *pipeline) {
        if (pipeline->leaving)
                pipeline_free(pipeline);
}

bool roster_is_unused(const struct pipeline *pipeline) {
        return list_is_empty(&pipeline->jobs) && pipeline->kept == 0 && !pipeline->work_copy &&
               !pipeline->space.looking && !pipeline->pool.stopping;
}

/* It is at rest, or it is one that never rests, or one to which nobody can come any more. */
bool roster_may_go(const struct pipeline *pipeline) {
        bool is_down = pipeline->state == PIPELINE_IDLE || pipeline->state == PIPELINE_FAILED;

        return (pipeline->definition || pipeline->superseded) && roster_is_unused(pipeline) &&
               ((is_down && pipeline->pool.n_workers == 0) || pipeline->superseded ||
                pipeline->config->reserve == CONFIG_RESERVE_START);
}

/* A definition whose name means another one by now. */
static bool is_outdated(const struct daemon *daemon, const struct pipeline *pipeline) {
        for (uint32_t i = 0; pipeline->definition && i < daemon->n_pipelines; i++)
                if (daemon->pipelines[i]->asked > pipeline->asked &&
                    strcmp(daemon->pipelines[i]->config->name, pipeline->config->name) == 0)
                        return true;
        return false;
}

void roster_sweep(struct daemon *daemon, const struct pipeline *meant) {
        for (uint32_t i = daemon->n_pipelines; i-- > 0;) {
                const struct pipeline *pipeline = daemon->pipelines[i];
                const char *reason = NULL;

                if (pipeline->superseded)
                        reason = "a reload has superseded it, and it has no job any more";
                else if (is_outdated(daemon, pipeline))
                        reason = "its name means another one by now";
                else if (pipeline_is_brought(pipeline))
                        reason = "its last job has left, and took the dataset along";
                if (!reason || pipeline == meant || !roster_may_go(pipeline))
                        continue;
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                          "pipeline %s of %s is forgotten: %s", pipeline->label, pipeline->whole->file,
                          reason);
                roster_remove(daemon, i);
        }
}

void roster_on_rested(void *context, struct pipeline *pipeline) {
        struct daemon *daemon = context;

        if ((pipeline->definition || pipeline->superseded) && !daemon->stopping)
                roster_sweep(daemon, NULL);
}

/* ---- pipelines that come ---- */

int roster_make(struct daemon *daemon, struct config *whole, const struct config_pipeline *config,
                struct pipeline **pipeline, struct fault *fault) {
        static const struct pipeline_events events = {.rested = roster_on_rested, .gone = roster_on_gone};
        int r = pipeline_new(pipeline, &daemon->loop, whole, config, &daemon->budget, daemon->worker_path,
                             &events, daemon);

        return r < 0 ? fault_set(fault, r, "no memory for pipeline %s", config->name) : 0;
}

void roster_add(struct daemon *daemon, struct pipeline *pipeline) {
        label(daemon, pipeline, 1);
        daemon->pipelines[daemon->n_pipelines++] = pipeline;
}

/* ---- versions of one ---- */

void roster_supersede(struct daemon *daemon, struct pipeline *pipeline) {
        pipeline->superseded = true;
        label(daemon, pipeline, 2);
}

void roster_reinstate(struct daemon *daemon, struct pipeline *pipeline) {
        pipeline->superseded = false;
        label(daemon, pipeline, 1);
}

/* Some rank of the group is there, and waits for others. */
static bool waits_for(struct pipeline *pipeline, const struct job *job) {
        list_for_each (link, &pipeline->jobs) {
                const struct job *other = container_of(link, struct job, pipeline_link);

                if ((other->expecting || other->state == JOB_ATTACHING) &&
                    strcmp(other->attach.group, job->attach.group) == 0)
                        return true;
        }
        return false;
}

struct pipeline *roster_find_group(const struct daemon *daemon, const struct job *job) {
        for (uint32_t i = 0; *job->attach.group && i < daemon->n_pipelines; i++) {
                struct pipeline *pipeline = daemon->pipelines[i];

                if (pipeline->superseded && strcmp(pipeline->config->name, job->attach.pipeline) == 0 &&
                    waits_for(pipeline, job))
                        return pipeline;
        }
        return NULL;
}
