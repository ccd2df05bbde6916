/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cells are collected first and measured then: a table is small, and printing it in one go lets columns be as
 * narrow as their contents. Text comes from files and other processes: control bytes are taken out before it
 * meets a terminal.
 *
 * A table that is wider than the terminal gives way in turn: titles are broken into words, one below the
 * other, and texts as well; then names lose their middle, the longest first; and if even that is too little,
 * the table is printed in pieces, one below the other, each of which begins with the first column. So a
 * number is never cut. */

#include "client/ctl/table.h"

#include "base/fault.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
        TABLE_CELL_MAX = 1024,
        TABLE_GAP = 2,
        TABLE_NARROWEST = 10, /* of a name that is cut; its title fits */
        TABLE_TAIL = 40,      /* per cent of what is left of it that are its end */
};

bool table_is_utf8(void) {
        return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

bool table_is_bold(void) {
        const char *no = getenv("NO_COLOR");

        return isatty(STDOUT_FILENO) && !(no && *no);
}

uint32_t table_limit(void) {
        const char *columns = getenv("COLUMNS");
        struct winsize size = {};
        long limit;

        if (!isatty(STDOUT_FILENO))
                return TABLE_NO_LIMIT;
        limit = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
        if (limit == 0 && columns)
                limit = strtol(columns, NULL, 10);
        if (limit <= 0 || limit > TABLE_NO_LIMIT)
                return TABLE_NO_LIMIT;
        return limit > TABLE_LIMIT_LEAST ? (uint32_t)limit : TABLE_LIMIT_LEAST;
}

static void table_store(struct table *table, const char *text) {
        size_t at = (size_t)table->n_rows * table->n_columns;
        uint32_t column = 0;

        while (column < table->n_columns && table->cells && table->cells[at + column])
                column++;
        table->cells[at + column] = strdup(text);
        if (!table->cells[at + column])
                abort();
        if (column + 1 < table->n_columns)
                return;
        table->n_rows++;
        table->cells =
                reallocarray(table->cells, (size_t)(table->n_rows + 1) * table->n_columns, sizeof(char *));
        if (!table->cells)
                abort(); /* a program that prints a table, out of memory for it */
        memset(table->cells + at + table->n_columns, 0, table->n_columns * sizeof(char *));
}

void table_init(struct table *table, const char *columns) {
        memset(table, 0, sizeof(*table));
        table->n_columns = 1;
        for (const char *c = columns; *c; c++)
                table->n_columns += *c == '|';
        table->cells = calloc(table->n_columns, sizeof(char *));
        if (!table->cells)
                abort();
        for (uint32_t i = 0; i < table->n_columns; i++) {
                size_t length = strcspn(columns, "|");
                char title[64];

                table->align[i] = columns[0];
                snprintf(title, sizeof(title), "%.*s", (int)length - 2, columns + 2);
                table_store(table, title);
                columns += length + 1;
        }
}

void table_deinit(struct table *table) {
        for (size_t i = 0; i < (size_t)(table->n_rows + 1) * table->n_columns; i++)
                free(table->cells[i]);
        free(table->cells);
        memset(table, 0, sizeof(*table));
}

void table_add(struct table *table, const char *format, ...) {
        char raw[TABLE_CELL_MAX], clean[TABLE_CELL_MAX];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(raw, sizeof(raw), format, arguments);
        va_end(arguments);
        fault_sanitize(clean, sizeof(clean), raw, strlen(raw));
        table_store(table, clean);
}

/* ---- measures ---- */

/* Characters of the first `n` bytes, taking each for one column wide. */
static size_t table_measure_part(const char *text, size_t n) {
        size_t characters = 0;

        for (size_t i = 0; i < n; i++)
                characters += ((unsigned char)text[i] & 0xc0) != 0x80;
        return characters;
}

static size_t table_measure(const char *text) {
        return table_measure_part(text, strlen(text));
}

/* Bytes of the next line, if it may have `width` characters: whole words, at least one. */
static size_t table_next_line(const char *text, size_t width) {
        size_t end = strcspn(text, " ");

        while (text[end]) {
                size_t next = end + 1 + strcspn(text + end + 1, " ");

                if (table_measure_part(text, next) > width)
                        break;
                end = next;
        }
        return end;
}

static const char *table_cell(const struct table *table, uint32_t row, uint32_t column) {
        return table->cells[(size_t)row * table->n_columns + column];
}

static size_t table_measure_longest_word(const char *text) {
        size_t longest = 0;

        while (*text) {
                size_t bytes = strcspn(text, " "), width = table_measure_part(text, bytes);

                longest = width > longest ? width : longest;
                text += bytes + (text[bytes] == ' ');
        }
        return longest;
}

/* Of the cells below the title. */
static size_t table_measure_column(const struct table *table, uint32_t column,
                                   size_t (*measure)(const char *text)) {
        size_t widest = 0;

        for (uint32_t row = 1; row < table->n_rows; row++) {
                size_t width = measure(table_cell(table, row, column));

                widest = width > widest ? width : widest;
        }
        return widest;
}

/* ---- a piece: the first column, and those from `first` to `end` ---- */

struct piece {
        const struct table *table;
        uint32_t n;
        uint32_t columns[TABLE_COLUMNS_MAX];
        size_t widths[TABLE_COLUMNS_MAX];
        size_t broken[TABLE_COLUMNS_MAX]; /* the widths with titles and texts broken */
        size_t least[TABLE_COLUMNS_MAX];  /* and with names cut */
};

static size_t piece_width(const struct piece *piece, const size_t widths[]) {
        size_t sum = (piece->n - 1) * (size_t)TABLE_GAP;

        for (uint32_t i = 0; i < piece->n; i++)
                sum += widths[i];
        return sum;
}

static void piece_add(struct piece *piece, uint32_t column) {
        const char *title = table_cell(piece->table, 0, column);
        bool is_text = piece->table->align[column] == 'T';
        size_t whole = table_measure_column(piece->table, column, table_measure);
        size_t words = table_measure_column(piece->table, column, table_measure_longest_word);
        size_t title_words = table_measure_longest_word(title), *broken = &piece->broken[piece->n];

        piece->columns[piece->n] = column;
        piece->widths[piece->n] = whole > table_measure(title) ? whole : table_measure(title);
        *broken = is_text ? words : whole;
        if (*broken < title_words)
                *broken = title_words;
        piece->least[piece->n] =
                piece->table->align[column] == 'L' && *broken > TABLE_NARROWEST ? TABLE_NARROWEST : *broken;
        piece->n++;
}

/* The widest columns that may be narrower become so, until it fits or nothing is left to take. */
static void piece_narrow(struct piece *piece, const size_t least[], size_t limit) {
        for (size_t width = piece_width(piece, piece->widths); width > limit; width--) {
                uint32_t widest = TABLE_COLUMNS_MAX;

                for (uint32_t i = 0; i < piece->n; i++)
                        if (piece->widths[i] > least[i] &&
                            (widest == TABLE_COLUMNS_MAX || piece->widths[i] > piece->widths[widest]))
                                widest = i;
                if (widest == TABLE_COLUMNS_MAX)
                        return;
                piece->widths[widest]--;
        }
}

/* The first column, and as many from `from` on as there is room for, at least one. Returns the first that is
 * left. */
static uint32_t piece_make(struct piece *piece, const struct table *table, uint32_t from, size_t limit) {
        *piece = (struct piece){.table = table};
        if (from > 0)
                piece_add(piece, 0);
        for (; from < table->n_columns; from++) {
                piece_add(piece, from);
                if (piece->n > 2 && piece_width(piece, piece->least) > limit) {
                        piece->n--;
                        break;
                }
        }
        piece_narrow(piece, piece->broken, limit);
        piece_narrow(piece, piece->least, limit);
        return from;
}

/* ---- printing ---- */

/* Bytes of the first `n` characters. */
static size_t table_offset(const char *text, size_t n) {
        const char *at = text;

        for (; *at && n > 0; n--)
                for (at++; ((unsigned char)*at & 0xc0) == 0x80;)
                        at++;
        return (size_t)(at - text);
}

/* Without its middle: the ends of names tell them apart as often as their beginnings. */
static void table_print_cut(const char *text, size_t width) {
        size_t tail = width * TABLE_TAIL / 100, end = table_offset(text, table_measure(text) - tail);

        printf("%.*s~%s", (int)table_offset(text, width - 1 - tail), text, text + end);
}

/* One line of each cell; `rests` are what is left of them. True: something is left. */
static bool piece_print_line(const struct piece *piece, bool titles, const char *rests[]) {
        size_t before = 0; /* spaces that are due, if anything follows */
        bool more = false;

        for (uint32_t i = 0; i < piece->n; i++) {
                char align = piece->table->align[piece->columns[i]];
                bool broken = titles || align == 'T';
                size_t bytes = broken ? table_next_line(rests[i], piece->widths[i]) : strlen(rests[i]);
                size_t length = table_measure_part(rests[i], bytes), width = piece->widths[i];
                size_t padding = length < width ? width - length : 0;

                if (bytes > 0)
                        printf("%*s", (int)(before + (align == 'r' ? padding : 0)), "");
                if (length > width && align == 'L')
                        table_print_cut(rests[i], width);
                else
                        printf("%.*s", (int)bytes, rests[i]);
                before = (bytes > 0 ? 0 : before) + (bytes > 0 && align == 'r' ? 0 : padding) + TABLE_GAP;
                rests[i] += bytes + (rests[i][bytes] == ' ');
                more |= *rests[i] != 0;
        }
        return more;
}

static void piece_print_row(const struct piece *piece, uint32_t row) {
        bool bold = row == 0 && table_is_bold(), more = true;
        const char *rests[TABLE_COLUMNS_MAX];

        for (uint32_t i = 0; i < piece->n; i++)
                rests[i] = table_cell(piece->table, row, piece->columns[i]);
        while (more) {
                fputs(bold ? "\033[1m" : "", stdout);
                more = piece_print_line(piece, row == 0, rests);
                puts(bold ? "\033[0m" : "");
        }
}

void table_print(const struct table *table) {
        struct piece piece;

        if (table->n_rows < 2)
                return;
        for (uint32_t column = 0; column < table->n_columns;) {
                if (column > 0)
                        putchar('\n');
                column = piece_make(&piece, table, column, table_limit());
                for (uint32_t row = 0; row < table->n_rows; row++)
                        piece_print_row(&piece, row);
        }
}

void table_print_text(uint32_t indent, const char *format, ...) {
        size_t limit = table_limit(), before = 0;
        va_list arguments;
        char *text;
        int r;

        va_start(arguments, format);
        r = vasprintf(&text, format, arguments);
        va_end(arguments);
        if (r < 0)
                abort();
        for (const char *at = text; *at; before = indent) {
                size_t bytes = table_next_line(at, limit - before);

                printf("%*s%.*s\n", (int)before, "", (int)bytes, at);
                at += bytes + (at[bytes] == ' ');
        }
        free(text);
}

const char *table_bar(char text[TABLE_BAR_MAX], uint32_t characters, uint64_t done, uint64_t total) {
        const char *full = table_is_utf8() ? "█" : "#", *empty = table_is_utf8() ? "░" : ".";
        double filled = total > 0 ? (double)done / (double)total * characters : 0;

        *text = 0;
        for (uint32_t i = 0; i < characters && i < TABLE_BAR_LONGEST; i++)
                strcat(text, i + 1 <= filled ? full : empty);
        return text;
}

const char *table_seconds(char text[NUMBER_TEXT_MAX], double seconds) {
        unsigned long long whole = seconds > 0 ? (unsigned long long)seconds : 0;

        if (seconds < 0.01)
                snprintf(text, NUMBER_TEXT_MAX, "%.1f ms", seconds * 1000);
        else if (seconds < 1)
                snprintf(text, NUMBER_TEXT_MAX, "%.0f ms", seconds * 1000);
        else if (seconds < 60)
                snprintf(text, NUMBER_TEXT_MAX, "%.1f s", seconds);
        else if (whole < 3600)
                snprintf(text, NUMBER_TEXT_MAX, "%llu min %llu s", whole / 60, whole % 60);
        else
                snprintf(text, NUMBER_TEXT_MAX, "%llu h %llu min", whole / 3600, whole / 60 % 60);
        return text;
}
