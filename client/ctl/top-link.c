/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One connection over which the same question is put again and again, one at a time. Nothing here waits: a
 * daemon that does not answer leaves its question open, and whoever asks sees for how long. A daemon that has
 * ended hangs up; the next question finds its successor, whichever directory that is in. */

#include "client/ctl/top.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "client/ctl/ctl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
        LINK_CHUNK = 1 << 16,
        LINK_ANSWER_MAX = 1 << 28, /* thousands of slots and workers are some megabytes */
};

void top_link_init(struct top_link *link, const char *runtime_dir) {
        *link = (struct top_link){.runtime_dir = runtime_dir, .fd = -1};
}

static void hang_up(struct top_link *link) {
        fd_closep(&link->fd);
        link->asked_ns = 0;
        link->length = 0;
}

void top_link_deinit(struct top_link *link) {
        hang_up(link);
        free(link->answer);
        link->answer = NULL;
}

static int gone(struct top_link *link, struct fault *fault) {
        hang_up(link);
        fault_set(fault, -EPIPE, "pinfeedd has hung up");
        return TOP_LINK_E_GONE;
}

/* 0 with a connection, or without one where the daemon takes none at the moment, which is no answer either.
 */
static int connect_link(struct top_link *link, struct fault *fault) {
        int fd = control_connect(link->runtime_dir, 0, fault);

        if (fd == -ENOENT) {
                hang_up(link);
                return TOP_LINK_E_GONE;
        }
        if (fd < 0 && fd != -EAGAIN)
                return fd;
        link->fd = fd >= 0 ? fd : -1;
        return 0;
}

int top_link_ask(struct top_link *link, struct fault *fault) {
        static const char question[] = "status\n";
        int r;

        if (link->fd >= 0 && link->asked_ns > 0)
                return 0;
        if (link->fd < 0) {
                r = connect_link(link, fault);
                if (r != 0)
                        return r;
        }
        if (link->asked_ns == 0)
                link->asked_ns = clock_ns();
        if (link->fd >= 0 && send(link->fd, question, sizeof(question) - 1, MSG_NOSIGNAL) < 0)
                return gone(link, fault);
        return 0;
}

static int make_room(struct top_link *link, struct fault *fault) {
        char *larger;

        if (link->size - link->length >= LINK_CHUNK)
                return 0;
        if (link->size >= LINK_ANSWER_MAX)
                return fault_set(fault, -EPROTO, "the daemon's answer has no end after %d MiB",
                                 LINK_ANSWER_MAX >> 20);
        larger = realloc(link->answer, link->size * 2 + LINK_CHUNK);
        if (!larger)
                return fault_set(fault, -ENOMEM, "out of memory");
        link->answer = larger;
        link->size = link->size * 2 + LINK_CHUNK;
        return 0;
}

/* A whole line, without its end. */
static int parse(struct top_link *link, size_t length, json_t **answer, struct fault *fault) {
        json_t *json = json_loadb(link->answer, length, 0, NULL);
        const char *error = json_string_value(json_object_get(json, "error"));
        int r = 0;

        link->length = 0;
        link->asked_ns = 0;
        if (error)
                r = fault_set(fault, -EIO, "%s", error);
        else if (!json_is_object(json))
                r = fault_set(fault, -EPROTO, "the daemon's answer is no JSON object");
        if (r == 0)
                *answer = json;
        else
                json_decref(json);
        return r;
}

int top_link_read(struct top_link *link, json_t **answer, struct fault *fault) {
        for (;;) {
                const char *end;
                ssize_t n;
                int r = make_room(link, fault);

                if (r < 0)
                        return r;
                n = recv(link->fd, link->answer + link->length, link->size - link->length, 0);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return TOP_LINK_E_MORE;
                if (n <= 0)
                        return gone(link, fault);
                end = memchr(link->answer + link->length, '\n', (size_t)n);
                link->length += (size_t)n;
                if (end)
                        return parse(link, (size_t)(end - link->answer), answer, fault);
        }
}
