/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Recovery: a worker has died, and nobody shall notice.
 *
 * What it had made is kept: its page says how many rows of the chunk in work are whole. The row after them,
 * if a sample was in work, is a suspect when the death can have been that sample's doing: it stays out of the
 * scheduler's hands as a chunk of its own and is tried alone, in a fresh worker that holds nothing else, so
 * that a second death has one explanation. All other rows go back and are handed out again. Two deaths alone
 * condemn the sample (suspects.h): it is replaced from then on, in this run and in later ones (verdicts.h),
 * and its row goes back to be made with the substitute.
 *
 * A SIGKILL that neither the daemon nor the OOM killer sent says nothing about the sample; its row simply
 * goes back. Nor does it say anything about the source: while the pipeline starts, somebody else looks for
 * the samples then, while any other death at that time is the end of the start.
 *
 * Dead workers are replaced at once while there is progress. Deaths without a chunk done in between are in
 * vain: after VAIN_FREE of them (a suspect needs three) each further one doubles the pause, and after
 * VAIN_MAX the pipeline fails, with the last death's words: a worker that cannot work must not be started for
 * ever. Only workers that were started after the last death in vain count: somebody may kill a hundred of
 * them at once, and that is one.
 *
 * A worker that goes with the zygote that forked it has not died in vain, and is no death at all: its rows go
 * back, and the next zygote, if there is one, forks another (pipeline-brought.c). One that could not be
 * forked is like one that dies at once.
 *
 * A killed process that does not end (dead storage) may still write into the slot of the chunk it had in
 * work. The slot is quarantined and its rows are made in another one; it comes back when the process is gone.
 *
 * Chunks that are recalled from a worker which hangs, or is merely stopped, are no suspects, and it may live:
 * they go back whole and are handed out again at once. */

#include "daemon/pipeline-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"
#include "daemon/suspects.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

enum {
        VAIN_FREE = 4,
        VAIN_MAX = 12,
        PAUSE_FIRST_MS = 50,
        PAUSE_MOST_MS = 5000,
};

void pipeline_clear_suspect(struct pipeline *pipeline, uint32_t slot, uint32_t first) {
        struct suspect *suspect = suspects_find(pipeline->suspects, slot, first);

        if (suspect)
                suspects_remove(pipeline->suspects, suspect);
}

void pipeline_drop_suspects(struct pipeline *pipeline, uint32_t slot) {
        const struct suspect *suspect;
        uint32_t place = 0;

        while ((suspect = suspects_iterate(pipeline->suspects, &place))) {
                if (suspect->slot != slot || suspect->state != SUSPECT_WAITING)
                        continue;
                scheduler_chunk_lost(pipeline->scheduler, slot, suspect->first, 1);
                suspects_remove(pipeline->suspects, suspects_find(pipeline->suspects, slot, suspect->first));
        }
}

bool pipeline_has_suspect(struct pipeline *pipeline) {
        return suspects_next(pipeline->suspects) && pool_fresh_worker(&pipeline->pool);
}

void pipeline_give_suspect(struct pipeline *pipeline) {
        struct suspect *suspect = suspects_next(pipeline->suspects);
        struct pool_worker *worker = pool_fresh_worker(&pipeline->pool);
        struct message_chunk chunk = {.row = suspect->row,
                                      .seed = suspect->seed,
                                      .epoch = suspect->epoch,
                                      .slot = suspect->slot,
                                      .first = suspect->first,
                                      .rows = 1};

        worker->alone = true;
        suspects_tried(pipeline->suspects, suspect);
        pool_assign(worker, &chunk);
}

/* It died again, alone with this row. */
static void judge_suspect(struct pipeline *pipeline, struct suspect *suspect, bool counts, const char *text) {
        char file[MESSAGE_FILE_MAX + 1];

        if (suspects_died(pipeline->suspects, suspect, counts) == SUSPECT_RETRY)
                return;
        pipeline_name_sample(pipeline, suspect->sample, file, sizeof(file));
        pipeline_condemn(pipeline, suspect->sample, file, text);
        scheduler_chunk_split(pipeline->scheduler, suspect->slot, suspect->first, 1, 0, false);
        suspects_remove(pipeline->suspects, suspect);
}

/* The row after the whole ones becomes a suspect; the others go back. */
static void suspect_row(struct pipeline *pipeline, const struct message_chunk *chunk,
                        const struct pool_remains *remains, const struct message_failed *failed) {
        struct suspect row = {.slot = chunk->slot,
                              .first = chunk->first + remains->done,
                              .epoch = chunk->epoch,
                              .row = chunk->row + remains->done,
                              .seed = chunk->seed,
                              .sample = remains->sample};
        int r;

        scheduler_chunk_split(pipeline->scheduler, chunk->slot, chunk->first, chunk->rows, remains->done,
                              true);
        r = suspects_add(pipeline->suspects, &row, NULL);
        if (r == 0)
                return;
        /* So many rows kill their workers at once that it is not the samples: the stream ends. */
        pipeline_fail_jobs(pipeline, false, chunk->seed, failed);
        scheduler_chunk_lost(pipeline->scheduler, row.slot, row.first, 1);
}

/* What was made is kept, the rest goes back. */
static void recover(struct pipeline *pipeline, const struct pool_worker *worker,
                    const struct message_chunk *chunk, bool counts, const struct message_failed *failed) {
        struct suspect *suspect = suspects_find(pipeline->suspects, chunk->slot, chunk->first);
        struct pool_remains remains = pool_look_at_remains(worker, chunk);

        if (remains.done == chunk->rows) {
                pipeline_clear_suspect(pipeline, chunk->slot, chunk->first);
                scheduler_chunk_done(pipeline->scheduler, chunk->slot, chunk->first, chunk->rows);
        } else if (suspect && chunk->rows == 1) {
                counts = counts && remains.sample != WORKER_PAGE_IDLE &&
                         !(worker->timed_out && pool_storage_hangs(&pipeline->pool));
                judge_suspect(pipeline, suspect, counts, failed->text);
        } else if (counts && remains.sample != WORKER_PAGE_IDLE) {
                suspect_row(pipeline, chunk, &remains, failed);
        } else {
                scheduler_chunk_split(pipeline->scheduler, chunk->slot, chunk->first, chunk->rows,
                                      remains.done, false);
        }
}

static bool is_starting(const struct pipeline *pipeline) {
        return pipeline->state == PIPELINE_RESERVING || pipeline->state == PIPELINE_SCANNING;
}

void pipeline_on_restart(uv_timer_t *timer) {
        struct pipeline *pipeline = timer->data;

        if (pipeline->state != PIPELINE_READY && !is_starting(pipeline))
                return;
        if (pipeline_grow(pipeline) < 0) {
                pipeline_fail(pipeline, -EIO);
                return;
        }
        if (is_starting(pipeline) && !pipeline->scanned)
                pool_scan(&pipeline->pool);
        pipeline_step(pipeline);
}

static void count_vain(struct pipeline *pipeline, const struct pool_worker *worker) {
        if (pipeline->vain_deaths > 0 && worker->started_ns <= pipeline->vain_ns)
                return;
        pipeline->vain_deaths++;
        pipeline->vain_ns = clock_ns();
}

/* Somebody takes the dead worker's place, soon or, after deaths in vain, later. */
static void restart(struct pipeline *pipeline) {
        uint64_t pause = 0;

        if (uv_is_active((uv_handle_t *)&pipeline->restart))
                return;
        if (pipeline->vain_deaths > VAIN_FREE)
                pause = (uint64_t)PAUSE_FIRST_MS << (pipeline->vain_deaths - VAIN_FREE - 1);
        if (pause > PAUSE_MOST_MS)
                pause = PAUSE_MOST_MS;
        uv_timer_start(&pipeline->restart, pipeline_on_restart, pause, 0);
}

/* Its rows go back, and say nothing about any sample. */
static void take_back(struct pipeline *pipeline, const struct pool_worker *worker,
                      const struct message_failed *failed) {
        pipeline->stepping = true; /* no new work before all of this is done */
        for (uint32_t i = 0; i < worker->n_chunks; i++)
                recover(pipeline, worker, &worker->chunks[i], false, failed);
        pipeline->stepping = false;
}

/* The pipeline had not even begun, or workers die and die. */
static void give_up(struct pipeline *pipeline, const struct pool_worker *worker,
                    const struct message_failed *failed) {
        bool was_killed = worker->process.signal == SIGKILL && !*worker->expelled.text;

        fault_set(&pipeline->failure, -EIO, "pipeline %s %s: %s%s", pipeline->label,
                  pipeline->state == PIPELINE_READY ? "cannot keep a worker alive" : "cannot start",
                  failed->text, was_killed ? "; see the kernel's log: it says whether memory ran out" : "");
        pipeline_fail(pipeline, -EIO);
}

static void log_death(const struct pipeline *pipeline, const struct pool_worker *worker,
                      const struct message_failed *failed, const char *advice) {
        log_about(&(struct log_subject){.pipeline = pipeline->label,
                                        .worker = &worker->number,
                                        .sample = failed->sample_given ? &failed->sample : NULL},
                  LOG_ERROR, "pipeline %s: %s; its rows are prepared again, %s", pipeline->label,
                  failed->text, advice);
}

/* The next zygote forks others. Whether there is one is seen at the end of the step. */
static void bury_orphan(struct pipeline *pipeline, const struct pool_worker *worker) {
        struct message_failed failed;

        pipeline_describe_death(pipeline, worker, &failed);
        take_back(pipeline, worker, &failed);
        restart(pipeline);
        pipeline_step(pipeline);
}

/* It never was; perhaps the next one is. */
static void bury_unborn(struct pipeline *pipeline, const struct pool_worker *worker) {
        struct message_failed failed;

        pipeline_describe_death(pipeline, worker, &failed);
        log_about(&(struct log_subject){.pipeline = pipeline->label, .worker = &worker->number}, LOG_ERROR,
                  "pipeline %s: %s", pipeline->label, failed.text);
        count_vain(pipeline, worker);
        restart(pipeline);
        if (pipeline->vain_deaths >= VAIN_MAX)
                give_up(pipeline, worker, &failed);
}

/* What to do about it, should it happen again: its jobs notice nothing. */
static const char *advise(enum pool_death death) {
        switch (death) {
        case POOL_DEATH_OUT_OF_MEMORY:
                return "raise the cgroup's memory limit or lower `workers`";
        case POOL_DEATH_KILLED:
                return "see the kernel's log if nobody killed it on purpose";
        case POOL_DEATH_TIMED_OUT:
                return "raise `sample_timeout` if samples may take so long";
        case POOL_DEATH_EXPELLED:
                return "install pinfeedd and pinfeed-worker together";
        default:
                return "run 'pinfeedctl verify' to find samples that do this";
        }
}

void pipeline_on_died(void *context, const struct pool_worker *worker) {
        struct pipeline *pipeline = context;
        enum pool_death death;
        struct message_failed failed;
        bool counts;

        if (worker->process.orphaned || worker->process.error > 0) {
                if (pipeline_is_up(pipeline) && worker->process.orphaned)
                        bury_orphan(pipeline, worker);
                else if (pipeline_is_up(pipeline))
                        bury_unborn(pipeline, worker);
                return;
        }
        death = pool_judge_death(&pipeline->pool, worker);
        counts = pool_death_may_be_the_sample(death);
        if (pipeline->state == PIPELINE_STOPPING || pipeline->state == PIPELINE_FAILED)
                return;
        pipeline_describe_death(pipeline, worker, &failed);
        if (is_starting(pipeline) && death != POOL_DEATH_KILLED) {
                give_up(pipeline, worker, &failed);
                return;
        }
        log_death(pipeline, worker, &failed, advise(death));
        fault_set(&pipeline->failure, -EIO, "pipeline %s: %s", pipeline->label, failed.text);
        pipeline->stepping = true; /* no new work before all of this is done */
        for (uint32_t i = 0; i < worker->n_chunks; i++)
                recover(pipeline, worker, &worker->chunks[i], counts, &failed);
        pipeline->stepping = false;
        count_vain(pipeline, worker);
        restart(pipeline);
        if (pipeline->vain_deaths >= VAIN_MAX)
                give_up(pipeline, worker, &failed);
        else
                pipeline_step(pipeline);
}

void pipeline_on_stuck(void *context, const struct pool_worker *worker) {
        struct pipeline *pipeline = context;
        struct message_failed failed;

        if (pipeline->state != PIPELINE_READY)
                return;
        pool_judge_death(&pipeline->pool, worker);
        pipeline_describe_death(pipeline, worker, &failed);
        pipeline->stepping = true;
        for (uint32_t i = 0; i < worker->n_chunks; i++) {
                const struct message_chunk *chunk = &worker->chunks[i];

                if (i == 0 && scheduler_slot_quarantine(pipeline->scheduler, chunk->slot) == 0) {
                        pipeline->quarantined++;
                        pipeline_drop_suspects(pipeline, chunk->slot);
                        pipeline_clear_suspect(pipeline, chunk->slot, chunk->first);
                        scheduler_chunk_lost(pipeline->scheduler, chunk->slot, chunk->first, chunk->rows);
                } else {
                        scheduler_chunk_split(pipeline->scheduler, chunk->slot, chunk->first, chunk->rows, 0,
                                              false);
                }
        }
        pipeline->stepping = false;
        if (pipeline->quarantined * 4 > pipeline->ring.slots)
                log_about(
                        &(struct log_subject){.pipeline = pipeline->label, .worker = &worker->number},
                        LOG_ERROR,
                        "pipeline %s: %u of %u slots wait for killed workers that do not end: storage hangs",
                        pipeline->label, pipeline->quarantined, pipeline->ring.slots);
        count_vain(pipeline, worker);
        restart(pipeline);
        pipeline_step(pipeline);
}

void pipeline_on_recalled(void *context, const struct message_chunk *chunks, uint32_t n_chunks) {
        struct pipeline *pipeline = context;

        for (uint32_t i = 0; i < n_chunks; i++)
                scheduler_chunk_split(pipeline->scheduler, chunks[i].slot, chunks[i].first, chunks[i].rows, 0,
                                      false);
}

void pipeline_on_resumed(void *context) {
        pipeline_step(context);
}

void pipeline_on_returned(void *context, const struct pool_worker *worker) {
        struct pipeline *pipeline = context;

        if (pipeline->state != PIPELINE_READY || worker->n_chunks == 0)
                return;
        log_about(&(struct log_subject){.pipeline = pipeline->label, .worker = &worker->number}, LOG_INFO,
                  "pipeline %s: worker %u (pid %d) has ended at last", pipeline->label, worker->number,
                  worker->process.pid);
        if (scheduler_slot_return(pipeline->scheduler, worker->chunks[0].slot) == 0)
                pipeline->quarantined--;
        pipeline_step(pipeline);
}
