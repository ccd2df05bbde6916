# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Which samples an epoch of a DataLoader has, in which order, and how they make rows of a pipeline.

Where seed and epoch decide, nothing is written down: everybody computes the order, at any place (docs/order.md). A sampler
of the user's is iterated once for each epoch, in the script, and what it gave goes to daemon and workers as a sealed memfd
of int64.

There are two units of work. Mostly a row of the pipeline is a sample, and the daemon cuts rows into batches. Where only a
whole batch can be made, a row is a batch: with a collate_fn, with strings, with a batch_sampler. Then a drawn order is
first where each batch begins, one number more than there are batches, and behind that the samples.
"""

import array
import errno
import itertools
import operator
import os

from .errors import invalid, make

SAMPLES_MAX = 1 << 48  # what the counter of random numbers has room for


class Keyed:
    """Of a dataset's length: a permutation by seed and epoch, or 0, 1, 2 ..."""

    given = False
    generator = None  # that draw() draws from

    def __init__(self, length, shuffle):
        self.rows = length
        self.shuffle = shuffle

    def draw(self):
        return None

    def samples(self, first, count, seed, epoch):
        if not self.shuffle:
            return list(range(first, first + count))
        from . import _worker

        return array.array('q', _worker.order(self.rows, seed, epoch, first, count)).tolist()


class Sampled:
    """What a sampler gives."""

    given = True
    shuffle = False

    def __init__(self, sampler):
        self._sampler = sampler
        self.generator = getattr(sampler, 'generator', None)
        self.rows = _length('sampler', sampler)

    def draw(self):
        drawn = array.array('q', map(_sample, itertools.islice(self._sampler, self.rows + 1)))
        _check_count('sampler', len(drawn), self.rows)
        return drawn


class Batched:
    """What a batch_sampler gives; a row is a batch."""

    given = True
    shuffle = False

    def __init__(self, sampler):
        self._sampler = sampler
        self.generator = getattr(getattr(sampler, 'sampler', sampler), 'generator', None)
        self.rows = _length('batch_sampler', sampler)

    def draw(self):
        batches = [[_sample(sample) for sample in batch] for batch in itertools.islice(self._sampler, self.rows + 1)]
        _check_count('batch_sampler', len(batches), self.rows)
        return _join(batches)


class Rows:
    """A row of the pipeline is a sample."""

    whole = False

    def __init__(self, order, batch_size, drop_last):
        self.order = order
        self.given, self.generator = order.given, order.generator
        self.rows = order.rows
        self.shuffle = order.shuffle
        self.batch_size = batch_size
        self.last_batch = 'drop' if drop_last else 'short'
        self.scale = 1  # samples of a row, for positions that fit both units

    def draw(self):
        return self.order.draw()

    def largest(self, drawn):
        """Samples of the row that has most of them."""
        return 1

    def samples(self, rows, seed, epoch, drawn):
        """Of these rows, which may lie behind the epoch's last one and are then those of its beginning."""
        if drawn is not None:
            return [drawn[row % self.rows] for row in rows]
        if rows.stop <= self.rows:
            return self.order.samples(rows.start, len(rows), seed, epoch)
        return [self.order.samples(row % self.rows, 1, seed, epoch)[0] for row in rows]


class Batches:
    """A row of the pipeline is a batch."""

    whole = True
    shuffle = False  # of the rows: the samples in them are what is shuffled
    batch_size = 1

    def __init__(self, order, batch_size, drop_last):
        self.order = order
        self._size = batch_size
        self.given, self.generator = order.given, order.generator
        self.last_batch = 'drop' if drop_last else 'short'
        self.scale = 1 if isinstance(order, Batched) else batch_size
        self.rows = order.rows // self.scale if drop_last else -(-order.rows // self.scale)

    def draw(self):
        drawn = self.order.draw()
        if drawn is None or isinstance(self.order, Batched):
            return drawn
        return _join([drawn[first:first + self._size] for first in range(0, self.rows * self._size, self._size)])

    def largest(self, drawn):
        if not isinstance(self.order, Batched):
            return self.scale
        return max(drawn[row + 1] - drawn[row] for row in range(self.rows))

    def samples(self, rows, seed, epoch, drawn):
        number = rows.start % self.rows
        if drawn is not None:
            begin, end = drawn[number], drawn[number + 1]
            return drawn[self.rows + 1 + begin:self.rows + 1 + end].tolist()
        first = number * self._size
        return self.order.samples(first, min(self._size, self.order.rows - first), seed, epoch)


def peek(units):
    """An order that nobody has drawn: generators are as before."""
    if not units.given:
        return None
    from .fetch import own_random_states

    with own_random_states(units.generator):
        return units.draw()


def steps(units, base, world_size):
    """Batches of each rank in an epoch that is entered at row `base`."""
    rows, step = units.rows - base, world_size * units.batch_size
    return rows // step if units.last_batch == 'drop' else -(-rows // step)


def seal(drawn):
    """A memfd with it, which nobody can change any more."""
    import fcntl

    fd = os.memfd_create('pinfeed-order', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, 'wb', closefd=False) as file:
            drawn.tofile(file)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS,
                    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def digest(drawn):
    """Names an order, in a state that was saved within its epoch."""
    if drawn is None:
        return None
    import hashlib

    return hashlib.sha256(drawn.tobytes()).hexdigest()


def check_same(drawn, expected, epoch):
    """`expected` is what a state says of the order, None: nothing."""
    if expected is not None and digest(drawn) != expected:
        raise make(errno.ESTALE, f'the sampler gives another order for epoch {epoch} than it did when the state was saved, '
                                 'within that epoch: give the sampler the seed and the epoch that it had, or begin the epoch '
                                 "anew with state['row'] = 0")


def _join(batches):
    begins = itertools.accumulate(map(len, batches), initial=0)
    return array.array('q', itertools.chain(begins, *batches))


def _sample(value):
    try:
        sample = operator.index(value)
    except TypeError:
        raise invalid(f'sampler: it gave {value!r}; expected whole numbers, for a DataLoader of pinfeed numbers its '
                      'samples') from None
    if not 0 <= sample < SAMPLES_MAX:
        raise invalid(f'sampler: it gave {sample}; expected 0 or more, and less than 2^48')
    return sample


def _length(name, sampler):
    try:
        return len(sampler)
    except TypeError:
        raise TypeError(f'{name}: {type(sampler).__name__} has no length, which must be known before the first batch: give it '
                        'a __len__') from None


def _check_count(name, count, expected):
    if count != expected:
        given = 'more' if count > expected else count
        raise invalid(f'{name}: its length is {expected}, and it gave {given}: the number must be the same in every epoch, '
                      'for the length of an epoch is part of the pipeline')
