# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in datasets and their workers, and what must not depend on it. Names carry the rows of the acceptance
pool."""

import contextlib
import glob
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import pinfeed
from support import BIN, SLOWDOWN, numpy, torch, wait_for
from test_dataloader import Case, Made

if torch:
    from torch.utils.data import Dataset, default_collate, get_worker_info
else:
    Dataset = object


class Ugly(Exception):
    def __str__(self):
        raise RuntimeError('no text')


def rng(index):
    """A sample of bytes from each source of random numbers that a worker has."""
    return (index, random.getrandbits(62), numpy.random.randint(1 << 62), torch.randint(1 << 62, ()),
            int(pinfeed.sample_rng().integers(1 << 62)))


def comm(pid):
    with contextlib.suppress(OSError), open(f'/proc/{pid}/comm', encoding='ascii') as file:
        return file.read().strip()


def in_session(session):
    """Processes of it that live: {pid: name}."""
    found = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        with contextlib.suppress(OSError), open(path, encoding='utf-8', errors='replace') as file:
            head, _, rest = file.read().rpartition(')')
            state, _, _, sid = rest.split()[:4]
            if int(sid) == session and state not in 'ZX':
                found[int(head.split()[0])] = head.partition('(')[2]
    return found


class FaultCase(Case):
    def workers(self, loader):
        return [worker['pid'] for worker in self.private.status()['workers'] if worker['pipeline'] == loader.pipeline]

    def fails(self, make, kind=Exception, bad=100, **arguments):
        """What the loop is told when the sample `bad` is made by this function."""
        dataset = Made(lambda index: make(index) if index == bad else index, 1000)
        loader = self.loader(dataset, batch_size=10, num_workers=2, **arguments)
        with self.assertRaises(kind) as caught:
            for _ in loader:
                began = time.monotonic()
        self.assertLess(time.monotonic() - began, 1 * SLOWDOWN)
        return caught.exception


class TestErrors(FaultCase):
    def test_C3_exception(self):
        """Every job hears of it, in time, with the sample's number."""
        def fail(index):
            raise ValueError('bad value')

        dataset = Made(lambda index: fail(index) if index == 100 else index, 1000)
        loaders = [self.loader(dataset, batch_size=10, num_workers=2, share='C3') for _ in range(2)]
        for loader in loaders:
            with self.assertRaisesRegex(ValueError, 'sample 100.*ValueError: bad value') as caught:
                list(loader)
            self.assertIsInstance(caught.exception, pinfeed.SampleError)
            self.assertEqual(caught.exception.sample, 100)

    def test_a_sample_that_ends_its_workers(self):
        """Three times, and then it is told how."""
        error = self.fails(lambda index: os._exit(3), pinfeed.SampleError)
        self.assertRegex(str(error), r'sample 100.*is condemned.*; the last death: worker \d+ \(pid \d+\) ended with exit status 3')
        self.assertEqual(error.sample, 100)

    def test_C4_exceptions_that_cannot_be_printed(self):
        def long(index):
            raise ValueError('x' * (1 << 20))

        def nul(index):
            raise ValueError('a\0b\udcffc')

        def ugly(index):
            raise Ugly

        for make, kind, words in ((long, ValueError, 'xxxx'), (nul, ValueError, 'ValueError: a.*b.*c'), (ugly, Ugly, 'Ugly')):
            with self.subTest(make=make.__name__):
                error = self.fails(make, kind)
                self.assertRegex(str(error), words)
                self.assertLess(len(str(error)), 40000)

    def test_C5_words_and_place(self):
        def deep(index):
            raise KeyError('left', 'right')

        error = self.fails(lambda index: deep(index), KeyError)
        line = deep.__code__.co_firstlineno + 1
        self.assertRegex(str(error), rf"KeyError: \('left', 'right'\) \(test_dataloader_faults.py:{line}\)")
        self.assertIn(f'line {line}, in deep', error.traceback)
        self.assertEqual((error.sample, error.exception), (100, 'builtins.KeyError'))
        self.assertGreater(error.pid, 0)
        self.assertIsNotNone(error.worker)

    def test_errors_at_construction_are_the_same(self):
        def deep(index):
            raise KeyError('left', 'right')

        words = r"sample 0: KeyError: \('left', 'right'\) \(test_dataloader_faults.py:"
        with self.assertRaisesRegex(KeyError, words) as caught:
            self.loader(Made(deep), num_workers=1)
        self.assertEqual(caught.exception.sample, 0)
        self.assertNotIn('pinfeed/', caught.exception.traceback)

    def test_probes_that_die_or_hang(self):
        for make, words in ((lambda index: os.kill(os.getpid(), signal.SIGSEGV), r'by signal 11 \(SIGSEGV\) at sample 0'),
                            (lambda index: os._exit(3), 'exited with status 3 at sample 0'),
                            (lambda index: time.sleep(60), 'more than 1 s, and was given up at sample 0')):
            with self.subTest(words=words), self.assertRaisesRegex(pinfeed.SampleError, words):
                self.loader(Made(make), num_workers=1, sample_timeout=0.5)

    def test_no_batch_can_be_made(self):
        for kind, make, words in ((ValueError, lambda index: torch.ones(3 + index), r'samples 0 and 1 .*shape \(4,\).*\(3,\)'),
                                  (TypeError, lambda index: None, 'NoneType')):
            with self.subTest(words=words), self.assertRaisesRegex(kind, words):
                self.loader(Made(make), num_workers=1)

    def test_a_shape_that_varies(self):
        error = self.fails(lambda index: torch.ones(2), ValueError)
        self.assertRegex(str(error), 'sample 100')

    def test_I1_bad_samples(self):
        bad = {5, 500, 900}

        def make(index):
            if index in bad:
                raise ValueError(f'sample {index} is bad')
            return index

        loader = self.loader(Made(make, 1000), batch_size=10, num_workers=2, on_error='replace', max_errors=0.01)
        with self.assertWarnsRegex(UserWarning, '3 of the 1000 rows of epoch 0 hold a substitute'):
            rows = torch.cat(list(loader)).tolist()
        self.assertEqual(len(rows), 1000)
        self.assertEqual({index for index, row in enumerate(rows) if row != index}, bad)
        listed, = [pipeline['bad'] for pipeline in self.private.status()['pipelines'] if pipeline['name'] == loader.pipeline]
        self.assertEqual({entry['sample'] for entry in listed}, bad)
        self.assertIn('is bad', listed[0]['text'])
        with self.assertRaisesRegex(ValueError, 'sample 5 is bad'):
            list(self.loader(Made(make, 1000), batch_size=10, num_workers=2))

    def test_I1_the_first_samples_are_bad(self):
        def make(index):
            return 1 / (index > 1)

        with self.assertWarnsRegex(UserWarning, '2 of the 23 rows'):
            self.assertEqual(len(list(self.loader(Made(make), num_workers=1, on_error='replace', batch_size=23)).pop()), 23)


class TestWorkers(FaultCase):
    def test_C11_init_runs_in_each_worker(self):
        class Connected(Made):
            owner = None

        def make(index):
            return index, os.getpid(), dataset.owner, get_worker_info().id, get_worker_info().num_workers

        dataset = Connected(make, 64)

        def connect(number):
            assert get_worker_info().id == number and get_worker_info().dataset is dataset
            dataset.owner = os.getpid()

        with self.assertWarnsRegex(UserWarning, 'came out different'):  # pids are in the samples
            loader = self.loader(dataset, num_workers=2, worker_init_fn=connect, batch_size=4)
        rows = [torch.stack(batch, 1) for batch in loader]
        for _, pid, owner, number, count in torch.cat(rows).tolist():
            self.assertEqual(pid, owner)
            self.assertNotEqual(pid, os.getpid())
            self.assertEqual((number in (0, 1), count), (True, 2))
        self.assertIsNone(dataset.owner)

    def test_worker_init_fn_that_fails(self):
        def fail(number):
            if comm(os.getpid()) == 'pinfeed-worker':
                raise OSError(5, 'no connection')

        with self.assertRaisesRegex(pinfeed.Error, 'no connection'):
            list(self.loader(Made(lambda index: index), num_workers=1, worker_init_fn=fail))

    def test_C12_hang(self):
        """The sample is tried again alone, and then replaced; nobody else waits longer than that takes."""
        loader = self.loader(Made(lambda index: time.sleep(60) if index == 200 else index, 400), batch_size=10, num_workers=2,
                             on_error='replace', sample_timeout=0.5)
        with self.assertWarnsRegex(UserWarning, '1 of the 400 rows'):
            began = time.monotonic()
            self.assertEqual(len(torch.cat(list(loader))), 400)
        self.assertLess(time.monotonic() - began, 15 * SLOWDOWN)

    def test_L5_threads(self):
        """What uses all processors when one asks it does not do so in a worker."""
        def make(index):
            one = torch.ones(300, 300)
            numpy.ones((300, 300)) @ numpy.ones((300, 300))
            (one @ one).exp()
            return index, len(os.listdir('/proc/self/task')), torch.get_num_threads()

        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(4)
        make(0)  # now the script has its pool
        for batch in self.loader(Made(make, 8), num_workers=2, batch_size=4):
            self.assertEqual([batch[1].tolist(), batch[2].tolist()], [[1] * 4, [1] * 4])

    def test_made_in_a_thread_that_ends(self):
        """The kernel takes the thread that has forked for a child's parent."""
        made = []
        dataset = Made(lambda index: index)
        thread = threading.Thread(target=lambda: made.append(self.loader(dataset, num_workers=1)), name='pinfeed')
        thread.start()
        thread.join()
        self.assertEqual(len(list(made[0])), 23)

    def test_rings_of_earlier_loaders_are_not_kept(self):
        first = self.loader(Made(lambda index: index), num_workers=1)
        list(first)
        second = self.loader(Made(lambda index: index), num_workers=1)
        names = first.pipeline, second.pipeline
        zygotes = [pipeline['zygote'] for pipeline in self.private.status()['pipelines'] if pipeline['name'] in names]
        self.assertEqual([comm(pid) for pid in zygotes], ['pinfeed-zygote'] * 2)
        for pid in [os.getpid(), *zygotes]:
            with open(f'/proc/{pid}/maps', encoding='utf-8', errors='replace') as file:
                rings = [line for line in file if '/pinfeed-' in line or 'memfd:pinfeed' in line]
            self.assertEqual(len(rings), 2 if pid == os.getpid() else 0)

    def test_output_and_signals_are_the_scripts(self):
        """Handlers and finally blocks of a script run once, and a line that it has printed is printed once."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(write, 1)
            sys.stdout = open(1, 'w', closefd=False)
            signal.signal(signal.SIGTERM, lambda *unused: print('TERM'))
            print('BEFORE')
            try:
                loader = pinfeed.DataLoader(Made(lambda index: index), num_workers=2)
                for process in in_session(os.getsid(0)):
                    if comm(process) in ('pinfeed-zygote', 'pinfeed-worker'):
                        os.kill(process, signal.SIGTERM)
                        os.kill(process, signal.SIGINT)
                print(len(list(loader)))
            finally:
                print('FINALLY')
                sys.stdout.flush()
                os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        with open(read, encoding='ascii') as file:
            self.assertEqual(file.read(), 'BEFORE\n23\nFINALLY\n')


class TestBytes(FaultCase):
    """The same whoever makes them."""

    def rows(self, workers, epochs=1, kill=0, **arguments):
        loader = self.loader(Made(rng, 200), batch_size=10, shuffle=True, num_workers=workers, **arguments)
        batches = []
        for _ in range(epochs):
            for batch in loader:
                batches.append(torch.stack(batch, 1))
                if kill > 0:
                    kill -= 1
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.workers(loader)[0], signal.SIGKILL)
        loader.close()
        return torch.cat(batches)

    def test_F1_states_differ_between_samples(self):
        rows = self.rows(8)
        for column in range(1, rows.shape[1]):
            self.assertEqual(len(set(rows[:, column].tolist())), 200)

    def test_F2_states_differ_between_epochs(self):
        rows = self.rows(2, epochs=3)
        for column in range(1, rows.shape[1]):
            self.assertEqual(len(set(rows[:, column].tolist())), 600)
        self.assertTrue(torch.equal(rows, self.rows(1, epochs=3)))

    def test_F3_workers_and_crashes(self):
        wanted = self.rows(0)
        for workers, kill in ((1, 0), (2, 0), (4, 0), (7, 0), (2, 3)):
            with self.subTest(workers=workers, kill=kill):
                self.assertTrue(torch.equal(self.rows(workers, kill=kill), wanted))

    def test_F3_batches(self):
        wanted = self.rows(0, collate_fn=default_collate)
        self.assertTrue(torch.equal(wanted, self.rows(0)))
        for workers, kill in ((1, 0), (3, 0), (2, 3)):
            with self.subTest(workers=workers, kill=kill):
                self.assertTrue(torch.equal(self.rows(workers, kill=kill, collate_fn=default_collate), wanted))

    def test_daemon_killed(self):
        """Another one takes its place, and gets its workers of the same zygote."""
        wanted = self.rows(0)
        batches = iter(self.loader(Made(rng, 200), batch_size=10, shuffle=True, num_workers=2))
        got = [torch.stack(next(batches), 1)]
        os.kill(self.private.pid(), signal.SIGKILL)
        got += [torch.stack(batch, 1) for batch in batches]
        self.assertTrue(torch.equal(torch.cat(got), wanted))


class Telling(Dataset):
    """Says who makes a sample, in a pipe. One kind of process then hangs."""

    def __init__(self, tell, hangs):
        self.tell, self.hangs = tell, hangs

    def __len__(self):
        return 40

    def __getitem__(self, index):
        name = comm(os.getpid())
        self.tell(name)
        time.sleep(60 if name == self.hangs else 0.02)
        return index


class TestKilledScript(FaultCase):
    """A script that is killed leaves nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon = subprocess.Popen([os.path.join(BIN, 'pinfeedd'), '--private', '--linger', '1', '--runtime-dir',
                                       cls.private.runtime], stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.exists(os.path.join(cls.private.runtime, 'pinfeed.sock')))

    @classmethod
    def tearDownClass(cls):
        cls.daemon.wait(20 * SLOWDOWN)  # its linger is over then
        super().tearDownClass()

    def test_killed_at_moments(self):
        for moment in ('start', 'pinfeed-probe', 'attached', 'pinfeed-worker', 'loop', 'epoch 1', 'again'):
            with self.subTest(moment=moment):
                script = self.kill_at(moment)
                wait_for(lambda: not in_session(script), 2)
                wait_for(lambda: not self.private.status()['jobs'], 2)
                wait_for(lambda: not self.private.status()['workers'], 2)
        self.assertEqual(self.private.status()['pipelines'], [])

    def kill_at(self, moment):
        """The session of a script that was killed then."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self.run_script(lambda word: os.write(write, word.encode() + b'\n'), moment)
        os.close(write)
        with open(read, encoding='ascii') as words:
            for word in words:
                if word.strip() == moment:
                    break
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return pid

    def run_script(self, tell, moment):
        """Does not return."""
        try:
            tell('start')
            loader = pinfeed.DataLoader(Telling(tell, moment), batch_size=4, num_workers=2)
            tell('attached')
            for epoch in range(2):
                tell(f'epoch {epoch}')
                for _ in loader:
                    tell('again' if epoch else 'loop')
        finally:
            os._exit(1)


if __name__ == '__main__':
    unittest.main()
