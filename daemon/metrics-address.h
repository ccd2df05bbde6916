#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where metrics may be served: "127.0.0.1:9187", "[::1]:9187". */

#include <stddef.h>
#include <sys/socket.h>

enum {
        METRICS_ADDRESS_MAX = 64,
};

/* 0, or -EINVAL: what was expected, in `why`, which lives for ever. Nothing is looked up. */
int metrics_address_parse(const char *text, struct sockaddr_storage *address, socklen_t *length,
                          const char **why);
void metrics_address_format(char text[METRICS_ADDRESS_MAX], const struct sockaddr_storage *address);
