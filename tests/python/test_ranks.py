# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks and seeds: who reads which rows, and who decides."""

import contextlib
import errno
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import pinfeed
from support import CONFIG, LONG, SLOWDOWN, Case, needs_numpy, needs_torch, numpy, start_script, torch, wait_for

GROUP = '''
import os, sys
import pinfeed, torch, torch.distributed as dist
dist.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
alone = dist.new_group([0])
loader = pinfeed.Loader('ramp', batch_size=10, group='run')
index = [sample for batch in loader for sample in batch[0].tolist()]
print('ROWS', *index)
if dist.get_rank() == 0:
    loader = pinfeed.Loader('ramp', process_group=alone)
    print('OF', loader.world_size)
dist.barrier()
'''

# Each rank notes the rows of each step, and rank 0 the state after it; all are at the same step.
STEPS = '''
import json, sys
import pinfeed, torch, torch.distributed as dist
directory, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group('gloo', init_method=f'file://{directory}/store', rank=rank, world_size=2)
loader = pinfeed.Loader('ramp', batch_size=10)
for index, _ in loader:
    with open(f'{directory}/{rank}', 'a') as file:
        print(json.dumps([loader.state_dict()['row'], index.tolist()]), file=file)
    dist.barrier()
    if rank == 0:
        with open(f'{directory}/state', 'a') as file:
            print(json.dumps(loader.state_dict()), file=file)
'''

TORCHRUN = '''
import json, os, sys
import pinfeed, torch, torch.distributed as dist
directory, run = sys.argv[1:]
dist.init_process_group('gloo')
rank = dist.get_rank()
loader = pinfeed.Loader('ramp', batch_size=10, group='run' + run, with_info=True)
if os.path.exists(directory + '/state'):
    with open(directory + '/state') as file:
        loader.load_state_dict(json.load(file))
for (index, _), info in loader:
    state = loader.state_dict()
    with open(f'{directory}/{run}.{rank}', 'a') as file:
        print(json.dumps([state['row'] or 1000, index[info.valid].tolist()]), file=file)
    dist.barrier()
    if rank == 0 and state['row']:
        with open(f'{directory}/{run}.state', 'a') as file:
            print(json.dumps(state), file=file)
dist.destroy_process_group()
'''


@needs_numpy
class Ranks(Case):
    config = CONFIG + '''
  validation:
    source: {type: synthetic, mode: ramp, samples: 50000, bytes: 8}
    batch_size: 256
    slots: 64
'''

    def count(self, world_size):
        """Rows of all ranks, less padding."""
        loaders = [self.loader('validation', rank=rank, world_size=world_size, with_info=True, output='numpy')
                   for rank in range(world_size)]
        seen = numpy.zeros(50000, int)
        rows = 0
        for batches in zip(*loaders):
            for (index, _), info in batches:
                numpy.add.at(seen, index[info.valid], 1)
                rows += len(index)
        self.assertTrue((seen == 1).all())
        return rows

    def test_validation_counts_each_row_once(self):
        self.assertEqual(self.count(1), 50000)
        self.assertIn(self.count(8), range(50000, 50008))
        self.assertIn(self.count(7), range(50001, 50007))  # 7 does not divide it: there is padding

    def test_both_or_neither(self):
        self.assertRaisesRegex(pinfeed.Invalid, 'give both or neither', self.loader, rank=1)
        self.assertRaisesRegex(pinfeed.Invalid, 'give both or neither', self.loader, world_size=1)
        self.assertRaisesRegex(pinfeed.Invalid, 'rank is 2 in a world_size of 2', self.loader, rank=2, world_size=2)
        self.assertRaisesRegex(pinfeed.Invalid, 'not initialised', self.loader, process_group=1)

    def test_torchrun_without_a_group(self):
        with mock.patch.dict(os.environ, RANK='1', WORLD_SIZE='4', LOCAL_RANK='1'):
            self.assertRaisesRegex(pinfeed.Invalid, 'init_process_group.*rank=1, world_size=4 for a share', self.loader)
            self.assertEqual(self.loader(rank=0, world_size=1).world_size, 1)
        with mock.patch.dict(os.environ, RANK='0', WORLD_SIZE='1'):
            self.assertEqual(self.loader().world_size, 1)

    def test_sweeps_are_not_ranks(self):
        with mock.patch.dict(os.environ, SLURM_PROCID='1', SLURM_NTASKS='4', OMPI_COMM_WORLD_RANK='1',
                             OMPI_COMM_WORLD_SIZE='4', PMI_RANK='1', PMI_SIZE='4'):
            loader = self.loader()
        self.assertEqual((loader.rank, loader.world_size), (0, 1))

    @needs_torch
    def test_process_group(self):
        with tempfile.TemporaryDirectory() as directory:
            ranks = [start_script(GROUP, directory + '/store', str(rank), PINFEED_RUNTIME_DIR=self.daemon.runtime,
                                  LOCAL_WORLD_SIZE='2')
                     for rank in range(2)]
            outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
        seen = []
        for rank, output in enumerate(outputs):
            self.assertIn(f"pinfeed: ramp: rank {rank} of 2, from torch.distributed's default group", output)
            seen += [int(word) for word in re.search('ROWS (.*)', output).group(1).split()]
        self.assertEqual(sorted(seen), list(range(1000)))
        self.assertIn('OF 1', outputs[0])

    @needs_torch
    def test_killed_and_resumed_on_other_world_sizes(self):
        with tempfile.TemporaryDirectory() as directory:
            ranks = [start_script(STEPS, directory, str(rank), PINFEED_RUNTIME_DIR=self.daemon.runtime)
                     for rank in range(2)]
            wait_for(lambda: len(read_lines(directory + '/state')) > 5, 60)  # torch is large, and imported twice
            for rank in ranks:
                rank.kill()
                rank.communicate()
            state = read_lines(directory + '/state')[-1]
            before = [sample for rank in range(2) for row, samples in read_lines(f'{directory}/{rank}')
                      if row <= state['row'] for sample in samples]
        self.assertEqual(len(before), state['row'])
        for world_size in (1, 4):
            loaders = [self.loader(rank=rank, world_size=world_size, batch_size=10, with_info=True, output='numpy')
                       for rank in range(world_size)]
            for loader in loaders:
                loader.load_state_dict(state)
            after = [sample for batches in zip(*loaders) for (index, _), info in batches
                     for sample in index[info.valid].tolist()]
            self.assertEqual(sorted(before + after), list(range(1000)))


    @unittest.skipUnless(LONG, 'PINFEED_TEST_LONG is not set')
    @needs_torch
    @unittest.skipIf(torch and torch.__version__ < '2' and sys.version_info >= (3, 11),
                     'torchrun 1.13 does not run on Python 3.11')
    def test_torchrun(self):
        """The same as a user does it: the launcher's process group is killed, and another launcher goes on."""
        with tempfile.TemporaryDirectory() as directory:
            script = directory + '/train.py'
            with open(script, 'w', encoding='ascii') as file:
                file.write(TORCHRUN)
            first = self.torchrun(2, script, directory, 'first')
            wait_for(lambda: len(read_lines(directory + '/first.state')) > 5, 60)
            os.killpg(first.pid, signal.SIGKILL)
            first.communicate()
            state = read_lines(directory + '/first.state')[-1]
            before = self.seen(directory, 'first', state['row'])
            self.assertEqual(len(before), state['row'])
            with open(directory + '/state', 'w', encoding='ascii') as file:
                json.dump(state, file)
            for ranks in (1, 4):
                again = self.torchrun(ranks, script, directory, str(ranks))
                output, _ = again.communicate(timeout=120 * SLOWDOWN)
                self.assertEqual(again.returncode, 0, output)
                self.assertEqual(sorted(before + self.seen(directory, str(ranks))), list(range(1000)))

    def torchrun(self, ranks, *arguments):
        return subprocess.Popen([sys.executable, '-B', '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node',
                                 str(ranks), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.STDOUT, start_new_session=True,
                                env=dict(os.environ, PINFEED_RUNTIME_DIR=self.daemon.runtime, OMP_NUM_THREADS='1'))

    def seen(self, directory, run, until=1000):
        """Samples of the steps up to a row, of all ranks that have noted them."""
        return [sample for rank in range(4) for row, samples in read_lines(f'{directory}/{run}.{rank}') if row <= until
                for sample in samples]


def read_lines(path):
    """What stands in the whole lines of a file that somebody writes."""
    try:
        with open(path, encoding='ascii') as file:
            return [json.loads(line) for line in file if line.endswith('\n')]
    except FileNotFoundError:
        return []


@needs_numpy
class Groups(Case):
    def rank(self, rank, group='run', **arguments):
        return self.loader(rank=rank, world_size=4, batch_size=10, group=group, output='numpy', **arguments)

    def test_a_missing_one_is_named(self):
        ranks = [self.rank(rank, gather_timeout=1) for rank in (0, 1, 3)]
        began = time.monotonic()
        for rank in ranks:
            for _ in range(2):  # for good
                with self.assertRaisesRegex(TimeoutError, r'^rank 2 of group run \(4 ranks\) did not come within 1 s'):
                    next(iter(rank))
        self.assertLess(time.monotonic() - began, 3 * SLOWDOWN)

    def test_all_have_come(self):
        ranks = [self.rank(rank) for rank in range(4)]
        other = [self.rank(rank, group='other') for rank in range(4)]  # another run, in the meantime
        for run in (ranks, other):
            seen = [sample for batches in zip(*run) for index, _ in batches for sample in index.tolist()]
            self.assertEqual(sorted(seen), list(range(1000)))

    def test_twice_the_same(self):
        ranks = [self.rank(rank) for rank in range(3)]
        with self.assertRaisesRegex(pinfeed.Error, r'^rank 1 of group run is there already \(job \d+, pid \d+\)') as caught:
            self.rank(1)
        self.assertEqual(caught.exception.errno, errno.EEXIST)
        ranks.append(self.rank(3))
        self.assertEqual({len(next(iter(rank))[0]) for rank in ranks}, {10})

    def test_others_that_do_not_match(self):
        self.rank(0)
        self.assertRaisesRegex(pinfeed.Error, 'batch_size is 20, but 10 for rank 0 of the same group run', self.loader, rank=1,
                               world_size=4, batch_size=20, group='run')

    @needs_torch
    def test_on_several_machines(self):
        """torchrun tells how many ranks are on this one; the others are not waited for."""
        with mock.patch.multiple(torch.distributed, is_initialized=lambda: True, get_rank=lambda group: 2,
                                 get_world_size=lambda group: 4), mock.patch.dict(os.environ, LOCAL_WORLD_SIZE='1'), \
                contextlib.redirect_stderr(io.StringIO()):
            loader = self.loader(batch_size=10, group='run', output='numpy')
        self.assertEqual((loader.rank, loader.world_size), (2, 4))
        self.assertEqual(sum(len(index) for index, _ in loader), 250)


@needs_numpy
class RoomForStates(Case):
    """Where ranks stand decides how many slots they need: three of them eight from row 0 and from row 96, nine from row 64,
    for the ends of their epochs lie otherwise. A state is given before the first batch."""

    config = CONFIG.replace('ramp:', 'eight:', 1).replace('slots: 64', 'slots: 8') + \
        CONFIG.replace('ramp:', 'nine:', 1).replace('slots: 64', 'slots: 9').replace('pipelines:', '')

    def ranks(self, pipeline):
        return [self.loader(pipeline, rank=rank, world_size=3, group='run', with_info=True, output='numpy')
                for rank in range(3)]

    def first_rows(self, pipeline, batches):
        with self.loader(pipeline, output='numpy') as loader:
            return [sample for _, (index, _) in zip(range(batches), loader) for sample in index.tolist()]

    def assert_the_rest(self, ranks, before):
        """Step by step, with at most two batches of a rank in use."""
        readers = [iter(rank) for rank in ranks]
        seen = list(before)
        for reader in itertools.cycle(readers):
            (index, _), info = next(reader, ((None, None), None))
            if info is None:
                break
            seen += index[info.valid].tolist()
        self.assertEqual(sorted(seen), list(range(1000)))

    def test_fits(self):
        for pipeline, row in (('eight', 96), ('nine', 64)):
            before = self.first_rows(pipeline, row // 32)
            ranks = self.ranks(pipeline)
            for rank in ranks:
                rank.load_state_dict(dict(rank.state_dict(), row=row))
            self.assert_the_rest(ranks, before)

    def test_does_not_fit(self):
        """All ranks are told, when they load it and with the number that helps, and stay where they were."""
        ranks = self.ranks('eight')
        for rank in ranks:
            with self.assertRaisesRegex(pinfeed.Error, r'^pipeline eight: the job cannot go to row 64 of epoch 0: the ranks of '
                                        r'group run need 9 slots there, other jobs 0 of 8; .* at least 9 slots') as caught:
                rank.load_state_dict(dict(rank.state_dict(), row=64))
            self.assertEqual(caught.exception.errno, errno.ENOSPC)
            self.assertEqual(rank.state_dict()['row'], 0)
        self.assert_the_rest(ranks, [])

    def test_does_not_fit_before_all_have_come(self):
        first = self.loader('eight', rank=0, world_size=3, group='run', output='numpy')
        with self.assertRaisesRegex(pinfeed.Error, 'the ranks of group run need 9 slots there'):
            first.load_state_dict(dict(first.state_dict(), row=64))

    def test_what_others_hold_is_waited_for(self):
        holder = self.loader('eight', seed=1, output='numpy')
        kept = [batch for _, batch in zip(range(4), holder)]
        self.loader('eight', seed=2, output='numpy')
        with self.loader('eight', output='numpy', timeout=0.3) as loader:
            state = dict(loader.state_dict(), row=5)
            with self.assertRaisesRegex(TimeoutError, r'the job has waited \d+ ms to go to row 5 of epoch 0, for slots that'):
                loader.load_state_dict(state)
            self.assertEqual(loader.state_dict()['row'], 0)
        wait_for(lambda: len(self.jobs()) == 2)
        loader = self.loader('eight', output='numpy')
        letting_go = threading.Timer(0.2, kept.clear)
        letting_go.start()
        loader.load_state_dict(state)
        self.assertFalse(kept)
        self.assertEqual(len(next(iter(loader))[0]), 32)
        letting_go.join()


@needs_numpy
class Seeds(Case):
    def order(self, **arguments):
        return next(iter(self.loader(output='numpy', **arguments)))[0].tolist()

    def test_given(self):
        self.assertEqual(self.order(), self.order(seed=0))
        self.assertNotEqual(self.order(), self.order(seed=1))
        self.assertEqual(self.loader(seed=2**64 - 1).seed, 2**64 - 1)

    @needs_torch
    def test_of_torch_is_used_when_asked_for(self):
        self.addCleanup(torch.seed)
        torch.manual_seed(17)
        self.assertEqual(self.loader(seed='torch').seed, 17)
        self.assertEqual(self.loader().seed, 0)

    @needs_torch
    def test_in_vain_is_told_once(self):
        self.addCleanup(torch.seed)
        torch.manual_seed(1)
        self.loader()
        self.assertRegex(self.jobs()[0]['name'], r' \(torch seed 1\)$')
        for seed, said in ((1, ''), (2, r'^pinfeed: ramp: torch.manual_seed\(2\) does not change what comes: '
                                        r".* seed 0 with jobs that have set 1; pass seed='torch'.*\n$"), (3, '')):
            torch.manual_seed(seed)
            with contextlib.redirect_stderr(io.StringIO()) as text:
                self.loader()
            self.assertRegex(text.getvalue(), said or '^$')
