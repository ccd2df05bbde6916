# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 with a systemd that has really booted, in a container of systemd-nspawn.

The root is made by mmdebstrap once and kept as a tar file; each machine unpacks its own. It has no network, process numbers,
mounts and cgroups of its own, and the host's memory and processors. Commands run in it by nsenter, not through its systemd,
so they work, and say what is wrong, however ill that is.

nspawn wants a terminal and puts its cgroups beside those of its caller: it gets a pseudo-terminal, of which the log is kept,
and is started in a cgroup that is made for it, so that machines do not meet. A janitor, a process that nobody waits for
unless all goes well, ends the machine and removes what is left of it, however the test ends.
"""

import contextlib
import hashlib
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
# What the system is made of, besides what it installs. What no test reads is left out.
PACKAGES = ('dbus', 'libpam-systemd', 'systemd', 'systemd-sysv')
SPARED = ('/usr/share/doc/*', '/usr/share/locale/*', '/usr/share/man/*')
BOOT_SECONDS = 60
TIMEOUT = 60  # seconds, for a command
POLL = 0.02


def wait_for(condition, what, seconds=20):
    """The first true value of condition(); an AssertionError that names `what` when that takes too long. What is to be said of
    it besides may be a function."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f'{what}: not in {seconds} s')
        time.sleep(POLL)


def make_root(directory, packages):
    """The tar file of a root that has PACKAGES and `packages`; made where it is missing, or was made in another month."""
    packages = sorted({*PACKAGES, *packages})
    key = hashlib.sha256(repr((packages, SPARED, time.strftime('%Y-%m'))).encode()).hexdigest()[:12]
    path = os.path.join(directory, f'debian-12-{key}.tar')
    if not os.path.exists(path):
        os.makedirs(directory, exist_ok=True)
        for name in os.listdir(directory):
            if name.startswith('debian-12-'):
                os.unlink(os.path.join(directory, name))
        subprocess.run(['mmdebstrap', '--quiet', '--variant=apt', '--format=tar', '--include=' + ','.join(packages),
                        *(f'--dpkgopt=path-exclude={pattern}' for pattern in SPARED),
                        'bookworm', path + '.new'], check=True, stdin=subprocess.DEVNULL)
        os.rename(path + '.new', path)
    return path


def _hierarchies():
    """Mount points of the cgroup trees in which a machine has a group: the two that systemd puts its units in, its own of
    version 1 and that of version 2, and that of version 1 for memory."""
    found = {}
    with open('/proc/self/mountinfo', encoding='utf-8') as file:
        for line in file:
            place, (kind, _, options) = line.split()[4], line.split(' - ')[1].split()
            for name in ('name=systemd', 'memory') if kind == 'cgroup' else ():
                if name in options.split(','):
                    found.setdefault(name, place)
            if kind == 'cgroup2':
                found.setdefault(kind, place)
    return found


def _remove_group(path):
    for directory, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _children(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='utf-8') as file:
        return [int(child) for child in file.read().split()]


class Machine:
    """`with Machine(root) as machine:` boots one and removes it."""

    def __init__(self, root):
        self.name = f'pinfeed-{os.getpid()}-{os.urandom(2).hex()}'
        self.directory = tempfile.mkdtemp(prefix='machine-', dir=os.path.dirname(root))
        self._groups = {kind: os.path.join(place, self.name) for kind, place in _hierarchies().items()}
        self._processes = []
        self._console = b''
        self._begin_janitor()
        try:
            self._unpack(root)
            self._boot()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- its life ----

    def _begin_janitor(self):
        reading, self._janitor_end = os.pipe()
        self._janitor = os.fork()
        if self._janitor == 0:
            try:
                os.setsid()
                os.close(self._janitor_end)
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                told = b''
                while piece := os.read(reading, 4096):
                    told += piece
                self._clean_up([int(pid) for pid in told.split()])
            finally:
                os._exit(0)
        os.close(reading)

    def _clean_up(self, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in self._groups.values():
            with contextlib.suppress(AssertionError):
                wait_for(lambda group=group: _remove_group(group) or not os.path.exists(group), group)
        with contextlib.suppress(OSError):
            root = os.stat(os.path.join(self.directory, 'root'))
            os.unlink(f'/run/systemd/nspawn/locks/inode-{root.st_dev}:{root.st_ino}')
        shutil.rmtree(f'/run/systemd/nspawn/propagate/{self.name}', ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def close(self):
        """Ends it at once."""
        self.end_spawned()
        os.close(self._janitor_end)
        os.waitpid(self._janitor, 0)

    def _unpack(self, root):
        self.root = os.path.join(self.directory, 'root')
        os.mkdir(self.root)
        subprocess.run(['tar', '-xf', root, '-C', self.root, '--exclude=./dev/*'], check=True)
        with open(os.path.join(self.root, 'etc/machine-id'), 'w', encoding='ascii'):
            pass  # empty: each makes its own. Without the file it would be a first boot, with questions

    def _boot(self):
        master, slave = pty.openpty()
        for group in self._groups.values():
            os.mkdir(group)
        self._nspawn = subprocess.Popen(
            ['systemd-nspawn', '--quiet', '--directory', self.root, '--machine', self.name, '--boot', '--register=no',
             '--keep-unit', '--private-network', '--hostname=machine', '--resolv-conf=off', '--timezone=off'],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=self._enter_groups)
        os.close(slave)
        self._tell_janitor(self._nspawn.pid)
        threading.Thread(target=self._read_console, args=(master,), daemon=True).start()
        try:
            self.leader = wait_for(self._find_leader, 'the first process')
            self._tell_janitor(self.leader)
            wait_for(self.has_booted, 'booting', BOOT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f'{error}\n{self.console()}') from None

    def _enter_groups(self):
        for group in self._groups.values():
            with open(os.path.join(group, 'cgroup.procs'), 'w', encoding='ascii') as file:
                file.write('0')

    def _tell_janitor(self, pid):
        os.write(self._janitor_end, b'%d ' % pid)

    def _read_console(self, master):
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(master, 65536):
                self._console += piece
        os.close(master)

    def console(self):
        """What was to be seen on the terminal."""
        return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]|\r', '', self._console.decode(errors='replace'))

    def _find_leader(self):
        """nspawn's child, once it is systemd; there is another one before it."""
        if self._nspawn.poll() is not None:
            raise AssertionError(f'systemd-nspawn has ended with {self._nspawn.returncode}')
        for pid in _children(self._nspawn.pid):
            with contextlib.suppress(OSError), open(f'/proc/{pid}/comm', encoding='utf-8') as file:
                if file.read().strip() == 'systemd':
                    return pid
        return None

    def has_booted(self):
        return self.run('systemctl', 'is-system-running', check=False).stdout.strip() in ('running', 'degraded')

    def limit_memory(self, size):
        """Of the whole machine, which finds it as the limit of the group that it is in; False where that cannot be had. -1:
        none. (Its own systemd sets no limits: of the groups that would have them nspawn lets it see, and not change.)"""
        if 'memory' not in self._groups:
            return False
        with open(os.path.join(self._groups['memory'], 'memory.limit_in_bytes'), 'w', encoding='ascii') as file:
            file.write(str(size))
        return True

    # ---- commands ----

    def _command(self, words, user):
        become = [] if user is None else ['setpriv', f'--reuid={user}', f'--regid={user}', '--init-groups', '--']
        return ['nsenter', '--target', str(self.leader), '--all', '--', 'env', '-i', f'PATH={PATH}', 'LC_ALL=C.UTF-8',
                f'HOME={"/root" if user is None else "/home/" + user}', *become, *words]

    def run(self, *words, user=None, check=True, timeout=TIMEOUT, given=''):
        """What became of a command: returncode, stdout, stderr. With `check` it must succeed."""
        done = subprocess.run(self._command(words, user), input=given, capture_output=True, text=True, timeout=timeout,
                              check=False)
        if check and done.returncode:
            raise AssertionError(f'{" ".join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}')
        return done

    def spawn(self, *words, user=None):
        """A command in the background, with pipes for what it says. It is killed at the end of the machine."""
        process = subprocess.Popen(self._command(words, user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self._processes.append(process)
        return process

    def end_spawned(self):
        """Kills what was spawned and has not ended."""
        for process in self._processes:
            self.signal(process, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        self._processes.clear()

    def signal(self, process, number):
        """To a command that was spawned, if it still runs: nsenter, its parent, would keep it for itself."""
        if process.poll() is None:
            for pid in _children(process.pid):
                os.kill(pid, number)

    def processes(self, name):
        """Processes of the machine with that name: their numbers in there, and those that they have for us."""
        own, found = os.readlink(f'/proc/{self.leader}/ns/pid'), {}
        for pid in filter(str.isdigit, os.listdir('/proc')):
            with contextlib.suppress(OSError):
                if os.readlink(f'/proc/{pid}/ns/pid') == own:
                    with open(f'/proc/{pid}/status', encoding='utf-8') as file:
                        facts = dict(line.split(':', 1) for line in file.read().splitlines())
                    if facts['Name'].strip() == name:
                        found[int(facts['NSpid'].split()[-1])] = int(pid)
        return found

    # ---- files, also those in /run and /tmp ----

    def path(self, path):
        """Where the machine's file is for us."""
        return f'/proc/{self.leader}/root{path}'

    def write(self, path, text):
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), 'w', encoding='utf-8') as file:
            file.write(text)

    def read(self, path):
        with open(self.path(path), encoding='utf-8') as file:
            return file.read()

    def exists(self, path):
        return os.path.lexists(self.path(path))

    def copy(self, path, to):
        os.makedirs(os.path.dirname(self.path(to)), exist_ok=True)
        shutil.copy2(path, self.path(to))
