#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A few small JPEGs in the temporary folder, and recipes for unit tests. */

#include "tests/support/folder.h"

#include <jpeglib.h>

#define SYNTHETIC(keys)                                                                                      \
        "{\"source\": {\"type\": \"synthetic\", \"samples\": 100, " keys                                     \
        "}, \"transforms\": [], \"output\": {}}"
#define RAMP SYNTHETIC("\"mode\": \"ramp\", \"bytes\": 37")

/* A JPEG of one colour, 24 pixels wide. */
static inline void put_jpeg_of(const char *name, uint8_t grey, uint32_t height) {
        struct jpeg_error_mgr errors;
        struct jpeg_compress_struct jpeg = {.err = jpeg_std_error(&errors)};
        FILE *file = fopen(in_folder(name), "wb");
        uint8_t pixels[24 * 3];
        JSAMPROW row = pixels;

        ck_assert_ptr_nonnull(file);
        memset(pixels, grey, sizeof(pixels));
        jpeg_create_compress(&jpeg);
        jpeg_stdio_dest(&jpeg, file);
        jpeg.image_width = 24;
        jpeg.image_height = height;
        jpeg.input_components = 3;
        jpeg.in_color_space = JCS_RGB;
        jpeg_set_defaults(&jpeg);
        jpeg_start_compress(&jpeg, TRUE);
        while (jpeg.next_scanline < jpeg.image_height)
                jpeg_write_scanlines(&jpeg, &row, 1);
        jpeg_finish_compress(&jpeg);
        jpeg_destroy_compress(&jpeg);
        fclose(file);
}

static inline void put_jpeg(const char *name, uint8_t grey) {
        put_jpeg_of(name, grey, 16);
}

#define CROP "[{\"random_resized_crop\": {\"size\": 8}}, {\"random_horizontal_flip\": {}}]"

static inline void image_recipe(char recipe[PATH_MAX], const char *transforms, const char *output) {
        snprintf(recipe, PATH_MAX,
                 "{\"source\": {\"type\": \"imagefolder\", \"path\": \"%s\"}, \"transforms\": %s, %s}",
                 folder, transforms, output);
}

static inline void put_photos(int n) {
        char name[32];

        put_directory("a");
        put_directory("b");
        for (int i = 0; i < n; i++) {
                snprintf(name, sizeof(name), "%s/%02d.jpg", i < n / 2 ? "a" : "b", i);
                put_jpeg(name, (uint8_t)(10 * i));
        }
}
