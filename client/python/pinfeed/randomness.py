# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a sample's own."""

from . import _worker


def sample_rng():
    """A numpy.random.Generator for the sample that is being made, by seed, epoch and sample alone: the same numbers in
    every run, whoever makes the sample. Each call begins with the first of them, so a dataset calls it once for a sample."""
    import numpy

    key = _worker.sample_key()
    if key is None:
        raise RuntimeError('pinfeed.sample_rng() is for a dataset of a pinfeed.DataLoader, while it makes a sample: none is '
                           'being made here')
    return numpy.random.Generator(numpy.random.Philox(key=int.from_bytes(key[:16], 'little')))
