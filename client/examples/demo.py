#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The demo where torch is not installed: draws images, starts a daemon on them, attaches three trainers in C, shows what
they shared.

    demo.py BUILD

Uses only what a user has: pinfeedd, pinfeedctl, the control socket, and a trainer that links libpinfeed
(train.c beside this file).
"""

import json
import os
import subprocess
import sys
import time

from stage import Stage, perform

EPOCHS = 20
TRAINERS = [('slow', '0.0003', 0), ('right', '0.003', 0), ('fast', '0.03', 1.5)]  # name, learning rate, seconds later

CONFIG = '''\
# What a user writes: where the samples come from, what is done to them, how they are batched.
pipelines:
  scenes:
    source: {{type: imagefolder, path: {images}}}
    transforms:
      - resize: {{size: [32, 32]}}
      - random_horizontal_flip: {{p: 0.5}}
      - normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
    batch_size: 32
    shuffle: true
  article:
    source: {{type: synthetic, samples: 10000, features: 512, delay_us: 100}}
    batch_size: 128
    shuffle: true
    workers: 4
'''


class Demo(Stage):
    def __init__(self, build):
        super().__init__(build)
        self.train = os.path.join(self.build, 'client/examples/train')
        self.together = None  # rows delivered and prepared when the late trainer came

    # ---- the daemon ----

    def start_daemon(self):
        config = os.path.join(self.directory, 'pinfeed.yaml')
        with open(config, 'w', encoding='utf-8') as file:
            file.write(CONFIG.format(images=os.path.join(self.directory, 'images')))
        daemon = self.start('pinfeedd', [os.path.join(self.bin, 'pinfeedd'), '--config', config,
                                         '--runtime-dir', self.runtime])
        deadline = time.monotonic() + 10
        while 'pinfeedd: ready' not in self.read('pinfeedd.log'):
            if daemon.poll() is not None or time.monotonic() > deadline:
                self.fail('the daemon did not start', 'pinfeedd')
            time.sleep(0.01)
        return daemon

    def pipeline(self, name):
        return next(p for p in self.status()['pipelines'] if p['name'] == name)

    # ---- the trainers ----

    def train_one(self, name, rate, pipeline, epochs):
        return self.start(name, [self.train, '--runtime-dir', self.runtime, '--epochs', str(epochs), '--lr', rate,
                                 '--name', name, '--json', pipeline])

    def result(self, process):
        if process.wait() != 0:
            self.fail(f'trainer {process.demo_name} ended with {process.returncode}', process.demo_name, 'pinfeedd')
        return json.loads(self.read(process.demo_name + '.out').strip().splitlines()[-1])

    def trainers(self):
        """Runs all three; returns their results and the status taken when all of them were there."""
        print(f'Three trainers, {EPOCHS} epochs each, one pipeline; the third comes {TRAINERS[2][2]} s later.\n')
        began = time.monotonic()
        waiting, running, picture = list(TRAINERS), [], None
        while waiting or any(process.poll() is None for process in running):
            while waiting and time.monotonic() - began >= waiting[0][2]:
                name, rate, late = waiting.pop(0)
                if late:
                    pipeline = self.pipeline('scenes')
                    self.together = pipeline['rows_delivered'], pipeline['rows_prepared']
                running.append(self.train_one(name, rate, 'scenes', EPOCHS))
            status = self.status()
            jobs = [job for job in status['jobs'] if job['state'] == 'attached']
            if len(jobs) == len(TRAINERS) and all(job['batches'] > 0 for job in jobs):
                picture = picture or self.ask('status')
            self.live(self.line(time.monotonic() - began, status, jobs))
            time.sleep(0.1)
        self.live_end()
        return [self.result(process) for process in running], picture

    def ask(self, *what):
        return subprocess.run([os.path.join(self.bin, 'pinfeedctl'), '--runtime-dir', self.runtime, *what],
                              capture_output=True, text=True, check=True).stdout

    @staticmethod
    def line(seconds, status, jobs):
        pipeline = status['pipelines'][0]
        places = '   '.join(f'{job["name"]} {job["epoch"] + 1}/{EPOCHS} {job["row"]:>4}'
                            for job in sorted(jobs, key=lambda job: job['id']))
        return (f'{seconds:5.1f} s   prepared {pipeline["rows_prepared"]:>6}   '
                f'delivered {pipeline["rows_delivered"]:>6}   {places}')


def table(results):
    head = f'{"trainer":<10}{"rate":>8}{"loss":>9}{"accuracy":>10}{"rows":>8}{"seconds":>9}{"first batch":>14}'
    print(head + '\n' + '-' * len(head))
    for (name, rate, _), got in zip(TRAINERS, results):
        print(f'{name:<10}{rate:>8}{got["loss"]:>9.3f}{100 * got["accuracy"]:>8.1f} %{got["rows"]:>8}'
              f'{got["seconds"]:>9.2f}{got["first_batch_ms"]:>11.1f} ms')


def shared(who, delivered, prepared):
    print(f'{who}: {delivered} rows delivered, {prepared} prepared, each used {delivered / max(prepared, 1):.2f} times.')


def run(demo):
    demo.draw(40, 320, 240)
    demo.start_daemon()
    results, picture = demo.trainers()
    pipeline = demo.pipeline('scenes')
    print('While they ran, `pinfeedctl status` said:\n')
    print(picture or '(they were too quick to be seen together)')
    table(results)
    print()
    shared('By the first two, until the third came', *demo.together)
    shared('By all three', pipeline['rows_delivered'], pipeline['rows_prepared'])
    print('(The third began at the first epoch, so what it had missed was prepared again.)\n')

    print("The article's workload: 10,000 samples of 512 features that take 100 us each; batch 128, two epochs, 4 workers.")
    article = demo.result(demo.train_one('article', '0.001', 'article', 2))
    print(f'{article["rows"]} rows in {article["seconds"]:.2f} s: {article["rows"] / article["seconds"]:,.0f} rows/s, '
          f'first batch after {article["first_batch_ms"]:.1f} ms.')


if __name__ == '__main__':
    perform(Demo(sys.argv[1]), run)
