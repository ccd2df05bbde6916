#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job that copies its batches to a GPU, which is the fake one (tests/support/fake-cudart.h), and believes
 * nothing: each byte that has arrived is checked, GPU_PLACES batches later, so that copies have time to be
 * late. */

#include "proto/position.h"
#include "tests/support/fake-cudart.h"
#include "tests/support/harness.h"
#include "tests/support/ramp.h"
#include "tests/system/reader.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
        GPU_PLACES = 4, /* in device memory, used in turn */
        GPU_SOON_MS = 10000,
        GPU_INDEX = 0, /* the ramp's fields */
        GPU_DATA = 1,
        GPU_FIELDS = 2,
};

#define gpu_must(call)                                                                                       \
        do {                                                                                                 \
                cuda_error gpu_error_ = (call);                                                              \
                reader_must(gpu_error_ == CUDA_SUCCESS, #call ": %s", cudaGetErrorName(gpu_error_));         \
        } while (0)

/* A batch that is on its way to the device or has arrived. */
struct gpu_place {
        void *fields[GPU_FIELDS]; /* device memory */
        cuda_event arrived;
        struct position position;
        bool used;
};

struct gpu {
        struct pinfeed_job *job;
        struct pinfeed_info info;
        struct pinfeed_field fields[GPU_FIELDS];
        struct position_plan plan;
        struct position position; /* of the next batch */
        bool epoch_ended;
        cuda_stream stream;
        struct gpu_place places[GPU_PLACES];
        uint64_t rounds;
};

/* ---- the pipeline ---- */

struct gpu_shape {
        unsigned samples, batch_size, bytes, slots;
};

static inline struct harness *gpu_start(struct gpu_shape shape) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %u, bytes: %u}\n"
                             "    batch_size: %u\n"
                             "    slots: %u\n"
                             "    workers: 2\n",
                             shape.samples, shape.bytes, shape.batch_size, shape.slots);
        harness_start(h);
        return h;
}

/* The daemon is left alone, and the device as it was found. */
static inline void gpu_finish(struct harness *h) {
        unsigned violations = fake_cuda_finish();

        ck_assert_msg(violations == 0, "%u violations, the first: %s", violations,
                      violations ? fake_cuda_violation(0) : "");
        harness_wait(h, "no job", harness_no_job_is_there, NULL, GPU_SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static inline struct fake_cuda_figures gpu_figures(void) {
        struct fake_cuda_figures figures;

        fake_cuda_read(&figures);
        return figures;
}

/* ---- the job ---- */

static inline struct pinfeed_attach gpu_attach(const struct harness *h, const char *device, uint32_t pin) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);

        attach.device = device;
        attach.pin = pin;
        return attach;
}

static inline void gpu_look(struct gpu *gpu) {
        pinfeed_job_info(gpu->job, &gpu->info);
}

static inline void gpu_make_places(struct gpu *gpu) {
        gpu_must(cudaStreamCreateWithFlags(&gpu->stream, FAKE_CUDA_STREAM_NON_BLOCKING));
        for (size_t i = 0; i < GPU_PLACES; i++) {
                gpu_must(cudaEventCreateWithFlags(&gpu->places[i].arrived, CUDA_EVENT_DISABLE_TIMING));
                for (size_t k = 0; k < GPU_FIELDS; k++)
                        gpu_must(cudaMalloc(&gpu->places[i].fields[k],
                                            gpu->fields[k].row_bytes * gpu->info.batch_size));
        }
}

/* The job's device must be the current one. */
static inline void gpu_open_with(struct gpu *gpu, const struct pinfeed_attach *attach) {
        int r;

        *gpu = (struct gpu){};
        r = pinfeed_open(&gpu->job, attach);
        ck_assert_msg(r == 0, "%d: %s", r, pinfeed_error(gpu->job));
        gpu_look(gpu);
        ck_assert_uint_eq(gpu->info.n_fields, GPU_FIELDS);
        for (uint32_t i = 0; i < GPU_FIELDS; i++)
                ck_assert_int_eq(pinfeed_job_field(gpu->job, i, &gpu->fields[i]), 0);
        gpu->plan = (struct position_plan){.samples = gpu->info.samples,
                                           .batch_size = gpu->info.batch_size,
                                           .rank = gpu->info.rank,
                                           .world_size = gpu->info.world_size,
                                           .last_batch = (enum last_batch)gpu->info.last_batch};
        gpu->position = position_first(&gpu->plan, attach->start_epoch, attach->start_row);
        gpu_make_places(gpu);
}

static inline void gpu_open(struct gpu *gpu, const struct harness *h, const char *device, uint32_t pin) {
        struct pinfeed_attach attach = gpu_attach(h, device, pin);

        gpu_open_with(gpu, &attach);
}

/* A job that may hold one batch: the next one comes when the lease of that has ended, and not before. */
static inline void gpu_open_for_one(struct gpu *gpu, struct harness *h) {
        struct pinfeed_attach attach = gpu_attach(h, "cuda:0", PINFEED_PIN_REQUIRE);

        attach.max_held_batches = 1;
        gpu_open_with(gpu, &attach);
}

static inline void gpu_wait_delivered(struct harness *h, double n) {
        harness_wait_number(h, "pipelines/ramp/batches_delivered", n, GPU_SOON_MS);
}

/* Whether the batch that was copied to the place is there, to the byte. */
static inline bool gpu_is_right(const struct gpu *gpu, const struct gpu_place *place) {
        const int64_t *index = fake_cuda_see(place->fields[GPU_INDEX]);
        const uint8_t *data = fake_cuda_see(place->fields[GPU_DATA]);
        uint64_t size = gpu->fields[GPU_DATA].row_bytes;

        for (uint32_t i = 0; i < place->position.rows; i++) {
                uint64_t sample = (place->position.row + i) % gpu->info.samples;

                if (index[i] != (int64_t)sample ||
                    !ramp_check(data + i * size, size, sample, place->position.epoch, NULL))
                        return false;
        }
        return true;
}

/* The same, after whatever time it takes. */
static inline void gpu_check(const struct gpu *gpu, struct gpu_place *place) {
        if (!place->used)
                return;
        place->used = false;
        gpu_must(cudaEventSynchronize(place->arrived));
        reader_must(gpu_is_right(gpu, place), "rows %llu+%u of epoch %u have arrived with wrong bytes",
                    (unsigned long long)place->position.row, place->position.rows, place->position.epoch);
}

static inline void gpu_check_all(struct gpu *gpu) {
        for (size_t i = 0; i < GPU_PLACES; i++)
                gpu_check(gpu, &gpu->places[i]);
}

/* The next batch, which is the one that must come. */
static inline struct pinfeed_batch *gpu_next(struct gpu *gpu) {
        struct pinfeed_batch *batch;
        uint32_t epoch = gpu->position.epoch;
        int r = pinfeed_next(gpu->job, &batch);

        if (gpu->epoch_ended) {
                reader_must(r == 0, "epoch %u was to end: %d, %s", epoch - 1, r, pinfeed_error(gpu->job));
                r = pinfeed_next(gpu->job, &batch);
        }
        reader_must(r == 1, "row %llu of epoch %u: %d, %s", (unsigned long long)gpu->position.row, epoch, r,
                    pinfeed_error(gpu->job));
        reader_must(pinfeed_batch_row(batch) == gpu->position.row && pinfeed_batch_epoch(batch) == epoch,
                    "row %llu came", (unsigned long long)pinfeed_batch_row(batch));
        gpu->position = position_next(&gpu->plan, gpu->position);
        gpu->epoch_ended = gpu->position.epoch != epoch;
        gpu->rounds++;
        return batch;
}

/* The next place, checked and free. */
static inline struct gpu_place *gpu_next_place(struct gpu *gpu) {
        struct gpu_place *place = &gpu->places[gpu->rounds % GPU_PLACES];

        gpu_check(gpu, place);
        return place;
}

/* What is to be in the place, when what the stream has been given so far has run. */
static inline void gpu_expect(struct gpu_place *place, const struct pinfeed_batch *batch,
                              cuda_stream stream) {
        place->position = (struct position){.epoch = pinfeed_batch_epoch(batch),
                                            .rows = pinfeed_batch_rows(batch),
                                            .row = pinfeed_batch_row(batch)};
        place->used = true;
        gpu_must(cudaEventRecord(place->arrived, stream));
}

static inline int64_t gpu_copy(struct gpu *gpu, struct pinfeed_batch *batch, struct gpu_place *place) {
        int64_t bytes = pinfeed_batch_copy_all_async(batch, place->fields, gpu->stream);

        if (bytes >= 0)
                gpu_expect(place, batch, gpu->stream);
        return bytes;
}

/* Takes a batch and has it copied; it is the caller's. */
static inline struct pinfeed_batch *gpu_take(struct gpu *gpu) {
        struct gpu_place *place = gpu_next_place(gpu);
        struct pinfeed_batch *batch = gpu_next(gpu);
        int64_t bytes = gpu_copy(gpu, batch, place);

        reader_must(bytes > 0, "%lld: %s", (long long)bytes, pinfeed_error(gpu->job));
        return batch;
}

static inline void gpu_release(struct pinfeed_batch *batch) {
        int r = pinfeed_batch_release(batch);

        reader_must(r == 0, "release: %d", r);
}

static inline void gpu_rounds(struct gpu *gpu, uint64_t n) {
        while (n-- > 0)
                gpu_release(gpu_take(gpu));
}

/* Closes the job; then what the test itself has of the device. */
static inline void gpu_close(struct gpu *gpu) {
        gpu->job = pinfeed_close(gpu->job);
        gpu_check_all(gpu);
        for (size_t i = 0; i < GPU_PLACES; i++) {
                gpu_must(cudaEventDestroy(gpu->places[i].arrived));
                for (size_t k = 0; k < GPU_FIELDS; k++)
                        gpu_must(cudaFree(gpu->places[i].fields[k]));
        }
        gpu_must(cudaStreamDestroy(gpu->stream));
}

/* ---- releases in another thread ---- */

/* One batch at a time goes from the job's thread to the other one. */
struct gpu_handing {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct pinfeed_batch *batch;
        bool over;
};

static inline void *gpu_release_all(void *data) {
        struct gpu_handing *handing = data;

        pthread_mutex_lock(&handing->lock);
        while (!handing->over || handing->batch) {
                struct pinfeed_batch *batch = handing->batch;

                if (!batch) {
                        pthread_cond_wait(&handing->changed, &handing->lock);
                        continue;
                }
                handing->batch = NULL;
                pthread_mutex_unlock(&handing->lock);
                gpu_release(batch);
                pthread_mutex_lock(&handing->lock);
                pthread_cond_signal(&handing->changed);
        }
        pthread_mutex_unlock(&handing->lock);
        return NULL;
}

static inline void gpu_hand_over(struct gpu_handing *handing, struct pinfeed_batch *batch) {
        pthread_mutex_lock(&handing->lock);
        while (handing->batch)
                pthread_cond_wait(&handing->changed, &handing->lock);
        handing->batch = batch;
        handing->over = !batch;
        pthread_cond_signal(&handing->changed);
        pthread_mutex_unlock(&handing->lock);
}

static inline void gpu_hand_on(struct gpu_handing *handing, struct gpu *gpu, int rounds) {
        while (rounds-- > 0)
                gpu_hand_over(handing, gpu_take(gpu));
}

/* To the end of what has been handed over. */
static inline void gpu_end_handing(struct gpu_handing *handing) {
        gpu_hand_over(handing, NULL);
        pthread_join(handing->thread, NULL);
}

static inline void gpu_start_handing(struct gpu_handing *handing) {
        *handing =
                (struct gpu_handing){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
        ck_assert_int_eq(pthread_create(&handing->thread, NULL, gpu_release_all, handing), 0);
}
