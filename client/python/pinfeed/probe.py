# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What rows a dataset gives, learned from its first two, before there are workers.

Two forked children make the first two rows of epoch 0, one of them in the other order. So samples are made twice, by processes
that have done different things before, and where the two differ, a sample depends on more than seed, epoch and its number.
Children make them and not the script, since a dataset may open files or draw random numbers, and must not have done so
when workers are forked. They are workers in everything but that nobody gets their rows: worker_init_fn is called, too.

What is wrong with a sample is raised here as it would come with a batch.
"""

import collections
import errno
import hashlib
import mmap
import os
import pickle
import signal
import struct
import sys
import time

from . import forks, surroundings, workers
from .errors import make

CAPACITY = 5 / 4  # of the larger batch that was seen
TRIES = 100  # rows that are looked at where bad ones are replaced
PLACE = struct.Struct('<qq')  # row and sample in work
NOWHERE = -1, -1
WAIT_S = 0.05  # how long Ctrl-C may have to wait

Failure = collections.namedtuple('Failure', 'row sample errno text exception traceback')


class Probe:
    """Of the dataset that `work` is about. `drawn` is the order of epoch 0 where a sampler says it. `limit_s` is how long a
    child may work, `tries` how many rows may be looked at to find two good ones."""

    def __init__(self, work, drawn, limit_s, tries):
        self._work = work
        self._drawn = drawn
        self._limit_s = limit_s
        self._rows = list(range(min(work.units.rows, max(tries, 2))))

    def learn(self):
        """(what a row is, digests of the first samples). The first is a Structure, or the bytes of the larger batch; the second
        is None where the two children saw different samples. Raises structure.NotRows where a row cannot be a sample."""
        while True:
            answers = self._ask((self._rows * 2)[:2])
            bad = next((answer for answer in answers if isinstance(answer, Failure)), None)
            if bad is None:
                break
            if bad.row not in self._rows or len(self._rows) <= 2:
                raise _error(bad)
            self._rows.remove(bad.row)
        (found, digests), (other, other_digests) = answers
        if isinstance(found, Exception):
            raise found
        return (max(found, other) if isinstance(found, int) else found), digests if digests == other_digests[::-1] else None

    def _ask(self, rows):
        children = []
        try:
            for number in range(2):
                children.append(_Asked(self._work, self._drawn, rows if number == 0 else rows[::-1], number))
            deadline = time.monotonic() + self._limit_s
            return [child.answer(deadline, self._limit_s) for child in children]
        finally:
            for child in children:
                child.close()


class _Asked:
    """A child that makes rows, and what it says of them."""

    def __init__(self, work, drawn, rows, number):
        self._work, self._drawn = work, drawn
        self._place = mmap.mmap(-1, PLACE.size)
        self._put(*NOWHERE)
        self._reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            self._child = forks.Child(lambda: self._live(writing, rows, number), 'pinfeed-probe')
        finally:
            os.close(writing)

    def answer(self, deadline, limit_s):
        """A pair of what was found and the digests, or a Failure."""
        parts = []
        os.set_blocking(self._reading, False)
        while time.monotonic() < deadline:
            try:
                part = os.read(self._reading, 1 << 20)
            except BlockingIOError:
                forks.wait_for(self._reading, WAIT_S)
                continue
            if not part:
                return pickle.loads(b''.join(parts)) if parts else self._died()
            parts.append(part)
        row, sample = PLACE.unpack_from(self._place)
        text = f'making the first samples has taken more than {limit_s:g} s, and was given up at sample {sample}: pass a ' \
               'larger sample_timeout if that is not too long'
        return Failure(row, sample, errno.ETIMEDOUT, text, None, None)

    def close(self):
        self._child.close()
        os.close(self._reading)

    def _died(self):
        row, sample = PLACE.unpack_from(self._place)
        code = self._child.end(forks.REAP_S)
        how = f'exited with status {code}' if code is None or code >= 0 else f'was killed by signal {-code} ({_signal(-code)})'
        where = f'at sample {sample}' if sample >= 0 else 'in worker_init_fn'
        return Failure(row, sample, errno.EIO, f'the process that made the first samples {how} {where}', None, None)

    # ---- in the child ----

    def _put(self, row, sample):
        PLACE.pack_into(self._place, 0, row, sample)

    def _live(self, writing, rows, number):
        try:
            answer = pickle.dumps(self._look(rows, number))
        except BaseException as error:
            answer = pickle.dumps(self._describe(error))
        with open(writing, 'wb', closefd=False) as file:
            file.write(answer)

    def _look(self, rows, number):
        workers.use_one_thread()
        self._work.prepare(number)
        maker, units = self._work.maker, self._work.units
        numbers = [units.samples(range(row, row + 1), self._work.seed, 0, self._drawn) for row in rows]
        maker.watch = lambda sample: self._put(next(row for row, those in zip(rows, numbers) if sample in those), sample)
        found = self._measure(numbers[0]) if units.whole else None
        firsts = [those[0] for those in numbers if those]
        values = [maker.sample(sample, self._work.seed, 0) for sample in firsts]
        return self._learn(values, firsts) if found is None else found, [digest(value) for value in values]

    def _measure(self, numbers):
        """Bytes of that batch."""
        from . import blob

        return blob.encode(self._work.maker.batch(numbers, self._work.seed, 0)).length

    def _learn(self, values, samples):
        from . import structure

        try:
            return structure.learn(values)
        except structure.NotRows as reason:
            return reason
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            names = ' and '.join(map(str, samples))
            return kind(f'dataset: no batch can be made of its samples {names} (here 0 and 1): {error}')

    def _describe(self, error):
        row, sample = PLACE.unpack_from(self._place)
        from . import _worker

        return Failure(row, sample, *_worker.explain(error.with_traceback(surroundings.trimmed(error.__traceback__))))


def _error(failure):
    """The exception that a worker would have been the cause of."""
    known = {'sample': failure.sample if failure.sample >= 0 else None, 'exception': failure.exception,
             'traceback': failure.traceback}
    where = f'sample {failure.sample}: ' if failure.exception and failure.sample >= 0 else ''
    return make(failure.errno, where + failure.text, known)


def _signal(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return 'real-time'


# ---- whether two samples are the same ----

def digest(value):
    sum = hashlib.sha256()
    _add(sum, value)
    return sum.digest()


def _add(sum, value):
    """All that is compared: the bytes of tensors, arrays and images, texts, numbers, and how they are nested."""
    sum.update(type(value).__qualname__.encode())
    if isinstance(value, dict):
        for key, part in value.items():
            _add(sum, key)
            _add(sum, part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _add(sum, part)
    elif isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        sum.update(repr(value).encode(errors='surrogatepass'))
    else:
        sum.update(_bytes(value))


def _bytes(value):
    torch = sys.modules['torch']
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            return b''
        value = value.detach().resolve_conj().resolve_neg().contiguous()
        return value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b''
    if callable(getattr(value, 'tobytes', None)):
        return value.tobytes()  # arrays of NumPy, images of PIL
    return b''
