# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The Loader. docs/python.md is its contract.

It is a thin layer: where a job is, what it may hold, how it finds another daemon is the library's. Here is what a
user of PyTorch's DataLoader expects around that: an iteration is an epoch, arguments have words for what is wrong with them,
Ctrl-C works, and nothing refers back to the loader, so that one whose variable goes has left the daemon at once.
"""

import contextlib
import errno
import gc
import math
import operator
import os
import sys
import threading
import time

from . import definition as definitions
from . import output as outputs
from . import ranks, surroundings
from ._pinfeed import Job
from .control import status
from .epoch import Epoch, Values
from .errors import Error, Timeout, invalid, make

SLICE_MS = 50  # how long Ctrl-C may have to wait
FOREVER_MS = 0xffffffff
SEED_MAX = (1 << 64) - 1
LAST_BATCH = ['default', 'short', 'drop', 'pad']  # enum pinfeed_last_batch
START = ['epoch', 'live']  # enum pinfeed_start
PIN = ['auto', 'require', 'never']  # enum pinfeed_pin
STATE = ('pipeline', 'fingerprint', 'seed', 'epoch', 'row')  # members of a state

# What torch's DataLoader is told, and who decides it here.
OF_DATALOADER = {
    'dataset': 'samples come from the pipeline, the first argument: a name, the path of a YAML file or a dict; '
               'pinfeed.DataLoader reads a dataset of yours',
    'shuffle': "the order is the pipeline's: say `shuffle: true` there",
    'sampler': "the order follows from the pipeline's `shuffle`, the seed and the epoch; rank and world_size give a share",
    'batch_sampler': "the order follows from the pipeline's `shuffle`, the seed and the epoch; batch_size is an argument",
    'num_workers': "the daemon's workers prepare for all jobs; a pipeline's `workers` bounds their number, and without it "
                   'they use all processors that there are',
    'collate_fn': 'batches come from the daemon stacked; change them in the loop',
    'worker_init_fn': "workers are the daemon's, and run no code of this process",
    'multiprocessing_context': "workers are the daemon's, and run no code of this process",
    'generator': 'order and random transforms follow from the seed: pass seed, an integer',
    'prefetch_factor': "how much is prepared ahead is the pipeline's `slots`; max_held_batches is how much lies ready for "
                       'this loader',
    'persistent_workers': 'workers stay between epochs in any case',
    'pin_memory_device': "pin_memory=True is for every device; device='cuda:0' brings batches to that one",
    'in_order': 'batches come in order in any case',
}


class Dataset:
    """Stands for the source of samples, where a framework asks for len(loader.dataset)."""

    def __init__(self, samples):
        self._samples = samples

    def __len__(self):
        return self._samples

    def __getitem__(self, index):
        raise TypeError("a loader's dataset has a length only: the samples are the daemon's, and come in the loader's batches")


class Sampler:
    """Stands for a DistributedSampler, of which frameworks know set_epoch."""

    def __init__(self, loader):
        self._loader = loader

    def set_epoch(self, epoch):
        self._loader.set_epoch(epoch)


class Loader:
    """Reads a pipeline: an iteration is an epoch, a batch a tuple of the pipeline's fields.

    See docs/python.md for every argument.
    """

    def __init__(self, pipeline, *, batch_size=None, device=None, pin='auto', pin_memory=False, seed=None, rank=None,
                 world_size=None, process_group=None, group=None, start='epoch', gather=1, gather_timeout=120,
                 last_batch=None, drop_last=None, fields=None, with_info=False, max_held_batches=4, zero_copy=False,
                 timeout=300, reconnect=60, runtime_dir=None, output='auto', **unknown):
        _check_unknown(unknown)
        self._definition = definitions.read(pipeline)
        device = _device(device)
        self._runtime_dir = None if runtime_dir is None else os.fsdecode(runtime_dir)
        self._timeout = math.inf if timeout is None else timeout
        rank, world_size, origin = ranks.find(rank, world_size, process_group)
        torch_seed = surroundings.torch_seed() if seed is None else None
        arguments = {
            **self._definition._asdict(),
            'runtime_dir': self._runtime_dir,
            'name': surroundings.job_name(torch_seed),
            'group': _group(group),
            'group_size': ranks.on_this_machine(origin) if group else 0,
            'rank': number('rank', rank, 0),
            'world_size': number('world_size', world_size, 1),
            'batch_size': 0 if batch_size is None else number('batch_size', batch_size, 1),
            'max_held_batches': number('max_held_batches', max_held_batches, 1),
            'last_batch': _last_batch(last_batch, drop_last),
            'seed': _seed(seed),
            'timeout_ms': _milliseconds('timeout', timeout),
            'reconnect_s': math.ceil(_seconds('reconnect', reconnect or 0)),
            'start': _choose('start', start, START),
            'gather': number('gather', gather, 1),
            'gather_timeout_ms': _milliseconds('gather_timeout', gather_timeout),
            'group_timeout_ms': _milliseconds('gather_timeout', gather_timeout),
            'device': device,
            'pin': _pin(pin, device),
        }
        _check_fields(fields)
        output = outputs.make(output, pin_memory, zero_copy, device)
        cell = surroundings.cell_of(sys._getframe(1), self._definition.words)
        surroundings.close_earlier(cell)

        self._waiting = surroundings.Waiting(self._definition.words)
        self._job = self._open(arguments)
        self.pipeline = self.state_dict()['pipeline']
        self._info = self._job.info()
        output.fields = self._job.fields()
        self._values = self._make_values(output, self._choose_fields(output.fields, fields), with_info, zero_copy, pin)
        if self._info['layout'] and fields is None and output.name == 'torch':
            self._values.arrange = self._arrangement(output.fields)
        self._around = self._values.around
        self._slice_ms = min(SLICE_MS, arguments['timeout_ms'])
        self._ticket = 0
        self._next = self._job.place()[:2]  # (epoch, row) of the next iter()
        self._waited = 0.0
        self._batches = self._rows = 0
        self.dataset = Dataset(self._info['samples'])
        surroundings.remember(cell, self)
        self._introduce(origin, output, torch_seed)

    def _open(self, arguments):
        if arguments['device'] is not None:
            from . import gpu

            arguments['cuda_runtime'] = gpu.find_runtime()
        try:
            return _attach(self._waiting, arguments)
        except Error as error:
            raise self._definition.reworded(error) from None

    def _make_values(self, output, fields, with_info, zero_copy, pin):
        if self._info['device'] == 'cpu':
            return Values(output, fields, with_info)
        from . import gpu

        try:
            cuda = gpu.Cuda(self._info['device'])
        except Error:
            self._job.close()
            raise
        kind = gpu.Staying if zero_copy else gpu.Arriving
        may_fall_back = pin == 'auto' and self._info['map'] == 'pinned'
        return kind(output, fields, with_info, self._job, cuda, self.pipeline, may_fall_back)

    def _arrangement(self, fields):
        """Makes what default_collate would give of the samples of a dataset in Python."""
        from .structure import Structure

        structure = Structure.from_json(self._info['layout'])
        there = [(dtype, shape) for _, dtype, shape, _ in fields]
        if structure.cells() != there:
            self._job.close()
            raise make(errno.EPROTO, f'{self.pipeline}: the daemon says that its fields are {there}, and that they are made of '
                                     f'{structure.cells()}')

        def arrange(tensors, info):
            values = structure.build(tensors, tensors[0].shape[0])
            return values if info is None else (values, info)

        return arrange

    # ---- iteration ----

    def __iter__(self):
        epoch, row = self._next
        self._job.seek(epoch, row)
        self._ticket += 1
        self._next = (epoch + 1, 0)
        return Epoch(self, self._ticket, epoch)

    def __len__(self):
        """Batches of a whole epoch, also where one was resumed in its middle."""
        return self._info['batches_per_epoch']

    @property
    def remaining(self):
        """Batches that are left of the epoch that the loader is in."""
        return self._job.place()[2]

    def set_epoch(self, epoch):
        """The next iter() is this epoch. Where a loaded state is in the middle of it, it still goes on from there."""
        epoch = number('epoch', epoch, 0)
        if epoch != self._next[0]:
            self._next = (epoch, 0)

    def _failed(self):
        """Whether nothing comes any more."""
        return self._job.failed()

    def _next_place(self):
        """(epoch, row) of the next iter(), and the digest of the order there if it is known."""
        return self._next, None

    def _take(self):
        """The next batch, or None: the epoch has ended."""
        began = time.perf_counter()
        collected = False
        self._waiting.begin()
        try:
            while True:
                try:
                    return self._job.next(self._slice_ms)
                except Timeout:
                    if self._job.failed() or time.perf_counter() - began >= self._timeout:
                        raise
                    self._waiting.tell()
                except Error as error:
                    if error.errno != errno.EBUSY:
                        raise
                    if collected:
                        raise self._holds_too_many() from None
                    gc.collect()  # arrays in a cycle of references are in use until then
                    collected = True
        finally:
            self._waited += time.perf_counter() - began

    def _accept(self, rows):
        """The user has the batch."""
        self._job.accept()
        self._batches += 1
        self._rows += rows

    def _holds_too_many(self):
        n = self._info['max_held_batches']
        return make(errno.EBUSY, f'the last {n} batches are all in use (max_held_batches={n}), and their arrays lie in '
                                 'the ring: drop them before the next batch, or keep copies (numpy: .copy(), torch: '
                                 '.clone(), on a GPU: .to(), or leave out zero_copy), or make the loader with more '
                                 'max_held_batches')

    # ---- state ----

    def state_dict(self):
        """Where the loader is after the last batch that the loop has got: plain text and numbers."""
        import json

        return json.loads(self._job.state())

    def load_state_dict(self, state, *, force=False):
        """The next iter() goes on exactly there. pinfeed.Stale if pipeline or seed have changed, unless forced; an Error if
        the ring has no room for batches from there on. An iteration is over after it."""
        needed = STATE[-2:] if force else STATE
        if not isinstance(state, dict) or not state.keys() >= set(needed):
            raise invalid(f"load_state_dict: expected what state_dict() gave, a dict with {', '.join(needed)}")
        place = number('epoch', state['epoch'], 0), number('row', state['row'], 0, SEED_MAX)
        if not force:
            self._check_state(state)
        self._ticket += 1
        self._go(place)
        self._next = place

    def _go(self, place):
        """Returns when the daemon has let the job go there, which may need more slots than before. What it refuses is said
        here, where the state was given: an iteration would go on from where the job has stayed."""
        before = self._job.place()[:2]
        began = time.monotonic()
        self._job.seek(*place)
        self._waiting.begin()
        try:
            while not self._is_there(began):
                self._waiting.tell()
        except BaseException:
            with contextlib.suppress(Error):
                self._job.seek(*before)
            raise

    def _is_there(self, began):
        try:
            with self._around():
                self._job.sought(self._slice_ms)
        except Timeout as error:
            if self._job.failed() or time.monotonic() - began >= self._timeout:
                raise
            self._waiting(str(error))
            return False
        return True

    def _check_state(self, state):
        own = self.state_dict()
        if all(state.get(key) == own[key] for key in ('pipeline', 'fingerprint', 'seed')):
            return
        if state.get('pipeline') == own['pipeline'] and state.get('seed') != own['seed']:
            raise make(errno.ESTALE, f"the state is of seed {state.get('seed')}, this loader has seed {own['seed']}: make "
                                     f"it with seed={state.get('seed')}, or pass force=True for the epoch and row alone")
        import json

        _attach(self._waiting, {**self._definition._asdict(), 'runtime_dir': self._runtime_dir,
                                'state': json.dumps(state)}).close()  # the daemon has the words, and raises
        raise make(errno.ESTALE, f"the state has fingerprint {state.get('fingerprint')}, this loader {own['fingerprint']}: "
                                 'pass force=True to take its epoch and row all the same')

    # ---- what it is ----

    @property
    def batch_size(self):
        return self._info['batch_size']

    @property
    def drop_last(self):
        return LAST_BATCH[self._info['last_batch']] == 'drop'

    @property
    def seed(self):
        return self._info['seed']

    @property
    def rank(self):
        return self._info['rank']

    @property
    def world_size(self):
        return self._info['world_size']

    @property
    def sampler(self):
        return Sampler(self)

    def stats(self):
        """What the loader has done: seconds that next() took, batches and rows received, with whom it shares, how the ring is
        mapped and how many of its slots are page-locked."""
        info = self._job.info()
        return {'wait_s': self._waited, 'batches': self._batches, 'rows': self._rows, 'reconnects': info['reconnects'],
                'sharing': info['sharing'], 'map': info['map'], 'registered': f"{info['slots_registered']}/{info['slots']}"}

    def __repr__(self):
        return (f'<pinfeed.Loader {self.pipeline!r}: {len(self.dataset)} samples, {len(self)} batches of '
                f'{self.batch_size}, seed {self.seed}, rank {self.rank} of {self.world_size}'
                + (f", to {self._info['device']}>" if self._info['device'] != 'cpu' else '>'))

    def _introduce(self, origin, output, torch_seed):
        info = self._info
        if origin:
            surroundings.say(self.pipeline, f"rank {info['rank']} of {info['world_size']}, from {origin}")
        if os.environ.get('PINFEED_LOG') == 'info':
            epoch, row, _ = self._job.place()
            on, why = ('', 'host memory') if info['device'] == 'cpu' else (f" on {info['device']}", info['map_reason'])
            surroundings.say(self.pipeline, f"seed {info['seed']}, from row {row} of epoch {epoch}, rank {info['rank']} of "
                             f"{info['world_size']}, batches of {info['batch_size']} rows as {output.name}{on}, map "
                             f"{info['map']} ({why}), daemon pid {info['daemon_pid']}; {info['sharing']}")
        if torch_seed is None and self._definition.daemon is None:
            return
        try:
            there = status(self._runtime_dir)
        except Error:
            return  # a daemon that has gone since; the next batch will say so
        if torch_seed is not None:
            surroundings.tell_of_seeds(self.pipeline, torch_seed, info, there['jobs'])
        if self._definition.daemon is not None:
            surroundings.warn_of_cpus(there)

    def _choose_fields(self, there, wanted):
        """{name: index} of those that are wanted, or the number of all."""
        if wanted is None:
            return len(there)
        names = [field[0] for field in there]
        for name in wanted:
            if name not in names:
                self._job.close()
                raise invalid(f"fields: the pipeline {self.pipeline} has no {name!r}; it has {', '.join(names)}")
        return {name: names.index(name) for name in wanted}

    def _first_bad(self):
        """The first bad sample, as the end of a sentence."""
        try:
            pipelines = status(self._runtime_dir)['pipelines']
        except (Error, OSError):
            return ''
        bad = [sample for pipeline in pipelines if pipeline['name'] == self.pipeline for sample in pipeline['bad']]
        if not bad:
            return ''
        return (f"; the first was sample {bad[0]['sample']} {bad[0]['file']}: {bad[0]['text']} "
                "('pinfeedctl status' lists them)")

    # ---- the end ----

    def _leave(self):
        """Another one takes its place."""
        self._ticket += 1
        self._job.close()

    def close(self):
        """Leaves the daemon, as soon as no array is in use that lies in the ring. The loader is of no use then."""
        self._job.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __getitem__(self, index):
        raise TypeError("a pinfeed.Loader takes the place of torch's DataLoader, not of a dataset: iterate over it, without "
                        'a DataLoader around')

    def __reduce__(self):
        raise TypeError('a pinfeed.Loader cannot be copied, nor be sent to another process (a DataLoader with num_workers '
                        'does that): make one there')


def _attach(waiting, arguments):
    """An open job. The library waits in a thread, so that Ctrl-C can end it while a source is scanned; who gives up
    leaves behind a thread that closes the job as soon as it has one."""
    job = Job(waiting)
    failure = []
    done = threading.Event()
    abandoned = threading.Event()

    def run():
        try:
            job.open(**arguments)
        except BaseException as error:
            failure.append(error)
        done.set()
        if abandoned.is_set():
            job.close()

    waiting.begin()
    threading.Thread(target=run, name='pinfeed-attach', daemon=True).start()
    try:
        while not done.wait(0.5):
            waiting.tell()
    except BaseException:
        abandoned.set()
        if done.is_set():
            job.close()
        raise
    if failure:
        raise failure.pop()
    return job


# ---- arguments ----

def _device(device):
    """The library's name of a GPU; None: host memory."""
    if device is None:
        return None
    from . import gpu

    return gpu.name_of(device)


def _pin(pin, device):
    number = _choose('pin', pin, PIN)
    if pin == 'require' and device is None:
        raise invalid("pin='require': only a loader with a device has its ring page-locked: pass device='cuda:0' too")
    return number


def _check_unknown(unknown):
    for name in unknown:
        if name in OF_DATALOADER:
            raise TypeError(f'pinfeed.Loader has no argument {name!r}: {OF_DATALOADER[name]}')
        import difflib

        near = difflib.get_close_matches(name, Loader.__init__.__kwdefaults__, 1)
        raise TypeError(f'pinfeed.Loader has no argument {name!r}' + (f', the nearest one is {near[0]!r}' if near else ''))


def _check_fields(fields):
    if fields is not None and (isinstance(fields, str) or not fields):
        raise invalid(f"fields={fields!r}: expected a list of names, such as ['image', 'label']; None: all")


def _group(group):
    if group is not None and not isinstance(group, str):
        raise invalid(f'group={group!r}: expected a text that the ranks of a run have in common')
    return group


def number(name, value, least, most=FOREVER_MS):
    try:
        number = operator.index(value)
    except TypeError:
        raise invalid(f'{name}={value!r}: expected a whole number') from None
    if isinstance(value, bool) or not least <= number <= most:
        raise invalid(f'{name}={value}: expected {least} or more' + (f', at most {most}' if number > most else ''))
    return number


def _choose(name, value, words):
    if value not in words:
        raise invalid(f"{name}={value!r}: expected {' or '.join(map(repr, words))}")
    return words.index(value)


def _last_batch(last_batch, drop_last):
    if drop_last is None:
        return 0 if last_batch is None else 1 + _choose('last_batch', last_batch, LAST_BATCH[1:])
    word = 'drop' if drop_last else 'short'
    if last_batch not in (None, word):
        raise invalid(f'last_batch={last_batch!r} and drop_last={drop_last}: give one of the two')
    return LAST_BATCH.index(word)


def _seed(seed):
    if seed is None:
        return None
    if seed == 'torch':
        import torch

        return torch.initial_seed() & SEED_MAX
    return number('seed', seed, 0, SEED_MAX)


def _seconds(name, seconds):
    if not hasattr(seconds, '__float__') or not 0 <= seconds <= FOREVER_MS:
        raise invalid(f'{name}={seconds!r}: expected seconds, 0 to {FOREVER_MS}')
    return seconds


def _milliseconds(name, seconds):
    if seconds is None or seconds == math.inf:
        return FOREVER_MS
    if not hasattr(seconds, '__float__') or not seconds > 0:
        raise invalid(f'{name}={seconds!r}: expected seconds, more than 0')
    return min(math.ceil(seconds * 1000), FOREVER_MS - 1)
