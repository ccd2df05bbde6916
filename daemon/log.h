#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon's log: lines on standard error, one write each. */

enum log_level {
        LOG_ERROR = 3, /* the numbers of syslog(3) */
        LOG_WARNING = 4,
        LOG_INFO = 6,
};

struct fault;

/* Standard output and error go to `path` from now on, at its end; made with mode 0600 if it is missing, and
 * emptied first if it has grown large. 0, or a negative errno with the reason and both as they were. */
int log_to_file(const char *path, struct fault *fault);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
