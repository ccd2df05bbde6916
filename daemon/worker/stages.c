/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A row's time, divided into stages without a rest: it is always the time of one stage, and whoever knows
 * that another begins says so. So the stages of all rows together are the time that the worker was busy, and
 * a row that needed several tries, or a substitute, counts with all of them.
 *
 * A pending image decodes its pixels in the middle of the transforms, when one of them first needs pixels,
 * and whoever calls image_load knows nothing of stages. So its loader is put inside one that does. A stage
 * that is entered several times counts once, with the sum; one that a row was never in does not count at all.
 *
 * It costs one reading of the clock for each change, some 25 ns, five or six of them for a row of an image;
 * and at the end two words of the page for each stage. */

#include "daemon/worker/stages.h"

#include "base/clock.h"
#include "daemon/worker/image.h"
#include "proto/worker-page.h"

#include <string.h>

void stages_begin(struct stages *stages, struct worker_page *page) {
        memset(stages, 0, sizeof(*stages));
        stages->page = page;
}

void stages_enter(struct stages *stages, enum row_stage stage) {
        uint64_t now;

        if (!stages || !stages->page || (stages->entered && stages->stage == stage))
                return;
        now = clock_ns();
        if (stages->entered)
                stages->spent_ns[stages->stage] += now - stages->since_ns;
        stages->stage = stage;
        stages->since_ns = now;
        stages->entered |= UINT32_C(1) << stage;
}

static int load(struct image *image, struct fault *fault) {
        struct stages *stages = image->loader;
        int r;

        image->loader = stages->loader;
        stages_enter(stages, STAGE_DECODE);
        r = stages->load(image, fault);
        stages_enter(stages, STAGE_TRANSFORM);
        return r;
}

void stages_enter_transforms(struct stages *stages, struct image *image) {
        stages_enter(stages, STAGE_TRANSFORM);
        if (!stages->page || !image->load)
                return;
        stages->load = image->load;
        stages->loader = image->loader;
        image->load = load;
        image->loader = stages;
}

static void add(_Atomic uint64_t *word, uint64_t more) {
        uint64_t before = atomic_load_explicit(word, memory_order_relaxed);

        atomic_store_explicit(word, before + more, memory_order_release);
}

void stages_end(struct stages *stages) {
        struct worker_page *page = stages->page;

        if (!page || !stages->entered)
                return;
        stages->spent_ns[stages->stage] += clock_ns() - stages->since_ns;
        for (uint32_t i = 0; i < STAGE_KINDS; i++) {
                if (!(stages->entered & UINT32_C(1) << i))
                        continue;
                add(&page->stage_ns[i], stages->spent_ns[i]);
                add(&page->stage_rows[i][stage_bucket(stages->spent_ns[i])], 1);
        }
        stages->entered = 0;
}
