#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the scheduler-*.c share; nobody else includes it but their test. */

#include "base/list.h"
#include "daemon/scheduler.h"

enum {
        SCHEDULER_HISTORY_MAX = 64, /* runs of slots remembered, about one per job; see scheduler-history.c */
        SCHEDULER_POOL = 2 * SCHEDULER_CHUNKS_MAX + 2, /* see scheduler-chunks.c */
        SCHEDULER_STREAMS_KEPT = 16,                   /* without a job; see scheduler-books.c */
};

#define SCHEDULER_NONE  UINT32_MAX
#define SCHEDULER_NEVER UINT64_MAX

/* For the test only: leaves one of the rules out, to see that the simulation notices. */
enum scheduler_sabotage {
        SCHEDULER_WITHOUT_MINIMUM = 1 << 0,
        SCHEDULER_WITHOUT_ADMISSION = 1 << 1,
        SCHEDULER_WITHOUT_LEASES = 1 << 2,
        SCHEDULER_WITHOUT_DUE = 1 << 3,
        SCHEDULER_WITHOUT_EVICTION = 1 << 4,
        SCHEDULER_WITHOUT_CATCH_UP_ORDER = 1 << 5,
        SCHEDULER_WITHOUT_CATCH_UP_BOUND = 1 << 6, /* however far behind */
        SCHEDULER_WITHOUT_CATCH_UP_WAIT = 1 << 7,  /* also who does not wait */
        SCHEDULER_WITHOUT_CATCH_UP_MEETING = 1 << 8,
        SCHEDULER_WITHOUT_CATCH_UP_LIMIT = 1 << 9,
        SCHEDULER_WITHOUT_CATCH_UP_REST = 1 << 10,
        SCHEDULER_WITHOUT_LEAD = 1 << 11,       /* bound jobs are not held back */
        SCHEDULER_WITHOUT_LEAST_LEAD = 1 << 12, /* the lead may be less than two steps */
        SCHEDULER_WITHOUT_NEARNESS = 1 << 13,   /* who is far away binds too */
        SCHEDULER_WITHOUT_DEMOTION = 1 << 14,
        SCHEDULER_WITHOUT_GATHER = 1 << 15, /* nobody waits for others to come */
        SCHEDULER_WITHOUT_GATHER_END = 1 << 16,
        SCHEDULER_WITHOUT_WARM_LAST = 1 << 17,     /* what is kept warm goes like any other slot */
        SCHEDULER_WITHOUT_WARM_REST = 1 << 18,     /* slots are filled for nobody while there are jobs */
        SCHEDULER_WITHOUT_EXPECTING = 1 << 19,     /* nobody waits for the ranks of its run */
        SCHEDULER_WITHOUT_CATCH_UP_NEED = 1 << 21, /* also while workers have nothing to do */
        SCHEDULER_WITHOUT_CATCH_UP_RANK = 1 << 20, /* others come before those who wait for a catch-up */
        SCHEDULER_WITHOUT_UNREAD = 1 << 22,        /* who does not read gets what others do */
};

/* The contents of a slot: rows [index x S, (index + 1) x S) of (seed, epoch). */
struct slot_key {
        uint64_t seed;
        uint64_t index;
        uint32_t epoch;
};

struct slot {
        struct list link; /* one of scheduler's free, open, idle, warm; in a heap or leased: none */
        enum scheduler_slot_state state;
        struct slot_key key; /* unless FREE */
        uint32_t chain;      /* next slot of the same hash, or SCHEDULER_NONE */
        uint32_t rows;
        uint32_t rows_assigned;
        uint32_t rows_done;
        uint32_t chunks;   /* first chunk that is out, or SCHEDULER_NONE */
        uint32_t returned; /* first range below rows_assigned to be handed out again, or SCHEDULER_NONE */
        uint32_t leases;   /* jobs that hold it */
        uint64_t leased_since;
        uint32_t stuck; /* times quarantined and not returned */
        bool lost;      /* FILLING, to be FREE or QUARANTINED once no chunk is out */
        bool delivered;
        bool warmed;                /* filled for nobody */
        struct consumer *wanted_by; /* in whose heap it is, or NULL */
        uint64_t wanted_for;        /* the number of the batch that job wants it for */
        uint32_t heap_at;
};

/* Rows of a slot that are out, or came back undone. */
struct slot_chunk {
        uint32_t first;
        uint32_t rows;
        uint32_t next; /* of the same slot, the returned ones in order; or of the unused ones */
};

struct held_batch {
        uint64_t number;
        uint64_t since; /* when it was delivered */
        struct position position;
        uint32_t next; /* with the same hash, or of the unused ones */
};

/* The slots that a batch lies in: `first` to `last`, and, if it wraps round, 0 to `wrapped` without that one.
 * Each once. */
struct slot_span {
        uint64_t first, last, wrapped;
};

/* A place in the sequence of slots that a job uses. */
struct cursor {
        struct position batch;
        uint64_t number; /* of that batch */
        struct slot_span span;
        uint64_t place; /* in its span */
};

/* Who waits for whom. */
enum waiting {
        WAITING_NOBODY,
        WAITING_JOB,       /* its next batch is due and not READY */
        WAITING_EMPTY_JOB, /* the same, and it holds nothing */
        WAITING_DATA,      /* its next batch is READY and cannot be given to it */
        WAITING_OTHERS,    /* other jobs have to come further, or to come */
        WAITING_EMPTY_OTHERS,
};

/* The books of a seed, for people; no decision depends on it. */
struct stream {
        struct list link; /* scheduler's streams, the one used last at the end */
        struct scheduler_stream_view view;
};

/* A job, with what only the scheduler knows of it. */
struct consumer {
        struct list link; /* scheduler's consumers, the longest waiting first */
        struct scheduler_job job;
        uint64_t waiting_since;
        uint64_t waited_at;   /* when somebody caught up and it waited for workers, last */
        uint64_t tired_until; /* a catch-up was in vain: no other before */

        bool gathering; /* waits for other jobs to come */
        bool expecting; /* waits for scheduler_begin */
        bool unread;    /* scheduler_read has not come */
        bool bound;     /* lockstep: it waits for the others that are, and they for it */
        bool demoted;   /* was bound and gave nothing back for too long */
        bool limited;   /* by the place that the next line tells, where a batch must have ended */
        uint64_t limit_epoch, limit_row;
        uint32_t pace;     /* the job that limits it; 0: none */
        uint64_t moved_at; /* when it gave something back last, or had an excuse */
        uint64_t oldest;   /* number of the first batch since it was sent here that it has not given back */
        uint32_t turn;     /* place in that list */

        struct position next;  /* what will be delivered next */
        uint64_t number;       /* its number */
        struct slot_span span; /* its slots */
        uint32_t epoch;        /* that the job is in: of its last batch, or where it was sent */
        bool seeking;          /* a seek has to wait, and the job with it */
        uint32_t missing;      /* slots of next that are not READY */
        uint32_t fresh;        /* slots of next that this job does not lease yet */
        bool kept;             /* its minimum is kept for it; always, unless the ring is short */
        bool granted;          /* rule 3 and max_held let it have next now */
        bool due;              /* rule 4: the same, unless that rule is left out */

        uint32_t minimum; /* rule 1 */
        uint32_t leased;  /* slots */
        uint32_t held;    /* batches */
        uint64_t rows_delivered;

        struct stream *stream; /* its books, and the job's own: scheduler-books.c */
        struct scheduler_account account;
        enum waiting waits;
        uint64_t waits_since; /* or when it was last booked */

        struct cursor cursor; /* all it uses before is resident and was given to workers whole */
        uint32_t *heap;       /* idle slots that this job wants first, the one it wants last on top */
        uint32_t n_heap;

        uint32_t *leases; /* by slot: how many held batches lie in it */
        uint32_t *heads;  /* held batches by number */
        uint32_t mask;
        uint32_t unused;
        struct held_batch *batches;
};

/* A slot of a stream. */
struct stream_place {
        uint32_t epoch;
        uint64_t index;
};

struct catch_up {
        uint64_t rows, ns;            /* as scheduler_set_catch_up */
        const struct consumer *front; /* who is to be reached; NULL: none is running */
        uint32_t job;                 /* for whom it was begun */
        struct stream_place from, to; /* the stretch: where that job was, where the front is */
        uint64_t began, until;
        uint64_t rest_until, look_at; /* none begins, nobody looks before */
        uint64_t workers_rested;      /* when they had nothing to do, last; 0: never */
};

struct lockstep {
        uint64_t max_lead;    /* rows; 0: elastic */
        uint64_t lag_timeout; /* ns */
        uint64_t lead;        /* what max_lead comes to, with the jobs that there are */
};

/* scheduler_set_warm */
struct warm {
        uint64_t seed;
        uint32_t slots;
        bool in_vain; /* one could not be filled: no other try before a job has come */
};

struct history_run {
        uint64_t seed;
        uint64_t first, end; /* epoch x slots of an epoch + index */
};

struct scheduler {
        struct scheduler_config config;
        unsigned sabotage;
        uint32_t awaited;     /* slots that jobs wait for before they can be let in */
        uint64_t epoch_slots; /* slots of an epoch */
        uint64_t now;         /* of the last call that brought it */
        struct catch_up catch_up;
        struct lockstep lockstep;
        struct warm warm;
        struct scheduler_counters counters;

        struct list consumers;
        struct list free;
        struct list open;       /* FILLING, with rows that no worker has */
        struct list idle;       /* READY, no leases; who will want them was not asked yet */
        struct list warm_slots; /* the same, but nobody did when it was asked last, and they are kept warm */
        struct list streams;

        struct slot *slots;
        uint32_t *heads; /* slots by key */
        uint32_t mask;
        struct slot_chunk *chunks;
        uint32_t unused, n_unused;          /* chunks that are neither out nor returned */
        uint32_t chunks_max;                /* SCHEDULER_CHUNKS_MAX; tests try less */
        uint32_t n_out, n_out_long;         /* chunks; of these, with more than one row */
        uint32_t n_quarantined, n_leased;   /* slots */
        uint64_t booked;                    /* up to when, */
        uint32_t n_leased_booked;           /* and how many slots have been leased since */
        uint64_t leased_ns;                 /* of all slots together */
        struct scheduler_segment *segments; /* of the last delivery */
        uint64_t n_segments;                /* that there is room for */
        struct history_run history[SCHEDULER_HISTORY_MAX];
        uint32_t n_history;
};

static inline bool slot_is_open(const struct slot *slot) {
        return slot->state == SCHEDULER_SLOT_FILLING && !slot->lost &&
               (slot->rows_assigned < slot->rows || slot->returned != SCHEDULER_NONE);
}

static inline bool slot_is_idle(const struct slot *slot) {
        return slot->state == SCHEDULER_SLOT_READY && slot->leases == 0;
}

static inline uint32_t slot_number(const struct scheduler *scheduler, const struct slot *slot) {
        return (uint32_t)(slot - scheduler->slots);
}

/* Its next batch is beyond its lookahead. */
static inline bool consumer_is_parked(const struct consumer *consumer) {
        return consumer->next.epoch - consumer->epoch > consumer->job.lookahead;
}

/* The row of its epoch where the step of all ranks begins that this batch is part of. */
static inline uint64_t batch_step_row(const struct consumer *consumer, const struct position *batch) {
        const struct position_plan *plan = &consumer->job.plan;

        return batch->base + batch->step * plan->batch_size * plan->world_size;
}

static inline uint64_t consumer_step_row(const struct consumer *consumer) {
        return batch_step_row(consumer, &consumer->next);
}

/* It waits for others that have not come. */
static inline bool consumer_is_awaiting(const struct consumer *consumer) {
        return consumer->gathering || consumer->expecting;
}

static inline uint64_t span_count(const struct slot_span *span) {
        return span->last - span->first + 1 + span->wrapped;
}

/* In the order of rows: the wrapped ones come last. */
static inline uint64_t span_slot(const struct slot_span *span, uint64_t place) {
        uint64_t run = span->last - span->first + 1;

        return place < run ? span->first + place : place - run;
}

static inline bool span_has(const struct slot_span *span, uint64_t index) {
        return (index >= span->first && index <= span->last) || index < span->wrapped;
}

/* scheduler-slots.c */
struct slot *slots_find(const struct scheduler *scheduler, struct slot_key key);
void slots_start(struct scheduler *scheduler, struct slot *slot, struct slot_key key);
void slots_ready(struct scheduler *scheduler, struct slot *slot);
void slots_drop(struct scheduler *scheduler, struct slot *slot);

/* scheduler-eviction.c */
void slots_unsettle(struct scheduler *scheduler, struct slot *slot);
void slots_let_go(struct scheduler *scheduler, struct consumer *consumer);
struct slot *slots_find_room(struct scheduler *scheduler, uint64_t use);
void slots_make_room(struct scheduler *scheduler, struct slot *slot);

/* scheduler-chunks.c */
void chunks_init(struct scheduler *scheduler, uint32_t chunks_max);
void chunks_forget_returned(struct scheduler *scheduler, struct slot *slot);
void chunks_give_up(struct scheduler *scheduler, struct slot *slot);
void chunks_give_up_unwanted(struct scheduler *scheduler);

/* scheduler-warm.c */
bool warm_is_kept(const struct scheduler *scheduler, struct slot_key key);
/* And it is to be filled now, for nobody. */
bool warm_is_wanted(const struct scheduler *scheduler, struct slot_key key);
/* What is to be filled next for nobody: an open slot, or (NULL) a missing key. False: nothing. */
bool warm_choose(const struct scheduler *scheduler, struct slot **open, struct slot_key *missing);

/* scheduler-history.c */
bool history_add(struct scheduler *scheduler, struct slot_key key);

/* scheduler-walk.c */
struct slot_span span_of(const struct scheduler_config *config, const struct position_plan *plan,
                         const struct position *batch);
uint64_t consumer_use(const struct scheduler *scheduler, const struct consumer *consumer,
                      struct slot_key key);
uint64_t consumers_use(const struct scheduler *scheduler, struct slot_key key, struct consumer **who);
void cursor_set(struct cursor *cursor, const struct consumer *consumer);
struct slot_key cursor_key(const struct cursor *cursor, const struct consumer *consumer);
bool consumer_advance(struct scheduler *scheduler, struct consumer *consumer);
void consumer_go_back(struct scheduler *scheduler, struct consumer *consumer, struct slot_key key);
uint64_t consumer_ready(const struct scheduler *scheduler, const struct consumer *consumer);

/* scheduler-consumer.c */
int consumer_new(struct consumer **consumerp, const struct scheduler *scheduler,
                 const struct scheduler_job *job);
struct consumer *consumer_free(struct consumer *consumer);
struct consumer *consumer_find(const struct scheduler *scheduler, uint32_t id);
void consumer_send(const struct scheduler *scheduler, struct consumer *consumer, uint32_t epoch,
                   uint64_t row);
void consumer_wait(struct scheduler *scheduler, struct consumer *consumer, uint64_t now);
void consumer_deliver(struct scheduler *scheduler, struct consumer *consumer,
                      struct scheduler_delivery *delivery);
/* The first batch that it has not given back, or its next. */
const struct position *consumer_oldest(const struct consumer *consumer);
int consumer_release(struct scheduler *scheduler, struct consumer *consumer, uint64_t number);
void consumer_release_all(struct scheduler *scheduler, struct consumer *consumer);
void consumers_slot_ready(struct scheduler *scheduler, struct slot_key key);
void consumers_slot_reopened(struct scheduler *scheduler, struct slot_key key);
void consumers_slot_dropped(struct scheduler *scheduler, struct slot_key key, bool was_ready);

/* scheduler-catch-up.c */
bool place_is_before(struct stream_place a, struct stream_place b);
struct stream_place consumer_place(const struct scheduler *scheduler, const struct consumer *consumer);
/* Slots that the job lacks until it has what the nearest job before it has passed, and which that is; 0: it
 * is behind nobody. */
uint64_t consumer_lag(struct scheduler *scheduler, struct consumer *consumer, const struct consumer **frontp);
uint64_t catch_up_use(const struct scheduler *scheduler, struct slot_key key, struct consumer **who);
void catch_up_look(struct scheduler *scheduler, uint64_t now);
/* No chunk is out, and there is none. */
void catch_up_note_rest(struct scheduler *scheduler);
void catch_up_forget(struct scheduler *scheduler, const struct consumer *consumer);

/* scheduler-grant.c, too */
void gather_look(struct scheduler *scheduler, uint64_t now);
uint32_t gather_count(const struct scheduler *scheduler, uint64_t seed);

/* scheduler-lockstep.c */
uint64_t lockstep_lead(const struct scheduler *scheduler);
uint64_t lockstep_spared(const struct scheduler *scheduler, const struct consumer *consumer);
void lockstep_set_limits(struct scheduler *scheduler);
void lockstep_look(struct scheduler *scheduler, uint64_t now);
void lockstep_moved(const struct scheduler *scheduler, struct consumer *consumer, uint64_t now,
                    bool elsewhere);
/* Is this batch, or one before it, not for this job until others have come further? */
bool consumer_is_led(const struct consumer *consumer, const struct position *batch);

/* scheduler-grant.c */
uint32_t consumer_demand(const struct consumer *consumer);
uint64_t consumers_demand(const struct scheduler *scheduler);
uint64_t consumers_minimum(const struct scheduler *scheduler);
void consumers_choose_due(struct scheduler *scheduler);
uint32_t scheduler_capacity(const struct scheduler *scheduler);

/* scheduler-books.c */
int books_open(struct scheduler *scheduler, struct consumer *consumer);
/* There are books of this seed before its first job. */
int books_keep(struct scheduler *scheduler, uint64_t seed);
void books_close(struct scheduler *scheduler, struct consumer *consumer);
void books_free(struct scheduler *scheduler);
void books_prepared(struct scheduler *scheduler, uint64_t seed, uint32_t rows);
void books_refilled(struct scheduler *scheduler, uint64_t seed, uint32_t rows);
void books_delivered(struct scheduler *scheduler, struct consumer *consumer, uint32_t rows);
void books_catch_up(struct scheduler *scheduler, const struct consumer *consumer, bool met);
void books_settle(struct scheduler *scheduler);
