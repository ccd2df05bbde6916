/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Fault texts travel: from a worker through the daemon into a job, a log line and a terminal. Each hop trusts
 * them to be one line of valid UTF-8 that fits a message, so that is made sure here, where they are born, and
 * nowhere else. File names are the usual offender: they may hold any byte but NUL and '/'.
 *
 * The text is formatted into a buffer of its own first, because callers like to pass the old text as an
 * argument. */

#include "base/fault.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Twice the text: what follows the cut only matters for knowing that there was something to cut. */
enum {
        FAULT_SCRATCH = 2 * FAULT_TEXT_MAX,
};

/* C0, DEL, and the C1 controls U+0080 to U+009F, which some terminals obey. */
static int is_control(const char *text, size_t n) {
        uint8_t first = (uint8_t)text[0];

        if (n == 1)
                return first < 0x20 || first == 0x7f;
        return n == 2 && first == 0xc2 && (uint8_t)text[1] < 0xa0;
}

void fault_sanitize(char *to, size_t size, const char *from, size_t length) {
        size_t used = 0;

        if (size == 0)
                return;
        for (size_t at = 0; at < length;) {
                size_t n = utf8_step(from + at, length - at);
                size_t taken = n > 0 ? n : 1;
                int bad = n == 0 || is_control(from + at, n);
                size_t written = bad ? 1 : n;

                if (used + written > size - 1)
                        break;
                if (bad)
                        to[used] = '?';
                else
                        memcpy(to + used, from + at, n);
                used += written;
                at += taken;
        }
        to[used] = 0;
}

/* Cuts on a character's border, and says so. */
static void fault_store(struct fault *fault, const char *text) {
        size_t length = strlen(text), end;

        fault_sanitize(fault->text, sizeof(fault->text), text, length);
        if (length <= FAULT_TEXT_MAX)
                return;
        end = strlen(fault->text);
        if (end > FAULT_TEXT_MAX - 3)
                end = FAULT_TEXT_MAX - 3;
        while (end > 0 && ((uint8_t)fault->text[end] & 0xc0) == 0x80)
                end--;
        memcpy(fault->text + end, "...", 4);
}

int fault_set(struct fault *fault, int error, const char *format, ...) {
        char scratch[FAULT_SCRATCH + 1];
        va_list arguments;

        if (!fault)
                return error;
        va_start(arguments, format);
        vsnprintf(scratch, sizeof(scratch), format, arguments);
        va_end(arguments);
        fault_store(fault, scratch);
        return error;
}

int fault_prefix(struct fault *fault, int error, const char *format, ...) {
        char scratch[FAULT_SCRATCH + FAULT_TEXT_MAX + 3];
        va_list arguments;
        size_t n;

        if (!fault)
                return error;
        va_start(arguments, format);
        vsnprintf(scratch, FAULT_SCRATCH + 1, format, arguments);
        va_end(arguments);
        n = strlen(scratch);
        snprintf(scratch + n, sizeof(scratch) - n, ": %s", fault->text);
        fault_store(fault, scratch);
        return error;
}
