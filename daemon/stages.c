/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Workers count, each on its page; here it is added up. What nobody was ever in is neither looked at nor
 * told: there may be a thousand workers, and an answer has to come at once. Two percentiles are told for
 * people, and the buckets themselves for whoever wants others, or those of the last minute: the counts only
 * grow, so the difference of two answers is the histogram of what happened between them. */

#include "daemon/stages.h"

#include "base/clock.h"
#include "proto/worker-page.h"

void stages_add_page(struct stage_times *sum, const struct worker_page *page) {
        for (uint32_t i = 0; i < STAGE_KINDS; i++) {
                uint64_t ns = atomic_load_explicit(&page->stage_ns[i], memory_order_acquire);

                if (ns == 0)
                        continue;
                sum->ns[i] += ns;
                for (uint32_t k = 0; k < STAGE_BUCKETS; k++)
                        sum->rows[i][k] +=
                                atomic_load_explicit(&page->stage_rows[i][k], memory_order_acquire);
        }
}

static json_t *as_seconds(uint64_t ns) {
        return json_real((double)ns / NS_PER_S);
}

static json_t *make_percentile(const struct stage_times *times, enum row_stage stage, double share) {
        uint64_t ns = stage_percentile(times, stage, share);

        return ns > 0 ? as_seconds(ns) : json_null();
}

/* Those in which there is anything. */
static json_t *make_buckets(const uint64_t rows[STAGE_BUCKETS]) {
        json_t *list = json_array();

        for (uint32_t i = 0; i < STAGE_BUCKETS; i++)
                if (rows[i] > 0)
                        json_array_append_new(list, json_pack("[o, I]", as_seconds(stage_bucket_end(i)),
                                                              (json_int_t)rows[i]));
        return list;
}

json_t *stages_to_json(const struct stage_times *times) {
        json_t *object = json_object();

        for (int i = 0; i < STAGE_KINDS; i++) {
                enum row_stage stage = (enum row_stage)i;

                if (times->ns[i] == 0)
                        continue;
                json_object_set_new(object, stage_name(stage),
                                    json_pack("{s:I, s:o, s:o, s:o, s:o}", "rows",
                                              (json_int_t)stage_rows(times, stage), "seconds",
                                              as_seconds(times->ns[i]), "p50",
                                              make_percentile(times, stage, 0.5), "p99",
                                              make_percentile(times, stage, 0.99), "buckets",
                                              make_buckets(times->rows[i])));
        }
        return object;
}
