/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The configuration, in layers, each of which knows nothing of those after it:
 *
 *   config-yaml.c       bytes to YAML's document, within bounds
 *   config-document.c   nodes with their places, scalars as JSON, the form of an error
 *   config-mapping.c    a mapping held against a table of keys
 *   config-keys.c       the tables
 *   config-recipe.c     source, transforms, output
 *   config-pipeline.c   a pipeline and what follows from its keys
 *   config-access.c     who may use them
 *   config.c            the file as a whole, and its life
 *
 * A struct config is whole and checked, or there is none: a daemon that is told to reload takes all of the
 * new file or nothing. It keeps no node of the document; lines that later errors want are numbers in it.
 */

#include "daemon/config.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/config-access.h"
#include "daemon/config-document.h"
#include "daemon/config-keys.h"
#include "daemon/config-mapping.h"
#include "daemon/config-pipeline.h"
#include "daemon/metrics-address.h"
#include "daemon/metrics-http.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static void document_freep(struct document **document) {
        document_free(*document);
}

static void config_unrefp(struct config **config) {
        config_unref(*config);
}

/* auto, or a number. */
static int read_cpus(struct config *config, const struct mapping *top, struct fault *fault) {
        struct document_path path = {NULL, "cpus", 0};
        const struct yaml_node_s *node = mapping_value(top, "cpus");
        char text[DOCUMENT_TEXT_MAX];
        json_t *json;
        int r;

        if (!node)
                return 0;
        r = document_to_json(top->document, node, &path, KEY_U64, &json, fault);
        if (r < 0)
                return r;
        r = 0;
        if (!json_is_string(json) || strcmp(json_string_value(json), "auto"))
                r = keys_set(&config_cpus_key, config, json, NULL);
        json_decref(json);
        if (r < 0)
                return document_fault(top->document, node, &path, fault, r,
                                      "expected auto or a whole number from 1 to %d, got %s",
                                      CONFIG_WORKERS_MAX, document_describe(node, text));
        return 0;
}

/* An address of the loopback, and something in this build that listens there. */
static int check_metrics(const struct config *config, const struct mapping *top, struct fault *fault) {
        struct document_path path = {NULL, "metrics_listen", 0};
        const struct yaml_node_s *node = mapping_value(top, "metrics_listen");
        struct sockaddr_storage address;
        char text[DOCUMENT_TEXT_MAX];
        const char *why;
        socklen_t length;

        if (!config->metrics_listen)
                return 0;
        if (metrics_address_parse(config->metrics_listen, &address, &length, &why) < 0)
                return document_fault(top->document, node, &path, fault, -EINVAL, "%s, got %s", why,
                                      document_describe(node, text));
        if (!metrics_http_is_built())
                return document_fault(top->document, node, &path, fault, -ENOSYS,
                                      "this pinfeedd was built without libmicrohttpd and cannot serve HTTP; "
                                      "expected nothing here: 'pinfeedctl metrics' prints the same text");
        return 0;
}

static int read_pipelines(struct config *config, struct document *document, const struct yaml_node_s *node,
                          const char *directory, size_t least, struct fault *fault) {
        struct document_path path = {NULL, "pipelines", 0};
        const struct yaml_node_s *name, *value;
        const struct config_pipeline *twin;
        char text[DOCUMENT_TEXT_MAX];
        int r;

        r = document_check(document, node, &path, fault);
        if (r < 0)
                return r;
        if (!document_is_mapping(node))
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected a mapping of pipelines by name, got %s",
                                      document_describe(node, text));
        if (document_size(node) < least || document_size(node) > CONFIG_PIPELINES_MAX)
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected %zu to %d pipelines, got %zu", least, CONFIG_PIPELINES_MAX,
                                      document_size(node));
        config->pipelines = calloc(document_size(node) + 1, sizeof(*config->pipelines));
        if (!config->pipelines)
                return -ENOMEM;
        for (size_t i = 0; document_pair(document, node, i, &name, &value); i++) {
                struct document_path here = {&path, document_scalar(name), 0};

                twin = config_find(config, here.name);
                if (twin)
                        return document_fault(document, name, &here, fault, -EINVAL,
                                              "expected once, got it in line %u and line %u", twin->line,
                                              document_line(name));
                config->n_pipelines++;
                r = config_read_pipeline(&config->pipelines[i], document, &path, name, value, directory,
                                         fault);
                if (r < 0)
                        return r;
                if (config->pipelines[i].idle < 0)
                        config->pipelines[i].idle = config->idle;
        }
        return 0;
}

/* What comes before the last slash; "." for a file without one. */
static char *directory_of(const char *file) {
        const char *slash = strrchr(file, '/');

        if (!slash)
                return strdup(".");
        return strndup(file, slash == file ? 1 : (size_t)(slash - file));
}

/* What a definition may not say: it stands beside others in a daemon whose keys these are. */
static int refuse_daemons_keys(const struct mapping *top, struct fault *fault) {
        static const char *const names[] = {"cpus", "nice", "idle", "drain", "metrics_listen"};

        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
                struct document_path path = {NULL, names[i], 0};
                const struct yaml_node_s *node = mapping_value(top, names[i]);

                if (node)
                        return document_fault(top->document, node, &path, fault, -EINVAL,
                                              "is the daemon's and holds for all its pipelines; expected it "
                                              "in pinfeedd's own --config, not in a definition");
        }
        return 0;
}

/* What only a definition may say: nobody brings anything to a pipeline that stands in the daemon's own file.
 */
static int refuse_jobs_keys(const struct config *config, struct document *document, struct fault *fault) {
        const struct yaml_node_s *pipelines = mapping_peek(document, document_root(document), "pipelines");
        struct document_path top = {NULL, "pipelines", 0};

        for (uint32_t i = 0; i < config->n_pipelines; i++) {
                const struct config_pipeline *pipeline = &config->pipelines[i];
                struct document_path name = {&top, pipeline->name, 0}, source = {&name, "source", 0},
                                     path = {&source, "brought", 0};
                const struct yaml_node_s *node = mapping_peek(document, pipelines, pipeline->name);

                if (!recipe_is_brought(&pipeline->recipe))
                        continue;
                node = mapping_peek(document, mapping_peek(document, node, "source"), "brought");
                return document_fault(document, node, &path, fault, -EINVAL,
                                      "expected it only in what a job defines, which also brings the "
                                      "workers, as pinfeed.DataLoader does");
        }
        return 0;
}

/* `daemon`: whose definition it is, of one pipeline or more; NULL: it is a daemon's own. */
static int read_top(struct config *config, struct document *document, const struct config *daemon,
                    struct fault *fault) {
        _cleanup_(freep) char *directory = directory_of(config->file);
        struct mapping top;
        int r;

        if (!directory)
                return -ENOMEM;
        r = mapping_init(&top, document, NULL, document_root(document), config_keys, config_parts, fault);
        if (!r && daemon)
                r = refuse_daemons_keys(&top, fault);
        if (!r)
                r = mapping_apply(&top, config, fault);
        if (!r)
                r = read_cpus(config, &top, fault);
        if (!r)
                r = check_metrics(config, &top, fault);
        if (!r && daemon) {
                config->cpus = daemon->cpus;
                config->nice = daemon->nice;
                config->idle = daemon->idle;
        }
        if (!r)
                r = read_pipelines(config, document, mapping_value(&top, "pipelines"), directory,
                                   daemon ? 1 : 0, fault);
        if (!r && !daemon)
                r = refuse_jobs_keys(config, document, fault);
        if (!r)
                r = daemon ? config_refuse_access(document, fault)
                           : config_read_access(config, document, fault);
        return r;
}

static int read_document(struct config **config, const char *file, const char *text,
                         const struct config *daemon, struct fault *fault) {
        _cleanup_(document_freep) struct document *document = NULL;
        _cleanup_(config_unrefp) struct config *new = NULL;
        int r;

        r = document_new(&document, file, text, fault);
        if (r < 0)
                return r;
        new = calloc(1, sizeof(*new));
        if (!new)
                return fault_set(fault, -ENOMEM, "%s: out of memory", file);
        new->references = 1;
        if (!(new->file = strdup(file)))
                return fault_set(fault, -ENOMEM, "%s: out of memory", file);
        r = read_top(new, document, daemon, fault);
        if (r == -ENOMEM)
                return fault_set(fault, r, "%s: out of memory", file);
        if (r < 0)
                return r;
        *config = new;
        new = NULL; /* handed over */
        return 0;
}

int config_load(struct config **config, const char *file, struct fault *fault) {
        return read_document(config, file, NULL, NULL, fault);
}

int config_define(struct config **config, const char *file, const char *text, const struct config *daemon,
                  struct fault *fault) {
        return read_document(config, file, text, daemon, fault);
}

int config_new(struct config **config, struct fault *fault) {
        struct config *new = calloc(1, sizeof(*new));

        if (!new || !(new->file = strdup(CONFIG_NO_FILE))) {
                free(new);
                return fault_set(fault, -ENOMEM, "out of memory");
        }
        new->references = 1;
        keys_init(config_keys, new);
        *config = new;
        return 0;
}

struct config *config_ref(struct config *config) {
        config->references++;
        return config;
}

struct config *config_unref(struct config *config) {
        if (!config || --config->references > 0)
                return NULL;
        for (uint32_t i = 0; i < config->n_pipelines; i++)
                config_pipeline_deinit(&config->pipelines[i]);
        access_deinit(&config->allow);
        access_deinit(&config->allow_pinned);
        free(config->pipelines);
        keys_deinit(config_keys, config);
        free(config->file);
        free(config);
        return NULL;
}

const struct access *config_allow(const struct config *config, const struct config_pipeline *pipeline) {
        return pipeline->allow.line > 0 ? &pipeline->allow : &config->allow;
}

const struct access *config_allow_pinned(const struct config *config,
                                         const struct config_pipeline *pipeline) {
        return pipeline->allow_pinned.line > 0 ? &pipeline->allow_pinned : &config->allow_pinned;
}

const struct config_pipeline *config_find(const struct config *config, const char *name) {
        for (uint32_t i = 0; name && i < config->n_pipelines; i++)
                if (!strcmp(config->pipelines[i].name, name))
                        return &config->pipelines[i];
        return NULL;
}

/* Key by key, in the form in which each is said; `alike`: but for those that are live. */
static bool has_same_keys(const struct config_pipeline *a, const struct config_pipeline *b, bool alike) {
        bool same = true;

        for (const struct key *key = config_pipeline_keys; same && key->name; key++) {
                json_t *left, *right;

                if (alike && key->live)
                        continue;
                left = keys_get(key, a);
                right = keys_get(key, b);

                same = left && right && json_equal(left, right);
                json_decref(left);
                json_decref(right);
        }
        return same;
}

/* Of a dataset that jobs bring, what its rows are: how fast and in what portions is the first one's matter.
 */
static bool has_same_rows(const struct config_pipeline *a, const struct config_pipeline *b) {
        return a->shuffle == b->shuffle && a->on_error == b->on_error && a->max_errors == b->max_errors;
}

static bool has_same_recipe(const struct config_pipeline *a, const struct config_pipeline *b) {
        json_t *left = recipe_to_json(&a->recipe), *right = recipe_to_json(&b->recipe);
        bool same = left && right && json_equal(left, right);

        json_decref(left);
        json_decref(right);
        return same;
}

bool config_is_same(const struct config_pipeline *a, const struct config_pipeline *b) {
        return has_same_recipe(a, b) && access_is_same(&a->allow, &b->allow) &&
               access_is_same(&a->allow_pinned, &b->allow_pinned) &&
               (recipe_is_brought(&a->recipe) ? has_same_rows(a, b) : has_same_keys(a, b, false));
}

bool config_is_alike(const struct config_pipeline *a, const struct config_pipeline *b) {
        return has_same_recipe(a, b) && has_same_keys(a, b, true);
}
