# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Samples taken apart into fields and batches put together of them, against default_collate; and batches as bytes."""

import collections
import dataclasses
import gc
import pickle
import re
import struct
import unittest
import unittest.mock

import pinfeed
from support import SLOWDOWN, Private, needs_numpy, needs_torch, numpy, start_script, torch

try:
    from PIL import Image
except ImportError:
    Image = None
if torch:
    from torch.utils.data import default_collate
    from torch.utils.data._utils.collate import default_collate_fn_map

    from pinfeed import blob, structure

Pair = collections.namedtuple('Pair', 'image label')


class Record(dict):
    pass


class Series(list):
    pass


class Strange(dict):
    def __init__(self, *, items=()):
        super().__init__(items)


class Outer:
    class Mapping(dict):
        pass


class Tagged(torch.Tensor if torch else object):
    pass


@dataclasses.dataclass
class Target:
    boxes: object
    name: str


def image(mode, number=0, size=(5, 4)):
    picture = Image.new(mode, size)
    picture.putpixel((number % 5, 1), 1)
    return picture


def tagged(number, tag=None):
    """A dict that has more than its items."""
    record = Record(a=number)
    if tag:
        record.tag = tag
    return record


def bools_of_255(number):
    return numpy.array([0, 255 * min(number, 1)], 'u1').view(bool)


def has_batches(samples):
    """torch 2 refuses some that 1.13 takes: sparse tensors, and bools of NumPy 2.3."""
    try:
        default_collate(samples)
    except (TypeError, RuntimeError):
        return False
    return True


# ---- samples of which rows can be made: sample number -> sample ----

def row_samples():
    torch_types = ('uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'bfloat16', 'float32', 'float64', 'bool',
                   'complex64', 'complex128', 'uint16', 'uint32', 'uint64', 'float8_e4m3fn')
    for name in torch_types:
        if hasattr(torch, name):
            yield f'torch {name}', lambda i, name=name: (torch.arange(6).reshape(2, 3) % 2 * i).to(getattr(torch, name))
    for name in ('u1', 'i1', 'i2', 'i4', 'i8', 'f2', 'f4', 'f8', '?', 'c8', 'c16'):
        yield f'array {name}', lambda i, name=name: (numpy.arange(6).reshape(2, 3) * i).astype(name)
        if has_batches([numpy.dtype(name).type(1)]):
            yield f'NumPy scalar {name}', lambda i, name=name: numpy.dtype(name).type(i)
    yield 'int', lambda i: i - 1
    yield 'large int', lambda i: 2**63 - 1 - i
    yield 'float', lambda i: i / 3
    yield 'nan', lambda i: float('nan')
    yield 'bool', lambda i: i == 1
    yield 'the classic', lambda i: (torch.full((3, 9, 9), i / 7), i)
    yield 'list', lambda i: [i, i * 0.5]
    yield 'named tuple', lambda i: Pair(torch.full((2,), i), i)
    yield 'dict', lambda i: {'x': torch.full((2,), i), 7: i, None: {'y': (i, [bool(i)])}}
    yield 'ordered dict', lambda i: collections.OrderedDict(b=i, a=-i)
    yield 'derived dict', lambda i: Record(a=i, b=2.5)
    yield 'derived dict within a class', lambda i: Outer.Mapping(a=i)
    yield 'derived list', lambda i: Series([i, i])
    yield 'dict in another order', lambda i: {'a': 1, 'b': 2.} if i else {'b': 2., 'a': 1}
    yield 'empty ones within', lambda i: ({}, (), [], {'a': ()}, i)
    yield 'no dimensions', lambda i: (torch.tensor(i), torch.tensor(i > 1), numpy.array(i), numpy.array(1j * i))
    yield 'sixteen', lambda i: list(range(i, i + 16))
    yield 'six dimensions', lambda i: torch.full((1, 2, 1, 2, 1, 3), i)
    yield 'six dimensions of int8', lambda i: torch.full((1, 2, 1, 2, 1, 3), i, dtype=torch.int8)
    yield 'five dimensions of int16', lambda i: torch.full((1, 2, 1, 2, 3), i, dtype=torch.int16)
    yield 'transposed', lambda i: (torch.arange(6.).reshape(2, 3).t() * i, numpy.arange(6).reshape(2, 3).T * i)
    yield 'expanded', lambda i: torch.tensor([float(i)]).expand(2, 3)
    yield 'conjugate', lambda i: (torch.arange(3) * (1 + i * 1j)).conj()
    yield 'part of a conjugate', lambda i: (torch.arange(3) * (1 + i * 1j)).conj().imag
    yield 'gradients', lambda i: (torch.full((2,), float(i), requires_grad=True), torch.nn.Parameter(torch.full((2,), i / 2)))
    yield 'read-only', lambda i: numpy.frombuffer(bytes([i, i]), dtype='u1')
    yield 'bools of 255', lambda i: (bools_of_255(i), torch.from_numpy(bools_of_255(i)))
    masked = numpy.ma.masked_array
    yield 'arrays of a derived class', lambda i: (masked([1., i], [True, False]), masked([i > 0, True], [True, False]))
    if Image:
        for mode in ('RGB', 'L', 'RGBA', '1', 'P', 'F', 'I'):
            yield f'image {mode}', lambda i, mode=mode: (image(mode, i), i)


def refusals():
    """(samples, exception, words)"""
    text = 'expected a tensor, an array, a number'
    grown = torch.zeros(3, 10, 10)
    yield [None] * 2, TypeError, f'^sample 0: NoneType, .*{text}'
    yield [(1, {'a': None})] * 2, TypeError, f'^field 1.a of sample 0: NoneType, .*{text}'
    yield [('text', {1, 2})] * 2, TypeError, '^field 1 of sample 0: set, of which default_collate makes no batch'
    yield [1j] * 2, TypeError, '^sample 0: complex, '
    yield [(numpy.array(['a']),)] * 2, TypeError, "^field 0 of sample 0: .*numpy.str_"
    yield [(numpy.array([None]),)] * 2, TypeError, '^field 0 of sample 0: .*numpy.object_'
    yield [{'x': numpy.zeros(2, '>f4')}] * 2, ValueError, '^field x of sample 0: .*byte order'
    yield [{'x': numpy.zeros(2)}, {'x': numpy.zeros(2)[::-1]}], ValueError, '^field x of sample 1: .*negative'
    yield [(torch.zeros(2, device='meta'),)] * 2, ValueError, '^field 0 of sample 0: a tensor on meta, and workers'
    yield ([(torch.zeros(3, 9, 9), 1), (grown, 1)], ValueError,
           r'^field 0 of sample 1: shape \(3, 10, 10\), where the first sample has \(3, 9, 9\)$')
    yield [numpy.zeros(2), numpy.zeros(2), numpy.zeros(3)], ValueError, r'^sample 2: shape \(3,\), where .* has \(2,\)$'
    yield [('text', torch.zeros(2)), ('words', torch.zeros(3))], ValueError, r'^field 1 of sample 1: shape \(3,\), where'
    yield [(1, 2), (1,)], ValueError, '^sample 1: 1 items, where the first sample has 2$'
    yield [{'a': [1, 2]}, {'a': [1, 2, 3]}], ValueError, '^field a of sample 1: 3 items, where the first sample has 2$'
    yield [{'a': 1, 'b': 2}, {'a': 1, 'c': 2}], ValueError, "^sample 1: no 'b', which the first sample has$"
    yield [2**63] * 2, RuntimeError, 'Overflow'
    yield [(1, torch.zeros(1)), (1, 2.5)], TypeError, 'expected Tensor'
    if Image:
        yield [image('RGB'), image('L')], ValueError, r'^sample 1: shape \(4, 5\), where the first sample has \(4, 5, 3\)$'


def not_rows():
    """(samples, words): batches there are, but no rows."""
    yield ['a', 'bcd'], '^a sample: str, which has no fixed size$'
    yield [{'x': (1, b'ab')}, {'x': (1, b'cd')}], '^field x.1: bytes, which has no fixed size$'
    yield [bytearray(b'ab')] * 2, '^a sample: bytearray, which'
    yield [list(range(17))] * 2, 'more than 16 fields'
    yield [list(range(500))] * 2, 'more than 16 fields'
    yield [torch.zeros((1,) * 7)] * 2, 'more than 6 dimensions'
    yield [torch.zeros((1,) * 6, dtype=torch.int16)] * 2, 'more than 6 dimensions'
    yield [(torch.zeros(0, 4), 1)] * 2, '^field 0: shape .0, 4., which has no elements'
    yield [{'a': {}}] * 2, 'nothing but empty'
    if has_batches([torch.eye(2).to_sparse()]):
        yield [torch.eye(2).to_sparse()] * 2, 'torch.float32 and torch.sparse_coo, which is more than its elements'
    yield [torch.quantize_per_tensor(torch.ones(2), 1., 0, torch.quint8)] * 2, 'quint8'
    yield [1, 2.5], '^a sample: float in sample 1, where the first sample has int$'
    yield [(True, 1), (2, 1)], '^field 0: int in sample 1, where the first sample has bool$'
    yield [1, numpy.int64(1)], 'numpy.int64 in sample 1'
    yield [torch.zeros(2), torch.zeros(2).double()], 'torch.float64 in sample 1, where the first sample has torch.float32'
    yield [numpy.zeros(2), numpy.zeros(2, 'f4')], '<f4 in sample 1, where the first sample has <f8'
    yield [(1, 2), [1, 2]], 'list in sample 1, where the first sample has tuple'
    yield [{'a': 1}, {'a': 1, 'b': 2}], "^a sample: 'b' in sample 1, which the first sample has not$"
    yield [tagged(1, 'x'), tagged(2, 'y')], 'test_structure.Record, of which only default_collate knows'
    yield [Strange(items=[('a', 1)])] * 2, 'default_collate does not give plain tensors'
    yield [collections.defaultdict(int, a=1)] * 2, 'default_collate does not give plain tensors in collections.defaultdict'
    yield [collections.UserDict(a=1)] * 2, 'collections.UserDict, of which only'
    yield [range(3)] * 2, 'range, of which only'
    yield [{(1, 2): 3}] * 2, 'neither texts nor numbers'
    yield [torch.zeros(2).as_subclass(Tagged)] * 2, 'does not give plain tensors in test_structure.Tagged'


def batches():
    """What a collate_fn may give."""
    yield from (make(1) for _, make in row_samples())
    yield [None, 1, 'text', b'bytes', {'a': (1, 2.5, True)}, Pair([1], {2, 3}), Target(torch.ones(2), 'x'), 2**80, 1j]
    yield [torch.ones(n, 4) for n in range(5)]
    yield torch.zeros(0), torch.zeros(3, 0, 2), numpy.zeros((0, 3)), torch.tensor(3), numpy.array(3)
    yield torch.rand(2, 3, 5, 4).to(memory_format=torch.channels_last), torch.rand(2, 3, 4).permute(2, 0, 1)
    yield torch.rand(9, 9)[::2, 1::3], torch.rand(3).expand(2, 3), torch.rand(3, 1).expand(3, 4)
    yield torch.eye(3).to_sparse(), torch.quantize_per_tensor(torch.ones(2), 1., 0, torch.quint8)
    yield torch.nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(2), False)
    derived = torch.ones(2, 3).as_subclass(Tagged)
    derived.tag = 'a tag'  # torch keeps attributes of derived classes, and of no others
    yield derived, torch.ones(2).as_subclass(Tagged), torch.float16, torch.Size([2])
    yield numpy.array(['2020-01-01'], 'M8[s]'), numpy.array(['a', 'bc']), numpy.array([None, 'a']), numpy.array(b'x', 'S3')
    yield numpy.zeros(3, [('a', 'i1'), ('b', '>f8')]), numpy.asfortranarray(numpy.ones((2, 3))), numpy.zeros(2, 'U0')
    yield numpy.arange(12).reshape(3, 4)[::-1, ::2], numpy.ma.masked_array([1, 2], [True, False]), numpy.float32(2)
    if Image:
        yield image('RGB'), image('P')


class Alike:
    def assert_alike(self, got, wanted):
        self.assertIs(type(got), type(wanted))
        if isinstance(wanted, torch.Tensor):
            self.assertEqual((got.dtype, got.shape, got.layout), (wanted.dtype, wanted.shape, wanted.layout))
            self.assertEqual(elements(got), elements(wanted))
            self.assertEqual(vars(got), vars(wanted))
        elif isinstance(wanted, numpy.ndarray):
            self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape))
            self.assertEqual(got.tolist() if got.dtype.hasobject else got.tobytes(), wanted.tolist() if wanted.dtype.hasobject
                             else wanted.tobytes())
        elif isinstance(wanted, collections.abc.Mapping):
            self.assertEqual(list(got), list(wanted))
            for key in wanted:
                self.assert_alike(got[key], wanted[key])
        elif isinstance(wanted, (list, tuple)):
            self.assertEqual(len(got), len(wanted))
            for one, other in zip(got, wanted):
                self.assert_alike(one, other)
        elif isinstance(wanted, (Target, collections.UserDict)):
            self.assert_alike(vars(got), vars(wanted))
        else:
            self.assertEqual(repr(got) if wanted != wanted else got, repr(wanted) if wanted != wanted else wanted)


def elements(tensor):
    tensor = tensor.to_dense() if tensor.is_sparse else tensor.detach().as_subclass(torch.Tensor)
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    data = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return (data != 0 if tensor.dtype is torch.bool else data).numpy().tobytes()


# ---- what _worker.Rows does ----

def take(spec, value, cells):
    """Appends the leaves of a sample to the cells of its fields."""
    kind, *rest = spec
    if kind == 'sequence':
        length, items = rest
        assert len(value) == length
        for item, part in zip(items, value):
            take(item, part, cells)
    elif kind == 'mapping':
        assert len(rest[0]) == len(value)
        for key, item in rest[0]:
            take(item, value[key], cells)
    else:
        index, kind, dtype, shape, _, convert = rest
        value = convert(value) if convert else value
        if kind == 'tensor':
            assert value.dtype is dtype and tuple(value.shape) == shape
            assert not value.is_conj() and not value.is_neg()
            cells[index] += value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        elif kind == 'array':
            assert value.dtype.str == dtype and value.shape == shape
            cells[index] += numpy.asarray(value).tobytes()
        else:
            cells[index] += struct.pack({'int': '<q', 'float': '<d', 'bool': '?'}[kind], value)


def ring(learned, samples):
    """The fields of these samples as a ring would have them."""
    fields = learned.fields.split()
    cells = [bytearray() for _ in fields]
    for sample in samples:
        take(learned.spec, sample, cells)
    tensors = []
    for field, cell in zip(fields, cells):
        name, dtype, dimensions = re.fullmatch(r'([A-Za-z0-9_.-]{1,31})=(\w+)\[([0-9,]*)\]', field).groups()
        shape = [int(number) for number in dimensions.split(',')] if dimensions else []
        tensors.append(torch.frombuffer(cell, dtype=getattr(torch, dtype)).reshape(len(samples), *shape))
    return tensors


@needs_torch
@needs_numpy
class Structures(Alike, unittest.TestCase):
    def test_batches_are_those_of_default_collate(self):
        for name, make in row_samples():
            with self.subTest(name):
                samples = [make(i) for i in range(5)]
                learned = structure.learn(samples[:2])
                for rows in (1, 5):
                    got = learned.build(ring(learned, samples[:rows]), rows)
                    self.assert_alike(got, default_collate([with_arrays(sample) for sample in samples[:rows]]))

    def test_one_sample_is_enough(self):
        for name, make in row_samples():
            with self.subTest(name):
                learned = structure.learn([make(1), make(2)])
                self.assertEqual(structure.learn([make(3)] * 2).identity(), learned.identity())

    def test_can_be_pickled(self):
        for name, make in row_samples():
            with self.subTest(name):
                learned = structure.learn([make(0), make(1)])
                copy = pickle.loads(pickle.dumps(learned))
                self.assertEqual((copy.fields, copy.spec, copy.identity()), (learned.fields, learned.spec, learned.identity()))
                self.assert_alike(copy.build(ring(copy, [make(2)]), 1), learned.build(ring(learned, [make(2)]), 1))

    def test_bools_are_0_and_1(self):
        samples = [(bools_of_255(i), torch.from_numpy(bools_of_255(i)), *([image('1', i)] if Image else [])) for i in range(2)]
        learned = structure.learn(samples)
        for tensor in learned.build(ring(learned, samples), 2):
            self.assertEqual((tensor.dtype, set(tensor.view(torch.uint8).flatten().tolist())), (torch.bool, {0, 1}))

    def test_fields(self):
        for sample, fields in (
            (1, 'data=int64[]'),
            ((torch.zeros(3, 9, 9), 1), '0=float32[3,9,9] 1=int64[]'),
            (Pair({'x': [1., True]}, torch.zeros(2, dtype=torch.int16)),
             'image.x.0=float64[] image.x.1=uint8[] label=uint8[2,2]'),
            ({'a b': 1, 'a_b': 2, 'a.b': 3, 'a': {'b': 4}, 1: 5, '1': 6, '': 7, 'é/': 8},
             'a_b=int64[] a_b-2=int64[] a.b=int64[] a.b-2=int64[] 1=int64[] 1-2=int64[] data=int64[] __=int64[]'),
            ({'x' * 31: 1, 'x' * 40: 2}, f"{'x' * 31}=int64[] {'x' * 29}-2=int64[]"),
        ):
            self.assertEqual(structure.learn([sample] * 2).fields, fields)

    def test_the_daemon_takes_these_fields(self):
        learned = sorted({structure.learn([make(0), make(1)]).fields for _, make in row_samples()})
        private = Private()
        self.addCleanup(private.stop)
        for fields in learned:
            source = {'type': 'python', 'brought': True, 'samples': 9, 'fields': fields}
            with self.assertRaisesRegex(pinfeed.Error, 'and there is none'):  # of the zygote, and nothing of the fields
                pinfeed.Loader({'source': source, 'batch_size': 2}, runtime_dir=private.runtime)

    def test_identity_tells_structures_apart(self):
        samples = [{'a': 1}, {'b': 1}, collections.OrderedDict(a=1), [1], Pair(1, 2), [1, 2], {'a': 1, 'b': 2},
                   {'b': 2, 'a': 1}, {1: 1}, {'1': 1}, torch.zeros(1), torch.zeros(1, 1), numpy.zeros(1, 'f4'), 1, 1.5, True,
                   numpy.uint8(1), ((1,), 2), (1, 2, {}), torch.zeros(1, dtype=torch.int8), torch.zeros(1, dtype=torch.bool)]
        identities = [structure.learn([sample] * 2).identity() for sample in samples]
        for text in identities:
            self.assertNotIn(' at 0x', text)
        twice = [text for text, count in collections.Counter(identities).items() if count > 1]
        self.assertEqual(twice, [])

    def test_refusals(self):
        for samples, kind, words in refusals():
            with self.subTest(words):
                self.assertRaisesRegex(kind, words, structure.learn, samples)

    def test_what_is_not_rows(self):
        for samples, words in not_rows():
            with self.subTest(words):
                self.assertRaisesRegex(structure.NotRows, words, structure.learn, samples)
                collated = structure.collate(samples)
                self.assert_alike(collated, default_collate(samples))
                self.assert_alike(through_bytes(collated), collated)

    def test_functions_of_the_users(self):
        def stack(batch, *, collate_fn_map=None):
            return torch.stack(batch) * 2

        with unittest.mock.patch.dict(default_collate_fn_map, {torch.Tensor: stack, complex: lambda batch, **_: batch}):
            for sample in ((torch.zeros(2), 1), 1j):
                self.assertRaisesRegex(structure.NotRows, 'was given a function for', structure.learn, [sample] * 2)
            structure.learn([1, 2])
        for strange in (lambda samples: default_collate(samples).float(), lambda samples: default_collate(samples)[None]):
            with unittest.mock.patch.object(structure, 'collate', strange):
                self.assertRaisesRegex(structure.NotRows, 'does not give plain tensors', structure.learn, [1, 2])

    @unittest.skipIf(Image is None, 'PIL is not installed')
    def test_images_in_batches(self):
        samples = [(f'name {i}', image('RGB', i)) for i in range(3)]
        self.assertRaisesRegex(structure.NotRows, 'str', structure.learn, samples)
        names, images = structure.collate(samples)
        self.assertEqual(names, ('name 0', 'name 1', 'name 2'))
        self.assert_alike(images, default_collate([numpy.asarray(sample[1]) for sample in samples]))


def with_arrays(sample):
    if Image and isinstance(sample, tuple) and isinstance(sample[0], Image.Image):
        return (numpy.array(sample[0]), *sample[1:])
    return sample


# ---- blobs ----

def written(value, room=100):
    parts = blob.encode(value)
    tensor = torch.full((parts.length + room,), 0xAA, dtype=torch.uint8)
    blob.write(parts, memoryview(tensor.numpy()))
    return tensor, parts.length


def through_bytes(value, copy=True):
    return blob.decode(written(value)[0], copy)


class Unwilling:
    def __reduce__(self):
        raise TypeError('not me')


@needs_torch
@needs_numpy
class Blobs(Alike, unittest.TestCase):
    def test_everything_comes_back(self):
        values = list(batches())
        for copy in (True, False):
            decoded = [through_bytes(value, copy) for value in values]
            gc.collect()  # nothing else holds their memory
            for number, (got, value) in enumerate(zip(decoded, values)):
                with self.subTest(number, copy=copy):
                    self.assert_alike(got, value)

    def test_bytes_are_the_same_everywhere(self):
        for number, value in enumerate(batches()):
            parts = blob.encode(value)
            one, other = bytearray(b'\xaa' * (parts.length + 70000)), bytearray(parts.length + 70000)
            for memory in (one, other):
                blob.write(parts, memoryview(memory))
            self.assertTrue(one == other, number)
            self.assertFalse(any(one[parts.length:]))

    def test_layout(self):
        tensor, length = written([torch.full((3,), 7, dtype=torch.uint8), torch.full((5,), 8, dtype=torch.uint8)])
        data = tensor.numpy().tobytes()
        magic, total, pickled, count, *lengths = struct.unpack_from('<8s5Q', data)
        self.assertEqual((magic, total, count, lengths), (b'pfbatch1', length, 2, [3, 5]))
        first = -(-(48 + pickled) // 64) * 64
        self.assertEqual(data[first:first + 3] + data[first + 64:length], b'\7\7\7\10\10\10\10\10')
        with self.assertRaisesRegex(ValueError, f'a batch of {length} bytes, where {length - 1} have room'):
            blob.write(blob.encode([torch.zeros(3).byte(), torch.zeros(5).byte()]), memoryview(bytearray(length - 1)))

    def test_memory(self):
        value = torch.rand(100), numpy.random.rand(100)
        tensor, _ = written(value)
        inside = range(tensor.data_ptr(), tensor.data_ptr() + tensor.numel())
        for copy in (True, False):
            got, array = blob.decode(tensor, copy)
            for address in (got.data_ptr(), array.ctypes.data):
                self.assertEqual(address in inside, not copy)
                self.assertEqual(address % 64 - (0 if copy else inside[0] % 64), 0)
            self.assertEqual(array.flags.writeable, copy)
        got, array = blob.decode(tensor)
        got += 1
        array += 1
        got.resize_(200)  # as a tensor that torch made itself
        self.assert_alike(blob.decode(tensor), value)

    def test_only_what_is_seen_is_sent(self):
        large = torch.zeros(1 << 20)
        for value in (large[5:9], large[::1 << 18], numpy.zeros(1 << 20)[:4], torch.nn.Parameter(large)[:4].detach()):
            self.assertLess(blob.encode(value).length, 1000)
        self.assertLess(blob.encode(torch.zeros(1).expand(1000)).length, 5000)

    def test_memory_is_beside_the_pickle(self):
        tensor = torch.ones(9)
        for value, beside in ((tensor, 1), (torch.nn.Parameter(tensor), 1), (tensor.as_subclass(Tagged), 1),
                              (numpy.ones(9), 1), (numpy.ones(9)[::2], 1), (numpy.array(['a', None]), 0)):
            self.assertEqual(len(blob.encode(value).pieces), 2 + beside, value)

    def test_one_object_comes_back_as_one(self):
        shared, other = torch.ones(1000), numpy.ones(1000)
        got = through_bytes([shared, shared, other, other, shared[:]])
        self.assertLess(blob.encode([shared, shared]).length, 5000)
        self.assertTrue(got[0] is got[1] and got[2] is got[3])
        self.assertNotEqual(got[4].data_ptr(), got[0].data_ptr())

    def test_order_in_memory_is_kept(self):
        images = torch.rand(2, 3, 5, 4).to(memory_format=torch.channels_last)
        self.assertEqual(through_bytes(images).stride(), images.stride())
        self.assertTrue(through_bytes(numpy.asfortranarray(numpy.ones((3, 2)))).flags.f_contiguous)
        self.assertTrue(through_bytes(torch.zeros(3).expand(4, 3)).is_contiguous())

    def test_gradients(self):
        leaf = torch.ones(2, requires_grad=True)
        got = through_bytes([leaf, torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), False)])
        self.assertEqual([tensor.requires_grad for tensor in got], [True, True, False])
        self.assertTrue(all(tensor.is_leaf for tensor in got))
        self.assertRaisesRegex(RuntimeError, r'requires gradients .* call detach\(\)', blob.encode, {'a': leaf * 2})

    def test_what_cannot_be_sent(self):
        for value, words in ((lambda: 0, 'function: '), ((i for i in ()), 'generator: '), (Unwilling(), 'Unwilling: not me'),
                             (unittest, 'module: ')):
            with self.assertRaisesRegex(TypeError, f'cannot be sent to another process, {words}'):
                blob.encode({'a': [value]})

    def test_damage(self):
        tensor, length = written([torch.ones(3), numpy.ones(3)], room=0)
        for end in range(length):
            with self.assertRaisesRegex(ValueError, 'no batch|damaged batch'):
                blob.decode(tensor[:end])
        self.assertRaisesRegex(ValueError, r"no batch: they begin with b'\\x00", blob.decode, torch.zeros(1000).byte())
        for offset in range(48):
            for value in (0xff, 0x80, 0):
                bad = tensor.clone()
                bad[offset] = value
                if bad[offset] != tensor[offset]:
                    with self.assertRaisesRegex(ValueError, 'no batch|damaged batch'):
                        blob.decode(bad)

    def test_without_numpy(self):
        output, _ = start_script(WITHOUT_NUMPY).communicate(timeout=60 * SLOWDOWN)
        self.assertEqual(output.splitlines()[-1:], ['as it was'], output)


WITHOUT_NUMPY = '''
import sys, warnings
sys.modules['numpy'] = None
warnings.simplefilter('ignore')
import torch
from pinfeed import blob, structure

samples = [(torch.full((2,), float(i)), i, True) for i in range(2)]
print(structure.learn(samples).fields)
parts = blob.encode(structure.collate(samples))
memory = bytearray(parts.length)
blob.write(parts, memoryview(memory))
images, labels, flags = blob.decode(torch.frombuffer(memory, dtype=torch.uint8))
assert images.tolist() == [[0, 0], [1, 1]] and labels.tolist() == [0, 1] and flags.tolist() == [True, True]
print('as it was')
'''
