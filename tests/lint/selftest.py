#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The linter's own test: plants one breach of each kind in a small tree, and expects exactly that to be found.

    selftest.py ROOT
"""

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(sys.argv[1])
CHECK = os.path.join(ROOT, 'tests/lint/check.py')
HEAD = '/* SPDX-FileCopyrightText: The pinfeed authors */\n/* SPDX-License-Identifier: Apache-2.0 */\n'
BODY = '        call("}", \'{\'); /* } */\n'

CLEAN = {
    'base/a.h': HEAD,
    'base/a.c': HEAD + '#include "base/a.h"\n',
    'proto/p.c': HEAD + '#include "base/a.h"\n',
    'daemon/d.h': HEAD,
    'daemon/worker/source.h': HEAD,
    'daemon/worker/transform.h': HEAD,
    'daemon/worker/sources/s.c': HEAD + '#include "daemon/worker/source.h"\n',
    'client/pinfeed.h': HEAD,
    'client/private.h': HEAD,
    'client/ctl/main.c': HEAD + '#include "client/pinfeed.h"\n#include <stdio.h>\n',
    'tests/unit/t.c': HEAD + '#include "daemon/d.h"\n',
    'tests/fuzz/corpus/jpeg/one': '\0\t \n',
    'base/long.c': HEAD + 'static const char *table[] = {\n' + '        "row",\n' * 200 + '};\n'
                   + 'struct s {\n' + '        int a;\n' * 200 + '};\n'
                   + 'int f(int a,\n      int b) {\n' + BODY * 117 + '}\n',
}

# check, file, what to put there, words that must come
BREACHES = [
    ('layout', 'base/a.c', HEAD + '#include "proto/p.h"\n', 'is no path'),
    ('layout', 'base/a.c', HEAD + '#include "daemon/d.h"\n', 'base may not include "daemon/d.h"'),
    ('layout', 'proto/p.c', HEAD + '#include "client/pinfeed.h"\n', 'proto may not include'),
    ('layout', 'daemon/d.c', HEAD + '#include "daemon/worker/source.h"\n', 'daemon may not include'),
    ('layout', 'daemon/worker/sources/s.c', HEAD + '#include "daemon/worker/transform.h"\n',
     'daemon/worker/sources may not include'),
    ('layout', 'daemon/worker/transforms/t.c', HEAD + '#include "daemon/worker/source.h"\n',
     'daemon/worker/transforms may not include'),
    ('layout', 'client/c.c', HEAD + '#include "daemon/d.h"\n', 'client may not include'),
    ('layout', 'client/ctl/main.c', HEAD + '#include "client/private.h"\n', 'client/ctl may not include'),
    ('layout', 'elsewhere/e.c', HEAD, 'belongs to no room'),
    ('functions', 'base/b.c', HEAD + 'int g(void) {\n' + BODY * 119 + '}\n', 'g has 121 lines'),
    ('functions', 'base/b.c', HEAD + 'START_TEST(t)\n{\n' + BODY * 119 + '}\nEND_TEST\n', 't has 122 lines'),
    ('text', 'base/b.c', '/* SPDX-License-Identifier: Apache-2.0 */\n', 'lacks the line'),
    ('text', 'base/b.c', HEAD + 'int a; \n', 'space at the end'),
    ('text', 'base/b.c', HEAD + '\tint a;\n', 'has a tab'),
    ('text', 'base/b.c', HEAD + '/* TO' + 'DO */\n', 'unfinished'),
    ('text', 'base/b.c', HEAD + 'int a;', 'newline'),
]


def plant(tree, files):
    for path, text in files.items():
        path = os.path.join(tree, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)


def run(tree, check, files):
    result = subprocess.run([sys.executable, CHECK, tree, check], input='\n'.join(sorted(files)), capture_output=True,
                            text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def try_symbols(tree, source):
    """The check on a library made from `source`."""
    plant(tree, {'lib.c': source})
    library = os.path.join(tree, 'lib.so')
    subprocess.run(['cc', '-shared', '-fPIC', '-nostdlib', '-o', library, os.path.join(tree, 'lib.c')], check=True)
    result = subprocess.run([sys.executable, CHECK, tree, 'symbols', library], capture_output=True, text=True,
                            check=False)
    return result.returncode, result.stdout + result.stderr


def try_manuals(tree, page, word):
    """The check of the manual pages, on a copy of the tree whose `page` has lost `word`."""
    for room in ('client', 'daemon', 'proto', 'docs/man'):
        shutil.copytree(os.path.join(ROOT, room), os.path.join(tree, room), ignore=shutil.ignore_patterns('python', 'worker'))
    path = os.path.join(tree, 'docs/man', page)
    with open(path, encoding='utf-8') as file:
        text = file.read()
    plant(tree, {os.path.join('docs/man', page): text.replace(word, '')})
    result = subprocess.run([sys.executable, os.path.join(ROOT, 'tests/lint/manuals.py'), tree], capture_output=True, text=True,
                            check=False)
    return result.returncode, result.stdout + result.stderr


def main():
    failed = tried = 0

    def expect(title, wanted_code, wanted_words, got):
        nonlocal failed, tried
        tried += 1
        if got[0] != wanted_code or wanted_words not in got[1]:
            failed += 1
            print(f'{title}: expected exit {wanted_code} and "{wanted_words}", got exit {got[0]} and:\n{got[1]}')

    with tempfile.TemporaryDirectory(prefix='pf-lint-') as tree:
        plant(tree, CLEAN)
        os.makedirs(os.path.join(tree, 'tests/lint'))
        shutil.copy(os.path.join(ROOT, 'tests/lint/layout'), os.path.join(tree, 'tests/lint/layout'))
        for check in ('layout', 'functions', 'text'):
            expect(f'{check} of a clean tree', 0, '', run(tree, check, CLEAN))
        for check, path, text, words in BREACHES:
            plant(tree, {path: text})
            expect(f'{check}: {words}', 1, f'{path}:', run(tree, check, {**CLEAN, path: text}))
            expect(f'{check}: {words}', 1, words, run(tree, check, {**CLEAN, path: text}))
            if path in CLEAN:
                plant(tree, {path: CLEAN[path]})
            else:
                os.remove(os.path.join(tree, path))
        expect('symbols, clean', 0, '1 exported', try_symbols(tree, 'void pinfeed_a(void); void pinfeed_a(void) {}\n'))
        expect('symbols, foreign', 1, 'exports other',
               try_symbols(tree, 'void pinfeed_a(void) {}\nvoid other(void) {}\n'))

    for page, word in (('pinfeedctl.1.scd', 'drain'), ('pinfeedctl.1.scd', 'rows_prepared'), ('pinfeedd.8.scd', '--linger'),
                       ('libpinfeed.3.scd', 'pinfeed_next_timeout'), ('libpinfeed.3.scd', 'PINFEED_NO_THREAD')):
        with tempfile.TemporaryDirectory(prefix='pf-lint-') as tree:
            expect(f'manuals without {word}', 1, word, try_manuals(tree, page, word))

    print(f'{tried} self-tests')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
