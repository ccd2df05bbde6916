/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * torchvision.transforms.CenterCrop on a PIL image.
 *
 * An image smaller than the window along an axis gets black borders first, floor(missing / 2) before and the
 * rest behind it. Then top = int(round((height - crop_height) / 2.0)), with Python's round: a half goes to
 * the even number. Nothing is drawn at random.
 */

#include "daemon/worker/transforms/transforms.h"

#include "base/fault.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* round(excess / 2.0) to the even number at a half. */
static uint32_t half_even(uint32_t excess) {
        uint32_t half = excess / 2;

        return half + (excess & half & 1);
}

/* Puts the image, settled, into the middle of a black one of at least the window's size. */
static int pad(struct transform_context *context, struct image *image, uint32_t width, uint32_t height,
               struct fault *fault) {
        struct image *spare = context->spare;
        uint32_t padded_width = width > image->width ? width : image->width;
        uint32_t padded_height = height > image->height ? height : image->height;
        uint32_t left = (padded_width - image->width) / 2, top = (padded_height - image->height) / 2;
        int r;

        r = codec_check_pixels(padded_width, padded_height, context->pixels_max, fault);
        if (r < 0)
                return r;
        r = image_load(image, fault);
        if (r < 0)
                return r;
        r = image_reset(spare, padded_width, padded_height);
        if (r < 0)
                return fault_set(fault, r, "no memory for %" PRIu32 " x %" PRIu32 " pixels", padded_width,
                                 padded_height);

        image_settle(image);
        memset(spare->pixels, 0, spare->stride * padded_height);
        for (uint32_t y = 0; y < image->height; y++)
                memcpy(spare->pixels + (size_t)(top + y) * spare->stride + (size_t)left * 3,
                       image->pixels + (size_t)y * image->stride, (size_t)image->width * 3);
        image_swap(image, spare);
        return 0;
}

static int apply(const struct recipe_transform *recipe, struct transform_context *context,
                 struct image *image, struct fault *fault) {
        /* a single number, {0, n}, is a square */
        uint32_t height = recipe->size[0] > 0 ? recipe->size[0] : recipe->size[1], width = recipe->size[1];
        int r;

        if (width > image->width || height > image->height) {
                r = pad(context, image, width, height, fault);
                if (r < 0)
                        return r;
        }
        image_crop(image, half_even(image->width - width), half_even(image->height - height), width, height);
        return image_load(image, fault);
}

const struct transform_ops transform_center_crop = {"center_crop", apply};
