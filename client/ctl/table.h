#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Tables for people: cells of text, columns as wide as they must be. */

#include "base/number.h"

#include <stdbool.h>
#include <stdint.h>

enum {
        TABLE_COLUMNS_MAX = 16,
        TABLE_WIDTH = 100, /* no line is longer, unless its numbers are */
};

struct table {
        uint32_t n_columns;
        uint32_t n_rows;
        char align[TABLE_COLUMNS_MAX]; /* 'l' or 'r'; 'L' may be cut to fit */
        char **cells;                  /* n_columns for each row; the first row has the titles */
};

/* `columns` is "L name|r rows|...": alignment, a space, title. */
void table_init(struct table *table, const char *columns);
void table_deinit(struct table *table);

/* The next cell. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Titles and rows; nothing when there are no rows. */
void table_print(const struct table *table);

/* Whether the terminal or file shows UTF-8, and bold text. */
bool table_is_utf8(void);
bool table_is_bold(void);

/* "12 ms", "3.4 s", "5 min 10 s", "3 h 12 min" */
const char *table_seconds(char text[NUMBER_TEXT_MAX], double seconds);
