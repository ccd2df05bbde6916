#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* What the daemon knows, as JSON. Touches memory only: no file, no peer, nothing that could wait. */

#include <jansson.h>

struct daemon;
struct peer;

enum {
        STATUS_SCHEMA = 1, /* raised when a member changes its meaning or goes; new ones may come any time */
        STATUS_SLOTS_MAX =
                1024,        /* of each pipeline; 100,000 would take the loop the better part of a second */
        STATUS_IDS_MAX = 64, /* jobs that hold a slot, or share with a job */
        STATUS_STREAMS_MAX = 64, /* of each pipeline */
};

/* Of the pipelines that `reader` may use. A new reference, or NULL for want of memory. */
json_t *status_make(const struct daemon *daemon, const struct peer *reader);
