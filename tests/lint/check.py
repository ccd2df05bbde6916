#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What no ready-made linter knows about this tree. Reads file names, one a line, from standard input.

    check.py ROOT layout | functions | text < FILES
    check.py ROOT symbols LIBRARY

Prints a line "PATH:LINE: WORDS" for each breach and a last line of figures; exits 1 if there was a breach.
"""

import os
import re
import statistics
import subprocess
import sys

FUNCTION_LINES_MAX = 120
FILE_LINES_ARGUE = 600


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as file:
        return file.read()


# ---- layout ----

def read_law(root):
    law = {}
    for line in read(root, 'tests/lint/layout').splitlines():
        line = line.split('#')[0].strip()
        if line:
            room, _, allowed = line.partition(':')
            law[room.strip()] = allowed.split()
    return law


def room_of(law, path):
    """The longest room that begins the path, or None."""
    directory = os.path.dirname(path)
    while directory and directory not in law:
        directory = os.path.dirname(directory)
    return directory or None


def check_layout(root, files):
    law = read_law(root)
    includes = 0
    for path in files:
        if not path.endswith(('.c', '.h')):
            continue
        room = room_of(law, path)
        if room is None:
            yield path, 1, 'belongs to no room of tests/lint/layout'
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if not match:
                continue
            includes += 1
            header = match.group(1)
            if not os.path.exists(os.path.join(root, header)):
                yield path, number, f'"{header}" is no path from the root of the tree'
            elif not allowed(law, room, header):
                yield path, number, f'{room} may not include "{header}" (tests/lint/layout)'
    return f'{includes} includes within the tree'


def allowed(law, room, header):
    target = room_of(law, header)
    what = law[room]
    return '*' in what or target == room or target in what or header in what


# ---- functions ----

def strip_c(text):
    """The text with comments, strings and preprocessor lines blanked, lines kept."""
    def blank(match):
        token = match.group(0)
        return re.sub(r'[^\n]', ' ', token) if token[0] in '/#"\'' else token

    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    text = re.sub(pattern, blank, text, flags=re.S)
    return re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', blank, text, flags=re.M)


def functions(text):
    """(name, first line, lines) of each function: what has a `(` before its brace and no `=`."""
    depth = 0
    head, head_line, start, name = '', 1, 0, None
    line = 1
    for char in strip_c(text):
        if char == '\n':
            line += 1
        if depth == 0:
            if char in ';}':
                head = ''
                continue
            if char != '{' and (head or not char.isspace()):
                if not head:
                    head_line = line
                head += char
        if char == '{':
            if depth == 0:
                match = re.search(r'(\w+)\s*\(', re.sub(r'__attribute__\s*\(\(.*?\)\)', '', head, flags=re.S))
                if match and match.group(1) in ('START_TEST', 'START_TEST_'):
                    match = re.search(r'\(\s*(\w+)', head)
                name = match.group(1) if match and '=' not in head else None
                start = head_line
            depth += 1
        elif char == '}':
            depth = max(0, depth - 1)
            if depth == 0:
                if name:
                    yield name, start, line - start + 1
                head, name = '', None


def check_functions(root, files):
    lengths, sizes = [], []
    for path in files:
        if not path.endswith('.c'):
            continue
        text = read(root, path)
        sizes.append((text.count('\n'), path))
        for name, line, length in functions(text):
            lengths.append(length)
            if length > FUNCTION_LINES_MAX:
                yield path, line, f'{name} has {length} lines, over {FUNCTION_LINES_MAX}'
    for size, path in sizes:
        if size > FILE_LINES_ARGUE:
            print(f'note: {path} has {size} lines, over {FILE_LINES_ARGUE}: argue for it or split it')
    if not lengths:
        return 'no function'
    lengths.sort()
    return (f'{len(lengths)} functions: median {statistics.median_low(lengths)} lines, '
            f'p90 {lengths[len(lengths) * 9 // 10]}, longest {lengths[-1]}; '
            f'{len(sizes)} .c files: median {statistics.median_low(sizes)[0]}, longest {max(sizes)[0]}')


# ---- text ----

SPDX = ('SPDX-FileCopyrightText: The pinfeed authors', 'SPDX-License-Identifier: Apache-2.0')
WITHOUT_SPDX = ('.md', '.map', 'LICENSE', '.clang-format', '.editorconfig', '.gitignore', 'meson.build',
                'meson_options.txt', '.svg', '.json', 'debian/source/format')
NO_TEXT = re.compile(r'^tests/fuzz/corpus/|\.png$')
# Spelt in halves, so that this file does not breach its own rule.
UNFINISHED = re.compile(r'\b(TO' r'DO|FIX' r'ME|X' r'XX)\b')


def check_text(root, files):
    for path in files:
        if NO_TEXT.search(path):
            continue
        text = read(root, path)
        lines = text.split('\n')
        if not path.endswith(WITHOUT_SPDX):
            for wanted in SPDX:
                if not any(wanted in line for line in lines[:8]):
                    yield path, 1, f'lacks the line "{wanted}"'
        if path == 'LICENSE':
            continue
        for number, line in enumerate(lines, 1):
            if line != line.rstrip():
                yield path, number, 'has space at the end of the line'
            if '\t' in line and not path.endswith('.scd'):  # where tabs are what indents
                yield path, number, 'has a tab'
            if UNFINISHED.search(line):
                yield path, number, 'says that something is unfinished: finish it or file it'
        if text and not text.endswith('\n'):
            yield path, len(lines), 'does not end in a newline'
    return f'{len(files)} files'


# ---- symbols ----

def check_symbols(library):
    output = subprocess.run(['nm', '-D', '--defined-only', library], check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1].split('@')[0] for line in output.splitlines()]
    for name in names:
        if not name.startswith('pinfeed_'):
            yield library, 0, f'exports {name}'
    if not names:
        yield library, 0, 'exports nothing'
    return f'{len(names)} exported symbols'


def report(check):
    """Runs a check, which yields breaches and returns its figures."""
    breaches = 0
    while True:
        try:
            path, line, words = next(check)
        except StopIteration as end:
            print(end.value)
            return 1 if breaches else 0
        breaches += 1
        print(f'{path}:{line}: {words}')


def main():
    root, what = sys.argv[1], sys.argv[2]
    if what == 'symbols':
        return report(check_symbols(sys.argv[3]))
    files = [line for line in sys.stdin.read().splitlines() if line]
    checks = {'layout': check_layout, 'functions': check_functions, 'text': check_text}
    return report(checks[what](root, files))


if __name__ == '__main__':
    sys.exit(main())
