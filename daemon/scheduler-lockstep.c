/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Lockstep: jobs of a stream wait for each other, so that everything is prepared once.
 *
 * A job that is *bound* gets no batch, and has nothing prefetched, that ends more than the lead after the
 * place up to which the last of the other bound ones has given everything back. The lead is max_lead, but no
 * more than the slots that the minimums of all jobs leave: what lies between the last job and the first stays
 * in the ring then. And it is two steps of the job with the largest, at least (four with DROP, which leaves
 * out up to one): whoever is last holds a step and wants the next, which must not be forbidden by one that is
 * in the same place. So the last job is never held back, and there is progress.
 *
 * A job binds when it and the foremost bound job are no further apart than the lead, and the first of a
 * stream at once. Until then it is elastic, and may be brought on (scheduler-catch-up.c).
 *
 * The others cannot wait for one that is stopped. A bound job that has given nothing back for lag_timeout,
 * although it neither waited for data nor was held back by the lead, is *demoted*: elastic, until it gives
 * something back and is near enough to bind again.
 *
 * Each job's limit is worked out after every event. Limits fall only when a job binds, or comes and takes
 * slots, or is sent back; what was wanted before and is not any more is then looked at anew. */

#include "daemon/scheduler-internal.h"

struct row_place {
        uint64_t epoch, row;
};

static bool is_before(struct row_place a, struct row_place b) {
        return a.epoch < b.epoch || (a.epoch == b.epoch && a.row < b.row);
}

static struct row_place plus(const struct scheduler *scheduler, struct row_place place, uint64_t rows) {
        uint64_t samples = scheduler->config.samples;

        return (struct row_place){place.epoch + (place.row + rows) / samples, (place.row + rows) % samples};
}

/* Up to where the job has given everything back. */
static struct row_place consumed(const struct consumer *consumer) {
        const struct position *first = consumer_oldest(consumer);

        return (struct row_place){first->epoch, batch_step_row(consumer, first)};
}

static struct row_place reached(const struct consumer *consumer) {
        return (struct row_place){consumer->next.epoch, consumer_step_row(consumer)};
}

/* The last of the bound jobs of this stream but for `self`. */
static const struct consumer *last_but(const struct scheduler *scheduler, const struct consumer *self) {
        const struct consumer *last = NULL;

        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *consumer = container_of(entry, struct consumer, link);

                if (consumer == self || !consumer->bound || consumer->job.seed != self->job.seed)
                        continue;
                if (!last || is_before(consumed(consumer), consumed(last)))
                        last = consumer;
        }
        return last;
}

static uint64_t least_lead(const struct consumer *consumer) {
        const struct position_plan *plan = &consumer->job.plan;
        uint64_t steps = plan->last_batch == LAST_BATCH_DROP ? 4 : 2;

        return steps * plan->batch_size * plan->world_size;
}

uint64_t lockstep_lead(const struct scheduler *scheduler) {
        uint64_t minimum = consumers_minimum(scheduler), room = 0, lead = scheduler->lockstep.max_lead;

        if (minimum < scheduler_capacity(scheduler))
                room = (scheduler_capacity(scheduler) - minimum) * scheduler->config.slot_rows;
        if (lead > room)
                lead = room;
        list_for_each (entry, &scheduler->consumers) {
                uint64_t least = least_lead(container_of(entry, struct consumer, link));

                if (lead < least && !(scheduler->sabotage & SCHEDULER_WITHOUT_LEAST_LEAD))
                        lead = least;
        }
        return lead;
}

/* True: it has fallen. */
static bool set_limit(struct scheduler *scheduler, struct consumer *consumer) {
        const struct consumer *last = consumer->bound ? last_but(scheduler, consumer) : NULL;
        struct row_place limit = {0};
        bool falls;

        if (last)
                limit = plus(scheduler, consumed(last), scheduler->lockstep.lead);
        falls = last && (!consumer->limited ||
                         is_before(limit, (struct row_place){consumer->limit_epoch, consumer->limit_row}));
        if (falls)
                slots_let_go(scheduler, consumer);
        consumer->pace = last ? last->job.id : 0;
        consumer->limited = last && !(scheduler->sabotage & SCHEDULER_WITHOUT_LEAD);
        consumer->limit_epoch = limit.epoch;
        consumer->limit_row = limit.row;
        return falls;
}

bool consumer_is_led(const struct consumer *consumer, const struct position *batch) {
        struct row_place end;
        uint32_t epoch;

        if (!consumer->limited)
                return false;
        end.row = position_after(&consumer->job.plan, batch, &epoch);
        end.epoch = epoch;
        return is_before((struct row_place){consumer->limit_epoch, consumer->limit_row}, end);
}

/* Slots that are kept for what lies between bound jobs, when it is asked whether this one may have more than
 * its minimum. A bound job's leases lie there themselves. */
uint64_t lockstep_spared(const struct scheduler *scheduler, const struct consumer *consumer) {
        if (scheduler->lockstep.max_lead == 0 || consumer->bound)
                return 0;
        return (scheduler->lockstep.lead - 1) / scheduler->config.slot_rows + 1;
}

/* Before it is said who is due. */
void lockstep_set_limits(struct scheduler *scheduler) {
        bool fell = false;

        if (scheduler->lockstep.max_lead == 0)
                return;
        scheduler->lockstep.lead = lockstep_lead(scheduler);
        list_for_each (entry, &scheduler->consumers)
                fell |= set_limit(scheduler, container_of(entry, struct consumer, link));
        if (fell)
                chunks_give_up_unwanted(scheduler);
}

/* Is the job as near to the foremost bound one of its stream as it has to be? */
static bool is_near(const struct scheduler *scheduler, const struct consumer *self) {
        const struct consumer *last = last_but(scheduler, self);
        struct row_place mine = consumed(self);

        if (!last || (scheduler->sabotage & SCHEDULER_WITHOUT_NEARNESS))
                return true;
        if (is_before(plus(scheduler, consumed(last), scheduler->lockstep.lead), reached(self)))
                return false;
        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *consumer = container_of(entry, struct consumer, link);

                if (consumer->bound && consumer->job.seed == self->job.seed &&
                    is_before(plus(scheduler, mine, scheduler->lockstep.lead), reached(consumer)))
                        return false;
        }
        return true;
}

/* Excused is who waits for data, or for others to go on or to come. */
static bool lags(const struct scheduler *scheduler, struct consumer *consumer) {
        if ((consumer->due && consumer->missing > 0) || consumer_is_led(consumer, &consumer->next) ||
            consumer_is_awaiting(consumer) || (scheduler->sabotage & SCHEDULER_WITHOUT_DEMOTION))
                consumer->moved_at = scheduler->now;
        return scheduler->now - consumer->moved_at >= scheduler->lockstep.lag_timeout;
}

/* Who binds from `now` on, and who does no more. True: somebody. */
static bool review(struct scheduler *scheduler) {
        bool any = false;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (consumer->bound && lags(scheduler, consumer)) {
                        consumer->bound = false;
                        consumer->demoted = any = true;
                } else if (!consumer->bound && !consumer->demoted && !consumer->expecting &&
                           is_near(scheduler, consumer)) {
                        consumer->bound = any = true;
                        consumer->moved_at = scheduler->now;
                }
        }
        return any;
}

void lockstep_look(struct scheduler *scheduler, uint64_t now) {
        scheduler->now = now;
        if (scheduler->lockstep.max_lead > 0 && review(scheduler))
                consumers_choose_due(scheduler);
}

/* The job has given something back, or was sent elsewhere. */
void lockstep_moved(const struct scheduler *scheduler, struct consumer *consumer, uint64_t now,
                    bool elsewhere) {
        consumer->moved_at = now > scheduler->now ? now : scheduler->now;
        consumer->demoted = false;
        consumer->bound = consumer->bound && !elsewhere;
}

void scheduler_set_lockstep(struct scheduler *scheduler, uint64_t max_lead, uint64_t lag_timeout) {
        scheduler->lockstep.max_lead = max_lead;
        scheduler->lockstep.lag_timeout = lag_timeout;
}

void scheduler_excuse_all(struct scheduler *scheduler, uint64_t now) {
        list_for_each (entry, &scheduler->consumers)
                container_of(entry, struct consumer, link)->moved_at = now;
}

uint64_t scheduler_lead(const struct scheduler *scheduler) {
        return scheduler->lockstep.max_lead > 0 ? lockstep_lead(scheduler) : 0;
}
