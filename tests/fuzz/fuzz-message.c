/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The wire: there is one encoding of a message, so what decodes encodes to the same bytes again. What does
 * not decode has a text that says why.
 *
 * An input begins with who sends the record and how many descriptors come with it. The record's length is
 * put into its header, for else nearly all of what a fuzzer makes ends at that check; one flag leaves it.
 */

#include "base/fault.h"
#include "base/seqpacket.h"
#include "base/utf8.h"
#include "proto/message.h"
#include "tests/fuzz/fuzz.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
        CHOICE = 2, /* bytes before the record */
        SENDERS = 6,
        LEAVE_LENGTH = 0x80,
        LENGTH_AT = 4, /* in the header */
};

static void check_encoding(const struct message *message, const uint8_t *record, size_t length) {
        static uint8_t encoded[MESSAGE_RECORD_MAX];
        size_t n = 0;
        int r = message_encode(message, encoded, sizeof(encoded), &n);

        if (r < 0)
                fuzz_broken("%s was decoded and cannot be encoded: %d", message_name(message->type), r);
        if (n != length || memcmp(encoded, record, n) != 0)
                fuzz_broken("%s of %zu bytes is encoded to %zu others", message_name(message->type), length,
                            n);
}

static void check_record(const uint8_t *record, size_t length, size_t n_fds, enum message_sender sender) {
        static struct message message;
        struct fault fault = {0};
        int r = message_decode(&message, record, length, n_fds, sender, &fault);

        if (r == 0)
                check_encoding(&message, record, length);
        else if (r != -EBADMSG || fault.text[0] == 0 || !utf8_is_text(fault.text, strlen(fault.text)))
                fuzz_broken("error %d: %s", r, fault.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        uint32_t length;
        uint8_t *record;

        if (size < CHOICE || size > CHOICE + MESSAGE_RECORD_MAX)
                return 0;
        length = (uint32_t)(size - CHOICE);
        record = malloc(length > 0 ? length : 1); /* of its exact size, for the address sanitizer */
        if (!record)
                fuzz_broken("no memory for %u bytes", length);
        memcpy(record, data + CHOICE, length);
        if (length >= MESSAGE_HEADER_BYTES && !(data[0] & LEAVE_LENGTH)) {
                uint32_t little = htole32(length);

                memcpy(record + LENGTH_AT, &little, sizeof(little));
        }
        check_record(record, length, data[1] % (SEQPACKET_FDS_MAX + 1),
                     (enum message_sender)(1u << data[0] % LEAVE_LENGTH % SENDERS));
        free(record);
        return 0;
}
