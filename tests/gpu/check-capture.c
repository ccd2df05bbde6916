/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A capture into a graph forbids most calls of the runtime to the whole process, and is lost when somebody
 * makes one. So a stream is captured while a copy is queued on another one and its lease is watched: the
 * capture must come to its end, and a copy into it must be refused, for the graph would repeat that when
 * other rows lie in the slot. */

#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

#include <errno.h>
#include <unistd.h>

enum {
        DELAY_US = 60000, /* for which the copy is queued */
        CAPTURE_US = 20000,
};

/* Whether the copy was refused. */
static bool copy_into_capture(const struct gpu *gpu, struct feed *feed, struct pinfeed_batch *batch,
                              const struct landing *landing) {
        cuda_stream captured = gpu_stream(gpu);
        struct CUgraph_st *graph;
        int64_t r;

        gpu_must(gpu, cudaStreamBeginCapture, captured, GPU_CAPTURE_GLOBAL);
        usleep(CAPTURE_US);
        r = pinfeed_batch_copy_all_async(batch, landing->fields, captured);
        if (r >= 0)
                fail("a copy into a capture was taken");
        say("refused_with", "%s", pinfeed_error(feed->job));
        gpu_must(gpu, cudaStreamEndCapture, captured, &graph);
        return r == -EBUSY;
}

void check_capture(const struct measure *measure) {
        struct feed_shape shape = {
                .bytes = measure->bytes, .slots = measure->slots, .batches = measure->slots * 2, .held = 2};
        struct pinfeed_batch *first, *second;
        struct landing landing;
        cuda_stream stream;
        struct feed feed;
        struct gpu gpu;

        gpu_open(&gpu, measure);
        feed_open(&feed, measure, &shape);
        landing = landing_new(&gpu, &feed);
        stream = gpu_stream(&gpu);
        first = feed_next(&feed);
        second = feed_next(&feed);
        gpu_delay(&gpu, stream, DELAY_US);
        feed_copy(&feed, first, &landing, stream);
        feed_release(&feed, first);

        say("busy", "%d", copy_into_capture(&gpu, &feed, second, &landing));
        feed_release(&feed, second);
        gpu_must(&gpu, cudaStreamSynchronize, stream);
        pinfeed_close(feed.job);
        gpu_expect_clean(&gpu);
}
