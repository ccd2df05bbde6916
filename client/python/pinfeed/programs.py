# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The programs that come with the package: where they are, and how a shell starts them.

A wheel carries them in `pinfeed/bin`. An installation by meson or by a distribution has them in a `bin` directory
above the package, or on the PATH. Above a package there may be a directory that everybody may write to, such as /tmp: so
what is found there counts only if it belongs to the package's owner, or to root.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def find(name):
    """The path of `pinfeedd` or `pinfeedctl`, or None: in the package, in a `bin` above it, on the PATH."""
    directory = _HERE
    while True:
        candidate = os.path.join(directory, 'bin', name)
        if os.access(candidate, os.X_OK) and _is_ours(candidate) and _is_program(candidate):
            return candidate
        parent = os.path.dirname(directory)
        if parent == directory:
            import shutil

            return shutil.which(name)
        directory = parent


def _is_ours(path):
    return os.stat(path).st_uid in (0, os.stat(_HERE).st_uid)


def _is_program(path):
    """Not the script of the same name that pip has made, which would only find itself."""
    with open(path, 'rb') as file:
        return file.read(4) == b'\x7fELF'


def _run(name):
    path = find(name)
    if path is None or not _is_program(path):
        sys.exit(f'{name}: not in this package, nor on the PATH; install pinfeed again')
    os.execv(path, [name, *sys.argv[1:]])


def pinfeedd():
    _run('pinfeedd')


def pinfeedctl():
    _run('pinfeedctl')
