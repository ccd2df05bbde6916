# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The README's Python is what it says: each of its blocks is a whole script, which runs where its shell block has left the
reader, in a directory with `flowers` in it."""

import os
import re
import subprocess
import sys
import unittest

from support import BUILD, SLOWDOWN, Private, needs_numpy

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../README.md')


def blocks():
    with open(README, encoding='utf-8') as file:
        return re.findall(r'^```python\n(.*?)^```$', file.read(), re.S | re.M)


class Readme(unittest.TestCase):
    @needs_numpy
    def test_python(self):
        private = Private()
        self.addCleanup(private.stop)
        subprocess.run([os.path.join(BUILD, 'tests/support/draw-images'), os.path.join(private.directory, 'flowers'),
                        '--per-class', '4', '--size', '80x60'], check=True, stdout=subprocess.DEVNULL)
        self.assertTrue(blocks())
        for block in blocks():
            result = subprocess.run([sys.executable, '-B', '-c', block], cwd=private.directory, capture_output=True, text=True,
                                    env={**os.environ, **private.environment}, timeout=60 * SLOWDOWN)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn('epoch 2', result.stdout)
        self.assertEqual(private.starts(), 1)
