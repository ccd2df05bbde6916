#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The GPU as the checks see it: the runtime that libpinfeed uses, some calls more, and the kernels. */

#include "client/cuda.h"
#include "tests/gpu/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUgraph_st;
struct measure;

enum {
        GPU_MEMCPY_DEVICE_TO_HOST = 2,
        GPU_STREAM_NON_BLOCKING = 1, /* does not wait for the legacy default stream */
        GPU_CAPTURE_GLOBAL = 0,
};

/* What a user of a GPU calls and libpinfeed does not. */
#define GPU_CALLS(C)                                                                                         \
        C(cudaMalloc, (void **start, size_t bytes))                                                          \
        C(cudaFree, (void *start))                                                                           \
        C(cudaStreamCreateWithFlags, (cuda_stream * stream, unsigned flags))                                 \
        C(cudaStreamSynchronize, (cuda_stream stream))                                                       \
        C(cudaStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned flags))                       \
        C(cudaStreamBeginCapture, (cuda_stream stream, int mode))                                            \
        C(cudaStreamEndCapture, (cuda_stream stream, struct CUgraph_st * *graph))                            \
        C(cudaLaunchHostFunc, (cuda_stream stream, void (*function)(void *context), void *context))

#define GPU_DECLARE_CALL(name, parameters) cuda_error(*name) parameters;
#define GPU_DECLARE_WORD(name, parameters) const char *(*name)parameters;

struct gpu {
        CUDA_CALLS(GPU_DECLARE_CALL)
        CUDA_WORDS(GPU_DECLARE_WORD)
        GPU_CALLS(GPU_DECLARE_CALL)
        void *library;
        char path[256];
        __typeof__(kernel_count_wrong) *count_wrong; /* NULL: no kernels are given; then so is `compute` */
        __typeof__(kernel_compute) *compute;
        uint64_t compute_rounds; /* of one piece of work, see gpu_tune */
        unsigned compute_us;
        float *sink;
        int device;
        bool simulated;
};

#undef GPU_DECLARE_CALL
#undef GPU_DECLARE_WORD

/* Finds the runtime and the kernels; no device is touched. Where there is none the program ends. */
void gpu_find(struct gpu *gpu, const struct measure *measure);

/* The same, and the device that was asked for is this thread's from now on. */
void gpu_open(struct gpu *gpu, const struct measure *measure);

/* gpu_must(gpu, CALL, ARGUMENTS...): ends the program with the call and its error if it fails. */
#define gpu_must(gpu, call, ...) gpu_expect(gpu, #call, (gpu)->call(__VA_ARGS__))
void gpu_expect(const struct gpu *gpu, const char *call, cuda_error error);

/* "cudaErrorNotSupported"; taken out of the runtime's memory. */
const char *gpu_name(const struct gpu *gpu, cuda_error error);

/* Ends the program if an error was left behind by a call that nobody has looked at. */
void gpu_expect_clean(const struct gpu *gpu);

void *gpu_memory(const struct gpu *gpu, size_t bytes);
void *gpu_host_memory(const struct gpu *gpu, size_t bytes); /* page-locked */
cuda_stream gpu_stream(const struct gpu *gpu);
cuda_event gpu_event(const struct gpu *gpu);

/* Keeps the stream for `us`, whatever the machine. */
void gpu_delay(const struct gpu *gpu, cuda_stream stream, unsigned us);

/* Work for the stream that takes about `us` from here on: arithmetic by a kernel, or a delay without one. */
void gpu_tune(struct gpu *gpu, cuda_stream stream, unsigned us);
void gpu_work(const struct gpu *gpu, cuda_stream stream);
