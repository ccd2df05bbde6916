# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Which part of the stream is this process's.

Given, or taken from an initialised process group of torch, or the whole. The environment is not guessed from: a sweep of
independent jobs under srun or mpirun has ranks in its variables and wants all rows in each. Only where torchrun has
started several processes and no group is there is silence dangerous (each would train on everything), so that is an error.
"""

import os
import sys

from .errors import invalid


def find(rank, world_size, process_group):
    """(rank, world size, where from). The last is None when they were given or there is nothing to say."""
    if (rank is None) != (world_size is None):
        raise invalid(f'rank={rank} and world_size={world_size}: give both or neither')
    if rank is not None:
        if process_group is not None:
            raise invalid('rank and world_size are given, and process_group too: give one of the two')
        return rank, world_size, None

    distributed = sys.modules.get('torch.distributed')
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        which = 'the given process group' if process_group is not None else "torch.distributed's default group"
        return distributed.get_rank(process_group), distributed.get_world_size(process_group), which
    if process_group is not None:
        raise invalid('process_group is given, and torch.distributed is not initialised: '
                      'call torch.distributed.init_process_group() before')
    _check_torchrun()
    return 0, 1, None


def on_this_machine(origin):
    """How many ranks of the run are on this machine, 0 for all: torchrun says it for the group that it has made."""
    if origin is None:
        return 0
    return int(os.environ.get('LOCAL_WORLD_SIZE', '0'))


def _check_torchrun():
    if 'RANK' not in os.environ or os.environ.get('WORLD_SIZE', '1') == '1':
        return
    rank, world_size = os.environ['RANK'], os.environ['WORLD_SIZE']
    raise invalid(f'torchrun has started this process (RANK={rank}, WORLD_SIZE={world_size}), and torch.distributed is '
                  'not initialised: call torch.distributed.init_process_group() before pinfeed.Loader, or pass '
                  f'rank={rank}, world_size={world_size} for a share of the rows, or rank=0, world_size=1 for all')
