/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Sockets that carry records and descriptors: what arrives, what is refused, and above all that no descriptor
 * is left open on any way out. They are counted before and after. */

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/seqpacket.h"
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
#include <unistd.h>

static char directory[64];

static void make_directory(void) {
        snprintf(directory, sizeof(directory), "/tmp/pinfeed-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void) {
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", directory);
        ck_assert_int_eq(system(command), 0);
}

static const char *in_directory(const char *name) {
        static char path[512];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        return path;
}

START_TEST(listening_and_connecting) {
        _cleanup_(fd_closep) int listener = -1, client = -1, server = -1;
        char path[512];
        struct stat status;
        pid_t pid;
        uid_t uid;
        gid_t gid;

        snprintf(path, sizeof(path), "%s", in_directory("sock"));
        ck_assert_int_eq(seqpacket_connect(path), -ENOENT);
        umask(0); /* 0600 must not depend on it */
        listener = seqpacket_listen(path, 4);
        ck_assert_int_ge(listener, 0);
        ck_assert_int_eq(stat(path, &status), 0);
        ck_assert_int_eq(status.st_mode, S_IFSOCK | 0600);
        ck_assert(fcntl(listener, F_GETFD) & FD_CLOEXEC);
        ck_assert(fcntl(listener, F_GETFL) & O_NONBLOCK);

        client = seqpacket_connect(path);
        ck_assert_int_ge(client, 0);
        ck_assert(fcntl(client, F_GETFD) & FD_CLOEXEC);
        ck_assert(fcntl(client, F_GETFL) & O_NONBLOCK);
        server = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        ck_assert_int_ge(server, 0);
        ck_assert_int_eq(seqpacket_peer(server, &pid, &uid, &gid), 0);
        ck_assert_int_eq(pid, getpid());
        ck_assert_uint_eq(uid, geteuid());
        ck_assert_uint_eq(gid, getegid());
        ck_assert_int_eq(seqpacket_peer(-1, &pid, &uid, &gid), -EBADF);

        ck_assert_int_eq(seqpacket_listen(path, 4), -EADDRINUSE);
        fd_closep(&listener);
        ck_assert_int_eq(seqpacket_connect(path), -ECONNREFUSED);
        ck_assert_int_eq(seqpacket_listen(path, 4), -EADDRINUSE); /* a stale one is its caller's business */
}
END_TEST

START_TEST(paths_of_sockets) {
        char path[256];

        memset(path, 'x', sizeof(path));
        path[0] = '/';
        path[108] = 0;
        ck_assert_int_eq(seqpacket_listen(path, 4), -ENAMETOOLONG);
        ck_assert_int_eq(seqpacket_connect(path), -ENAMETOOLONG);
        path[107] = 0;
        ck_assert_int_eq(seqpacket_connect(path), -ENOENT);
        ck_assert_int_eq(seqpacket_connect(""), -ENOENT);
        ck_assert_int_eq(seqpacket_listen(in_directory("none/sock"), 4), -ENOENT);
}
END_TEST

START_TEST(full_backlog) {
        _cleanup_(fd_closep) int listener = -1;
        int fds[8], n = 0, r;

        listener = seqpacket_listen(in_directory("sock"), 0);
        ck_assert_int_ge(listener, 0);
        do {
                r = seqpacket_connect(in_directory("sock"));
                if (r >= 0)
                        fds[n++] = r;
        } while (r >= 0 && n < 8);
        ck_assert_int_eq(r, -EAGAIN);
        while (n > 0)
                close(fds[--n]);
}
END_TEST

/* A pair, and the number of descriptors that are open with it. */
struct pair {
        int fds[2];
        int open;
};

static struct pair new_pair(void) {
        struct pair pair;

        ck_assert_int_eq(seqpacket_pair(pair.fds), 0);
        pair.open = fd_count();
        return pair;
}

START_TEST(records_and_descriptors) {
        struct pair pair = new_pair();
        int sent[2] = {STDIN_FILENO, STDERR_FILENO}, fds[SEQPACKET_FDS_MAX];
        char record[32];
        size_t length, n_fds;

        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds),
                         SEQPACKET_E_AGAIN);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], "one", 3, NULL, 0), 0);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], "second", 6, sent, 2), 0);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds), 0);
        ck_assert_uint_eq(length, 3);
        ck_assert_uint_eq(n_fds, 0);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds), 0);
        ck_assert_uint_eq(length, 6);
        ck_assert_int_eq(memcmp(record, "second", 6), 0);
        ck_assert_uint_eq(n_fds, 2);
        for (size_t i = 0; i < 2; i++) {
                struct stat a, b;

                ck_assert(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
                ck_assert_int_eq(fstat(fds[i], &a) | fstat(sent[i], &b), 0);
                ck_assert_uint_eq(a.st_ino, b.st_ino);
                close(fds[i]);
        }
        ck_assert_int_eq(fd_count(), pair.open);
}
END_TEST

START_TEST(sizes_of_records) {
        static char record[SEQPACKET_RECORD_MAX + 1];
        struct pair pair = new_pair();
        int sent[SEQPACKET_FDS_MAX + 1], fds[SEQPACKET_FDS_MAX];
        size_t length, n_fds;

        for (int i = 0; i <= SEQPACKET_FDS_MAX; i++)
                sent[i] = STDERR_FILENO;
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, 0, NULL, 0), -EMSGSIZE);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, sizeof(record), NULL, 0), -EMSGSIZE);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, 1, sent, SEQPACKET_FDS_MAX + 1), -EINVAL);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, 1, (int[]){-1}, 1), -EBADF);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, SEQPACKET_RECORD_MAX, sent, SEQPACKET_FDS_MAX),
                         0);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds), 0);
        ck_assert_uint_eq(length, SEQPACKET_RECORD_MAX);
        ck_assert_uint_eq(n_fds, SEQPACKET_FDS_MAX);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);

        /* One byte too many for the receiver: gone, with its descriptors. */
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, 17, sent, 3), 0);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], record, 16, NULL, 0), 0);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, 16, &length, fds, &n_fds),
                         SEQPACKET_E_TOO_LONG);
        ck_assert_uint_eq(n_fds, 0);
        ck_assert_int_eq(fd_count(), pair.open);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, 16, &length, fds, &n_fds), 0);
        ck_assert_uint_eq(length, 16);
}
END_TEST

/* What our own sender refuses to send, a stranger may. */
static void send_raw(int fd, size_t length, size_t n_fds) {
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(64 * sizeof(int))];
        } control;
        char byte = 'x';
        struct iovec part = {.iov_base = &byte, .iov_len = length};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.space,
                                 .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};

        memset(&control, 0, sizeof(control));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (size_t i = 0; i < n_fds; i++)
                memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
        ck_assert_int_eq(sendmsg(fd, &message, 0), (ssize_t)length);
}

START_TEST(strangers_records) {
        struct pair pair = new_pair();
        int fds[SEQPACKET_FDS_MAX];
        char record[32];
        size_t length, n_fds;

        for (size_t n = SEQPACKET_FDS_MAX + 1; n < 64; n += 15) {
                send_raw(pair.fds[0], 1, n);
                ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds),
                                 SEQPACKET_E_TOO_LONG);
                ck_assert_uint_eq(n_fds, 0);
                ck_assert_int_eq(fd_count(), pair.open);
        }
        send_raw(pair.fds[0], 0, 2);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds),
                         SEQPACKET_E_CLOSED);
        ck_assert_int_eq(fd_count(), pair.open);
}
END_TEST

/* Valgrind lowers its own idea of the limit only, so the kernel never runs out. */
static bool can_run_out(void) {
        const char *preload = getenv("LD_PRELOAD");

        return !preload || !strstr(preload, "vgpreload");
}

START_TEST(out_of_descriptors) {
        struct pair pair = new_pair();
        int sent[3] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}, fds[SEQPACKET_FDS_MAX],
            highest = dup(STDERR_FILENO);
        struct rlimit limit, whole;
        char record[32];
        size_t length, n_fds;

        if (!can_run_out())
                return;
        close(highest);
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &whole), 0);
        for (int spare = 0; spare < 3; spare++) {
                ck_assert_int_eq(seqpacket_send(pair.fds[0], "x", 1, sent, 3), 0);
                limit = (struct rlimit){.rlim_cur = (rlim_t)(highest + spare), .rlim_max = whole.rlim_max};
                ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
                ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds),
                                 SEQPACKET_E_NO_FDS);
                ck_assert_uint_eq(n_fds, 0);
                ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &whole), 0);
                ck_assert_int_eq(fd_count(), pair.open);
        }
        ck_assert_int_eq(seqpacket_send(pair.fds[0], "x", 1, sent, 3), 0);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds), 0);
        ck_assert_uint_eq(n_fds, 3);
}
END_TEST

START_TEST(peers_that_go) {
        struct pair pair = new_pair();
        int fds[SEQPACKET_FDS_MAX];
        char record[32];
        size_t length, n_fds;

        /* Its last words are heard, although it left ours unread. */
        ck_assert_int_eq(seqpacket_send(pair.fds[1], "unread", 6, NULL, 0), 0);
        ck_assert_int_eq(seqpacket_send(pair.fds[0], "goodbye", 7, NULL, 0), 0);
        close(pair.fds[0]);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds), 0);
        ck_assert_uint_eq(length, 7);
        ck_assert_int_eq(seqpacket_receive(pair.fds[1], record, sizeof(record), &length, fds, &n_fds),
                         SEQPACKET_E_CLOSED);
        ck_assert_int_eq(seqpacket_send(pair.fds[1], "x", 1, NULL, 0), -EPIPE);
        ck_assert_int_eq(seqpacket_receive(-1, record, sizeof(record), &length, fds, &n_fds), -EBADF);
}
END_TEST

START_TEST(peers_that_do_not_read) {
        static char record[4096];
        struct pair pair = new_pair();
        int r, n = 0;

        while ((r = seqpacket_send(pair.fds[0], record, sizeof(record), NULL, 0)) == 0)
                n++;
        ck_assert_int_eq(r, -EAGAIN);
        ck_assert_int_gt(n, 0);
}
END_TEST

static Suite *seqpacket_suite(void) {
        Suite *suite = suite_create("seqpacket");
        TCase *pairs = tcase_create("pairs"), *paths = tcase_create("paths");

        tcase_set_timeout(pairs, 60);
        tcase_set_timeout(paths, 60);
        tcase_add_test(pairs, records_and_descriptors);
        tcase_add_test(pairs, sizes_of_records);
        tcase_add_test(pairs, strangers_records);
        tcase_add_test(pairs, out_of_descriptors);
        tcase_add_test(pairs, peers_that_go);
        tcase_add_test(pairs, peers_that_do_not_read);
        suite_add_tcase(suite, pairs);

        tcase_add_checked_fixture(paths, make_directory, remove_directory);
        tcase_add_test(paths, listening_and_connecting);
        tcase_add_test(paths, paths_of_sockets);
        tcase_add_test(paths, full_backlog);
        suite_add_tcase(suite, paths);
        return suite;
}

int main(void) {
        return run_suite(seqpacket_suite());
}
