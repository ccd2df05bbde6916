/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An image is a buffer and a view of it. Cropping moves the view and mirroring sets a flag, so a chain of
 * transforms touches the pixels only where arithmetic on them is due; whoever writes the result reads through
 * the view.
 *
 * Invariants: the view lies inside buffer[0 .. capacity); an image without pixels has width = height = 0.
 * `width`, `height` and every window are in the frame that users see. The flag says that this frame is the
 * stored one with left and right exchanged, so a window's left edge is counted from the other end of the
 * stored row.
 *
 * Mirroring is put off because in the usual recipe (crop, flip, normalize) the writer reads from the right
 * end for free. Resizing must not do that: its weights, rounded to 22 bits, are not exactly symmetric, and
 * "flip, then resize" has to give the bits that Pillow gives. It calls image_settle first.
 *
 * Reading is put off for the same reason: of a photograph that will be cropped at random, about half the
 * pixels are never looked at. A codec that can stop short of computing them learns the window when image_load
 * is called.
 */

#include "daemon/worker/image.h"

#include "daemon/worker/kernels/kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
        BYTES = 3, /* of a pixel */
};

static void image_clear(struct image *image) {
        image->pixels = NULL;
        image->stride = 0;
        image->width = image->height = 0;
        image->mirrored = 0;
        image->load = NULL;
        image->loader = NULL;
        image->left = image->top = 0;
}

int image_reset(struct image *image, uint32_t width, uint32_t height) {
        size_t stride, size;

        image_clear(image);
        if (__builtin_mul_overflow((size_t)width, (size_t)BYTES, &stride) ||
            __builtin_mul_overflow(stride, (size_t)height, &size))
                return -EOVERFLOW;

        if (size > image->capacity) {
                /* Not realloc: the old pixels are of no use to anybody. */
                free(image->buffer);
                image->capacity = 0;
                image->buffer = malloc(size);
                if (!image->buffer)
                        return -ENOMEM;
                image->capacity = size;
        }

        image->pixels = image->buffer;
        image->stride = stride;
        image->width = width;
        image->height = height;
        return 0;
}

void image_deinit(struct image *image) {
        free(image->buffer);
        image->buffer = NULL;
        image->capacity = 0;
        image_clear(image);
}

void image_defer(struct image *image, uint32_t width, uint32_t height,
                 int (*load)(struct image *image, struct fault *fault), void *loader) {
        image_clear(image);
        image->width = width;
        image->height = height;
        image->load = load;
        image->loader = loader;
}

int image_load(struct image *image, struct fault *fault) {
        int mirrored = image->mirrored, r;

        if (!image->load)
                return 0;
        r = image->load(image, fault);
        if (r < 0)
                image_clear(image);
        else
                image->mirrored = mirrored;
        return r;
}

void image_crop(struct image *image, uint32_t left, uint32_t top, uint32_t width, uint32_t height) {
        uint32_t stored_left = image->mirrored ? image->width - left - width : left;

        if (image->load) {
                image->left += stored_left;
                image->top += top;
        } else {
                image->pixels += (size_t)top * image->stride + (size_t)stored_left * BYTES;
        }
        image->width = width;
        image->height = height;
}

void image_settle(struct image *image) {
        if (!image->mirrored)
                return;
        image->mirrored = 0;
        mirror_rows(image->pixels, image->stride, image->width, image->height);
}

void image_swap(struct image *a, struct image *b) {
        struct image kept = *a;

        *a = *b;
        *b = kept;
}
