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
 * that a codec need not compute pixels that a crop throws away.
 *
 * Where the pictures are to be turned upright, the pending image has the size of the upright one, and the
 * transforms know of no other. Its window is looked up in the stored picture, that part is decoded, and its
 * pixels are moved to their places (orient.c).
 *
 * A decoder carries memory from sample to sample, never state: what a file decodes to does not depend on the
 * files before it.
 */

#include "daemon/worker/codec.h"

#include "base/fault.h"
#include "daemon/worker/image.h"
#include "daemon/worker/orient.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct magic {
        const char *format;
        uint8_t offset;
        uint8_t length;
        const char *bytes;
};

static const struct codec *const codecs[] = {
        &codec_jpeg,
        &codec_png,
        &codec_webp,
};

/* Formats without a codec, by the bytes that they are registered with. */
static const struct magic magics[] = {
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

enum {
        CODECS = LENGTH_OF(codecs),
};

struct decoder {
        struct codec_options options;
        uint8_t *scratch;
        size_t capacity;
        struct codec_file files[CODECS]; /* by codec: what each keeps, and the file it had last */
        struct image stored;             /* as decoded, where it has to be turned */

        /* the file that was opened last */
        const struct codec *codec;
        struct codec_file *file;
        struct codec_picture picture;
};

const struct codec_options codec_options_default = {.pixels_max = CODEC_PIXELS_MAX,
                                                    .scans_max = CODEC_SCANS_MAX};

int decoder_new(struct decoder **decoderp, const struct codec_options *options) {
        struct decoder *decoder = calloc(1, sizeof(*decoder));

        if (!decoder)
                return -ENOMEM;
        decoder->options = *options;
        *decoderp = decoder;
        return 0;
}

struct decoder *decoder_free(struct decoder *decoder) {
        if (!decoder)
                return NULL;
        for (size_t i = 0; i < CODECS; i++)
                codecs[i]->free_state(decoder->files[i].state);
        image_deinit(&decoder->stored);
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

/* Its place in codecs[], or CODECS. */
static size_t find_codec(const uint8_t *bytes, size_t length) {
        for (size_t i = 0; i < CODECS; i++)
                if (codecs[i]->probe(bytes, length))
                        return i;
        return CODECS;
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
        struct codec_window window = {image->left, image->top, image->width, image->height};
        const struct codec_picture *picture = &decoder->picture;
        int r;

        if (picture->orientation == ORIENT_UPRIGHT)
                return decoder->codec->decode(decoder->file, &window, image, fault);
        orient_window(picture->orientation, picture->width, picture->height, &window);
        r = decoder->codec->decode(decoder->file, &window, &decoder->stored, fault);
        if (r < 0)
                return r;
        r = orient_image(picture->orientation, &decoder->stored, image);
        if (r < 0)
                return fault_set(fault, r, "no memory to turn %u x %u pixels", window.width, window.height);
        return 0;
}

int decoder_open(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                 const char **format, struct fault *fault) {
        size_t place = find_codec(bytes, length);
        struct codec_picture *picture = &decoder->picture;
        uint32_t width, height;
        int r;

        if (place == CODECS)
                return no_codec(bytes, length, format, fault);
        decoder->codec = codecs[place];
        decoder->file = &decoder->files[place];
        decoder->file->decoder = decoder;
        decoder->file->options = &decoder->options;
        decoder->file->bytes = bytes;
        decoder->file->length = length;
        *format = decoder->codec->format;
        *picture = (struct codec_picture){.orientation = ORIENT_UPRIGHT};
        r = decoder->codec->open(decoder->file, picture, fault);
        if (r < 0)
                return r;
        width = picture->width;
        height = picture->height;
        if (orient_swaps(picture->orientation)) {
                width = picture->height;
                height = picture->width;
        }
        image_defer(image, width, height, load, decoder);
        return 0;
}

int decoder_decode(struct decoder *decoder, const uint8_t *bytes, size_t length, struct image *image,
                   const char **format, struct fault *fault) {
        int r = decoder_open(decoder, bytes, length, image, format, fault);

        return r < 0 ? r : image_load(image, fault);
}
