# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A daemon for the tests of a class, and what a row must hold."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

import pinfeed

BIN = os.environ['PINFEED_TEST_BIN']
BUILD = os.environ['PINFEED_TEST_BUILD']
LONG = bool(os.environ.get('PINFEED_TEST_LONG'))
SLOWDOWN = float(os.environ.get('PINFEED_TEST_SLOWDOWN', '1'))
PR_SET_PDEATHSIG = 1

needs_numpy = unittest.skipIf(numpy is None, 'NumPy is not installed')
needs_torch = unittest.skipIf(torch is None, 'torch is not installed')

CONFIG = '''
pipelines:
  ramp:
    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 3000}
    batch_size: 32
    shuffle: true
    slots: 64
'''


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A pinfeedd with a configuration, in a directory of its own."""

    def __init__(self, config):
        self.directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')  # short: a socket's path has room for 108 bytes
        self.runtime = os.path.join(self.directory, 'run')
        self._config = os.path.join(self.directory, 'pinfeed.yaml')
        self._log = os.path.join(self.directory, 'log')
        with open(self._config, 'w', encoding='utf-8') as file:
            file.write(config)
        self.start()

    def start(self):
        mark = len(self.log())
        with open(self._log, 'ab') as log:
            self.process = subprocess.Popen(
                [os.path.join(BIN, 'pinfeedd'), '--config', self._config, '--runtime-dir', self.runtime],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent,
                env=dict(os.environ, PINFEED_STATE_DIR=os.path.join(self.directory, 'state')))
        wait_for(lambda: 'pinfeedd: ready' in self.log()[mark:] or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError('the daemon did not start:\n' + self.log())

    def log(self):
        try:
            with open(self._log, encoding='utf-8') as file:
                return file.read()
        except FileNotFoundError:
            return ''

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(10 * SLOWDOWN)
        log = self.log()
        shutil.rmtree(self.directory)
        if code != 0:
            raise AssertionError(f'the daemon ended with {code}:\n{log}')


class Private:
    """A directory for a daemon that loaders start, and whatever daemon that is."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        self.runtime = os.path.join(self.directory, 'run')
        self.environment = {'PINFEED_RUNTIME_DIR': self.runtime, 'PINFEED_STATE_DIR': os.path.join(self.directory, 'state')}

    def status(self):
        return pinfeed.status(self.runtime)

    def pid(self):
        """0: none listens."""
        try:
            return self.status()['pid']
        except pinfeed.NotFound:
            return 0

    def starts(self):
        """Daemons that have become ready here."""
        with open(os.path.join(self.runtime, 'pinfeedd.log'), encoding='utf-8') as file:
            return file.read().count('pinfeedd: ready')

    def stop(self):
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not is_alive(pid))
        shutil.rmtree(self.directory)


def is_alive(pid):
    """Daemons are not children of ours: who gets them may leave them as zombies."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rpartition(')')[2].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_epoch(case, loader, epoch):
    """That the loader's iter() gives this whole epoch of the pipeline in CONFIG, each row right."""
    seen = []
    for index, data in loader:
        case.assertTrue((data == ramp(index, epoch, 3000)).all())
        seen += index.tolist()
    case.assertEqual(sorted(seen), list(range(1000)))


class Case(unittest.TestCase):
    """Tests that share a daemon, and leave no job behind."""

    config = CONFIG

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.make_config())

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    @classmethod
    def make_config(cls):
        return cls.config

    def setUp(self):
        self.addCleanup(wait_for, lambda: not self.jobs())  # the last of all, for it is the first

    def loader(self, name='ramp', timeout=20 * SLOWDOWN, **arguments):
        loader = pinfeed.Loader(name, runtime_dir=self.daemon.runtime, timeout=timeout, **arguments)
        self.addCleanup(loader.close)
        return loader

    def jobs(self):
        return pinfeed.status(self.daemon.runtime)['jobs']

    def run_script(self, script, *arguments, check=True, **environment):
        """A Python of its own, with the same package; its standard output and error together."""
        result = start_script(script, *arguments, PINFEED_RUNTIME_DIR=self.daemon.runtime, **environment)
        output, _ = result.communicate(timeout=60 * SLOWDOWN)
        if check:
            self.assertEqual(result.returncode, 0, output)
        return output


def start_script(script, *arguments, options={}, **environment):
    """`options` are Popen's own. The script's standard input is there when `options` say so."""
    options = {'stdin': subprocess.DEVNULL, 'preexec_fn': _die_with_parent, **options}
    return subprocess.Popen([sys.executable, '-B', '-c', script, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **environment), **options)


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds * SLOWDOWN
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError('waited in vain')
        time.sleep(0.005)


# ---- what a row must hold: tests/support/ramp.h once more ----

_GAMMA = 0x9e3779b97f4a7c15


def _mix(z):
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return z ^ (z >> numpy.uint64(31))


def ramp(samples, epoch, size):
    """The bytes of these samples in this epoch, a row each."""
    words = -(-size // 8)
    with numpy.errstate(over='ignore'):
        start = _mix(numpy.asarray(samples).astype(numpy.uint64) + numpy.uint64(_GAMMA * (epoch + 1) % 2**64))
        steps = numpy.arange(1, words + 1, dtype=numpy.uint64) * numpy.uint64(_GAMMA)
        rows = _mix(start[:, None] + steps[None, :])
    return rows.view(numpy.uint8)[:, :size]
