/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases D and G8: jobs that come and go, that write where they may only read, that ask for what cannot be.
 *
 * What they may do and must not is in test-D-misuse.c; what talks past libpinfeed is in test-M-wire.c. The
 * ramp makes every byte of a row known, so "the other job noticed nothing" is asserted on bytes. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SAMPLES = 1000,
        BATCH = 8,
        BYTES = 1024,
        SOON_MS = 10000,
        TEXT = 1200,
        FAULTED = 42, /* exit code of a child that was stopped by the kernel, as it should */
};

static void write_config(struct harness *h, int samples, bool shuffle) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: %d}\n"
                             "    batch_size: %d\n"
                             "    slots: 32\n"
                             "    shuffle: %s\n"
                             "    workers: 2\n",
                             samples, BYTES, BATCH, shuffle ? "true" : "false");
}

static struct harness *start(int samples, bool shuffle) {
        struct harness *h = harness_new();

        write_config(h, samples, shuffle);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

static struct reader open_held(struct harness *h, uint32_t max_held) {
        struct reader reader;

        reader_open(&reader, h, "ramp", max_held);
        return reader;
}

/* ---- D7: a client writes into a batch ---- */

/* What the child below tries to do to a page of the ring. */
enum attack {
        ATTACK_STORE,
        ATTACK_MPROTECT,
        ATTACK_READ_INTO, /* by a system call: the kernel writes for it */
};

static const void *attacked;

static void on_fault(int signal, siginfo_t *info, void *context) {
        const uint8_t *at = info->si_addr, *row = attacked;

        _exit(at >= row && at < row + BYTES ? FAULTED : 1);
}

static int attack_page(enum attack attack, uint8_t *row) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        void *start = (void *)((uintptr_t)row & ~(page - 1));
        int zero[2];

        switch (attack) {
        case ATTACK_STORE:
                (*(volatile uint8_t *)row)++;
                return 0;
        case ATTACK_MPROTECT:
                return mprotect(start, page, PROT_READ | PROT_WRITE) < 0 && errno == EACCES ? FAULTED : 0;
        case ATTACK_READ_INTO:
                if (pipe(zero) < 0 || write(zero[1], "x", 1) != 1)
                        return 1;
                return read(zero[0], row, 1) < 0 && errno == EFAULT ? FAULTED : 0;
        }
        return 1;
}

/* A job of its own in a process of its own: reads a batch, then `attack`. */
static int run_attacker(struct harness *h, enum attack attack) {
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        int status;
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                sigaction(SIGSEGV, &action, NULL);
                sigaction(SIGBUS, &action, NULL);
                if (pinfeed_open(&job, &attach) < 0 || pinfeed_next(job, &batch) != 1)
                        _exit(1);
                attacked = pinfeed_batch_data(batch, 0, 1, NULL);
                _exit(attack_page(attack, (uint8_t *)attacked));
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status), "the attacker ended by signal %d", WTERMSIG(status));
        return WEXITSTATUS(status);
}

START_TEST(test_D7_client_writes_into_a_batch) {
        static const enum attack attacks[] = {ATTACK_STORE, ATTACK_MPROTECT, ATTACK_READ_INTO};
        struct harness *h = start(SAMPLES, false);
        struct reader b = open_held(h, 2);
        struct pinfeed_batch *batch = reader_next(&b);

        for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
                ck_assert_int_eq(run_attacker(h, attacks[i]), FAULTED);
        reader_check(&b, batch, 0, 0);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        reader_read_epochs(&b, 2);
        reader_close(&b);
        finish(h);
}
END_TEST

/* ---- D9: attach, read nothing, detach ---- */

static void read_ids(struct harness *h, int64_t ids[], size_t batches) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", 4);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;

        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        for (size_t i = 0; i < batches; i++) {
                ck_assert_int_eq(pinfeed_next(job, &batch), 1);
                ck_assert_uint_eq(pinfeed_batch_row(batch), i * BATCH);
                ck_assert_uint_eq(pinfeed_batch_epoch(batch), 0);
                memcpy(&ids[i * BATCH], pinfeed_batch_ids(batch, 0, NULL), BATCH * sizeof(ids[0]));
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        pinfeed_close(job);
}

START_TEST(test_D9_probing_takes_nothing) {
        int64_t before[SAMPLES], after[SAMPLES];
        struct harness *h = start(SAMPLES, true);
        struct pinfeed_attach attach = reader_attach(h, "ramp", 4);
        struct pinfeed_job *job;

        for (int round = 0; round < 5; round++) {
                ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
                /* Let it prefetch all it can, into the ring and into the job's socket. */
                harness_wait_number(h, "pipelines/ramp/slots_ready", 32, SOON_MS);
                pinfeed_close(job);
                harness_wait(h, "the end of the job", harness_no_job_is_there, NULL, SOON_MS);
        }
        read_ids(h, before, SAMPLES / BATCH);
        read_ids(h, after, SAMPLES / BATCH);
        ck_assert_int_eq(memcmp(before, after, sizeof(before)), 0);
        finish(h);

        h = start(SAMPLES, true); /* one that nobody has probed */
        read_ids(h, after, SAMPLES / BATCH);
        ck_assert_int_eq(memcmp(before, after, sizeof(before)), 0);
        finish(h);
}
END_TEST

/* ---- D10: leaving early ---- */

struct company {
        struct reader reader;
        atomic_bool stop;
        uint64_t epochs;
};

static void *keep_reading(void *context) {
        struct company *company = context;

        while (!atomic_load(&company->stop)) {
                reader_read_epochs(&company->reader, 1);
                company->epochs++;
        }
        return NULL;
}

/* Read 3 batches of an epoch, leave. Milliseconds. */
static uint64_t come_and_go(struct harness *h) {
        uint64_t begin = clock_ns();
        struct reader reader = open_held(h, 2);

        reader_read(&reader, 3);
        reader_close(&reader);
        return (clock_ns() - begin) / NS_PER_MS;
}

START_TEST(test_D10_leaving_early) {
        struct harness *h = start(SAMPLES * BATCH, false);
        struct company company = {.reader = open_held(h, 4)};
        pthread_t thread;
        int rounds = harness_quick() ? 20 : 100, late = 0;

        ck_assert_int_eq(pthread_create(&thread, NULL, keep_reading, &company), 0);
        for (int i = 0; i < rounds; i++) {
                /* What else runs on the machine may cost one round, not three one after the other. */
                late = come_and_go(h) < 50 * (uint64_t)harness_slowdown() ? 0 : late + 1;
                ck_assert_msg(late < 3, "rounds %d to %d took 50 ms and more", i - 2, i);
        }
        atomic_store(&company.stop, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        reader_close(&company.reader);
        harness_wait(h, "the end of the jobs", harness_no_job_is_there, NULL, SOON_MS);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/slots_leased"), 0);
        finish(h);
}
END_TEST

/* ---- D11: coming when others are under way ---- */

enum {
        D11_STEPS = 1000,
        D11_REACHED = 500,     /* by the job that was there before */
        D11_ROW = 250 * BATCH, /* where one wants to begin of its own accord */
};

static const struct {
        const char *name;
        uint32_t start, epoch;
        uint64_t row;
        uint64_t earliest, latest; /* batch of the epoch that comes first */
        const char *told;
} d11_starts[] = {
        /* What was handed over counts, also where the reader has not come to it. */
        {"live", PINFEED_START_LIVE, 0, 0, D11_REACHED, D11_REACHED + 4, "with 1 other job"},
        {"with the epoch under way", PINFEED_START_GIVEN, 0, 0, 0, 0, "rows behind job 1"},
        {"with the next epoch", PINFEED_START_GIVEN, 1, 0, 0, 0, "with 1 other job"},
        {"at a row", PINFEED_START_GIVEN, 0, D11_ROW, D11_ROW / BATCH, D11_ROW / BATCH, "rows behind job 1"},
};

/* Whichever it chooses, it is told before the first batch where it begins, and that is what it gets: its
 * first epoch is as long as was said, the next one whole. Only who chooses to be behind is. */
START_TEST(test_D11_a_late_job_chooses_where_it_begins) {
        struct harness *h = start(D11_STEPS * BATCH, false);
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct reader first = open_held(h, 2), late;
        uint64_t begins;

        reader_read(&first, D11_REACHED);
        attach.start = d11_starts[_i].start;
        attach.start_epoch = d11_starts[_i].epoch;
        attach.start_row = d11_starts[_i].row;
        reader_open_with(&late, &attach);
        begins = late.info.batches_per_epoch - late.info.batches_first_epoch;
        printf("# %s: batch %llu; \"%s\"\n", d11_starts[_i].name, (unsigned long long)begins,
               late.info.sharing);
        ck_assert_uint_ge(begins, d11_starts[_i].earliest);
        ck_assert_uint_le(begins, d11_starts[_i].latest);
        harness_expect_words(late.info.sharing, d11_starts[_i].told);
        ck_assert_int_eq(strstr(late.info.sharing, "behind") != NULL,
                         strstr(d11_starts[_i].told, "behind") != NULL);

        late.row =
                begins * BATCH; /* the reader asserts that it comes there, and that the epoch ends in time */
        reader_read(&late, late.info.batches_first_epoch);
        ck_assert_uint_eq(late.row, D11_STEPS * BATCH);
        reader_read_epochs(&late, 1);
        ck_assert_uint_eq(late.epoch, d11_starts[_i].epoch + 1);
        reader_read(&first, D11_STEPS - D11_REACHED); /* which has noticed nothing */
        reader_close(&late);
        reader_close(&first);
        finish(h);
}
END_TEST

/* ---- G8: fewer samples than a batch ---- */

static void expect_refused_start(struct harness *h, const char *place, const char *const words[]) {
        int exit_code;
        char *text = harness_start_expect_failure(h, &exit_code);

        ck_assert_int_eq(exit_code, 1);
        harness_expect_words(text, place);
        for (; *words; words++)
                harness_expect_words(text, *words);
        free(text);
}

static void draw(struct harness *h, const char *path) {
        char *output;

        if (harness_run(h, 20000, &output,
                        (const char *[]){"draw-images", path, "--classes", "1", "--per-class", "5", "--size",
                                         "32x32", NULL}) != 0)
                ck_abort_msg("draw-images: %s", output);
        free(output);
}

static void write_images_config(struct harness *h, const char *path, const char *last_batch) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  few:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms: [{resize: {size: [8, 8]}}]\n"
                             "    batch_size: 8\n"
                             "    last_batch: %s\n",
                             path, last_batch);
}

START_TEST(test_G8_few_samples_of_a_synthetic_source) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "few", 2);
        char text[TEXT];

        for (int samples = 0; samples <= 7; samples++) {
                char number[16];

                harness_write_config(h,
                                     "pipelines:\n"
                                     "  few:\n"
                                     "    source: {type: synthetic, samples: %d}\n"
                                     "    batch_size: 8\n"
                                     "    %s\n",
                                     samples, samples % 2 ? "last_batch: drop" : "drop_last: true");
                snprintf(number, sizeof(number), "got %d", samples);
                expect_refused_start(
                        h, "pinfeed.yaml:3:",
                        (const char *[]){"samples", samples ? "at least 8" : "from 1", number, NULL});
        }
        /* A job may ask for `drop` where the pipeline does not. */
        harness_write_config(h, "pipelines:\n"
                                "  few:\n"
                                "    source: {type: synthetic, samples: 5}\n"
                                "    batch_size: 8\n");
        harness_start(h);
        attach.last_batch = PINFEED_LAST_BATCH_DROP;
        reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
        harness_expect_words(text, "pinfeed.yaml:4");
        harness_expect_words(text, "5 samples");
        harness_expect_words(text, "8");
        finish(h);
}
END_TEST

START_TEST(test_G8_few_samples_of_a_folder) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "few", 2);
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        char path[128], text[TEXT];

        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        draw(h, path);
        write_images_config(h, path, "drop");
        harness_start(h);
        for (int i = 0; i < 2; i++) {
                reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
                harness_expect_words(text, "pinfeed.yaml:5");
                harness_expect_words(text, "5 samples");
                harness_expect_words(text, "8");
        }
        harness_stop(h, SIGTERM, 0);

        write_images_config(h, path, "short");
        harness_start(h);
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_next(job, &batch), 1);
        ck_assert_uint_eq(pinfeed_batch_rows(batch), 5);
        pinfeed_close(job);
        finish(h);
}
END_TEST

static void expect_no_samples(struct harness *h, const char *reason) {
        struct pinfeed_attach attach = reader_attach(h, "few", 2);
        char text[TEXT];

        reader_expect_refusal(&attach, -EIO, text, sizeof(text));
        harness_expect_words(text, "pinfeed.yaml:2");
        harness_expect_words(text, reason);
        harness_expect_words(text, harness_directory(h));
}

START_TEST(test_G8_no_samples_in_a_folder) {
        struct harness *h = harness_new();
        char path[128], class[160], file[192];

        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        snprintf(class, sizeof(class), "%s/class_0", path);
        snprintf(file, sizeof(file), "%s/notes.txt", class);
        write_images_config(h, path, "short");
        harness_start(h);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        expect_no_samples(h, "no class folders");
        ck_assert_int_eq(mkdir(class, 0700), 0);
        expect_no_samples(h, "no image in class folder");
        fclose(fopen(file, "we"));
        expect_no_samples(h, "no image in class folder");
        finish(h);
}
END_TEST

/* ---- epochs ---- */

/* Rows of the batches that come, 0 for the end of an epoch. */
static void expect_rows(struct pinfeed_job *job, const uint32_t *rows, size_t n) {
        struct pinfeed_batch *batch;

        for (size_t i = 0; i < n; i++) {
                int r = pinfeed_next(job, &batch);

                ck_assert_msg(r == (rows[i] > 0), "call %zu: %d, %s", i, r, pinfeed_error(job));
                if (r == 0) {
                        ck_assert_ptr_null(batch);
                        continue;
                }
                ck_assert_uint_eq(pinfeed_batch_rows(batch), rows[i]);
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
}

START_TEST(test_epochs_end_with_0) {
        static const uint32_t shorts[] = {8, 8, 4, 0, 8, 8, 4, 0, 8}, drops[] = {8, 8, 0, 8, 8, 0, 8},
                              rests[] = {6, 0, 8, 8, 4, 0, 8}, none[] = {0, 8, 8, 0};
        struct harness *h = start(20, false);
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct pinfeed_job *job;

        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        expect_rows(job, shorts, sizeof(shorts) / sizeof(shorts[0]));
        pinfeed_close(job);
        attach.start_row = 14;
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        expect_rows(job, rests, sizeof(rests) / sizeof(rests[0]));
        pinfeed_close(job);
        attach.last_batch = PINFEED_LAST_BATCH_DROP;
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        expect_rows(job, none, sizeof(none) / sizeof(none[0]));
        pinfeed_close(job);
        attach.start_row = 0;
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        expect_rows(job, drops, sizeof(drops) / sizeof(drops[0]));
        pinfeed_close(job);
        finish(h);
}
END_TEST

/* Batches of a job that starts between two slots lie in two of them, in order, with the same bytes. */
START_TEST(test_start_in_the_middle_of_a_slot) {
        struct harness *h = start(SAMPLES, false);
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct reader aligned = open_held(h, 2), odd;
        uint8_t copied[BATCH * BYTES];

        attach.start_row = 3 * BATCH + 5;
        reader_open_with(&odd, &attach);
        for (int i = 0; i < 20; i++) {
                struct pinfeed_batch *batch = reader_next(&odd); /* checks ids and bytes of all segments */
                uint32_t rows;

                ck_assert_uint_eq(pinfeed_batch_segments(batch), 2);
                ck_assert_ptr_nonnull(pinfeed_batch_data(batch, 0, 1, &rows));
                ck_assert_uint_eq(rows, BATCH - 5);
                ck_assert_ptr_nonnull(pinfeed_batch_data(batch, 1, 1, &rows));
                ck_assert_uint_eq(rows, 5);
                ck_assert_ptr_null(pinfeed_batch_data(batch, 2, 1, &rows));
                ck_assert_uint_eq(rows, 0);
                ck_assert_int_eq(pinfeed_batch_copy(batch, 1, copied, sizeof(copied)), sizeof(copied));
                for (uint32_t k = 0; k < BATCH; k++)
                        ck_assert(ramp_check(copied + (size_t)k * BYTES, BYTES, pinfeed_batch_row(batch) + k,
                                             0, NULL));
                ck_assert_int_eq(pinfeed_batch_copy(batch, 1, copied, sizeof(copied) - 1), -ENOSPC);
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
                reader_read(&aligned, 1);
        }
        reader_read(&odd, 2 * SAMPLES / BATCH); /* into later epochs, which begin at row 0 again */
        reader_close(&aligned);
        reader_close(&odd);
        finish(h);
}
END_TEST

START_TEST(test_start_beyond_the_epoch) {
        static const uint64_t rows[] = {SAMPLES, SAMPLES + 1, (uint64_t)1 << 40};
        struct harness *h = start(SAMPLES, false);
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        char text[TEXT], number[32];

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                attach.start_row = rows[i];
                reader_expect_refusal(&attach, -EINVAL, text, sizeof(text));
                snprintf(number, sizeof(number), "%llu", (unsigned long long)rows[i]);
                harness_expect_words(text, number);
                harness_expect_words(text, "1000");
        }
        attach.pipeline = "other";
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "\"other\"");
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("D-jobs");
        TCase *tcase = tcase_create("D");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_D7_client_writes_into_a_batch);
        tcase_add_test(tcase, test_D9_probing_takes_nothing);
        tcase_add_test(tcase, test_D10_leaving_early);
        tcase_add_loop_test(tcase, test_D11_a_late_job_chooses_where_it_begins, 0,
                            sizeof(d11_starts) / sizeof(d11_starts[0]));
        tcase_add_test(tcase, test_G8_few_samples_of_a_synthetic_source);
        tcase_add_test(tcase, test_G8_few_samples_of_a_folder);
        tcase_add_test(tcase, test_G8_no_samples_in_a_folder);
        tcase_add_test(tcase, test_epochs_end_with_0);
        tcase_add_test(tcase, test_start_in_the_middle_of_a_slot);
        tcase_add_test(tcase, test_start_beyond_the_epoch);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
