#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What runs on the GPU itself. kernels.cu is built by nvcc into a library of its own, where there is an nvcc;
 * `measure` opens it and does without where it is not given. Both return what cudaGetLastError says. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A batch of the ramp, as it should lie on the device: `index` one number a row, `data` whole words. */
struct kernel_batch {
        const int64_t *index;
        const uint64_t *data;
        uint64_t row_words;
        uint64_t first_row;
        uint32_t rows;
        uint32_t epoch;
};

/* Adds the number of words that are not what they should be to *wrong, device memory. */
int kernel_count_wrong(const struct kernel_batch *batch, unsigned long long *wrong, void *stream);

/* Arithmetic in registers on all multiprocessors, for a time that grows with `rounds`. `sink` is device
 * memory of a float, so that none of it can be left out. */
int kernel_compute(uint64_t rounds, float *sink, void *stream);

#ifdef __cplusplus
}
#endif
