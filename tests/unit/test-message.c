/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Messages are made here from the same table as in message.c but by other code, so a new message is tested
 * without a line. The strongest property is that there is one encoding of a message: whatever the decoder
 * accepts must encode to the same bytes again. The encoder checks limits by itself, so a decoder that lets
 * something through is found by it. Records lie in buffers of their exact size, where the address sanitizer
 * sees every byte read too far. */

#include "base/fault.h"
#include "base/fd.h"
#include "base/seqpacket.h"
#include "proto/message.h"
#include "tests/support/run.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t state = 1;

/* splitmix64 */
static uint64_t random_u64(void) {
        uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint64_t random_below(uint64_t bound) {
        return random_u64() % bound;
}

/* Often the limits themselves. */
static uint64_t random_in(uint64_t least, uint64_t most) {
        uint64_t choice = random_below(4);

        if (choice == 0 || least == most)
                return least;
        if (choice == 1)
                return most;
        return most - least == UINT64_MAX ? random_u64() : least + random_below(most - least + 1);
}

static uint64_t list_bound; /* most entries of a list, where the table allows more */

static uint32_t random_count(uint64_t least, uint64_t most) {
        return (uint32_t)random_in(least, most < list_bound ? most : list_bound);
}

static void random_text(char *text, uint64_t least, uint64_t most) {
        static const char *const characters[] = {
                "a", "Z", " ", "\n", "\x7f", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
        uint64_t wanted = random_in(least, most < least + 4 * list_bound ? most : least + 4 * list_bound),
                 length = 0;

        while (length < wanted) {
                const char *c = characters[random_below(8)];
                size_t n = strlen(c);

                if (length + n > wanted)
                        c = "x", n = 1;
                memcpy(text + length, c, n);
                length += n;
        }
        text[length] = 0;
}

static void random_bytes(void *to, size_t n) {
        for (size_t i = 0; i < n; i++)
                ((uint8_t *)to)[i] = (uint8_t)random_u64();
}

#define FILL_U8(name, least, most)   object->name = (uint8_t)random_in(least, most);
#define FILL_U16(name, least, most)  object->name = (uint16_t)random_in(least, most);
#define FILL_U32(name, least, most)  object->name = (uint32_t)random_in(least, most);
#define FILL_U64(name, least, most)  object->name = random_in(least, most);
#define FILL_TEXT(name, least, most) random_text(object->name, least, most);
#define FILL_BLOB(name, least, most) random_bytes(object->name, most);
#define FILL_U64S(name, least, most)                                                                         \
        object->n_##name = random_count(least, most);                                                        \
        random_bytes(object->name, object->n_##name * sizeof(uint64_t));
#define FILL_LIST(name, least, most)                                                                         \
        object->n_##name = random_count(least, most);                                                        \
        for (uint32_t i = 0; i < object->n_##name; i++)                                                      \
                fill_##name(&object->name[i]);
#define FILL(kind, name, least, most) FILL_##kind(name, least, most)

#define SAME_U8(name, least, most)   ck_assert_uint_eq(a->name, b->name);
#define SAME_U16(name, least, most)  ck_assert_uint_eq(a->name, b->name);
#define SAME_U32(name, least, most)  ck_assert_uint_eq(a->name, b->name);
#define SAME_U64(name, least, most)  ck_assert_uint_eq(a->name, b->name);
#define SAME_TEXT(name, least, most) ck_assert_str_eq(a->name, b->name);
#define SAME_BLOB(name, least, most) ck_assert_mem_eq(a->name, b->name, most);
#define SAME_U64S(name, least, most)                                                                         \
        ck_assert_uint_eq(a->n_##name, b->n_##name);                                                         \
        ck_assert_int_eq(memcmp(a->name, b->name, a->n_##name * sizeof(uint64_t)), 0);
#define SAME_LIST(name, least, most)                                                                         \
        ck_assert_uint_eq(a->n_##name, b->n_##name);                                                         \
        for (uint32_t i = 0; i < a->n_##name; i++)                                                           \
                same_##name(&a->name[i], &b->name[i]);
#define SAME(kind, name, least, most) SAME_##kind(name, least, most)

#define FUNCTIONS(name, FIELDS)                                                                              \
        static void fill_##name(struct message_##name *object) {                                             \
                FIELDS(FILL)                                                                                 \
        }                                                                                                    \
        static void same_##name(const struct message_##name *a, const struct message_##name *b) {            \
                FIELDS(SAME)                                                                                 \
        }

MESSAGE_ENTRIES(FUNCTIONS)
#define M(number, NAME, name, senders, least_fds, most_fds) FUNCTIONS(name, MESSAGE_##NAME##_FIELDS)
MESSAGE_TABLE(M)
#undef M

struct row {
        enum message_type type;
        const char *name;
        unsigned senders;
        size_t least_fds, most_fds;
};

static const struct row table[] = {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        {MESSAGE_##NAME, #NAME, senders, least_fds, most_fds},
        MESSAGE_TABLE(M)
#undef M
};

#define N_MESSAGES (sizeof(table) / sizeof(*table))

static void fill(struct message *message, enum message_type type) {
        memset(message, 0x5a, sizeof(*message));
        message->type = type;
        switch (type) {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        case MESSAGE_##NAME:                                                                                 \
                fill_##name(&message->name);                                                                 \
                break;
                MESSAGE_TABLE(M)
#undef M
        }
}

static void same(const struct message *a, const struct message *b) {
        ck_assert_int_eq(a->type, b->type);
        switch (a->type) {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        case MESSAGE_##NAME:                                                                                 \
                same_##name(&a->name, &b->name);                                                             \
                break;
                MESSAGE_TABLE(M)
#undef M
        }
}

static enum message_sender first_sender(const struct row *row) {
        return (enum message_sender)(row->senders & -row->senders);
}

static struct message message, decoded;
static uint8_t record[MESSAGE_RECORD_MAX];

/* Decodes a copy that ends where the record ends. */
static int decode(const uint8_t *bytes, size_t length, size_t n_fds, enum message_sender sender,
                  struct fault *fault) {
        uint8_t *copy = malloc(length > 0 ? length : 1);
        int r;

        memcpy(copy, bytes, length);
        memset(&decoded, 0xa5, sizeof(decoded));
        r = message_decode(&decoded, copy, length, n_fds, sender, fault);
        free(copy);
        return r;
}

static void set_length(uint8_t *bytes, size_t length) {
        for (int i = 0; i < 4; i++)
                bytes[4 + i] = (uint8_t)(length >> (8 * i));
}

START_TEST(round_trips) {
        const struct row *row = &table[_i];
        struct fault fault;
        size_t length;

        for (int i = 0; i < 300; i++) {
                list_bound = i % 10 == 0 ? 1 << 20 : 5;
                fill(&message, row->type);
                ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
                ck_assert_uint_ge(length, MESSAGE_HEADER_BYTES);
                ck_assert_msg(decode(record, length, row->least_fds, first_sender(row), &fault) == 0, "%s",
                              fault.text);
                same(&message, &decoded);
        }
}
END_TEST

START_TEST(largest_fit) {
        const struct row *row = &table[_i];
        size_t length, most = 0;

        list_bound = 1 << 20;
        for (int i = 0; i < 200; i++) {
                fill(&message, row->type);
                ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
                most = length > most ? length : most;
        }
        ck_assert_int_eq(message_encode(&message, record, length, &length), 0);
        for (size_t size = 0; size < length; size += 1 + size / 8)
                ck_assert_int_eq(message_encode(&message, record, size, &length), -EMSGSIZE);
        ck_assert_uint_le(most, MESSAGE_RECORD_MAX);
}
END_TEST

START_TEST(every_truncation) {
        const struct row *row = &table[_i];
        struct fault fault;
        size_t length;

        list_bound = 4;
        for (int i = 0; i < 5; i++) {
                fill(&message, row->type);
                ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
                for (size_t cut = 0; cut < length; cut++) {
                        set_length(record, length);
                        fault.text[0] = 0;
                        ck_assert_int_eq(decode(record, cut, row->least_fds, first_sender(row), &fault),
                                         -EBADMSG);
                        ck_assert_str_ne(fault.text, "");
                        if (cut < MESSAGE_HEADER_BYTES)
                                continue;
                        set_length(record, cut);
                        fault.text[0] = 0;
                        ck_assert_int_eq(decode(record, cut, row->least_fds, first_sender(row), &fault),
                                         -EBADMSG);
                        ck_assert_ptr_nonnull(strstr(fault.text, row->name));
                }
                record[length] = 0;
                set_length(record, length + 1);
                ck_assert_int_eq(decode(record, length + 1, row->least_fds, first_sender(row), &fault),
                                 -EBADMSG);
                ck_assert_ptr_nonnull(strstr(fault.text, "after its end"));
        }
}
END_TEST

START_TEST(senders_and_descriptors) {
        const struct row *row = &table[_i];
        size_t length;

        list_bound = 4;
        fill(&message, row->type);
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
        for (unsigned sender = 1; sender <= 8; sender *= 2)
                for (size_t n_fds = 0; n_fds <= SEQPACKET_FDS_MAX; n_fds++) {
                        bool allowed =
                                (row->senders & sender) && n_fds >= row->least_fds && n_fds <= row->most_fds;

                        ck_assert_int_eq(decode(record, length, n_fds, (enum message_sender)sender, NULL),
                                         allowed ? 0 : -EBADMSG);
                }
        for (int i = 2; i < 8; i++)
                for (int bit = 0; bit < 8; bit++) {
                        record[i] ^= (uint8_t)(1 << bit);
                        ck_assert_int_eq(decode(record, length, row->least_fds, first_sender(row), NULL),
                                         -EBADMSG);
                        record[i] ^= (uint8_t)(1 << bit);
                }
}
END_TEST

START_TEST(names) {
        size_t length;

        for (size_t i = 0; i < N_MESSAGES; i++)
                ck_assert_str_eq(message_name(table[i].type), table[i].name);
        for (unsigned type = 0; type < 0x20000; type++) {
                bool known = false;

                for (size_t i = 0; i < N_MESSAGES; i++)
                        known = known || table[i].type == type;
                if (known)
                        continue;
                ck_assert_str_eq(message_name(type), "unknown");
                memset(record, 0, 64);
                record[0] = (uint8_t)type;
                record[1] = (uint8_t)(type >> 8);
                set_length(record, 64);
                if (type < 0x10000)
                        ck_assert_int_eq(decode(record, 64, 0, MESSAGE_BY_JOB, NULL), -EBADMSG);
        }
        message.type = (enum message_type)11;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
}
END_TEST

/* Both directions could share a mistake; these bytes are written by hand from PROTOCOL.md. */
START_TEST(bytes_of_hello) {
        static const uint8_t bytes[] = {1, 0, 0, 0, 18, 0, 0, 0, 1, 0, 0x34, 0x12, 4, 0, 'd', 'e', 'm', 'o'};
        size_t length;

        message.type = MESSAGE_HELLO;
        message.hello = (struct message_hello){.major = 1, .minor = 0x1234, .program = "demo"};
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
        ck_assert_uint_eq(length, sizeof(bytes));
        ck_assert_mem_eq(record, bytes, sizeof(bytes));
        ck_assert_int_eq(decode(bytes, sizeof(bytes), 0, MESSAGE_BY_DAEMON_TO_JOB, NULL), 0);
        ck_assert_uint_eq(decoded.hello.minor, 0x1234);
        ck_assert_str_eq(decoded.hello.program, "demo");
}
END_TEST

START_TEST(bytes_of_batches) {
        static const uint8_t bytes[64] = {
                6,    0,    0,    0,    64,   0,    0,    0,    /* header */
                1,    0,                                        /* one batch */
                8,    7,    6,    5,    4,    3,    2,    1,    /* number */
                0x40, 0x42, 0x0f, 0,    0,    0,    0,    0,    /* row 1,000,000 */
                2,    0,    0,    0,                            /* epoch */
                0,    1,    0,    0,                            /* rows */
                1,    0,    0,    0,                            /* segments, flags */
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* ready_ns */
                1,    0,                                        /* one segment */
                7,    0,    0,    0,    0,    0,    0,    0,
                0,    1,    0,    0,    0,    0,    0,    0, /* slot, first, rows, flags */
        };
        size_t length;

        ck_assert_int_eq(decode(bytes, sizeof(bytes), 0, MESSAGE_BY_DAEMON_TO_JOB, NULL), 0);
        ck_assert_uint_eq(decoded.batches.n_batch, 1);
        ck_assert_uint_eq(decoded.batches.batch[0].number, UINT64_C(0x0102030405060708));
        ck_assert_uint_eq(decoded.batches.batch[0].row, 1000000);
        ck_assert_uint_eq(decoded.batches.batch[0].epoch, 2);
        ck_assert_uint_eq(decoded.batches.batch[0].rows, 256);
        ck_assert_uint_eq(decoded.batches.batch[0].segments, 1);
        ck_assert_uint_eq(decoded.batches.batch[0].ready_ns, UINT64_MAX);
        ck_assert_uint_eq(decoded.batches.n_segment, 1);
        ck_assert_uint_eq(decoded.batches.segment[0].slot, 7);
        ck_assert_uint_eq(decoded.batches.segment[0].rows, 256);
        ck_assert_int_eq(message_encode(&decoded, record, sizeof(record), &length), 0);
        ck_assert_uint_eq(length, sizeof(bytes));
        ck_assert_mem_eq(record, bytes, sizeof(bytes));
}
END_TEST

START_TEST(limits_when_encoding) {
        size_t length;

        list_bound = 4;
        fill(&message, MESSAGE_ATTACH);
        message.attach.world_size = 0;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        fill(&message, MESSAGE_ATTACH);
        message.attach.start_row = MESSAGE_SAMPLES_MAX + 1;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        fill(&message, MESSAGE_REFUSED);
        message.refused.text[0] = 0;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        fill(&message, MESSAGE_ATTACH);
        memset(message.attach.name, 'x', sizeof(message.attach.name)); /* not terminated */
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        fill(&message, MESSAGE_ATTACH);
        strcpy(message.attach.name, "\xff");
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        fill(&message, MESSAGE_RELEASE);
        message.release.n_number = 0;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        message.release.n_number = MESSAGE_RELEASES_MAX + 1;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
        fill(&message, MESSAGE_ATTACHED);
        message.attached.field[0].dtype = 8;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), -ERANGE);
}
END_TEST

START_TEST(words_of_the_decoder) {
        struct fault fault;
        size_t length;

        list_bound = 4;
        do
                fill(&message, MESSAGE_ATTACHED);
        while (message.attached.n_field < 2 || message.attached.field[1].n_shape == 0);
        strcpy(message.attached.field[0].name, "a");
        message.attached.field[0].n_shape = 0;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
        /* Header, the numbers before the list, its count, and field 0: name 3, dtype, order, kind, shape
         * 2, 16. */
        record[8 + 4 + 8 + 8 + 4 + 8 + 4 + 1 + 4 + 4 + 1 + 4 + 4 + 8 + 8 + 8 + 8 + 2 + 3] = 9;
        ck_assert_int_eq(decode(record, length, 1, MESSAGE_BY_DAEMON_TO_JOB, &fault), -EBADMSG);
        ck_assert_str_eq(fault.text, "ATTACHED: field 0: dtype is 9, allowed are 1 to 7");

        message.type = MESSAGE_RELEASE;
        message.release.n_number = 1;
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
        record[8] = 1;
        record[9] = 2;
        ck_assert_int_eq(decode(record, length, 0, MESSAGE_BY_JOB, &fault), -EBADMSG);
        ck_assert_str_eq(fault.text, "RELEASE: the length of number is 513, allowed are 1 to 512");
        ck_assert_int_eq(decode(record, length, 0, MESSAGE_BY_WORKER, &fault), -EBADMSG);
        ck_assert_str_eq(fault.text, "RELEASE is not for this side to send");
        ck_assert_int_eq(decode(record, length, 3, MESSAGE_BY_JOB, &fault), -EBADMSG);
        ck_assert_str_eq(fault.text, "RELEASE came with 3 descriptors, allowed are 0 to 0");
        ck_assert_int_eq(decode(record, 5, 0, MESSAGE_BY_JOB, &fault), -EBADMSG);
        ck_assert_str_eq(fault.text, "a record of 5 bytes, a header has 8");
}
END_TEST

START_TEST(text_that_is_none) {
        static const char *const bad[] = {"a\x80z", "\xff\xff\xff", "\xc0\x80z", "\xed\xa0\x80", "a\xc3\0"};
        size_t length;

        message.type = MESSAGE_HELLO;
        message.hello = (struct message_hello){.program = "xyz"};
        ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                memcpy(record + length - 3, bad[i], 3);
                ck_assert_int_eq(decode(record, length, 0, MESSAGE_BY_JOB, NULL), -EBADMSG);
        }
        memcpy(record + length - 3, "a\0b", 3);
        ck_assert_int_eq(decode(record, length, 0, MESSAGE_BY_JOB, NULL), -EBADMSG);
}
END_TEST

/* A well-formed record with a few bytes changed, cut or added; or noise behind a plausible header. */
static size_t mutate(const struct row *row) {
        size_t length, n;

        list_bound = 3;
        if (random_below(4) == 0) {
                length = MESSAGE_HEADER_BYTES + random_below(300);
                random_bytes(record, length);
                if (random_below(2) == 0)
                        memset(record + 8, (int)random_below(3), length - 8);
                record[0] = (uint8_t)row->type;
                record[1] = record[2] = record[3] = 0;
        } else {
                fill(&message, row->type);
                ck_assert_int_eq(message_encode(&message, record, sizeof(record), &length), 0);
                n = random_below(5);
                for (size_t i = 0; i < n; i++)
                        record[random_below(random_below(2) ? length
                                            : length < 32   ? length
                                                            : 32)] =
                                random_below(2) ? (uint8_t)random_u64() : (uint8_t)random_below(4);
                if (random_below(4) == 0)
                        length = MESSAGE_HEADER_BYTES + random_below(length - MESSAGE_HEADER_BYTES + 8);
        }
        if (random_below(16) > 0)
                set_length(record, length);
        return length;
}

START_TEST(random_records) {
        static uint8_t again[MESSAGE_RECORD_MAX];
        struct fault fault;
        size_t accepted = 0, records = getenv("PINFEED_TEST_QUICK") ? 20000 : 200000;

        state = 20;
        for (size_t i = 0; i < records; i++) {
                const struct row *row = &table[random_below(N_MESSAGES)];
                size_t length = mutate(row), length_again;
                int r = decode(record, length, row->least_fds, first_sender(row), &fault);

                if (r < 0) {
                        ck_assert_int_eq(r, -EBADMSG);
                        continue;
                }
                accepted++;
                ck_assert_int_eq(message_encode(&decoded, again, sizeof(again), &length_again), 0);
                ck_assert_uint_eq(length, length_again);
                ck_assert_mem_eq(record, again, length);
        }
        ck_assert_uint_gt(accepted, records / 10); /* or the mutations are too wild to find anything */
        ck_assert_uint_lt(accepted, records / 10 * 9);
}
END_TEST

START_TEST(over_a_socket) {
        int pair[2], fds[SEQPACKET_FDS_MAX], open, sent[2] = {STDIN_FILENO, STDERR_FILENO};
        struct fault fault;
        size_t n_fds;

        ck_assert_int_eq(seqpacket_pair(pair), 0);
        open = fd_count();
        ck_assert_int_eq(message_receive(pair[1], &decoded, fds, &n_fds, MESSAGE_BY_JOB, &fault),
                         MESSAGE_E_AGAIN);
        list_bound = 4;
        fill(&message, MESSAGE_SETUP);
        ck_assert_int_eq(message_send(pair[0], &message, sent, 1), -ERANGE);
        ck_assert_int_eq(message_send(pair[0], &message, sent, 2), 0);
        ck_assert_int_eq(message_receive(pair[1], &decoded, fds, &n_fds, MESSAGE_BY_DAEMON_TO_WORKER, &fault),
                         0);
        same(&message, &decoded);
        ck_assert_uint_eq(n_fds, 2);
        close(fds[0]);
        close(fds[1]);

        /* From the wrong side: refused, and its descriptors are closed. */
        ck_assert_int_eq(message_send(pair[0], &message, sent, 2), 0);
        ck_assert_int_eq(message_receive(pair[1], &decoded, fds, &n_fds, MESSAGE_BY_JOB, &fault), -EBADMSG);
        ck_assert_uint_eq(n_fds, 0);
        ck_assert_int_eq(fd_count(), open);

        close(pair[0]);
        ck_assert_int_eq(message_receive(pair[1], &decoded, fds, &n_fds, MESSAGE_BY_JOB, &fault),
                         MESSAGE_E_CLOSED);
        ck_assert_int_eq(message_send(pair[1], &message, sent, 2), -EPIPE);
        ck_assert_int_eq(message_receive(-1, &decoded, fds, &n_fds, MESSAGE_BY_JOB, &fault), -EBADF);
        ck_assert_ptr_nonnull(strstr(fault.text, "(9)"));
}
END_TEST

/* Valgrind lowers its own idea of the limit only, so the kernel never runs out. */
static bool can_run_out(void) {
        const char *preload = getenv("LD_PRELOAD");

        return !preload || !strstr(preload, "vgpreload");
}

START_TEST(socket_without_descriptors_left) {
        int pair[2], fds[SEQPACKET_FDS_MAX], sent[2] = {STDIN_FILENO, STDERR_FILENO};
        struct rlimit limit;
        struct fault fault;
        size_t n_fds;

        if (!can_run_out())
                return;
        ck_assert_int_eq(seqpacket_pair(pair), 0);
        list_bound = 4;
        fill(&message, MESSAGE_SETUP);
        ck_assert_int_eq(message_send(pair[0], &message, sent, 2), 0);
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = (rlim_t)pair[1] + 2;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ck_assert_int_eq(message_receive(pair[1], &decoded, fds, &n_fds, MESSAGE_BY_DAEMON_TO_WORKER, &fault),
                         -EMFILE);
        ck_assert_ptr_nonnull(strstr(fault.text, "out of them"));
        ck_assert_uint_eq(n_fds, 0);
}
END_TEST

static Suite *message_suite(void) {
        Suite *suite = suite_create("message");
        TCase *messages = tcase_create("messages");

        tcase_set_timeout(messages, 120);
        tcase_add_loop_test(messages, round_trips, 0, N_MESSAGES);
        tcase_add_loop_test(messages, largest_fit, 0, N_MESSAGES);
        tcase_add_loop_test(messages, every_truncation, 0, N_MESSAGES);
        tcase_add_loop_test(messages, senders_and_descriptors, 0, N_MESSAGES);
        tcase_add_test(messages, names);
        tcase_add_test(messages, bytes_of_hello);
        tcase_add_test(messages, bytes_of_batches);
        tcase_add_test(messages, limits_when_encoding);
        tcase_add_test(messages, words_of_the_decoder);
        tcase_add_test(messages, text_that_is_none);
        tcase_add_test(messages, random_records);
        tcase_add_test(messages, over_a_socket);
        tcase_add_test(messages, socket_without_descriptors_left);
        suite_add_tcase(suite, messages);
        return suite;
}

int main(void) {
        return run_suite(message_suite());
}
