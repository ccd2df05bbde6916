/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Histograms with four buckets an octave: bucket k begins at 2^(10 + k/4) ns. Equal steps on a logarithmic
 * scale say microseconds and minutes equally well, and 108 counters are all there is to keep.
 *
 * A bucket is 19 % wide. A percentile is told as the middle of its bucket, on that scale: so it is at most
 * 2^(1/8) times too high or too low, 9.1 %, wherever in the bucket the times were. To interpolate by rank
 * would be closer as a rule and, where all times are equal, 19 % off.
 *
 * Which bucket a time is in is found with integers alone: its highest bit tells the octave, and three
 * comparisons of what follows tell the quarter. */

#include "proto/stages.h"

enum {
        QUARTERS = 4,
};

/* 2^63 times 2^(1/4), 2^(2/4), 2^(3/4), rounded down. */
static const uint64_t quarters[] = {
        UINT64_C(0x9837f0518db8a96f),
        UINT64_C(0xb504f333f9de6484),
        UINT64_C(0xd744fccad69d6af4),
};

/* 2^(1/8), 2^(3/8), 2^(5/8), 2^(7/8): the middle of each quarter. */
static const double middles[QUARTERS] = {1.0905077326652577, 1.2968395546510096, 1.5422108254079407,
                                         1.8340080864093424};

const char *stage_name(enum row_stage stage) {
        static const char *const names[] = {
#define S(NAME, name) [STAGE_##NAME] = #name,
                STAGES(S)
#undef S
        };

        return names[stage];
}

uint32_t stage_bucket(uint64_t ns) {
        uint32_t octave, quarter = 0;
        uint64_t mantissa;

        if (ns < UINT64_C(1) << STAGE_FIRST_OCTAVE)
                return 0;
        octave = 63 - (uint32_t)__builtin_clzll(ns);
        if (octave >= STAGE_FIRST_OCTAVE + STAGE_OCTAVES)
                return STAGE_BUCKETS - 1;
        mantissa = ns << (63 - octave);
        while (quarter < QUARTERS - 1 && mantissa > quarters[quarter])
                quarter++;
        return QUARTERS * (octave - STAGE_FIRST_OCTAVE) + quarter;
}

uint64_t stage_bucket_end(uint32_t bucket) {
        uint32_t octave = STAGE_FIRST_OCTAVE + bucket / QUARTERS, quarter = bucket % QUARTERS;

        if (quarter == QUARTERS - 1)
                return UINT64_C(1) << (octave + 1);
        return (quarters[quarter] >> (63 - octave)) + 1;
}

uint64_t stage_rows(const struct stage_times *times, enum row_stage stage) {
        uint64_t rows = 0;

        for (uint32_t i = 0; i < STAGE_BUCKETS; i++)
                rows += times->rows[stage][i];
        return rows;
}

uint64_t stage_percentile(const struct stage_times *times, enum row_stage stage, double share) {
        uint64_t rows = stage_rows(times, stage), seen = 0;
        uint32_t bucket = 0;

        if (rows == 0)
                return 0;
        for (; bucket < STAGE_BUCKETS - 1; bucket++) {
                seen += times->rows[stage][bucket];
                if ((double)seen >= share * (double)rows && seen > 0)
                        break;
        }
        return (uint64_t)(middles[bucket % QUARTERS] *
                          (double)(UINT64_C(1) << (STAGE_FIRST_OCTAVE + bucket / QUARTERS)));
}
