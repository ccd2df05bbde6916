#pragma once
/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* Unix sockets of type SOCK_SEQPACKET that carry records and descriptors. */

#include <stddef.h>
#include <sys/types.h>

enum {
        SEQPACKET_RECORD_MAX = 65536, /* our own bound; the kernel's is the send buffer */
        SEQPACKET_FDS_MAX = 16,       /* our own bound; the kernel's is SCM_MAX_FD, 253 */
};

/* Conditions of seqpacket_receive that its caller handles; see STYLE: never forwarded. */
enum seqpacket_error {
        SEQPACKET_E_AGAIN = 1, /* nothing there now */
        SEQPACKET_E_CLOSED,    /* the peer is gone, or sent an empty record */
        SEQPACKET_E_TOO_LONG,  /* a record over `size` bytes or with over SEQPACKET_FDS_MAX descriptors,
                                  dropped */
        SEQPACKET_E_NO_FDS, /* descriptors were sent and could not be installed: this process is out of them
                             */
};

/* A listening socket at `path` (mode 0600 from the first moment), or a negative errno. Removes nothing that
 * is in its place: -EADDRINUSE. Close-on-exec, non-blocking, like all sockets made here. */
int seqpacket_listen(const char *path, int backlog);

/* Connects to `path` without waiting. A descriptor, or a negative errno (-ENOENT, -ECONNREFUSED: nobody
 * listens; -EAGAIN: the listener's backlog is full, and there is nothing to poll for). */
int seqpacket_connect(const char *path);

/* A connected pair. 0 or a negative errno. */
int seqpacket_pair(int fds[2]);

/* Sends one record with `n_fds` descriptors (which stay the caller's). Never blocks on a non-blocking socket,
 * never raises SIGPIPE. 0, or a negative errno: -EAGAIN when the peer does not read, -EPIPE when it is gone.
 */
int seqpacket_send(int fd, const void *record, size_t length, const int *fds, size_t n_fds);

/* Receives one record into `record`. Descriptors come close-on-exec into fds[0 .. *n_fds), owned by the
 * caller from then on; on any other result none is left open. Returns 0 and *length > 0, a positive
 * SEQPACKET_E_*, or a negative errno. */
int seqpacket_receive(int fd, void *record, size_t size, size_t *length, int fds[SEQPACKET_FDS_MAX],
                      size_t *n_fds);

/* pid, uid, gid of the peer at the time it connected (SO_PEERCRED). 0 or a negative errno. */
int seqpacket_peer(int fd, pid_t *pid, uid_t *uid, gid_t *gid);
