#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Listening sockets that whoever started this daemon has made for it: socket activation. */

struct fault;

/* -1: none of that kind was passed, the daemon makes its own. Who takes one sets it to -1. */
struct inherited {
        int job;
        int control;
};

#define INHERITED_NONE ((struct inherited){-1, -1})

/* Takes what sd_listen_fds(3) describes, for a daemon in `directory`, and the variables out of the
 * environment. Both sockets come close-on-exec, non-blocking and listening anew. 0, or -EINVAL with the
 * reason: one of them is not a socket that this daemon could serve. */
int inherited_take(struct inherited *inherited, const char *directory, struct fault *fault);

void inherited_close(struct inherited *inherited);
