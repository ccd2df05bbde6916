/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Case B8 at its full size: somebody who sends nonsense, connects again and again, or says a byte a second,
 * on both sockets, while a job reads. The job gets all its rows and waits no longer than it would for a slow
 * sample; operators are answered. The sizes of the case, a million records and 10,000 connections, need
 * PINFEED_TEST_LONG=1. */

#include "base/clock.h"
#include "tests/support/run.h"
#include "tests/system/raw.h"
#include "tests/system/reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        SAMPLES = 1000,
        BATCH = 8,
        BATCHES_LEAST = 10, /* that it gets meanwhile */
        SOON_MS = 10000,
        QUIET_MS = 300000,
        RECORD_BYTES = 200,
        RECORDS_EACH = 50, /* of a connection, as far as it gets */
        SILENT = 80,       /* connections of operators who say nothing: more than there may be */
        LONGEST_MS = 1000, /* that a batch may take beside all this, on a slow machine */
};

/* The job beside. */
struct beside {
        struct harness *h;
        pthread_t thread;
        atomic_bool enough;
        atomic_uint batches;
        uint64_t longest_ns;
};

static void *read_beside(void *context) {
        struct beside *beside = context;
        struct reader reader;

        reader_open(&reader, beside->h, "ramp", 2);
        while (!beside->enough) {
                uint64_t began = clock_ns(), took;

                reader_read(&reader, 1);
                took = clock_ns() - began;
                beside->longest_ns = took > beside->longest_ns ? took : beside->longest_ns;
                beside->batches++;
        }
        reader_close(&reader);
        return NULL;
}

static void begin(struct beside *beside) {
        beside->h = harness_new();
        harness_write_config(beside->h,
                             "pipelines:\n"
                             "  ramp:\n"
                             "    source: {type: synthetic, mode: ramp, samples: %d, bytes: 1024}\n"
                             "    batch_size: %d\n"
                             "    slots: 16\n"
                             "    workers: 1\n",
                             SAMPLES, BATCH);
        harness_start(beside->h);
        ck_assert_int_eq(pthread_create(&beside->thread, NULL, read_beside, beside), 0);
}

static bool has_read(struct harness *h, void *context) {
        return ((struct beside *)context)->batches > BATCHES_LEAST;
}

static void end(struct beside *beside) {
        harness_wait(beside->h, "the job beside reads", has_read, beside, SOON_MS);
        beside->enough = true;
        ck_assert_int_eq(pthread_join(beside->thread, NULL), 0);
        ck_assert_uint_lt(beside->longest_ns, LONGEST_MS * NS_PER_MS * (uint64_t)harness_slowdown());
        json_decref(harness_status(beside->h));
        harness_stop(beside->h, SIGTERM, 0);
        harness_free(beside->h);
}

static int times(int usual, int all) {
        return getenv("PINFEED_TEST_LONG") ? all : harness_quick() ? usual / 10 : usual;
}

/* xorshift: the same records in every run. */
static uint32_t next_random(uint32_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        return *state;
}

static bool has_no_more(struct harness *h, void *before) {
        return harness_descriptors(harness_daemon_pid(h)) <= *(size_t *)before;
}

/* Until the daemon has seen all of them: it serves so many of a user in a second. `before`: its descriptors
 * then; the job may still have been coming. */
static void wait_for_quiet(struct beside *beside, size_t before) {
        before += 8;
        harness_wait(beside->h, "all connections are closed", has_no_more, &before, QUIET_MS);
}

START_TEST(test_B8_a_million_records) {
        struct beside beside = {};
        size_t before;
        struct message hello = raw_hello();
        int left = times(20000, 1000000);
        uint8_t record[RECORD_BYTES];
        uint32_t state = 1;

        begin(&beside);
        before = harness_descriptors(harness_daemon_pid(beside.h));
        while (left > 0) {
                int fd = raw_connect(beside.h);

                if (left % 2)
                        raw_send(fd, &hello);
                for (int i = 0; i < RECORDS_EACH; i++, left--) {
                        size_t length = next_random(&state) % sizeof(record) + 1;

                        for (size_t k = 0; k < length; k++)
                                record[k] = (uint8_t)next_random(&state);
                        if (send(fd, record, length, MSG_NOSIGNAL) < 0)
                                break; /* it was closed after the first one, as it should be */
                }
                close(fd);
        }
        wait_for_quiet(&beside, before);
        end(&beside);
}
END_TEST

START_TEST(test_B8_ten_thousand_connections) {
        struct beside beside = {};
        size_t before;

        begin(&beside);
        before = harness_descriptors(harness_daemon_pid(beside.h));
        for (int i = times(1000, 10000); i > 0; i--)
                close(raw_connect(beside.h));
        wait_for_quiet(&beside, before);
        end(&beside);
}
END_TEST

static int connect_operator(const struct harness *h) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        ck_assert_int_ge(fd, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock", harness_runtime_directory(h));
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* A byte now and then, and no end: the places are all taken, and whoever wants to know something gets one. */
START_TEST(test_B8_operators_who_say_a_byte) {
        struct beside beside = {};
        int fds[SILENT];

        begin(&beside);
        for (int i = 0; i < SILENT; i++)
                fds[i] = connect_operator(beside.h);
        for (int round = 0; round < 5; round++) {
                for (int i = 0; i < SILENT; i++)
                        (void)!send(fds[i], "s", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
                json_decref(harness_status(beside.h));
        }
        for (int i = 0; i < SILENT; i++)
                close(fds[i]);
        end(&beside);
}
END_TEST

int main(void) {
        Suite *suite = suite_create("B-storm");
        TCase *tcase = tcase_create("B");

        tcase_set_timeout(tcase, (getenv("PINFEED_TEST_LONG") ? 600 : 60) * harness_slowdown());
        tcase_add_test(tcase, test_B8_a_million_records);
        tcase_add_test(tcase, test_B8_ten_thousand_connections);
        tcase_add_test(tcase, test_B8_operators_who_say_a_byte);
        suite_add_tcase(suite, tcase);
        return run_suite(suite);
}
