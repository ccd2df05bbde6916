/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Numbers are written from whole ones, never through floating point: the same number is the same text, in any
 * locale, to its last digit. A reader has 53 bits for it; that is its own affair.
 *
 * The value of a label is UTF-8 with three escapes. What is no UTF-8 becomes '?' byte by byte, as everywhere
 * in what we tell: one bad byte would cost the whole answer. */

#include "daemon/exposition.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

void exposition_family(FILE *out, const char *name, const char *type, const char *help) {
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_value(FILE *out, const char *value) {
        size_t left = strlen(value);

        while (left > 0) {
                size_t step = utf8_step(value, left);

                if (step == 0)
                        fputc('?', out);
                else if (*value == '\n')
                        fputs("\\n", out);
                else if (*value == '\\' || *value == '"')
                        fprintf(out, "\\%c", *value);
                else
                        fwrite(value, 1, step, out);
                step = step > 0 ? step : 1;
                value += step;
                left -= step;
        }
}

void exposition_name(FILE *out, const char *name, const char *suffix,
                     const struct exposition_label labels[EXPOSITION_LABELS_MAX]) {
        char before = '{';

        fprintf(out, "%s%s", name, suffix);
        for (int i = 0; i < EXPOSITION_LABELS_MAX && labels[i].name; i++) {
                fprintf(out, "%c%s=\"", before, labels[i].name);
                write_value(out, labels[i].value);
                fputc('"', out);
                before = ',';
        }
        if (before == ',')
                fputc('}', out);
}

void exposition_number(FILE *out, uint64_t value) {
        fprintf(out, " %" PRIu64 "\n", value);
}

void exposition_seconds(FILE *out, uint64_t ns) {
        fprintf(out, " %" PRIu64 ".%09" PRIu64 "\n", ns / NS_PER_S, ns % NS_PER_S);
}
