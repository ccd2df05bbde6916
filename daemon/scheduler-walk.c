/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where a job will go: which slots a batch lies in, how soon a job uses a slot, and its cursor.
 *
 * A batch lies in slots that follow each other, and, when its padding wraps round, in the epoch's first ones
 * as well. A slot counts once however often the batch comes by: with few samples and much padding that may be
 * several times.
 *
 * Distances count batches: 0 is the next one, which is also what only due batches have after consumer_use has
 * put the others one further back. What a job uses of an epoch that its lookahead does not reach is not used
 * at all, until the job is sent there; nor is what lockstep does not let it have yet.
 *
 * The cursor keeps looking for work cheap: what a job uses from its next batch up to the cursor is resident
 * and was completely handed to workers. It moves forward over such slots, once each, and back when one of
 * them is dropped. It stops at the first slot that is missing or has rows to hand out, at the latest after as
 * many slots as the ring has, or where lookahead ends. Where many batches lie in one slot it does not look at
 * each of them. */

#include "daemon/scheduler-internal.h"

/* ---- spans ---- */

struct slot_span span_of(const struct scheduler_config *config, const struct position_plan *plan,
                         const struct position *batch) {
        uint64_t begin = batch->row < plan->samples ? batch->row : batch->row % plan->samples;
        uint64_t end = begin + batch->rows, wrapped;

        if (end <= plan->samples)
                return (struct slot_span){begin / config->slot_rows, (end - 1) / config->slot_rows, 0};
        if (end - plan->samples >= begin) /* all of the epoch */
                return (struct slot_span){0, (plan->samples - 1) / config->slot_rows, 0};
        wrapped = (end - plan->samples - 1) / config->slot_rows + 1;
        if (wrapped > begin / config->slot_rows) /* it ends in the slot where it begins: the same */
                return (struct slot_span){0, (plan->samples - 1) / config->slot_rows, 0};
        return (struct slot_span){begin / config->slot_rows, (plan->samples - 1) / config->slot_rows,
                                  wrapped};
}

static uint64_t span_place(const struct slot_span *span, uint64_t index) {
        return index >= span->first ? index - span->first : span->last - span->first + 1 + index;
}

/* ---- distances ---- */

/* Epochs from here on are not for this job, unless it is sent there. */
static bool is_beyond(const struct consumer *consumer, uint32_t epoch) {
        return epoch > consumer->epoch && epoch - consumer->epoch > consumer->job.lookahead;
}

/* The first batch, from the next on, that uses a row of `key`: how far it is, and which. */
static uint64_t find_use(const struct scheduler *scheduler, const struct consumer *consumer,
                         struct slot_key key, struct position *found) {
        uint64_t first = key.index * scheduler->config.slot_rows, end = first + scheduler->config.slot_rows;

        if (key.seed != consumer->job.seed || is_beyond(consumer, key.epoch))
                return SCHEDULER_NEVER;
        if (end > scheduler->config.samples)
                end = scheduler->config.samples;
        return position_find(&consumer->job.plan, &consumer->next, key.epoch, first, end, found);
}

/* Batches until the first one that uses a row of `key`, or SCHEDULER_NEVER. For rules 4 and 5 a next batch
 * that is not due ranks as a second next, and so on. */
uint64_t consumer_use(const struct scheduler *scheduler, const struct consumer *consumer,
                      struct slot_key key) {
        struct position batch;
        uint64_t distance = find_use(scheduler, consumer, key, &batch);

        if (distance != SCHEDULER_NEVER && consumer_is_led(consumer, &batch))
                return SCHEDULER_NEVER;
        return distance == SCHEDULER_NEVER ? distance : distance + !consumer->due;
}

/* The first use that any job has for `key`, and whose it is: of equals, the one that waits longest. */
uint64_t consumers_use(const struct scheduler *scheduler, struct slot_key key, struct consumer **who) {
        uint64_t least = SCHEDULER_NEVER;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t use = consumer_use(scheduler, consumer, key);

                if (use >= least)
                        continue;
                least = use;
                if (who)
                        *who = consumer;
        }
        return least;
}

/* ---- the cursor ---- */

static void cursor_enter(struct cursor *cursor, const struct scheduler *scheduler,
                         const struct consumer *consumer, struct position batch, uint64_t number) {
        *cursor = (struct cursor){.batch = batch,
                                  .number = number,
                                  .span = span_of(&scheduler->config, &consumer->job.plan, &batch)};
}

/* To the first slot of the job's next batch. */
void cursor_set(struct cursor *cursor, const struct consumer *consumer) {
        *cursor = (struct cursor){consumer->next, consumer->number, consumer->span, 0};
}

static bool is_wanted(const struct cursor *cursor, const struct consumer *consumer) {
        return !is_beyond(consumer, cursor->batch.epoch) && !consumer_is_led(consumer, &cursor->batch);
}

struct slot_key cursor_key(const struct cursor *cursor, const struct consumer *consumer) {
        return (struct slot_key){consumer->job.seed, span_slot(&cursor->span, cursor->place),
                                 cursor->batch.epoch};
}

/* Over the batches that lie in the slot where the cursor's batch ends, and in no other: to the first one of
 * the epoch with a row of a later slot. If none has, only the tail can use another, round the epoch's end. */
static void skip(struct cursor *cursor, const struct scheduler *scheduler, const struct consumer *consumer) {
        const struct position_plan *plan = &consumer->job.plan;
        uint64_t behind = (cursor->span.last + 1) * scheduler->config.slot_rows, steps = SCHEDULER_NEVER;
        const struct position *batch = &cursor->batch;
        struct position found;

        if (behind < plan->samples)
                steps = position_find(plan, batch, batch->epoch, behind, plan->samples, &found);
        if (steps == SCHEDULER_NEVER) {
                steps = position_batches(plan, batch->base) - 1 - batch->step;
                found = position_at(plan, batch->epoch, batch->base, batch->step + steps);
        }
        cursor_enter(cursor, scheduler, consumer, found, cursor->number + steps);
}

/* To the next slot that the job uses. */
static void step(struct cursor *cursor, const struct scheduler *scheduler, const struct consumer *consumer) {
        uint32_t epoch = cursor->batch.epoch;
        uint64_t last = cursor->span.last;

        if (++cursor->place < span_count(&cursor->span))
                return;
        cursor_enter(cursor, scheduler, consumer, position_next(&consumer->job.plan, cursor->batch),
                     cursor->number + 1);
        if (cursor->batch.epoch == epoch && cursor->span.first == last && span_count(&cursor->span) == 1)
                skip(cursor, scheduler, consumer);
}

/* Moves the cursor to the first slot that needs work. True: it is missing, and the cursor's batch is the
 * first that uses it; else it is being filled, or nothing more is wanted. */
bool consumer_advance(struct scheduler *scheduler, struct consumer *consumer) {
        struct cursor *cursor = &consumer->cursor;

        while (is_wanted(cursor, consumer)) {
                const struct slot *slot = slots_find(scheduler, cursor_key(cursor, consumer));

                if (!slot)
                        return true;
                if (slot_is_open(slot))
                        return false;
                step(cursor, scheduler, consumer);
        }
        return false;
}

/* A slot was dropped: if the cursor has passed it, it goes back there. */
void consumer_go_back(struct scheduler *scheduler, struct consumer *consumer, struct slot_key key) {
        struct cursor *cursor = &consumer->cursor, back;
        struct position found;
        uint64_t distance = find_use(scheduler, consumer, key, &found);

        if (distance == SCHEDULER_NEVER || consumer->number + distance > cursor->number)
                return;
        cursor_enter(&back, scheduler, consumer, found, consumer->number + distance);
        back.place = span_place(&back.span, key.index);
        if (back.number < cursor->number || back.place < cursor->place)
                *cursor = back;
}

/* Whole batches that lie READY one after the other from the job's next on, whether or not it may have them.
 */
uint64_t consumer_ready(const struct scheduler *scheduler, const struct consumer *consumer) {
        struct cursor cursor;
        struct slot *slot;

        cursor_set(&cursor, consumer);
        while (!is_beyond(consumer, cursor.batch.epoch) &&
               (slot = slots_find(scheduler, cursor_key(&cursor, consumer))) &&
               slot->state == SCHEDULER_SLOT_READY)
                step(&cursor, scheduler, consumer);
        return cursor.number - consumer->number;
}
