#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How long a private daemon stays when nobody needs it. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum {
        LINGER_DEFAULT_S = 60,
        LINGER_MAX_S = 31536000, /* a year */
};

struct lingering {
        uv_timer_t timer;
        uint64_t linger_ns;
        uint64_t needed_ns;            /* when somebody was last known to need it */
        bool (*is_needed)(void *data); /* now; may let in whoever waits */
        void (*over)(void *data);
        void *data;
};

/* Counts from now on, and calls `over` once when nobody has needed the daemon for `linger_s`. */
void linger_start(struct lingering *linger, uv_loop_t *loop, uint64_t linger_s, bool (*is_needed)(void *data),
                  void (*over)(void *data), void *data);

/* Somebody needs it now, or did until now. */
void linger_note(struct lingering *linger);

/* Harmless where it was not started. */
void linger_stop(struct lingering *linger);
