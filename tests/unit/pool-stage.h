#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pool on a loop of its own, and a worker that does what its script says. */

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "daemon/pool.h"
#include "daemon/worker/progress.h"
#include "proto/worker-page.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        STAGE_SOON_MS = 10000,
        STAGE_TICK_MS = 5,
};

/* ---- the worker ---- */

struct actor {
        struct worker_page *page;
        struct message message;
        struct message_chunk chunks[POOL_CHUNKS_MAX];
        uint32_t n;
};

static inline void actor_receive(struct actor *actor) {
        int fds[SEQPACKET_FDS_MAX];
        uint32_t had = actor->n;
        struct fault fault;
        size_t n_fds;

        while (actor->n == had) {
                int r = message_receive(3, &actor->message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_WORKER, &fault);

                if (r == MESSAGE_E_AGAIN)
                        usleep(1000);
                else if (r != 0)
                        _exit(0);
                else if (actor->message.type == MESSAGE_SETUP)
                        actor->page =
                                mmap(NULL, WORKER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
                else if (actor->message.type == MESSAGE_ASSIGN)
                        actor->chunks[actor->n++] = actor->message.assign.chunk[0];
        }
}

static inline void actor_done(struct actor *actor, uint32_t i) {
        const struct message_chunk *chunk = &actor->chunks[i];

        actor->message.type = MESSAGE_DONE;
        actor->message.done.n_part = 1;
        actor->message.done.part[0] = (struct message_part){
                .slot = chunk->slot, .first = chunk->first, .rows = chunk->rows, .done_ns = clock_ns()};
        message_send(3, &actor->message, NULL, 0);
}

static inline void actor_returned(struct actor *actor, uint32_t i) {
        const struct message_chunk *chunk = &actor->chunks[i];

        actor->message.type = MESSAGE_RETURNED;
        actor->message.returned = (struct message_returned){chunk->slot, chunk->first, chunk->rows};
        message_send(3, &actor->message, NULL, 0);
}

/* Begins its first chunk and hangs there until the others are recalled. */
static inline void actor_hang(struct actor *actor) {
        while (actor->n < 3)
                actor_receive(actor);
        progress_may_begin(actor->page, 1);
        while (atomic_load(&actor->page->recalled) == 0)
                usleep(1000);
}

/* One letter each: h hang as above; d, r answer the next chunk with DONE, RETURNED; g get another one; k die;
 * q exit with status 7. */
static inline _Noreturn void actor_play(const char *script) {
        struct actor actor = {};
        uint32_t next = 0;

        for (; *script; script++) {
                if (*script == 'h')
                        actor_hang(&actor);
                else if (*script == 'd')
                        actor_done(&actor, next++);
                else if (*script == 'r')
                        actor_returned(&actor, next++);
                else if (*script == 'g')
                        actor_receive(&actor);
                else if (*script == 'k')
                        raise(SIGKILL);
                else if (*script == 'q')
                        _exit(7);
        }
        for (;;)
                actor_receive(&actor);
}

/* ---- the daemon ---- */

struct stage {
        uv_loop_t loop;
        uv_timer_t tick;
        struct pool pool;
        struct pool_worker *worker;
        uint32_t done, recalled, resumed, died;
        uint32_t lost; /* chunks that the dead worker held */
        bool slots[8]; /* whose chunks were recalled */
        struct fault expelled;
        struct worker_page page; /* as the dead worker left it */
        bool stopped;
        struct process process; /* of the worker that died */
};

static inline void stage_on_done(void *context, const struct message_part *parts, uint32_t n_parts) {
        struct stage *stage = context;

        stage->done += n_parts;
}

static inline void stage_on_recalled(void *context, const struct message_chunk *chunks, uint32_t n_chunks) {
        struct stage *stage = context;

        for (uint32_t i = 0; i < n_chunks; i++) {
                ck_assert_msg(!stage->slots[chunks[i].slot], "slot %u comes back twice", chunks[i].slot);
                stage->slots[chunks[i].slot] = true;
        }
        stage->recalled += n_chunks;
}

static inline void stage_on_resumed(void *context) {
        struct stage *stage = context;

        stage->resumed++;
}

static inline void stage_on_died(void *context, const struct pool_worker *worker) {
        struct stage *stage = context;

        stage->died++;
        stage->lost = worker->n_chunks;
        stage->expelled = worker->expelled;
        stage->process = worker->process;
        memcpy(&stage->page, worker->page, sizeof(stage->page));
        stage->worker = NULL;
}

static inline void stage_on_started(void *context, struct pool_worker *worker) {
}

static inline void stage_on_stopped(void *context) {
        struct stage *stage = context;

        stage->stopped = true;
}

static const struct pool_events stage_events = {.done = stage_on_done,
                                                .recalled = stage_on_recalled,
                                                .resumed = stage_on_resumed,
                                                .died = stage_on_died,
                                                .started = stage_on_started,
                                                .stopped = stage_on_stopped};

/* So that the loop comes back now and then. */
static inline void stage_on_tick(uv_timer_t *timer) {
}

static inline void stage_init(struct stage *stage, const char *program) {
        *stage = (struct stage){};
        ck_assert_int_eq(uv_loop_init(&stage->loop), 0);
        uv_timer_init(&stage->loop, &stage->tick);
        uv_timer_start(&stage->tick, stage_on_tick, STAGE_TICK_MS, STAGE_TICK_MS);
        pool_init(&stage->pool, &stage->loop, program, 0, 60, &stage_events, stage);
}

static inline struct pool_worker *stage_start_one(struct stage *stage) {
        struct message_setup setup = {.slots = 8, .slot_rows = 8, .recipe = "{}"};
        int ring = shm_create_memfd("ring");
        struct fault fault;

        ck_assert_msg(pool_worker_start(&stage->pool, &setup, ring, &fault) == 0, "%s", fault.text);
        close(ring);
        stage->worker = container_of(stage->pool.workers.next, struct pool_worker, link);
        return stage->worker;
}

static inline struct pool_worker *stage_start_worker(struct stage *stage, const char *program) {
        stage_init(stage, program);
        return stage_start_one(stage);
}

#define WAIT(stage, condition)                                                                               \
        for (uint64_t deadline = clock_ns() + STAGE_SOON_MS * NS_PER_MS; !(condition);) {                    \
                ck_assert_msg(clock_ns() < deadline, "never: %s", #condition);                               \
                uv_run(&(stage)->loop, UV_RUN_ONCE);                                                         \
        }

static inline void stage_end(struct stage *stage) {
        pool_stop(&stage->pool, true);
        WAIT(stage, stage->stopped);
        pool_deinit(&stage->pool);
        uv_close((uv_handle_t *)&stage->tick, NULL);
        uv_run(&stage->loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&stage->loop), 0);
}

static inline void stage_give(struct pool_worker *worker, uint32_t slot) {
        pool_assign(worker, &(struct message_chunk){.slot = slot, .rows = 8});
}
