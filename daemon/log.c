/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The log: one line, one write, so that lines of daemon and workers never mix within a line. Errors and
 * warnings say so; everything else begins with the program's name alone. A full or closed standard error
 * loses lines, never the daemon: it is asked first whether it takes a line, since a pipe that nobody reads
 * would block the write for ever. (O_NONBLOCK would do it for everybody who shares the descriptor, a
 * terminal's shell among them.)
 *
 * Under systemd standard error leads to the journal. Then lines go there as entries (journal.c), which say by
 * fields how bad it is and what it is about.
 *
 * A file is written at its end whoever else writes to it. It is emptied at a start and never while it is in
 * use: a daemon that starts is the only one of its directory, and what it may have to say in its life is
 * bounded by what happens to it. */

#include "daemon/log.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "daemon/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        LOG_LINE_MAX = 2048,
        LOG_FILE_MAX = 1 << 20, /* bytes with which a file is emptied at a start */
};

static bool to_journal;

void log_init(void) {
        to_journal = journal_is_behind(STDERR_FILENO) && journal_open(JOURNAL_SOCKET) >= 0;
}

bool log_is_journal(void) {
        return to_journal;
}

/* O_NONBLOCK: a pipe that nobody reads is refused, and does not hold the daemon up. */
static int open_file(const char *path) {
        _cleanup_(fd_closep) int fd = open(
                path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0600);
        struct stat status;

        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        if (S_ISREG(status.st_mode) && status.st_size > LOG_FILE_MAX && ftruncate(fd, 0) < 0)
                return -errno;
        return fd_take(&fd);
}

int log_to_file(const char *path, struct fault *fault) {
        _cleanup_(fd_closep) int fd = open_file(path);

        if (fd < 0)
                return fault_set(fault, fd, "cannot write the log %s: %s; choose another with --log", path,
                                 strerror(-fd));
        if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
                return fault_set(fault, -errno, "cannot write the log %s: %s", path, strerror(errno));
        to_journal = false;
        journal_close();
        return 0;
}

/* Room for a page, at least: a line fits. */
static bool takes_a_line(int fd) {
        struct pollfd there = {.fd = fd, .events = POLLOUT};

        return poll(&there, 1, 0) == 1 && (there.revents & POLLOUT);
}

/* With the priority in front, in the one case that the journal's stream has to take it: its other socket is
 * full. */
static void write_line(enum log_level level, const char *text) {
        const char *mark = level <= LOG_ERROR ? "error: " : level <= LOG_WARNING ? "warning: " : "";
        char line[LOG_LINE_MAX], priority[8] = "";
        size_t length;

        if (to_journal)
                snprintf(priority, sizeof(priority), "<%d>", (int)level);
        length = (size_t)snprintf(line, sizeof(line) - 1, "%spinfeedd: %s%s", priority, mark, text);
        if (length > sizeof(line) - 2)
                length = sizeof(line) - 2;
        line[length++] = '\n';
        if (!takes_a_line(STDERR_FILENO) || write(STDERR_FILENO, line, length) < 0)
                return; /* nobody listens; there is nowhere to say so */
}

static void say(const struct log_subject *subject, enum log_level level, const char *format,
                va_list arguments) {
        char text[LOG_LINE_MAX];

        if (vsnprintf(text, sizeof(text), format, arguments) < 0)
                return;
        if (!to_journal || !journal_send((int)level, subject, text))
                write_line(level, text);
}

void log_line(enum log_level level, const char *format, ...) {
        static const struct log_subject nothing = {};
        va_list arguments;

        va_start(arguments, format);
        say(&nothing, level, format, arguments);
        va_end(arguments);
}

void log_about(const struct log_subject *subject, enum log_level level, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        say(subject, level, format, arguments);
        va_end(arguments);
}
