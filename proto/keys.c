/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One struct key describes one member of some struct. A value takes one way in, whoever says it (a default, a
 * configuration file, a message): JSON -> read_value() into a union -> the member. Nothing is stored before
 * the whole value is known to be good, so a refused value leaves the object as it was.
 *
 * The way out, keys_get(), is the exact inverse, because the text of a recipe is what a worker works from and
 * what will be compared later: doubles stay doubles (jansson prints 17 digits), and whole numbers that
 * jansson's signed integers cannot hold travel as decimal text.
 *
 * What only its owner can read (JSON, TEXTS) is kept as text: it is compared and handed on, and nobody here
 * looks into it.
 *
 * Defaults are JSON text as well. They are exempt from the range, so that "not given" (0, say) can be a
 * default that nobody can say. */

#include "proto/keys.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
        SHOWN_MAX = 64,     /* bytes of a refused value in an error text */
        EXPECTED_MAX = 512, /* the longest list of names, with room */
};

#define TWO_TO_64 18446744073709551616.0

#define TEXT_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(17)) /* 17 digits: the same double comes back */

union value {
        bool truth;
        uint64_t number;
        double real;
        const char *text;
        int name;
        uint32_t size[2];
        double reals[3];
        const json_t *json; /* JSON, TEXTS */
};

static const size_t value_bytes[] = {
        [KEY_BOOL] = sizeof(bool),         [KEY_U64] = sizeof(uint64_t),    [KEY_BYTES] = sizeof(uint64_t),
        [KEY_DOUBLE] = sizeof(double),     [KEY_TEXT] = sizeof(char *),     [KEY_NAME] = sizeof(int),
        [KEY_SIZE] = 2 * sizeof(uint32_t), [KEY_PAIR] = 2 * sizeof(double), [KEY_TRIPLE] = 3 * sizeof(double),
        [KEY_JSON] = sizeof(char *),       [KEY_TEXTS] = sizeof(char *),
};

/* The member is a text of the struct's own. */
static bool is_owned(const struct key *key) {
        return key->type == KEY_TEXT || key->type == KEY_JSON || key->type == KEY_TEXTS;
}

static void *member_of(const struct key *key, void *object) {
        return (char *)object + key->offset;
}

static uint64_t whole_bound(double bound) {
        return bound >= TWO_TO_64 ? UINT64_MAX : (uint64_t)bound;
}

static bool in_range(const struct key *key, uint64_t number) {
        return number >= whole_bound(key->least) && number <= whole_bound(key->most);
}

static bool read_whole(const json_t *json, uint64_t *number) {
        if (json_is_integer(json)) {
                *number = (uint64_t)json_integer_value(json);
                return json_integer_value(json) >= 0;
        }
        /* text only where there is no other way to say it */
        return json_is_string(json) && number_parse_u64(json_string_value(json), number) == 0 &&
               *number > INT64_MAX;
}

static bool read_bytes(const json_t *json, uint64_t *bytes) {
        if (json_is_string(json))
                return number_parse_bytes(json_string_value(json), bytes) == 0;
        return read_whole(json, bytes);
}

static bool read_text(const struct key *key, const json_t *json, bool ranged, const char **text) {
        size_t length = json_string_length(json);

        *text = json_string_value(json);
        if (json_is_null(json))
                return key->fallback && strcmp(key->fallback, "null") == 0;
        if (!*text || strlen(*text) != length)
                return false;
        return !ranged || in_range(key, length);
}

static bool read_name(const struct key *key, const json_t *json, int *name) {
        if (!json_is_string(json))
                return false;
        for (*name = 0; key->names[*name]; (*name)++)
                if (strcmp(key->names[*name], json_string_value(json)) == 0)
                        return true;
        return false;
}

static bool read_edge(const struct key *key, const json_t *json, bool ranged, uint32_t *edge) {
        uint64_t number;

        if (!read_whole(json, &number) || number > UINT32_MAX || (ranged && !in_range(key, number)))
                return false;
        *edge = (uint32_t)number;
        return true;
}

static bool read_size(const struct key *key, const json_t *json, bool ranged, uint32_t size[2]) {
        size[0] = 0;
        if (!json_is_array(json))
                return read_edge(key, json, ranged, &size[1]);
        return json_array_size(json) == 2 && read_edge(key, json_array_get(json, 0), ranged, &size[0]) &&
               read_edge(key, json_array_get(json, 1), ranged, &size[1]);
}

static bool read_real(const struct key *key, const json_t *json, bool ranged, double *real) {
        if (!json_is_number(json))
                return false;
        *real = json_number_value(json);
        return !ranged || (*real >= key->least && *real <= key->most);
}

static bool read_reals(const struct key *key, const json_t *json, bool ranged, size_t n, double *reals) {
        if (!json_is_array(json) || json_array_size(json) != n)
                return false;
        for (size_t i = 0; i < n; i++)
                if (!read_real(key, json_array_get(json, i), ranged, &reals[i]))
                        return false;
        return true;
}

static bool are_texts(const json_t *list) {
        for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *item = json_array_get(list, i);

                if (json_string_length(item) == 0 ||
                    strlen(json_string_value(item)) != json_string_length(item))
                        return false;
        }
        return json_is_array(list);
}

static bool read_json(const struct key *key, const json_t *json, bool ranged, const json_t **read) {
        *read = json;
        if (key->type == KEY_JSON ? !json_is_object(json) : !are_texts(json))
                return false;
        return !ranged || in_range(key, json_dumpb(json, NULL, 0, TEXT_FLAGS));
}

static bool read_value(const struct key *key, const json_t *json, bool ranged, union value *value) {
        switch (key->type) {
        case KEY_BOOL:
                value->truth = json_is_true(json);
                return json_is_boolean(json);
        case KEY_U64:
                return read_whole(json, &value->number) && (!ranged || in_range(key, value->number));
        case KEY_BYTES:
                return read_bytes(json, &value->number) && (!ranged || in_range(key, value->number));
        case KEY_DOUBLE:
                return read_real(key, json, ranged, &value->real);
        case KEY_TEXT:
                return read_text(key, json, ranged, &value->text);
        case KEY_NAME:
                return read_name(key, json, &value->name);
        case KEY_SIZE:
                return read_size(key, json, ranged, value->size);
        case KEY_PAIR:
                return read_reals(key, json, ranged, 2, value->reals) && value->reals[0] <= value->reals[1];
        case KEY_TRIPLE:
                return read_reals(key, json, ranged, 3, value->reals);
        case KEY_JSON:
        case KEY_TEXTS:
                return read_json(key, json, ranged, &value->json);
        }
        return false;
}

/* Stores a value that was read; a text is copied, its forerunner freed. */
static int store_value(const struct key *key, void *object, const union value *value) {
        char **text = member_of(key, object);
        char *copy = NULL;

        if (!is_owned(key)) {
                memcpy(member_of(key, object), value, value_bytes[key->type]);
                return 0;
        }
        if (key->type != KEY_TEXT)
                copy = json_dumps(value->json, TEXT_FLAGS);
        else if (value->text)
                copy = strdup(value->text);
        if (!copy && (key->type != KEY_TEXT || value->text))
                return -ENOMEM;
        free(*text);
        *text = copy;
        return 0;
}

static void print_names(char *to, size_t size, const struct key *key) {
        size_t length = (size_t)snprintf(to, size, "one of");

        for (size_t i = 0; key->names[i] && length < size; i++)
                length += (size_t)snprintf(to + length, size - length, "%s %s", i ? "," : "", key->names[i]);
}

static void print_expected(char to[EXPECTED_MAX], const struct key *key) {
        uint64_t least = whole_bound(key->least), most = whole_bound(key->most);
        const char *form = "a number";

        if (key->type == KEY_PAIR)
                form = "a list of two numbers, the lower one first,";
        else if (key->type == KEY_TRIPLE)
                form = "a list of three numbers";

        if (key->type == KEY_BOOL)
                snprintf(to, EXPECTED_MAX, "true or false");
        else if (key->type == KEY_NAME)
                print_names(to, EXPECTED_MAX, key);
        else if (key->type == KEY_TEXT)
                snprintf(to, EXPECTED_MAX, "text of %" PRIu64 " to %" PRIu64 " bytes", least, most);
        else if (key->type == KEY_JSON)
                snprintf(to, EXPECTED_MAX, "a mapping that takes %" PRIu64 " bytes at most as JSON", most);
        else if (key->type == KEY_TEXTS)
                snprintf(to, EXPECTED_MAX, "a list of texts that takes %" PRIu64 " bytes at most", most);
        else if (key->type == KEY_U64)
                snprintf(to, EXPECTED_MAX, "a whole number from %" PRIu64 " to %" PRIu64, least, most);
        else if (key->type == KEY_BYTES)
                snprintf(to, EXPECTED_MAX,
                         "bytes, as a whole number or like 64M, from %" PRIu64 " to %" PRIu64, least, most);
        else if (key->type == KEY_SIZE)
                snprintf(to, EXPECTED_MAX, "a whole number or a list of two, from %" PRIu64 " to %" PRIu64,
                         least, most);
        else
                snprintf(to, EXPECTED_MAX, "%s from %.9g to %.9g", form, key->least, key->most);
}

/* The value as JSON, cut between two characters where it is long. */
static void print_shown(char to[SHOWN_MAX + 4], const json_t *value) {
        _cleanup_(freep) char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        size_t length = text ? strlen(text) : 0;

        if (length <= SHOWN_MAX) {
                snprintf(to, SHOWN_MAX + 4, "%s", text ? text : "nothing");
                return;
        }
        length = SHOWN_MAX;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
                length--;
        snprintf(to, SHOWN_MAX + 4, "%.*s...", (int)length, text);
}

int keys_set(const struct key *key, void *object, const json_t *value, struct fault *fault) {
        char expected[EXPECTED_MAX], shown[SHOWN_MAX + 4];
        union value read = {};

        if (!read_value(key, value, true, &read)) {
                print_expected(expected, key);
                print_shown(shown, value);
                return fault_set(fault, -EINVAL, "%s: expected %s, got %s", key->name, expected, shown);
        }
        if (store_value(key, object, &read) < 0)
                return fault_set(fault, -ENOMEM, "%s: out of memory", key->name);
        return 0;
}

void keys_init(const struct key *table, void *object) {
        union value read;

        for (const struct key *key = table; key->name; key++) {
                json_t *json = key->fallback ? json_loads(key->fallback, JSON_DECODE_ANY, NULL) : NULL;

                memset(member_of(key, object), 0, value_bytes[key->type]);
                memset(&read, 0, sizeof(read));
                if (json && read_value(key, json, false, &read))
                        (void)store_value(key, object, &read);
                json_decref(json);
        }
}

void keys_deinit(const struct key *table, void *object) {
        for (const struct key *key = table; key->name; key++) {
                char **text = member_of(key, object);

                if (!is_owned(key))
                        continue;
                free(*text);
                *text = NULL;
        }
}

const struct key *keys_find(const struct key *table, const char *name) {
        for (const struct key *key = table; key->name; key++)
                if (strcmp(key->name, name) == 0)
                        return key;
        return NULL;
}

static json_t *whole_to_json(uint64_t number) {
        char text[NUMBER_TEXT_MAX];

        if (number <= INT64_MAX)
                return json_integer((json_int_t)number);
        snprintf(text, sizeof(text), "%" PRIu64, number);
        return json_string(text);
}

static json_t *reals_to_json(const double *reals, size_t n) {
        json_t *list = json_array();

        for (size_t i = 0; i < n; i++)
                if (json_array_append_new(list, json_real(reals[i])) < 0) {
                        json_decref(list);
                        return NULL;
                }
        return list;
}

static json_t *size_to_json(const uint32_t size[2]) {
        if (size[0] == 0)
                return json_integer(size[1]);
        return json_pack("[I,I]", (json_int_t)size[0], (json_int_t)size[1]);
}

json_t *keys_get(const struct key *key, const void *object) {
        union value value = {};

        memcpy(&value, (const char *)object + key->offset, value_bytes[key->type]);
        switch (key->type) {
        case KEY_BOOL:
                return json_boolean(value.truth);
        case KEY_U64:
        case KEY_BYTES:
                return whole_to_json(value.number);
        case KEY_DOUBLE:
                return json_real(value.real);
        case KEY_TEXT:
                return value.text ? json_string(value.text) : json_null();
        case KEY_NAME:
                return json_string(key->names[value.name]);
        case KEY_SIZE:
                return size_to_json(value.size);
        case KEY_PAIR:
                return reals_to_json(value.reals, 2);
        case KEY_TRIPLE:
                return reals_to_json(value.reals, 3);
        case KEY_JSON:
        case KEY_TEXTS:
                return value.text ? json_loads(value.text, 0, NULL) : json_null();
        }
        return NULL;
}
