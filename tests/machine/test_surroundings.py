# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""What systemd and its limits do to a daemon: too little memory, a user's own units, and logins that end."""

import json

from machine import wait_for
from service_case import SERVICE, SOON, ServiceCase, pipeline

BIG = '''
  big:
    source: {type: synthetic, mode: ramp, samples: 2000, bytes: 1M}
    batch_size: 16
    ring: 1G
'''


class Memory(ServiceCase):
    def tearDown(self):
        self.machine.limit_memory(-1)

    def test_a_limit_below_the_rings_is_told(self):
        self.configure('pipelines:' + BIG)
        self.assertEqual(self.status()['warnings'], [])
        self.systemctl('stop', SERVICE)
        if not self.machine.limit_memory(768 << 20):
            self.skipTest('no cgroup v1 tree for memory here')
        [warning] = self.status()['warnings']
        self.assertIn('MemoryMax', warning)
        self.assertIn('768', warning)


class UserUnits(ServiceCase):
    """A user's own service, by the systemd of that user."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machine.run('loginctl', 'enable-linger', 'alice')
        uid = cls.machine.run('id', '--user', 'alice').stdout.strip()
        cls.environment = ('env', f'XDG_RUNTIME_DIR=/run/user/{uid}')
        wait_for(lambda: cls.as_alice('systemctl', '--user', 'is-active', 'basic.target', check=False).returncode == 0,
                 'the systemd of alice', 2 * SOON)
        cls.addClassCleanup(cls.machine.run, 'loginctl', 'disable-linger', 'alice')

    @classmethod
    def as_alice(cls, *words, **options):
        return cls.machine.run(*cls.environment, *words, user='alice', **options)

    def test_a_job_starts_its_users_service(self):
        self.machine.write('/home/alice/.config/pinfeed/pinfeed.yaml', 'pipelines:' + pipeline('own'))
        self.as_alice('systemctl', '--user', 'start', 'pinfeedd.socket')
        self.assertIn('read 10 batches', self.as_alice('trainer', 'own', '--batches', '10').stdout)
        self.assertEqual(self.as_alice('systemctl', '--user', 'is-active', SERVICE).stdout, 'active\n')
        self.as_alice('systemctl', '--user', 'stop', 'pinfeedd.socket', SERVICE)
        self.assertEqual(self.machine.processes('pinfeedd'), {})


class Logins(ServiceCase):
    """Case A8: with RemoveIPC=yes, its default, logind removes all that a user has in /dev/shm when the last login of that user
    ends, also what is in use by processes outside of a login, such as those of a batch system."""

    def test_A8_a_daemon_without_a_login_outlives_the_last_one(self):
        self.machine.write('/run/systemd/logind.conf.d/test.conf', '[Login]\nUserStopDelaySec=0\n')
        self.systemctl('restart', 'systemd-logind')
        self.machine.write('/tmp/pinfeed.yaml', 'pipelines:' + pipeline('own', more='    backing: shm\n'))
        self.machine.spawn('pinfeedd', '--config', '/tmp/pinfeed.yaml', '--runtime-dir', '/tmp/run', user='alice')
        wait_for(lambda: self.machine.exists('/tmp/run/pinfeed.sock'), 'the daemon of alice', SOON)
        status = self.run_there('pinfeedctl', '--runtime-dir', '/tmp/run', 'status', '--json', user='alice').stdout
        self.assertRegex(' '.join(json.loads(status)['warnings']), 'RemoveIPC')  # case E5
        reading = self.trainer('own', '--step', '500', user='alice', runtime_dir='/tmp/run')
        self.run_there('su', '--login', 'alice', '-c', 'touch /dev/shm/of-alice')
        wait_for(lambda: not self.machine.exists('/dev/shm/of-alice'), 'logind cleans up after the login', 2 * SOON)
        late = self.trainer('own', '--batches', '200', user='alice', runtime_dir='/tmp/run')
        self.assertEqual(self.finish(late), 200)
        self.assertGreater(self.stop_trainer(reading), 0)
