/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pixels through the table, in plain C. All six functions are the same two walks over three types of element;
 * `step` is one pixel to the right or, mirrored, to the left. Bytes have no table.
 */

#include "daemon/worker/kernels/kernels-c.h"

enum {
        BYTES = 3, /* of a pixel */
};

static inline const uint8_t *row_start(const uint8_t *row, uint32_t width, int mirrored) {
        return mirrored ? row + (size_t)(width - 1) * BYTES : row;
}

#define UNCHANGED(c, value) (value)
#define OF_16(c, value)     table->of.u16[c][value]
#define OF_32(c, value)     table->of.f32[c][value]

#define CONVERT_CHW(name, type, element)                                                                     \
        void name(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,           \
                  uint32_t width, uint32_t height, int mirrored) {                                           \
                size_t plane = (size_t)width * height;                                                       \
                type *restrict red = to, *restrict green = red + plane, *restrict blue = green + plane;      \
                ptrdiff_t step = mirrored ? -BYTES : BYTES;                                                  \
                                                                                                             \
                for (uint32_t y = 0; y < height; y++) {                                                      \
                        const uint8_t *pixel = row_start(from + y * stride, width, mirrored);                \
                                                                                                             \
                        for (uint32_t x = 0; x < width; x++, pixel += step) {                                \
                                *red++ = element(0, pixel[0]);                                               \
                                *green++ = element(1, pixel[1]);                                             \
                                *blue++ = element(2, pixel[2]);                                              \
                        }                                                                                    \
                }                                                                                            \
        }

#define CONVERT_HWC(name, type, element)                                                                     \
        void name(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,           \
                  uint32_t width, uint32_t height, int mirrored) {                                           \
                type *restrict out = to;                                                                     \
                ptrdiff_t step = mirrored ? -BYTES : BYTES;                                                  \
                                                                                                             \
                for (uint32_t y = 0; y < height; y++) {                                                      \
                        const uint8_t *pixel = row_start(from + y * stride, width, mirrored);                \
                                                                                                             \
                        for (uint32_t x = 0; x < width; x++, pixel += step, out += 3) {                      \
                                out[0] = element(0, pixel[0]);                                               \
                                out[1] = element(1, pixel[1]);                                               \
                                out[2] = element(2, pixel[2]);                                               \
                        }                                                                                    \
                }                                                                                            \
        }

CONVERT_CHW(convert_chw_8_c, uint8_t, UNCHANGED)
CONVERT_CHW(convert_chw_16_c, uint16_t, OF_16)
CONVERT_CHW(convert_chw_32_c, float, OF_32)
CONVERT_HWC(convert_hwc_8_c, uint8_t, UNCHANGED)
CONVERT_HWC(convert_hwc_16_c, uint16_t, OF_16)
CONVERT_HWC(convert_hwc_32_c, float, OF_32)
