#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job that writes down every row it gets, of a ramp with 8 bytes a sample: where it stood, which sample it
 * was, whether it was padding. What must hold for every single batch is asserted here; what must hold for
 * several jobs together is worked out by the tests from what was written down.
 *
 * The tests' own rules are written from docs/order.md with lists and counts, and share no code with
 * proto/position.c. */

#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>

enum {
        TAKER_BYTES = 8,
};

struct taken_row {
        uint64_t row; /* may be padding: beyond the samples */
        int64_t id;
        uint32_t epoch;
        bool padding;
        uint8_t data[TAKER_BYTES];
};

struct taken_batch {
        size_t first; /* of its rows */
        uint32_t rows;
        uint32_t epoch;
        uint32_t padding;
};

struct taker {
        struct pinfeed_attach attach;
        struct pinfeed_job *job;
        struct pinfeed_info info;
        struct taken_row *rows;
        size_t n_rows, rows_capacity;
        struct taken_batch *batches;
        size_t n_batches, batches_capacity;
        uint32_t ends; /* of epochs that it was told of */
};

static inline void *taker_grow(void *array, size_t size, size_t n, size_t *capacity) {
        if (n <= *capacity)
                return array;
        *capacity = n > 2 * *capacity ? n : 2 * *capacity;
        array = realloc(array, *capacity * size);
        reader_must(array != NULL, "no memory for %zu entries", *capacity);
        return array;
}

static inline void taker_open(struct taker *taker, const struct pinfeed_attach *attach) {
        int r = pinfeed_open(&taker->job, attach);

        taker->attach = *attach;
        reader_must(r == 0, "attach to %s: %d, %s", attach->pipeline, r, pinfeed_error(taker->job));
        pinfeed_job_info(taker->job, &taker->info);
}

static inline void taker_close(struct taker *taker) {
        taker->job = pinfeed_close(taker->job);
}

static inline void taker_free(struct taker *taker) {
        taker_close(taker);
        free(taker->rows);
        free(taker->batches);
        *taker = (struct taker){};
}

static inline void taker_write_down(struct taker *taker, const struct pinfeed_batch *batch) {
        uint32_t rows = pinfeed_batch_rows(batch), padding = pinfeed_batch_padding(batch);
        uint32_t epoch = pinfeed_batch_epoch(batch), field = taker->info.n_fields - 1;
        int64_t *ids = calloc(rows, sizeof(*ids));
        uint8_t *flags = calloc(rows, 1), *data = calloc(rows, TAKER_BYTES);

        reader_must(rows > 0 && rows <= taker->info.batch_size && padding <= rows,
                    "a batch of %u rows, %u padding", rows, padding);
        reader_must(pinfeed_batch_copy_ids(batch, ids, rows * sizeof(*ids)) ==
                                    (int64_t)(rows * sizeof(*ids)) &&
                            pinfeed_batch_copy_flags(batch, flags, rows) == (int64_t)rows &&
                            pinfeed_batch_copy(batch, field, data, rows * (size_t)TAKER_BYTES) ==
                                    (int64_t)rows * TAKER_BYTES,
                    "a batch cannot be copied");
        taker->rows =
                taker_grow(taker->rows, sizeof(*taker->rows), taker->n_rows + rows, &taker->rows_capacity);
        taker->batches = taker_grow(taker->batches, sizeof(*taker->batches), taker->n_batches + 1,
                                    &taker->batches_capacity);
        taker->batches[taker->n_batches++] = (struct taken_batch){taker->n_rows, rows, epoch, padding};
        for (uint32_t i = 0; i < rows; i++) {
                struct taken_row *row = &taker->rows[taker->n_rows++];

                *row = (struct taken_row){
                        pinfeed_batch_row(batch) + i, ids[i], epoch, i >= rows - padding, {}};
                memcpy(row->data, data + (size_t)i * TAKER_BYTES, TAKER_BYTES);
                reader_must(flags[i] == (row->padding ? PINFEED_ROW_PADDING : PINFEED_ROW_GOOD),
                            "row %u of %u (%u padding) has flag %u", i, rows, padding, flags[i]);
                reader_must(row->padding == (row->row >= taker->info.samples),
                            "row %llu of %llu is padding: %d", (unsigned long long)row->row,
                            (unsigned long long)taker->info.samples, row->padding);
                reader_must(ramp_check(row->data, TAKER_BYTES, (uint64_t)row->id, epoch, NULL),
                            "row %llu of epoch %u has wrong bytes", (unsigned long long)row->row, epoch);
        }
        free(ids);
        free(flags);
        free(data);
}

/* 1: a batch was taken; 0: an epoch has ended. */
static inline int taker_step(struct taker *taker) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(taker->job, &batch);

        reader_must(r >= 0, "batch %zu: %d, %s", taker->n_batches, r, pinfeed_error(taker->job));
        taker->ends += r == 0;
        if (r == 0)
                return 0;
        taker_write_down(taker, batch);
        reader_must(pinfeed_batch_release(batch) == 0, "a batch cannot be released");
        return 1;
}

/* `n` batches more, over the ends of epochs. */
static inline void taker_take(struct taker *taker, size_t n) {
        for (size_t goal = taker->n_batches + n; taker->n_batches < goal;)
                taker_step(taker);
}

/* What is left of the epoch; returns how many batches that were. */
static inline size_t taker_take_epoch(struct taker *taker) {
        size_t before = taker->n_batches;

        while (taker_step(taker) > 0)
                ;
        return taker->n_batches - before;
}

static inline void taker_save(const struct taker *taker, char state[PINFEED_STATE_MAX]) {
        int r = pinfeed_job_state(taker->job, state, PINFEED_STATE_MAX);

        reader_must(r > 0 && r < PINFEED_STATE_MAX && strlen(state) == (size_t)r, "state: %d", r);
}

static inline bool taker_all_left(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        size_t n = json_array_size(json_object_get(status, "jobs"));

        json_decref(status);
        return n == 0;
}

/* That a job leaves is a line in the log, and there may be few of those after the signal. */
static inline void taker_stop(struct harness *h) {
        harness_wait(h, "all jobs have left", taker_all_left, NULL, READER_TIMEOUT_MS / 2);
        harness_stop(h, SIGTERM, 0);
}

/* ---- what several have taken together ---- */

/* One epoch of a stream: which sample stands at each row, -1 where nobody has had it. */
struct union_of {
        uint64_t samples;
        uint32_t epoch;
        int64_t *ids;
        uint64_t rows;    /* without padding */
        uint64_t padding; /* rows */
};

static inline struct union_of union_new(uint64_t samples, uint32_t epoch) {
        struct union_of whole = {.samples = samples, .epoch = epoch, .ids = calloc(samples, sizeof(int64_t))};

        for (uint64_t row = 0; row < samples; row++)
                whole.ids[row] = -1;
        return whole;
}

/* No row may come twice. */
static inline void union_add(struct union_of *whole, const struct taker *taker) {
        for (size_t i = 0; i < taker->n_rows; i++) {
                const struct taken_row *row = &taker->rows[i];

                if (row->epoch != whole->epoch)
                        continue;
                whole->padding += row->padding;
                if (row->padding)
                        continue;
                reader_must(whole->ids[row->row] == -1, "row %llu of epoch %u came twice",
                            (unsigned long long)row->row, row->epoch);
                whole->ids[row->row] = row->id;
                whole->rows++;
        }
}

/* Padding holds what stands at the row it wraps round to; once all have been added. */
static inline void union_check_padding(const struct union_of *whole, const struct taker *taker) {
        for (size_t i = 0; i < taker->n_rows; i++) {
                const struct taken_row *row = &taker->rows[i];

                if (row->padding && row->epoch == whole->epoch)
                        ck_assert_int_eq(row->id, whole->ids[row->row % whole->samples]);
        }
}

/* Every sample once. */
static inline void union_expect_whole(const struct union_of *whole) {
        bool *seen = calloc(whole->samples, 1);

        ck_assert_uint_eq(whole->rows, whole->samples);
        for (uint64_t row = 0; row < whole->samples; row++) {
                int64_t id = whole->ids[row];

                reader_must(id >= 0 && (uint64_t)id < whole->samples && !seen[id], "sample %lld at row %llu",
                            (long long)id, (unsigned long long)row);
                seen[id] = true;
        }
        free(seen);
}

static inline void union_free(struct union_of *whole) {
        free(whole->ids);
}
