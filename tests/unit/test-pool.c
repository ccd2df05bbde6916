/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The pool and one worker: what stands on its page, and what is recalled from it.
 *
 * A worker here is this very program, started again by the pool: it does what its script says. The race
 * between both sides of a recall is run without processes too, half a million times: a thread with the
 * worker's own code for its side, this one with the daemon's. */

#include "tests/support/run.h"
#include "tests/unit/pool-stage.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

#define SCRIPT "PINFEED_TEST_SCRIPT"

enum {
        ROUNDS = 500000,
};

/* This program, which plays the worker, too. By its path: valgrind runs nothing called /proc/self/exe. */
static const char *own_path(void) {
        static char path[PATH_MAX];

        ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
        return path;
}

/* A worker that acts, with chunks for slots 0, 1 and 2, and the last two of them recalled where it hangs. */
static void begin(struct stage *stage, const char *script) {
        struct message_index index = {.samples = 100};
        struct pool_worker *worker;

        setenv(SCRIPT, script, 1);
        worker = stage_start_worker(stage, own_path());
        pool_set_index(&stage->pool, &index, -1);
        for (uint32_t slot = 0; slot < 3; slot++)
                stage_give(worker, slot);
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

        stage_start_worker(&stage, "/bin/false"); /* which never writes it */
        WAIT(&stage, stage.died == 1);
        ck_assert_uint_eq(stage.page.sample, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(stage.page.chunk_slot, WORKER_PAGE_IDLE);
        ck_assert_uint_eq(stage.page.begun, 0);
        ck_assert_uint_eq(stage.page.recalled, 0);
        stage_end(&stage);
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
        stage_end(&stage);
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
        stage_end(&stage);
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
        stage_give(stage.worker, 3);
        WAIT(&stage, stage.done == 2);
        ck_assert_uint_eq(stage.died, 0);
        stage_end(&stage);
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
        stage_end(&stage);
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
        stage_end(&stage);
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
        stage_end(&stage);
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
                stage_give(stage.worker, 3);
        }
        WAIT(&stage, stage.died == 1);
        ck_assert_str_eq(stage.expelled.text, wrong[_i].text);
        stage_end(&stage);
}
END_TEST

START_TEST(what_is_alone_stays) {
        struct stage stage;

        begin(&stage, "");
        stage.worker->alone = true;
        ck_assert(!pool_recall(stage.worker));
        ck_assert_uint_eq(atomic_load(&stage.worker->page->recalled), 0);
        stage_end(&stage);
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
        stage_end(&stage);
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
                        stage_give(&worker, i);
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
                actor_play(getenv(SCRIPT));
        return run_suite(pool_suite());
}
