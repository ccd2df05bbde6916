/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Open addressing with linear steps, at most half full, so that a search ends at a free place. Nothing is
 * ever taken out alone. An empty set, which is the usual one, costs a comparison for each row. */

#include "daemon/worker/sample-set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
        CAPACITY_LEAST = 64,
};

void sample_set_deinit(struct sample_set *set) {
        free(set->places);
        *set = (struct sample_set){0};
}

/* The place where the sample is, or the free one where it belongs; multiplied by 2^64 over the golden ratio,
 * because samples that are bad together often lie at equal distances. */
static uint64_t *find_place(uint64_t *places, size_t capacity, uint64_t sample) {
        uint64_t mixed = sample * UINT64_C(0x9e3779b97f4a7c15);
        size_t at = (size_t)(mixed >> 32) & (capacity - 1);

        while (places[at] != 0 && places[at] != sample + 1)
                at = (at + 1) & (capacity - 1);
        return &places[at];
}

static int grow(struct sample_set *set) {
        size_t capacity = set->capacity > 0 ? 2 * set->capacity : CAPACITY_LEAST;
        uint64_t *places = calloc(capacity, sizeof(*places));

        if (!places)
                return -ENOMEM;
        for (size_t i = 0; i < set->capacity; i++)
                if (set->places[i] != 0)
                        *find_place(places, capacity, set->places[i] - 1) = set->places[i];
        free(set->places);
        set->places = places;
        set->capacity = capacity;
        return 0;
}

int sample_set_add(struct sample_set *set, uint64_t sample) {
        uint64_t *place;
        int r;

        if (2 * (set->count + 1) > set->capacity) {
                r = grow(set);
                if (r < 0)
                        return r;
        }
        place = find_place(set->places, set->capacity, sample);
        if (*place != 0)
                return SAMPLE_SET_E_KNOWN;
        *place = sample + 1;
        set->count++;
        return 0;
}

int sample_set_has(const struct sample_set *set, uint64_t sample) {
        return set->count > 0 && *find_place(set->places, set->capacity, sample) != 0;
}

void sample_set_clear(struct sample_set *set) {
        if (set->capacity > 0)
                memset(set->places, 0, set->capacity * sizeof(*set->places));
        set->count = 0;
}
