#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon's log: lines on standard error, one write each. */

enum log_level {
        LOG_ERROR = 3, /* the numbers of syslog(3) */
        LOG_WARNING = 4,
        LOG_INFO = 6,
};

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
