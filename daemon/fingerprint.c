/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What decides the bytes of a row, besides (seed, epoch, row), in six parts, so that a comparison can say
 * which of them has changed:
 *
 *     version of the bits . samples . source . transforms . output . order
 *
 * The three in the middle are the beginnings of SHA-256 sums: of the source's recipe and the sum of its index
 * (relative names and sizes), of the list of transforms, of the output. Not in it are where the source lies,
 * times, and whatever only decides how rows become batches: batch size, ranks, last batch, workers, slots.
 *
 * A key that has its default is left out of the recipe. So a later release may add keys, and states saved
 * before stay good; changing a default changes bytes, which raises BITS_VERSION. */

#include "daemon/fingerprint.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "proto/bits.h"
#include "proto/recipe.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        HEX_DIGITS = 12, /* 48 bits: this is against mistakes, not against forgers */
        CHANGES_MAX = 512,
};

/* The parts of a fingerprint as they stand in its text. */
struct parts {
        unsigned bits;
        uint64_t samples;
        char source[HEX_DIGITS + 1];
        char transforms[HEX_DIGITS + 1];
        char output[HEX_DIGITS + 1];
        char order;
};

/* ---- making ---- */

static void leave_out_defaults(json_t *object, const struct key *keys) {
        for (; keys->name; keys++) {
                json_t *fallback = keys->fallback ? json_loads(keys->fallback, JSON_DECODE_ANY, NULL) : NULL;

                if (fallback && json_equal(json_object_get(object, keys->name), fallback))
                        json_object_del(object, keys->name);
                json_decref(fallback);
        }
}

/* The recipe without defaults and without what belongs elsewhere or nowhere. NULL for want of memory. */
static json_t *bare_recipe(const struct recipe *recipe) {
        json_t *json = recipe_to_json(recipe), *source = json_object_get(json, "source");

        json_object_del(source, "path");
        json_object_del(source, "samples");
        json_object_del(source, "interpreter");
        leave_out_defaults(source, recipe_sources[recipe->source.type].keys);
        for (uint32_t i = 0; i < recipe->n_transforms; i++) {
                const struct recipe_kind *kind = &recipe_transforms[recipe->transforms[i].type];
                json_t *transform = json_array_get(json_object_get(json, "transforms"), i);

                leave_out_defaults(json_object_get(transform, kind->name), kind->keys);
        }
        leave_out_defaults(json_object_get(json, "output"), recipe_output_keys);
        return json;
}

/* The first digits of the sum over a part of the recipe, and over `more` if there is any. */
static int sum(char hex[HEX_DIGITS + 1], const json_t *part, const uint8_t *more) {
        _cleanup_(freep) char *text = json_dumps(part, JSON_COMPACT | JSON_SORT_KEYS);
        uint8_t digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx context;

        if (!text)
                return -ENOMEM;
        sha256_init(&context);
        sha256_update(&context, strlen(text) + 1, (const uint8_t *)text);
        if (more)
                sha256_update(&context, FINGERPRINT_SHA256_BYTES, more);
        sha256_digest(&context, sizeof(digest), digest);
        for (int i = 0; i < HEX_DIGITS / 2; i++)
                snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        return 0;
}

int fingerprint_make(char text[FINGERPRINT_MAX + 1], const struct recipe *recipe,
                     const uint8_t index_sha256[FINGERPRINT_SHA256_BYTES], uint64_t samples, bool shuffle) {
        json_t *json = bare_recipe(recipe);
        struct parts parts;
        int r;

        r = sum(parts.source, json_object_get(json, "source"), index_sha256);
        if (r == 0)
                r = sum(parts.transforms, json_object_get(json, "transforms"), NULL);
        if (r == 0)
                r = sum(parts.output, json_object_get(json, "output"), NULL);
        json_decref(json);
        if (r == 0)
                snprintf(text, FINGERPRINT_MAX + 1, "%d.%" PRIu64 ".%s.%s.%s.%c", BITS_VERSION, samples,
                         parts.source, parts.transforms, parts.output, shuffle ? 's' : 'o');
        return r;
}

/* ---- comparing ---- */

static bool parse(struct parts *parts, const char *text) {
        int end = -1;

        return sscanf(text, "%u.%" SCNu64 ".%12[0-9a-f].%12[0-9a-f].%12[0-9a-f].%c%n", &parts->bits,
                      &parts->samples, parts->source, parts->transforms, parts->output, &parts->order,
                      &end) == 6 &&
               end > 0 && text[end] == 0;
}

static const char *order_name(char order) {
        return order == 's' ? "shuffled" : "not shuffled";
}

__attribute__((format(printf, 2, 3))) static void add_change(char changes[CHANGES_MAX], const char *format,
                                                             ...) {
        size_t length = strlen(changes);
        va_list arguments;

        if (length > 0)
                length += (size_t)snprintf(changes + length, CHANGES_MAX - length, ", ");
        va_start(arguments, format);
        vsnprintf(changes + length, CHANGES_MAX - length, format, arguments);
        va_end(arguments);
}

/* Other files are to be expected where there are more or fewer of them. */
static void compare_contents(const struct parts *now, const struct parts *then, char changes[CHANGES_MAX]) {
        if (now->samples != then->samples)
                add_change(changes, "the source has %" PRIu64 " samples, the state was saved with %" PRIu64,
                           now->samples, then->samples);
        else if (strcmp(now->source, then->source) != 0)
                add_change(changes, "the source (its files or keys) has changed since the state was saved");
        if (strcmp(now->transforms, then->transforms) != 0)
                add_change(changes, "the transforms have changed since the state was saved");
        if (strcmp(now->output, then->output) != 0)
                add_change(changes, "the output has changed since the state was saved");
        if (now->order != then->order)
                add_change(changes, "the order is %s, the state was saved with one that is %s",
                           order_name(now->order), order_name(then->order));
}

int fingerprint_compare(const char *ours, uint64_t seed, const char *saved, uint64_t saved_seed,
                        struct fault *fault) {
        char changes[CHANGES_MAX] = "";
        struct parts now, then;

        if (!parse(&now, ours) || !parse(&then, saved))
                return fault_set(fault, -EINVAL, "the state has no fingerprint of a pipeline, but \"%s\"",
                                 saved);
        if (now.bits != then.bits)
                add_change(changes,
                           "this pinfeed makes bits of version %u, the state was saved with version %u",
                           now.bits, then.bits);
        else
                compare_contents(&now, &then, changes);
        if (seed != saved_seed)
                add_change(changes,
                           "the seed is %" PRIu64 ", the state was saved with %" PRIu64
                           ": attach with seed %" PRIu64,
                           seed, saved_seed, saved_seed);
        if (!*changes)
                return 0;
        return fault_set(
                fault, -ESTALE,
                "the state does not fit: %s; attach with `force` to go on at its epoch and row all the same",
                changes);
}
