/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* All calls go through one table that is filled by name from the library which libpinfeed has found, so that
 * the program and the library under test talk to the same runtime, and so that this builds and starts where
 * there is none.
 *
 * A stream can be kept busy without any kernel: a function of the host that the stream runs in its turn and
 * waits for. It is how the checks delay a copy on every runtime, the fake one too. */

#include "tests/gpu/gpu.h"

#include "base/clock.h"
#include "client/pinfeed.h"
#include "tests/gpu/measure.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
        TUNE_FIRST_ROUNDS = 1 << 12,
        TUNE_ENOUGH_US = 100000,
};

static void *find(const struct gpu *gpu, const char *name) {
        void *function = dlsym(gpu->library, name);

        if (!function)
                lack("the CUDA runtime %s has no %s", gpu->path, name);
        return function;
}

static void find_kernels(struct gpu *gpu, const char *path) {
        void *library = path ? dlopen(path, RTLD_NOW) : NULL;

        if (!path)
                return;
        if (!library)
                fail("the kernels cannot be opened: %s", dlerror());
        *(void **)&gpu->count_wrong = dlsym(library, "kernel_count_wrong");
        *(void **)&gpu->compute = dlsym(library, "kernel_compute");
        if (!gpu->count_wrong || !gpu->compute)
                fail("%s has not the kernels that it should have", path);
}

#define FIND(name, parameters) *(void **)&gpu->name = find(gpu, #name);

void gpu_find(struct gpu *gpu, const struct measure *measure) {
        struct pinfeed_cuda cuda;

        *gpu = (struct gpu){.device = measure->device};
        if (pinfeed_cuda_probe(&cuda, NULL) < 0)
                lack("%s", cuda.text);
        if ((int)cuda.devices <= measure->device)
                lack("there is no GPU %d, but %u", measure->device, cuda.devices);
        snprintf(gpu->path, sizeof(gpu->path), "%s", cuda.path);
        gpu->library = dlopen(gpu->path, RTLD_NOW | RTLD_NOLOAD);
        if (!gpu->library)
                fail("libpinfeed has found %s and not loaded it: %s", gpu->path, dlerror());
        CUDA_CALLS(FIND)
        CUDA_WORDS(FIND)
        GPU_CALLS(FIND)
        gpu->simulated = dlsym(gpu->library, "fake_cuda_report") != NULL;
        find_kernels(gpu, measure->kernels);
}

void gpu_open(struct gpu *gpu, const struct measure *measure) {
        gpu_find(gpu, measure);
        gpu_must(gpu, cudaSetDevice, gpu->device);
        gpu->sink = gpu_memory(gpu, sizeof(float));
}

const char *gpu_name(const struct gpu *gpu, cuda_error error) {
        gpu->cudaGetLastError();
        return gpu->cudaGetErrorName(error);
}

void gpu_expect(const struct gpu *gpu, const char *call, cuda_error error) {
        if (error)
                fail("%s failed: %s (%u), %s", call, gpu->cudaGetErrorName(error), error,
                     gpu->cudaGetErrorString(error));
}

void gpu_expect_clean(const struct gpu *gpu) {
        gpu_expect(gpu, "some earlier call", gpu->cudaGetLastError());
}

void *gpu_memory(const struct gpu *gpu, size_t bytes) {
        void *start;

        gpu_must(gpu, cudaMalloc, &start, bytes);
        return start;
}

void *gpu_host_memory(const struct gpu *gpu, size_t bytes) {
        void *start;

        gpu_must(gpu, cudaHostAlloc, &start, bytes, CUDA_HOST_ALLOC_PORTABLE);
        memset(start, 0, bytes);
        return start;
}

cuda_stream gpu_stream(const struct gpu *gpu) {
        cuda_stream stream;

        gpu_must(gpu, cudaStreamCreateWithFlags, &stream, GPU_STREAM_NON_BLOCKING);
        return stream;
}

cuda_event gpu_event(const struct gpu *gpu) {
        cuda_event event;

        gpu_must(gpu, cudaEventCreateWithFlags, &event, CUDA_EVENT_DISABLE_TIMING);
        return event;
}

/* Called by the runtime, where no call of the runtime's is allowed. */
static void sleep_in_stream(void *context) {
        usleep((useconds_t)(uintptr_t)context);
}

void gpu_delay(const struct gpu *gpu, cuda_stream stream, unsigned us) {
        gpu_must(gpu, cudaLaunchHostFunc, stream, sleep_in_stream, (void *)(uintptr_t)us);
}

static double time_rounds(const struct gpu *gpu, cuda_stream stream, uint64_t rounds) {
        uint64_t start = clock_ns();

        gpu_must(gpu, compute, rounds, gpu->sink, stream);
        gpu_must(gpu, cudaStreamSynchronize, stream);
        return seconds_since(start) * 1e6;
}

/* Ever more rounds, for the first launch loads the kernel, and a GPU that was idle takes its time to raise
 * its clock. */
void gpu_tune(struct gpu *gpu, cuda_stream stream, unsigned us) {
        uint64_t rounds = TUNE_FIRST_ROUNDS;
        double took = 0;

        gpu->compute_us = us;
        if (!gpu->compute)
                return;
        while (took < TUNE_ENOUGH_US)
                took = time_rounds(gpu, stream, rounds *= 2);
        gpu->compute_rounds = (uint64_t)(us * (double)rounds / took);
}

void gpu_work(const struct gpu *gpu, cuda_stream stream) {
        if (gpu->compute)
                gpu_must(gpu, compute, gpu->compute_rounds + 1, gpu->sink, stream);
        else
                gpu_delay(gpu, stream, gpu->compute_us);
}
