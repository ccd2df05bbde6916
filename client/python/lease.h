#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job and its batches, as long as anything of them is in use. */

#include "client/pinfeed.h"
#include "client/python/storage.h"

struct pool;

struct session {
        _Atomic uint32_t references;
        struct pinfeed_job *job;
        uint32_t n_fields;
        uint32_t batch_size;
        struct pinfeed_field *fields;
        struct pool **pools; /* of each field, of the sample numbers, of the flags */
};

/* A batch that is held. */
struct lease {
        struct storage storage;
        struct session *session;
        struct pinfeed_batch *batch;
};

/* Takes over an open job, also when it fails: then it is closed. NULL: out of memory. */
struct session *session_new(struct pinfeed_job *job);

/* Returns NULL. The last one closes the job. */
struct session *session_unref(struct session *session);

/* Takes over a batch of the session, also when it fails: then it is released. NULL: out of memory. */
struct lease *lease_new(struct session *session, struct pinfeed_batch *batch);
