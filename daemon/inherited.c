/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Sockets that outlive the daemon: systemd binds them, starts the daemon when somebody connects, and keeps
 * them while it is restarted. Whoever connects meanwhile waits in their queue and notices nothing. So their
 * files are neither made nor removed here; the lock on the directory is the daemon's own in any case.
 *
 * They come as descriptors from 3 on, LISTEN_FDS of them, for the process LISTEN_PID. Which is which, their
 * types tell: jobs connect to a SOCK_SEQPACKET socket, operators to a stream. Names (LISTEN_FDNAMES) only
 * help in messages. Anything else that was passed is a mistake in a unit file, and a daemon that started in
 * spite of it would be one that cannot be reached: it is refused in words.
 *
 * Whoever calls listen() is who a client sees as its server (SO_PEERCRED). Calling it again makes that this
 * process, for all who connect from now on; those who wait in the queue see who called it before. */

#include "daemon/inherited.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/number.h"
#include "proto/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
        INHERITED_FIRST = 3,
        INHERITED_MAX = 1024, /* more than any unit passes: a nonsense number ends here */
        NAME_MAX_SHOWN = 64,
};

/* The `index`th of names that are separated by colons. */
static void copy_name(char name[NAME_MAX_SHOWN], const char *names, int index) {
        for (; index > 0 && *names; index--)
                names += strcspn(names, ":") + (names[strcspn(names, ":")] == ':');
        fault_sanitize(name, NAME_MAX_SHOWN, names, strcspn(names, ":"));
}

static int option_of(int fd, int option) {
        socklen_t size = sizeof(int);
        int value;

        return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -errno : value;
}

/* Whether `path` is NAME in `directory`, however either is spelt. */
static bool lies_in(const char *path, const char *directory, const char *name) {
        const char *slash = strrchr(path, '/');
        struct stat ours, theirs;
        char place[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

        if (!slash || strcmp(slash + 1, name) != 0)
                return false;
        snprintf(place, sizeof(place), "%.*s", (int)(slash - path), path);
        return stat(directory, &ours) == 0 && stat(*place ? place : "/", &theirs) == 0 &&
               ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static int check_place(int fd, const char *directory, const char *name, struct fault *fault) {
        struct sockaddr_un address = {};
        socklen_t size = sizeof(address);
        char path[sizeof(address.sun_path) + 1];

        if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
                return fault_set(fault, -EINVAL, "it has no address: %s", strerror(errno));
        snprintf(path, sizeof(path), "%.*s", (int)sizeof(address.sun_path), address.sun_path);
        if (!lies_in(path, directory, name))
                return fault_set(
                        fault, -EINVAL,
                        "it is at %s, and clients of this daemon look for %s/%s: make the socket unit's "
                        "line and --runtime-dir agree",
                        *path ? path : "an abstract address", directory, name);
        return 0;
}

/* Sets *place to where the socket belongs. */
static int check_socket(int fd, struct inherited *inherited, const char *directory, int **place,
                        struct fault *fault) {
        int type = option_of(fd, SO_TYPE);
        bool is_job = type == SOCK_SEQPACKET;

        if (type == -EBADF)
                return fault_set(fault, -EINVAL,
                                 "it is not open: whoever set LISTEN_FDS has to pass so many descriptors");
        if (option_of(fd, SO_DOMAIN) != AF_UNIX || (type != SOCK_SEQPACKET && type != SOCK_STREAM))
                return fault_set(fault, -EINVAL,
                                 "it is not a socket of pinfeed's: the socket unit may have "
                                 "ListenSequentialPacket=%s/" RUNTIME_JOB_SOCKET
                                 " and ListenStream=%s/" RUNTIME_CONTROL_SOCKET " and no others",
                                 directory, directory);
        if (option_of(fd, SO_ACCEPTCONN) != 1)
                return fault_set(fault, -EINVAL,
                                 "it does not listen: the socket unit must not say Accept=yes");
        *place = is_job ? &inherited->job : &inherited->control;
        if (**place >= 0)
                return fault_set(fault, -EINVAL, "it is the second of its kind: one line %s= is enough",
                                 is_job ? "ListenSequentialPacket" : "ListenStream");
        return check_place(fd, directory, is_job ? RUNTIME_JOB_SOCKET : RUNTIME_CONTROL_SOCKET, fault);
}

static int take_socket(int fd, struct inherited *inherited, const char *directory, struct fault *fault) {
        int *place = NULL, r = check_socket(fd, inherited, directory, &place, fault);

        if (r < 0)
                return r;
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || (r = fd_set_nonblocking(fd, 1)) < 0 ||
            listen(fd, SOMAXCONN) < 0)
                return fault_set(fault, -EINVAL, "it cannot be used: %s", strerror(r < 0 ? -r : errno));
        *place = fd;
        return 0;
}

static int take_all(struct inherited *inherited, const char *directory, int n, const char *names,
                    struct fault *fault) {
        for (int i = 0; i < n; i++) {
                int fd = INHERITED_FIRST + i, r = take_socket(fd, inherited, directory, fault);
                char name[NAME_MAX_SHOWN];

                if (r >= 0)
                        continue;
                copy_name(name, names, i);
                return fault_prefix(
                        fault, r, "descriptor %d (\"%s\") was passed to this daemon as its socket", fd, name);
        }
        return 0;
}

/* How many there are for this process; others are left over from an ancestor. */
static int count(const char *fds, const char *pid, struct fault *fault) {
        uint64_t n, ours;

        if (!fds || !pid || number_parse_u64(pid, &ours) < 0 || ours != (uint64_t)getpid())
                return 0;
        if (number_parse_u64(fds, &n) < 0 || n > INHERITED_MAX)
                return fault_set(fault, -EINVAL, "LISTEN_FDS: expected a number up to %d, got \"%s\"",
                                 INHERITED_MAX, fds);
        return (int)n;
}

int inherited_take(struct inherited *inherited, const char *directory, struct fault *fault) {
        const char *names = getenv("LISTEN_FDNAMES");
        int n = count(getenv("LISTEN_FDS"), getenv("LISTEN_PID"), fault);
        int r = n > 0 ? take_all(inherited, directory, n, names ? names : "", fault) : n;

        unsetenv("LISTEN_FDS");
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDNAMES");
        return r;
}

void inherited_close(struct inherited *inherited) {
        fd_closep(&inherited->job);
        fd_closep(&inherited->control);
}
