#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What `meson install` leaves on a disk and a shell makes of it: runs the tests of this directory and prints TAP. Names on the
command line choose cases, as for unittest. meson.build says in variables what the build is like."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'support')]

from tap import run

if __name__ == '__main__':
    sys.exit(run(unittest.TestLoader().loadTestsFromNames(sys.argv[1:] or ('test_install', 'test_completion'))))
