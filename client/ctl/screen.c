/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A screen is drawn as a whole in memory and sent as a whole: each row ends in "clear to the end of the
 * line", and nothing is ever cleared before it is written, so that no state in between can be seen. What did
 * not change is sent again; a screen is a few kilobytes a second, and a terminal that was written to by
 * somebody else is right again with the next one.
 *
 * There is one cell for each column. A wide character has two, of which the right one is empty; characters
 * without a width, such as accents that combine with the letter before, are left out, for terminals disagree
 * about them, and one wrong column would shift the rest of a row. Names come from other processes: control
 * characters never reach a cell. */

#include "client/ctl/screen.h"

#include "base/fault.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum {
        TEXT_MAX = 2048,
        EIGHTHS = 8,
        TAIL = 40,        /* per cent of what is left of a cut text that are its end */
        SEQUENCE_MAX = 8, /* bytes of a sequence that sets a style */
        ROW_EXTRA = 16,   /* bytes that end a row */
};

static const char *const sequences[SCREEN_STYLES] = {
        [SCREEN_PLAIN] = "\033[m",    [SCREEN_BOLD] = "\033[1m",   [SCREEN_DIM] = "\033[2m",
        [SCREEN_TITLE] = "\033[7m",   [SCREEN_GREEN] = "\033[32m", [SCREEN_BLUE] = "\033[36m",
        [SCREEN_YELLOW] = "\033[33m", [SCREEN_RED] = "\033[1;31m",
};

int screen_init(struct screen *screen, uint32_t columns, uint32_t rows, bool utf8) {
        size_t n;

        *screen = (struct screen){.columns = columns, .rows = rows, .utf8 = utf8};
        if (screen->columns > SCREEN_COLUMNS_MAX)
                screen->columns = SCREEN_COLUMNS_MAX;
        if (screen->rows > SCREEN_ROWS_MAX)
                screen->rows = SCREEN_ROWS_MAX;
        n = (size_t)screen->columns * screen->rows;
        screen->cells = calloc(n > 0 ? n : 1, sizeof(*screen->cells));
        if (!screen->cells)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                screen->cells[i].text[0] = ' ';
        return 0;
}

void screen_deinit(struct screen *screen) {
        free(screen->cells);
        screen->cells = NULL;
}

/* ---- characters ---- */

/* The next character of a text that is not at its end: its bytes, and the columns that it takes. What cannot
 * be shown is a '?'. */
static size_t next_character(const struct screen *screen, const char *text, char shown[], uint32_t *width) {
        size_t n = utf8_step(text, strlen(text));
        mbstate_t state = {};
        wchar_t wide;
        int columns = -1;

        *width = 1;
        if (n == 1 && text[0] >= ' ' && text[0] != 0x7f)
                columns = 1;
        else if (n > 1 && screen->utf8 && mbrtowc(&wide, text, n, &state) == n)
                columns = wcwidth(wide);
        if (columns < 0) {
                strcpy(shown, "?");
                return n > 0 ? n : 1;
        }
        *width = (uint32_t)columns;
        memcpy(shown, text, n);
        shown[n] = 0;
        return n;
}

uint32_t screen_measure(const struct screen *screen, const char *text) {
        char shown[SCREEN_CHARACTER_MAX + 1];
        uint32_t sum = 0, width;

        while (*text) {
                text += next_character(screen, text, shown, &width);
                sum += width;
        }
        return sum;
}

/* Bytes of the longest beginning that takes at most `width` columns. */
static size_t measure_beginning(const struct screen *screen, const char *text, uint32_t width) {
        char shown[SCREEN_CHARACTER_MAX + 1];
        size_t bytes = 0;
        uint32_t columns;

        while (text[bytes]) {
                size_t n = next_character(screen, text + bytes, shown, &columns);

                if (columns > width)
                        break;
                width -= columns;
                bytes += n;
        }
        return bytes;
}

size_t screen_next_line(const struct screen *screen, const char *text, uint32_t width) {
        size_t most = measure_beginning(screen, text, width), end = most;

        if (text[most] == 0 || text[most] == ' ')
                return most;
        while (end > 0 && text[end - 1] != ' ')
                end--;
        if (end > 1)
                return end - 1;
        return most > 0 ? most : strlen(text); /* not even one character: leave it all out */
}

/* ---- drawing ---- */

/* A character of that width in a cell and those right of it. What it covers half of goes as a whole. */
static void put_character(struct screen *screen, struct screen_cell *cell, uint32_t width,
                          enum screen_style style, const char *shown) {
        const struct screen_cell *end = screen->cells + (size_t)screen->rows * screen->columns;

        if (cell->text[0] == 0)
                strcpy(cell[-1].text, " ");
        if (cell + width < end && cell[width].text[0] == 0)
                strcpy(cell[width].text, " ");
        strcpy(cell->text, shown);
        cell->style = (uint8_t)style;
        if (width > 1)
                cell[1] = (struct screen_cell){.style = (uint8_t)style};
}

/* A part of a text from a cell on. Returns the column behind it. */
static uint32_t put_bytes(struct screen *screen, uint32_t row, uint32_t column, enum screen_style style,
                          const char *text, size_t n) {
        char shown[SCREEN_CHARACTER_MAX + 1];
        const char *end = text + n;
        uint32_t width;

        while (text < end && row < screen->rows) {
                text += next_character(screen, text, shown, &width);
                if (column + width > screen->columns)
                        break;
                if (width > 0)
                        put_character(screen, screen->cells + (size_t)row * screen->columns + column, width,
                                      style, shown);
                column += width;
        }
        return column;
}

uint32_t screen_put(struct screen *screen, uint32_t row, uint32_t column, enum screen_style style,
                    const char *format, ...) {
        char raw[TEXT_MAX], clean[TEXT_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(raw, sizeof(raw), format, arguments);
        va_end(arguments);
        fault_sanitize(clean, sizeof(clean), raw, strlen(raw));
        return put_bytes(screen, row, column, style, clean, strlen(clean));
}

/* Without its middle. */
static void put_cut(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                    enum screen_style style, const char *text) {
        uint32_t tail = (width - 1) * TAIL / 100, skip = screen_measure(screen, text) - tail;
        size_t head = measure_beginning(screen, text, width - 1 - tail), from;

        from = measure_beginning(screen, text, skip);
        column = put_bytes(screen, row, column, style, text, head);
        column = put_bytes(screen, row, column, style, "~", 1);
        put_bytes(screen, row, column, style, text + from, measure_beginning(screen, text + from, tail));
}

void screen_put_within(struct screen *screen, uint32_t row, uint32_t column, uint32_t width, char align,
                       enum screen_style style, const char *text) {
        char clean[TEXT_MAX];
        uint32_t length;

        fault_sanitize(clean, sizeof(clean), text, strlen(text));
        length = screen_measure(screen, clean);
        if (width == 0)
                return;
        if (length > width)
                put_cut(screen, row, column, width, style, clean);
        else
                put_bytes(screen, row, column + (align == 'r' ? width - length : 0), style, clean,
                          strlen(clean));
}

static double between_0_and_1(double share) {
        return share >= 1 ? 1 : share > 0 ? share : 0; /* also what is no number */
}

const char *screen_level(const struct screen *screen, double share) {
        static const char *const levels[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
        static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
        double part = between_0_and_1(share);

        if (!screen->utf8)
                return digits[part < 0.95 ? (int)(part * 10 + 0.5) : 9];
        return levels[part > 0 && part * EIGHTHS < 0.5 ? 1 : (int)(part * EIGHTHS + 0.5)];
}

void screen_put_bar(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                    enum screen_style style, double share) {
        static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
        uint32_t eighths = (uint32_t)(between_0_and_1(share) * width * EIGHTHS + 0.5);

        if (width == 1) {
                screen_put(screen, row, column, style, "%s", screen_level(screen, share));
                return;
        }
        for (uint32_t i = 0; i < width; i++, eighths -= eighths < EIGHTHS ? eighths : EIGHTHS) {
                if (eighths >= EIGHTHS)
                        screen_put(screen, row, column + i, style, screen->utf8 ? "█" : "#");
                else if (eighths > 0 && screen->utf8)
                        screen_put(screen, row, column + i, style, "%s", parts[eighths]);
                else
                        screen_put(screen, row, column + i, SCREEN_DIM, screen->utf8 ? "·" : ".");
        }
}

/* ---- where it goes ---- */

static const struct screen_cell *row_of(const struct screen *screen, uint32_t row) {
        return screen->cells + (size_t)row * screen->columns;
}

/* Columns up to the last one with anything in it. */
static uint32_t row_length(const struct screen *screen, uint32_t row) {
        const struct screen_cell *cells = row_of(screen, row);
        uint32_t n = screen->columns;

        while (n > 0 && strcmp(cells[n - 1].text, " ") == 0 && cells[n - 1].style != SCREEN_TITLE)
                n--;
        return n;
}

/* The same for text, where a style is not seen. */
static uint32_t row_text_length(const struct screen *screen, uint32_t row) {
        uint32_t n = row_length(screen, row);

        while (n > 0 && strcmp(row_of(screen, row)[n - 1].text, " ") == 0)
                n--;
        return n;
}

char *screen_text(const struct screen *screen) {
        char *text = malloc((size_t)screen->rows * (screen->columns * SCREEN_CHARACTER_MAX + 1) + 1);
        uint32_t rows = screen->rows;
        char *at = text;

        if (!text)
                return NULL;
        while (rows > 0 && row_text_length(screen, rows - 1) == 0)
                rows--;
        for (uint32_t row = 0; row < rows; row++) {
                for (uint32_t i = 0, n = row_text_length(screen, row); i < n; i++)
                        at = stpcpy(at, row_of(screen, row)[i].text);
                at = stpcpy(at, "\n");
        }
        *at = 0;
        return text;
}

/* A row's characters, each style set where it begins. */
static char *paint_row(const struct screen *screen, uint32_t row, bool colours, char *at) {
        const struct screen_cell *cells = row_of(screen, row);
        uint32_t n = row_length(screen, row);
        uint8_t style = SCREEN_PLAIN;

        for (uint32_t i = 0; i < n; i++) {
                if (colours && cells[i].style != style) {
                        if (style != SCREEN_PLAIN)
                                at = stpcpy(at, sequences[SCREEN_PLAIN]);
                        style = cells[i].style;
                        if (style != SCREEN_PLAIN)
                                at = stpcpy(at, sequences[style]);
                }
                at = stpcpy(at, cells[i].text);
        }
        if (style != SCREEN_PLAIN)
                at = stpcpy(at, sequences[SCREEN_PLAIN]);
        /* Behind the last column the cursor waits on that column, and clearing would take its character. */
        return n < screen->columns ? stpcpy(at, "\033[K") : at;
}

char *screen_paint(const struct screen *screen, bool colours, size_t *n) {
        size_t row_most = (size_t)screen->columns * (SCREEN_CHARACTER_MAX + 2 * SEQUENCE_MAX) + ROW_EXTRA;
        char *bytes = malloc(screen->rows * row_most + ROW_EXTRA), *at = bytes;

        if (!bytes)
                return NULL;
        at = stpcpy(at, "\033[H");
        for (uint32_t row = 0; row < screen->rows; row++) {
                if (row > 0)
                        at = stpcpy(at, "\r\n");
                at = paint_row(screen, row, colours, at);
        }
        *n = (size_t)(at - bytes);
        return bytes;
}
