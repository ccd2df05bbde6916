# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Batches on a GPU: tensors whose memory is torch's, and copies that are the library's. docs/gpu.md is the contract.

Copies run on a stream of the loader's own, the *side stream*, so that a kernel which the user has queued before does not hold
them up. Destinations are allocated under that stream, for torch gives out memory in a stream's order: what the allocator
takes to be free there has no use that is still to come. The stream that is current at next() is told twice of a batch: it
waits for the copy, by an event behind it, and the tensors record it, so that their memory is not used again before what was
queued there by the end of the tensor has run.

A batch is in flight from when its copy is queued. Its lease is the library's from there on: the batch is released, and
what remains is the Flight, which the batch object keeps until the loop has got it (job.c). One batch is in flight ahead of the
loop: queued behind the one that next() gives, it arrives while the loop computes.
"""

import errno
import glob
import importlib.util
import os
import sys
import warnings

from .epoch import Values
from .errors import Error, invalid, make

CAPTURED = ('the current stream is being captured into a CUDA graph, which would repeat the copy when other rows lie where it '
            "reads: take the batch before the capture, copy it to the graph's input, and capture what comes after")


def name_of(device):
    """What the library calls it; None: host memory. In "cuda" the user means torch's current device, not that of the thread
    which opens the job."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool):
        return f'cuda:{device}'
    name = str(device)
    if name == 'cuda':
        import torch

        return f'cuda:{torch.cuda.current_device()}' if torch.cuda.is_available() else name
    return None if name in ('cpu', 'cpu:0') else name


def find_runtime():
    """A CUDA runtime among Python's packages, or None; torch is imported. The library uses it where the process has none that it
    can find by name, which is so in two cases.

    Wheels of torch for CUDA 11 bring a copy whose name they have changed. It is loaded and its path is here, so the same
    copy is found.

    A torch that has the runtime linked in statically has none to be found. Then there are two in the process, with a current
    device and a last error each. What they share is the driver's: the device's primary context, and in it memory, streams and
    events, which are the driver's objects in both. CUDA says so of runtime and driver interface in one process; for two
    runtimes it was not tried here on hardware.
    """
    torch = sys.modules['torch']
    packages = importlib.util.find_spec('nvidia')
    patterns = [os.path.join(os.path.dirname(torch.__file__), 'lib', 'libcudart*.so*')]
    if packages is not None:
        patterns += [os.path.join(place, '*', 'lib', 'libcudart.so.*') for place in packages.submodule_search_locations or ()]
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]
    ending = f".so.{(torch.version.cuda or '').split('.')[0]}"
    return next((path for path in found if ending in path), found[0] if found else None)


class Cuda:
    """What is needed of torch.cuda, for one device."""

    def __init__(self, name):
        import torch

        if not torch.cuda.is_available():
            raise make(errno.ENODEV, f'device={name!r}: there is such a device, but torch {torch.__version__} has no use of it '
                                     '(torch.cuda.is_available() is False): install a build of torch for CUDA')
        self._torch = torch
        self._device = torch.device(name)
        self._side = None  # a stream makes a context, which can wait for the first batch
        self._process = os.getpid()

    def __str__(self):
        return str(self._device)

    def is_same(self, device):
        """Whether the user means this one: "cuda:0", "cuda", 0 or a torch.device."""
        device = self._torch.device('cuda', device) if isinstance(device, int) else self._torch.device(device)
        index = self._torch.cuda.current_device() if device.index is None else device.index
        return device.type == 'cuda' and index == self._device.index

    def current(self):
        """While entered, it is the thread's current device."""
        if os.getpid() != self._process:
            raise make(errno.ECHILD, 'this loader belongs to the process that made it; make another after fork()')
        return self._torch.cuda.device(self._device)

    def on_side_stream(self):
        """While entered, the side stream is current."""
        if self._side is None:
            self._side = self._torch.cuda.Stream(self._device)
        return self._torch.cuda.stream(self._side)

    def stream(self):
        return self._torch.cuda.current_stream(self._device)

    def check_capture(self):
        if self._torch.cuda.is_current_stream_capturing():
            raise make(errno.EBUSY, CAPTURED)

    def empty(self, rows, field):
        _, dtype, shape, channels_last = field
        order = self._torch.channels_last if channels_last else self._torch.contiguous_format
        return self._torch.empty((rows, *shape), dtype=getattr(self._torch, dtype), device=self._device, memory_format=order)


class DeviceValues(Values):
    """What the two kinds of loaders with a device have in common."""

    def __init__(self, output, fields, with_info, job, cuda, pipeline, may_fall_back):
        super().__init__(output, fields, with_info)
        self._there = output.fields
        self._job = job
        self._cuda = cuda
        self._pipeline = pipeline
        self._may_fall_back = may_fall_back  # from page-locked slots

    def around(self):
        return self._cuda.current()

    def __call__(self, batch):
        values = self._values(batch)
        if self._may_fall_back:
            self._watch()
        return values

    def _queue(self, batch):
        """Tensors in memory of the current stream, and behind what is queued there the copies to them."""
        tensors = {index: self._cuda.empty(batch.rows, self._there[index]) for index in self._indices}
        addresses = [tensors[index].data_ptr() if index in tensors else 0 for index in range(len(self._there))]
        batch.copy_to_device(tuple([address or None for address in addresses]), self._cuda.stream().cuda_stream)
        return list(tensors.values())

    def _watch(self):
        """Warns, once, when a slot could not be page-locked, which shows when its first batch comes."""
        info = self._job.info()
        self._may_fall_back = info['map'] == 'pinned' and info['slots_registered'] < info['slots']
        if info['map'] != 'pinned':
            warnings.warn(f"{self._pipeline}: the ring could not be page-locked for {self._cuda}, so this process copies batches "
                          f"before the GPU does: {info['map_reason']}", stacklevel=4)


class Flight:
    """A batch whose copy is queued. `failure`: or could not be."""

    __slots__ = ('tensors', 'arrived', 'info', 'failure')

    def __init__(self, tensors=None, arrived=None, info=None, failure=None):
        self.tensors = tensors
        self.arrived = arrived
        self.info = info
        self.failure = failure


class Arriving(DeviceValues):
    """Batches become tensors on the device, one ahead of the loop."""

    def _values(self, batch):
        self._cuda.check_capture()
        flight = self._begin(batch)
        values = self._land(flight)
        self._begin_ahead()
        return values

    def _begin(self, batch):
        """The batch's flight. Until that is kept the batch is as it was, whatever happens here."""
        flight = batch.kept
        if flight is not None and flight.failure is not None:
            batch.kept = None
            raise flight.failure
        if flight is None:
            with self._cuda.on_side_stream():
                tensors = self._queue(batch)
                arrived = self._cuda.stream().record_event()
            batch.kept = flight = Flight(tensors, arrived, self.info(batch))
            batch.release()
        return flight

    def _land(self, flight):
        stream = self._cuda.stream()
        stream.wait_event(flight.arrived)
        for tensor in flight.tensors:
            tensor.record_stream(stream)
        return self.arrange(flight.tensors, flight.info)

    def _begin_ahead(self):
        """What goes wrong here is the next batch's. What torch has no memory for now is tried again when it is its turn."""
        batch = self._job.ahead()
        if batch is None or batch.kept is not None:
            return
        try:
            self._begin(batch)
        except Error as error:
            batch.kept = Flight(failure=error.with_traceback(None))  # whose frames would refer to the batch
        except RuntimeError:
            pass


class Staying(DeviceValues):
    """zero_copy: batches stay in the ring until the loop sends them to the device."""

    def _values(self, batch):
        batch_of_user = DeviceBatch(self, batch)
        info = self.info(batch)
        return batch_of_user if info is None else (batch_of_user, info)

    def move(self, batch, device, non_blocking):
        if not self._cuda.is_same(device):
            raise invalid(f'device={str(device)!r}: the batch is of a loader for {self._cuda} and can go there only')
        with self.around():
            self._cuda.check_capture()
            values = self.arrange(self._queue(batch), None)
            if not non_blocking:
                self._cuda.stream().synchronize()
        return values


class DeviceBatch:
    """A batch in the ring, of a loader with device and zero_copy=True. Its one use is to(); it keeps its slot as long as it
    lives, and longer while it is copied."""

    def __init__(self, values, batch):
        self._values = values
        self._batch = batch

    def to(self, device, non_blocking=True):
        """The batch's tensors on the device, copied on its current stream."""
        return self._values.move(self._batch, device, non_blocking)

    def _refuse(self, *unused):
        raise TypeError('with device and zero_copy=True a batch lies in the ring, and its fields are not given out: torch keeps no '
                        'event for memory that is not its own, so a tensor could be gone while a copy of it still runs. Call '
                        'batch.to(device), which gives the fields on the device, or leave out zero_copy')

    __iter__ = __getitem__ = __len__ = _refuse

    def __repr__(self):
        return f'<pinfeed.DeviceBatch of {self._batch.rows} rows>'
