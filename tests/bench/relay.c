/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The yardstick for the hand-over: the least that a process between a worker and a trainer can do.
 *
 * A worker that sleeps `delay` and says DONE, a relay on uv_poll that answers with ASSIGN and passes BATCHES
 * on, a trainer that takes the handle and sends RELEASE: the same records as pinfeedd's, of the same length,
 * on the same kind of socket, but nothing is decoded, decided or remembered. What pinfeedd costs more than
 * this is what it does.
 *
 * Prints JSON: the time from "last row done" to "handle in the trainer", and the relay's CPU per batch. */

#include "base/clock.h"
#include "base/seqpacket.h"
#include "tests/bench/samples.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

/* Lengths of pinfeedd's records with one entry, see proto/PROTOCOL.md. */
enum {
        ASSIGN_BYTES = 42,
        DONE_BYTES = 42,
        BATCHES_BYTES = 64,
        RELEASE_BYTES = 18,
};

struct relay {
        int worker, trainer;
        uv_poll_t from_worker, from_trainer;
};

static void on_worker(uv_poll_t *poll, int status, int events) {
        struct relay *relay = poll->data;
        char record[256] = {};
        size_t length, n_fds;
        int fds[SEQPACKET_FDS_MAX];

        if (seqpacket_receive(relay->worker, record, sizeof(record), &length, fds, &n_fds) != 0) {
                uv_stop(poll->loop);
                return;
        }
        seqpacket_send(relay->trainer, record, BATCHES_BYTES, NULL, 0);
        seqpacket_send(relay->worker, record, ASSIGN_BYTES, NULL, 0);
}

static void on_trainer(uv_poll_t *poll, int status, int events) {
        struct relay *relay = poll->data;
        char record[256];
        size_t length, n_fds;
        int fds[SEQPACKET_FDS_MAX];

        seqpacket_receive(relay->trainer, record, sizeof(record), &length, fds, &n_fds);
}

static void run_relay(int worker, int trainer) {
        struct relay relay = {.worker = worker, .trainer = trainer};
        uv_loop_t loop;

        uv_loop_init(&loop);
        uv_poll_init(&loop, &relay.from_worker, worker);
        uv_poll_init(&loop, &relay.from_trainer, trainer);
        relay.from_worker.data = relay.from_trainer.data = &relay;
        uv_poll_start(&relay.from_worker, UV_READABLE, on_worker);
        uv_poll_start(&relay.from_trainer, UV_READABLE, on_trainer);
        uv_run(&loop, UV_RUN_DEFAULT);
}

/* Blocking receive on a non-blocking socket, as workers and trainers do it. */
static int receive(int fd, void *record, size_t size) {
        int fds[SEQPACKET_FDS_MAX], r;
        size_t length, n_fds;

        while ((r = seqpacket_receive(fd, record, size, &length, fds, &n_fds)) == SEQPACKET_E_AGAIN) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

                poll(&poll_fd, 1, -1);
        }
        return r;
}

static void run_worker(int relay, unsigned batches, unsigned delay_us, int niceness) {
        char record[256] = {};

        if (setpriority(PRIO_PROCESS, 0, niceness) < 0)
                perror("nice");
        for (unsigned i = 0; i < batches; i++) {
                struct timespec pause = {.tv_sec = delay_us / 1000000,
                                         .tv_nsec = (delay_us % 1000000) * 1000L};
                uint64_t now;

                nanosleep(&pause, NULL);
                now = clock_ns();
                memcpy(record + 8, &now, sizeof(now));
                seqpacket_send(relay, record, DONE_BYTES, NULL, 0);
                receive(relay, record, sizeof(record));
        }
}

static void run_trainer(int relay, unsigned batches, uint64_t *times) {
        char record[256] = {};

        for (unsigned i = 0; i < batches; i++) {
                uint64_t done;

                if (receive(relay, record, sizeof(record)) != 0)
                        break;
                memcpy(&done, record + 8, sizeof(done));
                times[i] = clock_ns() - done;
                seqpacket_send(relay, record, RELEASE_BYTES, NULL, 0);
        }
}

int main(int argc, char **argv) {
        unsigned batches = argc > 1 ? (unsigned)atoi(argv[1]) : 2000;
        unsigned delay_us = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
        int niceness = argc > 3 ? atoi(argv[3]) : 10;
        uint64_t *times = calloc(batches, sizeof(*times));
        struct rusage usage;
        int worker[2], trainer[2], status;
        pid_t relay_pid, worker_pid;

        if (!times || seqpacket_pair(worker) < 0 || seqpacket_pair(trainer) < 0)
                return 1;
        relay_pid = fork();
        if (relay_pid == 0) {
                close(worker[0]);
                close(trainer[1]);
                run_relay(worker[1], trainer[0]);
                _exit(0);
        }
        worker_pid = fork();
        if (worker_pid == 0) {
                close(worker[1]);
                run_worker(worker[0], batches, delay_us, niceness);
                _exit(0);
        }
        close(worker[0]);
        close(worker[1]);
        close(trainer[0]);
        run_trainer(trainer[1], batches, times);
        waitpid(worker_pid, &status, 0);
        wait4(relay_pid, &status, 0, &usage);
        samples_sort(times, batches);
        printf("{\"batches\": %u, \"handover_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}, "
               "\"cpu_us_per_batch\": %.2f}\n",
               batches, samples_quantile_us(times, batches, 0.5), samples_quantile_us(times, batches, 0.99),
               samples_quantile_us(times, batches, 1),
               ((double)usage.ru_utime.tv_sec * 1e6 + (double)usage.ru_utime.tv_usec +
                (double)usage.ru_stime.tv_sec * 1e6 + (double)usage.ru_stime.tv_usec) /
                       batches);
        free(times);
        return 0;
}
