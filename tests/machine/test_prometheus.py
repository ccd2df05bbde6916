#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus, as Debian has it, scrapes a daemon that works: what it then says is what `status --json` says.

Wants prometheus and promtool, and says that it is skipped where they are not. Runs by itself, as any user, with the
installed programs in $PINFEED_TEST_BIN; everything is on the loopback and in a directory that goes with it.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

BIN = os.environ.get('PINFEED_TEST_BIN', '')
SOON_S = 30 * float(os.environ.get('PINFEED_TEST_SLOWDOWN', '1'))
ROWS = 4000
PR_SET_PDEATHSIG = 1

DAEMON = '''
metrics_listen: "127.0.0.1:0"
pipelines:
  imagenet:
    source: {type: synthetic, mode: ramp, samples: 100000, bytes: 64, delay_us: 200}
    batch_size: 16
    workers: 2
  other:
    source: {type: synthetic, samples: 10}
    batch_size: 2
'''

PROMETHEUS = '''
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: pinfeed
    static_configs: [{{targets: ["{target}"]}}]
'''

# What is as it was when the last job has left and the workers are idle; of pipeline imagenet.
TWINS = {
    'pinfeed_rows_prepared_total': 'rows_prepared',
    'pinfeed_rows_delivered_total': 'rows_delivered',
    'pinfeed_batches_delivered_total': 'batches_delivered',
    'pinfeed_slots_filled_total': 'slots_filled',
    'pinfeed_workers_busy_seconds_total': 'busy_seconds',
    'pinfeed_workers': 'workers_alive',
    'pinfeed_ring_bytes': 'ring_bytes',
    'pinfeed_slots{state="ready"}': 'slots_ready',
    'pinfeed_worker_deaths_total{kind="killed"}': 'worker_deaths',
}


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for(condition, what):
    """The first true answer."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f'{what}: not within {SOON_S:.0f} s')


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def free_port():
    with socket.socket() as bound:
        bound.bind(('127.0.0.1', 0))
        return bound.getsockname()[1]


@unittest.skipUnless(shutil.which('prometheus') and shutil.which('promtool'), 'Debian\'s prometheus is not installed')
class Prometheus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix='pf-', dir='/tmp')
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.runtime = os.path.join(cls.directory, 'run')
        log = cls.spawn('pinfeedd', [os.path.join(BIN, 'pinfeedd'), '--config', cls.write('pinfeed.yaml', DAEMON),
                                     '--runtime-dir', cls.runtime])
        wait_for(lambda: 'ready: ' in read(log), 'pinfeedd is ready')
        cls.target = cls.ask_status()['metrics_listen']
        cls.api = f'http://127.0.0.1:{free_port()}'
        log = cls.spawn('prometheus', [
            'prometheus', '--config.file=' + cls.write('prometheus.yml', PROMETHEUS.format(target=cls.target)),
            '--storage.tsdb.path=' + os.path.join(cls.directory, 'data'), '--web.listen-address=' + cls.api[7:]])
        wait_for(cls.is_ready, 'prometheus is ready:\n' + read(log))

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.directory, name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    @classmethod
    def spawn(cls, name, argv):
        """Starts it until the class ends; where its words go."""
        log = os.path.join(cls.directory, name + '.log')
        with open(log, 'w', encoding='utf-8') as out:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)
        return log

    @classmethod
    def ctl(cls, *arguments):
        return subprocess.run([os.path.join(BIN, 'pinfeedctl'), '-d', cls.runtime, *arguments], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    @classmethod
    def ask_status(cls):
        return json.loads(cls.ctl('status', '--json'))

    @classmethod
    def is_ready(cls):
        try:
            with urllib.request.urlopen(cls.api + '/-/ready', timeout=1) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def query(self, expression):
        """[(labels, value)] of what Prometheus knows now."""
        url = self.api + '/api/v1/query?' + urllib.parse.urlencode({'query': expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            result = json.load(answer)['data']['result']
        return [(series['metric'], float(series['value'][1])) for series in result]

    def value(self, expression):
        result = self.query(expression)
        self.assertEqual(len(result), 1, expression)
        return result[0][1]

    def test_it_says_what_status_says(self):
        self.ctl('bench', 'imagenet', '--rows', str(ROWS))
        wait_for(lambda: self.ask_status()['workers_busy'] == 0, 'the workers are idle')
        status = self.ask_status()
        imagenet = next(pipeline for pipeline in status['pipelines'] if pipeline['name'] == 'imagenet')
        self.assertGreaterEqual(imagenet['rows_delivered'], ROWS)
        name = 'pinfeed_rows_delivered_total{pipeline="imagenet"}'
        wait_for(lambda: any(value == imagenet['rows_delivered'] for _, value in self.query(name)), name)
        for metric, member in TWINS.items():
            name, _, labels = metric.partition('{')
            expression = f'{name}{{pipeline="imagenet",{labels or "}"}'
            self.assertAlmostEqual(self.value(expression), imagenet[member], 6, expression)
        self.assertEqual(self.value('up{job="pinfeed"}'), 1)
        self.assertEqual(self.value('pinfeed_build_info'), 1)
        self.assertEqual(self.query('pinfeed_build_info')[0][0]['version'], status['version'])
        self.assertEqual(self.value('pinfeed_pipeline_state{pipeline="other",state="idle"}'), 1)
        self.assertLess(abs(self.value('time() - pinfeed_start_time_seconds') - status['uptime_seconds']), 5)

    def test_scrapes_follow_each_other(self):
        wait_for(lambda: any(value >= 4 for _, value in self.query('count_over_time(up[1m])')), 'four scrapes')
        self.assertEqual(self.value('min_over_time(up[1m])'), 1)
        self.assertGreaterEqual(self.value('pinfeed_scrapes_total'), 3)
        self.assertEqual(self.value('scrape_samples_scraped'), self.value('scrape_samples_post_metric_relabeling'))

    def test_histograms_have_percentiles(self):
        self.ctl('bench', 'imagenet', '--rows', str(ROWS))
        total = self.ask_status()['pipelines'][0]['stages']['make']['rows']
        wait_for(lambda: any(value >= total for _, value in self.query('pinfeed_stage_seconds_count')), 'all rows')
        quantile = self.value('histogram_quantile(0.5, pinfeed_stage_seconds_bucket)')
        self.assertGreater(quantile, 100e-6)  # a row sleeps 200 us
        self.assertLess(quantile, 10e-3)

    def test_board(self):
        """Every expression of the board is one that Prometheus understands."""
        board = read(os.path.join(os.path.dirname(__file__), '../../docs/grafana.json'))
        expressions = [target['expr'] for panel in json.loads(board)['panels'] for target in panel['targets']]
        for expression in expressions:
            for variable, value in {'$__rate_interval': '1m', '$instance': '.*', '$pipeline': '.*'}.items():
                expression = expression.replace(variable, value)
            self.query(expression)

    def test_promtool_is_content(self):
        with urllib.request.urlopen(f'http://{self.target}/metrics', timeout=10) as answer:
            text = answer.read()
            self.assertRegex(answer.headers['Content-Type'], r'^text/plain; version=0\.0\.4')
        for what in (text, self.ctl('metrics').encode()):
            check = subprocess.run(['promtool', 'check', 'metrics'], input=what, capture_output=True, check=False)
            self.assertEqual((check.returncode, check.stdout, check.stderr), (0, b'', b''))

    def test_rules_of_the_documents(self):
        """The alerts in docs/metrics.md are rules that Prometheus takes."""
        text = read(os.path.join(os.path.dirname(__file__), '../../docs/metrics.md'))
        rules = re.search(r'```yaml\n(groups:.*?)```', text, re.DOTALL).group(1)
        check = subprocess.run(['promtool', 'check', 'rules', self.write('rules.yml', rules)], capture_output=True, text=True,
                               check=False)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
        self.assertIn('3 rules found', check.stdout)


if __name__ == '__main__':
    if not BIN:
        sys.exit('$PINFEED_TEST_BIN is not set: where pinfeedd and pinfeedctl are installed')
    unittest.main()
