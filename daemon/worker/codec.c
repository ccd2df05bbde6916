/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which codec a file's bytes are for.
 *
 * Names lie (folders of "JPEGs" hold PNGs, GIFs and error pages), so only contents are asked: first the
 * codecs that exist, then a table of the formats that people meet and that have none, so that the error can
 * say "format GIF" instead of "bad file". A new codec is one file under codecs/ and one line in codecs[].
 *
 * Opening reads the header only. What the transforms leave of the picture is decoded when they ask for it, so
 * that a codec need not compute pixels that a crop throws away; that the file is whole is checked all the
 * same.
 *
 * A decoder carries memory from sample to sample, never state: what a file decodes to does not depend on the
 * files before it.
 */

#include "daemon/worker/codec.h"

#include "base/fault.h"
#include "daemon/worker/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct decoder {
        uint8_t *scratch;
        size_t capacity;

        /* the file that was opened last */
        const struct codec *codec;
        const uint8_t *bytes;
        size_t length;
};

struct magic {
        const char *format;
        uint8_t offset;
        uint8_t length;
        const char *bytes;
};

static const struct codec *const codecs[] = {
        &codec_jpeg,
        &codec_webp,
};

/* Formats without a codec, by the bytes that they are registered with. */
static const struct magic magics[] = {
        {"PNG", 0, 8, "\x89PNG\r\n\x1a\n"},
        {"GIF", 0, 6, "GIF87a"},
        {"GIF", 0, 6, "GIF89a"},
        {"BMP", 0, 2, "BM"},
        {"TIFF", 0, 4, "II*\0"},
        {"TIFF", 0, 4, "MM\0*"},
        {"TIFF", 0, 4, "II+\0"},
        {"TIFF", 0, 4, "MM\0+"},
        {"JPEG2000", 0, 8, "\0\0\0\x0cjP  "},
        {"JPEG2000", 0, 4, "\xff\x4f\xff\x51"},
        {"JPEGXL", 0, 8, "\0\0\0\x0cJXL "},
        {"JPEGXL", 0, 2, "\xff\x0a"},
        {"AVIF", 4, 8, "ftypavif"},
        {"AVIF", 4, 8, "ftypavis"},
        {"HEIF", 4, 8, "ftypheic"},
        {"HEIF", 4, 8, "ftypheix"},
        {"HEIF", 4, 8, "ftypmif1"},
        {"ICO", 0, 4, "\0\0\1\0"},
        {"PSD", 0, 4, "8BPS"},
        {"DDS", 0, 4, "DDS "},
};

#define LENGTH_OF(array) (sizeof(array) / sizeof((array)[0]))

int decoder_new(struct decoder **decoder) {
        *decoder = calloc(1, sizeof(**decoder));
        return *decoder ? 0 : -ENOMEM;
}

struct decoder *decoder_free(struct decoder *decoder) {
        if (decoder)
                free(decoder->scratch);
        free(decoder);
        return NULL;
}

int decoder_scratch(struct decoder *decoder, size_t bytes, uint8_t **scratch) {
        if (bytes > decoder->capacity) {
                free(decoder->scratch);
                decoder->capacity = 0;
                decoder->scratch = malloc(bytes);
                if (!decoder->scratch)
                        return -ENOMEM;
                decoder->capacity = bytes;
        }
        *scratch = decoder->scratch;
        return 0;
}

static const char *foreign_format(const uint8_t *bytes, size_t length) {
        for (size_t i = 0; i < LENGTH_OF(magics); i++) {
                const struct magic *magic = &magics[i];

                if (length >= (size_t)magic->offset + magic->length &&
                    memcmp(bytes + magic->offset, magic->bytes, magic->length) == 0)
                        return magic->format;
        }
        return NULL;
}

static const struct codec *find_codec(const uint8_t *bytes, size_t length) {
        for (size_t i = 0; i < LENGTH_OF(codecs); i++)
                if (codecs[i]->probe(bytes, length))
                        return codecs[i];
        return NULL;
}

static int no_codec(const uint8_t *bytes, size_t length, const char **format, struct fault *fault) {
        *format = foreign_format(bytes, length);
        if (*format)
                return fault_set(fault, -EOPNOTSUPP, "format %s is not supported", *format);
        if (length == 0)
                return fault_set(fault, -EINVAL, "no known image format: the file is empty");
        return fault_set(fault, -EINVAL, "no known image format");
}

static int load(struct image *image, struct fault *fault) {
        struct decoder *decoder = image->loader;
        const struct codec_window window = {image->left, image->top, image->width, image->height};

        return decoder->codec->decode(decoder, decoder->bytes, decoder->length, &window, image, fault);
}

int decoder_open(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                 const char **format, struct fault *fault) {
        uint32_t width, height;
        int r;

        decoder->codec = find_codec(bytes, length);
        if (!decoder->codec)
                return no_codec(bytes, length, format, fault);
        decoder->bytes = bytes;
        decoder->length = length;
        *format = decoder->codec->format;
        r = decoder->codec->measure(bytes, length, &width, &height, fault);
        if (r < 0)
                return r;
        image_defer(image, width, height, load, decoder);
        return 0;
}

int decoder_decode(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                   const char **format, struct fault *fault) {
        int r = decoder_open(decoder, bytes, length, image, format, fault);

        return r < 0 ? r : image_load(image, fault);
}
