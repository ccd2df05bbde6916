/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Rows turned round in place, pixel by pixel, in plain C. A copy would need memory; and most flips never come
 * here, because whoever writes the tensor reads rows from their right end.
 */

#include "daemon/worker/kernels/kernels-c.h"

#include <string.h>

enum {
        BYTES = 3, /* of a pixel */
};

static void mirror_row(uint8_t *left, uint8_t *right) {
        uint8_t pixel[BYTES];

        for (; left < right; left += BYTES, right -= BYTES) {
                memcpy(pixel, left, BYTES);
                memcpy(left, right, BYTES);
                memcpy(right, pixel, BYTES);
        }
}

void mirror_c(uint8_t *pixels, size_t stride, uint32_t width, uint32_t height) {
        for (uint32_t y = 0; y < height; y++, pixels += stride)
                mirror_row(pixels, pixels + (size_t)(width - 1) * BYTES);
}
