/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Takes the place of pin-piece.c in test builds. PINFEED_TEST_PIECE in the environment is the bytes of a
 * piece, a multiple of a page, so that a slot of a few MiB is registered in many. */

#include "client/pin.h"

#include "base/number.h"

#include <stdlib.h>

uint64_t pin_piece(void) {
        const char *text = getenv("PINFEED_TEST_PIECE");
        uint64_t bytes;

        return text && number_parse_u64(text, &bytes) == 0 && bytes > 0 ? bytes : UINT64_C(16) << 30;
}
