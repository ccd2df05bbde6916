/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases K: memory that grows, and memory that was not foretold.
 *
 * Growth is measured between two moments of the steady state and divided by the batches between them, so what
 * start-up takes does not count, and a leak does, however small beside it. Sizes are the kernel's (VmRSS,
 * st_blocks).
 *
 * A sanitizer keeps freed memory aside to catch late uses, which is growth: there the epochs are read and
 * nothing is weighed. */

#include "tests/support/run.h"
#include "tests/system/reader.h"
#include "tests/system/rings.h"

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

        tcase_set_timeout(tcase, 120 * harness_slowdown());
        tcase_add_test(tcase, test_K2_two_hundred_epochs);
        tcase_add_test(tcase, test_K7_bytes_are_foretold);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
