#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the daemon tells the service manager in the course of its life. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct daemon;

struct announcer {
        uv_timer_t beating;
        bool ready;
        uint64_t reserved; /* bytes, at the last look during a start */
        uint64_t rows;     /* delivered, at the last look after it */
        uint64_t looked_ns;
};

/* The loop is there: it beats from now on, if the manager wants that. */
void announce_start(struct daemon *daemon);

/* What `reserve: start` asked for is there. */
void announce_ready(struct daemon *daemon);

/* The status line. To be called about once a second; does nothing where nobody is told. */
void announce_state(struct daemon *daemon);

/* The end begins. */
void announce_stop(struct daemon *daemon);
