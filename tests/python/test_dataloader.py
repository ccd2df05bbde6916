# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed.DataLoader gives what torch's gives at the same order, and refuses by name what it cannot."""

import collections
import contextlib
import io
import os
import random
import unittest
import warnings
from unittest import mock

import pinfeed
import support
from support import needs_numpy, needs_torch, numpy, torch

if torch:
    from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate, random_split
    from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
    from pinfeed import _worker
else:
    Dataset = object

try:
    import PIL.Image
except ImportError:
    PIL = None
try:
    import torchvision
    from torchvision import transforms
except ImportError:
    torchvision = None

SEED = 11
Point = collections.namedtuple('Point', 'x y')


class Made(Dataset):
    """Samples by a function of their number."""

    def __init__(self, make, length=23):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.make(index)


class Lazy(Dataset):
    """As people read HDF5: the file is opened by the first sample that a process makes."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return 23

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, 'rb')
            self.owner = os.getpid()
        assert self.owner == os.getpid(), 'a file that was opened before the fork'
        self.file.seek(index * 8)
        return numpy.frombuffer(self.file.read(8), '<f8').copy()


class Many(Made):
    """Makes whole batches."""

    def __getitems__(self, indices):
        return [(index, len(indices)) for index in indices]


class Empty(Dataset):
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError


def pad(samples):
    longest = max(len(sample) for sample in samples)
    return torch.stack([torch.nn.functional.pad(sample, (0, longest - len(sample))) for sample in samples]), \
        [len(sample) for sample in samples]


def boxes(samples):
    return torch.stack([image for image, _ in samples]), [target for _, target in samples]


def image(index):
    return PIL.Image.new('RGB', (5, 4), (index, 2 * index, 3 * index))


def seeded():
    return torch.Generator().manual_seed(5)


def numbers():
    return Made(lambda index: (torch.full((3, 2), float(index)), index))


# What people do: a dataset and arguments of its DataLoader.
SCRIPTS = {
    'tensors and labels': lambda: (numbers(), {'batch_size': 4, 'shuffle': True}),
    'dicts': lambda: (Made(lambda index: {'image': torch.ones(2) * index, 'meta': {'id': index, 'good': index % 2 == 0}}),
                      {'batch_size': 5, 'shuffle': True, 'drop_last': True}),
    'strings': lambda: (Made(lambda index: (f'file{index}.jpg', index / 2)), {'batch_size': 4, 'shuffle': True}),
    'named tuples and arrays': lambda: (Made(lambda index: Point(numpy.float32(index), numpy.arange(index, index + 3))),
                                        {'batch_size': 4}),
    'variable lengths with collate_fn': lambda: (Made(lambda index: torch.arange(1 + index % 5)),
                                                 {'batch_size': 4, 'collate_fn': pad, 'shuffle': True}),
    'detection': lambda: (Made(lambda index: (torch.ones(3, 4) * index, {'boxes': torch.ones(index % 3, 4), 'n': str(index)})),
                          {'batch_size': 3, 'collate_fn': boxes}),
    'a weighted sampler': lambda: (numbers(), {'batch_size': 4, 'sampler':
                                               WeightedRandomSampler(range(1, 24), 20, generator=seeded())}),
    'a subset sampler': lambda: (numbers(), {'batch_size': 4, 'drop_last': True, 'sampler':
                                             SubsetRandomSampler(range(3, 20), generator=seeded())}),
    'a batch_sampler': lambda: (numbers(), {'batch_sampler':
                                            BatchSampler(RandomSampler(range(23), generator=seeded()), 5, False)}),
    'random_split': lambda: (random_split(numbers(), [20, 3], generator=seeded())[0], {'batch_size': 6, 'shuffle': True}),
    'Subset': lambda: (Subset(numbers(), range(4, 16)), {'batch_size': 5}),
    'ConcatDataset': lambda: (ConcatDataset([numbers(), Made(lambda index: (torch.zeros(3, 2), -1), 4)]), {'batch_size': 8}),
    'TensorDataset': lambda: (TensorDataset(torch.arange(46).view(23, 2), torch.arange(23) > 9),
                              {'batch_size': 7, 'shuffle': True}),
    'a list in memory': lambda: ([(index, float(index)) for index in range(9)], {'batch_size': 2, 'shuffle': True}),
    'random numbers': lambda: (Made(lambda index: (random.random(), numpy.random.rand(2), torch.rand(3))),
                               {'batch_size': 4, 'shuffle': True}),
    'batch_size=None': lambda: (Made(lambda index: {'row': index, 'text': str(index)}, 5), {'batch_size': None}),
    '__getitems__': lambda: (Many(None), {'batch_size': 4}),
}


def order_of(dataset, arguments, epoch):
    """The batches of an epoch by sample numbers, in torch's own way but for the permutation."""
    if 'batch_sampler' in arguments:
        return list(arguments['batch_sampler'])
    if 'sampler' in arguments:
        order = list(arguments['sampler'])
    elif arguments.get('shuffle'):
        order = memoryview(_worker.order(len(dataset), SEED, epoch, 0, len(dataset))).cast('q').tolist()
    else:
        order = list(range(len(dataset)))
    return list(BatchSampler(order, arguments['batch_size'] or 1, arguments.get('drop_last', False)))


def expected(script, epochs):
    """What torch makes of it, with each sample's random states."""
    dataset, arguments = SCRIPTS[script]()
    collate = arguments.get('collate_fn') or default_collate
    many = getattr(dataset, '__getitems__', None)
    for epoch in range(epochs):
        for batch in order_of(dataset, arguments, epoch):
            samples = []
            for index in batch:
                _worker.seed_sample(SEED, epoch, index)
                samples.append(dataset[index] if many is None else None)
            if arguments.get('batch_size', 1) is None:
                yield torch.utils.data.default_convert(samples[0])
            else:
                yield collate(many(batch) if many else samples)


def difference(one, other, path='batch'):
    """Where two batches are not the same, types included; None: they are."""
    if type(one) is not type(other):
        return f'{path}: {type(one)} and {type(other)}'
    if isinstance(one, torch.Tensor):
        same = one.dtype is other.dtype and one.shape == other.shape and torch.equal(one, other)
        return None if same else f'{path}: {one} and {other}'
    if isinstance(one, dict):
        if list(one) != list(other):
            return f'{path}: keys {list(one)} and {list(other)}'
        return next(filter(None, (difference(one[key], other[key], f'{path}[{key!r}]') for key in one)), None)
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f'{path}: {len(one)} and {len(other)} items'
        pairs = enumerate(zip(one, other))
        return next(filter(None, (difference(*pair, f'{path}[{number}]') for number, pair in pairs)), None)
    return None if one == other else f'{path}: {one!r} and {other!r}'


@needs_numpy
@needs_torch
class Case(unittest.TestCase):
    """Tests whose loaders share a private daemon."""

    @classmethod
    def setUpClass(cls):
        cls.private = support.Private()
        cls._environment = mock.patch.dict(os.environ, cls.private.environment)
        cls._environment.start()

    @classmethod
    def tearDownClass(cls):
        cls._environment.stop()
        cls.private.stop()

    def loader(self, dataset, **arguments):
        loader = pinfeed.DataLoader(dataset, **{'seed': SEED, **arguments})
        self.addCleanup(loader.close)
        return loader

    def assert_same(self, got, wanted):
        got, wanted = list(got), list(wanted)
        self.assertEqual(len(got), len(wanted))
        for number, pair in enumerate(zip(got, wanted)):
            self.assertIsNone(difference(*pair), f'batch {number}')


class TestLikeTorch(Case):
    def check(self, workers):
        for script in SCRIPTS:
            with self.subTest(script=script):
                dataset, arguments = SCRIPTS[script]()
                loader = self.loader(dataset, num_workers=workers, persistent_workers=workers > 0, **arguments)
                got = [batch for _ in range(2) for batch in loader]
                self.assert_same(got, expected(script, 2))
                self.assertEqual(len(loader), len(got) / 2)
                loader.close()

    def test_scripts_without_workers(self):
        self.check(0)

    def test_scripts_with_workers(self):
        self.check(2)

    def test_lazily_opened_file(self):
        path = os.path.join(self.private.directory, 'numbers')
        numpy.arange(23, dtype='<f8').tofile(path)
        got = torch.cat(list(self.loader(Lazy(path), batch_size=4, num_workers=2))).view(-1)
        self.assertTrue(torch.equal(got, torch.arange(23, dtype=torch.float64)))

    @unittest.skipIf(PIL is None, 'PIL is not installed')
    def test_pil_images_become_arrays(self):
        wanted = [default_collate([numpy.array(image(index)) for index in batch]) for batch in ([0, 1, 2], [3, 4])]
        for workers in (0, 2):
            self.assert_same(self.loader(Made(image, 5), batch_size=3, num_workers=workers), wanted)

    def test_length_zero(self):
        for workers in (0, 2):
            loader = self.loader(Empty(), num_workers=workers)
            self.assertEqual((len(loader), list(loader)), (0, []))

    def test_last_row_and_one_sample(self):
        for workers in (0, 2):
            self.assert_same(self.loader(Made(lambda index: index, 1), batch_size=4, num_workers=workers), [torch.tensor([0])])


class TestRandom(Case):
    def test_states_of_the_script_are_its_own(self):
        torch.manual_seed(1), numpy.random.seed(2), random.seed(3)
        wanted = torch.rand(3).tolist(), numpy.random.rand(3).tolist(), random.random()
        torch.manual_seed(1), numpy.random.seed(2), random.seed(3)
        list(self.loader(Made(lambda index: (torch.rand(1), random.random(), numpy.random.rand())), batch_size=4))
        self.assertEqual((torch.rand(3).tolist(), numpy.random.rand(3).tolist(), random.random()), wanted)

    def test_seed_comes_from_torch(self):
        torch.manual_seed(1)
        first, second = pinfeed.DataLoader([1, 2]).seed, pinfeed.DataLoader([1, 2]).seed
        self.assertNotEqual(first, second)
        torch.manual_seed(1)
        self.assertEqual(pinfeed.DataLoader([1, 2]).seed, first)
        self.assertEqual(*(pinfeed.DataLoader([1, 2], generator=seeded()).seed for _ in range(2)))

    def test_sample_rng(self):
        dataset = Made(lambda index: torch.from_numpy(pinfeed.sample_rng().random(2)))
        rows = [torch.cat(list(self.loader(dataset, batch_size=5, num_workers=workers))) for workers in (0, 2)]
        self.assertTrue(torch.equal(*rows))
        self.assertEqual(len(set(rows[0].view(-1).tolist())), 46)

    def test_private_generator_is_reported(self):
        generator = random.Random(1)
        with self.assertWarnsRegex(UserWarning, 'came out different.*generators of the dataset') as caught:
            loader = self.loader(Made(lambda index: generator.random()), num_workers=1)
        self.assertEqual(caught.filename, __file__)
        pipelines = self.private.status()['pipelines']
        self.assertEqual([pipeline['deterministic'] for pipeline in pipelines if pipeline['name'] == loader.pipeline], [False])

    def test_nothing_is_reported_of_keyed_randomness(self):
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            self.loader(SCRIPTS['random numbers']()[0], num_workers=1, batch_size=4)


class TestPlaces(Case):
    def test_state_goes_on(self):
        """Also from workers to none, and with another seed than the state's."""
        for script, pairs in (('tensors and labels', ((0, 0), (2, 0), (2, 2))), ('strings', ((0, 2),)),
                              ('variable lengths with collate_fn', ((2, 2),))):
            for before, after in pairs:
                with self.subTest(script=script, before=before, after=after):
                    dataset, arguments = SCRIPTS[script]()
                    first = self.loader(dataset, num_workers=before, **arguments)
                    list(first)
                    batches = iter(first)
                    next(batches), next(batches)
                    state = first.state_dict()
                    second = self.loader(dataset, num_workers=after, seed=None, **arguments)
                    second.load_state_dict(state)
                    self.assertEqual(second.state_dict(), state)
                    self.assert_same(second, batches)
                    self.assertEqual(second.state_dict()['epoch'], 2)
                    first.close(), second.close()

    def test_state_with_a_sampler(self):
        for workers in (0, 2):
            for script in ('a subset sampler', 'a batch_sampler'):
                with self.subTest(script=script, workers=workers):
                    dataset, arguments = SCRIPTS[script]()
                    first = self.loader(dataset, num_workers=workers, **arguments)
                    batches = iter(first)
                    next(batches)
                    state = first.state_dict()
                    dataset, arguments = SCRIPTS[script]()
                    second = self.loader(dataset, num_workers=workers, **arguments)
                    second.load_state_dict(state)
                    self.assert_same(second, batches)
                    second.load_state_dict(state)  # the sampler is elsewhere by now
                    with self.assertRaisesRegex(pinfeed.Stale, 'the sampler gives another order for epoch 0'):
                        list(second)
                    first.close(), second.close()

    def test_state_of_another_dataset(self):
        state = self.loader(numbers()).state_dict()
        with self.assertRaisesRegex(pinfeed.Stale, "the dataset's code, its length"):
            self.loader(Subset(numbers(), range(23))).load_state_dict(state)
        self.loader(Subset(numbers(), range(23))).load_state_dict(state, force=True)
        with self.assertRaisesRegex(pinfeed.Stale, f'the state is of seed {SEED}'):
            self.loader(numbers(), seed=5).load_state_dict(state)

    def test_state_is_the_same_in_every_run(self):
        made = 'pinfeed.DataLoader(torch.utils.data.TensorDataset(torch.arange(9)), 2, seed=1)'
        output, _ = support.start_script(f'import pinfeed, torch\nprint({made}.state_dict()["fingerprint"])').communicate()
        self.assertEqual(output.strip(), eval(made).state_dict()['fingerprint'])

    def test_distributed_sampler(self):
        for workers in (0, 1):
            seen, wanted = [], sorted([*range(23), *order_of(range(23), {'shuffle': True, 'batch_size': 1}, 3)[0]])
            for rank in range(2):
                sampler = DistributedSampler(numbers(), num_replicas=2, rank=rank, seed=SEED)
                sampler.dataset = dataset = numbers()
                loader = self.loader(dataset, batch_size=4, sampler=sampler, num_workers=workers, seed=None)
                self.assertEqual((loader.rank, loader.world_size, loader.seed, loader.sampler), (rank, 2, SEED, sampler))
                loader.sampler.set_epoch(3)
                batches = list(loader)
                self.assertEqual(len(loader), len(batches))
                seen += torch.cat([labels for _, labels in batches]).tolist()
            self.assertEqual(sorted(seen), wanted)

    def test_ranks(self):
        for dataset, arguments in ((numbers(), {}), (numbers(), {'collate_fn': default_collate})):
            arguments = {'batch_size': 3, 'world_size': 2, 'shuffle': True, 'drop_last': True, 'seed': None, **arguments}
            shares = [[[labels.tolist() for _, labels in self.loader(dataset, rank=rank, num_workers=workers, **arguments)]
                       for rank in range(2)] for workers in (0, 1)]
            self.assertEqual(shares[0], shares[1])
            self.assertEqual(len({label for share in shares[0] for batch in share for label in batch}), 18)

    def test_epochs(self):
        for workers in (0, 1):
            loader = self.loader(numbers(), batch_size=4, shuffle=True, num_workers=workers)
            epochs = [[labels.tolist() for _, labels in loader] for _ in range(2)]
            self.assertNotEqual(*epochs)
            loader.set_epoch(1)
            self.assertEqual([labels.tolist() for _, labels in loader], epochs[1])
            batches = iter(loader)
            next(batches)
            self.assertEqual(loader.remaining, 5)
            iter(loader)
            with self.assertRaisesRegex(pinfeed.Error, 'this iteration is over'):
                next(batches)

    def test_changes_are_seen(self):
        """As torch's workers are made anew at each iter(); with persistent_workers=True they are not."""
        for stays in (False, True):
            dataset = TensorDataset(torch.zeros(8))
            loader = self.loader(dataset, batch_size=4, num_workers=2, persistent_workers=stays)
            list(loader)
            dataset.tensors = torch.ones(8),
            self.assertEqual(sum(values.sum() for values, in loader), 0 if stays else 8)

    def test_closed(self):
        for script in ('tensors and labels', 'a subset sampler'):
            dataset, arguments = SCRIPTS[script]()
            loader = self.loader(dataset, num_workers=1, **arguments)
            loader.close()
            with self.assertRaisesRegex(pinfeed.Error, 'is closed'):
                iter(loader)

    def test_length_may_not_change(self):
        dataset = [1, 2, 3]
        loader = self.loader(dataset)
        dataset.append(4)
        with self.assertRaisesRegex(pinfeed.Invalid, 'it had 3 samples .* and has 4 now'):
            list(loader)

    def test_share(self):
        loaders = [self.loader(numbers(), batch_size=4, shuffle=True, num_workers=1, share='a', seed=None) for _ in range(2)]
        self.assertEqual([loader.seed for loader in loaders], [0, 0])
        self.assert_same(loaders[0], loaders[1])
        self.assertEqual([job['pipeline'] for job in self.private.status()['jobs']].count('a'), 2)
        loaders[0].close()  # and takes its zygote along; the other one's goes on
        alone = self.loader(numbers(), batch_size=4, shuffle=True, seed=0)
        alone.set_epoch(1)
        self.assert_same(loaders[1], alone)

    def test_share_of_different_samples(self):
        """Of the same code and length: parts of one dataset."""
        parts = random_split(numbers(), [11, 11, 1], generator=torch.Generator().manual_seed(1))[:2]
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            loaders = [self.loader(part, batch_size=4, num_workers=1, share='parts', seed=None) for part in parts]
        for part, loader in zip(parts, loaders):
            self.assert_same(loader, torch.utils.data.DataLoader(part, batch_size=4))
        self.assertIn("pinfeed: parts: other scripts have given share='parts' too, and are not shared with", said.getvalue())
        self.assertEqual(said.getvalue().count('parts:'), 1)


class TestArguments(Case):
    def test_refused(self):
        dataset = numbers()

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(())

        class Endless:
            def __iter__(self):
                return iter(range(3))

        table = [
            (TypeError, 'IterableDataset, which has no samples with numbers.*torch.utils.data.DataLoader', Stream(), {}),
            (TypeError, 'dataset: expected an object with __len__ and __getitem__, got int', 5, {}),
            (ValueError, 'sampler and shuffle', dataset, {'sampler': range(3), 'shuffle': True}),
            (ValueError, 'batch_sampler: it says what batches', dataset, {'batch_sampler': [[1]], 'batch_size': 3}),
            (ValueError, 'batch_size=None and drop_last', dataset, {'batch_size': None, 'drop_last': True}),
            (ValueError, 'batch_size=0', dataset, {'batch_size': 0}),
            (ValueError, 'num_workers=-1', dataset, {'num_workers': -1}),
            (ValueError, "multiprocessing_context='spawn': workers are forked", dataset, {'multiprocessing_context': 'spawn'}),
            (ValueError, 'timeout=-1', dataset, {'timeout': -1}),
            (ValueError, 'prefetch_factor and num_workers=0', dataset, {'prefetch_factor': 2}),
            (ValueError, 'persistent_workers and num_workers=0', dataset, {'persistent_workers': True}),
            (ValueError, 'share and num_workers=0', dataset, {'share': 'a'}),
            (ValueError, "on_error='skip'", dataset, {'on_error': 'skip'}),
            (ValueError, 'rank=1 and world_size=None', dataset, {'rank': 1}),
            (ValueError, 'rank and sampler', dataset, {'rank': 0, 'world_size': 2, 'sampler': range(3)}),
            (ValueError, "native='maybe'", dataset, {'native': 'maybe'}),
            (ValueError, 'sample_timeout=0', dataset, {'sample_timeout': 0}),
            (TypeError, 'sampler: Endless has no length', dataset, {'sampler': Endless()}),
        ]
        for kind, words, given, arguments in table:
            with self.subTest(arguments=arguments), self.assertRaisesRegex(kind, words):
                pinfeed.DataLoader(given, **arguments)

    def test_samplers_that_cannot_be(self):
        class Liar(list):
            def __len__(self):
                return 5

        for words, sampler in (('its length is 5, and it gave 3', Liar([1, 2, 3])),
                               ('its length is 5, and it gave more', Liar(range(9))),
                               ("it gave 'a'", ['a']), ('it gave -1', [-1])):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                list(pinfeed.DataLoader(numbers(), sampler=sampler))

    def test_attributes_that_frameworks_read(self):
        dataset, generator = numbers(), seeded()
        loader = self.loader(dataset, batch_size=4, shuffle=True, drop_last=True, generator=generator,
                             collate_fn=default_collate)
        self.assertIs(loader.dataset, dataset)
        self.assertIs(loader.generator, generator)
        self.assertIs(loader.collate_fn, default_collate)
        self.assertEqual((loader.batch_size, loader.drop_last, loader.num_workers, loader.pin_memory, loader.timeout),
                         (4, True, 0, False, 0))
        self.assertEqual(sorted(loader.sampler), list(range(23)))
        loader.sampler.set_epoch(3)
        self.assertEqual(list(loader.sampler)[:20], torch.cat([labels for _, labels in loader]).tolist())
        self.assertIsNone(loader.batch_sampler)
        self.assertEqual(self.loader(dataset).collate_fn, default_collate)

    def test_arguments_that_change_nothing(self):
        self.assert_same(self.loader(numbers(), batch_size=4, num_workers=1, prefetch_factor=3, in_order=False,
                                     multiprocessing_context='fork', timeout=60, pin_memory_device=''),
                         self.loader(numbers(), batch_size=4))

    def test_threads_are_warned_of(self):
        import threading

        stop = threading.Event()
        thread = threading.Thread(target=stop.wait, name='busy-thread')
        thread.start()
        try:
            with self.assertWarnsRegex(UserWarning, 'more threads .*busy-thread.*near the beginning of the script') as caught:
                self.loader(numbers(), num_workers=1)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(caught.filename, __file__)

    def test_cuda_is_warned_of(self):
        with mock.patch('torch.cuda.is_initialized', lambda: True), \
                self.assertWarnsRegex(UserWarning, 'initialised CUDA.*near the beginning'):
            self.loader(numbers(), num_workers=1)

    def test_a_cuda_tensor_is_named(self):
        class Far:
            is_cuda, device = True, 'cuda:0'

        inner = Made(lambda index: index)
        inner.itself = inner
        inner.tables = [1, Far()]
        with self.assertRaisesRegex(TypeError, r'dataset\.dataset\.tables\[1\] is a tensor on cuda:0'):
            self.loader(Subset(inner, range(3)), num_workers=1)

    def test_pin_memory_without_a_gpu(self):
        for dataset in (numbers(), SCRIPTS['strings']()[0]):
            for workers in (0, 1):
                with self.assertWarnsRegex(UserWarning, 'no accelerator is found'):
                    self.assertEqual(len(list(self.loader(dataset, pin_memory=True, num_workers=workers))), 23)


@unittest.skipIf(torchvision is None, 'torchvision is not installed')
class TestNative(Case):
    """Image folders, of which pinfeed may have all steps itself. What it takes is in test_native.py."""

    STEPS = [transforms.Resize(8), transforms.CenterCrop(8), transforms.ToTensor()] if torchvision else []

    def folder(self, steps=(), **arguments):
        root = os.path.join(self.private.directory, 'images')
        for number in range(8):
            path = os.path.join(root, f'class{number % 2}', f'{number}.jpg')
            os.makedirs(os.path.dirname(path), exist_ok=True)
            PIL.Image.new('RGB', (9, 11), (30 * number, 10, 200)).save(path)
        return torchvision.datasets.ImageFolder(root, transforms.Compose([*self.STEPS, *steps]), **arguments)

    def made(self, dataset, **arguments):
        """A loader, and what it has said of itself."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return self.loader(dataset, batch_size=3, num_workers=1, **arguments), said.getvalue()

    def test_native(self):
        dataset = self.folder()
        loader, said = self.made(dataset, native='auto')
        self.assertEqual(said, 'pinfeed: native (Resize, CenterCrop)\n')
        for batch, (images, labels) in zip(loader, torch.utils.data.DataLoader(dataset, batch_size=3)):
            self.assertIs(type(batch), list)
            self.assertLess((batch[0] - images).abs().max(), 0.01)
            self.assertTrue(torch.equal(batch[1], labels))
        self.assertEqual((len(loader), loader.state_dict()['epoch'], loader.state_dict()['row']), (3, 1, 0))
        self.assertEqual(self.programs(loader), {'pinfeed-worker'})

    def test_python(self):
        wanted = list(torch.utils.data.DataLoader(self.folder(), batch_size=3))
        for arguments, steps, reason in (({}, [transforms.Lambda(lambda image: image)], 'Lambda at step 4'),
                                         ({'collate_fn': default_collate}, [], 'collate_fn is given')):
            loader, said = self.made(self.folder(steps), **arguments)
            self.assertEqual(said, f'pinfeed: python workers, because {reason}\n')
            self.assert_same(loader, wanted)
            with self.assertRaisesRegex(pinfeed.NotNative, reason):
                self.made(self.folder(steps), native=True, **arguments)
        loader, said = self.made(self.folder(), native=False)
        self.assertEqual(said, '')
        self.assert_same(loader, wanted)

    def programs(self, loader):
        """What its workers run."""
        pids = [worker['pid'] for worker in self.private.status()['workers'] if worker['pipeline'] == loader.pipeline]
        return {os.path.basename(os.readlink(f'/proc/{pid}/exe')) for pid in pids}


if __name__ == '__main__':
    unittest.main()
