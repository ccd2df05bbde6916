/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases K: memory that grows, and memory that was not foretold.
 *
 * Growth is measured between two moments of the steady state and divided by the batches between them, so what
 * start-up takes does not count, and a leak does, however small beside it. Sizes are the kernel's (VmRSS,
 * st_blocks).
 *
 * A sanitizer keeps freed memory aside to catch late uses, which is growth: there the epochs are read and
 * nothing is weighed.
 *
 * The ten minutes of case K6: PINFEED_TEST_LONG=1. */

#include "tests/support/run.h"
#include "tests/system/jobs.h"
#include "tests/system/reader.h"
#include "tests/system/rings.h"

#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void draw(struct harness *h, const char *size) {
        char path[100];

        snprintf(path, sizeof(path), "%s/photos", harness_directory(h));
        ck_assert_int_eq(harness_run(h, 10000, NULL,
                                     (const char *const[]){"draw-images", path, "--classes", "4",
                                                           "--per-class", "8", "--size", size, NULL}),
                         0);
}

/* ---- K2 ---- */

enum {
        WORKERS = 2,
        EPOCHS = 200,
        WARM_EPOCHS = 40,
        BYTES_PER_BATCH = 1024,
};

struct weighed {
        pid_t pid;
        const char *what;
        uint64_t bytes;
};

static void weigh(struct weighed *all, size_t n) {
        for (size_t i = 0; i < n; i++)
                all[i].bytes = harness_resident_bytes(all[i].pid);
}

static size_t find_all(struct harness *h, struct weighed all[WORKERS + 2]) {
        pid_t pids[2 * WORKERS];
        size_t n = 0, n_workers = harness_worker_pids(h, pids, 2 * WORKERS);

        ck_assert_uint_eq(n_workers, WORKERS);
        for (size_t i = 0; i < n_workers; i++)
                all[n++] = (struct weighed){pids[i], "worker", 0};
        all[n++] = (struct weighed){harness_daemon_pid(h), "daemon", 0};
        all[n++] = (struct weighed){getpid(), "job", 0};
        return n;
}

static void check_growth(const char *pipeline, const struct weighed *before, const struct weighed *after,
                         size_t n, uint64_t batches) {
        for (size_t i = 0; i < n; i++) {
                int64_t grown = (int64_t)(after[i].bytes - before[i].bytes);

                ck_assert_msg(READER_SANITIZED || grown < (int64_t)(batches * BYTES_PER_BATCH),
                              "%s: the %s has grown by %lld bytes over %llu batches", pipeline, after[i].what,
                              (long long)grown, (unsigned long long)batches);
        }
}

static void check_pipeline(struct harness *h, const char *pipeline) {
        struct weighed before[WORKERS + 2], after[WORKERS + 2];
        uint32_t epochs = harness_quick() ? EPOCHS / 2 : EPOCHS;
        struct reader reader;
        size_t n;

        harness_start(h);
        reader_open(&reader, h, pipeline, 2);
        reader_read_epochs(&reader, WARM_EPOCHS);
        n = find_all(h, before);
        weigh(before, n);
        reader_read_epochs(&reader, epochs - WARM_EPOCHS);
        find_all(h, after);
        weigh(after, n);
        check_growth(pipeline, before, after, n, (epochs - WARM_EPOCHS) * reader.info.batches_per_epoch);
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
}

START_TEST(test_K2_two_hundred_epochs) {
        struct harness *h = harness_new();

        draw(h, "120x90");
        harness_write_config(h,
                             "pipelines:\n"
                             "  photos:\n"
                             "    source: {type: imagefolder, path: photos}\n"
                             "    transforms: [{random_resized_crop: {size: 32}}, random_horizontal_flip,\n"
                             "      {normalize: {mean: [0.5, 0.5, 0.5], std: [0.2, 0.2, 0.2]}}]\n"
                             "    output: {dtype: float32, layout: chw}\n"
                             "    batch_size: 2\n"
                             "    workers: %d\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 99, bytes: 4K}\n"
                             "    batch_size: 4\n"
                             "    workers: %d\n",
                             WORKERS, WORKERS);
        check_pipeline(h, "photos");
        check_pipeline(h, "ramp");
        harness_free(h);
}
END_TEST

/* ---- K6 ---- */

enum {
        AHEAD_MS = 2000, /* for which nobody reads: 100 times as long as it takes to fill the ring */
        AHEAD_LONG_MS = 600000,
};

/* What daemon and workers have had written to any disk, in bytes. */
static uint64_t written_to_disks(struct harness *h) {
        pid_t pids[1 + 8];
        uint64_t sum = 0, bytes;

        pids[0] = harness_daemon_pid(h);
        for (size_t i = 0, n = 1 + harness_worker_pids(h, pids + 1, 8); i < n; i++) {
                char path[64], line[128];
                FILE *file;

                snprintf(path, sizeof(path), "/proc/%d/io", (int)pids[i]);
                file = fopen(path, "re");
                ck_assert_ptr_nonnull(file);
                while (fgets(line, sizeof(line), file))
                        if (sscanf(line, "write_bytes: %" SCNu64, &bytes) == 1)
                                sum += bytes;
                fclose(file);
        }
        return sum;
}

static uint64_t bytes_of_files;

static int add_file(const char *path, const struct stat *status, int type, struct FTW *place) {
        bytes_of_files += type == FTW_F ? 1 + (uint64_t)status->st_size : 0;
        return 0;
}

/* What lies in the daemon's own directories, a file's name counting as a byte. */
static uint64_t weigh_files(struct harness *h) {
        bytes_of_files = 0;
        ck_assert_int_eq(nftw(harness_directory(h), add_file, 8, FTW_PHYS), 0);
        return bytes_of_files;
}

/* Rows that were prepared and that the job has not been through with. One more batch may look so: the job
 * gives it back and counts it a moment later. */
static double rows_ahead(struct harness *h, const struct child *job) {
        double prepared = harness_status_number(h, "pipelines/ramp/rows_prepared");

        return prepared - (double)atomic_load(&job->shared->batches) * BATCH;
}

static bool is_full(struct harness *h, void *context) {
        return rows_ahead(h, context) >= (SLOTS - 1) * BATCH;
}

/* The job is stopped in the middle of an epoch: what is prepared ahead of it is what the ring holds, for as
 * long as it may be, and nothing goes anywhere else. */
START_TEST(test_K6_nothing_is_prepared_beyond_the_ring) {
        uint64_t files, disks, until;
        struct harness *h = jobs_start();
        struct child job;

        jobs_start_readers(h, &job, 1);
        ck_assert_int_eq(kill(job.pid, SIGSTOP), 0);
        harness_wait(h, "a full ring", is_full, &job, SOON_MS);
        files = weigh_files(h);
        disks = written_to_disks(h);
        until = clock_ns() + (uint64_t)(getenv("PINFEED_TEST_LONG") ? AHEAD_LONG_MS : AHEAD_MS) * NS_PER_MS;
        while (clock_ns() < until) {
                ck_assert_double_le(rows_ahead(h, &job), (SLOTS + 1) * BATCH);
                jobs_sleep(AHEAD_MS / 20);
        }
        ck_assert_uint_eq(weigh_files(h), files);
        ck_assert_uint_eq(written_to_disks(h), disks);
        ck_assert_uint_lt(atomic_load(&job.shared->batches), SAMPLES / BATCH); /* the epoch was not over */
        ck_assert_int_eq(kill(job.pid, SIGCONT), 0);
        jobs_end_child(&job);
        jobs_finish(h);
}
END_TEST

/* ---- K7 ---- */

enum {
        PERCENT = 5,
};

/* The number before the first " bytes" after `word`: "ring  8 slots, 33580032 bytes". */
static uint64_t bytes_after(const char *text, const char *word) {
        const char *at = strstr(text, word), *bytes = at ? strstr(at, " bytes") : NULL;

        ck_assert_msg(bytes != NULL, "no bytes after \"%s\" in: %s", word, text);
        while (bytes > at && bytes[-1] >= '0' && bytes[-1] <= '9')
                bytes--;
        return strtoull(bytes, NULL, 10);
}

static void check_close(uint64_t said, uint64_t real, const char *who) {
        ck_assert_msg(said > 0 && said * 100 <= real * (100 + PERCENT) &&
                              said * 100 >= real * (100 - PERCENT),
                      "%s said %llu bytes, %llu are really taken", who, (unsigned long long)said,
                      (unsigned long long)real);
}

static uint64_t ask_check(struct harness *h) {
        const char *const argv[] = {"pinfeedd", "--config", harness_config_path(h), "--check", NULL};
        uint64_t bytes;
        char *output;

        ck_assert_int_eq(harness_run(h, 5000, &output, argv), 0);
        bytes = bytes_after(output, "\n  ring ");
        ck_assert_uint_eq(bytes_after(output, "all rings:"), bytes); /* it is the only one */
        free(output);
        return bytes;
}

/* What status says while nothing is reserved. */
static uint64_t ask_status(struct harness *h) {
        const char *const argv[] = {"pinfeedctl", "--runtime-dir", harness_runtime_directory(h),
                                    "status",     "--json",        NULL};
        json_t *status;
        uint64_t bytes;
        char *output;

        ck_assert_int_eq(harness_run(h, 5000, &output, argv), 0);
        status = json_loads(output, 0, NULL);
        ck_assert_msg(status != NULL, "not JSON: %s", output);
        free(output);
        bytes = (uint64_t)harness_number(status, "pipelines/0/ring_bytes");
        ck_assert_uint_eq((uint64_t)harness_number(status, "pipelines/0/reserved_bytes"), 0);
        json_decref(status);
        return bytes;
}

static void check_foretold(struct harness *h, const char *pipeline) {
        uint64_t checked = ask_check(h), said, real;
        struct reader reader;

        harness_start(h);
        said = ask_status(h);
        reader_open(&reader, h, pipeline, 2);
        real = rings_only(h).bytes;
        ck_assert_uint_eq((uint64_t)harness_status_number(h, "pipelines/0/reserved_bytes"), real);
        reader_read_epochs(&reader, 1);
        ck_assert_uint_eq(rings_only(h).bytes, real); /* and reading takes no more */
        check_close(checked, real, "pinfeedd --check");
        check_close(said, real, "status before the attach");
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
}

static void check_pipelines(struct harness *h, const char *backing) {
        /* A slot of many pages that is no multiple of the steps in which a ring is reserved; and one of few,
         * of which the last is hardly used. */
        static const struct {
                unsigned bytes, batch_size;
                const char *size;
        } ramps[] = {{300000, 70, "ring: 150M"}, {1000, 3, "slots: 9"}};

        harness_write_config(h,
                             "pipelines:\n"
                             "  photos:\n"
                             "    source: {type: imagefolder, path: photos}\n"
                             "    transforms: [{resize: {size: 64}}, {center_crop: {size: 64}}]\n"
                             "    batch_size: 5\n"
                             "    workers: 1\n"
                             "    backing: %s\n",
                             backing);
        check_foretold(h, "photos");
        for (size_t i = 0; i < sizeof(ramps) / sizeof(ramps[0]); i++) {
                harness_write_config(h,
                                     "pipelines:\n"
                                     "  ramp:\n"
                                     "    source: {type: synthetic, mode: ramp, samples: 50, bytes: %u}\n"
                                     "    batch_size: %u\n"
                                     "    %s\n"
                                     "    workers: 1\n"
                                     "    backing: %s\n",
                                     ramps[i].bytes, ramps[i].batch_size, ramps[i].size, backing);
                check_foretold(h, "ramp");
        }
}

START_TEST(test_K7_bytes_are_foretold) {
        struct harness *h = harness_new();

        draw(h, "120x90");
        check_pipelines(h, "shm");
        check_pipelines(h, "memfd");
        check_pipelines(h, "auto");
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("K-growth");
        TCase *tcase = tcase_create("K");

        tcase_set_timeout(tcase, (getenv("PINFEED_TEST_LONG") ? 900 : 120) * harness_slowdown());
        tcase_add_test(tcase, test_K2_two_hundred_epochs);
        tcase_add_test(tcase, test_K6_nothing_is_prepared_beyond_the_ring);
        tcase_add_test(tcase, test_K7_bytes_are_foretold);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
