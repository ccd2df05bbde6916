/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The scheduler of one ring: events go in, deliveries and chunks come out. docs/scheduling.md tells the model
 * and the five rules; this is where they live:
 *
 *     rule 1, minimum      scheduler-minimum.c
 *     rule 2, admission    here, scheduler_attach
 *     rule 3, leases       scheduler-grant.c, consumers_choose_due
 *     rule 4, due          the same, and consumer_use in scheduler-walk.c
 *     rule 5, eviction     scheduler-eviction.c; what is filled next: scheduler-chunks.c
 *     catching up          scheduler-catch-up.c; lockstep: scheduler-lockstep.c
 *     before any job       scheduler-warm.c
 *
 * What becomes of the work of workers that fail is in scheduler-chunks.c, quarantine in scheduler-slots.c,
 * and rule 3 in a ring that quarantine made too small for its jobs in scheduler-grant.c.
 *
 * After every event consumers_choose_due has said which jobs are due. Each event costs O(jobs + segments of a
 * batch) steps, and O(jobs + log slots) for a slot that is used again; attach, detach and seek O(slots) and a
 * look at the minimum. Memory is taken at new and attach only. The order of the calls is the order of
 * waiting, whatever `now` says; that decides about catch-ups and who lags, and stands in the books
 * (scheduler-books.c). */

#include "daemon/scheduler-internal.h"

#include "base/fault.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int allocate(struct scheduler *scheduler) {
        scheduler->slots = calloc(scheduler->config.slots, sizeof(*scheduler->slots));
        scheduler->heads = calloc((size_t)scheduler->mask + 1, sizeof(*scheduler->heads));
        scheduler->chunks = calloc(SCHEDULER_POOL, sizeof(*scheduler->chunks));
        return scheduler->slots && scheduler->heads && scheduler->chunks ? 0 : -ENOMEM;
}

static void link_all(struct scheduler *scheduler) {
        for (uint32_t i = 0; i <= scheduler->mask; ++i)
                scheduler->heads[i] = SCHEDULER_NONE;
        chunks_init(scheduler, SCHEDULER_CHUNKS_MAX);
        for (uint32_t i = 0; i < scheduler->config.slots; ++i) {
                struct slot *slot = &scheduler->slots[i];

                slot->chunks = slot->returned = SCHEDULER_NONE;
                list_init(&slot->link);
                list_append(&scheduler->free, &slot->link);
        }
}

int scheduler_new(struct scheduler **schedulerp, const struct scheduler_config *config) {
        struct scheduler *scheduler;
        uint32_t size = 1;
        int r;

        if (config->slots == 0 || config->slots > SCHEDULER_SLOTS_MAX || config->slot_rows == 0 ||
            config->slot_rows > INT32_MAX || config->samples == 0 || config->samples > INT64_MAX)
                return -EINVAL;
        scheduler = calloc(1, sizeof(*scheduler));
        if (!scheduler)
                return -ENOMEM;
        while (size < 2 * config->slots)
                size *= 2;
        scheduler->config = *config;
        scheduler->mask = size - 1;
        scheduler->epoch_slots = (config->samples - 1) / config->slot_rows + 1;
        list_init(&scheduler->consumers);
        list_init(&scheduler->free);
        list_init(&scheduler->open);
        list_init(&scheduler->idle);
        list_init(&scheduler->warm_slots);
        list_init(&scheduler->streams);
        r = allocate(scheduler);
        if (r < 0) {
                scheduler_free(scheduler);
                return r;
        }
        link_all(scheduler);
        *schedulerp = scheduler;
        return 0;
}

struct scheduler *scheduler_free(struct scheduler *scheduler) {
        if (!scheduler)
                return NULL;
        list_for_each_safe (entry, &scheduler->consumers)
                consumer_free(container_of(entry, struct consumer, link));
        books_free(scheduler);
        free(scheduler->chunks);
        free(scheduler->heads);
        free(scheduler->segments);
        free(scheduler->slots);
        free(scheduler);
        return NULL;
}

static int check_place(const struct position_plan *plan, uint32_t epoch, uint64_t row, struct fault *fault) {
        if (epoch > SCHEDULER_EPOCH_MAX)
                return fault_set(fault, -EINVAL, "start_epoch: expected from 0 to %u, got %u",
                                 SCHEDULER_EPOCH_MAX, epoch);
        return position_check(plan, row, fault);
}

static int check_job(const struct scheduler *scheduler, const struct scheduler_job *job,
                     struct fault *fault) {
        if (job->plan.samples != scheduler->config.samples)
                return fault_set(fault, -EINVAL, "samples: expected %" PRIu64 ", got %" PRIu64,
                                 scheduler->config.samples, job->plan.samples);
        if (job->max_held == 0 || job->max_held > SCHEDULER_HELD_MAX)
                return fault_set(fault, -EINVAL, "max_held_batches: expected from 1 to %u, got %u",
                                 SCHEDULER_HELD_MAX, job->max_held);
        if (consumer_find(scheduler, job->id))
                return fault_set(fault, -EINVAL, "job %u is attached already", job->id);
        return check_place(&job->plan, job->start_epoch, job->start_row, fault);
}

/* What a job that comes, or goes elsewhere, would have beside the others. */
struct claim {
        uint32_t minimum;
        uint32_t demand; /* the minimum, or more if it leases more */
        /* of all others, and of those who wait already: who comes often could keep them out */
        uint64_t others_minimum;
        uint64_t others_demand;
};

/* Rule 1, or half of it. */
static uint32_t minimum_of(const struct scheduler *scheduler, const struct position_plan *plan,
                           uint64_t start_row) {
        uint32_t minimum = scheduler_minimum(&scheduler->config, plan, start_row);

        return scheduler->sabotage & SCHEDULER_WITHOUT_MINIMUM ? minimum / 2 : minimum;
}

/* Rule 2. What others hold beyond their minimum comes back, what they are entitled to does not. */
static int admit(const struct scheduler *scheduler, const struct claim *claim, struct fault *fault) {
        uint64_t entitled = claim->others_minimum + claim->minimum;
        uint32_t capacity = scheduler_capacity(scheduler);
        char quarantined[64];

        if (scheduler->sabotage & SCHEDULER_WITHOUT_ADMISSION)
                return 0;
        snprintf(quarantined, sizeof(quarantined), " (%u more in quarantine: a killed worker has not ended)",
                 scheduler->n_quarantined);
        if (entitled > capacity)
                return fault_set(
                        fault, SCHEDULER_E_FULL,
                        "the ring is full: the job needs %u slots, the jobs before it already need %" PRIu64
                        " of %u%s; raise slots or ring to at least %" PRIu64 " slots, or end a job",
                        claim->minimum, claim->others_minimum, capacity,
                        scheduler->n_quarantined ? quarantined : "", entitled);
        if (claim->others_demand + claim->demand > capacity)
                return fault_set(fault, SCHEDULER_E_LATER,
                                 "the job needs %u slots, the jobs before it already hold or need %" PRIu64
                                 " of %u just now",
                                 claim->demand, claim->others_demand, capacity);
        return 0;
}

static int admit_newcomer(const struct scheduler *scheduler, const struct consumer *newcomer,
                          struct fault *fault) {
        struct claim claim = {
                .minimum = newcomer->minimum,
                .demand = newcomer->minimum,
                .others_minimum = consumers_minimum(scheduler) + newcomer->job.ahead,
                .others_demand = consumers_demand(scheduler) + newcomer->job.ahead,
        };

        return admit(scheduler, &claim, fault);
}

/* With `minimum` instead of its own. */
static int admit_again(const struct scheduler *scheduler, const struct consumer *consumer, uint32_t minimum,
                       uint32_t ahead, struct fault *fault) {
        struct claim claim = {
                .minimum = minimum,
                .demand = minimum > consumer->leased ? minimum : consumer->leased,
                .others_minimum = consumers_minimum(scheduler) - consumer->minimum + ahead,
                .others_demand = consumers_demand(scheduler) - consumer_demand(consumer) + ahead,
        };

        return minimum <= consumer->minimum ? 0 : admit(scheduler, &claim, fault);
}

/* Room for the segments of any batch of this job. */
static int grow_segments(struct scheduler *scheduler, const struct position_plan *plan) {
        uint64_t wanted = position_segments(plan, scheduler->config.slot_rows);
        struct scheduler_segment *segments;

        if (wanted <= scheduler->n_segments)
                return 0;
        segments = realloc(scheduler->segments, wanted * sizeof(*segments));
        if (!segments)
                return -ENOMEM;
        scheduler->segments = segments;
        scheduler->n_segments = wanted;
        return 0;
}

void scheduler_set_awaited(struct scheduler *scheduler, uint32_t slots) {
        if (scheduler->awaited == slots)
                return;
        scheduler->awaited = slots;
        consumers_choose_due(scheduler);
}

int scheduler_attach(struct scheduler *scheduler, const struct scheduler_job *job, uint64_t now,
                     struct fault *fault) {
        struct consumer *consumer;
        int r;

        r = check_job(scheduler, job, fault);
        if (r < 0)
                return r;
        r = consumer_new(&consumer, scheduler, job);
        if (r < 0)
                return fault_set(fault, r, "no memory for a job that may hold %u batches", job->max_held);
        consumer->minimum = minimum_of(scheduler, &job->plan, job->start_row);
        r = admit_newcomer(scheduler, consumer, fault);
        if (r == 0 && grow_segments(scheduler, &job->plan) < 0)
                r = fault_set(fault, -ENOMEM, "no memory for the segments of a batch of %u rows",
                              job->plan.batch_size);
        scheduler->now = now;
        if (r == 0 && books_open(scheduler, consumer) < 0)
                r = fault_set(fault, -ENOMEM, "no memory for the books of seed %" PRIu64, job->seed);
        if (r != 0) {
                consumer_free(consumer);
                return r;
        }
        consumer_wait(scheduler, consumer, now);
        consumers_choose_due(scheduler);
        scheduler->warm.in_vain = false;
        chunks_give_up_unwanted(scheduler);
        return 0;
}

/* Rule 1 for a job that goes to `row`. While it holds something it keeps what it is entitled to: it may give
 * that back only when it has its next batch. */
static uint32_t minimum_from(const struct scheduler *scheduler, const struct consumer *consumer,
                             uint64_t row) {
        uint32_t minimum = minimum_of(scheduler, &consumer->job.plan, row);

        return consumer->held > 0 && minimum < consumer->minimum ? consumer->minimum : minimum;
}

int scheduler_seek(struct scheduler *scheduler, uint32_t job, uint32_t epoch, uint64_t row, uint32_t ahead,
                   uint64_t now, struct fault *fault) {
        struct consumer *consumer = consumer_find(scheduler, job);
        uint32_t minimum = 0;
        int r;

        if (!consumer)
                return SCHEDULER_E_UNKNOWN;
        r = check_place(&consumer->job.plan, epoch, row, fault);
        if (r == 0) {
                minimum = minimum_from(scheduler, consumer, row);
                r = admit_again(scheduler, consumer, minimum, ahead, fault);
        }
        consumer->seeking = r == SCHEDULER_E_LATER;
        if (r == 0) {
                consumer->minimum = minimum;
                slots_let_go(scheduler, consumer);
                consumer_send(scheduler, consumer, epoch, row);
                consumer_wait(scheduler, consumer, now);
                lockstep_moved(scheduler, consumer, now, true);
                lockstep_set_limits(scheduler);
                chunks_give_up_unwanted(scheduler);
        }
        consumers_choose_due(scheduler);
        return r;
}

int scheduler_detach(struct scheduler *scheduler, uint32_t job) {
        struct consumer *consumer = consumer_find(scheduler, job);

        if (!consumer)
                return SCHEDULER_E_UNKNOWN;
        books_close(scheduler, consumer);
        consumer_release_all(scheduler, consumer);
        catch_up_forget(scheduler, consumer);
        list_unlink(&consumer->link);
        slots_let_go(scheduler, consumer);
        consumers_choose_due(scheduler);
        consumer_free(consumer);
        chunks_give_up_unwanted(scheduler);
        return 0;
}

int scheduler_release(struct scheduler *scheduler, uint32_t job, uint64_t number, uint64_t now) {
        struct consumer *consumer = consumer_find(scheduler, job);
        bool was_full;
        int r;

        if (!consumer)
                return SCHEDULER_E_UNKNOWN;
        was_full = consumer->held == consumer->job.max_held;
        r = consumer_release(scheduler, consumer, number);
        if (r != 0)
                return r;
        scheduler->now = consumer->account.released = now;
        if (was_full)
                consumer_wait(scheduler, consumer, now);
        lockstep_moved(scheduler, consumer, now, false);
        consumers_choose_due(scheduler);
        return 0;
}

bool scheduler_next_delivery(struct scheduler *scheduler, uint64_t now, struct scheduler_delivery *delivery) {
        scheduler->now = now;
        gather_look(scheduler, now);
        lockstep_look(scheduler, now);
        catch_up_look(scheduler, now);
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (!consumer->granted || consumer->missing > 0)
                        continue;
                consumer_deliver(scheduler, consumer, delivery);
                consumer_wait(scheduler, consumer, now);
                consumers_choose_due(scheduler);
                books_delivered(scheduler, consumer, delivery->position.rows);
                return true;
        }
        books_settle(scheduler);
        return false;
}

void scheduler_counters(const struct scheduler *scheduler, struct scheduler_counters *counters) {
        *counters = scheduler->counters;
}

void scheduler_add_counters(struct scheduler_counters *sum, const struct scheduler_counters *more) {
        static_assert(sizeof(*sum) == 9 * sizeof(uint64_t), "each of them is added below");
        sum->rows_prepared += more->rows_prepared;
        sum->rows_delivered += more->rows_delivered;
        sum->batches_delivered += more->batches_delivered;
        sum->slots_filled += more->slots_filled;
        sum->rows_refilled += more->rows_refilled;
        sum->slots_refilled += more->slots_refilled;
        sum->slots_undelivered += more->slots_undelivered;
        sum->catch_ups += more->catch_ups;
        sum->catch_ups_met += more->catch_ups_met;
}

int scheduler_view_job(const struct scheduler *scheduler, uint32_t job, struct scheduler_job_view *view) {
        const struct consumer *consumer = consumer_find(scheduler, job);

        if (!consumer)
                return SCHEDULER_E_UNKNOWN;
        *view = (struct scheduler_job_view){
                .next = consumer->next,
                .held = consumer->held,
                .ready = (uint32_t)consumer_ready(scheduler, consumer),
                .minimum = consumer->minimum,
                .leased = consumer->leased,
                .waiting = consumer->due && consumer->missing > 0,
                .gathering = consumer->gathering,
                .expecting = consumer->expecting,
                .bound = consumer->bound,
                .demoted = consumer->demoted,
                .led = consumer_is_led(consumer, &consumer->next),
                .parked = consumer_is_parked(consumer),
                .batches = consumer->number,
                .rows = consumer->rows_delivered,
                .pace = consumer->pace,
                .gather = consumer->gathering ? consumer->job.gather : 0,
                .come = consumer->gathering ? gather_count(scheduler, consumer->job.seed) : 0,
                .gather_until = consumer->job.gather_until,
                .unread = consumer->unread,
                .seeking = consumer->seeking,
        };
        return 0;
}

void scheduler_view_slot(const struct scheduler *scheduler, uint32_t slot, struct scheduler_slot_view *view) {
        const struct slot *its = slot < scheduler->config.slots ? &scheduler->slots[slot] : NULL;

        *view = (struct scheduler_slot_view){.state = SCHEDULER_SLOT_FREE};
        if (its && its->stuck > 0)
                view->state = SCHEDULER_SLOT_QUARANTINED; /* at once, whatever is still out */
        if (!its || its->stuck > 0 || its->state == SCHEDULER_SLOT_FREE)
                return;
        *view = (struct scheduler_slot_view){
                .state = its->state,
                .leases = its->leases,
                .leased_since = its->leased_since,
                .epoch = its->key.epoch,
                .index = its->key.index,
                .seed = its->key.seed,
                .rows_done = its->rows_done,
                .rows = its->rows,
        };
}
