/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The private daemon as its users meet it: nobody starts it, it is there; nobody stops it, it goes. Whoever
 * started it may be killed with all that belongs to them, and it stays for the others.
 *
 * PINFEED_TEST_LONG=1 also waits for a lock that is never given back, 5 s. */

#include "tests/system/private.h"
#include "tests/support/run.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
        CLIENTS = 10,
        READERS = 4,
        KILLS = 3,
        BATCHES = 40,
};

/* ---- the daemon that was started ---- */

static char *link_of(pid_t pid, const char *name, char text[HARNESS_PATH_MAX]) {
        char path[HARNESS_PATH_MAX];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
        n = readlink(path, text, HARNESS_PATH_MAX - 1);
        ck_assert_msg(n > 0, "%s: %s", path, strerror(errno));
        text[n] = 0;
        return text;
}

/* Asserts that no descriptor of `pid` is what one of ours is. */
static void expect_no_common_descriptor(pid_t pid) {
        char path[64], ours[HARNESS_PATH_MAX], theirs[HARNESS_PATH_MAX], name[64];
        struct dirent *entry;
        DIR *fds;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        fds = opendir(path);
        ck_assert_ptr_nonnull(fds);
        while ((entry = readdir(fds))) {
                if (*entry->d_name == '.')
                        continue;
                snprintf(name, sizeof(name), "fd/%s", entry->d_name);
                link_of(pid, name, theirs);
                for (int fd = 0; fd < 64; fd++) {
                        snprintf(name, sizeof(name), "fd/%d", fd);
                        if (fcntl(fd, F_GETFD) < 0 || !strcmp(link_of(getpid(), name, ours), "/dev/null") ||
                            !strncmp(ours, "anon_inode:", 11))
                                continue;
                        ck_assert_msg(strcmp(ours, theirs) != 0, "descriptor %s of pinfeedd is our %d, %s",
                                      entry->d_name, fd, ours);
                }
        }
        closedir(fds);
}

START_TEST(started_by_the_first_client) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        char cwd[HARNESS_PATH_MAX];
        struct reader reader;
        int inherited[2];
        pid_t pid;

        ck_assert_int_eq(pipe(inherited), 0); /* not close-on-exec */
        reader_open_with(&reader, &attach);
        reader_read_epochs(&reader, 2);
        pid = private_pid(h);
        ck_assert_int_eq(reader.info.daemon_pid, pid);
        ck_assert_int_eq(getsid(pid), pid);
        ck_assert_int_eq(getpgid(pid), pid);
        ck_assert_str_eq(link_of(pid, "cwd", cwd), "/");
        expect_no_common_descriptor(pid);
        ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), 0); /* what had started it is reaped */
        reader_close(&reader);
        private_wait_ended(pid, PRIVATE_LINGER_S * 1000 + PRIVATE_SOON_MS);
        ck_assert_int_eq(private_pid(h), 0);
        close(inherited[0]);
        close(inherited[1]);
        harness_free(h);
}
END_TEST

/* In a child: a job of its own, that waits at the barrier first; _exit(0) when all was right. `bare`: without
 * standard streams. */
static pid_t fork_client(const struct harness *h, int barrier, const char *definition, bool bare) {
        pid_t pid = fork();
        struct pinfeed_attach attach;
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;
        char byte;

        ck_assert_int_ge(pid, 0);
        if (pid > 0)
                return pid;
        attach = private_attach(h, definition);
        if (read(barrier, &byte, 1) != 1)
                _exit(3);
        for (int fd = 0; bare && fd <= 2; fd++)
                close(fd);
        if (pinfeed_open(&job, &attach) != 0) {
                fprintf(stderr, "a client: %s\n", pinfeed_error(job));
                _exit(1);
        }
        for (int i = 0; i < BATCHES; i++)
                if (pinfeed_next(job, &batch) > 0)
                        pinfeed_batch_release(batch);
        pinfeed_close(job);
        _exit(0);
}

START_TEST(ten_clients_at_once) {
        struct harness *h = private_new();
        pid_t clients[CLIENTS];
        int barrier[2];

        ck_assert_int_eq(pipe(barrier), 0);
        for (int i = 0; i < CLIENTS; i++)
                clients[i] = fork_client(h, barrier[0], PRIVATE_RAMP, false);
        ck_assert_int_eq(write(barrier[1], "0123456789", CLIENTS), CLIENTS);
        for (int i = 0; i < CLIENTS; i++)
                ck_assert_int_eq(harness_join(h, clients[i], PRIVATE_SOON_MS), 0);
        ck_assert_uint_eq(private_starts(h), 1);
        close(barrier[0]);
        close(barrier[1]);
        private_finish(h);
}
END_TEST

/* A host program that leaves its children to the kernel, and one without standard streams, whose numbers the
 * library's own descriptors have then. */
START_TEST(host_with_ways_of_its_own) {
        struct harness *h = private_new();
        int barrier[2];
        pid_t client;

        ck_assert_int_eq(pipe2(barrier, O_CLOEXEC), 0);
        ck_assert_int_eq(write(barrier[1], "x", 1), 1);
        if (_i == 0)
                signal(SIGCHLD, SIG_IGN); /* which the client inherits */
        client = fork_client(h, barrier[0], PRIVATE_RAMP, _i == 1);
        signal(SIGCHLD, SIG_DFL);
        ck_assert_int_eq(harness_join(h, client, PRIVATE_SOON_MS), 0);
        ck_assert_uint_eq(private_starts(h), 1);
        close(barrier[0]);
        close(barrier[1]);
        private_finish(h);
}
END_TEST

/* Somebody was stopped between taking the lock and starting: it is waited for, but not for ever. */
START_TEST(lock_that_is_never_given_back) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        char path[HARNESS_PATH_MAX];
        struct reader reader;
        uint64_t start_ns;
        int lock;

        ck_assert_int_eq(mkdir(harness_runtime_directory(h), 0700), 0);
        snprintf(path, sizeof(path), "%s/" RUNTIME_START_LOCK, harness_runtime_directory(h));
        lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(flock(lock, LOCK_EX), 0);
        attach.timeout_ms = 300;
        ck_assert_int_eq(pinfeed_open(&reader.job, &attach), -ETIMEDOUT);
        pinfeed_close(reader.job);
        ck_assert_uint_eq(private_starts(h), 0);
        if (getenv("PINFEED_TEST_LONG")) {
                start_ns = clock_ns();
                attach = private_attach(h, PRIVATE_RAMP);
                reader_open_with(&reader, &attach);
                ck_assert_uint_ge(clock_ns() - start_ns, 4 * NS_PER_S);
                reader_close(&reader);
        }
        close(lock);
        private_finish(h);
}
END_TEST

/* A pinfeedd that is not there, one that cannot start, and a directory that cannot be made. */
START_TEST(daemon_that_cannot_be_started) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        char text[2048];

        attach.daemon = "/nowhere/pinfeedd";
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "/nowhere/pinfeedd could not be started: No such file or directory");
        attach.daemon = "/bin/false";
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "ended without a word");
        attach = private_attach(h, PRIVATE_RAMP);
        attach.runtime_dir = "/nowhere/run";
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "/nowhere/run: cannot make it");
        attach = private_attach(h, PRIVATE_RAMP);
        attach.daemon = "";
        reader_expect_refusal(&attach, -ENOENT, text, sizeof(text));
        harness_expect_words(text, "pinfeedctl run");
        harness_free(h);
}
END_TEST

/* ---- deaths ---- */

struct follower {
        struct reader reader;
        atomic_ullong batches;
        atomic_bool stop;
        pthread_t thread;
};

static void *follow(void *data) {
        struct follower *f = data;

        while (!atomic_load(&f->stop)) {
                reader_read(&f->reader, 1);
                atomic_fetch_add(&f->batches, 1);
        }
        return NULL;
}

static void wait_batches(struct follower *f, unsigned more) {
        uint64_t deadline = clock_ns() + (uint64_t)PRIVATE_SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        unsigned long long wanted = atomic_load(&f->batches) + more;

        while (atomic_load(&f->batches) < wanted && clock_ns() < deadline)
                usleep(HARNESS_POLL_US);
        ck_assert_msg(atomic_load(&f->batches) >= wanted, "a reader came no further than batch %llu",
                      (unsigned long long)atomic_load(&f->batches));
}

/* Three that define the pipeline and one that knows its name only. */
START_TEST(killed_daemon_is_restarted_by_a_reader) {
        struct harness *h = private_new();
        struct follower followers[READERS] = {0};
        unsigned kills = harness_quick() ? 1 : KILLS;

        for (int i = 0; i < READERS; i++) {
                struct pinfeed_attach attach = private_attach(h, i < READERS - 1 ? PRIVATE_RAMP : NULL);

                attach.reconnect_s = 60;
                if (!attach.definition)
                        attach.pipeline = "ramp";
                reader_open_with(&followers[i].reader, &attach);
                ck_assert_int_eq(pthread_create(&followers[i].thread, NULL, follow, &followers[i]), 0);
        }
        for (unsigned kill_no = 0; kill_no <= kills; kill_no++) {
                pid_t pid;

                for (int i = 0; i < READERS; i++)
                        wait_batches(&followers[i], BATCHES);
                pid = private_pid(h);
                ck_assert_uint_eq(private_starts(h), kill_no + 1);
                if (kill_no < kills) {
                        ck_assert_int_eq(kill(pid, SIGKILL), 0);
                        private_wait_ended(pid, PRIVATE_SOON_MS);
                }
        }
        for (int i = 0; i < READERS; i++) {
                atomic_store(&followers[i].stop, true);
                pthread_join(followers[i].thread, NULL);
                reader_close(&followers[i].reader);
        }
        private_finish(h);
}
END_TEST

/* A job that knows a name only starts a daemon that does not know it, and waits for whoever brings it again.
 */
START_TEST(name_waits_for_its_definition) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        struct follower follower = {0};
        struct reader definer;
        char *log;
        pid_t pid;

        reader_open_with(&definer, &attach);
        attach.definition = NULL;
        attach.pipeline = "ramp";
        attach.reconnect_s = 60;
        reader_open_with(&follower.reader, &attach);
        ck_assert_int_eq(pthread_create(&follower.thread, NULL, follow, &follower), 0);
        wait_batches(&follower, BATCHES);
        reader_close(&definer);
        pid = private_pid(h);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        private_wait_ended(pid, PRIVATE_SOON_MS);
        do {
                log = private_read(h, RUNTIME_LOG);
                usleep(HARNESS_POLL_US);
        } while (!strstr(log, "no pipeline \"ramp\"") && (free(log), true));
        free(log);
        attach = private_attach(h, PRIVATE_RAMP);
        reader_open_with(&definer, &attach);
        wait_batches(&follower, BATCHES);
        reader_close(&definer);
        atomic_store(&follower.stop, true);
        pthread_join(follower.thread, NULL);
        reader_close(&follower.reader);
        private_finish(h);
}
END_TEST

/* The process group of a job, all of it: the daemon that the job started is not in it. */
START_TEST(process_group_of_the_starter_is_killed) {
        struct harness *h = private_new();
        struct follower followers[READERS - 1] = {0};
        pid_t starter = fork(), daemon;

        ck_assert_int_ge(starter, 0);
        if (starter == 0) {
                struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
                struct reader reader;

                setpgid(0, 0);
                reader_open_with(&reader, &attach);
                for (;;)
                        reader_read(&reader, 1);
        }
        while (private_starts(h) == 0)
                usleep(HARNESS_POLL_US);
        daemon = private_pid(h);
        for (int i = 0; i < READERS - 1; i++) {
                struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);

                reader_open_with(&followers[i].reader, &attach);
                ck_assert_int_eq(pthread_create(&followers[i].thread, NULL, follow, &followers[i]), 0);
                wait_batches(&followers[i], BATCHES);
        }
        ck_assert_int_eq(kill(-starter, SIGKILL), 0);
        ck_assert_int_eq(harness_join(h, starter, PRIVATE_SOON_MS), -SIGKILL);
        for (int i = 0; i < READERS - 1; i++)
                wait_batches(&followers[i], 5 * BATCHES);
        ck_assert_int_eq(private_pid(h), daemon);
        for (int i = 0; i < READERS - 1; i++) {
                atomic_store(&followers[i].stop, true);
                pthread_join(followers[i].thread, NULL);
                ck_assert_uint_eq(followers[i].reader.info.reconnects, 0);
                reader_close(&followers[i].reader);
        }
        private_finish(h);
}
END_TEST

/* Killed anywhere on the way: whoever comes next is served, and the lock of the dead is no lock. */
START_TEST(starter_is_killed_while_it_starts) {
        struct harness *h = private_new();
        unsigned rounds = harness_quick() ? 4 : 24;

        for (unsigned i = 0; i < rounds; i++) {
                struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
                struct reader reader;
                int barrier[2];
                pid_t starter;

                ck_assert_int_eq(pipe2(barrier, O_CLOEXEC), 0);
                starter = fork_client(h, barrier[0], PRIVATE_RAMP, false);
                setpgid(starter, starter);
                ck_assert_int_eq(write(barrier[1], "x", 1), 1);
                usleep(i * 300);
                kill(-starter, SIGKILL);
                harness_join(h, starter, PRIVATE_SOON_MS);
                reader_open_with(&reader, &attach);
                reader_read(&reader, 3);
                reader_close(&reader);
                close(barrier[0]);
                close(barrier[1]);
                ck_assert_int_eq(kill(private_pid(h), SIGKILL), 0);
                private_wait_ended(private_pid(h), PRIVATE_SOON_MS);
        }
        private_finish(h);
}
END_TEST

/* ---- the end ---- */

/* A client in a thread of its own. */
struct comer {
        struct pinfeed_attach attach;
        struct pinfeed_job *job;
        int result;
        pthread_t thread;
};

static void *come(void *data) {
        struct comer *comer = data;

        comer->result = pinfeed_open(&comer->job, &comer->attach);
        return NULL;
}

/* A client connects to a daemon that sleeps; meanwhile `us` pass and `signal` comes, if any. Then it must be
 * served, by whoever that is: its pid. */
static pid_t connect_to_stopped(struct harness *h, unsigned linger_s, useconds_t us, int signal) {
        struct comer comer = {.attach = private_attach(h, PRIVATE_RAMP)};
        struct pinfeed_batch *batch;
        struct pinfeed_info info;
        struct reader reader;
        pid_t pid;

        comer.attach.linger_s = linger_s;
        reader_open_with(&reader, &comer.attach);
        pid = private_pid(h);
        reader_close(&reader);
        harness_wait(h, "nobody there", harness_no_job_is_there, NULL, PRIVATE_SOON_MS);
        ck_assert_int_eq(kill(pid, SIGSTOP), 0);
        ck_assert_int_eq(pthread_create(&comer.thread, NULL, come, &comer), 0);
        usleep(us); /* it has connected, and linger is over where it should be */
        if (signal)
                ck_assert_int_eq(kill(pid, signal), 0);
        ck_assert_int_eq(kill(pid, SIGCONT), 0);
        pthread_join(comer.thread, NULL);
        ck_assert_msg(comer.result == 0, "%d: %s", comer.result, pinfeed_error(comer.job));
        ck_assert_int_eq(pinfeed_next(comer.job, &batch), 1);
        pinfeed_job_info(comer.job, &info);
        pinfeed_close(comer.job);
        return info.daemon_pid == pid ? 0 : info.daemon_pid;
}

START_TEST(client_comes_at_the_last_moment) {
        struct harness *h = private_new();

        ck_assert_int_eq(connect_to_stopped(h, 1, 1300000, 0), 0);
        ck_assert_uint_eq(private_starts(h), 1);
        private_finish(h);
}
END_TEST

/* The daemon may have served it before it saw the signal: then once more. */
START_TEST(client_comes_as_the_daemon_ends) {
        struct harness *h = private_new();
        pid_t next = 0;

        for (int i = 0; i < 10 && !next; i++) {
                next = connect_to_stopped(h, 60, 100000, SIGTERM);
                if (next)
                        ck_assert_int_eq(next, private_pid(h));
        }
        ck_assert_int_ne(next, 0);
        private_finish(h);
}
END_TEST

/* ---- by hand ---- */

static int start_by_hand(struct harness *h, char **output, const char *option, const char *value) {
        const char *argv[] = {"pinfeedd",
                              "--private",
                              "--background",
                              "--linger",
                              "1",
                              "--runtime-dir",
                              harness_runtime_directory(h),
                              option,
                              value,
                              NULL};

        return harness_run(h, PRIVATE_SOON_MS, output, argv);
}

START_TEST(background_says_where_or_why_not) {
        struct harness *h = private_new();
        char *output, *log;
        pid_t pid;

        ck_assert_int_eq(start_by_hand(h, &output, NULL, NULL), 0);
        harness_expect_words(output, harness_runtime_directory(h));
        free(output);
        pid = private_pid(h);
        ck_assert_int_eq(start_by_hand(h, &output, NULL, NULL), 0);
        harness_expect_words(output, "already runs");
        free(output);
        ck_assert_int_eq(private_pid(h), pid);
        private_wait_ended(pid, PRIVATE_SOON_MS);
        log = private_read(h, RUNTIME_LOG);
        harness_expect_words(log, "no job for 1 s: stopping");
        ck_assert_ptr_null(strstr(log, "another pinfeedd"));
        free(log);
        ck_assert_int_eq(start_by_hand(h, &output, "--log", "/nowhere/log"), 1);
        harness_expect_words(output, "cannot write the log /nowhere/log: No such file or directory");
        free(output);
        ck_assert_int_eq(private_pid(h), 0);
        private_finish(h);
}
END_TEST

/* A log that takes nothing costs the log; one that has grown is begun anew. */
START_TEST(full_log) {
        struct harness *h = private_new();
        struct pinfeed_attach attach = private_attach(h, PRIVATE_RAMP);
        struct reader reader;
        char path[HARNESS_PATH_MAX], *log;
        FILE *file;

        ck_assert_int_eq(start_by_hand(h, NULL, "--log", "/dev/full"), 0);
        reader_open_with(&reader, &attach);
        reader_read_epochs(&reader, 1);
        reader_close(&reader);
        kill(private_pid(h), SIGTERM);
        private_wait_ended(reader.info.daemon_pid, PRIVATE_SOON_MS);

        snprintf(path, sizeof(path), "%s/" RUNTIME_LOG, harness_runtime_directory(h));
        file = fopen(path, "we");
        ck_assert_ptr_nonnull(file);
        for (int i = 0; i <= 1 << 16; i++)
                fputs("a line of sixteen", file);
        fclose(file);
        reader_open_with(&reader, &attach);
        reader_close(&reader);
        log = private_read(h, RUNTIME_LOG);
        ck_assert_uint_lt(strlen(log), 4096);
        ck_assert_uint_eq(private_starts(h), 1);
        free(log);
        private_finish(h);
}
END_TEST

/* What the first client may use is what the daemon may, for all of them. */
START_TEST(few_processors_are_said) {
        struct harness *h = private_new();
        cpu_set_t one;
        char *log;

        if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
                harness_skip("this machine has one processor");
                harness_free(h);
                return;
        }
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        ck_assert_int_eq(start_by_hand(h, NULL, NULL, NULL), 0);
        while (private_starts(h) == 0)
                usleep(HARNESS_POLL_US);
        log = private_read(h, RUNTIME_LOG);
        harness_expect_words(log, "only 1 of the machine's");
        free(log);
        private_finish(h);
}
END_TEST

START_TEST(run_gives_a_command_a_daemon) {
        struct harness *h = private_new();
        char *output;
        pid_t pid;

        harness_write_config(h, "%s", PRIVATE_RAMP);
        ck_assert_int_eq(harness_run(h, PRIVATE_SOON_MS, &output,
                                     (const char *[]){"pinfeedctl", "run", "--linger", "2", "--config",
                                                      harness_config_path(h), "--", "sh", "-c",
                                                      "echo in $PINFEED_RUNTIME_DIR; exit 7", NULL}),
                         7);
        harness_expect_words(output, "in ");
        harness_expect_words(output, harness_runtime_directory(h));
        free(output);
        pid = private_pid(h);
        ck_assert_int_eq(harness_run(h, PRIVATE_SOON_MS, &output,
                                     (const char *[]){"pinfeedctl", "run", "pinfeedctl-of-nobody", NULL}),
                         127);
        harness_expect_words(output, "cannot run pinfeedctl-of-nobody");
        free(output);
        ck_assert_int_eq(private_pid(h), pid);
        ck_assert_int_eq(harness_run(h, PRIVATE_SOON_MS, &output,
                                     (const char *[]){"pinfeedctl", "digest", "ramp", NULL}),
                         0);
        free(output);
        private_wait_ended(pid, PRIVATE_SOON_MS);
        ck_assert_int_eq(
                harness_run(h, PRIVATE_SOON_MS, &output,
                            (const char *[]){"pinfeedctl", "run", "--config", "/nowhere/x", "true", NULL}),
                1);
        harness_expect_words(output, "/nowhere/x: cannot be opened");
        free(output);
        private_finish(h);
}
END_TEST

/* A file of its own is served, or the command is not run. */
START_TEST(run_beside_a_daemon_of_another_file) {
        static const char *const command = "echo it ran";
        struct harness *h = private_new();
        char *output, words[HARNESS_PATH_MAX];
        pid_t pid;

        harness_write_config(h, "%s", PRIVATE_RAMP);
        ck_assert_int_eq(start_by_hand(h, NULL, NULL, NULL), 0);
        pid = private_pid(h);
        ck_assert_int_eq(harness_run(h, PRIVATE_SOON_MS, &output,
                                     (const char *[]){"pinfeedctl", "run", "--config", harness_config_path(h),
                                                      "--", "sh", "-c", command, NULL}),
                         1);
        ck_assert_ptr_null(strstr(output, "it ran"));
        harness_expect_words(output, "was started with no file and not with ");
        harness_expect_words(output, harness_config_path(h));
        snprintf(words, sizeof(words), "end it with 'kill %d'", (int)pid);
        harness_expect_words(output, words);
        free(output);
        kill(pid, SIGTERM);
        private_wait_ended(pid, PRIVATE_SOON_MS);
        for (int i = 0; i < 2; i++) { /* starts one, and finds it */
                ck_assert_int_eq(harness_run(h, PRIVATE_SOON_MS, &output,
                                             (const char *[]){"pinfeedctl", "run", "--linger", "1",
                                                              "--config", harness_config_path(h), "--", "sh",
                                                              "-c", command, NULL}),
                                 0);
                harness_expect_words(output, "it ran");
                free(output);
        }
        pid = private_pid(h);
        private_wait_ended(pid, PRIVATE_SOON_MS);
        private_finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("private");
        TCase *start = tcase_create("start"), *deaths = tcase_create("deaths"), *end = tcase_create("end"),
              *hand = tcase_create("hand");

        tcase_add_test(start, started_by_the_first_client);
        tcase_add_test(start, ten_clients_at_once);
        tcase_add_loop_test(start, host_with_ways_of_its_own, 0, 2);
        tcase_add_test(start, lock_that_is_never_given_back);
        tcase_add_test(start, daemon_that_cannot_be_started);
        tcase_add_test(deaths, killed_daemon_is_restarted_by_a_reader);
        tcase_add_test(deaths, name_waits_for_its_definition);
        tcase_add_test(deaths, process_group_of_the_starter_is_killed);
        tcase_add_test(deaths, starter_is_killed_while_it_starts);
        tcase_add_test(end, client_comes_at_the_last_moment);
        tcase_add_test(end, client_comes_as_the_daemon_ends);
        tcase_add_test(hand, background_says_where_or_why_not);
        tcase_add_test(hand, full_log);
        tcase_add_test(hand, few_processors_are_said);
        tcase_add_test(hand, run_gives_a_command_a_daemon);
        tcase_add_test(hand, run_beside_a_daemon_of_another_file);
        for (size_t i = 0; i < 4; i++) {
                TCase *tcase = (TCase *[]){start, deaths, end, hand}[i];

                tcase_set_timeout(tcase, 60 * harness_slowdown());
                suite_add_tcase(suite, tcase);
        }
        return run_suite(suite);
}
