#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The chunks of a PNG file, and which of them make Pillow refuse it. */

#include <stddef.h>
#include <stdint.h>

struct fault;

enum png_colour {
        PNG_GRAY = 0,
        PNG_RGB = 2,
        PNG_PALETTE = 3,
        PNG_GRAY_ALPHA = 4,
        PNG_RGB_ALPHA = 6,
};

struct png_chunks {
        const uint8_t *bytes;
        size_t length;
        int lenient; /* nothing that pixels do without is judged */

        /* the image header, as the file has it */
        uint32_t width, height;
        uint8_t depth, colour, interlaced;

        const uint8_t *palette; /* three bytes a colour */
        uint32_t colours;

        size_t at;           /* the next chunk */
        const uint8_t *data; /* of the image data chunk that was found last, NULL before the first */
        size_t data_left;    /* bytes of it that the file has */

        /* of an animation: what its frames say */
        uint32_t frames;
        int64_t sequence; /* the last frame's or frame data's number, -1 before */
        int first;        /* the first frame is the image that every reader shows */
        int partial;      /* and does not cover it */
};

/* Whether the first `length` bytes are a PNG's. */
int png_probe(const uint8_t *bytes, size_t length);

/* Reads up to the first chunk of image data, whose bytes are then in `data`. 0; -EBADMSG damaged. */
int png_chunks_open(struct png_chunks *chunks, const uint8_t *bytes, size_t length, int lenient,
                    struct fault *fault);

/* The next chunk of image data, where it follows at once. 1, or 0 if there is none. */
int png_chunks_more_data(struct png_chunks *chunks);

/* Judges what follows the image data. 0; -EBADMSG damaged. */
int png_chunks_check_rest(struct png_chunks *chunks, struct fault *fault);

/* What the eXIf chunk holds, wherever it stands. 1, or 0 if there is none. */
int png_find_exif(const uint8_t *bytes, size_t length, const uint8_t **exif, size_t *exif_length);
