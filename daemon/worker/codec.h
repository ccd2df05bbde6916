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

enum {
        /* What djpeg's manual calls reasonable; common scripts have 10. Each scan goes over the whole
         * picture, so a file of a few kilobytes can ask for minutes. */
        CODEC_SCANS_MAX = 100,
};

/* What is asked of the files of a source. */
struct codec_options {
        int accept_damaged; /* what could be decoded is taken, the rest is gray or black */
        int orient;         /* turned as their EXIF data say */
        uint64_t pixels_max;
        uint32_t scans_max; /* of a JPEG */
};

/* Refuses the damaged, ignores the orientation, has the limits above. */
extern const struct codec_options codec_options_default;

/* A file in work. */
struct codec_file {
        struct decoder *decoder; /* for decoder_scratch */
        const struct codec_options *options;
        const uint8_t *bytes;
        size_t length;
        void *state; /* the codec's own, NULL at first; kept from file to file */
};

/* What a header says. */
struct codec_picture {
        uint32_t width, height; /* as stored */
        int orientation;        /* 1 ... 8 as in EXIF; looked for where the options ask, else 1 */
};

/* A part of a picture, in stored pixels. */
struct codec_window {
        uint32_t left, top, width, height;
};

struct codec {
        const char *format; /* "JPEG" */
        /* Whether the first `length` bytes are of this format. */
        int (*probe)(const uint8_t *bytes, size_t length);
        /* Reads the header, whatever file was in work before. 0; -EBADMSG damaged; -EFBIG over a limit,
         * before memory or time is taken; -EOPNOTSUPP; -ENOMEM. */
        int (*open)(struct codec_file *file, struct codec_picture *picture, struct fault *fault);
        /* Once after `open`: decodes the window to RGB as Pillow's convert("RGB"); *image becomes a view of
         * just this window. What lies below it need not be looked at; a window that reaches the last row is
         * judged by the whole file. 0; -EBADMSG damaged; -EFBIG; -ENOMEM. */
        int (*decode)(struct codec_file *file, const struct codec_window *window, struct image *image,
                      struct fault *fault);
        /* Frees what `open` has put into `state`; NULL does nothing. */
        void (*free_state)(void *state);
};

extern const struct codec codec_jpeg;
extern const struct codec codec_png;
extern const struct codec codec_webp;

/* Refuses a picture of more pixels than `most`. 0, or -EFBIG with both numbers. */
int codec_check_pixels(uint32_t width, uint32_t height, uint64_t most, struct fault *fault);

/* Reusable decoder state of one worker: codecs keep their buffers here between samples. `options` are copied.
 */
int decoder_new(struct decoder **decoder, const struct codec_options *options);
struct decoder *decoder_free(struct decoder *decoder);

/* For codecs: at least `bytes` of scratch memory, valid until the next call. 0 or -ENOMEM. */
int decoder_scratch(struct decoder *decoder, size_t bytes, uint8_t **scratch);

/* Finds the codec by content and reads the header: *image becomes a pending one, whose pixels image_load
 * decodes; `bytes` must live and the decoder must not be used for another file until then. -EOPNOTSUPP names
 * the format that is not supported ("format GIF"), -EINVAL: no image format known at all; else as codec.open
 * and, later, codec.decode. *format is set as soon as it is known, else NULL. */
int decoder_open(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                 const char **format, struct fault *fault);

/* The same, and loads the whole picture. */
int decoder_decode(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                   const char **format, struct fault *fault);
