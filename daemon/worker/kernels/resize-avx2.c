/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The passes of the resize with AVX2, same bits as resize-c.c.
 *
 * A weight has 23 bits and a sign, too many for the one instruction that multiplies and adds in pairs (16 x
 * 16 bits, two products into 32). So each is split into weight = high * 256 + low with 0 <= low <= 255; both
 * halves fit 16 bits and go through it separately, and (sum of highs << 8) + sum of lows is the sum of the C
 * version, modulo 2^32 and so exactly. Pairs are two inputs of one output: neighbouring pixels, or the same
 * byte of two rows.
 *
 * Horizontal: the plan has the weights split already. Four rows at a time, two in each register (one in each
 * half); resize-x86.h walks over them. Four pixels (12 bytes) are taken from a load of 16. Vertical: 32 bytes
 * of the row at a time; what is left over is C's.
 */

#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/resize-x86.h"

#include <immintrin.h>
#include <string.h>

enum {
        HALF = 1 << (RESIZE_PRECISION - 1),
        STEP = 32, /* bytes of a row, vertically */
};

/* A group's weights 0 and 1, 2 and 3, in every 32 bits. */
struct split {
        __m256i high01, high23, low01, low23;
};

static inline __m256i repeated(const int16_t pair[2]) {
        int32_t both;

        memcpy(&both, pair, sizeof(both));
        return _mm256_set1_epi32(both);
}

static inline struct split load_weights(const int16_t halves[2 * RESIZE_GROUP]) {
        return (struct split){repeated(halves), repeated(halves + 2), repeated(halves + 4),
                              repeated(halves + 6)};
}

struct sums {
        __m256i high, low;
};

/* Four pixels of two rows, each channel's two and two as neighbours, times their weights. */
static inline void add_pixels(struct sums *sums, const struct split *split, const uint8_t *a,
                              const uint8_t *b) {
        const __m256i pick01 = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /**/
                                                0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
        const __m256i pick23 =
                _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1, /**/
                                 6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
        __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                                _mm_loadu_si128((const __m128i *)b), 1);
        __m256i p01 = _mm256_shuffle_epi8(bytes, pick01), p23 = _mm256_shuffle_epi8(bytes, pick23);

        sums->high = _mm256_add_epi32(sums->high, _mm256_add_epi32(_mm256_madd_epi16(p01, split->high01),
                                                                   _mm256_madd_epi16(p23, split->high23)));
        sums->low = _mm256_add_epi32(sums->low, _mm256_add_epi32(_mm256_madd_epi16(p01, split->low01),
                                                                 _mm256_madd_epi16(p23, split->low23)));
}

/* Sums to values that still have to be clipped. */
static inline __m256i shifted(const struct sums *sums) {
        return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(sums->high, 8), sums->low),
                                 RESIZE_PRECISION);
}

static inline void horizontal_output(const struct resize_axis *axis, uint32_t i,
                                     uint8_t *const to[RESIZE_ROWS], const uint8_t *const from[RESIZE_ROWS],
                                     uint32_t groups) {
        const struct sums start = {_mm256_setzero_si256(), _mm256_set1_epi32(HALF)};
        const int16_t *halves = axis->halves + 2 * (size_t)i * axis->taps;
        size_t at = (size_t)axis->first[i] * RESIZE_BYTES, place = (size_t)i * RESIZE_BYTES;
        struct sums ab = start, cd = start;
        int last = i + 1 == axis->outputs;
        __m256i bytes;

        for (uint32_t g = 0; g < groups; g++, at += RESIZE_GROUP * RESIZE_BYTES, halves += 2 * RESIZE_GROUP) {
                struct split split = load_weights(halves);

                add_pixels(&ab, &split, from[0] + at, from[1] + at);
                add_pixels(&cd, &split, from[2] + at, from[3] + at);
        }

        bytes = _mm256_packs_epi32(shifted(&ab), shifted(&cd));
        bytes = _mm256_packus_epi16(bytes, bytes);
        resize_store_pixel(to[0] + place, (uint32_t)_mm256_extract_epi32(bytes, 0), last);
        resize_store_pixel(to[1] + place, (uint32_t)_mm256_extract_epi32(bytes, 4), last);
        resize_store_pixel(to[2] + place, (uint32_t)_mm256_extract_epi32(bytes, 1), last);
        resize_store_pixel(to[3] + place, (uint32_t)_mm256_extract_epi32(bytes, 5), last);
}

void resize_horizontal_avx2(const struct resize_axis *axis, uint8_t *to, size_t to_stride,
                            const uint8_t *from, size_t from_stride, uint32_t rows) {
        resize_horizontal_by_four(axis, to, to_stride, from, from_stride, rows, horizontal_output);
}

/* Two rows' 32 bytes, interleaved, times a pair of weights; sums[k] has bytes in the order the unpacking
 * gives. */
static inline void add_rows(struct sums sums[4], __m256i a, __m256i b, __m256i high, __m256i low) {
        const __m256i zero = _mm256_setzero_si256();
        __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
        __m256i pairs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                            _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};

        for (unsigned k = 0; k < 4; k++) {
                sums[k].high = _mm256_add_epi32(sums[k].high, _mm256_madd_epi16(pairs[k], high));
                sums[k].low = _mm256_add_epi32(sums[k].low, _mm256_madd_epi16(pairs[k], low));
        }
}

static inline __m256i pair_of(int32_t first, int32_t second) {
        return _mm256_set1_epi32((int32_t)((uint32_t)first & 0xffff) | (int32_t)((uint32_t)second << 16));
}

static inline void vertical_step(uint8_t *to, const uint8_t *from, size_t stride, const int32_t *weights,
                                 uint32_t count) {
        const struct sums start = {_mm256_setzero_si256(), _mm256_set1_epi32(HALF)};
        struct sums sums[4] = {start, start, start, start};
        __m256i left, right;

        for (uint32_t y = 0; y < count; y += 2) {
                const uint8_t *first = from + y * stride, *second = y + 1 < count ? first + stride : first;
                int32_t a = weights[y], b = y + 1 < count ? weights[y + 1] : 0;

                add_rows(sums, _mm256_loadu_si256((const __m256i *)first),
                         _mm256_loadu_si256((const __m256i *)second), pair_of(a >> 8, b >> 8),
                         pair_of(a & 255, b & 255));
        }
        left = _mm256_packs_epi32(shifted(&sums[0]), shifted(&sums[1]));
        right = _mm256_packs_epi32(shifted(&sums[2]), shifted(&sums[3]));
        _mm256_storeu_si256((__m256i *)to, _mm256_packus_epi16(left, right));
}

void resize_vertical_avx2(uint8_t *to, const uint8_t *from, size_t stride, size_t bytes,
                          const int32_t *weights, uint32_t count) {
        size_t at = 0;

        for (; at + STEP <= bytes; at += STEP)
                vertical_step(to + at, from + at, stride, weights, count);
        if (at < bytes)
                resize_vertical_c(to + at, from + at, stride, bytes - at, weights, count);
}
