/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* message-table.h says everything about a message; here it becomes data. Each struct gets a list of its
 * members (kind, place, limits), and one encoder and one decoder walk those lists. So a limit that is written
 * in the table is held on both sides, and a new message needs no code.
 *
 * A received record is bytes and nothing else: numbers are copied out of it, never read through a cast
 * pointer, and every count is compared with its limit before anything is stored under it. The structs' own
 * layout is this compiler's business and never on the wire. The decoder is strict: there is exactly one
 * encoding of a message, so that "decodes" means "somebody meant this".
 *
 * The lists are made inside functions, because there a typedef can carry the struct's name into the table's
 * macros. */

#include "proto/message.h"

#include "base/fault.h"
#include "base/seqpacket.h"
#include "base/utf8.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

_Static_assert((int)MESSAGE_RECORD_MAX == (int)SEQPACKET_RECORD_MAX, "one record, one message");
_Static_assert((int)MESSAGE_TEXT_MAX == (int)FAULT_TEXT_MAX, "every fault fits a message");

enum kind {
        KIND_U8,
        KIND_U16,
        KIND_U32,
        KIND_U64,
        KIND_TEXT,
        KIND_BLOB,
        KIND_U64S,
        KIND_LIST,
};

struct layout;

struct member {
        const char *name;
        enum kind kind;
        size_t offset;
        size_t count_offset;                   /* U64S, LIST: of n_NAME */
        uint64_t least, most;                  /* of the number, the bytes, or the entries */
        const struct layout *(*entries)(void); /* LIST */
};

struct layout {
        const struct member *members;
        size_t n_members;
        size_t stride; /* bytes of the struct */
};

/* What a list's entries or a message's body consist of, and what else the table says about a message. */
struct kind_of_message {
        const char *name;
        unsigned senders;
        size_t least_fds, most_fds;
        const struct layout *(*layout)(void);
        size_t offset; /* of its struct in struct message */
};

#define COUNT_U8(name)   0
#define COUNT_U16(name)  0
#define COUNT_U32(name)  0
#define COUNT_U64(name)  0
#define COUNT_TEXT(name) 0
#define COUNT_BLOB(name) 0
#define COUNT_U64S(name) offsetof(T, n_##name)
#define COUNT_LIST(name) offsetof(T, n_##name)

#define ENTRIES_U8(name)   NULL
#define ENTRIES_U16(name)  NULL
#define ENTRIES_U32(name)  NULL
#define ENTRIES_U64(name)  NULL
#define ENTRIES_TEXT(name) NULL
#define ENTRIES_BLOB(name) NULL
#define ENTRIES_U64S(name) NULL
#define ENTRIES_LIST(name) layout_##name

#define MEMBER(kind, name, least, most)                                                                      \
        {#name, KIND_##kind, offsetof(T, name), COUNT_##kind(name), least, most, ENTRIES_##kind(name)},

#define LAYOUT(name, FIELDS)                                                                                 \
        static const struct layout *layout_##name(void) {                                                    \
                typedef struct message_##name T;                                                             \
                static const struct member members[] = {FIELDS(MEMBER)};                                     \
                static const struct layout layout = {members, sizeof(members) / sizeof(*members),            \
                                                     sizeof(T)};                                             \
                                                                                                             \
                return &layout;                                                                              \
        }

MESSAGE_ENTRIES(LAYOUT)

#define M(number, NAME, name, senders, least_fds, most_fds) LAYOUT(name, MESSAGE_##NAME##_FIELDS)
MESSAGE_TABLE(M)
#undef M

static const struct kind_of_message *find_kind(unsigned type) {
        switch (type) {
#define M(number, NAME, name, senders, least_fds, most_fds)                                                  \
        case number: {                                                                                       \
                static const struct kind_of_message kind = {                                                 \
                        #NAME, senders, least_fds, most_fds, layout_##name, offsetof(struct message, name)}; \
                                                                                                             \
                return &kind;                                                                                \
        }
                MESSAGE_TABLE(M)
#undef M
        }
        return NULL;
}

const char *message_name(unsigned type) {
        const struct kind_of_message *kind = find_kind(type);

        return kind ? kind->name : "unknown";
}

/* Bytes of a number on the wire. */
static size_t number_size(enum kind kind) {
        return (size_t)1 << (kind - KIND_U8);
}

static uint64_t load_number(const void *from, enum kind kind) {
        switch (kind) {
        case KIND_U8:
                return *(const uint8_t *)from;
        case KIND_U16:
                return *(const uint16_t *)from;
        case KIND_U32:
                return *(const uint32_t *)from;
        default:
                return *(const uint64_t *)from;
        }
}

static void store_number(void *to, enum kind kind, uint64_t value) {
        switch (kind) {
        case KIND_U8:
                *(uint8_t *)to = (uint8_t)value;
                break;
        case KIND_U16:
                *(uint16_t *)to = (uint16_t)value;
                break;
        case KIND_U32:
                *(uint32_t *)to = (uint32_t)value;
                break;
        default:
                *(uint64_t *)to = value;
                break;
        }
}

struct writer {
        uint8_t *bytes;
        size_t size, used;
        bool full; /* something did not fit; nothing is written from then on */
};

static inline void put_bytes(struct writer *writer, const void *from, size_t n) {
        if (writer->full || n > writer->size - writer->used) {
                writer->full = true;
                return;
        }
        memcpy(writer->bytes + writer->used, from, n);
        writer->used += n;
}

/* The low n bytes of it: the lists of the steady state are made of these, so the two usual sizes have copies
 * that the compiler knows the length of. */
static void put_number(struct writer *writer, uint64_t value, size_t n) {
        uint64_t bytes = htole64(value);

        if (n == 8)
                put_bytes(writer, &bytes, 8);
        else if (n == 4)
                put_bytes(writer, &bytes, 4);
        else
                put_bytes(writer, &bytes, n);
}

static int encode_members(struct writer *writer, const struct layout *layout, const char *object);

static int encode_text(struct writer *writer, const struct member *member, const char *text) {
        size_t length = strnlen(text, member->most + 1);

        if (length < member->least || length > member->most || !utf8_is_text(text, length))
                return -ERANGE;
        put_number(writer, length, 2);
        put_bytes(writer, text, length);
        return 0;
}

static int encode_list(struct writer *writer, const struct member *member, const char *object) {
        const struct layout *layout = member->kind == KIND_LIST ? member->entries() : NULL;
        uint32_t n = (uint32_t)load_number(object + member->count_offset, KIND_U32);
        const char *entry = object + member->offset;
        int r;

        if (n < member->least || n > member->most)
                return -ERANGE;
        put_number(writer, n, 2);
        for (uint32_t i = 0; i < n; i++) {
                if (!layout) {
                        put_number(writer, load_number(entry + i * sizeof(uint64_t), KIND_U64),
                                   sizeof(uint64_t));
                        continue;
                }
                r = encode_members(writer, layout, entry + i * layout->stride);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int encode_member(struct writer *writer, const struct member *member, const char *object) {
        uint64_t value;

        switch (member->kind) {
        case KIND_TEXT:
                return encode_text(writer, member, object + member->offset);
        case KIND_BLOB:
                put_bytes(writer, object + member->offset, member->most);
                return 0;
        case KIND_U64S:
        case KIND_LIST:
                return encode_list(writer, member, object);
        default:
                value = load_number(object + member->offset, member->kind);
                if (value < member->least || value > member->most)
                        return -ERANGE;
                put_number(writer, value, number_size(member->kind));
                return 0;
        }
}

static int encode_members(struct writer *writer, const struct layout *layout, const char *object) {
        for (size_t i = 0; i < layout->n_members; i++) {
                int r = encode_member(writer, &layout->members[i], object);

                if (r < 0)
                        return r;
        }
        return 0;
}

int message_encode(const struct message *message, void *record, size_t size, size_t *length) {
        const struct kind_of_message *kind = find_kind(message->type);
        struct writer writer = {.bytes = record,
                                .size = size < MESSAGE_RECORD_MAX ? size : MESSAGE_RECORD_MAX};
        size_t total;
        int r;

        if (!kind)
                return -ERANGE;
        put_number(&writer, message->type, 2);
        put_number(&writer, 0, 2);
        put_number(&writer, 0, 4); /* the length, known at the end */
        r = encode_members(&writer, kind->layout(), (const char *)message + kind->offset);
        if (r < 0)
                return r;
        if (writer.full)
                return -EMSGSIZE;
        total = writer.used;
        writer.used = 4;
        put_number(&writer, total, 4);
        *length = total;
        return 0;
}

struct reader {
        const uint8_t *bytes;
        size_t length, at;
        struct fault *fault;
};

static int too_short(struct reader *reader, const struct member *member) {
        return fault_set(reader->fault, -EBADMSG, "the record ends within %s", member->name);
}

/* The next n bytes, or NULL when there are not so many. */
static const uint8_t *get_bytes(struct reader *reader, size_t n) {
        const uint8_t *bytes = reader->bytes + reader->at;

        if (n > reader->length - reader->at)
                return NULL;
        reader->at += n;
        return bytes;
}

static bool get_number(struct reader *reader, size_t n, uint64_t *value) {
        const uint8_t *bytes = get_bytes(reader, n);
        uint64_t little = 0;

        *value = 0;
        if (!bytes)
                return false;
        if (n == 8)
                memcpy(&little, bytes, 8);
        else if (n == 4)
                memcpy(&little, bytes, 4);
        else
                memcpy(&little, bytes, n);
        *value = le64toh(little);
        return true;
}

/* A number, or the length of a text or list, within its limits. */
static int get_limited(struct reader *reader, const struct member *member, size_t n, uint64_t *value) {
        if (!get_number(reader, n, value))
                return too_short(reader, member);
        if (*value < member->least || *value > member->most)
                return fault_set(reader->fault, -EBADMSG, "%s%s is %llu, allowed are %llu to %llu",
                                 member->kind > KIND_U64 ? "the length of " : "", member->name,
                                 (unsigned long long)*value, (unsigned long long)member->least,
                                 (unsigned long long)member->most);
        return 0;
}

static int decode_members(struct reader *reader, const struct layout *layout, char *object);

static int decode_text(struct reader *reader, const struct member *member, char *text) {
        const uint8_t *bytes;
        uint64_t length;
        int r;

        r = get_limited(reader, member, 2, &length);
        if (r < 0)
                return r;
        bytes = get_bytes(reader, length);
        if (!bytes)
                return too_short(reader, member);
        if (!utf8_is_text((const char *)bytes, length))
                return fault_set(reader->fault, -EBADMSG, "%s is not UTF-8 text", member->name);
        memcpy(text, bytes, length);
        text[length] = 0;
        return 0;
}

static int decode_numbers(struct reader *reader, const struct member *member, char *to, uint64_t n) {
        uint64_t value;

        for (uint64_t i = 0; i < n; i++) {
                if (!get_number(reader, sizeof(value), &value))
                        return too_short(reader, member);
                store_number(to + i * sizeof(value), KIND_U64, value);
        }
        return 0;
}

static int decode_entries(struct reader *reader, const struct member *member, char *to, uint64_t n) {
        const struct layout *layout = member->entries();

        for (uint64_t i = 0; i < n; i++) {
                int r = decode_members(reader, layout, to + i * layout->stride);

                if (r < 0)
                        return fault_prefix(reader->fault, r, "%s %llu", member->name, (unsigned long long)i);
        }
        return 0;
}

static int decode_list(struct reader *reader, const struct member *member, char *object) {
        uint64_t n;
        int r;

        r = get_limited(reader, member, 2, &n);
        if (r < 0)
                return r;
        store_number(object + member->count_offset, KIND_U32, n);
        if (member->kind == KIND_LIST)
                return decode_entries(reader, member, object + member->offset, n);
        return decode_numbers(reader, member, object + member->offset, n);
}

static int decode_member(struct reader *reader, const struct member *member, char *object) {
        const uint8_t *bytes;
        uint64_t value = 0;
        int r;

        switch (member->kind) {
        case KIND_TEXT:
                return decode_text(reader, member, object + member->offset);
        case KIND_BLOB:
                bytes = get_bytes(reader, member->most);
                if (!bytes)
                        return too_short(reader, member);
                memcpy(object + member->offset, bytes, member->most);
                return 0;
        case KIND_U64S:
        case KIND_LIST:
                return decode_list(reader, member, object);
        default:
                r = get_limited(reader, member, number_size(member->kind), &value);
                if (r == 0)
                        store_number(object + member->offset, member->kind, value);
                return r;
        }
}

static int decode_members(struct reader *reader, const struct layout *layout, char *object) {
        for (size_t i = 0; i < layout->n_members; i++) {
                int r = decode_member(reader, &layout->members[i], object);

                if (r < 0)
                        return r;
        }
        return 0;
}

/* The header's type, when everything outside of the body is in order. */
static int check_header(struct reader *reader, const struct kind_of_message **kindp, enum message_type *type,
                        size_t n_fds, enum message_sender sender) {
        const struct kind_of_message *kind;
        uint64_t number, zero, length;

        if (!get_number(reader, 2, &number) || !get_number(reader, 2, &zero) ||
            !get_number(reader, 4, &length))
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
        const struct kind_of_message *kind = NULL;
        int r;

        r = check_header(&reader, &kind, &message->type, n_fds, sender);
        if (r < 0)
                return r;
        r = decode_members(&reader, kind->layout(), (char *)message + kind->offset);
        if (r < 0)
                return fault_prefix(fault, r, "%s", kind->name);
        if (reader.at != length)
                return fault_set(fault, -EBADMSG, "%s: %zu bytes after its end", kind->name,
                                 length - reader.at);
        return 0;
}

/* Too big for the small stacks that some threads of our guests have. */
static _Thread_local uint8_t record_buffer[MESSAGE_RECORD_MAX];

int message_send(int socket, const struct message *message, const int *fds, size_t n_fds) {
        const struct kind_of_message *kind = find_kind(message->type);
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
