#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The stages in which a worker makes a row, and the histograms of the time that each takes. */

#include <stdint.h>

/* In the order in which people read them. */
#define STAGES(S)                                                                                            \
        S(READ, read)           /* the file is opened and read */                                            \
        S(DECODE, decode)       /* its header, and the pixels that are wanted */                             \
        S(TRANSFORM, transform) /* all else until the row lies in its slot */                                \
        S(MAKE, make)           /* the whole sample, by a source that has no images */

enum row_stage {
#define S(NAME, name) STAGE_##NAME,
        STAGES(S)
#undef S
        STAGE_KINDS,
};

enum {
        STAGE_FIRST_OCTAVE = 10, /* 2^10 ns, a microsecond: less counts as that */
        STAGE_OCTAVES = 27,      /* up to 2^37 ns, 137 s: more counts as that */
        STAGE_BUCKETS = 4 * STAGE_OCTAVES,
        STAGE_PERCENTILE_ERROR = 10, /* per cent: the most that one is off, see stages.c */
};

/* What one worker, or several together, took. */
struct stage_times {
        uint64_t ns[STAGE_KINDS];                  /* in all */
        uint64_t rows[STAGE_KINDS][STAGE_BUCKETS]; /* that took so long */
};

const char *stage_name(enum row_stage stage);

/* Where a time is counted, and the end of that bucket: the first time that is not in it. */
uint32_t stage_bucket(uint64_t ns);
uint64_t stage_bucket_end(uint32_t bucket);

uint64_t stage_rows(const struct stage_times *times, enum row_stage stage);

/* The time that `share` (0 to 1) of the rows did not exceed, in ns; 0 when there are no rows. */
uint64_t stage_percentile(const struct stage_times *times, enum row_stage stage, double share);
