/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedctl doctor on this machine, beside the real daemon: whole and stopped, with a bad file, unreadable
 * data, a socket that refuses, a small /dev/shm. What it sees of GPUs and of jobs is in test-map-kinds.c. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/support/terminal.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        SOON_MS = 10000,
        STOPPED_MS = 4500, /* two seconds for an answer, the rest for all other looks */
        COLUMNS = 80,
};

/* The findings of "pinfeedctl doctor --json", behind `before` ("" or a command that runs others). */
static json_t *examine(struct harness *h, const char *before, const char *options, int expected_exit) {
        char command[HARNESS_PATH_MAX * 2], program[HARNESS_PATH_MAX], *text;
        json_t *answer;
        int r;

        snprintf(command, sizeof(command), "exec %s %s doctor --json %s", before,
                 harness_program("pinfeedctl", program), options);
        r = harness_run(h, SOON_MS, &text, (const char *[]){"/bin/sh", "-c", command, NULL});
        ck_assert_msg(r == expected_exit, "exit status %d of:\n%s", r, text);
        answer = json_loads(text, 0, NULL);
        ck_assert_msg(answer != NULL, "no JSON: %s", text);
        free(text);
        return answer;
}

/* One finding with these words (NULL: any) and this remedy (NULL: any, but one where it needs attention). */
static void expect(json_t *answer, const char *what, const char *level, const char *words,
                   const char *remedy) {
        size_t index;
        json_t *f;

        json_array_foreach(json_object_get(answer, "findings"), index, f) {
                const char *its_remedy = json_string_value(json_object_get(f, "remedy"));

                if (strcmp(json_string_value(json_object_get(f, "what")), what) != 0)
                        continue;
                ck_assert_str_eq(json_string_value(json_object_get(f, "level")), level);
                if (words)
                        harness_expect_words(json_string_value(json_object_get(f, "text")), words);
                if (remedy)
                        harness_expect_words(its_remedy, remedy);
                return;
        }
        ck_abort_msg("no finding of %s", what);
}

/* Each that needs attention has one, and the worst is the exit code's reason. */
static void expect_remedies(json_t *answer) {
        size_t index;
        json_t *f;

        json_array_foreach(json_object_get(answer, "findings"), index, f) {
                if (json_is_true(json_object_get(f, "attention")))
                        ck_assert_msg(json_is_string(json_object_get(f, "remedy")), "%s: no remedy",
                                      json_string_value(json_object_get(f, "what")));
        }
}

static void write_config(struct harness *h) {
        harness_write_config(h, "pipelines:\n"
                                "  ramp:\n"
                                "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 4096}\n"
                                "    batch_size: 8\n"
                                "    slots: 4\n");
}

static struct harness *start(void) {
        struct harness *h = harness_new();

        write_config(h);
        harness_start(h);
        return h;
}

static void finish(struct harness *h, json_t *answer) {
        expect_remedies(answer);
        json_decref(answer);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

START_TEST(test_whole_machine) {
        struct harness *h = start();
        json_t *answer = examine(h, "", "", 0);

        ck_assert_double_eq(harness_number(answer, "attention"), 0);
        expect(answer, "daemon", "ok", "pinfeedd ", NULL);
        expect(answer, "socket", "ok", "control.sock, mode 0600", NULL);
        expect(answer, "configuration", "ok", harness_config_path(h), NULL);
        expect(answer, "pinfeedd", "ok", pinfeed_version(), NULL);
        expect(answer, "pinfeed-worker", "ok", pinfeed_version(), NULL);
        expect(answer, "system calls", "ok", "memfd_create", NULL);
        expect(answer, "daemon's limits", "ok", "RLIMIT_NOFILE", NULL);
        finish(h, answer);
}
END_TEST

START_TEST(test_stopped_daemon) {
        struct harness *h = start();
        uint64_t before = clock_ns();
        char remedy[64];
        json_t *answer;

        kill(harness_daemon_pid(h), SIGSTOP);
        answer = examine(h, "", "--config /dev/null", 3);
        ck_assert_uint_lt((clock_ns() - before) / NS_PER_MS, STOPPED_MS * (uint64_t)harness_slowdown());
        snprintf(remedy, sizeof(remedy), "kill -CONT %d", (int)harness_daemon_pid(h));
        expect(answer, "daemon", "error", "has not answered in 2 s, for it was stopped by a signal", remedy);
        kill(harness_daemon_pid(h), SIGCONT);
        finish(h, answer);
}
END_TEST

/* A file that is refused, named by hand; the daemon's own is another. */
START_TEST(test_bad_configuration) {
        struct harness *h = start();
        char options[HARNESS_PATH_MAX];
        json_t *answer;
        FILE *file;

        snprintf(options, sizeof(options), "%s/bad.yaml", harness_directory(h));
        file = fopen(options, "we");
        ck_assert_ptr_nonnull(file);
        fputs("pipelines:\n  a:\n    source: {type: synthetic, samples: 10}\n    batch_sise: 8\n", file);
        fclose(file);
        snprintf(options, sizeof(options), "--config %s/bad.yaml", harness_directory(h));
        answer = examine(h, "", options, 3);
        expect(answer, "configuration", "error", "bad.yaml:4:", "pinfeedd --config");
        finish(h, answer);
}
END_TEST

/* ---- as another user ---- */

#define AS_NOBODY "setpriv --reuid 65534 --regid 65534 --clear-groups"

/* Root may become another, whom the installed programs do not refuse. */
static bool can_be_nobody(struct harness *h) {
        char command[HARNESS_PATH_MAX], program[HARNESS_PATH_MAX];

        snprintf(command, sizeof(command), AS_NOBODY " %s --version", harness_program("pinfeedctl", program));
        if (geteuid() == 0 &&
            harness_run(h, SOON_MS, NULL, (const char *[]){"/bin/sh", "-c", command, NULL}) == 0)
                return true;
        harness_skip("this user cannot become another one that may run the programs");
        return false;
}

START_TEST(test_socket_of_another_user) {
        struct harness *h = start();
        json_t *answer;

        if (!can_be_nobody(h)) {
                finish(h, json_object());
                return;
        }
        ck_assert_int_eq(chmod(harness_directory(h), 0755), 0);
        ck_assert_int_eq(chmod(harness_runtime_directory(h), 0755), 0);
        answer = examine(h, AS_NOBODY, "", 3);
        expect(answer, "socket", "error", "user 65534 may not connect to ", "group 0");
        expect(answer, "socket", "error", "Permission denied (mode 0600, owner 0, group 0)", "usermod -aG");
        ck_assert_int_eq(chmod(harness_runtime_directory(h), 0700), 0);
        finish(h, answer);
}
END_TEST

/* The path component that refuses is named, and by whom it is needed. */
START_TEST(test_data_that_cannot_be_read) {
        struct harness *h = harness_new();
        char images[HARNESS_PATH_MAX], options[HARNESS_PATH_MAX + 16];
        json_t *answer;

        if (!can_be_nobody(h)) {
                harness_free(h);
                return;
        }
        snprintf(images, sizeof(images), "%s/images", harness_directory(h));
        ck_assert_int_eq(mkdir(images, 0700), 0);
        harness_write_config(h,
                             "pipelines:\n"
                             "  images:\n"
                             "    source: {type: imagefolder, path: %s}\n"
                             "    transforms: [{resize: {size: [24, 32]}}]\n"
                             "    batch_size: 8\n",
                             images);
        ck_assert_int_eq(chmod(harness_directory(h), 0755), 0);
        ck_assert_int_eq(chmod(harness_config_path(h), 0644), 0);
        snprintf(options, sizeof(options), "--config %s", harness_config_path(h));
        answer = examine(h, AS_NOBODY, options, 3);
        expect(answer, "configuration", "error", "may not enter it", "chmod o+x ");
        expect_remedies(answer);
        json_decref(answer);
        harness_free(h);
}
END_TEST

/* ---- a place of its own ---- */

START_TEST(test_small_shm) {
        struct harness *h;
        json_t *answer;

        if (!harness_isolate_mounts()) {
                harness_skip("no mounts of our own here: run as root or allow user namespaces");
                return;
        }
        harness_mount_tmpfs("/dev/shm", 16 << 20);
        h = start();
        answer = examine(h, "", "", 0);
        expect(answer, "shared memory", "note", "of 16 MiB free in /dev/shm", "--shm-size");
        finish(h, answer);
}
END_TEST

/* What a killed daemon leaves is told from a daemon, and is no fault by itself. */
START_TEST(test_sockets_of_a_dead_daemon) {
        struct harness *h = start();
        json_t *answer;

        harness_kill(h);
        answer = examine(h, "", "", 0);
        expect(answer, "daemon", "note", "none in ", NULL);
        expect(answer, "socket", "note", "nobody listens any more in ", NULL);
        json_decref(answer);
        harness_free(h);
}
END_TEST

static void leave_socket(const char *directory, const char *name) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory, name);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        close(fd);
}

/* They hide a daemon that stands further back in the order of places. */
START_TEST(test_sockets_that_hide_the_service) {
        char place[HARNESS_PATH_MAX], before[HARNESS_PATH_MAX];
        struct harness *h;
        json_t *answer;

        if (!harness_isolate_mounts()) {
                harness_skip("no mounts of our own here: run as root or allow user namespaces");
                return;
        }
        harness_mount_tmpfs("/run", 1 << 20);
        h = start();
        ck_assert_int_eq(symlink(harness_runtime_directory(h), "/run/pinfeed"), 0);
        snprintf(place, sizeof(place), "%s/pinfeed", harness_directory(h));
        ck_assert_int_eq(mkdir(place, 0700), 0);
        leave_socket(place, "pinfeed.sock");
        leave_socket(place, "control.sock");
        snprintf(before, sizeof(before), "env -u PINFEED_RUNTIME_DIR XDG_RUNTIME_DIR=%s",
                 harness_directory(h));
        answer = examine(h, before, "", 1);
        expect(answer, "socket", "warning", "/pinfeed, which hides the daemon in /run/pinfeed",
               "/pinfeed/*.sock");
        expect(answer, "another daemon", "note", "in /run/pinfeed, pid ", NULL);
        finish(h, answer);
}
END_TEST

/* ---- for people ---- */

static void become_doctor(void *context) {
        struct harness *h = context;
        char program[HARNESS_PATH_MAX];

        setenv("PINFEED_RUNTIME_DIR", harness_runtime_directory(h), 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        setenv("NO_COLOR", "1", 1);
        execl("/bin/sh", "sh", "-c", "\"$0\" doctor --config /nowhere/x.yaml 2>/dev/null; test $? = 3",
              harness_program("pinfeedctl", program), (char *)NULL);
        _exit(126);
}

static size_t count_characters(const char *text) {
        size_t n = 0;

        for (; *text; text++)
                n += ((unsigned char)*text & 0xc0) != 0x80;
        return n;
}

/* A line that does not fit is one word, such as a path. */
static void expect_lines_that_fit(char *text) {
        for (char *line; (line = strsep(&text, "\n"));)
                ck_assert_msg(count_characters(line) <= COLUMNS || !strchr(line + strspn(line, " "), ' '),
                              "too long: %s", line);
}

START_TEST(test_eighty_columns) {
        struct harness *h = start();
        char *text = terminal_run(COLUMNS, become_doctor, h);

        harness_expect_words(text, "Configuration\n  ✗ configuration: /nowhere/x.yaml: cannot be opened");
        harness_expect_words(text,
                             "\n      → mend it, and try 'pinfeedd --config /nowhere/x.yaml --check'\n");
        harness_expect_words(text, " needs attention: 1 error\n");
        expect_lines_that_fit(text);
        free(text);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("doctor");
        TCase *tcase = tcase_create("doctor");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_whole_machine);
        tcase_add_test(tcase, test_stopped_daemon);
        tcase_add_test(tcase, test_bad_configuration);
        tcase_add_test(tcase, test_socket_of_another_user);
        tcase_add_test(tcase, test_data_that_cannot_be_read);
        tcase_add_test(tcase, test_small_shm);
        tcase_add_test(tcase, test_sockets_of_a_dead_daemon);
        tcase_add_test(tcase, test_sockets_that_hide_the_service);
        tcase_add_test(tcase, test_eighty_columns);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
