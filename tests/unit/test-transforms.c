/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Transforms against torchvision's rules: sizes worked out by hand (or by its formulas in Python, noted
 * where), crops at halves, the draws of the random crop made once more here in the documented order, and
 * steps after a flip against the same steps on an image that was really mirrored.
 */

#include "base/fault.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"
#include "daemon/worker/kernels/kernels.h"
#include "daemon/worker/transform.h"
#include "daemon/worker/transforms/transforms.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct image spare;
static struct resizer resizer;

static void release(void) {
        image_deinit(&spare);
        resizer_deinit(&resizer);
}

static struct transform_context context_of(uint64_t sample, uint16_t step) {
        return (struct transform_context){.seed = 7,
                                          .epoch = 3,
                                          .sample = sample,
                                          .pixels_max = CODEC_PIXELS_MAX,
                                          .step = step,
                                          .spare = &spare,
                                          .resizer = &resizer};
}

static uint8_t value_at(uint32_t x, uint32_t y, unsigned c) {
        return (uint8_t)(x * 31 + y * 57 + c * 101 + (x * y >> 2));
}

static void draw(struct image *image, uint32_t width, uint32_t height, int backwards) {
        ck_assert_int_eq(image_reset(image, width, height), 0);
        for (uint32_t y = 0; y < height; y++)
                for (uint32_t x = 0; x < width; x++)
                        for (unsigned c = 0; c < 3; c++)
                                image->pixels[y * image->stride + x * 3 + c] =
                                        value_at(backwards ? width - 1 - x : x, y, c);
}

/* What a reader of the view sees at a place. */
static const uint8_t *seen(const struct image *image, uint32_t x, uint32_t y) {
        return image->pixels + y * image->stride + (image->mirrored ? image->width - 1 - x : x) * 3;
}

static void check_same(const struct image *a, const struct image *b) {
        ck_assert_uint_eq(a->width, b->width);
        ck_assert_uint_eq(a->height, b->height);
        for (uint32_t y = 0; y < a->height; y++)
                for (uint32_t x = 0; x < a->width; x++)
                        ck_assert_mem_eq(seen(a, x, y), seen(b, x, y), 3);
}

static int apply(const struct recipe_transform *recipe, struct image *image, uint64_t sample, uint16_t step,
                 struct fault *fault) {
        struct transform_context context = context_of(sample, step);

        return transform_find(recipe->type)->apply(recipe, &context, image, fault);
}

START_TEST(test_the_table_is_in_order) {
        static const char *const names[] = {"resize", "center_crop", "random_resized_crop",
                                            "random_horizontal_flip", "normalize"};

        for (int i = 0; i < 5; i++)
                ck_assert_str_eq(transform_find(i)->name, names[i]);
        ck_assert_ptr_null(transform_find(5));
        ck_assert_ptr_null(transform_find(-1));
}
END_TEST

/* torchvision.transforms.functional._compute_resized_output_size. */
START_TEST(test_resize_finds_torchvisions_size) {
        static const struct {
                uint32_t size[2], max_size, width, height, to_width, to_height;
        } cases[] = {
                {{0, 256}, 0, 500, 375, 341, 256},
                {{0, 256}, 0, 375, 500, 256, 341},
                {{0, 256}, 0, 256, 256, 256, 256},
                {{0, 224}, 0, 333, 500, 224, 336},
                {{0, 7}, 0, 3, 1000, 7, 2333},
                {{0, 256}, 300, 1000, 500, 300, 150},
                {{0, 256}, 512, 1000, 500, 512, 256},
                {{0, 256}, 511, 1000, 500, 511, 255},
                {{0, 100}, 101, 1000, 3, 101, 0},
                {{20, 30}, 0, 999, 3, 30, 20},
                {{0, 1}, 0, 3, 2, 1, 1},
                {{0, 65535}, 0, 65535, 1, UINT32_C(4294836225), 65535},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct recipe_transform recipe = {.type = RECIPE_RESIZE,
                                                  .size = {cases[i].size[0], cases[i].size[1]},
                                                  .max_size = cases[i].max_size};
                uint64_t width, height;

                transform_resized_size(&recipe, cases[i].width, cases[i].height, &width, &height);
                ck_assert_msg(width == cases[i].to_width && height == cases[i].to_height,
                              "case %zu: %ju x %ju", i, (uintmax_t)width, (uintmax_t)height);
        }
}
END_TEST

START_TEST(test_resize_refuses_what_it_must) {
        struct recipe_transform large = {.type = RECIPE_RESIZE, .size = {0, 65535}};
        struct recipe_transform thin = {.type = RECIPE_RESIZE, .size = {0, 100}, .max_size = 101};
        struct image image = {0};
        struct fault fault = {0};

        draw(&image, 1000, 3, 0);
        ck_assert_int_eq(apply(&large, &image, 0, 0, &fault), -EFBIG);
        ck_assert_ptr_nonnull(strstr(fault.text, "too many pixels"));
        ck_assert_int_eq(apply(&thin, &image, 0, 0, &fault), -EINVAL);
        ck_assert_uint_eq(image.width, 1000); /* still there */
        image_deinit(&image);
        release();
}
END_TEST

START_TEST(test_resize_of_the_same_size_moves_nothing) {
        struct recipe_transform recipe = {.type = RECIPE_RESIZE, .size = {30, 40}};
        struct image image = {0};
        const uint8_t *pixels;

        draw(&image, 40, 30, 0);
        image.mirrored = 1;
        pixels = image.pixels;
        ck_assert_int_eq(apply(&recipe, &image, 0, 0, NULL), 0);
        ck_assert_ptr_eq(image.pixels, pixels);
        ck_assert_int_eq(image.mirrored, 1);
        image_deinit(&image);
        release();
}
END_TEST

/* left and top as Python's int(round((image - crop) / 2.0)): 2.5 is 2, 3.5 is 4. */
START_TEST(test_center_crop_rounds_halves_to_even) {
        static const uint32_t cases[][3] = {{10, 4, 3}, {10, 5, 2}, {11, 4, 4}, {12, 5, 4}, {10, 10, 0},
                                            {10, 9, 0}, {13, 2, 6}, {12, 1, 6}, {12, 3, 4}};

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct recipe_transform recipe = {.type = RECIPE_CENTER_CROP,
                                                  .size = {cases[i][1], cases[i][1]}};
                struct image image = {0};

                draw(&image, cases[i][0], cases[i][0], 0);
                ck_assert_int_eq(apply(&recipe, &image, 0, 0, NULL), 0);
                ck_assert_uint_eq(image.width, cases[i][1]);
                ck_assert_uint_eq(image.height, cases[i][1]);
                ck_assert_uint_eq(*seen(&image, 0, 0), value_at(cases[i][2], cases[i][2], 0));
                image_deinit(&image);
        }
}
END_TEST

/* A smaller image: black around it, the odd line behind and below; the other axis is cropped. */
START_TEST(test_center_crop_pads) {
        struct recipe_transform recipe = {.type = RECIPE_CENTER_CROP, .size = {4, 8}};
        struct image image = {0};

        draw(&image, 5, 9, 0);
        ck_assert_int_eq(apply(&recipe, &image, 0, 0, NULL), 0);
        ck_assert_uint_eq(image.width, 8);
        ck_assert_uint_eq(image.height, 4);
        for (uint32_t y = 0; y < 4; y++)
                for (uint32_t x = 0; x < 8; x++)
                        for (unsigned c = 0; c < 3; c++) {
                                /* pad left (8 - 5) / 2 = 1; top round((9 - 4) / 2.0) = 2 */
                                uint8_t want = x >= 1 && x < 6 ? value_at(x - 1, y + 2, c) : 0;

                                ck_assert_uint_eq(seen(&image, x, y)[c], want);
                        }
        image_deinit(&image);
        release();
}
END_TEST

static struct recipe_transform random_crop(void) {
        return (struct recipe_transform){.type = RECIPE_RANDOM_RESIZED_CROP,
                                         .size = {24, 32},
                                         .scale = {0.08, 1},
                                         .ratio = {3. / 4, 4. / 3}};
}

/* get_params once more, in the documented order of draws. 0 when all ten tries miss. */
static int window_again(uint64_t sample, uint16_t step, uint32_t width, uint32_t height,
                        struct transform_window *window) {
        struct random random;

        random_init(&random, 7, sample, 3, RANDOM_TRANSFORM, step);
        for (int i = 0; i < 10; i++) {
                double area = (double)width * height * (0.08 + (1 - 0.08) * random_unit(&random));
                double low = random_log(3. / 4), high = random_log(4. / 3);
                double aspect = random_exp(low + (high - low) * random_unit(&random));
                double w = nearbyint(sqrt(area * aspect)), h = nearbyint(sqrt(area / aspect));

                if (w > 0 && w <= width && h > 0 && h <= height) {
                        window->top = random_below(&random, height - (uint32_t)h + 1);
                        window->left = random_below(&random, width - (uint32_t)w + 1);
                        window->width = (uint32_t)w;
                        window->height = (uint32_t)h;
                        return 1;
                }
        }
        return 0;
}

START_TEST(test_random_crop_draws_in_order) {
        struct recipe_transform recipe = random_crop();
        double shares = 0;
        unsigned found = 0;

        for (uint64_t sample = 0; sample < 3000; sample++) {
                struct transform_window want, got;
                struct random random;

                random_init(&random, 7, sample, 3, RANDOM_TRANSFORM, 2);
                transform_random_window(&recipe, &random, 500, 375, &got);
                ck_assert_uint_le(got.left + got.width, 500);
                ck_assert_uint_le(got.top + got.height, 375);
                if (!window_again(sample, 2, 500, 375, &want))
                        continue;
                ck_assert_mem_eq(&want, &got, sizeof(want));
                found++;
                shares += (double)got.width * got.height / (500 * 375);
        }
        /* Large areas miss more often at the rim, so the mean is below (0.08 + 1) / 2. */
        ck_assert_uint_gt(found, 2900);
        ck_assert_double_gt(shares / found, 0.40);
        ck_assert_double_lt(shares / found, 0.54);
}
END_TEST

/* No window of a shape from 3/4 to 4/3 and 8 % or more fits an image of 100 x 1. */
START_TEST(test_random_crop_falls_back_to_the_middle) {
        static const uint32_t cases[][6] = {{1000, 10, 493, 0, 13, 10},
                                            {10, 1000, 0, 493, 10, 13},
                                            {100, 1, 49, 0, 1, 1},
                                            {1, 100, 0, 49, 1, 1}};
        struct recipe_transform recipe = random_crop();

        for (size_t i = 0; i < 4; i++) {
                struct transform_window got;
                struct random random;

                random_init(&random, 1, i, 0, RANDOM_TRANSFORM, 0);
                recipe.scale[0] = recipe.scale[1] = 1;
                transform_random_window(&recipe, &random, cases[i][0], cases[i][1], &got);
                ck_assert_uint_eq(got.left, cases[i][2]);
                ck_assert_uint_eq(got.top, cases[i][3]);
                ck_assert_uint_eq(got.width, cases[i][4]);
                ck_assert_uint_eq(got.height, cases[i][5]);
        }
}
END_TEST

START_TEST(test_random_crop_resizes_its_window) {
        struct recipe_transform recipe = random_crop();
        struct transform_window window;
        struct image image = {0}, want = {0}, crop = {0};
        struct resizer own = {0};

        ck_assert(window_again(11, 1, 120, 90, &window));
        draw(&image, 120, 90, 0);
        draw(&crop, 120, 90, 0);
        image_reset(&want, 32, 24);
        resizer_run(&own, RESIZE_BILINEAR, want.pixels, want.stride, 32, 24,
                    crop.pixels + window.top * crop.stride + window.left * 3, crop.stride, window.width,
                    window.height);
        ck_assert_int_eq(apply(&recipe, &image, 11, 1, NULL), 0);
        check_same(&image, &want);
        image_deinit(&image);
        image_deinit(&want);
        image_deinit(&crop);
        resizer_deinit(&own);
        release();
}
END_TEST

/* Each name of the configuration reaches the filter of that name. */
START_TEST(test_interpolations_are_filters) {
        static const enum resize_filter filters[] = {
                [RECIPE_BILINEAR] = RESIZE_BILINEAR, [RECIPE_BICUBIC] = RESIZE_BICUBIC,
                [RECIPE_NEAREST] = RESIZE_NEAREST,   [RECIPE_BOX] = RESIZE_BOX,
                [RECIPE_LANCZOS] = RESIZE_LANCZOS,   [RECIPE_HAMMING] = RESIZE_HAMMING,
        };

        for (int i = 0; i < 6; i++) {
                struct recipe_transform recipe = {
                        .type = RECIPE_RESIZE, .size = {24, 32}, .interpolation = i};
                struct image image = {0}, want = {0}, whole = {0};
                struct resizer own = {0};

                draw(&image, 120, 90, 0);
                draw(&whole, 120, 90, 0);
                image_reset(&want, 32, 24);
                resizer_run(&own, filters[i], want.pixels, want.stride, 32, 24, whole.pixels, whole.stride,
                            120, 90);
                ck_assert_int_eq(apply(&recipe, &image, 0, 0, NULL), 0);
                check_same(&image, &want);
                image_deinit(&image);
                image_deinit(&want);
                image_deinit(&whole);
                resizer_deinit(&own);
        }
        release();
}
END_TEST

START_TEST(test_flip_goes_by_the_draw) {
        struct recipe_transform recipe = {.type = RECIPE_RANDOM_HORIZONTAL_FLIP, .p = 0.5};
        unsigned flipped = 0;

        for (uint64_t sample = 0; sample < 4000; sample++) {
                struct image image = {0};
                struct random random;

                random_init(&random, 7, sample, 3, RANDOM_TRANSFORM, 4);
                ck_assert_int_eq(apply(&recipe, &image, sample, 4, NULL), 0);
                ck_assert_int_eq(image.mirrored, random_unit(&random) < 0.5);
                flipped += image.mirrored;
        }
        ck_assert_uint_gt(flipped, 1850);
        ck_assert_uint_lt(flipped, 2150);
}
END_TEST

START_TEST(test_flip_at_the_ends_of_p) {
        struct recipe_transform recipe = {.type = RECIPE_RANDOM_HORIZONTAL_FLIP};
        struct image image = {0};

        for (uint64_t sample = 0; sample < 100; sample++) {
                recipe.p = 0;
                image.mirrored = 0;
                apply(&recipe, &image, sample, 0, NULL);
                ck_assert_int_eq(image.mirrored, 0);
                recipe.p = 1;
                apply(&recipe, &image, sample, 0, NULL);
                ck_assert_int_eq(image.mirrored, 1);
                apply(&recipe, &image, sample, 1, NULL);
                ck_assert_int_eq(image.mirrored, 0); /* twice is not at all */
        }
}
END_TEST

/* Every step gives after a flip what it gives on an image that was mirrored pixel by pixel. */
START_TEST(test_steps_after_a_flip) {
        struct recipe_transform steps[] = {
                {.type = RECIPE_CENTER_CROP, .size = {20, 33}},
                {.type = RECIPE_CENTER_CROP, .size = {20, 90}},
                {.type = RECIPE_RESIZE, .size = {0, 31}},
                {.type = RECIPE_RESIZE, .size = {40, 77}, .interpolation = RECIPE_BICUBIC},
                {.type = RECIPE_RESIZE, .size = {17, 77}, .interpolation = RECIPE_NEAREST},
                {.type = RECIPE_RESIZE, .size = {40, 21}, .interpolation = RECIPE_LANCZOS},
                random_crop(),
        };

        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
                for (uint64_t sample = 0; sample < 20; sample++) {
                        struct image flagged = {0}, mirrored = {0};

                        draw(&flagged, 60, 50, 0);
                        flagged.mirrored = 1;
                        draw(&mirrored, 60, 50, 1);
                        image_crop(&flagged, 3, 2, 50, 40);
                        image_crop(&mirrored, 3, 2, 50, 40);
                        ck_assert_int_eq(apply(&steps[i], &flagged, sample, 1, NULL), 0);
                        ck_assert_int_eq(apply(&steps[i], &mirrored, sample, 1, NULL), 0);
                        check_same(&flagged, &mirrored);
                        image_deinit(&flagged);
                        image_deinit(&mirrored);
                }
        release();
}
END_TEST

START_TEST(test_normalize_leaves_a_note) {
        struct recipe_transform recipe = {
                .type = RECIPE_NORMALIZE, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
        struct transform_context context = context_of(0, 0);
        struct image image = {0};

        ck_assert_int_eq(transform_find(RECIPE_NORMALIZE)->apply(&recipe, &context, &image, NULL), 0);
        ck_assert_int_eq(context.normalize, 1);
        ck_assert_float_eq(context.mean[1], 0.456f);
        ck_assert_float_eq(context.std[2], 0.225f);
}
END_TEST

START_TEST(test_image_reset_reuses_and_refuses) {
        struct image image = {0};
        const uint8_t *buffer;

        ck_assert_int_eq(image_reset(&image, 100, 50), 0);
        ck_assert_uint_eq(image.stride, 300);
        buffer = image.buffer;
        image.mirrored = 1;
        ck_assert_int_eq(image_reset(&image, 10, 5), 0);
        ck_assert_ptr_eq(image.buffer, buffer);
        ck_assert_int_eq(image.mirrored, 0);
        ck_assert_int_lt(image_reset(&image, UINT32_MAX, UINT32_MAX), 0);
        ck_assert_uint_eq(image.width, 0);
        image_deinit(&image);
        image_deinit(&image);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("transforms");
        TCase *tcase = tcase_create("transforms");

        tcase_add_test(tcase, test_the_table_is_in_order);
        tcase_add_test(tcase, test_resize_finds_torchvisions_size);
        tcase_add_test(tcase, test_resize_refuses_what_it_must);
        tcase_add_test(tcase, test_resize_of_the_same_size_moves_nothing);
        tcase_add_test(tcase, test_center_crop_rounds_halves_to_even);
        tcase_add_test(tcase, test_center_crop_pads);
        tcase_add_test(tcase, test_random_crop_draws_in_order);
        tcase_add_test(tcase, test_random_crop_falls_back_to_the_middle);
        tcase_add_test(tcase, test_random_crop_resizes_its_window);
        tcase_add_test(tcase, test_interpolations_are_filters);
        tcase_add_test(tcase, test_flip_goes_by_the_draw);
        tcase_add_test(tcase, test_flip_at_the_ends_of_p);
        tcase_add_test(tcase, test_steps_after_a_flip);
        tcase_add_test(tcase, test_normalize_leaves_a_note);
        tcase_add_test(tcase, test_image_reset_reuses_and_refuses);
        tcase_set_timeout(tcase, 60);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
