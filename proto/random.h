#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Counter-based random numbers: Philox4x32-10, the same for every worker, machine and order of calls. */

#include <stdint.h>

/* What a draw is for; each has numbers of its own. The values are part of the bits (never renumber). */
enum random_domain {
        RANDOM_TRANSFORM = 0,
        RANDOM_SUBSTITUTE = 1,
        RANDOM_USER = 2,
        RANDOM_ORDER = 3, /* round keys of proto/order; sample is 0 */
};

/* One stream of numbers. The counter of block k is sample (48 bits) . epoch (32) . domain (8) . step (16) . k
 * (24), from the most significant bit down; the key is the seed. */
struct random {
        uint32_t counter[4]; /* counter[0] is the least significant word */
        uint32_t key[2];
        uint32_t block[4];
        uint32_t used; /* words of `block` already given out; 4: a new block is due */
};

/* The bare function of Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3" (SC11), 10
 * rounds. */
void random_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Starts the stream of (seed, sample, epoch, domain, step) at its block 0. `sample` < 2^48. */
void random_init(struct random *random, uint64_t seed, uint64_t sample, uint32_t epoch,
                 enum random_domain domain, uint16_t step);

uint32_t random_u32(struct random *random);

/* Uniform in [0, 1): 53 bits, of two words, high word first. */
double random_unit(struct random *random);

/* Uniform in [0, bound), without bias (rejection); bound >= 1. */
uint32_t random_below(struct random *random, uint32_t bound);

/* The same for any bound: numbers of 64 bits, high word first, cut to the bits that bound - 1 needs; the
 * first one below the bound. */
uint64_t random_below_u64(struct random *random, uint64_t bound);

/* exp(x) and log(x) in plain IEEE double operations, the same bits on every CPU (glibc's differ with and
 * without FMA). exp: |x| <= 700; log: x > 0 and normal. Error below 2 ulp. */
double random_exp(double x);
double random_log(double x);
