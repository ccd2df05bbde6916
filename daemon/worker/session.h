#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker's conversation with its daemon, from SETUP to the closed socket. */

struct fault;

/* Serves the daemon on `socket`, which stays the caller's and becomes blocking. 0 when the daemon has closed
 * it, or a negative errno: a broken message, or a ring that is not what was announced. */
int session_run(int socket, struct fault *fault);
