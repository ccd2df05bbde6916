#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""tests/machine/run.py [NAME...]: installs the packages in dist/ in a Debian that has booted (machine.py), and prints TAP, a line
a case. Names choose cases, as for unittest. Needs root, mmdebstrap and systemd-nspawn; script/test --system brings all that.
"""

import os
import signal
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, '..', '..')
BUILD = os.path.join(TREE, os.environ.get('PINFEED_BUILD', 'build'))
CASES = ('test_install', 'test_service', 'test_surroundings', 'test_users', 'test_prometheus')

sys.path[:0] = [HERE, os.path.join(HERE, '..', 'support')]

from tap import run


def main():
    if os.geteuid() != 0:
        sys.exit('tests/machine/run.py: needs root, for mounts and namespaces')
    os.environ.setdefault('PINFEED_TEST_PACKAGES', os.path.join(TREE, 'dist'))
    os.environ.setdefault('PINFEED_TEST_TRAINER', os.path.join(BUILD, 'tests', 'machine', 'trainer'))
    os.environ.setdefault('PINFEED_TEST_ROOTS', os.path.join(BUILD, 'machine'))
    os.environ.setdefault('PINFEED_TEST_BIN', os.path.join(BUILD, 'install', 'bin'))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which unittest takes for no failure of a case
    return run(unittest.TestLoader().loadTestsFromNames(sys.argv[1:] or CASES))


if __name__ == '__main__':
    sys.exit(main())
