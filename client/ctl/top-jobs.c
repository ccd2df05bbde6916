/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The jobs, a row each, in the order in which they came: one that is looked at stays where it is. A column
 * that says the same of all, or nothing of any, is left out, and its room goes to the names. */

#include "client/ctl/top.h"

#include "base/number.h"
#include "client/ctl/ctl.h"
#include "client/ctl/screen.h"

#include <math.h>
#include <string.h>

enum {
        PERCENT = 4, /* columns of "100%" */
};

/* From which share of the time on a job's waiting is worth a colour: what the daemon's sentence begins at. */
static const double waits_much = 0.1;

enum column {
        COLUMN_ID,
        COLUMN_NAME,
        COLUMN_USER,
        COLUMN_PID,
        COLUMN_PIPELINE,
        COLUMN_EPOCH,
        COLUMN_PLACE,
        COLUMN_RATE,
        COLUMN_WAITS,
        COLUMN_EMPTY,
        COLUMN_FOR_JOBS,
        COLUMN_DATA_WAITS,
        COLUMN_HELD,
        COLUMN_READY,
        COLUMN_LAG,
        COLUMN_STATE,
        COLUMN_MAP,
        COLUMNS,
};

static const struct top_column columns[COLUMNS] = {
        [COLUMN_ID] = {"job", 'r', 4, 4, 0},
        [COLUMN_NAME] = {"name", 'l', 8, 28, 0},
        [COLUMN_USER] = {"user", 'l', 8, 8, 110},
        [COLUMN_PID] = {"pid", 'r', 7, 7, 96},
        [COLUMN_PIPELINE] = {"pipeline", 'l', 10, 28, 80},
        [COLUMN_EPOCH] = {"epoch", 'r', 5, 5, 60},
        [COLUMN_PLACE] = {"place", 'l', 10, 40, 40},
        [COLUMN_RATE] = {"rows/s", 'r', 8, 8, 0},
        [COLUMN_WAITS] = {"waits", 'r', 5, 5, 70},
        [COLUMN_EMPTY] = {"empty", 'r', 5, 5, 50},
        [COLUMN_FOR_JOBS] = {"for jobs", 'r', 8, 8, 120},
        [COLUMN_DATA_WAITS] = {"data waits", 'r', 10, 10, 130},
        [COLUMN_HELD] = {"held", 'r', 5, 5, 56},
        [COLUMN_READY] = {"ready", 'r', 5, 5, 104},
        [COLUMN_LAG] = {"behind", 'r', 7, 7, 80},
        [COLUMN_STATE] = {"state", 'l', 9, 9, 114},
        [COLUMN_MAP] = {"map", 'l', 14, 20, 140},
};

static const char *user_of(const json_t *job) {
        return json_string_value(json_object_get(job, "user"));
}

/* A bit for each column with nothing to tell. */
static uint32_t find_silent(const json_t *jobs) {
        bool users = false, pipelines = false, maps = false, lags = false;
        const json_t *first = json_array_get(jobs, 0);
        char text[NUMBER_TEXT_MAX * 2];

        for (size_t i = 0; i < json_array_size(jobs); i++) {
                const json_t *job = json_array_get(jobs, i);

                users |= user_of(job) != NULL;
                pipelines |= strcmp(ctl_text_of(job, "pipeline"), ctl_text_of(first, "pipeline")) != 0;
                maps |= ctl_map(job, text, sizeof(text)) != NULL;
                lags |= i > 0;
        }
        return (users ? 0 : UINT32_C(1) << COLUMN_USER) | (pipelines ? 0 : UINT32_C(1) << COLUMN_PIPELINE) |
               (maps ? 0 : UINT32_C(1) << COLUMN_MAP) | (lags ? 0 : UINT32_C(1) << COLUMN_LAG);
}

struct row {
        struct screen *screen;
        uint32_t row;
        const uint32_t *starts, *widths;
};

static void put_cell(const struct row *row, enum column column, enum screen_style style, const char *text) {
        screen_put_within(row->screen, row->row, row->starts[column], row->widths[column],
                          columns[column].align, style, text);
}

static void put_number(const struct row *row, enum column column, uint64_t number) {
        char text[NUMBER_TEXT_MAX];

        snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
        put_cell(row, column, SCREEN_PLAIN, text);
}

static void put_count(const struct row *row, enum column column, double number) {
        char text[NUMBER_TEXT_MAX];

        put_cell(row, column, SCREEN_PLAIN,
                 isnan(number) ? "-" : number_format_count(text, (uint64_t)(number + 0.5)));
}

/* `bad`: whether much of it is something to look at. */
static void put_share(const struct row *row, enum column column, double share, bool bad) {
        char text[NUMBER_TEXT_MAX];

        snprintf(text, sizeof(text), isnan(share) ? "-" : "%.0f%%", 100 * share);
        put_cell(row, column, bad && share > waits_much ? SCREEN_YELLOW : SCREEN_PLAIN, text);
}

/* The samples of a job's pipeline; 0: not known. */
static uint64_t samples_of(const json_t *status, const json_t *job) {
        const json_t *pipelines = json_object_get(status, "pipelines");

        for (size_t i = 0; i < json_array_size(pipelines); i++) {
                const json_t *p = json_array_get(pipelines, i);

                if (strcmp(ctl_text_of(p, "name"), ctl_text_of(job, "pipeline")) == 0)
                        return ctl_number_of(p, "samples");
        }
        return 0;
}

/* A bar and the share of the epoch that was handed out. */
static void put_place(const struct row *row, const json_t *job, uint64_t samples) {
        uint32_t start = row->starts[COLUMN_PLACE], width = row->widths[COLUMN_PLACE];
        uint64_t at = ctl_number_of(job, "row");
        double share = samples > 0 ? (double)at / (double)samples : 0;
        char text[NUMBER_TEXT_MAX];

        if (width <= PERCENT)
                return;
        if (share > 1)
                share = 1; /* padding */
        screen_put_bar(row->screen, row->row, start, width - PERCENT - 1, SCREEN_BLUE, share);
        snprintf(text, sizeof(text), samples > 0 ? "%.0f%%" : "-", 100 * share);
        screen_put_within(row->screen, row->row, start + width - PERCENT, PERCENT, 'r', SCREEN_PLAIN, text);
}

static const char *state_of(const json_t *job) {
        static const struct {
                const char *member, *word;
        } states[] = {{"expecting", "expecting"},  {"gathering", "gathering"}, {"parked", "parked"},
                      {"catching_up", "catch-up"}, {"demoted", "demoted"},     {"waiting", "waiting"}};

        for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
                const json_t *value = json_object_get(job, states[i].member);

                if (json_is_true(value) || json_is_object(value))
                        return states[i].word;
        }
        return ctl_text_of(job, "state");
}

static void put_shares(const struct row *row, const struct top_view *view, const json_t *before,
                       const json_t *job) {
        put_share(row, COLUMN_WAITS, top_job_share(view, before, job, "waited_for_data"), false);
        put_share(row, COLUMN_EMPTY, top_job_share(view, before, job, "empty_handed"), true);
        put_share(row, COLUMN_FOR_JOBS, top_job_share(view, before, job, "waited_for_jobs"), true);
        put_share(row, COLUMN_DATA_WAITS, top_job_share(view, before, job, "data_waited"), false);
}

static void put_row(const struct row *row, const struct top_view *view, const json_t *job, size_t index) {
        const json_t *before = top_before(view, "jobs", job, index);
        const char *name = ctl_text_of(job, "name");
        char text[NUMBER_TEXT_MAX * 2];
        const char *map;

        put_number(row, COLUMN_ID, ctl_number_of(job, "id"));
        put_cell(row, COLUMN_NAME, SCREEN_BOLD, *name ? name : "-");
        put_cell(row, COLUMN_USER, SCREEN_PLAIN, user_of(job) ? user_of(job) : "-");
        put_number(row, COLUMN_PID, ctl_number_of(job, "pid"));
        put_cell(row, COLUMN_PIPELINE, SCREEN_PLAIN, ctl_text_of(job, "pipeline"));
        put_number(row, COLUMN_EPOCH, ctl_number_of(job, "epoch"));
        put_place(row, job, samples_of(view->now, job));
        put_count(row, COLUMN_RATE, top_job_rate(view, before, job));
        put_shares(row, view, before, job);
        snprintf(text, sizeof(text), "%llu/%llu", (unsigned long long)ctl_number_of(job, "held"),
                 (unsigned long long)ctl_number_of(job, "max_held"));
        put_cell(row, COLUMN_HELD, SCREEN_PLAIN, text);
        put_number(row, COLUMN_READY, ctl_number_of(job, "ready"));
        put_count(row, COLUMN_LAG, top_job_lag(view, job));
        put_cell(row, COLUMN_STATE, SCREEN_PLAIN, state_of(job));
        map = ctl_map(job, text, sizeof(text));
        put_cell(row, COLUMN_MAP, SCREEN_PLAIN, map ? map : "-");
}

/* In the title of the names: which of them are shown, if not all. */
static void put_titles(struct screen *screen, uint32_t row, const uint32_t starts[], const uint32_t widths[],
                       uint32_t first, const struct top_shown *shown) {
        char text[NUMBER_TEXT_MAX * 2];

        top_draw_titles(screen, row, columns, COLUMNS, starts, widths);
        if (shown->jobs == shown->of)
                return;
        snprintf(text, sizeof(text), "name (%u-%u of %u)", first + 1, first + shown->jobs, shown->of);
        screen_put_within(screen, row, starts[COLUMN_NAME], widths[COLUMN_NAME], 'l', SCREEN_TITLE, text);
}

uint32_t top_draw_jobs(struct screen *screen, uint32_t row, uint32_t end, const struct top_view *view,
                       struct top_shown *shown) {
        const json_t *jobs = json_object_get(view->now, "jobs");
        uint32_t starts[COLUMNS], widths[COLUMNS], first = view->first_job;
        struct row at = {screen, row + 1, starts, widths};

        shown->of = (uint32_t)json_array_size(jobs);
        shown->jobs = 0;
        if (shown->of == 0 || row + 1 >= end)
                return row;
        shown->jobs = end - row - 1 < shown->of ? end - row - 1 : shown->of;
        if (first > shown->of - shown->jobs)
                first = shown->of - shown->jobs;
        top_place_columns(screen, columns, COLUMNS, find_silent(jobs), starts, widths);
        put_titles(screen, row, starts, widths, first, shown);
        for (uint32_t i = 0; i < shown->jobs; i++, at.row++)
                put_row(&at, view, json_array_get(jobs, first + i), first + i);
        return at.row;
}
