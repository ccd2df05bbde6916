#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this directory and prints TAP, a line a case. Names on the command line choose cases, as for unittest;
--timed those of the files that measure time or memory and want the machine to themselves, --untimed all others.

A case that needs torch or NumPy says that it is skipped where they are not.
"""

import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TIMED = ('test_dataloader_faults', 'test_gpu', 'test_memory', 'test_process', 'test_ranks')


class Tap(unittest.TestResult):
    """One line a case, its trace before it."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.wrong = []  # of its subtests

    def stopTest(self, test):
        super().stopTest(test)
        if self.wrong:  # then nothing else is said of the case
            self._say(False, test, *self.wrong)

    def _say(self, good, test, *comments):
        self.number += 1
        for comment in comments:
            for line in str(comment).splitlines():
                print(f'# {line}')
        print(f"{'ok' if good else 'not ok'} {self.number} - {test.id()} ({time.monotonic() - self.began:.2f} s)", flush=True)

    def addSuccess(self, test):
        self._say(True, test)

    def addSkip(self, test, reason):
        self._say(True, test, f'skipped: {reason}')

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.wrong.append(f'{subtest._subDescription()}:\n{self._exc_info_to_string(error, test)}')

    def addError(self, test, error):
        super().addError(test, error)
        self._say(False, test, self._exc_info_to_string(error, test))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._say(False, test, self._exc_info_to_string(error, test))


def chosen(arguments):
    """The names that these arguments mean."""
    if arguments == ['--timed']:
        return TIMED
    names = sorted(name[:-3] for name in os.listdir(HERE) if name.startswith('test_') and name.endswith('.py'))
    return [name for name in names if name not in TIMED] if arguments == ['--untimed'] else arguments or names


def main():
    sys.path.insert(0, HERE)
    suite = unittest.TestLoader().loadTestsFromNames(chosen(sys.argv[1:]))
    result = Tap()
    print(f'1..{suite.countTestCases()}', flush=True)
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main())
