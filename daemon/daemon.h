#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon as a whole: one loop, its sockets, pipelines and jobs. */

#include "base/list.h"
#include "daemon/budget.h"
#include "daemon/config.h"
#include "daemon/pipeline.h"
#include "daemon/quota.h"
#include "daemon/verify.h"
#include "proto/runtime.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct control;
struct fault;

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
};

/* Runs until a signal ends it. `config` is taken over. Returns the exit status: 0 after SIGTERM, 130 after
 * SIGINT, 1 when it could not start (the reason is logged). */
int daemon_run(struct config *config, const char *directory);
