#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job and its batches, as long as anything of them is in use. */

#include "client/pinfeed.h"
#include "client/python/storage.h"

#include <stdbool.h>

struct pool;

struct session {
        _Atomic uint32_t references;
        struct pinfeed_job *job;
        bool busy; /* some thread is in the library with the job; the interpreter's lock guards it */
        uint32_t n_fields;
        uint32_t batch_size;
        struct pinfeed_field *fields;
        struct pool **pools; /* of each field, of the sample numbers, of the flags */
};

/* A batch that is held, and what is told of it also when it is no more. */
struct lease {
        struct storage storage;
        struct session *session;
        struct pinfeed_batch *batch; /* NULL: it was released before its lease ended */
        uint32_t rows;
        uint32_t replaced; /* of these */
        uint32_t epoch;
        uint64_t row;
};

/* Takes over an open job, also when it fails: then it is closed. NULL: out of memory. */
struct session *session_new(struct pinfeed_job *job);

/* Returns NULL. The last one closes the job, and so waits for the copies to its GPU. */
struct session *session_unref(struct session *session);

/* False in a fork's child, where nothing may be done with the job. */
bool session_is_ours(const struct session *session);

/* Takes over a batch of the session, also when it fails: then it is released. NULL: out of memory. */
struct lease *lease_new(struct session *session, struct pinfeed_batch *batch);

/* Releases the batch, in which no array may lie. What is copied to a GPU is so all the same. */
void lease_release(struct lease *lease);
