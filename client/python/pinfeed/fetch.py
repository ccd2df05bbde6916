# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Making samples and batches of a user's dataset: the same in a worker, in a probe and, with num_workers=0, in the script.

Before each sample the global states of `random`, NumPy and torch are set from seed, epoch and sample. So a sample is the same
whoever makes it, and however many were made before. A dataset that makes whole batches (__getitems__) has them set
once, as for the batch's first sample.
"""

import contextlib
import sys

from . import _worker


class Maker:
    """What to make of a dataset: `alone`: no batches, one sample as it is (batch_size=None)."""

    watch = None  # called with the number of a sample before it is made
    at = None  # the sample in work, where one is

    def __init__(self, dataset, collate_fn, alone):
        self.dataset = dataset
        self.alone = alone
        self._collate = collate_fn or _default(alone)
        self._get_many = None if alone else getattr(dataset, '__getitems__', None)

    @property
    def makes_batches(self):
        """Whether the dataset makes them itself."""
        return self._get_many is not None

    def sample(self, number, seed, epoch):
        self._begin(number, seed, epoch)
        self.at = number
        made = self.dataset[number] if self._get_many is None else self._get_many([number])[0]
        self.at = None
        return made

    def batch(self, numbers, seed, epoch):
        if self.alone:
            return self._collate(self.sample(numbers[0], seed, epoch))
        if self._get_many is None:
            return self._collate([self.sample(number, seed, epoch) for number in numbers])
        if numbers:
            self._begin(numbers[0], seed, epoch)
        return self._collate(self._get_many(numbers))

    def _begin(self, number, seed, epoch):
        if self.watch is not None:
            self.watch(number)
        _worker.seed_sample(seed, epoch, number)


@contextlib.contextmanager
def own_random_states(generator=None):
    """What is done within leaves the script's own random numbers alone: dropout draws from the same generators. And those of
    one more generator of torch's."""
    import random

    import torch

    numpy = sys.modules.get('numpy')
    state, numpy_state = random.getstate(), None if numpy is None else numpy.random.get_state()
    generators = [torch.default_generator, *([generator] if isinstance(generator, torch.Generator) else ())]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        random.setstate(state)
        if numpy_state is not None:
            numpy.random.set_state(numpy_state)
        for generator, state in zip(generators, states):
            generator.set_state(state)


def _default(alone):
    if alone:
        from torch.utils.data import default_convert

        return default_convert
    from . import structure

    return structure.collate
