# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a loader has to do with the process it is in: lines on standard error, notebooks, torch's seed."""

import os
import re
import sys
import time
import warnings
import weakref

PATIENCE_S = 2  # before a line says what is waited for
AGAIN_S = 10
NAME_MAX = 64  # bytes of a job's name

_TORCH_SEED = re.compile(r' \(torch seed (\d+)\)$')
_TORCH_SEED_MAX = (1 << 32) - 1  # of those that people set; a process that has set none begins with 64 random bits

_by_cell = {}
_told_of_seeds = False
_warned_of_cpus = set()


def say(pipeline, text):
    print(f'pinfeed: {pipeline}: {text}', file=sys.stderr, flush=True)


def stacklevel():
    """For warnings.warn: the line of the user's that has led here."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def is_ours(path):
    """Whether it is a file of this package."""
    return os.path.dirname(path) == os.path.dirname(__file__)


def trimmed(trace):
    """A traceback without the frames of ours that it begins with."""
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


class Waiting:
    """Keeps the library's last word on what it waits for, and says it when that takes long."""

    def __init__(self, pipeline):
        self._pipeline = pipeline
        self._text = None
        self._due = 0

    def __call__(self, text):
        """Called by the library, at most ten times a second."""
        self._text = text

    def begin(self):
        self._text = None
        self._due = time.monotonic() + PATIENCE_S

    def tell(self):
        if self._text is None or time.monotonic() < self._due:
            return
        say(self._pipeline, self._text)
        self._due = time.monotonic() + AGAIN_S


# ---- notebooks ----

def cell_of(frame, pipeline):
    """What identifies the line of a notebook's cell, in whichever run of it; None outside notebooks.

    The variable that a loader goes to cannot be known, but the place that it is made at can: IPython names a cell by a hash
    of its text, older versions with the number of the run before it. A cell that has been edited is another one, and
    what was made by it before goes when its variable gets another value, as ever in Python.
    """
    code = frame.f_code
    if not hasattr(sys, 'ps1') or code.co_name != '<module>' or frame.f_globals.get('__name__') != '__main__':
        return None
    cell = re.sub(r'^<ipython-input-\d+-', '<ipython-input-', code.co_filename)
    if cell.startswith('<') and not cell.startswith('<ipython-input-'):
        return None  # a line typed at a prompt
    return cell, frame.f_lineno, pipeline


def close_earlier(cell):
    """The loader that an earlier run of the cell has made, if it is still there, makes room."""
    earlier = _by_cell.pop(cell, lambda: None)()
    if earlier is not None:
        earlier.close()


def remember(cell, loader):
    if cell is not None:
        _by_cell[cell] = weakref.ref(loader)


# ---- torch's seed ----

def torch_seed():
    """What the user has set with torch.manual_seed, or None."""
    torch = sys.modules.get('torch')
    if torch is None or not hasattr(torch, 'initial_seed'):  # perhaps being imported
        return None
    seed = torch.initial_seed()
    return seed if 0 <= seed <= _TORCH_SEED_MAX else None


def job_name(seed):
    """For `pinfeedctl jobs`: the script, and torch's seed, which other jobs read here (tell_of_seeds)."""
    script = os.path.basename(sys.argv[0] if sys.argv else '') or 'python'
    mark = '' if seed is None else f' (torch seed {seed})'
    return script.encode()[:NAME_MAX - len(mark)].decode(errors='ignore') + mark


def tell_of_seeds(pipeline, seed, info, jobs):
    """Once in a process: that jobs which share a stream have set different seeds in vain."""
    global _told_of_seeds
    others = set()
    for job in jobs:
        mark = _TORCH_SEED.search(job['name'])
        if mark and job['pipeline'] == pipeline and job['seed'] == info['seed'] and int(mark.group(1)) != seed:
            others.add(mark.group(1))
    if others and not _told_of_seeds:
        _told_of_seeds = True
        say(pipeline, f'torch.manual_seed({seed}) does not change what comes: this job shares order and random transforms of '
                      f"seed {info['seed']} with jobs that have set {', '.join(sorted(others))}; pass seed='torch' for an "
                      'order of its own, which is prepared for it alone')


# ---- the daemon's surroundings ----

def warn_of_cpus(status):
    """Once for each daemon: that it has fewer processors than this process, for it was started from a smaller cgroup, and
    not because its configuration says so."""
    own = len(os.sched_getaffinity(0))
    if not status['cpus_auto'] or status['cpus'] >= own or status['pid'] in _warned_of_cpus:
        return
    _warned_of_cpus.add(status['pid'])
    warnings.warn(f"the pinfeed daemon (pid {status['pid']}) may use {status['cpus']} processors, this process {own}: the job "
                  'that started it had fewer. End it, when no job reads, and let a job with more start it; or start one '
                  "yourself with 'pinfeedctl run'", stacklevel=4)
