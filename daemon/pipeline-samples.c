/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Bad samples and condemned ones.
 *
 * A bad sample does not decode; its worker has replaced it and says so. It is counted once, logged once,
 * shown in status, and when there are more of them than max_errors allows the jobs end: a model should not be
 * trained on substitutes without anybody knowing.
 *
 * A condemned sample kills or hangs whoever touches it. Each worker is told of all of them before its first
 * chunk, and of new ones as they come. They are kept in a file, by what the source contains, not by where it
 * lies; the file is read and written in another thread on a copy, since a state directory may be slow, and
 * one at a time. */

#include "daemon/pipeline-internal.h"

#include "base/fault.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"
#include "daemon/verdicts.h"
#include "proto/index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
        CONDEMNED_PER_RECORD = 512, /* what a CONDEMNED message holds */
};

void pipeline_name_sample(const struct pipeline *pipeline, uint64_t sample, char *file, size_t size) {
        char name[MESSAGE_FILE_MAX + 1];

        file[0] = 0;
        if (pipeline->index_fd >= 0 && index_read_name(pipeline->index_fd, sample, name, sizeof(name)) == 0)
                fault_sanitize(file, size, name, strlen(name));
}

/* ---- bad samples ---- */

void pipeline_on_replaced(void *context, const struct pool_worker *worker,
                          const struct message_replaced *replaced) {
        struct pipeline *pipeline = context;
        char file[MESSAGE_FILE_MAX + 1], text[MESSAGE_TEXT_MAX + 1];

        fault_sanitize(file, sizeof(file), replaced->file, strlen(replaced->file));
        fault_sanitize(text, sizeof(text), replaced->text, strlen(replaced->text));
        if (ledger_add(&pipeline->ledger, replaced->sample, replaced->error, file, text))
                log_about(&(struct log_subject){.pipeline = pipeline->label,
                                                .worker = &worker->number,
                                                .sample = &replaced->sample},
                          LOG_WARNING,
                          "pipeline %s: sample %" PRIu64 "%s%s%s is replaced: %s; mend or remove it",
                          pipeline->label, replaced->sample, *file ? " (" : "", file, *file ? ")" : "", text);
}

bool pipeline_judge_samples(struct pipeline *pipeline) {
        struct scheduler_counters counters;
        struct message_failed failed = {.error = EIO};
        struct fault fault;

        scheduler_counters(pipeline->scheduler, &counters);
        if (ledger_judge(&pipeline->ledger, pipeline->index.samples, counters.rows_prepared,
                         pipeline->config->max_errors, &fault) == 0)
                return false;
        fault_set(&pipeline->failure, -EIO, "pipeline %s: %s", pipeline->label, fault.text);
        pipeline->spoilt = true;
        if (list_is_empty(&pipeline->jobs))
                return true;
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_ERROR, "%s",
                  pipeline->failure.text);
        snprintf(failed.text, sizeof(failed.text), "%s", pipeline->failure.text);
        pipeline_fail_jobs(pipeline, true, 0, &failed);
        return true;
}

/* ---- condemned ones ---- */

void pipeline_tell_condemned(struct pipeline *pipeline, struct pool_worker *worker) {
        const struct verdicts *verdicts = pipeline->verdicts;
        struct message message;

        message.type = MESSAGE_CONDEMNED;
        for (size_t i = 0; i < verdicts->n; i += message.condemned.n_sample) {
                uint32_t n = 0;

                for (; n < CONDEMNED_PER_RECORD && i + n < verdicts->n; n++)
                        message.condemned.sample[n] = verdicts->list[i + n].sample;
                message.condemned.n_sample = n;
                pool_worker_send(worker, &message, -1);
        }
}

static void tell_all(struct pipeline *pipeline, uint64_t sample) {
        struct message message;

        message.type = MESSAGE_CONDEMNED;
        message.condemned.n_sample = 1;
        message.condemned.sample[0] = sample;
        list_for_each (link, &pipeline->pool.workers) {
                struct pool_worker *worker = container_of(link, struct pool_worker, link);

                if (worker->state == POOL_WORKER_IDLE || worker->state == POOL_WORKER_BUSY)
                        pool_worker_send(worker, &message, -1);
        }
}

/* ---- their file ---- */

/* A file may have been edited by hand, or be of a source that was larger. */
static void drop_strangers(struct pipeline *pipeline) {
        struct verdicts *verdicts = pipeline->verdicts;

        while (verdicts->n > 0 && verdicts->list[verdicts->n - 1].sample >= pipeline->index.samples &&
               verdicts_remove(verdicts, verdicts->list[verdicts->n - 1].sample) > 0)
                ;
}

static void work(struct pipeline *pipeline, uv_work_cb in_thread, uv_after_work_cb after) {
        pipeline->verdict_work.data = pipeline;
        pipeline->work_fault.text[0] = 0;
        pipeline->work_result = 0;
        if (verdicts_find_directory(pipeline->state_directory, &pipeline->work_fault) < 0)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING,
                          "pipeline %s: condemned samples are not kept: %s", pipeline->label,
                          pipeline->work_fault.text);
        else if (verdicts_copy(&pipeline->work_copy, pipeline->verdicts) < 0 ||
                 uv_queue_work(pipeline->loop, &pipeline->verdict_work, in_thread, after) < 0) {
                pipeline->work_copy = verdicts_free(pipeline->work_copy);
                pipeline->work_result =
                        fault_set(&pipeline->work_fault, -ENOMEM, "no memory to keep the condemned samples");
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING, "pipeline %s: %s",
                          pipeline->label, pipeline->work_fault.text);
        }
}

static void tell_trouble(const struct pipeline *pipeline) {
        if (pipeline->work_result != 0)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING, "pipeline %s: %s",
                          pipeline->label, pipeline->work_fault.text);
}

static void save_in_thread(uv_work_t *request) {
        struct pipeline *pipeline = request->data;

        pipeline->work_result =
                verdicts_save(pipeline->work_copy, pipeline->state_directory, &pipeline->work_fault);
}

static void save(struct pipeline *pipeline);

static void on_saved(uv_work_t *request, int status) {
        struct pipeline *pipeline = request->data;

        tell_trouble(pipeline);
        pipeline->work_copy = verdicts_free(pipeline->work_copy);
        if (pipeline->verdicts_dirty && pipeline->state == PIPELINE_READY)
                save(pipeline);
        pipeline_rest(pipeline);
        pipeline_start_anew(pipeline);
}

/* Not those of a dataset that a script brings: its code changes from run to run. */
static void save(struct pipeline *pipeline) {
        if (pipeline_is_brought(pipeline))
                return;
        pipeline->verdicts_dirty = pipeline->work_copy != NULL;
        if (!pipeline->verdicts_dirty)
                work(pipeline, save_in_thread, on_saved);
}

static void load_in_thread(uv_work_t *request) {
        struct pipeline *pipeline = request->data;

        pipeline->work_result =
                verdicts_load(pipeline->work_copy, pipeline->state_directory, &pipeline->work_fault);
}

static void on_loaded(uv_work_t *request, int status) {
        struct pipeline *pipeline = request->data;

        tell_trouble(pipeline);
        if (pipeline->state != PIPELINE_RESERVING && pipeline->state != PIPELINE_SCANNING) {
                pipeline->work_copy = verdicts_free(pipeline->work_copy);
                pipeline_start_anew(pipeline); /* it has failed meanwhile, or is stopping */
                return;
        }
        verdicts_free(pipeline->verdicts);
        pipeline->verdicts = pipeline->work_copy;
        pipeline->work_copy = NULL;
        drop_strangers(pipeline);
        if (verdicts_count(pipeline->verdicts) > 0)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING,
                          "pipeline %s: %zu condemned samples are replaced; see pinfeedctl status",
                          pipeline->label, verdicts_count(pipeline->verdicts));
        pipeline_become_ready(pipeline);
}

void pipeline_read_verdicts(struct pipeline *pipeline) {
        char fingerprint[VERDICTS_HEX_BYTES + 1];
        int r;

        r = verdicts_fingerprint(fingerprint, &pipeline->config->recipe, pipeline->index.sha256,
                                 pipeline->index.samples);
        if (r >= 0)
                r = verdicts_new(&pipeline->verdicts, pipeline->label, fingerprint);
        if (r < 0) {
                fault_set(&pipeline->failure, r, "no memory for the verdicts of pipeline %s",
                          pipeline->label);
                pipeline_fail(pipeline, r);
                return;
        }
        if (!pipeline_is_brought(pipeline))
                work(pipeline, load_in_thread, on_loaded);
        pipeline_become_ready(pipeline); /* if there was nothing to load, or not even that was possible */
}

void pipeline_condemn(struct pipeline *pipeline, uint64_t sample, const char *file, const char *text) {
        int r = verdicts_add(pipeline->verdicts, sample, file, text, (uint64_t)time(NULL));

        log_about(&(struct log_subject){.pipeline = pipeline->label, .sample = &sample}, LOG_ERROR,
                  "pipeline %s: sample %" PRIu64
                  "%s%s%s is condemned, it is replaced from now on: %s; mend it, then run 'pinfeedctl verify "
                  "%s'",
                  pipeline->label, sample, *file ? " (" : "", file, *file ? ")" : "", text, pipeline->label);
        if (r < 0 || r == VERDICTS_E_FULL)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_ERROR,
                          "pipeline %s: no more samples can be condemned; mend the data set",
                          pipeline->label);
        tell_all(pipeline, sample);
        save(pipeline);
}

uint32_t pipeline_lift(struct pipeline *pipeline, const uint64_t *samples, uint32_t n) {
        uint32_t lifted = 0;

        for (uint32_t i = 0; i < n; i++)
                lifted += verdicts_lift(pipeline->verdicts, samples[i]) > 0;
        if (lifted > 0)
                save(pipeline);
        pipeline_rest(pipeline); /* where there is no file to wait for */
        return lifted;
}

bool pipeline_is_saving(const struct pipeline *pipeline) {
        return pipeline->work_copy != NULL;
}
