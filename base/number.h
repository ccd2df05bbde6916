#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Numbers from text, sizes for people, arithmetic that notices overflow. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole text as a decimal whole number. 0, -EINVAL (empty, sign, space, other bytes) or -ERANGE (over
 * 2^64-1). */
int number_parse_u64(const char *text, uint64_t *value);

/* Whole text as bytes: digits, then nothing or one of K M G T (powers of 1024; an "iB" or "B" may follow).
 * 0, -EINVAL or -ERANGE. */
int number_parse_bytes(const char *text, uint64_t *bytes);

/* Whole text as a finite decimal floating-point number, in the C locale whatever the process's. 0, -EINVAL,
 * -ERANGE. */
int number_parse_double(const char *text, double *value);

enum {
        NUMBER_TEXT_MAX = 32,
};

/* "512 B", "64 MiB", "1.5 GiB": three significant digits, exact where it can be. Returns `text`. */
const char *number_format_bytes(char text[NUMBER_TEXT_MAX], uint64_t bytes);

/* "1,234,567". Returns `text`. */
const char *number_format_count(char text[NUMBER_TEXT_MAX], uint64_t count);

/* *sum = a + b; true when it fits, else *sum is untouched. Likewise the product. */
static inline bool number_add_u64(uint64_t a, uint64_t b, uint64_t *sum) {
        uint64_t result;

        if (__builtin_add_overflow(a, b, &result))
                return false;
        *sum = result;
        return true;
}

static inline bool number_multiply_u64(uint64_t a, uint64_t b, uint64_t *product) {
        uint64_t result;

        if (__builtin_mul_overflow(a, b, &result))
                return false;
        *product = result;
        return true;
}

/* Rounds up to a multiple of `step` (a power of two); false when that does not fit. */
static inline bool number_align_u64(uint64_t value, uint64_t step, uint64_t *aligned) {
        uint64_t raised;

        if (!number_add_u64(value, step - 1, &raised))
                return false;
        *aligned = raised & ~(step - 1);
        return true;
}
