#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How long the turns of the loop take, and what metrics cost it. */

#include <stdint.h>
#include <uv.h>

enum {
        METER_BOUNDS = 10,
};

struct meter {
        uv_prepare_t prepare;
        uint64_t began_ns, idle_ns; /* this turn, and what was waited before it */
        uint64_t turns_ns;          /* of all turns, without waiting */
        uint64_t turns[METER_BOUNDS + 1];
        uint64_t longest_ns;
        uint64_t scrapes, scrape_ns;
};

/* Upper bounds of `turns`, in nanoseconds; the last of those has none. */
extern const uint64_t meter_bounds[METER_BOUNDS];

/* Before the loop runs for the first time. It does not keep the loop running. */
void meter_start(struct meter *meter, uv_loop_t *loop);
void meter_stop(struct meter *meter);

/* The metrics were asked for so often (0: only what came before, or after, an answer), and that has taken
 * from `began_ns` until now. */
void meter_count_scrapes(struct meter *meter, unsigned scrapes, uint64_t began_ns);
