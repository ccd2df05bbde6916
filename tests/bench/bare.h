#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the bare loops share: a worker's heap, and the figures that they print. */

#include "base/clock.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

struct bare_meter {
        uint64_t begin;
        double cpu;
};

static inline double bare_cpu_seconds(void) {
        struct timespec used;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* As the worker's session does: what comes and goes with each sample never leaves the heap. */
static inline void bare_keep_memory(void) {
        mallopt(M_MMAP_MAX, 0);
        mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

static inline void bare_meter_start(struct bare_meter *meter) {
        meter->cpu = bare_cpu_seconds();
        meter->begin = clock_ns();
}

/* A line of JSON. */
static inline void bare_meter_print(const struct bare_meter *meter, uint64_t rows) {
        double seconds = (double)(clock_ns() - meter->begin) / 1e9, cpu = bare_cpu_seconds() - meter->cpu;

        printf("{\"rows\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"rows_per_second\": %.3f, "
               "\"cpu_us_per_row\": %.3f}\n",
               (unsigned long long)rows, seconds, cpu, (double)rows / seconds, cpu / (double)rows * 1e6);
}
