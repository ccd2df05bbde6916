/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon as somebody's service: what its manager is told, what the journal gets, and who goes first when
 * memory runs out. The test is manager and journal. Sockets that the manager passes are test-activation.c's.
 */

#include "tests/support/process.h"
#include "tests/support/run.h"
#include "tests/system/readers.h"
#include "tests/system/rings.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
        BEAT_US = 200000,    /* what the manager wants in these tests */
        SILENCE_MS = 600,    /* in which three beats would have come */
        OOM_MORE = 500,      /* of a worker, over the daemon */
        OBSERVE_PAUSE = 1100 /* ms: over the second in which the daemon looks around itself */
};

#define CONFIG                                                                                               \
        "pipelines:\n"                                                                                       \
        "  p:\n"                                                                                             \
        "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 4096}\n"                            \
        "    batch_size: 32\n"                                                                               \
        "    workers: 2\n"                                                                                   \
        "    reserve: start\n"

struct manager {
        struct harness *h;
        int socket;
        char last[4096]; /* datagram */
};

static int bind_datagram(const char *path) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        ck_assert_int_ge(fd, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

static struct manager manage(const char *config) {
        struct manager manager = {.h = harness_new()};
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/notify", harness_directory(manager.h));
        manager.socket = bind_datagram(path);
        harness_set_environment(manager.h, "NOTIFY_SOCKET", path);
        harness_write_config(manager.h, "%s", config);
        return manager;
}

static void leave(struct manager *manager) {
        close(manager->socket);
        harness_free(manager->h);
}

/* The next datagram within that time; false: none comes. */
static bool hear(struct manager *manager, int timeout_ms) {
        struct pollfd poll_fd = {.fd = manager->socket, .events = POLLIN};
        ssize_t n;

        if (poll(&poll_fd, 1, timeout_ms) != 1)
                return false;
        n = recv(manager->socket, manager->last, sizeof(manager->last) - 1, 0);
        ck_assert_int_gt(n, 0);
        manager->last[n] = 0;
        return true;
}

static void expect(struct manager *manager, const char *words) {
        uint64_t deadline = clock_ns() + SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;

        while (clock_ns() < deadline)
                if (hear(manager, 100) && strstr(manager->last, words))
                        return;
        ck_abort_msg("the manager never heard \"%s\"; last was: %s", words, manager->last);
}

/* All that has come so far; false: these words have not. */
static bool has_heard(struct manager *manager, const char *words) {
        bool heard = false;

        while (hear(manager, 0))
                heard |= strstr(manager->last, words) != NULL;
        return heard;
}

START_TEST(a_life_is_told) {
        struct manager manager = manage(CONFIG);
        struct reader reader;
        json_t *status;

        harness_start(manager.h);
        expect(&manager, "READY=1");
        expect(&manager, "STATUS=0 jobs, ");
        reader_open(&reader, manager.h, "p", 2);
        reader_read(&reader, 3);
        expect(&manager, "STATUS=1 job, 1 of 1 pipelines ready, ");
        reader_close(&reader);
        expect(&manager, "STATUS=0 jobs, 1 of 1 pipelines ready, 0 rows/s");
        ck_assert(!hear(&manager, OBSERVE_PAUSE)); /* nothing has changed */
        status = harness_status(manager.h);
        ck_assert(json_is_true(harness_member(status, "service/notify")));
        ck_assert(json_is_false(harness_member(status, "service/activated")));
        ck_assert(json_is_null(harness_member(status, "service/watchdog_seconds")));
        ck_assert(json_is_false(harness_member(status, "service/journal")));
        json_decref(status);
        harness_stop(manager.h, SIGTERM, 0);
        expect(&manager, "STOPPING=1");
        leave(&manager);
}
END_TEST

START_TEST(a_start_that_fails_says_why) {
        struct manager manager = manage("pipelines:\n  p:\n    source: {type: none}\n");
        char *log = harness_start_expect_failure(manager.h, NULL);

        expect(&manager, "STATUS=");
        harness_expect_words(manager.last, "expected");
        harness_expect_words(manager.last, "\nERRNO=22");
        ck_assert(!has_heard(&manager, "READY=1"));
        free(log);
        harness_write_config(manager.h, "pipelines:\n"
                                        "  p:\n"
                                        "    source: {type: synthetic, samples: 1000, features: 1000000}\n"
                                        "    batch_size: 1000\n"
                                        "    slots: 100000\n"
                                        "    reserve: start\n");
        log = harness_start_expect_failure(manager.h, NULL);
        expect(&manager, "STATUS=pipeline p: the ring needs ");
        harness_expect_words(manager.last, "\nERRNO=28");
        ck_assert(!has_heard(&manager, "READY=1"));
        free(log);
        leave(&manager);
}
END_TEST

/* A start that is held up for longer than a second while it reserves, and gets on. */
START_TEST(a_long_start_asks_for_time) {
        struct manager manager =
                manage("pipelines:\n"
                       "  p:\n"
                       "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 1048576}\n"
                       "    batch_size: 64\n"
                       "    slots: 8\n"
                       "    backing: memfd\n"
                       "    workers: 1\n"
                       "    reserve: start\n");
        char log[HARNESS_PATH_MAX], socket_path[HARNESS_PATH_MAX];
        pid_t daemon;

        snprintf(log, sizeof(log), "%s/log", harness_directory(manager.h));
        snprintf(socket_path, sizeof(socket_path), "%s/pinfeed.sock", harness_runtime_directory(manager.h));
        daemon =
                harness_spawn(manager.h, log,
                              (const char *[]){"pinfeedd", "--config", harness_config_path(manager.h), NULL});
        while (access(socket_path, F_OK) < 0)
                usleep(100);
        while (harness_status_number(manager.h, "pipelines/p/reserved_bytes") == 0)
                ;
        ck_assert_int_eq(kill(daemon, SIGSTOP), 0);
        ck_assert(!has_heard(&manager, "READY=1"));
        usleep(OBSERVE_PAUSE * 1000);
        ck_assert_int_eq(kill(daemon, SIGCONT), 0);
        expect(&manager, "EXTEND_TIMEOUT_USEC=30000000");
        expect(&manager, "STATUS=starting: ");
        harness_expect_words(manager.last, " of 512 MiB reserved");
        expect(&manager, "READY=1");
        ck_assert_int_eq(kill(daemon, SIGTERM), 0);
        ck_assert_int_eq(harness_join(manager.h, daemon, SOON_MS), 0);
        leave(&manager);
}
END_TEST

START_TEST(a_loop_that_does_not_turn_does_not_beat) {
        struct manager manager = manage(CONFIG);
        char usec[16];

        snprintf(usec, sizeof(usec), "%d", BEAT_US);
        harness_set_environment(manager.h, "WATCHDOG_USEC", usec);
        harness_start(manager.h);
        for (int i = 0; i < 4; i++)
                expect(&manager, "WATCHDOG=1");
        ck_assert_double_eq(harness_status_number(manager.h, "service/watchdog_seconds"), BEAT_US / 1e6);
        ck_assert_int_eq(kill(harness_daemon_pid(manager.h), SIGSTOP), 0);
        while (hear(&manager, 50))
                ;
        ck_assert(!hear(&manager, SILENCE_MS));
        ck_assert_int_eq(kill(harness_daemon_pid(manager.h), SIGCONT), 0);
        expect(&manager, "WATCHDOG=1");
        harness_stop(manager.h, SIGTERM, 0);
        leave(&manager);
}
END_TEST

/* ---- workers ---- */

/* A variable, in a text of /proc/PID/environ, of which process_read_file shows the first only: so by hand. */
static bool has_variable(pid_t pid, const char *name) {
        char path[64], environment[65536];
        size_t length = strlen(name);
        ssize_t n;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = read(fd, environment, sizeof(environment) - 1);
        ck_assert_int_gt(n, 0);
        close(fd);
        environment[n] = 0;
        for (const char *at = environment; at < environment + n; at += strlen(at) + 1)
                if (strncmp(at, name, length) == 0 && at[length] == '=')
                        return true;
        return false;
}

START_TEST(workers_know_no_manager) {
        static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"};
        struct manager manager = manage(CONFIG);
        pid_t pids[8];

        harness_set_environment(manager.h, "WATCHDOG_USEC", "30000000");
        harness_set_environment(manager.h, "LISTEN_FDS", "1");
        harness_set_environment(manager.h, "LISTEN_PID", "1");
        harness_start(manager.h);
        reader_wait_workers(manager.h, 2);
        ck_assert_uint_eq(harness_worker_pids(manager.h, pids, 8), 2);
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
                ck_assert(has_variable(harness_daemon_pid(manager.h), names[i])); /* as it was started */
                ck_assert_msg(!has_variable(pids[0], names[i]), "a worker has %s", names[i]);
        }
        leave(&manager);
}
END_TEST

START_TEST(workers_go_first_when_memory_runs_out) {
        struct harness *h = start(CONFIG);
        int own = harness_oom_score_adj(harness_daemon_pid(h));
        pid_t pids[8];
        size_t n;

        reader_wait_workers(h, 2);
        n = harness_worker_pids(h, pids, 8);
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(harness_oom_score_adj(pids[i]),
                                 own + OOM_MORE < 1000 ? own + OOM_MORE : 1000);
        finish(h);
}
END_TEST

/* ---- the journal ---- */

struct journal {
        struct harness *h;
        int socket;
        char last[8192];
        size_t length;
};

/* Whether the entry has this field, of one line. */
static bool has_field(const struct journal *journal, const char *name, const char *value) {
        char wanted[256];
        uint64_t length = strlen(value);
        size_t n = (size_t)snprintf(wanted, sizeof(wanted), "%s\n", name);

        memcpy(wanted + n, &length, sizeof(length));
        n += sizeof(length);
        n += (size_t)snprintf(wanted + n, sizeof(wanted) - n, "%s\n", value);
        return memmem(journal->last, journal->length, wanted, n) != NULL;
}

static void await_entry(struct journal *journal, const char *words) {
        uint64_t deadline = clock_ns() + SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;

        while (clock_ns() < deadline) {
                struct pollfd poll_fd = {.fd = journal->socket, .events = POLLIN};

                if (poll(&poll_fd, 1, 100) != 1)
                        continue;
                journal->length = (size_t)recv(journal->socket, journal->last, sizeof(journal->last), 0);
                if (memmem(journal->last, journal->length, words, strlen(words)))
                        return;
        }
        ck_abort_msg("the journal never got \"%s\"", words);
}

static bool line_comes(struct harness *h, void *words) {
        return harness_log_contains(h, words);
}

/* Its socket has one place in the file system, so a file system of our own is put there. What the daemon
 * writes to standard error is the harness's log, which we say is the journal's stream. */
static bool journal_init(struct journal *journal) {
        char path[HARNESS_PATH_MAX], stream[64];
        struct stat status;
        int fd;

        if (!harness_isolate_mounts())
                return false;
        harness_mount_tmpfs("/run", 1 << 20);
        ck_assert_int_eq(mkdir("/run/systemd", 0755), 0);
        ck_assert_int_eq(mkdir("/run/systemd/journal", 0755), 0);
        journal->h = harness_new();
        journal->socket = bind_datagram("/run/systemd/journal/socket");
        snprintf(path, sizeof(path), "%s/log", harness_directory(journal->h));
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(fstat(fd, &status), 0);
        close(fd);
        snprintf(stream, sizeof(stream), "%lu:%lu", (unsigned long)status.st_dev,
                 (unsigned long)status.st_ino);
        harness_set_environment(journal->h, "JOURNAL_STREAM", stream);
        return true;
}

START_TEST(the_journal_gets_fields) {
        struct journal journal;
        struct reader reader;
        char log[HARNESS_PATH_MAX], number[16];
        pid_t daemon, pids[8];

        if (!journal_init(&journal)) {
                harness_skip("no mounts of our own here");
                return;
        }
        snprintf(log, sizeof(log), "%s/log", harness_directory(journal.h));
        harness_write_config(journal.h, "%s", CONFIG);
        daemon =
                harness_spawn(journal.h, log,
                              (const char *[]){"pinfeedd", "--config", harness_config_path(journal.h), NULL});
        await_entry(&journal, "ready: pid");
        ck_assert(has_field(&journal, "PRIORITY", "6"));
        ck_assert(has_field(&journal, "SYSLOG_IDENTIFIER", "pinfeedd"));
        await_entry(&journal, "pipeline p is ready");
        ck_assert(has_field(&journal, "PINFEED_PIPELINE", "p"));
        reader_open(&reader, journal.h, "p", 2);
        await_entry(&journal, "reads p from");
        snprintf(number, sizeof(number), "%u", reader.info.job);
        ck_assert(has_field(&journal, "PINFEED_PIPELINE", "p"));
        ck_assert(has_field(&journal, "PINFEED_JOB", number));
        ck_assert_uint_eq(process_children(daemon, pids, 8), 2);
        ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
        await_entry(&journal, "was killed by signal 9");
        ck_assert(has_field(&journal, "PRIORITY", "3"));
        ck_assert(has_field(&journal, "PINFEED_WORKER", "0") || has_field(&journal, "PINFEED_WORKER", "1"));
        reader_close(&reader);
        ck_assert(!harness_log_contains(journal.h, "pinfeedd")); /* all of it went there */
        ck_assert_int_eq(kill(daemon, SIGTERM), 0);
        ck_assert_int_eq(harness_join(journal.h, daemon, SOON_MS), 0);
        close(journal.socket);
        harness_free(journal.h);
}
END_TEST

/* Then lines go the other way, with their priorities, and the daemon goes on. */
START_TEST(a_journal_that_is_gone_costs_nothing) {
        struct journal journal;
        char log[HARNESS_PATH_MAX];
        pid_t daemon;

        if (!journal_init(&journal)) {
                harness_skip("no mounts of our own here");
                return;
        }
        close(journal.socket);
        snprintf(log, sizeof(log), "%s/log", harness_directory(journal.h));
        harness_write_config(journal.h, "%s", CONFIG);
        daemon =
                harness_spawn(journal.h, log,
                              (const char *[]){"pinfeedd", "--config", harness_config_path(journal.h), NULL});
        harness_wait(journal.h, "a line", line_comes, "<6>pinfeedd: ready: pid", SOON_MS);
        ck_assert_int_eq(kill(daemon, SIGTERM), 0);
        ck_assert_int_eq(harness_join(journal.h, daemon, SOON_MS), 0);
        harness_free(journal.h);
}
END_TEST

/* ---- the surroundings ---- */

START_TEST(limits_that_are_too_low_are_named) {
        struct manager manager = manage("");
        char *output;
        const char *warning = "250 descriptors may be open, 64 workers, 1 pipelines and 64 jobs need 259";
        json_t *status;

        harness_write_config(manager.h, "pipelines:\n"
                                        "  p:\n"
                                        "    source: {type: synthetic, samples: 1000}\n"
                                        "    batch_size: 32\n"
                                        "    workers: 64\n");
        harness_limit_descriptors(manager.h, 250);
        harness_start(manager.h);
        expect(&manager, warning);
        ck_assert(harness_log_contains(manager.h, warning));
        status = harness_status(manager.h);
        harness_expect_words(json_string_value(harness_member(status, "warnings/0")), warning);
        json_decref(status);
        ck_assert_int_eq(
                harness_run(manager.h, SOON_MS, &output, (const char *[]){"pinfeedctl", "status", NULL}), 0);
        harness_expect_words(output, "warning: 250 descriptors");
        free(output);
        leave(&manager);
}
END_TEST

/* A8: logind removes what a user who has logged out has in /dev/shm, by name. There is nothing. */
START_TEST(nothing_of_ours_has_a_name_to_be_removed_by) {
        struct harness *h = start(CONFIG "    backing: shm\n");
        struct reader before, after;
        struct ring_file ring;

        reader_open(&before, h, "p", 2);
        reader_read(&before, 3);
        harness_wait(h, "no ring in /dev/shm", rings_are_nameless, NULL, SOON_MS);
        ck_assert_uint_eq(rings_of(harness_daemon_pid(h), &ring, 1), 1);
        ck_assert_uint_gt(ring.bytes, 0);
        reader_open(&after, h, "p", 2);
        reader_read(&after, 20);
        reader_read(&before, 20);
        reader_close(&before);
        reader_close(&after);
        finish(h);
}
END_TEST

static Suite *service_suite(void) {
        Suite *suite = suite_create("service");
        TCase *manager = tcase_create("manager"), *workers = tcase_create("workers"),
              *journal = tcase_create("journal"), *around = tcase_create("around");

        tcase_set_timeout(manager, 60);
        tcase_add_test(manager, a_life_is_told);
        tcase_add_test(manager, a_start_that_fails_says_why);
        tcase_add_test(manager, a_long_start_asks_for_time);
        tcase_add_test(manager, a_loop_that_does_not_turn_does_not_beat);
        suite_add_tcase(suite, manager);
        tcase_set_timeout(workers, 60);
        tcase_add_test(workers, workers_know_no_manager);
        tcase_add_test(workers, workers_go_first_when_memory_runs_out);
        suite_add_tcase(suite, workers);
        tcase_set_timeout(journal, 60);
        tcase_add_test(journal, the_journal_gets_fields);
        tcase_add_test(journal, a_journal_that_is_gone_costs_nothing);
        suite_add_tcase(suite, journal);
        tcase_set_timeout(around, 60);
        tcase_add_test(around, limits_that_are_too_low_are_named);
        tcase_add_test(around, nothing_of_ours_has_a_name_to_be_removed_by);
        suite_add_tcase(suite, around);
        return suite;
}

int main(void) {
        return run_suite(service_suite());
}
