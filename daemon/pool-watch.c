/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Watching workers: ten looks a second at the pages they write.
 *
 * A worker that is at one sample for long holds up the chunks behind it: after POOL_RECALL_NS they are taken
 * back (pool-recall.c). One that reaches sample_timeout is killed. A worker that has rows and begins none
 * counts like one at a sample: it may have been stopped, or hang where the slot is mapped.
 *
 * Clocks prove nothing: the machine may have slept, or everything may have been stopped and continued, and
 * then each sample in work looks hours old. What counts is observed time. From one look to the next a worker
 * that is still at the same thing has spent the time between them there, but no more than two regular
 * intervals of it are counted: if the looks were further apart it was us who did not run, and very likely the
 * worker did not either. So a pause of everything costs it two intervals, however long it was, and by the
 * next looks whoever was stopped has gone on.
 *
 * The limit is an upper bound: a worker is killed at the last look that comes before it, with a margin for
 * what follows. It takes three workers that hang at a sample to condemn it, and the job that waits for it
 * shall wait for three times sample_timeout at most.
 *
 * Where most workers hang, each at a sample of its own, it is the storage and no sample is condemned for it.
 *
 * A killed process that does not end waits in the kernel, for storage as a rule, and may yet write into the
 * slot it was given when the storage comes back. After POOL_STUCK_NS it is told of as stuck, and let go; its
 * exit, whenever it comes, gives the slot back.
 *
 * A SIGKILL says nothing about who sent it. The kernel's OOM killer leaves a trace: oom_kill of the cgroup
 * rises. It is read when somebody died so, and at the first look. */

#include "daemon/pool.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "daemon/log.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>

const char *pool_death_name(enum pool_death death) {
        static const char *const names[] = {
#define D(NAME, name) [POOL_DEATH_##NAME] = #name,
                POOL_DEATHS(D)
#undef D
        };

        return names[death];
}

uint64_t pool_deaths(const struct pool *pool) {
        uint64_t sum = 0;

        for (int i = 0; i < POOL_DEATH_KINDS; i++)
                sum += pool->deaths[i];
        return sum;
}

static bool oom_has_killed(struct pool *pool) {
        uint64_t before = pool->oom_kills;

        pool->oom_kills = cgroup_oom_kills("");
        return pool->oom_kills > before;
}

static enum pool_death judge(struct pool *pool, const struct pool_worker *worker) {
        if (worker->timed_out)
                return POOL_DEATH_TIMED_OUT;
        if (*worker->expelled.text)
                return POOL_DEATH_EXPELLED;
        if (worker->process.signal == 0)
                return POOL_DEATH_EXITED;
        if (worker->process.signal == SIGKILL)
                return oom_has_killed(pool) ? POOL_DEATH_OUT_OF_MEMORY : POOL_DEATH_KILLED;
        return worker->process.signal == SIGTERM ? POOL_DEATH_KILLED : POOL_DEATH_CRASHED;
}

enum pool_death pool_judge_death(struct pool *pool, const struct pool_worker *worker) {
        enum pool_death death = judge(pool, worker);

        pool->deaths[death]++;
        return death;
}

bool pool_death_may_be_the_sample(enum pool_death death) {
        return death != POOL_DEATH_KILLED && death != POOL_DEATH_EXPELLED;
}

struct pool_remains pool_look_at_remains(const struct pool_worker *worker,
                                         const struct message_chunk *chunk) {
        const struct worker_page *page = worker->page;
        uint64_t done = atomic_load_explicit(&page->chunk_done, memory_order_acquire);
        struct pool_remains remains = {.sample = WORKER_PAGE_IDLE};

        if (atomic_load_explicit(&page->chunk_slot, memory_order_acquire) != chunk->slot ||
            atomic_load_explicit(&page->chunk_first, memory_order_acquire) != chunk->first)
                return remains;
        remains.begun = true;
        remains.done = done < chunk->rows ? (uint32_t)done : chunk->rows;
        remains.sample = atomic_load_explicit(&page->sample, memory_order_acquire);
        return remains;
}

/* Those that began to hang together do not reach the limit together: a row's time may lie between them. */
static bool is_slow(const struct pool_worker *worker) {
        return worker->timed_out || (worker->state == POOL_WORKER_BUSY &&
                                     worker->look.observed_ns >= worker->pool->sample_timeout_ns / 2);
}

static uint64_t sample_of(const struct pool_worker *worker) {
        return atomic_load_explicit(&worker->page->sample, memory_order_acquire);
}

/* Whether an earlier worker of the list is at the same sample: it may be wanted for two epochs at once. */
static bool is_repeated(const struct pool *pool, const struct pool_worker *worker) {
        list_for_each (link, &pool->workers) {
                const struct pool_worker *other = container_of(link, struct pool_worker, link);

                if (other == worker)
                        return false;
                if (is_slow(other) && sample_of(other) == sample_of(worker))
                        return true;
        }
        return false;
}

static bool most_are_slow(const struct pool *pool) {
        uint32_t slow = 0, all = 0;

        list_for_each (link, &pool->workers) {
                const struct pool_worker *worker = container_of(link, struct pool_worker, link);

                slow += is_slow(worker) && !is_repeated(pool, worker);
                all++;
        }
        return slow >= POOL_HANGING_LEAST && slow * 2 > all;
}

/* The first of them to die leave the others looking like few, so what was seen holds for as long as those
 * need who were slow then. */
bool pool_storage_hangs(const struct pool *pool) {
        return pool->hung_ns > 0 && clock_ns() - pool->hung_ns <= pool->sample_timeout_ns / 2;
}

static void kill_slow(struct pool_worker *worker) {
        double allowed = (double)worker->pool->sample_timeout_ns / NS_PER_S;

        if (worker->look.sample == WORKER_PAGE_IDLE)
                fault_set(&worker->expelled, -ETIME,
                          "it began none of its samples within sample_timeout (%.1f s)", allowed);
        else
                fault_set(&worker->expelled, -ETIME, "sample %" PRIu64 " reached sample_timeout (%.1f s)",
                          worker->look.sample, allowed);
        worker->expelled_ns = clock_ns();
        worker->timed_out = true;
        process_kill(&worker->process, SIGKILL);
}

/* What it is at now. A worker at no sample is about to begin one since it did its last, or since it was given
 * anything. */
static struct pool_look look_at_page(const struct pool_worker *worker) {
        const struct worker_page *page = worker->page;
        struct pool_look look = {
                .sample = sample_of(worker),
                .since_ns = atomic_load_explicit(&page->started_ns, memory_order_acquire),
                .begun = atomic_load_explicit(&page->begun, memory_order_acquire),
        };

        if (look.sample == WORKER_PAGE_IDLE && look.since_ns < worker->busy_since_ns)
                look.since_ns = worker->busy_since_ns;
        return look;
}

/* `passed` is what counts of the time since the last look. */
static void observe(struct pool_worker *worker, uint64_t now, uint64_t passed) {
        struct pool_look look = look_at_page(worker), *last = &worker->look;

        if (look.sample == last->sample && look.since_ns == last->since_ns && look.begun == last->begun) {
                last->observed_ns += passed;
                return;
        }
        look.observed_ns = now > look.since_ns ? now - look.since_ns : 0;
        if (look.observed_ns > passed)
                look.observed_ns = passed;
        *last = look;
}

/* True: chunks were recalled from it. */
static bool look_at_work(struct pool_worker *worker, uint64_t now, uint64_t passed) {
        struct pool *pool = worker->pool;

        observe(worker, now, passed);
        if (worker->look.observed_ns + (pool->watch_ms + POOL_MARGIN_MS) * NS_PER_MS >
            pool->sample_timeout_ns) {
                kill_slow(worker);
                return false;
        }
        return worker->look.observed_ns >= pool->recall_ns && pool_recall(worker);
}

static void look_at_killed(struct pool_worker *worker, uint64_t now) {
        struct pool *pool = worker->pool;

        if (now - worker->expelled_ns < POOL_STUCK_NS)
                return;
        log_about(&(struct log_subject){.worker = &worker->number}, LOG_ERROR,
                  "worker %u (pid %d) was killed %.1f s ago and has not ended: storage hangs?",
                  worker->number, worker->process.pid, (double)(now - worker->expelled_ns) / NS_PER_S);
        worker->stuck = true;
        pool_worker_end(worker, SIGKILL);
        pool->events->stuck(pool->context, worker);
}

/* All are looked at before anything that was recalled is given away: not to one that turns out to hang too.
 */
static void on_watch(uv_timer_t *timer) {
        struct pool *pool = timer->data;
        uint64_t now = clock_ns(), passed = now - pool->looked_ns;
        bool recalled = false;

        if (passed > 2 * pool->watch_ms * NS_PER_MS)
                passed = 2 * pool->watch_ms * NS_PER_MS;
        pool->looked_ns = now;
        list_for_each_safe (link, &pool->workers) {
                struct pool_worker *worker = container_of(link, struct pool_worker, link);

                if (worker->exited || worker->state == POOL_WORKER_ENDING)
                        continue;
                if (worker->expelled_ns > 0)
                        look_at_killed(worker, now);
                else if (worker->state == POOL_WORKER_BUSY)
                        recalled |= look_at_work(worker, now, passed);
        }
        if (most_are_slow(pool))
                pool->hung_ns = now;
        if (recalled)
                pool->events->resumed(pool->context);
}

void pool_watch_start(struct pool *pool) {
        pool->oom_kills = cgroup_oom_kills("");
        pool->looked_ns = clock_ns();
        uv_timer_start(&pool->watch, on_watch, pool->watch_ms, pool->watch_ms);
}
