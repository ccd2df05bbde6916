/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* pinfeedctl verify: what it lists, what it clears, what it leaves alone, and who may go away meanwhile.
 *
 * A condemned sample that has become good is made with `die_times`: it kills the three workers that condemn
 * it, and nobody after them. */

#include "tests/support/run.h"
#include "tests/support/terminal.h"
#include "tests/system/follower.h"
#include "tests/system/freezer.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        SAMPLES = 400,
        BAD = 100,
        LISTED_MAX = 1000,
        VERIFY_MS = 60000,
};

/* ---- asking ---- */

/* As `pinfeedctl verify PIPELINE --json` has it; its exit code is asserted. */
static json_t *verify(struct harness *h, const char *pipeline, int expected) {
        char *output;
        int r = harness_run(h, VERIFY_MS * harness_slowdown(), &output,
                            (const char *[]){"pinfeedctl", "verify", pipeline, "--json", NULL});
        json_t *json = json_loads(output, JSON_DISABLE_EOF_CHECK, NULL);

        ck_assert_msg(r == expected && json, "verify: %d, %s", r, output);
        free(output);
        return json;
}

static void expect_numbers(json_t *answer, unsigned samples, unsigned bad, unsigned condemned,
                           unsigned cleared) {
        ck_assert_double_eq(harness_number(answer, "samples"), samples);
        ck_assert_double_eq(harness_number(answer, "bad"), bad);
        ck_assert_double_eq(harness_number(answer, "condemned"), condemned);
        ck_assert_double_eq(harness_number(answer, "cleared"), cleared);
        ck_assert_uint_eq(json_array_size(json_object_get(answer, "list")),
                          bad < LISTED_MAX ? bad : LISTED_MAX);
}

static void expect_entry(json_t *answer, size_t place, uint64_t sample, const char *words, bool condemned) {
        json_t *entry = json_array_get(json_object_get(answer, "list"), place);

        ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(entry, "sample")), sample);
        harness_expect_words(json_string_value(json_object_get(entry, "text")), words);
        ck_assert(json_is_boolean(json_object_get(entry, "condemned")));
        ck_assert(json_is_true(json_object_get(entry, "condemned")) == condemned);
}

/* By hand, so that it can be left alone. */
static FILE *ask(struct harness *h, const char *pipeline) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        FILE *stream;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock", harness_runtime_directory(h));
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_gt(dprintf(fd, "{\"command\": \"verify\", \"pipeline\": \"%s\"}\n", pipeline), 0);
        stream = fdopen(fd, "r");
        ck_assert_ptr_nonnull(stream);
        return stream;
}

/* The next line; json_decref it. */
static json_t *hear(FILE *stream) {
        char *line = NULL;
        size_t size = 0;
        json_t *json;

        ck_assert_int_gt(getline(&line, &size, stream), 0);
        json = json_loads(line, 0, NULL);
        ck_assert_msg(json_is_object(json), "%s", line);
        free(line);
        return json;
}

static bool is_trying(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        json_t *done = harness_member(status, "pipelines/p/verifying/samples");
        bool is = json_integer_value(done) > 0;

        json_decref(status);
        return is;
}

static bool is_over(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool is = harness_member(status, "pipelines/p/verifying") == NULL;

        json_decref(status);
        return is;
}

static void wait_trying(struct harness *h) {
        harness_wait(h, "a verification", is_trying, NULL, SOON_MS);
}

static bool workers_are(struct harness *h, void *context) {
        pid_t pids[16];

        return harness_worker_pids(h, pids, 16) == *(size_t *)context;
}

static void wait_processes(struct harness *h, size_t n) {
        harness_wait(h, "the right number of worker processes", workers_are, &n, SOON_MS);
}

/* A connection that has just been closed may still be one of them. */
static bool descriptors_are(struct harness *h, void *context) {
        return harness_descriptors(harness_daemon_pid(h)) <= *(size_t *)context;
}

/* Files of verdicts in the state directory; none also when there is no directory. */
static unsigned count_verdict_files(struct harness *h) {
        char path[HARNESS_PATH_MAX];
        struct dirent *entry;
        unsigned n = 0;
        DIR *directory;

        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        directory = opendir(path);
        while (directory && (entry = readdir(directory)))
                n += fnmatch("verdicts-*.json", entry->d_name, 0) == 0;
        if (directory)
                closedir(directory);
        return n;
}

/* ---- what is listed ---- */

enum {
        PHOTOS = 300,
};

/* Damaged in the last rows only, in the middle, and no image at all. */
static const unsigned damaged[] = {7, 123, 256};

static void path_of(struct harness *h, unsigned image, char path[HARNESS_PATH_MAX]) {
        snprintf(path, HARNESS_PATH_MAX, "%s/images/class_%u/%05u.jpg", harness_directory(h), image / 100,
                 image % 100);
}

static void damage(struct harness *h) {
        char path[HARNESS_PATH_MAX];
        struct stat facts;
        FILE *file;

        path_of(h, damaged[0], path);
        ck_assert_int_eq(stat(path, &facts), 0);
        ck_assert_int_eq(truncate(path, facts.st_size - facts.st_size / 20), 0);
        path_of(h, damaged[1], path);
        ck_assert_int_eq(stat(path, &facts), 0);
        ck_assert_int_eq(truncate(path, facts.st_size / 3), 0);
        path_of(h, damaged[2], path);
        file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs("<html>404</html>", file);
        fclose(file);
}

/* The middle of each picture: rows 48 to 80 of 128. */
static struct harness *start_photos(void) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];
        char *output;

        keep_state(h);
        snprintf(path, sizeof(path), "%s/images", harness_directory(h));
        if (harness_run(h, 20000 * harness_slowdown(), &output,
                        (const char *[]){"draw-images", path, "--classes", "3", "--per-class", "100",
                                         "--size", "64x128", NULL}) != 0)
                ck_abort_msg("draw-images: %s", output);
        free(output);
        damage(h);
        harness_write_config(h,
                             "pipelines:\n"
                             "  p:\n"
                             "    source: {type: imagefolder, path: %s/images}\n"
                             "    transforms: [{center_crop: {size: 32}}]\n"
                             "    batch_size: 10\n"
                             "    max_errors: 0.1\n"
                             "    workers: 2\n"
                             "  nowhere:\n"
                             "    source: {type: imagefolder, path: %s/nowhere}\n"
                             "    transforms: [{center_crop: {size: 32}}]\n"
                             "    batch_size: 10\n",
                             harness_directory(h), harness_directory(h));
        harness_start(h);
        return h;
}

START_TEST(test_lists_damaged_files) {
        struct harness *h = start_photos();
        json_t *answer = verify(h, "p", 1);
        char *output;
        int r;

        expect_numbers(answer, PHOTOS, 3, 0, 0);
        expect_entry(answer, 0, damaged[0], "the JPEG is damaged: truncated", false);
        expect_entry(answer, 1, damaged[1], "the JPEG is damaged: truncated", false);
        expect_entry(answer, 2, damaged[2], "no known image format", false);
        ck_assert_str_eq(json_string_value(harness_member(answer, "list/0/file")), "class_0/00007.jpg");
        json_decref(answer);

        /* the crop leaves the damaged rows out: what verify tells the pipeline does not see */
        r = harness_run(h, VERIFY_MS, &output, (const char *[]){"pinfeedctl", "digest", "p", NULL});
        ck_assert_int_eq(r, 0);
        harness_expect_words(output, "  2 replaced\n");
        free(output);

        r = harness_run(h, VERIFY_MS, &output, (const char *[]){"pinfeedctl", "verify", "p", NULL});
        ck_assert_int_eq(r, 1);
        harness_expect_words(output, "  class_2/00056.jpg  no known image format\n300 samples, 3 bad\n");
        free(output);
        finish(h);
}
END_TEST

START_TEST(test_lists_what_cannot_be_read) {
        struct harness *h = start_photos();
        char path[HARNESS_PATH_MAX];
        json_t *answer = verify(h, "p", 1); /* the index is there from now on */

        json_decref(answer);
        path_of(h, 50, path);
        ck_assert_int_eq(remove(path), 0);
        answer = verify(h, "p", 1);
        expect_numbers(answer, PHOTOS, 4, 0, 0);
        expect_entry(answer, 1, 50, "cannot open it: No such file or directory", false);
        json_decref(answer);
        finish(h);
}
END_TEST

START_TEST(test_passes_on_why_it_cannot_begin) {
        struct harness *h = start_photos();
        char *output;
        int r;

        r = harness_run(h, VERIFY_MS, &output, (const char *[]){"pinfeedctl", "verify", "nowhere", NULL});
        ck_assert_int_eq(r, 1);
        harness_expect_words(output, "pinfeedctl: pipeline nowhere");
        harness_expect_words(output, "No such file or directory");
        free(output);
        r = harness_run(h, VERIFY_MS, &output, (const char *[]){"pinfeedctl", "verify", "q", NULL});
        ck_assert_int_eq(r, 1);
        ck_assert_str_eq(output, "pinfeedctl: no pipeline \"q\"; status lists those there are\n");
        free(output);
        finish(h);
}
END_TEST

START_TEST(test_all_good) {
        struct harness *h = start(SAMPLES, 2, "mode: ramp, bytes: 100", "");
        const char *directory = harness_runtime_directory(h);
        char *output;
        int r = harness_run(h, VERIFY_MS, &output,
                            (const char *[]){"pinfeedctl", "-d", directory, "verify", "p", NULL});

        ck_assert_int_eq(r, 0);
        ck_assert_str_eq(output, "400 samples, 0 bad\n");
        free(output);
        ck_assert_uint_eq(number_of(h, "rows_prepared"), 0);
        finish(h);
}
END_TEST

static const struct {
        const char *how, *words;
} ways[] = {
        {"segv", "kills its worker: signal 11"},
        {"exit", "kills its worker: exit status 3"},
        {"hang", "takes longer than sample_timeout (0.5 s)"},
        {"raise", "sample 100 raises"},
        {"read_error", "cannot read it: Input/output error, at the last of 4 tries"},
};

START_TEST(test_lists_samples_that_kill) {
        struct harness *h;
        char source[128];
        json_t *answer;

        snprintf(source, sizeof(source), "mode: die, die_sample: 100, die_every: 250, die_how: %s",
                 ways[_i].how);
        /* a read error is tried for more than a second */
        h = start(SAMPLES, 2, source, strcmp(ways[_i].how, "hang") ? "" : "    sample_timeout: 0.5\n");
        answer = verify(h, "p", 1);
        expect_numbers(answer, SAMPLES, 2, 0, 0);
        expect_entry(answer, 0, BAD, ways[_i].words, false);
        ck_assert_int_eq(json_integer_value(harness_member(answer, "list/1/sample")), 350);
        json_decref(answer);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        ck_assert_uint_eq(count_verdict_files(h), 0);
        finish(h);
}
END_TEST

/* It dies once, of nothing that stays: not listed. */
START_TEST(test_spares_a_sample_that_dies_once) {
        struct harness *h = harness_new();
        char source[HARNESS_PATH_MAX + 160];
        json_t *answer;

        keep_state(h);
        snprintf(source, sizeof(source),
                 "mode: die, die_sample: 100, die_how: segv, die_times: 1, die_counter: %s/met",
                 harness_directory(h));
        write_config(h, SAMPLES, 2, source, "");
        harness_start(h);
        answer = verify(h, "p", 0);
        expect_numbers(answer, SAMPLES, 0, 0, 0);
        json_decref(answer);
        finish(h);
}
END_TEST

/* Every one of them is bad, with a text as long as texts may be, and nobody reads the list for a while: more
 * than a socket holds. */
START_TEST(test_waits_for_its_reader) {
        struct harness *h = start(1500, 2, "mode: die, die_every: 1, die_how: raise_ugly", "");
        FILE *stream = ask(h, "p");
        unsigned listed = 0;
        json_t *line;

        wait_trying(h);
        usleep(NOISE_MS * 1000);
        while (line = hear(stream), !json_is_true(json_object_get(line, "done"))) {
                json_t *sample = json_object_get(line, "sample");

                if (sample)
                        ck_assert_int_eq(json_integer_value(sample), listed++);
                json_decref(line);
        }
        ck_assert_uint_eq(listed, LISTED_MAX);
        ck_assert_double_eq(harness_number(line, "bad"), 1500);
        json_decref(line);
        fclose(stream);
        finish(h);
}
END_TEST

/* ---- condemned ones ---- */

static bool is_kept(struct harness *h, void *context) {
        return count_verdict_files(h) == 1;
}

static void condemn(struct harness *h) {
        struct follower follower = follower_open(h, 0, 64, BAD);

        follow_to(&follower, 200);
        ck_assert_uint_eq(follower.replaced, 1);
        reader_close(&follower.reader);
        expect_condemned(h, BAD);
        harness_wait(h, "a file of verdicts", is_kept, NULL, SOON_MS);
}

START_TEST(test_condemned_stays_while_it_kills) {
        struct harness *h = start(SAMPLES, 2, "mode: die, die_sample: 100, die_how: segv", "");
        json_t *answer;

        condemn(h);
        answer = verify(h, "p", 1);
        expect_numbers(answer, SAMPLES, 1, 1, 0);
        expect_entry(answer, 0, BAD, "kills its worker: signal 11", true);
        json_decref(answer);
        expect_condemned(h, BAD);
        ck_assert_uint_eq(count_verdict_files(h), 1);
        finish(h);
}
END_TEST

static struct harness *start_recovering(const char *more) {
        struct harness *h = harness_new();
        char source[HARNESS_PATH_MAX + 160];

        keep_state(h);
        snprintf(source, sizeof(source),
                 "mode: die, die_sample: 100, die_how: segv, die_times: %d, die_counter: %s/met", DEATHS,
                 harness_directory(h));
        write_config(h, SAMPLES, 2, source, more);
        harness_start(h);
        return h;
}

/* Nobody reads: the pipeline starts anew with the shorter list. */
START_TEST(test_clears_what_is_good) {
        struct harness *h = start_recovering(_i ? "    reserve: start\n" : "");
        struct follower follower;
        uint64_t prepared;
        json_t *answer;

        condemn(h);
        prepared = number_of(h, "rows_prepared");
        answer = verify(h, "p", 0);
        expect_numbers(answer, SAMPLES, 0, 0, 1);
        ck_assert(json_is_true(json_object_get(answer, "restarted")));
        json_decref(answer);
        answer = verify(h, "p", 0); /* also while the old run is still being cleared away */
        expect_numbers(answer, SAMPLES, 0, 0, 0);
        json_decref(answer);
        ck_assert_uint_eq(count_verdict_files(h), 0);
        follower = follower_open(h, 0, 64, UINT64_MAX);
        follow_to(&follower, 200);
        ck_assert_uint_eq(follower.replaced, 0);
        ck_assert_uint_eq(length_of(h, "condemned"), 0);
        ck_assert_uint_gt(number_of(h, "rows_prepared"), prepared); /* of both runs */
        reader_close(&follower.reader);
        finish(h);
}
END_TEST

/* Jobs read: their rows stay as they are, also those made by workers that come later, and those of jobs that
 * come later. The run ends with the last of them. */
START_TEST(test_lifts_under_a_job) {
        struct harness *h = start_recovering("");
        struct follower job, later;
        json_t *answer;
        pid_t pids[8];

        condemn(h);
        job = follower_open(h, 0, 64, BAD);
        answer = verify(h, "p", 0);
        expect_numbers(answer, SAMPLES, 0, 0, 1);
        ck_assert(json_is_false(json_object_get(answer, "restarted")));
        json_decref(answer);
        ck_assert_uint_eq(count_verdict_files(h), 0);
        expect_condemned(h, BAD);

        for (size_t n = harness_worker_pids(h, pids, 8); n > 0; n--)
                kill(pids[n - 1], SIGKILL);
        later = follower_open(h, 0, 0, BAD);
        for (int i = 0; i < 2 * SAMPLES / BATCH; i++) {
                follow(&job);
                follow(&later);
        }
        ck_assert_uint_eq(job.replaced, 2);
        ck_assert_uint_eq(later.replaced, 2);
        reader_close(&job.reader);
        reader_close(&later.reader);

        job = follower_open(h, 0, 0, UINT64_MAX);
        follow_to(&job, 200);
        ck_assert_uint_eq(job.replaced, 0);
        reader_close(&job.reader);
        finish(h);
}
END_TEST

START_TEST(test_says_when_it_cannot_clear) {
        struct harness *h = start_recovering("");
        char path[HARNESS_PATH_MAX], *output;
        int r;

        condemn(h);
        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        ck_assert_int_eq(chmod(path, 0777), 0); /* others may write it: it is not trusted */
        r = harness_run(h, VERIFY_MS, &output, (const char *[]){"pinfeedctl", "verify", "p", NULL});
        ck_assert_int_eq(r, 1);
        harness_expect_words(output, "400 samples, 0 bad, 1 condemned\n");
        harness_expect_words(output, "the list of condemned samples could not be written: ");
        free(output);
        ck_assert_uint_eq(count_verdict_files(h), 1);
        finish(h);
}
END_TEST

/* ---- meanwhile ---- */

#define SLOW "mode: slow, bytes: 64, delay_us: 2000"

START_TEST(test_one_at_a_time_and_status_answers) {
        struct harness *h = start(4000, 2, SLOW, "");
        FILE *stream = ask(h, "p");
        json_t *answer, *line;
        double before = 0;
        uint64_t last;

        wait_trying(h);
        answer = harness_control(h, "{\"command\": \"verify\", \"pipeline\": \"p\"}");
        harness_expect_words(json_string_value(json_object_get(answer, "error")),
                             "pipeline p is being verified");
        json_decref(answer);
        last = clock_ns();
        while (line = hear(stream), !json_is_true(json_object_get(line, "done"))) {
                double now = harness_number(line, "samples");

                ck_assert(now >= before);
                before = now;
                ck_assert_uint_lt(clock_ns() - last, 1000 * NS_PER_MS * (uint64_t)harness_slowdown());
                last = clock_ns();
                json_decref(line);
                json_decref(harness_status(h));
        }
        ck_assert_double_eq(harness_number(line, "samples"), 4000);
        json_decref(line);
        fclose(stream);
        finish(h);
}
END_TEST

START_TEST(test_ends_with_its_client) {
        struct harness *h = start(100000, 2, SLOW, "");
        size_t descriptors;
        FILE *stream;

        json_decref(harness_status(h));
        stream = ask(h, "p");
        wait_trying(h);
        wait_processes(h, 4); /* two of the pipeline, two that verify */
        fclose(stream);
        harness_wait(h, "the end of the verification", is_over, NULL, SOON_MS);
        wait_processes(h, 2);
        descriptors = harness_descriptors(harness_daemon_pid(h));
        stream = ask(h, "p"); /* nothing is in the way of another one */
        wait_trying(h);
        fclose(stream);
        harness_wait(h, "the end of the verification", is_over, NULL, SOON_MS);
        wait_processes(h, 2);
        harness_wait(h, "the daemon's descriptors as before", descriptors_are, &descriptors, SOON_MS);
        finish(h);
}
END_TEST

START_TEST(test_ends_with_the_daemon) {
        struct harness *h = start(100000, 2, SLOW, "");
        FILE *stream = ask(h, "p");

        wait_trying(h);
        harness_stop(h, SIGTERM, 0);
        fclose(stream);
        harness_free(h);
}
END_TEST

/* A client that has said all it will ever say still gets its answer. */
START_TEST(test_half_a_connection_is_enough) {
        struct harness *h = start(2000, 2, SLOW, "");
        FILE *stream = ask(h, "p");
        json_t *line;

        shutdown(fileno(stream), SHUT_WR);
        while (line = hear(stream), !json_is_true(json_object_get(line, "done")))
                json_decref(line);
        ck_assert_double_eq(harness_number(line, "samples"), 2000);
        json_decref(line);
        fclose(stream);
        finish(h);
}
END_TEST

/* Somebody kills its workers: all samples are judged nevertheless, and none of them is to blame. */
START_TEST(test_outlives_its_workers) {
        struct harness *h = start(2000, 2, SLOW, "");
        FILE *stream = ask(h, "p");
        pid_t pids[8];
        json_t *line;

        for (int round = 0; round < 3; round++) {
                wait_trying(h);
                wait_processes(h, 4);
                for (size_t n = harness_worker_pids(h, pids, 8); n > 0; n--)
                        kill(pids[n - 1], SIGKILL);
                usleep(NOISE_MS * 1000 / 2);
        }
        while (line = hear(stream), !json_is_true(json_object_get(line, "done")))
                json_decref(line);
        ck_assert_msg(!json_object_get(line, "error"), "%s",
                      json_string_value(json_object_get(line, "error")));
        ck_assert_double_eq(harness_number(line, "samples"), 2000);
        ck_assert_double_eq(harness_number(line, "bad"), 0);
        json_decref(line);
        fclose(stream);
        finish(h);
}
END_TEST

static void verify_here(void *context) {
        char path[HARNESS_PATH_MAX];

        dup2(STDOUT_FILENO, STDERR_FILENO);
        setenv("PINFEED_RUNTIME_DIR", harness_runtime_directory(context), 1);
        setenv("LC_ALL", "C", 1);
        execl(harness_program("pinfeedctl", path), "pinfeedctl", "verify", "p", NULL);
        _exit(126);
}

/* On a terminal: somewhere on the way, and what is left once that can be told. */
START_TEST(test_shows_how_far_it_is) {
        struct harness *h = start(2000, 2, SLOW, "");
        char *text = terminal_run(80, verify_here, h);

        harness_expect_words(text, "#####");
        harness_expect_words(text, " of 2,000, 0 bad");
        harness_expect_words(text, " s left");
        harness_expect_words(text, "2,000 samples, 0 bad\n");
        free(text);
        finish(h);
}
END_TEST

/* A process that is not a worker of the pipeline: those are in status, which is what they are told by. */
static pid_t find_verifier(struct harness *h) {
        json_t *status = harness_status(h), *worker;
        pid_t pids[8], found = 0;
        size_t i;

        for (size_t n = harness_worker_pids(h, pids, 8); n > 0; n--) {
                bool is_listed = false;

                json_array_foreach(json_object_get(status, "workers"), i, worker) is_listed |=
                        (pid_t)harness_number(worker, "pid") == pids[n - 1];
                if (!is_listed)
                        found = pids[n - 1];
        }
        json_decref(status);
        ck_assert_int_ne(found, 0);
        return found;
}

/* One of its workers hangs so that no signal ends it: its samples are tried by others, and nobody waits for
 * it at the end. */
START_TEST(test_does_not_wait_for_the_undead) {
        struct freezer freezer;
        struct harness *h;
        FILE *stream;
        json_t *line;

        if (!freezer_init(&freezer))
                return;
        h = start(2000, 2, SLOW, "    sample_timeout: 0.5\n");
        stream = ask(h, "p");
        wait_trying(h);
        wait_processes(h, 4);
        freezer_add(&freezer, find_verifier(h));
        freezer_set(&freezer, true);
        while (line = hear(stream), !json_is_true(json_object_get(line, "done")))
                json_decref(line);
        ck_assert_double_eq(harness_number(line, "samples"), 2000);
        ck_assert_double_eq(harness_number(line, "bad"), 0);
        ck_assert(harness_log_contains(h, "was killed and has not ended"));
        json_decref(line);
        freezer_set(&freezer, false);
        fclose(stream);
        finish(h);
        freezer_deinit(&freezer);
}
END_TEST

START_TEST(test_jobs_go_on) {
        struct harness *h = start(4000, 2, SLOW, "");
        struct follower job = follower_open(h, 0, 0, UINT64_MAX);
        FILE *stream = ask(h, "p");
        unsigned rows = 0;
        json_t *line;

        while (is_over(h, NULL))
                follow(&job);
        while (!is_over(h, NULL)) {
                follow(&job);
                rows += BATCH;
        }
        /* half of it, sleeping samples cost no CPU; a tenth is what may not be undercut */
        ck_assert_uint_gt(rows, 400);
        expect_gap_below(&job, 1000);
        while (line = hear(stream), !json_is_true(json_object_get(line, "done")))
                json_decref(line);
        ck_assert_double_eq(harness_number(line, "bad"), 0);
        json_decref(line);
        fclose(stream);
        reader_close(&job.reader);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("verify");
        TCase *tcase = tcase_create("verify");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_lists_damaged_files);
        tcase_add_test(tcase, test_lists_what_cannot_be_read);
        tcase_add_test(tcase, test_passes_on_why_it_cannot_begin);
        tcase_add_test(tcase, test_all_good);
        tcase_add_loop_test(tcase, test_lists_samples_that_kill, 0, sizeof(ways) / sizeof(ways[0]));
        tcase_add_test(tcase, test_spares_a_sample_that_dies_once);
        tcase_add_test(tcase, test_waits_for_its_reader);
        tcase_add_test(tcase, test_condemned_stays_while_it_kills);
        tcase_add_loop_test(tcase, test_clears_what_is_good, 0, 2);
        tcase_add_test(tcase, test_lifts_under_a_job);
        tcase_add_test(tcase, test_says_when_it_cannot_clear);
        tcase_add_test(tcase, test_one_at_a_time_and_status_answers);
        tcase_add_test(tcase, test_ends_with_its_client);
        tcase_add_test(tcase, test_ends_with_the_daemon);
        tcase_add_test(tcase, test_shows_how_far_it_is);
        tcase_add_test(tcase, test_half_a_connection_is_enough);
        tcase_add_test(tcase, test_outlives_its_workers);
        tcase_add_test(tcase, test_does_not_wait_for_the_undead);
        tcase_add_test(tcase, test_jobs_go_on);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
