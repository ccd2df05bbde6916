#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Four learning rates at once on one machine: four ordinary scripts, begun some seconds apart, and one preparation.

    sweep.py TRAIN VALIDATION [OPTION OF train_images.py...]
"""

import os
import subprocess
import sys
import time

import pinfeed

RATES = [0.003, 0.01, 0.03, 0.1]
APART_S = 3


def main():
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'train_images.py')
    jobs = []
    for rate in RATES:
        jobs.append(subprocess.Popen([sys.executable, script, *sys.argv[1:], '--rate', str(rate)]))
        time.sleep(APART_S)
    failed = [rate for rate, job in zip(RATES, jobs) if job.wait() != 0]
    for pipeline in pinfeed.status()['pipelines']:
        print(f"{pipeline['name']}: {pipeline['rows_prepared']} rows prepared, {pipeline['rows_delivered']} delivered")
    sys.exit(f'failed: {failed}' if failed else 0)


if __name__ == '__main__':
    main()
