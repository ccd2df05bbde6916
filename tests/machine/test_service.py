# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The service in its life: started by who comes first, watched, killed, reloaded, restarted and stopped, with jobs that read."""

import os
import re
import signal
import subprocess
import tempfile
import time

from machine import wait_for
from service_case import SERVICE, SOCKET, SOON, ServiceCase, pipeline

BIN = os.environ['PINFEED_TEST_BIN']
KILLS = 10
KILLS_SECONDS = 10


def digest_here(config, name):
    """The same by a private daemon of the tree's, outside of the machine."""
    with tempfile.TemporaryDirectory(prefix='pf-', dir='/tmp') as directory:
        path = os.path.join(directory, 'pinfeed.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(config)
        return subprocess.run(
            [os.path.join(BIN, 'pinfeedctl'), '--runtime-dir', os.path.join(directory, 'run'), 'run', '--config', path, '--',
             os.path.join(BIN, 'pinfeedctl'), 'digest', name],
            check=True, capture_output=True, text=True, env=dict(os.environ, PINFEED_STATE_DIR=directory)).stdout


class Start(ServiceCase):
    def test_the_first_connection_starts_the_service(self):
        self.assertEqual((self.is_active(SOCKET), self.is_active(SERVICE)), ('active', 'inactive'))
        job = self.trainer('ramp', '--batches', '200')
        self.assertEqual(self.finish(job), 200)
        self.assertEqual(self.is_active(SERVICE), 'active')

    def test_an_operators_question_starts_it_too(self):
        self.assertEqual(self.status()['jobs'], [])
        self.assertEqual(self.is_active(SERVICE), 'active')

    def test_who_comes_while_it_starts_is_served(self):
        jobs = [self.machine.spawn('trainer', 'ramp', '--batches', '200') for _ in range(8)]
        self.assertEqual([self.finish(job) for job in jobs], [200] * 8)

    def test_a_stopped_service_comes_back_with_the_next_job(self):
        self.assertEqual(self.finish(self.trainer('ramp', '--batches', '10')), 10)
        self.systemctl('stop', SERVICE)
        self.assertEqual(self.is_active(SERVICE), 'inactive')
        self.assertEqual(self.finish(self.trainer('ramp', '--batches', '10')), 10)

    def test_a_wrong_configuration_is_given_up_with_the_reason(self):
        self.configure('pipelines:\n  ramp:\n    sauce: none\n')
        self.assertNotEqual(self.systemctl('start', SERVICE, check=False).returncode, 0)
        wait_for(lambda: self.is_active(SERVICE) == 'failed', 'giving up', 3 * SOON)
        self.assertIn('pinfeed.yaml:3:', self.property('StatusText'))
        self.assertTrue([entry for entry in self.journal() if 'pinfeed.yaml:3:' in entry['MESSAGE']])

    def test_runs_as_its_own_user(self):
        self.systemctl('start', SERVICE)
        [number] = self.machine.processes('pinfeedd').values()
        self.assertEqual(os.stat(f'/proc/{number}').st_uid, int(self.run_there('id', '--user', 'pinfeed').stdout))


class Bytes(ServiceCase):
    def test_three_trainers_get_what_a_private_daemon_gives(self):
        jobs = [self.trainer('ramp', '--step', '500') for _ in range(3)]
        self.assertEqual(self.digest(), digest_here('pipelines:' + pipeline(), 'ramp'))
        self.assertEqual(len(self.status()['jobs']), 3)
        for job in jobs:
            self.assertGreater(self.stop_trainer(job), 0)

    def test_status_text(self):
        job = self.trainer('ramp', '--step', '500')
        wait_for(lambda: re.search(r'\b1 job\b', self.property('StatusText')), 'the status text', SOON)
        self.assertIn('1 job', self.systemctl('status', SERVICE).stdout)
        self.stop_trainer(job)

    def test_journal_says_what_a_line_is_about(self):
        self.finish(self.trainer('ramp', '--batches', '10'))
        entries = self.journal('PINFEED_PIPELINE=ramp')
        self.assertTrue(entries)
        self.assertTrue([entry for entry in entries if entry.get('PINFEED_JOB') == '1' and entry['PRIORITY'] == '6'], entries)


class Faults(ServiceCase):
    def wait_restarts(self, number):
        wait_for(lambda: int(self.property('NRestarts')) >= number and self.is_active(SERVICE) == 'active',
                 f'restart {number}', SOON)

    def test_watchdog_ends_what_hangs(self):
        self.drop_in('WatchdogSec=2\nTimeoutAbortSec=1\n')
        job = self.trainer('ramp', '--reconnect', '30', '--step', '500')
        hanging = self.daemon_pid()
        self.assertEqual(self.property('NRestarts'), '0')
        self.signal_daemon(signal.SIGSTOP)
        self.wait_restarts(1)
        self.assertNotEqual(self.daemon_pid(), hanging)
        self.assertTrue([entry for entry in self.journal() if 'atchdog timeout' in entry['MESSAGE']])
        self.read_on()
        self.stop_trainer(job)

    def test_watchdog_lets_a_busy_daemon_live(self):
        self.drop_in('WatchdogSec=2\nTimeoutAbortSec=1\n')
        job = self.trainer('ramp')
        time.sleep(4)  # two of its periods
        self.assertEqual(self.property('NRestarts'), '0')
        self.stop_trainer(job)

    def test_E6_killed_ten_times_in_ten_seconds(self):
        jobs = [self.trainer('ramp', '--reconnect', '30', '--step', '500') for _ in range(2)]
        began = time.monotonic()
        for number in range(1, KILLS + 1):
            self.signal_daemon(signal.SIGKILL)
            self.wait_restarts(number)
        self.assertLess(time.monotonic() - began, KILLS_SECONDS)
        self.read_on()
        for job in jobs:
            self.stop_trainer(job)
        self.assertEqual(list(self.machine.processes('pinfeedd')), [self.daemon_pid()])

    def read_on(self):
        """Jobs do: more than is in the ring comes to them."""
        wait_for(lambda: self.rows_delivered() > 1000, 'jobs go on', 2 * SOON)


class Change(ServiceCase):
    def test_reload_takes_a_new_file(self):
        job = self.trainer('ramp', '--step', '500')
        before = self.daemon_pid()
        self.configure('pipelines:' + pipeline() + pipeline('second'))
        self.systemctl('reload', SERVICE)
        self.assertEqual([entry['name'] for entry in self.status()['pipelines']], ['ramp', 'second'])
        self.assertEqual(self.daemon_pid(), before)
        self.assertEqual(self.finish(self.trainer('second', '--batches', '10')), 10)
        self.stop_trainer(job)

    def test_reload_refuses_a_wrong_file(self):
        job = self.trainer('ramp', '--step', '500')
        before = self.daemon_pid()
        self.configure('pipelines:\n  ramp:\n    sauce: none\n')
        done = self.systemctl('reload', SERVICE, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue([entry for entry in self.journal() if 'pinfeed.yaml:3:' in entry['MESSAGE']])
        self.assertEqual((self.is_active(SERVICE), self.daemon_pid()), ('active', before))
        self.assertEqual(self.finish(self.trainer('ramp', '--batches', '10')), 10)
        self.stop_trainer(job)

    def test_restart_under_load(self):
        jobs = [self.trainer('ramp', '--reconnect', '30') for _ in range(3)]
        for _ in range(3):
            before = self.daemon_pid()
            self.systemctl('restart', SERVICE)
            self.assertNotEqual(self.daemon_pid(), before)
            wait_for(lambda: self.rows_delivered() > 1000, 'jobs go on', SOON)
        for job in jobs:
            self.stop_trainer(job)

    def test_E4_stop_waits_until_a_job_has_saved(self):
        """Case E4. The time that the unit grants is not enough, so the daemon asks for more."""
        self.drop_in('TimeoutStopSec=2\n')
        self.configure('drain: 20\npipelines:' + pipeline())
        job = self.trainer('ramp', '--step', '100000', '--more', '5')
        stop = self.machine.spawn('systemctl', 'stop', SERVICE)
        wait_for(lambda: self.is_active(SERVICE) == 'deactivating', 'stopping', SOON)
        time.sleep(3)
        began = time.monotonic()
        self.assertGreaterEqual(self.stop_trainer(job), 5)
        self.assertEqual(stop.wait(SOON), 0)
        self.assertLess(time.monotonic() - began, 5)  # not all of the time that it had
        self.assertEqual(self.property('Result'), 'success')
