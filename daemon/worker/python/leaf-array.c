/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays by __array_struct__, NumPy's oldest interface in C: one attribute tells all, scalars have it too,
 * and no header of NumPy's is needed (nor the buffer protocol, which the stable ABI has only from 3.11 on).
 */

#include "daemon/worker/python/leaf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* NumPy's PyArrayInterface. */
struct array {
        int two; /* a version, and a check */
        int n_dims;
        char kind; /* 'f', 'i', 'u', 'b' ... */
        int itemsize;
        int flags;
        intptr_t *shape;
        intptr_t *strides;
        void *data;
        PyObject *descr;
};

enum {
        ARRAY_CONTIGUOUS = 1,
        ARRAY_NOT_SWAPPED = 0x200,
};

/* A text such as "<f4". Another byte order than ours was refused when the first samples were looked at, as
 * torch does. */
static int parse_dtype(struct leaf *leaf) {
        PyObject *bytes = PyUnicode_Check(leaf->dtype) ? PyUnicode_AsUTF8String(leaf->dtype) : NULL;
        const char *text = bytes ? PyBytes_AsString(bytes) : "";
        bool good = strlen(text) > 2 && (text[0] == '<' || text[0] == '|');
        char *end = NULL;
        long itemsize = good ? strtol(text + 2, &end, 10) : 0;

        good = good && *end == 0 && itemsize > 0 && itemsize < INT_MAX;
        if (good) {
                leaf->array_kind = text[1];
                leaf->array_itemsize = (int)itemsize;
        } else if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "field %U: no dtype of an array is %R", leaf->name,
                             leaf->dtype);
        }
        Py_XDECREF(bytes);
        return good ? 0 : -1;
}

int leaf_init_array(struct leaf *leaf, size_t elements) {
        if (parse_dtype(leaf) < 0)
                return -1;
        if (!__builtin_mul_overflow(elements, (size_t)leaf->array_itemsize, &leaf->bytes))
                return 0;
        PyErr_Format(PyExc_ValueError, "field %U: no array has the shape %R", leaf->name, leaf->shape);
        return -1;
}

static int refuse_shape(const struct leaf *leaf, const struct array *array, uint64_t sample) {
        PyObject *shape = PyTuple_New(array->n_dims);

        for (int i = 0; shape && i < array->n_dims; i++)
                PyTuple_SetItem(shape, i, PyLong_FromSsize_t(array->shape[i]));
        if (shape)
                leaf_refuse(leaf, sample, "shape %R, where the first samples have %R", shape, leaf->shape);
        Py_XDECREF(shape);
        return -1;
}

static int check_array(const struct leaf *leaf, const struct array *array, uint64_t sample) {
        bool swapped = !(array->flags & ARRAY_NOT_SWAPPED);

        if (array->kind != leaf->array_kind || array->itemsize != leaf->array_itemsize || swapped)
                return leaf_refuse(leaf, sample, "dtype %s%c%d, where the first samples have %S",
                                   array->itemsize == 1 ? "|"
                                   : swapped            ? ">"
                                                        : "<",
                                   array->kind, array->itemsize, leaf->dtype);
        if (array->n_dims != leaf->n_dims)
                return refuse_shape(leaf, array, sample);
        for (int i = 0; i < leaf->n_dims; i++)
                if (array->shape[i] != leaf->dims[i])
                        return refuse_shape(leaf, array, sample);
        return 0;
}

/* Copies the part of an array that begins at `from`, from dimension `dim` on. Returns where the next part
 * goes. */
static uint8_t *copy_strided(uint8_t *to, const uint8_t *from, const struct array *array, int dim) {
        size_t itemsize = (size_t)array->itemsize;

        if (dim == array->n_dims) {
                memcpy(to, from, itemsize);
                return to + itemsize;
        }
        if (dim == array->n_dims - 1 && array->strides[dim] == (intptr_t)itemsize) {
                memcpy(to, from, itemsize * (size_t)array->shape[dim]);
                return to + itemsize * (size_t)array->shape[dim];
        }
        for (intptr_t i = 0; i < array->shape[dim]; i++)
                to = copy_strided(to, from + i * array->strides[dim], array, dim + 1);
        return to;
}

static int store(const struct leaf *leaf, const struct array *array, void *cell, uint64_t sample) {
        if (check_array(leaf, array, sample) < 0)
                return -1;
        if (leaf->bytes == 0)
                return 0;
        if (array->flags & ARRAY_CONTIGUOUS)
                memcpy(cell, array->data, leaf->bytes);
        else
                copy_strided(cell, array->data, array, 0);
        return 0;
}

int leaf_store_array(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        static PyObject *name;
        PyObject *capsule = NULL;
        const struct array *array = NULL;
        int r;

        if (!name)
                name = PyUnicode_InternFromString("__array_struct__");
        if (name)
                capsule = PyObject_GetAttr(value, name);
        if (capsule)
                array = PyCapsule_GetPointer(capsule, NULL);
        if (array && array->two == 2) {
                r = store(leaf, array, cell, sample);
        } else {
                PyErr_Clear();
                r = leaf_refuse_type(leaf, sample, value, "an array of NumPy's");
        }
        Py_XDECREF(capsule);
        return r;
}
