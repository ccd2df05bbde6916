/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/gpu/verifier.h"

#include "tests/gpu/measure.h"
#include "tests/support/ramp.h"

#include <stdlib.h>

/* What the host has to look at when the stream comes to it. */
struct look {
        struct verifier *verifier;
        struct kernel_batch batch;
};

void verifier_init(struct verifier *verifier, const struct gpu *gpu, const struct feed *feed) {
        uint64_t zero = 0;

        *verifier = (struct verifier){.gpu = gpu, .row_words = feed->row_bytes / sizeof(uint64_t)};
        if (gpu->count_wrong) {
                verifier->on_device = gpu_memory(gpu, sizeof(zero));
                gpu_must(gpu, cudaMemcpyAsync, verifier->on_device, &zero, sizeof(zero),
                         CUDA_MEMCPY_HOST_TO_DEVICE, NULL);
                gpu_must(gpu, cudaStreamSynchronize, NULL);
                return;
        }
        verifier->copy.fields[FEED_INDEX] = gpu_host_memory(gpu, FEED_ROWS * sizeof(int64_t));
        verifier->copy.fields[FEED_DATA] = gpu_host_memory(gpu, FEED_ROWS * feed->row_bytes);
}

/* As the kernel does. */
static void count_wrong(void *context) {
        struct look *look = context;
        const struct kernel_batch *batch = &look->batch;

        for (uint64_t row = 0; row < batch->rows; row++) {
                uint64_t sample = batch->first_row + row;
                const uint64_t *words = batch->data + row * batch->row_words;

                look->verifier->on_host += (uint64_t)batch->index[row] != sample;
                for (uint64_t n = 0; n < batch->row_words; n++)
                        look->verifier->on_host += words[n] != ramp_check_word(sample, batch->epoch, n);
        }
        free(look);
}

static void copy_back(const struct verifier *verifier, const struct landing *landing, cuda_stream stream) {
        const size_t bytes[] = {[FEED_INDEX] = FEED_ROWS * sizeof(int64_t),
                                [FEED_DATA] = FEED_ROWS * verifier->row_words * sizeof(uint64_t)};

        for (size_t i = 0; i < FEED_FIELDS; i++)
                gpu_must(verifier->gpu, cudaMemcpyAsync, verifier->copy.fields[i], landing->fields[i],
                         bytes[i], GPU_MEMCPY_DEVICE_TO_HOST, stream);
}

void verifier_queue(struct verifier *verifier, const struct landing *landing, uint32_t epoch, uint64_t row,
                    cuda_stream stream) {
        const struct gpu *gpu = verifier->gpu;
        const struct landing *at = gpu->count_wrong ? landing : &verifier->copy;
        struct kernel_batch batch = {.index = at->fields[FEED_INDEX],
                                     .data = at->fields[FEED_DATA],
                                     .row_words = verifier->row_words,
                                     .first_row = row,
                                     .rows = FEED_ROWS,
                                     .epoch = epoch};
        struct look *look;

        if (gpu->count_wrong) {
                gpu_must(gpu, count_wrong, &batch, verifier->on_device, stream);
                return;
        }
        look = malloc(sizeof(*look));
        if (!look)
                fail("out of memory");
        *look = (struct look){.verifier = verifier, .batch = batch};
        copy_back(verifier, landing, stream);
        gpu_must(gpu, cudaLaunchHostFunc, stream, count_wrong, look);
}

uint64_t verifier_wrong(struct verifier *verifier, cuda_stream stream) {
        const struct gpu *gpu = verifier->gpu;
        uint64_t wrong;

        gpu_must(gpu, cudaStreamSynchronize, stream);
        if (!gpu->count_wrong)
                return verifier->on_host;
        gpu_must(gpu, cudaMemcpyAsync, &wrong, verifier->on_device, sizeof(wrong), GPU_MEMCPY_DEVICE_TO_HOST,
                 stream);
        gpu_must(gpu, cudaStreamSynchronize, stream);
        return wrong;
}
