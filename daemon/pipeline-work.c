/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who works: how many workers a pipeline has, and which of them gets what.
 *
 * A pipeline has as many workers as its `workers` says, or as the daemon has cpus. In the second case the
 * budget (budget.c) says who may begin a chunk: an event of this pipeline may let a worker of another one
 * begin, whose turn it is. Handing somebody a chunk changes nothing else, so that other one needs no step for
 * it. In the first case whoever is free gets what there is.
 *
 * The number can be changed at any time (pipeline_set_workers). More are started like those after deaths. Of
 * those beyond, the idle ones end at once and each of the others when it has nothing in hand: no chunk is
 * lost, and none comes back. */

#include "daemon/pipeline-internal.h"

#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/suspects.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

uint32_t pipeline_workers(const struct pipeline *pipeline) {
        return pipeline->workers > 0 ? pipeline->workers : pipeline->budget->places;
}

uint64_t pipeline_rows_in(const struct pipeline *pipeline, uint64_t ns) {
        double workers = pipeline->pool.n_workers, share;

        if (pipeline->workers == 0) {
                share = budget_share(pipeline->budget, &pipeline->member);
                workers = workers < share ? workers : share;
        }
        return pool_rows_in(&pipeline->pool, workers, ns);
}

/* ---- their number ---- */

/* Every worker gets the same recipe. */
int pipeline_make_setup(const struct pipeline *pipeline, struct message_setup *setup, struct fault *fault) {
        _cleanup_(freep) char *text = recipe_to_text(&pipeline->config->recipe);

        if (!text)
                return fault_set(fault, -ENOMEM, "no memory for the recipe of pipeline %s", pipeline->label);
        if (strlen(text) > MESSAGE_RECIPE_MAX)
                return fault_set(fault, -E2BIG, "the recipe of pipeline %s has %zu bytes, %d are possible",
                                 pipeline->label, strlen(text), MESSAGE_RECIPE_MAX);
        *setup = (struct message_setup){.on_error = pipeline->config->on_error == CONFIG_ON_ERROR_FAIL
                                                            ? MESSAGE_ON_ERROR_FAIL
                                                            : MESSAGE_ON_ERROR_REPLACE,
                                        .shuffle = pipeline->config->shuffle,
                                        .slots = pipeline->ring.slots,
                                        .slot_rows = (uint32_t)pipeline->config->batch_size};
        snprintf(setup->recipe, sizeof(setup->recipe), "%s", text);
        snprintf(setup->layout, sizeof(setup->layout), "%s", pipeline->layout ? pipeline->layout : "");
        return 0;
}

static void on_growing(uv_idle_t *idle);

/* Brings the pool to its size, in as many turns as that takes: at the first attach, and again for those that
 * died since. */
int pipeline_grow(struct pipeline *pipeline) {
        struct fault *fault = &pipeline->failure;
        struct message_setup setup;
        int r;

        if (pipeline->ring.fd < 0 || pipeline->pool.n_workers >= pipeline_workers(pipeline) ||
            (pipeline_is_brought(pipeline) && !pipeline->pool.zygote)) {
                uv_idle_stop(&pipeline->growing);
                return 0;
        }
        r = pipeline_make_setup(pipeline, &setup, fault);
        if (r >= 0)
                r = pool_grow(&pipeline->pool, pipeline_workers(pipeline), &setup, pipeline->ring.fd, fault);
        if (r >= 0 && pipeline->pool.n_workers < pipeline_workers(pipeline) &&
            pool_may_start(&pipeline->pool))
                uv_idle_start(&pipeline->growing, on_growing);
        else
                uv_idle_stop(&pipeline->growing);
        /* Fewer than asked for will do, if there is any. */
        if (r < 0 && pipeline->pool.n_workers > 0) {
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING,
                          "pipeline %s runs with %u of %u workers: %s", pipeline->label,
                          pipeline->pool.n_workers, pipeline_workers(pipeline), fault->text);
                r = 0;
        }
        if (pipeline->state == PIPELINE_READY)
                pool_set_index(&pipeline->pool, &pipeline->index, pipeline->index_fd);
        return r;
}

static void on_growing(uv_idle_t *idle) {
        struct pipeline *pipeline = idle->data;
        int r = pipeline_grow(pipeline);

        if (r < 0)
                pipeline_fail(pipeline, r);
        else
                pipeline_step(pipeline);
}

bool pipeline_is_up(const struct pipeline *pipeline) {
        return pipeline->state == PIPELINE_RESERVING || pipeline->state == PIPELINE_SCANNING ||
               pipeline->state == PIPELINE_READY;
}

void pipeline_set_workers(struct pipeline *pipeline, uint32_t workers) {
        pipeline->workers = workers;
        pipeline_join_budget(pipeline);
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s may have %u worker%s%s from now on", pipeline->label,
                  pipeline_workers(pipeline), pipeline_workers(pipeline) == 1 ? "" : "s",
                  workers > 0 ? "" : ", within the daemon's cpus,");
        pool_want(&pipeline->pool, pipeline_workers(pipeline));
        if (pipeline_is_up(pipeline) && pipeline_grow(pipeline) < 0)
                pipeline_fail(pipeline, -EIO);
        pipeline_step(pipeline);
        budget_share_out(pipeline->budget); /* if it has left, its places are free */
}

/* ---- their work ---- */

static void give_chunk(struct pool_worker *worker, struct pipeline *pipeline,
                       const struct scheduler_chunk *chunk) {
        struct message_chunk message = {.row = chunk->row,
                                        .seed = chunk->seed,
                                        .epoch = chunk->epoch,
                                        .slot = chunk->slot,
                                        .first = chunk->first,
                                        .rows = chunk->rows};

        if (chunk->first == 0)
                pipeline->slot_ready_ns[chunk->slot] = 0;
        pool_assign(worker, &message);
}

/* Suspects go first: each to a worker that gets nothing else, an idle one. */
static bool give(void *context, bool may_begin) {
        struct pipeline *pipeline = context;
        struct pool_worker *worker;
        struct scheduler_chunk chunk;

        if (pipeline_has_suspect(pipeline)) {
                if (may_begin)
                        pipeline_give_suspect(pipeline);
                return may_begin;
        }
        worker = pool_free_worker(&pipeline->pool, may_begin);
        if (!worker ||
            !scheduler_next_chunk(pipeline->scheduler, pool_chunk_rows(&pipeline->pool),
                                  pool_shares(&pipeline->pool, pipeline->config->batch_size), &chunk))
                return false;
        give_chunk(worker, pipeline, &chunk);
        return true;
}

static uint32_t busy(void *context) {
        const struct pipeline *pipeline = context;

        return pool_busy(&pipeline->pool);
}

static bool could(void *context) {
        struct pipeline *pipeline = context;

        return pipeline->state == PIPELINE_READY &&
               (!list_is_empty(&pipeline->jobs) || pipeline->suspects->count > 0 ||
                pipeline->config->warm > 0) &&
               pool_free_worker(&pipeline->pool, true);
}

static bool claim(void *context, struct budget_claim *claim) {
        struct pipeline *pipeline = context;

        *claim = (struct budget_claim){};
        return pipeline_has_suspect(pipeline) ||
               scheduler_peek_chunk(pipeline->scheduler, &claim->use, &claim->since_ns);
}

void pipeline_join_budget(struct pipeline *pipeline) {
        static const struct budget_events events = {
                .busy = busy, .could = could, .claim = claim, .give = give};

        if (!pipeline->member.events)
                budget_member_init(&pipeline->member, &events, pipeline);
        if (pipeline->workers > 0)
                budget_leave(&pipeline->member);
        else
                budget_join(pipeline->budget, &pipeline->member);
}

void pipeline_give_work(struct pipeline *pipeline) {
        pool_trim(&pipeline->pool);
        if (pipeline->workers == 0)
                budget_share_out(pipeline->budget);
        else
                while (give(pipeline, true))
                        ;
}
