#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* WebPs in memory: pictures by libwebp, the container around them byte by byte. */

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <webp/encode.h>

enum {
        WEBP_ALPHA = 0x10,
        WEBP_EXIF = 0x08,
        WEBP_ANIMATION = 0x02,
        WEBP_HEAD = 12, /* in front of the first chunk */
};

struct webp_file {
        unsigned char *bytes;
        size_t length;
};

static inline void webp_little(unsigned char *to, unsigned long value, unsigned bytes) {
        for (unsigned i = 0; i < bytes; i++)
                to[i] = (unsigned char)(value >> 8 * i);
}

static inline void webp_put(struct webp_file *file, const void *bytes, size_t length) {
        file->bytes = realloc(file->bytes, file->length + length + 1);
        if (length > 0)
                memcpy(file->bytes + file->length, bytes, length);
        file->length += length;
        if (file->length >= WEBP_HEAD)
                webp_little(file->bytes + 4, file->length - 8, 4);
}

static inline void webp_put_chunk(struct webp_file *file, const char *name, const void *bytes,
                                  size_t length) {
        unsigned char size[4];

        webp_little(size, length, 4);
        webp_put(file, name, 4);
        webp_put(file, size, 4);
        webp_put(file, bytes, length);
        webp_put(file, "", length % 2);
}

/* The head of a file, and what it has: WEBP_ALPHA and so on. */
static inline void webp_put_head(struct webp_file *file, unsigned has, unsigned width, unsigned height) {
        unsigned char canvas[10] = {(unsigned char)has};

        webp_little(canvas + 4, width - 1, 3);
        webp_little(canvas + 7, height - 1, 3);
        webp_put(file, "RIFF\0\0\0\0WEBP", WEBP_HEAD);
        webp_put_chunk(file, "VP8X", canvas, sizeof(canvas));
}

/* A frame of an animation around the chunks of a still picture; `left` and `top` are even. */
static inline void webp_put_frame(struct webp_file *file, unsigned left, unsigned top, unsigned width,
                                  unsigned height, const struct webp_file *still) {
        struct webp_file frame = {0};
        unsigned char place[16] = {0};

        webp_little(place, left / 2, 3);
        webp_little(place + 3, top / 2, 3);
        webp_little(place + 6, width - 1, 3);
        webp_little(place + 9, height - 1, 3);
        frame.bytes = malloc(sizeof(place) + still->length);
        memcpy(frame.bytes, place, sizeof(place));
        memcpy(frame.bytes + sizeof(place), still->bytes + WEBP_HEAD, still->length - WEBP_HEAD);
        webp_put_chunk(file, "ANMF", frame.bytes, sizeof(place) + still->length - WEBP_HEAD);
        free(frame.bytes);
}

/* A still picture without loss of 4 bytes a pixel: red, green, blue, alpha; the colours of what is
 * transparent are kept. */
static inline void webp_encode(struct webp_file *still, const unsigned char *pixels, unsigned width,
                               unsigned height) {
        WebPMemoryWriter writer;
        WebPPicture picture;
        WebPConfig config;

        ck_assert(WebPConfigInit(&config) && WebPPictureInit(&picture));
        WebPMemoryWriterInit(&writer);
        config.lossless = config.exact = 1;
        config.method = 0;
        picture.use_argb = 1;
        picture.width = (int)width;
        picture.height = (int)height;
        picture.writer = WebPMemoryWrite;
        picture.custom_ptr = &writer;
        ck_assert(WebPPictureImportRGBA(&picture, pixels, (int)width * 4) && WebPEncode(&config, &picture));
        WebPPictureFree(&picture);
        *still = (struct webp_file){0};
        webp_put(still, writer.mem, writer.size);
        WebPMemoryWriterClear(&writer);
}
