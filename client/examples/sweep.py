#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Four learning rates at once on one machine: four ordinary scripts, begun some seconds apart, and one preparation.

    sweep.py FOLDER [--make] [--epochs N] [--apart SECONDS]

The scripts give the same pipeline, so they share a daemon and what it prepares. They begin to train when all four are there
(--gather), so that none has missed anything, and see the same images in the same order.
"""

import argparse
import os
import subprocess
import sys
import time

import pinfeed

RATES = [0.003, 0.01, 0.03, 0.1]
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'train_images.py')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder')
    parser.add_argument('--make', action='store_true', help='draw the images if the folder is not there')
    parser.add_argument('--apart', type=float, default=2, help='seconds between the scripts')
    parser.add_argument('--epochs', type=int, default=20)
    return parser.parse_args()


def begin(rate, options):
    return subprocess.Popen([sys.executable, SCRIPT, options.folder, '--epochs', str(options.epochs), '--rate', str(rate),
                             '--gather', str(len(RATES))], stdout=subprocess.PIPE, text=True)


def main():
    options = arguments()
    if options.make and not os.path.exists(options.folder):
        from train_images import make  # once, before four scripts do it at the same time

        make(options.folder)
    jobs = []
    for rate in RATES:
        if jobs:
            time.sleep(options.apart)
        jobs.append(begin(rate, options))
    failed = []
    for rate, job in zip(RATES, jobs):
        output, _ = job.communicate()
        print(f'rate {rate}:', *output.splitlines()[-2:], sep='\n    ')
        if job.returncode != 0:
            failed.append(rate)
    if failed:
        raise SystemExit(f'failed: {failed}')
    for pipeline in pinfeed.status()['pipelines']:  # the daemon is still there: it waits a minute for more jobs
        print(f"{pipeline['name']}: {pipeline['rows_prepared']} rows prepared and {pipeline['rows_delivered']} delivered "
              'since the daemon began')


if __name__ == '__main__':
    main()
