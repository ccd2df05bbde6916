/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How much one call registers. One of 512 GiB is known to fail where sixteen of 32 GiB do not, and nothing is
 * gained by larger ones. In test builds pin-piece-test.c takes this file's place. */

#include "client/pin.h"

uint64_t pin_piece(void) {
        return UINT64_C(16) << 30;
}
