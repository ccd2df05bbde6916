# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The life of the package: it is installed, upgraded while jobs run, removed and purged."""

import os
import re
import subprocess
import tempfile

from machine import wait_for
from service_case import CONFIG, INSTALLED, SERVICE, SOCKET, SOON, Case, deb, field, pipeline

MOST_EXPOSED = 2.5  # of systemd-analyze security, which counts from 0, safe, to 10


def make_newer(name, directory):
    """The package once more, with a higher version."""
    path = os.path.join(directory, f'{name}.deb')
    tree = os.path.join(directory, name)
    subprocess.run(['dpkg-deb', '--raw-extract', deb(name), tree], check=True)
    control = os.path.join(tree, 'DEBIAN', 'control')
    with open(control, encoding='utf-8') as file:
        text = file.read()
    with open(control, 'w', encoding='utf-8') as file:
        file.write(re.sub(r'^Version: (.*)', r'Version: \1+newer', text, flags=re.M))
    subprocess.run(['dpkg-deb', '--root-owner-group', '--build', tree, path], check=True, stdout=subprocess.DEVNULL)
    return path


class Install(Case):
    def setUp(self):
        if not self.machine.exists('/usr/bin/pinfeedd'):
            self.install()

    def mode(self, path):
        return self.run_there('stat', '--format', '%a %U %G %F', path).stdout.strip()

    def version(self, name):
        return self.run_there('dpkg-query', '--show', '--showformat', '${Version}', name).stdout

    def traces(self):
        """Paths of ours, packages of ours, units of ours."""
        found = self.run_there('find', '/', '-xdev', '-path', '/root', '-prune', '-o', '-path', '/proc', '-prune', '-o',
                               '-name', '*pinfeed*', '-print').stdout
        found += self.run_there('find', '/run', '-name', '*pinfeed*').stdout
        # apt's own archive of what was, and the journal, are not ours.
        return {path for path in found.split() if not path.startswith(('/run/log/', '/var/log/', '/var/lib/dpkg/info/'))}

    def test_1_makes_the_user_and_the_sockets(self):
        self.assertRegex(self.run_there('getent', 'passwd', 'pinfeed').stdout, r'^pinfeed:[^:]*:\d+:\d+:.*:/usr/sbin/nologin$')
        self.assertRegex(self.run_there('getent', 'group', 'pinfeed').stdout, '^pinfeed:')
        self.assertLess(int(self.run_there('id', '--user', 'pinfeed').stdout), 1000)  # a user of the system's
        self.assertEqual(self.mode('/run/pinfeed'), '755 pinfeed pinfeed directory')
        self.assertEqual(self.mode('/run/pinfeed/pinfeed.sock'), '660 pinfeed pinfeed socket')
        self.assertEqual(self.mode('/run/pinfeed/control.sock'), '660 pinfeed pinfeed socket')
        self.assertEqual(self.mode(CONFIG), '644 root root regular file')
        self.assertEqual(self.is_active(SOCKET), 'active')
        self.assertEqual(self.is_active(SERVICE), 'inactive')
        self.assertEqual(self.systemctl('is-enabled', SOCKET).stdout.strip(), 'enabled')

    def test_1_systemd_finds_nothing_wrong(self):
        done = self.run_there('systemd-analyze', 'verify', '--man=no', *(f'/lib/systemd/system/{unit}' for unit in (SERVICE, SOCKET)))
        self.assertEqual([line for line in (done.stdout + done.stderr).splitlines() if 'pinfeed' in line], [])
        said = self.run_there('systemd-analyze', 'security', '--no-pager', SERVICE, check=False).stdout
        exposed = re.search(r'Overall exposure level for pinfeedd.service: ([\d.]+)', said)
        self.assertIsNotNone(exposed, said)
        self.assertLessEqual(float(exposed.group(1)), MOST_EXPOSED, said)

    def test_1_the_stock_configuration_starts(self):
        self.systemctl('start', SERVICE)
        self.assertEqual(self.status()['pipelines'], [])

    def test_2_upgrade_while_jobs_run(self):
        self.machine.write(CONFIG, 'pipelines:' + pipeline())
        self.systemctl('restart', SERVICE)
        jobs = [self.trainer('ramp', '--reconnect', '30', '--step', '1000') for _ in range(2)]
        before, version = self.daemon_pid(), self.version('pinfeed')
        with tempfile.TemporaryDirectory() as directory:
            for name in INSTALLED:
                newer = make_newer(name, directory)
                self.assertEqual(field(newer, 'Version'), field(deb(name), 'Version') + '+newer')
                self.machine.copy(newer, f'/root/newer/{name}.deb')
        self.apt('install', '--no-install-recommends', *(f'/root/newer/{name}.deb' for name in INSTALLED))
        self.assertEqual(self.version('pinfeed'), version + '+newer')
        self.assertEqual(self.machine.read(CONFIG), 'pipelines:' + pipeline())  # the administrator's stays
        self.wait_active()
        self.assertNotEqual(self.daemon_pid(), before)
        delivered = self.rows_delivered()
        wait_for(lambda: self.rows_delivered() > delivered + 1000, 'jobs go on', SOON)
        for job in jobs:
            self.assertGreater(self.stop_trainer(job), 0)

    def test_3_remove_keeps_what_is_the_administrators(self):
        self.machine.write(CONFIG, 'pipelines:' + pipeline())
        self.machine.write('/var/lib/pinfeed/kept', '')
        self.systemctl('start', SERVICE)
        self.assertEqual(len(self.machine.processes('pinfeedd')), 1)
        self.apt('remove', 'pinfeed')
        self.assertEqual(self.machine.processes('pinfeedd'), {})
        self.assertEqual(self.is_active(SOCKET), 'inactive')
        self.assertFalse(self.machine.exists('/run/pinfeed'))
        self.assertFalse(self.machine.exists('/usr/bin/pinfeedd'))
        self.assertEqual(self.machine.read(CONFIG), 'pipelines:' + pipeline())
        self.assertTrue(self.machine.exists('/var/lib/pinfeed/kept'))

    def test_4_purge_leaves_nothing_but_the_user(self):
        before = self.systemctl('--failed', '--no-legend').stdout
        self.systemctl('start', SERVICE)
        self.apt('purge', *INSTALLED)
        self.assertEqual(self.traces(), set())
        self.assertEqual(self.systemctl('list-units', '--all', '--no-legend', 'pinfeed*').stdout, '')
        self.assertEqual(self.systemctl('--failed', '--no-legend').stdout, before)
        self.assertRegex(self.run_there('getent', 'passwd', 'pinfeed').stdout, '^pinfeed:')  # files of its own may lie anywhere
