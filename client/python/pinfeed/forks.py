# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Children that are forked from the user's script, and never get back to it.

A child has the script's memory, that is why there is one, but none of its duties: it runs one function and ends by
os._exit, so that neither `finally` blocks, nor atexit handlers, nor buffers of the script's run or are written a second
time. Signals that the script has handlers for are the script's business; a child ignores them, and goes when the script
does.

That is what the leash is for: a pipe of which the script alone has the writing end. The kernel kills the child when it is
closed, however the script ends. So no other process may have that end: it is closed on exec, and by a handler in whatever
else the script forks.
"""

import contextlib
import os
import re
import select
import signal
import sys
import threading
import traceback
import warnings
import weakref

from . import surroundings

REAP_S = 1  # a child that was killed is gone in a moment, unless it waits for a disk
WALK_MAX = 100  # parts of a list that are looked at: longer ones are lists of samples
RINGS = re.compile(rb'^(\w+)-(\w+) .* /(?:dev/shm/|memfd:)pinfeed[^/\n]*$', re.MULTILINE)

_children = weakref.WeakSet()


class Child:
    """A forked child of this process. It lives as long as this object at most."""

    _leash = _pidfd = pid = -1

    def __init__(self, run, name, keep=()):
        """`run` is called in the child; `keep` are descriptors that go with it, and that no other child is to have."""
        reading, self._leash = os.pipe2(os.O_CLOEXEC)
        self._keep = list(keep)
        _children.add(self)  # so that the child itself closes its copies, too
        try:
            self.pid = _fork(run, name, reading)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reading)
        self._pidfd = os.pidfd_open(self.pid)

    def end(self, timeout_s):
        """Waits for its end: the exit status, -N for signal N as subprocess has it; None: it has not ended in that time, or
        was waited for already."""
        if self.pid < 0:
            return None
        if not wait_for(self._pidfd, timeout_s):
            return None
        pid, self.pid = self.pid, -1
        try:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # the script lets the kernel do that
            return 0

    def cut(self):
        """Ends the child, which the kernel does when the leash is closed."""
        leash, self._leash = self._leash, -1
        if leash >= 0:
            os.close(leash)

    def close(self):
        """Ends it, and waits until it has."""
        self.cut()
        self.end(REAP_S)
        self._close_rest()

    def forget(self):
        """In another child of the script's: this one is not ours."""
        self.cut()
        self.pid = -1
        self._close_rest()

    def _close_rest(self):
        rest, self._keep, self._pidfd = [*self._keep, self._pidfd], [], -1
        for fd in rest:
            if fd >= 0:
                os.close(fd)

    def __del__(self):
        self.close()


def wait_for(fd, timeout_s):
    """Whether there is something to read."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _forget_all():
    for child in list(_children):
        child.forget()


os.register_at_fork(after_in_child=_forget_all)


def _fork(run, name, leash):
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()  # what is in there now would be written by both
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)  # of threads: warn_of_threads() has said more
            pid = os.fork()
        if pid == 0:
            _live(run, name, leash, before)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live(run, name, leash, signals):
    """All that the child does. Does not return."""
    status = 1
    try:
        from . import _worker

        _worker.leash(leash, False)  # the kernel's parent is the thread that has forked, and a script's thread may end
        unmap_rings()
        call_it(name)
        ignore_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        _quieten()
        run()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        leave(status)


def leave(status):
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    os._exit(status)


def call_it(name):
    """For ps and top."""
    with open('/proc/self/comm', 'w', encoding='ascii') as file:
        file.write(name)


def unmap_rings():
    """Of loaders that the script had before: their memory would not be free before this process has ended, and a daemon that
    follows another one has to wait for it. Their arrays are not for a child."""
    import ctypes

    unmap = ctypes.CDLL(None).munmap
    with open('/proc/self/maps', 'rb') as file:
        for addresses in RINGS.findall(file.read()):
            begin, end = (int(address, 16) for address in addresses)
            unmap(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin))


def ignore_signals():
    """Ctrl-C goes to the whole group of processes. And a script that saves its work on SIGTERM wants batches until then. But
    SIGCHLD must not be ignored, whatever the script does with it: the kernel would do the waiting for a child's children."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number == signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _quieten():
    """Nothing is read from the terminal, and what is printed comes line by line, for the end may come at any time."""
    sys.stdin = open(os.devnull, encoding='ascii')
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(line_buffering=True)


# ---- what makes a fork dangerous ----

def warn_of_state():
    """A fork copies one thread only, and nothing of a GPU. Said where it can still be changed."""
    remedy = 'Make the DataLoader before, near the beginning of the script'
    threads = _threads()
    if threads:
        warnings.warn(f"pinfeed.DataLoader forks its workers' parent from a process with more threads ({', '.join(threads)}): "
                      f'locks that they hold just then stay locked in the workers, which may hang. {remedy}',
                      stacklevel=surroundings.stacklevel())
    cuda = sys.modules.get('torch.cuda')
    if cuda is not None and cuda.is_initialized():
        warnings.warn("pinfeed.DataLoader forks its workers' parent from a process that has initialised CUDA, which does not "
                      f'work in workers, so a dataset that uses it fails. {remedy}', stacklevel=surroundings.stacklevel())


def _threads():
    """Names of threads that may matter. Pools for linear algebra are in many a process, have no names of their own, and know
    how to live through a fork; threads of gRPC, autograd and the like have names. Ours do nothing with locks of others."""
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    main = _comm(os.getpid())
    natives = [_comm(int(task)) for task in os.listdir('/proc/self/task')]
    names += [name for name in natives if name and name != main]
    return sorted({name for name in names if not name.startswith(('pinfeed', 'cuda'))})


def _comm(task):
    try:
        with open(f'/proc/self/task/{task}/comm', encoding='utf-8', errors='replace') as file:
            return file.read().strip()
    except OSError:
        return ''  # it has ended


def check_no_cuda(dataset):
    """A tensor on a GPU cannot be used in workers."""
    for path, value in walk(dataset):
        if getattr(value, 'is_cuda', False) is True:
            raise TypeError(f'{path} is a tensor on {value.device}, which workers cannot use: keep it in host memory '
                            f'({path}.cpu()), and move batches with .to() or device=')


def walk(dataset, path='dataset', seen=()):
    """(path, value) of a dataset's attributes, of what is in those that are lists, tuples and dicts, and of datasets
    therein."""
    import torch.utils.data

    for place, value in _attributes(dataset, path):
        yield place, value
        if isinstance(value, torch.utils.data.Dataset) and value is not dataset and id(value) not in seen:
            yield from walk(value, place, (*seen, id(dataset)))


def _attributes(dataset, path):
    for name, value in getattr(dataset, '__dict__', {}).items():
        yield f'{path}.{name}', value
        if isinstance(value, (list, tuple, dict)) and len(value) <= WALK_MAX:
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                yield f'{path}.{name}[{key!r}]', part
