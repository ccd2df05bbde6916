/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Small files that ask for much: refused, or shown for what little they are, within 50 ms and 64 MiB. Each is
 * looked at in a process of its own, whose peak of memory is its own, too. And many files, good and bad ones,
 * after which the heap is as it was.
 */

#include "tests/support/run.h"
#include "tests/unit/decoding.h"
#include "tests/unit/jpeg-file.h"
#include "tests/unit/png-file.h"
#include "tests/unit/webp-file.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        GROWTH_MAX_KB = 64 * 1024,
        TIME_MAX_MS = 50,
};

/* Time of a process that is not running does not count, but sanitizers take what they take. */
static double slowdown(void) {
        const char *factor = getenv("PINFEED_TEST_SLOWDOWN");

        return 4 * (factor ? atof(factor) : 1);
}

static double milliseconds_used(void) {
        struct rusage usage;

        getrusage(RUSAGE_SELF, &usage);
        return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

/* In a child: exits with 0 when all is as it should be. */
static void look_at(const void *bytes, size_t length, int error, const char *text) {
        size_t peak = resident_peak();
        double used = milliseconds_used();
        int r = decoder_decode(decoder, bytes, length, &image, &format, &fault);

        used = milliseconds_used() - used;
        peak = resident_peak() - peak;
        ck_assert_msg(r == error, "%d, not %d: %s", r, error, fault.text);
        ck_assert_msg(!text || strstr(fault.text, text), "%s", fault.text);
        ck_assert_msg(used < TIME_MAX_MS * slowdown(), "%.0f ms", used);
        ck_assert_msg(peak < GROWTH_MAX_KB, "%zu KB", peak);
}

/* So often the same bytes, at once: growing a file bit by bit takes its time. */
static unsigned char *repeat(const unsigned char *bytes, size_t length, size_t times) {
        unsigned char *many = malloc(length * times);

        for (size_t i = 0; i < times; i++)
                memcpy(many + i * length, bytes, length);
        return many;
}

/* ---- bombs ---- */

static void put_size(unsigned char *bytes, size_t length, const char *size) {
        for (size_t i = 2; i + 9 < length; i++)
                if (bytes[i] == 0xff && (bytes[i + 1] == 0xc0 || bytes[i + 1] == 0xc2)) {
                        memcpy(bytes + i + 5, size, 4);
                        return;
                }
        ck_abort_msg("no frame header");
}

START_TEST(test_M4_a_jpeg_of_4_gigapixels) {
        const struct recipe recipe = {64, 64, 3, JCS_RGB, 2, 2, _i};
        struct jpeg_file file;

        encode(&file, &recipe);
        put_size(file.bytes, file.length, "\xfd\xe8\xfd\xe8"); /* 65000 x 65000 */
        look_at(file.bytes, file.length, -EFBIG, "too many pixels: 65000 x 65000");
        free(file.bytes);
}
END_TEST

/* The last scan of a progressive picture of 100 megapixels, two thousand times. Each would go over all of it.
 */
START_TEST(test_M4_a_jpeg_of_many_scans) {
        const struct recipe recipe = {64, 64, 3, JCS_RGB, 2, 2, 1};
        struct jpeg_file file;
        unsigned char *bytes, *many;
        size_t scan, each;

        encode(&file, &recipe);
        put_size(file.bytes, file.length, "\x27\x10\x27\x10"); /* 10000 x 10000 */
        for (scan = file.length - 2; file.bytes[scan] != 0xff || file.bytes[scan + 1] != 0xda; scan--)
                ;
        each = file.length - 2 - scan;
        many = repeat(file.bytes + scan, each, 2000);
        bytes = malloc(scan + 2000 * each);
        memcpy(bytes, file.bytes, scan);
        memcpy(bytes + scan, many, 2000 * each);
        free(many);
        look_at(bytes, scan + 2000 * each, -EFBIG, "too many scans: the JPEG has 20");
        /* Behind a marker that has no length the scans are hidden from whoever reads one there. */
        memmove(bytes + scan + 4, bytes + scan, 1999 * each);
        memcpy(bytes + scan, "\xff\x01\xff\xff", 4);
        look_at(bytes, scan + 4 + 1999 * each, -EFBIG, "too many scans: the JPEG has 20");
        free(bytes);
        free(file.bytes);
}
END_TEST

START_TEST(test_M4_a_png_of_3_gigapixels) {
        const struct png_shape shape = {60000, 60000, 8, 2, (unsigned)_i};
        struct png_file file = {0};

        png_put_header(&file, &shape);
        png_put_data(&file, (const unsigned char *)"", 1, 100);
        look_at(file.bytes, file.length, -EFBIG, "too many pixels: 60000 x 60000");
        free(file.bytes);
}
END_TEST

/* A zlib stream of a gigabyte of zeros: a block of one megabyte that refers to nothing before it, many times.
 */
static void put_gigabyte(struct png_file *bytes) {
        enum {
                MEGABYTE = 1 << 20
        };
        unsigned char *zeros = calloc(1, MEGABYTE), *block = malloc(MEGABYTE);
        z_stream stream = {.next_in = zeros, .avail_in = MEGABYTE, .next_out = block, .avail_out = MEGABYTE};

        ck_assert_int_eq(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        ck_assert_int_eq(deflate(&stream, Z_FULL_FLUSH), Z_OK);
        png_put(bytes, "\x78\x9c", 2);
        for (unsigned i = 0; i < 1024; i++)
                png_put(bytes, block, stream.total_out);
        deflateEnd(&stream);
        free(block);
        free(zeros);
}

/* Texts and profiles are never inflated. */
START_TEST(test_M4_a_gigabyte_of_text) {
        static const struct {
                const char *name, *head;
                size_t length;
        } chunks[] = {{"zTXt", "key\0", 5}, {"iTXt", "key\0\1\0\0", 8}, {"iCCP", "name\0", 6}};
        const struct png_shape shape = {1, 1, 8, 0, 0};
        struct png_file text = {0}, file = {0};

        png_put(&text, chunks[_i].head, chunks[_i].length);
        put_gigabyte(&text);
        png_put_header(&file, &shape);
        png_put_chunk(&file, chunks[_i].name, text.bytes, text.length);
        png_put_data(&file, (const unsigned char *)"\0A", 2, 100);
        png_put_chunk(&file, chunks[_i].name, text.bytes, text.length);
        png_put_chunk(&file, "IEND", "", 0);
        look_at(file.bytes, file.length, 0, NULL);
        check_rows((const unsigned char *)"AAA", 1, 1);
        free(text.bytes);
        free(file.bytes);
}
END_TEST

/* Behind the last row nothing is inflated. */
START_TEST(test_M4_a_gigabyte_behind_the_picture) {
        const struct png_shape shape = {1, 1, 8, 0, 0};
        struct png_file data = {0}, file = {0};

        put_gigabyte(&data);
        png_put_header(&file, &shape);
        png_put_chunk(&file, "IDAT", data.bytes, data.length);
        look_at(file.bytes, file.length, 0, NULL);
        check_rows((const unsigned char *)"\0\0\0", 1, 1);
        free(data.bytes);
        free(file.bytes);
}
END_TEST

/* Two hundred thousand chunks of nothing. */
START_TEST(test_M4_many_chunks) {
        const struct png_shape shape = {1, 1, 8, 0, 0};
        struct png_file one = {0}, file = {0};
        unsigned char *many;

        png_put_header(&file, &shape);
        png_put_chunk(&one, _i == 0 ? "tEXt" : "IDAT", "", 0);
        many = repeat(one.bytes, one.length, 200000);
        png_put(&file, many, one.length * 200000);
        free(many);
        png_put_data(&file, (const unsigned char *)"\0A", 2, 100);
        look_at(file.bytes, file.length, 0, NULL);
        check_rows((const unsigned char *)"AAA", 1, 1);
        free(one.bytes);
        free(file.bytes);
}
END_TEST

START_TEST(test_M4_a_webp_of_268_megapixels) {
        unsigned char head[8] = {0x2f};
        struct webp_file still, file = {0};

        webp_little(head + 1, 16382 | 16382 << 14, 4);
        webp_encode(&still, (const unsigned char[4]){0}, 1, 1);
        if (_i == 0) { /* a still picture that says so itself */
                webp_put(&file, "RIFF\0\0\0\0WEBP", WEBP_HEAD);
                webp_put_chunk(&file, "VP8L", head, sizeof(head));
        } else { /* the canvas of an animation */
                webp_put_head(&file, WEBP_ANIMATION, 16383, 16383);
                webp_put_chunk(&file, "ANIM", "\0\0\0\0\0\0", 6);
                webp_put_frame(&file, 0, 0, 1, 1, &still);
        }
        look_at(file.bytes, file.length, -EFBIG, "too many pixels: 16383 x 16383");
        free(still.bytes);
        free(file.bytes);
}
END_TEST

/* A hundred thousand frames, of which one is shown. */
START_TEST(test_M4_a_webp_of_many_frames) {
        struct webp_file still, file = {0};
        unsigned char *many;
        size_t start;

        webp_encode(&still, (const unsigned char *)"abcd", 1, 1);
        webp_put_head(&file, WEBP_ANIMATION | WEBP_ALPHA, 1, 1);
        webp_put_chunk(&file, "ANIM", "\0\0\0\0\0\0", 6);
        start = file.length;
        webp_put_frame(&file, 0, 0, 1, 1, &still);
        many = repeat(file.bytes + start, file.length - start, 100000);
        webp_put(&file, many, (file.length - start) * 100000);
        free(many);
        look_at(file.bytes, file.length, 0, NULL);
        check_rows((const unsigned char *)"abc", 1, 1);
        free(still.bytes);
        free(file.bytes);
}
END_TEST

/* ---- the limit is what the options say ---- */

struct bytes {
        unsigned char *bytes;
        size_t length;
};

/* One file of 40 x 30 of each format, and a progressive JPEG. */
static struct bytes make_file(unsigned kind) {
        const struct recipe recipe = {40, 30, 3, JCS_RGB, 2, 2, kind == 1};
        const struct png_shape shape = {40, 30, 8, 2, kind == 3};
        unsigned char *drawn = calloc(40 * 30, 4);
        struct jpeg_file jpeg;
        struct png_file png = {0};
        struct webp_file webp;
        struct bytes result;

        if (kind < 2) {
                encode(&jpeg, &recipe);
                result = (struct bytes){jpeg.bytes, jpeg.length};
        } else if (kind < 4) {
                png_put_header(&png, &shape);
                png_put_data(&png, drawn, png_raw_bytes(&shape), 100);
                png_put_chunk(&png, "IEND", "", 0);
                result = (struct bytes){png.bytes, png.length};
        } else {
                webp_encode(&webp, drawn, 40, 30);
                result = (struct bytes){webp.bytes, webp.length};
        }
        free(drawn);
        return result;
}

enum {
        FILES = 5,
};

START_TEST(test_limits_are_the_options) {
        struct codec_options options = codec_options_default;

        for (unsigned kind = 0; kind < FILES; kind++)
                for (unsigned less = 0; less < 2; less++) {
                        struct bytes file = make_file(kind);

                        options.pixels_max = 1200 - less;
                        decoder_free(decoder);
                        ck_assert_int_eq(decoder_new(&decoder, &options), 0);
                        ck_assert_int_eq(decode(file.bytes, file.length), less ? -EFBIG : 0);
                        free(file.bytes);
                }
}
END_TEST

/* ---- memory ---- */

/* Each file whole, cut off, with a byte changed, opened only, and a window of it. */
static void decode_all(const struct bytes *files, uint64_t *state) {
        const uint32_t window[4] = {5, 6, 20, 10};

        for (unsigned kind = 0; kind < FILES; kind++) {
                unsigned char *bytes = files[kind].bytes;
                size_t length = files[kind].length, at = 12 + next_random(state) % (length - 12);
                unsigned char was = bytes[at];

                decode(bytes, at);
                bytes[at] ^= (unsigned char)(1 + next_random(state) % 255);
                if (decoder_open(decoder, bytes, length, &image, &format, &fault) == 0 &&
                    (size_t)image.width * image.height <= 40 * 30)
                        image_load(&image, &fault);
                bytes[at] = was;
                ck_assert_int_eq(decoder_open(decoder, bytes, length, &image, &format, &fault), 0);
                ck_assert_int_eq(decode_window(bytes, length, window), 0);
                ck_assert_int_eq(decode(bytes, length), 0);
        }
}

START_TEST(test_the_heap_stays_as_it_is) {
        struct bytes files[FILES];
        struct mallinfo2 before;
        uint64_t state = 1;

        for (unsigned kind = 0; kind < FILES; kind++)
                files[kind] = make_file(kind);
        for (unsigned i = 0; i < 20; i++)
                decode_all(files, &state);
        before = mallinfo2();
        for (unsigned i = 0; i < 100; i++)
                decode_all(files, &state);
        /* The buffers may grow by a row or two more; a leak in one of the 2,500 would be much more. */
        ck_assert_uint_lt(mallinfo2().uordblks + mallinfo2().hblkhd, before.uordblks + before.hblkhd + 40000);
        for (unsigned kind = 0; kind < FILES; kind++)
                free(files[kind].bytes);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("image-limits");
        TCase *tcase = tcase_create("image-limits");

        tcase_add_checked_fixture(tcase, set_up, tear_down);
        tcase_set_timeout(tcase, 60);
        tcase_add_loop_test(tcase, test_M4_a_jpeg_of_4_gigapixels, 0, 2);
        tcase_add_test(tcase, test_M4_a_jpeg_of_many_scans);
        tcase_add_loop_test(tcase, test_M4_a_png_of_3_gigapixels, 0, 2);
        tcase_add_loop_test(tcase, test_M4_a_gigabyte_of_text, 0, 3);
        tcase_add_test(tcase, test_M4_a_gigabyte_behind_the_picture);
        tcase_add_loop_test(tcase, test_M4_many_chunks, 0, 2);
        tcase_add_loop_test(tcase, test_M4_a_webp_of_268_megapixels, 0, 2);
        tcase_add_test(tcase, test_M4_a_webp_of_many_frames);
        tcase_add_test(tcase, test_limits_are_the_options);
        tcase_add_test(tcase, test_the_heap_stays_as_it_is);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
