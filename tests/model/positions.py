# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of positions, naively: who gets which rows of an epoch, and what state one has after them.

An epoch is the list of its rows, 0 ... N - 1, and it is dealt out like cards, from the row on at which somebody came.
Nothing here is computed that could be dealt; docs/order.md has the formulas, proto/position.c the code that is used.

    >>> for step in deal(Plan(samples=10, world_size=3, batch_size=2, last_batch='short'), 0): print(step)
    [[0, 1], [2, 3], [4, 5]]
    [[6, 7], [8, 9], [10, 11]]

Rows 10 and 11 are padding: there are only ten, so what is shown is rows 0 and 1 once more, marked.
"""

import functools
import typing


class Plan(typing.NamedTuple):
    """How the ranks of a run share the rows."""
    samples: int      # N, rows of an epoch
    world_size: int   # W, how many ranks there are
    batch_size: int   # b, rows of each rank's batch
    last_batch: str   # short, drop or pad: what becomes of the rows that fill no whole step

    @property
    def step_rows(self):
        """Rows of a step: one batch for every rank."""
        return self.world_size * self.batch_size


def is_refused(plan, row):
    """May one not begin at this row? It must exist, and with `drop` an epoch must have a step."""
    return row >= plan.samples or (plan.last_batch == 'drop' and plan.samples < plan.step_rows)


@functools.lru_cache(maxsize=256)
def deal(plan, base):
    """All steps of an epoch that is entered at row `base`: lists of one batch for each rank, a batch a list of rows.

    A row from N on is padding."""
    rows = list(range(base, plan.samples))
    whole = len(rows) - len(rows) % plan.step_rows
    steps = [split(rows[i:i + plan.step_rows], plan.batch_size) for i in range(0, whole, plan.step_rows)]
    tail = rows[whole:]
    if tail and plan.last_batch != 'drop':
        each = plan.batch_size
        if plan.last_batch == 'short':  # as even as whole rows allow, and the same for all
            each = len(tail) // plan.world_size + (len(tail) % plan.world_size > 0)
        while len(tail) < plan.world_size * each:
            tail.append(tail[-1] + 1)
        steps.append(split(tail, each))
    return steps


def split(rows, each):
    """The rows in order, `each` for one rank after the other."""
    return [rows[i:i + each] for i in range(0, len(rows), each)]


def shown(plan, row):
    """The row whose contents this one has."""
    while row >= plan.samples:
        row -= plan.samples
    return row


def walk(plan, epoch, row):
    """From (epoch, row) on, for ever: (epoch, batches of one step, state after it).

    The state is the place at which the next step begins, the same for all ranks: whoever comes there, with whatever
    plan, gets what is still missing. Behind an epoch's last step that is row 0 of the next epoch."""
    while True:
        steps = deal(plan, row)
        for number, batches in enumerate(steps, 1):
            after = (epoch, row + number * plan.step_rows) if number < len(steps) else (epoch + 1, 0)
            yield epoch, batches, after
        epoch, row = epoch + 1, 0


def check_laws(plan, base):
    """What is promised of every epoch, whichever way it is dealt. Raises AssertionError."""
    steps = deal(plan, base)
    real = [row for step in steps for batch in step for row in batch if row < plan.samples]
    padding = [row for step in steps for batch in step for row in batch if row >= plan.samples]

    for step in steps:
        assert len(step) == plan.world_size and step[0], 'every rank has a batch in every step, and none is empty'
        assert all(len(batch) == len(step[0]) for batch in step), 'all ranks have the same number of rows in a step'
    if plan.last_batch == 'drop':
        assert len(real) > plan.samples - base - plan.step_rows, 'less than a step is dropped'
    else:
        assert len(real) == plan.samples - base, 'no row is left out'
    assert real == list(range(base, base + len(real))), 'each row comes once, in order'

    assert all(row < plan.samples for step in steps[:-1] for batch in step for row in batch), 'only the tail is padded'
    most = {'short': plan.world_size - 1, 'drop': 0, 'pad': plan.step_rows - 1}[plan.last_batch]
    assert len(padding) <= most, 'no more padding than equal counts need'

    alone = deal(plan._replace(world_size=1, batch_size=plan.step_rows), base)
    assert [real_rows(plan, step) for step in steps] == [real_rows(plan, step) for step in alone], \
        'with as many rows in a step, any number of ranks has the same rows in the same step'


def real_rows(plan, step):
    """The rows of all ranks in a step, without padding."""
    return [row for batch in step for row in batch if row < plan.samples]
