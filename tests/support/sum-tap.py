#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Sums the test cases of all test programs in meson's testlog.json, or several of them, which themselves count programs. A
file NAME.tap is what one program has said that meson does not run.

A program that was killed, timed out, ended without its plan or ran fewer cases than planned has failed cases, so that
nothing that did not run counts as nothing. Exits 1 if a case failed or none ran.
"""

import json
import os
import re
import sys


def count(program):
    """(passed, failed, skipped, what failed) of one program."""
    output = program.get('stdout') or ''
    passed = len(re.findall(r'^ok \d', output, re.M))
    bad = re.findall(r'^not ok (.*)', output, re.M)
    skipped = min(passed, len(re.findall(r'^# skipped:', output, re.M)))
    plan = re.search(r'^1\.\.(\d+)', output, re.M)
    if not plan:
        bad.append('ended without a plan')
    elif int(plan.group(1)) > passed + len(bad):
        bad += ['was planned and did not run'] * (int(plan.group(1)) - passed - len(bad))
    if not bad and program['result'] not in ('OK', 'EXPECTEDFAIL'):
        bad.append(f'result {program["result"]}, exit status {program["returncode"]}')
    return passed - skipped, skipped, bad


def of_tap(path, text):
    """As meson would tell of it. Its exit status is not known, and says no more than its lines do."""
    return {'name': os.path.basename(path)[:-len('.tap')], 'stdout': text, 'result': 'OK', 'returncode': 0}


def main():
    totals = [0, 0, 0]
    reasons, failures = [], []
    programs = []
    for path in sys.argv[1:]:
        try:
            with open(path, encoding='utf-8') as log:
                programs += [of_tap(path, log.read())] if path.endswith('.tap') else [json.loads(line) for line in log]
        except FileNotFoundError:
            failures.append(f'{path}: no test was run')
            totals[1] += 1
    for program in programs:
        name = program['name'].split(' / ')[-1]
        passed, skipped, bad = count(program)
        totals[0] += passed
        totals[1] += len(bad)
        totals[2] += skipped
        reasons += [f'{name}: {reason}' for reason in re.findall(r'^# (skipped:.*)', program.get('stdout') or '', re.M)]
        failures += [f'{name}: {words}' for words in bad]
    for line in reasons + [f'FAILED {failure}' for failure in failures]:
        print(line)
    print(f'{totals[0]} passed, {totals[1]} failed' + (f', {totals[2]} skipped' if totals[2] else ''))
    return 1 if totals[1] or not totals[0] else 0


if __name__ == '__main__':
    sys.exit(main())
