/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The PNG codec, against files that are written here byte by byte and a decoder that could not be plainer
 * (png-file.h). Filters and samples are drawn at random, since every row of bytes is a good one.
 *
 * What the codec says of odd chunks was asked of Pillow 9.4, once, and stands in the tables.
 */

#include "tests/support/run.h"
#include "tests/unit/decoding.h"
#include "tests/unit/png-file.h"

#include <stdio.h>

enum {
        HEADER_END = 33, /* signature and header chunk */
};

static const struct png_shape kinds[] = {
        {0, 0, 1, 0, 0}, {0, 0, 2, 0, 0},  {0, 0, 4, 0, 0},  {0, 0, 8, 0, 0}, {0, 0, 16, 0, 0},
        {0, 0, 8, 2, 0}, {0, 0, 16, 2, 0}, {0, 0, 1, 3, 0},  {0, 0, 2, 3, 0}, {0, 0, 4, 3, 0},
        {0, 0, 8, 3, 0}, {0, 0, 8, 4, 0},  {0, 0, 16, 4, 0}, {0, 0, 8, 6, 0}, {0, 0, 16, 6, 0},
};

enum {
        KINDS = sizeof(kinds) / sizeof(kinds[0]),
};

/* A picture, its file, and what it has to be. */
struct sample {
        struct png_shape shape;
        unsigned char palette[768];
        unsigned colours;
        unsigned char *raw, *pixels;
        size_t raw_length;
        struct png_file file;
};

static void draw_rows(struct sample *sample, uint64_t *state) {
        unsigned char *row;

        sample->raw_length = png_raw_bytes(&sample->shape);
        sample->raw = malloc(sample->raw_length);
        for (size_t i = 0; i < sample->raw_length; i++)
                sample->raw[i] = (unsigned char)next_random(state);
        row = sample->raw;
        for (unsigned i = 0; i < (sample->shape.interlaced ? 7 : 1); i++) {
                struct png_pass pass = png_pass(&sample->shape, i);

                for (unsigned y = 0; y < pass.height && pass.width > 0; y++) {
                        *row = (unsigned char)(next_random(state) % 5);
                        row += 1 + png_row_bytes(&sample->shape, pass.width);
                }
        }
}

/* `each`: the bytes of an image data chunk. */
static void make(struct sample *sample, const struct png_shape *kind, unsigned width, unsigned height,
                 unsigned interlaced, size_t each, uint64_t *state) {
        *sample = (struct sample){.shape = {width, height, kind->depth, kind->colour, interlaced}};
        if (kind->colour == 3)
                sample->colours = 1 + next_random(state) % (1u << kind->depth);
        for (unsigned i = 0; i < sample->colours * 3; i++)
                sample->palette[i] = (unsigned char)next_random(state);
        draw_rows(sample, state);
        sample->pixels = png_decode_plainly(&sample->shape, sample->palette, sample->colours, sample->raw);
        png_put_header(&sample->file, &sample->shape);
        if (sample->colours > 0)
                png_put_chunk(&sample->file, "PLTE", sample->palette, (size_t)sample->colours * 3);
        png_put_data(&sample->file, sample->raw, sample->raw_length, each);
        png_put_chunk(&sample->file, "IEND", "", 0);
}

static void drop(struct sample *sample) {
        free(sample->raw);
        free(sample->pixels);
        free(sample->file.bytes);
}

static int decode_sample(const struct sample *sample) {
        return decode(sample->file.bytes, sample->file.length);
}

START_TEST(test_every_kind_of_pixels) {
        static const unsigned sizes[][2] = {{1, 1}, {61, 17}, {1, 9}, {33, 1}, {8, 8}, {5, 4}, {3, 2}};
        struct sample sample;
        uint64_t state = 1;

        for (unsigned kind = 0; kind < KINDS; kind++)
                for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
                        make(&sample, &kinds[kind], sizes[i / 2][0], sizes[i / 2][1], i % 2, 1 << 20, &state);
                        ck_assert_msg(decode_sample(&sample) == 0, "%s", fault.text);
                        ck_assert_str_eq(format, "PNG");
                        check_rows(sample.pixels, sample.shape.width, sample.shape.height);
                        drop(&sample);
                }
}
END_TEST

/* Rows of hundreds of KB, and so much image data that libspng reads many times. */
START_TEST(test_large_rows) {
        struct sample sample;
        uint64_t state = 2;

        for (unsigned interlaced = 0; interlaced < 2; interlaced++) {
                make(&sample, &kinds[14], 20011, 9, interlaced, 70001, &state);
                ck_assert_int_eq(decode_sample(&sample), 0);
                check_rows(sample.pixels, 20011, 9);
                drop(&sample);
        }
}
END_TEST

/* Also chunks of a byte, and of none. */
START_TEST(test_however_the_data_are_cut) {
        struct sample sample;
        uint64_t state = 3;

        make(&sample, &kinds[5], 23, 11, 0, 1 << 20, &state);
        for (size_t each = 1; each < 300; each += each < 20 ? 1 : 31) {
                struct png_file file = {0};

                png_put_header(&file, &sample.shape);
                png_put_chunk(&file, "IDAT", "", 0);
                png_put_data(&file, sample.raw, sample.raw_length, each);
                png_put_chunk(&file, "IDAT", "", 0);
                png_put_chunk(&file, "IDAT", "behind the end", 14);
                png_put_chunk(&file, "IEND", "", 0);
                ck_assert_msg(decode(file.bytes, file.length) == 0, "%zu: %s", each, fault.text);
                check_rows(sample.pixels, 23, 11);
                free(file.bytes);
        }
        drop(&sample);
}
END_TEST

START_TEST(test_windows_equal_the_whole) {
        struct sample sample;
        uint64_t state = 4;
        uint32_t window[4];

        for (unsigned kind = 0; kind < 2 * KINDS; kind++) {
                make(&sample, &kinds[kind / 2], 67, 43, kind % 2, 1000, &state);
                for (unsigned i = 0; i < 40; i++) {
                        random_window(&state, 67, 43, window);
                        ck_assert_int_eq(decode_window(sample.file.bytes, sample.file.length, window), 0);
                        check_crop(sample.pixels, 67, window);
                }
                drop(&sample);
        }
}
END_TEST

/* A row below the window may be anything; rows above may not. */
START_TEST(test_windows_are_judged_by_what_they_need) {
        const uint32_t upper[4] = {3, 4, 20, 10}, lower[4] = {0, 30, 5, 10}, last[4] = {0, 30, 40, 20};
        struct png_file file = {0};
        struct sample sample;
        uint64_t state = 5;

        make(&sample, &kinds[5], 40, 50, 0, 1 << 20, &state);
        sample.raw[25 * 121] = 77; /* a filter that there is not */
        png_put_header(&file, &sample.shape);
        png_put_data(&file, sample.raw, sample.raw_length, 1 << 20);
        ck_assert_int_eq(decode_window(file.bytes, file.length, upper), 0);
        check_crop(sample.pixels, 40, upper);
        ck_assert_int_eq(decode_window(file.bytes, file.length, lower), -EBADMSG);
        ck_assert_int_eq(decode(file.bytes, file.length), -EBADMSG);
        ck_assert_ptr_nonnull(strstr(fault.text, "filter"));

        /* what follows the image data belongs to the last row */
        sample.file.length -= 12; /* over the end chunk */
        png_put_chunk(&sample.file, "tEXt", "cut off", 7);
        sample.file.length -= 5;
        ck_assert_int_eq(decode_window(sample.file.bytes, sample.file.length, upper), 0);
        ck_assert_int_eq(decode_window(sample.file.bytes, sample.file.length, last), -EBADMSG);
        free(file.bytes);
        drop(&sample);
}
END_TEST

/* Cut off anywhere, a PNG is refused or, when the pixels are all there, whole. */
START_TEST(test_truncated_anywhere) {
        struct sample sample;
        uint64_t state = 6;

        for (unsigned interlaced = 0; interlaced < 2; interlaced++) {
                size_t refused = 0, all;

                make(&sample, &kinds[5], 21, 15, interlaced, 300, &state);
                all = sample.file.length;
                for (size_t length = 0; length < all; length++) {
                        int r = decode(sample.file.bytes, length);

                        if (r == 0) {
                                check_rows(sample.pixels, 21, 15);
                                continue;
                        }
                        ck_assert_int_eq(r, length < 8 ? -EINVAL : -EBADMSG);
                        ck_assert_str_ne(fault.text, "");
                        refused++;
                }
                /* The checksums of the last data, inside and outside, and the end chunk are not missed. */
                ck_assert_uint_ge(refused, all - 12 - 4 - 5);
                ck_assert_uint_le(refused, all - 12 - 4);
                ck_assert_int_eq(decode_sample(&sample), 0);
                check_rows(sample.pixels, 21, 15);
                drop(&sample);
        }
}
END_TEST

static void mend_checksums(struct png_file *file) {
        size_t at = 8;

        while (at + 12 <= file->length) {
                size_t length = (size_t)file->bytes[at] << 24 | (size_t)file->bytes[at + 1] << 16 |
                                (size_t)file->bytes[at + 2] << 8 | file->bytes[at + 3];

                if (length > file->length - at - 12)
                        return;
                png_number(file->bytes + at + 8 + length,
                           crc32(0, file->bytes + at + 4, (unsigned)length + 4));
                at += 12 + length;
        }
}

/* Bytes changed anywhere, with and without right checksums, give an answer. */
START_TEST(test_damage_gives_an_answer) {
        unsigned refused = 0, accepted = 0;
        struct sample sample;
        uint64_t state = 7;

        for (unsigned kind = 0; kind < 2 * KINDS; kind++) {
                make(&sample, &kinds[kind / 2], 19, 13, kind % 2, 50, &state);
                for (size_t at = 8; at < sample.file.length; at += 1 + next_random(&state) % 5) {
                        struct png_file file = {0};

                        png_put(&file, sample.file.bytes, sample.file.length);
                        file.bytes[at] ^= (unsigned char)(1 + next_random(&state) % 255);
                        if (next_random(&state) % 2)
                                mend_checksums(&file);
                        file.bytes[16] = file.bytes[17] = 0; /* large sizes are another test's matter */
                        file.bytes[20] = file.bytes[21] = 0;
                        if (decode(file.bytes, file.length) == 0)
                                accepted++;
                        else
                                refused++;
                        free(file.bytes);
                }
                drop(&sample);
        }
        ck_assert_uint_gt(refused, 500);
        ck_assert_uint_gt(accepted, 100);
}
END_TEST

/* ---- chunks ---- */

struct oddity {
        const char *name, *bytes;
        size_t length;
        int before, after; /* what comes of it there */
};

#define ANIMATION              "\0\0\0\2\0\0\0\0"
#define FRAME(sequence, width) "\0\0\0" sequence "\0\0\0" width "\0\0\0\2\0\0\0\0\0\0\0\0\0\1\0\1\0\0"

static const struct oddity oddities[] = {
        {"tEXt", "", 0, 0, 0},
        {"zTXt", "key\0\0rubbish", 12, 0, 0},
        {"zTXt", "key\0\1rubbish", 12, -EBADMSG, -EBADMSG},
        {"zTXt", "no zero", 7, 0, 0},
        {"iTXt", "key\0\1\1", 6, 0, 0},
        {"iCCP", "name\0\1rubbish", 13, 0, 0},
        {"iCCP", "no zero", 7, -EBADMSG, -EBADMSG},
        {"iCCP", "", 0, -EBADMSG, -EBADMSG},
        {"gAMA", "\0\0\1", 3, -EBADMSG, -EBADMSG},
        {"gAMA", "\0\0\0\0", 4, 0, 0},
        {"cHRM", "123", 3, -EBADMSG, -EBADMSG},
        {"cHRM", "", 0, 0, 0},
        {"sRGB", "", 0, -EBADMSG, -EBADMSG},
        {"pHYs", "12345678", 8, -EBADMSG, -EBADMSG},
        {"tRNS", "12345", 5, -EBADMSG, -EBADMSG},
        {"tRNS", "123456", 6, 0, 0},
        {"sBIT", "", 0, 0, 0},
        {"bKGD", "1", 1, 0, 0},
        {"tIME", "", 0, 0, 0},
        {"eXIf", "", 0, 0, 0},
        {"PLTE", "1234", 4, 0, 0},
        {"ABCD", "critical, unknown", 17, 0, 0},
        {"a_1Z", "unknown", 7, 0, 0},
        {"ab-d", "no name", 7, -EBADMSG, 0},
        {"IHDR", "short", 5, -EBADMSG, -EBADMSG},
        {"IHDR", "\0\0\0\2\0\0\0\2\x08\2\0\1\0", 13, -EBADMSG, -EBADMSG}, /* the filter method */
        {"IHDR", "\0\0\0\2\0\0\0\2\x08\2\1\0\0 more", 18, 0, 0},          /* the compression method */
        {"IEND", "", 0, -EBADMSG, 0},
        {"IDAT", "rubbish", 7, -EBADMSG, 0},
        {"acTL", "1234567", 7, -EBADMSG, -EBADMSG},
        {"acTL", ANIMATION, 8, 0, 0},
        {"fcTL", "short", 5, -EBADMSG, -EBADMSG},
        {"fcTL", FRAME("\0", "\2"), 26, 0, 0},
        {"fcTL", FRAME("\1", "\2"), 26, -EBADMSG, -EBADMSG},
        {"fcTL", FRAME("\0", "\3"), 26, -EBADMSG, -EBADMSG},
        {"fcTL", FRAME("\0", "\1"), 26, -EBADMSG, 0}, /* Pillow shows one that does not cover the picture */
        {"fdAT", "\0\0\0\0data", 8, -EBADMSG, -EBADMSG},
};

/* Pictures of 2 x 2 with a chunk before or behind the image data. */
static int decode_oddity(const struct oddity *oddity, int before, int wrong_sum) {
        static const struct png_shape shape = {2, 2, 8, 2, 0};
        static const unsigned char raw[] = "\0abcdef\0ghijkl";
        struct png_file file = {0};
        size_t behind;
        int r;

        png_put_header(&file, &shape);
        if (before)
                png_put_chunk(&file, oddity->name, oddity->bytes, oddity->length);
        behind = file.length;
        png_put_data(&file, raw, sizeof(raw) - 1, 1000);
        if (!before)
                png_put_chunk(&file, oddity->name, oddity->bytes, oddity->length);
        file.bytes[(before ? behind : file.length) - 1] ^= (unsigned char)wrong_sum;
        png_put_chunk(&file, "IEND", "", 0);
        r = decode(file.bytes, file.length);
        if (r == 0)
                check_rows((const unsigned char *)"abcdefghijkl", 2, 2);
        free(file.bytes);
        return r;
}

START_TEST(test_odd_chunks) {
        for (size_t i = 0; i < sizeof(oddities) / sizeof(oddities[0]); i++) {
                const struct oddity *oddity = &oddities[i];

                ck_assert_msg(decode_oddity(oddity, 1, 0) == oddity->before, "%zu, %s before: %s", i,
                              oddity->name, fault.text);
                ck_assert_msg(decode_oddity(oddity, 0, 0) == oddity->after, "%zu, %s behind: %s", i,
                              oddity->name, fault.text);
                /* Checksums count before the image data only. */
                ck_assert_int_eq(decode_oddity(oddity, 1, 1), -EBADMSG);
                ck_assert_int_eq(decode_oddity(oddity, 0, 1), oddity->after);
        }
}
END_TEST

/* The checksum of the header counts, that of image data does not, but the one inside of them. */
START_TEST(test_checksums) {
        struct sample sample;
        uint64_t state = 8;
        size_t end;

        make(&sample, &kinds[5], 9, 9, 0, 1 << 20, &state);
        end = sample.file.length - 12;
        sample.file.bytes[HEADER_END - 1] ^= 1;
        ck_assert_int_eq(decode_sample(&sample), -EBADMSG);
        ck_assert_ptr_nonnull(strstr(fault.text, "IHDR has a wrong checksum"));
        sample.file.bytes[HEADER_END - 1] ^= 1;
        sample.file.bytes[end - 1] ^= 1;
        ck_assert_int_eq(decode_sample(&sample), 0);
        check_rows(sample.pixels, 9, 9);
        sample.file.bytes[end - 5] ^= 1;
        ck_assert_int_eq(decode_sample(&sample), -EBADMSG);
        drop(&sample);
}
END_TEST

/* Wherever in a read of libspng the data end: their checksum is looked at. */
START_TEST(test_the_inner_checksum_is_always_seen) {
        static const struct png_shape shape = {8150, 1, 8, 0, 0};
        unsigned char raw[8151 + 60] = {0};
        uint64_t state = 9;

        for (size_t i = 1; i < sizeof(raw); i++)
                raw[i] = (unsigned char)next_random(&state);
        for (unsigned more = 0; more < 60; more++) {
                struct png_shape wider = shape;
                struct png_file file = {0};

                wider.width += more;
                png_put_header(&file, &wider);
                png_put_data(&file, raw, 1 + wider.width, 1 << 20);
                ck_assert_int_eq(decode(file.bytes, file.length), 0);
                file.bytes[file.length - 5] ^= 1;
                ck_assert_int_eq(decode(file.bytes, file.length), -EBADMSG);
                free(file.bytes);
        }
}
END_TEST

/* There are 15 kinds of pixels, and no others. */
START_TEST(test_kinds_that_there_are_not) {
        unsigned good = 0;

        for (unsigned colour = 0; colour < 256; colour++)
                for (unsigned depth = 0; depth < 33; depth++) {
                        const struct png_shape shape = {1, 1, depth, colour, 0};
                        static const unsigned char raw[9] = {0};
                        struct png_file file = {0};
                        int r;

                        png_put_header(&file, &shape);
                        png_put_data(&file, raw, sizeof(raw), 100);
                        r = decode(file.bytes, file.length);
                        good += r == 0;
                        ck_assert(r == 0 || r == -EBADMSG);
                        free(file.bytes);
                }
        ck_assert_uint_eq(good, KINDS);
}
END_TEST

START_TEST(test_pictures_of_no_size) {
        for (unsigned i = 0; i < 2; i++) {
                const struct png_shape shape = {i, 1 - i, 8, 0, 0};
                struct png_file file = {0};

                png_put_header(&file, &shape);
                png_put_chunk(&file, "IDAT", "", 0);
                ck_assert_int_eq(decode(file.bytes, file.length), -EBADMSG);
                ck_assert_ptr_nonnull(strstr(fault.text, i ? "1 x 0" : "0 x 1"));
                free(file.bytes);
        }
}
END_TEST

static int decode_palette(size_t length) {
        static const struct png_shape shape = {4, 1, 8, 3, 0};
        static const unsigned char palette[771] = "abcdefghi";
        struct png_file file = {0};
        int r;

        png_put_header(&file, &shape);
        if (length > 0)
                png_put_chunk(&file, "PLTE", palette, length);
        png_put_data(&file, (const unsigned char *)"\0\0\1\2\xff", 5, 100);
        r = decode(file.bytes, file.length);
        free(file.bytes);
        return r;
}

/* What a palette does not have is gray, as in Pillow; nothing comes from the palette of the file before. */
START_TEST(test_palettes) {
        ck_assert_int_eq(decode_palette(768), 0);
        check_rows((const unsigned char *)"abcdefghi\0\0\0", 4, 1);
        ck_assert_int_eq(decode_palette(6), 0);
        check_rows((const unsigned char *)"abcdef\2\2\2\xff\xff\xff", 4, 1);
        ck_assert_int_eq(decode_palette(5), 0);
        check_rows((const unsigned char *)"abc\1\1\1\2\2\2\xff\xff\xff", 4, 1);
        ck_assert_int_eq(decode_palette(0), 0);
        check_rows((const unsigned char *)"\0\0\0\1\1\1\2\2\2\xff\xff\xff", 4, 1);
        ck_assert_int_eq(decode_palette(771), -EBADMSG);
        ck_assert_ptr_nonnull(strstr(fault.text, "257 colours"));
}
END_TEST

/* ---- damage that is accepted ---- */

static void accept_damaged(void) {
        struct codec_options options = codec_options_default;

        options.accept_damaged = 1;
        decoder_free(decoder);
        ck_assert_int_eq(decoder_new(&decoder, &options), 0);
}

static int is_black(const unsigned char *pixels, size_t bytes) {
        return pixels[0] == 0 && memcmp(pixels, pixels + 1, bytes - 1) == 0;
}

/* The rows that are as they should be; below, all must be black. */
static unsigned rows_that_came(const struct sample *sample) {
        size_t bytes = (size_t)sample->shape.width * 3;
        unsigned came = 0;

        while (came < sample->shape.height &&
               memcmp(image.pixels + came * image.stride, sample->pixels + came * bytes, bytes) == 0)
                came++;
        for (unsigned y = came; y < sample->shape.height; y++)
                ck_assert(is_black(image.pixels + y * image.stride, bytes));
        return came;
}

START_TEST(test_truncated_and_accepted) {
        unsigned came, before = 0, refused = 0;
        struct sample sample;
        uint64_t state = 10;

        accept_damaged();
        make(&sample, &kinds[5], 31, 40, 0, 700, &state);
        for (size_t length = 0; length < sample.file.length; length++) {
                if (decode(sample.file.bytes, length) < 0) {
                        ck_assert_uint_eq(before, 0);
                        refused++;
                        continue;
                }
                came = rows_that_came(&sample);
                ck_assert_uint_ge(came, before > 0 ? before : 1);
                ck_assert_uint_le(came, before + 1);
                before = came;
        }
        ck_assert_uint_eq(before, 40);
        ck_assert_uint_lt(refused, 350); /* two rows of noise, and what comes before them */
        drop(&sample);
}
END_TEST

/* The passes that came stand where they belong, and all else is black. */
START_TEST(test_interlaced_truncated_and_accepted) {
        const uint32_t window[4] = {5, 7, 20, 16};
        unsigned right = 0, black = 0;
        struct sample sample;
        uint64_t state = 11;

        accept_damaged();
        make(&sample, &kinds[13], 31, 40, 1, 700, &state);
        ck_assert_int_eq(decode_window(sample.file.bytes, sample.file.length / 2, window), 0);
        for (unsigned y = 0; y < 16; y++)
                for (unsigned x = 0; x < 20; x++) {
                        const unsigned char *got = image.pixels + y * image.stride + x * 3;
                        const unsigned char *want = sample.pixels + ((y + 7) * 31 + x + 5) * 3;

                        black += is_black(got, 3);
                        right += memcmp(got, want, 3) == 0;
                }
        ck_assert_uint_eq(right + black, 20 * 16);
        ck_assert_uint_gt(right, 100);
        ck_assert_uint_gt(black, 100);
        drop(&sample);
}
END_TEST

/* Neither a wrong checksum nor nonsense in a chunk that pixels can do without; but the header must be right.
 */
START_TEST(test_what_is_forgiven) {
        accept_damaged();
        for (size_t i = 0; i < sizeof(oddities) / sizeof(oddities[0]); i++)
                if (oddities[i].name[0] >= 'a') {
                        int pixels = strcmp(oddities[i].name, "fdAT") == 0 ||
                                     strcmp(oddities[i].name, "ab-d") == 0;

                        ck_assert_int_eq(decode_oddity(&oddities[i], 1, 1), pixels ? -EBADMSG : 0);
                        ck_assert_int_eq(decode_oddity(&oddities[i], 0, 1), 0);
                }
        ck_assert_int_eq(decode_oddity(&(struct oddity){"IHDR", "short", 5, 0, 0}, 1, 0), -EBADMSG);
        ck_assert_int_eq(decode_oddity(&(struct oddity){"PLTE", "123", 3, 0, 0}, 1, 1), -EBADMSG);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("png");
        TCase *tcase = tcase_create("png");

        tcase_add_checked_fixture(tcase, set_up, tear_down);
        tcase_set_timeout(tcase, 60);
        tcase_add_test(tcase, test_every_kind_of_pixels);
        tcase_add_test(tcase, test_large_rows);
        tcase_add_test(tcase, test_however_the_data_are_cut);
        tcase_add_test(tcase, test_windows_equal_the_whole);
        tcase_add_test(tcase, test_windows_are_judged_by_what_they_need);
        tcase_add_test(tcase, test_truncated_anywhere);
        tcase_add_test(tcase, test_damage_gives_an_answer);
        tcase_add_test(tcase, test_odd_chunks);
        tcase_add_test(tcase, test_checksums);
        tcase_add_test(tcase, test_the_inner_checksum_is_always_seen);
        tcase_add_test(tcase, test_kinds_that_there_are_not);
        tcase_add_test(tcase, test_pictures_of_no_size);
        tcase_add_test(tcase, test_palettes);
        tcase_add_test(tcase, test_truncated_and_accepted);
        tcase_add_test(tcase, test_interlaced_truncated_and_accepted);
        tcase_add_test(tcase, test_what_is_forgiven);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
