#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The table of counters, and what they stand at. */

#include "daemon/counter-table.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct daemon;
struct footprint;
struct job;
struct pipeline;
struct pool_worker;

enum counter_type {
        COUNTER_TOTAL,
        COUNTER_GAUGE,
        COUNTER_HISTOGRAM,
};

enum counter_unit {
        COUNTER_PLAIN,
        COUNTER_BYTES,
        COUNTER_NS,
};

/* A line of counter-table.h, which says what they mean. */
struct counter {
        const char *member;
        const char *metric;
        const char *label, *value;
        enum counter_type type;
        enum counter_unit unit;
        const char *help;
};

#define C(...) +1
enum {
        COUNTERS_OF_DAEMON = DAEMON_COUNTERS(C),
        COUNTERS_OF_PIPELINE = PIPELINE_COUNTERS(C),
        COUNTERS_OF_WORKER = WORKER_COUNTERS(C),
        COUNTERS_OF_JOB = JOB_COUNTERS(C),
};
#undef C

enum counter_special {
#define C(NAME, ...) COUNTER_##NAME,
        SPECIAL_COUNTERS(C)
#undef C
        COUNTERS_SPECIAL,
};

extern const struct counter counters_of_daemon[COUNTERS_OF_DAEMON];
extern const struct counter counters_of_pipeline[COUNTERS_OF_PIPELINE];
extern const struct counter counters_of_worker[COUNTERS_OF_WORKER];
extern const struct counter counters_of_job[COUNTERS_OF_JOB];
extern const struct counter counters_special[COUNTERS_SPECIAL];

const char *counter_type_name(enum counter_type type);

/* Of a daemon without `footprint` (NULL) what that would tell is 0. */
void counters_read_daemon(uint64_t values[COUNTERS_OF_DAEMON], const struct daemon *daemon,
                          const struct footprint *footprint);
void counters_read_pipeline(uint64_t values[COUNTERS_OF_PIPELINE], const struct pipeline *pipeline);
void counters_read_worker(uint64_t values[COUNTERS_OF_WORKER], struct pool_worker *worker);
void counters_read_job(uint64_t values[COUNTERS_OF_JOB], const struct job *job);

/* Those that have a member, put into `object`. */
void counters_to_json(json_t *object, const struct counter *counters, const uint64_t *values, size_t n);

/* The table as Markdown, for `pinfeedd --help-metrics`. */
void counters_print(FILE *out);
