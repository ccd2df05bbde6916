/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What there is of CUDA, for people. A job with a GPU finds out the same in its own way and stops at the
 * first thing that is missing; this goes on and keeps what it was told.
 *
 * Counting devices makes the runtime start the driver, and no context: none of the calls here is about a
 * device. That a process has no driver is no error of the call that asks for its version, which is 0 then. */

#include "base/fault.h"
#include "client/cuda.h"
#include "client/pinfeed.h"

#include <errno.h>
#include <stdio.h>

static void take_text(struct pinfeed_cuda *facts, const struct fault *fault) {
        snprintf(facts->text, sizeof(facts->text), "%s", fault->text);
}

static uint32_t driver_version(const struct cuda *cuda) {
        int version = 0;
        cuda_error error = cuda->cudaDriverGetVersion(&version);

        if (error != CUDA_SUCCESS)
                cuda_fail(cuda, NULL, "cudaDriverGetVersion", error);
        return error == CUDA_SUCCESS && version > 0 ? (uint32_t)version : 0;
}

int pinfeed_cuda_probe(struct pinfeed_cuda *facts, const char *runtime) {
        struct fault fault = {};
        const struct cuda *cuda;
        int count = 0;

        *facts = (struct pinfeed_cuda){};
        cuda = cuda_load(runtime, &fault);
        if (!cuda) {
                take_text(facts, &fault);
                return -ENOENT;
        }
        facts->runtime = (uint32_t)cuda->version;
        snprintf(facts->path, sizeof(facts->path), "%s", cuda->path);
        facts->driver = driver_version(cuda);
        facts->error = cuda->cudaGetDeviceCount(&count);
        if (facts->error != CUDA_SUCCESS) {
                cuda_fail(cuda, &fault, "cudaGetDeviceCount", facts->error);
                take_text(facts, &fault);
                return -ENODEV;
        }
        facts->devices = (uint32_t)count;
        return count > 0 ? 0 : -ENODEV;
}
