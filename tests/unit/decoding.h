#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the tests of codecs share: a decoder for each test, and ways to hold what it gives against a picture.
 */

#include "base/fault.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct decoder *decoder;
static struct image image;
static struct fault fault;
static const char *format;

static inline void set_up(void) {
        ck_assert_int_eq(decoder_new(&decoder, &codec_options_default), 0);
        fault.text[0] = 0;
        format = NULL;
}

static inline void tear_down(void) {
        decoder = decoder_free(decoder);
        image_deinit(&image);
}

/* A small generator of its own, so that these tests stand alone. */
static inline uint32_t next_random(uint64_t *state) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

static inline int decode(const void *bytes, size_t length) {
        /* A copy of exactly that size: what reads beyond it is seen by a sanitizer. */
        void *copy = malloc(length > 0 ? length : 1);
        int r;

        memcpy(copy, bytes, length);
        r = decoder_decode(decoder, copy, length, &image, &format, &fault);
        free(copy);
        return r;
}

static inline void check_rows(const unsigned char *want, unsigned width, unsigned height) {
        ck_assert_uint_eq(image.width, width);
        ck_assert_uint_eq(image.height, height);
        ck_assert_int_eq(image.mirrored, 0);
        for (unsigned y = 0; y < height; y++)
                ck_assert_mem_eq(image.pixels + y * image.stride, want + (size_t)y * width * 3,
                                 (size_t)width * 3);
}

/* Opens it, and loads the window only: left, top, width, height. */
static inline int decode_window(const void *bytes, size_t length, const uint32_t window[4]) {
        void *copy = malloc(length > 0 ? length : 1);
        int r;

        memcpy(copy, bytes, length);
        r = decoder_open(decoder, copy, length, &image, &format, &fault);
        if (r == 0 && (window[0] + window[2] > image.width || window[1] + window[3] > image.height))
                r = -ERANGE; /* a damaged header */
        if (r == 0) {
                image_crop(&image, window[0], window[1], window[2], window[3]);
                r = image_load(&image, &fault);
        }
        free(copy);
        return r;
}

static inline void random_window(uint64_t *state, uint32_t width, uint32_t height, uint32_t window[4]) {
        window[2] = 1 + next_random(state) % width;
        window[3] = 1 + next_random(state) % height;
        window[0] = next_random(state) % (width - window[2] + 1);
        window[1] = next_random(state) % (height - window[3] + 1);
}

/* The image is this window of a picture of packed rows, `width` pixels each. */
static inline void check_crop(const unsigned char *want, unsigned width, const uint32_t window[4]) {
        ck_assert_uint_eq(image.width, window[2]);
        ck_assert_uint_eq(image.height, window[3]);
        for (uint32_t y = 0; y < window[3]; y++)
                ck_assert_msg(memcmp(image.pixels + y * image.stride,
                                     want + ((size_t)(window[1] + y) * width + window[0]) * 3,
                                     (size_t)window[2] * 3) == 0,
                              "window %u,%u %ux%u of %u columns: row %u", window[0], window[1], window[2],
                              window[3], width, y);
}

/* What a window's verdict may be: the whole file's where it reaches the last row; else it may miss damage
 * below. */
static inline int verdict_fits(const uint32_t window[4], uint32_t height, int whole, int part) {
        if (window[1] + window[3] == height)
                return (part == 0) == (whole == 0);
        return whole != 0 || part == 0;
}

static inline size_t resident_peak(void) {
        struct rusage usage;

        getrusage(RUSAGE_SELF, &usage);
        return (size_t)usage.ru_maxrss;
}
