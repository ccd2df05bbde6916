/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Finding a source in the table that this program has, and what is true of every source's index: its SHA-256.
 *
 * The sum is taken over a canonical form and not over the bytes of the memfd, so that the file's layout may
 * change without changing what a saved state is compared with: for each sample its relative name, a NUL, its
 * class as 32 bits and its size as 64 bits, both least significant byte first. */

#include "daemon/worker/source.h"

#include <nettle/sha2.h>
#include <string.h>

const struct source_ops *source_find(int type) {
        if (type < 0 || type >= SOURCE_TYPES)
                return NULL;
        return source_table[type];
}

static void put_little_endian(uint8_t *to, uint64_t value, unsigned bytes) {
        for (unsigned i = 0; i < bytes; i++)
                to[i] = (uint8_t)(value >> (8 * i));
}

void source_index_sha256(const struct index *index, uint8_t sha256[SOURCE_SHA256_BYTES]) {
        struct sha256_ctx context;

        sha256_init(&context);
        for (uint64_t i = 0; i < index->header->samples; i++) {
                const struct index_entry *entry = &index->entries[i];
                uint8_t tail[1 + 4 + 8] = {0};

                put_little_endian(tail + 1, entry->class, 4);
                put_little_endian(tail + 5, entry->size, 8);
                sha256_update(&context, entry->name_length,
                              (const uint8_t *)index->base + entry->name_offset);
                sha256_update(&context, sizeof(tail), tail);
        }
        sha256_digest(&context, SOURCE_SHA256_BYTES, sha256);
}
