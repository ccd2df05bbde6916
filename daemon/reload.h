#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Another configuration for a daemon that runs. */

#include "base/fault.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct config;
struct daemon;

enum {
        RELOAD_TELL_MS = 1000, /* between two lines to those who wait for the end of one */
};

/* One for each daemon, and at most one reload at a time. */
struct reload {
        struct daemon *daemon;
        uint64_t generation; /* of the configuration in force; 1: the one that it was started with */
        bool running;
        bool wanted;          /* another one, after that, or once the daemon is ready */
        uint64_t turn;        /* of the last one that began */
        uint64_t last_ns;     /* when one ended; 0: never */
        struct fault failure; /* of the last one; its text is empty if there was none */
        uv_timer_t telling;
        /* the thread's while it is running */
        uv_work_t work;
        struct config *config;
        struct fault fault;
        uint32_t cpus; /* what affinity and cgroup allow now */
        int result;
};

void reload_init(struct reload *reload, struct daemon *daemon);
/* Reads the file as it is from now on. *turn: of the reload that does. 0, or -ENOENT: there is no file. */
int reload_ask(struct reload *reload, uint64_t *turn, struct fault *fault);
/* The daemon is ready: one that was asked for before begins. */
void reload_on_ready(struct reload *reload);
void reload_stop(struct reload *reload);
