/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which exception an errno becomes is a table in Python (pinfeed/errors.py), where it can be read and
 * documented; it is asked when something has gone wrong, and not before. */

#include "client/python/extension.h"

/* A text, or None for "". */
static const char *or_none(const char *text) {
        return *text ? text : NULL;
}

PyObject *error_describe(const struct pinfeed_job *job) {
        struct pinfeed_failure failure = {.size = sizeof(failure)};
        PyObject *sample, *worker, *pid;

        if (pinfeed_failure(job, &failure) < 0)
                return Py_BuildValue(""); /* None */
        sample = failure.sample_given ? PyLong_FromUnsignedLongLong(failure.sample) : Py_BuildValue("");
        worker = failure.pid ? PyLong_FromUnsignedLong(failure.worker) : Py_BuildValue("");
        pid = failure.pid ? PyLong_FromUnsignedLong(failure.pid) : Py_BuildValue("");
        return Py_BuildValue("{s:N, s:N, s:N, s:z, s:z, s:z}", "sample", sample, "worker", worker, "pid", pid,
                             "file", or_none(failure.file), "exception", or_none(failure.exception),
                             "traceback", or_none(failure.traceback));
}

PyObject *error_raise(int error, const char *text) {
        return error_raise_described(error, text, Py_None);
}

PyObject *error_raise_described(int error, const char *text, PyObject *failure) {
        PyObject *module = PyImport_ImportModule("pinfeed.errors");
        PyObject *exception = NULL;

        if (module)
                exception = PyObject_CallMethod(module, "make", "isO", -error, text, failure);
        if (exception)
                PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_XDECREF(exception);
        Py_XDECREF(module);
        return NULL;
}

PyObject *error_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
        PyErr_SetString(PyExc_TypeError, "objects of this type come from a pinfeed.Loader");
        return NULL;
}
