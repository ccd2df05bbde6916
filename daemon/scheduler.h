#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows go into which slot, and which job may have them: pure decisions. */

#include "proto/position.h"

#include <stdbool.h>
#include <stdint.h>

struct fault;
struct scheduler;

enum {
        SCHEDULER_SLOTS_MAX = 1 << 20,
        SCHEDULER_HELD_MAX = 1 << 16, /* batches a job may be allowed to hold */
        /* out at once: 1024 workers with 8 each; at the limit there is no next chunk */
        SCHEDULER_CHUNKS_MAX = 1 << 13,
};

#define SCHEDULER_EPOCH_MAX (UINT32_C(1) << 31) /* of start_epoch; what follows is never reached */

struct scheduler_config {
        uint32_t slots;
        uint32_t slot_rows; /* S */
        uint64_t samples;   /* N */
};

/* A job as the scheduler sees it. */
struct scheduler_job {
        uint32_t id; /* chosen by the caller, unique among attached jobs */
        uint64_t seed;
        struct position_plan plan;
        uint32_t start_epoch;
        uint64_t start_row;
        uint32_t max_held; /* batches */
        uint32_t ahead;    /* slots that jobs who came before it still wait for, or were promised */
        /* epochs after the one it is in that may be prepared for it, and that it may be given without asking;
         * with 0 it has nothing more to come after an epoch's last batch until scheduler_seek */
        uint32_t lookahead;
        /* it gets nothing until so many jobs of its stream have been there at once, itself among them, or
         * that time has come; 0 or 1: at once */
        uint32_t gather;
        uint64_t gather_until;
        bool expecting; /* it gets nothing until scheduler_begin: ranks of its run have not come */
        bool unread;    /* it gets no more than its minimum until scheduler_read: nobody asks for it yet */
};

/* Rows [first, first + rows) of `slot`: global rows [row, row + rows) of (seed, epoch). */
struct scheduler_chunk {
        uint32_t slot;
        uint32_t first;
        uint32_t rows;
        uint32_t epoch;
        uint64_t row;
        uint64_t seed;
};

struct scheduler_segment {
        uint32_t slot;
        uint32_t first;
        uint32_t rows;
        bool padding; /* all of its rows */
};

/* A batch handed to a job: all its slots are READY and leased from now on. `segments` lives until the next
 * call. */
struct scheduler_delivery {
        uint32_t job;
        uint64_t number; /* 0, 1, 2 ... within the job */
        struct position position;
        uint32_t n_segments;
        const struct scheduler_segment *segments;
};

enum scheduler_error {
        SCHEDULER_E_FULL = 1, /* rule 2: the minimums alone fill the ring; fault has the numbers */
        SCHEDULER_E_LATER,    /* rule 2: the minimums fit, but jobs hold more than theirs just now */
        SCHEDULER_E_UNKNOWN,  /* no such job, batch, chunk or slot; nothing changed */
};

struct scheduler_counters {
        uint64_t rows_prepared;
        uint64_t rows_delivered;
        uint64_t batches_delivered;
        uint64_t slots_filled;
        uint64_t rows_refilled;     /* of rows_prepared: in slots that were filled before and evicted */
        uint64_t slots_refilled;    /* those slots */
        uint64_t slots_undelivered; /* evicted undelivered, though filled for somebody */
        uint64_t catch_ups;         /* begun */
        uint64_t catch_ups_met;     /* that ended because those behind had reached the job before them */
};

enum scheduler_slot_state {
        SCHEDULER_SLOT_FREE,
        SCHEDULER_SLOT_FILLING,
        SCHEDULER_SLOT_READY,
        SCHEDULER_SLOT_QUARANTINED, /* a worker that has not ended may write into it */
};

struct scheduler_slot_view {
        enum scheduler_slot_state state;
        uint32_t leases;
        uint64_t leased_since; /* if there are any: when the first of them began */
        uint32_t epoch;
        uint64_t index; /* k: holds rows k x S ... */
        uint64_t seed;
        uint32_t rows_done;
        uint32_t rows;
};

struct scheduler_job_view {
        struct position next; /* the batch that will be delivered next */
        uint32_t held;        /* batches delivered and not released */
        uint32_t ready;       /* whole batches READY beyond those */
        uint32_t minimum;     /* slots, rule 1 */
        uint32_t leased;      /* slots */
        bool waiting;         /* its next batch is due and not READY */
        bool gathering;       /* waits for other jobs to come */
        bool expecting;       /* waits for scheduler_begin */
        bool bound;           /* in lockstep with the other bound jobs of its stream */
        bool demoted;         /* from that, since it gave nothing back */
        bool led;             /* held back until the last of the others has come further */
        bool parked;          /* it has had the last epoch that lookahead allows: only a seek goes on */
        uint64_t batches;     /* delivered so far */
        uint64_t rows;
        uint32_t pace;         /* in lockstep: the last of the others, which sets the limit; 0: nobody */
        uint32_t gather, come; /* gathering: jobs that are to come, and how many are there */
        uint64_t gather_until;
        bool unread;  /* waits for scheduler_read with what goes beyond its minimum */
        bool seeking; /* waits for room where it is to be sent */
};

/* A job's books, up to now; times in nanoseconds. What is said of waiting is as seen from here: a batch that
 * lies unread in the job's socket counts as held, and whether the job works at it is not known. */
struct scheduler_account {
        uint64_t rows;        /* delivered so far */
        uint64_t waited;      /* it waited for data: its next batch was due and not READY */
        uint64_t empty;       /* of that: while it held nothing, so that it can have had nothing to do */
        uint64_t data_waited; /* data waited for it: its next batch was READY and could not be given, for it
                                 held all it may, or had not asked for the epoch */
        uint64_t oldest;      /* when the oldest batch that it holds was delivered; 0: it holds none */
        uint64_t released;    /* when it last gave one back, or attached */
        uint32_t held;        /* batches */
        uint32_t leased;      /* slots */
        bool waiting;         /* for data, now */
        uint64_t waited_for_jobs; /* in lockstep for the last of them, for those it gathers with,
                                     or for ranks of its run */
        uint64_t empty_for_jobs;  /* of that: while it held nothing */
};

/* A seed's books. Those of a stream without jobs are kept for a while. */
struct scheduler_stream_view {
        uint64_t seed;
        uint32_t jobs;
        uint64_t rows_prepared;
        uint64_t rows_delivered;
        uint64_t rows_refilled;
        uint64_t catch_ups, catch_ups_met;
};

/* A job is being brought to another before it: what jobs of that stream which are on the stretch of slots
 * [from, to) lack there comes first. */
struct scheduler_catch_up {
        uint32_t job;   /* for which it was begun */
        uint32_t front; /* the one that is to be reached */
        uint64_t seed;
        uint32_t from_epoch, to_epoch;
        uint64_t from_index, to_index;
        uint64_t began, until; /* in the caller's nanoseconds */
};

/* 0, -EINVAL, -ENOMEM. */
int scheduler_new(struct scheduler **scheduler, const struct scheduler_config *config);
struct scheduler *scheduler_free(struct scheduler *scheduler);

/* Rule 1: slots this plan needs at worst for the batch it holds and its next. */
uint32_t scheduler_minimum(const struct scheduler_config *config, const struct position_plan *plan,
                           uint64_t start_row);

/* Events. `now` is a clock in nanoseconds that never falls. attach: 0, SCHEDULER_E_FULL or
 * _LATER, -EINVAL (plan, start, max_held, an id that is attached) or -ENOMEM; seek: the same but for -ENOMEM,
 * or SCHEDULER_E_UNKNOWN; the others: 0 or SCHEDULER_E_UNKNOWN. */
int scheduler_attach(struct scheduler *scheduler, const struct scheduler_job *job, uint64_t now,
                     struct fault *fault);
int scheduler_detach(struct scheduler *scheduler, uint32_t job);

/* Sends a job elsewhere: its next batch is the first one from (epoch, row) on. It keeps what it holds;
 * numbers go on. Unaligned rows may need a larger minimum, hence the errors of attach, after which the job is
 * where it was. After SCHEDULER_E_LATER it gets nothing until a further call, with this place or another,
 * returns anything else. `ahead` as in scheduler_job. */
int scheduler_seek(struct scheduler *scheduler, uint32_t job, uint32_t epoch, uint64_t row, uint32_t ahead,
                   uint64_t now, struct fault *fault);

/* The slots that jobs sent away with SCHEDULER_E_LATER wait for, all together, and those that were promised
 * to jobs which will come. While it is not 0, nobody is granted more than its minimum unless that leaves so
 * many, so that releases make room; the caller tries their attach again after each. */
void scheduler_set_awaited(struct scheduler *scheduler, uint32_t slots);

/* Before the first job: while there is none, the first `slots` slots of epoch 0 of this seed are prepared,
 * since the next job will begin there, and stay until a job needs the room. Of what no job wants they are the
 * last to go. 0 or -ENOMEM. */
int scheduler_set_warm(struct scheduler *scheduler, uint64_t seed, uint32_t slots);

/* The ranks of this job's run have come: what it was attached for begins. */
void scheduler_begin(struct scheduler *scheduler, uint32_t job);

/* The job reads, and from now on may get more than its minimum. */
void scheduler_read(struct scheduler *scheduler, uint32_t job);

/* Before the first job: jobs of a stream wait for each other, so that none is more than about `max_lead` rows
 * ahead of the last, see scheduler-lockstep.c; one that gives nothing back for `lag_timeout` ns is waited for
 * no more. 0 rows, as at first: nobody waits. scheduler_next_delivery is to be called now and then, also when
 * nothing happens, or nobody is found to lag. */
void scheduler_set_lockstep(struct scheduler *scheduler, uint64_t max_lead, uint64_t lag_timeout);

/* The caller has not been able to hear the jobs for a while: that they gave nothing back meanwhile is held
 * against none of them. */
void scheduler_excuse_all(struct scheduler *scheduler, uint64_t now);

/* A job that is at most `rows` behind another of its stream catches up, see scheduler-catch-up.c; they are
 * what workers do in `ns` as far as the caller can tell just now. 0 rows, as at first: none does. */
void scheduler_set_catch_up(struct scheduler *scheduler, uint64_t rows, uint64_t ns);

int scheduler_release(struct scheduler *scheduler, uint32_t job, uint64_t number, uint64_t now);
int scheduler_chunk_done(struct scheduler *scheduler, uint32_t slot, uint32_t first, uint32_t rows);

/* A chunk will never be finished (its worker died, its sample is bad). The slot gives up the whole filling
 * once no other chunk of it is out. The caller detaches the jobs of that stream, or the rows are filled
 * again. */
int scheduler_chunk_lost(struct scheduler *scheduler, uint32_t slot, uint32_t first, uint32_t rows);

/* A chunk came back unfinished. Its first `done` rows are whole; if `suspect`, the next one stays out as a
 * chunk (slot, first + done, 1) for the caller to have tried alone, and is reported like any chunk (split
 * again with done 0 too); what follows goes back to the slot and is handed out again before rows that never
 * were. done < rows, or SCHEDULER_E_UNKNOWN; never for lack of room. */
int scheduler_chunk_split(struct scheduler *scheduler, uint32_t slot, uint32_t first, uint32_t rows,
                          uint32_t done, bool suspect);

/* A worker that was killed does not end and may still write into this slot. What is being filled into it is
 * given up once no chunk of it is out, and begun anew in another slot; it counts for no capacity and is used
 * for nothing until it was returned as often as it was quarantined. The stuck worker's chunks come back by
 * being reported, with scheduler_chunk_lost or _split: right after this call, or right before it.
 * SCHEDULER_E_UNKNOWN if the slot is READY, for then the chunk was reported as done. */
int scheduler_slot_quarantine(struct scheduler *scheduler, uint32_t slot);
int scheduler_slot_return(struct scheduler *scheduler, uint32_t slot);

/* Actions: call each until it returns false, after every event. `rows_wanted` bounds the chunk (>= 1),
 * `workers` is how many share the work: a chunk of a batch somebody waits for is at most its open rows /
 * workers, rounded up. */
bool scheduler_next_delivery(struct scheduler *scheduler, uint64_t now, struct scheduler_delivery *delivery);
bool scheduler_next_chunk(struct scheduler *scheduler, uint32_t rows_wanted, uint32_t workers,
                          struct scheduler_chunk *chunk);

/* How urgent the next chunk is, for whoever has several schedulers and fewer workers: batches until its first
 * use, 0 for due ones, and since when the job of that use has waited. While somebody catches up this is told
 * of the most urgent chunk, also if another one comes before it. False when there is none. Hands out nothing.
 */
bool scheduler_peek_chunk(struct scheduler *scheduler, uint64_t *use, uint64_t *since);

/* Where the job of this stream is that is ahead of all others: the beginning of the step of which its next
 * batch is part. False: there is no job. */
bool scheduler_leader(const struct scheduler *scheduler, uint64_t seed, uint32_t *epoch, uint64_t *row);

/* What max_lead comes to with the jobs that are there; 0: there is no lockstep. */
uint64_t scheduler_lead(const struct scheduler *scheduler);

/* Rows that the job lacks, at most, of what the nearest job before it has passed, and that job's id; 0: it is
 * behind nobody whose slots it will come by. */
uint64_t scheduler_lag(struct scheduler *scheduler, uint32_t job, uint32_t *front);

/* If the job is being brought to another, see struct scheduler_catch_up: the rows that it lacks, at most, of
 * what that one has passed, and that job's id; else 0. */
uint64_t scheduler_catching_up(struct scheduler *scheduler, uint32_t job, uint32_t *front);

/* Looking, for status and tests. */
void scheduler_counters(const struct scheduler *scheduler, struct scheduler_counters *counters);
void scheduler_add_counters(struct scheduler_counters *sum, const struct scheduler_counters *more);
int scheduler_view_job(const struct scheduler *scheduler, uint32_t job, struct scheduler_job_view *view);
/* False: none is running. */
bool scheduler_view_catch_up(const struct scheduler *scheduler, struct scheduler_catch_up *view);
void scheduler_view_slot(const struct scheduler *scheduler, uint32_t slot, struct scheduler_slot_view *view);
/* 0 or SCHEDULER_E_UNKNOWN. */
int scheduler_view_account(const struct scheduler *scheduler, uint32_t job, uint64_t now,
                           struct scheduler_account *account);
/* Of all slots together, since the start: how long they have been leased. */
uint64_t scheduler_leased_ns(const struct scheduler *scheduler, uint64_t now);
/* Streams have places 0, 1, 2 ... in no lasting order; false: there is none at this one. */
bool scheduler_view_stream(const struct scheduler *scheduler, uint32_t place,
                           struct scheduler_stream_view *view);
/* Who shares with a job: others of its stream that are no further from it than the ring has slots. And who
 * holds a slot. Both write at most `max` ids, and return how many there are. */
uint32_t scheduler_company(const struct scheduler *scheduler, uint32_t job, uint32_t *ids, uint32_t max);
uint32_t scheduler_holders(const struct scheduler *scheduler, uint32_t slot, uint32_t *ids, uint32_t max);
