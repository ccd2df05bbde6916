#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a row consists of and where it lies in a slot. */

#include <stdint.h>
#include <stddef.h>

struct fault;

/* One table: number on the wire, name everywhere, bytes of an element. */
#define SCHEMA_DTYPES(D)                                                                                     \
        D(1, UINT8, uint8, 1)                                                                                \
        D(2, INT32, int32, 4)                                                                                \
        D(3, INT64, int64, 8)                                                                                \
        D(4, FLOAT16, float16, 2)                                                                            \
        D(5, BFLOAT16, bfloat16, 2)                                                                          \
        D(6, FLOAT32, float32, 4)                                                                            \
        D(7, FLOAT64, float64, 8)

enum schema_dtype {
#define D(number, NAME, name, size) SCHEMA_##NAME = number,
        SCHEMA_DTYPES(D)
#undef D
};

enum {
        SCHEMA_FIELDS_MAX = 16,
        SCHEMA_DIMS_MAX = 6, /* without the first dimension, the rows */
        SCHEMA_NAME_MAX = 31,
        SCHEMA_FIELD_ALIGN = 4096,   /* a field starts on a page */
        SCHEMA_SLOT_ALIGN = 2 << 20, /* a slot starts on a huge page */
};

/* A field's strides when it is not plain row-major: channels_last is stored hwc and shown N x C x H x W. */
enum schema_order {
        SCHEMA_ROW_MAJOR = 0,
        SCHEMA_CHANNELS_LAST = 1,
};

/* Sizes of a field per batch: fixed by the schema, or (later) different in each batch. */
enum schema_kind {
        SCHEMA_FIXED = 0,
};

struct schema_field {
        char name[SCHEMA_NAME_MAX + 1];
        enum schema_dtype dtype;
        enum schema_order order;
        enum schema_kind kind;
        uint32_t n_dims;
        uint64_t shape[SCHEMA_DIMS_MAX]; /* of one row, as users see it (C,H,W also for channels_last) */
        /* filled in by schema_lay_out: */
        uint64_t row_bytes;
        uint64_t offset;   /* from the start of the slot */
        uint64_t capacity; /* bytes in the slot: row_bytes x slot_rows */
};

struct schema {
        uint32_t n_fields;
        struct schema_field fields[SCHEMA_FIELDS_MAX];
        /* filled in by schema_lay_out: */
        uint32_t slot_rows;    /* S */
        uint64_t ids_offset;   /* int64 x S: sample numbers */
        uint64_t flags_offset; /* uint8 x S: enum schema_row_flag */
        uint64_t slot_bytes;   /* bytes that are really reserved: whole pages */
        uint64_t slot_stride;  /* distance of slots in the ring: slot_bytes rounded up to SCHEMA_SLOT_ALIGN */
};

/* The hidden flag of a row. */
enum schema_row_flag {
        SCHEMA_ROW_GOOD = 0,
        SCHEMA_ROW_REPLACED = 1,
        SCHEMA_ROW_PADDING = 2,
};

/* Computes row_bytes, offsets and sizes for `slot_rows` rows. Field-major, each field on its own pages, then
 * ids, then flags. 0, -EINVAL (no field, too many, a bad name or dtype) or -EOVERFLOW with the field. */
int schema_lay_out(struct schema *schema, uint32_t slot_rows, struct fault *fault);

/* Bytes of the file that holds `slots` slots (stride x (slots-1) + slot_bytes), or -EOVERFLOW. */
int schema_ring_bytes(const struct schema *schema, uint32_t slots, uint64_t *bytes);

size_t schema_dtype_size(enum schema_dtype dtype);                  /* 0 for an unknown one */
const char *schema_dtype_name(enum schema_dtype dtype);             /* NULL for an unknown one */
int schema_dtype_parse(const char *name, enum schema_dtype *dtype); /* 0 or -EINVAL */
