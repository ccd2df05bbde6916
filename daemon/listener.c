/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A crash leaves socket files behind, and bind fails on them for ever. Whether one is stale cannot be told
 * from the file; but whoever holds the lock on RUNTIME_LOCK is the only pinfeedd of this directory, and the
 * kernel drops the lock with the process. So: lock first, then every socket of ours here is stale. Files that
 * are no sockets, and sockets that answer, are not ours and stay.
 *
 * A child that a daemon has forked has the lock, too, until its exec. If that daemon is killed just then, the
 * lock outlives it by as long as that takes, so one whose owner is gone is asked for again for a moment.
 *
 * The lock file is removed at a clean end. Somebody may have opened it just before; so after locking the file
 * is compared with what now has its name, and opened again when they differ.
 *
 * Who has connected is the kernel's word, of the time of connect: the process may have ended since, and its
 * number may be another's. The pidfd of the socket itself is right in any case; older kernels make one of the
 * number only, and a wrong one of those does little harm: its process is gone, so its socket is closed,
 * unless a child of it has it. */

#include "daemon/listener.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/seqpacket.h"
#include "proto/message.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 has it, Debian 12's headers do not */
#endif

enum {
        PATH_BYTES = RUNTIME_PATH_MAX + 32,
        LEFT_BEHIND_TRIES = 200, /* 2 s: what a fork may take on a machine without a free processor */
        LEFT_BEHIND_US = 10000,
};

/* The one that has written its number there does not live any more. */
static bool is_left_behind(int lock) {
        char text[16] = "";
        int pid;

        return pread(lock, text, sizeof(text) - 1, 0) > 0 && (pid = atoi(text)) > 0 && kill(pid, 0) < 0 &&
               errno == ESRCH;
}

static int refuse_second(int lock, const char *directory, struct fault *fault) {
        char pid[16] = "";
        ssize_t n = pread(lock, pid, sizeof(pid) - 1, 0);

        pid[n > 0 ? strcspn(pid, "\n") : 0] = 0;
        return fault_set(
                fault, -EBUSY,
                "another pinfeedd (pid %s) serves %s; stop it, or give another directory with --runtime-dir",
                *pid ? pid : "unknown", directory);
}

/* Whether `lock` is still the file at `path`. */
static bool is_at(int lock, const char *path) {
        struct stat ours, there;

        return fstat(lock, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
               ours.st_dev == there.st_dev;
}

static int write_pid(int lock) {
        char text[16];
        int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

        if (ftruncate(lock, 0) < 0 || pwrite(lock, text, (size_t)n, 0) != n)
                return -errno;
        return 0;
}

/* 0, or a negative errno. */
static int take_lock(int lock) {
        for (int i = 0; flock(lock, LOCK_EX | LOCK_NB) < 0; i++) {
                if (errno != EWOULDBLOCK)
                        return -errno;
                if (i >= LEFT_BEHIND_TRIES || !is_left_behind(lock))
                        return -EWOULDBLOCK;
                usleep(LEFT_BEHIND_US);
        }
        return 0;
}

int listener_lock(const char *directory, struct fault *fault) {
        char path[PATH_BYTES];
        int r;

        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_LOCK);
        for (;;) {
                _cleanup_(fd_closep) int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

                if (lock < 0)
                        return fault_set(fault, -errno, "cannot open %s: %s", path, strerror(errno));
                r = take_lock(lock);
                if (r == -EWOULDBLOCK)
                        return refuse_second(lock, directory, fault);
                if (r < 0)
                        return fault_set(fault, r, "cannot lock %s: %s", path, strerror(-r));
                if (!is_at(lock, path))
                        continue;
                r = write_pid(lock);
                if (r < 0)
                        return fault_set(fault, r, "cannot write %s: %s", path, strerror(-r));
                return fd_take(&lock);
        }
}

void listener_unlock(const char *directory, int lock) {
        char path[PATH_BYTES];

        if (lock < 0)
                return;
        snprintf(path, sizeof(path), "%s/%s", directory, RUNTIME_LOCK);
        unlink(path);
        close(lock);
}

/* Somebody may answer there; of which kind the socket is does not matter. Only "refused" says that nobody
 * does: whatever else goes wrong (no descriptor left, no permission) leaves the socket to its owner. */
static bool is_served(const char *path) {
        static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
                _cleanup_(fd_closep) int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

                if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
                    (errno != ECONNREFUSED && errno != EPROTOTYPE))
                        return true;
        }
        return false;
}

int listener_prepare(char path[PATH_BYTES], const char *directory, const char *name, struct fault *fault) {
        struct stat there;

        snprintf(path, PATH_BYTES, "%s/%s", directory, name);
        if (lstat(path, &there) < 0)
                return errno == ENOENT
                               ? 0
                               : fault_set(fault, -errno, "cannot look at %s: %s", path, strerror(errno));
        if (!S_ISSOCK(there.st_mode))
                return fault_set(fault, -EEXIST,
                                 "%s is in the way and no socket; it was left alone, move it away", path);
        if (is_served(path))
                return fault_set(fault, -EEXIST,
                                 "%s is served by another program; stop that, or give another --runtime-dir",
                                 path);
        if (unlink(path) < 0)
                return fault_set(fault, -errno, "cannot remove the stale socket %s: %s", path,
                                 strerror(errno));
        return 0;
}

static int refuse_group(const char *path, gid_t gid, int error, struct fault *fault) {
        if (error == -EPERM)
                return fault_set(
                        fault, error,
                        "%s cannot be given to group %u: uid %u is not of that group; add the user to "
                        "it, or have the sockets made by systemd",
                        path, (unsigned)gid, (unsigned)geteuid());
        return fault_set(fault, error, "%s cannot be given to group %u: %s", path, (unsigned)gid,
                         strerror(-error));
}

int listener_share_directory(const char *directory, gid_t gid, struct fault *fault) {
        _cleanup_(fd_closep) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat facts;

        if (fd < 0 || fstat(fd, &facts) < 0)
                return fault_set(fault, -errno, "cannot open %s: %s", directory, strerror(errno));
        if (facts.st_mode & S_IXOTH || (facts.st_gid == gid && facts.st_mode & S_IXGRP))
                return 0;
        if (fchown(fd, (uid_t)-1, gid) < 0 || fchmod(fd, 0750) < 0)
                return refuse_group(directory, gid, -errno, fault);
        return 0;
}

/* The group first: until then the group's rights would be another one's. */
int listener_share_socket(const char *directory, const char *name, gid_t gid, struct fault *fault) {
        char path[PATH_BYTES];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        if (lchown(path, (uid_t)-1, gid) < 0 || chmod(path, 0660) < 0)
                return refuse_group(path, gid, -errno, fault);
        return 0;
}

void listener_turn_away(int socket, int error, const char *text) {
        struct message message = {.type = MESSAGE_REFUSED, .refused.error = (uint16_t)-error};

        snprintf(message.refused.text, sizeof(message.refused.text), "%s", text);
        message_send(socket, &message, NULL, 0);
}

/* Whether `fd` is one of those that jobs may have: the kernel gives out the lowest free number, so a high one
 * means that few are left. If it is not, whoever is at `socket` is told. */
static bool is_within_limit(int fd, int socket, struct fault *fault) {
        struct rlimit limit = {};

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd + LISTENER_RESERVE < limit.rlim_cur)
                return true;
        fault_set(fault, -EMFILE,
                  "pinfeedd has no descriptor left for another job (its limit is %llu); raise it with "
                  "ulimit -n or LimitNOFILE=",
                  (unsigned long long)limit.rlim_cur);
        listener_turn_away(socket, -EMFILE, fault->text);
        return false;
}

int listener_accept(int listening, int *socket, struct fault *fault) {
        _cleanup_(fd_closep) int taken = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (taken < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
                return LISTENER_E_NONE;
        if (taken < 0)
                return fault_set(fault, -errno, "cannot accept a connection: %s", strerror(errno));
        if (!is_within_limit(taken, taken, fault))
                return LISTENER_E_FULL;
        *socket = fd_take(&taken);
        return 0;
}

/* The first way is free of the doubt whose the number is by now, and knows no pid namespaces. A negative
 * errno: ESRCH says that the process is gone. */
static int open_pidfd(int socket, pid_t pid) {
        int pidfd = -1;
        socklen_t size = sizeof(pidfd);

        if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
                return pidfd;
        if (errno == ESRCH || errno == EMFILE || errno == ENFILE)
                return -errno;
        if (pid == 0)
                return -EXDEV;
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        return pidfd < 0 ? -errno : pidfd;
}

int listener_watch_peer(int socket, pid_t pid, int *pidfd, const char **watched, struct fault *fault) {
        _cleanup_(fd_closep) int fd = open_pidfd(socket, pid);
        /* Without one left it is as if the next were beyond the limit. */
        int next = fd == -EMFILE ? INT_MAX : fd;

        *pidfd = -1;
        if (fd == -ESRCH)
                return LISTENER_E_GONE;
        if (next >= 0 && !is_within_limit(next, socket, fault))
                return LISTENER_E_FULL;
        if (fd >= 0)
                *watched = "pidfd and socket";
        else if (fd == -EXDEV)
                *watched = "socket only: its process is in another pid namespace";
        else if (fd == -ENFILE || fd == -EMFILE)
                *watched = "socket only: the system is out of descriptors";
        else if (fd == -EPERM)
                *watched = "socket only: pidfd_open is not permitted";
        else
                *watched = "socket only: this kernel gives no pidfd";
        *pidfd = fd < 0 ? -1 : fd_take(&fd);
        return 0;
}
