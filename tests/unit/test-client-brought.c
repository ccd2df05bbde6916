/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed and datasets in Python, against a daemon of our own (tests/support/fake-daemon.h): what a job
 * brings, in which order its daemons hear of it, and what is told of a sample that could not be made. */

#include "base/fd.h"
#include "client/pinfeed.h"
#include "tests/support/fake-daemon.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static ino_t inode(int fd) {
        struct stat stat;

        ck_assert_msg(fstat(fd, &stat) == 0, "descriptor %d: %s", fd, strerror(errno));
        return stat.st_ino;
}

/* How many descriptors of this process are of that file. */
static unsigned count_of(ino_t number) {
        struct stat stat;
        unsigned n = 0;

        for (int fd = 0; fd < 256; fd++)
                n += fstat(fd, &stat) == 0 && stat.st_ino == number;
        return n;
}

static int make_order(void) {
        int fd = shm_create_memfd("order");

        ck_assert_int_ge(fd, 0);
        return fd;
}

/* Not that it says anything to a daemon of ours. */
static struct pinfeed_attach defining(void) {
        return (struct pinfeed_attach){
                .definition = "pipelines: {}", .seed_given = true, .seed = 5, .reconnect_s = 60};
}

static void script_one(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

/* All comes before ATTACH, and the caller's descriptors stay the caller's. */
START_TEST(test_open) {
        struct fake fake = {.script = script_one};
        struct pinfeed_attach attach = defining();
        struct pinfeed_job *job;
        int pair[2], n_before;

        fake_start(&fake);
        ck_assert_int_eq(seqpacket_pair(pair), 0);
        attach.zygote_fd = pair[0];
        attach.zygote_pid = 41;
        attach.order_fd = make_order();
        attach.order_entries = 5;
        attach.start_epoch = 3;
        n_before = fd_count();
        job = open_job(attach);
        expect_batch(job, 3, 0, 4);
        ck_assert_str_eq(fake.heard, "DEFINE, BRING 41, ORDER 3 (5), ATTACH");
        ck_assert_uint_eq(fake.last_order.seed, 5);
        ck_assert_uint_eq(inode(fake.zygote), inode(pair[0]));
        ck_assert_uint_eq(inode(fake.order), inode(attach.order_fd));
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(count_of(inode(pair[0])), 1);
        ck_assert_uint_eq(count_of(inode(attach.order_fd)), 1);
        ck_assert_int_eq(fd_count(), n_before - 2); /* the daemon of ours has closed listener and ring */
}
END_TEST

static void script_hears_and_dies(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_releases(fake, 1);
}

/* The next daemon hears of the last zygote and the last two orders, however they came, and before ATTACH. */
START_TEST(test_reconnect) {
        struct fake first = {.script = script_hears_and_dies}, second = {.script = script_one};
        int old = make_order(), new = make_order(), order = make_order();
        struct pinfeed_attach attach = defining();
        struct pinfeed_job *job;

        fake_start(&first);
        attach.zygote_fd = old;
        attach.zygote_pid = 41;
        attach.order_fd = order;
        attach.order_entries = 4;
        job = open_job(attach);
        ck_assert_int_eq(pinfeed_give_order(job, 1, order, 5), 0);
        ck_assert_int_eq(pinfeed_give_order(job, 2, order, 6), 0);
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        ck_assert_str_eq(first.heard, "DEFINE, BRING 41, ORDER 0 (4), ATTACH, ORDER 1 (5), ORDER 2 (6)");
        ck_assert_uint_eq(count_of(inode(order)), 3);

        ck_assert_int_eq(pinfeed_dispatch(job), 0); /* notices that it is gone */
        fake_start(&second);
        ck_assert_int_eq(pinfeed_bring(job, new, 42), 0);
        ck_assert_int_eq(pinfeed_give_order(job, 2, order, 7), 0);
        ck_assert_uint_eq(count_of(inode(old)), 1);
        expect_batch(job, 0, 4, 4);
        ck_assert_str_eq(second.heard, "DEFINE, BRING 42, ORDER 1 (5), ORDER 2 (7), ATTACH");
        ck_assert_uint_eq(inode(second.zygote), inode(new));
        pinfeed_close(job);
        fake_stop(&second);
        ck_assert_uint_eq(count_of(inode(order)), 1);
}
END_TEST

static void hear_one(struct fake *fake) {
        int fds[SEQPACKET_FDS_MAX];
        size_t n_fds;

        ck_assert_int_eq(poll(&(struct pollfd){.fd = fake->socket, .events = POLLIN}, 1, FAKE_WAIT_MS), 1);
        ck_assert_int_eq(message_receive(fake->socket, &fake->message, fds, &n_fds, MESSAGE_BY_JOB, NULL), 0);
        fake_hear(fake, fds);
}

static atomic_bool was_asked;

static void script_attaches_late(struct fake *fake) {
        was_asked = true;
        while (!strstr(fake->heard, "ATTACH, BRING 42"))
                hear_one(fake);
        fake_send_attached(fake);
        script_one(fake);
}

/* A daemon may need it before it can say ATTACHED. */
START_TEST(test_while_attaching) {
        struct fake first = {.script = script_hears_and_dies};
        struct fake second = {.script = script_attaches_late, .script_attaches = true};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        int zygote = make_order();

        fake_start(&first);
        job = open_job(defining());
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        was_asked = false;
        fake_start(&second);
        while (!was_asked)
                ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        ck_assert_int_eq(pinfeed_bring(job, zygote, 42), 0);
        expect_batch(job, 0, 4, 4);
        pinfeed_close(job);
        fake_stop(&second);
}
END_TEST

static void script_next_epoch(struct fake *fake) {
        fake_send_batches(fake, 3);
        fake_wait_seek(fake);
        fake_send_sought(fake, 0, "");
        script_one(fake);
}

/* The library itself asks for the next epoch where the daemon waits for that, not before it was given. */
START_TEST(test_next_epoch) {
        struct fake fake = {.script = script_next_epoch};
        struct pinfeed_job *job;
        int order = make_order();

        fake_start(&fake);
        job = open_job(defining());
        for (unsigned row = 0; row < FAKE_SAMPLES; row += FAKE_SLOT_ROWS)
                expect_batch(job, 0, row, row == 8 ? 2 : 4);
        expect_end(job);
        ck_assert_int_eq(pinfeed_give_order(job, 1, order, 10), 0);
        expect_batch(job, 1, 0, 4);
        ck_assert_str_eq(fake.heard, "DEFINE, ATTACH, ORDER 1 (10), SEEK 1+0");
        ck_assert_uint_eq(fake.last_order.seed, 5);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

enum {
        MANY = 600, /* more than a socket has room for, fewer than a process may have on their way */
};

static atomic_bool may_go_on, seeks;

static void script_stopped(struct fake *fake) {
        fake_send_batches(fake, 1);
        while (!may_go_on)
                usleep(1000);
        usleep(50000); /* until the job waits */
        if (seeks) {
                fake_wait_seek(fake);
                ck_assert_uint_eq(fake->last_order.epoch, MANY);
                fake_send_sought(fake, 0, "");
        }
        while (fake->last_order.epoch != MANY)
                hear_one(fake);
        script_one(fake);
}

/* Nothing blocks, an order that has found no room goes out when there is, and a SEEK not before it. */
START_TEST(test_full_socket) {
        struct fake fake = {.script = script_stopped};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        int order = make_order();

        may_go_on = false;
        seeks = _i == 1;
        fake_start(&fake);
        job = open_job(defining());
        expect_batch(job, 0, 0, 4); /* that it reads has been said */
        for (uint32_t epoch = 1; epoch <= MANY; epoch++)
                ck_assert_int_eq(pinfeed_give_order(job, epoch, order, 10), 0);
        if (seeks)
                ck_assert_int_eq(pinfeed_job_seek(job, MANY, 0), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        may_go_on = true;
        expect_batch(job, seeks ? MANY : 0, seeks ? 0 : 4, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* A fork's child has the caller's descriptors and none of the library's. */
START_TEST(test_fork) {
        struct fake fake = {.script = script_one};
        struct pinfeed_attach attach = defining();
        struct pinfeed_job *job;
        ino_t zygote, order;
        int status;
        pid_t pid;

        fake_start(&fake);
        attach.zygote_fd = make_order();
        attach.zygote_pid = 41;
        attach.order_fd = make_order();
        attach.order_entries = 5;
        zygote = inode(attach.zygote_fd);
        order = inode(attach.order_fd);
        job = open_job(attach);
        expect_batch(job, 0, 0, 4); /* the daemon of ours has its own by now */
        ck_assert_uint_eq(count_of(zygote), 3);
        pid = fork();
        if (pid == 0)
                _exit(count_of(zygote) == 2 && count_of(order) == 2 &&
                                      pinfeed_bring(job, attach.zygote_fd, 42) == -ECHILD &&
                                      pinfeed_give_order(job, 1, attach.order_fd, 5) == -ECHILD &&
                                      !pinfeed_close(job) && count_of(zygote) == 2
                              ? 0
                              : 1);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        ck_assert_uint_eq(count_of(zygote), 3);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(count_of(zygote), 1);
}
END_TEST

static void expect_refused(struct pinfeed_attach attach, int error, const char *words) {
        struct pinfeed_job *job;
        int r = open_with(&job, attach);

        ck_assert_msg(r == error && strstr(pinfeed_error(job), words), "%d: %s", r, pinfeed_error(job));
        pinfeed_close(job);
}

START_TEST(test_not_opened) {
        struct pinfeed_attach attach = defining();

        attach.zygote_pid = 41;
        attach.zygote_fd = 999;
        expect_refused(attach, -EBADF, "zygote's socket, descriptor 999");
        attach.zygote_fd = 0;
        attach.zygote_pid = 1u << 31;
        expect_refused(attach, -EINVAL, "pid is 2147483648, expected 1 to 2147483647");
        attach = (struct pinfeed_attach){.zygote_pid = 41};
        expect_refused(attach, -EINVAL, "this job has none");

        attach = defining();
        attach.order_entries = (UINT64_C(1) << 48) + 1;
        expect_refused(attach, -EINVAL, "the order of epoch 0 has 281474976710657 entries");
        attach.order_entries = 5;
        attach.order_fd = 999;
        expect_refused(attach, -EBADF, "epoch's order, descriptor 999");
        attach.start = PINFEED_START_LIVE;
        expect_refused(attach, -EINVAL, "start is live");
        attach.seed_given = false;
        expect_refused(attach, -EINVAL, "an order is for one seed");
}
END_TEST

/* Wrong ones change nothing; a struct of an older header brings nothing. */
START_TEST(test_not_brought) {
        struct fake fake = {.script = script_one};
        struct pinfeed_attach attach = defining();
        struct pinfeed_job *job;

        fake_start(&fake);
        attach.size = offsetof(struct pinfeed_attach, zygote_fd);
        attach.pipeline = "demo";
        attach.runtime_dir = fake_directory;
        attach.zygote_fd = attach.order_fd = 999;
        attach.zygote_pid = 41;
        attach.order_entries = 5;
        ck_assert_int_eq(pinfeed_open(&job, &attach), 0);
        ck_assert_int_eq(pinfeed_bring(job, 999, 41), -EBADF);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "descriptor 999"));
        ck_assert_int_eq(pinfeed_bring(job, 0, 0), -EINVAL);
        ck_assert_int_eq(pinfeed_give_order(job, 1, 0, 0), -EINVAL);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "the order of epoch 1 has 0 entries"));
        ck_assert_int_eq(pinfeed_give_order(job, 1, 999, 1), -EBADF);
        ck_assert_int_eq(pinfeed_bring(NULL, 0, 1), -EINVAL);
        ck_assert_int_eq(pinfeed_give_order(NULL, 0, 0, 1), -EINVAL);
        expect_batch(job, 0, 0, 4);
        ck_assert_str_eq(fake.heard, "DEFINE, ATTACH");
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static void send_failed(struct fake *fake, struct message_failed failed) {
        fake->message.type = MESSAGE_FAILED;
        fake->message.failed = failed;
        fake_send(fake, NULL, 0);
}

static void script_raises(struct fake *fake) {
        fake_send_batches(fake, 1);
        send_failed(fake, (struct message_failed){.error = ETIMEDOUT,
                                                  .sample_given = 1,
                                                  .sample = 812,
                                                  .worker = 3,
                                                  .pid = 99,
                                                  .exit_status = 7,
                                                  .file = "a.py",
                                                  .text = "TimeoutError: too late",
                                                  .exception = "builtins.TimeoutError",
                                                  .traceback = "Traceback:\n  line"});
}

START_TEST(test_failure) {
        struct fake fake = {.script = script_raises};
        struct pinfeed_failure failure = {.size = sizeof(failure)}, small;
        struct pinfeed_batch *held;
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job(defining());
        held = next(job);
        ck_assert_int_eq(pinfeed_failure(job, &failure), -ENOENT);
        for (int i = 0; i < 2; i++) {
                expect_error(job, -EIO, "TimeoutError: too late (sample 812, a.py, worker 3, pid 99");
                ck_assert_int_eq(pinfeed_failure(job, &failure), 0);
                /* What goes wrong in between is not about a sample. */
                ck_assert_int_eq(pinfeed_batch_copy_async(held, 99, &held, NULL), -EINVAL);
                ck_assert_int_eq(pinfeed_failure(job, &failure), -ENOENT);
        }
        ck_assert(failure.sample_given);
        ck_assert_uint_eq(failure.size, sizeof(failure));
        ck_assert_uint_eq(failure.sample, 812);
        ck_assert_uint_eq(failure.worker, 3);
        ck_assert_uint_eq(failure.pid, 99);
        ck_assert_uint_eq(failure.signal, 0);
        ck_assert_uint_eq(failure.exit_status, 7);
        ck_assert_str_eq(failure.file, "a.py");
        ck_assert_str_eq(failure.exception, "builtins.TimeoutError");
        ck_assert_str_eq(failure.traceback, "Traceback:\n  line");

        ck_assert_int_eq(pinfeed_bring(job, 0, 42), -EIO); /* says it again */
        small = (struct pinfeed_failure){.size = offsetof(struct pinfeed_failure, exception)};
        ck_assert_int_eq(pinfeed_failure(job, &small), 0);
        ck_assert_str_eq(small.file, "a.py");
        ck_assert_ptr_null(small.exception);
        ck_assert_int_eq(pinfeed_give_order(job, 1, 0, 1), -EIO);
        ck_assert_int_eq(pinfeed_failure(job, &(struct pinfeed_failure){0}), -EINVAL);
        ck_assert_int_eq(pinfeed_failure(NULL, &failure), -EINVAL);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static void script_raises_at_once(struct fake *fake) {
        send_failed(fake, (struct message_failed){.error = EBADMSG,
                                                  .text = "the dataset cannot be read",
                                                  .exception = "builtins.KeyError"});
}

static void script_group_fails(struct fake *fake) {
        send_failed(fake, (struct message_failed){.error = ETIMEDOUT, .text = "rank 1 did not come"});
}

/* Before it was attached, and without a sample. */
START_TEST(test_failure_of_none) {
        struct fake fake = {.script = script_raises_at_once, .script_attaches = true};
        struct fake group = {.script = script_group_fails};
        struct pinfeed_failure failure = {.size = sizeof(failure)};
        struct pinfeed_job *job;

        fake_start(&fake);
        ck_assert_int_eq(open_with(&job, defining()), -EIO);
        ck_assert_str_eq(pinfeed_error(job), "the dataset cannot be read");
        ck_assert_int_eq(pinfeed_failure(job, &failure), 0);
        ck_assert(!failure.sample_given);
        ck_assert_str_eq(failure.exception, "builtins.KeyError");
        ck_assert_str_eq(failure.traceback, "");
        pinfeed_close(job);
        fake_stop(&fake);

        fake_start(&group);
        job = open_job(defining());
        expect_error(job, -ETIMEDOUT, "rank 1 did not come");
        ck_assert_int_eq(pinfeed_failure(job, &failure), -ENOENT);
        pinfeed_close(job);
        fake_stop(&group);
}
END_TEST

static Suite *suite(void) {
        Suite *suite = suite_create("client-brought");
        TCase *brought = tcase_create("brought"), *failure = tcase_create("failure");

        tcase_set_timeout(brought, 60);
        tcase_add_test(brought, test_open);
        tcase_add_test(brought, test_reconnect);
        tcase_add_test(brought, test_while_attaching);
        tcase_add_test(brought, test_next_epoch);
        tcase_add_loop_test(brought, test_full_socket, 0, 2);
        tcase_add_test(brought, test_fork);
        tcase_add_test(brought, test_not_opened);
        tcase_add_test(brought, test_not_brought);
        suite_add_tcase(suite, brought);

        tcase_add_test(failure, test_failure);
        tcase_add_test(failure, test_failure_of_none);
        suite_add_tcase(suite, failure);
        return suite;
}

int main(void) {
        int failed;

        fake_make_directory();
        failed = run_suite(suite());
        rmdir(fake_directory);
        return failed;
}
