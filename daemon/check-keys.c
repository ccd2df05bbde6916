/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tables of keys as Markdown, for `pinfeedd --help-config`. The documents take their tables from here
 * (script/config-docs), so that they cannot say anything else than the parser does.
 *
 * Keys that only test builds obey are left out: their help begins with "test builds".
 */

#include "daemon/check.h"

#include "daemon/config-keys.h"
#include "proto/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Large powers of two as such: 2^48 is read faster than its fifteen digits. */
static void print_bound(FILE *out, double bound) {
        int exponent;

        if (bound >= 2147483648.0 && frexp(bound, &exponent) == 0.5)
                fprintf(out, "2^%d%s", exponent - 1, exponent - 1 == 64 ? "-1" : "");
        else
                fprintf(out, "%.10g", bound);
}

static void print_range(FILE *out, const char *what, const struct key *key) {
        fprintf(out, "%s", what);
        print_bound(out, key->least);
        fputs(" to ", out);
        print_bound(out, key->most);
}

static void print_type(FILE *out, const struct key *key) {
        static const char *const forms[] = {
                [KEY_U64] = "",
                [KEY_BYTES] = "bytes, ",
                [KEY_DOUBLE] = "number, ",
                [KEY_SIZE] = "n or [height, width], ",
                [KEY_PAIR] = "[low, high], ",
                [KEY_TRIPLE] = "[red, green, blue], ",
        };

        if (key->type == KEY_BOOL)
                fputs("true, false", out);
        else if (key->type == KEY_TEXT)
                fputs("text", out);
        else if (key->type == KEY_JSON)
                fputs("a mapping", out);
        else if (key->type == KEY_TEXTS)
                fputs("a list of texts", out);
        else if (key->type != KEY_NAME)
                print_range(out, forms[key->type], key);
        else
                for (size_t i = 0; key->names[i]; i++)
                        fprintf(out, "%s%s", i ? ", " : "", key->names[i]);
}

static bool is_sayable(const struct key *key) {
        double fallback = strtod(key->fallback, NULL);

        return fallback >= key->least && fallback <= key->most;
}

/* A default that cannot be said stands for "not said". */
static void print_fallback(FILE *out, const struct key *key) {
        size_t length = key->fallback ? strlen(key->fallback) : 0;

        if (!key->fallback)
                fputs("required", out);
        else if (length > 2 && key->fallback[0] == '"')
                fprintf(out, "%.*s", (int)length - 2, key->fallback + 1);
        else if ((key->type == KEY_U64 || key->type == KEY_BYTES || key->type == KEY_DOUBLE) &&
                 !is_sayable(key))
                fputs("-", out);
        else
                fputs(key->fallback, out);
}

static void print_head(FILE *out, const char *title, const char *help) {
        fprintf(out, "\n### %s\n\n", title);
        if (help)
                fprintf(out, "%s\n\n", help);
        fputs("| key | value | default | meaning |\n|---|---|---|---|\n", out);
}

static void print_parts(FILE *out, const struct config_part *parts) {
        for (; parts->name; parts++)
                fprintf(out, "| `%s` | %s | %s | %s |\n", parts->name, parts->type,
                        parts->fallback ? parts->fallback : "required", parts->help);
}

static void print_keys(FILE *out, const struct key *table) {
        static const char hidden[] = "test builds";

        for (const struct key *key = table; key->name; key++) {
                if (!strncmp(key->help, hidden, strlen(hidden)))
                        continue;
                fprintf(out, "| `%s` | ", key->name);
                print_type(out, key);
                fputs(" | ", out);
                print_fallback(out, key);
                fprintf(out, " | %s |\n", key->help);
        }
}

static void print_kinds(FILE *out, const char *what, const struct recipe_kind *kinds) {
        char title[64];

        for (; kinds->name; kinds++) {
                snprintf(title, sizeof(title), "%s `%s`", what, kinds->name);
                print_head(out, title, kinds->help);
                print_keys(out, kinds->keys);
        }
}

void check_print_keys(FILE *out) {
        print_head(out, "The file", NULL);
        print_parts(out, config_parts);
        print_keys(out, config_keys);
        print_head(out, "A pipeline", NULL);
        print_parts(out, config_pipeline_parts);
        print_keys(out, config_pipeline_keys);
        print_head(out, "Who may: `allow`, `allow_pinned`", NULL);
        print_parts(out, config_access_parts);
        print_kinds(out, "Source", recipe_sources);
        print_kinds(out, "Transform", recipe_transforms);
        print_head(out, "Output", NULL);
        print_keys(out, recipe_output_keys);
}
