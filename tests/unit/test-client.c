/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed against a daemon of our own (tests/support/fake-daemon.h): the flow of batches, and what goes
 * wrong. Where a job is, and how it goes on: test-client-positions.c. */

#include "client/pinfeed.h"
#include "tests/support/fake-daemon.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void script_two_epochs(struct fake *fake) {
        fake_send_batches(fake, 3);
        fake_wait_releases(fake, 3);
        fake_send_batches(fake, 3);
        fake_wait_close(fake);
}

START_TEST(test_epochs) {
        struct fake fake = {.script = script_two_epochs, .lookahead = 1};
        struct pinfeed_info info;
        struct pinfeed_field field;
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.seed = 5, .seed_given = true});
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.job, 7);
        ck_assert_uint_eq(info.samples, FAKE_SAMPLES);
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
                for (uint32_t row = 0; row < FAKE_SAMPLES; row += FAKE_SLOT_ROWS) {
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
        struct fake fake = {.script = script_three_batches, .lookahead = 1};
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
        struct fake fake = {.script = script_three_batches, .lookahead = 1};
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
        ck_assert_int_eq(pinfeed_next_timeout(job, &c, 30), -ETIMEDOUT);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job),
                                     "no batch came in 50 ms; you hold 1 of at most 2 batches and only 2 "
                                     "slots are guaranteed"));
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
        char words[128];

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        a = next(job);
        fake_stop(&fake);
        b = next(job);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pinfeed_next(job, &c), -EPIPE);
                snprintf(words, sizeof(words),
                         "pinfeedd (pid %d) is gone; a job with reconnect_s goes on with the next one",
                         getpid());
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
        struct pinfeed_batch *held, *batch;
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        held = next(job);
        assert_batch(held, 0, 0, 4);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pinfeed_next(job, &batch), -EIO);
                ck_assert_str_eq(pinfeed_error(job),
                                 "worker 3 died at sample 812 (cat/1.jpg, pid 99, signal 9)");
                /* What goes wrong in between has words of its own. */
                ck_assert_int_eq(pinfeed_batch_copy_async(held, 99, &batch, NULL), -EINVAL);
                ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "field 99"));
        }
        ck_assert_int_eq(pinfeed_dispatch(job), -EIO);
        ck_assert_int_eq(pinfeed_job_failed(job), -EIO);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static sem_t nothing_was_there;

static void script_foreign_loop(struct fake *fake) {
        sem_wait(&nothing_was_there);
        fake_send_batches(fake, 1);
        fake_wait_releases(fake, 1);
        fake_wait_close(fake);
}

START_TEST(test_foreign_loop) {
        struct fake fake = {.script = script_foreign_loop};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        struct pollfd entry = {.events = POLLIN};

        sem_init(&nothing_was_there, 0, 0);
        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        ck_assert_int_eq(pinfeed_dispatch(job), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        sem_post(&nothing_was_there);
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
        struct fake fake = {.script = script_stopped, .lookahead = 1};
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
        struct fake fake = {.script = script_stream, .lookahead = 1};
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
        struct fake refusing = {.refusals = 1, .refuse_error = ENOSPC},
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
        } larger = {.attach = {.size = sizeof(larger), .pipeline = "demo", .runtime_dir = fake_directory},
                    .newer = 1};
        static const struct {
                struct pinfeed_attach attach;
                int error;
        } cases[] = {
                {{.rank = 1}, -EINVAL},
                {{.rank = 2, .world_size = 2}, -EINVAL},
                {{.world_size = (1 << 20) + 1}, -EINVAL},
                {{.max_held_batches = (1 << 20) + 1}, -EINVAL},
                {{.batch_size = UINT32_C(1) << 31}, -EINVAL},
                {{.start_row = UINT64_C(1) << 63}, -EINVAL},
                {{.last_batch = 4}, -EINVAL},
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
        A(start_row, a->start_row = FAKE_SAMPLES)                                                            \
        A(start_elsewhere, a->start_row = 1)                                                                 \
        A(segments, a->batch_size = 6000; a->last_batch = 3)                                                 \
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
                b->segment[0].slot = FAKE_SLOTS;
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
        struct fake fake = {.script = script_bad_batch, .lookahead = 1};
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
        int failed;

        fake_make_directory();
        failed = run_suite(suite());
        rmdir(fake_directory);
        return failed;
}
