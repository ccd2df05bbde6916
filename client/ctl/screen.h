#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rows and columns of characters, drawn in memory: as plain text, or as the bytes that put them on a
 * terminal. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        SCREEN_COLUMNS_MAX = 1000, /* a terminal that claims more shows so many */
        SCREEN_ROWS_MAX = 10000,
        SCREEN_CHARACTER_MAX = 4, /* bytes of UTF-8 */
};

enum screen_style {
        SCREEN_PLAIN,
        SCREEN_BOLD,
        SCREEN_DIM,
        SCREEN_TITLE, /* of a table */
        SCREEN_GREEN,
        SCREEN_BLUE,
        SCREEN_YELLOW,
        SCREEN_RED,
        SCREEN_STYLES,
};

struct screen_cell {
        char text[SCREEN_CHARACTER_MAX + 1]; /* "": the right half of a wide character */
        uint8_t style;
};

struct screen {
        uint32_t columns, rows;
        bool utf8; /* else what is not ASCII is drawn as '?' */
        struct screen_cell *cells;
};

/* An empty one. 0 or -ENOMEM. */
int screen_init(struct screen *screen, uint32_t columns, uint32_t rows, bool utf8);
void screen_deinit(struct screen *screen);

/* Text from a cell on, without control characters; what lies beyond the edge is left out. Returns the column
 * behind it. */
uint32_t screen_put(struct screen *screen, uint32_t row, uint32_t column, enum screen_style style,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Text within `width` columns, at their left ('l') or right ('r') end; what is too long loses its middle. */
void screen_put_within(struct screen *screen, uint32_t row, uint32_t column, uint32_t width, char align,
                       enum screen_style style, const char *text);

/* `share`, 0 to 1, of `width` columns filled, in eighths; in ASCII in whole ones, or as a digit of tenths if
 * there is one column only. */
void screen_put_bar(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                    enum screen_style style, double share);

/* One cell of that, filled from below. What is not nothing is seen. */
const char *screen_level(const struct screen *screen, double share);

/* Columns that a text takes. */
uint32_t screen_measure(const struct screen *screen, const char *text);

/* Bytes of the longest beginning of whole words that takes at most `width` columns; of a part of a word if
 * the first is longer. 0 at the end of the text. */
size_t screen_next_line(const struct screen *screen, const char *text, uint32_t width);

/* All rows up to the last that is not empty, as lines without spaces at their ends. NULL: out of memory. */
char *screen_text(const struct screen *screen);

/* What a terminal of this size is sent to show it, with colours or without. NULL: out of memory. */
char *screen_paint(const struct screen *screen, bool colours, size_t *n);
