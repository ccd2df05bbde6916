/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rest: a pipeline that nobody needs has neither ring nor workers.
 *
 * `idle` seconds after its last job has left, ring and workers go, and the index with them; the next attach
 * begins as the first one did, and looks for the samples anew. A job that comes while the workers are still
 * ending waits for the last of them, which is the one that starts anew. With `reserve: start` they stay, and
 * so they do while somebody else needs them: a verification goes by the index it has begun with.
 *
 * A worker that still holds a chunk by then hangs at a sample. It will finish it, or be killed; either brings
 * a step, and with it another wait of `idle`. The same goes for a killed one that does not end: its ring
 * could not be given back anyway, and who comes can still be served from the slots that are left.
 *
 * A pipeline whose workers its jobs bring goes with the last of them, in whatever state it is: nobody could
 * fork for it, and nobody else can mean it.
 *
 * A run that goes by verdicts which were lifted ends with its last job, and waits for nothing but the file
 * they stand in; where that could not be written it waits for `idle` like any other.
 *
 * A run with too many bad samples has ended all its jobs, and shows what it found until somebody attaches: by
 * then the files may have been mended, so that job begins a run of its own. */

#include "daemon/pipeline-internal.h"

#include "daemon/log.h"
#include "daemon/verdicts.h"

#include <inttypes.h>

enum {
        MS_PER_S = 1000,
};

void pipeline_start_anew(struct pipeline *pipeline) {
        bool is_wanted = !list_is_empty(&pipeline->jobs);

        if (pipeline->state == PIPELINE_IDLE && pipeline->config->reserve == CONFIG_RESERVE_START &&
            !pipeline->superseded)
                is_wanted = true; /* it rests for a moment only */
        if (is_wanted && (pipeline->state == PIPELINE_FAILED || pipeline->state == PIPELINE_IDLE))
                pipeline_start(pipeline);
}

static void let_go(struct pipeline *pipeline) {
        uv_idle_stop(&pipeline->reserving);
        uv_idle_stop(&pipeline->growing);
        uv_timer_stop(&pipeline->reporting);
        uv_timer_stop(&pipeline->restart);
        uv_timer_stop(&pipeline->resting);
        pipeline_forget_space(pipeline);
        pipeline->state = PIPELINE_IDLE;
        orders_deinit(&pipeline->orders);
        pool_stop(&pipeline->pool, false);
        budget_share_out(pipeline->budget); /* they may have been busy for nobody */
}

static bool is_unused(const struct pipeline *pipeline) {
        return pipeline->state == PIPELINE_READY && list_is_empty(&pipeline->jobs);
}

static void on_resting(uv_timer_t *timer) {
        struct pipeline *pipeline = timer->data;

        if (!is_unused(pipeline) || pipeline->kept > 0 || pipeline->work_copy || pipeline->quarantined > 0 ||
            pool_busy(&pipeline->pool) > 0)
                return;
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s has had no job for %g s: %u workers and the ring of %" PRIu64 " bytes go",
                  pipeline->label, pipeline->config->idle, pipeline->pool.n_workers,
                  ring_bytes(&pipeline->ring));
        let_go(pipeline);
}

void pipeline_rest(struct pipeline *pipeline) {
        bool waits = uv_is_active((uv_handle_t *)&pipeline->resting);

        if (pipeline_is_brought(pipeline)) {
                if (list_is_empty(&pipeline->jobs) && pipeline_is_up(pipeline))
                        let_go(pipeline);
        } else if (!is_unused(pipeline)) {
                if (waits)
                        uv_timer_stop(&pipeline->resting);
        } else if (pipeline->verdicts->n_lifted > 0 && !pipeline->work_copy && pipeline->work_result >= 0) {
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                          "pipeline %s ends its run: the next one replaces %zu samples fewer",
                          pipeline->label, pipeline->verdicts->n_lifted);
                let_go(pipeline);
        } else if (!waits && pipeline->config->reserve != CONFIG_RESERVE_START && pipeline->kept == 0) {
                uv_timer_start(&pipeline->resting, on_resting, (uint64_t)(pipeline->config->idle * MS_PER_S),
                               0);
        }
}

void pipeline_refresh(struct pipeline *pipeline) {
        if (!is_unused(pipeline) || !pipeline->spoilt || pipeline->kept > 0 || pipeline->work_copy ||
            pipeline->quarantined > 0)
                return;
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s begins anew: its last run had too many bad samples", pipeline->label);
        let_go(pipeline);
}

void pipeline_keep(struct pipeline *pipeline, bool wanted) {
        pipeline->kept += wanted ? 1 : -1;
        if (wanted)
                uv_timer_stop(&pipeline->resting);
        else
                pipeline_rest(pipeline);
}
