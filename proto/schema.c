/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A slot is field-major: all rows of the first field, then all rows of the second, so that each field of a
 * batch is one tensor that needs no gathering. Where a field starts depends on the slot's number of rows
 * alone: a short last batch keeps the offsets, and one descriptor of the schema serves every batch.
 *
 *   offset 0     field 0: slot_rows x row_bytes
 *   next page    field 1 ...
 *   next page    ids:   int64 x slot_rows
 *   right after  flags: uint8 x slot_rows
 *   slot_bytes   a whole number of pages; up to slot_stride nothing is ever touched, so nothing is reserved
 *
 * Memory is taken by the page, so what is foretold (slot_bytes) is, too: with small batches the part of a
 * page would add up to a good part of the ring.
 *
 * The sizes come from a configuration or, in a client, off the wire. Hence every sum and product is checked.
 */

#include "proto/schema.h"

#include "base/fault.h"
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

size_t schema_dtype_size(enum schema_dtype dtype) {
        switch (dtype) {
#define D(number, NAME, name, size)                                                                          \
        case SCHEMA_##NAME:                                                                                  \
                return size;
                SCHEMA_DTYPES(D)
#undef D
        }
        return 0;
}

const char *schema_dtype_name(enum schema_dtype dtype) {
        switch (dtype) {
#define D(number, NAME, name, size)                                                                          \
        case SCHEMA_##NAME:                                                                                  \
                return #name;
                SCHEMA_DTYPES(D)
#undef D
        }
        return NULL;
}

int schema_dtype_parse(const char *name, enum schema_dtype *dtype) {
        static const struct {
                const char *name;
                enum schema_dtype dtype;
        } dtypes[] = {
#define D(number, NAME, name, size) {#name, SCHEMA_##NAME},
                SCHEMA_DTYPES(D)
#undef D
        };

        for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
                if (strcmp(name, dtypes[i].name) == 0) {
                        *dtype = dtypes[i].dtype;
                        return 0;
                }
        return -EINVAL;
}

/* A field's name becomes a key in users' programs and a column in tables: letters, digits, '_', '-', '.'. */
static bool is_name(const char *name) {
        size_t length = strnlen(name, SCHEMA_NAME_MAX + 1);

        if (length == 0 || length > SCHEMA_NAME_MAX)
                return false;
        for (size_t i = 0; i < length; i++)
                if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
                        return false;
        return true;
}

static int check_field(const struct schema *schema, uint32_t index, struct fault *fault) {
        const struct schema_field *field = &schema->fields[index];

        if (!is_name(field->name))
                return fault_set(fault, -EINVAL,
                                 "field %u: a name has 1 to %d letters, digits, '_', '-' or '.'", index,
                                 SCHEMA_NAME_MAX);
        for (uint32_t i = 0; i < index; i++)
                if (strcmp(schema->fields[i].name, field->name) == 0)
                        return fault_set(fault, -EINVAL, "field %s: fields %u and %u have the same name",
                                         field->name, i, index);
        if (schema_dtype_size(field->dtype) == 0)
                return fault_set(fault, -EINVAL, "field %s: no dtype has the number %d", field->name,
                                 field->dtype);
        if (field->kind != SCHEMA_FIXED)
                return fault_set(fault, -EINVAL, "field %s: no kind has the number %d", field->name,
                                 field->kind);
        if (field->n_dims > SCHEMA_DIMS_MAX)
                return fault_set(fault, -EINVAL, "field %s: %u dimensions, at most %d are possible",
                                 field->name, field->n_dims, SCHEMA_DIMS_MAX);
        if (field->order != SCHEMA_ROW_MAJOR && (field->order != SCHEMA_CHANNELS_LAST || field->n_dims != 3))
                return fault_set(fault, -EINVAL, "field %s: channels_last needs 3 dimensions, not %u",
                                 field->name, field->n_dims);
        return 0;
}

/* Places a field at *end or behind it, and moves *end to its end. False when a size does not fit. */
static bool lay_out_field(struct schema_field *field, uint32_t slot_rows, uint64_t *end) {
        field->row_bytes = schema_dtype_size(field->dtype);
        for (uint32_t i = 0; i < field->n_dims; i++)
                if (!number_multiply_u64(field->row_bytes, field->shape[i], &field->row_bytes))
                        return false;
        return number_align_u64(*end, SCHEMA_FIELD_ALIGN, &field->offset) &&
               number_multiply_u64(field->row_bytes, slot_rows, &field->capacity) &&
               number_add_u64(field->offset, field->capacity, end) && *end <= INT64_MAX;
}

static bool lay_out_hidden(struct schema *schema, uint64_t end) {
        return number_align_u64(end, SCHEMA_FIELD_ALIGN, &schema->ids_offset) &&
               number_add_u64(schema->ids_offset, sizeof(int64_t) * (uint64_t)schema->slot_rows,
                              &schema->flags_offset) &&
               number_add_u64(schema->flags_offset, schema->slot_rows, &end) &&
               number_align_u64(end, SCHEMA_FIELD_ALIGN, &schema->slot_bytes) &&
               number_align_u64(schema->slot_bytes, SCHEMA_SLOT_ALIGN, &schema->slot_stride) &&
               schema->slot_stride <= INT64_MAX;
}

int schema_lay_out(struct schema *schema, uint32_t slot_rows, struct fault *fault) {
        uint64_t end = 0;
        int r;

        if (schema->n_fields == 0 || schema->n_fields > SCHEMA_FIELDS_MAX)
                return fault_set(fault, -EINVAL, "a row has 1 to %d fields, not %u", SCHEMA_FIELDS_MAX,
                                 schema->n_fields);
        if (slot_rows == 0 || slot_rows > INT32_MAX)
                return fault_set(fault, -EINVAL, "a slot has 1 to %d rows, not %u", INT32_MAX, slot_rows);
        schema->slot_rows = slot_rows;
        for (uint32_t i = 0; i < schema->n_fields; i++) {
                r = check_field(schema, i, fault);
                if (r < 0)
                        return r;
                if (!lay_out_field(&schema->fields[i], slot_rows, &end))
                        return fault_set(fault, -EOVERFLOW,
                                         "field %s: %u rows of it need more bytes than a file can have",
                                         schema->fields[i].name, slot_rows);
        }
        if (!lay_out_hidden(schema, end))
                return fault_set(fault, -EOVERFLOW, "%u rows need more bytes than a file can have",
                                 slot_rows);
        return 0;
}

int schema_ring_bytes(const struct schema *schema, uint32_t slots, uint64_t *bytes) {
        uint64_t result = 0;

        if (slots > 0 && (!number_multiply_u64(schema->slot_stride, slots - 1, &result) ||
                          !number_add_u64(result, schema->slot_bytes, &result)))
                return -EOVERFLOW;
        if (result > INT64_MAX)
                return -EOVERFLOW;
        *bytes = result;
        return 0;
}
