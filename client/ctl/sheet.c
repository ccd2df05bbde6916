/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pixels in, pixels out: nothing here knows where pictures come from or where the sheet goes.
 *
 * The grid is as near to a square as it can be, and the sheet's greatest width decides what room a picture
 * has in it. One that is larger is reduced by a whole number, each pixel of the sheet being the mean of a box
 * of them; a small one is enlarged by a whole number. So a picture of one colour keeps exactly that colour,
 * and no pixel is a mixture of two at different weights, which would hide what a transform has done.
 *
 * Words are never drawn over a picture. A frame lies around it, in room that every picture has, so that a
 * marked one moves none of the others. */

#include "client/ctl/sheet.h"

#include "base/utf8.h"
#include "client/ctl/font.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
        MARGIN = 20,
        GAP = 16,          /* between two cells */
        FRAME = 4,         /* around a picture, also where none is seen */
        SMALL_EDGE = 128,  /* smaller pictures are enlarged up to here */
        NARROW_CELL = 108, /* room for nine letters of a name, also under a narrow picture */
        LARGE = 2,         /* dots of a large letter are so many pixels wide */
        SMALL = 1,
        LETTER = FONT_WIDTH + 1, /* dots from one letter to the next */
        NAME_HEIGHT = FONT_HEIGHT * LARGE + 4,
        NUMBER_HEIGHT = FONT_HEIGHT * SMALL + 2,
        HEADING_HEIGHT = FONT_HEIGHT * LARGE + 8,
        CAPTION_TOP = 4, /* from the frame to the words */
        TOP = MARGIN + SHEET_HEADINGS * HEADING_HEIGHT + 8,
};

struct colour {
        uint8_t of[SHEET_BYTES];
};

static const struct colour background = {{28, 30, 34}};
static const struct colour bright = {{236, 236, 236}};
static const struct colour dim = {{158, 162, 168}};

/* By enum sheet_mark. */
static const struct {
        const char *word;
        struct colour colour;
} marks[] = {
        [SHEET_PLAIN] = {"", {{28, 30, 34}}},
        [SHEET_REPLACED] = {"replaced", {{255, 96, 48}}},
        [SHEET_PADDING] = {"padding", {{80, 160, 255}}},
};

/* ---- the grid ---- */

static uint32_t divide_up(uint32_t a, uint32_t b) {
        return a / b + (a % b > 0);
}

static uint32_t larger(uint32_t a, uint32_t b) {
        return a > b ? a : b;
}

static uint32_t smaller(uint32_t a, uint32_t b) {
        return a < b ? a : b;
}

/* Of a square, or one more than its lines. */
static uint32_t count_columns(uint32_t n) {
        uint32_t columns = 1;

        while (columns * columns < n)
                columns++;
        return columns;
}

static void fit_picture(struct sheet *sheet) {
        uint32_t room = (SHEET_WIDTH_MAX - 2 * MARGIN + GAP) / sheet->columns - GAP - 2 * FRAME;
        uint32_t edge = larger(sheet->image_width, sheet->image_height);

        sheet->reduced = divide_up(edge, room);
        sheet->enlarged = larger(smaller(SMALL_EDGE, room) / edge, 1);
        sheet->shown_width = divide_up(sheet->image_width, sheet->reduced) * sheet->enlarged;
        sheet->shown_height = divide_up(sheet->image_height, sheet->reduced) * sheet->enlarged;
}

static void lay_out(struct sheet *sheet, uint32_t n_pictures, uint32_t heading_letters) {
        uint32_t lines = divide_up(n_pictures, sheet->columns);
        uint32_t heading = smaller(heading_letters, SHEET_WIDTH_MAX) * LETTER * LARGE;
        uint32_t grid;

        sheet->cell_width = larger(sheet->shown_width, NARROW_CELL) + 2 * FRAME + GAP;
        sheet->cell_height =
                sheet->shown_height + 2 * FRAME + CAPTION_TOP + NAME_HEIGHT + NUMBER_HEIGHT + GAP;
        grid = sheet->columns * sheet->cell_width - GAP;
        sheet->width = smaller(larger(grid, heading) + 2 * MARGIN, SHEET_WIDTH_MAX);
        sheet->height = TOP + lines * sheet->cell_height - GAP + MARGIN;
}

/* ---- what is drawn ---- */

/* What lies beyond the sheet is left out. */
static void fill(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
                 const struct colour *colour) {
        uint32_t right = smaller(x + width, sheet->width), bottom = smaller(y + height, sheet->height);

        for (; y < bottom; y++) {
                uint8_t *pixel = sheet->pixels + ((size_t)y * sheet->width + x) * SHEET_BYTES;

                for (uint32_t i = x; i < right; i++, pixel += SHEET_BYTES)
                        memcpy(pixel, colour->of, SHEET_BYTES);
        }
}

/* A quarter of a dot that is drawn twice as large: its corner is cut or filled where its neighbours go on in
 * a slope there, so that slopes have no steps (the rule known as Scale2x). dx and dy, each -1 or 1, say
 * which. */
static bool quarter_is_set(char letter, int x, int y, int dx, int dy) {
        bool beside = font_dot(letter, x + dx, y), above = font_dot(letter, x, y + dy);
        bool opposite = font_dot(letter, x - dx, y), below = font_dot(letter, x, y - dy);

        if (beside == above && beside != below && above != opposite)
                return beside;
        return font_dot(letter, x, y);
}

static void draw_letter(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t scale,
                        const struct colour *colour, char letter) {
        for (uint32_t i = 0; i < FONT_WIDTH * scale; i++)
                for (uint32_t k = 0; k < FONT_HEIGHT * scale; k++) {
                        int dot_x = (int)(i / scale), dot_y = (int)(k / scale);
                        bool set = scale == SMALL ? font_dot(letter, dot_x, dot_y)
                                                  : quarter_is_set(letter, dot_x, dot_y, i % 2 ? 1 : -1,
                                                                   k % 2 ? 1 : -1);

                        if (set)
                                fill(sheet, x + i, y + k, 1, 1, colour);
                }
}

/* One letter for each character, '?' for those that the font lacks. Returns how many; `letters` may be NULL.
 */
static uint32_t spell(char *letters, uint32_t most, const char *text) {
        size_t length = strlen(text), at = 0;
        uint32_t n = 0;

        while (at < length) {
                size_t step = utf8_step(text + at, length - at);

                if (letters && n < most)
                        letters[n] = step == 1 ? text[at] : '?';
                at += step > 0 ? step : 1;
                n++;
        }
        return n;
}

/* On at most `room` pixels; cut text ends in "..". Returns the pixels that it takes. */
static uint32_t write_text(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t room, uint32_t scale,
                           const struct colour *colour, const char *text) {
        char letters[SHEET_WIDTH_MAX / LETTER];
        uint32_t most =
                smaller((room + scale) / (LETTER * scale), sizeof(letters)); /* no gap after the last */
        uint32_t n = spell(letters, most, text);

        if (n > most) {
                n = most;
                memset(letters + (most > 2 ? most - 2 : 0), '.', smaller(most, 2));
        }
        for (uint32_t i = 0; i < n; i++)
                draw_letter(sheet, x + i * LETTER * scale, y, scale, colour, letters[i]);
        return n * LETTER * scale;
}

static void average_box(const struct sheet *sheet, const uint8_t *pixels, uint32_t column, uint32_t line,
                        struct colour *colour) {
        uint32_t left = column * sheet->reduced, top = line * sheet->reduced;
        uint32_t right = smaller(left + sheet->reduced, sheet->image_width);
        uint32_t bottom = smaller(top + sheet->reduced, sheet->image_height);
        uint64_t sums[SHEET_BYTES] = {}, n = (uint64_t)(right - left) * (bottom - top);

        for (uint32_t y = top; y < bottom; y++)
                for (uint32_t x = left; x < right; x++)
                        for (uint32_t c = 0; c < SHEET_BYTES; c++)
                                sums[c] += pixels[((size_t)y * sheet->image_width + x) * SHEET_BYTES + c];
        for (uint32_t c = 0; c < SHEET_BYTES; c++)
                colour->of[c] = (uint8_t)((sums[c] + n / 2) / n);
}

static void draw_picture(struct sheet *sheet, uint32_t x, uint32_t y, const uint8_t *pixels) {
        uint32_t size = sheet->enlarged;

        for (uint32_t line = 0; line < sheet->shown_height / size; line++)
                for (uint32_t column = 0; column < sheet->shown_width / size; column++) {
                        struct colour colour;

                        average_box(sheet, pixels, column, line, &colour);
                        fill(sheet, x + column * size, y + line * size, size, size, &colour);
                }
}

/* The word of a mark comes before the number, for it is what must not be cut. */
static void write_caption(struct sheet *sheet, uint32_t x, uint32_t y, const struct sheet_caption *caption) {
        uint32_t room = sheet->cell_width - GAP - 2 * FRAME, used;

        if (caption->name)
                write_text(sheet, x, y, room, LARGE, &bright, caption->name);
        y += caption->name ? NAME_HEIGHT : 0;
        used = write_text(sheet, x, y, room, SMALL, &marks[caption->mark].colour, marks[caption->mark].word);
        if (used > 0)
                used += LETTER * SMALL;
        write_text(sheet, x + used, y, room - used, SMALL, &dim, caption->number);
}

/* ---- from outside ---- */

int sheet_init(struct sheet *sheet, uint32_t n_pictures, uint32_t image_width, uint32_t image_height,
               uint32_t heading_letters) {
        *sheet = (struct sheet){.image_width = image_width, .image_height = image_height};
        sheet->columns = count_columns(n_pictures);
        fit_picture(sheet);
        lay_out(sheet, n_pictures, heading_letters);
        sheet->pixels = malloc((size_t)sheet->width * sheet->height * SHEET_BYTES);
        if (!sheet->pixels)
                return -ENOMEM;
        fill(sheet, 0, 0, sheet->width, sheet->height, &background);
        return 0;
}

void sheet_deinit(struct sheet *sheet) {
        free(sheet->pixels);
        sheet->pixels = NULL;
}

void sheet_write_heading(struct sheet *sheet, uint32_t line, const char *text) {
        write_text(sheet, MARGIN, MARGIN + line * HEADING_HEIGHT, sheet->width - 2 * MARGIN, LARGE,
                   line == 0 ? &bright : &dim, text);
}

void sheet_place(const struct sheet *sheet, uint32_t place, uint32_t *x, uint32_t *y) {
        *x = MARGIN + place % sheet->columns * sheet->cell_width + FRAME;
        *y = TOP + place / sheet->columns * sheet->cell_height + FRAME;
}

void sheet_draw(struct sheet *sheet, uint32_t place, const uint8_t *pixels,
                const struct sheet_caption *caption) {
        uint32_t x, y;

        sheet_place(sheet, place, &x, &y);
        fill(sheet, x - FRAME, y - FRAME, sheet->shown_width + 2 * FRAME, sheet->shown_height + 2 * FRAME,
             &marks[caption->mark].colour);
        draw_picture(sheet, x, y, pixels);
        write_caption(sheet, x, y + sheet->shown_height + FRAME + CAPTION_TOP, caption);
}
