/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed when its daemon goes away: daemons of our own (tests/support/fake-daemon.h) die and come,
 * refuse, hang and lie, and batches are released by other threads meanwhile. */

#include "base/clock.h"
#include "client/pinfeed.h"
#include "tests/support/fake-daemon.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char said[65536]; /* by the progress callback */

static void collect(void *context, const char *text) {
        size_t used = strlen(said);

        snprintf(said + used, sizeof(said) - used, "%s\n", text);
}

static unsigned count_maps(void) {
        FILE *file = fopen("/proc/self/maps", "r");
        char line[512];
        unsigned n = 0;

        ck_assert_ptr_nonnull(file);
        while (fgets(line, sizeof(line), file))
                n += strstr(line, "fake-daemon") != NULL;
        fclose(file);
        return n;
}

static void script_one(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

static void script_dies(struct fake *fake) {
        fake_send_batches(fake, 1);
}

static void script_dies_late(struct fake *fake) {
        fake_send_batches(fake, 3);
}

static void assert_asks_for(const struct fake *fake, uint32_t epoch, uint64_t row) {
        ck_assert_str_eq(fake->request.pipeline, "demo");
        ck_assert_str_eq(fake->request.name, "name");
        ck_assert_str_eq(fake->request.group, "group");
        ck_assert_uint_eq(fake->request.start_epoch, epoch);
        ck_assert_uint_eq(fake->request.start_row, row);
        ck_assert_uint_eq(fake->request.state_given, 1);
        ck_assert_uint_eq(fake->request.force, 0);
        ck_assert_str_eq(fake->request.fingerprint, FAKE_FINGERPRINT);
        ck_assert_uint_eq(fake->request.seed_given, 1);
        ck_assert_uint_eq(fake->request.seed, 5);
        ck_assert_uint_eq(fake->request.state_seed, 5);
        ck_assert_uint_eq(fake->request.batch_size, 4);
        ck_assert_uint_eq(fake->request.last_batch, PINFEED_LAST_BATCH_SHORT);
        ck_assert_uint_eq(fake->request.max_held, 4);
}

/* What is held stays, what was queued comes from the next daemon, and the old ring goes with its last batch.
 */
START_TEST(test_reconnect) {
        struct fake first = {.script = script_dies_late, .mark = 1},
                    second = {.script = script_one, .mark = 2};
        char name[] = "name", group[] = "group";
        struct pinfeed_batch *a, *b, *c;
        struct pinfeed_info info;
        struct pinfeed_field field;
        struct pinfeed_job *job;
        int fd;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60, .name = name, .group = group});
        fd = pinfeed_fd(job);
        name[0] = group[0] = '-'; /* they were the caller's */
        ck_assert_int_eq(pinfeed_job_field(job, 0, &field), 0);
        a = next(job);
        b = next(job);
        fake_stop(&first);
        ck_assert_int_eq(pinfeed_dispatch(job), 0); /* takes in the third one, and that it was the last */
        ck_assert_int_lt(fcntl(fd, F_GETFD), 0);
        ck_assert_uint_eq(count_maps(), 1);
        fake_start(&second);
        c = next(job);
        assert_batch(c, 0, 8, 2);
        assert_asks_for(&second, 0, 8);
        ck_assert_int_eq(pinfeed_batch_ids(c, 0, NULL)[0], 201008);
        assert_batch(b, 0, 4, 4);
        ck_assert_int_eq(pinfeed_batch_ids(a, 0, NULL)[0], 101000);
        ck_assert_str_eq(field.name, "x");
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.reconnects, 1);
        ck_assert_uint_eq(info.batches_first_epoch, 3);

        ck_assert_uint_eq(count_maps(), 3);
        release(b);
        ck_assert_int_eq(pinfeed_batch_release(b), -EALREADY);
        assert_batch(a, 0, 0, 4);
        ck_assert_uint_eq(count_maps(), 3);
        release(a);
        ck_assert_uint_eq(count_maps(), 2);
        ck_assert_int_eq(pinfeed_batch_release(a), -EALREADY);
        ck_assert_ptr_null(pinfeed_batch_data(a, 0, 0, NULL));
        expect_end(job);
        release(c);
        pinfeed_close(job);
        fake_stop(&second);
        ck_assert_uint_eq(second.released, 1);
        ck_assert_uint_eq(count_maps(), 0);
}
END_TEST

/* The caller sends the job elsewhere before it asks for anything. */
static void script_unread_at_first(struct fake *fake) {
        fake_wait_seek(fake);
        ck_assert_uint_eq(fake->reads, 0);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 2);
        fake_wait_releases(fake, 2);
        ck_assert_uint_eq(fake->reads, 1);
}

/* Each daemon is told once that the job reads, from the caller's first question on. */
START_TEST(test_says_that_it_reads) {
        struct fake first = {.script = script_unread_at_first}, second = {.script = script_one};
        struct pinfeed_job *job;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60});
        ck_assert_int_eq(pinfeed_job_seek(job, 0, 0), 0);
        expect_batch(job, 0, 0, 4);
        expect_batch(job, 0, 4, 4);
        fake_stop(&first);
        fake_start(&second);
        expect_batch(job, 0, 8, 2);
        pinfeed_close(job);
        fake_stop(&second);
        ck_assert_uint_eq(second.reads, 1);
}
END_TEST

static void script_dies_at_end(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_releases(fake, 1);
}

/* Daemons come and go; the end of an epoch is said once, before or after. */
START_TEST(test_reconnect_at_end) {
        struct fake first = {.script = script_dies_at_end}, second = {.script = script_dies_at_end};
        struct fake third = {.script = script_one};
        struct pinfeed_job *job;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60, .start_row = 8});
        expect_batch(job, 0, 8, 2);
        fake_stop(&first);
        fake_start(&second);
        ck_assert_int_eq(pinfeed_dispatch(job), 0); /* notices that the first one is gone */
        expect_end(job);
        expect_batch(job, 1, 0, 4);
        fake_stop(&second);
        fake_start(&third);
        expect_batch(job, 1, 4, 4);
        ck_assert_uint_eq(second.request.start_epoch, 1);
        ck_assert_uint_eq(second.request.start_row, 0);
        ck_assert_uint_eq(third.request.start_epoch, 1);
        ck_assert_uint_eq(third.request.start_row, 4);
        pinfeed_close(job);
        fake_stop(&third);
}
END_TEST

/* Without a daemon nothing blocks that should not, and a loop of the caller's own finds the next one. */
START_TEST(test_reconnect_without_waiting) {
        struct fake first = {.script = script_dies}, second = {.script = script_one};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;
        uint64_t started = clock_ns();

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60});
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        ck_assert_int_eq(pinfeed_dispatch(job), 0);
        ck_assert_int_eq(pinfeed_fd(job), -EAGAIN);
        for (int i = 0; i < 100; i++) {
                ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
                ck_assert_str_eq(pinfeed_error(job), "");
                ck_assert_int_eq(pinfeed_dispatch(job), 0);
        }
        ck_assert_uint_lt(clock_ns() - started, NS_PER_S);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 30), -ETIMEDOUT);
        ck_assert_ptr_nonnull(
                strstr(pinfeed_error(job), "no pinfeedd for 0 s (reconnect_s is 60): no pinfee"));
        expect_state(job, 0, 4);
        ck_assert_int_eq(pinfeed_job_seek(job, 2, 4), 0); /* goes there at once when it can */

        fake_start(&second);
        while ((batch = NULL, pinfeed_next_timeout(job, &batch, 0)) == -EAGAIN) {
                struct pollfd entry = {.fd = pinfeed_fd(job), .events = POLLIN};

                poll(&entry, 1, 20);
                ck_assert_int_eq(pinfeed_dispatch(job), 0);
        }
        ck_assert_ptr_nonnull(batch);
        assert_batch(batch, 2, 4, 4);
        ck_assert_uint_eq(second.request.start_epoch, 2);
        pinfeed_close(job);
        fake_stop(&second);
}
END_TEST

/* While the job is asked back, the caller goes elsewhere. */
static void script_attaches_late(struct fake *fake) {
        while (!fake->released)
                usleep(1000);
        fake->released = 0;
        fake_send_attached(fake);
        fake_send_batches(fake, 1);
        fake_wait_seek(fake);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

START_TEST(test_seek_while_attaching) {
        struct fake first = {.script = script_dies};
        struct fake second = {.script = script_attaches_late, .script_attaches = true};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60});
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        fake_start(&second);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 200), -ETIMEDOUT);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "is not ready again in 200 ms"));
        ck_assert_int_eq(pinfeed_job_seek(job, 6, 2), 0);
        second.released = 1; /* go on */
        expect_batch(job, 6, 2, 4);
        pinfeed_close(job);
        fake_stop(&second);
        ck_assert_uint_eq(second.request.start_epoch, 0);
        ck_assert_uint_eq(second.request.start_row, 4);
        ck_assert_uint_eq(second.released, 2);
}
END_TEST

START_TEST(test_no_other_daemon) {
        struct fake fake = {.script = script_dies};
        struct pinfeed_job *job;
        struct pinfeed_batch *held;
        uint64_t started;

        fake_start(&fake);
        said[0] = 0;
        job = open_job((struct pinfeed_attach){.reconnect_s = 1, .progress = collect});
        held = next(job);
        fake_stop(&fake);
        started = clock_ns();
        for (int i = 0; i < 2; i++)
                expect_error(job, -EPIPE,
                             "no pinfeedd took the job again in 1 s (reconnect_s): no pinfeedd listens on");
        ck_assert_uint_ge(clock_ns() - started, NS_PER_S * 9 / 10);
        ck_assert_int_eq(pinfeed_fd(job), -EPIPE);
        ck_assert_ptr_nonnull(strstr(said, "waiting for pinfeedd to come back: 0 s of 1\n"));
        assert_batch(held, 0, 0, 4);
        expect_state(job, 0, 4);
        release(held);
        pinfeed_close(job);
}
END_TEST

/* Somebody listens at the daemon's place who does nothing. */
static int listen_only(int backlog) {
        char path[128];
        int fd;

        snprintf(path, sizeof(path), "%s/%s", fake_directory, RUNTIME_JOB_SOCKET);
        fd = seqpacket_listen(path, backlog);
        ck_assert_int_ge(fd, 0);
        return fd;
}

static void listen_end(int fd) {
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", fake_directory, RUNTIME_JOB_SOCKET);
        unlink(path);
        close(fd);
}

START_TEST(test_daemon_that_does_not_answer) {
        struct fake fake = {.script = script_dies};
        struct pinfeed_job *job, *others[4];
        int fd;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.reconnect_s = 1});
        expect_batch(job, 0, 0, 4);
        fake_stop(&fake);
        fd = listen_only(4);
        expect_error(job, -EPIPE, "has taken the connection and does not answer");
        pinfeed_close(job);
        listen_end(fd);

        fd = listen_only(0);
        for (int i = 0; i < 4; i++)
                ck_assert_int_eq(open_with(&others[i], (struct pinfeed_attach){.timeout_ms = 50}),
                                 -ETIMEDOUT);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(others[0]), "is not ready in time"));
        ck_assert_ptr_nonnull(strstr(pinfeed_error(others[3]), "does not take connections"));
        for (int i = 0; i < 4; i++)
                pinfeed_close(others[i]);
        listen_end(fd);
}
END_TEST

/* Each batch starts the time anew: a job can lose a daemon every hour. */
START_TEST(test_time_runs_anew) {
        struct fake first = {.script = script_dies}, second = {.script = script_dies},
                    third = {.script = script_one};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 1});
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        fake_start(&second);
        expect_batch(job, 0, 4, 4);
        fake_stop(&second);
        usleep(1200000); /* longer than reconnect_s after the first loss, and nobody has noticed another */
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 50), -ETIMEDOUT);
        fake_start(&third);
        expect_batch(job, 0, 8, 2);
        pinfeed_close(job);
        fake_stop(&third);
}
END_TEST

/* No room yet: it is asked again. Refused for good: it is not. */
START_TEST(test_reconnect_refused) {
        static const struct {
                int error;
                bool passes;
        } cases[] = {{ENOSPC, true},  {EAGAIN, true},  {ESHUTDOWN, true}, {EMFILE, true},
                     {ESTALE, false}, {ENOENT, false}, {EINVAL, false},   {EPERM, false}};
        struct fake first = {.script = script_dies};
        struct fake second = {.script = cases[_i].passes ? script_one : NULL,
                              .refusals = cases[_i].passes ? 2 : 1,
                              .refuse_error = (uint16_t)cases[_i].error};
        struct pinfeed_job *job;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60});
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        fake_start(&second);
        if (cases[_i].passes)
                expect_batch(job, 0, 4, 4);
        else
                expect_error(job, -cases[_i].error, "no room for you");
        pinfeed_close(job);
        fake_stop(&second);
}
END_TEST

static void alter_fingerprint(struct message_attached *a) {
        a->fingerprint[3]++;
}

static void alter_fields(struct message_attached *a) {
        a->field[0].dtype = SCHEMA_FLOAT32;
}

static void alter_start(struct message_attached *a) {
        a->start_row = 8;
}

static void alter_batch_size(struct message_attached *a) {
        a->batch_size = 5;
}

/* A daemon that takes the job, but not as it was. */
START_TEST(test_reconnect_changed) {
        static const struct {
                void (*alter)(struct message_attached *a);
                int error;
                const char *words;
        } cases[] = {{alter_fingerprint, -ESTALE, "the pipeline has changed: its fingerprint is"},
                     {alter_fields, -ESTALE, "the pipeline has changed: its fields"},
                     {alter_start, -EPROTO, "starts at row 8 of epoch 0 where row 4"},
                     {alter_batch_size, -EPROTO, "batches of 5 rows"}};
        struct fake first = {.script = script_dies},
                    second = {.script = fake_wait_close, .alter = cases[_i].alter};
        struct pinfeed_job *job;

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.reconnect_s = 60});
        expect_batch(job, 0, 0, 4);
        fake_stop(&first);
        fake_start(&second);
        expect_error(job, cases[_i].error, cases[_i].words);
        pinfeed_close(job);
        fake_stop(&second);
}
END_TEST

static void script_hangs_up(struct fake *fake) {
}

/* A daemon that dies while the first attach is under way has taken the job. */
START_TEST(test_open_again) {
        struct fake first = {.script = script_hangs_up, .script_attaches = true};
        struct pinfeed_job *job;

        fake_start(&first);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){0}), -EPIPE);
        pinfeed_close(job);
        fake_stop(&first);

        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){.reconnect_s = 60}), -ENOENT);
        pinfeed_close(job);

        fake_start(&first);
        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){.reconnect_s = 60, .timeout_ms = 300}),
                         -ETIMEDOUT);
        pinfeed_close(job);
        fake_stop(&first);
}
END_TEST

/* ---- threads ---- */

enum {
        LIVES = 12,
        LIFE_BATCHES = 300,
        THREADS = 3,
};

/* Sends as long as the job releases, then dies in the middle of it. */
static void script_life(struct fake *fake) {
        fake_send_batches(fake, 4);
        for (unsigned sent = 4; sent < LIFE_BATCHES;) {
                uint64_t before = fake->released;

                if (!fake_receive(fake))
                        return;
                fake_count_release(fake);
                for (uint64_t n = fake->released - before; n > 0; n--, sent++)
                        fake_send_batches(fake, 1);
        }
}

struct hand_over {
        struct pinfeed_batch *_Atomic slot[THREADS];
        atomic_bool end;
};

static struct hand_over hand_over;

/* Releases what it finds: in time, after the daemon has died, after the next has come. */
static void *release_run(void *data) {
        struct pinfeed_batch *_Atomic *slot = data, *batch;

        while (!atomic_load(&hand_over.end)) {
                batch = atomic_exchange(slot, NULL);
                if (!batch) {
                        sched_yield();
                        continue;
                }
                if (pinfeed_batch_release(batch) != 0 || pinfeed_batch_release(batch) == 0)
                        abort();
        }
        return NULL;
}

/* One daemon after another, each as soon as the one before it has died. */
static void *lives_run(void *data) {
        struct fake *fakes = data;

        for (int i = 0; i < LIVES; i++) {
                if (i > 0)
                        fake_start(&fakes[i]);
                fake_stop(&fakes[i]);
        }
        return NULL;
}

static void hand(struct pinfeed_batch *batch, unsigned thread) {
        struct pinfeed_batch *expected;

        for (;;) {
                expected = NULL;
                if (atomic_compare_exchange_strong(&hand_over.slot[thread], &expected, batch))
                        return;
                sched_yield();
        }
}

/* Batches are released by other threads while daemons die and come; every row comes once and in order. */
START_TEST(test_threads_reconnect) {
        struct fake fakes[LIVES];
        pthread_t threads[THREADS], lives;
        struct pinfeed_batch *batch;
        struct pinfeed_info info;
        struct pinfeed_job *job;
        uint32_t epoch = 0;
        uint64_t row = 0;
        unsigned n = 0;
        int r;

        for (int i = 0; i < LIVES; i++)
                fakes[i] = (struct fake){.script = script_life, .lookahead = 1};
        fake_start(&fakes[0]);
        job = open_job((struct pinfeed_attach){.reconnect_s = 2});
        pthread_create(&lives, NULL, lives_run, fakes);
        for (int i = 0; i < THREADS; i++)
                pthread_create(&threads[i], NULL, release_run, &hand_over.slot[i]);
        while ((r = pinfeed_next(job, &batch)) >= 0 || r == -EBUSY) {
                if (r == 0) {
                        ck_assert_uint_eq(row, FAKE_SAMPLES);
                        epoch++;
                        row = 0;
                } else if (r == 1) {
                        ck_assert_uint_eq(pinfeed_batch_epoch(batch), epoch);
                        ck_assert_uint_eq(pinfeed_batch_row(batch), row);
                        row += pinfeed_batch_rows(batch);
                        hand(batch, n++ % THREADS);
                }
        }
        ck_assert_msg(r == -EPIPE, "%d: %s", r, pinfeed_error(job));
        for (int i = 0; i < THREADS; i++)
                hand(NULL, (unsigned)i);
        atomic_store(&hand_over.end, true);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        pthread_join(lives, NULL);
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.reconnects, LIVES - 1);
        ck_assert_uint_ge(n, LIVES * (LIFE_BATCHES / 2));
        pinfeed_close(job);
        ck_assert_uint_eq(count_maps(), 0);
}
END_TEST

static Suite *suite(void) {
        Suite *suite = suite_create("client-reconnect");
        TCase *reconnect = tcase_create("reconnect");

        tcase_set_timeout(reconnect, 60);
        tcase_add_test(reconnect, test_reconnect);
        tcase_add_test(reconnect, test_says_that_it_reads);
        tcase_add_test(reconnect, test_reconnect_at_end);
        tcase_add_test(reconnect, test_reconnect_without_waiting);
        tcase_add_test(reconnect, test_seek_while_attaching);
        tcase_add_test(reconnect, test_no_other_daemon);
        tcase_add_test(reconnect, test_daemon_that_does_not_answer);
        tcase_add_test(reconnect, test_time_runs_anew);
        tcase_add_loop_test(reconnect, test_reconnect_refused, 0, 8);
        tcase_add_loop_test(reconnect, test_reconnect_changed, 0, 4);
        tcase_add_test(reconnect, test_open_again);
        tcase_add_test(reconnect, test_threads_reconnect);
        suite_add_tcase(suite, reconnect);
        return suite;
}

int main(void) {
        int failed;

        fake_make_directory();
        failed = run_suite(suite());
        rmdir(fake_directory);
        return failed;
}
