#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What the code has a table of, and a manual page does not know.

    manuals.py ROOT

Commands, options, members of `status --json`, functions of the library, variables of the environment. That each is explained
well, no program can tell; but one that is new and forgotten stands out. The tables of keys and counters are made from the
code (script/config-docs).
"""

import glob
import os
import re
import sys

FOR_TESTS = re.compile('PINFEED_(TEST|FAKE)_')


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as file:
        return file.read()


def sources(root, *patterns):
    return '\n'.join(read(root, path) for pattern in patterns for path in sorted(glob.glob(pattern, root_dir=root)))


def page(root, name):
    """Without escapes and fonts: `\\_` is _, and *--json* is --json."""
    return re.sub(r'\\(.)', r'\1', read(root, f'docs/man/{name}.scd').replace('*', ''))


def options(text):
    return {'--' + name for name in re.findall(r'\{"([a-z][a-z-]+)", (?:no|required|optional)_argument', text)}


def members(root):
    """Of the objects that status.c and its neighbours make."""
    text = sources(root, 'daemon/status.c', 'daemon/stages.c')
    names = set(re.findall(r'json_object_set_new\(\s*\w+,\s*"([a-z_0-9]+)"', text))
    table = re.sub(r'\\\n\s*', '', read(root, 'daemon/counter-table.h'))
    return names | set(re.findall(r'\bC\("([a-z_0-9]+)"', table))


def expectations(root):
    """(what it is, the names, the page) of each kind."""
    ctl = read(root, 'client/ctl/main.c')
    commands = set(re.findall(r'^        \{"([a-z]+)", "', ctl, re.M))
    yield 'command', commands, 'pinfeedctl.1'
    yield 'option', options(sources(root, 'client/ctl/*.c')), 'pinfeedctl.1'
    yield 'member of status --json', members(root), 'pinfeedctl.1'
    yield 'option', options(read(root, 'daemon/main.c')), 'pinfeedd.8'
    yield 'function', set(re.findall(r'\b(pinfeed_\w+)\(', read(root, 'client/pinfeed.h'))), 'libpinfeed.3'
    variables = set(re.findall(r'getenv\("(PINFEED_\w+)"\)', sources(root, 'client/*.c', 'proto/*.c')))
    yield 'variable', {name for name in variables if not FOR_TESTS.match(name)}, 'libpinfeed.3'


def main(root):
    bad = count = 0
    for what, names, name in expectations(root):
        text = page(root, name)
        if not names:
            print(f'docs/man/{name}.scd: no {what} was found in the code; tests/lint/manuals.py looks in the wrong place')
            bad += 1
        for missing in sorted(one for one in names if not re.search(rf'(?<![\w-]){re.escape(one)}(?![\w-])', text)):
            print(f'docs/man/{name}.scd: says nothing of the {what} {missing}')
            bad += 1
        count += len(names)
    print(f'{count} commands, options, members, functions and variables')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
