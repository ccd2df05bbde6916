# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What fields become: arrays of NumPy, tensors of torch, or what any library takes by DLPack.

An output has field(batch, index), ids(batch) and valid(batch), and `fields`, set once there is a job: (name, dtype, shape,
channels_last) of each. Which memory is behind it:

    numpy    the slot of the ring, read-only, as long as the array or a view of it lives
    dlpack   the same, as a pinfeed.Array
    torch    a copy in memory that is used again when the last view of the tensor has gone; with zero_copy the slot
    pinned   a copy in torch's own page-locked memory, so that .to(device, non_blocking=True) is asynchronous and safe

With a device fields do not come from here, but from gpu.py; sample numbers and `valid` are torch's as ever.

A batch that does not lie in one piece (see docs/python.md) is copied in any case.
"""

import sys
import warnings

from . import surroundings
from .errors import invalid


def make(output, pin_memory, zero_copy, device):
    if output == 'auto':
        output = 'torch' if 'torch' in sys.modules or device else 'numpy'
    if output not in _KINDS:
        raise invalid(f"output={output!r}: expected 'auto', 'torch', 'numpy' or 'dlpack'")
    if device:
        if output != 'torch':
            raise invalid(f"output={output!r} and device={device!r}: batches on a GPU are tensors of torch's; leave output out")
        return Torch(zero_copy)  # and pin_memory asks for nothing more
    if pin_memory and zero_copy:
        raise invalid('pin_memory and zero_copy: a batch is either copied to page-locked memory or not copied at all; with '
                      "device='cuda:0' it goes from the ring to the GPU")
    if pin_memory and output != 'torch':
        raise invalid(f"pin_memory is for torch tensors, and the output is {output}: import torch before, or "
                      "pass output='torch'")
    if not pin_memory:
        return _KINDS[output](zero_copy)
    import torch

    if torch.cuda.is_available():
        return Pinned()
    warnings.warn('pin_memory=True, but no accelerator is found: batches come in ordinary memory',
                  stacklevel=surroundings.stacklevel())
    return Torch(zero_copy)


def in_place(batch, index):
    return batch.slot(index) if batch.segments == 1 else batch.copy(index)


class Dlpack:
    name = 'dlpack'

    def __init__(self, zero_copy):
        self.field = in_place

    def ids(self, batch):
        return batch.ids()

    def valid(self, batch):
        return batch.valid()


class Numpy:
    name = 'numpy'

    def __init__(self, zero_copy):
        import numpy

        self._as_array = numpy.asarray

    def field(self, batch, index):
        array = self._as_array(in_place(batch, index))
        array.flags.writeable = False  # also where it had to be copied: what can be done with it is always the same
        return array

    def ids(self, batch):
        return self._as_array(batch.ids())

    def valid(self, batch):
        return self._as_array(batch.valid()).view(bool)


class Torch:
    name = 'torch'

    def __init__(self, zero_copy):
        import torch.utils.dlpack

        self._from_capsule = torch.utils.dlpack.from_dlpack
        self._zero_copy = zero_copy

    def field(self, batch, index):
        array = in_place(batch, index) if self._zero_copy else batch.copy(index)
        return self._from_capsule(array.__dlpack__())

    def ids(self, batch):
        return self._from_capsule(batch.ids().__dlpack__())

    def valid(self, batch):
        return self._from_capsule(batch.valid().__dlpack__()).bool()


class Pinned(Torch):
    """`pin` is False in tests of machines without a GPU only."""

    def __init__(self, pin=True):
        import torch

        super().__init__(False)
        self._torch = torch
        self._pin = pin

    def field(self, batch, index):
        _, dtype, shape, channels_last = self.fields[index]
        order = self._torch.channels_last if channels_last else self._torch.contiguous_format
        tensor = self._torch.empty((batch.rows, *shape), dtype=getattr(self._torch, dtype), memory_format=order,
                                   pin_memory=self._pin)
        batch.copy_into(index, self._torch.utils.dlpack.to_dlpack(tensor))
        return tensor


_KINDS = {'torch': Torch, 'numpy': Numpy, 'dlpack': Dlpack}
