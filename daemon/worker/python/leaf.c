/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the first samples had decides what all others must have, since a batch is one block of memory. A value
 * that is not like them is refused with both, and never cut, padded or cast: torch would refuse to stack it.
 * The one exception is torch's own, too: a whole number among floats. */

#include "daemon/worker/python/leaf.h"

#include <string.h>

static const char *const kinds[] = {
        [LEAF_TENSOR] = "tensor", [LEAF_ARRAY] = "array", [LEAF_INT] = "int",
        [LEAF_FLOAT] = "float",   [LEAF_BOOL] = "bool",
};

int leaf_refuse(const struct leaf *leaf, uint64_t sample, const char *format, ...) {
        PyObject *text;
        va_list arguments;

        va_start(arguments, format);
        text = PyUnicode_FromFormatV(format, arguments);
        va_end(arguments);
        if (text)
                PyErr_Format(PyExc_ValueError, "field %U of sample %llu: %U", leaf->name, sample, text);
        Py_XDECREF(text);
        return -1;
}

PyObject *leaf_type_name(PyObject *value) {
        return PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");
}

int leaf_refuse_type(const struct leaf *leaf, uint64_t sample, PyObject *value, const char *expected) {
        PyObject *name = leaf_type_name(value);

        if (name)
                leaf_refuse(leaf, sample, "type %S, where the first samples have %s", name, expected);
        Py_XDECREF(name);
        return -1;
}

/* ---- the description ---- */

void leaf_deinit(struct leaf *leaf) {
        Py_CLEAR(leaf->name);
        Py_CLEAR(leaf->convert);
        Py_CLEAR(leaf->dtype);
        Py_CLEAR(leaf->shape);
}

static int find_kind(const char *name, enum leaf_kind *kind) {
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
                if (strcmp(kinds[i], name) == 0) {
                        *kind = (enum leaf_kind)i;
                        return 0;
                }
        PyErr_Format(PyExc_ValueError, "no leaf is of kind %s", name);
        return -1;
}

/* Fills in n_dims and dims. */
static int read_shape(struct leaf *leaf, size_t *elements) {
        Py_ssize_t n_dims = PyTuple_Size(leaf->shape);

        *elements = 1;
        if (n_dims > LEAF_DIMS_MAX) {
                PyErr_Format(PyExc_ValueError, "field %U: %zd dimensions, expected at most %d", leaf->name,
                             n_dims, LEAF_DIMS_MAX);
                return -1;
        }
        for (leaf->n_dims = 0; leaf->n_dims < n_dims; leaf->n_dims++) {
                Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GetItem(leaf->shape, leaf->n_dims));

                if (size < 0 && PyErr_Occurred())
                        return -1;
                if (size < 0 || __builtin_mul_overflow(*elements, (size_t)size, elements)) {
                        PyErr_Format(PyExc_ValueError, "field %U: no shape is %R", leaf->name, leaf->shape);
                        return -1;
                }
                leaf->dims[leaf->n_dims] = size;
        }
        return 0;
}

static int init_kind(struct leaf *leaf, size_t elements) {
        if (leaf->kind == LEAF_TENSOR)
                return leaf_init_tensor(leaf, elements);
        if (leaf->kind == LEAF_ARRAY)
                return leaf_init_array(leaf, elements);
        leaf->bytes = leaf->kind == LEAF_BOOL ? 1 : 8;
        if (leaf->n_dims == 0)
                return 0;
        PyErr_Format(PyExc_ValueError, "field %U: a number of shape %R", leaf->name, leaf->shape);
        return -1;
}

int leaf_init(struct leaf *leaf, PyObject *spec) {
        PyObject *dtype, *shape, *name, *convert;
        const char *type, *kind;
        size_t elements;

        if (!PyArg_ParseTuple(spec, "sIsOO!UO:leaf", &type, &leaf->index, &kind, &dtype, &PyTuple_Type,
                              &shape, &name, &convert) ||
            find_kind(kind, &leaf->kind) < 0)
                return -1;
        Py_INCREF(name);
        leaf->name = name;
        Py_INCREF(dtype);
        leaf->dtype = dtype;
        Py_INCREF(shape);
        leaf->shape = shape;
        if (convert != Py_None) {
                Py_INCREF(convert);
                leaf->convert = convert;
        }
        return read_shape(leaf, &elements) < 0 ? -1 : init_kind(leaf, elements);
}

/* ---- values ---- */

static int store_int(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        int64_t number;

        if (!PyLong_Check(value))
                return leaf_refuse_type(leaf, sample, value, "int");
        number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred()) {
                PyErr_Clear();
                return leaf_refuse(leaf, sample, "a number that does not fit into int64");
        }
        memcpy(cell, &number, sizeof(number));
        return 0;
}

static int store_float(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        double number;

        if (!PyFloat_Check(value) && !PyLong_Check(value))
                return leaf_refuse_type(leaf, sample, value, "float");
        number = PyFloat_AsDouble(value);
        if (number == -1 && PyErr_Occurred()) {
                PyErr_Clear();
                return leaf_refuse(leaf, sample, "a number that does not fit into float64");
        }
        memcpy(cell, &number, sizeof(number));
        return 0;
}

static int store_bool(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        if (!PyBool_Check(value))
                return leaf_refuse_type(leaf, sample, value, "bool");
        *(uint8_t *)cell = value == Py_True;
        return 0;
}

static int store(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        switch (leaf->kind) {
        case LEAF_TENSOR:
                return leaf_store_tensor(leaf, value, cell, sample);
        case LEAF_ARRAY:
                return leaf_store_array(leaf, value, cell, sample);
        case LEAF_INT:
                return store_int(leaf, value, cell, sample);
        case LEAF_FLOAT:
                return store_float(leaf, value, cell, sample);
        default:
                return store_bool(leaf, value, cell, sample);
        }
}

int leaf_store(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        PyObject *converted;
        int r;

        if (!leaf->convert)
                return store(leaf, value, cell, sample);
        converted = PyObject_CallFunctionObjArgs(leaf->convert, value, NULL);
        if (!converted)
                return -1;
        r = store(leaf, converted, cell, sample);
        Py_DECREF(converted);
        return r;
}
