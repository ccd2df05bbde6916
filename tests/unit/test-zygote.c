/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Workers that a zygote forks, and zygotes that do not do what they should. The zygote is a child of this
 * process, and its forks do what their script says. */

#include "daemon/zygote.h"

#include "base/fault.h"
#include "proto/message.h"
#include "tests/support/run.h"
#include "tests/unit/pool-stage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- the zygote ---- */

/* What is wrong with it. */
enum fashion {
        GOOD,
        CANNOT_FORK,
        SILENT,           /* it forks and does not say so */
        MUTE,             /* it never tells of an end */
        LIAR,             /* it tells of the end of one that lives */
        WRONG_NUMBER,     /* it answers for another worker */
        OTHERS_ZYGOTE,    /* it answers another daemon first */
        NO_PIDFD,         /* it sends something else */
        TALKS_TOO_MUCH,   /* it tells of the end of one that it was not asked for */
        ENDS_BEFORE_FORK, /* it hears what it is asked, and ends */
};

static void wear(int leash) {
        fcntl(leash, F_SETOWN, getpid());
        fcntl(leash, F_SETSIG, SIGKILL);
        fcntl(leash, F_SETFL, O_ASYNC);
        if (poll(&(struct pollfd){.fd = leash}, 1, 0) != 0)
                raise(SIGKILL);
}

static void tell_exited(int socket, const struct message_fork *fork, int status) {
        struct message message = {.type = MESSAGE_EXITED};

        message.exited.daemon = fork->daemon;
        message.exited.worker = fork->worker;
        if (WIFSIGNALED(status))
                message.exited.signal = (uint8_t)WTERMSIG(status);
        else
                message.exited.exit_status = (uint8_t)WEXITSTATUS(status);
        message_send(socket, &message, NULL, 0);
}

static void tell_forked(int socket, const struct message_fork *fork, enum fashion fashion, pid_t pid) {
        struct message message = {.type = MESSAGE_FORKED};
        int pidfd = pid > 0 && fashion != NO_PIDFD ? (int)syscall(SYS_pidfd_open, pid, 0) : dup(socket);

        message.forked = (struct message_forked){fork->daemon, fork->worker, 0, (uint32_t)pid};
        if (fashion == OTHERS_ZYGOTE) {
                message.forked.daemon ^= 1;
                message_send(socket, &message, &pidfd, 1);
                message.forked.daemon ^= 1;
        }
        message.forked.worker += fashion == WRONG_NUMBER;
        message.forked.error = fashion == CANNOT_FORK ? EAGAIN : 0;
        if (fashion != SILENT)
                message_send(socket, &message, &pidfd, fashion == CANNOT_FORK ? 0 : 1);
        close(pidfd);
}

static pid_t fork_actor(int socket, int fds[2], const char *script) {
        pid_t pid = fork();

        if (pid != 0) {
                close(fds[0]);
                close(fds[1]);
                return pid;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, SIG_DFL); /* Check's handler would end the whole test */
        close(socket);
        if (fds[1] == 3)
                fds[1] = dup(fds[1]);
        if (fds[0] != 3)
                dup2(fds[0], 3);
        wear(fds[1]);
        actor_play(script);
}

static void act_zygote(int socket, enum fashion fashion, const char *script) {
        struct message_fork last = {};
        struct message message;
        int fds[SEQPACKET_FDS_MAX], status;
        struct fault fault;
        size_t n_fds;

        for (pid_t pid = 0;;) {
                int r = message_receive(socket, &message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_ZYGOTE, &fault);

                if (r == 0 && fashion == ENDS_BEFORE_FORK)
                        _exit(0);
                if (r == 0) {
                        last = message.fork;
                        pid = fashion == CANNOT_FORK ? 0 : fork_actor(socket, fds, script);
                        last.worker += fashion == TALKS_TOO_MUCH;
                        tell_forked(socket, &message.fork, fashion, pid);
                        if (fashion == LIAR || fashion == TALKS_TOO_MUCH)
                                tell_exited(socket, &last, 0);
                } else if (r != MESSAGE_E_AGAIN) {
                        _exit(0);
                }
                if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid) {
                        pid = 0;
                        if (fashion != MUTE && fashion != SILENT)
                                tell_exited(socket, &last, status);
                }
                usleep(1000);
        }
}

/* ---- the daemon ---- */

struct forks {
        struct stage stage;
        struct zygote *zygote;
        pid_t zygote_pid;
        uint32_t answered, gone;
};

static void on_answered(void *context, struct zygote *zygote) {
        struct forks *forks = context;

        forks->answered++;
}

static void on_gone(void *context, struct zygote *zygote) {
        struct forks *forks = context;

        forks->gone++;
        forks->stage.pool.zygote = NULL;
}

/* A worker that such a zygote was asked for. */
static struct pool_worker *ask_zygote(struct forks *forks, enum fashion fashion, const char *script) {
        static const struct zygote_events zygote_events = {.answered = on_answered, .gone = on_gone};
        struct fault fault;
        int pair[2];

        *forks = (struct forks){};
        stage_init(&forks->stage, "/bin/false");
        ck_assert_int_eq(seqpacket_pair(pair), 0);
        forks->zygote_pid = fork();
        if (forks->zygote_pid == 0) {
                close(pair[0]);
                act_zygote(pair[1], fashion, script);
        }
        close(pair[1]);
        ck_assert_int_eq(zygote_new(&forks->zygote, &forks->stage.loop, &pair[0], (int)forks->zygote_pid,
                                    &zygote_events, forks, &fault),
                         0);
        ck_assert_int_eq(pair[0], -1);
        forks->stage.pool.zygote = forks->zygote;
        stage_start_one(&forks->stage);
        pool_set_index(&forks->stage.pool, &(struct message_index){.samples = 100}, -1);
        return forks->stage.worker;
}

/* Valgrind does not know of them. */
static bool has_pidfds(void) {
        int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

static void end_zygote(struct forks *forks) {
        if (forks->stage.pool.zygote)
                zygote_close(forks->zygote);
        forks->stage.pool.zygote = NULL;
        stage_end(&forks->stage);
        kill(forks->zygote_pid, SIGKILL);
        waitpid(forks->zygote_pid, NULL, 0);
}

START_TEST(a_fork_works_when_it_is_there) {
        struct forks forks;
        struct pool_worker *worker;

        if (!has_pidfds())
                return;
        worker = ask_zygote(&forks, GOOD, "gdgq");
        ck_assert_int_eq(worker->process.pid, 0);
        ck_assert_ptr_null(pool_free_worker(&forks.stage.pool, true));
        ck_assert_ptr_null(pool_fresh_worker(&forks.stage.pool));
        WAIT(&forks.stage, worker->process.pid > 0);
        ck_assert_uint_eq(forks.answered, 1);
        ck_assert_ptr_eq(pool_free_worker(&forks.stage.pool, true), worker);
        ck_assert_ptr_eq(pool_fresh_worker(&forks.stage.pool), worker);
        stage_give(worker, 0);
        WAIT(&forks.stage, forks.stage.done == 1);
        ck_assert_uint_eq(forks.stage.died, 0);
        stage_give(worker, 1);
        WAIT(&forks.stage, forks.stage.died == 1);
        ck_assert_uint_eq(forks.stage.lost, 1);
        ck_assert_int_eq(forks.stage.process.exit_status, 7);
        ck_assert_int_eq(forks.stage.process.signal, 0);
        ck_assert(!forks.stage.process.orphaned && forks.stage.process.error == 0);
        ck_assert_uint_eq(forks.gone, 0);
        end_zygote(&forks);
}
END_TEST

/* By its signal, which the zygote tells; and if it does not, by SIGKILL as far as anybody knows. */
START_TEST(a_fork_dies) {
        static const enum fashion fashions[] = {GOOD, MUTE};
        struct forks forks;
        struct pool_worker *worker;

        if (!has_pidfds())
                return;
        worker = ask_zygote(&forks, fashions[_i], "");
        WAIT(&forks.stage, worker->process.pid > 0);
        stage_give(worker, 0);
        kill(worker->process.pid, SIGABRT);
        WAIT(&forks.stage, forks.stage.died == 1);
        ck_assert_int_eq(forks.stage.process.signal, fashions[_i] == MUTE ? SIGKILL : SIGABRT);
        ck_assert_uint_eq(forks.stage.lost, 1);
        ck_assert_uint_eq(forks.gone, 0);
        end_zygote(&forks);
}
END_TEST

START_TEST(a_fork_goes_with_its_zygote) {
        struct forks forks;
        struct pool_worker *worker;
        int pidfd;

        if (!has_pidfds())
                return;
        worker = ask_zygote(&forks, GOOD, "");
        WAIT(&forks.stage, worker->process.pid > 0);
        pidfd = (int)syscall(SYS_pidfd_open, worker->process.pid, 0);
        stage_give(worker, 0);
        if (_i == 0)
                kill(forks.zygote_pid, SIGKILL);
        else
                zygote_close(forks.zygote); /* it lives on, as the script does */
        if (_i > 0)
                forks.stage.pool.zygote = NULL;
        WAIT(&forks.stage, forks.stage.died == 1);
        ck_assert(forks.stage.process.orphaned);
        ck_assert_uint_eq(forks.stage.lost, 1);
        ck_assert_uint_eq(forks.gone, _i == 0);
        ck_assert_int_eq(poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, 0), 1);
        close(pidfd);
        end_zygote(&forks);
}
END_TEST

START_TEST(a_fork_that_never_was) {
        static const struct {
                enum fashion fashion;
                int error;
                bool orphaned;
        } ways[] = {{CANNOT_FORK, EAGAIN, false}, {NO_PIDFD, EBADF, false}, {ENDS_BEFORE_FORK, 0, true}};
        struct forks forks;

        ask_zygote(&forks, ways[_i].fashion, "");
        WAIT(&forks.stage, forks.stage.died == 1);
        ck_assert_int_eq(forks.stage.process.pid, 0);
        ck_assert_int_eq(forks.stage.process.error, ways[_i].error);
        ck_assert_int_eq(forks.stage.process.orphaned, ways[_i].orphaned);
        ck_assert_uint_eq(forks.stage.lost, 0);
        end_zygote(&forks);
}
END_TEST

START_TEST(a_zygote_that_cannot_be_believed_goes) {
        static const enum fashion fashions[] = {LIAR, WRONG_NUMBER, TALKS_TOO_MUCH};
        struct forks forks;

        if (!has_pidfds())
                return;
        ask_zygote(&forks, fashions[_i], "");
        WAIT(&forks.stage, forks.stage.died == 1);
        ck_assert_uint_eq(forks.gone, 1);
        ck_assert(forks.stage.process.orphaned);
        end_zygote(&forks);
}
END_TEST

START_TEST(answers_to_another_daemon_are_not_ours) {
        struct forks forks;
        struct pool_worker *worker;

        if (!has_pidfds())
                return;
        worker = ask_zygote(&forks, OTHERS_ZYGOTE, "gd");
        WAIT(&forks.stage, worker->process.pid > 0);
        stage_give(worker, 0);
        WAIT(&forks.stage, forks.stage.done == 1);
        ck_assert_uint_eq(forks.answered, 1);
        ck_assert_uint_eq(forks.gone, 0);
        end_zygote(&forks);
}
END_TEST

/* Neither one that does not answer, nor one that is killed before it does, keeps a pool from ending. */
START_TEST(a_silent_zygote_holds_up_nobody) {
        struct forks forks;

        ask_zygote(&forks, SILENT, "");
        pool_stop(&forks.stage.pool, false);
        WAIT(&forks.stage, forks.stage.stopped);
        ck_assert_uint_eq(forks.stage.died, 0);
        ck_assert_uint_eq(forks.gone, 0);
        end_zygote(&forks);
}
END_TEST

START_TEST(a_zygote_is_not_asked_for_too_many) {
        struct message_setup setup = {.slots = 8, .slot_rows = 8, .recipe = "{}"};
        struct forks forks;
        struct fault fault;
        int ring = shm_create_memfd("ring");

        ask_zygote(&forks, SILENT, "");
        ck_assert_int_eq(pool_grow(&forks.stage.pool, 100, &setup, ring, &fault), 0);
        ck_assert_uint_eq(forks.stage.pool.n_workers, ZYGOTE_FORKS_MAX);
        ck_assert(!pool_may_start(&forks.stage.pool));
        close(ring);
        end_zygote(&forks);
}
END_TEST

START_TEST(a_zygote_is_a_socket) {
        static const struct zygote_events none;
        struct fault fault;
        struct forks forks;
        int file = shm_create_memfd("no socket");

        stage_init(&forks.stage, "/bin/false");
        ck_assert_int_eq(zygote_new(&forks.zygote, &forks.stage.loop, &file, 1, &none, NULL, &fault),
                         -EINVAL);
        ck_assert_int_ge(file, 0);
        close(file);
        stage_end(&forks.stage);
}
END_TEST

static Suite *zygote_suite(void) {
        Suite *suite = suite_create("zygote");
        TCase *tcase = tcase_create("zygote");

        tcase_add_test(tcase, a_fork_works_when_it_is_there);
        tcase_add_loop_test(tcase, a_fork_dies, 0, 2);
        tcase_add_loop_test(tcase, a_fork_goes_with_its_zygote, 0, 2);
        tcase_add_loop_test(tcase, a_fork_that_never_was, 0, 3);
        tcase_add_loop_test(tcase, a_zygote_that_cannot_be_believed_goes, 0, 3);
        tcase_add_test(tcase, answers_to_another_daemon_are_not_ours);
        tcase_add_test(tcase, a_silent_zygote_holds_up_nobody);
        tcase_add_test(tcase, a_zygote_is_not_asked_for_too_many);
        tcase_add_test(tcase, a_zygote_is_a_socket);
        tcase_set_timeout(tcase, 60);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(zygote_suite());
}
