/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/*
 * EXIF data: an orientation always comes out. The prefix that a JPEG puts before them says nothing, so it may
 * be there or not; and what stands behind the last byte is not read, which the address sanitizer sees.
 */

#include "daemon/worker/orient.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t prefix[6] = "Exif\0";

static int has_prefix(const uint8_t *data, size_t size) {
        return size >= sizeof(prefix) && memcmp(data, prefix, sizeof(prefix)) == 0;
}

static int with_prefix(const uint8_t *data, size_t size) {
        uint8_t *longer = malloc(sizeof(prefix) + size);
        int orientation;

        if (!longer)
                fuzz_broken("no memory for %zu bytes", size);
        memcpy(longer, prefix, sizeof(prefix));
        memcpy(longer + sizeof(prefix), data, size);
        orientation = orient_of_exif(longer, sizeof(prefix) + size);
        free(longer);
        return orientation;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        int orientation = orient_of_exif(data, size), other;

        if (orientation < ORIENT_UPRIGHT || orientation > ORIENT_LAST)
                fuzz_broken("an orientation of %d", orientation);
        if (has_prefix(data, size))
                return 0;
        other = with_prefix(data, size);
        if (other != orientation)
                fuzz_broken("orientation %d, and %d with a prefix", orientation, other);
        return 0;
}
