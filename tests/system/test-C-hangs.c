/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases C12, C16 and N6: samples and files that hang, workers that are stopped, and processes that no signal
 * ends. */

#include "tests/support/hang.h"
#include "tests/support/run.h"
#include "tests/system/follower.h"
#include "tests/system/freezer.h"

#include <unistd.h>

enum {
        SAMPLES = 400,
        PIDS = 64,
        STOPS = 12,
        STREAMS = 3,
        PER_CLASS = 20, /* images */
        FILE_LIMIT_MS = 500,
};

/* ---- samples that hang ---- */

static struct harness *start_with_hang(unsigned delay_us, unsigned limit_ms) {
        char source[128], limit[64];

        snprintf(source, sizeof(source), "mode: die, die_sample: 200, die_how: hang, delay_us: %u", delay_us);
        snprintf(limit, sizeof(limit), "    sample_timeout: %u.%u\n", limit_ms / 1000, limit_ms % 1000 / 100);
        return start(UINT32_MAX, 3, source, limit);
}

/* The job of the sample waits for three times the limit at most, `other`, which never meets it, for nothing.
 * A worker that hangs hangs as well when it is stopped. */
static void hang(unsigned delay_us, unsigned limit_ms, bool stopped) {
        struct follower follower, other;
        atomic_bool stop = false, never = false;
        struct harness *h = start_with_hang(delay_us, limit_ms);

        other = follower_open(h, 1, 1000, UINT64_MAX);
        follower = follower_open(h, 0, 160, 200);
        follower_start(&other, UINT64_MAX, &stop);
        follower_start(&follower, 320, &never);
        for (int i = 0; stopped && i < DEATHS; i++) {
                harness_wait_number(h, "pipelines/p/worker_deaths", i, SOON_MS);
                ck_assert_int_eq(kill(wait_at(h, 200).pid, SIGSTOP), 0);
        }
        follower_join(&follower);
        atomic_store(&stop, true);
        follower_join(&other);
        ck_assert_uint_eq(follower.replaced, 1);
        ck_assert_uint_eq(number_of(h, "deaths/timed_out"), DEATHS);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), DEATHS);
        ck_assert(harness_log_contains(h, "sample 200 reached sample_timeout"));
        expect_condemned(h, 200);
        expect_gap_below(&follower, DEATHS * limit_ms + NOISE_MS);
        expect_gap_below(&other, NOISE_MS);
        reader_close(&follower.reader);
        reader_close(&other.reader);
        finish(h);
}

START_TEST(test_C12_hung_sample_delays_no_other) {
        hang(2000, 1000, false);
}
END_TEST

/* Where rows take microseconds a worker holds several chunks, of any stream. */
START_TEST(test_C12_hung_sample_of_quick_ones) {
        hang(0, 1000, false);
}
END_TEST

START_TEST(test_C12_stopped_worker_with_quick_ones) {
        hang(0, 1000, true);
}
END_TEST

static bool is_out_of_quarantine(struct harness *h, void *context) {
        return number_of(h, "slots_quarantined") == 0;
}

/* The one that hangs cannot even be killed. Only the slot of the chunk that it has begun is out of use. */
START_TEST(test_C12_frozen_worker_with_quick_ones) {
        struct follower follower, other;
        atomic_bool stop = false, never = false;
        struct freezer freezer;
        struct harness *h;

        if (!freezer_init(&freezer))
                return;
        h = start_with_hang(0, 1000);
        other = follower_open(h, 1, 1000, UINT64_MAX);
        follower = follower_open(h, 0, 160, 200);
        follower_start(&other, UINT64_MAX, &stop);
        follower_start(&follower, 320, &never);
        freezer_add(&freezer, wait_at(h, 200).pid);
        freezer_set(&freezer, true);
        harness_wait_number(h, "pipelines/p/slots_quarantined", 1, SOON_MS);
        follower_join(&follower);
        ck_assert_uint_eq(number_of(h, "slots_quarantined"), 1);
        freezer_set(&freezer, false);
        harness_wait(h, "the slot out of quarantine", is_out_of_quarantine, NULL, SOON_MS);
        atomic_store(&stop, true);
        follower_join(&other);
        expect_condemned(h, 200);
        expect_gap_below(&other, NOISE_MS);
        reader_close(&follower.reader);
        reader_close(&other.reader);
        finish(h);
        freezer_deinit(&freezer);
}
END_TEST

/* What is recalled from a worker that was merely stopped is somebody else's, and the worker goes on. */
START_TEST(test_recall_from_a_stopped_worker) {
        struct harness *h = start(UINT32_MAX, 3, "mode: ramp", "");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);
        atomic_bool stop = false;
        pid_t pids[PIDS];

        ck_assert_uint_eq(harness_worker_pids(h, pids, PIDS), 3);
        follower_start(&follower, UINT64_MAX, &stop);
        for (int i = 0; i < STOPS; i++) {
                ck_assert_int_eq(kill(pids[i % 3], SIGSTOP), 0);
                usleep(250000);
                ck_assert_int_eq(kill(pids[i % 3], SIGCONT), 0);
                usleep(100000);
        }
        atomic_store(&stop, true);
        follower_join(&follower);
        ck_assert_uint_gt(number_of(h, "chunks_recalled"), 0);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* Every millisecond, while rows are so quick that a worker goes from chunk to chunk in microseconds; every
 * byte is looked at. A chunk that were made twice, or by nobody, would be wrong or late. */
START_TEST(test_recall_all_the_time) {
        struct follower followers[STREAMS];
        struct harness *h = harness_new();
        atomic_bool stop = false;
        pid_t pids[PIDS];
        size_t n;

        keep_state(h);
        harness_set_environment(h, "PINFEED_TEST_RECALL", "1");
        write_config(h, UINT32_MAX, 3, "mode: ramp, bytes: 32", "");
        harness_start(h);
        for (int i = 0; i < STREAMS; i++)
                followers[i] = follower_open(h, i, 1000 * i, UINT64_MAX);
        for (int i = 0; i < STREAMS; i++)
                follower_start(&followers[i], UINT64_MAX, &stop);
        n = harness_worker_pids(h, pids, PIDS);
        for (int i = 0; i < (harness_quick() ? STOPS : 10 * STOPS); i++) {
                ck_assert_int_eq(kill(pids[i % n], SIGSTOP), 0);
                usleep(10000);
                ck_assert_int_eq(kill(pids[i % n], SIGCONT), 0);
                usleep(20000);
        }
        atomic_store(&stop, true);
        for (int i = 0; i < STREAMS; i++) {
                follower_join(&followers[i]);
                expect_gap_below(&followers[i], NOISE_MS);
                reader_close(&followers[i].reader);
        }
        printf("# %llu chunks recalled of %llu rows\n", (unsigned long long)number_of(h, "chunks_recalled"),
               (unsigned long long)number_of(h, "rows_prepared"));
        ck_assert_uint_gt(number_of(h, "chunks_recalled"), 100);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        finish(h);
}
END_TEST

/* ---- files that hang ---- */

static void write_image_config(struct harness *h, const char *images) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms: [{random_resized_crop: {size: 16}}]\n"
                             "    batch_size: %d\n"
                             "    slots: 4\n"
                             "    workers: 2\n"
                             "    max_errors: 0.1\n"
                             "    sample_timeout: 0.%d\n",
                             images, BATCH, FILE_LIMIT_MS / 100);
}

/* Reads up to `row`; the rows that hold substitutes, and *longest_ns for a batch. */
static unsigned read_images(struct reader *reader, uint64_t row, uint64_t *longest_ns) {
        unsigned replaced = 0;
        uint32_t rows;

        *longest_ns = 0;
        while (reader->row < row) {
                uint64_t begin = clock_ns(), took;
                struct pinfeed_batch *batch = reader_next(reader);
                const uint8_t *flags = pinfeed_batch_flags(batch, 0, &rows);

                took = clock_ns() - begin;
                *longest_ns = took > *longest_ns ? took : *longest_ns;
                for (uint32_t i = 0; i < rows; i++)
                        replaced += flags[i] == PINFEED_ROW_REPLACED;
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        return replaced;
}

static void expect_below(uint64_t ns, unsigned ms) {
        expect_gap_below(&(struct follower){.longest_ns = ns}, ms);
}

/* Storage hangs in openat, for one file: also when it is opened ahead. That costs no more deaths than a
 * sample that hangs when it is its turn, no other sample is named for it, and no other row waits. */
START_TEST(test_C12_hung_file_delays_no_other) {
        char images[HARNESS_PATH_MAX], file[HARNESS_PATH_MAX + 32];
        const uint64_t bad = 3 * PER_CLASS + 17;
        struct harness *h = harness_new();
        struct reader reader;
        uint64_t longest_ns;
        int listener;

        snprintf(images, sizeof(images), "%s/images", harness_directory(h));
        ck_assert_int_eq(harness_run(h, SOON_MS, NULL,
                                     (const char *[]){"draw-images", images, "--per-class", "20", NULL}),
                         0);
        snprintf(file, sizeof(file), "%s/class_3/00017.jpg", images);
        listener = hang_at(file);
        if (listener >= 0) {
                keep_state(h);
                write_image_config(h, images);
                harness_start(h);
                reader_open(&reader, h, "p", 2);
                ck_assert_uint_eq(read_images(&reader, bad - bad % BATCH, &longest_ns), 0);
                expect_below(longest_ns, NOISE_MS);
                wait_at(h, bad);
                ck_assert_uint_eq(read_images(&reader, reader.row + BATCH, &longest_ns), 1);
                expect_below(longest_ns, DEATHS * FILE_LIMIT_MS + NOISE_MS);
                ck_assert_uint_eq(read_images(&reader, 10 * PER_CLASS, &longest_ns), 0);
                expect_below(longest_ns, NOISE_MS);
                ck_assert_uint_eq(number_of(h, "deaths/timed_out"), DEATHS);
                ck_assert_uint_eq(number_of(h, "worker_deaths"), DEATHS);
                expect_condemned(h, bad);
                reader_close(&reader);
                harness_stop(h, SIGTERM, 0);
                close(listener);
        }
        harness_free(h);
}
END_TEST

START_TEST(test_C16_stop_while_a_sample_hangs) {
        struct harness *h = start(SAMPLES, 2, "mode: die, die_sample: 1, die_how: hang", "");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);

        wait_at(h, 1);
        harness_stop(h, SIGTERM, 0);
        reader_close(&follower.reader);
        harness_free(h);
}
END_TEST

START_TEST(test_N6_status_while_workers_hang) {
        struct harness *h = start(SAMPLES, 2, "mode: die, die_sample: 0, die_how: hang, die_every: 1",
                                  "    sample_timeout: 1.0\n");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);
        uint64_t end = clock_ns() + 3 * NS_PER_S;

        wait_at(h, 0);
        while (clock_ns() < end)
                json_decref(harness_status(h));
        ck_assert_uint_gt(number_of(h, "deaths/timed_out"), 0);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* ---- what is stopped, and goes on or does not ---- */

static void signal_all(const pid_t *pids, size_t n, int signal) {
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(kill(pids[i], signal), 0);
}

START_TEST(test_everything_stopped_and_continued) {
        struct harness *h = start(SAMPLES, 2, "mode: ramp, delay_us: 50000", "    sample_timeout: 1.0\n");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);
        pid_t pids[PIDS];
        size_t n;

        follow_to(&follower, 8);
        for (int round = 0; round < (harness_quick() ? 1 : 2); round++) {
                n = harness_worker_pids(h, pids, PIDS);
                signal_all(pids, n, SIGSTOP);
                ck_assert_int_eq(kill(harness_daemon_pid(h), SIGSTOP), 0);
                usleep(2200000);
                ck_assert_int_eq(kill(harness_daemon_pid(h), SIGCONT), 0);
                usleep(300000); /* a look of the daemon before they go on */
                signal_all(pids, n, SIGCONT);
                follow_to(&follower, follower.reader.row + 32);
        }
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        ck_assert_uint_eq(number_of(h, "bad_samples"), 0);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

static bool is_full(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool full = harness_number(status, "pipelines/p/workers_busy") == 0 &&
                    harness_number(status, "pipelines/p/slots_ready") == 16;

        json_decref(status);
        return full;
}

/* A worker may hang where it is at no sample: it was given rows and does not begin. */
START_TEST(test_idle_worker_stops) {
        struct harness *h = start(SAMPLES, 2, "mode: ramp, delay_us: 2000", "    sample_timeout: 0.5\n");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);
        pid_t pids[PIDS];

        harness_wait(h, "a full ring", is_full, NULL, SOON_MS);
        ck_assert_uint_eq(harness_worker_pids(h, pids, PIDS), 2);
        ck_assert_int_eq(kill(pids[0], SIGSTOP), 0);
        follow_to(&follower, SAMPLES);
        expect_gap_below(&follower, NOISE_MS); /* others have made what it was given */
        harness_wait_number(h, "pipelines/p/deaths/timed_out", 1, SOON_MS);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 1);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* ---- processes that cannot be killed ---- */

/* Freezes `n` busy workers until their slots are in quarantine, reads on meanwhile, thaws them. */
static void quarantine(size_t n, unsigned workers, bool tells_storage) {
        struct freezer freezer;
        struct follower follower;
        pid_t pids[PIDS];
        struct harness *h;

        if (!freezer_init(&freezer))
                return;
        h = harness_new();
        keep_state(h);
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 4000, delay_us: 100000}\n"
                             "    batch_size: 4\n"
                             "    slots: 8\n"
                             "    workers: %u\n"
                             "    sample_timeout: 1.0\n",
                             workers);
        harness_start(h);
        follower = follower_open(h, 0, 0, UINT64_MAX);
        harness_wait_number(h, "pipelines/p/workers_busy", workers, SOON_MS);
        ck_assert_uint_ge(harness_worker_pids(h, pids, PIDS), n);
        for (size_t i = 0; i < n; i++)
                freezer_add(&freezer, pids[i]);
        freezer_set(&freezer, true);
        while (number_of(h, "slots_quarantined") < n)
                follow(&follower);
        ck_assert(harness_log_contains(h, "do not end: storage hangs") == tells_storage);
        ck_assert_uint_eq(number_of(h, "deaths/timed_out"), n);
        for (int i = 0; i < 8; i++) /* rows are made elsewhere */
                follow(&follower);
        ck_assert(harness_alive(pids[0]));
        freezer_set(&freezer, false);
        harness_wait(h, "slots out of quarantine", is_out_of_quarantine, NULL, SOON_MS);
        for (int i = 0; i < 8; i++)
                follow(&follower);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), n);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        reader_close(&follower.reader);
        finish(h);
        freezer_deinit(&freezer);
}

START_TEST(test_worker_that_cannot_be_reaped) {
        quarantine(1, 3, false);
}
END_TEST

START_TEST(test_storage_that_hangs) {
        quarantine(3, 7, true);
}
END_TEST

/* Four rounds in which every worker is killed for its time, at samples of their own. */
START_TEST(test_storage_that_hangs_is_no_samples_fault) {
        struct harness *h = start(SAMPLES, 4, "mode: die, die_sample: 0, die_how: hang, die_every: 1",
                                  "    sample_timeout: 0.5\n");
        struct follower follower = follower_open(h, 0, 0, UINT64_MAX);

        harness_wait_number(h, "pipelines/p/deaths/timed_out", 16, SOON_MS);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

static bool is_gone(struct harness *h, void *context) {
        return !harness_alive(*(pid_t *)context);
}

/* Nothing ends such a process; the daemon ends all the same. */
START_TEST(test_stop_with_a_worker_that_cannot_end) {
        struct freezer freezer;
        struct follower follower;
        pid_t pids[PIDS];
        struct harness *h;

        if (!freezer_init(&freezer))
                return;
        h = harness_new();
        keep_state(h);
        harness_write_config(h, "pipelines:\n"
                                "  p:\n"
                                "    source: {type: synthetic, mode: ramp, samples: 4000, delay_us: 100000}\n"
                                "    batch_size: 4\n"
                                "    workers: 1\n");
        harness_start(h);
        follower = follower_open(h, 0, 0, UINT64_MAX);
        harness_wait_number(h, "pipelines/p/workers_busy", 1, SOON_MS);
        ck_assert_uint_eq(harness_worker_pids(h, pids, PIDS), 1);
        freezer_add(&freezer, pids[0]);
        freezer_set(&freezer, true);
        reader_close(&follower.reader);
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGTERM), 0);
        ck_assert_int_eq(harness_wait_exit(h, 2000), 0);
        ck_assert(harness_log_contains(h, "left to the kernel"));
        freezer_set(&freezer, false);
        harness_wait(h, "the worker's end", is_gone, &pids[0], SOON_MS);
        harness_free(h);
        freezer_deinit(&freezer);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("C-hangs");
        TCase *tcase = tcase_create("C");

        tcase_set_timeout(tcase, 90 * harness_slowdown());
        tcase_add_test(tcase, test_C12_hung_sample_delays_no_other);
        tcase_add_test(tcase, test_C12_hung_sample_of_quick_ones);
        tcase_add_test(tcase, test_C12_stopped_worker_with_quick_ones);
        tcase_add_test(tcase, test_C12_frozen_worker_with_quick_ones);
        tcase_add_test(tcase, test_C12_hung_file_delays_no_other);
        tcase_add_test(tcase, test_recall_from_a_stopped_worker);
        tcase_add_test(tcase, test_recall_all_the_time);
        tcase_add_test(tcase, test_C16_stop_while_a_sample_hangs);
        tcase_add_test(tcase, test_N6_status_while_workers_hang);
        tcase_add_test(tcase, test_everything_stopped_and_continued);
        tcase_add_test(tcase, test_idle_worker_stops);
        tcase_add_test(tcase, test_worker_that_cannot_be_reaped);
        tcase_add_test(tcase, test_storage_that_hangs);
        tcase_add_test(tcase, test_storage_that_hangs_is_no_samples_fault);
        tcase_add_test(tcase, test_stop_with_a_worker_that_cannot_end);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
