/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline whose dataset stands in the configuration, and whose workers are interpreters. What its rows are
 * is found out at each start anew, before the ring is made (description.c): code and data may have changed
 * since the last one. From then on `config` is the configuration with all that filled in, and this is a
 * pipeline like any other; `defined` is what was said, for those who compare.
 *
 * With it comes the layout, a text that only the two ends of a batch's way understand: workers, which take
 * samples apart by it, and jobs, which put batches together. */

#include "daemon/pipeline-internal.h"

#include "base/fault.h"
#include "daemon/description.h"
#include "daemon/log.h"
#include "proto/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_described(const struct pipeline *pipeline) {
        return pipeline->config == &pipeline->completed;
}

void pipeline_forget_description(struct pipeline *pipeline) {
        pipeline->description = description_free(pipeline->description, pipeline->state == PIPELINE_STOPPING);
        if (is_described(pipeline))
                description_forget(&pipeline->completed);
        pipeline->config = pipeline->defined;
        free(pipeline->layout);
        pipeline->layout = NULL;
}

static int take(struct pipeline *pipeline, const struct message_described *described) {
        int r = description_complete(&pipeline->completed, pipeline->defined, pipeline->whole->file,
                                     described, &pipeline->failure);

        if (r < 0) {
                description_forget(&pipeline->completed);
                return r;
        }
        pipeline->config = &pipeline->completed;
        pipeline->layout = strdup(described->layout);
        if (pipeline->layout)
                return 0;
        return fault_set(&pipeline->failure, -ENOMEM, "no memory for the layout of pipeline %s",
                         pipeline->label);
}

static void on_described(void *context, const struct message_described *described) {
        struct pipeline *pipeline = context;
        char name[MESSAGE_TYPE_MAX + 1];
        int r = take(pipeline, described);

        pipeline->description = description_free(pipeline->description, false);
        if (r < 0) {
                pipeline_fail(pipeline, r);
                return;
        }
        fault_sanitize(name, sizeof(name), described->name, strlen(described->name));
        log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_INFO,
                  "pipeline %s: %s gives a %s of %" PRIu64 " samples: %s", pipeline->label,
                  pipeline->config->recipe.source.dataset, name, described->samples,
                  pipeline->config->recipe.source.fields);
        if (!described->deterministic)
                log_about(&(struct log_subject){.pipeline = pipeline->label}, LOG_WARNING,
                          "pipeline %s: a sample came out different when it was made again with the same "
                          "random states; look for random generators of the dataset's own, which "
                          "pinfeed.sample_rng() replaces, and for the time of day",
                          pipeline->label);
        pipeline_take_resources(pipeline);
        pipeline_step(pipeline);
}

static void on_failed(void *context, const struct message_broken *broken) {
        struct pipeline *pipeline = context;

        pipeline->description = description_free(pipeline->description, false);
        pipeline_fail_raised(pipeline, NULL, broken);
}

int pipeline_describe(struct pipeline *pipeline) {
        static const struct description_events events = {.described = on_described, .failed = on_failed};
        int r;

        r = description_start(&pipeline->description, pipeline->loop, &pipeline->interpreter,
                              (int)pipeline->whole->nice, &pipeline->defined->recipe, &events, pipeline,
                              &pipeline->failure);
        if (r < 0)
                return fault_prefix(&pipeline->failure, r, "pipeline %s (%s:%u)", pipeline->label,
                                    pipeline->whole->file, pipeline->config->line);
        pipeline->state = PIPELINE_DESCRIBING;
        pipeline_report(pipeline, true);
        return 0;
}
