/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job as Python sees it. Three things are different from the library's:
 *
 *   - A batch counts as received when it is accepted. next() gives the same one again until then, and place()
 * and state() tell of accepted batches only. So a KeyboardInterrupt between next() and the user's loop loses
 * nothing: the next attempt hands out what the first one could not.
 *   - The one after it may be had before, if it is there: ahead() gives it, again and again, and next() does
 * so when the first one has been accepted. Each of the two has beside it where the job is after it, for the
 * library tells only of the last one that it has handed over. What ahead() meets with is said by next() when
 * it comes to it; some of it the library says only once.
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
#include <stdlib.h>
#include <string.h>

/* Where a job is. */
struct place {
        uint32_t epoch;
        uint64_t row;
        uint64_t left; /* batches of the epoch from there on */
        char state[PINFEED_STATE_MAX];
};

/* A batch that the library has handed over and that is not accepted. */
struct taken {
        PyObject *batch; /* NULL: there is none */
        struct place after;
};

struct job {
        PyObject_HEAD struct session *session; /* NULL: not open */
        struct taken next, ahead;              /* the second one only if there is the first */
        PyObject *progress;                    /* called with a text while something waits */
        bool ended;                            /* the epoch has, and no other was asked for */
        bool unsaid;                           /* the library has still to say that it has */
        bool opening;                          /* some thread is in open() */
        int error;                             /* that ahead() has met with, or 0 */
        char *words;                           /* of it */
        PyObject *failure;                     /* of it: what error_describe gave; NULL with no error */
        struct place here;                     /* after the last accepted batch */
};

/* ---- state ---- */

static PyObject *raise_library(const struct pinfeed_job *job, int r) {
        PyObject *failure = error_describe(job);

        if (failure)
                error_raise_described(r, *pinfeed_error(job) ? pinfeed_error(job) : strerror(-r), failure);
        Py_XDECREF(failure);
        return NULL;
}

PyObject *job_raise_busy(void) {
        return error_raise(-EALREADY, "another thread is using this loader; give each thread its own");
}

/* Whether the job can be used now; if not, with an exception. */
static bool is_usable(struct job *self) {
        if (self->opening || (self->session && self->session->busy)) {
                job_raise_busy();
                return false;
        }
        if (!self->session) {
                error_raise(-EBADF, "the loader is closed");
                return false;
        }
        return true;
}

static void drop_taken(struct job *self) {
        Py_CLEAR(self->next.batch);
        Py_CLEAR(self->ahead.batch);
}

/* After all batches that the library has handed over. */
static void read_place(const struct job *self, struct place *place) {
        struct pinfeed_job *job = self->session->job;
        struct pinfeed_info info;

        pinfeed_job_info(job, &info);
        place->epoch = info.epoch;
        place->row = info.row;
        place->left = info.batches_left;
        if (pinfeed_job_state(job, place->state, sizeof(place->state)) < 0)
                place->state[0] = 0;
}

static bool is_last(const struct taken *taken) {
        return taken->after.epoch != batch_epoch(taken->batch);
}

/* Gives up the interpreter for a call on the job. */
static PyThreadState *enter_library(struct job *self) {
        self->session->busy = true;
        return PyEval_SaveThread();
}

static void leave_library(struct job *self, PyThreadState *thread) {
        PyEval_RestoreThread(thread);
        self->session->busy = false;
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

/* Leaves, unless arrays in the ring are in use: then with the last of them (lease.c). That waits for copies
 * to a GPU, and what they wait for may want the interpreter. */
static void leave(struct job *self) {
        struct session *session = self->session;
        PyThreadState *thread;

        drop_taken(self);
        self->session = NULL;
        if (!session)
                return;
        thread = PyEval_SaveThread();
        session_unref(session);
        PyEval_RestoreThread(thread);
}

static void job_dealloc(PyObject *object) {
        struct job *self = (struct job *)object;
        PyTypeObject *type = Py_TYPE(object);

        leave(self);
        free(self->words);
        Py_XDECREF(self->failure);
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

        if (self->opening || self->session)
                return error_raise(-EALREADY, "the job is open");
        if (!argument_attach(args, kwargs, &attach))
                return NULL;
        attach.progress = on_progress;
        attach.progress_context = self;
        self->opening = true;
        thread = PyEval_SaveThread();
        r = pinfeed_open(&job, &attach);
        PyEval_RestoreThread(thread);
        self->opening = false;
        if (r < 0) {
                raise_library(job, r);
                pinfeed_close(job);
                return NULL;
        }
        self->session = session_new(job);
        if (!self->session)
                return PyErr_NoMemory();
        read_place(self, &self->here);
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

/* Has the library say that the epoch has ended, which is known: at once, unless something is wrong. */
static int take_end(struct job *self) {
        struct pinfeed_batch *none;
        int r = pinfeed_next_timeout(self->session->job, &none, 0);

        self->unsaid = r < 0;
        return r;
}

/* What the library hands over next: 1; 0: the epoch has ended; or a negative errno. */
static int take(struct job *self, uint32_t timeout_ms, struct taken *taken) {
        struct pinfeed_batch *batch;
        PyThreadState *thread;
        struct lease *lease;
        int r = 0;

        thread = enter_library(self);
        if (self->unsaid)
                r = take_end(self);
        if (r == 0)
                r = pinfeed_next_timeout(self->session->job, &batch, timeout_ms);
        leave_library(self, thread);
        if (r <= 0)
                return r;
        read_place(self, &taken->after);
        lease = lease_new(self->session, batch);
        taken->batch = lease ? batch_new(lease) : NULL;
        return taken->batch ? 1 : -ENOMEM;
}

static PyObject *raise_kept(struct job *self) {
        int r = self->error;

        self->error = 0;
        error_raise_described(r, self->words ? self->words : strerror(-r), self->failure);
        Py_CLEAR(self->failure);
        return NULL;
}

static PyObject *job_next(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        uint32_t timeout_ms;
        int r;

        if (!PyArg_ParseTuple(args, "O&", argument_u32, &timeout_ms) || !is_usable(self))
                return NULL;
        if (self->next.batch)
                return Py_BuildValue("O", self->next.batch);
        if (self->error)
                return raise_kept(self);
        if (self->ended)
                return Py_BuildValue(""); /* None */
        r = take(self, timeout_ms, &self->next);
        if (r < 0)
                return raise_library(self->session->job, r);
        if (r > 0)
                return Py_BuildValue("O", self->next.batch);
        self->ended = true;
        read_place(self, &self->here);
        return Py_BuildValue(""); /* None */
}

/* False for want of memory, with an exception. */
static bool keep_error(struct job *self, int r) {
        PyObject *failure = error_describe(self->session->job);

        if (!failure)
                return false;
        Py_XDECREF(self->failure);
        self->failure = failure;
        free(self->words);
        self->words = strdup(pinfeed_error(self->session->job));
        self->error = r;
        return true;
}

/* An error that may not come again. (-EXDEV: with PINFEED_NO_THREAD, and another device current.) */
static bool is_to_be_kept(int r) {
        return r < 0 && r != -EAGAIN && r != -EBUSY && r != -EXDEV;
}

static PyObject *job_ahead(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;
        int r;

        if (!is_usable(self))
                return NULL;
        if (!self->next.batch || is_last(&self->next) || self->error)
                return Py_BuildValue(""); /* None */
        r = self->ahead.batch ? 1 : take(self, 0, &self->ahead);
        if (r > 0)
                return Py_BuildValue("O", self->ahead.batch);
        if (is_to_be_kept(r) && !keep_error(self, r))
                return NULL;
        return Py_BuildValue(""); /* None */
}

static PyObject *job_accept(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;
        PyObject *accepted = self->next.batch;
        int r = 0;

        if (!is_usable(self))
                return NULL;
        if (!accepted)
                return Py_BuildValue(""); /* None */
        self->ended = is_last(&self->next);
        self->here = self->next.after;
        self->next = self->ahead;
        self->ahead.batch = NULL;
        if (self->ended)
                r = take_end(self);
        Py_DECREF(accepted);
        if (is_to_be_kept(r) && !keep_error(self, r))
                return NULL;
        return Py_BuildValue(""); /* None */
}

static PyObject *job_seek(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        uint64_t row;
        uint32_t epoch;
        int r;

        if (!PyArg_ParseTuple(args, "O&O&", argument_u32, &epoch, argument_u64, &row) || !is_usable(self))
                return NULL;
        if (self->next.batch || self->here.epoch != epoch || self->here.row != row) {
                r = pinfeed_job_seek(self->session->job, epoch, row);
                if (r < 0)
                        return raise_library(self->session->job, r);
                self->unsaid = false;
        }
        drop_taken(self);
        self->ended = false;
        read_place(self, &self->here);
        return Py_BuildValue(""); /* None */
}

/* The daemon's answer to seek(), and where that leaves the job. */
static PyObject *job_sought(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        PyThreadState *thread;
        uint32_t timeout_ms;
        int r;

        if (!PyArg_ParseTuple(args, "O&", argument_u32, &timeout_ms) || !is_usable(self))
                return NULL;
        thread = enter_library(self);
        r = pinfeed_job_sought(self->session->job, timeout_ms);
        leave_library(self, thread);
        if (r < 0) {
                raise_library(self->session->job, r);
                read_place(self, &self->here);
                return NULL;
        }
        return Py_BuildValue(""); /* None */
}

static PyObject *job_failed(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;

        return PyBool_FromLong(self->session && pinfeed_job_failed(self->session->job) < 0);
}

/* ---- what it brings ---- */

static PyObject *job_bring(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        uint32_t pid;
        int fd, r;

        if (!PyArg_ParseTuple(args, "iO&", &fd, argument_u32, &pid) || !is_usable(self))
                return NULL;
        r = pinfeed_bring(self->session->job, fd, pid);
        if (r < 0)
                return raise_library(self->session->job, r);
        return Py_BuildValue(""); /* None */
}

static PyObject *job_give_order(PyObject *object, PyObject *args) {
        struct job *self = (struct job *)object;
        uint64_t entries;
        uint32_t epoch;
        int fd, r;

        if (!PyArg_ParseTuple(args, "O&iO&", argument_u32, &epoch, &fd, argument_u64, &entries) ||
            !is_usable(self))
                return NULL;
        r = pinfeed_give_order(self->session->job, epoch, fd, entries);
        if (r < 0)
                return raise_library(self->session->job, r);
        return Py_BuildValue(""); /* None */
}

/* ---- what it is ---- */

static PyObject *job_place(PyObject *object, PyObject *unused) {
        const struct place *here = &((struct job *)object)->here;

        return Py_BuildValue("(IKK)", here->epoch, (unsigned long long)here->row,
                             (unsigned long long)here->left);
}

static PyObject *job_state(PyObject *object, PyObject *unused) {
        return PyUnicode_FromString(((struct job *)object)->here.state);
}

static PyObject *job_info(PyObject *object, PyObject *unused) {
        struct job *self = (struct job *)object;
        struct pinfeed_info info;

        if (!is_usable(self))
                return NULL;
        pinfeed_job_info(self->session->job, &info);
        return Py_BuildValue(
                "{s:I, s:K, s:K, s:K, s:I, s:I, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:K, "
                "s:s}",
                "job", info.job, "samples", (unsigned long long)info.samples, "seed",
                (unsigned long long)info.seed, "batches_per_epoch",
                (unsigned long long)info.batches_per_epoch, "batch_size", info.batch_size, "max_held_batches",
                info.max_held_batches, "daemon_pid", info.daemon_pid, "map", info.map, "sharing",
                info.sharing, "rank", info.rank, "world_size", info.world_size, "reconnects", info.reconnects,
                "last_batch", info.last_batch, "device", info.device, "map_reason", info.map_reason, "slots",
                info.slots, "slots_registered", info.slots_registered, "copies",
                (unsigned long long)info.copies, "layout", pinfeed_job_layout(self->session->job));
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
        {"ahead", job_ahead, METH_NOARGS,
         "The batch after it, of the same epoch, the same until it is next()'s; None: it is not there now."},
        {"accept", job_accept, METH_NOARGS, "The batch that next() gave has been received."},
        {"seek", job_seek, METH_VARARGS, "Begins to read at an epoch and a row."},
        {"sought", job_sought, METH_VARARGS, "Waits until the daemon has said whether it can, or raises."},
        {"bring", job_bring, METH_VARARGS, "Another zygote: the daemon's end of its pair, and its pid."},
        {"give_order", job_give_order, METH_VARARGS, "The order of an epoch: a sealed memfd, its entries."},
        {"failed", job_failed, METH_NOARGS, "Whether nothing comes any more, whatever is tried."},
        {"place", job_place, METH_NOARGS, "(epoch, row, batches left of it)."},
        {"state", job_state, METH_NOARGS, "The same as a line of JSON."},
        {"info", job_info, METH_NOARGS, "struct pinfeed_info, and the layout."},
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
