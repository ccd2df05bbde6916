/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* libmicrohttpd in the daemon's own loop: it has no thread, its epoll descriptor is watched like any other,
 * and each time that it is readable the library is run once, which accepts and answers whatever is there and
 * waits for nothing.
 *
 * Any process of the machine may connect, so what all of them together can take is bounded:
 * METRICS_VISITORS_MAX connections, of which each has one request of METRICS_MEMORY bytes and ends
 * METRICS_LIMIT_MS after it came, whatever it has sent or read by then. The library's own timeout begins anew
 * with every byte, so one byte a second would hold a place for ever; here each place has the time when its
 * connection came, and what is too old is shut down, which the library finds out by itself. Who comes when
 * all places are taken waits in the kernel's queue, of which the library looks away meanwhile. When the
 * process is short of descriptors, those who come are shut down at once. */

#include "daemon/metrics-http.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "daemon/daemon.h"
#include "daemon/exposition.h"
#include "daemon/listener.h"
#include "daemon/metrics-address.h"
#include "daemon/metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
        METRICS_VISITORS_MAX = 16,
        METRICS_BACKLOG = 16,
        METRICS_LIMIT_MS = 10000,
        METRICS_MEMORY = 16 * 1024, /* for a request's head and ours */
};

struct visitor {
        int fd; /* the library's; -1: the place is free */
        uint64_t came_ns;
        bool ended; /* was shut down */
};

struct metrics_http {
        struct daemon *daemon;
        struct MHD_Daemon *server;
        uv_poll_t poll;
        uv_timer_t timer;
        unsigned handles; /* of these, open */
        struct visitor visitors[METRICS_VISITORS_MAX];
        unsigned asked; /* for metrics, in the run under way */
        bool freed;     /* a place, in the run under way */
        char address[METRICS_ADDRESS_MAX];
};

bool metrics_http_is_built(void) {
        return true;
}

/* ---- requests ---- */

/* Takes `response` over. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status,
                              struct MHD_Response *response, const char *type) {
        enum MHD_Result r = MHD_NO;

        if (!response)
                return MHD_NO;
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
        if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
                MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
        r = MHD_queue_response(connection, status, response);
        MHD_destroy_response(response);
        return r;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, const char *text) {
        return answer(connection, status,
                      MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT),
                      "text/plain; charset=utf-8");
}

static enum MHD_Result answer_metrics(struct MHD_Connection *connection, struct metrics_http *http) {
        struct MHD_Response *response;
        size_t length;
        char *text = metrics_make(http->daemon, NULL, &length);

        http->asked++;
        if (!text)
                return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                   "pinfeedd has no memory for this answer; ask again later\n");
        response = MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
        if (!response)
                free(text);
        return answer(connection, MHD_HTTP_OK, response, EXPOSITION_CONTENT_TYPE);
}

/* Called when the head of a request has come. What a body says nobody asks: the answer ends the connection.
 */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload, size_t *length,
                                  void **request) {
        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
                return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                   "GET and HEAD are what there is\n");
        if (strcmp(url, "/metrics") == 0)
                return answer_metrics(connection, context);
        if (strcmp(url, "/") == 0)
                return answer_text(connection, MHD_HTTP_OK,
                                   "pinfeedd " PINFEED_VERSION ": metrics for Prometheus are at /metrics\n");
        return answer_text(connection, MHD_HTTP_NOT_FOUND, "not here; metrics are at /metrics\n");
}

/* ---- places ---- */

static int socket_of(struct MHD_Connection *connection) {
        const union MHD_ConnectionInfo *info =
                MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

        return info ? info->connect_fd : -1;
}

static struct visitor *find_visitor(struct metrics_http *http, int fd) {
        for (int i = 0; i < METRICS_VISITORS_MAX; i++)
                if (http->visitors[i].fd == fd)
                        return &http->visitors[i];
        return NULL;
}

/* The highest descriptors are kept back from jobs, for workers; nor are they for those who only look. */
static bool is_within_limit(int fd) {
        struct rlimit limit = {};

        return getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd + LISTENER_RESERVE < limit.rlim_cur;
}

/* The library finds out by itself, and closes it. */
static void end_visitor(struct visitor *visitor) {
        shutdown(visitor->fd, SHUT_RDWR);
        visitor->ended = true;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode what) {
        bool is_new = what == MHD_CONNECTION_NOTIFY_STARTED;
        struct metrics_http *http = context;
        int fd = socket_of(connection);
        struct visitor *visitor = find_visitor(http, is_new ? -1 : fd);

        if (!visitor)
                return;
        if (!is_new) {
                visitor->fd = -1;
                http->freed = true;
                return;
        }
        *visitor = (struct visitor){.fd = fd, .came_ns = clock_ns()};
        if (!is_within_limit(fd))
                end_visitor(visitor);
}

/* Ends who has been there too long. The milliseconds until the next one is; UINT64_MAX: there is none. */
static uint64_t end_old_ones(struct metrics_http *http) {
        uint64_t now = clock_ns(), next = UINT64_MAX;

        for (int i = 0; i < METRICS_VISITORS_MAX; i++) {
                struct visitor *visitor = &http->visitors[i];
                uint64_t age_ms = (now - visitor->came_ns) / NS_PER_MS;

                if (visitor->fd < 0 || visitor->ended)
                        continue;
                if (age_ms >= METRICS_LIMIT_MS)
                        end_visitor(visitor);
                else if (METRICS_LIMIT_MS - age_ms < next)
                        next = METRICS_LIMIT_MS - age_ms;
        }
        return next;
}

/* ---- the loop ---- */

static void on_timer(uv_timer_t *timer);

/* One that has freed a place is to be followed by another: only there the library begins to look at those who
 * wait again. */
static void run(struct metrics_http *http) {
        uint64_t began = clock_ns(), next;
        MHD_UNSIGNED_LONG_LONG wanted;

        http->asked = 0;
        http->freed = false;
        MHD_run(http->server);
        meter_count_scrapes(&http->daemon->meter, http->asked, began);
        next = http->freed ? 0 : end_old_ones(http);
        if (MHD_get_timeout(http->server, &wanted) == MHD_YES && wanted < next)
                next = wanted;
        if (next == UINT64_MAX)
                uv_timer_stop(&http->timer);
        else
                uv_timer_start(&http->timer, on_timer, next, 0);
}

static void on_timer(uv_timer_t *timer) {
        run(timer->data);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
        run(poll->data);
}

/* ---- begin and end ---- */

static int bind_socket(struct metrics_http *http, const char *text, struct fault *fault) {
        struct sockaddr_storage address;
        _cleanup_(fd_closep) int fd = -1;
        const char *why;
        socklen_t length;
        int one = 1;

        if (metrics_address_parse(text, &address, &length, &why) < 0)
                return fault_set(fault, -EINVAL, "metrics_listen: %s", why);
        fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return fault_set(fault, -errno, "metrics_listen: no socket for %s: %s", text,
                                 strerror(errno));
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)); /* over what a last run has left */
        if (bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, METRICS_BACKLOG) < 0)
                return fault_set(fault, -errno,
                                 "metrics_listen: cannot listen on %s: %s; stop what listens there, or give "
                                 "another port",
                                 text, strerror(errno));
        if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
                metrics_address_format(http->address, &address);
        return fd_take(&fd);
}

/* Takes `fd` over. */
static int start_server(struct metrics_http *http, int fd, struct fault *fault) {
        const union MHD_DaemonInfo *info;

        http->server =
                MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)METRICS_VISITORS_MAX,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)METRICS_MEMORY,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
        if (!http->server) {
                close(fd);
                return fault_set(fault, -EIO, "metrics_listen: libmicrohttpd does not start for %s",
                                 http->address);
        }
        info = MHD_get_daemon_info(http->server, MHD_DAEMON_INFO_EPOLL_FD);
        return info && info->epoll_fd >= 0
                       ? info->epoll_fd
                       : fault_set(fault, -EIO, "metrics_listen: this libmicrohttpd has no epoll");
}

static void watch(struct metrics_http *http, int epoll) {
        uv_timer_init(&http->daemon->loop, &http->timer);
        uv_poll_init(&http->daemon->loop, &http->poll, epoll);
        http->timer.data = http->poll.data = http;
        http->handles = 2;
        uv_poll_start(&http->poll, UV_READABLE, on_readable);
}

int metrics_http_new(struct metrics_http **httpp, struct daemon *daemon, const char *address,
                     struct fault *fault) {
        struct metrics_http *http = calloc(1, sizeof(*http));
        int fd;

        if (!http)
                return fault_set(fault, -ENOMEM, "no memory for metrics_listen");
        http->daemon = daemon;
        for (int i = 0; i < METRICS_VISITORS_MAX; i++)
                http->visitors[i].fd = -1;
        fd = bind_socket(http, address, fault);
        if (fd >= 0)
                fd = start_server(http, fd, fault);
        if (fd < 0) {
                metrics_http_free(http);
                return fd;
        }
        watch(http, fd);
        *httpp = http;
        return 0;
}

static void on_closed(uv_handle_t *handle) {
        struct metrics_http *http = handle->data;

        if (--http->handles == 0)
                free(http);
}

struct metrics_http *metrics_http_free(struct metrics_http *http) {
        bool watched = http && http->handles > 0;

        if (!http)
                return NULL;
        if (watched) {
                uv_close((uv_handle_t *)&http->poll, on_closed);
                uv_close((uv_handle_t *)&http->timer, on_closed);
        }
        if (http->server)
                MHD_stop_daemon(http->server);
        if (!watched)
                free(http);
        return NULL;
}

const char *metrics_http_address(const struct metrics_http *http) {
        return http->address;
}
