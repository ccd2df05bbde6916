# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A torchvision ImageFolder and its transforms as a pipeline of pinfeed's own. "Native" in docs/from-dataloader.md is the
contract.

A wrong translation would change a training run and say nothing. So nothing is guessed: what is not known to give the same
batches is refused, by name. Classes are known by module and name, so nothing of torchvision is imported here: the dataset has
brought it. A subclass is another class, and so is an object that has hooks or a method of its own.

torchvision's image changes its type on the way, pinfeed's never does: it is bytes until the end, where one table turns them
into what the output says. Hence the forms below. A step is taken where its result does not depend on the difference: a resize only
of a PIL image, since one of a tensor computes other pixels; a crop anywhere before normalize, since it fills up with zeros,
which are black until then.

The files are those that the daemon's scan will find (daemon/worker/sources/imagefolder-scan.c), which knows nothing of a list
that somebody has edited. So the folder is looked through once more and compared with the dataset's samples, one by one: about
as long as making the ImageFolder took, and all of it names, no file is opened.
"""

import collections
import hashlib
import itertools
import os
import sys

from .errors import NotNative

# Limits of proto/recipe-keys.c and proto/recipe.h: what exceeds them would be refused later, by the daemon.
_TRANSFORMS_MAX = 16
_EDGE_MAX = 65535
_SCALE = 0, 10
_RATIO = 0.01, 100
_MEAN = -1e6, 1e6
_STD = 1e-12, 1e6

_FOLDER = 'torchvision.datasets.folder'
_EXTENSIONS = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')  # what a scan takes for images
_DECODED = ('.jpg', '.jpeg', '.png', '.webp')  # and what there is a codec for
_PIXELS = 178956970  # Pillow's own limit, and CODEC_PIXELS_MAX
_PIXELS_MAX = _EDGE_MAX**2

_V1 = 'torchvision.transforms.transforms'
_V2 = 'torchvision.transforms.v2.'
_CLASSES = {
    'CenterCrop': (_V1, _V2 + '_geometry'),
    'Compose': (_V1, _V2 + '_container'),
    'ConvertImageDtype': (_V1, _V2 + '_misc'),
    'Normalize': (_V1, _V2 + '_misc'),
    'PILToTensor': (_V1, _V2 + '_type_conversion'),
    'RandomHorizontalFlip': (_V1, _V2 + '_geometry'),
    'RandomResizedCrop': (_V1, _V2 + '_geometry'),
    'Resize': (_V1, _V2 + '_geometry'),
    'ToDtype': (_V2 + '_misc',),
    'ToImage': (_V2 + '_type_conversion',),
    'ToPureTensor': (_V2 + '_type_conversion',),
    'ToTensor': (_V1, _V2 + '_deprecated'),
}
_KNOWN = {f'{module}.{name}': name for name, modules in _CLASSES.items() for module in modules}

_NAMES = ('nearest', 'lanczos', 'bilinear', 'bicubic', 'box', 'hamming')  # torchvision's, in the order of Pillow's numbers
_INTERPOLATIONS = {'nearest-exact': 'nearest', **{key: name for place, name in enumerate(_NAMES) for key in (name, place)}}

# The forms that an image has on its way.
_PIL = 'a PIL image'
_BYTES = 'a tensor of uint8'
_FLOATS = 'a tensor of float32'
_NORMALIZED = 'a normalized tensor'


def native(dataset, batch_size=1, **keys):
    """The pipeline that gives what this ImageFolder gives, for a Loader; `keys` are more of a pipeline's. NotNative where
    there is none."""
    pipeline, _ = translate(dataset)
    return {**pipeline, 'batch_size': batch_size, **keys}


def translate(dataset):
    """Source, transforms, output and on_error of that pipeline, and the steps in words."""
    _check_dataset(dataset)
    transforms, words, dtype = _translate_steps(dataset.transform)
    _check_files(dataset)
    return {
        'source': {'type': 'imagefolder', 'path': os.path.join(os.getcwd(), dataset.root), 'identity': _identity(dataset),
                   **_limits()},
        'transforms': transforms,
        'output': {'dtype': dtype, 'layout': 'chw'},
        'on_error': 'fail',  # where torchvision raises, no other sample takes the row
    }, words


# ---- what things are ----

def _class_of(thing):
    return f'{type(thing).__module__}.{type(thing).__qualname__}'


def _words(thing):
    """A short name; the whole one for what has the name of a class that is known and is not that class."""
    name = getattr(thing, '__name__', type(thing).__name__).strip('<>')
    return _class_of(thing) if name in _CLASSES or name == 'ImageFolder' else name


# ---- the dataset ----

def _check_dataset(dataset):
    if _class_of(dataset) != f'{_FOLDER}.ImageFolder':
        raise NotNative(f'the dataset is of class {_words(dataset)}, not of ImageFolder itself')
    if dataset.target_transform is not None:
        raise NotNative('target_transform is set')
    # ImageFolder makes this of the other two and never calls it; one that somebody has put there is meant to be
    if dataset.transforms is not None and _class_of(dataset.transforms) != 'torchvision.datasets.vision.StandardTransform':
        raise NotNative('transforms is set')
    if dataset.extensions is None:
        raise NotNative('is_valid_file is set')
    if sorted(dataset.extensions) != sorted(_EXTENSIONS):
        raise NotNative(f"extensions is {', '.join(dataset.extensions)}")
    _check_reading(dataset.loader)


def _check_reading(loader):
    """That files become pixels by Pillow, with its usual verdicts."""
    if getattr(loader, '__module__', None) != _FOLDER or loader.__qualname__ not in ('default_loader', 'pil_loader'):
        raise NotNative(f'loader is {_words(loader)}')
    torchvision, file = sys.modules.get('torchvision'), sys.modules.get('PIL.ImageFile')
    if torchvision and torchvision.get_image_backend() != 'PIL':
        raise NotNative(f"torchvision's image backend is {torchvision.get_image_backend()}")
    if file and file.LOAD_TRUNCATED_IMAGES:
        raise NotNative('PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set')


def _identity(dataset):
    """Of the files and their classes: a daemon that has looked through the folder before it was changed must not go on with
    what it knows. 0.2 us a file."""
    digest, start = hashlib.sha256(), len(dataset.root)
    for path, label in dataset.samples:
        digest.update(f'{label} {path[start:]}\0'.encode(errors='surrogateescape'))
    return digest.hexdigest()[:24]


def _limits():
    """Pillow warns of an image that has more pixels than its limit, and refuses twice as many."""
    image = sys.modules.get('PIL.Image')
    limit = image.MAX_IMAGE_PIXELS if image else _PIXELS // 2
    if not limit or not 1 <= 2 * limit <= _PIXELS_MAX:
        raise NotNative(f'PIL.Image.MAX_IMAGE_PIXELS is {limit}, of which pinfeed has no twofold')
    return {} if int(2 * limit) == _PIXELS else {'max_pixels': int(2 * limit)}


# ---- the files ----

def _check_files(dataset):
    """That a scan finds the dataset's samples, in the same order with the same labels, and can decode what ends like them."""
    try:
        classes = sorted(entry.name for entry in os.scandir(dataset.root) if entry.is_dir())
        _check_samples(dataset, _scan(dataset.root, classes))
    except OSError as error:
        raise NotNative(f'{error.filename}: {error.strerror}') from None
    except UnicodeEncodeError:
        raise NotNative('a file or folder has a name that is not UTF-8') from None
    labels = [label for _, label in dataset.samples]
    # What was made of the samples decides nothing, but who has changed it means something by that.
    for name, value in (('classes', classes), ('class_to_idx', {each: label for label, each in enumerate(classes)}),
                        ('imgs', dataset.samples), ('targets', labels)):
        if not _is_equal(getattr(dataset, name, None), value):
            raise NotNative(f'{name} has been changed')
    empty = set(range(len(classes))).difference(labels)
    if empty:
        raise NotNative(f'the class folder {classes[min(empty)]} has no images')


def _is_equal(value, expected):
    """Also where the labels have become a tensor, as samplers want them."""
    try:
        return type(expected)(value) == expected
    except (TypeError, ValueError):
        return False


def _check_samples(dataset, found):
    for number, (sample, there) in enumerate(itertools.zip_longest(dataset.samples, found)):
        if sample != there:
            raise NotNative(f"sample {number} is {sample or 'missing'}, and the folder has {there or 'none'} there")
        if not sample[0].lower().endswith(_DECODED):
            raise NotNative(f'{sample[0]} is no JPEG, PNG or WebP by its name')
        sample[0].encode()  # bytes that are no UTF-8 sort otherwise than text, so labels could differ


def _scan(root, classes):
    for label, name in enumerate(classes):
        for directory, _, files in sorted(os.walk(os.path.join(root, name), onerror=_raise, followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(_EXTENSIONS):
                    yield os.path.join(directory, file), label


def _raise(error):
    """os.walk leaves out what it cannot read unless it is told; the daemon does not."""
    raise error


# ---- the steps ----

class _Step(collections.namedtuple('_Step', 'thing name place')):
    """A transform, what it is called, and where it stands, counted from 1; 2.1 is the first of a Compose at 2."""

    def __str__(self):
        return f'{self.name} at step {self.place}'

    def refused(self, attribute):
        """For an attribute whose value is the trouble."""
        value = getattr(self.thing, attribute)
        return NotNative(f"{attribute} {getattr(value, 'value', value)} of {self}")


def _translate_steps(transform):
    """The transforms of a pipeline, their names for people, and the output's dtype."""
    transforms, words, form, unsized = [], [], _PIL, 'no step gives all images one size'
    for step in _flattened(transform):
        function, forms, becomes = _TABLE[step.name]
        if form not in forms:
            raise NotNative(f'{step} gets {form}')
        made = function(step)
        form = becomes or form
        if made:
            transforms.append(made)
            words.append(_SHORT.get(step.name, step.name))
        if step.name == 'Resize' and isinstance(made['resize']['size'], int):
            unsized = f'{step} gives a size to the shorter edge only, and no later step to both'
        elif step.name in ('Resize', 'CenterCrop', 'RandomResizedCrop'):
            unsized = None
    if form == _PIL:
        raise NotNative('no step makes a tensor of the PIL image')
    if unsized or len(transforms) > _TRANSFORMS_MAX:
        raise NotNative(unsized or f'there are {len(transforms)} steps, more than {_TRANSFORMS_MAX}')
    return transforms, words, 'uint8' if form == _BYTES else 'float32'


def _flattened(transform, place=''):
    """The steps of a transform, those of a Compose in its place."""
    if transform is None:
        return
    name = _KNOWN.get(_class_of(transform))
    step = _Step(transform, name or _words(transform), place or '1')
    if name is None:
        raise NotNative(str(step))
    _check_own(step)
    if name != 'Compose':
        yield step
        return
    for number, inner in enumerate(transform.transforms, 1):
        yield from _flattened(inner, f'{place}.{number}' if place else str(number))


def _check_own(step):
    """That an object of a known class does what the class does."""
    own = [name for name in vars(step.thing) if callable(getattr(type(step.thing), name, None))]
    own += [name for name in ('_forward_hooks', '_forward_pre_hooks') if vars(step.thing).get(name)]
    if own:
        raise NotNative(f'{step} has {own[0]} of its own')


def _resize(step):
    size, max_size = _size(step, 1, 2), step.thing.max_size
    if max_size is not None and not (isinstance(max_size, int) and isinstance(size, int) and size < max_size <= _EDGE_MAX):
        raise step.refused('max_size')
    bound = {} if max_size is None else {'max_size': max_size}
    return {'resize': {'size': size, 'interpolation': _interpolation(step), **bound}}


def _center_crop(step):
    return {'center_crop': {'size': _size(step, 2)}}


def _random_resized_crop(step):
    return {'random_resized_crop': {'size': _size(step, 2), 'scale': _pair(step, 'scale', *_SCALE),
                                    'ratio': _pair(step, 'ratio', *_RATIO), 'interpolation': _interpolation(step)}}


def _random_horizontal_flip(step):
    p = _numbers(step, 'p', 0, 1)
    if len(p) != 1:
        raise step.refused('p')
    return {'random_horizontal_flip': {'p': p[0]}}


def _normalize(step):
    return {'normalize': {'mean': _channels(step, 'mean', *_MEAN), 'std': _channels(step, 'std', *_STD)}}


def _to_tensor(step):
    torch = sys.modules.get('torch')
    if torch and str(torch.get_default_dtype()) != 'torch.float32':
        raise NotNative(f"{step} makes {torch.get_default_dtype()}, torch's default")


def _to_dtype(step):
    if str(step.thing.dtype) != 'torch.float32':
        raise step.refused('dtype')
    if not getattr(step.thing, 'scale', True):  # ConvertImageDtype always scales
        raise step.refused('scale')


def _to_same_values(step):
    pass


# ---- values of attributes ----

def _numbers(step, attribute, least, most):
    """A list, whether one number is there or several, of Python's, NumPy's or torch's."""
    value = getattr(step.thing, attribute)
    value = value.tolist() if hasattr(value, 'tolist') else value
    values = list(value) if hasattr(value, '__iter__') else [value]
    values = [each.item() if hasattr(each, 'item') else each for each in values]
    if not all(type(each) in (int, float) and least <= each <= most for each in values):
        raise step.refused(attribute)
    return values


def _size(step, *lengths):
    """n: a single number, which Resize alone keeps, for the shorter edge; or [height, width]."""
    values = _numbers(step, 'size', 1, _EDGE_MAX)
    if len(values) not in lengths or not all(type(each) is int for each in values):
        raise step.refused('size')
    return values if len(values) == 2 else values[0]


def _pair(step, attribute, least, most):
    values = _numbers(step, attribute, least, most)
    if len(values) != 2 or values[0] > values[1]:
        raise step.refused(attribute)
    return values


def _channels(step, attribute, least, most):
    """Of red, green and blue; a single number is for all of them."""
    values = _numbers(step, attribute, least, most)
    if len(values) not in (1, 3):
        raise step.refused(attribute)
    return values if len(values) == 3 else 3 * values


def _interpolation(step):
    """Antialiasing is an argument for tensors: Pillow's resampling, and so pinfeed's, always does it, but for nearest, which
    Pillow has one of."""
    mode = step.thing.interpolation
    name = _INTERPOLATIONS.get(getattr(mode, 'value', mode))
    if name is None:
        raise step.refused('interpolation')
    return name


_SHORT = {'RandomHorizontalFlip': 'HFlip'}

# What a step does, the forms that it may get, and what it makes of them; None: the same.
_TABLE = {
    'CenterCrop': (_center_crop, (_PIL, _BYTES, _FLOATS), None),
    'ConvertImageDtype': (_to_dtype, (_BYTES, _FLOATS), _FLOATS),
    'Normalize': (_normalize, (_FLOATS,), _NORMALIZED),
    'PILToTensor': (_to_same_values, (_PIL,), _BYTES),
    'RandomHorizontalFlip': (_random_horizontal_flip, (_PIL, _BYTES, _FLOATS, _NORMALIZED), None),
    'RandomResizedCrop': (_random_resized_crop, (_PIL,), None),
    'Resize': (_resize, (_PIL,), None),
    'ToDtype': (_to_dtype, (_BYTES, _FLOATS), _FLOATS),
    'ToImage': (_to_same_values, (_PIL,), _BYTES),
    'ToPureTensor': (_to_same_values, (_BYTES, _FLOATS, _NORMALIZED), None),
    'ToTensor': (_to_tensor, (_PIL,), _FLOATS),
}
