/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A PNG file is a row of chunks: length, name, contents, checksum. This is the judge of them; the pixels
 * inside the image data are png.c's.
 *
 * The verdicts are those of Pillow 9.4. It asks more of what comes before the image data than of what
 * follows. Before: every checksum, known chunk or not, and that no chunk is cut off. After: that chunks are
 * whole, up to the end chunk, which may be missing; checksums are not looked at, nor those of the image data,
 * which has another one inside. At both places the chunks that it reads must have the bytes that it reads,
 * and frames of an animation must be numbered in order. A name that is none ends the file, as its end does.
 * The order of chunks matters little: of two of a kind the last one counts.
 *
 * It is more forgiving than the standard in what the header says (the compression method is not looked at,
 * any interlace method but 0 is Adam7), passes over image data in front of it, and takes palette indices
 * beyond the palette, or all of them where it is missing, for grays (Pillow 12: for black); so do we. Where
 * it is different:
 *
 *   - Texts and colour profiles are never inflated here, whatever they hold; Pillow refuses one of more than
 *     1 MiB. They cannot take memory or time, so there is no need.
 *   - Frame data in front of the image data, which the standard forbids and Pillow shows as the picture, is
 *     refused. So is a first frame that does not cover the picture.
 *   - Pillow reads on in frame data (fdAT) that follow image data which are too short.
 *
 * `lenient` readers judge only what pixels cannot do without, as Pillow does with LOAD_TRUNCATED_IMAGES; and
 * more of it, since that still refuses frames that are numbered wrongly.
 */

#include "daemon/worker/codecs/png-chunks.h"

#include "base/fault.h"

#include <errno.h>
#include <string.h>

#include <zlib.h>

#define NAME(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

enum {
        SIGNATURE = 8, /* bytes */
        COLOURS_MAX = 256,
};

static const uint32_t name_header = NAME('I', 'H', 'D', 'R'), name_palette = NAME('P', 'L', 'T', 'E'),
                      name_data = NAME('I', 'D', 'A', 'T'), name_end = NAME('I', 'E', 'N', 'D'),
                      name_animation = NAME('a', 'c', 'T', 'L'), name_frame = NAME('f', 'c', 'T', 'L'),
                      name_frame_data = NAME('f', 'd', 'A', 'T'), name_transparent = NAME('t', 'R', 'N', 'S'),
                      name_profile = NAME('i', 'C', 'C', 'P'), name_text = NAME('z', 'T', 'X', 't'),
                      name_chromaticity = NAME('c', 'H', 'R', 'M'), name_exif = NAME('e', 'X', 'I', 'f');

struct chunk {
        uint32_t name, length;
        const uint8_t *bytes; /* behind the name */
        size_t left;          /* those that the file has, to its end */
};

static uint32_t number(const uint8_t *bytes) {
        return NAME(bytes[0], bytes[1], bytes[2], bytes[3]);
}

static int is_name(const uint8_t *bytes) {
        for (int i = 0; i < 4; i++) {
                uint8_t c = bytes[i];

                if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_')
                        return 0;
        }
        return 1;
}

/* 1, or 0 where the file ends or no chunk begins. */
static int next_chunk(struct png_chunks *chunks, struct chunk *chunk) {
        const uint8_t *bytes = chunks->bytes + chunks->at;
        size_t left = chunks->length - chunks->at, whole;

        if (left < 8 || !is_name(bytes + 4))
                return 0;
        *chunk = (struct chunk){number(bytes + 4), number(bytes), bytes + 8, left - 8};
        whole = 12 + (size_t)chunk->length;
        chunks->at += whole < left ? whole : left;
        return 1;
}

static int damaged(const struct chunk *chunk, const char *what, struct fault *fault) {
        return fault_set(fault, -EBADMSG, "the PNG is damaged: chunk %.4s %s", (const char *)chunk->bytes - 4,
                         what);
}

static int check_whole(const struct chunk *chunk, struct fault *fault) {
        return chunk->length <= chunk->left ? 0 : damaged(chunk, "is cut off", fault);
}

static int check_sum(const struct chunk *chunk, struct fault *fault) {
        uint32_t length = chunk->length;

        if (chunk->left - length < 4)
                return damaged(chunk, "is cut off", fault);
        if (crc32_z(0, chunk->bytes - 4, (size_t)length + 4) != number(chunk->bytes + length))
                return damaged(chunk, "has a wrong checksum", fault);
        return 0;
}

static int read_header(struct png_chunks *chunks, const struct chunk *chunk, struct fault *fault) {
        if (chunk->bytes[11] != 0)
                return damaged(chunk, "has a filter method that is not known", fault);
        if (chunks->data)
                return 0;
        chunks->width = number(chunk->bytes);
        chunks->height = number(chunk->bytes + 4);
        chunks->depth = chunk->bytes[8];
        chunks->colour = chunk->bytes[9];
        chunks->interlaced = chunk->bytes[12] != 0;
        return 0;
}

static void read_palette(struct png_chunks *chunks, const struct chunk *chunk) {
        if (chunks->data)
                return;
        chunks->palette = chunk->bytes;
        chunks->colours = chunk->length / 3;
}

static void read_animation(struct png_chunks *chunks, const struct chunk *chunk) {
        uint32_t frames = number(chunk->bytes);

        if (chunks->data)
                return;
        if (chunks->frames > 0)
                chunks->frames = 0; /* two of them: no animation */
        else if (frames <= UINT32_C(0x80000000))
                chunks->frames = frames;
}

static int read_frame(struct png_chunks *chunks, const struct chunk *chunk, struct fault *fault) {
        const uint8_t *bytes = chunk->bytes;
        uint64_t width = number(bytes + 4), height = number(bytes + 8);
        uint64_t left = number(bytes + 12), top = number(bytes + 16);

        if (chunks->sequence != (int64_t)number(bytes) - 1)
                return damaged(chunk, "is out of sequence", fault);
        chunks->sequence++;
        if (left + width > chunks->width || top + height > chunks->height)
                return damaged(chunk, "has a frame that is not in the picture", fault);
        if (!chunks->data) {
                chunks->first = 1;
                chunks->partial = width < chunks->width || height < chunks->height;
        }
        return 0;
}

static int read_frame_data(struct png_chunks *chunks, const struct chunk *chunk, struct fault *fault) {
        if (chunks->sequence < 0 || chunks->sequence != (int64_t)number(chunk->bytes) - 1)
                return damaged(chunk, "is out of sequence", fault);
        chunks->sequence++;
        return 0;
}

/* A name, a zero, the method, which has to be 0. Pillow takes the first zero of a profile for its method. */
static int check_compressed(const struct chunk *chunk, struct fault *fault) {
        const uint8_t *zero = memchr(chunk->bytes, 0, chunk->length);
        const uint8_t *end = chunk->bytes + chunk->length;

        if (chunk->name == name_profile ? !zero : zero && zero + 1 < end && zero[1] != 0)
                return damaged(chunk, "has a compression method that is not known", fault);
        return 0;
}

/* What Pillow reads of a chunk without asking whether it is there. */
static uint32_t least_length(const struct png_chunks *chunks, uint32_t name) {
        static const struct {
                uint32_t name, length;
        } least[] = {
                {name_header, 13},
                {name_animation, 8},
                {name_frame, 26},
                {name_frame_data, 4},
                {NAME('g', 'A', 'M', 'A'), 4},
                {NAME('p', 'H', 'Y', 's'), 9},
                {NAME('s', 'R', 'G', 'B'), 1},
        };

        if (name == name_transparent)
                return chunks->colour == PNG_RGB ? 6 : chunks->colour == PNG_GRAY ? 2 : 0;
        for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++)
                if (least[i].name == name)
                        return least[i].length;
        return 0;
}

static int is_ancillary(const struct chunk *chunk) {
        return (chunk->name >> 24 & 0x20) != 0;
}

/* A whole chunk, of any kind but image data. */
static int read_chunk(struct png_chunks *chunks, const struct chunk *chunk, struct fault *fault) {
        uint32_t name = chunk->name;

        if (chunk->length < least_length(chunks, name) ||
            (name == name_chromaticity && chunk->length % 4 != 0))
                return damaged(chunk, "is too short", fault);
        if (name == name_header)
                return read_header(chunks, chunk, fault);
        if (name == name_palette)
                read_palette(chunks, chunk);
        else if (name == name_animation)
                read_animation(chunks, chunk);
        else if (name == name_frame)
                return read_frame(chunks, chunk, fault);
        else if (name == name_frame_data)
                return read_frame_data(chunks, chunk, fault);
        else if (name == name_profile || name == name_text)
                return check_compressed(chunk, fault);
        return 0;
}

static int has_known_pixels(const struct png_chunks *chunks) {
        static const uint8_t depths[] = {
                [PNG_GRAY] = 1 | 2 | 4 | 8 | 16, [PNG_RGB] = 8 | 16,       [PNG_PALETTE] = 1 | 2 | 4 | 8,
                [PNG_GRAY_ALPHA] = 8 | 16,       [PNG_RGB_ALPHA] = 8 | 16,
        };
        uint8_t depth = chunks->depth;

        return chunks->colour < sizeof(depths) && (depths[chunks->colour] & depth) == depth && depth > 0 &&
               (depth & (depth - 1)) == 0;
}

/* All that has to be known is there, when the image data begin. */
static int check_header(const struct png_chunks *chunks, struct fault *fault) {
        if (chunks->width == 0 || chunks->height == 0)
                return fault_set(fault, -EBADMSG, "the PNG is damaged: it has a size of %u x %u",
                                 chunks->width, chunks->height);
        if (!has_known_pixels(chunks))
                return fault_set(fault, -EBADMSG,
                                 "the PNG is damaged: there is no colour type %u with %u bits",
                                 chunks->colour, chunks->depth);
        if (chunks->colour == PNG_PALETTE && chunks->colours > COLOURS_MAX)
                return fault_set(fault, -EBADMSG, "the PNG is damaged: its palette has %u colours, not %d",
                                 chunks->colours, COLOURS_MAX);
        if (chunks->partial)
                return fault_set(fault, -EBADMSG,
                                 "the PNG is damaged: its first frame does not cover the picture");
        return 0;
}

static void take_data(struct png_chunks *chunks, const struct chunk *chunk) {
        chunks->data = chunk->bytes;
        chunks->data_left = chunk->length < chunk->left ? chunk->length : chunk->left;
}

int png_probe(const uint8_t *bytes, size_t length) {
        return length >= SIGNATURE && memcmp(bytes, "\x89PNG\r\n\x1a\n", SIGNATURE) == 0;
}

int png_chunks_open(struct png_chunks *chunks, const uint8_t *bytes, size_t length, int lenient,
                    struct fault *fault) {
        struct chunk chunk;
        int r;

        *chunks = (struct png_chunks){
                .bytes = bytes, .length = length, .lenient = lenient, .at = SIGNATURE, .sequence = -1};
        while (next_chunk(chunks, &chunk)) {
                if (chunk.name == name_data && chunks->depth > 0) {
                        take_data(chunks, &chunk);
                        return check_header(chunks, fault);
                }
                if (chunk.name == name_frame_data || chunk.name == name_end)
                        break;
                r = check_whole(&chunk, fault);
                if (r < 0)
                        return r;
                if (lenient && is_ancillary(&chunk))
                        continue;
                r = check_sum(&chunk, fault);
                if (r == 0)
                        r = read_chunk(chunks, &chunk, fault);
                if (r < 0)
                        return r;
        }
        return fault_set(fault, -EBADMSG, "the PNG is damaged: its %zu bytes have no image data", length);
}

int png_chunks_more_data(struct png_chunks *chunks) {
        size_t at = chunks->at;
        struct chunk chunk;

        if (!next_chunk(chunks, &chunk))
                return 0;
        if (chunk.name == name_data)
                take_data(chunks, &chunk);
        else
                chunks->at = at;
        return chunk.name == name_data;
}

int png_chunks_check_rest(struct png_chunks *chunks, struct fault *fault) {
        /* Of an animation's images, the default one counts only where it is no frame. */
        int animated = chunks->frames + (chunks->frames > 0 && !chunks->first) > 1;
        struct chunk chunk;
        int r;

        while (!chunks->lenient && next_chunk(chunks, &chunk)) {
                if (chunk.name == name_end || (chunk.name == name_frame && animated))
                        break;
                r = check_whole(&chunk, fault);
                if (r == 0 && chunk.name != name_data)
                        r = read_chunk(chunks, &chunk, fault);
                if (r < 0)
                        return r;
        }
        return 0;
}

int png_find_exif(const uint8_t *bytes, size_t length, const uint8_t **exif, size_t *exif_length) {
        struct png_chunks chunks = {.bytes = bytes, .length = length, .at = SIGNATURE};
        struct chunk chunk;
        int found = 0;

        while (next_chunk(&chunks, &chunk) && chunk.name != name_end)
                if (chunk.name == name_exif && chunk.length <= chunk.left) {
                        *exif = chunk.bytes;
                        *exif_length = chunk.length;
                        found = 1;
                }
        return found;
}
