#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* PNGs in memory, written chunk by chunk, and read back by the plainest loop there is. */

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

struct png_file {
        unsigned char *bytes;
        size_t length;
};

struct png_shape {
        unsigned width, height;
        unsigned depth, colour; /* as in the header */
        unsigned interlaced;
};

static const unsigned png_channels[] = {[0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4};

static inline void png_put(struct png_file *file, const void *bytes, size_t length) {
        file->bytes = realloc(file->bytes, file->length + length + 1);
        if (length > 0)
                memcpy(file->bytes + file->length, bytes, length);
        file->length += length;
}

static inline void png_number(unsigned char *to, unsigned long value) {
        for (int i = 0; i < 4; i++)
                to[i] = (unsigned char)(value >> (24 - 8 * i));
}

static inline void png_put_chunk(struct png_file *file, const char *name, const void *bytes, size_t length) {
        unsigned char number[4];
        size_t at = file->length + 4;

        png_number(number, length);
        png_put(file, number, 4);
        png_put(file, name, 4);
        png_put(file, bytes, length);
        png_number(number, crc32(0, file->bytes + at, (unsigned)length + 4));
        png_put(file, number, 4);
}

static inline void png_put_header(struct png_file *file, const struct png_shape *shape) {
        unsigned char header[13] = {0};

        png_number(header, shape->width);
        png_number(header + 4, shape->height);
        header[8] = (unsigned char)shape->depth;
        header[9] = (unsigned char)shape->colour;
        header[12] = (unsigned char)shape->interlaced;
        png_put(file, "\x89PNG\r\n\x1a\n", 8);
        png_put_chunk(file, "IHDR", header, sizeof(header));
}

/* Image data in chunks of `each` bytes. */
static inline void png_put_data(struct png_file *file, const unsigned char *raw, size_t length, size_t each) {
        uLongf packed_length = compressBound(length);
        unsigned char *packed = malloc(packed_length);

        ck_assert_int_eq(compress(packed, &packed_length, raw, length), Z_OK);
        for (size_t at = 0; at < packed_length; at += each)
                png_put_chunk(file, "IDAT", packed + at,
                              packed_length - at < each ? packed_length - at : each);
        free(packed);
}

/* The passes of a shape: 7, or one that has all pixels. */
struct png_pass {
        unsigned left, top, right, down; /* the first pixel, and from one to the next */
        unsigned width, height;
};

static inline struct png_pass png_pass(const struct png_shape *shape, unsigned i) {
        static const struct png_pass adam7[] = {{0, 0, 8, 8, 0, 0}, {4, 0, 8, 8, 0, 0}, {0, 4, 4, 8, 0, 0},
                                                {2, 0, 4, 4, 0, 0}, {0, 2, 2, 4, 0, 0}, {1, 0, 2, 2, 0, 0},
                                                {0, 1, 1, 2, 0, 0}};
        struct png_pass pass = {0, 0, 1, 1, 0, 0};

        if (shape->interlaced)
                pass = adam7[i];
        if (shape->width > pass.left && shape->height > pass.top) {
                pass.width = (shape->width - pass.left + pass.right - 1) / pass.right;
                pass.height = (shape->height - pass.top + pass.down - 1) / pass.down;
        }
        return pass;
}

static inline unsigned png_row_bytes(const struct png_shape *shape, unsigned width) {
        return (width * png_channels[shape->colour] * shape->depth + 7) / 8;
}

/* Bytes of all rows, each with its filter's number in front. */
static inline size_t png_raw_bytes(const struct png_shape *shape) {
        size_t bytes = 0;

        for (unsigned i = 0; i < (shape->interlaced ? 7 : 1); i++) {
                struct png_pass pass = png_pass(shape, i);

                if (pass.width > 0)
                        bytes += (size_t)pass.height * (1 + png_row_bytes(shape, pass.width));
        }
        return bytes;
}

static inline int png_predicted(int filter, int left, int up, int corner) {
        int pa = abs(up - corner), pb = abs(left - corner), pc = abs(left + up - 2 * corner);

        switch (filter) {
        case 1:
                return left;
        case 2:
                return up;
        case 3:
                return (left + up) / 2;
        case 4:
                return pa <= pb && pa <= pc ? left : pb <= pc ? up : corner;
        default:
                return 0;
        }
}

/* Undoes the filter of a row; `above` may be NULL. */
static inline void png_unfilter(unsigned char *row, int filter, const unsigned char *above, unsigned bytes,
                                unsigned pixel) {
        for (unsigned i = 0; i < bytes; i++) {
                int left = i >= pixel ? row[i - pixel] : 0, up = above ? above[i] : 0;
                int corner = i >= pixel && above ? above[i - pixel] : 0;

                row[i] = (unsigned char)(row[i] + png_predicted(filter, left, up, corner));
        }
}

static inline unsigned png_sample(const unsigned char *row, unsigned i, unsigned depth) {
        unsigned value = 0;

        for (unsigned bit = i * depth; bit < (i + 1) * depth; bit++)
                value = value << 1 | (row[bit / 8] >> (7 - bit % 8) & 1);
        return value;
}

/* One pixel as Pillow has it, but for gray of 16 bits, whose upper byte counts. */
static inline void png_pixel(const struct png_shape *shape, const unsigned char *palette, unsigned colours,
                             const unsigned char *row, unsigned x, unsigned char *to) {
        unsigned channels = png_channels[shape->colour], depth = shape->depth;
        unsigned value = png_sample(row, x * channels, depth);

        for (unsigned c = 0; c < 3; c++) {
                unsigned v = channels >= 3 ? png_sample(row, x * channels + c, depth) : value;

                if (shape->colour == 3)
                        to[c] = v < colours ? palette[v * 3 + c] : (unsigned char)v;
                else
                        to[c] = (unsigned char)(depth == 16 ? v >> 8 : v * 255 / ((1u << depth) - 1));
        }
}

/* The picture that `raw` is. */
static inline unsigned char *png_decode_plainly(const struct png_shape *shape, const unsigned char *palette,
                                                unsigned colours, const unsigned char *raw) {
        unsigned pixel = (png_channels[shape->colour] * shape->depth + 7) / 8;
        unsigned char *pixels = calloc((size_t)shape->width * shape->height, 3);
        unsigned char *work = malloc(png_raw_bytes(shape)), *row = work;

        memcpy(work, raw, png_raw_bytes(shape));
        for (unsigned i = 0; i < (shape->interlaced ? 7 : 1); i++) {
                struct png_pass pass = png_pass(shape, i);
                unsigned bytes = png_row_bytes(shape, pass.width);

                for (unsigned y = 0; y < pass.height && pass.width > 0; y++, row += 1 + bytes) {
                        png_unfilter(row + 1, row[0], y > 0 ? row - bytes : NULL, bytes, pixel);
                        for (unsigned x = 0; x < pass.width; x++)
                                png_pixel(shape, palette, colours, row + 1, x,
                                          pixels + ((size_t)(pass.top + y * pass.down) * shape->width +
                                                    pass.left + x * pass.right) *
                                                           3);
                }
        }
        free(work);
        return pixels;
}
