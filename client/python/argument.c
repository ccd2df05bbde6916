/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Arguments as they come from Python. Numbers are converted by functions of ours, for "O&", since
 * PyArg_Parse's own "I" and "K" cut off what does not fit. Whether values make sense is the library's to say.
 */

#include "client/python/extension.h"

#include <stdint.h>

int argument_u32(PyObject *object, void *to) {
        unsigned long long value = PyLong_AsUnsignedLongLong(object);

        if (PyErr_Occurred())
                return 0;
        if (value > UINT32_MAX) {
                PyErr_Format(PyExc_ValueError, "%llu is more than 4294967295", value);
                return 0;
        }
        *(uint32_t *)to = (uint32_t)value;
        return 1;
}

int argument_u64(PyObject *object, void *to) {
        *(uint64_t *)to = PyLong_AsUnsignedLongLong(object);
        return PyErr_Occurred() == NULL;
}

/* None leaves the seed to the pipeline. */
static int to_seed(PyObject *object, void *to) {
        struct pinfeed_attach *attach = to;

        attach->seed_given = object != Py_None;
        return attach->seed_given ? argument_u64(object, &attach->seed) : 1;
}

/* (descriptor, number), for the argument `what`. */
static int to_pair(PyObject *object, const char *what, int *fd, int to(PyObject *, void *), void *number) {
        if (PyTuple_Check(object))
                return PyArg_ParseTuple(object, "iO&", fd, to, number);
        PyErr_Format(PyExc_TypeError, "%s: expected a tuple", what);
        return 0;
}

static int to_zygote(PyObject *object, void *to) {
        struct pinfeed_attach *attach = to;

        return object == Py_None ||
               to_pair(object, "zygote", &attach->zygote_fd, argument_u32, &attach->zygote_pid);
}

static int to_order(PyObject *object, void *to) {
        struct pinfeed_attach *attach = to;

        return object == Py_None ||
               to_pair(object, "order", &attach->order_fd, argument_u64, &attach->order_entries);
}

int argument_attach(PyObject *args, PyObject *kwargs, struct pinfeed_attach *attach) {
        static char *names[] = {"pipeline",
                                "runtime_dir",
                                "name",
                                "group",
                                "rank",
                                "world_size",
                                "batch_size",
                                "max_held_batches",
                                "last_batch",
                                "seed",
                                "timeout_ms",
                                "reconnect_s",
                                "start",
                                "gather",
                                "gather_timeout_ms",
                                "group_size",
                                "group_timeout_ms",
                                "definition",
                                "definition_file",
                                "daemon",
                                "state",
                                "device",
                                "pin",
                                "cuda_runtime",
                                "zygote",
                                "order",
                                "start_epoch",
                                "start_row",
                                NULL};

        return PyArg_ParseTupleAndKeywords(
                args, kwargs, "z|$zzzO&O&O&O&O&O&O&O&O&O&O&O&O&zzzzzO&zO&O&O&O&", names, &attach->pipeline,
                &attach->runtime_dir, &attach->name, &attach->group, argument_u32, &attach->rank,
                argument_u32, &attach->world_size, argument_u32, &attach->batch_size, argument_u32,
                &attach->max_held_batches, argument_u32, &attach->last_batch, to_seed, attach, argument_u32,
                &attach->timeout_ms, argument_u32, &attach->reconnect_s, argument_u32, &attach->start,
                argument_u32, &attach->gather, argument_u32, &attach->gather_timeout_ms, argument_u32,
                &attach->group_size, argument_u32, &attach->group_timeout_ms, &attach->definition,
                &attach->definition_file, &attach->daemon, &attach->state, &attach->device, argument_u32,
                &attach->pin, &attach->cuda_runtime, to_zygote, attach, to_order, attach, argument_u32,
                &attach->start_epoch, argument_u64, &attach->start_row);
}
