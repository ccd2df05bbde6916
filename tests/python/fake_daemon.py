# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of a worker's socket, played in Python: pinfeed._worker in a forked child, and its ring in our hands."""

import array
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import sys
import traceback

from pinfeed import _worker

SETUP, SCAN, INDEX, ASSIGN, DONE, BROKEN, CONDEMNED, REPLACED, RETURNED, ORDER = 32, 33, 35, 36, 37, 38, 39, 40, 41, 15
SIZES = {'uint8': 1, 'int32': 4, 'int64': 8, 'float16': 2, 'bfloat16': 2, 'float32': 4, 'float64': 8}
STRIDE = 2 << 20
IDLE = 2**64 - 1
SEALS = 1033, 0x2 | 0x4 | 0x8  # F_ADD_SEALS: shrink, grow, write


def align(number, to=4096):
    return -(-number // to) * to


class Gone(Exception):
    """The worker has closed its end."""


class Reader:
    """Fields of a record, one after the other."""

    def __init__(self, record):
        self.record, self.at = record, 8

    def numbers(self, kinds):
        values = struct.unpack_from('<' + kinds, self.record, self.at)
        self.at += struct.calcsize('<' + kinds)
        return values

    def text(self):
        length, = self.numbers('H')
        self.at += length
        return self.record[self.at - length:self.at].decode()


class Broken:
    def __init__(self, reader):
        self.error, self.sample_given, self.sample, self.slot, self.first = reader.numbers('HBQII')
        self.file, self.text, self.exception, self.traceback = [reader.text() for _ in range(4)]


class Worker:
    """fields: [(name, dtype, shape)]. The child runs `start` as pinfeed._worker.run does."""

    def __init__(self, fields, start, samples=100, slot_rows=8, slots=2, shuffle=0, on_error=0, given_order=False, number=7,
                 verify=0):
        self.fields, self.slot_rows, self.slots = fields, slot_rows, slots
        self._lay_out()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            self._be_worker(theirs, samples, start)
        theirs.close()
        self.chunks = 0
        ring, page = os.memfd_create('ring'), os.memfd_create('page')
        os.ftruncate(ring, STRIDE * (slots - 1) + self.slot_bytes)
        os.ftruncate(page, 4096)
        self.ring = mmap.mmap(ring, 0)
        self.page = mmap.mmap(page, 0)
        text = ' '.join(f"{name}={dtype}[{','.join(map(str, shape))}]" for name, dtype, shape in fields)
        recipe = json.dumps({'transforms': [], 'output': {}, 'source': {
            'type': 'python', 'fields': text, 'brought': True, 'given_order': given_order}}).encode()
        setup = struct.pack('<IBBBIIH', number, shuffle, on_error, verify, slots, slot_rows, len(recipe)) + recipe
        self.send(SETUP, setup + bytes(2), [ring, page])  # an empty layout
        os.close(ring)
        os.close(page)

    def _lay_out(self):
        end, self.offsets, self.row_bytes = 0, [], []
        for _, dtype, shape in self.fields:
            size = SIZES[dtype]
            for each in shape:
                size *= each
            self.offsets.append(align(end))
            self.row_bytes.append(size)
            end = align(end) + size * self.slot_rows
        self.ids_offset = align(end)
        self.flags_offset = self.ids_offset + 8 * self.slot_rows
        self.slot_bytes = align(self.flags_offset + self.slot_rows)

    @staticmethod
    def _be_worker(theirs, samples, start):
        status = 99
        try:
            _worker.run(theirs.fileno(), samples, start)
            status = 0
        except RuntimeError as error:
            sys.stderr.write(f'# {error}\n')
            status = 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    # ---- records ----

    def send(self, kind, fields=b'', fds=()):
        record = struct.pack('<HHI', kind, 0, 8 + len(fields)) + fields
        self.socket.sendmsg([record], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else [])

    def receive(self):
        """(kind, Reader)"""
        try:
            record = self.socket.recv(65536)
        except ConnectionResetError:
            record = b''
        if not record:
            raise Gone
        return struct.unpack_from('<H', record)[0], Reader(record)

    def expect(self, kind):
        got, reader = self.receive()
        if got != kind:
            raise AssertionError(f'{got} instead of {kind}: {Broken(reader).text if got == BROKEN else reader.record[:200]}')
        return reader

    # ---- the talk ----

    def begin(self):
        """Until the worker has its index."""
        self.send(SCAN, b'\0')
        self.index = self.expect(INDEX).record
        self.socket.sendall(self.index)
        return self

    def samples(self):
        return struct.unpack_from('<Q', self.index, 8)[0]

    def assign(self, row, rows, seed=5, epoch=0, slot=0, first=0):
        self.chunks += 1
        self.send(ASSIGN, struct.pack('<HQQIIII', 1, row, seed, epoch, slot, first, rows))

    def done(self):
        """Flags of the one part of a DONE."""
        n, slot, first, rows, flags, busy, when = self.expect(DONE).numbers('HIIIIQQ')
        return flags

    def fill(self, row, rows, **more):
        self.assign(row, rows, **more)
        return self.done()

    def broken(self, row, rows, **more):
        self.assign(row, rows, **more)
        return Broken(self.expect(BROKEN))

    def condemn(self, *samples):
        self.send(CONDEMNED, struct.pack(f'<H{len(samples)}Q', len(samples), *samples))

    def order(self, entries, seed=5, epoch=0, seal=True):
        fd = os.memfd_create('order', os.MFD_ALLOW_SEALING)
        os.write(fd, struct.pack(f'<{len(entries)}q', *entries))
        if seal:
            fcntl.fcntl(fd, *SEALS)
        self.send(ORDER, struct.pack('<QIQ', seed, epoch, len(entries)), [fd])
        os.close(fd)

    # ---- what it has written ----

    def cell(self, row, field=0, slot=0):
        at = STRIDE * slot + self.offsets[field] + row * self.row_bytes[field]
        return self.ring[at:at + self.row_bytes[field]]

    def ids(self, rows, slot=0):
        return list(struct.unpack_from(f'<{rows}q', self.ring, STRIDE * slot + self.ids_offset))

    def flags(self, rows, slot=0):
        at = STRIDE * slot + self.flags_offset
        return list(self.ring[at:at + rows])

    def word(self, name):
        names = ('sample', 'epoch', 'row', 'started_ns', 'rows_done', 'cpu_ns', 'chunk_slot', 'chunk_first', 'chunk_done',
                 'begun')
        return struct.unpack_from('<Q', self.page, 8 * names.index(name))[0]

    # ---- the end ----

    def end(self):
        """The child's exit status, or the negative signal."""
        self.socket.close()
        return self.wait()

    def wait(self):
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.socket.close()
        self.ring.close()
        self.page.close()
