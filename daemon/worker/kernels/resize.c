/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Resizing, bit for bit as Pillow's Image.resize does it on 8-bit images.
 *
 * The filter is separable and wide: when an axis shrinks by a factor s, the kernel is stretched by s, so
 * every input pixel counts (what PyTorch calls antialias). Each axis is planned first: for every output, the
 * inputs in reach and their weights, computed in double, divided by their sum, and rounded to fractions of
 * 2^22. Then the horizontal pass runs over just those input rows that the vertical pass will read, into
 * `between`; then the vertical pass. Both passes round to 8 bits, so their order shows: width first, whatever
 * the shape, as in Pillow 9.4 to 12. An axis whose size does not change has no pass at all.
 *
 * RESIZE_NEAREST is no filter: each output is a copy of one input, found by stepping along the axis. Pillow
 * adds up the steps, and so does this, with what that rounds.
 *
 * Order and type of every operation in the plan are part of the bits: C's double arithmetic without
 * contraction (the project is built with -ffp-contract=off), sums from left to right, truncating conversions.
 * The plan is a few thousand flops; the passes are in the kernel table.
 *
 * Everything lives in a struct resizer that grows and never shrinks, because a malloc per image of these
 * sizes means fresh pages from the kernel each time.
 */

#include "daemon/worker/kernels/kernels.h"
#include "daemon/worker/kernels/resize-filters.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        BYTES = 3, /* of a pixel */
};

/* Makes room for `count` members of `size` bytes; what was there is lost. */
static int grow(void *pointer, size_t *capacity, size_t count, size_t size) {
        void **buffer = pointer;
        size_t bytes;

        if (__builtin_mul_overflow(count, size, &bytes))
                return -EOVERFLOW;
        if (bytes <= *capacity)
                return 0;
        free(*buffer);
        *capacity = 0;
        *buffer = malloc(bytes);
        if (!*buffer)
                return -ENOMEM;
        *capacity = bytes;
        return 0;
}

/* One block for all of an axis. */
static int axis_reserve(struct resize_axis *axis, size_t *capacity, uint32_t inputs, uint32_t outputs,
                        uint32_t taps) {
        size_t words;
        int r;

        if (__builtin_mul_overflow(2 * (size_t)taps + 2, (size_t)outputs, &words))
                return -EOVERFLOW;
        r = grow(&axis->weights, capacity, words, sizeof(int32_t));
        if (r < 0)
                return r;
        axis->inputs = inputs;
        axis->outputs = outputs;
        axis->taps = taps;
        axis->halves = (int16_t *)(axis->weights + (size_t)outputs * taps);
        axis->first = (uint32_t *)(axis->halves + 2 * (size_t)outputs * taps);
        axis->counts = axis->first + outputs;
        return 0;
}

static int32_t weight_round(double weight) {
        double scaled = weight * (1 << RESIZE_PRECISION);

        return (int32_t)(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

static void split_weights(int16_t *halves, const int32_t *weights, uint32_t taps) {
        for (uint32_t x = 0; x < taps; x++) {
                int16_t *group = halves + x / RESIZE_GROUP * 2 * RESIZE_GROUP;

                group[x % RESIZE_GROUP] = (int16_t)(weights[x] >> 8);
                group[RESIZE_GROUP + x % RESIZE_GROUP] = (int16_t)(weights[x] & 255);
        }
}

/* The inputs within reach of output i, and their rounded weights. */
static void axis_plan_output(struct resize_axis *axis, uint32_t i, const struct resize_filter_ops *filter,
                             double scale, double *fractions) {
        double stretch = scale < 1.0 ? 1.0 : scale, support = filter->support * stretch;
        double center = (i + 0.5) * scale, step = 1.0 / stretch, sum = 0.0;
        int32_t *weights = axis->weights + (size_t)i * axis->taps;
        int64_t first = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
        uint32_t count;

        if (first < 0)
                first = 0;
        if (end > axis->inputs)
                end = axis->inputs;
        count = (uint32_t)(end - first);

        for (uint32_t x = 0; x < count; x++) {
                fractions[x] = filter->at(((double)(x + first) - center + 0.5) * step);
                sum += fractions[x];
        }
        for (uint32_t x = 0; x < count; x++)
                weights[x] = weight_round(sum != 0.0 ? fractions[x] / sum : fractions[x]);
        memset(weights + count, 0, (axis->taps - count) * sizeof(weights[0]));
        split_weights(axis->halves + 2 * (size_t)i * axis->taps, weights, axis->taps);
        axis->first[i] = (uint32_t)first;
        axis->counts[i] = count;
}

static int axis_plan(struct resizer *resizer, struct resize_axis *axis, size_t *capacity,
                     const struct resize_filter_ops *filter, uint32_t inputs, uint32_t outputs) {
        double scale = (double)inputs / outputs, reach = ceil(filter->support * (scale < 1.0 ? 1.0 : scale));
        uint32_t taps;
        int r;

        if (reach > UINT32_MAX / 2 - RESIZE_GROUP)
                return -EOVERFLOW;
        taps = (uint32_t)reach * 2 + 1;
        taps = (taps + RESIZE_GROUP - 1) / RESIZE_GROUP * RESIZE_GROUP;
        r = axis_reserve(axis, capacity, inputs, outputs, taps);
        if (r < 0)
                return r;
        r = grow(&resizer->fractions, &resizer->fractions_capacity, taps, sizeof(double));
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < outputs; i++)
                axis_plan_output(axis, i, filter, scale, resizer->fractions);
        return 0;
}

/* `from` is input row `top`. */
static void pass_vertical(const struct kernels *kernels, const struct resize_axis *axis, uint8_t *to,
                          size_t to_stride, const uint8_t *from, size_t from_stride, uint32_t top,
                          uint32_t width) {
        for (uint32_t y = 0; y < axis->outputs; y++)
                kernels->resize_vertical(to + y * to_stride, from + (axis->first[y] - top) * from_stride,
                                         from_stride, (size_t)width * BYTES,
                                         axis->weights + (size_t)y * axis->taps, axis->counts[y]);
}

static void copy_rows(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride, uint32_t width,
                      uint32_t height) {
        for (uint32_t y = 0; y < height; y++)
                memcpy(to + y * to_stride, from + y * from_stride, (size_t)width * BYTES);
}

/* Which input each output is a copy of. The last step could round beyond the end only where an axis of 2^26
 * outputs grows out of a few inputs. */
static int axis_plan_nearest(struct resize_axis *axis, size_t *capacity, uint32_t inputs, uint32_t outputs) {
        double step = (double)inputs / outputs, place = step * 0.5;
        int r;

        r = axis_reserve(axis, capacity, inputs, outputs, 0);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < outputs; i++, place += step)
                axis->first[i] = place < inputs ? (uint32_t)place : inputs - 1;
        return 0;
}

static void pick_pixels(uint8_t *restrict to, const uint8_t *restrict from, const uint32_t *restrict first,
                        uint32_t width) {
        for (uint32_t x = 0; x < width; x++)
                memcpy(to + (size_t)x * BYTES, from + (size_t)first[x] * BYTES, BYTES);
}

static int run_nearest(struct resizer *resizer, uint8_t *to, size_t to_stride, uint32_t to_width,
                       uint32_t to_height, const uint8_t *from, size_t from_stride, uint32_t width,
                       uint32_t height) {
        int r;

        r = axis_plan_nearest(&resizer->horizontal, &resizer->axis_capacity[0], width, to_width);
        if (r < 0)
                return r;
        r = axis_plan_nearest(&resizer->vertical, &resizer->axis_capacity[1], height, to_height);
        if (r < 0)
                return r;
        for (uint32_t y = 0; y < to_height; y++)
                pick_pixels(to + y * to_stride, from + resizer->vertical.first[y] * from_stride,
                            resizer->horizontal.first, to_width);
        return 0;
}

static int run_filter(struct resizer *resizer, const struct resize_filter_ops *filter, uint8_t *to,
                      size_t to_stride, uint32_t to_width, uint32_t to_height, const uint8_t *from,
                      size_t from_stride, uint32_t width, uint32_t height) {
        const struct kernels *kernels = kernels_best();
        struct resize_axis *horizontal = &resizer->horizontal, *vertical = &resizer->vertical;
        uint32_t top = 0, rows = to_height;
        uint8_t *rows_to = to;
        size_t rows_stride = to_stride;
        int r;

        if (height != to_height) {
                r = axis_plan(resizer, vertical, &resizer->axis_capacity[1], filter, height, to_height);
                if (r < 0)
                        return r;
                top = vertical->first[0];
                rows = vertical->first[to_height - 1] + vertical->counts[to_height - 1] - top;
        }

        if (width == to_width) {
                pass_vertical(kernels, vertical, to, to_stride, from, from_stride, 0, width);
                return 0;
        }

        r = axis_plan(resizer, horizontal, &resizer->axis_capacity[0], filter, width, to_width);
        if (r < 0)
                return r;
        if (height != to_height) {
                r = grow(&resizer->between, &resizer->between_capacity, rows, (size_t)to_width * BYTES);
                if (r < 0)
                        return r;
                rows_to = resizer->between;
                rows_stride = (size_t)to_width * BYTES;
        }

        kernels->resize_horizontal(horizontal, rows_to, rows_stride, from + top * from_stride, from_stride,
                                   rows);
        if (height != to_height)
                pass_vertical(kernels, vertical, to, to_stride, rows_to, rows_stride, top, to_width);
        return 0;
}

int resizer_run(struct resizer *resizer, enum resize_filter filter, uint8_t *to, size_t to_stride,
                uint32_t to_width, uint32_t to_height, const uint8_t *from, size_t from_stride,
                uint32_t width, uint32_t height) {
        if (width == to_width && height == to_height) {
                copy_rows(to, to_stride, from, from_stride, width, height);
                return 0;
        }
        if (filter == RESIZE_NEAREST)
                return run_nearest(resizer, to, to_stride, to_width, to_height, from, from_stride, width,
                                   height);
        return run_filter(resizer, resize_filter_find(filter), to, to_stride, to_width, to_height, from,
                          from_stride, width, height);
}

void resizer_deinit(struct resizer *resizer) {
        free(resizer->horizontal.weights);
        free(resizer->vertical.weights);
        free(resizer->fractions);
        free(resizer->between);
        *resizer = (struct resizer){0};
}
