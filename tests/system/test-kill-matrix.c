/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The kill matrix: in every state that a slot, a chunk, a lease or an attach can be in, the worker, the job
 * or both are killed, stopped for a while, or (the worker) crash; then the ring must be whole and every byte
 * right.
 *
 * `situations` is the table. Each has a pipeline of its own, so that all are brought about one after the
 * other in one daemon, and what is stopped is stopped in all of them at once. How a situation is reached:
 *
 * - A job is a process that goes as far as its role says, reports that, and waits for a word to go on.
 * - A worker inside a row: a slow sample, seen in status, then SIGSTOP: parked there for as long as needed.
 * - A worker with a chunk that it has not begun: SIGSTOP while it is idle, then work comes.
 * - Chunks recalled from a worker that is parked inside a row, and not yet answered for.
 * - A chunk done and not reported: the worker is traced and parked where it enters sendmsg.
 * - A release on its way: the daemon is stopped while it is sent.
 *
 * What was parked and is no victim goes on right after the blow. Afterwards another job reads two epochs,
 * which are more slots than the ring has; whoever survived goes on too, and must see the right bytes as well.
 */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SAMPLES = 24,
        BATCH = 8,
        BYTES = 1024,
        SLOTS = 4,
        SLOW_MS = 100, /* a slow sample: long enough to be seen and stopped */
        STOP_MS = 300,
        SOON_MS = 15000,
        WORKERS_MAX = 4,
        SPARES = 6, /* pipelines for what must be hit in passing */
        BIG_BYTES = 8 << 20,
        BIG_SLOTS = 16,
        GO_ON = 'g',
        REFUSED = 3, /* exit code of a job that was refused while the pipeline started */
};

enum role {
        ROLE_CONNECTED,
        ROLE_GREETED, /* HELLO sent, the answer unread */
        ROLE_ASKED,   /* ATTACH sent, nothing more read */
        ROLE_UNREAD,  /* attached, no batch read */
        ROLE_HOLDER,  /* holds two batches, all it may */
        ROLE_GUEST,   /* holds one of many */
        ROLE_LEAVER,  /* holds two, and releases them at the second word */
};

struct cell {
        struct harness *h;
        const struct situation *situation;
        char pipeline[24];
        pid_t job;
        int words, reports; /* to the job, from it */
        pid_t workers[WORKERS_MAX];
        size_t n_workers;
        bool worker_parked, worker_traced, daemon_parked;
        struct reader company; /* holds all slots */
        struct pinfeed_batch *held[SLOTS];
        bool skipped;
};

struct situation {
        const char *name;
        int workers;
        int slow_sample; /* -1: none */
        int delay_us;
        bool reserve_at_start; /* ring and workers are there before the job */
        enum role role;
        void (*reach)(struct cell *cell); /* from the job's first report to the situation */
        int slots, samples, bytes; /* 0: the usual; an epoch with a slow sample is longer than the ring where
                                      others go on */
        int spares;
        bool parks_first; /* reach starts the job itself */
        bool starting;    /* the pipeline is: a worker that crashes then ends the start */
};

/* ---- parking ---- */

static char process_state(pid_t pid) {
        char path[64], text[512], *end;
        FILE *file;
        size_t n;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        file = fopen(path, "re");
        if (!file)
                return 0;
        n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[n] = 0;
        end = strrchr(text, ')');
        return end ? end[2] : 0;
}

static bool is_stopped(struct harness *h, void *context) {
        return process_state(*(pid_t *)context) == 'T';
}

static void park(struct harness *h, pid_t pid) {
        ck_assert_int_eq(kill(pid, SIGSTOP), 0);
        harness_wait(h, "a process to stop", is_stopped, &pid, SOON_MS);
}

/* The workers of the cell's pipeline now, dead ones too. */
static json_t *find_workers(struct cell *cell, json_t *status) {
        json_t *worker;
        size_t i;

        cell->n_workers = 0;
        json_array_foreach(json_object_get(status, "workers"), i, worker) {
                if (strcmp(json_string_value(json_object_get(worker, "pipeline")), cell->pipeline))
                        continue;
                ck_assert_uint_lt(cell->n_workers, WORKERS_MAX);
                cell->workers[cell->n_workers++] = (pid_t)harness_number(worker, "pid");
        }
        return status;
}

static json_t *member(json_t *status, const struct cell *cell, const char *name) {
        char path[64];

        snprintf(path, sizeof(path), "pipelines/%s/%s", cell->pipeline, name);
        return harness_member(status, path);
}

static double number(json_t *status, const struct cell *cell, const char *name) {
        return json_number_value(member(status, cell, name));
}

static double number_now(const struct cell *cell, const char *name) {
        json_t *status = harness_status(cell->h);
        double value = number(status, cell, name);

        json_decref(status);
        return value;
}

/* The cell's only job as status has it, or NULL. */
static json_t *job_of(json_t *status, const struct cell *cell) {
        json_t *job;
        size_t i;

        json_array_foreach(json_object_get(status, "jobs"), i, job) {
                if ((pid_t)harness_number(job, "pid") == cell->job)
                        return job;
        }
        return NULL;
}

/* ---- the job, a process of its own ---- */

static void say(int reports) {
        ck_assert_int_eq(write(reports, "r", 1), 1);
}

static void await_word(int words) {
        char word;

        if (read(words, &word, 1) != 1)
                _exit(2); /* the test is gone */
}

/* Goes on from half open to its first batch. */
static void finish_raw(int fd, const struct cell *cell, enum role role) {
        struct message message = raw_hello();

        if (role == ROLE_CONNECTED)
                raw_send(fd, &message);
        if (role == ROLE_CONNECTED || role == ROLE_GREETED) {
                reader_must(raw_receive(fd, &message, NULL) == MESSAGE_HELLO, "no HELLO");
                message = raw_attach(cell->pipeline);
                raw_send(fd, &message);
        }
        for (int type = 0; type != MESSAGE_BATCHES;) {
                type = raw_receive(fd, &message, NULL);
                if (type == MESSAGE_REFUSED && cell->situation->starting)
                        _exit(REFUSED);
                reader_must(type == MESSAGE_PROGRESS || type == MESSAGE_ATTACHED || type == MESSAGE_BATCHES,
                            "%s: message %d came: %s", cell->situation->name, type,
                            type == MESSAGE_REFUSED  ? message.refused.text
                            : type == MESSAGE_FAILED ? message.failed.text
                                                     : "?");
        }
        close(fd);
}

static void run_raw(const struct cell *cell, enum role role, int words, int reports) {
        struct message message = raw_hello();
        int fd = role == ROLE_UNREAD  ? raw_attached(cell->h, cell->pipeline, &message, NULL)
                 : role == ROLE_ASKED ? raw_greeted(cell->h)
                                      : raw_connect(cell->h);

        if (role == ROLE_GREETED)
                raw_send(fd, &message);
        if (role == ROLE_ASKED) {
                message = raw_attach(cell->pipeline);
                raw_send(fd, &message);
        }
        say(reports);
        await_word(words);
        finish_raw(fd, cell, role);
}

/* What it held all the time must still be right; then it goes on as if nothing had happened. */
static void run_reader(const struct cell *cell, enum role role, int words, int reports) {
        struct pinfeed_batch *held[2];
        struct reader reader;
        size_t n = role == ROLE_GUEST ? 1 : 2;

        reader_open(&reader, cell->h, cell->pipeline, role == ROLE_GUEST ? 4 : 2);
        for (size_t i = 0; i < n; i++)
                held[i] = reader_next(&reader);
        say(reports);
        if (role == ROLE_LEAVER) {
                await_word(words);
                for (size_t i = 0; i < n; i++)
                        reader_must(pinfeed_batch_release(held[i]) == 0, "release");
                say(reports);
        }
        await_word(words);
        for (size_t i = 0; i < n && role != ROLE_LEAVER; i++) {
                reader_check(&reader, held[i], 0, i * BATCH);
                reader_must(pinfeed_batch_release(held[i]) == 0, "release");
        }
        reader_read(&reader, 2 * reader.info.batches_per_epoch - n);
        reader_close(&reader);
}

/* Its last act is an exit code that nothing else has. */
static void start_job(struct cell *cell) {
        enum role role = cell->situation->role;
        int words[2], reports[2];
        pid_t pid;

        ck_assert_int_eq(pipe(words), 0);
        ck_assert_int_eq(pipe(reports), 0);
        pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(words[1]);
                close(reports[0]);
                if (role >= ROLE_HOLDER)
                        run_reader(cell, role, words[0], reports[1]);
                else
                        run_raw(cell, role, words[0], reports[1]);
                _exit(0);
        }
        close(words[0]);
        close(reports[1]);
        cell->job = pid;
        cell->words = words[1];
        cell->reports = reports[0];
}

static void await_report(const struct cell *cell) {
        struct pollfd poll_fd = {.fd = cell->reports, .events = POLLIN};
        char word = 0;

        ck_assert_msg(poll(&poll_fd, 1, SOON_MS * harness_slowdown()) == 1 &&
                              read(cell->reports, &word, 1) == 1,
                      "%s: the job does not get as far as it should", cell->situation->name);
}

static void tell_job(const struct cell *cell) {
        char word = GO_ON;

        ck_assert_int_eq(write(cell->words, &word, 1), 1);
}

static void forget_job(struct cell *cell) {
        close(cell->words);
        close(cell->reports);
        cell->job = 0;
}

/* ---- reaching a situation ---- */

static void reach_nothing(struct cell *cell) {
}

static bool is_free(struct harness *h, void *context) {
        struct cell *cell = context;
        json_t *status = harness_status(h);
        bool free = number(status, cell, "workers_alive") == cell->situation->workers &&
                    number(status, cell, "slots_ready") == 0 && number(status, cell, "slots_filling") == 0;

        json_decref(status);
        return free;
}

static void reach_free(struct cell *cell) {
        harness_wait(cell->h, "workers and free slots", is_free, cell, SOON_MS);
}

static void reach_ready(struct cell *cell) {
        double slots = number_now(cell, "slots");
        char path[64];

        snprintf(path, sizeof(path), "pipelines/%s/slots_ready", cell->pipeline);
        harness_wait_number(cell->h, path, slots, SOON_MS);
}

/* The worker that sits in the slow sample comes first. */
static bool is_slow_sample_begun(struct harness *h, void *context) {
        struct cell *cell = context;
        json_t *status = find_workers(cell, harness_status(h)), *worker;
        pid_t found = 0;
        size_t i;

        json_array_foreach(json_object_get(status, "workers"), i, worker) {
                json_t *sample = json_object_get(worker, "sample");

                if (!strcmp(json_string_value(json_object_get(worker, "pipeline")), cell->pipeline) &&
                    json_is_integer(sample) && json_integer_value(sample) == cell->situation->slow_sample)
                        found = (pid_t)harness_number(worker, "pid");
        }
        json_decref(status);
        if (found) {
                cell->workers[0] = found;
                cell->n_workers = 1;
        }
        return found != 0;
}

/* Of slot `index` of the first epoch, while it is being filled; else -1. */
static double rows_done_of(const struct cell *cell, int index) {
        json_t *status = harness_status(cell->h), *slot;
        double rows = -1;
        size_t i;

        json_array_foreach(json_object_get(status, "slots"), i, slot) {
                if (!strcmp(json_string_value(json_object_get(slot, "pipeline")), cell->pipeline) &&
                    !strcmp(json_string_value(json_object_get(slot, "state")), "filling") &&
                    harness_number(slot, "index") == index && harness_number(slot, "epoch") == 0)
                        rows = harness_number(slot, "rows_done");
        }
        json_decref(status);
        return rows;
}

static double rows_done(const struct cell *cell) {
        return rows_done_of(cell, 0);
}

static void reach_slow_sample(struct cell *cell) {
        pid_t parked;

        harness_wait(cell->h, "a worker in the slow sample", is_slow_sample_begun, cell, SOON_MS);
        parked = cell->workers[0];
        park(cell->h, parked);
        cell->worker_parked = true;
        ck_assert_msg(is_slow_sample_begun(cell->h, cell) && cell->workers[0] == parked,
                      "%s: the slow sample was too quick", cell->situation->name);
}

static void reach_first_chunk(struct cell *cell) {
        reach_slow_sample(cell);
        ck_assert_double_eq(rows_done(cell), 0);
}

/* The first row was a chunk of its own, the other seven are one. */
static void reach_middle_of_chunk(struct cell *cell) {
        reach_slow_sample(cell);
        ck_assert_double_eq(rows_done(cell), 1);
}

/* Starts the cell's job at the next one of several equal pipelines. */
static void start_job_at(struct cell *cell, int spare) {
        snprintf(cell->pipeline, sizeof(cell->pipeline), "%s-%d", cell->situation->name, spare);
        start_job(cell);
}

/* The situation was not reached there. */
static void give_up(struct cell *cell) {
        for (size_t i = 0; i < cell->n_workers; i++)
                kill(cell->workers[i], SIGCONT);
        kill(cell->job, SIGKILL);
        ck_assert_int_eq(harness_join(cell->h, cell->job, SOON_MS), -SIGKILL);
        forget_job(cell);
}

/* Rows are quick, so the worker holds the slot behind too; it is taken back. Where it was not, since the
 * machine had kept the worker from its rows just before, they seemed slow, and the next pipeline is tried. */
static void reach_recalled(struct cell *cell) {
        int slow_slot = cell->situation->slow_sample / BATCH;
        char path[64];

        for (int spare = 0; spare < SPARES; spare++) {
                start_job_at(cell, spare);
                await_report(cell);
                reach_slow_sample(cell);
                if (rows_done_of(cell, slow_slot + 1) == 0) {
                        snprintf(path, sizeof(path), "pipelines/%s/chunks_recalled", cell->pipeline);
                        harness_wait_number(cell->h, path, 1, SOON_MS);
                        return;
                }
                give_up(cell);
        }
        ck_abort_msg("%d times the worker held one chunk only", SPARES);
}

static bool is_rest_done(struct harness *h, void *context) {
        return rows_done(context) >= BATCH / 2;
}

static void reach_last_chunk(struct cell *cell) {
        reach_slow_sample(cell);
        harness_wait(cell->h, "the other chunks", is_rest_done, cell, SOON_MS);
}

static bool are_workers_idle(struct harness *h, void *context) {
        struct cell *cell = context;
        json_t *status = find_workers(cell, harness_status(h)), *worker;
        size_t i, idle = 0;

        json_array_foreach(json_object_get(status, "workers"), i, worker) idle +=
                !strcmp(json_string_value(json_object_get(worker, "pipeline")), cell->pipeline) &&
                !strcmp(json_string_value(json_object_get(worker, "state")), "idle");
        json_decref(status);
        return idle == (size_t)cell->situation->workers;
}

static void park_idle_workers(struct cell *cell) {
        harness_wait(cell->h, "idle workers", are_workers_idle, cell, SOON_MS);
        for (size_t i = 0; i < cell->n_workers; i++)
                park(cell->h, cell->workers[i]);
        cell->worker_parked = true;
}

static bool are_workers_busy(struct harness *h, void *context) {
        const struct cell *cell = context;

        return number_now(cell, "workers_busy") == cell->situation->workers;
}

static void reach_chunk_not_begun(struct cell *cell) {
        park_idle_workers(cell);
        start_job(cell);
        await_report(cell);
        harness_wait(cell->h, "chunks for all workers", are_workers_busy, cell, SOON_MS);
        ck_assert_double_eq(number_now(cell, "rows_prepared"), 0);
}

static void reach_nothing_ready(struct cell *cell) {
        park_idle_workers(cell);
        start_job(cell);
        await_report(cell);
        ck_assert_double_eq(number_now(cell, "slots_leased"), 0);
}

/* Lets the worker run until it enters sendmsg: its first chunk is done then. */
static void trace_until_sendmsg(pid_t pid) {
        for (;;) {
                struct __ptrace_syscall_info info = {};
                int status;

                ck_assert_int_eq(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
                ck_assert_int_eq(waitpid(pid, &status, __WALL), pid);
                ck_assert_msg(WIFSTOPPED(status), "the traced worker ended: %x", status);
                if (WSTOPSIG(status) != (SIGTRAP | 0x80))
                        continue;
                ck_assert_int_gt(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info), 0);
                if (info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_sendmsg)
                        return;
        }
}

static void reach_done_unreported(struct cell *cell) {
        int status;

        harness_wait(cell->h, "idle workers", are_workers_idle, cell, SOON_MS);
        if (ptrace(PTRACE_SEIZE, cell->workers[0], NULL, PTRACE_O_TRACESYSGOOD) < 0) {
                harness_skip("%s: no process may be traced here: %s", cell->situation->name, strerror(errno));
                cell->skipped = true;
                return;
        }
        cell->worker_traced = true;
        ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, cell->workers[0], NULL, NULL), 0);
        ck_assert_int_eq(waitpid(cell->workers[0], &status, __WALL), cell->workers[0]);
        start_job(cell);
        trace_until_sendmsg(cell->workers[0]);
        await_report(cell);
        ck_assert_double_eq(number_now(cell, "rows_prepared"), 0);
}

static bool is_job_holding(struct harness *h, void *context) {
        const struct cell *cell = context;
        json_t *status = harness_status(h), *job = job_of(status, cell);
        bool holds = job && harness_number(job, "held") == 2;

        json_decref(status);
        return holds;
}

static void reach_unread(struct cell *cell) {
        harness_wait(cell->h, "two handles in the socket", is_job_holding, cell, SOON_MS);
}

static void reach_releasing(struct cell *cell) {
        json_decref(find_workers(cell, harness_status(cell->h)));
        cell->daemon_parked = true;
        park(cell->h, harness_daemon_pid(cell->h));
        tell_job(cell);
        await_report(cell);
}

static bool is_job_attaching(struct harness *h, void *context) {
        struct cell *cell = context;
        json_t *status = harness_status(h), *job = job_of(status, cell);
        bool attaching = job && !strcmp(json_string_value(json_object_get(job, "state")), "attaching");

        json_decref(status);
        return attaching;
}

static bool has_state(const struct cell *cell, const char *state) {
        json_t *status = harness_status(cell->h);
        bool has = !strcmp(json_string_value(member(status, cell, "state")), state);

        json_decref(status);
        return has;
}

/* All in one look: the ring takes some turns of the loop, and each look at status is some of them. */
static bool is_reserving(struct harness *h, void *context) {
        struct cell *cell = context;
        json_t *status = find_workers(cell, harness_status(h));
        const char *state = json_string_value(member(status, cell, "state"));
        bool attaching = job_of(status, cell) != NULL;
        double left = number(status, cell, "ring_bytes") - number(status, cell, "reserved_bytes");

        ck_assert_msg(!attaching || (!strcmp(state, "reserving") && left > BATCH * BIG_BYTES),
                      "%s: the ring was there too soon", cell->situation->name);
        json_decref(status);
        return attaching;
}

static void reach_reserving(struct cell *cell) {
        harness_wait(cell->h, "a job that waits", is_reserving, cell, SOON_MS);
}

/* Before its exec it must not be stopped: the daemon's uv_spawn waits for that. */
static bool is_worker(pid_t pid) {
        char path[64], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        file = fopen(path, "re");
        if (!file)
                return false;
        if (!fgets(name, sizeof(name), file))
                name[0] = 0;
        fclose(file);
        return !strncmp(name, "pinfeed-worker", 14);
}

/* Stops new workers as they appear. */
static void park_newborn(struct cell *cell, const pid_t *old, size_t n_old) {
        uint64_t deadline = clock_ns() + SOON_MS * (uint64_t)harness_slowdown() * NS_PER_MS;

        cell->n_workers = 0;
        while (cell->n_workers < (size_t)cell->situation->workers) {
                pid_t now[HARNESS_PROCESSES_MAX];
                size_t n = harness_worker_pids(cell->h, now, HARNESS_PROCESSES_MAX);

                ck_assert_msg(clock_ns() < deadline, "no workers appear");
                for (size_t i = 0; i < n && cell->n_workers < WORKERS_MAX; i++) {
                        bool known = false;

                        for (size_t k = 0; k < n_old && !known; k++)
                                known = old[k] == now[i];
                        for (size_t k = 0; k < cell->n_workers && !known; k++)
                                known = cell->workers[k] == now[i];
                        if (!known && is_worker(now[i]) && kill(now[i], SIGSTOP) == 0)
                                cell->workers[cell->n_workers++] = now[i];
                }
        }
}

/* A worker that is stopped before it has looked for the samples; it takes a try or two. */
static void reach_scanning(struct cell *cell) {
        for (int spare = 0; spare < SPARES; spare++) {
                pid_t old[HARNESS_PROCESSES_MAX];
                size_t n_old = harness_worker_pids(cell->h, old, HARNESS_PROCESSES_MAX);

                start_job_at(cell, spare);
                park_newborn(cell, old, n_old);
                await_report(cell);
                cell->worker_parked = true;
                if (is_job_attaching(cell->h, cell) && has_state(cell, "scanning"))
                        return;
                give_up(cell);
        }
        ck_abort_msg("%d times the samples were found too soon", SPARES);
}

static void reach_waiting_for_slots(struct cell *cell) {
        reader_open(&cell->company, cell->h, cell->pipeline, SLOTS);
        for (int i = 0; i < SLOTS; i++)
                cell->held[i] = reader_next(&cell->company);
        start_job(cell);
        await_report(cell);
        harness_wait(cell->h, "a job that waits", is_job_attaching, cell, SOON_MS);
        ck_assert(has_state(cell, "ready"));
}

static const struct situation situations[] = {
        {.name = "slot-free",
         .workers = 2,
         .reserve_at_start = true,
         .role = ROLE_CONNECTED,
         .reach = reach_free},
        {.name = "slot-first-chunk",
         .workers = 1,
         .slow_sample = 0,
         .role = ROLE_UNREAD,
         .reach = reach_first_chunk},
        {.name = "slot-last-chunk",
         .workers = 2,
         .slow_sample = 7,
         .delay_us = 500,
         .role = ROLE_UNREAD,
         .reach = reach_last_chunk,
         .samples = 40},
        {.name = "slot-ready", .workers = 2, .role = ROLE_UNREAD, .reach = reach_ready},
        {.name = "slot-leased", .workers = 2, .role = ROLE_HOLDER, .reach = reach_nothing},
        {.name = "chunk-not-begun",
         .workers = 2,
         .reserve_at_start = true,
         .role = ROLE_UNREAD,
         .reach = reach_chunk_not_begun,
         .parks_first = true},
        {.name = "chunk-middle",
         .workers = 1,
         .slow_sample = 4,
         .role = ROLE_UNREAD,
         .reach = reach_middle_of_chunk},
        {.name = "chunk-recalled",
         .workers = 1,
         .slow_sample = 6 * BATCH,
         .role = ROLE_UNREAD,
         .reach = reach_recalled,
         .slots = 8,
         .samples = 9 * BATCH,
         .spares = SPARES,
         .parks_first = true},
        {.name = "chunk-unreported",
         .workers = 1,
         .reserve_at_start = true,
         .role = ROLE_UNREAD,
         .reach = reach_done_unreported,
         .parks_first = true},
        {.name = "lease-unread", .workers = 2, .role = ROLE_UNREAD, .reach = reach_unread},
        {.name = "lease-held",
         .workers = 2,
         .role = ROLE_GUEST,
         .reach = reach_nothing,
         .slots = 8,
         .samples = 40},
        {.name = "lease-releasing", .workers = 2, .role = ROLE_LEAVER, .reach = reach_releasing},
        {.name = "attach-connected",
         .workers = 2,
         .reserve_at_start = true,
         .role = ROLE_CONNECTED,
         .reach = reach_nothing},
        {.name = "attach-hello",
         .workers = 2,
         .reserve_at_start = true,
         .role = ROLE_GREETED,
         .reach = reach_nothing},
        {.name = "attach-reserving",
         .workers = 2,
         .role = ROLE_ASKED,
         .reach = reach_reserving,
         .samples = BATCH,
         .bytes = BIG_BYTES,
         .slots = BIG_SLOTS,
         .starting = true},
        {.name = "attach-scanning",
         .workers = 2,
         .role = ROLE_ASKED,
         .reach = reach_scanning,
         .spares = SPARES,
         .parks_first = true,
         .starting = true},
        {.name = "attach-waiting",
         .workers = 2,
         .role = ROLE_ASKED,
         .reach = reach_waiting_for_slots,
         .parks_first = true},
        {.name = "attach-unread",
         .workers = 2,
         .reserve_at_start = true,
         .role = ROLE_UNREAD,
         .reach = reach_nothing_ready,
         .parks_first = true},
};

enum {
        SITUATIONS = sizeof(situations) / sizeof(situations[0]),
};

/* ---- the blow ---- */

enum victim {
        VICTIM_WORKER = 1,
        VICTIM_JOB = 2,
        VICTIM_BOTH = 3,
};

static const struct blow {
        const char *name;
        int victim;
        int signal;
} blows[] = {
        {"kill the worker", VICTIM_WORKER, SIGKILL},  {"kill the job", VICTIM_JOB, SIGKILL},
        {"kill both", VICTIM_BOTH, SIGKILL},          {"stop the worker", VICTIM_WORKER, SIGSTOP},
        {"stop the job", VICTIM_JOB, SIGSTOP},        {"stop both", VICTIM_BOTH, SIGSTOP},
        {"crash the worker", VICTIM_WORKER, SIGSEGV},
};

enum {
        BLOWS = sizeof(blows) / sizeof(blows[0]),
};

/* A traced process takes SIGKILL and is then to be reaped by its tracer; all else when it is let go. */
static void strike_traced(struct cell *cell, int signal) {
        int status;

        if (signal != SIGKILL) {
                ck_assert_int_eq(ptrace(PTRACE_DETACH, cell->workers[0], NULL, (long)signal), 0);
        } else {
                ck_assert_int_eq(kill(cell->workers[0], SIGKILL), 0);
                ck_assert_int_eq(waitpid(cell->workers[0], &status, __WALL), cell->workers[0]);
        }
        cell->worker_traced = false;
}

/* Where no worker was parked, it befalls all of them. */
static void strike_workers(struct cell *cell, int signal) {
        for (size_t i = 0; i < cell->n_workers; i++) {
                if (cell->worker_traced)
                        strike_traced(cell, signal);
                else
                        ck_assert_int_eq(kill(cell->workers[i], signal), 0);
        }
        if (signal == SIGSEGV)
                for (size_t i = 0; i < cell->n_workers; i++)
                        kill(cell->workers[i], SIGCONT);
}

static void strike(struct cell *cell, const struct blow *blow) {
        if (blow->victim & VICTIM_WORKER)
                strike_workers(cell, blow->signal);
        if (blow->victim & VICTIM_JOB)
                ck_assert_int_eq(kill(cell->job, blow->signal), 0);
        if (cell->worker_traced)
                strike_traced(cell, 0);
        if (cell->worker_parked && !(blow->victim & VICTIM_WORKER))
                for (size_t i = 0; i < cell->n_workers; i++)
                        kill(cell->workers[i], SIGCONT);
        if (cell->daemon_parked)
                ck_assert_int_eq(kill(harness_daemon_pid(cell->h), SIGCONT), 0);
        cell->daemon_parked = false;
        json_decref(harness_status(cell->h));
}

static void reach_and_strike(struct cell *cell, const struct blow *blow) {
        const struct situation *situation = cell->situation;

        if (!situation->parks_first) {
                start_job(cell);
                await_report(cell);
        }
        situation->reach(cell);
        if (cell->skipped)
                return;
        /* Where it is about no worker in particular it is about all. */
        if (cell->n_workers == 0)
                json_decref(find_workers(cell, harness_status(cell->h)));
        ck_assert_msg(cell->n_workers > 0, "%s: no worker", situation->name);
        strike(cell, blow);
}

/* ---- afterwards ---- */

static void wake(struct cell *cell, const struct blow *blow) {
        if (blow->signal != SIGSTOP)
                return;
        for (size_t i = 0; i < cell->n_workers && (blow->victim & VICTIM_WORKER); i++)
                ck_assert_int_eq(kill(cell->workers[i], SIGCONT), 0);
        if (cell->job && (blow->victim & VICTIM_JOB))
                ck_assert_int_eq(kill(cell->job, SIGCONT), 0);
}

static bool is_company_gone(struct harness *h, void *context) {
        const struct cell *cell = context;
        json_t *status = harness_status(h), *job;
        bool gone = true;
        size_t i;

        json_array_foreach(json_object_get(status, "jobs"), i, job) gone =
                gone && harness_number(job, "id") != cell->company.info.job;
        json_decref(status);
        return gone;
}

static void dismiss_company(struct cell *cell) {
        for (int i = 0; i < SLOTS; i++)
                ck_assert_int_eq(pinfeed_batch_release(cell->held[i]), 0);
        reader_close(&cell->company);
        harness_wait(cell->h, "the end of the job that held all slots", is_company_gone, cell, SOON_MS);
}

/* Another job reads more slots than there are. */
static void read_whole(struct cell *cell) {
        struct reader reader;

        if (cell->held[0])
                dismiss_company(cell);
        reader_open(&reader, cell->h, cell->pipeline, 2);
        reader_read_epochs(&reader, 2);
        reader_close(&reader);
}

static void end_job(struct cell *cell, const struct blow *blow) {
        bool killed = (blow->victim & VICTIM_JOB) && blow->signal == SIGKILL;
        int result;

        if (!killed)
                tell_job(cell);
        result = harness_join(cell->h, cell->job, SOON_MS);
        if (result == REFUSED && blow->signal == SIGSEGV)
                result = 0;
        ck_assert_msg(result == (killed ? -SIGKILL : 0), "%s: the job ended with %d", cell->situation->name,
                      result);
        forget_job(cell);
}

static bool is_whole(struct harness *h, void *context) {
        const struct cell *cell = context;
        json_t *status = harness_status(h), *slot, *job;
        bool whole = number(status, cell, "workers_alive") == cell->situation->workers &&
                     number(status, cell, "slots_leased") == 0 && number(status, cell, "slots_filling") == 0;
        size_t i;

        json_array_foreach(json_object_get(status, "jobs"), i, job) whole =
                whole && strcmp(json_string_value(json_object_get(job, "pipeline")), cell->pipeline);
        json_array_foreach(json_object_get(status, "slots"), i, slot) {
                const char *state = json_string_value(json_object_get(slot, "state"));

                if (!strcmp(json_string_value(json_object_get(slot, "pipeline")), cell->pipeline))
                        whole = whole && (!strcmp(state, "free") || !strcmp(state, "ready")) &&
                                harness_number(slot, "leases") == 0;
        }
        json_decref(status);
        return whole;
}

static void expect_whole(struct cell *cell, const struct blow *blow) {
        char what[96];
        json_t *status;

        snprintf(what, sizeof(what), "%s, %s: a whole ring", cell->situation->name, blow->name);
        harness_wait(cell->h, what, is_whole, cell, SOON_MS);
        status = harness_status(cell->h);
        ck_assert_double_eq(number(status, cell, "slots_quarantined"), 0);
        ck_assert_double_eq(number(status, cell, "bad_samples"), 0);
        ck_assert_uint_eq(json_array_size(member(status, cell, "condemned")), 0);
        json_decref(status);
}

static void write_config(struct harness *h) {
        char text[16384];
        size_t n = (size_t)snprintf(text, sizeof(text), "pipelines:\n");

        for (size_t i = 0; i < SITUATIONS; i++) {
                const struct situation *s = &situations[i];

                for (int spare = 0; spare < (s->spares ? s->spares : 1); spare++) {
                        char suffix[8] = "";

                        if (s->spares)
                                snprintf(suffix, sizeof(suffix), "-%d", spare);
                        n += (size_t)snprintf(
                                text + n, sizeof(text) - n,
                                "  %s%s:\n"
                                "    source: {type: synthetic, mode: slow, samples: %d, bytes: %d,\n"
                                "             slow_sample: %d, slow_us: %d, delay_us: %d}\n"
                                "    batch_size: %d\n"
                                "    slots: %d\n"
                                "    lookahead: 1\n"
                                "    reserve: %s\n"
                                "    workers: %d\n",
                                s->name, suffix, s->samples ? s->samples : SAMPLES,
                                s->bytes ? s->bytes : BYTES, s->slow_sample,
                                s->reach == reach_first_chunk || s->reach == reach_last_chunk ||
                                                s->reach == reach_middle_of_chunk ||
                                                s->reach == reach_recalled
                                        ? SLOW_MS * 1000 * harness_slowdown()
                                        : 0,
                                s->delay_us, BATCH, s->slots ? s->slots : SLOTS,
                                s->reserve_at_start ? "start" : "attach", s->workers);
                        ck_assert_uint_lt(n, sizeof(text));
                }
        }
        harness_write_config(h, "%s", text);
}

static void sleep_until(uint64_t then_ns) {
        while (clock_ns() < then_ns)
                usleep(HARNESS_POLL_US);
}

START_TEST(test_kill_matrix) {
        const struct blow *blow = &blows[_i];
        bool others_go_on = !(blow->signal == SIGSTOP && (blow->victim & VICTIM_WORKER));
        struct harness *h = harness_new();
        struct cell cells[SITUATIONS] = {};
        uint64_t struck_ns;

        printf("# %s\n", blow->name);
        fflush(stdout);
        harness_set_environment(h, "PINFEED_STATE_DIR", harness_directory(h));
        write_config(h);
        harness_start(h);
        for (size_t i = 0; i < SITUATIONS; i++) {
                cells[i].h = h;
                cells[i].situation = &situations[i];
                snprintf(cells[i].pipeline, sizeof(cells[i].pipeline), "%s", situations[i].name);
                reach_and_strike(&cells[i], blow);
        }
        struck_ns = clock_ns();
        for (size_t i = 0; i < SITUATIONS && others_go_on; i++)
                if (!cells[i].skipped)
                        read_whole(&cells[i]);
        if (blow->signal == SIGSTOP)
                sleep_until(struck_ns + STOP_MS * NS_PER_MS);
        for (size_t i = 0; i < SITUATIONS; i++)
                wake(&cells[i], blow);
        for (size_t i = 0; i < SITUATIONS; i++) {
                if (cells[i].skipped)
                        continue;
                if (!others_go_on)
                        read_whole(&cells[i]);
                end_job(&cells[i], blow);
                expect_whole(&cells[i], blow);
        }
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        TCase *tcase = tcase_create("kill-matrix");
        Suite *suite = suite_create("kill-matrix");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_loop_test(tcase, test_kill_matrix, 0, BLOWS);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
