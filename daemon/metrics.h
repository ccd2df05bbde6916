#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* All counters as text for Prometheus. */

#include <stddef.h>

struct daemon;
struct peer;

/* Of the daemon, and of those pipelines that `reader` may use; NULL: of all. Free it. NULL for want of
 * memory. */
char *metrics_make(const struct daemon *daemon, const struct peer *reader, size_t *length);
