/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The passes of the resize with AVX-512 and its VNNI, same bits as resize-c.c.
 *
 * As resize-avx2.c, where the arithmetic is explained, with two differences: a register holds four rows, one
 * in each quarter, or 64 bytes of one; and multiplying pairs and adding them to a sum is one instruction
 * (dpwssd, which wraps like the C sum, not dpwssds). What is left over is AVX2's.
 */

#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/kernels-avx512.h"
#include "daemon/worker/kernels/resize-x86.h"

#include <immintrin.h>
#include <string.h>

enum {
        HALF = 1 << (RESIZE_PRECISION - 1),
        STEP = 64, /* bytes of a row, vertically */
};

struct sums {
        __m512i high, low;
};

/* A group's weights 0 and 1, 2 and 3, in every 32 bits. */
struct split {
        __m512i high01, high23, low01, low23;
};

static inline __m512i repeated(const int16_t pair[2]) {
        int32_t both;

        memcpy(&both, pair, sizeof(both));
        return _mm512_set1_epi32(both);
}

static inline struct split load_weights(const int16_t halves[2 * RESIZE_GROUP]) {
        return (struct split){repeated(halves), repeated(halves + 2), repeated(halves + 4),
                              repeated(halves + 6)};
}

static inline __m512i load_rows(const uint8_t *const from[RESIZE_ROWS], size_t at) {
        __m512i bytes = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(from[0] + at)));

        bytes = _mm512_inserti32x4(bytes, _mm_loadu_si128((const __m128i *)(from[1] + at)), 1);
        bytes = _mm512_inserti32x4(bytes, _mm_loadu_si128((const __m128i *)(from[2] + at)), 2);
        return _mm512_inserti32x4(bytes, _mm_loadu_si128((const __m128i *)(from[3] + at)), 3);
}

/* Four pixels of each row, each channel's two and two as neighbours, times their weights. */
static inline void add_pixels(struct sums *sums, const struct split *split, __m512i bytes) {
        const __m512i pick01 = _mm512_broadcast_i32x4(
                _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
        const __m512i pick23 = _mm512_broadcast_i32x4(
                _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
        __m512i p01 = _mm512_shuffle_epi8(bytes, pick01), p23 = _mm512_shuffle_epi8(bytes, pick23);

        sums->high =
                _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(sums->high, p01, split->high01), p23, split->high23);
        sums->low = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(sums->low, p01, split->low01), p23, split->low23);
}

/* Sums to values that still have to be clipped. */
static inline __m512i shifted(const struct sums *sums) {
        return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(sums->high, 8), sums->low),
                                 RESIZE_PRECISION);
}

static inline void horizontal_output(const struct resize_axis *axis, uint32_t i,
                                     uint8_t *const to[RESIZE_ROWS], const uint8_t *const from[RESIZE_ROWS],
                                     uint32_t groups) {
        struct sums sums = {_mm512_setzero_si512(), _mm512_set1_epi32(HALF)};
        const int16_t *halves = axis->halves + 2 * (size_t)i * axis->taps;
        size_t at = (size_t)axis->first[i] * RESIZE_BYTES, place = (size_t)i * RESIZE_BYTES;
        int last = i + 1 == axis->outputs;
        __m128i pixels;

        for (uint32_t g = 0; g < groups; g++, at += RESIZE_GROUP * RESIZE_BYTES, halves += 2 * RESIZE_GROUP) {
                struct split split = load_weights(halves);

                add_pixels(&sums, &split, load_rows(from, at));
        }

        pixels = _mm512_cvtusepi32_epi8(_mm512_max_epi32(shifted(&sums), _mm512_setzero_si512()));
        resize_store_pixel(to[0] + place, (uint32_t)_mm_extract_epi32(pixels, 0), last);
        resize_store_pixel(to[1] + place, (uint32_t)_mm_extract_epi32(pixels, 1), last);
        resize_store_pixel(to[2] + place, (uint32_t)_mm_extract_epi32(pixels, 2), last);
        resize_store_pixel(to[3] + place, (uint32_t)_mm_extract_epi32(pixels, 3), last);
}

void resize_horizontal_avx512(const struct resize_axis *axis, uint8_t *to, size_t to_stride,
                              const uint8_t *from, size_t from_stride, uint32_t rows) {
        resize_horizontal_by_four(axis, to, to_stride, from, from_stride, rows, horizontal_output);
}

/* Two rows' 64 bytes, interleaved, times a pair of weights; sums[k] has bytes in the order the unpacking
 * gives. */
static inline void add_rows(struct sums sums[4], __m512i a, __m512i b, __m512i high, __m512i low) {
        const __m512i zero = _mm512_setzero_si512();
        __m512i left = _mm512_unpacklo_epi8(a, b), right = _mm512_unpackhi_epi8(a, b);
        __m512i pairs[4] = {_mm512_unpacklo_epi8(left, zero), _mm512_unpackhi_epi8(left, zero),
                            _mm512_unpacklo_epi8(right, zero), _mm512_unpackhi_epi8(right, zero)};

        for (unsigned k = 0; k < 4; k++) {
                sums[k].high = _mm512_dpwssd_epi32(sums[k].high, pairs[k], high);
                sums[k].low = _mm512_dpwssd_epi32(sums[k].low, pairs[k], low);
        }
}

static inline __m512i pair_of(int32_t first, int32_t second) {
        return _mm512_set1_epi32((int32_t)((uint32_t)first & 0xffff) | (int32_t)((uint32_t)second << 16));
}

static inline void vertical_step(uint8_t *to, const uint8_t *from, size_t stride, const int32_t *weights,
                                 uint32_t count) {
        const struct sums start = {_mm512_setzero_si512(), _mm512_set1_epi32(HALF)};
        struct sums sums[4] = {start, start, start, start};
        __m512i left, right;

        for (uint32_t y = 0; y < count; y += 2) {
                const uint8_t *first = from + y * stride, *second = y + 1 < count ? first + stride : first;
                int32_t a = weights[y], b = y + 1 < count ? weights[y + 1] : 0;

                add_rows(sums, _mm512_loadu_si512(first), _mm512_loadu_si512(second), pair_of(a >> 8, b >> 8),
                         pair_of(a & 255, b & 255));
        }
        left = _mm512_packs_epi32(shifted(&sums[0]), shifted(&sums[1]));
        right = _mm512_packs_epi32(shifted(&sums[2]), shifted(&sums[3]));
        _mm512_storeu_si512(to, _mm512_packus_epi16(left, right));
}

void resize_vertical_avx512(uint8_t *to, const uint8_t *from, size_t stride, size_t bytes,
                            const int32_t *weights, uint32_t count) {
        size_t at = 0;

        for (; at + STEP <= bytes; at += STEP)
                vertical_step(to + at, from + at, stride, weights, count);
        if (at < bytes)
                resize_vertical_avx2(to + at, from + at, stride, bytes - at, weights, count);
}
