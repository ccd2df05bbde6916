/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Warm slots: the first ones of a stream, prepared before anybody has come, so that the next job has its
 * first batches at once.
 *
 * They are filled only while there is no job. With one the workers are the jobs', and a slot that was filled
 * for nobody between two of theirs would be evicted and filled again for as long as the job runs. They take
 * FREE slots and what no job has left any use for, never each other's: a ring smaller than what is to be kept
 * warm keeps what it has. What is warm is evictable like any other slot, but of those that no job wants it
 * goes last (scheduler-eviction.c).
 *
 * A slot that could not be filled is not tried again before a job has come and gone: its sample would fail
 * again, without end and without anybody to tell. */

#include "daemon/scheduler-internal.h"

bool warm_is_kept(const struct scheduler *scheduler, struct slot_key key) {
        return key.index < scheduler->warm.slots && key.epoch == 0 && key.seed == scheduler->warm.seed;
}

static bool is_time(const struct scheduler *scheduler) {
        if (scheduler->warm.slots == 0 || scheduler->warm.in_vain)
                return false;
        return list_is_empty(&scheduler->consumers) || (scheduler->sabotage & SCHEDULER_WITHOUT_WARM_REST);
}

bool warm_is_wanted(const struct scheduler *scheduler, struct slot_key key) {
        return is_time(scheduler) && warm_is_kept(scheduler, key);
}

/* The first that is missing. */
static bool find_missing(const struct scheduler *scheduler, struct slot_key *key) {
        *key = (struct slot_key){.seed = scheduler->warm.seed};
        while (key->index < scheduler->warm.slots && slots_find(scheduler, *key))
                ++key->index;
        return key->index < scheduler->warm.slots;
}

bool warm_choose(const struct scheduler *scheduler, struct slot **open, struct slot_key *missing) {
        *open = NULL;
        if (!is_time(scheduler))
                return false;
        list_for_each (entry, &scheduler->open) {
                struct slot *slot = container_of(entry, struct slot, link);

                if (!warm_is_kept(scheduler, slot->key))
                        continue;
                *open = slot;
                return true;
        }
        return find_missing(scheduler, missing);
}

int scheduler_set_warm(struct scheduler *scheduler, uint64_t seed, uint32_t slots) {
        if (slots > scheduler->config.slots)
                slots = scheduler->config.slots;
        if (slots > scheduler->epoch_slots)
                slots = (uint32_t)scheduler->epoch_slots;
        scheduler->warm = (struct warm){.seed = seed, .slots = slots};
        return slots > 0 ? books_keep(scheduler, seed) : 0;
}
