#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a verification has found: bad samples, and what has become of the condemned ones. */

#include "daemon/ledger.h"

#include <stdbool.h>
#include <stdint.h>

struct verdicts;

enum {
        FINDINGS_LISTED_MAX = 1000, /* of which file and reason are kept: those with the lowest numbers */
};

struct finding {
        uint64_t sample;
        bool condemned;
        char *file; /* "" when the sample has none */
        char *text;
};

struct findings {
        struct ledger bad; /* counts each sample once, however often it is told */
        uint32_t n_listed;
        struct finding *listed; /* by sample, rising */
        uint32_t n_condemned;
        uint64_t *condemned; /* when the verification began, rising */
        bool *is_bad;        /* for each of them: it was found so again */
};

/* Starts zeroed. `verdicts` are those in force; one that was lifted is as good as none. 0 or -ENOMEM. */
int findings_init(struct findings *findings, const struct verdicts *verdicts);
void findings_deinit(struct findings *findings); /* back to zeroes */

/* A bad sample, perhaps told of before. Both texts are clean. */
void findings_add(struct findings *findings, uint64_t sample, int error, const char *file, const char *text);

static inline uint64_t findings_count(const struct findings *findings) {
        return ledger_count(&findings->bad);
}

/* Moves the condemned samples that were not found bad to the front of `condemned`, which is in no order any
 * more then. Returns how many they are. To be called last. */
uint32_t findings_take_good(struct findings *findings);
