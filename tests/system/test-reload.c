/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A running daemon is given other configurations, good and bad ones, while jobs read. What a job has attached
 * to it keeps, with every byte; what the file says holds for whoever comes next; and nothing of what is
 * superseded is left when nobody needs it. */

#include "base/clock.h"
#include "tests/support/process.h"
#include "tests/support/run.h"
#include "tests/system/private.h"
#include "tests/system/reader.h"
#include "tests/system/rings.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        SOON_MS = 10000,
        SAMPLES = 101,
        BATCH = 8,
        BYTES = 1000,
        RELOADS = 200,
        RELOADS_QUICK = 40,
        WARM_UP = 20, /* after which memory and descriptors are as they stay */
        SLACK_MAPPINGS = 6,
        PIPELINES_MAX = 64,
};

#define RAMP                                                                                                 \
        "  ramp:\n"                                                                                          \
        "    source: {type: synthetic, mode: ramp, samples: %d, bytes: %d}\n"                                \
        "    batch_size: %d\n"                                                                               \
        "    workers: %d\n"

static struct harness *start(void) {
        struct harness *h = harness_new();

        harness_write_config(h, "pipelines:\n" RAMP, SAMPLES, BYTES, BATCH, 1);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_wait(h, "no job", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* `pinfeedctl reload`; what it prints has to have these words. */
static void reload(struct harness *h, int expected_exit, const char *words) {
        const char *const argv[] = {"pinfeedctl", "reload", NULL};
        char *text;
        int r = harness_run(h, SOON_MS, &text, argv);

        ck_assert_msg(r == expected_exit, "pinfeedctl reload ended with %d: %s", r, text);
        harness_expect_words(text, words);
        free(text);
}

static size_t count(struct harness *h, const char *member) {
        json_t *status = harness_status(h);
        size_t n = json_array_size(json_object_get(status, member));

        json_decref(status);
        return n;
}

static bool pipelines_are(struct harness *h, void *context) {
        return count(h, "pipelines") == *(size_t *)context;
}

static void wait_pipelines(struct harness *h, size_t n) {
        harness_wait(h, "so many pipelines", pipelines_are, &n, SOON_MS);
}

static void expect_text(struct harness *h, const char *path, const char *expected) {
        json_t *status = harness_status(h), *member = harness_member(status, path);

        ck_assert_msg(member && json_is_string(member) && !strcmp(json_string_value(member), expected),
                      "%s is %s, not %s", path, member ? json_string_value(member) : "missing", expected);
        json_decref(status);
}

static bool is_superseded(struct harness *h, const char *label) {
        char path[128];
        json_t *status = harness_status(h);
        bool is;

        snprintf(path, sizeof(path), "pipelines/%s/superseded", label);
        is = json_is_true(harness_member(status, path));
        json_decref(status);
        return is;
}

/* ---- keys that a pipeline at work takes over ---- */

/* Case E7: nobody is dropped, and the order stays. */
START_TEST(test_E7_workers_and_limits) {
        struct harness *h = start();
        struct ring_file before, after;
        struct reader reader;

        reader_open(&reader, h, "ramp", 4);
        reader_read(&reader, 20);
        before = rings_only(h);
        reload(h, 0, "kept      ramp");
        harness_write_config(h, "nice: 15\nidle: 7\npipelines:\n" RAMP "    sample_timeout: 9\n", SAMPLES,
                             BYTES, BATCH, 3);
        reload(h, 0, "updated   ramp");
        reader_wait_workers(h, 3);
        reader_read_epochs(&reader, 2);
        harness_write_config(
                h,
                "cpus: 2\npipelines:\n  ramp:\n    source: {type: synthetic, mode: ramp, samples: %d, "
                "bytes: %d}\n    batch_size: %d\n",
                SAMPLES, BYTES, BATCH);
        reload(h, 0, "updated   ramp");
        reader_wait_workers(h, 2);
        ck_assert_double_eq(harness_status_number(h, "cpus"), 2);
        reader_read_epochs(&reader, 2);
        after = rings_only(h);
        ck_assert_uint_eq(before.inode, after.inode);
        pinfeed_job_info(reader.job, &reader.info);
        ck_assert_uint_eq(reader.info.reconnects, 0);
        ck_assert_double_eq(harness_status_number(h, "generation"), 4);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* `idle` counts from the reload on, and a pipeline that is to be there from the start is there at once. */
START_TEST(test_rest_and_reserve) {
        struct harness *h = start();
        struct reader reader;

        reader_open(&reader, h, "ramp", 4);
        reader_read(&reader, 3);
        reader_close(&reader);
        harness_write_config(h, "idle: 0.1\npipelines:\n" RAMP, SAMPLES, BYTES, BATCH, 1);
        reload(h, 0, "updated   ramp");
        reader_wait_workers(h, 0);
        harness_write_config(h, "pipelines:\n" RAMP "    reserve: start\n", SAMPLES, BYTES, BATCH, 2);
        reload(h, 0, "updated   ramp");
        reader_wait_workers(h, 2);
        finish(h);
}
END_TEST

/* ---- files that are wrong ---- */

START_TEST(test_bad_file) {
        static const char *const bad[] = {"pipelines:\n  ramp:\n    sauce: {}\n", "pipelines: [\n", "\001"};
        struct harness *h = start();
        struct reader reader;

        reader_open(&reader, h, "ramp", 4);
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                reader_read(&reader, 5);
                harness_write_config(h, "%s", bad[i]);
                reload(h, 1, harness_config_path(h));
        }
        unlink(harness_config_path(h));
        reload(h, 1, "No such file");
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGHUP), 0);
        reader_read_epochs(&reader, 2);
        ck_assert_double_eq(harness_status_number(h, "generation"), 1);
        harness_write_config(h, "nice: 20\npipelines:\n" RAMP, SAMPLES, BYTES, BATCH, 1);
        reload(h, 1, "nice");
        {
                json_t *status = harness_status(h);

                harness_expect_words(json_string_value(harness_member(status, "reloaded/error")),
                                     "pinfeed.yaml:1:7: nice: ");
                json_decref(status);
        }
        ck_assert(harness_log_contains(h, "the configuration stays as it is, generation 1"));
        harness_write_config(h, "pipelines:\n" RAMP, SAMPLES, BYTES, BATCH, 1);
        reload(h, 0, "kept      ramp");
        ck_assert_uint_eq(count(h, "pipelines"), 1);
        reader_read(&reader, 5);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- another version ---- */

static void expect_row_bytes(const struct reader *reader, uint64_t bytes) {
        struct pinfeed_field field;

        ck_assert_int_eq(pinfeed_job_field(reader->job, reader->info.n_fields - 1, &field), 0);
        ck_assert_uint_eq(field.row_bytes, bytes);
}

/* The job goes on with what it has, the next one gets what the file says; and back again. */
START_TEST(test_changed) {
        struct harness *h = start();
        struct reader old, new;

        reader_open(&old, h, "ramp", 4);
        reader_read(&old, 5);
        harness_write_config(h, "pipelines:\n" RAMP, SAMPLES, 2 * BYTES, BATCH, 2);
        reload(h, 0, "changed   ramp\n1 job goes on with what 1 pipeline was before");
        ck_assert(is_superseded(h, "ramp#2"));
        ck_assert(!is_superseded(h, "ramp"));
        expect_text(h, "jobs/0/pipeline", "ramp#2");
        reader_open(&new, h, "ramp", 4);
        expect_row_bytes(&new, 2 * BYTES);
        expect_row_bytes(&old, BYTES);
        for (int i = 0; i < 3; i++) {
                reader_read_epochs(&old, 1);
                reader_read_epochs(&new, 1);
        }
        /* The first one has its job still, so it is the one that is meant again. */
        harness_write_config(h, "pipelines:\n" RAMP, SAMPLES, BYTES, BATCH, 1);
        reload(h, 0, "changed   ramp");
        expect_text(h, "jobs/0/pipeline", "ramp");
        reader_close(&new);
        wait_pipelines(h, 1);
        reader_read_epochs(&old, 2);
        reader_close(&old);
        ck_assert_uint_eq(count(h, "pipelines"), 1);
        finish(h);
}
END_TEST

/* One that has no job is gone at once, with its ring and its workers. */
START_TEST(test_changed_without_jobs) {
        struct harness *h = start();
        struct reader reader;

        reader_open(&reader, h, "ramp", 4);
        reader_close(&reader);
        harness_wait(h, "no job", harness_no_job_is_there, NULL, SOON_MS);
        harness_write_config(h, "pipelines:\n" RAMP, SAMPLES, 2 * BYTES, BATCH, 1);
        reload(h, 0, "changed   ramp");
        ck_assert_uint_eq(count(h, "pipelines"), 1);
        reader_wait_workers(h, 0);
        reader_open(&reader, h, "ramp", 4);
        expect_row_bytes(&reader, 2 * BYTES);
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_added_and_removed) {
        struct harness *h = start();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 4);
        struct reader old, new;
        char text[2048];

        reader_open(&old, h, "ramp", 4);
        harness_write_config(h, "pipelines:\n"
                                "  other:\n"
                                "    source: {type: synthetic, mode: ramp, samples: 50, bytes: 300}\n"
                                "    batch_size: 5\n"
                                "    reserve: start\n"
                                "    workers: 1\n");
        reload(h, 0, "added     other\nremoved   ramp\n1 job goes on");
        reader_wait_workers(h, 2); /* one each: the new one has started */
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "no pipeline \"ramp\"; there are: other");
        reader_open(&new, h, "other", 4);
        reader_read_epochs(&new, 2);
        reader_read_epochs(&old, 2);
        reader_close(&old);
        wait_pipelines(h, 1);
        reader_close(&new);
        finish(h);
}
END_TEST

static bool has_failed(struct harness *h, void *context) {
        json_t *status = harness_status(h), *state = harness_member(status, "pipelines/huge/state");
        bool has = state && !strcmp(json_string_value(state), "failed");

        json_decref(status);
        return has;
}

/* A pipeline whose ring does not fit is that pipeline's matter. */
START_TEST(test_new_one_without_room) {
        struct harness *h;
        struct reader reader;

        setenv("PINFEED_TEST_SPACE_MS", "300", 1);
        h = start();
        reader_open(&reader, h, "ramp", 4);
        harness_write_config(h,
                             "pipelines:\n" RAMP "  huge:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 50, bytes: 1G}\n"
                             "    batch_size: 50\n    slots: 1000\n    reserve: start\n",
                             SAMPLES, BYTES, BATCH, 1);
        reload(h, 0, "kept      ramp\nadded     huge");
        reader_read_epochs(&reader, 1);
        harness_wait(h, "failure", has_failed, NULL, SOON_MS);
        ck_assert_double_eq(harness_status_number(h, "generation"), 2);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* A rank that comes after the reload goes to where the other one of its group waits. */
START_TEST(test_group_stays_together) {
        struct harness *h = start();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 4);
        struct pinfeed_job *first, *second;
        struct pinfeed_batch *batch;

        attach.group = "run";
        attach.world_size = 2;
        ck_assert_int_eq(pinfeed_open(&first, &attach), 0);
        harness_write_config(h, "pipelines:\n" RAMP, SAMPLES, 2 * BYTES, BATCH, 1);
        reload(h, 0, "changed   ramp");
        attach.rank = 1;
        ck_assert_int_eq(pinfeed_open(&second, &attach), 0);
        expect_text(h, "jobs/1/pipeline", "ramp#2");
        ck_assert_int_eq(pinfeed_next(first, &batch), 1);
        ck_assert_int_eq(pinfeed_next(second, &batch), 1);
        pinfeed_close(first);
        pinfeed_close(second);
        finish(h);
}
END_TEST

/* A job that has lost its daemon is taken by the version that there is then, if its rows are the same. */
START_TEST(test_reconnect_to_another_version) {
        struct harness *h = start();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 4);
        struct reader reader;

        attach.reconnect_s = 20;
        reader_open_with(&reader, &attach);
        reader_read(&reader, 20);
        harness_write_config(h, "pipelines:\n" RAMP "    slots: 5\n", SAMPLES, BYTES, BATCH, 1);
        reload(h, 0, "changed   ramp");
        reader_read(&reader, 5);
        harness_kill(h);
        harness_start(h);
        reader_read_epochs(&reader, 2);
        pinfeed_job_info(reader.job, &reader.info);
        ck_assert_uint_eq(reader.info.reconnects, 1);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/slots"), 5);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- many ---- */

static void write_many(struct harness *h, unsigned changed) {
        char *text = NULL;
        size_t size;
        FILE *file = open_memstream(&text, &size);

        fprintf(file, "pipelines:\n");
        for (unsigned i = 0; i < PIPELINES_MAX; i++)
                fprintf(file,
                        "  p%u: {source: {type: synthetic, samples: %u, features: 4}, batch_size: 4, "
                        "workers: 1}\n",
                        i, i < changed ? 50u : 40u);
        fclose(file);
        harness_write_config(h, "%s", text);
        free(text);
}

/* All versions count. */
START_TEST(test_as_many_as_there_may_be) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach;
        struct pinfeed_job *job;

        write_many(h, 0);
        harness_start(h);
        attach = reader_attach(h, "p0", 2);
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        write_many(h, 1);
        reload(h, 1,
               "has 64 pipelines, 1 of before still have jobs and clients have defined 0: pinfeedd may have "
               "64");
        ck_assert_uint_eq(count(h, "pipelines"), PIPELINES_MAX);
        pinfeed_close(job);
        harness_wait(h, "no job", harness_no_job_is_there, NULL, SOON_MS);
        reload(h, 0, "changed   p0");
        write_many(h, PIPELINES_MAX);
        reload(h, 0, "changed   p1, p2");
        ck_assert_uint_eq(count(h, "pipelines"), PIPELINES_MAX);
        finish(h);
}
END_TEST

/* One at a time, and whoever asks is answered after the file was read for them. */
START_TEST(test_many_ask_at_once) {
        const char *const argv[] = {"pinfeedctl", "reload", NULL};
        struct harness *h = start();
        pid_t pids[8];

        for (size_t i = 0; i < 8; i++) {
                pids[i] = harness_spawn(h, NULL, argv);
                ck_assert_int_eq(kill(harness_daemon_pid(h), SIGHUP), 0);
        }
        for (size_t i = 0; i < 8; i++)
                ck_assert_int_eq(harness_join(h, pids[i], SOON_MS), 0);
        ck_assert_double_ge(harness_status_number(h, "generation"), 3);
        finish(h);
}
END_TEST

struct footprint {
        size_t descriptors, mappings;
};

static struct footprint footprint_of(struct harness *h) {
        struct footprint least = {SIZE_MAX, SIZE_MAX};

        for (int i = 0; i < 50; i++) {
                size_t descriptors = harness_descriptors(harness_daemon_pid(h));
                size_t mappings = harness_mappings(harness_daemon_pid(h));

                least.descriptors = descriptors < least.descriptors ? descriptors : least.descriptors;
                least.mappings = mappings < least.mappings ? mappings : least.mappings;
                usleep(HARNESS_POLL_US);
        }
        return least;
}

/* Every fourth one is bad; the others change the pipeline that nobody has, and the workers of the other. */
static void reload_once(struct harness *h, int i) {
        json_t *answer;

        if (i % 4 == 3)
                harness_write_config(h, "pipelines:\n" RAMP "    colour: blue\n", SAMPLES, BYTES, BATCH, 1);
        else
                harness_write_config(h,
                                     "pipelines:\n" RAMP "  other:\n"
                                     "    source: {type: synthetic, samples: %d, features: 4}\n"
                                     "    batch_size: 4\n    workers: 1\n    reserve: start\n",
                                     SAMPLES, BYTES, BATCH, 1 + i % 2, 40 + i % 4);
        answer = harness_control(h, "reload");
        ck_assert_msg((i % 4 == 3) == json_is_string(json_object_get(answer, "error")), "reload %d", i);
        json_decref(answer);
}

START_TEST(test_reloads_leave_nothing_behind) {
        int n = harness_quick() ? RELOADS_QUICK : RELOADS;
        struct harness *h = start();
        struct footprint before = {}, after;
        uint64_t resident = 0;
        size_t workers = 2;
        struct reader reader;

        reader_open(&reader, h, "ramp", 4);
        for (int i = 0; i < WARM_UP + n; i++) {
                reload_once(h, i);
                reader_read(&reader, 3);
                if (i + 1 != WARM_UP)
                        continue;
                wait_pipelines(h, 2);
                harness_wait(h, "two workers", reader_workers_are, &workers, SOON_MS);
                before = footprint_of(h);
                resident = harness_resident_bytes(harness_daemon_pid(h));
        }
        wait_pipelines(h, 2);
        harness_wait(h, "two workers", reader_workers_are, &workers, SOON_MS);
        after = footprint_of(h);
        ck_assert_uint_eq(after.descriptors, before.descriptors);
        if (!READER_SANITIZED) {
                ck_assert_uint_le(after.mappings, before.mappings + SLACK_MAPPINGS);
                ck_assert_uint_le(harness_resident_bytes(harness_daemon_pid(h)), resident + (2 << 20));
        }
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- a daemon without a file ---- */

START_TEST(test_hangup_of_a_private_daemon) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        const char *const argv[] = {"pinfeedctl", "reload", NULL};
        struct reader reader;
        char *text, *log;

        reader_open_with(&reader, &attach);
        ck_assert_int_eq(kill(private_pid(h), SIGHUP), 0);
        reader_read_epochs(&reader, 2);
        ck_assert_int_eq(harness_run(h, SOON_MS, &text, argv), 1);
        harness_expect_words(text, "started without --config");
        log = private_read(h, RUNTIME_LOG);
        harness_expect_words(log, "SIGHUP changes nothing");
        free(text);
        free(log);
        reader_close(&reader);
        private_finish(h);
}
END_TEST

int main(void) {
        TCase *tcase = tcase_create("reload");
        Suite *suite = suite_create("reload");

        tcase_set_timeout(tcase, 60.0 * harness_slowdown());
        tcase_add_test(tcase, test_E7_workers_and_limits);
        tcase_add_test(tcase, test_rest_and_reserve);
        tcase_add_test(tcase, test_bad_file);
        tcase_add_test(tcase, test_changed);
        tcase_add_test(tcase, test_changed_without_jobs);
        tcase_add_test(tcase, test_added_and_removed);
        tcase_add_test(tcase, test_new_one_without_room);
        tcase_add_test(tcase, test_group_stays_together);
        tcase_add_test(tcase, test_reconnect_to_another_version);
        tcase_add_test(tcase, test_as_many_as_there_may_be);
        tcase_add_test(tcase, test_many_ask_at_once);
        tcase_add_test(tcase, test_reloads_leave_nothing_behind);
        tcase_add_test(tcase, test_hangup_of_a_private_daemon);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
