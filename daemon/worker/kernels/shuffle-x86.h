#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rearranging the bytes of 16 pixels, for the kernels of x86-64. */

#include <immintrin.h>
#include <stdint.h>

enum {
        SHUFFLE_GROUP = 16, /* pixels that are rearranged at once; bytes of a register */
        SHUFFLE_PARTS = 3,  /* registers that hold them */
};

/* Byte i of register `to` of the result is byte pick[to][from][i] of register `from` of the pixels, or comes
 * from another one where that is negative. */
struct shuffle {
        __m128i pick[SHUFFLE_PARTS][SHUFFLE_PARTS];
};

/* Byte i of the result is byte places[i] of the pixels. */
static inline struct shuffle shuffle_of(const uint8_t places[SHUFFLE_PARTS * SHUFFLE_GROUP]) {
        struct shuffle shuffle;

        for (int to = 0; to < SHUFFLE_PARTS; to++)
                for (int from = 0; from < SHUFFLE_PARTS; from++) {
                        int8_t pick[SHUFFLE_GROUP];

                        for (int i = 0; i < SHUFFLE_GROUP; i++) {
                                int place = places[to * SHUFFLE_GROUP + i] - from * SHUFFLE_GROUP;

                                pick[i] = (int8_t)(place >= 0 && place < SHUFFLE_GROUP ? place : -1);
                        }
                        shuffle.pick[to][from] = _mm_loadu_si128((const __m128i *)pick);
                }
        return shuffle;
}

/* Each channel to a register of its own; `mirrored`: the last pixel first. */
static inline struct shuffle shuffle_to_planes(int mirrored) {
        uint8_t places[SHUFFLE_PARTS * SHUFFLE_GROUP];

        for (int i = 0; i < SHUFFLE_PARTS * SHUFFLE_GROUP; i++) {
                int x = i % SHUFFLE_GROUP, channel = i / SHUFFLE_GROUP;

                places[i] = (uint8_t)((mirrored ? SHUFFLE_GROUP - 1 - x : x) * SHUFFLE_PARTS + channel);
        }
        return shuffle_of(places);
}

/* The last pixel first. */
static inline struct shuffle shuffle_to_mirror(void) {
        uint8_t places[SHUFFLE_PARTS * SHUFFLE_GROUP];

        for (int i = 0; i < SHUFFLE_PARTS * SHUFFLE_GROUP; i++)
                places[i] = (uint8_t)((SHUFFLE_GROUP - 1 - i / SHUFFLE_PARTS) * SHUFFLE_PARTS +
                                      i % SHUFFLE_PARTS);
        return shuffle_of(places);
}

struct shuffled {
        __m128i part[SHUFFLE_PARTS];
};

static inline struct shuffled shuffle_group(const struct shuffle *shuffle, const uint8_t *pixels) {
        __m128i a = _mm_loadu_si128((const __m128i *)pixels),
                b = _mm_loadu_si128((const __m128i *)(pixels + SHUFFLE_GROUP)),
                c = _mm_loadu_si128((const __m128i *)(pixels + 2 * SHUFFLE_GROUP));
        struct shuffled shuffled;

        for (unsigned i = 0; i < SHUFFLE_PARTS; i++)
                shuffled.part[i] = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, shuffle->pick[i][0]),
                                                             _mm_shuffle_epi8(b, shuffle->pick[i][1])),
                                                _mm_shuffle_epi8(c, shuffle->pick[i][2]));
        return shuffled;
}
