/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which exception an errno becomes is a table in Python (pinfeed/errors.py), where it can be read and
 * documented; it is asked when something has gone wrong, and not before. */

#include "client/python/extension.h"

PyObject *error_raise(int error, const char *text) {
        PyObject *module = PyImport_ImportModule("pinfeed.errors");
        PyObject *exception = NULL;

        if (module)
                exception = PyObject_CallMethod(module, "make", "is", -error, text);
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
