/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Sources that are bad, missing or slow to come: what the jobs hear, and what goes on beside them. The images
 * are drawn for the test. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        SOON_MS = 10000,
        TEXT = 1200,
};

/* ---- bad samples ---- */

static void draw(struct harness *h, char path[HARNESS_PATH_MAX]) {
        char *output;

        snprintf(path, HARNESS_PATH_MAX, "%s/images", harness_directory(h));
        if (harness_run(
                    h, 20000, &output,
                    (const char *[]){"draw-images", path, "--per-class", "20", "--size", "64x48", NULL}) != 0)
                ck_abort_msg("draw-images: %s", output);
        free(output);
}

static void write_images_config(struct harness *h, const char *path) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  images:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms: [{resize: {size: [24, 32]}}]\n"
                             "    batch_size: 4\n"
                             "    on_error: fail\n"
                             "    workers: 2\n",
                             path);
}

/* Half of a JPEG file, then nothing. */
static void damage(const char *images, const char *name) {
        char path[HARNESS_PATH_MAX + 64];
        struct stat facts;

        snprintf(path, sizeof(path), "%s/%s", images, name);
        ck_assert_int_eq(stat(path, &facts), 0);
        ck_assert_int_eq(truncate(path, facts.st_size / 2), 0);
}

START_TEST(test_bad_sample_ends_every_job_of_the_stream) {
        static const char file[] = "class_0/00006.jpg"; /* sample 6: names are in order */
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];
        struct reader a, b, other, after;
        const char *text;

        draw(h, path);
        damage(path, file);
        write_images_config(h, path);
        harness_start(h);
        other = reader_open_at(h, "images", 1, 100);
        b = reader_open_at(h, "images", 0, 150);
        reader_read(&b, 1);
        reader_read(&other, 1);
        a = reader_open_at(h, "images", 0, 0);
        text = reader_expect_failure(&a, clock_ns());
        harness_expect_words(text, "sample 6 (class_0/00006.jpg)");
        harness_expect_words(text, "worker ");
        harness_expect_words(reader_expect_failure(&b, clock_ns()), "sample 6 (class_0/00006.jpg)");
        ck_assert(harness_log_contains(h, "sample 6 (class_0/00006.jpg)"));
        ck_assert_uint_eq((unsigned)harness_status_number(h, "pipelines/images/bad_samples"), 1);

        reader_read(&other, 8);
        after = reader_open_at(h, "images", 0, 8);
        reader_read(&after, 8);
        reader_wait_workers(h, 2);
        ck_assert_uint_eq((unsigned)harness_status_number(h, "pipelines/images/worker_deaths"), 0);
        reader_close(&a);
        reader_close(&b);
        reader_close(&other);
        reader_close(&after);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- a source that is not there ---- */

START_TEST(test_folder_that_comes_later) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "images", 2);
        char path[HARNESS_PATH_MAX], text[TEXT];
        struct reader reader;
        json_t *status;

        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        write_images_config(h, path);
        harness_start(h);
        for (int i = 0; i < 2; i++) {
                reader_expect_refusal(&attach, -EIO, text, sizeof(text));
                harness_expect_words(text, "pinfeed.yaml:2");
                harness_expect_words(text, path);
                harness_expect_words(text, "No such file or directory");
                status = harness_status(h);
                ck_assert_str_eq(json_string_value(harness_member(status, "pipelines/images/state")),
                                 "failed");
                harness_expect_words(json_string_value(harness_member(status, "pipelines/images/error")),
                                     path);
                json_decref(status);
        }
        draw(h, path);
        reader_open(&reader, h, "images", 2);
        ck_assert_uint_eq(reader.info.samples, 200);
        reader_read_epochs(&reader, 1);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

static bool is_quiet(struct harness *h, void *context) {
        json_t *status = harness_status(h), *worker;
        size_t idle = 0, i;

        json_array_foreach(json_object_get(status, "workers"), i, worker) idle +=
                !strcmp(json_string_value(json_object_get(worker, "state")), "idle");
        json_decref(status);
        return idle == 2;
}

/* However many jobs come while a source is being scanned, it is scanned once. */
START_TEST(test_one_scan_for_many_jobs) {
        struct message message;
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX], *log, *at;
        int jobs[8];

        draw(h, path);
        write_images_config(h, path);
        harness_start(h);
        for (size_t i = 0; i < 8; i++) { /* nothing is awaited between them */
                jobs[i] = raw_connect(h);
                message = raw_hello();
                raw_send(jobs[i], &message);
                message = raw_attach("images");
                message.attach.max_held = 1;
                raw_send(jobs[i], &message);
        }
        for (size_t i = 0; i < 8; i++) {
                int type;

                do
                        type = raw_receive(jobs[i], &message, NULL);
                while (type == MESSAGE_HELLO || type == MESSAGE_PROGRESS);
                ck_assert(type == MESSAGE_ATTACHED || type == MESSAGE_REFUSED); /* 8 slots: room for 4 */
                close(jobs[i]);
        }
        harness_wait(h, "no worker that scans", is_quiet, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        log = harness_log(h);
        at = strstr(log, "is ready: 200 samples");
        ck_assert_ptr_nonnull(at);
        ck_assert_msg(!strstr(at + 1, "is ready:"), "scanned more than once: %s", log);
        free(log);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("I-sources");
        TCase *tcase = tcase_create("I");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_bad_sample_ends_every_job_of_the_stream);
        tcase_add_test(tcase, test_folder_that_comes_later);
        tcase_add_test(tcase, test_one_scan_for_many_jobs);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
