/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case A7, and whom a client believes: each user has a daemon. Their programs are copies in a place that they
 * may enter, since the installation may lie where only root may.
 *
 * Daemons "with defaults" have their directories in /tmp, named after numbers that are nobody's. */

#include "base/clock.h"
#include "proto/runtime.h"
#include "tests/support/process.h"
#include "tests/support/run.h"
#include "tests/system/people.h"
#include "tests/system/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

enum {
        SHARED_GROUP = 60013,
        TEXT = 1200,
        NOBODY = 65534,
};

static const struct person anna = {60011, 60011, 1, {SHARED_GROUP}}, ben = {60012, 60012, 1, {SHARED_GROUP}};

static void copy(const struct harness *h, const char *name, const char *to) {
        char from[HARNESS_PATH_MAX], command[3 * HARNESS_PATH_MAX];

        harness_program(name, from);
        snprintf(command, sizeof(command), "mkdir -p %s/$(dirname %s) && cp %s %s/%s", harness_directory(h),
                 to, from, harness_directory(h), to);
        ck_assert_int_eq(system(command), 0);
}

/* A harness that starts nothing itself, with programs and a configuration for everybody. */
static struct harness *new_place(const char *access) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];

        people_let_in(h);
        copy(h, "pinfeedd", "bin/pinfeedd");
        copy(h, "../libexec/pinfeed/pinfeed-worker", "libexec/pinfeed/pinfeed-worker");
        harness_write_config(h,
                             "%spipelines:\n  ramp:\n"
                             "    source: {type: synthetic, samples: 1000, mode: ramp, bytes: 1024}\n"
                             "    batch_size: 8\n    slots: 8\n    workers: 1\n    reserve: start\n",
                             access);
        ck_assert_int_eq(chmod(harness_config_path(h), 0644), 0);
        snprintf(path, sizeof(path), "%s/home", harness_directory(h));
        ck_assert_int_eq(mkdir(path, 0777) | chmod(path, 01777), 0);
        return h;
}

/* ---- a daemon of theirs ---- */

static void exec_daemon(const struct harness *h, const char *directory, const char *log) {
        char program[HARNESS_PATH_MAX], home[HARNESS_PATH_MAX];
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

        snprintf(program, sizeof(program), "%s/bin/pinfeedd", harness_directory(h));
        snprintf(home, sizeof(home), "%s/home", harness_directory(h));
        unsetenv("XDG_RUNTIME_DIR");
        unsetenv("PINFEED_RUNTIME_DIR");
        setenv("PINFEED_STATE_DIR", home, 1);
        if (directory)
                setenv("PINFEED_RUNTIME_DIR", directory, 1);
        if (fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO)
                execl(program, program, "--config", harness_config_path(h), NULL);
        _exit(1);
}

static void log_of(const struct harness *h, const struct person *who, char path[HARNESS_PATH_MAX]) {
        snprintf(path, HARNESS_PATH_MAX, "%s/home/%u.log", harness_directory(h), (unsigned)who->uid);
}

/* `directory` NULL: with defaults. Whatever becomes of it is in the log. */
static pid_t spawn_daemon(const struct harness *h, const struct person *who, const char *directory) {
        char log[HARNESS_PATH_MAX];
        pid_t pid = fork();

        log_of(h, who, log);
        if (pid == 0) {
                if (person_become(who))
                        exec_daemon(h, directory, log);
                _exit(1);
        }
        ck_assert_int_gt(pid, 0);
        return pid;
}

static pid_t start_daemon(const struct harness *h, const struct person *who, const char *directory) {
        uint64_t deadline = clock_ns() + (uint64_t)PEOPLE_SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        pid_t pid = spawn_daemon(h, who, directory);
        char log[HARNESS_PATH_MAX], *text = NULL;

        log_of(h, who, log);
        do {
                free(text);
                usleep(HARNESS_POLL_US);
                text = process_read_file(log);
                ck_assert_msg(clock_ns() < deadline && harness_alive(pid), "it does not start: %s",
                              text ? text : "no log");
        } while (!text || !strstr(text, "pinfeedd: ready"));
        free(text);
        return pid;
}

static void stop_daemon(struct harness *h, pid_t pid) {
        ck_assert_int_eq(kill(pid, SIGTERM), 0);
        ck_assert_int_eq(harness_join(h, pid, PEOPLE_SOON_MS), 0);
}

static void own_directory(const struct person *who, char path[64]) {
        snprintf(path, 64, "/tmp/pinfeed-%u", (unsigned)who->uid);
}

/* What a killed daemon leaves. */
static void remove_directory(const struct person *who) {
        static const char *const names[] = {RUNTIME_JOB_SOCKET, RUNTIME_CONTROL_SOCKET, RUNTIME_LOCK};
        char directory[64], path[128];

        own_directory(who, directory);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
                unlink(path);
        }
        rmdir(directory);
}

/* ---- A7 ---- */

struct attempt {
        const char *directory;
        int expected;
        const char *words;
};

static void attach(struct harness *h, void *context) {
        const struct attempt *attempt = context;
        struct pinfeed_attach attach = reader_attach(h, "ramp", 2);
        struct reader reader;
        char text[TEXT];

        attach.runtime_dir = attempt->directory;
        if (attempt->expected == 0) {
                reader_open_with(&reader, &attach);
                reader_read(&reader, 20);
                reader_close(&reader);
                return;
        }
        reader_expect_refusal(&attach, attempt->expected, text, sizeof(text));
        harness_expect_words(text, attempt->words);
}

/* Whatever of anna's has a name. */
static void touch_what_is_left(struct harness *h, void *context) {
        static const char *const names[] = {RUNTIME_JOB_SOCKET, RUNTIME_LOCK};
        char directory[64], path[128];

        own_directory(&anna, directory);
        ck_assert_ptr_null(opendir(directory));
        ck_assert_int_lt(rmdir(directory), 0);
        for (size_t i = 0; i < 2; i++) {
                snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
                ck_assert_int_lt(open(path, O_RDONLY | O_CLOEXEC), 0);
                ck_assert_int_lt(unlink(path), 0);
        }
        ck_assert_uint_eq(harness_shm_objects(), 0);
}

START_TEST(test_A7_the_second_user_starts) {
        struct attempt own = {NULL, 0, NULL};
        char directory[64];
        struct harness *h;
        pid_t pid;

        if (!people_exist())
                return;
        h = new_place("");
        remove_directory(&anna);
        remove_directory(&ben);
        pid = start_daemon(h, &anna, NULL);
        person_does(&ben, h, touch_what_is_left, NULL);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(harness_join(h, pid, PEOPLE_SOON_MS), -SIGKILL);
        person_does(&ben, h, touch_what_is_left, NULL);

        pid = start_daemon(h, &ben, NULL);
        unsetenv("XDG_RUNTIME_DIR");
        person_does(&ben, h, attach, &own);
        own_directory(&anna, directory);
        ck_assert_int_eq(access(directory, F_OK), 0);
        stop_daemon(h, pid);
        remove_directory(&anna);
        remove_directory(&ben);
        harness_free(h);
}
END_TEST

/* ---- whom a client believes ---- */

static void attach_naming(struct harness *h, void *context) {
        struct attempt *attempt = context;

        setenv("PINFEED_SERVER_USER", "60011", 1);
        attach(h, attempt);
}

static void attach_naming_another(struct harness *h, void *context) {
        struct attempt *attempt = context;

        setenv("PINFEED_SERVER_USER", "nobody", 1);
        attach(h, attempt);
}

static void ask(struct harness *h, void *context) {
        const struct attempt *attempt = context;
        char program[HARNESS_PATH_MAX], command[2 * HARNESS_PATH_MAX], text[TEXT] = "";
        FILE *output;
        int status;

        snprintf(program, sizeof(program), "%s/bin/pinfeedctl", harness_directory(h));
        snprintf(command, sizeof(command), "LD_LIBRARY_PATH=%s/bin %s --runtime-dir %s pipelines 2>&1",
                 harness_directory(h), program, attempt->directory);
        output = popen(command, "r");
        ck_assert_ptr_nonnull(output);
        ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, output), 0);
        status = pclose(output);
        ck_assert_msg((status == 0) == (attempt->expected == 0), "%s", text);
        harness_expect_words(text, attempt->words);
}

/* The library that an installed pinfeedctl finds elsewhere. */
static void copy_control(const struct harness *h) {
        char command[3 * HARNESS_PATH_MAX], program[HARNESS_PATH_MAX];

        copy(h, "pinfeedctl", "bin/pinfeedctl");
        harness_program("pinfeedctl", program);
        snprintf(command, sizeof(command),
                 "for f in $(ldd %s | sed -n 's/.*=> \\(.*libpinfeed[^ ]*\\) .*/\\1/p'); do cp \"$f\" "
                 "%s/bin/; done",
                 program, harness_directory(h));
        ck_assert_int_eq(system(command), 0);
}

START_TEST(test_A7_whom_a_client_believes) {
        char directory[HARNESS_PATH_MAX];
        struct attempt wrong = {directory, -EPERM, "belongs to uid 60011, not to uid 60012 or root"},
                       right = {directory, 0, "ramp"},
                       another = {directory, -EPERM, "PINFEED_SERVER_USER, nobody"};
        struct harness *h;
        pid_t pid;

        if (!people_exist())
                return;
        h = new_place("socket_group: 60013\nallow: {users: [60012]}\n");
        copy_control(h);
        snprintf(directory, sizeof(directory), "%s/home/run", harness_directory(h));
        pid = start_daemon(h, &anna, directory);
        person_does(&ben, h, attach, &wrong);
        person_does(&ben, h, ask, &wrong);
        person_does(&ben, h, attach_naming, &right);
        person_does(&ben, h, attach_naming_another, &another);
        attach_naming(h, &right); /* as root */
        setenv("PINFEED_SERVER_USER", "60011", 1);
        person_does(&ben, h, ask, &right);
        unsetenv("PINFEED_SERVER_USER");
        stop_daemon(h, pid);
        harness_free(h);
}
END_TEST

/* The service's directory says whose service it is, as long as nobody else may write it. */
START_TEST(test_A7_the_service_is_believed) {
        struct attempt right = {RUNTIME_SERVICE, 0, NULL}, slash = {RUNTIME_SERVICE "/", 0, NULL},
                       wrong = {RUNTIME_SERVICE, -EPERM, "belongs to uid 60011"};
        struct harness *h;
        pid_t pid;

        if (!people_exist() || !harness_isolate_mounts())
                return;
        harness_mount_tmpfs("/run", 1 << 20);
        h = new_place("socket_group: 60013\nallow: {users: [60012]}\n");
        ck_assert_int_eq(chmod("/run", 0755) | mkdir(RUNTIME_SERVICE, 0755), 0);
        ck_assert_int_eq(chown(RUNTIME_SERVICE, anna.uid, anna.gid), 0);
        pid = start_daemon(h, &anna, RUNTIME_SERVICE);
        person_does(&ben, h, attach, &right);
        person_does(&ben, h, attach, &slash);
        ck_assert_int_eq(chmod(RUNTIME_SERVICE, 0775), 0);
        person_does(&ben, h, attach, &wrong);
        ck_assert_int_eq(chmod(RUNTIME_SERVICE, 0755) | chown(RUNTIME_SERVICE, ben.uid + 1, 0), 0);
        person_does(&ben, h, attach, &wrong);
        ck_assert_int_eq(chown(RUNTIME_SERVICE, anna.uid, anna.gid), 0);
        stop_daemon(h, pid);
        harness_free(h);
}
END_TEST

START_TEST(test_A7_a_group_that_is_not_ones_own) {
        char log[HARNESS_PATH_MAX], directory[HARNESS_PATH_MAX], *text;
        struct harness *h;
        pid_t pid;

        if (!people_exist())
                return;
        h = new_place("socket_group: 60099\n");
        snprintf(directory, sizeof(directory), "%s/home/run", harness_directory(h));
        pid = spawn_daemon(h, &anna, directory);
        ck_assert_int_eq(harness_join(h, pid, PEOPLE_SOON_MS), 1);
        log_of(h, &anna, log);
        text = process_read_file(log);
        harness_expect_words(text, "pinfeed.yaml:1: socket_group: ");
        harness_expect_words(text, "uid 60011 is not of that group; add the user to it");
        free(text);
        harness_free(h);
}
END_TEST

/* ---- what the service's user may read ---- */

static void check_as_nobody(struct harness *h, int expected, const char *words) {
        const char *const argv[] = {
                "pinfeedd", "--check", "--user", "nobody", "--config", harness_config_path(h), NULL};
        char *text;

        ck_assert_int_eq(harness_run(h, PEOPLE_SOON_MS, &text, argv), expected);
        harness_expect_words(text, words);
        free(text);
}

static void expect_refused(struct harness *h, const char *part, const char *mode, const char *remedy) {
        char words[3 * HARNESS_PATH_MAX];

        snprintf(words, sizeof(words),
                 "%s/data/train: directory %s/%s is %s root:root, user nobody (uid %d) may not ",
                 harness_directory(h), harness_directory(h), part, mode, NOBODY);
        check_as_nobody(h, 1, words);
        snprintf(words, sizeof(words), "it; %s %s/%s", remedy, harness_directory(h), part);
        check_as_nobody(h, 1, words);
}

static void set_mode(const struct harness *h, const char *name, mode_t mode) {
        char path[HARNESS_PATH_MAX + 64];

        snprintf(path, sizeof(path), "%s/%s", harness_directory(h), name);
        ck_assert_int_eq(chmod(path, mode), 0);
}

START_TEST(test_check_as_another_user) {
        static const char *const directories[] = {"data", "data/train", "data/train/cat"};
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];
        FILE *file;

        if (!people_exist()) {
                harness_free(h);
                return;
        }
        ck_assert_int_eq(setgroups(1, (gid_t[]){0}), 0); /* which nobody must not keep */
        for (size_t i = 0; i < 3; i++) {
                snprintf(path, sizeof(path), "%s/%s", harness_directory(h), directories[i]);
                ck_assert_int_eq(mkdir(path, 0700), 0);
        }
        snprintf(path, sizeof(path), "%s/data/train/cat/1.jpg", harness_directory(h));
        file = fopen(path, "w");
        ck_assert_int_ge(fprintf(file, "x"), 0);
        fclose(file);
        harness_write_config(h, "pipelines:\n  a:\n    source: {type: imagefolder, path: data/train}\n"
                                "    transforms: [{center_crop: {size: 4}}]\n    batch_size: 1\n");
        check_as_nobody(h, 1, "pinfeed.yaml: cannot be opened: Permission denied");
        people_let_in(h);
        set_mode(h, "pinfeed.yaml", 0644);
        expect_refused(h, "data", "0700", "chmod o+x");
        set_mode(h, "data", 0711);
        set_mode(h, "data/train", 0751);
        expect_refused(h, "data/train", "0751", "add the user to group root, or chmod o+r");
        set_mode(h, "data/train", 0755);
        check_as_nobody(h, 1, "may not list it; chmod o+r");
        set_mode(h, "data/train/cat", 0755);
        set_mode(h, "data/train/cat/1.jpg", 0600);
        check_as_nobody(h, 1, "file ");
        check_as_nobody(h, 1, "may not read it; chmod o+r");
        set_mode(h, "data/train/cat/1.jpg", 0644);
        check_as_nobody(h, 0, "yes, opened ");
        harness_free(h);
}
END_TEST

static void check_without_right(struct harness *h, void *context) {
        char command[3 * HARNESS_PATH_MAX];

        snprintf(command, sizeof(command),
                 "%s/bin/pinfeedd --check --user root --config /x 2>&1 | grep -q 'for root, "
                 "this is uid 60011; use sudo'",
                 harness_directory(h));
        ck_assert_int_eq(system(command), 0);
}

START_TEST(test_check_as_somebody_who_is_not) {
        const char *const argv[] = {"pinfeedd", "--check", "--user", "no-such-user", "--config", "/x", NULL},
                          *const alone[] = {"pinfeedd", "--user", "nobody", "--config", "/x", NULL};
        struct harness *h;
        char *text;

        if (!people_exist())
                return;
        h = new_place("");
        ck_assert_int_eq(harness_run(h, PEOPLE_SOON_MS, &text, argv), 1);
        harness_expect_words(text, "this machine knows no user no-such-user");
        free(text);
        ck_assert_int_eq(harness_run(h, PEOPLE_SOON_MS, &text, alone), 2);
        harness_expect_words(text, "--user goes with --check");
        free(text);
        person_does(&anna, h, check_without_right, NULL);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("A-users");
        TCase *tcase = tcase_create("A7");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_A7_the_second_user_starts);
        tcase_add_test(tcase, test_A7_whom_a_client_believes);
        tcase_add_test(tcase, test_A7_the_service_is_believed);
        tcase_add_test(tcase, test_A7_a_group_that_is_not_ones_own);
        tcase_add_test(tcase, test_check_as_another_user);
        tcase_add_test(tcase, test_check_as_somebody_who_is_not);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
