/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * PNG through libspng, with the pixels and the verdicts of Pillow's Image.open(...).convert("RGB").
 *
 * Pixels: gray is repeated, palettes are looked up, alpha is dropped and never blended, transparent colours
 * are colours. Of 16 bits the upper 8 are taken. Pillow does that, too, but for gray without alpha, of which
 * it makes 255 from 256 on; no picture was ever meant so, and this is the one intended difference. There is
 * no gamma and no colour profile. Of an animation the image counts that all readers show.
 *
 * Libspng inflates, undoes the filters and knows the passes of an interlaced file. It never sees the file:
 * png-chunks.c judges the chunks as Pillow does (libspng is stricter in some ways, forgives checksums in
 * others, and inflates texts), and `feed` makes libspng a file of what counts: a header and image data.
 * Palette indices are announced as grays, since for getting at the samples there is no difference. The chunks
 * of image data that it is given are one read of libspng long and end where the file's own end, for the
 * checksum inside is compared only if it stands in one read with the end of the last row; Pillow's reads are
 * 64 KiB, with the same effect but for chunks of just over a multiple of that. The checksums around image
 * data are not looked at, as in Pillow.
 *
 * Verdicts about the pixels differ from Pillow's in this: image data that end properly, but after too few
 * rows, are refused; Pillow leaves the rest black.
 *
 * Windows: rows above are inflated, because each is a difference to the one before, and not converted. Below
 * nothing is read but one byte, the next row's filter. A window that reaches the last row is judged by the
 * whole file, also by the chunks that follow. Interlaced files are inflated whole; of those, too, only the
 * window's pixels are converted.
 *
 * Damage that is to be accepted leaves black what did not come. Libspng gives a row when it knows the next
 * one's filter, so that the last row before the damage may be missing, too. A file without one row to show is
 * refused all the same.
 *
 * Orientation is taken from the eXIf chunk only. Pillow looks for it in texts, too ("Raw profile type exif",
 * XMP), where some programs have put it before there was such a chunk.
 *
 * Libspng's context lives for the rows of one file. Its allocator has no argument that could tell whose
 * memory to use, so it takes the heap that the worker keeps (session.c): no system call, and some 60 KB.
 */

#include "daemon/worker/codec.h"

#include "base/fault.h"
#include "daemon/worker/codecs/png-chunks.h"
#include "daemon/worker/image.h"
#include "daemon/worker/orient.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>
#include <zlib.h>

enum {
        READ = 8192, /* libspng's, as of 0.7 */
        BYTES = 3,   /* of a pixel */
};

/* What libspng reads next. */
enum part {
        PART_HEADER,
        PART_CHECKSUM,
        PART_CHUNK,
        PART_DATA,
};

struct png_run {
        struct png_chunks chunks;
        enum part part;
        int dry;           /* more image data were asked for than there are */
        uint32_t piece;    /* of image data: bytes that libspng has been promised */
        uint32_t checksum; /* of the chunk that it reads */
        int started;       /* it does not look at that any more */

        const struct codec_file *file;
        struct image *image;
        struct fault *fault;
        struct codec_window window;
        spng_ctx *spng;
        uint32_t rows; /* that came */

        uint8_t colours[256][BYTES]; /* of samples that have up to 8 bits and are a pixel each */
};

/* Where the samples are in a pixel of more than 8 bits. */
struct layout {
        unsigned bytes, red, green, blue;
};

static void put_number(uint8_t *to, uint32_t value) {
        to[0] = (uint8_t)(value >> 24);
        to[1] = (uint8_t)(value >> 16);
        to[2] = (uint8_t)(value >> 8);
        to[3] = (uint8_t)value;
}

/* ---- the file that libspng sees ---- */

/* Signature and header chunk. */
static void feed_header(struct png_run *run, uint8_t *to) {
        const struct png_chunks *chunks = &run->chunks;

        memcpy(to, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
        put_number(to + 16, chunks->width);
        put_number(to + 20, chunks->height);
        to[24] = chunks->depth;
        to[25] = chunks->colour == PNG_PALETTE ? PNG_GRAY : chunks->colour;
        to[26] = to[27] = 0;
        to[28] = chunks->interlaced;
        run->checksum = (uint32_t)crc32(0, to + 12, 17);
}

/* Chooses the next piece so that the last one of a chunk is a full read. */
static int feed_chunk(struct png_run *run, uint8_t *to) {
        struct png_chunks *chunks = &run->chunks;

        while (chunks->data_left == 0)
                if (!png_chunks_more_data(chunks)) {
                        run->dry = 1;
                        return SPNG_IO_EOF;
                }
        run->piece = (uint32_t)(chunks->data_left % READ);
        if (run->piece == 0)
                run->piece = READ;
        put_number(to, run->piece);
        memcpy(to + 4, "IDAT", 4);
        run->checksum = (uint32_t)crc32(0, to + 4, 4);
        return 0;
}

static void feed_data(struct png_run *run, uint8_t *to, size_t length) {
        memcpy(to, run->chunks.data, length);
        run->chunks.data += length;
        run->chunks.data_left -= length;
        run->piece -= (uint32_t)length;
        if (!run->started)
                run->checksum = (uint32_t)crc32(run->checksum, to, (uInt)length);
}

/* Libspng asks for one part at a time, always whole; only data might come in several reads. */
static int on_read(spng_ctx *spng, void *user, void *to, size_t length) {
        static const size_t lengths[] = {[PART_HEADER] = 29, [PART_CHECKSUM] = 4, [PART_CHUNK] = 8};
        struct png_run *run = user;
        enum part part = run->part;

        if (part == PART_DATA) {
                if (length > run->piece)
                        return SPNG_IO_ERROR;
                feed_data(run, to, length);
                if (run->piece == 0)
                        run->part = PART_CHECKSUM;
                return 0;
        }
        if (length != lengths[part])
                return SPNG_IO_ERROR;
        run->part = part + 1;
        if (part == PART_CHUNK)
                return feed_chunk(run, to);
        if (part == PART_HEADER)
                feed_header(run, to);
        else
                put_number(to, run->checksum);
        return 0;
}

/* ---- pixels ---- */

static void prepare_colours(struct png_run *run) {
        const struct png_chunks *chunks = &run->chunks;
        unsigned most = (1u << chunks->depth) - 1;

        for (unsigned i = 0; i < 256; i++)
                memset(run->colours[i], (int)(chunks->colour == PNG_PALETTE ? i : i * 255 / most), BYTES);
        if (chunks->colour == PNG_PALETTE && chunks->colours > 0)
                memcpy(run->colours, chunks->palette, (size_t)chunks->colours * BYTES);
}

static int is_looked_up(const struct png_chunks *chunks) {
        return chunks->colour == PNG_PALETTE || (chunks->colour == PNG_GRAY && chunks->depth <= 8);
}

static void look_up(const struct png_run *run, uint8_t *to, size_t step, const uint8_t *row, uint32_t first,
                    uint32_t n) {
        unsigned depth = run->chunks.depth, mask = (1u << depth) - 1;

        if (depth == 8) {
                for (const uint8_t *from = row + first; n > 0; n--, from++, to += step)
                        memcpy(to, run->colours[*from], BYTES);
                return;
        }
        for (size_t bit = (size_t)first * depth; n > 0; n--, bit += depth, to += step)
                memcpy(to, run->colours[row[bit / 8] >> (8 - depth - bit % 8) & mask], BYTES);
}

static struct layout layout_of(const struct png_chunks *chunks) {
        unsigned sample = chunks->depth / 8;

        switch (chunks->colour) {
        case PNG_GRAY:
                return (struct layout){sample, 0, 0, 0};
        case PNG_GRAY_ALPHA:
                return (struct layout){2 * sample, 0, 0, 0};
        case PNG_RGB:
                return (struct layout){3 * sample, 0, sample, 2 * sample};
        default:
                return (struct layout){4 * sample, 0, sample, 2 * sample};
        }
}

/* The upper byte of 16 bits is the first. */
static void pick(const struct png_run *run, uint8_t *to, size_t step, const uint8_t *row, uint32_t first,
                 uint32_t n) {
        struct layout layout = layout_of(&run->chunks);
        const uint8_t *from = row + (size_t)first * layout.bytes;

        if (layout.bytes == BYTES && step == BYTES) {
                memcpy(to, from, (size_t)n * BYTES);
                return;
        }
        for (; n > 0; n--, from += layout.bytes, to += step) {
                to[0] = from[layout.red];
                to[1] = from[layout.green];
                to[2] = from[layout.blue];
        }
}

/* A row of samples, whose first stands in column `start` of row `y`, the others each `apart` columns on. What
 * of them is in the window goes into the image. */
static void put_row(struct png_run *run, const uint8_t *row, uint32_t y, uint32_t start, uint32_t apart) {
        const struct codec_window *window = &run->window;
        uint32_t end = window->left + window->width, first;
        struct image *image = run->image;
        uint8_t *to;

        if (y < window->top || y - window->top >= window->height || start >= end)
                return;
        first = window->left > start ? (window->left - start + apart - 1) / apart : 0;
        if (first * apart >= end - start)
                return;
        to = image->pixels + (y - window->top) * image->stride;
        to += (size_t)(start + first * apart - window->left) * BYTES;
        (is_looked_up(&run->chunks) ? look_up : pick)(run, to, (size_t)apart * BYTES, row, first,
                                                      (end - start - first * apart + apart - 1) / apart);
}

/* ---- rows ---- */

static int cannot_read(struct png_run *run, int error, uint32_t y) {
        const struct png_chunks *chunks = &run->chunks;

        if (error == SPNG_EMEM || error == SPNG_EZLIB_INIT)
                return fault_set(run->fault, -ENOMEM, "no memory to decode the PNG");
        if (run->dry && chunks->at >= chunks->length)
                return fault_set(run->fault, -EBADMSG,
                                 "the PNG is damaged: truncated, its %zu bytes end in row %u of %u",
                                 chunks->length, y, chunks->height);
        return fault_set(run->fault, -EBADMSG, "the PNG is damaged: %s in row %u of %u",
                         run->dry ? "the image data end" : spng_strerror(error), y, chunks->height);
}

/* From here on libspng does not look at checksums of chunks; but it has to before, or else it would leave out
 * the one inside the image data, too. */
static int start(struct png_run *run) {
        int r = spng_set_png_stream(run->spng, on_read, run);

        if (r == 0)
                r = spng_decode_image(run->spng, NULL, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
        if (r == 0)
                r = spng_set_crc_action(run->spng, SPNG_CRC_USE, SPNG_CRC_USE);
        run->started = 1;
        return r == 0 ? 0 : cannot_read(run, r, 0);
}

static size_t row_bytes(const struct png_chunks *chunks) {
        static const uint8_t samples[] = {
                [PNG_GRAY] = 1, [PNG_RGB] = 3, [PNG_PALETTE] = 1, [PNG_GRAY_ALPHA] = 2, [PNG_RGB_ALPHA] = 4};

        return ((size_t)chunks->width * samples[chunks->colour] * chunks->depth + 7) / 8;
}

static int read_rows(struct png_run *run, uint8_t *row) {
        size_t bytes = row_bytes(&run->chunks);
        uint32_t end = run->window.top + run->window.height;
        int r;

        for (uint32_t y = 0; y < end; y++) {
                r = spng_decode_scanline(run->spng, row, bytes);
                if (r != 0 && r != SPNG_EOI)
                        return cannot_read(run, r, y);
                put_row(run, row, y, 0, 1);
                run->rows++;
        }
        return 0;
}

static int read_passes(struct png_run *run, uint8_t *row) {
        static const uint8_t starts[] = {0, 4, 0, 2, 0, 1, 0}, apart[] = {8, 8, 4, 4, 2, 2, 1};
        size_t bytes = row_bytes(&run->chunks);
        struct spng_row_info at;
        int r;

        do {
                r = spng_get_row_info(run->spng, &at);
                if (r != 0)
                        return cannot_read(run, r, run->rows);
                r = spng_decode_scanline(run->spng, row, bytes);
                if (r != 0 && r != SPNG_EOI)
                        return cannot_read(run, r, at.row_num);
                put_row(run, row, at.row_num, starts[at.pass], apart[at.pass]);
                run->rows++;
        } while (r == 0);
        return 0;
}

static int read_pixels(struct png_run *run) {
        const struct png_chunks *chunks = &run->chunks;
        uint8_t *row;
        int r;

        r = decoder_scratch(run->file->decoder, row_bytes(chunks), &row);
        if (r < 0)
                return fault_set(run->fault, r, "no memory for a row of pixels");
        r = start(run);
        if (r < 0)
                return r;
        r = chunks->interlaced ? read_passes(run, row) : read_rows(run, row);
        if (r == 0 && run->window.top + run->window.height == chunks->height)
                r = png_chunks_check_rest(&run->chunks, run->fault);
        return r;
}

/* ---- the codec ---- */

static int open_file(struct codec_file *file, struct codec_picture *picture, struct fault *fault) {
        const uint8_t *exif;
        struct png_run *run;
        size_t exif_length;
        int r;

        if (!file->state)
                file->state = calloc(1, sizeof(struct png_run));
        if (!file->state)
                return fault_set(fault, -ENOMEM, "no memory to decode the PNG");
        run = file->state;
        r = png_chunks_open(&run->chunks, file->bytes, file->length, file->options->accept_damaged, fault);
        if (r < 0)
                return r;
        picture->width = run->chunks.width;
        picture->height = run->chunks.height;
        if (file->options->orient && png_find_exif(file->bytes, file->length, &exif, &exif_length))
                picture->orientation = orient_of_exif(exif, exif_length);
        return codec_check_pixels(picture->width, picture->height, file->options->pixels_max, fault);
}

static int make_room(struct png_run *run) {
        uint32_t width = run->window.width, height = run->window.height;
        int r = image_reset(run->image, width, height);

        if (r < 0)
                return fault_set(run->fault, r, "no memory for %u x %u pixels", width, height);
        if (run->file->options->accept_damaged)
                memset(run->image->pixels, 0, run->image->stride * height);
        return 0;
}

static int decode(struct codec_file *file, const struct codec_window *window, struct image *image,
                  struct fault *fault) {
        struct png_run *run = file->state;
        int r;

        run->file = file;
        run->image = image;
        run->fault = fault;
        run->window = *window;
        run->part = PART_HEADER;
        run->dry = 0;
        run->started = 0;
        run->rows = 0;
        r = make_room(run);
        if (r < 0)
                return r;
        run->spng = spng_ctx_new(0);
        if (!run->spng)
                return fault_set(fault, -ENOMEM, "no memory to decode the PNG");
        if (is_looked_up(&run->chunks))
                prepare_colours(run);
        r = read_pixels(run);
        spng_ctx_free(run->spng);
        run->spng = NULL;
        return r == -EBADMSG && file->options->accept_damaged && run->rows > 0 ? 0 : r;
}

const struct codec codec_png = {"PNG", png_probe, open_file, decode, free};
