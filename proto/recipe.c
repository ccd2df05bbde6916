/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A recipe has three lives: values in a struct (filled key by key from a configuration file or from JSON),
 * JSON text for the worker, and the schema that everybody lays slots out by. The tables of recipe-keys.c say
 * what a single key may be; recipe_check() says what the keys may be together. A recipe that passes it has
 * images of one size, known before the first file is opened: slots are laid out without data.
 *
 * The JSON is written in table order with every key, so the same recipe is the same text, however it was
 * said. */

#include "proto/recipe.h"

#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
        PLACE_SOURCE = -1,
        PLACE_OUTPUT = -2,
        CHANNELS = 3,
        SHOWN_MAX = 64,   /* bytes of an unknown key in an error text */
        DRAWS_BYTES = 32, /* rng: eight words of the stream */
};

void recipe_deinit(struct recipe *recipe) {
        for (const struct recipe_kind *kind = recipe_sources; kind->name; kind++)
                keys_deinit(kind->keys, &recipe->source);
        memset(recipe, 0, sizeof(*recipe));
}

/* Height and width that a transform gives every image; false when they depend on the image. */
static bool fixes_size(const struct recipe_transform *transform, uint32_t size[2]) {
        bool square = transform->size[0] == 0;

        if (transform->type == RECIPE_RESIZE && square)
                return false;
        size[0] = square ? transform->size[1] : transform->size[0];
        size[1] = transform->size[1];
        return true;
}

static bool has_size(const struct recipe_transform *transform) {
        return transform->type == RECIPE_RESIZE || transform->type == RECIPE_CENTER_CROP ||
               transform->type == RECIPE_RANDOM_RESIZED_CROP;
}

/* The size after all transforms. *last is the last transform that has a say, or -1. */
static bool final_size(const struct recipe *recipe, uint32_t size[2], int *last) {
        *last = -1;
        for (uint32_t i = 0; i < recipe->n_transforms; i++)
                if (has_size(&recipe->transforms[i]))
                        *last = (int)i;
        return *last >= 0 && fixes_size(&recipe->transforms[*last], size);
}

static int check_resize(const struct recipe_transform *transform, struct fault *fault) {
        if (transform->max_size == 0)
                return 0;
        if (transform->size[0] > 0)
                return fault_set(fault, -EINVAL,
                                 "max_size: expected none with a size of [height, width], got %" PRIu64,
                                 transform->max_size);
        if (transform->max_size <= transform->size[1])
                return fault_set(fault, -EINVAL, "max_size: expected more than size, %u, got %" PRIu64,
                                 transform->size[1], transform->max_size);
        return 0;
}

static int check_normalize(const struct recipe *recipe, uint32_t place, struct fault *fault) {
        if (recipe_output_dtype(&recipe->output) == SCHEMA_UINT8)
                return fault_set(fault, -EINVAL,
                                 "expected an output dtype of floats, got uint8: "
                                 "choose another or leave normalize out");
        for (uint32_t i = place + 1; i < recipe->n_transforms; i++)
                if (recipe->transforms[i].type != RECIPE_RANDOM_HORIZONTAL_FLIP)
                        return fault_set(
                                fault, -EINVAL,
                                "expected nothing but random_horizontal_flip after it, got %s: move it to "
                                "the end",
                                recipe_transforms[recipe->transforms[i].type].name);
        return 0;
}

static int check_transforms(const struct recipe *recipe, int *place, struct fault *fault) {
        int r = 0;

        for (uint32_t i = 0; i < recipe->n_transforms && r == 0; i++) {
                *place = (int)i;
                if (recipe->transforms[i].type == RECIPE_RESIZE)
                        r = check_resize(&recipe->transforms[i], fault);
                else if (recipe->transforms[i].type == RECIPE_NORMALIZE)
                        r = check_normalize(recipe, i, fault);
        }
        return r;
}

static int check_python(const struct recipe *recipe, int *place, struct fault *fault) {
        const struct recipe_source *source = &recipe->source;
        struct schema schema = {};

        if (source->brought == (source->dataset != NULL))
                return fault_set(fault, -EINVAL,
                                 "expected a dataset, as package.module:factory, or `brought: true`, %s",
                                 source->brought ? "got both" : "got neither");
        if (source->dataset && !strchr(source->dataset, ':'))
                return fault_set(fault, -EINVAL, "dataset: expected package.module:factory, got no colon");
        if (source->brought && !source->fields)
                return fault_set(fault, -EINVAL, "fields: expected them with `brought: true`, got nothing");
        if (recipe->n_transforms == 0)
                return source->fields ? recipe_parse_fields(&schema, source->fields, fault) : 0;
        *place = 0;
        return fault_set(fault, -EINVAL, "expected no transforms, the dataset applies its own");
}

int recipe_check(const struct recipe *recipe, int *place, struct fault *fault) {
        uint32_t size[2];
        int last, r;

        *place = PLACE_SOURCE;
        if (recipe->source.type == RECIPE_PYTHON)
                return check_python(recipe, place, fault);
        if (recipe->source.type == RECIPE_SYNTHETIC) {
                if (recipe->source.die_times > 0 && !recipe->source.die_counter)
                        return fault_set(fault, -EINVAL, "expected die_counter where die_times is set");
                if (recipe->n_transforms == 0)
                        return 0;
                *place = 0;
                return fault_set(fault, -EINVAL, "expected no transforms, a synthetic source has no images");
        }
        r = check_transforms(recipe, place, fault);
        if (r < 0)
                return r;
        if (final_size(recipe, size, &last))
                return 0;
        *place = last >= 0 ? last : PLACE_SOURCE;
        return fault_set(fault, -EINVAL, "expected images of one size at the end, got %s: add center_crop",
                         last >= 0 ? "the shorter edge only" : "whatever the files have");
}

/* ---- schema ---- */

static struct schema_field *add_field(struct schema *schema, const char *name, enum schema_dtype dtype) {
        struct schema_field *field = &schema->fields[schema->n_fields++];

        snprintf(field->name, sizeof(field->name), "%s", name);
        field->dtype = dtype;
        return field;
}

static void add_list(struct schema *schema, const char *name, enum schema_dtype dtype, uint64_t length) {
        struct schema_field *field = add_field(schema, name, dtype);

        field->n_dims = 1;
        field->shape[0] = length;
}

static void synthetic_schema(const struct recipe_source *source, struct schema *schema) {
        switch (source->mode) {
        case RECIPE_FEATURES:
                add_list(schema, "features", SCHEMA_FLOAT32, source->features);
                add_field(schema, "labels", SCHEMA_INT64);
                return;
        case RECIPE_RNG:
                add_field(schema, "index", SCHEMA_INT64);
                add_list(schema, "draws", SCHEMA_UINT8, DRAWS_BYTES);
                return;
        default: /* ramp, slow, die, stages */
                add_field(schema, "index", SCHEMA_INT64);
                add_list(schema, "data", SCHEMA_UINT8, source->bytes);
        }
}

static void image_schema(const struct recipe *recipe, struct schema *schema) {
        struct schema_field *images = add_field(schema, "images", recipe_output_dtype(&recipe->output));
        bool hwc = recipe->output.layout == RECIPE_HWC;
        uint32_t size[2] = {};
        int last;

        (void)final_size(recipe, size, &last);
        images->n_dims = 3;
        images->shape[hwc ? 2 : 0] = CHANNELS;
        images->shape[hwc ? 0 : 1] = size[0];
        images->shape[hwc ? 1 : 2] = size[1];
        images->order =
                recipe->output.layout == RECIPE_CHANNELS_LAST ? SCHEMA_CHANNELS_LAST : SCHEMA_ROW_MAJOR;
        add_field(schema, "labels", SCHEMA_INT64);
}

void recipe_schema(const struct recipe *recipe, struct schema *schema) {
        memset(schema, 0, sizeof(*schema));
        if (recipe->source.type == RECIPE_SYNTHETIC)
                synthetic_schema(&recipe->source, schema);
        else if (recipe->source.type != RECIPE_PYTHON)
                image_schema(recipe, schema);
        else if (recipe->source.fields)
                (void)recipe_parse_fields(schema, recipe->source.fields, NULL); /* it was accepted */
}

/* ---- to JSON ---- */

/* Half a recipe would be another recipe, so every function here fails as a whole. */

static bool keys_to_json(const struct key *table, const void *object, json_t *json) {
        for (const struct key *key = table; key->name; key++)
                if (json_object_set_new(json, key->name, keys_get(key, object)) < 0)
                        return false;
        return true;
}

static bool source_to_json(const struct recipe_source *source, json_t *json) {
        const struct recipe_kind *kind = &recipe_sources[source->type];

        return json_object_set_new(json, "type", json_string(kind->name)) == 0 &&
               keys_to_json(kind->keys, source, json);
}

static bool transforms_to_json(const struct recipe *recipe, json_t *list) {
        for (uint32_t i = 0; i < recipe->n_transforms; i++) {
                const struct recipe_transform *transform = &recipe->transforms[i];
                const struct recipe_kind *kind = &recipe_transforms[transform->type];
                json_t *outer = json_object(), *inner = json_object();

                if (json_array_append_new(list, outer) < 0) {
                        json_decref(inner);
                        return false;
                }
                if (json_object_set_new(outer, kind->name, inner) < 0 ||
                    !keys_to_json(kind->keys, transform, inner))
                        return false;
        }
        return true;
}

json_t *recipe_to_json(const struct recipe *recipe) {
        json_t *source = json_object(), *transforms = json_array(), *output = json_object();
        json_t *json =
                json_pack("{s:o, s:o, s:o}", "source", source, "transforms", transforms, "output", output);

        /* json owns the three now, or they are gone */
        if (json && source_to_json(&recipe->source, source) && transforms_to_json(recipe, transforms) &&
            keys_to_json(recipe_output_keys, &recipe->output, output))
                return json;
        json_decref(json);
        return NULL;
}

char *recipe_to_text(const struct recipe *recipe) {
        json_t *json = recipe_to_json(recipe);
        char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;

        json_decref(json);
        return text;
}

/* ---- from JSON ---- */

/* Place of `name` in the table, or -1. */
static int find_kind(const struct recipe_kind *kinds, const char *name) {
        for (int i = 0; name && kinds[i].name; i++)
                if (strcmp(kinds[i].name, name) == 0)
                        return i;
        return -1;
}

static int unknown_key(const char *name, struct fault *fault) {
        char shown[SHOWN_MAX];

        fault_sanitize(shown, sizeof(shown), name, strlen(name));
        return fault_set(fault, -EINVAL, "%s: unknown key", shown);
}

/* Takes every key of `json` except `skip`, after the defaults; the required ones must be there. */
static int keys_from_json(const struct key *table, void *object, const json_t *json, const char *skip,
                          struct fault *fault) {
        const char *name;
        json_t *value;
        int r;

        keys_init(table, object);
        if (!json_is_object(json))
                return fault_set(fault, -EINVAL, "expected keys and values");
        json_object_foreach((json_t *)json, name, value) {
                const struct key *key = keys_find(table, name);

                if (skip && strcmp(name, skip) == 0)
                        continue;
                if (!key)
                        return unknown_key(name, fault);
                r = keys_set(key, object, value, fault);
                if (r < 0)
                        return r;
        }
        for (const struct key *key = table; key->name; key++)
                if (!key->fallback && !json_object_get(json, key->name))
                        return fault_set(fault, -EINVAL, "%s: required", key->name);
        return 0;
}

static int source_from_json(struct recipe_source *source, const json_t *json, struct fault *fault) {
        int type = find_kind(recipe_sources, json_string_value(json_object_get(json, "type")));
        int r;

        if (type < 0)
                return fault_set(fault, -EINVAL, "source: type: not one of the sources");
        source->type = type;
        r = keys_from_json(recipe_sources[type].keys, source, json, "type", fault);
        return r < 0 ? fault_prefix(fault, r, "source") : 0;
}

static int transform_from_json(struct recipe_transform *transform, const json_t *json, struct fault *fault) {
        void *entry = json_object_iter((json_t *)json);
        int type = entry ? find_kind(recipe_transforms, json_object_iter_key(entry)) : -1;
        int r;

        if (json_object_size(json) != 1)
                return fault_set(fault, -EINVAL, "expected one transform and its keys");
        if (type < 0)
                return fault_set(fault, -EINVAL, "not one of the transforms");
        transform->type = type;
        r = keys_from_json(recipe_transforms[type].keys, transform, json_object_iter_value(entry), NULL,
                           fault);
        return r < 0 ? fault_prefix(fault, r, "%s", recipe_transforms[type].name) : 0;
}

static int transforms_from_json(struct recipe *recipe, const json_t *json, struct fault *fault) {
        size_t n = json_array_size(json);
        int r;

        if (!json_is_array(json) || n > RECIPE_TRANSFORMS_MAX)
                return fault_set(fault, -EINVAL, "transforms: expected a list of at most %d",
                                 RECIPE_TRANSFORMS_MAX);
        for (size_t i = 0; i < n; i++) {
                r = transform_from_json(&recipe->transforms[i], json_array_get(json, i), fault);
                if (r < 0)
                        return fault_prefix(fault, r, "transforms[%zu]", i);
                recipe->n_transforms++;
        }
        return 0;
}

static int parts_from_json(struct recipe *recipe, const json_t *json, struct fault *fault) {
        int place, r;

        if (json_object_size(json) != 3)
                return fault_set(fault, -EINVAL, "expected source, transforms and output, and nothing else");
        r = source_from_json(&recipe->source, json_object_get(json, "source"), fault);
        if (r < 0)
                return r;
        r = transforms_from_json(recipe, json_object_get(json, "transforms"), fault);
        if (r < 0)
                return r;
        r = keys_from_json(recipe_output_keys, &recipe->output, json_object_get(json, "output"), NULL, fault);
        if (r < 0)
                return fault_prefix(fault, r, "output");
        r = recipe_check(recipe, &place, fault);
        if (r < 0 && place >= 0)
                return fault_prefix(fault, r, "transforms[%d]", place);
        return r < 0 ? fault_prefix(fault, r, "%s", place == PLACE_OUTPUT ? "output" : "source") : 0;
}

int recipe_from_json(struct recipe *recipe, const json_t *json, struct fault *fault) {
        int r;

        memset(recipe, 0, sizeof(*recipe));
        r = parts_from_json(recipe, json, fault);
        if (r < 0)
                recipe_deinit(recipe);
        return r;
}
