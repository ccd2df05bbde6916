/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases B: descriptors, sockets, handles.
 *
 * The job of these cases is this process, under the same limit of descriptors as the daemon. Descriptors are
 * counted in /proc, in daemon, workers and job, once the steady state is reached and again at the end: equal,
 * not merely few. On a busy machine "steady" is a matter of looking more than once: whoever has not had a CPU
 * since has not yet closed what it is going to close.
 *
 * Bytes on a socket are counted by a relay between libpinfeed and the daemon: it passes records and
 * descriptors on unread and adds up lengths. So both ends are the real ones. */

#include "base/clock.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "proto/runtime.h"
#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        DESCRIPTORS = 64, /* the limit of case B1 */
        WORKERS = 2,
        SETTLE_MS = 10000,
        LOOKS = 5,
        LOOK_US = 10000,
};

static void write_config(struct harness *h, unsigned samples, unsigned bytes, unsigned batch_size,
                         unsigned slots) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %u, bytes: %u}\n"
                             "    batch_size: %u\n"
                             "    slots: %u\n"
                             "    lookahead: 1\n" /* the ring may hold more than an epoch */
                             "    workers: %d\n",
                             samples, bytes, batch_size, slots, WORKERS);
}

/* ---- counting descriptors ---- */

struct counted {
        pid_t pid;
        size_t descriptors;
};

struct census {
        struct counted all[WORKERS + 2];
        size_t n;
};

static void count_all(struct census *census) {
        for (size_t i = 0; i < census->n; i++)
                census->all[i].descriptors = harness_descriptors(census->all[i].pid);
}

static bool is_as_before(struct harness *h, void *context) {
        struct census before = *(const struct census *)context, now = before;

        count_all(&now);
        for (size_t i = 0; i < now.n; i++)
                if (now.all[i].descriptors != before.all[i].descriptors)
                        return false;
        return true;
}

static bool all_have_worked(struct harness *h, void *context) {
        json_t *status = harness_status(h), *workers = json_object_get(status, "workers"), *worker;
        bool have = json_array_size(workers) == WORKERS;
        size_t i;

        json_array_foreach(workers, i, worker) have =
                have && json_number_value(json_object_get(worker, "rows")) > 0;
        json_decref(status);
        return have;
}

/* Looks alike so many times in a row? Then also a daemon that had to wait for a CPU has closed the connection
 * which asked for the status. */
static bool has_settled(struct harness *h, void *context) {
        for (int look = 0; look < LOOKS; look++) {
                usleep(LOOK_US);
                if (!is_as_before(h, context)) {
                        count_all(context);
                        return false;
                }
        }
        return true;
}

/* A worker that is still starting holds what it was sent; one that has prepared a row is done with that. */
static void take_census(struct harness *h, struct census *census) {
        pid_t pids[WORKERS];
        size_t n = harness_worker_pids(h, pids, WORKERS);

        ck_assert_uint_eq(n, WORKERS);
        census->n = 0;
        for (size_t i = 0; i < n; i++)
                census->all[census->n++].pid = pids[i];
        census->all[census->n++].pid = harness_daemon_pid(h);
        census->all[census->n++].pid = getpid();
        harness_wait(h, "a row of each worker", all_have_worked, NULL, SETTLE_MS);
        count_all(census);
        harness_wait(h, "a steady number of descriptors", has_settled, census, SETTLE_MS);
}

static void limit_own_descriptors(void) {
        struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};

        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ---- B1 ---- */

enum {
        KEPT = 4,
        OF_EACH = 100,
};

struct kept {
        struct pinfeed_batch *batch;
        uint32_t epoch;
        uint64_t row;
};

static void give_back(struct reader *reader, struct kept *kept) {
        if (!kept->batch)
                return;
        reader_check(reader, kept->batch, kept->epoch, kept->row);
        reader_must(pinfeed_batch_release(kept->batch) == 0, "a kept batch could not be released");
        kept->batch = NULL;
}

/* The first four of each hundred are kept until their successors come, and must be whole then. */
static void read_keeping(struct reader *reader, uint64_t batches) {
        struct kept kept[KEPT] = {};

        for (uint64_t i = 0; i < batches; i++) {
                struct pinfeed_batch *batch = reader_next(reader);

                if (i % OF_EACH < KEPT) {
                        give_back(reader, &kept[i % OF_EACH]);
                        kept[i % OF_EACH] =
                                (struct kept){batch, pinfeed_batch_epoch(batch), pinfeed_batch_row(batch)};
                } else {
                        reader_must(pinfeed_batch_release(batch) == 0, "release");
                }
        }
        for (unsigned i = 0; i < KEPT; i++)
                give_back(reader, &kept[i]);
}

START_TEST(test_B1_keep_batches_with_few_descriptors) {
        uint64_t batches = harness_quick() ? 10000 : 100000;
        struct harness *h = harness_new();
        struct census census;
        struct reader reader;

        limit_own_descriptors();
        harness_limit_descriptors(h, DESCRIPTORS);
        write_config(h, 2000, 64, 4, 16);
        harness_start(h);
        reader_open(&reader, h, "ramp", 8);
        read_keeping(&reader, OF_EACH);
        take_census(h, &census);
        read_keeping(&reader, batches);
        harness_wait(h, "the first number of descriptors", is_as_before, &census, SETTLE_MS);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

enum {
        MANY_HELD = 1000,
        MANY_SLOTS = 1002,
        MANY_ROUNDS = 3,
        MANY_STRIDE =
                7, /* batches are released in steps of this: it has no factor in common with MANY_HELD */
};

/* More handles than a socket's buffer takes: the rest waits in the daemon, and all come in order. */
START_TEST(test_B1_hold_a_thousand_batches) {
        static struct pinfeed_batch *held[MANY_HELD];
        struct harness *h = harness_new();
        struct pinfeed_batch *another;
        struct census census;
        struct reader reader;

        limit_own_descriptors();
        harness_limit_descriptors(h, DESCRIPTORS);
        write_config(h, 1111, 64, 1, MANY_SLOTS);
        harness_start(h);
        reader_open(&reader, h, "ramp", MANY_HELD);
        ck_assert_uint_eq(reader.info.max_held_batches, MANY_HELD);
        take_census(h, &census);
        for (int round = 0; round < MANY_ROUNDS; round++) {
                uint64_t row = reader.row;
                uint32_t epoch = reader.epoch;

                held[0] = reader_next(&reader); /* who has asked for one is given all */
                harness_wait_number(h, "jobs/0/held", MANY_HELD, 10000);
                for (unsigned i = 1; i < MANY_HELD; i++)
                        held[i] = reader_next(&reader);
                ck_assert_int_eq(pinfeed_next_timeout(reader.job, &another, 0), -EBUSY);
                reader_check(&reader, held[0], epoch, row);
                for (unsigned i = 0; i < MANY_HELD; i++)
                        reader_must(pinfeed_batch_release(held[i * MANY_STRIDE % MANY_HELD]) == 0,
                                    "release %u", i);
        }
        reader_read(&reader, 2 * MANY_SLOTS);
        harness_wait(h, "the first number of descriptors", is_as_before, &census, SETTLE_MS);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

/* ---- B3 ---- */

static void in_runtime_directory(const struct harness *h, const char *name, char path[128]) {
        snprintf(path, 128, "%s/%s", harness_runtime_directory(h), name);
}

static void read_some(struct harness *h) {
        struct reader reader;

        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 10);
        reader_close(&reader);
}

START_TEST(test_B3_stale_socket_is_replaced) {
        static const char *const names[] = {RUNTIME_JOB_SOCKET, RUNTIME_CONTROL_SOCKET};
        struct harness *h = harness_new();
        char path[128];
        struct stat facts;

        write_config(h, 20, 64, 4, 4);
        harness_start(h);
        read_some(h);
        harness_kill(h);
        for (unsigned i = 0; i < 2; i++) {
                in_runtime_directory(h, names[i], path);
                ck_assert_int_eq(lstat(path, &facts), 0);
                ck_assert(S_ISSOCK(facts.st_mode));
        }
        harness_start(h);
        read_some(h);
        harness_stop(h, SIGTERM, 0);
        for (unsigned i = 0; i < 2; i++) {
                in_runtime_directory(h, names[i], path);
                ck_assert_int_eq(lstat(path, &facts), -1);
        }
        harness_free(h);
}
END_TEST

START_TEST(test_B3_second_daemon_is_refused) {
        struct harness *h = harness_new();
        const char *const argv[] = {
                "pinfeedd", "--config", harness_config_path(h), "--runtime-dir", harness_runtime_directory(h),
                NULL};
        struct reader reader;
        char *output, pid[32];

        write_config(h, 20, 64, 4, 4);
        harness_start(h);
        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 3);
        ck_assert_int_eq(harness_run(h, 5000, &output, argv), 1);
        snprintf(pid, sizeof(pid), "pid %d", (int)harness_daemon_pid(h));
        ck_assert_msg(strstr(output, pid) != NULL, "no \"%s\" in: %s", pid, output);
        free(output);
        reader_read(&reader, 20);
        read_some(h);
        reader_close(&reader);
        harness_free(h);
}
END_TEST

static void put_file(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        close(fd);
}

static void expect_file_in_the_way(struct harness *h, const char *path) {
        struct stat before, after;
        char text[16] = "";
        char *output;
        int fd;

        put_file(path, "mine");
        ck_assert_int_eq(lstat(path, &before), 0);
        output = harness_start_expect_failure(h, NULL);
        ck_assert_msg(strstr(output, path) != NULL, "no %s in: %s", path, output);
        free(output);
        ck_assert_int_eq(lstat(path, &after), 0);
        ck_assert(after.st_ino == before.st_ino && after.st_mode == before.st_mode &&
                  after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
                  after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_int_eq(read(fd, text, sizeof(text) - 1), 4);
        close(fd);
        ck_assert_str_eq(text, "mine");
        ck_assert_int_eq(unlink(path), 0);
}

START_TEST(test_B3_file_in_the_way_is_left_alone) {
        static const char *const names[] = {RUNTIME_JOB_SOCKET, RUNTIME_CONTROL_SOCKET};
        struct harness *h = harness_new();
        char path[128];

        write_config(h, 20, 64, 4, 4);
        ck_assert_int_eq(mkdir(harness_runtime_directory(h), 0700), 0);
        for (unsigned i = 0; i < 2; i++) {
                in_runtime_directory(h, names[i], path);
                expect_file_in_the_way(h, path);
        }
        harness_start(h);
        read_some(h);
        harness_free(h);
}
END_TEST

/* ---- B7 ---- */

enum {
        PER_BATCH_MOST = 512,    /* the case */
        PER_BATCH_DESIGN = 128,  /* DESIGN.md, A batch's life: so many, */
        PER_SEGMENT_DESIGN = 16, /* and so many a segment */
};

/* One record on, with its descriptors. False: the sender is gone. */
static bool pass_on(int from, int to, uint64_t *bytes) {
        static uint8_t record[SEQPACKET_RECORD_MAX];
        int fds[SEQPACKET_FDS_MAX];
        size_t length, n_fds;
        struct pollfd room = {.fd = to, .events = POLLOUT};
        int r = seqpacket_receive(from, record, sizeof(record), &length, fds, &n_fds);

        if (r == SEQPACKET_E_AGAIN)
                return true;
        if (r != 0)
                return false;
        while ((r = seqpacket_send(to, record, length, fds, n_fds)) == -EAGAIN)
                poll(&room, 1, -1);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        *bytes += length;
        return r == 0;
}

/* Serves one job at `listener`; how many bytes went either way. */
static uint64_t relay_job(int listener, const char *daemon_socket) {
        struct pollfd waiting = {.fd = listener, .events = POLLIN};
        uint64_t bytes = 0;
        int job, daemon;
        bool open = true;

        reader_must(poll(&waiting, 1, READER_TIMEOUT_MS) == 1, "the job did not connect");
        job = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        daemon = seqpacket_connect(daemon_socket);
        reader_must(job >= 0 && daemon >= 0, "the relay could not connect");
        while (open) {
                struct pollfd ends[] = {{.fd = job, .events = POLLIN}, {.fd = daemon, .events = POLLIN}};

                reader_must(poll(ends, 2, READER_TIMEOUT_MS * harness_slowdown()) > 0, "nothing to relay");
                if (ends[0].revents)
                        open = pass_on(job, daemon, &bytes);
                if (open && ends[1].revents)
                        open = pass_on(daemon, job, &bytes);
        }
        close(job);
        close(daemon);
        return bytes;
}

static void __attribute__((noreturn))
run_relayed_job(const char *directory, uint64_t start_row, uint64_t batches) {
        struct pinfeed_attach attach = {.size = sizeof(attach),
                                        .pipeline = "ramp",
                                        .runtime_dir = directory,
                                        .start_row = start_row,
                                        .timeout_ms = READER_TIMEOUT_MS * (uint32_t)harness_slowdown()};
        struct reader reader;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        reader_open_with(&reader, &attach);
        reader_read(&reader, batches);
        reader_close(&reader);
        _exit(0);
}

/* Bytes that a job costs which reads so many batches. */
static uint64_t count_bytes(struct harness *h, uint64_t start_row, uint64_t batches) {
        char directory[100], path[128], daemon_socket[128];
        uint64_t bytes;
        int listener, status;
        pid_t job;

        snprintf(directory, sizeof(directory), "%s/relay", harness_directory(h));
        mkdir(directory, 0700);
        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_JOB_SOCKET);
        unlink(path);
        in_runtime_directory(h, RUNTIME_JOB_SOCKET, daemon_socket);
        listener = seqpacket_listen(path, 1);
        ck_assert_int_ge(listener, 0);
        job = fork();
        ck_assert_int_ge(job, 0);
        if (job == 0)
                run_relayed_job(directory, start_row, batches);
        bytes = relay_job(listener, daemon_socket);
        close(listener);
        ck_assert_int_eq(waitpid(job, &status, 0), job);
        ck_assert_int_eq(status, 0);
        return bytes;
}

/* Attaching costs the same whatever is read, so the difference of two jobs is the batches'. */
static void check_bytes_per_batch(struct harness *h, uint64_t start_row, unsigned segments) {
        uint64_t few = 10, many = 210;
        uint64_t bytes = count_bytes(h, start_row, many) - count_bytes(h, start_row, few);
        /* Handles of batches that were prefetched and not read differ by some at the end. */
        uint64_t per_batch = bytes / (many - few);

        ck_assert_uint_gt(per_batch, 32);
        ck_assert_uint_lt(per_batch, PER_BATCH_MOST);
        ck_assert_uint_le(per_batch, PER_BATCH_DESIGN + PER_SEGMENT_DESIGN * segments);
}

START_TEST(test_B7_few_bytes_per_batch) {
        static const struct {
                unsigned bytes, batch_size;
        } shapes[] = {{1, 1}, {4096, 16}, {262144, 16}, {16, 20000}};
        struct harness *h = harness_new();

        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
                unsigned batch_size = shapes[i].batch_size;

                write_config(h, 4 * batch_size, shapes[i].bytes, batch_size, 8);
                harness_start(h);
                check_bytes_per_batch(h, 0, 1);
                if (batch_size > 1)
                        check_bytes_per_batch(h, batch_size / 2, 2);
                harness_stop(h, SIGTERM, 0);
        }
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("B-descriptors");
        TCase *tcase = tcase_create("B");

        tcase_set_timeout(tcase, 120 * harness_slowdown());
        tcase_add_test(tcase, test_B1_keep_batches_with_few_descriptors);
        tcase_add_test(tcase, test_B1_hold_a_thousand_batches);
        tcase_add_test(tcase, test_B3_stale_socket_is_replaced);
        tcase_add_test(tcase, test_B3_second_daemon_is_refused);
        tcase_add_test(tcase, test_B3_file_in_the_way_is_left_alone);
        tcase_add_test(tcase, test_B7_few_bytes_per_batch);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
