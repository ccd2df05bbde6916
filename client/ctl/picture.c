/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A picture's values in whatever type and layout they lie, brought back to bytes by one straight line for
 * each channel. It is there to be looked at, a few dozen pictures at a time, so that each value is looked up
 * by itself: one switch over the types, one formula for the layouts. */

#include "client/ctl/picture.h"

#include <math.h>
#include <string.h>

enum {
        LEVEL_MOST = 255,
};

static bool is_value(enum pinfeed_dtype dtype) {
        return dtype != PINFEED_INT32 && dtype != PINFEED_INT64;
}

static bool is_channels(uint64_t n) {
        return n == 1 || n == PICTURE_CHANNELS;
}

static bool is_edge(uint64_t n) {
        return n > 0 && n <= PICTURE_EDGE_MAX;
}

/* Channels that could be the first or the last dimension are the first: that is how PyTorch has them. */
bool picture_init(struct picture *picture, const struct pinfeed_field *field) {
        const uint64_t *shape = field->shape;
        bool last;

        if (field->n_dims != 3 || !is_value(field->dtype))
                return false;
        last = !is_channels(shape[0]);
        if (!is_channels(shape[last ? 2 : 0]) || !is_edge(shape[last ? 0 : 1]) ||
            !is_edge(shape[last ? 1 : 2]))
                return false;
        *picture = (struct picture){.dtype = field->dtype,
                                    .channels = (uint32_t)shape[last ? 2 : 0],
                                    .height = (uint32_t)shape[last ? 0 : 1],
                                    .width = (uint32_t)shape[last ? 1 : 2],
                                    .interleaved = last || field->channels_last};
        return true;
}

/* ---- levels ---- */

void picture_levels_plain(struct picture_levels *levels) {
        picture_levels_between(levels, 0, LEVEL_MOST);
}

void picture_levels_normalized(struct picture_levels *levels, const double mean[PICTURE_CHANNELS],
                               const double std[PICTURE_CHANNELS]) {
        for (uint32_t c = 0; c < PICTURE_CHANNELS; c++) {
                levels->scale[c] = std[c] * LEVEL_MOST;
                levels->offset[c] = mean[c] * LEVEL_MOST;
        }
}

/* Values that are all the same are black. */
void picture_levels_between(struct picture_levels *levels, double least, double most) {
        for (uint32_t c = 0; c < PICTURE_CHANNELS; c++) {
                levels->scale[c] = most > least ? LEVEL_MOST / (most - least) : 0;
                levels->offset[c] = most > least ? -least * levels->scale[c] : 0;
        }
}

/* ---- values ---- */

static double from_half(uint16_t bits) {
        unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
        double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, (int)exponent - 25);

        if (exponent == 31)
                size = fraction ? (double)NAN : (double)INFINITY;
        return bits & 0x8000 ? -size : size;
}

/* The upper half of a float32. */
static double from_bfloat(uint16_t bits) {
        uint32_t word = (uint32_t)bits << 16;
        float value;

        memcpy(&value, &word, sizeof(value));
        return (double)value;
}

static double value_at(const struct picture *picture, const void *values, size_t at) {
        switch (picture->dtype) {
        case PINFEED_UINT8:
                return ((const uint8_t *)values)[at];
        case PINFEED_FLOAT16:
                return from_half(((const uint16_t *)values)[at]);
        case PINFEED_BFLOAT16:
                return from_bfloat(((const uint16_t *)values)[at]);
        case PINFEED_FLOAT32:
                return (double)((const float *)values)[at];
        case PINFEED_FLOAT64:
                return ((const double *)values)[at];
        default:
                return 0;
        }
}

void picture_find_range(const struct picture *picture, const void *values, double *least, double *most) {
        size_t n = (size_t)picture->width * picture->height * picture->channels;

        for (size_t i = 0; i < n; i++) {
                double value = value_at(picture, values, i);

                if (!isfinite(value))
                        continue;
                *least = fmin(*least, value);
                *most = fmax(*most, value);
        }
}

static uint8_t level_of(double value, double scale, double offset) {
        double level = value * scale + offset;

        if (!(level > 0))
                return 0;
        return level < LEVEL_MOST ? (uint8_t)lround(level) : LEVEL_MOST;
}

void picture_draw(const struct picture *picture, const struct picture_levels *levels, const void *values,
                  uint8_t *pixels) {
        size_t n = (size_t)picture->width * picture->height;

        for (size_t i = 0; i < n; i++)
                for (uint32_t c = 0; c < PICTURE_CHANNELS; c++) {
                        uint32_t from = picture->channels == 1 ? 0 : c;
                        size_t at = picture->interleaved ? i * picture->channels + from : from * n + i;

                        pixels[i * PICTURE_CHANNELS + c] =
                                level_of(value_at(picture, values, at), levels->scale[c], levels->offset[c]);
                }
}
