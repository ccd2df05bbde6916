#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The operators' socket: a line in, JSON lines out, the last with "done": true. */

#include "daemon/daemon.h"

/* Binds RUNTIME_CONTROL_SOCKET in the daemon's directory and serves it. 0 or a negative errno with the
 * reason. */
int control_new(struct control **control, struct daemon *daemon, struct fault *fault);

/* Closes the socket, its file and every connection; the memory goes when the loop has run dry. */
struct control *control_free(struct control *control);
