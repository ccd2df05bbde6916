#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Random cases, played by the real code and held against the naive rules of positions.py.

    check.py --player PROGRAM [--runs N] [--seed N]
    check.py --player PROGRAM --case 'LINE'

A run is one case: several jobs that share a ring, stop, resume and go elsewhere. Without --runs there are 100,000, a
tenth of them if PINFEED_TEST_QUICK is set. The first difference is printed with the case's line, which --case plays
again, showing both sides. Prints TAP; exits 1 if there was a difference.
"""

import argparse
import doctest
import os
import subprocess
import sys
import tempfile

import cases
import positions

RUNS = 100000
AT_ONCE = 1000  # cases of a process, so that one plays while another's answers are compared
PATIENCE = 10 * int(os.environ.get('PINFEED_TEST_SLOWDOWN', '1'))  # seconds; a process needs less than one


class Difference(Exception):
    pass


class Play:
    """A player at work on some cases. Through files, so that nobody waits for anybody."""

    def __init__(self, player, lines):
        self.lines = lines
        self.files = [tempfile.TemporaryFile('w+') for _ in range(3)]
        self.files[0].write('\n'.join(lines) + '\n')
        self.files[0].seek(0)
        self.process = subprocess.Popen([player], stdin=self.files[0], stdout=self.files[1], stderr=self.files[2])

    def stop(self):
        self.process.kill()
        self.process.wait()
        for file in self.files:
            file.close()

    def end(self):
        """(the answers as far as it came, how it failed or None)"""
        failure = None
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            failure = f'the player did not end within {PATIENCE} s'
        self.files[1].seek(0)
        self.files[2].seek(0)
        answers = self.files[1].read().split('.\n')[:-1]
        if self.process.wait() != 0 and not failure:
            failure = f'the player ended with status {self.process.returncode}: {self.files[2].read()[-2000:]}'
        elif len(answers) != len(self.lines) and not failure:
            failure = f'the player answered {len(answers)} of {len(self.lines)} cases'
        self.stop()
        return answers, failure


def compare(drawn, lines, answers, failure):
    for case, line, got in zip(drawn, lines, answers):
        try:
            wanted = cases.answer(case)
        except AssertionError as broken:
            raise Difference(f"--case '{line}'\nthe model itself breaks a law: {broken}") from broken
        if got != wanted:
            raise Difference(f"--case '{line}'\n{show(wanted, got)}")
    if failure:
        line = lines[min(len(answers), len(lines) - 1)]
        raise Difference(f"--case '{line}'\n{failure}")


def show(wanted, got):
    """The first line that differs."""
    for number, (one, other) in enumerate(zip(wanted.splitlines(), got.splitlines()), 1):
        if one != other:
            return f'line {number} of the answer:\nmodel: {one}\ncode:  {other}'
    return f'the answer should have {len(wanted.splitlines())} lines, and has {len(got.splitlines())}'


def run(player, runs, seed, at_once=AT_ONCE):
    """Plays that many cases, the next ones while some are compared. Raises Difference."""
    drawer = cases.Drawer(seed)
    waiting = []
    try:
        while runs > 0 or waiting:
            while runs > 0 and len(waiting) < 2:
                drawn = [drawer.case() for _ in range(min(runs, at_once))]
                waiting.append((drawn, Play(player, [cases.write(case) for case in drawn])))
                runs -= len(drawn)
            drawn, play = waiting.pop(0)
            compare(drawn, play.lines, *play.end())
    finally:
        for _, play in waiting:
            play.stop()


def check_small():
    """The rules keep their laws in everything small."""
    for samples in range(1, 13):
        for world_size in range(1, 6):
            for batch_size in range(1, 6):
                for last_batch in ('short', 'drop', 'pad'):
                    plan = positions.Plan(samples, world_size, batch_size, last_batch)
                    for base in range(samples):
                        positions.check_laws(plan, base)


def replay(player, line):
    case = cases.read(line)
    wanted = cases.answer(case)
    answers, failure = Play(player, [cases.write(case)]).end()
    got = ''.join(answers)
    print(f'model:\n{wanted}code:\n{got}{failure or ("the same" if got == wanted else "different")}')
    return 0 if got == wanted and not failure else 1


def say(number, words, check, *arguments):
    """One line of TAP. Returns whether it passed."""
    try:
        check(*arguments)
    except (AssertionError, Difference) as error:
        print(f'not ok {number} - {words}')
        print('\n'.join(f'# {line}' for line in str(error).splitlines()), flush=True)
        return False
    print(f'ok {number} - {words}', flush=True)
    return True


def check_examples():
    assert doctest.testmod(positions).failed == 0, 'the examples of positions.py are not what it gives'


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument('--player', required=True)
    parser.add_argument('--runs', type=int, default=RUNS // (10 if os.environ.get('PINFEED_TEST_QUICK') else 1))
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--case')
    options = parser.parse_args()
    if options.case:
        return replay(options.player, options.case)
    print('1..3')
    passed = [
        say(1, 'the examples of the model', check_examples),
        say(2, 'the model keeps its laws', check_small),
        say(3, f'{options.runs} runs of the code are what the model says',
            run, options.player, options.runs, options.seed),
    ]
    return 0 if all(passed) else 1


if __name__ == '__main__':
    sys.exit(main())
