# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A Loader whose workers are forked by its own script: what DataLoader is with num_workers > 0."""

import contextlib
import errno
import os
import weakref

from . import orders
from .errors import Error, make
from .loader import Loader


class Served(Loader):
    """`arrange(fields)` makes of a batch's tensors what the loop gets. `stays`: one zygote for all epochs."""

    def __init__(self, definition, arrange, units, zygote, stays, place, expected, **arguments):
        self._arrange = arrange
        self._units = units
        self._zygote = zygote
        self._stays = stays
        self._start = place
        self._begun = False  # an epoch has
        self._given = {}  # digests of orders, by epoch
        self._waits = None  # where the next iter() begins, if the daemon has not heard of it
        self._expected = expected  # digest of the order there
        self._drawn = units.draw()  # of the epoch that the job attaches to
        super().__init__(definition, **arguments)
        weakref.finalize(self, _leave, self._job)  # also at the script's end: before the zygote goes, which would be an error

    def _open(self, arguments):
        epoch, row = self._start
        arguments = {**arguments, 'zygote': self._zygote.brought, 'start_epoch': epoch, 'start_row': row}
        if not self._units.given:
            return super()._open(arguments)
        if row:
            orders.check_same(self._drawn, self._expected, epoch)
        with _sealed(self._drawn) as order:
            return super()._open({**arguments, 'order': order})

    def _make_values(self, *arguments):
        values = super()._make_values(*arguments)
        values.arrange = self._arrange
        return values

    def __iter__(self):
        if self._begun and not self._stays:
            self._renew()
        self._begun = True
        if self._units.given:
            self._give_order()
        return super().__iter__()

    def _renew(self):
        self._zygote.renew()
        try:
            self._job.bring(*self._zygote.brought)
        finally:
            self._zygote.end_former()

    def _give_order(self):
        """Of the epoch that is about to begin. The one that was drawn when the job attached is for the first."""
        epoch, row = self._next
        drawn, self._drawn = self._drawn or self._units.draw(), None
        if row:
            orders.check_same(drawn, self._expected, epoch)
        digest = orders.digest(drawn)
        if self._given.setdefault(epoch, digest) != digest:
            raise make(errno.EINVAL, f'the sampler gives another order for epoch {epoch} than before, and rows are known by '
                                     'epoch and place: go on with the next epoch, or make another DataLoader')
        with _sealed(drawn) as order:
            self._job.give_order(epoch, *order)
        self._waits = self._expected = None

    # ---- places ----

    def place(self):
        """(epoch, row) after the last batch that the loop has got."""
        return self._waits or self._job.place()[:2]

    def order(self):
        """The digest of the order there."""
        return self._expected if self._waits else self._given.get(self.place()[0])

    def go(self, epoch, row, expected):
        """The next iter() begins there."""
        if not self._units.given:
            self.load_state_dict({'epoch': epoch, 'row': row}, force=True)
            return
        self._ticket += 1
        self._next = self._waits = epoch, row
        self._expected = expected
        self._drawn = None

    # ---- the end ----

    def leave(self):
        """There is another reader, with another zygote."""
        super().close()
        self._zygote.end_former()

    def close(self):
        super().close()
        self._zygote.close()


def _leave(job):
    with contextlib.suppress(Error):
        job.close()


@contextlib.contextmanager
def _sealed(drawn):
    """A descriptor of it, and how many numbers it has."""
    fd = orders.seal(drawn)
    try:
        yield fd, len(drawn)
    finally:
        os.close(fd)
