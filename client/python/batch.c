/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A batch as Python sees it: fields become arrays, in the slot or copied.
 *
 * It is one reference to the lease, and each array in the slot is one more, so the slot goes back to the
 * daemon with the last of them. A copy is made without the interpreter and holds no lease; while it is being
 * made, a reference of its own keeps the slot, whatever another thread does with this object.
 *
 * A copy to a GPU is only queued here. The library ends the lease when it has been made, so a batch that no
 * array lies in may be released at once. What is then left is this object, which says what the batch was and
 * keeps what Python has made of it until the batch is accepted (job.c). */

#include "client/python/extension.h"

#include "client/python/pool.h"

#include <errno.h>
#include <stdlib.h>

struct batch {
        PyObject_HEAD struct lease *lease;
        PyObject *kept; /* of Python's, or NULL; it must not refer to the batch */
};

static PyObject *batch_type;

PyObject *batch_new(struct lease *lease) {
        struct batch *self = PyObject_New(struct batch, (PyTypeObject *)batch_type);

        if (!self) {
                storage_unref(&lease->storage);
                return NULL;
        }
        self->lease = lease;
        self->kept = NULL;
        return (PyObject *)self;
}

uint32_t batch_epoch(PyObject *batch) {
        return ((struct batch *)batch)->lease->epoch;
}

/* The last reference to a job may end with it, and that waits for copies: perhaps for a function on a stream
 * that wants the interpreter. */
static void let_go(struct lease *lease) {
        PyThreadState *thread;

        if (atomic_load_explicit(&lease->session->references, memory_order_relaxed) > 1) {
                storage_unref(&lease->storage);
                return;
        }
        thread = PyEval_SaveThread();
        storage_unref(&lease->storage);
        PyEval_RestoreThread(thread);
}

/* In a fork's child what is kept stays for ever: tensors and events, whose end may be calls of the GPU's. */
static void batch_dealloc(PyObject *object) {
        struct batch *self = (struct batch *)object;
        PyTypeObject *type = Py_TYPE(object);

        if (self->kept && session_is_ours(self->lease->session))
                Py_DECREF(self->kept);
        let_go(self->lease);
        PyObject_Free(object);
        Py_DECREF(type);
}

/* ---- shapes ---- */

static void make_strides(struct shape *shape) {
        int64_t stride = 1;

        for (uint32_t i = shape->n_dims; i-- > 0;) {
                shape->strides[i] = stride;
                stride *= shape->sizes[i];
        }
}

/* What `rows` rows of a field are. Channels last: sizes say N, C, H, W, and the bytes lie N, H, W, C. */
static struct shape shape_of(const struct pinfeed_field *field, uint32_t rows) {
        struct shape shape = {.dtype = field->dtype, .n_dims = field->n_dims + 1, .sizes = {rows}};

        for (uint32_t i = 0; i < field->n_dims; i++)
                shape.sizes[i + 1] = (int64_t)field->shape[i];
        make_strides(&shape);
        if (field->channels_last) {
                shape.strides[1] = 1;
                shape.strides[3] = shape.sizes[1];
                shape.strides[2] = shape.sizes[1] * shape.sizes[3];
        }
        return shape;
}

/* The argument as the number of a field, or -1 with an exception. */
static int64_t read_field(const struct session *session, PyObject *argument) {
        unsigned long index = PyLong_AsUnsignedLong(argument);

        if (PyErr_Occurred())
                return -1;
        if (index < session->n_fields)
                return (int64_t)index;
        PyErr_Format(PyExc_IndexError, "there are %u fields, no number %lu", session->n_fields, index);
        return -1;
}

/* ---- in the slot ---- */

static PyObject *batch_slot(PyObject *object, PyObject *argument) {
        struct lease *lease = ((struct batch *)object)->lease;
        int64_t field = read_field(lease->session, argument);
        struct shape shape;
        uint32_t rows;
        const void *data;

        if (field < 0)
                return NULL;
        data = pinfeed_batch_data(lease->batch, 0, (uint32_t)field, &rows);
        if (!data || pinfeed_batch_segments(lease->batch) != 1) {
                PyErr_SetString(PyExc_ValueError, "the batch does not lie in one piece");
                return NULL;
        }
        shape = shape_of(&lease->session->fields[field], rows);
        return array_new(&shape, (void *)data, storage_ref(&lease->storage), true);
}

/* ---- copies ---- */

/* A part of a batch: a field, or what stands behind the fields. */
static int64_t copy_part(const struct pinfeed_batch *batch, uint32_t n_fields, uint32_t part, void *to,
                         size_t size) {
        if (part < n_fields)
                return pinfeed_batch_copy(batch, part, to, size);
        if (part == n_fields)
                return pinfeed_batch_copy_ids(batch, to, size);
        return pinfeed_batch_copy_flags(batch, to, size);
}

/* -1, with an exception: the library has no words for it. */
static int raise_unreadable(int r) {
        error_raise(r, r == -ECHILD ? "the batch cannot be copied: it belongs to another process"
                                    : "the batch cannot be copied: it has been released");
        return -1;
}

/* 0, or -1 with an exception. */
static int copy_freely(struct lease *lease, uint32_t part, void *to, size_t size) {
        PyThreadState *thread;
        int64_t r;

        storage_ref(&lease->storage);
        thread = PyEval_SaveThread();
        r = copy_part(lease->batch, lease->session->n_fields, part, to, size);
        storage_unref(&lease->storage);
        PyEval_RestoreThread(thread);
        if (r >= 0)
                return 0;
        return raise_unreadable((int)r);
}

static PyObject *copy_to_block(struct lease *lease, uint32_t part, const struct shape *shape) {
        struct block *block = pool_take(lease->session->pools[part]);
        size_t size = dlpack_size(shape->dtype);

        if (!block)
                return PyErr_NoMemory();
        for (uint32_t i = 0; i < shape->n_dims; i++)
                size *= (size_t)shape->sizes[i];
        if (copy_freely(lease, part, block->data, size) < 0) {
                storage_unref(&block->storage);
                return NULL;
        }
        return array_new(shape, block->data, &block->storage, false);
}

static PyObject *batch_copy(PyObject *object, PyObject *argument) {
        struct lease *lease = ((struct batch *)object)->lease;
        int64_t field = read_field(lease->session, argument);
        struct shape shape;

        if (field < 0)
                return NULL;
        shape = shape_of(&lease->session->fields[field], lease->rows);
        return copy_to_block(lease, (uint32_t)field, &shape);
}

static PyObject *batch_ids(PyObject *object, PyObject *unused) {
        struct lease *lease = ((struct batch *)object)->lease;
        struct shape shape = {PINFEED_INT64, 1, {lease->rows}, {1}};

        return copy_to_block(lease, lease->session->n_fields, &shape);
}

/* The flags, made 0 for padding and 1 for all else: bytes, for DLPack had no truth values for long. */
static PyObject *batch_valid(PyObject *object, PyObject *unused) {
        struct lease *lease = ((struct batch *)object)->lease;
        struct shape shape = {PINFEED_UINT8, 1, {lease->rows}, {1}};
        uint8_t *flags;
        PyObject *array;

        array = copy_to_block(lease, lease->session->n_fields + 1, &shape);
        if (!array)
                return NULL;
        flags = array_data(array);
        for (int64_t i = 0; i < shape.sizes[0]; i++)
                flags[i] = flags[i] != PINFEED_ROW_PADDING;
        return array;
}

/* Into somebody else's tensor, which is described by its capsule and not taken over. */
static PyObject *batch_copy_into(PyObject *object, PyObject *args) {
        struct lease *lease = ((struct batch *)object)->lease;
        PyObject *argument, *capsule;
        struct dlpack_managed *managed;
        struct shape shape;
        int64_t field;

        if (!PyArg_ParseTuple(args, "OO", &argument, &capsule))
                return NULL;
        field = read_field(lease->session, argument);
        managed = field < 0 ? NULL : PyCapsule_GetPointer(capsule, DLPACK_CAPSULE);
        if (!managed)
                return NULL;
        shape = shape_of(&lease->session->fields[field], lease->rows);
        if (!dlpack_matches(&managed->tensor, &shape)) {
                PyErr_SetString(PyExc_ValueError,
                                "the tensor has another type, shape or order than the field");
                return NULL;
        }
        if (copy_freely(lease, (uint32_t)field, (char *)managed->tensor.data + managed->tensor.byte_offset,
                        lease->session->fields[field].row_bytes * (size_t)shape.sizes[0]) < 0)
                return NULL;
        return Py_BuildValue(""); /* None */
}

/* ---- copies to the GPU ---- */

/* A tuple with an address or None for each field as `n` pointers, which are to be freed; NULL with an
 * exception. */
static void **read_pointers(PyObject *tuple, uint32_t n) {
        void **pointers;

        if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != (Py_ssize_t)n) {
                PyErr_Format(PyExc_ValueError,
                             "expected a tuple with an address or None for each of %u fields", n);
                return NULL;
        }
        pointers = calloc(n, sizeof(*pointers));
        if (!pointers)
                PyErr_NoMemory();
        for (uint32_t i = 0; pointers && i < n; i++) {
                PyObject *address = PyTuple_GetItem(tuple, i);

                if (address != Py_None)
                        pointers[i] = PyLong_AsVoidPtr(address);
                if (PyErr_Occurred()) {
                        free(pointers);
                        return NULL;
                }
        }
        return pointers;
}

/* It may wait: for a buffer of the library's, where slots are not page-locked. */
static int64_t queue_copies(struct lease *lease, void *const *pointers, void *stream) {
        struct session *session = lease->session;
        PyThreadState *thread;
        int64_t r;

        session->busy = true;
        thread = PyEval_SaveThread();
        r = pinfeed_batch_copy_all_async(lease->batch, pointers, stream);
        PyEval_RestoreThread(thread);
        session->busy = false;
        return r;
}

static PyObject *batch_copy_to_device(PyObject *object, PyObject *args) {
        struct lease *lease = ((struct batch *)object)->lease;
        PyObject *tuple, *handle;
        void **pointers, *stream;
        int64_t r;

        if (!PyArg_ParseTuple(args, "OO", &tuple, &handle))
                return NULL;
        stream = PyLong_AsVoidPtr(handle);
        if (PyErr_Occurred())
                return NULL;
        if (lease->session->busy)
                return job_raise_busy();
        if (!lease->batch || !session_is_ours(lease->session)) {
                raise_unreadable(lease->batch ? -ECHILD : -EINVAL);
                return NULL;
        }
        pointers = read_pointers(tuple, lease->session->n_fields);
        if (!pointers)
                return NULL;
        r = queue_copies(lease, pointers, stream);
        free(pointers);
        if (r < 0)
                return error_raise((int)r, pinfeed_error(lease->session->job));
        return PyLong_FromLongLong(r);
}

static PyObject *batch_release(PyObject *object, PyObject *unused) {
        lease_release(((struct batch *)object)->lease);
        return Py_BuildValue(""); /* None */
}

/* ---- what it is ---- */

static PyObject *batch_get_rows(PyObject *object, void *context) {
        return PyLong_FromUnsignedLong(((struct batch *)object)->lease->rows);
}

static PyObject *batch_get_epoch(PyObject *object, void *context) {
        return PyLong_FromUnsignedLong(batch_epoch(object));
}

static PyObject *batch_get_row(PyObject *object, void *context) {
        return PyLong_FromUnsignedLongLong(((struct batch *)object)->lease->row);
}

static PyObject *batch_get_segments(PyObject *object, void *context) {
        return PyLong_FromUnsignedLong(pinfeed_batch_segments(((struct batch *)object)->lease->batch));
}

static PyObject *batch_get_replaced(PyObject *object, void *context) {
        return PyLong_FromUnsignedLong(((struct batch *)object)->lease->replaced);
}

static PyObject *batch_get_kept(PyObject *object, void *context) {
        PyObject *kept = ((struct batch *)object)->kept;

        return kept ? Py_BuildValue("O", kept) : Py_BuildValue(""); /* None */
}

static int batch_set_kept(PyObject *object, PyObject *kept, void *context) {
        struct batch *self = (struct batch *)object;
        PyObject *before = self->kept;

        self->kept = kept == Py_None ? NULL : kept;
        Py_XINCREF(self->kept);
        Py_XDECREF(before);
        return 0;
}

static PyMethodDef batch_methods[] = {
        {"slot", batch_slot, METH_O, "A field in place. ValueError if the batch has several segments."},
        {"copy", batch_copy, METH_O, "A field, copied into memory that is used again when it is free."},
        {"copy_into", batch_copy_into, METH_VARARGS, "Copies a field into the tensor of a DLPack capsule."},
        {"ids", batch_ids, METH_NOARGS, "The rows' sample numbers, copied."},
        {"valid", batch_valid, METH_NOARGS, "A byte for each row: 0 for padding, else 1."},
        {"copy_to_device", batch_copy_to_device, METH_VARARGS,
         "Queues copies of all fields, each to an address or None, in a stream of the job's GPU."},
        {"release", batch_release, METH_NOARGS, "Ends the lease when the copies that are queued are made."},
        {NULL},
};

static PyGetSetDef batch_getset[] = {
        {"rows", batch_get_rows, NULL, "How many rows it has.", NULL},
        {"epoch", batch_get_epoch, NULL, "The epoch it is of.", NULL},
        {"row", batch_get_row, NULL, "Its first row in the epoch.", NULL},
        {"segments", batch_get_segments, NULL, "The pieces that it lies in.", NULL},
        {"replaced", batch_get_replaced, NULL, "How many rows hold a substitute.", NULL},
        {"kept", batch_get_kept, batch_set_kept, "What was put here, until the batch is accepted.", NULL},
        {NULL},
};

static PyType_Slot batch_slots[] = {
        {Py_tp_dealloc, batch_dealloc}, {Py_tp_methods, batch_methods},       {Py_tp_getset, batch_getset},
        {Py_tp_new, error_no_new},      {Py_tp_doc, "A batch that is held."}, {0, NULL},
};

static PyType_Spec batch_spec = {
        .name = "pinfeed._pinfeed.Batch",
        .basicsize = sizeof(struct batch),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = batch_slots,
};

int batch_init_type(PyObject *module) {
        batch_type = PyType_FromSpec(&batch_spec);
        if (!batch_type)
                return -1;
        Py_INCREF(batch_type);
        return PyModule_AddObject(module, "Batch", batch_type);
}
