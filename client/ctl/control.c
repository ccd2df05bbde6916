/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* One question to the daemon over its control socket: a line out, lines of JSON in, the last of which says it
 * is. */

#include "client/ctl/ctl.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "client/pinfeed.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum {
        CONTROL_TIMEOUT_S = 10, /* the daemon promises one */
        CONTROL_TEXT_MAX = 512,
};

int control_connect(const char *runtime_dir, unsigned seconds, struct fault *fault) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct timeval timeout = {.tv_sec = seconds};
        _cleanup_(fd_closep) int fd = -1;
        char directory[PATH_MAX], text[CONTROL_TEXT_MAX];
        int r;

        r = pinfeed_runtime_dir(directory, sizeof(directory), runtime_dir);
        if (r < 0 || strlen(directory) + sizeof("/control.sock") > sizeof(address.sun_path))
                return fault_set(fault, -ENAMETOOLONG,
                                 "the runtime directory's path is too long: at most %zu bytes are possible",
                                 sizeof(address.sun_path) - sizeof("/control.sock"));
        strcat(strcpy(address.sun_path, directory), "/control.sock");

        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (seconds > 0 ? 0 : SOCK_NONBLOCK), 0);
        if (fd < 0)
                return fault_set(fault, -errno, "making a socket failed: %s", strerror(errno));
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
                r = pinfeed_check_server(fd, directory, text, sizeof(text));
                return r < 0 ? fault_set(fault, r, "%s", text) : fd_take(&fd);
        }
        if (errno == ENOENT || errno == ECONNREFUSED)
                return fault_set(fault, -ENOENT,
                                 "no pinfeedd listens on %s; start one with 'pinfeedd --config FILE'",
                                 address.sun_path);
        if (errno == EACCES)
                return fault_set(
                        fault, -EACCES,
                        "%s is not open to this user (uid %u); be added to the group of its sockets, "
                        "and log in again, or use sudo",
                        address.sun_path, (unsigned)geteuid());
        return fault_set(fault, -errno, "connecting to %s failed: %s", address.sun_path, strerror(errno));
}

bool control_is_served(const char *runtime_dir, pid_t *pid) {
        _cleanup_(fd_closep) int fd = control_connect(runtime_dir, CONTROL_TIMEOUT_S, NULL);
        socklen_t size = sizeof(struct ucred);
        struct ucred peer = {};

        if (fd >= 0)
                (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
        *pid = peer.pid;
        return fd != -ENOENT;
}

/* The next line, without its end; NULL with the reason. */
static json_t *control_read(FILE *stream, char **line, size_t *size, unsigned seconds, struct fault *fault) {
        json_error_t error;
        json_t *json;

        errno = 0;
        if (getline(line, size, stream) < 0) {
                if (errno == EAGAIN)
                        fault_set(fault, -ETIMEDOUT, "the daemon has not answered in %u s", seconds);
                else
                        fault_set(fault, -EPIPE, "the daemon hung up");
                return NULL;
        }
        json = json_loads(*line, 0, &error);
        if (!json_is_object(json)) {
                fault_set(fault, -EPROTO, "the daemon's answer is no JSON object: %s",
                          json ? "another type" : error.text);
                json_decref(json);
                return NULL;
        }
        return json;
}

/* No line of the answer may take longer than `seconds`. */
static json_t *control_exchange(const char *runtime_dir, const char *line, unsigned seconds,
                                void (*on_line)(void *context, json_t *line), void *context,
                                struct fault *fault) {
        _cleanup_(freep) char *text = NULL;
        size_t size = 0;
        FILE *stream;
        json_t *json;
        int fd;

        fd = control_connect(runtime_dir, seconds, fault);
        if (fd < 0)
                return NULL;
        stream = fdopen(fd, "r+");
        if (!stream) {
                close(fd);
                fault_set(fault, -ENOMEM, "out of memory");
                return NULL;
        }
        fprintf(stream, "%s\n", line);
        fflush(stream); /* if that fails there will be no answer */

        json = control_read(stream, &text, &size, seconds, fault);
        while (json && !json_is_true(json_object_get(json, "done"))) {
                if (on_line)
                        on_line(context, json);
                json_decref(json);
                json = control_read(stream, &text, &size, seconds, fault);
        }
        fclose(stream);
        return json;
}

json_t *control_ask_long(const char *runtime_dir, const char *line,
                         void (*on_line)(void *context, json_t *line), void *context, struct fault *fault) {
        return control_exchange(runtime_dir, line, CONTROL_TIMEOUT_S, on_line, context, fault);
}

json_t *control_ask_within(const char *runtime_dir, const char *line, unsigned seconds, struct fault *fault) {
        json_t *json = control_exchange(runtime_dir, line, seconds, NULL, NULL, fault);

        if (json && json_is_string(json_object_get(json, "error"))) {
                const char *error = json_string_value(json_object_get(json, "error"));

                fault_set(fault, -EIO, "%s", error);
                json_decref(json);
                return NULL;
        }
        return json;
}

json_t *control_ask(const char *runtime_dir, const char *line, struct fault *fault) {
        return control_ask_within(runtime_dir, line, CONTROL_TIMEOUT_S, fault);
}
