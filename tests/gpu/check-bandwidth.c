/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Batches to the GPU against a bare copy of as many bytes from as much page-locked memory, by turns. The
 * batches lie ready, so that what is measured is the way from a slot to the device and not the workers: the
 * job reads the same slots again and again.
 *
 * The bare copy is queued as a whole and waited for once, which nothing that hands out batches can do; it is
 * what the hardware gives. */

#include "base/clock.h"
#include "tests/bench/samples.h"
#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

#include <stdlib.h>
#include <time.h>

enum {
        HELD_MOST = 64,
};

struct bandwidth {
        const struct measure *measure;
        struct gpu gpu;
        struct feed feed;
        struct landing landing;
        cuda_stream stream;
        uint8_t *bare;      /* as large as the ring */
        uint64_t caller_ns; /* processor time of this thread, over all batches so far */
        uint64_t batches;
};

static uint64_t thread_ns(void) {
        struct timespec used;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static void copy_batches(struct bandwidth *b) {
        uint64_t used = thread_ns();

        feed_rewind(&b->feed);
        for (uint64_t i = 0; i < b->measure->slots; i++) {
                struct pinfeed_batch *batch = feed_next(&b->feed);

                feed_copy(&b->feed, batch, &b->landing, b->stream);
                feed_release(&b->feed, batch);
        }
        b->caller_ns += thread_ns() - used;
        b->batches += b->measure->slots;
}

static void copy_bare(struct bandwidth *b) {
        for (uint64_t i = 0; i < b->measure->slots; i++)
                gpu_must(&b->gpu, cudaMemcpyAsync, b->landing.fields[FEED_DATA],
                         b->bare + i * b->measure->bytes, b->measure->bytes, CUDA_MEMCPY_HOST_TO_DEVICE,
                         b->stream);
}

/* Nanoseconds of `passes` over the ring. */
static uint64_t time_passes(struct bandwidth *b, void (*pass)(struct bandwidth *b), unsigned passes) {
        uint64_t start = clock_ns();

        for (unsigned i = 0; i < passes; i++)
                pass(b);
        gpu_must(&b->gpu, cudaStreamSynchronize, b->stream);
        return clock_ns() - start;
}

/* Of the median. */
static double gigabytes_per_second(const struct bandwidth *b, uint64_t *ns, unsigned passes) {
        double bytes = (double)(b->measure->bytes * b->measure->slots) * passes;

        samples_sort(ns, b->measure->rounds);
        return bytes / (double)ns[b->measure->rounds / 2];
}

static void compare(struct bandwidth *b) {
        /* A run is to be long against one round trip to the daemon, which each pass begins with. */
        unsigned passes = (unsigned)(b->measure->bytes >= 8 << 20 ? 2 : 8);
        uint64_t *ours = calloc(b->measure->rounds, sizeof(uint64_t));
        uint64_t *bare = calloc(b->measure->rounds, sizeof(uint64_t));
        double rate, bare_rate;

        if (!ours || !bare)
                fail("out of memory");
        for (uint64_t i = 0; i < b->measure->rounds; i++) {
                bare[i] = time_passes(b, copy_bare, passes);
                ours[i] = time_passes(b, copy_batches, passes);
        }
        rate = gigabytes_per_second(b, ours, passes);
        bare_rate = gigabytes_per_second(b, bare, passes);
        say("gb_per_s", "%.2f", rate);
        say("bare_gb_per_s", "%.2f", bare_rate);
        say("ratio", "%.4f", rate / bare_rate);
        free(ours);
        free(bare);
}

void check_bandwidth(const struct measure *measure) {
        struct bandwidth b = {.measure = measure};
        uint64_t held = measure->slots / 2 < HELD_MOST ? measure->slots / 2 : HELD_MOST;
        struct feed_shape shape = {.bytes = measure->bytes,
                                   .slots = measure->slots,
                                   .batches = measure->slots,
                                   .held = (uint32_t)held};
        struct pinfeed_info info;

        gpu_open(&b.gpu, measure);
        feed_open(&b.feed, measure, &shape);
        b.landing = landing_new(&b.gpu, &b.feed);
        b.stream = gpu_stream(&b.gpu);
        b.bare = gpu_host_memory(&b.gpu, measure->bytes * measure->slots);

        copy_batches(&b); /* fills the slots, and page-locks them */
        time_passes(&b, copy_bare, 1);
        b.caller_ns = b.batches = 0;
        compare(&b);

        info = feed_info(&b.feed);
        say("caller_us_per_batch", "%.1f", (double)b.caller_ns / 1e3 / (double)b.batches);
        say("map", "%s", info.map);
        say("copied_by_cpu", "%llu", (unsigned long long)info.copies);
        pinfeed_close(b.feed.job);
        gpu_expect_clean(&b.gpu);
}
