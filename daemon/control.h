#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The operators' socket: a line in, JSON lines out, the last with "done": true. */

#include "daemon/daemon.h"

/* Binds RUNTIME_CONTROL_SOCKET in the daemon's directory, or takes `*passed` over if that is a socket which
 * listens there already, and serves it. 0 or a negative errno with the reason. */
int control_new(struct control **control, struct daemon *daemon, int *passed, struct fault *fault);

/* Closes the socket, its file if the daemon has made it, and every connection; the memory goes when the loop
 * has run dry. */
struct control *control_free(struct control *control);
