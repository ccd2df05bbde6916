#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Text for people, as wide as their terminal: tables of cells, and lines broken at spaces. */

#include "base/number.h"

#include <stdbool.h>
#include <stdint.h>

enum {
        TABLE_COLUMNS_MAX = 16,
        TABLE_LIMIT_LEAST = 60,   /* a terminal with less is taken to have so much */
        TABLE_NO_LIMIT = 1000000, /* no terminal: whoever reads it wants whole lines */
        TABLE_BAR_LONGEST = 40,   /* characters */
        TABLE_BAR_MAX = TABLE_BAR_LONGEST * 3 + 1,
};

struct table {
        uint32_t n_columns;
        uint32_t n_rows;
        char align[TABLE_COLUMNS_MAX]; /* 'l' or 'r'; 'L', a name, may be cut to fit; 'T', a text, broken */
        char **cells;                  /* n_columns for each row; the first row has the titles */
};

/* `columns` is "L name|r rows|...": alignment, a space, title. The first column tells the rows apart. */
void table_init(struct table *table, const char *columns);
void table_deinit(struct table *table);

/* The next cell. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Titles and rows; nothing when there are no rows. */
void table_print(const struct table *table);

/* A line of text; what does not fit follows in further lines, with so many spaces before it. */
void table_print_text(uint32_t indent, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Characters of a line, on the terminal that standard output is: its own word, else $COLUMNS. */
uint32_t table_limit(void);

/* Whether the terminal or file shows UTF-8, and bold text. */
bool table_is_utf8(void);
bool table_is_bold(void);

/* A bar of so many characters, as much of it filled as `done` is of `total`. */
const char *table_bar(char text[TABLE_BAR_MAX], uint32_t characters, uint64_t done, uint64_t total);

/* "12 ms", "3.4 s", "5 min 10 s", "3 h 12 min" */
const char *table_seconds(char text[NUMBER_TEXT_MAX], double seconds);
