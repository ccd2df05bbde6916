/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Rows turned round in place with AVX2: groups of 16 pixels from both ends, each turned round and put in the
 * other's place. The pixels that are left in the middle, fewer than two groups, are mirror-c.c's.
 */

#include "daemon/worker/kernels/shuffle-x86.h"
#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/kernels-c.h"

enum {
        BYTES = 3,                                   /* of a pixel */
        GROUP_BYTES = SHUFFLE_PARTS * SHUFFLE_GROUP, /* of the pixels that are turned round at once */
};

void mirror_avx2(uint8_t *pixels, size_t stride, uint32_t width, uint32_t height) {
        const struct shuffle shuffle = shuffle_to_mirror();

        for (uint32_t y = 0; y < height; y++, pixels += stride) {
                uint8_t *left = pixels, *right = pixels + (size_t)width * BYTES;

                for (; right - left >= 2 * GROUP_BYTES; left += GROUP_BYTES, right -= GROUP_BYTES) {
                        struct shuffled first = shuffle_group(&shuffle, left),
                                        last = shuffle_group(&shuffle, right - GROUP_BYTES);

                        for (unsigned i = 0; i < SHUFFLE_PARTS; i++) {
                                size_t at = (size_t)i * SHUFFLE_GROUP;

                                _mm_storeu_si128((__m128i *)(left + at), last.part[i]);
                                _mm_storeu_si128((__m128i *)(right - GROUP_BYTES + at), first.part[i]);
                        }
                }
                if (left < right)
                        mirror_c(left, 0, (uint32_t)((right - left) / BYTES), 1);
        }
}
