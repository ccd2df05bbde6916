/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Failure: what cannot be mended ends the jobs that need it, each with the same words. A sample that cannot
 * be read, or that does not decode where on_error says `fail`, ends its stream: the jobs with the seed it was
 * made for. They are detached before the chunk is given up, so that nobody asks for the same rows again at
 * once. A pipeline without ring, samples or workers that live fails as a whole. Dead workers are another
 * matter: pipeline-recovery.c. */

#include "daemon/pipeline-internal.h"

#include "base/fault.h"
#include "daemon/description.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void pipeline_fail_jobs(struct pipeline *pipeline, bool all, uint64_t seed,
                        const struct message_failed *failed) {
        list_for_each_safe (link, &pipeline->jobs) {
                struct job *job = pipeline_job_of(link);

                if (!all && job->seed != seed)
                        continue;
                if (job->state == JOB_ATTACHED || *failed->exception)
                        job_fail(job, failed);
                else
                        job_refuse(job, -(int)failed->error, failed->text);
        }
}

void pipeline_lose(struct pipeline *pipeline, const struct message_chunk *chunk,
                   const struct message_failed *failed) {
        fault_set(&pipeline->failure, -(int)failed->error, "pipeline %s: %s", pipeline->label, failed->text);
        log_about(&(struct log_subject){.pipeline = pipeline->label,
                                        .sample = failed->sample_given ? &failed->sample : NULL},
                  LOG_ERROR, "%s", pipeline->failure.text);
        pipeline->stepping = true; /* no new work before all of this is done */
        pipeline_fail_jobs(pipeline, false, chunk->seed, failed);
        pipeline_clear_suspect(pipeline, chunk->slot, chunk->first);
        scheduler_chunk_lost(pipeline->scheduler, chunk->slot, chunk->first, chunk->rows);
        pipeline_drop_suspects(pipeline, chunk->slot);
        pipeline->stepping = false;
        pipeline_step(pipeline);
}

/* "worker 3 (pid 77) was killed by signal 9 while at sample 812 (n01440764/x.JPEG)" */
void pipeline_describe_death(const struct pipeline *pipeline, const struct pool_worker *worker,
                             struct message_failed *failed) {
        uint64_t sample = atomic_load_explicit(&worker->page->sample, memory_order_acquire);
        char how[FAULT_TEXT_MAX + 64], where[MESSAGE_FILE_MAX + 64] = "", pid[32] = "";
        struct fault fault;

        *failed = (struct message_failed){.error = EIO,
                                          .worker = worker->number,
                                          .pid = (uint32_t)worker->process.pid,
                                          .signal = (uint8_t)worker->process.signal,
                                          .exit_status = (uint8_t)worker->process.exit_status};
        if (worker->n_chunks > 0 && sample != WORKER_PAGE_IDLE) {
                failed->sample_given = 1;
                failed->sample = sample;
                pipeline_name_sample(pipeline, sample, failed->file, sizeof(failed->file));
                snprintf(where, sizeof(where), " while at sample %" PRIu64 "%s%s%s", sample,
                         *failed->file ? " (" : "", failed->file, *failed->file ? ")" : "");
        }
        if (worker->process.error > 0)
                snprintf(how, sizeof(how), "could not be forked by its zygote (pid %d): %s",
                         pipeline->zygote_pid, strerror(worker->process.error));
        else if (worker->process.orphaned)
                snprintf(how, sizeof(how), "has ended with the zygote that forked it");
        else if (*worker->expelled.text)
                snprintf(how, sizeof(how), "was killed by pinfeedd: %s", worker->expelled.text);
        else if (worker->process.signal)
                snprintf(how, sizeof(how), "was killed by signal %d", worker->process.signal);
        else
                snprintf(how, sizeof(how), "ended with exit status %d", worker->process.exit_status);
        if (worker->process.pid > 0)
                snprintf(pid, sizeof(pid), " (pid %d)", worker->process.pid);
        fault_set(&fault, -EIO, "worker %u%s %s%s", worker->number, pid, how, where);
        snprintf(failed->text, sizeof(failed->text), "%s", fault.text);
}

/* Line by line: what else may stand in a traceback belongs on no terminal. */
void pipeline_clean_traceback(char *to, size_t size, const char *from) {
        size_t used = 0;

        while (*from && used + 1 < size) {
                size_t length = strcspn(from, "\n");

                fault_sanitize(to + used, size - used, from, length);
                used += strlen(to + used);
                from += length;
                if (*from == '\n' && used + 1 < size) {
                        to[used++] = '\n';
                        from++;
                }
        }
        to[used] = 0;
}

/* Every job is told, workers end, the next attach begins anew. */
static void fail(struct pipeline *pipeline, int error, struct message_failed *failed) {
        failed->error = (uint16_t)-error;
        snprintf(failed->text, sizeof(failed->text), "%s", pipeline->failure.text);
        log_about(&(struct log_subject){.pipeline = pipeline->label,
                                        .sample = failed->sample_given ? &failed->sample : NULL},
                  LOG_ERROR, "%s", failed->text);
        uv_idle_stop(&pipeline->reserving);
        uv_idle_stop(&pipeline->growing);
        uv_timer_stop(&pipeline->reporting);
        uv_timer_stop(&pipeline->restart);
        uv_timer_stop(&pipeline->resting);
        pipeline_forget_space(pipeline);
        pipeline->state = PIPELINE_FAILED;
        pipeline->description = description_free(pipeline->description, false);
        pipeline_fail_jobs(pipeline, true, 0, failed);
        orders_deinit(&pipeline->orders);
        pool_stop(&pipeline->pool, false);
        pipeline_announce(pipeline, error);
        budget_share_out(pipeline->budget); /* its workers are not busy any more */
}

void pipeline_fail(struct pipeline *pipeline, int error) {
        struct message_failed failed = {};

        fail(pipeline, error, &failed);
}

/* Its own errno would say something else to a job: ENOENT is "no such pipeline". */
void pipeline_fail_raised(struct pipeline *pipeline, const struct pool_worker *worker,
                          const struct message_broken *broken) {
        struct message_failed failed = {};
        char who[64] = "";

        failed.sample_given = broken->sample_given;
        failed.sample = broken->sample;
        if (broken->sample_given)
                snprintf(who, sizeof(who), "sample %" PRIu64 ": ", broken->sample);
        if (worker) {
                failed.worker = worker->number;
                failed.pid = (uint32_t)worker->process.pid;
                snprintf(who, sizeof(who), "worker %u: ", worker->number);
        }

        fault_sanitize(failed.exception, sizeof(failed.exception), broken->exception,
                       strlen(broken->exception));
        pipeline_clean_traceback(failed.traceback, sizeof(failed.traceback), broken->traceback);
        fault_set(&pipeline->failure, -EIO, "pipeline %s (%s:%u): %s%s", pipeline->label,
                  pipeline->whole->file, pipeline->config->line, who, broken->text);
        fail(pipeline, -EIO, &failed);
}
