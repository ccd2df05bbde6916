#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* All counters as text for Prometheus. */

#include <stddef.h>

struct daemon;

/* Free it. NULL for want of memory. */
char *metrics_make(const struct daemon *daemon, size_t *length);
