#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a daemon that lets its jobs finish. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct daemon;
struct job;

enum {
        DRAIN_TELL_MS = 500, /* between two lines to those who wait for it */
        DRAIN_EXTEND_S = 10, /* what a service manager grants each time, above the time between two lines */
};

struct drain {
        struct daemon *daemon;
        bool is_on;
        bool by_signal;    /* another one ends it */
        uint64_t until_ns; /* UINT64_MAX: as long as it takes */
        uv_timer_t tick;
};

void drain_init(struct drain *drain, struct daemon *daemon);
/* From now on no job is let in, and the daemon stops with the last one of those there are, or after so many
 * seconds (0: however long that takes). Whoever asks again sets another time. */
void drain_begin(struct drain *drain, double seconds, const char *reason);
/* SIGTERM. False: there is nothing to wait for, or it has come twice. */
bool drain_on_signal(struct drain *drain);
/* Of a job that asks to be let in: it is refused if a drain is on. */
bool drain_refuses(const struct drain *drain, struct job *job);
/* Whether whoever connects is to be left to the next daemon. */
bool drain_keeps_out(const struct drain *drain);
/* A job is gone. */
void drain_note(struct drain *drain);
void drain_stop(struct drain *drain);
uint32_t drain_jobs(const struct daemon *daemon); /* that are attached */
