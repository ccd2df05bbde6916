/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Fields as a text, for sources that nobody but their owner knows: one line that people can read in a
 * configuration and that a program writes in one expression. */

#include "base/fault.h"
#include "base/number.h"
#include "proto/recipe.h"

#include <errno.h>
#include <string.h>

enum {
        WORD_MAX = 192, /* a name, a dtype and six dimensions of 20 digits */
};

static int parse_dimensions(struct schema_field *field, char *text, struct fault *fault) {
        char *rest = text, *word;

        while (*text && (word = strsep(&rest, ","))) {
                if (field->n_dims == SCHEMA_DIMS_MAX)
                        return fault_set(fault, -EINVAL, "fields: %s: expected at most %d dimensions",
                                         field->name, SCHEMA_DIMS_MAX);
                if (number_parse_u64(word, &field->shape[field->n_dims]) < 0)
                        return fault_set(fault, -EINVAL, "fields: %s: expected a number, got \"%s\"",
                                         field->name, word);
                field->n_dims++;
        }
        return 0;
}

/* NAME=DTYPE[DIMENSIONS] */
static int parse_field(struct schema_field *field, char *word, struct fault *fault) {
        char *dtype = strchr(word, '='), *open = strchr(word, '['), *end = word + strlen(word) - 1;

        if (!dtype || !open || open < dtype || *end != ']' || dtype - word > SCHEMA_NAME_MAX)
                return fault_set(fault, -EINVAL, "fields: expected NAME=DTYPE[DIMENSIONS], got \"%s\"", word);
        *dtype++ = *open++ = *end = 0;
        memcpy(field->name, word, strlen(word) + 1);
        if (schema_dtype_parse(dtype, &field->dtype) < 0)
                return fault_set(fault, -EINVAL, "fields: %s: no dtype is called \"%s\"", field->name, dtype);
        return parse_dimensions(field, open, fault);
}

int recipe_parse_fields(struct schema *schema, const char *text, struct fault *fault) {
        int r = 0;

        for (text += strspn(text, " "); *text && r == 0; text += strspn(text, " ")) {
                size_t length = strcspn(text, " ");
                char word[WORD_MAX + 1] = "";

                if (schema->n_fields == SCHEMA_FIELDS_MAX)
                        return fault_set(fault, -EINVAL, "fields: expected at most %d", SCHEMA_FIELDS_MAX);
                memcpy(word, text, length < WORD_MAX ? length : WORD_MAX);
                if (length <= WORD_MAX)
                        r = parse_field(&schema->fields[schema->n_fields++], word, fault);
                else
                        r = fault_set(fault, -EINVAL,
                                      "fields: expected NAME=DTYPE[DIMENSIONS], got \"%s...\"", word);
                text += length;
        }
        if (r == 0 && schema->n_fields == 0)
                return fault_set(fault, -EINVAL, "fields: expected NAME=DTYPE[DIMENSIONS], got nothing");
        return r;
}
