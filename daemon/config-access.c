/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Lists of users and groups.
 *
 * They are read after all else, from the document: what a name means is asked of the machine, not of the
 * file, and may take its time. A definition that a job sends is read in the daemon's loop, which has none: so
 * these keys are refused in it before anybody is asked.
 *
 * A list of a pipeline replaces that of the file, it does not add to it: whoever reads the lines of a
 * pipeline sees who may use it.
 *
 * Whoever may write to a shared memory object may truncate it, and then every touch of it is a SIGBUS, in
 * every job. So a ring that somebody else may page-lock lies in a memfd that is sealed against that. */

#include "daemon/config-access.h"

#include "base/fault.h"
#include "daemon/access.h"
#include "daemon/config-mapping.h"
#include "daemon/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const daemon_keys[] = {"allow", "allow_pinned", "socket_group", NULL};
static const char *const pipeline_keys[] = {"allow", "allow_pinned", NULL};

/* One entry of a list: its words get its place. */
static int read_entry(struct access *access, const struct document_path *list, unsigned index,
                      struct document *document, const struct yaml_node_s *node,
                      int (*add)(struct access *, const char *, struct fault *), struct fault *fault) {
        struct document_path path = {list, NULL, index};
        const char *name = document_scalar(node);
        char text[DOCUMENT_TEXT_MAX];
        struct fault reason;
        int r;

        r = document_check(document, node, &path, fault);
        if (r < 0)
                return r;
        if (!name || !*name)
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected a name or number, got %s", document_describe(node, text));
        r = add(access, name, &reason);
        return r < 0 ? document_fault(document, node, &path, fault, r, "%s", reason.text) : 0;
}

/* `users` or `groups`; NULL: it was not said. */
static int read_entries(struct access *access, const struct document_path *up, const char *key,
                        const struct mapping *mapping,
                        int (*add)(struct access *, const char *, struct fault *), struct fault *fault) {
        const struct yaml_node_s *node = mapping_value(mapping, key);
        struct document_path path = {up, key, 0};
        char text[DOCUMENT_TEXT_MAX];
        int r = 0;

        if (!node)
                return 0;
        if (!document_is_list(node))
                return document_fault(mapping->document, node, &path, fault, -EINVAL,
                                      "expected a list of names or numbers, got %s",
                                      document_describe(node, text));
        for (size_t i = 0; r == 0 && i < document_size(node); i++)
                r = read_entry(access, &path, (unsigned)i, mapping->document,
                               document_item(mapping->document, node, i), add, fault);
        return r;
}

/* One list, `key` of the mapping `node` at `up`. */
static int read_list(struct access *access, struct document *document, const struct document_path *up,
                     const struct yaml_node_s *node, const char *key, struct fault *fault) {
        static const struct key none[] = {{0}};
        struct document_path path = {up, key, 0};
        struct mapping mapping;
        int r;

        node = mapping_peek(document, node, key);
        if (!node)
                return 0;
        r = mapping_init(&mapping, document, &path, node, none, config_access_parts, fault);
        if (r == 0)
                r = read_entries(access, &path, "users", &mapping, access_add_user, fault);
        if (r == 0)
                r = read_entries(access, &path, "groups", &mapping, access_add_group, fault);
        access->line = document_line(node);
        return r;
}

static int read_socket_group(struct config *config, struct document *document, struct fault *fault) {
        const struct yaml_node_s *node = mapping_peek(document, document_root(document), "socket_group");
        struct document_path path = {NULL, "socket_group", 0};
        char text[DOCUMENT_TEXT_MAX];
        struct fault reason;
        int r;

        if (!node)
                return 0;
        r = document_check(document, node, &path, fault);
        if (r < 0)
                return r;
        if (!document_scalar(node) || !*document_scalar(node))
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected the name or number of a group, got %s",
                                      document_describe(node, text));
        r = access_find_group(document_scalar(node), &config->socket_gid, &reason);
        if (r < 0)
                return document_fault(document, node, &path, fault, r, "%s", reason.text);
        config->socket_group_line = document_line(node);
        return 0;
}

/* What page-locking by others asks of the ring. */
static int settle_backing(const struct config *config, struct config_pipeline *pipeline,
                          struct document *document, const struct document_path *up,
                          const struct yaml_node_s *node, struct fault *fault) {
        const struct access *pinned = config_allow_pinned(config, pipeline);
        struct document_path path = {up, "backing", 0};

        if (!access_has_others(pinned))
                return 0;
        if (pipeline->backing == CONFIG_BACKING_SHM)
                return document_fault(document, mapping_peek(document, node, "backing"), &path, fault,
                                      -EINVAL,
                                      "expected auto or memfd, as allow_pinned in line %u names other users, "
                                      "who could truncate a ring in /dev/shm under every job; got shm",
                                      pinned->line);
        pipeline->backing = CONFIG_BACKING_MEMFD;
        return 0;
}

static int read_pipeline(struct config *config, struct config_pipeline *pipeline, struct document *document,
                         struct fault *fault) {
        const struct yaml_node_s *pipelines = mapping_peek(document, document_root(document), "pipelines"),
                                 *node = mapping_peek(document, pipelines, pipeline->name);
        struct document_path top = {NULL, "pipelines", 0}, path = {&top, pipeline->name, 0};
        int r;

        r = read_list(&pipeline->allow, document, &path, node, "allow", fault);
        if (r == 0)
                r = read_list(&pipeline->allow_pinned, document, &path, node, "allow_pinned", fault);
        return r == 0 ? settle_backing(config, pipeline, document, &path, node, fault) : r;
}

int config_read_access(struct config *config, struct document *document, struct fault *fault) {
        const struct yaml_node_s *root = document_root(document);
        int r;

        r = read_list(&config->allow, document, NULL, root, "allow", fault);
        if (r == 0)
                r = read_list(&config->allow_pinned, document, NULL, root, "allow_pinned", fault);
        if (r == 0)
                r = read_socket_group(config, document, fault);
        for (uint32_t i = 0; r == 0 && i < config->n_pipelines; i++)
                r = read_pipeline(config, &config->pipelines[i], document, fault);
        return r;
}

/* ---- definitions ---- */

static int refuse_keys(struct document *document, const struct document_path *up,
                       const struct yaml_node_s *node, const char *const keys[], struct fault *fault) {
        for (; *keys; keys++) {
                struct document_path path = {up, *keys, 0};
                const struct yaml_node_s *value = mapping_peek(document, node, *keys);

                if (value)
                        return document_fault(document, value, &path, fault, -EINVAL,
                                              "says who may use a daemon's pipelines; expected it in "
                                              "pinfeedd's own --config, not in a definition");
        }
        return 0;
}

int config_refuse_access(struct document *document, struct fault *fault) {
        const struct yaml_node_s *root = document_root(document), *name, *value,
                                 *pipelines = mapping_peek(document, root, "pipelines");
        struct document_path top = {NULL, "pipelines", 0};
        int r = refuse_keys(document, NULL, root, daemon_keys, fault);

        for (size_t i = 0; r == 0 && document_pair(document, pipelines, i, &name, &value); i++) {
                struct document_path path = {&top, document_scalar(name), 0};

                r = refuse_keys(document, &path, value, pipeline_keys, fault);
        }
        return r;
}
