/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where nobody looks at a screen: a line for each pipeline and interval. A line is whole by itself, so that
 * grep can pick lines and cut can pick members: the time, the pipeline, its state, then NAME=VALUE without
 * spaces in between, and the sentence last, for it has spaces of its own. */

#include "client/ctl/top.h"

#include "base/fault.h"
#include "client/ctl/ctl.h"

#include <math.h>
#include <string.h>

static void print_number(FILE *stream, const char *name, const char *format, double value) {
        fprintf(stream, " %s=", name);
        if (isfinite(value))
                fprintf(stream, format, value);
        else
                fputc('-', stream);
}

static void print_slots(FILE *stream, const json_t *pipeline) {
        struct top_slots slots;

        top_count_slots(&slots, pipeline);
        fprintf(stream, " slots=%llu leased=%llu ready=%llu filling=%llu free=%llu",
                (unsigned long long)slots.all, (unsigned long long)slots.leased,
                (unsigned long long)slots.ready, (unsigned long long)slots.filling,
                (unsigned long long)slots.free);
}

static void print_line(FILE *stream, const struct top_view *view, const char *time, const json_t *pipeline,
                       size_t index) {
        const json_t *before = top_before(view, "pipelines", pipeline, index);
        double prepared = top_pipeline_rate(view, before, pipeline, "rows_prepared");
        double delivered = top_pipeline_rate(view, before, pipeline, "rows_delivered");
        const char *sentence = top_sentence(pipeline);
        char clean[FAULT_TEXT_MAX + 1] = "-";

        if (sentence)
                fault_sanitize(clean, sizeof(clean), sentence, strlen(sentence));
        fprintf(stream, "%s %s %s", time, ctl_text_of(pipeline, "name"), top_state(pipeline));
        print_number(stream, "prepared", "%.0f", prepared);
        print_number(stream, "delivered", "%.0f", delivered);
        print_number(stream, "shared", "%.2f", prepared > 0 ? delivered / prepared : NAN);
        print_number(stream, "mib", "%.1f",
                     delivered * (double)ctl_number_of(pipeline, "row_bytes") / (1 << 20));
        print_number(stream, "busy", "%.2f", top_pipeline_busy(view, before, pipeline));
        fprintf(stream, " workers=%llu jobs=%u", (unsigned long long)ctl_number_of(pipeline, "workers_alive"),
                top_count_jobs(view->now, pipeline));
        print_slots(stream, pipeline);
        fprintf(stream, " held_back_by=%s %s\n",
                ctl_text_of(json_object_get(pipeline, "held_back_by"), "what"), clean);
}

void top_print_lines(FILE *stream, const struct top_view *view, const char *time) {
        const json_t *pipelines = json_object_get(view->now, "pipelines");

        for (size_t i = 0; i < json_array_size(pipelines); i++)
                print_line(stream, view, time, json_array_get(pipelines, i), i);
}
