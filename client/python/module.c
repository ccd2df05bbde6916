/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The extension module pinfeed._pinfeed: what of the package has to be C, which is the library's calls and
 * memory whose end is not Python's. Everything a user sees is Python above it.
 *
 * One binary serves every CPython from 3.9 on (stable ABI). Its types are made once and kept in variables of
 * their files: the 3.9 part of that ABI cannot find a module from its type. */

#include "client/python/extension.h"

#include <limits.h>

static PyObject *runtime_dir(PyObject *module, PyObject *args) {
        char path[PATH_MAX];
        const char *given;
        int r;

        if (!PyArg_ParseTuple(args, "z", &given))
                return NULL;
        r = pinfeed_runtime_dir(path, sizeof(path), given);
        if (r < 0)
                return error_raise(r, "the runtime directory's path is too long");
        return PyUnicode_DecodeFSDefault(path);
}

static PyObject *check_server(PyObject *module, PyObject *args) {
        const char *directory;
        char text[512];
        int socket, r;

        if (!PyArg_ParseTuple(args, "is", &socket, &directory))
                return NULL;
        r = pinfeed_check_server(socket, directory, text, sizeof(text));
        return r < 0 ? error_raise(r, text) : Py_BuildValue("");
}

static PyMethodDef module_methods[] = {
        {"check_server", check_server, METH_VARARGS, "Raises unless who listens there may be believed."},
        {"runtime_dir", runtime_dir, METH_VARARGS, "The directory of the daemon's sockets."},
        {NULL},
};

static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, .m_name = "pinfeed._pinfeed",
                                               .m_size = -1, .m_methods = module_methods};

PyMODINIT_FUNC PyInit__pinfeed(void);

PyMODINIT_FUNC PyInit__pinfeed(void) {
        PyObject *module = PyModule_Create(&module_definition);

        if (!module)
                return NULL;
        if (array_init_type(module) == 0 && batch_init_type(module) == 0 && job_init_type(module) == 0 &&
            PyModule_AddStringConstant(module, "version", pinfeed_version()) == 0)
                return module;
        Py_DECREF(module);
        return NULL;
}
