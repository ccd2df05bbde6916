# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Installing: every file is on a list, DESTDIR is kept to, the tree works where it was never meant to be, and uninstalling
leaves nothing."""

import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE_SOURCES = os.path.join(HERE, '..', '..', 'client', 'python', 'pinfeed')
BUILD = os.environ['PINFEED_TEST_BUILD']
PREFIX = os.environ['PINFEED_TEST_PREFIX']
LOG = os.path.join(BUILD, 'meson-logs', 'install-log.txt')
CONFIG = 'pipelines: {rows: {source: {type: synthetic, samples: 1000, features: 4}, batch_size: 100}}\n'


def said(name):
    return os.environ['PINFEED_TEST_' + name]


def below(path):
    """Where the installed things of this path are, seen from the prefix."""
    return os.path.relpath(os.path.join(PREFIX, path), PREFIX)


def expected():
    """What the list says, for this build."""
    places = {'LIBDIR': below(said('LIBDIR')), 'LIBEXEC': below(said('LIBEXEC')), 'VERSION': said('VERSION'),
              'PACKAGE': below(said('PACKAGE'))}
    paths = set()
    with open(os.path.join(HERE, 'files'), encoding='utf-8') as file:
        for line in file:
            condition, _, path = line.split('#')[0].strip().rpartition(': ')
            for word, meaning in places.items():
                path = path.replace(word, meaning)
            if path and (not condition or said({'man': 'MAN', 'python': 'PACKAGE', 'systemd': 'SYSTEMD'}[condition])):
                paths.add(path)
    if said('PACKAGE'):
        paths.update(os.path.join(places['PACKAGE'], name) for name in os.listdir(PACKAGE_SOURCES) if name != '__pycache__')
    return paths


def files(directory):
    """The paths of all that is no directory."""
    return {os.path.relpath(os.path.join(parent, name), directory)
            for parent, _, names in os.walk(directory) for name in names}


def state(directory):
    """What would be different if anybody had written there."""
    return {path: os.lstat(os.path.join(directory, path)).st_mtime_ns for path in files(directory)}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix='pf install ')
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.destination = os.path.join(cls.work, 'a root')
        cls.root = cls.destination + PREFIX
        cls.keep_log()
        cls.before = state(PREFIX)
        cls.call('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', DESTDIR=cls.destination)

    @classmethod
    def keep_log(cls):
        """What the developer's own `ninja uninstall` goes by."""
        kept = os.path.join(cls.work, 'log')
        if os.path.exists(LOG):
            shutil.copy(LOG, kept)
            cls.addClassCleanup(shutil.copy, kept, LOG)

    @classmethod
    def call(cls, *command, **environment):
        """What it prints; it has to succeed."""
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f'{command}: status {done.returncode}\n{done.stdout}{done.stderr}')
        return done.stdout

    def program(self, name):
        return os.path.join(self.root, 'bin', name)

    def with_daemon(self, *command, **environment):
        """The command beside a private daemon of this tree, which has the pipeline `rows`."""
        config = os.path.join(self.work, 'pinfeed.yaml')
        with open(config, 'w', encoding='utf-8') as file:
            file.write(CONFIG)
        return self.call(self.program('pinfeedctl'), 'run', '--linger', '1', '--config', config, '--', *command,
                         PINFEED_RUNTIME_DIR=os.path.join(self.work, 'run'), **environment)

    def test_1_every_file_is_on_the_list(self):
        self.assertEqual(sorted(files(self.root)), sorted(expected()))

    def test_1_nothing_is_written_elsewhere(self):
        self.assertEqual(files(self.destination), {os.path.join(PREFIX[1:], path) for path in files(self.root)})
        self.assertEqual(state(PREFIX), self.before)

    def test_2_a_moved_tree_works(self):
        self.assertEqual(self.call(self.program('pinfeedd'), '--version'), f'pinfeedd {said("VERSION")}\n')
        self.assertIn('"rows":', self.with_daemon(self.program('pinfeedctl'), 'bench', 'rows', '--rows', '1000', '--json'))

    def test_2_pkg_config_is_enough_to_compile_a_job(self):
        place = tempfile.mkdtemp(prefix='pf-')
        self.addCleanup(shutil.rmtree, place)
        sysroot = os.path.join(place, 'root')  # of a directory with a space pkg-config makes two words
        os.symlink(self.destination, sysroot)
        libdir = sysroot + os.path.join(PREFIX, said('LIBDIR'))
        flags = self.call('pkg-config', '--cflags', '--libs', 'pinfeed', PKG_CONFIG_SYSROOT_DIR=sysroot,
                          PKG_CONFIG_PATH=os.path.join(libdir, 'pkgconfig')).split()
        self.assertIn('-lpinfeed', flags)
        job = os.path.join(self.work, 'job')
        self.call(*said('CC').split(), '-std=c99', '-Wall', '-Wextra', '-Werror', os.path.join(HERE, 'job.c'), '-o', job, *flags)
        self.assertEqual(self.with_daemon(job, 'rows', LD_LIBRARY_PATH=libdir), '1000\n')
        needed = self.call('readelf', '--dynamic', job)
        self.assertIn('[libpinfeed.so.0]', needed)  # the soname: docs/compatibility.md
        self.assertNotIn('[libjansson', needed)  # the library's own business

    def test_3_uninstalling_leaves_nothing(self):
        self.call('ninja', '-C', BUILD, 'uninstall')
        self.assertEqual(files(self.destination), set())
        self.assertEqual([name for _, names, _ in os.walk(self.root) for name in names], [])
        self.assertEqual(state(PREFIX), self.before)
