#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Codecs turn file contents into RGB. The content decides which one, never the name. */

#include <stddef.h>
#include <stdint.h>

struct fault;
struct image;
struct decoder;

/* 178,956,970 pixels: Pillow's decompression bomb error (twice its warning, PIL.Image.MAX_IMAGE_PIXELS x 2).
 */
#define CODEC_PIXELS_MAX UINT64_C(178956970)

/* A part of a picture, in stored pixels. */
struct codec_window {
        uint32_t left, top, width, height;
};

struct codec {
        const char *format; /* "JPEG" */
        /* Whether the first `length` bytes are of this format. */
        int (*probe)(const uint8_t *bytes, size_t length);
        /* The size of the picture, from its header. 0; -EBADMSG damaged; -EFBIG over the pixel limit;
         * -EOPNOTSUPP. */
        int (*measure)(const uint8_t *bytes, size_t length, uint32_t *width, uint32_t *height,
                       struct fault *fault);
        /* Decodes the window to RGB as Pillow's convert("RGB"): *image is a view of just this window. What
         * lies below it need not be looked at; a window that reaches the last row is judged by the whole
         * file. 0; -EBADMSG damaged; -EFBIG over the pixel limit, before memory is taken; -ENOMEM. */
        int (*decode)(struct decoder *decoder, const uint8_t *bytes, size_t length,
                      const struct codec_window *window, struct image *image, struct fault *fault);
};

extern const struct codec codec_jpeg;
extern const struct codec codec_webp;

/* For codecs: refuses a picture over CODEC_PIXELS_MAX. 0, or -EFBIG with both numbers. */
int codec_check_pixels(uint32_t width, uint32_t height, struct fault *fault);

/* Reusable decoder state of one worker: codecs keep their buffers here between samples. */
int decoder_new(struct decoder **decoder);
struct decoder *decoder_free(struct decoder *decoder);

/* For codecs: at least `bytes` of scratch memory, valid until the next call. 0 or -ENOMEM. */
int decoder_scratch(struct decoder *decoder, size_t bytes, uint8_t **scratch);

/* Finds the codec by content and reads the header: *image becomes a pending one, whose pixels image_load
 * decodes; `bytes` must live and the decoder must not be used for another file until then. -EOPNOTSUPP names
 * the format that is not supported ("format GIF"), -EINVAL: no image format known at all; else as
 * codec.measure and, later, codec.decode. *format is set as soon as it is known, else NULL. */
int decoder_open(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                 const char **format, struct fault *fault);

/* The same, and loads the whole picture. */
int decoder_decode(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                   const char **format, struct fault *fault);
