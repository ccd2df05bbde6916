#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One step through UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing over U+10FFFF. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character that starts at text[0], with `length` > 0 bytes to look at; 0 when it is none. */
static inline size_t utf8_step(const char *text, size_t length) {
        const uint8_t *b = (const uint8_t *)text;
        uint8_t low = 0x80, high = 0xbf; /* range of the second byte; the lead byte narrows it */
        size_t n;

        if (b[0] < 0x80)
                return 1;
        if (b[0] < 0xc2 || b[0] > 0xf4)
                return 0;
        n = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
        if (b[0] == 0xe0)
                low = 0xa0;
        else if (b[0] == 0xed)
                high = 0x9f;
        else if (b[0] == 0xf0)
                low = 0x90;
        else if (b[0] == 0xf4)
                high = 0x8f;
        if (length < n || b[1] < low || b[1] > high)
                return 0;
        for (size_t i = 2; i < n; i++)
                if (b[i] < 0x80 || b[i] > 0xbf)
                        return 0;
        return n;
}

/* Whole text as UTF-8 without NUL. */
static inline bool utf8_is_text(const char *text, size_t length) {
        for (size_t at = 0, n; at < length; at += n) {
                n = utf8_step(text + at, length - at);
                if (n == 0 || text[at] == 0)
                        return false;
        }
        return true;
}
