# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""For tests/gpu/check: where the programs under test are, and running them one after the other."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

NOTHING = 77  # exit code: something is missing; of check, measure and train.py
LIMIT_S = 225  # for all checks
PROCESS_LIMIT_S = 60  # for each
FAKE_LIMIT_S = 30  # for each, on the fake
FAKE = 'libcudart-fake.so'


class Lacks(Exception):
    """Something that a check needs is not here."""


class Failed(Exception):
    """It was run and went wrong."""


# ---- where things are ----

class Place:
    """The programs under test: of a build directory, or packed by tests/gpu/carry."""

    def __init__(self, directory):
        self.directory = os.path.abspath(directory)
        carried = os.path.isdir(self.path('site'))
        self.package = self.path('site') if carried else self._installed_package()
        self.bin = self.path('site/pinfeed/bin') if carried else self.path('install/bin')
        self.measure = self.path('bin/measure') if carried else self.path('tests/gpu/measure')
        self.libraries = self.path('lib') if carried else None
        self.images = self.path('images') if carried else None
        self.draw_images = self.path('tests/support/draw-images')
        self.fake = self.path('tests/support', FAKE)

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def program(self, name):
        return os.path.join(self.bin, name)

    def _installed_package(self):
        found = glob.glob(self.path('install/lib*/**/pinfeed/__init__.py'), recursive=True)
        return os.path.dirname(os.path.dirname(found[0])) if found else None

    def missing(self):
        return [path for path in (self.program('pinfeedd'), self.program('pinfeedctl'), self.measure)
                if not os.access(path, os.X_OK)]


def find_place(given):
    candidates = [given] if given else [ROOT, os.path.join(ROOT, 'build'), os.path.join(ROOT, 'build', 'gpu-carry')]
    places = [Place(directory) for directory in candidates]
    for place in places:
        if not place.missing():
            return place
    raise Lacks('no programs to check: ' + ', '.join(places[-1].missing()) + ' is missing; build and install, or unpack '
                'what tests/gpu/carry has packed')


# ---- running ----

def parse_lines(text):
    return dict(line.split(' ', 1) for line in text.splitlines() if ' ' in line)


class Runner:
    """Runs one process after the other, each with a runtime directory of its own, and ends the daemons that they start."""

    def __init__(self, place, fake):
        self.place = place
        self.simulated = fake
        self.directory = tempfile.mkdtemp(prefix='pf-gpu-', dir='/tmp')  # short: a socket's path has room for 108 bytes
        self.ends = time.monotonic() + LIMIT_S
        self.limit = FAKE_LIMIT_S if fake else PROCESS_LIMIT_S
        self.kernels = None
        self.notes = {}  # check: what the fake runtime has noted of it
        self._report = os.path.join(self.directory, 'report')  # where the fake does
        self.daemons_with_gpu = []
        self.daemons_seen = 0
        self._count = 0
        self.environment = dict(os.environ, PINFEED_STATE_DIR=os.path.join(self.directory, 'state'))
        if fake:
            asked = os.environ.get('PINFEED_FAKE_CUDA', '')
            self.environment.update(PINFEED_LIBCUDART=place.fake, PINFEED_FAKE_CUDA=' '.join(
                ['devices=2', 'delay_us=50', 'report=' + self._report, asked]).strip())

    def left(self):
        return self.ends - time.monotonic()

    def new_runtime(self):
        self._count += 1
        return os.path.join(self.directory, str(self._count))

    def run(self, argv, runtime, environment=(), beside=None):
        """Its lines, once it has ended well. `beside` is called now and then meanwhile."""
        if self.left() <= 0:
            raise Failed(f'not run: the {LIMIT_S} s for all checks were over')
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**self.environment, 'PINFEED_RUNTIME_DIR': runtime, **dict(environment)})
        try:
            output, errors = self._wait(process, beside)
        finally:
            process.kill()
            process.wait()
            self._look_at_daemon(runtime)
        last = errors.strip().splitlines()[-1:] or [f'{os.path.basename(argv[0])} ended with {process.returncode}']
        if process.returncode == NOTHING:
            raise Lacks(last[0])
        if process.returncode != 0:
            raise Failed(last[0])
        return parse_lines(output)

    def _wait(self, process, beside):
        limit = min(self.limit, self.left())
        ends = time.monotonic() + limit
        while time.monotonic() < ends:
            try:
                return process.communicate(timeout=0.02)
            except subprocess.TimeoutExpired:
                if beside:
                    beside()
        raise Failed(f'it had not ended after {limit:.0f} s')

    def measure(self, check, shape=(), *options, environment=(), beside=None, before=(), runtime=None):
        """Runs `measure CHECK` with a shape of (bytes, slots, rounds), and ends its daemon."""
        own = runtime or self.new_runtime()
        argv = [*before, self.place.measure, check, '--runtime-dir', own, '--daemon', self.place.program('pinfeedd')]
        for name, value in zip(('--bytes', '--slots', '--rounds'), shape):
            argv += [name, str(value)]
        if self.kernels:
            argv += ['--kernels', self.kernels]
        if self.place.libraries:
            environment = {**dict(environment), 'LD_LIBRARY_PATH': self.place.libraries}
        try:
            return self.run(argv + list(options), own, environment, beside and (lambda: beside(own)))
        finally:
            self._take_notes(check)
            if not runtime:
                self.end_daemon(own)

    def train(self, *options):
        own = self.new_runtime()
        if not self.place.package:
            raise Lacks('the Python package is not there')
        try:
            return self.run([sys.executable, '-B', os.path.join(HERE, 'train.py'), *options], own,
                            {'PYTHONPATH': self.place.package})
        finally:
            self.end_daemon(own)

    def _take_notes(self, check):
        """Breaches of the runtime's rules. What `measure` leaves to the end of its process is no matter, but registrations."""
        if not os.path.exists(self._report):
            return
        with open(self._report, encoding='utf-8') as file:
            found = [note for line in file for note in json.loads(line)['violations']]
        os.remove(self._report)
        self.notes.setdefault(check, []).extend(
            note for note in found if not note.startswith('left at the end') or 'registrations' in note)

    # ---- daemons ----

    def daemon(self, runtime):
        """Its pid; 0: there is none."""
        try:
            with open(os.path.join(runtime, 'pinfeedd.pid'), encoding='ascii') as file:
                pid = int(file.read())
            with open(f'/proc/{pid}/comm', encoding='utf-8') as file:
                return pid if file.read().strip() == 'pinfeedd' else 0  # else the number of one that was killed, used again
        except (OSError, ValueError):
            return 0

    def _look_at_daemon(self, runtime):
        """Whether daemon or workers have a GPU open: they never must."""
        daemon = self.daemon(runtime)
        if not daemon:
            return
        for pid in [daemon] + children(daemon):
            self.daemons_seen += 1
            self.daemons_with_gpu += [f'pid {pid}: {name}' for name in open_gpus(pid)]

    def end_daemon(self, runtime):
        pid = self.daemon(runtime)
        if pid:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while pid and is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self):
        for number in range(self._count):
            self.end_daemon(os.path.join(self.directory, str(number + 1)))
        shutil.rmtree(self.directory, ignore_errors=True)


def is_running(pid):
    """A daemon is nobody's child here: its zombie may stay for a while."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as file:
            return file.read().rpartition(')')[2].split()[0] not in 'ZX'
    except OSError:
        return False


def children(pid):
    found = []
    for path in glob.glob(f'/proc/{pid}/task/*/children'):
        try:
            with open(path, encoding='ascii') as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return found


def open_gpus(pid):
    """Device files of a GPU and CUDA libraries that the process has."""
    found = set()
    try:
        for entry in os.listdir(f'/proc/{pid}/fd'):
            target = os.readlink(f'/proc/{pid}/fd/{entry}')
            if target.startswith('/dev/nvidia'):
                found.add(target)
        with open(f'/proc/{pid}/maps', encoding='utf-8') as maps:
            found |= {line.split()[-1] for line in maps if 'libcuda' in line or '/dev/nvidia' in line}
    except OSError:
        pass
    return sorted(found)
