/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The limit of pixels holds for what transforms make, too; so it is apart from the codecs, for workers that
 * have none. */

#include "daemon/worker/codec.h"

#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>

int codec_check_pixels(uint32_t width, uint32_t height, uint64_t most, struct fault *fault) {
        uint64_t pixels = (uint64_t)width * height;

        if (pixels <= most)
                return 0;
        return fault_set(fault, -EFBIG,
                         "too many pixels: %" PRIu32 " x %" PRIu32 " = %" PRIu64 ", the limit is %" PRIu64
                         " (max_pixels)",
                         width, height, pixels, most);
}
