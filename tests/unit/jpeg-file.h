#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* JPEGs in memory, made by libjpeg, and read back by the plainest libjpeg loop there is. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

struct jpeg_file {
        unsigned char *bytes;
        unsigned long length;
};

enum coding {
        BASELINE,
        PROGRESSIVE,
        ARITHMETIC, /* instead of Huffman's */
        RESTARTS,   /* baseline, with a restart marker now and then */
};

struct recipe {
        unsigned width, height;
        int components;
        J_COLOR_SPACE space; /* of what is written; the file's own follows from it */
        int h, v;            /* sampling of the first component */
        int coding;          /* enum coding */
};

static inline void encode(struct jpeg_file *file, const struct recipe *recipe) {
        struct jpeg_compress_struct jpeg;
        struct jpeg_error_mgr errors;
        unsigned char *row = malloc((size_t)recipe->width * 4);

        file->bytes = NULL;
        file->length = 0;
        jpeg.err = jpeg_std_error(&errors);
        jpeg_create_compress(&jpeg);
        jpeg_mem_dest(&jpeg, &file->bytes, &file->length);
        jpeg.image_width = recipe->width;
        jpeg.image_height = recipe->height;
        jpeg.input_components = recipe->components;
        jpeg.in_color_space = recipe->space;
        jpeg_set_defaults(&jpeg);
        jpeg_set_quality(&jpeg, 90, TRUE);
        if (recipe->space == JCS_RGB || recipe->space == JCS_YCCK) {
                jpeg.comp_info[0].h_samp_factor = recipe->h;
                jpeg.comp_info[0].v_samp_factor = recipe->v;
        }
        if (recipe->coding == PROGRESSIVE)
                jpeg_simple_progression(&jpeg);
        jpeg.arith_code = recipe->coding == ARITHMETIC;
        jpeg.restart_interval = recipe->coding == RESTARTS ? 7 : 0;
        jpeg_start_compress(&jpeg, TRUE);
        while (jpeg.next_scanline < jpeg.image_height) {
                for (unsigned i = 0; i < recipe->width * (unsigned)recipe->components; i++)
                        row[i] = (unsigned char)(i * 2 + jpeg.next_scanline * 3 +
                                                 (i * jpeg.next_scanline >> 5));
                jpeg_write_scanlines(&jpeg, &row, 1);
        }
        jpeg_finish_compress(&jpeg);
        jpeg_destroy_compress(&jpeg);
        free(row);
}

/* libjpeg's own reading in a colour space, `components` bytes a pixel. */
static inline unsigned char *decode_plainly(const struct jpeg_file *file, J_COLOR_SPACE space,
                                            int components) {
        struct jpeg_decompress_struct jpeg;
        struct jpeg_error_mgr errors;
        unsigned char *pixels;

        jpeg.err = jpeg_std_error(&errors);
        jpeg_create_decompress(&jpeg);
        jpeg_mem_src(&jpeg, file->bytes, file->length);
        jpeg_read_header(&jpeg, TRUE);
        jpeg.out_color_space = space;
        jpeg_start_decompress(&jpeg);
        pixels = malloc((size_t)jpeg.output_width * jpeg.output_height * (size_t)components);
        while (jpeg.output_scanline < jpeg.output_height) {
                JSAMPROW row = pixels + (size_t)jpeg.output_scanline * jpeg.output_width * (size_t)components;

                jpeg_read_scanlines(&jpeg, &row, 1);
        }
        jpeg_finish_decompress(&jpeg);
        jpeg_destroy_decompress(&jpeg);
        return pixels;
}
