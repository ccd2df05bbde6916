/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where the time of a pipeline's workers goes, a line for each stage: whoever wonders what makes data slow
 * looks at the last column first. Which stages there are, and in which order, is the daemon's word. */

#include "client/ctl/ctl.h"

#include "base/number.h"
#include "client/ctl/table.h"

#include <stdio.h>

/* Most are too short for table_seconds. */
static void add_time(struct table *table, const json_t *seconds) {
        double value = json_number_value(seconds);
        char text[NUMBER_TEXT_MAX];

        if (!json_is_number(seconds))
                table_add(table, "-");
        else if (value < 0.001)
                table_add(table, "%.0f us", value * 1e6);
        else
                table_add(table, "%s", table_seconds(text, value));
}

static double seconds_of(const json_t *stage) {
        return json_number_value(json_object_get(stage, "seconds"));
}

static double seconds_of_all(const json_t *stages) {
        const char *name;
        double sum = 0;
        json_t *stage;

        json_object_foreach((json_t *)stages, name, stage) sum += seconds_of(stage);
        return sum;
}

/* Those that a pipeline's rows go through. */
static void add_stages(struct table *table, const json_t *pipeline) {
        const json_t *stages = json_object_get(pipeline, "stages");
        double all = seconds_of_all(stages);
        char rows[NUMBER_TEXT_MAX];
        const char *name;
        json_t *stage;

        json_object_foreach((json_t *)stages, name, stage) {
                if (ctl_number_of(stage, "rows") == 0)
                        continue;
                table_add(table, "%s", ctl_text_of(pipeline, "name"));
                table_add(table, "%s", name);
                table_add(table, "%s", number_format_count(rows, ctl_number_of(stage, "rows")));
                add_time(table, json_object_get(stage, "p50"));
                add_time(table, json_object_get(stage, "p99"));
                table_add(table, "%.0f %%", all > 0 ? 100 * seconds_of(stage) / all : 0.0);
        }
}

void ctl_print_stages(const json_t *pipelines) {
        struct table table;
        size_t index;
        json_t *p;

        table_init(&table, "L stages of|l stage|r rows|r p50|r p99|r of the time");
        json_array_foreach(pipelines, index, p) {
                add_stages(&table, p);
        }
        if (table.n_rows > 1)
                putchar('\n');
        table_print(&table);
        table_deinit(&table);
}
