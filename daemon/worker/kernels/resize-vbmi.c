/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The horizontal pass of the resize with AVX-512, its VNNI and VBMI, same bits as resize-c.c.
 *
 * Five outputs at a time: their 15 bytes are 15 lanes of a register. All inputs of the five lie together, so
 * one load of 64 bytes has them, and one instruction (vpermb) gives each lane its next two. They are
 * multiplied and added as resize-avx2.c explains. Where the bytes are and what they weigh is the same in
 * every row; it is found once for five outputs, and stays in registers while the rows go by. Of a load, only
 * the bytes that lie in the row are read. Walking down the rows is nothing that the CPU foresees, so what the
 * next outputs will read is asked for beforehand.
 *
 * A picture that shrinks to less than about a third (bilinear) has inputs that are too many for this; the
 * other kernel does it.
 */

#include "daemon/worker/kernels/kernels-avx512.h"

#include <immintrin.h>
#include <string.h>

enum {
        HALF = 1 << (RESIZE_PRECISION - 1),
        BYTES = 3,     /* of a pixel */
        BLOCK = 5,     /* outputs at a time */
        LANES = 16,    /* of a register, one more than bytes of a block */
        LOAD = 64,     /* bytes of a row */
        PAIRS_MAX = 6, /* of inputs of an output; three registers for each */
        AHEAD = 128,   /* bytes; measured on photographs: 30 % off this pass */
};

#define ALWAYS_INLINE inline __attribute__((always_inline)) /* so that the registers are counted */

struct block {
        /* for each pair of inputs: the bytes of the load, and their weights, by lane */
        __m512i pick[PAIRS_MAX], high[PAIRS_MAX], low[PAIRS_MAX];
        uint32_t pairs;
        uint32_t first; /* pixel of the load */
        __mmask64 in;   /* bytes of the load that lie in the row */
        __mmask16 out;  /* bytes of the outputs */
};

/* Each output's value in the lanes of its channels. */
static inline __m512i spread(const int32_t values[LANES]) {
        const __m512i outputs = _mm512_setr_epi32(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4);

        return _mm512_permutexvar_epi32(outputs, _mm512_loadu_si512(values));
}

static inline int32_t pair_at(const int16_t *halves) {
        int32_t both;

        memcpy(&both, halves, sizeof(both));
        return both;
}

/* Pair k of the inputs of the n outputs from i on. What an output does not have weighs nothing. */
static void plan_pair(struct block *block, const struct resize_axis *axis, uint32_t i, uint32_t n,
                      uint32_t k) {
        /* the channel's byte of the first pixel, and in the upper half of that of the second */
        const __m512i channels =
                _mm512_setr_epi32(0x30000, 0x40001, 0x50002, 0x30000, 0x40001, 0x50002, 0x30000, 0x40001,
                                  0x50002, 0x30000, 0x40001, 0x50002, 0x30000, 0x40001, 0x50002, 0);
        const size_t group = 2 * (size_t)RESIZE_GROUP * (k / 2) + 2 * (k % 2);
        int32_t places[LANES] = {0}, high[LANES] = {0}, low[LANES] = {0};

        for (uint32_t o = 0; o < n; o++) {
                const int16_t *halves = axis->halves + 2 * (size_t)(i + o) * axis->taps + group;

                if (2 * k >= axis->counts[i + o])
                        continue;
                places[o] = (int32_t)((axis->first[i + o] - block->first + 2 * k) * BYTES * 0x10001);
                high[o] = pair_at(halves);
                low[o] = pair_at(halves + RESIZE_GROUP);
        }
        block->pick[k] = _mm512_add_epi32(spread(places), channels);
        block->high[k] = spread(high);
        block->low[k] = spread(low);
}

/* The n outputs from i on. Whether they can be done this way. */
static int plan_block(struct block *block, const struct resize_axis *axis, uint32_t i, uint32_t n) {
        uint32_t first = UINT32_MAX, end = 0, most = 0;
        size_t left;

        for (uint32_t o = i; o < i + n; o++) {
                uint32_t count = axis->counts[o], end_of_o = axis->first[o] + count;

                first = axis->first[o] < first ? axis->first[o] : first;
                end = end_of_o > end ? end_of_o : end;
                most = count > most ? count : most;
        }
        block->pairs = (most + 1) / 2;
        if ((size_t)(end - first) * BYTES > LOAD || block->pairs > PAIRS_MAX)
                return 0;
        left = (size_t)(axis->inputs - first) * BYTES;
        block->in = left < LOAD ? (UINT64_C(1) << left) - 1 : UINT64_MAX;
        block->out = (__mmask16)((1u << n * BYTES) - 1);
        block->first = first;
        for (uint32_t k = 0; k < block->pairs; k++)
                plan_pair(block, axis, i, n, k);
        return 1;
}

static ALWAYS_INLINE void run(const struct block *block, uint32_t pairs, uint8_t *to, size_t to_stride,
                              const uint8_t *from, size_t from_stride, uint32_t rows) {
        const __mmask64 even = UINT64_C(0x5555555555555555);
        struct block kept = *block;

        for (uint32_t y = 0; y < rows; y++, from += from_stride, to += to_stride) {
                __m512i bytes = _mm512_maskz_loadu_epi8(kept.in, from);
                __m512i high = _mm512_setzero_si512(), low = _mm512_set1_epi32(HALF);

                _mm_prefetch((const char *)from + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 6
                for (uint32_t k = 0; k < pairs; k++) {
                        __m512i pair = _mm512_maskz_permutexvar_epi8(even, kept.pick[k], bytes);

                        high = _mm512_dpwssd_epi32(high, pair, kept.high[k]);
                        low = _mm512_dpwssd_epi32(low, pair, kept.low[k]);
                }
                low = _mm512_add_epi32(low, _mm512_slli_epi32(high, 8));
                low = _mm512_max_epi32(_mm512_srai_epi32(low, RESIZE_PRECISION), _mm512_setzero_si512());
                _mm_mask_storeu_epi8(to, kept.out, _mm512_cvtusepi32_epi8(low));
        }
}

typedef void (*run_fn)(const struct block *block, uint8_t *to, size_t to_stride, const uint8_t *from,
                       size_t from_stride, uint32_t rows);

#define RUN(pairs)                                                                                           \
        static void run_##pairs(const struct block *block, uint8_t *to, size_t to_stride,                    \
                                const uint8_t *from, size_t from_stride, uint32_t rows) {                    \
                run(block, pairs, to, to_stride, from, from_stride, rows);                                   \
        }

RUN(1)
RUN(2)
RUN(3)
RUN(4)
RUN(5)
RUN(6)

static const run_fn runs[PAIRS_MAX + 1] = {NULL, run_1, run_2, run_3, run_4, run_5, run_6};

void resize_horizontal_vbmi(const struct resize_axis *axis, uint8_t *to, size_t to_stride,
                            const uint8_t *from, size_t from_stride, uint32_t rows) {
        struct block block;

        for (uint32_t i = 0; i < axis->outputs; i += BLOCK) {
                uint32_t n = axis->outputs - i < BLOCK ? axis->outputs - i : BLOCK;

                if (!plan_block(&block, axis, i, n)) {
                        resize_horizontal_avx512(axis, to, to_stride, from, from_stride, rows);
                        return;
                }
                runs[block.pairs](&block, to + (size_t)i * BYTES, to_stride,
                                  from + (size_t)block.first * BYTES, from_stride, rows);
        }
}
