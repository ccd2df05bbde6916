#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A field's values as a picture: back to red, green and blue of 8 bits. */

#include "client/pinfeed.h"

#include <stdbool.h>
#include <stdint.h>

enum {
        PICTURE_CHANNELS = 3,     /* of what comes out, whatever goes in */
        PICTURE_EDGE_MAX = 65535, /* a field with a longer one is no picture */
};

/* How it lies in a row. */
struct picture {
        enum pinfeed_dtype dtype;
        uint32_t width, height;
        uint32_t channels; /* 1 or 3 */
        bool interleaved;  /* those of a pixel lie side by side */
};

/* What a value means: value * scale + offset is its level, 0 ... 255, for each channel. */
struct picture_levels {
        double scale[PICTURE_CHANNELS], offset[PICTURE_CHANNELS];
};

/* Whether the field can be one: uint8 or a float, of three dimensions, one of which is the 1 or 3 channels.
 */
bool picture_init(struct picture *picture, const struct pinfeed_field *field);

/* Levels as they are; of values that were made by ((level / 255) - mean) / std; of values from least to most,
 * as black and white. */
void picture_levels_plain(struct picture_levels *levels);
void picture_levels_normalized(struct picture_levels *levels, const double mean[PICTURE_CHANNELS],
                               const double std[PICTURE_CHANNELS]);
void picture_levels_between(struct picture_levels *levels, double least, double most);

/* Widens *least ... *most to the finite values of the picture; begin with INFINITY and -INFINITY. */
void picture_find_range(const struct picture *picture, const void *values, double *least, double *most);

/* To width * height * PICTURE_CHANNELS bytes, rounded; what is below 0 or no number is 0, what is above 255
 * is that. */
void picture_draw(const struct picture *picture, const struct picture_levels *levels, const void *values,
                  uint8_t *pixels);
