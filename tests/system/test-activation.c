/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Sockets that outlive the daemon: the test is the service manager, which has made them, and starts one
 * daemon after the other with them. Whoever connects is served, whenever that is. */

#include "base/seqpacket.h"
#include "tests/support/process.h"
#include "tests/support/run.h"
#include "tests/system/readers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
        KILLS = 10,
};

#define CONFIG                                                                                               \
        "pipelines:\n"                                                                                       \
        "  p:\n"                                                                                             \
        "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 4096}\n"                            \
        "    batch_size: 32\n"                                                                               \
        "    workers: 2\n"

/* A harness with a runtime directory, as tmpfiles makes it for the socket unit. */
static struct harness *prepare(void) {
        struct harness *h = harness_new();

        harness_write_config(h, CONFIG);
        ck_assert_int_eq(mkdir(harness_runtime_directory(h), 0755), 0);
        return h;
}

static int make_socket(const struct harness *h, int type, const char *name) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        ck_assert_int_ge(fd, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", harness_runtime_directory(h), name);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

static int make_listener(const struct harness *h, int type, const char *name) {
        int fd = make_socket(h, type, name);

        ck_assert_int_eq(listen(fd, 64), 0);
        return fd;
}

static ino_t inode_of(const struct harness *h, const char *name) {
        char path[HARNESS_PATH_MAX];
        struct stat status;

        snprintf(path, sizeof(path), "%s/%s", harness_runtime_directory(h), name);
        return lstat(path, &status) == 0 ? status.st_ino : 0;
}

static pid_t start_digest(struct harness *h, const char *output) {
        return harness_spawn(h, output,
                             (const char *[]){"pinfeedctl", "digest", "p", "--rows", "0:500", NULL});
}

static bool somebody_waits(struct harness *h, void *context) {
        struct pollfd poll_fd = {.fd = *(int *)context, .events = POLLIN};

        return poll(&poll_fd, 1, 0) == 1;
}

static void expect_digest(struct harness *h, pid_t pid, const char *output, const char *digest) {
        char *text;

        ck_assert_int_eq(harness_join(h, pid, SOON_MS), 0);
        text = process_read_file(output);
        ck_assert_ptr_nonnull(text);
        ck_assert_str_eq(text, digest);
        free(text);
        unlink(output);
}

struct sockets {
        int both[2];
        ino_t job, control;
};

static struct harness *prepare_with_both(struct sockets *sockets) {
        struct harness *h = prepare();

        sockets->both[0] = make_listener(h, SOCK_SEQPACKET, "pinfeed.sock");
        sockets->both[1] = make_listener(h, SOCK_STREAM, "control.sock");
        sockets->job = inode_of(h, "pinfeed.sock");
        sockets->control = inode_of(h, "control.sock");
        harness_pass_sockets(h, sockets->both, 2);
        return h;
}

static void finish_with_both(struct harness *h, struct sockets *sockets) {
        ck_assert_uint_eq(inode_of(h, "pinfeed.sock"), sockets->job);
        ck_assert_uint_eq(inode_of(h, "control.sock"), sockets->control);
        close(sockets->both[0]);
        close(sockets->both[1]);
        harness_free(h);
}

/* The lock is the daemon's in any case. */
static void expect_lock(const struct harness *h, bool there) {
        ck_assert_int_eq(inode_of(h, "pinfeedd.pid") != 0, there);
}

START_TEST(who_connects_before_the_start_is_served) {
        struct sockets sockets;
        struct harness *h = prepare_with_both(&sockets);
        char output[HARNESS_PATH_MAX], *first;
        json_t *status;
        pid_t early;

        snprintf(output, sizeof(output), "%s/early", harness_directory(h));
        early = start_digest(h, output);
        harness_wait(h, "a connection", somebody_waits, &sockets.both[0], SOON_MS);
        harness_start(h);
        first = digest(h);
        expect_digest(h, early, output, first);
        status = harness_status(h);
        ck_assert(json_is_true(harness_member(status, "service/activated")));
        ck_assert(json_is_false(harness_member(status, "service/notify")));
        json_decref(status);
        expect_lock(h, true);
        harness_stop(h, SIGTERM, 0);
        expect_lock(h, false);
        free(first);
        finish_with_both(h, &sockets);
}
END_TEST

START_TEST(who_connects_between_two_daemons_is_served) {
        struct sockets sockets;
        struct harness *h = prepare_with_both(&sockets);
        char output[HARNESS_PATH_MAX], *first;

        snprintf(output, sizeof(output), "%s/between", harness_directory(h));
        harness_start(h);
        first = digest(h);
        for (int i = 0; i < KILLS; i++) {
                pid_t between;

                if (i % 2 == 0)
                        harness_kill(h);
                else
                        harness_stop(h, SIGTERM, 0);
                between = start_digest(h, output);
                harness_wait(h, "a connection", somebody_waits, &sockets.both[0], SOON_MS);
                harness_start(h);
                expect_digest(h, between, output, first);
        }
        harness_kill(h); /* nothing that it leaves behind is in anybody's way */
        harness_start(h);
        harness_stop(h, SIGTERM, 0);
        free(first);
        finish_with_both(h, &sockets);
}
END_TEST

/* A job goes on with the next daemon, its bytes right. */
START_TEST(a_job_reconnects) {
        struct sockets sockets;
        struct harness *h = prepare_with_both(&sockets);
        struct pinfeed_attach attach = reader_attach(h, "p", 2);
        struct reader reader;

        attach.reconnect_s = 20;
        harness_start(h);
        reader_open_with(&reader, &attach);
        reader_read(&reader, 3);
        harness_kill(h);
        harness_start(h);
        reader_read(&reader, 40);
        pinfeed_job_info(reader.job, &reader.info);
        ck_assert_int_eq(reader.info.daemon_pid, harness_daemon_pid(h));
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        finish_with_both(h, &sockets);
}
END_TEST

/* Whoever has made the socket, here this test, is who the kernel names to a client that came early. */
static void *open_early(void *argument) {
        struct reader *reader = argument;
        struct pinfeed_attach attach = {.size = sizeof(attach),
                                        .pipeline = "p",
                                        .runtime_dir = getenv("PINFEED_TEST_RUNTIME"),
                                        .timeout_ms = SOON_MS};

        reader_open_with(reader, &attach);
        return NULL;
}

/* By the kernel's word. */
static pid_t server_of(const struct harness *h) {
        char path[HARNESS_PATH_MAX];
        pid_t pid;
        uid_t uid;
        gid_t gid;
        int fd;

        snprintf(path, sizeof(path), "%s/pinfeed.sock", harness_runtime_directory(h));
        fd = seqpacket_connect(path);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(seqpacket_peer(fd, &pid, &uid, &gid), 0);
        close(fd);
        return pid;
}

START_TEST(a_daemon_is_named_by_its_own_pid) {
        struct sockets sockets;
        struct harness *h = prepare_with_both(&sockets);
        struct reader early = {}, late;
        pthread_t thread;

        setenv("PINFEED_TEST_RUNTIME", harness_runtime_directory(h), 1);
        ck_assert_int_eq(pthread_create(&thread, NULL, open_early, &early), 0);
        harness_wait(h, "a connection", somebody_waits, &sockets.both[0], SOON_MS);
        harness_start(h);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_int_eq(early.info.daemon_pid, harness_daemon_pid(h));
        ck_assert_int_eq(server_of(h), harness_daemon_pid(h));
        reader_open(&late, h, "p", 2);
        ck_assert_int_eq(late.info.daemon_pid, harness_daemon_pid(h));
        reader_close(&early);
        reader_close(&late);
        harness_stop(h, SIGTERM, 0);
        finish_with_both(h, &sockets);
}
END_TEST

/* The other one is made and removed as ever. */
START_TEST(one_socket_is_enough) {
        static const struct {
                int type;
                const char *passed, *own;
        } cases[] = {{SOCK_SEQPACKET, "pinfeed.sock", "control.sock"},
                     {SOCK_STREAM, "control.sock", "pinfeed.sock"}};

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct harness *h = prepare();
                int fd = make_listener(h, cases[i].type, cases[i].passed);
                ino_t inode = inode_of(h, cases[i].passed);

                harness_pass_sockets(h, &fd, 1);
                harness_start(h);
                free(digest(h));
                ck_assert_uint_ne(inode_of(h, cases[i].own), 0);
                harness_stop(h, SIGTERM, 0);
                ck_assert_uint_eq(inode_of(h, cases[i].own), 0);
                ck_assert_uint_eq(inode_of(h, cases[i].passed), inode);
                close(fd);
                harness_free(h);
        }
}
END_TEST

/* ---- sockets that are refused ---- */

static int make_elsewhere(const struct harness *h) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/pinfeed.sock", harness_directory(h));
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(fd, 1), 0);
        return fd;
}

static int make_datagram(const struct harness *h) {
        return make_socket(h, SOCK_DGRAM, "pinfeed.sock");
}

static int make_silent(const struct harness *h) {
        return make_socket(h, SOCK_STREAM, "control.sock");
}

static int make_other_name(const struct harness *h) {
        return make_listener(h, SOCK_STREAM, "metrics.sock");
}

static int make_file(const struct harness *h) {
        return open(harness_config_path(h), O_RDONLY | O_CLOEXEC);
}

static int make_abstract(const struct harness *h) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address.sun_family)), 0);
        ck_assert_int_eq(listen(fd, 1), 0);
        return fd;
}

static int make_internet(const struct harness *h) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        ck_assert_int_eq(listen(fd, 1), 0);
        return fd;
}

static int make_second(const struct harness *h) {
        return make_listener(h, SOCK_SEQPACKET, "second.sock");
}

START_TEST(sockets_that_are_not_pinfeeds) {
        static const struct {
                int (*make)(const struct harness *h);
                const char *words;
                bool beside; /* a good one */
        } cases[] = {
                {make_elsewhere, "/pinfeed.sock, and clients of this daemon look for", false},
                {make_datagram, "ListenSequentialPacket=", false},
                {make_silent, "it does not listen: the socket unit must not say Accept=yes", false},
                {make_other_name, "/metrics.sock, and clients of this daemon look for", false},
                {make_file, "it is not a socket of pinfeed's", false},
                {make_abstract, "an abstract address", false},
                {make_internet, "it is not a socket of pinfeed's", false},
                {make_second,
                 "descriptor 4 (\"pinfeed\") was passed to this daemon as its socket: it is the "
                 "second of its kind",
                 true},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct harness *h = prepare();
                int fds[2], n = 0;
                char *log;

                if (cases[i].beside)
                        fds[n++] = make_listener(h, SOCK_SEQPACKET, "pinfeed.sock");
                fds[n++] = cases[i].make(h);
                harness_pass_sockets(h, fds, (size_t)n);
                log = harness_start_expect_failure(h, NULL);
                harness_expect_words(log, cases[i].words);
                free(log);
                while (n > 0)
                        close(fds[--n]);
                harness_free(h);
        }
}
END_TEST

/* They are for whoever LISTEN_PID names. */
START_TEST(variables_of_an_ancestor) {
        struct harness *h = prepare();

        harness_set_environment(h, "LISTEN_FDS", "2");
        harness_set_environment(h, "LISTEN_PID", "1");
        harness_start(h);
        free(digest(h));
        harness_free(h);
}
END_TEST

static Suite *activation_suite(void) {
        Suite *suite = suite_create("activation");
        TCase *passed = tcase_create("passed"), *refused = tcase_create("refused");

        tcase_set_timeout(passed, 60);
        tcase_add_test(passed, who_connects_before_the_start_is_served);
        tcase_add_test(passed, who_connects_between_two_daemons_is_served);
        tcase_add_test(passed, a_job_reconnects);
        tcase_add_test(passed, a_daemon_is_named_by_its_own_pid);
        tcase_add_test(passed, one_socket_is_enough);
        suite_add_tcase(suite, passed);
        tcase_set_timeout(refused, 60);
        tcase_add_test(refused, sockets_that_are_not_pinfeeds);
        tcase_add_test(refused, variables_of_an_ancestor);
        suite_add_tcase(suite, refused);
        return suite;
}

int main(void) {
        return run_suite(activation_suite());
}
