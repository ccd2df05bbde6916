# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Cases for the player: drawing them, writing them as a line, and what the player has to answer.

player.c describes the line and the answer. A group is one training run that goes through legs: it comes somewhere,
takes some batches, and then stops and resumes (perhaps as another number of ranks), goes elsewhere, or ends.
"""

import functools
import itertools
import random
import typing

import positions


class Leg(typing.NamedTuple):
    kind: str             # attach, resume or seek
    plan: positions.Plan  # with seek that of the leg before
    place: tuple          # (epoch, row); with resume the state after the leg before
    take: int             # batches of each rank


class Group(typing.NamedTuple):
    seed: int
    lookahead: int
    held: int   # max_held_batches
    legs: list


class Case(typing.NamedTuple):
    samples: int
    slot_rows: int
    spare: int
    dice: int
    groups: list


# ---- as text ----

def write_leg(leg):
    ranks = f' {leg.plan.world_size} {leg.plan.batch_size} {leg.plan.last_batch}' if leg.kind != 'seek' else ''
    place = f' {leg.place[0]} {leg.place[1]}' if leg.kind != 'resume' else ''
    return f' {leg.kind}{ranks}{place} {leg.take}'


def write(case):
    groups = (f' group {group.seed} {group.lookahead} {group.held}' + ''.join(map(write_leg, group.legs))
              for group in case.groups)
    return f'{case.samples} {case.slot_rows} {case.spare} {case.dice}' + ''.join(groups)


def read(line):
    words = iter(line.split())
    case = Case(*(int(next(words)) for _ in range(4)), [])
    for word in words:
        if word == 'group':
            case.groups.append(Group(*(int(next(words)) for _ in range(3)), []))
        else:
            legs = case.groups[-1].legs
            legs.append(read_leg(word, words, legs[-1] if legs else None, case.samples))
    return case


def read_leg(kind, words, before, samples):
    if kind == 'seek':
        plan = before.plan
    else:
        plan = positions.Plan(samples, int(next(words)), int(next(words)), next(words))
    place = state_after(before) if kind == 'resume' else (int(next(words)), int(next(words)))
    return Leg(kind, plan, place, int(next(words)))


def state_after(leg):
    """Where a group is behind this leg."""
    after = leg.place
    if not positions.is_refused(leg.plan, leg.place[1]):
        for _, _, after in itertools.islice(positions.walk(leg.plan, *leg.place), leg.take):
            pass
    return after


# ---- the answer ----

@functools.lru_cache(maxsize=128)
def names(samples):
    """What the player calls each row, padding too: as far as a test's batches go."""
    plan = positions.Plan(samples, 1, 1, 'short')
    return [str(row) if row < samples else f'{positions.shown(plan, row)}*' for row in range(samples + 1000)]


def answer_leg(group, leg):
    """A line for each rank. See player.c."""
    name = names(leg.plan.samples)
    lines = ['' for _ in range(leg.plan.world_size)]
    before = None
    for epoch, batches, after in itertools.islice(positions.walk(leg.plan, *leg.place), leg.take):
        asked = '>' if group.lookahead == 0 and before not in (None, epoch) else ''
        before = epoch
        for rank, rows in enumerate(batches):
            padding = min(len(rows), max(0, rows[-1] + 1 - leg.plan.samples))
            lines[rank] += (f'{asked}{epoch} {rows[0]} {len(rows)} {padding} {after[0]} {after[1]}:'
                            f'{" ".join([name[row] for row in rows])};')
    return lines


def answer(case):
    """All that the player has to write, without the last line."""
    lines = []
    for group in case.groups:
        for leg in group.legs:
            if positions.is_refused(leg.plan, leg.place[1]):
                lines.append('refused')
                break
            lines += answer_leg(group, leg)
        check_union(group)
    return ''.join([f'{line}\n' for line in lines])


def check_union(group):
    """Stopped and resumed as often as one likes, with whatever plans: each row of an epoch once. Of the rules, like
    positions.check_laws; what the code does is compared with them row by row."""
    got, base = [], 0
    epoch = None
    for leg in group.legs:
        if positions.is_refused(leg.plan, leg.place[1]):
            return
        positions.check_laws(leg.plan, leg.place[1])
        if leg.kind != 'resume':
            epoch, base, got = leg.place[0], leg.place[1], []
        for at, batches, after in itertools.islice(positions.walk(leg.plan, *leg.place), leg.take):
            if at != epoch:
                epoch, base, got = at, 0, []
            for rows in batches:
                got += [row for row in rows if row < leg.plan.samples]
            if after[0] != epoch and leg.plan.last_batch != 'drop':
                assert got == list(range(base, leg.plan.samples)), 'what was resumed has each row of an epoch once'
        assert got == list(range(base, base + len(got))), 'what was stopped has each row once'


# ---- drawing ----

class Drawer:
    """Draws one case after the other; the same seed, the same cases."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def between(self, least, most):
        return least + int(self.random() * (most - least + 1))

    def among(self, *values):
        return values[int(self.random() * len(values))]

    def chance(self, of):
        return self.random() * of < 1

    def case(self):
        samples = self.between(1, 60)
        if self.chance(50):
            samples = self.between(61, 600)
        slot_rows = self.among(1, 2, 4, 8, 16) if self.chance(2) else self.between(1, 16)
        groups = [self.group(samples, slot_rows) for _ in range(self.among(1, 1, 1, 2, 2, 3))]
        return Case(samples, slot_rows, self.among(0, 0, 1, 3, 10), self.between(0, 1 << 40), groups)

    def group(self, samples, slot_rows):
        legs = []
        group = Group(self.among(0, 0, 0, 1), self.among(0, 0, 1, 1, 2, 1000), self.among(1, 2, 3, 5), legs)
        for _ in range(self.among(1, 2, 2, 3, 4)):
            legs.append(self.leg(samples, slot_rows, legs[-1] if legs else None))
            if positions.is_refused(legs[-1].plan, legs[-1].place[1]):
                break
        return group

    def plan(self, samples, slot_rows):
        world_size = self.among(1, 1, 1, 2, 2, 3, 4, self.between(1, 8))
        batch_size = self.among(slot_rows, self.between(1, 12), self.between(1, 40))
        tail = self.among('short', 'drop', 'pad')
        if tail == 'drop' and samples < world_size * batch_size and not self.chance(20):
            tail = 'short'
        return positions.Plan(samples, world_size, batch_size, tail)

    def leg(self, samples, slot_rows, before):
        kind = self.among('resume', 'resume', 'resume', 'seek', 'attach') if before else 'attach'
        plan = before.plan if before and (kind == 'seek' or self.chance(4)) else self.plan(samples, slot_rows)
        place = state_after(before) if kind == 'resume' else self.place(samples)
        return Leg(kind, plan, place, self.take(plan, place[1]))

    def place(self, samples):
        epoch = self.among(0, 0, 1, self.between(0, 5))
        if self.chance(50):
            epoch = self.among(1 << 20, (1 << 31) - 1000)
        row = self.among(0, samples - 1, self.between(0, samples - 1))
        return epoch, samples if self.chance(200) else row

    def take(self, plan, row):
        """A few batches; or up to an epoch's end, and one more or less."""
        take = self.between(0, 6)
        if self.chance(3):
            take = len(positions.deal(plan, row)) + self.among(-1, 0, 0, 1)
        return max(0, min(take, 40 if self.chance(10) else 8))
