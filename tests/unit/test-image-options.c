/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a source can ask of its files: damage accepted, pictures turned upright.
 *
 * Turning is held against the plainest loop over the whole picture, for all formats and eight orientations.
 * What odd EXIF data mean was asked of Pillow 9.4 (PIL.ImageOps.exif_transpose), once, and stands in the
 * table.
 */

#include "daemon/worker/orient.h"
#include "tests/support/run.h"
#include "tests/unit/decoding.h"
#include "tests/unit/jpeg-file.h"
#include "tests/unit/png-file.h"
#include "tests/unit/webp-file.h"

enum {
        WIDTH = 45,
        HEIGHT = 29,
        EXIF_BYTES = 26,
};

static void ask_for(int damaged, int orient) {
        struct codec_options options = codec_options_default;

        options.accept_damaged = damaged;
        options.orient = orient;
        decoder_free(decoder);
        ck_assert_int_eq(decoder_new(&decoder, &options), 0);
}

/* ---- damage in JPEGs ---- */

static const struct recipe recipes[] = {
        {90, 70, 3, JCS_RGB, 1, 1, 0},       {90, 70, 3, JCS_RGB, 2, 2, 0},  {90, 70, 3, JCS_RGB, 2, 1, 1},
        {90, 70, 1, JCS_GRAYSCALE, 1, 1, 0}, {90, 70, 4, JCS_CMYK, 1, 1, 0},
};

enum {
        RECIPES = sizeof(recipes) / sizeof(recipes[0]),
};

static int is_even(const unsigned char *pixels, size_t bytes) {
        return memcmp(pixels, pixels + 1, bytes - 1) == 0;
}

/* Half of the file: the rows that came are right, what did not come is gray. Two rows of blocks may be
 * neither: the one in which the data end, and the one above, whose chroma is smoothed with it. */
START_TEST(test_half_a_jpeg) {
        for (unsigned i = 0; i < 2; i++) {
                unsigned came = 0, gray = 0;
                struct jpeg_file file;
                unsigned char *want;

                encode(&file, &recipes[i]);
                want = decode_plainly(&file, JCS_RGB, 3);
                ask_for(1, 0);
                ck_assert_int_eq(decode(file.bytes, file.length / 2), 0);
                ck_assert_uint_eq(image.width, 90);
                ck_assert_uint_eq(image.height, 70);
                while (memcmp(image.pixels + came * image.stride, want + (size_t)came * 270, 270) == 0)
                        came++;
                while (is_even(image.pixels + (69 - gray) * image.stride, 270))
                        gray++;
                ck_assert_uint_ge(came, 24);
                ck_assert_uint_ge(gray, 16);
                ck_assert_uint_ge(came + gray + 32, 70);
                ck_assert_uint_eq(image.pixels[69 * image.stride], 128);
                ask_for(0, 0);
                ck_assert_int_eq(decode(file.bytes, file.length / 2), -EBADMSG);
                free(want);
                free(file.bytes);
        }
}
END_TEST

/* Cut off anywhere behind the header, all kinds are accepted, and a window is part of the whole; only a
 * progressive one that ends in a table between two scans has no row to show. */
START_TEST(test_windows_of_what_is_cut_off) {
        unsigned refused = 0;
        uint64_t state = 3;

        ask_for(1, 0);
        for (unsigned i = 0; i < RECIPES; i++) {
                struct jpeg_file file;

                encode(&file, &recipes[i]);
                for (size_t length = file.length - 1; length > file.length / 3;
                     length -= 1 + file.length / 60) {
                        unsigned char *whole = malloc(90 * 70 * 3);
                        uint32_t window[4];

                        if (decode(file.bytes, length) != 0) {
                                ck_assert_msg(recipes[i].coding == PROGRESSIVE, "%u, %zu: %s", i, length,
                                              fault.text);
                                refused++;
                                free(whole);
                                continue;
                        }
                        memcpy(whole, image.pixels, 90 * 70 * 3);
                        for (unsigned j = 0; j < 3; j++) {
                                random_window(&state, 90, 70, window);
                                ck_assert_int_eq(decode_window(file.bytes, length, window), 0);
                                check_crop(whole, 90, window);
                        }
                        free(whole);
                }
                free(file.bytes);
        }
        ck_assert_uint_lt(refused, 15);
}
END_TEST

/* An error in the middle: the rows before it are right, the others black. */
START_TEST(test_an_error_in_a_jpeg) {
        struct jpeg_file file;
        unsigned char *want;
        unsigned came = 0;

        ask_for(1, 0);
        encode(&file, &recipes[0]);
        want = decode_plainly(&file, JCS_RGB, 3);
        memcpy(file.bytes + file.length / 2, "\xff\xc8\0\2", 4); /* a marker that libjpeg does not know */
        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        while (came < 70 && memcmp(image.pixels + came * image.stride, want + (size_t)came * 270, 270) == 0)
                came++;
        ck_assert_uint_ge(came, 24);
        ck_assert_uint_lt(came, 70);
        ck_assert(is_even(image.pixels + 69 * image.stride, 270));
        free(want);
        free(file.bytes);
}
END_TEST

/* Nothing to show: no rows, or no header. */
START_TEST(test_hopeless_jpegs) {
        struct jpeg_file file;

        ask_for(1, 0);
        encode(&file, &recipes[0]);
        ck_assert_int_eq(decode(file.bytes, 200), -EBADMSG);
        ck_assert_int_eq(decode(file.bytes, 3), -EBADMSG);
        for (size_t i = 0; i < file.length; i++)
                if (file.bytes[i] == 0xff && file.bytes[i + 1] == 0xdb)
                        file.bytes[i + 1] = 0xec; /* no quantization tables */
        ck_assert_int_eq(decode(file.bytes, file.length), -EBADMSG);
        free(file.bytes);
}
END_TEST

/* ---- orientation ---- */

/* One directory with one entry. */
static void make_exif(unsigned char exif[EXIF_BYTES], unsigned orientation, int big_endian) {
        if (big_endian)
                memcpy(exif, "MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\0\0\0\0\0\0\0", EXIF_BYTES);
        else
                memcpy(exif, "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0\0\0\0\0", EXIF_BYTES);
        exif[big_endian ? 19 : 18] = (unsigned char)orientation;
}

/* A file: its bytes, and its pixels as they are stored. */
struct stored {
        unsigned char *bytes, *pixels;
        size_t length;
};

static struct stored stored_jpeg(const unsigned char *exif) {
        const struct recipe recipe = {WIDTH, HEIGHT, 3, JCS_RGB, 2, 2, 0};
        unsigned char head[12] = "\xff\xd8\xff\xe1\0\x22"
                                 "Exif\0";
        struct jpeg_file file;
        struct stored stored;

        encode(&file, &recipe);
        stored.pixels = decode_plainly(&file, JCS_RGB, 3);
        stored.length = file.length - 2 + sizeof(head) + EXIF_BYTES;
        stored.bytes = malloc(stored.length);
        memcpy(stored.bytes, head, sizeof(head));
        memcpy(stored.bytes + sizeof(head), exif, EXIF_BYTES);
        memcpy(stored.bytes + sizeof(head) + EXIF_BYTES, file.bytes + 2, file.length - 2);
        free(file.bytes);
        return stored;
}

static unsigned char *draw_rows(unsigned row_bytes) {
        unsigned char *raw = malloc((size_t)HEIGHT * row_bytes);
        uint64_t state = 5;

        for (size_t i = 0; i < (size_t)HEIGHT * row_bytes; i++)
                raw[i] = i % row_bytes == 0 ? 0 : (unsigned char)next_random(&state);
        return raw;
}

static struct stored stored_png(const unsigned char *exif, int behind) {
        const struct png_shape shape = {WIDTH, HEIGHT, 8, 2, 0};
        unsigned char *raw = draw_rows(1 + WIDTH * 3);
        struct png_file file = {0};
        struct stored stored;

        png_put_header(&file, &shape);
        if (!behind)
                png_put_chunk(&file, "eXIf", exif, EXIF_BYTES);
        png_put_data(&file, raw, png_raw_bytes(&shape), 1000);
        if (behind)
                png_put_chunk(&file, "eXIf", exif, EXIF_BYTES);
        png_put_chunk(&file, "IEND", "", 0);
        stored = (struct stored){file.bytes, png_decode_plainly(&shape, NULL, 0, raw), file.length};
        free(raw);
        return stored;
}

static struct stored stored_webp(const unsigned char *exif) {
        unsigned char *pixels = draw_rows(WIDTH * 4), *shown = malloc((size_t)WIDTH * HEIGHT * 3);
        struct webp_file still, file = {0};

        for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++)
                memcpy(shown + i * 3, pixels + i * 4, 3);
        webp_encode(&still, pixels, WIDTH, HEIGHT);
        webp_put_head(&file, WEBP_EXIF | WEBP_ALPHA, WIDTH, HEIGHT);
        webp_put(&file, still.bytes + WEBP_HEAD, still.length - WEBP_HEAD);
        webp_put_chunk(&file, "EXIF", exif, EXIF_BYTES);
        free(still.bytes);
        free(pixels);
        return (struct stored){file.bytes, shown, file.length};
}

static struct stored make_stored(unsigned kind, const unsigned char *exif) {
        return kind == 0 ? stored_jpeg(exif) : kind == 3 ? stored_webp(exif) : stored_png(exif, kind == 2);
}

/* Where the pixel at x, y of the upright picture is stored. */
static size_t stored_at(unsigned orientation, unsigned x, unsigned y) {
        const unsigned right = WIDTH - 1, bottom = HEIGHT - 1;
        const unsigned columns[] = {0, x, right - x, right - x, x, y, y, right - y, right - y};
        const unsigned rows[] = {0, y, y, bottom - y, bottom - y, x, bottom - x, bottom - x, x};

        return ((size_t)rows[orientation] * WIDTH + columns[orientation]) * 3;
}

static unsigned char *turn_plainly(const unsigned char *pixels, unsigned orientation, unsigned width,
                                   unsigned height) {
        unsigned char *upright = malloc((size_t)WIDTH * HEIGHT * 3);

        for (unsigned y = 0; y < height; y++)
                for (unsigned x = 0; x < width; x++)
                        memcpy(upright + ((size_t)y * width + x) * 3, pixels + stored_at(orientation, x, y),
                               3);
        return upright;
}

static void check_orientation(unsigned kind, unsigned orientation, uint64_t *state) {
        unsigned width = orientation >= 5 ? HEIGHT : WIDTH, height = orientation >= 5 ? WIDTH : HEIGHT;
        unsigned char exif[EXIF_BYTES], *upright;
        struct stored stored;
        uint32_t window[4];

        make_exif(exif, orientation, (int)(orientation + kind) % 2);
        stored = make_stored(kind, exif);
        upright = turn_plainly(stored.pixels, orientation, width, height);
        ask_for(0, 0);
        ck_assert_int_eq(decode(stored.bytes, stored.length), 0);
        check_rows(stored.pixels, WIDTH, HEIGHT);
        ask_for(0, 1);
        ck_assert_msg(decode(stored.bytes, stored.length) == 0, "%s", fault.text);
        check_rows(upright, width, height);
        for (unsigned i = 0; i < 25; i++) {
                random_window(state, width, height, window);
                ck_assert_int_eq(decode_window(stored.bytes, stored.length, window), 0);
                check_crop(upright, width, window);
        }
        free(upright);
        free(stored.pixels);
        free(stored.bytes);
}

START_TEST(test_all_orientations) {
        uint64_t state = 6;

        for (unsigned kind = 0; kind < 4; kind++)
                for (unsigned orientation = 1; orientation <= 8; orientation++)
                        check_orientation(kind, orientation, &state);
}
END_TEST

#define HEAD       "II*\0\x08\0\0\0"
#define ENTRY      "\x12\1"
#define OTHER      "\x1a\1"
#define BYTES(...) sizeof(__VA_ARGS__) - 1, __VA_ARGS__

START_TEST(test_odd_exif) {
        static const struct {
                int orientation;
                size_t length;
                const char *bytes;
        } cases[] = {
                {6, BYTES(HEAD "\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {6, BYTES("Exif\0\0" HEAD "\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\3\0\1\0\0\0\6\0\xff\xff")},
                {6, BYTES("MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\xff\xff")},
                {6, BYTES("II\0*\x08\0\0\0\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {1, BYTES("II+\0\x08\0\0\0\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {1, BYTES("XX*\0\x08\0\0\0\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                /* types: byte, signed byte, signed short, long, signed long, none */
                {1, BYTES(HEAD "\1\0" ENTRY "\1\0\1\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\6\0\1\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\x08\0\1\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\4\0\1\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\x09\0\1\0\0\0\6\0\0\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\x63\0\1\0\0\0\6\0\0\0")},
                /* values: out of range, several, none, elsewhere, nowhere */
                {1, BYTES(HEAD "\1\0" ENTRY "\3\0\1\0\0\0\0\0\0\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\3\0\1\0\0\0\x09\0\0\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\4\0\1\0\0\0\6\0\1\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\3\0\2\0\0\0\6\0\3\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\3\0\0\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\1\0" ENTRY "\3\0\3\0\0\0\x1a\0\0\0\0\0\0\0\6\0\3\0\3\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\3\0\3\0\0\0\x1c\0\0\0\0\0\0\0\6\0\3\0\3\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\3\0\xff\xff\xff\xff\x1a\0\0\0\0\0\0\0\6\0\3\0\3\0")},
                /* two entries: the last one that can be read; nothing after one whose values are nowhere */
                {3, BYTES(HEAD "\2\0" ENTRY "\3\0\1\0\0\0\6\0\0\0" ENTRY "\3\0\1\0\0\0\3\0\0\0")},
                {6, BYTES(HEAD "\2\0" ENTRY "\3\0\1\0\0\0\6\0\0\0" ENTRY "\3\0\0\0\0\0\3\0\0\0")},
                {6, BYTES(HEAD "\2\0" ENTRY "\3\0\1\0\0\0\6\0\0\0" OTHER "\5\0\1\0\0\0\x99\x99\0\0")},
                {1, BYTES(HEAD "\2\0" OTHER "\5\0\1\0\0\0\x99\x99\0\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                /* a directory that is elsewhere, nowhere, longer than the data, cut off */
                {6, BYTES("II*\0\x0a\0\0\0\0\0\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {1, BYTES("II*\0\xff\xff\xff\xff\1\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {6, BYTES(HEAD "\x09\0" ENTRY "\3\0\1\0\0\0\6\0\0\0")},
                {1, BYTES(HEAD "\1\0" ENTRY "\3\0\1\0\0\0\6\0\0")},
                {1, BYTES(HEAD "\1")},
                {1, BYTES(HEAD)},
                {1, BYTES("II*\0")},
                {1, BYTES("Exif\0\0")},
                {1, BYTES("")},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                uint8_t *copy = malloc(cases[i].length + 1);

                memcpy(copy + 1, cases[i].bytes, cases[i].length);
                ck_assert_msg(orient_of_exif(copy + 1, cases[i].length) == cases[i].orientation,
                              "case %zu: %d, not %d", i, orient_of_exif(copy + 1, cases[i].length),
                              cases[i].orientation);
                free(copy);
        }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("image-options");
        TCase *tcase = tcase_create("image-options");

        tcase_add_checked_fixture(tcase, set_up, tear_down);
        tcase_set_timeout(tcase, 60);
        tcase_add_test(tcase, test_half_a_jpeg);
        tcase_add_test(tcase, test_windows_of_what_is_cut_off);
        tcase_add_test(tcase, test_an_error_in_a_jpeg);
        tcase_add_test(tcase, test_hopeless_jpegs);
        tcase_add_test(tcase, test_all_orientations);
        tcase_add_test(tcase, test_odd_exif);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
