# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""unittest that prints TAP, a line a case, as the tests in C do."""

import time
import unittest


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


def run(suite):
    """Runs all of it: what main returns."""
    result = Tap()
    print(f'1..{suite.countTestCases()}', flush=True)
    suite.run(result)
    return 0 if result.wasSuccessful() else 1
