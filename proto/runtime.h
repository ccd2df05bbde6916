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
#define RUNTIME_LOG            "pinfeedd.log" /* of a daemon in the background */
#define RUNTIME_START_LOCK     "start.lock"   /* held by a client that starts one */
#define RUNTIME_SERVICE        "/run/pinfeed" /* the machine's, which no client starts */

enum runtime_seeker {
        RUNTIME_DAEMON = 0,
        RUNTIME_CLIENT,
        RUNTIME_DEFINER, /* a client that only a daemon of its own user serves */
};

/* The directory: `given` (NULL: not given), $PINFEED_RUNTIME_DIR,
 * $XDG_RUNTIME_DIR/pinfeed, /tmp/pinfeed-UID. A directory that was given or stands in $PINFEED_RUNTIME_DIR is
 * final; otherwise a client takes the first place that has a socket, the last one being /run/pinfeed (not for
 * a definer), or, with no socket anywhere, the same as a daemon. Makes nothing. 0, or -ENAMETOOLONG with both
 * lengths. */
int runtime_find_directory(char path[RUNTIME_PATH_MAX + 1], const char *given, enum runtime_seeker seeker,
                           struct fault *fault);

/* Makes the directory (0700) where it is missing and checks that it is a directory of ours that nobody else
 * may write. 0 or a negative errno with the reason. */
int runtime_make_directory(const char *path, struct fault *fault);
