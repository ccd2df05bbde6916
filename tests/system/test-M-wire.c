/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case M5 on the wire, D14, and what is wrong of B8, one by one: what no job says. Its masses are in
 * test-B-storm.c.
 *
 * The peer here speaks the protocol by hand (raw.h) and breaks it in every way that has a name. Each time the
 * same is asserted: that connection is closed, the reason stands in the log, and a job beside it gets all its
 * rows. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
        SAMPLES = 1000,
        BATCH = 8,
        SOON_MS = 10000,
        TEXT = 1200,
};

static struct harness *start(void) {
        struct harness *h = harness_new();

        harness_write_config(h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 1024}\n"
                             "    batch_size: %d\n"
                             "    slots: 16\n"
                             "    workers: 2\n",
                             SAMPLES, BATCH);
        harness_start(h);
        return h;
}

/* ---- M5: numbers that cannot be ---- */

/* The record of `message` with the bytes of one field replaced. */
struct forged {
        uint8_t record[MESSAGE_RECORD_MAX];
        size_t length;
};

static void forge(struct forged *forged, const struct message *one, const struct message *other,
                  const void *value, size_t size) {
        size_t place = raw_place(one, other);

        forged->length = raw_encode(one, forged->record);
        memcpy(forged->record + place, value, size);
}

static void send_forged(struct harness *h, const struct forged *forged, const char *what) {
        int fd = raw_greeted(h);

        ck_assert_int_eq(seqpacket_send(fd, forged->record, forged->length, NULL, 0), 0);
        raw_expect_closed(fd, what);
}

static bool log_grew(struct harness *h, void *context) {
        char *log = harness_log(h);
        bool grew = strlen(log) > *(size_t *)context;

        free(log);
        return grew;
}

/* A line about the job that was closed must have come. */
static void expect_reason(struct harness *h, size_t before, const char *words) {
        char *log;

        harness_wait(h, "a reason in the log", log_grew, &before, SOON_MS);
        log = harness_log(h);
        harness_expect_words(log + before, " is closed: ");
        harness_expect_words(log + before, words);
        free(log);
}

static size_t log_length(struct harness *h) {
        char *log = harness_log(h);
        size_t length = strlen(log);

        free(log);
        return length;
}

START_TEST(test_M5_numbers_on_the_wire) {
        static const uint32_t batch = UINT32_C(1) << 31, held = (UINT32_C(1) << 20) + 1;
        static const uint64_t row = UINT64_C(1) << 63, minus_one = UINT64_MAX;
        static struct forged forged;
        struct harness *h = start();
        struct message one = raw_attach("ramp"), other = one;
        struct reader beside;
        size_t log;

        reader_open(&beside, h, "ramp", 2);
        log = log_length(h);
        other.attach.batch_size = 1;
        forge(&forged, &one, &other, &batch, sizeof(batch));
        send_forged(h, &forged, "batch size 2^31");
        expect_reason(h, log, "batch_size");
        log = log_length(h);
        other = one;
        other.attach.start_row = 1;
        forge(&forged, &one, &other, &row, sizeof(row));
        send_forged(h, &forged, "start row 2^63");
        expect_reason(h, log, "start_row");
        log = log_length(h);
        forge(&forged, &one, &other, &minus_one, sizeof(minus_one));
        send_forged(h, &forged, "start row -1");
        expect_reason(h, log, "start_row");
        log = log_length(h);
        other = one;
        other.attach.max_held = 3;
        forge(&forged, &one, &other, &held, sizeof(held));
        send_forged(h, &forged, "max_held over the limit");
        expect_reason(h, log, "max_held");
        reader_read(&beside, 2 * SAMPLES / BATCH);
        reader_close(&beside);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* What the wire can carry and the pipeline cannot do is answered with words. */
START_TEST(test_M5_numbers_within_the_limits_of_the_wire) {
        static const struct {
                uint32_t batch_size;
                uint64_t start_row;
                uint32_t start_epoch;
                uint32_t rank, world_size;
                int error;
                const char *words;
        } wrong[] = {
                {.batch_size = INT32_MAX, .world_size = 1, .error = ENOSPC, .words = "slots"},
                {.start_row = SAMPLES, .world_size = 1, .error = EINVAL, .words = "1000"},
                {.start_row = UINT64_C(1) << 48,
                 .world_size = 1,
                 .error = EINVAL,
                 .words = "281474976710656"},
                {.start_epoch = UINT32_MAX, .world_size = 1, .error = EINVAL, .words = "4294967295"},
                {.rank = 2, .world_size = 2, .error = EINVAL, .words = "rank: expected from 0 to 1"},
                {.rank = UINT32_MAX, .world_size = UINT32_MAX, .error = EINVAL, .words = "1048576"},
                {.rank = 5, .world_size = 1, .error = EINVAL, .words = "got 5"},
        };
        struct harness *h = start();
        char text[TEXT];

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                struct message message = raw_attach("ramp");
                int fd = raw_greeted(h);

                message.attach.batch_size = wrong[i].batch_size;
                message.attach.start_row = wrong[i].start_row;
                message.attach.start_epoch = wrong[i].start_epoch;
                message.attach.rank = wrong[i].rank;
                message.attach.world_size = wrong[i].world_size;
                raw_send(fd, &message);
                ck_assert_int_eq(raw_expect_refused(fd, text, sizeof(text)), wrong[i].error);
                harness_expect_words(text, wrong[i].words);
        }
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* ---- B8, D14: what no job says ---- */

/* xorshift: the same records in every run. */
static uint32_t next_random(uint32_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        return *state;
}

START_TEST(test_B8_random_records) {
        struct harness *h = start();
        int rounds = harness_quick() ? 200 : 2000;
        static uint8_t record[MESSAGE_RECORD_MAX];
        struct message hello = raw_hello(), attach = raw_attach("ramp");
        struct reader beside;
        uint32_t state = 1;

        reader_open(&beside, h, "ramp", 2);
        for (int i = 0; i < rounds; i++) {
                int fd = raw_connect(h);
                size_t length = next_random(&state) % (i % 50 ? 200 : MESSAGE_RECORD_MAX) + 1;

                if (i % 3) /* a good beginning */
                        raw_send(fd, &hello);
                if (i % 3 == 2) { /* and a message with some wrong bytes */
                        length = raw_encode(&attach, record);
                        for (uint32_t k = next_random(&state) % 4 + 1; k > 0; k--)
                                record[next_random(&state) % length] = (uint8_t)next_random(&state);
                } else {
                        for (size_t k = 0; k < length; k++)
                                record[k] = (uint8_t)next_random(&state);
                }
                seqpacket_send(fd, record, length, NULL, 0);
                close(fd); /* at once, and mostly before it was read */
                if (i % 10 == 0)
                        reader_read(&beside, 1);
        }
        reader_read(&beside, SAMPLES / BATCH);
        reader_close(&beside);
        json_decref(harness_status(h));
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* One of each kind, and each with its reason. */
static const struct offence {
        const char *what;
        const char *reason; /* in the log */
        size_t length;      /* of `bytes`; 0: `message` */
        const char *bytes;
        struct message message;
        bool attached; /* said by a job that is attached */
} offences[] = {
        {"a record shorter than its header", "3", .length = 3, .bytes = "\1\0\0"},
        {"an unknown type", "99", .length = 8, .bytes = "\143\0\0\0\10\0\0\0"},
        {"a length that is not the record's", "", .length = 8, .bytes = "\3\0\0\0\377\377\377\377"},
        {"a message of the daemon's", "", .length = 12, .bytes = "\2\0\0\0\14\0\0\0\1\0\0\0"},
        {"a message of a worker's", "", .length = 10, .bytes = "\45\0\0\0\12\0\0\0\1\0"},
        {"HELLO again", "HELLO out of turn", .message = {.type = MESSAGE_HELLO, .hello = {1, 0, "again"}}},
        {"RELEASE before ATTACH", "RELEASE out of turn",
         .message = {.type = MESSAGE_RELEASE, .release = {.n_number = 1}}},
        {"HELLO when attached", "HELLO out of turn", .attached = true,
         .message = {.type = MESSAGE_HELLO, .hello = {1, 0, "again"}}},
        {"ATTACH when attached", "ATTACH out of turn", .attached = true,
         .message = {.type = MESSAGE_ATTACH, .attach = {.pipeline = "ramp", .world_size = 1, .max_held = 1}}},
        {"MAPPED before ATTACH", "MAPPED out of turn",
         .message = {.type = MESSAGE_MAPPED, .mapped = {.map = MESSAGE_MAP_PINNED}}},
        {"a mapping without a kind", "map", .length = 15, .bytes = "\14\0\0\0\17\0\0\0\0\0\0\0\0\0\0",
         .attached = true},
        {"a mapping of no kind", "map", .length = 15, .bytes = "\14\0\0\0\17\0\0\0\3\0\0\0\0\0\0",
         .attached = true},
        {"a mapping with a reason that ends early", "", .length = 15,
         .bytes = "\14\0\0\0\17\0\0\0\1\0\0\0\0\1\0", .attached = true},
        {"more page-locked slots than there are", "17 slots are page-locked, there are 16", .attached = true,
         .message = {.type = MESSAGE_MAPPED, .mapped = {.map = MESSAGE_MAP_PINNED, .registered = 17}}},
        {"a release of the future", "does not hold", .attached = true,
         .message = {.type = MESSAGE_RELEASE, .release = {.n_number = 1, .number = {1000}}}},
        {"a release of batch 2^64-1", "does not hold", .attached = true,
         .message = {.type = MESSAGE_RELEASE, .release = {.n_number = 1, .number = {UINT64_MAX}}}},
        {"one good and one foreign release", "does not hold", .attached = true,
         .message = {.type = MESSAGE_RELEASE, .release = {.n_number = 2, .number = {0, 77}}}},
        {"the same release twice in a record", "does not hold", .attached = true,
         .message = {.type = MESSAGE_RELEASE, .release = {.n_number = 2, .number = {0, 0}}}},
};

static void commit_offence(struct harness *h, const struct offence *offence) {
        size_t log = log_length(h);
        struct message message;
        int fd = offence->attached ? raw_attached(h, "ramp", &message, NULL) : raw_greeted(h);

        if (offence->attached) /* so that batch 0 is really held */
                ck_assert_int_eq(raw_receive(fd, &message, NULL), MESSAGE_BATCHES);
        if (offence->length > 0)
                ck_assert_int_eq(seqpacket_send(fd, offence->bytes, offence->length, NULL, 0), 0);
        else
                raw_send(fd, &offence->message);
        raw_expect_closed(fd, offence->what);
        for (int i = 0; i < 2 && log == log_length(h); i++)
                usleep(HARNESS_POLL_US);
        expect_reason(h, log, offence->reason);
}

START_TEST(test_D14_records_out_of_turn) {
        struct harness *h = start();
        struct reader beside;
        json_t *status;

        reader_open(&beside, h, "ramp", 2);
        for (size_t i = 0; i < sizeof(offences) / sizeof(offences[0]); i++) {
                commit_offence(h, &offences[i]);
                reader_read(&beside, 8);
        }
        status = harness_status(h);
        ck_assert_uint_eq(json_array_size(json_object_get(status, "jobs")), 1);
        ck_assert_double_eq(harness_number(status, "pipelines/ramp/worker_deaths"), 0);
        ck_assert_double_eq(harness_number(status, "jobs/0/rows"),
                            (double)beside.batches * BATCH + harness_number(status, "jobs/0/held") * BATCH);
        json_decref(status);
        reader_read(&beside, SAMPLES / BATCH);
        reader_close(&beside);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* What was released once is not held any more. */
START_TEST(test_D14_release_twice) {
        struct harness *h = start();
        struct message message;
        struct reader beside;
        int fd = raw_attached(h, "ramp", &message, NULL);
        size_t log;

        reader_open(&beside, h, "ramp", 2);
        ck_assert_int_eq(raw_receive(fd, &message, NULL), MESSAGE_BATCHES);
        log = log_length(h);
        message = raw_release(0);
        raw_send(fd, &message);
        raw_send(fd, &message);
        raw_expect_closed(fd, "after a second release");
        expect_reason(h, log, "does not hold");
        reader_read(&beside, SAMPLES / BATCH);
        reader_close(&beside);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* One for each slot and a few more, then it is a flood: also beside batches, and in one burst. */
START_TEST(test_D14_mapped_without_end) {
        struct harness *h = start();
        struct message mapped = {.type = MESSAGE_MAPPED,
                                 .mapped = {.map = MESSAGE_MAP_PINNED, .registered = 1, .reason = "again"}};
        struct message attach = raw_attach("ramp"), answer;
        struct reader beside;
        size_t log;
        int fd, i;

        strcpy(attach.attach.name, "flood");
        fd = raw_attached_by(h, &attach, &answer, NULL);
        log = log_length(h);
        reader_open(&beside, h, "ramp", 2);
        for (i = 0; i < 32; i++)
                raw_send(fd, &mapped);
        reader_read(&beside, 8);
        harness_wait_number(h, "jobs/flood/slots_registered", 1, SOON_MS);
        for (; i < 1000 && message_send(fd, &mapped, NULL, 0) == 0; i++)
                ;
        raw_expect_closed(fd, "after a thousand MAPPED");
        expect_reason(h, log, "more than 32 times, for 16 slots");
        reader_read(&beside, SAMPLES / BATCH);
        reader_close(&beside);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* Descriptors that nobody asked for are closed, not kept. */
START_TEST(test_B8_descriptors_nobody_asked_for) {
        struct harness *h = start();
        struct message message = raw_attach("ramp");
        static uint8_t record[MESSAGE_RECORD_MAX];
        size_t length = raw_encode(&message, record), log = log_length(h);
        size_t before = harness_descriptors(harness_daemon_pid(h));

        for (int i = 0; i < 50; i++) {
                int fd = raw_greeted(h);

                ck_assert_int_eq(seqpacket_send(fd, record, length, (int[]){0, 1, 2}, 3), 0);
                raw_expect_closed(fd, "ATTACH with descriptors");
        }
        expect_reason(h, log, "descriptor");
        ck_assert_uint_le(harness_descriptors(harness_daemon_pid(h)), before);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

/* Connections that say nothing, say half, or say it and do not listen. */
START_TEST(test_B8_half_open_connections) {
        struct harness *h = start();
        struct message hello = raw_hello(), attach = raw_attach("ramp");
        struct reader beside;
        int fds[100];

        reader_open(&beside, h, "ramp", 2);
        for (size_t i = 0; i < 100; i++) {
                fds[i] = raw_connect(h);
                if (i % 3)
                        raw_send(fds[i], &hello);
                if (i % 3 == 2 && i < 9)
                        raw_send(fds[i], &attach); /* and never reads */
        }
        reader_read(&beside, 2 * SAMPLES / BATCH);
        json_decref(harness_status(h));
        for (size_t i = 0; i < 100; i++)
                close(fds[i]);
        reader_read(&beside, SAMPLES / BATCH);
        reader_close(&beside);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

START_TEST(test_another_version) {
        struct harness *h = start();
        struct message message = raw_hello();
        char text[TEXT];
        int fd = raw_connect(h);

        message.hello.major = MESSAGE_MAJOR + 1;
        raw_send(fd, &message);
        ck_assert_int_eq(raw_expect_refused(fd, text, sizeof(text)), EPROTO);
        harness_expect_words(text, "protocol 1");
        harness_expect_words(text, "speaks 2");

        fd = raw_connect(h);
        message.hello.major = MESSAGE_MAJOR;
        message.hello.minor = 7;
        raw_send(fd, &message);
        ck_assert_int_eq(raw_receive(fd, &message, NULL), MESSAGE_HELLO);
        ck_assert_uint_eq(message.hello.minor, MESSAGE_MINOR);
        close(fd);
        harness_stop(h, SIGTERM, 0);
        harness_free(h);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("M-wire");
        TCase *tcase = tcase_create("M");

        tcase_set_timeout(tcase, 60 * harness_slowdown());
        tcase_add_test(tcase, test_M5_numbers_on_the_wire);
        tcase_add_test(tcase, test_M5_numbers_within_the_limits_of_the_wire);
        tcase_add_test(tcase, test_B8_random_records);
        tcase_add_test(tcase, test_D14_records_out_of_turn);
        tcase_add_test(tcase, test_D14_release_twice);
        tcase_add_test(tcase, test_D14_mapped_without_end);
        tcase_add_test(tcase, test_B8_descriptors_nobody_asked_for);
        tcase_add_test(tcase, test_B8_half_open_connections);
        tcase_add_test(tcase, test_another_version);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
