#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of pinfeed._worker share. It keeps to CPython's stable ABI of 3.9, and everything here is
 * called with the interpreter's lock held. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

struct fault;
struct python_functions;
struct schema;
struct source_exception;

/* ---- exception.c ---- */

/* Takes the exception that is raised: its words go to `fault`, all of it is kept for exception_last. The
 * negative errno that it means; does not return where the exception ends the process. */
int exception_take(struct fault *fault);

/* What exception_take makes of an exception that was caught: (errno, text, type, traceback), a new reference,
 * or NULL with another exception. */
PyObject *exception_explain(PyObject *exception);

/* NULL: none since exception_forget. */
const struct source_exception *exception_last(void);
void exception_forget(void);

/* ---- functions.c ---- */

/* Serves the daemon at `socket` with samples from Python; see `run` in module.c. `open` may be NULL. 0, or -1
 * with an exception. */
int functions_run(int socket, uint64_t samples, PyObject *start, PyObject *open);

/* ---- leash.c ---- */

/* 0, or -1 with an exception. */
int leash_put_on(int fd, bool with_parent);

/* ---- randomness.c ---- */

/* Sets what global generators there are. `directly`: through their memory where that is known to work; the
 * numbers are the same. 0, or -1 with an exception. */
int randomness_seed(uint64_t seed, uint32_t epoch, uint64_t sample, bool directly);

/* Whether a module with a generator was imported since the last seeding; says so once. What has drawn from it
 * meanwhile has drawn nobody's numbers, and is to be made again. */
bool randomness_has_grown(void);

enum {
        RANDOMNESS_KEY_BYTES = 32,
};

/* Of the sample that was seeded last. False: none was. */
bool randomness_key(uint8_t key[RANDOMNESS_KEY_BYTES]);

/* ---- rows.c ---- */

int rows_init_type(PyObject *module);
bool rows_check(PyObject *object);

/* That each leaf fits its field, and each field has a leaf. 0, or -1 with an exception. */
int rows_bind(PyObject *rows, const struct schema *schema);

/* Makes the row of a sample, its random numbers included. 0, or -1 with an exception. */
int rows_make(PyObject *rows, uint64_t seed, uint32_t epoch, uint64_t sample, void *const cells[]);
