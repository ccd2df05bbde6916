# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a user of torch's DataLoader tries: it works, or the error says what to do."""

import contextlib
import copy
import inspect
import io
import pickle
import threading

import pinfeed
from pinfeed import loader as loaders
from support import Case, needs_numpy, needs_torch, numpy, ramp, torch, wait_for

if torch:
    class Stream(torch.utils.data.IterableDataset):
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            return iter(self.loader)


class Arguments(Case):
    @needs_torch
    def test_of_a_dataloader(self):
        """Each is an argument here, or refused with what there is in its place."""
        theirs = set(inspect.signature(torch.utils.data.DataLoader).parameters) | {'pin_memory_device', 'in_order'}
        ours = set(inspect.signature(pinfeed.Loader).parameters)
        self.assertEqual(theirs - ours - set(loaders.OF_DATALOADER), set())
        self.assertEqual(ours & set(loaders.OF_DATALOADER), set())

    def test_unknown(self):
        for argument, words in (('num_workers', "'num_workers': the daemon's workers prepare for all jobs; a pipeline's"),
                                ('shuffle', "'shuffle': the order is the pipeline's: say `shuffle: true` there"),
                                ('batchsize', "'batchsize', the nearest one is 'batch_size'$"),
                                ('zzz', "'zzz'$")):
            with self.subTest(argument):
                self.assertRaisesRegex(TypeError, 'pinfeed.Loader has no argument ' + words, self.loader, **{argument: 4})
        self.assertRaises(TypeError, pinfeed.Loader, 'ramp', 32)

    def test_of_another_type(self):
        for arguments, words in (
                ({'batch_size': '32'}, "batch_size='32': expected a whole number"),
                ({'batch_size': 2.0}, 'batch_size=2.0: expected'),
                ({'seed': 1.5}, 'seed=1.5: expected a whole number'), ({'seed': 'any'}, "seed='any': expected"),
                ({'rank': '0', 'world_size': '1'}, "rank='0': expected a whole number"),
                ({'gather': 1 << 40}, 'at most 4294967295'), ({'group': 3}, 'group=3: expected a text'),
                ({'timeout': '3'}, "timeout='3': expected seconds"), ({'timeout': float('nan')}, 'timeout=nan: expected'),
                ({'reconnect': -1}, 'reconnect=-1: expected seconds'), ({'reconnect': float('inf')}, 'reconnect=inf: expected'),
                ({'fields': 'index'}, r"fields='index': expected a list of names"), ({'fields': []}, r'fields=\[\]: expected'),
                ({'max_held_batches': 1 << 30}, 'at most 1048576')):
            with self.subTest(arguments):
                self.assertRaisesRegex(pinfeed.Invalid, words, self.loader, **arguments)

    @needs_numpy
    def test_numbers_of_numpy(self):
        loader = self.loader(batch_size=numpy.int32(8), seed=numpy.uint64(1 << 63), rank=numpy.int64(1), world_size=2)
        self.assertEqual((loader.batch_size, loader.seed, loader.rank), (8, 1 << 63, 1))
        loader.set_epoch(numpy.int64(3))
        self.assertEqual(loader._next, (3, 0))

    def test_states_and_epochs(self):
        loader = self.loader(output='dlpack')
        state = loader.state_dict()
        for wrong, words in (([], 'expected what state_dict'), ({'weight': 1}, 'a dict with pipeline, fingerprint, seed, '),
                             ({'epoch': 0, 'row': 0}, 'a dict with pipeline'), (dict(state, row=-1), 'row=-1: expected 0'),
                             (dict(state, row=1.5), 'row=1.5: expected a whole'), (dict(state, epoch='2'), "epoch='2': exp"),
                             (dict(state, row=1000), 'an epoch has 1000 rows')):
            with self.subTest(wrong):
                self.assertRaisesRegex(pinfeed.Invalid, words, loader.load_state_dict, wrong)
        loader.load_state_dict({'epoch': 2, 'row': 32}, force=True)
        self.assertEqual((loader.state_dict()['epoch'], loader.state_dict()['row']), (2, 32))
        self.assertRaisesRegex(pinfeed.Invalid, 'epoch=1.5: expected a whole number', loader.set_epoch, 1.5)


@needs_numpy
class Loops(Case):
    def loader(self, **arguments):
        return super().loader(output='numpy', **arguments)

    def assert_right(self, batches, epoch):
        """How many rows there are, each right."""
        rows = 0
        for index, data in batches:
            self.assertTrue((data == ramp(index, epoch, 3000)).all())
            rows += len(index)
        return rows

    def test_enumerate_zip_list(self):
        first, second = self.loader(), self.loader(batch_size=20, seed=1)
        self.assertEqual([i for i, _ in enumerate(first)], list(range(32)))
        pairs = [(len(a), len(b)) for (a, _), (b, _) in zip(first, second)]
        self.assertEqual((len(pairs), pairs[0]), (32, (32, 20)))
        self.assertEqual(self.assert_right(first, 2), 1000)
        self.assertEqual(self.assert_right(second, 1), 1000)  # what zip left of epoch 0 is abandoned
        self.assertEqual(self.assert_right((batch for batch in list(self.loader(max_held_batches=32))), 0), 1000)

    def test_nested(self):
        loader = self.loader()
        with self.assertRaisesRegex(pinfeed.Error, 'this iteration is over'):
            for _ in loader:
                for _ in loader:
                    pass
        with self.assertRaisesRegex(pinfeed.Error, 'this iteration is over'):
            for _ in zip(loader, loader):
                pass

    def test_exception_in_the_body(self):
        loader = self.loader()
        for epoch in range(2):
            with contextlib.suppress(ZeroDivisionError):
                for _ in loader:
                    1 / 0
        self.assertEqual(self.assert_right(loader, 2), 1000)

    def test_generators_and_loaders_that_are_left(self):
        def generate():
            yield from self_loader()

        def self_loader():
            return pinfeed.Loader('ramp', runtime_dir=self.daemon.runtime, output='numpy')

        generator = generate()
        next(generator)
        self.assertEqual(len(self.jobs()), 1)
        generator.close()
        wait_for(lambda: not self.jobs())

        loader = self_loader()
        for batch in loader:
            del loader  # the iterator keeps it
            break
        del batch
        wait_for(lambda: not self.jobs())
        self.assertEqual(self.assert_right(iter(self_loader()), 0), 1000)

    def test_two_threads_in_turn(self):
        reading = iter(self.loader())
        batches = [next(reading)]
        for _ in range(3):
            thread = threading.Thread(target=lambda: batches.append(next(reading)))
            thread.start()
            thread.join()
        self.assertEqual(self.assert_right(batches, 0), 4 * 32)

    def test_closed(self):
        loader = self.loader()
        reading = iter(loader)
        next(reading)
        state = loader.state_dict()
        loader.close()
        loader.close()
        for use in (lambda: iter(loader), lambda: next(reading), loader.stats, lambda: loader.load_state_dict(state)):
            self.assertRaisesRegex(pinfeed.Error, 'the loader is closed', use)
        self.assertEqual((len(loader), len(loader.dataset), loader.state_dict(), loader.remaining), (32, 1000, state, 31))
        self.assertIn('1000 samples', repr(loader))


class Objects(Case):
    def test_it_is_no_dataset(self):
        loader = self.loader(output='dlpack')
        self.assertRaisesRegex(TypeError, "takes the place of torch's DataLoader, not of a dataset", lambda: loader[0])
        self.assertRaisesRegex(TypeError, 'has a length only', lambda: loader.dataset[0])
        for fail, what in ((copy.copy, loader), (copy.deepcopy, loader), (pickle.dumps, loader), (pickle.dumps, iter(loader))):
            self.assertRaisesRegex(TypeError, 'cannot be copied, nor be sent to another process', fail, what)

    @needs_torch
    def test_in_a_dataloader(self):
        DataLoader = torch.utils.data.DataLoader
        loader = self.loader()
        for workers in (0, 2):
            with self.assertRaisesRegex(TypeError, "takes the place of torch's DataLoader"):
                next(iter(DataLoader(loader, batch_size=None, num_workers=workers)))
        with self.assertRaisesRegex(RuntimeError, r'this job belongs to the process that opened it; open another after fork'):
            next(iter(DataLoader(Stream(loader), batch_size=None, num_workers=1, multiprocessing_context='fork')))
        with self.assertRaisesRegex(TypeError, 'cannot be .* sent to another process'):
            with contextlib.redirect_stderr(io.StringIO()):
                next(iter(DataLoader(Stream(loader), batch_size=None, num_workers=1, multiprocessing_context='spawn')))
        index, data = next(iter(DataLoader(Stream(loader), batch_size=None)))  # of no use, and harmless
        self.assertEqual(len(index), 32)

    @needs_torch
    def test_batches_of_torch_are_tensors(self):
        loader = self.loader(output='torch', with_info=True)
        (index, data), info = next(iter(loader))
        again = pickle.loads(pickle.dumps(((index, data), info)))
        self.assertTrue(torch.equal(again[0][1], data) and torch.equal(again[1].ids, index))
        self.assertEqual((type(again[1]), again[1].row), (pinfeed.Info, 0))
        self.assertTrue(torch.equal(copy.deepcopy(data), data))
        data.share_memory_()
        self.assertTrue((data.numpy() == ramp(index.numpy(), 0, 3000)).all())
        if torch.cuda.is_available():
            self.assertTrue(data.pin_memory().is_pinned())

    @needs_numpy
    def test_batches_of_numpy_are_arrays(self):
        index, data = next(iter(self.loader(output='numpy')))
        again = pickle.loads(pickle.dumps(data))
        again += 1  # its own memory
        self.assertTrue((data == ramp(index, 0, 3000)).all())
        self.assertTrue(copy.deepcopy(data).flags.owndata)
