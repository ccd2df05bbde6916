#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The byte pattern of the ramp: any byte of a row tells whether it belongs to this (sample, epoch, offset).
 */

#include <stdint.h>

/* Bytes 8k ... 8k+7 of a row are output k of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom
 * Number Generators", OOPSLA 2014), least significant byte first, started at ramp_state(sample, epoch).
 * Neighbouring samples and epochs share no run of bytes, and a word costs two multiplications. */
#define RAMP_GAMMA UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t ramp_mix(uint64_t z) {
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static inline uint64_t ramp_state(uint64_t sample, uint32_t epoch) {
        return ramp_mix(sample + RAMP_GAMMA * ((uint64_t)epoch + 1));
}

static inline uint64_t ramp_word(uint64_t state, uint64_t k) {
        return ramp_mix(state + RAMP_GAMMA * (k + 1));
}
