/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the daemon does with positions, seen on the wire and without libpinfeed: SEEK and its answer,
 * lookahead, ranks and segments, and who may attach with which state. */

#include "tests/support/run.h"
#include "tests/system/raw.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
        QUIET_MS = 150, /* without a message: nothing comes */
        SOON_MS = 10000,
};

struct raw_job {
        int fd;
        struct message_attached attached;
        const uint8_t *ring;
        size_t ring_bytes;
        uint64_t next;   /* number of the batch that comes next */
        uint64_t number; /* of the last one */
        struct message_batch batch;
        struct message_segment segments[MESSAGE_SEGMENTS_MAX];
};

static struct harness *start(const char *pipelines) {
        struct harness *h = harness_new();

        harness_write_config(h, "pipelines:\n%s", pipelines);
        harness_start(h);
        return h;
}

static void finish(struct harness *h) {
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}

/* Attaches and does not read. */
static void join_unread(struct raw_job *job, const struct harness *h, const struct message *attach) {
        static struct message message;
        int ring = -1, type;
        void *mapped;

        *job = (struct raw_job){.fd = raw_greeted(h)};
        raw_send(job->fd, attach);
        do
                type = raw_receive(job->fd, &message, &ring);
        while (type == MESSAGE_PROGRESS);
        ck_assert_msg(type == MESSAGE_ATTACHED, "%s: %s", message_name((unsigned)type),
                      type == MESSAGE_REFUSED ? message.refused.text : "");
        job->attached = message.attached;
        job->ring_bytes = job->attached.slots * job->attached.slot_stride;
        mapped = mmap(NULL, job->ring_bytes, PROT_READ, MAP_SHARED, ring, 0);
        ck_assert_ptr_ne(mapped, MAP_FAILED);
        job->ring = mapped;
        close(ring);
}

static void say_read(const struct raw_job *job) {
        struct message message = raw_read();

        raw_send(job->fd, &message);
}

static void join(struct raw_job *job, const struct harness *h, const struct message *attach) {
        join_unread(job, h, attach);
        say_read(job);
}

static void leave(struct raw_job *job) {
        munmap((void *)job->ring, job->ring_bytes);
        close(job->fd);
}

static void release(struct raw_job *job, uint64_t number) {
        struct message message = raw_release(number);

        raw_send(job->fd, &message);
}

/* The rows of an unshuffled pipeline are the samples of that number, also where they wrap round. */
static void check_ids(const struct raw_job *job) {
        uint64_t row = job->batch.row, end = row + job->batch.rows;

        for (uint32_t s = 0; s < job->batch.segments; s++) {
                const struct message_segment *segment = &job->segments[s];
                const int64_t *ids = (const int64_t *)(job->ring + segment->slot * job->attached.slot_stride +
                                                       job->attached.ids_offset);

                ck_assert_int_eq(segment->flags, row >= job->attached.samples);
                for (uint32_t i = 0; i < segment->rows; i++, row++)
                        ck_assert_int_eq(ids[segment->first + i], (int64_t)(row % job->attached.samples));
        }
        ck_assert_uint_eq(row, end);
}

/* The next batch, one in its record or the first of several: those behind it must not be needed by the test.
 */
static void next(struct raw_job *job) {
        static struct message message;

        ck_assert_int_eq(raw_receive(job->fd, &message, NULL), MESSAGE_BATCHES);
        ck_assert_uint_eq(message.batches.n_batch, 1);
        job->batch = message.batches.batch[0];
        memcpy(job->segments, message.batches.segment, message.batches.n_segment * sizeof(*job->segments));
        ck_assert_uint_eq(job->batch.number, job->next);
        job->number = job->next++;
        check_ids(job);
}

static void expect_batch(struct raw_job *job, uint32_t epoch, uint64_t row, uint32_t rows) {
        next(job);
        ck_assert_uint_eq(job->batch.epoch, epoch);
        ck_assert_uint_eq(job->batch.row, row);
        ck_assert_uint_eq(job->batch.rows, rows);
}

static void expect_and_release(struct raw_job *job, uint32_t epoch, uint64_t row, uint32_t rows) {
        expect_batch(job, epoch, row, rows);
        release(job, job->number);
}

static void expect_nothing(const struct raw_job *job) {
        ck_assert(!raw_readable(job->fd, QUIET_MS));
}

static void seek(struct raw_job *job, uint32_t epoch, uint64_t row) {
        struct message message = {.type = MESSAGE_SEEK, .seek = {epoch, row}};

        raw_send(job->fd, &message);
}

/* Its answer; batches before it are given back unseen, as libpinfeed does. */
static int await_sought(struct raw_job *job, char text[MESSAGE_TEXT_MAX + 1]) {
        static struct message message;

        while (raw_receive(job->fd, &message, NULL) == MESSAGE_BATCHES)
                for (uint32_t i = 0; i < message.batches.n_batch; i++)
                        release(job, message.batches.batch[i].number);
        ck_assert_int_eq(message.type, MESSAGE_SOUGHT);
        job->next = message.sought.number;
        if (text)
                strcpy(text, message.sought.text);
        return message.sought.error;
}

static bool member_is(struct harness *h, const char *path, bool value) {
        json_t *status = harness_status(h), *member = harness_member(status, path);
        bool is = value ? json_is_true(member) : json_is_false(member);

        json_decref(status);
        return is;
}

static bool first_is_parked(struct harness *h, void *context) {
        return member_is(h, "jobs/0/parked", true);
}

/* ---- lookahead ---- */

/* With 0 an epoch is delivered and prepared, and nothing else before the job asks. */
START_TEST(test_lookahead_0_gives_one_epoch) {
        struct harness *h = start("  p:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 20, bytes: 8}\n"
                                  "    batch_size: 8\n");
        struct message attach = raw_attach("p");
        struct raw_job job;
        json_t *status;

        attach.attach.max_held = 1; /* one record a batch */
        join(&job, h, &attach);
        ck_assert_uint_eq(job.attached.lookahead, 0);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
                for (uint64_t row = 0; row < 20; row += 8)
                        expect_and_release(&job, epoch, row, row == 16 ? 4 : 8);
                harness_wait(h, "a parked job", first_is_parked, NULL, SOON_MS);
                expect_nothing(&job);
                status = harness_status(h);
                ck_assert_double_eq(harness_number(status, "pipelines/p/rows_prepared"), 20.0 * (epoch + 1));
                harness_expect_words(json_string_value(harness_member(status, "jobs/0/note")),
                                     epoch == 0 ? "waits for the job to ask for epoch 1"
                                                : "waits for the job");
                json_decref(status);
                seek(&job, epoch + 1, 0);
                ck_assert_int_eq(await_sought(&job, NULL), 0);
                ck_assert_uint_eq(job.next, 3 * (epoch + 1));
        }
        leave(&job);
        finish(h);
}
END_TEST

/* With 1 it need not ask. */
START_TEST(test_lookahead_1_goes_on) {
        struct harness *h = start("  p:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 20, bytes: 8}\n"
                                  "    batch_size: 8\n"
                                  "    lookahead: 1\n");
        struct message attach = raw_attach("p");
        struct raw_job job;

        attach.attach.max_held = 1;
        join(&job, h, &attach);
        ck_assert_uint_eq(job.attached.lookahead, 1);
        for (uint32_t epoch = 0; epoch < 5; epoch++)
                for (uint64_t row = 0; row < 20; row += 8)
                        expect_and_release(&job, epoch, row, row == 16 ? 4 : 8);
        ck_assert(member_is(h, "jobs/0/parked", false));
        leave(&job);
        finish(h);
}
END_TEST

/* ---- going elsewhere ---- */

static const char ramp[] = "  p:\n"
                           "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 8}\n"
                           "    batch_size: 8\n"
                           "    lookahead: 1\n";

START_TEST(test_seek_forward_and_back) {
        struct harness *h = start(ramp);
        struct message attach = raw_attach("p");
        struct raw_job job;

        attach.attach.max_held = 1;
        join(&job, h, &attach);
        expect_and_release(&job, 0, 0, 8);
        seek(&job, 2, 496);
        ck_assert_int_eq(await_sought(&job, NULL), 0);
        expect_and_release(&job, 2, 496, 8);
        expect_and_release(&job, 2, 504, 8);
        seek(&job, 1, 5);
        ck_assert_int_eq(await_sought(&job, NULL), 0);
        for (uint64_t row = 5; row < 997; row += 8)
                expect_and_release(&job, 1, row, 8);
        expect_and_release(&job, 1, 997, 3);
        expect_and_release(&job, 2, 0, 8);
        leave(&job);
        finish(h);
}
END_TEST

/* The last of several counts, and each has its answer. */
START_TEST(test_seeks_behind_each_other) {
        struct harness *h = start(ramp);
        struct message attach = raw_attach("p");
        struct raw_job job;

        attach.attach.max_held = 1;
        join(&job, h, &attach);
        for (uint32_t i = 1; i <= 10; i++)
                seek(&job, i, 8 * i);
        for (uint32_t i = 1; i <= 10; i++)
                ck_assert_int_eq(await_sought(&job, NULL), 0);
        expect_and_release(&job, 10, 80, 8);
        leave(&job);
        finish(h);
}
END_TEST

/* An aligned job may live in two slots, but go to aligned places only. */
START_TEST(test_seek_that_cannot_be) {
        struct harness *h = start("  p:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 8}\n"
                                  "    batch_size: 8\n"
                                  "    lookahead: 1\n"
                                  "    slots: 2\n");
        struct message attach = raw_attach("p");
        char text[MESSAGE_TEXT_MAX + 1];
        struct raw_job job;
        uint64_t row;

        attach.attach.max_held = 1;
        join(&job, h, &attach);
        expect_and_release(&job, 0, 0, 8);
        seek(&job, 0, 5);
        ck_assert_int_eq(await_sought(&job, text), ENOSPC);
        harness_expect_words(text, "cannot go to row 5 of epoch 0: the ring is full: the job needs 4 slots");
        row = 8 * job.next;
        expect_and_release(&job, 0, row, 8);
        seek(&job, 7, 1000);
        ck_assert_int_eq(await_sought(&job, text), EINVAL);
        harness_expect_words(text, "cannot go to row 1000 of epoch 7");
        harness_expect_words(text, "an epoch has 1000 rows");
        row = 8 * job.next;
        expect_and_release(&job, 0, row, 8);
        seek(&job, 3, 992);
        ck_assert_int_eq(await_sought(&job, NULL), 0);
        expect_and_release(&job, 3, 992, 8);
        expect_and_release(&job, 4, 0, 8);
        leave(&job);
        finish(h);
}
END_TEST

/* Two jobs in eight slots. One holds six; the other wants four in place of two, waits until they come back,
 * and gets nothing meanwhile. */
static void make_wait(struct harness *h, struct raw_job *holder, struct raw_job *waiting) {
        struct message attach = raw_attach("p");

        attach.attach.max_held = 1;
        join(waiting, h, &attach);
        expect_batch(waiting, 0, 0, 8);
        attach.attach.max_held = 8;
        attach.attach.start_row = 400;
        attach.attach.seed_given = 1;
        attach.attach.seed = 1;
        join(holder, h, &attach);
        harness_wait_number(h, "jobs/1/held", 6, SOON_MS);
        seek(waiting, 0, 5);
        release(waiting, 0);
        expect_nothing(waiting);
        ck_assert_double_eq(harness_status_number(h, "jobs/1/held"), 6);
}

START_TEST(test_seek_that_has_to_wait) {
        struct harness *h = start(ramp);
        struct raw_job holder, waiting;

        make_wait(h, &holder, &waiting);
        seek(&waiting, 0, 13); /* one more behind it */
        expect_nothing(&waiting);
        release(&holder, 0);
        expect_nothing(&waiting);
        release(&holder, 1);
        ck_assert_int_eq(await_sought(&waiting, NULL), 0);
        ck_assert_int_eq(await_sought(&waiting, NULL), 0);
        expect_and_release(&waiting, 0, 13, 8);
        expect_and_release(&waiting, 0, 21, 8);
        leave(&waiting);
        leave(&holder);
        finish(h);
}
END_TEST

START_TEST(test_too_many_seeks) {
        struct harness *h = start(ramp);
        struct raw_job holder, waiting;

        make_wait(h, &holder, &waiting);
        for (int i = 0; i < 16; i++)
                seek(&waiting, 0, 8);
        raw_expect_closed(waiting.fd, "17 SEEKs without an answer");
        munmap((void *)waiting.ring, waiting.ring_bytes);
        ck_assert(harness_log_contains(h, "it sent more than 16 SEEKs without an answer"));
        leave(&holder);
        finish(h);
}
END_TEST

START_TEST(test_seek_before_it_is_attached) {
        struct harness *h = start(ramp);
        struct raw_job job = {.fd = raw_greeted(h)};

        seek(&job, 0, 0);
        raw_expect_closed(job.fd, "SEEK before ATTACH");
        ck_assert(harness_log_contains(h, "it sent SEEK out of turn"));
        finish(h);
}
END_TEST

/* ---- ranks and sizes ---- */

/* 10 samples, 3 ranks of 2: what docs/order.md says, as it comes over the wire. */
START_TEST(test_rows_of_ranks) {
        static const struct {
                uint8_t last_batch;
                unsigned steps;
                struct {
                        uint64_t row;
                        uint32_t rows;
                } tail[3];
        } tails[] = {
                {1, 2, {{6, 2}, {8, 2}, {10, 2}}},
                {2, 1, {}},
                {3, 2, {{6, 2}, {8, 2}, {10, 2}}},
        };
        struct harness *h = start("  p:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 10, bytes: 8}\n"
                                  "    batch_size: 4\n"
                                  "    slots: 32\n");

        for (size_t t = 0; t < sizeof(tails) / sizeof(tails[0]); t++)
                for (uint32_t rank = 0; rank < 3; rank++) {
                        struct message attach = raw_attach("p");
                        struct raw_job job;

                        attach.attach.rank = rank;
                        attach.attach.world_size = 3;
                        attach.attach.batch_size = 2;
                        attach.attach.max_held = 1;
                        attach.attach.last_batch = tails[t].last_batch;
                        snprintf(attach.attach.group, sizeof(attach.attach.group), "run-%zu", t);
                        attach.attach.group_size = 1; /* the others are on other machines */
                        join(&job, h, &attach);
                        ck_assert_uint_eq(job.attached.batch_size, 2);
                        expect_and_release(&job, 0, 2 * rank, 2);
                        if (tails[t].steps == 2)
                                expect_and_release(&job, 0, tails[t].tail[rank].row,
                                                   tails[t].tail[rank].rows);
                        expect_nothing(&job);
                        leave(&job);
                }
        ck_assert(harness_log_contains(h, "as rank 2 of 3 in group run-1: "));
        finish(h);
}
END_TEST

START_TEST(test_status_of_ranks) {
        struct harness *h = start("  p:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 8}\n"
                                  "    batch_size: 8\n"
                                  "    slots: 16\n");
        struct message attach = raw_attach("p");
        struct raw_job jobs[2];
        char *output;
        json_t *status;

        attach.attach.world_size = 4;
        attach.attach.batch_size = 24;
        attach.attach.last_batch = 3;
        snprintf(attach.attach.group, sizeof(attach.attach.group), "all-four");
        attach.attach.group_size = 2;
        attach.attach.group_ms = UINT32_MAX;
        for (uint32_t rank = 0; rank < 2; rank++) {
                attach.attach.rank = 2 + rank;
                join(&jobs[rank], h, &attach);
        }
        status = harness_status(h);
        ck_assert_double_eq(harness_number(status, "jobs/1/rank"), 3);
        ck_assert_double_eq(harness_number(status, "jobs/1/world_size"), 4);
        ck_assert_double_eq(harness_number(status, "jobs/1/batch_size"), 24);
        ck_assert_str_eq(json_string_value(harness_member(status, "jobs/1/group")), "all-four");
        ck_assert_str_eq(json_string_value(harness_member(status, "jobs/1/last_batch")), "pad");
        json_decref(status);
        ck_assert_int_eq(harness_run(h, SOON_MS, &output, (const char *const[]){"pinfeedctl", "jobs", NULL}),
                         0);
        harness_expect_words(output, "rank");
        harness_expect_words(output, "3/4");
        for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
                size_t width = 0;

                for (const char *c = line; *c; c++)
                        width += ((unsigned char)*c & 0xc0) != 0x80;
                ck_assert_msg(width <= 100, "%zu columns: %s", width, line);
        }
        free(output);
        leave(&jobs[0]);
        leave(&jobs[1]);
        finish(h);
}
END_TEST

static int refusal(struct harness *h, const struct message *attach, char text[MESSAGE_TEXT_MAX + 1]) {
        int fd = raw_greeted(h);

        raw_send(fd, attach);
        return raw_expect_refused(fd, text, MESSAGE_TEXT_MAX + 1);
}

START_TEST(test_what_is_refused) {
        struct harness *h = start("  one:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 2000, bytes: 8}\n"
                                  "    batch_size: 1\n"
                                  "    slots: 2000\n"
                                  "  tail:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 31, bytes: 8}\n"
                                  "    batch_size: 8\n"
                                  "    last_batch: drop\n");
        struct message attach = raw_attach("one");
        char text[MESSAGE_TEXT_MAX + 1], place[HARNESS_PATH_MAX + 8];
        struct raw_job job;

        attach.attach.batch_size = 600;
        ck_assert_int_eq(refusal(h, &attach, text), EINVAL);
        harness_expect_words(text, "a batch of 600 rows may lie in 600 pieces");
        harness_expect_words(text, "at most 512");
        attach.attach.batch_size = 512; /* as many as a record takes */
        join(&job, h, &attach);
        expect_batch(&job, 0, 0, 512);
        ck_assert_uint_eq(job.batch.segments, 512);
        leave(&job);

        attach = raw_attach("tail");
        attach.attach.world_size = 4;
        ck_assert_int_eq(refusal(h, &attach, text), EINVAL);
        harness_expect_words(text, "31 samples are fewer than the 32 of one step (4 ranks of 8)");
        snprintf(place, sizeof(place), "%s:8", harness_config_path(h));
        harness_expect_words(text, place);
        attach.attach.rank = 4;
        ck_assert_int_eq(refusal(h, &attach, text), EINVAL);
        harness_expect_words(text, "rank: expected from 0 to 3");
        attach = raw_attach("tail");
        attach.attach.batch_size = 32;
        ck_assert_int_eq(refusal(h, &attach, text), EINVAL);
        harness_expect_words(text, "31 samples are fewer than one batch of 32");
        finish(h);
}
END_TEST

/* A job that asks for more batches than there can be is granted those; small batches share slots. */
START_TEST(test_credit) {
        struct harness *h = start("  p:\n"
                                  "    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 8}\n"
                                  "    batch_size: 64\n"
                                  "    slots: 4\n");
        struct message attach = raw_attach("p");
        struct raw_job job;

        attach.attach.max_held = MESSAGE_SLOTS_MAX;
        join(&job, h, &attach);
        ck_assert_uint_eq(job.attached.max_held, 4 * 2 + 1);
        leave(&job);
        attach.attach.batch_size = 4;
        join(&job, h, &attach);
        ck_assert_uint_eq(job.attached.max_held, 4 * (16 + 1) + 1);
        harness_wait_number(h, "jobs/0/held", 64, SOON_MS); /* the whole ring, none released */
        leave(&job);
        attach.attach.max_held = 3;
        join(&job, h, &attach);
        ck_assert_uint_eq(job.attached.max_held, 3);
        leave(&job);
        finish(h);
}
END_TEST

static double job_number(struct harness *h, const char *path) {
        json_t *status = harness_status(h);
        double number = harness_number(status, path);

        json_decref(status);
        return number;
}

/* Who does not read holds its minimum, whatever lies ready, and nobody has to wait for it; who reads is given
 * what there is. */
START_TEST(test_unread) {
        struct harness *h = start(ramp);
        struct message attach = raw_attach("p");
        struct raw_job jobs[4];

        attach.attach.max_held = 4;
        attach.attach.seed_given = 1;
        join_unread(&jobs[0], h, &attach);
        harness_wait_number(h, "pipelines/p/slots_ready", 8, SOON_MS);
        ck_assert_double_eq(job_number(h, "jobs/0/leased"), 2);
        for (int i = 1; i < 4; i++) {
                attach.attach.seed = (uint64_t)i;
                join_unread(&jobs[i], h, &attach);
        }
        say_read(&jobs[3]);
        harness_wait_number(h, "jobs/3/held", 2, SOON_MS); /* as far as the ring has room */
        for (int i = 0; i < 2; i++)
                leave(&jobs[i]);
        harness_wait_number(h, "jobs/1/held", 4, SOON_MS);
        ck_assert_double_eq(job_number(h, "jobs/0/leased"), 2);
        ck_assert(member_is(h, "jobs/0/unread", true));
        ck_assert(member_is(h, "jobs/1/unread", false));
        for (int i = 2; i < 4; i++)
                leave(&jobs[i]);
        finish(h);
}
END_TEST

/* ---- states ---- */

START_TEST(test_attach_with_a_state) {
        struct harness *h = start(ramp);
        struct message attach = raw_attach("p");
        char text[MESSAGE_TEXT_MAX + 1];
        struct raw_job job;

        attach.attach.max_held = 1;
        join(&job, h, &attach);
        leave(&job);
        attach.attach.state_given = 1;
        attach.attach.start_epoch = 4;
        attach.attach.start_row = 40;
        strcpy(attach.attach.fingerprint, job.attached.fingerprint);
        join(&job, h, &attach);
        expect_batch(&job, 4, 40, 8);
        leave(&job);

        attach.attach.state_seed = 9;
        ck_assert_int_eq(refusal(h, &attach, text), ESTALE);
        harness_expect_words(text, "the seed is 0, the state was saved with 9: attach with seed 9");
        attach.attach.state_seed = 0;
        snprintf(attach.attach.fingerprint, sizeof(attach.attach.fingerprint), "1.999%s",
                 strchr(job.attached.fingerprint + 2, '.'));
        ck_assert_int_eq(refusal(h, &attach, text), ESTALE);
        harness_expect_words(text, "the source has 1000 samples, the state was saved with 999");
        strcpy(attach.attach.fingerprint, "nonsense\n");
        ck_assert_int_eq(refusal(h, &attach, text), EINVAL);
        harness_expect_words(text, "\"nonsense?\"");
        attach.attach.force = 1;
        join(&job, h, &attach);
        expect_batch(&job, 4, 40, 8);
        leave(&job);
        attach.attach.start_row = 1003;
        ck_assert_int_eq(refusal(h, &attach, text), EINVAL);
        harness_expect_words(text, "the state stands at row 1003 of epoch 4, an epoch has 1000 rows");
        finish(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("system: positions on the wire");
        TCase *tcase = tcase_create("positions");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_lookahead_0_gives_one_epoch);
        tcase_add_test(tcase, test_lookahead_1_goes_on);
        tcase_add_test(tcase, test_seek_forward_and_back);
        tcase_add_test(tcase, test_seeks_behind_each_other);
        tcase_add_test(tcase, test_seek_that_cannot_be);
        tcase_add_test(tcase, test_seek_that_has_to_wait);
        tcase_add_test(tcase, test_too_many_seeks);
        tcase_add_test(tcase, test_seek_before_it_is_attached);
        tcase_add_test(tcase, test_rows_of_ranks);
        tcase_add_test(tcase, test_status_of_ranks);
        tcase_add_test(tcase, test_what_is_refused);
        tcase_add_test(tcase, test_credit);
        tcase_add_test(tcase, test_unread);
        tcase_add_test(tcase, test_attach_with_a_state);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
