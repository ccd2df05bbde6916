#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a row of the ramp must hold, worked out anew and byte by byte, for those who only see the result. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Also for kernels of a GPU, see tests/gpu. */
#ifdef __CUDACC__
#define RAMP_CHECK static inline __host__ __device__
#else
#define RAMP_CHECK static inline
#endif

/* One step of SplitMix64's output function. */
RAMP_CHECK uint64_t ramp_check_scramble(uint64_t x) {
        x ^= x >> 30;
        x *= UINT64_C(13787848793156543929);
        x ^= x >> 27;
        x *= UINT64_C(10723151780598845931);
        x ^= x >> 31;
        return x;
}

/* Bytes 8n ... 8n+7 of the data of (sample, epoch), the first one the least significant. */
RAMP_CHECK uint64_t ramp_check_word(uint64_t sample, uint32_t epoch, uint64_t n) {
        const uint64_t step = UINT64_C(11400714819323198485);
        uint64_t start = ramp_check_scramble(sample + step * (epoch + UINT64_C(1)));

        return ramp_check_scramble(start + step * (n + 1));
}

/* The byte at `offset` of the data of (sample, epoch). */
static inline uint8_t ramp_check_byte(uint64_t sample, uint32_t epoch, uint64_t offset) {
        return (uint8_t)(ramp_check_word(sample, epoch, offset / 8) >> (8 * (offset % 8)));
}

/* Whether `size` bytes are those of (sample, epoch); *offset is the first that is not. */
static inline bool ramp_check(const void *data, size_t size, uint64_t sample, uint32_t epoch,
                              size_t *offset) {
        for (size_t i = 0; i < size; i++)
                if (((const uint8_t *)data)[i] != ramp_check_byte(sample, epoch, i)) {
                        if (offset)
                                *offset = i;
                        return false;
                }
        return true;
}
