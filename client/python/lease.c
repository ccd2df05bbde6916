/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays may lie in a slot of the ring itself. Such an array holds the lease of its batch, and the lease
 * holds the job, since closing a job unmaps the ring: a loader that is closed while arrays of it are in use
 * leaves when the last of them does. That may be any thread, without the interpreter; pinfeed_batch_release
 * allows it, and pinfeed_close too, for by then nobody else knows the job. */

#include "client/python/lease.h"

#include "client/python/pool.h"

#include <errno.h>
#include <stdlib.h>

static void session_free(struct session *session) {
        pinfeed_close(session->job);
        for (uint32_t i = 0; session->pools && i < session->n_fields + 2; i++)
                pool_free(session->pools[i]);
        free(session->pools);
        free(session->fields);
        free(session);
}

struct session *session_unref(struct session *session) {
        if (session && atomic_fetch_sub_explicit(&session->references, 1, memory_order_acq_rel) == 1)
                session_free(session);
        return NULL;
}

bool session_is_ours(const struct session *session) {
        return pinfeed_fd(session->job) != -ECHILD;
}

/* False: out of memory. */
static bool make_pools(struct session *session) {
        uint32_t n = session->n_fields;

        session->fields = calloc(n, sizeof(*session->fields));
        session->pools = calloc(n + 2, sizeof(struct pool *));
        if (!session->fields || !session->pools)
                return false;
        for (uint32_t i = 0; i < n + 2; i++) {
                size_t row_bytes = i == n ? sizeof(int64_t) : sizeof(uint8_t);

                if (i < n) {
                        pinfeed_job_field(session->job, i, &session->fields[i]);
                        row_bytes = session->fields[i].row_bytes;
                }
                session->pools[i] = pool_new(row_bytes * session->batch_size);
                if (!session->pools[i])
                        return false;
        }
        return true;
}

struct session *session_new(struct pinfeed_job *job) {
        struct session *session = calloc(1, sizeof(*session));
        struct pinfeed_info info;

        if (!session) {
                pinfeed_close(job);
                return NULL;
        }
        pinfeed_job_info(job, &info);
        session->references = 1;
        session->job = job;
        session->n_fields = info.n_fields;
        session->batch_size = info.batch_size;
        return make_pools(session) ? session : session_unref(session);
}

/* Nobody is there to be told of a daemon that has gone. The struct may soon be another batch. */
void lease_release(struct lease *lease) {
        if (lease->batch)
                (void)pinfeed_batch_release(lease->batch);
        lease->batch = NULL;
}

static void lease_end(struct storage *storage) {
        struct lease *lease = (struct lease *)storage;

        lease_release(lease);
        session_unref(lease->session);
        free(lease);
}

static uint32_t count_replaced(const struct pinfeed_batch *batch) {
        uint32_t replaced = 0, rows;

        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++) {
                const uint8_t *flags = pinfeed_batch_flags(batch, i, &rows);

                for (uint32_t row = 0; row < rows; row++)
                        replaced += flags[row] == PINFEED_ROW_REPLACED;
        }
        return replaced;
}

struct lease *lease_new(struct session *session, struct pinfeed_batch *batch) {
        struct lease *lease = calloc(1, sizeof(*lease));

        if (!lease) {
                pinfeed_batch_release(batch);
                return NULL;
        }
        lease->storage.references = 1;
        lease->storage.end = lease_end;
        lease->session = session;
        lease->batch = batch;
        lease->rows = pinfeed_batch_rows(batch);
        lease->replaced = count_replaced(batch);
        lease->epoch = pinfeed_batch_epoch(batch);
        lease->row = pinfeed_batch_row(batch);
        atomic_fetch_add_explicit(&session->references, 1, memory_order_relaxed);
        return lease;
}
