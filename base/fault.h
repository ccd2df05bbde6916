#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The text that goes with a negative errno: what happened, where, the number, one remedy. */

#include <stddef.h>

enum {
        FAULT_TEXT_MAX = 1000, /* longest text; longer ones are cut and end in "..." */
};

struct fault {
        char text[FAULT_TEXT_MAX + 1]; /* UTF-8, one line, without a full stop; "" when there is no fault */
};

/* Writes the text and returns `error` (a negative errno), so that `return fault_set(...)` reads well.
 * `fault` may be NULL: then only the number is passed on. */
int fault_set(struct fault *fault, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before the text that a callee wrote, and returns `error`. */
int fault_prefix(struct fault *fault, int error, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Copies `length` bytes of foreign text into `to` (capacity `size`, always terminated): control bytes and
 * invalid UTF-8 become '?', what does not fit is cut. */
void fault_sanitize(char *to, size_t size, const char *from, size_t length);
