#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A job without libpinfeed: it speaks the protocol by hand and may say what no library would.
 *
 * What cannot be encoded, because the encoder refuses it, is made by changing bytes of a good record. */

#include "base/clock.h"
#include "base/fault.h"
#include "base/seqpacket.h"
#include "proto/message.h"
#include "tests/support/harness.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
        RAW_ANSWER_MS = 10000,
        RAW_CLOSED = 0, /* what raw_receive returns at the end */
};

static inline int raw_connect(const struct harness *h) {
        char path[128];
        int fd;

        snprintf(path, sizeof(path), "%s/pinfeed.sock", harness_runtime_directory(h));
        for (int waited = 0; (fd = seqpacket_connect(path)) == -EAGAIN && waited < RAW_ANSWER_MS; waited++)
                usleep(1000); /* its backlog is full, and there is nothing to poll for */
        ck_assert_msg(fd >= 0, "connect %s: %s", path, strerror(-fd));
        return fd;
}

static inline bool raw_readable(int fd, int timeout_ms) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        return poll(&poll_fd, 1, timeout_ms * harness_slowdown()) == 1;
}

/* The type of the next message, or RAW_CLOSED. A descriptor that came with it is the caller's if `ring_fd` is
 * given. */
static inline int raw_receive(int fd, struct message *message, int *ring_fd) {
        int fds[SEQPACKET_FDS_MAX], r;
        struct fault fault = {};
        size_t n_fds = 0;

        ck_assert_msg(raw_readable(fd, RAW_ANSWER_MS), "the daemon neither answered nor closed");
        r = message_receive(fd, message, fds, &n_fds, MESSAGE_BY_DAEMON_TO_JOB, &fault);
        if (r == MESSAGE_E_CLOSED || r == -ECONNRESET)
                return RAW_CLOSED;
        ck_assert_msg(r == 0, "what the daemon sent is no message: %d, %s", r, fault.text);
        for (size_t i = 0; i < n_fds; i++) {
                if (ring_fd)
                        *ring_fd = fds[i];
                else
                        close(fds[i]);
        }
        return (int)message->type;
}

static inline void raw_send(int fd, const struct message *message) {
        int r = message_send(fd, message, NULL, 0);

        ck_assert_msg(r == 0, "send %s: %s", message_name(message->type), strerror(-r));
}

static inline struct message raw_hello(void) {
        return (struct message){.type = MESSAGE_HELLO, .hello = {MESSAGE_MAJOR, MESSAGE_MINOR, "raw"}};
}

static inline struct message raw_attach(const char *pipeline) {
        struct message message = {.type = MESSAGE_ATTACH, .attach = {.world_size = 1, .max_held = 2}};

        snprintf(message.attach.pipeline, sizeof(message.attach.pipeline), "%s", pipeline);
        return message;
}

static inline struct message raw_release(uint64_t number) {
        return (struct message){.type = MESSAGE_RELEASE, .release = {.n_number = 1, .number = {number}}};
}

static inline struct message raw_read(void) {
        return (struct message){.type = MESSAGE_READ};
}

/* Connected and through HELLO. */
static inline int raw_greeted(const struct harness *h) {
        struct message message = raw_hello();
        int fd = raw_connect(h);

        raw_send(fd, &message);
        ck_assert_int_eq(raw_receive(fd, &message, NULL), MESSAGE_HELLO);
        return fd;
}

/* Attached by that ATTACH; *answer is ATTACHED, *ring_fd (may be NULL) the ring. */
static inline int raw_attached_by(const struct harness *h, const struct message *attach,
                                  struct message *answer, int *ring_fd) {
        int fd = raw_greeted(h), type;

        raw_send(fd, attach);
        do
                type = raw_receive(fd, answer, ring_fd);
        while (type == MESSAGE_PROGRESS);
        ck_assert_int_eq(type, MESSAGE_ATTACHED);
        return fd;
}

static inline int raw_attached(const struct harness *h, const char *pipeline, struct message *answer,
                               int *ring_fd) {
        struct message message = raw_attach(pipeline);

        return raw_attached_by(h, &message, answer, ring_fd);
}

/* Reads on until the daemon closes the connection, then closes it here too. */
static inline void raw_expect_closed(int fd, const char *what) {
        struct message message;
        uint64_t deadline = clock_ns() + (uint64_t)RAW_ANSWER_MS * NS_PER_MS;

        while (raw_receive(fd, &message, NULL) != RAW_CLOSED)
                ck_assert_msg(clock_ns() < deadline, "%s: the connection is still open", what);
        close(fd);
}

/* Like that, but REFUSED must come first: its error. */
static inline int raw_expect_refused(int fd, char *text, size_t size) {
        struct message message;
        int type;

        do
                type = raw_receive(fd, &message, NULL);
        while (type == MESSAGE_PROGRESS);
        ck_assert_int_eq(type, MESSAGE_REFUSED);
        snprintf(text, size, "%s", message.refused.text);
        raw_expect_closed(fd, "after REFUSED");
        return message.refused.error;
}

static inline size_t raw_encode(const struct message *message, uint8_t record[MESSAGE_RECORD_MAX]) {
        size_t length;

        ck_assert_int_eq(message_encode(message, record, MESSAGE_RECORD_MAX, &length), 0);
        return length;
}

/* Where two records of the same length differ first: the place of the field that was set differently. */
static inline size_t raw_place(const struct message *one, const struct message *other) {
        static uint8_t a[MESSAGE_RECORD_MAX], b[MESSAGE_RECORD_MAX];
        size_t length = raw_encode(one, a);

        ck_assert_uint_eq(raw_encode(other, b), length);
        for (size_t i = 0; i < length; i++)
                if (a[i] != b[i])
                        return i;
        ck_abort_msg("the records do not differ");
        return 0;
}
