# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Who keeps which memory, and for how long."""

import gc
import os
import resource
import threading
import time

import pinfeed
from support import LONG, Case, needs_numpy, needs_torch, ramp, torch, wait_for


class Memory(Case):
    config = '''
pipelines:
  ramp:
    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 3000}
    batch_size: 32
    shuffle: true
    slots: 64
  large:
    source: {type: synthetic, mode: ramp, samples: 400, bytes: 1M}
    batch_size: 40
    slots: 4
  small:
    source: {type: synthetic, mode: ramp, samples: 100000, bytes: 100}
    batch_size: 10
    slots: 64
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

    def descriptors(self):
        return len(os.listdir('/proc/self/fd')) + len(os.listdir(f'/proc/{self.daemon.process.pid}/fd'))

    def resident(self, pid='self'):
        with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
            text = file.read()
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(('Private_Dirty', 'Private_Clean')))

    def footprint(self):
        gc.collect()
        workers = [worker['pid'] for worker in pinfeed.status(self.daemon.runtime)['workers']]
        return self.descriptors(), self.resident(), sum(map(self.resident, [self.daemon.process.pid, *workers]))


