#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A transform is a step on one image. One file under transforms/ and one line in transform.c make a new one.
 */

#include "proto/random.h"
#include "proto/recipe.h"

struct fault;
struct image;
struct resizer;

/* What all steps of one sample share. */
struct transform_context {
        uint64_t seed;
        uint32_t epoch;
        uint64_t sample;
        uint64_t pixels_max; /* of what a step makes */
        uint16_t step; /* place in the recipe: the `step` of random_init, so that steps never share numbers */
        struct image *spare; /* where a step may put its result, see below */
        struct resizer
                *resizer; /* of kernels/kernels.h, zeroed once and kept from sample to sample; never NULL */
        float mean[3], std[3]; /* what the writer of the result shall normalise by; 0 and 1 at first */
        int normalize;
};

struct transform_ops {
        const char *name; /* as in recipe_transforms[] */
        /* Changes *image in place (a moved window, a flag), or fills *context->spare and swaps the two. 0 or
         * a negative errno. */
        int (*apply)(const struct recipe_transform *recipe, struct transform_context *context,
                     struct image *image, struct fault *fault);
};

/* By place: enum recipe_transform_type. */
const struct transform_ops *transform_find(int type);
