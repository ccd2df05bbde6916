/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * JPEG through the libjpeg API, with the pixels and the verdicts of Pillow's Image.open(...).convert("RGB").
 *
 * Pixels: libjpeg's defaults (the accurate integer DCT, smooth upsampling). Three components come out as RGB,
 * one is repeated three times. Four are CMYK or YCCK: Pillow takes them as inverted, whatever the file says
 * ("assume adobe conventions"), and mixes each with black in 8-bit arithmetic; see cmyk_row. Two components
 * are nothing that can be shown.
 *
 * Verdicts: a file is refused when libjpeg calls it an error, also an error in what follows the last row up
 * to the end-of-image marker (a scan that went out of step usually runs into something impossible there), and
 * when its bytes end before the last row is out. Other warnings are accepted. To see the end of the data the
 * source manager "suspends": asked for more bytes it says there are none yet, where libjpeg's own one would
 * pretend an end-of-image marker and paint the rest gray. Only after the last row may the bytes end early: a
 * missing end marker costs no pixel. What follows the end marker (thumbnails, further pictures of a camera)
 * is not looked at.
 *
 * Windows: above the window Huffman decoding goes on, but no block is transformed, no chroma smoothed, no
 * colour converted: libjpeg skips rows and leaves out columns. Below it nothing is read at all, a quarter of
 * the work on average, so damage there is not seen: a window is judged by what it needs, the same in every
 * run, and the whole file where the window reaches its last row (`inspect` always looks at all of it).
 * Smoothing looks at a chroma sample's neighbours, and a left-out column has none, so EDGE more pixels are
 * decoded on both sides. Files of several scans are decoded whole: of an unfinished one libjpeg guesses
 * blocks from their neighbours, and the entropy decoding is nearly all of their cost anyway. A test compares
 * windows of all kinds with the whole picture.
 *
 * Damage that is to be accepted ends in what there is: bytes that end too early are followed by an end
 * marker, after which libjpeg paints gray, and an error leaves the rows that it kept from coming black, as
 * Pillow's LOAD_TRUNCATED_IMAGES does. A file without one row to show is refused all the same.
 *
 * A small file can ask for hours, scan after scan over the largest picture. Libjpeg reads all scans before
 * the first row, so they are counted beforehand where there can be more than one.
 *
 * The decompressor lives from the header to the last row, and a fresh one is made for each file. Reusing one
 * would save microseconds, and let a file without quantization or Huffman tables be decoded with those of the
 * file before it. What it allocates comes from the heap that the worker keeps (session.c), without a system
 * call.
 *
 * libjpeg reports errors by a function that must not return; it jumps out to `guarded`. Nothing between there
 * and libjpeg owns anything that libjpeg does not free itself.
 */

#include "daemon/worker/codec.h"

#include "base/fault.h"
#include "daemon/worker/image.h"
#include "daemon/worker/orient.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

enum {
        ROWS_AT_ONCE = 4, /* a call gives the rows that share a row of chroma: one, two, never over four */
        EDGE = 2,         /* pixels that share a chroma sample with the neighbour, at most */
        EXIF_MARKER = JPEG_APP0 + 1,
};

struct jpeg_run {
        struct jpeg_decompress_struct jpeg;
        struct jpeg_error_mgr errors;
        struct jpeg_source_mgr source;
        jmp_buf escape;
        int error;  /* of the call that jumped out */
        int dry;    /* more bytes were asked for than there are */
        int pad;    /* then an end marker is made up */
        int living; /* there is a decompressor */
        char message[JMSG_LENGTH_MAX];

        const struct codec_file *file;
        struct image *image;
        struct fault *fault;
        struct codec_window window; /* what is wanted */
        uint32_t left;              /* the first column that libjpeg gives */
};

static struct jpeg_run *run_of(j_common_ptr common) {
        return common->client_data;
}

static void on_error(j_common_ptr common) {
        struct jpeg_run *run = run_of(common);

        common->err->format_message(common, run->message);
        run->error = common->err->msg_code == JERR_OUT_OF_MEMORY ? -ENOMEM : -EBADMSG;
        longjmp(run->escape, 1);
}

static void on_output(j_common_ptr common) {
        /* Warnings are accepted, and a library's text has no business on our standard error. */
}

static void on_source(j_decompress_ptr jpeg) {
}

static boolean on_dry(j_decompress_ptr jpeg) {
        static const JOCTET end[] = {0xff, JPEG_EOI};
        struct jpeg_run *run = run_of((j_common_ptr)jpeg);

        run->dry = 1;
        if (!run->pad)
                return FALSE;
        jpeg->src->next_input_byte = end;
        jpeg->src->bytes_in_buffer = sizeof(end);
        return TRUE;
}

static void on_skip(j_decompress_ptr jpeg, long bytes) {
        struct jpeg_source_mgr *source = jpeg->src;
        size_t skipped = bytes < 0 ? 0 : (size_t)bytes;

        if (skipped > source->bytes_in_buffer)
                skipped = source->bytes_in_buffer;
        source->next_input_byte += skipped;
        source->bytes_in_buffer -= skipped;
}

/* Calls `step` and catches libjpeg's errors. What `step` returns, or a negative errno with the fault set. */
static int guarded(struct jpeg_run *run, int (*step)(struct jpeg_run *run)) {
        if (setjmp(run->escape) == 0)
                return step(run);
        if (run->error == -ENOMEM)
                return fault_set(run->fault, -ENOMEM, "no memory to decode the JPEG");
        return fault_set(run->fault, run->error, "the JPEG is damaged: %s", run->message);
}

static int ran_dry(struct jpeg_run *run, const char *where) {
        return fault_set(run->fault, -EBADMSG, "the JPEG is damaged: truncated, its %zu bytes end in %s",
                         run->file->length, where);
}

/* Scans from where libjpeg stands, behind the first one's marker. In a scan's data 0xff is followed by 0 or a
 * restart marker; other markers have a length behind them, but for those below the frames': one of them
 * (TEM) stands alone, and libjpeg steps over the others where it looks for a restart marker. */
static uint32_t count_scans(const uint8_t *bytes, size_t length) {
        enum {
                SCAN = 0xda,
                END = 0xd9,
                RESTART = 0xd0,
                FRAME = 0xc0,
        };
        const uint8_t *end = bytes + length;
        uint32_t scans = 1;

        while (end - bytes >= 4 && (bytes = memchr(bytes, 0xff, (size_t)(end - bytes) - 3))) {
                uint8_t marker = bytes[1];
                size_t skip = 1;

                if (marker == END)
                        break;
                scans += marker == SCAN;
                if (marker >= FRAME && marker != 0xff && (marker < RESTART || marker > END))
                        skip = 2 + ((size_t)bytes[2] << 8 | bytes[3]);
                bytes += skip < (size_t)(end - bytes) ? skip : (size_t)(end - bytes);
        }
        return scans;
}

static int check_scans(struct jpeg_run *run) {
        uint32_t most = run->file->options->scans_max, scans;

        if (!jpeg_has_multiple_scans(&run->jpeg))
                return 0;
        scans = count_scans(run->source.next_input_byte, run->source.bytes_in_buffer);
        if (scans <= most)
                return 0;
        return fault_set(run->fault, -EFBIG,
                         "too many scans: the JPEG has %" PRIu32 ", the limit is %" PRIu32 " (max_scans)",
                         scans, most);
}

static int read_header(struct jpeg_run *run) {
        struct jpeg_decompress_struct *jpeg = &run->jpeg;
        int r;

        jpeg_create_decompress(jpeg);
        run->living = 1;
        if (run->file->options->orient)
                jpeg_save_markers(jpeg, EXIF_MARKER, 0xffff);
        run->source = (struct jpeg_source_mgr){
                .next_input_byte = run->file->bytes,
                .bytes_in_buffer = run->file->length,
                .init_source = on_source,
                .fill_input_buffer = on_dry,
                .skip_input_data = on_skip,
                .resync_to_restart = jpeg_resync_to_restart,
                .term_source = on_source,
        };
        jpeg->src = &run->source;

        do
                r = jpeg_read_header(jpeg, FALSE);
        while (r == JPEG_HEADER_TABLES_ONLY);
        if (r != JPEG_HEADER_OK)
                return ran_dry(run, "the header");
        if (jpeg->num_components != 1 && jpeg->num_components != 3 && jpeg->num_components != 4)
                return fault_set(run->fault, -EBADMSG, "the JPEG has %d components, not 1, 3 or 4",
                                 jpeg->num_components);
        r = codec_check_pixels(jpeg->image_width, jpeg->image_height, run->file->options->pixels_max,
                               run->fault);
        return r < 0 ? r : check_scans(run);
}

/* Leaves out columns on both sides of the window, as far as libjpeg can. */
static void choose_columns(struct jpeg_run *run) {
        const struct codec_window *window = &run->window;
        JDIMENSION left = window->left > EDGE ? window->left - EDGE : 0;
        JDIMENSION right = window->left + window->width + EDGE, width;

        if (right > run->jpeg.output_width)
                right = run->jpeg.output_width;
        width = right - left;
        if (width < run->jpeg.output_width)
                jpeg_crop_scanline(&run->jpeg, &left, &width);
        else
                left = 0;
        run->left = left;
}

static int start(struct jpeg_run *run) {
        struct jpeg_decompress_struct *jpeg = &run->jpeg;

        run->pad = run->file->options->accept_damaged;
        jpeg->out_color_space = jpeg->num_components == 4 ? JCS_CMYK : JCS_RGB;
        /* Files of several scans are read to their end here. */
        if (!jpeg_start_decompress(jpeg))
                return ran_dry(run, "the image data");
        if (!jpeg_has_multiple_scans(jpeg))
                choose_columns(run);
        return 0;
}

static int rows_missing(struct jpeg_run *run) {
        char where[64];

        snprintf(where, sizeof(where), "row %u of %u", run->jpeg.output_scanline, run->jpeg.output_height);
        return ran_dry(run, where);
}

/* The bytes have ended and no end marker was made up. */
static int is_stuck(const struct jpeg_run *run) {
        return run->dry && !run->pad;
}

/* Gets past rows that nobody wants; `row` has room for one. The last of them is really read, because libjpeg
 * jumps to the end without looking when all that is left is skipped. */
static int pass_rows(struct jpeg_run *run, uint32_t until, uint8_t *row) {
        struct jpeg_decompress_struct *jpeg = &run->jpeg;

        if (until > jpeg->output_scanline + 1)
                jpeg_skip_scanlines(jpeg, until - 1 - jpeg->output_scanline);
        while (jpeg->output_scanline < until)
                if (is_stuck(run) || jpeg_read_scanlines(jpeg, &row, 1) == 0)
                        return rows_missing(run);
        return is_stuck(run) ? rows_missing(run) : 0;
}

static int read_rgb(struct jpeg_run *run, uint32_t until) {
        struct jpeg_decompress_struct *jpeg = &run->jpeg;
        uint8_t *to = run->image->pixels;
        JSAMPROW rows[ROWS_AT_ONCE];

        while (jpeg->output_scanline < until) {
                JDIMENSION left = until - jpeg->output_scanline,
                           n = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;

                for (JDIMENSION i = 0; i < n; i++)
                        rows[i] = to + i * run->image->stride;
                n = jpeg_read_scanlines(jpeg, rows, n);
                if (n == 0)
                        return rows_missing(run);
                to += n * run->image->stride;
        }
        return 0;
}

/* a * b / 255, rounded, without a division; Pillow's MULDIV255. */
static inline unsigned multiply_255(unsigned a, unsigned b) {
        unsigned product = a * b + 128;

        return ((product >> 8) + product) >> 8;
}

/* libjpeg's bytes are the inverted inks, so `from` is 255 - ink already where Pillow's formula wants 255 -
 * black: result = white - ink x white / 255 with white = 255 - black. */
static void cmyk_row(uint8_t *to, const uint8_t *from, uint32_t width) {
        for (uint32_t x = 0; x < width; x++, from += 4, to += 3) {
                unsigned white = from[3];

                for (unsigned c = 0; c < 3; c++)
                        to[c] = (uint8_t)(white - multiply_255(255u - from[c], white));
        }
}

static int read_cmyk(struct jpeg_run *run, uint32_t until, uint8_t *row) {
        struct jpeg_decompress_struct *jpeg = &run->jpeg;

        for (uint8_t *to = run->image->pixels; jpeg->output_scanline < until; to += run->image->stride) {
                if (jpeg_read_scanlines(jpeg, &row, 1) == 0)
                        return rows_missing(run);
                cmyk_row(to, row, jpeg->output_width);
        }
        return 0;
}

/* The image has room for the window's rows. */
static int read_pixels(struct jpeg_run *run) {
        struct jpeg_decompress_struct *jpeg = &run->jpeg;
        uint32_t end = run->window.top + run->window.height;
        uint8_t *row;
        int r;

        r = decoder_scratch(run->file->decoder, (size_t)jpeg->output_width * 4, &row);
        if (r < 0)
                return fault_set(run->fault, r, "no memory for a row of pixels");
        r = pass_rows(run, run->window.top, row);
        if (r < 0)
                return r;
        r = jpeg->out_color_space == JCS_CMYK ? read_cmyk(run, end, row) : read_rgb(run, end);
        if (r < 0)
                return r;
        if (end < jpeg->output_height)
                return is_stuck(run) ? rows_missing(run) : 0;
        /* Only its errors matter: false means that the end marker is missing. */
        jpeg_finish_decompress(jpeg);
        return 0;
}

static int probe(const uint8_t *bytes, size_t length) {
        return length >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static int orientation_of(const struct jpeg_run *run) {
        const struct jpeg_marker_struct *marker;

        for (marker = run->jpeg.marker_list; marker; marker = marker->next)
                if (marker->data_length >= 6 && memcmp(marker->data, "Exif\0", 6) == 0)
                        return orient_of_exif(marker->data, marker->data_length);
        return ORIENT_UPRIGHT;
}

static void run_deinit(struct jpeg_run *run) {
        if (run->living)
                jpeg_destroy_decompress(&run->jpeg);
        run->living = 0;
}

static void run_init(struct jpeg_run *run, const struct codec_file *file, struct fault *fault) {
        run_deinit(run);
        *run = (struct jpeg_run){.fault = fault, .file = file};
        run->jpeg.err = jpeg_std_error(&run->errors);
        run->jpeg.client_data = run;
        run->errors.error_exit = on_error;
        run->errors.output_message = on_output;
}

static int open_file(struct codec_file *file, struct codec_picture *picture, struct fault *fault) {
        struct jpeg_run *run;
        int r;

        if (!file->state)
                file->state = calloc(1, sizeof(struct jpeg_run));
        if (!file->state)
                return fault_set(fault, -ENOMEM, "no memory to decode the JPEG");
        run = file->state;
        run_init(run, file, fault);
        r = guarded(run, read_header);
        if (r < 0) {
                run_deinit(run);
                return r;
        }
        picture->width = run->jpeg.image_width;
        picture->height = run->jpeg.image_height;
        if (file->options->orient)
                picture->orientation = orientation_of(run);
        return 0;
}

static int make_room(struct jpeg_run *run) {
        uint32_t width = run->jpeg.output_width, height = run->window.height;
        int r = image_reset(run->image, width, height);

        if (r < 0)
                return fault_set(run->fault, r, "no memory for %u x %u pixels", width, height);
        return 0;
}

/* What came before the error, and black. */
static int accept_error(struct jpeg_run *run, int error) {
        uint32_t done = run->jpeg.output_scanline, first = run->window.top, shown;

        if (error != -EBADMSG || !run->file->options->accept_damaged || done == 0)
                return error;
        shown = done > first ? done - first : 0;
        if (shown < run->window.height)
                memset(run->image->pixels + shown * run->image->stride, 0,
                       (run->window.height - shown) * run->image->stride);
        return 0;
}

static int decode(struct codec_file *file, const struct codec_window *window, struct image *image,
                  struct fault *fault) {
        struct jpeg_run *run = file->state;
        int r;

        run->fault = fault;
        run->image = image;
        run->window = *window;
        r = guarded(run, start);
        if (r == 0)
                r = make_room(run);
        if (r == 0) {
                r = guarded(run, read_pixels);
                if (r < 0)
                        r = accept_error(run, r);
        }
        if (r == 0)
                image_crop(image, window->left - run->left, 0, window->width, window->height);
        run_deinit(run);
        return r;
}

static void free_state(void *state) {
        struct jpeg_run *run = state;

        if (run)
                run_deinit(run);
        free(run);
}

const struct codec codec_jpeg = {"JPEG", probe, open_file, decode, free_state};
