/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every mapping of the file is read alike: its pairs are sorted into an array by the place of their names in
 * a table, and only then are values looked at. So that an unknown key is reported as such before the missing
 * one that it was meant to be, and what was said is asked for by name later, with its position.
 *
 * keys_set knows what a key may hold and says it in words; here its words get the place in the file.
 */

#include "daemon/config-mapping.h"

#include "base/fault.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static size_t table_size(const struct key *table) {
        size_t n = 0;

        while (table[n].name)
                n++;
        return n;
}

/* The i-th name that the mapping may have, or NULL. */
static const char *name_at(const struct mapping *mapping, size_t i) {
        size_t n = table_size(mapping->table);

        if (i < n)
                return mapping->table[i].name;
        return mapping->parts ? mapping->parts[i - n].name : NULL;
}

/* The place of `name`, or -1. */
static int place_of(const struct mapping *mapping, const char *name) {
        const char *known;

        for (int i = 0; (known = name_at(mapping, (size_t)i)); i++)
                if (!strcmp(known, name))
                        return i;
        return -1;
}

static unsigned least_of(unsigned a, unsigned b, unsigned c) {
        unsigned least = a < b ? a : b;

        return least < c ? least : c;
}

/* Insertions, deletions and replacements that make `b` of `a` (Levenshtein), one row of the matrix at a time.
 */
static unsigned distance(const char *a, const char *b) {
        unsigned row[DOCUMENT_TEXT_MAX + 1];
        size_t n = strnlen(b, DOCUMENT_TEXT_MAX);

        for (size_t j = 0; j <= n; j++)
                row[j] = (unsigned)j;
        for (size_t i = 0; i < DOCUMENT_TEXT_MAX && a[i]; i++) {
                unsigned diagonal = row[0];

                row[0] = (unsigned)i + 1;
                for (size_t j = 1; j <= n; j++) {
                        unsigned above = row[j];

                        row[j] = least_of(above + 1, row[j - 1] + 1, diagonal + (a[i] != b[j - 1]));
                        diagonal = above;
                }
        }
        return row[n];
}

/* NULL: none is more like it than not. */
static const char *nearest(const struct mapping *mapping, const char *name) {
        unsigned least = (unsigned)(strlen(name) + 1) / 2 + 1;
        const char *known, *found = NULL;

        for (size_t i = 0; (known = name_at(mapping, i)); i++) {
                unsigned d = distance(name, known);

                if (d < least) {
                        least = d;
                        found = known;
                }
        }
        return found;
}

static int unknown_key(const struct mapping *mapping, const struct yaml_node_s *key,
                       const struct document_path *here, struct fault *fault) {
        const char *known = nearest(mapping, here->name);

        if (known)
                return document_fault(mapping->document, key, here, fault, -EINVAL,
                                      "unknown key, the nearest known one is %s", known);
        return document_fault(mapping->document, key, here, fault, -EINVAL,
                              "unknown key; pinfeedd --help-config lists those there are");
}

/* Takes one pair of the mapping. */
static int take(struct mapping *mapping, const struct yaml_node_s *key, const struct yaml_node_s *value,
                struct fault *fault) {
        const char *name = document_scalar(key);
        struct document_path here = {mapping->path, name, 0};
        char text[DOCUMENT_TEXT_MAX];
        int i, r;

        r = document_check(mapping->document, key, mapping->path, fault);
        if (r < 0)
                return r;
        if (!name)
                return document_fault(mapping->document, key, mapping->path, fault, -EINVAL,
                                      "expected the name of a key, got %s", document_describe(key, text));
        i = place_of(mapping, name);
        if (i < 0)
                return unknown_key(mapping, key, &here, fault);
        if (mapping->keys[i])
                return document_fault(mapping->document, key, &here, fault, -EINVAL,
                                      "expected once, got it in line %u and line %u",
                                      document_line(mapping->keys[i]), document_line(key));
        mapping->keys[i] = key;
        mapping->values[i] = value;
        return 0;
}

void mapping_init_empty(struct mapping *mapping, struct document *document, const struct document_path *path,
                        const struct yaml_node_s *node, const struct key *table) {
        *mapping = (struct mapping){.document = document, .path = path, .node = node, .table = table};
}

int mapping_init(struct mapping *mapping, struct document *document, const struct document_path *path,
                 const struct yaml_node_s *node, const struct key *table, const struct config_part *parts,
                 struct fault *fault) {
        const struct yaml_node_s *key, *value;
        char text[DOCUMENT_TEXT_MAX];
        size_t n = 0;
        int r;

        mapping_init_empty(mapping, document, path, node, table);
        mapping->parts = parts;
        while (name_at(mapping, n))
                n++;
        assert(n <= MAPPING_KEYS_MAX);

        r = document_check(document, node, path, fault);
        if (r < 0)
                return r;
        if (!document_is_mapping(node))
                return document_fault(document, node, path, fault, -EINVAL, "expected a mapping, got %s",
                                      document_describe(node, text));
        for (size_t i = 0; document_pair(document, node, i, &key, &value); i++) {
                r = take(mapping, key, value, fault);
                if (r < 0)
                        return r;
        }
        return 0;
}

const struct yaml_node_s *mapping_value(const struct mapping *mapping, const char *name) {
        int i = place_of(mapping, name);

        return i < 0 ? NULL : mapping->values[i];
}

/* What keys_set wrote, without the name that it begins with (the path ends in it) and in words of YAML. */
static int refuse_value(const struct mapping *mapping, const struct key *key, const struct yaml_node_s *node,
                        int error, const struct fault *reason, struct fault *fault) {
        static const char null[] = ", got null";
        struct document_path here = {mapping->path, key->name, 0};
        size_t name = strlen(key->name), length;
        const char *text = reason->text;

        if (!strncmp(text, key->name, name) && !strncmp(text + name, ": ", 2))
                text += name + 2;
        length = strlen(text);
        if (length < strlen(null) || strcmp(text + length - strlen(null), null))
                return document_fault(mapping->document, node, &here, fault, error, "%s", text);
        return document_fault(mapping->document, node, &here, fault, error, "%.*s, got nothing",
                              (int)(length - strlen(null)), text);
}

/* One key of the table; `node` is NULL when it was not said. */
static int apply_key(const struct mapping *mapping, const struct key *key, const struct yaml_node_s *node,
                     void *object, struct fault *fault) {
        struct document_path here = {mapping->path, key->name, 0};
        struct fault reason;
        json_t *json;
        int r;

        if (!node && key->fallback)
                return 0;
        if (!node) {
                json = json_null(); /* no required key takes it */
        } else {
                r = document_to_json(mapping->document, node, &here, key->type, &json, fault);
                if (r < 0)
                        return r;
        }
        r = keys_set(key, object, json, &reason);
        json_decref(json);
        return r < 0 ? refuse_value(mapping, key, node ? node : mapping->node, r, &reason, fault) : 0;
}

int mapping_apply(const struct mapping *mapping, void *object, struct fault *fault) {
        int r;

        keys_init(mapping->table, object);
        for (const struct config_part *part = mapping->parts; part && part->name; part++) {
                struct document_path here = {mapping->path, part->name, 0};

                if (!part->fallback && !mapping_value(mapping, part->name))
                        return document_fault(mapping->document, mapping->node, &here, fault, -EINVAL,
                                              "expected %s, got nothing", part->type);
        }
        for (size_t i = 0; mapping->table[i].name; i++) {
                r = apply_key(mapping, &mapping->table[i], mapping->values[i], object, fault);
                if (r < 0)
                        return r;
        }
        return 0;
}

const struct yaml_node_s *mapping_peek(struct document *document, const struct yaml_node_s *node,
                                       const char *name) {
        const struct yaml_node_s *key, *value;

        for (size_t i = 0; document_pair(document, node, i, &key, &value); i++)
                if (document_scalar(key) && !strcmp(document_scalar(key), name))
                        return value;
        return NULL;
}
