#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A contact sheet: pictures of one size in a grid, with words under them. */

#include <stdint.h>

enum {
        SHEET_PICTURES_MAX = 64,
        SHEET_WIDTH_MAX = 1600, /* pixels: what a screen shows without scrolling sideways */
        SHEET_HEADINGS = 2,     /* lines above the pictures */
        SHEET_BYTES = 3,        /* of a pixel: red, green, blue */
};

/* How a picture is framed, and the word that says why. */
enum sheet_mark {
        SHEET_PLAIN,
        SHEET_REPLACED,
        SHEET_PADDING,
};

/* What stands under a picture. */
struct sheet_caption {
        const char *name;   /* UTF-8, cut where it does not fit; NULL: none */
        const char *number; /* smaller, below it */
        enum sheet_mark mark;
};

struct sheet {
        uint32_t image_width, image_height;
        uint32_t enlarged, reduced; /* by these whole numbers, one of which is 1 */
        uint32_t shown_width, shown_height;
        uint32_t columns;
        uint32_t cell_width, cell_height; /* from one picture to the next */
        uint32_t width, height;
        uint8_t *pixels; /* row by row, SHEET_BYTES each */
};

/* An empty sheet for so many pictures of that size, none of these numbers 0, and headings of so many letters.
 * 0 or -ENOMEM. */
int sheet_init(struct sheet *sheet, uint32_t n_pictures, uint32_t image_width, uint32_t image_height,
               uint32_t heading_letters);
void sheet_deinit(struct sheet *sheet);

/* Line 0 or 1 above the pictures; what does not fit is cut. */
void sheet_write_heading(struct sheet *sheet, uint32_t line, const char *text);

/* Where picture `place`, counted from 0, begins on the sheet. */
void sheet_place(const struct sheet *sheet, uint32_t place, uint32_t *x, uint32_t *y);

/* A picture, SHEET_BYTES for each of its pixels, its frame and its caption. */
void sheet_draw(struct sheet *sheet, uint32_t place, const uint8_t *pixels,
                const struct sheet_caption *caption);
