/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A directory that was named, on the command line or by $PINFEED_RUNTIME_DIR, is final. Otherwise a daemon
 * takes the first place that a user has of their own, and a client looks through these places, and then at
 * the machine's service, for one with a socket in it. With no socket anywhere it is told the user's own
 * place: that is where a daemon of theirs would be, and so the useful one to name in an error, and the one to
 * start a daemon in. A client that defines its pipeline does not look at the service, which takes none.
 *
 * /tmp belongs to everybody. What lies there counts only when it belongs to us: nobody else can then put a
 * socket into it, or hold our clients up by having made the directory first. */

#include "proto/runtime.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

_Static_assert(RUNTIME_PATH_MAX + sizeof("/" RUNTIME_JOB_SOCKET) <=
                       sizeof(((struct sockaddr_un *)0)->sun_path),
               "the longest directory and a socket's name fit an address");
_Static_assert(sizeof(RUNTIME_CONTROL_SOCKET) <= sizeof(RUNTIME_JOB_SOCKET), "the control socket's name too");

/* Like a named place too long, said in full. */
static int take(char path[RUNTIME_PATH_MAX + 1], const char *directory, const char *leaf,
                struct fault *fault) {
        int length = snprintf(path, RUNTIME_PATH_MAX + 1, "%s%s", directory, leaf);

        if (length > RUNTIME_PATH_MAX)
                return fault_set(
                        fault, -ENAMETOOLONG,
                        "runtime directory %s%s: its path has %d bytes, at most %d are possible; choose a "
                        "shorter one with --runtime-dir or PINFEED_RUNTIME_DIR",
                        directory, leaf, length, RUNTIME_PATH_MAX);
        return 0;
}

/* An environment variable that is there and not empty. */
static const char *variable(const char *name) {
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

static bool has_socket(const char *directory, bool must_be_ours) {
        char path[RUNTIME_PATH_MAX + sizeof("/" RUNTIME_JOB_SOCKET)];
        struct stat status;

        if (must_be_ours && (lstat(directory, &status) < 0 || status.st_uid != geteuid()))
                return false;
        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_JOB_SOCKET);
        return lstat(path, &status) == 0 && S_ISSOCK(status.st_mode);
}

/* The user's own place in /tmp, which is always short enough. */
static void take_tmp(char path[RUNTIME_PATH_MAX + 1]) {
        snprintf(path, RUNTIME_PATH_MAX + 1, "/tmp/pinfeed-%lu", (unsigned long)geteuid());
}

int runtime_find_directory(char path[RUNTIME_PATH_MAX + 1], const char *given, enum runtime_seeker seeker,
                           struct fault *fault) {
        const char *named = given ? given : variable("PINFEED_RUNTIME_DIR"),
                   *xdg = variable("XDG_RUNTIME_DIR");
        char tmp[RUNTIME_PATH_MAX + 1];
        int r;

        if (named)
                return take(path, named, "", fault);
        take_tmp(tmp);
        r = xdg ? take(path, xdg, "/pinfeed", fault) : take(path, tmp, "", fault);
        if (r < 0 || seeker == RUNTIME_DAEMON || has_socket(path, true))
                return r;
        if (has_socket(tmp, true))
                return take(path, tmp, "", fault);
        if (seeker == RUNTIME_CLIENT && has_socket(RUNTIME_SERVICE, false))
                return take(path, RUNTIME_SERVICE, "", fault);
        return 0;
}

int runtime_make_directory(const char *path, struct fault *fault) {
        _cleanup_(fd_closep) int fd = -1;
        struct stat status;

        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return fault_set(fault, -errno, "runtime directory %s: cannot make it: %s (%d)", path,
                                 strerror(errno), errno);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return fault_set(
                        fault, -errno,
                        "runtime directory %s: cannot open it as a directory (a symbolic link will not do): "
                        "%s (%d)",
                        path, strerror(errno), errno);
        if (fstat(fd, &status) < 0)
                return fault_set(fault, -errno, "runtime directory %s: %s (%d)", path, strerror(errno),
                                 errno);
        if (status.st_uid != geteuid())
                return fault_set(fault, -EPERM, "runtime directory %s belongs to uid %lu, this is uid %lu",
                                 path, (unsigned long)status.st_uid, (unsigned long)geteuid());
        if (status.st_mode & (S_IWGRP | S_IWOTH))
                return fault_set(fault, -EPERM,
                                 "runtime directory %s has mode %04o: others may write it; chmod go-w it",
                                 path, (unsigned)status.st_mode & 07777);
        return 0;
}
