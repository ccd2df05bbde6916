# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What both demos stand on: a directory, processes that end with the demo, a line that changes while one watches.

All files are in one temporary directory, the daemon's runtime directory among them; all processes are ended on the way out,
whichever way that is. A private daemon is nobody's child, so it is found by the directory that it serves.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


class Stage:
    width = 100

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.bin = os.path.join(self.build, 'install/bin')
        self.directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')  # short: a socket's path has room for 108 bytes
        self.runtime = os.path.join(self.directory, 'run')
        self.processes = []
        self.tty = sys.stdout.isatty()
        self.said = 0

    # ---- processes ----

    def start(self, name, argv, **environment):
        """In a session of its own: Ctrl-C comes to the demo alone, which then ends the others in order."""
        log = open(os.path.join(self.directory, name + '.log'), 'w', encoding='utf-8')
        out = open(os.path.join(self.directory, name + '.out'), 'w', encoding='utf-8')
        with log, out:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True,
                                       env=dict(os.environ, **environment))
        process.demo_name = name
        self.processes.append(process)
        return process

    def read(self, name):
        with open(os.path.join(self.directory, name), encoding='utf-8') as file:
            return file.read()

    def fail(self, words, *names):
        for name in names:
            words += f'\n--- {name}:\n' + self.read(name + '.log')
        raise SystemExit('demo: ' + words)

    def close(self):
        for process in reversed(self.processes):  # a daemon that was started here was first, and is last
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(3)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            try:
                os.killpg(process.pid, signal.SIGKILL)  # a DataLoader's workers need seconds to see that it is gone
            except ProcessLookupError:
                pass
        self._end_daemons()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end_daemons(self):
        """Those that trainers have started; one may be on its way while they end."""
        deadline = time.monotonic() + 3
        while daemons := serving(self.runtime):
            for pid in daemons:
                try:
                    os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)

    # ---- the daemon ----

    def status(self):
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(2)
            control.connect(os.path.join(self.runtime, 'control.sock'))
            control.sendall(b'status\n')
            answer = b''
            while not answer.endswith(b'\n'):
                part = control.recv(65536)
                if not part:
                    break
                answer += part
        return json.loads(answer)

    # ---- what people see ----

    def live(self, text):
        text = text[:self.width - 1]
        if self.tty:
            print('\r' + text.ljust(self.width - 1), end='', flush=True)
        elif time.monotonic() - self.said >= 1:
            self.said = time.monotonic()
            print(text, flush=True)

    def live_end(self):
        if self.tty:
            print('\r' + ' ' * (self.width - 1) + '\r', end='', flush=True)

    def draw(self, per_class, width, height):
        images = os.path.join(self.directory, 'images')
        subprocess.run([os.path.join(self.build, 'tests/support/draw-images'), images, '--per-class', str(per_class),
                        '--size', f'{width}x{height}'], check=True, stdout=subprocess.DEVNULL)
        files = [os.path.join(path, name) for path, _, names in os.walk(images) for name in names]
        size = sum(os.path.getsize(file) for file in files)
        print(f'Drew {len(files)} JPEG images of ten classes, {width} x {height}, {size / 2**20:.1f} MiB.', flush=True)
        return images


def serving(runtime):
    """Processes, daemons or about to become one, that were told to serve a directory."""
    found = []
    for entry in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{entry}/cmdline', 'rb') as file:
                words = file.read().split(b'\0')
        except OSError:
            continue
        if b'pinfeedd' in words[0] and runtime.encode() in words:
            found.append(int(entry))
    return found


def interrupted(number, frame):
    raise SystemExit(128 + number)


def perform(stage, run):
    """Ends what is on the stage, also after a signal."""
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    for number in signals:
        signal.signal(number, interrupted)
    try:
        run(stage)
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        stage.close()
