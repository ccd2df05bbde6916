/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tables of proto/recipe.h name the sources, the transforms and their keys; here only their shapes in
 * YAML are known:
 *
 *   source: {type: NAME, KEY: VALUE ...}
 *   transforms: [NAME, NAME: {KEY: VALUE ...}, ...]
 *   output: {KEY: VALUE ...}
 *
 * What the keys may be together is recipe_check's knowledge. It answers with the number of the part at fault,
 * which is turned back into the node that was read for that part.
 *
 * A relative path means "beside this file", as everywhere where files name files: the daemon's own working
 * directory is nothing that the author of the file knows.
 */

#include "daemon/config-recipe.h"

#include "base/fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
        KINDS_TEXT_MAX = 256,
};

/* Where recipe_check's places stand. */
struct origin {
        const struct yaml_node_s *source;
        const struct yaml_node_s *output;
        const struct yaml_node_s *transforms[RECIPE_TRANSFORMS_MAX];
};

static const struct config_part source_parts[] = {
        {.name = "type"},
        {0},
};

static const char *list_kinds(char text[KINDS_TEXT_MAX], const struct recipe_kind *kinds) {
        size_t length = 0;

        for (size_t i = 0; kinds[i].name && length < KINDS_TEXT_MAX; i++)
                length += (size_t)snprintf(text + length, KINDS_TEXT_MAX - length, "%s%s", i ? ", " : "",
                                           kinds[i].name);
        return text;
}

/* Finds the kind that `node` names. */
static int read_kind(struct document *document, const struct yaml_node_s *node,
                     const struct document_path *path, const struct recipe_kind *kinds, int *kind,
                     struct fault *fault) {
        char text[DOCUMENT_TEXT_MAX], known[KINDS_TEXT_MAX];
        const char *name = document_scalar(node);
        int r;

        r = document_check(document, node, path, fault);
        if (r < 0)
                return r;
        for (*kind = 0; name && kinds[*kind].name; ++*kind)
                if (!strcmp(kinds[*kind].name, name))
                        return 0;
        return document_fault(document, node, path, fault, -EINVAL, "expected one of %s, got %s",
                              list_kinds(known, kinds), document_describe(node, text));
}

static int resolve_path(char **path, const char *directory) {
        char *resolved;

        if (!*path || **path == '/' || !strcmp(directory, "."))
                return 0;
        if (asprintf(&resolved, "%s/%s", directory, *path) < 0)
                return -ENOMEM;
        free(*path);
        *path = resolved;
        return 0;
}

/* Each of the directories in a list, which is JSON. */
static int resolve_paths(char **paths, const char *directory) {
        json_t *list = *paths ? json_loads(*paths, 0, NULL) : NULL;
        char *resolved = NULL;
        int r = 0;

        if (!list)
                return *paths ? -ENOMEM : 0;
        for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
                char *path = strdup(json_string_value(json_array_get(list, i)));

                r = path ? resolve_path(&path, directory) : -ENOMEM;
                if (r == 0 && json_array_set_new(list, i, json_string(path)) < 0)
                        r = -ENOMEM;
                free(path);
        }
        if (r == 0)
                resolved = json_dumps(list, JSON_COMPACT);
        json_decref(list);
        if (!resolved)
                return -ENOMEM;
        free(*paths);
        *paths = resolved;
        return 0;
}

/* A program's name without a slash is looked for on the PATH. */
static int resolve_all(struct recipe_source *source, const char *directory) {
        int r = resolve_path(&source->path, directory);

        if (r == 0 && source->interpreter && strchr(source->interpreter, '/'))
                r = resolve_path(&source->interpreter, directory);
        return r == 0 ? resolve_paths(&source->import_path, directory) : r;
}

static int read_source(struct recipe_source *source, struct document *document,
                       const struct document_path *up, const struct yaml_node_s *node, const char *directory,
                       struct fault *fault) {
        struct document_path path = {up, "source", 0}, type_path = {&path, "type", 0};
        char known[KINDS_TEXT_MAX], text[DOCUMENT_TEXT_MAX];
        const struct yaml_node_s *type;
        struct mapping mapping;
        int r;

        if (!document_is_mapping(node))
                return document_fault(document, node, &path, fault, -EINVAL, "expected a mapping, got %s",
                                      document_describe(node, text));
        type = mapping_peek(document, node, "type");
        if (!type)
                return document_fault(document, node, &type_path, fault, -EINVAL,
                                      "expected one of %s, got nothing", list_kinds(known, recipe_sources));
        r = read_kind(document, type, &type_path, recipe_sources, &source->type, fault);
        if (r < 0)
                return r;
        r = mapping_init(&mapping, document, &path, node, recipe_sources[source->type].keys, source_parts,
                         fault);
        if (r < 0)
                return r;
        r = mapping_apply(&mapping, source, fault);
        if (r < 0)
                return r;
        return resolve_all(source, directory);
}

/* One item of the list: a name, or a mapping of one name to its keys. */
static int read_transform(struct recipe_transform *transform, struct document *document,
                          const struct document_path *path, const struct yaml_node_s *node,
                          struct fault *fault) {
        const struct yaml_node_s *name = node, *keys = NULL;
        struct document_path inner = {path, NULL, 0};
        char text[DOCUMENT_TEXT_MAX];
        struct mapping mapping;
        int r;

        if (document_is_mapping(node) && document_size(node) != 1)
                return document_fault(document, node, path, fault, -EINVAL,
                                      "expected one transform in each item of the list, got %zu",
                                      document_size(node));
        if (document_is_list(node))
                return document_fault(document, node, path, fault, -EINVAL, "expected a transform, got %s",
                                      document_describe(node, text));
        document_pair(document, node, 0, &name, &keys);
        r = read_kind(document, name, path, recipe_transforms, &transform->type, fault);
        if (r < 0)
                return r;
        inner.name = recipe_transforms[transform->type].name;
        if (keys && !document_is_left_out(keys)) {
                r = mapping_init(&mapping, document, &inner, keys, recipe_transforms[transform->type].keys,
                                 NULL, fault);
                if (r < 0)
                        return r;
        } else {
                mapping_init_empty(&mapping, document, &inner, name, recipe_transforms[transform->type].keys);
        }
        return mapping_apply(&mapping, transform, fault);
}

static int read_transforms(struct recipe *recipe, struct origin *origin, struct document *document,
                           const struct document_path *up, const struct yaml_node_s *node,
                           struct fault *fault) {
        struct document_path path = {up, "transforms", 0};
        char text[DOCUMENT_TEXT_MAX];
        int r;

        r = document_check(document, node, &path, fault);
        if (r < 0)
                return r;
        if (!document_is_list(node))
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected a list of transforms, got %s", document_describe(node, text));
        if (document_size(node) > RECIPE_TRANSFORMS_MAX)
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected at most %d transforms, got %zu", RECIPE_TRANSFORMS_MAX,
                                      document_size(node));
        for (uint32_t i = 0; i < document_size(node); i++) {
                struct document_path here = {&path, NULL, i};

                origin->transforms[i] = document_item(document, node, i);
                r = read_transform(&recipe->transforms[i], document, &here, origin->transforms[i], fault);
                if (r < 0)
                        return r;
                recipe->n_transforms++;
        }
        return 0;
}

static int read_output(struct recipe_output *output, struct document *document,
                       const struct document_path *up, const struct yaml_node_s *node, struct fault *fault) {
        struct document_path path = {up, "output", 0};
        struct mapping mapping;
        int r;

        if (!node) {
                keys_init(recipe_output_keys, output);
                return 0;
        }
        r = mapping_init(&mapping, document, &path, node, recipe_output_keys, NULL, fault);
        if (r < 0)
                return r;
        return mapping_apply(&mapping, output, fault);
}

/* recipe_check, with the place in the file. */
static int check(const struct recipe *recipe, const struct origin *origin, const struct mapping *pipeline,
                 struct fault *fault) {
        struct document_path path = {pipeline->path, "source", 0}, item;
        const struct yaml_node_s *node = origin->source;
        struct fault reason;
        int place = -1, r;

        r = recipe_check(recipe, &place, &reason);
        if (r >= 0)
                return 0;
        if (place >= 0) {
                path.name = "transforms";
                item = (struct document_path){&path, NULL, (unsigned)place};
                return document_fault(pipeline->document, origin->transforms[place], &item, fault, r, "%s",
                                      reason.text);
        }
        if (place == -2) {
                path.name = "output";
                node = origin->output ? origin->output : pipeline->node;
        }
        return document_fault(pipeline->document, node, &path, fault, r, "%s", reason.text);
}

int config_read_recipe(struct recipe *recipe, const struct mapping *pipeline, const char *directory,
                       struct fault *fault) {
        const struct yaml_node_s *transforms = mapping_value(pipeline, "transforms");
        struct document *document = pipeline->document;
        struct origin origin = {
                .source = mapping_value(pipeline, "source"),
                .output = mapping_value(pipeline, "output"),
        };
        int r;

        r = read_source(&recipe->source, document, pipeline->path, origin.source, directory, fault);
        if (!r && transforms)
                r = read_transforms(recipe, &origin, document, pipeline->path, transforms, fault);
        if (!r)
                r = read_output(&recipe->output, document, pipeline->path, origin.output, fault);
        if (!r)
                r = check(recipe, &origin, pipeline, fault);
        return r;
}
