/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* How often workers are looked at. In test builds pool-pace-test.c takes this file's place. */

#include "daemon/pool.h"

void pool_set_pace(struct pool *pool) {
        pool->watch_ms = POOL_WATCH_MS;
        pool->recall_ns = POOL_RECALL_NS;
}
