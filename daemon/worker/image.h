#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* An RGB image in memory that is reused from sample to sample. */

#include <stddef.h>
#include <stdint.h>

struct fault;

/* Rows top to bottom, 3 bytes a pixel, `stride` bytes from row to row. `pixels` may point into the middle of
 * the buffer (a crop is only a moved window) and `mirrored` asks whoever writes the result to read each row
 * from its right end. The buffer grows and never shrinks.
 *
 * An image can be pending: its size is known, its pixels are not read yet, and `load` will read those of the
 * view and no others. Transforms that fix a size leave a loaded image; who touches pixels before calls
 * image_load. */
struct image {
        uint8_t *pixels;
        size_t stride;
        uint32_t width;
        uint32_t height;
        int mirrored;
        int (*load)(struct image *image, struct fault *fault); /* NULL: the pixels are there */
        void *loader;                                          /* for `load` */
        uint32_t left, top; /* pending: where the view lies in the stored picture */
        uint8_t *buffer;
        size_t capacity;
};

/* Makes room for width x height, rows packed; contents undefined. 0, -EOVERFLOW, -ENOMEM (the image is empty
 * then). */
int image_reset(struct image *image, uint32_t width, uint32_t height);
void image_deinit(struct image *image);

/* Makes the image a pending one of this size. */
void image_defer(struct image *image, uint32_t width, uint32_t height,
                 int (*load)(struct image *image, struct fault *fault), void *loader);

/* Reads the pixels of a pending image. 0, at once when they are there, or what the loader failed with (the
 * image is empty then). */
int image_load(struct image *image, struct fault *fault);

/* Narrows the view to a window given in the frame that users see (mirrored or not). It must lie inside. */
void image_crop(struct image *image, uint32_t left, uint32_t top, uint32_t width, uint32_t height);

/* Carries out a mirroring on the pixels, so that rows can be read from the left. */
void image_settle(struct image *image);

/* Exchanges contents and buffers. */
void image_swap(struct image *a, struct image *b);
