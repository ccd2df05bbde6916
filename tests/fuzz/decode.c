/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What must hold of a codec, whatever the bytes are:
 *
 * - It fails with a verdict on the file (damaged, over a limit, not supported) and a text, never for lack of
 *   memory: the limit on pixels is low here.
 * - A decoder that has seen other files, whose image still holds their pixels, gives the same as a new one.
 *   So nothing is carried over, and no pixel is left as the memory was.
 * - A window of a picture that is not refused is not refused either, and has the same pixels, also where the
 *   picture is damaged and that is accepted. A picture that is refused may have windows that are not, for
 *   damage below them is not looked at, but none that reaches the last stored row. (Which row that is, is not
 *   known here of pictures that are turned.)
 * - Accepting damage changes nothing about a file without any.
 *
 * The sanitizers look for the rest. The kept decoders and images live as long as the process, so leaks are
 * those of a single file.
 */

#include "tests/fuzz/fuzz.h"

#include "base/fault.h"
#include "base/utf8.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"

#include <errno.h>
#include <string.h>

enum {
        CHOICES = 4,          /* of options */
        PIXELS_MAX = 0x10000, /* small pictures are decoded often, and have as many edges as large ones */
        SCANS_MAX = 20,
        BYTES = 3, /* of a pixel */
};

/* A file, and what a decoder made of it. */
struct trial {
        const uint8_t *bytes;
        size_t length;
        int error;
        uint32_t width, height; /* what its header says */
        struct image image;
        struct fault fault;
};

static struct decoder *make_decoder(unsigned flags) {
        struct codec_options options = {
                .accept_damaged = (flags & FUZZ_ACCEPT_DAMAGED) != 0,
                .orient = (flags & FUZZ_ORIENT) != 0,
                .pixels_max = PIXELS_MAX,
                .scans_max = SCANS_MAX,
        };
        struct decoder *decoder;

        if (decoder_new(&decoder, &options) < 0)
                fuzz_broken("no memory for a decoder");
        return decoder;
}

static void check_verdict(const struct trial *trial) {
        const char *text = trial->fault.text;

        if (trial->error == 0)
                return;
        if (trial->error != -EBADMSG && trial->error != -EFBIG && trial->error != -EOPNOTSUPP)
                fuzz_broken("error %d is no verdict on the file: %s", trial->error, text);
        if (text[0] == 0 || !utf8_is_text(text, strlen(text)))
                fuzz_broken("error %d has no text, or none in UTF-8", trial->error);
}

/* Opens the file, and keeps its size. */
static int open_file(struct decoder *decoder, struct trial *trial) {
        const char *format = NULL;

        trial->fault.text[0] = 0;
        trial->error =
                decoder_open(decoder, trial->bytes, trial->length, &trial->image, &format, &trial->fault);
        check_verdict(trial);
        if (trial->error < 0)
                return trial->error;
        trial->width = trial->image.width;
        trial->height = trial->image.height;
        return 0;
}

static void decode_whole(struct decoder *decoder, struct trial *trial) {
        if (open_file(decoder, trial) < 0)
                return;
        trial->error = image_load(&trial->image, &trial->fault);
        check_verdict(trial);
}

static void decode_window(struct decoder *decoder, struct trial *trial, const struct codec_window *window) {
        if (open_file(decoder, trial) < 0)
                return;
        image_crop(&trial->image, window->left, window->top, window->width, window->height);
        trial->error = image_load(&trial->image, &trial->fault);
        check_verdict(trial);
}

/* That `part`, a good one, holds the pixels of the whole at the window. */
static void check_pixels(const struct trial *whole, const struct trial *part,
                         const struct codec_window *window, const char *what) {
        const struct image *from = &whole->image, *image = &part->image;

        if (image->width != window->width || image->height != window->height)
                fuzz_broken("%s: %u x %u pixels where %u x %u were wanted", what, image->width, image->height,
                            window->width, window->height);
        for (uint32_t y = 0; y < window->height; y++)
                if (memcmp(image->pixels + y * image->stride,
                           from->pixels + (window->top + y) * from->stride + (size_t)window->left * BYTES,
                           (size_t)window->width * BYTES) != 0)
                        fuzz_broken("%s: row %u of the window %u x %u at %u, %u has other pixels than the "
                                    "whole of %u x %u",
                                    what, y, window->width, window->height, window->left, window->top,
                                    from->width, from->height);
}

/* That two decoders say the same of a file. */
static void check_same(const struct trial *one, const struct trial *other, const char *what) {
        const struct codec_window all = {0, 0, one->width, one->height};

        if (one->error != other->error)
                fuzz_broken("%s: error %d (%s), then %d (%s)", what, one->error, one->fault.text,
                            other->error, other->fault.text);
        if (one->error < 0 && strcmp(one->fault.text, other->fault.text) != 0)
                fuzz_broken("%s: %s, then %s", what, one->fault.text, other->fault.text);
        if (one->error == 0)
                check_pixels(one, other, &all, what);
}

static uint32_t number(const uint8_t *at) {
        return (uint32_t)at[0] << 8 | at[1];
}

static struct codec_window choose_window(const uint8_t *choice, uint32_t width, uint32_t height) {
        struct codec_window window = {
                .width = 1 + number(choice + 5) % width,
                .height = 1 + number(choice + 7) % height,
        };

        window.left = number(choice + 1) % (width - window.width + 1);
        window.top = number(choice + 3) % (height - window.height + 1);
        return window;
}

static void check_window(const struct trial *whole, const struct trial *part,
                         const struct codec_window *window, unsigned flags) {
        if (whole->error == 0 && part->error < 0)
                fuzz_broken("a window is refused, the whole is not: %s", part->fault.text);
        if (whole->error == 0)
                check_pixels(whole, part, window, "window");
        if (whole->error < 0 && part->error == 0 && !(flags & FUZZ_ORIENT) &&
            window->top + window->height == whole->height)
                fuzz_broken("the whole is refused, a window to its last row is not: %s", whole->fault.text);
}

/* One for each choice of options, which sees all files. */
static struct decoder *kept_decoder(unsigned flags) {
        static struct decoder *kept[CHOICES];

        if (!kept[flags])
                kept[flags] = make_decoder(flags);
        return kept[flags];
}

static void compare_with_new_decoder(const struct trial *whole, unsigned flags) {
        struct trial fresh = {.bytes = whole->bytes, .length = whole->length};
        struct decoder *decoder = make_decoder(flags);

        decode_whole(decoder, &fresh);
        check_same(whole, &fresh, "a new decoder");
        decoder_free(decoder);
        image_deinit(&fresh.image);
}

/* `part` has an image to use. */
static void compare_with_strict(const struct trial *whole, struct trial *part, unsigned flags) {
        decode_whole(kept_decoder(flags & ~(unsigned)FUZZ_ACCEPT_DAMAGED), part);
        if (part->error == 0)
                check_same(part, whole, "damage accepted");
}

static void compare_with_window(const struct trial *whole, struct trial *part, unsigned flags,
                                const uint8_t *choice) {
        struct codec_window window = choose_window(choice, whole->width, whole->height);

        decode_window(kept_decoder(flags), part, &window);
        check_window(whole, part, &window, flags);
}

static void try_file(const uint8_t *bytes, size_t length, unsigned flags, const uint8_t *choice) {
        static struct image images[2];
        struct trial whole = {.bytes = bytes, .length = length, .image = images[0]};
        struct trial part = {.bytes = bytes, .length = length, .image = images[1]};

        open_file(kept_decoder(flags), &part); /* and not decoded, as of a sample that is given up */
        decode_whole(kept_decoder(flags), &whole);
        compare_with_new_decoder(&whole, flags);
        if (flags & FUZZ_ACCEPT_DAMAGED)
                compare_with_strict(&whole, &part, flags);
        if (whole.width > 0)
                compare_with_window(&whole, &part, flags, choice);
        images[0] = whole.image;
        images[1] = part.image;
}

int fuzz_codec(const struct codec *codec, const uint8_t *data, size_t size) {
        if (size >= FUZZ_CHOICE && codec->probe(data + FUZZ_CHOICE, size - FUZZ_CHOICE))
                try_file(data + FUZZ_CHOICE, size - FUZZ_CHOICE, data[0] % CHOICES, data);
        return 0;
}
