# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""One pass over a loader: what iter() gives."""

import collections
import contextlib
import warnings

from .errors import Error

Info = collections.namedtuple('Info', 'ids valid epoch row')
Info.__doc__ = """What with_info=True gives beside a batch.

ids: the sample number of each row; valid: False for rows that only pad the batch; epoch; row: the batch's first in it."""


class Values:
    """Makes of a batch what the user asked for: `fields` is {name: index}, or the number of all fields."""

    around = contextlib.nullcontext  # what a batch is taken and made in

    def __init__(self, output, fields, with_info):
        self._output = output
        self._names = list(fields) if isinstance(fields, dict) else None
        self._indices = list(fields.values()) if isinstance(fields, dict) else list(range(fields))
        self._with_info = with_info

    def __call__(self, batch):
        get = self._output.field
        return self.arrange([get(batch, index) for index in self._indices], self.info(batch))

    def refit(self, fields):
        """Batches come from another job, whose fields are these."""
        self._output.fields = fields

    def info(self, batch):
        """None: it is not wanted."""
        if not self._with_info:
            return None
        return Info(self._output.ids(batch), self._output.valid(batch), batch.epoch, batch.row)

    def arrange(self, fields, info):
        values = tuple(fields) if self._names is None else dict(zip(self._names, fields))
        return values if info is None else (values, info)


class Epoch:
    """An iterator. The loader has one at a time: `ticket` is the number of the iter() that made this one."""

    def __init__(self, loader, ticket, epoch):
        self._loader = loader
        self._ticket = ticket
        self._ended = False
        self._epoch = epoch
        self._rows = 0
        self._replaced = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self._ended:
            raise StopIteration
        if self._loader._ticket != self._ticket:
            raise Error('this iteration is over: iter() or load_state_dict() was called on its loader since')
        with self._loader._around():
            batch = self._loader._take()
            values = None if batch is None else self._loader._values(batch)
        if batch is None:
            self._end()
        rows, replaced = batch.rows, batch.replaced
        self._loader._accept(rows)
        self._rows += rows
        self._replaced += replaced
        return values

    def _end(self):
        self._ended = True
        if self._replaced:
            warnings.warn(f'{self._loader.pipeline}: {self._replaced} of the {self._rows} rows of epoch {self._epoch} hold a '
                          f'substitute for a sample that could not be made{self._loader._first_bad()}', stacklevel=3)
        raise StopIteration
