/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Chaos: workers and jobs are killed and stopped at random, under load, and nobody else notices.
 *
 * The jobs compare every batch with what came in peace (chaos.h); what differs, and a job that ends before it
 * is told to, fails the test. So jobs that are killed half way were right up to there too. A killed job is
 * replaced by a new one that starts at the front.
 *
 * It is done twice: the second time with a daemon that all the time takes chunks back which its workers have
 * not begun.
 *
 * Seconds long, as a test of every build; $PINFEED_TEST_MINUTES makes it as long as one likes and reports on
 * standard error. The random numbers come from $PINFEED_TEST_SEED if that is set, and are printed. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/chaos.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        PIDS = 64,
        SOON_MS = 15000,
        PAUSE_LEAST_MS = 20, /* between two misfortunes */
        PAUSE_MOST_MS = 250,
        STOP_MOST_MS = 300,
        REPORT_MS = 10000,
        SECONDS = 5,
        SECONDS_QUICK = 2,
        LOOKS = 50,
};

enum {
        WORKERS = 5,
};

struct chaos {
        struct harness *h;
        struct pinfeed_attach attach; /* of every job */
        struct shared *shared;
        pid_t jobs[JOBS];
        uint64_t born_ns[JOBS];
        uint64_t state; /* of the random numbers */
        uint64_t worker_kills, worker_stops, job_kills, job_stops;
        pid_t stopped; /* at most one at a time */
        uint64_t continue_ns;
};

static void start_job(struct chaos *chaos, int number) {
        chaos->jobs[number] = fork_job(&chaos->attach, number, chaos->shared);
        chaos->born_ns[number] = clock_ns();
}

/* ---- misfortunes ---- */

static uint64_t draw(struct chaos *chaos, uint64_t below) {
        chaos->state += UINT64_C(11400714819323198485);
        return ramp_check_scramble(chaos->state) % below;
}

/* The status member of all pipelines together. */
static double sum(json_t *status, const char *member) {
        json_t *pipeline;
        double all = 0;
        size_t i;

        json_array_foreach(json_object_get(status, "pipelines"), i, pipeline) all +=
                harness_number(pipeline, member);
        return all;
}

static double sum_now(struct harness *h, const char *member) {
        json_t *status = harness_status(h);
        double all = sum(status, member);

        json_decref(status);
        return all;
}

/* The daemon waits for a child's exec, so what is stopped before that stops the daemon. */
static bool is_worker(pid_t pid) {
        char path[64], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        file = fopen(path, "re");
        if (!file)
                return false;
        if (!fgets(name, sizeof(name), file))
                name[0] = 0;
        fclose(file);
        return !strncmp(name, "pinfeed-worker", 14);
}

static void go_on(struct chaos *chaos) {
        if (chaos->stopped)
                kill(chaos->stopped, SIGCONT);
        chaos->stopped = 0;
}

/* At most one process is stopped at a time: then everybody else must go on. */
static bool stop_for_a_while(struct chaos *chaos, pid_t pid) {
        if (chaos->stopped || kill(pid, SIGSTOP) < 0)
                return false;
        chaos->stopped = pid;
        chaos->continue_ns = clock_ns() + (1 + draw(chaos, STOP_MOST_MS)) * NS_PER_MS;
        return true;
}

static void harm_worker(struct chaos *chaos, bool fatal) {
        pid_t pids[PIDS];
        size_t n = harness_worker_pids(chaos->h, pids, PIDS);
        pid_t pid = n > 0 ? pids[draw(chaos, n)] : 0;

        if (!pid || !harness_alive(pid) || !is_worker(pid))
                return;
        if (!fatal) {
                chaos->worker_stops += stop_for_a_while(chaos, pid);
                return;
        }
        if (pid == chaos->stopped)
                chaos->stopped = 0;
        chaos->worker_kills += kill(pid, SIGKILL) == 0;
}

static void harm_job(struct chaos *chaos, bool fatal) {
        int number = (int)draw(chaos, JOBS), status;
        pid_t pid = chaos->jobs[number];

        if (!fatal) {
                chaos->job_stops += stop_for_a_while(chaos, pid);
                return;
        }
        if (pid == chaos->stopped)
                chaos->stopped = 0;
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFSIGNALED(status), "job %d (of stream %d) had ended by itself with %d", number,
                      stream_of[number], WEXITSTATUS(status));
        chaos->job_kills++;
        start_job(chaos, number);
}

static void expect_jobs_run(struct chaos *chaos) {
        int status;

        for (int i = 0; i < JOBS; i++)
                ck_assert_msg(waitpid(chaos->jobs[i], &status, WNOHANG) == 0,
                              "job %d (of stream %d) ended before it was told to: status %x", i, stream_of[i],
                              status);
}

static void do_harm(struct chaos *chaos) {
        if (chaos->stopped && clock_ns() >= chaos->continue_ns)
                go_on(chaos);
        switch (draw(chaos, 6)) {
        case 0:
        case 1:
                harm_worker(chaos, true);
                break;
        case 2:
                harm_worker(chaos, false);
                break;
        case 3:
        case 4:
                harm_job(chaos, true);
                break;
        case 5:
                harm_job(chaos, false);
                break;
        }
}

static void report(const struct chaos *chaos, uint64_t begin_ns) {
        fprintf(stderr,
                "# chaos: %3llu s, %llu workers and %llu jobs killed, %llu and %llu stopped, %llu rows "
                "checked, %llu passes\n",
                (unsigned long long)((clock_ns() - begin_ns) / NS_PER_S),
                (unsigned long long)chaos->worker_kills, (unsigned long long)chaos->job_kills,
                (unsigned long long)chaos->worker_stops, (unsigned long long)chaos->job_stops,
                (unsigned long long)atomic_load(&chaos->shared->rows),
                (unsigned long long)atomic_load(&chaos->shared->passes));
}

static void rage(struct chaos *chaos, uint64_t seconds, bool loud) {
        uint64_t begin = clock_ns(), reported = begin, moved = begin, rows = 0;

        while (clock_ns() - begin < seconds * NS_PER_S) {
                usleep((useconds_t)(PAUSE_LEAST_MS + draw(chaos, PAUSE_MOST_MS - PAUSE_LEAST_MS)) * 1000);
                do_harm(chaos);
                expect_jobs_run(chaos);
                if (atomic_load(&chaos->shared->rows) != rows) {
                        rows = atomic_load(&chaos->shared->rows);
                        moved = clock_ns();
                }
                ck_assert_msg(clock_ns() - moved < SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS,
                              "no job has read anything for %d s", SOON_MS / 1000);
                if (loud && clock_ns() - reported >= REPORT_MS * NS_PER_MS) {
                        report(chaos, begin);
                        reported = clock_ns();
                }
        }
        go_on(chaos);
        if (loud)
                report(chaos, begin);
}

/* ---- afterwards ---- */

static bool is_quiet(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool quiet = json_array_size(json_object_get(status, "jobs")) == 0 &&
                     sum(status, "workers_alive") == WORKERS && sum(status, "workers_busy") == 0;

        json_decref(status);
        return quiet;
}

static void expect_whole_slots(json_t *status) {
        json_t *slot;
        size_t i;

        json_array_foreach(json_object_get(status, "slots"), i, slot) {
                const char *state = json_string_value(json_object_get(slot, "state"));

                ck_assert_msg(!strcmp(state, "free") || !strcmp(state, "ready"), "slot %zu is %s", i, state);
                ck_assert_double_eq(harness_number(slot, "leases"), 0);
        }
}

static void expect_sane(struct chaos *chaos) {
        json_t *status = harness_status(chaos->h), *pipeline;
        size_t i;

        expect_whole_slots(status);
        json_array_foreach(json_object_get(status, "pipelines"), i, pipeline) {
                ck_assert_str_eq(json_string_value(json_object_get(pipeline, "state")), "ready");
                ck_assert_uint_eq(json_array_size(json_object_get(pipeline, "condemned")), 0);
                ck_assert_uint_eq(json_array_size(json_object_get(pipeline, "bad")), 0);
                ck_assert_double_eq(harness_number(pipeline, "bad_samples"), 0);
                ck_assert_double_eq(harness_number(pipeline, "slots_leased"), 0);
                ck_assert_double_eq(harness_number(pipeline, "slots_quarantined"), 0);
                /* Each slot that became ready was filled whole, and is counted once. */
                ck_assert_double_ge(harness_number(pipeline, "slots_filled"),
                                    harness_number(pipeline, "slots_undelivered"));
                ck_assert_double_ge(harness_number(pipeline, "rows_prepared"),
                                    BATCH * harness_number(pipeline, "slots_filled"));
                ck_assert_double_eq(harness_number(pipeline, "rows_delivered"),
                                    BATCH * harness_number(pipeline, "batches_delivered"));
        }
        ck_assert_double_eq(sum(status, "worker_deaths"), (double)chaos->worker_kills);
        ck_assert_double_eq(sum(status, "deaths/killed"), (double)chaos->worker_kills);
        ck_assert_double_ge(sum(status, "rows_delivered"), (double)atomic_load(&chaos->shared->rows));
        json_decref(status);
}

static void end_jobs(struct chaos *chaos) {
        atomic_store(&chaos->shared->stop, true);
        for (int i = 0; i < JOBS; i++)
                ck_assert_msg(harness_join(chaos->h, chaos->jobs[i], SOON_MS) == 0,
                              "job %d (of stream %d) failed", i, stream_of[i]);
}

struct footprint {
        size_t descriptors, mappings;
};

static struct footprint footprint_of(struct harness *h) {
        struct footprint least = {SIZE_MAX, SIZE_MAX};
        pid_t pid = harness_daemon_pid(h);

        harness_wait(h, "quiet", is_quiet, NULL, SOON_MS);
        /* The connection that asked for the last status closes in a turn of the loop of its own. */
        for (int i = 0; i < LOOKS; i++) {
                size_t descriptors = harness_descriptors(pid), mappings = harness_mappings(pid);

                least.descriptors = descriptors < least.descriptors ? descriptors : least.descriptors;
                least.mappings = mappings < least.mappings ? mappings : least.mappings;
                usleep(HARNESS_POLL_US);
        }
        return least;
}

static void seed_chaos(struct chaos *chaos) {
        const char *given = getenv("PINFEED_TEST_SEED");

        chaos->state = given ? strtoull(given, NULL, 10) : clock_ns() % 1000000;
        printf("# PINFEED_TEST_SEED=%llu\n", (unsigned long long)chaos->state);
        fflush(stdout);
}

static uint64_t minutes(void) {
        const char *given = getenv("PINFEED_TEST_MINUTES");

        return given ? strtoull(given, NULL, 10) : 0;
}

static void start(struct chaos *chaos, bool recalls) {
        chaos->shared = share();
        seed_chaos(chaos);
        chaos->h = harness_new();
        harness_set_environment(chaos->h, "PINFEED_STATE_DIR", harness_directory(chaos->h));
        if (recalls)
                harness_set_environment(chaos->h, "PINFEED_TEST_RECALL", "1");
        harness_write_config(chaos->h, CONFIG, SAMPLES, BYTES, BATCH, SAMPLES, BATCH);
        harness_start(chaos->h);
        chaos->attach = reader_attach(chaos->h, "", 2);
}

START_TEST(test_chaos) {
        uint64_t seconds = minutes() > 0 ? minutes() * 60 : harness_quick() ? SECONDS_QUICK : SECONDS;
        struct chaos chaos = {};
        struct footprint before, after;
        bool recalls = _i == 1;

        start(&chaos, recalls);
        for (int i = 0; i < STREAMS; i++)
                read_in_peace(&chaos.attach, &streams[i], true);
        before = footprint_of(chaos.h);
        for (int i = 0; i < JOBS; i++)
                start_job(&chaos, i);
        rage(&chaos, seconds, minutes() > 0);
        end_jobs(&chaos);
        after = footprint_of(chaos.h);
        expect_sane(&chaos);
        for (int i = 0; i < STREAMS; i++)
                read_in_peace(&chaos.attach, &streams[i], false);
        ck_assert_uint_eq(after.descriptors, before.descriptors);
        if (!READER_SANITIZED) /* the allocator of a sanitizer maps as it likes */
                ck_assert_uint_le(after.mappings, before.mappings + 4);
        ck_assert_uint_gt(atomic_load(&chaos.shared->rows), 0);
        ck_assert_double_eq(sum_now(chaos.h, "slots_quarantined"), 0);
        printf("# %.0f chunks were recalled\n", sum_now(chaos.h, "chunks_recalled"));
        if (recalls)
                ck_assert_double_gt(sum_now(chaos.h, "chunks_recalled"), 0);
        munmap(chaos.shared, sizeof(*chaos.shared));
        harness_stop(chaos.h, SIGTERM, 0);
        harness_free(chaos.h);
}
END_TEST

int main(void) {
        TCase *tcase = tcase_create("chaos");
        Suite *suite = suite_create("chaos");

        tcase_set_timeout(tcase, (double)(60 + 60 * minutes()) * harness_slowdown());
        tcase_add_loop_test(tcase, test_chaos, 0, 2);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
