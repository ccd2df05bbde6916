/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A piece of a batch, offered to whoever can take it: NumPy by __array_interface__, all others by DLPack. It
 * has no operations of its own. (The buffer protocol would be the third way; the stable ABI has it from 3.11
 * on only.)
 *
 * Each taker holds the storage: NumPy by holding this object, a tensor by a reference of its own, so that
 * this object may go before the tensor does.
 *
 * Slots are mapped read-only. NumPy and DLPack from version 1.0 on can say so; a DLPack of before cannot, and
 * who writes to such a tensor is stopped by the processor. It is given all the same, to who asks for it. */

#include "client/python/extension.h"

struct array {
        PyObject_HEAD struct storage *storage;
        void *data;
        bool read_only;
        struct shape shape;
};

static PyObject *array_type;

static const struct {
        const char *name, *numpy;
} array_types[] = {
        [PINFEED_UINT8] = {"uint8", "|u1"},       [PINFEED_INT32] = {"int32", "<i4"},
        [PINFEED_INT64] = {"int64", "<i8"},       [PINFEED_FLOAT16] = {"float16", "<f2"},
        [PINFEED_BFLOAT16] = {"bfloat16", "<u2"}, /* NumPy has none: its bits */
        [PINFEED_FLOAT32] = {"float32", "<f4"},   [PINFEED_FLOAT64] = {"float64", "<f8"},
};

const char *array_dtype_name(enum pinfeed_dtype dtype) {
        return array_types[dtype].name;
}

PyObject *array_new(const struct shape *shape, void *data, struct storage *storage, bool read_only) {
        struct array *self = PyObject_New(struct array, (PyTypeObject *)array_type);

        if (!self) {
                storage_unref(storage);
                return NULL;
        }
        self->storage = storage;
        self->data = data;
        self->read_only = read_only;
        self->shape = *shape;
        return (PyObject *)self;
}

void *array_data(PyObject *array) {
        return ((struct array *)array)->data;
}

static void array_dealloc(PyObject *object) {
        PyTypeObject *type = Py_TYPE(object);

        storage_unref(((struct array *)object)->storage);
        PyObject_Free(object);
        Py_DECREF(type);
}

static PyObject *make_tuple(const int64_t *values, uint32_t n, int64_t factor) {
        PyObject *tuple = PyTuple_New(n);

        for (uint32_t i = 0; tuple && i < n; i++) {
                PyObject *value = PyLong_FromLongLong(values[i] * factor);

                if (!value || PyTuple_SetItem(tuple, i, value) < 0) {
                        Py_DECREF(tuple);
                        return NULL;
                }
        }
        return tuple;
}

static PyObject *array_get_shape(PyObject *object, void *context) {
        const struct shape *shape = &((struct array *)object)->shape;

        return make_tuple(shape->sizes, shape->n_dims, 1);
}

static PyObject *array_get_dtype(PyObject *object, void *context) {
        return PyUnicode_FromString(array_dtype_name(((struct array *)object)->shape.dtype));
}

static PyObject *array_get_read_only(PyObject *object, void *context) {
        return PyBool_FromLong(((struct array *)object)->read_only);
}

static PyObject *array_get_interface(PyObject *object, void *context) {
        const struct array *self = (struct array *)object;
        const struct shape *shape = &self->shape;

        return Py_BuildValue("{s:N, s:N, s:s, s:(NN), s:i}", "shape",
                             make_tuple(shape->sizes, shape->n_dims, 1), "strides",
                             make_tuple(shape->strides, shape->n_dims, (int64_t)dlpack_size(shape->dtype)),
                             "typestr", array_types[shape->dtype].numpy, "data",
                             PyLong_FromVoidPtr(self->data), PyBool_FromLong(self->read_only), "version", 3);
}

/* ---- DLPack ---- */

/* Capsules that nobody has taken over; a taken one has another name. */
static void drop_managed(PyObject *capsule) {
        struct dlpack_managed *managed;

        if (!PyCapsule_IsValid(capsule, DLPACK_CAPSULE))
                return;
        managed = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE);
        managed->deleter(managed);
}

static void drop_versioned(PyObject *capsule) {
        struct dlpack_versioned *managed;

        if (!PyCapsule_IsValid(capsule, DLPACK_CAPSULE_VERSIONED))
                return;
        managed = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE_VERSIONED);
        managed->deleter(managed);
}

static PyObject *make_managed(struct array *self) {
        struct dlpack_managed *managed = dlpack_export(&self->shape, self->data, self->storage);
        PyObject *capsule;

        if (!managed)
                return PyErr_NoMemory();
        capsule = PyCapsule_New(managed, DLPACK_CAPSULE, drop_managed);
        if (!capsule)
                managed->deleter(managed);
        return capsule;
}

static PyObject *make_versioned(struct array *self) {
        struct dlpack_versioned *managed = dlpack_export_versioned(&self->shape, self->data, self->storage,
                                                                   self->read_only ? DLPACK_READ_ONLY : 0);
        PyObject *capsule;

        if (!managed)
                return PyErr_NoMemory();
        capsule = PyCapsule_New(managed, DLPACK_CAPSULE_VERSIONED, drop_versioned);
        if (!capsule)
                managed->deleter(managed);
        return capsule;
}

/* 0, or -1 with an exception: the consumer wants it somewhere else. */
static int check_device(PyObject *device) {
        int type, id;

        if (device == Py_None)
                return 0;
        if (!PyArg_ParseTuple(device, "ii", &type, &id))
                return -1;
        if (type == DLPACK_CPU)
                return 0;
        PyErr_Format(PyExc_BufferError, "the batch is in host memory (DLPack device 1), not on device %d",
                     type);
        return -1;
}

static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs) {
        static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
        PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
        int major = 0, minor = 0;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", names, &stream, &version, &device, &copy))
                return NULL;
        if (check_device(device) < 0 ||
            (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)))
                return NULL;
        if (copy == Py_True) {
                PyErr_SetString(PyExc_BufferError, "pinfeed gives the batch itself; copy it where it goes");
                return NULL;
        }
        return major >= DLPACK_MAJOR ? make_versioned((struct array *)object)
                                     : make_managed((struct array *)object);
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *unused) {
        return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}

static PyMethodDef array_methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
         "The memory as a DLPack capsule."},
        {"__dlpack_device__", array_dlpack_device, METH_NOARGS, "(1, 0): host memory."},
        {NULL},
};

static PyGetSetDef array_getset[] = {
        {"shape", array_get_shape, NULL, "Rows, and the shape of one.", NULL},
        {"dtype", array_get_dtype, NULL, "The type's name.", NULL},
        {"read_only", array_get_read_only, NULL, "Whether it lies in the ring, where nobody may write.",
         NULL},
        {"__array_interface__", array_get_interface, NULL, "NumPy's array interface, version 3.", NULL},
        {NULL},
};

static PyType_Slot array_slots[] = {
        {Py_tp_dealloc, array_dealloc},
        {Py_tp_methods, array_methods},
        {Py_tp_getset, array_getset},
        {Py_tp_new, error_no_new},
        {Py_tp_doc, "A field of a batch, for numpy.asarray and DLPack's from_dlpack."},
        {0, NULL},
};

static PyType_Spec array_spec = {
        .name = "pinfeed.Array",
        .basicsize = sizeof(struct array),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = array_slots,
};

int array_init_type(PyObject *module) {
        array_type = PyType_FromSpec(&array_spec);
        if (!array_type)
                return -1;
        Py_INCREF(array_type);
        return PyModule_AddObject(module, "Array", array_type);
}
