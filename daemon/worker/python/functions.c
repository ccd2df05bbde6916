/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The session runs without the interpreter's lock and takes it for each sample, so that threads which the
 * user's dataset has go on while the worker waits for the daemon, and while it waits before it tries again
 * what storage refused. Taking it costs 0.1 us where no thread wants it.
 *
 * What comes back from a sample is one number; an exception is put into words at once, while its frames
 * live, and the interpreter is as it was before the call.
 *
 * All of this is the process's, once: a worker has one daemon and one dataset. */

#include "daemon/worker/python/worker.h"

#include "base/fault.h"
#include "daemon/worker/session.h"
#include "daemon/worker/source.h"
#include "daemon/worker/sources/python.h"
#include "proto/schema.h"

#include <signal.h>
#include <sys/prctl.h>

#ifndef PyBUF_READ /* the stable ABI of 3.9 has the function that takes them, and not their names */
#define PyBUF_READ  0x100
#define PyBUF_WRITE 0x200
#endif

#define TIMER_SLACK_NS                                                                                       \
        1 /* the least; the kernel's own is 50 us, which a dataset that sleeps would pay each time */

static PyThreadState *thread; /* while the lock is not held */
static uint64_t run_samples;
static PyObject *run_start, *run_open; /* the second one may be NULL */
static PyObject *maker;                /* what `start` returned */
static const struct schema *schema;

/* The order that `order_view` shows; the view's base is kept because releasing it releases the memory. */
static const int64_t *order_shown;
static uint64_t entries_shown;
static PyObject *order_base, *order_view;

static void enter(void) {
        PyEval_RestoreThread(thread);
}

static void leave(void) {
        thread = PyEval_SaveThread();
}

/* ---- memory as Python sees it ---- */

/* Takes over the reference. Where an array was made of the view it cannot be released; that it is good for
 * the call only is told with `run`. */
static void release(PyObject *view) {
        PyObject *none = view ? PyObject_CallMethod(view, "release", NULL) : NULL;

        PyErr_Clear();
        Py_XDECREF(none);
        Py_XDECREF(view);
}

static void hide_order(void) {
        release(order_view);
        release(order_base);
        order_view = order_base = NULL;
        order_shown = NULL;
}

/* A borrowed reference, or NULL with an exception. The same order is the same object for as long as it lasts.
 */
static PyObject *show_order(const struct source_request *request) {
        size_t size = request->entries * sizeof(*request->order);

        if (!request->order)
                return Py_None;
        if (request->order == order_shown && request->entries == entries_shown)
                return order_view;
        hide_order();
        order_base = PyMemoryView_FromMemory((char *)request->order, (Py_ssize_t)size, PyBUF_READ);
        if (order_base)
                order_view = PyObject_CallMethod(order_base, "cast", "s", "q");
        if (!order_view)
                return NULL;
        order_shown = request->order;
        entries_shown = request->entries;
        return order_view;
}

/* Leaves an exception that is raised as it is. */
static void release_cells(PyObject *views) {
        PyObject *type, *value, *traceback;

        PyErr_Fetch(&type, &value, &traceback);
        for (Py_ssize_t i = 0; i < PyList_Size(views); i++) {
                PyObject *view = PyList_GetItem(views, i);

                Py_INCREF(view);
                release(view);
        }
        Py_DECREF(views);
        PyErr_Restore(type, value, traceback);
}

/* A new list of views, a field each. */
static PyObject *show_cells(void *const cells[]) {
        PyObject *views = PyList_New(0);

        for (uint32_t i = 0; views && i < schema->n_fields; i++) {
                PyObject *view = PyMemoryView_FromMemory(cells[i], (Py_ssize_t)schema->fields[i].row_bytes,
                                                         PyBUF_WRITE);

                if (!view || PyList_Append(views, view) < 0) {
                        release_cells(views);
                        views = NULL;
                }
                Py_XDECREF(view);
        }
        return views;
}

/* ---- the functions ---- */

static int scan(uint64_t *samples, struct fault *fault) {
        *samples = run_samples;
        return 0;
}

/* (name, dtype, shape) */
static PyObject *describe_field(const struct schema_field *field) {
        PyObject *shape = PyTuple_New(field->n_dims), *description = NULL;

        for (uint32_t i = 0; shape && i < field->n_dims; i++) {
                PyObject *size = PyLong_FromUnsignedLongLong(field->shape[i]);

                if (!size || PyTuple_SetItem(shape, i, size) < 0)
                        Py_CLEAR(shape);
        }
        if (shape)
                description = Py_BuildValue("ssO", field->name, schema_dtype_name(field->dtype), shape);
        Py_XDECREF(shape);
        return description;
}

static PyObject *describe_fields(void) {
        PyObject *fields = PyList_New(0);

        for (uint32_t i = 0; fields && i < schema->n_fields; i++) {
                PyObject *field = describe_field(&schema->fields[i]);

                if (!field || PyList_Append(fields, field) < 0)
                        Py_CLEAR(fields);
                Py_XDECREF(field);
        }
        return fields;
}

static int call_start(uint32_t worker) {
        PyObject *fields = describe_fields();

        if (fields)
                maker = PyObject_CallFunction(run_start, "IO", worker, fields);
        Py_XDECREF(fields);
        if (!maker)
                return -1;
        if (rows_check(maker))
                return rows_bind(maker, schema);
        if (PyCallable_Check(maker))
                return 0;
        PyErr_Format(PyExc_TypeError, "start() gave %R, expected a Rows or a function that makes a row",
                     maker);
        return -1;
}

static int open_dataset(uint32_t worker, const struct schema *ours, struct fault *fault) {
        int r = 0;

        enter();
        exception_forget();
        schema = ours;
        if (call_start(worker) < 0)
                r = exception_take(fault);
        randomness_has_grown(); /* what there is by now is not news to the first row */
        leave();
        return r;
}

static int call_maker_once(const struct source_request *request, void *const cells[]) {
        PyObject *views = show_cells(cells), *order = views ? show_order(request) : NULL, *none = NULL;

        if (order)
                none = PyObject_CallFunction(maker, "KIKKOO", request->seed, request->epoch, request->row,
                                             request->sample, order, views);
        Py_XDECREF(none);
        if (views)
                release_cells(views);
        return none ? 0 : -1;
}

/* Again where it has drawn from a generator that it had not seeded. */
static int call_maker(const struct source_request *request, void *const cells[]) {
        int r;

        do
                r = call_maker_once(request, cells);
        while (r == 0 && randomness_has_grown());
        return r;
}

static int write_sample(const struct source_request *request, void *const cells[], struct fault *fault) {
        int r;

        enter();
        exception_forget();
        if (rows_check(maker))
                r = rows_make(maker, request->seed, request->epoch, request->sample, cells);
        else
                r = call_maker(request, cells);
        if (r < 0)
                r = exception_take(fault);
        leave();
        return r;
}

/* The number of samples, from whoever opens the dataset. */
static int call_open(const char *recipe, const char *layout) {
        PyObject *samples = PyObject_CallFunction(run_open, "ss", recipe, layout);

        if (samples)
                run_samples = PyLong_AsUnsignedLongLong(samples);
        Py_XDECREF(samples);
        return PyErr_Occurred() ? -1 : 0;
}

static int set_up(const char *recipe, const char *layout, struct fault *fault) {
        int r = 0;

        if (!run_open)
                return 0;
        enter();
        exception_forget();
        if (call_open(recipe, layout) < 0)
                r = exception_take(fault);
        leave();
        return r;
}

static const struct python_functions functions = {
        .scan = scan,
        .open = open_dataset,
        .write = write_sample,
        .exception = exception_last,
        .set_up = set_up,
};

/* ---- the process ---- */

/* What a terminal sends to the whole group is for the trainer, which ends its workers by way of the daemon.
 * Handlers in Python of a process that we were forked from are not wanted for these, others stay. */
static void set_up_process(void) {
        sigset_t signals;

        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGTERM, SIG_DFL);
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
        prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
}

int functions_run(int socket, uint64_t samples, PyObject *start, PyObject *open) {
        struct fault fault = {0};
        int r;

        if (run_start) {
                PyErr_SetString(PyExc_RuntimeError, "a process is one worker, and this one is running");
                return -1;
        }
        set_up_process();
        run_samples = samples;
        run_start = start;
        run_open = open;
        python_set_functions(&functions);
        leave();
        r = session_run(socket, &fault);
        enter();
        python_set_functions(NULL);
        run_start = run_open = NULL;
        hide_order();
        Py_CLEAR(maker);
        if (r == 0)
                return 0;
        PyErr_SetString(PyExc_RuntimeError, fault.text);
        return -1;
}
