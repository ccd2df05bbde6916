/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Metrics have no password, and what they tell (names of pipelines, how much is trained when) is nobody's
 * business outside this machine. So only addresses that cannot be reached from outside are taken, and no
 * names: whoever looks one up may wait for minutes, and get an address that is another tomorrow. */

#include "daemon/metrics-address.h"

#include "base/number.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char form[] = "expected an address of this machine's loopback and a port: \"127.0.0.1:9187\" or "
                           "\"[::1]:9187\"";
static const char outside[] = "expected an address of the loopback, 127.0.0.0/8 or ::1: metrics have no "
                              "password; put a proxy that asks for one before them";

/* Cuts "HOST:PORT" or "[HOST]:PORT" in two. */
static bool split(const char *text, char host[METRICS_ADDRESS_MAX], bool *is_v6, uint64_t *port) {
        const char *colon = strrchr(text, ':');
        size_t length = colon ? (size_t)(colon - text) : 0;

        if (length == 0 || length >= METRICS_ADDRESS_MAX || number_parse_u64(colon + 1, port) < 0 ||
            *port > UINT16_MAX)
                return false;
        *is_v6 = text[0] == '[' && text[length - 1] == ']';
        text += *is_v6;
        length -= *is_v6 ? 2 : 0;
        memcpy(host, text, length);
        host[length] = 0;
        return true;
}

int metrics_address_parse(const char *text, struct sockaddr_storage *address, socklen_t *length,
                          const char **why) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
        struct sockaddr_in *v4 = (struct sockaddr_in *)address;
        char host[METRICS_ADDRESS_MAX];
        uint64_t port;
        bool is_v6;

        memset(address, 0, sizeof(*address));
        *why = form;
        if (!split(text, host, &is_v6, &port) ||
            inet_pton(is_v6 ? AF_INET6 : AF_INET, host,
                      is_v6 ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr) != 1)
                return -EINVAL;
        *why = outside;
        if (is_v6 ? !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) : ntohl(v4->sin_addr.s_addr) >> 24 != 127)
                return -EINVAL;
        address->ss_family = is_v6 ? AF_INET6 : AF_INET;
        *length = is_v6 ? sizeof(*v6) : sizeof(*v4);
        if (is_v6)
                v6->sin6_port = htons((uint16_t)port);
        else
                v4->sin_port = htons((uint16_t)port);
        return 0;
}

void metrics_address_format(char text[METRICS_ADDRESS_MAX], const struct sockaddr_storage *address) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        bool is_v6 = address->ss_family == AF_INET6;
        char host[INET6_ADDRSTRLEN] = "";

        inet_ntop(address->ss_family, is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr,
                  host, sizeof(host));
        snprintf(text, METRICS_ADDRESS_MAX, is_v6 ? "[%s]:%u" : "%s:%u", host,
                 ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}
