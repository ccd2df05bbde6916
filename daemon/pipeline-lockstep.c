/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs that wait for each other, as far as that needs a clock of its own. In lockstep, when everybody waits
 * for one job that is stopped, nothing happens any more, and still that job must be found to lag; and a job
 * that waits for others to come (`gather`, the ranks of its `group`) does so for a while only. So the
 * pipeline is stepped now and then, and who is waited for no more is told in the log.
 *
 * Time in which the daemon itself did not run (it was stopped, the machine slept) is held against nobody. */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "daemon/log.h"

#include <inttypes.h>

enum {
        LOOK_MOST_MS = 1000,
        LOOK_LEAST_MS = 20,
        LOOK_PARTS = 8, /* of lag_timeout */
        GATHER_LOOK_MS = 100,
};

#define LOST_NS UINT64_C(3000000000) /* longer than this between two looks: the daemon did not run */

bool pipeline_is_lockstep(const struct pipeline *pipeline) {
        return pipeline->config->sharing == CONFIG_SHARING_LOCKSTEP;
}

void pipeline_excuse_lost_time(struct pipeline *pipeline, uint64_t now) {
        if (pipeline->looked_ns > 0 && now - pipeline->looked_ns > LOST_NS)
                scheduler_excuse_all(pipeline->scheduler, now);
        pipeline->looked_ns = now;
}

static void tell(const struct pipeline *pipeline, struct job *job) {
        const char *name = *job->attach.name ? job->attach.name : "unnamed";
        struct scheduler_job_view view = {};

        if (scheduler_view_job(pipeline->scheduler, job->id, &view) != 0)
                return;
        if (view.demoted && !job->demoted)
                log_about(&(struct log_subject){.pipeline = pipeline->label, .job = job->id}, LOG_WARNING,
                          "job %u (%s, pid %d) holds %u batches of %s and has given none back for %.10g s "
                          "(lag_timeout): the others wait for it no more, and what it misses is prepared "
                          "again for "
                          "it",
                          job->id, name, (int)job->pid, view.held, pipeline->label,
                          pipeline->config->lag_timeout);
        if (job->demoted && view.bound)
                log_about(&(struct log_subject){.pipeline = pipeline->label, .job = job->id}, LOG_INFO,
                          "job %u (%s, pid %d) is in lockstep with the others of %s again", job->id, name,
                          (int)job->pid, pipeline->label);
        job->demoted = view.demoted || (job->demoted && !view.bound);
}

static bool anybody_gathers(const struct pipeline *pipeline) {
        struct scheduler_job_view view = {};

        list_for_each (link, &pipeline->jobs)
                if (scheduler_view_job(pipeline->scheduler, pipeline_job_of(link)->id, &view) == 0 &&
                    (view.gathering || view.expecting))
                        return true;
        return false;
}

static void on_lagging(uv_timer_t *timer) {
        struct pipeline *pipeline = timer->data;

        pipeline_step(pipeline);
        if (!pipeline->scheduler)
                return;
        pipeline_give_up_groups(pipeline, clock_ns());
        list_for_each (link, &pipeline->jobs)
                tell(pipeline, pipeline_job_of(link));
        if (!pipeline_is_lockstep(pipeline) && !anybody_gathers(pipeline))
                uv_timer_stop(timer);
}

void pipeline_await_gathering(struct pipeline *pipeline) {
        if (!uv_is_active((uv_handle_t *)&pipeline->lagging))
                uv_timer_start(&pipeline->lagging, on_lagging, GATHER_LOOK_MS, GATHER_LOOK_MS);
}

void pipeline_start_lockstep(struct pipeline *pipeline) {
        uint64_t lead = pipeline->config->max_lead > 0 ? pipeline->config->max_lead : UINT64_MAX / 2;
        uint64_t look_ms = (uint64_t)(pipeline->config->lag_timeout * 1000 / LOOK_PARTS);

        if (!pipeline_is_lockstep(pipeline))
                return;
        if (look_ms > LOOK_MOST_MS)
                look_ms = LOOK_MOST_MS;
        if (look_ms < LOOK_LEAST_MS)
                look_ms = LOOK_LEAST_MS;
        pipeline->looked_ns = 0;
        scheduler_set_lockstep(pipeline->scheduler, lead,
                               (uint64_t)(pipeline->config->lag_timeout * NS_PER_S));
        uv_timer_start(&pipeline->lagging, on_lagging, look_ms, look_ms);
}
