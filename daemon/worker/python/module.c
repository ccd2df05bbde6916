/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The extension module pinfeed._worker: a worker whose samples are made by a user's own code.
 *
 * It is the same worker as pinfeed-worker, from session.c down: order, substitutes, recall, the page that
 * tells what is in work. Only where a source makes a sample does an interpreter take over (functions.c), and
 * there the usual case, a dataset whose samples are nests of tensors, arrays and numbers, is C again, up to
 * the call of the user's function (rows.c): with some microseconds a sample Python itself would be the
 * slowest part of many a dataset. */

#include "daemon/worker/python/worker.h"

#include "proto/order.h"

#include <inttypes.h>

#define SAMPLES_MAX (UINT64_C(1) << 48)

/* A whole number in [least, most], as PyArg_ParseTuple's O& wants it. */
static int parse_u64(PyObject *object, void *number) {
        uint64_t value = PyLong_AsUnsignedLongLong(object);

        if (value == UINT64_MAX && PyErr_Occurred())
                return 0;
        *(uint64_t *)number = value;
        return 1;
}

static int parse_u32(PyObject *object, void *number) {
        uint64_t value;

        if (!parse_u64(object, &value))
                return 0;
        *(uint32_t *)number = (uint32_t)value;
        if (value <= UINT32_MAX)
                return 1;
        PyErr_Format(PyExc_OverflowError, "expected a number below 2**32, got %llu", value);
        return 0;
}

static int parse_samples(PyObject *object, void *number) {
        uint64_t *samples = number;

        if (!parse_u64(object, samples))
                return 0;
        if (*samples <= SAMPLES_MAX)
                return 1;
        PyErr_Format(PyExc_OverflowError, "expected at most 2**48 samples, got %llu", *samples);
        return 0;
}

static PyObject *run(PyObject *module, PyObject *args) {
        PyObject *start, *open = NULL;
        uint64_t samples;
        int socket;

        if (!PyArg_ParseTuple(args, "iO&O|O", &socket, parse_samples, &samples, &start, &open))
                return NULL;
        if (functions_run(socket, samples, start, open) < 0)
                return NULL;
        return Py_BuildValue(""); /* None */
}

static PyObject *explain(PyObject *module, PyObject *exception) {
        if (PyExceptionInstance_Check(exception))
                return exception_explain(exception);
        return PyErr_Format(PyExc_TypeError, "expected an exception, got %R", exception);
}

static PyObject *leash(PyObject *module, PyObject *args, PyObject *kwargs) {
        static char *names[] = {"fd", "with_parent", NULL};
        int fd, with_parent = 1;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|p", names, &fd, &with_parent))
                return NULL;
        if (leash_put_on(fd, with_parent) < 0)
                return NULL;
        return Py_BuildValue(""); /* None */
}

static PyObject *seed_sample(PyObject *module, PyObject *args, PyObject *kwargs) {
        static char *names[] = {"seed", "epoch", "sample", "directly", NULL};
        uint64_t seed, sample;
        int directly = 1;
        uint32_t epoch;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&O&|p", names, parse_u64, &seed, parse_u32, &epoch,
                                         parse_samples, &sample, &directly))
                return NULL;
        if (randomness_seed(seed, epoch, sample, directly) < 0)
                return NULL;
        return Py_BuildValue(""); /* None */
}

static PyObject *sample_key(PyObject *module, PyObject *unused) {
        uint8_t key[RANDOMNESS_KEY_BYTES];

        if (!randomness_key(key))
                return Py_BuildValue(""); /* None */
        return PyBytes_FromStringAndSize((const char *)key, sizeof(key));
}

static PyObject *order(PyObject *module, PyObject *args) {
        uint64_t samples, seed, first, count;
        struct order permutation;
        PyObject *bytes;
        int64_t *entry;
        uint32_t epoch;

        if (!PyArg_ParseTuple(args, "O&O&O&O&O&", parse_samples, &samples, parse_u64, &seed, parse_u32,
                              &epoch, parse_u64, &first, parse_u64, &count))
                return NULL;
        if (samples == 0 || first > samples || count > samples - first)
                return PyErr_Format(PyExc_ValueError, "rows %llu to %llu + %llu of an epoch of %llu", first,
                                    first, count, samples);
        if (count > PY_SSIZE_T_MAX / sizeof(int64_t))
                return PyErr_NoMemory();
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
        if (!bytes)
                return NULL;
        entry = (int64_t *)PyBytes_AsString(bytes);
        order_init(&permutation, samples, seed, epoch);
        for (uint64_t i = 0; i < count; i++)
                entry[i] = (int64_t)order_sample(&permutation, first + i);
        return bytes;
}

static PyMethodDef module_methods[] = {
        {"run", run, METH_VARARGS,
         "run(socket, samples, start, open=None): works for the daemon at `socket` until it is closed. "
         "open(recipe, layout): is given SETUP's texts, and says how many samples there are."},
        {"explain", explain, METH_O,
         "explain(exception): (errno, text, type, traceback), as the daemon is told of it."},
        {"leash", (PyCFunction)(void (*)(void))leash, METH_VARARGS | METH_KEYWORDS,
         "leash(fd, with_parent=True): SIGKILL for this process when nobody can write to the pipe any more."},
        {"seed_sample", (PyCFunction)(void (*)(void))seed_sample, METH_VARARGS | METH_KEYWORDS,
         "seed_sample(seed, epoch, sample): sets the global generators of random, NumPy and torch."},
        {"sample_key", sample_key, METH_NOARGS,
         "32 bytes of random numbers of the sample that was seeded last, or None."},
        {"order", order, METH_VARARGS,
         "order(samples, seed, epoch, first, count): the samples at these rows, int64 as bytes."},
        {NULL},
};

static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, .m_name = "pinfeed._worker",
                                               .m_size = -1, .m_methods = module_methods};

PyMODINIT_FUNC PyInit__worker(void);

PyMODINIT_FUNC PyInit__worker(void) {
        PyObject *module = PyModule_Create(&module_definition);

        if (!module)
                return NULL;
        if (rows_init_type(module) == 0)
                return module;
        Py_DECREF(module);
        return NULL;
}
