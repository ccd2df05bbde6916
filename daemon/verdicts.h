#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Condemned samples: those that kill or hang their worker also when they are tried alone. Kept across runs.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault;
struct recipe;

enum {
        VERDICTS_MAX = 65536,
        VERDICTS_TEXT_MAX = 200, /* bytes of a reason, longer ones are cut: the file has a bound, too */
        VERDICTS_SHA256_BYTES = 32,
        VERDICTS_HEX_BYTES = 2 * VERDICTS_SHA256_BYTES,
};

#define VERDICTS_SAMPLE_MAX (UINT64_C(1) << 48) /* as many samples as a source may have */

struct verdict {
        uint64_t sample;
        uint64_t time; /* seconds since 1970 */
        bool lifted;   /* taken back, and in force until this list is gone: told, never written */
        char *file;    /* "" when the sample has none */
        char *text;
};

enum verdicts_error {
        VERDICTS_E_KNOWN = 1, /* condemned already; the first reason stays */
        VERDICTS_E_FULL,      /* VERDICTS_MAX are condemned */
        VERDICTS_E_DAMAGED,   /* a file was no list of verdicts and lies aside now; the fault says where. All
                               * else went well: load has an empty list, save has written */
};

struct verdicts {
        char *pipeline;
        char fingerprint[VERDICTS_HEX_BYTES + 1];
        size_t n, capacity;
        struct verdict *list; /* by sample, rising: for iteration */
        size_t n_lifted;      /* of them */
        size_t n_cleared, cleared_capacity;
        uint64_t *cleared; /* taken back since the file was read, rising, lifted ones among them; see
                            * verdicts-file.c */
};

/* What the verdicts are about, in hexadecimal: SHA-256 of the recipe without the place of its source, the
 * index's sum and the number of samples. Neither shuffle, seed nor batch size are in it. 0 or -ENOMEM. */
int verdicts_fingerprint(char fingerprint[VERDICTS_HEX_BYTES + 1], const struct recipe *recipe,
                         const uint8_t index_sha256[VERDICTS_SHA256_BYTES], uint64_t samples);

/* Empty. 0 or -ENOMEM. */
int verdicts_new(struct verdicts **verdicts, const char *pipeline,
                 const char fingerprint[VERDICTS_HEX_BYTES + 1]);
struct verdicts *verdicts_free(struct verdicts *verdicts);

/* For another thread, which shares nothing with the original. 0 or -ENOMEM. */
int verdicts_copy(struct verdicts **copy, const struct verdicts *verdicts);

/* Control bytes and what is no UTF-8 in `file` and `text` become '?'. 0, VERDICTS_E_KNOWN, VERDICTS_E_FULL,
 * -EINVAL (sample >= VERDICTS_SAMPLE_MAX) or -ENOMEM. */
int verdicts_add(struct verdicts *verdicts, uint64_t sample, const char *file, const char *text,
                 uint64_t time);

/* Takes a verdict back, for good: the next save leaves it out of the file. Whether there was one. -ENOMEM
 * leaves it. */
int verdicts_remove(struct verdicts *verdicts, uint64_t sample);

/* Takes a verdict back for whoever reads the file next: the next save leaves it out. In this list it stays,
 * for rows that are made by it already must not change half-way. Whether there was one that was not lifted
 * before. -ENOMEM leaves it. */
int verdicts_lift(struct verdicts *verdicts, uint64_t sample);

const struct verdict *verdicts_find(const struct verdicts *verdicts, uint64_t sample);

/* Whether it was taken back since, and not condemned again. */
bool verdicts_was_cleared(const struct verdicts *verdicts, uint64_t sample);

static inline bool verdicts_contains(const struct verdicts *verdicts, uint64_t sample) {
        return verdicts->n > 0 && verdicts_find(verdicts, sample);
}

/* Those in force. */
static inline size_t verdicts_count(const struct verdicts *verdicts) {
        return verdicts->n;
}

/* Those that a save writes. */
static inline size_t verdicts_count_lasting(const struct verdicts *verdicts) {
        return verdicts->n - verdicts->n_lifted;
}

/* ---- files (verdicts-file.c). These block; all but the first may run in any thread, on a list that no other
 * thread uses at the time. ---- */

/* The state directory: $PINFEED_STATE_DIR, the first of $STATE_DIRECTORY (systemd), $XDG_STATE_HOME/pinfeed,
 * $HOME/.local/state/pinfeed. Makes nothing. 0, -ENAMETOOLONG, or -ENOENT when none of them is set. */
int verdicts_find_directory(char path[PATH_MAX], struct fault *fault);

/* Adds what the file in `directory` says to `verdicts`, normally a new one. 0 also when there is no file or
 * no directory; VERDICTS_E_DAMAGED, or a negative errno: it could not be read, and was left alone. */
int verdicts_load(struct verdicts *verdicts, const char *directory, struct fault *fault);

/* Writes them, together with what others have added to the file meanwhile; makes the directory (0700) if need
 * be. The old file is there until the new one is on the disk. Without verdicts there is no file. 0,
 * VERDICTS_E_DAMAGED, or a negative errno: the file is as it was. */
int verdicts_save(const struct verdicts *verdicts, const char *directory, struct fault *fault);
