/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Tensors by their public attributes: no header of torch's is needed, and any version will do. Five of them
 * are asked for a tensor, some 40 ns each; the bytes are then copied from where data_ptr() says.
 *
 * That is memory of this process only for a dense tensor on the CPU, so both are made sure of: is_cpu leaves
 * out CUDA and meta, a sparse tensor has no data_ptr(), and a quantised one has another dtype. A tensor may
 * also be a negative view: its elements then mean the opposite of what memory holds. Nothing contiguous is
 * one, except for the imaginary part of a conjugated single number. */

#include "daemon/worker/python/leaf.h"

#include <string.h>

static struct {
        PyObject *tensor, *strided; /* torch.Tensor, torch.strided; NULL: not found yet */
        PyObject *dtype, *shape, *is_cpu, *is_contiguous, *contiguous, *data_ptr, *is_neg, *resolve_neg;
} torch;

static int find_torch(PyObject *module) {
        static const struct {
                const char *text;
                PyObject **name;
        } names[] = {
                {"dtype", &torch.dtype},           {"shape", &torch.shape},
                {"is_cpu", &torch.is_cpu},         {"is_contiguous", &torch.is_contiguous},
                {"contiguous", &torch.contiguous}, {"data_ptr", &torch.data_ptr},
                {"is_neg", &torch.is_neg},         {"resolve_neg", &torch.resolve_neg},
        };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (!*names[i].name && !(*names[i].name = PyUnicode_InternFromString(names[i].text)))
                        return -1;
        if (!torch.tensor)
                torch.tensor = PyObject_GetAttrString(module, "Tensor");
        if (!torch.strided)
                torch.strided = PyObject_GetAttrString(module, "strided");
        return torch.tensor && torch.strided ? 0 : -1;
}

/* Bytes of an element; torch.dtype itself says so only in newer versions. */
static int measure_element(PyObject *module, PyObject *dtype, size_t *bytes) {
        PyObject *empty = PyObject_CallMethod(module, "empty", "i", 0), *cast = NULL, *size = NULL;
        int r = -1;

        if (empty)
                cast = PyObject_CallMethod(empty, "to", "O", dtype);
        if (cast)
                size = PyObject_CallMethod(cast, "element_size", NULL);
        if (size) {
                *bytes = PyLong_AsSize_t(size);
                r = PyErr_Occurred() ? -1 : 0;
        }
        Py_XDECREF(empty);
        Py_XDECREF(cast);
        Py_XDECREF(size);
        return r;
}

int leaf_init_tensor(struct leaf *leaf, size_t elements) {
        PyObject *module = PyImport_ImportModule("torch");
        size_t size;
        int r = -1;

        if (module && find_torch(module) == 0)
                r = measure_element(module, leaf->dtype, &size);
        Py_XDECREF(module);
        if (r < 0)
                return -1;
        if (!__builtin_mul_overflow(elements, size, &leaf->bytes))
                return 0;
        PyErr_Format(PyExc_ValueError, "field %U: no tensor has the shape %R", leaf->name, leaf->shape);
        return -1;
}

/* ---- what does not fit ---- */

static int refuse_dtype(const struct leaf *leaf, PyObject *dtype, uint64_t sample) {
        return leaf_refuse(leaf, sample, "dtype %S, where the first samples have %S", dtype, leaf->dtype);
}

static int refuse_shape(const struct leaf *leaf, PyObject *shape, uint64_t sample) {
        PyObject *tuple = PySequence_Tuple(shape); /* torch.Size would show as one */

        if (tuple)
                leaf_refuse(leaf, sample, "shape %R, where the first samples have %R", tuple, leaf->shape);
        Py_XDECREF(tuple);
        return -1;
}

static int refuse_device(const struct leaf *leaf, PyObject *value, uint64_t sample) {
        PyObject *device = PyObject_GetAttrString(value, "device");

        if (device)
                leaf_refuse(leaf, sample, "a tensor on %S, expected one on the CPU: return value.cpu()",
                            device);
        Py_XDECREF(device);
        return -1;
}

/* A method of the tensor has raised. A sparse one has no memory in rows, and says so in many ways. */
static int refuse_layout(const struct leaf *leaf, PyObject *value, uint64_t sample) {
        PyObject *type, *error, *traceback, *layout;

        PyErr_Fetch(&type, &error, &traceback);
        layout = PyObject_GetAttrString(value, "layout");
        PyErr_Clear();
        if (!layout || layout == torch.strided) {
                PyErr_Restore(type, error, traceback);
        } else {
                leaf_refuse(leaf, sample,
                            "a tensor of layout %S, expected a dense one: return value.to_dense()", layout);
                Py_XDECREF(type);
                Py_XDECREF(error);
                Py_XDECREF(traceback);
        }
        Py_XDECREF(layout);
        return -1;
}

/* ---- storing ---- */

static bool attribute_is(PyObject *value, PyObject *name, PyObject *expected) {
        PyObject *attribute = PyObject_GetAttr(value, name);

        Py_XDECREF(attribute); /* an object that lives on without it: a dtype, True */
        return attribute == expected;
}

/* 1, 0, or -1 with an exception. */
static int ask(PyObject *value, PyObject *method) {
        PyObject *answer = PyObject_CallMethodObjArgs(value, method, NULL);
        int yes = answer ? PyObject_IsTrue(answer) : -1;

        Py_XDECREF(answer);
        return yes;
}

static int check_shape(const struct leaf *leaf, PyObject *value, uint64_t sample) {
        PyObject *shape = PyObject_GetAttr(value, torch.shape);
        int same = shape ? PyObject_RichCompareBool(shape, leaf->shape, Py_EQ) : -1, r = 0;

        if (same == 0)
                r = refuse_shape(leaf, shape, sample);
        Py_XDECREF(shape);
        return same < 0 ? -1 : r;
}

static int check_tensor(const struct leaf *leaf, PyObject *value, uint64_t sample) {
        PyObject *dtype;
        int r;

        if ((PyObject *)Py_TYPE(value) != torch.tensor) {
                r = PyObject_IsInstance(value, torch.tensor);
                if (r <= 0)
                        return r < 0 ? -1 : leaf_refuse_type(leaf, sample, value, "Tensor");
        }
        if (!attribute_is(value, torch.dtype, leaf->dtype)) {
                dtype = PyErr_Occurred() ? NULL : PyObject_GetAttr(value, torch.dtype);
                r = dtype ? refuse_dtype(leaf, dtype, sample) : -1;
                Py_XDECREF(dtype);
                return r;
        }
        if (check_shape(leaf, value, sample) < 0)
                return -1;
        if (attribute_is(value, torch.is_cpu, Py_True))
                return 0;
        return PyErr_Occurred() ? -1 : refuse_device(leaf, value, sample);
}

/* From a tensor that is as it should be, contiguous and no view with a meaning of its own. */
static int copy(const struct leaf *leaf, PyObject *value, void *cell) {
        PyObject *number = PyObject_CallMethodObjArgs(value, torch.data_ptr, NULL);
        const void *data = number ? PyLong_AsVoidPtr(number) : NULL;

        Py_XDECREF(number);
        if (!data && PyErr_Occurred())
                return -1;
        if (leaf->bytes > 0)
                memcpy(cell, data, leaf->bytes);
        return 0;
}

/* The same after a method has made a better tensor of it. */
static int copy_from(const struct leaf *leaf, PyObject *value, PyObject *method, void *cell) {
        PyObject *better = PyObject_CallMethodObjArgs(value, method, NULL);
        int r = better ? copy(leaf, better, cell) : -1;

        Py_XDECREF(better);
        return r;
}

/* The tensor is of the right type, dtype, shape and device. */
static int store(const struct leaf *leaf, PyObject *value, void *cell) {
        int contiguous = ask(value, torch.is_contiguous), negative = 0;

        if (contiguous < 0)
                return -1;
        if (!contiguous)
                return copy_from(leaf, value, torch.contiguous, cell);
        if (leaf->bytes <= sizeof(double))
                negative = ask(value, torch.is_neg);
        if (negative != 0)
                return negative < 0 ? -1 : copy_from(leaf, value, torch.resolve_neg, cell);
        return copy(leaf, value, cell);
}

int leaf_store_tensor(const struct leaf *leaf, PyObject *value, void *cell, uint64_t sample) {
        if (check_tensor(leaf, value, sample) < 0)
                return -1;
        return store(leaf, value, cell) < 0 ? refuse_layout(leaf, value, sample) : 0;
}
