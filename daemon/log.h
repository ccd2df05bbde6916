#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon's log: lines on standard error, or entries of the journal. */

#include <stdbool.h>
#include <stdint.h>

enum log_level {
        LOG_ERROR = 3, /* the numbers of syslog(3) */
        LOG_WARNING = 4,
        LOG_INFO = 6,
};

struct fault;

/* What a line is about, for who looks for all lines about it. */
struct log_subject {
        const char *pipeline;   /* its label; NULL or "": none */
        uint32_t job;           /* 0: none */
        const uint32_t *worker; /* NULL: none */
        const uint64_t *sample; /* NULL: none */
};

/* Lines go to the journal, with their subjects, if standard error is a stream of it. */
void log_init(void);
bool log_is_journal(void);

/* Standard output and error go to `path` from now on, at its end, and nothing to the journal; made with mode
 * 0600 if it is missing, and emptied first if it has grown large. 0, or a negative errno with the reason and
 * both as they were. */
int log_to_file(const char *path, struct fault *fault);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_about(const struct log_subject *subject, enum log_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
