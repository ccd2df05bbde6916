/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A generator of CPython or NumPy is 624 words and a place among them. Their own ways to set them cost 2 to
 * 20 us, each sample; writing the words costs 0.3.
 *
 * With the place at 0 the next 624 numbers are the words themselves, tempered (Matsumoto, Nishimura, 1998),
 * so they are as good as whatever the words come from, and no round of the twister has to be paid for a
 * sample that draws a few. SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) gives two words a step of some ten
 * instructions, none of which waits for the step before.
 *
 * NumPy documents the layout behind its capsule. CPython's struct, and the place where NumPy keeps the second
 * of a pair of normal numbers, are found: known numbers are set by the generator's own method, looked for in
 * the object, changed there, and asked for again. What does not come back as expected is not used. Nothing is
 * read beyond the object's own size. */

#include "daemon/worker/python/twister.h"

#include <string.h>

enum {
        INDEX_SET = 7, /* while searching, to be told from other small numbers */
        INDEX_TRIED = 9,
        STATE_VERSION = 3, /* of random.getstate() */
};

#define GAUSS_SET 0.7348230517263841 /* while searching */

void twister_fill(uint32_t words[TWISTER_WORDS], uint64_t start, uint64_t step) {
        for (int i = 0; i < TWISTER_WORDS; i += 2) {
                uint64_t x = start += step;

                x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
                x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
                x ^= x >> 31;
                words[i] = (uint32_t)x;
                words[i + 1] = (uint32_t)(x >> 32);
        }
}

/* ---- the generators' own ways ---- */

/* A new tuple of the words, and behind them `more` (NULL: nothing), whose reference is taken over. */
static PyObject *as_tuple(const uint32_t words[TWISTER_WORDS], PyObject *more) {
        PyObject *tuple = PyTuple_New(TWISTER_WORDS + (more ? 1 : 0));

        for (int i = 0; tuple && i < TWISTER_WORDS; i++) {
                PyObject *word = PyLong_FromUnsignedLong(words[i]);

                if (!word || PyTuple_SetItem(tuple, i, word) < 0)
                        Py_CLEAR(tuple);
        }
        if (tuple && more)
                PyTuple_SetItem(tuple, TWISTER_WORDS, more);
        else
                Py_XDECREF(more);
        return tuple;
}

/* Calls a method with a state, whose reference is taken over. */
static int set_state(PyObject *generator, const char *method, PyObject *state) {
        PyObject *none = state ? PyObject_CallMethod(generator, method, "(O)", state) : NULL;

        Py_XDECREF(state);
        Py_XDECREF(none);
        return none ? 0 : -1;
}

int twister_set_python(PyObject *generator, const uint32_t words[TWISTER_WORDS], int index) {
        PyObject *number = PyLong_FromLong(index), *tuple = number ? as_tuple(words, number) : NULL;

        return set_state(generator, "setstate",
                         tuple ? Py_BuildValue("iNO", STATE_VERSION, tuple, Py_None) : NULL);
}

int twister_set_numpy(PyObject *generator, const uint32_t words[TWISTER_WORDS], int index, double gauss) {
        PyObject *tuple = as_tuple(words, NULL);

        return set_state(generator, "set_state",
                         tuple ? Py_BuildValue("sNiid", "MT19937", tuple, index, gauss != 0, gauss) : NULL);
}

/* A number out of a sequence; -1 where there is none. */
static long long number_at(PyObject *sequence, Py_ssize_t at) {
        PyObject *item = PySequence_GetItem(sequence, at), *number = item ? PyNumber_Long(item) : NULL;
        long long value = number ? PyLong_AsLongLong(number) : -1;

        Py_XDECREF(item);
        Py_XDECREF(number);
        PyErr_Clear();
        return value;
}

static bool words_are(PyObject *sequence, const uint32_t words[TWISTER_WORDS]) {
        for (int i = 0; i < TWISTER_WORDS; i++)
                if (number_at(sequence, i) != (long long)words[i])
                        return false;
        return true;
}

/* ---- finding ---- */

static size_t size_of(PyObject *object) {
        PyObject *size = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__basicsize__");
        long bytes = size ? PyLong_AsLong(size) : 0;

        Py_XDECREF(size);
        PyErr_Clear();
        return bytes > 0 ? (size_t)bytes : 0;
}

/* Where `length` bytes stand at a multiple of `align` in an object. Words may not be cast to: the bytes at a
 * place say whether it is one. */
static void *find(PyObject *object, const void *bytes, size_t length, size_t align) {
        uint8_t *memory = (uint8_t *)object;
        size_t size = size_of(object);

        for (size_t at = 0; at + length <= size; at += align)
                if (memcmp(memory + at, bytes, length) == 0)
                        return memory + at;
        return NULL;
}

/* Writes another state and asks for it. */
static bool python_follows(PyObject *generator, uint32_t *words, int *index) {
        PyObject *state, *tuple = NULL;
        bool follows = false;

        twister_fill(words, 2, 3);
        *index = INDEX_TRIED;
        state = PyObject_CallMethod(generator, "getstate", NULL);
        if (state)
                tuple = PySequence_GetItem(state, 1);
        if (tuple)
                follows = words_are(tuple, words) && number_at(tuple, TWISTER_WORDS) == INDEX_TRIED;
        Py_XDECREF(state);
        Py_XDECREF(tuple);
        PyErr_Clear();
        return follows;
}

void twister_find_python(struct twister *twister, PyObject *generator) {
        uint32_t known[TWISTER_WORDS], *words;
        int *end = (int *)((uint8_t *)generator + size_of(generator));

        *twister = (struct twister){0};
        twister_fill(known, 1, 3);
        if (twister_set_python(generator, known, INDEX_SET) == 0) {
                words = find(generator, known, sizeof(known), sizeof(*known));
                if (words) {
                        int *before = (int *)words - 1, *behind = (int *)words + TWISTER_WORDS;
                        int *index = *before == INDEX_SET ? before : behind;

                        if (index < end && *index == INDEX_SET && python_follows(generator, words, index))
                                *twister = (struct twister){.words = words, .index = index};
                }
        }
        PyErr_Clear();
}

/* The state behind NumPy's capsule: `void *state` is the first member of its bitgen_t, and the words and the
 * place that of an MT19937. */
static uint32_t *numpy_words(PyObject *generator) {
        PyObject *bits = PyObject_GetAttrString(generator, "_bit_generator"), *capsule = NULL;
        uint32_t **state = NULL;

        if (bits)
                capsule = PyObject_GetAttrString(bits, "capsule");
        if (capsule)
                state = PyCapsule_GetPointer(capsule, "BitGenerator");
        Py_XDECREF(bits);
        Py_XDECREF(capsule);
        return state ? *state : NULL;
}

static bool numpy_follows(PyObject *generator, const struct twister *twister) {
        PyObject *state, *words = NULL;
        bool follows = false;

        twister_fill(twister->words, 2, 3);
        *twister->index = INDEX_TRIED;
        *twister->has_gauss = 0;
        state = PyObject_CallMethod(generator, "get_state", NULL); /* name, words, place, has_gauss, gauss */
        if (state)
                words = PySequence_GetItem(state, 1);
        if (words)
                follows = words_are(words, twister->words) && number_at(state, 2) == INDEX_TRIED &&
                          number_at(state, 3) == 0;
        Py_XDECREF(state);
        Py_XDECREF(words);
        PyErr_Clear();
        return follows;
}

void twister_find_numpy(struct twister *twister, PyObject *generator) {
        struct twister found = {0};
        uint32_t known[TWISTER_WORDS];
        double gauss = GAUSS_SET, *place;

        *twister = (struct twister){0};
        twister_fill(known, 1, 3);
        if (twister_set_numpy(generator, known, INDEX_SET, gauss) == 0) {
                found.words = numpy_words(generator);
                place = find(generator, &gauss, sizeof(gauss), sizeof(gauss));
                if (found.words && place && memcmp(found.words, known, sizeof(known)) == 0) {
                        found.index = (int *)found.words + TWISTER_WORDS;
                        found.has_gauss = (int *)(place - 1);
                        if (*found.index == INDEX_SET && *found.has_gauss == 1 &&
                            numpy_follows(generator, &found))
                                *twister = found;
                }
        }
        PyErr_Clear();
}
