/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases A4, A14, I1, I11 and I12: samples that are damaged, cut, removed, or of a size that just fits. The
 * images are drawn for the test; image k of 1,000 is file k % 100 of class k / 100. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        IMAGES = 1000,
        PER_CLASS = 100,
        BATCH = 10,
        SOON_MS = 10000,
        TEXT = 1500,
};

static const unsigned damaged[] = {123, 456, 789};

#define N_DAMAGED (sizeof(damaged) / sizeof(damaged[0]))

/* ---- a folder ---- */

static void name_image(char name[64], unsigned image) {
        snprintf(name, 64, "class_%u/%05u.jpg", image / PER_CLASS, image % PER_CLASS);
}

static void path_of(struct harness *h, unsigned image, char path[HARNESS_PATH_MAX]) {
        char name[64];

        name_image(name, image);
        snprintf(path, HARNESS_PATH_MAX, "%s/images/%s", harness_directory(h), name);
}

static void cut_in_half(struct harness *h, unsigned image) {
        char path[HARNESS_PATH_MAX];
        struct stat facts;

        path_of(h, image, path);
        ck_assert_int_eq(stat(path, &facts), 0);
        ck_assert_int_eq(truncate(path, facts.st_size / 2), 0);
}

static void remove_image(struct harness *h, unsigned image) {
        char path[HARNESS_PATH_MAX];

        path_of(h, image, path);
        ck_assert_int_eq(unlink(path), 0);
}

static struct harness *draw(void) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];
        char *output;

        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        if (harness_run(h, 20000 * harness_slowdown(), &output,
                        (const char *[]){"draw-images", path, "--per-class", "100", "--size", "64x48",
                                         NULL}) != 0)
                ck_abort_msg("draw-images: %s", output);
        free(output);
        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        harness_set_environment(h, "PINFEED_STATE_DIR", path);
        return h;
}

static void start(struct harness *h, const char *more) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  images:\n"
                             "    source: {type: imagefolder, path: %s/images}\n"
                             "    transforms: [{resize: {size: [24, 32]}}]\n"
                             "    batch_size: %d\n"
                             "    slots: 8\n"
                             "    workers: 2\n"
                             "%s",
                             harness_directory(h), BATCH, more);
        harness_start(h);
}

static unsigned number_of(struct harness *h, const char *name) {
        char path[128];

        snprintf(path, sizeof(path), "pipelines/images/%s", name);
        return (unsigned)harness_status_number(h, path);
}

/* The entry of status that tells of it. */
static void expect_listed(struct harness *h, unsigned image, const char *words) {
        json_t *status = harness_status(h), *entry;
        bool found = false;
        char name[64];
        size_t i;

        name_image(name, image);
        json_array_foreach(harness_member(status, "pipelines/images/bad"), i, entry) {
                if ((unsigned)harness_number(entry, "sample") != image)
                        continue;
                found = true;
                ck_assert_str_eq(json_string_value(json_object_get(entry, "file")), name);
                harness_expect_words(json_string_value(json_object_get(entry, "text")), words);
        }
        json_decref(status);
        ck_assert_msg(found, "sample %u is not listed", image);
        ck_assert(harness_log_contains(h, name));
}

static size_t count_in_log(struct harness *h, const char *words) {
        char *log = harness_log(h);
        size_t n = 0;

        for (const char *at = log; (at = strstr(at, words)); at++)
                n++;
        free(log);
        return n;
}

/* Reads the rest of an epoch. Returns how many rows were replaced; *where is the last of them. */
static unsigned read_epoch(struct reader *reader, uint64_t *where) {
        struct pinfeed_batch *batch;
        unsigned replaced = 0;
        int r;

        while ((r = pinfeed_next(reader->job, &batch)) == 1) {
                uint64_t row = pinfeed_batch_row(batch);
                uint32_t rows;

                ck_assert_uint_eq(row, reader->row);
                ck_assert_uint_eq(pinfeed_batch_rows(batch), BATCH);
                for (uint32_t i = 0; i < pinfeed_batch_segments(batch); i++) {
                        const int64_t *ids = pinfeed_batch_ids(batch, i, &rows);
                        const uint8_t *flags = pinfeed_batch_flags(batch, i, NULL);

                        for (uint32_t k = 0; k < rows; k++, row++) {
                                reader_must(ids[k] == (int64_t)row, "row %llu has sample %lld",
                                            (unsigned long long)row, (long long)ids[k]);
                                if (flags[k] != PINFEED_ROW_REPLACED)
                                        continue;
                                replaced++;
                                if (where)
                                        *where = row;
                        }
                }
                reader->row = row;
                pinfeed_batch_release(batch);
        }
        ck_assert_msg(r == 0, "row %llu: %d, %s", (unsigned long long)reader->row, r,
                      pinfeed_error(reader->job));
        ck_assert_uint_eq(reader->row, IMAGES);
        reader->row = 0;
        return replaced;
}

static void finish(struct harness *h) {
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* ---- damaged ones ---- */

START_TEST(test_I1_replaced) {
        struct harness *h = draw();
        struct reader reader;

        for (size_t i = 0; i < N_DAMAGED; i++)
                cut_in_half(h, damaged[i]);
        start(h, "    max_errors: 0.003\n");
        reader = reader_open_at(h, "images", 0, 0);
        for (int epoch = 0; epoch < 3; epoch++)
                ck_assert_uint_eq(read_epoch(&reader, NULL), N_DAMAGED);
        ck_assert_uint_eq(number_of(h, "bad_samples"), N_DAMAGED);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        for (size_t i = 0; i < N_DAMAGED; i++)
                expect_listed(h, damaged[i], "the JPEG is damaged: truncated");
        ck_assert_uint_eq(count_in_log(h, "is replaced: "), N_DAMAGED); /* once each */
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_I1_too_many) {
        struct harness *h = draw();
        struct pinfeed_batch *batch;
        struct reader reader;
        int r;

        for (size_t i = 0; i < N_DAMAGED; i++)
                cut_in_half(h, damaged[i]);
        start(h, "    max_errors: 0.001\n");
        reader = reader_open_at(h, "images", 0, 0);
        while ((r = pinfeed_next(reader.job, &batch)) >= 0) {
                if (r == 0)
                        continue;
                reader.row += pinfeed_batch_rows(batch);
                pinfeed_batch_release(batch);
        }
        ck_assert_msg(r == -EIO, "%d, %s", r, pinfeed_error(reader.job));
        harness_expect_words(pinfeed_error(reader.job),
                             "3 of 1,000 samples seen so far are bad, max_errors 0.001 allows 1");
        harness_expect_words(pinfeed_error(reader.job), "class_1/00023.jpg"); /* the first one */
        ck_assert(harness_log_contains(h, "3 of 1,000 samples seen so far are bad"));
        ck_assert_uint_ge(reader.row, IMAGES - 8 * BATCH); /* judged after 1,000 rows were made */
        reader_close(&reader);
        expect_listed(h, damaged[0], "the JPEG is damaged: truncated"); /* as long as nobody comes */
        for (size_t i = 0; i < N_DAMAGED; i++)
                remove_image(h, damaged[i]);
        reader = reader_open_at(h, "images", 0, 0);
        ck_assert_uint_eq(reader.info.samples, IMAGES - N_DAMAGED);
        ck_assert_uint_eq(number_of(h, "bad_samples"), 0);
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_I1_fail) {
        struct harness *h = draw();
        struct reader reader, other;
        const char *text;

        for (size_t i = 0; i < N_DAMAGED; i++)
                cut_in_half(h, damaged[i]);
        start(h, "    on_error: fail\n");
        other = reader_open_at(h, "images", 1, 500);
        reader_read(&other, 1);
        reader = reader_open_at(h, "images", 0, 100);
        text = reader_expect_failure(&reader, clock_ns());
        harness_expect_words(text, "sample 123 (class_1/00023.jpg)");
        harness_expect_words(text, "the JPEG is damaged: truncated");
        reader_read(&other, 20);
        expect_listed(h, 123, "truncated");
        reader_close(&reader);
        reader_close(&other);
        finish(h);
}
END_TEST

/* ---- files that change during the epoch ---- */

START_TEST(test_A4_file_cut_during_an_epoch) {
        struct harness *h = draw();
        struct reader reader;
        uint64_t where = 0;
        pid_t before[8], after[8];
        size_t n;

        start(h, "    max_errors: 0.003\n");
        reader = reader_open_at(h, "images", 0, 0);
        reader_read(&reader, 10);
        cut_in_half(h, 700); /* 8 slots hold 80 rows: nobody has read it */
        n = harness_worker_pids(h, before, 8);
        ck_assert_uint_eq(read_epoch(&reader, &where), 1);
        ck_assert_uint_eq(where, 700);
        expect_listed(h, 700, "the JPEG is damaged: truncated");
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        ck_assert_uint_eq(harness_worker_pids(h, after, 8), n);
        ck_assert_int_eq(memcmp(before, after, n * sizeof(pid_t)), 0);
        ck_assert_uint_eq(read_epoch(&reader, &where), 1);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* What cannot be read is no bad sample: nobody may train on something else without being told. */
static void expect_read_error(struct harness *h, unsigned image, const char *words) {
        struct reader reader, other;
        char name[64], sample[128];
        const char *text;

        name_image(name, image);
        snprintf(sample, sizeof(sample), "sample %u (%s)", image, name);
        other = reader_open_at(h, "images", 1, image + 200);
        reader_read(&other, 1);
        reader = reader_open_at(h, "images", 0, image - 50);
        text = reader_expect_failure(&reader, clock_ns());
        harness_expect_words(text, sample);
        harness_expect_words(text, words);
        ck_assert(harness_log_contains(h, sample));
        reader_read(&other, 8); /* another stream, and other rows of this one, notice nothing */
        reader_close(&reader);
        reader_close(&other);
        reader = reader_open_at(h, "images", 0, image + 10 - image % 10);
        reader_read(&reader, 4);
        reader_close(&reader);
        ck_assert_uint_eq(number_of(h, "worker_deaths"), 0);
        ck_assert_uint_eq(count_in_log(h, "is replaced: "), 0);
}

START_TEST(test_I12_file_removed) {
        struct harness *h = draw();
        char path[HARNESS_PATH_MAX];
        struct reader reader;

        start(h, "");
        reader = reader_open_at(h, "images", 2, 0);
        reader_read(&reader, 4);
        path_of(h, 400, path);
        ck_assert_int_eq(unlink(path), 0);
        expect_read_error(h, 400, "No such file or directory");
        reader_read(&reader, 4);
        reader_close(&reader);
        finish(h);
}
END_TEST

START_TEST(test_I12_file_without_rights) {
        struct harness *h;
        char path[HARNESS_PATH_MAX];
        int fd;

        h = draw();
        path_of(h, 400, path);
        ck_assert_int_eq(chmod(path, 0), 0);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
                close(fd);
                harness_skip("this user may read everything");
        } else {
                start(h, "");
                expect_read_error(h, 400, "Permission denied");
        }
        harness_free(h);
}
END_TEST

START_TEST(test_I12_file_becomes_a_directory) {
        struct harness *h = draw();
        char path[HARNESS_PATH_MAX];
        struct reader reader;
        uint64_t where = 0;

        start(h, "    max_errors: 0.003\n");
        reader = reader_open_at(h, "images", 0, 0);
        reader_read(&reader, 10);
        path_of(h, 700, path);
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        ck_assert_uint_eq(read_epoch(&reader, &where), 1);
        ck_assert_uint_eq(where, 700);
        expect_listed(h, 700, "not a regular file");
        reader_close(&reader);
        finish(h);
}
END_TEST

/* Another picture under the same name is that sample from then on. */
START_TEST(test_I12_file_moved_over) {
        struct harness *h = draw();
        char from[HARNESS_PATH_MAX], to[HARNESS_PATH_MAX];
        struct reader reader;

        start(h, "");
        reader = reader_open_at(h, "images", 0, 0);
        reader_read(&reader, 10);
        path_of(h, 20, from);
        snprintf(to, sizeof(to), "%s/spare.jpg", harness_directory(h));
        ck_assert_int_eq(link(from, to), 0);
        memcpy(from, to, sizeof(from));
        path_of(h, 700, to);
        ck_assert_int_eq(rename(from, to), 0);
        ck_assert_uint_eq(read_epoch(&reader, NULL), 0);
        ck_assert_uint_eq(number_of(h, "bad_samples"), 0);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- no mapping of data files ---- */

static void expect_no_data_mapped(pid_t pid) {
        char path[64], line[HARNESS_PATH_MAX + 128];
        FILE *maps;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
        maps = fopen(path, "re");
        ck_assert_ptr_nonnull(maps);
        while (fgets(line, sizeof(line), maps))
                ck_assert_msg(!strstr(line, ".jpg"), "a data file is mapped: %s", line);
        fclose(maps);
}

START_TEST(test_I11_mappings_do_not_grow) {
        size_t before[8], n;
        struct harness *h = draw();
        struct reader reader;
        pid_t pids[8];

        start(h, "");
        reader = reader_open_at(h, "images", 0, 0);
        read_epoch(&reader, NULL);
        n = harness_worker_pids(h, pids, 8);
        ck_assert_uint_eq(n, 2);
        for (size_t i = 0; i < n; i++)
                before[i] = harness_mappings(pids[i]);
        for (int epoch = 0; epoch < 4; epoch++) {
                read_epoch(&reader, NULL);
                for (size_t i = 0; i < n; i++)
                        expect_no_data_mapped(pids[i]);
        }
        for (size_t i = 0; i < n; i++)
                ck_assert_uint_le(harness_mappings(pids[i]), before[i]);
        reader_close(&reader);
        finish(h);
}
END_TEST

/* ---- sizes ---- */

static void write_ramp(struct harness *h, unsigned long long bytes, unsigned long long ring) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 100, bytes: %llu}\n"
                             "    batch_size: 1\n"
                             "    ring: %llu\n"
                             "    workers: 2\n",
                             bytes, ring);
}

/* A slot's bytes as the daemon lays it out: a sample's, its number, its flag. */
static unsigned long long slot_bytes(unsigned long long bytes) {
        struct harness *h = harness_new();
        unsigned long long size;

        write_ramp(h, bytes, 64 << 20);
        harness_start(h);
        size = (unsigned long long)harness_status_number(h, "pipelines/ramp/slot_bytes");
        finish(h);
        return size;
}

static unsigned long long round_up(unsigned long long bytes) {
        unsigned long long page = (unsigned long long)sysconf(_SC_PAGESIZE);

        return (bytes + page - 1) / page * page;
}

/* A ring of as many bytes as its least slots need is right; one byte less, and a sample of one byte more, is
 * refused with both numbers. */
START_TEST(test_A14_sample_and_ring) {
        const unsigned long long bytes = 1 << 20;
        unsigned long long stride = round_up(slot_bytes(bytes)), least = 2;
        char number[32], *text = NULL;
        struct harness *h;
        struct reader reader;
        int exit_code;

        for (; least <= 8; least++) { /* the fewest slots are the daemon's business */
                h = harness_new();
                write_ramp(h, bytes, least * stride);
                text = NULL;
                if (harness_run(h, SOON_MS, &text,
                                (const char *[]){"pinfeedd", "--check", "--config", harness_config_path(h),
                                                 NULL}) == 0)
                        break;
                free(text);
                harness_free(h);
        }
        ck_assert_uint_le(least, 8);
        free(text);
        harness_start(h);
        reader_open(&reader, h, "ramp", 1);
        reader_read_epochs(&reader, 2);
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        write_ramp(h, bytes, least * stride - 1);
        text = harness_start_expect_failure(h, &exit_code);
        ck_assert_int_eq(exit_code, 1);
        snprintf(number, sizeof(number), "%llu", least * stride - 1);
        harness_expect_words(text, "pinfeed.yaml:");
        harness_expect_words(text, number);
        free(text);
        write_ramp(h, round_up(bytes) + stride - bytes, least * stride); /* no longer fits */
        text = harness_start_expect_failure(h, &exit_code);
        ck_assert_int_eq(exit_code, 1);
        snprintf(number, sizeof(number), "%llu", least * stride);
        harness_expect_words(text, number);
        free(text);
        harness_free(h);
}
END_TEST

/* No bytes at all, and one: both are samples like any other. */
START_TEST(test_A14_smallest_sample) {
        for (uint64_t bytes = 0; bytes <= 1; bytes++) {
                struct harness *h = harness_new();
                struct reader reader;

                write_ramp(h, bytes, 1 << 20);
                harness_start(h);
                reader_open(&reader, h, "ramp", 1);
                reader_read_epochs(&reader, 2);
                reader_close(&reader);
                finish(h);
        }
}
END_TEST

int main(void) {
        Suite *suite = suite_create("I-samples");
        TCase *tcase = tcase_create("I");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_I1_replaced);
        tcase_add_test(tcase, test_I1_too_many);
        tcase_add_test(tcase, test_I1_fail);
        tcase_add_test(tcase, test_A4_file_cut_during_an_epoch);
        tcase_add_test(tcase, test_I12_file_removed);
        tcase_add_test(tcase, test_I12_file_without_rights);
        tcase_add_test(tcase, test_I12_file_becomes_a_directory);
        tcase_add_test(tcase, test_I12_file_moved_over);
        tcase_add_test(tcase, test_I11_mappings_do_not_grow);
        tcase_add_test(tcase, test_A14_sample_and_ring);
        tcase_add_test(tcase, test_A14_smallest_sample);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
