# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A batch of anything in one row of bytes: a pickle, and behind it the memory of tensors and arrays.

    offset  size
    0       8      the letters "pfbatch1"
    8       8      bytes of all of it
    16      8      bytes of the pickle
    24      8      number of buffers
    32      8 each bytes of each buffer
            ...    the pickle, then the buffers, each from a multiple of 64 bytes on

All numbers are little-endian. What lies between the parts and behind the last one is zero, so that a batch is the same bytes
wherever it was made.

The pickle is of protocol 5, whose buffers are out of band: a tensor is copied once, from the worker's memory to the ring, and
once from there. As when multiprocessing sends it, what is a leaf and requires gradients does so afterwards; what was computed
of such ones is refused. Tensors and arrays that share memory come back separate, and each has the bytes that it shows, not
those of the memory that it is a view of; the same object twice comes back as one object. Tensors that are more than their
elements, such as sparse ones, are pickled as torch does it.

A pickle runs code when it is read. Only workers of the user's own script write these: a daemon takes a script's dataset only
where it is of the script's own uid.
"""

import collections
import ctypes
import functools
import io
import pickle
import struct

import torch

_MAGIC = b'pfbatch1'
_HEADER = struct.Struct('<8sQQQ')
_ALIGN = 64
_ZEROS = bytes(1 << 16)

Parts = collections.namedtuple('Parts', 'length pieces')
Parts.__doc__ = """What `encode` gives: the bytes that a batch needs, and what goes where, as pairs of offset and memory."""


def encode(value):
    """The Parts of a batch. They are views: the batch must not change before they are written.

    Raises TypeError for what cannot be pickled, and RuntimeError, as torch does, for tensors that carry gradients."""
    buffers = []
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5, buffer_callback=buffers.append)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(f'a batch holds what cannot be sent to another process, {pickler.last}: {error}') from error
    return _arrange(file.getbuffer(), [buffer.raw() for buffer in buffers])


def write(parts, memory):
    """Fills a memoryview of bytes."""
    if parts.length > len(memory):
        raise ValueError(f'a batch of {parts.length} bytes, where {len(memory)} have room')
    end = 0
    for offset, piece in parts.pieces:
        _clear(memory[end:offset])
        end = offset + len(piece)
        memory[offset:end] = piece
    _clear(memory[end:])


def decode(tensor, copy=True):
    """The batch that lies in a tensor of bytes of one dimension, which begins at the start of its storage. Each tensor and
    array has memory of its own then, or with copy=False is a view, and arrays are read-only."""
    memory = _memory_of(tensor)
    head = _read_header(memory)
    offset, *offsets = head.offsets
    buffers = []
    for start, length in zip(offsets, head.lengths):
        piece = tensor[start:start + length]
        buffers.append(_memory_of(piece.clone()) if copy else _memory_of(piece).toreadonly())
    return pickle.loads(memory[offset:offset + head.pickled], buffers=buffers)


# ---- layout ----

def _arrange(pickled, buffers):
    lengths = [len(buffer) for buffer in buffers]
    offsets, length = _lay_out(len(pickled), lengths)
    header = _HEADER.pack(_MAGIC, length, len(pickled), len(lengths)) + struct.pack(f'<{len(lengths)}Q', *lengths)
    return Parts(length, [(0, header), *zip(offsets, [pickled, *buffers])])


def _lay_out(pickled, lengths):
    """The offsets of the pickle and the buffers, and the length of all."""
    offsets = []
    end = _HEADER.size + 8 * len(lengths)
    for length in (pickled, *lengths):
        offsets.append(-(-end // _ALIGN) * _ALIGN if offsets else end)
        end = offsets[-1] + length
    return offsets, end


_Head = collections.namedtuple('_Head', 'pickled lengths offsets')


def _read_header(memory):
    """Everything that it tells lies within the memory."""
    if len(memory) < _HEADER.size or memory[:len(_MAGIC)] != _MAGIC:
        raise ValueError(f'{len(memory)} bytes that are no batch: they begin with {bytes(memory[:len(_MAGIC)])!r}, where '
                         f'{_MAGIC!r} was expected')
    _, length, pickled, count = _HEADER.unpack_from(memory)
    if count > (len(memory) - _HEADER.size) // 8:
        raise ValueError(f'a damaged batch: {count} buffers in {len(memory)} bytes')
    lengths = struct.unpack_from(f'<{count}Q', memory, _HEADER.size)
    offsets, end = _lay_out(pickled, lengths)
    if end != length or length > len(memory):
        raise ValueError(f'a damaged batch: {end} bytes of parts, where its header tells {length}, in {len(memory)} bytes')
    return _Head(pickled, lengths, offsets)


def _clear(memory):
    for start in range(0, len(memory), len(_ZEROS)):
        rest = memory[start:start + len(_ZEROS)]
        rest[:] = _ZEROS[:len(rest)]


# ---- memory of tensors and arrays, by address: works without NumPy, for each type, and for what is read-only ----

def _memory(address, length, owner):
    """A memoryview of these bytes, which keeps their owner."""
    array = _bytes_type(length.bit_length()).from_address(address)
    array.owner = owner
    return memoryview(array).cast('B')[:length]


def _memory_of(tensor):
    """Of a contiguous one."""
    return _memory(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor)


def _owner(memory):
    return memory.obj.owner


@functools.lru_cache(None)
def _bytes_type(bits):
    """One for all lengths of so many bits: ctypes needs 10 us to make a type. What is beyond a length is never touched."""
    return ctypes.c_ubyte * (1 << bits)


# ---- pickling ----

class _Pickler(pickle.Pickler):
    last = None  # the type of what is pickled now: where it ends, of what could not be

    def reducer_override(self, value):
        self.last = type(value).__name__
        if isinstance(value, torch.Tensor):
            return _reduce_tensor(value)
        if type(value).__module__ == 'numpy' and type(value).__name__ == 'ndarray' and not value.dtype.hasobject:
            return _reduce_array(value)
        return NotImplemented


def is_plain(tensor):
    """Whether its elements, in the CPU's memory, are all that it is."""
    return (tensor.layout is torch.strided and tensor.device.type == 'cpu' and not tensor.is_quantized
            and not tensor.is_nested and not tensor.has_names())


def _reduce_tensor(tensor):
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError('a batch holds a tensor that requires gradients and was computed of others: gradients do not pass '
                           'from process to process; call detach() on it')
    if not is_plain(tensor) or not _is_known(type(tensor)):
        return NotImplemented
    kind = type(tensor)
    attributes = None if kind is torch.Tensor else vars(tensor)  # as multiprocessing has it
    data = _values(tensor)
    order = _order(data)
    stored = data.permute(order).contiguous() if order else data
    memory = pickle.PickleBuffer(_memory_of(stored))
    return _tensor, (kind, memory, data.dtype, tuple(stored.shape), order, tensor.requires_grad, attributes)


def _is_known(kind):
    """Whether a class derived from torch.Tensor adds nothing but methods and attributes, so far as pickle has to know.
    torch takes parameters apart by itself, to plain tensors."""
    return (kind.__reduce_ex__ is torch.Tensor.__reduce_ex__
            and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__)


def _values(tensor):
    """A tensor of torch's own class whose memory holds what it says. One look costs less than a call that changes nothing."""
    data = tensor.detach()
    if type(data) is not torch.Tensor:
        data = data.as_subclass(torch.Tensor)
    return data.resolve_conj().resolve_neg() if data.is_conj() or data.is_neg() else data


def _order(tensor):
    """The dimensions as they are to lie in memory, or None: as they are. A tensor that is dense in another order, such as
    channels_last, stays so."""
    if tensor.is_contiguous():
        return None
    plain = tuple(range(tensor.dim()))
    order = tuple(sorted(plain, key=tensor.stride, reverse=True))
    return order if tensor.permute(order).is_contiguous() else plain


def _tensor(kind, memory, dtype, shape, order, requires_grad, attributes):
    tensor = _owner(memory).view(dtype).view(shape)
    if order:
        tensor = tensor.permute(sorted(range(len(order)), key=order.__getitem__))
    if kind is not torch.Tensor:
        tensor = tensor.as_subclass(kind)
    if attributes:
        vars(tensor).update(attributes)
    return tensor.requires_grad_() if requires_grad else tensor


def _reduce_array(array):
    import numpy

    stored = array if array.flags.f_contiguous else numpy.ascontiguousarray(array)
    order = 'C' if stored.flags.c_contiguous else 'F'
    memory = _memory(stored.__array_interface__['data'][0], stored.nbytes, stored)
    return _array, (pickle.PickleBuffer(memory), stored.dtype, array.shape, order)


def _array(memory, dtype, shape, order):
    import numpy

    return numpy.ndarray(shape, dtype, memory, order=order)
