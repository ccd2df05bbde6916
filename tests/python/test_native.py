# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Image folders that become pipelines, those that are refused, and that the batches are torchvision's.

What is looked at is tried with stand-ins (fake_torchvision.py), and where torchvision is installed with that too.
"""

import errno
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

import fake_torchvision
import pinfeed
from pinfeed.native import translate
from support import BUILD, SLOWDOWN, Private, needs_numpy, numpy, torch

try:
    import PIL
    import torchvision
    import torchvision.transforms
    from PIL import Image
except ImportError:
    torchvision = None
try:
    from torchvision.transforms import v2
except ImportError:
    v2 = None

needs_torchvision = unittest.skipIf(torchvision is None, 'torchvision is not installed')

FLOAT32 = torch.float32 if torch else 'torch.float32'
FLOAT16 = torch.float16 if torch else 'torch.float16'
UINT8 = torch.uint8 if torch else 'torch.uint8'
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
RESIZE = {'resize': {'size': 256, 'interpolation': 'bilinear'}}
CROP = {'center_crop': {'size': [224, 224]}}
FLIP = {'random_horizontal_flip': {'p': 0.5}}
NORMALIZE = {'normalize': {'mean': MEAN, 'std': STD}}


def random_resized_crop(**keys):
    return {'random_resized_crop': {'size': [224, 224], 'scale': [0.08, 1.0], 'ratio': [3 / 4, 4 / 3],
                                    'interpolation': 'bilinear', **keys}}


# Steps, and the transforms, the words and the dtype that they become.
TAKEN = (
    (lambda t: [t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)],
     [random_resized_crop(), FLIP, NORMALIZE], 'RandomResizedCrop, HFlip, Normalize', 'float32'),
    (lambda t: [t.Resize(256), t.CenterCrop(224), t.ToTensor(), t.Normalize(tuple(MEAN), STD, inplace=True)],
     [RESIZE, CROP, NORMALIZE], 'Resize, CenterCrop, Normalize', 'float32'),
    (lambda t: [t.Resize([256]), t.CenterCrop((20, 30)), t.PILToTensor()],
     [RESIZE, {'center_crop': {'size': [20, 30]}}], 'Resize, CenterCrop', 'uint8'),
    (lambda t: [t.Resize(256, max_size=300), t.ToTensor(), t.CenterCrop([224]), t.RandomHorizontalFlip(p=1)],
     [{'resize': {'size': 256, 'interpolation': 'bilinear', 'max_size': 300}}, CROP, {'random_horizontal_flip': {'p': 1}}],
     'Resize, CenterCrop, HFlip', 'float32'),
    (lambda t: [t.Resize((8, 9), t.InterpolationMode.BICUBIC), t.PILToTensor(), t.ConvertImageDtype(FLOAT32),
                t.Normalize([0.5], [2]), t.RandomHorizontalFlip()],
     [{'resize': {'size': [8, 9], 'interpolation': 'bicubic'}},
      {'normalize': {'mean': [0.5, 0.5, 0.5], 'std': [2, 2, 2]}}, FLIP], 'Resize, Normalize, HFlip', 'float32'),
    (lambda t: [t.RandomResizedCrop(224, [0.2, 1], (0.5, 2), Image.BICUBIC if torchvision else 3), t.ToTensor(),
                t.ConvertImageDtype(FLOAT32)],
     [random_resized_crop(scale=[0.2, 1], ratio=[0.5, 2], interpolation='bicubic')], 'RandomResizedCrop', 'float32'),
    *((lambda t, name=name: [t.Resize((8, 9), t.InterpolationMode[name.upper()]), t.PILToTensor()],
       [{'resize': {'size': [8, 9], 'interpolation': name}}], 'Resize', 'uint8')
      for name in ('nearest', 'box', 'lanczos', 'hamming')),
    (lambda t: [t.Compose([t.Resize(256), t.Compose([t.CenterCrop(224)])]), t.ToTensor()],
     [RESIZE, CROP], 'Resize, CenterCrop', 'float32'))

# The same for what only v2 has.
TAKEN_V2 = (
    (lambda t: [t.ToImage(), t.CenterCrop(224), t.ToDtype(FLOAT32, scale=True), t.Normalize(MEAN, STD), t.ToPureTensor()],
     [CROP, NORMALIZE], 'CenterCrop, Normalize', 'float32'),
    (lambda t: [t.CenterCrop(224), t.ToImage()], [CROP], 'CenterCrop', 'uint8'))

# Steps, and the words of their refusal.
REFUSED = (
    (lambda t: [t.CenterCrop(9), t.ToTensor(), t.Lambda(abs)], 'Lambda at step 3'),
    (lambda t: [t.CenterCrop(9), lambda image: image, t.ToTensor()], 'lambda at step 2'),
    (lambda t: [functools.partial(max, 3)], 'partial at step 1'),
    (lambda t: [t.Compose([t.CenterCrop(9), t.RandomVerticalFlip()])], 'RandomVerticalFlip at step 1.2'),
    (lambda t: [t.Resize(8), t.ToTensor()],
     'Resize at step 1 gives a size to the shorter edge only, and no later step to both'),
    (lambda t: [t.CenterCrop(8), t.Resize(8), t.ToTensor()],
     'Resize at step 2 gives a size to the shorter edge only, and no later step to both'),
    (lambda t: [t.ToTensor()], 'no step gives all images one size'),
    (lambda t: [t.CenterCrop(8)], 'no step makes a tensor of the PIL image'),
    (lambda t: [t.ToTensor(), t.Resize((8, 8))], 'Resize at step 2 gets a tensor of float32'),
    (lambda t: [t.PILToTensor(), t.RandomResizedCrop(8)], 'RandomResizedCrop at step 2 gets a tensor of uint8'),
    (lambda t: [t.ToTensor(), t.Normalize(MEAN, STD), t.CenterCrop(8)], 'CenterCrop at step 3 gets a normalized tensor'),
    (lambda t: [t.ToTensor(), t.Normalize(MEAN, STD), t.Normalize(MEAN, STD)], 'Normalize at step 3 gets a normalized tensor'),
    (lambda t: [t.CenterCrop(8), t.PILToTensor(), t.Normalize(MEAN, STD)], 'Normalize at step 3 gets a tensor of uint8'),
    (lambda t: [t.CenterCrop(8), t.Normalize(MEAN, STD)], 'Normalize at step 2 gets a PIL image'),
    (lambda t: [t.ToTensor(), t.ToTensor()], 'ToTensor at step 2 gets a tensor of float32'),
    (lambda t: [t.CenterCrop(8), t.PILToTensor(), t.ConvertImageDtype(FLOAT16)],
     'dtype torch.float16 of ConvertImageDtype at step 3'),
    (lambda t: [t.CenterCrop(8), t.ToTensor(), t.ConvertImageDtype(UINT8)],
     'dtype torch.uint8 of ConvertImageDtype at step 3'),
    (lambda t: [t.ToTensor(), t.Normalize([0.5, 0.5], [1, 1])], r'mean \[0.5, 0.5\] of Normalize at step 2'),
    (lambda t: [t.ToTensor(), t.Normalize(MEAN, [1, 1, 0])], r'std \[1, 1, 0\] of Normalize at step 2'),
    (lambda t: [t.ToTensor(), t.Normalize([float('nan')], [1])], r'mean \[nan\] of Normalize at step 2'),
    (lambda t: [t.CenterCrop(65536), t.ToTensor()], r'size \(65536, 65536\) of CenterCrop at step 1'),
    (lambda t: [t.CenterCrop((8, 0)), t.ToTensor()], r'size \(8, 0\) of CenterCrop at step 1'),
    (lambda t: [t.Resize(8, max_size=8), t.ToTensor()], 'max_size 8 of Resize at step 1'),
    (lambda t: [t.Resize((8, 8), max_size=9), t.ToTensor()], 'max_size 9 of Resize at step 1'),
    (lambda t: [t.RandomResizedCrop(8, scale=(1, 0.5)), t.ToTensor()], r'scale \(1, 0.5\) of RandomResizedCrop at step 1'),
    (lambda t: [t.RandomResizedCrop(8, ratio=(0, 1)), t.ToTensor()], r'ratio \(0, 1\) of RandomResizedCrop at step 1'),
    (lambda t: 17 * [t.CenterCrop(8)] + [t.ToTensor()], 'there are 17 steps, more than 16'))

REFUSED_V2 = (
    (lambda t: [t.ToImage(), t.CenterCrop(8), t.ToDtype(FLOAT32)], 'scale False of ToDtype at step 3'),
    (lambda t: [t.ToImage(), t.CenterCrop(8), t.ToDtype(FLOAT16, scale=True)], 'dtype torch.float16 of ToDtype at step 3'),
    (lambda t: [t.ToImage(), t.CenterCrop(8), t.ToDtype({'others': FLOAT32}, scale=True)], 'dtype .* of ToDtype at step 3'),
    (lambda t: [t.ToDtype(FLOAT32, scale=True), t.ToImage()], 'ToDtype at step 1 gets a PIL image'),
    (lambda t: [t.ToImage(), t.Resize((8, 8))], 'Resize at step 2 gets a tensor of uint8'))


def level():
    """By how much Pillow's resizing may differ from pinfeed's, in 255ths: from 13 on it takes the height of tall images first,
    and so rounds other values in between."""
    return 1 if int(PIL.__version__.partition('.')[0]) >= 13 else 0


def tv_folder(*arguments, **keys):
    return torchvision.datasets.ImageFolder(*arguments, **keys)


KINDS = [('stand-ins, v1', fake_torchvision.v1, fake_torchvision.ImageFolder),
         ('stand-ins, v2', fake_torchvision.v2, fake_torchvision.ImageFolder)]
if torchvision:
    KINDS.append(('torchvision', torchvision.transforms, tv_folder))
if v2:
    KINDS.append(('torchvision, v2', v2, tv_folder))


class Folders(unittest.TestCase):
    """Tests of a folder whose files nobody opens."""

    def setUp(self):
        directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        self.addCleanup(shutil.rmtree, directory)
        self.root = os.path.join(directory, 'images')
        for name in ('b/2.jpg', 'b/10.JPEG', 'a/1.webp', 'a/x/1.jpg', 'a/x-y/1.jpg', 'a/readme.txt', 'list.jpg',
                     '../elsewhere/1.jpg'):
            self.touch(name)
        os.symlink('../../elsewhere', os.path.join(self.root, 'a/z'))

    def touch(self, name):
        path = os.path.join(os.fsencode(self.root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb'):
            pass

    def each_kind(self, test):
        """Calls test(transforms, make), where make(steps) is a dataset."""
        for name, transforms, folder in KINDS:
            def make(steps, **arguments):
                return folder(self.root, transforms.Compose(steps), **arguments)
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter('ignore')  # torchvision's, about arguments that are refused here
                test(transforms, make)

    def each_dataset(self, test):
        """Calls test(make), where make() is a good one."""
        self.each_kind(lambda t, make: test(functools.partial(make, [t.CenterCrop(8), t.ToTensor()])))

    def assert_refused(self, reason, dataset):
        with self.assertRaisesRegex(pinfeed.NotNative, f'^this dataset has no native pipeline, because {reason}: ') as caught:
            pinfeed.native(dataset)
        self.assertRegex(caught.exception.reason, f'^{reason}$')
        self.assertIsInstance(caught.exception, TypeError)

    # ---- steps ----

    def test_taken(self):
        def test(transforms, make):
            for steps, recipe, words, dtype in TAKEN + (TAKEN_V2 if hasattr(transforms, 'ToDtype') else ()):
                pipeline, names = translate(make(steps(transforms)))
                self.assertRegex(pipeline['source'].pop('identity'), '^[0-9a-f]{24}$')
                self.assertEqual(pipeline, {'source': {'type': 'imagefolder', 'path': self.root}, 'transforms': recipe,
                                            'output': {'dtype': dtype, 'layout': 'chw'}, 'on_error': 'fail'})
                self.assertEqual(', '.join(names), words)
        self.each_kind(test)

    def test_refused(self):
        def test(transforms, make):
            for steps, reason in REFUSED + (REFUSED_V2 if hasattr(transforms, 'ToDtype') else ()):
                with self.subTest(reason):
                    self.assert_refused(reason, make(steps(transforms)))
        self.each_kind(test)

    def test_interpolation(self):
        """By Pillow's numbers, and by a name that means the same for a PIL image; no other is guessed at."""
        def test(transforms, make):
            for value, name in ((0, 'nearest'), ('nearest-exact', 'nearest'), (1, 'lanczos'), (5, 'hamming')):
                resize = transforms.Resize((8, 9))
                resize.interpolation = value
                pipeline, _ = translate(make([resize, transforms.ToTensor()]))
                self.assertEqual(pipeline['transforms'], [{'resize': {'size': [8, 9], 'interpolation': name}}])
            resize.interpolation = 'area'
            self.assert_refused('interpolation area of Resize at step 1', make([resize, transforms.ToTensor()]))
        self.each_kind(test)

    def test_without_compose(self):
        for name, transforms, folder in KINDS:
            with self.subTest(name):
                self.assert_refused('no step makes a tensor of the PIL image', folder(self.root))
                self.assert_refused('no step gives all images one size', folder(self.root, transforms.ToTensor()))
                self.assert_refused('Lambda at step 1', folder(self.root, transforms.Lambda(abs)))

    def test_numbers_of_any_kind(self):
        for library in filter(None, (numpy, torch)):
            for kind in ('array', 'tensor'):
                make = getattr(library, kind, None)
                if make:
                    t = fake_torchvision.v1
                    steps = [t.RandomResizedCrop(8, scale=make([0.25, 1])), t.RandomHorizontalFlip(make(0.25)), t.ToTensor(),
                             t.Normalize(make([0.5]), [make(0.25), 1, 2])]
                    pipeline, _ = translate(fake_torchvision.ImageFolder(self.root, t.Compose(steps)))
                    crop, flip, normalize = pipeline['transforms']
                    self.assertEqual(crop['random_resized_crop']['scale'], [0.25, 1])
                    self.assertEqual(flip, {'random_horizontal_flip': {'p': 0.25}})
                    self.assertEqual(normalize, {'normalize': {'mean': [0.5, 0.5, 0.5], 'std': [0.25, 1, 2]}})

    def test_subclasses(self):
        def derived(name, thing):
            return type(name, (type(thing),), {'__module__': 'mine'})

        def test(transforms, make):
            step = transforms.CenterCrop(8)
            for name, words in (('Mine', 'Mine'), ('CenterCrop', 'mine.CenterCrop')):
                step.__class__ = derived(name, transforms.CenterCrop(8))
                self.assert_refused(f'{words} at step 1', make([step, transforms.ToTensor()]))
            dataset = make([transforms.CenterCrop(8), transforms.ToTensor()])
            for name, words in (('Mine', 'Mine'), ('ImageFolder', 'mine.ImageFolder')):
                dataset.__class__ = derived(name, dataset)
                self.assert_refused(f'the dataset is of class {words}, not of ImageFolder itself', dataset)
        self.each_kind(test)
        self.assert_refused('the dataset is of class list, not of ImageFolder itself', [1, 2, 3])

    def test_changed_objects(self):
        def test(transforms, make):
            step = transforms.CenterCrop(8)
            step.forward = abs
            self.assert_refused('CenterCrop at step 2 has forward of its own', make([transforms.ToTensor(), step]))
            step = transforms.CenterCrop(8)
            step._forward_hooks = {1: abs}
            self.assert_refused('CenterCrop at step 1 has _forward_hooks of its own', make([step]))
            for step in (transforms.CenterCrop(8), transforms.RandomResizedCrop(8)):
                step.size = 8
                self.assert_refused(f'size 8 of {type(step).__name__} at step 1', make([step]))
        self.each_kind(test)

    @needs_torchvision
    def test_hooks(self):
        step = torchvision.transforms.CenterCrop(8)
        step.register_forward_pre_hook(lambda module, image: image)
        self.assert_refused('CenterCrop at step 1 has _forward_pre_hooks of its own', tv_folder(self.root, step))

    def test_default_dtype(self):
        fake = types.SimpleNamespace(get_default_dtype=lambda: 'torch.float64')
        t = fake_torchvision.v1
        with mock.patch.dict(sys.modules, torch=fake):
            self.assert_refused("ToTensor at step 2 makes torch.float64, torch's default",
                                fake_torchvision.ImageFolder(self.root, t.Compose([t.CenterCrop(8), t.ToTensor()])))
            translate(fake_torchvision.ImageFolder(self.root, t.Compose([t.CenterCrop(8), t.PILToTensor()])))

    # ---- the dataset ----

    def test_changed_datasets(self):
        first, last = os.path.join(self.root, 'a/1.webp'), os.path.join(self.root, 'b/2.jpg')
        for change, reason in (
                (lambda d: vars(d).update(target_transform=abs), 'target_transform is set'),
                (lambda d: vars(d).update(transforms=abs), 'transforms is set'),
                (lambda d: vars(d).update(loader=abs), 'loader is abs'),
                (lambda d: vars(d).update(loader=lambda path: path), 'loader is lambda'),
                (lambda d: vars(d).update(extensions=('.jpg', '.gif')), 'extensions is .jpg, .gif'),
                (lambda d: vars(d).update(transform=abs), 'abs at step 1'),
                (lambda d: vars(d).update(root='/nowhere'), '/nowhere: No such file or directory'),
                (lambda d: d.classes.reverse(), 'classes has been changed'),
                (lambda d: d.class_to_idx.update(a=1), 'class_to_idx has been changed'),
                (lambda d: d.targets.reverse(), 'targets has been changed'),
                (lambda d: vars(d).update(imgs=[]), 'imgs has been changed'),
                (lambda d: vars(d).pop('targets'), 'targets has been changed'),
                (lambda d: d.samples.pop(), rf"sample 5 is missing, and the folder has \('{last}', 1\) there"),
                (lambda d: d.samples.append((last, 1)), rf"sample 6 is \('{last}', 1\), and the folder has none there"),
                (lambda d: d.samples.reverse(), rf"sample 0 is \('{last}', 1\), and the folder has \('{first}', 0\) there"),
                (lambda d: d.samples.__setitem__(0, (first, 1)),
                 rf"sample 0 is \('{first}', 1\), and the folder has \('{first}', 0\) there")):
            def test(make, change=change, reason=reason):
                dataset = make()
                translate(dataset)
                change(dataset)
                self.assert_refused(reason, dataset)
            with self.subTest(reason):
                self.each_dataset(test)

    def test_arguments(self):
        def test(make):
            self.assert_refused('is_valid_file is set', make(is_valid_file=lambda path: path.endswith('.jpg')))
            self.assert_refused('loader is abs', make(loader=abs))
        self.each_dataset(test)

    @needs_numpy
    def test_labels_as_an_array(self):
        def test(make):
            dataset = make()
            dataset.targets = numpy.array(dataset.targets)
            translate(dataset)
            dataset.targets[0] = 1
            self.assert_refused('targets has been changed', dataset)
        self.each_dataset(test)

    def test_files(self):
        for name, reason in (('b/3.bmp', f'{self.root}/b/3.bmp is no JPEG, PNG or WebP by its name'),
                             ('b/\udcff.jpg', 'a file or folder has a name that is not UTF-8')):
            self.touch(name)
            self.each_dataset(lambda make: self.assert_refused(reason, make()))
            os.remove(os.path.join(self.root, name))

    def test_a_folder_that_cannot_be_read(self):
        """Which ImageFolder leaves out."""
        def scandir(path, scandir=os.scandir):
            if path == folder:
                raise PermissionError(errno.EACCES, 'Permission denied', path)
            return scandir(path)

        folder = os.path.join(self.root, 'a/x')
        with mock.patch('os.scandir', scandir):
            self.each_dataset(lambda make: self.assert_refused(f'{folder}: Permission denied', make()))

    def test_a_class_without_files(self):
        """As allow_empty=True lets it through."""
        def test(make):
            dataset = make()
            os.mkdir(os.path.join(self.root, 'c'))
            self.addCleanup(shutil.rmtree, os.path.join(self.root, 'c'), ignore_errors=True)
            self.assert_refused('classes has been changed', dataset)
            dataset.classes.append('c')
            dataset.class_to_idx['c'] = 2
            self.assert_refused('the class folder c has no images', dataset)
            os.rmdir(os.path.join(self.root, 'c'))
        self.each_dataset(test)

    def test_a_folder_that_has_changed(self):
        def test(make):
            dataset = make()
            self.touch('b/3.jpg')
            self.assert_refused(rf"sample 6 is missing, and the folder has \('{self.root}/b/3.jpg', 1\) there", dataset)
            os.remove(os.path.join(self.root, 'b/3.jpg'))
            translate(dataset)
        self.each_dataset(test)

    def test_relative_root(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(os.path.dirname(self.root))
        t = fake_torchvision.v1
        dataset = fake_torchvision.ImageFolder(os.path.basename(self.root), t.Compose([t.CenterCrop(8), t.ToTensor()]))
        self.assertEqual(translate(dataset)[0]['source']['path'], self.root)

    @needs_torchvision
    def test_settings_of_pillow(self):
        dataset = tv_folder(self.root, torchvision.transforms.Compose(
            [torchvision.transforms.CenterCrop(8), torchvision.transforms.ToTensor()]))
        with mock.patch('PIL.ImageFile.LOAD_TRUNCATED_IMAGES', True):
            self.assert_refused('PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set', dataset)
        for pixels in (None, 0, 10**10):
            with mock.patch('PIL.Image.MAX_IMAGE_PIXELS', pixels):
                self.assert_refused(f'PIL.Image.MAX_IMAGE_PIXELS is {pixels}, of which pinfeed has no twofold', dataset)
        for pixels in (1000, 10**9):
            with mock.patch('PIL.Image.MAX_IMAGE_PIXELS', pixels):
                self.assertEqual(translate(dataset)[0]['source']['max_pixels'], 2 * pixels)
        self.assertNotIn('max_pixels', translate(dataset)[0]['source'])
        with mock.patch('torchvision.get_image_backend', return_value='accimage'):
            self.assert_refused("torchvision's image backend is accimage", dataset)
        dataset.loader = torchvision.datasets.folder.pil_loader
        translate(dataset)


@needs_numpy
class Batches(unittest.TestCase):
    """What a private daemon makes of such a pipeline."""

    @classmethod
    def setUpClass(cls):
        cls.private = Private()
        cls.addClassCleanup(cls.private.stop)
        environment = mock.patch.dict(os.environ, cls.private.environment)
        environment.start()
        cls.addClassCleanup(environment.stop)

    def loader(self, pipeline):
        loader = pinfeed.Loader(pipeline, runtime_dir=self.private.runtime, output='numpy', timeout=20 * SLOWDOWN)
        self.addCleanup(loader.close)
        return loader

    def test_the_daemon_takes_them(self):
        root = os.path.join(self.private.directory, 'drawn')
        subprocess.run([os.path.join(BUILD, 'tests/support/draw-images'), root, '--per-class', '2', '--size', '80x60'],
                       check=True, stdout=subprocess.DEVNULL)
        for t, table in ((fake_torchvision.v1, TAKEN), (fake_torchvision.v2, TAKEN_V2)):
            for steps, _, words, dtype in table:
                with self.subTest(words):
                    dataset = fake_torchvision.ImageFolder(root, t.Compose(steps(t)))
                    loader = self.loader(pinfeed.native(dataset, 3, shuffle=True, seed=7))
                    self.assertEqual((len(loader.dataset), loader.batch_size, loader.seed), (len(dataset.samples), 3, 7))
                    images, labels = next(iter(loader))
                    self.assertEqual((images.dtype, len(images), labels.dtype), (dtype, 3, 'int64'))
        with self.assertRaisesRegex(pinfeed.Invalid, '^pipeline: colour: unknown key'):
            self.loader(pinfeed.native(dataset, colour=3))

    def test_a_folder_that_changes(self):
        """The daemon has looked through it, and serves on; a dataset that is made anew knows more, and other labels."""
        root = os.path.join(self.private.directory, 'changing')
        t = fake_torchvision.v1
        for classes in ('1', '2', '2'):
            subprocess.run([os.path.join(BUILD, 'tests/support/draw-images'), root, '--classes', classes, '--per-class', '2',
                            '--size', '8x8'], check=True, stdout=subprocess.DEVNULL)
            for files in ([], ['class_0/99999.jpg'], ['a/1.jpg', 'a/2.jpg']):
                for name in files:
                    os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                    shutil.copy(os.path.join(root, 'class_0/00000.jpg'), os.path.join(root, name))
                dataset = fake_torchvision.ImageFolder(root, t.Compose([t.CenterCrop(8), t.ToTensor()]))
                with self.loader(pinfeed.native(dataset, batch_size=4)) as loader:
                    labels = numpy.concatenate([labels for _, labels in loader])
                self.assertEqual(labels.tolist(), [label for _, label in dataset.samples])

    @needs_torchvision
    def test_a_folder_that_changes_unnoticed(self):
        """Should the daemon know another number of files than the dataset all the same, that is told."""
        root = os.path.join(self.private.directory, 'unnoticed')
        steps = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(8), torchvision.transforms.ToTensor()])
        with mock.patch.object(sys.modules[translate.__module__], '_identity', return_value='always'):
            for files in (2, 3):
                subprocess.run([os.path.join(BUILD, 'tests/support/draw-images'), root, '--classes', '1', '--per-class',
                                str(files), '--size', '8x8'], check=True, stdout=subprocess.DEVNULL)
                dataset = tv_folder(root, steps)
                if files == 2:
                    with pinfeed.DataLoader(dataset, batch_size=2, num_workers=1, native=True) as loader:
                        self.assertEqual(sum(len(labels) for _, labels in loader), 2)
                else:
                    with self.assertRaisesRegex(pinfeed.Stale, 'since the dataset was made: there are 2 samples, not 3'):
                        pinfeed.DataLoader(dataset, batch_size=2, num_workers=1, native=True)

    def assert_same(self, dataset, difference=0.0):
        """As a DataLoader's, up to a difference."""
        theirs = torch.utils.data.DataLoader(dataset, batch_size=4)
        ours = self.loader(pinfeed.native(dataset, batch_size=4))
        self.assertEqual(len(ours), len(theirs))
        for (images, labels), (expected, numbers) in zip(ours, theirs):
            self.assertIs(type(expected), torch.Tensor)
            self.assertEqual((images.dtype, images.shape), (expected.numpy().dtype, tuple(expected.shape)))
            self.assertLessEqual(abs(images - expected.double().numpy()).max(), difference, dataset.transform)
            self.assertTrue((labels == numbers.numpy()).all())

    @needs_torchvision
    def test_are_torchvisions(self):
        """To the bit, where nothing is drawn at random: also a flip that always comes, and the window in the middle that is
        left when no random one fits."""
        t = torchvision.transforms
        root = os.path.join(self.private.directory, 'photos')
        self.draw(root)
        for difference, steps in (
                (level() / 50, [t.Resize(40), t.CenterCrop(32), t.ToTensor(), t.Normalize(MEAN, STD)]),
                (level(), [t.Resize([40], max_size=44), t.RandomHorizontalFlip(p=1), t.PILToTensor(), t.CenterCrop((33, 61))]),
                (0, [t.ToTensor(), t.CenterCrop(150), t.Normalize([0.5], [0.25]), t.RandomHorizontalFlip(p=1)]),
                (level() / 254, [t.Resize((31, 47), t.InterpolationMode.BICUBIC), t.PILToTensor(),
                                 t.ConvertImageDtype(torch.float32)]),
                (level() / 50, [t.RandomResizedCrop((20, 30), (1, 1), (1, 1)), t.ToTensor(),
                                t.Normalize(torch.tensor(MEAN), STD)]),
                (level(), [t.RandomResizedCrop(20, (1, 1), (1, 1), t.InterpolationMode.BICUBIC), t.RandomHorizontalFlip(0),
                           t.PILToTensor()]),
                (0, [t.Resize((31, 47), t.InterpolationMode.NEAREST), t.PILToTensor()]),
                *((level(), [t.Resize((31, 47), mode), t.PILToTensor()])
                  for mode in (t.InterpolationMode.BOX, t.InterpolationMode.LANCZOS, t.InterpolationMode.HAMMING))):
            self.assert_same(tv_folder(root, t.Compose(steps)), difference)

    @unittest.skipIf(v2 is None, 'torchvision has no v2')
    def test_are_those_of_v2(self):
        """Of which ToDtype multiplies by 1/255: an ulp below 1, and what Normalize makes of that."""
        root = os.path.join(self.private.directory, 'photos of v2')
        self.draw(root)
        crop = [v2.RandomHorizontalFlip(1), v2.CenterCrop(44)]
        self.assert_same(tv_folder(root, v2.Compose([*crop, v2.ToImage(), v2.ToPureTensor()])))
        self.assert_same(tv_folder(root, v2.Compose([v2.PILToTensor(), v2.CenterCrop(150)])))
        self.assert_same(tv_folder(root, v2.Compose([v2.Resize(40, v2.InterpolationMode.BICUBIC, antialias=True),
                                                     v2.CenterCrop(44), v2.PILToTensor()])), level())
        for dtype in (v2.ToDtype(torch.float32, scale=True), v2.ConvertImageDtype(torch.float32)):
            self.assert_same(tv_folder(root, v2.Compose([*crop, v2.ToImage(), dtype])), 2**-24)
            self.assert_same(tv_folder(root, v2.Compose([*crop, v2.ToImage(), dtype, v2.Normalize(MEAN, STD)])), 1e-6)

    @staticmethod
    def draw(root):
        """Photographs of several shapes, grey ones, and a file of each format; in folders whose order is not that of paths."""
        random = numpy.random.default_rng(1)
        for number, (name, mode) in enumerate((
                ('cat/x/a.jpg', 'RGB'), ('cat/x-y/a.jpeg', 'L'), ('cat/B.JPG', 'CMYK'), ('ant/1.webp', 'RGB'),
                ('ant/10.png', 'LA'), ('ant/2.jpg', 'RGB'), ('Zebra/1.png', 'P'))):
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            rough = random.integers(0, 256, (7 + number, 12 - number, 3), numpy.uint8)
            image = Image.fromarray(rough).resize((130 - 9 * number, 70 + 11 * number), Image.BICUBIC)
            image.convert(mode).save(path, quality=90)

    @needs_torchvision
    def test_bad_files_raise(self):
        t = torchvision.transforms
        root = os.path.join(self.private.directory, 'bad')
        self.draw(root)
        shutil.copy('/proc/self/status', os.path.join(root, 'cat/B.JPG'))
        loader = self.loader(pinfeed.native(tv_folder(root, t.Compose([t.CenterCrop(8), t.ToTensor()])), batch_size=7))
        with self.assertRaisesRegex(pinfeed.Error, 'cat/B.JPG'):
            next(iter(loader))
