/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A verdict changes what a row contains, so it must be the same for every worker, every job and every run:
 * the list belongs to a fingerprint, that is to the samples and what is done to them, and not to a pipeline's
 * name or to where its files are mounted. Two pipelines that differ in batch size only have one list.
 *
 * The list is sorted by sample, because it is searched more often than it grows: every verdict costs three
 * workers.
 *
 * What was taken back is remembered beside it. The file is shared (by those two pipelines, and by the daemons
 * of one user), so saving means: read it again, add ours, leave out what we took back.
 *
 * The list of a pipeline at work may only grow, as its workers know it: a verdict that is taken back then is
 * lifted. It is among those that were taken back, as far as the file is concerned, and in force otherwise.
 */

#include "daemon/verdicts.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "proto/recipe.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        FILE_TEXT_MAX = 512, /* as in the messages that bring it */
        CAPACITY_LEAST = 16,
};

_Static_assert((int)VERDICTS_SHA256_BYTES == (int)SHA256_DIGEST_SIZE, "one kind of sum");

/* ---- fingerprint ---- */

/* The recipe as text; sorted, so that a key may change its place in the tables. */
static char *recipe_text(const struct recipe *recipe) {
        json_t *json = recipe_to_json(recipe);
        char *text = NULL;

        if (json) {
                json_object_del(json_object_get(json, "source"), "path");
                text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
        }
        json_decref(json);
        return text;
}

int verdicts_fingerprint(char fingerprint[VERDICTS_HEX_BYTES + 1], const struct recipe *recipe,
                         const uint8_t index_sha256[VERDICTS_SHA256_BYTES], uint64_t samples) {
        _cleanup_(freep) char *text = recipe_text(recipe);
        uint8_t digest[VERDICTS_SHA256_BYTES], number[8];
        struct sha256_ctx context;

        if (!text)
                return -ENOMEM;
        for (int i = 0; i < 8; i++)
                number[i] = (uint8_t)(samples >> (8 * i));
        sha256_init(&context);
        sha256_update(&context, strlen(text) + 1, (const uint8_t *)text);
        sha256_update(&context, VERDICTS_SHA256_BYTES, index_sha256);
        sha256_update(&context, sizeof(number), number);
        sha256_digest(&context, sizeof(digest), digest);
        for (int i = 0; i < VERDICTS_SHA256_BYTES; i++)
                snprintf(fingerprint + 2 * i, 3, "%02x", digest[i]);
        return 0;
}

/* ---- life ---- */

int verdicts_new(struct verdicts **verdicts, const char *pipeline,
                 const char fingerprint[VERDICTS_HEX_BYTES + 1]) {
        struct verdicts *made = calloc(1, sizeof(*made));

        if (!made)
                return -ENOMEM;
        made->pipeline = strdup(pipeline);
        if (!made->pipeline) {
                verdicts_free(made);
                return -ENOMEM;
        }
        snprintf(made->fingerprint, sizeof(made->fingerprint), "%s", fingerprint);
        *verdicts = made;
        return 0;
}

static void verdict_deinit(struct verdict *verdict) {
        free(verdict->file);
        free(verdict->text);
}

struct verdicts *verdicts_free(struct verdicts *verdicts) {
        if (!verdicts)
                return NULL;
        for (size_t i = 0; i < verdicts->n; i++)
                verdict_deinit(&verdicts->list[i]);
        free(verdicts->list);
        free(verdicts->cleared);
        free(verdicts->pipeline);
        free(verdicts);
        return NULL;
}

static int copy_into(struct verdicts *copy, const struct verdicts *verdicts) {
        int r;

        for (size_t i = 0; i < verdicts->n; i++) {
                const struct verdict *verdict = &verdicts->list[i];

                r = verdicts_add(copy, verdict->sample, verdict->file, verdict->text, verdict->time);
                if (r)
                        return r;
                copy->list[i].lifted = verdict->lifted; /* in the same order, so in the same place */
        }
        copy->n_lifted = verdicts->n_lifted;
        if (verdicts->n_cleared == 0)
                return 0;
        copy->cleared = malloc(verdicts->n_cleared * sizeof(*copy->cleared));
        if (!copy->cleared)
                return -ENOMEM;
        memcpy(copy->cleared, verdicts->cleared, verdicts->n_cleared * sizeof(*copy->cleared));
        copy->n_cleared = copy->cleared_capacity = verdicts->n_cleared;
        return 0;
}

int verdicts_copy(struct verdicts **copy, const struct verdicts *verdicts) {
        struct verdicts *made;
        int r;

        r = verdicts_new(&made, verdicts->pipeline, verdicts->fingerprint);
        if (r < 0)
                return r;
        r = copy_into(made, verdicts);
        if (r) {
                verdicts_free(made);
                return -ENOMEM; /* the original has passed all else */
        }
        *copy = made;
        return 0;
}

/* ---- the two sorted arrays; the number that sorts them is the first member of both ---- */

/* The first place whose sample is not below `sample`. */
static size_t place_of(const void *array, size_t n, size_t size, uint64_t sample) {
        size_t low = 0, high = n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (*(const uint64_t *)((const char *)array + middle * size) < sample)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static bool is_at(const void *array, size_t n, size_t size, size_t place, uint64_t sample) {
        return place < n && *(const uint64_t *)((const char *)array + place * size) == sample;
}

/* An array in which place `place` is free; NULL for want of memory, and nothing has changed. */
static void *open_place(void *array, size_t *n, size_t *capacity, size_t size, size_t place) {
        if (*n == *capacity) {
                size_t larger = *capacity > 0 ? 2 * *capacity : CAPACITY_LEAST;
                void *moved = reallocarray(array, larger, size);

                if (!moved)
                        return NULL;
                array = moved;
                *capacity = larger;
        }
        memmove((char *)array + (place + 1) * size, (char *)array + place * size, (*n - place) * size);
        ++*n;
        return array;
}

static void close_place(void *array, size_t *n, size_t size, size_t place) {
        --*n;
        memmove((char *)array + place * size, (char *)array + (place + 1) * size, (*n - place) * size);
}

_Static_assert(offsetof(struct verdict, sample) == 0, "the two arrays are searched alike");

#define LIST(verdicts)    (verdicts)->list, (verdicts)->n, sizeof(*(verdicts)->list)
#define CLEARED(verdicts) (verdicts)->cleared, (verdicts)->n_cleared, sizeof(*(verdicts)->cleared)

const struct verdict *verdicts_find(const struct verdicts *verdicts, uint64_t sample) {
        size_t place = place_of(LIST(verdicts), sample);

        return is_at(LIST(verdicts), place, sample) ? &verdicts->list[place] : NULL;
}

bool verdicts_was_cleared(const struct verdicts *verdicts, uint64_t sample) {
        return is_at(CLEARED(verdicts), place_of(CLEARED(verdicts), sample), sample);
}

static char *clean_copy(const char *text, size_t most) {
        size_t length = text ? strlen(text) : 0, size = (length < most ? length : most) + 1;
        char *copy = malloc(size);

        if (copy)
                fault_sanitize(copy, size, text ? text : "", length);
        return copy;
}

int verdicts_add(struct verdicts *verdicts, uint64_t sample, const char *file, const char *text,
                 uint64_t time) {
        struct verdict verdict = {.sample = sample, .time = time};
        size_t place = place_of(LIST(verdicts), sample), cleared;
        struct verdict *list = NULL;

        if (sample >= VERDICTS_SAMPLE_MAX)
                return -EINVAL;
        if (is_at(LIST(verdicts), place, sample))
                return VERDICTS_E_KNOWN;
        if (verdicts->n == VERDICTS_MAX)
                return VERDICTS_E_FULL;
        verdict.file = clean_copy(file, FILE_TEXT_MAX);
        verdict.text = clean_copy(text, VERDICTS_TEXT_MAX);
        if (verdict.file && verdict.text)
                list = open_place(verdicts->list, &verdicts->n, &verdicts->capacity, sizeof(*list), place);
        if (!list) {
                verdict_deinit(&verdict);
                return -ENOMEM;
        }
        verdicts->list = list;
        list[place] = verdict;
        cleared = place_of(CLEARED(verdicts), sample);
        if (is_at(CLEARED(verdicts), cleared, sample))
                close_place(verdicts->cleared, &verdicts->n_cleared, sizeof(*verdicts->cleared), cleared);
        return 0;
}

/* 0, also when it is there, or -ENOMEM. */
static int add_cleared(struct verdicts *verdicts, uint64_t sample) {
        size_t place = place_of(CLEARED(verdicts), sample);
        uint64_t *cleared;

        if (is_at(CLEARED(verdicts), place, sample))
                return 0;
        cleared = open_place(verdicts->cleared, &verdicts->n_cleared, &verdicts->cleared_capacity,
                             sizeof(*cleared), place);
        if (!cleared)
                return -ENOMEM;
        verdicts->cleared = cleared;
        cleared[place] = sample;
        return 0;
}

int verdicts_remove(struct verdicts *verdicts, uint64_t sample) {
        size_t place = place_of(LIST(verdicts), sample);

        if (!is_at(LIST(verdicts), place, sample))
                return 0;
        if (add_cleared(verdicts, sample) < 0)
                return -ENOMEM;
        verdicts->n_lifted -= verdicts->list[place].lifted;
        verdict_deinit(&verdicts->list[place]);
        close_place(verdicts->list, &verdicts->n, sizeof(*verdicts->list), place);
        return 1;
}

int verdicts_lift(struct verdicts *verdicts, uint64_t sample) {
        size_t place = place_of(LIST(verdicts), sample);

        if (!is_at(LIST(verdicts), place, sample) || verdicts->list[place].lifted)
                return 0;
        if (add_cleared(verdicts, sample) < 0)
                return -ENOMEM;
        verdicts->list[place].lifted = true;
        verdicts->n_lifted++;
        return 1;
}
