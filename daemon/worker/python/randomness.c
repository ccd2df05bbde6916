/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A dataset that draws from a global generator gives the same sample wherever and whenever it is made, if the
 * generator is set before each sample, from (seed, sample, epoch) and from nothing else. docs/order.md says
 * how the states follow from Philox words, and they are the same whichever way they are set.
 *
 * Only generators of modules that are imported are set; importing one for this would cost a small dataset
 * more than all its samples. A module may come later, imported by the first sample that needs it, after that
 * sample's seeding (NumPy itself imports numpy.random so): whoever makes a row asks afterwards whether one
 * has come, and makes the row again, lest the order in which workers meet samples should show in them.
 *
 * All three cost 2 us, of which torch's takes 1.3: it has 624 words, too, and computes each from the one
 * before. */

#include "daemon/worker/python/worker.h"

#include "daemon/worker/python/twister.h"
#include "proto/random.h"

#include <string.h>

/* Steps of the domain USER; part of the bits. */
enum {
        STEP_PYTHON = 0,
        STEP_NUMPY = 1,
        STEP_TORCH = 2,
        STEP_KEY = 3,
};

/* What is in work, for randomness_key. */
static struct {
        bool given;
        uint64_t seed, sample;
        uint32_t epoch;
} seeded;

/* One global generator. */
struct generator {
        const char *module;
        int (*find)(struct generator *generator, PyObject *module); /* 0, or -1: not there yet */
        int (*seed)(struct generator *generator, struct random *random, bool directly);
        PyObject *name;   /* of the module, made once */
        bool was_there;   /* the module, when it was last looked for */
        PyObject *object; /* whose method is called; NULL: not found yet */
        PyObject *bits;   /* NumPy's: the Mersenne Twister that it came with; NULL: it has another one */
        struct twister twister;
};

/* An attribute by a name that is made once; a new reference or NULL with an exception. */
static PyObject *get(PyObject *object, const char *text, PyObject **name) {
        if (!*name)
                *name = PyUnicode_InternFromString(text);
        return *name ? PyObject_GetAttr(object, *name) : NULL;
}

/* 64 bits of a stream, the high word first. */
static uint64_t draw(struct random *random) {
        uint64_t high = random_u32(random);

        return high << 32 | random_u32(random);
}

/* The words of a twister, in place or for a method. */
static void draw_words(uint32_t words[TWISTER_WORDS], struct random *random) {
        uint64_t start = draw(random);

        twister_fill(words, start, draw(random) | 1);
}

/* ---- random ---- */

static int find_python(struct generator *generator, PyObject *module) {
        generator->object = PyObject_GetAttrString(module, "_inst");
        if (!generator->object)
                return -1;
        twister_find_python(&generator->twister, generator->object);
        return 0;
}

/* The second of a pair of normal numbers is an attribute. */
static int clear_gauss(PyObject *generator) {
        static PyObject *name;
        PyObject *gauss = get(generator, "gauss_next", &name);
        int r;

        if (!gauss)
                return -1;
        r = gauss == Py_None ? 0 : PyObject_SetAttr(generator, name, Py_None);
        Py_DECREF(gauss);
        return r;
}

static int seed_python(struct generator *generator, struct random *random, bool directly) {
        const struct twister *twister = &generator->twister;
        uint32_t words[TWISTER_WORDS];

        if (twister->words && directly) {
                draw_words(twister->words, random);
                *twister->index = 0;
                return clear_gauss(generator->object);
        }
        draw_words(words, random);
        return twister_set_python(generator->object, words, 0);
}

/* ---- NumPy ---- */

static PyObject *numpy_bits(struct generator *generator) {
        static PyObject *name;

        return get(generator->object, "_bit_generator", &name);
}

static int find_numpy(struct generator *generator, PyObject *module) {
        generator->object = PyObject_GetAttrString(module, "_rand");
        if (!generator->object)
                return -1;
        generator->bits = numpy_bits(generator);
        if (!generator->bits) {
                Py_CLEAR(generator->object);
                return -1;
        }
        if (twister_set_numpy(generator->object, (uint32_t[TWISTER_WORDS]){1}, 0, 0) < 0)
                Py_CLEAR(generator->bits);
        else
                twister_find_numpy(&generator->twister, generator->object);
        PyErr_Clear();
        return 0;
}

/* What the user has put in the place of the Mersenne Twister gets a number, the way NumPy has for it. */
static int seed_other_numpy(struct random *random) {
        PyObject *module = PyImport_ImportModule("numpy.random"), *none = NULL;

        if (module)
                none = PyObject_CallMethod(module, "seed", "I", random_u32(random));
        Py_XDECREF(module);
        Py_XDECREF(none);
        return none ? 0 : -1;
}

static int seed_numpy(struct generator *generator, struct random *random, bool directly) {
        const struct twister *twister = &generator->twister;
        uint32_t words[TWISTER_WORDS];
        PyObject *bits = numpy_bits(generator);

        if (!bits)
                return -1;
        Py_DECREF(bits);
        if (bits != generator->bits)
                return seed_other_numpy(random);
        if (twister->words && directly) {
                draw_words(twister->words, random);
                *twister->index = 0;
                *twister->has_gauss = 0;
                return 0;
        }
        draw_words(words, random);
        return twister_set_numpy(generator->object, words, 0, 0);
}

/* ---- torch ---- */

static int find_torch(struct generator *generator, PyObject *module) {
        PyObject *torch = PyObject_GetAttrString(module, "default_generator");

        if (torch)
                generator->object = PyObject_GetAttrString(torch, "manual_seed");
        Py_XDECREF(torch);
        return generator->object ? 0 : -1;
}

static int seed_torch(struct generator *generator, struct random *random, bool directly) {
        PyObject *number = PyLong_FromUnsignedLongLong(draw(random)), *result = NULL;

        if (number)
                result = PyObject_CallFunctionObjArgs(generator->object, number, NULL);
        Py_XDECREF(number);
        Py_XDECREF(result);
        return result ? 0 : -1;
}

/* ---- all of them ---- */

static struct generator generators[] = {
        [STEP_PYTHON] = {.module = "random", .find = find_python, .seed = seed_python},
        [STEP_NUMPY] = {.module = "numpy.random.mtrand", .find = find_numpy, .seed = seed_numpy},
        [STEP_TORCH] = {.module = "torch", .find = find_torch, .seed = seed_torch},
};

enum {
        GENERATORS = sizeof(generators) / sizeof(generators[0]),
};

/* Borrowed; NULL without an exception where it is not imported. */
static PyObject *imported(struct generator *generator) {
        PyObject *module = NULL;

        if (!generator->name)
                generator->name = PyUnicode_InternFromString(generator->module);
        if (generator->name)
                module = PyDict_GetItemWithError(PyImport_GetModuleDict(), generator->name);
        if (!module || module == Py_None)
                PyErr_Clear();
        return module == Py_None ? NULL : module;
}

/* A module that is still being imported has not all of its attributes. */
static bool find_generator(struct generator *generator) {
        PyObject *module = imported(generator);

        generator->was_there = module != NULL;
        if (module && generator->find(generator, module) == 0)
                return true;
        PyErr_Clear();
        return false;
}

int randomness_seed(uint64_t seed, uint32_t epoch, uint64_t sample, bool directly) {
        struct random random;

        for (uint16_t i = 0; i < GENERATORS; i++) {
                struct generator *generator = &generators[i];

                if (!generator->object && !find_generator(generator))
                        continue;
                random_init(&random, seed, sample, epoch, RANDOM_USER, i);
                if (generator->seed(generator, &random, directly) < 0)
                        return -1;
        }
        seeded.given = true;
        seeded.seed = seed;
        seeded.sample = sample;
        seeded.epoch = epoch;
        return 0;
}

bool randomness_has_grown(void) {
        bool grown = false;

        for (int i = 0; i < GENERATORS; i++)
                if (!generators[i].was_there && imported(&generators[i])) {
                        generators[i].was_there = true;
                        grown = true;
                }
        return grown;
}

bool randomness_key(uint8_t key[RANDOMNESS_KEY_BYTES]) {
        struct random random;

        if (!seeded.given)
                return false;
        random_init(&random, seeded.seed, seeded.sample, seeded.epoch, RANDOM_USER, STEP_KEY);
        for (int i = 0; i < RANDOMNESS_KEY_BYTES; i += 4) {
                uint32_t word = random_u32(&random);

                for (int byte = 0; byte < 4; byte++)
                        key[i + byte] = (uint8_t)(word >> 8 * byte);
        }
        return true;
}
