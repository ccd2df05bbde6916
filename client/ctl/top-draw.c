/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The whole screen: a row about the daemon, notices if there are any, pipelines, jobs, and a row that
 * explains characters and keys. A pure function of answers and a size, so that its tests need no terminal.
 *
 * What there is to say usually needs more rows than there are. Jobs have a claim to half of them, if they
 * need so many; of the others each pipeline gets one, as far as they go; then all pipelines are given the
 * next unit of what they have to say, the busiest first, until nothing fits; and what is left goes to the
 * jobs. So a small screen says a little about everything instead of everything about one.
 *
 * Pipelines with jobs come first, the busiest of them before the others. Busy is counted in steps of four
 * times as much, and the order of the configuration decides within a step: two that are about as busy must
 * not change places every second. */

#include "client/ctl/top.h"

#include "base/number.h"
#include "client/ctl/ctl.h"
#include "client/ctl/screen.h"
#include "client/ctl/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        PIPELINES_MAX = 256, /* shown at most */
        ROWS_FOR_FOOT = 12,  /* a screen with fewer has none */
        NOTICE_ROWS = 3,
        LEGEND = 39, /* columns of what explains the characters, and a gap */
        WIDE = 100,  /* columns of a table have more space between them */
};

struct plan {
        uint32_t n_sorted; /* pipelines that could be shown, of which */
        uint32_t n_active; /* have jobs or an error */
        uint32_t n;        /* pipelines shown */
        uint32_t hidden;   /* and not */
        const json_t *pipelines[PIPELINES_MAX];
        uint32_t units[PIPELINES_MAX];
        uint32_t rows; /* that they take together */
};

/* ---- tables ---- */

static bool is_shown(const struct screen *screen, const struct top_column *columns, uint32_t i,
                     uint32_t left_out) {
        return screen->columns >= columns[i].from && !(left_out >> i & 1);
}

void top_place_columns(const struct screen *screen, const struct top_column *columns, uint32_t n,
                       uint32_t left_out, uint32_t starts[], uint32_t widths[]) {
        uint32_t gap = screen->columns >= WIDE ? 2 : 1, taken = 0, left;

        for (uint32_t i = 0; i < n; i++) {
                widths[i] = is_shown(screen, columns, i, left_out) ? columns[i].width : 0;
                taken += widths[i] > 0 ? widths[i] + (i > 0 ? gap : 0) : 0;
        }
        left = screen->columns > taken ? screen->columns - taken : 0;
        for (uint32_t i = 0, at = 0; i < n; i++) {
                uint32_t more = columns[i].most > widths[i] ? columns[i].most - widths[i] : 0;

                more = widths[i] == 0 ? 0 : more < left ? more : left;
                widths[i] += more;
                left -= more;
                starts[i] = at;
                at += widths[i] > 0 ? widths[i] + gap : 0;
        }
}

void top_draw_titles(struct screen *screen, uint32_t row, const struct top_column *columns, uint32_t n,
                     const uint32_t starts[], const uint32_t widths[]) {
        screen_put(screen, row, 0, SCREEN_TITLE, "%*s", (int)screen->columns, "");
        for (uint32_t i = 0; i < n; i++)
                screen_put_within(screen, row, starts[i], widths[i], columns[i].align, SCREEN_TITLE,
                                  columns[i].title);
}

/* ---- the head ---- */

static uint64_t count_ring_bytes(const json_t *status) {
        const json_t *pipelines = json_object_get(status, "pipelines");
        uint64_t sum = 0;

        for (size_t i = 0; i < json_array_size(pipelines); i++)
                sum += ctl_number_of(json_array_get(pipelines, i), "reserved_bytes");
        return sum;
}

/* A piece behind the others, if it fits. */
static uint32_t put_piece(struct screen *screen, uint32_t column, const char *text) {
        uint32_t gap = column > 0 ? 3 : 0;

        if (column + gap + screen_measure(screen, text) > screen->columns)
                return column;
        return screen_put(screen, 0, column + gap, column > 0 ? SCREEN_PLAIN : SCREEN_BOLD, "%s", text);
}

/* "pinfeedd 0.1.0, pid 4711" */
static void describe_daemon(char *text, size_t size, const json_t *status) {
        snprintf(text, size, "pinfeedd %s, pid %llu", ctl_text_of(status, "version"),
                 (unsigned long long)ctl_number_of(status, "pid"));
}

static uint32_t put_head(struct screen *screen, const struct top_view *view) {
        const json_t *status = view->now, *cpu = json_object_get(status, "cpu_seconds");
        const json_t *cpu_before = json_object_get(view->before, "cpu_seconds");
        double daemon = top_grown(view, cpu_before, cpu, "daemon");
        double workers = top_grown(view, cpu_before, cpu, "workers");
        char text[128], number[NUMBER_TEXT_MAX];
        uint32_t column;

        if (!status) {
                screen_put(screen, 0, 0, SCREEN_BOLD, "pinfeedctl top");
                return 1;
        }
        describe_daemon(text, sizeof(text), status);
        column = put_piece(screen, 0, text);
        snprintf(text, sizeof(text), "up %s",
                 table_seconds(number, json_number_value(json_object_get(status, "uptime_seconds"))));
        column = put_piece(screen, column, text);
        snprintf(text, sizeof(text), "%.1f busy on %llu cpus", top_busy(view),
                 (unsigned long long)ctl_number_of(status, "cpus"));
        column = put_piece(screen, column, text);
        snprintf(text, sizeof(text), "rings %s", number_format_bytes(number, count_ring_bytes(status)));
        column = put_piece(screen, column, text);
        snprintf(text, sizeof(text), "%zu jobs", json_array_size(json_object_get(status, "jobs")));
        column = put_piece(screen, column, text);
        if (!isnan(daemon) && !isnan(workers)) {
                snprintf(text, sizeof(text), "CPU: daemon %.1f %%, workers %.0f %%", 100 * daemon,
                         100 * workers);
                put_piece(screen, column, text);
        }
        return 1;
}

/* In as many rows as it needs, within reason. */
static uint32_t put_notice(struct screen *screen, uint32_t row, enum screen_style style, const char *text) {
        for (uint32_t i = 0; i < NOTICE_ROWS && *text && row < screen->rows; i++) {
                size_t n = screen_next_line(screen, text, screen->columns);

                screen_put(screen, row++, 0, style, "%.*s", (int)n, text);
                text += n + (text[n] == ' ');
        }
        return row;
}

static uint32_t put_notices(struct screen *screen, uint32_t row, const struct top_view *view) {
        const json_t *warnings = json_object_get(view->now, "warnings");
        const char *warning = json_string_value(json_array_get(warnings, 0));
        char text[TOP_NOTICE_MAX];

        if (view->notice)
                row = put_notice(screen, row, SCREEN_RED, view->notice);
        if (view->paused)
                row = put_notice(screen, row, SCREEN_YELLOW, "paused; space goes on");
        if (json_is_true(json_object_get(view->now, "draining")))
                row = put_notice(screen, row, SCREEN_YELLOW, "draining: it ends when its jobs have left");
        if (!warning)
                return row;
        snprintf(text, sizeof(text), "%zu warning%s: %s", json_array_size(warnings),
                 ctl_plural(json_array_size(warnings)), warning);
        return put_notice(screen, row, SCREEN_YELLOW, text);
}

/* ---- who gets how many rows ---- */

enum {
        RANK_FAILED = -1, /* without jobs, but with an error */
        RANK_IDLE = -2,
};

struct rank {
        const json_t *pipeline;
        size_t place;
        int busy; /* or one of these two */
};

static int compare_ranks(const void *a, const void *b) {
        const struct rank *x = a, *y = b;

        if (x->busy != y->busy)
                return y->busy - x->busy;
        return (x->place > y->place) - (x->place < y->place);
}

static int rank_of(const struct top_view *view, const json_t *pipeline, size_t place) {
        double rate;

        if (top_count_jobs(view->now, pipeline) == 0)
                return json_is_string(json_object_get(pipeline, "error")) ? RANK_FAILED : RANK_IDLE;
        rate = top_pipeline_rate(view, top_before(view, "pipelines", pipeline, place), pipeline,
                                 "rows_delivered");
        return rate > 1 ? (int)(log2(rate) / 2) : 0;
}

static void sort_pipelines(struct plan *plan, const struct top_view *view) {
        const json_t *pipelines = json_object_get(view->now, "pipelines");
        size_t all = json_array_size(pipelines);
        struct rank ranks[PIPELINES_MAX] = {};

        plan->n_sorted = all < PIPELINES_MAX ? (uint32_t)all : PIPELINES_MAX;
        plan->hidden = (uint32_t)all;
        for (uint32_t i = 0; i < plan->n_sorted; i++) {
                const json_t *p = json_array_get(pipelines, i);

                ranks[i] = (struct rank){p, i, rank_of(view, p, i)};
                plan->n_active += ranks[i].busy > RANK_IDLE;
        }
        qsort(ranks, plan->n_sorted, sizeof(ranks[0]), compare_ranks);
        for (uint32_t i = 0; i < plan->n_sorted; i++) {
                plan->pipelines[i] = ranks[i].pipeline;
                plan->units[i] = 1;
        }
}

/* Shows those from plan->n up to `n`, as far as they go; a row for how many are not shown is kept free as
 * long as there are any. */
static void add_pipelines(struct plan *plan, uint32_t n, uint32_t rows) {
        uint32_t all = plan->n + plan->hidden;

        plan->rows -= plan->hidden > 0 && plan->rows > 0;
        while (plan->n < n && plan->rows + 1 + (plan->n + 1 < all) <= rows) {
                plan->n++;
                plan->rows++;
        }
        plan->hidden = all - plan->n;
        plan->rows += plan->hidden > 0 && plan->rows < rows;
}

static void raise_units(struct plan *plan, const struct screen *screen, uint32_t most, uint32_t rows) {
        for (uint32_t units = 2; units <= most; units++)
                for (uint32_t i = 0; i < plan->n; i++) {
                        uint32_t before = top_pipeline_rows(screen, plan->pipelines[i], units - 1);
                        uint32_t after = top_pipeline_rows(screen, plan->pipelines[i], units);

                        if (plan->units[i] != units - 1 || plan->rows + after - before > rows)
                                continue;
                        plan->units[i] = units;
                        plan->rows += after - before;
                }
}

static void plan_pipelines(struct plan *plan, const struct screen *screen, const struct top_view *view,
                           uint32_t rows) {
        *plan = (struct plan){0};
        sort_pipelines(plan, view);
        add_pipelines(plan, plan->n_active, rows);
        raise_units(plan, screen, TOP_UNITS_ESSENTIAL, rows);
        add_pipelines(plan, plan->n_sorted, rows);
        raise_units(plan, screen, TOP_ROW_UNITS, rows);
}

/* The rows that jobs have a claim to, of those between head and foot. */
static uint32_t reserve_jobs(const struct top_view *view, uint32_t rows) {
        size_t n = json_array_size(json_object_get(view->now, "jobs"));

        if (n == 0)
                return 0;
        return n + 1 < rows / 2 ? (uint32_t)n + 1 : rows / 2;
}

/* ---- all of it ---- */

/* Characters at the left if there is room for both, keys at the right. */
static void put_foot(struct screen *screen, uint32_t row, const struct top_view *view) {
        char text[128];
        uint32_t length;

        snprintf(text, sizeof(text), "q quit  space %s  + - every %g s%s", view->paused ? "go on" : "pause",
                 view->interval, screen->utf8 ? "  ↑↓" : "");
        length = view->keys ? screen_measure(screen, text) : 0;
        if (screen->columns >= LEGEND + length)
                top_draw_legend(screen, row, 0);
        if (length > 0 && length <= screen->columns)
                screen_put(screen, row, screen->columns - length, SCREEN_DIM, "%s", text);
}

static uint32_t draw_pipelines(struct screen *screen, uint32_t row, const struct top_view *view,
                               const struct plan *plan) {
        top_draw_pipeline_titles(screen, row++, view);
        for (uint32_t i = 0; i < plan->n; i++)
                row = top_draw_pipeline(screen, row, view, plan->pipelines[i], plan->units[i]);
        if (plan->hidden > 0)
                screen_put(screen, row++, 0, SCREEN_DIM, "%s%u %spipeline%s", plan->n > 0 ? "and " : "",
                           plan->hidden, plan->n > 0 ? "more " : "", ctl_plural(plan->hidden));
        return row;
}

/* Whether a row may stay empty before the jobs: no pipeline has left one there, and no job needs it. */
static bool has_gap(const struct screen *screen, const struct top_view *view, const struct plan *plan,
                    uint32_t rows) {
        uint32_t last = plan->n > 0 ? plan->n - 1 : 0, units = plan->units[last];

        if (plan->n > 0 && units == TOP_ROW_UNITS &&
            top_pipeline_rows(screen, plan->pipelines[last], units) >
                    top_pipeline_rows(screen, plan->pipelines[last], units - 1))
                return false;
        return rows > json_array_size(json_object_get(view->now, "jobs")) + 1;
}

void top_draw(struct screen *screen, const struct top_view *view, struct top_shown *shown) {
        uint32_t row = put_head(screen, view), foot = screen->rows >= ROWS_FOR_FOOT, end, rows;
        struct plan plan;

        *shown = (struct top_shown){0};
        row = put_notices(screen, row, view);
        end = screen->rows - foot;
        if (view->now && row + 2 <= end) {
                rows = end - row - 1; /* without the titles of the pipelines */
                plan_pipelines(&plan, screen, view, rows - reserve_jobs(view, rows));
                row = draw_pipelines(screen, row, view, &plan);
                row += has_gap(screen, view, &plan, end - row);
                row = top_draw_jobs(screen, row, end, view, shown);
        }
        if (foot)
                put_foot(screen, view->as_text ? row + 1 : end, view);
}
