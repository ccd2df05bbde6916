/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which slots were filled before: for counting what was prepared twice, never for a decision.
 *
 * Jobs fill their streams in order, so what was filled is a few runs of consecutive slots, one per place
 * where a job started, and 64 of them say it all in most lives of a ring. When they do not suffice the
 * shortest run is forgotten, and slots_refilled counts too few. */

#include "daemon/scheduler-internal.h"

static struct history_run *shortest(struct scheduler *scheduler) {
        struct history_run *found = scheduler->history;

        for (uint32_t i = 1; i < scheduler->n_history; ++i) {
                struct history_run *run = &scheduler->history[i];

                if (run->end - run->first < found->end - found->first)
                        found = run;
        }
        return found;
}

static struct history_run *unused(struct scheduler *scheduler) {
        if (scheduler->n_history < SCHEDULER_HISTORY_MAX)
                return &scheduler->history[scheduler->n_history++];
        return shortest(scheduler);
}

/* Remembers `key`; true when it was remembered already. */
bool history_add(struct scheduler *scheduler, struct slot_key key) {
        uint64_t place = key.epoch * scheduler->epoch_slots + key.index;
        struct history_run *before = NULL, *after = NULL;

        for (uint32_t i = 0; i < scheduler->n_history; ++i) {
                struct history_run *run = &scheduler->history[i];

                if (run->seed != key.seed || place + 1 < run->first || place > run->end)
                        continue;
                if (place >= run->first && place < run->end)
                        return true;
                if (place == run->end)
                        before = run;
                else
                        after = run;
        }
        if (before && after) {
                before->end = after->end;
                *after = scheduler->history[--scheduler->n_history];
        } else if (before) {
                ++before->end;
        } else if (after) {
                --after->first;
        } else {
                *unused(scheduler) = (struct history_run){.seed = key.seed, .first = place, .end = place + 1};
        }
        return false;
}
