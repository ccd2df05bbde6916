/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* status, jobs, workers, pipelines: the daemon answers "status" with one JSON object that has everything;
 * these print parts of it. A member that is missing (another version's daemon) shows as a dash or nothing, it
 * never stops the rest: this is the command for when something is wrong. */

#include "client/ctl/ctl.h"

#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/table.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum {
        STATUS_BAR = 10,        /* characters of a job's progress bar */
        STATUS_BAR_LIMIT = 100, /* of a terminal that has room for it */
        STATUS_STRIP_MAX = 64,  /* slots shown of one pipeline */
        STATUS_STRIP_REST = 27, /* a short name before the strip, and "and N more" behind it */
        SAMPLES_SHOWN = 5,      /* bad ones, and condemned ones, of one pipeline */
        IDS_SHOWN = 6,          /* jobs that one shares with */
};

static double real_of(const json_t *object, const char *name) {
        return json_number_value(json_object_get(object, name));
}

/* A number with its thousands apart; "-" for null. */
static void add_count(struct table *table, const json_t *object, const char *name) {
        char text[NUMBER_TEXT_MAX];

        if (json_is_integer(json_object_get(object, name)))
                table_add(table, "%s", number_format_count(text, ctl_number_of(object, name)));
        else
                table_add(table, "-");
}

static void add_rate(struct table *table, const json_t *job) {
        char text[NUMBER_TEXT_MAX];

        if (json_is_number(json_object_get(job, "rows_per_second")))
                table_add(table, "%s",
                          number_format_count(text, (uint64_t)(real_of(job, "rows_per_second") + 0.5)));
        else
                table_add(table, "-");
}

static void add_bytes(struct table *table, const json_t *object, const char *name) {
        char text[NUMBER_TEXT_MAX];

        table_add(table, "%s", number_format_bytes(text, ctl_number_of(object, name)));
}

static void add_seconds(struct table *table, double seconds) {
        char text[NUMBER_TEXT_MAX];

        table_add(table, "%s", table_seconds(text, seconds));
}

static void print_daemon(const json_t *status) {
        const char *config = json_string_value(json_object_get(status, "config"));
        char up[NUMBER_TEXT_MAX], daemon[NUMBER_TEXT_MAX], workers[NUMBER_TEXT_MAX];
        const json_t *cpu = json_object_get(status, "cpu_seconds"),
                     *warnings = json_object_get(status, "warnings");

        table_print_text(2, "pinfeedd %s, pid %llu, up %s, cpus %llu, CPU time: daemon %s, workers %s",
                         ctl_text_of(status, "version"), (unsigned long long)ctl_number_of(status, "pid"),
                         table_seconds(up, real_of(status, "uptime_seconds")),
                         (unsigned long long)ctl_number_of(status, "cpus"),
                         table_seconds(daemon, real_of(cpu, "daemon")),
                         table_seconds(workers, real_of(cpu, "workers")));
        table_print_text(2, "configuration %s, runtime directory %s", config ? config : "none",
                         ctl_text_of(status, "runtime_dir"));
        for (size_t i = 0; i < json_array_size(warnings); i++)
                table_print_text(2, "warning: %s", json_string_value(json_array_get(warnings, i)));
}

static void print_trouble(const json_t *pipeline, const char *member, const char *noun) {
        uint64_t n = ctl_number_of(pipeline, member);

        if (n > 0)
                table_print_text(2, "pipeline %s: %llu %s%s so far", ctl_text_of(pipeline, "name"),
                                 (unsigned long long)n, noun, n == 1 ? "" : "s");
}

/* The first of a list of samples, a line each; the daemon has cleaned their texts. */
static void print_samples(const json_t *pipeline, const char *member, const char *what) {
        const json_t *list = json_object_get(pipeline, member), *sample;
        size_t n = json_array_size(list);

        for (size_t i = 0; i < n && i < SAMPLES_SHOWN; i++) {
                const char *file = ctl_text_of((sample = json_array_get(list, i)), "file");

                table_print_text(4, "  %s: sample %llu%s%s%s: %s", what,
                                 (unsigned long long)ctl_number_of(sample, "sample"), *file ? " (" : "", file,
                                 *file ? ")" : "", ctl_text_of(sample, "text"));
        }
        if (n > SAMPLES_SHOWN)
                printf("  and more; `pinfeedctl status --json` lists %zu\n", n);
}

/* Of a reload that was refused, of a drain, and of pipelines that others are in the way of. */
static void print_service(const json_t *status) {
        const char *error = json_string_value(json_object_get(json_object_get(status, "reloaded"), "error"));
        size_t index;
        json_t *p;

        if (json_is_true(json_object_get(status, "draining")))
                table_print_text(2, "draining: no job is let in, and pinfeedd ends when those there are have "
                                    "left");
        if (error)
                table_print_text(2, "the last reload was refused: %s", error);
        json_array_foreach(json_object_get(status, "pipelines"), index, p) {
                if (json_is_string(json_object_get(p, "waiting_for")))
                        table_print_text(2, "pipeline %s waits for space: %s", ctl_text_of(p, "name"),
                                         ctl_text_of(p, "waiting_for"));
                if (json_is_true(json_object_get(p, "superseded")))
                        table_print_text(2,
                                         "pipeline %s is of an earlier configuration: it goes when its "
                                         "jobs have left",
                                         ctl_text_of(p, "name"));
        }
}

static void print_pipeline_troubles(const json_t *pipelines) {
        size_t index;
        json_t *p;

        json_array_foreach(pipelines, index, p) {
                uint64_t alive = ctl_number_of(p, "workers_alive");
                char text[FAULT_TEXT_MAX + 1];
                const char *error = json_string_value(json_object_get(p, "last_error"));

                if (!error)
                        error = json_string_value(json_object_get(p, "error"));
                if (error) {
                        fault_sanitize(text, sizeof(text), error, strlen(error));
                        table_print_text(2, "%s", text); /* which names the pipeline */
                }
                if (alive > 0 && alive < ctl_number_of(p, "workers"))
                        table_print_text(2, "pipeline %s: %llu of %llu workers are there",
                                         ctl_text_of(p, "name"), (unsigned long long)alive,
                                         (unsigned long long)ctl_number_of(p, "workers"));
                if (json_is_object(json_object_get(p, "verifying")))
                        table_print_text(
                                2, "pipeline %s: is being verified, %llu of %llu samples so far",
                                ctl_text_of(p, "name"),
                                (unsigned long long)ctl_number_of(json_object_get(p, "verifying"), "samples"),
                                (unsigned long long)ctl_number_of(json_object_get(p, "verifying"), "total"));
                print_trouble(p, "worker_deaths", "worker death");
                print_trouble(p, "bad_samples", "bad sample");
                print_samples(p, "bad", "bad");
                print_samples(p, "condemned", "condemned");
                if (ctl_number_of(p, "slots_quarantined") > 0)
                        table_print_text(2,
                                         "pipeline %s: %llu slots wait for killed workers that do not end: "
                                         "storage hangs?",
                                         ctl_text_of(p, "name"),
                                         (unsigned long long)ctl_number_of(p, "slots_quarantined"));
        }
}

/* What follows the first line of "NAME: TEXT" stands under the text, unless the name is long. */
static uint32_t indent_of(const char *name) {
        size_t indent = strlen(name) + 2;

        return indent <= TABLE_LIMIT_LEAST / 3 ? (uint32_t)indent : 3;
}

/* What holds each one back. */
static void print_sentences(const json_t *pipelines) {
        char clean[FAULT_TEXT_MAX + 1];
        bool any = false;
        size_t index;
        json_t *p;

        json_array_foreach(pipelines, index, p) {
                const char *text =
                        json_string_value(json_object_get(json_object_get(p, "held_back_by"), "text"));

                if (!text)
                        continue;
                fault_sanitize(clean, sizeof(clean), text, strlen(text));
                table_print_text(indent_of(ctl_text_of(p, "name")), "%s: %s", ctl_text_of(p, "name"), clean);
                any = true;
        }
        if (any)
                putchar('\n');
}

static void add_shared(struct table *table, const json_t *object) {
        uint64_t prepared = ctl_number_of(object, "rows_prepared");

        if (prepared)
                table_add(table, "%.2fx", (double)ctl_number_of(object, "rows_delivered") / (double)prepared);
        else
                table_add(table, "-");
}

/* Those that somebody reads. */
static void print_streams(const json_t *pipelines) {
        struct table table;
        size_t index, place;
        json_t *p, *s;

        table_init(&table,
                   "L stream of|r seed|r jobs|r prepared|r delivered|r prepared again|r shared|r caught up");
        json_array_foreach(pipelines, index, p) {
                json_array_foreach(json_object_get(p, "streams"), place, s) {
                        const char *large = json_string_value(json_object_get(s, "seed"));

                        if (ctl_number_of(s, "jobs") == 0)
                                continue;
                        table_add(&table, "%s", ctl_text_of(p, "name"));
                        if (large)
                                table_add(&table, "%s", large);
                        else
                                table_add(&table, "%llu", (unsigned long long)ctl_number_of(s, "seed"));
                        add_count(&table, s, "jobs");
                        add_count(&table, s, "rows_prepared");
                        add_count(&table, s, "rows_delivered");
                        add_count(&table, s, "rows_refilled");
                        add_shared(&table, s);
                        if (ctl_number_of(s, "catch_ups") > 0)
                                table_add(&table, "%llu/%llu",
                                          (unsigned long long)ctl_number_of(s, "catch_ups_met"),
                                          (unsigned long long)ctl_number_of(s, "catch_ups"));
                        else
                                table_add(&table, "-");
                }
        }
        if (table.n_rows > 1)
                putchar('\n');
        table_print(&table);
        table_deinit(&table);
}

static void print_pipelines(const json_t *status) {
        const json_t *pipelines = json_object_get(status, "pipelines");
        struct table table;
        size_t index;
        json_t *p;

        print_sentences(pipelines);
        table_init(&table, "L pipeline|l state|r samples|r batch|r row|r ring|l backing|r busy|r "
                           "prepared|r delivered|r shared");
        json_array_foreach(pipelines, index, p) {
                table_add(&table, "%s", ctl_text_of(p, "name"));
                table_add(&table, "%s", ctl_text_of(p, "state"));
                add_count(&table, p, "samples");
                add_count(&table, p, "batch_size");
                add_bytes(&table, p, "row_bytes");
                add_bytes(&table, p, "reserved_bytes");
                table_add(&table, "%s", ctl_text_of(p, "backing"));
                table_add(&table, "%llu/%llu", (unsigned long long)ctl_number_of(p, "workers_busy"),
                          (unsigned long long)ctl_number_of(p, "workers"));
                add_count(&table, p, "rows_prepared");
                add_count(&table, p, "rows_delivered");
                add_shared(&table, p);
        }
        table_print(&table);
        table_deinit(&table);
        print_streams(pipelines);
        ctl_print_stages(pipelines);
        print_pipeline_troubles(pipelines);
        print_service(status);
}

/* Samples of the pipeline with that name; 0 when it is not known. */
static uint64_t samples_of(const json_t *status, const char *pipeline) {
        size_t index;
        json_t *p;

        json_array_foreach(json_object_get(status, "pipelines"), index,
                           p) if (strcmp(ctl_text_of(p, "name"), pipeline) ==
                                  0) return ctl_number_of(p, "samples");
        return 0;
}

/* With a bar where there is room for one. */
static void add_progress(struct table *table, uint64_t row, uint64_t samples) {
        bool wide = table_limit() >= STATUS_BAR_LIMIT;
        char bar[TABLE_BAR_MAX];

        if (row > samples)
                row = samples; /* padding */
        table_add(table, "%s%s%3.0f %%", wide ? table_bar(bar, STATUS_BAR, row, samples) : "",
                  wide ? " " : "", samples ? 100.0 * (double)row / (double)samples : 0.0);
}

static bool has_ranks(const json_t *jobs) {
        size_t index;
        json_t *j;

        json_array_foreach(jobs, index, j) {
                if (ctl_number_of(j, "world_size") > 1)
                        return true;
        }
        return false;
}

static const char *job_state(const json_t *job) {
        if (json_is_true(json_object_get(job, "parked")))
                return "parked";
        return json_is_true(json_object_get(job, "waiting")) ? "waiting" : ctl_text_of(job, "state");
}

/* Where they are. Ranks have a column where there are any: the table is wide enough. */
static void print_places(const json_t *status) {
        bool ranks = has_ranks(json_object_get(status, "jobs"));
        struct table table;
        size_t index;
        json_t *j;

        table_init(
                &table,
                ranks ? "r job|L name|r pid|L pipeline|r rank|r batch|r epoch|l of the epoch|r rows/s|l state"
                      : "r job|L name|r pid|L pipeline|r batch|r epoch|l of the epoch|r rows/s|l state");
        json_array_foreach(json_object_get(status, "jobs"), index, j) {
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(j, "id"));
                table_add(&table, "%s", ctl_text_of(j, "name"));
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(j, "pid"));
                table_add(&table, "%s", ctl_text_of(j, "pipeline"));
                if (ranks)
                        table_add(&table, "%llu/%llu", (unsigned long long)ctl_number_of(j, "rank"),
                                  (unsigned long long)ctl_number_of(j, "world_size"));
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(j, "batch_size"));
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(j, "epoch"));
                add_progress(&table, ctl_number_of(j, "row"), samples_of(status, ctl_text_of(j, "pipeline")));
                add_rate(&table, j);
                table_add(&table, "%s", job_state(j));
        }
        table_print(&table);
        table_deinit(&table);
}

/* So much since it attached, and what share of the last seconds. */
static void add_time(struct table *table, const json_t *job, const char *member, const char *share) {
        double part = real_of(json_object_get(job, "recent"), share), seconds = real_of(job, member);
        char text[NUMBER_TEXT_MAX];

        if (seconds <= 0)
                table_add(table, "-");
        else
                table_add(table, "%s %3.0f %%", table_seconds(text, seconds), 100 * part);
}

static void add_ids(struct table *table, const json_t *ids) {
        char text[IDS_SHOWN * NUMBER_TEXT_MAX] = "";
        size_t index, n = 0;
        json_t *id;

        json_array_foreach(ids, index, id) {
                if (index < IDS_SHOWN)
                        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", n > 0 ? ", " : "",
                                              (long long)json_integer_value(id));
        }
        if (json_array_size(ids) > IDS_SHOWN)
                table_add(table, "%s and more", text);
        else
                table_add(table, "%s", n > 0 ? text : "-");
}

static bool has_maps(const json_t *jobs) {
        char text[NUMBER_TEXT_MAX * 2];
        size_t index;
        json_t *j;

        json_array_foreach(jobs, index, j) {
                if (ctl_map(j, text, sizeof(text)))
                        return true;
        }
        return false;
}

/* What they hold. How it is mapped has a column where there is anything to say of it. */
static void print_holdings(const json_t *status) {
        bool maps = has_maps(json_object_get(status, "jobs"));
        char text[NUMBER_TEXT_MAX * 2];
        struct table table;
        size_t index;
        json_t *j;

        table_init(&table, maps ? "r job|r held|r for|r slots|r ready|l map|l shares with"
                                : "r job|r held|r for|r slots|r ready|l shares with");
        json_array_foreach(json_object_get(status, "jobs"), index, j) {
                const char *map = ctl_map(j, text, sizeof(text));

                table_add(&table, "%llu", (unsigned long long)ctl_number_of(j, "id"));
                table_add(&table, "%llu/%llu", (unsigned long long)ctl_number_of(j, "held"),
                          (unsigned long long)ctl_number_of(j, "max_held"));
                if (json_is_number(json_object_get(j, "oldest_held_seconds")))
                        add_seconds(&table, real_of(j, "oldest_held_seconds"));
                else
                        table_add(&table, "-");
                add_count(&table, j, "leased");
                add_count(&table, j, "ready");
                if (maps)
                        table_add(&table, "%s", map ? map : "-");
                add_ids(&table, json_object_get(j, "shares_with"));
        }
        table_print(&table);
        table_deinit(&table);
}

/* Who waits for whom. */
static void print_waits(const json_t *status) {
        struct table table;
        size_t index;
        json_t *j;

        table_init(&table, "r job|r waited for data|r empty-handed|r waited for jobs|r data waited");
        json_array_foreach(json_object_get(status, "jobs"), index, j) {
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(j, "id"));
                add_time(&table, j, "waited_for_data_s", "waited_for_data");
                add_time(&table, j, "empty_handed_s", "empty_handed");
                add_time(&table, j, "waited_for_jobs_s", "waited_for_jobs");
                add_time(&table, j, "data_waited_s", "data_waited");
        }
        table_print(&table);
        table_deinit(&table);
}

/* "job 3: TEXT", or "job 3: WHAT: TEXT"; behind an empty line if it is the first. */
static void print_note(const json_t *job, const char *what, const char *text, bool *any) {
        char clean[FAULT_TEXT_MAX + 1], name[NUMBER_TEXT_MAX];

        if (!*any)
                putchar('\n');
        *any = true;
        fault_sanitize(clean, sizeof(clean), text, strlen(text));
        snprintf(name, sizeof(name), "job %llu", (unsigned long long)ctl_number_of(job, "id"));
        table_print_text(indent_of(name), "%s: %s%s%s", name, what ? what : "", what ? ": " : "", clean);
}

/* What else there is to say of one, if there is. */
static void print_notes(const json_t *jobs) {
        char map[NUMBER_TEXT_MAX * 2];
        bool any = false;
        size_t index;
        json_t *j;

        json_array_foreach(jobs, index, j) {
                const char *note = json_string_value(json_object_get(j, "note")),
                           *reason = json_string_value(json_object_get(j, "map_reason"));

                if (note)
                        print_note(j, NULL, note, &any);
                if (reason && strcmp(ctl_text_of(j, "map"), "pinned") != 0)
                        print_note(j, ctl_map(j, map, sizeof(map)), reason, &any);
        }
}

static void print_jobs(const json_t *status) {
        const json_t *jobs = json_object_get(status, "jobs");

        if (json_array_size(jobs) == 0)
                return;
        print_places(status);
        putchar('\n');
        print_holdings(status);
        putchar('\n');
        print_waits(status);
        print_notes(jobs);
}

static void print_workers(const json_t *status) {
        struct table table;
        size_t index;
        json_t *w;

        table_init(&table, "L worker|r pid|l state|r sample|r for|r rows|r CPU time|r busy");
        json_array_foreach(json_object_get(status, "workers"), index, w) {
                bool working = json_is_integer(json_object_get(w, "sample"));
                double uptime = real_of(w, "uptime_seconds");

                table_add(&table, "%s/%llu", ctl_text_of(w, "pipeline"),
                          (unsigned long long)ctl_number_of(w, "number"));
                table_add(&table, "%llu", (unsigned long long)ctl_number_of(w, "pid"));
                table_add(&table, "%s", ctl_text_of(w, "state"));
                add_count(&table, w, "sample");
                if (working)
                        add_seconds(&table, real_of(w, "sample_seconds"));
                else
                        table_add(&table, "-");
                add_count(&table, w, "rows");
                add_seconds(&table, real_of(w, "cpu_seconds"));
                table_add(&table, "%.0f %%", uptime > 0 ? 100 * real_of(w, "busy_seconds") / uptime : 0.0);
        }
        table_print(&table);
        table_deinit(&table);
}

static const char *slot_mark(const json_t *slot, bool utf8) {
        const char *state = ctl_text_of(slot, "state");

        if (ctl_number_of(slot, "leases") > 0)
                return utf8 ? "█" : "#";
        if (strcmp(state, "ready") == 0)
                return utf8 ? "▓" : "+";
        if (strcmp(state, "filling") == 0)
                return utf8 ? "░" : "-";
        if (strcmp(state, "free") == 0)
                return utf8 ? "·" : ".";
        return "?";
}

static void add_strip(struct table *table, const json_t *slots, const char *pipeline) {
        unsigned n = 0, most = STATUS_STRIP_MAX, limit = table_limit();
        char strip[STATUS_STRIP_MAX * 4 + 1] = "";
        bool utf8 = table_is_utf8();
        size_t index;
        json_t *slot;

        if (most > limit - STATUS_STRIP_REST)
                most = limit - STATUS_STRIP_REST;
        json_array_foreach(slots, index, slot) {
                if (strcmp(ctl_text_of(slot, "pipeline"), pipeline) == 0 && n++ < most)
                        strcat(strip, slot_mark(slot, utf8));
        }
        if (n == 0)
                return;
        table_add(table, "%s", pipeline);
        if (n > most)
                table_add(table, "%s and %u more", strip, n - most);
        else
                table_add(table, "%s", strip);
}

/* One line for each pipeline that has slots. */
static void print_slots(const json_t *status) {
        struct table table;
        size_t index;
        json_t *p;

        table_init(&table, table_is_utf8() ? "L slots of|l █ leased  ▓ ready  ░ filling  · free"
                                           : "L slots of|l # leased  + ready  - filling  . free");
        json_array_foreach(json_object_get(status, "pipelines"), index, p) {
                add_strip(&table, json_object_get(status, "slots"), ctl_text_of(p, "name"));
        }
        table_print(&table);
        table_deinit(&table);
}

static void print_status(const json_t *status) {
        print_daemon(status);
        putchar('\n');
        print_pipelines(status);
        putchar('\n');
        print_slots(status);
        if (json_array_size(json_object_get(status, "jobs")) > 0)
                putchar('\n');
        print_jobs(status);
        if (json_array_size(json_object_get(status, "workers")) > 0)
                putchar('\n');
        print_workers(status);
}

static void print_part(const json_t *status, const char *part) {
        if (strcmp(part, "status") == 0)
                print_status(status);
        else if (json_array_size(json_object_get(status, part)) == 0)
                printf("no %s\n", part);
        else if (strcmp(part, "pipelines") == 0)
                print_pipelines(status);
        else if (strcmp(part, "jobs") == 0)
                print_jobs(status);
        else
                print_workers(status);
}

int command_status(const struct ctl *ctl, int argc, char **argv) {
        const char *part = ctl->command->name;
        struct fault fault = {0};
        bool as_json;
        json_t *status;
        int r;

        if (!ctl_json_option(ctl, argc, argv, &as_json, &r))
                return r;
        if (optind < argc)
                return ctl_usage(ctl, "unexpected \"%s\"", argv[optind]);

        status = control_ask(ctl->runtime_dir, "status", &fault);
        if (!status)
                return ctl_fail("%s", fault.text);
        if (!as_json)
                print_part(status, part);
        else
                ctl_print_json(strcmp(part, "status") == 0 ? status : json_object_get(status, part));
        json_decref(status);
        return CTL_OK;
}
