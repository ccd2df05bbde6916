#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/check itself, where there is no GPU: it runs to its end on the fake, it can fail, it says what is missing.

    test.py BUILD            prints TAP
"""

import importlib.util
import os
import subprocess
import sys

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'check')
NOTHING = 77
NEEDS_GPU = ('kernels', 'torch, device', 'compute-sanitizer')  # rows that are skipped on the fake
NEEDS_TORCH = ('torch',)  # where there is none


def run(build, *options, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ('PINFEED_LIBCUDART', 'PINFEED_FAKE_CUDA')}
    done = subprocess.run([sys.executable, '-B', CHECK, *options, build], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**clean, **environment})
    return done.returncode, done.stdout


def runs_on_the_fake(build):
    code, said = run(build, '--fake')
    may_skip = NEEDS_GPU if importlib.util.find_spec('torch') else NEEDS_GPU + NEEDS_TORCH
    skipped = [line for line in said.splitlines() if ' skipped  ' in line]
    return code == 0 and 'simulated' in said and all(line.startswith(may_skip) for line in skipped), said


def can_fail(build):
    """No slot can be page-locked, and the checks need that."""
    code, said = run(build, '--fake', '--only', 'bytes', PINFEED_FAKE_CUDA='fail=cudaHostRegister:1:2')
    return code == 1 and 'FAILED' in said and 'cudaHostRegister' in said, said


def says_what_is_missing(build):
    """Of a real GPU that may be here nothing is visible."""
    code, said = run(build, CUDA_VISIBLE_DEVICES='')
    return code == NOTHING and said.startswith('nothing can be checked: '), said


def main():
    cases = [runs_on_the_fake, can_fail, says_what_is_missing]
    failed = 0
    print(f'1..{len(cases)}', flush=True)
    for number, case in enumerate(cases, 1):
        good, said = case(sys.argv[1])
        failed += not good
        print(''.join(f'# {line}\n' for line in said.splitlines()), end='')
        print(f'{"ok" if good else "not ok"} {number} - {case.__name__}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
