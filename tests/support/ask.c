/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Questions to the daemon of a harness, through its control socket and by hand.
 *
 * Not by pinfeedctl: what is wrong in it would hide what is wrong in the daemon. Each question has a
 * connection of its own and must be answered within HARNESS_ANSWER_MS, whatever the daemon is busy with. */

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/harness.h"
#include "tests/support/process.h"

static int connect_control(struct harness *h, const char *request) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        ck_assert_int_ge(fd, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock", harness_runtime_directory(h));
        ck_assert_msg(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect %s: %s",
                      address.sun_path, strerror(errno));
        ck_assert_int_gt(dprintf(fd, "%s\n", request), 0);
        return fd;
}

/* One line, without its end; NULL at the end of the answer. */
static char *read_line(int fd, uint64_t deadline, const char *request) {
        size_t length = 0, size = 65536;
        char *line = malloc(size);

        ck_assert_ptr_nonnull(line);
        for (;;) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
                uint64_t now = clock_ns();
                ssize_t got;

                ck_assert_msg(now < deadline &&
                                      poll(&poll_fd, 1, (int)((deadline - now) / NS_PER_MS) + 1) > 0,
                              "no answer to \"%s\" within %d ms", request, HARNESS_ANSWER_MS);
                /* Byte by byte at the end of a line only: peek first, so as not to take what follows it. */
                got = recv(fd, line + length, size - length - 1, MSG_PEEK);
                ck_assert_msg(got >= 0, "answer to \"%s\": %s", request, strerror(errno));
                if (got == 0) {
                        free(line);
                        return NULL;
                }
                char *newline = memchr(line + length, '\n', (size_t)got);
                size_t taken = newline ? (size_t)(newline - (line + length)) + 1 : (size_t)got;

                ck_assert_int_eq(recv(fd, line + length, taken, 0), (ssize_t)taken);
                length += taken;
                if (newline) {
                        line[length - 1] = 0;
                        return line;
                }
                if (size - length < 2) {
                        char *larger = realloc(line, size *= 2);

                        ck_assert_ptr_nonnull(larger);
                        line = larger;
                }
        }
}

json_t *harness_control(struct harness *h, const char *request) {
        uint64_t deadline =
                clock_ns() + (uint64_t)HARNESS_ANSWER_MS * (uint64_t)harness_slowdown() * NS_PER_MS;
        int fd = connect_control(h, request);
        json_t *answer = NULL;

        for (;;) {
                char *line = read_line(fd, deadline, request);
                json_error_t error;

                ck_assert_msg(line != NULL, "the answer to \"%s\" ended without \"done\": true", request);
                json_decref(answer);
                answer = json_loads(line, 0, &error);
                ck_assert_msg(answer != NULL, "answer to \"%s\": %s in %s", request, error.text, line);
                free(line);
                if (json_is_true(json_object_get(answer, "done")))
                        break;
        }
        close(fd);
        return answer;
}

json_t *harness_status(struct harness *h) {
        json_t *status = harness_control(h, "status");

        ck_assert_msg(!json_object_get(status, "error"), "status: %s",
                      json_string_value(json_object_get(status, "error")));
        return status;
}

static json_t *element_named(json_t *array, const char *name) {
        char *end;
        unsigned long index = strtoul(name, &end, 10);
        json_t *element;
        size_t i;

        if (*name && !*end)
                return json_array_get(array, index);
        json_array_foreach(array, i, element) {
                const char *its_name = json_string_value(json_object_get(element, "name"));

                if (its_name && !strcmp(its_name, name))
                        return element;
        }
        return NULL;
}

json_t *harness_member(json_t *value, const char *path) {
        char parts[512], *rest = parts, *part;

        ck_assert_uint_lt(strlen(path), sizeof(parts));
        strcpy(parts, path);
        while (value && (part = strsep(&rest, "/")))
                value = json_is_array(value) ? element_named(value, part) : json_object_get(value, part);
        return value;
}

double harness_number(json_t *value, const char *path) {
        json_t *member = harness_member(value, path);

        ck_assert_msg(json_is_number(member), "no number \"%s\"", path);
        return json_number_value(member);
}

double harness_status_number(struct harness *h, const char *path) {
        json_t *status = harness_status(h);
        double number = harness_number(status, path);

        json_decref(status);
        return number;
}

bool harness_no_job_is_there(struct harness *h, void *context) {
        json_t *status = harness_status(h);
        size_t n = json_array_size(json_object_get(status, "jobs"));

        json_decref(status);
        return n == 0;
}

void harness_expect_words(const char *text, const char *words) {
        ck_assert_msg(text && strstr(text, words), "no \"%s\" in: %s", words, text ? text : "nothing");
}

void harness_wait(struct harness *h, const char *what, harness_predicate predicate, void *context,
                  int timeout_ms) {
        uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * (uint64_t)harness_slowdown() * NS_PER_MS;

        while (!predicate(h, context)) {
                ck_assert_msg(clock_ns() < deadline, "%s did not come within %d ms", what, timeout_ms);
                usleep(HARNESS_POLL_US);
        }
}

struct threshold {
        const char *path;
        double value;
};

static bool number_is_reached(struct harness *h, void *context) {
        const struct threshold *threshold = context;

        return harness_status_number(h, threshold->path) >= threshold->value;
}

void harness_wait_number(struct harness *h, const char *path, double value, int timeout_ms) {
        struct threshold threshold = {path, value};
        char what[600];

        snprintf(what, sizeof(what), "%s >= %g in status", path, value);
        harness_wait(h, what, number_is_reached, &threshold, timeout_ms);
}
