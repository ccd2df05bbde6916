/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Rule 5: which slot is used again.
 *
 * Most idle slots (READY, no leases) are never wanted again, or are leased before a slot is needed. So an
 * idle slot first lies in a list, and nobody asks who will want it. When a slot is needed, the list is gone
 * through: what no job will want is taken, and where jobs move through a stream together that is all that is
 * ever taken. (Of that, what is kept warm goes last: it moves to a list of its own, and is asked again when
 * nothing else is left.) What is wanted moves to the heap of the job that wants it first, under the number of
 * the batch that does; the heap's top is the slot that this job uses last.
 *
 * Batches keep their numbers while distances shrink, so time alone changes no heap. What it does change is
 * who is first: a job that is faster, has come, was sent elsewhere or has begun another epoch may want a slot
 * sooner than the job in whose heap it is. Then the number there tells a later use than the true one, never
 * an earlier one. So the largest of all tops bounds every slot's next use from above; if its true use is as
 * late it is the latest of all, and if not the slot moves to where it belongs and the tops are compared
 * again. A search that finds nothing, which is what happens at every event while the ring is full of slots
 * that will be wanted soon, costs a look at each top.
 *
 * A use becomes later only when a job goes or is sent elsewhere: then its heap goes back to the list. A use
 * that passes takes the slot out of the heap, since it is leased. */

#include "daemon/scheduler-internal.h"

static void put(const struct scheduler *scheduler, struct consumer *consumer, uint32_t at, uint32_t number) {
        consumer->heap[at] = number;
        scheduler->slots[number].heap_at = at;
}

static uint64_t batch_at(const struct scheduler *scheduler, const struct consumer *consumer, uint32_t at) {
        return scheduler->slots[consumer->heap[at]].wanted_for;
}

/* Puts slot `number` where `at` is free, or above it. */
static void sift_up(const struct scheduler *scheduler, struct consumer *consumer, uint32_t at,
                    uint32_t number) {
        uint64_t batch = scheduler->slots[number].wanted_for;

        while (at > 0 && batch_at(scheduler, consumer, (at - 1) / 2) < batch) {
                put(scheduler, consumer, at, consumer->heap[(at - 1) / 2]);
                at = (at - 1) / 2;
        }
        put(scheduler, consumer, at, number);
}

/* Puts slot `number` where `at` is free, or below it. */
static void sift_down(const struct scheduler *scheduler, struct consumer *consumer, uint32_t at,
                      uint32_t number) {
        uint64_t batch = scheduler->slots[number].wanted_for;
        uint32_t child;

        while ((child = 2 * at + 1) < consumer->n_heap) {
                if (child + 1 < consumer->n_heap &&
                    batch_at(scheduler, consumer, child + 1) > batch_at(scheduler, consumer, child))
                        ++child;
                if (batch_at(scheduler, consumer, child) <= batch)
                        break;
                put(scheduler, consumer, at, consumer->heap[child]);
                at = child;
        }
        put(scheduler, consumer, at, number);
}

/* Takes an idle slot out of the list or heap it is in. */
void slots_unsettle(struct scheduler *scheduler, struct slot *slot) {
        struct consumer *consumer = slot->wanted_by;
        uint32_t last, at = slot->heap_at;

        list_unlink(&slot->link);
        if (!consumer)
                return;
        slot->wanted_by = NULL;
        last = consumer->heap[--consumer->n_heap];
        if (at == consumer->n_heap)
                return;
        if (scheduler->slots[last].wanted_for > slot->wanted_for)
                sift_up(scheduler, consumer, at, last);
        else
                sift_down(scheduler, consumer, at, last);
}

/* Puts an idle slot into the heap it belongs to now. False: no job wants it, it stays where it is. */
static bool settle(struct scheduler *scheduler, struct slot *slot) {
        struct consumer *who = NULL;
        uint64_t use = consumers_use(scheduler, slot->key, &who);

        if (!who)
                return false;
        slots_unsettle(scheduler, slot);
        slot->wanted_by = who;
        slot->wanted_for = who->number + use - !who->due; /* at most POSITION_FAR ahead: no overflow */
        sift_up(scheduler, who, who->n_heap++, slot_number(scheduler, slot));
        return true;
}

/* The job does not want any more what it wanted. */
void slots_let_go(struct scheduler *scheduler, struct consumer *consumer) {
        while (consumer->n_heap > 0) {
                struct slot *slot = &scheduler->slots[consumer->heap[--consumer->n_heap]];

                slot->wanted_by = NULL;
                list_append(&scheduler->idle, &slot->link);
        }
}

/* A slot that nobody wants, nor is kept warm. */
static struct slot *unwanted(struct scheduler *scheduler) {
        while (!list_is_empty(&scheduler->idle)) {
                struct slot *slot = container_of(scheduler->idle.next, struct slot, link);

                if (settle(scheduler, slot))
                        continue;
                if (!warm_is_kept(scheduler, slot->key) ||
                    (scheduler->sabotage & SCHEDULER_WITHOUT_WARM_LAST))
                        return slot;
                list_unlink(&slot->link);
                list_append(&scheduler->warm_slots, &slot->link);
        }
        return NULL;
}

/* One that is kept warm, and nobody wants it since either: mostly the one that who comes would want last. */
static struct slot *warm_one(struct scheduler *scheduler) {
        while (!list_is_empty(&scheduler->warm_slots)) {
                struct slot *slot = container_of(scheduler->warm_slots.prev, struct slot, link);

                if (!settle(scheduler, slot))
                        return slot;
        }
        return NULL;
}

/* The slot whose next use may be the latest, if that is later than *use; which becomes its use. */
static struct slot *latest_top(const struct scheduler *scheduler, uint64_t *use) {
        struct slot *found = NULL;

        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t its;

                if (consumer->n_heap == 0)
                        continue;
                its = batch_at(scheduler, consumer, 0) - consumer->number + !consumer->due;
                if (its <= *use)
                        continue;
                found = &scheduler->slots[consumer->heap[0]];
                *use = its;
        }
        return found;
}

static struct slot *latest(struct scheduler *scheduler, uint64_t after) {
        for (;;) {
                uint64_t use = after;
                struct slot *slot = latest_top(scheduler, &use);

                if (!slot || consumers_use(scheduler, slot->key, NULL) == use)
                        return slot;
                settle(scheduler, slot);
        }
}

/* Rule 5 left out, for the test. */
static struct slot *any_not_due(struct scheduler *scheduler) {
        for (uint32_t i = 0; i < scheduler->config.slots; ++i) {
                struct slot *slot = &scheduler->slots[i];

                if (slot_is_idle(slot) && consumers_use(scheduler, slot->key, NULL) > 0)
                        return slot;
        }
        return NULL;
}

/* A slot for what will be used at distance `use` (SCHEDULER_NEVER: that is to be warm): one that is FREE, or
 * may be evicted for it, or NULL. */
struct slot *slots_find_room(struct scheduler *scheduler, uint64_t use) {
        struct slot *victim;

        if (!list_is_empty(&scheduler->free))
                return container_of(scheduler->free.next, struct slot, link);
        if (scheduler->sabotage & SCHEDULER_WITHOUT_EVICTION)
                return any_not_due(scheduler);
        victim = unwanted(scheduler);
        if (!victim && use != SCHEDULER_NEVER)
                victim = warm_one(scheduler);
        return victim ? victim : latest(scheduler, use);
}

/* The slot that was found is FREE from now on. */
void slots_make_room(struct scheduler *scheduler, struct slot *slot) {
        if (slot->state == SCHEDULER_SLOT_FREE)
                return;
        if (!slot->delivered && !slot->warmed)
                ++scheduler->counters.slots_undelivered;
        slots_drop(scheduler, slot);
}
