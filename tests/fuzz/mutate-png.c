/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A PNG's chunks end in a checksum, and one that does not hold ends the decoding. So after libFuzzer has
 * changed an input the checksums are set right, but for one time in sixteen: refusing them is tried as well.
 * Chunks that reach beyond the end are left as they are.
 */

#include "tests/fuzz/fuzz.h"

/* Both names are libFuzzer's: it calls the first, and has the second. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

enum {
        SIGNATURE = 8,
        AROUND = 12, /* bytes of a chunk around its data: length, kind, checksum */
};

static uint32_t get(const uint8_t *at) {
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put(uint8_t *at, uint32_t value) {
        for (unsigned i = 0; i < 4; i++)
                at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* CRC-32 as PNG and zlib have it; a few hundred bytes at a time need no table. */
static uint32_t checksum(const uint8_t *bytes, size_t length) {
        uint32_t crc = UINT32_MAX;

        for (size_t i = 0; i < length; i++) {
                crc ^= bytes[i];
                for (unsigned bit = 0; bit < 8; bit++)
                        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
        return ~crc;
}

static void set_checksums(uint8_t *chunk, const uint8_t *end) {
        while (end - chunk >= AROUND) {
                size_t length = get(chunk);

                if (length > (size_t)(end - chunk) - AROUND)
                        return;
                put(chunk + 8 + length, checksum(chunk + 4, 4 + length));
                chunk += AROUND + length;
        }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
        size = LLVMFuzzerMutate(data, size, max_size);
        if (seed % 16 != 0 && size > FUZZ_CHOICE + SIGNATURE)
                set_checksums(data + FUZZ_CHOICE + SIGNATURE, data + size);
        return size;
}
