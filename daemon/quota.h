#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What each uid may have and do: connections at once, and how often a new one. */

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
        QUOTA_CONNECTIONS_MAX = 1024, /* 64 jobs for each of 16 GPUs, the most that machines have */
        QUOTA_PER_SECOND = 200,       /* an attach costs some 0.1 ms here and in a worker: 2 % of a CPU */
        QUOTA_BURST = 400,            /* a whole machine's jobs may start at once */
};

struct quota {
        struct list uids;
};

void quota_init(struct quota *quota);
void quota_deinit(struct quota *quota);

enum quota_error {
        QUOTA_E_FULL = 1, /* it has QUOTA_CONNECTIONS_MAX already */
};

/* A connection of `uid` has come. 0, and *wait_ns until it may be served: 0 unless the uid connects too
 * often. QUOTA_E_FULL or -ENOMEM: it must be closed. `now` is any clock that never falls. */
int quota_enter(struct quota *quota, uid_t uid, uint64_t now, uint64_t *wait_ns);

/* It is gone. Of those that left before they were served the turn goes to those who come later. */
void quota_leave(struct quota *quota, uid_t uid, bool served);
