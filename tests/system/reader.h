#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job that believes nothing: it follows an unshuffled ramp and asserts every batch's place and bytes.
 *
 * Check writes a record for each assert that holds, so what is asserted for every byte goes without. */

#include "base/clock.h"
#include "client/pinfeed.h"
#include "tests/support/harness.h"
#include "tests/support/ramp.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
        READER_TIMEOUT_MS = 20000, /* of a batch; what takes longer is a hang */
        READER_ERROR_MS = 1000,    /* from what broke a stream to the error in all its jobs */
        READER_EDGE = 16,          /* bytes that are checked at both ends of a row ... */
        READER_STEP = 4099, /* ... and one in so many between: a prime above a page, so all offsets come */
};

/* What is measured of a process does not hold in one that a sanitizer has filled with its own things. */
#ifdef __SANITIZE_ADDRESS__
#define READER_SANITIZED true
#else
#define READER_SANITIZED false
#endif

#define reader_must(condition, ...)                                                                          \
        do {                                                                                                 \
                if (!(condition))                                                                            \
                        ck_abort_msg(__VA_ARGS__);                                                           \
        } while (0)

struct reader {
        struct pinfeed_job *job;
        struct pinfeed_info info;
        bool is_ramp; /* its bytes are checked too */
        uint32_t epoch;
        uint64_t row;
        uint64_t batches; /* read so far */
};

static inline struct pinfeed_attach reader_attach(const struct harness *h, const char *pipeline,
                                                  uint32_t max_held) {
        return (struct pinfeed_attach){.size = sizeof(struct pinfeed_attach),
                                       .pipeline = pipeline,
                                       .runtime_dir = harness_runtime_directory(h),
                                       .max_held_batches = max_held,
                                       .timeout_ms = READER_TIMEOUT_MS * (uint32_t)harness_slowdown()};
}

static inline void reader_open_with(struct reader *reader, const struct pinfeed_attach *attach) {
        struct pinfeed_field field;
        int r;

        *reader = (struct reader){.epoch = attach->start_epoch, .row = attach->start_row};
        r = pinfeed_open(&reader->job, attach);
        ck_assert_msg(r == 0, "attach to %s: %d, %s", attach->pipeline, r, pinfeed_error(reader->job));
        pinfeed_job_info(reader->job, &reader->info);
        ck_assert_int_eq(pinfeed_job_field(reader->job, reader->info.n_fields - 1, &field), 0);
        reader->is_ramp = !strcmp(field.name, "data");
}

static inline void reader_open(struct reader *reader, const struct harness *h, const char *pipeline,
                               uint32_t max_held) {
        struct pinfeed_attach attach = reader_attach(h, pipeline, max_held);

        reader_open_with(reader, &attach);
}

/* A job with two batches at most, in the stream of `seed`, from `row` on. */
static inline struct reader reader_open_at(const struct harness *h, const char *pipeline, uint64_t seed,
                                           uint64_t row) {
        struct pinfeed_attach attach = reader_attach(h, pipeline, 2);
        struct reader reader;

        attach.seed = seed;
        attach.seed_given = true;
        attach.start_row = row;
        reader_open_with(&reader, &attach);
        return reader;
}

static inline void reader_close(struct reader *reader) {
        reader->job = pinfeed_close(reader->job);
}

/* Asserts that an attach with `attach` is refused with `error`; the words come into `text`. */
static inline void reader_expect_refusal(const struct pinfeed_attach *attach, int error, char *text,
                                         size_t size) {
        struct pinfeed_job *job;
        int r = pinfeed_open(&job, attach);

        snprintf(text, size, "%s", pinfeed_error(job));
        pinfeed_close(job);
        ck_assert_msg(r == error, "attach gave %d instead of %d: %s", r, error, text);
}

/* Reads until an error comes, which must be -EIO and soon; its words. */
static inline const char *reader_expect_failure(struct reader *reader, uint64_t since_ns) {
        struct pinfeed_batch *batch;
        uint64_t took_ms;
        int r;

        while ((r = pinfeed_next(reader->job, &batch)) >= 0)
                if (r > 0)
                        pinfeed_batch_release(batch);
        took_ms = (clock_ns() - since_ns) / NS_PER_MS;
        ck_assert_msg(r == -EIO, "the job got %d instead of -EIO: %s", r, pinfeed_error(reader->job));
        ck_assert_msg(took_ms < READER_ERROR_MS * (uint64_t)harness_slowdown(), "the error took %llu ms",
                      (unsigned long long)took_ms);
        return pinfeed_error(reader->job);
}

static inline void reader_check_byte(const uint8_t *data, uint64_t offset, uint64_t sample, uint32_t epoch) {
        uint8_t expected = ramp_check_byte(sample, epoch, offset);

        reader_must(data[offset] == expected, "sample %llu of epoch %u: byte %llu is %u, expected %u",
                    (unsigned long long)sample, epoch, (unsigned long long)offset, data[offset], expected);
}

/* Both ends of the row whole, the rest here and there, another place in each row. */
static inline void reader_check_row(const uint8_t *data, uint64_t size, uint64_t sample, uint32_t epoch) {
        for (uint64_t i = 0; i < size && i < READER_EDGE; i++)
                reader_check_byte(data, i, sample, epoch);
        for (uint64_t i = READER_EDGE + sample % READER_STEP; i < size; i += READER_STEP)
                reader_check_byte(data, i, sample, epoch);
        for (uint64_t i = size > READER_EDGE ? size - READER_EDGE : 0; i < size; i++)
                reader_check_byte(data, i, sample, epoch);
}

/* The bytes of a batch that starts at `row`, as they are now: also long after it came. */
static inline void reader_check(const struct reader *reader, const struct pinfeed_batch *batch,
                                uint32_t epoch, uint64_t row) {
        struct pinfeed_field field;

        pinfeed_job_field(reader->job, reader->info.n_fields - 1, &field);
        for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++) {
                uint32_t rows;
                const int64_t *ids = pinfeed_batch_ids(batch, i, &rows);
                const uint8_t *data = pinfeed_batch_data(batch, i, reader->info.n_fields - 1, &rows);

                reader_must(ids && data, "a batch without its bytes");
                for (uint32_t k = 0; k < rows; k++, row++, data += field.row_bytes) {
                        reader_must(ids[k] == (int64_t)row, "row %llu has sample %lld",
                                    (unsigned long long)row, (long long)ids[k]);
                        if (reader->is_ramp)
                                reader_check_row(data, field.row_bytes, row, epoch);
                }
        }
}

/* The next batch, which must be the one that follows; released by the caller. */
static inline struct pinfeed_batch *reader_next(struct reader *reader) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(reader->job, &batch);

        if (r == 0) {
                reader_must(reader->row == reader->info.samples, "the epoch ended at row %llu of %llu",
                            (unsigned long long)reader->row, (unsigned long long)reader->info.samples);
                reader->row = 0;
                reader->epoch++;
                r = pinfeed_next(reader->job, &batch);
        }
        reader_must(r == 1, "batch %llu: %d, %s", (unsigned long long)reader->batches, r,
                    pinfeed_error(reader->job));
        reader_must(pinfeed_batch_epoch(batch) == reader->epoch && pinfeed_batch_row(batch) == reader->row,
                    "row %llu of epoch %u came instead of row %llu of epoch %u",
                    (unsigned long long)pinfeed_batch_row(batch), pinfeed_batch_epoch(batch),
                    (unsigned long long)reader->row, reader->epoch);
        reader_check(reader, batch, reader->epoch, reader->row);
        reader->row += pinfeed_batch_rows(batch);
        reader->batches++;
        return batch;
}

static inline void reader_read(struct reader *reader, uint64_t batches) {
        while (batches-- > 0) {
                int r = pinfeed_batch_release(reader_next(reader));

                reader_must(r == 0, "release: %d", r);
        }
}

static inline void reader_read_epochs(struct reader *reader, uint32_t epochs) {
        reader_read(reader, epochs * reader->info.batches_per_epoch);
}

static inline bool reader_workers_are(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool are = json_array_size(json_object_get(status, "workers")) == *(size_t *)context;

        json_decref(status);
        return are;
}

/* Workers are started and buried over several turns of the daemon's loop; waits until there are `n`. */
static inline void reader_wait_workers(struct harness *h, size_t n) {
        char what[32];

        snprintf(what, sizeof(what), "%zu workers", n);
        harness_wait(h, what, reader_workers_are, &n, READER_TIMEOUT_MS / 2);
}
