/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of transforms, and what several of them share.
 *
 * A step sees an image in the frame that users see and may be given a mirrored one: cropping counts from the
 * right end then (image_crop does it), resizing carries the mirroring out first. Random steps draw from a
 * stream of their own, (seed, sample, epoch, RANDOM_TRANSFORM, place in the recipe), so that a row's bits
 * depend on nothing else: neither on the worker, nor on the rows before it, nor on how many numbers another
 * step takes.
 */

#include "daemon/worker/transform.h"

#include "base/fault.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"
#include "daemon/worker/transforms/transforms.h"

#include <errno.h>
#include <inttypes.h>

static const struct transform_ops *const transforms[] = {
        [RECIPE_RESIZE] = &transform_resize,
        [RECIPE_CENTER_CROP] = &transform_center_crop,
        [RECIPE_RANDOM_RESIZED_CROP] = &transform_random_resized_crop,
        [RECIPE_RANDOM_HORIZONTAL_FLIP] = &transform_random_horizontal_flip,
        [RECIPE_NORMALIZE] = &transform_normalize,
};

const struct transform_ops *transform_find(int type) {
        if (type < 0 || (size_t)type >= sizeof(transforms) / sizeof(transforms[0]))
                return NULL;
        return transforms[type];
}

static const enum resize_filter filters[] = {
        [RECIPE_BILINEAR] = RESIZE_BILINEAR, [RECIPE_BICUBIC] = RESIZE_BICUBIC,
        [RECIPE_NEAREST] = RESIZE_NEAREST,   [RECIPE_BOX] = RESIZE_BOX,
        [RECIPE_LANCZOS] = RESIZE_LANCZOS,   [RECIPE_HAMMING] = RESIZE_HAMMING,
};

int transform_resize_image(struct transform_context *context, struct image *image, uint32_t width,
                           uint32_t height, int interpolation, struct fault *fault) {
        struct image *spare = context->spare;
        int r;

        if (width == image->width && height == image->height)
                return image_load(image, fault);
        if (image->width == 0 || image->height == 0 || width == 0 || height == 0)
                return fault_set(fault, -EINVAL,
                                 "cannot resize %" PRIu32 " x %" PRIu32 " pixels to %" PRIu32 " x %" PRIu32,
                                 image->width, image->height, width, height);
        r = codec_check_pixels(width, height, context->pixels_max, fault);
        if (r < 0)
                return r;

        r = image_load(image, fault);
        if (r < 0)
                return r;
        image_settle(image);
        r = image_reset(spare, width, height);
        if (r == 0)
                r = resizer_run(context->resizer, filters[interpolation], spare->pixels, spare->stride, width,
                                height, image->pixels, image->stride, image->width, image->height);
        if (r < 0)
                return fault_set(fault, r,
                                 "no memory to resize %" PRIu32 " x %" PRIu32 " pixels to %" PRIu32
                                 " x %" PRIu32,
                                 image->width, image->height, width, height);
        image_swap(image, spare);
        return 0;
}
