/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Who may have its next batch: rules 3 and 4.
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
 * What a job is given beyond its minimum is a loan that only the job can give back, and rule 2 counts on
 * that. One that was attached and is not read (a loader that validation will need, one of a notebook) would
 * never do so, and keep out who comes: so nothing is lent before it is known to read.
 *
 * Quarantine can shrink the ring until the minimums do not fit any more. Then nobody gets more than its
 * minimum, and not everybody's is kept: each job counts with what it leases, and in the order of waiting each
 * that may go on has its minimum kept as long as that fits. Who is kept can have its next batch without
 * giving back what it holds, and will be able to again: so there is somebody who goes on, and since who got a
 * batch is asked last next time, it is not always the same. The others may take what is left. If by this
 * count, in which a shared slot counts for each holder, nobody can have anything, one job may whose next
 * batch really fits beside all that is leased: first one that holds something, since it may let go of that
 * only when it has the next. Should even that find nobody, jobs have to give back; when nothing is leased the
 * first in line fits, as its minimum does. */

#include "daemon/scheduler-internal.h"

uint32_t scheduler_capacity(const struct scheduler *scheduler) {
        return scheduler->config.slots - scheduler->n_quarantined;
}

/* May it have a batch, as far as slots are not concerned? */
static bool may_go_on(const struct consumer *consumer) {
        return consumer->held < consumer->job.max_held && !consumer->seeking &&
               !consumer_is_parked(consumer) && !consumer_is_awaiting(consumer) &&
               !consumer_is_led(consumer, &consumer->next);
}

/* Jobs of a stream. */
uint32_t gather_count(const struct scheduler *scheduler, uint64_t seed) {
        uint32_t n = 0;

        list_for_each (entry, &scheduler->consumers)
                n += container_of(entry, struct consumer, link)->job.seed == seed;
        return n;
}

/* Jobs that wait for others to come: those are there, or it has taken too long. */
void gather_look(struct scheduler *scheduler, uint64_t now) {
        bool any = false;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (!consumer->gathering ||
                    (now < consumer->job.gather_until &&
                     gather_count(scheduler, consumer->job.seed) < consumer->job.gather))
                        continue;
                consumer->gathering = scheduler->sabotage & SCHEDULER_WITHOUT_GATHER_END;
                any = true;
        }
        if (any)
                consumers_choose_due(scheduler);
}

void scheduler_begin(struct scheduler *scheduler, uint32_t job) {
        struct consumer *consumer = consumer_find(scheduler, job);

        if (!consumer)
                return;
        consumer->expecting = false;
        consumers_choose_due(scheduler);
}

void scheduler_read(struct scheduler *scheduler, uint32_t job) {
        struct consumer *consumer = consumer_find(scheduler, job);

        if (!consumer || !consumer->unread)
                return;
        consumer->unread = false;
        consumers_choose_due(scheduler);
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

/* Are there fewer slots than the jobs were promised? Only by quarantine. */
static bool is_short(const struct scheduler *scheduler) {
        return scheduler->n_quarantined > 0 && consumers_demand(scheduler) > scheduler_capacity(scheduler);
}

/* Everybody's minimum is kept. Returns what the jobs are charged with in sum. */
static uint64_t keep_all(struct scheduler *scheduler) {
        uint64_t used = 0;

        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                consumer->kept = true;
                used += consumer_demand(consumer);
        }
        return used;
}

/* The same while the ring is short: as many as fit. */
static uint64_t keep_some(struct scheduler *scheduler) {
        uint64_t used = 0;

        list_for_each (entry, &scheduler->consumers)
                used += container_of(entry, struct consumer, link)->leased;
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t more = consumer_demand(consumer) - consumer->leased;

                consumer->kept = may_go_on(consumer) && used + more <= scheduler_capacity(scheduler);
                if (consumer->kept)
                        used += more;
        }
        return used;
}

static bool within_minimum(const struct consumer *consumer) {
        return may_go_on(consumer) && consumer->leased + consumer->fresh <= consumer->minimum;
}

/* Would all slots of its next batch find room beside all that is leased? */
static bool fits_really(const struct scheduler *scheduler, const struct consumer *consumer) {
        struct slot_key key = {.seed = consumer->job.seed, .epoch = consumer->next.epoch};
        uint64_t used = scheduler->n_leased, n = span_count(&consumer->span);

        for (uint64_t i = 0; i < n; ++i) {
                const struct slot *slot;

                key.index = span_slot(&consumer->span, i);
                slot = slots_find(scheduler, key);
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

/* Rule 3 for one job: within its minimum always, beyond it while it fits and nobody waits to be let in, nor
 * the room is for those in lockstep. In a scarce ring, and for a job that does not read, nothing goes beyond.
 */
static bool is_grantable(const struct scheduler *scheduler, const struct consumer *consumer, uint64_t used,
                         uint64_t more, bool scarce) {
        uint64_t spared = !scarce && more > 0 ? scheduler->awaited + lockstep_spared(scheduler, consumer) : 0;
        bool borrows = !scarce && (!consumer->unread || (scheduler->sabotage & SCHEDULER_WITHOUT_UNREAD));

        if (!may_go_on(consumer) || (!borrows && !within_minimum(consumer)))
                return false;
        return used + more + spared <= scheduler_capacity(scheduler);
}

/* Rules 3 and 4, in the order of waiting; see above. After every event. */
void consumers_choose_due(struct scheduler *scheduler) {
        bool scarce = is_short(scheduler), any = false;
        uint64_t used;
        uint32_t turn = 0;

        lockstep_set_limits(scheduler);
        used = scarce ? keep_some(scheduler) : keep_all(scheduler);
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t before = consumer->kept ? consumer_demand(consumer) : consumer->leased;
                uint64_t after = consumer->leased + consumer->fresh;

                if (after < before || (scheduler->sabotage & SCHEDULER_WITHOUT_LEASES))
                        after = before;
                consumer->turn = turn++;
                consumer->granted = is_grantable(scheduler, consumer, used, after - before, scarce);
                consumer->due = consumer->granted || (scheduler->sabotage & SCHEDULER_WITHOUT_DUE);
                if (consumer->granted)
                        used += after - before;
                any |= consumer->granted;
        }
        if (scarce && !any)
                grant_one(scheduler);
}
