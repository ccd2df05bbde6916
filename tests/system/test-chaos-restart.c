/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon itself is killed at random moments, under load, again and again: also while it reserves its ring
 * and while jobs come back to it. Somebody starts it again: the test, as a service manager
 * does, with the same arguments; or, for a private one, whichever job finds it gone first. Every job goes on
 * at its place, and every batch of it is the right one (chaos.h).
 *
 * The service is given its configuration again (SIGHUP) now and then, and its workers are killed as well.
 *
 * Seconds long, as a test of every build; two minutes with $PINFEED_TEST_LONG. The random numbers come from
 * $PINFEED_TEST_SEED if that is set, and are printed. */

#include "tests/support/run.h"
#include "tests/system/chaos.h"
#include "tests/system/private.h"

#include <inttypes.h>

enum {
        SOON_MS = 20000,
        PAUSE_LEAST_MS = 5, /* between two misfortunes */
        PAUSE_MOST_MS = 400,
        SECONDS = 3,
        SECONDS_QUICK = 2,
        SECONDS_LONG = 120,
        RECONNECT_S = 60,
        PIDS = 64,
};

struct chaos {
        struct harness *h;
        struct pinfeed_attach attach;
        struct shared *shared;
        pid_t jobs[JOBS];
        uint64_t state; /* of the random numbers */
        uint64_t kills, reloads, worker_kills;
};

static uint64_t draw(struct chaos *chaos, uint64_t below) {
        chaos->state += UINT64_C(11400714819323198485);
        return ramp_check_scramble(chaos->state) % below;
}

static void pause_for_a_while(struct chaos *chaos) {
        usleep((useconds_t)(PAUSE_LEAST_MS + draw(chaos, PAUSE_MOST_MS - PAUSE_LEAST_MS)) * 1000);
}

static uint64_t seconds(void) {
        if (getenv("PINFEED_TEST_LONG"))
                return SECONDS_LONG;
        return harness_quick() ? SECONDS_QUICK : SECONDS;
}

static void begin(struct chaos *chaos, struct harness *h, const struct pinfeed_attach *attach) {
        const char *given = getenv("PINFEED_TEST_SEED");

        *chaos = (struct chaos){.h = h, .attach = *attach, .shared = share()};
        chaos->state = given ? strtoull(given, NULL, 10) : clock_ns() % 1000000;
        chaos->attach.reconnect_s = RECONNECT_S;
        printf("# PINFEED_TEST_SEED=%" PRIu64 "\n", chaos->state);
        fflush(stdout);
        for (int i = 0; i < STREAMS; i++)
                read_in_peace(&chaos->attach, &streams[i], true);
        for (int i = 0; i < JOBS; i++)
                chaos->jobs[i] = fork_job(&chaos->attach, i, chaos->shared);
}

static void expect_jobs_run(struct chaos *chaos) {
        int status;

        for (int i = 0; i < JOBS; i++)
                ck_assert_msg(waitpid(chaos->jobs[i], &status, WNOHANG) == 0,
                              "job %d (of stream %d) ended before it was told to: status %x", i, stream_of[i],
                              status);
}

/* Until the time is over, and the jobs must have got on by then. */
static void rage(struct chaos *chaos, void (*harm)(struct chaos *chaos)) {
        uint64_t began = clock_ns(), moved = began, rows = 0;

        while (clock_ns() - began < seconds() * NS_PER_S) {
                pause_for_a_while(chaos);
                harm(chaos);
                expect_jobs_run(chaos);
                if (atomic_load(&chaos->shared->rows) != rows) {
                        rows = atomic_load(&chaos->shared->rows);
                        moved = clock_ns();
                }
                ck_assert_msg(clock_ns() - moved < SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS,
                              "no job has read anything for %d s", SOON_MS / 1000);
        }
}

static void end(struct chaos *chaos) {
        atomic_store(&chaos->shared->stop, true);
        for (int i = 0; i < JOBS; i++)
                ck_assert_msg(harness_join(chaos->h, chaos->jobs[i], SOON_MS) == 0,
                              "job %d (of stream %d) failed", i, stream_of[i]);
        for (int i = 0; i < STREAMS; i++)
                read_in_peace(&chaos->attach, &streams[i], false);
        printf("# %" PRIu64 " daemons and %" PRIu64 " workers killed, %" PRIu64 " reloads, %" PRIu64
               " rows checked, %" PRIu64 " passes\n",
               chaos->kills, chaos->worker_kills, chaos->reloads, atomic_load(&chaos->shared->rows),
               atomic_load(&chaos->shared->passes));
        ck_assert_uint_gt(chaos->kills, 0);
        ck_assert_uint_gt(atomic_load(&chaos->shared->rows), 0);
        munmap(chaos->shared, sizeof(*chaos->shared));
}

static void harm_worker(struct chaos *chaos) {
        pid_t pids[PIDS];
        size_t n = harness_worker_pids(chaos->h, pids, PIDS);

        if (n > 0)
                chaos->worker_kills += kill(pids[draw(chaos, n)], SIGKILL) == 0;
}

/* The next one may be killed milliseconds later, while the first jobs come back to it. */
static void harm_service(struct chaos *chaos) {
        switch (draw(chaos, 6)) {
        case 0:
                chaos->reloads++;
                ck_assert_int_eq(kill(harness_daemon_pid(chaos->h), SIGHUP), 0);
                break;
        case 1:
                harm_worker(chaos);
                break;
        default:
                harness_kill(chaos->h);
                harness_start(chaos->h);
                chaos->kills++;
        }
}

START_TEST(test_service) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "", 2);
        struct chaos chaos;

        harness_set_environment(h, "PINFEED_STATE_DIR", harness_directory(h));
        harness_write_config(h, CONFIG, SAMPLES, BYTES, BATCH, SAMPLES, BATCH);
        harness_start(h);
        begin(&chaos, h, &attach);
        rage(&chaos, harm_service);
        end(&chaos);
        harness_wait(h, "no job", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* The number in the lock may be of one that has been killed before. */
static void harm_private(struct chaos *chaos) {
        pid_t pid = private_pid(chaos->h);

        if (pid <= 0 || !harness_alive(pid) || kill(pid, SIGKILL) < 0)
                return;
        chaos->kills++;
        private_wait_ended(pid, SOON_MS);
}

START_TEST(test_private) {
        struct harness *h = private_new();
        struct pinfeed_attach attach;
        char definition[2048];
        struct chaos chaos;

        snprintf(definition, sizeof(definition), CONFIG, SAMPLES, BYTES, BATCH, SAMPLES, BATCH);
        attach = private_attach(h, definition);
        attach.max_held_batches = 2;
        begin(&chaos, h, &attach);
        rage(&chaos, harm_private);
        end(&chaos);
        private_finish(h);
}
END_TEST

int main(void) {
        TCase *service = tcase_create("service"), *private = tcase_create("private");
        double limit = 60.0 * harness_slowdown() + (double)seconds();
        Suite *suite = suite_create("chaos: restarts");

        tcase_set_timeout(service, limit);
        tcase_set_timeout(private, limit);
        tcase_add_test(service, test_service);
        tcase_add_test(private, test_private);
        suite_add_tcase(suite, service);
        suite_add_tcase(suite, private);
        return run_suite(suite);
}
