#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How the ring of a job with a GPU is mapped, slot by slot, and who is told. Nothing, of a job without one.
 */

#include <stdbool.h>

struct message_attached;
struct pinfeed_batch;
struct pinfeed_job;

/* The job's current attachment has a ring now, with what the daemon's answer grants. 0; -ENOTSUP: not what
 * the caller requires. */
int mapping_begin(struct pinfeed_job *job, const struct message_attached *answer);

/* Page-locks the slots of a batch that is about to be handed out, where that is wanted. 0, or what
 * pinfeed_next says instead; it may be tried again. */
int mapping_prepare(struct pinfeed_job *job, struct pinfeed_batch *batch);

/* Whether the daemon is to be told what has become of the mapping; tells it, if the socket has room. */
bool mapping_is_news(const struct pinfeed_job *job);
void mapping_tell(struct pinfeed_job *job);
