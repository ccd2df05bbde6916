#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A leaf of a sample: a tensor, an array or a number that goes into a field of its own. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        LEAF_DIMS_MAX = 32, /* NumPy's own limit in its first version */
};

enum leaf_kind {
        LEAF_TENSOR, /* of torch */
        LEAF_ARRAY,  /* of NumPy, or one of its scalars */
        LEAF_INT,    /* stored as int64 */
        LEAF_FLOAT,  /* stored as float64 */
        LEAF_BOOL,   /* stored as a byte */
};

/* What the first samples had there. Zeroed, or filled in by leaf_init. */
struct leaf {
        enum leaf_kind kind;
        uint32_t index; /* of its field */
        size_t bytes;
        PyObject *name;
        PyObject *convert; /* is called with the value first; NULL: nothing is */
        PyObject *dtype;   /* torch's object, or NumPy's text */
        PyObject *shape;   /* a tuple */

        int n_dims;
        intptr_t dims[LEAF_DIMS_MAX];
        char array_kind; /* as in __array_struct__ */
        int array_itemsize;
};

/* From ('leaf', index, kind, dtype, shape, name, convert). 0, or -1 with an exception. */
int leaf_init(struct leaf *leaf, PyObject *spec);
void leaf_deinit(struct leaf *leaf);

/* Copies the value to `cell`, which has leaf->bytes. 0, or -1 with an exception: a ValueError where the value
 * is not like the first ones. */
int leaf_store(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample);

/* Raises "field NAME of sample N: ...", with the conversions of PyUnicode_FromFormat. Returns -1. */
int leaf_refuse(const struct leaf *leaf, uint64_t sample, const char *format, ...);

/* The name of a value's type, a new reference; or NULL with an exception. */
PyObject *leaf_type_name(PyObject *value);
int leaf_refuse_type(const struct leaf *leaf, uint64_t sample, PyObject *value, const char *expected);

/* ---- leaf-tensor.c, leaf-array.c: 0, or -1 with an exception; as above ---- */

int leaf_init_tensor(struct leaf *leaf, size_t elements);
int leaf_store_tensor(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample);
int leaf_init_array(struct leaf *leaf, size_t elements);
int leaf_store_array(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample);
