/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The workers of one pipeline as a set: how many, which is free, how long a row takes them.
 *
 * The pool decides nothing about rows; it is handed chunks and says when they are done. The size of a chunk
 * follows from the measured time of a row: about 10 ms, long enough that the round trip through the daemon
 * (some 30 us) does not show, short enough that all workers finish a slot together. Until something was
 * measured a chunk is one row. Where even a whole slot takes less than POOL_SHORT_CHUNK_NS a worker may hold
 * several chunks, so that it never waits for the daemon; should it hang at one of them the others are taken
 * back (pool-recall.c), and until it has answered for these it gets nothing. */

#include "daemon/pool.h"

#include "base/clock.h"
#include "base/fault.h"
#include "daemon/log.h"
#include "daemon/stages.h"
#include "daemon/zygote.h"
#include "proto/worker-page.h"

#include <signal.h>
#include <sys/resource.h>
#include <time.h>

const char *pool_worker_state_name(enum pool_worker_state state) {
        static const char *const names[] = {
#define S(NAME, name) [POOL_WORKER_##NAME] = #name,
                POOL_WORKER_STATES(S)
#undef S
        };

        return names[state];
}

static struct pool_worker *worker_of(struct list *link) {
        return container_of(link, struct pool_worker, link);
}

void pool_init(struct pool *pool, uv_loop_t *loop, const char *program, int nice, double sample_timeout,
               const struct pool_events *events, void *context) {
        *pool = (struct pool){.loop = loop,
                              .program = program,
                              .nice = nice,
                              .events = events,
                              .context = context,
                              .wanted = UINT32_MAX};
        list_init(&pool->workers);
        uv_timer_init(loop, &pool->kill_timer);
        pool->kill_timer.data = pool;
        uv_unref((uv_handle_t *)&pool->kill_timer);
        pool->kill_timer_open = true;
        uv_timer_init(loop, &pool->watch);
        pool->watch.data = pool;
        uv_unref((uv_handle_t *)&pool->watch);
        pool->sample_timeout_ns = (uint64_t)(sample_timeout * NS_PER_S);
        pool_set_pace(pool);
}

void pool_set_limits(struct pool *pool, int nice, double sample_timeout) {
        bool is_other = nice != pool->nice;

        pool->nice = nice;
        pool->sample_timeout_ns = (uint64_t)(sample_timeout * NS_PER_S);
        list_for_each (link, &pool->workers) {
                if (is_other && worker_of(link)->process.pid > 0)
                        setpriority(PRIO_PROCESS, (id_t)worker_of(link)->process.pid, nice);
        }
}

void pool_deinit(struct pool *pool) {
        if (pool->kill_timer_open) {
                uv_close((uv_handle_t *)&pool->kill_timer, NULL);
                uv_close((uv_handle_t *)&pool->watch, NULL);
        }
        pool->kill_timer_open = false;
}

bool pool_may_start(const struct pool *pool) {
        return !pool->zygote || zygote_may_fork(pool->zygote);
}

int pool_grow(struct pool *pool, uint32_t wanted, struct message_setup *setup, int ring_fd,
              struct fault *fault) {
        uint64_t start = clock_ns();

        while (pool->n_workers < wanted && pool_may_start(pool) && clock_ns() - start < POOL_GROW_NS) {
                int r = pool_worker_start(pool, setup, ring_fd, fault);

                if (r < 0)
                        return r;
        }
        return 0;
}

bool pool_scan(struct pool *pool) {
        struct message message = {.type = MESSAGE_SCAN};

        list_for_each (link, &pool->workers) {
                if (worker_of(link)->state == POOL_WORKER_SCANNING)
                        return true;
        }
        list_for_each (link, &pool->workers) {
                struct pool_worker *worker = worker_of(link);

                if (worker->state != POOL_WORKER_STARTING)
                        continue;
                worker->state = POOL_WORKER_SCANNING;
                pool_worker_send(worker, &message, -1);
                return true;
        }
        return false;
}

void pool_set_index(struct pool *pool, const struct message_index *index, int fd) {
        struct message message = {.type = MESSAGE_INDEX, .index = *index};

        list_for_each (link, &pool->workers) {
                struct pool_worker *worker = worker_of(link);

                if (worker->state != POOL_WORKER_STARTING)
                        continue;
                worker->state = POOL_WORKER_IDLE;
                pool_worker_send(worker, &message, fd);
                pool->events->started(pool->context, worker);
        }
}

void pool_want(struct pool *pool, uint32_t wanted) {
        pool->wanted = wanted;
        pool_trim(pool);
}

/* With SIGKILL: there is nothing to finish, and one that was stopped hears nothing else. One that scans is
 * needed. */
void pool_trim(struct pool *pool) {
        list_for_each (link, &pool->workers) {
                struct pool_worker *worker = worker_of(link);

                if (pool->n_workers <= pool->wanted)
                        return;
                if (worker->state == POOL_WORKER_IDLE || worker->state == POOL_WORKER_STARTING)
                        pool_worker_end(worker, SIGKILL);
        }
}

/* Chunks a worker may hold while a row takes what it takes now. While there are too many workers nobody gets
 * more than one: whoever has none first may go. */
static uint32_t chunks_bound(const struct pool *pool, const struct pool_worker *worker) {
        if (worker->n_recalled > 0)
                return 0;
        if (worker->n_chunks == 0 || worker->alone || worker->look.observed_ns >= POOL_RECALL_NS ||
            pool->n_workers > pool->wanted)
                return 1;
        if (pool->row_ns <= 0 || pool->row_ns * worker->chunks[0].rows >= POOL_SHORT_CHUNK_NS)
                return 1;
        return POOL_CHUNKS_MAX;
}

/* A fork is not counted on before its zygote has said that it is there. */
static bool can_work(const struct pool_worker *worker) {
        return worker->socket >= 0 && process_is_there(&worker->process) && !worker->process.orphaned;
}

struct pool_worker *pool_free_worker(struct pool *pool, bool may_begin) {
        struct pool_worker *best = NULL;

        list_for_each (link, &pool->workers) {
                struct pool_worker *worker = worker_of(link);

                if (worker->state != POOL_WORKER_BUSY && !(may_begin && worker->state == POOL_WORKER_IDLE))
                        continue;
                if (!can_work(worker) || worker->n_chunks >= chunks_bound(pool, worker))
                        continue;
                if (!best || worker->n_chunks < best->n_chunks)
                        best = worker;
        }
        return best;
}

struct pool_worker *pool_fresh_worker(struct pool *pool) {
        struct pool_worker *idle = NULL;

        list_for_each (link, &pool->workers) {
                struct pool_worker *worker = worker_of(link);

                if (worker->state == POOL_WORKER_STARTING || worker->state == POOL_WORKER_SCANNING)
                        return NULL; /* worth waiting for */
                if (worker->state != POOL_WORKER_IDLE || !can_work(worker))
                        continue;
                if (!worker->used)
                        return worker;
                idle = worker;
        }
        return idle;
}

uint32_t pool_chunk_rows(const struct pool *pool) {
        double rows = pool->row_ns > 0 ? POOL_CHUNK_NS / pool->row_ns : 1;

        return rows < 1 ? 1 : rows > MESSAGE_ROWS_MAX ? MESSAGE_ROWS_MAX : (uint32_t)rows;
}

uint64_t pool_rows_in(const struct pool *pool, double workers, uint64_t ns) {
        return pool->row_ns > 0 ? (uint64_t)((double)ns / pool->row_ns * workers) : 0;
}

uint32_t pool_shares(const struct pool *pool, uint64_t slot_rows) {
        double shares = pool->row_ns * (double)slot_rows / POOL_LEAST_SHARE_NS;

        if (pool->row_ns <= 0 || shares >= pool->n_workers)
                return pool->n_workers;
        return shares < 1 ? 1 : (uint32_t)shares;
}

void pool_assign(struct pool_worker *worker, const struct message_chunk *chunk) {
        struct message message;

        if (worker->n_chunks == 0) {
                worker->state = POOL_WORKER_BUSY;
                worker->pool->n_busy++;
                worker->busy_since_ns = clock_ns();
        }
        worker->used = true;
        worker->given++;
        worker->chunks[worker->n_chunks++] = *chunk;
        message.type = MESSAGE_ASSIGN;
        message.assign.n_chunk = 1;
        message.assign.chunk[0] = *chunk;
        pool_worker_send(worker, &message, -1);
}

static void on_kill_timer(uv_timer_t *timer) {
        struct pool *pool = timer->data;

        list_for_each_safe (link, &pool->workers) {
                pool_worker_end(worker_of(link), SIGKILL);
                if (pool->for_good && pool->kills > 0)
                        pool_worker_abandon(worker_of(link));
        }
        pool->kills++;
}

void pool_stop(struct pool *pool, bool for_good) {
        if (list_is_empty(&pool->workers)) {
                pool->events->stopped(pool->context);
                return;
        }
        pool->stopping = true;
        pool->for_good = for_good;
        pool->kills = 0;
        list_for_each (link, &pool->workers)
                pool_worker_end(worker_of(link), SIGTERM);
        uv_timer_start(&pool->kill_timer, on_kill_timer, POOL_KILL_MS, POOL_KILL_AGAIN_MS);
}

uint32_t pool_busy(const struct pool *pool) {
        return pool->n_busy;
}

uint64_t pool_worker_busy_ns(const struct pool_worker *worker, uint64_t now) {
        bool busy = worker->state == POOL_WORKER_BUSY && now > worker->busy_since_ns;

        return worker->busy_ns + (busy ? now - worker->busy_since_ns : 0);
}

uint64_t pool_busy_ns(const struct pool *pool, uint64_t now) {
        uint64_t sum = pool->busy_ns;

        list_for_each (link, &pool->workers) {
                const struct pool_worker *worker = worker_of(link);

                if (worker->state == POOL_WORKER_BUSY && now > worker->busy_since_ns)
                        sum += now - worker->busy_since_ns;
        }
        return sum;
}

/* The kernel's clock of the process: no file is opened, and it counts the chunk in work too. What a worker
 * says itself lags behind that, so the highest that was told is kept: the number shall not fall when the
 * process ends. */
uint64_t pool_worker_cpu_ns(struct pool_worker *worker) {
        uint64_t told = atomic_load_explicit(&worker->page->cpu_ns, memory_order_relaxed);
        struct timespec time;
        clockid_t clock;

        if (process_is_there(&worker->process) && clock_getcpuclockid(worker->process.pid, &clock) == 0 &&
            clock_gettime(clock, &time) == 0)
                told = (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
        if (told > worker->cpu_ns)
                worker->cpu_ns = told;
        return worker->cpu_ns;
}

uint64_t pool_cpu_ns(const struct pool *pool) {
        uint64_t sum = pool->cpu_ns_of_dead;

        list_for_each (link, &pool->workers) {
                if (!worker_of(link)->exited)
                        sum += pool_worker_cpu_ns(worker_of(link));
        }
        return sum;
}

void pool_worker_stages(const struct pool_worker *worker, struct stage_times *times) {
        *times = (struct stage_times){0};
        stages_add_page(times, worker->page);
}

void pool_stages(const struct pool *pool, struct stage_times *times) {
        *times = pool->stages_of_dead;
        list_for_each (link, &pool->workers) {
                if (!worker_of(link)->exited)
                        stages_add_page(times, worker_of(link)->page);
        }
}
