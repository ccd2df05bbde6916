#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The pipelines of a daemon: how they come, which of them a job means, and how they go. */

#include <stdbool.h>
#include <stdint.h>

struct config;
struct config_pipeline;
struct daemon;
struct fault;
struct job;
struct pipeline;

/* Events of every pipeline that may go before the daemon does. */
void roster_on_rested(void *context, struct pipeline *pipeline);
void roster_on_gone(void *context, struct pipeline *pipeline);

/* A pipeline that nobody knows yet: roster_add or roster_discard is due. 0 or -ENOMEM. */
int roster_make(struct daemon *daemon, struct config *whole, const struct config_pipeline *config,
                struct pipeline **pipeline, struct fault *fault);
/* There is room for it: see CONFIG_PIPELINES_MAX. Its label is its name, or NAME#2 where that is taken. */
void roster_add(struct daemon *daemon, struct pipeline *pipeline);
void roster_discard(struct pipeline *pipeline);

/* A reload has put another one in its place, or none: it goes on for its jobs, under a label NAME#2, and gets
 * no others. The second takes that back. */
void roster_supersede(struct daemon *daemon, struct pipeline *pipeline);
void roster_reinstate(struct daemon *daemon, struct pipeline *pipeline);

/* The superseded one that a rank of this job's group has come to, and the others have not yet; or NULL. */
struct pipeline *roster_find_group(const struct daemon *daemon, const struct job *job);

/* No job has it, nobody keeps it, and no thread is at work on it. */
bool roster_is_unused(const struct pipeline *pipeline);
/* Of one that is not the configuration's: nothing would be lost with it. */
bool roster_may_go(const struct pipeline *pipeline);

/* Takes it out; it is freed when it has ended. */
void roster_remove(struct daemon *daemon, uint32_t i);
/* Removes those that nobody can mean any more and nobody needs, except `meant` (NULL: none). */
void roster_sweep(struct daemon *daemon, const struct pipeline *meant);
