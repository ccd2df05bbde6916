#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Whose daemon a client believes. */

#include <sys/types.h>

struct fault;

/* Asks the kernel who listens at the other end of `socket`, which was connected to one in `directory`. 0 and
 * its pid, or -EPERM with the reason: somebody else than this user, root, or whom they have named. */
int server_check(int socket, const char *directory, pid_t *pid, struct fault *fault);
