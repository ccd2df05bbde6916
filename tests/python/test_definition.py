# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Pipelines that are given as a dict or a file, and the private daemon that takes them."""

import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest
import warnings
from unittest import mock

import pinfeed
from pinfeed import definition as definitions
from pinfeed import programs
from support import (BIN, LONG, SLOWDOWN, Case, Private, assert_epoch, is_alive, needs_numpy, numpy, ramp, start_script,
                     wait_for)

RAMP = {'source': {'type': 'synthetic', 'mode': 'ramp', 'samples': 1000, 'bytes': 3000}, 'batch_size': 32, 'shuffle': True,
        'slots': 32, 'workers': 1}
ABSENT = {'batch_size': 4, 'transforms': [{'resize': {'size': [8, 8]}}]}  # once there is a source of images

# Starts the daemon, says so, and reads on until it is killed.
STARTER = f'''
import pinfeed
loader = pinfeed.Loader({RAMP!r}, output='numpy')
print('READY', loader._info['daemon_pid'], flush=True)
while True:
    for batch in loader:
        pass
'''

ONE_OF_MANY = f'''
import hashlib, pinfeed
input()
loader = pinfeed.Loader({RAMP!r}, output='numpy')
digest = hashlib.sha256()
for index, data in loader:
    digest.update(index.tobytes() + data.tobytes())
print('PID', loader._info['daemon_pid'], digest.hexdigest())
'''


class PrivateCase(unittest.TestCase):
    """Tests that share `private`."""

    def loader(self, pipeline=RAMP, **arguments):
        loader = pinfeed.Loader(pipeline, runtime_dir=self.private.runtime, output='numpy', timeout=20 * SLOWDOWN, **arguments)
        self.addCleanup(loader.close)
        return loader

    def assert_refused(self, kind, words, pipeline):
        with self.assertRaisesRegex(kind, words) as caught:
            self.loader(pipeline)
        return str(caught.exception)


class Definitions(PrivateCase):
    @classmethod
    def setUpClass(cls):
        cls.private = Private()
        cls.addClassCleanup(cls.private.stop)
        environment = mock.patch.dict(os.environ, cls.private.environment)
        environment.start()
        cls.addClassCleanup(environment.stop)

    def pipelines(self):
        return [pipeline['name'] for pipeline in self.private.status()['pipelines']]

    def write(self, content):
        """The path of a file with these bytes."""
        descriptor, path = tempfile.mkstemp('.yaml', dir=self.private.directory)
        with open(descriptor, 'wb') as file:
            file.write(content)
        return path

    # ---- what can be given ----

    @needs_numpy
    def test_dict(self):
        for _ in range(2):
            loader = self.loader()
            self.assertEqual((loader.pipeline, loader.batch_size, len(loader.dataset)), ('synthetic', 32, 1000))
            seen = []
            for index, data in loader:
                self.assertTrue((data == ramp(index, 0, 3000)).all())
                seen += index.tolist()
            self.assertEqual(sorted(seen), list(range(1000)))

    def test_name_of_a_dict(self):
        for pipeline, name in (
                ({'source': {'type': 'imagefolder', 'path': '/data/flowers/train'}}, 'train'),
                ({'source': {'type': 'imagefolder', 'path': pathlib.Path('/data/flowers')}}, 'flowers'),
                ({'source': {'type': 'imagefolder', 'path': b'/data/flowers/'}}, 'flowers'),
                ({'source': {'type': 'imagefolder', 'path': '/data/Größe 7'}}, 'Gr_e_7'),
                ({'source': {'type': 'imagefolder', 'path': '/' + 100 * 'x'}}, 64 * 'x'),
                ({'source': {'type': 'imagefolder', 'path': '/'}}, 'pipeline'),
                ({'source': {'type': 'imagefolder', 'path': '/x'}, 'name': 'mine'}, 'mine'),
                ({'source': {'type': 'synthetic'}}, 'synthetic'),
                ({'source': ['synthetic']}, 'pipeline'), ({}, 'pipeline')):
            with self.subTest(pipeline):
                self.assertEqual(definitions.read(pipeline).pipeline, name)

    def test_a_dict_is_left_as_it_is(self):
        pipeline = dict(RAMP, name='mine')
        self.assertEqual(self.loader(pipeline).pipeline, 'mine')
        self.assertEqual(pipeline, dict(RAMP, name='mine'))

    def test_document(self):
        self.assertEqual(self.loader({'pipelines': {'a': RAMP}}).pipeline, 'a')
        both = {'pipelines': {'a': RAMP, 'b': dict(RAMP, batch_size=8)}}
        self.assertEqual(self.loader(dict(both, name='b')).batch_size, 8)
        self.assert_refused(pinfeed.Invalid, '^the dict defines 2 pipelines, say which one is meant: a, b', both)
        self.assert_refused(pinfeed.NotFound, 'no pipeline "c" in the dict; there are: a, b', dict(both, name='c'))

    def test_paths_of_a_dict(self):
        for path in (pathlib.Path('/nowhere/train'), b'/nowhere/train',
                     '/nowhere/größe \U0001f600\u2028\\ud83d "quoted" \x7f'):
            pipeline = dict(ABSENT, source={'type': 'imagefolder', 'path': path})
            text = self.assert_refused(pinfeed.Error, 'No such file or directory', pipeline)
            self.assertIn(f'opening image folder {os.fsdecode(path)}: '.replace('\x7f', '?'), text)

    @needs_numpy
    def test_numbers_of_numpy(self):
        loader = self.loader(dict(RAMP, seed=numpy.uint64(1 << 63), batch_size=numpy.int32(8)))
        self.assertEqual((loader.seed, loader.batch_size), (1 << 63, 8))
        normalize = {'normalize': {'mean': numpy.zeros(3), 'std': numpy.array([0.5, 0, 1])}}
        self.assert_refused(pinfeed.Invalid, r'transforms\[1\].normalize.std: expected .*1e-12', dict(
            ABSENT, source={'type': 'imagefolder', 'path': '/x'}, transforms=[{'resize': {'size': [8, 8]}}, normalize]))

    def test_file(self):
        source = '{type: synthetic, mode: ramp, samples: 100}'
        one = self.write(f'pipelines:\n  one: {{source: {source}, batch_size: 5}}\n'.encode())
        two = self.write(f'pipelines:\n  a: {{source: {source}, batch_size: 5}}\n'
                         f'  b: {{source: {source}, batch_size: 4}}\n'.encode())
        for given in (one, pathlib.Path(one), one + ':one', os.path.relpath(one)):
            with self.subTest(given):
                with self.loader(given) as loader:
                    self.assertEqual((loader.pipeline, loader.batch_size), ('one', 5))
        self.assertEqual(self.loader(two + ':b').batch_size, 4)
        self.assert_refused(pinfeed.Invalid, f'{two} defines 2 pipelines, say which one is meant: a, b', two)
        self.assert_refused(pinfeed.NotFound, f'no pipeline "c" in {two}; there are: a, b', two + ':c')

    def test_paths_in_a_file_start_there(self):
        path = self.write(b'pipelines:\n  a: {source: {type: imagefolder, path: data}, batch_size: 4, '
                          b'transforms: [{resize: {size: [8, 8]}}]}\n')
        self.assert_refused(pinfeed.Error, f'{os.path.dirname(path)}/data: No such file', path)

    def test_equal_ones_share(self):
        name = 'shared'
        first = self.loader(dict(RAMP, name=name))
        again = self.loader(dict(reversed(list(dict(RAMP, name=name).items()))))
        self.assertEqual([each for each in self.pipelines() if each.startswith(name)], [name])
        self.assertEqual(len(self.private.status()['jobs']), 2)
        other = self.loader(dict(RAMP, name=name, batch_size=8))
        self.assertEqual([each for each in self.pipelines() if each.startswith(name)], [name, name + '#2'])
        self.assertEqual([loader.batch_size for loader in (first, again, other)], [32, 32, 8])

    def test_states(self):
        first = self.loader(dict(RAMP, name='states'))
        for _ in zip(range(3), first):
            pass
        again = self.loader(dict(RAMP, name='states'))
        again.load_state_dict(first.state_dict())
        self.assertEqual(again.remaining, 29)
        changed = self.loader(dict(RAMP, name='states', source=dict(RAMP['source'], bytes=3001)))
        self.assertRaises(pinfeed.Stale, changed.load_state_dict, first.state_dict())

    # ---- what cannot be ----

    def test_bad_dict(self):
        for change, words in (
                ({'batchsize': 3}, '^pipeline: batchsize: unknown key, the nearest known one is batch_size$'),
                ({'batchsize': 3, 'name': 'v1.0'}, '^pipeline: batchsize: unknown key'),
                ({'source': {'type': 'sinthetic'}}, '^pipeline: source.type: expected one of synthetic'),
                ({'transforms': [{'resize': {'sise': 3}}]}, r'^pipeline: transforms\[0\].resize.sise: unknown key'),
                ({'seed': None}, '^pipeline: seed: expected a whole number'),
                ({'seed': float('nan')}, '^pipeline: seed: expected a whole number.* got "NaN"'),
                ({1: 2}, '^pipeline: 1: unknown key'),
                ({'name': 'a b'}, '^pipeline: name: expected a name of 1 to 64 of .* got "a b"'),
                ({'name': 7}, '^pipeline: name: expected a text, got 7'),
                ({'seed': {1}}, r'^pipeline: expected a dict of plain numbers, texts, lists and dicts: got \{1\}'),
                ({(1, 2): 3}, '^pipeline: expected a dict of .*: keys must be str'),
                ({'source': {'type': 'imagefolder', 'path': b'/\xff'}}, "^pipeline: expected a dict of .*can't encode")):
            with self.subTest(change):
                self.assert_refused(pinfeed.Invalid, words, {**RAMP, **change})
        self.assert_refused(pinfeed.Invalid, "^pipeline: cpus: is the daemon's", {'cpus': 3, 'pipelines': {'a': RAMP}})
        self.assert_refused(pinfeed.Invalid, '^pipeline: pipelines.a.batchsize: unknown key',
                            {'pipelines': {'a': dict(RAMP, batchsize=3)}})
        self.assert_refused(pinfeed.Invalid, '^pipeline: source: expected', {})
        self.assert_refused(pinfeed.Invalid, 'at most 49152 are allowed', dict(RAMP, x=50000 * 'x'))

    def test_bad_file(self):
        for content, words in (
                (b'pipelines:\n  a: {source: {type: synthetic, samples: 9}, batch_sise: 4}\n',
                 r':2:46: pipelines\.a\.batch_sise: unknown key'),
                (b'pipelines:\n  a:\n\tsource: x\n', ':3:1: expected spaces, got a tab'),
                (b'pipelines:\n  \xff\n', " is no text in UTF-8: .*byte 0xff in position 13"),
                (b'a\0b', ' holds a NUL byte'), (b'', ' is empty: expected YAML'),
                (50000 * b'#', 'at most 49152 are allowed')):
            path = self.write(content)
            with self.subTest(words):
                text = self.assert_refused(pinfeed.Invalid, words, path)
                self.assertTrue(path in text or 'at most' in text, text)

    def test_bad_path(self):
        absent = os.path.join(self.private.directory, 'absent.yaml')
        self.assert_refused(FileNotFoundError, f'^pipeline: {absent}: No such file', absent)
        self.assert_refused(FileNotFoundError, f'^pipeline: {absent}: No such file', absent + ':a')
        self.assert_refused(FileNotFoundError, f'^pipeline: {absent}: No such file', pathlib.Path(absent))
        self.assert_refused(pinfeed.Error, 'Is a directory', self.private.directory)
        self.assert_refused(pinfeed.Invalid, 'got an empty text', '')
        for wrong in (7, b'ramp', [RAMP], None):
            self.assert_refused(TypeError, 'expected a name, the path of a YAML file or a dict, got', wrong)

    def test_no_program(self):
        with mock.patch.object(programs, 'find', return_value=None):
            self.assert_refused(FileNotFoundError, 'needs pinfeedd, which is neither beside this package nor on the PATH', RAMP)

    def test_programs(self):
        """In the package, in a `bin` above it, on the PATH; never the script of the same name, which would find itself."""
        directory = tempfile.mkdtemp(dir=self.private.directory)
        package = os.path.join(directory, 'lib/python3/site-packages/pinfeed')
        os.makedirs(package)
        places = [os.path.join(package, 'bin'), os.path.join(directory, 'bin'), os.path.join(directory, 'path')]
        with mock.patch.object(programs, '_HERE', package), mock.patch.dict(os.environ, PATH=places[2]):
            self.assertIsNone(programs.find('pinfeed-x'))
            for place in reversed(places):
                os.makedirs(place)
                program = os.path.join(place, 'pinfeed-x')
                os.symlink('/proc/self/exe', program)
                self.assertEqual(programs.find('pinfeed-x'), program)
            os.remove(program)
            with open(program, 'w', encoding='ascii') as file:
                file.write('#!/bin/sh\n')
            os.chmod(program, 0o755)
            self.assertEqual(programs.find('pinfeed-x'), os.path.join(places[1], 'pinfeed-x'))
            if os.geteuid() == 0:  # somebody else's
                shutil.copy('/proc/self/exe', program)
                os.chown(program, 1, 1)
                self.assertEqual(programs.find('pinfeed-x'), os.path.join(places[1], 'pinfeed-x'))


class OfAConfiguration(Case):
    def test_takes_no_definitions(self):
        with self.assertRaisesRegex(pinfeed.Refused, 'pipeline definitions are taken by a private daemon only; the one at '
                                                     f'{self.daemon.runtime} .* serves what stands in .*pinfeed.yaml'):
            self.loader(RAMP)


@needs_numpy
class PrivateDaemons(PrivateCase):
    def setUp(self):
        self.private = Private()
        self.addCleanup(self.private.stop)
        environment = mock.patch.dict(os.environ, self.private.environment)
        environment.start()
        self.addCleanup(environment.stop)

    def test_one_for_all_who_come_at_once(self):
        clients = [start_script(ONE_OF_MANY, options={'stdin': subprocess.PIPE}) for _ in range(4)]
        time.sleep(0.5)  # only to have them wait in input(), so that they come closer together
        for client in clients:
            client.stdin.write('\n')
            client.stdin.flush()
        outputs = {client.communicate(timeout=30 * SLOWDOWN)[0] for client in clients}
        self.assertEqual(len(outputs), 1, outputs)  # the same daemon, the same bytes
        self.assertEqual(outputs.pop().split()[:2], ['PID', str(self.private.pid())])
        self.assertEqual(self.private.starts(), 1)

    def test_is_nobodys_child(self):
        loader = self.loader()
        pid = loader._info['daemon_pid']
        self.assertEqual(os.getsid(pid), pid)
        self.assertNotEqual(os.getpgid(pid), os.getpgid(0))
        self.assertEqual(stat.S_IMODE(os.stat(self.private.runtime).st_mode), 0o700)
        loader.close()
        self.assertEqual(self.loader()._info['daemon_pid'], pid)  # it lingers

    def test_goes_when_nobody_needs_it(self):
        subprocess.run([os.path.join(BIN, 'pinfeedctl'), '--runtime-dir', self.private.runtime, 'run', '--linger', '1', '--',
                        'true'], check=True, stdin=subprocess.DEVNULL)
        loader = self.loader()
        pid = loader._info['daemon_pid']
        time.sleep(1.5)
        assert_epoch(self, loader, 0)  # it did not go under a job
        self.assertEqual((loader._info['daemon_pid'], loader.stats()['reconnects']), (pid, 0))
        loader.close()
        wait_for(lambda: not is_alive(pid), 5)
        self.assertEqual(self.private.pid(), 0)
        self.assertRaisesRegex(FileNotFoundError, 'no pinfeedd listens', self.loader, 'synthetic')  # a name starts none
        self.assertNotEqual(self.loader()._info['daemon_pid'], pid)

    def test_killed_under_readers(self):
        readers = [self.loader(), self.loader(batch_size=20)]
        for epoch in range(2):
            iterators = [iter(reader) for reader in readers]
            seen = [[], []]
            for step, batches in enumerate(zip(*iterators)):
                for rows, (index, data) in zip(seen, batches):
                    self.assertTrue((data == ramp(index, epoch, 3000)).all())
                    rows += index.tolist()
                if step == 10:
                    os.kill(self.private.pid(), signal.SIGKILL)
            for rows, iterator in zip(seen, iterators):
                rows += [sample for index, _ in iterator for sample in index.tolist()]
                self.assertEqual(sorted(rows), list(range(1000)))
        self.assertEqual([reader.stats()['reconnects'] for reader in readers], [2, 2])
        self.assertEqual(self.private.starts(), 3)

    def test_process_group_of_the_starter_is_killed(self):
        """Three others read on: on the same daemon, each byte right, none waits."""
        starter = start_script(STARTER, options={'start_new_session': True})
        self.addCleanup(starter.stdout.close)
        word, pid = starter.stdout.readline().split()
        self.assertEqual((word, int(pid)), ('READY', self.private.pid()))
        readers = [self.loader(), self.loader(batch_size=20), self.loader(seed=7)]
        reading = [iter(reader) for reader in readers]
        seen = [[], [], []]
        for step, batches in enumerate(zip(*reading)):
            for rows, (index, data) in zip(seen, batches):
                self.assertTrue((data == ramp(index, 0, 3000)).all())
                rows += index.tolist()
            if step == 10:
                os.killpg(starter.pid, signal.SIGKILL)
                self.assertEqual(starter.wait(), -signal.SIGKILL)
        self.assertEqual(sorted(seen[0]), list(range(1000)))
        for reader in readers:
            self.assertEqual((reader._job.info()['daemon_pid'], reader.stats()['reconnects']), (int(pid), 0))
            assert_epoch(self, reader, 1)
        self.assertEqual(self.private.starts(), 1)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, 'there is one processor only')
    def test_fewer_processors_than_ours_are_told(self):
        one = [min(os.sched_getaffinity(0))]
        first = start_script(STARTER, options={'preexec_fn': lambda: os.sched_setaffinity(0, one)})
        self.addCleanup(first.stdout.close)
        pid = first.stdout.readline().split()[1]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            self.loader()
            self.loader()
        first.kill()
        first.wait()
        self.assertEqual([each.filename for each in caught], [__file__])  # the line of loader(), once
        self.assertRegex(str(caught[0].message), rf'daemon \(pid {pid}\) may use 1 processors, this process \d+: the job that '
                                                 r"started it had fewer\. .*'pinfeedctl run'")

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, 'there is one processor only')
    def test_few_processors_on_purpose_are_not(self):
        config = os.path.join(self.private.directory, 'pinfeed.yaml')
        with open(config, 'w', encoding='ascii') as file:
            file.write('cpus: 1\npipelines: {other: {source: {type: synthetic, samples: 10, features: 2}, batch_size: 2}}\n')
        subprocess.run([os.path.join(BIN, 'pinfeedctl'), '--runtime-dir', self.private.runtime, 'run', '--config', config, '--',
                        'true'], check=True, stdin=subprocess.DEVNULL)
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            self.loader()
        self.assertEqual((self.private.status()['cpus'], self.private.status()['cpus_auto']), (1, False))

    def test_cannot_be_started(self):
        os.mkdir(self.private.runtime, 0o700)
        os.chmod(self.private.runtime, 0o777)
        self.assert_refused(pinfeed.Error, f'{self.private.runtime}.*', RAMP)
        os.rmdir(self.private.runtime)

    def test_starts_and_stops(self):  # B6
        times = 200 if LONG else 5
        for _ in range(times):
            loader = self.loader()
            next(iter(loader))
            pid = loader._info['daemon_pid']
            loader.close()
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not is_alive(pid))
        self.assertEqual(self.private.starts(), times)
