#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of this folder share; the rest of the worker knows transform_find only. */

#include "daemon/worker/kernels/kernels.h"
#include "daemon/worker/transform.h"

extern const struct transform_ops transform_resize;
extern const struct transform_ops transform_center_crop;
extern const struct transform_ops transform_random_resized_crop;
extern const struct transform_ops transform_random_horizontal_flip;
extern const struct transform_ops transform_normalize;

/* A window in an image, in the frame that users see. */
struct transform_window {
        uint32_t left, top, width, height;
};

/* torchvision's RandomResizedCrop.get_params. */
void transform_random_window(const struct recipe_transform *recipe, struct random *random, uint32_t width,
                             uint32_t height, struct transform_window *window);

/* torchvision's size rule of Resize({0, shorter}, max_size) and Resize({height, width}). */
void transform_resized_size(const struct recipe_transform *recipe, uint32_t width, uint32_t height,
                            uint64_t *to_width, uint64_t *to_height);

/* Resizes to exactly width x height; an image that has this size stays as it is. 0, -EINVAL (nothing to
 * resize from or to), -EFBIG or -ENOMEM. */
int transform_resize_image(struct transform_context *context, struct image *image, uint32_t width,
                           uint32_t height, int interpolation, struct fault *fault);
