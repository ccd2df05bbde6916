/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Contact sheets: values become the pixels that they were made of, pictures of any size find their place, and
 * words stay in theirs. */

#include "client/ctl/font.h"
#include "client/ctl/picture.h"
#include "client/ctl/sheet.h"
#include "tests/support/run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- letters ---- */

static unsigned count_dots(char letter) {
        unsigned n = 0;

        for (int y = 0; y < FONT_HEIGHT; y++)
                for (int x = 0; x < FONT_WIDTH; x++)
                        n += font_dot(letter, x, y);
        return n;
}

static bool are_alike(char a, char b) {
        for (int y = 0; y < FONT_HEIGHT; y++)
                for (int x = 0; x < FONT_WIDTH; x++)
                        if (font_dot(a, x, y) != font_dot(b, x, y))
                                return false;
        return true;
}

START_TEST(test_letters) {
        for (char a = ' '; a <= '~'; a++) {
                ck_assert(font_has(a));
                ck_assert_msg((count_dots(a) > 0) == (a != ' '), "%c", a);
                for (char b = (char)(a + 1); b <= '~'; b++)
                        ck_assert_msg(!are_alike(a, b), "%c and %c", a, b);
        }
        ck_assert(font_dot('L', 0, 0) && font_dot('L', 4, 6) && !font_dot('L', 4, 0));
        ck_assert(font_dot('g', 3, 8));
}
END_TEST

START_TEST(test_letters_that_there_are_not) {
        static const char strange[] = {'\0', '\n', '\x1f', '\x7f', (char)0x80, (char)0xff};

        for (size_t i = 0; i < sizeof(strange); i++) {
                ck_assert(!font_has(strange[i]));
                ck_assert(are_alike(strange[i], '?'));
        }
        ck_assert(!font_dot('#', -1, 2) && !font_dot('#', FONT_WIDTH, 2) && !font_dot('#', 2, -1) &&
                  !font_dot('#', 2, FONT_HEIGHT));
}
END_TEST

/* ---- values ---- */

static const struct {
        struct pinfeed_field field;
        bool is;
        uint32_t width, height, channels;
        bool interleaved;
} fields[] = {
        {{.dtype = PINFEED_FLOAT32, .n_dims = 3, .shape = {3, 20, 30}}, true, 30, 20, 3, false},
        {{.dtype = PINFEED_FLOAT16, .n_dims = 3, .shape = {3, 20, 30}, .channels_last = true},
         true,
         30,
         20,
         3,
         true},
        {{.dtype = PINFEED_UINT8, .n_dims = 3, .shape = {20, 30, 3}}, true, 30, 20, 3, true},
        {{.dtype = PINFEED_FLOAT64, .n_dims = 3, .shape = {1, 28, 28}}, true, 28, 28, 1, false},
        {{.dtype = PINFEED_BFLOAT16, .n_dims = 3, .shape = {28, 28, 1}}, true, 28, 28, 1, true},
        {{.dtype = PINFEED_UINT8, .n_dims = 3, .shape = {3, 3, 3}}, true, 3, 3, 3, false},
        {{.dtype = PINFEED_UINT8, .n_dims = 3, .shape = {3, 1, 1}}, true, 1, 1, 3, false},
        {{.dtype = PINFEED_INT64, .n_dims = 3, .shape = {3, 20, 30}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_INT32, .n_dims = 3, .shape = {20, 30, 3}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 3, .shape = {4, 20, 30}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 3, .shape = {20, 30, 2}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 3, .shape = {3, 0, 30}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 3, .shape = {3, 20, 1 << 20}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 2, .shape = {20, 3}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 4, .shape = {3, 20, 30, 1}}, false, 0, 0, 0, false},
        {{.dtype = PINFEED_FLOAT32, .n_dims = 0}, false, 0, 0, 0, false},
};

START_TEST(test_which_fields_are_pictures) {
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                struct picture picture;

                ck_assert_msg(picture_init(&picture, &fields[i].field) == fields[i].is, "field %zu", i);
                if (!fields[i].is)
                        continue;
                ck_assert_uint_eq(picture.width, fields[i].width);
                ck_assert_uint_eq(picture.height, fields[i].height);
                ck_assert_uint_eq(picture.channels, fields[i].channels);
                ck_assert_msg(picture.interleaved == fields[i].interleaved, "field %zu", i);
        }
}
END_TEST

enum {
        WIDTH = 16,
        HEIGHT = 16,
        PIXELS = WIDTH * HEIGHT,
        VALUES = PIXELS * PICTURE_CHANNELS,
};

static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};

/* Every level of every channel, the channels not in step. */
static uint8_t level_of(uint32_t pixel, uint32_t channel) {
        return (uint8_t)(pixel * (channel * 2 + 1) + channel);
}

/* Of a number that is no more exact than a bfloat16 or, rounded by hand, a float16. */
static uint16_t to_bfloat(float value) {
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Of normal numbers. */
static uint16_t to_half(float value) {
        int exponent;
        double fraction = frexp(fabs((double)value), &exponent);
        unsigned bits = (unsigned)lrint(ldexp(fraction, 11));

        if (value == 0)
                return 0;
        return (uint16_t)((value < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) + (int)bits - 1024);
}

static void put_value(enum pinfeed_dtype dtype, void *values, size_t at, double value) {
        if (dtype == PINFEED_UINT8)
                ((uint8_t *)values)[at] = (uint8_t)value;
        else if (dtype == PINFEED_FLOAT16)
                ((uint16_t *)values)[at] = to_half((float)value);
        else if (dtype == PINFEED_BFLOAT16)
                ((uint16_t *)values)[at] = to_bfloat((float)value);
        else if (dtype == PINFEED_FLOAT32)
                ((float *)values)[at] = (float)value;
        else
                ((double *)values)[at] = value;
}

static const enum pinfeed_dtype dtypes[] = {PINFEED_UINT8, PINFEED_FLOAT16, PINFEED_BFLOAT16, PINFEED_FLOAT32,
                                            PINFEED_FLOAT64};

/* Normalized in each type and layout, and back: the levels are those that it began with. A bfloat16 has 8
 * bits, and up to 2.6 to hold with them. */
START_TEST(test_normalized_and_back) {
        enum pinfeed_dtype dtype = dtypes[_i / 2];
        struct picture picture = {
                .dtype = dtype, .width = WIDTH, .height = HEIGHT, .channels = 3, .interleaved = _i % 2};
        struct picture_levels levels;
        uint8_t pixels[VALUES];
        double values[VALUES];
        int tolerance = dtype == PINFEED_BFLOAT16 ? 1 : 0;

        for (uint32_t i = 0; i < PIXELS; i++)
                for (uint32_t c = 0; c < PICTURE_CHANNELS; c++) {
                        double level = level_of(i, c);
                        size_t at = picture.interleaved ? i * PICTURE_CHANNELS + c : c * PIXELS + i;

                        put_value(dtype, values, at,
                                  dtype == PINFEED_UINT8 ? level : (level / 255 - mean[c]) / std[c]);
                }
        if (dtype == PINFEED_UINT8)
                picture_levels_plain(&levels);
        else
                picture_levels_normalized(&levels, mean, std);
        picture_draw(&picture, &levels, values, pixels);
        for (uint32_t i = 0; i < VALUES; i++)
                ck_assert_int_le(abs(pixels[i] - level_of(i / PICTURE_CHANNELS, i % PICTURE_CHANNELS)),
                                 tolerance);
}
END_TEST

START_TEST(test_between_least_and_most) {
        const float values[] = {-1, 3, NAN, 1, INFINITY, -INFINITY};
        const uint8_t expected[] = {0, 255, 0, 128, 255, 0};
        struct picture picture = {.dtype = PINFEED_FLOAT32, .width = 6, .height = 1, .channels = 1};
        double least = (double)INFINITY, most = -(double)INFINITY;
        struct picture_levels levels;
        uint8_t pixels[sizeof(expected) * PICTURE_CHANNELS];

        picture_find_range(&picture, values, &least, &most);
        ck_assert_double_eq(least, -1);
        ck_assert_double_eq(most, 3);
        picture_levels_between(&levels, least, most);
        picture_draw(&picture, &levels, values, pixels);
        for (size_t i = 0; i < sizeof(pixels); i++)
                ck_assert_uint_eq(pixels[i], expected[i / PICTURE_CHANNELS]); /* one channel: grey */

        picture_levels_between(&levels, 3, 3);
        picture_draw(&picture, &levels, values, pixels);
        ck_assert_uint_eq(pixels[0], 0);
}
END_TEST

/* Those that no pixel gives: subnormal, infinite, no number. */
START_TEST(test_strange_halves) {
        const uint16_t values[] = {0x0001, 0x03ff, 0x7c00, 0xfc00, 0x7e00, 0x3c00};
        const uint8_t expected[] = {1, 255, 255, 0, 0, 255};
        struct picture picture = {.dtype = PINFEED_FLOAT16, .width = 6, .height = 1, .channels = 1};
        struct picture_levels levels;
        uint8_t pixels[sizeof(expected) * PICTURE_CHANNELS];

        picture_levels_between(&levels, 0, ldexp(255, -24)); /* the smallest is 2^-24 */
        picture_draw(&picture, &levels, values, pixels);
        for (size_t i = 0; i < sizeof(expected); i++)
                ck_assert_uint_eq(pixels[i * PICTURE_CHANNELS], expected[i]);
}
END_TEST

/* ---- sheets ---- */

static const struct sheet_caption plain = {.name = "class", .number = "7"};

/* ck_assert for each of a million pixels would take seconds. */
static const uint8_t *pixel_at(const struct sheet *sheet, uint32_t x, uint32_t y) {
        if (x >= sheet->width || y >= sheet->height)
                ck_abort_msg("(%u, %u) is not on a sheet of %ux%u", x, y, sheet->width, sheet->height);
        return sheet->pixels + ((size_t)y * sheet->width + x) * SHEET_BYTES;
}

/* Pixels of the picture at (x, y) that have the colour. */
static unsigned count_colour(const struct sheet *sheet, uint32_t x, uint32_t y, const uint8_t *colour) {
        unsigned n = 0;

        for (uint32_t i = 0; i < sheet->shown_width; i++)
                for (uint32_t k = 0; k < sheet->shown_height; k++)
                        n += memcmp(pixel_at(sheet, x + i, y + k), colour, SHEET_BYTES) == 0;
        return n;
}

/* Pixels of a rectangle that are not as the sheet's corner. */
static unsigned count_drawn(const struct sheet *sheet, uint32_t x, uint32_t y, uint32_t width,
                            uint32_t height) {
        unsigned n = 0;

        for (uint32_t i = x; i < x + width; i++)
                for (uint32_t k = y; k < y + height; k++)
                        n += memcmp(pixel_at(sheet, i, k), sheet->pixels, SHEET_BYTES) != 0;
        return n;
}

static const struct {
        uint32_t n, width, height, columns, enlarged, reduced;
} grids[] = {
        {64, 224, 224, 8, 1, 2}, {32, 224, 224, 6, 1, 1},       {1, 224, 224, 1, 1, 1},
        {64, 32, 32, 8, 4, 1},   {1, 1, 1, 1, 128, 1},          {9, 3000, 40, 3, 1, 6},
        {2, 40, 3000, 2, 1, 4},  {64, 65535, 65535, 8, 1, 379}, {5, 1, 65535, 3, 1, 131},
};

/* Whatever the pictures: the sheet is no wider than said, and the last one ends within it. */
START_TEST(test_grids) {
        for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
                struct sheet sheet;
                uint32_t x, y;

                ck_assert_int_eq(sheet_init(&sheet, grids[i].n, grids[i].width, grids[i].height, 20), 0);
                ck_assert_uint_eq(sheet.columns, grids[i].columns);
                ck_assert_msg(sheet.enlarged == grids[i].enlarged && sheet.reduced == grids[i].reduced,
                              "%zu: %u / %u", i, sheet.enlarged, sheet.reduced);
                ck_assert_uint_le(sheet.width, SHEET_WIDTH_MAX);
                sheet_place(&sheet, grids[i].columns - 1, &x, &y);
                ck_assert_uint_le(x + sheet.shown_width, sheet.width);
                sheet_place(&sheet, grids[i].n - 1, &x, &y);
                ck_assert_uint_le(y + sheet.shown_height, sheet.height);
                sheet_deinit(&sheet);
        }
}
END_TEST

/* For every number of pictures: no cell is drawn into by another's picture, frame or words. */
START_TEST(test_cells_are_apart) {
        static const struct sheet_caption caption = {
                .name = "a name that is far too long for what it names",
                .number = "123456789012345678901234567890",
                .mark = SHEET_REPLACED,
        };
        uint8_t pixels[20 * 30 * SHEET_BYTES];

        memset(pixels, 200, sizeof(pixels));
        for (uint32_t n = 1; n <= SHEET_PICTURES_MAX; n++) {
                struct sheet sheet;
                unsigned alone;
                uint32_t x, y;

                ck_assert_int_eq(sheet_init(&sheet, n, 20, 30, 0), 0);
                sheet_draw(&sheet, n - 1, pixels, &caption);
                sheet_place(&sheet, n - 1, &x, &y);
                alone = count_drawn(&sheet, 0, 0, sheet.width, sheet.height);
                ck_assert_uint_gt(alone, sheet.shown_width * sheet.shown_height);
                ck_assert_uint_eq(
                        count_drawn(&sheet, x - 8, y - 8,
                                    sheet.cell_width < sheet.width - x ? sheet.cell_width : sheet.width - x,
                                    sheet.height - y),
                        alone);
                sheet_deinit(&sheet);
        }
}
END_TEST

START_TEST(test_one_colour_stays_itself) {
        static const uint32_t edges[] = {1, 7, 32, 200, 1600, 4001};

        for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
                size_t n = (size_t)edges[i] * edges[i];
                uint8_t *pixels = malloc(n * SHEET_BYTES);
                struct sheet sheet;
                uint32_t x, y;

                for (size_t k = 0; k < n; k++)
                        memcpy(pixels + k * SHEET_BYTES, (uint8_t[]){201, 7, 99}, SHEET_BYTES);
                ck_assert_int_eq(sheet_init(&sheet, 1, edges[i], edges[i], 0), 0);
                sheet_draw(&sheet, 0, pixels, &plain);
                sheet_place(&sheet, 0, &x, &y);
                ck_assert_uint_eq(count_colour(&sheet, x, y, (uint8_t[]){201, 7, 99}),
                                  sheet.shown_width * sheet.shown_height);
                sheet_deinit(&sheet);
                free(pixels);
        }
}
END_TEST

/* Black, white, white, white and so on: a pixel of the sheet is the mean of four. */
START_TEST(test_reduced_by_means) {
        struct sheet sheet;
        uint8_t *pixels;
        uint32_t x, y;

        ck_assert_int_eq(sheet_init(&sheet, 64, 300, 300, 0), 0);
        ck_assert_uint_eq(sheet.reduced, 2);
        pixels = malloc((size_t)300 * 300 * SHEET_BYTES);
        for (size_t i = 0; i < (size_t)300 * 300; i++)
                memset(pixels + i * SHEET_BYTES, i / 300 % 2 || i % 2 ? 255 : 0, SHEET_BYTES);
        sheet_draw(&sheet, 63, pixels, &plain);
        sheet_place(&sheet, 63, &x, &y);
        ck_assert_uint_eq(count_colour(&sheet, x, y, (uint8_t[]){191, 191, 191}), 150 * 150);
        sheet_deinit(&sheet);
        free(pixels);
}
END_TEST

START_TEST(test_enlarged_by_repetition) {
        uint8_t pixels[4 * 2 * SHEET_BYTES];
        struct sheet sheet;
        uint32_t x, y;

        for (size_t i = 0; i < sizeof(pixels); i++)
                pixels[i] = (uint8_t)(i * 9);
        ck_assert_int_eq(sheet_init(&sheet, 3, 4, 2, 0), 0);
        ck_assert_uint_eq(sheet.enlarged, 32);
        sheet_draw(&sheet, 2, pixels, &plain);
        sheet_place(&sheet, 2, &x, &y);
        for (uint32_t i = 0; i < 4 * 32; i++)
                for (uint32_t k = 0; k < 2 * 32; k++)
                        ck_assert_int_eq(memcmp(pixel_at(&sheet, x + i, y + k),
                                                pixels + (k / 32 * 4 + i / 32) * SHEET_BYTES, SHEET_BYTES),
                                         0);
        sheet_deinit(&sheet);
}
END_TEST

/* A frame, and a word of its colour below; none around a picture that is as it should be. */
START_TEST(test_marks) {
        static const enum sheet_mark marks[] = {SHEET_PLAIN, SHEET_REPLACED, SHEET_PADDING};
        static const uint8_t pixels[SHEET_BYTES] = {90, 90, 90};
        uint8_t frames[3][SHEET_BYTES];
        struct sheet sheet;

        ck_assert_int_eq(sheet_init(&sheet, 3, 1, 1, 0), 0);
        for (uint32_t i = 0; i < 3; i++) {
                uint32_t x, y;
                unsigned words = 0;

                sheet_draw(&sheet, i, pixels, &(struct sheet_caption){.number = "", .mark = marks[i]});
                sheet_place(&sheet, i, &x, &y);
                memcpy(frames[i], pixel_at(&sheet, x - 2, y - 2), SHEET_BYTES);
                ck_assert_int_eq(
                        memcmp(frames[i], pixel_at(&sheet, x + sheet.shown_width + 1, y), SHEET_BYTES), 0);
                for (uint32_t k = 0; k < 60 * 20; k++)
                        words += memcmp(pixel_at(&sheet, x + k % 60, y + sheet.shown_height + 6 + k / 60),
                                        frames[i], SHEET_BYTES) == 0;
                if (i > 0)
                        ck_assert_uint_gt(words, 30);
        }
        ck_assert_int_eq(memcmp(frames[0], sheet.pixels, SHEET_BYTES), 0);
        ck_assert_int_ne(memcmp(frames[1], sheet.pixels, SHEET_BYTES), 0);
        ck_assert_int_ne(memcmp(frames[2], sheet.pixels, SHEET_BYTES), 0);
        ck_assert_int_ne(memcmp(frames[1], frames[2], SHEET_BYTES), 0);
        sheet_deinit(&sheet);
}
END_TEST

/* The heading of a sheet alone, to be compared. */
static uint8_t *write_heading(const char *text, uint32_t letters, size_t *bytes) {
        struct sheet sheet;
        uint8_t *pixels;

        ck_assert_int_eq(sheet_init(&sheet, 1, 8, 8, letters), 0);
        sheet_write_heading(&sheet, 0, text);
        *bytes = (size_t)sheet.width * sheet.height * SHEET_BYTES;
        pixels = sheet.pixels;
        return pixels;
}

static bool look_alike(const char *a, const char *b, uint32_t letters) {
        size_t n, m;
        uint8_t *one = write_heading(a, letters, &n), *other = write_heading(b, letters, &m);
        bool same = n == m && memcmp(one, other, n) == 0;

        free(one);
        free(other);
        return same;
}

START_TEST(test_words) {
        ck_assert(!look_alike("epoch 1", "epoch 2", 20));
        ck_assert(look_alike("Stra\xc3\x9f"
                             "e",
                             "Stra?e", 20)); /* one letter for one character */
        ck_assert(look_alike("\xe2\x82\xac \xf0\x9f\x90\x88", "? ?", 20));
        ck_assert(look_alike("a\xff\xffz", "a??z", 20)); /* no UTF-8 */
        ck_assert(look_alike("", " ", 20));
        ck_assert(look_alike("twenty letters there", "twenty letters there", 20));
        ck_assert(look_alike("twenty letters there.", "twenty letters the..", 20));
        ck_assert(look_alike("twenty letters there and more", "twenty letters the..", 20));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("sheet");
        TCase *tcase = tcase_create("sheet");

        tcase_add_test(tcase, test_letters);
        tcase_add_test(tcase, test_letters_that_there_are_not);
        tcase_add_test(tcase, test_which_fields_are_pictures);
        tcase_add_loop_test(tcase, test_normalized_and_back, 0, 2 * sizeof(dtypes) / sizeof(dtypes[0]));
        tcase_add_test(tcase, test_between_least_and_most);
        tcase_add_test(tcase, test_strange_halves);
        tcase_add_test(tcase, test_grids);
        tcase_add_test(tcase, test_cells_are_apart);
        tcase_add_test(tcase, test_one_colour_stays_itself);
        tcase_add_test(tcase, test_reduced_by_means);
        tcase_add_test(tcase, test_enlarged_by_repetition);
        tcase_add_test(tcase, test_marks);
        tcase_add_test(tcase, test_words);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
