/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pipelines whose workers are brought by their jobs: rows that forks of a zygote make, what becomes of them
 * when a worker, the zygote or its script ends, several scripts on one pipeline, and orders that are given.
 * Scripts and zygotes are C here (brought.h). */

#include "base/shm.h"
#include "tests/support/process.h"
#include "tests/support/run.h"
#include "tests/system/brought.h"
#include "tests/system/raw.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
        SOON_MS = 10000,
        BATCH = 8,
        WORKERS = 2,
        MANY = 40,
        REVERSED = 1000,
};

#define SOURCE "{type: python, brought: true, samples: 64, fields: 'x=int64[]', identity: me}"
#define DEFINITION(more)                                                                                     \
        "pipelines: {p: {source: " SOURCE ", batch_size: 8, workers: 2, lookahead: 0" more "}}"
#define ORDERED                                                                                              \
        "pipelines: {p: {source: {type: python, brought: true, samples: 64, fields: 'x=int64[]', "           \
        "given_order: true}, batch_size: 8, workers: 2}}"

/* A script's job. */
struct script {
        int fd;
        struct message_attached info;
        const uint8_t *ring;
        uint32_t epoch;
        uint64_t rows; /* that it has taken of it */
};

static struct harness *start(void) {
        struct harness *h = harness_new();
        char path[HARNESS_PATH_MAX];

        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        harness_set_environment(h, "PINFEED_STATE_DIR", path);
        harness_write_config(h, "pipelines:\n"
                                "  native: {source: {type: synthetic, samples: 64}, batch_size: 8}\n");
        harness_add_argument(h, "--private");
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* ---- a script ---- */

static void send_define(int fd, const char *definition) {
        static struct message message;

        message.type = MESSAGE_DEFINE;
        snprintf(message.define.file, sizeof(message.define.file), "/nowhere/train.py");
        snprintf(message.define.text, sizeof(message.define.text), "%s", definition);
        raw_send(fd, &message);
}

static void send_bring(int fd, const struct brought_zygote *zygote) {
        struct message message = {.type = MESSAGE_BRING, .bring = {(uint32_t)zygote->pid}};

        ck_assert_int_eq(message_send(fd, &message, &zygote->socket, 1), 0);
}

static int64_t ordered(int kind, int64_t row) {
        return kind == REVERSED ? BROUGHT_SAMPLES - 1 - row : (row + kind) % BROUGHT_SAMPLES;
}

/* The epoch backwards, or from `kind` on; sealed, if it is to be taken. */
static void send_order(int fd, uint32_t epoch, int kind, bool sealed) {
        struct message message = {.type = MESSAGE_ORDER,
                                  .order = {.epoch = epoch, .entries = BROUGHT_SAMPLES}};
        int file = shm_create_memfd("order");

        for (int64_t row = 0; row < BROUGHT_SAMPLES; row++) {
                int64_t sample = ordered(kind, row);

                ck_assert_int_eq(write(file, &sample, sizeof(sample)), sizeof(sample));
        }
        if (sealed)
                ck_assert_int_eq(shm_seal_all(file), 0);
        ck_assert_int_eq(message_send(fd, &message, &file, 1), 0);
        close(file);
}

/* The answer to ATTACH: ATTACHED, or what else. */
static int attach(struct script *script) {
        struct message message = raw_attach("p");
        int ring = -1, type;

        raw_send(script->fd, &message);
        do
                type = raw_receive(script->fd, &message, &ring);
        while (type == MESSAGE_PROGRESS);
        if (type != MESSAGE_ATTACHED)
                return type;
        script->info = message.attached;
        script->ring = brought_map(ring, PROT_READ);
        close(ring);
        message = raw_read();
        message_send(script->fd, &message, NULL, 0); /* it may have failed already */
        return type;
}

static struct script open_script(struct harness *h, const char *definition,
                                 const struct brought_zygote *zygote) {
        struct script script = {.fd = raw_greeted(h)};

        send_define(script.fd, definition);
        if (zygote)
                send_bring(script.fd, zygote);
        return script;
}

static struct script attached(struct harness *h, const char *definition,
                              const struct brought_zygote *zygote) {
        struct script script = open_script(h, definition, zygote);

        ck_assert_int_eq(attach(&script), MESSAGE_ATTACHED);
        return script;
}

static void leave(struct script *script) {
        close(script->fd);
        munmap((void *)script->ring, 4096); /* what is left of it goes with the test's process */
}

static int64_t value_at(const struct script *script, const struct message_segment *segment, uint32_t i) {
        const uint8_t *slot = script->ring + segment->slot * script->info.slot_stride;

        return ((const int64_t *)(slot + script->info.field[0].offset))[segment->first + i];
}

/* Takes batches until `rows` of the epoch have come, each as expected; *message is what came in their place,
 * if anything. */
static bool take(struct script *script, uint64_t rows, int64_t mark, int kind, struct message *message) {
        while (script->rows < rows) {
                const struct message_batches *batches = &message->batches;
                const struct message_segment *segment = batches->segment;
                struct message release = {.type = MESSAGE_RELEASE};

                if (raw_receive(script->fd, message, NULL) != MESSAGE_BATCHES)
                        return false;
                for (uint32_t b = 0; b < batches->n_batch; b++) {
                        ck_assert_uint_eq(batches->batch[b].epoch, script->epoch);
                        for (uint32_t i = 0; i < segment[b].rows; i++)
                                ck_assert_int_eq(value_at(script, &segment[b], i),
                                                 ordered(kind, (int64_t)batches->batch[b].row + i) + mark);
                        script->rows += batches->batch[b].rows;
                        release.release.number[release.release.n_number++] = batches->batch[b].number;
                }
                message_send(script->fd, &release, NULL, 0); /* to whom may have said his last word already */
        }
        return true;
}

static void take_rows(struct script *script, uint64_t rows, int64_t mark, int kind) {
        static struct message message;

        if (!take(script, rows, mark, kind, &message))
                ck_abort_msg("%s came: %s", message_name(message.type),
                             message.type == MESSAGE_FAILED ? message.failed.text : "");
}

static void take_epoch(struct script *script, int64_t mark, int kind) {
        take_rows(script, BROUGHT_SAMPLES, mark, kind);
}

/* 0, or the answer's error. */
static int seek(struct script *script, uint32_t epoch) {
        struct message message = {.type = MESSAGE_SEEK, .seek = {.epoch = epoch}};
        int type;

        raw_send(script->fd, &message);
        do
                type = raw_receive(script->fd, &message, NULL);
        while (type == MESSAGE_BATCHES);
        ck_assert_int_eq(type, MESSAGE_SOUGHT);
        if (message.sought.error == 0) {
                script->epoch = epoch;
                script->rows = 0;
        }
        return message.sought.error;
}

static void expect_failed(struct script *script, int64_t mark, int error, const char *words) {
        static struct message message;

        ck_assert(!take(script, UINT64_MAX, mark, 0, &message));
        ck_assert_int_eq(message.type, MESSAGE_FAILED);
        ck_assert_uint_eq(message.failed.error, error);
        harness_expect_words(message.failed.text, words);
        raw_expect_closed(script->fd, "after FAILED");
        munmap((void *)script->ring, 4096);
}

/* ---- what the daemon shows ---- */

static bool is_forgotten(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        bool gone = json_array_size(json_object_get(status, "pipelines")) == 1; /* the native one */

        json_decref(status);
        return gone;
}

static void wait_forgotten(struct harness *h) {
        harness_wait(h, "a pipeline that is forgotten", is_forgotten, NULL, SOON_MS);
}

/* The worker processes, by what the daemon says; those of them that have a pid. */
static size_t list_workers(struct harness *h, pid_t pids[]) {
        json_t *status = harness_status(h), *worker;
        size_t n = 0, i;

        json_array_foreach(json_object_get(status, "workers"), i, worker) {
                pids[n] = (pid_t)json_integer_value(json_object_get(worker, "pid"));
                n += pids[n] > 0;
        }
        json_decref(status);
        return n;
}

static bool are_all_there(struct harness *h, void *context) {
        pid_t pids[HARNESS_PROCESSES_MAX];

        return list_workers(h, pids) == WORKERS;
}

static void wait_gone(const pid_t pids[], size_t n) {
        uint64_t deadline = clock_ns() + (uint64_t)SOON_MS * NS_PER_MS;

        for (size_t i = 0; i < n; i++)
                while (harness_alive(pids[i])) {
                        ck_assert_msg(clock_ns() < deadline, "worker %d is still there", (int)pids[i]);
                        usleep(HARNESS_POLL_US);
                }
}

static json_t *pipeline_member(json_t *status, const char *name) {
        char path[64];

        snprintf(path, sizeof(path), "pipelines/p/%s", name);
        return harness_member(status, path);
}

static void expect_number(struct harness *h, const char *name, json_int_t value) {
        json_t *status = harness_status(h), *member = pipeline_member(status, name);

        ck_assert_msg(json_is_integer(member) && json_integer_value(member) == value, "%s is %" PRId64, name,
                      (int64_t)json_integer_value(member));
        json_decref(status);
}

/* ---- tests ---- */

START_TEST(forks_of_a_zygote_make_the_rows) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote = brought_zygote_start(&dataset);
        struct script script = attached(h, DEFINITION(""), &zygote);
        pid_t pids[HARNESS_PROCESSES_MAX], children[HARNESS_PROCESSES_MAX];
        json_t *answer;
        size_t n;

        take_epoch(&script, 0, 0);
        ck_assert_int_eq(seek(&script, 1), 0);
        take_epoch(&script, 0, 0);
        harness_wait(h, "its workers", are_all_there, NULL, SOON_MS);
        expect_number(h, "zygote", zygote.pid);
        n = list_workers(h, pids);
        ck_assert_uint_eq(n, WORKERS);
        ck_assert_uint_eq(process_children(zygote.pid, children, HARNESS_PROCESSES_MAX), WORKERS);
        ck_assert_uint_eq(harness_worker_pids(h, children, HARNESS_PROCESSES_MAX), 0);
        ck_assert_int_gt(harness_oom_score_adj(pids[0]), harness_oom_score_adj(harness_daemon_pid(h)));
        ck_assert_int_eq(harness_oom_score_adj(zygote.pid), harness_oom_score_adj(getpid()));
        answer = harness_control(h, "{\"command\": \"verify\", \"pipeline\": \"p\"}");
        harness_expect_words(json_string_value(json_object_get(answer, "error")), "is a dataset in Python");
        json_decref(answer);
        leave(&script);
        wait_forgotten(h);
        wait_gone(pids, n);
        ck_assert(harness_alive(zygote.pid)); /* that is its script's business */
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

static bool are_many_there(struct harness *h, void *context) {
        pid_t pids[HARNESS_PROCESSES_MAX];

        return list_workers(h, pids) == MANY;
}

/* It is asked for some, and for others when it has answered. */
START_TEST(more_workers_than_a_zygote_is_asked_for_at_once) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote = brought_zygote_start(&dataset);
        struct script script = attached(
                h, "pipelines: {p: {source: " SOURCE ", batch_size: 8, lookahead: 0, workers: 40}}", &zygote);

        take_epoch(&script, 0, 0);
        harness_wait(h, "its workers", are_many_there, NULL, SOON_MS);
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

/* Another one is forked, and nobody notices. */
START_TEST(a_worker_dies) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote;
        struct script script;
        pid_t pids[HARNESS_PROCESSES_MAX], after[HARNESS_PROCESSES_MAX];

        dataset.sleep_us = 2000;
        zygote = brought_zygote_start(&dataset);
        script = attached(h, DEFINITION(""), &zygote);
        take_rows(&script, BATCH, 0, 0);
        harness_wait(h, "its workers", are_all_there, NULL, SOON_MS);
        list_workers(h, pids);
        kill(pids[0], SIGKILL);
        take_epoch(&script, 0, 0);
        harness_wait(h, "another one", are_all_there, NULL, SOON_MS);
        list_workers(h, after);
        ck_assert(after[0] != pids[0] && after[1] != pids[0]);
        expect_number(h, "deaths/killed", 1);
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

/* For a while, as where there are too many processes. */
START_TEST(a_zygote_that_cannot_fork_yet) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote;
        struct script script;

        dataset.late_ms = 300;
        zygote = brought_zygote_start(&dataset);
        script = attached(h, DEFINITION(""), &zygote);
        take_epoch(&script, 0, 0);
        ck_assert(harness_log_contains(h, "could not be forked by its zygote"));
        expect_number(h, "worker_deaths", 0);
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

/* It dies while nothing has begun, or at work. */
START_TEST(the_zygote_dies) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote;
        struct script script;
        pid_t pids[HARNESS_PROCESSES_MAX];
        size_t n;

        dataset.sleep_us = 2000;
        zygote = brought_zygote_start(&dataset);
        script = attached(h, DEFINITION(""), &zygote);
        take_rows(&script, _i * 3 * BATCH, 0, 0);
        n = list_workers(h, pids);
        kill(zygote.pid, SIGKILL);
        expect_failed(&script, 0, ESHUTDOWN, "the process that forked this loader's workers");
        wait_gone(pids, n);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

/* The first one's zygote forks, and when it leaves the other one's does; the pipeline is the first one's. */
START_TEST(scripts_share) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote first, second;
        struct script one, other;
        pid_t pids[HARNESS_PROCESSES_MAX];
        size_t n;

        dataset.sleep_us = 1000;
        first = brought_zygote_start(&dataset);
        second = brought_zygote_start(&dataset);
        one = attached(h, DEFINITION(""), &first);
        other = attached(h, "pipelines: {p: {source: " SOURCE ", batch_size: 4, workers: 7, slots: 9}}",
                         &second);
        ck_assert_uint_eq(other.info.slots, one.info.slots);
        take_rows(&one, 2 * BATCH, 0, 0);
        expect_number(h, "zygote", first.pid);
        n = list_workers(h, pids);
        leave(&one);
        take_epoch(&other, 0, 0);
        wait_gone(pids, n);
        expect_number(h, "zygote", second.pid);
        expect_number(h, "worker_deaths", 0);
        expect_number(h, "workers", WORKERS);
        leave(&other);
        wait_forgotten(h);
        brought_zygote_end(&first);
        brought_zygote_end(&second);
        finish(h);
}
END_TEST

/* A dataset that has changed between two epochs. */
START_TEST(another_zygote_in_its_place) {
        struct brought_dataset before = BROUGHT_DATASET, after = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote old = brought_zygote_start(&before), new;
        struct script script = attached(h, DEFINITION(""), &old);
        pid_t pids[HARNESS_PROCESSES_MAX];
        size_t n;

        after.mark = 1000;
        new = brought_zygote_start(&after);
        take_epoch(&script, 0, 0);
        n = list_workers(h, pids);
        send_bring(script.fd, &new);
        ck_assert_int_eq(seek(&script, 1), 0);
        take_epoch(&script, 1000, 0);
        wait_gone(pids, n);
        expect_number(h, "zygote", new.pid);
        expect_number(h, "worker_deaths", 0);
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&old);
        brought_zygote_end(&new);
        finish(h);
}
END_TEST

START_TEST(an_exception_arrives_whole) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        static struct message message;
        struct harness *h = start();
        struct brought_zygote zygote;
        struct script script;

        dataset.raises_at = 20;
        zygote = brought_zygote_start(&dataset);
        script = attached(h, DEFINITION(", on_error: fail"), &zygote);
        ck_assert(!take(&script, UINT64_MAX, 0, 0, &message));
        ck_assert_int_eq(message.type, MESSAGE_FAILED);
        ck_assert_uint_eq(message.failed.sample, 20);
        harness_expect_words(message.failed.text, "ValueError: bad value (augment.py:31)");
        ck_assert_str_eq(message.failed.exception, "builtins.ValueError");
        ck_assert_str_eq(message.failed.traceback, "Traceback:\n  augment?\n");
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

/* The verdict holds for this run: the next one's code may be another. */
START_TEST(a_condemned_sample_is_not_kept) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote;
        struct script script;
        char path[HARNESS_PATH_MAX + 32];

        dataset.dies_at = 20;
        zygote = brought_zygote_start(&dataset);
        script = attached(h, DEFINITION(""), &zygote);
        take_epoch(&script, 0, 0);
        expect_number(h, "deaths/crashed", 3);
        leave(&script);
        wait_forgotten(h);
        snprintf(path, sizeof(path), "%s/state", harness_directory(h));
        ck_assert_int_eq(access(path, F_OK), -1);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

START_TEST(orders_are_given) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote = brought_zygote_start(&dataset);
        struct script script = open_script(h, ORDERED, &zygote), other;

        send_order(script.fd, 0, REVERSED, true);
        ck_assert_int_eq(attach(&script), MESSAGE_ATTACHED);
        take_epoch(&script, 0, REVERSED);
        ck_assert_int_eq(seek(&script, 1), EINVAL);
        send_order(script.fd, 1, 5, true);
        ck_assert_int_eq(seek(&script, 1), 0);
        take_epoch(&script, 0, 5);
        other = open_script(h, ORDERED, NULL); /* it shares what there is */
        send_order(other.fd, 0, 9, true);
        ck_assert_int_eq(attach(&other), MESSAGE_ATTACHED);
        take_epoch(&other, 0, REVERSED);
        send_order(other.fd, 2, 9, false);
        raw_expect_closed(other.fd, "after an order that may change");
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

static const struct {
        const char *pipeline, *definition;
        bool zygote;
        const char *words;
} refusals[] = {
        {"p", DEFINITION(""), false, "there is none; attach to it through pinfeed.DataLoader"},
        {"p", ORDERED, true, "the order of epoch 0 (seed 0) is the job's to give"},
        {"native", NULL, true, "its source does not say `brought: true`"},
        {"p", DEFINITION(", reserve: start"), true, "expected nothing to be prepared before a job is there"},
};

START_TEST(what_is_refused) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote = brought_zygote_start(&dataset);
        struct message message = raw_attach(refusals[_i].pipeline);
        char text[MESSAGE_TEXT_MAX + 1];
        int fd = raw_greeted(h);

        if (refusals[_i].definition)
                send_define(fd, refusals[_i].definition);
        if (refusals[_i].zygote)
                send_bring(fd, &zygote);
        raw_send(fd, &message);
        raw_expect_refused(fd, text, sizeof(text));
        harness_expect_words(text, refusals[_i].words);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

/* A script in a process of its own, killed at different times, with its zygote: nothing is left. */
START_TEST(the_script_is_killed) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        pid_t pid = fork(), pids[HARNESS_PROCESSES_MAX];
        size_t n;

        if (pid == 0) {
                struct brought_zygote zygote;
                struct script script;

                dataset.sleep_us = 1000;
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                zygote = brought_zygote_start(&dataset);
                script = attached(h, DEFINITION(""), &zygote);
                for (;;) {
                        take_epoch(&script, 0, 0);
                        seek(&script, script.epoch + 1);
                }
        }
        if (_i > 4)
                harness_wait(h, "its workers", are_all_there, NULL, SOON_MS);
        usleep((unsigned)_i * 7000);
        n = list_workers(h, pids);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        wait_forgotten(h);
        wait_gone(pids, n);
        finish(h);
}
END_TEST

/* The leash: nobody else could end them. */
START_TEST(the_daemon_is_killed) {
        struct brought_dataset dataset = BROUGHT_DATASET;
        struct harness *h = start();
        struct brought_zygote zygote = brought_zygote_start(&dataset);
        struct script script = attached(h, DEFINITION(""), &zygote);
        pid_t pids[HARNESS_PROCESSES_MAX];
        size_t n;

        harness_wait(h, "its workers", are_all_there, NULL, SOON_MS);
        n = list_workers(h, pids);
        harness_kill(h);
        wait_gone(pids, n);
        leave(&script);
        harness_start(h); /* which the same zygote serves */
        script = attached(h, DEFINITION(""), &zygote);
        take_epoch(&script, 0, 0);
        leave(&script);
        wait_forgotten(h);
        brought_zygote_end(&zygote);
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("brought");
        TCase *brought = tcase_create("brought");

        tcase_set_timeout(brought, 60 * harness_slowdown());
        tcase_add_test(brought, forks_of_a_zygote_make_the_rows);
        tcase_add_test(brought, more_workers_than_a_zygote_is_asked_for_at_once);
        tcase_add_test(brought, a_worker_dies);
        tcase_add_test(brought, a_zygote_that_cannot_fork_yet);
        tcase_add_loop_test(brought, the_zygote_dies, 0, 2);
        tcase_add_test(brought, scripts_share);
        tcase_add_test(brought, another_zygote_in_its_place);
        tcase_add_test(brought, an_exception_arrives_whole);
        tcase_add_test(brought, a_condemned_sample_is_not_kept);
        tcase_add_test(brought, orders_are_given);
        tcase_add_loop_test(brought, what_is_refused, 0, sizeof(refusals) / sizeof(*refusals));
        tcase_add_loop_test(brought, the_script_is_killed, 0, 8);
        tcase_add_test(brought, the_daemon_is_killed);
        suite_add_tcase(suite, brought);
        return run_suite(suite);
}
