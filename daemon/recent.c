/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Counters that only grow are looked at once a second, and the last few looks are kept. The difference to the
 * oldest of them is what happened lately: an instant shows a worker busy or not, five seconds show for how
 * much of the time. Nothing is counted twice for it and nothing smoothed, so the numbers add up. */

#include "daemon/recent.h"

#include "base/clock.h"

#include <string.h>

void recent_reset(struct recent *recent) {
        recent->n = recent->next = 0;
}

void recent_note(struct recent *recent, uint64_t now, const uint64_t values[RECENT_VALUES]) {
        recent->looks[recent->next].at_ns = now;
        memcpy(recent->looks[recent->next].values, values, sizeof(recent->looks[0].values));
        recent->next = (recent->next + 1) % RECENT_LOOKS;
        if (recent->n < RECENT_LOOKS)
                recent->n++;
}

double recent_grown(const struct recent *recent, uint64_t now, const uint64_t values[RECENT_VALUES],
                    uint64_t grown[RECENT_VALUES]) {
        uint32_t oldest = (recent->next + RECENT_LOOKS - recent->n) % RECENT_LOOKS;

        memset(grown, 0, RECENT_VALUES * sizeof(*grown));
        if (recent->n == 0 || now <= recent->looks[oldest].at_ns)
                return 0;
        for (uint32_t i = 0; i < RECENT_VALUES; i++) {
                uint64_t then = recent->looks[oldest].values[i];

                grown[i] = values[i] > then ? values[i] - then : 0;
        }
        return (double)(now - recent->looks[oldest].at_ns) / NS_PER_S;
}
