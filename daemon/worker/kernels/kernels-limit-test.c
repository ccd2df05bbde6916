/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Takes the place of kernels-limit.c in test builds. PINFEED_TEST_KERNELS in the environment names the only
 * set that may be chosen besides the definition, as if the CPU had no better one. It is asked each time, so
 * that a test can change its mind. */

#include "daemon/worker/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

int kernels_allowed(const struct kernels *kernels) {
        const char *name = getenv("PINFEED_TEST_KERNELS");

        return !name || kernels == &kernels_c || strcmp(kernels->name, name) == 0;
}
