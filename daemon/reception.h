#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where jobs come in: the sockets of a daemon, and who is let in. */

struct daemon;
struct fault;

/* Binds both sockets, or takes those that were passed, and listens. 0 or a negative errno with the reason;
 * what was opened stays for reception_remove and control_free. */
int reception_open(struct daemon *daemon, struct fault *fault);

/* Lets in who has connected and was not seen yet, unless there is no descriptor for another one now. */
void reception_look(struct daemon *daemon);

/* A line about somebody who was not let in, and not one for each of those who try again and again. */
void reception_log_refusal(struct daemon *daemon, const char *text);

/* Closes the jobs' socket, and removes its file if the daemon has made it. */
void reception_remove(struct daemon *daemon);
