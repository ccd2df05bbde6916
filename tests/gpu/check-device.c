/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What is there: nothing is allocated, and no device is made current. */

#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

void check_device(const struct measure *measure) {
        int runtime = 0, driver = 0, devices = 0, read_only = 0;
        struct gpu gpu;

        gpu_find(&gpu, measure);
        gpu_must(&gpu, cudaRuntimeGetVersion, &runtime);
        gpu_must(&gpu, cudaDriverGetVersion, &driver);
        gpu_must(&gpu, cudaGetDeviceCount, &devices);
        gpu_must(&gpu, cudaDeviceGetAttribute, &read_only, CUDA_ATTRIBUTE_REGISTER_READ_ONLY, gpu.device);
        say("path", "%s", gpu.path);
        say("simulated", "%d", gpu.simulated);
        say("runtime", "%d.%d", runtime / 1000, runtime % 1000 / 10);
        say("driver", "%d.%d", driver / 1000, driver % 1000 / 10);
        say("devices", "%d", devices);
        say("attribute_113", "%d", read_only);
}
