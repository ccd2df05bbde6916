/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Recall: chunks that wait in a worker behind a sample that hangs are taken back, without asking the worker,
 * for it cannot answer.
 *
 * What must never be is that two processes write one row. So a chunk may be given to somebody else only when
 * it is certain that this worker will not begin it. Two words of its page make that certain. Chunks have
 * ordinals; `begun` is the worker's, `recalled` ours:
 *
 *      worker, before chunk n                  daemon, to take back k and all after it
 *        W1  begun = n                           D1  recalled = k
 *        W2  load recalled                       D2  load begun
 *        declines n if recalled is               has them if begun < k, else
 *        not 0 and n >= recalled                 D3  recalled = 0
 *
 * All of these are sequentially consistent: there is one order of them that both sides see. Suppose D2 loads
 * begun < k. Then W1 of chunk k comes after D2 in that order, hence after D1, and so does its W2, which loads
 * k: the worker declines k, and in the same way every chunk after it, for we store nothing else before it has
 * answered for all of them. (With release and acquire alone both loads may pass both stores: the worker would
 * begin what we have given away.)
 *
 * Suppose D2 loads begun >= k. Then the worker went on just now, and has perhaps seen D1 and perhaps not. We
 * hold nothing against it: the chunks stay its own, D3 ends the recall, and a later look may begin another.
 * Those that it declines between D1 and D3 come back by its RETURNED, and only then are they taken from it.
 *
 * So at any time each chunk is either held by the worker, and it alone will answer for it with DONE, BROKEN
 * or RETURNED; or it was recalled, and all that is due is a RETURNED that changes nothing but our list. The
 * list is a queue and the answers come in its order, so that no answer can be lost or count twice. While one
 * is due `recalled` stands, and the worker gets no new chunk: its ordinal would be above k, and it would be
 * declined. After the last one `recalled` is 0 again before the next ASSIGN is sent, and the socket orders
 * the two. When the worker dies only what it holds is lost; the rest was given back already.
 *
 * A recall harms nobody. It is no verdict on the worker, which may merely have been stopped and then goes on
 * with what it has begun; so there is no need to be sure that it hangs. */

#include "daemon/pool.h"

#include "proto/worker-page.h"

uint64_t pool_first_ordinal(const struct pool_worker *worker) {
        return worker->given - worker->n_chunks - worker->n_recalled + 1;
}

/* The first ordinal that the worker has not begun. What it says is believed only within what it holds. */
static uint64_t first_not_begun(const struct pool_worker *worker) {
        uint64_t begun = atomic_load_explicit(&worker->page->begun, memory_order_acquire);
        uint64_t first = pool_first_ordinal(worker);

        return begun < first ? first : begun + 1;
}

/* D1 to D3. */
static bool forbid(struct worker_page *page, uint64_t ordinal) {
        atomic_store_explicit(&page->recalled, ordinal, memory_order_seq_cst);
        if (atomic_load_explicit(&page->begun, memory_order_seq_cst) < ordinal)
                return true;
        atomic_store_explicit(&page->recalled, 0, memory_order_seq_cst);
        return false;
}

bool pool_recall(struct pool_worker *worker) {
        struct pool *pool = worker->pool;
        uint64_t ordinal = first_not_begun(worker);

        /* A suspect stays with the worker that is alone with it: a trial is no queue. */
        if (worker->alone || worker->n_recalled > 0 || ordinal > worker->given)
                return false;
        worker->asked = worker->given;
        if (!forbid(worker->page, ordinal))
                return false;
        worker->n_recalled = (uint32_t)(worker->given - ordinal + 1);
        worker->n_chunks -= worker->n_recalled;
        pool->chunks_recalled += worker->n_recalled;
        pool->events->recalled(pool->context, worker->chunks + worker->n_chunks, worker->n_recalled);
        return true;
}
