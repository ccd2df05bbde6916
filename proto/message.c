/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* message-table.h says everything about a message; here its lines become code. Each kind of field has an
 * encoder and a decoder, and each struct a function that calls them for its members, with the limits of the
 * table. So a limit that is written there is held on both sides, and a new message needs no code.
 *
 * A received record is bytes and nothing else: numbers are copied out of it, never read through a cast
 * pointer, and every count is compared with its limit before anything is stored under it. The structs' own
 * layout is this compiler's business and never on the wire. The decoder is strict: there is exactly one
 * encoding of a message, so that "decodes" means "somebody meant this". */

#include "proto/message.h"

#include "base/fault.h"
#include "base/seqpacket.h"
#include "base/utf8.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

_Static_assert((int)MESSAGE_RECORD_MAX == (int)SEQPACKET_RECORD_MAX, "one record, one message");
_Static_assert((int)MESSAGE_TEXT_MAX == (int)FAULT_TEXT_MAX, "every fault fits a message");

/* ---- encoding ---- */

struct writer {
        uint8_t *bytes;
        size_t size, used;
        int error; /* of the first thing that could not be written; nothing is from then on */
};

/* Numbers are the bulk of the steady state's records: with a size that the compiler knows this is a store. */
static inline void put_bytes(struct writer *writer, const void *from, size_t n) {
        if (n > writer->size - writer->used && !writer->error)
                writer->error = -EMSGSIZE;
        if (writer->error)
                return;
        memcpy(writer->bytes + writer->used, from, n);
        writer->used += n;
}

/* The low n bytes of it. */
static inline void put_number(struct writer *writer, uint64_t value, size_t n) {
        uint64_t little = htole64(value);

        put_bytes(writer, &little, n);
}

static inline void put_limited(struct writer *writer, uint64_t value, uint64_t least, uint64_t most,
                               size_t n) {
        if ((value < least || value > most) && !writer->error)
                writer->error = -ERANGE;
        put_number(writer, value, n);
}

static void put_text(struct writer *writer, const char *text, size_t least, size_t most) {
        size_t length = strnlen(text, most + 1);

        if (!utf8_is_text(text, length) && !writer->error)
                writer->error = -ERANGE;
        put_limited(writer, length, least, most, 2);
        put_bytes(writer, text, length);
}

#define ENCODE_NUMBER(name, least, most) put_limited(writer, object->name, least, most, sizeof(object->name));

#define ENCODE_U8(name, least, most)   ENCODE_NUMBER(name, least, most)
#define ENCODE_U16(name, least, most)  ENCODE_NUMBER(name, least, most)
#define ENCODE_U32(name, least, most)  ENCODE_NUMBER(name, least, most)
#define ENCODE_U64(name, least, most)  ENCODE_NUMBER(name, least, most)
#define ENCODE_TEXT(name, least, most) put_text(writer, object->name, least, most);
#define ENCODE_BLOB(name, least, most) put_bytes(writer, object->name, most);

/* An entry beyond `most` does not exist, so the loops look. */
#define ENCODE_U64S(name, least, most)                                                                       \
        put_limited(writer, object->n_##name, least, most, 2);                                               \
        for (uint32_t i = 0; i < object->n_##name && !writer->error; i++)                                    \
                put_number(writer, object->name[i], 8);
#define ENCODE_LIST(name, least, most)                                                                       \
        put_limited(writer, object->n_##name, least, most, 2);                                               \
        for (uint32_t i = 0; i < object->n_##name && !writer->error; i++)                                    \
                encode_##name(writer, &object->name[i]);

#define ENCODE(kind, name, least, most) ENCODE_##kind(name, least, most)

#define ENCODER(name, FIELDS)                                                                                \
        static void encode_##name(struct writer *writer, const struct message_##name *object) {              \
                FIELDS(ENCODE)                                                                               \
        }

/* ---- decoding ---- */

struct reader {
        const uint8_t *bytes;
        size_t length, at;
        int error; /* of the first thing that was wrong; what is read from then on is 0 */
        struct fault *fault;
};

static void too_short(struct reader *reader, const char *name) {
        if (!reader->error)
                reader->error = fault_set(reader->fault, -EBADMSG, "the record ends within %s", name);
}

static void out_of_range(struct reader *reader, const char *what, const char *name, uint64_t value,
                         uint64_t least, uint64_t most) {
        if (!reader->error)
                reader->error = fault_set(reader->fault, -EBADMSG, "%s%s is %llu, allowed are %llu to %llu",
                                          what, name, (unsigned long long)value, (unsigned long long)least,
                                          (unsigned long long)most);
}

/* The next n bytes, or NULL when there are not so many. */
static inline const uint8_t *get_bytes(struct reader *reader, const char *name, size_t n) {
        const uint8_t *bytes = reader->bytes + reader->at;

        if (n > reader->length - reader->at)
                too_short(reader, name);
        if (reader->error)
                return NULL;
        reader->at += n;
        return bytes;
}

static inline uint64_t get_number(struct reader *reader, const char *name, size_t n) {
        const uint8_t *bytes = get_bytes(reader, name, n);
        uint64_t little = 0;

        if (bytes)
                memcpy(&little, bytes, n);
        return le64toh(little);
}

static inline uint64_t get_limited(struct reader *reader, const char *what, const char *name, uint64_t least,
                                   uint64_t most, size_t n) {
        uint64_t value = get_number(reader, name, n);

        if (value >= least && value <= most)
                return value;
        out_of_range(reader, what, name, value, least, most);
        return 0;
}

static uint32_t get_length(struct reader *reader, const char *name, uint64_t least, uint64_t most) {
        return (uint32_t)get_limited(reader, "the length of ", name, least, most, 2);
}

static void get_text(struct reader *reader, const char *name, char *text, uint64_t least, uint64_t most) {
        uint32_t length = get_length(reader, name, least, most);
        const uint8_t *bytes = get_bytes(reader, name, length);

        text[0] = 0;
        if (!bytes)
                return;
        if (!utf8_is_text((const char *)bytes, length))
                reader->error = fault_set(reader->fault, -EBADMSG, "%s is not UTF-8 text", name);
        memcpy(text, bytes, length);
        text[length] = 0;
}

static void get_blob(struct reader *reader, const char *name, uint8_t *blob, size_t n) {
        const uint8_t *bytes = get_bytes(reader, name, n);

        if (bytes)
                memcpy(blob, bytes, n);
}

/* After an entry of a list: an error in it tells which it was. */
static inline void end_entry(struct reader *reader, const char *name, uint32_t index) {
        if (reader->error)
                fault_prefix(reader->fault, reader->error, "%s %" PRIu32, name, index);
}

#define DECODE_NUMBER(name, least, most)                                                                     \
        object->name =                                                                                       \
                (__typeof__(object->name))get_limited(reader, "", #name, least, most, sizeof(object->name));

#define DECODE_U8(name, least, most)   DECODE_NUMBER(name, least, most)
#define DECODE_U16(name, least, most)  DECODE_NUMBER(name, least, most)
#define DECODE_U32(name, least, most)  DECODE_NUMBER(name, least, most)
#define DECODE_U64(name, least, most)  DECODE_NUMBER(name, least, most)
#define DECODE_TEXT(name, least, most) get_text(reader, #name, object->name, least, most);
#define DECODE_BLOB(name, least, most) get_blob(reader, #name, object->name, most);
#define DECODE_U64S(name, least, most)                                                                       \
        object->n_##name = get_length(reader, #name, least, most);                                           \
        for (uint32_t i = 0; i < object->n_##name && !reader->error; i++)                                    \
                object->name[i] = get_number(reader, #name, 8);
#define DECODE_LIST(name, least, most)                                                                       \
        object->n_##name = get_length(reader, #name, least, most);                                           \
        for (uint32_t i = 0; i < object->n_##name && !reader->error; i++) {                                  \
                decode_##name(reader, &object->name[i]);                                                     \
                end_entry(reader, #name, i);                                                                 \
        }

#define DECODE(kind, name, least, most) DECODE_##kind(name, least, most)

#define DECODER(name, FIELDS)                                                                                \
        static void decode_##name(struct reader *reader, struct message_##name *object) {                    \
                FIELDS(DECODE)                                                                               \
        }

/* ---- one of each for every struct ---- */

#define CODER(name, FIELDS)                                                                                  \
        ENCODER(name, FIELDS)                                                                                \
        DECODER(name, FIELDS)

MESSAGE_ENTRIES(CODER)

#define M(number, NAME, name, senders, least_fds, most_fds) CODER(name, MESSAGE_##NAME##_FIELDS)
MESSAGE_TABLE(M)
#undef M

/* What else the table says about a message. */
struct kind {
        const char *name;
        unsigned senders;
        size_t least_fds, most_fds;
};

static const struct kind *find_kind(unsigned type) {
        switch (type) {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        case number: {                                                                                       \
                static const struct kind kind = {#NAME, senders, least_fds, most_fds};                       \
                                                                                                             \
                return &kind;                                                                                \
        }
                MESSAGE_TABLE(M)
#undef M
        }
        return NULL;
}

const char *message_name(unsigned type) {
        const struct kind *kind = find_kind(type);

        return kind ? kind->name : "unknown";
}

static void encode_body(struct writer *writer, const struct message *message) {
        switch (message->type) {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        case number:                                                                                         \
                encode_##name(writer, &message->name);                                                       \
                return;
                MESSAGE_TABLE(M)
#undef M
        }
        writer->error = -ERANGE;
}

static void decode_body(struct reader *reader, struct message *message) {
        switch (message->type) {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        case number:                                                                                         \
                decode_##name(reader, &message->name);                                                       \
                break;
                MESSAGE_TABLE(M)
#undef M
        }
}

int message_encode(const struct message *message, void *record, size_t size, size_t *length) {
        struct writer writer = {.bytes = record,
                                .size = size < MESSAGE_RECORD_MAX ? size : MESSAGE_RECORD_MAX};
        size_t total;

        put_number(&writer, message->type, 2);
        put_number(&writer, 0, 2);
        put_number(&writer, 0, 4); /* the length, known at the end */
        encode_body(&writer, message);
        if (writer.error)
                return writer.error;
        total = writer.used;
        writer.used = 4;
        put_number(&writer, total, 4);
        *length = total;
        return 0;
}

/* The header's type, when everything outside of the body is in order. */
static int check_header(struct reader *reader, const struct kind **kindp, enum message_type *type,
                        size_t n_fds, enum message_sender sender) {
        const struct kind *kind;
        uint64_t number = get_number(reader, "the header", 2);
        uint64_t zero = get_number(reader, "the header", 2);
        uint64_t length = get_number(reader, "the header", 4);

        if (reader->error)
                return fault_set(reader->fault, -EBADMSG, "a record of %zu bytes, a header has %d",
                                 reader->length, MESSAGE_HEADER_BYTES);
        kind = find_kind((unsigned)number);
        if (!kind)
                return fault_set(reader->fault, -EBADMSG, "no message has the number %u", (unsigned)number);
        if (zero != 0)
                return fault_set(reader->fault, -EBADMSG, "%s: bytes 2 and 3 are not zero", kind->name);
        if (length != reader->length)
                return fault_set(reader->fault, -EBADMSG, "%s: the header says %u bytes, %zu came",
                                 kind->name, (unsigned)length, reader->length);
        if (!(kind->senders & sender))
                return fault_set(reader->fault, -EBADMSG, "%s is not for this side to send", kind->name);
        if (n_fds < kind->least_fds || n_fds > kind->most_fds)
                return fault_set(reader->fault, -EBADMSG,
                                 "%s came with %zu descriptors, allowed are %zu to %zu", kind->name, n_fds,
                                 kind->least_fds, kind->most_fds);
        *kindp = kind;
        *type = (enum message_type)number;
        return 0;
}

int message_decode(struct message *message, const void *record, size_t length, size_t n_fds,
                   enum message_sender sender, struct fault *fault) {
        struct reader reader = {.bytes = record, .length = length, .fault = fault};
        const struct kind *kind = NULL;
        int r;

        r = check_header(&reader, &kind, &message->type, n_fds, sender);
        if (r < 0)
                return r;
        decode_body(&reader, message);
        if (reader.error)
                return fault_prefix(fault, reader.error, "%s", kind->name);
        if (reader.at != length)
                return fault_set(fault, -EBADMSG, "%s: %zu bytes after its end", kind->name,
                                 length - reader.at);
        return 0;
}

/* ---- sockets ---- */

/* Too big for the small stacks that some threads of our guests have. */
static _Thread_local uint8_t record_buffer[MESSAGE_RECORD_MAX];

int message_send(int socket, const struct message *message, const int *fds, size_t n_fds) {
        const struct kind *kind = find_kind(message->type);
        size_t length;
        int r;

        if (!kind || n_fds < kind->least_fds || n_fds > kind->most_fds)
                return -ERANGE;
        r = message_encode(message, record_buffer, sizeof(record_buffer), &length);
        if (r < 0)
                return r;
        return seqpacket_send(socket, record_buffer, length, fds, n_fds);
}

static int out_of_descriptors(struct fault *fault) {
        struct rlimit limit = {0};

        getrlimit(RLIMIT_NOFILE, &limit);
        return fault_set(
                fault, -EMFILE,
                "a message lost its descriptors: this process is out of them (its limit is %llu); raise it "
                "with ulimit -n or LimitNOFILE=",
                (unsigned long long)limit.rlim_cur);
}

int message_receive(int socket, struct message *message, int fds[], size_t *n_fds, enum message_sender sender,
                    struct fault *fault) {
        int taken[SEQPACKET_FDS_MAX];
        size_t length, n_taken;
        int r;

        *n_fds = 0;
        r = seqpacket_receive(socket, record_buffer, sizeof(record_buffer), &length, taken, &n_taken);
        switch (r) {
        case 0:
                break;
        case SEQPACKET_E_AGAIN:
                return MESSAGE_E_AGAIN;
        case SEQPACKET_E_CLOSED:
                return MESSAGE_E_CLOSED;
        case SEQPACKET_E_TOO_LONG:
                return fault_set(fault, -EBADMSG, "a record of more than %d bytes or %d descriptors",
                                 MESSAGE_RECORD_MAX, SEQPACKET_FDS_MAX);
        case SEQPACKET_E_NO_FDS:
                return out_of_descriptors(fault);
        default:
                return fault_set(fault, r, "receiving a message: %s (%d)", strerror(-r), -r);
        }
        r = message_decode(message, record_buffer, length, n_taken, sender, fault);
        for (size_t i = 0; i < n_taken; i++)
                if (r < 0)
                        close(taken[i]);
                else
                        fds[i] = taken[i];
        if (r == 0)
                *n_fds = n_taken;
        return r;
}
