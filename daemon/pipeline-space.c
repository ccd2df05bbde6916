/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon that was killed has left its ring to its clients. They give it up when they notice, at their next
 * call, and keep it for as long as they keep batches of it. The daemon that is started next finds its memory
 * taken meanwhile: by those that it shall serve. So a pipeline that lacks space looks who holds rings that no
 * daemon serves (space.c, in another thread), waits for those, says for whom, and tries again twice a second.
 * If nobody holds such, or too little, it fails at once: then it is the configuration that asks for too much.
 *
 *     no room --> look --holders--> pause --> no room
 *                  |                  `-----> room: the start goes on
 *                  |--waited long enough--> it fails; or it takes what there is, where the number of slots
 *                  |                        was left to it
 *                  `--none--> no room, still --none--> the same
 *
 * The second try is for who has let go between the first one and the look.
 *
 * A process may hold batches of the old ring and wait for the new one in the same call, and then it waits for
 * itself. Nobody but its user can mend that, so the wait has an end, with words that name that process.
 *
 * What processes of other users hold is not seen in /proc, but in /dev/shm it shows as space that is taken by
 * nobody. That is waited for as well, though only by a pipeline as young as the wait is long: later there is
 * no reason to take it for an earlier ring. */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "daemon/log.h"

#include <errno.h>
#include <string.h>

enum {
        TRY_MS = 500,
        WAITING_MAX = 64, /* jobs whose processes are compared with those that hold something */
};

const char *pipeline_waiting_for(const struct pipeline *pipeline) {
        return pipeline->space.awaited && *pipeline->space.text ? pipeline->space.text : NULL;
}

void pipeline_forget_space(struct pipeline *pipeline) {
        uv_timer_stop(&pipeline->space.pause);
        pipeline->space.awaited = pipeline->space.settled = false;
        pipeline->space.is_short = pipeline->space.is_last = false;
        pipeline->space.text[0] = 0;
        pipeline->space.since_ns = 0;
}

static void describe(struct pipeline *pipeline) {
        pid_t waiting[WAITING_MAX];
        uint32_t n = 0;

        list_for_each (link, &pipeline->jobs) {
                if (n < WAITING_MAX)
                        waiting[n++] = pipeline_job_of(link)->pid;
        }
        pipeline->space.bytes = pipeline->space.report.bytes;
        space_describe(&pipeline->space.report, waiting, n, pipeline->space.text);
}

/* Another try, or what there is. */
static void go_on(struct pipeline *pipeline) {
        pipeline->space.awaited = false;
        if (pipeline->ring.fd >= 0)
                pipeline_reserve(pipeline);
        else
                pipeline_take_resources(pipeline);
}

static void on_pause_over(uv_timer_t *timer) {
        go_on(timer->data);
}

/* Nobody is waited for any more. */
static void give_up(struct pipeline *pipeline, uint64_t waited_ns) {
        struct fault reason = pipeline->failure;

        if (pipeline->space.is_short) {
                pipeline->space.settled = true;
                go_on(pipeline);
                return;
        }
        if (*pipeline->space.text)
                fault_set(&pipeline->failure, -ENOSPC, "%s; waited %.0f s: %s", reason.text,
                          (double)waited_ns / NS_PER_S, pipeline->space.text);
        pipeline_fail(pipeline, -ENOSPC);
}

/* So much that there would be room without it. */
static bool somebody_holds(const struct pipeline *pipeline, uint64_t now, uint64_t patience_ns) {
        const struct space_report *report = &pipeline->space.report;
        bool may_be_ours = report->unseen > 0 && now - pipeline->made_ns < patience_ns;
        uint64_t held = report->bytes + (may_be_ours ? report->unseen : 0);

        return (report->n_holders > 0 || may_be_ours) && held >= pipeline->ring.missing;
}

static void look_in_thread(uv_work_t *work) {
        struct pipeline *pipeline = work->data;

        space_look(&pipeline->space.report, pipeline->space.only_shm);
}

static void on_looked(uv_work_t *work, int status) {
        struct pipeline *pipeline = work->data;
        struct pipeline_space *space = &pipeline->space;
        uint64_t now = clock_ns(), patience_ns = pipeline_space_patience_ms() * NS_PER_MS;
        bool is_held = somebody_holds(pipeline, now, patience_ns), was_last = space->is_last;
        bool is_news = !*space->text;

        space->looking = false;
        if (!space->awaited)
                return; /* it has failed meanwhile, or is stopping */
        describe(pipeline);
        space->is_last = !is_held;
        if (now - space->since_ns >= patience_ns || (!is_held && was_last)) {
                give_up(pipeline, now - space->since_ns);
        } else if (!is_held) {
                go_on(pipeline);
        } else {
                if (is_news)
                        log_line(LOG_WARNING, "pipeline %s waits for space, %.0f s at most: %s",
                                 pipeline->label, (double)patience_ns / NS_PER_S, space->text);
                uv_timer_start(&space->pause, on_pause_over, TRY_MS, 0);
        }
}

void pipeline_await_space(struct pipeline *pipeline) {
        struct pipeline_space *space = &pipeline->space;

        space->awaited = true;
        if (space->since_ns == 0)
                space->since_ns = clock_ns();
        if (space->looking)
                return;
        space->only_shm = pipeline->config->backing == CONFIG_BACKING_SHM;
        space->looking = uv_queue_work(pipeline->loop, &space->work, look_in_thread, on_looked) == 0;
        if (!space->looking)
                give_up(pipeline, 0);
}
