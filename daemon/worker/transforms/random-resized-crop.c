/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * torchvision.transforms.RandomResizedCrop on a PIL image: a window of random area and shape, resized.
 *
 * Draws, in this order; the order is part of the bits. Up to ten times:
 *   1. random_unit: the area, uniform in scale, as a share of the image's;
 *   2. random_unit: the logarithm of width / height, uniform between the logarithms of ratio;
 *   then w = round(sqrt(area * aspect)), h = round(sqrt(area / aspect)), halves to the even number; if both
 * lie in the image:
 *   3. random_below(height - h + 1): top;
 *   4. random_below(width - w + 1): left; done.
 * After ten misses the largest window in the middle whose shape is allowed is taken, and nothing more is
 * drawn.
 *
 * exp and log are ours, since libm's differ from CPU to CPU; sqrt is correctly rounded everywhere. uniform(a,
 * b) is a + (b - a) * u in double, where torchvision uses float32: the same distribution, not the same
 * numbers, which its other generator rules out anyway.
 */

#include "daemon/worker/transforms/transforms.h"

#include "daemon/worker/image.h"

#include <math.h>

enum {
        TRIES = 10,
};

static double uniform(struct random *random, double low, double high) {
        return low + (high - low) * random_unit(random);
}

/* In the default rounding mode, which nothing here changes: a half to the even number, like Python's round.
 */
static double edge_of(double area) {
        return rint(sqrt(area));
}

/* A window of one pixel at least, which round() might not leave of a very thin image. */
static uint32_t edge_at_least_one(double edge) {
        edge = rint(edge);
        return edge < 1 ? 1 : (uint32_t)edge;
}

static void central_window(const double ratio[2], uint32_t width, uint32_t height,
                           struct transform_window *window) {
        double low = ratio[0] < ratio[1] ? ratio[0] : ratio[1],
               high = ratio[0] < ratio[1] ? ratio[1] : ratio[0];
        double shape = (double)width / height;

        window->width = width;
        window->height = height;
        if (shape < low)
                window->height = edge_at_least_one(width / low);
        else if (shape > high)
                window->width = edge_at_least_one(height * high);
        window->top = (height - window->height) / 2;
        window->left = (width - window->width) / 2;
}

void transform_random_window(const struct recipe_transform *recipe, struct random *random, uint32_t width,
                             uint32_t height, struct transform_window *window) {
        double area = (double)width * height;
        double log_low = random_log(recipe->ratio[0]), log_high = random_log(recipe->ratio[1]);

        for (unsigned i = 0; i < TRIES; i++) {
                double target = area * uniform(random, recipe->scale[0], recipe->scale[1]);
                double aspect = random_exp(uniform(random, log_low, log_high));
                double w = edge_of(target * aspect), h = edge_of(target / aspect);

                if (w < 1 || w > width || h < 1 || h > height)
                        continue;
                window->width = (uint32_t)w;
                window->height = (uint32_t)h;
                window->top = random_below(random, height - window->height + 1);
                window->left = random_below(random, width - window->width + 1);
                return;
        }
        central_window(recipe->ratio, width, height, window);
}

static int apply(const struct recipe_transform *recipe, struct transform_context *context,
                 struct image *image, struct fault *fault) {
        /* a single number, {0, n}, is a square */
        uint32_t height = recipe->size[0] > 0 ? recipe->size[0] : recipe->size[1], width = recipe->size[1];
        struct transform_window window;
        struct random random;

        random_init(&random, context->seed, context->sample, context->epoch, RANDOM_TRANSFORM, context->step);
        transform_random_window(recipe, &random, image->width, image->height, &window);
        image_crop(image, window.left, window.top, window.width, window.height);
        return transform_resize_image(context, image, width, height, recipe->interpolation, fault);
}

const struct transform_ops transform_random_resized_crop = {"random_resized_crop", apply};
