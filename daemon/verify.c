/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A verification from the question to the answer.
 *
 *     IDLE --start--> WAITING --pipeline ready--> TRYING --all judged--> ENDING --workers gone--> CLEARING
 *       ^                                                                                            |
 *       +-------------------- all lines taken -------- TELLING <------ file of verdicts written -----+
 *
 * It has workers of its own and shares nothing with the pipeline but what it copies when it begins: the
 * pipeline may fail and start anew meanwhile. Both take their CPU time at the same nice. Whoever goes away
 * before the end ends it, and nothing is cleared then; a failure goes the same way as success, so that what
 * was found until then is told.
 *
 * A tick does what nobody calls for: looks whether the pipeline has become ready, starts workers after deaths
 * in vain, and tells how far things are. That line also says to the other side that the daemon lives, so it
 * comes in every state. It is left out while the line before was not taken.
 *
 * Condemned samples are tried like all others. Those that turn out good are taken out of the file. A pipeline
 * at work goes by the list that its workers know, until its run ends (pipeline_lift). */

#include "daemon/verify.h"

#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
        TICK_MS = 200,
};

static json_t *number(uint64_t value) {
        return json_integer((json_int_t)value); /* of samples: below 2^48 */
}

/* ---- the answer ---- */

static json_t *make_progress(const struct verify *verify) {
        const struct pipeline *pipeline = verify->pipeline;

        if (verify->state == VERIFY_WAITING)
                return json_pack("{s:i, s:n, s:s, s:o}", "samples", 0, "total", "waiting",
                                 pipeline_state_name(pipeline->state), "files", number(pipeline->scan_files));
        return json_pack("{s:o, s:o, s:o}", "samples", number(verify->done), "total",
                         number(verify->index.samples), "bad", number(findings_count(&verify->findings)));
}

static json_t *make_line(const struct finding *finding) {
        return json_pack("{s:o, s:s, s:s, s:b}", "sample", number(finding->sample), "file", finding->file,
                         "text", finding->text, "condemned", finding->condemned);
}

static json_t *make_summary(const struct verify *verify) {
        json_t *summary = json_pack("{s:o, s:o, s:o, s:o, s:b}", "samples", number(verify->done), "bad",
                                    number(findings_count(&verify->findings)), "condemned",
                                    number(verify->findings.n_condemned - verify->cleared), "cleared",
                                    number(verify->cleared), "restarted", verify->restarted);

        if (*verify->failure.text)
                json_object_set_new(summary, "error", json_string(verify->failure.text));
        return summary;
}

/* Back to IDLE, with nothing left of it. */
static void rest(struct verify *verify) {
        uv_timer_stop(&verify->tick);
        fd_closep(&verify->index_fd);
        fd_closep(&verify->ring_fd);
        findings_deinit(&verify->findings);
        pipeline_keep(verify->pipeline, false);
        verify->pipeline = NULL;
        verify->events = NULL;
        verify->state = VERIFY_IDLE;
}

static void tell(struct verify *verify) {
        const struct verify_events *events = verify->events;
        json_t *summary;

        if (!events->can_tell(verify->context))
                return;
        if (verify->told < verify->findings.n_listed) {
                events->tell(verify->context, make_line(&verify->findings.listed[verify->told++]));
                return;
        }
        summary = make_summary(verify);
        rest(verify);
        events->end(verify->context, summary);
}

/* ---- clearing ---- */

/* The file is written, or there was nothing to write. */
static void finish_clearing(struct verify *verify) {
        const struct pipeline *pipeline = verify->pipeline;

        if (verify->cleared > 0 && pipeline_is_saving(pipeline))
                return;
        if (verify->cleared > 0 && pipeline->work_result < 0) {
                verify->cleared = 0;
                fault_set(&verify->failure, pipeline->work_result,
                          "pipeline %s: the list of condemned samples could not be written: %s",
                          pipeline->label, pipeline->work_fault.text);
        }
        verify->restarted = verify->cleared > 0 &&
                            (pipeline->state != PIPELINE_READY || pipeline->verdicts->n_lifted == 0);
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s is verified: %" PRIu64 " samples, %" PRIu64 " bad, %u verdicts cleared%s%s",
                  pipeline->label, verify->done, findings_count(&verify->findings), verify->cleared,
                  *verify->failure.text ? "; " : "", verify->failure.text);
        verify->state = VERIFY_TELLING;
        tell(verify);
}

static void clear(struct verify *verify) {
        struct pipeline *pipeline = verify->pipeline;
        uint32_t good = *verify->failure.text ? 0 : findings_take_good(&verify->findings);

        verify->state = VERIFY_CLEARING;
        if (good > 0 && (pipeline->state != PIPELINE_READY ||
                         strcmp(pipeline->verdicts->fingerprint, verify->fingerprint) != 0))
                fault_set(&verify->failure, -EAGAIN,
                          "pipeline %s was started anew while it was verified, so no verdict was cleared; "
                          "verify it again",
                          pipeline->label);
        else if (good > 0)
                verify->cleared = pipeline_lift(pipeline, verify->findings.condemned, good);
        finish_clearing(verify);
}

void verify_on_ended(struct verify *verify) {
        if (verify->state == VERIFY_STOPPED)
                pool_deinit(&verify->pool);
        else if (verify->events)
                clear(verify);
        else
                rest(verify);
}

/* ---- waiting ---- */

/* What a failed try has left behind keeps a start from being one, see pipeline_start. */
static void wait_on(struct verify *verify) {
        struct pipeline *pipeline = verify->pipeline;
        bool is_cleared_away = !pipeline->pool.stopping && !pipeline->work_copy;

        if (pipeline->state == PIPELINE_READY) {
                verify_begin_work(verify);
        } else if (pipeline->state == PIPELINE_IDLE ||
                   (pipeline->state == PIPELINE_FAILED && !verify->started)) {
                verify->started = is_cleared_away;
                if (is_cleared_away)
                        pipeline_start(pipeline);
        } else if (pipeline->state == PIPELINE_FAILED) {
                verify->failure = pipeline->failure;
                verify_end_work(verify);
        }
}

static void on_tick(uv_timer_t *timer) {
        struct verify *verify = timer->data;

        if (verify->state == VERIFY_WAITING)
                wait_on(verify);
        else if (verify->state == VERIFY_TRYING && verify->pool.n_workers < verify->workers)
                verify_grow(verify);
        else if (verify->state == VERIFY_CLEARING)
                finish_clearing(verify);
        if (!verify->events)
                return;
        if (verify->state == VERIFY_TELLING)
                tell(verify);
        else if (verify->state != VERIFY_IDLE && verify->events->can_tell(verify->context))
                verify->events->tell(verify->context, make_progress(verify));
}

/* ---- from outside ---- */

void verify_init(struct verify *verify, uv_loop_t *loop, const char *program, int nice) {
        *verify = VERIFY_NONE;
        verify->loop = loop;
        list_init(&verify->pieces);
        uv_timer_init(loop, &verify->tick);
        uv_idle_init(loop, &verify->growing);
        verify->tick.data = verify->growing.data = verify;
        pool_init(&verify->pool, loop, program, nice, 0, &verify_pool_events, verify);
}

void verify_deinit(struct verify *verify) {
        fd_closep(&verify->index_fd);
        fd_closep(&verify->ring_fd);
        findings_deinit(&verify->findings);
}

int verify_start(struct verify *verify, struct pipeline *pipeline, const struct verify_events *events,
                 void *context, struct fault *fault) {
        if (verify->state != VERIFY_IDLE)
                return fault_set(fault, -EBUSY,
                                 "pipeline %s is being verified, and one verification runs at a time; try "
                                 "again when it has ended",
                                 verify->pipeline->label);
        if (recipe_is_brought(&pipeline->config->recipe))
                return fault_set(fault, -EOPNOTSUPP,
                                 "pipeline %s is a dataset in Python that a script brings, and those cannot "
                                 "be verified from here: only the script has it; iterate over it there",
                                 pipeline->label);
        pipeline_keep(pipeline, true);
        verify->pipeline = pipeline;
        verify->events = events;
        verify->context = context;
        verify->started = verify->restarted = false;
        verify->next = verify->done = 0;
        verify->index = (struct message_index){};
        verify->vain_deaths = verify->cleared = verify->told = 0;
        verify->failure.text[0] = 0;
        verify->state = VERIFY_WAITING;
        uv_timer_start(&verify->tick, on_tick, 0, TICK_MS);
        return 0;
}

void verify_on_taken(struct verify *verify) {
        if (verify->state == VERIFY_TELLING)
                tell(verify);
}

void verify_cancel(struct verify *verify) {
        log_about(&(struct log_subject){.pipeline = verify->pipeline->label}, LOG_INFO,
                  "pipeline %s: its verification is given up, nobody waits for it any more",
                  verify->pipeline->label);
        verify->events = NULL;
        if (verify->state == VERIFY_TRYING)
                verify_end_work(verify);
        else if (verify->state != VERIFY_ENDING)
                rest(verify);
}

void verify_stop(struct verify *verify) {
        verify->events = NULL;
        uv_close((uv_handle_t *)&verify->tick, NULL);
        uv_close((uv_handle_t *)&verify->growing, NULL);
        verify->state = VERIFY_STOPPED;
        pool_stop(&verify->pool, true);
}

bool verify_progress(const struct verify *verify, const struct pipeline *pipeline, uint64_t *done,
                     uint64_t *total) {
        if (verify->pipeline != pipeline || verify->index.samples == 0)
                return false;
        *done = verify->done;
        *total = verify->index.samples;
        return true;
}
