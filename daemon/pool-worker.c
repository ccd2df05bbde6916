/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One worker process.
 *
 *     start --> STARTING --INDEX--> IDLE <--ASSIGN / last answer--> BUSY
 *                  |  ^                \         |                  /
 *                SCAN INDEX             +-- socket closed, or told to end --> ENDING --> exit seen, freed
 *                  v  |
 *                SCANNING
 *
 * Two things tell that a worker is gone: its socket and its exit. They come in either order, and what the
 * worker said before it died may still lie in the socket when the exit is seen. So the exit drains the socket
 * first, and only then is the death reported, with the chunks that really were not finished. A worker whose
 * socket is gone but which still runs is killed: nobody can talk to it.
 *
 * Chunks are answered in the order in which they were given, so the list of a worker's chunks is a queue:
 * each answer must be to its head. Behind what the worker holds stand the chunks that were recalled from it
 * (pool-recall.c), of which it may only say that it has not touched them.
 *
 * How the process came to be is its own matter (process.c). One that a zygote forks is set up and told things
 * through its socket before anybody knows whether it will live; only chunks have to wait for that.
 *
 * A worker is never waited for. Its records are small and bounded by POOL_CHUNKS_MAX, so a send that would
 * block means that it has stopped reading: it is killed like one that talks nonsense. */

#include "daemon/pool.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "daemon/interpreter.h"
#include "daemon/log.h"
#include "daemon/stages.h"
#include "proto/worker-page.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void worker_free(struct pool_worker *worker) {
        if (worker->page)
                munmap(worker->page, WORKER_PAGE_BYTES);
        fd_closep(&worker->socket);
        free(worker);
}

/* The last of both handles is closed: nothing refers to the worker any more. */
static void on_closed(struct pool_worker *worker) {
        struct pool *pool = worker->pool;

        if (--worker->open_handles > 0)
                return;
        list_unlink(&worker->link);
        worker_free(worker);
        if (pool->stopping && list_is_empty(&pool->workers)) {
                pool->stopping = false;
                uv_timer_stop(&pool->kill_timer);
                pool->events->stopped(pool->context);
        }
}

static void on_poll_closed(uv_handle_t *handle) {
        on_closed(handle->data);
}

static void on_process_closed(struct process *process) {
        on_closed(container_of(process, struct pool_worker, process));
}

/* The handle goes before the descriptor: closing a handle takes its number out of libuv's epoll set, and by
 * then the number could be that of another peer, which would never be heard again. */
static void close_socket(struct pool_worker *worker) {
        if (worker->socket < 0)
                return;
        uv_close((uv_handle_t *)&worker->poll, on_poll_closed);
        fd_closep(&worker->socket);
}

/* It has been BUSY. */
static void stop_being_busy(struct pool_worker *worker) {
        uint64_t busy_ns = clock_ns() - worker->busy_since_ns;

        worker->busy_ns += busy_ns;
        worker->pool->busy_ns += busy_ns;
        worker->pool->n_busy--;
}

static void set_ending(struct pool_worker *worker) {
        if (worker->state == POOL_WORKER_ENDING)
                return;
        if (worker->state == POOL_WORKER_BUSY)
                stop_being_busy(worker);
        worker->state = POOL_WORKER_ENDING;
        worker->pool->n_workers--;
}

void pool_worker_end(struct pool_worker *worker, int signal) {
        set_ending(worker);
        process_kill(&worker->process, signal);
}

/* It is not waited for any longer, dead or alive. */
void pool_worker_abandon(struct pool_worker *worker) {
        if (worker->exited)
                return; /* it is being buried already */
        log_about(&(struct log_subject){.worker = &worker->number}, LOG_ERROR,
                  "worker %u (pid %d) was killed and has not ended: storage hangs? It is left to the kernel",
                  worker->number, worker->process.pid);
        worker->exited = true;
        close_socket(worker);
        process_close(&worker->process, on_process_closed);
}

/* It broke the protocol or does not read: what it holds comes back when its exit is seen. */
static void expel(struct pool_worker *worker, const char *reason) {
        fault_set(&worker->expelled, -EPROTO, "%s", reason);
        worker->expelled_ns = clock_ns();
        log_about(&(struct log_subject){.worker = &worker->number}, LOG_ERROR,
                  "worker %u (pid %d) is killed: %s", worker->number, worker->process.pid,
                  worker->expelled.text);
        close_socket(worker);
        process_kill(&worker->process, SIGKILL);
}

/* The head of the list was answered. */
static void drop_head(struct pool_worker *worker) {
        uint32_t *n = worker->n_chunks > 0 ? &worker->n_chunks : &worker->n_recalled;

        --*n;
        memmove(worker->chunks, worker->chunks + 1,
                (worker->n_chunks + worker->n_recalled) * sizeof(worker->chunks[0]));
        if (worker->n_chunks + worker->n_recalled > 0 || worker->state != POOL_WORKER_BUSY)
                return;
        stop_being_busy(worker);
        worker->state = POOL_WORKER_IDLE;
        worker->alone = false;
}

/* Takes the chunk off the worker's list; rows 0: the one that has this row. False: it does not hold it, or
 * has to answer for another one first. */
static bool take_chunk(struct pool_worker *worker, uint32_t slot, uint32_t first, uint32_t rows,
                       struct message_chunk *taken) {
        const struct message_chunk *chunk = &worker->chunks[0];

        if (worker->n_chunks == 0 || chunk->slot != slot || first < chunk->first ||
            first >= chunk->first + chunk->rows)
                return false;
        if (rows > 0 && (first != chunk->first || rows != chunk->rows))
                return false;
        *taken = *chunk;
        drop_head(worker);
        return true;
}

static void measure(struct pool *pool, const struct message_part *part) {
        double row_ns = (double)part->busy_ns / part->rows;

        pool->row_ns = pool->row_ns > 0 ? 0.75 * pool->row_ns + 0.25 * row_ns : row_ns;
}

static void on_done(struct pool_worker *worker, const struct message_done *done) {
        struct pool *pool = worker->pool;
        struct message_chunk taken;
        uint32_t n = 0;

        for (; n < done->n_part; n++) {
                const struct message_part *part = &done->part[n];

                if (!take_chunk(worker, part->slot, part->first, part->rows, &taken)) {
                        expel(worker, "it finished a chunk that it was not given");
                        break;
                }
                worker->rows += part->rows;
                measure(pool, part);
        }
        /* Those before a wrong one count: nobody else would ever give them back. */
        if (n > 0)
                pool->events->done(pool->context, done->part, n);
}

static void on_broken(struct pool_worker *worker, const struct message_broken *broken) {
        struct message_chunk lost = {};

        if (broken->sample_given && !take_chunk(worker, broken->slot, broken->first, 0, &lost)) {
                expel(worker, "it reported a sample of a chunk that it was not given");
                return;
        }
        worker->pool->events->broken(worker->pool->context, worker, broken,
                                     broken->sample_given ? &lost : NULL);
}

/* Nobody recalls a chunk that was given later than the last recall, however it ended. */
static bool may_return(const struct pool_worker *worker, const struct message_returned *returned) {
        const struct message_chunk *chunk = &worker->chunks[0];

        return worker->n_chunks + worker->n_recalled > 0 && chunk->slot == returned->slot &&
               chunk->first == returned->first && chunk->rows == returned->rows &&
               pool_first_ordinal(worker) <= worker->asked;
}

static void on_returned(struct pool_worker *worker, const struct message_returned *returned) {
        struct pool *pool = worker->pool;
        struct message_chunk chunk = worker->chunks[0];
        bool held = worker->n_chunks > 0;

        if (!may_return(worker, returned)) {
                expel(worker, "it returned a chunk that was not recalled");
                return;
        }
        drop_head(worker);
        if (held) { /* the recall was given up, and the worker had seen it */
                pool->chunks_recalled++;
                pool->events->recalled(pool->context, &chunk, 1);
        } else if (worker->n_recalled == 0) {
                atomic_store_explicit(&worker->page->recalled, 0, memory_order_seq_cst);
        }
        pool->events->resumed(pool->context);
}

static void on_message(struct pool_worker *worker, const struct message *message, int *fd) {
        struct pool *pool = worker->pool;

        if (worker->state == POOL_WORKER_ENDING)
                return; /* said before it heard that it is to end */
        if (message->type == MESSAGE_DONE) {
                on_done(worker, &message->done);
        } else if (message->type == MESSAGE_BROKEN) {
                on_broken(worker, &message->broken);
        } else if (message->type == MESSAGE_RETURNED) {
                on_returned(worker, &message->returned);
        } else if (message->type == MESSAGE_REPLACED) {
                pool->events->replaced(pool->context, worker, &message->replaced);
        } else if (worker->state != POOL_WORKER_SCANNING || message->type == MESSAGE_DESCRIBED) {
                expel(worker, "it sent a message out of turn");
        } else if (message->type == MESSAGE_SCANNING) {
                pool->events->scanning(pool->context, message->scanning.files, message->scanning.classes);
        } else {
                worker->state = POOL_WORKER_STARTING; /* it gets the index back like all others */
                pool->events->scanned(pool->context, &message->index, fd_take(fd));
        }
}

/* One message. False: nothing more to read now, or ever. */
static bool receive(struct pool_worker *worker) {
        int fds[SEQPACKET_FDS_MAX];
        struct message message;
        struct fault fault;
        size_t n_fds;
        int r;

        if (worker->socket < 0)
                return false;
        r = message_receive(worker->socket, &message, fds, &n_fds, MESSAGE_BY_WORKER, &fault);
        if (r == MESSAGE_E_AGAIN)
                return false;
        if (r == MESSAGE_E_CLOSED || r == -ECONNRESET) {
                close_socket(worker);
                process_kill(&worker->process, SIGKILL);
                return false;
        }
        if (r < 0) {
                expel(worker, fault.text);
                return false;
        }
        {
                _cleanup_(fd_closep) int fd = n_fds > 0 ? fds[0] : -1;

                on_message(worker, &message, &fd);
        }
        return true;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
        /* One record a turn: under load every peer has one, and the loop's own wait is the cheaper "is there
         * more?". After an error libuv watches no longer: all that is left is read now. */
        while (receive(poll->data) && status < 0)
                ;
}

static void on_exited(struct process *process) {
        struct pool_worker *worker = container_of(process, struct pool_worker, process);
        struct pool *pool = worker->pool;
        bool expected = worker->state == POOL_WORKER_ENDING;

        worker->exited = true;
        while (receive(worker))
                ;
        pool->cpu_ns_of_dead += pool_worker_cpu_ns(worker);
        stages_add_page(&pool->stages_of_dead, worker->page);
        set_ending(worker);
        close_socket(worker);
        process_close(&worker->process, on_process_closed);
        if (worker->stuck)
                pool->events->returned(pool->context, worker);
        else if (!expected)
                pool->events->died(pool->context, worker);
}

void pool_worker_send(struct pool_worker *worker, const struct message *message, int fd) {
        int r;

        if (worker->socket < 0)
                return;
        r = message_send(worker->socket, message, &fd, fd >= 0 ? 1 : 0);
        if (r == -EPIPE || r == -ECONNRESET)
                return; /* its exit will be seen, and then says more */
        if (r < 0) {
                char reason[128];

                snprintf(reason, sizeof(reason), "cannot send %s to it: %s", message_name(message->type),
                         strerror(-r));
                expel(worker, reason);
        }
}

/* The page that both processes write, each its own words. It must say "idle" before the worker lives: zeroes
 * would mean sample 0, begun when the machine started, to whoever looks before the worker has come so far. */
static int make_page(struct pool_worker *worker, int *page_fd, struct fault *fault) {
        static const struct worker_page idle = {.sample = WORKER_PAGE_IDLE, .chunk_slot = WORKER_PAGE_IDLE};
        _cleanup_(fd_closep) int fd = shm_create_memfd("pinfeed-worker-page");
        void *page;

        if (fd < 0)
                return fault_set(fault, fd, "cannot make a worker's page: %s", strerror(-fd));
        if (ftruncate(fd, WORKER_PAGE_BYTES) < 0)
                return fault_set(fault, -errno, "cannot size a worker's page: %s", strerror(errno));
        if (pwrite(fd, &idle, sizeof(idle), 0) != (ssize_t)sizeof(idle))
                return fault_set(fault, -EIO, "cannot write a worker's page");
        page = mmap(NULL, WORKER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                return fault_set(fault, -errno, "cannot map a worker's page: %s", strerror(errno));
        worker->page = page;
        *page_fd = fd_take(&fd);
        return 0;
}

/* By this process, or by a zygote if the pool has one. */
static int start_process(struct pool_worker *worker, int socket, struct fault *fault) {
        struct pool *pool = worker->pool;
        const char *const ours[] = {pool->program, NULL};

        if (pool->zygote)
                return process_fork(&worker->process, pool->loop, pool->zygote, worker->number, pool->nice,
                                    socket, fault);
        return process_spawn(&worker->process, pool->loop,
                             pool->interpreter ? pool->interpreter->arguments : ours, pool->nice, socket,
                             fault);
}

int pool_worker_start(struct pool *pool, const struct message_setup *setup, int ring_fd,
                      struct fault *fault) {
        _cleanup_(fd_closep) int page_fd = -1, theirs = -1;
        struct message message = {.type = MESSAGE_SETUP};
        struct pool_worker *worker;
        int pair[2], r;

        worker = calloc(1, sizeof(*worker));
        if (!worker)
                return fault_set(fault, -ENOMEM, "no memory for a worker");
        *worker = (struct pool_worker){.pool = pool, .number = pool->next_number, .socket = -1};
        list_init(&worker->link);
        process_init(&worker->process, on_exited);
        worker->poll.data = worker;
        r = make_page(worker, &page_fd, fault);
        if (r >= 0 && (r = seqpacket_pair(pair)) < 0)
                fault_set(fault, r, "cannot make a worker's socket: %s", strerror(-r));
        if (r < 0) {
                worker_free(worker);
                return r;
        }
        worker->socket = pair[0];
        theirs = pair[1];
        r = uv_poll_init(pool->loop, &worker->poll, worker->socket);
        if (r < 0) {
                worker_free(worker);
                return fault_set(fault, r, "cannot watch a worker's socket: %s", uv_strerror(r));
        }
        list_append(&pool->workers, &worker->link);
        worker->open_handles = 2; /* a process has to be closed even if nothing was started */
        r = start_process(worker, theirs, fault);
        if (r < 0) {
                worker->state = POOL_WORKER_ENDING;
                worker->exited = true;
                close_socket(worker);
                process_close(&worker->process, on_process_closed);
                return r;
        }
        uv_poll_start(&worker->poll, UV_READABLE, on_readable);
        worker->started_ns = clock_ns();
        pool->n_workers++;
        pool->next_number++;
        message.setup = *setup;
        message.setup.worker = worker->number;
        r = message_send(worker->socket, &message, (int[]){ring_fd, page_fd}, 2);
        if (r < 0 && r != -EPIPE && r != -ECONNRESET)
                expel(worker, strerror(-r));
        return 0;
}
