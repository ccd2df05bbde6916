# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""One run of each contestant, as a dict of figures; for compare.py.

A run of pinfeed has a daemon and a runtime directory of its own, so that nothing is warm. Its CPU is what the kernel
counted for daemon, workers and client together once all have ended, and, as `cpu_seconds`, what the daemon says of
itself and its workers for the time that the job was attached.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))

RECIPES = {
    'photos': {
        'transforms': [
            {'random_resized_crop': {'size': 224}},
            {'random_horizontal_flip': {'p': 0.5}},
            {'normalize': {'mean': [0.485, 0.456, 0.406], 'std': [0.229, 0.224, 0.225]}},
        ],
        'batch_size': 64, 'shuffle': True, 'workers': 2, 'reserve': 'start',
    },
    'article': {
        'source': {'type': 'synthetic', 'samples': 10000, 'features': 512, 'delay_us': 100},
        'batch_size': 128, 'shuffle': True, 'workers': 4, 'reserve': 'start',
    },
    'handover': {
        'source': {'type': 'synthetic', 'mode': 'ramp', 'samples': 100000, 'bytes': 64, 'delay_us': 1000},
        'batch_size': 1, 'workers': 1,
    },
    'small': {
        'source': {'type': 'synthetic', 'mode': 'ramp', 'samples': 1000000, 'bytes': 4096},
        'batch_size': 1, 'workers': 1, 'slots': 256,
    },
    # Epochs of 100 batches, one each 4 ms; the next one is prepared before it is asked for, or is not.
    'borders': {
        'source': {'type': 'synthetic', 'mode': 'ramp', 'samples': 800, 'bytes': 64, 'delay_us': 1000},
        'batch_size': 8, 'workers': 2, 'lookahead': 1,
    },
    'borders_asked': {
        'source': {'type': 'synthetic', 'mode': 'ramp', 'samples': 800, 'bytes': 64, 'delay_us': 1000},
        'batch_size': 8, 'workers': 2, 'lookahead': 0,
    },
}


PEER_WORKERS = {'article': 4, 'plain': 4, 'folder': 2}
BESIDE = 'cpu_seconds_daemon', 'cpu_seconds_workers'  # of what all copies share


class Memory(threading.Thread):
    """The largest sum of proportional set sizes of some process trees, of two looks a second (each walks page tables, and
    takes its time from what is measured)."""

    def __init__(self, *roots):
        super().__init__(daemon=True)
        self.roots = roots
        self.peak = 0
        self.stopped = threading.Event()
        self.start()

    def run(self):
        while not self.stopped.wait(0.5):
            self.peak = max(self.peak, sum(proportional(pid) for pid in tree(self.roots)))

    def stop(self):
        self.stopped.set()
        self.join()
        return self.peak


def tree(roots):
    parents = {}
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            try:
                with open(f'/proc/{entry}/stat', encoding='utf-8', errors='replace') as file:
                    parents[int(entry)] = int(file.read().rpartition(')')[2].split()[1])
            except OSError:
                pass
    found = set(roots)
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def proportional(pid):
    try:
        with open(f'/proc/{pid}/smaps_rollup', encoding='utf-8') as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith('Pss:'))
    except (OSError, StopIteration):
        return 0


def reap(process):
    """CPU seconds of a process and of those children that it has reaped itself."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def ask(argv, memory_of=()):
    """What a program says in JSON, its CPU seconds, the peak of its and others' memory."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        memory = Memory(process.pid, *memory_of)
        output = process.stdout.read()
        cpu = reap(process)
        peak = memory.stop()
    if process.returncode:
        raise SystemExit(f'{argv} ended with {process.returncode}')
    return json.loads(output.strip().splitlines()[-1]), cpu, peak


class Bench:
    def __init__(self, build, photos):
        self.build = os.path.abspath(build)
        RECIPES['photos']['source'] = {'type': 'imagefolder', 'path': os.path.abspath(photos)}
        self.photos = photos
        self.package = os.path.join(self.build, 'install/lib/python3/dist-packages')

    def program(self, name):
        return os.path.join(self.build, 'tests/bench', name)

    def dataloader(self, workload, rows):
        argv = [sys.executable, os.path.join(HERE, 'peer-dataloader.py'), workload,
                str(RECIPES[workload]['workers']), str(rows)] + ([self.photos] if workload == 'photos' else [])
        result, _, peak = ask(argv)
        return {**result, 'all_cpu_seconds': result['cpu_seconds'], 'peak_bytes': peak}

    def pinfeed(self, workload, rows, *options):
        directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        daemon = None
        try:
            daemon = self.start_daemon(directory)
            began = time.monotonic()
            result, client_cpu, peak = ask(
                [os.path.join(self.build, 'install/bin/pinfeedctl'), '--runtime-dir', directory + '/run', 'bench',
                 workload, '--rows', str(rows), '--json', *options], [daemon.pid])
            wall = time.monotonic() - began
            daemon.terminate()
            daemon_cpu = reap(daemon)
        finally:
            if daemon and daemon.returncode is None:
                daemon.kill()
                daemon.wait()
            shutil.rmtree(directory)
        said = result['cpu_seconds']
        # pinfeedctl's times begin when it is attached; here the scan and the start of the workers count too.
        return {**result, 'seconds': wall, 'daemon_cpu_seconds': result['cpu_seconds_daemon'],
                'first_batch_ms': result['first_batch_ms'] + 1e3 * (wall - result['seconds']),
                'all_cpu_seconds': max(daemon_cpu, said) + client_cpu, 'peak_bytes': peak}

    def peers(self, arguments, rows, copies, memory_of=(), **environment):
        """So many copies of the peer at the same time: their rows, CPU and memory together."""
        argv = [sys.executable, os.path.join(HERE, 'peer-dataloader.py'), *arguments,
                str(PEER_WORKERS[arguments[-1]]), str(rows), *([self.photos] if arguments[-1] == 'folder' else [])]
        environment = {**os.environ, **environment}
        processes = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(copies)]
        memory = Memory(*[process.pid for process in processes], *memory_of)
        results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
        return {'seconds': max(result['seconds'] for result in results), 'rows': sum(result['rows'] for result in results),
                'batches': sum(result['batches'] for result in results),
                'first_batch_ms': max(result['first_batch_ms'] for result in results),
                'rows_prepared': max(result.get('rows_prepared', 0) for result in results) or copies * rows,
                'all_cpu_seconds': sum(result['cpu_seconds'] for result in results)
                + max(sum(result.get(name, 0) for name in BESIDE) for result in results), 'peak_bytes': memory.stop()}

    def dataset(self, workload, rows, copies=0, loader='pinfeed'):
        """The peer's script with a loader of pinfeed's, or so many copies of it that share."""
        directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        daemon = self.wait_ready(['--private', '--runtime-dir', directory])
        try:
            sharing = ['--share', 'bench'] if copies else []
            result = self.peers(['--loader', loader, *sharing, workload], rows, copies or 1, [daemon.pid],
                                PYTHONPATH=self.package, PINFEED_RUNTIME_DIR=directory)
        finally:
            daemon.terminate()
            reap(daemon)
            shutil.rmtree(directory)
        return result

    def borders(self, pipeline, epochs):
        directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        daemon = None
        try:
            daemon = self.start_daemon(directory)
            return ask([self.program('borders'), directory + '/run', pipeline, str(epochs)])[0]
        finally:
            if daemon:
                daemon.terminate()
                reap(daemon)
            shutil.rmtree(directory)

    def start_daemon(self, directory):
        config = os.path.join(directory, 'pinfeed.yaml')
        with open(config, 'w', encoding='utf-8') as file:
            json.dump({'pipelines': RECIPES}, file)  # JSON is YAML
        return self.wait_ready(['--config', config, '--runtime-dir', directory + '/run'])

    def wait_ready(self, arguments):
        daemon = subprocess.Popen([os.path.join(self.build, 'install/bin/pinfeedd'), *arguments], stderr=subprocess.PIPE,
                                  text=True)
        for line in daemon.stderr:
            if 'ready' in line:
                threading.Thread(target=daemon.stderr.read, daemon=True).start()
                return daemon
            print(line, end='', file=sys.stderr)
        reap(daemon)
        raise SystemExit('the daemon did not start')

    def bareloop(self, workload, rows, dtype='float32'):
        """The recipe's images as this type; as uint8 they are not normalised."""
        transforms = [transform for transform in RECIPES[workload].get('transforms', ())
                      if dtype != 'uint8' or 'normalize' not in transform]
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            json.dump({'source': RECIPES[workload]['source'], 'transforms': transforms, 'output': {'dtype': dtype}}, file)
            file.flush()
            return ask([self.program('bareloop'), '--json', file.name, '--batch',
                        str(RECIPES[workload]['batch_size']), '--rows', str(rows), '--shuffle'])[0]

    def croploop(self, through, rows, *options):
        return ask([self.program('croploop'), '--through', through, '--rows', str(rows), *options, self.photos])[0]

    def relay(self, batches):
        return ask([self.program('relay'), str(batches), '1000'])[0]

    def roundtrip(self):
        return ask([self.program('roundtrip')])[0]
