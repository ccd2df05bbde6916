/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pipeline is a row of a table and, as far as there is room, rows below it: first what holds it back, cut
 * if need be; then its ring and its workers side by side; then the whole sentence, which ends in what to do;
 * then ring and workers in rows of their own, with numbers; then an empty row. These are the units in which
 * rows are given out. */

#include "client/ctl/top.h"

#include "base/fault.h"
#include "base/number.h"
#include "client/ctl/ctl.h"
#include "client/ctl/screen.h"

#include <math.h>
#include <string.h>

enum {
        INDENT = 2,
        LABEL = 11,        /* columns before a strip in a row of its own */
        SENTENCE_ROWS = 3, /* at most */
        TEXT_GAP = 2,      /* between a strip and its numbers */
        STAGES_TEXT = 160,
        UNIT_SENTENCE = 2,
        UNIT_STRIPS = 3,
        UNIT_WHOLE_SENTENCE = 4,
        UNIT_OWN_ROWS = 5,
        UNIT_EMPTY_ROW = 6,
};

enum column {
        COLUMN_NAME,
        COLUMN_STATE,
        COLUMN_JOBS,
        COLUMN_PREPARED,
        COLUMN_DELIVERED,
        COLUMN_SHARED,
        COLUMN_BYTES,
        COLUMN_BUSY,
        COLUMN_RING,
        COLUMN_DEATHS,
        COLUMN_BAD,
        COLUMNS,
};

static const struct top_column columns[COLUMNS] = {
        [COLUMN_NAME] = {"pipeline", 'l', 10, 40, 0},
        [COLUMN_STATE] = {"state", 'l', 10, 10, 60},
        [COLUMN_JOBS] = {"jobs", 'r', 4, 4, 50},
        [COLUMN_PREPARED] = {"prepared/s", 'r', 10, 10, 56},
        [COLUMN_DELIVERED] = {"delivered/s", 'r', 11, 11, 0},
        [COLUMN_SHARED] = {"shared", 'r', 6, 6, 0},
        [COLUMN_BYTES] = {"MiB/s", 'r', 7, 7, 70},
        [COLUMN_BUSY] = {"busy", 'r', 11, 11, 92},
        [COLUMN_RING] = {"ring", 'r', 9, 9, 104},
        [COLUMN_DEATHS] = {"deaths", 'r', 6, 6, 114},
        [COLUMN_BAD] = {"bad", 'r', 5, 5, 124},
};

static void place(const struct screen *screen, uint32_t starts[], uint32_t widths[]) {
        top_place_columns(screen, columns, COLUMNS, 0, starts, widths);
}

void top_draw_pipeline_titles(struct screen *screen, uint32_t row, const struct top_view *view) {
        uint32_t starts[COLUMNS], widths[COLUMNS];

        place(screen, starts, widths);
        top_draw_titles(screen, row, columns, COLUMNS, starts, widths);
}

/* ---- how many rows ---- */

/* Of one that rests, only what is wrong. */
static const char *sentence_of(const json_t *pipeline) {
        if (strcmp(ctl_text_of(pipeline, "state"), "idle") == 0 &&
            !json_is_string(json_object_get(pipeline, "waiting_for")))
                return NULL;
        return top_sentence(pipeline);
}

static uint32_t sentence_rows(const struct screen *screen, const json_t *pipeline) {
        const char *text = sentence_of(pipeline);
        uint32_t n = 0;

        while (text && *text && n < SENTENCE_ROWS) {
                text += screen_next_line(screen, text,
                                         screen->columns > INDENT ? screen->columns - INDENT : 1);
                text += *text == ' ';
                n++;
        }
        return n;
}

static bool has_strips(const json_t *pipeline) {
        return ctl_number_of(pipeline, "reserved_bytes") > 0 || ctl_number_of(pipeline, "workers_alive") > 0;
}

uint32_t top_pipeline_rows(const struct screen *screen, const json_t *pipeline, uint32_t units) {
        uint32_t rows = 1, sentence = sentence_rows(screen, pipeline), strips = has_strips(pipeline);

        if (units >= UNIT_SENTENCE)
                rows += sentence > 0;
        if (units >= UNIT_STRIPS)
                rows += strips;
        if (units >= UNIT_WHOLE_SENTENCE)
                rows += sentence > 1 ? sentence - 1 : 0;
        if (units >= UNIT_OWN_ROWS)
                rows += strips;
        return rows + (units >= UNIT_EMPTY_ROW && rows > 1);
}

/* ---- the row of the table ---- */

static const char *format_rate(char text[NUMBER_TEXT_MAX], double rate) {
        if (isnan(rate))
                return "-";
        return number_format_count(text, (uint64_t)(rate + 0.5));
}

static enum screen_style style_of_state(const json_t *pipeline) {
        const char *state = top_state(pipeline);

        if (strcmp(state, "failed") == 0)
                return SCREEN_RED;
        if (strcmp(state, "ready") == 0)
                return SCREEN_GREEN;
        return strcmp(state, "idle") == 0 ? SCREEN_DIM : SCREEN_YELLOW;
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

/* Events that should not be. */
static void put_trouble(const struct row *row, enum column column, const json_t *pipeline,
                        const char *member) {
        char text[NUMBER_TEXT_MAX];
        uint64_t n = ctl_number_of(pipeline, member);

        put_cell(row, column, n > 0 ? SCREEN_YELLOW : SCREEN_PLAIN, number_format_count(text, n));
}

static void put_rates(const struct row *row, const struct top_view *view, const json_t *before,
                      const json_t *pipeline) {
        double prepared = top_pipeline_rate(view, before, pipeline, "rows_prepared");
        double delivered = top_pipeline_rate(view, before, pipeline, "rows_delivered");
        double bytes = delivered * (double)ctl_number_of(pipeline, "row_bytes") / (1 << 20);
        char text[NUMBER_TEXT_MAX];

        put_cell(row, COLUMN_PREPARED, SCREEN_PLAIN, format_rate(text, prepared));
        put_cell(row, COLUMN_DELIVERED, SCREEN_PLAIN, format_rate(text, delivered));
        snprintf(text, sizeof(text), prepared > 0 ? "%.2fx" : "-", delivered / prepared);
        put_cell(row, COLUMN_SHARED, SCREEN_PLAIN, text);
        if (bytes < 10)
                snprintf(text, sizeof(text), "%.1f", bytes);
        put_cell(row, COLUMN_BYTES, SCREEN_PLAIN, bytes < 10 ? text : format_rate(text, bytes));
}

static void put_row(const struct row *row, const struct top_view *view, const json_t *before,
                    const json_t *pipeline) {
        double busy = top_pipeline_busy(view, before, pipeline);
        char text[NUMBER_TEXT_MAX];

        put_cell(row, COLUMN_NAME, SCREEN_BOLD, ctl_text_of(pipeline, "name"));
        put_cell(row, COLUMN_STATE, style_of_state(pipeline), top_state(pipeline));
        snprintf(text, sizeof(text), "%u", top_count_jobs(view->now, pipeline));
        put_cell(row, COLUMN_JOBS, SCREEN_PLAIN, text);
        put_rates(row, view, before, pipeline);
        snprintf(text, sizeof(text), "%.1f of %llu", isnan(busy) ? 0 : busy,
                 (unsigned long long)ctl_number_of(pipeline, "workers_alive"));
        put_cell(row, COLUMN_BUSY, SCREEN_PLAIN, text);
        put_cell(row, COLUMN_RING, SCREEN_PLAIN,
                 number_format_bytes(text, ctl_number_of(pipeline, "reserved_bytes")));
        put_trouble(row, COLUMN_DEATHS, pipeline, "worker_deaths");
        put_trouble(row, COLUMN_BAD, pipeline, "bad_samples");
}

/* ---- what stands below it ---- */

/* By what it says: nothing to do, something to gain, something wrong. */
static enum screen_style style_of_sentence(const json_t *pipeline) {
        static const char *const calm[] = {"jobs", "nothing", "start", "gather"};
        const char *what = ctl_text_of(json_object_get(pipeline, "held_back_by"), "what");

        if (json_is_string(json_object_get(pipeline, "error")) || strcmp(what, "storage") == 0)
                return SCREEN_RED;
        for (size_t i = 0; i < sizeof(calm) / sizeof(calm[0]); i++)
                if (strcmp(what, calm[i]) == 0)
                        return SCREEN_PLAIN;
        return SCREEN_YELLOW;
}

/* In `rows` rows; what does not fit into the last is cut. */
static uint32_t put_sentence(struct screen *screen, uint32_t row, const json_t *pipeline, uint32_t rows) {
        uint32_t width = screen->columns > INDENT ? screen->columns - INDENT : 1;
        enum screen_style style = style_of_sentence(pipeline);
        const char *text = sentence_of(pipeline);

        for (uint32_t i = 0; i < rows && text; i++) {
                size_t n = i + 1 < rows ? screen_next_line(screen, text, width) : strlen(text);
                uint32_t end = screen_put(screen, row + i, INDENT, style, "%.*s", (int)n, text);

                if (i + 1 == rows && screen_measure(screen, text) > width)
                        screen_put(screen, row + i, end > 0 ? end - 1 : 0, style, "~");
                text += n + (text[n] == ' ');
        }
        return row + rows;
}

/* "read 12 %, decode 70 %, transform 18 %" of the time since the earlier answer; "" if there is one only. */
static void describe_stages(char text[STAGES_TEXT], const struct top_view *view, const json_t *before,
                            const json_t *pipeline) {
        const json_t *stages = json_object_get(pipeline, "stages");
        const json_t *earlier = json_object_get(before, "stages");
        double sum = 0;
        const char *name;
        size_t n = 0;
        json_t *stage;

        *text = 0;
        if (json_object_size(stages) < 2)
                return;
        json_object_foreach((json_t *)stages, name, stage) {
                double grown = top_grown(view, json_object_get(earlier, name), stage, "seconds");

                sum += isnan(grown) ? 0 : grown;
        }
        json_object_foreach((json_t *)stages, name, stage) {
                double grown = top_grown(view, json_object_get(earlier, name), stage, "seconds");

                if (grown > 0.005 * sum && n < STAGES_TEXT)
                        n += (size_t)snprintf(text + n, STAGES_TEXT - n, "%s%s %.0f %%", n > 0 ? ", " : "",
                                              name, 100 * grown / sum);
        }
}

/* If it fits as a whole. */
static uint32_t put_if_it_fits(struct screen *screen, uint32_t row, uint32_t column, const char *text) {
        if (column + screen_measure(screen, text) > screen->columns)
                return column;
        return screen_put(screen, row, column, SCREEN_PLAIN, "%s", text);
}

/* Columns for a strip of so many marks before a text of so many: what the text leaves, or all of the row
 * where that would squeeze it. */
static uint32_t strip_room(const struct screen *screen, uint64_t marks, uint32_t text) {
        uint32_t room = screen->columns > LABEL ? screen->columns - LABEL : 0;
        uint32_t rest = room > text + TEXT_GAP ? room - text - TEXT_GAP : 0;

        return rest >= marks || rest >= room / 3 ? rest : room;
}

static void put_ring_row(struct screen *screen, uint32_t row, const struct top_view *view,
                         const json_t *pipeline) {
        struct top_slots slots;
        uint32_t column;
        char text[160];

        top_count_slots(&slots, pipeline);
        snprintf(text, sizeof(text), "%llu slots: %llu leased, %llu ready, %llu filling, %llu free",
                 (unsigned long long)slots.all, (unsigned long long)slots.leased,
                 (unsigned long long)slots.ready, (unsigned long long)slots.filling,
                 (unsigned long long)slots.free);
        if (slots.quarantined > 0)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %llu lost",
                         (unsigned long long)slots.quarantined);
        screen_put(screen, row, INDENT, SCREEN_DIM, "ring");
        column = top_draw_ring(screen, row, LABEL, strip_room(screen, slots.all, (uint32_t)strlen(text)),
                               view, pipeline);
        put_if_it_fits(screen, row, column + TEXT_GAP, text);
}

static void describe_busy(char text[NUMBER_TEXT_MAX], const struct top_view *view, const json_t *before,
                          const json_t *pipeline) {
        double busy = top_pipeline_busy(view, before, pipeline);

        snprintf(text, NUMBER_TEXT_MAX, "%.1f of %llu busy", isnan(busy) ? 0 : busy,
                 (unsigned long long)ctl_number_of(pipeline, "workers_alive"));
}

static void put_workers_row(struct screen *screen, uint32_t row, const struct top_view *view,
                            const json_t *before, const json_t *pipeline) {
        char busy[NUMBER_TEXT_MAX], stages[STAGES_TEXT];
        uint32_t column;

        describe_busy(busy, view, before, pipeline);
        describe_stages(stages, view, before, pipeline);
        screen_put(screen, row, INDENT, SCREEN_DIM, "workers");
        column = top_draw_workers(screen, row, LABEL,
                                  strip_room(screen, ctl_number_of(pipeline, "workers_alive"),
                                             (uint32_t)(strlen(busy) + TEXT_GAP + strlen(stages))),
                                  view, pipeline);
        column = put_if_it_fits(screen, row, column + TEXT_GAP, busy);
        put_if_it_fits(screen, row, column + TEXT_GAP, stages);
}

/* Side by side. */
static void put_strips(struct screen *screen, uint32_t row, const struct top_view *view, const json_t *before,
                       const json_t *pipeline) {
        uint32_t half = screen->columns / 2, column;
        char busy[NUMBER_TEXT_MAX];

        describe_busy(busy, view, before, pipeline);
        column = screen_put(screen, row, INDENT, SCREEN_DIM, "ring ");
        top_draw_ring(screen, row, column, half > column + 1 ? half - column - 1 : 0, view, pipeline);
        column = screen_put(screen, row, half, SCREEN_DIM, "workers ");
        if (column + strlen(busy) + 1 < screen->columns)
                column = top_draw_workers(screen, row, column,
                                          screen->columns - column - (uint32_t)strlen(busy) - 1, view,
                                          pipeline);
        put_if_it_fits(screen, row, column + 1, busy);
}

uint32_t top_draw_pipeline(struct screen *screen, uint32_t row, const struct top_view *view,
                           const json_t *pipeline, uint32_t units) {
        const json_t *before = top_before(view, "pipelines", pipeline, 0);
        uint32_t starts[COLUMNS], widths[COLUMNS], sentence = sentence_rows(screen, pipeline);

        place(screen, starts, widths);
        put_row(&(struct row){screen, row, starts, widths}, view, before, pipeline);
        row++;
        if (units >= UNIT_SENTENCE && sentence > 0)
                row = put_sentence(screen, row, pipeline, units >= UNIT_WHOLE_SENTENCE ? sentence : 1);
        if (!has_strips(pipeline) || units < UNIT_STRIPS)
                return row + (units >= UNIT_EMPTY_ROW && sentence > 0);
        if (units < UNIT_OWN_ROWS) {
                put_strips(screen, row, view, before, pipeline);
                return row + 1;
        }
        put_ring_row(screen, row, view, pipeline);
        put_workers_row(screen, row + 1, view, before, pipeline);
        return row + 2 + (units >= UNIT_EMPTY_ROW);
}
