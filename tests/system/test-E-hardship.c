/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases E in hard times: what the daemon needs is missing, exhausted, broken, or takes its time.
 *
 * Each of these once ended or blocked the daemon, or hurt somebody who had nothing to do with it. The faults
 * are made, not awaited: a copied install tree whose worker is another program or none, a limit of
 * descriptors, a pipe for the log that nobody reads, bytes that are no text.
 *
 * The daemon of case 1 once sent a signal to its whole process group, and this process is in it. So it stands
 * aside while that could happen, and looks at a bystander that does not. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum {
        SOON_MS = 10000,
        AT_ONCE_MS = 1000,
        STOP_MS = 2000,
        TEXT = 1024,
        PATH = 200,
};

static void write_config(struct harness *h, const char *source, const char *more) {
        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, %s}\n"
                             "    batch_size: 4\n"
                             "%s",
                             source, more);
}

static size_t count_lines(const char *text) {
        size_t lines = 0;

        for (; *text; text++)
                lines += *text == '\n';
        return lines;
}

static void read_some(struct harness *h) {
        struct reader reader;

        reader_open(&reader, h, "ramp", 2);
        reader_read(&reader, 10);
        reader_close(&reader);
}

/* ---- a tree of our own ---- */

/* Where the worker of the daemon below is. */
static void worker_path(const struct harness *h, char path[PATH]) {
        snprintf(path, PATH, "%s/tree/libexec/pinfeed/pinfeed-worker", harness_directory(h));
}

static void put_program(const char *path, const char *from, const char *text) {
        static char buffer[1 << 16];
        int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755), source;
        ssize_t n;

        ck_assert_msg(to >= 0, "%s: %s", path, strerror(errno));
        if (text)
                ck_assert_int_eq(write(to, text, strlen(text)), (ssize_t)strlen(text));
        if (from) {
                source = open(from, O_RDONLY | O_CLOEXEC);
                ck_assert_int_ge(source, 0);
                while ((n = read(source, buffer, sizeof(buffer))) > 0)
                        reader_must(write(to, buffer, (size_t)n) == n, "%s: %s", path, strerror(errno));
                close(source);
        }
        close(to);
}

/* Copies the installed daemon to a tree of its own whose worker is `script`; harness_start runs it from now
 * on. */
static void use_tree_with_worker(struct harness *h, const char *script) {
        static const char *const directories[] = {"tree", "tree/bin", "tree/libexec", "tree/libexec/pinfeed"};
        char path[PATH], installed[HARNESS_PATH_MAX];

        harness_program("pinfeedd", installed);
        for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
                snprintf(path, sizeof(path), "%s/%s", harness_directory(h), directories[i]);
                ck_assert_int_eq(mkdir(path, 0755), 0);
        }
        worker_path(h, path);
        put_program(path, NULL, script);
        snprintf(path, sizeof(path), "%s/tree/bin/pinfeedd", harness_directory(h));
        put_program(path, installed, NULL);
        *strrchr(path, '/') = 0;
        setenv("PINFEED_TEST_BIN", path, 1);
}

/* ---- the worker's program is gone ---- */

/* Out of the group of daemon and bystander, into the one that the test came from; where that is not allowed a
 * signal to the group ends this process, which is a failed test too. */
static pid_t stand_aside(void) {
        pid_t own = getpgrp();

        return setpgid(0, getpgid(getppid())) == 0 ? own : 0;
}

static void stand_back(pid_t group) {
        if (group)
                ck_assert_int_eq(setpgid(0, group), 0);
}

START_TEST(test_worker_program_is_gone) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        char path[PATH], text[TEXT], program[HARNESS_PATH_MAX];
        pid_t bystander, group;

        write_config(h, "samples: 100, bytes: 64", "    workers: 2\n");
        use_tree_with_worker(h, "#!/bin/sh\n");
        harness_start(h);
        bystander = harness_spawn(h, NULL, (const char *[]){"/bin/sleep", "60", NULL});
        ck_assert_int_eq(getpgid(bystander), getpgid(harness_daemon_pid(h)));
        worker_path(h, path);
        ck_assert_int_eq(unlink(path), 0);

        group = stand_aside();
        for (int i = 0; i < 3; i++) {
                reader_expect_refusal(&attach, -EIO, text, sizeof(text));
                harness_expect_words(text, path);
                harness_expect_words(text, "no such file");
                json_decref(harness_status(h)); /* by now it has done what it does after a refusal */
                ck_assert_msg(harness_alive(bystander), "a process of the daemon's group was ended");
                ck_assert_msg(harness_alive(harness_daemon_pid(h)), "the daemon ended itself");
        }
        stand_back(group);

        ck_assert_int_eq(symlink(harness_program("pinfeed-worker", program), path), 0);
        read_some(h);
        ck_assert_int_eq(kill(bystander, SIGKILL), 0);
        ck_assert_int_eq(harness_join(h, bystander, AT_ONCE_MS), -SIGKILL);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* What /dev/shm has room for, and enough that the workers are dead long before it is reserved. */
static uint64_t large_ring(void) {
        struct statvfs vfs;
        uint64_t quarter;

        ck_assert_int_eq(statvfs("/dev/shm", &vfs), 0);
        quarter = (uint64_t)vfs.f_bavail * vfs.f_frsize / 4;
        return quarter < 512 * MIB ? quarter : 512 * MIB;
}

START_TEST(test_worker_ends_at_once_at_the_start) {
        struct harness *h = harness_new();
        uint64_t mib = large_ring() / MIB;
        char more[TEXT], *output;
        int exit_code;

        if (mib < 16) {
                harness_skip("/dev/shm has too little room for a ring that takes its time");
                harness_free(h);
                return;
        }
        snprintf(more, sizeof(more), "    workers: 4\n    reserve: start\n    ring: %lluM\n",
                 (unsigned long long)mib);
        write_config(h, "samples: 1000, bytes: 1M", more);
        use_tree_with_worker(h, "#!/bin/sh\nexit 3\n");
        output = harness_start_expect_failure(h, &exit_code);
        ck_assert_int_eq(exit_code, 1);
        ck_assert_msg(count_lines(output) == 1, "not one line: %s", output);
        harness_expect_words(output, "pinfeedd: error: pipeline ramp cannot start: worker ");
        harness_expect_words(output, "ended with exit status 3");
        free(output);
        harness_free(h);
}
END_TEST

/* ---- no descriptors ---- */

enum {
        DESCRIPTORS = 40,
        IDLE = 45,
        CPU_WINDOW_MS = 1000,
        CPU_MOST_MS = 200,
};

static uint64_t cpu_ns(pid_t pid) {
        struct timespec time;
        clockid_t clock;

        ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
        ck_assert_int_eq(clock_gettime(clock, &time), 0);
        return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static void expect_little_work(pid_t pid) {
        uint64_t end = clock_ns() + (uint64_t)CPU_WINDOW_MS * NS_PER_MS, before = cpu_ns(pid), used_ms;

        while (clock_ns() < end)
                usleep(HARNESS_POLL_US);
        used_ms = (cpu_ns(pid) - before) / NS_PER_MS;
        ck_assert_msg(used_ms < CPU_MOST_MS * (uint64_t)harness_slowdown(),
                      "the daemon worked %llu ms of %d for nobody", (unsigned long long)used_ms,
                      CPU_WINDOW_MS);
}

static bool has_room(struct harness *h, void *context) {
        return harness_descriptors(harness_daemon_pid(h)) < DESCRIPTORS / 2;
}

START_TEST(test_idle_connections_take_all_descriptors) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        char text[TEXT];
        int idle[IDLE];

        write_config(h, "samples: 100, bytes: 64", "    workers: 2\n");
        harness_limit_descriptors(h, DESCRIPTORS);
        harness_start(h);
        for (size_t i = 0; i < IDLE; i++)
                idle[i] = raw_connect(h);
        expect_little_work(harness_daemon_pid(h));
        json_decref(harness_status(h));
        reader_expect_refusal(&attach, -EMFILE, text, sizeof(text));
        harness_expect_words(text, "limit is 40");
        harness_expect_words(text, "ulimit -n");
        json_decref(harness_status(h));
        for (size_t i = 0; i < IDLE; i++)
                close(idle[i]);
        harness_wait(h, "the end of the idle connections", has_room, NULL, SOON_MS);
        read_some(h);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- a log that nobody reads ---- */

enum {
        GARBAGE = 2000,
        PING_EVERY = 500,
};

/* Reads what the daemon says until it is ready, and never again. */
static void await_ready(int log) {
        uint64_t deadline = clock_ns() + (uint64_t)SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        char text[4096] = "";
        size_t length = 0;

        while (!strstr(text, "ready: ")) {
                ssize_t n = read(log, text + length, sizeof(text) - 1 - length);

                reader_must(clock_ns() < deadline, "the daemon did not start: %s", text);
                if (n > 0)
                        text[length += (size_t)n] = 0;
                else
                        usleep(HARNESS_POLL_US);
        }
}

START_TEST(test_log_is_a_pipe_that_nobody_reads) {
        struct harness *h = harness_new();
        char path[PATH];
        pid_t daemon;
        int log, fd;

        write_config(h, "samples: 100, bytes: 64", "");
        snprintf(path, sizeof(path), "%s/fifo", harness_directory(h));
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        log = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        ck_assert_int_ge(log, 0);
        daemon = harness_spawn(h, path,
                               (const char *[]){"pinfeedd", "--config", harness_config_path(h),
                                                "--runtime-dir", harness_runtime_directory(h), NULL});
        await_ready(log);
        for (int i = 1; i <= GARBAGE; i++) {
                fd = raw_connect(h);
                ck_assert_int_eq(send(fd, "\1\2\3", 3, MSG_NOSIGNAL), 3);
                if (i % PING_EVERY != 0) {
                        close(fd);
                        continue;
                }
                raw_expect_closed(fd, "after garbage");
                json_decref(harness_control(h, "ping"));
        }
        ck_assert_int_eq(kill(daemon, SIGTERM), 0);
        ck_assert_int_eq(harness_join(h, daemon, STOP_MS), 0);
        close(log);
        harness_free(h);
}
END_TEST

/* ---- bytes that are no text ---- */

START_TEST(test_configuration_at_a_path_that_is_no_text) {
        struct harness *h = harness_new();
        struct pinfeed_attach attach = reader_attach(h, "nowhere", 2);
        char path[PATH], text[TEXT];

        write_config(h, "samples: 100, bytes: 64", "");
        snprintf(path, sizeof(path), "%s/of-\xff-caf\xe9.yaml", harness_directory(h));
        ck_assert_int_eq(rename(harness_config_path(h), path), 0);
        harness_add_argument(h, "--config");
        harness_add_argument(h, path);
        harness_start(h);
        json_decref(harness_status(h));
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "no pipeline \"nowhere\"; there are: ramp");
        read_some(h);
        json_decref(harness_status(h));
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

static int connect_control(const struct harness *h) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        ck_assert_int_ge(fd, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock", harness_runtime_directory(h));
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* All that comes until the daemon hangs up. */
static void read_answers(int fd, char *answers, size_t size) {
        size_t length = 0;
        ssize_t n;

        do {
                ck_assert_msg(raw_readable(fd, HARNESS_ANSWER_MS), "neither answer nor end after \"%.*s\"",
                              (int)length, answers);
                n = recv(fd, answers + length, size - 1 - length, 0);
                ck_assert_int_ge(n, 0);
                length += (size_t)n;
        } while (n > 0);
        answers[length] = 0;
}

/* Sends `bytes` and the end, and asserts that exactly these members come, one answer a line, in this order.
 */
static void ask(const struct harness *h, const char *bytes, const char *const *members) {
        char answers[4096], *rest = answers, *line;
        int fd = connect_control(h);

        ck_assert_int_eq(send(fd, bytes, strlen(bytes), MSG_NOSIGNAL), (ssize_t)strlen(bytes));
        ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
        read_answers(fd, answers, sizeof(answers));
        close(fd);
        for (; *members; members++) {
                json_t *answer;

                line = strsep(&rest, "\n");
                ck_assert_msg(line && *line && rest, "no answer with \"%s\" to: %s", *members, bytes);
                answer = json_loads(line, 0, NULL);
                ck_assert_msg(answer != NULL, "no JSON: %s", line);
                ck_assert_msg(json_object_get(answer, *members) != NULL, "no \"%s\" in: %s", *members, line);
                ck_assert(json_is_true(json_object_get(answer, "done")));
                json_decref(answer);
        }
        ck_assert_msg(rest && !*rest, "one answer too many: %s", rest);
}

START_TEST(test_control_lines_that_are_no_text) {
        static const char *const error[] = {"error", NULL}, *const pid[] = {"pid", NULL},
                                 *const error_and_pid[] = {"error", "pid", NULL};
        struct harness *h = harness_new();

        write_config(h, "samples: 100, bytes: 64", "");
        harness_start(h);
        ask(h, "\xff\xfe\n", error);
        ask(h, "status\xc3\n", error);
        ask(h, "{\"command\": \"\xff\"}\n", error);
        ask(h, "{\"command\": \"\xff\"}\nping\n", error_and_pid);
        /* Without the end of the line. */
        ask(h, "ping", pid);
        ask(h, "{\"command\": \"ping\"}", pid);
        ask(h, "\x80", error);
        ask(h, "\xed\xa0\x80\nping", error_and_pid);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- a start that takes its time ---- */

enum {
        WORKERS = 300,
};

static size_t count_workers(struct harness *h) {
        json_t *status = harness_status(h);
        size_t n = json_array_size(json_object_get(status, "workers"));

        json_decref(status);
        return n;
}

/* Each question is answered within a second: harness_control asserts it. That the start was under way when
 * one was shows that this did not hold by a fast machine's grace. */
START_TEST(test_ping_while_many_workers_start) {
        uint64_t deadline = clock_ns() + (uint64_t)SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        struct harness *h = harness_new();
        struct message message = raw_attach("ramp");
        size_t n = 0, under_way = 0;
        int fd;

        write_config(h, "samples: 10000, bytes: 64", "    workers: 300\n    slots: 4\n");
        harness_start(h);
        fd = raw_greeted(h);
        raw_send(fd, &message);
        while (n < WORKERS) {
                ck_assert_msg(clock_ns() < deadline, "%zu workers after %d ms", n, SOON_MS);
                json_decref(harness_control(h, "ping"));
                n = count_workers(h);
                under_way += n > 0 && n < WORKERS;
        }
        ck_assert_msg(under_way > 0, "no answer came while workers were being started");
        close(fd);
        read_some(h);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- all slots are held ---- */

enum {
        SLOTS = 8, /* the default */
        HELD = 4,
        MINIMUM = 2,
        LOOK_MS = 200, /* a batch that may come comes in a few */
};

/* A job that keeps batches and has checked them once. */
struct holder {
        struct reader reader;
        struct pinfeed_batch *kept[HELD];
        uint64_t row[HELD];
};

static void hold(struct holder *holder, const struct harness *h, uint64_t seed) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", HELD);

        attach.seed = seed;
        attach.seed_given = true;
        reader_open_with(&holder->reader, &attach);
        for (size_t i = 0; i < HELD; i++) {
                holder->row[i] = holder->reader.row;
                holder->kept[i] = reader_next(&holder->reader);
        }
}

/* From the `first` of them on; they must be what they were. */
static void give_back(struct holder *holder, size_t first, size_t n) {
        for (size_t i = first; i < first + n; i++) {
                reader_check(&holder->reader, holder->kept[i], 0, holder->row[i]);
                ck_assert_int_eq(pinfeed_batch_release(holder->kept[i]), 0);
        }
}

/* Gives back what is beyond its minimum, one by one, and gets nothing for it while others wait. */
static void give_back_the_lent(struct holder *holder) {
        struct pinfeed_batch *batch;
        size_t i;

        for (i = 0; i + 1 < HELD - MINIMUM; i++) {
                give_back(holder, i, 1);
                ck_assert_int_eq(pinfeed_next_timeout(holder->reader.job, &batch, LOOK_MS), -ETIMEDOUT);
        }
        give_back(holder, i, 1);
}

/* A job in a thread of its own, for it has to wait before it may read. */
struct newcomer {
        pthread_t thread;
        const struct harness *h;
        uint64_t seed;
        char news[TEXT];
        bool waits, is_in; /* both atomically; `news` is written before `waits` */
        struct reader reader;
};

static void on_progress(void *context, const char *text) {
        struct newcomer *newcomer = context;

        if (!strstr(text, "waiting") || __atomic_load_n(&newcomer->waits, __ATOMIC_RELAXED))
                return; /* of the ring's reservation, or known */
        snprintf(newcomer->news, sizeof(newcomer->news), "%s", text);
        __atomic_store_n(&newcomer->waits, true, __ATOMIC_RELEASE);
}

static void *attach_and_read(void *context) {
        struct newcomer *newcomer = context;
        struct pinfeed_attach attach = reader_attach(newcomer->h, "ramp", HELD);

        attach.seed = newcomer->seed;
        attach.seed_given = true;
        attach.progress = on_progress;
        attach.progress_context = newcomer;
        reader_open_with(&newcomer->reader, &attach);
        __atomic_store_n(&newcomer->is_in, true, __ATOMIC_RELEASE);
        reader_read(&newcomer->reader, 1);
        return NULL;
}

static bool is_true(struct harness *h, void *context) {
        return __atomic_load_n((bool *)context, __ATOMIC_ACQUIRE);
}

static void come(struct newcomer *newcomer, struct harness *h, uint64_t seed) {
        *newcomer = (struct newcomer){.h = h, .seed = seed};
        ck_assert_int_eq(pthread_create(&newcomer->thread, NULL, attach_and_read, newcomer), 0);
        harness_wait(h, "news of waiting", is_true, &newcomer->waits, SOON_MS);
        harness_expect_words(newcomer->news, "waiting until other jobs give back slots");
        ck_assert_msg(!is_true(h, &newcomer->is_in), "there was no slot, and yet it got in");
}

static void expect_in(struct newcomer *newcomer, struct harness *h) {
        harness_wait(h, "a job that waited to get in", is_true, &newcomer->is_in, SOON_MS);
        ck_assert_int_eq(pthread_join(newcomer->thread, NULL), 0);
}

static void expect_full(const struct harness *h) {
        struct pinfeed_attach attach = reader_attach(h, "ramp", HELD);
        uint64_t before = clock_ns();
        char text[TEXT];

        attach.seed = 5;
        attach.seed_given = true;
        reader_expect_refusal(&attach, -ENOSPC, text, sizeof(text));
        ck_assert_uint_lt((clock_ns() - before) / NS_PER_MS, AT_ONCE_MS * (uint64_t)harness_slowdown());
        harness_expect_words(text, "needs 2 slots");
        harness_expect_words(text, "need 8 of 8");
        harness_expect_words(text, "at least 10 slots");
}

START_TEST(test_jobs_wait_for_slots_that_others_hold) {
        struct newcomer third, fourth;
        struct holder first, second;
        struct harness *h = harness_new();
        struct reader *all[] = {&first.reader, &second.reader, &third.reader, &fourth.reader};

        write_config(h, "samples: 102, bytes: 4096", "    workers: 2\n");
        harness_start(h);
        hold(&first, h, 1);
        hold(&second, h, 2);
        ck_assert_double_eq(harness_status_number(h, "pipelines/ramp/slots"), SLOTS);
        come(&third, h, 3);
        come(&fourth, h, 4);
        expect_full(h); /* for those who wait have been promised the rest */
        give_back_the_lent(&first);
        expect_in(&third, h);
        ck_assert_msg(!is_true(h, &fourth.is_in), "the fourth got in before there was room");
        give_back_the_lent(&second);
        expect_in(&fourth, h);
        expect_full(h);
        give_back(&first, HELD - MINIMUM, MINIMUM);
        give_back(&second, HELD - MINIMUM, MINIMUM);
        for (int round = 0; round < 60; round++) /* over the end of two epochs */
                for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                        reader_read(all[i], 1);
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                reader_close(all[i]);
        harness_wait(h, "the end of all jobs", harness_no_job_is_there, NULL, SOON_MS);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("E-hardship");
        TCase *tcase = tcase_create("E");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_worker_program_is_gone);
        tcase_add_test(tcase, test_worker_ends_at_once_at_the_start);
        tcase_add_test(tcase, test_idle_connections_take_all_descriptors);
        tcase_add_test(tcase, test_log_is_a_pipe_that_nobody_reads);
        tcase_add_test(tcase, test_configuration_at_a_path_that_is_no_text);
        tcase_add_test(tcase, test_control_lines_that_are_no_text);
        tcase_add_test(tcase, test_ping_while_many_workers_start);
        tcase_add_test(tcase, test_jobs_wait_for_slots_that_others_hold);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
