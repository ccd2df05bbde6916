# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon's control socket: a line out, a line of JSON in."""

import errno
import os

from . import _pinfeed
from .errors import Error, make

TIMEOUT_S = 10  # the daemon promises one


def status(runtime_dir=None):
    """What `pinfeedctl status --json` prints, as a dict: every member is described in pinfeedctl(1)."""
    import json
    import socket

    directory = _pinfeed.runtime_dir(_text_or_none(runtime_dir))
    path = os.path.join(directory, 'control.sock')
    answer = b''
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(path)
            _pinfeed.check_server(connection.fileno(), directory)
            connection.sendall(b'status\n')
            while not answer.endswith(b'\n'):
                part = connection.recv(1 << 16)
                if not part:
                    raise make(errno.EPIPE, f'the daemon at {path} hung up')
                answer += part
    except (FileNotFoundError, ConnectionRefusedError):
        raise make(errno.ENOENT, f'no pinfeedd listens on {path}: a Loader of a file or a dict starts one, which ends some time '
                                 'after its last job') from None
    except PermissionError as error:
        if isinstance(error, Error):
            raise
        raise make(errno.EPERM, f'{path} is not open to this user (uid {os.geteuid()}); be added to the group of its sockets, '
                                'and log in again') from None
    except socket.timeout:
        raise make(errno.ETIMEDOUT, f'the daemon at {path} has not answered in {TIMEOUT_S} s') from None
    answer = json.loads(answer)
    if 'error' in answer:
        raise make(errno.EPERM, answer['error'])
    return answer


def _text_or_none(path):
    return None if path is None else os.fspath(path)
