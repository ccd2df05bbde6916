#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pictures that were stored lying on a side, and the EXIF tag that says so. */

#include <stddef.h>
#include <stdint.h>

struct codec_window;
struct image;

enum {
        ORIENT_UPRIGHT = 1, /* also what a picture without the tag is */
        ORIENT_LAST = 8,
};

/* The orientation in EXIF data: a TIFF header and its directories, with or without "Exif\0\0" before them.
 * ORIENT_UPRIGHT where there is none, or none that can be read. */
int orient_of_exif(const uint8_t *bytes, size_t length);

/* Whether width and height change places. */
static inline int orient_swaps(int orientation) {
        return orientation >= 5;
}

/* From the upright picture to the stored one, which is width x height: where its pixels are. */
void orient_window(int orientation, uint32_t width, uint32_t height, struct codec_window *window);

/* Moves the pixels of a part of the stored picture to where they are in the upright one; *upright becomes
 * that image. 0, -EOVERFLOW or -ENOMEM. */
int orient_image(int orientation, const struct image *stored, struct image *upright);
