/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* The kernel keeps records apart and descriptors with their record; what is left to do is to let nothing
 * leak. Every path out of seqpacket_receive that does not hand the descriptors to its caller closes them, and
 * the ways in which a peer or the kernel can cut something short are told apart, because they need different
 * words:
 *
 *   MSG_TRUNC                         the record was longer than our buffer
 *   MSG_CTRUNC, all places taken      the peer sent more descriptors than we take
 *   MSG_CTRUNC, places left           the kernel could not install them: this process has no descriptors left
 *
 * A peer that closes while records of ours are unread makes our next call fail once with ECONNRESET, before
 * the records that it sent are read. Its last words (REFUSED, FAILED) are the interesting ones, so that error
 * is skipped. */

#include "base/seqpacket.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

union control {
        struct cmsghdr header; /* for its alignment */
        char space[CMSG_SPACE(SEQPACKET_FDS_MAX * sizeof(int))];
};

static int make_address(struct sockaddr_un *address, const char *path) {
        size_t length = strlen(path);

        if (length == 0)
                return -ENOENT;
        if (length >= sizeof(address->sun_path))
                return -ENAMETOOLONG;
        memset(address, 0, sizeof(*address));
        address->sun_family = AF_UNIX;
        memcpy(address->sun_path, path, length);
        return 0;
}

static int new_socket(void) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        return fd < 0 ? -errno : fd;
}

int seqpacket_listen(const char *path, int backlog) {
        _cleanup_(fd_closep) int fd = -1;
        struct sockaddr_un address;
        int r;

        r = make_address(&address, path);
        if (r < 0)
                return r;
        fd = new_socket();
        if (fd < 0)
                return fd;
        /* Linux gives the file the mode of the socket's inode: so there is no moment at which others may
         * connect, and no need for umask, which belongs to all threads. */
        if (fchmod(fd, 0600) < 0)
                return -errno;
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        if (listen(fd, backlog) < 0) {
                r = -errno;
                unlink(path);
                return r;
        }
        return fd_take(&fd);
}

int seqpacket_connect(const char *path) {
        _cleanup_(fd_closep) int fd = -1;
        struct sockaddr_un address;
        int r;

        r = make_address(&address, path);
        if (r < 0)
                return r;
        fd = new_socket();
        if (fd < 0)
                return fd;
        while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                if (errno != EINTR)
                        return -errno;
        return fd_take(&fd);
}

int seqpacket_pair(int fds[2]) {
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;
}

int seqpacket_send(int fd, const void *record, size_t length, const int *fds, size_t n_fds) {
        struct iovec part = {.iov_base = (void *)record, .iov_len = length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        union control control;

        if (length == 0 || length > SEQPACKET_RECORD_MAX)
                return -EMSGSIZE;
        if (n_fds > SEQPACKET_FDS_MAX)
                return -EINVAL;
        if (n_fds > 0) {
                memset(&control, 0, sizeof(control));
                message.msg_control = control.space;
                message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                control.header.cmsg_level = SOL_SOCKET;
                control.header.cmsg_type = SCM_RIGHTS;
                control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
        }
        while (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
                if (errno != EINTR)
                        return errno == ECONNRESET ? -EPIPE : -errno;
        return 0;
}

/* recvmsg without its two harmless errors. */
static ssize_t receive_record(int fd, struct msghdr *message) {
        bool was_reset = false;

        for (;;) {
                ssize_t n = recvmsg(fd, message, MSG_CMSG_CLOEXEC);

                if (n >= 0)
                        return n;
                if (errno == ECONNRESET && was_reset)
                        return 0;
                if (errno == ECONNRESET)
                        was_reset = true;
                else if (errno != EINTR)
                        return -errno;
        }
}

/* The kernel fills one control message for all descriptors of a record. */
static size_t take_descriptors(struct msghdr *message, int fds[SEQPACKET_FDS_MAX]) {
        size_t n_fds = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
        }
        return n_fds;
}

/* Nothing wrong: 0. */
static int judge_record(ssize_t length, int flags, size_t n_fds) {
        if ((flags & MSG_CTRUNC) && n_fds < SEQPACKET_FDS_MAX)
                return SEQPACKET_E_NO_FDS;
        if (flags & (MSG_CTRUNC | MSG_TRUNC))
                return SEQPACKET_E_TOO_LONG;
        return length == 0 ? SEQPACKET_E_CLOSED : 0;
}

int seqpacket_receive(int fd, void *record, size_t size, size_t *length, int fds[SEQPACKET_FDS_MAX],
                      size_t *n_fds) {
        struct iovec part = {.iov_base = record, .iov_len = size};
        union control control;
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.space,
                                 .msg_controllen = sizeof(control.space)};
        size_t n_taken;
        ssize_t n;
        int r;

        *length = *n_fds = 0;
        n = receive_record(fd, &message);
        if (n == -EAGAIN)
                return SEQPACKET_E_AGAIN;
        if (n < 0)
                return (int)n;
        n_taken = take_descriptors(&message, fds);
        r = judge_record(n, message.msg_flags, n_taken);
        if (r != 0) {
                for (size_t i = 0; i < n_taken; i++)
                        close(fds[i]);
                return r;
        }
        *length = (size_t)n;
        *n_fds = n_taken;
        return 0;
}

int seqpacket_peer(int fd, pid_t *pid, uid_t *uid, gid_t *gid) {
        struct ucred peer;
        socklen_t size = sizeof(peer);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return -errno;
        *pid = peer.pid;
        *uid = peer.uid;
        *gid = peer.gid;
        return 0;
}
