#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The terminal of this process, taken over as a whole and given back as it was. There is one at most. */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum terminal_event {
        TERMINAL_NOTHING,     /* no more for now */
        TERMINAL_INTERRUPTED, /* SIGINT */
        TERMINAL_ENDED,       /* SIGTERM, SIGHUP, or the terminal is gone */
        TERMINAL_REDRAW,      /* it has another size, or was somebody else's meanwhile */
        TERMINAL_UP,
        TERMINAL_DOWN,
        TERMINAL_PAGE_UP,
        TERMINAL_PAGE_DOWN,
        TERMINAL_LETTER, /* and above: TERMINAL_LETTER + the letter */
};

enum {
        TERMINAL_POLLED = 2, /* descriptors to be polled */
};

/* Whether standard output is a terminal that knows how to place a cursor. */
bool terminal_is_there(void);

/* Its own size, or 80 x 24 where it does not say. */
void terminal_size(uint32_t *columns, uint32_t *rows);

/* Takes it over: another screen, no cursor, keys as they are pressed, signals as events. 0 or a negative
 * errno. */
int terminal_open(void);

/* Gives it back. Nothing if it is not taken. */
void terminal_close(void);

/* Whether somebody can press keys. */
bool terminal_has_keys(void);

/* What wakes it up. */
void terminal_poll(struct pollfd polled[TERMINAL_POLLED]);

/* The next event; waits for nothing, but a process that is to stop (Ctrl-Z) stops in here, with the terminal
 * as it was. */
unsigned terminal_next_event(void);

/* 0, or -EINTR where an event has come before all was taken, or another negative errno. */
int terminal_write(const char *bytes, size_t n);
