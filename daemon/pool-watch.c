/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Watching workers: a few looks a second at the pages they write.
 *
 * A sample that takes longer than sample_timeout costs its worker the life. Time alone proves nothing: the
 * machine may have slept, or everything may have been stopped and continued, and then each sample in work
 * looks hours old. So a look that finds a sample too slow only remembers it; the worker is killed when a
 * second look, POOL_TWO_LOOKS_NS later, finds the same sample still in work. (A worker that has rows and
 * begins none counts like one at a sample: it may have been stopped, or hang where the slot is mapped.) Who
 * was stopped has gone on by then.
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
        if (worker->signal == 0)
                return POOL_DEATH_EXITED;
        if (worker->signal == SIGKILL)
                return oom_has_killed(pool) ? POOL_DEATH_OUT_OF_MEMORY : POOL_DEATH_KILLED;
        return worker->signal == SIGTERM ? POOL_DEATH_KILLED : POOL_DEATH_CRASHED;
}

enum pool_death pool_judge_death(struct pool *pool, const struct pool_worker *worker) {
        enum pool_death death = judge(pool, worker);

        pool->deaths[death]++;
        return death;
}

static bool is_slow(const struct pool_worker *worker) {
        return worker->timed_out || worker->overdue_sample != 0;
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

bool pool_storage_hangs(const struct pool *pool) {
        uint32_t slow = 0, all = 0;

        list_for_each (link, &pool->workers) {
                const struct pool_worker *worker = container_of(link, struct pool_worker, link);

                slow += is_slow(worker) && !is_repeated(pool, worker);
                all++;
        }
        return slow >= POOL_HANGING_LEAST && slow * 2 > all;
}

static void kill_slow(struct pool_worker *worker, uint64_t sample, uint64_t since_ns) {
        double took = (double)since_ns / NS_PER_S,
               allowed = (double)worker->pool->sample_timeout_ns / NS_PER_S;

        if (sample == WORKER_PAGE_IDLE)
                fault_set(&worker->expelled, -ETIME,
                          "it began none of its samples for longer than sample_timeout (%.1f s, allowed are "
                          "%.1f)",
                          took, allowed);
        else
                fault_set(&worker->expelled, -ETIME,
                          "sample %" PRIu64 " took longer than sample_timeout (%.1f s, allowed are %.1f)",
                          sample, took, allowed);
        worker->expelled_ns = clock_ns();
        worker->timed_out = true;
        uv_process_kill(&worker->process, SIGKILL);
}

/* A worker that has chunks and is at no sample is about to begin one: that has the same limit, from when it
 * was given them. */
static void look_at_sample(struct pool_worker *worker, uint64_t now) {
        uint64_t sample = atomic_load_explicit(&worker->page->sample, memory_order_acquire);
        uint64_t started = atomic_load_explicit(&worker->page->started_ns, memory_order_acquire);

        if (sample == WORKER_PAGE_IDLE && started < worker->busy_since_ns)
                started = worker->busy_since_ns;
        if (now < started || now - started <= worker->pool->sample_timeout_ns) {
                worker->overdue_sample = 0;
        } else if (worker->overdue_sample != started) {
                worker->overdue_sample = started;
                worker->overdue_seen_ns = now;
        } else if (now - worker->overdue_seen_ns >= POOL_TWO_LOOKS_NS) {
                kill_slow(worker, sample, now - started);
        }
}

static void look_at(struct pool_worker *worker, uint64_t now) {
        struct pool *pool = worker->pool;

        if (worker->exited || worker->state == POOL_WORKER_ENDING)
                return;
        if (worker->expelled_ns == 0) {
                if (worker->state == POOL_WORKER_BUSY)
                        look_at_sample(worker, now);
                return;
        }
        if (now - worker->expelled_ns < POOL_STUCK_NS)
                return;
        log_line(LOG_ERROR, "worker %u (pid %d) was killed %.1f s ago and has not ended: storage hangs?",
                 worker->number, worker->pid, (double)(now - worker->expelled_ns) / NS_PER_S);
        worker->stuck = true;
        pool_worker_end(worker, SIGKILL);
        pool->events->stuck(pool->context, worker);
}

static void on_watch(uv_timer_t *timer) {
        struct pool *pool = timer->data;
        uint64_t now = clock_ns();

        list_for_each_safe (link, &pool->workers)
                look_at(container_of(link, struct pool_worker, link), now);
}

void pool_watch_start(struct pool *pool) {
        pool->oom_kills = cgroup_oom_kills("");
        uv_timer_start(&pool->watch, on_watch, POOL_WATCH_MS, POOL_WATCH_MS);
}
