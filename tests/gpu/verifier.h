#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Counts wrong words of batches that have come to the device, in the order of a stream: by a kernel, or,
 * where there is none, by the host from what is copied back. */

#include "tests/gpu/feed.h"

#include <stdint.h>

struct verifier {
        const struct gpu *gpu;
        uint64_t row_words;
        struct landing copy;           /* on the host; without kernels only */
        unsigned long long *on_device; /* with kernels only */
        unsigned long long on_host;    /* written by functions that the stream runs, one at a time */
};

void verifier_init(struct verifier *verifier, const struct gpu *gpu, const struct feed *feed);

/* All of one stream, and before `landing` is written again. `epoch` and `row` are the batch's. */
void verifier_queue(struct verifier *verifier, const struct landing *landing, uint32_t epoch, uint64_t row,
                    cuda_stream stream);

/* Wrong words of all batches so far; waits for the stream. */
uint64_t verifier_wrong(struct verifier *verifier, cuda_stream stream);
