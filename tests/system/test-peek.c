/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedctl peek: the picture that it writes is read back, and is the pixels that the images were made of.
 *
 * The images are WebP without loss, each pixel of another colour, so that no channel, edge or neighbour can
 * be taken for another. Eight of them are in three classes; the sixth is none. */

#include "client/ctl/sheet.h"
#include "tests/support/harness.h"
#include "tests/support/run.h"
#include "tests/support/terminal.h"

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <spng.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <webp/encode.h>

enum {
        WIDTH = 40, /* of an image */
        HEIGHT = 30,
        LEFT = 8, /* of what the crop leaves */
        TOP = 3,
        CROP = 24,
        IMAGES = 8,
        DAMAGED = 5,
        PEEK_MS = 20000,
        WORDS_MAX = 12,
};

static const char *const names[] = {"ant", "bee", "caf\xc3\xa9"};
static const unsigned classes[IMAGES] = {0, 0, 0, 1, 1, 1, 1, 2};

static uint8_t colour_of(unsigned image, unsigned x, unsigned y, unsigned channel) {
        unsigned of[] = {x * 6 + image, y * 8 + image * 3, 255 - x * 2 - y * 3 - image};

        return (uint8_t)of[channel];
}

/* ---- a daemon with images ---- */

static const char *path_in(struct harness *h, const char *format, ...) {
        static char path[HARNESS_PATH_MAX];
        char name[256];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(name, sizeof(name), format, arguments);
        va_end(arguments);
        snprintf(path, sizeof(path), "%s/%s", harness_directory(h), name);
        return path;
}

static void write_file(const char *path, const void *bytes, size_t n) {
        FILE *file = fopen(path, "w");

        ck_assert_msg(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0, "%s", path);
}

static void draw_image(struct harness *h, unsigned image) {
        uint8_t pixels[HEIGHT][WIDTH][3], *bytes;
        size_t n;

        for (unsigned y = 0; y < HEIGHT; y++)
                for (unsigned x = 0; x < WIDTH; x++)
                        for (unsigned c = 0; c < 3; c++)
                                pixels[y][x][c] = colour_of(image, x, y, c);
        n = WebPEncodeLosslessRGB(&pixels[0][0][0], WIDTH, HEIGHT, WIDTH * 3, &bytes);
        ck_assert_uint_gt(n, 0);
        write_file(path_in(h, "images/%s/%u.webp", names[classes[image]], image), bytes,
                   image == DAMAGED ? 20 : n);
        WebPFree(bytes);
}

#define NORMALIZE ", {normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}"

static const struct {
        const char *name, *transforms, *more;
} pipelines[] = {
        {"float32_chw", NORMALIZE, "output: {dtype: float32, layout: chw}"},
        {"float32_last", NORMALIZE, "output: {dtype: float32, layout: channels_last}"},
        {"float16_hwc", NORMALIZE, "output: {dtype: float16, layout: hwc}"},
        {"bfloat16_chw", NORMALIZE, "output: {dtype: bfloat16, layout: chw}"},
        {"uint8_chw", "", "output: {dtype: uint8, layout: chw}"},
        {"uint8_hwc", "", "output: {dtype: uint8, layout: hwc}"},
        {"unit", "", "output: {dtype: float16, layout: chw}"},
        {"padded", "", "last_batch: pad"},
        {"dropped", "", "last_batch: drop"},
        {"shuffled", "", "shuffle: true"},
};

static struct harness *start(void) {
        char config[8192] = "pipelines:\n"
                            "  features:\n"
                            "    source: {type: synthetic, samples: 100, features: 5}\n"
                            "    batch_size: 10\n";
        struct harness *h = harness_new();

        ck_assert_int_eq(mkdir(path_in(h, "images"), 0777), 0);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                ck_assert_int_eq(mkdir(path_in(h, "images/%s", names[i]), 0777), 0);
        for (unsigned i = 0; i < IMAGES; i++)
                draw_image(h, i);
        for (size_t i = 0; i < sizeof(pipelines) / sizeof(pipelines[0]); i++)
                snprintf(config + strlen(config), sizeof(config) - strlen(config),
                         "  %s:\n"
                         "    source: {type: imagefolder, path: %s/images}\n"
                         "    transforms: [{center_crop: {size: %d}}%s]\n"
                         "    %s\n"
                         "    batch_size: 6\n"
                         "    max_errors: 0.9\n"
                         "    workers: 1\n",
                         pipelines[i].name, harness_directory(h), CROP, pipelines[i].transforms,
                         pipelines[i].more);
        harness_write_config(h, "%s", config);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_wait(h, "peek to be gone", harness_no_job_is_there, NULL, 2000);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* ---- peek, and what it has drawn ---- */

/* "pinfeedctl peek" with these words, "%" standing for the file sheet.png. Exit code; free *output. */
static int peek(struct harness *h, const char *options, char **output) {
        const char *argv[WORDS_MAX] = {"pinfeedctl", "peek"};
        char words[256], sheet[HARNESS_PATH_MAX], *rest = words;
        size_t n = 2;

        snprintf(words, sizeof(words), "%s", options);
        snprintf(sheet, sizeof(sheet), "%s", path_in(h, "sheet.png"));
        for (char *word; (word = strtok_r(rest, " ", &rest)) && n < WORDS_MAX - 1;)
                argv[n++] = strcmp(word, "%") ? word : sheet;
        return harness_run(h, PEEK_MS * harness_slowdown(), output, argv);
}

static void expect_peek(struct harness *h, const char *options, const char *says) {
        char *output;
        int r = peek(h, options, &output);

        ck_assert_msg(r == 0 && strstr(output, says), "%s: %d, %s", options, r, output);
        free(output);
}

static uint8_t *read_file(const char *path, size_t *n) {
        FILE *file = fopen(path, "r");
        uint8_t *bytes = malloc(1 << 22);

        ck_assert_msg(file != NULL, "%s", path);
        *n = fread(bytes, 1, 1 << 22, file);
        fclose(file);
        return bytes;
}

/* sheet.png; its grid is that of `n` pictures. */
static struct sheet read_sheet(struct harness *h, uint32_t n) {
        spng_ctx *context = spng_ctx_new(0);
        struct spng_ihdr header;
        struct sheet sheet;
        uint8_t *bytes;
        size_t size;

        ck_assert_int_eq(sheet_init(&sheet, n, CROP, CROP, 0), 0);
        bytes = read_file(path_in(h, "sheet.png"), &size);
        ck_assert_int_eq(spng_set_png_buffer(context, bytes, size), 0);
        ck_assert_int_eq(spng_get_ihdr(context, &header), 0);
        sheet.width = header.width;
        sheet.height = header.height;
        sheet_deinit(&sheet);
        ck_assert_int_eq(spng_decoded_image_size(context, SPNG_FMT_RGB8, &size), 0);
        sheet.pixels = malloc(size);
        ck_assert_int_eq(spng_decode_image(context, sheet.pixels, size, SPNG_FMT_RGB8, 0), 0);
        spng_ctx_free(context);
        free(bytes);
        return sheet;
}

static const uint8_t *pixel_at(const struct sheet *sheet, uint32_t x, uint32_t y) {
        return sheet->pixels + ((size_t)y * sheet->width + x) * SHEET_BYTES;
}

/* The largest difference between the picture and the image, over all pixels and channels. */
static int compare(const struct sheet *sheet, uint32_t place, unsigned image) {
        uint32_t left, top;
        int most = 0;

        sheet_place(sheet, place, &left, &top);
        for (unsigned y = 0; y < CROP; y++)
                for (unsigned x = 0; x < CROP; x++)
                        for (unsigned c = 0; c < 3; c++) {
                                int is = pixel_at(sheet, left + x * sheet->enlarged + 2,
                                                  top + y * sheet->enlarged + 2)[c];
                                int difference = abs(is - colour_of(image, LEFT + x, TOP + y, c));

                                most = difference > most ? difference : most;
                        }
        return most;
}

static bool is_framed(const struct sheet *sheet, uint32_t place) {
        uint32_t x, y;

        sheet_place(sheet, place, &x, &y);
        return memcmp(pixel_at(sheet, x - 2, y - 2), sheet->pixels, SHEET_BYTES) != 0;
}

/* Pixels of the words under a picture. */
static unsigned count_words(const struct sheet *sheet, uint32_t place) {
        uint32_t left, top;
        unsigned n = 0;

        sheet_place(sheet, place, &left, &top);
        top += sheet->shown_height + 4;
        for (uint32_t y = top; y < top + 30; y++)
                for (uint32_t x = left; x < left + sheet->shown_width; x++)
                        n += memcmp(pixel_at(sheet, x, y), sheet->pixels, SHEET_BYTES) != 0;
        return n;
}

START_TEST(test_pictures_are_the_images) {
        struct harness *h = start();

        for (size_t i = 0; i < 7; i++) {
                struct sheet sheet;
                char options[64];

                snprintf(options, sizeof(options), "%s --out %%", pipelines[i].name);
                expect_peek(h, options, "sheet.png: 6 of 6 rows of epoch 0, 1 replaced\n");
                sheet = read_sheet(h, 6);
                for (unsigned k = 0; k < 6; k++) {
                        ck_assert_msg(k == DAMAGED || compare(&sheet, k, k) <= 1, "%s, %u: %d levels off",
                                      pipelines[i].name, k, compare(&sheet, k, k));
                        ck_assert_msg(is_framed(&sheet, k) == (k == DAMAGED), "%s, %u", pipelines[i].name, k);
                        ck_assert_uint_gt(count_words(&sheet, k), 100);
                }
                sheet_deinit(&sheet);
        }
        finish(h);
}
END_TEST

/* A batch in two pieces, a short one, and one that is filled up with rows of the beginning. */
START_TEST(test_begins_where_it_is_told) {
        struct harness *h = start();
        struct sheet sheet;

        expect_peek(h, "unit --row 1 --out %", "6 of 6 rows of epoch 0, 1 replaced\n");
        sheet = read_sheet(h, 6);
        ck_assert_int_le(compare(&sheet, 0, 1), 1);
        ck_assert_int_le(compare(&sheet, 5, 6), 1);
        ck_assert(is_framed(&sheet, DAMAGED - 1));
        sheet_deinit(&sheet);

        expect_peek(h, "unit --epoch 7 --row 7 --out %", "1 of 1 row of epoch 7\n");
        sheet = read_sheet(h, 1);
        ck_assert_int_le(compare(&sheet, 0, 7), 1);
        sheet_deinit(&sheet);

        expect_peek(h, "padded --row 6 --out %", "6 of 6 rows of epoch 0, 4 of padding\n");
        sheet = read_sheet(h, 6);
        for (unsigned i = 0; i < 6; i++) {
                ck_assert_int_le(compare(&sheet, i, (i + 6) % IMAGES), 1);
                ck_assert(is_framed(&sheet, i) == (i >= 2));
        }
        sheet_deinit(&sheet);
        finish(h);
}
END_TEST

/* Whether two sheets are the same bytes. */
static bool are_same(struct harness *h, const char *one, const char *other) {
        size_t n, m;
        uint8_t *first, *second;
        bool same;
        char *output;

        ck_assert_int_eq(peek(h, one, &output), 0);
        free(output);
        first = read_file(path_in(h, "sheet.png"), &n);
        ck_assert_int_eq(peek(h, other, &output), 0);
        free(output);
        second = read_file(path_in(h, "sheet.png"), &m);
        same = n == m && memcmp(first, second, n) == 0;
        free(first);
        free(second);
        return same;
}

START_TEST(test_epoch_and_seed) {
        struct harness *h = start();

        ck_assert(are_same(h, "shuffled --out %", "shuffled --epoch 0 --row 0 --seed 0 --out %"));
        ck_assert(!are_same(h, "shuffled --out %", "shuffled --epoch 1 --out %"));
        ck_assert(!are_same(h, "shuffled --out %", "shuffled --seed 1 --out %"));
        finish(h);
}
END_TEST

/* ---- where it goes ---- */

/* Pictures, and what may have been left of one. */
static unsigned count_pictures(struct harness *h) {
        DIR *stream = opendir(harness_directory(h));
        struct dirent *entry;
        unsigned n = 0;

        ck_assert_ptr_nonnull(stream);
        while ((entry = readdir(stream)))
                n += strstr(entry->d_name, ".png") != NULL;
        closedir(stream);
        return n;
}

static int run_shell(struct harness *h, char **output, const char *script) {
        return harness_run(h, PEEK_MS * harness_slowdown(), output,
                           (const char *[]){"/bin/sh", "-c", script, "sh",
                                            harness_program("pinfeedctl", (char[HARNESS_PATH_MAX]){0}),
                                            harness_directory(h), NULL});
}

START_TEST(test_standard_output) {
        struct harness *h = start();
        struct sheet sheet;
        char *output;

        ck_assert_int_eq(run_shell(h, &output, "\"$1\" peek unit --out - > \"$2\"/sheet.png"), 0);
        ck_assert_str_eq(output, "wrote standard output: 6 of 6 rows of epoch 0, 1 replaced\n");
        free(output);
        sheet = read_sheet(h, 6);
        ck_assert_int_le(compare(&sheet, 2, 2), 1);
        sheet_deinit(&sheet);

        ck_assert_int_eq(run_shell(h, &output, "\"$1\" peek unit --out - > /dev/full"), 1);
        harness_expect_words(output, "pinfeedctl: writing the output failed");
        free(output);
        finish(h);
}
END_TEST

/* A file that is there is replaced as a whole, behind a link too, or left as it was. */
START_TEST(test_files_are_whole_or_untouched) {
        struct harness *h = start();
        struct stat status;
        struct sheet sheet;
        char *output;

        write_file(path_in(h, "real.png"), "old", 3);
        ck_assert_int_eq(symlink("real.png", path_in(h, "sheet.png")), 0);
        ck_assert_int_eq(
                run_shell(h, &output, "trap '' XFSZ; ulimit -f 1; \"$1\" peek unit --out \"$2\"/sheet.png"),
                1);
        harness_expect_words(output, "pinfeedctl: --out: cannot write ");
        harness_expect_words(output, "sheet.png: File too large\n");
        free(output);
        ck_assert_uint_eq(count_pictures(h), 2);
        ck_assert_int_eq(stat(path_in(h, "real.png"), &status), 0);
        ck_assert_int_eq(status.st_size, 3);

        /* Killed while it writes. */
        ck_assert_int_ne(run_shell(h, &output, "ulimit -f 1; \"$1\" peek unit --out \"$2\"/sheet.png"), 0);
        free(output);
        ck_assert_uint_eq(count_pictures(h), 2);
        ck_assert_int_eq(stat(path_in(h, "real.png"), &status), 0);
        ck_assert_int_eq(status.st_size, 3);

        expect_peek(h, "unit --out %", "6 of 6 rows");
        ck_assert_uint_eq(count_pictures(h), 2);
        ck_assert_int_eq(lstat(path_in(h, "sheet.png"), &status), 0);
        ck_assert(S_ISLNK(status.st_mode));
        sheet = read_sheet(h, 6);
        ck_assert_int_le(compare(&sheet, 0, 0), 1);
        sheet_deinit(&sheet);
        finish(h);
}
END_TEST

static const struct {
        const char *options;
        int code;
        const char *words;
} refused[] = {
        {"unit", 2, "expected --out FILE.png, where the picture is to go"},
        {"--out %", 2, "expected one pipeline"},
        {"unit unit --out %", 2, "expected one pipeline"},
        {"unit --out % --row -1", 2, "--row: expected a whole number"},
        {"unit --out % --epoch 4294967296", 2, "--epoch: expected a whole number from 0 to 4294967295"},
        {"unit --out % --pages 3", 2, "unrecognized option '--pages'"},
        {"nothing --out %", 1, "no pipeline \"nothing\""},
        {"unit --out % --row 8", 1, "--row: expected from 0 to 7, got 8"},
        {"dropped --out % --row 3", 1,
         "from row 3 on an epoch of dropped has no whole batch of 6 rows, and last_batch: drop leaves out "
         "what is "
         "less; the last one begins at row 2"},
        {"features --out %", 1,
         "pipeline features has no images: no field is uint8 or a float, of three dimensions with 1 or 3 "
         "channels; "
         "its fields are features float32[5], labels int64[]\n"},
        {"unit --out /", 1, "--out: cannot write /: it is a directory"},
        {"unit --out /nowhere/sheet.png", 1, "--out: cannot write in /nowhere/: No such file or directory"},
        {"unit --out /dev/full", 1, "--out: cannot write /dev/full: No space left on device"},
};

START_TEST(test_refusals) {
        struct harness *h = start();

        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
                char *output;
                int r = peek(h, refused[i].options, &output);

                ck_assert_msg(r == refused[i].code && strstr(output, refused[i].words), "%s: %d, %s",
                              refused[i].options, r, output);
                ck_assert_uint_eq(count_pictures(h), 0);
                free(output);
        }
        finish(h);
}
END_TEST

/* Nothing of it is a terminal's to show. */
static void peek_here(void *context) {
        char command[HARNESS_PATH_MAX + 64];

        snprintf(command, sizeof(command), "'%s' peek unit --out - 2>&1; echo code $?",
                 (const char *)context);
        if (system(command) != 0)
                _exit(1);
}

START_TEST(test_no_terminal) {
        char path[HARNESS_PATH_MAX], *output;

        output = terminal_run(80, peek_here, (void *)harness_program("pinfeedctl", path));
        harness_expect_words(output, "standard output is a terminal");
        harness_expect_words(output, "code 2\n");
        free(output);
}
END_TEST

/* ---- what the daemon says of labels ---- */

static void expect_error(struct harness *h, const char *line, const char *words) {
        json_t *answer = harness_control(h, line);

        harness_expect_words(json_string_value(json_object_get(answer, "error")), words);
        json_decref(answer);
}

START_TEST(test_legend) {
        struct harness *h = start();
        json_t *answer, *names_of, *expected = json_pack("[s, s, n, n, n, s]", "bee", names[2], "ant");
        char line[2048] = "{\"command\": \"legend\", \"pipeline\": \"unit\", \"labels\": [0";

        expect_peek(h, "float32_chw --out %", "rows"); /* it is scanned from now on */
        answer = harness_control(h, "{\"command\": \"legend\", \"pipeline\": \"float32_chw\", "
                                    "\"labels\": [1, 2, 3, -1, \"ant\", 0]}");
        names_of = json_object_get(answer, "classes");
        ck_assert_msg(json_equal(names_of, expected), "%s", json_dumps(names_of, 0));
        ck_assert_double_eq(harness_number(answer, "pixels/mean/2"), 0.406);
        ck_assert_double_eq(harness_number(answer, "pixels/std/0"), 0.229);
        json_decref(answer);
        json_decref(expected);

        answer = harness_control(h, "{\"command\": \"legend\", \"pipeline\": \"unit\", \"labels\": []}");
        ck_assert_double_eq(harness_number(answer, "pixels/mean/2"), 0);
        ck_assert_double_eq(harness_number(answer, "pixels/std/0"), 1);
        json_decref(answer);
        answer = harness_control(h, "{\"command\": \"legend\", \"pipeline\": \"features\", \"labels\": [1]}");
        ck_assert(json_is_null(json_object_get(answer, "pixels")));
        ck_assert(json_is_null(harness_member(answer, "classes/0")));
        json_decref(answer);

        expect_error(h, "legend", "legend wants a \"pipeline\"");
        expect_error(h, "{\"command\": \"legend\", \"pipeline\": \"q\"}", "no pipeline \"q\"");
        expect_error(h, "{\"command\": \"legend\", \"pipeline\": \"unit\"}", "an array of at most 128");
        for (unsigned i = 0; i < 128; i++)
                strcat(line, ",0");
        expect_error(h, strcat(line, "]}"), "an array of at most 128");
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("peek");
        TCase *tcase = tcase_create("peek");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_pictures_are_the_images);
        tcase_add_test(tcase, test_begins_where_it_is_told);
        tcase_add_test(tcase, test_epoch_and_seed);
        tcase_add_test(tcase, test_standard_output);
        tcase_add_test(tcase, test_files_are_whole_or_untouched);
        tcase_add_test(tcase, test_refusals);
        tcase_add_test(tcase, test_no_terminal);
        tcase_add_test(tcase, test_legend);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
