#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What counters have grown by over the last seconds. */

#include <stdint.h>

enum {
        RECENT_VALUES = 6,
        RECENT_LOOKS = 6, /* so that a second between two of them gives 5 to 6 seconds */
};

struct recent {
        struct {
                uint64_t at_ns;
                uint64_t values[RECENT_VALUES];
        } looks[RECENT_LOOKS];
        uint32_t n, next;
};

/* Forgets all looks. */
void recent_reset(struct recent *recent);

/* The values are `values` at `now`; they and `now` never fall. */
void recent_note(struct recent *recent, uint64_t now, const uint64_t values[RECENT_VALUES]);

/* From the oldest look that is kept to `now`, when the values are `values`: by how much each has grown.
 * Returns the seconds between; 0 if there was no look. */
double recent_grown(const struct recent *recent, uint64_t now, const uint64_t values[RECENT_VALUES],
                    uint64_t grown[RECENT_VALUES]);
