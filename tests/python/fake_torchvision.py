# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for torchvision, of which pinfeed.native looks at names of classes and at attributes: as the constructors of 0.14
(`v1`) and 0.20 (`v2`) leave them. Nothing here can transform anything.
"""

import enum
import os

EXTENSIONS = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')


class InterpolationMode(enum.Enum):
    NEAREST = 'nearest'
    BILINEAR = 'bilinear'
    BICUBIC = 'bicubic'
    BOX = 'box'
    HAMMING = 'hamming'
    LANCZOS = 'lanczos'


def _thing(module, name, **attributes):
    thing = type(name, (), {'__module__': module, 'forward': lambda self, image: image})()
    vars(thing).update(attributes)
    return thing


def _pair(size):
    sizes = [size] if isinstance(size, int) else list(size)
    return tuple(2 * sizes if len(sizes) == 1 else sizes)


class Transforms:
    """The namespace that torchvision.transforms is, or torchvision.transforms.v2."""

    InterpolationMode = InterpolationMode

    def __init__(self, version):
        self.version = version

    def _make(self, file, name, **attributes):
        module = 'torchvision.transforms.transforms' if self.version == 1 else f'torchvision.transforms.v2.{file}'
        return _thing(module, name, training=True, _forward_hooks={}, _forward_pre_hooks={}, **attributes)

    def Compose(self, transforms):
        return self._make('_container', 'Compose', transforms=transforms)

    def Resize(self, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
        if self.version == 2 and size is not None:
            size = [size] if isinstance(size, int) else list(size)
        return self._make('_geometry', 'Resize', size=size, interpolation=interpolation, max_size=max_size,
                          antialias=antialias)

    def CenterCrop(self, size):
        return self._make('_geometry', 'CenterCrop', size=_pair(size))

    def RandomResizedCrop(self, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation=InterpolationMode.BILINEAR):
        return self._make('_geometry', 'RandomResizedCrop', size=_pair(size), scale=scale, ratio=ratio,
                          interpolation=interpolation, antialias=True)

    def RandomHorizontalFlip(self, p=0.5):
        return self._make('_geometry', 'RandomHorizontalFlip', p=p)

    def RandomVerticalFlip(self, p=0.5):
        return self._make('_geometry', 'RandomVerticalFlip', p=p)

    def Normalize(self, mean, std, inplace=False):
        return self._make('_misc', 'Normalize', mean=mean, std=std, inplace=inplace)

    def Lambda(self, lambd):
        return self._make('_misc', 'Lambda', lambd=lambd)

    def ConvertImageDtype(self, dtype):
        return self._make('_misc', 'ConvertImageDtype', dtype=dtype)

    def PILToTensor(self):
        return self._make('_type_conversion', 'PILToTensor')

    def ToTensor(self):
        return self._make('_deprecated', 'ToTensor')


class Transforms2(Transforms):
    """What only v2 has."""

    def ToDtype(self, dtype, scale=False):
        return self._make('_misc', 'ToDtype', dtype=dtype, scale=scale)

    def ToImage(self):
        return self._make('_type_conversion', 'ToImage')

    def ToPureTensor(self):
        return self._make('_type_conversion', 'ToPureTensor')


v1 = Transforms(1)
v2 = Transforms2(2)


def default_loader(path):
    raise AssertionError('nobody reads here')


default_loader.__module__ = 'torchvision.datasets.folder'


def ImageFolder(root, transform=None, target_transform=None, loader=default_loader, is_valid_file=None):
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = [(os.path.join(directory, file), label) for label, name in enumerate(classes)
               for directory, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True))
               for file in sorted(files) if (is_valid_file or (lambda path: path.lower().endswith(EXTENSIONS)))(file)]
    return _thing('torchvision.datasets.folder', 'ImageFolder', root=root, transform=transform, loader=loader,
                  target_transform=target_transform, extensions=None if is_valid_file else EXTENSIONS, classes=classes,
                  class_to_idx={name: label for label, name in enumerate(classes)}, samples=samples, imgs=samples,
                  targets=[label for _, label in samples],
                  transforms=transform and _thing('torchvision.datasets.vision', 'StandardTransform', transform=transform))
