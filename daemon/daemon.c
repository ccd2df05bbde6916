/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon. One thread, one loop; nothing here may block, so that status answers whatever storage, workers
 * or jobs do.
 *
 * Start: lock the directory, bind both sockets or take those that were passed (inherited.c), start the
 * pipelines that are reserved from the start, say that it is ready when their memory is there. A failure of
 * any of these ends the daemon with exit status 1 and one line. Status is answered from the moment the
 * sockets exist.
 *
 * SIGHUP reads the configuration again: reload.c.
 *
 * End: SIGTERM or SIGINT closes the sockets and every job and ends the workers; when the last one is gone the
 * loop runs dry. With `drain` SIGTERM lets the jobs finish first: drain.c. A private daemon that nobody has
 * needed for a while ends as well: linger.c. Once it is ending a further signal changes nothing (workers get
 * SIGKILL after a second anyway), so both are caught up to the end: otherwise it would kill the daemon before
 * it has removed its sockets. */

#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fault.h"
#include "base/program.h"
#include "daemon/control.h"
#include "daemon/guard.h"
#include "daemon/job.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/metrics-http.h"
#include "daemon/observe.h"
#include "daemon/reception.h"
#include "daemon/roster.h"
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct pipeline *daemon_find_pipeline(const struct daemon *daemon, const char *name) {
        struct pipeline *newest = NULL, *labelled = NULL;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                struct pipeline *pipeline = daemon->pipelines[i];

                if (pipeline->superseded)
                        continue;
                if (strcmp(pipeline->label, name) == 0)
                        labelled = pipeline;
                if (strcmp(pipeline->config->name, name) != 0)
                        continue;
                if (!pipeline->definition)
                        return pipeline;
                if (!newest || pipeline->asked > newest->asked)
                        newest = pipeline;
        }
        return newest ? newest : labelled;
}

static void on_observing(uv_timer_t *timer) {
        observe_all(timer->data);
        announce_state(timer->data);
        roster_sweep(timer->data, NULL);
}

/* ---- end ---- */

void daemon_stop(struct daemon *daemon, const char *reason) {
        if (daemon->stopping)
                return;
        daemon->stopping = true;
        if (reason)
                log_line(LOG_INFO, "%s: stopping", reason);
        announce_stop(daemon);
        uv_close((uv_handle_t *)&daemon->job_pause, NULL);
        uv_close((uv_handle_t *)&daemon->observing, NULL);
        meter_stop(&daemon->meter);
        linger_stop(&daemon->linger);
        users_stop(&daemon->users);
        reload_stop(&daemon->reload);
        drain_stop(&daemon->drain);
        if (daemon->job_socket >= 0)
                uv_close((uv_handle_t *)&daemon->job_poll, NULL);
        daemon->control = control_free(daemon->control);
        daemon->http = metrics_http_free(daemon->http);
        verify_stop(&daemon->verify);
        /* First those of pipelines: a job that leaves a pipeline at work could end another one. */
        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                pipeline_stop(daemon->pipelines[i]);
        list_for_each_safe (link, &daemon->jobs)
                job_close(container_of(link, struct job, link), NULL);
}

static void on_signal(uv_signal_t *signal, int number) {
        struct daemon *daemon = signal->data;

        if (daemon->stopping || (number == SIGTERM && drain_on_signal(&daemon->drain)))
                return;
        daemon->exit_status = number == SIGINT ? 130 : 0;
        daemon_stop(daemon, number == SIGINT ? "SIGINT" : "SIGTERM");
}

static void on_hangup(uv_signal_t *signal, int number) {
        struct daemon *daemon = signal->data;
        struct fault fault;
        uint64_t turn;

        if (daemon->stopping)
                return;
        if (reload_ask(&daemon->reload, &turn, &fault) < 0)
                log_line(LOG_INFO, "SIGHUP changes nothing: %s", fault.text);
}

/* A verification is somebody's who waits for it, too. Whoever has connected and not been seen yet is let in
 * first. */
static bool is_needed(void *data) {
        struct daemon *daemon = data;

        if (!drain_keeps_out(&daemon->drain))
                reception_look(daemon);
        return !list_is_empty(&daemon->jobs) || daemon->verify.state != VERIFY_IDLE;
}

static void on_lingered(void *data) {
        struct daemon *daemon = data;
        char reason[64];

        snprintf(reason, sizeof(reason), "no job for %" PRIu64 " s", daemon->options.linger_s);
        daemon_stop(daemon, reason);
}

/* Whoever starts a private daemon in passing gives it the processors of a shell or a batch job's step, which
 * may be few. */
static void warn_about_cpus(struct daemon *daemon) {
        long there = sysconf(_SC_NPROCESSORS_ONLN);

        if (daemon->config->cpus == 0 && there > (long)daemon->budget.places)
                fault_set(
                        surroundings_next(&daemon->surroundings), 0,
                        "only %u of the machine's %ld processors may be used, as affinity and cgroup of the "
                        "process that started this daemon say; start it where there are more ('pinfeedctl "
                        "run'), or use the machine's service",
                        daemon->budget.places, there);
}

/* Before the daemon serves anybody, for files are read. */
static void look_around(struct daemon *daemon) {
        struct surroundings_needs needs = {
                .pipelines = daemon->n_pipelines, .uid = geteuid(), .is_private = daemon->options.is_private};
        struct surroundings_limits limits;

        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                needs.ring_bytes += daemon->pipelines[i]->config->ring_bytes;
                needs.workers += pipeline_workers(daemon->pipelines[i]);
        }
        surroundings_limits(&limits);
        surroundings_look(&daemon->surroundings, "", &needs, &limits);
        if (daemon->options.is_private)
                warn_about_cpus(daemon);
        for (uint32_t i = 0; i < daemon->surroundings.n; i++)
                log_line(LOG_WARNING, "%s", daemon->surroundings.warnings[i].text);
}

static void say_ready(struct daemon *daemon) {
        log_line(LOG_INFO, "ready: pid %d, %s, %u cpu%s, %u pipeline%s", (int)getpid(), daemon->directory,
                 daemon->budget.places, daemon->budget.places == 1 ? "" : "s", daemon->n_pipelines,
                 daemon->n_pipelines == 1 ? "" : "s");
        announce_ready(daemon);
}

static void on_reserved(void *context, struct pipeline *pipeline, int error) {
        struct daemon *daemon = context;

        if (error < 0) {
                service_failed(error, pipeline->failure.text);
                daemon->exit_status = 1;
                daemon_stop(daemon, NULL);
        } else if (--daemon->unreserved == 0 && !daemon->stopping) {
                say_ready(daemon);
                reload_on_ready(&daemon->reload);
        }
}

/* ---- start ---- */

static int find_worker(struct daemon *daemon, struct fault *fault) {
        static const char *const places[] = {
                "../libexec/pinfeed/pinfeed-worker", /* installed */
                "worker/pinfeed-worker",             /* the build tree */
                NULL,
        };

        if (program_find(daemon->worker_path, places) < 0)
                return fault_set(fault, -ENOENT,
                                 "no pinfeed-worker at %s or %s beside this program; install both together",
                                 places[0], places[1]);
        return 0;
}

static int serve_metrics(struct daemon *daemon, struct fault *fault) {
        int r = metrics_http_new(&daemon->http, daemon, daemon->config->metrics_listen, fault);

        if (r >= 0)
                log_line(LOG_INFO, "metrics are at http://%s/metrics", metrics_http_address(daemon->http));
        return r;
}

static void watch_signals(struct daemon *daemon) {
        signal(SIGPIPE, SIG_IGN);
        uv_signal_init(&daemon->loop, &daemon->sigterm);
        uv_signal_init(&daemon->loop, &daemon->sigint);
        uv_signal_init(&daemon->loop, &daemon->sighup);
        daemon->sigterm.data = daemon->sigint.data = daemon->sighup.data = daemon;
        uv_signal_start(&daemon->sigterm, on_signal, SIGTERM);
        uv_signal_start(&daemon->sigint, on_signal, SIGINT);
        uv_signal_start(&daemon->sighup, on_hangup, SIGHUP);
        uv_unref((uv_handle_t *)&daemon->sigterm); /* what keeps the loop alive are the sockets */
        uv_unref((uv_handle_t *)&daemon->sigint);
        uv_unref((uv_handle_t *)&daemon->sighup);
}

/* From here on these signals stay pending: closing a handle makes its signal deadly again. */
static void unwatch_signals(struct daemon *daemon) {
        sigset_t all;

        sigemptyset(&all);
        sigaddset(&all, SIGTERM);
        sigaddset(&all, SIGINT);
        sigaddset(&all, SIGHUP);
        sigprocmask(SIG_BLOCK, &all, NULL);
        uv_close((uv_handle_t *)&daemon->sigterm, NULL);
        uv_close((uv_handle_t *)&daemon->sigint, NULL);
        uv_close((uv_handle_t *)&daemon->sighup, NULL);
        uv_run(&daemon->loop, UV_RUN_DEFAULT);
}

static int make_pipelines(struct daemon *daemon, struct fault *fault) {
        static const struct pipeline_events events = {
                .reserved = on_reserved, .rested = roster_on_rested, .gone = roster_on_gone};

        for (uint32_t i = 0; i < daemon->config->n_pipelines; i++) {
                const struct config_pipeline *config = &daemon->config->pipelines[i];
                int r = pipeline_new(&daemon->pipelines[i], &daemon->loop, daemon->config, config,
                                     &daemon->budget, daemon->worker_path, &events, daemon);

                if (r < 0)
                        return fault_set(fault, r, "no memory for pipeline %s", config->name);
                daemon->n_pipelines++;
                daemon->unreserved += config->reserve == CONFIG_RESERVE_START;
        }
        return 0;
}

static void start_pipelines(struct daemon *daemon) {
        if (daemon->unreserved == 0)
                say_ready(daemon);
        for (uint32_t i = 0; i < daemon->n_pipelines && !daemon->stopping; i++) {
                if (daemon->pipelines[i]->config->reserve == CONFIG_RESERVE_START)
                        pipeline_start(daemon->pipelines[i]);
        }
}

/* A job costs two descriptors and a worker one, and the usual limit of 1,024 is there for programs that use
 * select. */
static void raise_descriptor_limit(void) {
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
                return;
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit); /* or it stays as it is */
}

static uint64_t wall_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static int daemon_init(struct daemon *daemon, struct config *config, const char *directory,
                       const struct daemon_options *options, struct fault *fault) {
        int r;

        *daemon = (struct daemon){.config = config,
                                  .lock = -1,
                                  .job_socket = -1,
                                  .verify = VERIFY_NONE,
                                  .inherited = INHERITED_NONE,
                                  .started_ns = clock_ns(),
                                  .started_wall_ns = wall_ns(),
                                  .options = *options};
        snprintf(daemon->directory, sizeof(daemon->directory), "%s", directory);
        list_init(&daemon->jobs);
        quota_init(&daemon->quota);
        budget_init(&daemon->budget,
                    config->cpus > 0 ? (uint32_t)config->cpus : (uint32_t)cpu_count_usable(""));
        r = guard_check_config(daemon, daemon->config, fault);
        if (r >= 0)
                r = find_worker(daemon, fault);
        if (r >= 0)
                r = runtime_make_directory(directory, fault);
        if (r < 0)
                return r;
        r = inherited_take(&daemon->inherited, directory, fault);
        if (r < 0)
                return r;
        daemon->activated = daemon->inherited.job >= 0 || daemon->inherited.control >= 0;
        daemon->lock = listener_lock(directory, fault);
        if (daemon->lock < 0)
                return daemon->lock;
        return options->log ? log_to_file(options->log, fault) : 0; /* not before the lock: it is another's */
}

static void daemon_deinit(struct daemon *daemon) {
        for (uint32_t i = 0; i < daemon->n_pipelines; i++)
                pipeline_free(daemon->pipelines[i]);
        verify_deinit(&daemon->verify);
        reception_remove(daemon);
        inherited_close(&daemon->inherited);
        listener_unlock(daemon->directory, daemon->lock);
        quota_deinit(&daemon->quota);
        config_unref(daemon->config);
}

static void begin(struct daemon *daemon) {
        background_tell(&daemon->options.background, 0, NULL);
        look_around(daemon);
        if (daemon->options.is_private)
                linger_start(&daemon->linger, &daemon->loop, daemon->options.linger_s, is_needed, on_lingered,
                             daemon);
        start_pipelines(daemon);
}

/* With a loop, a lock and a directory of its own. 0, or a negative errno: it could not begin. */
static int serve(struct daemon *daemon, struct fault *fault) {
        int r;

        raise_descriptor_limit();
        meter_start(&daemon->meter, &daemon->loop);
        uv_timer_init(&daemon->loop, &daemon->job_pause);
        uv_timer_init(&daemon->loop, &daemon->observing);
        daemon->job_pause.data = daemon->observing.data = daemon;
        uv_timer_start(&daemon->observing, on_observing, OBSERVE_MS, OBSERVE_MS);
        uv_unref((uv_handle_t *)&daemon->observing);
        announce_start(daemon);
        reload_init(&daemon->reload, daemon);
        drain_init(&daemon->drain, daemon);
        watch_signals(daemon);
        verify_init(&daemon->verify, &daemon->loop, daemon->worker_path, (int)daemon->config->nice);
        r = users_init(&daemon->users, &daemon->loop);
        if (r < 0)
                fault_set(fault, r, "cannot look users up: %s", uv_strerror(r));
        else
                r = make_pipelines(daemon, fault);
        if (r >= 0)
                r = reception_open(daemon, fault);
        if (r >= 0 && daemon->config->metrics_listen)
                r = serve_metrics(daemon, fault);
        if (r < 0) {
                log_line(LOG_ERROR, "%s", fault->text);
                service_failed(r, fault->text);
                daemon_stop(daemon, NULL);
        } else {
                users_learn(&daemon->users, geteuid());
                begin(daemon);
        }
        uv_run(&daemon->loop, UV_RUN_DEFAULT);
        unwatch_signals(daemon);
        return r < 0 ? r : 0;
}

int daemon_run(struct config *config, const char *directory, const struct daemon_options *options) {
        struct daemon daemon;
        struct fault fault;
        int r = daemon_init(&daemon, config, directory, options, &fault);

        if (r >= 0 && (r = uv_loop_init(&daemon.loop)) < 0)
                fault_set(&fault, r, "no event loop: %s", uv_strerror(r));
        if (r < 0) {
                log_line(LOG_ERROR, "%s", fault.text);
                service_failed(r, fault.text);
        } else {
                r = serve(&daemon, &fault);
                uv_loop_close(&daemon.loop);
        }
        daemon_deinit(&daemon);
        if (r < 0) /* not before the directory is free: whoever is told may try again at once */
                background_tell(&daemon.options.background, r, &fault);
        return r < 0 ? 1 : daemon.exit_status;
}
