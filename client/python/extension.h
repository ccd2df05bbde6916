#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of the extension module share. It keeps to CPython's stable ABI of 3.9. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "client/python/dlpack.h"
#include "client/python/lease.h"

#include <stdint.h>

/* ---- error.c ---- */

/* Raises the pinfeed.Error that belongs to a negative errno. Returns NULL. */
PyObject *error_raise(int error, const char *text);

/* What errors.make takes of the sample behind pinfeed_error: a dict; None: that is not about one. */
PyObject *error_describe(const struct pinfeed_job *job);

/* Raises as error_raise does, with what error_describe gave. Returns NULL. */
PyObject *error_raise_described(int error, const char *text, PyObject *failure);

/* tp_new of types whose objects only other objects make. */
PyObject *error_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* ---- argument.c ---- */

/* For "O&": a whole number that fits into a uint32_t, a uint64_t. */
int argument_u32(PyObject *object, void *to);
int argument_u64(PyObject *object, void *to);

/* What Job.open takes; texts are the arguments'. 0 with an exception. */
int argument_attach(PyObject *args, PyObject *kwargs, struct pinfeed_attach *attach);

/* ---- array.c ---- */

int array_init_type(PyObject *module);

/* "float32" */
const char *array_dtype_name(enum pinfeed_dtype dtype);

/* Takes over a reference to the storage, also when it fails. */
PyObject *array_new(const struct shape *shape, void *data, struct storage *storage, bool read_only);
void *array_data(PyObject *array);

/* ---- batch.c ---- */

int batch_init_type(PyObject *module);

/* Takes over a reference to the lease, also when it fails. */
PyObject *batch_new(struct lease *lease);
uint32_t batch_epoch(PyObject *batch);

/* ---- job.c ---- */

int job_init_type(PyObject *module);

/* What a second thread is told. Returns NULL. */
PyObject *job_raise_busy(void);
