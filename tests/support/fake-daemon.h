#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon for tests of libpinfeed, in a thread of the test's own process: it says exactly what a case needs,
 * right or wrong, which the real one would not.
 *
 * It has 10 samples in 3 slots of 4 rows; row v lies in slot v / 4. Field "x" is two int32 per row, (row +
 * 100 * epoch, slot); the sample number is row + 1000 + 100000 * mark, which tells one daemon's ring from
 * another's; row 3 is marked as replaced. Each takes one job, after as many refusals as a case wants. */

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
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAKE_FINGERPRINT "1.10.0123456789ab.0123456789ab.0123456789ab.o"

enum {
        FAKE_SLOTS = 3,
        FAKE_SLOT_ROWS = 4,
        FAKE_SAMPLES = 10,
        FAKE_WAIT_MS = 10000,
};

static char fake_directory[64];

struct fake {
        void (*script)(struct fake *fake); /* runs when ATTACHED is sent */
        bool script_attaches;              /* or when ATTACH has come */
        void (*alter)(struct message_attached *attached);
        uint16_t major;
        unsigned refusals; /* connections that are refused before one is taken */
        uint16_t refuse_error;
        uint64_t ring_short; /* bytes that the ring's file lacks */
        uint32_t lookahead;
        int64_t mark;

        pthread_t thread;
        int listener, socket, ring;
        uint8_t *base;
        struct schema schema;
        struct message message; /* scratch */
        struct message_attach request;
        uint32_t live_epoch; /* where a job that starts live begins */
        uint64_t live_row;
        struct message_seek seek;
        struct position_plan plan;
        struct position position;
        uint64_t number;
        _Atomic uint64_t released; /* numbers in RELEASE records */
        uint64_t release_records;
        _Atomic uint64_t reads; /* READ records */
        char heard[1024];       /* what tells or leads somewhere, in order: "BRING 41, ATTACH, SEEK 1+0" */
        int zygote, order;      /* what came with the last BRING and the last ORDER; 0: none has */
        struct message_order last_order;
};

static inline void fake_make_directory(void) {
        snprintf(fake_directory, sizeof(fake_directory), "/tmp/pinfeed-test-client-XXXXXX");
        if (!mkdtemp(fake_directory))
                abort();
}

/* A job that has seen enough may hang up before all is sent. */
static inline void fake_send(struct fake *fake, const int *fds, size_t n_fds) {
        int r;

        while ((r = message_send(fake->socket, &fake->message, fds, n_fds)) == -EAGAIN)
                poll(&(struct pollfd){.fd = fake->socket, .events = POLLOUT}, 1, 1000);
        ck_assert_msg(r == 0 || r == -EPIPE, "%s", strerror(-r));
}

/* Keeps a descriptor in place of the one before. */
static inline void fake_keep(int *kept, int fd) {
        if (*kept > 0)
                close(*kept);
        *kept = fd;
}

/* Whether the message is one that a script does not wait for: only counted, or written down. */
static inline bool fake_hear(struct fake *fake, const int *fds) {
        const struct message *message = &fake->message;
        char words[64] = "";

        fake->reads += message->type == MESSAGE_READ;
        if (message->type == MESSAGE_BRING) {
                snprintf(words, sizeof(words), "BRING %u", message->bring.pid);
                fake_keep(&fake->zygote, fds[0]);
        } else if (message->type == MESSAGE_ORDER) {
                snprintf(words, sizeof(words), "ORDER %u (%llu)", message->order.epoch,
                         (unsigned long long)message->order.entries);
                fake_keep(&fake->order, fds[0]);
                fake->last_order = message->order;
        } else if (message->type == MESSAGE_SEEK) {
                snprintf(words, sizeof(words), "SEEK %u+%llu", message->seek.epoch,
                         (unsigned long long)message->seek.row);
        } else if (message->type == MESSAGE_ATTACH || message->type == MESSAGE_DEFINE) {
                snprintf(words, sizeof(words), "%s", message_name(message->type));
        }
        if (*words && strlen(fake->heard) + sizeof(words) < sizeof(fake->heard))
                sprintf(fake->heard + strlen(fake->heard), "%s%s", *fake->heard ? ", " : "", words);
        return message->type == MESSAGE_READ || message->type == MESSAGE_BRING ||
               message->type == MESSAGE_ORDER || message->type == MESSAGE_DEFINE;
}

/* Waits for a message of the job that a script may wait for. False: the job has hung up. */
static inline bool fake_receive(struct fake *fake) {
        int fds[SEQPACKET_FDS_MAX];
        struct fault fault;
        size_t n_fds;
        int r;

        do {
                while ((r = message_receive(fake->socket, &fake->message, fds, &n_fds, MESSAGE_BY_JOB,
                                            &fault)) == MESSAGE_E_AGAIN)
                        poll(&(struct pollfd){.fd = fake->socket, .events = POLLIN}, 1, -1);
                if (r == MESSAGE_E_CLOSED || r == -ECONNRESET)
                        return false;
                ck_assert_msg(r == 0, "%s", fault.text);
        } while (fake_hear(fake, fds));
        return true;
}

static inline void fake_count_release(struct fake *fake) {
        ck_assert_int_eq(fake->message.type, MESSAGE_RELEASE);
        fake->released += fake->message.release.n_number;
        fake->release_records++;
}

static inline void fake_wait_releases(struct fake *fake, uint64_t n) {
        while (fake->released < n && fake_receive(fake))
                fake_count_release(fake);
        ck_assert_uint_eq(fake->released, n);
}

static inline void fake_wait_close(struct fake *fake) {
        while (fake_receive(fake))
                fake_count_release(fake);
}

/* Takes releases until a SEEK comes, which ends in fake->seek. */
static inline void fake_wait_seek(struct fake *fake) {
        for (;;) {
                ck_assert(fake_receive(fake));
                if (fake->message.type == MESSAGE_SEEK)
                        break;
                fake_count_release(fake);
        }
        fake->seek = fake->message.seek;
}

/* Answers the last SEEK; with an error the job stays where it is. */
static inline void fake_send_sought(struct fake *fake, uint16_t error, const char *text) {
        struct message_sought *sought = &fake->message.sought;

        if (!error)
                fake->position = position_first(&fake->plan, fake->seek.epoch, fake->seek.row);
        fake->message.type = MESSAGE_SOUGHT;
        *sought = (struct message_sought){.number = fake->number, .error = error};
        snprintf(sought->text, sizeof(sought->text), "%s", text);
        fake_send(fake, NULL, 0);
}

/* Writes one row, which lies in its slot as in the epoch. */
static inline void fake_write_row(struct fake *fake, uint32_t epoch, uint64_t row) {
        uint32_t slot = (uint32_t)row / FAKE_SLOT_ROWS, first = row % FAKE_SLOT_ROWS;
        uint8_t *start = fake->base + slot * fake->schema.slot_stride;
        int32_t *x = (int32_t *)(start + fake->schema.fields[0].offset) + first * 2;

        x[0] = (int32_t)(row + 100 * epoch);
        x[1] = (int32_t)slot;
        ((int64_t *)(start + fake->schema.ids_offset))[first] = (int64_t)(1000 + row) + 100000 * fake->mark;
        start[fake->schema.flags_offset + first] = row == 3;
}

/* Writes the rows and makes the message for the next batch. */
static inline struct message_batches *fake_make_batch(struct fake *fake) {
        struct message_batches *batches = &fake->message.batches;
        struct position p = fake->position;
        struct message_batch *batch = &batches->batch[0];

        fake->message.type = MESSAGE_BATCHES;
        memset(batches, 0, sizeof(*batches));
        batches->n_batch = 1;
        *batch = (struct message_batch){
                .number = fake->number++, .row = p.row, .epoch = p.epoch, .rows = p.rows, .ready_ns = 1};
        for (uint64_t v = p.row; v < p.row + p.rows; v++) {
                uint64_t row = v % FAKE_SAMPLES;

                fake_write_row(fake, p.epoch, row);
                if (v == p.row || row % FAKE_SLOT_ROWS == 0 || v == FAKE_SAMPLES)
                        batches->segment[batches->n_segment++] =
                                (struct message_segment){.slot = (uint32_t)row / FAKE_SLOT_ROWS,
                                                         .first = row % FAKE_SLOT_ROWS,
                                                         .flags = v >= FAKE_SAMPLES};
                batches->segment[batches->n_segment - 1].rows++;
        }
        batch->segments = (uint16_t)batches->n_segment;
        fake->position = position_next(&fake->plan, p);
        return batches;
}

static inline void fake_send_batches(struct fake *fake, unsigned n) {
        while (n-- > 0) {
                fake_make_batch(fake);
                fake_send(fake, NULL, 0);
        }
}

static inline void fake_send_attached(struct fake *fake) {
        struct message_attached *a = &fake->message.attached;
        const struct schema *s = &fake->schema;

        fake->message.type = MESSAGE_ATTACHED;
        *a = (struct message_attached){
                .job = 7,
                .samples = FAKE_SAMPLES,
                .seed = fake->request.seed_given ? fake->request.seed : 5,
                .start_epoch = fake->request.start == MESSAGE_START_LIVE ? fake->live_epoch
                                                                         : fake->request.start_epoch,
                .start_row =
                        fake->request.start == MESSAGE_START_LIVE ? fake->live_row : fake->request.start_row,
                .batch_size = fake->plan.batch_size,
                .last_batch = (uint8_t)fake->plan.last_batch,
                .max_held = fake->request.max_held,
                .minimum = 2,
                .map = MESSAGE_MAP_READ_ONLY,
                .slots = FAKE_SLOTS,
                .slot_rows = FAKE_SLOT_ROWS,
                .slot_stride = s->slot_stride,
                .slot_bytes = s->slot_bytes,
                .ids_offset = s->ids_offset,
                .flags_offset = s->flags_offset,
                .n_field = 1,
                .sharing = "alone",
                .lookahead = fake->lookahead,
                .fingerprint = FAKE_FINGERPRINT,
                .pipeline = "demo",
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

static inline void fake_make_ring(struct fake *fake) {
        uint64_t bytes;

        fake->schema.n_fields = 1;
        fake->schema.fields[0] =
                (struct schema_field){.name = "x", .dtype = SCHEMA_INT32, .n_dims = 1, .shape = {2}};
        ck_assert_int_eq(schema_lay_out(&fake->schema, FAKE_SLOT_ROWS, NULL), 0);
        ck_assert_int_eq(schema_ring_bytes(&fake->schema, FAKE_SLOTS, &bytes), 0);
        fake->ring = shm_create_memfd("fake-daemon");
        ck_assert_int_ge(fake->ring, 0);
        ck_assert_int_eq(ftruncate(fake->ring, (off_t)(bytes - fake->ring_short)), 0);
        fake->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fake->ring, 0);
        ck_assert_ptr_ne(fake->base, MAP_FAILED);
}

/* Takes a connection and greets. */
static inline void fake_accept(struct fake *fake) {
        ck_assert_int_eq(poll(&(struct pollfd){.fd = fake->listener, .events = POLLIN}, 1, FAKE_WAIT_MS), 1);
        fake->socket = accept(fake->listener, NULL, NULL);
        ck_assert_int_ge(fake->socket, 0);
        ck_assert_int_eq(fd_set_nonblocking(fake->socket, true), 0);
        ck_assert(fake_receive(fake));
        ck_assert_int_eq(fake->message.type, MESSAGE_HELLO);
        ck_assert_uint_eq(fake->message.hello.major, MESSAGE_MAJOR);
        fake->message.hello.major = fake->major;
        fake_send(fake, NULL, 0);
}

/* Closes without having read ATTACH, as a daemon in a hurry may. */
static inline void fake_refuse(struct fake *fake) {
        fake_accept(fake);
        fake->message.type = MESSAGE_REFUSED;
        fake->message.refused =
                (struct message_refused){.error = fake->refuse_error, .text = "no room for you"};
        fake_send(fake, NULL, 0);
        close(fake->socket);
}

static inline void fake_take_request(struct fake *fake) {
        const struct message_attach *request = &fake->request;

        ck_assert(fake_receive(fake));
        ck_assert_int_eq(fake->message.type, MESSAGE_ATTACH);
        fake->request = fake->message.attach;
        fake->plan = (struct position_plan){
                .samples = FAKE_SAMPLES,
                .batch_size = request->batch_size ? request->batch_size : FAKE_SLOT_ROWS,
                .rank = request->rank,
                .world_size = request->world_size,
                .last_batch = request->last_batch ? request->last_batch : LAST_BATCH_SHORT};
        fake->position = request->start == MESSAGE_START_LIVE
                                 ? position_first(&fake->plan, fake->live_epoch, fake->live_row)
                                 : position_first(&fake->plan, request->start_epoch, request->start_row);
}

static inline void *fake_run(void *data) {
        struct fake *fake = data;

        for (unsigned i = 0; i < fake->refusals; i++)
                fake_refuse(fake);
        if (!fake->script)
                return NULL;
        fake_accept(fake);
        fake_take_request(fake);
        if (!fake->script_attaches)
                fake_send_attached(fake);
        fake->script(fake);
        close(fake->socket);
        return NULL;
}

static inline void fake_start(struct fake *fake) {
        char path[128];

        if (!fake->major)
                fake->major = MESSAGE_MAJOR;
        fake_make_ring(fake);
        snprintf(path, sizeof(path), "%s/%s", fake_directory, RUNTIME_JOB_SOCKET);
        unlink(path); /* of a case that failed */
        fake->listener = seqpacket_listen(path, 4);
        ck_assert_int_ge(fake->listener, 0);
        ck_assert_int_eq(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
}

/* When its script is over; nobody listens afterwards. */
static inline void fake_stop(struct fake *fake) {
        char path[128];

        ck_assert_int_eq(pthread_join(fake->thread, NULL), 0);
        snprintf(path, sizeof(path), "%s/%s", fake_directory, RUNTIME_JOB_SOCKET);
        unlink(path);
        close(fake->listener);
        close(fake->ring);
        fake_keep(&fake->zygote, 0);
        fake_keep(&fake->order, 0);
        munmap(fake->base, (FAKE_SLOTS - 1) * fake->schema.slot_stride + fake->schema.slot_bytes);
}

static inline int open_with(struct pinfeed_job **job, struct pinfeed_attach attach) {
        attach.size = sizeof(attach);
        if (!attach.pipeline)
                attach.pipeline = "demo";
        attach.runtime_dir = fake_directory;
        if (!attach.timeout_ms)
                attach.timeout_ms = 5000;
        return pinfeed_open(job, &attach);
}

static inline struct pinfeed_job *open_job(struct pinfeed_attach attach) {
        struct pinfeed_job *job;
        int r = open_with(&job, attach);

        ck_assert_msg(r == 0, "%d: %s", r, pinfeed_error(job));
        return job;
}

static inline struct pinfeed_batch *next(struct pinfeed_job *job) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(job, &batch);

        ck_assert_msg(r == 1, "%d: %s", r, pinfeed_error(job));
        ck_assert_ptr_nonnull(batch);
        return batch;
}

static inline void assert_batch(const struct pinfeed_batch *batch, uint32_t epoch, uint64_t row,
                                uint32_t rows) {
        int32_t x[2 * FAKE_SAMPLES];

        ck_assert_uint_eq(pinfeed_batch_epoch(batch), epoch);
        ck_assert_uint_eq(pinfeed_batch_row(batch), row);
        ck_assert_uint_eq(pinfeed_batch_rows(batch), rows);
        ck_assert_int_eq(pinfeed_batch_copy(batch, 0, x, sizeof(x)), (int64_t)(rows * 2 * sizeof(int32_t)));
        for (uint32_t i = 0; i < rows; i++) {
                uint64_t place = (row + i) % FAKE_SAMPLES;

                ck_assert_int_eq(x[2 * i], (int32_t)(place + 100 * epoch));
                ck_assert_int_eq(x[2 * i + 1], (int32_t)(place / FAKE_SLOT_ROWS));
        }
}

static inline void release(struct pinfeed_batch *batch) {
        ck_assert_int_eq(pinfeed_batch_release(batch), 0);
}

/* The next batch is this one; releases it. */
static inline void expect_batch(struct pinfeed_job *job, uint32_t epoch, uint64_t row, uint32_t rows) {
        struct pinfeed_batch *batch = next(job);

        assert_batch(batch, epoch, row, rows);
        release(batch);
}

static inline void expect_end(struct pinfeed_job *job) {
        struct pinfeed_batch *batch;

        ck_assert_int_eq(pinfeed_next(job, &batch), 0);
        ck_assert_ptr_null(batch);
}

static inline void expect_error(struct pinfeed_job *job, int error, const char *words) {
        struct pinfeed_batch *batch;
        int r = pinfeed_next(job, &batch);

        ck_assert_msg(r == error && strstr(pinfeed_error(job), words), "%d: %s", r, pinfeed_error(job));
}

static inline void expect_state(struct pinfeed_job *job, uint32_t epoch, uint64_t row) {
        char text[PINFEED_STATE_MAX], expected[PINFEED_STATE_MAX];
        int length = pinfeed_job_state(job, text, sizeof(text));

        snprintf(expected, sizeof(expected),
                 "{\"pipeline\":\"demo\",\"fingerprint\":\"" FAKE_FINGERPRINT
                 "\",\"seed\":5,\"epoch\":%u,\"row\":%llu}",
                 epoch, (unsigned long long)row);
        ck_assert_str_eq(text, expected);
        ck_assert_int_eq(length, (int)strlen(expected));
}
