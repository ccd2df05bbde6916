# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What can be raised, and which errno becomes which.

All are pinfeed.Error, which has the errno. Those for which Python has an exception of its own are that, too, so that
`except TimeoutError` does what it says.

What a dataset in Python has raised comes from another process, as texts and the name of its type. Of the type nothing is made
but one more base class, so that `except ValueError` works as it does with torch's DataLoader. Its constructor is not called,
for it may want other arguments; and nothing is imported to find it, on another process's word.
"""

import errno
import re
import sys

BYTES_STEP = 4096


def round_up(length):
    """Bytes that there is to be room for."""
    return -(-length // BYTES_STEP) * BYTES_STEP


class Error(RuntimeError):
    """Something went wrong; `errno` says of which kind, the text what, where and what to do about it."""

    errno = 0


class Timeout(Error, TimeoutError):
    """Nothing came in time. Trying again is fine."""


class NotFound(Error, FileNotFoundError):
    """No daemon listens, or it has no such pipeline."""


class Disconnected(Error, ConnectionError):
    """The daemon has gone and no other was found in time."""


class Refused(Error, PermissionError):
    """The daemon, or its pipeline, is not for this user, or the daemon is not whose it should be."""


class Invalid(Error, ValueError):
    """An argument cannot be."""


class Stale(Error, ValueError):
    """A state, or a job that goes on, is of a pipeline that has changed since."""


class BatchTooLarge(Error, ValueError):
    """A batch that was made whole in a worker needs more bytes than there is room for. Trainers that may make more of it see
    that by the name of this type (served.py)."""

    errno = errno.EINVAL
    _pinfeed_no_room = 1  # so that no other batch comes in its place (daemon/worker/python/exception.c)

    def __init__(self, batch, needed, there):
        room = round_up(needed * 5 // 4)
        super().__init__(f'batch {batch} needs {needed:,} bytes, there is room for {there:,}: pass batch_bytes={room} to '
                         'pinfeed.DataLoader, or leave it out')


class NotNative(Error, TypeError):
    """A dataset does what no pipeline of pinfeed's own does; `reason` says what, in a few words."""

    errno = errno.EOPNOTSUPP

    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason

    def __str__(self):
        return (f'this dataset has no native pipeline, because {self.reason}: pinfeed.DataLoader reads it as it is, by '
                'Python workers')


class SampleError(Error):
    """A sample could not be made. What a dataset in Python has raised there is also an instance of that type, where this
    process knows it. What is not known is None. All stands here, too, so that no attribute of that type takes its place."""

    sample = None  # its number in the source
    batch = None  # its number, where a worker makes whole batches
    worker = None
    pid = None  # of the worker
    file = None
    exception = None  # the name of the type, such as 'builtins.ValueError'
    traceback = None  # as Python prints it
    _text = ''

    def __str__(self):
        return self._text if self.traceback is None else f'{self._text}\n\n{self.traceback.rstrip()}'

    def __repr__(self):
        return f'SampleError({self._text!r})'

    def __reduce__(self):
        return make, (self.errno, self._text, {name: getattr(self, name) for name in _KNOWN})


_KNOWN = ('sample', 'worker', 'pid', 'file', 'exception', 'traceback', 'batch')

_CLASSES = {
    errno.ETIMEDOUT: Timeout,
    errno.ENOENT: NotFound,
    errno.EPIPE: Disconnected,
    errno.ESHUTDOWN: Disconnected,
    errno.EPERM: Refused,
    errno.EINVAL: Invalid,
    errno.ESTALE: Stale,
}


def make(number, text, failure=None):
    """The exception of an errno; with `failure`, a dict of what is known of a sample, a SampleError. Called by the extension
    module, too."""
    if failure is not None:
        return _make_sample_error(number, text, failure)
    error = _CLASSES.get(number, Error)(text)
    error.errno = number
    return error


def _make_sample_error(number, text, failure):
    known = {name: failure.get(name) for name in _KNOWN}
    try:
        original = _find(known['exception']) if known['exception'] else None
        return _filled(_bare(original) if original else SampleError(), number, text, known)
    except Exception:  # of a type that cannot be a base, or has code of its own that objects
        return _filled(SampleError(), number, text, known)


# Beside what is no Exception, such as SystemExit: what would end the user's loop, and what is printed without its str().
_NO_BASES = (StopIteration, StopAsyncIteration, SyntaxError)


def _find(name):
    """The exception type of that full name, if it is to be a base."""
    module, _, rest = name.rpartition('.')
    parts = [rest]
    while module and module not in sys.modules:
        module, _, rest = module.rpartition('.')
        parts.insert(0, rest)
    found = sys.modules[module]
    for part in parts:
        found = object.__getattribute__(found, '__dict__')[part]  # getattr would have a lazy module import something
    is_base = issubclass(found, Exception) and not issubclass(found, _NO_BASES)
    return found if is_base and not issubclass(SampleError, found) else None


def _bare(original):
    """A SampleError that is an `original`. No constructor is called but that of the builtin type whose layout it has."""
    kind = base = type('SampleError', (SampleError, original), {'__module__': __name__})
    while base.__module__ != 'builtins':
        base = base.__base__
    return base.__new__(kind)


def _filled(error, number, text, known):
    """Without __setattr__, which may be the original type's."""
    BaseException.args.__set__(error, (text,))
    error.__dict__.update(known, errno=number, _text=text)
    return error


def of_batch(error):
    """The same, where the daemon's samples are batches: a worker has put the sample in front of what was raised."""
    batch = error.sample
    if batch is None:
        return error
    known = {name: getattr(error, name) for name in _KNOWN}
    text, found = error._text, re.search(rf'\bsample {batch}(, worker \d+ \(pid \d+\): )sample (\d+): ', error._text)
    if found:
        text = f'{text[:found.start()]}batch {batch} (sample {found[2]}){found[1]}{text[found.end():]}'
    else:
        text = re.sub(rf'\bsample {batch}\b', f'batch {batch}', text)
    return make(error.errno, text, {**known, 'batch': batch, 'sample': int(found[2]) if found else None})


def invalid(text):
    return make(errno.EINVAL, text)
