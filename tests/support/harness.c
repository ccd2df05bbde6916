/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A real daemon for one test.
 *
 * The harness owns three things: a directory, the processes that it started, and the promise that nothing of
 * them is left. Its asserts are Check's, so a broken promise fails the test at the line that broke it.
 *
 * - Every wait has an end and a condition. Nothing sleeps for a fixed time and hopes.
 * - This process makes itself a subreaper: whatever the daemon leaves behind becomes our child and is found
 * by the last look at our children. That needs no cooperation of the program under test.
 * - The installed daemon is run, not the one of the build tree, so that the way it finds its worker is tested
 * too: $PINFEED_TEST_BIN. Without it, the one of the build tree.
 * - Several harnesses can live in one test. Each looks for leftovers among children that no other has
 * started.
 * - The log is one file for all starts of a harness; `log_mark` is where the last start began. */

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/harness.h"
#include "tests/support/process.h"

enum {
        STOP_MS = 2000, /* for SIGTERM to end everything, and for workers whose daemon was killed */
        START_MS = 10000,
        STOP_LINES = 3,
        OPTIONS_MAX = 16,
};

struct harness {
        char directory[64];
        char runtime[80];
        char config[80];
        char log[80];
        pid_t daemon; /* 0: none */
        size_t log_mark;
        uint64_t descriptor_limit;
        int sockets[PROCESS_SOCKETS_MAX];
        size_t n_sockets;
        const char *arguments[OPTIONS_MAX];
        size_t n_arguments;
        const char *environment[2 * OPTIONS_MAX + 1];
        size_t n_environment;
        size_t descriptors_before;
        size_t shm_before;
        struct janitor janitor;
};

/* Children that some harness of this process knows of, and whose. */
static struct {
        pid_t pid;
        const struct harness *owner;
} known[HARNESS_PROCESSES_MAX];
static size_t n_known;

static void know(struct harness *h, pid_t pid) {
        ck_assert_uint_lt(n_known, HARNESS_PROCESSES_MAX);
        known[n_known].pid = pid;
        known[n_known++].owner = h;
        if (pid != h->janitor.pid)
                janitor_tell(&h->janitor, pid);
}

static void forget(pid_t pid) {
        for (size_t i = 0; i < n_known; i++)
                if (known[i].pid == pid)
                        known[i--] = known[--n_known];
}

static const struct harness *owner_of(pid_t pid) {
        for (size_t i = 0; i < n_known; i++)
                if (known[i].pid == pid)
                        return known[i].owner;
        return NULL;
}

/* ---- life ---- */

struct harness *harness_new(void) {
        const char *base = getenv("TMPDIR");
        struct harness *h = calloc(1, sizeof(*h));

        ck_assert_ptr_nonnull(h);
        h->descriptors_before = harness_descriptors(getpid());
        h->shm_before = harness_shm_objects();
        ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);

        if (!base || !*base || strlen(base) > 30)
                base = "/tmp"; /* the path of a socket has room for 108 bytes in all */
        snprintf(h->directory, sizeof(h->directory), "%s/pf-XXXXXX", base);
        ck_assert_msg(mkdtemp(h->directory) != NULL, "mkdtemp %s: %s", h->directory, strerror(errno));
        snprintf(h->runtime, sizeof(h->runtime), "%s/run", h->directory);
        snprintf(h->config, sizeof(h->config), "%s/pinfeed.yaml", h->directory);
        snprintf(h->log, sizeof(h->log), "%s/log", h->directory);
        harness_set_environment(h, "PINFEED_RUNTIME_DIR", h->runtime);

        janitor_init(&h->janitor, h->directory, h->log);
        know(h, h->janitor.pid);
        return h;
}

/* What was orphaned and has ended is reaped in passing; what lives and is nobody else's is a leftover. */
static pid_t find_leftover(const struct harness *h) {
        pid_t pids[HARNESS_PROCESSES_MAX];
        size_t n = process_children(getpid(), pids, HARNESS_PROCESSES_MAX);

        for (size_t i = 0; i < n; i++) {
                const struct harness *owner = owner_of(pids[i]);

                if (pids[i] == h->janitor.pid || (owner && owner != h))
                        continue;
                if (harness_alive(pids[i]))
                        return pids[i];
                if (waitpid(pids[i], NULL, WNOHANG) == pids[i])
                        forget(pids[i]);
        }
        return 0;
}

static void assert_nothing_left(struct harness *h) {
        uint64_t deadline = clock_ns() + (uint64_t)STOP_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        pid_t leftover;
        size_t objects;

        for (;;) {
                leftover = find_leftover(h);
                /* Another test may be between making its ring and unlinking it, so look more than once. */
                objects = harness_shm_objects();
                if ((!leftover && objects <= h->shm_before) || clock_ns() >= deadline)
                        break;
                usleep(HARNESS_POLL_US);
        }
        if (leftover) {
                char path[64], *command;

                snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)leftover);
                command = process_read_file(path);
                ck_abort_msg("process %d is left: %s", (int)leftover, command ? command : "?");
        }
        ck_assert_msg(objects <= h->shm_before, "%zu objects \"pinfeed*\" in /dev/shm, %zu before the test",
                      objects, h->shm_before);
}

struct harness *harness_free(struct harness *h) {
        size_t descriptors;

        if (!h)
                return NULL;
        if (h->daemon)
                harness_stop(h, SIGTERM, 0);
        assert_nothing_left(h);
        process_remove_tree(h->directory);
        ck_assert_msg(access(h->directory, F_OK) != 0, "%s could not be removed", h->directory);
        janitor_dismiss(&h->janitor);
        forget(h->janitor.pid);
        descriptors = harness_descriptors(getpid());
        ck_assert_msg(descriptors <= h->descriptors_before,
                      "%zu descriptors are open, %zu before harness_new", descriptors, h->descriptors_before);
        for (size_t i = 0; i < h->n_environment; i++)
                free((char *)h->environment[i]);
        for (size_t i = 0; i < h->n_arguments; i++)
                free((char *)h->arguments[i]);
        free(h);
        return NULL;
}

const char *harness_directory(const struct harness *h) {
        return h->directory;
}

const char *harness_runtime_directory(const struct harness *h) {
        return h->runtime;
}

const char *harness_config_path(const struct harness *h) {
        return h->config;
}

void harness_write_config(struct harness *h, const char *format, ...) {
        FILE *file = fopen(h->config, "we");
        va_list arguments;

        ck_assert_ptr_nonnull(file);
        va_start(arguments, format);
        ck_assert_int_ge(vfprintf(file, format, arguments), 0);
        va_end(arguments);
        ck_assert_int_eq(fclose(file), 0);
}

static const char *copy(const char *text) {
        char *copied = strdup(text);

        ck_assert_ptr_nonnull(copied);
        return copied;
}

void harness_add_argument(struct harness *h, const char *argument) {
        ck_assert_uint_lt(h->n_arguments, OPTIONS_MAX);
        h->arguments[h->n_arguments++] = copy(argument);
}

void harness_set_environment(struct harness *h, const char *name, const char *value) {
        ck_assert_uint_lt(h->n_environment + 1, 2 * OPTIONS_MAX);
        h->environment[h->n_environment++] = copy(name);
        h->environment[h->n_environment++] = copy(value);
}

void harness_limit_descriptors(struct harness *h, uint64_t limit) {
        h->descriptor_limit = limit;
}

void harness_pass_sockets(struct harness *h, const int *sockets, size_t n) {
        ck_assert_uint_le(n, PROCESS_SOCKETS_MAX);
        memcpy(h->sockets, sockets, n * sizeof(*sockets));
        h->n_sockets = n;
}

/* ---- the daemon ---- */

static void launch(struct harness *h) {
        const char *argv[OPTIONS_MAX + 6] = {"pinfeedd", "--config", h->config, "--runtime-dir", h->runtime};
        char path[HARNESS_PATH_MAX], *log;

        ck_assert_msg(!h->daemon, "the daemon of this harness runs already");
        memcpy(argv + 5, h->arguments, h->n_arguments * sizeof(argv[0]));
        log = process_read_file(h->log);
        h->log_mark = log ? strlen(log) : 0;
        free(log);
        h->daemon = process_start(&(struct process_start){
                .path = harness_program("pinfeedd", path),
                .argv = argv,
                .environment = h->environment,
                .output_path = h->log,
                .descriptors = h->descriptor_limit,
                .sockets = h->sockets,
                .n_sockets = h->n_sockets,
        });
        know(h, h->daemon);
}

/* The part of the log that the last start wrote. */
static char *log_since_start(struct harness *h) {
        char *log = process_read_file(h->log);
        char *part = strdup(log && strlen(log) >= h->log_mark ? log + h->log_mark : "");

        ck_assert_ptr_nonnull(part);
        free(log);
        return part;
}

static int reap_daemon(struct harness *h, int timeout_ms, const char *when) {
        int status = 0;

        ck_assert_msg(process_reap(h->daemon, timeout_ms, &status), "the daemon did not end within %d ms %s",
                      timeout_ms, when);
        forget(h->daemon);
        h->daemon = 0;
        return process_result(status);
}

static bool is_ready(struct harness *h, void *context) {
        char *log = log_since_start(h);
        bool ready = strstr(log, "pinfeedd: ready") != NULL;
        int status;

        if (!ready && waitpid(h->daemon, &status, WNOHANG) == h->daemon) {
                forget(h->daemon);
                h->daemon = 0;
                ck_abort_msg("the daemon ended with %d instead of starting: %s", process_result(status), log);
        }
        free(log);
        return ready;
}

void harness_start(struct harness *h) {
        launch(h);
        harness_wait(h, "the daemon's \"ready\"", is_ready, NULL, START_MS);
}

char *harness_start_expect_failure(struct harness *h, int *exit_code) {
        int result;

        launch(h);
        result = reap_daemon(h, START_MS / 2, "though its start had to fail");
        ck_assert_msg(result > 0, "a start that had to fail ended with %d", result);
        if (exit_code)
                *exit_code = result;
        return log_since_start(h);
}

static void assert_all_gone(const pid_t *pids, size_t n, uint64_t deadline) {
        for (size_t i = 0; i < n; i++) {
                while (harness_alive(pids[i]) && clock_ns() < deadline)
                        usleep(HARNESS_POLL_US);
                ck_assert_msg(!harness_alive(pids[i]),
                              "worker %d still lives %d ms after its daemon was ended", (int)pids[i],
                              STOP_MS);
                waitpid(pids[i], NULL, WNOHANG); /* ours as its subreaper */
        }
}

static size_t count_lines(const char *text) {
        size_t lines = 0;

        for (; *text; text++)
                lines += *text == '\n';
        return lines;
}

static int end(struct harness *h, int signal) {
        pid_t workers[HARNESS_PROCESSES_MAX];
        size_t n_workers;
        uint64_t deadline = clock_ns() + (uint64_t)STOP_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        int result;

        ck_assert_msg(h->daemon > 0, "no daemon runs");
        n_workers = harness_worker_pids(h, workers, HARNESS_PROCESSES_MAX);
        ck_assert_int_eq(kill(h->daemon, signal), 0);
        result = reap_daemon(h, STOP_MS, "after a signal");
        assert_all_gone(workers, n_workers, deadline);
        return result;
}

void harness_stop(struct harness *h, int signal, int expected_exit) {
        char *before = harness_log(h), *after;
        size_t lines;
        int result = end(h, signal);

        after = harness_log(h);
        lines = count_lines(after) - count_lines(before);
        ck_assert_msg(result == expected_exit, "the daemon ended with %d after signal %d, expected %d",
                      result, signal, expected_exit);
        ck_assert_msg(lines <= STOP_LINES, "%zu lines of log at the end: %s", lines, after + strlen(before));
        free(before);
        free(after);
}

void harness_kill(struct harness *h) {
        ck_assert_int_eq(end(h, SIGKILL), -SIGKILL);
}

int harness_wait_exit(struct harness *h, int timeout_ms) {
        ck_assert_msg(h->daemon > 0, "no daemon runs");
        return reap_daemon(h, timeout_ms, "by itself");
}

pid_t harness_daemon_pid(const struct harness *h) {
        return h->daemon;
}

size_t harness_worker_pids(struct harness *h, pid_t *pids, size_t max) {
        ck_assert_msg(h->daemon > 0, "no daemon runs");
        return process_children(h->daemon, pids, max);
}

char *harness_log(struct harness *h) {
        char *log = process_read_file(h->log);

        return log ? log : (char *)copy("");
}

bool harness_log_contains(struct harness *h, const char *text) {
        char *log = harness_log(h);
        bool contains = strstr(log, text) != NULL;

        free(log);
        return contains;
}

/* ---- other programs ---- */

const char *harness_program(const char *name, char path[HARNESS_PATH_MAX]) {
        static const char *const places[] = {
                "../../daemon",        "../../client/ctl", "../../client/examples",
                "../../daemon/worker", "../support",       "../bench"};
        const char *installed = getenv("PINFEED_TEST_BIN");
        char self[PATH_MAX];
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

        if (installed) {
                snprintf(path, HARNESS_PATH_MAX, "%s/%s", installed, name);
                if (access(path, X_OK) == 0)
                        return path;
        }
        ck_assert_int_gt(length, 0);
        self[length] = 0;
        *strrchr(self, '/') = 0;
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                ck_assert_int_lt(snprintf(path, HARNESS_PATH_MAX, "%s/%s/%s", self, places[i], name),
                                 HARNESS_PATH_MAX);
                if (access(path, X_OK) == 0)
                        return path;
        }
        ck_abort_msg("no program %s in %s nor in the build tree of %s", name, installed ? installed : "-",
                     self);
        return NULL;
}

pid_t harness_spawn(struct harness *h, const char *output_path, const char *const argv[]) {
        char path[HARNESS_PATH_MAX];
        pid_t pid = process_start(&(struct process_start){
                .path = strchr(argv[0], '/') ? argv[0] : harness_program(argv[0], path),
                .argv = argv,
                .environment = h->environment,
                .output_path = output_path,
        });

        know(h, pid);
        return pid;
}

int harness_join(struct harness *h, pid_t pid, int timeout_ms) {
        int status = 0;

        ck_assert_msg(process_reap(pid, timeout_ms, &status), "process %d did not end within %d ms", (int)pid,
                      timeout_ms);
        forget(pid);
        return process_result(status);
}

int harness_run(struct harness *h, int timeout_ms, char **output, const char *const argv[]) {
        char path[128];
        pid_t pid;
        int result;

        snprintf(path, sizeof(path), "%s/output", h->directory);
        unlink(path);
        pid = harness_spawn(h, path, argv);
        result = harness_join(h, pid, timeout_ms);
        if (output) {
                *output = process_read_file(path);
                ck_assert_ptr_nonnull(*output);
        }
        return result;
}
