#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this directory and prints TAP, a line a case. Names on the command line choose cases, as for unittest;
--timed those of the files that measure time or memory and want the machine to themselves, --untimed all others.

A case that needs torch or NumPy says that it is skipped where they are not.
"""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'support'))

from tap import run

TIMED = ('test_dataloader_faults', 'test_gpu', 'test_memory', 'test_process', 'test_ranks')


def chosen(arguments):
    """The names that these arguments mean."""
    if arguments == ['--timed']:
        return TIMED
    names = sorted(name[:-3] for name in os.listdir(HERE) if name.startswith('test_') and name.endswith('.py'))
    return [name for name in names if name not in TIMED] if arguments == ['--untimed'] else arguments or names


def main():
    sys.path.insert(0, HERE)
    return run(unittest.TestLoader().loadTestsFromNames(chosen(sys.argv[1:])))


if __name__ == '__main__':
    sys.exit(main())
