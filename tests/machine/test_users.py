# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""Several users: who may connect says the sockets' group, who may use a pipeline says `allow`."""

from machine import wait_for
from service_case import SERVICE, ServiceCase, pipeline

FOR_ALICE = '    allow: {users: [alice]}\n'
FOR_GROUP = '    allow: {groups: [pinfeed]}\n'


class Users(ServiceCase):
    def setUp(self):
        super().setUp()
        self.configure('pipelines:' + pipeline(more=FOR_GROUP) + pipeline('hers', more=FOR_ALICE) + pipeline('closed'))

    def refusal(self, name, user):
        """What a job that is not let in is told."""
        done = self.run_there('trainer', name, '--batches', '1', user=user, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stdout

    def test_a_member_of_the_group_is_served(self):
        jobs = [self.trainer('ramp', '--step', '500', user=user) for user in (None, 'alice')]
        seen = {(job['uid'], job['pid'] > 0) for job in self.status()['jobs']}
        self.assertEqual(seen, {(0, True), (int(self.run_there('id', '-u', 'alice').stdout), True)})
        self.assertEqual(self.digest(user='alice'), self.digest())
        for job in jobs:
            self.assertGreater(self.stop_trainer(job), 0)

    def test_a_user_whom_a_pipeline_names_is_served(self):
        self.assertEqual(self.finish(self.trainer('hers', '--batches', '10', user='alice')), 10)

    def test_who_is_not_in_the_group_is_refused(self):
        said = self.refusal('ramp', 'bob')
        self.assertIn('/run/pinfeed/pinfeed.sock', said)
        self.assertIn('group', said)
        self.assertNotEqual(self.run_there('pinfeedctl', 'status', user='bob', check=False).returncode, 0)

    def test_who_is_in_the_group_and_not_named_is_refused(self):
        uid = self.run_there('id', '-u', 'alice').stdout.strip()
        said = self.refusal('closed', 'alice')
        self.assertIn('closed is not for', said)
        self.assertIn('allow', said)
        self.assertRegex(said, rf'alice|uid {uid}')  # her name is looked up when she comes, and nobody waits for that
        wait_for(lambda: f'not for alice (uid {uid})' in self.refusal('closed', 'alice'), 'the refusal that has her name')

    def test_what_changes_something_is_for_root(self):
        self.trainer('ramp', '--step', '500', user='alice')
        done = self.run_there('pinfeedctl', 'reload', user='alice', check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('sudo', done.stdout + done.stderr)
        self.run_there('pinfeedctl', 'reload')

    def test_a_member_sees_what_it_may_use(self):
        self.systemctl('start', SERVICE)
        said = self.run_there('pinfeedctl', 'pipelines', user='alice').stdout
        self.assertIn('ramp', said)
        self.assertIn('hers', said)
        self.assertNotIn('closed', said)
