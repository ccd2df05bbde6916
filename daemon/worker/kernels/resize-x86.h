#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The walk over a picture that the horizontal passes of x86-64 share: four rows at a time, so that what an
 * output needs of the axis is looked up once for four. Rows that are missing to four are done twice. */

#include "daemon/worker/kernels/kernels-c.h"

#include <string.h>

enum {
        RESIZE_ROWS = 4,  /* at a time */
        RESIZE_LOAD = 16, /* bytes of a row that are read for a group of pixels, whose own are 12 */
        RESIZE_BYTES = 3, /* of a pixel */
};

/* Output i of four rows, from so many groups of inputs. */
typedef void (*resize_output_fn)(const struct resize_axis *axis, uint32_t i, uint8_t *const to[RESIZE_ROWS],
                                 const uint8_t *const from[RESIZE_ROWS], uint32_t groups);

/* The fourth byte belongs to the next pixel, which is written later; the last pixel of a row has none. */
static inline void resize_store_pixel(uint8_t *to, uint32_t pixel, int last) {
        if (last)
                memcpy(to, &pixel, RESIZE_BYTES);
        else
                memcpy(to, &pixel, sizeof(pixel));
}

/* One output by itself, as the C kernel sees it. */
static inline void resize_plain_output(const struct resize_axis *axis, uint32_t i,
                                       uint8_t *const to[RESIZE_ROWS],
                                       const uint8_t *const from[RESIZE_ROWS]) {
        struct resize_axis one = {.inputs = axis->inputs,
                                  .outputs = 1,
                                  .taps = axis->taps,
                                  .first = axis->first + i,
                                  .counts = axis->counts + i,
                                  .weights = axis->weights + (size_t)i * axis->taps};

        for (unsigned r = 0; r < RESIZE_ROWS; r++)
                resize_horizontal_c(&one, to[r] + (size_t)i * RESIZE_BYTES, 0, from[r], 0, 1);
}

/* As struct kernels has it. `output` is a constant where this is called, and inlined; outputs whose loads
 * would pass the end of their rows are left to plain arithmetic. */
static inline __attribute__((always_inline)) void
resize_horizontal_by_four(const struct resize_axis *axis, uint8_t *to, size_t to_stride, const uint8_t *from,
                          size_t from_stride, uint32_t rows, resize_output_fn output) {
        size_t row_bytes = (size_t)axis->inputs * RESIZE_BYTES;

        for (uint32_t y = 0; y < rows; y += RESIZE_ROWS) {
                const uint8_t *sources[RESIZE_ROWS];
                uint8_t *targets[RESIZE_ROWS];

                for (uint32_t r = 0; r < RESIZE_ROWS; r++) {
                        uint32_t row = y + r < rows ? y + r : rows - 1;

                        sources[r] = from + row * from_stride;
                        targets[r] = to + row * to_stride;
                }
                for (uint32_t i = 0; i < axis->outputs; i++) {
                        uint32_t groups = (axis->counts[i] + RESIZE_GROUP - 1) / RESIZE_GROUP;
                        size_t last_load =
                                (axis->first[i] + (size_t)(groups - 1) * RESIZE_GROUP) * RESIZE_BYTES;

                        if (last_load + RESIZE_LOAD <= row_bytes)
                                output(axis, i, targets, sources, groups);
                        else
                                resize_plain_output(axis, i, targets, sources);
                }
        }
}
