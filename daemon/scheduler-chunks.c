/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows a worker gets next, and what becomes of them.
 *
 * There are two kinds of work: rows of slots that are being filled (the open list, short since every slot
 * that was begun goes before what is not more urgent) and slots that are missing (every job's cursor stands
 * at its first one). The more urgent one is taken, where urgency is the distance to the first use, which is 0
 * for due batches only, and among these the time that the job has waited. A missing slot that cannot be had,
 * because nothing that may be evicted is used later, makes way for the open ones; then no less urgent missing
 * slot could be had either.
 *
 * Chunks that are out are remembered, so that one which was never handed out, or is reported twice, changes
 * nothing. A lost chunk takes its slot's filling with it, once the slot's other chunks have come back; a
 * filling that nobody wants any more, since its jobs have gone, ends the same way unless all its rows were
 * handed out already: then it becomes READY, and is the first to be evicted. */

#include "daemon/scheduler-internal.h"

struct urgency {
        uint64_t use;
        uint32_t rank;
};

static bool more_urgent(struct urgency a, struct urgency b) {
        return a.use < b.use || (a.use == b.use && a.use == 0 && a.rank < b.rank);
}

static struct slot *most_urgent_open(struct scheduler *scheduler, struct urgency *urgency) {
        struct slot *found = NULL;

        list_for_each (entry, &scheduler->open) {
                struct slot *slot = container_of(entry, struct slot, link);
                struct consumer *who = NULL;
                struct urgency its = {.use = consumers_use(scheduler, slot->key, &who)};

                if (!who)
                        continue; /* its jobs have gone: only chunks that are out are finished */
                its.rank = who->rank;
                if (found && !more_urgent(its, *urgency))
                        continue;
                found = slot;
                *urgency = its;
        }
        return found;
}

static struct consumer *most_urgent_missing(struct scheduler *scheduler, struct urgency *urgency) {
        struct consumer *found = NULL;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                struct urgency its = {.rank = consumer->rank};

                if (consumer_advance(scheduler, consumer))
                        continue; /* at an open slot, which goes before all that this job misses */
                its.use = consumer_use(scheduler, consumer, consumer->cursor);
                if (found && !more_urgent(its, *urgency))
                        continue;
                found = consumer;
                *urgency = its;
        }
        return found;
}

static struct slot *choose_slot(struct scheduler *scheduler, uint64_t *use) {
        struct urgency open_urgency = {0}, missing_urgency = {0};
        struct slot *open = most_urgent_open(scheduler, &open_urgency);
        struct consumer *missing = most_urgent_missing(scheduler, &missing_urgency);
        struct slot *taken;
        struct slot_key key;

        if (missing && (!open || more_urgent(missing_urgency, open_urgency))) {
                key = missing->cursor;
                taken = slots_take(scheduler, missing_urgency.use);
                if (taken) {
                        slots_start(scheduler, taken, key);
                        *use = missing_urgency.use;
                        return taken;
                }
        }
        if (open)
                *use = open_urgency.use;
        return open;
}

static uint32_t least_of(uint32_t a, uint32_t b) {
        return a < b ? a : b;
}

/* While somebody waits, everybody gets an equal share of what is not done. */
static uint32_t chunk_rows(const struct slot *slot, uint64_t use, uint32_t rows_wanted, uint32_t workers) {
        uint32_t rows = least_of(slot->rows - slot->rows_assigned, rows_wanted > 0 ? rows_wanted : 1);
        uint32_t undone = slot->rows - slot->rows_done;

        if (use > 0 || workers == 0)
                return rows;
        return least_of(rows, undone / workers + (undone % workers > 0));
}

static uint32_t hand_out(struct scheduler *scheduler, struct slot *slot, uint32_t rows) {
        uint32_t at = scheduler->unused, first = slot->rows_assigned;
        struct slot_chunk *chunk = &scheduler->chunks[at];

        scheduler->unused = chunk->next;
        *chunk = (struct slot_chunk){first, rows, slot->chunks};
        slot->chunks = at;
        slot->rows_assigned += rows;
        if (!slot_is_open(slot))
                list_unlink(&slot->link);
        return first;
}

bool scheduler_next_chunk(struct scheduler *scheduler, uint32_t rows_wanted, uint32_t workers,
                          struct scheduler_chunk *chunk) {
        struct slot *slot;
        uint64_t use;
        uint32_t rows, first;

        if (scheduler->unused == SCHEDULER_NONE)
                return false;
        slot = choose_slot(scheduler, &use);
        if (!slot)
                return false;
        rows = chunk_rows(slot, use, rows_wanted, workers);
        first = hand_out(scheduler, slot, rows);
        *chunk = (struct scheduler_chunk){
                .slot = slot_number(scheduler, slot),
                .first = first,
                .rows = rows,
                .epoch = slot->key.epoch,
                .row = slot->key.index * scheduler->config.slot_rows + first,
                .seed = slot->key.seed,
        };
        return true;
}

/* The slot whose chunk this is; the chunk is out no more. NULL: there is no such chunk. */
static struct slot *take_back(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows) {
        struct slot *slot;
        uint32_t *at, found;

        if (number >= scheduler->config.slots)
                return NULL;
        slot = &scheduler->slots[number];
        at = &slot->chunks;
        while (*at != SCHEDULER_NONE &&
               (scheduler->chunks[*at].first != first || scheduler->chunks[*at].rows != rows))
                at = &scheduler->chunks[*at].next;
        if (*at == SCHEDULER_NONE)
                return NULL;
        found = *at;
        *at = scheduler->chunks[found].next;
        scheduler->chunks[found].next = scheduler->unused;
        scheduler->unused = found;
        return slot;
}

static void give_up_unwanted(struct scheduler *scheduler, struct slot *slot) {
        if (slot_is_open(slot) && slot->chunks == SCHEDULER_NONE &&
            consumers_use(scheduler, slot->key, NULL) == SCHEDULER_NEVER)
                slots_drop(scheduler, slot);
}

/* After a job has gone. */
void chunks_give_up_unwanted(struct scheduler *scheduler) {
        list_for_each_safe (entry, &scheduler->open)
                give_up_unwanted(scheduler, container_of(entry, struct slot, link));
}

int scheduler_chunk_done(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows) {
        struct slot *slot = take_back(scheduler, number, first, rows);

        if (!slot)
                return SCHEDULER_E_UNKNOWN;
        slot->rows_done += rows;
        scheduler->counters.rows_prepared += rows;
        if (slot->lost && slot->chunks == SCHEDULER_NONE)
                slots_drop(scheduler, slot);
        else if (slot->rows_done == slot->rows)
                slots_ready(scheduler, slot);
        else
                give_up_unwanted(scheduler, slot);
        return 0;
}

int scheduler_chunk_lost(struct scheduler *scheduler, uint32_t number, uint32_t first, uint32_t rows) {
        struct slot *slot = take_back(scheduler, number, first, rows);

        if (!slot)
                return SCHEDULER_E_UNKNOWN;
        slot->lost = true;
        list_unlink(&slot->link);
        if (slot->chunks == SCHEDULER_NONE)
                slots_drop(scheduler, slot);
        return 0;
}
