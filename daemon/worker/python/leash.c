/* SPDX-FileCopyrightText: The pinfeed authors */
/* SPDX-License-Identifier: Apache-2.0 */

/* A process that must not outlive another one reads from a pipe that the other one alone can write to. The
 * kernel closes the writing end whatever the other one dies of, and sends the owner of the reading end the
 * signal that it has asked for: SIGKILL, which no user's code can hold up, ignore or inherit a handler for.
 * No thread waits and nothing is polled.
 *
 * The signal is for a change. A writing end that was closed before the signal was asked for gives none, so
 * that is looked at afterwards. Both the signal and its receiver belong to the open file, not to the
 * descriptor: each process needs a pipe of its own. */

#include "daemon/worker/python/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static int ask_for_signal(int fd) {
        struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = getpid()};
        int flags;

        if (fcntl(fd, F_SETOWN_EX, &owner) < 0 || fcntl(fd, F_SETSIG, SIGKILL) < 0)
                return -errno;
        flags = fcntl(fd, F_GETFL);
        return flags < 0 || fcntl(fd, F_SETFL, flags | O_ASYNC) < 0 ? -errno : 0;
}

int leash_put_on(int fd, bool with_parent) {
        struct pollfd pipe = {.fd = fd, .events = POLLIN};
        int r;

        if (with_parent)
                prctl(PR_SET_PDEATHSIG, SIGKILL);
        r = ask_for_signal(fd);
        if (r == 0 && poll(&pipe, 1, 0) < 0)
                r = -errno;
        if (r < 0) {
                errno = -r;
                PyErr_SetFromErrno(PyExc_OSError);
                return -1;
        }
        if (pipe.revents != 0)
                kill(getpid(), SIGKILL);
        return 0;
}
