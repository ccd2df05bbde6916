# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a DataLoader goes on after: batches that outgrow their room, and errors that have ended a job."""

import contextlib
import io
import os
import signal
import time
import unittest

import pinfeed
from support import torch
from test_dataloader import PIL, SEED, Made, image, seeded, torchvision
from test_dataloader_faults import FaultCase

if torch:
    from torch.utils.data import RandomSampler
    from pinfeed import _worker
if torchvision:
    from torchvision import transforms


class Mendable(Made):
    """Some of its samples are bad until it is mended."""

    def __init__(self, bad, length=40):
        super().__init__(lambda index: torch.tensor(index), length)
        self.bad = bad

    def __getitem__(self, index):
        if index in self.bad:
            raise KeyError(f'no sample {index}')
        return super().__getitem__(index)


def join(samples):
    return torch.cat(samples)


def stack(samples):
    return torch.stack(samples)


def growing(length=120):
    """Batches of it get larger and larger."""
    return Made(lambda index: torch.full((4 << index // 10,), index), length)


class TestRoom(FaultCase):
    """Where a worker makes whole batches."""

    def all_of(self, dataset, epochs=1, **arguments):
        """Batches of these epochs, and what was said meanwhile."""
        loader = self.loader(dataset, batch_size=4, collate_fn=join, **arguments)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            return [batch for _ in range(epochs) for batch in loader], said.getvalue()

    def check(self, epochs=1, **arguments):
        order = {name: arguments[name] for name in ('shuffle', 'sampler') if name in arguments}
        wanted, _ = self.all_of(growing(), epochs, **self.made(order))
        got, said = self.all_of(growing(), epochs, **self.made(arguments), num_workers=2)
        self.assert_same(got, wanted)
        self.assertRegex(said, r'batch \d+ needs [\d,]+ bytes, there was room for [\d,]+: more .* batch_bytes=\d+ saves that')
        self.assertLessEqual(said.count('needs'), 8)

    def made(self, arguments):
        """Samplers with a generator of their own are made for each loader."""
        return {name: value() if callable(value) else value for name, value in arguments.items()}

    def test_in_order(self):
        self.check()

    def test_batches_that_are_held_stay(self):
        self.check(zero_copy=True, max_held_batches=31, prefetch_factor=16)

    def test_shuffled_and_prepared_ahead(self):
        self.check(2, shuffle=True, persistent_workers=True)

    def test_sampler(self):
        self.check(2, sampler=lambda: RandomSampler(range(120), generator=seeded()))

    def test_shared(self):
        """Both go on, and with each other."""
        loaders = [self.loader(growing(), batch_size=4, collate_fn=join, num_workers=2, share='growing') for _ in range(2)]
        with contextlib.redirect_stderr(io.StringIO()):
            got = list(zip(*loaders))
        self.assertEqual(len(got), 30)
        for one, other in got:
            self.assertTrue(torch.equal(one, other))
        self.assertEqual(len({loader.pipeline for loader in loaders}), 1)

    def test_in_a_resumed_epoch(self):
        for arguments in ({}, {'sampler': lambda: RandomSampler(range(120), generator=seeded())}):
            with self.subTest(sampler=bool(arguments)):
                first = self.loader(growing(), batch_size=4, collate_fn=join, **self.made(arguments))
                iterator = iter(first)
                for _ in range(7):
                    next(iterator)
                state, rest = first.state_dict(), list(iterator)
                loader = self.loader(growing(), batch_size=4, collate_fn=join, num_workers=2, **self.made(arguments))
                loader.load_state_dict(state)
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    iterator = iter(loader)
                    got = [next(iterator) for _ in range(10)]
                    state = loader.state_dict()
                    self.assertEqual((state['epoch'], state['row'], loader.remaining), (0, 17 * 4, 13))
                    got += iterator
                self.assert_same(got, rest)
                self.assertIn('needs', said.getvalue())

    def test_a_limit_of_the_users(self):
        dataset = Made(lambda index: torch.ones(1 if index < 8 else 10000), 12)
        arguments = {'batch_size': 4, 'num_workers': 1, 'collate_fn': join}
        words = r'^batch 2, worker 0 \(pid \d+\): BatchTooLarge: batch 2 needs 160,\d+ bytes, there is room for 5,000: pass batch_bytes='
        with self.assertRaisesRegex(ValueError, words) as caught:
            list(self.loader(dataset, batch_bytes=5000, **arguments))
        self.assertIsInstance(caught.exception, pinfeed.SampleError)
        needed = int(str(caught.exception).partition('batch_bytes=')[2].split()[0])
        self.assertEqual(len(list(self.loader(dataset, batch_bytes=needed, **arguments))), 3)

    def test_of_the_next_epoch(self):
        """It is prepared ahead, and the loop is not there yet."""
        orders = [memoryview(_worker.order(16, SEED, epoch, 0, 16)).cast('q').tolist() for epoch in range(2)]

        def collate(samples):
            return torch.ones(100000 if samples == orders[1][:4] else 1)

        loader = self.loader(list(range(16)), batch_size=4, collate_fn=collate, num_workers=1, shuffle=True,
                             persistent_workers=True)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            for epoch in range(2):
                for number, batch in enumerate(loader):
                    self.assertEqual(len(batch), 100000 if (epoch, number) == (1, 0) else 1)
                    time.sleep(0.2 * (number == 0))  # in which all of the epoch is made, and more
                self.assertEqual(number, 3)
        self.assertEqual(said.getvalue().count('needs'), 1)

    def test_is_not_replaced(self):
        """Such a batch is not a bad one."""
        loader = self.loader(growing(), batch_size=4, collate_fn=join, num_workers=2, on_error='replace', max_errors=1)
        with contextlib.redirect_stderr(io.StringIO()):
            got = list(loader)
        self.assert_same(got, self.all_of(growing())[0])

    def test_no_room_at_all(self):
        """What the daemon says then is said for as long as nobody begins anew."""
        vast = Made(lambda index: index, 40)
        loader = self.loader(vast, batch_size=4, num_workers=1, collate_fn=lambda samples: bytes(8000 * (samples[0] >= 8)))
        loader._reader._grow = lambda needed: (4096, 1 << 62, loader._source._definition() | {'name': 'no one'})
        iterator = iter(loader)
        with contextlib.redirect_stderr(io.StringIO()):
            for _ in range(2):
                with self.assertRaisesRegex(pinfeed.Error, 'no one'):
                    list(iterator)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(len(list(loader)), 10)


class TestWords(FaultCase):
    """Of batches that a worker makes."""

    def error(self, dataset, **arguments):
        loader = self.loader(dataset, batch_size=4, num_workers=2, **arguments)
        with self.assertRaises(pinfeed.SampleError) as caught:
            list(loader)
        return caught.exception

    def test_a_sample_of_a_batch(self):
        error = self.error(Mendable({23}), collate_fn=stack)
        words = r"^batch 5 \(sample 23\), worker \d \(pid \d+\): KeyError: 'no sample 23' \(test_dataloader_again.py:\d+\)"
        self.assertRegex(str(error), words)
        self.assertIsInstance(error, KeyError)
        self.assertEqual((error.batch, error.sample), (5, 23))
        copy = error.__reduce__()[0](*error.__reduce__()[1])
        self.assertEqual((copy.batch, copy.sample, str(copy)), (5, 23, str(error)))

    def test_a_batch(self):
        def collate(samples):
            if 23 in samples:
                raise KeyError('no batch')
            return stack(samples)

        error = self.error(Mendable(()), collate_fn=collate)
        self.assertRegex(str(error), r"^batch 5, worker \d \(pid \d+\): KeyError: 'no batch'")
        self.assertEqual((error.batch, error.sample), (5, None))

    def test_a_death(self):
        def collate(samples):
            if 23 in samples:
                os.kill(os.getpid(), signal.SIGSEGV)
            return stack(samples)

        error = self.error(Mendable(()), collate_fn=collate)
        self.assertEqual((error.batch, error.sample), (5, None))
        self.assertNotIn('sample 5', str(error))

    def test_rows(self):
        error = self.error(Mendable({23}))
        self.assertRegex(str(error), '^sample 23, worker')
        self.assertEqual((error.batch, error.sample), (None, 23))


class TestAnew(FaultCase):
    """After an error."""

    def check(self, **arguments):
        dataset = Mendable({23})
        loader = self.loader(dataset, batch_size=4, shuffle=True, num_workers=2, **arguments)
        iterator = iter(loader)
        words = []
        for _ in range(2):
            with self.assertRaisesRegex(KeyError, 'no sample 23') as caught:
                list(iterator)
            words.append(str(caught.exception))
        self.assertEqual(*words)
        dataset.bad = ()
        got = [list(loader) for _ in range(2)]
        with self.assertRaisesRegex(pinfeed.Error, 'this iteration is over'):
            next(iterator)
        fresh = self.loader(Mendable(()), batch_size=4, shuffle=True)
        wanted = [list(fresh) for _ in range(3)]
        for epoch in range(2):
            self.assert_same(got[epoch], wanted[epoch + 1])

    def test_repaired(self):
        self.check()

    def test_repaired_with_workers_that_stay(self):
        self.check(persistent_workers=True)

    def test_repaired_whole_batches(self):
        self.check(collate_fn=stack)

    def test_repaired_and_a_sampler(self):
        dataset = Mendable({23})
        loader = self.loader(dataset, batch_size=4, num_workers=2, sampler=RandomSampler(range(40), generator=seeded()))
        with self.assertRaises(KeyError):
            list(loader)
        dataset.bad = ()
        order = RandomSampler(range(40), generator=seeded())
        list(order)
        self.assertEqual(torch.cat(list(loader)).tolist(), list(order))

    def test_repaired_and_resumed(self):
        dataset = Mendable({23})
        loader = self.loader(dataset, batch_size=4, num_workers=2)
        with self.assertRaises(KeyError):
            list(loader)
        state, dataset.bad = loader.state_dict(), ()
        self.assertLessEqual(state['row'], 20)
        loader.load_state_dict(state)
        self.assertEqual(torch.cat(list(loader)).tolist(), list(range(state['row'], 40)))


    @unittest.skipIf(torchvision is None or PIL is None, 'torchvision is not installed')
    def test_repaired_native(self):
        folder = os.path.join(self.private.directory, 'images', 'class')
        os.makedirs(folder)
        for number in range(8):
            image(number).save(os.path.join(folder, f'{number}.jpg'))
        with open(os.path.join(folder, '5.jpg'), 'r+b') as file:
            file.write(b'nothing')
        dataset = torchvision.datasets.ImageFolder(os.path.dirname(folder), transforms.Compose([
            transforms.RandomResizedCrop(4), transforms.ToTensor()]))
        loader = self.loader(dataset, batch_size=2, num_workers=2, native=True)
        with self.assertRaisesRegex(pinfeed.SampleError, '5.jpg'):
            list(loader)
        image(5).save(os.path.join(folder, '5.jpg'))
        self.assertEqual((len(list(loader)), loader.state_dict()['epoch']), (4, 2))


class TestSignals(FaultCase):
    def test_a_script_that_waits_for_children_itself(self):
        """Workers die all the same without harm."""
        self.addCleanup(signal.signal, signal.SIGCHLD, signal.getsignal(signal.SIGCHLD))
        path = os.path.join(self.private.directory, 'died')
        for number, handler in enumerate((lambda *unused: None, signal.SIG_IGN)):
            def make(index):
                if index == 13:
                    with contextlib.suppress(FileExistsError):
                        os.close(os.open(f'{path}{number}', os.O_CREAT | os.O_EXCL))
                        os._exit(3)
                return index

            with self.subTest(handler=handler):
                signal.signal(signal.SIGCHLD, handler)
                loader = self.loader(Made(make), batch_size=4, num_workers=2)
                self.assertEqual(torch.cat(list(loader)).tolist(), list(range(23)))
                self.assertTrue(os.path.exists(f'{path}{number}'))
