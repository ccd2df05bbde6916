/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* top on a real terminal, tmux, which tells what is to be seen on it, and through pipes.
 *
 * The tmux server is a child of the test like all others, so that the janitor ends it whatever happens, and
 * nobody's tmux meets it. What the screen says is compared with `status` from before and after: what counts
 * only grows, so it must lie between. */

#include "tests/support/run.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
        SOON_MS = 20000,
        SAMPLES = 100000,
        SLOTS = 16,
        WORKERS = 4,
        JOBS = 3,
        REDRAWS = 1000,
        SETTLING = 100, /* redraws before */
        TEXT = 8192,
        RESIDENT_MORE = 256 << 10, /* a redraw may cost a quarter of a kilobyte, that is: nothing */
};

/* ---- a daemon under load ---- */

struct trainer {
        struct pinfeed_job *job;
        useconds_t step_us;
        atomic_bool stop;
        pthread_t thread;
};

static void *train(void *argument) {
        struct trainer *trainer = argument;
        struct pinfeed_batch *batch;

        while (!atomic_load(&trainer->stop)) {
                int r = pinfeed_next_timeout(trainer->job, &batch, 100);

                if (r == 0 || r == -ETIMEDOUT)
                        continue;
                reader_must(r == 1, "%d, %s", r, pinfeed_error(trainer->job));
                usleep(trainer->step_us);
                reader_must(pinfeed_batch_release(batch) == 0, "release");
        }
        return NULL;
}

static void trainer_start(struct trainer *trainer, struct harness *h, const char *name, uint64_t seed,
                          useconds_t step_us) {
        struct pinfeed_attach attach = reader_attach(h, "flowers", 2);
        int r;

        *trainer = (struct trainer){.step_us = step_us};
        attach.name = name;
        attach.seed = seed;
        attach.seed_given = true;
        r = pinfeed_open(&trainer->job, &attach);
        ck_assert_msg(r == 0, "%d, %s", r, pinfeed_error(trainer->job));
        ck_assert_int_eq(pthread_create(&trainer->thread, NULL, train, trainer), 0);
}

static void trainer_stop(struct trainer *trainer) {
        atomic_store(&trainer->stop, true);
        ck_assert_int_eq(pthread_join(trainer->thread, NULL), 0);
        trainer->job = pinfeed_close(trainer->job);
}

static struct harness *start(void) {
        struct harness *h = harness_new();

        harness_set_environment(h, "LC_ALL", "C.UTF-8");
        harness_write_config(
                h,
                "pipelines:\n"
                "  flowers:\n"
                "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 1024, delay_us: 500}\n"
                "    batch_size: 16\n"
                "    slots: %d\n"
                "    workers: %d\n"
                "    reserve: start\n",
                SAMPLES, SLOTS, WORKERS);
        harness_start(h);
        return h;
}

/* ---- a terminal ---- */

struct pane {
        struct harness *harness;
        const char *tmux;
        char socket[HARNESS_PATH_MAX];
        char program[HARNESS_PATH_MAX];
        pid_t server;
};

static const char *find_tmux(void) {
        static const char *const places[] = {"/usr/bin/tmux", "/usr/local/bin/tmux"};

        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
                if (access(places[i], X_OK) == 0)
                        return places[i];
        harness_skip("tmux is not installed");
        return NULL;
}

/* A tmux command of at most four words. Returns what it prints; free it. NULL: it failed. */
static char *pane_ask(struct pane *pane, const char *command, const char *a, const char *b, const char *c,
                      const char *d) {
        const char *const argv[] = {pane->tmux, "-S", pane->socket, command, a, b, c, d, NULL};
        char *output;

        if (harness_run(pane->harness, SOON_MS, &output, argv) == 0)
                return output;
        free(output);
        return NULL;
}

static void pane_do(struct pane *pane, const char *command, const char *a, const char *b, const char *c,
                    const char *d) {
        char *output = pane_ask(pane, command, a, b, c, d);

        ck_assert_msg(output != NULL, "tmux %s %s failed", command, a);
        free(output);
}

static bool pane_answers(struct harness *h, void *context) {
        char *output = pane_ask(context, "show-options", "-s", "exit-empty", NULL, NULL);
        bool answers = output != NULL;

        free(output);
        return answers;
}

/* A shell in a pane of 80 x 24. Nothing of the user's is read. */
static void pane_open(struct pane *pane, struct harness *h, const char *tmux) {
        char config[HARNESS_PATH_MAX];
        FILE *file;

        *pane = (struct pane){.harness = h, .tmux = tmux};
        harness_program("pinfeedctl", pane->program);
        snprintf(pane->socket, sizeof(pane->socket), "%s/tmux", harness_directory(h));
        snprintf(config, sizeof(config), "%s/tmux.conf", harness_directory(h));
        file = fopen(config, "w");
        ck_assert_ptr_nonnull(file);
        fputs("set -s exit-empty off\n", file);
        fclose(file);
        pane->server = harness_spawn(
                h, NULL, (const char *const[]){tmux, "-S", pane->socket, "-f", config, "-D", NULL});
        harness_wait(h, "tmux", pane_answers, pane, SOON_MS);
        pane_do(pane, "new-session", "-dx80", "-y24", "/bin/sh -i", NULL);
}

static void pane_close(struct pane *pane) {
        ck_assert_int_eq(kill(pane->server, SIGTERM), 0);
        harness_join(pane->harness, pane->server, SOON_MS);
}

static void pane_type(struct pane *pane, const char *text, const char *key) {
        pane_do(pane, "send-keys", text, key, NULL, NULL);
}

/* Types a command that runs top, and leaves its exit code on the screen and the terminal's modes in a file.
 * What is typed is no output, and looks different. */
static void pane_start(struct pane *pane) {
        char line[2 * HARNESS_PATH_MAX];

        snprintf(line, sizeof(line),
                 "clear; %s top --interval 0.2; echo code $?; stty -a >%s/after; echo no''ted", pane->program,
                 harness_directory(pane->harness));
        pane_type(pane, line, "Enter");
}

static char *pane_text(struct pane *pane) {
        char *text = pane_ask(pane, "capture-pane", "-p", NULL, NULL, NULL);

        ck_assert_ptr_nonnull(text);
        return text;
}

struct expected {
        struct pane *pane;
        const char *words;
};

static bool pane_has(struct harness *h, void *context) {
        struct expected *expected = context;
        char *text = pane_text(expected->pane);
        bool has = strstr(text, expected->words) != NULL;

        free(text);
        return has;
}

static void pane_wait(struct pane *pane, const char *words) {
        harness_wait(pane->harness, words, pane_has, &(struct expected){pane, words}, SOON_MS);
}

/* "1 0": the cursor is seen, and the other screen is not shown. */
static bool pane_is(struct harness *h, void *context) {
        struct expected *expected = context;
        char *text = pane_ask(expected->pane, "display-message", "-p", "#{cursor_flag} #{alternate_on}", NULL,
                              NULL);
        bool is = text && strncmp(text, expected->words, strlen(expected->words)) == 0;

        free(text);
        return is;
}

static void pane_wait_mode(struct pane *pane, const char *mode) {
        harness_wait(pane->harness, "the terminal's mode", pane_is, &(struct expected){pane, mode}, SOON_MS);
}

static const char *const taken = "0 1", *const given_back = "1 0";

/* ---- what the screen says ---- */

static json_t *job_named(json_t *status, const char *name) {
        char path[64];
        json_t *job;

        snprintf(path, sizeof(path), "jobs/%s", name);
        job = harness_member(status, path);
        ck_assert_msg(job != NULL, "no job %s", name);
        return job;
}

static double percent_of(json_t *status, const char *name) {
        return 100 * harness_number(job_named(status, name), "row") / SAMPLES;
}

/* A job's row of the table has its number, its name and where it is. */
static void check_job(const char *text, const char *name, json_t *before, json_t *after) {
        char begin[64], *at, *percent;
        double place;

        snprintf(begin, sizeof(begin), "\n%4.0f %s%s ", harness_number(job_named(after, name), "id"),
                 strstr(text, "\n job  name") ? " " : "", name);
        at = strstr(text, begin);
        ck_assert_msg(at != NULL, "no \"%s\" in:\n%s", begin + 1, text);
        percent = strchr(at, '%');
        ck_assert_ptr_nonnull(percent);
        while (percent[-1] >= '0' && percent[-1] <= '9')
                percent--;
        place = strtod(percent, NULL);
        ck_assert_msg(place >= percent_of(before, name) - 1 && place <= percent_of(after, name) + 1,
                      "job %s is at %.0f %%, and was between %.1f %% and %.1f %%:\n%s", name, place,
                      percent_of(before, name), percent_of(after, name), text);
}

static void check_slots(const char *text) {
        unsigned all, leased, ready, filling, left;
        const char *at = strstr(text, " slots: ");

        ck_assert_msg(at != NULL, "no slots in:\n%s", text);
        while (at[-1] != ' ')
                at--;
        ck_assert_int_eq(sscanf(at, "%u slots: %u leased, %u ready, %u filling, %u free", &all, &leased,
                                &ready, &filling, &left),
                         5);
        ck_assert_uint_eq(all, SLOTS);
        ck_assert_uint_eq(leased + ready + filling + left, SLOTS);
}

static const char *const names[JOBS] = {"quick", "slow", "alone"};

static void check_screen(struct pane *pane) {
        json_t *before = harness_status(pane->harness), *after;
        char head[64], *text;

        harness_wait_number(pane->harness, "uptime_seconds", harness_number(before, "uptime_seconds") + 0.6,
                            SOON_MS); /* longer than the interval: what is shown is from after `before` */
        text = pane_text(pane);
        after = harness_status(pane->harness);
        snprintf(head, sizeof(head), "pinfeedd %s, pid %.0f ",
                 json_string_value(harness_member(after, "version")), harness_number(after, "pid"));
        ck_assert_msg(strncmp(text, head, strlen(head)) == 0, "no \"%s\" in:\n%s", head, text);
        harness_expect_words(text, "\nflowers ");
        harness_expect_words(text, " of 4 busy");
        for (int i = 0; i < JOBS; i++)
                check_job(text, names[i], before, after);
        check_slots(text);
        json_decref(before);
        json_decref(after);
        free(text);
}

START_TEST(test_screen_says_what_status_says) {
        const char *tmux = find_tmux();
        struct trainer trainers[JOBS];
        struct harness *h;
        struct pane pane;

        if (!tmux)
                return;
        h = start();
        pane_open(&pane, h, tmux);
        trainer_start(&trainers[0], h, names[0], 0, 1000);
        trainer_start(&trainers[1], h, names[1], 0, 30000);
        trainer_start(&trainers[2], h, names[2], 5, 5000);
        pane_start(&pane);
        pane_wait(&pane, " alone ");
        pane_wait_mode(&pane, taken);
        check_screen(&pane);
        pane_do(&pane, "resize-window", "-x200", "-y50", NULL, NULL);
        pane_wait(&pane, "data waits");
        check_screen(&pane);
        pane_do(&pane, "resize-window", "-x40", "-y10", NULL, NULL);
        pane_wait(&pane, "\npipeline              delivered/s shared");
        pane_type(&pane, "q", NULL);
        pane_wait_mode(&pane, given_back);
        for (int i = 0; i < JOBS; i++)
                trainer_stop(&trainers[i]);
        pane_close(&pane);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- daemons that are silent, end and come back ---- */

START_TEST(test_daemon_comes_and_goes) {
        const char *tmux = find_tmux();
        struct harness *h;
        struct pane pane;
        char head[64];

        if (!tmux)
                return;
        h = start();
        pane_open(&pane, h, tmux);
        pane_start(&pane);
        pane_wait(&pane, "\nflowers ");
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGSTOP), 0);
        pane_wait(&pane, "no answer for 1 s");
        pane_wait(&pane, "\nflowers "); /* what was known last */
        ck_assert_int_eq(kill(harness_daemon_pid(h), SIGCONT), 0);
        pane_wait(&pane, "\npipeline "); /* below the head at once, without a notice in between */
        harness_kill(h);
        snprintf(head, sizeof(head), "has ended ");
        pane_wait(&pane, head);
        harness_start(h);
        snprintf(head, sizeof(head), "pid %d ", (int)harness_daemon_pid(h));
        pane_wait(&pane, head);
        pane_type(&pane, "q", NULL);
        pane_wait_mode(&pane, given_back);
        pane_close(&pane);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- ways out ---- */

static char *read_file(struct harness *h, const char *name) {
        char path[HARNESS_PATH_MAX], *text = calloc(1, TEXT);
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", harness_directory(h), name);
        file = fopen(path, "r");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_gt(fread(text, 1, TEXT - 1, file), 0);
        fclose(file);
        return text;
}

/* The terminal's modes are what they were, and the shell's line is seen again. */
static void check_given_back(struct pane *pane, const char *code) {
        char *before, *after;

        pane_wait(pane, code);
        pane_wait(pane, "noted\n");
        pane_wait_mode(pane, given_back);
        before = read_file(pane->harness, "before");
        after = read_file(pane->harness, "after");
        ck_assert_str_eq(before, after);
        free(before);
        free(after);
}

static pid_t find_top(struct pane *pane) {
        char *text = pane_ask(pane, "display-message", "-p", "#{pane_pid}", NULL, NULL), path[64];
        int shell, pid;
        FILE *file;

        ck_assert_ptr_nonnull(text);
        shell = atoi(text);
        free(text);
        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", shell, shell);
        file = fopen(path, "r");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
        fclose(file);
        return pid;
}

/* Keeps the terminal's modes under that name. */
static void pane_note_modes(struct pane *pane, const char *name) {
        char command[HARNESS_PATH_MAX + 32];

        snprintf(command, sizeof(command), "clear; stty -a >%s/%s; echo no''ted",
                 harness_directory(pane->harness), name);
        pane_type(pane, command, "Enter");
        pane_wait(pane, "noted\n");
}

START_TEST(test_ways_out) {
        const char *tmux = find_tmux();
        struct harness *h;
        struct pane pane;

        if (!tmux)
                return;
        h = start();
        pane_open(&pane, h, tmux);
        pane_note_modes(&pane, "before");
        pane_start(&pane);
        pane_wait_mode(&pane, taken);
        pane_type(&pane, "q", NULL);
        check_given_back(&pane, "code 0\n");
        pane_start(&pane);
        pane_wait_mode(&pane, taken);
        pane_type(&pane, "C-c", NULL);
        check_given_back(&pane, "code 130\n");
        pane_start(&pane);
        pane_wait_mode(&pane, taken);
        pane_type(&pane, "C-z", NULL);
        check_given_back(&pane, "code 147\n"); /* stopped: the shell goes on */
        pane_type(&pane, "fg", "Enter");
        pane_wait_mode(&pane, taken);
        pane_wait(&pane, "\nflowers ");
        ck_assert_int_eq(kill(find_top(&pane), SIGTERM), 0);
        pane_wait_mode(&pane, given_back);
        pane_note_modes(&pane, "after");
        check_given_back(&pane, "noted\n");
        pane_close(&pane);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* One that cannot place a cursor gets lines, and Ctrl-C ends them as it ends any command. */
START_TEST(test_dumb_terminal) {
        const char *tmux = find_tmux();
        char line[HARNESS_PATH_MAX + 64];
        struct harness *h;
        struct pane pane;

        if (!tmux)
                return;
        h = start();
        pane_open(&pane, h, tmux);
        snprintf(line, sizeof(line), "clear; TERM=dumb %s top --interval 0.2", pane.program);
        pane_type(&pane, line, "Enter");
        pane_wait(&pane, " flowers ready prepared=0 ");
        pane_wait_mode(&pane, given_back);
        pane_type(&pane, "C-c", NULL);
        pane_note_modes(&pane, "after");
        pane_close(&pane);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_memory_is_flat) {
        const char *tmux = find_tmux();
        uint64_t before = 0;
        struct harness *h;
        struct pane pane;
        pid_t pid;

        if (!tmux)
                return;
        h = start();
        pane_open(&pane, h, tmux);
        pane_start(&pane);
        pane_wait(&pane, "\nflowers ");
        pid = find_top(&pane);
        for (int i = 0; i < REDRAWS + SETTLING; i++) {
                if (i == SETTLING)
                        before = harness_resident_bytes(pid);
                ck_assert_int_eq(kill(pid, SIGWINCH), 0);
                usleep(1000);
        }
        if (!READER_SANITIZED)
                ck_assert_uint_le(harness_resident_bytes(pid), before + RESIDENT_MORE);
        ck_assert_uint_le(harness_descriptors(pid), 6);
        pane_type(&pane, "q", NULL);
        pane_wait_mode(&pane, given_back);
        pane_close(&pane);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- without a terminal ---- */

/* What a line of the shell's prints, which must end with that code. */
static char *run_shell(struct harness *h, int code, const char *arguments) {
        char line[2 * HARNESS_PATH_MAX], program[HARNESS_PATH_MAX], *output;
        int r;

        snprintf(line, sizeof(line), "%s top %s", harness_program("pinfeedctl", program), arguments);
        r = harness_run(h, SOON_MS, &output, (const char *const[]){"/bin/sh", "-c", line, NULL});
        ck_assert_msg(r == code, "%s: exit code %d and\n%s", line, r, output);
        return output;
}

static void expect_no_sequences(const char *text) {
        ck_assert_msg(strchr(text, '\033') == NULL, "escape sequences in:\n%s", text);
}

START_TEST(test_pipes) {
        struct harness *h = start();
        char *text;

        text = run_shell(h, 0, "--interval 0.2 | head -n 3");
        expect_no_sequences(text);
        ck_assert_ptr_nonnull(strstr(text, " flowers ready prepared=0 delivered=0 "));
        ck_assert_ptr_nonnull(strstr(text, " slots=16 leased=0 ready=0 filling=0 free=16 held_back_by="));
        free(text);
        text = run_shell(h, 0, "--once --interval 0.2");
        expect_no_sequences(text);
        harness_expect_words(text, "\nflowers ");
        harness_expect_words(text, "16 slots: 0 leased, 0 ready, 0 filling, 16 free");
        free(text);
        text = run_shell(h, 2, "--interval 0.1");
        harness_expect_words(text, "--interval: expected seconds from 0.2 to 60, got \"0.1\"");
        free(text);
        harness_stop(h, SIGTERM, 0);
        text = run_shell(h, 1, "--once");
        harness_expect_words(text, "no pinfeedd listens on ");
        free(text);
        text = run_shell(h, 0, "--interval 0.2 | head -n 1");
        harness_expect_words(text, " - no pinfeedd listens on ");
        harness_expect_words(text, "; waiting for one");
        free(text);
        harness_free(h);
}
END_TEST

static Suite *make_suite(void) {
        Suite *suite = suite_create("top");
        TCase *tcase = tcase_create("top");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_screen_says_what_status_says);
        tcase_add_test(tcase, test_daemon_comes_and_goes);
        tcase_add_test(tcase, test_ways_out);
        tcase_add_test(tcase, test_dumb_terminal);
        tcase_add_test(tcase, test_memory_is_flat);
        tcase_add_test(tcase, test_pipes);
        suite_add_tcase(suite, tcase);
        return suite;
}

int main(void) {
        return run_suite(make_suite());
}
