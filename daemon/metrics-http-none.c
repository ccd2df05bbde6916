/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A build without libmicrohttpd: a configuration with metrics_listen is refused, so nobody gets one of these.
 */

#include "daemon/metrics-http.h"

#include "base/fault.h"

#include <errno.h>
#include <stddef.h>

bool metrics_http_is_built(void) {
        return false;
}

int metrics_http_new(struct metrics_http **http, struct daemon *daemon, const char *address,
                     struct fault *fault) {
        return fault_set(fault, -ENOSYS, "metrics_listen: %s: this pinfeedd was built without HTTP", address);
}

struct metrics_http *metrics_http_free(struct metrics_http *http) {
        return NULL;
}

const char *metrics_http_address(const struct metrics_http *http) {
        return NULL;
}
