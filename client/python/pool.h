#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Blocks of one size for copies, used again and again. */

#include "client/python/storage.h"

#include <stddef.h>

struct pool;

struct block {
        struct storage storage;
        struct pool *pool;
        struct block *next; /* in the pool's list */
        void *data;
};

/* NULL: out of memory. */
struct pool *pool_new(size_t block_bytes);

/* Takes no further blocks back but frees them, and itself with the last one. NULL is fine. Returns NULL. */
struct pool *pool_free(struct pool *pool);

/* A block with one reference; storage_unref gives it back, from any thread. NULL: out of memory. */
struct block *pool_take(struct pool *pool);
