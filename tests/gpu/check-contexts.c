/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* On which GPUs this process has a context, asked of the driver after each step: a job without a device, a
 * job for the last GPU that has no batch yet, the same with batches copied. A context is some hundred MiB of
 * a GPU that may be another job's, so there must be one on the job's own only.
 *
 * The driver's functions make no context themselves. With the fake runtime there is no driver; it tells. */

#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

#include <dlfcn.h>
#include <stdio.h>

enum {
        BATCHES = 4,
        DEVICES_MAX = 64,
};

struct contexts {
        int (*of_driver)(int device, unsigned *flags, int *active);
        const char *(*of_fake)(int device);
        int devices;
};

static void contexts_find(struct contexts *contexts, const struct gpu *gpu) {
        int (*start)(unsigned flags);
        void *driver;

        gpu_must(gpu, cudaGetDeviceCount, &contexts->devices);
        if (contexts->devices > DEVICES_MAX)
                contexts->devices = DEVICES_MAX;
        *(void **)&contexts->of_fake = dlsym(gpu->library, "fake_cuda_context");
        if (contexts->of_fake)
                return;
        driver = dlopen("libcuda.so.1", RTLD_NOW);
        *(void **)&start = driver ? dlsym(driver, "cuInit") : NULL;
        *(void **)&contexts->of_driver = driver ? dlsym(driver, "cuDevicePrimaryCtxGetState") : NULL;
        if (!start || start(0) || !contexts->of_driver)
                lack("the driver's library libcuda.so.1 does not tell of contexts");
}

static bool has_context(const struct contexts *contexts, int device) {
        unsigned flags;
        int active = 0;

        if (contexts->of_fake)
                return contexts->of_fake(device) != NULL;
        if (contexts->of_driver(device, &flags, &active))
                fail("the driver did not tell of the contexts on GPU %d", device);
        return active;
}

/* "none", or "0 2". */
static void say_contexts(const struct contexts *contexts, const char *name) {
        char text[DEVICES_MAX * 4] = "";
        int length = 0;

        for (int i = 0; i < contexts->devices; i++)
                if (has_context(contexts, i))
                        length += snprintf(text + length, sizeof(text) - (size_t)length, "%s%d",
                                           length ? " " : "", i);
        say(name, "%s", length ? text : "none");
}

/* Batches are taken and given back; with a GPU they are copied to it before. */
static void read_some(const struct measure *measure, const struct feed_shape *shape,
                      const struct contexts *contexts) {
        struct landing landing;
        struct feed feed;
        struct gpu gpu;

        feed_open(&feed, measure, shape);
        if (!shape->on_host) {
                say_contexts(contexts, "opened");
                gpu_open(&gpu, measure);
                landing = landing_new(&gpu, &feed);
        }
        for (int i = 0; i < BATCHES; i++) {
                struct pinfeed_batch *batch = feed_next(&feed);

                if (!shape->on_host)
                        feed_copy(&feed, batch, &landing, NULL);
                feed_release(&feed, batch);
        }
        say_contexts(contexts, shape->on_host ? "on_host" : "copied");
        pinfeed_close(feed.job);
}

void check_contexts(const struct measure *measure) {
        struct feed_shape shape = {
                .bytes = measure->bytes, .slots = measure->slots, .batches = BATCHES * 2, .held = 2};
        struct contexts contexts = {0};
        struct measure last = *measure;
        struct gpu gpu;

        gpu_find(&gpu, measure);
        contexts_find(&contexts, &gpu);
        last.device = contexts.devices - 1;
        say("devices", "%d", contexts.devices);
        say("device", "%d", last.device);
        shape.on_host = true;
        read_some(&last, &shape, &contexts);
        shape.on_host = false;
        read_some(&last, &shape, &contexts);
}
