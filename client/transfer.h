#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* From the ring to a GPU. Of a job without one none of these does anything. */

#include <stdbool.h>

struct pinfeed_attach;
struct pinfeed_job;

/* Finds the device that the caller asks for, and decides what to ask the daemon for. 0 or a negative errno.
 */
int transfer_open(struct pinfeed_job *job, const struct pinfeed_attach *attach);

/* Waits for all copies and undoes everything on the device. Nobody can find the job any more. */
void transfer_close(struct pinfeed_job *job);

/* What is to be done and to be said in each call on the job. 0 or a negative errno. */
int transfer_turn(struct pinfeed_job *job);

/* Whether that is to be called every now and then, although nothing comes from the daemon. */
bool transfer_needs_turns(const struct pinfeed_job *job);
