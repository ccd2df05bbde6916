# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""pinfeed._worker.run and leash: chunks, exceptions, given orders, the ends of processes; the test plays the daemon."""

import errno
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

import fake_daemon
from fake_daemon import BROKEN, REPLACED, Broken, Gone
from pinfeed import _worker
from support import SLOWDOWN, wait_for
from worker_case import NUMBER, Talk, leaf, number, rows, sequence


class Conversation(Talk):
    def test_numbers_arrive(self):
        worker = self.numbers(lambda sample: sample * sample, samples=50)
        self.assertEqual(worker.samples(), 50)
        self.assertEqual(worker.fill(10, 5, first=2), 0)
        self.assertEqual([number(worker.cell(row)) for row in range(2, 7)], [100, 121, 144, 169, 196])
        self.assertEqual(worker.ids(7)[2:], [10, 11, 12, 13, 14])
        self.assertEqual((worker.word('rows_done'), worker.word('chunk_slot'), worker.word('sample'), worker.word('begun')),
                         (5, fake_daemon.IDLE, fake_daemon.IDLE, 1))
        self.assertEqual(worker.end(), 0)

    def test_start_is_told_of_worker_and_fields(self):
        fields = [('image', 'float32', (3, 4)), ('label', 'int64', ())]
        told = []

        def start(number, fields):
            told.append((number, fields))

            def make(seed, epoch, row, sample, order, cells):
                text = repr((told, seed, epoch, row, sample, order, [(cell.nbytes, cell.readonly) for cell in cells])).encode()
                cells[0][:2] = struct.pack('<H', len(text))
                os.write(self.writing, text)
            return make
        reading, self.writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, self.writing)
        worker = self.worker(fields, start, shuffle=1)
        worker.fill(9, 1, seed=2**64 - 1, epoch=2**32 - 1)
        sample = struct.unpack('<q', _worker.order(100, 2**64 - 1, 2**32 - 1, 9, 1))[0]
        self.assertEqual(eval(os.read(reading, 4096)),  # once, too
                         ([(7, fields)], 2**64 - 1, 2**32 - 1, 9, sample, None, [(48, False), (8, False)]))
        self.assertEqual(worker.end(), 0)

    def test_order_is_the_daemons(self):
        worker = self.numbers(lambda sample: sample, shuffle=1, samples=1000)
        worker.fill(100, 8, epoch=3)
        expected = list(struct.unpack('<8q', _worker.order(1000, 5, 3, 100, 8)))
        self.assertEqual([number(worker.cell(row)) for row in range(8)], expected)
        self.assertEqual(worker.ids(8), expected)

    def test_cells_are_good_for_the_call_only(self):
        kept = []

        def start(number, fields):
            def make(seed, epoch, row, sample, order, cells):
                for each in kept:
                    try:
                        each[0]
                    except ValueError:
                        cells[0][:4] = b'gone'
                kept.extend(cells)
            return make
        worker = self.worker([('text', 'uint8', (4,))], start)
        worker.fill(0, 2)
        self.assertEqual((worker.cell(0), worker.cell(1)), (b'\0\0\0\0', b'gone'))

    def test_start_that_raises_ends_the_worker(self):
        def start(number, fields):
            raise LookupError('no such dataset')
        worker = self.worker(NUMBER, start)
        broken = Broken(worker.expect(BROKEN))
        self.assertEqual((broken.sample_given, broken.exception), (0, 'builtins.LookupError'))
        self.assertRegex(broken.text, r'^LookupError: no such dataset \(test_worker.py:\d+\)$')
        self.assertIn('raise LookupError', broken.traceback)
        self.assertEqual(worker.wait(), 0)

    def test_start_that_gives_nonsense_ends_the_worker(self):
        for given, text in ((lambda *_: 5, 'TypeError: start() gave 5, expected a Rows or a function that makes a row'),
                            (rows(None, leaf(1, 'int')), 'ValueError: leaf f1 is for field 1 of 1'),
                            (rows(None, leaf(0, 'bool')), 'ValueError: leaf f0 has 1 bytes, field number of the pipeline 8'),
                            (rows(None, sequence(leaf(0, 'int'), leaf(0, 'int'))),
                             'ValueError: 2 leaves for field number of the pipeline, expected one')):
            worker = self.worker(NUMBER, given)
            self.assertEqual(Broken(worker.expect(BROKEN)).text, text)
            self.assertEqual(worker.wait(), 0)

    def test_nonsense_of_the_daemon_is_an_error(self):
        worker = self.numbers(lambda sample: sample)
        worker.assign(99, 2)  # of 100
        self.assertRaises(Gone, worker.receive)
        self.assertEqual(worker.wait(), 1)

    def test_interrupts_are_for_the_trainer(self):
        worker = self.numbers(lambda sample: sample)
        os.kill(worker.pid, signal.SIGINT)
        os.kill(worker.pid, signal.SIGHUP)
        self.assertEqual(worker.fill(0, 8), 0)
        os.kill(worker.pid, signal.SIGTERM)
        self.assertEqual(worker.wait(), -signal.SIGTERM)

    def test_sleeping_is_exact(self):
        def fetch(sample):
            with open('/proc/self/timerslack_ns', encoding='ascii') as file:
                return int(file.read())
        worker = self.numbers(fetch)
        worker.fill(0, 1)
        self.assertEqual(number(worker.cell(0)), 1)

    def test_verifying(self):
        def fetch(sample):
            return sample if sample != 3 else 'three'
        worker = self.numbers(fetch, verify=1, slots=1, slot_rows=1)
        worker.assign(0, 8)
        self.assertEqual(worker.expect(REPLACED).numbers('QH'), (3, errno.EBADMSG))
        self.assertEqual(worker.done(), 0)

    def test_threads_go_on_while_the_worker_waits(self):
        counted = [0]

        def start(number, fields):
            def count():
                while True:
                    counted[0] += 1
                    time.sleep(0.001)
            threading.Thread(target=count, daemon=True).start()
            return _worker.Rows(lambda sample: counted[0], leaf(0, 'int'))
        worker = self.worker(NUMBER, start)

        def count():
            worker.fill(0, 1)
            return number(worker.cell(0))
        first = count()
        wait_for(lambda: count() > first + 20)


class Ugly(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)

    def __str__(self):
        raise RuntimeError('no text')


class Nothing(Exception):
    __module__ = None
    __qualname__ = '\udcff' * 300


class Exceptions(Talk):
    def broken_by(self, error, **more):
        def fetch(sample):
            if sample == 3:
                raise error
            return sample
        worker = self.numbers(fetch, **more)
        broken = worker.broken(0, 8)
        self.assertEqual((broken.sample_given, broken.sample, broken.slot, broken.first, broken.file), (1, 3, 0, 3, ''))
        self.assertEqual((worker.word('chunk_slot'), worker.word('rows_done')), (fake_daemon.IDLE, 3))
        self.assertEqual(worker.fill(4, 4), 0)  # the interpreter is as good as before
        self.assertEqual(worker.end(), 0)
        return broken

    def test_type_message_place_and_traceback(self):  # C4
        broken = self.broken_by(ValueError('bad value'))
        self.assertEqual((broken.error, broken.exception), (errno.EBADMSG, 'builtins.ValueError'))
        self.assertRegex(broken.text, r'^ValueError: bad value \(test_worker.py:\d+\)$')
        self.assertRegex(broken.traceback,
                         r'(?s)^Traceback .*test_worker.py", line \d+, in fetch\n.*raise error\nValueError: bad value\n$')

    def test_exceptions_nobody_can_print(self):  # C4 C5
        broken = self.broken_by(Ugly(1, 2))
        self.assertEqual(broken.exception, 'test_worker.Ugly')
        self.assertRegex(broken.text, r'^Ugly, whose str\(\) fails \(test_worker.py:\d+\)$')
        self.assertRegex(broken.traceback, r'Ugly: <(unprintable Ugly object|exception str\(\) failed)>\n$')
        broken = self.broken_by(Nothing('x'))
        self.assertRegex(broken.text, r'^Nothing: x \(test_worker.py')
        self.assertRegex(broken.exception, r'^\.\?{90,}\.\.\.$')

    def test_messages_that_are_no_message(self):  # C5
        broken = self.broken_by(ValueError('a\0b\nc\udcffd\x1b[31mä'))
        self.assertRegex(broken.text, r'^ValueError: a\?b\?c\?d\?\[31mä \(')
        self.assertIn('a?b\nc?d\x1b[31mä', broken.traceback)
        for letter in ('x', 'ä', '€'):
            broken = self.broken_by(ValueError(letter * (1 << 20)))
            self.assertRegex(broken.text, rf'^ValueError: {letter}+\.\.\. \(test_worker.py:\d+\)$')
            self.assertLessEqual(len(broken.text.encode()), 1000)
            self.assertTrue(16000 < len(broken.traceback.encode()) <= 16384)
            self.assertRegex(broken.traceback,
                             rf'(?s)^Traceback.*{letter}\n\[\.\.\. \d+ bytes left out \.\.\.\]\n{letter}+\n$')
        self.assertRegex(self.broken_by(ValueError()).text, r'^ValueError \(')

    def test_causes_are_told(self):
        def fetch(sample):
            try:
                {}['image']
            except KeyError as error:
                raise ValueError('no image') from error
        broken = self.numbers(fetch).broken(0, 1)
        self.assertIn("KeyError: 'image'\n\nThe above exception was the direct cause", broken.traceback)

    def test_recursion_and_memory(self):
        def fetch(sample):
            return fetch(sample)
        broken = self.numbers(fetch).broken(0, 1)
        self.assertEqual((broken.error, broken.exception), (errno.EBADMSG, 'builtins.RecursionError'))

    def test_errors_of_reading_are_tried_again(self):
        tries = []

        def fetch(sample):
            tries.append(sample)
            if len(tries) < 3:
                raise OSError(errno.EIO, 'the disk')
            return len(tries)
        worker = self.numbers(fetch)
        began = time.monotonic()
        worker.fill(0, 1)
        self.assertEqual(number(worker.cell(0)), 3)
        self.assertGreater(time.monotonic() - began, 0.1)

    def test_errors_of_reading_that_stay(self):
        def fetch(sample):
            raise OSError(errno.EIO, 'the disk')
        broken = self.numbers(fetch, on_error=1).broken(0, 1)  # whatever on_error says
        self.assertEqual((broken.error, broken.exception), (errno.EIO, 'builtins.OSError'))
        self.assertRegex(broken.text, r'^OSError: \[Errno 5\] the disk \(test_worker.py:\d+\), at the last of 4 tries$')

    def test_errors_of_other_kinds_are_not(self):
        for error in (FileNotFoundError(errno.ENOENT, 'x'), OSError('no number'), TimeoutError()):
            self.assertEqual(self.broken_by(error).error, errno.EBADMSG)

    def test_exit(self):
        for error, status in ((SystemExit(3), 3), (SystemExit(), 0), (SystemExit('bye'), 1), (KeyboardInterrupt(), 130)):
            def fetch(sample):
                if sample == 3:
                    raise error
                return sample
            worker = self.numbers(fetch)
            worker.assign(0, 8, first=0)
            self.assertRaises(Gone, worker.receive)
            self.assertEqual(worker.wait(), status)
            self.assertEqual((worker.word('sample'), worker.word('chunk_slot'), worker.word('chunk_done')), (3, 0, 3))

    def test_replaced(self):  # C3
        def fetch(sample):
            if sample in (3, 4):
                raise ValueError(f'bad {sample}')
            return sample
        worker = self.numbers(fetch, on_error=1)
        worker.condemn(6)
        worker.assign(0, 8)
        told = []
        for _ in range(2):
            sample, error, _ = (reader := worker.expect(REPLACED)).numbers('QHH')
            told.append((sample, error, reader.text()))
        self.assertEqual([each[:2] for each in told], [(3, errno.EBADMSG), (4, errno.EBADMSG)])
        self.assertRegex(told[0][2], r'^ValueError: bad 3 \(test_worker.py:\d+\)$')
        self.assertEqual(worker.done(), 1)
        self.assertEqual((worker.ids(8), worker.flags(8)), (list(range(8)), [0, 0, 0, 1, 1, 0, 1, 0]))
        self.assertFalse({3, 4, 6} & {number(worker.cell(row)) for row in range(8)})

    def test_not_replaced_by_any(self):
        def fetch(sample):
            raise ValueError(f'bad {sample}')
        worker = self.numbers(fetch, on_error=1, samples=3)
        worker.assign(0, 1)
        while (got := worker.receive())[0] == REPLACED:
            pass
        broken = Broken(got[1])
        self.assertEqual((broken.sample, broken.exception), (0, ''))
        self.assertRegex(broken.text, r'^ValueError: bad 0 \(.*; nor is any of 100 substitutes for it good$')


class Orders(Talk):
    def test_pinned(self):
        """As tests/unit/test-order.c."""
        for samples, seed, epoch, expected in (
                (5, 0, 0, (1, 0, 4, 2)), (96, 1, 2, (47, 69, 37, 21)), (97, 1, 2, (15, 76, 70, 60)),
                (10000, 0, 0, (2734, 1173, 6845, 2193)),
                (1000000000, 2**64 - 1, 3, (150943390, 663913981, 568530893, 298204144)),
                (2**48, 123456789, 2**32 - 1, (220390490007233, 10499400630742, 146951077003017, 1078722142360))):
            self.assertEqual(tuple(number(_worker.order(samples, seed, epoch, row, 1))
                                   for row in (0, 1, samples // 2, samples - 1)), expected)
        self.assertEqual(sorted(struct.unpack('<1000q', _worker.order(1000, 1, 1, 0, 1000))), list(range(1000)))
        self.assertEqual(_worker.order(10, 0, 0, 10, 0), b'')
        for wrong in ((10, 0, 0, 8, 3), (0, 0, 0, 0, 0), (10, 0, 0, 2**64 - 1, 2)):
            self.assertRaises(ValueError, _worker.order, *wrong)

    def test_given(self):
        worker = self.numbers(lambda sample: sample, samples=4, given_order=True)
        worker.order([5, 900, 5, 2**48 - 1])
        worker.fill(0, 4)
        self.assertEqual([number(worker.cell(row)) for row in range(4)], [5, 900, 5, 2**48 - 1])
        self.assertEqual(worker.ids(4), [5, 900, 5, 2**48 - 1])
        self.assertEqual(worker.end(), 0)

    def test_the_last_four_are_kept(self):
        worker = self.numbers(lambda sample: sample, samples=1, given_order=True)
        for epoch in range(5):
            worker.order([100 + epoch], epoch=epoch)
        worker.order([200], epoch=4)  # given again
        for epoch, expected in ((1, 101), (2, 102), (3, 103), (4, 200)):
            worker.fill(0, 1, epoch=epoch)
            self.assertEqual(number(worker.cell(0)), expected)
        worker.assign(0, 1, epoch=0)
        self.assertRaises(Gone, worker.receive)
        self.assertEqual(worker.wait(), 1)

    def test_out_of_turn(self):
        for begin in (lambda worker: worker.assign(0, 1), lambda worker: (worker.order([1, 2], epoch=1), worker.assign(0, 1)),
                      lambda worker: (worker.order([1, 2]), worker.assign(0, 1, seed=6)),
                      lambda worker: (worker.order([1]), worker.assign(0, 1))):
            worker = self.numbers(lambda sample: sample, samples=2, given_order=True)
            begin(worker)
            self.assertRaises(Gone, worker.receive)
            self.assertEqual(worker.wait(), 1)
        worker = self.numbers(lambda sample: sample)
        worker.order([1])
        self.assertRaises(Gone, worker.receive)

    def test_not_sealed(self):
        worker = self.numbers(lambda sample: sample, samples=1, given_order=True)
        worker.order([1], seal=False)
        self.assertEqual(Broken(worker.expect(BROKEN)).text, 'the order is not sealed')

    def test_no_number_of_a_sample(self):
        for wrong in (-1, 2**48):
            worker = self.numbers(lambda sample: sample, samples=3, given_order=True, on_error=1)
            worker.order([9, wrong, 3])
            broken = worker.broken(0, 3)
            self.assertEqual((broken.error, broken.first, broken.sample, broken.exception), (errno.ERANGE, 1, 1, ''))
            self.assertEqual(broken.text, f'row 1 of the given order is sample {wrong}, expected 0 to 2^48 - 1')
            self.assertEqual(worker.fill(2, 1), 0)

    def test_substitutes_are_of_the_order(self):
        def fetch(sample):
            if sample == 1000:
                raise ValueError('bad')
            return sample
        worker = self.numbers(fetch, samples=6, given_order=True, on_error=1)
        worker.condemn(5000)
        worker.order([1000, 2000, 3000, 4000, 5000, 1000])
        worker.assign(0, 6)
        worker.expect(REPLACED)
        self.assertEqual(worker.done(), 1)
        values = [number(worker.cell(row)) for row in range(6)]
        self.assertEqual((values[1:4], worker.flags(6)), ([2000, 3000, 4000], [1, 0, 0, 0, 1, 1]))
        self.assertTrue({values[0], values[4], values[5]} <= {2000, 3000, 4000}, values)
        self.assertEqual(values[0], values[5])  # the same sample has the same substitute
        self.assertEqual(worker.ids(6), [1000, 2000, 3000, 4000, 5000, 1000])

    def test_batches(self):
        """A row is a batch: the order has a place for each and one more, and the maker reads it."""
        views = []

        def start(number, fields):
            def make(seed, epoch, row, sample, order, cells):
                if sample == 1 and epoch == 1:
                    raise ValueError('bad')
                views[:] = views or [order]
                assert row == sample and (epoch > 0 or order is views[0]) and order.readonly and order.format == 'q'
                samples = order[4 + order[sample]:4 + order[sample + 1]]
                cells[0][:len(samples)] = bytes(samples.tolist())
            return make
        worker = self.worker([('batch', 'uint8', (4,))], start, samples=3, given_order=True, on_error=1)
        worker.order([0, 2, 5, 6, 11, 12, 13, 14, 15, 16])
        worker.fill(0, 3)
        self.assertEqual([worker.cell(row) for row in range(3)], [b'\x0b\x0c\0\0', b'\x0d\x0e\x0f\0', b'\x10\0\0\0'])
        self.assertEqual(worker.ids(3), [0, 1, 2])
        worker.order([0, 1, 2, 3, 21, 22, 23], epoch=1)
        worker.assign(0, 3, epoch=1)
        worker.expect(REPLACED)
        self.assertEqual(worker.done(), 1)
        self.assertIn(worker.cell(1)[0], (21, 23))


LEASH = '''
import os, sys, time
from pinfeed import _worker
os.close(int(sys.argv[2]))
if sys.argv[3] == 'late':
    sys.stdin.read(1)
_worker.leash(int(sys.argv[1]), with_parent=False)
print('on', flush=True)
time.sleep(60)
'''


class Leash(unittest.TestCase):
    def start(self, how):
        reading, writing = os.pipe()
        child = subprocess.Popen([sys.executable, '-B', '-c', LEASH, str(reading), str(writing), how],
                                 pass_fds=(reading, writing), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        os.close(reading)
        return child, writing

    def test_closed_later(self):
        child, writing = self.start('')
        self.assertEqual(child.stdout.readline(), b'on\n')
        self.assertIsNone(child.poll())
        os.close(writing)
        self.assertEqual(child.wait(10 * SLOWDOWN), -signal.SIGKILL)

    def test_closed_before(self):
        child, writing = self.start('late')
        os.close(writing)
        child.stdin.write(b'x')
        child.stdin.flush()
        self.assertEqual(child.wait(10 * SLOWDOWN), -signal.SIGKILL)
        self.assertEqual(child.stdout.read(), b'')

    def test_parent_that_ends(self):
        """The writing end is still open then."""
        reading, writing = os.pipe()
        told, telling = os.pipe()
        parent = os.fork()
        if parent == 0:
            if os.fork() == 0:
                _worker.leash(reading)
                os.write(telling, struct.pack('<i', os.getpid()))
                time.sleep(60)
            time.sleep(60)
            os._exit(0)
        pid, = struct.unpack('<i', os.read(told, 4))
        watched = os.pidfd_open(pid)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        self.assertTrue(select.select([watched], [], [], 10 * SLOWDOWN)[0])
        for fd in (reading, writing, told, telling, watched):
            os.close(fd)

    def test_what_is_no_pipe(self):
        self.assertRaises(OSError, _worker.leash, 9999)
