/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Catching up: a job that is a little behind another of its stream is brought to it, instead of both going at
 * half speed on two preparations for ever.
 *
 * A job that waits for workers, and lacks slots which another of its stream has passed, no more of them than
 * catch_up, is *behind* that one. The one with the least to make up is chosen, and until it has reached the
 * other, what it and whoever is on the same stretch of the stream lack there is prepared before all else,
 * prefetch too, as long as they wait or just did: one that has its next batch is not held up by workers, and
 * what it will want later would only be filled to be evicted by what others want now. They have met when none
 * of them lacks a slot before the other's next: from then on what one lacks the other lacks as well. With
 * ranks this brings a whole run on, since a step is one place.
 *
 * While workers now and then have nothing to do they make enough for everybody as they are, and nobody is
 * brought on: a job that goes at its own speed, or its GPU's, would not come nearer, and what was prepared
 * ahead for it in vain would be evicted for what others want sooner.
 *
 * Only the order of work changes. Who may have a batch, what is due, and what may be evicted for what stays
 * as the five rules say: so jobs that wait meanwhile keep their leases and the READY slots of their due
 * batches, and get whatever work is left when nothing can be begun for those behind.
 *
 * Nobody waits for ever, because a catch-up is bounded: it ends when they have met, when the job in front has
 * gone, or when it has taken twice as long as the rows and the speed of the workers promise, since a job that
 * takes slower than they work gains nothing. After x seconds of it there is none for x seconds, in no stream
 * of this ring: the others have at least half of the time, however many jobs come to be behind. A job that
 * could not make it is left alone ten times as long.
 *
 * Places are slots of an epoch. Time is what the last call that brings it said. */

#include "daemon/scheduler-internal.h"

enum {
        /* of catch_up: between two searches, and for which a job that waited counts as one that waits: 0.1 s
         * of the usual 60 s */
        CATCH_UP_MOMENT_PARTS = 600,
        CATCH_UP_REST_PARTS = 60, /* of catch_up, in which workers had something to do: 1 s of the usual 60 */
        CATCH_UP_GRACE_PARTS = 30, /* of catch_up, beyond twice the promised time */
        CATCH_UP_TIRED = 10,
};

/* For the test. */
static bool is_left_out(const struct scheduler *scheduler, enum scheduler_sabotage rule) {
        return scheduler->sabotage & rule;
}

bool place_is_before(struct stream_place a, struct stream_place b) {
        return a.epoch < b.epoch || (a.epoch == b.epoch && a.index < b.index);
}

/* Where the step of all ranks begins that its next batch is part of. */
struct stream_place consumer_place(const struct scheduler *scheduler, const struct consumer *consumer) {
        return (struct stream_place){consumer->next.epoch,
                                     consumer_step_row(consumer) / scheduler->config.slot_rows};
}

/* The first slot that it lacks. Wrapped padding counts as the epoch's end. */
static struct stream_place place_of_lack(struct scheduler *scheduler, struct consumer *consumer) {
        const struct cursor *cursor = &consumer->cursor;
        uint64_t step, index;

        consumer_advance(scheduler, consumer);
        step = batch_step_row(consumer, &cursor->batch) / scheduler->config.slot_rows;
        index = cursor->place <= cursor->span.last - cursor->span.first ? cursor->span.first + cursor->place
                                                                        : cursor->span.last;
        return (struct stream_place){cursor->batch.epoch, index > step ? index : step};
}

/* Slots from one place to a later one, or SCHEDULER_NEVER. */
static uint64_t slots_between(const struct scheduler *scheduler, struct stream_place from,
                              struct stream_place to) {
        uint64_t slots;

        if (__builtin_mul_overflow((uint64_t)(to.epoch - from.epoch), scheduler->epoch_slots, &slots) ||
            slots >= SCHEDULER_NEVER / 2)
                return SCHEDULER_NEVER;
        return slots + to.index - from.index;
}

/* Will it come by the slot where `front` goes on? Other ranks of a run do not. */
static bool meets(const struct scheduler *scheduler, const struct consumer *consumer,
                  const struct consumer *front) {
        uint64_t first = front->span.first * scheduler->config.slot_rows;
        uint64_t end = first + scheduler->config.slot_rows;

        if (end > scheduler->config.samples)
                end = scheduler->config.samples;
        return position_find(&consumer->job.plan, &consumer->next, front->next.epoch, first, end, NULL) !=
               POSITION_NEVER;
}

/* Slots that it lacks, at most, until it has what `front` has passed; 0: it is not behind it. */
static uint64_t lag(struct scheduler *scheduler, struct consumer *consumer, const struct consumer *front) {
        struct stream_place from, to = consumer_place(scheduler, front);

        if (consumer->job.seed != front->job.seed ||
            !place_is_before(consumer_place(scheduler, consumer), to))
                return 0;
        from = place_of_lack(scheduler, consumer);
        return place_is_before(from, to) && meets(scheduler, consumer, front)
                       ? slots_between(scheduler, from, to)
                       : 0;
}

uint64_t consumer_lag(struct scheduler *scheduler, struct consumer *consumer,
                      const struct consumer **frontp) {
        uint64_t least = 0;

        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *front = container_of(entry, struct consumer, link);
                uint64_t slots = lag(scheduler, consumer, front);

                if (slots == 0 || (least > 0 && slots >= least))
                        continue;
                least = slots;
                *frontp = front;
        }
        return least;
}

static bool waits(const struct consumer *consumer) {
        return consumer->due && consumer->missing > 0;
}

static void note_waiting(struct scheduler *scheduler) {
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (waits(consumer))
                        consumer->waited_at = scheduler->now;
        }
}

static bool waited_lately(const struct scheduler *scheduler, const struct consumer *consumer) {
        return waits(consumer) ||
               scheduler->now - consumer->waited_at <= scheduler->catch_up.ns / CATCH_UP_MOMENT_PARTS;
}

/* Does the running catch-up bring this job on? */
static bool is_brought_on(const struct scheduler *scheduler, const struct consumer *consumer) {
        const struct catch_up *catch_up = &scheduler->catch_up;
        struct stream_place place;

        if (!catch_up->front || consumer->job.seed != catch_up->front->job.seed)
                return false;
        place = consumer_place(scheduler, consumer);
        return !place_is_before(place, catch_up->from) && place_is_before(place, catch_up->to);
}

static bool is_on_stretch(const struct catch_up *catch_up, const struct slot_key *key) {
        struct stream_place place = {key->epoch, key->index};

        return catch_up->front && key->seed == catch_up->front->job.seed &&
               !place_is_before(place, catch_up->from) && place_is_before(place, catch_up->to);
}

/* How soon a job that is brought on, and waits, uses this slot, and which: SCHEDULER_NEVER if it is not to
 * come first. */
uint64_t catch_up_use(const struct scheduler *scheduler, struct slot_key key, struct consumer **who) {
        uint64_t least = SCHEDULER_NEVER;

        if (is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_ORDER) ||
            !is_on_stretch(&scheduler->catch_up, &key))
                return SCHEDULER_NEVER;
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                bool first = is_brought_on(scheduler, consumer) && waited_lately(scheduler, consumer);
                uint64_t use = first ? consumer_use(scheduler, consumer, key) : SCHEDULER_NEVER;

                if (use >= least)
                        continue;
                least = use;
                *who = consumer;
        }
        return least;
}

static bool have_met(struct scheduler *scheduler) {
        if (is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_MEETING))
                return false;
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                if (is_brought_on(scheduler, consumer) &&
                    place_is_before(place_of_lack(scheduler, consumer), scheduler->catch_up.to))
                        return false;
        }
        return true;
}

static void end(struct scheduler *scheduler) {
        struct catch_up *catch_up = &scheduler->catch_up;

        catch_up->front = NULL;
        catch_up->rest_until = scheduler->now + (scheduler->now - catch_up->began);
}

static void give_up(struct scheduler *scheduler) {
        struct consumer *consumer = consumer_find(scheduler, scheduler->catch_up.job);

        if (consumer)
                consumer->tired_until =
                        scheduler->now + CATCH_UP_TIRED * (scheduler->now - scheduler->catch_up.began);
        end(scheduler);
}

static void begin(struct scheduler *scheduler, struct consumer *consumer, const struct consumer *front,
                  uint64_t slots) {
        struct catch_up *catch_up = &scheduler->catch_up;
        double share = (double)slots * scheduler->config.slot_rows / (double)catch_up->rows;

        books_catch_up(scheduler, consumer, false);
        catch_up->front = front;
        catch_up->job = consumer->job.id;
        catch_up->from = consumer_place(scheduler, consumer);
        catch_up->to = consumer_place(scheduler, front);
        catch_up->began = scheduler->now;
        catch_up->until = scheduler->now + (uint64_t)(2 * share * (double)catch_up->ns) +
                          catch_up->ns / CATCH_UP_GRACE_PARTS;
}

void catch_up_note_rest(struct scheduler *scheduler) {
        if (scheduler->n_out == 0)
                scheduler->catch_up.workers_rested = scheduler->now;
}

static bool workers_suffice(const struct scheduler *scheduler) {
        const struct catch_up *catch_up = &scheduler->catch_up;

        return catch_up->workers_rested > 0 &&
               scheduler->now - catch_up->workers_rested <= catch_up->ns / CATCH_UP_REST_PARTS &&
               !is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_NEED);
}

/* The job with the least to make up, among those that wait. */
static void search(struct scheduler *scheduler) {
        struct consumer *found = NULL;
        const struct consumer *front = NULL;
        uint64_t least = scheduler->catch_up.rows / scheduler->config.slot_rows + 1;

        if (is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_BOUND))
                least = SCHEDULER_NEVER;
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);
                const struct consumer *its = NULL;
                uint64_t slots;

                if (!waits(consumer) && !is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_WAIT))
                        continue;
                if (scheduler->now < consumer->tired_until)
                        continue;
                slots = consumer_lag(scheduler, consumer, &its);
                if (slots == 0 || slots >= least)
                        continue;
                least = slots;
                found = consumer;
                front = its;
        }
        if (found)
                begin(scheduler, found, front, least);
}

/* Begins a catch-up, or ends one, as it is `now`. */
void catch_up_look(struct scheduler *scheduler, uint64_t now) {
        struct catch_up *catch_up = &scheduler->catch_up;

        scheduler->now = now;
        if (catch_up->front) {
                catch_up->to = consumer_place(scheduler, catch_up->front);
                note_waiting(scheduler);
                if (have_met(scheduler)) {
                        books_catch_up(scheduler, catch_up->front, true);
                        end(scheduler);
                } else if (now >= catch_up->until &&
                           !is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_LIMIT)) {
                        give_up(scheduler);
                }
        }
        if (catch_up->front || catch_up->rows == 0 || now < catch_up->look_at || workers_suffice(scheduler) ||
            (now < catch_up->rest_until && !is_left_out(scheduler, SCHEDULER_WITHOUT_CATCH_UP_REST)))
                return;
        catch_up->look_at = now + catch_up->ns / CATCH_UP_MOMENT_PARTS;
        search(scheduler);
}

/* The job goes. */
void catch_up_forget(struct scheduler *scheduler, const struct consumer *consumer) {
        if (scheduler->catch_up.front == consumer)
                end(scheduler);
}

static uint64_t rows_of(const struct scheduler *scheduler, uint64_t slots) {
        return slots < SCHEDULER_NEVER / scheduler->config.slot_rows ? slots * scheduler->config.slot_rows
                                                                     : SCHEDULER_NEVER;
}

uint64_t scheduler_lag(struct scheduler *scheduler, uint32_t job, uint32_t *front) {
        struct consumer *consumer = consumer_find(scheduler, job);
        const struct consumer *its = NULL;
        uint64_t slots = consumer ? consumer_lag(scheduler, consumer, &its) : 0;

        if (slots == 0)
                return 0;
        *front = its->job.id;
        return rows_of(scheduler, slots);
}

uint64_t scheduler_catching_up(struct scheduler *scheduler, uint32_t job, uint32_t *front) {
        struct consumer *consumer = consumer_find(scheduler, job);

        if (!consumer || !is_brought_on(scheduler, consumer))
                return 0;
        *front = scheduler->catch_up.front->job.id;
        return rows_of(scheduler, lag(scheduler, consumer, scheduler->catch_up.front));
}

bool scheduler_leader(const struct scheduler *scheduler, uint64_t seed, uint32_t *epoch, uint64_t *row) {
        bool any = false;

        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *consumer = container_of(entry, struct consumer, link);
                uint64_t its = consumer_step_row(consumer);

                if (consumer->job.seed != seed || (any && (consumer->next.epoch < *epoch ||
                                                           (consumer->next.epoch == *epoch && its <= *row))))
                        continue;
                *epoch = consumer->next.epoch;
                *row = its;
                any = true;
        }
        return any;
}

void scheduler_set_catch_up(struct scheduler *scheduler, uint64_t rows, uint64_t ns) {
        scheduler->catch_up.rows = rows;
        scheduler->catch_up.ns = ns;
}

bool scheduler_view_catch_up(const struct scheduler *scheduler, struct scheduler_catch_up *view) {
        const struct catch_up *catch_up = &scheduler->catch_up;

        if (!catch_up->front)
                return false;
        *view = (struct scheduler_catch_up){
                .job = catch_up->job,
                .front = catch_up->front->job.id,
                .seed = catch_up->front->job.seed,
                .from_epoch = catch_up->from.epoch,
                .from_index = catch_up->from.index,
                .to_epoch = catch_up->to.epoch,
                .to_index = catch_up->to.index,
                .began = catch_up->began,
                .until = catch_up->until,
        };
        return true;
}
