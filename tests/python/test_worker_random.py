# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed._worker.seed_sample: the states of global generators, derived once more."""

import os
import random
import struct
import subprocess
import sys
import time

from pinfeed import _worker
from support import SLOWDOWN, needs_numpy, numpy, torch
from worker_case import Talk

if numpy:
    import numpy.random  # newer versions wait until somebody wants it

PINNED = (157022605, 0.77501731737603, '72ad302d12bf4690237d96ac2697249211dc00cab53d5b78b18b16b8d7ff2672')
PINNED_NUMPY = [2978381890, 2149594849]
PINNED_TORCH = 6365339296850548995


def draw():
    """A piece of every global generator."""
    drawn = [random.random(), random.gauss(0, 1), random.getrandbits(100)]
    if numpy:
        drawn += [numpy.random.rand(), numpy.random.randn(), int(numpy.random.randint(1 << 30))]
    if torch:
        drawn += torch.rand(3).tolist() + torch.randn(3).tolist()
    return drawn


class Randomness(Talk):
    def test_pinned(self):
        """These are part of the bits."""
        _worker.seed_sample(5, 3, 17)
        self.assertEqual((random.getrandbits(32), random.random(), _worker.sample_key().hex()), PINNED)
        _worker.seed_sample(0, 0, 0)
        if numpy:
            self.assertEqual(numpy.random.randint(0, 1 << 32, 2, dtype='u4').tolist(), PINNED_NUMPY)
        if torch:
            self.assertEqual(torch.initial_seed(), PINNED_TORCH)

    def test_states_follow_from_the_words(self):
        """docs/order.md, in Python."""
        def philox(counter, key):
            for _ in range(10):
                a, c = 0xd2511f53 * counter[0], 0xcd9e8d57 * counter[2]
                counter = [(c >> 32) ^ counter[1] ^ key[0], c & 0xffffffff, (a >> 32) ^ counter[3] ^ key[1], a & 0xffffffff]
                key = [(key[0] + 0x9e3779b9) & 0xffffffff, (key[1] + 0xbb67ae85) & 0xffffffff]
            return counter

        def block(seed, epoch, sample, step, block=0):
            counter = sample << 80 | epoch << 48 | 2 << 40 | step << 24 | block
            return philox([counter >> 32 * i & 0xffffffff for i in range(4)], [seed & 0xffffffff, seed >> 32])

        def twister(words):
            start, step = words[0] << 32 | words[1], words[2] << 32 | words[3] | 1
            for _ in range(312):
                start = z = (start + step) % 2**64
                z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % 2**64
                z = (z ^ z >> 27) * 0x94d049bb133111eb % 2**64
                z ^= z >> 31
                yield z & 0xffffffff
                yield z >> 32
        where = (0xfedcba9876543210, 0x89abcdef, 0x123456789abc)
        _worker.seed_sample(*where)
        self.assertEqual(random.getstate(), (3, (*twister(block(*where, 0)), 0), None))
        if numpy:
            state = numpy.random.get_state()
            self.assertEqual((state[1].tolist(), *state[2:4]), ([*twister(block(*where, 1))], 0, 0))
        if torch:
            high, low = block(*where, 2)[:2]
            self.assertEqual(torch.initial_seed(), high << 32 | low)
        self.assertEqual(_worker.sample_key(), struct.pack('<8I', *block(*where, 3), *block(*where, 3, 1)))

    def test_both_ways_are_the_same(self):
        drawn = {}
        for directly in (True, False, True, False):
            for sample in (0, 1, 2**48 - 1):
                _worker.seed_sample(2**64 - 1, 7, sample, directly=directly)
                self.assertEqual(drawn.setdefault(sample, first := draw()), first)
                _worker.seed_sample(2**64 - 1, 7, sample, directly=directly)
                self.assertEqual(draw(), first)  # nothing is left of a pair of normal numbers
        self.assertEqual(len({tuple(each) for each in drawn.values()}), 3)

    def test_the_direct_way_is_taken(self):
        def cost(directly):
            return min(self._time(lambda: _worker.seed_sample(1, 2, 3, directly=directly)) for _ in range(20))
        self.assertLess(cost(True), cost(False) / 3)

    @staticmethod
    def _time(function):
        began = time.perf_counter()
        for _ in range(20):
            function()
        return time.perf_counter() - began

    def test_what_is_out_of_range(self):
        for where in ((-1, 0, 0), (2**64, 0, 0), (0, 2**32, 0), (0, 0, 2**48 + 1)):
            self.assertRaises(OverflowError, _worker.seed_sample, *where)

    @needs_numpy
    def test_other_generators_of_numpy(self):
        script = '''
import numpy, random
from numpy.random import mtrand
from pinfeed import _worker
bits = numpy.random.PCG64(1)
if hasattr(numpy.random, 'set_bit_generator'):
    numpy.random.set_bit_generator(bits)
else:
    bits = None
for sample in (1, 2, 1):
    _worker.seed_sample(5, 0, sample)
    print(numpy.random.rand())
'''
        lines = self._run(script).split()
        self.assertEqual(lines[0], lines[2])
        self.assertNotEqual(lines[0], lines[1])

    def test_nothing_is_imported(self):
        script = '''
import sys
from pinfeed import _worker
for name in ('random', 'numpy', 'torch'):
    assert name not in sys.modules, name
print(_worker.sample_key())
_worker.seed_sample(5, 0, 1)
print([name for name in ('random', 'numpy', 'torch') if name in sys.modules])
'''
        self.assertEqual(self._run(script, '-S'), 'None\n[]\n')

    def test_modules_that_come_late(self):
        """The first sample that imports one is made again, so that it does not matter which one that is."""
        script = '''
import os, sys
sys.path.insert(0, sys.argv[1])
from fake_daemon import Worker
from pinfeed import _worker
import struct
sys.modules.pop('random', None)

def fetch(sample):
    import random
    return random.getrandbits(60)

def make(seed, epoch, row, sample, order, cells):
    _worker.seed_sample(seed, epoch, sample)
    cells[0][:] = struct.pack('<q', fetch(sample))

leaf = ('leaf', 0, 'int', None, (), 'a', None)
for maker in (_worker.Rows(fetch, leaf), make):
    for row in (0, 1):
        worker = Worker([('a', 'int64', ())], lambda *_: maker).begin()
        worker.fill(row, 2 - row)
        print(struct.unpack('<q', worker.cell(1 - row))[0])
'''
        lines = self._run(script, '-S', os.path.dirname(os.path.abspath(__file__))).split()
        self.assertEqual(lines, lines[:1] * 4)

    @staticmethod
    def _run(script, *arguments):
        """Its output; arguments that begin with a hyphen are the interpreter's."""
        options = [each for each in arguments if each.startswith('-')]
        others = [each for each in arguments if each not in options]
        return subprocess.run([sys.executable, '-B', *options, '-c', script, *others],
                              check=True, stdout=subprocess.PIPE, text=True, timeout=60 * SLOWDOWN).stdout

    def test_rows_are_functions_of_their_place(self):  # F1 F2
        seen = {}
        for chunks in (((0, 8),), ((4, 4), (0, 4)), ((7, 1), (2, 5), (0, 2))):
            worker = self.worker([('a', 'float64', (3,))], self.noisy, shuffle=1)
            for row, rows in chunks:
                worker.fill(row, rows, first=row, epoch=2)
            for row in range(8):
                self.assertEqual(worker.cell(row), seen.setdefault(row, worker.cell(row)))
        worker.fill(0, 8, epoch=2)
        self.assertEqual(worker.cell(3), seen[3])
        worker.fill(0, 8, epoch=3)
        self.assertNotEqual(worker.cell(3), seen[3])
        self.assertEqual(len(set(seen.values())), 8)

    @staticmethod
    def noisy(number, fields):
        def make(seed, epoch, row, sample, order, cells):
            _worker.seed_sample(seed, epoch, sample)
            cells[0][:] = struct.pack('<3d', random.random(), random.gauss(0, 1), sum(draw()))
        return make
