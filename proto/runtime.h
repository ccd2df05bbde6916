#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Where a daemon and its clients meet: the runtime directory. */

#include <stddef.h>

struct fault;

enum {
        RUNTIME_PATH_MAX = 94, /* a directory; sun_path has 108 bytes, "/control.sock" and its end take 14 */
};

#define RUNTIME_JOB_SOCKET     "pinfeed.sock"
#define RUNTIME_CONTROL_SOCKET "control.sock"
#define RUNTIME_LOCK           "pinfeedd.pid"

/* The directory: `given` (NULL: not given), $PINFEED_RUNTIME_DIR,
 * $XDG_RUNTIME_DIR/pinfeed, /tmp/pinfeed-UID. A directory that was given or stands in $PINFEED_RUNTIME_DIR is
 * final; otherwise a client takes the first place that has a socket, the last one being /run/pinfeed, or,
 * with no socket anywhere, the same as a daemon. Makes nothing. 0, or -ENAMETOOLONG with both lengths. */
int runtime_find_directory(char path[RUNTIME_PATH_MAX + 1], const char *given, int for_client,
                           struct fault *fault);

/* Makes the directory (0700) where it is missing and checks that it is a directory of ours that nobody else
 * may write. 0 or a negative errno with the reason. */
int runtime_make_directory(const char *path, struct fault *fault);
