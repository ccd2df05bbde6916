/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What jobs bring to a pipeline of a user's own dataset: zygotes, which fork its workers, and the orders of
 * epochs.
 *
 * Each job may bring one zygote. The one that has been there longest forks all workers; when it goes it takes
 * them along, their rows go back, and the next one forks others. A job that brings a second one wants its
 * first one gone, with the dataset in it. Without any the pipeline cannot go on: its jobs are told. Without a
 * job it has no zygote either, so it does not wait for `idle` (pipeline-rest.c).
 *
 * That the last zygote is gone may be found out in the midst of a step, when a job turns out to have left. So
 * what follows from it is done at the end of the step (pipeline_check_zygote), and nowhere else.
 *
 * An order comes before anything that leads into its epoch, since nothing is prepared ahead of what was asked
 * for (`lookahead` 0): so it is there before the first chunk, or the job is refused. Workers are told of it
 * at once, and of all that there are when they get their index. The orders go with the run, for its rows go.
 */

#include "daemon/pipeline-internal.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/log.h"
#include "daemon/orders.h"
#include "daemon/zygote.h"

#include <errno.h>
#include <inttypes.h>

bool pipeline_is_brought(const struct pipeline *pipeline) {
        return recipe_is_brought(&pipeline->config->recipe);
}

/* ---- zygotes ---- */

static struct zygote *zygote_of(struct list *link) {
        return container_of(link, struct zygote, link);
}

static void choose_zygote(struct pipeline *pipeline) {
        struct zygote *oldest = list_is_empty(&pipeline->zygotes) ? NULL : zygote_of(pipeline->zygotes.next);

        if (oldest && oldest != pipeline->pool.zygote && pipeline->state != PIPELINE_STOPPING)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                          "pipeline %s: its workers are forked by zygote %d from now on", pipeline->label,
                          oldest->pid);
        if (oldest)
                pipeline->zygote_pid = oldest->pid;
        pipeline->pool.zygote = oldest;
}

/* It may have more to fork, unless there is a pause because it cannot. */
static void on_answered(void *context, struct zygote *zygote) {
        struct pipeline *pipeline = context;
        bool pauses = uv_is_active((uv_handle_t *)&pipeline->restart);

        if (pipeline_is_up(pipeline) && !pauses && pipeline_grow(pipeline) < 0)
                pipeline_fail(pipeline, -EIO);
        pipeline_step(pipeline);
}

static void on_gone(void *context, struct zygote *zygote) {
        struct pipeline *pipeline = context;

        list_unlink(&zygote->link);
        choose_zygote(pipeline);
        pipeline_step(pipeline);
}

void pipeline_leave_zygote(struct pipeline *pipeline, const struct job *job, const struct zygote *but) {
        list_for_each_safe (link, &pipeline->zygotes) {
                if (zygote_of(link)->owner == job && zygote_of(link) != but)
                        zygote_close(zygote_of(link));
        }
        choose_zygote(pipeline);
}

int pipeline_take_zygote(struct pipeline *pipeline, struct job *job, struct fault *fault) {
        static const struct zygote_events events = {.answered = on_answered, .gone = on_gone};
        struct zygote *zygote;
        int r;

        if (job->zygote_fd < 0)
                return 0;
        if (!pipeline_is_brought(pipeline))
                return fault_set(fault, -EINVAL,
                                 "pipeline %s (%s:%u): a zygote was brought, but its source does not say "
                                 "`brought: true`",
                                 pipeline->label, pipeline->whole->file, pipeline->config->line);
        r = zygote_new(&zygote, pipeline->loop, &job->zygote_fd, (int)job->zygote_pid, &events, pipeline,
                       fault);
        if (r < 0)
                return r;
        zygote->owner = job;
        list_append(&pipeline->zygotes, &zygote->link);
        pipeline_leave_zygote(pipeline, job, zygote);
        return 0;
}

void pipeline_bring(struct pipeline *pipeline, struct job *job) {
        struct fault fault;

        if (pipeline_take_zygote(pipeline, job, &fault) < 0)
                job_close(job, fault.text);
        else
                pipeline_step(pipeline);
}

int pipeline_check_start(struct pipeline *pipeline) {
        const struct config_pipeline *config = pipeline->config;

        if (pipeline_is_brought(pipeline) && !pipeline->pool.zygote)
                return fault_set(&pipeline->failure, -EINVAL,
                                 "pipeline %s (%s:%u): its workers are forked by a zygote that a job brings, "
                                 "and there is none; attach to it through pinfeed.DataLoader",
                                 config->name, pipeline->whole->file, config->line);
        return 0;
}

bool pipeline_check_zygote(struct pipeline *pipeline) {
        if (!pipeline_is_brought(pipeline) || pipeline->pool.zygote || !pipeline_is_up(pipeline) ||
            list_is_empty(&pipeline->jobs))
                return true;
        fault_set(&pipeline->failure, -ESHUTDOWN,
                  "pipeline %s: the process that forked this loader's workers (pid %d) has ended or was "
                  "killed; make the DataLoader anew",
                  pipeline->label, pipeline->zygote_pid);
        pipeline_fail(pipeline, -ESHUTDOWN);
        return false;
}

/* ---- orders ---- */

static void tell_order(struct pool_worker *worker, const struct order *order) {
        struct message message = {.type = MESSAGE_ORDER,
                                  .order = {order->seed, order->epoch, order->entries}};

        pool_worker_send(worker, &message, order->fd);
}

void pipeline_tell_orders(struct pipeline *pipeline, struct pool_worker *worker) {
        list_for_each (link, &pipeline->orders.list)
                tell_order(worker, container_of(link, struct order, link));
}

int pipeline_take_order(struct pipeline *pipeline, const struct message_order *message, int *fd,
                        struct fault *fault) {
        struct order *order;
        int r;

        if (!pipeline->config->recipe.source.given_order)
                return fault_set(fault, -EINVAL,
                                 "pipeline %s (%s:%u): an order was given, but its source does not say "
                                 "`given_order: true`",
                                 pipeline->label, pipeline->whole->file, pipeline->config->line);
        r = orders_add(&pipeline->orders, message, fd, &order, fault);
        if (r != 0)
                return r < 0 ? r : 0;
        list_for_each (link, &pipeline->pool.workers) {
                struct pool_worker *worker = container_of(link, struct pool_worker, link);

                if (worker->state == POOL_WORKER_IDLE || worker->state == POOL_WORKER_BUSY)
                        tell_order(worker, order);
        }
        return 0;
}

int pipeline_take_orders(struct pipeline *pipeline, struct job *job, struct fault *fault) {
        int r = 0;

        list_for_each_safe (link, &job->orders.list) {
                struct order *order = container_of(link, struct order, link);
                struct message_order message = {order->seed, order->epoch, order->entries};

                if (r == 0)
                        r = pipeline_take_order(pipeline, &message, &order->fd, fault);
        }
        orders_deinit(&job->orders);
        return r;
}

int pipeline_check_order(const struct pipeline *pipeline, uint64_t seed, uint32_t epoch,
                         struct fault *fault) {
        if (!pipeline->config->recipe.source.given_order || orders_find(&pipeline->orders, seed, epoch))
                return 0;
        return fault_set(fault, -EINVAL,
                         "the order of epoch %u (seed %" PRIu64
                         ") is the job's to give, and it was not given; send ORDER before",
                         epoch, seed);
}
