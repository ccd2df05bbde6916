# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What happens around a loader: signals, forks, dying daemons, notebooks."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import pinfeed
from support import SLOWDOWN, Case, needs_numpy, ramp, wait_for

READ = '''
import numpy, pinfeed
loader = pinfeed.Loader('ramp', output='numpy')
'''


class Processes(Case):
    config = '''
pipelines:
  ramp:
    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 3000}
    batch_size: 32
    shuffle: true
    slots: 16
  slow:
    source: {type: synthetic, mode: ramp, samples: 1000, bytes: 10, delay_us: 100000}
    batch_size: 10
    workers: 1
'''

    def test_import_is_light(self):
        script = '''
import sys
import pinfeed
print([name for name in ('torch', 'numpy', 'json', 'asyncio', 'multiprocessing', 'typing') if name in sys.modules])
'''
        output = subprocess.run([sys.executable, '-S', '-c', script], check=True, capture_output=True, text=True).stdout
        self.assertEqual(output, '[]\n')

    def test_import_is_quick(self):
        """Less than 50 ms, of processor time: what else the machine does is not the package's."""
        script = '''
import time
began, cpu = time.perf_counter(), time.process_time()
import pinfeed
print(time.perf_counter() - began, time.process_time() - cpu)
'''
        times = [subprocess.run([sys.executable, '-c', script], check=True, capture_output=True, text=True).stdout.split()
                 for _ in range(5)]
        wall, cpu = [sorted(float(each[i]) for each in times)[2] for i in range(2)]
        print(f'# import pinfeed: {1000 * wall:.1f} ms, {1000 * cpu:.1f} ms of CPU (medians of 5)')
        self.assertLess(cpu, 0.05 * SLOWDOWN)

    @needs_numpy
    def test_second_job_gets_its_first_batch_at_once(self):
        first = self.loader(output='numpy')
        next(iter(first))
        times = []
        for _ in range(9):
            began = time.perf_counter()
            second = self.loader(output='numpy')
            next(iter(second))
            times.append(time.perf_counter() - began)
            second.close()
        times.sort()
        print(f'# first batch of a second job: {1000 * times[4]:.1f} ms (median of 9, {1000 * times[-1]:.1f} at most)')
        self.assertLess(times[4], 0.05 * SLOWDOWN)

    @needs_numpy
    def test_interrupt(self):
        """Ctrl-C while next() waits: at once, and not a row is lost."""
        loader = self.loader('slow', output='numpy')
        reading = iter(loader)
        rows = []
        for _ in range(3):
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            began = time.monotonic()
            try:
                while True:
                    rows += next(reading)[0].tolist()
                    began = time.monotonic()
            except KeyboardInterrupt:
                pass
            self.assertLess(time.monotonic() - began, 0.9)
        rows += next(reading)[0].tolist()
        self.assertEqual(rows, list(range(len(rows))))
        self.assertGreater(loader.stats()['wait_s'], 0.4)

    @needs_numpy
    def test_interrupt_between_batch_and_loop(self):
        loader = self.loader(output='numpy')
        reading = iter(loader)
        get = loader._values
        loader._values = lambda batch: signal.raise_signal(signal.SIGINT)
        self.assertRaises(KeyboardInterrupt, next, reading)
        self.assertEqual(loader.state_dict()['row'], 0)
        self.assertEqual(loader.remaining, 32)
        loader._values = get
        seen = [sample for index, _ in reading for sample in index.tolist()]
        self.assertEqual(sorted(seen), list(range(1000)))

    def test_interrupt_while_attaching(self):
        listener = self.listen_and_say_nothing()
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        began = time.monotonic()
        self.assertRaises(KeyboardInterrupt, pinfeed.Loader, 'ramp', runtime_dir=listener, timeout=2)
        self.assertLess(time.monotonic() - began, 1.5)

    def test_attaching_has_a_limit(self):
        listener = self.listen_and_say_nothing()
        self.assertRaisesRegex(TimeoutError, 'is not ready in time', pinfeed.Loader, 'ramp', runtime_dir=listener,
                               timeout=0.1)

    def listen_and_say_nothing(self):
        directory = os.path.join(self.daemon.directory, 'silent')
        os.makedirs(directory, mode=0o700, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(os.remove, directory + '/pinfeed.sock')
        self.addCleanup(listener.close)
        listener.bind(directory + '/pinfeed.sock')
        listener.listen()
        return directory

    @needs_numpy
    def test_waiting_has_a_limit(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            self.assertRaises(TimeoutError, self.loader, timeout=0.1)
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        loader = self.loader('slow', output='numpy', timeout=0.2)
        with self.assertRaisesRegex(pinfeed.Timeout, r'no batch came in 2\d\d ms'):
            next(iter(loader))

    @needs_numpy
    def test_fork(self):
        loader = self.loader(output='numpy')
        reading = iter(loader)
        index, data = next(reading)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                next(reading)
            except BaseException as error:
                os.write(write, f'{type(error).__name__}: {error}'.encode())
            del data, index, loader, reading
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertRegex(os.read(read, 1000).decode(), 'Error: this job belongs to the process that opened it; open another')
        os.close(read)
        os.close(write)
        self.assertTrue((data == ramp(index, 0, 3000)).all())
        next(reading)

    @needs_numpy
    def test_exception_in_the_loop_ends_the_process(self):  # E2
        script = READ + '''
import time
for batch in loader:
    print(time.monotonic())
    raise ValueError('enough')
'''
        output = self.run_script(script, check=False)
        ended = time.monotonic()
        self.assertIn('ValueError: enough', output)
        self.assertLess(ended - float(output.split()[0]), SLOWDOWN)

    @needs_numpy
    def test_another_thread_is_told(self):
        loader = self.loader('slow', output='numpy')
        reading = iter(loader)
        thread = threading.Thread(target=lambda: next(reading))
        thread.start()
        wait_for(lambda: self.jobs() and self.jobs()[0]['waiting'])
        try:
            self.assertRaisesRegex(pinfeed.Error, 'another thread is using this loader', loader.stats)
            self.assertRaisesRegex(pinfeed.Error, 'another thread is using this loader', loader.close)
        finally:
            thread.join()

    @needs_numpy
    def test_daemon_killed_and_started_again(self):
        loader = self.loader(output='numpy')
        kept = []
        for epoch in range(4):
            seen = []
            for i, (index, data) in enumerate(loader):
                self.assertTrue((data == ramp(index, epoch, 3000)).all())
                seen += index.tolist()
                if epoch < 2 and i == 10:
                    kept.append((index, data, epoch))
                    self.daemon.kill()
                    self.daemon.start()
            self.assertEqual(sorted(seen), list(range(1000)))
        self.assertEqual(loader.stats()['reconnects'], 2)
        for index, data, epoch in kept:  # in rings of daemons that are dead
            self.assertTrue((data == ramp(index, epoch, 3000)).all())

    @needs_numpy
    def test_no_daemon_comes_again(self):
        loader = self.loader(output='numpy', reconnect=0)
        reading = iter(loader)
        next(reading)
        self.daemon.kill()
        try:
            with self.assertRaisesRegex(ConnectionError, 'is gone'):
                for _ in reading:
                    pass
        finally:
            self.daemon.start()

    @needs_numpy
    def test_progress_line_and_attach_line(self):
        script = '''
import pinfeed
from pinfeed import surroundings
surroundings.PATIENCE_S = 0.3
loader = pinfeed.Loader('ramp', output='numpy', reconnect=20)
reading = iter(loader)
print('READY', flush=True)
input()
for batch in reading:
    pass
'''
        child = subprocess.Popen([sys.executable, '-B', '-c', script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True,
                                 env=dict(os.environ, PINFEED_LOG='info', PINFEED_RUNTIME_DIR=self.daemon.runtime))
        self.assertEqual(child.stdout.readline(), 'READY\n')
        self.daemon.kill()
        child.stdin.write('\n')
        child.stdin.flush()
        lines = [child.stderr.readline(), child.stderr.readline()]
        self.daemon.start()
        child.communicate(timeout=20)
        self.assertEqual(child.returncode, 0)
        self.assertRegex(lines[0], r'^pinfeed: ramp: seed 0, from row 0 of epoch 0, rank 0 of 1, batches of 32 rows as numpy, '
                                   r'map read-only \(host memory\), daemon pid \d+; alone in this stream')
        self.assertRegex(lines[1], r'^pinfeed: ramp: waiting for pinfeedd to come back: \d+ s of 20')

    @needs_numpy
    def test_notebook(self):
        """A cell that runs again closes what it made before, also where something still refers to that."""
        main = types.ModuleType('__main__')
        main.runtime = self.daemon.runtime
        cell = compile('import pinfeed\n'
                       'loader = pinfeed.Loader("ramp", runtime_dir=runtime, output="numpy", timeout=20)\n'
                       'second = pinfeed.Loader("ramp", runtime_dir=runtime, output="numpy", timeout=20)\n',
                       '/tmp/ipykernel_1/123.py', 'exec')
        sys.ps1 = '>>> '
        try:
            kept = []
            for _ in range(3):
                exec(cell, main.__dict__)
                kept += [main.loader, main.second]
            self.assertEqual(len(self.jobs()), 2)
            next(iter(kept[-1]))
            self.assertRaisesRegex(pinfeed.Error, 'closed', iter, kept[0])
        finally:
            del sys.ps1
            for loader in kept:
                loader.close()
