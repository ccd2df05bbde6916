# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""torch.cuda on the fake CUDA runtime (tests/support/fake-cudart.h), put into a torch that has no CUDA.

Only what pinfeed and a training script call is there, and it does what torch does where that decides whether bytes are
right:

  - The allocator of device memory gives out a block again in the order of the stream that was current when it was made: at once,
    and without waiting for any other stream, unless the tensor has recorded that; then when what was queued there by the end of
    the tensor has run.
  - The allocator of page-locked memory gives out a block again when the copies from it have run that .to() has queued, and not
    before.
  - Going back to a device that has no context makes none.

Tensors on the device are objects of this file. read() is the kernel of these tests: what it gives is filled in when its turn in
the current stream comes.
"""

import contextlib
import ctypes
import functools
import json
import os
import threading
import weakref
from unittest import mock

import torch

TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
NON_BLOCKING, NO_TIMING, PORTABLE = 1, 2, 1
NOT_READY = 600

_real_empty = torch.empty
_real_to = torch.Tensor.to


class Runtime:
    """The fake's calls; those of CUDA raise, as torch's do."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        for name in ('cudaGetErrorName', 'fake_cuda_violation', 'fake_cuda_context'):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.fake_cuda_see.restype = ctypes.c_void_p

    def __getattr__(self, name):
        function = getattr(self._library, name)
        if not name.startswith('cuda'):
            return function

        def call(*arguments):
            error = function(*arguments)
            if error:
                self._library.cudaGetLastError()
                raise RuntimeError(f'CUDA error: {name}: {self._library.cudaGetErrorName(error).decode()}')

        return call

    def is_reached(self, event):
        error = self._library.cudaEventQuery(event)
        if error == NOT_READY:
            self._library.cudaGetLastError()
        return error == 0

    def set(self, settings):
        self._library.fake_cuda_set(settings.encode())

    def report(self):
        size = self._library.fake_cuda_report(None, ctypes.c_size_t(0)) + 1
        text = ctypes.create_string_buffer(size)
        self._library.fake_cuda_report(text, ctypes.c_size_t(size))
        return json.loads(text.value)


runtime = Runtime(os.environ['PINFEED_LIBCUDART'])
_lock = threading.RLock()  # finalizers come at any time
_thread = threading.local()


# ---- streams ----

class Event:
    def __init__(self, stream):
        self._handle = ctypes.c_void_p()
        with Device(stream.device):
            runtime.cudaEventCreateWithFlags(ctypes.byref(self._handle), NO_TIMING)
            runtime.cudaEventRecord(self._handle, stream.handle)

    def query(self):
        return runtime.is_reached(self._handle)

    def synchronize(self):
        runtime.cudaEventSynchronize(self._handle)

    def __del__(self):
        runtime.cudaEventDestroy(self._handle)


class Stream:
    """Without a handle it is the device's default stream, which has the same one on each."""

    made = []

    def __init__(self, device=None, handle=None):
        self.device = torch.device('cuda', _index(device))
        if handle is None:
            handle = ctypes.c_void_p()
            with Device(self.device):
                runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), NON_BLOCKING)
            Stream.made.append(self)
        self.handle = handle

    @property
    def cuda_stream(self):
        return self.handle.value or 0

    def record_event(self):
        return Event(self)

    def wait_event(self, event):
        with Device(self.device):
            runtime.cudaStreamWaitEvent(self.handle, event._handle, 0)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        with Device(self.device):
            runtime.cudaStreamSynchronize(self.handle)


def _state():
    if not hasattr(_thread, 'streams'):
        _thread.streams = {}  # of each device, the current one
        _thread.target = None  # a device that will be current when something is done on it
    return _thread


def _index(device):
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    return current_device() if device.index is None else device.index


def current_device():
    if _state().target is not None:
        return _state().target
    index = ctypes.c_int()
    runtime.cudaGetDevice(ctypes.byref(index))
    return index.value


def set_device(device):
    _state().target = None
    runtime.cudaSetDevice(_index(device))


def current_stream(device=None):
    index = _index(device)
    return _state().streams.get(index) or Stream(index, ctypes.c_void_p())


class Device:
    def __init__(self, device):
        self._index = _index(device)

    def __enter__(self):
        self._before = current_device()
        if self._before != self._index or _state().target is not None:
            set_device(self._index)

    def __exit__(self, *unused):
        if self._before == self._index:
            return
        if runtime.fake_cuda_context(self._before):
            set_device(self._before)
        else:
            _state().target = self._before


class OnStream:
    def __init__(self, stream):
        self._stream = stream

    def __enter__(self):
        index = self._stream.device.index
        self._device = Device(index)
        self._device.__enter__()
        self._before = _state().streams.get(index)
        _state().streams[index] = self._stream

    def __exit__(self, *unused):
        _state().streams[self._stream.device.index] = self._before
        self._device.__exit__()


def _name(stream):
    return stream.device.index, stream.cuda_stream


def is_current_stream_capturing():
    if not runtime.fake_cuda_context(current_device()):
        return False
    status = ctypes.c_int()
    runtime.cudaStreamIsCapturing(current_stream().handle, ctypes.byref(status))
    return status.value != 0


def synchronize():
    runtime.cudaDeviceSynchronize()


# ---- memory ----

class Block:
    """Of either kind. It may be given out again when all its events have been reached."""

    def __init__(self, address, size, owner):
        self.address, self.size, self.owner = address, size, owner
        self.events = []

    def is_free(self):
        self.events = [event for event in self.events if not event.query()]
        return not self.events


class Allocator:
    """`owner`: what a block is given out again to only."""

    def __init__(self, allocate, free):
        self._allocate, self._free = allocate, free
        self._all, self._spare = [], []

    def take(self, size, owner):
        with _lock:
            for block in self._spare:
                if block.size == size and block.owner == owner and block.is_free():
                    self._spare.remove(block)
                    return block
            block = Block(self._allocate(size), size, owner)
            self._all.append(block)
            return block

    def give(self, block, streams=()):
        with _lock:
            block.events += [stream.record_event() for stream in streams]
            self._spare.append(block)

    def clear(self):
        with _lock:
            assert len(self._spare) == len(self._all), 'tensors are still there'
            for block in self._all:
                block.events = []
                self._free(ctypes.c_void_p(block.address))
            self._all, self._spare = [], []

    def find(self, address):
        return next((block for block in self._all if block.address <= address < block.address + block.size), None)


def _allocate_host(size):
    address = ctypes.c_void_p()
    runtime.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), PORTABLE)
    return address.value


def _allocate_device(size):
    address = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))
    return address.value


host = Allocator(_allocate_host, runtime.cudaFreeHost)
device_memory = Allocator(_allocate_device, runtime.cudaFree)


@functools.lru_cache(None)
def _size(dtype):
    return _real_empty(0, dtype=dtype).element_size()


class Tensor:
    """On the device."""

    def __init__(self, shape, dtype, device, order):
        self.shape, self.dtype, self.order = torch.Size(shape), dtype, order
        self.device = torch.device('cuda', _index(device))
        self.nbytes = self.shape.numel() * _size(dtype)
        self._streams = {}
        with Device(self.device):
            self._block = device_memory.take(self.nbytes, _name(current_stream(self.device)))

    def __del__(self):
        if hasattr(self, '_block'):
            device_memory.give(self._block, self._streams.values())

    def data_ptr(self):
        return self._block.address

    def record_stream(self, stream):
        if _name(stream) != self._block.owner:
            self._streams[_name(stream)] = stream

    def to(self, device, non_blocking=False):
        assert _index(device) == self.device.index
        return self


def _page_locked(shape, dtype, order, owner=None):
    size = torch.Size(shape).numel() * _size(dtype)
    block = host.take(size, owner)
    memory = (ctypes.c_char * size).from_address(block.address)
    weakref.finalize(memory, host.give, block).atexit = False
    flat = torch.frombuffer(memory, dtype=dtype)
    if order is torch.channels_last:
        n, c, h, w = shape
        return flat.view(n, h, w, c).permute(0, 3, 1, 2)
    return flat.view(shape)


def empty(*size, dtype=torch.float32, device=None, memory_format=torch.contiguous_format, pin_memory=False, **more):
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    if device is not None and torch.device(device).type == 'cuda':
        return Tensor(shape, dtype, device, memory_format)
    if pin_memory:
        return _page_locked(shape, dtype, memory_format)
    return _real_empty(*size, dtype=dtype, device=device, memory_format=memory_format, **more)


def _to(self, *arguments, non_blocking=False, **more):
    if not arguments or not str(arguments[0]).startswith('cuda'):
        return _real_to(self, *arguments, non_blocking=non_blocking, **more)
    there = Tensor(self.shape, self.dtype, arguments[0], torch.contiguous_format)
    stream = current_stream(there.device)
    with Device(there.device):
        runtime.cudaMemcpyAsync(ctypes.c_void_p(there.data_ptr()), ctypes.c_void_p(self.data_ptr()),
                                ctypes.c_size_t(there.nbytes), TO_DEVICE, stream.handle)
        block = host.find(self.data_ptr())
        if block is not None:
            block.events.append(stream.record_event())
        if not non_blocking:
            stream.synchronize()
    return there


def read(tensor):
    """What the tensor holds when the current stream comes to it."""
    there = _page_locked(tensor.shape, tensor.dtype, tensor.order, read)  # in memory that a loader does not use again
    with Device(tensor.device):
        runtime.cudaMemcpyAsync(ctypes.c_void_p(there.data_ptr()), ctypes.c_void_p(tensor.data_ptr()),
                                ctypes.c_size_t(tensor.nbytes), TO_HOST, current_stream().handle)
    return there


@contextlib.contextmanager
def busy(stream):
    """The stream has a kernel that lasts until the end, or until what it gives is called."""
    ended = threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def wait(unused):
        ended.wait()

    with Device(stream.device):
        runtime.cudaLaunchHostFunc(stream.handle, wait, None)
    try:
        yield ended.set
    finally:
        ended.set()
        stream.synchronize()


# ---- in torch ----

def install():
    """What takes it out again."""
    patches = [mock.patch.multiple(torch.cuda, is_available=lambda: True, current_device=current_device, set_device=set_device,
                                   device=Device, Stream=Stream, stream=OnStream, current_stream=current_stream,
                                   synchronize=synchronize, is_current_stream_capturing=is_current_stream_capturing),
               mock.patch.multiple(torch, empty=empty), mock.patch.multiple(torch.Tensor, to=_to)]
    for patch in patches:
        patch.start()
    return lambda: [patch.stop() for patch in patches]


def clear():
    """Gives back what there is of the device, of which nothing is in use any more."""
    runtime.cudaDeviceSynchronize()
    host.clear()
    device_memory.clear()
    for stream in Stream.made:
        with Device(stream.device):
            runtime.cudaStreamDestroy(stream.handle)
    Stream.made.clear()
