/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* sd_notify(3) is a protocol of text in datagrams, promised to stay as it is, and is spoken here without
 * libsystemd: its calls wait while the manager's queue is full, and nothing of this daemon may wait for
 * anybody. So the same holds in a build on a machine without that library.
 *
 * A datagram that does not fit now is not lost on the manager for ever. Of READY, RELOADING and STOPPING the
 * last one counts; it is owed, and sent again with the next status line. A status line that did not arrive
 * was not said. A missed beat is one of two that may be missed.
 *
 * There is one manager for a process, found by the environment, so the state is this file's. The variables
 * are taken out of the environment: a worker that spoke to the manager, or one's own dataset in Python with a
 * library in it that does, would speak for the daemon. */

#include "daemon/service.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/number.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        SERVICE_TEXT_MAX = 2048,
};

static struct {
        int socket; /* -1: nobody is told */
        struct sockaddr_un address;
        socklen_t address_size;
        uint64_t watchdog_ms;
        char owed[64]; /* a state that the manager could not take */
        char status[SERVICE_TEXT_MAX];
} service = {.socket = -1};

/* A path, or an abstract name behind an @. Other families are for virtual machines that tell their host. */
static bool find_manager(const char *name) {
        size_t length = name ? strlen(name) : 0;

        if (length < 2 || length > sizeof(service.address.sun_path) - 1 || (*name != '/' && *name != '@'))
                return false;
        service.address.sun_family = AF_UNIX;
        memcpy(service.address.sun_path, name, length);
        if (*name == '@')
                service.address.sun_path[0] = 0;
        service.address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*name == '/'));
        return true;
}

/* Half of the time that the manager grants, if it is this process that it watches. */
static uint64_t find_watchdog(const char *usec, const char *pid) {
        uint64_t us, watched = 0;

        if (!usec || number_parse_u64(usec, &us) < 0)
                return 0;
        if (pid && (number_parse_u64(pid, &watched) < 0 || watched != (uint64_t)getpid()))
                return 0;
        return us / 2 / (NS_PER_MS / NS_PER_US);
}

void service_init(bool is_main) {
        bool told = find_manager(getenv("NOTIFY_SOCKET"));

        if (is_main && told) {
                service.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                service.watchdog_ms = find_watchdog(getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"));
        }
        unsetenv("NOTIFY_SOCKET");
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
}

bool service_is_told(void) {
        return service.socket >= 0;
}

uint64_t service_watchdog_ms(void) {
        return service.socket >= 0 ? service.watchdog_ms : 0;
}

/* By name each time: a manager that was started anew has another socket of that name. True: it has it, or
 * there is nobody to have it. */
static bool tell(const char *text) {
        return service.socket < 0 ||
               sendto(service.socket, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                      (const struct sockaddr *)&service.address, service.address_size) >= 0;
}

static void tell_state(const char *text) {
        snprintf(service.owed, sizeof(service.owed), "%s", text);
        if (tell(service.owed))
                service.owed[0] = 0;
}

void service_ready(void) {
        tell_state("READY=1");
}

/* The time is what Type=notify-reload wants; others do not look at it. */
void service_reloading(void) {
        char text[64];

        snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_ns() / NS_PER_US);
        tell_state(text);
}

void service_stopping(void) {
        tell_state("STOPPING=1");
}

void service_failed(int error, const char *text) {
        char message[SERVICE_TEXT_MAX + 64];

        snprintf(message, sizeof(message), "STATUS=%.*s\nERRNO=%d", SERVICE_TEXT_MAX - 1, text, -error);
        tell(message);
}

void service_say(const char *status) {
        char message[SERVICE_TEXT_MAX + 16];

        if (*service.owed && tell(service.owed))
                service.owed[0] = 0;
        if (strncmp(status, service.status, sizeof(service.status) - 1) == 0)
                return;
        snprintf(message, sizeof(message), "STATUS=%.*s", SERVICE_TEXT_MAX - 1, status);
        if (tell(message))
                snprintf(service.status, sizeof(service.status), "%s", status);
}

void service_beat(void) {
        tell("WATCHDOG=1");
}

void service_extend(uint32_t seconds) {
        char text[64];

        snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%" PRIu64, seconds * (NS_PER_S / NS_PER_US));
        tell(text);
}
