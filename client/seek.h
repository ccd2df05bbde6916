#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Sending an attached job elsewhere in its stream: SEEK and SOUGHT. */

#include <stdbool.h>

struct job_place;
struct message_sought;
struct pinfeed_job;

/* The job goes to `place`, now or when it is attached again. What is queued is dropped. */
void seek_begin(struct pinfeed_job *job, struct job_place place);

/* Whether what comes from the daemon is from before the job's journey. */
bool seek_is_under_way(const struct pinfeed_job *job);

/* Sends the SEEK that is due, unless the socket is full or one is under way already. */
void seek_send(struct pinfeed_job *job);

/* Takes the daemon's answer. 0, -EPROTO, or the error that ends the job. */
int seek_take_sought(struct pinfeed_job *job, const struct message_sought *sought);

/* The stream goes on at `place`: what comes next, and whether an epoch has ended before anything came. */
void seek_enter(struct pinfeed_job *job, struct job_place place);

/* With lookahead 0 the daemon waits at an epoch's end until it is asked for the next one: asks. */
void seek_next_epoch(struct pinfeed_job *job);

/* The daemon is gone; the next one is asked for the right place at once. */
void seek_forget(struct pinfeed_job *job);
