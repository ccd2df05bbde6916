/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A bad sample comes back in every epoch and every stream, but it is one bad sample: what is judged, logged
 * and shown are distinct ones. So their numbers are kept in a set: open addressing with linear steps, at most
 * half full, nothing is ever taken out, a place holds the number + 1 so that 0 is a free one.
 *
 * The set has a bound. Beyond it every report counts as one more sample. That is too many when the same one
 * comes back, on purpose: a pipeline with a million bad samples should rather end too early, with a text that
 * says why, than have its data replaced unnoticed. Lack of memory is the same bound, met sooner.
 *
 * Names and reasons are text of up to 1.5 KiB, therefore only the first hundred are kept; whoever wants all
 * of them asks `pinfeedctl verify`.
 */

#include "daemon/ledger.h"

#include "base/fault.h"
#include "base/number.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        CAPACITY_LEAST = 64,
};

void ledger_init(struct ledger *ledger) {
        *ledger = LEDGER_INIT;
}

void ledger_deinit(struct ledger *ledger) {
        for (uint32_t i = 0; i < ledger->n_shown; i++) {
                free(ledger->shown[i].file);
                free(ledger->shown[i].text);
        }
        free(ledger->places);
        ledger_init(ledger);
}

/* Where the sample is, or the free place where it belongs. Multiplied by 2^64 over the golden ratio: samples
 * that are bad together often lie side by side, or at equal distances. */
static uint64_t *find_place(uint64_t *places, size_t capacity, uint64_t sample) {
        size_t at = (size_t)((sample * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (capacity - 1);

        while (places[at] != 0 && places[at] != sample + 1)
                at = (at + 1) & (capacity - 1);
        return &places[at];
}

static bool grow(struct ledger *ledger) {
        size_t capacity = ledger->capacity > 0 ? 2 * ledger->capacity : CAPACITY_LEAST;
        uint64_t *places = calloc(capacity, sizeof(*places));

        if (!places)
                return false;
        for (size_t i = 0; i < ledger->capacity; i++)
                if (ledger->places[i] != 0)
                        *find_place(places, capacity, ledger->places[i] - 1) = ledger->places[i];
        free(ledger->places);
        ledger->places = places;
        ledger->capacity = capacity;
        return true;
}

static bool has_room(struct ledger *ledger) {
        if (ledger->known == LEDGER_KNOWN_MAX)
                return false;
        return 2 * (ledger->known + 1) <= ledger->capacity || grow(ledger);
}

static void show(struct ledger *ledger, uint64_t sample, int error, const char *file, const char *text) {
        struct ledger_entry entry = {.sample = sample, .error = error};

        if (ledger->n_shown == LEDGER_SHOWN_MAX)
                return;
        entry.file = strdup(file ? file : "");
        entry.text = strdup(text ? text : "");
        if (!entry.file || !entry.text) {
                free(entry.file);
                free(entry.text);
                return;
        }
        ledger->shown[ledger->n_shown++] = entry;
}

bool ledger_add(struct ledger *ledger, uint64_t sample, int error, const char *file, const char *text) {
        if (ledger->capacity > 0 && *find_place(ledger->places, ledger->capacity, sample) != 0)
                return false;
        if (!has_room(ledger)) {
                ledger->unlisted++;
                return false;
        }
        *find_place(ledger->places, ledger->capacity, sample) = sample + 1;
        ledger->known++;
        show(ledger, sample, error, file, text);
        return true;
}

/* Rounded down, after giving back what the two roundings to binary can have taken: 0.29 of 100 is 29. */
static uint64_t allowed_of(uint64_t seen, double max_errors) {
        return (uint64_t)(max_errors * (double)seen * (1 + 4 * DBL_EPSILON));
}

int ledger_judge(const struct ledger *ledger, uint64_t samples, uint64_t rows_prepared, double max_errors,
                 struct fault *fault) {
        uint64_t seen = samples < rows_prepared ? samples : rows_prepared, bad = ledger_count(ledger),
                 allowed = allowed_of(seen, max_errors);
        char bad_text[NUMBER_TEXT_MAX], seen_text[NUMBER_TEXT_MAX], allowed_text[NUMBER_TEXT_MAX];
        const struct ledger_entry *first = ledger->n_shown > 0 ? &ledger->shown[0] : NULL;
        const char *file = first ? first->file : "";

        if (rows_prepared < LEDGER_ROWS_LEAST || bad <= allowed)
                return 0;
        return fault_set(fault, -EIO,
                         "%s of %s samples seen so far %s bad, max_errors %.10g allows %s; mend or remove "
                         "the files that "
                         "pinfeedctl status lists, or raise max_errors%s%s%s%s%s",
                         number_format_count(bad_text, bad), number_format_count(seen_text, seen),
                         bad == 1 ? "is" : "are", max_errors, number_format_count(allowed_text, allowed),
                         first ? " (the first one: " : "", file, *file ? ": " : "", first ? first->text : "",
                         first ? ")" : "");
}
