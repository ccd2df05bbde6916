/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * torchvision.transforms.RandomHorizontalFlip. One draw, random_unit; the image is mirrored when it is below
 * p. No pixel moves: the flag tells whoever reads the image next.
 */

#include "daemon/worker/transforms/transforms.h"

#include "daemon/worker/image.h"

static int apply(const struct recipe_transform *recipe, struct transform_context *context,
                 struct image *image, struct fault *fault) {
        struct random random;

        random_init(&random, context->seed, context->sample, context->epoch, RANDOM_TRANSFORM, context->step);
        if (random_unit(&random) < recipe->p)
                image->mirrored = !image->mirrored;
        return 0;
}

const struct transform_ops transform_random_horizontal_flip = {"random_horizontal_flip", apply};
