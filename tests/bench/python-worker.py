#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a row costs a worker in Python beside the user's own function: CPU of the worker, as its page tells it, less that of
calling the function in a bare loop. The daemon is played by tests/python/fake_daemon.py, which assigns and does nothing else.

    PYTHONPATH=build/install/lib/python3/dist-packages tests/bench/python-worker.py [ROWS]
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, 'python'))

import numpy.random  # whose state is set, too
import torch
from fake_daemon import Worker
from pinfeed import _worker

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
SLOT = 128
SAMPLE = torch.rand(512), torch.tensor(3)
ARRAYS = SAMPLE[0].numpy(), 3
FIELDS = [('x', 'float32', (512,)), ('y', 'int64', ())]
TENSORS = ('sequence', 2, (('leaf', 0, 'tensor', torch.float32, (512,), 'x', None),
                           ('leaf', 1, 'tensor', torch.int64, (), 'y', None)))
NUMPY = ('sequence', 2, (('leaf', 0, 'array', '<f4', (512,), 'x', None), ('leaf', 1, 'int', None, (), 'y', None)))


class Dataset:
    def __init__(self, sample):
        self.sample = sample

    def __getitem__(self, index):
        return self.sample


def bare(dataset):
    """CPU of a call, in us."""
    began = time.process_time()
    for index in range(ROWS):
        dataset.__getitem__(index)
    return (time.process_time() - began) / ROWS * 1e6


def seeding():
    began = time.process_time()
    for index in range(ROWS):
        _worker.seed_sample(5, 0, index)
    return (time.process_time() - began) / ROWS * 1e6


def working(dataset, spec):
    worker = Worker(FIELDS, lambda number, fields: _worker.Rows(dataset.__getitem__, spec), samples=ROWS, slot_rows=SLOT)
    worker.begin()
    worker.fill(0, SLOT)  # imports, page tables
    before = worker.word('cpu_ns')
    for row in range(SLOT, ROWS - SLOT, SLOT):
        worker.fill(row, SLOT)
    cost = (worker.word('cpu_ns') - before) / (worker.word('rows_done') - SLOT) / 1000
    worker.kill()
    return cost


for name, sample, spec in (('tensors', SAMPLE, TENSORS), ('array and int', ARRAYS, NUMPY)):
    dataset = Dataset(sample)
    pairs = [(working(dataset, spec), bare(dataset), seeding()) for _ in range(5)]
    total, call, seed = min(pairs)
    print(f'{name}: {total:.2f} us a row; {call:.2f} of them are the call of a function that does nothing, '
          f'{seed:.2f} the random states')
