/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The format wants all samples of a family together, behind one HELP and TYPE. So all pipelines are looked at
 * first, each once, and then the table of counters is gone through line by line; what is said of one pipeline
 * is of one moment, and the text of the same state is the same text.
 *
 * Histograms of stages have four buckets an octave where they are kept (proto/stages.h), which `status` takes
 * its percentiles from. Here each octave is one bucket: a quarter of the series, and a percentile that is
 * computed from them is still within its octave. A stage that no row of a pipeline was in is left out.
 *
 * A pipeline's label is its own as long as it is there. One that jobs define goes some time after them, its
 * series end, and if it comes again they begin at 0, as after a restart of the daemon. */

#include "daemon/metrics.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/counters.h"
#include "daemon/daemon.h"
#include "daemon/exposition.h"
#include "daemon/footprint.h"
#include "daemon/guard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
        QUARTERS = STAGE_BUCKETS / STAGE_OCTAVES,
};

/* The pipelines that the reader may know of, and their numbers. */
struct shown {
        uint32_t n;
        const struct pipeline *pipelines[CONFIG_PIPELINES_MAX];
        uint64_t values[CONFIG_PIPELINES_MAX][COUNTERS_OF_PIPELINE];
};

/* ---- what is a number ---- */

static void write_number(FILE *out, const struct counter *counter, const char *pipeline, uint64_t value) {
        struct exposition_label labels[EXPOSITION_LABELS_MAX] = {{"pipeline", pipeline}}, *next = labels;

        if (pipeline)
                next++;
        *next = (struct exposition_label){counter->label, counter->value};
        exposition_name(out, counter->metric, "", labels);
        if (counter->unit == COUNTER_NS)
                exposition_seconds(out, value);
        else
                exposition_number(out, value);
}

static void begin_family(FILE *out, const struct counter *counter) {
        exposition_family(out, counter->metric, counter_type_name(counter->type), counter->help);
}

static void write_daemon(FILE *out, const struct daemon *daemon) {
        uint64_t values[COUNTERS_OF_DAEMON];
        struct footprint footprint;

        footprint_look(&footprint);
        counters_read_daemon(values, daemon, &footprint);
        for (size_t i = 0; i < COUNTERS_OF_DAEMON; i++) {
                const struct counter *counter = &counters_of_daemon[i];

                if (!counter->metric)
                        continue;
                if (counter->help)
                        begin_family(out, counter);
                write_number(out, counter, NULL, values[i]);
        }
}

/* The lines of a family, `first` up to `end`, of all pipelines. */
static void write_family(FILE *out, const struct shown *shown, size_t first, size_t end) {
        begin_family(out, &counters_of_pipeline[first]);
        for (uint32_t i = 0; i < shown->n; i++)
                for (size_t k = first; k < end; k++)
                        write_number(out, &counters_of_pipeline[k], shown->pipelines[i]->label,
                                     shown->values[i][k]);
}

static void write_pipelines(FILE *out, const struct shown *shown) {
        size_t end;

        for (size_t i = 0; i < COUNTERS_OF_PIPELINE; i = end) {
                for (end = i + 1; end < COUNTERS_OF_PIPELINE && !counters_of_pipeline[end].help; end++)
                        ;
                if (counters_of_pipeline[i].metric)
                        write_family(out, shown, i, end);
        }
}

/* ---- what is more ---- */

static void write_version(FILE *out) {
        const struct counter *counter = &counters_special[COUNTER_BUILD_INFO];
        const struct exposition_label labels[EXPOSITION_LABELS_MAX] = {{counter->label, PINFEED_VERSION}};

        begin_family(out, counter);
        exposition_name(out, counter->metric, "", labels);
        exposition_number(out, 1);
}

/* `labels` has room for one more: the bound. */
static void write_bucket(FILE *out, const char *metric, struct exposition_label *labels, const char *bound,
                         uint64_t count) {
        struct exposition_label *le = labels;

        while (le->name && strcmp(le->name, "le") != 0)
                le++;
        *le = (struct exposition_label){"le", bound};
        exposition_name(out, metric, "_bucket", labels);
        exposition_number(out, count);
        *le = (struct exposition_label){};
}

/* The shortest text of it, in seconds. */
static const char *format_bound(char text[32], uint64_t ns) {
        size_t length = (size_t)snprintf(text, 32, "%" PRIu64 ".%09" PRIu64, ns / NS_PER_S, ns % NS_PER_S);

        while (text[length - 1] == '0' && text[length - 2] != '.')
                text[--length] = 0;
        return text;
}

static void write_sums(FILE *out, const char *metric, struct exposition_label *labels, uint64_t ns,
                       uint64_t count) {
        write_bucket(out, metric, labels, "+Inf", count);
        exposition_name(out, metric, "_sum", labels);
        exposition_seconds(out, ns);
        exposition_name(out, metric, "_count", labels);
        exposition_number(out, count);
}

static void write_turns(FILE *out, const struct meter *meter) {
        const struct counter *counter = &counters_special[COUNTER_LOOP_TURN];
        struct exposition_label labels[EXPOSITION_LABELS_MAX] = {};
        uint64_t count = 0;
        char bound[32];

        begin_family(out, counter);
        for (int i = 0; i < METER_BOUNDS; i++) {
                count += meter->turns[i];
                write_bucket(out, counter->metric, labels, format_bound(bound, meter_bounds[i]), count);
        }
        write_sums(out, counter->metric, labels, meter->turns_ns, count + meter->turns[METER_BOUNDS]);
}

static void write_stage(FILE *out, const char *pipeline, const struct stage_times *times,
                        enum row_stage stage) {
        const char *metric = counters_special[COUNTER_STAGE].metric;
        struct exposition_label labels[EXPOSITION_LABELS_MAX] = {{"pipeline", pipeline},
                                                                 {"stage", stage_name(stage)}};
        uint64_t count = 0;
        char bound[32];

        /* The last bucket has no end: more than 137 s is in it. */
        for (uint32_t i = 0; i < STAGE_BUCKETS; i++) {
                count += times->rows[stage][i];
                if (i % QUARTERS == QUARTERS - 1 && i < STAGE_BUCKETS - 1)
                        write_bucket(out, metric, labels, format_bound(bound, stage_bucket_end(i)), count);
        }
        write_sums(out, metric, labels, times->ns[stage], count);
}

static void write_stages(FILE *out, const struct shown *shown) {
        begin_family(out, &counters_special[COUNTER_STAGE]);
        for (uint32_t i = 0; i < shown->n; i++) {
                struct stage_times times;

                pool_stages(&shown->pipelines[i]->pool, &times);
                for (int k = 0; k < STAGE_KINDS; k++)
                        if (times.ns[k] > 0)
                                write_stage(out, shown->pipelines[i]->label, &times, (enum row_stage)k);
        }
}

/* ---- the text ---- */

static struct shown *shown_new(const struct daemon *daemon, const struct peer *reader) {
        struct shown *shown = malloc(sizeof(*shown));

        if (!shown)
                return NULL;
        shown->n = 0;
        for (uint32_t i = 0; i < daemon->n_pipelines; i++) {
                if (reader && !guard_may_use(daemon->pipelines[i], reader))
                        continue;
                counters_read_pipeline(shown->values[shown->n], daemon->pipelines[i]);
                shown->pipelines[shown->n++] = daemon->pipelines[i];
        }
        return shown;
}

char *metrics_make(const struct daemon *daemon, const struct peer *reader, size_t *length) {
        _cleanup_(freep) struct shown *shown = shown_new(daemon, reader);
        char *text = NULL;
        FILE *out = shown ? open_memstream(&text, length) : NULL;
        bool failed;

        if (!out)
                return NULL;
        write_version(out);
        write_daemon(out, daemon);
        write_turns(out, &daemon->meter);
        write_pipelines(out, shown);
        write_stages(out, shown);
        failed = ferror(out);
        if (fclose(out) != 0 || failed) {
                free(text);
                return NULL;
        }
        return text;
}
