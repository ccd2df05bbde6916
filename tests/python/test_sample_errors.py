# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a sample that cannot be made becomes: an error that knows it, and that is what a dataset in Python has raised."""

import array
import builtins
import contextlib
import errno
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest

import pinfeed
from pinfeed._pinfeed import Job
from pinfeed.errors import make
from support import Case, wait_for

WEBP = bytes.fromhex('524946461e000000574542505650384c110000002f03c000000750852257a1ff8188e87f0000')
TRACE = 'Traceback (most recent call last):\n  File "augment.py", line 31, in __getitem__\nKeyError: \'bad\'\n'


class Odd(Exception):
    """Of other arguments, and with opinions about all that is done with it."""

    file = property(lambda self: self.nowhere)
    args = property(lambda self: self.nowhere)

    def __new__(cls, one, two):
        return super().__new__(cls)

    def __init__(self, one, two):
        raise AssertionError('was called')

    def __setattr__(self, name, value):
        raise AttributeError(name)

    def __str__(self):
        return self.nowhere

    __repr__ = __str__

    class Within(LookupError):
        __slots__ = ('a', 'b')


class Last(Exception):
    def __init_subclass__(cls):
        raise TypeError('is the last of its kind')


def failure(exception):
    return {'sample': 7, 'worker': 1, 'pid': 99, 'file': 'augment.py', 'exception': exception, 'traceback': TRACE}


class Types(unittest.TestCase):
    def assert_made(self, exception, original):
        """By that name an error is made that is a SampleError, of that type (None: and no more), and whole."""
        text = 'sample 7: it went wrong'
        try:
            raise make(errno.EIO, text, failure(exception))
        except (original or pinfeed.SampleError) as caught:
            error = caught
        self.assertIsInstance(error, pinfeed.SampleError)
        self.assertEqual(type(error) is pinfeed.SampleError, original is None)
        for error in error, pickle.loads(pickle.dumps(error)):
            self.assertIsInstance(error, original or pinfeed.Error)
            self.assertEqual(str(error), f'{text}\n\n{TRACE[:-1]}')
            self.assertEqual(repr(error), f'SampleError({text!r})')
            self.assertEqual({name: getattr(error, name) for name in failure(exception)}, failure(exception))
            self.assertEqual(error.errno, errno.EIO)
            if original is not Odd:
                self.assertEqual(error.args, (text,))
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self.assertTrue(lines[-1].startswith(f'pinfeed.errors.SampleError: {text}\n\nTraceback'), lines)

    def test_builtin(self):
        def is_base(kind):
            if issubclass(pinfeed.SampleError, kind) or issubclass(kind, (StopIteration, StopAsyncIteration, SyntaxError)):
                return False
            return issubclass(kind, Exception) and kind.__name__ != 'ExceptionGroup'  # which wants its members

        for name, kind in vars(builtins).items():
            if isinstance(kind, type) and issubclass(kind, BaseException):
                with self.subTest(name):
                    self.assert_made(f'builtins.{name}', kind if is_base(kind) else None)

    def test_of_a_module(self):
        for kind in Odd, Odd.Within, json.JSONDecodeError, subprocess.CalledProcessError, pinfeed.Timeout, pinfeed.Stale:
            with self.subTest(kind):
                self.assert_made(f'{kind.__module__}.{kind.__qualname__}', kind)

    def test_that_is_none(self):
        self.assertNotIn('this', sys.modules)
        for name in (f'{__name__}.Last', f'{__name__}.gone', f'{__name__}.make.<locals>.E', 'this.d', 'gone.E', 'builtins.int',
                     'builtins', '.', '', None, 'pinfeed.errors.SampleError', 'pinfeed.errors.Error', 'os.path'):
            with self.subTest(name):
                self.assert_made(name, None)
        self.assertNotIn('this', sys.modules)  # which would have printed a poem

    def test_of_a_lazy_module(self):
        """Looking is not a reason to import something."""
        class Lazy(type(sys)):
            def __getattribute__(self, name):
                raise AssertionError(f'was asked for {name}')

        self.addCleanup(sys.modules.pop, 'lazy')
        sys.modules['lazy'] = Lazy('lazy')
        self.assert_made('lazy.E', None)

    def test_little_known(self):
        error = make(errno.EIO, 'a sentence', {'sample': 7})
        self.assertEqual((str(error), error.args, error.sample, error.traceback), ('a sentence', ('a sentence',), 7, None))
        self.assertIs(type(make(errno.ETIMEDOUT, 'a sentence')), pinfeed.Timeout)


def texts(*strings):
    return b''.join(struct.pack('<H', len(string.encode())) + string.encode() for string in strings)


def failed(error, sample_given, sample, worker, pid, *words):
    """FAILED's fields; `words` are file, text, exception, traceback."""
    return struct.pack('<HBQIIBB', error, sample_given, sample, worker, pid, 0, 0) + texts(*words)


def record(kind, fields):
    return struct.pack('<HHI', kind, 0, 8 + len(fields)) + fields


HELLO, FAILED, ATTACH = 1, 8, 3
BRING, ORDER = 14, 15


class Daemon:
    """One that takes a job's word, and answers ATTACH with FAILED."""

    def __init__(self, answer):
        self.directory = tempfile.TemporaryDirectory(prefix='pf-', dir='/tmp')
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(os.path.join(self.directory.name, 'pinfeed.sock'))
        self._listener.listen()
        self.heard = []  # (type, fields, files)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with self._listener.accept()[0] as job:
            while not self.heard or self.heard[-1][0] != ATTACH:
                data, ancillary, _, _ = job.recvmsg(65536, 256)
                fds = array.array('i', ancillary[0][2] if ancillary else b'')
                self.heard.append((*struct.unpack_from('<H', data), data[8:], [os.fstat(fd).st_ino for fd in fds]))
                for fd in fds:
                    os.close(fd)
            job.send(record(HELLO, struct.pack('<HH', 1, 0) + texts('a daemon')))
            job.send(record(FAILED, self._answer))

    def stop(self):
        self._thread.join()
        self._listener.close()
        self.directory.cleanup()


class Words(unittest.TestCase):
    def open(self, answer, **arguments):
        """What Job.open raises, and what the daemon has heard."""
        daemon = Daemon(answer)
        self.addCleanup(daemon.stop)
        with self.assertRaises(pinfeed.Error) as caught:
            Job(print).open('demo', runtime_dir=daemon.directory.name, timeout_ms=5000, **arguments)
        return caught.exception, daemon.heard

    def test_of_a_dataset(self):
        error, _ = self.open(failed(errno.EBADMSG, 1, 1 << 40, 3, 99, '', 'bad (augment.py:31)', 'builtins.KeyError', TRACE))
        self.assertIsInstance(error, KeyError)
        self.assertEqual(str(error), f'bad (augment.py:31) (sample {1 << 40}, worker 3, pid 99)\n\n{TRACE[:-1]}')
        self.assertEqual((error.errno, error.sample, error.worker, error.pid, error.file), (errno.EIO, 1 << 40, 3, 99, None))

    def test_before_a_sample(self):
        error, _ = self.open(failed(errno.EBADMSG, 0, 0, 0, 0, '', 'no dataset', 'builtins.ValueError', ''))
        self.assertIsInstance(error, ValueError)
        self.assertEqual((str(error), error.sample, error.worker, error.pid, error.traceback), ('no dataset', *[None] * 4))

    def test_of_no_sample(self):
        error, _ = self.open(failed(errno.ETIMEDOUT, 0, 0, 0, 0, '', 'rank 1 is missing', '', ''))
        self.assertIs(type(error), pinfeed.Timeout)

    def test_what_it_brings(self):
        end = failed(errno.EIO, 0, 0, 0, 0, '', 'enough', '', '')
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with pair[0], pair[1], tempfile.TemporaryFile() as order:
            _, heard = self.open(end, definition='pipelines: {}', seed=5, zygote=(pair[0].fileno(), 41),
                                 order=(order.fileno(), 1 << 33))
            self.assertEqual([kind for kind, _, _ in heard[-3:]], [BRING, ORDER, ATTACH])
            self.assertEqual(heard[-3][1:], (struct.pack('<I', 41), [os.fstat(pair[0].fileno()).st_ino]))
            self.assertEqual(heard[-2][1:], (struct.pack('<QIQ', 5, 0, 1 << 33), [os.fstat(order.fileno()).st_ino]))
            _, heard = self.open(end, zygote=None, order=None)
            self.assertEqual([kind for kind, _, _ in heard], [HELLO, ATTACH])

    def test_what_it_cannot_bring(self):
        job = Job(print)
        for arguments, kind in (({'zygote': 3}, TypeError), ({'order': [1, 2]}, TypeError),
                                ({'zygote': (0, 1 << 32)}, ValueError), ({'zygote': (0, 41)}, pinfeed.Invalid)):
            with self.subTest(arguments):
                self.assertRaises(kind, job.open, 'demo', **arguments)
        self.assertRaisesRegex(pinfeed.Error, 'is closed', job.bring, 0, 41)
        self.assertRaisesRegex(pinfeed.Error, 'is closed', job.give_order, 0, 0, 41)


class OfADaemon(Case):
    """The last of twelve samples is bad: too far from the first for the ring."""

    config = '''
    pipelines:
      bad:
        source: {{type: imagefolder, path: {}}}
        transforms: [{{resize: {{size: [4, 4]}}}}]
        batch_size: 1
        slots: 4
        on_error: fail
    '''

    @classmethod
    def make_config(cls):
        directory = tempfile.TemporaryDirectory(prefix='pf-', dir='/tmp')
        cls.addClassCleanup(directory.cleanup)
        os.mkdir(os.path.join(directory.name, 'cat'))
        for name in 'abcdefghijkl':
            with open(os.path.join(directory.name, 'cat', f'{name}.webp'), 'wb') as file:
                file.write(WEBP if name < 'l' else WEBP[:-8])
        return cls.config.format(directory.name)

    def test_loop(self):
        loader = self.loader('bad', output='dlpack')
        with self.assertRaisesRegex(pinfeed.SampleError, r'cat/l\.webp') as caught:
            for _ in loader:
                pass
        error = caught.exception
        self.assertEqual((type(error), error.sample, error.file), (pinfeed.SampleError, 11, 'cat/l.webp'))
        self.assertEqual((error.exception, error.traceback), (None, None))
        self.assertRaises(pinfeed.SampleError, iter, loader)

    def test_met_ahead(self):
        """It is said when the batch would be next, whatever has been said meanwhile."""
        job = Job(print)
        self.addCleanup(job.close)
        job.open('bad', runtime_dir=self.daemon.runtime)

        def is_good():
            wait_for(lambda: job.ahead() is not None or job.failed())
            return job.ahead() is not None

        job.next(10000)
        while is_good():
            job.accept()
        job.accept()
        with contextlib.suppress(pinfeed.Error):
            job.give_order(0, 0, 0)
        with self.assertRaises(pinfeed.SampleError) as caught:
            job.next(10000)
        self.assertEqual((caught.exception.sample, caught.exception.file), (11, 'cat/l.webp'))
