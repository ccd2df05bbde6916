/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The samples of a verification and the workers that try them.
 *
 * Samples go out in the order of their numbers, each once, in chunks like a pipeline's rows. A chunk needs a
 * place that tells it from others; its first sample's number, of 48 bits, is written into slot and row: so an
 * answer says itself which samples it is about, and no table is needed.
 *
 * What a worker that dies had judged counts. The sample that it died at is tried once more, alone and in a
 * fresh worker, since it may have died of an earlier one; dying again is the verdict. There is no need for a
 * third try as in a pipeline (suspects.h): a line in a list is no condemnation. All else that it held is
 * given back as pieces, which go before new samples; so is what is recalled from a worker that hangs. There
 * are never more of them than workers can hold chunks, so their list is short.
 *
 * Nothing is written anywhere, so a killed process that does not end (dead storage) is no danger: its samples
 * are taken from it as if it were dead.
 *
 * Deaths without any sample judged in between are in vain, and after VAIN_MAX of them the verification ends
 * with the last one's words; after VAIN_FREE the next worker waits for a tick. Workers that were there
 * already when the last of them was counted do not count: somebody may kill all of them at once. */

#include "daemon/verify.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/shm.h"
#include "daemon/log.h"
#include "daemon/pipeline.h"
#include "proto/index.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
        PLACE_BITS = 28, /* of a sample's number that are its row; the others are its slot */
        VAIN_FREE = 4,
        VAIN_MAX = 12,
};

#define PLACE_ROWS (UINT64_C(1) << PLACE_BITS)

_Static_assert(MESSAGE_SLOTS_MAX *PLACE_ROWS >= MESSAGE_SAMPLES_MAX, "every sample has a place");
_Static_assert(PLACE_ROWS <= MESSAGE_ROWS_MAX, "a row of a message");

/* Samples that were given back. */
struct piece {
        struct list link;
        uint64_t first;
        uint32_t rows;
        bool alone; /* one that a worker has died at */
};

static struct piece *piece_of(struct list *link) {
        return container_of(link, struct piece, link);
}

/* ---- handing out ---- */

static void fail(struct verify *verify, const char *text) {
        fault_set(&verify->failure, -EIO, "pipeline %s: %s", verify->pipeline->label, text);
        verify_end_work(verify);
}

static void give(struct verify *verify, struct pool_worker *worker, uint64_t first, uint32_t rows) {
        struct message_chunk chunk = {.row = first,
                                      .seed = verify->pipeline->config->seed,
                                      .slot = (uint32_t)(first >> PLACE_BITS),
                                      .first = (uint32_t)(first & (PLACE_ROWS - 1)),
                                      .rows = rows};

        pool_assign(worker, &chunk);
}

static struct piece *find_piece(struct verify *verify, bool alone) {
        list_for_each (link, &verify->pieces) {
                if (piece_of(link)->alone == alone)
                        return piece_of(link);
        }
        return NULL;
}

static void remove_piece(struct piece *piece) {
        list_unlink(&piece->link);
        free(piece);
}

/* Not before all who died were replaced: one of these has not touched anything else yet. */
static void give_suspects(struct verify *verify) {
        struct pool_worker *worker;
        struct piece *piece;

        while (verify->pool.n_workers >= verify->workers && (piece = find_piece(verify, true)) &&
               (worker = pool_fresh_worker(&verify->pool))) {
                worker->alone = true;
                give(verify, worker, piece->first, 1);
                remove_piece(piece);
        }
}

/* False when there are no more samples than those that workers have, or that are tried alone. */
static bool give_more(struct verify *verify, struct pool_worker *worker) {
        uint64_t left = verify->index.samples - verify->next,
                 fit = PLACE_ROWS - (verify->next & (PLACE_ROWS - 1));
        struct piece *piece = find_piece(verify, false);
        uint64_t rows = pool_chunk_rows(&verify->pool);

        if (piece) {
                give(verify, worker, piece->first, piece->rows);
                remove_piece(piece);
                return true;
        }
        rows = rows < left ? rows : left;
        rows = rows < fit ? rows : fit;
        if (rows == 0)
                return false;
        give(verify, worker, verify->next, (uint32_t)rows);
        verify->next += rows;
        return true;
}

static void step(struct verify *verify) {
        struct pool_worker *worker;

        if (verify->state != VERIFY_TRYING)
                return;
        give_suspects(verify);
        while ((worker = pool_free_worker(&verify->pool, true)) && give_more(verify, worker))
                ;
        if (verify->done == verify->index.samples)
                verify_end_work(verify);
}

/* Fewer workers than asked for will do, if there is any. */
void verify_grow(struct verify *verify) {
        struct fault fault;
        int r;

        r = pool_grow(&verify->pool, verify->workers, &verify->setup, verify->ring_fd, &fault);
        pool_set_index(&verify->pool, &verify->index, verify->index_fd);
        if (r < 0 && verify->pool.n_workers == 0) {
                fail(verify, fault.text);
                return;
        }
        if (r < 0)
                verify->workers = verify->pool.n_workers;
        if (verify->pool.n_workers >= verify->workers)
                uv_idle_stop(&verify->growing);
        step(verify);
}

static void on_growing(uv_idle_t *idle) {
        verify_grow(idle->data);
}

/* ---- what workers say ---- */

static void find_bad(struct verify *verify, uint64_t sample, int error, const char *foreign_file,
                     const char *foreign_text) {
        char file[MESSAGE_FILE_MAX + 1], text[MESSAGE_TEXT_MAX + 1];

        if (sample >= verify->index.samples)
                return;
        fault_sanitize(file, sizeof(file), foreign_file, strlen(foreign_file));
        fault_sanitize(text, sizeof(text), foreign_text, strlen(foreign_text));
        findings_add(&verify->findings, sample, error, file, text);
}

static void on_replaced(void *context, const struct pool_worker *worker,
                        const struct message_replaced *replaced) {
        find_bad(context, replaced->sample, replaced->error, replaced->file, replaced->text);
}

static void on_done(void *context, const struct message_part *parts, uint32_t n_parts) {
        struct verify *verify = context;

        for (uint32_t i = 0; i < n_parts; i++)
                verify->done += parts[i].rows;
        verify->vain_deaths = 0;
        step(verify);
}

/* It cannot work at all: no sample breaks a chunk here. */
static void on_broken(void *context, const struct pool_worker *worker, const struct message_broken *broken,
                      const struct message_chunk *lost) {
        struct verify *verify = context;
        char text[MESSAGE_TEXT_MAX + 64];

        snprintf(text, sizeof(text), "worker %u: %s", worker->number, broken->text);
        if (verify->state == VERIFY_TRYING)
                fail(verify, text);
}

/* Workers are told of no condemned samples: those are tried like all others. */
static void on_started(void *context, struct pool_worker *worker) {
}

/* ---- workers that die ---- */

static void put_back(struct verify *verify, uint64_t first, uint32_t rows, bool alone) {
        struct piece *piece = rows > 0 ? malloc(sizeof(*piece)) : NULL;

        if (rows == 0 || verify->state != VERIFY_TRYING)
                return;
        if (!piece) {
                fail(verify, "no memory to go on with its verification");
                return;
        }
        *piece = (struct piece){.first = first, .rows = rows, .alone = alone};
        list_append(&verify->pieces, &piece->link);
}

static void describe(const struct pool_worker *worker, enum pool_death death, char *text, size_t size) {
        if (*worker->expelled.text)
                snprintf(text, size, "%s", worker->expelled.text);
        else if (death == POOL_DEATH_OUT_OF_MEMORY)
                snprintf(text, size, "out of memory");
        else if (worker->process.signal)
                snprintf(text, size, "signal %d", worker->process.signal);
        else
                snprintf(text, size, "exit status %d", worker->process.exit_status);
}

static void judge(struct verify *verify, const struct pool_worker *worker, enum pool_death death,
                  uint64_t sample) {
        char file[MESSAGE_FILE_MAX + 1] = "", how[FAULT_TEXT_MAX + 1], text[FAULT_TEXT_MAX + 64];

        if (verify->index_fd >= 0 && index_read_name(verify->index_fd, sample, file, sizeof(file)) < 0)
                file[0] = 0;
        describe(worker, death, how, sizeof(how));
        if (worker->timed_out)
                snprintf(text, sizeof(text), "takes longer than sample_timeout (%.1f s)",
                         verify->pipeline->config->sample_timeout);
        else
                snprintf(text, sizeof(text), "kills its worker: %s", how);
        find_bad(verify, sample, EIO, file, text);
        verify->done++;
        verify->vain_deaths = 0;
}

/* What was judged counts, the rest goes back. */
static void recover(struct verify *verify, const struct pool_worker *worker, enum pool_death death,
                    const struct message_chunk *chunk) {
        struct pool_remains remains = pool_look_at_remains(worker, chunk);
        uint64_t first = chunk->row + remains.done;
        uint32_t rows = chunk->rows - remains.done;
        bool counts = pool_death_may_be_the_sample(death) && remains.sample != WORKER_PAGE_IDLE;

        verify->done += remains.done;
        if (remains.done > 0)
                verify->vain_deaths = 0;
        if (rows == 0)
                return;
        if (worker->alone && counts && !(worker->timed_out && pool_storage_hangs(&verify->pool))) {
                judge(verify, worker, death, first);
        } else if (worker->alone || !counts) {
                put_back(verify, first, rows, worker->alone);
        } else {
                put_back(verify, first, 1, true);
                put_back(verify, first + 1, rows - 1, false);
        }
}

static void count_vain(struct verify *verify, const struct pool_worker *worker) {
        if (verify->vain_deaths > 0 && worker->started_ns <= verify->vain_ns)
                return;
        verify->vain_deaths++;
        verify->vain_ns = clock_ns();
}

static void on_died(void *context, const struct pool_worker *worker) {
        struct verify *verify = context;
        enum pool_death death = pool_judge_death(&verify->pool, worker);
        char how[FAULT_TEXT_MAX + 1], text[FAULT_TEXT_MAX + 64];

        if (verify->state != VERIFY_TRYING)
                return;
        count_vain(verify, worker);
        for (uint32_t i = 0; i < worker->n_chunks; i++)
                recover(verify, worker, death, &worker->chunks[i]);
        if (verify->state != VERIFY_TRYING)
                return; /* for want of memory */
        if (verify->vain_deaths >= VAIN_MAX) {
                describe(worker, death, how, sizeof(how));
                snprintf(text, sizeof(text), "cannot keep a worker alive to verify it, the last death: %s",
                         how);
                fail(verify, text);
                return;
        }
        if (verify->vain_deaths <= VAIN_FREE)
                uv_idle_start(&verify->growing, on_growing);
        step(verify);
}

static void on_returned(void *context, const struct pool_worker *worker) {
}

static void on_stopped(void *context) {
        verify_on_ended(context);
}

static void on_recalled(void *context, const struct message_chunk *chunks, uint32_t n_chunks) {
        for (uint32_t i = 0; i < n_chunks; i++)
                put_back(context, chunks[i].row, chunks[i].rows, false);
}

static void on_resumed(void *context) {
        step(context);
}

/* Nobody scans here. */
const struct pool_events verify_pool_events = {
        .done = on_done,
        .broken = on_broken,
        .replaced = on_replaced,
        .started = on_started,
        .died = on_died,
        .stuck = on_died,
        .returned = on_returned,
        .recalled = on_recalled,
        .resumed = on_resumed,
        .stopped = on_stopped,
};

/* ---- begin and end ---- */

static int take_index(struct verify *verify, struct fault *fault) {
        const struct pipeline *pipeline = verify->pipeline;

        verify->index = pipeline->index;
        if (pipeline->index_fd >= 0)
                verify->index_fd = fcntl(pipeline->index_fd, F_DUPFD_CLOEXEC, 0);
        verify->ring_fd = shm_create_memfd("pinfeed-verify");
        if (verify->ring_fd < 0 || (pipeline->index_fd >= 0 && verify->index_fd < 0))
                return fault_set(fault, -EMFILE,
                                 "no descriptors to verify it with: %s; raise the limit of open files",
                                 strerror(errno));
        return 0;
}

void verify_begin_work(struct verify *verify) {
        const struct pipeline *pipeline = verify->pipeline;
        uint32_t workers = pipeline_workers(pipeline);
        struct fault fault;
        int r;

        r = pipeline_make_setup(pipeline, &verify->setup, &fault);
        if (r >= 0)
                r = take_index(verify, &fault);
        if (r >= 0 && findings_init(&verify->findings, pipeline->verdicts) < 0)
                r = fault_set(&fault, -ENOMEM, "no memory to verify it");
        if (r < 0) {
                fail(verify, fault.text);
                return;
        }
        verify->setup.verify = 1;
        verify->setup.slots = verify->setup.slot_rows = 1;
        snprintf(verify->fingerprint, sizeof(verify->fingerprint), "%s", pipeline->verdicts->fingerprint);
        verify->workers = workers < verify->index.samples ? workers : (uint32_t)verify->index.samples;
        verify->pool.sample_timeout_ns = (uint64_t)(pipeline->config->sample_timeout * NS_PER_S);
        verify->pool.row_ns = 0;
        verify->pool.interpreter = pipeline->pool.interpreter;
        verify->state = VERIFY_TRYING;
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s is being verified: %" PRIu64 " samples", pipeline->label,
                  verify->index.samples);
        pool_watch_start(&verify->pool);
        uv_idle_start(&verify->growing, on_growing);
}

void verify_end_work(struct verify *verify) {
        verify->state = VERIFY_ENDING;
        uv_idle_stop(&verify->growing);
        list_for_each_safe (link, &verify->pieces)
                remove_piece(piece_of(link));
        /* For good: one that does not end on dead storage is not waited for. */
        pool_stop(&verify->pool, true);
}
