/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Still WebP pictures through libwebp, decoded straight into the image. Alpha is dropped, not blended, as
 * Pillow's convert("RGB") does. libwebp checks sizes against the container, and refuses what is cut off;
 * animations need its demultiplexer, which is not linked, and are named so.
 */

#include "daemon/worker/codec.h"

#include "base/fault.h"
#include "daemon/worker/image.h"

#include <errno.h>
#include <string.h>

#include <webp/decode.h>

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

static int open_file(struct codec_file *file, struct codec_picture *picture, struct fault *fault) {
        WebPBitstreamFeatures features;
        VP8StatusCode status = WebPGetFeatures(file->bytes, file->length, &features);

        if (status != VP8_STATUS_OK)
                return damaged(fault, status, file->length);
        if (features.has_animation)
                return fault_set(fault, -EOPNOTSUPP, "format WEBP with animation is not supported");
        picture->width = (uint32_t)features.width;
        picture->height = (uint32_t)features.height;
        return codec_check_pixels(picture->width, picture->height, file->options->pixels_max, fault);
}

/* The whole picture, of which the window becomes the view: libwebp's own cropping saves little. */
static int decode(struct codec_file *file, const struct codec_window *window, struct image *image,
                  struct fault *fault) {
        WebPDecoderConfig config;
        VP8StatusCode status;
        int r;

        if (!WebPInitDecoderConfig(&config))
                return fault_set(fault, -ENOSYS, /* no fault of the picture */
                                 "libwebp has another version than the one it was built with");
        status = WebPGetFeatures(file->bytes, file->length, &config.input);
        if (status != VP8_STATUS_OK)
                return damaged(fault, status, file->length);
        r = image_reset(image, (uint32_t)config.input.width, (uint32_t)config.input.height);
        if (r < 0)
                return fault_set(fault, r, "no memory for %d x %d pixels", config.input.width,
                                 config.input.height);

        config.output.colorspace = MODE_RGB;
        config.output.is_external_memory = 1;
        config.output.u.RGBA.rgba = image->pixels;
        config.output.u.RGBA.stride = (int)image->stride;
        config.output.u.RGBA.size = image->stride * image->height;
        status = WebPDecode(file->bytes, file->length, &config);
        WebPFreeDecBuffer(&config.output);
        if (status != VP8_STATUS_OK)
                return damaged(fault, status, file->length);
        image_crop(image, window->left, window->top, window->width, window->height);
        return 0;
}

static void free_state(void *state) {
        /* there is none */
}

const struct codec codec_webp = {"WEBP", probe, open_file, decode, free_state};
