/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A batch that becomes a torch tensor is copied once, and fresh memory would make that several times as
 * expensive: the kernel has to find, clear and map each page. So a block comes back here when the last view
 * of its tensor dies, and the next batch is copied into pages that are there.
 *
 *   - Who gives a block back is torch: in any thread, holding the interpreter or not, at the end of the
 * process, in a fork's child. So nothing here knows Python, and a lock that is taken is not waited for (in a
 * fork's child it may be taken for ever): a block that cannot be put back or found at once is freed, or made
 * anew.
 *   - As many blocks are in use as the user keeps tensors. POOL_SPARE_MAX more are kept for the next ones;
 * who kept an epoch of batches in a list and drops it gets his memory back.
 *   - A pool lives as long as its blocks: each holds it, and so does the job that made it. */

#include "client/python/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
        POOL_ALIGN = 4096,
        POOL_ALIGN_SMALL = 64, /* blocks under a page: labels, of which users keep many */
        POOL_SPARE_MAX = 16,
};

struct pool {
        _Atomic uint32_t references;
        pthread_mutex_t lock; /* of all below */
        struct block *spare;
        uint32_t n_spare;
        bool closed;
        size_t block_bytes; /* a multiple of align */
        size_t align;
};

static void pool_unref(struct pool *pool) {
        if (atomic_fetch_sub_explicit(&pool->references, 1, memory_order_acq_rel) != 1)
                return;
        pthread_mutex_destroy(&pool->lock);
        free(pool);
}

struct pool *pool_new(size_t block_bytes) {
        struct pool *pool = calloc(1, sizeof(*pool));

        if (!pool)
                return NULL;
        pool->references = 1;
        pthread_mutex_init(&pool->lock, NULL);
        pool->align = block_bytes < POOL_ALIGN ? POOL_ALIGN_SMALL : POOL_ALIGN;
        pool->block_bytes = (block_bytes + pool->align - 1) / pool->align * pool->align;
        return pool;
}

static void block_free(struct block *block) {
        free(block->data);
        free(block);
}

struct pool *pool_free(struct pool *pool) {
        struct block *spare;

        if (!pool)
                return NULL;
        pthread_mutex_lock(&pool->lock);
        pool->closed = true;
        spare = pool->spare;
        pool->spare = NULL;
        pthread_mutex_unlock(&pool->lock);
        while (spare) {
                struct block *next = spare->next;

                block_free(spare);
                spare = next;
        }
        pool_unref(pool);
        return NULL;
}

/* The end of a block's use. */
static void give_back(struct storage *storage) {
        struct block *block = (struct block *)storage;
        struct pool *pool = block->pool;
        bool kept = false;

        if (pthread_mutex_trylock(&pool->lock) == 0) {
                kept = !pool->closed && pool->n_spare < POOL_SPARE_MAX;
                if (kept) {
                        block->next = pool->spare;
                        pool->spare = block;
                        pool->n_spare++;
                }
                pthread_mutex_unlock(&pool->lock);
        }
        if (!kept)
                block_free(block);
        pool_unref(pool);
}

static struct block *take_spare(struct pool *pool) {
        struct block *block;

        if (pthread_mutex_trylock(&pool->lock) != 0)
                return NULL;
        block = pool->spare;
        if (block) {
                pool->spare = block->next;
                pool->n_spare--;
        }
        pthread_mutex_unlock(&pool->lock);
        return block;
}

static struct block *block_new(struct pool *pool) {
        struct block *block = calloc(1, sizeof(*block));

        if (!block)
                return NULL;
        block->storage.end = give_back;
        block->pool = pool;
        block->data = aligned_alloc(pool->align, pool->block_bytes ? pool->block_bytes : pool->align);
        if (block->data)
                return block;
        free(block);
        return NULL;
}

struct block *pool_take(struct pool *pool) {
        struct block *block = take_spare(pool);

        if (!block)
                block = block_new(pool);
        if (!block)
                return NULL;
        atomic_store_explicit(&block->storage.references, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->references, 1, memory_order_relaxed);
        return block;
}
