# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The extension module of workers in Python: private, use pinfeed.DataLoader."""

from typing import Any, Callable, List, Optional, Tuple, Union

Make = Callable[[int, int, int, int, Optional[memoryview], List[memoryview]], Any]
"""make(seed, epoch, row, sample, order, cells). It seeds by itself, with seed_sample. Where a row is a batch, `sample` is the
batch's number. Order and cells are good for the call only."""

class Rows:
    """Makes rows of what fetch(sample) gives, after seed_sample. `spec`, as tuples:

    ('leaf', index, kind, dtype, shape, name, convert): kind is 'tensor' (dtype: torch's), 'array' (dtype: as '<f4'), 'int',
    'float' or 'bool'; index is that of the field; convert is None or a function that is called with the value first.
    ('sequence', length, (spec, ...)) · ('mapping', ((key, spec), ...))
    """

    def __init__(self, fetch: Callable[[int], Any], spec: Tuple[Any, ...]) -> None: ...

def run(socket: int, samples: int,
        start: Callable[[int, List[Tuple[str, str, Tuple[int, ...]]]], Union[Rows, Make]]) -> None:
    """Works for the daemon at the descriptor `socket` until that is closed. start(number, fields) is called once. RuntimeError:
    the daemon has sent what makes no sense. SIGINT and SIGHUP are ignored from then on. SystemExit and KeyboardInterrupt of a
    sample end the process."""

def leash(fd: int, with_parent: bool = ...) -> None:
    """SIGKILL for this process once nobody can write to the pipe `fd`, at once if that is so already; with_parent: also when
    the thread ends that has forked it. The open file must be this process's own."""

def seed_sample(seed: int, epoch: int, sample: int, directly: bool = ...) -> None:
    """Sets the global generators of random, NumPy and torch, as far as they are imported; see docs/order.md. directly=False
    has the same effect, slowly."""

def sample_key() -> Optional[bytes]:
    """32 bytes of random numbers of the sample that was seeded last."""

def order(samples: int, seed: int, epoch: int, first: int, count: int) -> bytes:
    """The samples at rows first ... of an epoch, as int64."""

def explain(exception: BaseException) -> Tuple[int, str, str, str]:
    """(errno, text, type, traceback), as the daemon is told of it."""
