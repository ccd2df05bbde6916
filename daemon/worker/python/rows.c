/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rows(fetch, spec): the way from a sample's number to its cells, with one call of Python in it, that of the
 * user's function. `spec` says how the first samples are nested, as tuples; it is read once into a tree of
 * nodes, along which each sample is taken apart.
 *
 * A sample is made again when its making has imported a module with a generator that is seeded from then on:
 * see randomness.c. That happens once for each module in the life of a worker. */

#include "daemon/worker/python/worker.h"

#include "daemon/worker/python/leaf.h"
#include "proto/schema.h"

#include <stdlib.h>
#include <string.h>

enum node_type {
        NODE_LEAF,
        NODE_SEQUENCE,
        NODE_MAPPING,
};

struct node {
        enum node_type type;
        PyObject *key; /* of a mapping's child */
        struct leaf leaf;
        Py_ssize_t n; /* children */
        struct node *children;
        PyObject *fields; /* the names of all leaves below, for people; of inner nodes */
};

struct rows {
        PyObject_HEAD PyObject *fetch;
        struct node root;
};

static PyObject *rows_type;

/* ---- the tree ---- */

static void node_deinit(struct node *node) {
        for (Py_ssize_t i = 0; i < node->n; i++)
                node_deinit(&node->children[i]);
        free(node->children);
        leaf_deinit(&node->leaf);
        Py_CLEAR(node->key);
        Py_CLEAR(node->fields);
}

static int node_init(struct node *node, PyObject *spec);

/* "image, label" */
static int name_fields(struct node *node) {
        PyObject *names = PyList_New(node->n), *comma = PyUnicode_FromString(", ");

        for (Py_ssize_t i = 0; names && i < node->n; i++) {
                const struct node *child = &node->children[i];
                PyObject *name = child->type == NODE_LEAF ? child->leaf.name : child->fields;

                Py_INCREF(name);
                PyList_SetItem(names, i, name);
        }
        if (names && comma)
                node->fields = PyUnicode_Join(comma, names);
        Py_XDECREF(names);
        Py_XDECREF(comma);
        return node->fields ? 0 : -1;
}

/* The element of a mapping's children is (key, spec), that of a sequence's is spec. */
static int child_init(struct node *node, enum node_type of, PyObject *element) {
        PyObject *spec = element, *key = NULL;

        if (of == NODE_MAPPING && !PyArg_ParseTuple(element, "OO!:mapping", &key, &PyTuple_Type, &spec))
                return -1;
        Py_XINCREF(key);
        node->key = key;
        return node_init(node, spec);
}

static int children_init(struct node *node, PyObject *elements) {
        Py_ssize_t n = PyTuple_Size(elements);
        int r = 0;

        node->children = calloc((size_t)n + 1, sizeof(*node->children));
        if (!node->children) {
                PyErr_NoMemory();
                return -1;
        }
        node->n = n;
        if (Py_EnterRecursiveCall(" while reading a spec"))
                return -1;
        for (Py_ssize_t i = 0; i < n && r == 0; i++)
                r = child_init(&node->children[i], node->type, PyTuple_GetItem(elements, i));
        Py_LeaveRecursiveCall();
        return r < 0 ? r : name_fields(node);
}

static int sequence_init(struct node *node, PyObject *spec) {
        PyObject *elements;
        Py_ssize_t length;
        const char *type;

        node->type = NODE_SEQUENCE;
        if (!PyArg_ParseTuple(spec, "snO!:sequence", &type, &length, &PyTuple_Type, &elements))
                return -1;
        if (length == PyTuple_Size(elements))
                return children_init(node, elements);
        PyErr_Format(PyExc_ValueError, "a sequence of %zd with %zd elements", length, PyTuple_Size(elements));
        return -1;
}

static int mapping_init(struct node *node, PyObject *spec) {
        PyObject *elements;
        const char *type;

        node->type = NODE_MAPPING;
        if (!PyArg_ParseTuple(spec, "sO!:mapping", &type, &PyTuple_Type, &elements))
                return -1;
        return children_init(node, elements);
}

static bool type_is(PyObject *type, const char *name) {
        return type && PyUnicode_Check(type) && PyUnicode_CompareWithASCIIString(type, name) == 0;
}

/* `node` is zeroed; on error it may be half built. */
static int node_init(struct node *node, PyObject *spec) {
        PyObject *type = PyTuple_Check(spec) ? PyTuple_GetItem(spec, 0) : NULL;

        PyErr_Clear();
        if (type_is(type, "leaf"))
                return leaf_init(&node->leaf, spec);
        if (type_is(type, "sequence"))
                return sequence_init(node, spec);
        if (type_is(type, "mapping"))
                return mapping_init(node, spec);
        PyErr_Format(PyExc_ValueError, "expected a leaf, a sequence or a mapping, got %R", spec);
        return -1;
}

/* ---- taking a sample apart ---- */

static int store(const struct node *node, PyObject *value, void *const cells[], uint64_t sample);

static int refuse_type(const struct node *node, PyObject *value, uint64_t sample, const char *expected) {
        PyObject *name = leaf_type_name(value);

        if (name)
                PyErr_Format(PyExc_ValueError,
                             "sample %llu: type %S for the fields %U, where the first samples have %s",
                             sample, name, node->fields, expected);
        Py_XDECREF(name);
        return -1;
}

static int check_length(const struct node *node, Py_ssize_t length, uint64_t sample) {
        if (length == node->n)
                return 0;
        if (length >= 0)
                PyErr_Format(PyExc_ValueError,
                             "sample %llu: %zd elements for the fields %U, where the first samples have %zd",
                             sample, length, node->fields, node->n);
        return -1;
}

/* Any sequence that is neither tuple nor list. */
static int store_sequence(const struct node *node, PyObject *value, void *const cells[], uint64_t sample) {
        int r;

        if (PyUnicode_Check(value) || PyBytes_Check(value) || !PySequence_Check(value) || PyDict_Check(value))
                return refuse_type(node, value, sample, "a sequence");
        r = check_length(node, PySequence_Size(value), sample);
        for (Py_ssize_t i = 0; r == 0 && i < node->n; i++) {
                PyObject *element = PySequence_GetItem(value, i);

                r = element ? store(&node->children[i], element, cells, sample) : -1;
                Py_XDECREF(element);
        }
        return r;
}

static int store_tuple(const struct node *node, PyObject *value, void *const cells[], uint64_t sample) {
        int r = check_length(node, PyTuple_Size(value), sample);

        for (Py_ssize_t i = 0; r == 0 && i < node->n; i++)
                r = store(&node->children[i], PyTuple_GetItem(value, i), cells, sample);
        return r;
}

/* A list may be changed by what its elements' types do meanwhile. */
static int store_list(const struct node *node, PyObject *value, void *const cells[], uint64_t sample) {
        int r = check_length(node, PyList_Size(value), sample);

        for (Py_ssize_t i = 0; r == 0 && i < node->n; i++) {
                PyObject *element = PyList_GetItem(value, i);

                Py_XINCREF(element);
                r = element ? store(&node->children[i], element, cells, sample) : -1;
                Py_XDECREF(element);
        }
        return r;
}

static int is_known(const struct node *node, PyObject *key) {
        int same = 0;

        for (Py_ssize_t i = 0; same == 0 && i < node->n; i++)
                same = PyObject_RichCompareBool(node->children[i].key, key, Py_EQ);
        return same;
}

/* There are more keys than there should be: names one. */
static int refuse_keys(const struct node *node, PyObject *value, uint64_t sample) {
        PyObject *keys = PyMapping_Keys(value);
        Py_ssize_t n = keys ? PyList_Size(keys) : 0;

        for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
                PyObject *key = PyList_GetItem(keys, i);

                if (is_known(node, key) == 0)
                        PyErr_Format(PyExc_ValueError,
                                     "sample %llu: the key %R, which the first samples have not", sample,
                                     key);
        }
        if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "sample %llu: %zd keys, where the first samples have %zd",
                             sample, n, node->n);
        Py_XDECREF(keys);
        return -1;
}

/* A new reference. */
static PyObject *find_value(PyObject *value, PyObject *key, uint64_t sample) {
        PyObject *found;

        if (PyDict_CheckExact(value)) {
                found = PyDict_GetItemWithError(value, key);
                Py_XINCREF(found);
        } else {
                found = PyObject_GetItem(value, key);
                if (!found && PyErr_ExceptionMatches(PyExc_KeyError))
                        PyErr_Clear();
        }
        if (!found && !PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "sample %llu: no key %R, which the first samples have", sample,
                             key);
        return found;
}

static int store_mapping(const struct node *node, PyObject *value, void *const cells[], uint64_t sample) {
        int r = 0;

        if (!PyMapping_Check(value) || PyTuple_Check(value) || PyList_Check(value) || PyUnicode_Check(value))
                return refuse_type(node, value, sample, "a mapping");
        for (Py_ssize_t i = 0; r == 0 && i < node->n; i++) {
                PyObject *found = find_value(value, node->children[i].key, sample);

                r = found ? store(&node->children[i], found, cells, sample) : -1;
                Py_XDECREF(found);
        }
        if (r == 0 && PyMapping_Size(value) != node->n)
                return refuse_keys(node, value, sample);
        return r;
}

static int store(const struct node *node, PyObject *value, void *const cells[], uint64_t sample) {
        if (node->type == NODE_LEAF)
                return leaf_store(&node->leaf, value, cells[node->leaf.index], sample);
        if (node->type == NODE_MAPPING)
                return store_mapping(node, value, cells, sample);
        if (PyTuple_Check(value))
                return store_tuple(node, value, cells, sample);
        if (PyList_Check(value))
                return store_list(node, value, cells, sample);
        return store_sequence(node, value, cells, sample);
}

/* ---- a row ---- */

/* A new reference. */
static PyObject *fetch(const struct rows *rows, uint64_t seed, uint32_t epoch, uint64_t sample) {
        PyObject *number = PyLong_FromUnsignedLongLong(sample), *value = NULL;

        if (!number)
                return NULL;
        do {
                Py_CLEAR(value);
                if (randomness_seed(seed, epoch, sample, true) < 0)
                        break;
                value = PyObject_CallFunctionObjArgs(rows->fetch, number, NULL);
        } while (value && randomness_has_grown());
        Py_DECREF(number);
        return value;
}

int rows_make(PyObject *object, uint64_t seed, uint32_t epoch, uint64_t sample, void *const cells[]) {
        const struct rows *rows = (const struct rows *)object;
        PyObject *value = fetch(rows, seed, epoch, sample);
        int r = value ? store(&rows->root, value, cells, sample) : -1;

        Py_XDECREF(value);
        return r;
}

/* Counts in `seen` how many leaves each field has. */
static int bind_node(const struct node *node, const struct schema *schema, unsigned seen[]) {
        const struct leaf *leaf = &node->leaf;

        for (Py_ssize_t i = 0; i < node->n; i++)
                if (bind_node(&node->children[i], schema, seen) < 0)
                        return -1;
        if (node->type != NODE_LEAF)
                return 0;
        if (leaf->index >= schema->n_fields) {
                PyErr_Format(PyExc_ValueError, "leaf %U is for field %u of %u", leaf->name, leaf->index,
                             schema->n_fields);
                return -1;
        }
        seen[leaf->index]++;
        if (leaf->bytes == schema->fields[leaf->index].row_bytes)
                return 0;
        PyErr_Format(PyExc_ValueError, "leaf %U has %zu bytes, field %s of the pipeline %llu", leaf->name,
                     leaf->bytes, schema->fields[leaf->index].name, schema->fields[leaf->index].row_bytes);
        return -1;
}

int rows_bind(PyObject *object, const struct schema *schema) {
        const struct rows *rows = (const struct rows *)object;
        unsigned seen[SCHEMA_FIELDS_MAX] = {0};

        if (bind_node(&rows->root, schema, seen) < 0)
                return -1;
        for (uint32_t i = 0; i < schema->n_fields; i++)
                if (seen[i] != 1) {
                        PyErr_Format(PyExc_ValueError, "%u leaves for field %s of the pipeline, expected one",
                                     seen[i], schema->fields[i].name);
                        return -1;
                }
        return 0;
}

/* ---- the type ---- */

static void rows_dealloc(PyObject *object) {
        struct rows *rows = (struct rows *)object;
        PyTypeObject *type = Py_TYPE(object);

        node_deinit(&rows->root);
        Py_CLEAR(rows->fetch);
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
        Py_DECREF(type);
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
        static char *names[] = {"fetch", "spec", NULL};
        PyObject *object, *function, *spec;
        struct rows *rows;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Rows", names, &function, &spec))
                return NULL;
        object = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
        if (!object)
                return NULL;
        rows = (struct rows *)object;
        Py_INCREF(function);
        rows->fetch = function;
        if (node_init(&rows->root, spec) == 0)
                return object;
        Py_DECREF(object);
        return NULL;
}

static PyType_Slot rows_slots[] = {
        {Py_tp_new, rows_new},
        {Py_tp_dealloc, rows_dealloc},
        {Py_tp_doc, "Rows(fetch, spec): makes rows of what fetch(sample) gives."},
        {0},
};

static PyType_Spec rows_spec = {
        .name = "pinfeed._worker.Rows",
        .basicsize = sizeof(struct rows),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = rows_slots,
};

int rows_init_type(PyObject *module) {
        rows_type = PyType_FromSpec(&rows_spec);
        if (!rows_type)
                return -1;
        Py_INCREF(rows_type);
        if (PyModule_AddObject(module, "Rows", rows_type) == 0)
                return 0;
        Py_DECREF(rows_type);
        return -1;
}

bool rows_check(PyObject *object) {
        return (PyObject *)Py_TYPE(object) == rows_type;
}
