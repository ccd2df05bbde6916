# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The examples run, and do what they say."""

import os
import re
import subprocess
import sys

from support import BUILD, Case, needs_numpy, needs_torch

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../client/examples')


class Examples(Case):
    @classmethod
    def make_config(cls):
        import tempfile
        directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        cls.addClassCleanup(subprocess.run, ['rm', '-r', directory])
        subprocess.run([os.path.join(BUILD, 'tests/support/draw-images'), directory, '--per-class', '8', '--size', '40x30'],
                       check=True, stdout=subprocess.DEVNULL)
        return f'''
pipelines:
  train:
    source: {{type: imagefolder, path: {directory}}}
    transforms: [{{resize: {{size: [32, 32]}}}}]
    batch_size: 8
    shuffle: true
  validation:
    source: {{type: imagefolder, path: {directory}}}
    transforms: [{{resize: {{size: [32, 32]}}}}]
    batch_size: 10
'''

    def run_example(self, name, *arguments):
        result = subprocess.run([sys.executable, '-B', os.path.join(EXAMPLES, name), *arguments], capture_output=True,
                                text=True, env=dict(os.environ, PINFEED_RUNTIME_DIR=self.daemon.runtime))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    @needs_numpy
    def test_numpy_only(self):
        self.assertRegex(self.run_example('numpy_only.py', 'validation'), r'^mean 0\.\d+ 0\.\d+ 0\.\d+ std 0\.')

    @needs_torch
    def test_train_images_goes_on(self):
        state = os.path.join(self.daemon.directory, 'state')
        first = self.run_example('train_images.py', 'train', 'validation', '--epochs', '2', '--state', state)
        second = self.run_example('train_images.py', 'train', 'validation', '--epochs', '3', '--state', state)
        self.assertEqual(re.findall(r'epoch (\d)', first), ['0', '1'])
        self.assertEqual(re.findall(r'epoch (\d)', second), ['2'])
