#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Plants the mistakes of the file `mutants`, one at a time, and expects check.py to find each.

    plant.py --root TREE --libraries LIBRARY... -- COMPILER ARGUMENTS...

The changed copy of a file is linked before the libraries, which thereby lose their own. Prints TAP; exits 1 if a
mistake was not found, or its place is not in the code any more.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import check

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = [os.path.join(HERE, name) for name in ('player.c', 'player-case.c')]
RUNS = 4000
AT_ONCE = 20  # most mistakes show soon, and a player that hangs later in its cases would be waited for


def read_mutants():
    """(what is wrong, file, what stands there, what would)"""
    with open(os.path.join(HERE, 'mutants'), encoding='utf-8') as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith('#')]
    for name, path, old, new in zip(*[iter(lines)] * 4):
        assert name[0] + name[-1] == '[]' and old.startswith('- ') and new.startswith('+ '), f'mutants: {name}'
        yield name[1:-1], path, old[2:], new[2:]


def plant(root, path, old, new, to):
    with open(os.path.join(root, path), encoding='utf-8') as file:
        text = file.read()
    times = text.count(old)
    assert times == 1, f'{path} has the text "{old}" {times} times, not once: change tests/model/mutants'
    with open(to, 'w', encoding='utf-8') as file:
        file.write(text.replace(old, new))


def build(options, path, old, new, work):
    """A player with a mistake in it, or, if `old` is `new`, with none."""
    changed, player = os.path.join(work, 'changed.c'), os.path.join(work, 'player')
    plant(options.root, path, old, new, changed)
    done = subprocess.run([*options.compiler, f'-I{options.root}', changed, *SOURCES, *options.libraries, '-o', player],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, f'it does not compile:\n{done.stderr}'
    return player


def find(options, *mutant):
    """Raises AssertionError unless the mistake is found."""
    with tempfile.TemporaryDirectory() as work:
        player = build(options, *mutant, work)
        try:
            check.run(player, RUNS, options.seed, AT_ONCE)
        except check.Difference as difference:
            for line in str(difference).splitlines():
                print(f'# {line[:300]}')
            return
    raise AssertionError(f'{RUNS} runs did not find it')


def find_nothing(options, path, old, _):
    """The same without a mistake: what is found must not come from how it is built. Raises Difference."""
    with tempfile.TemporaryDirectory() as work:
        check.run(build(options, path, old, old, work), RUNS, options.seed, AT_ONCE)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument('--root', required=True)
    parser.add_argument('--libraries', nargs='+', required=True)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('compiler', nargs='+')
    options = parser.parse_args()
    mutants = list(read_mutants())
    print(f'1..{len(mutants) + 1}')
    passed = [check.say(1, 'nothing is found where nothing is wrong', find_nothing, options, *mutants[0][1:])]
    for number, (name, *mutant) in enumerate(mutants, 2):
        passed.append(check.say(number, f'found: {name}', find, options, *mutant))
    return 0 if all(passed) else 1


if __name__ == '__main__':
    sys.exit(main())
