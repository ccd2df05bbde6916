#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A mapping of the configuration file held against the tables that say which keys it may have. */

#include "daemon/config-document.h"
#include "daemon/config-keys.h"

enum {
        MAPPING_KEYS_MAX = 32, /* of the longest tables together, with room */
};

struct mapping {
        struct document *document;
        const struct document_path *path;
        const struct yaml_node_s *node; /* the place of what is missing */
        const struct key *table;
        const struct config_part *parts; /* may be NULL */
        /* What was said, by the place of the name: the table's keys, then the parts. NULL: not said. */
        const struct yaml_node_s *keys[MAPPING_KEYS_MAX];
        const struct yaml_node_s *values[MAPPING_KEYS_MAX];
};

/* Sorts the pairs of `node` by name. 0, or -EINVAL: no mapping, an unknown key (with the nearest known one),
 * a key said twice (with both lines). All arguments must outlive the mapping. */
int mapping_init(struct mapping *mapping, struct document *document, const struct document_path *path,
                 const struct yaml_node_s *node, const struct key *table, const struct config_part *parts,
                 struct fault *fault);

/* A mapping that says nothing, in the place of `node`. */
void mapping_init_empty(struct mapping *mapping, struct document *document, const struct document_path *path,
                        const struct yaml_node_s *node, const struct key *table);

/* The value of a key of the table or of the parts, or NULL. */
const struct yaml_node_s *mapping_value(const struct mapping *mapping, const char *name);

/* Gives `object` all keys of the table: what was said, and for the rest the defaults. 0, or a negative errno:
 * a value that is refused, a required key (of the table or of the parts) that is missing. The object is good
 * for keys_deinit in any case. */
int mapping_apply(const struct mapping *mapping, void *object, struct fault *fault);

/* The value of `name` in a mapping that is not sorted yet, or NULL. */
const struct yaml_node_s *mapping_peek(struct document *document, const struct yaml_node_s *node,
                                       const char *name);
