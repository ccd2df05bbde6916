/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One daemon per directory, stale sockets, and what happens when the descriptors run out. */

#include "daemon/listener.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "proto/message.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/test-listener-XXXXXX";
static char path[RUNTIME_PATH_MAX + 32];
static struct fault fault;

static void make_directory(void) {
        strcpy(directory + strlen(directory) - 6, "XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/x.sock", directory);
        fault.text[0] = 0;
}

static void remove_directory(void) {
        unlink(path);
        ck_assert_int_eq(rmdir(directory), 0); /* also: nothing else was left in it */
}

static int prepare(void) {
        char prepared[RUNTIME_PATH_MAX + 32];
        int r = listener_prepare(prepared, directory, "x.sock", &fault);

        ck_assert_str_eq(prepared, path);
        return r;
}

/* A socket of `type` bound at `path`, listening where that can be. */
static int bind_there(int type) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        if (type != SOCK_DGRAM)
                ck_assert_int_eq(listen(fd, 4), 0);
        return fd;
}

START_TEST(test_lock_is_one_per_directory) {
        int first = listener_lock(directory, &fault), second;
        char pid[32];

        ck_assert_int_ge(first, 0);
        ck_assert_int_eq(listener_lock(directory, &fault), -EBUSY);
        snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
        ck_assert_ptr_nonnull(strstr(fault.text, pid));
        ck_assert_ptr_nonnull(strstr(fault.text, directory));
        listener_unlock(directory, first);
        second = listener_lock(directory, &fault);
        ck_assert_int_ge(second, 0);
        listener_unlock(directory, second);
}
END_TEST

/* A child of a daemon that was killed between fork and exec has its lock for a moment. */
START_TEST(test_lock_that_outlives_its_owner) {
        pid_t daemon = fork();
        int lock, status;

        ck_assert_int_ge(daemon, 0);
        if (daemon == 0) {
                lock = listener_lock(directory, &fault);
                if (lock >= 0 && fork() == 0)
                        usleep(300000);
                _exit(lock < 0);
        }
        ck_assert_int_eq(waitpid(daemon, &status, 0), daemon);
        ck_assert_int_eq(status, 0);
        lock = listener_lock(directory, &fault);
        ck_assert_msg(lock >= 0, "%s", fault.text);
        listener_unlock(directory, lock);
}
END_TEST

START_TEST(test_prepare_leaves_files_alone) {
        struct stat there;
        int fd;

        ck_assert_int_eq(prepare(), 0);
        fd = open(path, O_CREAT | O_WRONLY, 0600);
        close(fd);
        ck_assert_int_eq(prepare(), -EEXIST);
        ck_assert_ptr_nonnull(strstr(fault.text, path));
        ck_assert_int_eq(stat(path, &there), 0);
}
END_TEST

START_TEST(test_prepare_tells_stale_from_served) {
        static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
        struct stat there;
        int fd = bind_there(types[_i]);

        ck_assert_int_eq(prepare(), -EEXIST);
        ck_assert_ptr_nonnull(strstr(fault.text, path));
        ck_assert_int_eq(stat(path, &there), 0);
        close(fd);
        ck_assert_int_eq(prepare(), 0);
        ck_assert_int_eq(stat(path, &there), -1);
}
END_TEST

/* Nothing can be asked without a descriptor: then it is not ours to remove. */
START_TEST(test_prepare_without_descriptors) {
        _cleanup_(fd_closep) int fd = bind_there(SOCK_STREAM);
        struct rlimit limit, none;
        struct stat there;
        int r;

        getrlimit(RLIMIT_NOFILE, &limit);
        none = (struct rlimit){3, limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
        r = prepare();
        setrlimit(RLIMIT_NOFILE, &limit);
        ck_assert_int_eq(r, -EEXIST);
        ck_assert_int_eq(stat(path, &there), 0);
}
END_TEST

START_TEST(test_accept) {
        _cleanup_(fd_closep) int listening = seqpacket_listen(path, 4), client = -1, taken = -1;

        ck_assert_int_eq(listener_accept(listening, &taken, &fault), LISTENER_E_NONE);
        client = seqpacket_connect(path);
        ck_assert_int_eq(listener_accept(listening, &taken, &fault), 0);
        ck_assert_int_eq(fcntl(taken, F_GETFD), FD_CLOEXEC);
        ck_assert_int_ne(fcntl(taken, F_GETFL) & O_NONBLOCK, 0);
        ck_assert_int_eq(listener_accept(listening, &taken, &fault), LISTENER_E_NONE);
}
END_TEST

static void limit_descriptors(rlim_t most) {
        struct rlimit limit;

        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = most;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The next descriptor is one of the reserve: the peer is told so, and nothing leaks. */
START_TEST(test_accept_keeps_a_reserve) {
        _cleanup_(fd_closep) int listening = seqpacket_listen(path, 4), client = seqpacket_connect(path);
        _cleanup_(fd_closep) int another = -1;
        int next = dup(client), taken = -1, fds[SEQPACKET_FDS_MAX];
        struct message message;
        size_t n_fds;

        close(next);
        limit_descriptors((rlim_t)next + LISTENER_RESERVE);
        ck_assert_int_eq(listener_accept(listening, &taken, &fault), LISTENER_E_FULL);
        ck_assert_int_eq(taken, -1);
        ck_assert_ptr_nonnull(strstr(fault.text, "ulimit -n"));
        ck_assert_int_eq(
                message_receive(client, &message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_JOB, &(struct fault){}),
                0);
        ck_assert_int_eq(message.type, MESSAGE_REFUSED);
        ck_assert_int_eq(message.refused.error, EMFILE);
        ck_assert_str_eq(message.refused.text, fault.text);
        ck_assert_int_eq(dup(client), next);
        close(next);
        limit_descriptors((rlim_t)next + LISTENER_RESERVE + 2);
        another = seqpacket_connect(path); /* takes `next`, so the daemon's end gets the one after it */
        ck_assert_int_eq(another, next);
        ck_assert_int_eq(listener_accept(listening, &taken, &fault), 0);
        close(taken);
}
END_TEST

/* Not even one: the connection stays where it is, and is taken later. */
/* Valgrind lowers its own idea of the limit only, so the kernel never runs out. */
static bool can_run_out(void) {
        const char *preload = getenv("LD_PRELOAD");

        return !preload || !strstr(preload, "vgpreload");
}

START_TEST(test_accept_without_descriptors) {
        _cleanup_(fd_closep) int listening = seqpacket_listen(path, 4), client = seqpacket_connect(path);
        int taken = -1, next = dup(client);

        close(next);
        if (!can_run_out())
                return;
        limit_descriptors((rlim_t)next);
        ck_assert_int_eq(listener_accept(listening, &taken, &fault), -EMFILE);
        limit_descriptors((rlim_t)next + LISTENER_RESERVE + 1);
        ck_assert_int_eq(listener_accept(listening, &taken, &fault), 0);
        close(taken);
}
END_TEST

static mode_t mode_of(const char *file) {
        struct stat facts;

        ck_assert_int_eq(stat(file, &facts), 0);
        return facts.st_mode & 07777;
}

START_TEST(test_share_with_a_group) {
        int listening = seqpacket_listen(path, 4);

        ck_assert_int_ge(listening, 0);
        ck_assert_uint_eq(mode_of(path), 0600);
        ck_assert_int_eq(listener_share_socket(directory, "x.sock", getegid(), &fault), 0);
        ck_assert_uint_eq(mode_of(path), 0660);
        ck_assert_int_eq(listener_share_directory(directory, getegid(), &fault), 0);
        ck_assert_uint_eq(mode_of(directory), 0750);
        ck_assert_int_eq(chmod(directory, 0755), 0);
        ck_assert_int_eq(listener_share_directory(directory, getegid(), &fault), 0);
        ck_assert_uint_eq(mode_of(directory), 0755);
        ck_assert_int_eq(listener_share_socket(directory, "nowhere", getegid(), &fault), -ENOENT);
        close(listening);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("listener");
        TCase *test_case = tcase_create("listener");

        tcase_add_checked_fixture(test_case, make_directory, remove_directory);
        tcase_add_test(test_case, test_lock_is_one_per_directory);
        tcase_add_test(test_case, test_lock_that_outlives_its_owner);
        tcase_add_test(test_case, test_prepare_leaves_files_alone);
        tcase_add_loop_test(test_case, test_prepare_tells_stale_from_served, 0, 3);
        tcase_add_test(test_case, test_prepare_without_descriptors);
        tcase_add_test(test_case, test_accept);
        tcase_add_test(test_case, test_accept_keeps_a_reserve);
        tcase_add_test(test_case, test_accept_without_descriptors);
        tcase_add_test(test_case, test_share_with_a_group);
        suite_add_tcase(suite, test_case);
        return run_suite(suite);
}
