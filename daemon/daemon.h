#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon as a whole: one loop, its sockets, pipelines and jobs. */

#include "base/list.h"
#include "daemon/announce.h"
#include "daemon/background.h"
#include "daemon/budget.h"
#include "daemon/config.h"
#include "daemon/drain.h"
#include "daemon/inherited.h"
#include "daemon/linger.h"
#include "daemon/meter.h"
#include "daemon/pipeline.h"
#include "daemon/quota.h"
#include "daemon/reload.h"
#include "daemon/surroundings.h"
#include "daemon/users.h"
#include "daemon/verify.h"
#include "proto/runtime.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct control;
struct fault;
struct metrics_http;

/* How it runs, beside what its configuration says. */
struct daemon_options {
        bool is_private;   /* takes definitions of pipelines from its own user, and ends when it is alone */
        uint64_t linger_s; /* of a private one */
        const char *log;   /* file for standard output and error; NULL: they stay */
        struct background background;
        const char *config; /* the file that is read again at a reload, absolute; NULL: there is none */
};

struct daemon {
        uv_loop_t loop;
        struct config *config;
        char directory[RUNTIME_PATH_MAX + 1];
        char worker_path[PATH_MAX];
        struct budget budget; /* its places are the cpus */
        uint64_t started_ns;
        int lock;
        int job_socket;
        uv_poll_t job_poll;
        uv_timer_t job_pause; /* runs while nothing is accepted: see on_connection */
        uv_timer_t observing; /* see observe.c */
        uv_signal_t sigterm;
        uv_signal_t sigint;
        struct control *control;
        struct pipeline *pipelines[CONFIG_PIPELINES_MAX];
        uint32_t n_pipelines;
        struct verify verify;
        uint32_t unreserved; /* reserve: start pipelines whose ring is not there yet */
        struct list jobs;
        struct quota quota;
        uint32_t next_job;
        uint64_t refused_ns; /* when a line about a refused connection was logged last */
        uint64_t unlogged;   /* refused since without a line of its own */
        bool stopping;
        int exit_status;
        struct daemon_options options;
        struct lingering linger; /* of a private one */
        uint64_t definitions;    /* that were asked for so far */
        /* what only metrics tell */
        struct metrics_http *http; /* NULL: no metrics_listen */
        struct meter meter;
        uint64_t started_wall_ns; /* since 1970 */
        uint64_t refused_connections, refused_jobs;
        uint64_t cpu_ns_of_gone; /* of workers of pipelines that were taken out */
        struct inherited inherited;
        bool activated;        /* its sockets, or one of them, were passed to it and outlive it */
        bool job_socket_stays; /* the jobs' one was: its file is not the daemon's to remove */
        struct announcer announcer;
        struct surroundings surroundings; /* warnings, of the start */
        struct users users;
        uv_signal_t sighup;
        struct reload reload;
        struct drain drain;
};

/* The pipeline of that name, or NULL: the configuration's, else the one that was defined last; those before
 * it are found by their labels (NAME#2). */
struct pipeline *daemon_find_pipeline(const struct daemon *daemon, const char *name);

/* Ends it: closes sockets and jobs, and the loop runs dry when the last worker is gone. `reason` is logged
 * unless NULL. Harmless when it is ending already. Not to be called by a job that leaves. */
void daemon_stop(struct daemon *daemon, const char *reason);

/* Runs until a signal ends it, or, if it is private, until nobody needs it. `config` is taken over. Returns
 * the exit status: 0 after SIGTERM or when nobody needs it, 130 after SIGINT, 1 when it could not start (the
 * reason is logged, and told to the process that waits). */
int daemon_run(struct config *config, const char *directory, const struct daemon_options *options);
