/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The log: one line, one write, so that lines of daemon and workers never mix within a line. Errors and
 * warnings say so; everything else begins with the program's name alone. A full or closed standard error
 * loses lines, never the daemon: it is asked first whether it takes a line, since a pipe that nobody reads
 * would block the write for ever. (O_NONBLOCK would do it for everybody who shares the descriptor, a
 * terminal's shell among them.) */

#include "daemon/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum {
        LOG_LINE_MAX = 2048,
};

/* Room for a page, at least: a line fits. */
static bool takes_a_line(int fd) {
        struct pollfd there = {.fd = fd, .events = POLLOUT};

        return poll(&there, 1, 0) == 1 && (there.revents & POLLOUT);
}

void log_line(enum log_level level, const char *format, ...) {
        const char *mark = level <= LOG_ERROR ? "error: " : level <= LOG_WARNING ? "warning: " : "";
        char line[LOG_LINE_MAX];
        va_list arguments;
        size_t length;
        int n;

        length = (size_t)snprintf(line, sizeof(line), "pinfeedd: %s", mark);
        va_start(arguments, format);
        n = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
        va_end(arguments);
        if (n < 0)
                return;
        length += (size_t)n;
        if (length > sizeof(line) - 2)
                length = sizeof(line) - 2;
        line[length++] = '\n';
        if (!takes_a_line(STDERR_FILENO) || write(STDERR_FILENO, line, length) < 0)
                return; /* nobody listens; there is nowhere to say so */
}
