/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline at work takes over what another configuration says of it: everything where it is read from when
 * it is needed, and what somebody keeps a copy of here. Keys that decide rows or ring do not differ, so ring,
 * scheduler and jobs know nothing of it.
 *
 * How many workers `pinfeedctl set` has given it stays in force, unless the file says another number than
 * before. */

#include "daemon/pipeline-internal.h"

#include "daemon/description.h"

void pipeline_take_config(struct pipeline *pipeline, struct config *whole,
                          const struct config_pipeline *config) {
        struct config *before = pipeline->whole;
        uint64_t workers = pipeline->defined->workers;

        if (pipeline->config == &pipeline->completed)
                description_retake(&pipeline->completed, config);
        else
                pipeline->config = config;
        pipeline->defined = config;
        pipeline->whole = config_ref(whole);
        config_unref(before);
        if (recipe_is_described(&config->recipe))
                interpreter_init(&pipeline->interpreter, config->recipe.source.interpreter);
        pool_set_limits(&pipeline->pool, (int)whole->nice, config->sample_timeout);
        pipeline->announced = true; /* that is for the daemon's start */
        if (config->workers != workers)
                pipeline_set_workers(pipeline, (uint32_t)config->workers);
        if (pipeline->state == PIPELINE_READY)
                pipeline_start_lockstep(pipeline);
        uv_timer_stop(&pipeline->resting); /* `idle` may be another; the step sets it again */
        if (config->reserve == CONFIG_RESERVE_START)
                pipeline_start(pipeline);
        pipeline_step(pipeline);
}
