#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The service manager, systemd or whoever speaks its protocol: what it is told of this daemon's state. */

#include <stdbool.h>
#include <stdint.h>

/* Takes the variables of systemd's protocol for itself and out of the environment, where workers would find
 * them. `is_main`: this process is the one that the manager has started, and tells it things; otherwise all
 * below does nothing. To be called once, before anything reads the others. */
void service_init(bool is_main);

bool service_is_told(void); /* there is a manager that listens */

/* How often it wants service_beat, in ms; 0: not at all. */
uint64_t service_watchdog_ms(void);

/* What the daemon is at, in the order of a life: ready after the start and after every reload. */
void service_ready(void);
void service_reloading(void);
void service_stopping(void);
/* It ends, and why: a negative errno and a line. */
void service_failed(int error, const char *text);

/* A line for people, in `systemctl status`. Says nothing when it is what was said last. Wants to be called
 * now and then in any case: it also repeats what the manager could not take before. */
void service_say(const char *status);

/* The loop turns. */
void service_beat(void);

/* Start, reload or stop take so long from now on, whatever the manager's limit is. */
void service_extend(uint32_t seconds);
