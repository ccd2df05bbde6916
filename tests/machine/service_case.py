# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What the cases have in common: a machine, the packages, the service and its jobs."""

import atexit
import glob
import json
import os
import re
import select
import signal
import subprocess
import unittest

from machine import Machine, make_root, wait_for

# By run.py.
PACKAGES = os.environ['PINFEED_TEST_PACKAGES']  # a directory with the .deb files
TRAINER = os.environ['PINFEED_TEST_TRAINER']
ROOTS = os.environ['PINFEED_TEST_ROOTS']  # where the system to be booted is kept

INSTALLED = ('pinfeed', 'libpinfeed0')
SERVICE, SOCKET = 'pinfeedd.service', 'pinfeedd.socket'
CONFIG = '/etc/pinfeed/pinfeed.yaml'
DROP_IN = '/run/systemd/system/pinfeedd.service.d/test.conf'
SOON = 10  # seconds
ATTACHED = 30

RAMP = '''
  {name}:
    source: {{type: synthetic, mode: ramp, samples: {samples}, bytes: 4096}}
    batch_size: 16
    slots: 16
    workers: 2
'''


def pipeline(name='ramp', samples=2000, more=''):
    """A pipeline of the configuration; `more` are its other lines."""
    return RAMP.format(name=name, samples=samples) + more


def deb(name):
    """The file of a package."""
    [path] = glob.glob(os.path.join(PACKAGES, f'{name}_*.deb'))
    return path


def field(path, name):
    return subprocess.run(['dpkg-deb', '--field', path, name], check=True, capture_output=True, text=True).stdout.strip()


def needed():
    """What our packages need of Debian's, so that it is there without a network."""
    names = {re.split(r'[ (:|]', entry.strip())[0] for name in INSTALLED for entry in field(deb(name), 'Depends').split(',')}
    return {name for name in names if name and name not in INSTALLED}


class Case(unittest.TestCase):
    """A machine for each class, with our packages in /root, a trainer and two users: `alice`, who is in group `pinfeed` once
    there is one, and `bob`, who is not."""

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(make_root(ROOTS, needed()))
        cls.addClassCleanup(cls.machine.close)
        cls.furnish()

    @classmethod
    def furnish(cls):
        cls.machine.copy(TRAINER, '/usr/local/bin/trainer')
        for name in INSTALLED:
            cls.machine.copy(deb(name), f'/root/{name}.deb')
        for user in ('alice', 'bob'):
            cls.machine.run('useradd', '--create-home', user)

    @classmethod
    def apt(cls, *words):
        return cls.machine.run('env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '--yes', '--quiet', *words)

    @classmethod
    def install(cls):
        cls.apt('install', '--no-install-recommends', '--allow-downgrades', *(f'/root/{name}.deb' for name in INSTALLED))
        cls.machine.run('usermod', '--append', '--groups', 'pinfeed', 'alice')

    def run_there(self, *words, **options):
        return self.machine.run(*words, **options)

    # ---- the service ----

    def systemctl(self, *words, check=True, timeout=60):
        return self.machine.run('systemctl', *words, check=check, timeout=timeout)

    def property(self, name, unit=SERVICE):
        return self.systemctl('show', '--property', name, '--value', unit).stdout.strip()

    def is_active(self, unit):
        return self.systemctl('is-active', unit, check=False).stdout.strip()

    def daemon_pid(self):
        return int(self.property('MainPID'))

    def signal_daemon(self, number):
        os.kill(self.machine.processes('pinfeedd')[self.daemon_pid()], number)

    def status(self):
        return json.loads(self.machine.run('pinfeedctl', 'status', '--json').stdout)

    def journal(self, *words):
        """Entries about the service, as dictionaries."""
        lines = self.machine.run('journalctl', '--output=json', '--unit', SERVICE, *words).stdout
        return [json.loads(line) for line in lines.splitlines()]

    def configure(self, text):
        self.machine.write(CONFIG, text)

    def drop_in(self, text):
        """Lines of [Service] that are not the package's; none: takes them away."""
        if text:
            self.machine.write(DROP_IN, '[Service]\n' + text)
        elif self.machine.exists(DROP_IN):
            os.unlink(self.machine.path(DROP_IN))
        self.systemctl('daemon-reload')

    def wait_active(self):
        wait_for(lambda: self.is_active(SERVICE) == 'active', 'the service', SOON)

    # ---- jobs ----

    def trainer(self, *words, user=None, runtime_dir='/run/pinfeed'):
        """A job that has attached, and reads on."""
        process = self.machine.spawn('env', f'PINFEED_RUNTIME_DIR={runtime_dir}', 'trainer', *words, user=user)
        self.assertTrue(select.select([process.stdout], [], [], ATTACHED)[0], 'the trainer says nothing')
        line = process.stdout.readline()
        if line != 'attached\n':
            self.fail(f'the trainer: {line}{process.communicate()[0]}')
        return process

    def stop_trainer(self, process):
        """Lets it end by itself: it has found nothing wrong. How many batches it has read."""
        self.machine.signal(process, signal.SIGTERM)
        return self.finish(process)

    def finish(self, process):
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, said)
        return int(re.search(r'read (\d+) batches', said).group(1))

    def rows_delivered(self):
        return sum(entry['rows_delivered'] for entry in self.status()['pipelines'])

    def digest(self, name='ramp', user=None):
        return self.machine.run('pinfeedctl', 'digest', name, user=user).stdout


class ServiceCase(Case):
    """The packages are installed; each case begins with the socket listening, no daemon, and a configuration of its own. All
    such classes have one machine."""

    machine = None

    @classmethod
    def setUpClass(cls):
        if not ServiceCase.machine:
            ServiceCase.machine = Machine(make_root(ROOTS, needed()))
            atexit.register(ServiceCase.machine.close)
            cls.furnish()
            cls.install()

    def setUp(self):
        self.systemctl('stop', SOCKET, SERVICE)
        self.drop_in('')
        self.systemctl('reset-failed')
        self.configure('pipelines:' + pipeline())
        self.systemctl('start', SOCKET)
        self.addCleanup(self.machine.end_spawned)
