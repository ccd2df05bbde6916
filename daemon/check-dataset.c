/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * For `--check` a dataset in Python is asked what it is in the same way as by a daemon (description.c), in a
 * loop of its own: an interpreter, the factory, two samples. What is raised there is printed whole, since
 * whoever checks a configuration is about to mend it.
 */

#include "daemon/check.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/config.h"
#include "daemon/description.h"
#include "daemon/interpreter.h"
#include "proto/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct question {
        const struct config *config;
        const struct config_pipeline *pipeline;
        struct config_pipeline *completed;
        FILE *out;
        struct description *description;
        struct fault fault;
        int result;
};

/* Line by line, without control bytes. */
static void print_traceback(FILE *out, const char *text) {
        char line[FAULT_TEXT_MAX];

        for (; *text; text += *text == '\n') {
                size_t length = strcspn(text, "\n");

                fault_sanitize(line, sizeof(line), text, length);
                fprintf(out, "    %s\n", line);
                text += length;
        }
}

static void on_described(void *context, const struct message_described *described) {
        struct question *question = context;
        char name[MESSAGE_TYPE_MAX + 1];

        fault_sanitize(name, sizeof(name), described->name, strlen(described->name));
        question->result = description_complete(question->completed, question->pipeline,
                                                question->config->file, described, &question->fault);
        question->description = description_free(question->description, true);
        fprintf(question->out, "  %-11s %s, %" PRIu64 " samples\n", "dataset", name, described->samples);
        if (!described->deterministic)
                fprintf(question->out, "  %-11s the same sample came out different when it was made twice\n",
                        "warning");
        if (question->result < 0)
                fprintf(question->out, "  %-11s no: %s\n", "usable", question->fault.text);
}

static void on_failed(void *context, const struct message_broken *broken) {
        struct question *question = context;
        char where[32] = "";

        if (broken->sample_given)
                snprintf(where, sizeof(where), "sample %" PRIu64 ": ", broken->sample);
        question->result =
                fault_set(&question->fault, -EIO, "pipeline %s (%s:%u): %s%s", question->pipeline->name,
                          question->config->file, question->pipeline->line, where, broken->text);
        question->description = description_free(question->description, true);
        fprintf(question->out, "  %-11s no: %s%s\n", "dataset", where, broken->text);
        print_traceback(question->out, broken->traceback);
}

static void ask(struct question *question, const struct interpreter *interpreter, uv_loop_t *loop) {
        static const struct description_events events = {.described = on_described, .failed = on_failed};

        question->result =
                description_start(&question->description, loop, interpreter, (int)question->config->nice,
                                  &question->pipeline->recipe, &events, question, &question->fault);
        if (question->result < 0) {
                fprintf(question->out, "  %-11s no: %s\n", "dataset", question->fault.text);
                fault_prefix(&question->fault, question->result, "pipeline %s (%s:%u)",
                             question->pipeline->name, question->config->file, question->pipeline->line);
        }
        uv_run(loop, UV_RUN_DEFAULT);
}

int check_dataset(const struct config *config, const struct config_pipeline *pipeline, FILE *out,
                  struct config_pipeline *completed, struct fault *fault) {
        struct question question = {
                .config = config, .pipeline = pipeline, .completed = completed, .out = out};
        _cleanup_(freep) struct interpreter *interpreter = calloc(1, sizeof(*interpreter));
        uv_loop_t loop;

        if (!interpreter || uv_loop_init(&loop) < 0)
                return fault_set(fault, -ENOMEM, "no memory to start an interpreter");
        interpreter_init(interpreter, pipeline->recipe.source.interpreter);
        fflush(out);
        ask(&question, interpreter, &loop);
        uv_loop_close(&loop);
        if (question.result < 0)
                fault_set(fault, question.result, "%s", question.fault.text);
        return question.result;
}
