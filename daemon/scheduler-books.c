/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The books: who waited for whom and for how long, what each stream cost. For people; no decision depends on
 * them.
 *
 * Between two events nothing changes, so time is booked when an event has been dealt with, which is when
 * scheduler_next_delivery has nothing more to give: what has passed since the last time goes to whatever each
 * job was at then. That costs a step for each job and event, like all the rest, and nothing for each row.
 *
 * A stream's books outlive its last job for a while, so that who looks after a run still finds them; since
 * anybody can come with any seed, only the last SCHEDULER_STREAMS_KEPT without jobs are kept. */

#include "daemon/scheduler-internal.h"

#include <errno.h>
#include <stdlib.h>

/* ---- streams ---- */

static struct stream *stream_of(struct list *entry) {
        return container_of(entry, struct stream, link);
}

static struct stream *find_stream(const struct scheduler *scheduler, uint64_t seed) {
        list_for_each (entry, &scheduler->streams) {
                if (stream_of(entry)->view.seed == seed)
                        return stream_of(entry);
        }
        return NULL;
}

static void forget_stream(struct stream *stream) {
        list_unlink(&stream->link);
        free(stream);
}

/* The longest unused ones without jobs, but for the last of them. */
static void forget_streams(struct scheduler *scheduler) {
        uint32_t n = 0;

        list_for_each (entry, &scheduler->streams)
                n += stream_of(entry)->view.jobs == 0;
        list_for_each_safe (entry, &scheduler->streams) {
                if (n <= SCHEDULER_STREAMS_KEPT)
                        return;
                if (stream_of(entry)->view.jobs > 0)
                        continue;
                forget_stream(stream_of(entry));
                n--;
        }
}

/* The books of this seed, which count as used last; or NULL. */
static struct stream *use_stream(struct scheduler *scheduler, uint64_t seed) {
        struct stream *stream = find_stream(scheduler, seed);

        if (!stream)
                stream = calloc(1, sizeof(*stream));
        else
                list_unlink(&stream->link);
        if (!stream)
                return NULL;
        stream->view.seed = seed;
        list_append(&scheduler->streams, &stream->link);
        return stream;
}

int books_keep(struct scheduler *scheduler, uint64_t seed) {
        return use_stream(scheduler, seed) ? 0 : -ENOMEM;
}

/* A job comes, now. 0 or -ENOMEM. */
int books_open(struct scheduler *scheduler, struct consumer *consumer) {
        struct stream *stream = use_stream(scheduler, consumer->job.seed);

        if (!stream)
                return -ENOMEM;
        ++stream->view.jobs;
        consumer->stream = stream;
        consumer->account.released = consumer->waits_since = scheduler->now;
        return 0;
}

void books_close(struct scheduler *scheduler, struct consumer *consumer) {
        --consumer->stream->view.jobs;
        forget_streams(scheduler);
}

void books_free(struct scheduler *scheduler) {
        list_for_each_safe (entry, &scheduler->streams)
                forget_stream(stream_of(entry));
}

void books_prepared(struct scheduler *scheduler, uint64_t seed, uint32_t rows) {
        struct stream *stream = find_stream(scheduler, seed);

        scheduler->counters.rows_prepared += rows;
        if (stream)
                stream->view.rows_prepared += rows;
}

/* A slot of so many rows was filled, not for the first time. */
void books_refilled(struct scheduler *scheduler, uint64_t seed, uint32_t rows) {
        struct stream *stream = find_stream(scheduler, seed);

        ++scheduler->counters.slots_refilled;
        scheduler->counters.rows_refilled += rows;
        if (stream)
                stream->view.rows_refilled += rows;
}

void books_delivered(struct scheduler *scheduler, struct consumer *consumer, uint32_t rows) {
        ++scheduler->counters.batches_delivered;
        scheduler->counters.rows_delivered += rows;
        consumer->stream->view.rows_delivered += rows;
}

/* One was begun for this job, or has reached it. */
void books_catch_up(struct scheduler *scheduler, const struct consumer *consumer, bool met) {
        scheduler->counters.catch_ups += !met;
        scheduler->counters.catch_ups_met += met;
        consumer->stream->view.catch_ups += !met;
        consumer->stream->view.catch_ups_met += met;
}

bool scheduler_view_stream(const struct scheduler *scheduler, uint32_t place,
                           struct scheduler_stream_view *view) {
        list_for_each (entry, &scheduler->streams) {
                if (place-- > 0)
                        continue;
                *view = stream_of(entry)->view;
                return true;
        }
        return false;
}

/* ---- time ---- */

/* Could it go on, but for other jobs? What it has no room for, or has not asked for, it would not be given
 * anyway. */
static bool awaits_others(const struct consumer *consumer) {
        return (consumer_is_awaiting(consumer) || consumer_is_led(consumer, &consumer->next)) &&
               !consumer->seeking && consumer->held < consumer->job.max_held && !consumer_is_parked(consumer);
}

static enum waiting waiting_of(const struct consumer *consumer) {
        bool keeps_it_waiting = consumer->held > 0 || consumer_is_parked(consumer);

        if (awaits_others(consumer))
                return consumer->held == 0 ? WAITING_EMPTY_OTHERS : WAITING_OTHERS;
        if (consumer->missing == 0 && !consumer->granted && !consumer->seeking && keeps_it_waiting)
                return WAITING_DATA;
        if (consumer->missing == 0 || !consumer->due)
                return WAITING_NOBODY;
        return consumer->held == 0 ? WAITING_EMPTY_JOB : WAITING_JOB;
}

/* What has passed goes to what the job was at. */
static void book(struct scheduler_account *account, enum waiting waits, uint64_t passed) {
        if (waits == WAITING_DATA)
                account->data_waited += passed;
        if (waits == WAITING_JOB || waits == WAITING_EMPTY_JOB)
                account->waited += passed;
        if (waits == WAITING_EMPTY_JOB)
                account->empty += passed;
        if (waits == WAITING_OTHERS || waits == WAITING_EMPTY_OTHERS)
                account->waited_for_jobs += passed;
        if (waits == WAITING_EMPTY_OTHERS)
                account->empty_for_jobs += passed;
}

static uint64_t passed_since(uint64_t then, uint64_t now) {
        return now > then ? now - then : 0;
}

uint64_t scheduler_leased_ns(const struct scheduler *scheduler, uint64_t now) {
        return scheduler->leased_ns + scheduler->n_leased_booked * passed_since(scheduler->booked, now);
}

/* Every event was dealt with. */
void books_settle(struct scheduler *scheduler) {
        scheduler->leased_ns = scheduler_leased_ns(scheduler, scheduler->now);
        scheduler->n_leased_booked = scheduler->n_leased;
        scheduler->booked = scheduler->now;
        list_for_each (entry, &scheduler->consumers) {
                struct consumer *consumer = container_of(entry, struct consumer, link);

                book(&consumer->account, consumer->waits,
                     passed_since(consumer->waits_since, scheduler->now));
                consumer->waits = waiting_of(consumer);
                consumer->waits_since = scheduler->now;
        }
}

static uint64_t oldest_held(const struct consumer *consumer) {
        uint64_t oldest = SCHEDULER_NEVER;

        for (uint32_t i = 0; consumer->held > 0 && i <= consumer->mask; ++i) {
                for (uint32_t at = consumer->heads[i]; at != SCHEDULER_NONE;
                     at = consumer->batches[at].next) {
                        if (consumer->batches[at].since < oldest)
                                oldest = consumer->batches[at].since;
                }
        }
        return consumer->held > 0 ? oldest : 0;
}

int scheduler_view_account(const struct scheduler *scheduler, uint32_t job, uint64_t now,
                           struct scheduler_account *account) {
        const struct consumer *consumer = consumer_find(scheduler, job);

        if (!consumer)
                return SCHEDULER_E_UNKNOWN;
        *account = consumer->account;
        account->rows = consumer->rows_delivered;
        account->oldest = oldest_held(consumer);
        account->held = consumer->held;
        account->leased = consumer->leased;
        account->waiting = consumer->due && consumer->missing > 0;
        book(account, consumer->waits, passed_since(consumer->waits_since, now));
        return 0;
}

/* ---- who with whom ---- */

/* Slots from the stream's first one to the job's next batch. */
static uint64_t place_of(const struct scheduler *scheduler, const struct consumer *consumer) {
        return consumer->next.epoch * scheduler->epoch_slots + consumer->span.first;
}

static bool is_near(const struct scheduler *scheduler, const struct consumer *a, const struct consumer *b) {
        uint64_t here = place_of(scheduler, a), there = place_of(scheduler, b);

        return (here > there ? here - there : there - here) < scheduler_capacity(scheduler);
}

uint32_t scheduler_company(const struct scheduler *scheduler, uint32_t job, uint32_t *ids, uint32_t max) {
        const struct consumer *consumer = consumer_find(scheduler, job);
        uint32_t n = 0;

        if (!consumer)
                return 0;
        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *other = container_of(entry, struct consumer, link);

                if (other == consumer || other->job.seed != consumer->job.seed ||
                    !is_near(scheduler, consumer, other))
                        continue;
                if (n++ < max)
                        ids[n - 1] = other->job.id;
        }
        return n;
}

uint32_t scheduler_holders(const struct scheduler *scheduler, uint32_t slot, uint32_t *ids, uint32_t max) {
        uint32_t n = 0;

        if (slot >= scheduler->config.slots || scheduler->slots[slot].leases == 0)
                return 0;
        list_for_each (entry, &scheduler->consumers) {
                const struct consumer *consumer = container_of(entry, struct consumer, link);

                if (consumer->leases[slot] == 0)
                        continue;
                if (n++ < max)
                        ids[n - 1] = consumer->job.id;
        }
        return n;
}
