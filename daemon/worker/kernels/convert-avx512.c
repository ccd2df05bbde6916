/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pixels to planes of two bytes an element with AVX-512: same bits as convert-c.c, streamed as in
 * convert-avx2.c, which says why and does what is left over.
 *
 * A channel's table of 256 elements fills eight registers. One instruction looks 32 values up in two of them
 * by their lowest six bits, and the two bits above choose among the four results. So the image is walked once
 * for each channel, whose table stays where it is. For elements of four bytes this would be twice as many
 * registers and no faster than memory.
 */

#include "daemon/worker/kernels/shuffle-x86.h"
#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/kernels-avx512.h"

enum {
        BYTES = 3,  /* of a pixel */
        STEP = 32,  /* pixels, whose elements are a register and a line */
        TABLES = 8, /* registers that hold a table */
};

/* Two groups of pixels, one in each half, give one channel of both. `step` is from the first group to the
 * second, in bytes. */
static inline __m256i channel_of(const __m128i pick[SHUFFLE_PARTS], const uint8_t *from, ptrdiff_t step) {
        __m256i sum = _mm256_setzero_si256();

        for (unsigned i = 0; i < SHUFFLE_PARTS; i++) {
                const uint8_t *part = from + (size_t)i * SHUFFLE_GROUP;
                __m256i bytes = _mm256_inserti128_si256(
                        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)part)),
                        _mm_loadu_si128((const __m128i *)(part + step)), 1);

                sum = _mm256_or_si256(sum, _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(pick[i])));
        }
        return sum;
}

static inline __m512i look_up(const __m512i table[TABLES], __m256i values) {
        __m512i wide = _mm512_cvtepu8_epi16(values);
        __mmask32 bit6 = _mm512_test_epi16_mask(wide, _mm512_set1_epi16(64)),
                  bit7 = _mm512_test_epi16_mask(wide, _mm512_set1_epi16(128));
        __m512i low = _mm512_mask_mov_epi16(_mm512_permutex2var_epi16(table[0], wide, table[1]), bit6,
                                            _mm512_permutex2var_epi16(table[2], wide, table[3]));
        __m512i high = _mm512_mask_mov_epi16(_mm512_permutex2var_epi16(table[4], wide, table[5]), bit6,
                                             _mm512_permutex2var_epi16(table[6], wide, table[7]));

        return _mm512_mask_mov_epi16(low, bit7, high);
}

static void convert_plane(const uint16_t values[256], const __m128i pick[SHUFFLE_PARTS], uint16_t *to,
                          const uint8_t *from, size_t stride, uint32_t width, uint32_t height, int mirrored) {
        const ptrdiff_t group = mirrored ? -SHUFFLE_GROUP * BYTES : SHUFFLE_GROUP * BYTES;
        __m512i table[TABLES];

        for (size_t i = 0; i < TABLES; i++)
                table[i] = _mm512_loadu_si512(values + i * STEP);
        for (uint32_t y = 0; y < height; y++, from += stride) {
                const uint8_t *pixels = mirrored ? from + (size_t)(width - SHUFFLE_GROUP) * BYTES : from;

                for (uint32_t x = 0; x < width; x += STEP, pixels += 2 * group, to += STEP)
                        _mm512_stream_si512((__m512i *)to, look_up(table, channel_of(pick, pixels, group)));
        }
}

void convert_chw_16_avx512(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                           uint32_t width, uint32_t height, int mirrored) {
        struct shuffle shuffle = shuffle_to_planes(mirrored);
        size_t plane = (size_t)width * height;

        if (width % STEP != 0 || (uintptr_t)to % sizeof(__m512i) != 0) {
                convert_chw_16_avx2(table, to, from, stride, width, height, mirrored);
                return;
        }
        for (unsigned c = 0; c < BYTES; c++)
                convert_plane(table->of.u16[c], shuffle.pick[c], (uint16_t *)to + c * plane, from, stride,
                              width, height, mirrored);
        _mm_sfence();
}
