/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The C library's parsers take spaces, signs, "inf", hexadecimal and the process's locale; configuration and
 * command lines must not. So whole numbers are read by hand, and floating-point ones are checked byte by byte
 * before strtod, under the C locale, gets to see them. Sizes are printed with integers for the same reason:
 * printf would take the decimal point of whichever locale the surrounding program has set. */

#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads digits from *text on, and leaves *text behind them. */
static int parse_digits(const char **text, uint64_t *value) {
        uint64_t result = 0;
        bool fits = true;

        if (!isdigit((unsigned char)**text))
                return -EINVAL;
        for (; isdigit((unsigned char)**text); (*text)++)
                fits = fits && number_multiply_u64(result, 10, &result) &&
                       number_add_u64(result, (uint64_t)(**text - '0'), &result);
        if (!fits)
                return -ERANGE;
        *value = result;
        return 0;
}

int number_parse_u64(const char *text, uint64_t *value) {
        uint64_t result;
        int r = parse_digits(&text, &result);

        if (*text != 0)
                return -EINVAL;
        if (r == 0)
                *value = result;
        return r;
}

/* The power of two of "", "K", "KB", "KiB" and so on, or -EINVAL. */
static int parse_unit(const char *text) {
        static const char units[] = "KMGT";
        const char *unit;

        if (*text == 0)
                return 0;
        unit = strchr(units, *text++);
        if (!unit)
                return -EINVAL;
        if (strcmp(text, "") != 0 && strcmp(text, "B") != 0 && strcmp(text, "iB") != 0)
                return -EINVAL;
        return 10 * ((int)(unit - units) + 1);
}

int number_parse_bytes(const char *text, uint64_t *bytes) {
        uint64_t digits = 0;
        int r = parse_digits(&text, &digits), power = parse_unit(text);

        if (power < 0)
                return power;
        if (r < 0)
                return r;
        return number_multiply_u64(digits, UINT64_C(1) << power, bytes) ? 0 : -ERANGE;
}

/* [sign] digits [. digits] [e [sign] digits], with at least one digit before the exponent. */
static bool is_decimal(const char *text) {
        size_t digits, fraction = 0;

        text += *text == '-' || *text == '+';
        digits = strspn(text, "0123456789");
        text += digits;
        if (*text == '.') {
                fraction = strspn(++text, "0123456789");
                text += fraction;
        }
        if (digits + fraction == 0)
                return false;
        if (*text != 'e' && *text != 'E')
                return *text == 0;
        text++;
        text += *text == '-' || *text == '+';
        digits = strspn(text, "0123456789");
        return digits > 0 && text[digits] == 0;
}

int number_parse_double(const char *text, double *value) {
        locale_t c_locale;
        double result;

        if (!is_decimal(text))
                return -EINVAL;
        c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        if (c_locale == (locale_t)0)
                return -ENOMEM;
        result = strtod_l(text, NULL, c_locale);
        freelocale(c_locale);
        if (!isfinite(result))
                return -ERANGE;
        *value = result;
        return 0;
}

/* bytes x scale in the given unit (0: B, 1: KiB, ...), rounded to the nearest whole number. */
static uint64_t in_unit(uint64_t bytes, unsigned scale, unsigned unit) {
        return (uint64_t)(((((unsigned __int128)bytes * scale) << 1 >> (10 * unit)) + 1) >> 1);
}

const char *number_format_bytes(char text[NUMBER_TEXT_MAX], uint64_t bytes) {
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        unsigned unit = 0, scale;
        unsigned long long whole, part;
        int decimals;

        while (unit < 6 && in_unit(bytes, 1, unit) >= 1024)
                unit++;
        whole = bytes >> (10 * unit);
        decimals = unit == 0 || whole >= 100 ? 0 : whole >= 10 ? 1 : 2;
        scale = decimals == 0 ? 1 : decimals == 1 ? 10 : 100;
        whole = in_unit(bytes, scale, unit) / scale;
        part = in_unit(bytes, scale, unit) % scale;
        for (; decimals > 0 && part % 10 == 0; decimals--)
                part /= 10;
        if (decimals == 0)
                snprintf(text, NUMBER_TEXT_MAX, "%llu %s", whole, units[unit]);
        else
                snprintf(text, NUMBER_TEXT_MAX, "%llu.%0*llu %s", whole, decimals, part, units[unit]);
        return text;
}

const char *number_format_count(char text[NUMBER_TEXT_MAX], uint64_t count) {
        char digits[NUMBER_TEXT_MAX];
        int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)count);
        char *to = text;

        for (int i = 0; i < length; i++) {
                if (i > 0 && (length - i) % 3 == 0)
                        *to++ = ',';
                *to++ = digits[i];
        }
        *to = 0;
        return text;
}
