#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What a scrape of the metrics takes of the daemon's loop, while it has much to tell: pipelines, jobs and workers in
numbers. The time is what the daemon counts itself, pinfeed_scrape_seconds_total; it is time on the clock, so the
processors should not be busy with anything else.

    scrape.py BIN [SCRAPES]
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

PIPELINES, JOBS, WORKERS = 10, 100, 64
SLOTS = 64
SCRAPES = 200
START_S = 60


def configuration():
    lines = ['metrics_listen: "127.0.0.1:0"', 'pipelines:']
    for i in range(PIPELINES):
        workers = WORKERS // PIPELINES + (i < WORKERS % PIPELINES)
        lines += [f'  pipeline_{i}:',
                  '    source: {type: synthetic, mode: ramp, samples: 1000000, bytes: 64, delay_us: 20000}',
                  f'    batch_size: 8\n    slots: {SLOTS}\n    workers: {workers}']
    return '\n'.join(lines) + '\n'


def scrape(address):
    with urllib.request.urlopen(address, timeout=START_S) as answer:
        return answer.read().decode()


def value(text, name):
    return float(re.search(rf'^{re.escape(name)} (\S+)$', text, re.MULTILINE).group(1))


def total(text, name):
    return sum(float(number) for number in re.findall(rf'^{name}{{[^}}]*}} (\S+)$', text, re.MULTILINE))


def wait_for(condition, what):
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f'{what}: not within {START_S} s')
        time.sleep(0.1)


def measure(programs, scrapes):
    """(seconds of the loop for each scrape, bytes, the last text)."""
    directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
    runtime, log = os.path.join(directory, 'run'), os.path.join(directory, 'log')
    with open(os.path.join(directory, 'c.yaml'), 'w', encoding='utf-8') as file:
        file.write(configuration())
    children = []
    try:
        with open(log, 'w', encoding='utf-8') as out:
            children.append(subprocess.Popen([os.path.join(programs, 'pinfeedd'), '--config', file.name, '-d', runtime],
                                             stdout=out, stderr=out))
        wait_for(lambda: 'ready: ' in open(log, encoding='utf-8').read(), 'the daemon is ready')
        address = re.search(r'http://\S+', open(log, encoding='utf-8').read()).group(0)
        children += [subprocess.Popen([os.path.join(programs, 'pinfeedctl'), '-d', runtime, 'bench', f'pipeline_{i}',
                                       '--jobs', str(JOBS // PIPELINES), '--seconds', '300'], stdout=subprocess.DEVNULL)
                     for i in range(PIPELINES)]
        wait_for(lambda: total(scrape(address), 'pinfeed_jobs') == JOBS
                 and total(scrape(address), 'pinfeed_workers') == WORKERS, f'{JOBS} jobs and {WORKERS} workers')
        time.sleep(2)
        before = scrape(address)
        for _ in range(scrapes):
            after = scrape(address)
        took, n = (value(after, name) - value(before, name)
                   for name in ('pinfeed_scrape_seconds_total', 'pinfeed_scrapes_total'))
        return took / n, len(after), after
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()
        shutil.rmtree(directory)


def report(programs, scrapes):
    took, size, text = measure(programs, scrapes)
    longest = value(text, 'pinfeed_loop_turn_longest_seconds')
    print(f'Metrics of {PIPELINES} pipelines, {JOBS} jobs, {WORKERS} workers and {PIPELINES * SLOTS} slots, {size:,} bytes: '
          f'{1000 * took:.2f} ms of the loop a scrape (budget 5), over {scrapes}; longest turn since the start '
          f'{1000 * longest:.1f} ms\n')


if __name__ == '__main__':
    report(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else SCRAPES)
