/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case N4: the conditions of A1, B2, C2, C7, D5, I1 and J4, and what a user reads of each: the cause in
 * words, the numbers that are true here, one remedy. It is read where a user would: in the error of a call,
 * in the log, in status.
 *
 * The remedy is what stands behind the last semicolon or colon, and names a key, an option or a command. */

#include "tests/support/run.h"
#include "tests/system/gpu.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
        TEXT = 1500,
        SOON_MS = 10000,
        SHM_BYTES = 16 << 20,
        LIMIT = 40, /* descriptors of the daemon */
        MANY = 64,
        DIE_SAMPLE = 100,
        BATCH = 10,
        IMAGES = 1000,
        DAMAGED = 123,
};

static void expect_all(const char *text, const char *cause, const char *number, const char *remedy) {
        printf("# %s\n", text);
        harness_expect_words(text, cause);
        harness_expect_words(text, number);
        harness_expect_words(text, remedy);
        ck_assert_msg(strstr(text, remedy) > strstr(text, cause), "the remedy comes first: %s", text);
}

/* The last line of the log with these words. */
static void read_log(struct harness *h, const char *words, char text[TEXT]) {
        char *log = harness_log(h), *rest = log;

        *text = 0;
        for (char *line; (line = strsep(&rest, "\n"));)
                if (strstr(line, words))
                        snprintf(text, TEXT, "%s", line);
        free(log);
        ck_assert_msg(*text != 0, "no \"%s\" in the log", words);
}

static void write_ramp(struct harness *h, const char *source, const char *more) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: synthetic, samples: 1000, %s}\n"
                             "    batch_size: %d\n"
                             "    workers: 2\n"
                             "%s",
                             source, BATCH, more);
}

static void finish(struct harness *h) {
        harness_wait(h, "the end of all jobs", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static bool log_has(struct harness *h, void *words) {
        return harness_log_contains(h, words);
}

/* ---- A1 ---- */

START_TEST(test_A1_shm_too_small) {
        char number[64], *text;
        struct statvfs vfs;
        struct harness *h;

        if (!harness_isolate_mounts()) {
                harness_skip("no mounts of our own here: run as root or allow user namespaces");
                return;
        }
        harness_mount_tmpfs("/dev/shm", SHM_BYTES);
        ck_assert_int_eq(statvfs("/dev/shm", &vfs), 0);
        h = harness_new();
        write_ramp(h, "mode: ramp, bytes: 1M", "    ring: 64M\n    backing: shm\n    reserve: start\n");
        text = harness_start_expect_failure(h, NULL);
        snprintf(number, sizeof(number), "/dev/shm has %llu bytes free",
                 (unsigned long long)vfs.f_bavail * vfs.f_frsize);
        expect_all(text, "the ring needs ", number, "set a smaller `ring:` or `slots:` at ");
        harness_expect_words(text, "pinfeed.yaml:6, or `backing: auto`");
        free(text);
        harness_free(h);
}
END_TEST

/* ---- B2 ---- */

START_TEST(test_B2_more_jobs_than_descriptors) {
        struct pinfeed_job *jobs[MANY] = {};
        struct harness *h = harness_new();
        struct pinfeed_attach attach;
        char number[32];
        size_t n = 0;
        int r;

        write_ramp(h, "mode: ramp, bytes: 64", "    slots: 256\n");
        harness_limit_descriptors(h, LIMIT);
        harness_start(h);
        attach = reader_attach(h, "p", 1);
        do
                r = pinfeed_open(&jobs[n], &attach);
        while (r == 0 && ++n < MANY - 1);
        ck_assert_int_eq(r, -EMFILE);
        ck_assert_uint_gt(n, 0);
        snprintf(number, sizeof(number), "its limit is %d", LIMIT);
        expect_all(pinfeed_error(jobs[n]), "no descriptor left for another job", number,
                   "raise it with ulimit -n or LimitNOFILE=");
        for (size_t i = 0; i <= n; i++)
                pinfeed_close(jobs[i]);
        finish(h);
}
END_TEST

/* ---- C2 and C7 ---- */

START_TEST(test_C2_sample_that_kills) {
        struct harness *h = harness_new();
        struct reader reader;
        char text[TEXT], state[HARNESS_PATH_MAX];

        snprintf(state, sizeof(state), "%s/state", harness_directory(h));
        harness_set_environment(h, "PINFEED_STATE_DIR", state);
        write_ramp(h, "mode: die, die_sample: 100, die_how: segv", "    max_errors: 0.1\n");
        harness_start(h);
        reader_open(&reader, h, "p", 2);
        reader_read(&reader, DIE_SAMPLE / BATCH);
        harness_wait(h, "the verdict", log_has, (void *)"sample 100 is condemned", SOON_MS);
        read_log(h, "; its rows are prepared again", text);
        expect_all(text, "was killed by signal 11", "while at sample 100", "pinfeedctl verify");
        read_log(h, "sample 100 is condemned", text);
        expect_all(text, "was killed by signal 11", "sample 100 is condemned", "run 'pinfeedctl verify p'");
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_C7_worker_killed_from_outside) {
        struct harness *h = harness_new();
        char text[TEXT], number[32];
        struct reader reader;
        pid_t pids[2];

        write_ramp(h, "mode: ramp, bytes: 64, delay_us: 5000", "");
        harness_start(h);
        reader_open(&reader, h, "p", 2);
        reader_read(&reader, 1);
        ck_assert_uint_gt(harness_worker_pids(h, pids, 2), 0);
        kill(pids[0], SIGKILL);
        harness_wait(h, "its death", log_has, (void *)"was killed by signal 9", SOON_MS);
        read_log(h, "was killed by signal 9", text);
        snprintf(number, sizeof(number), "(pid %d)", (int)pids[0]);
        expect_all(text, "was killed by signal 9", number, "see the kernel's log");
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- D5 ---- */

START_TEST(test_D5_rank_that_does_not_come) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach;
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;

        write_ramp(h, "mode: ramp, bytes: 64", "    slots: 16\n");
        harness_start(h);
        attach = reader_attach(h, "p", 2);
        attach.group = "run";
        attach.world_size = 2;
        attach.group_timeout_ms = 300;
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_next(job, &batch), -ETIMEDOUT);
        expect_all(pinfeed_error(job), "rank 1 of group run", "(2 ranks) did not come within 0.3 s",
                   "start what is missing, or attach with the world_size that there is");
        pinfeed_close(job);
        finish(h);
}
END_TEST

/* ---- I1 ---- */

static struct harness *draw_damaged(const char *more) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX - 64], image[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        ck_assert_int_eq(harness_run(h, 20000 * harness_slowdown(), NULL,
                                     (const char *[]){"draw-images", path, "--per-class", "100", "--size",
                                                      "32x24", NULL}),
                         0);
        snprintf(image, sizeof(image), "%s/class_1/00023.jpg", path);
        ck_assert_int_eq(truncate(image, 300), 0);
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms: [{resize: {size: [24, 32]}}]\n"
                             "    batch_size: %d\n"
                             "    workers: 2\n"
                             "%s",
                             path, BATCH, more);
        harness_start(h);
        return h;
}

/* What ends the stream, if anything does; "" after two epochs. */
static void read_to_the_error(struct harness *h, char text[TEXT]) {
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        int r = pinfeed_open(&job, &attach);

        ck_assert_msg(r == 0, "%s", pinfeed_error(job));
        for (int i = 0; r >= 0 && i < 2 * (IMAGES / BATCH + 1); i++) {
                r = pinfeed_next(job, &batch);
                if (r > 0)
                        pinfeed_batch_release(batch);
        }
        snprintf(text, TEXT, "%s", r < 0 ? pinfeed_error(job) : "");
        pinfeed_close(job);
}

START_TEST(test_I1_damaged_image) {
        struct harness *h = draw_damaged("");
        char text[TEXT];

        read_to_the_error(h, text);
        ck_assert_str_eq(text, "");
        read_log(h, "is replaced: ", text);
        expect_all(text, "is replaced: ", "sample 123 (class_1/00023.jpg)", "; mend or remove it");
        finish(h);
}
END_TEST

START_TEST(test_I1_too_many_damaged) {
        struct harness *h = draw_damaged("    max_errors: 0\n");
        char text[TEXT];

        read_to_the_error(h, text);
        expect_all(text, "samples seen so far is bad", "1 of 1,000 samples", "; mend or remove the files");
        harness_expect_words(text, "max_errors 0 allows 0");
        harness_expect_words(text, "(the first one: class_1/00023.jpg: ");
        finish(h);
}
END_TEST

START_TEST(test_I1_damaged_and_fail) {
        struct harness *h = draw_damaged("    on_error: fail\n");
        char text[TEXT];

        read_to_the_error(h, text);
        expect_all(text, "worker ", "sample 123 (class_1/00023.jpg)", "or set `on_error: replace`");
        finish(h);
}
END_TEST

/* ---- J4 ---- */

static const struct {
        rlim_t limit;
        const char *number, *remedy;
} locked[] = {{3 << 20, "RLIMIT_MEMLOCK is 3 MiB", "raise it with ulimit -l or LimitMEMLOCK="},
              {RLIM_INFINITY, "RLIMIT_MEMLOCK is unlimited", "see the kernel's log"}};

START_TEST(test_J4_page_locking_refused) {
        static const struct gpu_shape shape = {.samples = 1000, .batch_size = 8, .bytes = 1024, .slots = 8};
        struct rlimit limit = {.rlim_cur = locked[_i].limit, .rlim_max = locked[_i].limit};
        struct harness *h;
        struct gpu gpu;

        if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0) {
                harness_skip("this user may not set such a limit");
                return;
        }
        fake_cuda_set("registrations_max=3");
        h = gpu_start(shape);
        gpu_open(&gpu, h, "cuda:0", PINFEED_PIN_AUTO);
        gpu_rounds(&gpu, 24);
        gpu_look(&gpu);
        expect_all(gpu.info.map_reason,
                   "slot 3 (16 KiB) cannot be page-locked for cuda:0, 3 are: ", locked[_i].number,
                   locked[_i].remedy);
        gpu_close(&gpu);
        gpu_finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("N-messages");
        TCase *tcase = tcase_create("N4");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_A1_shm_too_small);
        tcase_add_test(tcase, test_B2_more_jobs_than_descriptors);
        tcase_add_test(tcase, test_C2_sample_that_kills);
        tcase_add_test(tcase, test_C7_worker_killed_from_outside);
        tcase_add_test(tcase, test_D5_rank_that_does_not_come);
        tcase_add_test(tcase, test_I1_damaged_image);
        tcase_add_test(tcase, test_I1_too_many_damaged);
        tcase_add_test(tcase, test_I1_damaged_and_fail);
        tcase_add_loop_test(tcase, test_J4_page_locking_refused, 0, 2);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
