/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cells are collected first and measured then: a table is small, and printing it in one go lets columns be as
 * narrow as their contents. Names are the only cells without a bound of their own; when a table is too wide
 * they give way, widest first. Text comes from files and other processes: control bytes are taken out before
 * it meets a terminal. */

#include "client/ctl/table.h"

#include "base/fault.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
        TABLE_CELL_MAX = 1024,
        TABLE_GAP = 2,
        TABLE_NARROWEST = 6,
};

bool table_is_utf8(void) {
        return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

bool table_is_bold(void) {
        const char *no = getenv("NO_COLOR");

        return isatty(STDOUT_FILENO) && !(no && *no);
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

/* Characters, taking each for one column wide. */
static size_t table_measure(const char *text) {
        size_t n = 0;

        for (; *text; text++)
                n += ((unsigned char)*text & 0xc0) != 0x80;
        return n;
}

static void table_measure_columns(const struct table *table, size_t widths[]) {
        size_t total = (table->n_columns - 1) * TABLE_GAP;

        for (uint32_t column = 0; column < table->n_columns; column++) {
                widths[column] = 0;
                for (uint32_t row = 0; row < table->n_rows; row++) {
                        size_t width = table_measure(table->cells[(size_t)row * table->n_columns + column]);

                        if (width > widths[column])
                                widths[column] = width;
                }
                total += widths[column];
        }
        for (; total > TABLE_WIDTH; total--) {
                uint32_t widest = TABLE_COLUMNS_MAX;

                for (uint32_t i = 0; i < table->n_columns; i++)
                        if (table->align[i] == 'L' && widths[i] > TABLE_NARROWEST &&
                            (widest == TABLE_COLUMNS_MAX || widths[i] > widths[widest]))
                                widest = i;
                if (widest == TABLE_COLUMNS_MAX)
                        return;
                widths[widest]--;
        }
}

/* Bytes of the first `n` characters. */
static size_t table_offset(const char *text, size_t n) {
        const char *at = text;

        for (; *at && n > 0; n--)
                for (at++; ((unsigned char)*at & 0xc0) == 0x80;)
                        at++;
        return (size_t)(at - text);
}

/* Cuts to `width` characters, the last of which becomes '~'. */
static void table_print_cell(const char *text, char align, size_t width, bool last) {
        size_t length = table_measure(text);
        int padding = length < width ? (int)(width - length) : 0;

        if (align == 'r')
                printf("%*s", padding, "");
        if (length <= width)
                fputs(text, stdout);
        else
                printf("%.*s~", (int)table_offset(text, width - 1), text);
        if (align != 'r' && !last)
                printf("%*s", padding, "");
}

void table_print(const struct table *table) {
        size_t widths[TABLE_COLUMNS_MAX];
        bool bold = table_is_bold();

        if (table->n_rows < 2)
                return;
        table_measure_columns(table, widths);
        for (uint32_t row = 0; row < table->n_rows; row++) {
                if (bold && row == 0)
                        fputs("\033[1m", stdout);
                for (uint32_t i = 0; i < table->n_columns; i++) {
                        bool last = i + 1 == table->n_columns;

                        table_print_cell(table->cells[(size_t)row * table->n_columns + i], table->align[i],
                                         widths[i], last);
                        if (!last)
                                printf("%*s", TABLE_GAP, "");
                }
                puts(bold && row == 0 ? "\033[0m" : "");
        }
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
