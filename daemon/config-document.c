/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libyaml's document is an array of nodes, each with the mark where it stands in the text. It is kept as it
 * is and walked, so that an error found late (two numbers that contradict each other) still has its line. A
 * library that loads YAML into structs would lose the marks.
 *
 * libyaml resolves an alias to the node of its anchor, so an alias can close a circle, and a short file can
 * mean a huge tree. Nobody walks "the tree" here: readers descend as deep as the configuration has levels, a
 * list of values is one level deep and bounded, and so a circle is met as a mapping where a number was
 * expected. The one value that may be of any depth is bounded in depth and in nodes (nested_to_json). NUL,
 * which would end a C string early, and tags, which would change what a value is, are refused wherever they
 * stand.
 *
 * Scalars: YAML leaves it to the reader what plain text means. Ours is the smallest reading that holds no
 * surprise: `yes`, `010`, `0x10`, `1_000` and `+5` are text, and an error where a number or a truth value was
 * expected.
 */

#include "daemon/config-document.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"
#include "daemon/config-yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
        DOCUMENT_LIST_MAX = 64,  /* items of a value that is a list; keys take three at most */
        DOCUMENT_PATH_MAX = 256, /* text of a path in an error */
        NESTED_DEPTH_MAX = 16,   /* of a value that may be anything */
        NESTED_NODES_MAX = 4096, /* an alias counts as often as it is used */
};

struct document {
        char *file;
        bool composed;
        yaml_document_t yaml;
};

static void document_freep(struct document **document) {
        document_free(*document);
}

int document_new(struct document **document, const char *file, const char *text, struct fault *fault) {
        _cleanup_(document_freep) struct document *new = NULL;
        int r;

        new = calloc(1, sizeof(*new));
        if (!new || !(new->file = strdup(file)))
                return fault_set(fault, -ENOMEM, "%s: out of memory", file);
        r = yaml_compose(&new->yaml, file, text, fault);
        if (r < 0)
                return r;
        new->composed = true;
        *document = new;
        new = NULL; /* handed over */
        return 0;
}

struct document *document_free(struct document *document) {
        if (!document)
                return NULL;
        if (document->composed)
                yaml_document_delete(&document->yaml);
        free(document->file);
        free(document);
        return NULL;
}

const yaml_node_t *document_root(struct document *document) {
        return yaml_document_get_root_node(&document->yaml);
}

unsigned document_line(const yaml_node_t *node) {
        return (unsigned)node->start_mark.line + 1;
}

/* Names of keys can be foreign text too: an unknown key stands in the path of its own error. */
static size_t print_path(char *text, size_t size, const struct document_path *path) {
        char name[DOCUMENT_TEXT_MAX];
        size_t length;

        if (!path)
                return 0;
        length = print_path(text, size, path->up);
        if (path->name)
                fault_sanitize(name, sizeof(name), path->name, strlen(path->name));
        else
                snprintf(name, sizeof(name), "[%u]", path->index);
        snprintf(text + length, size - length, "%s%s", path->name && length > 0 ? "." : "", name);
        return strlen(text);
}

int document_fault(const struct document *document, const yaml_node_t *node, const struct document_path *path,
                   struct fault *fault, int error, const char *format, ...) {
        char where[DOCUMENT_PATH_MAX] = "", text[FAULT_TEXT_MAX + 1];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        print_path(where, sizeof(where), path);
        return fault_set(fault, error, "%s:%u:%u: %s%s%s", document->file, document_line(node),
                         (unsigned)node->start_mark.column + 1, where, *where ? ": " : "", text);
}

int document_check(const struct document *document, const yaml_node_t *node, const struct document_path *path,
                   struct fault *fault) {
        static const char *const tags[] = {
                [YAML_SCALAR_NODE] = YAML_DEFAULT_SCALAR_TAG,
                [YAML_SEQUENCE_NODE] = YAML_DEFAULT_SEQUENCE_TAG,
                [YAML_MAPPING_NODE] = YAML_DEFAULT_MAPPING_TAG,
        };
        char tag[DOCUMENT_TEXT_MAX];

        if (node->tag && strcmp((const char *)node->tag, tags[node->type])) {
                fault_sanitize(tag, sizeof(tag), (const char *)node->tag, strlen((const char *)node->tag));
                return document_fault(document, node, path, fault, -EINVAL,
                                      "expected a value without a tag, got %s", tag);
        }
        if (node->type == YAML_SCALAR_NODE &&
            strlen((const char *)node->data.scalar.value) != node->data.scalar.length)
                return document_fault(document, node, path, fault, -EINVAL,
                                      "expected text, got a NUL byte in it");
        return 0;
}

bool document_is_list(const yaml_node_t *node) {
        return node->type == YAML_SEQUENCE_NODE;
}

bool document_is_mapping(const yaml_node_t *node) {
        return node->type == YAML_MAPPING_NODE;
}

bool document_is_left_out(const yaml_node_t *node) {
        return node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
               node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

const char *document_describe(const yaml_node_t *node, char text[DOCUMENT_TEXT_MAX]) {
        char quoted[DOCUMENT_TEXT_MAX - 5]; /* room for quotes and dots */

        if (node->type == YAML_SEQUENCE_NODE)
                return strcpy(text, "a list");
        if (node->type == YAML_MAPPING_NODE)
                return strcpy(text, "a mapping");
        if (document_is_left_out(node))
                return strcpy(text, "nothing");
        fault_sanitize(quoted, sizeof(quoted), (const char *)node->data.scalar.value,
                       node->data.scalar.length);
        snprintf(text, DOCUMENT_TEXT_MAX, "\"%s\"%s", quoted,
                 strlen(quoted) < node->data.scalar.length ? "..." : "");
        return text;
}

const char *document_scalar(const yaml_node_t *node) {
        if (node->type != YAML_SCALAR_NODE || document_is_left_out(node))
                return NULL;
        return (const char *)node->data.scalar.value;
}

size_t document_size(const yaml_node_t *node) {
        if (node->type == YAML_SEQUENCE_NODE)
                return (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
        if (node->type == YAML_MAPPING_NODE)
                return (size_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
        return 0;
}

const yaml_node_t *document_item(struct document *document, const yaml_node_t *list, size_t i) {
        if (list->type != YAML_SEQUENCE_NODE || i >= document_size(list))
                return NULL;
        return yaml_document_get_node(&document->yaml, list->data.sequence.items.start[i]);
}

bool document_pair(struct document *document, const yaml_node_t *mapping, size_t i, const yaml_node_t **key,
                   const yaml_node_t **value) {
        const yaml_node_pair_t *pair;

        if (mapping->type != YAML_MAPPING_NODE || i >= document_size(mapping))
                return false;
        pair = &mapping->data.mapping.pairs.start[i];
        *key = yaml_document_get_node(&document->yaml, pair->key);
        *value = yaml_document_get_node(&document->yaml, pair->value);
        return *key && *value;
}

/* -?(0|[1-9][0-9]*): other spellings of whole numbers mean different things to different readers of YAML. */
static bool looks_whole(const char *text) {
        size_t digits;

        text += *text == '-';
        digits = strspn(text, "0123456789");
        return digits > 0 && text[digits] == 0 && (text[0] != '0' || digits == 1);
}

/* A number with a point or an exponent; its exact form is number_parse_double's matter. */
static bool looks_real(const char *text) {
        text += *text == '-';
        return strspn(text, "0123456789.eE+-") == strlen(text) && strpbrk(text, "0123456789") &&
               strpbrk(text, ".eE") && *text != '+' && *text != '-' && *text != 'e' && *text != 'E';
}

/* A whole number that no integer of JSON holds is still a number: too large, but no text. For bytes the
 * digits stay, since those keys go up to 2^64. */
static json_t *whole_to_json(const char *text, enum key_type type) {
        long long whole;
        double real;

        errno = 0;
        whole = strtoll(text, NULL, 10);
        if (!errno)
                return json_integer(whole);
        if ((type == KEY_DOUBLE || type == KEY_PAIR || type == KEY_TRIPLE) &&
            !number_parse_double(text, &real))
                return json_real(real);
        return json_string(text);
}

static json_t *scalar_to_json(const yaml_node_t *node, enum key_type type) {
        const char *text = (const char *)node->data.scalar.value;
        double real;

        if (document_is_left_out(node))
                return json_null();
        if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || type == KEY_TEXT || type == KEY_TEXTS)
                return json_string(text);
        if (!strcmp(text, "true") || !strcmp(text, "false"))
                return json_boolean(text[0] == 't');
        if (!strcmp(text, "null") || !strcmp(text, "~"))
                return json_null();
        if (looks_whole(text))
                return whole_to_json(text, type);
        if (looks_real(text) && !number_parse_double(text, &real))
                return json_real(real);
        return json_string(text);
}

static int item_to_json(struct document *document, const yaml_node_t *node, const struct document_path *path,
                        enum key_type type, json_t **json, struct fault *fault) {
        int r;

        r = document_check(document, node, path, fault);
        if (r < 0)
                return r;
        if (node->type == YAML_SCALAR_NODE)
                *json = scalar_to_json(node, type);
        else
                *json = node->type == YAML_SEQUENCE_NODE ? json_array() : json_object();
        return *json ? 0 : document_fault(document, node, path, fault, -EINVAL, "expected text in UTF-8");
}

/* ---- values of any depth ---- */

/* Where the walk is. An alias can lead back to a node above, and few lines can mean a huge tree. */
struct nest {
        struct document *document;
        unsigned depth;
        unsigned nodes;
};

static int nested_to_json(struct nest *nest, const yaml_node_t *node, const struct document_path *path,
                          json_t **json, struct fault *fault);

/* As it was said; what else would a number be that no integer of JSON holds? */
static int nested_scalar_to_json(struct nest *nest, const yaml_node_t *node, const struct document_path *path,
                                 json_t **json, struct fault *fault) {
        bool is_plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

        *json = scalar_to_json(node, KEY_JSON);
        if (!*json)
                return document_fault(nest->document, node, path, fault, -EINVAL, "expected text in UTF-8");
        if (!is_plain || !json_is_string(*json) || !looks_whole(json_string_value(*json)))
                return 0;
        json_decref(*json);
        return document_fault(nest->document, node, path, fault, -EINVAL,
                              "expected a whole number from -2^63 to 2^63-1, or a text in quotes, got %s",
                              (const char *)node->data.scalar.value);
}

static int add_item(struct nest *nest, const yaml_node_t *list, unsigned i, const struct document_path *path,
                    json_t *json, struct fault *fault) {
        struct document_path here = {path, NULL, i};
        json_t *item;
        int r = nested_to_json(nest, document_item(nest->document, list, i), &here, &item, fault);

        if (r < 0)
                return r;
        return json_array_append_new(json, item) < 0 ? -ENOMEM : 0;
}

static int add_pair(struct nest *nest, const yaml_node_t *mapping, unsigned i,
                    const struct document_path *path, json_t *json, struct fault *fault) {
        const yaml_node_t *key = NULL, *value = NULL;
        struct document_path here = {path, NULL, i};
        json_t *item;
        int r;

        if (!document_pair(nest->document, mapping, i, &key, &value) || !document_scalar(key))
                return document_fault(nest->document, key ? key : mapping, path, fault, -EINVAL,
                                      "expected names as keys");
        here.name = document_scalar(key);
        r = document_check(nest->document, key, path, fault);
        if (!r && json_object_get(json, here.name))
                r = document_fault(nest->document, key, &here, fault, -EINVAL, "expected once");
        if (!r)
                r = nested_to_json(nest, value, &here, &item, fault);
        if (r < 0)
                return r;
        if (json_object_set_new(json, here.name, item) < 0)
                return document_fault(nest->document, key, path, fault, -EINVAL,
                                      "expected names in UTF-8 as keys");
        return 0;
}

static int nested_to_json(struct nest *nest, const yaml_node_t *node, const struct document_path *path,
                          json_t **json, struct fault *fault) {
        bool is_list = document_is_list(node);
        int r = document_check(nest->document, node, path, fault);

        if (r < 0)
                return r;
        if (nest->depth == NESTED_DEPTH_MAX || ++nest->nodes > NESTED_NODES_MAX)
                return document_fault(nest->document, node, path, fault, -EINVAL,
                                      "expected at most %d levels, and %d values in all", NESTED_DEPTH_MAX,
                                      NESTED_NODES_MAX);
        if (node->type == YAML_SCALAR_NODE)
                return nested_scalar_to_json(nest, node, path, json, fault);
        *json = is_list ? json_array() : json_object();
        nest->depth++;
        for (unsigned i = 0; *json && r == 0 && i < document_size(node); i++)
                r = is_list ? add_item(nest, node, i, path, *json, fault)
                            : add_pair(nest, node, i, path, *json, fault);
        nest->depth--;
        if (!*json)
                return -ENOMEM;
        if (r < 0)
                json_decref(*json);
        return r;
}

int document_to_json(struct document *document, const yaml_node_t *node, const struct document_path *path,
                     enum key_type type, json_t **json, struct fault *fault) {
        struct nest nest = {.document = document};
        size_t n = document_size(node);
        json_t *value = NULL;
        int r;

        if (type == KEY_JSON)
                return nested_to_json(&nest, node, path, json, fault);
        r = item_to_json(document, node, path, type, &value, fault);
        if (!r && n > DOCUMENT_LIST_MAX)
                r = document_fault(document, node, path, fault, -EINVAL, "expected at most %d items, got %zu",
                                   DOCUMENT_LIST_MAX, n);
        for (size_t i = 0; !r && node->type == YAML_SEQUENCE_NODE && i < n; i++) {
                struct document_path here = {path, NULL, (unsigned)i};
                json_t *item = NULL;

                r = item_to_json(document, document_item(document, node, i), &here, type, &item, fault);
                if (!r && json_array_append_new(value, item) < 0)
                        r = -ENOMEM;
        }
        if (r < 0) {
                json_decref(value);
                return r;
        }
        *json = value;
        return 0;
}
