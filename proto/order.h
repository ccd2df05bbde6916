#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The order of an epoch: a keyed permutation of 0 ... N-1, evaluated at any position in O(1). */

#include <stdint.h>

enum {
        ORDER_ROUNDS = 12,
        ORDER_TABLE_MAX = 96, /* up to so many samples the order is a table, in the bytes of the round keys */
};

struct order {
        uint64_t samples; /* N, at least 1, at most 2^48 */
        /* the rest is derived and belongs to order.c */
        uint32_t left, right;
        union {
                uint64_t keys[ORDER_ROUNDS];
                uint8_t table[ORDER_TABLE_MAX];
        };
};

_Static_assert(ORDER_TABLE_MAX == ORDER_ROUNDS * sizeof(uint64_t), "the table costs nothing");

/* Prepares the order of one epoch of one seed. No memory is taken; the struct may be copied. */
void order_init(struct order *order, uint64_t samples, uint64_t seed, uint32_t epoch);

/* The sample that stands at `row` (< samples). A bijection of [0, samples). */
uint64_t order_sample(const struct order *order, uint64_t row);
