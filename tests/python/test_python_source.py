# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A dataset that the configuration names: its workers are interpreters that the daemon starts.

Each of them imports torch, which takes a second. So a pipeline stands for several things here, and what a dataset can be refused
for is asked in forks of this process, as an interpreter would be asked.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

import pinfeed
from support import BIN, Case, Daemon, Private, SLOWDOWN, is_alive, needs_numpy, needs_torch, torch, wait_for

MODULE = '''
import collections, os, random
import numpy, torch, torch.utils.data

Pair = collections.namedtuple('Pair', 'a b')


class Table(torch.utils.data.Dataset):
    def __init__(self, samples=20, scale=1.0, **more):
        self.samples, self.scale, self.more = samples, scale, more

    def __len__(self):
        return self.samples

    def __getitem__(self, number):
        if number >= self.samples:
            raise IndexError(number)
        return {'x': torch.full((2, 3), number * self.scale), 'all': (number, float(number), number % 2 == 0),
                'y': numpy.arange(3, dtype='int16') + number, 'random': [random.random(), torch.rand(2)],
                'pair': Pair(torch.tensor([number], dtype=torch.int8), numpy.float32(number)), 'told': self.told(),
                'grey': torch.full((1, 4, 6), number - 9.5)}

    def told(self):
        information = torch.utils.data.get_worker_info()
        return [information is not None and information.dataset is self, torch.get_num_threads(),
                os.getpriority(os.PRIO_PROCESS, 0), self.more == {'note': {'deep': [1, 2.5, None, '3', True]}}]


class Bad(Table):
    def __init__(self, at=(), samples=20, private=False):
        super().__init__(samples)
        self.at = at
        self.generator = random.Random(1) if private else random

    def __getitem__(self, number):
        if number in self.at:
            raise ValueError(f'bad {number}')
        return torch.tensor(self.generator.random()), number


class Many(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitems__(self, numbers):
        return [torch.tensor(10 * number) for number in numbers]


def refuse(**arguments):
    raise KeyError(f'no {sorted(arguments)}')


def give(value):
    return value


def varying():
    return [torch.zeros(size) for size in (3, 4, 5)]


def numbered():
    return [{1: 2}, {1: 3}]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())
'''


def pipeline(name, dataset, args='{}', more='', rest='', interpreter=sys.executable):
    return f'''
  {name}:
    source: {{type: python, dataset: "{dataset}", interpreter: "{interpreter}", path: [code], args: {args}{more}}}
    batch_size: 4
    workers: 1
{rest}'''


def write_module(directory):
    package = os.path.join(directory, 'code', 'tables')
    os.makedirs(package, exist_ok=True)
    for name, text in ('__init__', ''), ('mod', MODULE), ('broken', 'def f(:\n'), ('importing', 'import nosuch\n'):
        with open(os.path.join(package, f'{name}.py'), 'w', encoding='ascii') as file:
            file.write(text)
    return os.path.dirname(package)


class Code(Daemon):
    """A daemon with the module beside its configuration."""

    def start(self):
        self.code = write_module(self.directory)
        super().start()

    @property
    def config(self):
        return self._config


@needs_torch
@needs_numpy
class Served(Case):
    config = 'nice: 7\npipelines:' + ''.join([
        pipeline('table', 'tables.mod:Table', '{scale: 0.5, note: {deep: [1, 2.5, null, "3", true]}}', rest='    shuffle: true\n'),
        pipeline('named', 'tables.mod:Bad', '{at: [7]}', more=", fields: 'value=float32[] number=int64[]', samples: 10"),
        pipeline('refuse', 'tables.mod:refuse', '{a: 1}'),
        pipeline('ended', 'tables.mod:Table', interpreter='/bin/false'),
        pipeline('unknown', 'tables.mod:Table', interpreter='no-python-of-that-name'),
        pipeline('beside', 'tables.mod:Table', interpreter='./no/python'),
    ])

    @classmethod
    def setUpClass(cls):
        cls.daemon = Code(cls.make_config())
        scope = {'__name__': 'tables.mod'}
        exec(MODULE, scope)
        cls.dataset = scope['Table'](scale=0.5)

    def pipeline(self, name):
        return next(pipeline for pipeline in pinfeed.status(self.daemon.runtime)['pipelines'] if pipeline['name'] == name)

    def truth(self, numbers, seed, epoch):
        from pinfeed import _worker
        from pinfeed.fetch import own_random_states

        samples = []
        with own_random_states():
            for number in numbers:
                _worker.seed_sample(seed, epoch, number)
                samples.append(self.dataset[number])
        return torch.utils.data.default_collate(samples)

    def assert_same(self, value, truth):
        """In all but the class of a named tuple."""
        if isinstance(truth, torch.Tensor):
            self.assertEqual((value.dtype, value.shape), (truth.dtype, truth.shape))
            self.assertTrue(torch.equal(value, truth))
        elif isinstance(truth, dict):
            self.assertEqual(list(value), list(truth))
            for key in truth:
                self.assert_same(value[key], truth[key])
        else:
            self.assertIs(type(value), tuple if isinstance(truth, tuple) else list)
            self.assertEqual(len(value), len(truth))
            for one, other in zip(value, truth):
                self.assert_same(one, other)

    def test_values_are_default_collates(self):
        """Random numbers included, which are each sample's own."""
        loader = self.loader('table', seed=3, with_info=True)
        self.assertEqual(len(loader.dataset), 20)
        for epoch in range(2):
            numbers = []
            for batch, info in loader:
                truth = self.truth(info.ids.tolist(), 3, epoch)
                told = batch.pop('told')
                self.assertEqual([set(value.tolist()) for value in told], [{True}, {1}, {7}, {True}])
                truth.pop('told')
                self.assert_same(batch, truth)
                numbers += info.ids.tolist()
            self.assertEqual(sorted(numbers), list(range(20)))
        self.assertEqual([field['name'] for field in self.pipeline('table')['fields']][:4], ['x', 'all.0', 'all.1', 'all.2'])

    def test_peek_draws_what_looks_like_an_image(self):
        sheet = os.path.join(self.daemon.directory, 'sheet.png')
        peek = [os.path.join(BIN, 'pinfeedctl'), '-d', self.daemon.runtime, 'peek']
        done = subprocess.run(peek + ['table', '--row', '1', '--out', sheet], stdout=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, f'wrote {sheet}: 4 of 4 rows of epoch 0\n'))
        with open(sheet, 'rb') as file:
            self.assertEqual(file.read(8), b'\x89PNG\r\n\x1a\n')
        done = subprocess.run(peek + ['named', '--out', sheet], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn('its fields are value float32[], number int64[]', done.stderr)

    def test_fields_by_name_are_those_of_the_wire(self):
        batch = next(iter(self.loader('table', fields=['all.2', 'y'])))
        self.assertEqual(batch['all.2'].dtype, torch.uint8)
        self.assertEqual(tuple(batch['y'].shape), (4, 3, 2))

    def test_arrays(self):
        values = next(iter(self.loader('table', output='numpy')))
        self.assertEqual([value.dtype.name for value in values[:3]], ['float32', 'int64', 'float64'])

    def test_worker_that_is_killed(self):
        loader = self.loader('table', with_info=True)
        for epoch in range(4):  # more rows than there is room for
            numbers = []
            for batch, info in loader:
                if epoch == 0 and not numbers:
                    self.kill_workers('table')
                numbers += info.ids.tolist()
                self.assertTrue(torch.equal(batch['x'][:, 0, 0], info.ids * 0.5))
            self.assertEqual(sorted(numbers), list(range(20)))

    def kill_workers(self, name):
        for worker in pinfeed.status(self.daemon.runtime)['workers']:
            if worker['pipeline'] == name:
                os.kill(worker['pid'], signal.SIGKILL)

    def test_exception_of_a_sample(self):
        """With fields whose names and samples whose number the configuration gives."""
        loader = self.loader('named')
        self.assertEqual(len(loader.dataset), 10)
        self.assertEqual([name for name, *_ in loader._job.fields()], ['value', 'number'])
        with self.assertRaises(ValueError) as caught:
            list(loader)
        self.assertIsInstance(caught.exception, pinfeed.SampleError)
        self.assertEqual(caught.exception.sample, 7)
        self.assertIn('bad 7', str(caught.exception))
        self.assertIn('mod.py', caught.exception.traceback)

    def refusal(self, name, kind=pinfeed.Error):
        with self.assertRaises(kind) as caught:
            self.loader(name)
        self.assertIn(f'pipeline {name} (', str(caught.exception))
        return caught.exception

    def test_exception_of_the_factory(self):
        error = self.refusal('refuse', KeyError)
        self.assertIn("no ['a']", str(error))
        self.assertIn('mod.py', error.traceback.splitlines()[1])  # none of our own frames come first
        self.assertEqual(self.pipeline('refuse')['state'], 'failed')

    def test_interpreter_that_ends(self):
        self.assertIn('ended with exit status 1 before it had described the dataset', str(self.refusal('ended')))

    def test_interpreter_that_is_not_there(self):
        self.assertIn('cannot start no-python-of-that-name: no such file or directory', str(self.refusal('unknown')))
        there = os.path.join(self.daemon.directory, './no/python')
        self.assertIn(f'cannot start {there}', str(self.refusal('beside')))

    def test_check(self):
        config = self.daemon.config + '.checked'
        with open(config, 'w', encoding='ascii') as file:
            file.write('pipelines:' + pipeline('table', 'tables.mod:Table', '{samples: 7}') + pipeline('refuse', 'tables.mod:refuse'))
        result = subprocess.run([os.path.join(BIN, 'pinfeedd'), '--check', '--config', config], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, timeout=30 * SLOWDOWN)
        self.assertEqual(result.returncode, 1)
        self.assertIn('dataset     tables.mod.Table, 7 samples', result.stdout)
        self.assertIn('field       x: float32, 4 x 2 x 3, 24 bytes a row', result.stdout)
        self.assertIn('ring        8 slots', result.stdout)
        self.assertIn("dataset     no: KeyError: 'no []' (mod.py:", result.stdout)
        self.assertIn('        raise KeyError', result.stdout)


@needs_torch
@needs_numpy
class Defined(unittest.TestCase):
    def test_dict(self):
        """A pipeline of a private daemon: bad samples, a generator of the dataset's own, and the end of an interpreter."""
        private = Private()
        self.addCleanup(private.stop)
        code = write_module(private.directory)
        loader = pinfeed.Loader({'name': 'bad', 'source': {'type': 'python', 'dataset': 'tables.mod:Bad', 'path': [code],
                                                           'args': {'at': [0, 7], 'private': True}, 'interpreter': sys.executable},
                                 'batch_size': 8, 'workers': 1, 'on_error': 'replace', 'max_errors': 1},
                                runtime_dir=private.runtime, timeout=20 * SLOWDOWN)
        with self.assertWarnsRegex(UserWarning, '2 of the 20 rows'):
            numbers = [number for _, batch in loader for number in batch.tolist()]
        self.assertEqual(len(numbers), 20)
        self.assertFalse({0, 7} & set(numbers))
        there = private.status()
        self.assertFalse(there['pipelines'][0]['deterministic'])
        self.assert_verified(private)
        os.kill(there['pid'], signal.SIGKILL)
        wait_for(lambda: not is_alive(there['workers'][0]['pid']))
        loader.close()

    def assert_verified(self, private):
        output = subprocess.run([os.path.join(BIN, 'pinfeedctl'), '--runtime-dir', private.runtime, 'verify', 'bad'],
                                stdout=subprocess.PIPE, text=True, timeout=30 * SLOWDOWN).stdout
        for number in (0, 7):
            self.assertIn(f'ValueError: bad {number}', output)


# What a dataset is refused for: the error's type, and words.
REFUSALS = {
    'syntax': ('tables.broken:f', {}, {}, 'builtins.SyntaxError', ['broken.py, line 1']),
    'import': ('tables.importing:f', {}, {}, 'builtins.ModuleNotFoundError', ["No module named 'nosuch'", 'importing.py']),
    'module': ('tables.none:f', {}, {}, 'builtins.ModuleNotFoundError', ["no module 'tables.none'", '/code', sys.executable]),
    'name': ('tables.mod:nix', {}, {}, 'builtins.AttributeError', ["no attribute 'nix'"]),
    'arguments': ('tables.mod:varying', {'b': 1}, {}, 'builtins.TypeError', ["unexpected keyword argument 'b'"]),
    'samples': ('tables.mod:Bad', {'at': [0, 1], 'samples': 3}, {}, 'builtins.ValueError', ['bad 0']),
    'text': ('tables.mod:give', {'value': [['a', 1], ['b', 2]]}, {}, 'builtins.TypeError', ['field 0: str', 'pinfeed.DataLoader']),
    'varying': ('tables.mod:varying', {}, {}, 'builtins.ValueError', ['shape (4,), where the first sample has (3,)']),
    'numbered': ('tables.mod:numbered', {}, {}, 'builtins.TypeError', ['a dict with the key 1']),
    'long': ('tables.mod:give', {'value': [{'k' * 20000: 1}] * 2}, {}, 'builtins.ValueError', ['the layout of a sample takes']),
    'stream': ('tables.mod:Stream', {}, {}, 'builtins.TypeError', ['IterableDataset']),
    'empty': ('tables.mod:give', {'value': []}, {}, 'builtins.ValueError', ['list has no samples']),
    'number': ('tables.mod:give', {'value': 3}, {}, 'builtins.TypeError', ['gave builtins.int']),
    'more': ('tables.mod:give', {'value': [1, 2]}, {'samples': 3}, 'builtins.ValueError', ['samples: expected at most 2', 'got 3']),
}


@needs_torch
@needs_numpy
class Described(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.private = Private()
        cls.addClassCleanup(cls.private.stop)
        cls.code = write_module(cls.private.directory)

    def ask(self, dataset, args, more):
        """The answer of a worker that is to describe a dataset: its type, and its fields as bytes."""
        from pinfeed import worker

        recipe = json.dumps({'source': {'dataset': dataset, 'args': args, 'path': [self.code], 'samples': 0, **more}}).encode()
        text = worker.TEXT.pack(len(recipe)) + recipe
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            ours.send(worker.HEADER.pack(worker.DESCRIBE, 0, worker.HEADER.size + len(text)) + text)
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    worker._describe(theirs)
                os._exit(0)
            os.waitpid(pid, 0)
            ours.setblocking(False)
            answer = ours.recv(worker.RECORD_MAX)
        kind, _, length = worker.HEADER.unpack_from(answer)
        self.assertEqual(length, len(answer))
        return kind, answer[worker.HEADER.size:]

    def texts(self, fields):
        from pinfeed.worker import TEXT

        found = []
        while fields:
            length, = TEXT.unpack_from(fields)
            found.append(fields[TEXT.size:TEXT.size + length].decode())
            fields = fields[TEXT.size + length:]
        return found

    def test_refusals(self):
        from pinfeed import worker

        for name, (dataset, args, more, exception, words) in REFUSALS.items():
            with self.subTest(name):
                kind, fields = self.ask(dataset, args, more)
                self.assertEqual(kind, worker.BROKEN)
                _, text, there, _ = self.texts(fields[worker.BROKEN_FIELDS.size:])
                self.assertEqual(there, exception)
                for word in words:
                    self.assertIn(word, text)
                self.assertEqual(worker.BROKEN_FIELDS.unpack_from(fields)[1:3], (name == 'samples', 0))

    def described(self, dataset, args={}, more={}):
        from pinfeed import worker

        kind, fields = self.ask(dataset, args, more)
        self.assertEqual(kind, worker.DESCRIBED)
        return (*worker.DESCRIBED_FIELDS.unpack_from(fields), *self.texts(fields[worker.DESCRIBED_FIELDS.size:]))

    def test_datasets(self):
        self.assertEqual(self.described('tables.mod:Bad', {'at': [0, 2]})[:4], (20, 1, 'tables.mod.Bad', '0=float32[] 1=int64[]'))
        self.assertEqual(self.described('tables.mod:Bad', {'private': True})[:2], (20, 0))
        self.assertEqual(self.described('tables.mod:Bad', more={'samples': 1})[0], 1)
        self.assertEqual(self.described('tables.mod:Many')[:4], (20, 1, 'tables.mod.Many', 'data=int64[]'))
        self.assertEqual(self.described('tables.mod:give', {'value': [3, 4]})[:4], (2, 1, 'builtins.list', 'data=int64[]'))


@needs_torch
@needs_numpy
class Layout(unittest.TestCase):
    def learned(self, sample):
        from pinfeed import structure

        return structure.learn([sample, sample])

    def test_there_and_back(self):
        from pinfeed.structure import Structure

        found = self.learned({'a': (1, 2.5, True), 'b': [torch.zeros(2, 3, dtype=torch.complex64)]})
        again = Structure.from_json(found.to_json())
        self.assertEqual(again.spec, found.spec)
        self.assertEqual(again.identity(), found.identity())

    def test_what_is_none(self):
        from pinfeed.structure import Structure

        good = self.learned(torch.zeros(2)).to_json()
        for text in ('', '{}', '[]', '3', '{"leaf": []}', '{"exec": []}', good.replace('float32', 'Tensor'),
                     good.replace('[2]', '["2"]'), good.replace('null', '"system"'), '{"list":[' * 2000):
            with self.subTest(text[:40]), self.assertRaises(ValueError):
                Structure.from_json(text)


@needs_torch
class Program(unittest.TestCase):
    """python -m pinfeed.worker, by hand."""

    def run_worker(self, *arguments):
        return subprocess.run([sys.executable, '-m', 'pinfeed.worker', *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30 * SLOWDOWN)

    def test_usage(self):
        result = self.run_worker()
        self.assertEqual(result.returncode, 2)
        self.assertIn('--daemon', result.stdout)

    def test_another_parent(self):
        """The daemon has died before the worker could ask for a signal then."""
        self.assertEqual(self.run_worker('--daemon', '1').returncode, 0)


if __name__ == '__main__':
    unittest.main()
