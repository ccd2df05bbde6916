#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The fingerprint of what a pipeline's rows contain: a saved state has it, and fits only the same. */

#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>

struct fault;
struct recipe;

enum {
        FINGERPRINT_MAX = MESSAGE_FINGERPRINT_MAX, /* bytes, without the NUL */
        FINGERPRINT_SHA256_BYTES = 32,
};

/* "1.1003.3f2a9c0d11e2.9b1c6e0f52aa.77aa04c1d2e3.s": version of the bits, samples, source, transforms,
 * output, order (s: shuffled, o: in order). 0 or -ENOMEM. */
int fingerprint_make(char text[FINGERPRINT_MAX + 1], const struct recipe *recipe,
                     const uint8_t index_sha256[FINGERPRINT_SHA256_BYTES], uint64_t samples, bool shuffle);

/* Does a state that was saved with fingerprint `saved` and `saved_seed` fit a stream of `ours` and `seed`? 0;
 * -ESTALE, with all that has changed and what to do; -EINVAL: `saved` is no fingerprint. */
int fingerprint_compare(const char *ours, uint64_t seed, const char *saved, uint64_t saved_seed,
                        struct fault *fault);
