#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A YAML file as a tree that knows where each of its nodes stands. */

#include "proto/keys.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct document;
struct fault;
struct yaml_node_s;

enum {
        DOCUMENT_TEXT_MAX = 80, /* foreign text that an error quotes */
};

/* The way from the top of the file to a node, as errors name it: "pipelines.a.transforms[1]". Links of one
 * path lie in the frames of the functions that descend; the top is NULL. */
struct document_path {
        const struct document_path *up;
        const char *name; /* NULL: an item of a list, `index` counts */
        unsigned index;
};

/* Composes the one document of `file`: of what stands in it, or of `text` in its place if that is not NULL.
 * 0, or a negative errno and "FILE:LINE:COLUMN: ..." or "FILE: ...". */
int document_new(struct document **document, const char *file, const char *text, struct fault *fault);
struct document *document_free(struct document *document);

/* Never NULL. */
const struct yaml_node_s *document_root(struct document *document);

/* Line from 1. */
unsigned document_line(const struct yaml_node_s *node);

/* Writes "FILE:LINE:COLUMN: PATH: TEXT", where `node` stands, and returns `error`. */
int document_fault(const struct document *document, const struct yaml_node_s *node,
                   const struct document_path *path, struct fault *fault, int error, const char *format, ...)
        __attribute__((format(printf, 6, 7)));

/* Refuses what no reader expects anywhere: a tag, a NUL in a text. 0 or -EINVAL. */
int document_check(const struct document *document, const struct yaml_node_s *node,
                   const struct document_path *path, struct fault *fault);

/* What is there, after "got": "nothing", "a list", "a mapping", or the text in quotes. Returns `text`. */
const char *document_describe(const struct yaml_node_s *node, char text[DOCUMENT_TEXT_MAX]);

bool document_is_list(const struct yaml_node_s *node);
bool document_is_mapping(const struct yaml_node_s *node);
bool document_is_left_out(const struct yaml_node_s *node); /* `key:` with nothing behind it */

/* The text of a scalar as it was said; NULL for lists, mappings, and a value that was left out. */
const char *document_scalar(const struct yaml_node_s *node);

/* Items of a list, or pairs of a mapping; 0 for scalars. */
size_t document_size(const struct yaml_node_s *node);

/* The i-th item of a list; NULL when there is none, or the node is no list. */
const struct yaml_node_s *document_item(struct document *document, const struct yaml_node_s *list, size_t i);

/* The i-th pair of a mapping; false when there is none, or the node is no mapping. */
bool document_pair(struct document *document, const struct yaml_node_s *mapping, size_t i,
                   const struct yaml_node_s **key, const struct yaml_node_s **value);

/* A key's value as JSON, for keys_set. A plain scalar is what it looks like (true, false, a decimal number,
 * else text), a quoted one is text, and for KEY_TEXT and KEY_TEXTS every scalar is text. A list keeps its
 * scalars; what is nested deeper comes as an empty list or object, which no key takes. KEY_JSON is another
 * matter: there everything is kept, within bounds. 0 and a new reference, or a negative errno. */
int document_to_json(struct document *document, const struct yaml_node_s *node,
                     const struct document_path *path, enum key_type type, json_t **json,
                     struct fault *fault);
