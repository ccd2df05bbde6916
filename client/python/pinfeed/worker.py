# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A worker of a dataset that the configuration names, started by pinfeedd: `python -m pinfeed.worker`.

    source: {type: python, dataset: "package.module:factory", args: {...}, path: [...]}

The factory is called in each worker, so nothing is pickled either; but it is another interpreter than the script's, and what it
makes has to be the same each time. With --describe the process makes two samples, says what they consist of and
ends: the daemon runs no Python, and wants to know the size of a row before it makes the ring.

The worker protocol and the storing of samples are C (_worker). What --describe says and hears is two records, written here with
struct as proto/PROTOCOL.md lays them out.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import struct
import sys

from . import forks, probe, surroundings, workers
from .zygote import HEADER, RECORD_MAX

PR_SET_PDEATHSIG = 1
SOCKET = 3  # where the daemon has put its end of the pair
BROKEN, DESCRIBE, DESCRIBED = 38, 43, 44
BROKEN_FIELDS = struct.Struct('<HBQII')  # error, sample_given, sample, slot, first
DESCRIBED_FIELDS = struct.Struct('<QB')  # samples, deterministic
TEXT = struct.Struct('<H')
NAME_MAX = 128
LAYOUT_MAX = 16384
TRIES = 100  # samples that are looked at to find two good ones
SEED = 0  # of the samples that are only looked at


def main():
    options = _parse()
    _end_with(options.daemon)
    forks.call_it('pinfeed-worker')
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends these to the whole group
        signal.signal(number, signal.SIG_IGN)
    os.setpriority(os.PRIO_PROCESS, 0, max(options.nice, os.getpriority(os.PRIO_PROCESS, 0)))
    workers.use_one_thread()
    if options.describe:
        _describe(socket.socket(fileno=SOCKET))
    else:
        _work()
    forks.leave(0)


def _parse():
    parser = argparse.ArgumentParser('python -m pinfeed.worker', description='Started by pinfeedd, with a socket as descriptor 3; '
                                     'of no use by hand.')
    parser.add_argument('--daemon', type=int, required=True, metavar='PID')
    parser.add_argument('--nice', type=int, default=0, choices=range(20), metavar='N')
    parser.add_argument('--describe', action='store_true')
    return parser.parse_args()


def _end_with(daemon):
    """A worker does not outlive its daemon. That may have died just before."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != daemon:
        forks.leave(0)


# ---- the dataset ----

def make(source):
    """What the factory gives, and what may be called with the number of a sample."""
    _import('torch', [])
    sys.path[:0] = source['path']
    module, _, name = source['dataset'].partition(':')
    found = _import(module, source['path'])
    for part in name.split('.'):
        found = getattr(found, part)
    dataset = found(**source['args'])
    workers.use_one_thread()  # of libraries that have come since
    _check(dataset, source['dataset'])
    many = getattr(dataset, '__getitems__', None)
    return dataset, dataset.__getitem__ if many is None else lambda number: many([number])[0]


def _import(module, path):
    try:
        __import__(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{module}.'.startswith(f'{error.name}.'):
            raise  # of something that it imports itself
        looked = f"{', '.join(path)} and " if path else ''
        raise ModuleNotFoundError(f'no module {error.name!r} in {looked}the packages of {sys.executable}: `path` says where to look '
                                  'first, `interpreter` which packages there are', name=error.name) from None
    return sys.modules[module]


def _check(dataset, factory):
    import torch.utils.data

    what = f'{factory} gave {type(dataset).__module__}.{type(dataset).__qualname__}'
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise TypeError(f'{what}, an IterableDataset: rows are made in any order and by any worker, so expected one with '
                        '__getitem__ and __len__')
    if not hasattr(dataset, '__getitem__'):
        raise TypeError(f'{what}: expected a dataset, with __getitem__ and __len__')


def count(dataset, said):
    """Samples of the dataset, of which the configuration may want fewer."""
    there = len(dataset) if hasattr(type(dataset), '__len__') else None
    if there is None and not said:
        raise TypeError(f'{type(dataset).__qualname__} has no __len__: say `samples`')
    if there is not None and said > there:
        raise ValueError(f'samples: expected at most {there}, which is len() of the dataset, got {said}')
    if there == 0:
        raise ValueError(f'{type(dataset).__qualname__} has no samples')
    return said or there


# ---- a worker ----

class _Work:
    def open(self, recipe, layout):
        """SETUP has come. The number of samples."""
        source = json.loads(recipe)['source']
        try:
            self._dataset, self._fetch = make(source)
            samples = count(self._dataset, source['samples'])
        except Exception as error:
            raise error.with_traceback(surroundings.trimmed(error.__traceback__))
        from .structure import Structure

        self._spec = Structure.from_json(layout).spec
        return samples

    def start(self, number, fields):
        """Before the first sample."""
        from . import _worker

        _introduce(number, self._dataset)
        return _worker.Rows(self._fetch, self._spec)


def _introduce(number, dataset):
    """For torch.utils.data.get_worker_info(). How many workers there are is not known: their number changes."""
    import torch.utils.data._utils.worker as torch_worker

    torch_worker._worker_info = torch_worker.WorkerInfo(id=number, num_workers=None, seed=None, dataset=dataset)


def _work():
    from . import _worker

    work = _Work()
    try:
        _worker.run(SOCKET, 0, work.start, work.open)
    except RuntimeError as error:
        print(f'pinfeed.worker (pid {os.getpid()}): {error}', file=sys.stderr)
        forks.leave(1)


# ---- describing ----

class _Bad(Exception):
    """A sample that could not be made; what was raised is its cause."""

    def __init__(self, number):
        super().__init__()
        self.number = number


def _describe(connection):
    connection.setblocking(True)  # the daemon's pairs are not
    record = connection.recv(RECORD_MAX)
    if not record:
        return  # the daemon has no use for it any more
    kind, _, length = HEADER.unpack_from(record)
    if kind != DESCRIBE or length != len(record):
        raise ValueError(f'a record of type {kind} with {len(record)} bytes, expected DESCRIBE')
    source = json.loads(record[HEADER.size + TEXT.size:])['source']
    try:
        kind, fields = DESCRIBED, _look(source)
    except _Bad as bad:
        kind, fields = BROKEN, _explain(bad.__cause__, 1, bad.number)
    except BaseException as error:
        kind, fields = BROKEN, _explain(error, 0, 0)
    connection.send(HEADER.pack(kind, 0, HEADER.size + len(fields)) + fields)


def _look(source):
    dataset, fetch = make(source)
    from . import structure  # needs torch, of which more was said by now

    samples = count(dataset, source['samples'])
    _introduce(0, dataset)
    numbers, values = _find_two(fetch, samples)
    again = [_fetch(fetch, number) for number in numbers[::-1]][::-1]
    try:
        found = structure.learn((values * 2)[:2])
        layout = found.to_json()
    except structure.NotRows as reason:
        raise TypeError(f'{reason}: a dataset in the configuration gives tensors, arrays, numbers and images, of the same size in '
                        'each sample, in lists, tuples and dicts; pinfeed.DataLoader takes all else') from None
    if len(layout.encode()) > LAYOUT_MAX:
        raise ValueError(f'the layout of a sample takes {len(layout.encode())} bytes, and {LAYOUT_MAX} are possible: shorten keys')
    deterministic = [*map(probe.digest, values)] == [*map(probe.digest, again)]
    name = f'{type(dataset).__module__}.{type(dataset).__qualname__}'.encode()[:NAME_MAX].decode(errors='ignore')
    return DESCRIBED_FIELDS.pack(samples, deterministic) + _texts(name, found.fields, layout)


def _find_two(fetch, samples):
    """Numbers and values of the first good samples. There may be bad ones, where they are to be replaced; whether they are is
    not known here."""
    numbers, values, first = [], [], None
    for number in range(min(samples, TRIES)):
        try:
            values.append(_fetch(fetch, number))
            numbers.append(number)
        except _Bad as bad:
            first = first or bad
        if len(numbers) == 2:
            break
    if len(numbers) < min(samples, 2):
        raise first
    return numbers, values


def _fetch(fetch, number):
    from . import _worker

    try:
        _worker.seed_sample(SEED, 0, number)
        return fetch(number)
    except Exception as error:
        raise _Bad(number) from error


def _explain(error, sample_given, sample):
    """The fields of BROKEN."""
    from . import _worker

    number, text, name, trace = _worker.explain(error.with_traceback(surroundings.trimmed(error.__traceback__)))
    return BROKEN_FIELDS.pack(number, sample_given, sample, 0, 0) + _texts('', text, name, trace)


def _texts(*texts):
    return b''.join(TEXT.pack(len(text)) + text for text in (text.encode() for text in texts))


if __name__ == '__main__':
    main()
