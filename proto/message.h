#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Messages between daemon, jobs and workers: structs, one encoder, one decoder that validates everything. */

#include "proto/message-table.h"

#include <stddef.h>
#include <stdint.h>

struct fault;

enum {
        MESSAGE_MAJOR = 1,
        MESSAGE_MINOR = 0,
        MESSAGE_RECORD_MAX = 65536,
        MESSAGE_HEADER_BYTES = 8,
};

/* Who may send a message, as bits. A receiver names the one sender it talks to. */
enum message_sender {
        MESSAGE_BY_JOB = 1,
        MESSAGE_BY_DAEMON_TO_JOB = 2,
        MESSAGE_BY_WORKER = 4,
        MESSAGE_BY_DAEMON_TO_WORKER = 8,
        MESSAGE_BY_ZYGOTE = 16,
        MESSAGE_BY_DAEMON_TO_ZYGOTE = 32,
};

enum message_type {
#define M(number, NAME, name, senders, least_fds, most_fds) MESSAGE_##NAME = number,
        MESSAGE_TABLE(M)
#undef M
};

/* Stages of PROGRESS. */
enum message_stage {
        MESSAGE_STAGE_RESERVING = 1, /* done / total bytes of the ring */
        MESSAGE_STAGE_SCANNING = 2,  /* done files; total 0: not known */
        MESSAGE_STAGE_STARTING = 3,  /* done / total workers */
        MESSAGE_STAGE_WAITING = 4, /* for slots that other jobs hold beyond their minimum; total: how many */
        MESSAGE_STAGE_SPACE = 5,   /* done: bytes of earlier rings that others hold; total: the ring's */
};

/* Where a job starts; ATTACH.start. */
enum message_start {
        MESSAGE_START_GIVEN = 0, /* start_epoch and start_row say it */
        MESSAGE_START_LIVE = 1,  /* where the leading job of its stream is */
};

/* What becomes of a sample that is bad; SETUP.on_error. */
enum message_on_error {
        MESSAGE_ON_ERROR_FAIL = 0,
        MESSAGE_ON_ERROR_REPLACE = 1,
};

/* Bits of a DONE's part; flags. */
enum message_part_flag {
        MESSAGE_PART_REPLACED = 1, /* some of its rows hold substitutes */
};

/* Bits of a BATCHES' segment; flags. */
enum message_segment_flag {
        MESSAGE_SEGMENT_PADDING = 1, /* all of its rows are padding */
};

/* How a ring is mapped: what ATTACH asks for, what ATTACHED grants, what MAPPED has become of it. */
enum message_map {
        MESSAGE_MAP_ANY = 0, /* in ATTACH: nothing is to be page-locked */
        MESSAGE_MAP_READ_ONLY = 1,
        MESSAGE_MAP_PINNED = 2, /* through a descriptor that may write, so that slots can be page-locked */
};

#define MESSAGE_DECLARE_U8(name, least, most)   uint8_t name;
#define MESSAGE_DECLARE_U16(name, least, most)  uint16_t name;
#define MESSAGE_DECLARE_U32(name, least, most)  uint32_t name;
#define MESSAGE_DECLARE_U64(name, least, most)  uint64_t name;
#define MESSAGE_DECLARE_TEXT(name, least, most) char name[(most) + 1];
#define MESSAGE_DECLARE_BLOB(name, least, most) uint8_t name[most];
#define MESSAGE_DECLARE_U64S(name, least, most)                                                              \
        uint32_t n_##name;                                                                                   \
        uint64_t name[most];
#define MESSAGE_DECLARE_LIST(name, least, most)                                                              \
        uint32_t n_##name;                                                                                   \
        struct message_##name name[most];
#define MESSAGE_DECLARE(kind, name, least, most) MESSAGE_DECLARE_##kind(name, least, most)

#define E(name, FIELDS)                                                                                      \
        struct message_##name {                                                                              \
                FIELDS(MESSAGE_DECLARE)                                                                      \
        };
MESSAGE_ENTRIES(E)
#undef E

#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        struct message_##name {                                                                              \
                MESSAGE_##NAME##_FIELDS(MESSAGE_DECLARE)                                                     \
        };
MESSAGE_TABLE(M)
#undef M

/* Some 40 KiB: keep one per loop, not one per peer. */
struct message {
        enum message_type type;
        union {
#define M(number, NAME, name, senders, least_fds, most_fds) struct message_##name name;
                MESSAGE_TABLE(M)
#undef M
        };
};

/* "ATTACH", or "unknown". */
const char *message_name(unsigned type);

/* Encodes into `record` (capacity `size`, at least MESSAGE_RECORD_MAX to be safe). 0 and *length, -ERANGE
 * when a member is outside its limits (a mistake of ours: also text that is not UTF-8, such as a file's name
 * that did not go through fault_sanitize), -EMSGSIZE when it does not fit. */
int message_encode(const struct message *message, void *record, size_t size, size_t *length);

/* Decodes and validates one record that came with `n_fds` descriptors from `sender`: known type, allowed for
 * that sender, exact length, every number in its range, every text valid UTF-8 without NUL, every list within
 * bounds, allowed number of descriptors. 0, or -EBADMSG with what was wrong; *message is unspecified then. */
int message_decode(struct message *message, const void *record, size_t length, size_t n_fds,
                   enum message_sender sender, struct fault *fault);

/* Encodes and sends with `n_fds` descriptors, which stay the caller's. 0 or a negative errno, see
 * seqpacket_send. */
int message_send(int socket, const struct message *message, const int *fds, size_t n_fds);

enum message_receive_error {
        MESSAGE_E_AGAIN = 1, /* nothing there now */
        MESSAGE_E_CLOSED,    /* the peer is gone */
};

/* Receives and decodes one message from `sender`; descriptors come into fds[0 .. *n_fds), owned by the
 * caller, none on any other result than 0. 0, a positive MESSAGE_E_*, or a negative errno with its text:
 * -EBADMSG (close the connection), -EMFILE (out of descriptors), others from the socket. Not reentrant per
 * thread: uses one static record buffer per thread. */
int message_receive(int socket, struct message *message, int fds[], size_t *n_fds, enum message_sender sender,
                    struct fault *fault);
