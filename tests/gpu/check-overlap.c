/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Whether copies go on beside a kernel. Three times the same number of batches: copied, computed, and both as
 * a training loop does it, with two places on the device, each batch's work waiting for its copy and each
 * copy for the work on what was in its place before.
 *
 * The overlap is the time that was saved, (copied + computed - both), as a share of what could be saved at
 * most, the shorter of the two: 0 is one after the other, 1 is that the shorter one costs nothing. */

#include "base/clock.h"
#include "tests/gpu/feed.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/measure.h"

enum {
        PLACES = 2,
};

struct overlap {
        const struct measure *measure;
        struct gpu gpu;
        struct feed feed;
        struct landing places[PLACES];
        cuda_event copied[PLACES], computed[PLACES];
        cuda_stream copies, work;
};

static void copy(struct overlap *o, unsigned place, bool rewind) {
        struct pinfeed_batch *batch;

        if (rewind)
                feed_rewind(&o->feed);
        batch = feed_next(&o->feed);
        feed_copy(&o->feed, batch, &o->places[place], o->copies);
        feed_release(&o->feed, batch);
}

/* Seconds of all rounds. */
static double run(struct overlap *o, bool copies, bool work) {
        uint64_t start = clock_ns();

        for (uint64_t i = 0; i < o->measure->rounds; i++) {
                unsigned place = (unsigned)(i % PLACES);

                if (copies) {
                        gpu_must(&o->gpu, cudaStreamWaitEvent, o->copies, o->computed[place], 0);
                        copy(o, place, i % o->measure->slots == 0);
                        gpu_must(&o->gpu, cudaEventRecord, o->copied[place], o->copies);
                        gpu_must(&o->gpu, cudaStreamWaitEvent, o->work, o->copied[place], 0);
                }
                if (work) {
                        gpu_work(&o->gpu, o->work);
                        gpu_must(&o->gpu, cudaEventRecord, o->computed[place], o->work);
                }
        }
        gpu_must(&o->gpu, cudaStreamSynchronize, o->copies);
        gpu_must(&o->gpu, cudaStreamSynchronize, o->work);
        return seconds_since(start);
}

static void prepare(struct overlap *o) {
        struct feed_shape shape = {.bytes = o->measure->bytes,
                                   .slots = o->measure->slots,
                                   .batches = o->measure->slots,
                                   .held = (uint32_t)o->measure->slots / 2};

        gpu_open(&o->gpu, o->measure);
        feed_open(&o->feed, o->measure, &shape);
        o->copies = gpu_stream(&o->gpu);
        o->work = gpu_stream(&o->gpu);
        for (unsigned i = 0; i < PLACES; i++) {
                o->places[i] = landing_new(&o->gpu, &o->feed);
                o->copied[i] = gpu_event(&o->gpu);
                o->computed[i] = gpu_event(&o->gpu);
        }
}

void check_overlap(const struct measure *measure) {
        struct overlap o = {.measure = measure};
        double copied, computed, both, shorter;

        prepare(&o);
        run(&o, true, false); /* fills the slots, and page-locks them */
        copied = run(&o, true, false);
        gpu_tune(&o.gpu, o.work, (unsigned)(copied * 1e6 / (double)measure->rounds));
        computed = run(&o, false, true);
        both = run(&o, true, true);
        shorter = copied < computed ? copied : computed;

        say("copied_ms", "%.1f", copied * 1e3);
        say("computed_ms", "%.1f", computed * 1e3);
        say("both_ms", "%.1f", both * 1e3);
        say("overlap", "%.3f", (copied + computed - both) / shorter);
        say("work", "%s", o.gpu.compute ? "kernel" : "delay");
        pinfeed_close(o.feed.job);
        gpu_expect_clean(&o.gpu);
}
