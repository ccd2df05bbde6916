/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Codecs, and the inspection loop that shows what they say.
 *
 * JPEGs are made here with libjpeg and read back by the plainest libjpeg loop there is, so what the codec
 * adds is what is tested: gray, four components by Pillow's formula (worked out once more in fractions),
 * limits, damage, text. Where the collected files are (../shared/data next to the source tree, or
 * $PINFEED_TEST_DATA), all of them are decoded and resized and compared with what Pillow made of them;
 * elsewhere those tests say that they were skipped.
 */

#include "base/fault.h"
#include "base/seqpacket.h"
#include "daemon/worker/codec.h"
#include "daemon/worker/image.h"
#include "daemon/worker/inspect.h"
#include "daemon/worker/kernels/kernels.h"
#include "tests/support/run.h"
#include "tests/unit/decoding.h"
#include "tests/unit/jpeg-file.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(test_colour_jpegs) {
        static const struct recipe recipes[] = {{61, 47, 3, JCS_RGB, 1, 1, 0}, {61, 47, 3, JCS_RGB, 2, 1, 0},
                                                {61, 47, 3, JCS_RGB, 2, 2, 0}, {61, 47, 3, JCS_RGB, 2, 2, 1},
                                                {1, 1, 3, JCS_RGB, 2, 2, 0},   {301, 1, 3, JCS_RGB, 2, 2, 0},
                                                {1, 77, 3, JCS_RGB, 2, 1, 1},  {16, 16, 3, JCS_RGB, 1, 2, 0}};

        for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
                struct jpeg_file file;
                unsigned char *want;

                encode(&file, &recipes[i]);
                want = decode_plainly(&file, JCS_RGB, 3);
                ck_assert_int_eq(decode(file.bytes, file.length), 0);
                ck_assert_str_eq(format, "JPEG");
                check_rows(want, recipes[i].width, recipes[i].height);
                free(want);
                free(file.bytes);
        }
}
END_TEST

START_TEST(test_gray_is_repeated) {
        const struct recipe recipe = {53, 21, 1, JCS_GRAYSCALE, 1, 1, 0};
        struct jpeg_file file;
        unsigned char *want;

        encode(&file, &recipe);
        want = decode_plainly(&file, JCS_GRAYSCALE, 1);
        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        for (unsigned y = 0; y < 21; y++)
                for (unsigned i = 0; i < 53 * 3; i++)
                        ck_assert_uint_eq(image.pixels[y * image.stride + i], want[y * 53 + i / 3]);
        free(want);
        free(file.bytes);
}
END_TEST

/* white x (1 - ink / 255) with white = 255 - black, the product rounded to nearest; all inks are stored
 * inverted. */
START_TEST(test_four_components_as_pillow) {
        static const J_COLOR_SPACE spaces[] = {JCS_CMYK, JCS_YCCK};

        for (size_t i = 0; i < 2; i++) {
                const struct recipe recipe = {64, 40, 4, spaces[i], 2, 2, 0};
                struct jpeg_file file;
                unsigned char *raw;

                encode(&file, &recipe);
                raw = decode_plainly(&file, JCS_CMYK, 4);
                ck_assert_int_eq(decode(file.bytes, file.length), 0);
                for (unsigned p = 0; p < 64 * 40; p++)
                        for (unsigned c = 0; c < 3; c++) {
                                unsigned black = 255u - raw[p * 4 + 3], ink = 255u - raw[p * 4 + c];
                                unsigned white = 255 - black;
                                unsigned want = white - (2 * ink * white + 255) / 510;

                                ck_assert_uint_eq(image.pixels[p / 64 * image.stride + p % 64 * 3 + c], want);
                        }
                free(raw);
                free(file.bytes);
        }
}
END_TEST

START_TEST(test_what_follows_the_end_is_not_looked_at) {
        const struct recipe recipe = {33, 44, 3, JCS_RGB, 2, 2, 0};
        struct jpeg_file file;
        unsigned char *want, *longer;

        encode(&file, &recipe);
        want = decode_plainly(&file, JCS_RGB, 3);
        longer = malloc(file.length * 2 + 100);
        memcpy(longer, file.bytes, file.length);
        memset(longer + file.length, 0xff, 100);
        memcpy(longer + file.length + 100, file.bytes, file.length);
        ck_assert_int_eq(decode(longer, file.length * 2 + 100), 0);
        check_rows(want, 33, 44);
        free(longer);
        free(want);
        free(file.bytes);
}
END_TEST

/* All pixels are out when libjpeg meets something impossible where the end marker should be: Pillow refuses
 * that, and most scans that went out of step end so. */
START_TEST(test_an_error_after_the_last_row) {
        const struct recipe recipe = {33, 44, 3, JCS_RGB, 2, 2, 0};
        struct jpeg_file file;
        unsigned char *longer;

        encode(&file, &recipe);
        longer = malloc(file.length + 4);
        memcpy(longer, file.bytes, file.length - 2);
        memcpy(longer + file.length - 2, "\xff\x3a\0\2\xff\xd9", 6);
        ck_assert_int_eq(decode(longer, file.length + 4), -EBADMSG);
        ck_assert_ptr_nonnull(strstr(fault.text, "0x3a"));
        free(longer);
        free(file.bytes);
}
END_TEST

/* Cut off anywhere, a JPEG is refused or, when only the end marker is gone, whole; never half gray. */
START_TEST(test_truncated_anywhere) {
        for (int progressive = 0; progressive < 2; progressive++) {
                const struct recipe recipe = {70, 50, 3, JCS_RGB, 2, 2, progressive};
                struct jpeg_file file;
                unsigned char *want;
                unsigned refused = 0;

                encode(&file, &recipe);
                want = decode_plainly(&file, JCS_RGB, 3);
                for (size_t length = 0; length < file.length; length++) {
                        int r = decode(file.bytes, length);

                        if (r == 0) {
                                ck_assert_uint_gt(length, file.length - 8);
                                check_rows(want, 70, 50);
                                continue;
                        }
                        ck_assert_int_eq(r, length < 3 ? -EINVAL : -EBADMSG);
                        ck_assert_str_ne(fault.text, "");
                        refused++;
                }
                ck_assert_uint_gt(refused, file.length - 8);
                /* and a decoder that has seen all this is as good as new */
                ck_assert_int_eq(decode(file.bytes, file.length), 0);
                check_rows(want, 70, 50);
                free(want);
                free(file.bytes);
        }
}
END_TEST

/* Bits turned over anywhere give an answer, and nothing on standard error. */
START_TEST(test_damage_gives_an_answer) {
        const struct recipe recipe = {70, 50, 3, JCS_RGB, 2, 1, 0};
        unsigned refused = 0, accepted = 0;
        struct jpeg_file file;
        int pipes[2], kept;
        char text[16];

        ck_assert_int_eq(pipe(pipes), 0);
        fcntl(pipes[0], F_SETFL, O_NONBLOCK);
        kept = dup(STDERR_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        encode(&file, &recipe);
        for (size_t at = 2; at < file.length; at += 3) {
                unsigned char was = file.bytes[at];

                file.bytes[at] ^= (unsigned char)(1 + at % 255);
                /* A changed size may ask for much memory; that is another test's matter. */
                if (decode(file.bytes, file.length) == 0)
                        accepted++;
                else
                        refused++;
                file.bytes[at] = was;
        }
        dup2(kept, STDERR_FILENO);
        ck_assert_uint_gt(refused, 0);
        ck_assert_uint_gt(accepted, 0);
        ck_assert_int_lt(read(pipes[0], text, sizeof(text)), 0);
        close(pipes[0]);
        close(pipes[1]);
        close(kept);
        free(file.bytes);
}
END_TEST

/* The tables of one file must not serve the next that has none. */
START_TEST(test_no_state_from_file_to_file) {
        const struct recipe recipe = {40, 40, 3, JCS_RGB, 1, 1, 0};
        struct jpeg_file file;
        unsigned char *bare;
        size_t n = 0, i = 2;

        encode(&file, &recipe);
        bare = malloc(file.length);
        memcpy(bare, file.bytes, 2);
        n = 2;
        while (file.bytes[i + 1] != 0xda) {
                size_t segment = 2u + (size_t)(file.bytes[i + 2] << 8 | file.bytes[i + 3]);

                if (file.bytes[i + 1] != 0xdb) { /* all but the quantization tables */
                        memcpy(bare + n, file.bytes + i, segment);
                        n += segment;
                }
                i += segment;
        }
        memcpy(bare + n, file.bytes + i, file.length - i);
        n += file.length - i;

        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        ck_assert_int_eq(decode(bare, n), -EBADMSG);
        ck_assert_ptr_nonnull(strstr(fault.text, "damaged"));
        free(bare);
        free(file.bytes);
}
END_TEST

/* ---- windows ---- */

static void check_windows(const struct recipe *recipe, uint64_t *state) {
        unsigned width = recipe->width, height = recipe->height;
        struct image whole = {0};
        struct jpeg_file file;

        encode(&file, recipe);
        ck_assert_int_eq(decoder_decode(decoder, file.bytes, file.length, &whole, &format, &fault), 0);
        for (unsigned i = 0; i < 150; i++) {
                uint32_t window[4];

                random_window(state, width, height, window);
                ck_assert_int_eq(decode_window(file.bytes, file.length, window), 0);
                ck_assert_uint_eq(image.width, window[2]);
                ck_assert_uint_eq(image.height, window[3]);
                for (uint32_t y = 0; y < window[3]; y++)
                        ck_assert_msg(memcmp(image.pixels + y * image.stride,
                                             whole.pixels + (window[1] + y) * whole.stride + window[0] * 3,
                                             (size_t)window[2] * 3) == 0,
                                      "%ux%u %d components, %dx%d, window %u,%u %ux%u: row %u", width, height,
                                      recipe->components, recipe->h, recipe->v, window[0], window[1],
                                      window[2], window[3], y);
        }
        image_deinit(&whole);
        free(file.bytes);
}

/* Every kind of sampling and coding: what libjpeg leaves out must not show in what it gives. 3,600 windows.
 */
START_TEST(test_windows_equal_the_whole) {
        static const struct recipe recipes[] = {{161, 147, 3, JCS_RGB, 1, 1, 0},
                                                {161, 147, 3, JCS_RGB, 2, 1, 0},
                                                {161, 147, 3, JCS_RGB, 2, 2, 0},
                                                {161, 147, 3, JCS_RGB, 1, 2, 0},
                                                {161, 147, 3, JCS_RGB, 4, 1, 0},
                                                {161, 147, 3, JCS_RGB, 1, 4, 0},
                                                {161, 147, 3, JCS_RGB, 4, 2, 0},
                                                {161, 147, 3, JCS_RGB, 1, 1, 1},
                                                {161, 147, 3, JCS_RGB, 2, 1, 1},
                                                {161, 147, 3, JCS_RGB, 2, 2, 1},
                                                {161, 147, 3, JCS_RGB, 1, 2, 1},
                                                {161, 147, 3, JCS_RGB, 4, 1, 1},
                                                {161, 147, 3, JCS_RGB, 4, 2, 1},
                                                {161, 147, 1, JCS_GRAYSCALE, 1, 1, 0},
                                                {161, 147, 1, JCS_GRAYSCALE, 1, 1, 1},
                                                {161, 147, 4, JCS_CMYK, 1, 1, 0},
                                                {161, 147, 4, JCS_YCCK, 2, 2, 0},
                                                {161, 147, 4, JCS_YCCK, 2, 2, 1},
                                                {161, 147, 3, JCS_RGB, 2, 2, ARITHMETIC},
                                                {161, 147, 3, JCS_RGB, 2, 2, RESTARTS},
                                                {17, 15, 3, JCS_RGB, 2, 2, 0},
                                                {300, 3, 3, JCS_RGB, 2, 2, 0},
                                                {3, 300, 3, JCS_RGB, 2, 1, 0},
                                                {64, 64, 3, JCS_RGB, 2, 2, 0}};
        uint64_t state = 3;

        for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++)
                check_windows(&recipes[i], &state);
}
END_TEST

START_TEST(test_windows_are_judged_by_what_they_need) {
        const struct recipe recipe = {70, 50, 3, JCS_RGB, 2, 2, 0};
        uint64_t state = 11;
        struct jpeg_file file;
        unsigned refused = 0, missed = 0;

        encode(&file, &recipe);
        for (size_t at = 2; at < file.length; at++) {
                unsigned char was = file.bytes[at];
                uint32_t window[4];
                int whole;

                random_window(&state, 70, 50, window);
                whole = decode(file.bytes, at);
                ck_assert(verdict_fits(window, 50, whole, decode_window(file.bytes, at, window)));
                missed += whole != 0 && decode_window(file.bytes, at, window) == 0;

                file.bytes[at] ^= (unsigned char)(1 + next_random(&state) % 255);
                whole = decode(file.bytes, file.length);
                refused += whole != 0;
                if (whole != 0 || (image.width == 70 && image.height == 50))
                        ck_assert_msg(verdict_fits(window, 50, whole,
                                                   decode_window(file.bytes, file.length, window)),
                                      "byte %zu: %s", at, fault.text);
                file.bytes[at] = was;
        }
        ck_assert_uint_gt(refused, 50);
        ck_assert_uint_gt(missed, 50); /* the rows below really are left alone */
        free(file.bytes);
}
END_TEST

START_TEST(test_too_many_pixels_before_memory_is_taken) {
        const struct recipe recipe = {64, 64, 3, JCS_RGB, 2, 2, 0};
        struct jpeg_file file;
        size_t before;

        encode(&file, &recipe);
        for (size_t i = 2; i < file.length; i++)
                if (file.bytes[i] == 0xff && file.bytes[i + 1] == 0xc0) {
                        memcpy(file.bytes + i + 5, "\xfd\xe8\xfd\xe8", 4); /* 65000 x 65000 */
                        break;
                }
        before = resident_peak();
        ck_assert_int_eq(decode(file.bytes, file.length), -EFBIG);
        ck_assert_ptr_nonnull(strstr(fault.text, "too many pixels"));
        ck_assert_uint_lt(resident_peak() - before, 16 * 1024);
        free(file.bytes);
}
END_TEST

START_TEST(test_the_pixel_limit_is_exact) {
        ck_assert_int_eq(codec_check_pixels(8946, 20004, CODEC_PIXELS_MAX, &fault), 0);      /* 178955784 */
        ck_assert_int_eq(codec_check_pixels(8947, 20004, CODEC_PIXELS_MAX, &fault), -EFBIG); /* 178975788 */
        ck_assert_int_eq(codec_check_pixels(1, (uint32_t)CODEC_PIXELS_MAX, CODEC_PIXELS_MAX, &fault), 0);
        ck_assert_int_eq(codec_check_pixels(1, (uint32_t)CODEC_PIXELS_MAX + 1, CODEC_PIXELS_MAX, &fault),
                         -EFBIG);
        ck_assert_int_eq(codec_check_pixels(UINT32_MAX, UINT32_MAX, CODEC_PIXELS_MAX, &fault), -EFBIG);
}
END_TEST

START_TEST(test_content_decides) {
        static const struct {
                const char *bytes;
                size_t length;
                int error;
                const char *format;
                const char *text;
        } cases[] = {
                {"", 0, -EINVAL, NULL, "empty"},
                {"<html><body>404", 15, -EINVAL, NULL, "no known image format"},
                {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, -EINVAL, NULL, "no known image format"},
                {"GIF87a\1\0\1\0", 10, -EOPNOTSUPP, "GIF", "format GIF"},
                {"GIF89a\1\0\1\0", 10, -EOPNOTSUPP, "GIF", "format GIF"},
                {"BM\x0e\xcd\2\0\0\0", 8, -EOPNOTSUPP, "BMP", "format BMP"},
                {"II*\0\x08\0\0\0", 8, -EOPNOTSUPP, "TIFF", "format TIFF"},
                {"MM\0*\0\0\0\x08", 8, -EOPNOTSUPP, "TIFF", "format TIFF"},
                {"\xff\xd8\xff", 3, -EBADMSG, "JPEG", "truncated"},
                {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16, -EBADMSG, "PNG", "IHDR is cut off"},
                {"RIFF\x10\0\0\0WEBPVP8 ", 16, -EBADMSG, "WEBP", "damaged"},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                ck_assert_int_eq(decode(cases[i].bytes, cases[i].length), cases[i].error);
                if (cases[i].format)
                        ck_assert_str_eq(format, cases[i].format);
                else
                        ck_assert_ptr_null(format);
                ck_assert_msg(strstr(fault.text, cases[i].text) != NULL, "%s", fault.text);
        }
}
END_TEST

/* ---- the inspection loop ---- */

static int memory_file(const void *bytes, size_t length) {
        int fd = memfd_create("picture", MFD_CLOEXEC);

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
        return fd;
}

static json_t *ask(int socket, const char *name, int fd) {
        int fds[SEQPACKET_FDS_MAX];
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        char record[SEQPACKET_RECORD_MAX];
        size_t length, n_fds;
        json_t *answer;

        ck_assert_int_eq(seqpacket_send(socket, name, strlen(name), &fd, fd >= 0 ? 1 : 0), 0);
        ck_assert_int_eq(poll(&ready, 1, 10000), 1);
        ck_assert_int_eq(seqpacket_receive(socket, record, sizeof(record), &length, fds, &n_fds), 0);
        ck_assert_uint_eq(n_fds, 0);
        ck_assert_ptr_null(memchr(record, '\n', length));
        answer = json_loadb(record, length, 0, NULL);
        ck_assert_ptr_nonnull(answer);
        ck_assert_str_eq(json_string_value(json_object_get(answer, "file")), name);
        if (fd >= 0)
                close(fd);
        return answer;
}

static void hex_of_rows(char hex[65]) {
        uint8_t digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx context;

        sha256_init(&context);
        for (uint32_t y = 0; y < image.height; y++)
                sha256_update(&context, (size_t)image.width * 3, image.pixels + y * image.stride);
        sha256_digest(&context, sizeof(digest), digest);
        for (unsigned i = 0; i < sizeof(digest); i++)
                sprintf(hex + 2 * i, "%02x", digest[i]);
}

static void check_refusal(int socket, const char *name, int fd, const char *known, const char *text) {
        json_t *answer = ask(socket, name, fd);

        ck_assert(json_is_false(json_object_get(answer, "ok")));
        if (known)
                ck_assert_str_eq(json_string_value(json_object_get(answer, "format")), known);
        else
                ck_assert_ptr_null(json_object_get(answer, "format"));
        ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(answer, "error")), text));
        json_decref(answer);
}

START_TEST(test_inspection) {
        const struct recipe recipe = {57, 35, 3, JCS_RGB, 2, 2, 0};
        struct jpeg_file file;
        int pair[2], status, pipes[2];
        json_t *answer;
        char hex[65];
        pid_t pid;

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                const struct rlimit few = {24, 24};

                close(pair[0]);
                setrlimit(RLIMIT_NOFILE, &few); /* a leak shows soon */
                _exit(inspect_run(pair[1], &fault) == 0 ? 0 : 1);
        }
        close(pair[1]);

        encode(&file, &recipe);
        ck_assert_int_eq(decode(file.bytes, file.length), 0);
        hex_of_rows(hex);
        for (int i = 0; i < 20; i++) {
                answer = ask(pair[0], "a \"quoted\" name.png", memory_file(file.bytes, file.length));
                ck_assert(json_is_true(json_object_get(answer, "ok")));
                ck_assert_str_eq(json_string_value(json_object_get(answer, "format")), "JPEG");
                ck_assert_int_eq(json_integer_value(json_object_get(answer, "width")), 57);
                ck_assert_int_eq(json_integer_value(json_object_get(answer, "height")), 35);
                ck_assert_str_eq(json_string_value(json_object_get(answer, "rgb_sha256")), hex);
                json_decref(answer);
                check_refusal(pair[0], "half", memory_file(file.bytes, file.length / 2), "JPEG", "truncated");
        }
        check_refusal(pair[0], "empty", memory_file("", 0), NULL, "empty");
        check_refusal(pair[0], "x.jpg", memory_file("GIF89a....", 10), "GIF", "format GIF");
        check_refusal(pair[0], "two\nlines\t\x1b[31m.jpg", -1, NULL, "no descriptor");
        ck_assert_int_eq(pipe(pipes), 0);
        close(pipes[1]);
        check_refusal(pair[0], "pipe", pipes[0], NULL, "not a regular file");

        close(pair[0]);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        free(file.bytes);
}
END_TEST

/* ---- the collected files ---- */

static const char *data_file(const char *name) {
        static char path[4096];
        const char *root = getenv("PINFEED_TEST_DATA");

        snprintf(path, sizeof(path), "%s/%s", root ? root : "../shared/data", name);
        return path;
}

/* The expectations, or NULL and a line that says so. */
static json_t *load_expected(const char *name) {
        json_t *expected = json_load_file(data_file(name), 0, NULL);

        if (!expected) {
                printf("# skipped: no %s\n", data_file(name));
                fflush(stdout);
        }
        return expected;
}

static unsigned char *read_whole(const char *path, size_t *length) {
        FILE *file = fopen(path, "rb");
        unsigned char *bytes;
        long end;

        ck_assert_msg(file != NULL, "%s", path);
        fseek(file, 0, SEEK_END);
        end = ftell(file);
        rewind(file);
        bytes = malloc((size_t)end + 1);
        *length = fread(bytes, 1, (size_t)end, file);
        ck_assert_uint_eq(*length, (size_t)end);
        fclose(file);
        return bytes;
}

/* What they have to be, but for PNGs of 16-bit gray: of those the upper byte counts, where Pillow clips. */
static const char *expected_digest(const char *name, const json_t *entry) {
        if (strcmp(name, "made_gray16.png") == 0)
                return "16a8a17b7571fbe9f1b53236f8ef3bb76f73d5c3f0342bb33eb15ee1c4d6d89e";
        if (strcmp(name, "i_trns.png") == 0)
                return "f3cc103136423a57975750907ebc1d367e2985ac6338976d4d5a439f50323f4a";
        return json_string_value(json_object_get(entry, "rgb_sha256"));
}

START_TEST(test_odd_files) {
        json_t *expected = load_expected("odd/expected.json"), *entry;
        unsigned equal = 0, refused = 0;
        const char *name;

        if (!expected)
                return;
        json_object_foreach(expected, name, entry) {
                char path[256], hex[65];
                unsigned char *bytes;
                size_t length;
                int r;

                snprintf(path, sizeof(path), "odd/%s", name);
                bytes = read_whole(data_file(path), &length);
                r = decode(bytes, length);
                free(bytes);
                ck_assert_msg((r == 0) == json_is_true(json_object_get(entry, "ok")), "%s: %d %s", name, r,
                              fault.text);
                if (r < 0) {
                        ck_assert(format ? r == -EBADMSG || r == -EFBIG || r == -EOPNOTSUPP : r == -EINVAL);
                        refused++;
                        continue;
                }
                ck_assert_str_eq(format, json_string_value(json_object_get(entry, "format")));
                hex_of_rows(hex);
                ck_assert_msg(strcmp(hex, expected_digest(name, entry)) == 0, "%s: %s", name, hex);
                equal++;
        }
        ck_assert_uint_ge(equal, 306);
        ck_assert_uint_ge(refused, 17);
        json_decref(expected);
}
END_TEST

static unsigned element(const json_t *entry, const char *key, size_t i) {
        return (unsigned)json_integer_value(json_array_get(json_object_get(entry, key), i));
}

static enum resize_filter filter_named(const char *name) {
        static const char *const names[] = {
                [RESIZE_BILINEAR] = "bilinear", [RESIZE_BICUBIC] = "bicubic", [RESIZE_NEAREST] = "nearest",
                [RESIZE_BOX] = "box",           [RESIZE_LANCZOS] = "lanczos", [RESIZE_HAMMING] = "hamming",
        };

        for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (strcmp(names[i], name) == 0)
                        return i;
        ck_abort_msg("%s: no such filter", name);
}

static void check_photo(const json_t *entry, enum resize_filter filter, struct resizer *resizer) {
        const char *photo = json_string_value(json_object_get(entry, "photo"));
        unsigned left = element(entry, "crop", 0), top = element(entry, "crop", 1);
        unsigned right = element(entry, "crop", 2), bottom = element(entry, "crop", 3);
        unsigned width = element(entry, "size", 0), height = element(entry, "size", 1);
        struct image crop, small = {0};
        unsigned char *bytes;
        char path[256], hex[65];
        size_t length;

        snprintf(path, sizeof(path), "photos/%s", photo);
        bytes = read_whole(data_file(path), &length);
        ck_assert_msg(decode(bytes, length) == 0, "%s: %s", photo, fault.text);
        free(bytes);

        crop = image;
        image_crop(&crop, left, top, right - left, bottom - top);
        ck_assert_int_eq(image_reset(&small, width, height), 0);
        ck_assert_int_eq(resizer_run(resizer, filter, small.pixels, small.stride, width, height, crop.pixels,
                                     crop.stride, crop.width, crop.height),
                         0);
        image_swap(&image, &small);
        hex_of_rows(hex);
        image_deinit(&small);
        ck_assert_msg(strcmp(hex, json_string_value(json_object_get(entry, "rgb_sha256"))) == 0,
                      "%s %u,%u,%u,%u to %ux%u: %s", photo, left, top, right, bottom, width, height, hex);
}

START_TEST(test_resized_photos) {
        json_t *expected = load_expected("resize/expected.json"), *entry;
        struct resizer resizer = {0};
        unsigned equal = 0;
        size_t i;

        if (!expected)
                return;
        json_array_foreach(expected, i, entry) {
                check_photo(entry, filter_named(json_string_value(json_object_get(entry, "filter"))),
                            &resizer);
                equal++;
        }
        ck_assert_uint_eq(equal, 200); /* 40 of each filter but hamming */
        resizer_deinit(&resizer);
        json_decref(expected);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("images");
        TCase *jpeg = tcase_create("jpeg"), *inspection = tcase_create("inspection"),
              *data = tcase_create("data");

        tcase_add_test(jpeg, test_colour_jpegs);
        tcase_add_test(jpeg, test_gray_is_repeated);
        tcase_add_test(jpeg, test_four_components_as_pillow);
        tcase_add_test(jpeg, test_what_follows_the_end_is_not_looked_at);
        tcase_add_test(jpeg, test_an_error_after_the_last_row);
        tcase_add_test(jpeg, test_truncated_anywhere);
        tcase_add_test(jpeg, test_damage_gives_an_answer);
        tcase_add_test(jpeg, test_no_state_from_file_to_file);
        tcase_add_test(jpeg, test_windows_equal_the_whole);
        tcase_add_test(jpeg, test_windows_are_judged_by_what_they_need);
        tcase_add_test(jpeg, test_too_many_pixels_before_memory_is_taken);
        tcase_add_test(jpeg, test_the_pixel_limit_is_exact);
        tcase_add_test(jpeg, test_content_decides);
        tcase_add_test(inspection, test_inspection);
        tcase_add_test(data, test_odd_files);
        tcase_add_test(data, test_resized_photos);
        tcase_add_checked_fixture(jpeg, set_up, tear_down);
        tcase_add_checked_fixture(inspection, set_up, tear_down);
        tcase_add_checked_fixture(data, set_up, tear_down);
        tcase_set_timeout(jpeg, 60);
        tcase_set_timeout(inspection, 60);
        tcase_set_timeout(data, 120);
        suite_add_tcase(suite, jpeg);
        suite_add_tcase(suite, inspection);
        suite_add_tcase(suite, data);
        return run_suite(suite);
}
