/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job: where it is in its stream and what it holds. Where it will go is in scheduler-walk.c, whether it may
 * have its next batch in scheduler-grant.c.
 *
 * The list of jobs is ordered by waiting time. A job goes to its end when it gets a batch, when it is sent
 * elsewhere, and when it releases one after having held all it may: those are the moments from which it
 * waits. Nothing else moves it, so that a job which rule 3 holds back keeps its place before those that came
 * to wait later. */

#include "daemon/scheduler-internal.h"

#include <errno.h>
#include <stdlib.h>

/* Counts anew what `next` lacks. */
static void look(const struct scheduler *scheduler, struct consumer *consumer) {
        struct slot_key key = {.seed = consumer->job.seed, .epoch = consumer->next.epoch};
        uint64_t n = span_count(&consumer->span);

        consumer->missing = consumer->fresh = 0;
        for (uint64_t i = 0; i < n; ++i) {
                const struct slot *slot;

                key.index = span_slot(&consumer->span, i);
                slot = slots_find(scheduler, key);
                consumer->missing += !slot || slot->state != SCHEDULER_SLOT_READY;
                consumer->fresh += !slot || consumer->leases[slot_number(scheduler, slot)] == 0;
        }
}

static void set_next(const struct scheduler *scheduler, struct consumer *consumer, struct position next) {
        consumer->next = next;
        consumer->span = span_of(&scheduler->config, &consumer->job.plan, &next);
        look(scheduler, consumer);
}

/* Its next batch is the first one from (epoch, row) on. */
void consumer_send(const struct scheduler *scheduler, struct consumer *consumer, uint32_t epoch,
                   uint64_t row) {
        set_next(scheduler, consumer, position_first(&consumer->job.plan, epoch, row));
        consumer->epoch = consumer->next.epoch;
        consumer->oldest = consumer->number;
        cursor_set(&consumer->cursor, consumer);
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
        consumer->gathering = job->gather > 1 && !(scheduler->sabotage & SCHEDULER_WITHOUT_GATHER);
        consumer->expecting = job->expecting && !(scheduler->sabotage & SCHEDULER_WITHOUT_EXPECTING);
        consumer->unread = job->unread;
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
        consumer_send(scheduler, consumer, job->start_epoch, job->start_row);
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

static bool next_covers(const struct consumer *consumer, struct slot_key key) {
        return key.seed == consumer->job.seed && key.epoch == consumer->next.epoch &&
               span_has(&consumer->span, key.index);
}

void consumers_slot_ready(struct scheduler *scheduler, struct slot_key key) {
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (next_covers(consumer, key))
                        --consumer->missing;
        }
}

/* Rows of a slot that was handed out whole have come back. */
void consumers_slot_reopened(struct scheduler *scheduler, struct slot_key key) {
        list_for_each (entry, &scheduler->consumers)
                consumer_go_back(scheduler, container_of(entry, struct consumer, link), key);
}

void consumers_slot_dropped(struct scheduler *scheduler, struct slot_key key, bool was_ready) {
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (was_ready && next_covers(consumer, key))
                        ++consumer->missing;
                consumer_go_back(scheduler, consumer, key);
        }
}

/* The job waits from now on: after all others. */
void consumer_wait(struct scheduler *scheduler, struct consumer *consumer, uint64_t now) {
        consumer->waiting_since = now;
        list_unlink(&consumer->link);
        list_append(&scheduler->consumers, &consumer->link);
}

static void hold(struct consumer *consumer, uint64_t now) {
        uint32_t at = consumer->unused, *head = &consumer->heads[consumer->number & consumer->mask];
        struct held_batch *batch = &consumer->batches[at];

        consumer->unused = batch->next;
        *batch = (struct held_batch){consumer->number, now, consumer->next, *head};
        *head = at;
        ++consumer->held;
}

static void lease(struct scheduler *scheduler, struct consumer *consumer, struct slot *slot) {
        slots_unsettle(scheduler, slot);
        slot->delivered = true;
        if (consumer->leases[slot_number(scheduler, slot)]++ > 0)
                return;
        if (slot->leases++ == 0) {
                ++scheduler->n_leased;
                slot->leased_since = scheduler->now;
        }
        ++consumer->leased;
}

/* The segment of a batch that begins at its row `offset`, and the slot it lies in. */
static struct scheduler_segment segment_at(const struct scheduler *scheduler, const struct consumer *consumer,
                                           const struct position *batch, uint32_t offset,
                                           struct slot **slot) {
        const uint32_t slot_rows = scheduler->config.slot_rows;
        struct slot_key key = {.seed = consumer->job.seed, .epoch = batch->epoch};
        struct scheduler_segment segment;
        uint64_t row;

        segment.rows = position_run(&consumer->job.plan, batch, offset, &row);
        segment.first = (uint32_t)(row % slot_rows);
        if (segment.rows > slot_rows - segment.first)
                segment.rows = slot_rows - segment.first;
        key.index = row / slot_rows;
        *slot = slots_find(scheduler, key);
        segment.slot = slot_number(scheduler, *slot);
        segment.padding = batch->row + offset >= scheduler->config.samples;
        return segment;
}

/* Hands the next batch over: its slots are READY. */
void consumer_deliver(struct scheduler *scheduler, struct consumer *consumer,
                      struct scheduler_delivery *delivery) {
        uint32_t n = 0;

        for (uint32_t row = 0; row < consumer->next.rows; row += scheduler->segments[n++].rows) {
                struct slot *slot;

                scheduler->segments[n] = segment_at(scheduler, consumer, &consumer->next, row, &slot);
                lease(scheduler, consumer, slot);
        }
        *delivery = (struct scheduler_delivery){.job = consumer->job.id,
                                                .number = consumer->number,
                                                .position = consumer->next,
                                                .n_segments = n,
                                                .segments = scheduler->segments};
        hold(consumer, scheduler->now);
        ++consumer->number;
        consumer->rows_delivered += consumer->next.rows;
        consumer->epoch = consumer->next.epoch;
        set_next(scheduler, consumer, position_next(&consumer->job.plan, consumer->next));
        if (consumer->cursor.number < consumer->number)
                cursor_set(&consumer->cursor, consumer);
}

static void unlease(struct scheduler *scheduler, struct consumer *consumer, struct slot *slot) {
        if (--consumer->leases[slot_number(scheduler, slot)] > 0)
                return;
        --consumer->leased;
        consumer->fresh += next_covers(consumer, slot->key);
        if (--slot->leases > 0)
                return;
        --scheduler->n_leased;
        list_append(&scheduler->idle, &slot->link);
}

static void unlease_batch(struct scheduler *scheduler, struct consumer *consumer,
                          const struct position *position) {
        uint32_t rows;

        for (uint32_t row = 0; row < position->rows; row += rows) {
                struct slot *slot;

                rows = segment_at(scheduler, consumer, position, row, &slot).rows;
                unlease(scheduler, consumer, slot);
        }
}

static const struct held_batch *find_held(const struct consumer *consumer, uint64_t number) {
        uint32_t at = consumer->heads[number & consumer->mask];

        while (at != SCHEDULER_NONE && consumer->batches[at].number != number)
                at = consumer->batches[at].next;
        return at != SCHEDULER_NONE ? &consumer->batches[at] : NULL;
}

const struct position *consumer_oldest(const struct consumer *consumer) {
        return consumer->oldest < consumer->number ? &find_held(consumer, consumer->oldest)->position
                                                   : &consumer->next;
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
        while (consumer->oldest < consumer->number && !find_held(consumer, consumer->oldest))
                ++consumer->oldest;
        unlease_batch(scheduler, consumer, &batch->position);
        return 0;
}

void consumer_release_all(struct scheduler *scheduler, struct consumer *consumer) {
        for (uint32_t i = 0; i <= consumer->mask; ++i)
                while (consumer->heads[i] != SCHEDULER_NONE)
                        consumer_release(scheduler, consumer, consumer->batches[consumer->heads[i]].number);
}
