/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The WebP codec. Pictures without loss come out as they went in; of those with loss, libwebp's own plainest
 * call says what they have to be.
 */

#include "tests/support/run.h"
#include "tests/unit/decoding.h"
#include "tests/unit/webp-file.h"

#include <stdio.h>

#include <webp/decode.h>

enum {
        WIDTH = 37,
        HEIGHT = 23,
};

/* Four bytes a pixel, and the three that are left of them. */
static unsigned char drawn[WIDTH * HEIGHT * 4], shown[WIDTH * HEIGHT * 3];

static void draw(uint64_t state) {
        for (unsigned i = 0; i < WIDTH * HEIGHT; i++) {
                for (unsigned c = 0; c < 4; c++)
                        drawn[i * 4 + c] = (unsigned char)next_random(&state);
                memcpy(shown + (size_t)i * 3, drawn + (size_t)i * 4, 3);
        }
}

START_TEST(test_alpha_is_dropped) {
        struct webp_file file;

        draw(1);
        webp_encode(&file, drawn, WIDTH, HEIGHT);
        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        ck_assert_str_eq(format, "WEBP");
        check_rows(shown, WIDTH, HEIGHT);
        free(file.bytes);
}
END_TEST

START_TEST(test_with_loss) {
        unsigned char *bytes, *want;
        int width, height;
        size_t length;

        draw(2);
        length = WebPEncodeRGBA(drawn, WIDTH, HEIGHT, WIDTH * 4, 60, &bytes);
        want = WebPDecodeRGB(bytes, length, &width, &height);
        ck_assert_int_eq(decode(bytes, length), 0);
        check_rows(want, WIDTH, HEIGHT);
        WebPFree(want);
        WebPFree(bytes);
}
END_TEST

static void encode_animation(struct webp_file *file, unsigned left, unsigned top, unsigned width,
                             unsigned height) {
        struct webp_file still;

        *file = (struct webp_file){0};
        webp_encode(&still, drawn, WIDTH, HEIGHT);
        webp_put_head(file, WEBP_ANIMATION | WEBP_ALPHA, width, height);
        webp_put_chunk(file, "ANIM", "\xff\x80\x40\xff\0\0", 6); /* a background that nobody shows */
        webp_put_frame(file, left, top, WIDTH, HEIGHT, &still);
        free(still.bytes);
        draw(99);
        webp_encode(&still, drawn, WIDTH, HEIGHT);
        webp_put_frame(file, 0, 0, WIDTH, HEIGHT, &still);
        free(still.bytes);
}

START_TEST(test_the_first_frame) {
        static unsigned char canvas[HEIGHT + 13][WIDTH + 9][3];
        const uint32_t window[4] = {3, 4, 30, 20};
        struct webp_file file;

        draw(3);
        for (unsigned y = 0; y < HEIGHT; y++)
                memcpy(canvas[y + 10][6], shown + (size_t)y * WIDTH * 3, WIDTH * 3);
        encode_animation(&file, 6, 10, WIDTH + 9, HEIGHT + 13);
        ck_assert_msg(decode(file.bytes, file.length) == 0, "%s", fault.text);
        check_rows(canvas[0][0], WIDTH + 9, HEIGHT + 13);
        ck_assert_int_eq(decode_window(file.bytes, file.length, window), 0);
        check_crop(canvas[0][0], WIDTH + 9, window);
        free(file.bytes);

        draw(4);
        encode_animation(&file, 0, 0, WIDTH, HEIGHT);
        draw(4);
        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        check_rows(shown, WIDTH, HEIGHT);
        free(file.bytes);
}
END_TEST

START_TEST(test_a_frame_beyond_the_canvas) {
        struct webp_file file;

        draw(5);
        encode_animation(&file, 2, 0, WIDTH, HEIGHT);
        ck_assert_int_eq(decode(file.bytes, file.length), -EBADMSG);
        free(file.bytes);
}
END_TEST

/* What is cut off is refused, and said to be so, also where damage is accepted: as by Pillow. */
START_TEST(test_truncated_anywhere) {
        struct codec_options options = codec_options_default;
        struct webp_file files[2];

        draw(6);
        webp_encode(&files[0], drawn, WIDTH, HEIGHT);
        encode_animation(&files[1], 0, 0, WIDTH, HEIGHT);
        for (int lenient = 0; lenient < 2; lenient++) {
                options.accept_damaged = lenient;
                decoder_free(decoder);
                ck_assert_int_eq(decoder_new(&decoder, &options), 0);
                for (unsigned i = 0; i < 2; i++)
                        for (size_t length = 0; length < files[i].length; length++) {
                                int r = decode(files[i].bytes, length);

                                ck_assert_int_eq(r, length < WEBP_HEAD ? -EINVAL : -EBADMSG);
                                if (length >= WEBP_HEAD)
                                        ck_assert_msg(strstr(fault.text, "truncated") != NULL, "%u, %zu: %s",
                                                      i, length, fault.text);
                        }
        }
        free(files[0].bytes);
        free(files[1].bytes);
}
END_TEST

START_TEST(test_damage_gives_an_answer) {
        unsigned refused = 0, accepted = 0;
        struct webp_file file;
        uint64_t state = 7;

        draw(7);
        encode_animation(&file, 0, 0, WIDTH, HEIGHT);
        for (size_t at = 4; at < file.length; at += 1 + next_random(&state) % 4) {
                unsigned char was = file.bytes[at];

                file.bytes[at] ^= (unsigned char)(1 + next_random(&state) % 255);
                if (decode(file.bytes, file.length) == 0)
                        accepted++;
                else
                        refused++;
                file.bytes[at] = was;
        }
        ck_assert_uint_gt(refused, 30);
        ck_assert_uint_gt(accepted, 30);
        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        draw(7);
        check_rows(shown, WIDTH, HEIGHT);
        free(file.bytes);
}
END_TEST

START_TEST(test_windows_equal_the_whole) {
        struct webp_file file;
        uint64_t state = 8;
        uint32_t window[4];

        draw(8);
        webp_encode(&file, drawn, WIDTH, HEIGHT);
        for (unsigned i = 0; i < 100; i++) {
                random_window(&state, WIDTH, HEIGHT, window);
                ck_assert_int_eq(decode_window(file.bytes, file.length, window), 0);
                check_crop(shown, WIDTH, window);
        }
        free(file.bytes);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("webp");
        TCase *tcase = tcase_create("webp");

        tcase_add_checked_fixture(tcase, set_up, tear_down);
        tcase_set_timeout(tcase, 60);
        tcase_add_test(tcase, test_alpha_is_dropped);
        tcase_add_test(tcase, test_with_loss);
        tcase_add_test(tcase, test_the_first_frame);
        tcase_add_test(tcase, test_a_frame_beyond_the_canvas);
        tcase_add_test(tcase, test_truncated_anywhere);
        tcase_add_test(tcase, test_damage_gives_an_answer);
        tcase_add_test(tcase, test_windows_equal_the_whole);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
