/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed against a daemon of our own, in a thread of this process: it says exactly what a case needs,
 * right or wrong, which the real one would not. It has 3 slots of 4 rows; field "x" is two int32 per row,
 * (row + 100 * epoch, slot). */

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "base/shm.h"
#include "client/pinfeed.h"
#include "proto/message.h"
#include "proto/position.h"
#include "proto/runtime.h"
#include "proto/schema.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        SLOTS = 3,
        SLOT_ROWS = 4,
        SAMPLES = 10,
};

static char directory[64];

struct fake {
        void (*script)(struct fake *fake); /* runs when ATTACHED is sent */
        bool script_attaches;              /* or when ATTACH has come */
        void (*alter)(struct message_attached *attached);
        uint16_t major;
        bool refuse;
        uint64_t ring_short; /* bytes that the ring's file lacks */

        pthread_t thread;
        int listener, socket, ring;
        uint8_t *base;
        struct schema schema;
        struct message message; /* scratch */
        struct message_attach request;
        struct position_plan plan;
        struct position position;
        uint64_t number;
        _Atomic uint64_t released; /* numbers in RELEASE records */
        uint64_t release_records;
};

static void fake_send(struct fake *fake, const int *fds, size_t n_fds) {
        int r;

        while ((r = message_send(fake->socket, &fake->message, fds, n_fds)) == -EAGAIN)
                poll(&(struct pollfd){.fd = fake->socket, .events = POLLOUT}, 1, 1000);
        ck_assert_int_eq(r, 0);
}

/* Waits for a message of the job. False: the job has hung up. */
static bool fake_receive(struct fake *fake) {
        int fds[SEQPACKET_FDS_MAX];
        struct fault fault;
        size_t n_fds;
        int r;

        while ((r = message_receive(fake->socket, &fake->message, fds, &n_fds, MESSAGE_BY_JOB, &fault)) ==
               MESSAGE_E_AGAIN)
                poll(&(struct pollfd){.fd = fake->socket, .events = POLLIN}, 1, -1);
        if (r == MESSAGE_E_CLOSED)
                return false;
        ck_assert_msg(r == 0, "%s", fault.text);
        return true;
}

static void fake_wait_releases(struct fake *fake, uint64_t n) {
        while (fake->released < n && fake_receive(fake)) {
                ck_assert_int_eq(fake->message.type, MESSAGE_RELEASE);
                fake->released += fake->message.release.n_number;
                fake->release_records++;
        }
        ck_assert_uint_eq(fake->released, n);
}

static void fake_wait_close(struct fake *fake) {
        while (fake_receive(fake))
                fake->released += fake->message.release.n_number;
}

/* Writes the rows and makes the message for the next batch; its slots are those of its rows, modulo SLOTS. */
static struct message_batches *fake_make_batch(struct fake *fake) {
        struct message_batches *batches = &fake->message.batches;
        struct position p = fake->position;
        struct message_batch *batch = &batches->batch[0];

        fake->message.type = MESSAGE_BATCHES;
        memset(batches, 0, sizeof(*batches));
        batches->n_batch = 1;
        *batch = (struct message_batch){
                .number = fake->number++, .row = p.row, .epoch = p.epoch, .rows = p.rows, .ready_ns = 1};
        for (uint64_t row = p.row; row < p.row + p.rows; row++) {
                uint32_t slot = row / SLOT_ROWS % SLOTS, first = row % SLOT_ROWS;
                uint8_t *start = fake->base + slot * fake->schema.slot_stride;
                int32_t *x = (int32_t *)(start + fake->schema.fields[0].offset) + first * 2;

                if (row == p.row || first == 0)
                        batches->segment[batches->n_segment++] =
                                (struct message_segment){.slot = slot, .first = first};
                batches->segment[batches->n_segment - 1].rows++;
                x[0] = (int32_t)(row + 100 * p.epoch);
                x[1] = (int32_t)slot;
                ((int64_t *)(start + fake->schema.ids_offset))[first] = (int64_t)(1000 + row);
                start[fake->schema.flags_offset + first] = row == 3;
        }
        batch->segments = (uint16_t)batches->n_segment;
        fake->position = position_next(&fake->plan, p);
        return batches;
}

static void fake_send_batches(struct fake *fake, unsigned n) {
        while (n-- > 0) {
                fake_make_batch(fake);
                fake_send(fake, NULL, 0);
        }
}

static void fake_send_attached(struct fake *fake) {
        struct message_attached *a = &fake->message.attached;
        const struct schema *s = &fake->schema;

        fake->message.type = MESSAGE_ATTACHED;
        *a = (struct message_attached){
                .job = 7,
                .samples = SAMPLES,
                .seed = 5,
                .start_epoch = fake->request.start_epoch,
                .start_row = fake->request.start_row,
                .batch_size = SLOT_ROWS,
                .last_batch = fake->request.last_batch ? fake->request.last_batch : MESSAGE_MAP_READ_ONLY,
                .max_held = fake->request.max_held,
                .minimum = 2,
                .map = MESSAGE_MAP_READ_ONLY,
                .slots = SLOTS,
                .slot_rows = SLOT_ROWS,
                .slot_stride = s->slot_stride,
                .slot_bytes = s->slot_bytes,
                .ids_offset = s->ids_offset,
                .flags_offset = s->flags_offset,
                .n_field = 1,
                .sharing = "alone",
        };
        a->field[0] = (struct message_field){.name = "x",
                                             .dtype = SCHEMA_INT32,
                                             .n_shape = 1,
                                             .shape = {2},
                                             .offset = s->fields[0].offset,
                                             .capacity = s->fields[0].capacity};
        if (fake->alter)
                fake->alter(a);
        fake_send(fake, &fake->ring, 1);
}

static void fake_make_ring(struct fake *fake) {
        uint64_t bytes;

        fake->schema.n_fields = 1;
        fake->schema.fields[0] =
                (struct schema_field){.name = "x", .dtype = SCHEMA_INT32, .n_dims = 1, .shape = {2}};
        ck_assert_int_eq(schema_lay_out(&fake->schema, SLOT_ROWS, NULL), 0);
        ck_assert_int_eq(schema_ring_bytes(&fake->schema, SLOTS, &bytes), 0);
        fake->ring = shm_create_memfd("test-client");
        ck_assert_int_ge(fake->ring, 0);
        ck_assert_int_eq(ftruncate(fake->ring, (off_t)(bytes - fake->ring_short)), 0);
        fake->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fake->ring, 0);
        ck_assert_ptr_ne(fake->base, MAP_FAILED);
}

static void *fake_run(void *data) {
        struct fake *fake = data;

        poll(&(struct pollfd){.fd = fake->listener, .events = POLLIN}, 1, 10000);
        fake->socket = accept(fake->listener, NULL, NULL);
        ck_assert_int_ge(fake->socket, 0);
        ck_assert_int_eq(fd_set_nonblocking(fake->socket, true), 0);
        ck_assert(fake_receive(fake));
        ck_assert_int_eq(fake->message.type, MESSAGE_HELLO);
        ck_assert_uint_eq(fake->message.hello.major, MESSAGE_MAJOR);

        fake->message.hello.major = fake->major;
        fake_send(fake, NULL, 0);
        if (fake->refuse) {
                /* closes without having read ATTACH, as a daemon in a hurry may */
                fake->message.type = MESSAGE_REFUSED;
                fake->message.refused = (struct message_refused){.error = ENOSPC, .text = "no room for you"};
                fake_send(fake, NULL, 0);
        } else {
                ck_assert(fake_receive(fake));
                ck_assert_int_eq(fake->message.type, MESSAGE_ATTACH);
                fake->request = fake->message.attach;
                fake->plan = (struct position_plan){
                        .samples = SAMPLES,
                        .batch_size = SLOT_ROWS,
                        .world_size = 1,
                        .last_batch = fake->request.last_batch ? fake->request.last_batch : LAST_BATCH_SHORT};
                fake->position =
                        position_first(&fake->plan, fake->request.start_epoch, fake->request.start_row);
                if (!fake->script_attaches)
                        fake_send_attached(fake);
                fake->script(fake);
        }
        close(fake->socket);
        return NULL;
}

static void fake_start(struct fake *fake) {
        char path[128];

        if (!fake->major)
                fake->major = MESSAGE_MAJOR;
        fake_make_ring(fake);
        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_JOB_SOCKET);
        unlink(path); /* of a case that failed */
        fake->listener = seqpacket_listen(path, 4);
        ck_assert_int_ge(fake->listener, 0);
        ck_assert_int_eq(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
}

static void fake_stop(struct fake *fake) {
        char path[128];

        ck_assert_int_eq(pthread_join(fake->thread, NULL), 0);
        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_JOB_SOCKET);
        unlink(path);
        close(fake->listener);
        close(fake->ring);
        munmap(fake->base, (SLOTS - 1) * fake->schema.slot_stride + fake->schema.slot_bytes);
}

static int open_with(struct pinfeed_job **job, struct pinfeed_attach attach) {
        attach.size = sizeof(attach);
        attach.pipeline = "demo";
        attach.runtime_dir = directory;
        if (!attach.timeout_ms)
                attach.timeout_ms = 5000;
        return pinfeed_open(job, &attach);
}

static struct pinfeed_job *open_job(struct pinfeed_attach attach) {
        struct pinfeed_job *job;
        int r = open_with(&job, attach);

        ck_assert_msg(r == 0, "%d: %s", r, pinfeed_error(job));
        return job;
}

static struct pinfeed_batch *next(struct pinfeed_job *job) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(job, &batch);

        ck_assert_msg(r == 1, "%d: %s", r, pinfeed_error(job));
        ck_assert_ptr_nonnull(batch);
        return batch;
}

static void assert_batch(const struct pinfeed_batch *batch, uint32_t epoch, uint64_t row, uint32_t rows) {
        int32_t x[2 * SLOT_ROWS];

        ck_assert_uint_eq(pinfeed_batch_epoch(batch), epoch);
        ck_assert_uint_eq(pinfeed_batch_row(batch), row);
        ck_assert_uint_eq(pinfeed_batch_rows(batch), rows);
        ck_assert_int_eq(pinfeed_batch_copy(batch, 0, x, sizeof(x)), (int64_t)(rows * 2 * sizeof(int32_t)));
        for (uint32_t i = 0; i < rows; i++) {
                ck_assert_int_eq(x[2 * i], (int32_t)(row + i + 100 * epoch));
                ck_assert_int_eq(x[2 * i + 1], (int32_t)((row + i) / SLOT_ROWS % SLOTS));
        }
}

static void script_two_epochs(struct fake *fake) {
        fake_send_batches(fake, 3);
        fake_wait_releases(fake, 3);
        fake_send_batches(fake, 3);
        fake_wait_close(fake);
}

START_TEST(test_epochs) {
        struct fake fake = {.script = script_two_epochs};
        struct pinfeed_info info;
        struct pinfeed_field field;
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.seed = 5, .seed_given = true});
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.job, 7);
        ck_assert_uint_eq(info.samples, SAMPLES);
        ck_assert_uint_eq(info.batches_per_epoch, 3);
        ck_assert_uint_eq(info.max_held_batches, 4);
        ck_assert_str_eq(info.map, "read-only");
        ck_assert_str_eq(info.sharing, "alone");
        ck_assert_int_eq(info.daemon_pid, getpid());
        ck_assert_int_eq(pinfeed_job_field(job, 0, &field), 0);
        ck_assert_str_eq(field.name, "x");
        ck_assert_uint_eq(field.row_bytes, 8);
        ck_assert_int_eq(pinfeed_job_field(job, 1, &field), -EINVAL);

        for (uint32_t epoch = 0; epoch < 2; epoch++) {
                for (uint32_t row = 0; row < SAMPLES; row += SLOT_ROWS) {
                        uint32_t rows;

                        batch = next(job);
                        assert_batch(batch, epoch, row, row == 8 ? 2 : 4);
                        ck_assert_uint_eq(pinfeed_batch_segments(batch), 1);
                        ck_assert_int_eq(pinfeed_batch_ids(batch, 0, &rows)[0], 1000 + row);
                        ck_assert_uint_eq(rows, row == 8 ? 2 : 4);
                        ck_assert_uint_eq(pinfeed_batch_flags(batch, 0, NULL)[rows - 1],
                                          row == 0 ? PINFEED_ROW_REPLACED : 0);
                        ck_assert_ptr_null(pinfeed_batch_data(batch, 1, 0, &rows));
                        ck_assert_uint_eq(rows, 0);
                        ck_assert_ptr_null(pinfeed_batch_data(batch, 0, 1, NULL));
                        ck_assert_int_eq(pinfeed_batch_copy(batch, 0, NULL, 15), -ENOSPC);
                        ck_assert_int_eq(pinfeed_batch_copy(batch, 1, NULL, 0), -EINVAL);
                        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
                }
                /* known at once: the daemon has sent nothing about it */
                ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), 0);
                ck_assert_ptr_null(batch);
        }
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        ck_assert_ptr_null(pinfeed_close(job));
        fake_stop(&fake);
        ck_assert_uint_eq(fake.released, 6);
        ck_assert_str_eq(fake.request.pipeline, "demo");
        ck_assert_uint_eq(fake.request.seed_given, 1);
}
END_TEST

/* The third batch's slots are those of the first. */
static void script_three_batches(struct fake *fake) {
        fake_send_batches(fake, 2);
        fake_wait_releases(fake, 2);
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

/* Starting at row 2, batches lie in two slots each. */
START_TEST(test_segments) {
        struct fake fake = {.script = script_three_batches};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        uint32_t rows;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.start_epoch = 3, .start_row = 2});
        batch = next(job);
        assert_batch(batch, 3, 2, 4);
        ck_assert_uint_eq(pinfeed_batch_segments(batch), 2);
        ck_assert_int_eq(((const int32_t *)pinfeed_batch_data(batch, 1, 0, &rows))[0], 304);
        ck_assert_uint_eq(rows, 2);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        batch = next(job);
        assert_batch(batch, 3, 6, 4);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), 0);
        assert_batch(next(job), 4, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* With drop and too few rows left, the first epoch is over before it begins. */
START_TEST(test_empty_remainder) {
        struct fake fake = {.script = script_three_batches};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.start_row = 7, .last_batch = PINFEED_LAST_BATCH_DROP});
        ck_assert_int_eq(pinfeed_next(job, &batch), 0); /* epoch 0: rows 7 to 9 are too few */
        for (uint64_t row = 0; row < 8; row += 4) {
                batch = next(job);
                assert_batch(batch, 1, row, 4);
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        ck_assert_int_eq(pinfeed_next(job, &batch), 0);
        assert_batch(next(job), 2, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static void script_two_batches(struct fake *fake) {
        fake_send_batches(fake, 2);
        fake_wait_close(fake);
}

START_TEST(test_misuse) {
        struct fake fake = {.script = script_two_batches};
        struct pinfeed_job *job;
        struct pinfeed_batch *a, *b, *c;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.max_held_batches = 2});
        a = next(job);
        b = next(job);
        ck_assert_int_eq(pinfeed_next(job, &c), -EBUSY);
        ck_assert_ptr_null(c);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "you hold 2 batches"));

        ck_assert_int_eq(pinfeed_batch_release(a), 0);
        ck_assert_int_eq(pinfeed_batch_release(a), -EALREADY);
        ck_assert_ptr_null(pinfeed_batch_data(a, 0, 0, NULL));
        ck_assert_uint_eq(pinfeed_batch_rows(a), 0);
        ck_assert_int_eq(pinfeed_batch_release((struct pinfeed_batch *)((char *)b + 1)), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_release((struct pinfeed_batch *)&fake), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_release((struct pinfeed_batch *)8), -EINVAL);
        ck_assert_int_eq(pinfeed_batch_release(NULL), -EINVAL);
        assert_batch(b, 0, 4, 4);

        ck_assert_int_eq(pinfeed_next_timeout(job, &c, 20), -ETIMEDOUT);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job),
                                     "you hold 1 of at most 2 batches and only 2 slots are guaranteed"));
        pinfeed_close(job);
        ck_assert_int_eq(pinfeed_batch_release(b), -EINVAL);
        ck_assert_ptr_null(pinfeed_batch_data(b, 0, 0, NULL));
        fake_stop(&fake);
        ck_assert_uint_eq(fake.released, 1);

        ck_assert_int_eq(pinfeed_next(NULL, &c), -EINVAL);
        ck_assert_ptr_null(pinfeed_close(NULL));
        ck_assert_str_eq(pinfeed_error(NULL), "");
}
END_TEST

static void script_gone(struct fake *fake) {
        fake_send_batches(fake, 2);
}

/* What came before the end is good, and can still be released. */
START_TEST(test_daemon_gone) {
        struct fake fake = {.script = script_gone};
        struct pinfeed_job *job;
        struct pinfeed_batch *a, *b, *c;
        char words[64];

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        a = next(job);
        fake_stop(&fake);
        b = next(job);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pinfeed_next(job, &c), -EPIPE);
                snprintf(words, sizeof(words), "pinfeedd (pid %d) is gone", getpid());
                ck_assert_str_eq(pinfeed_error(job), words);
        }
        assert_batch(a, 0, 0, 4);
        assert_batch(b, 0, 4, 4);
        ck_assert_int_eq(pinfeed_batch_release(a), -EPIPE);
        ck_assert_int_eq(pinfeed_batch_release(a), -EALREADY);
        pinfeed_close(job);
}
END_TEST

static void script_failed(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake->message.type = MESSAGE_FAILED;
        fake->message.failed = (struct message_failed){.error = EIO,
                                                       .sample_given = 1,
                                                       .sample = 812,
                                                       .worker = 3,
                                                       .pid = 99,
                                                       .signal = 9,
                                                       .file = "cat/1.jpg",
                                                       .text = "worker 3 died at sample 812"};
        fake_send(fake, NULL, 0);
}

START_TEST(test_failed) {
        struct fake fake = {.script = script_failed};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        assert_batch(next(job), 0, 0, 4);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pinfeed_next(job, &batch), -EIO);
                ck_assert_str_eq(pinfeed_error(job),
                                 "worker 3 died at sample 812 (cat/1.jpg, pid 99, signal 9)");
        }
        ck_assert_int_eq(pinfeed_dispatch(job), -EIO);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static void script_foreign_loop(struct fake *fake) {
        usleep(20000);
        fake_send_batches(fake, 1);
        fake_wait_releases(fake, 1);
        fake_wait_close(fake);
}

START_TEST(test_foreign_loop) {
        struct fake fake = {.script = script_foreign_loop};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        struct pollfd entry = {.events = POLLIN};

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        ck_assert_int_eq(pinfeed_dispatch(job), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        entry.fd = pinfeed_fd(job);
        ck_assert_int_eq(poll(&entry, 1, 5000), 1);
        ck_assert_int_eq(pinfeed_dispatch(job), 0);
        ck_assert_int_eq(poll(&entry, 1, 0), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), 1);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

START_TEST(test_fork) {
        struct fake fake = {.script = script_two_batches};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch, *other;
        int status;
        pid_t pid;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        batch = next(job);
        pid = fork();
        if (pid == 0) {
                bool good = pinfeed_next(job, &other) == -ECHILD && strstr(pinfeed_error(job), "fork()") &&
                            pinfeed_dispatch(job) == -ECHILD && pinfeed_fd(job) == -ECHILD &&
                            pinfeed_batch_release(batch) == -ECHILD &&
                            !pinfeed_batch_data(batch, 0, 0, NULL) && !pinfeed_close(job) &&
                            pinfeed_batch_release(batch) == -EINVAL;

                _exit(good ? 0 : 1);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        assert_batch(batch, 0, 0, 4);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        assert_batch(next(job), 0, 4, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

enum {
        MANY = 1000,
};

/* Reads nothing for a while, so that the job's socket is full. */
static void script_stopped(struct fake *fake) {
        for (unsigned i = 0; i < MANY; i++)
                fake_send_batches(fake, 1);
        while (!fake->released)
                usleep(1000);
        fake->released = 0;
        fake_send_batches(fake, 1);
        fake_wait_releases(fake, MANY + 1);
        fake_wait_close(fake);
}

START_TEST(test_full_socket) {
        struct fake fake = {.script = script_stopped};
        struct pinfeed_job *job;
        struct pinfeed_batch *batches[MANY], *batch;
        int r;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.max_held_batches = MANY});
        for (unsigned i = 0; i < MANY;) {
                r = pinfeed_next(job, &batches[i]);
                ck_assert_int_ge(r, 0);
                i += (unsigned)r;
        }
        for (unsigned i = 0; i < MANY; i++)
                ck_assert_int_eq(pinfeed_batch_release(batches[i]), 0);
        for (unsigned i = 0; i < MANY; i++)
                ck_assert_int_eq(pinfeed_batch_release(batches[i]), -EALREADY);
        fake.released = 1; /* go on */
        do
                r = pinfeed_next(job, &batch);
        while (r == 0);
        ck_assert_int_eq(r, 1);
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        for (int i = 0; i < 500 && fake.released != MANY + 1; i++)
                ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 10), -ETIMEDOUT);
        ck_assert_uint_eq(fake.released, MANY + 1);
        ck_assert_uint_lt(fake.release_records, MANY);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

enum {
        ROUNDS = 5000,
        THREADS = 3,
};

static void script_stream(struct fake *fake) {
        fake_send_batches(fake, 4);
        for (unsigned sent = 4; sent < ROUNDS;) {
                uint64_t before = fake->released;

                ck_assert(fake_receive(fake));
                fake->released += fake->message.release.n_number;
                for (uint64_t n = fake->released - before; n > 0 && sent < ROUNDS; n--, sent++)
                        fake_send_batches(fake, 1);
        }
        fake_wait_close(fake);
}

struct hand_over {
        struct pinfeed_batch *_Atomic slot[THREADS];
        atomic_bool end;
};

static struct hand_over hand_over;

static void *release_run(void *data) {
        struct pinfeed_batch *_Atomic *slot = data, *batch;

        while (!atomic_load(&hand_over.end)) {
                batch = atomic_exchange(slot, NULL);
                if (!batch) {
                        sched_yield();
                        continue;
                }
                ck_assert_int_eq(pinfeed_batch_release(batch), 0);
        }
        return NULL;
}

/* Batches are released by other threads while this one goes on. */
START_TEST(test_threads) {
        struct fake fake = {.script = script_stream};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch, *expected;
        pthread_t threads[THREADS];
        int r;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        for (int i = 0; i < THREADS; i++)
                pthread_create(&threads[i], NULL, release_run, &hand_over.slot[i]);
        for (unsigned n = 0; n < ROUNDS;) {
                do
                        r = pinfeed_next(job, &batch);
                while (r == -EBUSY);
                ck_assert_msg(r >= 0, "%s", pinfeed_error(job));
                if (r == 0)
                        continue;
                do {
                        expected = NULL;
                        if (atomic_compare_exchange_strong(&hand_over.slot[n % THREADS], &expected, batch))
                                break;
                        sched_yield();
                } while (true);
                n++;
        }
        for (int i = 0; i < THREADS; i++)
                while (atomic_load(&hand_over.slot[i]))
                        sched_yield();
        atomic_store(&hand_over.end, true);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(fake.released, ROUNDS);
}
END_TEST

static void script_progress(struct fake *fake) {
        static const struct message_progress steps[] = {{MESSAGE_STAGE_RESERVING, 128 << 20, 512 << 20},
                                                        {MESSAGE_STAGE_SCANNING, 120000, 0},
                                                        {MESSAGE_STAGE_STARTING, 1, 4}};

        for (int i = 0; i < 3; i++) {
                fake->message.type = MESSAGE_PROGRESS;
                fake->message.progress = steps[i];
                fake_send(fake, NULL, 0);
                usleep(150000);
        }
        fake_send_attached(fake);
        fake_wait_close(fake);
}

static void collect(void *context, const char *text) {
        strcat(strcat(context, text), "\n");
}

START_TEST(test_progress) {
        struct fake fake = {.script = script_progress, .script_attaches = true};
        char said[512] = "";

        fake_start(&fake);
        pinfeed_close(open_job((struct pinfeed_attach){.progress = collect, .progress_context = said}));
        fake_stop(&fake);
        ck_assert_str_eq(said, "reserving the ring: 128 of 512 MiB\n"
                               "scanning: 120,000 files\n"
                               "starting workers: 1 of 4\n");
}
END_TEST

static void script_silent(struct fake *fake) {
        fake_wait_close(fake);
}

START_TEST(test_refused) {
        struct pinfeed_job *job;
        struct fake refusing = {.refuse = true},
                    newer = {.script = script_silent, .script_attaches = true, .major = 2},
                    silent = {.script = script_silent, .script_attaches = true};

        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){0}), -ENOENT);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "no pinfeedd listens"));
        pinfeed_close(job);

        fake_start(&refusing);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){0}), -ENOSPC);
        ck_assert_str_eq(pinfeed_error(job), "no room for you");
        pinfeed_close(job);
        fake_stop(&refusing);

        fake_start(&newer);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){0}), -EPROTO);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "speaks protocol 2.0, this library 1.0"));
        pinfeed_close(job);
        fake_stop(&newer);

        fake_start(&silent);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){.timeout_ms = 30}), -ETIMEDOUT);
        pinfeed_close(job);
        fake_stop(&silent);
}
END_TEST

START_TEST(test_arguments) {
        struct {
                struct pinfeed_attach attach;
                uint64_t newer;
        } larger = {.attach = {.size = sizeof(larger), .pipeline = "demo", .runtime_dir = directory},
                    .newer = 1};
        static const struct {
                struct pinfeed_attach attach;
                int error;
        } cases[] = {
                {{.rank = 1}, -EINVAL},
                {{.world_size = 2}, -EOPNOTSUPP},
                {{.max_held_batches = (1 << 20) + 1}, -EINVAL},
                {{.batch_size = UINT32_C(1) << 31}, -EINVAL},
                {{.start_row = UINT64_C(1) << 63}, -EINVAL},
                {{.last_batch = 3}, -EINVAL},
        };
        struct pinfeed_job *job;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                ck_assert_int_eq(open_with(&job, cases[i].attach), cases[i].error);
                ck_assert_str_ne(pinfeed_error(job), "");
                pinfeed_close(job);
        }
        ck_assert_int_eq(pinfeed_open(&job, &larger.attach), -EINVAL);
        pinfeed_close(job);
        larger.newer = 0; /* a newer caller that asks for nothing new */
        ck_assert_int_eq(pinfeed_open(&job, &larger.attach), -ENOENT);
        pinfeed_close(job);
        larger.attach.pipeline = NULL;
        ck_assert_int_eq(pinfeed_open(&job, &larger.attach), -EINVAL);
        pinfeed_close(job);
        ck_assert_int_eq(pinfeed_open(&job, &(struct pinfeed_attach){.pipeline = "demo"}), -EINVAL);
        pinfeed_close(job);
}
END_TEST

#define ALTERATIONS(A)                                                                                       \
        A(slot_stride_odd, a->slot_stride += 1)                                                              \
        A(slot_stride_small, a->slot_stride = 4096)                                                          \
        A(slot_stride_huge, a->slot_stride = UINT64_C(1) << 62)                                              \
        A(slot_bytes_small, a->slot_bytes = 4096)                                                            \
        A(slots, a->slots = 4)                                                                               \
        A(slots_many, a->slots = 1 << 20)                                                                    \
        A(slot_rows, a->slot_rows = 5)                                                                       \
        A(slot_rows_huge, a->slot_rows = INT32_MAX)                                                          \
        A(ids_inside_field, a->ids_offset = 0)                                                               \
        A(ids_unaligned, a->ids_offset += 4)                                                                 \
        A(ids_huge, a->ids_offset = UINT64_MAX - 7)                                                          \
        A(flags_inside_ids, a->flags_offset = a->ids_offset)                                                 \
        A(flags_outside, a->flags_offset = a->slot_bytes - 3)                                                \
        A(field_outside, a->field[0].offset = a->slot_bytes)                                                 \
        A(field_unaligned, a->field[0].offset = 2)                                                           \
        A(field_capacity, a->field[0].capacity += 8)                                                         \
        A(field_shape, a->field[0].shape[0] = 3)                                                             \
        A(field_shape_huge, a->field[0].shape[0] = UINT64_C(1) << 62)                                        \
        A(field_order, a->field[0].order = 1)                                                                \
        A(start_row, a->start_row = SAMPLES)                                                                 \
        A(max_held, a->max_held = 5)

#define A(name, change)                                                                                      \
        static void alter_##name(struct message_attached *a) {                                               \
                change;                                                                                      \
        }
ALTERATIONS(A)
#undef A

static const struct {
        const char *name;
        void (*alter)(struct message_attached *attached);
} alterations[] = {
#define A(name, change) {#name, alter_##name},
        ALTERATIONS(A)
#undef A
};

START_TEST(test_bad_attached) {
        struct fake fake = {.script = script_silent, .alter = alterations[_i].alter};
        struct pinfeed_job *job;
        int r;

        fake_start(&fake);
        r = open_with(&job, (struct pinfeed_attach){0});
        ck_assert_msg(r == -EPROTO, "%s: %d %s", alterations[_i].name, r, pinfeed_error(job));
        ck_assert_str_ne(pinfeed_error(job), "");
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

START_TEST(test_short_ring) {
        struct fake fake = {.script = script_silent, .ring_short = 1};
        struct pinfeed_job *job;

        fake_start(&fake);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){0}), -EPROTO);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static int bad_batch;

static void script_bad_batch(struct fake *fake) {
        struct message_batches *b = fake_make_batch(fake);

        switch (bad_batch) {
        case 0:
                b->batch[0].number = 1;
                break;
        case 1:
                b->batch[0].row = 4;
                break;
        case 2:
                b->batch[0].epoch = 1;
                break;
        case 3:
                b->batch[0].rows = 3;
                break;
        case 4:
                b->segment[0].slot = SLOTS;
                break;
        case 5:
                b->segment[0].first = 1;
                break;
        case 6:
                b->segment[0].first = INT32_MAX;
                break;
        case 7:
                b->segment[0].rows = INT32_MAX;
                break;
        case 8:
                b->segment[0].rows = 3;
                break;
        case 9:
                b->batch[0].segments = 2;
                break;
        case 10:
                b->segment[1] = b->segment[0];
                b->n_segment = 2;
                break;
        case 11:
                for (int i = 0; i < 4; i++)
                        b->segment[i] = (struct message_segment){.rows = 1};
                b->n_segment = b->batch[0].segments = 4;
                break;
        case 12: /* more than max_held */
                fake_send(fake, NULL, 0);
                fake_send_batches(fake, 4);
                fake_wait_close(fake);
                return;
        case 13:
                fake_send_attached(fake);
                fake_wait_close(fake);
                return;
        }
        fake_send(fake, NULL, 0);
        fake_wait_close(fake);
}

START_TEST(test_bad_batch) {
        struct fake fake = {.script = script_bad_batch};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        int r;

        bad_batch = _i;
        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        do
                r = pinfeed_next(job, &batch);
        while (r >= 0 || r == -EBUSY); /* busy: the one too many is still on its way */
        ck_assert_msg(r == -EPROTO, "%d: %d %s", _i, r, pinfeed_error(job));
        ck_assert_str_ne(pinfeed_error(job), "");
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static Suite *suite(void) {
        Suite *suite = suite_create("client");
        TCase *flow = tcase_create("flow"), *wrong = tcase_create("wrong");

        tcase_set_timeout(flow, 60);
        tcase_add_test(flow, test_epochs);
        tcase_add_test(flow, test_segments);
        tcase_add_test(flow, test_empty_remainder);
        tcase_add_test(flow, test_daemon_gone);
        tcase_add_test(flow, test_failed);
        tcase_add_test(flow, test_foreign_loop);
        tcase_add_test(flow, test_full_socket);
        tcase_add_test(flow, test_threads);
        tcase_add_test(flow, test_progress);
        suite_add_tcase(suite, flow);

        tcase_add_test(wrong, test_misuse);
        tcase_add_test(wrong, test_fork);
        tcase_add_test(wrong, test_refused);
        tcase_add_test(wrong, test_arguments);
        tcase_add_test(wrong, test_short_ring);
        tcase_add_loop_test(wrong, test_bad_attached, 0, (int)(sizeof(alterations) / sizeof(alterations[0])));
        tcase_add_loop_test(wrong, test_bad_batch, 0, 14);
        suite_add_tcase(suite, wrong);
        return suite;
}

int main(void) {
        SRunner *runner;
        int failed;

        snprintf(directory, sizeof(directory), "/tmp/pinfeed-test-client-XXXXXX");
        if (!mkdtemp(directory))
                return 1;
        runner = srunner_create(suite());
        srunner_set_tap(runner, "-");
        srunner_run_all(runner, CK_SILENT);
        failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        rmdir(directory);
        return failed > 0;
}
