#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How a job comes to a daemon, loses it, and finds the next one. */

#include <stdbool.h>
#include <stdint.h>

struct pinfeed_job;

/* Does what can be done without waiting: tries to connect, goes on with the talk, or tells and takes in what
 * there is; all of it, or no more than brings a batch, which saves asking the kernel once more when batches
 * come one by one. 0, or the error that has ended the job. */
int link_advance(struct pinfeed_job *job, bool all);

/* What link_advance says of a job that has ended: its error, and its words again, whatever calls on the job
 * have said since. */
int link_say_end(struct pinfeed_job *job);

/* Waits until link_advance may have something to do: 1; 0 when the deadline has passed; or a negative errno.
 * Shows progress meanwhile. */
int link_wait(struct pinfeed_job *job, uint64_t deadline_ns);
