# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Loaders with a device, and scripts that move batches themselves: torch over a fake CUDA runtime (fake_torch.py).

Bytes are looked at by read(), which runs on a stream of the user's, late, as a kernel does. And the fake complains of what a
GPU would leave to chance; at the end of each case it must have nothing to say, and nothing may be left of the device.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import pinfeed
from support import BUILD, SLOWDOWN, Case, Private, needs_numpy, needs_torch, ramp, torch, wait_for

FAKE = os.path.join(BUILD, 'tests/support/libcudart-fake.so')
HERE = os.path.dirname(os.path.abspath(__file__))

# As for torch's DataLoader, but for the line that makes the loader.
ARTICLE = '''
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
loader = pinfeed.Loader("two", pin_memory=True)
for epoch in range(3):
    for inputs, labels in loader:
        inputs = inputs.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        train(epoch, inputs, labels)
loader.close()
'''


@needs_torch
@needs_numpy
@unittest.skipIf(torch is not None and torch.version.cuda, 'torch has brought a CUDA runtime, which comes before the fake')
class Gpu(Case):
    """With two devices. That of the loaders is the second one, and the first is the thread's."""

    config = '''
pipelines:
  two:
    source: {type: synthetic, mode: ramp, samples: 40, bytes: 256K}
    batch_size: 8
    slots: 2
  ramp:
    source: {type: synthetic, mode: ramp, samples: 500, bytes: 3000}
    batch_size: 16
    shuffle: true
    slots: 8
  slow:
    source: {type: synthetic, mode: ramp, samples: 100, bytes: 10, delay_us: 100000}
    batch_size: 2
    workers: 1
  large:
    source: {type: synthetic, mode: ramp, samples: 256, bytes: 1M}
    batch_size: 64
    slots: 2
'''

    @classmethod
    def setUpClass(cls):
        os.environ['PINFEED_LIBCUDART'] = FAKE
        cls.addClassCleanup(os.environ.pop, 'PINFEED_LIBCUDART')
        super().setUpClass()
        cls.addClassCleanup(super().tearDownClass)
        import fake_torch

        cls.fake = fake_torch
        cls.fake.runtime.set('devices=2')

    @classmethod
    def tearDownClass(cls):
        pass

    def setUp(self):
        super().setUp()
        self.addCleanup(self.fake.install())
        self.addCleanup(self.finish)
        self.seen = []

    def finish(self):
        runtime = self.fake.runtime
        runtime.set('fail=none delay_us=0 hash=1048576')
        runtime.fake_cuda_go()
        self.seen.clear()
        gc.collect()
        self.fake.clear()
        report = runtime.report()
        left = {name: report[name] for name in ('registrations', 'host_allocations', 'device_allocations', 'streams', 'events')}
        self.assertEqual((report['violations'], {name: n for name, n in left.items() if n}), ([], {}))

    def loader(self, name='ramp', device='cuda:1', **arguments):
        return super().loader(name, device=device, **arguments)

    def look(self, epoch, index, data):
        """Reads the batch in the current stream."""
        self.seen.append((epoch, self.fake.read(index), self.fake.read(data)))

    def check(self, epochs=None):
        """What look() has read: each row right. The samples, in the order that they came in."""
        for device in range(2):
            if self.fake.runtime.fake_cuda_context(device):
                with self.fake.Device(device):
                    self.fake.synchronize()
        samples = []
        for epoch, index, data in self.seen:
            self.assertTrue((data.numpy() == ramp(index.numpy(), epoch, data.shape[1])).all())
            samples += index.tolist()
        self.seen.clear()
        if epochs:
            n = len(samples) // epochs
            self.assertEqual([sorted(samples[i * n:(i + 1) * n]) for i in range(epochs)], [list(range(n))] * epochs)
        return samples

    def queries(self):
        """How often somebody has asked for the end of a copy."""
        return self.fake.runtime.report()['calls'].get('cudaEventQuery', 0)

    def wait_until_sent(self, n):
        """So many batches, since its beginning, to the last loader."""
        wait_for(lambda: self.jobs()[-1]['batches'] >= n)

    # ---- bytes ----

    def test_script_that_moves_batches_itself(self):
        """A ring of two slots, and copies that run late: what is copied from must be the script's own, and stay."""
        self.fake.runtime.set('delay_us=1000')
        self.fake.runtime.fake_cuda_hold()
        os.environ['PINFEED_RUNTIME_DIR'] = self.daemon.runtime
        self.addCleanup(os.environ.pop, 'PINFEED_RUNTIME_DIR')

        def train(epoch, inputs, labels):
            self.look(epoch, inputs, labels)
            if len(self.seen) == 4:  # that far a script can be ahead of its device
                self.fake.runtime.fake_cuda_go()

        for script in (ARTICLE, ARTICLE.replace('pin_memory=True', 'pin_memory=True, device=device')):
            exec(script, {'torch': torch, 'pinfeed': pinfeed, 'train': train})
            self.check(epochs=3)

    def test_epochs_with_two_slots(self):
        for pin, settings in (('require', 'delay_us=0'), ('require', 'delay_us=2000'), ('never', 'delay_us=2000')):
            with self.subTest(pin=pin, settings=settings):
                self.fake.runtime.set(settings)
                loader = self.loader('two', pin=pin)
                with warnings.catch_warnings():
                    warnings.simplefilter('error')
                    for epoch in range(4):
                        for index, data in loader:
                            self.assertEqual((index.shape, data.shape), ((8,), (8, 256 << 10)))
                            self.assertEqual((data.device, data.dtype), (torch.device('cuda:1'), torch.uint8))
                            self.assertIs(data.to('cuda:1', non_blocking=True), data)
                            self.look(epoch, index, data)
                            del index, data  # whose memory the next ones may have
                copies = loader._job.info()['copies']
                stats = loader.stats()
                loader.close()
                self.check(epochs=4)
                if pin == 'require':
                    self.assertEqual((copies, stats['map'], stats['registered']), (0, 'pinned', '2/2'))
                else:
                    self.assertEqual((copies, stats['map'], stats['registered']), (4 * 40 * (8 + (256 << 10)), 'read-only', '0/2'))

    def test_the_thread_copies_nothing(self):
        """A batch of 64 MiB costs it little more than one of 48 KB, and that is mostly fake_torch's and the fake's; to copy the
        bytes would take ten times as long. test-J-copies.c has the same without Python, against a millisecond."""
        self.fake.runtime.set('hash=4096')  # bytes that the fake looks at when a copy is queued
        times = {}
        for name in ('ramp', 'large'):
            loader = self.loader(name, pin='require')
            spent = []
            for epoch in range(3):
                reading = iter(loader)
                for _ in range(4):
                    wait_for(lambda: self.jobs()[0]['held'])
                    began = time.thread_time()
                    batch = next(reading)
                    spent.append(time.thread_time() - began)
                    del batch
            self.assertEqual(loader._job.info()['copies'], 0)
            loader.close()
            times[name] = min(spent[4:])  # all slots of the large one have been seen
        print('# next() at best: ' + ', '.join(f'{name} {1000 * spent:.2f} ms of the thread' for name, spent in times.items()))
        self.assertLess(times['large'] - times['ramp'], 0.003 * SLOWDOWN)

    def test_one_batch_ahead(self):
        """While the loop's stream is busy the next batch is copied, and its slot is free for another one."""
        for held in (1, 2, 4):  # with one there may not be a next one yet
            loader = self.loader(max_held_batches=held)
            reading = iter(loader)
            before = self.fake.runtime.report()
            self.look(0, *next(reading))
            self.wait_until_sent(1 + held)
            with self.fake.busy(torch.cuda.current_stream(1)):
                self.look(0, *next(reading))
                if held > 1:
                    wait_for(lambda: self.fake.runtime.report()['copies_done'] - before['copies_done'] == 2 * (3 + 1))
                    self.wait_until_sent(3 + held)
            self.assertEqual((loader.state_dict()['row'], loader.remaining), (32, 30))
            for batch in reading:
                self.look(0, *batch)
            del batch
            self.assertEqual(self.fake.runtime.report()['copies_queued'] - before['copies_queued'], 2 * (32 + 32))
            loader.close()
            self.check(epochs=1)

    def test_another_stream(self):
        loader = self.loader()
        with torch.cuda.device(1):
            mine, other = torch.cuda.Stream(), torch.cuda.Stream()
            self.fake.runtime.set('delay_us=500')
            for index, data in loader:
                other.wait_stream(torch.cuda.current_stream())  # the caller's duty, as is record_stream
                with torch.cuda.stream(other):
                    self.look(0, index, data)
                    index.record_stream(other)
                    data.record_stream(other)
            with torch.cuda.stream(mine):
                for index, data in loader:
                    self.look(1, index, data)
                    del index, data
        loader.close()
        self.check(epochs=2)

    def test_types_and_info(self):
        loader = self.loader(fields=['data'], with_info=True, last_batch='pad')
        for step, (batch, info) in enumerate(loader):
            self.assertEqual(list(batch), ['data'])
            self.assertEqual((info.row, info.ids.device.type, info.valid.dtype), (16 * step, 'cpu', torch.bool))
            self.seen.append((0, info.ids, self.fake.read(batch['data'])))
        self.assertEqual(info.valid.tolist(), [True] * 4 + [False] * 12)
        loader.close()
        del batch
        self.check()

    # ---- what the loop has got ----

    def test_states(self):
        first = self.loader()
        reading = iter(first)
        for step in range(10):
            self.wait_until_sent(min(step, 1) * (step + 2))  # so the next one is there
            self.look(0, *next(reading))
        state = first.state_dict()
        self.assertEqual(state['row'], 160)
        with self.loader() as second:
            second.load_state_dict(state)
            for batch in second:
                self.look(0, *batch)
        del batch
        samples = self.check(epochs=1)

        first.load_state_dict(dict(state, row=32))  # away from what is in flight
        for batch in first:
            self.look(0, *batch)
        self.assertEqual(self.check(), samples[32:])
        for batch in first:
            self.look(1, *batch)
        del batch
        first.close()
        self.check(epochs=1)

    def test_loops_that_are_left(self):
        loader = self.loader()
        for epoch in range(5):
            for step, batch in enumerate(loader):
                if epoch % 2 and step == 3:
                    break
                if epoch % 2 == 0:
                    self.look(epoch, *batch)
            del batch
        loader.close()
        self.check(epochs=3)

    def test_interrupts_lose_nothing(self):
        """Wherever they come between the batch and the loop."""
        from pinfeed import gpu
        loader = self.loader()
        reading = iter(loader)
        self.look(0, *next(reading))
        steps = ('_begin', '_land', '_begin_ahead', 'info', '_queue', 'arrange')
        whole = {step: getattr(gpu.Arriving, step) for step in steps}

        def interrupt(step, late):
            def call(*arguments):
                setattr(gpu.Arriving, step, whole[step])
                if late:
                    whole[step](*arguments)
                signal.raise_signal(signal.SIGINT)

            return call

        for step in steps:
            for late in (False, True):
                for _ in range(2):
                    row = loader.state_dict()['row']
                    self.wait_until_sent(row // 16 + 2)
                    setattr(gpu.Arriving, step, interrupt(step, late))
                    self.addCleanup(setattr, gpu.Arriving, step, whole[step])
                    self.assertRaises(KeyboardInterrupt, next, reading)
                    self.assertEqual(loader.state_dict()['row'], row)
                    self.look(0, *next(reading))
        gpu.Arriving._begin_ahead = interrupt('_begin_ahead', True)
        self.assertRaises(KeyboardInterrupt, next, reading)
        loader.load_state_dict(loader.state_dict())  # neither of the two in flight is the next one now
        for batch in loader:
            self.look(0, *batch)
        del batch
        loader.close()
        self.check(epochs=1)

    def test_daemon_killed_and_started_again(self):  # J13
        loader = self.loader()
        for epoch in range(2):
            for step, batch in enumerate(loader):
                self.look(epoch, *batch)
                if step == 10:
                    self.daemon.kill()
                    self.daemon.start()
            del batch
        self.assertEqual(loader.stats()['reconnects'], 2)
        self.assertEqual(loader._job.info()['copies'], 0)
        loader.close()
        self.check(epochs=2)

    # ---- what is refused ----

    def test_capture(self):
        runtime = self.fake.runtime
        loader = self.loader()
        reading = iter(loader)
        graph = ctypes.c_void_p()
        with torch.cuda.device(1):
            capturing = torch.cuda.Stream()
            for _ in range(2):
                self.look(0, *next(reading))
                with torch.cuda.stream(capturing):
                    runtime.cudaStreamBeginCapture(capturing.handle, 0)
                    with self.assertRaisesRegex(pinfeed.Error, 'is being captured into a CUDA graph.* take the batch before'):
                        next(reading)
                    runtime.cudaStreamEndCapture(capturing.handle, ctypes.byref(graph))
        for batch in reading:
            self.look(0, *batch)
        del batch
        loader.close()
        self.check(epochs=1)

    def test_a_copy_that_fails(self):  # J10
        """Whether it is that of the batch or of the next one: the batch's next() says so, and trying again is fine."""
        other = self.loader('two')
        words = r'copying rows \d+\+16 of epoch 0 to cuda:1: field index: cudaMemcpyAsync failed: cudaErrorLaunchFailure \(719\)'
        for held in (1, 4):  # with one held, and that still being copied, there is no next one
            loader = self.loader(max_held_batches=held)
            reading = iter(loader)
            self.fake.runtime.fake_cuda_hold()
            self.look(0, *next(reading))
            self.wait_until_sent(held)
            if held > 1:
                self.look(0, *next(reading))
            self.fake.runtime.set('fail=cudaMemcpyAsync:1:719:1')
            self.fake.runtime.fake_cuda_go()
            if held > 1:
                self.look(0, *next(reading))
            self.assertRaisesRegex(pinfeed.Error, words, next, reading)
            for batch in reading:
                self.look(0, *batch)
            del batch
            loader.close()
            self.check(epochs=1)
        for batch in other:
            self.look(0, *batch)
        del batch
        other.close()
        self.check(epochs=1)

    def test_a_copy_that_may_have_failed(self):
        """The library says it once, when the loader looks for the next batch; next() says it when it has no other one."""
        self.fake.runtime.fake_cuda_hold()
        loader = self.loader()
        reading = iter(loader)
        self.look(0, *next(reading))
        self.wait_until_sent(4)
        self.daemon.process.send_signal(signal.SIGSTOP)  # or it would use slots again that the library gives up by mistake
        try:
            self.look(0, *next(reading))
            self.fake.runtime.set('fail=cudaEventQuery:5:719:2')
            asked = self.queries()
            wait_for(lambda: self.queries() > asked + 10)
            self.fake.runtime.fake_cuda_go()
            with torch.cuda.device(1):
                self.fake.synchronize()
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        self.look(0, *next(reading))
        self.assertRaisesRegex(pinfeed.Error, r'copies of rows \d+\+16 of epoch 0 to cuda:1 may not have arrived: cudaEventQuery '
                                              'failed: cudaErrorLaunchFailure', next, reading)
        for batch in reading:
            self.look(0, *batch)
        del batch
        loader.close()
        self.check(epochs=1)

    def test_no_memory_for_the_next_batch(self):
        loader = self.loader()
        refused = []

        def refuse(*unused):
            refused.append(True)
            raise RuntimeError('CUDA out of memory')

        reading = iter(loader)
        self.look(0, *next(reading))
        self.wait_until_sent(3)
        with mock.patch.object(self.fake.device_memory, 'take', refuse):
            batch = next(reading)
        self.assertTrue(refused)
        self.look(0, *batch)
        for batch in reading:
            self.look(0, *batch)
        del batch
        loader.close()
        self.check(epochs=1)

    def test_page_locking_that_fails(self):  # J4
        for fails in (1, 3):
            self.fake.runtime.set(f'fail=none fail=cudaHostRegister:{fails}:2')
            loader = self.loader('ramp')
            with self.assertWarnsRegex(UserWarning, r'^ramp: the ring could not be page-locked for cuda:1, so .*cudaHostRegister '
                                                    r'failed: cudaErrorMemoryAllocation') as caught:
                for batch in loader:
                    self.look(0, *batch)
            del batch
            self.assertEqual((len(caught.warnings), caught.filename), (1, __file__))
            self.assertEqual((loader.stats()['map'], loader.stats()['registered']), ('read-only', f'{fails - 1}/8'))
            self.assertGreater(loader._job.info()['copies'], 0)
            loader.close()
            self.check(epochs=1)

            self.fake.runtime.set(f'fail=none fail=cudaHostRegister:{fails}:2')
            with self.assertRaisesRegex(pinfeed.Error, 'pin is require: .*cudaHostRegister failed'):
                for batch in self.loader('ramp', pin='require'):
                    del batch

    def test_contradictions(self):
        for arguments, words in (
                ({'output': 'numpy'}, "output='numpy' and device='cuda:1': batches on a GPU are tensors"),
                ({'output': 'dlpack'}, "output='dlpack' and device='cuda:1'"),
                ({'pin': 'always'}, "pin='always': expected 'auto' or 'require' or 'never'"),
                ({'device': None, 'pin': 'require'}, "pin='require': only a loader with a device"),
                ({'device': 'cuda:2'}, 'there is no cuda:2: this process sees 2 devices'),
                ({'device': 7}, 'there is no cuda:7'),
                ({'device': 'mps'}, "device is 'mps', expected cpu, cuda or cuda:N"),
                ({'device': None, 'pin_memory': True, 'zero_copy': True}, "with device='cuda:0' it goes from the ring")):
            with self.subTest(arguments), self.assertRaisesRegex(pinfeed.Error, words):
                self.loader(**arguments)

    def test_names_of_devices(self):
        for device, current, name in ((1, 0, 'cuda:1'), (torch.device('cuda', 1), 0, 'cuda:1'), ('cuda:1', 0, 'cuda:1'),
                                      ('cuda', 1, 'cuda:1'), ('cuda', 0, 'cuda:0')):
            with torch.cuda.device(current), self.loader(device=device) as loader:
                self.assertIn(f', to {name}>', repr(loader))
        for device in ('cpu', torch.device('cpu'), None):
            with self.loader(device=device) as loader:
                self.assertNotIn(', to ', repr(loader))
                self.assertEqual((loader.stats()['map'], loader.stats()['registered']), ('read-only', '0/8'))

    # ---- batches in the ring ----

    def test_zero_copy(self):
        loader = self.loader(zero_copy=True, max_held_batches=2)
        reading = iter(loader)
        self.fake.runtime.fake_cuda_hold()
        batch = next(reading)
        for touch in (iter, len, lambda batch: batch[0], lambda batch: tuple(batch)):
            self.assertRaisesRegex(TypeError, r'lies in the ring.* Call batch.to\(device\)', touch, batch)
        self.assertRaisesRegex(pinfeed.Invalid, 'is of a loader for cuda:1', batch.to, 'cuda:0')
        self.assertRaisesRegex(pinfeed.Invalid, 'is of a loader for cuda:1', batch.to, 'cuda')
        self.assertRaisesRegex(pinfeed.Invalid, 'is of a loader for cuda:1', batch.to, 'cpu')
        for _ in range(2):
            self.look(0, *batch.to(torch.device('cuda', 1)))
        self.seen.pop()
        kept = [batch, next(reading)]
        with self.assertRaisesRegex(pinfeed.Error, 'the last 2 batches are all in use'):
            next(reading)
        del batch
        kept.pop(0)  # while it is being copied
        self.fake.runtime.fake_cuda_go()
        self.look(0, *kept.pop().to(1, non_blocking=False))
        for batch in reading:
            self.look(0, *batch.to('cuda:1', non_blocking=True))
        self.assertEqual(loader._job.info()['copies'], 0)
        loader.close()
        del batch
        self.check(epochs=1)

    def test_zero_copy_outlives_the_loader(self):
        loader = self.loader(zero_copy=True, fields=['index', 'data'], with_info=True)
        batch, info = next(iter(loader))
        loader.close()
        values = batch.to('cuda:1')
        self.assertEqual(list(values), ['index', 'data'])
        self.look(0, values['index'], values['data'])
        del values, batch
        wait_for(lambda: not self.jobs())
        self.assertEqual(self.check(), info.ids.tolist())

    def test_slots_are_page_locked(self):
        """Which is_pinned() asks CUDA."""
        loader = self.loader(zero_copy=True)
        batch = next(iter(loader))
        address = batch._batch.slot(1).__array_interface__['data'][0]
        attributes = (ctypes.c_uint64 * 16)()
        with torch.cuda.device(1):
            self.fake.runtime.cudaPointerGetAttributes(attributes, ctypes.c_void_p(address))
        self.assertEqual(attributes[0] & 0xffffffff, 1)  # cudaMemoryTypeHost
        batch._batch.release()
        self.assertRaises(ValueError, batch._batch.slot, 1)
        self.assertRaisesRegex(pinfeed.Error, 'it has been released', batch.to, 'cuda:1')
        self.assertRaisesRegex(pinfeed.Error, 'it has been released', batch._batch.ids)
        self.assertEqual((batch._batch.rows, batch._batch.row, batch._batch.replaced), (16, 0, 0))

    def test_another_thread_is_told(self):
        loader = self.loader('slow', zero_copy=True)
        loader._slice_ms = 10000  # or it would be between two of them now and then
        reading = iter(loader)
        batch = next(reading)
        thread = threading.Thread(target=lambda: next(reading))
        thread.start()
        try:
            wait_for(lambda: self.jobs()[0]['waiting'])
            self.assertRaisesRegex(pinfeed.Error, 'another thread is using this loader', batch.to, 'cuda:1')
        finally:
            thread.join()

    # ---- the end ----

    def test_closed_while_it_is_copied(self):
        """In whichever thread, with the interpreter free meanwhile."""
        for end in ('close', 'drop'):
            with self.subTest(end):
                box = [pinfeed.Loader('two', runtime_dir=self.daemon.runtime, device='cuda:1')]
                self.fake.runtime.fake_cuda_hold()
                self.look(0, *next(iter(box[0])))
                thread = threading.Thread(target=box[0].close if end == 'close' else box.clear)
                thread.start()
                thread.join(0.05)
                self.assertTrue(thread.is_alive())
                self.fake.runtime.fake_cuda_go()
                thread.join()
                box.clear()
                self.check()

    def test_closed_before_it_is_copied(self):
        """The copy waits for a function that wants the interpreter."""
        loader = self.loader(zero_copy=True)
        with self.fake.busy(torch.cuda.current_stream(1)) as stop:
            batch = next(iter(loader))
            self.look(0, *batch.to('cuda:1'))
            threading.Timer(0.05, stop).start()
            loader.close()
            del batch
        self.check()

    def test_fork(self):
        """The child makes no call on the GPU, of which the fake would tell, and the parent's copies go on."""
        loader = self.loader(zero_copy=False)
        staying = self.loader(zero_copy=True)
        reading = iter(loader)
        self.look(0, *next(reading))
        wait_for(lambda: self.jobs()[0]['held'])
        self.look(0, *next(reading))  # with one in flight
        batch = next(iter(staying))
        errors = []
        child = os.fork()
        if child == 0:
            for use in (lambda: next(reading), lambda: batch.to('cuda:1')):
                try:
                    use()
                except pinfeed.Error as error:
                    errors.append('make another after fork' in str(error))
            del use
            loader.close()
            staying.close()
            del loader, reading, batch, staying
            os._exit(errors != [True, True])
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        for fields in reading:
            self.look(0, *fields)
        del fields
        loader.close()
        self.check(epochs=1)

    def test_ends_of_processes(self):
        """No slot stays page-locked, and no context comes into being but on the loader's device."""
        for end, words in (('pass', 'got'), ('raise ValueError("enough")', 'enough')):
            with self.subTest(end), tempfile.NamedTemporaryFile('r') as report:
                output = self.run_script(f'''
import sys
sys.path.insert(0, {HERE!r})
import fake_torch, pinfeed
fake_torch.install()
loader = pinfeed.Loader('ramp', device='cuda:1')
for index, data in loader:
    print('got', flush=True)
    {end}
''', check=False, PINFEED_LIBCUDART=FAKE, PINFEED_LOG='info', PINFEED_FAKE_CUDA=f'devices=2 report={report.name}')
                self.assertIn(words, output)
                self.assertRegex(output, r'batches of 16 rows as torch on cuda:1, map pinned \(slots are page-locked for cuda:1 ')
                told = json.loads(report.read())
                self.assertEqual((told['registrations'], list(told['devices'])), (0, ['1']))
                self.assertGreater(told['registrations_made'], 0)

    def test_no_thread(self):
        os.environ['PINFEED_NO_THREAD'] = '1'
        self.addCleanup(os.environ.pop, 'PINFEED_NO_THREAD')
        torch.cuda.Stream(0)  # which makes a context, so between two batches that device is current
        loader = self.loader('two')
        for epoch in range(3):
            for batch in loader:
                self.look(epoch, *batch)
        del batch
        loader.load_state_dict(loader.state_dict())
        loader.close()
        self.check(epochs=3)

    # ---- the script's own dataset ----

    def data_loader(self, dataset, **arguments):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # the fake has threads, and says so
            loader = pinfeed.DataLoader(dataset, batch_size=8, num_workers=2, device='cuda:1', seed=0, **arguments)
        self.addCleanup(loader.close)
        return loader

    def test_data_loader(self):
        """Samples of its own, in batches on its device, of all epochs and with another stream behind."""
        private = Private()
        self.addCleanup(private.stop)
        with mock.patch.dict(os.environ, private.environment):
            self.fake.runtime.set('delay_us=1000')
            loader = self.data_loader(Rows(), shuffle=True)
            for epoch in range(3):
                for index, data in loader:
                    self.assertEqual((index.device, data.device), (torch.device('cuda:1'),) * 2)
                    self.assertEqual((index.dtype, data.dtype, tuple(data.shape)), (torch.int64, torch.uint8, (8, 3000)))
                    self.look(0, index, data)  # the samples are the same in every epoch
                    del index, data
            loader.close()
            self.check(epochs=3)

    def test_data_loader_of_batches(self):
        """Where the batch is the unit of work its bytes are not the tensors', so there is nothing to copy from."""
        private = Private()
        self.addCleanup(private.stop)
        with mock.patch.dict(os.environ, private.environment), self.assertRaisesRegex(ValueError, "device='cuda:1'"):
            self.data_loader(Rows(), collate_fn=list)


class Rows:
    """48 samples, in the form of a torch Dataset."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return index, ramp([index], 0, 3000)[0]


@needs_torch
class Without(Case):
    """Processes that find no GPU, or have no use for it."""

    def test_words(self):
        if torch.cuda.is_available() or torch.version.cuda:
            self.skipTest('torch is built for CUDA')
        output = self.run_script(f'''
import ctypes, os, pinfeed
def attempt(device):
    try:
        pinfeed.Loader('ramp', device=device)
    except pinfeed.Error as error:
        print(error.errno, error)
attempt('cuda:0')
os.environ['PINFEED_LIBCUDART'] = '/nowhere/libcudart.so'
attempt('cuda')
os.environ['PINFEED_LIBCUDART'] = {FAKE!r}
attempt(0)
ctypes.CDLL({FAKE!r}).fake_cuda_set(b'driver=13000')
attempt('cuda:0')
''', PINFEED_LIBCUDART='', PINFEED_FAKE_CUDA='driver=0')
        here, named, no_driver, no_cuda = output.splitlines()
        self.assertRegex(here, r'^19 (device cuda needs a CUDA runtime: no CUDA runtime was found|\S+libcudart\S+ finds no GPU)')
        if 'needs' in here:  # or this process has one now
            self.assertRegex(named, '^19 device cuda needs a CUDA runtime: PINFEED_LIBCUDART names no CUDA runtime that can be used')
        self.assertRegex(no_driver, r'^19 \S+libcudart\S+ finds no GPU: cudaGetDeviceCount failed: cudaErrorInsufficientDriver')
        if 'libcudart-fake.so' in no_driver:
            self.assertRegex(no_cuda, r"^19 device='cuda:0': there is such a device, but torch \S+ has no use of it")


@needs_torch
class Runtime(unittest.TestCase):
    def test_runtime_of_a_wheel(self):
        from pinfeed import gpu
        with tempfile.TemporaryDirectory() as directory:
            for name in ('cuda_runtime/lib/libcudart.so.12', 'cu13/lib/libcudart.so.13', 'nccl/lib/libnccl.so.2'):
                os.makedirs(os.path.dirname(f'{directory}/nvidia/{name}'))
                open(f'{directory}/nvidia/{name}', 'w').close()
            sys.path.insert(0, directory)
            self.addCleanup(sys.modules.__setitem__, 'torch', torch)
            try:
                for version, wanted in (('13.0', 'cu13/lib/libcudart.so.13'), ('12.8', 'cuda_runtime/lib/libcudart.so.12')):
                    sys.modules['torch'] = types.SimpleNamespace(__file__='/nowhere/torch/__init__.py',
                                                                 version=types.SimpleNamespace(cuda=version))
                    self.assertEqual(gpu.find_runtime(), f'{directory}/nvidia/{wanted}')
                self.assertNotIn('nvidia', sys.modules)
            finally:
                sys.path.remove(directory)
