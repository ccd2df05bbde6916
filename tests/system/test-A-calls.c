/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case A12: once every slot has been seen, a batch costs no system call on memory, neither in the daemon nor
 * in the workers nor in the job. And what of cases L11 and L12 can be counted, whatever the machine does
 * meanwhile: how many system calls the daemon makes for a batch that comes alone, and how many
 * records it sends for it, or for one of many that come together. (Their times are measured by `script/bench
 * handover` and `script/bench small`.)
 *
 * strace is attached to all of them after a warm-up and detached before the end, so start and end, which may
 * map and reserve, are not in its sight. That it saw the batches go by is asserted too: they are the only
 * messages there. The job is a process of its own, since this one allocates memory as it likes.
 *
 * The long run of the case: PINFEED_TEST_LONG=1. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"
#include "tests/system/rings.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is traced; shm_open shows as openat. */
#define TRACED "trace=sendmsg,recvmsg,open,openat,mmap,munmap,mremap,ftruncate,fallocate,memfd_create,madvise"

/* What of it may not come. */
#define MEMORY_CALLS                                                                                         \
        " mmap(", " munmap(", " mremap(", " ftruncate(", " fallocate(", " memfd_create(", " madvise("

#define STRACE "/usr/bin/strace"

enum {
        TRACED_MAX = 8,
        WARM_UP_BATCHES = 32,
        WARM_UP_MS = 10000,
        SLOTS = 8,
};

/* A job in a process of its own. It reads as many batches as it is told to, says so, and ends when told 0. */
struct traced_job {
        pid_t pid;
        int said,
                heard; /* ends of pipes: what it says comes out of `said`, what it hears goes into `heard` */
};

static void __attribute__((noreturn))
run_traced_job(const struct harness *h, const char *pipeline, int say, int hear) {
        struct reader reader;
        uint64_t batches;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        reader_open(&reader, h, pipeline, 2);
        while (read(hear, &batches, sizeof(batches)) == sizeof(batches) && batches > 0) {
                reader_read(&reader, batches);
                if (write(say, &batches, sizeof(batches)) != sizeof(batches))
                        _exit(2);
        }
        reader_close(&reader);
        _exit(0);
}

static void start_traced_job(struct traced_job *job, const struct harness *h, const char *pipeline) {
        int said[2], heard[2];

        ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
        ck_assert_int_eq(pipe2(heard, O_CLOEXEC), 0);
        job->pid = fork();
        ck_assert_int_ge(job->pid, 0);
        if (job->pid == 0) {
                close(said[0]);
                close(heard[1]);
                run_traced_job(h, pipeline, said[1], heard[0]);
        }
        close(said[1]);
        close(heard[0]);
        job->said = said[0];
        job->heard = heard[1];
}

static void let_read(const struct traced_job *job, uint64_t batches) {
        uint64_t done;

        ck_assert_int_eq(write(job->heard, &batches, sizeof(batches)), sizeof(batches));
        ck_assert_msg(read(job->said, &done, sizeof(done)) == sizeof(done), "the traced job ended early");
}

static void end_traced_job(struct traced_job *job) {
        uint64_t none = 0;
        int status;

        ck_assert_int_eq(write(job->heard, &none, sizeof(none)), sizeof(none));
        ck_assert_int_eq(waitpid(job->pid, &status, 0), job->pid);
        ck_assert_int_eq(status, 0);
        close(job->said);
        close(job->heard);
}

/* Until job and workers have each seen every slot. */
static void warm_up(struct harness *h, const struct traced_job *job, const pid_t *pids, size_t n) {
        uint64_t deadline = clock_ns() + (uint64_t)WARM_UP_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        uint64_t ring;
        bool warm = false;

        while (!warm) {
                ck_assert_msg(clock_ns() < deadline, "not every worker has seen every slot after %d ms",
                              WARM_UP_MS);
                let_read(job, WARM_UP_BATCHES);
                ring = rings_only(h).bytes;
                warm = true;
                for (size_t i = 0; i < n; i++)
                        warm = warm && rings_resident_bytes(pids[i]) >= ring;
        }
}

static bool is_traced(struct harness *h, void *context) {
        char path[64], line[256];
        bool traced = false;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)*(const pid_t *)context);
        file = fopen(path, "re");
        ck_assert_ptr_nonnull(file);
        while (fgets(line, sizeof(line), file))
                traced |= !strncmp(line, "TracerPid:", 10) && atoi(line + 10) > 0;
        fclose(file);
        return traced;
}

/* All of them at once, with their threads; 0 if that is not allowed here. */
static pid_t start_strace(struct harness *h, const char *output, const char *traced, const pid_t *pids,
                          size_t n) {
        const char *argv[16 + 2 * TRACED_MAX] = {STRACE, "-f", "-qq", "-s", "64", "-o", output, "-e", traced};
        char texts[TRACED_MAX][16], messages[128];
        pid_t strace;

        for (size_t i = 0; i < n; i++) {
                snprintf(texts[i], sizeof(texts[i]), "%d", (int)pids[i]);
                argv[9 + 2 * i] = "-p";
                argv[10 + 2 * i] = texts[i];
        }
        snprintf(messages, sizeof(messages), "%s.messages", output);
        strace = harness_spawn(h, messages, argv);
        for (size_t i = 0; i < n; i++)
                harness_wait(h, "strace", is_traced, (void *)&pids[i], 5000);
        return strace;
}

/* Opening a file of the data set is reading, not memory. */
static bool is_forbidden(const char *line) {
        static const char *const names[] = {MEMORY_CALLS};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (strstr(line, names[i]))
                        return true;
        return strstr(line, "open") && strstr(line, "/dev/shm");
}

/* Counts calls that carry messages, to show that the trace saw the batches go by. */
static uint64_t check_trace(const char *output) {
        FILE *file = fopen(output, "re");
        uint64_t messages = 0;
        char line[1024];

        ck_assert_ptr_nonnull(file);
        while (fgets(line, sizeof(line), file)) {
                messages += (strstr(line, "sendmsg") || strstr(line, "recvmsg")) && strstr(line, " = ");
                if (is_forbidden(line))
                        ck_abort_msg("in the steady state: %s", line);
        }
        fclose(file);
        return messages;
}

static void trace_batches(struct harness *h, const char *pipeline, uint64_t batches) {
        pid_t pids[TRACED_MAX];
        struct traced_job job;
        char output[100];
        pid_t strace;
        size_t n;

        snprintf(output, sizeof(output), "%s/trace", harness_directory(h));
        start_traced_job(&job, h, pipeline);
        let_read(&job, WARM_UP_BATCHES);
        n = harness_worker_pids(h, pids, TRACED_MAX - 2);
        pids[n++] = job.pid;
        warm_up(h, &job, pids, n);
        pids[n++] = harness_daemon_pid(h);
        strace = start_strace(h, output, TRACED, pids, n);
        let_read(&job, batches);
        kill(strace, SIGTERM);
        harness_join(h, strace, 5000);
        /* A handle and a release on either side of the socket, and the workers' besides. */
        ck_assert_uint_ge(check_trace(output), 4 * batches);
        end_traced_job(&job);
}

/* 4 rows of 256 KiB; and photographs, whose decoding takes memory and gives it back. */
static void write_traced_config(struct harness *h) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 400, bytes: 256K}\n"
                             "    batch_size: 4\n"
                             "    slots: %d\n"
                             "    lookahead: 1\n"
                             "    workers: 2\n"
                             "  photos:\n"
                             "    source: {type: imagefolder, path: photos}\n"
                             "    transforms: [{random_resized_crop: {size: 64}}, random_horizontal_flip]\n"
                             "    batch_size: 4\n"
                             "    slots: %d\n"
                             "    lookahead: 1\n" /* so that all slots are used, over the ends of epochs */
                             "    workers: 2\n",
                             SLOTS, SLOTS);
}

START_TEST(test_A12_no_memory_calls_per_batch) {
        uint64_t batches = getenv("PINFEED_TEST_LONG") ? 10000 : harness_quick() ? 100 : 1000;
        struct harness *h;
        char photos[100];

        if (access(STRACE, X_OK) < 0) {
                harness_skip("no " STRACE "; script/setup installs it");
                return;
        }
        h = harness_new();
        snprintf(photos, sizeof(photos), "%s/photos", harness_directory(h));
        ck_assert_int_eq(harness_run(h, 10000, NULL,
                                     (const char *const[]){"draw-images", photos, "--classes", "2",
                                                           "--per-class", "8", "--size", "500x400", NULL}),
                         0);
        write_traced_config(h);
        harness_start(h);
        trace_batches(h, "ramp", batches);
        harness_stop(h, SIGTERM, 0);
        if (!READER_SANITIZED) { /* whose allocator maps memory as it likes */
                harness_start(h);
                trace_batches(h, "photos", batches / 4);
        }
        harness_free(h);
}
END_TEST

/* ---- L11, L12: the daemon's calls for a batch ---- */

enum {
        COUNTED = 1024, /* batches of one row, over the ends of some epochs */
        COUNTED_SAMPLES = 256,
};

static const struct {
        const char *what, *traced;
        unsigned slot_rows;
        uint32_t max_held;
        double least, most; /* calls for a batch */
} counted[] = {
        /* The daemon is woken by the worker and by the job, hears both, and tells both. */
        {"system calls for a batch that comes alone", "trace=all", 1, 2, 4, 8},
        {"records sent for a batch that comes alone", "trace=sendmsg", 1, 2, 1, 2.1},
        /* A slot that is ready makes a crowd of small batches, which share records. */
        {"records sent for a batch of a crowd of 64", "trace=sendmsg", 64, 64, 1.0 / 64, 1.0 / 8},
};

/* Calls that succeeded. */
static uint64_t count_calls(const char *output) {
        FILE *file = fopen(output, "re");
        uint64_t calls = 0;
        char line[1024];

        ck_assert_ptr_nonnull(file);
        while (fgets(line, sizeof(line), file))
                calls += strstr(line, " = ") && !strstr(line, " = -1");
        fclose(file);
        return calls;
}

/* While a job reads COUNTED batches. The rows take their time, so that the daemon is not what is waited for,
 * though strace makes it slow. */
static double calls_for_a_batch(struct harness *h, const char *traced, uint32_t max_held) {
        struct pinfeed_attach attach = reader_attach(h, "p", max_held);
        pid_t daemon = harness_daemon_pid(h), strace;
        struct reader reader;
        char output[100];

        attach.batch_size = 1;
        reader_open_with(&reader, &attach);
        reader_read(&reader, COUNTED_SAMPLES);
        snprintf(output, sizeof(output), "%s/trace", harness_directory(h));
        strace = start_strace(h, output, traced, &daemon, 1);
        reader_read(&reader, COUNTED);
        kill(strace, SIGTERM);
        harness_join(h, strace, 5000);
        reader_close(&reader);
        return (double)count_calls(output) / COUNTED;
}

START_TEST(test_L11_L12_calls_for_a_small_batch) {
        struct harness *h;
        double calls;

        if (access(STRACE, X_OK) < 0) {
                harness_skip("no " STRACE "; script/setup installs it");
                return;
        }
        h = harness_new();
        harness_write_config(
                h,
                "pipelines:\n"
                "  p:\n"
                "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 4096, delay_us: 500}\n"
                "    batch_size: %u\n"
                "    slots: %d\n"
                "    lookahead: 1\n"
                "    workers: 1\n",
                COUNTED_SAMPLES, counted[_i].slot_rows, SLOTS);
        harness_start(h);
        calls = calls_for_a_batch(h, counted[_i].traced, counted[_i].max_held);
        harness_free(h);
        printf("# the daemon: %.2f %s\n", calls, counted[_i].what);
        ck_assert_double_ge(calls, counted[_i].least); /* or the trace has not seen them */
        ck_assert_double_le(calls, counted[_i].most);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("A-calls");
        TCase *tcase = tcase_create("A");

        tcase_set_timeout(tcase, 600 * harness_slowdown());
        tcase_add_test(tcase, test_A12_no_memory_calls_per_batch);
        tcase_add_loop_test(tcase, test_L11_L12_calls_for_a_small_batch, 0,
                            sizeof(counted) / sizeof(counted[0]));
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
