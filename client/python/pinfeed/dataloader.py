# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed.DataLoader: torch's DataLoader by its arguments, on pinfeed. docs/from-dataloader.md is its contract.

It decides once, when it is made, who makes the batches, and gives the reading to that reader:

    Loader   of a native pipeline, where pinfeed has all steps of an ImageFolder itself (native.py)
    Served   a Loader whose workers are forked by this script (brought.py, zygote.py)
    Local    this process itself (num_workers=0)

A position is a number of samples here, whichever of the last two it is. So a state that was saved without workers fits with
them. The name of a pipeline, which has a pid in it, is no part of a state, and the seed is: a run that was given none takes it
from the state.
"""

import errno
import sys

from . import arguments, orders, surroundings
from .errors import NotNative, invalid, make
from .loader import SEED_MAX, Loader, number

NAME = 'DataLoader'  # in states
STATE = ('fingerprint', 'seed', 'epoch', 'row')
FOLDER = 'torchvision.datasets.folder', 'ImageFolder'


class Sampler:
    """Stands for torch's SequentialSampler or RandomSampler, and takes set_epoch() as a DistributedSampler does."""

    def __init__(self, loader, order):
        self._loader = loader
        self._order = order

    def __len__(self):
        return self._order.rows

    def __iter__(self):
        """The order of the next epoch."""
        return iter(self._order.samples(0, self._order.rows, self._loader.seed, self._loader._ready()._next[0]))

    def set_epoch(self, epoch):
        self._loader.set_epoch(epoch)


class DataLoader:
    """Reads a dataset in batches: an iteration is an epoch. See docs/from-dataloader.md for every argument."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None,
                 generator=None, *, prefetch_factor=None, persistent_workers=False, pin_memory_device='', in_order=True,
                 native='auto', share=None, seed=None, device=None, rank=None, world_size=None, on_error='fail',
                 max_held_batches=4, zero_copy=False, sample_timeout=60, max_errors=0.001, batch_bytes=None):
        asked = dict(locals())
        del asked['self']
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.generator, self.worker_init_fn = generator, worker_init_fn
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.multiprocessing_context, self.prefetch_factor = multiprocessing_context, prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        asked = self._asked = arguments.check(**asked)
        self.batch_size, self.drop_last = asked.batch_size, asked.drop_last
        self.collate_fn = collate_fn or _torchs_collate(asked)
        self.batch_sampler = batch_sampler
        self._given_sampler = sampler
        self._place = 0, 0  # (epoch, row) for the reader that is not there yet
        self._expected = None  # digest of the order there
        self._reader = None
        self._seed = _seed(asked)
        self._order = _order(asked)
        self._length = None if self._order.given else self._order.rows
        self._identity = _identity(asked, self._order)
        cell = surroundings.cell_of(sys._getframe(1), (self._identity, asked.rank, asked.batch_size, asked.seed))
        surroundings.close_earlier(cell)
        self._begin(asked)
        surroundings.remember(cell, self)

    def _begin(self, asked):
        self._source = _source(asked, self._order, self._seed, self._identity)
        if self._order.given:
            return  # a sampler is asked when the first epoch begins, as torch does
        try:
            self._ready()
        except BaseException:
            self._source.close()
            raise

    def _ready(self):
        """Whoever reads, attached."""
        if self._reader is None:
            self._reader = self._source.reader(self._seed, self._place, self._expected)
        return self._reader

    # ---- iteration ----

    def __iter__(self):
        if self._length is not None and len(self.dataset) != self._length:
            raise invalid(f'dataset: it had {self._length} samples when the DataLoader was made, and has {len(self.dataset)} '
                          'now: the number is part of the order of every epoch, so make another DataLoader')
        self._renew_failed()
        reader = self._ready()
        if self._asked.distributed is not None:
            reader.set_epoch(self._asked.distributed.epoch)
        return iter(reader)

    def __len__(self):
        """Batches of a whole epoch."""
        if self._source.units is None:
            return len(self._ready())
        return orders.steps(self._source.units, 0, self.world_size)

    @property
    def remaining(self):
        """Batches that are left of the epoch that the loader is in."""
        return self._ready().remaining

    def set_epoch(self, epoch):
        """The next iter() is this epoch. It is not needed, for epochs count by themselves."""
        epoch = number('epoch', epoch, 0)
        if self._reader is not None:
            self._reader.set_epoch(epoch)
        elif epoch != self._place[0]:
            self._place, self._expected = (epoch, 0), None

    @property
    def sampler(self):
        if self.batch_sampler is not None:
            return getattr(self.batch_sampler, 'sampler', None)
        return Sampler(self, self._order) if self._given_sampler is None else self._given_sampler

    # ---- state ----

    def state_dict(self):
        """Where the loader is after the last batch that the loop has got: plain text and numbers."""
        units = self._source.units
        if units is None:
            return self._ready().state_dict()
        epoch, row = self._place if self._reader is None else self._reader.place()
        state = {'pipeline': NAME, 'fingerprint': self._identity, 'seed': self._seed, 'epoch': epoch, 'row': row * units.scale}
        if row and units.given:
            state['order'] = self._expected if self._reader is None else self._reader.order()
        return state

    def load_state_dict(self, state, *, force=False):
        """The next iter() goes on exactly there. pinfeed.Stale if dataset or seed have changed, unless forced."""
        units = self._source.units
        self._renew_failed()
        if units is None:
            self._ready().load_state_dict(state, force=force)
            return
        place = self._read_state(state, force)
        if not force and state['seed'] != self._seed:
            self._take_seed(state['seed'])
        if self._asked.distributed is not None:
            self._asked.distributed.set_epoch(place[0])
        expected = state.get('order') if not force else None
        if self._reader is None:
            self._place, self._expected = place, expected
        else:
            self._reader.go(*place, expected)

    def _read_state(self, state, force):
        """(epoch, row) of it."""
        needed = STATE[-2:] if force else STATE
        if not isinstance(state, dict) or not state.keys() >= set(needed):
            raise invalid(f"load_state_dict: expected what state_dict() gave, a dict with {', '.join(needed)}")
        if not force and state['fingerprint'] != self._identity:
            raise make(errno.ESTALE, f"the state has fingerprint {state['fingerprint']}, this DataLoader {self._identity}: "
                                     "the dataset's code, its length, or who says the order have changed; pass force=True "
                                     'to take its epoch and row all the same')
        epoch, samples = number('epoch', state['epoch'], 0), number('row', state['row'], 0, SEED_MAX)
        units = self._source.units
        row, rest = divmod(samples, units.scale)
        if rest or row >= max(units.rows, 1):
            raise invalid(f'load_state_dict: no batch of {units.scale} samples begins at row {samples} of '
                          f'{units.rows * units.scale}: the batch size was another one')
        return epoch, row

    def _take_seed(self, seed):
        """Of a state: this loader's own, where nobody has chosen it."""
        if self._asked.seed is not None or self._asked.share is not None:
            raise make(errno.ESTALE, f'the state is of seed {seed}, this DataLoader has seed {self._seed}: make it with '
                                     f'seed={seed}, or pass force=True for the epoch and row alone')
        self._seed = number('seed', seed, 0, SEED_MAX)
        self._replace((0, 0), None)

    def _renew_failed(self):
        """An error that has ended a job has ended its reader. Another one begins where that one's next iter() would have, with
        the dataset as it is now."""
        if self._reader is not None and self._reader._failed():
            self._replace(*self._reader._next_place())

    def _replace(self, place, expected):
        before, self._reader, self._place, self._expected = self._reader, None, place, expected
        if before is None:
            return
        self._source.renew()
        if not self._order.given:
            self._ready()
        before._leave()

    # ---- what it is ----

    @property
    def pipeline(self):
        """Its name, for `pinfeedctl status`."""
        return self._ready().pipeline

    @property
    def seed(self):
        return self._seed

    @property
    def rank(self):
        return self._asked.rank or 0

    @property
    def world_size(self):
        return self._asked.world_size or 1

    def stats(self):
        """As of a Loader."""
        return self._ready().stats()

    def __repr__(self):
        return (f'<pinfeed.DataLoader of {type(self.dataset).__name__}: {len(self)} batches, seed {self.seed}, rank '
                f'{self.rank} of {self.world_size}, {self.num_workers} workers>')

    # ---- the end ----

    def close(self):
        """Ends the workers, and leaves the daemon as soon as no tensor is in use that lies in the ring."""
        if self._reader is not None:
            self._reader.close()
        self._source.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __reduce__(self):
        raise TypeError('a pinfeed.DataLoader cannot be copied, nor be sent to another process: make one there')


# ---- who makes batches ----

class _Native:
    """A pipeline of pinfeed's own."""

    units = None  # states and lengths are the Loader's

    def __init__(self, asked, pipeline):
        self._asked = asked
        self._pipeline = {**pipeline, 'batch_size': asked.batch_size, 'shuffle': asked.shuffle, 'workers': asked.num_workers,
                          'on_error': asked.on_error, 'max_errors': asked.max_errors, 'sample_timeout': asked.sample_timeout,
                          'last_batch': 'drop' if asked.drop_last else 'short'}
        if asked.share is not None:
            self._pipeline['name'] = asked.share

    def reader(self, seed, place, expected):
        asked = self._asked
        reader = Loader(self._pipeline, seed=seed, rank=asked.rank or 0, world_size=asked.world_size or 1, device=asked.device,
                        pin_memory=asked.pin_memory, max_held_batches=asked.max_held_batches, zero_copy=asked.zero_copy,
                        timeout=asked.timeout or None, output='torch')
        if len(reader.dataset) != len(asked.dataset):
            reader.close()
            raise make(errno.ESTALE, f'{asked.dataset.root} has changed since the dataset was made: there are '
                                     f'{len(reader.dataset)} samples, not {len(asked.dataset)}. Make the dataset anew')
        reader._values.arrange = _as_list
        if any(place):
            reader.load_state_dict({'epoch': place[0], 'row': place[1]}, force=True)
        return reader

    def renew(self):
        """Nothing is forked."""

    close = renew


class _Here:
    """This process."""

    def __init__(self, asked, maker, units):
        from .brought import finisher

        self._asked, self._maker, self.units = asked, maker, units
        self._finish = finisher(asked.pin_memory)

    def reader(self, seed, place, expected):
        from .local import Local

        reader = Local(NAME, self._maker, self.units, seed, self._asked.rank or 0, self._asked.world_size or 1, self._finish)
        reader.go(*place, expected)
        return reader

    def renew(self):
        """Nothing is forked."""

    close = renew


def _source(asked, order, seed, name):
    pipeline = _native(asked)
    if pipeline is not None:
        return _Native(asked, pipeline)
    from . import fetch

    alone = asked.batch_size is None and asked.batch_sampler is None
    maker = fetch.Maker(asked.dataset, asked.collate_fn, alone)
    whole = alone or asked.batch_sampler is not None or asked.collate_fn is not None or maker.makes_batches
    unit = orders.Batches if whole else orders.Rows
    units = unit(order, asked.batch_size or 1, asked.drop_last)
    if asked.num_workers == 0 or units.rows == 0:
        return _Here(asked, maker, units)
    from . import brought, forks

    forks.check_no_cuda(asked.dataset)
    forks.warn_of_state()
    return brought.Brought(asked, maker, units, seed, name)


def _as_list(fields, info):
    return list(fields)


# ---- native pipelines ----

def _native(asked):
    """The pipeline that gives what the dataset does, or None; one line says which it is, where both were possible."""
    if asked.native is False or asked.num_workers == 0:
        return None
    from .native import translate

    try:
        _check_native(asked)
        pipeline, words = translate(asked.dataset)
    except NotNative as reason:
        if asked.native is True:
            raise
        if any((kind.__module__, kind.__qualname__) == FOLDER for kind in type(asked.dataset).__mro__):
            _say(f'python workers, because {reason.reason}')
        return None
    _say(f"native ({', '.join(words)})")
    return pipeline


def _check_native(asked):
    """That no argument asks for what only Python can do."""
    for name in ('collate_fn', 'sampler', 'batch_sampler', 'worker_init_fn'):
        if getattr(asked, name) is not None and not (name == 'sampler' and asked.distributed is not None):
            raise NotNative(f'{name} is given')
    if asked.batch_size is None:
        raise NotNative('batch_size is None')


def _say(text):
    print(f'pinfeed: {text}', file=sys.stderr, flush=True)


# ---- order and seed ----

def _order(asked):
    if asked.batch_sampler is not None:
        return orders.Batched(asked.batch_sampler)
    if asked.sampler is not None and asked.distributed is None:
        return orders.Sampled(asked.sampler)
    try:
        return orders.Keyed(len(asked.dataset), asked.shuffle)
    except TypeError:
        raise TypeError(f'dataset: {type(asked.dataset).__name__} has no length: give it a __len__, or pass a sampler that '
                        'has one') from None


def _identity(asked, order):
    from . import identity

    return identity.of(asked.dataset, asked.collate_fn, order)


def _seed(asked):
    """What was given; what scripts and ranks agree on without a word; or a number of torch's, drawn as torch draws its own."""
    if asked.seed is not None:
        return asked.seed
    if asked.share is not None or (asked.world_size or 1) > 1 and asked.generator is None:
        return 0
    import torch

    return torch.empty((), dtype=torch.int64).random_(generator=asked.generator).item()


def _torchs_collate(asked):
    import torch.utils.data

    return torch.utils.data.default_collate if asked.batch_size or asked.batch_sampler else torch.utils.data.default_convert
