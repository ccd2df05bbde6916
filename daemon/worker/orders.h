#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The orders of epochs that a job has given: a worker's view of the files that ORDER brought. */

#include <stdint.h>

struct fault;

enum {
        ORDERS_KEPT = 4, /* the daemon keeps as many of each stream */
};

struct given_order {
        uint64_t seed;
        uint32_t epoch;
        uint64_t entries;
        const int64_t *entry; /* read-only; NULL: nothing here */
};

/* Starts zeroed. */
struct orders {
        struct given_order kept[ORDERS_KEPT];
        unsigned next; /* where the next one goes: the place of the oldest */
};

void orders_deinit(struct orders *orders);

/* Maps `entries` numbers of the sealed file, which stays the caller's, as the order of (seed, epoch). The
 * oldest of too many is forgotten. 0 or a negative errno. */
int orders_add(struct orders *orders, uint64_t seed, uint32_t epoch, uint64_t entries, int fd,
               struct fault *fault);

/* NULL: none was given, or it is forgotten. */
const struct given_order *orders_find(const struct orders *orders, uint64_t seed, uint32_t epoch);

/* Whether entry r is the sample at row r. An order of batches has more entries than the epoch has rows: they
 * begin with a place for each row and one more. `order` may be NULL. */
static inline int order_names_samples(const struct given_order *order, uint64_t rows) {
        return order && order->entries == rows;
}
