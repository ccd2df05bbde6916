/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A reload takes all of the new file or nothing of it.
 *
 * The file is read and checked by another thread, for storage may hang. With an error everything stays as it
 * is, and the error is said to whoever asked, in the log and in status. Then each pipeline of the file is
 * held against those that there are, by name:
 *
 * - it says the same: kept. The pipeline goes on; ring, workers and jobs stay.
 *
 * - it differs in what decides neither rows nor ring (config_is_alike): updated. The same, and the values are
 *   taken over.
 *
 * - it differs in more: changed. A new pipeline has the name, and the one before is superseded: it goes on
 *   for the jobs it has, with its ring, order and bytes (roster.c).
 *
 * - nobody has the name: added. The file has it not: removed, the pipeline is superseded, and nothing has the
 *   name.
 *
 * A superseded one that still has jobs when the file says the same again is reinstated. All versions together
 * count for CONFIG_PIPELINES_MAX, and everything that may fail is done before anything is changed. What a new
 * pipeline finds when it starts is another matter: a ring without room is that pipeline's failure, and does
 * not take the reload back.
 *
 * Pipelines that clients have defined are theirs, and stay as they are.
 *
 * One who asks while a reload runs means the file as it is by then, which that one may have read already; so
 * another one follows. One who asks before the daemon is ready waits for that. */

#include "daemon/reload.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "daemon/config.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/guard.h"
#include "daemon/log.h"
#include "daemon/roster.h"
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
        NAMES_MAX = 1024, /* of pipelines, in a line of the log */
};

enum kind {
        KEPT,
        UPDATED,
        CHANGED,
        ADDED,
        REMOVED,
        N_KINDS,
};

static const char *const kind_names[] = {"kept", "updated", "changed", "added", "removed"};

/* What becomes of each pipeline of the new file, in its order. */
struct plan {
        struct config *config;
        struct pipeline *there[CONFIG_PIPELINES_MAX]; /* that goes on with it; NULL: none */
        struct pipeline *made[CONFIG_PIPELINES_MAX];  /* for it */
        uint32_t n_made;
        json_t *names[N_KINDS];
};

/* ---- what is to be done ---- */

/* The configuration's pipeline of this name; NULL: it has none. */
static struct pipeline *find_named(const struct daemon *daemon, const char *name) {
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                struct pipeline *pipeline = daemon->pipelines[i];

                if (!pipeline->definition && !pipeline->superseded &&
                    strcmp(pipeline->defined->name, name) == 0)
                        return pipeline;
        }
        return NULL;
}

/* That one, or an earlier version of it, if it is alike. */
static struct pipeline *find_alike(const struct daemon *daemon, const struct config_pipeline *config) {
        struct pipeline *named = find_named(daemon, config->name);

        if (named && config_is_alike(named->defined, config))
                return named;
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                struct pipeline *pipeline = daemon->pipelines[i];

                if (pipeline->superseded && strcmp(pipeline->defined->name, config->name) == 0 &&
                    config_is_alike(pipeline->defined, config))
                        return pipeline;
        }
        return NULL;
}

static void note(struct plan *plan, enum kind kind, const char *name) {
        json_array_append_new(plan->names[kind], json_string(name));
}

static void match(const struct daemon *daemon, struct plan *plan) {
        for (uint32_t i = 0; i < plan->config->n_pipelines; i++) {
                const struct config_pipeline *config = &plan->config->pipelines[i];
                struct pipeline *there = find_alike(daemon, config);

                plan->there[i] = there;
                if (there && !there->superseded)
                        note(plan, config_is_same(there->defined, config) ? KEPT : UPDATED, config->name);
                else
                        note(plan, find_named(daemon, config->name) ? CHANGED : ADDED, config->name);
        }
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                const struct pipeline *pipeline = daemon->pipelines[i];

                if (!pipeline->definition && !pipeline->superseded &&
                    !config_find(plan->config, pipeline->defined->name))
                        note(plan, REMOVED, pipeline->defined->name);
        }
}

static bool goes_on(const struct plan *plan, const struct pipeline *pipeline) {
        for (uint32_t i = 0; i < plan->config->n_pipelines; i++)
                if (plan->there[i] == pipeline)
                        return true;
        return false;
}

/* All versions have to fit. */
static int check_room(const struct daemon *daemon, const struct plan *plan, struct fault *fault) {
        uint32_t older = 0, defined = 0;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                const struct pipeline *pipeline = daemon->pipelines[i];

                defined += pipeline->definition != NULL;
                older += !pipeline->definition && !goes_on(plan, pipeline) && !roster_is_unused(pipeline);
        }
        if (plan->config->n_pipelines + older + defined <= CONFIG_PIPELINES_MAX)
                return 0;
        return fault_set(fault, -ENOSPC,
                         "%s has %u pipelines, %u of before still have jobs and clients have defined %u: "
                         "pinfeedd may have %d; end some jobs and reload again",
                         plan->config->file, plan->config->n_pipelines, older, defined, CONFIG_PIPELINES_MAX);
}

static void discard(struct plan *plan) {
        for (uint32_t i = 0; i < plan->config->n_pipelines; i++)
                if (plan->made[i])
                        roster_discard(plan->made[i]);
}

static int make_pipelines(struct daemon *daemon, struct plan *plan, struct fault *fault) {
        for (uint32_t i = 0; i < plan->config->n_pipelines; i++) {
                int r = plan->there[i] ? 0
                                       : roster_make(daemon, plan->config, &plan->config->pipelines[i],
                                                     &plan->made[i], fault);

                if (r < 0) {
                        discard(plan);
                        return r;
                }
        }
        return 0;
}

/* ---- and is done ---- */

static void supersede(struct daemon *daemon, const struct plan *plan) {
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                struct pipeline *pipeline = daemon->pipelines[i];

                if (!pipeline->definition && !pipeline->superseded && !goes_on(plan, pipeline))
                        roster_supersede(daemon, pipeline);
        }
        roster_sweep(daemon, NULL); /* those without jobs are gone before anything new takes their memory */
}

static void take_budget(struct daemon *daemon, uint32_t cpus) {
        if (cpus == daemon->budget.places)
                return;
        log_line(LOG_INFO, "%u cpus instead of %u from now on", cpus, daemon->budget.places);
        daemon->budget.places = cpus;
        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                if (daemon->pipelines[i]->workers == 0)
                        pipeline_set_workers(daemon->pipelines[i], 0);
}

/* Sockets stay as they were made. */
static void warn_of_sockets(const struct config *before, const struct config *config) {
        const char *listen[] = {before->metrics_listen, config->metrics_listen};
        bool same_listen = !listen[0] == !listen[1] && (!listen[0] || strcmp(listen[0], listen[1]) == 0);
        bool same_group = !before->socket_group_line == !config->socket_group_line &&
                          before->socket_gid == config->socket_gid;

        if (!same_listen || !same_group)
                log_line(LOG_WARNING, "%s: %s has changed, which only a start takes over; restart pinfeedd",
                         config->file, same_listen ? "socket_group" : "metrics_listen");
}

static void take_daemons_keys(struct daemon *daemon, struct config *config, uint32_t usable) {
        warn_of_sockets(daemon->config, config);
        config_unref(daemon->config);
        daemon->config = config_ref(config);
        pool_set_limits(&daemon->verify.pool, (int)config->nice,
                        (double)daemon->verify.pool.sample_timeout_ns / NS_PER_S);
        take_budget(daemon, config->cpus > 0 ? (uint32_t)config->cpus : usable);
}

/* Only now does anything begin: with the keys and the memory that there are then. */
static void take_pipelines(struct daemon *daemon, const struct plan *plan) {
        for (uint32_t i = 0; i < plan->config->n_pipelines; i++) {
                if (!plan->there[i])
                        roster_add(daemon, plan->made[i]);
                else if (plan->there[i]->superseded)
                        roster_reinstate(daemon, plan->there[i]);
        }
        for (uint32_t i = 0; i < plan->config->n_pipelines; i++) {
                const struct config_pipeline *config = &plan->config->pipelines[i];

                if (plan->there[i])
                        pipeline_take_config(plan->there[i], plan->config, config);
                else if (config->reserve == CONFIG_RESERVE_START)
                        pipeline_start(plan->made[i]);
        }
}

static int apply(struct reload *reload, struct plan *plan) {
        struct daemon *daemon = reload->daemon;
        int r;

        match(daemon, plan);
        r = guard_check_config(daemon, plan->config, &reload->fault);
        if (r >= 0)
                r = check_room(daemon, plan, &reload->fault);
        if (r >= 0)
                r = make_pipelines(daemon, plan, &reload->fault);
        if (r < 0)
                return r;
        reload->generation++;
        supersede(daemon, plan);
        take_daemons_keys(daemon, plan->config, reload->cpus);
        take_pipelines(daemon, plan);
        return 0;
}

/* ---- words ---- */

static void log_names(const struct reload *reload, const struct plan *plan) {
        char names[NAMES_MAX] = "";
        const json_t *name;
        size_t i;

        for (int kind = 0; kind < N_KINDS; kind++) {
                json_array_foreach(plan->names[kind], i, name) {
                        size_t n = strlen(names);

                        snprintf(names + n, sizeof(names) - n, "%s%s%s",
                                 i > 0   ? ", "
                                 : n > 0 ? "; "
                                         : "",
                                 i == 0 ? kind_names[kind] : "", i == 0 ? " " : "");
                        n = strlen(names);
                        snprintf(names + n, sizeof(names) - n, "%s", json_string_value(name));
                }
        }
        log_line(LOG_INFO, "%s is reloaded, generation %" PRIu64 ": %s", plan->config->file,
                 reload->generation, *names ? names : "no pipelines");
}

/* Of those that are superseded: how many, and their jobs. */
static void count_older(const struct daemon *daemon, uint32_t *older, uint32_t *jobs) {
        *older = *jobs = 0;
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                if (!daemon->pipelines[i]->superseded)
                        continue;
                ++*older;
                list_for_each (link, &daemon->pipelines[i]->jobs)
                        ++*jobs;
        }
}

static json_t *make_answer(const struct reload *reload, const struct plan *plan) {
        uint32_t older, jobs;

        count_older(reload->daemon, &older, &jobs);
        return json_pack("{s:I, s:O, s:O, s:O, s:O, s:O, s:i, s:i}", "generation",
                         (json_int_t)reload->generation, kind_names[KEPT], plan->names[KEPT],
                         kind_names[UPDATED], plan->names[UPDATED], kind_names[CHANGED], plan->names[CHANGED],
                         kind_names[ADDED], plan->names[ADDED], kind_names[REMOVED], plan->names[REMOVED],
                         "superseded", (int)older, "superseded_jobs", (int)jobs);
}

static json_t *refuse(struct reload *reload) {
        reload->failure = reload->fault;
        log_line(LOG_ERROR, "the configuration stays as it is, generation %" PRIu64 ": %s",
                 reload->generation, reload->failure.text);
        return json_pack("{s:s}", "error", reload->failure.text);
}

/* ---- one reload ---- */

static json_t *finish(struct reload *reload) {
        struct plan plan = {.config = reload->config};
        json_t *answer;
        int r;

        if (reload->result < 0)
                return refuse(reload);
        for (int kind = 0; kind < N_KINDS; kind++)
                plan.names[kind] = json_array();
        r = apply(reload, &plan);
        if (r < 0) {
                answer = refuse(reload);
        } else {
                reload->failure.text[0] = 0;
                log_names(reload, &plan);
                answer = make_answer(reload, &plan);
        }
        for (int kind = 0; kind < N_KINDS; kind++)
                json_decref(plan.names[kind]);
        return answer;
}

static void read_in_thread(uv_work_t *work) {
        struct reload *reload = work->data;

        reload->config = NULL;
        reload->cpus = (uint32_t)cpu_count_usable("");
        reload->result = config_load(&reload->config, reload->daemon->options.config, &reload->fault);
}

static void begin(struct reload *reload);

static void on_read(uv_work_t *work, int status) {
        struct reload *reload = work->data;
        struct daemon *daemon = reload->daemon;

        reload->running = false;
        if (!daemon->stopping) {
                uv_timer_stop(&reload->telling);
                reload->last_ns = clock_ns();
                control_end(daemon->control, CONTROL_RELOAD, reload->turn, finish(reload));
                service_ready();
        }
        reload->config = config_unref(reload->config);
        if (!daemon->stopping && reload->wanted)
                begin(reload);
}

static void on_telling(uv_timer_t *timer) {
        struct reload *reload = timer->data;

        control_tell(reload->daemon->control, CONTROL_RELOAD,
                     json_pack("{s:s}", "waiting", reload->daemon->options.config));
}

static void begin(struct reload *reload) {
        reload->wanted = false;
        reload->turn++;
        reload->running = uv_queue_work(&reload->daemon->loop, &reload->work, read_in_thread, on_read) == 0;
        if (reload->running) {
                service_reloading();
                return;
        }
        fault_set(&reload->fault, -ENOMEM, "no memory to read the configuration");
        control_end(reload->daemon->control, CONTROL_RELOAD, reload->turn, refuse(reload));
}

/* ---- from outside ---- */

void reload_init(struct reload *reload, struct daemon *daemon) {
        *reload = (struct reload){.daemon = daemon, .generation = 1};
        uv_timer_init(&daemon->loop, &reload->telling);
        uv_unref((uv_handle_t *)&reload->telling);
        reload->telling.data = reload->work.data = reload;
}

int reload_ask(struct reload *reload, uint64_t *turn, struct fault *fault) {
        if (!reload->daemon->options.config)
                return fault_set(fault, -ENOENT,
                                 "this pinfeedd was started without --config, so there is no file to reload");
        *turn = reload->turn + 1;
        uv_timer_start(&reload->telling, on_telling, RELOAD_TELL_MS, RELOAD_TELL_MS);
        if (reload->running || reload->daemon->unreserved > 0)
                reload->wanted = true;
        else
                begin(reload);
        return 0;
}

void reload_on_ready(struct reload *reload) {
        if (reload->wanted && !reload->running)
                begin(reload);
}

void reload_stop(struct reload *reload) {
        uv_close((uv_handle_t *)&reload->telling, NULL);
}
