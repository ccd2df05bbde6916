#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Asking a dataset in Python what its rows are: one process, one question, one answer. */

#include <stdbool.h>
#include <uv.h>

struct config_pipeline;
struct description;
struct fault;
struct interpreter;
struct message_broken;
struct message_described;
struct recipe;

/* One of them comes, once, never from within description_start; then description_free is due, which may be
 * called in it. */
struct description_events {
        void (*described)(void *context, const struct message_described *described);
        /* Texts as they may be printed; `exception` and `traceback` are empty when the process just ended. */
        void (*failed)(void *context, const struct message_broken *broken);
};

/* 0, or -EIO when the interpreter cannot be started, or another negative errno. */
int description_start(struct description **description, uv_loop_t *loop,
                      const struct interpreter *interpreter, int nice, const struct recipe *recipe,
                      const struct description_events *events, void *context, struct fault *fault);

/* Ends the process; no event comes any more. `for_good`: it is not waited for, since the loop shall end. NULL
 * is fine. Returns NULL. */
struct description *description_free(struct description *description, bool for_good);

/* The pipeline of `defined` with what was found: its fields, samples and ring. 0, or a negative errno: what
 * was found is not what the configuration says, or gives no ring. `completed` shares all else with `defined`,
 * which has to outlive it; it is good for description_forget in any case. */
int description_complete(struct config_pipeline *completed, const struct config_pipeline *defined,
                         const char *file, const struct message_described *described, struct fault *fault);
/* The same again for a `defined` that says the same of the rows (config_is_alike): what was found still
 * holds. */
void description_retake(struct config_pipeline *completed, const struct config_pipeline *defined);
void description_forget(struct config_pipeline *completed);
