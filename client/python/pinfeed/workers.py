# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a worker of a user's own dataset does: a fork of the zygote, which has all of this in its memory already.

The worker protocol and the storing of samples are C (_worker). Here is what torch's users expect around that: one thread for
each worker, get_worker_info(), worker_init_fn, and batches made whole where a row is a batch.
"""

import contextlib
import os
import re
import sys

from .errors import BatchTooLarge

# What each library is told by to use one thread; those with a prefix come in NumPy's and SciPy's wheels.
ONE_THREAD = ('openblas_set_num_threads', 'openblas_set_num_threads64_', 'scipy_openblas_set_num_threads',
              'scipy_openblas_set_num_threads64_', 'omp_set_num_threads', 'MKL_Set_Num_Threads', 'bli_thread_set_num_threads')
LIBRARIES = re.compile(rb' (/.*(?:openblas|libblas|mkl_rt|gomp|iomp|libomp|libblis)[^/\n]*\.so[^/\n]*)$', re.MULTILINE)
VARIABLES = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')  # for those that a worker loads first


class Work:
    """All that workers of one DataLoader need to know. `structure` is of a row that is a sample, once it is known; None: a
    row is a batch."""

    structure = None

    def __init__(self, maker, units, seed, num_workers, init):
        self.maker = maker
        self.units = units
        self.seed = seed
        self._num_workers = num_workers
        self._init = init

    def __call__(self, connection, leash, number):
        from . import _worker

        _worker.leash(leash)
        _worker.run(connection, self.units.rows, self._start)

    def _start(self, number, fields):
        from . import _worker

        self.prepare(number)
        if self.structure is not None:
            return _worker.Rows(self.maker.dataset.__getitem__, self.structure.spec)
        return self._make_batch

    def prepare(self, number):
        """Before the first sample. Numbers are the daemon's; torch's workers are numbered below num_workers."""
        from . import _worker

        number %= self._num_workers
        self._introduce(number)
        _worker.seed_sample(self.seed, 0, number)
        if self._init is not None:
            self._init(number)

    def _introduce(self, number):
        """For torch.utils.data.get_worker_info()."""
        import torch.utils.data._utils.worker as torch_worker

        torch_worker._worker_info = torch_worker.WorkerInfo(id=number, num_workers=self._num_workers, seed=self.seed + number,
                                                            dataset=self.maker.dataset)

    def _make_batch(self, seed, epoch, row, sample, order, cells):
        """A row that is a batch; `sample` is its number, or that of another batch in its place."""
        from . import blob

        numbers = self.units.samples(range(sample, sample + 1), seed, epoch, order)
        self.maker.at = None
        try:
            parts = blob.encode(self.maker.batch(numbers, seed, epoch))
        except Exception as error:
            with contextlib.suppress(Exception):  # of a type that has its own way with attributes
                error._pinfeed_sample = self.maker.at  # which goes before its text (daemon/worker/python/exception.c)
            raise
        if parts.length > len(cells[0]):
            raise BatchTooLarge(sample, parts.length, len(cells[0]))
        blob.write(parts, cells[0])


def use_one_thread():
    """Once, in the process that workers are forked from. They are as many as the user wants to run at once, and a library that
    starts a thread for each processor in each of them makes all of them slower."""
    for name in VARIABLES:
        os.environ[name] = '1'
    for path in _mapped_libraries():
        _tell(path)
    torch = sys.modules.get('torch')
    # It takes milliseconds, also where OpenMP has said it; but MKL, which is within torch, has a number of its own.
    if torch is not None and (torch.get_num_threads() != 1 or torch.backends.mkl.is_available()):
        torch.set_num_threads(1)
    cv2 = sys.modules.get('cv2')
    if cv2 is not None:
        cv2.setNumThreads(0)


def _mapped_libraries():
    with open('/proc/self/maps', 'rb') as file:
        return sorted(set(LIBRARIES.findall(file.read())))


def _tell(path):
    import ctypes

    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return  # a file that was replaced since
    for name in ONE_THREAD:
        if hasattr(library, name):
            getattr(library, name)(1)
