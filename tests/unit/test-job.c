/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A connection: whose it is, whether its user may have it, when it is served, how its end is seen; and once
 * it is attached, what becomes of batches and SEEKs when its socket is full, and of what it says of its
 * mapping. The jobs here are real ones on a real loop; whoever connects is a child process or this one. */

#include "daemon/job.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "daemon/listener.h"
#include "daemon/map.h"
#include "daemon/quota.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURN_NS (NS_PER_S / QUOTA_PER_SECOND)

static struct quota quota;
static struct fault fault;

/* ---- quota ---- */

static uint64_t enter(uid_t uid, uint64_t now) {
        uint64_t wait_ns = UINT64_MAX;

        ck_assert_int_eq(quota_enter(&quota, uid, now, &wait_ns), 0);
        return wait_ns;
}

START_TEST(test_connections_are_counted) {
        uint64_t wait_ns;

        quota_init(&quota);
        for (unsigned i = 0; i < QUOTA_CONNECTIONS_MAX; i++)
                enter(7, i * NS_PER_S);
        ck_assert_int_eq(quota_enter(&quota, 7, UINT64_MAX / 2, &wait_ns), QUOTA_E_FULL);
        ck_assert_uint_eq(enter(8, 0), 0);
        quota_leave(&quota, 8, true);
        ck_assert_int_eq(quota_enter(&quota, 7, UINT64_MAX / 2, &wait_ns), QUOTA_E_FULL);
        quota_leave(&quota, 7, true);
        ck_assert_uint_eq(enter(7, UINT64_MAX / 2), 0);
        quota_deinit(&quota);
}
END_TEST

START_TEST(test_turns) {
        uint64_t now = NS_PER_S;

        quota_init(&quota);
        for (unsigned i = 0; i < QUOTA_BURST; i++)
                ck_assert_uint_eq(enter(7, now), 0);
        for (unsigned i = 1; i <= 10; i++)
                ck_assert_uint_eq(enter(7, now), i * TURN_NS);
        ck_assert_uint_eq(enter(8, now), 0); /* another uid's affair */
        /* Ten turns later one more may come at once. */
        ck_assert_uint_eq(enter(7, now + 11 * TURN_NS), 0);
        ck_assert_uint_eq(enter(7, now + 11 * TURN_NS), TURN_NS);
        /* After a rest the whole burst may. */
        now += 2 * QUOTA_BURST * TURN_NS;
        for (unsigned i = 0; i < QUOTA_BURST; i++)
                ck_assert_uint_eq(enter(7, now), 0);
        ck_assert_uint_eq(enter(7, now), TURN_NS);
        quota_deinit(&quota);
}
END_TEST

/* A hundred thousand that vanish unserved leave the others' turns where they were. */
START_TEST(test_who_vanishes_gives_its_turn_back) {
        uint64_t now = NS_PER_S;

        quota_init(&quota);
        for (unsigned i = 0; i < QUOTA_BURST; i++)
                enter(7, now);
        for (unsigned i = 0; i < 100000; i++) {
                ck_assert_msg(enter(7, now) == TURN_NS, "turn of number %u", i);
                quota_leave(&quota, 7, false);
        }
        for (unsigned i = 1; i < 10; i++) {
                ck_assert_uint_eq(enter(7, now), i * TURN_NS);
                quota_leave(&quota, 7, true);
        }
        quota_deinit(&quota);
}
END_TEST

/* ---- the peer's process ---- */

static char directory[] = "/tmp/test-job-XXXXXX";
static char path[64];
static int listening;

static void make_socket(void) {
        strcpy(directory + strlen(directory) - 6, "XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/sock", directory);
        listening = seqpacket_listen(path, 16);
        ck_assert_int_ge(listening, 0);
        quota_init(&quota);
        fault.text[0] = 0;
}

static void remove_socket(void) {
        quota_deinit(&quota);
        close(listening);
        unlink(path);
        ck_assert_int_eq(rmdir(directory), 0);
}

/* A process that connects and waits; with a child of its own, if wanted, that has the socket too and lives
 * until the pipe `ends` is closed. */
static pid_t connect_process(int *taken, const int *ends) {
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                char byte;

                if (seqpacket_connect(path) < 0)
                        _exit(1);
                if (ends && fork() == 0) {
                        close(ends[1]);
                        _exit((int)read(ends[0], &byte, 1));
                }
                pause();
        }
        for (int i = 0; listener_accept(listening, taken, &fault) != 0; i++) {
                ck_assert_int_lt(i, 5000);
                usleep(1000);
        }
        return pid;
}

static void end_process(pid_t pid) {
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static bool has_pidfds(void) {
        int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

START_TEST(test_watch_peer) {
        const char *watched = NULL;
        int socket, pidfd = -1;
        pid_t pid;

        if (!has_pidfds())
                return; /* an old kernel, or valgrind, which does not know the call */
        pid = connect_process(&socket, NULL);
        ck_assert_int_eq(listener_watch_peer(socket, pid, &pidfd, &watched, &fault), 0);
        ck_assert_int_ge(pidfd, 0);
        ck_assert_str_eq(watched, "pidfd and socket");
        close(pidfd);
        /* What is no socket gives no pidfd itself, as with older kernels: the number has to do. */
        ck_assert_int_eq(listener_watch_peer(-1, pid, &pidfd, &watched, &fault), 0);
        ck_assert_int_ge(pidfd, 0);
        close(pidfd);
        end_process(pid);
        ck_assert_int_eq(listener_watch_peer(-1, pid, &pidfd, &watched, &fault), LISTENER_E_GONE);
        ck_assert_int_eq(pidfd, -1);
        ck_assert_int_eq(listener_watch_peer(-1, 0, &pidfd, &watched, &fault), 0);
        ck_assert_int_eq(pidfd, -1);
        ck_assert_str_eq(watched, "socket only: its process is in another pid namespace");
        close(socket);
}
END_TEST

/* ---- jobs ---- */

static uv_loop_t loop;
static struct list jobs;

static void no_attach(void *context, struct job *job) {
        ck_abort_msg("nobody attaches here");
}

static int no_release(void *context, struct job *job, const uint64_t *numbers, uint32_t n_numbers) {
        return -EINVAL;
}

static void no_seek(void *context, struct job *job) {
        ck_abort_msg("nobody seeks here");
}

static void no_close(void *context, struct job *job) {
}

static unsigned reads;

static void count_read(void *context, struct job *job) {
        reads++;
}

static unsigned zygotes, orders;

static void take_zygote(void *context, struct job *job) {
        fd_closep(&job->zygote_fd);
        zygotes += job->zygote_pid == 7;
}

static void take_order(void *context, struct job *job, const struct message_order *order, int *fd) {
        orders += order->epoch == 3 && *fd >= 0;
}

static struct job *new_job(int socket, int expected) {
        static const struct job_events events = {no_attach,   no_release, no_seek, no_close, count_read,
                                                 take_zygote, take_order, NULL,    NULL};
        static uint32_t id;
        int r = job_new(&loop, &jobs, &quota, socket, ++id, &events, NULL, &fault);

        ck_assert_msg(r == expected, "job_new: %d, %s", r, fault.text);
        return r < 0 ? NULL : container_of(jobs.prev, struct job, link);
}

static void init_loop(void) {
        make_socket();
        ck_assert_int_eq(uv_loop_init(&loop), 0);
        list_init(&jobs);
}

static void deinit_loop(void) {
        list_for_each_safe (link, &jobs)
                job_close(container_of(link, struct job, link), NULL);
        uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&loop), 0);
        remove_socket();
}

/* Lets the loop work until there is no job, and asserts that this takes less than so long. */
static void run_until_none(uint64_t ms) {
        uint64_t deadline = clock_ns() + ms * NS_PER_MS;

        while (!list_is_empty(&jobs)) {
                ck_assert_uint_lt(clock_ns(), deadline);
                uv_run(&loop, UV_RUN_NOWAIT);
                usleep(1000);
        }
}

START_TEST(test_end_of_process_ends_the_job) {
        int ends[2], socket;
        pid_t pid;

        ck_assert_int_eq(pipe(ends), 0);
        pid = connect_process(&socket, _i ? ends : NULL);
        new_job(socket, 0);
        for (int i = 0; i < 20; i++) {
                uv_run(&loop, UV_RUN_NOWAIT);
                usleep(1000);
        }
        ck_assert(!list_is_empty(&jobs));
        end_process(pid);
        run_until_none(2000);
        close(ends[0]);
        close(ends[1]);
}
END_TEST

/* The first of a burst are served at once, the next one waits for its turn, and gives it up when it goes. */
START_TEST(test_who_comes_too_often_waits) {
        int pair[2], other[2];
        uint64_t wait_ns;
        struct job *job;

        for (unsigned i = 0; i < QUOTA_BURST; i++) {
                ck_assert_int_eq(quota_enter(&quota, geteuid(), clock_ns(), &wait_ns), 0);
                quota_leave(&quota, geteuid(), true);
        }
        for (unsigned i = 0; i < 100; i++)
                enter(geteuid(), clock_ns());
        ck_assert_int_eq(seqpacket_pair(pair), 0);
        ck_assert_int_eq(seqpacket_pair(other), 0);
        job = new_job(pair[0], 0);
        ck_assert_int_eq(job->state, JOB_QUEUED);
        close(pair[1]);
        run_until_none(300); /* long before its turn */
        job = new_job(other[0], 0);
        ck_assert_int_eq(job->state, JOB_QUEUED);
        while (job->state == JOB_QUEUED)
                uv_run(&loop, UV_RUN_ONCE);
        ck_assert_int_eq(job->state, JOB_NEW);
        ck_assert_uint_ge(clock_ns() - job->connected_ns, 50 * TURN_NS);
        close(other[1]);
        run_until_none(2000);
}
END_TEST

START_TEST(test_too_many_are_refused) {
        int pair[2], fds[SEQPACKET_FDS_MAX];
        struct message message;
        size_t n_fds;

        for (unsigned i = 0; i < QUOTA_CONNECTIONS_MAX; i++)
                enter(geteuid(), clock_ns());
        ck_assert_int_eq(seqpacket_pair(pair), 0);
        new_job(pair[0], -EMFILE);
        ck_assert_ptr_nonnull(strstr(fault.text, "1024 connections"));
        ck_assert_int_eq(message_receive(pair[1], &message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_JOB, &fault),
                         0);
        ck_assert_int_eq(message.type, MESSAGE_REFUSED);
        ck_assert_int_eq(message.refused.error, EMFILE);
        ck_assert_int_eq(message_receive(pair[1], &message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_JOB, &fault),
                         MESSAGE_E_CLOSED);
        close(pair[1]);
}
END_TEST

/* ---- SEEK and SOUGHT ---- */

enum {
        HELD = 4000, /* more batches than a socket takes one by one */
        SLOTS = 3,
};

static struct job *attached;
static int peer;
static unsigned seeks; /* events */
static bool answers;   /* each at once, with a yes */
static struct {
        enum message_map kind;
        const char *reason;
} granted;

static void accept_attach(void *context, struct job *job) {
        struct message message = {.type = MESSAGE_ATTACHED,
                                  .attached = {.job = 1,
                                               .samples = 1,
                                               .batch_size = 1,
                                               .last_batch = 1,
                                               .max_held = HELD,
                                               .minimum = 1,
                                               .map = (uint8_t)granted.kind,
                                               .slots = SLOTS,
                                               .slot_rows = 1,
                                               .slot_stride = 1,
                                               .slot_bytes = 1,
                                               .n_field = 1,
                                               .field = {{.name = "x", .dtype = 1}},
                                               .fingerprint = "1",
                                               .pipeline = "p"}};

        strcpy(message.attached.map_reason, granted.reason);
        job_set_attached(job, &message, listening, 1);
}

static void count_seek(void *context, struct job *job) {
        seeks++;
        while (answers && job_next_seek(job))
                job_answer_seek(job, 77, 0, NULL);
}

static void look(void) {
        for (int i = 0; i < 3; i++)
                uv_run(&loop, UV_RUN_NOWAIT);
}

static void say(struct message message) {
        ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
        look();
}

static void say_seek(uint64_t row) {
        say((struct message){.type = MESSAGE_SEEK, .seek = {.row = row}});
}

/* The next message, or 0 when there is none. */
static int hear(struct message *message) {
        int fds[SEQPACKET_FDS_MAX], r;
        size_t n_fds = 0;

        look();
        r = message_receive(peer, message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_JOB, &fault);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        ck_assert_msg(r == 0 || r == MESSAGE_E_AGAIN || r == MESSAGE_E_CLOSED, "%d, %s", r, fault.text);
        return r == 0 ? (int)message->type : 0;
}

static void expect_sought(uint64_t number, int error) {
        static struct message message;

        ck_assert_int_eq(hear(&message), MESSAGE_SOUGHT);
        ck_assert_uint_eq(message.sought.number, number);
        ck_assert_int_eq(message.sought.error, error);
}

static void deliver(uint64_t number) {
        struct message_batch batch = {.number = number, .rows = 1, .segments = 1};

        *job_deliver(attached, &batch) = (struct message_segment){.rows = 1};
        job_flush(attached);
}

/* Batches up to the first that the socket does not take. */
static uint64_t fill_socket(void) {
        uint64_t number = 0;

        while (attached->outbox_count == 0)
                deliver(number++);
        ck_assert_uint_gt(number, 10);
        return number - 1;
}

/* Reads them all; the number of the one that would be next. */
static uint64_t drain(uint64_t number) {
        static struct message message;

        while (message_receive(peer, &message, NULL, &(size_t){0}, MESSAGE_BY_DAEMON_TO_JOB, &fault) == 0) {
                ck_assert_int_eq(message.type, MESSAGE_BATCHES);
                for (uint32_t i = 0; i < message.batches.n_batch; i++)
                        ck_assert_uint_eq(message.batches.batch[i].number, number++);
        }
        return number;
}

static void greet(const struct job_events *events) {
        struct message message = {.type = MESSAGE_HELLO, .hello = {MESSAGE_MAJOR, MESSAGE_MINOR, "test"}};
        int pair[2];

        init_loop();
        seeks = reads = zygotes = orders = 0;
        answers = false;
        granted.kind = MESSAGE_MAP_READ_ONLY;
        granted.reason = "";
        ck_assert_int_eq(seqpacket_pair(pair), 0);
        peer = pair[1];
        ck_assert_int_eq(job_new(&loop, &jobs, &quota, pair[0], 1, events, NULL, &fault), 0);
        attached = container_of(jobs.prev, struct job, link);
        say(message);
        ck_assert_int_eq(hear(&message), MESSAGE_HELLO);
}

static void init_attached(void) {
        static const struct job_events events = {accept_attach, no_release, count_seek, no_close, count_read,
                                                 take_zygote,   take_order, NULL,       NULL};
        struct message message;

        greet(&events);
        say((struct message){.type = MESSAGE_ATTACH,
                             .attach = {.pipeline = "p", .world_size = 1, .max_held = HELD}});
        ck_assert_int_eq(hear(&message), MESSAGE_ATTACHED);
}

static void deinit_attached(void) {
        close(peer);
        deinit_loop();
}

/* While a SEEK waits nothing is sent; a no leaves everything where it was, behind the answer. */
START_TEST(test_seek_that_is_refused) {
        static struct message message;

        deliver(0);
        ck_assert_int_eq(hear(&message), MESSAGE_BATCHES);
        say_seek(5);
        ck_assert_uint_eq(seeks, 1);
        ck_assert_uint_eq(job_next_seek(attached)->row, 5);
        deliver(1);
        deliver(2);
        ck_assert_int_eq(hear(&message), 0);
        job_answer_seek(attached, 3, -ENOSPC, "no room");
        expect_sought(1, ENOSPC);
        ck_assert_ptr_null(job_next_seek(attached));
        ck_assert_int_eq(hear(&message), MESSAGE_BATCHES);
        ck_assert_uint_eq(message.batches.n_batch, 2);
        ck_assert_uint_eq(message.batches.batch[0].number, 1);
}
END_TEST

/* The socket is full: the answer waits, and goes before what was delivered after it; what was delivered
 * before it and not sent is gone. */
START_TEST(test_answer_to_a_full_socket) {
        static struct message message;
        uint64_t unsent = fill_socket(), number;

        deliver(unsent + 1);
        say_seek(5);
        ck_assert(job_take_back(attached, &number));
        ck_assert_uint_eq(number, unsent);
        ck_assert(job_take_back(attached, &number));
        ck_assert_uint_eq(number, unsent + 1);
        ck_assert(!job_take_back(attached, &number));
        job_answer_seek(attached, unsent + 2, 0, NULL);
        ck_assert(attached->answering);
        deliver(unsent + 2);
        ck_assert_uint_eq(attached->sent, unsent);

        ck_assert_uint_eq(drain(0), unsent);
        expect_sought(unsent + 2, 0);
        ck_assert_int_eq(hear(&message), MESSAGE_BATCHES);
        ck_assert_uint_eq(message.batches.batch[0].number, unsent + 2);
        ck_assert_uint_eq(attached->sent, unsent + 3);
        ck_assert(!attached->blocked);
}
END_TEST

/* Several under way: one answer each, in order, each when the one before has gone, and no batch between. */
START_TEST(test_answers_come_one_by_one) {
        static struct message message;
        uint64_t unsent = fill_socket(), number;

        for (uint64_t row = 0; row < 3; row++)
                say_seek(row);
        ck_assert_uint_eq(seeks, 3);
        while (job_take_back(attached, &number))
                ;
        job_answer_seek(attached, 500, 0, NULL);
        ck_assert_ptr_null(job_next_seek(attached));
        deliver(500);
        ck_assert_uint_eq(drain(0), unsent);
        expect_sought(500, 0);
        ck_assert_uint_eq(seeks, 4); /* the next one may be answered */
        ck_assert_uint_eq(job_next_seek(attached)->row, 1);
        ck_assert_int_eq(hear(&message), 0);
        job_answer_seek(attached, 501, -EINVAL, "no such row");
        expect_sought(500, EINVAL);
        ck_assert_uint_eq(job_next_seek(attached)->row, 2);
        ck_assert(job_take_back(attached, &number));
        job_answer_seek(attached, 501, 0, NULL);
        expect_sought(501, 0);
        ck_assert_int_eq(hear(&message), 0);
}
END_TEST

/* The same answered at once, as the daemon does where it can. */
START_TEST(test_answers_from_within_the_event) {
        static struct message message;
        uint64_t unsent = fill_socket(), number;

        while (job_take_back(attached, &number))
                ;
        answers = true;
        for (uint64_t row = 0; row < 5; row++)
                say_seek(row);
        deliver(77);
        ck_assert_uint_eq(drain(0), unsent);
        for (int i = 0; i < 5; i++)
                expect_sought(77, 0);
        ck_assert_int_eq(hear(&message), MESSAGE_BATCHES);
        ck_assert_uint_eq(message.batches.batch[0].number, 77);
}
END_TEST

/* The bound, also when one of them has an answer that waits for the socket. */
START_TEST(test_too_many_seeks) {
        if (_i) {
                fill_socket();
                say_seek(0);
                job_answer_seek(attached, 0, -EINVAL, "no");
                ck_assert(attached->answering);
        } else {
                say_seek(0);
        }
        for (int i = 1; i < JOB_SEEKS_MAX; i++)
                say_seek(0);
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
        say_seek(0);
        ck_assert(list_is_empty(&jobs));
}
END_TEST

/* ---- READ ---- */

static void say_read(void) {
        say((struct message){.type = MESSAGE_READ});
}

START_TEST(test_read) {
        say_read();
        say_read();
        ck_assert_uint_eq(reads, 2);
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
}
END_TEST

/* ---- DEFINE ---- */

static char defined[MESSAGE_DEFINITION_MAX + 64]; /* "FILE: TEXT" of what ATTACH came with */

static void take_definition(void *context, struct job *job) {
        snprintf(defined, sizeof(defined), "%s: %s", job->definition.file, job->definition.text);
        accept_attach(context, job);
}

static void init_greeted(void) {
        static const struct job_events events = {take_definition, no_release, count_seek,
                                                 no_close,        count_read, take_zygote,
                                                 take_order,      NULL,       NULL};

        greet(&events);
}

static void say_define(const char *file, const char *text) {
        static struct message message;

        message.type = MESSAGE_DEFINE;
        snprintf(message.define.file, sizeof(message.define.file), "%s", file);
        snprintf(message.define.text, sizeof(message.define.text), "%s", text);
        say(message);
}

START_TEST(test_parts_of_a_definition) {
        say_define("/f", "one, ");
        say_define("", "two");
        say((struct message){.type = MESSAGE_ATTACH, .attach = {.world_size = 1, .max_held = 1}});
        ck_assert_str_eq(defined, "/f: one, two");
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
        ck_assert_ptr_null(attached->definition.text);
        say_define("/f", "too late");
        ck_assert(list_is_empty(&jobs));
}
END_TEST

static const struct {
        const char *first, *second; /* files */
} misnamed[] = {{"", NULL}, {"/f", "/f"}, {"/f", "/g"}};

START_TEST(test_files_of_a_definition) {
        say_define(misnamed[_i].first, "text");
        if (misnamed[_i].second)
                say_define(misnamed[_i].second, "text");
        ck_assert(list_is_empty(&jobs));
}
END_TEST

START_TEST(test_length_of_a_definition) {
        static char text[MESSAGE_DEFINE_MAX + 1];

        memset(text, 'x', MESSAGE_DEFINE_MAX);
        for (int i = 0; i < MESSAGE_DEFINITION_MAX / MESSAGE_DEFINE_MAX; i++)
                say_define(i == 0 ? "/f" : "", text);
        ck_assert_uint_eq(attached->definition.length, MESSAGE_DEFINITION_MAX);
        say_define("", "x");
        ck_assert(list_is_empty(&jobs));
}
END_TEST

/* ---- BRING and ORDER ---- */

static void say_with(struct message message, int fd) {
        ck_assert_int_eq(message_send(peer, &message, &fd, 1), 0);
        close(fd);
        look();
}

static void say_bring(uint32_t pid) {
        say_with((struct message){.type = MESSAGE_BRING, .bring = {pid}}, shm_create_memfd("zygote"));
}

static void say_order(uint32_t epoch, bool sealed) {
        int fd = shm_create_memfd("order");

        ck_assert_int_eq(ftruncate(fd, 8), 0);
        if (sealed)
                ck_assert_int_eq(shm_seal_all(fd), 0);
        say_with((struct message){.type = MESSAGE_ORDER, .order = {.epoch = epoch, .entries = 1}}, fd);
}

/* What comes before ATTACH waits for it, and of zygotes the last one. */
START_TEST(test_gifts_before_attach) {
        int before = fd_count();

        say_bring(6);
        say_bring(7);
        say_order(3, true);
        say_order(4, true);
        ck_assert_uint_eq(zygotes + orders, 0);
        ck_assert_uint_eq(attached->zygote_pid, 7);
        ck_assert_uint_eq(attached->orders.count, 2);
        ck_assert_int_eq(fd_count(), before + 3);
        job_close(attached, NULL);
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_int_lt(fd_count(), before);
}
END_TEST

START_TEST(test_gifts_after_attach) {
        int before = fd_count();

        say((struct message){.type = MESSAGE_ATTACH, .attach = {.world_size = 1, .max_held = 1}});
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
        say_bring(7);
        say_order(3, false); /* whoever takes it looks at it */
        ck_assert_uint_eq(zygotes, 1);
        ck_assert_uint_eq(orders, 1);
        ck_assert_int_eq(attached->zygote_fd, -1);
        ck_assert_int_eq(fd_count(), before);
}
END_TEST

START_TEST(test_order_that_may_change) {
        say_order(3, false);
        ck_assert(list_is_empty(&jobs));
}
END_TEST

/* ---- whose jobs ---- */

static int turn_away(void *context, const struct peer *peer, struct fault *reason) {
        return fault_set(reason, -EPERM, "not user %u", (unsigned)peer->uid);
}

START_TEST(test_turned_away_with_a_reason) {
        static const struct job_events events = {no_attach,   no_release, no_seek, no_close, count_read,
                                                 take_zygote, take_order, NULL,    turn_away};
        struct message message;
        char expected[64];
        int pair[2];

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        peer = pair[1];
        ck_assert_int_eq(job_new(&loop, &jobs, &quota, pair[0], 1, &events, NULL, &fault), -EPERM);
        ck_assert(list_is_empty(&jobs));
        ck_assert_int_eq(hear(&message), MESSAGE_REFUSED);
        ck_assert_int_eq(message.refused.error, EPERM);
        snprintf(expected, sizeof(expected), "not user %u", (unsigned)geteuid());
        ck_assert_str_eq(message.refused.text, expected);
        close(peer);
}
END_TEST

/* ---- how the ring is mapped ---- */

static const struct {
        enum message_map asked;
        bool trusted;
        enum message_map kind;
        bool reason;
} decisions[] = {
        {MESSAGE_MAP_ANY, true, MESSAGE_MAP_READ_ONLY, false},
        {MESSAGE_MAP_READ_ONLY, true, MESSAGE_MAP_READ_ONLY, false},
        {MESSAGE_MAP_PINNED, true, MESSAGE_MAP_PINNED, false},
        {MESSAGE_MAP_PINNED, false, MESSAGE_MAP_READ_ONLY, true},
        {MESSAGE_MAP_READ_ONLY, false, MESSAGE_MAP_READ_ONLY, false},
        {MESSAGE_MAP_ANY, false, MESSAGE_MAP_READ_ONLY, false},
};

START_TEST(test_who_may_pin) {
        char reason[MESSAGE_TEXT_MAX + 1], number[32];

        memset(reason, 'x', sizeof(reason));
        ck_assert_int_eq(map_decide(decisions[_i].asked, decisions[_i].trusted, 1001, "pinfeed.yaml:7",
                                    reason, sizeof(reason)),
                         decisions[_i].kind);
        ck_assert_int_eq(*reason != 0, decisions[_i].reason);
        if (!decisions[_i].reason)
                return;
        snprintf(number, sizeof(number), "(uid %u)", (unsigned)geteuid());
        ck_assert_ptr_nonnull(strstr(reason, number));
        ck_assert_ptr_nonnull(strstr(reason, "of uid 1001"));
        ck_assert_ptr_nonnull(strstr(reason, "(pinfeed.yaml:7)"));
        ck_assert_ptr_nonnull(strstr(reason, "private daemon"));
}
END_TEST

static void init_mapping(void) {
        static const struct job_events events = {accept_attach, no_release, count_seek, no_close, count_read,
                                                 take_zygote,   take_order, NULL,       NULL};

        greet(&events);
}

static void attach_asking(enum message_map asked) {
        struct message message;

        say((struct message){
                .type = MESSAGE_ATTACH,
                .attach = {.pipeline = "p", .world_size = 1, .max_held = 1, .map = (uint8_t)asked}});
        ck_assert_int_eq(hear(&message), MESSAGE_ATTACHED);
}

static void say_mapped(enum message_map kind, uint32_t registered, const char *reason) {
        struct message message = {.type = MESSAGE_MAPPED,
                                  .mapped = {.map = (uint8_t)kind, .registered = registered}};

        strcpy(message.mapped.reason, reason);
        say(message);
}

START_TEST(test_mapping_is_kept) {
        granted.kind = MESSAGE_MAP_PINNED;
        attach_asking(MESSAGE_MAP_PINNED);
        ck_assert(attached->map.pins);
        ck_assert_int_eq(attached->map.kind, MESSAGE_MAP_PINNED);
        ck_assert_uint_eq(attached->map.slots, SLOTS);
        ck_assert_uint_eq(attached->map.registered, 0);
        ck_assert_str_eq(attached->map.reason, "");
        say_mapped(MESSAGE_MAP_PINNED, 2, "as asked for");
        ck_assert_uint_eq(attached->map.registered, 2);
        ck_assert_str_eq(attached->map.reason, "as asked for");
        ck_assert(!attached->map.given_up);
        say_mapped(MESSAGE_MAP_READ_ONLY, 1, "cudaHostRegister\n\x1b[31m failed");
        ck_assert_int_eq(attached->map.kind, MESSAGE_MAP_READ_ONLY);
        ck_assert_uint_eq(attached->map.registered, 1);
        ck_assert_str_eq(attached->map.reason, "cudaHostRegister??[31m failed");
        ck_assert(attached->map.given_up);
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
}
END_TEST

/* It is said once: at the attach, or when it happens; and not of a job that never wanted it. */
START_TEST(test_giving_up_is_said_once) {
        struct message_attached answer = {.map = MESSAGE_MAP_READ_ONLY, .slots = SLOTS};
        struct message_mapped lost = {.map = MESSAGE_MAP_READ_ONLY, .reason = "refused"};
        struct map map;

        ck_assert_int_eq(map_init(&map, MESSAGE_MAP_READ_ONLY, &answer), 0);
        ck_assert_int_eq(map_note(&map, &lost, &fault), MAP_E_GIVEN_UP);
        ck_assert_int_eq(map_note(&map, &lost, &fault), 0);
        ck_assert_int_eq(map_init(&map, MESSAGE_MAP_ANY, &answer), 0);
        ck_assert_int_eq(map_note(&map, &lost, &fault), 0);
        ck_assert_str_eq(map.reason, "refused");
        strcpy(answer.map_reason, "another user's");
        ck_assert_int_eq(map_init(&map, MESSAGE_MAP_PINNED, &answer), MAP_E_GIVEN_UP);
        ck_assert_str_eq(map.reason, "another user's");
        ck_assert_int_eq(map_note(&map, &lost, &fault), 0);
}
END_TEST

START_TEST(test_refused_at_attach) {
        granted.reason = "another user's";
        attach_asking(MESSAGE_MAP_PINNED);
        ck_assert_int_eq(attached->map.kind, MESSAGE_MAP_READ_ONLY);
        ck_assert_str_eq(attached->map.reason, "another user's");
        ck_assert(attached->map.given_up);
}
END_TEST

START_TEST(test_more_slots_than_there_are) {
        attach_asking(MESSAGE_MAP_PINNED);
        say_mapped(MESSAGE_MAP_PINNED, SLOTS, "");
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
        say_mapped(MESSAGE_MAP_PINNED, SLOTS + 1, "");
        ck_assert(list_is_empty(&jobs));
}
END_TEST

START_TEST(test_mapped_too_often) {
        attach_asking(MESSAGE_MAP_PINNED);
        for (uint32_t i = 0; i < SLOTS + MAP_NOTES_SPARE; i++)
                say_mapped(MESSAGE_MAP_PINNED, i % SLOTS, "");
        ck_assert_int_eq(attached->state, JOB_ATTACHED);
        say_mapped(MESSAGE_MAP_PINNED, 0, "");
        ck_assert(list_is_empty(&jobs));
}
END_TEST

START_TEST(test_mapped_before_attach) {
        say_mapped(MESSAGE_MAP_PINNED, 0, "");
        ck_assert(list_is_empty(&jobs));
}
END_TEST

START_TEST(test_read_out_of_turn) {
        say_read();
        ck_assert_uint_eq(reads, 0);
        ck_assert(list_is_empty(&jobs));
}
END_TEST

int main(void) {
        Suite *suite = suite_create("job");
        TCase *plain = tcase_create("quota"), *peer = tcase_create("peer"), *job = tcase_create("job"),
              *seek = tcase_create("seek"), *define = tcase_create("define"), *map = tcase_create("map");

        tcase_add_test(plain, test_connections_are_counted);
        tcase_add_test(plain, test_turns);
        tcase_add_test(plain, test_who_vanishes_gives_its_turn_back);
        tcase_add_checked_fixture(peer, make_socket, remove_socket);
        tcase_add_test(peer, test_watch_peer);
        tcase_add_checked_fixture(job, init_loop, deinit_loop);
        tcase_add_loop_test(job, test_end_of_process_ends_the_job, 0, 2);
        tcase_add_test(job, test_who_comes_too_often_waits);
        tcase_add_test(job, test_too_many_are_refused);
        tcase_add_test(job, test_turned_away_with_a_reason);
        tcase_add_checked_fixture(seek, init_attached, deinit_attached);
        tcase_add_test(seek, test_seek_that_is_refused);
        tcase_add_test(seek, test_answer_to_a_full_socket);
        tcase_add_test(seek, test_answers_come_one_by_one);
        tcase_add_test(seek, test_answers_from_within_the_event);
        tcase_add_loop_test(seek, test_too_many_seeks, 0, 2);
        tcase_add_test(seek, test_read);
        suite_add_tcase(suite, plain);
        suite_add_tcase(suite, peer);
        suite_add_tcase(suite, job);
        tcase_add_checked_fixture(define, init_greeted, deinit_attached);
        tcase_add_test(define, test_parts_of_a_definition);
        tcase_add_loop_test(define, test_files_of_a_definition, 0, sizeof(misnamed) / sizeof(*misnamed));
        tcase_add_test(define, test_length_of_a_definition);
        tcase_add_test(define, test_read_out_of_turn);
        tcase_add_test(define, test_gifts_before_attach);
        tcase_add_test(define, test_gifts_after_attach);
        tcase_add_test(define, test_order_that_may_change);
        suite_add_tcase(suite, seek);
        suite_add_tcase(suite, define);
        tcase_add_loop_test(plain, test_who_may_pin, 0, sizeof(decisions) / sizeof(*decisions));
        tcase_add_test(plain, test_giving_up_is_said_once);
        tcase_add_checked_fixture(map, init_mapping, deinit_attached);
        tcase_add_test(map, test_mapping_is_kept);
        tcase_add_test(map, test_refused_at_attach);
        tcase_add_test(map, test_more_slots_than_there_are);
        tcase_add_test(map, test_mapped_too_often);
        tcase_add_test(map, test_mapped_before_attach);
        suite_add_tcase(suite, map);
        return run_suite(suite);
}
