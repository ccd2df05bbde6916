# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed._worker.Rows: what of a sample reaches its cells, and what is refused in which words."""

import struct
from collections import namedtuple

from pinfeed import _worker
from support import needs_numpy, needs_torch, numpy, torch
from worker_case import NUMBER, Talk, leaf, mapping, number, rows, sequence

Pair = namedtuple('Pair', 'image label')


class Leaves(Talk):
    def test_python_numbers(self):
        fields = [('i', 'int64', ()), ('f', 'float64', ()), ('b', 'uint8', ())]
        worker = self.worker(fields, rows(lambda sample: (-sample, sample / 3, sample == 2),
                                          sequence(leaf(0, 'int'), leaf(1, 'float'), leaf(2, 'bool'))))
        worker.fill(2, 2)
        self.assertEqual([number(worker.cell(row)) for row in (0, 1)], [-2, -3])
        self.assertEqual(struct.unpack('<d', worker.cell(0, 1)), (2 / 3,))
        self.assertEqual([worker.cell(row, 2) for row in (0, 1)], [b'\1', b'\0'])

    def test_whole_numbers_are_floats_too(self):
        worker = self.worker([('f', 'float64', ())], rows(lambda sample: sample, leaf(0, 'float')))
        worker.fill(2, 1)
        self.assertEqual(struct.unpack('<d', worker.cell(0)), (2.0,))

    def test_nests(self):
        class Row(dict):
            pass
        fields = [(name, 'int64', ()) for name in 'abcde']
        spec = mapping(x=sequence(leaf(0, 'int'), sequence(leaf(1, 'int'))), y=leaf(2, 'int'),
                       z=sequence(leaf(3, 'int'), leaf(4, 'int')))
        worker = self.worker(fields, rows(lambda sample: Row(z=Pair(4, 5), x=[1, (2,)], y=3), spec))
        worker.fill(0, 1)
        self.assertEqual([number(worker.cell(0, field)) for field in range(5)], [1, 2, 3, 4, 5])
        worker = self.worker(fields, rows(lambda sample: dict(z=range(4, 6), x=[1, [2]], y=3), spec))
        worker.fill(0, 1)
        self.assertEqual([number(worker.cell(0, field)) for field in range(5)], [1, 2, 3, 4, 5])

    def test_convert_comes_first(self):
        worker = self.worker(NUMBER, rows(str, leaf(0, 'int', convert=int)))
        worker.fill(41, 1)
        self.assertEqual(number(worker.cell(0)), 41)

    def test_what_does_not_fit(self):
        one, two = [('a', 'int64', ())], [('a', 'int64', ()), ('b', 'int64', ())]
        pair = sequence(leaf(0, 'int', name='a'), leaf(1, 'int', name='b'))
        keys = mapping(a=leaf(0, 'int', name='a'), b=leaf(1, 'int', name='b'))
        cases = (
            (one, leaf(0, 'int', name='a'), 1.5, 'field a of sample 3: type float, where the first samples have int'),
            (one, leaf(0, 'int', name='a'), None, 'field a of sample 3: type NoneType, where the first samples have int'),
            (one, leaf(0, 'int', name='a'), 2**63, 'field a of sample 3: a number that does not fit into int64'),
            ([('a', 'float64', ())], leaf(0, 'float', name='a'), '1',
             'field a of sample 3: type str, where the first samples have float'),
            ([('a', 'float64', ())], leaf(0, 'float', name='a'), 10**400,
             'field a of sample 3: a number that does not fit into float64'),
            ([('a', 'uint8', ())], leaf(0, 'bool', name='a'), 1,
             'field a of sample 3: type int, where the first samples have bool'),
            (two, pair, (1, 2, 3), 'sample 3: 3 elements for the fields a, b, where the first samples have 2'),
            (two, pair, [1], 'sample 3: 1 elements for the fields a, b, where the first samples have 2'),
            (two, pair, range(3), 'sample 3: 3 elements for the fields a, b, where the first samples have 2'),
            (two, pair, 'ab', 'sample 3: type str for the fields a, b, where the first samples have a sequence'),
            (two, pair, {0: 1, 1: 2}, 'sample 3: type dict for the fields a, b, where the first samples have a sequence'),
            (two, pair, 5, 'sample 3: type int for the fields a, b, where the first samples have a sequence'),
            (two, keys, (1, 2), 'sample 3: type tuple for the fields a, b, where the first samples have a mapping'),
            (two, keys, {'a': 1}, "sample 3: no key 'b', which the first samples have"),
            (two, keys, {'a': 1, 'b': 2, 'c': 3}, "sample 3: the key 'c', which the first samples have not"),
        )
        for fields, spec, value, text in cases:
            with self.subTest(text):
                self.assertEqual(self.refusal(fields, spec, value), 'ValueError: ' + text)

    def test_specs_that_make_no_sense(self):
        for spec in (None, (), ('leaf',), ('leaf', 0, 'text', None, (), 'a', None), ('tree', 1), ('sequence', 2, ()),
                     ('leaf', 0, 'int', None, (2,), 'a', None), ('leaf', 0, 'array', 'f4', (), 'a', None),
                     ('leaf', 0, 'array', '>f4', (), 'a', None), ('leaf', 0, 'array', '<f4', (-1,), 'a', None),
                     ('leaf', 0, 'array', '<f4', (2**40, 2**40), 'a', None), ('leaf', 0, 'array', '<f4', (1,) * 33, 'a', None),
                     ('mapping', ((1,),)), ('sequence', 1, (5,))):
            with self.subTest(spec), self.assertRaises((TypeError, ValueError)):
                _worker.Rows(None, spec)
        spec = leaf(0, 'int')
        for _ in range(10**5):
            spec = sequence(spec)
        self.assertRaises(RecursionError, _worker.Rows, None, spec)
        while spec[0] == 'sequence':  # or its end would need a stack as deep
            spec = spec[2][0]


@needs_numpy
class Arrays(Talk):
    def test_arrays(self):
        base = numpy.arange(2 * 3 * 4 * 5, dtype='f4').reshape(2, 3, 4, 5)
        fields = [('a', 'float32', (3, 4))]
        for shown in (base[1, :, :, 2], base[0, ..., ::-1][..., 1], numpy.asfortranarray(base[0, :, :, 0]),
                      base[0, :, :, 0].copy(), numpy.broadcast_to(numpy.float32(3), (3, 4)),
                      base[0, :, 0:1].repeat(4, 1)[..., 0]):
            worker = self.worker(fields, rows(lambda sample: shown, leaf(0, 'array', '<f4', (3, 4))))
            worker.fill(0, 2)
            self.assertEqual(worker.cell(1), shown.tobytes())

    def test_scalars_and_small_types(self):
        for value, field in ((numpy.float64(2.5), ('a', 'float64', ())), (numpy.uint8(7), ('a', 'uint8', ())),
                             (numpy.bool_(True), ('a', 'uint8', ())), (numpy.array(5), ('a', 'int64', ())),
                             (numpy.zeros((2, 0), 'f4'), ('a', 'float32', (2, 0))),
                             (numpy.float16([1, 2]), ('a', 'float16', (2,)))):
            spec = leaf(0, 'array', numpy.asarray(value).dtype.str, field[2])
            worker = self.worker([field], rows(lambda sample: value, spec))
            worker.fill(0, 1)
            self.assertEqual(worker.cell(0), value.tobytes())

    def test_what_does_not_fit(self):
        a = [('a', 'float32', (3, 4))]
        spec = leaf(0, 'array', '<f4', (3, 4), 'a')
        for value, text in ((numpy.zeros((3, 5), 'f4'), 'shape (3, 5), where the first samples have (3, 4)'),
                            (numpy.zeros((12,), 'f4'), 'shape (12,), where the first samples have (3, 4)'),
                            (numpy.zeros((3, 4), 'f8'), 'dtype <f8, where the first samples have <f4'),
                            (numpy.zeros((3, 4), 'i4'), 'dtype <i4, where the first samples have <f4'),
                            (numpy.zeros((3, 4), '>f4'), 'dtype >f4, where the first samples have <f4'),
                            (numpy.zeros((3, 4), 'u1'), 'dtype |u1, where the first samples have <f4'),
                            (numpy.zeros((3, 4), object), 'dtype <O8, where the first samples have <f4'),
                            ([[0.0] * 4] * 3, "type list, where the first samples have an array of NumPy's")):
            with self.subTest(text):
                self.assertEqual(self.refusal(a, spec, value), f'ValueError: field a of sample 3: {text}')


@needs_torch
class Tensors(Talk):
    def test_tensors(self):
        base = torch.arange(2 * 3 * 4, dtype=torch.float32).reshape(2, 3, 4)
        channels_last = base.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)[0]
        for shown in (base, base.transpose(1, 2).contiguous().transpose(1, 2), channels_last, base.clone().requires_grad_(),
                      base[:1].expand(2, 3, 4), torch.nn.Parameter(base), torch.stack([base, base])[1]):
            worker = self.worker([('a', 'float32', (2, 3, 4))],
                                 rows(lambda sample: shown, leaf(0, 'tensor', torch.float32, (2, 3, 4))))
            worker.fill(0, 2)
            self.assertEqual(worker.cell(1), shown.detach().numpy().tobytes())

    def test_scalars_and_types(self):
        negative = torch.tensor([1 + 2j]).conj().imag
        self.assertTrue(negative.is_neg() and negative.is_contiguous())
        for value, dtype in ((torch.tensor(5), 'int64'), (torch.tensor([1.5, 2], dtype=torch.float16), 'float16'),
                             (torch.tensor(True), 'uint8'), (torch.zeros(2, 0), 'float32'), (negative, 'float32'),
                             (torch.tensor([1.5], dtype=torch.bfloat16), 'bfloat16')):
            worker = self.worker([('a', dtype, tuple(value.shape))],
                                 rows(lambda sample: value, leaf(0, 'tensor', value.dtype, tuple(value.shape))))
            worker.fill(0, 1)
            bits = torch.empty(value.shape, dtype=value.dtype).copy_(value)
            expected = bits.view(torch.int16) if value.dtype == torch.bfloat16 else bits
            self.assertEqual(worker.cell(0), expected.numpy().tobytes())

    def test_what_does_not_fit(self):
        spec = leaf(0, 'tensor', torch.float32, (3, 9, 9), 'image')
        for value, text in ((torch.zeros(3, 10, 10), 'shape (3, 10, 10), where the first samples have (3, 9, 9)'),
                            (torch.zeros(()), 'shape (), where the first samples have (3, 9, 9)'),
                            (torch.zeros(3, 9, 9, dtype=torch.float64),
                             'dtype torch.float64, where the first samples have torch.float32'),
                            (torch.quantize_per_tensor(torch.zeros(3, 9, 9), 0.1, 0, torch.quint8),
                             'dtype torch.quint8, where the first samples have torch.float32'),
                            (torch.zeros(3, 9, 9).to_sparse(),
                             'a tensor of layout torch.sparse_coo, expected a dense one: return value.to_dense()'),
                            (torch.zeros(3, 9, 9, device='meta'),
                             'a tensor on meta, expected one on the CPU: return value.cpu()'),
                            (3.5, 'type float, where the first samples have Tensor')):
            with self.subTest(text):
                self.assertEqual(self.refusal([('image', 'float32', (3, 9, 9))], spec, value),
                                 f'ValueError: field image of sample 3: {text}')
