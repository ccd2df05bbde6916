#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Entries for systemd's journal, with fields. */

#include <stdbool.h>

struct log_subject;

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Whether what is written to `fd` goes to the journal, as $JOURNAL_STREAM says. */
bool journal_is_behind(int fd);

/* The socket is at `path`. 0 or a negative errno. */
int journal_open(const char *path);

/* No entries from now on. */
void journal_close(void);

/* True: the journal has it. False: it takes none now, or was not opened. */
bool journal_send(int level, const struct log_subject *subject, const char *text);
