/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* verify: the daemon does it and tells, line by line, first how far it is, then what was bad. Samples are
 * kept until the last line, for a table needs all its rows; there are a thousand of them at most. */

#include "client/ctl/ctl.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/table.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        VERIFY_BAR = 20,      /* characters */
        VERIFY_TELLING_S = 1, /* before what is left can be told from what is done */
};

struct verification {
        json_t *list;
        uint64_t began_ns; /* to try samples; 0: not yet */
};

/* ", 2 min 30 s left", in whole seconds; "" as long as it is a guess. */
static const char *tell_rest(const struct verification *verification, uint64_t done, uint64_t total,
                             char *text, size_t size) {
        double seconds = (double)(clock_ns() - verification->began_ns) / NS_PER_S, left;
        char minutes[NUMBER_TEXT_MAX];

        *text = 0;
        if (done == 0 || seconds < VERIFY_TELLING_S)
                return text;
        left = seconds * (double)(total - done) / (double)done;
        if (left < 59.5)
                snprintf(text, size, ", %.0f s left", left);
        else
                snprintf(text, size, ", %s left", table_seconds(minutes, left));
        return text;
}

static void show_done(struct verification *verification, uint64_t done, uint64_t total, uint64_t bad) {
        char bar[TABLE_BAR_MAX], count[NUMBER_TEXT_MAX], all[NUMBER_TEXT_MAX], wrong[NUMBER_TEXT_MAX];
        char rest[NUMBER_TEXT_MAX + 16];

        if (!verification->began_ns)
                verification->began_ns = clock_ns();
        ctl_live("%s %3.0f %%  %s of %s, %s bad%s", table_bar(bar, VERIFY_BAR, done, total),
                 100.0 * (double)done / (double)total, number_format_count(count, done),
                 number_format_count(all, total), number_format_count(wrong, bad),
                 tell_rest(verification, done, total, rest, sizeof(rest)));
}

static void show_progress(struct verification *verification, const json_t *line) {
        uint64_t total = ctl_number_of(line, "total");
        char files[NUMBER_TEXT_MAX];

        if (json_is_string(json_object_get(line, "waiting")))
                ctl_live("the pipeline is %s, %s files", ctl_text_of(line, "waiting"),
                         number_format_count(files, ctl_number_of(line, "files")));
        else if (total > 0)
                show_done(verification, ctl_number_of(line, "samples"), total, ctl_number_of(line, "bad"));
}

/* A line that is not the last one. */
static void on_line(void *context, json_t *line) {
        struct verification *verification = context;

        if (json_is_integer(json_object_get(line, "sample")))
                json_array_append(verification->list, line);
        else
                show_progress(verification, line);
}

static void print_list(const json_t *list) {
        struct table table;
        size_t index;
        json_t *sample;

        table_init(&table, "r sample|l file|T reason");
        json_array_foreach((json_t *)list, index, sample) {
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(sample, "sample"));
                table_add(&table, "%s", *ctl_text_of(sample, "file") ? ctl_text_of(sample, "file") : "-");
                table_add(&table, "%s%s",
                          json_is_true(json_object_get(sample, "condemned")) ? "condemned; " : "",
                          ctl_text_of(sample, "text"));
        }
        table_print(&table);
        table_deinit(&table);
}

/* "10,000 samples, 3 bad, 1 condemned; 2 condemned samples cleared" */
static void print_summary(const json_t *summary, size_t listed) {
        uint64_t samples = ctl_number_of(summary, "samples"), bad = ctl_number_of(summary, "bad"),
                 condemned = ctl_number_of(summary, "condemned"), cleared = ctl_number_of(summary, "cleared");
        char text[NUMBER_TEXT_MAX];

        printf("%s sample%s, ", number_format_count(text, samples), ctl_plural(samples));
        printf("%s bad", number_format_count(text, bad));
        if (bad > listed)
                printf(" (the first %zu are listed)", listed);
        if (condemned > 0)
                printf(", %s condemned", number_format_count(text, condemned));
        if (cleared > 0)
                printf("; %s condemned sample%s cleared%s", number_format_count(text, cleared),
                       ctl_plural(cleared),
                       json_is_true(json_object_get(summary, "restarted"))
                               ? ""
                               : ", and replaced until the last job of this run has left");
        putchar('\n');
}

/* As the daemon's answer has it, with the list. */
static void print(json_t *summary, json_t *list, bool as_json) {
        if (!json_is_integer(json_object_get(summary, "samples")))
                return; /* it was refused */
        if (as_json) {
                json_object_set(summary, "list", list);
                ctl_print_json(summary);
        } else {
                print_list(list);
                print_summary(summary, json_array_size(list));
        }
}

static json_t *ask(const struct ctl *ctl, const char *pipeline, struct verification *verification,
                   struct fault *fault) {
        json_t *request = json_pack("{s:s, s:s}", "command", "verify", "pipeline", pipeline), *summary;
        char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;

        json_decref(request);
        if (!text) {
                fault_set(fault, -EINVAL, "the pipeline's name is no UTF-8, or memory is short");
                return NULL;
        }
        summary = control_ask_long(ctl->runtime_dir, text, on_line, verification, fault);
        free(text);
        return summary;
}

static int verify(const struct ctl *ctl, const char *pipeline, bool as_json) {
        struct verification verification = {.list = json_array()};
        struct fault fault = {0};
        json_t *summary;
        const char *error;
        int r = CTL_OK;

        summary = ask(ctl, pipeline, &verification, &fault);
        error = summary ? json_string_value(json_object_get(summary, "error")) : fault.text;
        ctl_live_end();
        if (summary)
                print(summary, verification.list, as_json);
        if (error)
                r = ctl_fail("%s", error);
        else if (ctl_number_of(summary, "bad") > 0)
                r = CTL_FAILED;
        json_decref(verification.list);
        json_decref(summary);
        return r;
}

int command_verify(const struct ctl *ctl, int argc, char **argv) {
        bool as_json;
        int r;

        if (!ctl_json_option(ctl, argc, argv, &as_json, &r))
                return r;
        if (optind + 1 != argc)
                return ctl_usage(ctl, "expected one pipeline");
        return verify(ctl, argv[optind], as_json);
}
