/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases D1 to D4: jobs that die or stop, and what fork leaves behind. The others notice nothing. */

#include "tests/support/run.h"
#include "tests/system/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
        GAP_MS = 100,  /* case D3 */
        KILL_MS = 100, /* case D1: one every so often */
        CLIENTS = 4,   /* of case D1 */
};

/* ---- D1 ---- */

START_TEST(test_D1_kill_one_after_the_other) {
        uint64_t end = clock_ns() + (harness_quick() ? 3 : 10) * NS_PER_S;
        struct harness *h = jobs_start();
        struct child clients[CLIENTS];
        size_t descriptors;
        unsigned kills = 0;

        srand(1);
        for (size_t i = 0; i < CLIENTS; i++)
                jobs_start_child(h, &clients[i], READ_ON, 4, 0);
        jobs_wait(h, CLIENTS, SOON_MS);
        descriptors = harness_descriptors(harness_daemon_pid(h));
        while (clock_ns() < end) {
                struct child *victim = &clients[(unsigned)rand() % CLIENTS];

                jobs_kill_child(victim);
                kills++;
                jobs_bury(victim);
                jobs_start_child(h, victim, READ_ON, 4, 0);
                jobs_sleep(KILL_MS);
        }
        jobs_wait(h, CLIENTS, BACK_MS);
        for (size_t i = 0; i < CLIENTS; i++) {
                harness_wait(h, "batches for all", has_read, &clients[i], SOON_MS);
                jobs_end_child(&clients[i]);
        }
        harness_wait(h, "the slots of the dead", jobs_hold_nothing, NULL, BACK_MS);
        ck_assert_uint_le(harness_descriptors(harness_daemon_pid(h)), descriptors);
        printf("# D1: %u kills\n", kills);
        jobs_finish(h);
}
END_TEST

/* ---- D2 ---- */

/* Kills a job that holds all its slots; how long until they are back. A child that it had lives on. */
static uint64_t kill_holder(struct harness *h, enum behaviour behaviour) {
        struct child holder;
        uint64_t begin, took;
        pid_t left;

        jobs_start_child(h, &holder, behaviour, SLOTS - 2, 0);
        harness_wait(h, "a job that holds all its slots", holds_all, &holder, SOON_MS);
        ck_assert_double_ge(harness_status_number(h, "pipelines/ramp/slots_leased"), SLOTS / 2);
        begin = clock_ns();
        jobs_kill_child(&holder);
        harness_wait(h, "the slots of the dead", jobs_hold_nothing, NULL, BACK_MS);
        took = (clock_ns() - begin) / NS_PER_MS;
        jobs_wait(h, 0, BACK_MS);
        left = atomic_load(&holder.shared->child);
        if (left) {
                ck_assert(harness_alive(left));
                kill(left, SIGKILL);
                waitpid(left, NULL, 0); /* ours as its subreaper */
        }
        jobs_bury(&holder);
        return took;
}

START_TEST(test_D2_kill_who_holds_all) {
        static const enum behaviour behaviours[] = {HOLD_ALL, FORK_AND_HOLD, FORK_SECRETLY};
        static const char *const names[] = {"alone", "with a child", "with a child that has the socket"};
        struct harness *h = jobs_start();
        struct reader reader;

        for (size_t i = 0; i < 3; i++)
                printf("# D2: slots of one killed %s are back after %llu ms\n", names[i],
                       (unsigned long long)kill_holder(h, behaviours[i]));
        reader_open(&reader, h, "ramp", SLOTS - 2); /* the whole ring can be had */
        reader_read(&reader, 2 * SLOTS);
        reader_close(&reader);
        jobs_finish(h);
}
END_TEST

/* ---- fork's children ---- */

/* The parent's job does not notice its child, and ends with the parent's close though the child lives. */
START_TEST(test_child_of_a_fork_lives_on) {
        struct harness *h = jobs_start();
        struct reader reader;
        pid_t pid;

        reader_open(&reader, h, "ramp", 4);
        reader_read(&reader, 10);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        pause();
        }
        reader_read(&reader, 2 * SAMPLES / BATCH);
        reader_close(&reader);
        jobs_wait(h, 0, BACK_MS);
        ck_assert(jobs_hold_nothing(h, NULL));
        ck_assert(harness_alive(pid));
        reader_open(&reader, h, "ramp", 4);
        reader_read(&reader, 10);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        reader_read(&reader, 10);
        reader_close(&reader);
        jobs_finish(h);
}
END_TEST

static size_t count_sockets(void) {
        char target[64];
        struct dirent *entry;
        DIR *fds = opendir("/proc/self/fd");
        size_t n = 0;

        while (fds && (entry = readdir(fds))) {
                ssize_t length = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);

                target[length > 0 ? length : 0] = 0;
                n += !strncmp(target, "socket:", 7);
        }
        if (fds)
                closedir(fds);
        return n;
}

struct opener {
        struct harness *harness;
        atomic_bool stop;
};

static void *open_and_close(void *context) {
        struct opener *opener = context;
        struct reader reader;

        while (!atomic_load(&opener->stop)) {
                reader_open(&reader, opener->harness, "ramp", 2);
                reader_close(&reader);
        }
        return NULL;
}

/* At whatever moment of pinfeed_open another thread forks, its child has no socket of ours. */
START_TEST(test_fork_while_another_thread_opens) {
        struct harness *h = jobs_start();
        struct opener opener = {.harness = h};
        int rounds = harness_quick() ? 50 : 300;
        size_t sockets = count_sockets();
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, open_and_close, &opener), 0);
        for (int i = 0; i < rounds; i++) {
                int status;
                pid_t pid = fork();

                if (pid == 0)
                        _exit(count_sockets() == sockets ? 0 : 1);
                reader_must(waitpid(pid, &status, 0) == pid && status == 0,
                            "the child of fork %d has a socket of its parent's", i);
                usleep((useconds_t)(i * 37 % 1000));
        }
        atomic_store(&opener.stop, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        jobs_finish(h);
}
END_TEST

enum {
        QUEUE_MAX = 1000, /* more than fit into the daemon's queue of connections */
        QUEUE_WAIT_MS = 1000,
        QUEUE_FORKS = 100,
};

/* Connections that nobody accepts, until there is no room for one more. */
static size_t fill_queue(struct harness *h, int fds[QUEUE_MAX]) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t n = 0;

        snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/pinfeed.sock",
                 harness_runtime_directory(h));
        for (;; n++) {
                ck_assert_uint_lt(n, QUEUE_MAX);
                fds[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                if (connect(fds[n], (struct sockaddr *)&address, sizeof(address)) < 0)
                        break;
        }
        ck_assert_int_eq(errno, EAGAIN);
        close(fds[n]);
        return n;
}

static void *open_in_vain(void *context) {
        struct pinfeed_attach attach = reader_attach(context, "ramp", 2);
        char text[TEXT];

        attach.timeout_ms = QUEUE_WAIT_MS;
        reader_expect_refusal(&attach, -ETIMEDOUT, text, sizeof(text));
        return NULL;
}

/* The same while pinfeed_open tries again and again to get into the daemon's queue. */
START_TEST(test_fork_while_another_thread_connects) {
        static int fds[QUEUE_MAX];
        struct harness *h = jobs_start();
        size_t sockets, n;
        pthread_t thread;
        int status;
        pid_t pid;

        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGSTOP), 0);
        n = fill_queue(h, fds);
        sockets = count_sockets();
        ck_assert_int_eq(pthread_create(&thread, NULL, open_in_vain, h), 0);
        for (int i = 0; i < QUEUE_FORKS; i++) {
                pid = fork();
                if (pid == 0)
                        _exit(count_sockets() == sockets ? 0 : 1);
                ck_assert_int_eq(waitpid(pid, &status, 0), pid);
                ck_assert_int_eq(status, 0);
                usleep(HARNESS_POLL_US);
        }
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        for (size_t i = 0; i < n; i++)
                close(fds[i]);
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGCONT), 0);
        jobs_finish(h);
}
END_TEST

/* ---- D3 ---- */

/* Kills a job that holds what it may; the longest gap of two others from just before until it is forgotten.
 */
static uint64_t kill_beside_readers(struct harness *h, enum behaviour behaviour) {
        struct child readers[2], holder;
        uint64_t gap;
        pid_t left;

        jobs_start_readers(h, readers, 2);
        jobs_start_child(h, &holder, behaviour, 8, 0);
        harness_wait(h, "a job that holds all its slots", holds_all, &holder, SOON_MS);
        jobs_sleep(SETTLE_MS);
        for (size_t i = 0; i < 2; i++)
                jobs_forget_gaps(&readers[i]);
        jobs_kill_child(&holder);
        jobs_wait(h, 2, BACK_MS);
        jobs_sleep(SETTLE_MS);
        gap = jobs_longest_gap(readers, 2, "D3");
        for (size_t i = 0; i < 2; i++)
                jobs_end_child(&readers[i]);
        left = atomic_load(&holder.shared->child);
        if (left) {
                kill(left, SIGKILL);
                waitpid(left, NULL, 0);
        }
        jobs_bury(&holder);
        return gap;
}

/* A stall by design comes each time; what else the machine does may cost a round. */
START_TEST(test_D3_the_others_notice_nothing) {
        static const enum behaviour behaviours[] = {HOLD_ALL, FORK_SECRETLY};
        struct harness *h = jobs_start();

        for (size_t i = 0; i < 2; i++) {
                uint64_t gap = UINT64_MAX;

                for (int round = 0; round < 3 && gap >= GAP_MS * (uint64_t)harness_slowdown(); round++)
                        gap = kill_beside_readers(h, behaviours[i]);
                ck_assert_msg(gap < GAP_MS * (uint64_t)harness_slowdown(),
                              "the others waited %llu ms and more, three times", (unsigned long long)gap);
        }
        jobs_finish(h);
}
END_TEST

/* ---- D4 ---- */

START_TEST(test_D4_stopped_for_a_while) {
        int stopped_ms = harness_quick() ? 1000 : 5000;
        struct harness *h = jobs_start();
        struct child readers[2];
        uint64_t before, other;

        jobs_start_readers(h, readers, 2);
        ck_assert_int_eq(kill(readers[0].pid, SIGSTOP), 0);
        jobs_sleep(SETTLE_MS);
        before = atomic_load(&readers[0].shared->batches);
        other = atomic_load(&readers[1].shared->batches);
        jobs_sleep(stopped_ms);
        ck_assert_uint_eq(atomic_load(&readers[0].shared->batches), before);
        ck_assert_uint_gt(atomic_load(&readers[1].shared->batches), other);
        jobs_wait(h, 2, BACK_MS);
        jobs_expect_no_stall(&readers[1], "D4");
        ck_assert_int_eq(kill(readers[0].pid, SIGCONT), 0);
        jobs_sleep(SETTLE_MS);
        ck_assert_uint_gt(atomic_load(&readers[0].shared->batches), before);
        for (size_t i = 0; i < 2; i++)
                jobs_end_child(&readers[i]); /* which followed every row: none was skipped */
        jobs_finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("D-deaths");
        TCase *tcase = tcase_create("D");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_D1_kill_one_after_the_other);
        tcase_add_test(tcase, test_D2_kill_who_holds_all);
        tcase_add_test(tcase, test_child_of_a_fork_lives_on);
        tcase_add_test(tcase, test_fork_while_another_thread_opens);
        tcase_add_test(tcase, test_fork_while_another_thread_connects);
        tcase_add_test(tcase, test_D3_the_others_notice_nothing);
        tcase_add_test(tcase, test_D4_stopped_for_a_while);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
