/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * WebP through libwebp and its demultiplexer, with the pixels and the verdicts of Pillow's
 * Image.open(...).convert("RGB"): alpha is dropped, not blended, and of an animation the first frame is
 * shown.
 *
 * Every file goes through the demultiplexer, still ones too, as in Pillow: it refuses whatever is cut off or
 * has frames outside the canvas, and knows where the EXIF data are. It takes some hundred bytes for each
 * frame, which takes at least a quarter of that in the file; no memory depends on a size that a header only
 * claims.
 *
 * A first frame need not cover its canvas. There is nothing below it that it could be blended with, so it is
 * decoded into its place and the rest is black, as it is where transparency is dropped from what Pillow calls
 * transparent black. The decoder of whole animations, which gives the same, would hold two canvases of its
 * own.
 *
 * Pillow refuses damaged WebPs also with LOAD_TRUNCATED_IMAGES, and so are they here, whatever the options
 * say: half a picture cannot be had from a library that wants the file to be whole.
 */

#include "daemon/worker/codec.h"

#include "base/fault.h"
#include "daemon/worker/image.h"
#include "daemon/worker/orient.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

struct webp_run {
        WebPDemuxer *demuxer;
        WebPIterator frame; /* the first; points into the file */
        uint32_t width, height;
};

static int probe(const uint8_t *bytes, size_t length) {
        return length >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

static const char *status_text(VP8StatusCode status) {
        switch (status) {
        case VP8_STATUS_NOT_ENOUGH_DATA:
        case VP8_STATUS_SUSPENDED:
                return "truncated";
        case VP8_STATUS_UNSUPPORTED_FEATURE:
                return "a feature that libwebp does not know";
        default:
                return "the bit stream is broken";
        }
}

static int damaged(struct fault *fault, VP8StatusCode status, size_t length) {
        if (status == VP8_STATUS_OUT_OF_MEMORY)
                return fault_set(fault, -ENOMEM, "no memory to decode the WebP");
        return fault_set(fault, -EBADMSG, "the WebP of %zu bytes is damaged: %s", length,
                         status_text(status));
}

static void run_deinit(struct webp_run *run) {
        if (run->demuxer)
                WebPDemuxReleaseIterator(&run->frame);
        WebPDemuxDelete(run->demuxer);
        run->demuxer = NULL;
}

/* The demultiplexer takes what is cut off for an error, too, but it knows. */
static int open_container(struct webp_run *run, const struct codec_file *file, struct fault *fault) {
        const WebPData data = {file->bytes, file->length};
        WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
        WebPDemuxer *part;

        run->demuxer = WebPDemux(&data);
        if (run->demuxer && WebPDemuxGetFrame(run->demuxer, 1, &run->frame)) {
                run->width = WebPDemuxGetI(run->demuxer, WEBP_FF_CANVAS_WIDTH);
                run->height = WebPDemuxGetI(run->demuxer, WEBP_FF_CANVAS_HEIGHT);
                return 0;
        }
        part = WebPDemuxPartial(&data, &state);
        WebPDemuxDelete(part);
        return damaged(fault,
                       state < WEBP_DEMUX_PARSING_HEADER ? VP8_STATUS_BITSTREAM_ERROR
                                                         : VP8_STATUS_NOT_ENOUGH_DATA,
                       file->length);
}

static int orientation_of(struct webp_run *run) {
        WebPChunkIterator chunk;
        int orientation = ORIENT_UPRIGHT;

        if (WebPDemuxGetChunk(run->demuxer, "EXIF", 1, &chunk))
                orientation = orient_of_exif(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
        return orientation;
}

static int open_file(struct codec_file *file, struct codec_picture *picture, struct fault *fault) {
        struct webp_run *run;
        int r;

        if (!file->state)
                file->state = calloc(1, sizeof(struct webp_run));
        if (!file->state)
                return fault_set(fault, -ENOMEM, "no memory to decode the WebP");
        run = file->state;
        run_deinit(run);
        r = open_container(run, file, fault);
        if (r == 0)
                r = codec_check_pixels(run->width, run->height, file->options->pixels_max, fault);
        if (r < 0) {
                run_deinit(run);
                return r;
        }
        picture->width = run->width;
        picture->height = run->height;
        if (file->options->orient)
                picture->orientation = orientation_of(run);
        return 0;
}

/* Makes room for the canvas, black where the frame is not. */
static int make_room(const struct webp_run *run, struct image *image, struct fault *fault) {
        int r = image_reset(image, run->width, run->height);

        if (r < 0)
                return fault_set(fault, r, "no memory for %u x %u pixels", run->width, run->height);
        if ((uint32_t)run->frame.width < run->width || (uint32_t)run->frame.height < run->height)
                memset(image->pixels, 0, image->stride * image->height);
        return 0;
}

/* The whole canvas, of which the window becomes the view: libwebp's own cropping saves little. */
static int decode_frame(const struct webp_run *run, struct image *image, size_t length, struct fault *fault) {
        const WebPIterator *frame = &run->frame;
        WebPDecoderConfig config;
        VP8StatusCode status;
        uint8_t *corner;
        int r;

        if (!WebPInitDecoderConfig(&config))
                return fault_set(fault, -ENOSYS, /* no fault of the picture */
                                 "libwebp has another version than the one it was built with");
        r = make_room(run, image, fault);
        if (r < 0)
                return r;
        corner = image->pixels + (size_t)frame->y_offset * image->stride + (size_t)frame->x_offset * 3;
        config.output.colorspace = MODE_RGB;
        config.output.is_external_memory = 1;
        config.output.u.RGBA.rgba = corner;
        config.output.u.RGBA.stride = (int)image->stride;
        config.output.u.RGBA.size = image->stride * image->height - (size_t)(corner - image->pixels);
        status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
        WebPFreeDecBuffer(&config.output);
        return status == VP8_STATUS_OK ? 0 : damaged(fault, status, length);
}

static int decode(struct codec_file *file, const struct codec_window *window, struct image *image,
                  struct fault *fault) {
        struct webp_run *run = file->state;
        int r = decode_frame(run, image, file->length, fault);

        run_deinit(run);
        if (r == 0)
                image_crop(image, window->left, window->top, window->width, window->height);
        return r;
}

static void free_state(void *state) {
        struct webp_run *run = state;

        if (run)
                run_deinit(run);
        free(run);
}

const struct codec codec_webp = {"WEBP", probe, open_file, decode, free_state};
