/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A pipeline is read in three steps: its keys, its recipe, and then what follows from both: the layout of a
 * slot, the number of slots, the bytes of the ring. All of it is known without opening a data file, so a ring
 * that cannot work is refused here with its line, and the daemon adds up memory before it takes any. Only a
 * dataset in Python may leave open what its rows are; then the third step waits until somebody has said it
 * (config_complete_pipeline), and knows the lines that the first two have noted.
 *
 * The sizes come from foreign numbers (2^31 rows of 2^34 bytes can be said), so each product is checked; what
 * passes fits a file, 2^63 bytes.
 *
 * The mapping that was read stays at hand for the positions: a contradiction is reported at the value that
 * would have to change.
 */

#include "daemon/config-pipeline.h"

#include "base/fault.h"
#include "base/number.h"
#include "daemon/config.h"
#include "daemon/config-mapping.h"
#include "daemon/config-recipe.h"
#include "daemon/config-keys.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
        NAME_MAX_BYTES = 64,
};

static bool name_is_good(const char *name) {
        static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
        size_t length = strlen(name);

        return length > 0 && length <= NAME_MAX_BYTES && strspn(name, good) == length;
}

static int read_name(struct config_pipeline *pipeline, struct document *document,
                     const struct document_path *up, const struct yaml_node_s *node, struct fault *fault) {
        const char *name = document_scalar(node);
        char text[DOCUMENT_TEXT_MAX];
        int r;

        r = document_check(document, node, up, fault);
        if (r < 0)
                return r;
        if (!name || !name_is_good(name))
                return document_fault(document, node, up, fault, -EINVAL,
                                      "expected a name of 1 to %d of A-Z a-z 0-9 . _ -, got %s",
                                      NAME_MAX_BYTES, document_describe(node, text));
        pipeline->name = strdup(name);
        return pipeline->name ? 0 : -ENOMEM;
}

/* An error at the value of `key`, or where the pipeline stands when that was not said. */
#define refuse(mapping, key, fault, ...)                                                                     \
        document_fault((mapping)->document,                                                                  \
                       mapping_value(mapping, key) ? mapping_value(mapping, key) : (mapping)->node,          \
                       &(const struct document_path){(mapping)->path, key, 0}, fault, -EINVAL, __VA_ARGS__)

/* `last_batch` is read as a place in its names and becomes an enum; `drop_last` is folded into it. */
static int settle_last_batch(struct config_pipeline *pipeline, const struct mapping *mapping,
                             struct fault *fault) {
        bool last_batch_said = mapping_value(mapping, "last_batch"),
             drop_last_said = mapping_value(mapping, "drop_last");

        pipeline->last_batch += LAST_BATCH_SHORT;
        if (last_batch_said && drop_last_said &&
            pipeline->drop_last != (pipeline->last_batch == LAST_BATCH_DROP))
                return refuse(
                        mapping, "drop_last", fault,
                        "expected %s, as last_batch in line %u says, or one of the two keys only, got %s",
                        pipeline->drop_last ? "false" : "true",
                        document_line(mapping_value(mapping, "last_batch")),
                        pipeline->drop_last ? "true" : "false");
        if (pipeline->drop_last)
                pipeline->last_batch = LAST_BATCH_DROP;
        return 0;
}

/* Who shuffles trains, and will want another epoch; who does not, validates, and may want this one only.
 * Where orders are given nobody knows the next one. */
static void settle_lookahead(struct config_pipeline *pipeline) {
        bool is_known = !pipeline->recipe.source.given_order;

        if (pipeline->lookahead > CONFIG_LOOKAHEAD_MAX)
                pipeline->lookahead = pipeline->shuffle && is_known ? 1 : 0;
}

/* What is to be warm stays. */
static void settle_warm(struct config_pipeline *pipeline) {
        if (pipeline->warm > 0)
                pipeline->reserve = CONFIG_RESERVE_START;
}

/* A user's own code that fails is more likely a mistake than a bad file. */
static void settle_on_error(struct config_pipeline *pipeline, const struct mapping *mapping) {
        if (pipeline->recipe.source.type == RECIPE_PYTHON && !mapping_value(mapping, "on_error"))
                pipeline->on_error = CONFIG_ON_ERROR_FAIL;
}

/* Nothing can be prepared before a job is there who brings the workers, or the order. */
static int check_python(const struct config_pipeline *pipeline, const struct mapping *mapping,
                        struct fault *fault) {
        const struct recipe_source *source = &pipeline->recipe.source;

        if (!source->brought && !source->given_order)
                return 0;
        if (pipeline->reserve == CONFIG_RESERVE_START)
                return refuse(mapping, mapping_value(mapping, "warm") ? "warm" : "reserve", fault,
                              "expected nothing to be prepared before a job is there, with `%s: true`",
                              source->brought ? "brought" : "given_order");
        if (source->given_order && pipeline->lookahead > 0)
                return refuse(mapping, "lookahead", fault,
                              "expected 0 with `given_order: true`: each order comes with its epoch, got "
                              "%" PRIu64,
                              pipeline->lookahead);
        return 0;
}

/* Keys of one policy say nothing under the other; somebody must have meant something. */
static int check_sharing(const struct config_pipeline *pipeline, const struct mapping *mapping,
                         struct fault *fault) {
        static const char *const keys[] = {"max_lead", "lag_timeout"};

        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
                if (pipeline->sharing != CONFIG_SHARING_LOCKSTEP && mapping_value(mapping, keys[i]))
                        return refuse(mapping, keys[i], fault, "expected it only with `sharing: lockstep`");
        return 0;
}

/* A source that says its number of samples must fill a batch, where shorter ones are dropped. */
static int check_samples(const struct config_pipeline *pipeline, const struct mapping *mapping,
                         struct fault *fault) {
        struct document_path source = {mapping->path, "source", 0}, path = {&source, "samples", 0};
        const struct yaml_node_s *node =
                mapping_peek(mapping->document, mapping_value(mapping, "source"), "samples");

        if (!node || pipeline->recipe.source.samples == 0 || pipeline->last_batch != LAST_BATCH_DROP ||
            pipeline->recipe.source.samples >= pipeline->batch_size)
                return 0;
        return document_fault(mapping->document, node, &path, fault, -EINVAL,
                              "expected at least %" PRIu64
                              " (batch_size, as last_batch is drop), got %" PRIu64,
                              pipeline->batch_size, pipeline->recipe.source.samples);
}

/* ---- what follows from all of it ---- */

/* Slots that a ring of so many bytes has. */
static int count_slots(struct config_pipeline *pipeline, struct fault *fault) {
        uint64_t slot_bytes = pipeline->schema.slot_bytes, slots = pipeline->ring / slot_bytes, bound;

        if (slots < CONFIG_SLOTS_LEAST) {
                if (!number_multiply_u64(CONFIG_SLOTS_LEAST, slot_bytes, &bound))
                        bound = UINT64_MAX;
                return fault_set(fault, -EINVAL,
                                 "expected at least %" PRIu64 " bytes (%d slots of %" PRIu64
                                 " bytes), got %" PRIu64,
                                 bound, CONFIG_SLOTS_LEAST, slot_bytes, pipeline->ring);
        }
        if (slots > CONFIG_SLOTS_MAX)
                return fault_set(fault, -EINVAL,
                                 "expected at most %d slots of %" PRIu64 " bytes, got %" PRIu64
                                 " bytes (%" PRIu64 " slots)",
                                 CONFIG_SLOTS_MAX, slot_bytes, pipeline->ring, slots);
        pipeline->n_slots = (uint32_t)slots;
        return 0;
}

static int settle_ring(struct config_pipeline *pipeline, struct fault *fault) {
        uint64_t file_bytes;
        int r;

        r = schema_ring_bytes(&pipeline->schema, pipeline->n_slots, &file_bytes);
        if (r < 0 || file_bytes > INT64_MAX ||
            !number_multiply_u64(pipeline->n_slots, pipeline->schema.slot_bytes, &pipeline->ring_bytes))
                return fault_set(fault, -EINVAL,
                                 "expected a ring that fits a file, got %u slots of %" PRIu64 " bytes",
                                 pipeline->n_slots, pipeline->schema.slot_bytes);
        return 0;
}

static int check_warm(const struct config_pipeline *pipeline, struct fault *fault) {
        if (pipeline->warm <= pipeline->n_slots)
                return 0;
        return fault_set(fault, -EINVAL, "expected at most the ring's %u slots, got %" PRIu64,
                         pipeline->n_slots, pipeline->warm);
}

/* 0, or a negative errno with the key that would have to change. */
static int derive(struct config_pipeline *pipeline, const char **key, struct fault *fault) {
        int r;

        recipe_schema(&pipeline->recipe, &pipeline->schema);
        *key = "batch_size";
        r = schema_lay_out(&pipeline->schema, (uint32_t)pipeline->batch_size, fault);
        if (r == 0 && pipeline->ring) {
                *key = "ring";
                r = count_slots(pipeline, fault);
        }
        if (r == 0) {
                *key = pipeline->slots ? "slots" : *key;
                r = settle_ring(pipeline, fault);
        }
        if (r == 0) {
                *key = "warm";
                r = check_warm(pipeline, fault);
        }
        return r;
}

static int derive_now(struct config_pipeline *pipeline, const struct mapping *mapping, struct fault *fault) {
        struct fault reason;
        const char *key;
        int r;

        if (pipeline->slots && pipeline->ring)
                return refuse(mapping, "ring", fault,
                              "expected either slots or ring, got both (slots in line %u)",
                              document_line(mapping_value(mapping, "slots")));
        pipeline->n_slots = pipeline->slots ? (uint32_t)pipeline->slots : CONFIG_SLOTS_DEFAULT;
        if (recipe_is_described(&pipeline->recipe) && !pipeline->recipe.source.fields)
                return 0;
        r = derive(pipeline, &key, &reason);
        return r < 0 ? refuse(mapping, key, fault, "%s", reason.text) : 0;
}

int config_complete_pipeline(struct config_pipeline *pipeline, const char *file, struct fault *fault) {
        const char *key;
        int r = derive(pipeline, &key, fault);
        unsigned line;

        if (r == 0)
                return 0;
        line = !strcmp(key, "batch_size") ? pipeline->batch_size_line
               : !strcmp(key, "warm")     ? pipeline->line
                                          : pipeline->ring_line;
        return fault_prefix(fault, r, "pipeline %s (%s:%u): %s", pipeline->name, file, line, key);
}

/* The line of a key's value, or of the pipeline. */
static unsigned line_of(const struct config_pipeline *pipeline, const struct yaml_node_s *value) {
        return value ? document_line(value) : pipeline->line;
}

static void note_lines(struct config_pipeline *pipeline, const struct mapping *mapping) {
        const struct yaml_node_s *source = mapping_value(mapping, "source"),
                                 *slots = mapping_value(mapping, "slots");

        pipeline->batch_size_line = line_of(pipeline, mapping_value(mapping, "batch_size"));
        pipeline->ring_line = line_of(pipeline, slots ? slots : mapping_value(mapping, "ring"));
        pipeline->samples_line = line_of(pipeline, mapping_peek(mapping->document, source, "samples"));
}

int config_read_pipeline(struct config_pipeline *pipeline, struct document *document,
                         const struct document_path *up, const struct yaml_node_s *name,
                         const struct yaml_node_s *value, const char *directory, struct fault *fault) {
        struct document_path path = {up, document_scalar(name), 0};
        struct mapping mapping;
        int r;

        r = read_name(pipeline, document, up, name, fault);
        if (!r)
                r = mapping_init(&mapping, document, &path, value, config_pipeline_keys,
                                 config_pipeline_parts, fault);
        if (!r)
                r = mapping_apply(&mapping, pipeline, fault);
        if (!r)
                r = settle_last_batch(pipeline, &mapping, fault);
        if (!r)
                r = config_read_recipe(&pipeline->recipe, &mapping, directory, fault);
        if (!r)
                r = check_samples(pipeline, &mapping, fault);
        if (r >= 0)
                r = check_sharing(pipeline, &mapping, fault);
        if (!r)
                r = derive_now(pipeline, &mapping, fault);
        settle_warm(pipeline);
        settle_on_error(pipeline, &mapping);
        settle_lookahead(pipeline);
        if (!r)
                r = check_python(pipeline, &mapping, fault);
        if (r < 0)
                return r;
        pipeline->line = document_line(name);
        note_lines(pipeline, &mapping);
        return 0;
}

void config_pipeline_deinit(struct config_pipeline *pipeline) {
        free(pipeline->name);
        recipe_deinit(&pipeline->recipe);
        access_deinit(&pipeline->allow);
        access_deinit(&pipeline->allow_pinned);
        *pipeline = (struct config_pipeline){};
}
