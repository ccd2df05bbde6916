/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Takes the place of space-patience.c in test builds: $PINFEED_TEST_SPACE_MS, where it is set. */

#include "daemon/pipeline-internal.h"

#include <stdlib.h>

uint64_t pipeline_space_patience_ms(void) {
        const char *given = getenv("PINFEED_TEST_SPACE_MS");

        return given ? strtoull(given, NULL, 10) : 30000;
}
