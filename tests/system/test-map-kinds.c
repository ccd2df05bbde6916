/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Cases J4, J12, J14 as far as the daemon and its operator see them: how a job maps the ring, how many slots
 * are page-locked so far, why they are not; in `status`, in tables for people, and by `pinfeedctl doctor`.
 *
 * The job here speaks by hand (raw.h), so that it says what a GPU would make of it. Who is given what is in
 * test-M-trust.c. */

#include "tests/support/run.h"
#include "tests/support/terminal.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        SOON_MS = 10000,
        SLOTS = 16,
};

#define REFUSED_CAUSE  "cudaHostRegister of slot 6 failed: cudaErrorMemoryAllocation (2), out of memory"
#define REFUSED_REMEDY "RLIMIT_MEMLOCK is 8,388,608 bytes: raise it"
#define REFUSED        REFUSED_CAUSE "; " REFUSED_REMEDY

static struct harness *start(void) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 1024}\n"
                             "    batch_size: 8\n"
                             "    slots: %d\n"
                             "    workers: 2\n",
                             SLOTS);
        harness_start(h);
        return h;
}

static int attach(struct harness *h, const char *name, enum message_map asked) {
        struct message message = raw_attach("ramp"), answer;

        message.attach.map = (uint8_t)asked;
        strcpy(message.attach.name, name);
        return raw_attached_by(h, &message, &answer, NULL);
}

static void say_mapped(int fd, enum message_map kind, uint32_t registered, const char *reason) {
        struct message message = {.type = MESSAGE_MAPPED,
                                  .mapped = {.map = (uint8_t)kind, .registered = registered}};

        strcpy(message.mapped.reason, reason);
        raw_send(fd, &message);
}

/* Its map and reason ("" for null), once the daemon knows of so many slots. */
static void expect_map(struct harness *h, const char *name, const char *map, uint32_t registered,
                       const char *reason) {
        json_t *status, *job, *why;
        char path[64];

        snprintf(path, sizeof(path), "jobs/%s/slots_registered", name);
        harness_wait_number(h, path, registered, SOON_MS);
        status = harness_status(h);
        snprintf(path, sizeof(path), "jobs/%s", name);
        job = harness_member(status, path);
        ck_assert_ptr_nonnull(job);
        ck_assert_str_eq(json_string_value(json_object_get(job, "map")), map);
        ck_assert_double_eq(harness_number(job, "slots"), SLOTS);
        ck_assert_double_eq(harness_number(job, "slots_registered"), registered);
        why = json_object_get(job, "map_reason");
        ck_assert_str_eq(json_is_null(why) ? "" : json_string_value(why), reason);
        json_decref(status);
}

static unsigned count(const char *text, const char *words) {
        unsigned n = 0;

        while ((text = strstr(text, words))) {
                text += strlen(words);
                n++;
        }
        return n;
}

/* ---- for people ---- */

static const char *command; /* of pinfeedctl */

static void print_part(void *context) {
        char path[HARNESS_PATH_MAX];

        setenv("PINFEED_RUNTIME_DIR", harness_runtime_directory(context), 1);
        setenv("NO_COLOR", "1", 1);
        execl(harness_program("pinfeedctl", path), "pinfeedctl", command, NULL);
}

/* How the column of maps begins: its title, and the one before it. "map" alone is in the job's name, too,
 * which is this program's and is shown whole where the other columns leave room. */
#define MAP_COLUMN " ready  map "

/* What `pinfeedctl jobs` shows on a terminal, free it. */
static char *show_jobs(struct harness *h, uint16_t columns) {
        char *text;

        command = "jobs";
        text = terminal_run(columns, print_part, h);
        ck_assert_msg(terminal_longest_line(text) <= columns, "a line of %zu columns in:\n%s",
                      terminal_longest_line(text), text);
        return text;
}

static char *run_doctor(struct harness *h, const char *option, int expected_exit) {
        char *text;
        int status;

        setenv("LC_ALL", "C", 1); /* marks in ASCII */
        status = harness_run(h, SOON_MS, &text, (const char *[]){"pinfeedctl", "doctor", option, NULL});

        ck_assert_msg(status == expected_exit, "exit status %d of:\n%s", status, text);
        return text;
}

START_TEST(test_J14_how_many_slots) {
        struct harness *h = start();
        int fd = attach(h, "trainer", MESSAGE_MAP_PINNED);
        char *text;

        expect_map(h, "trainer", "pinned", 0, "");
        for (uint32_t i = 1; i <= 6; i++)
                say_mapped(fd, MESSAGE_MAP_PINNED, i, "as it should be");
        expect_map(h, "trainer", "pinned", 6, "as it should be");
        text = show_jobs(h, 80);
        harness_expect_words(text, "pinned 6/16");
        ck_assert_ptr_null(strstr(text, "as it should be"));
        free(text);
        text = run_doctor(h, NULL, 0);
        harness_expect_words(text, "\n  + job 1: trainer, pid ");
        harness_expect_words(text, ", pinned 6/16: as it should be\n");
        harness_expect_words(text, "\nnothing needs attention: ");
        free(text);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* A line in the log, a word in all that look, and the job goes on. */
START_TEST(test_J4_page_locking_is_refused) {
        struct harness *h = start();
        int fd = attach(h, "trainer", MESSAGE_MAP_PINNED);
        struct reader beside;
        struct message message;
        char *text;

        reader_open(&beside, h, "ramp", 2);
        ck_assert_int_eq(raw_receive(fd, &message, NULL), MESSAGE_BATCHES);
        say_mapped(fd, MESSAGE_MAP_PINNED, 6, "");
        say_mapped(fd, MESSAGE_MAP_READ_ONLY, 6, REFUSED);
        say_mapped(fd, MESSAGE_MAP_READ_ONLY, 7, REFUSED);
        expect_map(h, "trainer", "read-only", 7, REFUSED);
        message = raw_release(0);
        raw_send(fd, &message);
        do
                ck_assert_int_eq(raw_receive(fd, &message, NULL), MESSAGE_BATCHES);
        while (message.batches.batch[message.batches.n_batch - 1].number < 2);
        reader_read(&beside, 100);

        text = harness_log(h);
        harness_expect_words(text, "reads with 6 of 16 slots page-locked: " REFUSED);
        ck_assert_uint_eq(count(text, "slots page-locked"), 1);
        free(text);
        for (uint16_t columns = 60; columns <= 120; columns += 20) {
                text = show_jobs(h, columns);
                harness_expect_words(text, MAP_COLUMN);
                harness_expect_words(text, "read-only 7/16");
                harness_expect_words(text, "\njob 1: read-only 7/16: cudaHostRegister of slot 6");
                ck_assert_ptr_null(strstr(text, "job 2:"));
                free(text);
        }
        text = run_doctor(h, NULL, 1);
        harness_expect_words(text, "\n  ! job 1: trainer, pid ");
        harness_expect_words(text, ", read-only 7/16: " REFUSED_CAUSE "\n      > " REFUSED_REMEDY "\n");
        harness_expect_words(text, "\n  + jobs: 1 that page-locks nothing\n");
        free(text);
        reader_close(&beside);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* Jobs that have nothing to do with a GPU are left alone. */
START_TEST(test_jobs_without_a_gpu) {
        struct harness *h = start();
        struct reader reader;
        char *text;
        int never;

        reader_open(&reader, h, "ramp", 2);
        text = show_jobs(h, 80);
        ck_assert_ptr_null(strstr(text, MAP_COLUMN));
        ck_assert_ptr_null(strstr(text, "read-only"));
        free(text);
        /* One that wants nothing page-locked, and says so. */
        never = attach(h, "never", MESSAGE_MAP_ANY);
        expect_map(h, "never", "read-only", 0, "");
        say_mapped(never, MESSAGE_MAP_READ_ONLY, 1, "pin is never");
        expect_map(h, "never", "read-only", 1, "pin is never");
        text = run_doctor(h, NULL, 0);
        harness_expect_words(text, "\n  + jobs: 1 that page-locks nothing\n");
        harness_expect_words(text, ", read-only 1/16: pin is never\n");
        free(text);
        ck_assert(!harness_log_contains(h, "page-locked"));
        close(never);
        reader_close(&reader);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- doctor ---- */

START_TEST(test_doctor_finds_a_daemon_or_none) {
        struct harness *h = start();
        char words[HARNESS_PATH_MAX], *text;

        text = run_doctor(h, NULL, 0);
        printf("# %s", text);
        snprintf(words, sizeof(words), "Daemon\n  + daemon: pinfeedd %s, pid %d, in %s\n", pinfeed_version(),
                 (int)harness_daemon_pid(h), harness_runtime_directory(h));
        ck_assert_msg(strncmp(text, words, strlen(words)) == 0, "no '%s' in:\n%s", words, text);
        harness_expect_words(text, "\n  + shared memory: ");
        harness_expect_words(text, "\n  + locked memory: RLIMIT_MEMLOCK is ");
        harness_expect_words(text, "\n  + CUDA runtime: ");
        free(text);
        harness_stop(h, SIGTERM, 0);
        text = run_doctor(h, NULL, 0);
        snprintf(words, sizeof(words), "  - daemon: none in %s; ", harness_runtime_directory(h));
        harness_expect_words(text, words);
        free(text);
        harness_free(h);
}
END_TEST

/* Something that listens where the daemon would, and answers each question with that. After the one that asks
 * others come, which see whether anybody is there. */
static pid_t answer_with(struct harness *h, const char *answer, int others) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char question[64];
        pid_t pid;

        ck_assert_int_eq(mkdir(harness_runtime_directory(h), 0700), 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock", harness_runtime_directory(h));
        ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(listening, 1 + others), 0);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        for (int i = 0; pid == 0 && i < 1 + others; i++) {
                int fd = accept(listening, NULL, NULL);

                if (i == 0 && read(fd, question, sizeof(question)) > 0)
                        (void)!write(fd, answer, strlen(answer));
                close(fd);
        }
        if (pid == 0)
                _exit(0);
        close(listening);
        return pid;
}

START_TEST(test_doctor_finds_a_silent_daemon) {
        struct harness *h = harness_new();
        pid_t pid = answer_with(h, "", 2);
        char *text = run_doctor(h, NULL, 3);

        harness_expect_words(text, "  X daemon: in ");
        harness_expect_words(text, ": the daemon hung up\n      > restart the daemon, and keep its log\n");
        harness_expect_words(text, " needs attention: 1 error\n");
        free(text);
        ck_assert_int_eq(harness_join(h, pid, SOON_MS), 0);
        harness_free(h);
}
END_TEST

START_TEST(test_doctor_finds_another_version) {
        struct harness *h = harness_new();
        pid_t pid = answer_with(h, "{\"version\": \"9.9.9\", \"pid\": 7, \"done\": true}\n", 1);
        char *text = run_doctor(h, NULL, 1);

        harness_expect_words(text, "  ! daemon: pinfeedd 9.9.9, pid 7, in ");
        harness_expect_words(text, "\n      > install one version, and restart the daemon\n");
        free(text);
        ck_assert_int_eq(harness_join(h, pid, SOON_MS), 0);
        harness_free(h);
}
END_TEST

/* ---- what it sees of CUDA ---- */

/* For programs that are started later: the runtime of tests/support/fake-cudart.h, and what it is told. */
static void use_fake_cuda(const char *settings) {
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/tests/support/libcudart-fake.so", getenv("PINFEED_TEST_BUILD"));
        ck_assert_msg(access(path, R_OK) == 0, "no %s", path);
        setenv("PINFEED_LIBCUDART", path, 1);
        setenv("PINFEED_FAKE_CUDA", settings, 1);
}

static const struct {
        const char *settings; /* NULL: there is no such runtime */
        const char *words;
        const char *more;
        int exit;
} machines[] = {
        {"devices=2", "\n  + GPUs: 2, the driver serves CUDA 13.0\n", "\n  + CUDA runtime: 13.0, /", 0},
        {"version=12080", "\n  + GPUs: 1, the driver serves CUDA 12.8\n", "\n  + CUDA runtime: 12.8, /", 0},
        {"driver=0", "\n  + GPUs: none, no driver: ", "cudaErrorInsufficientDriver (35)", 0},
        {"fail=cudaGetDeviceCount:1:100",
         "\n  + GPUs: none, the driver serves CUDA 13.0: ", "cudaErrorNoDevice (100)", 0},
        {"driver=11040 fail=cudaGetDeviceCount:1:35",
         "\n  ! GPUs: none, the driver serves CUDA 11.4: ", "\n      > install a newer driver, ", 1},
        {"fail=cudaDriverGetVersion:1:999", "\n  + GPUs: 1, no driver\n", "", 0},
        {NULL, "\n  ! CUDA runtime: none: PINFEED_LIBCUDART names no CUDA runtime", "/nowhere/libcudart.so",
         1},
};

START_TEST(test_J12_what_there_is_of_cuda) {
        struct harness *h = harness_new();
        char *text;

        if (machines[_i].settings)
                use_fake_cuda(machines[_i].settings);
        else
                setenv("PINFEED_LIBCUDART", "/nowhere/libcudart.so", 1);
        text = run_doctor(h, NULL, machines[_i].exit);
        harness_expect_words(text, machines[_i].words);
        harness_expect_words(text, machines[_i].more);
        free(text);
        harness_free(h);
}
END_TEST

/* J9: nobody who merely looks makes a context. */
START_TEST(test_J9_doctor_makes_no_context) {
        char settings[HARNESS_PATH_MAX], path[HARNESS_PATH_MAX - 64];
        struct harness *h = harness_new();
        json_t *report;

        snprintf(path, sizeof(path), "%s/report", harness_directory(h));
        snprintf(settings, sizeof(settings), "devices=8 report=%s", path);
        use_fake_cuda(settings);
        free(run_doctor(h, NULL, 0));
        report = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
        ck_assert_ptr_nonnull(report);
        ck_assert_double_eq(harness_number(report, "calls/cudaGetDeviceCount"), 1);
        ck_assert_double_eq(harness_number(report, "contexts"), 0);
        ck_assert_uint_eq(json_array_size(json_object_get(report, "violations")), 0);
        json_decref(report);
        harness_free(h);
}
END_TEST

static json_t *finding(json_t *findings, const char *what) {
        size_t index;
        json_t *f;

        json_array_foreach(findings, index, f) {
                if (strcmp(json_string_value(json_object_get(f, "what")), what) == 0)
                        return f;
        }
        ck_abort_msg("no finding of %s", what);
        return NULL;
}

START_TEST(test_doctor_for_programs) {
        struct harness *h = start();
        int fd = attach(h, "trainer", MESSAGE_MAP_READ_ONLY);
        json_t *answer, *findings;
        char *text;

        say_mapped(fd, MESSAGE_MAP_READ_ONLY, 1, REFUSED);
        expect_map(h, "trainer", "read-only", 1, REFUSED);
        use_fake_cuda("devices=1");
        text = run_doctor(h, "--json", 1);
        answer = json_loads(text, 0, NULL);
        ck_assert_ptr_nonnull(answer);
        ck_assert_double_eq(harness_number(answer, "schema"), 1);
        ck_assert_double_eq(harness_number(answer, "attention"), 1);
        findings = json_object_get(answer, "findings");
        ck_assert(json_is_false(json_object_get(finding(findings, "daemon"), "attention")));
        ck_assert(json_is_true(json_object_get(finding(findings, "job 1"), "attention")));
        json_decref(answer);
        free(text);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("map-kinds");
        TCase *tcase = tcase_create("map-kinds");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_J14_how_many_slots);
        tcase_add_test(tcase, test_J4_page_locking_is_refused);
        tcase_add_test(tcase, test_jobs_without_a_gpu);
        tcase_add_test(tcase, test_doctor_finds_a_daemon_or_none);
        tcase_add_test(tcase, test_doctor_finds_a_silent_daemon);
        tcase_add_test(tcase, test_doctor_finds_another_version);
        tcase_add_loop_test(tcase, test_J12_what_there_is_of_cuda, 0, sizeof(machines) / sizeof(*machines));
        tcase_add_test(tcase, test_J9_doctor_makes_no_context);
        tcase_add_test(tcase, test_doctor_for_programs);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
