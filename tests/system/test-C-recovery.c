/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases C2 to C9 and F3 with crashes: samples that kill their workers or raise, and workers that somebody
 * kills. Jobs shall notice nothing but the substitutes of condemned samples, and these are the same in every
 * run.
 *
 * The source `die` is a ramp whose sample `die_sample` does what `die_how` says. */

#include "tests/support/run.h"
#include "tests/system/follower.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        SAMPLES = 400,
        BAD = 100,
        PIDS = 64,
        TEXT = 1500,
};

/* "0a1b...  clean", as it is printed; free it. */
static char *digest(struct harness *h) {
        char *output;
        int r = harness_run(h, 60000 * harness_slowdown(), &output,
                            (const char *[]){"pinfeedctl", "digest", "p", NULL});

        ck_assert_msg(r == 0, "digest: %d, %s", r, output);
        ck_assert_ptr_nonnull(strchr(output, '\n'));
        return output;
}

/* ---- a sample that kills its worker ---- */

START_TEST(test_C2_sample_that_kills) {
        struct harness *h = start(SAMPLES, 4, "mode: die, die_sample: 100, die_how: segv", "");
        struct follower a = follower_open(h, 0, 0, BAD), b = follower_open(h, 0, 0, BAD);
        atomic_bool stop = false;

        follower_start(&a, SAMPLES, &stop);
        follower_start(&b, SAMPLES, &stop);
        follower_join(&a);
        follower_join(&b);
        ck_assert_uint_eq(a.replaced, 1);
        ck_assert_uint_eq(b.replaced, 1);
        ck_assert_uint_eq(number_of(h, "deaths/crashed"), DEATHS);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), DEATHS);
        expect_condemned(h, BAD);
        ck_assert(harness_log_contains(h, "was killed by signal 11 while at sample 100"));
        ck_assert(harness_log_contains(h, "sample 100 is condemned"));
        reader_wait_workers(h, 4);
        reader_close(&a.reader);
        reader_close(&b.reader);
        finish(h);
}
END_TEST

static const struct {
        const char *how, *counter;
        const char *words;
} ways[] = {
        {"exit", "exited", "ended with exit status 3 while at sample 100"},
        {"abort", "crashed", "was killed by signal 6 while at sample 100"},
        {"bus", "crashed", "was killed by signal 7 while at sample 100"},
};

START_TEST(test_C2_other_ways_to_die) {
        char source[128], counter[64];
        struct follower follower;
        struct harness *h;

        snprintf(source, sizeof(source), "mode: die, die_sample: 100, die_how: %s", ways[_i].how);
        snprintf(counter, sizeof(counter), "deaths/%s", ways[_i].counter);
        h = start(SAMPLES, 2, source, "");
        follower = follower_open(h, 0, 64, BAD);
        follow_to(&follower, 200);
        ck_assert_uint_eq(follower.replaced, 1);
        ck_assert_uint_eq(number_of(h, counter), DEATHS);
        ck_assert(harness_log_contains(h, ways[_i].words));
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* Fewer deaths than condemn: the sample is good. A SIGKILL never is the sample's fault. */
static const struct {
        const char *how;
        unsigned times;
        const char *counter;
} spared[] = {{"segv", 1, "crashed"}, {"segv", 2, "crashed"}, {"kill9", 3, "killed"}};

START_TEST(test_C2_sample_that_recovers) {
        char source[HARNESS_PATH_MAX + 160], counter[64];
        struct harness *h = harness_new();
        struct follower follower;

        keep_state(h);
        snprintf(source, sizeof(source),
                 "mode: die, die_sample: 100, die_how: %s, die_times: %u, die_counter: %s/met",
                 spared[_i].how, spared[_i].times, harness_directory(h));
        snprintf(counter, sizeof(counter), "deaths/%s", spared[_i].counter);
        write_config(h, SAMPLES, 2, source, "");
        harness_start(h);
        follower = follower_open(h, 0, 64, UINT64_MAX);
        follow_to(&follower, 200);
        ck_assert_uint_eq(follower.replaced, 0);
        ck_assert_uint_eq(number_of(h, counter), spared[_i].times);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* One of 10,000: found, condemned and replaced within three deaths, and never tried again. */
START_TEST(test_one_crashing_sample_of_many) {
        static const unsigned workers[] = {1, 2, 4};
        char *first = NULL;

        for (size_t i = 0; i < 3; i++) {
                struct harness *h = start(10000, workers[i], "mode: die, die_sample: 5000, die_how: segv",
                                          "    shuffle: true\n");
                char *text = digest(h), *again;

                harness_expect_words(text, "  1 replaced\n10000 rows");
                ck_assert_uint_eq(number_of(h, "worker_deaths"), DEATHS);
                expect_condemned(h, 5000);
                harness_stop(h, SIGTERM, 0);
                harness_start(h);
                again = digest(h);
                ck_assert_str_eq(text, again);
                ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
                expect_condemned(h, 5000);
                finish(h);
                free(again);
                if (first)
                        ck_assert_msg(!strcmp(first, text), "%u workers: %s instead of %s", workers[i], text,
                                      first);
                else
                        first = strdup(text);
                free(text);
        }
        free(first);
}
END_TEST

/* ---- a sample that raises ---- */

START_TEST(test_C3_raise_ends_every_job) {
        struct harness *h = start(SAMPLES, 4, "mode: die, die_sample: 100, die_how: raise, delay_us: 1000",
                                  "    on_error: fail\n");
        struct reader readers[3];

        for (int i = 0; i < 3; i++)
                readers[i] = reader_open_at(h, "p", 0, 64);
        for (int i = 0; i < 3; i++) {
                const char *text = reader_expect_failure(&readers[i], clock_ns());

                harness_expect_words(text, "sample 100");
                harness_expect_words(text, "raises");
        }
        ck_assert(harness_log_contains(h, "sample 100"));
        ck_assert_uint_eq(number_of(h, "bad_samples"), 1);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        for (int i = 0; i < 3; i++)
                reader_close(&readers[i]);
        finish(h);
}
END_TEST

/* Short, one line, printable, and not cut within a character. */
static void expect_clean(const char *text) {
        json_t *string = json_string(text); /* NULL unless it is UTF-8 */

        ck_assert_ptr_nonnull(string);
        json_decref(string);
        harness_expect_words(text, "ugly");
        ck_assert_uint_lt(strlen(text), TEXT);
        for (const char *p = text; *p; p++)
                ck_assert_msg((unsigned char)*p >= 0x20 && *p != 0x7f, "a control byte: %s", text);
}

START_TEST(test_C4_ugly_error_is_delivered) {
        struct harness *h =
                start(SAMPLES, 2, "mode: die, die_sample: 100, die_how: raise_ugly", "    on_error: fail\n");
        struct reader reader = reader_open_at(h, "p", 0, 64);
        const char *text = reader_expect_failure(&reader, clock_ns());
        json_t *status = harness_status(h);

        harness_expect_words(text, "sample 100");
        expect_clean(text);
        expect_clean(json_string_value(harness_member(status, "pipelines/p/bad/0/text")));
        json_decref(status);
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_C4_ugly_error_is_replaced) {
        struct harness *h = start(SAMPLES, 2, "mode: die, die_sample: 100, die_how: raise_ugly", "");
        struct follower follower = follower_open(h, 0, 64, BAD);
        json_t *status;

        follow_to(&follower, 200);
        ck_assert_uint_eq(follower.replaced, 1);
        status = harness_status(h);
        expect_clean(json_string_value(harness_member(status, "pipelines/p/bad/0/text")));
        json_decref(status);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* ---- workers that are killed from outside ---- */

START_TEST(test_C7_worker_killed_from_outside) {
        static const char *const command[] = {"pinfeedctl", "digest", "p", NULL};
        struct harness *h =
                start(SAMPLES, 4, "mode: slow, slow_sample: 100, slow_us: 1000000", "    shuffle: true\n");
        char output[HARNESS_PATH_MAX], words[128], disturbed[256] = "", *undisturbed;
        struct at at;
        pid_t pid;
        FILE *file;

        snprintf(output, sizeof(output), "%s/digest", harness_directory(h));
        pid = harness_spawn(h, output, command);
        at = wait_at(h, 100);
        ck_assert_int_eq(kill(at.pid, SIGKILL), 0);
        ck_assert_int_eq(harness_join(h, pid, SOON_MS * harness_slowdown()), 0);
        snprintf(words, sizeof(words), "worker %u (pid %d) was killed by signal 9 while at sample 100",
                 at.number, (int)at.pid);
        ck_assert(harness_log_contains(h, words));
        ck_assert_uint_eq(number_of(h, "deaths/killed"), 1);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        file = fopen(output, "re");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(disturbed, sizeof(disturbed), file));
        fclose(file);
        harness_expect_words(disturbed, "clean");
        harness_stop(h, SIGTERM, 0);
        write_config(h, SAMPLES, 1, "mode: ramp", "    shuffle: true\n");
        harness_start(h);
        undisturbed = digest(h);
        ck_assert_msg(!strncmp(undisturbed, disturbed, strlen(disturbed)), "%s instead of %s", disturbed,
                      undisturbed);
        free(undisturbed);
        finish(h);
}
END_TEST

/* Kills a worker every 50 ms for so long. Returns how many. */
static uint64_t kill_workers(struct harness *h, uint64_t ms, bool (*done)(void *context), void *context) {
        uint64_t end = clock_ns() + ms * NS_PER_MS, killed = 0;
        pid_t pids[PIDS];

        while (clock_ns() < end && !(done && done(context))) {
                size_t n = harness_worker_pids(h, pids, PIDS);

                if (n > 0 && kill(pids[(killed * 7919) % n], SIGKILL) == 0)
                        killed++;
                json_decref(harness_status(h));
                usleep(50000);
        }
        return killed;
}

START_TEST(test_C9_workers_killed_while_jobs_read) {
        struct harness *h = start(20000, 4, "mode: ramp, delay_us: 500", "");
        struct follower followers[8];
        atomic_bool stop = false;
        uint64_t killed;

        for (int i = 0; i < 8; i++) {
                followers[i] = follower_open(h, (uint64_t)i / 4, 0, UINT64_MAX);
                follower_start(&followers[i], UINT64_MAX, &stop);
        }
        killed = kill_workers(h, harness_quick() ? 2000 : 10000, NULL, NULL);
        ck_assert_uint_gt(killed, 20);
        reader_wait_workers(h, 4); /* none is missing while all read on */
        atomic_store(&stop, true);
        for (int i = 0; i < 8; i++) {
                follower_join(&followers[i]);
                expect_gap_below(&followers[i], 2000);
                ck_assert_uint_gt(followers[i].reader.row, 0);
        }
        /* All 16 slots of whoever is left fill up: no worker is stuck, no row is lost. */
        for (int i = 1; i < 8; i++)
                reader_close(&followers[i].reader);
        follow_to(&followers[0], followers[0].reader.row + 512);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        ck_assert_uint_eq(number_of(h, "bad_samples"), 0);
        reader_close(&followers[0].reader);
        finish(h);
}
END_TEST

struct child {
        struct harness *h;
        pid_t pid;
        const char *output;
};

static bool has_digest(void *context) {
        struct stat facts;

        return stat(((struct child *)context)->output, &facts) == 0 && facts.st_size > 70;
}

START_TEST(test_F3_crashes_change_nothing) {
        static const char *const command[] = {"pinfeedctl", "digest", "p", NULL};
        static const char source[] = "mode: rng, delay_us: 1000";
        struct harness *h = start(2000, 1, source, "    shuffle: true\n");
        char *expected = digest(h), output[HARNESS_PATH_MAX], text[256] = "";
        struct child child = {.h = h, .output = output};
        FILE *file;

        harness_stop(h, SIGTERM, 0);
        write_config(h, 2000, 3, source, "    shuffle: true\n");
        harness_start(h);
        snprintf(output, sizeof(output), "%s/digest", harness_directory(h));
        child.pid = harness_spawn(h, output, command);
        ck_assert_uint_gt(kill_workers(h, 60000, has_digest, &child), 5);
        ck_assert_int_eq(harness_join(h, child.pid, SOON_MS), 0);
        file = fopen(output, "re");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
        fclose(file);
        ck_assert_msg(!strncmp(expected, text, strlen(text)), "%s instead of %s", text, expected);
        free(expected);
        finish(h);
}
END_TEST

/* More deaths at once than in vain end a pipeline: these are not in vain. */
START_TEST(test_C9_many_workers_killed_at_once) {
        struct harness *h = start(20000, 24, "mode: ramp, delay_us: 5000", "");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);
        pid_t pids[PIDS];

        for (int round = 0; round < 3; round++) {
                size_t n;

                follow_to(&follower, follower.reader.row + 64);
                reader_wait_workers(h, 24);
                n = harness_worker_pids(h, pids, PIDS);
                for (size_t i = 0; i < n; i++)
                        kill(pids[i], SIGKILL);
        }
        follow_to(&follower, follower.reader.row + 256);
        ck_assert_uint_eq(number_of(h, "deaths/killed"), 72);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

static void signal_all(const pid_t *pids, size_t n, int signal) {
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(kill(pids[i], signal), 0);
}

/* ---- workers that cannot work ---- */

/* A pinfeedd of our own, whose worker notes each start and is the real one, unless `broken` is there. */
static void build_program(struct harness *h) {
        char real[HARNESS_PATH_MAX], command[3 * HARNESS_PATH_MAX];

        harness_program("pinfeedd", real);
        *strrchr(real, '/') = 0;
        snprintf(command, sizeof(command),
                 "cd %s && mkdir -p new/bin new/libexec/pinfeed && cp %s/pinfeedd new/bin && "
                 "worker=%s/../libexec/pinfeed/pinfeed-worker && test -x $worker && "
                 "printf '#!/bin/sh\\necho start >>%s/starts\\ntest -e %s/broken && . %s/broken\\nexec %%s "
                 "\"$@\"\\n' $worker >new/libexec/pinfeed/pinfeed-worker && "
                 "chmod 755 new/libexec/pinfeed/pinfeed-worker",
                 harness_directory(h), real, real, harness_directory(h), harness_directory(h),
                 harness_directory(h));
        ck_assert_int_eq(harness_run(h, SOON_MS, NULL, (const char *[]){"/bin/sh", "-c", command, NULL}), 0);
        snprintf(real, sizeof(real), "%s/new/bin", harness_directory(h));
        setenv("PINFEED_TEST_BIN", real, 1);
}

static size_t starts(struct harness *h) {
        char path[HARNESS_PATH_MAX];
        struct stat facts;

        snprintf(path, sizeof(path), "%s/starts", harness_directory(h));
        return stat(path, &facts) == 0 ? (size_t)facts.st_size / strlen("start\n") : 0;
}

/* `how`: the command that each worker runs instead; NULL: none. */
static void set_broken(struct harness *h, const char *how) {
        char path[HARNESS_PATH_MAX];
        FILE *file;

        snprintf(path, sizeof(path), "%s/broken", harness_directory(h));
        if (!how) {
                ck_assert_int_eq(unlink(path), 0);
                return;
        }
        file = fopen(path, "we");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_gt(fprintf(file, "%s\n", how), 0);
        ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_workers_that_die_at_once) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct follower follower;
        char text[TEXT];

        keep_state(h);
        build_program(h);
        set_broken(h, "exit 3");
        write_config(h, SAMPLES, 4, "mode: ramp", "");
        harness_start(h);
        for (int i = 0; i < 3; i++) {
                reader_expect_refusal(&attach, -EIO, text, sizeof(text));
                harness_expect_words(text, "cannot start");
                harness_expect_words(text, "ended with exit status 3");
        }
        ck_assert_uint_le(starts(h), 3 * 4);
        set_broken(h, NULL);
        follower = follower_open(h, 0, 0, UINT64_MAX);
        follow_to(&follower, SAMPLES);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

START_TEST(test_workers_that_die_at_once_later) {
        struct harness *h = harness_new();
        struct follower follower;
        struct pinfeed_batch *batch;
        pid_t pids[PIDS];
        size_t before;
        int r;

        keep_state(h);
        build_program(h);
        write_config(h, SAMPLES, 4, "mode: ramp, delay_us: 1000", "");
        harness_start(h);
        follower = follower_open(h, 0, 0, UINT64_MAX);
        follow_to(&follower, 64);
        set_broken(h, "kill -9 $$");
        before = starts(h);
        signal_all(pids, harness_worker_pids(h, pids, PIDS), SIGKILL);
        while ((r = pinfeed_next(follower.reader.job, &batch)) >= 0 || r == -ETIMEDOUT)
                if (r > 0)
                        pinfeed_batch_release(batch);
        ck_assert_int_eq(r, -EIO);
        harness_expect_words(pinfeed_error(follower.reader.job), "cannot keep a worker alive");
        harness_expect_words(pinfeed_error(follower.reader.job),
                             "was killed by signal 9; see the kernel's log");
        ck_assert_uint_le(starts(h) - before, 64);
        ck_assert_double_lt(harness_status_number(h, "cpu_seconds/daemon"), 1.0 * harness_slowdown());
        set_broken(h, NULL);
        reader_close(&follower.reader);
        follower = follower_open(h, 0, 0, UINT64_MAX);
        follow_to(&follower, SAMPLES);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("C-recovery");
        TCase *tcase = tcase_create("C");

        tcase_set_timeout(tcase, 90 * harness_slowdown());
        tcase_add_test(tcase, test_C2_sample_that_kills);
        tcase_add_loop_test(tcase, test_C2_other_ways_to_die, 0, sizeof(ways) / sizeof(ways[0]));
        tcase_add_loop_test(tcase, test_C2_sample_that_recovers, 0, sizeof(spared) / sizeof(spared[0]));
        tcase_add_test(tcase, test_one_crashing_sample_of_many);
        tcase_add_test(tcase, test_C3_raise_ends_every_job);
        tcase_add_test(tcase, test_C4_ugly_error_is_delivered);
        tcase_add_test(tcase, test_C4_ugly_error_is_replaced);
        tcase_add_test(tcase, test_C7_worker_killed_from_outside);
        tcase_add_test(tcase, test_C9_workers_killed_while_jobs_read);
        tcase_add_test(tcase, test_C9_many_workers_killed_at_once);
        tcase_add_test(tcase, test_F3_crashes_change_nothing);
        tcase_add_test(tcase, test_workers_that_die_at_once);
        tcase_add_test(tcase, test_workers_that_die_at_once_later);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
