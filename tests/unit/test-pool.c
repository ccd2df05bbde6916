/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The pool and one worker: what stands on its page, and what is recalled from it.
 *
 * A worker here is this very program, started again by the pool: it does what its script says. The race
 * between both sides of a recall is run without processes too, half a million times: a thread with the
 * worker's own code for its side, this one with the daemon's. */

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "daemon/pool.h"
#include "daemon/worker/progress.h"
#include "proto/worker-page.h"
#include "tests/support/run.h"

#include <check.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SCRIPT "PINFEED_TEST_SCRIPT"

enum {
        ROUNDS = 500000,
        SOON_MS = 10000,
        TICK_MS = 5,
};

/* ---- the worker ---- */

struct actor {
        struct worker_page *page;
        struct message message;
        struct message_chunk chunks[POOL_CHUNKS_MAX];
        uint32_t n;
};

static void act_receive(struct actor *actor) {
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

static void act_done(struct actor *actor, uint32_t i) {
        const struct message_chunk *chunk = &actor->chunks[i];

        actor->message.type = MESSAGE_DONE;
        actor->message.done.n_part = 1;
        actor->message.done.part[0] = (struct message_part){
                .slot = chunk->slot, .first = chunk->first, .rows = chunk->rows, .done_ns = clock_ns()};
        message_send(3, &actor->message, NULL, 0);
}

static void act_returned(struct actor *actor, uint32_t i) {
        const struct message_chunk *chunk = &actor->chunks[i];

        actor->message.type = MESSAGE_RETURNED;
        actor->message.returned = (struct message_returned){chunk->slot, chunk->first, chunk->rows};
        message_send(3, &actor->message, NULL, 0);
}

/* Begins its first chunk and hangs there until the others are recalled. */
static void act_hang(struct actor *actor) {
        while (actor->n < 3)
                act_receive(actor);
        progress_may_begin(actor->page, 1);
        while (atomic_load(&actor->page->recalled) == 0)
                usleep(1000);
}

/* One letter each: h hang as above; d, r answer the next chunk with DONE, RETURNED; g get another one; k die.
 */
static _Noreturn void play(const char *script) {
        struct actor actor = {};
        uint32_t next = 0;

        for (; *script; script++) {
                if (*script == 'h')
                        act_hang(&actor);
                else if (*script == 'd')
                        act_done(&actor, next++);
                else if (*script == 'r')
                        act_returned(&actor, next++);
                else if (*script == 'g')
                        act_receive(&actor);
                else if (*script == 'k')
                        raise(SIGKILL);
        }
        for (;;)
                act_receive(&actor);
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
};

static void on_done(void *context, const struct message_part *parts, uint32_t n_parts) {
        struct stage *stage = context;

        stage->done += n_parts;
}

static void on_recalled(void *context, const struct message_chunk *chunks, uint32_t n_chunks) {
        struct stage *stage = context;

        for (uint32_t i = 0; i < n_chunks; i++) {
                ck_assert_msg(!stage->slots[chunks[i].slot], "slot %u comes back twice", chunks[i].slot);
                stage->slots[chunks[i].slot] = true;
        }
        stage->recalled += n_chunks;
}

static void on_resumed(void *context) {
        struct stage *stage = context;

        stage->resumed++;
}

static void on_died(void *context, const struct pool_worker *worker) {
        struct stage *stage = context;

        stage->died++;
        stage->lost = worker->n_chunks;
        stage->expelled = worker->expelled;
        memcpy(&stage->page, worker->page, sizeof(stage->page));
        stage->worker = NULL;
}

static void on_started(void *context, struct pool_worker *worker) {
}

static void on_stopped(void *context) {
        struct stage *stage = context;

        stage->stopped = true;
}

static const struct pool_events events = {.done = on_done,
                                          .recalled = on_recalled,
                                          .resumed = on_resumed,
                                          .died = on_died,
                                          .started = on_started,
                                          .stopped = on_stopped};

/* This program, which plays the worker, too. By its path: valgrind runs nothing called /proc/self/exe. */
static const char *own_path(void) {
        static char path[PATH_MAX];

        ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
        return path;
}

/* So that the loop comes back now and then. */
static void on_tick(uv_timer_t *timer) {
}

static struct pool_worker *start_worker(struct stage *stage, const char *program) {
        struct message_setup setup = {.slots = 8, .slot_rows = 8, .recipe = "{}"};
        int ring = shm_create_memfd("ring");
        struct fault fault;

        *stage = (struct stage){};
        ck_assert_int_eq(uv_loop_init(&stage->loop), 0);
        uv_timer_init(&stage->loop, &stage->tick);
        uv_timer_start(&stage->tick, on_tick, TICK_MS, TICK_MS);
        pool_init(&stage->pool, &stage->loop, program, 0, 60, &events, stage);
        ck_assert_msg(pool_worker_start(&stage->pool, &setup, ring, &fault) == 0, "%s", fault.text);
        close(ring);
        stage->worker = container_of(stage->pool.workers.next, struct pool_worker, link);
        return stage->worker;
}

#define WAIT(stage, condition)                                                                               \
        for (uint64_t deadline = clock_ns() + SOON_MS * NS_PER_MS; !(condition);) {                          \
                ck_assert_msg(clock_ns() < deadline, "never: %s", #condition);                               \
                uv_run(&(stage)->loop, UV_RUN_ONCE);                                                         \
        }

static void end(struct stage *stage) {
        pool_stop(&stage->pool, true);
        WAIT(stage, stage->stopped);
        pool_deinit(&stage->pool);
        uv_close((uv_handle_t *)&stage->tick, NULL);
        uv_run(&stage->loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&stage->loop), 0);
}

static void give(struct pool_worker *worker, uint32_t slot) {
        pool_assign(worker, &(struct message_chunk){.slot = slot, .rows = 8});
}

/* A worker that acts, with chunks for slots 0, 1 and 2, and the last two of them recalled where it hangs. */
static void begin(struct stage *stage, const char *script) {
        struct message_index index = {.samples = 100};
        struct pool_worker *worker;

        setenv(SCRIPT, script, 1);
        worker = start_worker(stage, own_path());
        pool_set_index(&stage->pool, &index, -1);
        for (uint32_t slot = 0; slot < 3; slot++)
                give(worker, slot);
        if (*script != 'h')
                return;
        WAIT(stage, atomic_load(&worker->page->begun) == 1);
        ck_assert(pool_recall(worker));
        ck_assert_uint_eq(stage->recalled, 2);
        ck_assert(!stage->slots[0] && stage->slots[1] && stage->slots[2]);
        ck_assert_uint_eq(worker->n_chunks, 1);
        ck_assert_ptr_null(pool_free_worker(&stage->pool, true));
        ck_assert(!pool_recall(worker)); /* there is no more */
}

/* ---- the page ---- */

START_TEST(a_fresh_page_says_idle) {
        struct stage stage;

        start_worker(&stage, "/bin/false"); /* which never writes it */
        WAIT(&stage, stage.died == 1);
        ck_assert_uint_eq(stage.page.sample, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(stage.page.chunk_slot, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(stage.page.begun, 0);
        ck_assert_uint_eq(stage.page.recalled, 0);
        end(&stage);
}
END_TEST

/* ---- how many ---- */

START_TEST(one_too_many_gets_no_more_and_keeps_what_it_has) {
        struct stage stage;

        begin(&stage, "ggg");
        stage.pool.row_ns = 1000; /* chunks are short: a worker may hold several */
        ck_assert_ptr_eq(pool_free_worker(&stage.pool, true), stage.worker);
        ck_assert_ptr_eq(pool_free_worker(&stage.pool, false), stage.worker);
        pool_want(&stage.pool, 0);
        ck_assert_int_eq(stage.worker->state, POOL_WORKER_BUSY);
        ck_assert_ptr_null(pool_free_worker(&stage.pool, true));
        pool_want(&stage.pool, 1);
        ck_assert_ptr_eq(pool_free_worker(&stage.pool, true), stage.worker);
        ck_assert_uint_eq(pool_busy(&stage.pool), 1);
        end(&stage);
}
END_TEST

START_TEST(one_too_many_ends_when_it_is_done) {
        struct stage stage;

        begin(&stage, "gggddd");
        pool_want(&stage.pool, 0);
        WAIT(&stage, stage.done == 3);
        ck_assert_ptr_null(pool_free_worker(&stage.pool, false)); /* idle ones only begin */
        ck_assert_uint_eq(pool_busy(&stage.pool), 0);
        pool_trim(&stage.pool);
        ck_assert_uint_eq(stage.pool.n_workers, 0);
        WAIT(&stage, list_is_empty(&stage.pool.workers));
        ck_assert_uint_eq(stage.died, 0);
        end(&stage);
}
END_TEST

/* ---- recall ---- */

START_TEST(recalled_chunks_are_answered_and_the_worker_goes_on) {
        struct stage stage;

        begin(&stage, "hdrrgd");
        WAIT(&stage, stage.worker->n_recalled == 0);
        ck_assert_uint_eq(stage.done, 1);
        ck_assert_uint_eq(stage.recalled, 2);
        ck_assert_uint_gt(stage.resumed, 0);
        ck_assert_uint_eq(atomic_load(&stage.worker->page->recalled), 0);
        ck_assert_int_eq(stage.worker->state, POOL_WORKER_IDLE);
        ck_assert_ptr_eq(pool_free_worker(&stage.pool, true), stage.worker);
        give(stage.worker, 3);
        WAIT(&stage, stage.done == 2);
        ck_assert_uint_eq(stage.died, 0);
        end(&stage);
}
END_TEST

/* The recall was given up, and the worker had seen it. */
START_TEST(what_is_declined_comes_back_when_it_is_answered) {
        struct stage stage;

        begin(&stage, "gggdrd");
        stage.worker->asked = stage.worker->given;
        WAIT(&stage, stage.done == 2);
        ck_assert_uint_eq(stage.recalled, 1);
        ck_assert(stage.slots[1]);
        ck_assert_uint_eq(stage.resumed, 1);
        ck_assert_uint_eq(stage.pool.chunks_recalled, 1);
        ck_assert_int_eq(stage.worker->state, POOL_WORKER_IDLE);
        ck_assert_ptr_eq(pool_free_worker(&stage.pool, true), stage.worker);
        end(&stage);
}
END_TEST

START_TEST(between_its_answers_the_worker_gets_nothing) {
        struct stage stage;

        begin(&stage, "hdr");
        WAIT(&stage, stage.worker->n_recalled == 1);
        ck_assert_uint_eq(stage.worker->n_chunks, 0);
        ck_assert_int_eq(stage.worker->state, POOL_WORKER_BUSY);
        ck_assert_ptr_null(pool_free_worker(&stage.pool, true));
        ck_assert_ptr_null(pool_fresh_worker(&stage.pool));
        ck_assert_uint_eq(atomic_load(&stage.worker->page->recalled), 2);
        end(&stage);
}
END_TEST

START_TEST(the_dead_lose_what_they_hold_only) {
        static const struct {
                const char *script;
                uint32_t lost;
        } deaths[] = {{"hk", 1}, {"hdk", 0}, {"hdrk", 0}, {"hdrrk", 0}};
        struct stage stage;

        begin(&stage, deaths[_i].script);
        WAIT(&stage, stage.died == 1);
        ck_assert_uint_eq(stage.lost, deaths[_i].lost);
        ck_assert_uint_eq(stage.recalled, 2);
        ck_assert_str_eq(stage.expelled.text, "");
        end(&stage);
}
END_TEST

/* It fills what is not its own any more, gives back what nobody wants back, or answers out of turn. */
START_TEST(wrong_answers_expel) {
        static const struct {
                const char *script, *text;
        } wrong[] = {{"hdd", "it finished a chunk that it was not given"},
                     {"hdrd", "it finished a chunk that it was not given"},
                     {"gggr", "it returned a chunk that was not recalled"},
                     {"hdrrgr", "it returned a chunk that was not recalled"}};
        struct stage stage;

        begin(&stage, wrong[_i].script);
        if (strchr(wrong[_i].script + 1, 'g') && *wrong[_i].script == 'h') {
                WAIT(&stage, stage.worker->n_recalled == 0);
                give(stage.worker, 3);
        }
        WAIT(&stage, stage.died == 1);
        ck_assert_str_eq(stage.expelled.text, wrong[_i].text);
        end(&stage);
}
END_TEST

START_TEST(what_is_alone_stays) {
        struct stage stage;

        begin(&stage, "");
        stage.worker->alone = true;
        ck_assert(!pool_recall(stage.worker));
        ck_assert_uint_eq(atomic_load(&stage.worker->page->recalled), 0);
        end(&stage);
}
END_TEST

/* The page is the worker's to write, and it may write anything. */
START_TEST(nonsense_on_the_page_recalls_nothing_wrong) {
        static const uint64_t begun[] = {UINT64_MAX, UINT64_MAX - 1, 1000, 3, 0};
        struct stage stage;

        begin(&stage, "");
        WAIT(&stage, stage.worker->n_chunks == 3);
        atomic_store(&stage.worker->page->begun, begun[_i]);
        ck_assert_int_eq(pool_recall(stage.worker), begun[_i] == 0);
        ck_assert_uint_eq(stage.recalled, begun[_i] == 0 ? 3 : 0);
        ck_assert_uint_eq(stage.worker->n_chunks + stage.worker->n_recalled, 3);
        end(&stage);
}
END_TEST

/* ---- the race ---- */

/* One round: POOL_CHUNKS_MAX chunks, which the thread goes through while this one recalls. */
struct race {
        struct worker_page page;
        _Atomic uint64_t round, answered;
        bool begun[POOL_CHUNKS_MAX];
        bool recalled[POOL_CHUNKS_MAX];
        uint64_t ordinal; /* before the round */
};

static void spin(unsigned n) {
        for (volatile unsigned i = 0; i < n; i++)
                ;
}

static void await(_Atomic uint64_t *word, uint64_t value) {
        while (atomic_load_explicit(word, memory_order_acquire) < value)
                sched_yield();
}

static void *race_worker(void *argument) {
        struct race *race = argument;
        uint64_t ordinal = 0;

        for (uint64_t round = 1; round <= ROUNDS; round++) {
                await(&race->round, round);
                for (uint32_t i = 0; i < POOL_CHUNKS_MAX; i++) {
                        race->begun[i] = progress_may_begin(&race->page, ++ordinal);
                        spin((unsigned)(round * 7 + i * 3) % 16);
                }
                atomic_store_explicit(&race->answered, round, memory_order_release);
        }
        return NULL;
}

static void on_race_recalled(void *context, const struct message_chunk *chunks, uint32_t n_chunks) {
        struct race *race = context;

        for (uint32_t i = 0; i < n_chunks; i++)
                race->recalled[chunks[i].slot] = true;
}

START_TEST(no_chunk_is_begun_and_recalled) {
        static const struct pool_events race_events = {.recalled = on_race_recalled};
        static struct race race;
        struct pool pool = {.events = &race_events, .context = &race};
        struct pool_worker worker = {.pool = &pool, .socket = -1, .page = &race.page};
        uint64_t recalls = 0, given_up = 0, declined = 0;
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, race_worker, &race), 0);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
                memset(race.recalled, 0, sizeof(race.recalled));
                for (uint32_t i = 0; i < POOL_CHUNKS_MAX; i++)
                        give(&worker, i);
                atomic_store_explicit(&race.round, round, memory_order_release);
                spin((unsigned)(round * 13) % 128);
                if (pool_recall(&worker))
                        recalls++;
                else
                        given_up += worker.asked == worker.given;
                await(&race.answered, round);
                for (uint32_t i = 0; i < POOL_CHUNKS_MAX; i++) {
                        if (race.recalled[i] == race.begun[i] && race.begun[i])
                                ck_abort_msg("round %llu: chunk %u is begun and recalled",
                                             (unsigned long long)round, i);
                        declined += !race.recalled[i] && !race.begun[i];
                }
                worker.n_chunks = worker.n_recalled = 0; /* all are answered */
                atomic_store(&race.page.recalled, 0);
        }
        pthread_join(thread, NULL);
        printf("# %llu recalls, %llu given up, %llu chunks declined in these\n", (unsigned long long)recalls,
               (unsigned long long)given_up, (unsigned long long)declined);
        ck_assert_uint_gt(recalls, 0);
}
END_TEST

static Suite *pool_suite(void) {
        Suite *suite = suite_create("pool");
        TCase *tcase = tcase_create("pool");

        tcase_add_test(tcase, a_fresh_page_says_idle);
        tcase_add_test(tcase, one_too_many_gets_no_more_and_keeps_what_it_has);
        tcase_add_test(tcase, one_too_many_ends_when_it_is_done);
        tcase_add_test(tcase, recalled_chunks_are_answered_and_the_worker_goes_on);
        tcase_add_test(tcase, what_is_declined_comes_back_when_it_is_answered);
        tcase_add_test(tcase, between_its_answers_the_worker_gets_nothing);
        tcase_add_loop_test(tcase, the_dead_lose_what_they_hold_only, 0, 4);
        tcase_add_loop_test(tcase, wrong_answers_expel, 0, 4);
        tcase_add_test(tcase, what_is_alone_stays);
        tcase_add_loop_test(tcase, nonsense_on_the_page_recalls_nothing_wrong, 0, 5);
        tcase_add_test(tcase, no_chunk_is_begun_and_recalled);
        tcase_set_timeout(tcase, 60);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(int argc, char **argv) {
        if (argc > 1 && !strcmp(argv[1], "--daemon"))
                play(getenv(SCRIPT));
        return run_suite(pool_suite());
}
