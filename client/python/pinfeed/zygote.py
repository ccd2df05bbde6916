# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The zygote: a fork of the user's script that holds the dataset and forks every worker, at the daemon's request.

Classes of __main__, lambdas and open tensors work in workers, for nothing is pickled, and a worker that has died is
followed by one with the dataset as it was when the zygote was forked. proto/PROTOCOL.md, "A zygote's connection", is what
the two say to each other. Records are read here with struct: the daemon is trusted, it is the user's own.
"""

import errno
import gc
import os
import select
import socket
import struct

from . import forks, workers
from .errors import make

HEADER = struct.Struct('<HHI')
FORK, FORKED, EXITED = 48, 49, 50
FORK_FIELDS = struct.Struct('<QIB')  # daemon, worker, nice
FORKED_FIELDS = struct.Struct('<QIHI')  # daemon, worker, error, pid
EXITED_FIELDS = struct.Struct('<QIBB')  # daemon, worker, signal, exit status
RECORD_MAX = 65536


class Zygote:
    """Seen from the script. `work(socket, leash, number)` is what each worker does."""

    def __init__(self, work):
        self._work = work
        self._former = self._child = None
        self.renew()

    def renew(self):
        """Another one, with the dataset as it is now. The former lives until end_former()."""
        if self._former is not None:
            self._former.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            fd = os.dup(ours.fileno())
            child = forks.Child(lambda: _serve(ours, theirs, self._work), 'pinfeed-zygote', [fd])
        self._former, self._child, self._fd = self._child, child, fd

    def end_former(self):
        """Does not wait for it."""
        self._former.cut()

    @property
    def brought(self):
        """What a job brings: the daemon's end of the pair, and a pid."""
        if self._child.pid < 0:
            raise make(errno.EBADF, 'the DataLoader is closed')
        return self._fd, self._child.pid

    def close(self):
        for child in (self._former, self._child):
            if child is not None:
                child.close()


def _serve(ours, theirs, work):
    """The zygote's life."""
    ours.close()
    workers.use_one_thread()
    gc.freeze()  # so that collections in workers do not touch, and thereby copy, what is there now
    _Nursery(theirs, work).run()


class _Nursery:
    def __init__(self, connection, work):
        self._connection = connection
        self._work = work
        self._children = {}  # {pidfd: (pid, daemon, worker)}
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def run(self):
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._children:
                    self._reap(fd)
                elif not self._take():
                    return

    def _take(self):
        """A request. False: there will be none any more."""
        record, descriptors, _, _ = socket.recv_fds(self._connection, RECORD_MAX, 2, getattr(socket, 'MSG_CMSG_CLOEXEC', 0))
        if not record:
            return False
        kind, _, length = HEADER.unpack_from(record)
        if kind != FORK or length != len(record) or len(descriptors) != 2:
            raise ValueError(f'a record of type {kind} with {len(record)} bytes and {len(descriptors)} descriptors, where '
                             'FORK was expected')
        self._fork(*FORK_FIELDS.unpack_from(record, HEADER.size), *descriptors)
        return True

    def _fork(self, daemon, worker, nice, connection, leash):
        error = 0
        try:
            pid = os.fork()
        except OSError as problem:
            pid, error = -1, problem.errno
        if pid == 0:
            self._become_worker(connection, leash, worker, nice)
        os.close(connection)
        os.close(leash)
        if error:
            self._send(FORKED, FORKED_FIELDS.pack(daemon, worker, error, 0))
            return
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid, daemon, worker
        self._poll.register(pidfd, select.POLLIN)
        self._send(FORKED, FORKED_FIELDS.pack(daemon, worker, 0, pid), pidfd)

    def _become_worker(self, connection, leash, worker, nice):
        """Does not return."""
        status = 1
        try:
            for fd in [self._connection.fileno(), *self._children]:
                os.close(fd)
            forks.call_it('pinfeed-worker')
            os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
            self._work(connection, leash, worker)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else end.code is not None
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            forks.leave(status)

    def _reap(self, pidfd):
        pid, daemon, worker = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._send(EXITED, EXITED_FIELDS.pack(daemon, worker, max(-code, 0), max(code, 0)))

    def _send(self, kind, fields, *descriptors):
        record = HEADER.pack(kind, 0, HEADER.size + len(fields)) + fields
        if descriptors:
            socket.send_fds(self._connection, [record], descriptors)
        else:
            self._connection.send(record)
