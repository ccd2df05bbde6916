#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* top: what two answers to "status" look like on a screen, or as lines. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct fault;
struct screen;

enum {
        TOP_NOTICE_MAX = 1024,
        TOP_UNITS_ESSENTIAL = 3,
        TOP_ROW_UNITS = 6, /* steps in which a pipeline is given more rows */
};

/* What is to be shown. Members that are missing in the answers, being another version's, are shown as a dash
 * or not at all. */
struct top_view {
        const json_t *now;    /* the last answer; NULL: there was none yet */
        const json_t *before; /* an earlier one of the same daemon, or NULL: the daemon's own word is taken */
        const char *notice;   /* what is wrong, or NULL */
        double interval;      /* seconds from one answer to the next */
        bool keys;            /* somebody can press them */
        bool paused;
        bool as_text;       /* the screen is as long as anybody could want, and need not be filled */
        uint32_t first_job; /* scrolled past so many */
};

/* What of the jobs was shown. */
struct top_shown {
        uint32_t jobs, of;
};

/* ---- top-rates.c: what happened between the two answers. NAN stands for what is not known. ---- */

double top_seconds(const struct top_view *view);

/* The pipeline, job or worker of the earlier answer that `now` tells of; NULL if there is none. `index`:
 * where it stands in the later one. */
const json_t *top_before(const struct top_view *view, const char *list, const json_t *now, size_t index);

/* By how much a number has grown in a second. */
double top_grown(const struct top_view *view, const json_t *before, const json_t *now, const char *member);

/* The same of a pipeline's counter; without an earlier answer what "recent" says under NAME_per_second. */
double top_pipeline_rate(const struct top_view *view, const json_t *before, const json_t *pipeline,
                         const char *member);

/* Workers that a pipeline, all pipelines, kept busy on average; the share of the time that one worker was. */
double top_pipeline_busy(const struct top_view *view, const json_t *before, const json_t *pipeline);
double top_busy(const struct top_view *view);
double top_worker_busy(const struct top_view *view, const json_t *worker, size_t index);

/* The share of the time for which a job waited: "waited_for_data" and its kind, in "recent" and with _s. */
double top_job_share(const struct top_view *view, const json_t *before, const json_t *job, const char *name);
double top_job_rate(const struct top_view *view, const json_t *before, const json_t *job);

/* Rows by which it is behind the first of its stream; NAN if it has that to itself. */
double top_job_lag(const struct top_view *view, const json_t *job);

/* The pipeline's sentence: what went wrong with it, what it waits for, or what holds it back; NULL: none. */
const char *top_sentence(const json_t *pipeline);

/* Its state in a word: also that only jobs of before a reload read it. */
const char *top_state(const json_t *pipeline);

/* Jobs of a pipeline. */
uint32_t top_count_jobs(const json_t *status, const json_t *pipeline);

/* Slots by what they are used for. */
struct top_slots {
        uint64_t all, leased, ready, filling, quarantined, free;
};
void top_count_slots(struct top_slots *slots, const json_t *pipeline);

/* ---- drawing ---- */

/* top-draw.c: all of it. */
void top_draw(struct screen *screen, const struct top_view *view, struct top_shown *shown);

/* top-pipelines.c: titles of the table; how many rows a pipeline takes if it is given `units`, 1 to
 * TOP_ROW_UNITS, of what there is to say; and these, from `row` on. Returns the row behind. */
void top_draw_pipeline_titles(struct screen *screen, uint32_t row, const struct top_view *view);
uint32_t top_pipeline_rows(const struct screen *screen, const json_t *pipeline, uint32_t units);
uint32_t top_draw_pipeline(struct screen *screen, uint32_t row, const struct top_view *view,
                           const json_t *pipeline, uint32_t units);

/* top-strips.c: the ring as a picture of its slots, and workers as bars, on at most `width` columns. Return
 * the columns taken. */
uint32_t top_draw_ring(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                       const struct top_view *view, const json_t *pipeline);
uint32_t top_draw_workers(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                          const struct top_view *view, const json_t *pipeline);

/* What the characters of a ring mean. Returns the column behind. */
uint32_t top_draw_legend(struct screen *screen, uint32_t row, uint32_t column);

/* top-jobs.c: the table, titles first, in the rows from `row` up to `end`. Returns the row behind. */
uint32_t top_draw_jobs(struct screen *screen, uint32_t row, uint32_t end, const struct top_view *view,
                       struct top_shown *shown);

/* A table's columns: `from` is the least width of a screen that shows one; where there is room it grows from
 * `width` to `most`, the first in the table before the others. */
struct top_column {
        const char *title;
        char align; /* 'l' or 'r' */
        uint8_t width, most;
        uint16_t from;
};

/* Where they begin, and how wide they are; 0: not shown. `left_out`: a bit for each that is not to be shown
 * anyway. */
void top_place_columns(const struct screen *screen, const struct top_column *columns, uint32_t n,
                       uint32_t left_out, uint32_t starts[], uint32_t widths[]);
void top_draw_titles(struct screen *screen, uint32_t row, const struct top_column *columns, uint32_t n,
                     const uint32_t starts[], const uint32_t widths[]);

/* ---- top-lines.c: a line for each pipeline, for other programs ---- */

void top_print_lines(FILE *stream, const struct top_view *view, const char *time);

/* ---- top-link.c: a connection to the daemon that never waits ---- */

enum {
        TOP_LINK_E_GONE = 1, /* nobody listens, or it has hung up: ask again later */
        TOP_LINK_E_MORE,     /* the answer is not whole yet */
};

struct top_link {
        const char *runtime_dir;
        int fd;              /* or -1 */
        uint64_t asked_ns;   /* when the question was put; 0: none is open */
        char *answer;        /* so far */
        size_t size, length; /* of it: room, and bytes that are there */
};

void top_link_init(struct top_link *link, const char *runtime_dir);
void top_link_deinit(struct top_link *link);

/* Puts the question, connecting first if need be; nothing while one is open. 0, TOP_LINK_E_GONE with a text,
 * or a negative errno. */
int top_link_ask(struct top_link *link, struct fault *fault);

/* Reads what has come. 0 with an answer, TOP_LINK_E_MORE, TOP_LINK_E_GONE with a text, or a negative errno:
 * also when the answer is that it will not answer. */
int top_link_read(struct top_link *link, json_t **answer, struct fault *fault);
