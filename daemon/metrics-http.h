#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Metrics over HTTP, for whoever is on this machine. */

#include <stdbool.h>

struct daemon;
struct fault;
struct metrics_http;

/* Whether this build can. If not, metrics_http_new fails. */
bool metrics_http_is_built(void);

/* Serves at `address`, which metrics_address_parse takes; port 0: one that is free. 0, or a negative errno
 * with the reason. */
int metrics_http_new(struct metrics_http **http, struct daemon *daemon, const char *address,
                     struct fault *fault);

/* Closes the port and every connection; the memory goes when the loop has run dry. */
struct metrics_http *metrics_http_free(struct metrics_http *http);

/* Where it serves, with the port that it has got. */
const char *metrics_http_address(const struct metrics_http *http);
