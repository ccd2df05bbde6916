# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A dataset as a pipeline whose workers the script itself brings: what its rows are, what the daemon is told of it.

A batch is put together in the script of the tensors that the daemon hands over: by the structure of a sample, which is free,
or by reading the one blob that a worker has made of the batch.
"""

import hashlib
import itertools
import os
import sys
import warnings

from . import definition as definitions
from . import orders, probe, surroundings
from .control import status
from .errors import Error, invalid, round_up
from .served import Served
from .workers import Work
from .zygote import Zygote

SLOTS_LEAST = 8
PREFETCH = 2  # batches for each worker, as torch has it
TIMEOUT_MAX = 86400  # seconds that a row may take

_numbers = itertools.count()


class Brought:
    """`asked` are the arguments of a DataLoader, `identity` names where the rows come from."""

    def __init__(self, asked, maker, units, seed, identity):
        self._asked = asked
        self._capacity = None  # bytes that a batch may have, where a row is one
        self._largest = 1  # samples of a row
        self._work = Work(maker, units, seed, asked.num_workers, asked.worker_init_fn)
        found, digests = self._learn(seed)
        self._deterministic = digests is not None
        if not self._deterministic:
            _warn(asked.dataset)
        self.units = self._work.units
        _check_device(asked.device, self.units)
        if self.units.whole:
            self._capacity = asked.batch_bytes or round_up(int(found * probe.CAPACITY))
            self._arrange = _Blobs(asked.zero_copy, asked.pin_memory)
            rows = f'{self.units.rows} batches of {self.units.scale}'
        else:
            self._arrange = _Samples(found)
            self._work.structure = found
            rows = found.identity()
        # The bytes of the first samples tell apart what has the same code, such as the parts that random_split makes.
        self._identity = hashlib.sha256(f'{identity} {rows}'.encode() + b''.join(digests or ())).hexdigest()
        self.name = _name(asked.share)
        self.zygote = Zygote(self._work)

    def _learn(self, seed):
        """Finds out whether a row can be a sample."""
        from . import structure

        try:
            return self._probe(seed)
        except structure.NotRows:
            self._work.units = orders.Batches(self._work.units.order, self._asked.batch_size, self._asked.drop_last)
            return self._probe(seed)

    def _probe(self, seed):
        units = self._work.units
        drawn = orders.peek(units)
        self._largest = units.largest(drawn)
        tries = probe.TRIES if self._asked.on_error == 'replace' else 2
        return probe.Probe(self._work, drawn, self._asked.sample_timeout * (1 + self._largest), tries).learn()

    def reader(self, seed, place, expected):
        asked, units = self._asked, self.units
        stays = self._stays()
        whole = {'zero_copy': True} if units.whole else {'zero_copy': asked.zero_copy, 'pin_memory': asked.pin_memory}
        reader = Served(self._definition(), self._arrange, units, self.zygote, stays, place, expected, self._grow, seed=seed,
                        rank=asked.rank or 0, world_size=asked.world_size or 1, device=asked.device,
                        max_held_batches=asked.max_held_batches, timeout=asked.timeout or None, output='torch', **whole)
        if asked.share is not None:
            _tell_of_namesakes(self.name)
        return reader

    def _grow(self, needed):
        """The bytes that there were for a batch, those that there are from here on, and the definition that says so. None: the
        user has set a limit."""
        if self._asked.batch_bytes is not None:
            return None
        before = self._capacity
        self._capacity = max(round_up(int(needed * probe.CAPACITY)), 2 * before)
        return before, self._capacity, self._definition()

    def renew(self):
        """For a second reader beside the first, which has the zygote that there was."""
        self.name = _name(self._asked.share)
        self.zygote.renew()

    def close(self):
        self.zygote.close()

    def _stays(self):
        """Whether one zygote is for all epochs."""
        return self._asked.persistent_workers or self._asked.share is not None

    def _definition(self):
        asked, units = self._asked, self.units
        stays = self._stays()
        fields = f'batch=uint8[{self._capacity}]' if units.whole else self._work.structure.fields
        timeout_s = min(asked.sample_timeout * self._largest, TIMEOUT_MAX)
        pipeline = {
            'source': {'type': 'python', 'brought': True, 'samples': units.rows, 'fields': fields,
                       'identity': self._identity, 'given_order': units.given, 'deterministic': self._deterministic},
            'batch_size': units.batch_size, 'shuffle': units.shuffle and not units.whole, 'seed': 0,
            'last_batch': units.last_batch, 'lookahead': int(stays and not units.given),
            'workers': asked.num_workers, 'on_error': asked.on_error, 'max_errors': asked.max_errors,
            'sample_timeout': timeout_s,
        }
        if units.whole or asked.prefetch_factor is not None:
            pipeline['slots'] = max(asked.num_workers * (asked.prefetch_factor or PREFETCH), SLOTS_LEAST)
        return {'name': self.name, 'pipelines': {self.name: pipeline}}


def _check_device(device, units):
    if device is not None and units.whole:
        raise invalid(f'device={device!r}: these batches are made whole in a worker, as one piece of bytes, and such a piece '
                      'is not brought to a GPU; leave out device, and use .to(device) in the loop')


class _Samples:
    """Rows that are samples."""

    def __init__(self, structure):
        self._structure = structure

    def __call__(self, fields, info):
        return self._structure.build(fields, fields[0].shape[0])


class _Blobs:
    """Rows that are batches."""

    def __init__(self, zero_copy, pin_memory):
        self._zero_copy = zero_copy
        self._finish = finisher(pin_memory)

    def __call__(self, fields, info):
        from . import blob

        return self._finish(blob.decode(fields[0].view(-1), copy=not self._zero_copy))


def finisher(pin_memory):
    """What moves a batch of any kind to page-locked memory, as torch does it; where that is not wanted, what does nothing."""
    if not pin_memory:
        return _as_it_is
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory as pin

    if torch.cuda.is_available():
        return pin
    warnings.warn('pin_memory=True, but no accelerator is found: batches come in ordinary memory',
                  stacklevel=surroundings.stacklevel())
    return _as_it_is


def _as_it_is(value):
    return value


def _name(share):
    """Of the pipeline. Without `share` no other script's is to have it."""
    if share is not None:
        return definitions.legal_name(share)
    script = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ''))[0]
    number = f'-{os.getpid()}-{next(_numbers)}'
    return definitions.legal_name(script or 'python')[:definitions.NAME_MAX - len(number)] + number


def _tell_of_namesakes(name):
    """That scripts which were to share do not."""
    try:
        pipelines = status()['pipelines']
    except Error:
        return  # a daemon that has gone since; the next batch will say so
    if sum(pipeline['name'].partition('#')[0] == name for pipeline in pipelines) > 1:
        surroundings.say(name, f'other scripts have given share={name!r} too, and are not shared with: their dataset (code, length '
                               'or first samples), collate_fn, shuffle or, where batches are made whole, batch_size is another. '
                               'Data that is made at random wants the same seed in each script')


def _warn(dataset):
    warnings.warn(f'{type(dataset).__name__}: the same sample was made twice, in two processes with the same random states, '
                  'and came out different. Such batches depend on who makes them, and when: a run cannot be repeated, nor go '
                  "on as it would have. Look for random generators of the dataset's own (random.Random, "
                  'numpy.random.default_rng, torch.Generator), which pinfeed.sample_rng() replaces, for the time of day, and '
                  'for what one sample leaves behind for the next', stacklevel=surroundings.stacklevel())
