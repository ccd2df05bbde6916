# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The examples run as a reader would run them, on images that they draw, with a daemon that they start, and do what they say.

ddp.py's ranks are started by hand, as its text says. With PINFEED_TEST_LONG torchrun starts them too, and the sweep and the
demo run.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest

from support import BUILD, LONG, SLOWDOWN, Private, needs_numpy, needs_torch, torch, wait_for

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../client/examples')
DRAW = os.path.join(BUILD, 'tests/support/draw-images')

needs_patience = unittest.skipUnless(LONG, 'takes a minute, and PINFEED_TEST_LONG is not set')


def command(name, *arguments):
    return [sys.executable, '-B', os.path.join(EXAMPLES, name), *arguments]


def free_port():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


class Examples(unittest.TestCase):
    def setUp(self):
        self.private = Private()
        self.addCleanup(self.private.stop)
        self.environment = {**os.environ, **self.private.environment, 'PINFEED_BUILD': BUILD}
        self.state = os.path.join(self.private.directory, 'run.pt')

    def path(self, name):
        return os.path.join(self.private.directory, name)

    def draw(self, folder, per_class=4):
        os.mkdir(os.path.dirname(self.path(folder)))
        subprocess.run([DRAW, self.path(folder), '--per-class', str(per_class), '--size', '80x60'], check=True,
                       stdout=subprocess.DEVNULL)

    def run_example(self, *argv):
        result = subprocess.run(argv, capture_output=True, text=True, env=self.environment, timeout=100 * SLOWDOWN)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    # ---- those of one process ----

    @needs_numpy
    def test_numpy_only(self):
        self.draw('images/train')
        output = self.run_example(*command('numpy_only.py', self.path('images/train')))
        self.assertRegex(output, r'^mean 0\.\d+ 0\.\d+ 0\.\d+ std 0\.')

    @needs_torch
    def test_train_images_makes_them_and_goes_on(self):
        arguments = [self.path('images'), '--make', '--state', self.state]
        first = self.run_example(*command('train_images.py', *arguments, '--epochs', '2'))
        second = self.run_example(*command('train_images.py', *arguments, '--epochs', '3'))
        self.assertEqual(re.findall(r'epoch (\d)', first), ['0', '1'])
        self.assertEqual(re.findall(r'epoch (\d)', second), ['2'])
        losses = [float(loss) for loss in re.findall(r'loss (\S+),', first + second)]
        self.assertLess(losses[2], losses[0])

    @needs_torch
    def test_article(self):
        losses = re.findall(r'loss (\S+),', self.run_example(*command('article_after.py')))
        self.assertEqual(len(losses), 3)
        self.assertLess(float(losses[-1]), float(losses[0]))

    def test_article_has_one_import_changed(self):
        """Beside what the two say of themselves."""
        before, after = ([line for line in self.code_of(name) if not line.startswith(('import ', 'from '))]
                         for name in ('article_before.py', 'article_after.py'))
        self.assertEqual(before, after)

    def code_of(self, name):
        with open(os.path.join(EXAMPLES, name), encoding='utf-8') as file:
            return file.read().split('"""')[2].splitlines()

    @needs_torch
    def test_detection(self):
        output = self.run_example(*command('detection.py'))
        self.assertRegex(output, r'epoch 1: 256 images, \d+ boxes, the last batch \(16, 3, ')

    @needs_torch
    def test_weighted(self):
        for of_each in re.findall(r'(\d+) of class', self.run_example(*command('weighted.py'))):
            self.assertTrue(400 < int(of_each) < 600, of_each)

    @needs_torch
    @needs_patience
    def test_sweep_shares_one_daemon(self):
        output = self.run_example(*command('sweep.py', self.path('images'), '--make'))
        self.assertEqual(output.count('epoch 19: loss'), 4)
        self.assertRegex(output, 'shares this stream')
        prepared, delivered = map(int, re.search(r'train: (\d+) rows prepared and (\d+)', output).groups())
        self.assertGreaterEqual(delivered, 4 * 20 * 400)
        self.assertGreater(delivered, 3 * prepared)
        self.assertEqual(self.private.starts(), 1)

    # ---- ranks ----

    def by_hand(self, world_size):
        """The command of each rank, with its environment."""
        common = {'WORLD_SIZE': world_size, 'LOCAL_WORLD_SIZE': world_size, 'MASTER_ADDR': '127.0.0.1',
                  'MASTER_PORT': free_port()}
        return [(command('ddp.py'), {'RANK': rank, **common}) for rank in range(world_size)]

    def by_torchrun(self, world_size):
        # The two options after the first are for Debian's, see ddp.py.
        options = ['--redirects', '1', '--tee', '1', '--log_dir', self.path('logs'), '--master_port', str(free_port()),
                   '--nproc_per_node', str(world_size)]
        return [([sys.executable, '-B', '-m', 'torch.distributed.run', *options, os.path.join(EXAMPLES, 'ddp.py')],
                 {'PYTHONDONTWRITEBYTECODE': 1, 'TMPDIR': self.private.directory})]

    def begin(self, processes, *arguments):
        """Their standard output, all into one file; errors into another."""
        begun = []
        with open(self.path('output'), 'w', encoding='utf-8') as output, \
                open(self.path('errors'), 'a', encoding='utf-8') as errors:
            for argv, environment in processes:
                begun.append(subprocess.Popen(
                    [*argv, self.path('images.yaml:train'), '--state', self.state, *arguments], stdin=subprocess.DEVNULL,
                    stdout=output, stderr=errors, start_new_session=True,
                    env={**self.environment, **{name: str(value) for name, value in environment.items()}}))
        self.addCleanup(self.kill, begun)
        return begun

    def kill(self, processes):
        """With all that torchrun has started: in sessions of their own, so by the state file that they were told."""
        for process in processes:
            process.kill()
            process.wait()
        for entry in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{entry}/cmdline', 'rb') as file:
                    if self.state.encode() in file.read().split(b'\0'):
                        os.kill(int(entry), signal.SIGKILL)
            except OSError:
                pass

    def read(self, name):
        with open(self.path(name), encoding='utf-8') as file:
            return file.read()

    def saved(self):
        """Where the run is by its state file."""
        return torch.load(self.state)['loader'] if os.path.exists(self.state) else {'epoch': 0, 'row': 0}

    def check_killed_and_resumed(self, launch):
        self.draw('images/train', per_class=32)
        shutil.copy(os.path.join(EXAMPLES, 'images.yaml'), self.private.directory)
        first = self.begin(launch(2), '--epochs', '1000')
        wait_for(lambda: self.saved()['epoch'] > 0 and 64 <= self.saved()['row'] <= 192, 60)
        self.kill(first)

        wait_for(lambda: not self.private.status()['jobs'])
        epoch = self.saved()['epoch']
        for process in self.begin(launch(3), '--epochs', str(epoch + 2)):
            self.assertEqual(process.wait(60 * SLOWDOWN), 0, self.read('errors'))
        self.assertRegex(self.read('output'), rf'goes on: epoch {epoch}, row [1-9]')
        counted = re.findall(r'epoch (\d+): (\d+) of (\d+) samples', self.read('output'))
        self.assertEqual(counted, [(str(e), '320', '320') for e in (epoch, epoch + 1)])

    @needs_torch
    def test_ddp_killed_and_resumed_with_more_ranks(self):
        self.check_killed_and_resumed(self.by_hand)

    @needs_torch
    @needs_patience
    def test_ddp_by_torchrun(self):
        self.check_killed_and_resumed(self.by_torchrun)

    # ---- the demo ----

    @needs_torch
    @needs_patience
    def test_demo(self):
        output = self.run_example(*command('demo_torch.py', BUILD))
        self.assertIn('each script got each image once in each epoch', output)
        self.assertIn('the daemon; its workers end with it', output)
