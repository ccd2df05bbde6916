#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Does what a reader of the README does first, with the package that is installed beside this interpreter.

    quick_start.py [--bare] README IMAGES

The script is the Python block after the line `<!-- quick start -->`; the path that it reads from is replaced by IMAGES.
Twice: by itself, so that its loader starts the daemon, and under `pinfeedctl run --linger 1`. It must take less than a
minute, by programs of this environment only, and leave nothing behind.

--bare: nothing else is on this machine, and nobody. All libraries but the C library and zlib, without which there is
no pip, must be the wheel's, with their licences, and nothing of this user may stay in /tmp and /dev/shm.
"""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time

import pinfeed

LIMIT_S = 60
END_S = 15  # for a daemon to end, also after a linger of 1
BIN = os.path.dirname(sys.executable)
PYTHON = sys.executable
CTL = os.path.join(BIN, 'pinfeedctl')
NOT_OURS = re.compile(r'(ld-linux.*|lib(c|m|dl|rt|pthread|z))\.so(\.\d+)+')
STAYS = {'pinfeedd.log', 'start.lock'}  # of a runtime directory, as pinfeedd(8) says


def expect(truth, words):
    if not truth:
        sys.exit('quick_start.py: ' + words)


# ---- the script ----

def write_script(readme, images):
    with open(readme, encoding='utf-8') as file:
        block = re.search(r'^<!-- quick start -->\s+```python\n(.*?)^```$', file.read(), re.S | re.M)
    expect(block, f'{readme} has no block of Python after <!-- quick start -->')
    text = re.sub(r'''(["']path["']: *)["'][^"']*["']''', lambda match: match[1] + repr(images), block[1])
    with open('quick_start.py', 'w', encoding='utf-8') as file:
        file.write(text)


def run_alone():
    """By a loader that starts the daemon; the seconds that it took."""
    began = time.monotonic()
    subprocess.run([PYTHON, 'quick_start.py'], check=True, timeout=LIMIT_S)
    return time.monotonic() - began


def run_with_linger():
    """Under pinfeedctl run; the daemon's pid, asked for while it stays."""
    command = [CTL, 'run', '--linger', '1', '--', '/bin/sh', '-c', '"$0" quick_start.py && "$1" status --json', PYTHON, CTL]
    output = subprocess.run(command, check=True, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])['pid']


# ---- what did it ----

def status():
    people = subprocess.run([CTL, 'status'], check=True, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True).stdout
    expect(people.startswith('pinfeedd '), f'pinfeedctl status said {people!r}')
    return pinfeed.status()


def check_programs(daemon, bare):
    """The daemon and its workers are this environment's, and so is what they have loaded."""
    expect(daemon['workers'], 'the daemon has no workers, so nothing is known of them')
    for pid in [daemon['pid']] + [worker['pid'] for worker in daemon['workers']]:
        program = os.readlink(f'/proc/{pid}/exe')
        expect(program.startswith(sys.prefix + '/'), f'process {pid} is {program}, not of {sys.prefix}')
        for library in loaded(pid) if bare else ():
            expect(library.startswith(sys.prefix + '/') or NOT_OURS.fullmatch(os.path.basename(library)),
                   f'{program} has loaded {library}, which is not of {sys.prefix}')


def loaded(pid):
    with open(f'/proc/{pid}/maps', encoding='utf-8') as maps:
        return {line.split(maxsplit=5)[5].strip() for line in maps if '.so' in line}


def check_versions(daemon):
    versions = {subprocess.run([os.path.join(BIN, name), '--version'], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.split()[1] for name in ('pinfeedd', 'pinfeedctl')}
    versions |= {importlib.metadata.version('pinfeed'), pinfeed.__version__, daemon['version']}
    expect(len(versions) == 1, f'the package, its programs and the daemon have versions {sorted(versions)}')


def check_licences(bare):
    """What the metadata names is there, and each library has a line that names its package, and that one's licence."""
    package = importlib.metadata.distribution('pinfeed')
    texts = {name: package.read_text('licenses/' + name) for name in package.metadata.get_all('License-File')}
    expect(all(texts.values()) and 'LICENSE' in texts, f'of the licences {sorted(texts)} some are empty or missing')
    if not bare:
        return
    lines = texts['bundled/LIBRARIES'].splitlines()
    owners = dict(line.split()[:2] for line in lines)
    bundled = {re.sub(r'-[0-9a-f]{8}\.so', '.so', file.name) for file in package.files if file.parts[0] == 'pinfeed.libs'}
    expect(bundled == set(owners), f'the wheel has the libraries {sorted(bundled)}, but licences of {sorted(owners)}')
    expect(all('bundled/' + owner in texts for owner in owners.values()), f'not all of {sorted(owners.values())} have licences')


# ---- what is left ----

def await_end(pid, words):
    deadline = time.monotonic() + END_S
    while os.path.exists(f'/proc/{pid}'):
        expect(time.monotonic() < deadline, f'the daemon, pid {pid}, is still there {END_S} s after {words}')
        time.sleep(0.05)


def check_left(bare):
    places = ['/tmp', '/dev/shm'] if bare else [os.path.join(os.environ['XDG_RUNTIME_DIR'], 'pinfeed')]
    left = [os.path.join(directory, name) for place in places for directory, _, names in os.walk(place) for name in names]
    left = [path for path in left if os.lstat(path).st_uid == os.getuid() and os.path.basename(path) not in STAYS]
    expect(not left, f'left behind: {left}')


def end_daemon():
    """If one is there, also when a check has failed."""
    try:
        os.kill(pinfeed.status()['pid'], signal.SIGTERM)
    except pinfeed.NotFound:
        pass


def check(bare):
    seconds = run_alone()
    daemon = status()
    check_programs(daemon, bare)
    check_versions(daemon)
    check_licences(bare)
    end_daemon()
    await_end(daemon['pid'], 'SIGTERM')
    check_left(bare)

    await_end(run_with_linger(), 'its last job, with --linger 1')
    check_left(bare)
    print(f'pinfeed {daemon["version"]}: the quick start took {seconds:.1f} s, daemon included')


def main():
    readme, images = (os.path.abspath(path) for path in sys.argv[-2:])
    write_script(readme, images)
    try:
        check('--bare' in sys.argv)
    finally:
        end_daemon()


if __name__ == '__main__':
    main()
