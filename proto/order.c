/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The order of an epoch is a function, not a list: row -> sample, at any row, from a key of (seed, epoch). A
 * billion samples cost what a hundred cost, and nobody has to replay an epoch to go on in its middle.
 *
 * Large N: a generalised Feistel network with cycle walking (Black, Rogaway, "Ciphers with Arbitrary Finite
 * Domains", CT-RSA 2002). A row is written as (l, r) with l < L and r < R, where L is sqrt(N) rounded up and
 * R is just large enough that L R >= N. Rounds add a keyed function of one half to the other, modulo L or R;
 * each can be undone, so together they permute [0, L R). A result beyond N is put in again until it is not. L
 * R < N + L, so that happens to one row in sqrt(N) at most, where the usual halves of whole bits would walk
 * up to four times.
 *
 * How many rounds: two rows that share r keep their distance in l until a round moves their r apart, which
 * fails with probability 1/R each time; what is left of that after 12 rounds is R^-5, below 10^-5 for the
 * smallest R, 10, against a chance of 10^-2 for the same by pure luck. The round function is the finaliser of
 * SplitMix64 (Steele, Lea, Flood, OOPSLA 2014; constants by Stafford) on half plus key: not a cipher, nobody
 * attacks the order of his own epoch.
 *
 * Small N: there such a network is visibly poor (odd L and R, for one, give even permutations only), and N!
 * is small enough that a test notices. Up to ORDER_TABLE_MAX samples the whole order is drawn by Fisher and
 * Yates' shuffle (Knuth, TAOCP 2, 3.4.2 P), exactly uniform, and kept in the bytes that would hold the round
 * keys. */

#include "proto/order.h"

#include "proto/random.h"

static void init_table(struct order *order, struct random *random) {
        for (uint32_t i = 0; i < order->samples; i++)
                order->table[i] = (uint8_t)i;
        for (uint32_t i = (uint32_t)order->samples - 1; i > 0; i--) {
                uint32_t j = random_below(random, i + 1);
                uint8_t other = order->table[j];

                order->table[j] = order->table[i];
                order->table[i] = other;
        }
}

/* The least number whose square is at least n; n <= 2^48. */
static uint32_t root_up(uint64_t n) {
        uint64_t root = 0;

        for (uint64_t bit = UINT64_C(1) << 24; bit > 0; bit >>= 1)
                if ((root + bit) * (root + bit) < n)
                        root += bit;
        return (uint32_t)root + 1;
}

static void init_network(struct order *order, struct random *random) {
        order->left = root_up(order->samples);
        order->right = (uint32_t)((order->samples + order->left - 1) / order->left);
        for (int i = 0; i < ORDER_ROUNDS; i++) {
                uint64_t high = random_u32(random);

                order->keys[i] = high << 32 | random_u32(random);
        }
}

void order_init(struct order *order, uint64_t samples, uint64_t seed, uint32_t epoch) {
        struct random random;

        *order = (struct order){.samples = samples};
        random_init(&random, seed, 0, epoch, RANDOM_ORDER, 0);
        if (samples <= ORDER_TABLE_MAX)
                init_table(order, &random);
        else
                init_network(order, &random);
}

/* A number below `bound`, as good as random, of half and key. */
static inline uint32_t round_value(uint32_t half, uint64_t key, uint32_t bound) {
        uint64_t x = half + key;

        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        x ^= x >> 31;
        return (uint32_t)((unsigned __int128)x * bound >> 64);
}

static inline uint32_t add_modulo(uint32_t a, uint32_t b, uint32_t bound) {
        uint32_t sum = a + b;

        return sum >= bound ? sum - bound : sum;
}

static uint64_t permute(const struct order *order, uint64_t row) {
        uint32_t l = (uint32_t)(row / order->right), r = (uint32_t)(row % order->right);

        for (int i = 0; i < ORDER_ROUNDS; i += 2) {
                l = add_modulo(l, round_value(r, order->keys[i], order->left), order->left);
                r = add_modulo(r, round_value(l, order->keys[i + 1], order->right), order->right);
        }
        return (uint64_t)l * order->right + r;
}

uint64_t order_sample(const struct order *order, uint64_t row) {
        if (order->samples <= ORDER_TABLE_MAX)
                return order->table[row];
        do
                row = permute(order, row);
        while (row >= order->samples);
        return row;
}
