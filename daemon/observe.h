#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Looks at pipelines and jobs once a second, and says what they did over the last seconds. */

#include "daemon/diagnosis.h"

#include <stdint.h>

struct daemon;
struct job;
struct pipeline;

enum {
        OBSERVE_MS = 1000,
};

/* Shares of `seconds`, the time that is told of; all 0 for a job that is not attached. */
struct observed_job {
        double seconds;
        double rows_per_second;
        double waited, empty, data_waited; /* see struct scheduler_account */
        double waited_for_jobs, empty_for_jobs;
};

struct observed_pipeline {
        double seconds;
        double prepared_per_second, delivered_per_second;
        double busy; /* workers, on average */
        struct diagnosis diagnosis;
};

/* To be called every OBSERVE_MS. */
void observe_all(const struct daemon *daemon);

void observe_job(struct observed_job *observed, const struct job *job, uint64_t now);
void observe_pipeline(struct observed_pipeline *observed, const struct daemon *daemon,
                      const struct pipeline *pipeline, uint64_t now);
