#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A daemon that leaves whoever started it, and tells them how its start went. */

struct fault;

struct background {
        int pipe; /* to the process that waits; -1: nobody does */
};

#define BACKGROUND_NONE ((struct background){-1})

/* `path` as it means the same after chdir("/"): a new string, or NULL for want of memory. */
char *background_absolute(const char *path);

/* Forks; nothing that a fork would tear (a loop, threads, locks) may exist yet. In the child: -1, and it is
 * in a session of its own, in "/", with /dev/null as its standard streams. In the parent: the exit status, to
 * be returned at once; it has waited for what the child said and passed it on: `directory`, where the daemon
 * is to be found, on standard output, what went wrong on standard error. */
int background_start(struct background *background, const char *directory);

/* Tells the parent, once: 0, the daemon can be connected to; or the negative errno and the words of a start
 * that came to nothing, of which -EBUSY means that another daemon is there already. */
void background_tell(struct background *background, int error, const struct fault *fault);
