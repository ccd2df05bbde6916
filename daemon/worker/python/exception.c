/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* An exception of a user's code, as text that can travel: one line for logs, "ValueError: bad value
 * (augment.py:31)", and beside it the type's full name and the traceback, from which the trainer makes an
 * exception again.
 *
 * Nothing about the exception is trusted. Its str() may raise, be a mebibyte, or hold what is no text; so
 * may its type's names; and memory may be what is short. Whatever cannot be had is left out, and what was
 * raised meanwhile is dropped: in the end no exception is raised, and the next sample finds a sound
 * interpreter.
 *
 * SystemExit and KeyboardInterrupt end the process here and now, as its user says. The page still names the
 * sample in work, so the daemon can tell where that happened. What the parent process wanted to run at its
 * exit is not this one's to run: _exit. */

#include "daemon/worker/python/worker.h"

#include "base/fault.h"
#include "daemon/worker/source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        NAME_MOST = 100,
        MESSAGE_MOST = 660, /* of str(exception); with two names and a sample it fits into a fault */
        SAMPLE_MOST = 32,   /* of "sample 23: " */
        GAP_MOST = 64,      /* what stands where a traceback was cut */
        EXIT_INTERRUPTED = 130,
};

static struct source_exception last;
static bool raised;

const struct source_exception *exception_last(void) {
        return raised ? &last : NULL;
}

void exception_forget(void) {
        raised = false;
}

/* ---- text ---- */

/* An attribute of an object whose reference is taken over; a new reference, or NULL without an exception. */
static PyObject *step(PyObject *object, const char *name) {
        PyObject *attribute = object ? PyObject_GetAttrString(object, name) : NULL;

        if (!attribute)
                PyErr_Clear();
        Py_XDECREF(object);
        return attribute;
}

static PyObject *attribute(PyObject *object, const char *name) {
        Py_XINCREF(object);
        return step(object, name);
}

/* A whole number that is an attribute; without one, `otherwise`. */
static long long number_of(PyObject *object, const char *name, long long otherwise) {
        PyObject *number = attribute(object, name);

        if (number && PyLong_Check(number))
                otherwise = PyLong_AsLongLong(number);
        PyErr_Clear();
        Py_XDECREF(number);
        return otherwise;
}

/* UTF-8 as a new bytes object, or NULL without an exception. Lone surrogates become '?'. Takes over `text`,
 * which may be NULL or no text. */
static PyObject *encode(PyObject *text) {
        PyObject *bytes = NULL;

        if (text && PyUnicode_Check(text))
                bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace");
        if (!bytes)
                PyErr_Clear();
        Py_XDECREF(text);
        return bytes;
}

/* The longest part of at most `most` bytes that ends with a character. */
static size_t cut(const char *text, size_t length, size_t most) {
        if (length <= most)
                return length;
        while (most > 0 && ((uint8_t)text[most] & 0xc0) == 0x80)
                most--;
        return most;
}

/* One line of at most size - 1 bytes, whose cut shows; "" where there is no text. Takes over `text`. */
static void take_line(char *to, size_t size, PyObject *text) {
        PyObject *bytes = encode(text);
        const char *from = bytes ? PyBytes_AsString(bytes) : "";
        size_t length = bytes ? (size_t)PyBytes_Size(bytes) : 0;
        size_t kept = length < size ? length : cut(from, length, size - 4);

        fault_sanitize(to, size, from, kept);
        if (kept < length)
                strcat(to, "...");
        Py_XDECREF(bytes);
}

/* ---- what was raised ---- */

/* "builtins.ValueError" */
static void name_type(char *to, size_t size, PyObject *type) {
        char module[NAME_MOST], name[NAME_MOST];

        take_line(module, sizeof(module), attribute(type, "__module__"));
        take_line(name, sizeof(name), attribute(type, "__qualname__"));
        if (snprintf(to, size, "%s.%s", module, name) >= (int)size)
                snprintf(to, size, "%s", name);
}

/* The line of the innermost frame, as " (augment.py:31)"; "" without one. */
static void name_place(char *to, size_t size, PyObject *traceback) {
        char path[PATH_MAX];
        PyObject *inner = traceback, *next, *line;
        const char *base;

        to[0] = 0;
        Py_XINCREF(inner);
        while ((next = attribute(inner, "tb_next")) && next != Py_None) {
                Py_DECREF(inner);
                inner = next;
        }
        Py_XDECREF(next);
        line = attribute(inner, "tb_lineno");
        take_line(path, sizeof(path), step(step(step(inner, "tb_frame"), "f_code"), "co_filename"));
        base = strrchr(path, '/');
        if (line)
                snprintf(to, size, " (%.*s:%ld)", NAME_MOST, base ? base + 1 : path, PyLong_AsLong(line));
        Py_XDECREF(line);
}

/* Where a row is a batch, the sample of it that was being made (workers.py): "sample 23: ". */
static void name_sample(char *to, size_t size, PyObject *value) {
        long long sample = number_of(value, "_pinfeed_sample", -1);

        *to = 0;
        if (sample >= 0)
                snprintf(to, size, "sample %lld: ", sample);
}

/* "ValueError: bad value (augment.py:31)" */
static void describe(struct fault *fault, PyObject *type, PyObject *value, PyObject *traceback) {
        char sample[SAMPLE_MOST], name[NAME_MOST], message[MESSAGE_MOST], place[2 * NAME_MOST];
        PyObject *text = PyObject_Str(value);

        take_line(name, sizeof(name), attribute(type, "__name__"));
        name_place(place, sizeof(place), traceback);
        name_sample(sample, sizeof(sample), value);
        if (!text) {
                PyErr_Clear();
                fault_set(fault, 0, "%s%s, whose str() fails%s", sample, name, place);
                return;
        }
        take_line(message, sizeof(message), text);
        fault_set(fault, 0, "%s%s%s%s%s", sample, name, message[0] ? ": " : "", message, place);
}

/* What the traceback module prints, as bytes; NULL without an exception. */
static PyObject *print_traceback(PyObject *type, PyObject *value, PyObject *traceback) {
        PyObject *module = PyImport_ImportModule("traceback"), *lines = NULL, *text = NULL;
        PyObject *nothing = PyUnicode_FromString("");

        if (module)
                lines = PyObject_CallMethod(module, "format_exception", "OOO", type, value,
                                            traceback ? traceback : Py_None);
        if (lines && nothing)
                text = PyUnicode_Join(nothing, lines);
        PyErr_Clear();
        Py_XDECREF(module);
        Py_XDECREF(lines);
        Py_XDECREF(nothing);
        return encode(text);
}

/* The first half and the last, with what is between them counted. */
static void store_traceback(char *to, size_t size, PyObject *bytes) {
        const char *text = bytes ? PyBytes_AsString(bytes) : "";
        size_t length = bytes ? (size_t)PyBytes_Size(bytes) : 0;
        size_t room = size - 1 - GAP_MOST, head = cut(text, length, room / 2), tail = length - room / 2;
        size_t used;

        if (length < size) {
                head = tail = length;
                used = 0;
        } else {
                while (((uint8_t)text[tail] & 0xc0) == 0x80)
                        tail++;
                used = (size_t)snprintf(to + head, GAP_MOST, "\n[... %zu bytes left out ...]\n", tail - head);
        }
        memcpy(to, text, head);
        memcpy(to + head + used, text + tail, length - tail);
        used += head + length - tail;
        to[used] = 0;
        while ((text = memchr(to, 0, used)))
                to[text - to] = '?'; /* of the message; no text on the wire holds one */
}

/* ---- what it means ---- */

static int errno_of(PyObject *value) {
        static const int passing[] = {EIO, ESTALE, ETIMEDOUT, EAGAIN, EINTR, ENOMEM, EMFILE, ENFILE};
        long long error;

        if (PyErr_GivenExceptionMatches(value, PyExc_MemoryError))
                return -ENOMEM;
        if (number_of(value, "_pinfeed_no_room", 0))
                return -ENOSPC; /* of the slot (errors.py), and no fault of the sample's */
        if (!PyErr_GivenExceptionMatches(value, PyExc_OSError))
                return -EBADMSG;
        error = number_of(value, "errno", 0);
        for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
                if (passing[i] == error)
                        return -passing[i];
        return -EBADMSG;
}

static void flush(const char *name) {
        PyObject *file = PySys_GetObject(name), *none = NULL;

        if (file && file != Py_None)
                none = PyObject_CallMethod(file, "flush", NULL);
        PyErr_Clear();
        Py_XDECREF(none);
}

/* As sys.exit() has it: a number is the status, none is 0, a text goes to standard error. */
static void end_process(PyObject *value) {
        int status = EXIT_INTERRUPTED;

        if (PyErr_GivenExceptionMatches(value, PyExc_SystemExit)) {
                PyObject *code = attribute(value, "code");
                char line[MESSAGE_MOST];

                if (!code || code == Py_None) {
                        status = 0;
                } else if (PyLong_Check(code)) {
                        status = (int)PyLong_AsLong(code) & 0xff;
                } else {
                        status = 1;
                        take_line(line, sizeof(line), PyObject_Str(code));
                        PySys_WriteStderr("%.900s\n", line);
                }
        }
        flush("stdout");
        flush("stderr");
        _exit(status);
}

int exception_take(struct fault *fault) {
        PyObject *type, *value, *traceback, *printed;
        int error;

        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (PyErr_GivenExceptionMatches(value, PyExc_SystemExit) ||
            PyErr_GivenExceptionMatches(value, PyExc_KeyboardInterrupt))
                end_process(value);
        error = errno_of(value);
        describe(fault, type, value, traceback);
        name_type(last.type, sizeof(last.type), type);
        printed = print_traceback(type, value, traceback);
        store_traceback(last.traceback, sizeof(last.traceback), printed);
        raised = true;
        Py_XDECREF(printed);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return error;
}

PyObject *exception_explain(PyObject *exception) {
        PyObject *type = (PyObject *)Py_TYPE(exception), *traceback = PyException_GetTraceback(exception);
        struct fault fault = {0};
        int error;

        Py_INCREF(type);
        Py_INCREF(exception);
        PyErr_Restore(type, exception, traceback); /* takes all three over */
        error = exception_take(&fault);
        return Py_BuildValue("isss", -error, fault.text, last.type, last.traceback);
}
