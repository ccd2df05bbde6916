/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A state is one JSON object:
 *
 *   {"pipeline":"photos","fingerprint":"1.1003.3f2a9c0d11e2...","seed":0,"epoch":3,"row":640}
 *
 * It is written after every batch by some callers, so all that stays the same is made once, and what changes
 * costs one snprintf. It is read seldom, from files that people move about, cut off and edit, so reading is
 * strict: exactly these members, each in its range, and words for whatever is not so. The order of members
 * and space between them do not matter, for a state may have been through somebody else's JSON.
 *
 * A seed has 64 bits without a sign and jansson's integers have one. Numbers that might be too long for it
 * are put in quotes before it sees them; a seed in quotes that is shorter than that is still refused. */

#include "client/state.h"

#include "base/fault.h"
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
        STATE_TEXT_MAX = 4096,  /* of one that is read; 256 bytes and whatever was put between its members */
        STATE_LONG_DIGITS = 19, /* from here on a number may be over 2^63-1 */
};

#define STATE_EXPECTED                                                                                       \
        "expected what pinfeed_job_state gave, one line of JSON with pipeline, fingerprint, seed, epoch "    \
        "and row"

/* Copies `text`, with numbers of STATE_LONG_DIGITS or more in quotes. False: it does not fit. */
static bool quote_long_numbers(char *to, size_t size, const char *text) {
        bool in_string = false;
        size_t used = 0;

        while (*text) {
                size_t length = in_string ? 0 : strspn(text, "0123456789");
                bool is_long = length >= STATE_LONG_DIGITS;

                if (length == 0) {
                        length = in_string && text[0] == '\\' && text[1] ? 2 : 1;
                        in_string ^= text[0] == '"';
                }
                if (used + length + 3 > size)
                        return false;
                used += (size_t)snprintf(to + used, size - used, is_long ? "\"%.*s\"" : "%.*s", (int)length,
                                         text);
                text += length;
        }
        to[used] = 0;
        return true;
}

static int read_text(const json_t *root, const char *member, char *to, size_t size, struct fault *fault) {
        const char *text = json_string_value(json_object_get(root, member));

        if (!text)
                return fault_set(fault, -EINVAL, "its member %s is not there or not a text", member);
        if (strlen(text) >= size || !*text)
                return fault_set(fault, -EINVAL, "its member %s has %zu bytes, expected 1 to %zu", member,
                                 strlen(text), size - 1);
        strcpy(to, text);
        return 0;
}

static int read_number(const json_t *root, const char *member, uint64_t most, uint64_t *value,
                       struct fault *fault) {
        const json_t *json = json_object_get(root, member);
        const char *digits = json_string_value(json);

        if (digits) { /* of quote_long_numbers, or somebody else's and none of ours */
                if (strlen(digits) >= STATE_LONG_DIGITS && number_parse_u64(digits, value) == 0 &&
                    *value <= most)
                        return 0;
        } else if (json_is_integer(json) && json_integer_value(json) >= 0) {
                *value = (uint64_t)json_integer_value(json);
                if (*value <= most)
                        return 0;
        }
        return fault_set(fault, -EINVAL, "its member %s is no whole number from 0 to %" PRIu64, member, most);
}

static int read_members(struct state *state, const json_t *root, struct fault *fault) {
        uint64_t epoch = 0;
        int r;

        if (!json_is_object(root))
                return fault_set(fault, -EINVAL, "it is no JSON object");
        r = read_text(root, "pipeline", state->pipeline, sizeof(state->pipeline), fault);
        if (r == 0)
                r = read_text(root, "fingerprint", state->fingerprint, sizeof(state->fingerprint), fault);
        if (r == 0)
                r = read_number(root, "seed", UINT64_MAX, &state->seed, fault);
        if (r == 0)
                r = read_number(root, "epoch", UINT32_MAX, &epoch, fault);
        if (r == 0)
                r = read_number(root, "row", MESSAGE_SAMPLES_MAX - 1, &state->row, fault);
        if (r == 0 && json_object_size(root) != 5)
                r = fault_set(fault, -EINVAL, "it has %zu members where 5 are known", json_object_size(root));
        state->epoch = (uint32_t)epoch;
        return r;
}

int state_parse(struct state *state, const char *text, struct fault *fault) {
        char quoted[STATE_TEXT_MAX];
        json_error_t error;
        json_t *root;
        int r;

        if (!quote_long_numbers(quoted, sizeof(quoted), text))
                r = fault_set(fault, -EINVAL, "it has over %d bytes", STATE_TEXT_MAX);
        else if (!(root = json_loads(quoted, JSON_REJECT_DUPLICATES, &error)))
                r = fault_set(fault, -EINVAL, "%s", *text ? error.text : "it is empty");
        else {
                r = read_members(state, root, fault);
                json_decref(root);
        }
        if (r < 0)
                return fault_prefix(fault, r, "pinfeed_attach.state is no state (" STATE_EXPECTED ")");
        return 0;
}

int state_make_prefix(char prefix[STATE_PREFIX_MAX], const char *pipeline, const char *fingerprint,
                      uint64_t seed) {
        json_t *root = json_pack("{s:s, s:s}", "pipeline", pipeline, "fingerprint", fingerprint);
        size_t length = json_dumpb(root, prefix, STATE_PREFIX_MAX, JSON_COMPACT);

        json_decref(root);
        if (length == 0 || length >= STATE_PREFIX_MAX)
                return -ENOMEM;
        snprintf(prefix + length - 1, STATE_PREFIX_MAX - length + 1, ",\"seed\":%" PRIu64, seed);
        return 0;
}

int state_print(char *text, size_t size, const char *prefix, uint32_t epoch, uint64_t row) {
        int length =
                snprintf(text, size, "%s,\"epoch\":%" PRIu32 ",\"row\":%" PRIu64 "}", prefix, epoch, row);

        return (size_t)length < size ? length : -ENOSPC;
}
