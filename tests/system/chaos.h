#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs that know what every batch must be.
 *
 * Before anything happens, every stream is read once in peace: each batch of its first epochs leaves a digest
 * over its place, sample numbers and bytes, and the ramp's bytes are compared with what they must be. The
 * jobs are processes that go through those epochs over and over and compare every batch with that. */

#include "base/clock.h"
#include "tests/system/reader.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SAMPLES = 400,
        BATCH = 16,
        BATCHES = SAMPLES / BATCH,
        EPOCHS = 4, /* of which the digests are known */
        BYTES = 2048,
        JOBS = 4,
        STREAMS = 3,
};

/* Slots are few, so that each is filled, leased and taken away all the time. */
#define CONFIG                                                                                               \
        "pipelines:\n"                                                                                       \
        "  ramp:\n"                                                                                          \
        "    source: {type: synthetic, mode: ramp, samples: %d, bytes: %d, delay_us: 150}\n"                 \
        "    batch_size: %d\n"                                                                               \
        "    slots: 9\n"                                                                                     \
        "    shuffle: true\n"                                                                                \
        "    workers: 3\n"                                                                                   \
        "  rng:\n"                                                                                           \
        "    source: {type: synthetic, mode: rng, samples: %d}\n"                                            \
        "    batch_size: %d\n"                                                                               \
        "    slots: 4\n"                                                                                     \
        "    shuffle: true\n"                                                                                \
        "    workers: 2\n"

struct stream {
        const char *pipeline;
        uint64_t seed;
        uint64_t digests[EPOCHS][BATCHES];
};

/* Jobs 0 and 1 share the first one. */
static struct stream streams[STREAMS] = {
        {.pipeline = "ramp", .seed = 7}, {.pipeline = "ramp", .seed = 8}, {.pipeline = "rng", .seed = 7}};
static const int stream_of[JOBS] = {0, 0, 1, 2};

/* Written by the jobs, read by the test. */
struct shared {
        atomic_bool stop;
        atomic_uint_least64_t rows;
        atomic_uint_least64_t passes; /* through all EPOCHS */
};

/* ---- what a batch is ---- */

static inline uint64_t mix(uint64_t hash, uint64_t word) {
        return ramp_check_scramble((hash ^ word) + UINT64_C(11400714819323198485));
}

static inline uint64_t mix_bytes(uint64_t hash, const uint8_t *bytes, size_t size) {
        for (; size > 0;) {
                size_t n = size < 8 ? size : 8;
                uint64_t word = 0;

                memcpy(&word, bytes, n);
                hash = mix(hash, word);
                bytes += n;
                size -= n;
        }
        return hash;
}

/* Every byte of it that a job can see, and where it is in the stream. *replaced counts rows that are not what
 * they should be. */
static inline uint64_t digest_batch(const struct pinfeed_batch *batch, const struct pinfeed_field *fields,
                                    uint32_t n_fields, uint64_t *replaced) {
        uint64_t hash = mix(pinfeed_batch_epoch(batch), pinfeed_batch_row(batch));
        uint32_t rows;

        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++) {
                const uint8_t *flags = pinfeed_batch_flags(batch, i, &rows);

                for (uint32_t row = 0; row < rows; row++)
                        *replaced += flags[row] != PINFEED_ROW_GOOD;
                hash = mix_bytes(hash, (const uint8_t *)pinfeed_batch_ids(batch, i, NULL), 8 * (size_t)rows);
                for (uint32_t f = 0; f < n_fields; f++)
                        hash = mix_bytes(hash, pinfeed_batch_data(batch, i, f, NULL),
                                         rows * fields[f].row_bytes);
        }
        return hash;
}

static inline void check_ramp(const struct pinfeed_batch *batch, uint32_t epoch) {
        const int64_t *ids = pinfeed_batch_ids(batch, 0, NULL);
        const uint8_t *data = pinfeed_batch_data(batch, 0, 1, NULL);

        for (int row = 0; row < BATCH; row++, data += BYTES)
                reader_must(ramp_check(data, BYTES, (uint64_t)ids[row], epoch, NULL),
                            "sample %lld of epoch %u has wrong bytes", (long long)ids[row], epoch);
}

struct visit {
        struct pinfeed_job *job;
        struct pinfeed_field fields[2];
        uint32_t n_fields;
};

static inline int visit_open(struct visit *visit, const struct pinfeed_attach *base,
                             const struct stream *stream) {
        struct pinfeed_attach attach = *base;
        struct pinfeed_info info;
        int r;

        attach.pipeline = stream->pipeline;
        attach.seed = stream->seed;
        attach.seed_given = true;
        r = pinfeed_open(&visit->job, &attach);
        while (r == -ENOENT && attach.reconnect_s > 0) { /* for a job that never had one it is the caller's */
                pinfeed_close(visit->job);
                usleep(HARNESS_POLL_US);
                r = pinfeed_open(&visit->job, &attach);
        }
        if (r < 0)
                return r;
        pinfeed_job_info(visit->job, &info);
        visit->n_fields = info.n_fields < 2 ? info.n_fields : 2;
        for (uint32_t i = 0; i < visit->n_fields; i++)
                pinfeed_job_field(visit->job, i, &visit->fields[i]);
        return 0;
}

/* ---- in peace ---- */

/* Reads a stream in peace. The first time its digests are noted, later ones must agree. */
static inline void read_in_peace(const struct pinfeed_attach *base, struct stream *stream, bool note) {
        uint64_t replaced = 0;
        struct visit visit;

        ck_assert_int_eq(visit_open(&visit, base, stream), 0);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
                struct pinfeed_batch *batch;

                for (int i = 0; i < BATCHES; i++) {
                        uint64_t digest;

                        ck_assert_int_eq(pinfeed_next(visit.job, &batch), 1);
                        digest = digest_batch(batch, visit.fields, visit.n_fields, &replaced);
                        if (note)
                                stream->digests[epoch][i] = digest;
                        ck_assert_uint_eq(digest, stream->digests[epoch][i]);
                        if (!strcmp(stream->pipeline, "ramp"))
                                check_ramp(batch, epoch);
                        pinfeed_batch_release(batch);
                }
                ck_assert_int_eq(pinfeed_next(visit.job, &batch), 0);
        }
        ck_assert_uint_eq(replaced, 0);
        pinfeed_close(visit.job);
}

/* ---- a job: a process of its own, without Check ---- */

#define job_must(condition, ...)                                                                             \
        do {                                                                                                 \
                if (!(condition)) {                                                                          \
                        fprintf(stderr, "# job %d: ", (int)getpid());                                        \
                        fprintf(stderr, __VA_ARGS__);                                                        \
                        fprintf(stderr, "\n");                                                               \
                        _exit(1);                                                                            \
                }                                                                                            \
        } while (0)

static inline void run_batch(struct visit *visit, const struct stream *stream, uint32_t epoch, int place,
                             struct shared *shared) {
        struct pinfeed_batch *batch;
        uint64_t replaced = 0, digest;
        int r = pinfeed_next(visit->job, &batch);

        job_must(r == 1, "%s, epoch %u, batch %d: %d, %s", stream->pipeline, epoch, place, r,
                 pinfeed_error(visit->job));
        digest = digest_batch(batch, visit->fields, visit->n_fields, &replaced);
        job_must(replaced == 0, "%s, epoch %u, batch %d: %d rows are replaced", stream->pipeline, epoch,
                 place, (int)replaced);
        job_must(digest == stream->digests[epoch][place],
                 "%s, seed %d, epoch %u, batch %d (which says epoch %u, row %d): its bytes differ",
                 stream->pipeline, (int)stream->seed, epoch, place, pinfeed_batch_epoch(batch),
                 (int)pinfeed_batch_row(batch));
        atomic_fetch_add(&shared->rows, pinfeed_batch_rows(batch));
        r = pinfeed_batch_release(batch);
        job_must(r == 0, "release: %d", r);
}

/* Ends at the end of an epoch, once it is told to. */
static inline void run_job(const struct pinfeed_attach *base, const struct stream *stream,
                           struct shared *shared) {
        while (!atomic_load(&shared->stop)) {
                struct visit visit = {};
                int r = visit_open(&visit, base, stream);

                job_must(r == 0, "attach to %s: %d, %s", stream->pipeline, r, pinfeed_error(visit.job));
                for (uint32_t epoch = 0; epoch < EPOCHS && !atomic_load(&shared->stop); epoch++) {
                        struct pinfeed_batch *batch;

                        for (int i = 0; i < BATCHES; i++)
                                run_batch(&visit, stream, epoch, i, shared);
                        r = pinfeed_next(visit.job, &batch);
                        job_must(r == 0, "the end of epoch %u: %d, %s", epoch, r, pinfeed_error(visit.job));
                }
                pinfeed_close(visit.job);
                atomic_fetch_add(&shared->passes, 1);
        }
        _exit(0);
}

static inline pid_t fork_job(const struct pinfeed_attach *base, int number, struct shared *shared) {
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                run_job(base, &streams[stream_of[number]], shared);
        }
        return pid;
}

static inline struct shared *share(void) {
        struct shared *shared =
                mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        ck_assert_ptr_ne(shared, MAP_FAILED);
        return shared;
}
