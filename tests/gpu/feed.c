/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The pipeline comes with the job, by a definition, and the daemon is a private one, as for a user who starts
 * nothing himself. Rows are not shuffled: row n of an epoch is sample n, and its bytes follow from n and the
 * epoch, so a batch that is late, torn, or of the epoch before is wrong in every word.
 *
 * What is measured without the workers' time reads one epoch again and again: as many batches as there are
 * slots, and back to row 0 before the next epoch begins, so that each lies ready all the time. */

#include "tests/gpu/feed.h"

#include "tests/gpu/measure.h"

#include <stdio.h>

enum {
        FEED_TIMEOUT_MS = 60000,
        FEED_LINGER_S = 20,
};

static void define(char *text, size_t size, const struct feed_shape *shape) {
        snprintf(text, size,
                 "pipelines: {gpu: {source: {type: synthetic, mode: ramp, samples: %llu, bytes: %llu}, "
                 "batch_size: %d, slots: %llu, lookahead: %d}}",
                 (unsigned long long)(shape->batches * FEED_ROWS),
                 (unsigned long long)(shape->bytes / FEED_ROWS), FEED_ROWS, (unsigned long long)shape->slots,
                 shape->batches > shape->slots);
}

void feed_open(struct feed *feed, const struct measure *measure, const struct feed_shape *shape) {
        char definition[512], device[32];
        struct pinfeed_attach attach = {.size = sizeof(attach),
                                        .name = "tests/gpu",
                                        .runtime_dir = measure->runtime_dir,
                                        .definition = definition,
                                        .daemon = measure->daemon,
                                        .linger_s = FEED_LINGER_S,
                                        .max_held_batches = shape->held,
                                        .timeout_ms = FEED_TIMEOUT_MS,
                                        .reconnect_s = shape->reconnect_s,
                                        .device = shape->on_host ? NULL : device,
                                        .pin = measure->pin};
        int r;

        define(definition, sizeof(definition), shape);
        snprintf(device, sizeof(device), "cuda:%d", measure->device);
        *feed = (struct feed){.row_bytes = shape->bytes / FEED_ROWS, .batches = shape->batches};
        r = pinfeed_open(&feed->job, &attach);
        if (r < 0)
                fail("pinfeed_open: %d, %s", r, pinfeed_error(feed->job));
}

struct pinfeed_batch *feed_next(struct feed *feed) {
        struct pinfeed_batch *batch = NULL;
        int r = pinfeed_next(feed->job, &batch);

        if (r == 0)
                r = pinfeed_next(feed->job, &batch);
        if (r < 0)
                fail("pinfeed_next: %d, %s", r, pinfeed_error(feed->job));
        if (pinfeed_batch_epoch(batch) != feed->epoch || pinfeed_batch_row(batch) != feed->row ||
            pinfeed_batch_rows(batch) != FEED_ROWS)
                fail("a batch of %u rows from row %llu of epoch %u came, expected %d from row %llu of epoch "
                     "%llu",
                     pinfeed_batch_rows(batch), (unsigned long long)pinfeed_batch_row(batch),
                     pinfeed_batch_epoch(batch), FEED_ROWS, (unsigned long long)feed->row,
                     (unsigned long long)feed->epoch);
        feed->row += FEED_ROWS;
        if (feed->row == feed->batches * FEED_ROWS) {
                feed->row = 0;
                feed->epoch++;
        }
        return batch;
}

void feed_rewind(struct feed *feed) {
        int r = pinfeed_job_seek(feed->job, 0, 0);

        if (r < 0)
                fail("pinfeed_job_seek: %d, %s", r, pinfeed_error(feed->job));
        feed->epoch = feed->row = 0;
}

struct pinfeed_info feed_info(const struct feed *feed) {
        struct pinfeed_info info;

        pinfeed_job_info(feed->job, &info);
        return info;
}

void feed_release(struct feed *feed, struct pinfeed_batch *batch) {
        int r = pinfeed_batch_release(batch);

        if (r < 0)
                fail("pinfeed_batch_release: %d, %s", r, pinfeed_error(feed->job));
}

struct landing landing_new(const struct gpu *gpu, const struct feed *feed) {
        return (struct landing){.fields = {[FEED_INDEX] = gpu_memory(gpu, FEED_ROWS * sizeof(int64_t)),
                                           [FEED_DATA] = gpu_memory(gpu, FEED_ROWS * feed->row_bytes)}};
}

void feed_copy(struct feed *feed, struct pinfeed_batch *batch, const struct landing *landing,
               cuda_stream stream) {
        int64_t bytes = pinfeed_batch_copy_all_async(batch, landing->fields, stream);

        if (bytes != (int64_t)(FEED_ROWS * (feed->row_bytes + sizeof(int64_t))))
                fail("pinfeed_batch_copy_all_async: %lld, %s", (long long)bytes, pinfeed_error(feed->job));
}
