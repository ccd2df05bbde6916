# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A Loader whose workers are forked by its own script: what DataLoader is with num_workers > 0.

A batch that is made whole in a worker may turn out larger than any before it. Slots do not grow, so that ends the job; the
reader then goes on with another one, whose slots are larger, from where the loop is, and the loop sees a pause.
"""

import contextlib
import errno
import os
import re
import weakref

from . import definition as definitions
from . import errors, orders, surroundings
from .errors import Error, SampleError, make
from .loader import Loader

TOO_LARGE = f'{errors.__name__}.{errors.BatchTooLarge.__qualname__}'  # as SampleError.exception has it
NEEDS = re.compile(r'batch \d+ needs ([\d,]+) bytes')


class Served(Loader):
    """`arrange(fields)` makes of a batch's tensors what the loop gets. `stays`: one zygote for all epochs. `grow` is called
    with the bytes that a batch needs (brought.py)."""

    def __init__(self, definition, arrange, units, zygote, stays, place, expected, grow, **arguments):
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
        self._grow = grow
        self._read = None  # the order of the epoch that the loop is in
        self._failure = None  # why there is no larger job
        super().__init__(definition, **arguments)
        self._leave_at_exit()

    def _leave_at_exit(self):
        """Before the zygote goes, which would be an error."""
        self._finalizer = weakref.finalize(self, _close, self._job)

    def _open(self, arguments):
        self._arguments = arguments
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
        self._read = drawn

    # ---- what ends a job, and what only seems to ----

    def _failed(self):
        return self._failure is not None or super()._failed()

    def _take(self):
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                return super()._take()
            except SampleError as error:
                if error.exception != TOO_LARGE or not self._make_room(error):
                    raise (errors.of_batch(error) if self._units.whole else error) from None

    def _make_room(self, error):
        """Another job, for larger batches. False: there is to be none."""
        needed = int(NEEDS.search(str(error))[1].replace(',', ''))
        grown = self._grow(needed)
        if grown is None:
            return False
        before, now, definition = grown
        surroundings.say(self.pipeline, f'batch {error.sample} needs {needed:,} bytes, there was room for {before:,}: more is '
                         f'made from here on; batch_bytes={now} saves that')
        self._begin_larger(definitions.read(definition))
        return True

    def _begin_larger(self, definition):
        """From where the loop is. The former job goes first, for its ring and the new one may be too much together; batches
        of it that are in use stay."""
        self._definition = definition
        self._start, self._drawn, self._expected = self._job.place()[:2], self._read, None
        self._finalizer.detach()
        self._job.close()
        self._failure = make(errno.EINTR, 'interrupted while more room was made for batches: iter() begins anew')
        self._zygote.renew()
        try:
            self._job = self._open({**self._arguments, **definition._asdict()})
        except Exception as failure:
            self._failure = failure
            raise
        finally:
            self._zygote.end_former()
        self._failure = self._drawn = None
        self._leave_at_exit()
        self._info = self._job.info()
        self._values.refit(self._job.fields())
        self.pipeline = self.state_dict()['pipeline']

    # ---- places ----

    def place(self):
        """(epoch, row) after the last batch that the loop has got."""
        return self._waits or self._job.place()[:2]

    def _next_place(self):
        return self._next, self._expected

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

    def _leave(self):
        """The other one has another zygote."""
        super()._leave()
        self._zygote.end_former()

    def close(self):
        self._failure = None
        super().close()
        self._zygote.close()


def _close(job):
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
