# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""num_workers=0: batches made in the script itself, when the loop asks for them.

There is no daemon and no other process, and what a dataset raises arrives as it was raised, with a debugger's whole stack.
Order, random states and the places of ranks are those that workers would have, so the bytes are the same.
"""

import collections
import contextlib
import time

from . import orders
from .epoch import Epoch
from .fetch import own_random_states
from .loader import number

Made = collections.namedtuple('Made', 'rows replaced value')


class Local:
    """Reads a dataset as a Loader reads a pipeline."""

    map = 'none'

    def __init__(self, pipeline, maker, units, seed, rank, world_size, finish):
        self.pipeline = pipeline
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self._maker, self._units, self._finish = maker, units, finish
        self._around = contextlib.nullcontext
        self._ticket = 0
        self._next = 0, 0  # (epoch, row) of the next iter()
        self._expected = None  # digest of the order there
        self._here = 0, 0, 0  # epoch, row where the job has begun to read it, steps since
        self._drawn = None
        self._waited = 0.0
        self._batches = self._rows = 0

    # ---- iteration ----

    def __iter__(self):
        epoch, row = self._next
        if row and self._left(row) == 0:
            epoch, row = epoch + 1, 0  # the rest of that one is dropped
        drawn = self._units.draw()
        if row:
            orders.check_same(drawn, self._expected, epoch)
        self._drawn, self._expected = drawn, None
        self._here = epoch, row, 0
        self._ticket += 1
        self._next = epoch + 1, 0
        return Epoch(self, self._ticket, epoch)

    def __len__(self):
        return self._left(0)

    @property
    def remaining(self):
        _, base, step = self._here
        return self._left(base) - step

    def set_epoch(self, epoch):
        epoch = number('epoch', epoch, 0)
        if epoch != self._next[0]:
            self._next = epoch, 0

    def _take(self):
        epoch, base, step = self._here
        rows = self._rows_of(base, step)
        if rows is None:
            return None
        began = time.perf_counter()
        try:
            samples = self._units.samples(rows, self.seed, epoch, self._drawn)
            with own_random_states():
                return Made(len(rows), 0, self._finish(self._maker.batch(samples, self.seed, epoch)))
        finally:
            self._waited += time.perf_counter() - began

    def _values(self, made):
        return made.value

    def _accept(self, rows):
        epoch, base, step = self._here
        self._here = epoch, base, step + 1
        self._batches += 1
        self._rows += rows

    # ---- places: docs/order.md, "Positions" ----

    def _left(self, base):
        """Steps of an epoch that is entered at this row."""
        return orders.steps(self._units, base, self.world_size)

    def _rows_of(self, base, step):
        """Of the batch of that step, perhaps beyond the epoch's last; None: the epoch has ended."""
        size, world_size = self._units.batch_size, self.world_size
        whole = (self._units.rows - base) // (world_size * size)
        if step >= self._left(base):
            return None
        if step == whole:
            base += whole * world_size * size
            size, step = -(-(self._units.rows - base) // world_size), 0
        first = base + (step * world_size + self.rank) * size
        return range(first, first + size)

    def place(self):
        """(epoch, row) after the last batch that the loop has got."""
        epoch, base, step = self._here
        if step < self._left(base):
            return epoch, base + step * self.world_size * self._units.batch_size
        return epoch + 1, 0

    def order(self):
        return orders.digest(self._drawn)

    def go(self, epoch, row, expected):
        """The next iter() begins there."""
        self._ticket += 1
        self._next = epoch, row
        self._expected = expected
        self._here = epoch, row, 0

    # ---- what it is ----

    def stats(self):
        return {'wait_s': self._waited, 'batches': self._batches, 'rows': self._rows, 'reconnects': 0, 'sharing': '',
                'map': self.map, 'registered': '0/0'}

    def _failed(self):
        """What a sample raises ends nothing."""
        return False

    def _leave(self):
        self._ticket += 1

    close = _leave
