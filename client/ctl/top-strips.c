/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pictures of one row. A ring has a character for each slot, in the order of the slots, so that one sees it
 * being filled and drained; with more slots than columns each state has the share of the columns that it has
 * of the slots, and whatever is there at all has one. Workers have a bar each while there is room for bars
 * that say something, else a cell each, and with more workers than columns a cell stands for the average of
 * several. */

#include "client/ctl/top.h"

#include "client/ctl/ctl.h"
#include "client/ctl/screen.h"

#include <string.h>

enum {
        BAR_LEAST = 3, /* columns of a worker's bar; one cell says more than two */
        BAR_MOST = 8,
};

enum use {
        USE_LEASED,
        USE_READY,
        USE_FILLING,
        USE_QUARANTINED,
        USE_FREE,
        USES,
};

static const struct {
        const char *utf8, *ascii, *word;
        enum screen_style style;
} looks[USES] = {
        [USE_LEASED] = {"█", "#", "leased", SCREEN_BLUE},
        [USE_READY] = {"▓", "+", "ready", SCREEN_GREEN},
        [USE_FILLING] = {"▄", "0-9", "filling", SCREEN_YELLOW},
        [USE_QUARANTINED] = {"x", "x", "lost", SCREEN_RED},
        [USE_FREE] = {"·", ".", "free", SCREEN_DIM},
};

uint32_t top_draw_legend(struct screen *screen, uint32_t row, uint32_t column) {
        for (int use = 0; use < USES; use++) {
                if (use == USE_QUARANTINED)
                        continue; /* rare, and the sentence says it */
                column = screen_put(screen, row, column, looks[use].style, "%s",
                                    screen->utf8 ? looks[use].utf8 : looks[use].ascii);
                column = screen_put(screen, row, column, SCREEN_DIM, " %s  ", looks[use].word);
        }
        return column;
}

/* ---- the ring ---- */

static enum use use_of(const json_t *slot) {
        const char *state = ctl_text_of(slot, "state");

        if (strcmp(state, "quarantined") == 0)
                return USE_QUARANTINED;
        if (ctl_number_of(slot, "leases") > 0)
                return USE_LEASED;
        if (strcmp(state, "ready") == 0)
                return USE_READY;
        return strcmp(state, "filling") == 0 ? USE_FILLING : USE_FREE;
}

static uint32_t put_slot(struct screen *screen, uint32_t row, uint32_t column, enum use use, double done) {
        const char *mark = screen->utf8 ? looks[use].utf8 : looks[use].ascii;

        if (use == USE_FILLING) /* a full one would look as if it were leased; the least is seen */
                mark = screen_level(screen, done > 0.9 ? 0.9 : done < 0.02 ? 0.02 : done);
        return screen_put(screen, row, column, looks[use].style, "%s", mark);
}

/* One for each slot, as far as the daemon lists them. */
static uint32_t draw_slots(struct screen *screen, uint32_t row, uint32_t column, const json_t *slots,
                           const char *pipeline) {
        for (size_t i = 0; i < json_array_size(slots); i++) {
                const json_t *slot = json_array_get(slots, i);
                uint64_t rows = ctl_number_of(slot, "rows");

                if (strcmp(ctl_text_of(slot, "pipeline"), pipeline) == 0)
                        column = put_slot(screen, row, column, use_of(slot),
                                          rows > 0 ? (double)ctl_number_of(slot, "rows_done") / (double)rows
                                                   : 0);
        }
        return column;
}

/* Shares of `width` columns. Rounding is made good where there is most. */
static void share_out(const uint64_t counts[USES], uint64_t all, uint32_t width, uint32_t columns[USES]) {
        uint32_t sum = 0, largest = 0;

        for (int use = 0; use < USES; use++) {
                columns[use] = (uint32_t)((double)counts[use] / (double)all * width + 0.5);
                if (columns[use] == 0 && counts[use] > 0)
                        columns[use] = 1;
                sum += columns[use];
                if (columns[use] > columns[largest])
                        largest = (uint32_t)use;
        }
        if (sum > width + columns[largest])
                columns[largest] = 0;
        else
                columns[largest] = columns[largest] + width - sum;
}

static uint32_t draw_shares(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                            const struct top_slots *slots) {
        const uint64_t counts[USES] = {[USE_LEASED] = slots->leased,
                                       [USE_READY] = slots->ready,
                                       [USE_FILLING] = slots->filling,
                                       [USE_QUARANTINED] = slots->quarantined,
                                       [USE_FREE] = slots->free};
        uint32_t columns[USES], end = column + width;

        share_out(counts, slots->all, width, columns);
        for (int use = 0; use < USES; use++)
                for (uint32_t i = 0; i < columns[use] && column < end; i++)
                        column = put_slot(screen, row, column, (enum use)use, 0.5);
        return column;
}

uint32_t top_draw_ring(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                       const struct top_view *view, const json_t *pipeline) {
        struct top_slots slots;

        top_count_slots(&slots, pipeline);
        if (slots.all == 0 || width == 0)
                return column;
        if (slots.all <= width)
                return draw_slots(screen, row, column, json_object_get(view->now, "slots"),
                                  ctl_text_of(pipeline, "name"));
        return draw_shares(screen, row, column, width, &slots);
}

/* ---- workers ---- */

uint32_t top_draw_workers(struct screen *screen, uint32_t row, uint32_t column, uint32_t width,
                          const struct top_view *view, const json_t *pipeline) {
        const json_t *workers = json_object_get(view->now, "workers");
        uint32_t alive = (uint32_t)ctl_number_of(pipeline, "workers_alive");
        uint32_t bar = alive > 0 ? width / alive : 0, each, n = 0;
        double sum = 0;

        if (alive == 0 || width == 0)
                return column;
        bar = bar > BAR_LEAST ? bar - 1 : 1; /* with a space between */
        bar = bar > BAR_MOST ? BAR_MOST : bar;
        each = (alive + width - 1) / width;
        for (size_t i = 0; i < json_array_size(workers); i++) {
                const json_t *w = json_array_get(workers, i);

                if (strcmp(ctl_text_of(w, "pipeline"), ctl_text_of(pipeline, "name")) != 0)
                        continue;
                sum += top_worker_busy(view, w, i);
                if (++n % each != 0 && n < alive)
                        continue;
                screen_put_bar(screen, row, column, bar, SCREEN_GREEN, sum / (n % each ? n % each : each));
                column += bar + (bar > 1);
                sum = 0;
        }
        return column;
}
