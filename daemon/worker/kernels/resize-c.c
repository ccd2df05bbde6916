/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The two passes of the resize in plain C: the definition of their bits.
 *
 * A result is the weighted sum of bytes in 32-bit integers, plus one half, shifted down and clipped to 0 ...
 * 255. The sum cannot overflow: weights add up to about 2^22, what negative lobes take away and the others
 * add is less than a third of that (lanczos: 0.29), and 4/3 times 2^22 times 255 is below 2^31. Integer sums
 * may be taken in any order.
 */

#include "daemon/worker/kernels/kernels-c.h"

enum {
        HALF = 1 << (RESIZE_PRECISION - 1),
        BLOCK = 256, /* sums of the vertical pass that are kept at once: 1 KiB, in the nearest cache */
};

static inline uint8_t narrow(int32_t sum) {
        int32_t value = sum >> RESIZE_PRECISION;

        value = value < 0 ? 0 : value;
        return (uint8_t)(value > 255 ? 255 : value);
}

static void horizontal_row(const struct resize_axis *axis, uint8_t *restrict to,
                           const uint8_t *restrict from) {
        const int32_t *weights = axis->weights;

        for (uint32_t i = 0; i < axis->outputs; i++, weights += axis->taps, to += 3) {
                const uint8_t *pixel = from + (size_t)axis->first[i] * 3;
                uint32_t count = axis->counts[i];
                int32_t red = HALF, green = HALF, blue = HALF;

                for (uint32_t x = 0; x < count; x++, pixel += 3) {
                        red += pixel[0] * weights[x];
                        green += pixel[1] * weights[x];
                        blue += pixel[2] * weights[x];
                }
                to[0] = narrow(red);
                to[1] = narrow(green);
                to[2] = narrow(blue);
        }
}

void resize_horizontal_c(const struct resize_axis *axis, uint8_t *to, size_t to_stride, const uint8_t *from,
                         size_t from_stride, uint32_t rows) {
        for (uint32_t y = 0; y < rows; y++)
                horizontal_row(axis, to + y * to_stride, from + y * from_stride);
}

void resize_vertical_c(uint8_t *to, const uint8_t *from, size_t stride, size_t bytes, const int32_t *weights,
                       uint32_t count) {
        for (size_t start = 0; start < bytes; start += BLOCK) {
                size_t n = bytes - start < BLOCK ? bytes - start : BLOCK;
                int32_t sums[BLOCK];

                for (size_t i = 0; i < n; i++)
                        sums[i] = HALF;
                for (uint32_t y = 0; y < count; y++) {
                        const uint8_t *row = from + y * stride + start;

                        for (size_t i = 0; i < n; i++)
                                sums[i] += row[i] * weights[y];
                }
                for (size_t i = 0; i < n; i++)
                        to[start + i] = narrow(sums[i]);
        }
}
