#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A zygote in C, as a user's script makes one in Python, and the workers that it forks: they speak the worker
 * protocol and make rows of one int64, `x`: the row's sample + the dataset's `mark`. */

#include "base/clock.h"
#include "base/fault.h"
#include "base/seqpacket.h"
#include "proto/message.h"
#include "proto/recipe.h"
#include "proto/worker-page.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        BROUGHT_SAMPLES = 64,
        BROUGHT_FORKS_MAX = 64,
        BROUGHT_EPOCHS_MAX = 4096,
        BROUGHT_NOWHERE = -1,
};

/* The user's dataset. */
struct brought_dataset {
        int64_t mark;
        int64_t raises_at; /* a sample, or BROUGHT_NOWHERE */
        int64_t dies_at;
        unsigned sleep_us; /* for each sample */
        unsigned late_ms;  /* it cannot fork for so long after it was asked first */
};

#define BROUGHT_DATASET                                                                                      \
        { .raises_at = BROUGHT_NOWHERE, .dies_at = BROUGHT_NOWHERE }

struct brought_zygote {
        pid_t pid;
        int socket; /* the daemon's end */
};

/* ---- the worker ---- */

struct brought_worker {
        const struct brought_dataset *dataset;
        struct message message;
        struct schema schema;
        uint8_t *ring;
        struct worker_page *page;
        const int64_t *orders[BROUGHT_EPOCHS_MAX]; /* NULL: none was given */
        int64_t condemned;
        uint64_t ordinal;
};

static inline void *brought_map(int fd, int protection) {
        struct stat st;

        fstat(fd, &st);
        return mmap(NULL, (size_t)st.st_size, protection, MAP_SHARED, fd, 0);
}

static inline void brought_on_setup(struct brought_worker *worker, const int fds[2]) {
        json_t *json = json_loads(worker->message.setup.recipe, 0, NULL);
        struct recipe recipe;
        struct fault fault;

        if (recipe_from_json(&recipe, json, &fault) < 0)
                _exit(9);
        recipe_schema(&recipe, &worker->schema);
        schema_lay_out(&worker->schema, worker->message.setup.slot_rows, &fault);
        worker->ring = brought_map(fds[0], PROT_READ | PROT_WRITE);
        worker->page = mmap(NULL, WORKER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        worker->condemned = BROUGHT_NOWHERE;
}

static inline void brought_send(const struct message *message) {
        message_send(3, message, NULL, 0);
}

/* False: it was raised at. */
static inline bool brought_row(struct brought_worker *worker, const struct message_chunk *chunk, uint32_t i) {
        const struct brought_dataset *dataset = worker->dataset;
        const int64_t *order = worker->orders[chunk->epoch];
        int64_t sample = order ? order[chunk->row + i] : (int64_t)(chunk->row + i);
        uint8_t *slot = worker->ring + chunk->slot * worker->schema.slot_stride;

        worker->page->sample = (uint64_t)sample;
        if (sample == dataset->dies_at && sample != worker->condemned)
                raise(SIGABRT);
        if (sample == dataset->raises_at)
                return false;
        if (dataset->sleep_us > 0)
                usleep(dataset->sleep_us);
        ((int64_t *)(slot + worker->schema.fields[0].offset))[chunk->first + i] = sample + dataset->mark;
        ((int64_t *)(slot + worker->schema.ids_offset))[chunk->first + i] = sample;
        worker->page->sample = WORKER_PAGE_IDLE;
        worker->page->chunk_done = i + 1;
        return true;
}

static inline void brought_on_chunk(struct brought_worker *worker, const struct message_chunk *chunk) {
        static struct message answer;
        uint32_t i = 0;

        worker->page->begun = ++worker->ordinal;
        worker->page->chunk_done = 0;
        worker->page->chunk_first = chunk->first;
        worker->page->chunk_slot = chunk->slot;
        while (i < chunk->rows && brought_row(worker, chunk, i))
                i++;
        worker->page->chunk_slot = WORKER_PAGE_IDLE;
        answer.type = i == chunk->rows ? MESSAGE_DONE : MESSAGE_BROKEN;
        if (i == chunk->rows) {
                answer.done.n_part = 1;
                answer.done.part[0] = (struct message_part){.slot = chunk->slot,
                                                            .first = chunk->first,
                                                            .rows = chunk->rows,
                                                            .busy_ns = chunk->rows * UINT64_C(100000),
                                                            .done_ns = clock_ns()};
        } else {
                answer.broken = (struct message_broken){.error = EBADMSG,
                                                        .sample_given = 1,
                                                        .sample = (uint64_t)worker->dataset->raises_at,
                                                        .slot = chunk->slot,
                                                        .first = chunk->first + i,
                                                        .text = "ValueError: bad value (augment.py:31)",
                                                        .exception = "builtins.ValueError",
                                                        .traceback = "Traceback:\n  augment\x1b\n"};
        }
        brought_send(&answer);
}

static inline void brought_on_message(struct brought_worker *worker, const int fds[2]) {
        static struct message answer;
        const struct message *message = &worker->message;

        if (message->type == MESSAGE_SETUP) {
                brought_on_setup(worker, fds);
        } else if (message->type == MESSAGE_SCAN) {
                answer = (struct message){.type = MESSAGE_INDEX, .index = {.samples = BROUGHT_SAMPLES}};
                brought_send(&answer);
        } else if (message->type == MESSAGE_ORDER) {
                worker->orders[message->order.epoch] = brought_map(fds[0], PROT_READ);
        } else if (message->type == MESSAGE_CONDEMNED) {
                worker->condemned = (int64_t)message->condemned.sample[0];
        } else if (message->type == MESSAGE_ASSIGN) {
                for (uint32_t i = 0; i < message->assign.n_chunk; i++)
                        brought_on_chunk(worker, &message->assign.chunk[i]);
        }
}

/* Its socket is descriptor 3, the leash descriptor 4. */
static inline _Noreturn void brought_work(const struct brought_dataset *dataset) {
        static struct brought_worker worker;
        int fds[SEQPACKET_FDS_MAX], r;
        struct fault fault;
        size_t n_fds;

        worker.dataset = dataset;
        fcntl(4, F_SETOWN, getpid());
        fcntl(4, F_SETSIG, SIGKILL);
        fcntl(4, F_SETFL, O_ASYNC);
        if (poll(&(struct pollfd){.fd = 4}, 1, 0) != 0)
                raise(SIGKILL);
        for (;;) {
                poll(&(struct pollfd){.fd = 3, .events = POLLIN}, 1, -1);
                r = message_receive(3, &worker.message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_WORKER, &fault);
                if (r == 0)
                        brought_on_message(&worker, fds);
                else if (r != MESSAGE_E_AGAIN)
                        _exit(0);
                for (size_t i = 0; r == 0 && i < n_fds; i++)
                        close(fds[i]);
        }
}

/* ---- the zygote ---- */

/* Only `a` and `b` stay open, as descriptors 3 and 4: what the test has open would be held by all forks. */
static inline void brought_keep(int a, int b) {
        a = fcntl(a, F_DUPFD, 1000);
        b = b < 0 ? b : fcntl(b, F_DUPFD, 1000);
        dup2(a, 3);
        if (b >= 0)
                dup2(b, 4);
        syscall(SYS_close_range, b < 0 ? 4U : 5U, ~0U, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, SIG_DFL); /* Check's handler would end the whole test */
}

/* False: it was answered with EAGAIN. */
static inline bool brought_may_fork(const struct message_fork *fork_message, const int fds[2],
                                    const struct brought_dataset *dataset) {
        struct message answer = {.type = MESSAGE_FORKED};
        static uint64_t asked_ns;

        asked_ns = asked_ns > 0 ? asked_ns : clock_ns();
        if (clock_ns() - asked_ns >= dataset->late_ms * (uint64_t)NS_PER_MS)
                return true;
        close(fds[0]);
        close(fds[1]);
        answer.forked = (struct message_forked){fork_message->daemon, fork_message->worker, EAGAIN, 0};
        message_send(3, &answer, NULL, 0);
        return false;
}

static inline void brought_fork(const struct message_fork *fork_message, int fds[2], pid_t *pid,
                                const struct brought_dataset *dataset) {
        struct message answer = {.type = MESSAGE_FORKED};
        int pidfd;

        *pid = fork();
        if (*pid == 0) {
                brought_keep(fds[0], fds[1]);
                brought_work(dataset);
        }
        close(fds[0]);
        close(fds[1]);
        pidfd = (int)syscall(SYS_pidfd_open, *pid, 0);
        answer.forked =
                (struct message_forked){fork_message->daemon, fork_message->worker, 0, (uint32_t)*pid};
        message_send(3, &answer, &pidfd, 1);
        close(pidfd);
}

static inline void brought_reap(const struct message_fork forks[], pid_t pids[], unsigned n) {
        struct message answer = {.type = MESSAGE_EXITED};
        int status;

        for (unsigned i = 0; i < n; i++) {
                if (pids[i] == 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
                        continue;
                pids[i] = 0;
                answer.exited =
                        (struct message_exited){forks[i].daemon, forks[i].worker,
                                                (uint8_t)(WIFSIGNALED(status) ? WTERMSIG(status) : 0),
                                                (uint8_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 0)};
                message_send(3, &answer, NULL, 0);
        }
}

static inline _Noreturn void brought_serve(const struct brought_dataset *dataset) {
        static struct message_fork forks[BROUGHT_FORKS_MAX];
        static pid_t pids[BROUGHT_FORKS_MAX];
        static struct message message;
        int fds[SEQPACKET_FDS_MAX];
        struct fault fault;
        unsigned n = 0;
        size_t n_fds;

        for (;;) {
                int r = message_receive(3, &message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_ZYGOTE, &fault);

                if (r == 0 && n < BROUGHT_FORKS_MAX) {
                        forks[n] = message.fork;
                        if (brought_may_fork(&message.fork, fds, dataset))
                                brought_fork(&message.fork, fds, &pids[n++], dataset);
                } else if (r == MESSAGE_E_AGAIN) {
                        poll(&(struct pollfd){.fd = 3, .events = POLLIN}, 1, 2);
                } else {
                        _exit(0);
                }
                brought_reap(forks, pids, n);
        }
}

static inline struct brought_zygote brought_zygote_start(const struct brought_dataset *dataset) {
        struct brought_zygote zygote;
        int pair[2];

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        zygote.pid = fork();
        if (zygote.pid == 0) {
                brought_keep(pair[1], -1);
                brought_serve(dataset);
        }
        close(pair[1]);
        zygote.socket = pair[0];
        return zygote;
}

static inline void brought_zygote_end(struct brought_zygote *zygote) {
        close(zygote->socket);
        kill(zygote->pid, SIGKILL);
        waitpid(zygote->pid, NULL, 0);
}
