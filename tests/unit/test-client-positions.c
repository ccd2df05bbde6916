/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libpinfeed against a daemon of our own (tests/support/fake-daemon.h): where a job is. Ranks, tails and own
 * batch sizes, states, seeking. Going on with another daemon: test-client-reconnect.c. */

#include "base/clock.h"
#include "client/pinfeed.h"
#include "tests/support/fake-daemon.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- ranks, tails, batch sizes ---- */

static void script_one(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

static void script_two(struct fake *fake) {
        fake_send_batches(fake, 2);
        fake_wait_close(fake);
}

/* 10 rows by 3 ranks of 2: rows 0 to 5, and a tail of 4 rows, 2 for each rank. The last one's are padding. */
START_TEST(test_ranks) {
        static const struct {
                uint64_t first, second;
                uint32_t padding;
        } ranks[] = {{0, 6, 0}, {2, 8, 0}, {4, 10, 2}};
        struct fake fake = {.script = script_two};
        struct pinfeed_info info;
        struct pinfeed_batch *batch;
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){
                .rank = (uint32_t)_i, .world_size = 3, .batch_size = 2, .group = "run 1"});
        ck_assert_uint_eq(fake.request.rank, _i);
        ck_assert_uint_eq(fake.request.world_size, 3);
        ck_assert_str_eq(fake.request.group, "run 1");
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.rank, _i);
        ck_assert_uint_eq(info.world_size, 3);
        ck_assert_uint_eq(info.batch_size, 2);
        ck_assert_uint_eq(info.batches_per_epoch, 2);
        ck_assert_uint_eq(info.batches_first_epoch, 2);
        expect_batch(job, 0, ranks[_i].first, 2);
        expect_state(job, 0, 6);
        batch = next(job);
        assert_batch(batch, 0, ranks[_i].second, 2);
        ck_assert_uint_eq(pinfeed_batch_padding(batch), ranks[_i].padding);
        ck_assert_uint_eq(pinfeed_batch_flags(batch, 0, NULL)[1],
                          ranks[_i].padding ? PINFEED_ROW_PADDING : PINFEED_ROW_GOOD);
        expect_end(job);
        expect_state(job, 1, 0);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

START_TEST(test_padding) {
        static const uint8_t flags[3][4] = {
                {0, 0, 0, PINFEED_ROW_REPLACED}, {0}, {0, 0, PINFEED_ROW_PADDING, PINFEED_ROW_PADDING}};
        struct fake fake = {.script = script_one, .mark = 2};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake.script = _i == 0 ? script_one : script_two;
        fake_start(&fake);
        job = open_job(
                (struct pinfeed_attach){.last_batch = PINFEED_LAST_BATCH_PAD, .start_row = _i == 2 ? 4 : 0});
        ck_assert_uint_eq(fake.request.last_batch, PINFEED_LAST_BATCH_PAD);
        for (int i = _i == 2 ? 1 : 0; i <= _i; i++) {
                uint64_t row = 4 * (uint64_t)i;
                int64_t ids[4];
                uint8_t copied[4];
                uint32_t rows;

                batch = next(job);
                assert_batch(batch, 0, row, 4);
                ck_assert_uint_eq(pinfeed_batch_padding(batch), i == 2 ? 2 : 0);
                ck_assert_uint_eq(pinfeed_batch_segments(batch), i == 2 ? 2 : 1);
                ck_assert_int_eq(pinfeed_batch_copy_ids(batch, ids, sizeof(ids)), sizeof(ids));
                for (uint64_t k = 0; k < 4; k++)
                        ck_assert_int_eq(ids[k], 201000 + (int64_t)((row + k) % FAKE_SAMPLES));
                ck_assert_int_eq(pinfeed_batch_copy_flags(batch, copied, sizeof(copied)), 4);
                ck_assert_mem_eq(copied, flags[i], 4);
                ck_assert_int_eq(pinfeed_batch_copy_ids(batch, ids, sizeof(ids) - 1), -ENOSPC);
                ck_assert_int_eq(pinfeed_batch_copy_flags(batch, copied, 3), -ENOSPC);
                if (i == 2) {
                        ck_assert_uint_eq(pinfeed_batch_flags(batch, 1, &rows)[1], PINFEED_ROW_PADDING);
                        ck_assert_uint_eq(rows, 2);
                }
                release(batch);
                ck_assert_uint_eq(pinfeed_batch_padding(batch), 0);
                ck_assert_int_eq(pinfeed_batch_copy_ids(batch, ids, sizeof(ids)), -EINVAL);
                ck_assert_int_eq(pinfeed_batch_copy_flags(batch, copied, sizeof(copied)), -EINVAL);
        }
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

START_TEST(test_own_batch_size) {
        struct fake fake = {.script = script_two};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.batch_size = 7});
        batch = next(job);
        assert_batch(batch, 0, 0, 7);
        ck_assert_uint_eq(pinfeed_batch_segments(batch), 2);
        release(batch);
        expect_batch(job, 0, 7, 3);
        expect_end(job);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static int bad_segments;

/* Rows 8 and 9, and 0 and 1 as padding: all that may be said about them and is wrong. */
static void script_bad_padding(struct fake *fake) {
        struct message_batches *b = fake_make_batch(fake);
        struct message_segment first = b->segment[0];

        switch (bad_segments) {
        case 0:
                b->segment[1].flags = 0;
                break;
        case 1:
                b->segment[0].flags = MESSAGE_SEGMENT_PADDING;
                break;
        case 2:
                b->segment[0] = b->segment[1];
                b->segment[1] = first;
                break;
        case 3: /* one row too many is good */
                b->segment[0].rows = 3;
                b->segment[1].rows = 1;
                break;
        case 4: /* one too few */
                b->segment[0].rows = 1;
                b->segment[1].rows = 3;
                break;
        }
        fake_send(fake, NULL, 0);
        fake_wait_close(fake);
}

START_TEST(test_bad_padding) {
        struct fake fake = {.script = script_bad_padding};
        struct pinfeed_job *job;

        bad_segments = _i;
        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.last_batch = PINFEED_LAST_BATCH_PAD, .start_row = 8});
        expect_error(job, -EPROTO, "2 rows of padding");
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* ---- states ---- */

static void script_three(struct fake *fake) {
        fake_send_batches(fake, 3);
        fake_wait_close(fake);
}

START_TEST(test_state) {
        struct fake fake = {.script = script_three};
        struct pinfeed_job *job;
        char text[PINFEED_STATE_MAX];

        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){0}), -ENOENT);
        ck_assert_int_eq(pinfeed_job_state(job, text, sizeof(text)), -EINVAL);
        pinfeed_close(job);
        ck_assert_int_eq(pinfeed_job_state(NULL, text, sizeof(text)), -EINVAL);

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.start_epoch = 2, .start_row = 1});
        expect_state(job, 2, 1);
        expect_batch(job, 2, 1, 4);
        expect_state(job, 2, 5);
        ck_assert_int_eq(pinfeed_job_state(job, text, 40), -ENOSPC);
        expect_batch(job, 2, 5, 4);
        expect_batch(job, 2, 9, 1);
        expect_state(job, 3, 0);
        expect_end(job);
        expect_state(job, 3, 0);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* The daemon says where a job that starts live begins; a place of its own cannot be asked for beside. */
START_TEST(test_start_live) {
        struct fake fake = {.script = script_two, .live_epoch = 2, .live_row = 4};
        struct pinfeed_job *job;
        struct pinfeed_info info;

        ck_assert_int_eq(open_with(&job, (struct pinfeed_attach){.start = 2}), -EINVAL);
        pinfeed_close(job);
        ck_assert_int_eq(
                open_with(&job, (struct pinfeed_attach){.start = PINFEED_START_LIVE, .start_row = 4}),
                -EINVAL);
        pinfeed_close(job);

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.start = PINFEED_START_LIVE});
        ck_assert_uint_eq(fake.request.start, MESSAGE_START_LIVE);
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.batches_per_epoch, 3);
        ck_assert_uint_eq(info.batches_first_epoch, 2);
        expect_state(job, 2, 4);
        expect_batch(job, 2, 4, 4);
        expect_batch(job, 2, 8, 2);
        expect_end(job);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* Where drop leaves nothing of an epoch, its end is something to have been told. */
START_TEST(test_state_of_nothing) {
        struct fake fake = {.script = script_one};
        struct pinfeed_info info;
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.start_row = 8, .last_batch = PINFEED_LAST_BATCH_DROP});
        expect_state(job, 0, 8);
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.last_batch, PINFEED_LAST_BATCH_DROP);
        ck_assert_uint_eq(info.row, 8);
        ck_assert_uint_eq(info.batches_left, 0);
        expect_end(job);
        expect_state(job, 1, 0);
        pinfeed_job_info(job, &info);
        ck_assert_uint_eq(info.epoch, 1);
        ck_assert_uint_eq(info.row, 0);
        ck_assert_uint_eq(info.batches_left, 2);
        expect_batch(job, 1, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* As somebody's JSON may write it again. */
#define STATE_AGAIN                                                                                          \
        " {\"seed\" : 18446744073709551615, \"row\": 6,\n\"epoch\":4294967, "                                \
        "\"fingerprint\":\"a.1.s\", \"pipeline\": \"demo\"}"

START_TEST(test_attach_with_state) {
        struct fake fake = {.script = script_one};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.state = STATE_AGAIN, .start_epoch = 9, .start_row = 9});
        ck_assert_uint_eq(fake.request.state_given, 1);
        ck_assert_uint_eq(fake.request.force, 0);
        ck_assert_uint_eq(fake.request.state_seed, UINT64_MAX);
        ck_assert_uint_eq(fake.request.start_epoch, 4294967);
        ck_assert_uint_eq(fake.request.start_row, 6);
        ck_assert_uint_eq(fake.request.seed_given, 0);
        ck_assert_str_eq(fake.request.fingerprint, "a.1.s");
        expect_batch(job, 4294967, 6, 4);
        expect_state(job, 4294968, 0);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* A seed that jansson's integers do not hold comes back as it went out. */
START_TEST(test_large_seed) {
        struct fake first = {.script = script_one}, second = {.script = script_one};
        struct pinfeed_job *job;
        char text[PINFEED_STATE_MAX];

        fake_start(&first);
        job = open_job((struct pinfeed_attach){.seed_given = true, .seed = UINT64_MAX - 1});
        expect_batch(job, 0, 0, 4);
        ck_assert_int_gt(pinfeed_job_state(job, text, sizeof(text)), 0);
        pinfeed_close(job);
        fake_stop(&first);

        fake_start(&second);
        job = open_job((struct pinfeed_attach){.state = text, .force = true});
        ck_assert_uint_eq(second.request.state_seed, UINT64_MAX - 1);
        ck_assert_uint_eq(second.request.force, 1);
        expect_batch(job, 0, 4, 4);
        pinfeed_close(job);
        fake_stop(&second);
}
END_TEST

static const struct {
        const char *text, *words;
        int error;
} no_states[] = {
        {"", "it is empty", -EINVAL},
        {"not JSON", "pinfeed_attach.state is no state (expected what pinfeed_job_state gave", -EINVAL},
        {"[1]", "it is no JSON object", -EINVAL},
        {"{}", "its member pipeline is not there", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":0,\"epoch\":0", "}", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"\",\"seed\":0,\"epoch\":0,\"row\":0}",
         "its member fingerprint has 0 bytes", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":7,\"seed\":0,\"epoch\":0,\"row\":0}", "fingerprint",
         -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":-1,\"epoch\":0,\"row\":0}",
         "its member seed is no whole number from 0 to 18446744073709551615", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":\"1\",\"epoch\":0,\"row\":0}", "seed",
         -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":18446744073709551616,\"epoch\":0,\"row\":0}",
         "seed", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":0,\"epoch\":4294967296,\"row\":0}",
         "its member epoch is no whole number from 0 to 4294967295", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":0,\"epoch\":0,\"row\":1.5}",
         "its member row is no whole", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":0,\"epoch\":0,\"row\":0,\"x\":0}",
         "it has 6 members", -EINVAL},
        {"{\"pipeline\":\"demo\",\"fingerprint\":\"f\",\"seed\":0,\"epoch\":0,\"row\":0,\"row\":1}",
         "duplicate", -EINVAL},
        {"{\"pipeline\":\"other\",\"fingerprint\":\"f\",\"seed\":0,\"epoch\":0,\"row\":0}",
         "the state is of pipeline other, this job attaches to demo", -ESTALE},
};

START_TEST(test_no_state) {
        struct pinfeed_job *job;
        int r = open_with(&job, (struct pinfeed_attach){.state = no_states[_i].text});

        ck_assert_msg(r == no_states[_i].error && strstr(pinfeed_error(job), no_states[_i].words),
                      "%s: %d, %s", no_states[_i].text, r, pinfeed_error(job));
        pinfeed_close(job);
}
END_TEST

/* ---- seeking ---- */

static void script_seek(struct fake *fake) {
        fake_send_batches(fake, 3); /* one is handed over, two are queued */
        fake_wait_seek(fake);
        fake_send_batches(fake, 1); /* sent before it knew */
        fake->number += 2;          /* those that it took back */
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 2);
        fake_wait_close(fake);
}

START_TEST(test_seek) {
        struct fake fake = {.script = script_seek, .lookahead = 1};
        struct pinfeed_job *job;
        struct pinfeed_batch *held;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        held = next(job);
        while (pinfeed_dispatch(job) == 0 && fake.number < 3)
                sched_yield();
        ck_assert_int_eq(pinfeed_job_seek(job, 0, FAKE_SAMPLES), -EINVAL);
        ck_assert_ptr_nonnull(strstr(pinfeed_error(job), "expected 0 to 9"));
        expect_state(job, 0, 4);
        ck_assert_int_eq(pinfeed_job_seek(job, 7, 5), 0);
        expect_state(job, 7, 5);
        expect_batch(job, 7, 5, 4);
        release(held);
        expect_batch(job, 7, 9, 1);
        expect_end(job);
        expect_state(job, 8, 0);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(fake.seek.epoch, 7);
        ck_assert_uint_eq(fake.seek.row, 5);
        ck_assert_uint_eq(fake.released, 6);
}
END_TEST

static void script_seeks(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_seek(fake);
        ck_assert_uint_eq(fake->seek.epoch, 1);
        usleep(20000); /* the caller changes its mind, twice */
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 2);
        fake_wait_seek(fake);
        ck_assert_uint_eq(fake->seek.epoch, 3);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

/* However often a caller seeks, only the last one counts. */
START_TEST(test_seek_again) {
        struct fake fake = {.script = script_seeks};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        for (uint32_t epoch = 1; epoch <= 3; epoch++)
                ck_assert_int_eq(pinfeed_job_seek(job, epoch, epoch), 0);
        expect_batch(job, 3, 3, 4);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(fake.released, 4);
}
END_TEST

static void script_seek_refused(struct fake *fake) {
        fake_send_batches(fake, 3);
        fake_wait_seek(fake);
        fake_send_sought(fake, ENOSPC, "row 1 of epoch 4 needs 3 slots");
        fake_wait_seek(fake);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 2);
        fake_wait_close(fake);
}

/* The daemon says no; the batches that were dropped meanwhile come again. */
START_TEST(test_seek_refused) {
        struct fake fake = {.script = script_seek_refused};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        expect_batch(job, 0, 0, 4);
        ck_assert_int_eq(pinfeed_job_seek(job, 4, 1), 0);
        expect_error(job, -ENOSPC, "row 1 of epoch 4 needs 3 slots");
        expect_state(job, 0, 4);
        expect_batch(job, 0, 4, 4);
        expect_batch(job, 0, 8, 2);
        expect_end(job);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(fake.seek.epoch, 0);
        ck_assert_uint_eq(fake.seek.row, 4);
}
END_TEST

static sem_t has_waited;

static void script_answers_late(struct fake *fake) {
        fake_wait_seek(fake);
        sem_wait(&has_waited);
        fake_send_sought(fake, ENOSPC, "needs 9 slots");
        fake_wait_seek(fake);
        ck_assert_uint_eq(fake->reads, 0);
        fake_send_sought(fake, 0, "");
        fake_wait_seek(fake);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

/* The answer to a seek can be had without asking for a batch, and is said once. */
START_TEST(test_sought) {
        struct fake fake = {.script = script_answers_late};
        struct pinfeed_job *job;

        sem_init(&has_waited, 0, 0);
        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        ck_assert_int_eq(pinfeed_job_sought(job, 0), 0); /* it was not sent anywhere */
        ck_assert_int_eq(pinfeed_job_seek(job, 4, 1), 0);
        ck_assert_int_eq(pinfeed_job_sought(job, 0), -EAGAIN);
        for (int i = 1; i <= 2; i++) {
                ck_assert_int_eq(pinfeed_job_sought(job, 20), -ETIMEDOUT);
                ck_assert_ptr_nonnull(strstr(pinfeed_error(job), i == 1 ? "has waited 20 ms to go to row 1"
                                                                        : "has waited 40 ms to go to row 1"));
        }
        ck_assert_int_eq(pinfeed_job_failed(job), 0);
        sem_post(&has_waited);
        ck_assert_int_eq(pinfeed_job_sought(job, UINT32_MAX), -ENOSPC);
        ck_assert_str_eq(pinfeed_error(job), "needs 9 slots");
        ck_assert_int_eq(pinfeed_job_sought(job, UINT32_MAX), 0);
        ck_assert_int_eq(pinfeed_job_seek(job, 1, 4), 0);
        ck_assert_int_eq(pinfeed_job_sought(job, UINT32_MAX), 0);
        expect_batch(job, 1, 4, 4);
        pinfeed_close(job);
        fake_stop(&fake);
        sem_destroy(&has_waited);
        ck_assert_int_eq(pinfeed_job_sought(NULL, 0), -EINVAL);
        ck_assert_int_eq(pinfeed_job_failed(NULL), -EINVAL);
}
END_TEST

static void script_second_refused(struct fake *fake) {
        fake_send_batches(fake, 1);
        fake_wait_seek(fake);
        usleep(20000); /* the caller changes its mind */
        fake_send_sought(fake, 0, "");
        fake_wait_seek(fake);
        fake_send_sought(fake, ENOSPC, "no");
        fake_wait_seek(fake);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 1);
        fake_wait_close(fake);
}

/* The way back leads to where the caller was, not to where it wanted to go first. */
START_TEST(test_second_seek_refused) {
        struct fake fake = {.script = script_second_refused};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        expect_batch(job, 0, 0, 4);
        ck_assert_int_eq(pinfeed_job_seek(job, 1, 0), 0);
        ck_assert_int_eq(pinfeed_job_seek(job, 2, 1), 0);
        expect_error(job, -ENOSPC, "no");
        expect_batch(job, 0, 4, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

/* From between an epoch's last batch and the news that it has ended. */
START_TEST(test_seek_refused_at_end) {
        struct fake fake = {.script = script_seek_refused};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.start_row = 8, .seed_given = true, .seed = 5});
        fake.lookahead = 1;
        expect_batch(job, 0, 8, 2);
        ck_assert_int_eq(pinfeed_job_seek(job, 4, 1), 0);
        expect_error(job, -ENOSPC, "needs 3 slots");
        expect_end(job);
        expect_batch(job, 1, 0, 4);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static void script_no_way_back(struct fake *fake) {
        for (int i = 0; i < 2; i++) {
                fake_wait_seek(fake);
                fake_send_sought(fake, ENOSPC, "no");
        }
        fake_wait_close(fake);
}

START_TEST(test_no_way_back) {
        struct fake fake = {.script = script_no_way_back};
        struct pinfeed_job *job;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        ck_assert_int_eq(pinfeed_job_seek(job, 4, 1), 0);
        expect_error(job, -ENOSPC, "no");
        expect_error(job, -EIO, "going back to row 0 of epoch 0");
        ck_assert_int_eq(pinfeed_job_seek(job, 0, 0), -EIO);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static void script_unasked(struct fake *fake) {
        fake_send_sought(fake, 0, "");
        fake_wait_close(fake);
}

static void script_backwards(struct fake *fake) {
        fake_send_batches(fake, 2);
        fake_wait_seek(fake);
        fake->number = 1;
        fake_send_sought(fake, 0, "");
        fake_wait_close(fake);
}

START_TEST(test_bad_sought) {
        struct fake unasked = {.script = script_unasked}, backwards = {.script = script_backwards};
        struct pinfeed_job *job;

        fake_start(&unasked);
        job = open_job((struct pinfeed_attach){0});
        expect_error(job, -EPROTO, "without having been asked");
        pinfeed_close(job);
        fake_stop(&unasked);

        fake_start(&backwards);
        job = open_job((struct pinfeed_attach){0});
        expect_batch(job, 0, 0, 4);
        ck_assert_int_eq(pinfeed_job_seek(job, 1, 0), 0);
        expect_error(job, -EPROTO, "backwards");
        pinfeed_close(job);
        fake_stop(&backwards);
}
END_TEST

static void script_no_lookahead(struct fake *fake) {
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
                fake_send_batches(fake, 3);
                fake_wait_seek(fake);
                ck_assert_uint_eq(fake->seek.epoch, epoch + 1);
                ck_assert_uint_eq(fake->seek.row, 0);
                fake_send_sought(fake, 0, "");
        }
        fake_wait_close(fake);
}

/* With lookahead 0 the next epoch comes because it is asked for, by whoever goes on. */
START_TEST(test_no_lookahead) {
        struct fake fake = {.script = script_no_lookahead};
        struct pinfeed_job *job;
        struct pinfeed_batch *batch;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){0});
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
                for (uint64_t row = 0; row < FAKE_SAMPLES; row += FAKE_SLOT_ROWS)
                        expect_batch(job, epoch, row, row == 8 ? 2 : 4);
                ck_assert_int_eq(pinfeed_dispatch(job), 0);
                expect_end(job);
                ck_assert_int_eq(pinfeed_dispatch(job), 0);
                expect_state(job, epoch + 1, 0);
                ck_assert_uint_eq(fake.released + 1 >= 3 * (uint64_t)epoch, 1);
        }
        ck_assert_uint_eq(fake.number, 9);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 100), -ETIMEDOUT);
        pinfeed_close(job);
        fake_stop(&fake);
        ck_assert_uint_eq(fake.released, 9);
}
END_TEST

enum {
        MANY = 1000,
};

/* Reads nothing for a while, so that the job's socket is full; then there is nothing to send but SOUGHT. */
static void script_stopped(struct fake *fake) {
        for (unsigned i = 0; i < MANY; i++)
                fake_send_batches(fake, 1);
        while (!fake->released)
                usleep(1000);
        fake->released = 0;
        fake_wait_seek(fake);
        fake_send_sought(fake, 0, "");
        fake_send_batches(fake, 1);
        fake_wait_releases(fake, MANY + 1);
        fake_wait_close(fake);
}

static void *go_on(void *data) {
        usleep(50000);
        ((struct fake *)data)->released = 1;
        return NULL;
}

START_TEST(test_seek_full_socket) {
        struct fake fake = {.script = script_stopped, .lookahead = 1};
        struct pinfeed_job *job;
        struct pinfeed_batch *batches[MANY], *batch;
        pthread_t thread;
        uint64_t started;
        int r;

        fake_start(&fake);
        job = open_job((struct pinfeed_attach){.max_held_batches = MANY});
        for (unsigned i = 0; i < MANY;) {
                r = pinfeed_next(job, &batches[i]);
                ck_assert_int_ge(r, 0);
                i += (unsigned)r;
        }
        for (unsigned i = 0; i < MANY; i++)
                release(batches[i]);
        started = clock_ns();
        ck_assert_int_eq(pinfeed_job_seek(job, 1000, 2), 0);
        ck_assert_int_eq(pinfeed_next_timeout(job, &batch, 0), -EAGAIN);
        ck_assert_uint_lt(clock_ns() - started, NS_PER_S);
        pthread_create(&thread, NULL, go_on, &fake);
        expect_batch(job, 1000, 2, 4);
        while (fake.released != MANY + 1)
                sched_yield();
        pthread_join(thread, NULL);
        pinfeed_close(job);
        fake_stop(&fake);
}
END_TEST

static Suite *suite(void) {
        Suite *suite = suite_create("client-positions");
        TCase *ranks = tcase_create("ranks"), *states = tcase_create("states"), *seek = tcase_create("seek");

        tcase_add_loop_test(ranks, test_ranks, 0, 3);
        tcase_add_loop_test(ranks, test_padding, 0, 3);
        tcase_add_test(ranks, test_own_batch_size);
        tcase_add_loop_test(ranks, test_bad_padding, 0, 5);
        suite_add_tcase(suite, ranks);

        tcase_add_test(states, test_state);
        tcase_add_test(states, test_state_of_nothing);
        tcase_add_test(states, test_start_live);
        tcase_add_test(states, test_attach_with_state);
        tcase_add_test(states, test_large_seed);
        tcase_add_loop_test(states, test_no_state, 0, (int)(sizeof(no_states) / sizeof(no_states[0])));
        suite_add_tcase(suite, states);

        tcase_set_timeout(seek, 60);
        tcase_add_test(seek, test_seek);
        tcase_add_test(seek, test_seek_again);
        tcase_add_test(seek, test_seek_refused);
        tcase_add_test(seek, test_sought);
        tcase_add_test(seek, test_second_seek_refused);
        tcase_add_test(seek, test_seek_refused_at_end);
        tcase_add_test(seek, test_no_way_back);
        tcase_add_test(seek, test_bad_sought);
        tcase_add_test(seek, test_no_lookahead);
        tcase_add_test(seek, test_seek_full_socket);
        suite_add_tcase(suite, seek);
        return suite;
}

int main(void) {
        int failed;

        fake_make_directory();
        failed = run_suite(suite());
        rmdir(fake_directory);
        return failed;
}
