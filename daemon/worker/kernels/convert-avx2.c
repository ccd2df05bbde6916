/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pixels to float32 planes with AVX2: the usual output, 600 KB an image, and the most expensive one to store.
 *
 * What costs is not the look-up but the memory: an ordinary store first reads the line that it is about to
 * overwrite, and then pushes out of the caches what the next image needs. Nobody on this CPU reads the result
 * soon, so whole lines are written past the caches, eight floats at a time, collected by plain loads from the
 * table (a gather instruction is no faster where its microcode is mended against leaking). Measured on a ring
 * of 300 MB: half the time of the C version. The fence at the end makes the lines visible to others before
 * the worker says that it has finished.
 *
 * That needs planes and rows on 32-byte borders, which is so for all usual sizes; else the C version does it.
 */

#include "daemon/worker/kernels/kernels-avx2.h"
#include "daemon/worker/kernels/kernels-c.h"

#include <immintrin.h>

enum {
        BYTES = 3, /* of a pixel */
        STEP = 8,  /* elements at a time */
};

static inline __m256 look_up(const float table[256], const uint8_t *from, ptrdiff_t step) {
        return _mm256_setr_ps(table[from[0]], table[from[step]], table[from[2 * step]], table[from[3 * step]],
                              table[from[4 * step]], table[from[5 * step]], table[from[6 * step]],
                              table[from[7 * step]]);
}

/* `step` is a constant where this is called, so that the places of the eight pixels are, too. */
static inline __attribute__((always_inline)) void convert_rows(const struct convert_table *table, float *red,
                                                               float *green, float *blue, const uint8_t *from,
                                                               size_t stride, uint32_t width, uint32_t height,
                                                               ptrdiff_t step) {
        for (uint32_t y = 0; y < height; y++) {
                const uint8_t *pixel = from + y * stride;

                for (uint32_t x = 0; x < width; x += STEP, pixel += STEP * step) {
                        _mm256_stream_ps(red, look_up(table->of.f32[0], pixel, step));
                        _mm256_stream_ps(green, look_up(table->of.f32[1], pixel + 1, step));
                        _mm256_stream_ps(blue, look_up(table->of.f32[2], pixel + 2, step));
                        red += STEP;
                        green += STEP;
                        blue += STEP;
                }
        }
}

void convert_chw_32_avx2(const struct convert_table *table, void *to, const uint8_t *from, size_t stride,
                         uint32_t width, uint32_t height, int mirrored) {
        size_t plane = (size_t)width * height;
        float *red = to, *green = red + plane, *blue = green + plane;

        if (width % STEP != 0 || (uintptr_t)to % (STEP * sizeof(float)) != 0) {
                convert_chw_32_c(table, to, from, stride, width, height, mirrored);
                return;
        }
        if (mirrored)
                convert_rows(table, red, green, blue, from + (size_t)(width - 1) * BYTES, stride, width,
                             height, -BYTES);
        else
                convert_rows(table, red, green, blue, from, stride, width, height, BYTES);
        _mm_sfence();
}
