/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A ring of the smallest size that admits some jobs, with everything against them: batches of other sizes
 * than the slots, two streams, a job that is stopped, one that takes what it can get and gives nothing back.
 *
 * How small that is the daemon says itself: from a ring of two slots on, each refusal names the size that
 * would have done for the jobs there are, and the next try has it. In the ring that takes all of them nobody
 * is lent anything, and the jobs that read on do so out of their minimums alone. */

#include "tests/support/run.h"
#include "tests/system/jobs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum {
        PROGRESS = 10000, /* batches of each job that reads on */
        READERS = 3,
        STOPPED = READERS,
        HOLDER,
        JOBS,
        HELD = 2,         /* which is never more than a minimum, so that nobody has to wait for its attach */
        HOLDER_HELD = 64, /* it would take the whole ring */
        HOLDS_MS = 500,   /* for which nothing more comes: it has all it can get */
};

/* Slots have 8 rows; a job needs 2 of them when its batches have as many, and more when they do not. */
static const struct {
        uint32_t batch_size;
        uint64_t seed;
} places[JOBS] = {{8, 0}, {5, 0}, {12, 1}, [STOPPED] = {8, 0}, [HOLDER] = {5, 0}};

/* Lines of the configuration that must change nothing here. */
static const char *const extras[] = {"", "    warm: 2\n"};

static struct harness *start(unsigned slots, const char *extra) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 64}\n"
                             "    batch_size: %d\n"
                             "    slots: %u\n"
                             "    lookahead: 1\n"
                             "    workers: 2\n"
                             "%s",
                             SAMPLES, BATCH, slots, extra);
        harness_start(h);
        return h;
}

static struct pinfeed_attach attach_of(const struct harness *h, int place) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", place == HOLDER ? HOLDER_HELD : HELD);

        attach.batch_size = places[place].batch_size;
        attach.seed = places[place].seed;
        attach.seed_given = true;
        return attach;
}

/* ---- the smallest ring ---- */

/* Attaches one job after the other: 0 if a ring of so many slots takes all of them, else the size that the
 * refusal asks for. */
static unsigned try_size(unsigned slots, const char *extra) {
        struct harness *h = start(slots, extra);
        struct pinfeed_job *jobs[JOBS] = {};
        unsigned wanted = 0;

        for (int i = 0; i < JOBS && wanted == 0; i++) {
                struct pinfeed_attach attach = attach_of(h, i);
                int r = pinfeed_open(&jobs[i], &attach);
                const char *at = strstr(pinfeed_error(jobs[i]), "at least ");

                if (r == 0)
                        continue;
                ck_assert_msg(r == -ENOSPC && at, "job %d: %d, %s", i, r, pinfeed_error(jobs[i]));
                wanted = (unsigned)atoi(at + strlen("at least "));
                ck_assert_uint_gt(wanted, slots);
        }
        for (int i = 0; i < JOBS; i++)
                pinfeed_close(jobs[i]);
        jobs_finish(h);
        return wanted;
}

static unsigned find_smallest(const char *extra) {
        unsigned slots = 2, wanted;

        while ((wanted = try_size(slots, extra)) > 0)
                slots = wanted;
        ck_assert_uint_gt(try_size(slots - 1, extra), 0);
        return slots;
}

/* ---- the jobs ---- */

static struct child start_child(struct harness *h, int place) {
        struct pinfeed_attach attach = attach_of(h, place);
        struct child child = {.shared = new_shared()};
        struct pinfeed_batch *batch;
        struct reader reader;

        child.pid = fork();
        ck_assert_int_ge(child.pid, 0);
        if (child.pid > 0)
                return child;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        reader_open_with(&reader, &attach);
        if (place == HOLDER) {
                while (pinfeed_next_timeout(reader.job, &batch, HOLDS_MS) == 1)
                        note_batch(child.shared);
                atomic_store(&child.shared->held, 1);
                live_on();
        }
        read_on(&reader, child.shared);
        reader_close(&reader);
        _exit(0);
}

static void *read_many(void *context) {
        reader_read(context, PROGRESS);
        return NULL;
}

/* All at once, each in a thread. */
static void read_on_beside_each_other(struct reader readers[READERS]) {
        pthread_t threads[READERS];

        for (int i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, read_many, &readers[i]), 0);
        for (int i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

static void expect_full(struct harness *h, unsigned slots) {
        struct pinfeed_attach attach = attach_of(h, 0);
        char text[TEXT], numbers[64];

        reader_expect_refusal(&attach, -ENOSPC, text, sizeof(text));
        printf("# one job more: %s\n", text);
        snprintf(numbers, sizeof(numbers), "already need %u of %u", slots, slots);
        harness_expect_words(text, "needs 2 slots");
        harness_expect_words(text, numbers);
        snprintf(numbers, sizeof(numbers), "at least %u slots", slots + 2);
        harness_expect_words(text, numbers);
}

START_TEST(test_smallest_ring) {
        unsigned slots = find_smallest(extras[_i]);
        struct harness *h = start(slots, extras[_i]);
        struct reader readers[READERS];
        struct child stopped, holder;
        uint64_t had, begun;

        for (int i = 0; i < READERS; i++) {
                struct pinfeed_attach attach = attach_of(h, i);

                reader_open_with(&readers[i], &attach);
        }
        stopped = start_child(h, STOPPED);
        harness_wait(h, "the job that will be stopped", has_read, &stopped, SOON_MS);
        holder = start_child(h, HOLDER); /* as the last one: who came after it would wait for what it has */
        harness_wait(h, "the job that holds all it can get", holds_all, &holder, SOON_MS);
        ck_assert_int_eq(kill(stopped.pid, SIGSTOP), 0);
        had = atomic_load(&stopped.shared->batches);
        begun = clock_ns();
        read_on_beside_each_other(readers);
        printf("# %u slots: %d jobs had %d batches each in %.1f s, one held %llu all the time\n", slots,
               READERS, PROGRESS, (double)(clock_ns() - begun) / NS_PER_S,
               (unsigned long long)atomic_load(&holder.shared->batches));
        expect_full(h, slots);
        ck_assert_uint_ge(atomic_load(&holder.shared->batches), 1);

        ck_assert_int_eq(kill(stopped.pid, SIGCONT), 0); /* it has its place still */
        atomic_store(&stopped.shared->batches, 0);
        harness_wait(h, "the job that was stopped", has_read, &stopped, SOON_MS);
        printf("# the stopped one had read %llu\n", (unsigned long long)had);
        jobs_end_child(&stopped);
        jobs_kill_child(&holder);
        jobs_bury(&holder);
        for (int i = 0; i < READERS; i++)
                reader_close(&readers[i]);
        jobs_finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("tight-ring");
        TCase *tcase = tcase_create("tight-ring");

        tcase_set_timeout(tcase, 120 * harness_slowdown());
        tcase_add_loop_test(tcase, test_smallest_ring, 0, sizeof(extras) / sizeof(extras[0]));
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
