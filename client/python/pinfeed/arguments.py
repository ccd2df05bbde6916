# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What pinfeed.DataLoader is asked for: what cannot be is refused here, by name, before a process is forked.

Where torch's DataLoader refuses the same, the exception is of the same type.
"""

import math
import sys
import types

from . import loader as loaders
from .errors import invalid

MAX_WORKERS = 1024  # CONFIG_WORKERS_MAX of the daemon
TIMEOUT_S = 0.5, 86400  # of a sample, as the daemon has it
NATIVE = ('auto', True, False)
ON_ERROR = ('fail', 'replace')


def check(**asked):
    """All arguments, in the form that the rest of the package wants."""
    asked = types.SimpleNamespace(**asked)
    _check_dataset(asked.dataset)
    _check_batching(asked)
    _check_workers(asked)
    _check_own(asked)
    _check_share(asked)
    _unwrap_distributed(asked)
    return asked


def _check_dataset(dataset):
    import torch.utils.data

    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise TypeError(f'dataset: {type(dataset).__name__} is an IterableDataset, which has no samples with numbers, so that '
                        'neither order nor restarts can be right: give it __len__ and __getitem__ (torch.utils.data.Dataset), '
                        'or let torch.utils.data.DataLoader read it')
    if not hasattr(dataset, '__getitem__'):
        raise TypeError(f'dataset: expected an object with __len__ and __getitem__, got {type(dataset).__name__}')


def _check_batching(asked):
    """torch's rules of what goes with what."""
    asked.shuffle = bool(asked.shuffle)
    if asked.sampler is not None and asked.shuffle:
        raise ValueError('sampler and shuffle: the sampler says the order; leave out shuffle')
    if asked.batch_sampler is not None:
        if asked.batch_size != 1 or asked.shuffle or asked.sampler is not None or asked.drop_last:
            raise ValueError('batch_sampler: it says what batches there are; leave out batch_size, shuffle, sampler and '
                             'drop_last')
        asked.batch_size = None
    elif asked.batch_size is None:
        if asked.drop_last:
            raise ValueError('batch_size=None and drop_last: samples come one by one, so no batch is too short; leave out '
                             'drop_last')
    else:
        asked.batch_size = loaders.number('batch_size', asked.batch_size, 1)
    asked.drop_last = bool(asked.drop_last)


def _check_workers(asked):
    asked.num_workers = loaders.number('num_workers', asked.num_workers, 0, MAX_WORKERS)
    _check_context(asked.multiprocessing_context)
    if not hasattr(asked.timeout, '__float__') or not 0 <= asked.timeout < math.inf:
        raise ValueError(f'timeout={asked.timeout!r}: expected seconds, 0 or more; 0: waits for ever')
    if asked.prefetch_factor is not None:
        asked.prefetch_factor = loaders.number('prefetch_factor', asked.prefetch_factor, 1)
    if asked.num_workers > 0:
        return
    for name, value in [('timeout', asked.timeout > 0), ('prefetch_factor', asked.prefetch_factor is not None),
                        ('persistent_workers', asked.persistent_workers), ('share', asked.share is not None),
                        ('device', asked.device is not None), ('zero_copy', asked.zero_copy),
                        ('native', asked.native is True), ('on_error', asked.on_error == 'replace')]:
        if value:
            raise ValueError(f'{name} and num_workers=0: without workers batches are made in this process, where there is no '
                             f'such thing; leave out {name}, or give num_workers=1')


def _check_context(context):
    """None, 'fork', or a context of multiprocessing."""
    method = context.get_start_method() if hasattr(context, 'get_start_method') else context
    if method not in (None, 'fork'):
        raise ValueError(f'multiprocessing_context={method!r}: workers are forked, from a process that holds the dataset, and '
                         "nothing is sent to them; leave it out, or give 'fork'")


def _check_own(asked):
    """The arguments that torch does not have."""
    if asked.native not in NATIVE:
        raise invalid(f"native={asked.native!r}: expected 'auto', True or False")
    if asked.on_error not in ON_ERROR:
        raise invalid(f"on_error={asked.on_error!r}: expected 'fail' or 'replace'")
    least, most = TIMEOUT_S
    if not hasattr(asked.sample_timeout, '__float__') or not least <= asked.sample_timeout <= most:
        raise invalid(f'sample_timeout={asked.sample_timeout!r}: expected seconds, {least} to {most}')
    if not hasattr(asked.max_errors, '__float__') or not 0 <= asked.max_errors <= 1:
        raise invalid(f'max_errors={asked.max_errors!r}: expected a part of the samples, 0 to 1')
    if asked.pin_memory_device and not str(asked.pin_memory_device).startswith('cuda'):
        raise invalid(f'pin_memory_device={asked.pin_memory_device!r}: memory is page-locked for CUDA only; leave it out')
    if asked.batch_bytes is not None:
        asked.batch_bytes = loaders.number('batch_bytes', asked.batch_bytes, 1)
    if asked.seed is not None:
        asked.seed = loaders.number('seed', asked.seed, 0, loaders.SEED_MAX)
    asked.max_held_batches = loaders.number('max_held_batches', asked.max_held_batches, 1)


def _check_share(asked):
    if (asked.rank is None) != (asked.world_size is None):
        raise invalid(f'rank={asked.rank} and world_size={asked.world_size}: give both or neither')
    if asked.rank is not None:
        asked.world_size = loaders.number('world_size', asked.world_size, 1)
        asked.rank = loaders.number('rank', asked.rank, 0, asked.world_size - 1)
        for name in ('sampler', 'batch_sampler'):
            if getattr(asked, name) is not None:
                raise invalid(f'rank and {name}: the {name} says already which samples this rank reads; leave out one of them')
    if asked.share is not None and (not isinstance(asked.share, str) or not asked.share):
        raise invalid(f'share={asked.share!r}: expected a text that the scripts have in common')


def _unwrap_distributed(asked):
    """A DistributedSampler is known: what it does pinfeed does itself, at any place of an epoch. `distributed` is it, or
    None."""
    distributed = sys.modules.get('torch.utils.data.distributed')
    asked.distributed = None
    if distributed is None or type(asked.sampler) is not distributed.DistributedSampler \
            or asked.sampler.dataset is not asked.dataset:
        return
    sampler = asked.distributed = asked.sampler
    asked.rank, asked.world_size = sampler.rank, sampler.num_replicas
    asked.shuffle = sampler.shuffle
    asked.seed = sampler.seed if asked.seed is None else asked.seed
