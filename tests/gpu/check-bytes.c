/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Whether the bytes on the device are those of the batch, when slots are filled anew as fast as can be: with
 * two slots, the workers write the one while the GPU still reads the other, and each is released as soon as
 * its copy is queued. A lease that ended too early would be a wrong word here.
 *
 * The loop is that of check-overlap.c, with the verification as the work; with --busy there is other work
 * before it, so that copies and leases pile up behind a GPU that is late.
 *
 * The wrong client copies by itself, past libpinfeed, from the slot's memory, and releases before the copy
 * has run. It must be seen, or the verification is worth nothing. */

#include "base/clock.h"
#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"
#include "tests/gpu/verifier.h"

#include <string.h>

enum {
        PLACES = 2,
        EPOCH_BATCHES = 8, /* more than there are slots, so that nothing lies ready a second time */
        BUSY_US = 2000,
        WRONG_DELAY_US = 30000, /* for a worker to fill the slot again */
};

struct bytes {
        const struct measure *measure;
        struct gpu gpu;
        struct feed feed;
        struct verifier verifier;
        struct landing places[PLACES];
        cuda_event copied[PLACES], computed[PLACES];
        cuda_stream copies, work;
};

static void prepare(struct bytes *b, const struct measure *measure) {
        struct feed_shape shape = {.bytes = measure->bytes,
                                   .slots = measure->slots,
                                   .batches = measure->slots + EPOCH_BATCHES,
                                   .held = (uint32_t)measure->slots};

        b->measure = measure;
        gpu_open(&b->gpu, measure);
        feed_open(&b->feed, measure, &shape);
        verifier_init(&b->verifier, &b->gpu, &b->feed);
        b->copies = gpu_stream(&b->gpu);
        b->work = gpu_stream(&b->gpu);
        for (unsigned i = 0; i < PLACES; i++) {
                b->places[i] = landing_new(&b->gpu, &b->feed);
                b->copied[i] = gpu_event(&b->gpu);
                b->computed[i] = gpu_event(&b->gpu);
        }
}

static void finish(struct bytes *b) {
        struct pinfeed_info info = feed_info(&b->feed);

        say("wrong_words", "%llu", (unsigned long long)verifier_wrong(&b->verifier, b->work));
        say("verified_by", "%s", b->gpu.count_wrong ? "kernel" : "host");
        say("map", "%s", info.map);
        say("copied_by_cpu", "%llu", (unsigned long long)info.copies);
        pinfeed_close(b->feed.job);
        gpu_expect_clean(&b->gpu);
}

static void one_round(struct bytes *b, unsigned place) {
        uint32_t epoch = (uint32_t)b->feed.epoch;
        uint64_t row = b->feed.row;
        struct pinfeed_batch *batch = feed_next(&b->feed);

        gpu_must(&b->gpu, cudaStreamWaitEvent, b->copies, b->computed[place], 0);
        feed_copy(&b->feed, batch, &b->places[place], b->copies);
        feed_release(&b->feed, batch);
        gpu_must(&b->gpu, cudaEventRecord, b->copied[place], b->copies);

        gpu_must(&b->gpu, cudaStreamWaitEvent, b->work, b->copied[place], 0);
        if (b->measure->busy)
                gpu_work(&b->gpu, b->work);
        verifier_queue(&b->verifier, &b->places[place], epoch, row, b->work);
        gpu_must(&b->gpu, cudaEventRecord, b->computed[place], b->work);
}

void check_bytes(const struct measure *measure) {
        struct bytes b = {0};
        uint64_t start;
        double took;

        prepare(&b, measure);
        if (measure->busy)
                gpu_tune(&b.gpu, b.work, BUSY_US);
        start = clock_ns();
        for (uint64_t i = 0; i < measure->rounds; i++)
                one_round(&b, (unsigned)(i % PLACES));
        gpu_must(&b.gpu, cudaStreamSynchronize, b.work);
        took = seconds_since(start);
        say("rounds", "%llu", (unsigned long long)measure->rounds);
        say("gb_per_s", "%.2f", (double)(measure->bytes * measure->rounds) / took / 1e9);
        finish(&b);
}

static void one_wrong_round(struct bytes *b) {
        const size_t bytes[] = {
                [FEED_INDEX] = FEED_ROWS * sizeof(int64_t), [FEED_DATA] = FEED_ROWS * b->feed.row_bytes};
        uint32_t epoch = (uint32_t)b->feed.epoch;
        uint64_t row = b->feed.row;
        struct pinfeed_batch *batch = feed_next(&b->feed);

        gpu_delay(&b->gpu, b->work, WRONG_DELAY_US);
        for (unsigned i = 0; i < FEED_FIELDS; i++)
                gpu_must(&b->gpu, cudaMemcpyAsync, b->places[0].fields[i],
                         pinfeed_batch_data(batch, 0, i, NULL), bytes[i], CUDA_MEMCPY_HOST_TO_DEVICE,
                         b->work);
        verifier_queue(&b->verifier, &b->places[0], epoch, row, b->work);
        feed_release(&b->feed, batch);
}

void check_wrong_client(const struct measure *measure) {
        struct bytes b = {0};

        prepare(&b, measure);
        for (uint64_t i = 0; i < measure->rounds; i++)
                one_wrong_round(&b);
        say("rounds", "%llu", (unsigned long long)measure->rounds);
        finish(&b);
}
