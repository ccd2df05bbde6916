/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job as Python sees it. Three things are different from the library's:
 *
 *   - A batch counts as received when it is accepted. next() gives the same one again until then, and place()
 * and state() tell of accepted batches only. So a KeyboardInterrupt between next() and the user's loop loses
 * nothing: the next attempt hands out what the first one could not.
 *   - When an epoch has ended, next() says None until somebody seeks, if only to where the job is already.
 * And accept() takes in that it has ended with the last batch, so that a loop which is left by `break` then
 * and one that runs to its end leave the job in the same place.
 *   - The interpreter is given up while something waits, and another thread may come in then. The library
 * allows one at a time: the second one gets an error (`busy`).
 *
 * Waiting is never longer than a caller's time-out; Python's signal handlers run between two calls. */

#include "client/python/extension.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

struct job {
        PyObject_HEAD struct session *session; /* NULL: not open */
        struct lease *taken;                   /* given by next() and not accepted, or NULL */
        PyObject *progress;                    /* called with a text while something waits */
        bool ended;                            /* the epoch has, and no other was asked for */
        bool busy;                             /* some thread is in the library with this job */
        uint32_t epoch;                        /* where it is after the last accepted batch */
        uint64_t row;
        uint64_t left;
        char state[PINFEED_STATE_MAX];
};

/* ---- arguments ---- */

/* For "O&": a whole number that fits, where "I" would cut it off. */
static int to_u32(PyObject *object, void *to) {
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

static int to_u64(PyObject *object, void *to) {
        *(uint64_t *)to = PyLong_AsUnsignedLongLong(object);
        return PyErr_Occurred() == NULL;
}

/* None leaves the seed to the pipeline. */
static int to_seed(PyObject *object, void *to) {
        struct pinfeed_attach *attach = to;

        attach->seed_given = object != Py_None;
        return attach->seed_given ? to_u64(object, &attach->seed) : 1;
}

static int read_attach(PyObject *args, PyObject *kwargs, struct pinfeed_attach *attach) {
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
                                NULL};

        return PyArg_ParseTupleAndKeywords(
                args, kwargs, "z|$zzzO&O&O&O&O&O&O&O&O&O&O&O&O&zzzz", names, &attach->pipeline,
                &attach->runtime_dir, &attach->name, &attach->group, to_u32, &attach->rank, to_u32,
                &attach->world_size, to_u32, &attach->batch_size, to_u32, &attach->max_held_batches, to_u32,
                &attach->last_batch, to_seed, attach, to_u32, &attach->timeout_ms, to_u32,
                &attach->reconnect_s, to_u32, &attach->start, to_u32, &attach->gather, to_u32,
                &attach->gather_timeout_ms, to_u32, &attach->group_size, to_u32, &attach->group_timeout_ms,
                &attach->definition, &attach->definition_file, &attach->daemon, &attach->state);
}

/* ---- state ---- */

static PyObject *raise_library(const struct pinfeed_job *job, int r) {
        return error_raise(r, *pinfeed_error(job) ? pinfeed_error(job) : strerror(-r));
}

/* Whether the job can be used now; if not, with an exception. */
static bool is_usable(struct job *self) {
        if (self->busy) {
                error_raise(-EALREADY, "another thread is using this loader; give each thread its own");
                return false;
        }
        if (!self->session) {
                error_raise(-EBADF, "the loader is closed");
                return false;
        }
        return true;
}

static void drop_taken(struct job *self) {
        if (self->taken)
                storage_unref(&self->taken->storage);
        self->taken = NULL;
}

/* All batches up to here are accepted. */
static void remember_place(struct job *self) {
        struct pinfeed_info info;

        pinfeed_job_info(self->session->job, &info);
        self->epoch = info.epoch;
        self->row = info.row;
        self->left = info.batches_left;
        if (pinfeed_job_state(self->session->job, self->state, sizeof(self->state)) < 0)
                self->state[0] = 0;
}

/* Called by the library while it waits, so without the interpreter, and perhaps in a thread of its own. */
static void on_progress(void *context, const char *text) {
        struct job *self = context;
        PyGILState_STATE state = PyGILState_Ensure();
        PyObject *result = PyObject_CallFunction(self->progress, "s", text);

        if (!result)
                PyErr_WriteUnraisable(self->progress);
        Py_XDECREF(result);
        PyGILState_Release(state);
}

/* ---- life ---- */

static PyObject *job_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
        static char *names[] = {"progress", NULL};
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        PyObject *progress;
        struct job *self;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &progress))
                return NULL;
        self = (struct job *)allocate(type, 0);
        if (!self)
                return NULL;
        Py_INCREF(progress);
        self->progress = progress;
        return (PyObject *)self;
}

/* Leaves, unless arrays in the ring are in use: then with the last of them (lease.c). */
static void leave(struct job *self) {
        struct session *session = self->session;

        drop_taken(self);
        self->session = NULL;
        session_unref(session);
}

static void job_dealloc(PyObject *object) {
        struct job *self = (struct job *)object;
        PyTypeObject *type = Py_TYPE(object);

        leave(self);
        Py_XDECREF(self->progress);
        PyObject_Free(object);
        Py_DECREF(type);
}

static PyObject *job_open(PyObject *object, PyObject *args, PyObject *kwargs) {
        struct pinfeed_attach attach = {.size = sizeof(attach)};
        struct job *self = (struct job *)object;
        struct pinfeed_job *job;
        PyThreadState *thread;
        int r;

        if (self->busy || self->session)
                return error_raise(-EALREADY, "the job is open");
        if (!read_attach(args, kwargs, &attach))
                return NULL;
        attach.progress = on_progress;
        attach.progress_context = self;
        self->busy = true;
        thread = PyEval_SaveThread();
        r = pinfeed_open(&job, &attach);
        PyEval_RestoreThread(thread);
        self->busy = false;
        if (r < 0) {
                raise_library(job, r);
                pinfeed_close(job);
                return NULL;
        }
        self->session = session_new(job);
        if (!self->session)
                return PyErr_NoMemory();
        remember_place(self);
        return Py_BuildValue(""); /* None */
}

static PyObject *job_close(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;

        if (self->session && !is_usable(self))
                return NULL;
        leave(self);
        return Py_BuildValue(""); /* None */
}

/* ---- batches ---- */

static PyObject *job_next(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        struct pinfeed_batch *batch;
        PyThreadState *thread;
        uint32_t timeout_ms;
        int r;

        if (!PyArg_ParseTuple(args, "O&", to_u32, &timeout_ms) || !is_usable(self))
                return NULL;
        if (self->taken)
                return batch_new(self->taken);
        if (self->ended)
                return Py_BuildValue(""); /* None */
        self->busy = true;
        thread = PyEval_SaveThread();
        r = pinfeed_next_timeout(self->session->job, &batch, timeout_ms);
        PyEval_RestoreThread(thread);
        self->busy = false;
        if (r < 0)
                return raise_library(self->session->job, r);
        if (r == 0) {
                self->ended = true;
                remember_place(self);
                return Py_BuildValue(""); /* None */
        }
        self->taken = lease_new(self->session, batch);
        return self->taken ? batch_new(self->taken) : PyErr_NoMemory();
}

static PyObject *job_accept(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;
        struct pinfeed_batch *none;
        uint32_t epoch;

        if (!is_usable(self))
                return NULL;
        if (!self->taken)
                return Py_BuildValue(""); /* None */
        epoch = pinfeed_batch_epoch(self->taken->batch);
        drop_taken(self);
        remember_place(self);
        self->ended = self->epoch != epoch;
        if (self->ended)
                (void)pinfeed_next_timeout(self->session->job, &none, 0); /* gives 0, which is known */
        return Py_BuildValue("");                                         /* None */
}

static PyObject *job_seek(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        uint64_t row;
        uint32_t epoch;
        int r = 0;

        if (!PyArg_ParseTuple(args, "O&O&", to_u32, &epoch, to_u64, &row) || !is_usable(self))
                return NULL;
        if (self->taken || self->epoch != epoch || self->row != row)
                r = pinfeed_job_seek(self->session->job, epoch, row);
        if (r < 0)
                return raise_library(self->session->job, r);
        drop_taken(self);
        self->ended = false;
        remember_place(self);
        return Py_BuildValue(""); /* None */
}

/* The daemon's answer to seek(), and where that leaves the job. */
static PyObject *job_sought(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        PyThreadState *thread;
        uint32_t timeout_ms;
        int r;

        if (!PyArg_ParseTuple(args, "O&", to_u32, &timeout_ms) || !is_usable(self))
                return NULL;
        self->busy = true;
        thread = PyEval_SaveThread();
        r = pinfeed_job_sought(self->session->job, timeout_ms);
        PyEval_RestoreThread(thread);
        self->busy = false;
        if (r < 0) {
                raise_library(self->session->job, r);
                remember_place(self);
                return NULL;
        }
        return Py_BuildValue(""); /* None */
}

static PyObject *job_failed(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;

        return PyBool_FromLong(self->session && pinfeed_job_failed(self->session->job) < 0);
}

/* ---- what it is ---- */

static PyObject *job_place(PyObject *object, PyObject *unused) {
        const struct job *self = (struct job *)object;

        return Py_BuildValue("(IKK)", self->epoch, (unsigned long long)self->row,
                             (unsigned long long)self->left);
}

static PyObject *job_state(PyObject *object, PyObject *unused) {
        return PyUnicode_FromString(((struct job *)object)->state);
}

static PyObject *job_info(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;
        struct pinfeed_info info;

        if (!is_usable(self))
                return NULL;
        pinfeed_job_info(self->session->job, &info);
        return Py_BuildValue("{s:I, s:K, s:K, s:K, s:I, s:I, s:i, s:s, s:s, s:I, s:I, s:I, s:I}", "job",
                             info.job, "samples", (unsigned long long)info.samples, "seed",
                             (unsigned long long)info.seed, "batches_per_epoch",
                             (unsigned long long)info.batches_per_epoch, "batch_size", info.batch_size,
                             "max_held_batches", info.max_held_batches, "daemon_pid", info.daemon_pid, "map",
                             info.map, "sharing", info.sharing, "rank", info.rank, "world_size",
                             info.world_size, "reconnects", info.reconnects, "last_batch", info.last_batch);
}

static PyObject *make_field(const struct pinfeed_field *field) {
        PyObject *shape = PyTuple_New(field->n_dims);

        for (uint32_t i = 0; shape && i < field->n_dims; i++) {
                PyObject *size = PyLong_FromUnsignedLongLong(field->shape[i]);

                if (!size || PyTuple_SetItem(shape, i, size) < 0) {
                        Py_DECREF(shape);
                        return NULL;
                }
        }
        return Py_BuildValue("(ssNO)", field->name, array_dtype_name(field->dtype), shape,
                             field->channels_last ? Py_True : Py_False);
}

static PyObject *job_fields(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;
        PyObject *list;

        if (!is_usable(self))
                return NULL;
        list = PyList_New(0);
        for (uint32_t i = 0; list && i < self->session->n_fields; i++) {
                PyObject *field = make_field(&self->session->fields[i]);

                if (!field || PyList_Append(list, field) < 0)
                        Py_CLEAR(list);
                Py_XDECREF(field);
        }
        return list;
}

static PyMethodDef job_methods[] = {
        {"open", (PyCFunction)(void (*)(void))job_open, METH_VARARGS | METH_KEYWORDS, "Attaches."},
        {"close", job_close, METH_NOARGS, "Leaves when no array in the ring is in use any more."},
        {"next", job_next, METH_VARARGS,
         "The next batch, the same until it is accepted; None: the epoch has ended."},
        {"accept", job_accept, METH_NOARGS, "The batch has been received."},
        {"seek", job_seek, METH_VARARGS, "Begins to read at an epoch and a row."},
        {"sought", job_sought, METH_VARARGS, "Waits until the daemon has said whether it can, or raises."},
        {"failed", job_failed, METH_NOARGS, "Whether nothing comes any more, whatever is tried."},
        {"place", job_place, METH_NOARGS, "(epoch, row, batches left of it)."},
        {"state", job_state, METH_NOARGS, "The same as a line of JSON."},
        {"info", job_info, METH_NOARGS, "struct pinfeed_info."},
        {"fields", job_fields, METH_NOARGS, "[(name, dtype, shape, channels_last)]."},
        {NULL},
};

static PyType_Slot job_slots[] = {
        {Py_tp_new, job_new},
        {Py_tp_dealloc, job_dealloc},
        {Py_tp_methods, job_methods},
        {Py_tp_doc, "Job(progress): a job of libpinfeed."},
        {0, NULL},
};

static PyType_Spec job_spec = {
        .name = "pinfeed._pinfeed.Job",
        .basicsize = sizeof(struct job),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = job_slots,
};

int job_init_type(PyObject *module) {
        PyObject *type = PyType_FromSpec(&job_spec);

        return type ? PyModule_AddObject(module, "Job", type) : -1;
}
