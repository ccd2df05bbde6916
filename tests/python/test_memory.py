# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Who keeps which memory, and for how long."""

import gc
import os
import random
import resource
import subprocess
import threading
import time

import pinfeed
from support import (CONFIG, LONG, Case, assert_epoch, needs_numpy, needs_torch, ramp, start_script, torch,
                     wait_for)

READ_ON_DEMAND = '''
import numpy, pinfeed
print('READY', flush=True)
input()
loader = pinfeed.Loader('wide', output='numpy')
for index, data in loader:
    data.max()  # touches each page
print('DONE', flush=True)
del index, data
input()
'''


class Memory(Case):
    config = CONFIG + '''  large:
    source: {type: synthetic, mode: ramp, samples: 400, bytes: 1M}
    batch_size: 40
    slots: 4
  wide:
    source: {type: synthetic, mode: ramp, samples: 400, bytes: 256K}
    batch_size: 16
    slots: 32
  small:
    source: {type: synthetic, mode: ramp, samples: 100000, bytes: 100}
    batch_size: 10
    slots: 64
  eight:
    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 3000}
    batch_size: 32
'''

    def assert_in_use(self, reading):
        """That a job which may hold one batch gets no other."""
        self.assertRaisesRegex(pinfeed.Error, 'the last 1 batches are all in use', next, reading)

    @needs_numpy
    def test_views_keep_the_slot(self):
        reading = iter(self.loader(output='numpy', max_held_batches=1))
        index, data = next(reading)
        part = data[3:5, 10:]
        want = part.copy()
        del data
        self.assert_in_use(reading)
        del index
        self.assert_in_use(reading)
        self.assertTrue((part == want).all())
        del part
        for _ in range(3):
            next(reading)

    @needs_torch
    def test_zero_copy_ends_with_the_last_view_on_any_thread(self):
        reading = iter(self.loader(output='torch', zero_copy=True, max_held_batches=1))
        index, data = next(reading)
        views = [data[5].reshape(30, 100)]
        want = ramp(index[5:6], 0, 3000).reshape(30, 100)
        del data, index
        self.assert_in_use(reading)
        self.assertTrue((views[0].numpy() == want).all())
        thread = threading.Thread(target=views.clear)
        thread.start()
        thread.join()
        next(reading)

    @needs_torch
    def test_a_copy_keeps_no_slot(self):
        batches = [data for _, data in self.loader(output='torch', max_held_batches=1)]
        self.assertEqual(len(batches), 32)

    @needs_torch
    def test_copies_are_made_in_used_memory(self):
        places = set()
        for _ in range(3):
            for _, data in self.loader(output='torch'):
                places.add(data.data_ptr())
                self.assertEqual(data.data_ptr() % 4096, 0)
        self.assertLess(len(places), 10)

    @needs_torch
    def test_copies_fault_no_pages(self):
        loader = self.loader('large', output='torch')
        for _ in loader:
            pass
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in loader:
            pass
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, 1000)  # of 102,400 pages

    @needs_torch
    def test_a_view_of_a_copy_keeps_it(self):
        loader = self.loader(output='torch')
        kept, want = [], []
        for index, data in loader:
            kept.append(data[1])
            want.append(data[1].clone())
        loader.close()
        del loader, data, index
        self.assertTrue(all(map(torch.equal, kept, want)))

    @needs_numpy
    def test_views_outlive_the_loader(self):
        for end in ('close', 'drop'):
            loader = self.loader(output='numpy')
            index, data = next(iter(loader))
            loader.close()
            self.assertRaisesRegex(pinfeed.Error, 'the loader is closed', iter, loader)
            self.assertTrue((data == ramp(index, 0, 3000)).all())
            self.assertEqual(len(self.jobs()), 1)
            del index, data
            wait_for(lambda: not self.jobs())

    @needs_numpy
    def test_a_loader_without_a_name_is_gone(self):
        loader = pinfeed.Loader('ramp', runtime_dir=self.daemon.runtime, output='numpy')
        gc.disable()
        self.addCleanup(gc.enable)
        next(iter(loader))
        del loader
        wait_for(lambda: not self.jobs())

    @needs_numpy
    def test_too_many(self):
        reading = iter(self.loader(output='numpy', max_held_batches=3))
        kept = [next(reading) for _ in range(3)]
        with self.assertRaisesRegex(pinfeed.Error, r'the last 3 batches are all in use .*\.copy\(\)'):
            next(reading)
        del kept[0]
        index, data = next(reading)  # the fourth: nothing was lost
        self.assertTrue((data == ramp(index, 0, 3000)).all())
        self.assertEqual(reading._loader.state_dict()['row'], 4 * 32)

    @needs_numpy
    def test_loaders_that_nobody_reads(self):
        """They have two slots each and no more, also with a state, so that a ring of eight has room for one that reads."""
        unread = [self.loader('eight', seed=seed, output='numpy') for seed in (1, 2, 3)]
        for loader in unread[1:]:
            loader.load_state_dict(dict(loader.state_dict(), row=64))
        wait_for(lambda: [job['held'] for job in self.jobs()] == [2, 2, 2])
        assert_epoch(self, self.loader('eight', output='numpy'), 0)
        self.assertEqual([job['leased'] for job in self.jobs()][:3], [2, 2, 2])
        for loader, rows in zip(unread, (1000, 936, 936)):
            self.assertEqual(sum(len(index) for index, _ in loader), rows)

    @needs_numpy
    def test_a_cycle_of_references_is_not_in_use(self):
        gc.disable()
        self.addCleanup(gc.enable)
        reading = iter(self.loader(output='numpy', max_held_batches=2))
        for _ in range(6):
            cycle = [next(reading)]
            cycle.append(cycle)
            del cycle
        gc.collect()

    @needs_numpy
    def test_leaving_early_costs_little(self):  # A18, D10, K3
        other = iter(self.loader(output='numpy'))
        next(other)
        before = self.footprint()
        mappings = self.mappings()
        slow = 0
        for _ in range(1000 if LONG else 100):
            began = time.monotonic()
            loader = pinfeed.Loader('ramp', runtime_dir=self.daemon.runtime, output='numpy')
            for batch in zip(range(3), loader):
                del batch  # it would keep the job
            loader.close()
            slow += time.monotonic() - began > 0.05
        self.assertEqual(self.mappings(), mappings)
        self.assertLess(slow, 10)  # on a machine that does other things, too
        wait_for(lambda: self.descriptors() <= before[0])
        self.assertLess(self.resident() - before[1], 3000)
        index, data = next(other)
        self.assertTrue((data == ramp(index, 0, 3000)).all())
        print(f'# {slow} of the attachments took more than 50 ms')

    @needs_numpy
    def test_eight_come_and_go(self):  # A18
        """At random; what has been looked up and dropped is unmapped, here and in the daemon."""
        choose = random.Random(1)
        before = None
        loaders = [None] * 8
        total = 10000 if LONG else 400
        for step in range(total):
            k = choose.randrange(8)
            if loaders[k]:
                loaders[k].close()
                loaders[k] = None
                continue
            loaders[k] = pinfeed.Loader('ramp', runtime_dir=self.daemon.runtime, output='numpy', seed=choose.randrange(3))
            if choose.random() < 0.7:
                index, data = next(iter(loaders[k]))
                self.assertTrue((data == ramp(index, 0, 3000)).all())
                del index, data
            if step > 50 and before is None:
                before = self.all_mappings()
        for loader in filter(None, loaders):
            loader.close()
        self.assertEqual(self.mappings(), 0)
        self.assertLessEqual(self.all_mappings()[1], before[1])
        self.assertLess(self.all_mappings()[0], before[0] + 10)  # the allocator's own come and go
        print(f'# {total} times: mappings of process and daemon {before} -> {self.all_mappings()}')

    @needs_numpy
    def test_clients_share_one_ring(self):  # K4
        clients = [start_script(READ_ON_DEMAND, options={'stdin': subprocess.PIPE}, PINFEED_RUNTIME_DIR=self.daemon.runtime)
                   for _ in range(8)]
        for client in clients:
            self.addCleanup(client.communicate)
            self.assertEqual(client.stdout.readline(), 'READY\n')
        sizes = [self.total_of(clients)]
        for first, end in ((0, 1), (1, 4), (4, 8)):
            for client in clients[first:end]:
                client.stdin.write('\n')
                client.stdin.flush()
                self.assertEqual(client.stdout.readline(), 'DONE\n')
            sizes.append(self.total_of(clients))
        print(f'# MiB (Pss) of daemon, workers and 8 clients, of whom 0, 1, 4, 8 read: {[size // 1024 for size in sizes]}')
        self.assertGreater(sizes[1] - sizes[0], 64 * 1024)  # the ring
        self.assertLess(sizes[1] - sizes[0], 150 * 1024)
        self.assertLess(sizes[2] - sizes[1], 3 * 5 * 1024)
        self.assertLess(sizes[3] - sizes[2], 4 * 5 * 1024)

    def total_of(self, clients):
        workers = [worker['pid'] for worker in pinfeed.status(self.daemon.runtime)['workers']]
        return sum(self.pss(pid) for pid in [self.daemon.process.pid, *workers, *(client.pid for client in clients)])

    @needs_torch
    def test_reading_on_takes_no_more_memory(self):
        loader = self.loader('small', output='torch', with_info=True)
        kinds = [loader, self.loader('small', output='numpy', with_info=True)]
        for each in kinds:
            for _ in zip(range(1000), each):
                pass
        before = self.footprint()
        total = 100000 if LONG else 5000
        for each in kinds:
            done = 0
            while done < total:
                for (index, data), info in each:
                    done += 1
        after = self.footprint()
        print(f'# {total} batches each: descriptors {before[0]} -> {after[0]}, KiB resident {before[1]} -> {after[1]}, '
              f'daemon and workers {before[2]} -> {after[2]}')
        wait_for(lambda: self.descriptors() <= before[0])
        self.assertLess(after[1] - before[1], 2000)
        self.assertLess(after[2] - before[2], 2000)

    def mappings(self):
        """Rings that are mapped."""
        with open('/proc/self/maps', encoding='utf-8') as file:
            return sum('pinfeed-' in line for line in file)

    def all_mappings(self):
        counts = []
        for pid in ('self', self.daemon.process.pid):
            with open(f'/proc/{pid}/maps', encoding='utf-8') as file:
                counts.append(len(file.readlines()))
        return tuple(counts)

    def pss(self, pid):
        with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
            return next(int(line.split()[1]) for line in file if line.startswith('Pss:'))

    def descriptors(self):
        return len(os.listdir('/proc/self/fd')) + len(os.listdir(f'/proc/{self.daemon.process.pid}/fd'))

    def resident(self, pid='self'):
        """Of its own making. What is private now may have been shared before, with a child of an earlier test."""
        with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
            return next(int(line.split()[1]) for line in file if line.startswith('Anonymous:'))

    def footprint(self):
        gc.collect()
        workers = [worker['pid'] for worker in pinfeed.status(self.daemon.runtime)['workers']]
        return self.descriptors(), self.resident(), sum(map(self.resident, [self.daemon.process.pid, *workers]))


