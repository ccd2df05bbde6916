/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job: where it is in its stream, what it holds, how soon it will want a slot, and rules 3 and 4.
 *
 * The list of jobs is ordered by waiting time. A job goes to its end when it gets a batch, and again when it
 * releases one after having held all it may: those are the moments from which it waits. Nothing else moves
 * it, so that a job which rule 3 holds back keeps its place before those that came to wait later.
 *
 * Rule 4 asks whether a job could be granted its next batch now. Asked of every job by itself, two jobs could
 * both be told yes for the same spare slots, their half-ready batches be protected from each other, and
 * neither ever be whole. So it is asked in the order of waiting, and who is told yes has its slots counted
 * before the next is asked. Thus, always,
 *
 *     Σ over jobs of max(minimum, leased slots + slots of the next batch if due) <= slots - quarantined,
 *
 * and all due batches fit into the ring together with all leases: as long as a due batch lacks a slot there
 * is one that is FREE, FILLING (and will be READY) or evictable. Only due batches are delivered, so nobody
 * who came later takes the spare slots before. A batch within a job's minimum adds nothing to the sum, hence
 * it is always due.
 *
 * Quarantine can shrink the ring until the minimums do not fit any more. Then nobody gets more than its
 * minimum, and not everybody's is kept: each job counts with what it leases, and in the order of waiting each
 * has its minimum kept as long as that fits. Who is kept can have its next batch without giving back what it
 * holds, and will be able to again: so there is somebody who goes on, and since who got a batch is asked last
 * next time, it is not always the same. The others may take what is left. If by this count, in which a shared
 * slot counts for each holder, nobody can have anything, one job may whose next batch really fits beside all
 * that is leased: first one that holds something, since it may let go of that only when it has the next.
 * Should even that find nobody, jobs have to give back; when nothing is leased the first in line fits, as its
 * minimum does.
 *
 * Distances count batches: 0 is the next one, which is also what only due batches have after consumer_use has
 * put the others one further back.
 *
 * The cursor keeps looking for work cheap: what a job uses from its next batch up to the cursor is resident
 * and was completely handed to workers. It moves forward over such slots, once each, and back when one of
 * them is dropped. It stops at the first slot that is missing or has rows to hand out, at the latest after as
 * many slots as the ring has. */

#include "daemon/scheduler-internal.h"

#include <errno.h>
#include <stdlib.h>

uint32_t scheduler_capacity(const struct scheduler *scheduler) {
        return scheduler->config.slots - scheduler->n_quarantined;
}

/* The row at which an epoch entered at `base` ends for this plan: what `drop` drops lies behind. */
static uint64_t end_of_epoch(const struct position_plan *plan, uint64_t base) {
        uint64_t end = base + position_batches(plan, base) * plan->batch_size;

        return end < plan->samples ? end : plan->samples;
}

static void set_next(const struct scheduler *scheduler, struct consumer *consumer, struct position next) {
        struct slot_key first;

        consumer->next = next;
        consumer->next_first = next.row / scheduler->config.slot_rows;
        consumer->next_last = (next.row + next.rows - 1) / scheduler->config.slot_rows;
        consumer->end = next.base == 0 ? consumer->end_whole : end_of_epoch(&consumer->job.plan, next.base);
        first = (struct slot_key){consumer->job.seed, consumer->next_first, next.epoch};
        if (slot_key_before(consumer->cursor, first))
                consumer->cursor = first;
}

static void init_held(struct consumer *consumer) {
        for (uint32_t i = 0; i <= consumer->mask; ++i)
                consumer->heads[i] = SCHEDULER_NONE;
        for (uint32_t i = 0; i < consumer->job.max_held; ++i)
                consumer->batches[i].next = i + 1 < consumer->job.max_held ? i + 1 : SCHEDULER_NONE;
        consumer->unused = 0;
}

int consumer_new(struct consumer **consumerp, const struct scheduler *scheduler,
                 const struct scheduler_job *job) {
        struct consumer *consumer = calloc(1, sizeof(*consumer));
        uint32_t size = 1;

        if (!consumer)
                return -ENOMEM;
        while (size < job->max_held)
                size *= 2;
        list_init(&consumer->link);
        consumer->job = *job;
        consumer->mask = size - 1;
        consumer->heap = calloc(scheduler->config.slots, sizeof(*consumer->heap));
        consumer->leases = calloc(scheduler->config.slots, sizeof(*consumer->leases));
        consumer->heads = calloc(size, sizeof(*consumer->heads));
        consumer->batches = calloc(job->max_held, sizeof(*consumer->batches));
        if (!consumer->heap || !consumer->leases || !consumer->heads || !consumer->batches) {
                consumer_free(consumer);
                return -ENOMEM;
        }
        init_held(consumer);
        consumer->minimum = scheduler_minimum(&scheduler->config, &job->plan, job->start_row);
        consumer->end_whole = end_of_epoch(&job->plan, 0);
        consumer->cursor.seed = job->seed;
        set_next(scheduler, consumer, position_first(&job->plan, job->start_epoch, job->start_row));
        *consumerp = consumer;
        return 0;
}

struct consumer *consumer_free(struct consumer *consumer) {
        if (!consumer)
                return NULL;
        list_unlink(&consumer->link);
        free(consumer->batches);
        free(consumer->heads);
        free(consumer->leases);
        free(consumer->heap);
        free(consumer);
        return NULL;
}

struct consumer *consumer_find(const struct scheduler *scheduler, uint32_t id) {
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (consumer->job.id == id)
                        return consumer;
        }
        return NULL;
}

/* What rules 2 and 3 charge a job with. */
uint32_t consumer_demand(const struct consumer *consumer) {
        return consumer->minimum > consumer->leased ? consumer->minimum : consumer->leased;
}

uint64_t consumers_demand(const struct scheduler *scheduler) {
        uint64_t demand = 0;

        list_for_each (entry, &scheduler->consumers)
                demand += consumer_demand(container_of(entry, struct consumer, link));
        return demand;
}

uint64_t consumers_minimum(const struct scheduler *scheduler) {
        uint64_t minimum = 0;

        list_for_each (entry, &scheduler->consumers)
                minimum += container_of(entry, struct consumer, link)->minimum;
        return minimum;
}

/* Batches until the first one that uses a row of `key`, or SCHEDULER_NEVER. */
uint64_t consumer_distance(const struct scheduler *scheduler, const struct consumer *consumer,
                           struct slot_key key) {
        const struct position *next = &consumer->next;
        uint64_t row = key.index * scheduler->config.slot_rows, end = consumer->end_whole;

        if (key.seed != consumer->job.seed || key.epoch < next->epoch)
                return SCHEDULER_NEVER;
        if (key.epoch == next->epoch) {
                if (key.index < consumer->next_first)
                        return SCHEDULER_NEVER;
                if (key.index <= consumer->next_last)
                        return 0;
                end = consumer->end;
        }
        if (row >= end)
                return SCHEDULER_NEVER;
        return position_batches_until(&consumer->job.plan, *next, key.epoch, row);
}

/* The same for rules 4 and 5: a next batch that is not due ranks as a second next, and so on. */
uint64_t consumer_use(const struct scheduler *scheduler, const struct consumer *consumer,
                      struct slot_key key) {
        uint64_t distance = consumer_distance(scheduler, consumer, key);

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

struct slot_key consumer_key_after(const struct scheduler *scheduler, const struct consumer *consumer,
                                   struct slot_key key) {
        uint64_t end = key.epoch == consumer->next.epoch ? consumer->end : consumer->end_whole;

        if ((key.index + 1) * scheduler->config.slot_rows < end)
                ++key.index;
        else
                key = (struct slot_key){.seed = key.seed, .epoch = key.epoch + 1};
        return key;
}

/* Moves the cursor to the first slot that needs work. Returns it when it is being filled, NULL when it is
 * missing. */
struct slot *consumer_advance(struct scheduler *scheduler, struct consumer *consumer) {
        struct slot *slot;

        while ((slot = slots_find(scheduler, consumer->cursor)) && !slot_is_open(slot))
                consumer->cursor = consumer_key_after(scheduler, consumer, consumer->cursor);
        return slot;
}

/* Counts anew what `next` lacks. */
void consumer_look(struct scheduler *scheduler, struct consumer *consumer) {
        struct slot_key key = {consumer->job.seed, consumer->next_first, consumer->next.epoch};

        consumer->missing = consumer->fresh = 0;
        for (; key.index <= consumer->next_last; ++key.index) {
                const struct slot *slot = slots_find(scheduler, key);

                consumer->missing += !slot || slot->state != SCHEDULER_SLOT_READY;
                consumer->fresh += !slot || consumer->leases[slot_number(scheduler, slot)] == 0;
        }
}

static bool next_covers(const struct consumer *consumer, struct slot_key key) {
        return key.seed == consumer->job.seed && key.epoch == consumer->next.epoch &&
               key.index >= consumer->next_first && key.index <= consumer->next_last;
}

void consumers_slot_ready(struct scheduler *scheduler, struct slot_key key) {
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (next_covers(consumer, key))
                        --consumer->missing;
        }
}

void consumers_slot_dropped(struct scheduler *scheduler, struct slot_key key, bool was_ready) {
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (was_ready && next_covers(consumer, key))
                        ++consumer->missing;
                if (slot_key_before(key, consumer->cursor) &&
                    consumer_distance(scheduler, consumer, key) != SCHEDULER_NEVER)
                        consumer->cursor = key;
        }
}

/* The job waits from now on: after all others. */
void consumer_wait(struct scheduler *scheduler, struct consumer *consumer, uint64_t now) {
        consumer->waiting_since = now;
        list_unlink(&consumer->link);
        list_append(&scheduler->consumers, &consumer->link);
}

/* Are there fewer slots than the jobs were promised? Only by quarantine. */
static bool is_short(const struct scheduler *scheduler) {
        return scheduler->n_quarantined > 0 && consumers_demand(scheduler) > scheduler_capacity(scheduler);
}

/* What the jobs are charged with in sum; `kept` says with what each. */
static uint64_t keep_minimums(struct scheduler *scheduler, bool all) {
        uint64_t used = 0;

        list_for_each (entry, &scheduler->consumers)
                used += container_of(entry, struct consumer, link)->leased;
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t more = consumer_demand(consumer) - consumer->leased;

                consumer->kept = all || used + more <= scheduler_capacity(scheduler);
                if (consumer->kept)
                        used += more;
        }
        return used;
}

static bool within_minimum(const struct consumer *consumer) {
        return consumer->held < consumer->job.max_held &&
               consumer->leased + consumer->fresh <= consumer->minimum;
}

/* Would all slots of its next batch find room beside all that is leased? */
static bool fits_really(const struct scheduler *scheduler, const struct consumer *consumer) {
        struct slot_key key = {consumer->job.seed, consumer->next_first, consumer->next.epoch};
        uint64_t used = scheduler->n_leased;

        for (; key.index <= consumer->next_last; ++key.index) {
                const struct slot *slot = slots_find(scheduler, key);

                used += !slot || slot->leases == 0;
        }
        return used <= scheduler_capacity(scheduler);
}

static void grant_one(struct scheduler *scheduler) {
        for (int holders = 1; holders >= 0; --holders)
                list_for_each (entry, &scheduler->consumers) {
                        struct consumer *consumer = container_of(entry, struct consumer, link);

                        if ((consumer->leased > 0) != holders || !within_minimum(consumer) ||
                            !fits_really(scheduler, consumer))
                                continue;
                        consumer->granted = consumer->due = true;
                        return;
                }
}

/* Rule 3 for one job: within its minimum always, beyond it while it fits and nobody waits to be let in. In a
 * scarce ring nothing goes beyond. */
static bool is_grantable(const struct scheduler *scheduler, const struct consumer *consumer, uint64_t used,
                         uint64_t more, bool scarce) {
        if (consumer->held >= consumer->job.max_held || (scarce && !within_minimum(consumer)))
                return false;
        return used + more + (more > 0 ? scheduler->awaited : 0) <= scheduler_capacity(scheduler);
}

/* Rules 3 and 4, in the order of waiting; see above. After every event. */
void consumers_choose_due(struct scheduler *scheduler) {
        bool scarce = is_short(scheduler), any = false;
        uint64_t used = keep_minimums(scheduler, !scarce);
        uint32_t rank = 0;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t before = consumer->kept ? consumer_demand(consumer) : consumer->leased;
                uint64_t after = consumer->leased + consumer->fresh;

                if (after < before || (scheduler->sabotage & SCHEDULER_WITHOUT_LEASES))
                        after = before;
                consumer->rank = rank++;
                consumer->granted = is_grantable(scheduler, consumer, used, after - before, scarce);
                consumer->due = consumer->granted || (scheduler->sabotage & SCHEDULER_WITHOUT_DUE);
                if (consumer->granted)
                        used += after - before;
                any |= consumer->granted;
        }
        if (scarce && !any)
                grant_one(scheduler);
}

static void hold(struct consumer *consumer) {
        uint32_t at = consumer->unused, *head = &consumer->heads[consumer->number & consumer->mask];
        struct held_batch *batch = &consumer->batches[at];

        consumer->unused = batch->next;
        *batch = (struct held_batch){consumer->number, consumer->next, *head};
        *head = at;
        ++consumer->held;
}

static void lease(struct scheduler *scheduler, struct consumer *consumer, struct slot *slot) {
        slots_unsettle(scheduler, slot);
        slot->delivered = true;
        if (consumer->leases[slot_number(scheduler, slot)]++ > 0)
                return;
        scheduler->n_leased += slot->leases++ == 0;
        ++consumer->leased;
}

/* Hands the next batch over: its slots are READY. */
void consumer_deliver(struct scheduler *scheduler, struct consumer *consumer,
                      struct scheduler_delivery *delivery) {
        const uint32_t slot_rows = scheduler->config.slot_rows;
        uint64_t row = consumer->next.row, end = row + consumer->next.rows;
        uint32_t n = 0;

        while (row < end) {
                struct slot_key key = {consumer->job.seed, row / slot_rows, consumer->next.epoch};
                struct slot *slot = slots_find(scheduler, key);
                uint64_t first = row % slot_rows, rows = slot_rows - first;

                if (rows > end - row)
                        rows = end - row;
                scheduler->segments[n++] = (struct scheduler_segment){slot_number(scheduler, slot),
                                                                      (uint32_t)first, (uint32_t)rows};
                lease(scheduler, consumer, slot);
                row += rows;
        }
        *delivery = (struct scheduler_delivery){.job = consumer->job.id,
                                                .number = consumer->number,
                                                .position = consumer->next,
                                                .n_segments = n,
                                                .segments = scheduler->segments};
        hold(consumer);
        ++consumer->number;
        consumer->rows_delivered += consumer->next.rows;
        set_next(scheduler, consumer, position_next(&consumer->job.plan, consumer->next));
        consumer_look(scheduler, consumer);
}

static void unlease(struct scheduler *scheduler, struct consumer *consumer, struct slot *slot) {
        if (--consumer->leases[slot_number(scheduler, slot)] > 0)
                return;
        --consumer->leased;
        if (--slot->leases > 0)
                return;
        --scheduler->n_leased;
        slots_settle(scheduler, slot);
}

static void unlease_batch(struct scheduler *scheduler, struct consumer *consumer,
                          const struct position *position) {
        const uint32_t slot_rows = scheduler->config.slot_rows;
        struct slot_key key = {consumer->job.seed, position->row / slot_rows, position->epoch};
        uint64_t last = (position->row + position->rows - 1) / slot_rows;

        for (; key.index <= last; ++key.index)
                unlease(scheduler, consumer, slots_find(scheduler, key));
}

int consumer_release(struct scheduler *scheduler, struct consumer *consumer, uint64_t number) {
        uint32_t *at = &consumer->heads[number & consumer->mask], found;
        struct held_batch *batch;

        while (*at != SCHEDULER_NONE && consumer->batches[*at].number != number)
                at = &consumer->batches[*at].next;
        if (*at == SCHEDULER_NONE)
                return SCHEDULER_E_UNKNOWN;
        found = *at;
        batch = &consumer->batches[found];
        *at = batch->next;
        batch->next = consumer->unused;
        consumer->unused = found;
        --consumer->held;
        unlease_batch(scheduler, consumer, &batch->position);
        consumer_look(scheduler, consumer);
        return 0;
}

void consumer_release_all(struct scheduler *scheduler, struct consumer *consumer) {
        for (uint32_t i = 0; i <= consumer->mask; ++i)
                while (consumer->heads[i] != SCHEDULER_NONE)
                        consumer_release(scheduler, consumer, consumer->batches[consumer->heads[i]].number);
}
