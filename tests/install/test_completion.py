# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What bash offers behind pinfeedctl and pinfeedd (client/ctl/completion.bash), asked as bash asks: by the words of the line."""

import os
import re
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, '..', '..')
SCRIPT = os.path.join(TREE, 'client', 'ctl', 'completion.bash')
PINFEEDCTL = os.path.join(os.environ['PINFEED_TEST_BIN'], 'pinfeedctl')
PINFEEDD = os.path.join(os.environ['PINFEED_TEST_BIN'], 'pinfeedd')
SOURCE = '{source: {type: synthetic, samples: 10, features: 1}, batch_size: 2}'
# Bash splits a line at = as well, and says where the cursor is.
ASK = '''
. "$1"; function=$2; shift 2
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
'''


def options_of(*paths):
    """The long options in tables for getopt_long: name, whether it has a value."""
    found = {}
    for path in paths:
        with open(path, encoding='utf-8') as file:
            for name, kind in re.findall(r'\{"([a-z-]+)", (no|required)_argument', file.read()):
                found['--' + name] = kind == 'required'
    return found


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory(prefix='pf-completion-')
        cls.addClassCleanup(work.cleanup)
        cls.runtime = os.path.join(work.name, 'run')
        cls.environment = {**os.environ, 'PINFEED_RUNTIME_DIR': cls.runtime}
        config = os.path.join(work.name, 'pinfeed.yaml')
        with open(config, 'w', encoding='utf-8') as file:
            file.write(f'pipelines: {{train: {SOURCE}, val: {SOURCE}}}\n')
        cls.daemon = subprocess.Popen([PINFEEDCTL, 'run', '--config', config, '--', 'sleep', '60'], env=cls.environment)
        cls.addClassCleanup(cls.end)
        while subprocess.run([PINFEEDCTL, 'status', '--json'], env=cls.environment, capture_output=True, check=False).returncode:
            if cls.daemon.poll() is not None:
                raise AssertionError('there is no daemon')

    @classmethod
    def end(cls):
        cls.daemon.kill()
        cls.daemon.wait()

    def ask(self, *words, function='_pinfeedctl', runtime=None):
        words = (PINFEEDCTL if function == '_pinfeedctl' else PINFEEDD, *words)
        done = subprocess.run(['bash', '-c', ASK, 'bash', SCRIPT, function, *words], check=True, capture_output=True, text=True,
                              env=self.environment if runtime is None else {**os.environ, 'PINFEED_RUNTIME_DIR': runtime})
        self.assertEqual(done.stderr, '')
        return done.stdout.split()

    def commands(self):
        said = subprocess.run([PINFEEDCTL, '--help'], check=True, capture_output=True, text=True).stdout
        return re.findall(r'^  ([a-z]+) ', said.split('commands:')[1].split('\n\n')[0], re.M)

    def test_all_commands(self):
        with open(os.path.join(TREE, 'client', 'ctl', 'main.c'), encoding='utf-8') as file:
            table = re.findall(r'^        \{"([a-z]+)", "', file.read(), re.M)
        self.assertIn('status', table)
        self.assertEqual(self.ask(''), table)
        self.assertEqual(self.commands(), table)
        self.assertEqual(self.ask('pip'), ['pipelines'])

    def test_all_options_of_pinfeedctl(self):
        sources = [os.path.join(TREE, 'client', 'ctl', name) for name in os.listdir(os.path.join(TREE, 'client', 'ctl'))
                   if name.endswith('.c')]
        offered = set(self.ask('-'))
        for command in self.commands():
            offered.update(self.ask(command, '-'))
        self.assertEqual(sorted(offered), sorted(options_of(*sources)))

    def test_all_options_of_pinfeedd(self):
        self.assertEqual(self.ask('', function='_pinfeedd'), sorted(options_of(os.path.join(TREE, 'daemon', 'main.c'))))
        self.assertEqual(self.ask('--back', function='_pinfeedd'), ['--background'])

    def test_the_options_of_one_command(self):
        self.assertEqual(self.ask('status', ''), ['--help', '--json'])
        self.assertEqual(self.ask('status', '--j'), ['--json'])

    def test_pipelines_come_from_the_daemon(self):
        self.assertEqual(self.ask('bench', ''), ['train', 'val'])
        self.assertEqual(self.ask('bench', 't'), ['train'])
        self.assertEqual(self.ask('set', 'workers', ''), ['train', 'val'])
        self.assertEqual(self.ask('set', ''), ['workers'])

    def test_options_with_values_are_no_arguments(self):
        self.assertEqual(self.ask('bench', '--jobs', '3', ''), ['train', 'val'])
        self.assertEqual(self.ask('bench', '--json', ''), ['train', 'val'])
        self.assertEqual(self.ask('digest', '--last-batch', '=', ''), ['short', 'drop', 'pad'])
        self.assertEqual(self.ask('digest', '--last-batch', '=', 'p'), ['pad'])
        self.assertEqual(self.ask('digest', '--last-batch', '=', 'pad', ''), ['train', 'val'])

    def test_the_daemon_that_the_line_names_is_asked(self):
        self.assertEqual(self.ask('-d', self.runtime, 'bench', '', runtime='/nonexistent'), ['train', 'val'])
        self.assertEqual(self.ask('--runtime-dir', '=', self.runtime, 'bench', '', runtime='/nonexistent'), ['train', 'val'])
        self.assertEqual(self.ask('-d', '/nonexistent', 'bench', ''), [])

    def test_files_and_commands(self):
        self.assertEqual(self.ask('inspect', SCRIPT[:-2]), [SCRIPT])
        self.assertEqual(self.ask('peek', 'train', '--out', SCRIPT[:-2]), [SCRIPT])
        self.assertEqual(self.ask('--config', SCRIPT[:-2], function='_pinfeedd'), [SCRIPT])
        self.assertIn('env', self.ask('run', '--linger', '3', '--', 'env'))
        self.assertEqual(self.ask('run', '--', 'env', SCRIPT[:-2]), [SCRIPT])
        self.assertEqual(self.ask('nothing', ''), ['--help'])
