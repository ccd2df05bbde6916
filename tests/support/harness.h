#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A real daemon in a private directory, for the system tests: started, watched, killed, and cleaned up after.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct harness;

enum {
        HARNESS_PATH_MAX = 4096,
        HARNESS_ANSWER_MS = 1000,     /* `status` answers within a second in every state */
        HARNESS_POLL_US = 2000,       /* between two looks at a condition that nothing announces */
        HARNESS_PROCESSES_MAX = 1200, /* children that one process can have; more than 1024 workers */
};

/* A private directory (short, for sockets have short names) with nothing in it, and a janitor: a process that
 * prints the daemon's log, kills what is left and removes the directory if the test ends without
 * harness_free, however it ends. Never NULL: what fails here fails the test. */
struct harness *harness_new(void);

/* Stops the daemon if it runs, then asserts that nothing is left: no child process, no descriptor of the
 * harness's, no object of ours in /dev/shm; removes the directory. Returns NULL. */
struct harness *harness_free(struct harness *harness);

/* The private directory, the runtime directory in it ("run"; the daemon makes it), the configuration file. */
const char *harness_directory(const struct harness *harness);
const char *harness_runtime_directory(const struct harness *harness);
const char *harness_config_path(const struct harness *harness);

/* Writes the configuration; whole text, printf style. */
void harness_write_config(struct harness *harness, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* Arguments and environment entries ("NAME=value") that later starts get besides the usual ones. */
void harness_add_argument(struct harness *harness, const char *argument);
void harness_set_environment(struct harness *harness, const char *name, const char *value);

/* RLIMIT_NOFILE of later daemons; 0: what this process has. */
void harness_limit_descriptors(struct harness *harness, uint64_t limit);

/* Listening sockets (the caller's) that later daemons are started with, as by a socket unit; at most 4. */
void harness_pass_sockets(struct harness *harness, const int *sockets, size_t n);

/* Starts the installed pinfeedd and returns once it says that it is ready. */
void harness_start(struct harness *harness);

/* Starts it, asserts that it ends by itself within 5 s without a signal and with an exit code that is not 0,
 * and returns what this start wrote; free it. *exit_code may be NULL. */
char *harness_start_expect_failure(struct harness *harness, int *exit_code);

/* Sends `signal` and asserts the exit code, that it took under 2 s, that it cost at most three lines of log,
 * and that all workers went too. */
void harness_stop(struct harness *harness, int signal, int expected_exit);

/* Sends SIGKILL, reaps it, and asserts that all its workers are gone within 2 s. */
void harness_kill(struct harness *harness);

/* Asserts that the daemon ends by itself within `timeout_ms`, and returns its exit code, or minus the signal.
 */
int harness_wait_exit(struct harness *harness, int timeout_ms);

pid_t harness_daemon_pid(const struct harness *harness);

/* Its children now, the workers, at most `max`. Returns how many. */
size_t harness_worker_pids(struct harness *harness, pid_t *pids, size_t max);

/* All that the daemons of this harness have written so far; free it. */
char *harness_log(struct harness *harness);
bool harness_log_contains(struct harness *harness, const char *text);

/* The answer to `status`: asserts that it comes within 1 s and is JSON. json_decref it. */
json_t *harness_status(struct harness *harness);

/* The same for another request; the last line of the answer. */
json_t *harness_control(struct harness *harness, const char *line);

/* A member by path: "pipelines/demo/rows_prepared", "workers/0/pid". An element of an array is named by its
 * number or by its "name". NULL if there is none; borrowed. The second asserts that it is there and a number.
 */
json_t *harness_member(json_t *value, const char *path);
double harness_number(json_t *value, const char *path);

/* One member of a fresh status. */
double harness_status_number(struct harness *harness, const char *path);

/* Calls `predicate` until it is true, and fails the test with `what` when that takes longer than
 * `timeout_ms`. */
typedef bool (*harness_predicate)(struct harness *harness, void *context);
void harness_wait(struct harness *harness, const char *what, harness_predicate predicate, void *context,
                  int timeout_ms);

/* A predicate: no job is attached or attaching. */
bool harness_no_job_is_there(struct harness *harness, void *context);

/* Asserts that `words` stand in `text`. */
void harness_expect_words(const char *text, const char *words);

/* Waits until the status member at `path` is at least `value`. */
void harness_wait_number(struct harness *harness, const char *path, double value, int timeout_ms);

/* Where an installed program ("pinfeedctl") or one of the build tree ("draw-images", "train") is; asserts
 * that it is. */
const char *harness_program(const char *name, char path[HARNESS_PATH_MAX]);

/* Runs `argv` (NULL-terminated; a name without a slash as harness_program finds it) with PINFEED_RUNTIME_DIR
 * set. Standard output and error go to *output if that is not NULL; free it. Asserts that it ends within
 * `timeout_ms`. Returns the exit code, or minus the signal. */
int harness_run(struct harness *harness, int timeout_ms, char **output, const char *const argv[]);

/* The same in the background: output goes to the file `output_path`, or to /dev/null if NULL. */
pid_t harness_spawn(struct harness *harness, const char *output_path, const char *const argv[]);

/* Reaps a child: its exit code, or minus its signal. Asserts that it ends within `timeout_ms`. */
int harness_join(struct harness *harness, pid_t pid, int timeout_ms);

/* Copies of a mount table of our own, so that tmpfs can be mounted over /dev/shm: by root directly, by others
 * in a user namespace. False where neither is allowed; the test then says so and passes. Call it before
 * harness_new. */
bool harness_isolate_mounts(void);

/* Mounts a tmpfs of `bytes` at `directory`; after harness_isolate_mounts only. */
void harness_mount_tmpfs(const char *directory, uint64_t bytes);

/* `NAME` of the shared test data ($PINFEED_TEST_DATA), or NULL where this machine has none: the test then
 * says so and passes. */
const char *harness_data(const char *name, char path[HARNESS_PATH_MAX]);

/* Prints the TAP comment "# skipped: ..." with the reason. */
void harness_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of any process: open descriptors, lines of /proc/PID/maps, resident and proportional bytes. Assert that it
 * lives. */
size_t harness_descriptors(pid_t pid);
size_t harness_mappings(pid_t pid);
uint64_t harness_resident_bytes(pid_t pid);
uint64_t harness_proportional_bytes(pid_t pid);

/* How much sooner than others the kernel kills it for want of memory. */
int harness_oom_score_adj(pid_t pid);

/* Names in /dev/shm that begin with "pinfeed". */
size_t harness_shm_objects(void);

/* True while the process exists and is no zombie. */
bool harness_alive(pid_t pid);

/* $PINFEED_TEST_QUICK is set: a test that counts rounds makes a tenth of them. */
bool harness_quick(void);

/* Time limits are multiplied by this: $PINFEED_TEST_SLOWDOWN (1), for builds with sanitizers. */
int harness_slowdown(void);
