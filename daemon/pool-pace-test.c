/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Takes the place of pool-pace.c in test builds. With PINFEED_TEST_RECALL in the environment workers are
 * looked at every millisecond and each look recalls whatever is not begun: a race that otherwise comes once
 * in years comes all the time. */

#include "daemon/pool.h"

#include <stdlib.h>

void pool_set_pace(struct pool *pool) {
        bool hasty = getenv("PINFEED_TEST_RECALL") != NULL;

        pool->watch_ms = hasty ? 1 : POOL_WATCH_MS;
        pool->recall_ns = hasty ? 0 : POOL_RECALL_NS;
}
