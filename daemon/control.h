#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The operators' socket: a line in, JSON lines out, the last with "done": true. */

#include "daemon/daemon.h"

/* What a client waits for whose command was not answered at once. */
enum control_wait {
        CONTROL_NOTHING,
        CONTROL_VERIFY,
        CONTROL_RELOAD,
        CONTROL_DRAIN,
};

/* Binds RUNTIME_CONTROL_SOCKET in the daemon's directory, or takes `*passed` over if that is a socket which
 * listens there already, and serves it. 0 or a negative errno with the reason. */
int control_new(struct control **control, struct daemon *daemon, int *passed, struct fault *fault);

/* A line to everybody who waits for that and has taken the line before. Consumes it. */
void control_tell(struct control *control, enum control_wait wait, json_t *line);
/* The last line, to everybody who has waited for one of the turns up to this. Consumes it. */
void control_end(struct control *control, enum control_wait wait, uint64_t turn, json_t *line);

/* Closes the socket, its file if the daemon has made it, and every connection; the memory goes when the loop
 * has run dry. */
struct control *control_free(struct control *control);
