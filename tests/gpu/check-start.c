/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* When the first batch of a large ring is on the device, and when its last slot is page-locked: slots are
 * registered one by one as they come, so the first must not wait for the last. */

#include "base/clock.h"
#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

static void copy_next(struct feed *feed, const struct landing *landing, cuda_stream stream) {
        struct pinfeed_batch *batch = feed_next(feed);

        feed_copy(feed, batch, landing, stream);
        feed_release(feed, batch);
}

void check_start(const struct measure *measure) {
        struct feed_shape shape = {.bytes = measure->bytes,
                                   .slots = measure->slots,
                                   .batches = measure->slots,
                                   .held = (uint32_t)measure->slots / 2};
        struct landing landing;
        struct pinfeed_info info;
        cuda_stream stream;
        struct feed feed;
        struct gpu gpu;
        uint64_t start;

        gpu_open(&gpu, measure); /* its context is the user's, and takes its own time */
        stream = gpu_stream(&gpu);
        start = clock_ns();
        feed_open(&feed, measure, &shape);
        say("open_s", "%.3f", seconds_since(start));
        landing = landing_new(&gpu, &feed);
        copy_next(&feed, &landing, stream);
        gpu_must(&gpu, cudaStreamSynchronize, stream);
        say("first_batch_s", "%.3f", seconds_since(start));
        say("registered_then", "%u", feed_info(&feed).slots_registered);
        for (uint64_t i = 1; i < measure->slots; i++)
                copy_next(&feed, &landing, stream);
        gpu_must(&gpu, cudaStreamSynchronize, stream);
        info = feed_info(&feed);
        say("last_slot_s", "%.3f", seconds_since(start));
        say("registered", "%u", info.slots_registered);
        say("slots", "%u", info.slots);
        say("map", "%s", info.map);
        pinfeed_close(feed.job);
        gpu_expect_clean(&gpu);
}
