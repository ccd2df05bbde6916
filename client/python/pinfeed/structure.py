# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What the samples of a dataset in Python consist of, and how a batch is put together of their parts.

A sample is a nest of dicts, lists and tuples, and what is not one of these is a leaf: a tensor, an array, a number, an image.
Where all samples of a dataset are alike, each leaf is a field of a row: workers store it to its place in the ring, and a
batch of it is there already, as one tensor. What is left to do for a batch is to put these tensors into the nest again.

The law is what PyTorch's default_collate gives, of the PyTorch that is installed. It differs between versions in what
becomes of classes derived from dict and list, and users may extend it. So `learn` asks it, and compares. It raises NotRows
for all that cannot be of fixed fields, but also for all that is unusual; batches are the unit of work then, default_collate
makes them in the worker, and the result is right by itself (see blob.py). What default_collate refuses is an error either
way, but for images of PIL's, which are arrays here.

A tensor that requires gradients comes without them: it is the result of a computation in another process.
"""

import collections
import collections.abc
import json
import re
import sys
import warnings

import torch
from torch.utils.data._utils.collate import collate as _collate
from torch.utils.data._utils.collate import default_collate_fn_map

from .blob import is_plain

_FIELDS_MAX = 16
_DIMENSIONS_MAX = 6
_NAME_MAX = 31
_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9._-]')
_WHOLE = 'data'  # the name of a sample that is one leaf

_WIRE = {getattr(torch, name): name for name in ('uint8', 'int32', 'int64', 'float16', 'bfloat16', 'float32', 'float64')}
_NUMBERS = ((bool, 'bool', torch.bool), (float, 'float', torch.float64), (int, 'int', torch.int64))  # a bool is an int, too


class NotRows(Exception):
    """Batches of these samples can be made, but not out of rows of fixed fields. The text says why."""


def learn(samples):
    """The Structure of all samples of a dataset, of which `samples`, at least two, are the first.

    Raises NotRows, or TypeError, ValueError or whatever default_collate raises for samples that no batch can be made of.
    """
    learner = _Learner()
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', '.*not writ', UserWarning)  # of arrays that are only looked at here
        root = learner.node(samples, ())
        truth = collate(samples)
    if learner.reason:
        raise NotRows(learner.reason)
    if not learner.leaves:
        raise NotRows('a sample holds nothing but empty dicts, lists and tuples')
    structure = Structure(root, learner.leaves)
    if not _gives(structure, learner.leaves, len(samples), truth):
        raise NotRows(f'default_collate does not give plain tensors in {_type_name(samples[0])} as usual')
    return structure


def collate(samples):
    """default_collate, where images of PIL's are arrays."""
    images = sys.modules.get('PIL.Image')
    ours = {} if images is None else {images.Image: _stack_images}
    return _collate(samples, collate_fn_map={**ours, **default_collate_fn_map})


class Structure:
    """What `learn` has found. Can be pickled where the classes of the samples' dicts, lists and tuples can.

    fields: of a row, as the recipe of a pipeline has them: '0=float32[3,9,9] 1=int64[]'. Types that the wire has no name for
    travel as uint8, with one dimension more for the bytes of an element if it has several.

    spec: how _worker.Rows takes a sample apart.
    """

    def __init__(self, root, leaves):
        self._root = root
        self._leaves = leaves
        self.fields = ' '.join(leaf.field() for leaf in leaves)
        self.spec = root.spec()

    def build(self, tensors, rows):
        """The batch, from a tensor (rows, *shape of the field) for each field."""
        return self._root.build(tensors, rows)

    def cells(self):
        """(dtype, shape) of each field, as on the wire."""
        return [leaf.cell() for leaf in self._leaves]

    def identity(self):
        """The same text for the same structure in each process."""
        return f'{self.fields} as {self._root.text()}'

    def to_json(self):
        """For other processes, which may not have the classes: named tuples are tuples there, and classes derived from dict and
        list are dicts and lists. Raises NotRows where that is not possible."""
        return json.dumps(self._root.plain(), separators=(',', ':'))

    @staticmethod
    def from_json(text):
        """The Structure that to_json() was called of. Raises ValueError for what cannot be one: nothing of the text is run, and
        nothing imported for it."""
        leaves = []
        try:
            return Structure(_node_of(json.loads(text), leaves), leaves)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f'this is no layout of a sample: {type(error).__name__}: {error}') from None


# ---- the nodes of a structure: each says its part of the spec, of a batch and of the identity ----

class _Leaf(collections.namedtuple('_Leaf', 'index name kind type dtype shape convert')):
    """`type` is what a sample's value is compared with, `dtype` torch's for the batch."""

    def spec(self):
        return 'leaf', self.index, self.kind, self.type, self.shape, self.name, self.convert

    def build(self, tensors, rows):
        tensor = tensors[self.index]
        return tensor if self.dtype in _WIRE else tensor.view(self.dtype).view(rows, *self.shape)

    def blank(self, rows):
        return torch.empty((rows, *_wire_shape(self.dtype, self.shape)), dtype=getattr(torch, self._wire()))

    def text(self):
        by = f' by {self.convert.__module__}.{self.convert.__qualname__}' if self.convert else ''
        return f'{self.kind} {self.type} {self.dtype} {self.shape}{by}'

    def cell(self):
        return self._wire(), _wire_shape(self.dtype, self.shape)

    def plain(self):
        kind = self.type if self.kind == 'array' else _plain_dtype(self.type)
        convert = None if self.convert is None else _name_of_convert(self.convert)
        return {'leaf': [self.name, self.kind, kind, _plain_dtype(self.dtype), list(self.shape), convert]}

    def field(self):
        dtype, shape = self.cell()
        return f"{self.name}={dtype}[{','.join(map(str, shape))}]"

    def _wire(self):
        return _WIRE.get(self.dtype, 'uint8')


class _Sequence(collections.namedtuple('_Sequence', 'type items')):
    """`type` is the batch's: a list's, or a named tuple's."""

    def spec(self):
        return 'sequence', len(self.items), tuple(item.spec() for item in self.items)

    def build(self, tensors, rows):
        items = [item.build(tensors, rows) for item in self.items]
        if self.type in (list, tuple):
            return self.type(items)
        return self.type(*items) if issubclass(self.type, tuple) else self.type(items)

    def text(self):
        return f"{_name_of(self.type)}[{', '.join(item.text() for item in self.items)}]"

    def plain(self):
        return {'tuple' if issubclass(self.type, tuple) else 'list': [item.plain() for item in self.items]}


class _Mapping(collections.namedtuple('_Mapping', 'type keys items')):
    def spec(self):
        return 'mapping', tuple((key, item.spec()) for key, item in zip(self.keys, self.items))

    def build(self, tensors, rows):
        items = {key: item.build(tensors, rows) for key, item in zip(self.keys, self.items)}
        return items if self.type is dict else self.type(items)

    def text(self):
        pairs = (f'{key!r}: {item.text()}' for key, item in zip(self.keys, self.items))
        return f"{_name_of(self.type)}{{{', '.join(pairs)}}}"

    def plain(self):
        for key in self.keys:
            if not isinstance(key, str):
                raise NotRows(f'a dict with the key {key!r}, which is no text')
        return {'dict': [[key, item.plain()] for key, item in zip(self.keys, self.items)]}


# ---- from JSON ----

def _node_of(plain, leaves):
    (kind, parts), = plain.items()
    if kind == 'leaf':
        leaves.append(_leaf_of(len(leaves), *parts))
        return leaves[-1]
    if kind == 'dict':
        if not all(isinstance(key, str) for key, _ in parts):
            raise ValueError('a dict with a key that is no text')
        return _Mapping(dict, tuple(key for key, _ in parts), [_node_of(item, leaves) for _, item in parts])
    return _Sequence({'list': list, 'tuple': tuple}[kind], [_node_of(item, leaves) for item in parts])


def _leaf_of(index, name, kind, type, dtype, shape, convert):
    kinds = ('tensor', 'array', *(number for _, number, _ in _NUMBERS))
    texts = all(isinstance(text, str) for text in (name, type, dtype))
    if not texts or kind not in kinds or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f'field {index} is not described as one')
    return _Leaf(index, name, kind, type if kind == 'array' else _dtype_of(type), _dtype_of(dtype), tuple(shape),
                 None if convert is None else _CONVERTS[convert])


def _plain_dtype(dtype):
    return str(dtype).rpartition('.')[2]


def _dtype_of(name):
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f'{name} is no dtype')
    return found


def _name_of_convert(convert):
    return next(name for name, function in _CONVERTS.items() if function is convert)


# ---- learning ----

_Look = collections.namedtuple('_Look', 'kind type dtype shape convert')


class _Learner:
    """Goes through the samples side by side. What prevents rows is kept as the `reason`, and the walk goes on without a node
    there: something that prevents any batch may follow, which is what the user must hear of."""

    def __init__(self):
        self.leaves = []
        self.reason = None
        self._names = set()

    def node(self, values, path):
        """Of what the samples have at this place: `path` is the keys and numbers that lead to it."""
        first = values[0]
        if not _is_torchs_own(first):
            return self._cannot(path, f"torch's default_collate_fn_map was given a function for {_type_name(first)}")
        if isinstance(first, (str, bytes, bytearray, memoryview)):
            return self._cannot(path, f'{_type_name(first)}, which has no fixed size')
        look = _look_at(first, path, 0)
        if look is not None:
            return self._leaf(values, look, path)
        if isinstance(first, collections.abc.Mapping):
            return self._mapping(values, path)
        if isinstance(first, collections.abc.Sequence):
            return self._sequence(values, path)
        if _collator(first) is not None:
            return self._cannot(path, f'{_type_name(first)}, of which only default_collate knows what it is')
        raise TypeError(f'{_place(path, 0)}: {_type_name(first)}, of which default_collate makes no batch: expected a tensor, '
                        'an array, a number, a text, an image or a dict, list or tuple of these, or a collate_fn')

    def _cannot(self, path, why):
        self.reason = self.reason or f'{_place(path, None)}: {why}'

    def _leaf(self, values, look, path):
        if len(self.leaves) == _FIELDS_MAX:
            return self._cannot((), f'more than {_FIELDS_MAX} fields')
        looks = [look] + [_look_at(value, path, number) for number, value in enumerate(values[1:], 1)]
        if not self._agree(looks, values, path) or not self._fits(values[0], look, path):
            return None
        convert = next((look.convert for look in looks if look.convert), None)
        leaf = _Leaf(len(self.leaves), self._name(path), *look._replace(convert=convert))
        self.leaves.append(leaf)
        return leaf

    def _agree(self, looks, values, path):
        first = looks[0]
        for number, look in enumerate(looks):
            if look is None or look.kind != first.kind:
                return self._cannot(path, f'{_type_name(values[number])} in sample {number}, where the first sample has '
                                          f'{_type_name(values[0])}')
            if look.shape != first.shape:
                raise ValueError(f'{_place(path, number)}: shape {look.shape}, where the first sample has {first.shape}')
            if look.type != first.type:
                return self._cannot(path, f'{look.type} in sample {number}, where the first sample has {first.type}')
        return True

    def _fits(self, value, look, path):
        if isinstance(value, torch.Tensor) and value.device.type != 'cpu':
            raise ValueError(f'{_place(path, 0)}: a tensor on {value.device}, and workers have only the memory of the CPU: '
                             'let the dataset give CPU tensors, and move the batch')
        if isinstance(value, torch.Tensor) and not is_plain(value):
            return self._cannot(path, f'a tensor of {value.dtype} and {value.layout}, which is more than its elements')
        if 0 in look.shape:
            return self._cannot(path, f'shape {look.shape}, which has no elements')
        if len(_wire_shape(look.dtype, look.shape)) > _DIMENSIONS_MAX:
            return self._cannot(path, f'shape {look.shape} of {look.dtype}, more than {_DIMENSIONS_MAX} dimensions')
        return True

    def _mapping(self, values, path):
        first = values[0]
        if not self._are_all(dict, values, path) or not self._have_keys(values, path):
            return None
        keys = tuple(first)
        if not all(isinstance(key, (str, bytes, int, float, type(None))) for key in keys):
            return self._cannot(path, 'a dict with keys that are neither texts nor numbers')
        return _Mapping(type(first), keys, [self.node([value[key] for value in values], (*path, key)) for key in keys])

    def _have_keys(self, values, path):
        for number, value in enumerate(values):
            for key in values[0]:
                if key not in value:
                    raise ValueError(f'{_place(path, number)}: no {key!r}, which the first sample has')
            if len(value) != len(values[0]):
                more = next(key for key in value if key not in values[0])
                return self._cannot(path, f'{more!r} in sample {number}, which the first sample has not')
        return True

    def _sequence(self, values, path):
        first = values[0]
        if not self._are_all((list, tuple), values, path):
            return None
        for number, value in enumerate(values):
            if len(value) != len(first):
                raise ValueError(f'{_place(path, number)}: {len(value)} items, where the first sample has {len(first)}')
        named = isinstance(first, tuple) and hasattr(first, '_fields')
        steps = first._fields if named else range(len(first))
        items = []
        for step, *column in zip(steps, *values):
            items.append(self.node(column, (*path, step)))
            if len(self.leaves) == _FIELDS_MAX and self.reason:
                break  # a long list of numbers
        return _Sequence(list if isinstance(first, tuple) and not named else type(first), items)

    def _are_all(self, kinds, values, path):
        """Whether all are of one class, derived from those, and hold nothing beside their items, of which default_collate
        might take care."""
        first = values[0]
        for number, value in enumerate(values):
            if type(value) is not type(first):
                return self._cannot(path, f'{_type_name(value)} in sample {number}, where the first sample has '
                                          f'{_type_name(first)}')
        if isinstance(first, kinds) and not _has_state(first):
            return True
        return self._cannot(path, f'{_type_name(first)}, of which only default_collate knows what it is')

    def _name(self, path):
        """Legal, and no other field's."""
        whole = _NOT_IN_NAMES.sub('_', _dotted(path))[:_NAME_MAX]
        name, number = whole, 1
        while name in self._names:
            number += 1
            name = f'{whole[:_NAME_MAX - 1 - len(str(number))]}-{number}'
        self._names.add(name)
        return name


def _look_at(value, path, number):
    """What a value is as a leaf, or None: it is none."""
    if isinstance(value, torch.Tensor):
        untidy = value.dtype is torch.bool or value.is_complex() or value.is_neg()
        return _Look('tensor', value.dtype, value.dtype, tuple(value.shape), _tidy_tensor if untidy else None)
    numpy = sys.modules.get('numpy')
    if numpy and isinstance(value, (numpy.ndarray, numpy.generic)) and not isinstance(value, (str, bytes)):
        return _look_at_array(value, _tidy_bools if value.dtype == bool else None, path, number)
    images = sys.modules.get('PIL.Image')
    if images and isinstance(value, images.Image):
        return _look_at_array(_array_of(value), _array_of, path, number)
    for kind, name, dtype in _NUMBERS:
        if isinstance(value, kind):
            return _Look(name, dtype, dtype, (), None)
    return None


def _look_at_array(array, convert, path, number):
    import numpy

    try:
        dtype = torch.as_tensor(numpy.asarray(array)).dtype
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f'{_place(path, number)}: {error}') from None
    return _Look('array', array.dtype.str, dtype, array.shape, convert)


def _array_of(image):
    import numpy

    array = numpy.asarray(image)
    return _tidy_bools(array) if array.dtype == bool else array


def _tidy_bools(array):
    """PIL, for one, gives bools of which a true one is 255, and torch takes nothing but 1 for granted."""
    import numpy

    return numpy.asarray(array).view('u1') != 0


def _tidy_tensor(tensor):
    """For tensors whose memory holds something else than they say: lazily negated or conjugated, or bools as above."""
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8) != 0
    return tensor.resolve_conj().resolve_neg()


_CONVERTS = {'array_of': _array_of, 'tidy_bools': _tidy_bools, 'tidy_tensor': _tidy_tensor}


def _collator(value):
    """By which function default_collate makes a batch of values of this type, as it looks for it; None: it has none."""
    function = default_collate_fn_map.get(type(value))
    return function or next((made for kind, made in default_collate_fn_map.items() if isinstance(value, kind)), None)


def _is_torchs_own(value):
    function = _collator(value)
    return function is None or getattr(function, '__module__', None) == _collate.__module__


def _stack_images(images, *, collate_fn_map=None):
    return torch.stack([torch.as_tensor(_array_of(image).copy()) for image in images])


def _has_state(value):
    """Whether a dict or list has more than its items, by what would be pickled of it. A tuple has not: default_collate makes
    a list or a new tuple of it."""
    if type(value) in (dict, list) or isinstance(value, tuple):
        return False
    try:
        return any(value.__reduce_ex__(2)[2:3])
    except TypeError:  # cannot be pickled
        return True


def _gives(structure, leaves, rows, truth):
    """Whether a batch of the structure has the types and shapes of one of default_collate's."""
    try:
        return _alike(structure.build([leaf.blank(rows) for leaf in leaves], rows), truth)
    except (TypeError, RuntimeError):  # of a class that is made in another way, or torch cannot view bytes as this type
        return False


def _alike(built, truth):
    if type(built) is not type(truth):
        return False
    if isinstance(truth, torch.Tensor):
        return (built.dtype, built.shape) == (truth.dtype, truth.shape)
    if isinstance(truth, collections.abc.Mapping):
        return list(built) == list(truth) and all(_alike(built[key], truth[key]) for key in truth)
    return len(built) == len(truth) and all(map(_alike, built, truth))


def _wire_shape(dtype, shape):
    size = 1 if dtype in _WIRE else torch.empty(0, dtype=dtype).element_size()
    return shape if size == 1 else (*shape, size)


def _dotted(path):
    return '.'.join(map(str, path)) or _WHOLE


def _place(path, number):
    """For texts."""
    words = [f'field {_dotted(path)}'] if path else []
    if number is not None:
        words.append(f'sample {number}')
    return ' of '.join(words) or 'a sample'


def _name_of(kind):
    return kind.__qualname__ if kind.__module__ == 'builtins' else f'{kind.__module__}.{kind.__qualname__}'


def _type_name(value):
    return _name_of(type(value))
