/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * torchvision.transforms.Normalize, as a note to whoever writes the result: pixels stay bytes until then, and
 * a table of 256 values for each channel holds every result (kernels/convert.c). mean and std become float32
 * as PyTorch makes them tensors of the image's type. Nothing is drawn at random.
 */

#include "daemon/worker/transforms/transforms.h"

static int apply(const struct recipe_transform *recipe, struct transform_context *context,
                 struct image *image, struct fault *fault) {
        for (unsigned c = 0; c < 3; c++) {
                context->mean[c] = (float)recipe->mean[c];
                context->std[c] = (float)recipe->std[c];
        }
        context->normalize = 1;
        return 0;
}

const struct transform_ops transform_normalize = {"normalize", apply};
