#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Prometheus' text format, version 0.0.4, line by line. */

#include <stdint.h>
#include <stdio.h>

#define EXPOSITION_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum {
        EXPOSITION_LABELS_MAX = 4,
};

struct exposition_label {
        const char *name; /* NULL: the end, or nothing */
        const char *value;
};

/* Before the samples of a family, once. `help` has no backslash and no line end. */
void exposition_family(FILE *out, const char *name, const char *type, const char *help);

/* NAME{LABELS}, whose values may be any text; the value is to follow. */
void exposition_name(FILE *out, const char *name, const char *suffix,
                     const struct exposition_label labels[EXPOSITION_LABELS_MAX]);

/* The value, and the line's end: a whole number, or nanoseconds as seconds. */
void exposition_number(FILE *out, uint64_t value);
void exposition_seconds(FILE *out, uint64_t ns);
