#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The state of a Mersenne Twister in another's memory: CPython's random.Random and NumPy's RandomState. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

enum {
        TWISTER_WORDS = 624,
};

/* Derived from a start and a step, see docs/order.md. */
void twister_fill(uint32_t words[TWISTER_WORDS], uint64_t start, uint64_t step);

/* Where a generator keeps its state; found by comparing its memory with what it says of itself, and tried.
 * `words` NULL: not known, it has to be asked. The object is held by its module. */
struct twister {
        uint32_t *words;
        int *index;
        /* NumPy's only: half of a pair of normal numbers that waits */
        int *has_gauss;
};

/* Leave the generator in some state, and no exception. */
void twister_find_python(struct twister *twister, PyObject *generator);
void twister_find_numpy(struct twister *twister, PyObject *generator);

/* The slow ways, by the generators' own methods. 0, or -1 with an exception. */
int twister_set_python(PyObject *generator, const uint32_t words[TWISTER_WORDS], int index);
int twister_set_numpy(PyObject *generator, const uint32_t words[TWISTER_WORDS], int index, double gauss);
