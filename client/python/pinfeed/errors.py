# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What can be raised, and which errno becomes which.

All are pinfeed.Error, which has the errno. Those for which Python has an exception of its own are that, too, so that
`except TimeoutError` does what it says.
"""

import errno


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
    """The daemon belongs to somebody else."""


class Invalid(Error, ValueError):
    """An argument cannot be."""


class Stale(Error, ValueError):
    """A state, or a job that goes on, is of a pipeline that has changed since."""


_CLASSES = {
    errno.ETIMEDOUT: Timeout,
    errno.ENOENT: NotFound,
    errno.EPIPE: Disconnected,
    errno.ESHUTDOWN: Disconnected,
    errno.EPERM: Refused,
    errno.EINVAL: Invalid,
    errno.ESTALE: Stale,
}


def make(number, text):
    """The exception of an errno. Called by the extension module, too."""
    error = _CLASSES.get(number, Error)(text)
    error.errno = number
    return error


def invalid(text):
    return make(errno.EINVAL, text)
