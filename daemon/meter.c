/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A turn is measured from the moment before the loop waits to the next such moment, less what it waited in
 * between, which libuv knows. Timers, records and everything else that a turn does is in it; so is the time
 * that the process was ready to run and had no processor, which a job that waits for an answer feels as
 * well. The cost is three looks at the clock a turn. */

#include "daemon/meter.h"

#include "base/clock.h"

const uint64_t meter_bounds[METER_BOUNDS] = {
        100 * 1000,       250 * 1000,        1000 * 1000,       2500 * 1000,           10 * 1000 * 1000,
        25 * 1000 * 1000, 100 * 1000 * 1000, 250 * 1000 * 1000, 1000ull * 1000 * 1000, 10000ull * 1000 * 1000,
};

static void on_prepare(uv_prepare_t *prepare) {
        struct meter *meter = prepare->data;
        uint64_t now = clock_ns(), idle = uv_metrics_idle_time(prepare->loop), passed = now - meter->began_ns,
                 waited = idle - meter->idle_ns, took = passed > waited ? passed - waited : 0;
        unsigned i = 0;

        while (i < METER_BOUNDS && took > meter_bounds[i])
                i++;
        meter->turns[i]++;
        meter->turns_ns += took;
        if (took > meter->longest_ns)
                meter->longest_ns = took;
        meter->began_ns = now;
        meter->idle_ns = idle;
}

void meter_start(struct meter *meter, uv_loop_t *loop) {
        *meter = (struct meter){.began_ns = clock_ns()};
        uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
        uv_prepare_init(loop, &meter->prepare);
        meter->prepare.data = meter;
        uv_prepare_start(&meter->prepare, on_prepare);
        uv_unref((uv_handle_t *)&meter->prepare);
}

void meter_stop(struct meter *meter) {
        uv_close((uv_handle_t *)&meter->prepare, NULL);
}

void meter_count_scrapes(struct meter *meter, unsigned scrapes, uint64_t began_ns) {
        meter->scrapes += scrapes;
        meter->scrape_ns += clock_ns() - began_ns;
}
