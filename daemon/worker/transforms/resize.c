/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * torchvision.transforms.Resize on a PIL image.
 *
 * size {0, n}: the shorter edge becomes n and the longer one int(n * long / short), a division in double;
 * with max_size, a longer edge above it becomes max_size and the shorter one int(max_size * new_short /
 * new_long). Otherwise size is {height, width}. Nothing is drawn at random.
 */

#include "daemon/worker/transforms/transforms.h"

#include "base/fault.h"
#include "daemon/worker/image.h"

#include <errno.h>
#include <inttypes.h>

/* Python's int(a * b / c): products of two edges are exact in double. */
static uint64_t scaled(uint64_t a, uint64_t b, uint64_t c) {
        return (uint64_t)((double)(a * b) / (double)c);
}

void transform_resized_size(const struct recipe_transform *recipe, uint32_t width, uint32_t height,
                            uint64_t *to_width, uint64_t *to_height) {
        uint32_t shorter = width <= height ? width : height, longer = width <= height ? height : width;
        uint64_t new_shorter = recipe->size[1], new_longer;

        if (recipe->size[0] != 0) {
                *to_height = recipe->size[0];
                *to_width = recipe->size[1];
                return;
        }

        new_longer = scaled(new_shorter, longer, shorter);
        if (recipe->max_size != 0 && new_longer > recipe->max_size) {
                new_shorter = scaled(recipe->max_size, new_shorter, new_longer);
                new_longer = recipe->max_size;
        }
        *to_width = width <= height ? new_shorter : new_longer;
        *to_height = width <= height ? new_longer : new_shorter;
}

static int apply(const struct recipe_transform *recipe, struct transform_context *context,
                 struct image *image, struct fault *fault) {
        uint64_t width, height;

        if (image->width == 0 || image->height == 0)
                return fault_set(fault, -EINVAL, "cannot resize an image without pixels");
        transform_resized_size(recipe, image->width, image->height, &width, &height);
        if (width > UINT32_MAX || height > UINT32_MAX)
                return fault_set(fault, -EFBIG,
                                 "too many pixels: %" PRIu32 " x %" PRIu32 " would be resized to %" PRIu64
                                 " x %" PRIu64,
                                 image->width, image->height, width, height);
        return transform_resize_image(context, image, (uint32_t)width, (uint32_t)height,
                                      recipe->interpolation, fault);
}

const struct transform_ops transform_resize = {"resize", apply};
