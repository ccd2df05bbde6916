/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline takes its ring in two steps. First the file: its backing and its number of slots are chosen by
 * what is free, and what does not fit is found here. Then its memory, RING_RESERVE_STEP bytes in a turn of
 * the loop, since zeroing takes long (ring.c); what somebody else takes meanwhile is missed there. Whichever
 * finds that there is no room asks whether it is worth waiting for some: pipeline-space.c. */

#include "daemon/pipeline-internal.h"

#include "daemon/log.h"

#include <errno.h>

void pipeline_announce(struct pipeline *pipeline, int error) {
        if (pipeline->announced || pipeline->config->reserve != CONFIG_RESERVE_START)
                return;
        pipeline->announced = true;
        if (pipeline->events->reserved)
                pipeline->events->reserved(pipeline->context, pipeline, error);
}

static void on_reserving(uv_idle_t *idle) {
        struct pipeline *pipeline = idle->data;
        int r = ring_reserve(&pipeline->ring, pipeline->whole, pipeline->config, &pipeline->reserved,
                             &pipeline->failure);

        if (r >= 0 && !pipeline->reserved)
                return;
        uv_idle_stop(idle);
        if (r == -ENOSPC) {
                pipeline_await_space(pipeline);
                return;
        }
        if (r < 0) {
                pipeline_fail(pipeline, r);
                return;
        }
        pipeline_forget_space(pipeline);
        pipeline->state = pipeline->scanned ? pipeline->state : PIPELINE_SCANNING;
        pipeline_announce(pipeline, 0);
        pipeline_become_ready(pipeline);
}

/* Nobody said how many slots there are, and there is room for fewer than there would be. */
static bool is_short(const struct pipeline *pipeline) {
        const struct config_pipeline *config = pipeline->config;

        return !config->slots && !config->ring && pipeline->ring.slots < config->n_slots;
}

/* The ring. -ENOSPC also for one that is short, unless that has been settled (pipeline-space.c). */
static int make_ring(struct pipeline *pipeline) {
        int r;

        pipeline->failure.text[0] = 0;
        r = ring_init(&pipeline->ring, pipeline->whole, pipeline->config, &pipeline->failure);
        pipeline->space.is_short = r >= 0 && is_short(pipeline) && !pipeline->space.settled;
        if (!pipeline->space.is_short)
                return r;
        ring_deinit(&pipeline->ring);
        return -ENOSPC;
}

void pipeline_reserve(struct pipeline *pipeline) {
        uv_idle_start(&pipeline->reserving, on_reserving);
}

int pipeline_take_ring(struct pipeline *pipeline) {
        int r = make_ring(pipeline);

        if (r < 0 && r != -ENOSPC)
                return r;
        if (r == 0 && pipeline->config->backing == CONFIG_BACKING_AUTO &&
            pipeline->ring.backing == CONFIG_BACKING_MEMFD)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING,
                          "%s; backing: auto takes a memfd instead", pipeline->failure.text);
        pipeline->state = PIPELINE_RESERVING;
        pipeline_report(pipeline, true);
        if (r == 0)
                pipeline_reserve(pipeline);
        else
                pipeline_await_space(pipeline);
        return 0;
}
