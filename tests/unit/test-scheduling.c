/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The figures of docs/scheduling.md against the scheduler. Each is drawn here, event by event, by a scheduler
 * that lives through what the figure tells, and has to stand in the document as it is drawn.
 *
 * A line is an event and, for every slot of the epoch, what the ring has of it:
 *
 *     .    nothing        +    workers are at it        o    READY, nobody holds it        AB   A and B hold
 * it
 *
 * When a line is to be written anew, the test prints the whole figure. */

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/scheduler.h"
#include "tests/support/run.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        COLUMNS = 12, /* slots of the epoch */
        WIDTH = 4,    /* of a column */
        LABEL = 24,   /* of the event */
        LETTERS = 3,  /* jobs: A, B, C */
        HELD_MAX = 8,
        FIGURE_MAX = 4096,
};

struct stage {
        struct scheduler *scheduler;
        struct scheduler_config config;
        uint64_t now;
        uint64_t held[LETTERS][HELD_MAX]; /* numbers of batches, the oldest first */
        uint32_t n_held[LETTERS];
        char figure[FIGURE_MAX];
};

__attribute__((format(printf, 2, 3))) static void add(struct stage *stage, const char *format, ...) {
        size_t n = strlen(stage->figure);
        va_list args;

        va_start(args, format);
        vsnprintf(stage->figure + n, FIGURE_MAX - n, format, args);
        va_end(args);
}

static void draw_heads(struct stage *stage) {
        add(stage, "%-*s", LABEL, "slot of the epoch");
        for (int k = 0; k < COLUMNS; k++)
                add(stage, "%*d", WIDTH, k);
        add(stage, "\n");
}

static void stage_open(struct stage *stage, uint32_t slots, uint32_t slot_rows) {
        *stage = (struct stage){
                .config = {.slots = slots, .slot_rows = slot_rows, .samples = (uint64_t)COLUMNS * slot_rows}};
        ck_assert_int_eq(scheduler_new(&stage->scheduler, &stage->config), 0);
        draw_heads(stage);
}

/* ---- what happens ---- */

static void deliver(struct stage *stage) {
        struct scheduler_delivery delivery;

        while (scheduler_next_delivery(stage->scheduler, stage->now, &delivery)) {
                uint32_t job = delivery.job;

                ck_assert_uint_lt(stage->n_held[job], HELD_MAX);
                stage->held[job][stage->n_held[job]++] = delivery.number;
        }
}

static struct position_plan plan_of(const struct stage *stage, uint32_t batch_size) {
        return (struct position_plan){.samples = stage->config.samples,
                                      .batch_size = batch_size,
                                      .world_size = 1,
                                      .last_batch = LAST_BATCH_SHORT};
}

static void come(struct stage *stage, char letter, uint32_t batch_size, uint32_t max_held, uint64_t row) {
        struct scheduler_job job = {.id = (uint32_t)(letter - 'A'),
                                    .plan = plan_of(stage, batch_size),
                                    .start_row = row,
                                    .max_held = max_held};
        struct fault fault;

        stage->now += NS_PER_S;
        ck_assert_int_eq(scheduler_attach(stage->scheduler, &job, stage->now, &fault), 0);
        deliver(stage);
}

/* Gives back its oldest batch. */
static void give(struct stage *stage, char letter) {
        uint32_t job = (uint32_t)(letter - 'A');
        uint64_t *held = stage->held[job];

        ck_assert_uint_gt(stage->n_held[job], 0);
        stage->now += NS_PER_MS;
        ck_assert_int_eq(scheduler_release(stage->scheduler, job, held[0], stage->now), 0);
        memmove(held, held + 1, --stage->n_held[job] * sizeof(*held));
        deliver(stage);
}

/* A worker begins the slot that comes first now. False: there is nothing to do. */
static bool begin(struct stage *stage, struct scheduler_chunk *chunk) {
        return scheduler_next_chunk(stage->scheduler, stage->config.slot_rows, 1, chunk);
}

static void end(struct stage *stage, const struct scheduler_chunk *chunk) {
        stage->now += 10 * NS_PER_MS;
        ck_assert_int_eq(scheduler_chunk_done(stage->scheduler, chunk->slot, chunk->first, chunk->rows), 0);
        deliver(stage);
}

/* Fills `n` slots, one after the other; fewer if there is no more to do. */
static int fill(struct stage *stage, int n) {
        struct scheduler_chunk chunk;
        int filled = 0;

        for (; filled < n && begin(stage, &chunk); filled++)
                end(stage, &chunk);
        return filled;
}

/* ---- what is drawn ---- */

static void draw_slot(struct stage *stage, uint64_t index) {
        char cell[LETTERS + 1] = ".";

        for (uint32_t slot = 0; slot < stage->config.slots; slot++) {
                struct scheduler_slot_view view;
                uint32_t holders[LETTERS], n;

                scheduler_view_slot(stage->scheduler, slot, &view);
                if (view.state == SCHEDULER_SLOT_FREE || view.index != index || view.epoch != 0)
                        continue;
                n = scheduler_holders(stage->scheduler, slot, holders, LETTERS);
                snprintf(cell, sizeof(cell), "%s", view.state == SCHEDULER_SLOT_FILLING ? "+" : n ? "" : "o");
                for (uint32_t job = 0; job < LETTERS; job++)
                        for (uint32_t i = 0; i < n; i++)
                                if (holders[i] == job)
                                        snprintf(cell + strlen(cell), sizeof(cell) - strlen(cell), "%c",
                                                 (char)('A' + job));
        }
        add(stage, "%*s", WIDTH, cell);
}

__attribute__((format(printf, 2, 3))) static void line(struct stage *stage, const char *format, ...) {
        char label[80];
        va_list args;

        va_start(args, format);
        vsnprintf(label, sizeof(label), format, args);
        va_end(args);
        ck_assert_msg(strlen(label) <= LABEL, "\"%s\" is longer than %d", label, LABEL);
        add(stage, "%-*s", LABEL, label);
        for (uint64_t k = 0; k < COLUMNS; k++)
                draw_slot(stage, k);
        add(stage, "\n");
}

/* Which batch each row belongs to, for a job with batches of so many rows: the last digit of its number. */
static void draw_batches(struct stage *stage, char letter, uint32_t batch_size) {
        struct position_plan plan = plan_of(stage, batch_size);
        struct position batch = position_first(&plan, 0, 0);

        add(stage, "%c, batches of %-*u", letter, LABEL - (int)strlen("A, batches of "), batch_size);
        for (uint64_t row = 0; row < 4 * (uint64_t)stage->config.slot_rows; row++) {
                if (row >= batch.row + batch.rows)
                        batch = position_next(&plan, batch);
                add(stage, "%s%u", row % stage->config.slot_rows == 0 ? "  " : "",
                    (unsigned)(batch.step % 10));
        }
        add(stage, "\n");
}

/* ---- the figures ---- */

static void draw_apart(struct stage *stage) {
        struct scheduler_chunk chunk;

        stage_open(stage, 6, 4);
        come(stage, 'A', 4, 1, 0);
        fill(stage, 1);
        for (int i = 0; i < 3; i++) {
                give(stage, 'A');
                fill(stage, 1);
        }
        line(stage, "A holds its 4th batch");
        come(stage, 'B', 4, 1, 0);
        line(stage, "B comes, at row 0");
        give(stage, 'B');
        give(stage, 'B');
        line(stage, "B gives two back");
        give(stage, 'A');
        begin(stage, &chunk);
        line(stage, "A gives one back");
        end(stage, &chunk);
        line(stage, "slot 4 is READY");
        give(stage, 'B');
        give(stage, 'B');
        line(stage, "B gives two back");
        fill(stage, 9);
        line(stage, "workers prefetch");
}

static void draw_borders(struct stage *stage) {
        stage_open(stage, 6, 8);
        stage->figure[0] = '\0';
        draw_batches(stage, 'A', 8);
        draw_batches(stage, 'B', 3);
        add(stage, "\n");
        draw_heads(stage);
        come(stage, 'A', 8, 1, 0);
        come(stage, 'B', 3, 1, 0);
        fill(stage, 1);
        line(stage, "slot 0 is READY");
        give(stage, 'B');
        line(stage, "B gives batch 0 back");
        give(stage, 'B');
        line(stage, "and batch 1");
        fill(stage, 1);
        line(stage, "slot 1 is READY");
        give(stage, 'B');
        line(stage, "B gives batch 2 back");
        give(stage, 'A');
        line(stage, "A gives batch 0 back");
}

static void draw_eviction(struct stage *stage) {
        struct scheduler_chunk chunk;

        stage_open(stage, 6, 4);
        come(stage, 'A', 4, 1, 16);
        come(stage, 'B', 4, 1, 0);
        ck_assert_int_eq(fill(stage, 9), 6);
        line(stage, "A is at 4, B at 0");
        give(stage, 'A');
        line(stage, "A gives 4 back");
        begin(stage, &chunk);
        line(stage, "4 is taken for 7");
        end(stage, &chunk);
        give(stage, 'B');
        line(stage, "7 READY; B gives 0 back");
        ck_assert_int_eq(fill(stage, 9), 1);
        line(stage, "0 is taken for 3");
}

static void draw_catch_up(struct stage *stage) {
        struct scheduler_chunk chunk;

        stage_open(stage, 6, 4);
        scheduler_set_catch_up(stage->scheduler, 1000, 10 * (uint64_t)NS_PER_S);
        come(stage, 'A', 4, 1, 16);
        fill(stage, 1);
        give(stage, 'A');
        line(stage, "A waits for 5");
        come(stage, 'B', 4, 1, 4);
        begin(stage, &chunk);
        line(stage, "1. B comes, at slot 1");
        end(stage, &chunk);
        for (int i = 0; i < 2; i++) {
                give(stage, 'B');
                fill(stage, 1);
        }
        line(stage, "2. 1, 2, 3 are filled");
        give(stage, 'B');
        begin(stage, &chunk);
        line(stage, "3. they have met");
        end(stage, &chunk);
        give(stage, 'B');
        line(stage, "4. both hold 5");
}

static void draw_lockstep(struct stage *stage) {
        stage_open(stage, 6, 4);
        scheduler_set_lockstep(stage->scheduler, 1000, 60 * (uint64_t)NS_PER_S);
        come(stage, 'A', 4, 1, 0);
        come(stage, 'B', 4, 1, 0);
        ck_assert_uint_eq(scheduler_lead(stage->scheduler), 8);
        fill(stage, 9);
        line(stage, "both hold 0");
        give(stage, 'A');
        fill(stage, 9);
        line(stage, "A gives 0 back");
        give(stage, 'A');
        fill(stage, 9);
        line(stage, "A gives 1 back");
        give(stage, 'B');
        fill(stage, 9);
        line(stage, "B gives 0 back");
}

/* The rounding up is daemon/pipeline-admission.c's. */
static void draw_live(struct stage *stage) {
        uint32_t epoch, step = 6;
        uint64_t row;

        stage_open(stage, 6, 4);
        come(stage, 'A', 4, 1, 0);
        fill(stage, 1);
        for (int i = 0; i < 4; i++) {
                give(stage, 'A');
                fill(stage, 1);
        }
        line(stage, "A holds its 5th batch");
        ck_assert(scheduler_leader(stage->scheduler, 0, &epoch, &row));
        ck_assert_uint_eq(row, 20);
        row = (row + step - 1) / step * step;
        come(stage, 'B', step, 1, row);
        line(stage, "B comes, at row %" PRIu64, row);
        fill(stage, 2);
        line(stage, "6 and 7 are filled");
        give(stage, 'A');
        fill(stage, 1);
        line(stage, "A gives 4 back, gets 5");
        give(stage, 'A');
        line(stage, "A gives 5 back, gets 6");
}

/* ---- the document ---- */

static const struct {
        const char *name;
        void (*draw)(struct stage *stage);
} figures[] = {
        {"two jobs apart", draw_apart}, {"other batch sizes", draw_borders}, {"eviction", draw_eviction},
        {"catching up", draw_catch_up}, {"lockstep", draw_lockstep},         {"start live", draw_live},
};

static char *read_document(void) {
        const char *folder = getenv("PINFEED_TEST_DOCS");
        char path[4096], *text = NULL;
        size_t size = 0;
        FILE *file;

        snprintf(path, sizeof(path), "%s/scheduling.md", folder ? folder : "docs");
        file = fopen(path, "re");
        ck_assert_msg(file, "%s cannot be read; PINFEED_TEST_DOCS tells where the documents are", path);
        ck_assert_int_gt(getdelim(&text, &size, '\0', file), 0);
        fclose(file);
        return text;
}

START_TEST(test_figures) {
        char *document = read_document(), block[FIGURE_MAX + 16];
        struct stage stage;

        figures[_i].draw(&stage);
        scheduler_free(stage.scheduler);
        snprintf(block, sizeof(block), "```\n%s```\n", stage.figure);
        ck_assert_msg(strstr(document, block) != NULL, "%s: the figure should be\n%s", figures[_i].name,
                      block);
        free(document);
}
END_TEST

/* What it says of `catch_up: 0`: who has waited longest comes first. */
START_TEST(test_without_catch_up) {
        static const uint64_t rows[] = {20, 4, 24};
        struct scheduler_chunk chunk;
        struct stage stage;

        stage_open(&stage, 6, 4);
        come(&stage, 'A', 4, 1, 16);
        fill(&stage, 1);
        give(&stage, 'A');
        come(&stage, 'B', 4, 1, 4);
        for (uint64_t i = 0; i < 3; i++) {
                ck_assert(begin(&stage, &chunk));
                ck_assert_uint_eq(chunk.row, rows[i]);
                end(&stage, &chunk);
                if (i == 0)
                        give(&stage, 'A');
        }
        scheduler_free(stage.scheduler);
}
END_TEST

/* What the text says of minimums: batch size, slots of 8 rows, slots that such a job needs. */
START_TEST(test_minimums) {
        static const uint32_t minimums[][2] = {{8, 2}, {4, 2}, {3, 3}, {6, 4}, {12, 4}, {16, 4}};
        struct stage stage;

        stage_open(&stage, 6, 8);
        for (size_t i = 0; i < sizeof(minimums) / sizeof(minimums[0]); i++) {
                struct position_plan plan = plan_of(&stage, minimums[i][0]);

                ck_assert_uint_eq(scheduler_minimum(&stage.config, &plan, 0), minimums[i][1]);
        }
        scheduler_free(stage.scheduler);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("scheduling");
        TCase *tests = tcase_create("scheduling");

        suite_add_tcase(suite, tests);
        tcase_add_loop_test(tests, test_figures, 0, sizeof(figures) / sizeof(figures[0]));
        tcase_add_test(tests, test_without_catch_up);
        tcase_add_test(tests, test_minimums);
        return run_suite(suite);
}
