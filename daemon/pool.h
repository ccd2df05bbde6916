#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The worker processes of one pipeline: started, told what to do, listened to, buried. */

#include "base/fault.h"
#include "base/list.h"
#include "daemon/process.h"
#include "proto/message.h"
#include "proto/stages.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct interpreter;
struct pool;
struct worker_page;
struct zygote;

/* A worker's life. One function in pool-worker.c per edge. */
#define POOL_WORKER_STATES(S)                                                                                \
        S(STARTING, starting) /* set up, waits for the index */                                              \
        S(SCANNING, scanning) /* looks for the samples */                                                    \
        S(IDLE, idle)                                                                                        \
        S(BUSY, busy)     /* holds a chunk, or has not answered for one that was recalled */                 \
        S(ENDING, ending) /* was told to end, or its socket is gone */

enum pool_worker_state {
#define S(NAME, name) POOL_WORKER_##NAME,
        POOL_WORKER_STATES(S)
#undef S
};

/* What ended a worker that was not told to end; a counter for each. */
#define POOL_DEATHS(D)                                                                                       \
        D(EXITED, exited)       /* by itself, with a status */                                               \
        D(CRASHED, crashed)     /* by a signal that its own doing raised */                                  \
        D(OUT_OF_MEMORY, oom)   /* SIGKILL while the cgroup's oom_kill rose */                               \
        D(KILLED, killed)       /* SIGKILL or SIGTERM from outside */                                        \
        D(TIMED_OUT, timed_out) /* by the daemon: sample_timeout */                                          \
        D(EXPELLED, expelled)   /* by the daemon: it broke the protocol */

enum pool_death {
#define D(NAME, name) POOL_DEATH_##NAME,
        POOL_DEATHS(D)
#undef D
        POOL_DEATH_KINDS,
};

enum {
        /* Chunks a worker may hold at once, while they are short (POOL_SHORT_CHUNK_NS): a round trip through
         * the daemon takes some 30 us and shall not be felt. Long ones come singly, so that a dead worker has
         * little to give back. */
        POOL_CHUNKS_MAX = 4,
        POOL_HANGING_LEAST = 3, /* two samples may hang by themselves */
};

#define POOL_CHUNK_NS       (10 * 1000 * 1000) /* what a chunk should take: DESIGN, A batch's life */
#define POOL_GROW_NS        (20 * 1000 * 1000) /* a worker's start takes a millisecond or two; the loop waits */
#define POOL_SHORT_CHUNK_NS (1 * 1000 * 1000)
#define POOL_KILL_MS        1000 /* from SIGTERM to SIGKILL */
#define POOL_KILL_AGAIN_MS  600  /* and on: all of it below the 2 s that a stop may take */
#define POOL_WATCH_MS       100  /* between two looks at the workers */
#define POOL_MARGIN_MS      20 /* a look may be late, and a killed worker is replaced in some milliseconds */
#define POOL_RECALL_NS      (100 * 1000 * 1000) /* at one sample, then the chunks behind it are recalled */
#define POOL_STUCK_NS       UINT64_C(2000000000) /* a killed process that takes longer to end waits for storage */
#define POOL_LEAST_SHARE_NS (100 * 1000)         /* a slot is not cut finer: three times a round trip */

/* What a worker was at when it was last looked at, and for how long it has been, as far as the daemon saw. */
struct pool_look {
        uint64_t sample;   /* or WORKER_PAGE_IDLE */
        uint64_t since_ns; /* when it began; at no sample: when it was last known to begin anything */
        uint64_t begun;    /* the chunk */
        uint64_t observed_ns;
};

struct pool_worker {
        struct list link; /* in pool->workers */
        struct pool *pool;
        uint32_t number;
        enum pool_worker_state state;
        int socket;
        struct worker_page *page; /* `recalled` is written here, all else by the worker */
        struct process process;
        uv_poll_t poll;
        uint32_t open_handles; /* of the two above; the struct is freed when none is left */
        bool exited;
        struct fault expelled; /* why the daemon has killed it; empty: it has not */
        uint64_t expelled_ns;
        bool timed_out; /* that was for a sample that took too long */
        bool stuck;     /* killed and not ended: its chunks were taken from it, its slot is quarantined */
        bool used;      /* was given a chunk */
        bool alone;     /* has a suspect, and gets nothing else meanwhile */
        struct pool_look look;
        /* In the order in which it got them: those it holds, then those that were recalled from it and are
         * somebody else's, until it has answered for them too. */
        struct message_chunk chunks[POOL_CHUNKS_MAX];
        uint32_t n_chunks;   /* held */
        uint32_t n_recalled; /* behind them */
        uint64_t given;      /* chunks so far: the ordinal of the last one */
        uint64_t asked;      /* `given` when chunks were last recalled; up to it any may come back */
        uint64_t started_ns;
        uint64_t busy_since_ns; /* when it became BUSY */
        uint64_t busy_ns;       /* time that it was BUSY, up to busy_since_ns */
        uint64_t rows;
        uint64_t cpu_ns; /* at the last look, see pool_worker_cpu_ns */
};

/* What the page of a dead worker says of a chunk it held. */
struct pool_remains {
        bool begun;
        uint32_t done;   /* rows that are whole */
        uint64_t sample; /* in work for the row after them, or WORKER_PAGE_IDLE */
};

/* What the owner hears. A callback may call any function of the pool except pool_deinit. */
struct pool_events {
        void (*scanning)(void *context, uint64_t files, uint32_t classes);
        /* `fd` is -1 or the index, the callee's from now on. */
        void (*scanned)(void *context, const struct message_index *index, int fd);
        void (*done)(void *context, const struct message_part *parts, uint32_t n_parts);
        /* These chunks of a living worker were not begun and never will be: they are to be given to others.
         * `resumed` follows, after the last of possibly many; this one calls no function of the pool. */
        void (*recalled)(void *context, const struct message_chunk *chunks, uint32_t n_chunks);
        /* There may be chunks that nobody has, or a worker that was without. */
        void (*resumed)(void *context);
        /* The worker could not make a sample, or (sample_given 0) cannot work at all. Its chunk, if any, is
         * lost. */
        void (*broken)(void *context, const struct pool_worker *worker, const struct message_broken *broken,
                       const struct message_chunk *lost);
        /* A sample that does not decode was replaced. */
        void (*replaced)(void *context, const struct pool_worker *worker,
                         const struct message_replaced *replaced);
        /* The worker has its index, and nothing to do yet. */
        void (*started)(void *context, struct pool_worker *worker);
        /* The process is gone without having been told to, with the zygote that forked it (process.orphaned),
         * or never came (process.error); worker->chunks are lost. */
        void (*died)(void *context, const struct pool_worker *worker);
        /* The process was killed and does not end: it may still write into the slot of its first chunk. Its
         * chunks are lost. When it is gone at last, `returned` follows instead of `died`. */
        void (*stuck)(void *context, const struct pool_worker *worker);
        void (*returned)(void *context, const struct pool_worker *worker);
        /* After pool_stop: the last process is gone. */
        void (*stopped)(void *context);
};

struct pool {
        uv_loop_t *loop;
        const char *program; /* path of pinfeed-worker */
        int nice;
        const struct pool_events *events;
        void *context;
        struct list workers;
        uint32_t n_workers; /* not ENDING */
        uint32_t n_busy;
        uint32_t wanted; /* workers that may stay, see pool_want */
        uint32_t next_number;
        bool stopping;
        bool for_good;  /* see pool_stop */
        uint32_t kills; /* rounds of SIGKILL since pool_stop */
        uv_timer_t kill_timer;
        bool kill_timer_open;
        uv_timer_t watch;
        uint64_t looked_ns; /* when it last went off */
        uint64_t hung_ns;   /* when most workers were last seen to be slow, see pool_storage_hangs */
        uint32_t watch_ms;  /* POOL_WATCH_MS and POOL_RECALL_NS, but in tests of races */
        uint64_t recall_ns;
        uint64_t sample_timeout_ns;
        double row_ns; /* moving average of the time a row takes a worker; 0: not measured yet */
        uint64_t chunks_recalled;
        uint64_t deaths[POOL_DEATH_KINDS];
        uint64_t oom_kills; /* of the cgroup, at the last look; see pool_judge_death */
        uint64_t cpu_ns_of_dead;
        uint64_t busy_ns;      /* of all workers that ever were, but for the stretch that each is in now */
        struct zygote *zygote; /* it forks the workers; NULL: they are spawned from `program` */
        const struct interpreter *interpreter; /* which runs them, in place of `program`; NULL: none does */
        struct stage_times stages_of_dead;
};

void pool_init(struct pool *pool, uv_loop_t *loop, const char *program, int nice, double sample_timeout,
               const struct pool_events *events, void *context);
/* All workers must be gone (stopped was called, or none was ever started). */
void pool_deinit(struct pool *pool);

/* Starts workers until `wanted` are there, or for POOL_GROW_NS: then it wants to be called again, a turn
 * later; or until the zygote has as many to fork as it may (pool_may_start: false): then, when it has
 * answered. Each is set up with `setup` (its worker number is filled in) and the ring. 0, or a negative errno
 * with the reason; those started before it stay. */
int pool_grow(struct pool *pool, uint32_t wanted, struct message_setup *setup, int ring_fd,
              struct fault *fault);
bool pool_may_start(const struct pool *pool);

/* Tells one STARTING worker to scan, unless one scans already: another scan could find something else. False
 * when there is none. */
bool pool_scan(struct pool *pool);

/* Gives the index (`fd` -1: none) to every worker that waits for it: they become IDLE. */
void pool_set_index(struct pool *pool, const struct message_index *index, int fd);

/* So many workers shall stay: those beyond end, at once if they hold nothing, the others with the chunks that
 * they hold. pool_trim ends those that have come so far; it is to be called before work is given away. Who
 * ends so has not died. */
void pool_want(struct pool *pool, uint32_t wanted);
void pool_trim(struct pool *pool);

/* A worker that may take a chunk now: the one that holds fewest; unless `may_begin`, of those that hold any.
 * NULL when there is none. */
struct pool_worker *pool_free_worker(struct pool *pool, bool may_begin);

/* A worker that never had a chunk, for a suspect; when all have, and none is on its way, one that is idle. */
struct pool_worker *pool_fresh_worker(struct pool *pool);

/* Rows of a chunk of about POOL_CHUNK_NS; 1 while nothing was measured. */
uint32_t pool_chunk_rows(const struct pool *pool);

/* Rows that so many of its workers together make in `ns`; 0 while nothing was measured. */
uint64_t pool_rows_in(const struct pool *pool, double workers, uint64_t ns);

/* Among how many workers the rows of a slot that somebody waits for are shared: all, unless the shares would
 * be shorter than POOL_LEAST_SHARE_NS. */
uint32_t pool_shares(const struct pool *pool, uint64_t slot_rows);

void pool_assign(struct pool_worker *worker, const struct message_chunk *chunk);

/* Ends all workers: SIGTERM now, SIGKILL a second later. `stopped` comes when they are gone, at once if there
 * is none. `for_good`: a process that does not end even then (dead storage) is left to the kernel, for the
 * daemon shall end. */
void pool_stop(struct pool *pool, bool for_good);

/* More than half of the workers, and at least POOL_HANGING_LEAST, have or just had half of sample_timeout
 * behind them, at different samples: that is the storage, and no sample's fault. */
bool pool_storage_hangs(const struct pool *pool);

/* What the death of a worker that has exited was, counted. */
enum pool_death pool_judge_death(struct pool *pool, const struct pool_worker *worker);
/* Whether it can be the doing of the sample that was in work. */
bool pool_death_may_be_the_sample(enum pool_death death);
struct pool_remains pool_look_at_remains(const struct pool_worker *worker, const struct message_chunk *chunk);
const char *pool_death_name(enum pool_death death);
uint64_t pool_deaths(const struct pool *pool);

uint32_t pool_busy(const struct pool *pool);
uint64_t pool_busy_ns(const struct pool *pool, uint64_t now); /* of all together; only grows */
uint64_t pool_cpu_ns(const struct pool *pool);                /* of living and dead workers */
uint64_t pool_worker_cpu_ns(struct pool_worker *worker);
uint64_t pool_worker_busy_ns(const struct pool_worker *worker, uint64_t now);
void pool_stages(const struct pool *pool, struct stage_times *times); /* of living and dead workers */
void pool_worker_stages(const struct pool_worker *worker, struct stage_times *times);
const char *pool_worker_state_name(enum pool_worker_state state);

/* For pool.c only (pool-worker.c has them): one worker's process. */
int pool_worker_start(struct pool *pool, const struct message_setup *setup, int ring_fd, struct fault *fault);
void pool_worker_send(struct pool_worker *worker, const struct message *message, int fd);
void pool_worker_end(struct pool_worker *worker, int signal);
void pool_worker_abandon(struct pool_worker *worker);

/* pool-watch.c: samples that take too long, processes that do not end. */
void pool_watch_start(struct pool *pool);

/* pool-recall.c: takes back all chunks that the worker has not begun, and gives `recalled`, but not
 * `resumed`. False: there was none, or the worker was quicker. */
bool pool_recall(struct pool_worker *worker);
/* The ordinal of the first chunk that the worker has not answered for. */
uint64_t pool_first_ordinal(const struct pool_worker *worker);

/* For workers to come, and for those that there are as far as may be: nobody but root takes niceness back. */
void pool_set_limits(struct pool *pool, int nice, double sample_timeout);

/* pool-pace.c: how often workers are looked at, and how soon chunks are recalled. */
void pool_set_pace(struct pool *pool);
