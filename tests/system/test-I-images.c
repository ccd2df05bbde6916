/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases I2 and I4: images of which some are bad, for long, and told about.
 *
 * Image k is file k % 10 of class k / 10, and batches are four in a row, so each batch meets exactly one of
 * the bad ones; they are bad in every way that is quickly made. The others must not notice: the same workers
 * to the end, each of their rows right, memory as it was. That memory is flat is weighed as in test-K-growth
 * and, like there, not under a sanitizer. */

#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        CLASSES = 4,
        PER_CLASS = 10,
        IMAGES = CLASSES * PER_CLASS,
        BATCH = 4, /* one of them is bad */
        WORKERS = 2,
        WARM_BATCHES = 1000,
        BATCHES = 10000,
        GROWTH_MOST = 512 << 10, /* bytes over 9,000 batches: 58 a batch, less than any leak of a sample */
};

static void path_of(struct harness *h, unsigned image, char path[HARNESS_PATH_MAX]) {
        snprintf(path, HARNESS_PATH_MAX, "%s/images/class_%u/%05u.jpg", harness_directory(h),
                 image / PER_CLASS, image % PER_CLASS);
}

static void overwrite(const char *path, const void *bytes, size_t length) {
        int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
        close(fd);
}

/* In one of the ways in which files are bad. */
static void spoil(struct harness *h, unsigned image) {
        static const char page[] = "<html><body>404 Not Found</body></html>";
        static const uint8_t zeros[3000];
        char path[HARNESS_PATH_MAX];
        struct stat facts;

        path_of(h, image, path);
        ck_assert_int_eq(stat(path, &facts), 0);
        switch (image / BATCH % 5) {
        case 0: /* cut off among the rows */
                ck_assert_int_eq(truncate(path, facts.st_size * 3 / 4), 0);
                break;
        case 1: /* and within the header */
                ck_assert_int_eq(truncate(path, 100), 0);
                break;
        case 2:
                overwrite(path, "", 0);
                break;
        case 3:
                overwrite(path, page, sizeof(page) - 1);
                break;
        case 4:
                overwrite(path, zeros, sizeof(zeros));
                break;
        }
}

static bool is_bad(unsigned image) {
        return image % BATCH == 1;
}

static struct harness *start(void) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        ck_assert_int_eq(harness_run(h, 20000 * harness_slowdown(), NULL,
                                     (const char *[]){"draw-images", path, "--classes", "4", "--per-class",
                                                      "10", "--size", "32x24", NULL}),
                         0);
        for (unsigned image = 0; image < IMAGES; image++)
                if (is_bad(image))
                        spoil(h, image);
        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        harness_set_environment(h, "PINFEED_STATE_DIR", path);
        harness_write_config(h,
                             "pipelines:\n"
                             "  images:\n"
                             "    source: {type: imagefolder, path: %s/images}\n"
                             "    transforms: [{resize: {size: [12, 16]}}]\n"
                             "    output: {dtype: uint8}\n"
                             "    batch_size: %d\n"
                             "    workers: %d\n"
                             "    max_errors: 1\n",
                             harness_directory(h), BATCH, WORKERS);
        harness_start(h);
        return h;
}

/* ---- I2 ---- */

struct process {
        pid_t pid;
        uint64_t bytes;
};

static void weigh(struct harness *h, struct process all[WORKERS + 1]) {
        pid_t pids[2 * WORKERS];
        size_t n = harness_worker_pids(h, pids, 2 * WORKERS);

        ck_assert_uint_eq(n, WORKERS);
        for (size_t i = 0; i < n; i++)
                all[i].pid = pids[i];
        all[n].pid = harness_daemon_pid(h);
        for (size_t i = 0; i <= n; i++)
                all[i].bytes = harness_resident_bytes(all[i].pid);
}

/* Of each batch the bad one is replaced and no other. */
static void read_batches(struct reader *reader, unsigned batches) {
        while (batches-- > 0) {
                struct pinfeed_batch *batch = reader_next(reader);
                uint64_t row = pinfeed_batch_row(batch);
                const uint8_t *flags = pinfeed_batch_flags(batch, 0, NULL);

                for (unsigned i = 0; i < BATCH; i++)
                        reader_must((flags[i] == PINFEED_ROW_REPLACED) == is_bad((unsigned)row + i),
                                    "row %" PRIu64 " has flag %d", row + i, flags[i]);
                pinfeed_batch_release(batch);
        }
}

START_TEST(test_I2_one_bad_image_in_every_batch) {
        struct harness *h = start();
        struct process before[WORKERS + 1], after[WORKERS + 1];
        struct reader reader;

        reader_open(&reader, h, "images", 2);
        read_batches(&reader, WARM_BATCHES);
        weigh(h, before);
        read_batches(&reader, (harness_quick() ? BATCHES / 4 : BATCHES) - WARM_BATCHES);
        weigh(h, after);
        for (size_t i = 0; i < WORKERS + 1; i++) {
                int64_t grown = (int64_t)(after[i].bytes - before[i].bytes);

                ck_assert_int_eq(after[i].pid, before[i].pid);
                ck_assert_msg(READER_SANITIZED || grown < GROWTH_MOST, "process %d has grown by %" PRId64,
                              (int)after[i].pid, grown);
        }
        ck_assert_int_eq((int)harness_status_number(h, "pipelines/images/worker_deaths"), 0);
        ck_assert_int_eq((int)harness_status_number(h, "pipelines/images/bad_samples"), IMAGES / BATCH);
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- I4 ---- */

static const char *reason_of(const json_t *bad, unsigned image) {
        json_t *entry;
        char file[64];
        size_t i;

        snprintf(file, sizeof(file), "class_%u/%05u.jpg", image / PER_CLASS, image % PER_CLASS);
        json_array_foreach(bad, i, entry) {
                if (strcmp(json_string_value(json_object_get(entry, "file")), file) != 0)
                        continue;
                ck_assert_int_eq((int)harness_number(entry, "sample"), (int)image);
                return json_string_value(json_object_get(entry, "text"));
        }
        ck_abort_msg("%s is not listed", file);
}

/* Which file, how many bytes it has, and in which row they end: where there are such. */
START_TEST(test_I4_which_file_and_where) {
        struct harness *h = start();
        struct reader reader;
        char path[HARNESS_PATH_MAX], words[64];
        json_t *status, *bad;
        struct stat facts;

        reader_open(&reader, h, "images", 2);
        read_batches(&reader, IMAGES / BATCH);
        status = harness_status(h);
        bad = harness_member(status, "pipelines/images/bad");
        ck_assert_uint_eq(json_array_size(bad), IMAGES / BATCH);
        path_of(h, 1, path);
        ck_assert_int_eq(stat(path, &facts), 0);
        snprintf(words, sizeof(words), "truncated, its %lld bytes end in row ", (long long)facts.st_size);
        harness_expect_words(reason_of(bad, 1), words);
        harness_expect_words(reason_of(bad, 5), "truncated, its 100 bytes end in the header");
        harness_expect_words(reason_of(bad, 9), "the file is empty");
        harness_expect_words(reason_of(bad, 13), "no known image format");
        harness_expect_words(reason_of(bad, 17), "no known image format");
        for (unsigned image = 1; image < IMAGES; image += BATCH) {
                snprintf(words, sizeof(words), "class_%u/%05u.jpg", image / PER_CLASS, image % PER_CLASS);
                ck_assert_msg(harness_log_contains(h, words), "%s is not in the log", words);
        }
        json_decref(status);
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("I-images");
        TCase *tcase = tcase_create("I");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_I2_one_bad_image_in_every_batch);
        tcase_add_test(tcase, test_I4_which_file_and_where);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
