/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A drain: jobs that are attached go on as if nothing were, nobody else is let in, and the daemon stops when
 * the last of them has left, or when the time is over. So a trainer that is told to end, by the same shutdown
 * perhaps, still gets the batches up to its next save point.
 *
 * Jobs that wait to be let in are refused as well, with an error that passes: a job that has lost its daemon
 * and looks for another (reconnect_s) asks again until there is one, and one that may start a daemon starts
 * it when this one is gone. Where the listening socket outlives this daemon, because systemd holds it,
 * nothing is accepted any more instead: whoever comes waits in its queue, and the next daemon finds them
 * there. */

#include "daemon/drain.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static void on_tick(uv_timer_t *timer);

uint32_t drain_jobs(const struct daemon *daemon) {
        uint32_t n = 0;

        list_for_each (link, &daemon->jobs)
                n += container_of(link, struct job, link)->state == JOB_ATTACHED;
        return n;
}

static uint64_t ms_left(const struct drain *drain) {
        uint64_t now = clock_ns();

        return now >= drain->until_ns ? 0 : (drain->until_ns - now) / NS_PER_MS + 1;
}

static void look_again(struct drain *drain) {
        uint64_t left = drain->until_ns == UINT64_MAX ? DRAIN_TELL_MS : ms_left(drain);

        uv_timer_start(&drain->tick, on_tick, left < DRAIN_TELL_MS ? left : DRAIN_TELL_MS, 0);
}

static void end(struct drain *drain, uint32_t jobs) {
        char reason[96] = "drained";

        if (jobs > 0)
                snprintf(reason, sizeof(reason), "the time to drain is over, with %u job%s left", jobs,
                         jobs == 1 ? "" : "s");
        control_end(drain->daemon->control, CONTROL_DRAIN, UINT64_MAX,
                    json_pack("{s:i, s:i}", "pid", (int)getpid(), "jobs", (int)jobs));
        daemon_stop(drain->daemon, reason);
}

static void on_tick(uv_timer_t *timer) {
        struct drain *drain = timer->data;
        uint32_t jobs = drain_jobs(drain->daemon);

        if (jobs == 0 || (drain->until_ns != UINT64_MAX && ms_left(drain) == 0)) {
                end(drain, jobs);
                return;
        }
        service_extend(DRAIN_EXTEND_S);
        control_tell(drain->daemon->control, CONTROL_DRAIN,
                     json_pack("{s:i, s:i, s:o}", "pid", (int)getpid(), "jobs", (int)jobs, "seconds",
                               drain->until_ns == UINT64_MAX ? json_null()
                                                             : json_real((double)ms_left(drain) / 1000)));
        look_again(drain);
}

void drain_init(struct drain *drain, struct daemon *daemon) {
        *drain = (struct drain){.daemon = daemon};
        uv_timer_init(&daemon->loop, &drain->tick);
        drain->tick.data = drain;
}

static void turn_away_waiting(struct drain *drain) {
        list_for_each_safe (link, &drain->daemon->jobs) {
                struct job *job = container_of(link, struct job, link);

                if (job->state == JOB_ATTACHING)
                        drain_refuses(drain, job);
        }
}

void drain_begin(struct drain *drain, double seconds, const char *reason) {
        uint32_t jobs = drain_jobs(drain->daemon);
        bool begins = !drain->is_on;

        drain->is_on = true;
        drain->until_ns = seconds > 0 ? clock_ns() + (uint64_t)(seconds * NS_PER_S) : UINT64_MAX;
        if (seconds > 0)
                log_line(LOG_INFO, "%s: draining, %u job%s may go on for %g s at most", reason, jobs,
                         jobs == 1 ? "" : "s", seconds);
        else
                log_line(LOG_INFO, "%s: draining until %u job%s have left", reason, jobs,
                         jobs == 1 ? "" : "s");
        if (begins && drain_keeps_out(drain))
                uv_poll_stop(&drain->daemon->job_poll);
        if (begins)
                turn_away_waiting(drain);
        uv_timer_start(&drain->tick, on_tick, 0, 0);
}

bool drain_on_signal(struct drain *drain) {
        double seconds = drain->daemon->config->drain;

        if (seconds <= 0 || drain->by_signal || drain_jobs(drain->daemon) == 0)
                return false;
        drain->by_signal = true;
        drain_begin(drain, seconds, "SIGTERM");
        return true;
}

bool drain_refuses(const struct drain *drain, struct job *job) {
        char text[256], left[64] = "";
        uint32_t jobs = drain_jobs(drain->daemon);

        if (!drain->is_on)
                return false;
        if (drain->until_ns != UINT64_MAX)
                snprintf(left, sizeof(left), ", or in %" PRIu64 " s", ms_left(drain) / 1000 + 1);
        snprintf(text, sizeof(text),
                 "pinfeedd (pid %d) is draining and lets no job in: it ends when %u job%s left%s; attach "
                 "again "
                 "when another one runs",
                 (int)getpid(), jobs, jobs == 1 ? " has" : "s have", left);
        job_refuse(job, -ESHUTDOWN, text);
        return true;
}

bool drain_keeps_out(const struct drain *drain) {
        return drain->is_on && drain->daemon->job_socket_stays;
}

/* In a turn of its own: the job may be leaving in the middle of something else. */
void drain_note(struct drain *drain) {
        if (drain->is_on && !drain->daemon->stopping && drain_jobs(drain->daemon) == 0)
                uv_timer_start(&drain->tick, on_tick, 0, 0);
}

void drain_stop(struct drain *drain) {
        uv_close((uv_handle_t *)&drain->tick, NULL);
}
