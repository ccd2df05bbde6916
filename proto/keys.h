#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Tables of keys: one line says name, type, range, default and help; parser, errors and documents use it. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault;

enum key_type {
        KEY_BOOL,   /* bool */
        KEY_U64,    /* uint64_t, a whole number; over 2^63-1, which jansson's integers cannot hold, as text */
        KEY_BYTES,  /* uint64_t; a whole number, or text as number_parse_bytes takes it */
        KEY_DOUBLE, /* double */
        KEY_TEXT, /* char *, owned by the struct, freed by keys_deinit; null only where that is the default */
        KEY_NAME, /* int: the place in `names` */
        KEY_SIZE, /* uint32_t[2] height, width: a whole number (see `single`) or a list of two */
        KEY_PAIR, /* double[2], low and high */
        KEY_TRIPLE, /* double[3], one for each channel */
        KEY_JSON,   /* char *, owned like TEXT: a mapping of anything, as JSON text */
        KEY_TEXTS,  /* the same: a list of texts, each of 1 byte or more */
};

struct key {
        const char *name;
        enum key_type type;
        size_t offset;        /* of the member in the struct */
        double least, most;   /* range of every number, exact for whole ones up to 2^53; texts: of bytes */
        const char *fallback; /* JSON text of the default, exempt from the range; NULL: the key is required */
        const char *const *names; /* KEY_NAME: what may be said, NULL-terminated */
        const char *help;         /* one line for the manual page; with units */
        bool live; /* what it belongs to can take another value while it is at work; see config_is_alike */
};

/* A table ends with an entry whose name is NULL. */

/* Gives every member its default (TEXT: a copy, or NULL for "null"). Required ones become 0 / NULL. */
void keys_init(const struct key *table, void *object);
void keys_deinit(const struct key *table, void *object);

const struct key *keys_find(const struct key *table, const char *name);

/* Checks `value` and stores it. 0, or -EINVAL with "KEY: expected a whole number from 1 to 65536, got
 * \"abc\""; the object is unchanged then. KEY_SIZE from a single number stores {0, n}: "the shorter edge", or
 * a square: the owner of the key says which. KEY_PAIR must not fall. */
int keys_set(const struct key *key, void *object, const json_t *value, struct fault *fault);

/* The member as JSON (a new reference), such that keys_set takes it back to the same bits. */
json_t *keys_get(const struct key *key, const void *object);
