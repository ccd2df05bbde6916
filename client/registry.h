#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The living jobs of this process: whose a batch is, and whether we are a fork's child. */

#include <stdbool.h>

struct attachment;
struct pinfeed_batch;
struct pinfeed_job;

/* Enters a job; from now on its batches are found. 0 or a negative errno. */
int registry_add(struct pinfeed_job *job);

/* Its batches are not found any more, once every call that had found one is over. */
void registry_hide(struct pinfeed_job *job);

/* Takes it out, and closes all descriptors that a fork's child must not have. */
void registry_remove(struct pinfeed_job *job);

/* Whether the job was opened by this process, and not by one that it was forked from. */
bool registry_is_ours(const struct pinfeed_job *job);

/* The attachment of a living job whose array `batch` points into, or NULL; `batch` itself is not touched. It
 * cannot go away until registry_put, which must follow in either case. */
struct attachment *registry_get(const struct pinfeed_batch *batch);
void registry_put(void);

/* From here to registry_put no attachment goes away, and no socket of one is closed or made: for releases
 * that need no look-up. */
void registry_read(void);

/* From here to registry_put no batch is looked up or released, and the process does not fork: for changes to
 * a job's attachments and their sockets. */
void registry_change(void);
