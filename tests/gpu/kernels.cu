/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of the checks. Correctness is judged by the rule that the host's tests use, word by word; the
 * one that computes touches no memory, so that what it takes from a copy beside it is time of the GPU's
 * scheduler and not bandwidth. */

#include "tests/gpu/kernels.h"

#include "tests/support/ramp.h"

#include <cuda_runtime.h>

enum {
        THREADS = 256,
        BLOCKS_MAX = 4096,
        WAVES = 4, /* of blocks, so that none of the multiprocessors is idle before the end */
};

static __global__ void count_wrong(struct kernel_batch batch, unsigned long long *wrong) {
        uint64_t words = batch.rows * batch.row_words;
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;
        unsigned long long found = 0;

        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
                uint64_t row = i / batch.row_words, sample = batch.first_row + row;

                if (batch.data[i] != ramp_check_word(sample, batch.epoch, i % batch.row_words))
                        found++;
                if (i % batch.row_words == 0 && (uint64_t)batch.index[row] != sample)
                        found++;
        }
        if (found)
                atomicAdd(wrong, found);
}

static __global__ void compute(uint64_t rounds, float *sink) {
        float x = threadIdx.x, y = blockIdx.x;

        for (uint64_t i = 0; i < rounds; i++) {
                x = fmaf(x, 0.999f, y);
                y = fmaf(y, 0.998f, x);
        }
        if (x == 12345.678f && y == 8.7654321f)
                *sink = x;
}

int kernel_count_wrong(const struct kernel_batch *batch, unsigned long long *wrong, void *stream) {
        uint64_t wanted = (batch->rows * batch->row_words + THREADS - 1) / THREADS;
        unsigned blocks = (unsigned)(wanted < BLOCKS_MAX ? wanted : BLOCKS_MAX);

        count_wrong<<<blocks, THREADS, 0, (cudaStream_t)stream>>>(*batch, wrong);
        return cudaGetLastError();
}

int kernel_compute(uint64_t rounds, float *sink, void *stream) {
        int device = 0, processors = 0;

        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        compute<<<processors * WAVES, THREADS, 0, (cudaStream_t)stream>>>(rounds, sink);
        return cudaGetLastError();
}
