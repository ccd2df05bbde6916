# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of pinfeed._worker share: specs of samples, and workers that end with their test."""

import errno
import struct
import unittest

from fake_daemon import Worker
from pinfeed import _worker

NUMBER = [('number', 'int64', ())]


def leaf(index, kind, dtype=None, shape=(), name=None, convert=None):
    return ('leaf', index, kind, dtype, shape, name or f'f{index}', convert)


def sequence(*specs):
    return ('sequence', len(specs), specs)


def mapping(**specs):
    return ('mapping', tuple(specs.items()))


def rows(fetch, spec):
    return lambda number, fields: _worker.Rows(fetch, spec)


def number(cell):
    return struct.unpack('<q', cell)[0]


class Talk(unittest.TestCase):
    def worker(self, fields, start, **more):
        worker = Worker(fields, start, **more)
        self.addCleanup(worker.kill)
        return worker.begin()

    def numbers(self, fetch, **more):
        """A worker whose samples are int."""
        return self.worker(NUMBER, rows(fetch, leaf(0, 'int', name='number')), **more)

    def refusal(self, fields, spec, value):
        """What is said of a sample 3 that is `value`."""
        worker = self.worker(fields, rows(lambda sample: value, spec))
        broken = worker.broken(3, 1)
        self.assertEqual((broken.error, broken.sample_given, broken.sample), (errno.EBADMSG, 1, 3))
        self.assertEqual(broken.exception, 'builtins.ValueError')
        self.assertEqual(worker.end(), 0)
        return broken.text
