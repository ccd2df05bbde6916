#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The demo where torch is installed: four training scripts, first with torch's DataLoader, then with pinfeed's Loader.

    demo_torch.py BUILD

The scripts (demo_trainer.py) are the same but for the loader. The fourth begins when the others have begun to train.
With pinfeed a worker and the daemon are killed while all four read. Ends with 0 only if all eight scripts ended well, their
losses fell, and each one with pinfeed got each image once in each epoch.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time

from stage import Stage, perform

EPOCHS = 14
RATES = ['0.003', '0.01', '0.02', '0.03']  # one script each
LATE = 3  # the one that begins late
TRAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'demo_trainer.py')
PAUSE_ROWS = 1000  # between what is done to the scripts
TICK_S = 0.05
MEASURE_S = 0.4
TICKS = os.sysconf('SC_CLK_TCK')


# ---- what it costs ----

def processes():
    """{pid: (parent, CPU seconds)} of all that run."""
    found = {}
    for entry in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{entry}/stat', encoding='utf-8', errors='replace') as file:
                words = file.read().rpartition(')')[2].split()
        except OSError:
            continue
        found[int(entry)] = int(words[1]), (int(words[11]) + int(words[12])) / TICKS
    return found


def proportional(pid):
    """Its memory, pages that it has in common with others divided by their number."""
    try:
        with open(f'/proc/{pid}/smaps_rollup', encoding='utf-8') as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith('Pss:'))
    except (OSError, StopIteration):
        return 0


class Meter:
    """CPU seconds, and the most memory, of some processes and all below them. What one has used after it was last looked at
    is lost, so it looks often."""

    def __init__(self, roots):
        self._roots = roots  # a function, for they change
        self._cpu = {}
        self._over = threading.Event()
        self.peak = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self):
        """The pids."""
        there = processes()
        family = {pid for pid in self._roots() if pid in there}
        while more := {pid for pid, (parent, _) in there.items() if parent in family} - family:
            family |= more
        self._cpu.update((pid, there[pid][1]) for pid in family)
        return family

    def _run(self):
        while not self._over.wait(MEASURE_S):
            self.peak = max(self.peak, sum(map(proportional, self.look())))

    def end(self):
        self._over.set()
        self._thread.join()

    @property
    def cpu(self):
        return sum(self._cpu.values())


# ---- a phase ----

class Scripts:
    """Four scripts with one kind of loader, on the stage."""

    def __init__(self, stage, loader, folder, **environment):
        self.stage = stage
        self.loader = loader
        self.folder = folder
        self.environment = environment
        self.began = time.monotonic()
        self.running = []
        self.meter = Meter(lambda: [process.pid for process in self.running] + stage.daemon())

    def begin(self):
        rate = RATES[len(self.running)]
        workers = max(2, (os.cpu_count() or 1) // len(RATES))
        self.running.append(self.stage.start(
            f'{self.loader}-{rate}', [sys.executable, '-B', TRAINER, self.loader, self.folder, '--rate', rate, '--epochs',
                                      str(EPOCHS), '--workers', str(workers)], **self.environment))

    def last_words(self):
        """Of each script: what it has said last."""
        words = []
        for process in self.running:
            lines = self.stage.read(process.demo_name + '.out').splitlines()
            words.append(json.loads(lines[-1]) if lines and lines[-1].endswith('}') else {'epoch': 0, 'rows': 0})
        return words

    def tell(self, text):
        self.stage.live_end()
        print(f'  {time.monotonic() - self.began:5.1f} s  {text}', flush=True)

    def perform(self, events=iter(())):
        """Until all have ended; their last words. `events` is a generator that is asked again and again."""
        for _ in range(LATE):
            self.begin()
        self.tell('three scripts begin')
        while len(self.running) <= LATE or any(process.poll() is None for process in self.running):
            words = self.last_words()
            if len(self.running) == LATE and min(word['rows'] for word in words) > 0:
                self.begin()
                self.tell('the fourth begins: the others train already')
            next(events, None)
            if any(process.poll() for process in self.running):
                break
            self.show(words)
            time.sleep(TICK_S)
        self.meter.end()
        self.stage.live_end()
        for process in self.running:
            if process.wait() != 0:
                self.stage.fail(f'script {process.demo_name} ended with {process.returncode}', process.demo_name)
        self.tell('all have ended')
        return self.last_words()

    def show(self, words):
        places = ' '.join(f'{word["epoch"] + 1:>4}/{EPOCHS}' for word in words)
        rows = sum(word['rows'] for word in words)
        self.stage.live(f'  {time.monotonic() - self.began:5.1f} s  epoch{places}   {rows:>6,} rows')


class Demo(Stage):
    width = 80

    def daemon(self):
        """Its pid, in a list; or none."""
        try:
            with open(os.path.join(self.runtime, 'pinfeedd.pid'), encoding='utf-8') as file:
                return [int(file.read())]
        except (OSError, ValueError):
            return []

    def status_if_any(self):
        try:
            return self.status()
        except (OSError, ValueError):
            return None

    def show_status(self):
        self.live_end()
        print(flush=True)
        subprocess.run([os.path.join(self.bin, 'pinfeedctl'), '--runtime-dir', self.runtime, 'status'], check=True)
        print(flush=True)


def reading(status):
    return sum(job['state'] == 'attached' and job['batches'] > 0 for job in status['jobs']) if status else 0


def some_rows(stage):
    def delivered():
        status = stage.status_if_any()
        return sum(pipeline['rows_delivered'] for pipeline in status['pipelines']) if status else 0

    enough = delivered() + PAUSE_ROWS
    while delivered() < enough:
        yield


def disturb(stage, scripts):
    """What happens while the scripts read with pinfeed: a generator that yields while it waits for something."""
    while not (status := stage.status_if_any()):
        yield
    first = status['pid']
    scripts.tell(f'pinfeedd (pid {first}) is there: the first loader has started it')
    while reading(status := stage.status_if_any()) < len(RATES):
        yield
    scripts.tell('all four read; pinfeedctl status:')
    stage.show_status()

    worker = next(w['pid'] for w in status['workers'] if w['pid'] > 0)
    scripts.meter.look()
    os.kill(worker, signal.SIGKILL)
    scripts.tell(f'kill -9 {worker}, a worker in the middle of its work')
    while any(w['pid'] == worker for w in (stage.status_if_any() or status)['workers']):
        yield
    scripts.tell('another one has taken its place')
    yield from some_rows(stage)

    scripts.meter.look()
    os.kill(first, signal.SIGKILL)
    scripts.tell(f'kill -9 {first}, the daemon; its workers end with it')
    while reading(status := stage.status_if_any()) < len(RATES):
        yield
    scripts.tell(f'pinfeedd (pid {status["pid"]}), started by one of the four: all go on')


# ---- the tables ----

def figures(words, meter):
    rows = sum(word['rows'] for word in words)
    seconds = max(word['ended'] for word in words) - min(word['began'] for word in words)
    return {'rows': rows, 'rate': rows / seconds, 'seconds': seconds, 'late': words[LATE]['first_batch_s'],
            'cpu': meter.cpu, 'peak': meter.peak / 2**20}


def ratio(before, after):
    return f'{after / before:.1f} x' if after > before else f'1 / {before / after:.1f}'


def table(before, after):
    head = f'{"all four together":<36}{"DataLoader":>14}{"pinfeed":>14}{"":>12}'.rstrip()
    print(head + '\n' + '-' * 76)
    for words, name, form in [('rows a second', 'rate', '{:,.0f}'), ('first batch of the late one', 'late', '{:.2f} s'),
                              ('CPU time, all processes', 'cpu', '{:.1f} s'),
                              ('memory (PSS), all processes', 'peak', '{:,.0f} MiB')]:
        print(f'{words:<36}{form.format(before[name]):>14}{form.format(after[name]):>14}'
              f'{ratio(before[name], after[name]):>12}')
    print()


def losses(before, after):
    print(f'{"script":<36}{"DataLoader":>14}{"pinfeed":>14}\n' + '-' * 76)
    for rate, *both in zip(RATES, before, after):
        cells = ['{first_loss:.2f} > {last_loss:.2f}'.format(**word) for word in both]
        print(f'{f"learning rate {rate}: loss":<36}{cells[0]:>14}{cells[1]:>14}')
    print()


def decoder():
    if importlib.util.find_spec('torchvision'):
        return "torchvision's ImageFolder and transforms"
    return 'a Dataset of ours with Pillow (torchvision is not installed)'


def check(words):
    for rate, word in zip(RATES, words):
        if not word.get('done') or not word['last_loss'] < word['first_loss']:
            raise SystemExit(f'demo: the loss of learning rate {rate} did not fall: {word}')


def run(stage):
    folder = stage.draw(30, 400, 300)
    print(f'Four scripts train on them, {EPOCHS} epochs each, with four learning rates, on {os.cpu_count()} processors.\n')
    print(f'1. torch.utils.data.DataLoader, with {decoder()}')
    scripts = Scripts(stage, 'torch', folder)
    before = scripts.perform()
    before_figures = figures(before, scripts.meter)

    print('\n2. pinfeed.Loader; nothing was started for it')
    scripts = Scripts(stage, 'pinfeed', folder, PINFEED_RUNTIME_DIR=stage.runtime, PINFEED_STATE_DIR=stage.directory)
    after = scripts.perform(disturb(stage, scripts))
    print('           each script got each image once in each epoch\n')
    table(before_figures, figures(after, scripts.meter))
    losses(before, after)
    check(before + after)
    if not all(word['reconnects'] for word in after):
        print('(This machine is so quick that not all four were there when the daemon was killed.)')


if __name__ == '__main__':
    perform(Demo(sys.argv[1]), run)
