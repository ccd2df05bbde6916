# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a batch is: types, shapes, bytes, and what may be done with them."""

import os
import signal
import subprocess
import unittest
import warnings

import pinfeed
from pinfeed import output as outputs
from support import BUILD, SLOWDOWN, Case, needs_numpy, needs_torch, numpy, ramp, start_script, torch

WRITE = '''
import torch, pinfeed
index, data = next(iter(pinfeed.Loader('ramp', zero_copy=True)))
print('SAME', int(index[0]), flush=True)
data += 1
print('written')
'''


@needs_numpy
class Values(Case):
    def test_numpy(self):
        batch = next(iter(self.loader(output='numpy')))
        self.assertIs(type(batch), tuple)
        index, data = batch
        self.assertEqual((index.dtype, index.shape, data.dtype, data.shape), ('int64', (32,), 'uint8', (32, 3000)))
        self.assertTrue((data == ramp(index, 0, 3000)).all())
        with self.assertRaisesRegex(ValueError, 'read-only'):
            data += 1

    def test_numpy_in_pieces_is_read_only_too(self):
        for index, data in self.loader(output='numpy', batch_size=20):
            self.assertTrue((data == ramp(index, 0, 3000)).all())
            self.assertFalse(data.flags.writeable or index.flags.writeable)

    @needs_torch
    def test_torch(self):
        for size in (32, 20):
            loader = self.loader(output='torch', batch_size=size)
            for epoch in range(2):
                for index, data in loader:
                    self.assertEqual((type(data), data.dtype), (torch.Tensor, torch.uint8))
                    self.assertTrue((data.numpy() == ramp(index.numpy(), epoch, 3000)).all())

    @needs_torch
    def test_writing_is_nobody_elses_business(self):  # D7
        ours, theirs = iter(self.loader(output='torch')), iter(self.loader(output='numpy'))
        for (_, data), (index, same) in zip(ours, theirs):
            data += 1
            self.assertTrue((same == ramp(index, 0, 3000)).all())

    @needs_torch
    def test_writing_in_the_ring_ends_who_does_it(self):  # D7
        reading = iter(self.loader(output='numpy'))
        index, data = next(reading)
        writer = start_script(WRITE, PINFEED_RUNTIME_DIR=self.daemon.runtime)
        output, _ = writer.communicate(timeout=30 * SLOWDOWN)
        self.assertEqual((output, writer.returncode), (f'SAME {index[0]}\n', -signal.SIGSEGV))
        for _ in range(2):  # and the others do not notice
            self.assertTrue((data == ramp(index, 0, 3000)).all())
            index, data = next(reading)

    @needs_torch
    def test_torch_if_it_is_imported(self):
        self.assertIsInstance(next(iter(self.loader()))[0], torch.Tensor)

    def test_dlpack(self):
        index, data = next(iter(self.loader(output='dlpack')))
        self.assertEqual((type(data), data.dtype, data.shape, data.read_only), (pinfeed.Array, 'uint8', (32, 3000), True))
        self.assertEqual(data.__dlpack_device__(), (1, 0))
        want = ramp(numpy.asarray(index), 0, 3000)
        self.assertTrue((numpy.from_dlpack(data) == want).all())
        self.assertTrue((numpy.asarray(data) == want).all())
        self.assertIn('"dltensor"', repr(data.__dlpack__(stream=None)))
        self.assertIn('"dltensor_versioned"', repr(data.__dlpack__(max_version=(1, 1), dl_device=(1, 0), copy=False)))
        self.assertRaises(BufferError, data.__dlpack__, dl_device=(2, 0))
        self.assertRaises(BufferError, data.__dlpack__, copy=True)
        self.assertRaises(TypeError, pinfeed.Array)

    def test_fields(self):
        batch = next(iter(self.loader(output='numpy', fields=['data'])))
        self.assertEqual(list(batch), ['data'])
        with self.assertRaisesRegex(pinfeed.Invalid, "has no 'image'; it has index, data"):
            self.loader(fields=['image'])

    def test_info(self):
        kinds = ('numpy', 'torch') if torch else ('numpy',)
        for kind in kinds:
            loader = self.loader(output=kind, with_info=True, last_batch='pad')
            for step, ((index, _), info) in enumerate(loader):
                self.assertEqual((info.epoch, info.row), (0, 32 * step))
                self.assertEqual(info.ids.tolist(), index.tolist())
                self.assertEqual(info.valid.tolist(), [True] * 8 + [False] * 24 if step == 31 else [True] * 32)
            self.assertIn('bool', str(info.valid.dtype))

    @needs_torch
    def test_page_locked_without_a_gpu(self):
        if torch.cuda.is_available():
            self.skipTest('there is a GPU')
        with self.assertWarnsRegex(UserWarning, 'no accelerator is found'):
            loader = self.loader(pin_memory=True)
        index, data = next(iter(loader))
        self.assertTrue((data.numpy() == ramp(index.numpy(), 0, 3000)).all())

    @needs_torch
    def test_into_memory_of_torchs(self):
        """The way of page-locked memory, in ordinary one."""
        loader = self.loader(output='torch', batch_size=20)
        output = outputs.Pinned(pin=False)
        output.fields = loader._values._output.fields
        loader._values._output = output
        for index, data in loader:
            self.assertTrue((data.numpy() == ramp(index.numpy(), 0, 3000)).all())
        batch = loader._job.next(1000) or (loader._job.seek(1, 0), loader._job.next(1000))[1]
        for wrong in (torch.empty(batch.rows, 3001, dtype=torch.uint8), torch.empty(batch.rows, 3000, dtype=torch.int32),
                      torch.empty(3000, batch.rows, dtype=torch.uint8).t()):
            with self.assertRaisesRegex(ValueError, 'another type, shape or order'):
                batch.copy_into(1, torch.utils.dlpack.to_dlpack(wrong))

    def test_contradictions(self):
        for arguments, words in (
                ({'pin_memory': True, 'zero_copy': True}, 'pin_memory and zero_copy'),
                ({'pin_memory': True, 'output': 'numpy'}, 'pin_memory is for torch'),
                ({'output': 'jax'}, "output='jax': expected"),
                ({'last_batch': 'pad', 'drop_last': True}, 'give one of the two'),
                ({'last_batch': 'some'}, "expected 'short' or 'drop' or 'pad'"),
                ({'start': 'now'}, "expected 'epoch' or 'live'"),
                ({'batch_size': 0}, 'batch_size=0: expected 1 or more'),
                ({'seed': -1}, 'seed=-1: expected 0 or more'),
                ({'seed': 1 << 64}, 'at most 18446744073709551615'),
                ({'timeout': 0}, 'timeout=0: expected seconds'),
                ({'max_held_batches': True}, 'max_held_batches=True')):
            with self.subTest(arguments), self.assertRaisesRegex(pinfeed.Error, words):
                self.loader(**arguments)
        self.loader(device='cpu')

    def test_what_is_not_there(self):
        with self.assertRaisesRegex(FileNotFoundError, 'absent'):
            self.loader('absent')
        with self.assertRaisesRegex(FileNotFoundError, 'no pinfeedd listens'):
            pinfeed.Loader('ramp', runtime_dir=self.daemon.directory + '/none')
        with self.assertRaisesRegex(FileNotFoundError, 'no pinfeedd listens on .*: a Loader of a file or a dict starts one'):
            pinfeed.status(self.daemon.directory + '/none')

    @unittest.skipUnless(os.geteuid() == 0, 'only root can be somebody else')
    def test_another_user(self):
        places = self.daemon.directory, self.daemon.runtime
        try:
            os.seteuid(65534)
            for attempt in lambda: pinfeed.status(self.daemon.runtime), self.loader:
                self.assertRaisesRegex(pinfeed.Refused, r'is not open to this user \(uid 65534\)', attempt)
            os.seteuid(0)
            for place in places:
                os.chmod(place, 0o755)
            for name in 'control.sock', 'pinfeed.sock':
                os.chmod(os.path.join(self.daemon.runtime, name), 0o666)
            os.seteuid(65534)
            for attempt in lambda: pinfeed.status(self.daemon.runtime), self.loader:
                self.assertRaisesRegex(PermissionError, 'turned away: this daemon is for', attempt)
        finally:
            os.seteuid(0)
            for place in places:
                os.chmod(place, 0o700)


@needs_numpy
class Images(Case):
    """Types and layouts of images, against each other; one of them is broken."""

    config = '''
pipelines:
  chw: {source: &images {type: imagefolder, path: images}, transforms: &small [{resize: {size: [8, 12]}}], batch_size: 4}
  hwc: {source: *images, transforms: *small, batch_size: 4, output: {layout: hwc}}
  last: {source: *images, transforms: *small, batch_size: 4, output: {layout: channels_last}}
  half: {source: *images, transforms: *small, batch_size: 4, output: {dtype: float16, layout: channels_last}}
  brain: {source: *images, transforms: *small, batch_size: 4, output: {dtype: bfloat16}}
  bytes: {source: *images, transforms: *small, batch_size: 4, output: {dtype: uint8}}
  bad: {source: {type: imagefolder, path: bad}, transforms: *small, batch_size: 4, max_errors: 1}
'''

    @classmethod
    def make_config(cls):
        import tempfile
        directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        cls.addClassCleanup(subprocess.run, ['rm', '-r', directory])
        draw = os.path.join(BUILD, 'tests/support/draw-images')
        for name in ('images', 'bad'):
            subprocess.run([draw, os.path.join(directory, name), '--per-class', '1', '--size', '40x30'], check=True,
                           stdout=subprocess.DEVNULL)
        folder = os.path.join(directory, 'bad')
        cls.broken = sorted(os.path.join(path, file) for path, _, files in os.walk(folder) for file in files)[1]
        with open(cls.broken, 'wb') as file:
            file.write(b'no image')
        return cls.config.replace('path: ', f'path: {directory}/')

    def first(self, name, output):
        image, label = next(iter(self.loader(name, output=output)))
        self.assertEqual((label.shape, str(label.dtype).split('.')[-1]), ((4,), 'int64'))
        return image

    def test_numpy(self):
        chw = self.first('chw', 'numpy')
        self.assertEqual((chw.dtype, chw.shape), ('float32', (4, 3, 8, 12)))
        self.assertTrue((self.first('hwc', 'numpy').transpose(0, 3, 1, 2) == chw).all())
        last = self.first('last', 'numpy')
        self.assertEqual(last.strides, (4 * 288, 4, 4 * 36, 4 * 3))
        self.assertTrue((last == chw).all())
        self.assertTrue((self.first('half', 'numpy') == chw.astype('float16')).all())
        brain = self.first('brain', 'numpy')  # its bits are a float32's upper half
        self.assertEqual(brain.dtype, 'uint16')
        self.assertLess(abs((brain.astype('uint32') << 16).view('float32') - chw).max(), 1 / 256)
        self.assertLess(abs(self.first('bytes', 'numpy') / 255 - chw).max(), 0.6 / 255)

    @needs_torch
    def test_torch(self):
        chw = torch.from_numpy(self.first('chw', 'numpy').copy())
        for name, dtype in (('chw', torch.float32), ('last', torch.float32), ('half', torch.float16),
                            ('brain', torch.bfloat16), ('bytes', torch.uint8)):
            for zero_copy in (False, True):
                with self.subTest(name, zero_copy=zero_copy):
                    image, _ = next(iter(self.loader(name, output='torch', zero_copy=zero_copy)))
                    self.assertEqual((image.dtype, tuple(image.shape)), (dtype, (4, 3, 8, 12)))
                    if dtype != torch.uint8:
                        self.assertTrue(torch.equal(image, chw.to(dtype)))
                    order = torch.channels_last if name in ('last', 'half') else torch.contiguous_format
                    self.assertTrue(image.is_contiguous(memory_format=order))

    def test_replaced_samples_are_told_at_the_end(self):
        loader = self.loader('bad', output='numpy')
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            rows = sum(len(label) for _, label in loader)
        self.assertEqual(len(caught), 1)
        self.assertRegex(str(caught[0].message), f'^bad: 1 of the {rows} rows of epoch 0 .*{os.path.basename(self.broken)}')
        self.assertEqual(caught[0].filename, __file__)
