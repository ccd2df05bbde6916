#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What a pipeline knows of its bad samples: how many there are, the first of them, and whether it is too
 * many. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault;

enum {
        LEDGER_SHOWN_MAX = 100,     /* of which file and reason are kept */
        LEDGER_KNOWN_MAX = 1 << 20, /* of which the number is kept: 16 MiB */
        LEDGER_ROWS_LEAST = 1000,   /* rows that are prepared before anything is judged */
};

struct ledger_entry {
        uint64_t sample;
        int error;  /* errno, positive, as in the messages */
        char *file; /* "" when the sample has none */
        char *text;
};

struct ledger {
        uint64_t *places; /* the set of known samples, see ledger.c */
        size_t capacity;
        uint64_t known;    /* samples in the set */
        uint64_t unlisted; /* reports of samples that are not in it, once it takes no more */
        uint32_t n_shown;
        struct ledger_entry shown[LEDGER_SHOWN_MAX]; /* in the order of their reports, for status */
};

#define LEDGER_INIT ((struct ledger){0})

void ledger_init(struct ledger *ledger);
void ledger_deinit(struct ledger *ledger); /* back to LEDGER_INIT */

/* A sample turned out to be bad, for the first time or again. True when it is new, and so to be logged. Once
 * the set is full (or memory is short) samples outside it are counted, each report as a sample, and false is
 * the answer. `sample` < UINT64_MAX. */
bool ledger_add(struct ledger *ledger, uint64_t sample, int error, const char *file, const char *text);

/* Distinct bad samples. Exact while `unlisted` is 0. */
static inline uint64_t ledger_count(const struct ledger *ledger) {
        return ledger->known + ledger->unlisted;
}

/* Whether it is too many: 0, or -EIO with the numbers, the remedy and the first bad sample. It is too many
 * when at least LEDGER_ROWS_LEAST rows were prepared, and more than the share `max_errors` (0 ... 1) of the
 * samples seen is bad, these being min(samples, rows_prepared), the most that so many rows can have shown.
 * The allowed number is rounded down: 0.001 of 1,999 samples is 1. `rows_prepared` counts replaced rows
 * too. */
int ledger_judge(const struct ledger *ledger, uint64_t samples, uint64_t rows_prepared, double max_errors,
                 struct fault *fault);
